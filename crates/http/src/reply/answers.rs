//! Memory that responses take until they end: their parameters (selectors, ids, keys), and long
//! pieces that clients have not taken.
//!
//! Selectors and the like take room before the answer begins, or the request is refused. A response
//! that was built takes room until its last byte is written to the connection; without room it waits,
//! and when too many wait it is refused. The sum is bounded, however many responses are built at a time.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use auth::{Origin, UserCtx};
use bytes::Bytes;
use database::WorkOwner;
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use crate::errors::ApiError;
use crate::reply::ahead::{Begun, RequestAhead};

/// The first 16 KiB of a request's parameters are not counted.
pub const FREE_BYTES: u64 = 16 << 10;
/// How long a request waits for room before it is refused.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// Longest wait for memory of a long response that is about to begin.
const BEGIN_WAIT_MAX: Duration = Duration::from_secs(30);

/// However full the budget is, a user may have this part of the reserve, so that ordinary requests of
/// others continue. The reserve is a quarter of the budget, beyond it.
const RESERVE_BYTES: u64 = 1 << 20;
/// A request that waits for room checks again after this time: the memory of other users may be free.
const AGAIN: Duration = Duration::from_millis(100);
/// At most this number of requests of a user wait for room; more are refused immediately.
const WAITERS_MAX: usize = 256;

/// Memory for answers, as one user sees it. Clones share it.
#[derive(Clone)]
pub struct Answers {
    pool: Arc<Pool>,
    /// The user; `None` for server admins, whose share is not limited.
    sharer: Option<Sharer>,
    /// The database that the request is about, as the hash of the path's first segment.
    database: u64,
    /// The bytes of the HTTP/2 connection that the request came by.
    ahead: Option<RequestAhead>,
}

/// A user, as the hash of a name or of an address.
type Sharer = u64;

struct Pool {
    budget_bytes: u64,
    /// A copy of [`State::used`] that is read without the lock.
    used: AtomicU64,
    state: Mutex<State>,
    wait_max: Duration,
    begin_wait_max: Duration,
    hasher: RandomState,
}

#[derive(Default)]
struct State {
    used: u64,
    /// The part of `used` that comes from the reserve.
    reserved: u64,
    /// Memory of built responses that wait for room; it is not part of `used`.
    waiting: u64,
    peak: u64,
    /// Those who hold memory or wait; `None` for server admins together.
    shares: HashMap<Option<Sharer>, Share>,
}

/// Where memory comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Budget,
    Reserve,
}

/// The part of one user.
#[derive(Default)]
struct Share {
    used: u64,
    /// The part of `used` that comes from the reserve.
    reserved: u64,
    /// Memory of built responses that wait for room.
    waiting: u64,
    /// Number of requests that wait for room.
    waiters: usize,
    /// Signals that memory of this user was freed.
    freed: Arc<Notify>,
}

impl State {
    fn add(&mut self, sharer: Option<Sharer>, bytes: u64, from: Part) {
        let share = self.shares.entry(sharer).or_default();
        self.used += bytes;
        share.used += bytes;
        if from == Part::Reserve {
            self.reserved += bytes;
            share.reserved += bytes;
        }
        self.note_peak();
    }

    fn note_peak(&mut self) {
        self.peak = self.peak.max(self.used + self.waiting);
    }

    fn own(&self, sharer: Option<Sharer>) -> u64 {
        self.shares.get(&sharer).map_or(0, |share| share.used)
    }

    /// Changes a user's part, and forgets a user who has none left.
    fn change(&mut self, sharer: Option<Sharer>, change: impl FnOnce(&mut Share)) {
        let share = self.shares.entry(sharer).or_default();
        change(share);
        if share.used == 0 && share.waiting == 0 && share.waiters == 0 {
            self.shares.remove(&sharer);
        }
    }

    /// Returns the memory that a user may have however full the budget is: a part of the rest of the
    /// reserve, so that all users together never have more than the reserve.
    fn reserve(&self, budget_bytes: u64, sharer: Option<Sharer>) -> u64 {
        let own = self.shares.get(&sharer).map_or(0, |share| share.reserved);
        let left = (budget_bytes / 4).saturating_sub(self.reserved - own);
        RESERVE_BYTES.min(left / (self.shares.len() as u64 + 1))
    }

