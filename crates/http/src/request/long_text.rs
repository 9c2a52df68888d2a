//! Which thread does work that takes as long as a text is: parsing a body, mostly.

use tokio::sync::oneshot;

use crate::errors::ApiError;
use crate::load::{SHORT_BODY_BYTES_MAX, others_came};
use crate::reply::answers::Answers;

/// A longer text is never processed by the thread that serves its request, which takes 5 ms at least:
/// another thread begins 20 µs later.
const LONG_BYTES: usize = 1 << 20;
/// A longer one is processed on a thread for blocking work also if it gives way: the few threads for
/// that are for work of milliseconds.
const BLOCKING_BYTES: usize = 8 << 20;

/// A kind of thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Thread {
    /// The one that serves the request.
    Serving,
    /// One that gives way, in the user's turn.
    LowPriority,
    /// One for blocking work.
    Blocking,
}

fn thread_for(bytes: usize, gives_way: bool) -> Thread {
    if bytes > BLOCKING_BYTES || bytes > LONG_BYTES && !gives_way {
        Thread::Blocking
    } else if gives_way {
        Thread::LowPriority
    } else {
        // A single client is served faster here.
        Thread::Serving
    }
}

/// Returns whether a text of this length gives way to short requests.
pub fn gives_way(bytes: usize) -> bool {
    bytes > SHORT_BODY_BYTES_MAX && others_came()
}

/// Processes a text of `bytes` bytes: a very long one, or one that `gives_way`, on another thread.
///
/// # Errors
/// 500 when `work` panics.
pub async fn process<T: Send + 'static>(
    answers: &Answers,
    bytes: usize,
    gives_way: bool,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ApiError> {
    match thread_for(bytes, gives_way) {
        Thread::Serving => Ok(work()),
        Thread::LowPriority => answers.apart(work).await,
        Thread::Blocking => {
            let (reply, done) = oneshot::channel();
            tokio::task::spawn_blocking(move || {
                // The client may have gone while this waited for a thread.
                if !reply.is_closed() {
                    drop(reply.send(work()));
                }
            });
            done.await.map_err(ApiError::worker_failed)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The thread that processes a text.
    async fn thread_of(bytes: usize, gives_way: bool) -> String {
        let name = || std::thread::current().name().unwrap_or_default().to_owned();
        let answers = Answers::new(1 << 20);
        let done = process(&answers, bytes, gives_way, name).await;
        done.expect("no panic")
    }

    #[tokio::test]
    async fn a_long_text_leaves_the_thread_that_serves_also_when_no_others_came() {
        let here = std::thread::current().name().unwrap_or_default().to_owned();
        for bytes in [0, SHORT_BODY_BYTES_MAX, LONG_BYTES] {
            assert_eq!(thread_of(bytes, false).await, here, "{bytes}");
        }
        for bytes in [LONG_BYTES + 1, BLOCKING_BYTES + 1] {
            let of_runtime = thread_of(bytes, false).await;
            assert!(of_runtime != here && of_runtime != "apart", "{of_runtime}");
        }
        let of_runtime = thread_of(BLOCKING_BYTES + 1, true).await;
        assert!(of_runtime != here && of_runtime != "apart", "{of_runtime}");
        for bytes in [SHORT_BODY_BYTES_MAX + 1, LONG_BYTES + 1, BLOCKING_BYTES] {
            assert_eq!(thread_of(bytes, true).await, "apart", "{bytes}");
        }
    }

    #[tokio::test]
    async fn work_that_panics_is_an_error() {
        let answers = Answers::new(1 << 20);
        for gives_way in [false, true] {
            let done = process(&answers, LONG_BYTES + 1, gives_way, || panic!("a test")).await;
            assert_eq!(done.map_err(|e| e.status).err(), Some(500));
        }
    }
}
