//! The body of a response.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::Stream;
use http_body::{Frame, SizeHint};

use crate::errors::StreamError;

/// The pieces of a streamed body.
pub type Pieces = Pin<Box<dyn Stream<Item = Result<Bytes, StreamError>> + Send>>;

/// A body, whole or pulled piece by piece.
pub enum Body {
    Full(Bytes),
    /// Bytes that the server has in memory anyway, which cost nothing however many clients read them.
    Static(Bytes),
    Stream(Pieces),
    /// A stream of this length.
    Sized(Pieces, u64),
}

impl Body {
    /// No bytes, with a length that hyper writes into a header: it writes none for a body that has
    /// ended before it is sent.
    pub fn nothing() -> Body {
        Body::Sized(Box::pin(futures_util::stream::empty()), 0)
    }

    /// How many bytes it is, if that is known.
    pub fn length(&self) -> Option<u64> {
        match self {
            Body::Full(b) | Body::Static(b) => Some(b.len() as u64),
            Body::Sized(_, length) => Some(*length),
            Body::Stream(_) => None,
        }
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = StreamError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, StreamError>>> {
        match self.get_mut() {
            Body::Full(b) | Body::Static(b) if b.is_empty() => Poll::Ready(None),
            Body::Full(b) | Body::Static(b) => {
                Poll::Ready(Some(Ok(Frame::data(std::mem::take(b)))))
            }
            Body::Stream(s) | Body::Sized(s, _) => s
                .as_mut()
                .poll_next(cx)
                .map(|p| p.map(|r| r.map(Frame::data))),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Body::Full(b) | Body::Static(b) if b.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Body::Full(b) | Body::Static(b) => SizeHint::with_exact(b.len() as u64),
            Body::Stream(_) => SizeHint::default(),
            Body::Sized(_, length) => SizeHint::with_exact(*length),
        }
    }
}
