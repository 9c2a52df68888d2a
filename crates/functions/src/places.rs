//! Who may run users' functions now: so many at a time, in an order that is fair to databases.
//!
//! Each kind of work has a lane with places of its own, so that shows do not keep writes or index builds waiting. A place is
//! given to the database that has fewest in use, among equals to the one that was given one longest ago; so one database's
//! slow functions keep another's waiting for one of their calls at most. One database never has all places of a lane. How many
//! wait is limited too: when there are too many, the database that has most of them waiting loses its newest.
//!
//! Waiting takes no thread (an [`Admission`] is a future), unless the caller has one anyway ([`Admission::wait`]).

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::{Error, SLICE};

/// Answers under way whose functions run in between: each has a thread, and a list a process, while its client takes it.
const ANSWERS_MAX: usize = 32;
/// Those of one database: a few databases whose clients are slow leave places to others.
const ANSWERS_OF_ONE_MAX: usize = 10;

/// A call that takes so long is slow, and its database for a while after it: slow ones together leave a place to others.
const SLOW: Duration = Duration::from_secs(1);
const SLOW_FOR: Duration = Duration::from_secs(60);
/// Slow databases that are remembered.
const SLOW_MAX: usize = 1024;

/// A kind of work that has places of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// Functions that a request or a feed calls: shows, updates, rewrites, filters.
    Calls,
    /// Validations of what is to be written, and checks of sources.
    Writes,
    /// Maps and reduces.
    Work,
    /// List functions, each for as long as its client takes its output.
    Lists,
    /// Pieces of answers that custom reduce functions are run for; these functions have places of [`Lane::Work`].
    Answers,
}

const LANES: usize = 5;

/// The places of a server.
#[derive(Debug)]
pub struct Places {
    lanes: [Mutex<State>; LANES],
    /// Most that wait in one lane, besides those that are patient.
    queue_max: usize,
}

#[derive(Debug)]
struct State {
    places: usize,
    of_one: usize,
    used: usize,
    /// How many wait that may be refused.
    waiting: usize,
    owners: HashMap<Arc<str>, Owner>,
    /// Counts places that were given.
    given: u64,
    /// Until when a database counts as slow.
    slow: HashMap<Arc<str>, Instant>,
}

#[derive(Debug, Default)]
struct Owner {
    used: usize,
    waiting: VecDeque<Arc<Waiter>>,
    /// When it was last given a place, or came.
    given: u64,
}

#[derive(Debug)]
struct Waiter {
    /// It is bounded elsewhere, and never refused.
    patient: bool,
    state: Mutex<Waiting>,
}

#[derive(Debug)]
enum Waiting {
    For(Waker),
    Given,
    Refused,
    /// Nobody waits any more.
    Over,
}

impl Places {
    /// `workers`: places of one database in each lane of calls; there is one more for others. `queue_max`: how many may
    /// wait in each lane.
    pub fn new(workers: usize, queue_max: usize) -> Arc<Places> {
        let lane = |places: usize, of_one: usize| {
            Mutex::new(State {
                places,
                of_one,
                used: 0,
                waiting: 0,
                owners: HashMap::new(),
                given: 0,
                slow: HashMap::new(),
            })
        };
        let workers = workers.max(2);
        Arc::new(Places {
            lanes: [
                lane(workers + 1, workers),
                lane(workers + 1, workers),
                lane(workers + 1, workers),
                lane(ANSWERS_MAX, ANSWERS_OF_ONE_MAX),
                lane(ANSWERS_MAX, ANSWERS_OF_ONE_MAX),
            ],
            queue_max,
        })
    }

    fn lane(&self, lane: Lane) -> &Mutex<State> {
        &self.lanes[lane as usize]
    }

    /// Asks for a place for functions of the database `owner`.
    pub fn admission(self: &Arc<Self>, lane: Lane, owner: &Arc<str>) -> Admission {
        Admission {
            asked: Some(Asked {
                places: self.clone(),
                lane,
                owner: owner.clone(),
            }),
            patient: false,
            waiter: None,
        }
    }

    fn busy(&self) -> Error {
        Error::Busy {
            limit: self.queue_max,
        }
    }
}

impl State {
    fn owner(&mut self, name: &Arc<str>) -> &mut Owner {
        let given = self.given;
        self.owners.entry(name.clone()).or_insert_with(|| Owner {
            given,
            ..Owner::default()
        })
    }

    fn is_slow(&self, name: &Arc<str>, now: Instant) -> bool {
        self.slow.get(name).is_some_and(|until| now < *until)
    }

