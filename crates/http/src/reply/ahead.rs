//! The bytes of responses that one HTTP/2 connection holds, because its client does not take them.
//!
//! Over HTTP/1 a connection has one response, and the next piece is made when the last one was
//! written. Over HTTP/2 a client may have hundreds of streams whose windows are closed. So the bytes
//! that were made and not written are counted by connection: beyond a limit, its next requests wait
//! before anything is made for them. Piece by piece a stream holds at most one.
//!
//! Long bytes are counted in slices: a client that reads slowly shows that it reads.

use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, stream};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::errors::{ApiError, StreamError};
use crate::reply::body::{Body, Pieces};

/// Bytes of a connection that are made ahead: about 16 pieces.
const AHEAD_BYTES_MAX: u64 = 1 << 20;
/// Bytes of a response, about, until it is made: a document may have more, most have less.
const BEGUN_BYTES: u64 = 256 << 10;
/// Bytes of a piece, about, until it is made.
const PIECE_BYTES: u64 = 64 << 10;
/// Longer bytes are counted in slices of this length.
const SLICE_BYTES: usize = 64 << 10;
/// Shorter pieces are not counted.
const FREE_BYTES: usize = 4 << 10;
/// How long a request counts before its response is made. Some wait for a longer time, for an index
/// or for changes: they would keep others of the connection waiting.
const BEGIN_TIME_MAX: Duration = Duration::from_millis(100);
/// A request is refused when its client took nothing for this time.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// How long the next piece of a response waits: the streams that the client does not take must not
/// end those that it takes.
const PIECE_WAIT_MAX: Duration = Duration::from_secs(1);

/// The bytes that one connection has made ahead. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Ahead(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// Wakes one request. If there is still room after its turn, it wakes the next one.
    freed: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// Bytes that were made and not written.
    unsent: u64,
    /// When the client last took some, or ended a stream.
    taken_at: Option<Instant>,
    /// When requests began whose responses are not made yet.
    begun: Vec<(u64, Instant)>,
    /// The number of the next one.
    next: u64,
}

impl State {
    /// Forgets requests that began some time ago; returns when the next one of them is forgotten.
    fn forget(&mut self, now: Instant) -> Option<Instant> {
        self.begun
            .retain(|(_, at)| now.duration_since(*at) < BEGIN_TIME_MAX);
        self.begun.first().map(|(_, at)| *at + BEGIN_TIME_MAX)
    }

    fn has_room(&self) -> bool {
        self.unsent + self.begun.len() as u64 * BEGUN_BYTES < AHEAD_BYTES_MAX
    }
}

/// A request whose response is not made yet. Clones share its place.
#[derive(Clone, Debug)]
pub struct Begun(Arc<BegunPlace>);

#[derive(Debug)]
struct BegunPlace {
    ahead: Ahead,
    number: u64,
}

impl BegunPlace {
    /// Whether it still counts.
    fn counts(&self) -> bool {
        let mut state = self.ahead.0.state.lock();
        state.forget(Instant::now());
        state.begun.iter().any(|(number, _)| *number == self.number)
    }
}

impl Drop for BegunPlace {
    fn drop(&mut self) {
        let mut state = self.ahead.0.state.lock();
        state.begun.retain(|(number, _)| *number != self.number);
        drop(state);
        self.ahead.0.freed.notify_one();
    }
}

/// Bytes that were made, until they are written.
#[derive(Debug)]
struct Unsent {
    ahead: Ahead,
    bytes: u64,
}

impl Unsent {
    /// Takes some of the bytes, which are written before the others.
    fn split_to(&mut self, bytes: u64) -> Unsent {
        debug_assert!(bytes <= self.bytes, "more than there are");
        self.bytes -= bytes;
        Unsent {
            ahead: self.ahead.clone(),
            bytes,
        }
    }
}

impl Drop for Unsent {
    fn drop(&mut self) {
        if self.bytes == 0 {
            return;
        }
        let mut state = self.ahead.0.state.lock();
        state.unsent -= self.bytes;
        state.taken_at = Some(Instant::now());
        drop(state);
        self.ahead.0.freed.notify_one();
    }
}

