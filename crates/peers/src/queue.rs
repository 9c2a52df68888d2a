//! Messages that wait for a peer: a bounded queue, and the body that takes them from it.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};
use http_body::Frame;
use parking_lot::Mutex;

use crate::channel::Channel;
use crate::frame::{LENGTH_BYTES, MESSAGE_BYTES_MAX, encode};
use crate::options::Options;
use crate::traffic::Traffic;

/// Messages are sent together up to this size, in bytes.
const BATCH_BYTES: usize = 64 << 10;

/// Messages waiting for one peer. When there are too many, the oldest are dropped or the new one is
/// refused; see [`Channel`].
#[derive(Debug)]
pub(crate) struct Queue {
    channel: Channel,
    messages_max: usize,
    bytes_max: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    messages: VecDeque<Bytes>,
    bytes: usize,
    sent: u64,
    sent_bytes: u64,
    dropped: u64,
    /// The number of the body that may take messages: the latest one.
    reader: u64,
    waker: Option<Waker>,
}

impl Queue {
    pub fn new(channel: Channel, options: &Options) -> Arc<Queue> {
        Arc::new(Queue {
            channel,
            messages_max: options.queue_messages_max,
            bytes_max: match channel {
                Channel::Messages => options.queue_bytes_max,
                Channel::Bulk => options.bulk_bytes_max,
            },
            state: Mutex::default(),
        })
    }

    /// Returns the channel of its messages.
    pub fn channel(&self) -> Channel {
        self.channel
    }

    /// Queues a message; never waits. Returns whether it was accepted.
    pub fn push(&self, message: Bytes) -> bool {
        if message.len() > MESSAGE_BYTES_MAX {
            tracing::error!(bytes = message.len(), "a message is too long to be sent");
            debug_assert!(false, "a message beyond MESSAGE_BYTES_MAX");
            return false;
        }
        let mut state = self.state.lock();
        if self.channel == Channel::Bulk && self.is_full(&state, message.len()) {
            state.dropped += 1;
            return false;
        }
        state.bytes += message.len();
        state.messages.push_back(message);
        while self.is_full(&state, 0) {
            let Some(oldest) = state.messages.pop_front() else {
                break;
            };
            state.bytes -= oldest.len();
            state.dropped += 1;
        }
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
        true
    }

    /// Returns whether there is no room for these additional bytes.
    fn is_full(&self, state: &State, bytes: usize) -> bool {
        state.messages.len() > self.messages_max || state.bytes + bytes > self.bytes_max
    }

    /// Returns the number of messages that were dropped or refused because there was no room.
    pub fn dropped(&self) -> u64 {
        self.state.lock().dropped
    }

    /// Returns the figures of messages that wait, were sent, or were dropped or refused.
    pub fn traffic(&self) -> Traffic {
        let state = self.state.lock();
        Traffic {
            waiting: state.messages.len() as u64,
            waiting_bytes: state.bytes as u64,
            sent: state.sent,
            sent_bytes: state.sent_bytes,
            dropped: state.dropped,
            ..Traffic::default()
        }
    }

    /// Returns a body that takes messages from now on. Earlier ones end: their connection is gone.
    pub fn body(self: &Arc<Self>) -> Messages {
        let mut state = self.state.lock();
        state.reader += 1;
        let earlier = state.waker.take();
        let messages = Messages {
            queue: self.clone(),
            reader: state.reader,
        };
        drop(state);
        if let Some(waker) = earlier {
            waker.wake();
        }
        messages
    }
}

/// A request's body of all messages to a peer.
#[derive(Debug)]
pub(crate) struct Messages {
    queue: Arc<Queue>,
    reader: u64,
}

impl http_body::Body for Messages {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let mut state = self.queue.state.lock();
        if state.reader != self.reader {
            return Poll::Ready(None);
        }
        if state.messages.is_empty() {
            state.waker = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let mut taken = vec![];
        let mut bytes = 0;
        while bytes < BATCH_BYTES
            && let Some(message) = state.messages.pop_front()
        {
            state.bytes -= message.len();
            bytes += LENGTH_BYTES + message.len();
            taken.push(message);
        }
        state.sent += taken.len() as u64;
        state.sent_bytes += bytes as u64;
        drop(state);
        let mut batch = BytesMut::with_capacity(bytes);
        for message in taken {
            encode(&message, &mut batch);
        }
        Poll::Ready(Some(Ok(Frame::data(batch.freeze()))))
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use http_body_util::BodyExt as _;

    use super::*;

    #[test]
    fn the_oldest_messages_go_when_there_are_too_many() {
        let options = Options {
            queue_messages_max: 3,
            queue_bytes_max: 10,
            ..Options::default()
        };
        let queue = Queue::new(Channel::Messages, &options);
        for message in ["a", "b", "c", "d"] {
            assert!(queue.push(Bytes::from_static(message.as_bytes())));
        }
        assert_eq!(queue.dropped(), 1);
        let traffic = queue.traffic();
        assert_eq!((traffic.waiting, traffic.waiting_bytes), (3, 3));
        queue.push(Bytes::from_static(b"123456789"));
        assert_eq!(queue.dropped(), 3);
        let mut body = queue.body();
        let frame = body.frame().now_or_never().unwrap().unwrap().unwrap();
        let traffic = queue.traffic();
        assert_eq!((traffic.waiting, traffic.waiting_bytes), (0, 0));
        let sent_bytes = (2 * LENGTH_BYTES + 10) as u64;
        assert_eq!((traffic.sent, traffic.sent_bytes), (2, sent_bytes));
        assert_eq!(traffic.dropped, 3);
        let mut expected = BytesMut::new();
        encode(b"d", &mut expected);
        encode(b"123456789", &mut expected);
        assert_eq!(frame.into_data().unwrap(), expected);
        assert!(body.frame().now_or_never().is_none());
    }

    #[test]
    fn bulk_messages_are_refused_when_there_are_too_many() {
        let options = Options {
            bulk_bytes_max: 3,
            ..Options::default()
        };
        let queue = Queue::new(Channel::Bulk, &options);
        let push = |text: &'static str| queue.push(Bytes::from_static(text.as_bytes()));
        assert!(push("ab"));
        assert!(!push("cd"));
        assert!(push("e"));
        let traffic = queue.traffic();
        assert_eq!((traffic.waiting, traffic.waiting_bytes), (2, 3));
        assert_eq!(traffic.dropped, 1);
        let frame = queue.body().frame().now_or_never().unwrap().unwrap();
        let mut expected = BytesMut::new();
        encode(b"ab", &mut expected);
        encode(b"e", &mut expected);
        assert_eq!(frame.unwrap().into_data().unwrap(), expected);
        assert!(push("cd"));
    }

    #[test]
    fn a_body_of_an_earlier_connection_takes_nothing() {
        let queue = Queue::new(Channel::Messages, &Options::default());
        let mut earlier = queue.body();
        let mut later = queue.body();
        queue.push(Bytes::from_static(b"a"));
        assert!(earlier.frame().now_or_never().unwrap().is_none());
        assert!(later.frame().now_or_never().unwrap().is_some());
    }
}
