//! Places of client connections: so many may be open, over all ports that share them. When all are taken and another connection comes, idle
//! ones are closed to make room, those of strangers first: a flood of them must not keep those out who have something to say.
//!
//! What a request costs here are a few stores to memory that only its connection writes.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::task::AtomicWaker;
use http_body::{Frame, SizeHint};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use telemetry::Tick;
use tokio::sync::Notify;

use crate::reply::{Body, StreamError};

/// When nobody can go, it is looked again after this time: connections become idle, and requests old.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(50);
/// One of so many connections is closed at a time, so that not all are looked at for each that comes.
const CLOSED_SHARE: usize = 16;
/// So long a new connection may take to say something, and one rest between requests, before they make room.
const GRACE_US: u64 = 1_000_000;
/// A stranger's request is one that may go after this time: it waits for the client, mostly.
const REQUEST_GRACE_US: u64 = 10_000_000;
/// A full server is logged so often.
const WARN_EVERY: Duration = Duration::from_secs(60);

/// The places.
pub struct Places {
    max: AtomicUsize,
    taken: Mutex<Taken>,
    freed: Notify,
    closed: AtomicU64,
    began: Tick,
}

#[derive(Default)]
struct Taken {
    seats: FxHashMap<u64, Arc<Seat>>,
    next: u64,
    /// Those that were told to go, and are still here.
    leaving: usize,
    warned: Option<Instant>,
}

impl Default for Places {
    /// As many as anybody wants.
    fn default() -> Places {
        Places {
            max: AtomicUsize::new(usize::MAX),
            taken: Mutex::default(),
            freed: Notify::new(),
            closed: AtomicU64::new(0),
            began: Tick::now(),
        }
    }
}

impl Places {
    /// How many there are.
    pub fn max(&self) -> usize {
        self.max.load(Relaxed)
    }

    /// Connections that were closed to make room.
    pub fn closed(&self) -> u64 {
        self.closed.load(Relaxed)
    }

    pub(crate) fn set_max(&self, max: usize) {
        self.max.store(max.max(1), Relaxed);
    }

    /// Takes a place for a connection that was accepted, and waits until there is one. Only one task may wait.
    pub(crate) async fn take(self: &Arc<Self>) -> Place {
        loop {
            let freed = self.freed.notified();
            if let Some(place) = self.try_take() {
                return place;
            }
            self.make_room();
            // Either way it is looked again.
            let _ = tokio::time::timeout(LOOK_AGAIN_AFTER, freed).await;
        }
    }

    fn try_take(self: &Arc<Self>) -> Option<Place> {
        let mut taken = self.taken.lock();
        if taken.seats.len() >= self.max() {
            return None;
        }
        let number = taken.next;
        taken.next += 1;
        let seat = Arc::new(Seat::new(self.now_us(), self.began));
        taken.seats.insert(number, seat.clone());
        Some(Place {
            places: self.clone(),
            number,
            seat,
        })
    }

    fn now_us(&self) -> u64 {
        self.began.elapsed_us()
    }

    /// Has some idle connections close, unless some are about to.
    pub(crate) fn make_room(&self) {
        let now = self.now_us();
        let mut taken = self.taken.lock();
        if taken.leaving > 0 {
            return;
        }
        let of = |seat: &Arc<Seat>| Some((seat.worth(now)?, seat.since_us.load(Relaxed)));
        let seats = taken.seats.values();
        let mut idle: Vec<_> = seats
            .filter_map(|seat| Some((of(seat)?, seat.clone())))
            .collect();
        if idle.is_empty() {
            return;
        }
        let count = (taken.seats.len() / CLOSED_SHARE).clamp(1, idle.len());
        idle.select_nth_unstable_by_key(count - 1, |(key, _)| *key);
        for (_, seat) in &idle[..count] {
            seat.ask_to_leave();
        }
        taken.leaving = count;
        let is_due = |at: Instant| at.elapsed() > WARN_EVERY;
        if taken.warned.is_none_or(is_due) {
            taken.warned = Some(Instant::now());
            let max = self.max();
            drop(taken);
            tracing::warn!(
                max,
                "all connections are taken: idle ones are closed for new ones"
            );
        }
    }
}

