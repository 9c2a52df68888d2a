//! Responses of an HTTP/2 connection that its client has not started to read. While there are many, the
//! connection's further requests wait: none of their responses could be sent either.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{AcqRel, Acquire};

use tokio::sync::Notify;

/// At most about this number of responses of a connection are built that its client does not take.
const UNREAD_MAX: usize = 16;

/// The responses of one connection.
#[derive(Default)]
pub(super) struct Unread {
    count: AtomicUsize,
    taken: Notify,
}

/// A response that the client has not started to read, until dropped.
pub(crate) struct UnreadResponse(Arc<Unread>);

impl Unread {
    /// Waits until few responses wait for the client.
    pub(super) async fn wait(&self) {
        if self.count.load(Acquire) < UNREAD_MAX {
            return;
        }
        while self.count.load(Acquire) >= UNREAD_MAX {
            self.taken.notified().await;
        }
        // The next may begin too. It does not depend on this one, which its client may cancel.
        self.taken.notify_one();
    }

    /// Notes that a response was built.
    pub(super) fn note(self: &Arc<Self>) -> UnreadResponse {
        self.count.fetch_add(1, AcqRel);
        UnreadResponse(self.clone())
    }
}

impl Drop for UnreadResponse {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, AcqRel);
        self.0.taken.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn requests_wait_while_many_responses_are_unread() {
        let unread = Arc::<Unread>::default();
        let mut responses: Vec<_> = (0..UNREAD_MAX).map(|_| unread.note()).collect();
        let mut waiting: Vec<_> = (0..3).map(|_| Box::pin(unread.wait())).collect();
        for request in &mut waiting {
            assert!(request.now_or_never().is_none());
        }
        responses.pop();
        // One is cancelled when it was to begin: the others begin all the same.
        drop(waiting.remove(0));
        for request in waiting {
            request.await;
        }
        responses.push(unread.note());
        assert!(unread.wait().now_or_never().is_none());
        responses.clear();
        unread.wait().await;
    }
}
