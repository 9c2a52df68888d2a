//! Memory that responses take until they end: their parameters (selectors, ids, keys), and long
//! pieces that clients have not taken.
//!
//! Selectors and the like take room before the answer begins, or the request is refused. The rest
//! of a response is counted, and long responses wait to begin while there is no room.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use auth::{Origin, UserCtx};
use database::WorkOwner;
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use crate::errors::ApiError;

/// The first 16 KiB of a request's parameters are not counted.
pub const FREE_BYTES: u64 = 16 << 10;
/// How long a request waits for room before it is refused.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// Longest wait for memory of a long response that is about to begin.
const BEGIN_WAIT_MAX: Duration = Duration::from_secs(30);

/// However full the budget is, a user may have this part of a fair share, so that ordinary requests
/// of others continue.
const RESERVE_BYTES: u64 = 1 << 20;

/// Memory for answers, as one user sees it. Clones share it.
#[derive(Clone)]
pub struct Answers {
    pool: Arc<Pool>,
    /// The user; `None` for server admins, whose share is not limited.
    sharer: Option<Sharer>,
    /// The database that the request is about, as the hash of the path's first segment.
    database: u64,
}

/// A user, as the hash of a name or of an address.
type Sharer = u64;

struct Pool {
    budget_bytes: u64,
    state: Mutex<State>,
    freed: Notify,
    wait_max: Duration,
    begin_wait_max: Duration,
    hasher: RandomState,
}

#[derive(Default)]
struct State {
    used: u64,
    peak: u64,
    by_sharer: HashMap<Sharer, u64>,
}

impl State {
    fn add(&mut self, sharer: Option<Sharer>, bytes: u64) {
        self.used += bytes;
        self.peak = self.peak.max(self.used);
        if let Some(sharer) = sharer {
            *self.by_sharer.entry(sharer).or_default() += bytes;
        }
    }

    /// Returns whether a user may have this many more bytes. A user has at most as much as is free,
    /// so that there is always something left for the next; and never less than a share of the
    /// reserve, which all of them together have beyond the budget at most once.
    fn has_room(&self, budget_bytes: u64, sharer: Option<Sharer>, bytes: u64) -> bool {
        let Some(sharer) = sharer else {
            return self.used + bytes <= budget_bytes;
        };
        let own = self.by_sharer.get(&sharer).copied().unwrap_or(0);
        let others = self.used - own;
        let sharers = self.by_sharer.len() as u64 + 1;
        let reserve = RESERVE_BYTES.min(budget_bytes / 4 / sharers);
        own + bytes <= (budget_bytes.saturating_sub(others) / 2).max(reserve)
    }
}

/// Memory that an answer has, until it is dropped.
pub struct Held {
    pool: Arc<Pool>,
    sharer: Option<Sharer>,
    bytes: u64,
}

impl Answers {
    /// Creates a budget of this size.
    pub fn new(budget_bytes: usize) -> Answers {
        Answers {
            pool: Arc::new(Pool {
                budget_bytes: budget_bytes as u64,
                state: Mutex::default(),
                freed: Notify::new(),
                wait_max: WAIT_MAX,
                begin_wait_max: BEGIN_WAIT_MAX,
                hasher: RandomState::new(),
            }),
            sharer: None,
            database: 0,
        }
    }

    /// Returns the memory as a user has it: by name, and without a login by address. `database`: the path's first segment.
    pub fn of(&self, user: &UserCtx, peer: Option<IpAddr>, database: &[u8]) -> Answers {
        let sharer = match (&user.name, peer) {
            _ if user.is_admin() => None,
            (Some(name), _) => Some(self.pool.hasher.hash_one(name)),
            (None, peer) => Some(self.pool.hasher.hash_one(peer.map(Origin::from))),
        };
        Answers {
            pool: self.pool.clone(),
            sharer,
            database: self.pool.hasher.hash_one(database),
        }
    }

    /// The user, for shares of other memory; `None` for server admins, whose shares are not limited.
    pub fn sharer(&self) -> Option<u64> {
        self.sharer
    }

