//! Slow work of requests, on threads with a lower priority than those that serve requests.

use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::LazyLock;

use parking_lot::{Condvar, Mutex};
use telemetry::{BACKGROUND_NICE, State, give_way};
use tokio::sync::oneshot;

/// Work without a result.
pub(crate) type Work = Box<dyn FnOnce() + Send>;

/// The owner of work, as hashes: users are scheduled round-robin, and so are the databases of a user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkOwner {
    /// The name of the user, or the address of a client without one.
    pub user: u64,
    /// The name of the database.
    pub database: u64,
}

/// Runs `work` on a thread with a lower priority, in its owner's turn; returns nothing when it
/// panics. There are as many such threads as cores: work that waits for others must not use them.
pub fn run_low_priority<T: Send + 'static>(
    owner: WorkOwner,
    work: impl FnOnce() -> T + Send + 'static,
) -> oneshot::Receiver<T> {
    static THREADS: LazyLock<Threads> = LazyLock::new(|| {
        let cores = std::thread::available_parallelism().map_or(2, |n| n.get());
        Threads::new("apart", || give_way(BACKGROUND_NICE), cores)
    });
    THREADS.start(owner, move || {
        let _reads = telemetry::enter(State::Read);
        work()
    })
}

/// Threads that start when there is work for them, and share a queue.
#[derive(Debug)]
pub(crate) struct Threads {
    name: &'static str,
    /// Called first by each thread, to lower its priority.
    begin: fn(),
    threads_max: usize,
    state: Mutex<Queue>,
    has_work: Condvar,
}

#[derive(Default)]
struct Queue {
    /// By user and database.
    work: Round<Round<VecDeque<Work>>>,
    waiting: usize,
    threads: usize,
    idle: usize,
}

/// Work in the order in which it is done.
trait Schedule: Default {
    fn next(&mut self) -> Option<Work>;
    fn is_empty(&self) -> bool;
}

impl Schedule for VecDeque<Work> {
    fn next(&mut self) -> Option<Work> {
        self.pop_front()
    }

    fn is_empty(&self) -> bool {
        VecDeque::is_empty(self)
    }
}

/// Owners that are scheduled round-robin.
#[derive(Default)]
struct Round<Q> {
    of: HashMap<u64, Q>,
    /// Owners that have work, in the order of their turns.
    turns: VecDeque<u64>,
}

impl<Q: Schedule> Round<Q> {
    /// The queue of an owner, for new work.
    fn of(&mut self, owner: u64) -> &mut Q {
        self.of.entry(owner).or_insert_with(|| {
            self.turns.push_back(owner);
            Q::default()
        })
    }
}

impl<Q: Schedule> Schedule for Round<Q> {
    fn next(&mut self) -> Option<Work> {
        let owner = self.turns.pop_front()?;
        let queue = self.of.get_mut(&owner)?;
        let work = queue.next();
        match queue.is_empty() {
            true => drop(self.of.remove(&owner)),
            false => self.turns.push_back(owner),
        }
        work
    }

    fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }
}

impl Queue {
    fn push(&mut self, owner: WorkOwner, work: Work) {
        self.work.of(owner.user).of(owner.database).push_back(work);
        self.waiting += 1;
    }

    fn pop(&mut self) -> Option<Work> {
        let work = self.work.next()?;
        self.waiting -= 1;
        Some(work)
    }
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue")
            .field("threads", &self.threads)
            .finish_non_exhaustive()
    }
}

impl Threads {
    /// No threads yet. They are kept in a static: they never end.
    pub fn new(name: &'static str, begin: fn(), threads_max: usize) -> Threads {
        Threads {
            name,
            begin,
            threads_max,
            state: Mutex::default(),
            has_work: Condvar::new(),
        }
    }

    /// Runs `work` on a thread in its owner's turn, unless the receiver is dropped before. The
    /// receiver gets nothing when the work panics.
    pub fn start<T: Send + 'static>(
        &'static self,
        owner: WorkOwner,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> oneshot::Receiver<T> {
        let (reply, receiver) = oneshot::channel();
        let work = move || {
            // The caller may have gone.
            if !reply.is_closed() {
                drop(reply.send(work()));
            }
        };
        self.enqueue(owner, Box::new(work));
        receiver
    }

    /// Runs `work` on a thread in its owner's turn. Work that panics, or for which no thread can be
    /// started, is dropped.
    pub fn enqueue(&'static self, owner: WorkOwner, work: Work) {
        let mut queue = self.state.lock();
        queue.push(owner, work);
        let needs_thread = queue.idle < queue.waiting && queue.threads < self.threads_max;
        if !needs_thread {
            drop(queue);
            self.has_work.notify_one();
            return;
        }
        let thread = std::thread::Builder::new().name(self.name.into());
        match thread.spawn(|| self.work()) {
            Ok(_) => queue.threads += 1,
            Err(error) => {
                tracing::error!(%error, "a thread for long work did not start");
                if queue.threads == 0 {
                    // The receivers find that their senders are gone.
                    (queue.work, queue.waiting) = (Round::default(), 0);
                }
            }
        }
    }

    fn work(&self) {
        (self.begin)();
        loop {
            let next = self.next();
            if catch_unwind(AssertUnwindSafe(next)).is_err() {
                tracing::error!("long work for a request panicked");
            }
        }
    }

    fn next(&self) -> Work {
        let mut queue = self.state.lock();
        loop {
            if let Some(work) = queue.pop() {
                return work;
            }
            queue.idle += 1;
            self.has_work.wait(&mut queue);
            queue.idle -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Barrier};

    use super::*;

    #[test]
    fn work_that_waits_for_other_work_has_a_thread_of_its_own() {
        static THREADS: LazyLock<Threads> = LazyLock::new(|| Threads::new("test", || (), 3));
        for _ in 0..100 {
            let together = Arc::new(Barrier::new(3));
            let start = |number: usize| {
                let together = together.clone();
                THREADS.start(WorkOwner::default(), move || {
                    together.wait();
                    number
                })
            };
            let all: Vec<_> = (0..3).map(start).collect();
            for (number, one) in all.into_iter().enumerate() {
                assert_eq!(one.blocking_recv(), Ok(number));
            }
        }
        assert_eq!(THREADS.state.lock().threads, 3);
    }

    #[test]
    fn users_take_turns_and_so_do_the_databases_of_a_user() {
        let mut queue = Queue::default();
        let (done, order) = std::sync::mpsc::channel();
        let mut push = |user, database| {
            let done = done.clone();
            let work = move || done.send((user, database)).unwrap();
            queue.push(WorkOwner { user, database }, Box::new(work));
        };
        for (user, database) in [(1, 1), (1, 1), (1, 1), (1, 2), (2, 1), (2, 1)] {
            push(user, database);
        }
        while let Some(work) = queue.pop() {
            work();
        }
        assert_eq!(queue.waiting, 0);
        assert!(queue.work.of.is_empty());
        let order: Vec<_> = order.try_iter().collect();
        assert_eq!(order, [(1, 1), (2, 1), (1, 2), (2, 1), (1, 1), (1, 1)]);
    }

    #[test]
    fn a_panic_is_no_answer_and_ends_no_thread() {
        static THREADS: LazyLock<Threads> = LazyLock::new(|| Threads::new("test", || (), 1));
        let panics = || -> usize { panic!("as it should") };
        let owner = WorkOwner::default();
        assert!(THREADS.start(owner, panics).blocking_recv().is_err());
        assert_eq!(THREADS.start(owner, || 1).blocking_recv(), Ok(1));
    }
}
