//! State that was current here a moment ago: one request asks the other nodes, and all requests of
//! the next two seconds use the result.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::Error;

/// Time after which state is checked again. A node that waits this time after a change knows that
/// no node uses the previous state.
pub(crate) const HELD: Duration = Duration::from_secs(2);

/// The number of the data that a replica has: another one after it was copied from another node.
/// `None` while it is copied.
type State = Option<u64>;

/// When some state was last known to be current on this node.
#[derive(Default)]
pub(crate) struct Hold {
    /// The beginning of the last check that succeeded, and the state that it was about.
    current: Mutex<Option<(Instant, State)>>,
    /// The end of the last check that failed.
    failed: Mutex<Option<Instant>>,
    /// Held by the request that checks; others wait for its result.
    check: tokio::sync::Mutex<()>,
}

impl Hold {
    /// Waits until all writes acknowledged at some time in the last [`HELD`] are applied here. Calls
    /// `fresh`, which waits for that, if this is not known of the same `state`, unless a call failed
    /// less than [`HELD`] ago. The call ends even if its request no longer waits for it.
    ///
    /// # Errors
    /// Those of `fresh`, and [`Error::NotNow`].
    pub async fn current(
        self: &Arc<Self>,
        state: impl Fn() -> State + Send + 'static,
        fresh: impl Future<Output = Result<(), Error>> + Send + 'static,
    ) -> Result<(), Error> {
        match self.known(None, state()) {
            Some(known) => known,
            None => self.check(None, state, fresh).await,
        }
    }

    /// Waits until all writes acknowledged before now are applied here. Requests that wait at the
    /// same time share one call of `fresh`.
    ///
    /// # Errors
    /// As for [`Hold::current`].
    pub async fn fresh(
        self: &Arc<Self>,
        state: impl Fn() -> State + Send + 'static,
        fresh: impl Future<Output = Result<(), Error>> + Send + 'static,
    ) -> Result<(), Error> {
        self.check(Some(Instant::now()), state, fresh).await
    }

    async fn check(
        self: &Arc<Self>,
        since: Option<Instant>,
        state: impl Fn() -> State + Send + 'static,
        fresh: impl Future<Output = Result<(), Error>> + Send + 'static,
    ) -> Result<(), Error> {
        let me = self.clone();
        let check = tokio::spawn(async move {
            let _check = me.check.lock().await;
            // Before the check: data that is replaced meanwhile is checked again.
            let (began, state) = (Instant::now(), state());
            if let Some(known) = me.known(since, state) {
                return known;
            }
            let done = fresh.await;
            match done.is_ok() {
                true => *me.current.lock() = Some((began, state)),
                false => *me.failed.lock() = Some(Instant::now()),
            }
            done
        });
        check.await.map_err(|e| Error::NotNow(e.to_string()))?
    }

    /// Returns the result of the last check if it counts: one that began after a time, or recently.
    fn known(&self, since: Option<Instant>, state: State) -> Option<Result<(), Error>> {
        let counts = |at: Instant| match since {
            Some(since) => at >= since,
            None => at.elapsed() < HELD,
        };
        let current = *self.current.lock();
        if current.is_some_and(|(at, of)| counts(at) && state.is_some() && of == state) {
            return Some(Ok(()));
        }
        // Checks take a while to fail: nobody waits for another one so soon.
        let failed = self.failed.lock().is_some_and(|at| at.elapsed() < HELD);
        failed.then(|| {
            Err(Error::NotNow(
                "this node could not be brought up to date a moment ago".into(),
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn state() -> State {
        Some(1)
    }

    #[tokio::test]
    async fn requests_share_one_check() {
        let (hold, checks) = (Arc::new(Hold::default()), Arc::new(AtomicUsize::new(0)));
        let check = || {
            let checks = checks.clone();
            async move {
                checks.fetch_add(1, Ordering::Relaxed);
                tokio::task::yield_now().await;
                Ok(())
            }
        };
        let all = (0..50).map(|_| hold.current(state, check()));
        let all = futures_util::future::join_all(all).await;
        assert!(all.iter().all(Result::is_ok));
        assert_eq!(checks.load(Ordering::Relaxed), 1);
        // A copy from another node may be older.
        hold.current(|| Some(2), check()).await.unwrap();
        assert_eq!(checks.load(Ordering::Relaxed), 2);
    }

    #[tokio::test]
    async fn a_check_that_began_before_a_request_is_not_fresh() {
        let (hold, checks) = (Arc::new(Hold::default()), Arc::new(AtomicUsize::new(0)));
        let check = || {
            let checks = checks.clone();
            async move {
                checks.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
                Ok(())
            }
        };
        hold.current(state, check()).await.unwrap();
        let all = (0..50).map(|_| hold.fresh(state, check()));
        let all = futures_util::future::join_all(all).await;
        assert!(all.iter().all(Result::is_ok));
        // All of them had come before the first one's check began, or before the second one's.
        assert!((2..=3).contains(&checks.load(Ordering::Relaxed)));
    }

    #[tokio::test]
    async fn a_check_serves_others_when_its_request_has_gone() {
        let hold = Arc::new(Hold::default());
        let (done, waits) = tokio::sync::oneshot::channel::<()>();
        let check = async move {
            let _ = waits.await;
            Ok(())
        };
        let mut gone = Box::pin(hold.current(state, check));
        assert!(futures_util::poll!(&mut gone).is_pending());
        tokio::task::yield_now().await;
        drop(gone);
        done.send(()).unwrap();
        let fails = async { Err(Error::NotNow("not needed".into())) };
        assert!(hold.current(state, fails).await.is_ok());
    }

    #[tokio::test]
    async fn a_check_that_failed_is_not_repeated_at_once() {
        let hold = Arc::new(Hold::default());
        let fails = async { Err(Error::NotNow("cut off".into())) };
        assert!(hold.current(state, fails).await.is_err());
        assert!(hold.current(state, async { Ok(()) }).await.is_err());
        *hold.failed.lock() = None;
        assert!(hold.current(state, async { Ok(()) }).await.is_ok());
    }
}
