//! Limits the sockets to other servers, over all replications and per user.
//!
//! A socket either has a request in flight or is idle in the pool of a client. A request holds a
//! permit of its lane from before it is sent until its response has been read. Each pool is limited
//! to the grant that its client was built with. A feed holds no permit: a job has one feed, and the
//! number of running jobs is limited.
//!
//! A task that holds a permit may wait for one of a later lane, never of the same or an earlier
//! one, so jobs cannot deadlock. The lanes are declared in that order.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use fair_queue::Queue;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::long_responses::{self, ResponseOwner};

/// Idle sockets that one client keeps at most,
const IDLE_MAX: usize = 32;
/// Maximum number of idle sockets of a client for uploads and slow responses, which are rare.
const IDLE_UPLOADS_MAX: usize = 4;
/// A client is granted at most one in this number of the remaining idle sockets, so that later
/// clients get some.
const IDLE_PART: usize = 4;

/// The purpose of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// Reads from a source, and writes of its checkpoint.
    Source,
    /// Reads of a single revision with its attachments, while other responses of the source are
    /// pending.
    Streamed,
    /// All requests to a target.
    Target,
}

const LANES: [Lane; 3] = [Lane::Source, Lane::Streamed, Lane::Target];

impl Lane {
    /// Returns the lane's share of all sockets. An eighth is left for idle ones, and a quarter for
    /// feeds.
    fn part(self, sockets: usize) -> usize {
        match self {
            Lane::Source | Lane::Target => sockets / 4,
            Lane::Streamed => sockets / 8,
        }
    }
}

/// The socket budget of all replications of a server.
pub struct Budget {
    sockets: usize,
    /// For all users, by lane.
    all: [Arc<Semaphore>; 3],
    /// For users who are not server admins, by lane: three quarters.
    users: [Arc<Semaphore>; 3],
    shares: Mutex<HashMap<String, Weak<Share>>>,
    idle_left: Mutex<usize>,
    /// The queue of long responses.
    long_answers: Arc<Queue>,
}

/// The share of one user, by lane: half.
struct Share([Arc<Semaphore>; 3]);

fn lanes(sockets: usize, part: impl Fn(usize) -> usize) -> [Arc<Semaphore>; 3] {
    LANES.map(|lane| {
        let permits = part(lane.part(sockets)).clamp(1, Semaphore::MAX_PERMITS);
        Arc::new(Semaphore::new(permits))
    })
}

impl Budget {
    /// A budget of this many sockets, with this many bytes for long answers.
    pub fn new(sockets: usize, answer_bytes: u64) -> Arc<Budget> {
        Arc::new(Budget {
            sockets,
            all: lanes(sockets, |n| n),
            users: lanes(sockets, |n| n - n / 4),
            shares: Mutex::default(),
            idle_left: Mutex::new(sockets / 8),
            long_answers: long_responses::places(answer_bytes),
        })
    }

    /// Returns the account of a user; `None` for server admins.
    pub fn account(self: &Arc<Self>, user: Option<&str>) -> Account {
        Account {
            budget: self.clone(),
            share: user.map(|user| self.share(user)),
            owner: user.unwrap_or_default().into(),
        }
    }

    fn share(&self, user: &str) -> Arc<Share> {
        let mut shares = self.shares.lock();
        if let Some(share) = shares.get(user).and_then(Weak::upgrade) {
            return share;
        }
        shares.retain(|_, share| share.strong_count() > 0);
        let share = Arc::new(Share(lanes(self.sockets, |n| n / 2)));
        shares.insert(user.to_owned(), Arc::downgrade(&share));
        share
    }

    /// Grants idle sockets to the pool of a client, until the grant is dropped.
    pub fn grant_idle(self: &Arc<Self>, uploads: bool) -> IdleSockets {
        let max = if uploads { IDLE_UPLOADS_MAX } else { IDLE_MAX };
        let mut left = self.idle_left.lock();
        let sockets = (*left / IDLE_PART).min(max);
        *left -= sockets;
        IdleSockets {
            budget: self.clone(),
            sockets,
        }
    }

    /// Returns whether more than half of the idle sockets are granted.
    pub fn is_idle_short(&self) -> bool {
        *self.idle_left.lock() < self.sockets / 16
    }
}