    /// Returns where the memory of a built response comes from: as of others, or of a longer one if
    /// the user has little else and the budget is not used up.
    fn room_for_built(
        &self,
        budget_bytes: u64,
        sharer: Option<Sharer>,
        bytes: u64,
    ) -> Option<Part> {
        let has_little = || {
            let reserve = self.reserve(budget_bytes, sharer).max(1);
            self.own(sharer) < reserve && self.used <= budget_bytes
        };
        let room = self.room(budget_bytes, sharer, bytes);
        room.or_else(|| has_little().then_some(Part::Budget))
    }

    /// Returns where this many more bytes of a user come from, if it may have them. A user has at
    /// most as much as is free, so that there is always something left for the next; and never less
    /// than a share of the rest of the reserve.
    fn room(&self, budget_bytes: u64, sharer: Option<Sharer>, bytes: u64) -> Option<Part> {
        let own = self.own(sharer);
        let free = budget_bytes.saturating_sub(self.used - own);
        let share = if sharer.is_some() { free / 2 } else { free };
        match own + bytes {
            all if all <= share => Some(Part::Budget),
            all if all <= self.reserve(budget_bytes, sharer) => Some(Part::Reserve),
            _ => None,
        }
    }

    /// Returns whether a built response may wait: at most a quarter of the budget does, and a user
    /// leaves as much of it as it has.
    fn may_wait(&self, budget_bytes: u64, sharer: Option<Sharer>, bytes: u64) -> bool {
        let own = self.shares.get(&sharer).map_or(0, |share| share.waiting);
        let free = (budget_bytes / 4).saturating_sub(self.waiting - own);
        own + bytes <= if sharer.is_some() { free / 2 } else { free }
    }
}

/// Memory that an answer has, until it is dropped.
pub struct Held {
    pool: Arc<Pool>,
    sharer: Option<Sharer>,
    bytes: u64,
    from: Part,
}

impl Answers {
    /// Creates a budget of this size.
    pub fn new(budget_bytes: usize) -> Answers {
        Answers {
            pool: Arc::new(Pool {
                budget_bytes: budget_bytes as u64,
                used: AtomicU64::new(0),
                state: Mutex::default(),
                wait_max: WAIT_MAX,
                begin_wait_max: BEGIN_WAIT_MAX,
                hasher: RandomState::new(),
            }),
            sharer: None,
            database: 0,
            ahead: None,
        }
    }

    /// Returns the memory for a request of an HTTP/2 connection; without one it is HTTP/1.
    pub fn by(self, ahead: Option<RequestAhead>) -> Answers {
        Answers { ahead, ..self }
    }

    /// Waits until the connection of the request may make another response. It is called again after
    /// each long wait: a request that counts already does not wait.
    ///
    /// # Errors
    /// 503 when its client took nothing for some time.
    pub async fn begin(&self) -> Result<Option<Begun>, ApiError> {
        match &self.ahead {
            None => Ok(None),
            Some(ahead) => ahead.begin().await.map(Some),
        }
    }

    /// Whether a piece may be made while the client takes the one before. Over HTTP/2 there are too
    /// many responses at a time.
    pub fn makes_ahead(&self) -> bool {
        self.ahead.is_none()
    }

    /// Returns the memory as a user has it: by name, and without a login by address. `database`: the path's first segment.
    pub fn of(&self, user: &UserCtx, peer: Option<IpAddr>, database: &[u8]) -> Answers {
        let mut answers = self.clone();
        answers.set_user(user, peer, database);
        answers
    }

    /// Makes it the memory as a user has it, as [`Answers::of`] returns it.
    pub fn set_user(&mut self, user: &UserCtx, peer: Option<IpAddr>, database: &[u8]) {
        self.sharer = match (&user.name, peer) {
            _ if user.is_admin() => None,
            (Some(name), _) => Some(self.pool.hasher.hash_one(name)),
            (None, peer) => Some(self.pool.hasher.hash_one(peer.map(Origin::from))),
        };
        self.database = self.pool.hasher.hash_one(database);
    }

