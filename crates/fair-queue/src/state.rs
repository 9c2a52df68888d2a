//! The state of a queue: holders, waiting callers, and who is next.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::{Limits, Share};

/// Time for which a user or a database counts as slow.
const SLOW_FOR: Duration = Duration::from_secs(60);
/// Slow ones that are remembered, of each; of more, those that were slow last.
const SLOW_MAX: usize = 1024;

#[derive(Debug)]
pub(crate) struct State {
    pub places: usize,
    of_user: Bound,
    of_database: Bound,
    pub used: usize,
    /// Number of waiting callers that may be refused.
    pub waiting: usize,
    /// Number of callers waiting patiently.
    pub patient: usize,
    pub shares: HashMap<Share, Waiters>,
    pub users: HashMap<Arc<str>, Total>,
    pub databases: HashMap<Arc<str>, Total>,
    /// Counts places that were given.
    given: u64,
    pub slow_users: Slow,
    pub slow_databases: Slow,
}

/// How many places one user, or one database, may have.
#[derive(Clone, Copy, Debug)]
struct Bound {
    places_max: usize,
    /// It holds less than this percentage of the free places when it gets another one.
    percent: Option<usize>,
}

/// The places and the callers of a user in a database.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    used: usize,
    waiting: VecDeque<Arc<Waiter>>,
    /// When it was last given a place, or came.
    given: u64,
}

/// The places and the callers of a user, or of a database.
#[derive(Debug, Default)]
pub(crate) struct Total {
    /// The number of shares that it is part of.
    shares: usize,
    used: usize,
    /// Waiting callers that may be refused.
    refusable: usize,
    /// When it was last given a place, or came.
    given: u64,
}

/// The places of one request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    /// Places, at least one.
    pub count: usize,
    /// Places that the same work holds already.
    pub held: usize,
    /// Whether the user's share does not limit it.
    pub is_beyond_share: bool,
}

impl Wanted {
    pub const ONE: Wanted = Wanted {
        count: 1,
        held: 0,
        is_beyond_share: false,
    };
}

#[derive(Debug)]
pub(crate) struct Waiter {
    /// Never refused.
    pub is_patient: bool,
    wanted: Wanted,
    pub state: Mutex<Waiting>,
}

#[derive(Debug)]
pub(crate) enum Waiting {
    For(Waker),
    Given,
    Refused,
    Over,
}

impl Waiter {
    pub fn new(waker: Waker, is_patient: bool, wanted: Wanted) -> Arc<Waiter> {
        Arc::new(Waiter {
            is_patient,
            wanted,
            state: Mutex::new(Waiting::For(waker)),
        })
    }

    fn end(&self, how: Waiting) {
        let before = std::mem::replace(&mut *self.state.lock(), how);
        if let Waiting::For(waker) = before {
            waker.wake();
        }
    }
}

impl Waiters {
    fn refusable(&self) -> usize {
        self.waiting.iter().filter(|w| !w.is_patient).count()
    }
}

/// Until when some count as slow.
#[derive(Debug, Default)]
pub(crate) struct Slow(HashMap<Arc<str>, Instant>);

impl Slow {
    pub fn contains(&self, name: &Arc<str>, now: Instant) -> bool {
        self.0.get(name).is_some_and(|until| now < *until)
    }

    pub fn note(&mut self, name: &Arc<str>, now: Instant) {
        if self.0.len() >= SLOW_MAX {
            self.0.retain(|_, until| now < *until);
        }
        if self.0.len() >= SLOW_MAX && !self.0.contains_key(name) {
            let first = self.0.iter().min_by_key(|(_, until)| **until);
            if let Some(first) = first.map(|(name, _)| name.clone()) {
                self.0.remove(&first);
            }
        }
        self.0.insert(name.clone(), now + SLOW_FOR);
    }
}

impl State {
    pub fn new(limits: &Limits) -> State {
        State {
            places: limits.places,
            of_user: Bound {
                places_max: limits.of_user,
                percent: limits.user_percent,
            },
            of_database: Bound {
                places_max: limits.of_database,
                percent: limits.database_percent,
            },
            used: 0,
            waiting: 0,
            patient: 0,
            shares: HashMap::new(),
            users: HashMap::new(),
            databases: HashMap::new(),
            given: 0,
            slow_users: Slow::default(),
            slow_databases: Slow::default(),
        }
    }