/// Which idle connections go first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Worth {
    /// Said nothing since it came, some time ago.
    Silent,
    /// Rests for a while; no request of it had a login.
    Stranger,
    /// Came just now and has said nothing yet, or was answered just now and has no login.
    Recent,
    /// A request without a login is under way for long.
    StrangersRequest,
    /// Rests for a while; a request of it had a login.
    Known,
}

/// What is known of a connection.
pub(crate) struct Seat {
    under_way: AtomicU32,
    has_asked: AtomicBool,
    is_known: AtomicBool,
    /// Since when it is idle, or else has requests under way.
    since_us: AtomicU64,
    began: Tick,
    is_unwanted: AtomicBool,
    task: AtomicWaker,
}

impl Seat {
    fn new(now_us: u64, began: Tick) -> Seat {
        Seat {
            under_way: AtomicU32::new(0),
            has_asked: AtomicBool::new(false),
            is_known: AtomicBool::new(false),
            since_us: AtomicU64::new(now_us),
            began,
            is_unwanted: AtomicBool::new(false),
            task: AtomicWaker::new(),
        }
    }

    /// A request begins, which ends when what this returns is dropped.
    pub fn begin(self: &Arc<Self>) -> Busy {
        if self.under_way.fetch_add(1, AcqRel) == 0 {
            self.since_us.store(self.began.elapsed_us(), Relaxed);
            self.has_asked.store(true, Relaxed);
        }
        Busy(self.clone())
    }

    /// A request of it has a login.
    pub fn note_known(&self) {
        self.is_known.store(true, Relaxed);
    }

    /// What it is worth now; `None` when it must not be closed.
    fn worth(&self, now_us: u64) -> Option<Worth> {
        let age_us = now_us.saturating_sub(self.since_us.load(Relaxed));
        let is_known = self.is_known.load(Relaxed);
        if self.under_way.load(Acquire) > 0 {
            let may_go = !is_known && age_us >= REQUEST_GRACE_US;
            return may_go.then_some(Worth::StrangersRequest);
        }
        let is_recent = age_us < GRACE_US;
        match (self.has_asked.load(Relaxed), is_known) {
            (true, true) => (!is_recent).then_some(Worth::Known),
            _ if is_recent => Some(Worth::Recent),
            (true, false) => Some(Worth::Stranger),
            (false, _) => Some(Worth::Silent),
        }
    }

    fn ask_to_leave(&self) {
        self.is_unwanted.store(true, Release);
        self.task.wake();
    }
}

/// A request under way.
pub(crate) struct Busy(Arc<Seat>);

impl Drop for Busy {
    fn drop(&mut self) {
        // Before it is idle: it would look as if it had been for long.
        self.0.since_us.store(self.0.began.elapsed_us(), Relaxed);
        self.0.under_way.fetch_sub(1, AcqRel);
    }
}

/// A place that a connection has, until this is dropped.
pub(crate) struct Place {
    places: Arc<Places>,
    number: u64,
    seat: Arc<Seat>,
}

impl Place {
    pub fn seat(&self) -> &Arc<Seat> {
        &self.seat
    }

    /// Serves a connection until it ends or makes room for another.
    pub fn serve<F: Future<Output = ()>>(self, connection: F) -> Served<F> {
        Served {
            connection: Box::pin(connection),
            place: self,
        }
    }

    /// Whether it has been told to go, and can. A request may have come since.
    fn leaves(&self) -> bool {
        if !self.seat.is_unwanted.load(Acquire) {
            return false;
        }
        let leaves = self.seat.worth(self.places.now_us()).is_some();
        if leaves {
            self.places.closed.fetch_add(1, Relaxed);
        } else {
            self.stay();
        }
        leaves
    }