    /// The user, for shares of other memory; `None` for server admins, whose shares are not limited.
    pub fn sharer(&self) -> Option<u64> {
        self.sharer
    }

    /// Runs `work` on a thread with a lower priority, in the user's turn.
    ///
    /// # Errors
    /// 500 when it panics.
    pub async fn apart<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        self.start_apart(work)
            .await
            .map_err(ApiError::worker_failed)
    }

    /// Starts it; nothing is received when it panics.
    pub fn start_apart<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> oneshot::Receiver<T> {
        let owner = WorkOwner {
            user: self.sharer.unwrap_or(0),
            database: self.database,
        };
        database::run_low_priority(owner, work)
    }

    /// Returns the present and the largest memory of responses, in bytes.
    pub fn used_bytes(&self) -> (u64, u64) {
        let state = self.pool.state.lock();
        (state.used + state.waiting, state.peak)
    }

    /// Takes memory for a response. A user gets at most as much as stays free: half of the budget
    /// if there is no other user.
    ///
    /// # Errors
    /// 413 when it is more than a user can get, 503 when too little was freed in time.
    pub async fn take(&self, bytes: u64) -> Result<Held, ApiError> {
        self.check_most(bytes)?;
        let taken = self.wait(self.pool.wait_max, || self.try_take(bytes));
        taken.await.ok_or_else(|| {
            ApiError::busy(
                "no memory became free in time for the parameters of the request ([memory] answers)"
                    .into(),
            )
        })
    }

    /// Refuses parameters that take more memory than a user can get.
    ///
    /// # Errors
    /// 413 that names the limit.
    pub fn check_most(&self, bytes: u64) -> Result<(), ApiError> {
        let most = match self.sharer {
            Some(_) => self.pool.budget_bytes / 2,
            None => self.pool.budget_bytes,
        };
        match bytes > most {
            true => Err(ApiError::too_large("half of [memory] answers", most)),
            false => Ok(()),
        }
    }

    fn try_take(&self, bytes: u64) -> Option<Held> {
        self.take_if(bytes, State::room)
    }

    fn take_if(
        &self,
        bytes: u64,
        room: impl Fn(&State, u64, Option<Sharer>, u64) -> Option<Part>,
    ) -> Option<Held> {
        let mut state = self.pool.state.lock();
        let from = room(&state, self.pool.budget_bytes, self.sharer, bytes)?;
        Some(self.add(&mut state, bytes, from))
    }

    fn add(&self, state: &mut State, bytes: u64, from: Part) -> Held {
        state.add(self.sharer, bytes, from);
        self.pool.used.store(state.used, Ordering::Relaxed);
        Held {
            pool: self.pool.clone(),
            sharer: self.sharer,
            bytes,
            from,
        }
    }

    /// Takes memory for a response that was built. Without room the response waits, if not too many
    /// others do.
    ///
    /// # Errors
    /// 503 when the response must be dropped.
    pub async fn settle(&self, bytes: usize) -> Result<Held, ApiError> {
        let attempt = || self.take_for_built(bytes);
        if let Some(held) = attempt() {
            return Ok(held);
        }
        let waiting = self.begin_waiting(bytes as u64).ok_or_else(no_room)?;
        let held = self.wait(self.pool.begin_wait_max, attempt).await;
        drop(waiting);
        held.ok_or_else(no_room)
    }

    /// Takes memory for something that is in memory already, as [`Self::settle`] does, if it is long.
    ///
    /// # Errors
    /// 503 when it must be dropped.
    pub async fn settle_long(&self, bytes: usize) -> Result<Option<Held>, ApiError> {
        match bytes as u64 > FREE_BYTES {
            true => self.settle(bytes).await.map(Some),
            false => Ok(None),
        }
    }

    /// The size of the budget.
    pub fn budget_bytes(&self) -> usize {
        usize::try_from(self.pool.budget_bytes).unwrap_or(usize::MAX)
    }

    /// Takes memory for a response that was built, without waiting.
    ///
    /// # Errors
    /// 503 when the response must be dropped.
    pub fn settle_now(&self, bytes: usize) -> Result<Held, ApiError> {
        self.take_for_built(bytes).ok_or_else(no_room)
    }

    fn take_for_built(&self, bytes: usize) -> Option<Held> {
        self.take_if(bytes as u64, State::room_for_built)
    }

    /// Takes memory for the bytes of a response, as [`Self::settle`] does, until all copies of the
    /// returned bytes are dropped. A short piece is not counted.
    ///
    /// # Errors
    /// 503 when they must be dropped.
    pub async fn settled(&self, bytes: Bytes, free_bytes: usize) -> Result<Bytes, ApiError> {
        if bytes.len() <= free_bytes {
            return Ok(bytes);
        }
        let held = self.settle(bytes.len()).await?;
        Ok(held.with(bytes))
    }

    fn begin_waiting(&self, bytes: u64) -> Option<BuiltWaiting<'_>> {
        let mut state = self.pool.state.lock();
        if !state.may_wait(self.pool.budget_bytes, self.sharer, bytes) {
            return None;
        }
        state.waiting += bytes;
        state.note_peak();
        state.change(self.sharer, |share| share.waiting += bytes);
        Some(BuiltWaiting {
            answers: self,
            bytes,
        })
    }

    /// Counts bytes that an answer has.
    pub fn count(&self, bytes: u64) -> Held {
        self.add(&mut self.pool.state.lock(), bytes, Part::Budget)
    }

    /// Returns whether a response may have to wait to begin. A user who has a share has more than a
    /// quarter of the budget, or others have.
    pub fn is_tight(&self) -> bool {
        self.pool.used.load(Ordering::Relaxed) >= self.pool.budget_bytes / 4
    }

    /// Waits until a response, or its next piece, may be built: until the user has less than a
    /// share.
    ///
    /// # Errors
    /// 503 when there was no room in time.
    pub async fn admit(&self) -> Result<(), ApiError> {
        if !self.is_tight() {
            return Ok(());
        }
        let has_room = || {
            let state = self.pool.state.lock();
            let room = state.room(self.pool.budget_bytes, self.sharer, 1);
            room.map(drop)
        };
        let admitted = self.wait(self.pool.begin_wait_max, has_room).await;
        admitted.ok_or_else(no_room)
    }

    /// Calls `attempt` until it succeeds: when memory of the user was freed, and periodically.
    async fn wait<T>(&self, wait_max: Duration, attempt: impl Fn() -> Option<T>) -> Option<T> {
        if let Some(done) = attempt() {
            return Some(done);
        }
        let waiter = self.begin_wait()?;
        let end = Instant::now() + wait_max;
        loop {
            let again = end.min(Instant::now() + AGAIN);
            let _is_over = tokio::time::timeout_at(again, waiter.freed.notified()).await;
            if let Some(done) = attempt() {
                // There may be room for the next one too.
                waiter.freed.notify_one();
                return Some(done);
            }
            if Instant::now() >= end {
                return None;
            }
        }
    }

    fn begin_wait(&self) -> Option<Waiter<'_>> {
        let mut state = self.pool.state.lock();
        let share = state.shares.entry(self.sharer).or_default();
        if share.waiters >= WAITERS_MAX && self.sharer.is_some() {
            return None;
        }
        share.waiters += 1;
        Some(Waiter {
            answers: self,
            freed: share.freed.clone(),
        })
    }
}

