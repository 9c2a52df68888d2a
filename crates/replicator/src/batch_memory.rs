//! Memory of changes and documents on their way, of all jobs. It is the part of `[memory]
//! replications` that selections leave.
//!
//! There are two pools. A batch takes memory for its changes while it is read, and keeps it until a
//! worker has finished it. A portion of documents takes memory while it is gathered, and keeps it
//! until it is written. A batch or portion that gets no more memory ends before the row that does
//! not fit; only an empty one waits. So jobs cannot deadlock:
//!
//! 1. A task that waits for memory of changes holds neither that nor anything below.
//! 2. A task that waits for memory of documents may hold memory of changes and a connection to the
//!    source, no memory of documents. A portion whose reader waits for anything else is handed over
//!    after a second.
//! 3. The place of a long response (`db/long_responses.rs`) and a connection to the target come
//!    last. A task that has them waits for other servers only, never for memory.
//!
//! The memory of one user is at most what stays free for others. Of several users that wait, the
//! one that holds the least is next.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::selections::Selections;

/// Batches and portions up to this many bytes take no memory of a pool: most of continuous jobs.
const FREE_BYTES: u64 = 4 << 10;
/// Selections leave batches at least this part of the budget.
const PART_MIN: u64 = 4;
/// A grant is at most this part of a pool. A longer document, which only a small pool has none for,
/// counts as this.
const GRANT_PART: u64 = 2;

/// The memory of all jobs.
pub struct BatchMemory {
    changes: Arc<Pool>,
    documents: Arc<Pool>,
    usage: Arc<Usage>,
}

/// The accounts of a job.
#[derive(Clone)]
pub struct JobMemory {
    pub changes: Account,
    pub documents: Account,
}

/// The use of both pools, in bytes.
#[derive(Default)]
struct Usage {
    used: AtomicU64,
    /// With the selections.
    peak: AtomicU64,
}

impl BatchMemory {
    /// Memory of `budget_bytes`, less what `selections` use.
    pub fn new(selections: &Arc<Selections>, budget_bytes: u64) -> BatchMemory {
        let usage = Arc::<Usage>::default();
        let pool = || {
            Arc::new(Pool {
                budget_bytes,
                selections: selections.clone(),
                usage: usage.clone(),
                state: Mutex::default(),
            })
        };
        BatchMemory {
            changes: pool(),
            documents: pool(),
            usage: usage.clone(),
        }
    }

    /// Returns the accounts of a user's job; the name is empty for server admins.
    pub fn of(&self, user: &str) -> JobMemory {
        let owner: Arc<str> = user.into();
        let account = |pool: &Arc<Pool>| Account {
            pool: pool.clone(),
            owner: owner.clone(),
        };
        JobMemory {
            changes: account(&self.changes),
            documents: account(&self.documents),
        }
    }

    /// Returns the current use, and the peak of it together with that of selections, in bytes.
    pub fn used_bytes(&self) -> (u64, u64) {
        (self.usage.used.load(Relaxed), self.usage.peak.load(Relaxed))
    }
}

/// Memory of changes, or of documents.
struct Pool {
    budget_bytes: u64,
    selections: Arc<Selections>,
    usage: Arc<Usage>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    used: u64,
    owners: HashMap<Arc<str>, Owner>,
    /// Counts those that waited.
    arrivals: u64,
}

#[derive(Default)]
struct Owner {
    used: u64,
    waiting: VecDeque<Waiter>,
}

struct Waiter {
    bytes: u64,
    arrival: u64,
    granted: oneshot::Sender<Grant>,
}

impl State {
    /// An owner gets at most as much as stays free. A grant fits into an unused pool, whatever its
    /// size, so that one batch always continues.
    fn fits(&self, own: u64, bytes: u64, bytes_max: u64) -> bool {
        let free = bytes_max.saturating_sub(self.used);
        let for_own = bytes_max.saturating_sub(self.used - own) / 2;
        self.used == 0 || bytes <= free && own + bytes <= for_own
    }

    fn own(&self, owner: &Arc<str>) -> u64 {
        self.owners.get(owner).map_or(0, |owner| owner.used)
    }

    /// Returns the owner whose first waiter is next.
    fn next(&self, bytes_max: u64) -> Option<Arc<str>> {
        let mut waiting: Vec<(u64, &Waiter, &Arc<str>)> = self
            .owners
            .iter()
            .filter_map(|(name, owner)| Some((owner.used, owner.waiting.front()?, name)))
            .collect();
        waiting.sort_unstable_by_key(|(own, waiter, _)| (*own, waiter.arrival));
        for (own, waiter, name) in waiting {
            if waiter.granted.is_closed() || self.fits(own, waiter.bytes, bytes_max) {
                return Some(name.clone());
            }
            // Others would take what becomes free again and again.
            if own == 0 {
                return None;
            }
        }
        None
    }

    fn forget_idle(&mut self, name: &Arc<str>) {
        let is_idle = |owner: &Owner| owner.used == 0 && owner.waiting.is_empty();
        if self.owners.get(name).is_some_and(is_idle) {
            self.owners.remove(name);
        }
    }
}

