//! Writes of a cluster's log: those of a slot, applied by the commit thread together with the
//! slot's position.
//!
//! A slot is a partition of the cluster's documents with a log of its own. Replicas that apply the
//! same log reach the same state, whatever each of them writes together, whatever numbers its
//! shards have, and whenever it compacts or restarts: the same outcomes, documents, sequences,
//! counters (except `superseded_rows`, which compaction changes) and digests. So nothing here
//! depends on clocks, on random numbers, or on the state of this machine. If the machine cannot
//! apply a write (the disk is full, a record cannot be read, a shard is gone), the whole write is
//! refused and the slot keeps its position.
//!
//! **A shard belongs to a slot for its whole life.** The first write of a slot to it starts its
//! digest ([`crate::Shard::digest`]), and it must have been empty then ([`Error::NotOfSlot`]). When
//! a single server becomes a cluster's first node, all its shards get their digests
//! ([`crate::Store::adopt`]).

mod adopt;
mod apply;
mod copy;
mod pending;
mod read;
pub(crate) mod rows;
mod sessions;

pub use crate::position::{Generation, Position, SlotNumber};
pub use adopt::Adoption;
pub use copy::{Install, SlotCopy, SlotImport, SlotRemoval};
pub(crate) use copy::{Installation, decode_any as decode_any_frame};
pub(crate) use pending::Pending;
pub use read::SlotRows;

use document::Rev;

use crate::Error;
use crate::commit::{ShardEdit, ShardPurge};
use crate::edit::Outcome;
use crate::limits::Limits;

/// Number of counters of a session, from its highest one down, whose outcomes are kept.
pub const SESSION_WINDOW: u64 = 1024;
/// Maximum number of gateways whose sessions a slot keeps.
pub const SESSIONS_MAX: u64 = 4096;

/// One or more records of a slot's log.
#[derive(Clone)]
pub struct SlotWrite {
    /// The slot.
    pub slot: SlotNumber,
    /// The position that it continues from; `None` when the slot is new here.
    pub from: Option<Position>,
    /// The position after it.
    pub to: Position,
    /// Rows of the slot's own, by the caller's keys: their new values, or their removal.
    pub state: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    /// The requests of the records, in order.
    pub requests: Vec<SlotRequest>,
}

/// The identity of a request: a repeat has the same session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Session {
    /// The gateway: one start of a node.
    pub gateway: u64,
    /// Its number among those of the gateway for the slot.
    pub counter: u64,
}

/// A request, applied completely or not at all.
#[derive(Clone)]
pub struct SlotRequest {
    /// Its identity.
    pub session: Session,
    /// Its work, in order.
    pub work: Vec<SlotWork>,
}

/// A part of a request.
#[derive(Clone)]
pub enum SlotWork {
    /// Edits of one database.
    Edits {
        /// In the order of application.
        edits: Vec<ShardEdit>,
        /// The limits of the database, from the record.
        limits: Limits,
    },
    /// Purges of one database.
    Purges {
        /// In the order of application.
        purges: Vec<ShardPurge>,
        /// The limits of the database, from the record.
        limits: Limits,
    },
    /// Refused by the caller, by the slot's own state and so alike at every replica: nothing is
    /// done. The code is kept as its outcome.
    Refused(u8),
}

/// The outcome of a part of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkOutcome {
    /// One for each edit.
    Edits(Vec<Outcome>),
    /// The revisions removed, for each purge.
    Purges(Vec<Vec<Rev>>),
    /// The code of the refusal.
    Refused(u8),
}

/// The outcome of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SlotOutcome {
    /// It was applied, now or when it first arrived; one outcome for each part of its work.
    Done(Vec<WorkOutcome>),
    /// Its counter is [`SESSION_WINDOW`] or more below the highest of its session: whether it was
    /// applied is unknown, and it was not now.
    Forgotten,
}

impl SlotOutcome {
    /// Encodes it, for other nodes.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            SlotOutcome::Done(work) => rows::encode_outcome(work),
            SlotOutcome::Forgotten => vec![],
        }
    }

    /// Decodes the output of [`SlotOutcome::encode`].
    ///
    /// # Errors
    /// [`Error::Corrupt`] for invalid bytes.
    pub fn decode(bytes: &[u8]) -> Result<SlotOutcome, Error> {
        match bytes {
            [] => Ok(SlotOutcome::Forgotten),
            bytes => rows::decode_outcome(bytes).map(SlotOutcome::Done),
        }
    }
}

impl SlotWrite {
    fn work(&self) -> impl Iterator<Item = &SlotWork> {
        self.requests.iter().flat_map(|request| &request.work)
    }

    /// Returns all edits of all requests.
    pub(crate) fn edits(&self) -> impl Iterator<Item = &ShardEdit> {
        self.work().flat_map(|work| match work {
            SlotWork::Edits { edits, .. } => &edits[..],
            SlotWork::Purges { .. } | SlotWork::Refused(_) => &[],
        })
    }

    /// Returns all purges of all requests.
    pub(crate) fn purges(&self) -> impl Iterator<Item = &ShardPurge> {
        self.work().flat_map(|work| match work {
            SlotWork::Edits { .. } | SlotWork::Refused(_) => &[],
            SlotWork::Purges { purges, .. } => &purges[..],
        })
    }

    /// Returns its approximate size in a batch.
    pub(crate) fn bytes(&self) -> usize {
        let edits: usize = self.edits().map(ShardEdit::bytes).sum();
        let row = |(key, value): &(Vec<u8>, Option<Vec<u8>>)| {
            key.len() + value.as_ref().map_or(0, Vec::len) + 64
        };
        let state: usize = self.state.iter().map(row).sum();
        64 + edits + 64 * self.purges().count() + state
    }
}
