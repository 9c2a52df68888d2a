//! The order of password checks. Checks are slow; they wait for their turn without a thread.
//!
//! Turns are given round-robin by address, so that a flood from one address leaves turns to others. Addresses without
//! recent failures come first, so that a flood from many addresses does too. The number of waiting
//! checks is bounded.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use crate::origin::Origin;

/// At most this number of checks of one address wait: clients behind a proxy have one, and a client
/// with many connections has as many checks of the same password.
const WAITING_OF_EACH_MAX: usize = 4096;
/// At most this number of checks wait.
const WAITING_MAX: usize = 16_384;
/// An address comes after others for this time after a wrong password.
const FAILED_TIME: Duration = Duration::from_secs(300);
/// Most addresses whose wrong passwords are remembered.
const FAILED_MAX: usize = 4096;

/// Turns for all addresses, and for each.
pub(crate) struct Turns {
    queues: Arc<Queues>,
}

struct Queues {
    of_each: usize,
    state: Mutex<State>,
}

struct State {
    free: usize,
    waiting: usize,
    /// Number of turns that began, the time by which addresses are scheduled.
    began: u64,
    /// Number of checks that came.
    came: u64,
    /// Addresses with checks that run or wait; `None` for requests without one.
    by_origin: HashMap<Option<Origin>, Queue>,
    /// Addresses with wrong passwords, and when.
    failed: HashMap<Origin, Instant>,
}

/// The checks of one address.
#[derive(Default)]
struct Queue {
    running: usize,
    /// In the order in which they came.
    waiting: VecDeque<WaitingCheck>,
    /// [`State::began`] at its last turn, or when it came.
    since: u64,
}

/// A check that waits, by the number of its arrival.
struct WaitingCheck {
    number: u64,
    sender: oneshot::Sender<Turn>,
}

/// Removes a check from its queue when its client has gone. Otherwise new checks would have to search all
/// that wait for those whose clients have gone.
struct Entry {
    queues: Arc<Queues>,
    origin: Option<Origin>,
    number: u64,
    is_over: bool,
}

impl Drop for Entry {
    fn drop(&mut self) {
        if !self.is_over {
            self.queues.lock().forget(&self.origin, self.number);
        }
    }
}

/// The right to check a password, until dropped.
pub(crate) struct Turn {
    origin: Option<Origin>,
    /// `None` once it has ended.
    queues: Option<Arc<Queues>>,
}

impl Turns {
    /// As many as half of the processors; one address has half of them.
    pub(crate) fn new() -> Turns {
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Turns::of(processors / 2)
    }

    fn of(all: usize) -> Turns {
        Turns {
            queues: Arc::new(Queues {
                of_each: (all / 2).max(1),
                state: Mutex::new(State {
                    free: all.max(1),
                    waiting: 0,
                    began: 0,
                    came: 0,
                    by_origin: HashMap::new(),
                    failed: HashMap::new(),
                }),
            }),
        }
    }

    /// Waits for a turn; `None` when too many checks wait.
    pub(crate) async fn wait(&self, origin: Option<&Origin>) -> Option<Turn> {
        let mut entry = Entry {
            queues: self.queues.clone(),
            origin: origin.cloned(),
            number: 0,
            is_over: true,
        };
        let turn = {
            let mut state = self.queues.lock();
            let (number, turn) = state.enter(&entry.origin)?;
            entry.number = number;
            entry.is_over = false;
            self.queues.start_next(state);
            turn
        };
        let turn = turn.await;
        entry.is_over = true;
        turn.ok()
    }

    /// Notes whether a password of this address was right.
    pub(crate) fn note(&self, origin: Option<&Origin>, is_right: bool) {
        let Some(origin) = origin else {
            return;
        };
        let mut state = self.queues.lock();
        if is_right {
            state.failed.remove(origin);
            return;
        }
        let now = Instant::now();
        if state.failed.len() >= FAILED_MAX {
            let is_recent = |at: &Instant| now.saturating_duration_since(*at) < FAILED_TIME;
            state.failed.retain(|_, at| is_recent(at));
        }
        if state.failed.len() < FAILED_MAX || state.failed.contains_key(origin) {
            state.failed.insert(origin.clone(), now);
        }
    }
}