impl Pool {
    fn bytes_max(&self) -> u64 {
        let left = self
            .budget_bytes
            .saturating_sub(self.selections.used_bytes().0);
        left.max(self.budget_bytes / PART_MIN) / 2
    }

    fn add(&self, state: &mut State, owner: &Arc<str>, bytes: u64) {
        state.used += bytes;
        state.owners.entry(owner.clone()).or_default().used += bytes;
        let used = self.usage.used.fetch_add(bytes, Relaxed) + bytes;
        let all = used + self.selections.used_bytes().0;
        self.usage.peak.fetch_max(all, Relaxed);
    }

    fn subtract(&self, state: &mut State, owner: &Arc<str>, bytes: u64) {
        state.used -= bytes;
        if let Some(owner) = state.owners.get_mut(owner) {
            owner.used -= bytes;
        }
        self.usage.used.fetch_sub(bytes, Relaxed);
        state.forget_idle(owner);
    }

    /// Serves those that wait.
    fn serve(self: &Arc<Self>, state: &mut State) {
        let bytes_max = self.bytes_max();
        while let Some(name) = state.next(bytes_max) {
            let waiting = state.owners.get_mut(&name).map(|owner| &mut owner.waiting);
            let Some(waiter) = waiting.and_then(VecDeque::pop_front) else {
                return;
            };
            if waiter.granted.is_closed() {
                state.forget_idle(&name);
                continue;
            }
            let bytes = waiter.bytes;
            self.add(state, &name, bytes);
            let grant = Grant {
                pool: self.clone(),
                owner: name.clone(),
                bytes,
            };
            // A waiter that has gone. Its grant must not be dropped with bytes under the lock.
            if let Err(mut unclaimed) = waiter.granted.send(grant) {
                unclaimed.bytes = 0;
                self.subtract(state, &name, bytes);
            }
        }
    }
}

/// The account of a user in a pool.
#[derive(Clone)]
pub struct Account {
    pool: Arc<Pool>,
    owner: Arc<str>,
}

impl Account {
    /// Returns a grant of no memory.
    pub fn empty(&self) -> Grant {
        Grant {
            pool: self.pool.clone(),
            owner: self.owner.clone(),
            bytes: 0,
        }
    }

    /// Waits for memory, at most half of the pool. The caller must hold no grant of the pool.
    pub async fn take(&self, bytes: u64) -> Grant {
        if bytes <= FREE_BYTES {
            return self.empty();
        }
        let (granted, grant) = oneshot::channel();
        {
            let mut state = self.pool.state.lock();
            let arrival = state.arrivals;
            state.arrivals += 1;
            let waiter = Waiter {
                bytes: bytes.min((self.pool.bytes_max() / GRANT_PART).max(FREE_BYTES)),
                arrival,
                granted,
            };
            let owner = state.owners.entry(self.owner.clone()).or_default();
            owner.waiting.push_back(waiter);
            self.pool.serve(&mut state);
        }
        // The sender is in the pool until it has sent.
        grant.await.unwrap_or_else(|_| self.empty())
    }
}

/// Memory of a batch or a portion, until it is dropped.
pub struct Grant {
    pool: Arc<Pool>,
    owner: Arc<str>,
    bytes: u64,
}

impl Grant {
    /// Enlarges the grant to `bytes` if there is as much, and no other task waits. Returns whether it is
    /// as large.
    pub fn try_cover(&mut self, bytes: u64) -> bool {
        if bytes <= self.bytes.max(FREE_BYTES) {
            return true;
        }
        // Not for each row.
        let more = bytes.next_multiple_of(FREE_BYTES) - self.bytes;
        let mut state = self.pool.state.lock();
        let is_waited_for = state.owners.values().any(|owner| !owner.waiting.is_empty());
        let own = state.own(&self.owner);
        if is_waited_for || !state.fits(own, more, self.pool.bytes_max()) {
            return false;
        }
        self.pool.add(&mut state, &self.owner, more);
        self.bytes += more;
        true
    }

    /// Returns whether another task waits for memory of the pool.
    pub fn is_waited_for(&self) -> bool {
        let state = self.pool.state.lock();
        state.owners.values().any(|owner| !owner.waiting.is_empty())
    }

    /// Frees the bytes beyond `bytes`.
    pub fn shrink_to(&mut self, bytes: u64) {
        let excess = self.bytes.saturating_sub(bytes);
        self.bytes -= excess;
        self.free(excess);
    }

    fn free(&self, bytes: u64) {
        if bytes > 0 {
            let mut state = self.pool.state.lock();
            self.pool.subtract(&mut state, &self.owner, bytes);
            self.pool.serve(&mut state);
        }
    }
}

