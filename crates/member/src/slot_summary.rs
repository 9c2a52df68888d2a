//! The status of the slots of a node, for `settee cluster status`: the replica's own status, combined
//! with the node's view of the cluster.

use std::collections::BTreeSet;

use cluster::slot::SlotStatus;
use cluster::{NodeId, SlotNumber};
use serde::Serialize;

use crate::control::placement_entry::SlotPlacement;
use crate::figures::slot_name;

/// Why a node that is not a member serves nothing.
pub(crate) const NOT_A_MEMBER: &str = "This node is not a member of the cluster: it was removed, or has not read the cluster's state yet. Stop it if it was removed.";

/// A node that lost its disk of the log cannot know whether others lost theirs, too.
const LOST_DISK: &str = "this node lost its part of the log, and the nodes that keep the log have not replaced it: if this persists, most of them lost theirs";

/// The status of a slot on this node.
#[derive(Clone, Debug, Serialize)]
pub struct SlotSummary {
    /// Its number, `control` for the control slot.
    pub slot: String,
    /// Offset of the next record.
    pub next_offset: u64,
    /// A majority has everything before this offset.
    pub stable: u64,
    /// The end of the log.
    pub log_end: Option<u64>,
    /// The generation's number.
    pub generation: u64,
    /// Hash over all applied records.
    pub chain: String,
    /// The nodes of its replicas.
    pub members: Vec<String>,
    /// The nodes that it should have.
    pub wanted: Vec<String>,
    /// The nodes that copy it.
    pub learners: Vec<String>,
    /// It accepts writes.
    pub takes_writes: bool,
    /// Why it does not, or the last error.
    pub reason: Option<String>,
}

impl SlotSummary {
    pub(crate) fn of(
        slot: SlotNumber,
        status: &SlotStatus,
        placement: &SlotPlacement,
        view: &NodeView,
    ) -> SlotSummary {
        let obstacle = view.obstacle(slot, status);
        let hex = |id: &NodeId| format!("{id:x}");
        let learners = placement.learners.iter().map(|learner| &learner.node);
        SlotSummary {
            slot: slot_name(slot),
            next_offset: status.position.next_offset,
            stable: status.stable,
            log_end: status.log_end,
            generation: status.position.generation.number,
            chain: data_encoding::HEXLOWER.encode(&status.position.chain),
            members: status.members.iter().map(hex).collect(),
            wanted: placement.wanted.iter().map(hex).collect(),
            learners: learners.map(hex).collect(),
            takes_writes: obstacle.is_none(),
            reason: obstacle.or_else(|| status.error.is_some().then(|| status.reason())),
        }
    }
}

/// A node's view of its cluster. The replica of a slot accepts writes also while no other node
/// answers: they fail later.
#[derive(Debug, Default)]
pub(crate) struct NodeView {
    /// It is not among the members.
    pub has_left: bool,
    /// It does not reach the log.
    pub is_log_lost: bool,
    /// Its disk is not the one that is to keep its part of the log: that was lost.
    pub is_log_disk_lost: bool,
    /// Slots whose log has no leader that it knows.
    pub leaderless: BTreeSet<SlotNumber>,
    /// The nodes that it reaches, with itself.
    pub reached: BTreeSet<NodeId>,
}

impl NodeView {
    /// Returns why a slot takes no writes on this node.
    fn obstacle(&self, slot: SlotNumber, status: &SlotStatus) -> Option<String> {
        if self.has_left {
            return Some(NOT_A_MEMBER.to_owned());
        }
        if !status.proposes {
            return Some(status.reason());
        }
        // It knows none before it has started.
        let replicas = &status.members;
        let reached = replicas.iter().filter(|id| self.reached.contains(*id));
        if !replicas.is_empty() && reached.count() * 2 <= replicas.len() {
            return Some("a majority of its replicas does not answer".to_owned());
        }
        if self.leaderless.contains(&slot) {
            return Some("its log has no leader that this node knows".to_owned());
        }
        if self.is_log_disk_lost {
            return Some(LOST_DISK.to_owned());
        }
        let no_log = || "this node does not reach the log".to_owned();
        self.is_log_lost.then(no_log)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn healthy() -> (SlotStatus, NodeView) {
        let status = SlotStatus {
            members: vec![1, 2, 3],
            proposes: true,
            ..SlotStatus::default()
        };
        let view = NodeView {
            reached: BTreeSet::from([1, 2]),
            ..NodeView::default()
        };
        (status, view)
    }

    fn summary(status: &SlotStatus, view: &NodeView) -> (bool, String) {
        let summary = SlotSummary::of(0, status, &SlotPlacement::default(), view);
        (summary.takes_writes, summary.reason.unwrap_or_default())
    }

    #[test]
    fn a_slot_with_a_majority_and_a_log_takes_writes() {
        let (status, mut view) = healthy();
        assert_eq!(summary(&status, &view), (true, String::new()));
        // The log of another slot.
        view.leaderless.insert(1);
        assert!(summary(&status, &view).0);
        let failed = SlotStatus {
            error: Some("a copy failed".into()),
            ..status
        };
        assert_eq!(summary(&failed, &view), (true, "a copy failed".into()));
    }

    #[test]
    fn a_slot_whose_writes_would_fail_says_why() {
        let (status, view) = healthy();
        let alone = NodeView {
            reached: BTreeSet::from([1]),
            ..NodeView::default()
        };
        let leaderless = NodeView {
            leaderless: BTreeSet::from([0]),
            ..healthy().1
        };
        let no_log = NodeView {
            is_log_lost: true,
            ..healthy().1
        };
        let lost_disk = NodeView {
            is_log_disk_lost: true,
            ..healthy().1
        };
        let removed = NodeView {
            has_left: true,
            ..healthy().1
        };
        for (view, why) in [
            (alone, "a majority of its replicas does not answer"),
            (leaderless, "no leader"),
            (no_log, "does not reach the log"),
            (lost_disk, "lost its part of the log"),
            (removed, "not a member"),
        ] {
            let (takes_writes, reason) = summary(&status, &view);
            assert!(!takes_writes && reason.contains(why), "{reason}");
        }
        let starting = SlotStatus {
            proposes: false,
            ..status
        };
        let (takes_writes, reason) = summary(&starting, &view);
        assert!(!takes_writes && reason.contains("the log is still the same"));
    }
}
