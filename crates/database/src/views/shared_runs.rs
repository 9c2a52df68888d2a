//! Long work that several requests need: one run does it for all that waited when it started.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use tokio::sync::{Mutex, Semaphore};

use crate::Error;

/// Runs of a server at a time: each takes a thread for blocking work, which others need.
const RUNS_MAX: usize = 4;

static PLACES: Semaphore = Semaphore::const_new(RUNS_MAX);

/// Work that runs once at a time. Requests wait for it without threads.
#[derive(Default)]
pub(crate) struct SharedRuns {
    /// How many runs have started.
    started: AtomicU64,
    /// The number of the last run that succeeded. A run holds it.
    succeeded: Arc<Mutex<u64>>,
}

impl SharedRuns {
    /// Runs `work` on a thread for blocking work in its `turn`, unless a run that started after this
    /// call succeeds before. Work that has started continues when the caller stops waiting.
    ///
    /// # Errors
    /// Errors of `work`, and [`Error::Internal`] when it panics.
    pub async fn run(
        &self,
        turn: &Arc<Mutex<()>>,
        work: impl FnOnce() -> Result<(), Error> + Send + 'static,
    ) -> Result<(), Error> {
        let started_before = self.started();
        let mut succeeded = self.succeeded.clone().lock_owned().await;
        if *succeeded > started_before {
            return Ok(());
        }
        // Nothing closes the semaphore.
        let place = PLACES.acquire().await.map_err(|_| Error::ShuttingDown)?;
        let turn = turn.clone().lock_owned().await;
        let number = self.started.fetch_add(1, SeqCst) + 1;
        let run = move || {
            let _held = (place, turn);
            work()?;
            *succeeded = number;
            Ok::<_, Error>(())
        };
        let panicked = |_| Error::Internal("the work for several requests failed".to_owned());
        tokio::task::spawn_blocking(run).await.map_err(panicked)?
    }

    /// Returns how many runs have started.
    pub fn started(&self) -> u64 {
        self.started.load(SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::task::{Context, Poll, Waker};

    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn one_run_is_enough_for_all_that_wait() {
        let (runs, turn) = (SharedRuns::default(), Arc::default());
        let (begin, may_begin) = mpsc::channel();
        let first = runs.run(&turn, move || {
            let _is_told: Result<(), _> = may_begin.recv();
            Ok(())
        });
        let mut first = Box::pin(first);
        let mut context = Context::from_waker(Waker::noop());
        assert!(matches!(first.as_mut().poll(&mut context), Poll::Pending));
        let others = (0..20).map(|_| Box::pin(runs.run(&turn, || Ok(()))));
        let mut others: Vec<_> = others.collect();
        for other in &mut others {
            assert!(matches!(other.as_mut().poll(&mut context), Poll::Pending));
        }
        assert_eq!(runs.started(), 1);
        begin.send(()).unwrap();
        first.await.unwrap();
        for other in others {
            other.await.unwrap();
        }
        // The first one may have started before something that the others know.
        assert_eq!(runs.started(), 2);
    }

    #[tokio::test]
    async fn a_run_that_fails_is_enough_for_none() {
        let (runs, turn) = (SharedRuns::default(), Arc::default());
        let (begin, may_begin) = mpsc::channel();
        let mut first = Box::pin(runs.run(&turn, move || {
            let _is_told: Result<(), _> = may_begin.recv();
            Ok(())
        }));
        let mut failing = Box::pin(runs.run(&turn, || Err(Error::ShuttingDown)));
        let mut last = Box::pin(runs.run(&turn, || Ok(())));
        let mut context = Context::from_waker(Waker::noop());
        assert!(matches!(first.as_mut().poll(&mut context), Poll::Pending));
        assert!(matches!(failing.as_mut().poll(&mut context), Poll::Pending));
        assert!(matches!(last.as_mut().poll(&mut context), Poll::Pending));
        begin.send(()).unwrap();
        first.await.unwrap();
        assert!(failing.await.is_err());
        last.await.unwrap();
        assert_eq!(runs.started(), 3);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_run_whose_caller_has_gone_continues() {
        let (runs, turn) = (SharedRuns::default(), Arc::default());
        let (begin, may_begin) = mpsc::channel();
        let (end, has_ended) = mpsc::channel();
        let mut first = Box::pin(runs.run(&turn, move || {
            let _is_told: Result<(), _> = may_begin.recv();
            end.send(()).map_err(|_| Error::ShuttingDown)
        }));
        let mut context = Context::from_waker(Waker::noop());
        assert!(matches!(first.as_mut().poll(&mut context), Poll::Pending));
        drop(first);
        // The next one waits until it has ended.
        let mut second = Box::pin(runs.run(&turn, || Ok(())));
        assert!(matches!(second.as_mut().poll(&mut context), Poll::Pending));
        assert_eq!(runs.started(), 1);
        begin.send(()).unwrap();
        second.await.unwrap();
        has_ended.recv().unwrap();
        assert_eq!(runs.started(), 2);
    }
}
