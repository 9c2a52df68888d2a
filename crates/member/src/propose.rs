//! Proposes requests to a slot: by this node's replica, or by another's when this one cannot.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use cluster::record::{Body, DatabaseWork, EncodedRequest, Request};
use cluster::slot::Wait;
use cluster::{CONTROL, NodeId, SlotNumber};
use storage::SlotOutcome;
use tokio::sync::{AcquireError, Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout};

use crate::counters::{FORWARD_FAILURES, FORWARDED_WRITES};
use crate::members::Members;
use crate::replicas::Replicas;

/// Time limit of a write.
pub const WRITE_TIME_MAX: Duration = Duration::from_secs(20);
/// Time after which another node is tried.
const OWN_TIME_MAX: Duration = Duration::from_secs(4);
/// Time limit of each other node.
const OTHERS_TIME_MAX: Duration = Duration::from_secs(5);
/// Long requests have more time: the assumed throughput of a slow log, in bytes per millisecond.
const BYTES_A_MS: usize = 10_000;
/// Maximum number of requests of one gateway in flight in one slot: the slot remembers
/// [`storage::SESSION_WINDOW`] of them.
const UNDER_WAY_MAX: usize = storage::SESSION_WINDOW as usize / 2;

/// Maximum number of their bytes that are not on a majority's disks.
const UNDER_WAY_BYTES_MAX: usize = 64 << 20;
/// The unit in which bytes are counted.
const UNIT_BYTES: usize = 1 << 10;
/// Time after which a request that is still waiting is refused.
const ROOM_TIME_MAX: Duration = Duration::from_secs(10);

/// The result of a request.
pub struct ProposalResult {
    /// Its outcome.
    pub outcome: SlotOutcome,
    /// The required number of nodes has it.
    pub is_safe: bool,
    /// The number of nodes known to have it.
    pub copies: usize,
}

/// The reason why there is no outcome.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{text}")]
pub struct NoOutcome {
    /// A description for people.
    pub text: String,
    /// The kind of error for the client.
    pub cause: Cause,
    /// Nothing of it is in the log.
    pub is_sure: bool,
}

/// The kind of a reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Temporary, or specific to this node.
    NotNow,
    /// Too many writes are pending.
    Behind,
    /// The disk is full.
    Full,
}

impl NoOutcome {
    fn behind(text: &str) -> NoOutcome {
        NoOutcome {
            text: text.to_owned(),
            cause: Cause::Behind,
            is_sure: true,
        }
    }
}

impl From<String> for NoOutcome {
    fn from(text: String) -> NoOutcome {
        NoOutcome {
            text,
            cause: Cause::NotNow,
            is_sure: false,
        }
    }
}

impl From<&str> for NoOutcome {
    fn from(text: &str) -> NoOutcome {
        text.to_owned().into()
    }
}

impl From<NoOutcome> for database::Error {
    fn from(e: NoOutcome) -> database::Error {
        match e.cause {
            Cause::Full => database::Error::InsufficientStorage(e.text),
            Cause::NotNow | Cause::Behind => database::Error::Unavailable(e.text),
        }
    }
}

/// Combines the refusals of all nodes that were tried. `nodes` is the number of those that have the
/// slot.
fn together(refusals: &[NoOutcome], nodes: usize) -> NoOutcome {
    let count = |cause| refusals.iter().filter(|r| r.cause == cause).count();
    let (full, behind) = (count(Cause::Full), count(Cause::Behind));
    let texts: Vec<&str> = refusals.iter().map(|r| r.text.as_str()).collect();
    let is_sure = refusals.iter().all(|r| r.is_sure);
    NoOutcome {
        text: match texts.is_empty() {
            true => "no other node answers".to_owned(),
            false => texts.join("; "),
        },
        cause: match refusals.len() {
            _ if !is_sure => Cause::NotNow,
            _ if full * 2 > nodes => Cause::Full,
            all if full + behind == all && all * 2 > nodes => Cause::Behind,
            _ => Cause::NotNow,
        },
        is_sure,
    }
}