    /// The share with its totals, which are created for it.
    fn share(&mut self, share: &Share) -> (&mut Waiters, [&mut Total; 2]) {
        let given = self.given;
        let is_new = !self.shares.contains_key(share);
        let total = || Total {
            given,
            ..Total::default()
        };
        let user = self.users.entry(share.user.clone()).or_insert_with(total);
        let database = self.databases.entry(share.database.clone());
        let database = database.or_insert_with(total);
        for total in [&mut *user, &mut *database] {
            total.shares += usize::from(is_new);
        }
        let waiters = self.shares.entry(share.clone()).or_insert_with(|| Waiters {
            given,
            ..Waiters::default()
        });
        (waiters, [user, database])
    }

    pub fn somebody_waits(&self) -> bool {
        self.waiting + self.patient > 0
    }

    fn is_slow(&self, share: &Share, now: Instant) -> bool {
        self.slow_users.contains(&share.user, now)
            || self.slow_databases.contains(&share.database, now)
    }

    /// Notes that a place was held for long.
    pub fn note_slow(&mut self, share: &Share, now: Instant) {
        self.slow_users.note(&share.user, now);
        self.slow_databases.note(&share.database, now);
    }

    /// Returns whether a user waits who holds no more places than this one; it may be this one.
    pub fn poorer_waits(&self, share: &Share) -> bool {
        let used = |user: &Arc<str>| self.users.get(user).map_or(0, |total| total.used);
        let own = used(&share.user);
        let mut waiting = (self.shares.iter()).filter(|(_, waiters)| !waiters.waiting.is_empty());
        self.somebody_waits() && waiting.any(|(other, _)| used(&other.user) <= own)
    }

    /// Returns the number of places that slow users and databases hold together.
    fn used_by_slow(&self, now: Instant) -> usize {
        if self.slow_users.0.is_empty() && self.slow_databases.0.is_empty() {
            return 0;
        }
        let slow = self
            .shares
            .iter()
            .filter(|(share, waiters)| waiters.used > 0 && self.is_slow(share, now));
        slow.map(|(_, waiters)| waiters.used).sum()
    }

    /// Returns whether a user or a database may have these places besides those that it holds.
    fn may_have(&self, total: Option<&Total>, bound: Bound, wanted: Wanted) -> bool {
        let used = total.map_or(0, |total| total.used);
        let free = self.places.saturating_sub(self.used);
        // The last one of several is as a single one: those before it are held already.
        let before = wanted.count.saturating_sub(1);
        if wanted.count > free || used.saturating_add(before) >= bound.places_max {
            return false;
        }
        let is_limited = !wanted.is_beyond_share && used > wanted.held;
        let is_within =
            |percent| (used + before).saturating_mul(100) < (free - before).saturating_mul(percent);
        !is_limited || bound.percent.is_none_or(is_within)
    }

    /// Returns whether these places, which must be free, may be given to a share. Slow ones together
    /// leave one place to others.
    fn may_give(&self, share: &Share, wanted: Wanted, used_by_slow: usize, now: Instant) -> bool {
        let (user, database) = (&share.user, &share.database);
        self.may_have(self.users.get(user), self.of_user, wanted)
            && self.may_have(self.databases.get(database), self.of_database, wanted)
            && (used_by_slow + wanted.count < self.places || !self.is_slow(share, now))
    }

    fn take(&mut self, share: &Share, count: usize) {
        self.given += 1;
        self.used += count;
        let now = self.given;
        let (waiters, totals) = self.share(share);
        waiters.used += count;
        waiters.given = now;
        for total in totals {
            total.used += count;
            total.given = now;
        }
    }

    /// Takes places now; false when the caller has to wait.
    pub fn try_take(&mut self, share: &Share, wanted: Wanted) -> bool {
        let now = Instant::now();
        let may = self.may_give(share, wanted, self.used_by_slow(now), now);
        if may {
            self.take(share, wanted.count);
        }
        may
    }

    /// Gives free places to those that wait.
    pub fn serve(&mut self) {
        if !self.somebody_waits() {
            return;
        }
        let now = Instant::now();
        while self.used < self.places {
            let used_by_slow = self.used_by_slow(now);
            let next = self
                .shares
                .iter()
                .filter(|(share, waiters)| {
                    let first = waiters.waiting.front();
                    first.is_some_and(|f| self.may_give(share, f.wanted, used_by_slow, now))
                })
                .min_by_key(|(share, waiters)| self.turn(share, waiters))
                .map(|(share, _)| share.clone());
            let Some(share) = next else { return };
            let Some(waiter) = self.share(&share).0.waiting.pop_front() else {
                return;
            };
            self.count_out(&share, &waiter);
            self.take(&share, waiter.wanted.count);
            waiter.end(Waiting::Given);
        }
    }

