//! Memory that all aggregates of a server hold together.
//!
//! Growing aggregates are ordered by age. When they reach three quarters of the budget together,
//! the younger ones are refused, and the oldest may grow up to the whole budget: so one succeeds
//! whenever several cannot.
//!
//! A user's aggregates hold at most as much as they leave free, together: half of the budget while no other user's hold any. A client that does
//! not read its response holds memory without a time limit, and must leave some for others.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// A budget that all aggregates of a server share.
#[derive(Debug)]
pub struct AggregateMemory {
    budget_bytes: usize,
    used_bytes: AtomicUsize,
    peak_bytes: AtomicUsize,
    /// Numbers of the aggregates that grow, by age.
    growing: Mutex<BTreeSet<u64>>,
    /// The least of them.
    oldest: AtomicU64,
    /// The number of the next one.
    next: AtomicU64,
    /// Bytes that the aggregates of a user hold.
    users: Mutex<HashMap<u64, Weak<AtomicUsize>>>,
}

impl AggregateMemory {
    /// Creates a budget.
    pub fn new(budget_bytes: usize) -> Arc<AggregateMemory> {
        Arc::new(AggregateMemory {
            budget_bytes,
            used_bytes: AtomicUsize::new(0),
            peak_bytes: AtomicUsize::new(0),
            growing: Mutex::default(),
            oldest: AtomicU64::new(0),
            next: AtomicU64::new(0),
            users: Mutex::default(),
        })
    }

    /// Returns the budget in bytes.
    pub fn budget_bytes(&self) -> usize {
        self.budget_bytes
    }

    /// Returns the memory that aggregates hold now, and its maximum so far, in bytes.
    pub fn used_bytes(&self) -> (usize, usize) {
        let used = self.used_bytes.load(Relaxed);
        (used, self.peak_bytes.load(Relaxed))
    }

    /// The total memory up to which all aggregates but the oldest may grow.
    fn shared_bytes(&self) -> usize {
        self.budget_bytes - self.budget_bytes / 4
    }

    /// Returns the counter of a user's aggregates, in bytes.
    fn of_user(&self, user: u64) -> Arc<AtomicUsize> {
        let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bytes) = users.get(&user).and_then(Weak::upgrade) {
            return bytes;
        }
        users.retain(|_, bytes| bytes.strong_count() > 0);
        let bytes = Arc::default();
        users.insert(user, Arc::downgrade(&bytes));
        bytes
    }

    fn grow(self: &Arc<Self>, of_user: Option<Arc<AtomicUsize>>) -> Arc<Growing> {
        let mut growing = self.growing();
        let number = self.next.fetch_add(1, Relaxed);
        growing.insert(number);
        self.note_oldest(&growing);
        Arc::new(Growing {
            memory: self.clone(),
            of_user,
            number,
            is_refused: AtomicBool::new(false),
        })
    }

    fn growing(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        self.growing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note_oldest(&self, growing: &BTreeSet<u64>) {
        if let Some(oldest) = growing.first() {
            self.oldest.store(*oldest, Relaxed);
        }
    }
}

/// An aggregate that grows, until all of its parts are dropped or have stopped growing.
#[derive(Debug)]
struct Growing {
    memory: Arc<AggregateMemory>,
    /// The counter of its user's aggregates, in bytes. `None`: the user has no share.
    of_user: Option<Arc<AtomicUsize>>,
    number: u64,
    /// Once it is, it is: parts of it may have ended.
    is_refused: AtomicBool,
}

impl Growing {
    fn is_refused(&self) -> bool {
        let memory = &self.memory;
        let used = memory.used_bytes.load(Relaxed);
        // Nearly always.
        if used <= memory.budget_bytes / 2 {
            return self.is_refused.load(Relaxed);
        }
        let own = self.of_user.as_ref().map_or(0, |own| own.load(Relaxed));
        let is_oldest = memory.oldest.load(Relaxed) == self.number;
        let is_beyond_all = used > memory.budget_bytes;
        let is_beyond_shared = used > memory.shared_bytes() && !is_oldest;
        if is_beyond_all || is_beyond_shared || own + used > memory.budget_bytes {
            self.is_refused.store(true, Relaxed);
        }
        self.is_refused.load(Relaxed)
    }
}

impl Drop for Growing {
    fn drop(&mut self) {
        let mut growing = self.memory.growing();
        growing.remove(&self.number);
        self.memory.note_oldest(&growing);
    }
}

/// Whether an aggregate may still grow, also for callers without its groups.
#[derive(Clone, Debug)]
pub struct Growth(Option<Arc<Growing>>);

