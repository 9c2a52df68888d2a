//! Copies of slots: how a replica that has diverged from the others takes over another's state.
//!
//! [`SlotCopy`] makes frames of a slot and its shards from one snapshot; [`SlotImport`] writes them
//! next to the existing state, under numbers of its own, and then replaces it. A copy contains what
//! replicas must have in common, including the outcomes of requests. The caller names the shards,
//! and contents are identified by their ids: **a copy contains nothing that has a meaning in one
//! store only**. Indexes are not copied, nor are contents without references.
//!
//! **A crash leaves the old state or the new one.** The numbers of the new shards are listed as
//! dropped before anything is written under them, so that a start finds and removes what an import
//! left. The batch that installs the new state removes them from that list.

mod export;
mod frame;
mod import;
mod install;
mod removal;
#[cfg(test)]
mod tests;

pub use export::SlotCopy;
pub(crate) use frame::decode_any;
pub use import::SlotImport;
pub use install::Install;
pub(crate) use install::Installation;
pub use removal::SlotRemoval;

use super::SlotNumber;
use crate::Error;
use crate::keyspace::Keyspace;

/// The spaces of a copy's rows, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Space {
    /// The slot's own, with their keys after the slot's number.
    Slot = 0,
    /// By id; like the following ones, with their keys after the shard's number.
    ById = 1,
    BySeq = 2,
    Bodies = 3,
    Superseded = 4,
    Local = 5,
    Purges = 6,
    Summary = 7,
    /// A content's id, with its length; then the id and a chunk's number (u32), with the chunk.
    Contents = 8,
    /// A content's id and a seq (u64): the body of the change with this seq references the content.
    References = 9,
}

/// Spaces of a shard.
const SHARD_SPACES: [Space; 9] = [
    Space::ById,
    Space::BySeq,
    Space::Bodies,
    Space::Superseded,
    Space::Local,
    Space::Purges,
    Space::Summary,
    Space::Contents,
    Space::References,
];

impl Space {
    fn decode(byte: u8) -> Option<Space> {
        let mut all = SHARD_SPACES.into_iter().chain([Space::Slot]);
        all.find(|space| *space as u8 == byte)
    }

    /// Returns the space that follows this one.
    fn next(self) -> Option<Space> {
        SHARD_SPACES.into_iter().find(|space| *space > self)
    }

    fn keyspace(self) -> Keyspace {
        match self {
            Space::Slot => Keyspace::Meta,
            Space::ById => Keyspace::ById,
            Space::BySeq => Keyspace::BySeq,
            Space::Bodies => Keyspace::Bodies,
            Space::Superseded => Keyspace::Superseded,
            Space::Local => Keyspace::Local,
            Space::Purges => Keyspace::Purges,
            Space::Summary => Keyspace::Summary,
            Space::Contents | Space::References => Keyspace::Attachments,
        }
    }
}

/// Totals of a copy, so that a truncated one is detected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    shards: u64,
    rows: u64,
    /// Length of the rows' values, in bytes.
    bytes: u64,
}

fn bad(slot: SlotNumber, reason: &'static str) -> Error {
    Error::Copy { slot, reason }
}
