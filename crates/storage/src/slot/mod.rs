//! What a cluster's log brings: the writes of a slot, applied by the commit thread together with the slot's position.
//!
//! A slot is a part of the cluster's documents with a log of its own. Replicas that apply the same log come to the same state,
//! whatever each of them writes together, whatever numbers its shards have, and whenever it compacts or starts again: the same
//! outcomes, documents, sequences, counters (but `superseded_rows`, which compaction changes) and digests. So nothing here is
//! decided by clocks, by random numbers, or by the state of this machine. Where the machine is in the way (the disk is full, a record
//! cannot be read, a shard is gone), the whole write is refused and the slot stays where it was.
//!
//! **A shard belongs to a slot for its whole life.** The first write of a slot to it begins its digest ([`crate::Shard::digest`]), and
//! it must have been empty then ([`Error::NotOfSlot`]).

mod apply;
mod copy;
mod pending;
mod read;
pub(crate) mod rows;
mod sessions;

pub use copy::{Install, SlotCopy, SlotImport};
pub(crate) use copy::{Installation, decode_any as decode_any_frame};
pub(crate) use pending::Pending;
pub use read::SlotRows;

use document::Rev;

use crate::Error;
use crate::commit::{ShardEdit, ShardPurge};
use crate::edit::Outcome;
use crate::limits::Limits;

/// A slot's number in its cluster.
pub type SlotNumber = u16;

/// Outcomes are kept of the counters of a session from its highest one so far down, so many.
pub const SESSION_WINDOW: u64 = 1024;
/// Gateways of which a slot keeps a session.
pub const SESSIONS_MAX: u64 = 4096;

/// Which log a slot has: another one begins when the last was lost. Ordered by number, then by whom.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Generation {
    /// Counts up.
    pub number: u64,
    /// Who began it.
    pub by: u64,
}

/// How far a slot's log is applied here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Position {
    /// The log.
    pub generation: Generation,
    /// Offset of the first record that is not applied.
    pub next_offset: u64,
    /// The log's own epoch at the last record applied.
    pub leader_epoch: i32,
    /// Hash over all records applied.
    pub chain: [u8; 16],
}

/// A position, for people.
pub(crate) fn described(position: Option<&Position>) -> String {
    let Some(p) = position else {
        return "its beginning".to_owned();
    };
    let Generation { number, by } = p.generation;
    let chain = u128::from_be_bytes(p.chain);
    format!(
        "offset {} of generation {number} by {by:x} (epoch {}, chain {chain:032x})",
        p.next_offset, p.leader_epoch
    )
}

/// One or more records of a slot's log.
#[derive(Clone)]
pub struct SlotWrite {
    /// The slot.
    pub slot: SlotNumber,
    /// The position that it goes on from; `None` when the slot is new here.
    pub from: Option<Position>,
    /// The position with it.
    pub to: Position,
    /// Rows of the slot's own, by keys of the caller's: their new values, or their removal.
    pub state: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    /// What the records ask for, in their order.
    pub requests: Vec<SlotRequest>,
}

/// Which request it is: a repeat has the same session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Session {
    /// Who asks: one start of a node's gateway.
    pub gateway: u64,
    /// Its number among those of the gateway for the slot.
    pub counter: u64,
}

/// What one request does, all of it or nothing.
#[derive(Clone)]
pub struct SlotRequest {
    /// Which request it is.
    pub session: Session,
    /// What is to be done, in this order.
    pub work: Vec<SlotWork>,
}

/// A part of a request.
#[derive(Clone)]
pub enum SlotWork {
    /// Edits of one database.
    Edits {
        /// In the order in which they are applied.
        edits: Vec<ShardEdit>,
        /// Those of the database, as the record has them.
        limits: Limits,
    },
    /// Purges of one database.
    Purges {
        /// In the order in which they are applied.
        purges: Vec<ShardPurge>,
        /// Those of the database, as the record has them.
        limits: Limits,
    },
    /// What whoever applies the record refuses, by the slot's own state and so the same at every replica: nothing is done. The code is
    /// kept as its outcome.
    Refused(u8),
}

/// What became of a part of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkOutcome {
    /// One for each edit.
    Edits(Vec<Outcome>),
    /// The revisions removed, for each purge.
    Purges(Vec<Vec<Rev>>),
    /// The code that came with the refusal.
    Refused(u8),
}

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SlotOutcome {
    /// It was applied, now or the first time that it came; one for each part of its work.
    Done(Vec<WorkOutcome>),
    /// Its counter is [`SESSION_WINDOW`] or more below the highest of its session: nobody knows whether it was applied, and it was not now.
    Forgotten,
}

impl SlotOutcome {
    /// As bytes, for other nodes.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            SlotOutcome::Done(work) => rows::encode_outcome(work),
            SlotOutcome::Forgotten => vec![],
        }
    }

    /// Reads what [`SlotOutcome::encode`] made.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when it is none.
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

    /// All edits of all requests.
    pub(crate) fn edits(&self) -> impl Iterator<Item = &ShardEdit> {
        self.work().flat_map(|work| match work {
            SlotWork::Edits { edits, .. } => &edits[..],
            SlotWork::Purges { .. } | SlotWork::Refused(_) => &[],
        })
    }

    /// All purges of all requests.
    pub(crate) fn purges(&self) -> impl Iterator<Item = &ShardPurge> {
        self.work().flat_map(|work| match work {
            SlotWork::Edits { .. } | SlotWork::Refused(_) => &[],
            SlotWork::Purges { purges, .. } => &purges[..],
        })
    }

    /// About how much it takes in a batch.
    pub(crate) fn bytes(&self) -> usize {
        let edits: usize = self.edits().map(ShardEdit::bytes).sum();
        let row = |(key, value): &(Vec<u8>, Option<Vec<u8>>)| {
            key.len() + value.as_ref().map_or(0, Vec::len) + 64
        };
        let state: usize = self.state.iter().map(row).sum();
        64 + edits + 64 * self.purges().count() + state
    }
}
