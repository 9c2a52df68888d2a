//! Sockets to other servers: how many all replications may have, and how many those of one user.
//!
//! A socket either has a request under way or rests in the pool of a client. A request holds a permit of its lane from before it is
//! sent until its answer has been read. Each pool is limited to what it was granted when its client was built. A feed holds none: a
//! job has one feed, and the number of jobs that run at a time is limited.
//!
//! A task that holds a permit may wait for one of a later lane, never of the same or an earlier one: no two jobs can wait for each
//! other. The lanes are in that order.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Idle sockets that one client keeps at most,
const IDLE_MAX: usize = 32;
/// and a client for uploads and slow answers, which are rare.
const IDLE_UPLOADS_MAX: usize = 4;
/// A client is granted at most this part of the idle sockets that are left, so that the last ones have some.
const IDLE_PART: usize = 4;

/// What a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// Reads from a source, and its checkpoints.
    Source,
    /// A single revision with its attachments, which is read while other answers of the source wait.
    Streamed,
    /// Everything that is sent to a target.
    Target,
}

const LANES: [Lane; 3] = [Lane::Source, Lane::Streamed, Lane::Target];

impl Lane {
    /// Of so many sockets in all, those of the lane. An eighth is left for idle ones, and a quarter for feeds.
    fn part(self, sockets: usize) -> usize {
        match self {
            Lane::Source | Lane::Target => sockets / 4,
            Lane::Streamed => sockets / 8,
        }
    }
}

/// The sockets of all replications of a server.
pub struct Budget {
    sockets: usize,
    /// For everyone, by lane.
    all: [Arc<Semaphore>; 3],
    /// For users who are no server admins, by lane: three quarters.
    users: [Arc<Semaphore>; 3],
    shares: Mutex<HashMap<String, Weak<Share>>>,
    idle_left: Mutex<usize>,
}

/// What one user may have, by lane: half.
struct Share([Arc<Semaphore>; 3]);

fn lanes(sockets: usize, part: impl Fn(usize) -> usize) -> [Arc<Semaphore>; 3] {
    LANES.map(|lane| {
        let permits = part(lane.part(sockets)).clamp(1, Semaphore::MAX_PERMITS);
        Arc::new(Semaphore::new(permits))
    })
}

impl Budget {
    /// A budget of this many sockets.
    pub fn new(sockets: usize) -> Arc<Budget> {
        Arc::new(Budget {
            sockets,
            all: lanes(sockets, |n| n),
            users: lanes(sockets, |n| n - n / 4),
            shares: Mutex::default(),
            idle_left: Mutex::new(sockets / 8),
        })
    }

    /// The account of a user; of server admins without a name.
    pub fn account(self: &Arc<Self>, user: Option<&str>) -> Account {
        Account {
            budget: self.clone(),
            share: user.map(|user| self.share(user)),
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

    /// Idle sockets for the pool of a client, until the grant is dropped.
    pub fn grant_idle(self: &Arc<Self>, uploads: bool) -> Idle {
        let max = if uploads { IDLE_UPLOADS_MAX } else { IDLE_MAX };
        let mut left = self.idle_left.lock();
        let sockets = (*left / IDLE_PART).min(max);
        *left -= sockets;
        Idle {
            budget: self.clone(),
            sockets,
        }
    }

    /// Whether more than half of the idle sockets are granted.
    pub fn is_idle_short(&self) -> bool {
        *self.idle_left.lock() < self.sockets / 16
    }
}

/// Idle sockets that a pool may keep.
pub struct Idle {
    budget: Arc<Budget>,
    /// How many.
    pub sockets: usize,
}

impl Drop for Idle {
    fn drop(&mut self) {
        *self.budget.idle_left.lock() += self.sockets;
    }
}

/// Whom the sockets of a replication are counted for.
#[derive(Clone)]
pub struct Account {
    budget: Arc<Budget>,
    share: Option<Arc<Share>>,
}

impl Account {
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
        // Always in this order: a user who has all of a share keeps no others waiting.
        let (own, users) = (permit(own).await, permit(users).await);
        [own, users, permit(Some(&self.budget.all[at])).await]
    }
}

/// A permit. Nothing closes the semaphores.
async fn permit(of: Option<&Arc<Semaphore>>) -> Option<OwnedSemaphorePermit> {
    of?.clone().acquire_owned().await.ok()
}

type Permits = [Option<OwnedSemaphorePermit>; 3];

/// A request that may be under way.
pub struct Socket {
    permits: Permits,
    from: Option<(Account, Lane)>,
}

impl Socket {
    /// That of a feed, which is not counted.
    pub fn of_feed() -> Socket {
        Socket {
            permits: [None, None, None],
            from: None,
        }
    }

    /// Lets others have it for a time, until the request is repeated.
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
        let budget = Budget::new(128);
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
        let budget = Budget::new(1024);
        let grants: Vec<Idle> = (0..1000).map(|_| budget.grant_idle(false)).collect();
        let granted: usize = grants.iter().map(|idle| idle.sockets).sum();
        assert!(granted <= 128 && granted > 120, "{granted}");
        assert!(grants[0].sockets == 32 && budget.is_idle_short());
        drop(grants);
        assert!(!budget.is_idle_short());
    }
}