impl State {
    /// Appends a check to the queue of its address; returns its number.
    fn enter(&mut self, origin: &Option<Origin>) -> Option<(u64, oneshot::Receiver<Turn>)> {
        if self.waiting_of(origin) >= WAITING_OF_EACH_MAX {
            return None;
        }
        if self.waiting >= WAITING_MAX && (self.has_failed(origin) || !self.refuse_one()) {
            return None;
        }
        let began = self.began;
        let new = || Queue {
            since: began,
            ..Queue::default()
        };
        self.came += 1;
        let (number, (sender, receiver)) = (self.came, oneshot::channel());
        let queue = self.by_origin.entry(origin.clone()).or_insert_with(new);
        queue.waiting.push_back(WaitingCheck { number, sender });
        self.waiting += 1;
        Some((number, receiver))
    }

    fn waiting_of(&self, origin: &Option<Origin>) -> usize {
        self.by_origin
            .get(origin)
            .map_or(0, |queue| queue.waiting.len())
    }

    fn has_failed(&self, origin: &Option<Origin>) -> bool {
        let at = origin.as_ref().and_then(|origin| self.failed.get(origin));
        at.is_some_and(|at| at.elapsed() < FAILED_TIME)
    }

    /// Removes a check that still waits.
    fn forget(&mut self, origin: &Option<Origin>, number: u64) {
        let Some(queue) = self.by_origin.get_mut(origin) else {
            return;
        };
        let Ok(at) = queue
            .waiting
            .binary_search_by_key(&number, |check| check.number)
        else {
            return;
        };
        queue.waiting.remove(at);
        self.waiting -= 1;
        if queue.running == 0 && queue.waiting.is_empty() {
            self.by_origin.remove(origin);
        }
    }

    /// Refuses the last check of the failed address that has most; returns whether there is one. Only
    /// addresses that are remembered as failed are searched.
    fn refuse_one(&mut self) -> bool {
        let now = Instant::now();
        let is_recent = |at: &Instant| now.saturating_duration_since(*at) < FAILED_TIME;
        let failed = self.failed.iter().filter(|(_, at)| is_recent(at));
        let waiting = failed.map(|(origin, _)| {
            let origin = Some(origin.clone());
            (self.waiting_of(&origin), origin)
        });
        let Some((_, origin)) = waiting.max_by_key(|(waiting, _)| *waiting) else {
            return false;
        };
        let queue = self.by_origin.get_mut(&origin);
        let Some(refused) = queue.and_then(|queue| queue.waiting.pop_back()) else {
            return false;
        };
        self.waiting -= 1;
        drop(refused);
        true
    }

    /// Takes the next check: of the address without failures that has waited longest, then of the
    /// others.
    fn next(&mut self, of_each: usize) -> Option<(Option<Origin>, oneshot::Sender<Turn>)> {
        if self.free == 0 {
            return None;
        }
        let may_run = |(origin, queue): &(&Option<Origin>, &Queue)| {
            !queue.waiting.is_empty() && (origin.is_none() || queue.running < of_each)
        };
        let first = self
            .by_origin
            .iter()
            .filter(may_run)
            .min_by_key(|(origin, queue)| (self.has_failed(origin), queue.since))
            .map(|(origin, _)| origin.clone())?;
        let queue = self.by_origin.get_mut(&first)?;
        let sender = queue.waiting.pop_front()?.sender;
        queue.running += 1;
        self.began += 1;
        queue.since = self.began;
        self.free -= 1;
        self.waiting -= 1;
        Some((first, sender))
    }

    /// Ends a turn of an address.
    fn end(&mut self, origin: &Option<Origin>) {
        self.free += 1;
        if let Some(queue) = self.by_origin.get_mut(origin) {
            queue.running -= 1;
            if queue.running == 0 && queue.waiting.is_empty() {
                self.by_origin.remove(origin);
            }
        }
    }
}

