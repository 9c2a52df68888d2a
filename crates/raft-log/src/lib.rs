//! The cluster's log in the nodes: Raft below [`cluster::Log`].
//!
//! Each slot is a Raft group. [`Core`] drives all groups of a node and does no I/O of its own: it
//! takes ticks, messages and appends, returns [`Effect`]s, and a [`Flush`] whenever something must
//! reach the disk. A [`LogDisk`] stores entries and states; [`EngineDisk`] uses raft-engine.
//! [`RaftLog`] runs a core in a thread and implements [`cluster::Log`].
//!
//! **Invariant: what must survive a crash is synced before it is promised.** Votes and confirmations
//! of entries leave the node in [`Core::end_flush`], which is called after the sync.
//!
//! **Invariant: an id of Raft belongs to a disk.** A node whose log disk was lost or replaced gets
//! another id, because its old one may have voted. So does one whose log disk forgot synced writes.

#![forbid(unsafe_code)]

mod codec;
mod disk;
mod driver;
mod engine_disk;
mod figures;
mod groups;
mod handle;
mod logger;
#[cfg(test)]
mod memory_disk;
mod message;
mod offsets;
mod options;
mod raft_codec;
mod state;
mod synced_files;
#[cfg(test)]
mod tests;
mod wire;

pub use codec::BUNDLE_BYTES_MAX;
pub use disk::{DiskError, GroupWrite, LogDisk, StoredGroup};
pub use driver::Transport;
pub use engine_disk::{DAMAGED, EngineDisk};
pub use figures::{LogFigures, SYNCED};
pub use groups::{Core, CoreError, Effect, Flush};
pub use handle::{Inlet, RaftLog, StartError};
pub use message::{
    AppendOutcome, AppendRequest, Asleep, FetchRequest, Fetched, FoundRecord, NodeMessage, Purpose,
};
pub use offsets::{Base, Offsets};
pub use options::{LogNode, Options, RaftId};
pub use state::GroupState;
pub use wire::DecodeError;
