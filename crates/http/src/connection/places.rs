//! Places of client connections: how many may be open, over all ports that share them.
//!
//! When all are taken, another connection gets one of a few reserved places until it has sent a
//! request. `GET /_up` is answered there, and so are server admins and, in part of these places,
//! logins whose bodies have come. Any other request needs a place that is not reserved: connections
//! make room by the rules of `room`, or the request is refused. So the queue of the kernel
//! never fills with connections of a flood, behind which others would wait.

use std::future::Future;
use std::hash::{BuildHasher as _, RandomState};
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use parking_lot::{Mutex, MutexGuard};
use rustc_hash::FxHashMap;
use telemetry::Tick;
use tokio::sync::Notify;

use crate::accounting::completion::without_slow_lines;
use crate::connection::room::{Activity, Class, Newcomer, Occupant, Shares};
use crate::connection::seat::{Busy, Seat};
use crate::reply::{Body, StreamError};

/// Interval at which a waiting connection or request tries again to get a place.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(20);
/// Least time between two choices of connections to close, for newcomers of one kind: each examines
/// all connections.
const CHOOSE_EVERY_US: u64 = 20_000;
/// Longest wait for connections that have to close but are still open.
const LEAVING_US_MAX: u64 = 500_000;
/// While places became free within this time, requests wait for one.
const PROGRESS_US: u64 = 100_000;
/// Longest wait of a request for a place,
const ADMISSION_TIME_MAX: Duration = Duration::from_secs(5);
/// and of a server admin's request, until it is answered in the reserved place.
const ADMINS_TIME_MAX: Duration = Duration::from_millis(200);
/// One of this many places is reserved,
const RESERVED_PART: usize = 16;
/// and at most this many.
const RESERVED_MAX: usize = 8;
/// A request in a reserved place gives way to another connection after this time,
const REQUEST_US_MAX: u64 = 1_000_000;
/// and a silent connection after this time, unless its address has half of the reserved places.
const SILENCE_US_MAX: u64 = 20_000;
/// Least time between two log lines about a full server.
const WARN_EVERY: Duration = Duration::from_secs(60);

/// The places.
pub struct Places {
    max: AtomicUsize,
    taken: Mutex<Taken>,
    freed: Notify,
    closed: AtomicU64,
    began: Tick,
    hasher: RandomState,
}

#[derive(Default)]
struct Taken {
    seats: FxHashMap<u64, Arc<Seat>>,
    reserved: FxHashMap<u64, Arc<Seat>>,
    next: u64,
    /// Requests in reserved places that wait for another.
    waiting: Vec<Waiting>,
    /// Connections that have to close, and are still open.
    leaving: usize,
    told_at_us: u64,
    /// When a place became free last.
    progress_us: Option<u64>,
    /// As of the last choice.
    shares: Shares,
    /// The last choices, by the newcomer's class and whether its group had its share.
    choices: [[Option<Choice>; 2]; 3],
    warned: Option<Instant>,
}

/// When connections were chosen, and whether there were any.
#[derive(Clone, Copy)]
struct Choice {
    at_us: u64,
    is_some: bool,
}

struct Waiting {
    number: u64,
    class: Class,
}

/// The result of a request in a reserved place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Admission {
    Admitted,
    Waits,
    Refused,
}

