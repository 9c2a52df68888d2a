//! Bodies that are made piece by piece as the client takes them.

use std::time::{Duration, Instant};

use bytes::Bytes;
use database::AnswerThreads;
use functions::{Admission, Place};
use futures_util::stream;
use hyper::header::HeaderValue;
use telemetry::State;
use tokio::sync::{Semaphore, oneshot};

use crate::errors::ApiError;
use crate::load::short_requests_seen;
use crate::reply::Reply;
use crate::reply::answers::{Answers, Held};

/// About as much as one piece of a streamed answer holds, in bytes.
pub const CHUNK_BYTES: usize = 64 << 10;

/// Room for the beginning of an answer: most are shorter than that, and growing to it would copy them several times.
const FIRST_BYTES: usize = 4 << 10;

/// After a request came, the next 64 pieces of a response are made on separate threads.
const APART_AFTER_REQUEST: u32 = 64;

/// Most pieces that are made on separate threads at a time. Beyond that, some are made here, since
/// they would wait too long.
static PLACES: Semaphore = Semaphore::const_new(8);

/// After a piece that took longer, the next pieces are made on separate threads.
const SLOW_TIME: Duration = Duration::from_millis(20);

/// The maker of an answer's pieces. A closure is one.
pub trait PieceMaker: Send + 'static {
    /// Appends a piece; returns false when it was the last one.
    ///
    /// # Errors
    /// An error, which ends the response.
    fn next(&mut self, out: &mut Vec<u8>) -> Result<bool, ApiError>;

    /// Whether the next piece is too slow to make on a thread that serves requests.
    fn is_long(&self) -> bool {
        false
    }
}

impl<F: FnMut(&mut Vec<u8>) -> Result<bool, ApiError> + Send + 'static> PieceMaker for F {
    fn next(&mut self, out: &mut Vec<u8>) -> Result<bool, ApiError> {
        self(out)
    }
}

/// A response made by calling `next` until it returns false; each call appends a piece. The first
/// piece is made immediately, so that an early failure gets an error response, and a response of
/// one piece has a length. After a slow piece, the next ones are left to other threads.
pub async fn pull(
    answers: &Answers,
    content_type: &'static str,
    mut next: impl PieceMaker,
) -> Result<Reply, ApiError> {
    let _begun = answers.begin().await?;
    let began = Instant::now();
    let is_slow = || began.elapsed() >= SLOW_TIME;
    let (mut first, mut more) = make_first(&mut next, |next| next.is_long() || is_slow())?;
    let is_slow = more && is_slow();
    if is_slow && first.len() < CHUNK_BYTES && !next.is_long() {
        let make = move || {
            let more = next.next(&mut first)?;
            shrink(&mut first);
            Ok::<_, ApiError>((first, more, next))
        };
        (first, more, next) = Box::pin(answers.apart(make)).await??;
    }
    go_on(answers, content_type, (first, more), next, is_slow).await
}

/// A response whose first piece is made by a thread that gives way, for responses that are known to
/// be slow.
pub async fn pull_apart(
    answers: &Answers,
    content_type: &'static str,
    mut next: impl PieceMaker,
) -> Result<Reply, ApiError> {
    let _begun = answers.begin().await?;
    let make = move || make_first(&mut next, |_| false).map(|made| (made, next));
    let (made, next) = answers.apart(make).await??;
    go_on(answers, content_type, made, next, false).await
}

/// Makes the first piece, or two if the first is short, unless `stops` leaves the next one to other
/// threads.
fn make_first<F: PieceMaker>(
    next: &mut F,
    stops: impl Fn(&F) -> bool,
) -> Result<(Vec<u8>, bool), ApiError> {
    let _reads = telemetry::enter(State::Read);
    let mut first = Vec::with_capacity(FIRST_BYTES);
    let mut more = next.next(&mut first)?;
    if more && first.len() < CHUNK_BYTES && !stops(next) {
        more = next.next(&mut first)?;
    }
    shrink(&mut first);
    Ok((first, more))
}

