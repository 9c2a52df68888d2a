//! Limits the time and memory of a search. Every reader of a database may send any query.

use std::cell::Cell;
use std::collections::HashMap;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::Error;

/// Steps between two readings of the clock.
const STEPS: u32 = 1024;

/// Maximum memory that a search has of its own, in bytes.
const OWN_BYTES_MAX: usize = 2 << 20;
/// Shared memory is reserved in pieces of this size, in bytes.
const PIECE_BYTES: usize = 1 << 20;

/// Memory of all searches of a server. Each search has some for itself; the rest is shared by their users.
#[derive(Debug)]
pub struct SharedMemory {
    own_bytes: usize,
    shared_bytes: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Bytes that searches have for themselves and of the shared memory together.
    used: usize,
    peak: usize,
    /// Bytes of the shared memory that a user has.
    reserved: HashMap<Arc<str>, usize>,
}

impl State {
    fn add(&mut self, bytes: usize) {
        self.used += bytes;
        self.peak = self.peak.max(self.used);
    }
}

impl SharedMemory {
    /// Creates a pool of `bytes` bytes, for at most `searches_max` searches at a time.
    pub fn new(bytes: usize, searches_max: usize) -> Arc<SharedMemory> {
        let own_bytes = (bytes / 2 / searches_max.max(1)).min(OWN_BYTES_MAX);
        Arc::new(SharedMemory {
            own_bytes,
            shared_bytes: bytes - own_bytes * searches_max,
            state: Mutex::default(),
        })
    }

    /// Bytes that searches have now, and the most that they had.
    pub fn used_bytes(&self) -> (usize, usize) {
        let state = self.state.lock();
        (state.used, state.peak)
    }

    /// The most that one search can get, in bytes.
    pub fn of_one_max(&self) -> usize {
        self.own_bytes + self.shared_bytes / 2
    }

    /// Takes shared memory for a user, who gets at most as much as stays free.
    fn reserve(&self, user: &Arc<str>, bytes: usize) -> bool {
        let mut state = self.state.lock();
        let total: usize = state.reserved.values().sum();
        let own = state.reserved.get(user).copied().unwrap_or(0);
        let free = self.shared_bytes.saturating_sub(total);
        if bytes > free || own + bytes > free - bytes {
            return false;
        }
        *state.reserved.entry(user.clone()).or_default() += bytes;
        state.add(bytes);
        true
    }

    fn release(&self, user: &Arc<str>, bytes: usize) {
        let mut state = self.state.lock();
        state.used -= bytes;
        if let Some(own) = state.reserved.get_mut(user) {
            *own -= bytes;
            if *own == 0 {
                state.reserved.remove(user);
            }
        }
    }
}

/// The memory that a search takes part in.
#[derive(Debug)]
struct Share {
    memory: Arc<SharedMemory>,
    user: Arc<str>,
}

impl Share {
    fn new(memory: Arc<SharedMemory>, user: Arc<str>) -> Share {
        memory.state.lock().add(memory.own_bytes);
        Share { memory, user }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.memory.state.lock().used -= self.memory.own_bytes;
    }
}

/// Lets other searches run; returns how long this one waited.
type Pause = Box<dyn Fn() -> Duration>;

/// The limits of one search, over all shards.
pub struct Effort {
    until: Cell<Option<Instant>>,
    /// The remaining extension of the time limit, for time spent in pauses.
    extension_left: Cell<Duration>,
    pause: Option<Pause>,
    bytes_max: usize,
    bytes: Cell<usize>,
    /// Memory of the answer, which `bytes` does not include.
    answer_bytes: Cell<usize>,
    reserved: Rc<Reserved>,
    steps: Cell<u32>,
    is_over: Cell<bool>,
    /// The reason why it ended, unless time ran out.
    refusal: Cell<Option<Refusal>>,
}

/// The share of one search in the shared memory, until it is dropped.
#[derive(Debug, Default)]
struct Reserved {
    share: Option<Share>,
    bytes: Cell<usize>,
}

impl Reserved {
    /// The most that one search can get, in bytes.
    fn bytes_max(&self) -> usize {
        let share = self.share.as_ref();
        share.map_or(usize::MAX, |share| share.memory.of_one_max())
    }

