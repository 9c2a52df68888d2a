//! Requests on their way into a slot: by this node's replica, or by another's when this one cannot.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use cluster::record::{Body, DatabaseWork, Request};
use cluster::slot::Wait;
use cluster::{CONTROL, SlotNumber};
use storage::SlotOutcome;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::members::Members;
use crate::replicas::Replicas;

/// Nobody waits longer for a write.
pub const WRITE_TIME_MAX: Duration = Duration::from_secs(20);
/// Another node is asked when this one has not managed by then.
const OWN_TIME_MAX: Duration = Duration::from_secs(4);
/// Each other node has so long.
const OTHERS_TIME_MAX: Duration = Duration::from_secs(5);
/// Requests of one gateway in one slot at a time: the slot remembers [`storage::SESSION_WINDOW`] of them.
const UNDER_WAY_MAX: usize = storage::SESSION_WINDOW as usize / 2;

/// What became of a request.
pub struct Done {
    /// Its outcome.
    pub outcome: SlotOutcome,
    /// As many nodes have it as were asked for.
    pub is_safe: bool,
    /// Nodes that are known to have it.
    pub copies: usize,
}

/// Why there is no outcome.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct NotDone(pub String);

/// One start of this node, as requests bear it.
pub struct Proposer {
    gateway: u64,
    lanes: Vec<Lane>,
    control: Lane,
    replicas: Arc<Replicas>,
    members: Arc<Members>,
}

struct Lane {
    counter: AtomicU64,
    room: Semaphore,
}

impl Lane {
    fn new() -> Lane {
        Lane {
            counter: AtomicU64::new(1),
            room: Semaphore::new(UNDER_WAY_MAX),
        }
    }
}

impl Proposer {
    /// Of a start with this random number.
    pub fn new(gateway: u64, replicas: Arc<Replicas>, members: Arc<Members>) -> Proposer {
        Proposer {
            gateway,
            lanes: (0..replicas.count()).map(|_| Lane::new()).collect(),
            control: Lane {
                // The control slot remembers the last one only.
                room: Semaphore::new(1),
                ..Lane::new()
            },
            replicas,
            members,
        }
    }

    fn lane(&self, slot: SlotNumber) -> &Lane {
        match slot {
            CONTROL => &self.control,
            slot => &self.lanes[usize::from(slot)],
        }
    }

    /// Has a slot do something once. `copies`: as many nodes are to have it; a majority when it is not said.
    ///
    /// # Errors
    /// When it is not known to be done.
    pub async fn propose(
        &self,
        slot: SlotNumber,
        work: Vec<DatabaseWork>,
        copies: Option<usize>,
    ) -> Result<Done, NotDone> {
        if self.members.has_left() {
            return Err(NotDone("this node has left the cluster".into()));
        }
        let lane = self.lane(slot);
        let closed = |_| NotDone("the server is shutting down".into());
        let _room = lane.room.acquire().await.map_err(closed)?;
        let request = Request {
            gateway: self.gateway,
            counter: lane.counter.fetch_add(1, Relaxed),
            databases: work,
        };
        let deadline = Instant::now() + WRITE_TIME_MAX;
        let mut why = String::new();
        while Instant::now() < deadline {
            match self.try_all(slot, &request, copies, deadline).await {
                Ok(done) => return Ok(done),
                Err(reason) => why = reason,
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Err(NotDone(format!("the write was not confirmed: {why}")))
    }

    async fn try_all(
        &self,
        slot: SlotNumber,
        request: &Request,
        copies: Option<usize>,
        deadline: Instant,
    ) -> Result<Done, String> {
        let own = self.replicas.get(slot);
        let others = self.members.live_others();
        let mut why = "this node has no replica of it".to_owned();
        if let Some(own) = own
            && (others.is_empty() || own.is_able())
        {
            let until = match others.is_empty() {
                true => deadline,
                false => deadline.min(Instant::now() + OWN_TIME_MAX),
            };
            let wait = Wait {
                copies,
                deadline: until,
            };
            match own.propose(request.clone(), wait).await {
                Ok(done) => return Ok(done),
                Err(reason) => why = reason,
            }
            own.note_unable();
        }
        for node in others {
            let until = deadline.min(Instant::now() + OTHERS_TIME_MAX);
            let asked = self.members.propose(node, slot, request, copies, until);
            match asked.await {
                Ok(done) => return Ok(done),
                Err(reason) => why = format!("{why}; node {node:x}: {reason}"),
            }
        }
        Err(why)
    }

    /// Appends something that is no request, and waits until it is there to stay.
    ///
    /// # Errors
    /// When that is not known.
    pub async fn append(&self, slot: SlotNumber, body: Body) -> Result<(), NotDone> {
        let deadline = Instant::now() + WRITE_TIME_MAX;
        let Some(own) = self.replicas.get(slot) else {
            return Err(NotDone("this node has no replica of it".into()));
        };
        let mut why = String::new();
        if own.is_able() {
            let until = deadline.min(Instant::now() + OWN_TIME_MAX);
            match own.append(body.clone(), until).await {
                Ok(()) => return Ok(()),
                Err(reason) => why = reason,
            }
        }
        for node in self.members.live_others() {
            let until = deadline.min(Instant::now() + OTHERS_TIME_MAX);
            match self.members.append(node, slot, &body, until).await {
                Ok(()) => return Ok(()),
                Err(reason) => why = format!("{why}; node {node:x}: {reason}"),
            }
        }
        Err(NotDone(why))
    }
}