/// Continues a response whose first piece was made, if there are more.
async fn go_on(
    answers: &Answers,
    content_type: &'static str,
    (first, more): (Vec<u8>, bool),
    next: impl PieceMaker,
    is_slow: bool,
) -> Result<Reply, ApiError> {
    if !more {
        return Ok(Reply::text(200, content_type, first));
    }
    let making = Making {
        is_slow,
        ..Making::new(next, answers.clone())
    };
    let start = (Piece::first(first.into(), answers).await?, making);
    let pieces = stream::unfold(start, |(mut made, mut making)| async {
        if made.is_empty() {
            match making.piece().await {
                Ok(None) => return None,
                Ok(Some(piece)) => made.set_before(piece.into(), making.ahead_bytes()),
                Err(e) => {
                    return Some((Err(e.cut_short()), (made, making)));
                }
            }
        }
        let some = made.split_off();
        Some((Ok(some), (made, making)))
    });
    Ok(Reply::stream(
        HeaderValue::from_static(content_type),
        Box::pin(pieces),
    ))
}

/// A piece of a response that the client is taking. A long one counts as memory of responses until
/// the connection has written it.
pub struct Piece {
    left: Bytes,
    answers: Answers,
    /// Memory of the piece that is being made.
    ahead: Option<Held>,
}

impl Piece {
    /// No bytes yet.
    pub fn none(answers: &Answers) -> Piece {
        Piece {
            left: Bytes::new(),
            answers: answers.clone(),
            ahead: None,
        }
    }

    /// The first bytes of a response, once there is memory for them.
    ///
    /// # Errors
    /// 503 without free memory.
    pub async fn first(bytes: Bytes, answers: &Answers) -> Result<Piece, ApiError> {
        Ok(Piece {
            left: answers.settled(bytes, LONG_BYTES).await?,
            ..Piece::none(answers)
        })
    }

    /// Whether the client has it.
    pub fn is_empty(&self) -> bool {
        self.left.is_empty()
    }

    /// The next piece.
    pub fn set(&mut self, bytes: Bytes) {
        self.set_before(bytes, 0);
    }

    /// Sets the next piece, whose bytes keep their memory until they are written.
    pub fn set_counted(&mut self, bytes: Bytes) {
        (self.left, self.ahead) = (bytes, None);
    }

    /// Sets the next piece, while `ahead` bytes after it are being made.
    fn set_before(&mut self, bytes: Bytes, ahead: usize) {
        self.ahead = (ahead > 0).then(|| self.answers.count(ahead as u64));
        self.left = match bytes.len() > LONG_BYTES {
            true => self.answers.count(bytes.len() as u64).with(bytes),
            false => bytes,
        };
    }

    /// Takes as much from its beginning as the connection should get in one call: over HTTP/1 it may
    /// copy what it gets. Over HTTP/2 that is all, so that all of it counts as the connection's.
    pub fn split_off(&mut self) -> Bytes {
        match self.left.len() > GIVEN_BYTES && self.answers.makes_ahead() {
            true => self.left.split_to(GIVEN_BYTES),
            false => std::mem::take(&mut self.left),
        }
    }
}

/// A longer piece is counted, in bytes.
pub const LONG_BYTES: usize = 16 << 10;
/// Bytes of a piece that an HTTP/1 connection gets in one call.
const GIVEN_BYTES: usize = 4 * CHUNK_BYTES;

/// Makes the pieces of a response: while other requests come, on threads that give way to them.
struct Making<F> {
    /// The user's turns on the threads that give way.
    answers: Answers,
    /// `None` while a piece is made on another thread.
    next: Option<F>,
    /// [`short_requests_seen`] when the last piece was requested.
    seen: u64,
    /// Number of pieces that are still made on separate threads, whether requests come or not.
    still_apart: u32,
    /// Bytes of the last piece: the next one may be as long.
    last_bytes: usize,
    /// Whether the last piece was too slow to make the next one on a thread that serves requests.
    is_slow: bool,
    apart: Option<oneshot::Receiver<(Made, F)>>,
}

/// The bytes of a piece, and whether there are more.
type Made = Result<(Vec<u8>, bool), ApiError>;

impl<F: PieceMaker> Making<F> {
    fn new(next: F, answers: Answers) -> Making<F> {
        Making {
            answers,
            next: Some(next),
            seen: short_requests_seen(),
            still_apart: 0,
            last_bytes: 0,
            is_slow: false,
            apart: None,
        }
    }

    /// Size, about, of the piece that is made while the client takes the one before.
    fn ahead_bytes(&self) -> usize {
        self.apart
            .as_ref()
            .map_or(0, |_| self.last_bytes.max(CHUNK_BYTES))
    }

    /// Whether the next piece is made on another thread, although none is made ahead.
    fn gives_way(&self) -> bool {
        self.still_apart > 0 && !self.answers.makes_ahead()
    }

