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
    /// Addresses with checks that run or wait; `None` for requests without one.
    by_origin: HashMap<Option<Origin>, Queue>,
    /// Addresses with wrong passwords, and when.
    failed: HashMap<Origin, Instant>,
}

/// The checks of one address.
#[derive(Default)]
struct Queue {
    running: usize,
    waiting: VecDeque<oneshot::Sender<Turn>>,
    /// [`State::began`] at its last turn, or when it came.
    since: u64,
}

/// The right to check a password, until dropped.
pub(crate) struct Turn {
    queues: Arc<Queues>,
    origin: Option<Origin>,
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
                    by_origin: HashMap::new(),
                    failed: HashMap::new(),
                }),
            }),
        }
    }

    /// Waits for a turn; `None` when too many checks wait.
    pub(crate) async fn wait(&self, origin: Option<&Origin>) -> Option<Turn> {
        let turn = {
            let mut state = self.queues.lock();
            let turn = state.enter(origin)?;
            self.queues.start_next(state);
            turn
        };
        turn.await.ok()
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
    /// Appends a check to the queue of its address.
    fn enter(&mut self, origin: Option<&Origin>) -> Option<oneshot::Receiver<Turn>> {
        let key = origin.cloned();
        if self.waiting >= WAITING_MAX || self.waiting_of(&key) >= WAITING_OF_EACH_MAX {
            self.forget_gone();
        }
        if self.waiting_of(&key) >= WAITING_OF_EACH_MAX {
            return None;
        }
        if self.waiting >= WAITING_MAX && (self.has_failed(&key) || !self.refuse_one()) {
            return None;
        }
        let began = self.began;
        let new = || Queue {
            since: began,
            ..Queue::default()
        };
        let (sender, receiver) = oneshot::channel();
        let queue = self.by_origin.entry(key).or_insert_with(new);
        queue.waiting.push_back(sender);
        self.waiting += 1;
        Some(receiver)
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

    /// Removes the checks whose clients have gone.
    fn forget_gone(&mut self) {
        for queue in self.by_origin.values_mut() {
            queue.waiting.retain(|sender| !sender.is_closed());
        }
        self.waiting = self.by_origin.values().map(|q| q.waiting.len()).sum();
        self.by_origin
            .retain(|_, queue| queue.running > 0 || !queue.waiting.is_empty());
    }

    /// Refuses the last check of the failed address that has most; returns whether there is one.
    fn refuse_one(&mut self) -> bool {
        let failed = self.by_origin.iter().filter(|(o, _)| self.has_failed(o));
        let most = failed.max_by_key(|(_, queue)| queue.waiting.len());
        let Some(origin) = most.map(|(origin, _)| origin.clone()) else {
            return false;
        };
        let queue = self.by_origin.get_mut(&origin);
        let refused = queue.and_then(|queue| queue.waiting.pop_back());
        self.waiting -= usize::from(refused.is_some());
        refused.is_some()
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
        let sender = queue.waiting.pop_front()?;
        queue.running += 1;
        self.began += 1;
        queue.since = self.began;
        self.free -= 1;
        self.waiting -= 1;
        Some((first, sender))
    }
}

impl Queues {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins as many turns as are free.
    fn start_next(self: &Arc<Self>, mut state: MutexGuard<'_, State>) {
        let mut started = vec![];
        while let Some((origin, sender)) = state.next(self.of_each) {
            let queues = self.clone();
            started.push((sender, Turn { queues, origin }));
        }
        drop(state);
        for (sender, turn) in started {
            // A client that has gone drops the turn here, which begins the next.
            let _is_wanted = sender.send(turn);
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut state = self.queues.lock();
        state.free += 1;
        if let Some(queue) = state.by_origin.get_mut(&self.origin) {
            queue.running -= 1;
            if queue.running == 0 && queue.waiting.is_empty() {
                state.by_origin.remove(&self.origin);
            }
        }
        self.queues.start_next(state);
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
        assert_eq!(turns.queues.lock().waiting, WAITING_MAX);
        turns.queues.lock().forget_gone();
        assert_eq!(turns.queues.lock().waiting, 1);
    }
}
