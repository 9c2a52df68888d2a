//! Memory that answers take until they end: what they were requested with (selectors, ids, keys), and long pieces that clients
//! have not taken.
//!
//! Selectors and the like take room before the answer begins, or the request is refused. The rest of an answer is counted, and
//! answers that are long wait to begin while there is no room.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::errors::ApiError;

/// What an answer was requested with takes no room up to so many bytes.
pub const FREE_BYTES: u64 = 16 << 10;
/// How long a request waits for room before it is refused.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// The same of a long answer that is to begin.
const BEGIN_WAIT_MAX: Duration = Duration::from_secs(30);

/// Memory for answers, and who has it.
pub struct Answers {
    budget_bytes: u64,
    state: Mutex<State>,
    freed: Notify,
    wait_max: Duration,
    begin_wait_max: Duration,
}

#[derive(Default)]
struct State {
    used: u64,
    peak: u64,
    /// Room that users' requests took, by name; of those without a login by the empty name.
    by_user: HashMap<Box<str>, u64>,
}

impl State {
    fn add(&mut self, bytes: u64) {
        self.used += bytes;
        self.peak = self.peak.max(self.used);
    }
}

/// Memory that an answer has, until it is dropped.
pub struct Held {
    answers: Arc<Answers>,
    /// Whose request took it; `None` when it is counted only.
    user: Option<Box<str>>,
    bytes: u64,
}

impl Answers {
    /// A budget of so many bytes.
    pub fn new(budget_bytes: usize) -> Arc<Answers> {
        Arc::new(Answers {
            budget_bytes: budget_bytes as u64,
            state: Mutex::default(),
            freed: Notify::new(),
            wait_max: WAIT_MAX,
            begin_wait_max: BEGIN_WAIT_MAX,
        })
    }

    /// What answers take now, and the most that they took, in bytes.
    pub fn used_bytes(&self) -> (u64, u64) {
        let state = self.state.lock();
        (state.used, state.peak)
    }

    /// Takes room for what a request of this user is answered by. A user gets half of the budget; a request that is the user's
    /// only one may get all of it.
    ///
    /// # Errors
    /// 413 when it is more than the budget, 503 when no room came free in time.
    pub async fn take(self: &Arc<Self>, user: Option<&str>, bytes: u64) -> Result<Held, ApiError> {
        if bytes > self.budget_bytes {
            return Err(ApiError::too_large("[memory] answers", self.budget_bytes));
        }
        let user = user.unwrap_or_default();
        let taken = self.wait(self.wait_max, || self.try_take(user, bytes));
        taken.await.ok_or_else(|| {
            ApiError::busy(
                "no memory came free in time for what the request is answered by ([memory] answers)"
                    .into(),
            )
        })
    }

    fn try_take(self: &Arc<Self>, user: &str, bytes: u64) -> Option<Held> {
        let mut state = self.state.lock();
        let own = state.by_user.get(user).copied().unwrap_or(0);
        let has_share = own == 0 || own + bytes <= self.budget_bytes / 2;
        if state.used + bytes > self.budget_bytes || !has_share {
            return None;
        }
        state.add(bytes);
        *state.by_user.entry(user.into()).or_default() += bytes;
        Some(Held {
            answers: self.clone(),
            user: Some(user.into()),
            bytes,
        })
    }

    /// Counts bytes that an answer has.
    pub fn count(self: &Arc<Self>, bytes: u64) -> Held {
        self.state.lock().add(bytes);
        Held {
            answers: self.clone(),
            user: None,
            bytes,
        }
    }

    /// Waits until a long answer may begin.
    ///
    /// # Errors
    /// 503 when there was no room in time.
    pub async fn admit(&self) -> Result<(), ApiError> {
        let has_room = || (self.state.lock().used < self.budget_bytes).then_some(());
        let admitted = self.wait(self.begin_wait_max, has_room).await;
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
            let freed = self.freed.notified();
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
        let mut state = self.answers.state.lock();
        state.used -= self.bytes;
        if let Some(user) = &self.user
            && let Some(own) = state.by_user.get_mut(user)
        {
            *own -= self.bytes;
            if *own == 0 {
                state.by_user.remove(user);
            }
        }
        drop(state);
        self.answers.freed.notify_waiters();
    }
}

/// What this thread has allocated and not freed, in bytes: a number that only differences of count.
static OF_THREAD: OnceLock<fn() -> i64> = OnceLock::new();

/// Has [`measured`] ask the program's allocator.
pub fn measure_by(of_thread: fn() -> i64) {
    let _is_set = OF_THREAD.set(of_thread);
}

/// Does some work, and answers how many bytes what came of it takes: the work must free what else it allocates, and nothing
/// besides. Without an allocator that counts, it is taken for `otherwise`.
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
    fn impatient(budget_bytes: u64) -> Arc<Answers> {
        let mut answers = Arc::into_inner(Answers::new(budget_bytes as usize)).expect("only one");
        answers.wait_max = Duration::from_millis(10);
        answers.begin_wait_max = Duration::from_millis(10);
        Arc::new(answers)
    }

    fn status<T>(taken: Result<T, ApiError>) -> u16 {
        taken.map_or_else(|e| e.status, |_| 200)
    }

    #[tokio::test]
    async fn a_user_gets_half_of_the_room_and_others_the_rest() {
        let answers = impatient(100 * MIB);
        let first = answers.take(Some("a"), 30 * MIB).await.expect("room");
        let second = answers.take(Some("a"), 20 * MIB).await.expect("room");
        assert_eq!(status(answers.take(Some("a"), 1).await), 503);
        let other = answers.take(None, 50 * MIB).await.expect("room of others");
        assert_eq!(status(answers.take(Some("b"), 1).await), 503);
        assert_eq!(answers.used_bytes(), (100 * MIB, 100 * MIB));
        drop((first, second, other));
        assert_eq!(answers.used_bytes().0, 0);
        assert!(answers.state.lock().by_user.is_empty());
    }

    #[tokio::test]
    async fn one_request_alone_gets_all_room_and_more_is_refused() {
        let answers = impatient(10 * MIB);
        assert_eq!(status(answers.take(None, 10 * MIB + 1).await), 413);
        let all = answers.take(None, 10 * MIB).await.expect("it is alone");
        assert_eq!(status(answers.take(None, 1).await), 503);
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
            tokio::spawn(async move { status(answers.take(Some("a"), 4 * MIB).await) })
        };
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        drop(first);
        assert_eq!(waiting.await.expect("no panic"), 200);
    }
}