fn no_room() -> ApiError {
    ApiError::busy("no memory for the answer came free in time ([memory] answers)".into())
}

/// A request that waits for room.
struct Waiter<'a> {
    answers: &'a Answers,
    /// [`Share::freed`].
    freed: Arc<Notify>,
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        let mut state = self.answers.pool.state.lock();
        state.change(self.answers.sharer, |share| share.waiters -= 1);
    }
}

/// Memory of a built response that waits for room.
struct BuiltWaiting<'a> {
    answers: &'a Answers,
    bytes: u64,
}

impl Drop for BuiltWaiting<'_> {
    fn drop(&mut self) {
        let mut state = self.answers.pool.state.lock();
        state.waiting -= self.bytes;
        state.change(self.answers.sharer, |share| share.waiting -= self.bytes);
    }
}

/// Bytes of a response with their memory.
struct HeldBytes {
    bytes: Bytes,
    _held: Held,
}

impl AsRef<[u8]> for HeldBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Held {
    /// Returns the bytes, which keep this memory until all copies of them are dropped: until a
    /// connection has written them.
    pub fn with(self, bytes: Bytes) -> Bytes {
        Bytes::from_owner(HeldBytes { bytes, _held: self })
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut state = self.pool.state.lock();
        let reserved = match self.from {
            Part::Budget => 0,
            Part::Reserve => self.bytes,
        };
        state.used -= self.bytes;
        state.reserved -= reserved;
        self.pool.used.store(state.used, Ordering::Relaxed);
        state.change(self.sharer, |share| {
            share.used -= self.bytes;
            share.reserved -= reserved;
            if share.waiters > 0 {
                share.freed.notify_one();
            }
        });
    }
}

