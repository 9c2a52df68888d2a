//! A future that wakes itself while it is polled is polled again immediately, by the same thread.
//!
//! This happens to a connection with each request that has a body: the reader of the body wakes the
//! reader of the socket, and both are one task. The runtime would queue the task behind others, and
//! wake another thread to run it: the two threads then pass the connection back and forth.
//! According to strace, each durable write of a single client cost a write to the runtime's
//! eventfd, two to four calls of futex and as many switches between threads.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::AcqRel, Ordering::Acquire};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::task::AtomicWaker;

/// Not polled now: a wake-up wakes the task.
const IDLE: u8 = 0;
const POLLED: u8 = 1;
/// Woken since it is polled.
const WOKEN: u8 = 2;

/// After 16 polls in a row other tasks run.
const POLLS_MAX: u32 = 16;

struct Alarm {
    state: AtomicU8,
    task: AtomicWaker,
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let polled = self
            .state
            .fetch_update(AcqRel, Acquire, |state| (state != IDLE).then_some(WOKEN));
        if polled.is_err() {
            self.task.wake();
        }
    }
}

/// A future that polls the wrapped one again while that wakes itself.
pub struct Repoll<F> {
    inner: Pin<Box<F>>,
    alarm: Arc<Alarm>,
    waker: Waker,
}

impl<F: Future> Repoll<F> {
    pub fn new(inner: F) -> Repoll<F> {
        let alarm = Arc::new(Alarm {
            state: AtomicU8::new(IDLE),
            task: AtomicWaker::new(),
        });
        Repoll {
            inner: Box::pin(inner),
            waker: alarm.clone().into(),
            alarm,
        }
    }
}

impl<F: Future> Future for Repoll<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = &mut *self;
        // Before the state is set to idle: a caller that sees it idle wakes this task.
        this.alarm.task.register(cx.waker());
        for _ in 0..POLLS_MAX {
            this.alarm.state.swap(POLLED, AcqRel);
            let polled = this
                .inner
                .as_mut()
                .poll(&mut Context::from_waker(&this.waker));
            if polled.is_ready() {
                return polled;
            }
            let slept = this
                .alarm
                .state
                .compare_exchange(POLLED, IDLE, AcqRel, Acquire);
            if slept.is_ok() {
                return Poll::Pending;
            }
        }
        this.alarm.state.swap(IDLE, AcqRel);
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
    use std::time::Duration;

    use super::*;

    /// Counts how often the task is woken from outside of its poll.
    #[derive(Default)]
    struct Counted(AtomicU32);

    impl Wake for Counted {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    fn polled<F: Future + Unpin>(future: &mut F) -> (Poll<F::Output>, u32) {
        let counted = Arc::new(Counted::default());
        let waker = counted.clone().into();
        let polled = Pin::new(future).poll(&mut Context::from_waker(&waker));
        (polled, counted.0.load(Relaxed))
    }

    #[test]
    fn what_wakes_itself_is_polled_again_without_the_task_being_woken() {
        let mut times = 0;
        let mut future = Repoll::new(poll_fn(|cx| {
            times += 1;
            if times < 4 {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            Poll::Ready(times)
        }));
        assert_eq!(polled(&mut future), (Poll::Ready(4), 0));
    }

    #[test]
    fn what_never_ends_waking_itself_lets_others_have_a_turn() {
        let mut future = Repoll::new(poll_fn(|cx| {
            cx.waker().wake_by_ref();
            Poll::<()>::Pending
        }));
        assert_eq!(polled(&mut future), (Poll::Pending, 1));
        assert_eq!(polled(&mut future), (Poll::Pending, 1));
    }

    #[test]
    fn what_is_woken_while_idle_wakes_the_task_that_polled_it_last() {
        let kept = Arc::new(AtomicWaker::new());
        let mut future = Repoll::new(poll_fn(|cx| {
            kept.register(cx.waker());
            Poll::<()>::Pending
        }));
        assert_eq!(polled(&mut future), (Poll::Pending, 0));
        let counted = Arc::new(Counted::default());
        let waker = counted.clone().into();
        assert!(
            Pin::new(&mut future)
                .poll(&mut Context::from_waker(&waker))
                .is_pending()
        );
        kept.wake();
        assert_eq!(counted.0.load(Relaxed), 1);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn no_wake_from_another_thread_is_lost() {
        for _ in 0..200 {
            let (tx, mut rx) = tokio::sync::mpsc::channel::<u32>(1);
            let sender = tokio::spawn(async move {
                for n in 0..50 {
                    if tx.send(n).await.is_err() {
                        return;
                    }
                }
            });
            let received = Repoll::new(async move {
                let mut sum = 0;
                while let Some(n) = rx.recv().await {
                    sum += n;
                }
                sum
            });
            let sum = tokio::time::timeout(Duration::from_secs(20), received).await;
            assert_eq!(sum, Ok(1225));
            sender.await.expect("it does not panic");
        }
    }
}
