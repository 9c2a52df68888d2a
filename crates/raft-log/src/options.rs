//! The identity of a log node, and limits.

use cluster::{NodeId, SlotNumber};

/// The id of a log node in its Raft groups. It belongs to the log's disk and not to the node: a disk
/// that was lost is replaced by one with another id. Never 0.
pub type RaftId = u64;

/// A log node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogNode {
    /// Its id in the groups.
    pub raft: RaftId,
    /// The node.
    pub node: NodeId,
}

/// The options of a log.
#[derive(Clone, Debug)]
pub struct Options {
    /// This node, with the id of its disk.
    pub me: LogNode,
    /// The number of the log: a log that was recreated after a loss has another number.
    pub log: u64,
    /// The number of this process: another one after each start, at random.
    pub origin: u64,
    /// The number of slots, without the control slot.
    pub slots: SlotNumber,
    /// The bytes that the log may occupy on this disk before it is trimmed.
    pub disk_bytes_max: u64,
}

impl Options {
    /// Returns whether there is such a slot.
    pub fn has_slot(&self, slot: SlotNumber) -> bool {
        slot < self.slots || slot == cluster::CONTROL
    }
}

/// Ticks in which an append is answered, whatever happens.
pub(crate) const APPEND_TICKS: u64 = 40;
/// Ticks for which a fetch waits for the next record.
pub(crate) const PARK_TICKS: u64 = 5;
/// Ticks after which an unanswered fetch from another node fails.
pub(crate) const FETCH_TICKS: u64 = 15;
/// Ticks after which a node that was not heard counts as silent.
pub(crate) const SILENT_TICKS: u64 = 10;
/// Ticks between beats to the other nodes.
pub(crate) const BEAT_TICKS: u64 = 2;
/// Ticks of a follower's sleep after a beat that confirmed it.
pub(crate) const SLEEP_TICKS: u64 = 5;
/// Ticks without work before a group sleeps.
pub(crate) const IDLE_TICKS: u64 = 20;
/// Ticks between writes of states that need no sync.
pub(crate) const STATE_TICKS: u64 = 10;
/// Ticks after which an unfinished flush stops the clock of the groups, so that others lead.
pub(crate) const STALL_TICKS: u64 = 20;
/// Ticks between Raft's heartbeats.
pub(crate) const HEARTBEAT_TICKS: usize = 2;
/// Ticks without a heartbeat before an election; at most twice as many less one.
pub(crate) const ELECTION_TICKS: usize = 6;
/// Bytes of entries in one message of Raft, beyond the first.
pub(crate) const MESSAGE_BYTES: u64 = 256 << 10;
/// Messages with entries that a follower need not have confirmed. With records of the maximum size
/// they stay below the queue of a connection.
pub(crate) const IN_FLIGHT_MAX: usize = 16;
/// Bytes of entries that are not committed; more are refused.
pub(crate) const UNCOMMITTED_BYTES_MAX: u64 = 64 << 20;
/// Bytes of records in one answer to a fetch, beyond the first.
pub(crate) const FETCH_BYTES: u64 = 512 << 10;
/// Bytes of recent entries that each group keeps in memory.
pub(crate) const RECENT_BYTES: usize = 512 << 10;