    fn stay(&self) {
        let mut taken = self.places.taken.lock();
        if self.seat.is_unwanted.swap(false, AcqRel) {
            taken.leaving = taken.leaving.saturating_sub(1);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.stay();
        self.places.taken.lock().seats.remove(&self.number);
        self.places.freed.notify_one();
    }
}

/// A connection that has a place.
pub(crate) struct Served<F> {
    // Dropped first: the place is free when the socket is closed.
    connection: Pin<Box<F>>,
    place: Place,
}

impl<F: Future<Output = ()>> Future for Served<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        this.place.seat.task.register(cx.waker());
        // What has come is taken before it is looked whether it is idle.
        if this.connection.as_mut().poll(cx).is_ready() || this.place.leaves() {
            return Poll::Ready(());
        }
        Poll::Pending
    }
}

/// The body of an answer, whose request is under way until it is dropped.
pub(crate) struct Held {
    pub body: Body,
    pub _busy: Busy,
}

impl http_body::Body for Held {
    type Data = Bytes;
    type Error = StreamError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, StreamError>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(max: usize) -> Arc<Places> {
        let places = Arc::<Places>::default();
        places.set_max(max);
        places
    }

    fn take(places: &Arc<Places>) -> Place {
        places.try_take().expect("there is a place")
    }

    fn is_asked_to_leave(place: &Place) -> bool {
        place.seat.is_unwanted.load(Acquire)
    }

    #[test]
    fn strangers_go_before_those_who_are_known_and_idle_before_busy() {
        let seat = Seat::new(0, Tick::now());
        let seat = Arc::new(seat);
        assert_eq!(seat.worth(10), Some(Worth::Recent));
        assert_eq!(seat.worth(GRACE_US), Some(Worth::Silent));
        let busy = seat.begin();
        let since = seat.since_us.load(Relaxed);
        assert_eq!(seat.worth(since), None);
        assert_eq!(
            seat.worth(since + REQUEST_GRACE_US),
            Some(Worth::StrangersRequest)
        );
        drop(busy);
        assert_eq!(seat.worth(since), Some(Worth::Recent));
        assert_eq!(seat.worth(since + 2 * GRACE_US), Some(Worth::Stranger));
        let busy = seat.begin();
        seat.note_known();
        assert_eq!(seat.worth(u64::MAX), None, "its request is under way");
        let other = seat.begin();
        drop(busy);
        assert_eq!(seat.worth(u64::MAX), None, "and so is another one");
        drop(other);
        let since = seat.since_us.load(Relaxed);
        assert_eq!(seat.worth(since), None, "a client between two requests");
        assert_eq!(seat.worth(since + GRACE_US), Some(Worth::Known));
    }

    #[test]
    fn the_oldest_of_the_least_worth_go_and_no_more_than_a_part() {
        let places = places(32);
        let all: Vec<_> = (0..32).map(|_| take(&places)).collect();
        assert!(places.try_take().is_none());
        for (n, place) in all.iter().enumerate() {
            drop(place.seat.begin());
            place.seat.since_us.store(100 - n as u64, Relaxed);
        }
        all[31].seat.note_known();
        places.make_room();
        let asked = |places: &[Place]| -> Vec<usize> {
            let all = places.iter().enumerate();
            all.filter(|(_, place)| is_asked_to_leave(place))
                .map(|(n, _)| n)
                .collect()
        };
        assert_eq!(asked(&all), [29, 30]);
        places.make_room();
        assert_eq!(asked(&all), [29, 30], "they are about to go");
    }

    #[tokio::test]
    async fn an_idle_connection_makes_room_and_one_that_just_got_a_request_does_not() {
        let places = places(1);
        let place = take(&places);
        let seat = place.seat().clone();
        let busy = seat.begin();
        drop(seat.begin());
        let served = tokio::spawn(place.serve(std::future::pending()));
        places.make_room();
        assert!(!seat.is_unwanted.load(Acquire), "its request is under way");
        drop(busy);
        places.make_room();
        let place = places.take().await;
        served.await.expect("it ended");
        assert_eq!((places.closed(), places.taken.lock().leaving), (1, 0));
        // Asked when it was idle; its request came first.
        let served = place.serve(std::future::pending());
        tokio::pin!(served);
        places.make_room();
        let _busy = served.place.seat().begin();
        let polled = std::future::poll_fn(|cx| Poll::Ready(served.as_mut().poll(cx))).await;
        assert!(polled.is_pending());
        assert_eq!((places.closed(), places.taken.lock().leaving), (1, 0));
    }
}
