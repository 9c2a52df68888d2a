//! Trims the log in the nodes: removes the records that all replicas of a slot have. A slot that is
//! being copied keeps the records from then on, which the copy lacks.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cluster::slot::SlotStatus;
use cluster::{CONTROL, NodeId, SlotNumber};
use raft_log::RaftLog;

use crate::control::placement_entry::SlotPlacement;
use crate::control::placement_state::PlacementState;
use crate::members::Members;
use crate::replicas::{Replica, Replicas};

/// Interval of trims.
const EVERY: Duration = Duration::from_secs(10);
/// Records that stay although all replicas have them, so that a replica that restarts finds its last one.
const KEPT: u64 = 1_000;
/// A replica without contact for this time is not waited for: it copies the slot when it is back.
const AWAY_TIME: Duration = Duration::from_hours(72);

/// Trims this node's part of the log, until the future is dropped.
pub(crate) async fn run(log: Arc<RaftLog>, members: Arc<Members>, replicas: Arc<Replicas>) {
    let began = Instant::now();
    let mut trimmed = BTreeMap::<SlotNumber, Bounds>::new();
    loop {
        tokio::time::sleep(EVERY).await;
        let is_away = |node: NodeId| {
            let heard = members.peers().and_then(|peers| peers.last_heard(node));
            node != members.me && heard.unwrap_or(began).elapsed() > AWAY_TIME
        };
        let number = log.options().log;
        let placement = members.placement();
        let mut live = members.live_others();
        live.push(members.me);
        let mut all = vec![];
        for (slot, replica) in replicas.all() {
            let status = replica.status();
            if placement.is_some() && slot != CONTROL && !replica.is_member() {
                // The nodes that have the slot are asked.
                continue;
            }
            let is_copied = is_copied(placement.as_ref(), slot, &status, &live);
            let bounds = bounds(number, &status, is_away);
            all.extend(bounds.map(|bounds| (slot, bounds.while_copied(is_copied))));
        }
        if let Some(placement) = &placement {
            let others = slots_of_others(placement, &replicas);
            let holders = others
                .iter()
                .flat_map(|(_, of)| of.replicas.iter().copied());
            let known = members.positions(holders.collect(), Some(number)).await;
            for (slot, of) in others {
                let reached = |node: NodeId| known.get(&node)?.at(slot);
                let bounds = bounds_of_others(&of.replicas, reached, is_away);
                all.push((slot, bounds.while_copied(has_learner(&of, &live))));
            }
        }
        for (slot, bounds) in all {
            if trimmed.insert(slot, bounds) != Some(bounds) {
                log.trim(slot, bounds.unneeded, bounds.stable);
            }
        }
    }
}

/// How far the records of a slot can be removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Bounds {
    /// No replica needs a record before this offset.
    unneeded: u64,
    /// A majority of the replicas has all records before this offset.
    stable: u64,
}

impl Bounds {
    /// A node that copies the slot may need any of the records.
    fn while_copied(self, is_copied: bool) -> Bounds {
        Bounds {
            unneeded: if is_copied { 0 } else { self.unneeded },
            ..self
        }
    }
}

/// Returns the bounds of a slot by its replica here. `None` while the replica is in an earlier log,
/// which has other offsets.
fn bounds(log: u64, status: &SlotStatus, is_away: impl Fn(NodeId) -> bool) -> Option<Bounds> {
    (status.log == log).then(|| Bounds {
        unneeded: unneeded(status, is_away),
        stable: status.stable,
    })
}

/// Returns the bounds of a slot that this node does not have. `reached` returns the generation and
/// the offset that a replica has reached in this log, if it answered. Only the latest generation
/// counts.
fn bounds_of_others(
    replicas: &BTreeSet<NodeId>,
    reached: impl Fn(NodeId) -> Option<(u64, u64)>,
    is_away: impl Fn(NodeId) -> bool,
) -> Bounds {
    let latest = replicas.iter().filter_map(|node| reached(*node));
    let latest = latest.map(|(generation, _)| generation).max();
    let offset = |node: &NodeId| {
        let reached = reached(*node).filter(|(generation, _)| Some(*generation) == latest);
        reached.map_or(0, |(_, offset)| offset)
    };
    let waited_for = replicas.iter().filter(|node| !is_away(**node));
    let mut offsets: Vec<u64> = replicas.iter().map(offset).collect();
    offsets.sort_unstable_by_key(|offset| Reverse(*offset));
    Bounds {
        unneeded: all_have(waited_for.map(offset)),
        stable: offsets.get(offsets.len() / 2).copied().unwrap_or(0),
    }
}

/// Returns the slots of which this node is no replica.
fn slots_of_others(
    placement: &PlacementState,
    replicas: &Replicas,
) -> Vec<(SlotNumber, SlotPlacement)> {
    let is_here = |slot: SlotNumber| replicas.get(slot).is_some_and(Replica::is_member);
    let others = placement.slots.iter().filter(|(slot, _)| !is_here(**slot));
    others.map(|(slot, of)| (*slot, of.clone())).collect()
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
    let mut learners = of.learners.iter();
    learners.any(|learner| live.contains(&learner.node))
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
    fn positions_in_an_earlier_log_trim_nothing() {
        let mut status = SlotStatus {
            members: vec![1],
            durable: vec![(1, 9_000)],
            stable: 9_000,
            log: 0,
            ..SlotStatus::default()
        };
        assert_eq!(bounds(70_000, &status, |_| false), None);
        status.log = 70_000;
        let trimmed = bounds(70_000, &status, |_| false);
        let expected = Bounds {
            unneeded: 9_000 - KEPT,
            stable: 9_000,
        };
        assert_eq!(trimmed, Some(expected));
        let copied = expected.while_copied(true);
        assert_eq!((copied.unneeded, copied.stable), (0, 9_000));
    }

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

    /// A log node that has no replica of a slot asks those that have.
    #[test]
    fn replicas_elsewhere_decide_by_what_they_have_in_the_latest_generation() {
        let replicas = BTreeSet::from([1, 2, 3]);
        let bounds = |reached: [Option<(u64, u64)>; 3], away: NodeId| {
            let reached = |node: NodeId| reached[node as usize - 1];
            let bounds = bounds_of_others(&replicas, reached, |node| node == away);
            (bounds.unneeded, bounds.stable)
        };
        let all = [Some((1, 9_000)), Some((1, 5_000)), Some((1, 8_000))];
        assert_eq!(bounds(all, 0), (5_000 - KEPT, 8_000));
        assert_eq!(bounds(all, 2), (8_000 - KEPT, 8_000));
        // One does not answer, or is in an earlier log.
        let some = [Some((1, 9_000)), None, Some((1, 8_000))];
        assert_eq!(bounds(some, 0), (0, 8_000));
        // Only the first one has begun the new generation.
        let new = [Some((2, 9_500)), Some((1, 9_600)), Some((1, 9_600))];
        assert_eq!(bounds(new, 0), (0, 0));
        assert_eq!(bounds([None; 3], 0), (0, 0));
        let none = bounds_of_others(&BTreeSet::new(), |_| None, |_| false);
        assert_eq!(none, Bounds::default());
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