/// Returns the bytes that this thread has allocated and not freed: only differences of the value
/// have a meaning.
static OF_THREAD: OnceLock<fn() -> i64> = OnceLock::new();

/// Lets [`measured`] use the program's allocator.
pub fn measure_by(of_thread: fn() -> i64) {
    let _is_set = OF_THREAD.set(of_thread);
}

/// Runs some work, and returns the memory of its result in bytes: the work must free everything
/// else that it allocates, and nothing that it has not. Without an allocator that counts, the
/// result is `otherwise`.
pub fn measured<T>(otherwise: usize, work: impl FnOnce() -> T) -> (T, usize) {
    let Some(of_thread) = OF_THREAD.get() else {
        return (work(), otherwise);
    };
    let before = of_thread();
    let made = work();
    let bytes = usize::try_from(of_thread().wrapping_sub(before)).unwrap_or(0);
    (made, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reply::ahead::Ahead;

    const MIB: u64 = 1 << 20;

    /// A budget whose requests are refused soon.
    fn impatient(budget_bytes: u64) -> Answers {
        let answers = Answers::new(budget_bytes as usize);
        let mut pool = Arc::into_inner(answers.pool).expect("only one");
        pool.wait_max = Duration::from_millis(10);
        pool.begin_wait_max = Duration::from_millis(10);
        Answers {
            pool: Arc::new(pool),
            sharer: None,
            database: 0,
            ahead: None,
        }
    }

    fn user(answers: &Answers, name: &str) -> Answers {
        let user = UserCtx {
            name: Some(name.to_owned()),
            roles: vec![],
        };
        answers.of(&user, None, b"")
    }

    fn status<T>(taken: Result<T, ApiError>) -> u16 {
        taken.map_or_else(|e| e.status, |_| 200)
    }

    #[tokio::test]
    async fn the_user_of_a_request_keeps_its_connection() {
        let connection = Ahead::default();
        let answers = impatient(10 * MIB).by(Some(connection.of_request()));
        assert!(!user(&answers, "a").makes_ahead());
        let first = answers.begin().await.expect("room");
        // The user's view of the request begins nothing else.
        let same = user(&answers, "a").begin().await.expect("room");
        assert_eq!(connection.begun(), 1);
        drop(first);
        assert_eq!(connection.begun(), 1);
        drop(same);
        assert_eq!(connection.begun(), 0);
        assert!(matches!(impatient(MIB).begin().await, Ok(None)));
    }

    #[tokio::test]
    async fn a_user_leaves_as_much_as_it_has() {
        let answers = impatient(100 * MIB);
        let (a, b) = (user(&answers, "a"), user(&answers, "b"));
        assert_eq!(status(a.take(50 * MIB + 1).await), 413);
        let first = a.take(30 * MIB).await.expect("room");
        let second = a.take(20 * MIB).await.expect("room");
        assert_eq!(status(a.take(1).await), 503);
        assert_eq!(status(a.admit().await), 503);
        let other = b.take(25 * MIB).await.expect("room of others");
        assert_eq!(status(b.take(1).await), 503);
        let strangers: Vec<Answers> = (1..=2)
            .map(|n| {
                answers.of(
                    &UserCtx::anonymous(),
                    Some(IpAddr::from([127, 0, 0, n])),
                    b"",
                )
            })
            .collect();
        let third = strangers[0].take(12 * MIB).await.expect("of an address");
        assert_eq!(status(strangers[1].admit().await), 200);
        assert_eq!(answers.used_bytes(), (87 * MIB, 87 * MIB));
        drop((first, second, other, third));
        assert_eq!(answers.used_bytes().0, 0);
        assert!(answers.pool.state.lock().shares.is_empty());
    }

    #[tokio::test]
    async fn ordinary_requests_go_on_when_the_budget_is_full() {
        let answers = impatient(10 * MIB);
        let hostile = user(&answers, "a");
        let _full = hostile.count(20 * MIB);
        assert_eq!(status(hostile.take(1).await), 503);
        assert_eq!(status(hostile.admit().await), 503);
        let other = user(&answers, "b");
        assert_eq!(status(other.admit().await), 200);
        let _held = other.take(200 << 10).await.expect("of the reserve");
        assert_eq!(status(other.take(2 * MIB).await), 503);
    }

    #[tokio::test]
    async fn however_many_users_there_are_they_have_a_quarter_beyond_the_budget() {
        for bytes in [1, 100, 10 << 10, 64 << 10] {
            let answers = impatient(10 * MIB);
            let _full = user(&answers, "a").count(10 * MIB);
            let others = (0..20_000).map(|n| user(&answers, &n.to_string()));
            let held: Vec<Held> = others.filter_map(|other| other.try_take(bytes)).collect();
            let (used, _) = answers.used_bytes();
            assert!(
                held.len() > 10 && used <= 10 * MIB * 5 / 4,
                "{bytes}: {used}"
            );
        }
    }

    #[tokio::test]
    async fn an_admin_alone_gets_all_room_and_more_is_refused() {
        let answers = impatient(10 * MIB);
        assert_eq!(status(answers.take(10 * MIB + 1).await), 413);
        let all = answers.take(10 * MIB).await.expect("it is alone");
        assert_eq!(status(answers.take(1).await), 503);
        assert_eq!(status(answers.admit().await), 503);
        drop(all);
        assert_eq!(status(answers.admit().await), 200);
    }

    #[tokio::test]
    async fn a_request_waits_for_room() {
        let answers = Answers::new(10 << 20);
        let first = answers.count(8 * MIB);
        let waiting = {
            let answers = answers.clone();
            tokio::spawn(async move { status(answers.take(4 * MIB).await) })
        };
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        drop(first);
        assert_eq!(waiting.await.expect("no panic"), 200);
    }

    #[tokio::test]
    async fn built_responses_are_bounded_however_many_there_are() {
        let answers = impatient(10 * MIB);
        let hostile = user(&answers, "a");
        let built = (0..200).map(|_| hostile.settle(900 << 10));
        let held: Vec<_> = futures_util::future::join_all(built).await;
        let held: Vec<Held> = held.into_iter().filter_map(Result::ok).collect();
        assert_eq!(held.len(), 5, "half of the budget");
        let (used, peak) = answers.used_bytes();
        assert!(used <= 5 * MIB && peak <= 7 * MIB, "{used}, {peak}");
        let other = user(&answers, "b");
        assert_eq!(status(other.settle(900 << 10).await), 200);
        assert_eq!(
            status(other.settle(9 * MIB as usize).await),
            200,
            "one longer"
        );
        assert!(hostile.settle_now(900 << 10).is_err());
        drop(held);
        assert_eq!(answers.used_bytes().0, 0);
        assert!(answers.pool.state.lock().shares.is_empty());
    }

    #[tokio::test]
    async fn bytes_count_until_the_last_part_of_them_is_written() {
        let answers = impatient(10 * MIB);
        let mut bytes = answers
            .settled(vec![0; 100_000].into(), 10)
            .await
            .expect("room");
        let last = bytes.split_off(99_999);
        drop(bytes);
        assert_eq!(answers.used_bytes().0, 100_000);
        drop(last);
        assert_eq!(answers.used_bytes().0, 0);
        let _short = answers.settled(vec![0; 10].into(), 10).await.expect("room");
        assert_eq!(answers.used_bytes().0, 0);
    }
}
