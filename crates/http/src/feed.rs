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

/// [`pull`] for pieces that take long to make: each is made on a blocking thread.
pub async fn pull_blocking(
    content_type: &'static str,
    next: impl FnMut(&mut Vec<u8>) -> Result<bool, ApiError> + Send + 'static,
) -> Result<Reply, ApiError> {
    let (next, mut first, made) = make(next, Vec::new()).await?;
    let mut more = made?;
    let mut next = next;
    if more && first.len() < CHUNK_BYTES {
        let (same, piece, made) = make(next, first).await?;
        (next, first) = (same, piece);
        more = made?;
    }
    if !more {
        return Ok(Reply::text(200, content_type, first));
    }
    let pieces = stream::unfold((Some(first), Some(next)), |(first, next)| async move {
        if let Some(first) = first {
            return Some((Ok(Bytes::from(first)), (None, next)));
        }
        let cut = |e: ApiError| {
            tracing::error!(reason = %e.reason, "an answer was cut short");
            let e: StreamError = e.reason.into_owned().into();
            Some((Err(e), (None, None)))
        };
        let mut next = next?;
        loop {
            match make(next, Vec::new()).await {
                // An empty piece would end the answer.
                Ok((same, piece, Ok(true))) if piece.is_empty() => next = same,
                Ok((_, piece, Ok(false))) if piece.is_empty() => return None,
                Ok((next, piece, Ok(_))) => return Some((Ok(piece.into()), (None, Some(next)))),
                Ok((_, _, Err(e))) | Err(e) => return cut(e),
            }
        }
    });
    Ok(Reply::stream(
        HeaderValue::from_static(content_type),
        Box::pin(pieces),
    ))
}

/// One piece, made on a blocking thread.
async fn make<F>(
    mut next: F,
    mut out: Vec<u8>,
) -> Result<(F, Vec<u8>, Result<bool, ApiError>), ApiError>
where
    F: FnMut(&mut Vec<u8>) -> Result<bool, ApiError> + Send + 'static,
{
    let work = move || {
        let made = next(&mut out);
        (next, out, made)
    };
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|e| ApiError::new(500, "internal_server_error", e.to_string()))
}
