//! Trims the log in the nodes: removes the records that all replicas of a slot have. A slot that is being
//! copied keeps the records from then on, which the copy lacks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cluster::slot::SlotStatus;
use cluster::{CONTROL, NodeId, SlotNumber};
use raft_log::RaftLog;

use crate::control::placement_entry::SlotPlacement;
use crate::control::placement_state::PlacementState;
use crate::members::Members;
use crate::progress::Progress;
use crate::replicas::Replicas;

/// Interval of trims.
const EVERY: Duration = Duration::from_secs(10);
/// Records that stay although all replicas have them, so that a replica that restarts finds its last one.
const KEPT: u64 = 1_000;
/// A replica without contact for this time is not waited for: it copies the slot when it is back.
const AWAY_TIME: Duration = Duration::from_hours(72);

/// Trims this node's part of the log, until the future is dropped.
pub(crate) async fn run(log: Arc<RaftLog>, members: Arc<Members>, replicas: Arc<Replicas>) {
    let began = Instant::now();
    let mut trimmed = BTreeMap::<SlotNumber, u64>::new();
    loop {
        tokio::time::sleep(EVERY).await;
        let is_away = |node: NodeId| {
            let heard = members.peers().and_then(|peers| peers.last_heard(node));
            node != members.me && heard.unwrap_or(began).elapsed() > AWAY_TIME
        };
        let placement = members.placement();
        let live = members.live_others();
        let mut ends = vec![];
        for (slot, replica) in replicas.all() {
            let status = replica.status();
            if !is_copied(placement.as_ref(), slot, &status, &live) {
                ends.push((slot, unneeded(&status, is_away)));
            }
        }
        if let Some(placement) = &placement {
            ends.extend(ends_elsewhere(placement, &members, &replicas, is_away).await);
        }
        for (slot, end) in ends {
            let before = trimmed.entry(slot).or_default();
            if end > *before {
                *before = end;
                log.trim(slot, end);
            }
        }
    }
}

/// Returns whether one of these live nodes copies a slot: it is to become one of its replicas.
fn is_copied(
    placement: Option<&PlacementState>,
    slot: SlotNumber,
    status: &SlotStatus,
    live: &[NodeId],
) -> bool {
    let Some(placement) = placement.filter(|_| slot != CONTROL) else {
        return live.iter().any(|node| !status.members.contains(node));
    };
    let decided = placement.slots.get(&slot);
    decided.is_some_and(|of| has_learner(of, live))
}

fn has_learner(of: &SlotPlacement, live: &[NodeId]) -> bool {
    let learners = of.learners.iter();
    learners
        .map(|learner| learner.node)
        .any(|node| live.contains(&node))
}

/// Returns the offsets before which no replica needs a record, of the slots that do not run here.
async fn ends_elsewhere(
    placement: &PlacementState,
    members: &Members,
    replicas: &Replicas,
    is_away: impl Fn(NodeId) -> bool,
) -> Vec<(SlotNumber, u64)> {
    let live = members.live_others();
    let slots = placement.slots.iter();
    let slots =
        slots.filter(|(slot, of)| replicas.get(**slot).is_none() && !has_learner(of, &live));
    let slots: Vec<(&SlotNumber, &SlotPlacement)> = slots.collect();
    let holders = slots.iter().flat_map(|(_, of)| of.replicas.iter().copied());
    let holders: BTreeSet<NodeId> = holders.filter(|node| live.contains(node)).collect();
    let asked = holders.into_iter();
    let asked = asked.map(|node| async move { (node, members.progress(node).await) });
    let answers = futures_util::future::join_all(asked).await.into_iter();
    let known = answers.filter_map(|(node, progress)| Some((node, progress?)));
    let known: BTreeMap<NodeId, Progress> = known.collect();
    let end = |(slot, of): (&SlotNumber, &SlotPlacement)| {
        let waited_for = of.replicas.iter().filter(|node| !is_away(**node));
        (
            *slot,
            all_have(waited_for.map(|node| reached(&known, *node, *slot))),
        )
    };
    slots.into_iter().map(end).collect()
}

/// Returns the offset that a node has reached in a slot, as far as it answered.
fn reached(known: &BTreeMap<NodeId, Progress>, node: NodeId, slot: SlotNumber) -> u64 {
    let at = known.get(&node).and_then(|progress| progress.at(slot));
    at.map_or(0, |(_, next_offset)| next_offset)
}

/// Returns the offset before which nodes that have reached these offsets need no record.
fn all_have(offsets: impl Iterator<Item = u64>) -> u64 {
    offsets.min().unwrap_or(0).saturating_sub(KEPT)
}

/// Returns the offset before which no replica needs a record.
fn unneeded(status: &SlotStatus, is_away: impl Fn(NodeId) -> bool) -> u64 {
    let has = |node: &NodeId| {
        let durable = status.durable.iter().find(|(of, _)| of == node);
        durable.map_or(0, |(_, offset)| *offset)
    };
    let waited_for = status.members.iter().filter(|node| !is_away(**node));
    all_have(waited_for.map(has))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::placement_entry::PlacedLearner;

    #[test]
    fn the_replica_that_has_least_decides_unless_it_was_away_for_days() {
        let mut status = SlotStatus {
            members: vec![1, 2, 3],
            durable: vec![(1, 9_000), (2, 5_000), (3, 8_000)],
            ..SlotStatus::default()
        };
        assert_eq!(unneeded(&status, |_| false), 5_000 - KEPT);
        assert_eq!(unneeded(&status, |node| node == 2), 8_000 - KEPT);
        status.durable.pop();
        assert_eq!(unneeded(&status, |_| false), 0);
        assert_eq!(unneeded(&SlotStatus::default(), |_| false), 0);
    }

    #[test]
    fn a_slot_that_a_live_node_copies_keeps_its_records() {
        let status = SlotStatus {
            members: vec![1, 2, 3],
            ..SlotStatus::default()
        };
        assert!(!is_copied(None, 0, &status, &[2, 3]));
        assert!(is_copied(None, 0, &status, &[2, 3, 4]));
        let learner = PlacedLearner { node: 4, from: 1 };
        let mut of = SlotPlacement::default();
        let mut placement = PlacementState::default();
        placement.slots.insert(0, of.clone());
        assert!(!is_copied(Some(&placement), 0, &status, &[2, 3, 4]));
        of.learners.push(learner);
        placement.slots.insert(0, of);
        assert!(is_copied(Some(&placement), 0, &status, &[2, 3, 4]));
        assert!(!is_copied(Some(&placement), 0, &status, &[2, 3]));
        // Every node has the control slot.
        assert!(is_copied(Some(&placement), CONTROL, &status, &[2, 3, 4]));
    }
}