/// Bytes that are counted until all copies of them are dropped.
struct Counted {
    bytes: Bytes,
    _unsent: Unsent,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Long bytes that are written slice by slice; each slice counts until it is written.
struct Slices {
    bytes: Bytes,
    unsent: Unsent,
}

impl Iterator for Slices {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        let length = self.bytes.len().min(SLICE_BYTES);
        if length == 0 {
            return None;
        }
        Some(Bytes::from_owner(Counted {
            bytes: self.bytes.split_to(length),
            _unsent: self.unsent.split_to(length as u64),
        }))
    }
}

impl Ahead {
    /// The view of a request that came by this connection.
    pub fn of_request(&self) -> RequestAhead {
        RequestAhead(Arc::new(RequestState {
            ahead: self.clone(),
            begun: Mutex::default(),
        }))
    }

    /// Waits until the connection may make another response.
    ///
    /// # Errors
    /// 503 when the client took nothing for some time.
    async fn begin(&self) -> Result<Begun, ApiError> {
        let began_at = Instant::now();
        let begin = |state: &mut State| {
            let number = state.next;
            state.next += 1;
            state.begun.push((number, Instant::now()));
            Begun(Arc::new(BegunPlace {
                ahead: self.clone(),
                number,
            }))
        };
        if let Some(begun) = self.take(begin) {
            return Ok(begun);
        }
        let end = move |state: &State| {
            let taken_at = state.taken_at.unwrap_or(began_at);
            taken_at.max(began_at) + SILENCE_MAX
        };
        // Boxed: it is rare, and the futures of all requests would be longer.
        Box::pin(self.wait(end, begin)).await.ok_or_else(|| {
            ApiError::busy("the connection has too many responses that are not read".into())
        })
    }

    /// Calls `take` if there is room.
    fn take<T>(&self, take: impl FnOnce(&mut State) -> T) -> Option<T> {
        let mut state = self.0.state.lock();
        state.forget(Instant::now());
        state.has_room().then(|| take(&mut state))
    }

    /// Calls `take` when there is room, or returns `None` at the end, which depends on the state.
    async fn wait<T>(
        &self,
        end: impl Fn(&State) -> Instant,
        mut take: impl FnMut(&mut State) -> T,
    ) -> Option<T> {
        loop {
            let freed = self.0.freed.notified();
            tokio::pin!(freed);
            freed.as_mut().enable();
            let again = {
                let now = Instant::now();
                let mut state = self.0.state.lock();
                let forgotten_at = state.forget(now);
                if state.has_room() {
                    let taken = take(&mut state);
                    let has_more = state.has_room();
                    drop(state);
                    if has_more {
                        self.0.freed.notify_one();
                    }
                    return Some(taken);
                }
                let end = end(&state);
                if now >= end {
                    return None;
                }
                forgotten_at.map_or(end, |at| at.min(end))
            };
            let _is_over = tokio::time::timeout_at(again, freed).await;
        }
    }

    /// The number of requests whose responses are not made yet.
    #[cfg(test)]
    pub fn begun(&self) -> usize {
        self.0.state.lock().begun.len()
    }

    fn count(&self, bytes: u64) -> Unsent {
        self.0.state.lock().unsent += bytes;
        Unsent {
            ahead: self.clone(),
            bytes,
        }
    }

    fn counted(&self, bytes: Bytes) -> Bytes {
        if bytes.len() <= FREE_BYTES {
            return bytes;
        }
        let unsent = self.count(bytes.len() as u64);
        Bytes::from_owner(Counted {
            bytes,
            _unsent: unsent,
        })
    }

    fn slices(&self, bytes: Bytes) -> Slices {
        let unsent = self.count(bytes.len() as u64);
        Slices { bytes, unsent }
    }