    /// Runs `work` on a thread with a lower priority, in the user's turn.
    ///
    /// # Errors
    /// 500 when it panics.
    pub async fn apart<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        self.start_apart(work)
            .await
            .map_err(ApiError::worker_failed)
    }

    /// Starts it; nothing is received when it panics.
    pub fn start_apart<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> oneshot::Receiver<T> {
        let owner = WorkOwner {
            user: self.sharer.unwrap_or(0),
            database: self.database,
        };
        database::apart(owner, work)
    }

    /// Returns the present and the largest memory of responses, in bytes.
    pub fn used_bytes(&self) -> (u64, u64) {
        let state = self.pool.state.lock();
        (state.used, state.peak)
    }

    /// Takes memory for a response. A user gets at most as much as stays free: half of the budget
    /// if there is no other user.
    ///
    /// # Errors
    /// 413 when it is more than a user can get, 503 when too little was freed in time.
    pub async fn take(&self, bytes: u64) -> Result<Held, ApiError> {
        let most = match self.sharer {
            Some(_) => self.pool.budget_bytes / 2,
            None => self.pool.budget_bytes,
        };
        if bytes > most {
            return Err(ApiError::too_large("half of [memory] answers", most));
        }
        let taken = self.wait(self.pool.wait_max, || self.try_take(bytes));
        taken.await.ok_or_else(|| {
            ApiError::busy(
                "no memory became free in time for the parameters of the request ([memory] answers)"
                    .into(),
            )
        })
    }

    fn try_take(&self, bytes: u64) -> Option<Held> {
        let mut state = self.pool.state.lock();
        if !state.has_room(self.pool.budget_bytes, self.sharer, bytes) {
            return None;
        }
        state.add(self.sharer, bytes);
        Some(self.held(bytes))
    }

    fn held(&self, bytes: u64) -> Held {
        Held {
            pool: self.pool.clone(),
            sharer: self.sharer,
            bytes,
        }
    }

    /// Counts bytes that an answer has.
    pub fn count(&self, bytes: u64) -> Held {
        self.pool.state.lock().add(self.sharer, bytes);
        self.held(bytes)
    }

    /// Waits until a long answer may begin: until the user has less than a share.
    ///
    /// # Errors
    /// 503 when there was no room in time.
    pub async fn admit(&self) -> Result<(), ApiError> {
        let has_room = || {
            let state = self.pool.state.lock();
            let has_room = state.has_room(self.pool.budget_bytes, self.sharer, 1);
            has_room.then_some(())
        };
        let admitted = self.wait(self.pool.begin_wait_max, has_room).await;
        admitted.ok_or_else(|| {
            ApiError::busy("no memory for the answer came free in time ([memory] answers)".into())
        })
    }

    /// Calls `attempt` until it succeeds, again whenever something came free.
    async fn wait<T>(&self, wait_max: Duration, attempt: impl Fn() -> Option<T>) -> Option<T> {
        if let Some(done) = attempt() {
            return Some(done);
        }
        let end = Instant::now() + wait_max;
        loop {
            let freed = self.pool.freed.notified();
            tokio::pin!(freed);
            freed.as_mut().enable();
            if let Some(done) = attempt() {
                return Some(done);
            }
            tokio::time::timeout_at(end, freed).await.ok()?;
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut state = self.pool.state.lock();
        state.used -= self.bytes;
        if let Some(sharer) = self.sharer
            && let Some(own) = state.by_sharer.get_mut(&sharer)
        {
            *own -= self.bytes;
            if *own == 0 {
                state.by_sharer.remove(&sharer);
            }
        }
        drop(state);
        self.pool.freed.notify_waiters();
    }
}

/// Returns the bytes that this thread has allocated and not freed: only differences of the value
/// have a meaning.
static OF_THREAD: OnceLock<fn() -> i64> = OnceLock::new();

/// Lets [`measured`] use the program's allocator.
pub fn measure_by(of_thread: fn() -> i64) {
    let _is_set = OF_THREAD.set(of_thread);
}

