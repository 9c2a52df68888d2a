//! Figures of a node's log.

use std::collections::BTreeSet;

use cluster::SlotNumber;
use telemetry::Durations;

use crate::options::LogNode;

/// Times of writes to the log's disk, with their syncs, of this process.
pub static SYNCED: Durations = Durations::new();

/// Figures of a node's log, at most a second old.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogFigures {
    /// The log nodes that the node knew then.
    pub log_nodes: Vec<LogNode>,
    /// Groups that this node leads.
    pub led: BTreeSet<SlotNumber>,
    /// Groups that this node leads, and whose members are not the log nodes yet.
    pub unsettled: BTreeSet<SlotNumber>,
    /// Groups of this node without a leader that it knows.
    pub leaderless: BTreeSet<SlotNumber>,
    /// Groups that cannot continue on this node, with the reasons.
    pub halted: Vec<(SlotNumber, String)>,
    /// Bytes on disk.
    pub bytes: u64,
}