    /// Whether a free place may be this database's.
    fn may_have(&self, name: &Arc<str>, owner: &Owner, now: Instant) -> bool {
        if owner.used >= self.of_one {
            return false;
        }
        if self.slow.is_empty() || !self.is_slow(name, now) {
            return true;
        }
        let slow = self
            .owners
            .iter()
            .filter(|(name, _)| self.is_slow(name, now));
        slow.map(|(_, owner)| owner.used).sum::<usize>() + 1 < self.places
    }

    fn note_slow(&mut self, name: &Arc<str>, now: Instant) {
        if self.slow.len() >= SLOW_MAX {
            self.slow.retain(|_, until| now < *until);
        }
        if self.slow.len() < SLOW_MAX {
            self.slow.insert(name.clone(), now + SLOW_FOR);
        }
    }

    fn take(&mut self, name: &Arc<str>) {
        self.given += 1;
        self.used += 1;
        let given = self.given;
        let owner = self.owner(name);
        owner.used += 1;
        owner.given = given;
    }

    /// Gives free places to those that wait.
    fn serve(&mut self) {
        let now = Instant::now();
        while self.used < self.places {
            let next = self
                .owners
                .iter()
                .filter(|(_, owner)| !owner.waiting.is_empty())
                .filter(|(name, owner)| self.may_have(name, owner, now))
                .min_by_key(|(_, owner)| (owner.used, owner.given))
                .map(|(name, _)| name.clone());
            let Some(name) = next else { return };
            let Some(waiter) = self.owner(&name).waiting.pop_front() else {
                return;
            };
            self.waiting -= usize::from(!waiter.patient);
            self.take(&name);
            waiter.end(Waiting::Given);
        }
    }

    /// Makes room for one more that waits: whether there is.
    fn make_room(&mut self, name: &Arc<str>, queue_max: usize) -> bool {
        if self.waiting < queue_max {
            return true;
        }
        let refusable = |owner: &Owner| owner.waiting.iter().filter(|w| !w.patient).count();
        let own = self.owners.get(name).map_or(0, refusable);
        let most = self
            .owners
            .values_mut()
            .map(|owner| (refusable(owner), owner))
            .max_by_key(|(count, _)| *count);
        let Some((count, owner)) = most else {
            return false;
        };
        if count <= own + 1 {
            return false;
        }
        let Some(at) = owner.waiting.iter().rposition(|w| !w.patient) else {
            return false;
        };
        if let Some(waiter) = owner.waiting.remove(at) {
            self.waiting -= 1;
            waiter.end(Waiting::Refused);
        }
        true
    }

    fn forget_idle(&mut self, name: &Arc<str>) {
        let idle = |owner: &Owner| owner.used == 0 && owner.waiting.is_empty();
        if self.owners.get(name).is_some_and(idle) {
            self.owners.remove(name);
        }
    }

    fn give_back(&mut self, name: &Arc<str>) {
        self.used -= 1;
        self.owner(name).used -= 1;
        self.serve();
        self.forget_idle(name);
    }
}

impl Waiter {
    fn end(&self, how: Waiting) {
        let before = std::mem::replace(&mut *self.state.lock(), how);
        if let Waiting::For(waker) = before {
            waker.wake();
        }
    }
}

#[derive(Clone, Debug)]
struct Asked {
    places: Arc<Places>,
    lane: Lane,
    owner: Arc<str>,
}

impl Asked {
    fn state(&self) -> &Mutex<State> {
        self.places.lane(self.lane)
    }
}

/// Waits for a [`Place`]; dropped, it waits no more.
#[derive(Debug)]
#[must_use = "it asks for nothing before it is awaited"]
pub struct Admission {
    /// `None` where places are not counted, and once it was answered.
    asked: Option<Asked>,
    patient: bool,
    waiter: Option<Arc<Waiter>>,
}

impl Admission {
    /// Leave at once, where nobody counts.
    pub fn free() -> Admission {
        Admission {
            asked: None,
            patient: false,
            waiter: None,
        }
    }

    /// Waits for as long as it takes: for work that is bounded elsewhere and has begun (a feed, an answer whose head was sent).
    pub fn patiently(mut self) -> Admission {
        self.patient = true;
        self
    }

    /// Waits on this thread, for as long as it takes. How many threads do so is for the callers to bound.
    ///
    /// # Errors
    /// None but what the future has.
    pub fn wait(mut self) -> Result<Place, Error> {
        self.patient = true;
        let waker = Arc::new(Unpark(std::thread::current())).into();
        let mut context = Context::from_waker(&waker);
        let mut admission = pin!(self);
        loop {
            match admission.as_mut().poll(&mut context) {
                Poll::Ready(place) => return place,
                Poll::Pending => std::thread::park(),
            }
        }
    }

