//! Bodies that are made piece by piece as the client takes them.

use bytes::Bytes;
use functions::{Admission, Place};
use futures_util::stream;
use hyper::header::HeaderValue;
use telemetry::State;
use tokio::sync::{Semaphore, oneshot};

use crate::connection::server::short_requests_seen;
use crate::errors::ApiError;
use crate::reply::Reply;

/// About as much as one piece of a streamed answer holds, in bytes.
pub const CHUNK_BYTES: usize = 64 << 10;

/// Room for the beginning of an answer: most are shorter than that, and growing to it would copy them several times.
const FIRST_BYTES: usize = 4 << 10;

/// So many pieces of an answer are made apart after a request came.
const APART_AFTER_REQUEST: u32 = 64;

/// So many pieces are made apart at a time. Of more answers than that, some are made here: they would wait for long.
static PLACES: Semaphore = Semaphore::const_new(8);

/// An answer made by calling `next` until it returns false; each call appends a piece. The first piece is made at once,
/// so that an early failure is an answer of its own, and an answer of one piece has a length.
pub fn pull(
    content_type: &'static str,
    mut next: impl FnMut(&mut Vec<u8>) -> Result<bool, ApiError> + Send + 'static,
) -> Result<Reply, ApiError> {
    let made = make_first(&mut next)?;
    Ok(go_on(content_type, made, next))
}

/// The same; the first piece is made by a thread that gives way, for answers that are known to take long.
pub async fn pull_apart(
    content_type: &'static str,
    mut next: impl FnMut(&mut Vec<u8>) -> Result<bool, ApiError> + Send + 'static,
) -> Result<Reply, ApiError> {
    let made = database::apart(move || make_first(&mut next).map(|made| (made, next))).await;
    let (made, next) = made.map_err(ApiError::worker_failed)??;
    Ok(go_on(content_type, made, next))
}

fn make_first(
    next: &mut impl FnMut(&mut Vec<u8>) -> Result<bool, ApiError>,
) -> Result<(Vec<u8>, bool), ApiError> {
    let _reads = telemetry::enter(State::Read);
    let mut first = Vec::with_capacity(FIRST_BYTES);
    let mut more = next(&mut first)?;
    if more && first.len() < CHUNK_BYTES {
        more = next(&mut first)?;
    }
    Ok((first, more))
}

/// An answer whose first piece was made; whether there are more is said with it.
fn go_on(
    content_type: &'static str,
    (first, more): (Vec<u8>, bool),
    next: impl FnMut(&mut Vec<u8>) -> Result<bool, ApiError> + Send + 'static,
) -> Reply {
    if !more {
        return Reply::text(200, content_type, first);
    }
    let pieces = stream::unfold(
        (Some(first), Making::new(next)),
        |(first, mut making)| async {
            if let Some(first) = first {
                return Some((Ok(Bytes::from(first)), (None, making)));
            }
            match making.piece().await {
                Ok(None) => None,
                Ok(Some(piece)) => Some((Ok(piece.into()), (None, making))),
                Err(e) => {
                    tracing::error!(reason = %e.reason, "an answer was cut short");
                    let e = e.into_stream_error();
                    Some((Err(e), (None, making)))
                }
            }
        },
    );
    Reply::stream(HeaderValue::from_static(content_type), Box::pin(pieces))
}

/// Makes the pieces of an answer: while other requests come, on threads that give way to them.
struct Making<F> {
    /// None while a piece is made apart.
    next: Option<F>,
    /// [`short_requests_seen`] when the last piece was asked for.
    seen: u64,
    /// So many pieces are still made apart, whether requests come or not.
    still_apart: u32,
    apart: Option<oneshot::Receiver<(Made, F)>>,
}

/// The bytes of a piece, and whether there are more.
type Made = Result<(Vec<u8>, bool), ApiError>;

impl<F> Making<F>
where
    F: FnMut(&mut Vec<u8>) -> Result<bool, ApiError> + Send + 'static,
{
    fn new(next: F) -> Making<F> {
        Making {
            next: Some(next),
            seen: short_requests_seen(),
            still_apart: 0,
            apart: None,
        }
    }

    /// The next piece; none at the end.
    async fn piece(&mut self) -> Result<Option<Vec<u8>>, ApiError> {
        let made = match self.apart.take() {
            Some(apart) => {
                let (made, next) = apart.await.map_err(ApiError::worker_failed)?;
                self.next = Some(next);
                made
            }
            None => {
                let Some(next) = &mut self.next else {
                    return Ok(None);
                };
                // Others on this thread get their turn between pieces.
                tokio::task::yield_now().await;
                make(next)
            }
        };
        let (piece, more) = made?;
        let seen = std::mem::replace(&mut self.seen, short_requests_seen());
        self.still_apart = match seen == self.seen {
            true => self.still_apart.saturating_sub(1),
            false => APART_AFTER_REQUEST,
        };
        if more
            && self.still_apart > 0
            && let Ok(place) = PLACES.try_acquire()
            && let Some(mut next) = self.next.take()
        {
            self.apart = Some(database::apart(move || {
                let made = make(&mut next);
                drop(place);
                (made, next)
            }));
        }
        Ok((more || !piece.is_empty()).then_some(piece))
    }
}