impl Queues {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins as many turns as are free.
    fn start_next<'q>(self: &'q Arc<Self>, mut state: MutexGuard<'q, State>) {
        loop {
            let mut started = vec![];
            while let Some((origin, sender)) = state.next(self.of_each) {
                let queues = Some(self.clone());
                started.push((sender, Turn { origin, queues }));
            }
            drop(state);
            // Turns of clients that have gone end here. Dropping one would begin the next by a call
            // within this one: thousands of clients may go at once, and the stack would overflow.
            let sent = started.into_iter().map(|(sender, turn)| sender.send(turn));
            let mut unwanted: Vec<Turn> = sent.filter_map(Result::err).collect();
            if unwanted.is_empty() {
                return;
            }
            state = self.lock();
            for turn in &mut unwanted {
                turn.queues = None;
                state.end(&turn.origin);
            }
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let Some(queues) = self.queues.take() else {
            return;
        };
        let mut state = queues.lock();
        state.end(&self.origin);
        queues.start_next(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    fn is_ready<T>(future: std::pin::Pin<&mut impl Future<Output = T>>) -> Option<T> {
        match future.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(done) => Some(done),
            Poll::Pending => None,
        }
    }

    fn address(n: u8) -> Origin {
        std::net::IpAddr::from([n, 0, 0, 1]).into()
    }

    #[test]
    fn one_address_leaves_turns_to_others_and_gives_them_back() {
        let turns = Turns::of(2);
        let (a, b) = (address(1), address(2));
        let first = is_ready(pin!(turns.wait(Some(&a))))
            .expect("free")
            .expect("few wait");
        let mut second = pin!(turns.wait(Some(&a)));
        assert!(
            is_ready(second.as_mut()).is_none(),
            "its own turns are taken"
        );
        let other = is_ready(pin!(turns.wait(Some(&b)))).expect("another's turn");
        assert!(is_ready(pin!(turns.wait(None))).is_none(), "all are taken");
        drop(first);
        // The other check that waits has gone.
        assert!(is_ready(second.as_mut()).is_some());
        drop(other);
        let state = turns.queues.lock();
        assert_eq!((state.free, state.waiting), (2, 0));
    }

    #[test]
    fn addresses_that_nobody_waits_for_are_forgotten() {
        let turns = Turns::of(4);
        for n in 0..100 {
            drop(is_ready(pin!(turns.wait(Some(&address(n))))));
        }
        assert!(turns.queues.lock().by_origin.is_empty());
    }

    #[test]
    fn an_address_without_failures_comes_before_many_that_failed() {
        let turns = Turns::of(1);
        let running = is_ready(pin!(turns.wait(Some(&address(0))))).expect("free");
        let mut flood: Vec<_> = (1..=60)
            .flat_map(|n| [address(n), address(n), address(n)])
            .map(|origin| {
                turns.note(Some(&origin), false);
                let turns = &turns;
                Box::pin(async move { turns.wait(Some(&origin)).await })
            })
            .collect();
        for waiting in &mut flood {
            assert!(is_ready(waiting.as_mut()).is_none());
        }
        let user = address(200);
        let mut first = pin!(turns.wait(Some(&user)));
        assert!(is_ready(first.as_mut()).is_none());
        drop(running);
        let turn = is_ready(first.as_mut()).expect("the next turn");
        assert!(
            flood
                .iter_mut()
                .all(|waiting| is_ready(waiting.as_mut()).is_none())
        );
        drop(turn);
        let next = flood
            .iter_mut()
            .filter_map(|waiting| is_ready(waiting.as_mut()));
        assert_eq!(
            next.collect::<Vec<_>>().len(),
            1,
            "then the others, one at a time"
        );
    }

    #[test]
    fn waiting_checks_are_bounded_and_failed_ones_make_room() {
        let turns = Turns::of(1);
        let _running = is_ready(pin!(turns.wait(None))).expect("free");
        let mut waiting: Vec<_> = (1..=WAITING_MAX)
            .map(|n| address((n / WAITING_OF_EACH_MAX.div_ceil(2)) as u8))
            .map(|origin| {
                turns.note(Some(&origin), false);
                let turns = &turns;
                Box::pin(async move { turns.wait(Some(&origin)).await })
            })
            .collect();
        for check in &mut waiting {
            assert!(is_ready(check.as_mut()).is_none());
        }
        let more = is_ready(pin!(turns.wait(Some(&address(1)))));
        assert!(more.is_some_and(|turn| turn.is_none()), "refused at once");
        let user = address(200);
        let mut first = pin!(turns.wait(Some(&user)));
        assert!(is_ready(first.as_mut()).is_none(), "it waits");
        let refused = waiting
            .iter_mut()
            .filter_map(|check| is_ready(check.as_mut()));
        assert_eq!(refused.filter(Option::is_none).count(), 1);
        drop(waiting);
        assert_eq!(turns.queues.lock().waiting, 1, "the others have gone");
    }

    #[test]
    fn clients_that_go_leave_their_queue_at_once() {
        let turns = Turns::of(1);
        let (a, b) = (address(1), address(2));
        let running = is_ready(pin!(turns.wait(Some(&a)))).expect("free");
        let mut waiting: Vec<_> = (0..WAITING_OF_EACH_MAX)
            .map(|_| Box::pin(turns.wait(Some(&a))))
            .collect();
        for check in &mut waiting {
            assert!(is_ready(check.as_mut()).is_none());
        }
        let one_more = is_ready(pin!(turns.wait(Some(&a))));
        assert!(
            one_more.is_some_and(|turn| turn.is_none()),
            "its queue is full"
        );
        // From the middle, the front and the back.
        for at in [2000, 0, WAITING_OF_EACH_MAX - 3] {
            drop(waiting.remove(at));
        }
        let queued = || {
            turns.queues.lock().by_origin[&Some(a.clone())]
                .waiting
                .len()
        };
        assert_eq!(queued(), WAITING_OF_EACH_MAX - 3);
        assert_eq!(turns.queues.lock().waiting, WAITING_OF_EACH_MAX - 3);
        let mut last = Box::pin(turns.wait(Some(&a)));
        assert!(is_ready(last.as_mut()).is_none(), "there is room again");
        let mut other = Box::pin(turns.wait(Some(&b)));
        assert!(is_ready(other.as_mut()).is_none());
        drop(waiting);
        drop(other);
        assert!(!turns.queues.lock().by_origin.contains_key(&Some(b)));
        drop(running);
        let turn = is_ready(last.as_mut()).expect("the next turn");
        assert!(turn.is_some());
        // A check that is over removes no other.
        drop(last);
        drop(turn);
        let state = turns.queues.lock();
        assert_eq!((state.free, state.waiting), (1, 0));
        assert!(state.by_origin.is_empty());
    }

    #[test]
    fn thousands_of_clients_may_go_while_they_wait() {
        let turns = Turns::of(1);
        let running = is_ready(pin!(turns.wait(None))).expect("free");
        let mut waiting: Vec<_> = (0..WAITING_OF_EACH_MAX)
            .map(|_| Box::pin(turns.wait(None)))
            .collect();
        for check in &mut waiting {
            assert!(is_ready(check.as_mut()).is_none());
        }
        let mut last = waiting.split_off(WAITING_OF_EACH_MAX - 1);
        drop(waiting);
        // The stack of a thread is small enough to overflow if each turn begins the next by a call.
        std::thread::scope(|scope| {
            let small = std::thread::Builder::new().stack_size(256 << 10);
            let end = small.spawn_scoped(scope, move || drop(running));
            end.expect("a thread").join().expect("no overflow");
        });
        let turn = is_ready(last[0].as_mut()).expect("the next turn");
        assert!(turn.is_some(), "the last one, who still waits");
        assert!(turns.queues.lock().waiting == 0);
    }
}