impl Default for Places {
    /// Places without a limit.
    fn default() -> Places {
        Places {
            max: AtomicUsize::new(usize::MAX),
            taken: Mutex::default(),
            freed: Notify::new(),
            closed: AtomicU64::new(0),
            began: Tick::now(),
            hasher: RandomState::new(),
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

    /// Number of reserved places; 0 if there are few places, which then have one more.
    fn reserved(&self) -> usize {
        (self.max() / RESERVED_PART).clamp(1, RESERVED_MAX)
    }

    /// How many are not.
    fn shared(&self) -> usize {
        let max = self.max();
        let is_few = max < RESERVED_PART;
        if is_few { max } else { max - self.reserved() }
    }

    /// The group of an address. Addresses of one IPv6 network belong together.
    pub(crate) fn group_of(&self, address: IpAddr) -> u64 {
        match address.to_canonical() {
            IpAddr::V4(v4) => self.hasher.hash_one((0u8, v4)),
            IpAddr::V6(v6) => self.hasher.hash_one((1u8, &v6.segments()[..4])),
        }
    }

    /// The group of a user.
    pub(crate) fn group_of_user(&self, name: &str) -> u64 {
        self.hasher.hash_one((2u8, name))
    }

    fn now_us(&self) -> u64 {
        self.began.elapsed_us()
    }

    /// Takes a place for a connection that was accepted, and waits until there is one.
    pub(crate) async fn take(self: &Arc<Self>, peer: IpAddr) -> Place {
        let group = self.group_of(peer);
        loop {
            let freed = self.freed.notified();
            if let Some(place) = self.try_take(group) {
                return place;
            }
            // A free place wakes one of the tasks that wait. Either way it looks again.
            let _ = tokio::time::timeout(LOOK_AGAIN_AFTER, freed).await;
        }
    }

    fn try_take(self: &Arc<Self>, group: u64) -> Option<Place> {
        let mut taken = self.taken.lock();
        // Requests that wait come first.
        let has_room = taken.waiting.is_empty() && taken.seats.len() < self.shared();
        if !has_room && taken.reserved.len() >= self.reserved() {
            self.evict(&taken, group);
            return None;
        }
        let number = taken.next;
        taken.next += 1;
        let seat = Arc::new(Seat::new(group, !has_room, self.began));
        let seats = match has_room {
            true => &mut taken.seats,
            false => &mut taken.reserved,
        };
        seats.insert(number, seat.clone());
        Some(Place {
            places: self.clone(),
            number,
            seat,
        })
    }

    /// Closes one of the connections in reserved places, if one has had its time.
    fn evict(&self, taken: &Taken, group: u64) {
        let now = self.now_us();
        let occupants =
            || (taken.reserved.iter()).map(move |(n, seat)| (seat, seat.occupant(*n, now)));
        if taken.reserved.values().any(|seat| seat.is_leaving()) {
            return;
        }
        let own = occupants().filter(|(_, o)| o.group == group).count();
        let is_crowd = |o: &Occupant| o.group == group && own * 2 >= self.reserved();
        let may_go = |seat: &Seat, o: &Occupant| match o.activity {
            Activity::Resting => true,
            Activity::Silent => is_crowd(o) || o.age_us >= SILENCE_US_MAX,
            Activity::Busy => o.age_us >= REQUEST_US_MAX && !seat.is_exempt(),
        };
        let is_busy = |o: &Occupant| o.activity == Activity::Busy;
        let key = |o: &Occupant| (is_busy(o), !is_crowd(o), std::cmp::Reverse(o.age_us));
        let goes = occupants().filter(|(seat, o)| may_go(seat, o));
        if let Some((seat, o)) = goes.min_by_key(|(_, o)| key(o)) {
            // Its request may have come already, though its task has not read it.
            seat.ask_to_leave(is_busy(&o));
        }
    }

    /// Finds a place that is not reserved for a request. Returns false if all are taken: the
    /// request must be refused.
    pub(crate) async fn admit(&self, place: &Ticket, class: Class) -> bool {
        let seat = &place.seat;
        let newcomer = Newcomer {
            class,
            group: seat.group(),
        };
        let time_max = match class {
            Class::Admin => ADMINS_TIME_MAX,
            _ => ADMISSION_TIME_MAX,
        };
        let deadline = Instant::now() + time_max;
        let _waits = self.wait(place.number, class);
        loop {
            let admission = match Instant::now() < deadline && !seat.is_leaving() {
                true => self.try_admit(place, newcomer),
                false => Admission::Refused,
            };
            match admission {
                Admission::Admitted => return true,
                Admission::Refused if class == Class::Admin => {
                    self.exempt(seat);
                    return true;
                }
                Admission::Refused => return false,
                Admission::Waits => {
                    let changed = seat.changed.notified();
                    let _ = tokio::time::timeout(LOOK_AGAIN_AFTER, changed).await;
                }
            }
        }
    }

    /// A server admin's request keeps its reserved place. At most half of the reserved places are
    /// kept: requests in the others give way to new connections, or long requests of admins would
    /// take all of them.
    fn exempt(&self, seat: &Seat) {
        let taken = self.taken.lock();
        let exempt = taken.reserved.values().filter(|seat| seat.is_exempt());
        if exempt.count() < self.reserved() / 2 {
            seat.exempt();
        }
    }

    /// Lets a login keep its reserved place, and returns whether it may. Logins keep at most half of the
    /// reserved places, and those of one address at most one: they wait for their turn to check a
    /// password, and strangers could take all places with them.
    pub(crate) fn keep_for_login(&self, place: &Ticket) -> bool {
        let taken = self.taken.lock();
        let seat = &place.seat;
        let is_other = |other: &&Arc<Seat>| other.is_login() && !Arc::ptr_eq(other, seat);
        let reserved = &taken.reserved;
        let others = || reserved.values().filter(is_other);
        // A single reserved place is for logins too: no client of a full server could log in otherwise.
        let kept_max = (self.reserved() / 2).max(1);
        let is_of_group = |other: &Arc<Seat>| other.group() == seat.group();
        if others().count() >= kept_max || others().any(is_of_group) {
            return false;
        }
        seat.note_login();
        true
    }

    fn wait(&self, number: u64, class: Class) -> Waits<'_> {
        let mut taken = self.taken.lock();
        taken.waiting.push(Waiting { number, class });
        Waits {
            places: self,
            number,
        }
    }

    fn try_admit(&self, place: &Ticket, newcomer: Newcomer) -> Admission {
        let mut taken = self.taken.lock();
        self.grant(&mut taken);
        if !place.seat.is_reserved() {
            return Admission::Admitted;
        }
        let now = self.now_us();
        let is_recent = |at: Option<u64>, us: u64| at.is_some_and(|at| now.saturating_sub(at) < us);
        let has_share = taken.shares.has_share(newcomer);
        let choice = taken.choices[newcomer.class as usize][usize::from(has_share)];
        let choice = choice.filter(|choice| is_recent(Some(choice.at_us), CHOOSE_EVERY_US));
        let is_leaving = taken.leaving > 0 && is_recent(Some(taken.told_at_us), LEAVING_US_MAX);
        if !is_leaving && choice.is_none() {
            self.make_room_for(taken, newcomer);
            taken = self.taken.lock();
        }
        // The next choice may find some: the last one did, or it was for another group.
        let is_early = choice.is_some_and(|choice| choice.is_some || !has_share);
        let waits = taken.leaving > 0
            || is_early
            || is_recent(taken.progress_us, PROGRESS_US)
            || newcomer.class != Class::Stranger && !taken.shares.has_share(newcomer);
        match waits {
            true => Admission::Waits,
            false => Admission::Refused,
        }
    }

    /// Assigns free places to waiting connections: server admins first, then users.
    fn grant(&self, taken: &mut Taken) {
        while taken.seats.len() < self.shared() {
            let waiting = taken.waiting.iter().enumerate();
            let first = waiting.max_by_key(|(at, w)| (w.class, std::cmp::Reverse(*at)));
            let Some((at, _)) = first else {
                return;
            };
            let number = taken.waiting.remove(at).number;
            if let Some(seat) = taken.reserved.remove(&number) {
                seat.admit();
                taken.seats.insert(number, seat);
            }
        }
    }

    /// Closes idle connections after one could not be accepted, because there are no descriptors.
    pub(crate) fn make_room(&self) {
        let taken = self.taken.lock();
        if taken.leaving == 0 && taken.waiting.is_empty() {
            let newcomer = Newcomer {
                class: Class::Stranger,
                group: 0,
            };
            self.make_room_for(taken, newcomer);
        }
    }

    /// Closes connections for a newcomer, if any of them have to make room for it.
    fn make_room_for(&self, mut taken: MutexGuard<'_, Taken>, newcomer: Newcomer) {
        let now = self.now_us();
        let occupants: Vec<Occupant> = (taken.seats.iter())
            .map(|(number, seat)| seat.occupant(*number, now))
            .collect();
        let shares = Shares::new(&occupants, self.shared());
        let chosen = shares.choose(newcomer, &occupants, taken.waiting.len());
        let has_share = shares.has_share(newcomer);
        taken.shares = shares;
        taken.choices[newcomer.class as usize][usize::from(has_share)] = Some(Choice {
            at_us: now,
            is_some: !chosen.is_empty(),
        });
        taken.leaving = 0;
        for (number, is_forced) in &chosen {
            if let Some(seat) = taken.seats.get(number) {
                seat.ask_to_leave(*is_forced);
            }
        }
        taken.leaving = chosen.len();
        taken.told_at_us = now;
        let is_due = |at: Instant| at.elapsed() > WARN_EVERY;
        if taken.warned.is_none_or(is_due) {
            taken.warned = Some(Instant::now());
            drop(taken);
            tracing::warn!(
                max = self.max(),
                closed = self.closed(),
                "all connections are taken: some are closed for others"
            );
        }
    }
}

/// A request that waits, until this is dropped.
struct Waits<'a> {
    places: &'a Places,
    number: u64,
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        let mut taken = self.places.taken.lock();
        // Other requests of the connection may wait under the same number.
        if let Some(at) = (taken.waiting.iter()).position(|w| w.number == self.number) {
            taken.waiting.remove(at);
        }
    }
}

