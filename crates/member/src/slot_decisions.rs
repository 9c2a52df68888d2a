//! Decisions about the nodes of slots.
//!
//! One node of the cluster decides which nodes each slot should have, and which of them copy it, as
//! entries of the control slot ([`next_decision`]). A replica of a slot adds and removes replicas
//! in the slot's own log ([`next_replicas`]), and reports them in the control slot ([`report`]).
//! All of them may know an earlier state than others: a decision counts only if it follows the last
//! one, and the replicas of the slot itself are those that change.

use std::collections::{BTreeMap, BTreeSet};

use cluster::{NodeId, SlotNumber};

use crate::control::placement_entry::{PlacedLearner, PlacedSlot, PlacementChange, SlotPlacement};
use crate::control::placement_state::PlacementState;
use crate::placement::{
    Learner, Move, MoveRules, PlacementNodes, SlotReplicas, SlotSets, next_moves, wanted_sets_with,
};

/// Maximum number of slots that a decision changes, so that its record is short.
const SLOTS_PER_DECISION: usize = 256;

/// Returns the next decision about the data slots `0..slots`, if there is one: those of
/// `everywhere` have all nodes that keep slots. While every node has every slot, nothing is
/// decided.
pub fn next_decision(
    placement: &PlacementState,
    nodes: &PlacementNodes,
    slots: SlotNumber,
    everywhere: &BTreeSet<SlotNumber>,
) -> Option<PlacementChange> {
    let copies = placement.copies? as usize;
    let mut all: BTreeMap<SlotNumber, SlotPlacement> = (0..slots)
        .map(|slot| (slot, known(placement, nodes, slot)))
        .collect();
    let now: SlotSets = all
        .iter()
        .map(|(slot, of)| (*slot, of.wanted.clone()))
        .collect();
    for (slot, wanted) in wanted_sets_with(everywhere, &now, nodes, Some(copies)) {
        if let Some(of) = all.get_mut(&slot) {
            of.wanted = wanted;
        }
    }
    // Whether a node has learned does not matter here: until it counts, it is a learner.
    let views = all.iter();
    let views = views.map(|(slot, of)| (*slot, view(of, of.replicas.clone(), |_| false)));
    for step in next_moves(&views.collect(), nodes, MoveRules::default()) {
        let (slot, node) = match step {
            Move::Learn { slot, node, .. } | Move::Forget { slot, node } => (slot, node),
            Move::Add { .. } | Move::Remove { .. } => continue,
        };
        let Some(of) = all.get_mut(&slot) else {
            continue;
        };
        match step {
            Move::Learn { from, .. } => of.learners.push(PlacedLearner { node, from }),
            _ => of.learners.retain(|learner| learner.node != node),
        }
    }
    let is_new = |(slot, of): &(SlotNumber, SlotPlacement)| placement.slots.get(slot) != Some(of);
    let changed = all.into_iter().filter(is_new).take(SLOTS_PER_DECISION);
    decision(placement, changed.collect())
}

/// Returns the replicas that a slot should have next, computed by one of its present replicas; `None`
/// when there is nothing to do, or not now.
pub fn next_replicas(
    placement: &PlacementState,
    nodes: &PlacementNodes,
    slot: SlotNumber,
    replicas: &BTreeSet<NodeId>,
    has_learned: impl Fn(NodeId) -> bool,
) -> Option<BTreeSet<NodeId>> {
    placement.copies?;
    let of = placement.slots.get(&slot)?;
    let view = view(of, replicas.clone(), has_learned);
    let steps = next_moves(&[(slot, view)].into(), nodes, MoveRules::default());
    let mut next = replicas.clone();
    let has_changed = steps.into_iter().any(|step| match step {
        Move::Add { node, .. } => next.insert(node),
        Move::Remove { node, .. } => next.remove(&node),
        Move::Learn { .. } | Move::Forget { .. } => false,
    });
    has_changed.then_some(next)
}

/// Returns the entry that reports the replicas of slots; `None` if they are known.
pub fn report(placement: &PlacementState, replicas: &SlotSets) -> Option<PlacementChange> {
    placement.copies?;
    let changed = replicas.iter().filter_map(|(slot, replicas)| {
        let before = placement.slots.get(slot)?;
        let mut of = before.clone();
        of.replicas.clone_from(replicas);
        of.learners
            .retain(|learner| !replicas.contains(&learner.node));
        (of != *before).then_some((*slot, of))
    });
    decision(placement, changed.take(SLOTS_PER_DECISION).collect())
}

/// Returns the nodes of a slot. Before the first decision about it, all nodes have it.
fn known(placement: &PlacementState, nodes: &PlacementNodes, slot: SlotNumber) -> SlotPlacement {
    let all = || nodes.keys().copied().collect::<BTreeSet<NodeId>>();
    let everywhere = || SlotPlacement {
        wanted: all(),
        replicas: all(),
        learners: vec![],
    };
    let of = placement.slots.get(&slot).cloned();
    of.unwrap_or_else(everywhere)
}

fn view(
    of: &SlotPlacement,
    replicas: BTreeSet<NodeId>,
    has_learned: impl Fn(NodeId) -> bool,
) -> SlotReplicas {
    let learner = |learner: &PlacedLearner| {
        let of = Learner {
            from: learner.from,
            has_learned: has_learned(learner.node),
        };
        (learner.node, of)
    };
    SlotReplicas {
        wanted: of.wanted.clone(),
        replicas,
        learners: of.learners.iter().map(learner).collect(),
    }
}

fn decision(
    placement: &PlacementState,
    changed: Vec<(SlotNumber, SlotPlacement)>,
) -> Option<PlacementChange> {
    if changed.is_empty() {
        return None;
    }
    let placed = |(slot, placement)| PlacedSlot { slot, placement };
    Some(PlacementChange::Place {
        slots: changed.into_iter().map(placed).collect(),
        decision: placement.decision + 1,
    })
}