impl std::fmt::Debug for Grant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.bytes)
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        self.free(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::{Pin, pin};
    use std::task::{Context, Poll, Waker};

    use futures_util::FutureExt as _;

    use super::*;

    const KIB: u64 = 1 << 10;

    /// The accounts of users in a pool of 1,024 KiB.
    fn accounts<const N: usize>(users: [&str; N]) -> (BatchMemory, [Account; N]) {
        let memory = BatchMemory::new(&Arc::default(), 2048 * KIB);
        let accounts = users.map(|user| memory.of(user).changes);
        (memory, accounts)
    }

    fn take(account: &Account, bytes: u64) -> Option<Grant> {
        account.take(bytes).now_or_never()
    }

    fn poll(waiting: &mut Pin<&mut impl Future<Output = Grant>>) -> Option<Grant> {
        match waiting
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
        {
            Poll::Ready(grant) => Some(grant),
            Poll::Pending => None,
        }
    }

    #[test]
    fn a_user_gets_as_much_as_stays_free_and_all_is_returned() {
        let (memory, [a, b]) = accounts(["a", "b"]);
        let first: Vec<Grant> = std::iter::from_fn(|| take(&a, 100 * KIB)).collect();
        let second: Vec<Grant> = std::iter::from_fn(|| take(&b, 100 * KIB)).collect();
        assert_eq!((first.len(), second.len()), (5, 2));
        assert_eq!(memory.used_bytes(), (700 * KIB, 700 * KIB));
        drop((first, second));
        assert_eq!(memory.used_bytes(), (0, 700 * KIB));
        assert!(a.pool.state.lock().owners.is_empty());
    }

    #[test]
    fn a_batch_grows_until_others_wait() {
        let (_memory, [a, b]) = accounts(["a", "b"]);
        let mut small = a.empty();
        assert!(small.try_cover(FREE_BYTES));
        assert_eq!(small.bytes, 0);
        assert!(small.try_cover(400 * KIB));
        assert!(!small.try_cover(600 * KIB));
        let held: Vec<Grant> = std::iter::from_fn(|| take(&b, 100 * KIB)).collect();
        let mut waiting = pin!(b.take(250 * KIB));
        assert!(poll(&mut waiting).is_none());
        assert!(!small.try_cover(450 * KIB));
        small.shrink_to(100 * KIB);
        drop(held);
        assert_eq!(poll(&mut waiting).map(|grant| grant.bytes), Some(250 * KIB));
        assert!(small.try_cover(300 * KIB));
    }

    #[test]
    fn the_user_who_holds_least_is_next_and_a_large_grant_is_not_overtaken() {
        let (_memory, [a, b, c]) = accounts(["a", "b", "c"]);
        let mut first: Vec<Grant> = std::iter::from_fn(|| take(&a, 100 * KIB)).collect();
        let mut second: Vec<Grant> = std::iter::from_fn(|| take(&b, 100 * KIB)).collect();
        let mut more = pin!(a.take(100 * KIB));
        let mut large = pin!(c.take(200 * KIB));
        let mut other = pin!(b.take(100 * KIB));
        assert!(poll(&mut more).is_none() && poll(&mut large).is_none());
        assert!(poll(&mut other).is_none());
        first.pop();
        // 400 KiB are free, of which a new user gets half.
        let grant = poll(&mut large).expect("the new user is first");
        assert!(poll(&mut more).is_none() && poll(&mut other).is_none());
        drop((first, grant));
        assert!(poll(&mut other).is_some());
        second.clear();
        assert!(poll(&mut more).is_some());
    }

    #[test]
    fn a_grant_larger_than_the_pool_waits_for_a_part_of_it() {
        let (_memory, [a, b]) = accounts(["a", "b"]);
        let large = take(&a, 1 << 30).expect("it is alone");
        assert_eq!(large.bytes, 512 * KIB);
        assert!(take(&b, 200 * KIB).is_some());
        assert!(!large.is_waited_for());
        let mut other = pin!(b.take(1 << 30));
        assert!(poll(&mut other).is_none() && large.is_waited_for());
        drop(large);
        assert_eq!(poll(&mut other).map(|grant| grant.bytes), Some(512 * KIB));
    }

    #[test]
    fn those_who_have_gone_get_nothing() {
        let (memory, [a, b]) = accounts(["a", "b"]);
        let held: Vec<Grant> = std::iter::from_fn(|| take(&a, 100 * KIB)).collect();
        {
            let mut gone = pin!(a.take(100 * KIB));
            assert!(poll(&mut gone).is_none());
        }
        {
            let own = take(&b, 250 * KIB);
            assert!(own.is_some());
            let mut gone = pin!(b.take(250 * KIB));
            assert!(poll(&mut gone).is_none());
            // It is granted, and never received.
            drop(own);
            assert_eq!(memory.used_bytes().0, 750 * KIB);
        }
        assert_eq!(memory.used_bytes().0, 500 * KIB);
        drop(held);
        assert_eq!(memory.used_bytes().0, 0);
        assert!(a.pool.state.lock().owners.is_empty());
    }

    #[test]
    fn without_a_budget_one_continues_at_a_time() {
        let memory = BatchMemory::new(&Arc::default(), 0);
        let account = memory.of("a").documents;
        let grant = take(&account, 100 * KIB);
        assert!(grant.is_some() && take(&account, 100 * KIB).is_none());
        drop(grant);
        assert!(take(&account, 100 * KIB).is_some());
    }
}
