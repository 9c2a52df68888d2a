//! Work that takes long for a request, on threads with a lower priority than those that serve requests.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::LazyLock;

use parking_lot::{Condvar, Mutex};
use telemetry::{BACKGROUND_NICE, State, give_way};
use tokio::sync::oneshot;

type Work = Box<dyn FnOnce() + Send>;

/// Has a thread with a lower priority do `work`; nothing is answered when it panics. There are as many such threads as cores:
/// what waits for others is not for them.
pub fn apart<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> oneshot::Receiver<T> {
    static THREADS: LazyLock<Threads> = LazyLock::new(|| {
        let cores = std::thread::available_parallelism().map_or(2, |n| n.get());
        Threads::new("apart", || give_way(BACKGROUND_NICE), cores)
    });
    THREADS.start(move || {
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
    work: VecDeque<Work>,
    threads: usize,
    idle: usize,
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

    /// Has a thread do `work`, unless the receiver is dropped before. Nothing is received when it panics.
    pub fn start<T: Send + 'static>(
        &'static self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> oneshot::Receiver<T> {
        let (reply, receiver) = oneshot::channel();
        self.enqueue(Box::new(move || {
            // The caller may have gone.
            if !reply.is_closed() {
                drop(reply.send(work()));
            }
        }));
        receiver
    }

    fn enqueue(&'static self, work: Work) {
        let mut queue = self.state.lock();
        queue.work.push_back(work);
        let needs_thread = queue.idle < queue.work.len() && queue.threads < self.threads_max;
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
                    queue.work.clear();
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
            if let Some(work) = queue.work.pop_front() {
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
                THREADS.start(move || {
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
    fn a_panic_is_no_answer_and_ends_no_thread() {
        static THREADS: LazyLock<Threads> = LazyLock::new(|| Threads::new("test", || (), 1));
        let panics = || -> usize { panic!("as it should") };
        assert!(THREADS.start(panics).blocking_recv().is_err());
        assert_eq!(THREADS.start(|| 1).blocking_recv(), Ok(1));
    }
}