    /// Grows to `bytes` bytes, besides each search's own memory.
    fn grow(&self, bytes: usize) -> Result<(), Refusal> {
        let Some(Share { memory, user }) = &self.share else {
            return Ok(());
        };
        let beyond = bytes.saturating_sub(memory.own_bytes);
        let reserved = self.bytes.get();
        if beyond <= reserved {
            return Ok(());
        }
        let pieces = (beyond - reserved).div_ceil(PIECE_BYTES);
        let more = pieces.saturating_mul(PIECE_BYTES);
        if !memory.reserve(user, more) {
            return Err(Refusal::Busy);
        }
        self.bytes.set(reserved + more);
        Ok(())
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        if let Some(share) = &self.share {
            share.memory.release(&share.user, self.bytes.get());
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Refusal {
    /// The search's own limit is exceeded.
    TooMuch,
    /// The shared memory is used up.
    Busy,
}

impl fmt::Debug for Effort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Effort")
            .field("until", &self.until)
            .field("bytes", &self.bytes)
            .field("is_over", &self.is_over)
            .finish_non_exhaustive()
    }
}

impl Default for Effort {
    /// Returns an effort without limits.
    fn default() -> Effort {
        Effort {
            until: Cell::new(None),
            extension_left: Cell::new(Duration::ZERO),
            pause: None,
            bytes_max: usize::MAX,
            bytes: Cell::new(0),
            answer_bytes: Cell::new(0),
            reserved: Rc::default(),
            steps: Cell::new(0),
            is_over: Cell::new(false),
            refusal: Cell::new(None),
        }
    }
}

impl Effort {
    /// Limits a search to `time` from now, and to `bytes_max` bytes at a time.
    pub fn new(time: Duration, bytes_max: usize) -> Effort {
        Effort {
            until: Cell::new(Some(Instant::now() + time)),
            extension_left: Cell::new(time),
            bytes_max,
            ..Effort::default()
        }
    }

    /// Charges the shared memory, for a search of a user.
    #[must_use]
    pub fn with_memory(mut self, memory: Arc<SharedMemory>, user: &Arc<str>) -> Effort {
        self.bytes_max = self.bytes_max.min(memory.of_one_max());
        self.reserved = Rc::new(Reserved {
            share: Some(Share::new(memory, user.clone())),
            bytes: Cell::new(0),
        });
        self
    }

    /// Calls `pause` periodically. The time that it waits extends the time limit, up to twice the
    /// limit.
    #[must_use]
    pub fn with_pauses(mut self, pause: impl Fn() -> Duration + 'static) -> Effort {
        self.pause = Some(Box::new(pause));
        self
    }

    /// Counts a step. Returns whether time is left.
    pub(crate) fn go_on(&self) -> bool {
        self.spend(1)
    }

    /// Counts steps. Returns whether time is left.
    pub fn spend(&self, steps: usize) -> bool {
        let steps = (self.steps.get() as usize).saturating_add(steps);
        self.steps.set(steps as u32 % STEPS);
        if steps >= STEPS as usize {
            self.check_time();
        }
        !self.is_over.get()
    }

    /// Passes on the values of a document, which may be many, and counts those that were read beyond
    /// the first: that one is part of the document's step.
    pub(crate) fn values<I: Iterator>(&self, values: I) -> Values<'_, I> {
        Values {
            values,
            read: 0,
            effort: self,
        }
    }

    /// Pauses when other searches wait, and checks whether time is left.
    fn check_time(&self) {
        let waited = self.pause.as_ref().map_or(Duration::ZERO, |pause| pause());
        let Some(until) = self.until.get() else {
            return;
        };
        let extension = waited.min(self.extension_left.get());
        self.extension_left
            .set(self.extension_left.get() - extension);
        let until = until + extension;
        self.until.set(Some(until));
        if Instant::now() >= until {
            self.is_over.set(true);
        }
    }

    /// Counts a step.
    ///
    /// # Errors
    /// [`Error::TooLong`], or the [`Error::TooMuch`] or [`Error::Busy`] that a cursor ran into.
    pub fn step(&self) -> Result<(), Error> {
        self.steps(1)
    }

    /// Counts steps.
    ///
    /// # Errors
    /// Those of [`Effort::step`].
    pub(crate) fn steps(&self, steps: usize) -> Result<(), Error> {
        match (self.spend(steps), self.refusal.get()) {
            (true, _) => Ok(()),
            (false, Some(refusal)) => Err(self.error(refusal)),
            (false, None) => Err(Error::TooLong),
        }
    }