    /// The next piece; none at the end.
    async fn piece(&mut self) -> Result<Option<Vec<u8>>, ApiError> {
        self.answers.admit().await?;
        let made = match self.apart.take() {
            Some(apart) => {
                let (made, next) = apart.await.map_err(ApiError::worker_failed)?;
                self.next = Some(next);
                made
            }
            None => {
                let Some(mut next) = self.next.take() else {
                    return Ok(None);
                };
                let place = self.gives_way().then(|| PLACES.try_acquire().ok());
                let place = place.flatten();
                let made = if next.is_long() || self.is_slow || place.is_some() {
                    let made = self.answers.apart(move || {
                        let made = make(&mut next);
                        drop(place);
                        (made, next)
                    });
                    let (made, same) = made.await?;
                    next = same;
                    made
                } else {
                    // Others on this thread get their turn between pieces.
                    tokio::task::yield_now().await;
                    let began = Instant::now();
                    let made = make(&mut next);
                    self.is_slow = began.elapsed() >= SLOW_TIME;
                    made
                };
                self.next = Some(next);
                made
            }
        };
        let (piece, more) = made?;
        self.last_bytes = piece.len();
        let seen = std::mem::replace(&mut self.seen, short_requests_seen());
        self.still_apart = match seen == self.seen {
            true => self.still_apart.saturating_sub(1),
            false => APART_AFTER_REQUEST,
        };
        if more
            && self.still_apart > 0
            && self.answers.makes_ahead()
            // Two long pieces at a time would be too much to hold.
            && !self.next.as_ref().is_some_and(PieceMaker::is_long)
            && let Ok(place) = PLACES.try_acquire()
            && let Some(mut next) = self.next.take()
        {
            self.apart = Some(self.answers.start_apart(move || {
                let made = make(&mut next);
                drop(place);
                (made, next)
            }));
        }
        Ok((more || !piece.is_empty()).then_some(piece))
    }
}

fn make(next: &mut impl PieceMaker) -> Made {
    let _reads = telemetry::enter(State::Read);
    let mut piece = Vec::with_capacity(CHUNK_BYTES + (8 << 10));
    let more = next.next(&mut piece)?;
    shrink(&mut piece);
    Ok((piece, more))
}

/// Frees the unused capacity of a long piece, which is counted by its length.
fn shrink(piece: &mut Vec<u8>) {
    if piece.len() > LONG_BYTES && piece.capacity() - piece.len() > piece.len() / 4 {
        piece.shrink_to_fit();
    }
}

/// A response with slow pieces: each is made on a thread for blocking work.
pub async fn pull_blocking<F>(
    answers: &Answers,
    content_type: &'static str,
    mut next: F,
) -> Result<Reply, ApiError>
where
    F: FnMut(&mut Vec<u8>) -> Result<bool, ApiError> + Send + 'static,
{
    let _begun = answers.begin().await?;
    let next = move |out: &mut Vec<u8>, _: Place| next(out);
    let free = (Place::uncounted(), Turns::blocking(Admission::free));
    pull_pieces(answers, content_type, (), free, next).await
}

/// A response whose pieces each take a turn, on the threads of these turns; waiting for a turn uses
/// no thread. `first`: the turn of the first piece. `client` is dropped when the client has gone or
/// has the whole response, also while a piece is made.
pub async fn pull_in_turns<A, F, C>(
    answers: &Answers,
    content_type: &'static str,
    client: C,
    (first, admission, threads): (Place, A, AnswerThreads),
    mut next: F,
) -> Result<Reply, ApiError>
where
    A: Fn() -> Admission + Send + 'static,
    F: FnMut(&mut Vec<u8>) -> Result<bool, ApiError> + Send + 'static,
    C: Send + 'static,
{
    let next = move |out: &mut Vec<u8>, _turn: Place| next(out);
    let turns = Turns { admission, threads };
    pull_pieces(answers, content_type, client, (first, turns), next).await
}

/// How turns for pieces are requested, and which threads make the pieces.
struct Turns<A> {
    admission: A,
    threads: AnswerThreads,
}

impl<A> Turns<A> {
    fn blocking(admission: A) -> Turns<A> {
        Turns {
            admission,
            threads: AnswerThreads::Blocking,
        }
    }
}