    /// The body, counted until it is written.
    fn paced(&self, body: Body) -> Body {
        let paced = |pieces| -> Pieces {
            Box::pin(Paced {
                pieces,
                ahead: self.clone(),
                first: Some(self.count(PIECE_BYTES)),
                slices: None,
                waiting: None,
            })
        };
        match body {
            Body::Full(bytes) if bytes.len() > SLICE_BYTES => {
                let length = bytes.len() as u64;
                let slices = stream::iter(self.slices(bytes).map(Ok));
                Body::Sized(Box::pin(slices), length)
            }
            Body::Full(bytes) => Body::Full(self.counted(bytes)),
            Body::Static(bytes) => Body::Static(bytes),
            Body::Stream(pieces) => Body::Stream(paced(pieces)),
            Body::Sized(pieces, 0) => Body::Sized(pieces, 0),
            Body::Sized(pieces, length) => Body::Sized(paced(pieces), length),
        }
    }
}

/// The bytes that a connection has made ahead, as one of its requests sees them. Clones share the
/// request's place.
#[derive(Clone, Debug)]
pub struct RequestAhead(Arc<RequestState>);

#[derive(Debug)]
struct RequestState {
    ahead: Ahead,
    /// The request's place, if it has started.
    begun: Mutex<Weak<BegunPlace>>,
}

impl RequestAhead {
    /// Waits until the connection may make the response. A request that has started does not wait
    /// for itself: only one that was forgotten since then begins again.
    ///
    /// # Errors
    /// 503 when the client took nothing for some time.
    pub async fn begin(&self) -> Result<Begun, ApiError> {
        let place = self.0.begun.lock().upgrade();
        if let Some(place) = place.filter(|place| place.counts()) {
            return Ok(Begun(place));
        }
        let begun = self.0.ahead.begin().await?;
        *self.0.begun.lock() = Arc::downgrade(&begun.0);
        Ok(begun)
    }

    /// The body, counted until it is written.
    pub fn paced(&self, body: Body) -> Body {
        self.0.ahead.paced(body)
    }
}

/// Pieces that are counted until they are written.
struct Paced {
    pieces: Pieces,
    ahead: Ahead,
    /// The first piece, which was made before the client could take it. Its size is not known.
    first: Option<Unsent>,
    /// The rest of a long piece.
    slices: Option<Slices>,
    /// Ends when the next piece may be made.
    waiting: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl Paced {
    /// Waits, for a short time, while the connection has much that its client does not take.
    fn poll_turn(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.waiting.is_none() {
            if self.first.is_some() || self.ahead.take(|_| ()).is_some() {
                return Poll::Ready(());
            }
            let ahead = self.ahead.clone();
            let end = Instant::now() + PIECE_WAIT_MAX;
            self.waiting = Some(Box::pin(async move {
                let _has_room = ahead.wait(|_| end, |_| ()).await;
            }));
        }
        if let Some(waiting) = &mut self.waiting {
            ready!(waiting.as_mut().poll(cx));
            self.waiting = None;
        }
        Poll::Ready(())
    }

    /// Counts a piece; returns what is written first of it.
    fn counted(&mut self, piece: Bytes) -> Bytes {
        if piece.len() <= SLICE_BYTES {
            return self.ahead.counted(piece);
        }
        let slices = self.slices.insert(self.ahead.slices(piece));
        slices.next().unwrap_or_default()
    }
}

impl Stream for Paced {
    type Item = Result<Bytes, StreamError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(slice) = self.slices.as_mut().and_then(Iterator::next) {
            return Poll::Ready(Some(Ok(slice)));
        }
        self.slices = None;
        ready!(self.poll_turn(cx));
        let next = self.pieces.as_mut().poll_next(cx);
        // A feed that waits has made nothing.
        self.first = None;
        next.map(|piece| piece.map(|piece| piece.map(|bytes| self.counted(bytes))))
    }
}

#[cfg(test)]
mod tests {
    use futures_util::{FutureExt as _, StreamExt as _};

    use super::*;