/// The proposer of one start of this node, which its requests name.
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
    /// In units of [`UNIT_BYTES`].
    bytes: Semaphore,
}

impl Lane {
    /// Waits until a request may be sent.
    async fn enter(&self, bytes: usize) -> Result<[SemaphorePermit<'_>; 2], NoOutcome> {
        let units = (bytes / UNIT_BYTES + 1).min(UNDER_WAY_BYTES_MAX / UNIT_BYTES);
        let enter = async {
            let room = self.room.acquire().await?;
            Ok([room, self.bytes.acquire_many(units as u32).await?])
        };
        let entered: Result<_, AcquireError> = match timeout(ROOM_TIME_MAX, enter).await {
            Ok(entered) => entered,
            Err(_) => return Err(NoOutcome::behind("too many writes wait for this slot")),
        };
        entered.map_err(|_| "the server is shutting down".into())
    }

    fn new() -> Lane {
        Lane {
            counter: AtomicU64::new(1),
            room: Semaphore::new(UNDER_WAY_MAX),
            bytes: Semaphore::new(UNDER_WAY_BYTES_MAX / UNIT_BYTES),
        }
    }
}

impl Proposer {
    /// Creates it for a start with this random number.
    pub fn new(gateway: u64, replicas: Arc<Replicas>, members: Arc<Members>) -> Proposer {
        Proposer {
            gateway,
            lanes: (0..replicas.count()).map(|_| Lane::new()).collect(),
            control: Lane {
                // The control slot remembers only the last one.
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

    /// Executes a request in a slot once. `copies` is the number of nodes that must have it; `None`
    /// for a majority. Also returns the encoded request.
    ///
    /// # Errors
    /// It is not known to be done.
    pub async fn propose(
        &self,
        slot: SlotNumber,
        work: Vec<DatabaseWork>,
        copies: Option<usize>,
    ) -> Result<(ProposalResult, Bytes), NoOutcome> {
        self.propose_rewriting((slot, 0), work, copies).await
    }

    /// Executes a request in a slot once, which rewrites about this many bytes of the store.
    /// Otherwise like [`Proposer::propose`].
    ///
    /// # Errors
    /// It is not known to be done.
    pub async fn propose_rewriting(
        &self,
        (slot, stored_bytes): (SlotNumber, usize),
        work: Vec<DatabaseWork>,
        copies: Option<usize>,
    ) -> Result<(ProposalResult, Bytes), NoOutcome> {
        if self.members.has_left() {
            return Err("this node has left the cluster".into());
        }
        let lane = self.lane(slot);
        let _room = lane
            .enter(work.iter().map(DatabaseWork::bytes).sum())
            .await?;
        let request = Request {
            gateway: self.gateway,
            counter: lane.counter.fetch_add(1, Relaxed),
            databases: work,
        };
        let encoded = EncodedRequest {
            stored_bytes,
            ..request.encoded()
        };
        drop(request);
        let bytes = encoded.bytes.clone();
        let longer = Duration::from_millis((bytes.len() / BYTES_A_MS) as u64);
        let deadline = Instant::now() + WRITE_TIME_MAX + 2 * longer;
        let (mut why, mut is_sure) = (String::new(), true);
        let mut of_few = None;
        while Instant::now() < deadline {
            match self.try_all(slot, encoded.clone(), copies, deadline).await {
                // Cluster-wide changes are not left half done: after a broker died, the others may
                // take some seconds to notice.
                Ok(done) if slot == CONTROL && done.copies * 2 <= self.control_nodes() => {
                    of_few = Some(done);
                }
                Ok(done) => return Ok((done, bytes)),
                // Nothing of it is in any log, and another attempt would fail alike.
                Err(refused) if is_sure && refused.cause != Cause::NotNow => return Err(refused),
                Err(refused) => {
                    is_sure &= refused.is_sure;
                    why = refused.text;
                }
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        match of_few {
            Some(done) => Ok((done, bytes)),
            None => Err(format!("the write was not confirmed: {why}").into()),
        }
    }

    /// Returns the number of nodes of which most must have a cluster-wide change: the members that are
    /// replicas. One that joins is not yet, and one that leaves does not count.
    fn control_nodes(&self) -> usize {
        let members = self.members.count();
        let replicas = self.replicas.get(CONTROL);
        let replicas = replicas.map(|replica| replica.status().members.len());
        let known = replicas.filter(|count| *count > 0);
        known.map_or(members, |count| count.min(members))
    }

    async fn try_all(
        &self,
        slot: SlotNumber,
        request: EncodedRequest,
        copies: Option<usize>,
        deadline: Instant,
    ) -> Result<ProposalResult, NoOutcome> {
        let longer = Duration::from_millis((request.bytes.len() / BYTES_A_MS) as u64);
        let own = self.replicas.get(slot);
        let others = self.members.live_others_for(slot);
        let mut refused = vec![];
        if let Some(own) = own
            && (others.is_empty() || own.is_able())
        {
            let until = match others.is_empty() {
                true => deadline,
                false => deadline.min(Instant::now() + OWN_TIME_MAX + longer),
            };
            let wait = Wait {
                copies,
                deadline: until,
            };
            match own.propose(request.clone(), wait).await {
                Ok(done) => return Ok(done),
                Err(e) => refused.push(e),
            }
            own.note_unable();
        } else if let Some(own) = own {
            refused.push(own.why_unable());
        }
        let mut left = others;
        while let Some(node) = self.members.ready(&left).await {
            left.retain(|other| *other != node);
            let until = deadline.min(Instant::now() + OTHERS_TIME_MAX + longer);
            let request = request.clone();
            let asked = self.members.propose(node, slot, request, copies, until);
            FORWARDED_WRITES.count();
            match asked.await {
                Ok(done) => return Ok(done),
                Err(e) => {
                    FORWARD_FAILURES.count();
                    refused.push(of_node(node, e));
                }
            }
        }
        Err(together(&refused, self.members.wanted_count(slot)))
    }

    /// Appends a record that is not a request, and waits until it is stable.
    ///
    /// # Errors
    /// That is not known.
    pub async fn append(&self, slot: SlotNumber, body: Body) -> Result<(), NoOutcome> {
        let deadline = Instant::now() + WRITE_TIME_MAX;
        let mut refused = vec![];
        let own = self.replicas.get(slot);
        if let Some(own) = own.filter(|own| own.is_able()) {
            let until = deadline.min(Instant::now() + OWN_TIME_MAX);
            match own.append(body.clone(), until).await {
                Ok(()) => return Ok(()),
                Err(e) => refused.push(e),
            }
        } else if let Some(own) = own {
            refused.push(own.why_unable());
        }
        let mut left = self.members.live_others_for(slot);
        while let Some(node) = self.members.ready(&left).await {
            left.retain(|other| *other != node);
            let until = deadline.min(Instant::now() + OTHERS_TIME_MAX);
            FORWARDED_WRITES.count();
            match self.members.append(node, slot, &body, until).await {
                Ok(()) => return Ok(()),
                Err(e) => {
                    FORWARD_FAILURES.count();
                    refused.push(of_node(node, e));
                }
            }
        }
        Err(together(&refused, self.members.wanted_count(slot)))
    }
}

fn of_node(node: NodeId, e: NoOutcome) -> NoOutcome {
    NoOutcome {
        text: format!("node {node:x}: {}", e.text),
        ..e
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_has_a_reason_even_if_no_node_was_tried() {
        let none = together(&[], 3);
        assert_eq!(none.text, "no other node answers");
        assert!(none.is_sure && none.cause == Cause::NotNow);
        let some = together(&[NoOutcome::behind("a"), "b".into()], 3);
        assert_eq!(some.text, "a; b");
        assert!(!some.is_sure && some.cause == Cause::NotNow);
    }
}