/// A connection's place, as its requests see it.
#[derive(Clone)]
pub(crate) struct Ticket {
    number: u64,
    pub seat: Arc<Seat>,
}

/// A place that a connection has, until this is dropped.
pub(crate) struct Place {
    places: Arc<Places>,
    number: u64,
    seat: Arc<Seat>,
}

impl Place {
    pub fn ticket(&self) -> Ticket {
        Ticket {
            number: self.number,
            seat: self.seat.clone(),
        }
    }

    /// Serves a connection until it ends or makes room for another.
    pub fn serve<F: Future<Output = ()>>(self, connection: F) -> Served<F> {
        Served {
            connection: Some(Box::pin(connection)),
            place: self,
        }
    }

    /// Whether it has to close, and can. A request may have come since.
    fn leaves(&self) -> bool {
        match self.seat.leaves() {
            None => false,
            Some(true) => {
                self.places.closed.fetch_add(1, Relaxed);
                true
            }
            Some(false) => {
                self.stay(&mut self.places.taken.lock());
                false
            }
        }
    }

    fn stay(&self, taken: &mut Taken) {
        if self.seat.stay() && !self.seat.is_reserved() {
            taken.leaving = taken.leaving.saturating_sub(1);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.taken.lock();
        let is_free_by_itself = !self.seat.is_leaving();
        self.stay(&mut taken);
        if taken.reserved.remove(&self.number).is_none() {
            taken.seats.remove(&self.number);
            if is_free_by_itself {
                taken.progress_us = Some(self.places.now_us());
            }
            self.places.grant(&mut taken);
        }
        drop(taken);
        self.places.freed.notify_one();
    }
}

/// A connection that has a place.
pub(crate) struct Served<F> {
    // Dropped first: the place is free when the socket is closed.
    connection: Option<Pin<Box<F>>>,
    place: Place,
}

impl<F: Future<Output = ()>> Future for Served<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        this.place.seat.task.register(cx.waker());
        let Some(connection) = &mut this.connection else {
            return Poll::Ready(());
        };
        // Read arrived bytes before checking whether the connection is idle.
        if connection.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        if this.place.leaves() {
            // The connection is counted; its requests are not reported as slow because of it.
            without_slow_lines(|| this.connection = None);
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

    /// Strangers come from here.
    const THERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

    fn places(max: usize) -> Arc<Places> {
        let places = Arc::<Places>::default();
        places.set_max(max);
        places
    }

    fn take(places: &Arc<Places>) -> Place {
        let place = places.try_take(places.group_of(THERE));
        place.expect("there is a place")
    }

    fn serve(place: Place) -> (Ticket, tokio::task::JoinHandle<()>) {
        let ticket = place.ticket();
        (ticket, tokio::spawn(place.serve(std::future::pending())))
    }

    fn log_in(places: &Places, ticket: &Ticket, user: &str) {
        (ticket.seat).note_user(places.group_of_user(user), user == "admin");
    }

    #[test]
    fn some_places_are_reserved() {
        for (max, expected) in [(1, (1, 1)), (2, (2, 1)), (32, (30, 2)), (432, (424, 8))] {
            let places = places(max);
            assert_eq!((places.shared(), places.reserved()), expected, "{max}");
        }
        let places = places(1);
        let ip = |text: &str| places.group_of(text.parse().expect("an address"));
        assert_ne!(ip("10.0.0.1"), ip("10.0.0.2"));
        assert_eq!(ip("10.0.0.1"), ip("::ffff:10.0.0.1"));
        assert_eq!(ip("2001:db8::1"), ip("2001:db8::ffff:2"));
        assert_ne!(ip("2001:db8::1"), ip("2001:db8:0:1::1"));
    }

    #[tokio::test]
    async fn a_request_in_a_reserved_place_gets_that_of_an_idle_connection() {
        let places = places(1);
        let (first, served) = serve(take(&places));
        drop(first.seat.begin());
        tokio::time::sleep(Duration::from_millis(5)).await;
        let place = take(&places);
        let second = place.ticket();
        assert!(second.seat.is_reserved() && !first.seat.is_reserved());
        let _busy = second.seat.begin();
        assert!(places.admit(&second, Class::Stranger).await);
        served.await.expect("it ended");
        assert_eq!((places.closed(), second.seat.is_reserved()), (1, false));
        // One is free again for another.
        assert!(take(&places).ticket().seat.is_reserved());
    }

    #[tokio::test]
    async fn a_stranger_is_refused_and_a_user_gets_a_place_while_strangers_have_all() {
        let places = places(4);
        let all: Vec<_> = (0..4).map(|_| serve(take(&places))).collect();
        let busy: Vec<_> = all.iter().map(|(ticket, _)| ticket.seat.begin()).collect();
        let (stranger, served) = serve(take(&places));
        let request = stranger.seat.begin();
        assert!(!places.admit(&stranger, Class::Stranger).await);
        drop(request);
        // A refused connection gives way to the next.
        let place = places.take(THERE).await;
        served.await.expect("it ended");
        let user = place.ticket();
        log_in(&places, &user, "bob");
        let _request = user.seat.begin();
        assert!(places.admit(&user, Class::User).await);
        assert_eq!(places.closed(), 2);
        drop(busy);
    }

    #[tokio::test]
    async fn users_requests_are_not_closed_for_the_same_user_and_an_admin_needs_none() {
        // Of which two are reserved, and one of these may be kept.
        let places = places(32);
        let all: Vec<_> = (0..30).map(|_| serve(take(&places))).collect();
        let busy: Vec<_> = all.iter().map(|(ticket, _)| ticket.seat.begin()).collect();
        for (ticket, _) in &all {
            log_in(&places, ticket, "admin");
        }
        let place = take(&places);
        let other = place.ticket();
        let request = other.seat.begin();
        log_in(&places, &other, "admin");
        assert!(places.admit(&other, Class::Admin).await);
        assert!(other.seat.is_reserved() && other.seat.is_exempt());
        let second = take(&places);
        let _second = second.ticket().seat.begin();
        log_in(&places, &second.ticket(), "admin");
        assert!(places.admit(&second.ticket(), Class::Admin).await);
        assert!(!second.ticket().seat.is_exempt());
        drop(request);
        assert!(!other.seat.is_exempt());
        log_in(&places, &other, "eve");
        for (ticket, _) in &all {
            log_in(&places, ticket, "eve");
        }
        let _request = other.seat.begin();
        assert!(!places.admit(&other, Class::User).await);
        assert_eq!((places.closed(), busy.len()), (0, 30));
    }

    #[test]
    fn logins_keep_half_of_the_reserved_places_and_one_for_each_address() {
        // Of which four are reserved.
        let places = places(64);
        let _all: Vec<_> = (0..60).map(|_| take(&places)).collect();
        let reserved: Vec<_> = (0..4).map(|_| take(&places)).collect();
        let tickets: Vec<_> = reserved.iter().map(Place::ticket).collect();
        let mut busy: Vec<_> = tickets.iter().map(|ticket| ticket.seat.begin()).collect();
        let keeps = |n: usize| places.keep_for_login(&tickets[n]);
        assert_eq!([0, 1, 0].map(keeps), [true, false, true]);
        for (n, ticket) in tickets.iter().enumerate() {
            let address = std::net::Ipv4Addr::new(192, 0, 2, n as u8);
            ticket.seat.note_address(places.group_of(address.into()));
        }
        assert_eq!([1, 2, 3].map(keeps), [true, false, false]);
        // One is answered.
        drop(busy.remove(0));
        assert_eq!([2, 3].map(keeps), [true, false]);
    }

    #[tokio::test]
    async fn one_that_got_a_request_stays_unless_it_must_go() {
        let places = places(1);
        let served = take(&places).serve(std::future::pending());
        tokio::pin!(served);
        let seat = served.place.seat.clone();
        let _busy = seat.begin();
        for (is_forced, ends) in [(false, false), (true, true)] {
            seat.ask_to_leave(is_forced);
            let polled = std::future::poll_fn(|cx| Poll::Ready(served.as_mut().poll(cx))).await;
            assert_eq!(polled.is_ready(), ends);
        }
    }
}