/// Runs some work, and returns the memory of its result in bytes: the work must free everything
/// else that it allocates, and nothing that it has not. Without an allocator that counts, the
/// result is `otherwise`.
pub fn measured<T>(otherwise: usize, work: impl FnOnce() -> T) -> (T, usize) {
    let Some(of_thread) = OF_THREAD.get() else {
        return (work(), otherwise);
    };
    let before = of_thread();
    let made = work();
    let bytes = usize::try_from(of_thread().wrapping_sub(before)).unwrap_or(0);
    (made, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// A budget whose requests are refused soon.
    fn impatient(budget_bytes: u64) -> Answers {
        let answers = Answers::new(budget_bytes as usize);
        let mut pool = Arc::into_inner(answers.pool).expect("only one");
        pool.wait_max = Duration::from_millis(10);
        pool.begin_wait_max = Duration::from_millis(10);
        Answers {
            pool: Arc::new(pool),
            sharer: None,
            database: 0,
        }
    }

    fn user(answers: &Answers, name: &str) -> Answers {
        let user = UserCtx {
            name: Some(name.to_owned()),
            roles: vec![],
        };
        answers.of(&user, None, b"")
    }

    fn status<T>(taken: Result<T, ApiError>) -> u16 {
        taken.map_or_else(|e| e.status, |_| 200)
    }

    #[tokio::test]
    async fn a_user_leaves_as_much_as_it_has() {
        let answers = impatient(100 * MIB);
        let (a, b) = (user(&answers, "a"), user(&answers, "b"));
        assert_eq!(status(a.take(50 * MIB + 1).await), 413);
        let first = a.take(30 * MIB).await.expect("room");
        let second = a.take(20 * MIB).await.expect("room");
        assert_eq!(status(a.take(1).await), 503);
        assert_eq!(status(a.admit().await), 503);
        let other = b.take(25 * MIB).await.expect("room of others");
        assert_eq!(status(b.take(1).await), 503);
        let strangers: Vec<Answers> = (1..=2)
            .map(|n| {
                answers.of(
                    &UserCtx::anonymous(),
                    Some(IpAddr::from([127, 0, 0, n])),
                    b"",
                )
            })
            .collect();
        let third = strangers[0].take(12 * MIB).await.expect("of an address");
        assert_eq!(status(strangers[1].admit().await), 200);
        assert_eq!(answers.used_bytes(), (87 * MIB, 87 * MIB));
        drop((first, second, other, third));
        assert_eq!(answers.used_bytes().0, 0);
        assert!(answers.pool.state.lock().by_sharer.is_empty());
    }

    #[tokio::test]
    async fn ordinary_requests_go_on_when_the_budget_is_full() {
        let answers = impatient(10 * MIB);
        let hostile = user(&answers, "a");
        let _full = hostile.count(20 * MIB);
        assert_eq!(status(hostile.take(1).await), 503);
        assert_eq!(status(hostile.admit().await), 503);
        let other = user(&answers, "b");
        assert_eq!(status(other.admit().await), 200);
        let _held = other.take(200 << 10).await.expect("of the reserve");
        assert_eq!(status(other.take(2 * MIB).await), 503);
        // However many there are, they have no more than a quarter of the budget beyond it.
        let others: Vec<Answers> = (0..10_000)
            .map(|n| user(&answers, &n.to_string()))
            .collect();
        let mut held = vec![];
        for other in &others {
            held.extend(other.try_take(64 << 10));
        }
        assert!(
            answers.used_bytes().0 < 23 * MIB,
            "{:?}",
            answers.used_bytes()
        );
    }

    #[tokio::test]
    async fn an_admin_alone_gets_all_room_and_more_is_refused() {
        let answers = impatient(10 * MIB);
        assert_eq!(status(answers.take(10 * MIB + 1).await), 413);
        let all = answers.take(10 * MIB).await.expect("it is alone");
        assert_eq!(status(answers.take(1).await), 503);
        assert_eq!(status(answers.admit().await), 503);
        drop(all);
        assert_eq!(status(answers.admit().await), 200);
    }

    #[tokio::test]
    async fn a_request_waits_for_room() {
        let answers = Answers::new(10 << 20);
        let first = answers.count(8 * MIB);
        let waiting = {
            let answers = answers.clone();
            tokio::spawn(async move { status(answers.take(4 * MIB).await) })
        };
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        drop(first);
        assert_eq!(waiting.await.expect("no panic"), 200);
    }
}