    /// The smallest is next: whose user holds the fewest places, then in whose database other users
    /// hold the fewest, then who was served least recently. Places of the user itself in the
    /// database do not count twice: a user with many databases would always be next.
    fn turn(&self, share: &Share, waiters: &Waiters) -> [u64; 5] {
        let of = |total: Option<&Total>| total.map_or((0, 0), |t| (t.used as u64, t.given));
        let (of_user, user_given) = of(self.users.get(&share.user));
        let (of_database, _) = of(self.databases.get(&share.database));
        let own = waiters.used as u64;
        [of_user, of_database - own, user_given, own, waiters.given]
    }

    pub fn enqueue(&mut self, share: &Share, waiter: Arc<Waiter>) {
        let is_patient = waiter.is_patient;
        match is_patient {
            true => self.patient += 1,
            false => self.waiting += 1,
        }
        let (waiters, totals) = self.share(share);
        waiters.waiting.push_back(waiter);
        for total in totals {
            total.refusable += usize::from(!is_patient);
        }
    }

    fn count_out(&mut self, share: &Share, waiter: &Waiter) {
        match waiter.is_patient {
            true => self.patient -= 1,
            false => {
                self.waiting -= 1;
                for total in self.share(share).1 {
                    total.refusable -= 1;
                }
            }
        }
    }

    /// Removes a waiter that may have been served or refused already.
    pub fn dequeue(&mut self, share: &Share, waiter: &Arc<Waiter>) {
        let (waiters, _) = self.share(share);
        let before = waiters.waiting.len();
        waiters.waiting.retain(|other| !Arc::ptr_eq(other, waiter));
        if waiters.waiting.len() < before {
            self.count_out(share, waiter);
        }
    }

    /// Makes room for one more waiting caller; returns whether there is.
    pub fn make_room(&mut self, share: &Share, waiting_max: usize) -> bool {
        if self.waiting < waiting_max {
            return true;
        }
        let Some(loser) = self.loser(share) else {
            return false;
        };
        let (waiters, _) = self.share(&loser);
        let Some(at) = waiters.waiting.iter().rposition(|w| !w.is_patient) else {
            return false;
        };
        if let Some(waiter) = waiters.waiting.remove(at) {
            self.count_out(&loser, &waiter);
            waiter.end(Waiting::Refused);
        }
        self.forget_idle(&loser);
        true
    }

    /// Returns whose newest caller makes room for one of `share`: of the user with the most waiting
    /// callers, or of the database with the most, if its users have more than this one has.
    fn loser(&self, share: &Share) -> Option<Share> {
        let of_user = |user: &Arc<str>| self.users.get(user).map_or(0, |t| t.refusable);
        let of_database = |name: &Arc<str>| self.databases.get(name).map_or(0, |t| t.refusable);
        let (own, own_database) = (of_user(&share.user), of_database(&share.database));
        let most = |totals: &HashMap<Arc<str>, Total>| {
            let most = totals.iter().max_by_key(|(_, total)| total.refusable);
            most.map(|(name, total)| (name.clone(), total.refusable))
        };
        let longest = |is_candidate: &dyn Fn(&Share) -> bool| {
            let candidates = self.shares.iter().filter(|(other, _)| is_candidate(other));
            let longest = candidates.max_by_key(|(_, waiters)| waiters.refusable());
            longest.map(|(other, waiters)| (other.clone(), waiters.refusable()))
        };
        let (user, count) = most(&self.users)?;
        if count > own + 1 {
            return longest(&|other| other.user == user).map(|(loser, _)| loser);
        }
        let (database, count) = most(&self.databases)?;
        if count > own_database + 1 {
            let found = longest(&|other| other.database == database && of_user(&other.user) > own);
            if let Some((loser, 1..)) = found {
                return Some(loser);
            }
        }
        let own_share = self.shares.get(share).map_or(0, Waiters::refusable);
        let (loser, count) = longest(&|other| other.user == share.user)?;
        (count > own_share + 1).then_some(loser)
    }

    pub fn forget_idle(&mut self, share: &Share) {
        let idle = |waiters: &Waiters| waiters.used == 0 && waiters.waiting.is_empty();
        if !self.shares.get(share).is_some_and(idle) {
            return;
        }
        self.shares.remove(share);
        for (totals, name) in [
            (&mut self.users, &share.user),
            (&mut self.databases, &share.database),
        ] {
            if let Some(total) = totals.get_mut(name) {
                total.shares -= 1;
                if total.shares == 0 {
                    totals.remove(name);
                }
            }
        }
    }

    pub fn give_back(&mut self, share: &Share, count: usize) {
        self.used -= count;
        let (waiters, totals) = self.share(share);
        waiters.used -= count;
        for total in totals {
            total.used -= count;
        }
        self.serve();
        self.forget_idle(share);
    }
}