impl Growth {
    /// Whether aggregates hold too much together for this one to grow. When they do, it stays so.
    pub fn is_refused(&self) -> bool {
        self.0.as_ref().is_some_and(|growing| growing.is_refused())
    }
}

/// The memory of one part of an aggregate, until it is dropped.
#[derive(Debug)]
pub(super) struct Share {
    memory: Option<Arc<AggregateMemory>>,
    of_user: Option<Arc<AtomicUsize>>,
    growth: Growth,
    bytes: usize,
}

impl Share {
    /// A share of nothing yet. `user`: who has a share of the budget; `None` for server admins.
    pub fn of(memory: Option<Arc<AggregateMemory>>, user: Option<u64>) -> Share {
        let of_user = memory.as_ref().zip(user);
        let of_user = of_user.map(|(memory, user)| memory.of_user(user));
        let growing = memory.as_ref().map(|memory| memory.grow(of_user.clone()));
        Share {
            growth: Growth(growing),
            of_user,
            memory,
            bytes: 0,
        }
    }

    /// A share of the same memory for another part of the same aggregate, of nothing yet.
    pub fn another(&self) -> Share {
        Share {
            memory: self.memory.clone(),
            of_user: self.of_user.clone(),
            growth: self.growth.clone(),
            bytes: 0,
        }
    }

    /// The memory, when this aggregate may not grow any more.
    pub fn refused(&self) -> Option<&AggregateMemory> {
        match self.growth.is_refused() {
            true => self.memory.as_deref(),
            false => None,
        }
    }

    pub fn growth(&self) -> &Growth {
        &self.growth
    }

    /// It does not grow any more, so another aggregate may be the oldest growing one.
    pub fn stop_growing(&mut self) {
        self.growth = Growth(None);
    }

    pub fn add(&mut self, bytes: usize) {
        let Some(memory) = &self.memory else {
            return;
        };
        self.bytes += bytes;
        if let Some(own) = &self.of_user {
            own.fetch_add(bytes, Relaxed);
        }
        let used = memory.used_bytes.fetch_add(bytes, Relaxed) + bytes;
        memory.peak_bytes.fetch_max(used, Relaxed);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        if let Some(memory) = &self.memory {
            memory.used_bytes.fetch_sub(self.bytes, Relaxed);
            if let Some(own) = &self.of_user {
                own.fetch_sub(self.bytes, Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_grows_on_when_others_are_refused() {
        let memory = AggregateMemory::new(100);
        let share = || Share::of(Some(memory.clone()), None);
        let (mut first, mut second) = (share(), share());
        first.add(40);
        second.add(35);
        assert!(first.refused().is_none() && second.refused().is_none());
        second.add(1);
        assert!(first.refused().is_none());
        assert!(second.refused().is_some());
        first.add(24);
        assert!(first.refused().is_none(), "up to the budget");
        drop(second);
        first.add(36);
        assert_eq!(memory.used_bytes(), (100, 100));
        assert!(first.refused().is_none(), "all of it");
        first.add(1);
        assert!(first.refused().is_some());
    }

    #[test]
    fn the_next_is_the_oldest_when_one_stops_growing() {
        let memory = AggregateMemory::new(100);
        let share = || Share::of(Some(memory.clone()), None);
        let (mut first, mut second, third) = (share(), share(), share());
        let part = first.another();
        first.add(70);
        second.add(10);
        assert!(third.refused().is_some());
        first.stop_growing();
        drop(part);
        assert!(second.refused().is_none(), "it holds 70, and does not grow");
        second.add(20);
        assert!(second.refused().is_none());
        drop(first);
        assert!(third.refused().is_some(), "it does not change again");
        assert!(share().refused().is_none());
    }

    #[test]
    fn a_user_leaves_as_much_free_as_its_aggregates_hold() {
        let memory = AggregateMemory::new(100);
        let share = |user| Share::of(Some(memory.clone()), user);
        let (mut first, mut second, mut other) = (share(Some(1)), share(Some(1)), share(Some(2)));
        first.add(40);
        first.stop_growing();
        second.add(10);
        assert!(second.refused().is_none());
        second.add(1);
        assert!(second.refused().is_some());
        other.add(20);
        assert!(other.refused().is_none());
        drop((first, second));
        assert!(share(Some(1)).refused().is_none());
        other.add(30);
        assert!(other.refused().is_none());
        assert_eq!(memory.used_bytes().0, 50);
        assert_eq!(memory.users.lock().unwrap().len(), 2);
        drop(other);
        drop(share(Some(3)));
        assert_eq!(memory.users.lock().unwrap().len(), 1);
    }
}