/// A grant of idle sockets for a pool.
pub struct IdleSockets {
    budget: Arc<Budget>,
    /// The number of sockets.
    pub sockets: usize,
}

impl Drop for IdleSockets {
    fn drop(&mut self) {
        *self.budget.idle_left.lock() += self.sockets;
    }
}

/// The account that a replication's sockets are charged to.
#[derive(Clone)]
pub struct Account {
    budget: Arc<Budget>,
    share: Option<Arc<Share>>,
    /// The user, or nothing.
    owner: fair_queue::Share,
}

impl Account {
    /// Counts the long answers of its requests, whose rows have at most this number of bytes.
    pub fn long_answers(&self, row_bytes_max: usize) -> ResponseOwner {
        ResponseOwner {
            places: self.budget.long_answers.clone(),
            owner: self.owner.clone(),
            row_bytes_max,
        }
    }

    /// Waits until another request may be under way.
    pub async fn socket(&self, lane: Lane) -> Socket {
        Socket {
            permits: self.permits(lane).await,
            from: Some((self.clone(), lane)),
        }
    }

    async fn permits(&self, lane: Lane) -> Permits {
        let at = lane as usize;
        let own = self.share.as_ref().map(|share| &share.0[at]);
        let users = self.share.as_ref().map(|_| &self.budget.users[at]);
        // Always in this order, so that a user who has used up a share does not block others.
        let (own, users) = (permit(own).await, permit(users).await);
        [own, users, permit(Some(&self.budget.all[at])).await]
    }
}

/// Acquires a permit. The semaphores are never closed.
async fn permit(of: Option<&Arc<Semaphore>>) -> Option<OwnedSemaphorePermit> {
    of?.clone().acquire_owned().await.ok()
}

type Permits = [Option<OwnedSemaphorePermit>; 3];

/// The permits of a request.
pub struct Socket {
    permits: Permits,
    from: Option<(Account, Lane)>,
}

impl Socket {
    /// Returns an uncounted permit, for a feed.
    pub fn of_feed() -> Socket {
        Socket {
            permits: [None, None, None],
            from: None,
        }
    }

    /// Releases the permits for a time, until the request is retried.
    pub async fn rest(&mut self, time: Duration) {
        self.permits = [None, None, None];
        tokio::time::sleep(time).await;
        if let Some((account, lane)) = &self.from {
            self.permits = account.permits(*lane).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    fn take(account: &Account, lane: Lane) -> Vec<Socket> {
        std::iter::from_fn(|| account.socket(lane).now_or_never()).collect()
    }

    #[test]
    fn a_user_has_half_of_a_lane_users_three_quarters_and_admins_the_rest() {
        let budget = Budget::new(128, 0);
        let [eve, mallory] = ["eve", "mallory"].map(|user| budget.account(Some(user)));
        let first = take(&eve, Lane::Source);
        assert_eq!(first.len(), 16);
        // Another replication of the same user.
        let again = budget.account(Some("eve"));
        assert_eq!(take(&again, Lane::Source).len(), 0);
        assert_eq!(take(&again, Lane::Target).len(), 16);
        let second = take(&mallory, Lane::Source);
        assert_eq!(second.len(), 8);
        assert_eq!(take(&budget.account(None), Lane::Source).len(), 8);
        drop(first);
        assert_eq!(take(&again, Lane::Source).len(), 16);
    }

    #[test]
    fn lanes_idle_sockets_and_feeds_add_up() {
        for sockets in (64..600).chain([16_384]) {
            let lanes: usize = LANES.iter().map(|lane| lane.part(sockets)).sum();
            assert!(lanes + sockets / 8 + sockets / 4 <= sockets);
        }
        let budget = Budget::new(1024, 0);
        let grants: Vec<IdleSockets> = (0..1000).map(|_| budget.grant_idle(false)).collect();
        let granted: usize = grants.iter().map(|idle| idle.sockets).sum();
        assert!(granted <= 128 && granted > 120, "{granted}");
        assert!(grants[0].sockets == 32 && budget.is_idle_short());
        drop(grants);
        assert!(!budget.is_idle_short());
    }
}
