//! Bodies that are made piece by piece as the client takes them.

use bytes::Bytes;
use futures_util::stream;
use hyper::header::HeaderValue;

use crate::errors::ApiError;
use crate::reply::{Reply, StreamError};

/// About as much as one piece of a streamed answer holds, in bytes.
pub const CHUNK_BYTES: usize = 64 << 10;

/// An answer made by calling `next` until it returns false; each call appends a piece. The first piece is made at once,
/// so that an early failure is an answer of its own, and an answer of one piece has a length.
pub fn pull(
    content_type: &'static str,
    mut next: impl FnMut(&mut Vec<u8>) -> Result<bool, ApiError> + Send + 'static,
) -> Result<Reply, ApiError> {
    let mut first = Vec::new();
    let mut more = next(&mut first)?;
    if more && first.len() < CHUNK_BYTES {
        more = next(&mut first)?;
    }
    if !more {
        return Ok(Reply::text(200, content_type, first));
    }
    let pieces = stream::unfold((Some(first), next), |(first, mut next)| async move {
        if let Some(first) = first {
            return Some((Ok(Bytes::from(first)), (None, next)));
        }
        let mut piece = Vec::with_capacity(CHUNK_BYTES + (8 << 10));
        match next(&mut piece) {
            Ok(false) if piece.is_empty() => None,
            Ok(_) => {
                // Others on this thread get their turn between pieces.
                tokio::task::yield_now().await;
                Some((Ok(Bytes::from(piece)), (None, next)))
            }
            Err(e) => {
                tracing::error!(reason = %e.reason, "an answer was cut short");
                let e: StreamError = e.reason.into_owned().into();
                Some((Err(e), (None, next)))
            }
        }
    });
    Ok(Reply::stream(
        HeaderValue::from_static(content_type),
        Box::pin(pieces),
    ))
}