    fn error(&self, refusal: Refusal) -> Error {
        match refusal {
            Refusal::TooMuch => Error::TooMuch {
                max: self.bytes_max,
            },
            Refusal::Busy => Error::Busy,
        }
    }

    /// Takes memory for a cursor, which cannot return errors. Returns whether there was enough;
    /// otherwise the search ends.
    pub(crate) fn hold(&self, bytes: usize) -> bool {
        let held = self.try_take(bytes);
        if let Err(refusal) = held {
            self.is_over.set(true);
            self.refusal.set(Some(refusal));
        }
        held.is_ok()
    }

    /// Takes memory.
    ///
    /// # Errors
    /// [`Error::TooMuch`], or [`Error::Busy`] when all searches together take too much.
    pub fn take(&self, bytes: usize) -> Result<(), Error> {
        self.try_take(bytes).map_err(|refusal| self.error(refusal))
    }

    fn try_take(&self, bytes: usize) -> Result<(), Refusal> {
        let taken = self.bytes.get().saturating_add(bytes);
        if taken > self.bytes_max {
            return Err(Refusal::TooMuch);
        }
        let answer = self.answer_bytes.get();
        self.reserved.grow(taken.saturating_add(answer))?;
        self.bytes.set(taken);
        Ok(())
    }

    /// Charges memory of the answer to the shared memory.
    ///
    /// # Errors
    /// [`Error::TooMuch`] when it is more than one search can get, or [`Error::Busy`].
    pub fn hold_answer(&self, bytes: usize) -> Result<(), Error> {
        let held = self.answer_bytes.get().saturating_add(bytes);
        grow_answer(&self.reserved, held, self.bytes.get())?;
        self.answer_bytes.set(held);
        Ok(())
    }

    /// Returns the memory of the answer, which stays charged until that is dropped. The search has
    /// ended.
    pub fn answer_memory(&self) -> AnswerMemory {
        AnswerMemory {
            reserved: self.reserved.clone(),
            bytes: Cell::new(self.answer_bytes.get() + self.bytes.get()),
        }
    }

    /// Returns the memory that is taken now, in bytes.
    pub fn taken(&self) -> usize {
        self.bytes.get()
    }

    /// Frees everything above `taken` bytes.
    pub(crate) fn give_back_to(&self, taken: usize) {
        self.bytes.set(taken);
    }
}

/// Grows to an answer of `answer` bytes, besides `others`.
fn grow_answer(reserved: &Reserved, answer: usize, others: usize) -> Result<(), Error> {
    let max = reserved.bytes_max();
    if answer > max {
        return Err(Error::TooMuch { max });
    }
    let grown = reserved.grow(answer.saturating_add(others));
    grown.map_err(|_| Error::Busy)
}

/// Shared memory of the answer of a search, until it is dropped.
#[derive(Debug)]
pub struct AnswerMemory {
    reserved: Rc<Reserved>,
    bytes: Cell<usize>,
}

impl AnswerMemory {
    /// Charges more memory of the answer.
    ///
    /// # Errors
    /// [`Error::TooMuch`] when it is more than one search can get, or [`Error::Busy`].
    pub fn hold(&self, bytes: usize) -> Result<(), Error> {
        let held = self.bytes.get().saturating_add(bytes);
        grow_answer(&self.reserved, held, 0)?;
        self.bytes.set(held);
        Ok(())
    }
}

/// The values of a document. The steps are counted when it is dropped, so that one value costs
/// nothing.
pub(crate) struct Values<'a, I> {
    values: I,
    read: usize,
    effort: &'a Effort,
}

impl<I: Iterator> Iterator for Values<'_, I> {
    type Item = I::Item;

    fn next(&mut self) -> Option<I::Item> {
        let value = self.values.next()?;
        self.read += 1;
        Some(value)
    }
}

