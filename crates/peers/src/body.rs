//! Bodies of requests and answers: bytes that come one piece after another, as fast as the other
//! side takes them.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use futures_util::{Stream, StreamExt};
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Empty, Full, StreamBody};
use thiserror::Error;

/// Why a body ended before its end.
#[derive(Debug, Error)]
pub enum BodyError {
    /// The other side gave up, or the connection broke.
    #[error("the stream broke: {0}")]
    Broken(String),
    /// It is longer than its reader allows.
    #[error("longer than {0} bytes")]
    TooLong(usize),
    /// Its producer failed; the other side sees a broken stream.
    #[error("{0}")]
    Source(Box<dyn std::error::Error + Send + Sync>),
}

/// Bytes in pieces. A body dropped before its end is reset at the other side.
pub struct Body(UnsyncBoxBody<Bytes, BodyError>);

impl Body {
    /// No bytes.
    pub fn empty() -> Body {
        Body(Empty::new().map_err(|e| match e {}).boxed_unsync())
    }

    /// Returns the pieces of a stream, taken when the other side has room.
    pub fn stream(pieces: impl Stream<Item = Result<Bytes, BodyError>> + Send + 'static) -> Body {
        Body(StreamBody::new(pieces.map(|piece| piece.map(Frame::data))).boxed_unsync())
    }

    /// Returns the next piece, or `None` at the end.
    pub async fn next(&mut self) -> Option<Result<Bytes, BodyError>> {
        StreamExt::next(self).await
    }

    /// All of it.
    ///
    /// # Errors
    /// [`BodyError`], also for more than `max` bytes.
    pub async fn read(mut self, max: usize) -> Result<Bytes, BodyError> {
        let mut all = BytesMut::new();
        while let Some(piece) = self.next().await {
            let piece = piece?;
            if all.len() + piece.len() > max {
                return Err(BodyError::TooLong(max));
            }
            all.extend_from_slice(&piece);
        }
        Ok(all.freeze())
    }

    /// Returns a body of another kind.
    pub fn of<B>(body: B) -> Body
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: std::fmt::Display,
    {
        Body(
            body.map_err(|e| BodyError::Broken(e.to_string()))
                .boxed_unsync(),
        )
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Body {
        Body(Full::new(bytes).map_err(|e| match e {}).boxed_unsync())
    }
}

impl std::fmt::Debug for Body {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Body")
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        Pin::new(&mut self.0).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}

impl Stream for Body {
    type Item = Result<Bytes, BodyError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            match Pin::new(&mut self.0).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => {
                    // Anything else is trailers, which are never sent here.
                    if let Ok(data) = frame.into_data() {
                        return Poll::Ready(Some(Ok(data)));
                    }
                }
                Poll::Ready(Some(Err(e))) => return Poll::Ready(Some(Err(e))),
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}