    const PIECES: u64 = AHEAD_BYTES_MAX / PIECE_BYTES;

    fn piece() -> Bytes {
        vec![0; PIECE_BYTES as usize].into()
    }

    fn unsent(ahead: &Ahead) -> u64 {
        ahead.0.state.lock().unsent
    }

    /// The slices of a body that was whole.
    fn sliced(body: Body) -> Pieces {
        match body {
            Body::Sized(slices, _) => slices,
            _ => panic!("it is in slices"),
        }
    }

    /// Responses that are made and not read, until the next request has to wait.
    async fn unread(ahead: &Ahead, make: impl Fn() -> Body) -> Vec<Body> {
        let mut made = vec![];
        while let Some(begun) = ahead.begin().now_or_never() {
            let begun = begun.expect("it does not wait");
            made.push(ahead.paced(make()));
            drop(begun);
        }
        made
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_makes_few_responses_that_its_client_does_not_take() {
        let streamed = || Body::Stream(Box::pin(futures_util::stream::iter([Ok(piece())])));
        for make in [&(|| Body::Full(piece())) as &dyn Fn() -> Body, &streamed] {
            let ahead = Ahead::default();
            let mut made = unread(&ahead, make).await;
            assert_eq!(made.len() as u64, PIECES);
            let waiting = ahead.begin();
            tokio::pin!(waiting);
            assert!(waiting.as_mut().now_or_never().is_none());
            // The client takes two.
            drop(made.drain(..2));
            assert!(waiting.await.is_ok());
            assert_eq!(ahead.begin().await.err().map(|e| e.status), None);
            let _third = ahead.begin().now_or_never();
            drop(made);
            assert_eq!(unsent(&ahead), 0);
        }
        let ahead = Ahead::default();
        let _made = unread(&ahead, || Body::Full(piece())).await;
        let refused = ahead.begin().await;
        assert_eq!(refused.err().map(|e| e.status), Some(503));
    }

    #[tokio::test(start_paused = true)]
    async fn requests_that_come_together_wait_for_the_responses_of_the_first() {
        let ahead = Ahead::default();
        let begun: Vec<_> = (0..200).map(|_| ahead.begin().now_or_never()).collect();
        let first: Vec<Begun> = begun.into_iter().flatten().flatten().collect();
        assert_eq!(first.len() as u64, AHEAD_BYTES_MAX / BEGUN_BYTES);
        // Those that take long, whatever they wait for, keep no others waiting.
        assert!(ahead.begin().await.is_ok());
        drop(first);
        assert!(ahead.begin().now_or_never().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn pieces_count_until_they_are_written_and_a_feed_that_waits_has_none() {
        let ahead = Ahead::default();
        let (to, from) = tokio::sync::mpsc::unbounded_channel::<Bytes>();
        let pieces = futures_util::stream::unfold(from, |mut from| async {
            let piece = from.recv().await?;
            Some((Ok(piece), from))
        });
        let Body::Stream(mut pieces) = ahead.paced(Body::Stream(Box::pin(pieces))) else {
            panic!("it is a stream");
        };
        let unsent = || unsent(&ahead);
        assert_eq!(unsent(), PIECE_BYTES);
        assert!(pieces.next().now_or_never().is_none());
        assert_eq!(unsent(), 0);
        to.send(piece()).expect("it is read");
        let mut bytes = pieces.next().await.expect("a piece").expect("no error");
        let rest = bytes.split_off(10);
        drop(bytes);
        assert_eq!(unsent(), PIECE_BYTES);
        drop(rest);
        assert_eq!(unsent(), 0);
        // Other streams keep this one waiting only for a while.
        let _others = unread(&ahead, || Body::Full(piece())).await;
        to.send(piece()).expect("it is read");
        assert!(pieces.next().now_or_never().is_none());
        assert!(pieces.next().await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_has_begun_does_not_wait_for_itself() {
        let ahead = Ahead::default();
        let request = ahead.of_request();
        let first = request.begin().await.expect("room");
        let others: Vec<_> = std::iter::from_fn(|| ahead.begin().now_or_never()).collect();
        assert_eq!(others.len() as u64, AHEAD_BYTES_MAX / BEGUN_BYTES - 1);
        let again = request.begin().now_or_never();
        assert!(again.is_some_and(|again| again.is_ok()));
        // Its body is read: meanwhile it has no place, and gets one only when there is room.
        drop(first);
        let _other = ahead.begin().now_or_never().expect("room");
        assert!(request.begin().now_or_never().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_was_forgotten_begins_again() {
        let ahead = Ahead::default();
        let request = ahead.of_request();
        let _first = request.begin().await.expect("room");
        tokio::time::sleep(BEGIN_TIME_MAX).await;
        let _unread = unread(&ahead, || Body::Full(piece())).await;
        assert!(request.begin().now_or_never().is_none());
    }

    #[tokio::test]
    async fn long_bytes_count_whole_and_are_freed_in_slices() {
        let whole = || Bytes::from(vec![7; 900 << 10]);
        let streamed = || Body::Stream(Box::pin(stream::iter([Ok(whole())])));
        for make in [&(|| Body::Full(whole())) as &dyn Fn() -> Body, &streamed] {
            let ahead = Ahead::default();
            let mut slices = match ahead.paced(make()) {
                Body::Stream(slices) => slices,
                sized => {
                    assert_eq!(sized.length(), Some(900 << 10));
                    sliced(sized)
                }
            };
            let mut left = 900 << 10;
            while let Some(slice) = slices.next().await {
                let slice = slice.expect("no error");
                assert!(slice.iter().all(|byte| *byte == 7));
                assert_eq!(unsent(&ahead), left);
                left -= slice.len() as u64;
                drop(slice);
                assert_eq!(unsent(&ahead), left);
            }
            assert_eq!(left, 0);
        }
        let ahead = Ahead::default();
        let mut slices = sliced(ahead.paced(Body::Full(whole())));
        drop(slices.next().await);
        drop(slices);
        assert_eq!(unsent(&ahead), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_slowly_gets_no_error() {
        let ahead = Ahead::default();
        let long = Bytes::from(vec![0; 8 << 20]);
        let mut slices = sliced(ahead.paced(Body::Full(long)));
        let began_at = Instant::now();
        let reads = async {
            while slices.next().await.is_some() {
                tokio::time::sleep(SILENCE_MAX - Duration::from_secs(1)).await;
            }
        };
        let waits = async {
            let begun = ahead.begin().await;
            (begun.is_ok(), began_at.elapsed() > 10 * SILENCE_MAX)
        };
        let ((), waited) = tokio::join!(reads, waits);
        assert_eq!(waited, (true, true));
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_stops_reading_gets_an_error() {
        let ahead = Ahead::default();
        let long = Bytes::from(vec![0; 8 << 20]);
        let mut slices = sliced(ahead.paced(Body::Full(long)));
        let began_at = Instant::now();
        let reads = async {
            tokio::time::sleep(SILENCE_MAX / 2).await;
            drop(slices.next().await);
        };
        let ((), begun) = tokio::join!(reads, ahead.begin());
        assert_eq!(begun.err().map(|e| e.status), Some(503));
        let waited = began_at.elapsed();
        assert!(
            waited >= SILENCE_MAX * 3 / 2 && waited < SILENCE_MAX * 2,
            "{waited:?}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn all_that_wait_get_their_turns() {
        let ahead = Ahead::default();
        let long = ahead.paced(Body::Full(vec![0; 8 << 20].into()));
        let waiting = (0..50).map(|_| async { ahead.begin().await.map(drop) });
        let frees = async {
            tokio::task::yield_now().await;
            drop(long);
        };
        let began_at = Instant::now();
        let all = futures_util::future::join_all(waiting);
        let (all, ()) = tokio::join!(all, frees);
        assert!(all.iter().all(Result::is_ok));
        assert_eq!(began_at.elapsed(), Duration::ZERO);
    }
}