impl<I> Drop for Values<'_, I> {
    fn drop(&mut self) {
        if self.read > 1 {
            // The next step of the search reports that time has run out.
            self.effort.spend(self.read - 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_and_memory_come_to_an_end() {
        let effort = Effort::new(Duration::ZERO, 100);
        let steps = (0..2 * STEPS).take_while(|_| effort.go_on()).count();
        assert_eq!(steps as u32, STEPS - 1);
        assert!(matches!(effort.step(), Err(Error::TooLong)));
        effort.take(60).unwrap();
        let taken = effort.taken();
        effort.take(40).unwrap();
        assert!(matches!(effort.take(1), Err(Error::TooMuch { max: 100 })));
        effort.give_back_to(taken);
        effort.take(40).unwrap();
        let effort = Effort::new(Duration::from_secs(600), 100);
        assert!(effort.hold(100) && effort.go_on());
        assert!(!effort.hold(1) && !effort.go_on());
        assert!(matches!(effort.step(), Err(Error::TooMuch { max: 100 })));
    }

    #[test]
    fn time_in_pauses_does_not_count_up_to_a_bound() {
        let pauses = |waits| {
            let effort = Effort::new(Duration::from_secs(600), 100).with_pauses(move || waits);
            assert!(effort.spend(STEPS as usize));
            effort
        };
        let effort = pauses(Duration::from_secs(60));
        assert_eq!(effort.extension_left.get(), Duration::from_secs(540));
        let late = effort.until.get().unwrap() - Instant::now();
        assert!(late > Duration::from_secs(600) && late <= Duration::from_secs(660));
        let effort = pauses(Duration::from_secs(6_000));
        assert_eq!(effort.extension_left.get(), Duration::ZERO);
    }

    #[test]
    fn searches_share_memory_beyond_what_each_has() {
        const OWN: usize = OWN_BYTES_MAX;
        let memory = SharedMemory::new(2 * OWN + 4 * PIECE_BYTES, 2);
        assert_eq!(memory.own_bytes, OWN);
        let effort = |database: &str| {
            let effort = Effort::new(Duration::from_secs(600), usize::MAX);
            effort.with_memory(memory.clone(), &database.into())
        };
        let (first, second) = (effort("a"), effort("b"));
        first.take(OWN + 1).unwrap();
        first.hold_answer(PIECE_BYTES).unwrap();
        // As much as stays free.
        assert!(matches!(first.take(PIECE_BYTES), Err(Error::Busy)));
        second.take(OWN).unwrap();
        assert!(matches!(second.take(2 * PIECE_BYTES), Err(Error::Busy)));
        assert!(!second.hold(2 * PIECE_BYTES));
        assert!(matches!(second.step(), Err(Error::Busy)));
        drop(first);
        second.take(2 * PIECE_BYTES).unwrap();
        assert!(matches!(second.take(1), Err(Error::TooMuch { .. })));
        drop(second);
        assert_eq!(memory.used_bytes(), (0, 2 * OWN + 2 * PIECE_BYTES));
    }

    #[test]
    fn an_answer_has_memory_after_its_search() {
        const OWN: usize = OWN_BYTES_MAX;
        let memory = SharedMemory::new(2 * OWN + 8 * PIECE_BYTES, 2);
        let effort = |database: &str| {
            let effort = Effort::new(Duration::from_secs(600), usize::MAX);
            effort.with_memory(memory.clone(), &database.into())
        };
        let search = effort("a");
        search.take(OWN).unwrap();
        search.hold_answer(PIECE_BYTES).unwrap();
        let answer = search.answer_memory();
        drop(search);
        assert_eq!(memory.used_bytes().0, OWN + PIECE_BYTES);
        answer.hold(3 * PIECE_BYTES).unwrap();
        assert_eq!(memory.used_bytes().0, OWN + 4 * PIECE_BYTES);
        // Never more than one search can get, and otherwise as much as stays free.
        assert!(matches!(answer.hold(1), Err(Error::TooMuch { .. })));
        let other = effort("b").answer_memory();
        assert!(matches!(
            other.hold(OWN + 3 * PIECE_BYTES),
            Err(Error::Busy)
        ));
        other.hold(OWN + 2 * PIECE_BYTES).unwrap();
        drop(answer);
        drop(other);
        assert_eq!(memory.used_bytes().0, 0);
        Effort::default().answer_memory().hold(usize::MAX).unwrap();
    }

    #[test]
    fn little_memory_is_divided_among_all_searches() {
        let memory = SharedMemory::new(4 << 20, 48);
        let database = "db".into();
        let effort = || {
            Effort::new(Duration::from_secs(600), usize::MAX).with_memory(memory.clone(), &database)
        };
        let all: Vec<_> = (0..48).map(|_| effort()).collect();
        all[0].take(1 << 20).unwrap();
        assert!(memory.used_bytes().0 <= 4 << 20);
    }
}
