//! The state of a queue: holders, waiting callers, and who is next.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::Limits;

/// Time for which an owner counts as slow.
const SLOW_FOR: Duration = Duration::from_secs(60);
/// Slow owners that are remembered; of more, those that were slow last.
const SLOW_MAX: usize = 1024;

#[derive(Debug)]
pub(crate) struct State {
    pub places: usize,
    of_one: usize,
    share_percent: Option<usize>,
    pub used: usize,
    /// Number of waiting callers that may be refused.
    pub waiting: usize,
    /// Number of callers waiting patiently.
    pub patient: usize,
    pub owners: HashMap<Arc<str>, Owner>,
    /// Counts places that were given.
    given: u64,
    /// Until when an owner counts as slow.
    slow: HashMap<Arc<str>, Instant>,
}

#[derive(Debug, Default)]
pub(crate) struct Owner {
    pub used: usize,
    pub waiting: VecDeque<Arc<Waiter>>,
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
    /// Whether the owner's share does not limit it.
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

impl State {
    pub fn new(limits: &Limits) -> State {
        State {
            places: limits.places,
            of_one: limits.of_one,
            share_percent: limits.share_percent,
            used: 0,
            waiting: 0,
            patient: 0,
            owners: HashMap::new(),
            given: 0,
            slow: HashMap::new(),
        }
    }

    pub fn owner(&mut self, name: &Arc<str>) -> &mut Owner {
        let given = self.given;
        self.owners.entry(name.clone()).or_insert_with(|| Owner {
            given,
            ..Owner::default()
        })
    }

    pub fn somebody_waits(&self) -> bool {
        self.waiting + self.patient > 0
    }

    pub fn is_slow(&self, name: &Arc<str>, now: Instant) -> bool {
        self.slow.get(name).is_some_and(|until| now < *until)
    }

    /// Returns whether an owner waits that holds no more places than this one; it may be this one.
    pub fn poorer_waits(&self, name: &Arc<str>) -> bool {
        let used = self.owners.get(name).map_or(0, |owner| owner.used);
        let mut waiting = (self.owners.values()).filter(|owner| !owner.waiting.is_empty());
        self.somebody_waits() && waiting.any(|owner| owner.used <= used)
    }

    /// Returns whether an owner that holds `used` places may have these, which must be free.
    fn may_have(&self, name: &Arc<str>, used: usize, wanted: Wanted, now: Instant) -> bool {
        let free = self.places.saturating_sub(self.used);
        // The last one of several is as a single one: what is before it is held already.
        let before = wanted.count.saturating_sub(1);
        if wanted.count > free || used.saturating_add(before) >= self.of_one {
            return false;
        }
        let is_limited = !wanted.is_beyond_share && used > wanted.held;
        if let Some(percent) = self.share_percent
            && is_limited
            && (used + before).saturating_mul(100) >= (free - before).saturating_mul(percent)
        {
            return false;
        }
        if self.slow.is_empty() || !self.is_slow(name, now) {
            return true;
        }
        let slow = self
            .owners
            .iter()
            .filter(|(name, _)| self.is_slow(name, now));
        slow.map(|(_, owner)| owner.used).sum::<usize>() + wanted.count < self.places
    }

    pub fn note_slow(&mut self, name: &Arc<str>, now: Instant) {
        if self.slow.len() >= SLOW_MAX {
            self.slow.retain(|_, until| now < *until);
        }
        if self.slow.len() >= SLOW_MAX && !self.slow.contains_key(name) {
            let first = self.slow.iter().min_by_key(|(_, until)| **until);
            if let Some(first) = first.map(|(name, _)| name.clone()) {
                self.slow.remove(&first);
            }
        }
        self.slow.insert(name.clone(), now + SLOW_FOR);
    }

    fn take(&mut self, name: &Arc<str>, count: usize) {
        self.given += 1;
        self.used += count;
        let given = self.given;
        let owner = self.owner(name);
        owner.used += count;
        owner.given = given;
    }

    /// Takes places now; false when the owner has to wait.
    pub fn try_take(&mut self, name: &Arc<str>, wanted: Wanted) -> bool {
        let used = self.owners.get(name).map_or(0, |owner| owner.used);
        let may = self.may_have(name, used, wanted, Instant::now());
        if may {
            self.take(name, wanted.count);
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
            let next = self
                .owners
                .iter()
                .filter(|(name, owner)| {
                    let first = owner.waiting.front();
                    first.is_some_and(|first| self.may_have(name, owner.used, first.wanted, now))
                })
                .min_by_key(|(_, owner)| (owner.used, owner.given))
                .map(|(name, _)| name.clone());
            let Some(name) = next else { return };
            let Some(waiter) = self.owner(&name).waiting.pop_front() else {
                return;
            };
            self.count_out(&waiter);
            self.take(&name, waiter.wanted.count);
            waiter.end(Waiting::Given);
        }
    }

    pub fn enqueue(&mut self, name: &Arc<str>, waiter: Arc<Waiter>) {
        match waiter.is_patient {
            true => self.patient += 1,
            false => self.waiting += 1,
        }
        self.owner(name).waiting.push_back(waiter);
    }

    fn count_out(&mut self, waiter: &Waiter) {
        match waiter.is_patient {
            true => self.patient -= 1,
            false => self.waiting -= 1,
        }
    }

    /// Removes a waiter that may have been served or refused already.
    pub fn dequeue(&mut self, name: &Arc<str>, waiter: &Arc<Waiter>) {
        let owner = self.owner(name);
        let before = owner.waiting.len();
        owner.waiting.retain(|other| !Arc::ptr_eq(other, waiter));
        if owner.waiting.len() < before {
            self.count_out(waiter);
        }
    }

    /// Makes room for one more waiting caller; returns whether there is.
    pub fn make_room(&mut self, name: &Arc<str>, waiting_max: usize) -> bool {
        if self.waiting < waiting_max {
            return true;
        }
        let refusable = |owner: &Owner| owner.waiting.iter().filter(|w| !w.is_patient).count();
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
        let Some(at) = owner.waiting.iter().rposition(|w| !w.is_patient) else {
            return false;
        };
        if let Some(waiter) = owner.waiting.remove(at) {
            self.waiting -= 1;
            waiter.end(Waiting::Refused);
        }
        true
    }

    pub fn forget_idle(&mut self, name: &Arc<str>) {
        let idle = |owner: &Owner| owner.used == 0 && owner.waiting.is_empty();
        if self.owners.get(name).is_some_and(idle) {
            self.owners.remove(name);
        }
    }

    pub fn give_back(&mut self, name: &Arc<str>, count: usize) {
        self.used -= count;
        self.owner(name).used -= count;
        self.serve();
        self.forget_idle(name);
    }
}