    fn enter(&mut self, waker: &Waker) -> Poll<Result<Place, Error>> {
        let Some(asked) = self.asked.take() else {
            return Poll::Ready(Ok(Place::new(None)));
        };
        let mut state = asked.state().lock();
        let now = Instant::now();
        state.owner(&asked.owner);
        let may_have = |state: &State| {
            let owner = state.owners.get(&asked.owner);
            owner.is_some_and(|owner| state.may_have(&asked.owner, owner, now))
        };
        if state.used < state.places && may_have(&state) {
            state.take(&asked.owner);
            drop(state);
            return Poll::Ready(Ok(Place::new(Some(asked))));
        }
        let queue_max = asked.places.queue_max;
        if !self.patient && !state.make_room(&asked.owner, queue_max) {
            state.forget_idle(&asked.owner);
            return Poll::Ready(Err(asked.places.busy()));
        }
        let waiter = Arc::new(Waiter {
            patient: self.patient,
            state: Mutex::new(Waiting::For(waker.clone())),
        });
        state.waiting += usize::from(!self.patient);
        let owner = state.owner(&asked.owner);
        owner.waiting.push_back(waiter.clone());
        drop(state);
        self.waiter = Some(waiter);
        self.asked = Some(asked);
        Poll::Pending
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

impl Future for Admission {
    type Output = Result<Place, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(waiter) = self.waiter.clone() else {
            return self.enter(context.waker());
        };
        let mut state = waiter.state.lock();
        let answer = match &mut *state {
            Waiting::For(waker) => {
                waker.clone_from(context.waker());
                return Poll::Pending;
            }
            Waiting::Given => Ok(Place::new(self.asked.take())),
            Waiting::Refused | Waiting::Over => Err(match self.asked.take() {
                Some(asked) => asked.places.busy(),
                None => Error::Busy { limit: 0 },
            }),
        };
        *state = Waiting::Over;
        Poll::Ready(answer)
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        let (Some(asked), Some(waiter)) = (self.asked.take(), self.waiter.take()) else {
            return;
        };
        // Whoever gives places has the lane: after this nobody gives one to this waiter.
        let mut state = asked.state().lock();
        let owner = state.owner(&asked.owner);
        let before = owner.waiting.len();
        owner.waiting.retain(|other| !Arc::ptr_eq(other, &waiter));
        if owner.waiting.len() < before {
            state.waiting -= usize::from(!waiter.patient);
        }
        if matches!(*waiter.state.lock(), Waiting::Given) {
            state.give_back(&asked.owner);
        }
        state.forget_idle(&asked.owner);
    }
}

/// Leave to run functions, until it is dropped.
#[derive(Debug)]
pub struct Place {
    asked: Option<Asked>,
    since: Instant,
}

impl Place {
    fn new(asked: Option<Asked>) -> Place {
        Place {
            asked,
            since: Instant::now(),
        }
    }

    /// Leave where nobody counts.
    pub fn uncounted() -> Place {
        Place::new(None)
    }

    /// The database that it was given to.
    pub fn database(&self) -> Option<&str> {
        self.asked.as_ref().map(|asked| &*asked.owner)
    }