fn make(next: &mut impl FnMut(&mut Vec<u8>) -> Result<bool, ApiError>) -> Made {
    let _reads = telemetry::enter(State::Read);
    let mut piece = Vec::with_capacity(CHUNK_BYTES + (8 << 10));
    let more = next(&mut piece)?;
    Ok((piece, more))
}

/// The same with pieces that take long to make: each is made on a thread for blocking work.
pub async fn pull_blocking<F>(content_type: &'static str, next: F) -> Result<Reply, ApiError>
where
    F: FnMut(&mut Vec<u8>) -> Result<bool, ApiError> + Send + 'static,
{
    pull_blocking_for(content_type, (), next).await
}

/// The same; `client` is dropped when the client has gone or has the whole answer, also while a piece is made.
pub async fn pull_blocking_for<F, C>(
    content_type: &'static str,
    client: C,
    mut next: F,
) -> Result<Reply, ApiError>
where
    F: FnMut(&mut Vec<u8>) -> Result<bool, ApiError> + Send + 'static,
    C: Send + 'static,
{
    let next = move |out: &mut Vec<u8>, _: Place| next(out);
    pull_pieces(content_type, client, Admission::free, next).await
}

/// The same for pieces that users' functions are run for: each waits for leave, without a thread, before it is made.
pub async fn pull_admitted<A, F>(
    content_type: &'static str,
    admission: A,
    next: F,
) -> Result<Reply, ApiError>
where
    A: Fn() -> Admission + Send + 'static,
    F: FnMut(&mut Vec<u8>, Place) -> Result<bool, ApiError> + Send + 'static,
{
    pull_pieces(content_type, (), admission, next).await
}

async fn pull_pieces<A, F, C>(
    content_type: &'static str,
    client: C,
    admission: A,
    next: F,
) -> Result<Reply, ApiError>
where
    A: Fn() -> Admission + Send + 'static,
    F: FnMut(&mut Vec<u8>, Place) -> Result<bool, ApiError> + Send + 'static,
    C: Send + 'static,
{
    let (mut first, mut more, mut next) = make_piece(admission().await?, next).await?;
    if more && first.len() < CHUNK_BYTES {
        let (second, still, same) = make_piece(admission().patiently().await?, next).await?;
        first.extend_from_slice(&second);
        (more, next) = (still, same);
    }
    if !more {
        return Ok(Reply::text(200, content_type, first));
    }
    let start = (Some(first), Some((admission, next)), client);
    let pieces = stream::unfold(start, |(first, next, client)| async move {
        if let Some(first) = first {
            return Some((Ok(Bytes::from(first)), (None, next, client)));
        }
        let (admission, next) = next?;
        let made = match admission().patiently().await {
            Ok(place) => make_piece(place, next).await,
            Err(e) => Err(e.into()),
        };
        match made {
            Ok((piece, false, _)) if piece.is_empty() => None,
            Ok((piece, more, next)) => {
                let next = more.then_some((admission, next));
                Some((Ok(Bytes::from(piece)), (None, next, client)))
            }
            Err(e) => {
                tracing::error!(reason = %e.reason, "an answer was cut short");
                let e = e.into_stream_error();
                Some((Err(e), (None, None, client)))
            }
        }
    });
    Ok(Reply::stream(
        HeaderValue::from_static(content_type),
        Box::pin(pieces),
    ))
}

async fn make_piece<F>(place: Place, mut next: F) -> Result<(Vec<u8>, bool, F), ApiError>
where
    F: FnMut(&mut Vec<u8>, Place) -> Result<bool, ApiError> + Send + 'static,
{
    let made = tokio::task::spawn_blocking(move || {
        let _reads = telemetry::enter(State::Read);
        let mut piece = vec![];
        next(&mut piece, place).map(|more| (piece, more, next))
    });
    made.await.map_err(ApiError::worker_failed)?
}