/// A response whose pieces call users' functions: each waits for permission, without a thread,
/// before it is made.
pub async fn pull_admitted<A, F>(
    answers: &Answers,
    content_type: &'static str,
    admission: A,
    next: F,
) -> Result<Reply, ApiError>
where
    A: Fn() -> Admission + Send + 'static,
    F: FnMut(&mut Vec<u8>, Place) -> Result<bool, ApiError> + Send + 'static,
{
    // Before it has a place: it would wait with it.
    let _begun = answers.begin().await?;
    let first = admission().await?;
    let turns = Turns::blocking(admission);
    pull_pieces(answers, content_type, (), (first, turns), next).await
}

async fn pull_pieces<A, F, C>(
    answers: &Answers,
    content_type: &'static str,
    client: C,
    (first_place, turns): (Place, Turns<A>),
    next: F,
) -> Result<Reply, ApiError>
where
    A: Fn() -> Admission + Send + 'static,
    F: FnMut(&mut Vec<u8>, Place) -> Result<bool, ApiError> + Send + 'static,
    C: Send + 'static,
{
    let (mut first, mut more, mut next) = make_piece(first_place, turns.threads, next).await?;
    if more && first.len() < CHUNK_BYTES {
        let place = (turns.admission)().patiently().await?;
        let (second, still, same) = make_piece(place, turns.threads, next).await?;
        first.extend_from_slice(&second);
        (more, next) = (still, same);
    }
    if !more {
        return Ok(Reply::text(200, content_type, first));
    }
    let first = Piece::first(first.into(), answers).await?;
    let start = (first, Some((turns, next)), client);
    let pieces = stream::unfold(start, |(mut made, next, client)| async move {
        if !made.is_empty() {
            let some = made.split_off();
            return Some((Ok(some), (made, next, client)));
        }
        let (turns, next) = next?;
        let place = match made.answers.admit().await {
            Ok(()) => (turns.admission)().patiently().await.map_err(Into::into),
            Err(e) => Err(e),
        };
        let piece = match place {
            Ok(place) => make_piece(place, turns.threads, next).await,
            Err(e) => Err(e),
        };
        match piece {
            Ok((piece, false, _)) if piece.is_empty() => None,
            Ok((piece, more, next)) => {
                made.set(piece.into());
                let some = made.split_off();
                let next = more.then_some((turns, next));
                Some((Ok(some), (made, next, client)))
            }
            Err(e) => Some((Err(e.cut_short()), (made, None, client))),
        }
    });
    Ok(Reply::stream(
        HeaderValue::from_static(content_type),
        Box::pin(pieces),
    ))
}

async fn make_piece<F>(
    place: Place,
    threads: AnswerThreads,
    mut next: F,
) -> Result<(Vec<u8>, bool, F), ApiError>
where
    F: FnMut(&mut Vec<u8>, Place) -> Result<bool, ApiError> + Send + 'static,
{
    let made = threads.run(move || {
        let _reads = telemetry::enter(State::Read);
        let mut piece = vec![];
        next(&mut piece, place).map(|more| (piece, more, next))
    });
    let failed = || ApiError::worker_failed("the thread of a piece panicked");
    made.await.ok_or_else(failed)?
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reply::ahead::Ahead;

    #[test]
    fn a_connection_of_http2_gets_whole_pieces() {
        let http1 = Answers::new(10 << 20);
        let http2 = http1.clone().by(Some(Ahead::default().of_request()));
        for (answers, given) in [(http1, GIVEN_BYTES), (http2, 900 << 10)] {
            let mut piece = Piece::none(&answers);
            piece.set(vec![0; 900 << 10].into());
            assert_eq!(piece.split_off().len(), given);
        }
    }

    #[test]
    fn after_a_slow_piece_the_next_one_is_made_by_another_thread() {
        let (made, threads) = std::sync::mpsc::channel();
        let mut pieces = 0;
        let next = move |out: &mut Vec<u8>| {
            pieces += 1;
            out.push(b'.');
            if pieces == 1 {
                std::thread::sleep(SLOW_TIME);
            }
            made.send(std::thread::current().id()).unwrap();
            Ok::<_, ApiError>(pieces < 2)
        };
        let answers = Answers::new(10 << 20);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let reply = runtime.block_on(pull(&answers, "text/plain", next));
        assert!(reply.is_ok());
        let here = std::thread::current().id();
        let is_here: Vec<bool> = threads.iter().map(|id| id == here).collect();
        assert_eq!(is_here, [true, false]);
    }
}