    /// Whether this place was had for long enough and others wait for one: work of many calls is to ask for a new place.
    pub fn is_wanted(&self) -> bool {
        self.since.elapsed() >= SLICE
            && self.asked.as_ref().is_some_and(|asked| {
                let state = asked.state().lock();
                state.owners.values().any(|owner| !owner.waiting.is_empty())
            })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(asked) = self.asked.take() {
            let mut state = asked.state().lock();
            if self.since.elapsed() >= SLOW {
                state.note_slow(&asked.owner, Instant::now());
            }
            state.give_back(&asked.owner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Arc<str> {
        text.into()
    }

    fn poll(admission: &mut Admission) -> Poll<Result<Place, Error>> {
        Pin::new(admission).poll(&mut Context::from_waker(Waker::noop()))
    }

    fn given(admission: &mut Admission) -> Place {
        match poll(admission) {
            Poll::Ready(Ok(place)) => place,
            other => panic!("{other:?}"),
        }
    }

    fn ask(places: &Arc<Places>, owner: &str) -> Admission {
        places.admission(Lane::Calls, &name(owner))
    }

    #[test]
    fn one_database_leaves_a_place_to_others() {
        let places = Places::new(2, 10);
        let _first = given(&mut ask(&places, "a"));
        let second = given(&mut ask(&places, "a"));
        let mut third = ask(&places, "a");
        assert!(poll(&mut third).is_pending());
        let _other = given(&mut ask(&places, "b"));
        assert!(poll(&mut third).is_pending());
        drop(second);
        drop(given(&mut third));
    }

    #[test]
    fn lanes_do_not_wait_for_each_other() {
        let places = Places::new(2, 0);
        let a = name("a");
        let _calls: Vec<_> = (0..2).map(|_| given(&mut ask(&places, "a"))).collect();
        assert!(matches!(
            poll(&mut ask(&places, "a")),
            Poll::Ready(Err(Error::Busy { limit: 0 }))
        ));
        for lane in [Lane::Writes, Lane::Work, Lane::Lists, Lane::Answers] {
            drop(given(&mut places.admission(lane, &a)));
        }
    }

    #[test]
    fn the_database_with_fewest_places_is_next_and_equals_take_turns() {
        let places = Places::new(2, 100);
        let mut held: Vec<_> = ["a", "a", "b"].map(|o| given(&mut ask(&places, o))).into();
        let mut waiting: Vec<_> = ["a", "a", "b", "b", "c"]
            .map(|owner| (owner, ask(&places, owner)))
            .into();
        for (_, admission) in &mut waiting {
            assert!(poll(admission).is_pending());
        }
        let mut order = vec![];
        while !waiting.is_empty() {
            drop(held.remove(0));
            let at = waiting
                .iter_mut()
                .position(|(_, admission)| match poll(admission) {
                    Poll::Ready(place) => {
                        held.push(place.unwrap());
                        true
                    }
                    Poll::Pending => false,
                });
            order.push(waiting.remove(at.expect("a place was given")).0);
        }
        assert_eq!(order, ["c", "a", "b", "a", "b"]);
    }

    #[test]
    fn the_longest_queue_loses_its_newest_when_too_many_wait() {
        let places = Places::new(2, 4);
        let _held: Vec<_> = ["a", "a", "b"].map(|o| given(&mut ask(&places, o))).into();
        let mut many: Vec<_> = (0..4).map(|_| ask(&places, "a")).collect();
        assert!(many.iter_mut().all(|a| poll(a).is_pending()));
        assert!(matches!(
            poll(&mut ask(&places, "a")),
            Poll::Ready(Err(Error::Busy { limit: 4 }))
        ));
        let mut other = ask(&places, "b");
        assert!(poll(&mut other).is_pending());
        assert!(matches!(poll(&mut many[3]), Poll::Ready(Err(_))));
        assert!(many[..3].iter_mut().all(|a| poll(a).is_pending()));
    }

    #[test]
    fn slow_databases_together_leave_a_place_to_others() {
        let places = Places::new(2, 10);
        for slow in ["a", "b"] {
            let mut lane = places.lane(Lane::Calls).lock();
            lane.note_slow(&name(slow), Instant::now());
        }
        let first = given(&mut ask(&places, "a"));
        let _second = given(&mut ask(&places, "b"));
        let mut third = ask(&places, "b");
        assert!(poll(&mut third).is_pending());
        drop(given(&mut ask(&places, "c")));
        assert!(poll(&mut third).is_pending());
        drop(first);
        drop(given(&mut third));
    }

    #[test]
    fn who_is_patient_is_never_refused() {
        let places = Places::new(2, 0);
        let held: Vec<_> = ["a", "a"].map(|o| given(&mut ask(&places, o))).into();
        let mut patient: Vec<_> = (0..3).map(|_| ask(&places, "a").patiently()).collect();
        assert!(patient.iter_mut().all(|a| poll(a).is_pending()));
        assert!(matches!(poll(&mut ask(&places, "a")), Poll::Ready(Err(_))));
        drop(held);
        let served: Vec<_> = patient[..2].iter_mut().map(given).collect();
        assert_eq!(served.len(), 2);
    }

    #[test]
    fn who_waits_no_more_takes_no_place() {
        let places = Places::new(2, 4);
        let held: Vec<_> = ["a", "a"].map(|o| given(&mut ask(&places, o))).into();
        let mut gone = ask(&places, "a");
        assert!(poll(&mut gone).is_pending());
        let mut given_but_gone = ask(&places, "a");
        assert!(poll(&mut given_but_gone).is_pending());
        drop(gone);
        drop(held);
        drop(given_but_gone);
        let lane = places.lane(Lane::Calls).lock();
        assert_eq!((lane.used, lane.waiting, lane.owners.len()), (0, 0, 0));
    }

    #[test]
    fn threads_wait_until_it_is_their_turn() {
        let places = Places::new(2, 0);
        let a = name("a");
        let count = std::sync::atomic::AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let place = places.admission(Lane::Work, &a).wait().unwrap();
                        let order = std::sync::atomic::Ordering::SeqCst;
                        assert!(count.fetch_add(1, order) < 2);
                        count.fetch_sub(1, order);
                        drop(place);
                    }
                });
            }
        });
        assert!(places.lane(Lane::Work).lock().owners.is_empty());
    }
}
