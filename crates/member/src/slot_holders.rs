//! Which nodes answer for a database, and which slots a node keeps.
//!
//! Pure functions over the placement in the control slot, for nodes that do not have every slot.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cluster::{NodeId, SlotNumber};
use database::DatabaseUuid;

use crate::control::placement_entry::SlotPlacement;
use crate::control::placement_state::PlacementState;
use crate::placement::SlotSets;

/// A node ends a slot that it has left when the slot has had its new nodes for this time.
pub const ENDED_AFTER: Duration = Duration::from_hours(1);

/// Returns the nodes that answer for a database in these slots: the live ones that have all of them,
/// in the order of rendezvous hashing, so that the caches of the first one are warm. `None` while
/// nothing is decided about these slots.
pub fn holders(
    placement: &PlacementState,
    database: DatabaseUuid,
    slots: &[SlotNumber],
    is_live: impl Fn(NodeId) -> bool,
) -> Option<Vec<NodeId>> {
    placement.copies?;
    let mut sets = slots.iter().filter_map(|slot| placement.slots.get(slot));
    let first = sets.next()?;
    let others: Vec<&SlotPlacement> = sets.collect();
    let has_all = |node: &NodeId| others.iter().all(|of| of.replicas.contains(node));
    let able = first.replicas.iter().copied();
    let able = able.filter(|node| has_all(node) && is_live(*node));
    let mut able: Vec<NodeId> = able.collect();
    able.sort_by_cached_key(|node| {
        let mut hash = blake3::Hasher::new();
        hash.update(&node.to_be_bytes()).update(database.as_bytes());
        Reverse(*hash.finalize().as_bytes())
    });
    Some(able)
}

/// A slot that a node starts or ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SlotChange {
    /// It starts.
    Start(SlotNumber),
    /// It ends: the node does not need its data any more.
    End(SlotNumber),
}

/// The slots that a node keeps, with times of its monotonic clock.
#[derive(Debug)]
pub struct SlotKeeper {
    me: NodeId,
    /// Since when each slot here has other nodes, which do not change any more.
    left_since: BTreeMap<SlotNumber, Duration>,
}

impl SlotKeeper {
    /// Creates it for a node.
    pub fn new(me: NodeId) -> SlotKeeper {
        SlotKeeper {
            me,
            left_since: BTreeMap::new(),
        }
    }

    /// Returns the slots that start or end at the time `now`. `running` has the slots that run on the
    /// node, each with the nodes that count in it according to its own log; `stored` those of which
    /// the node has data.
    pub fn step(
        &mut self,
        now: Duration,
        placement: &PlacementState,
        slots: SlotNumber,
        (running, stored): (&SlotSets, &BTreeSet<SlotNumber>),
    ) -> Vec<SlotChange> {
        let mut changes = vec![];
        for slot in 0..slots {
            let replicas = running.get(&slot);
            let has_data = replicas.is_some() || stored.contains(&slot);
            if !has_data || !is_left(placement, self.me, slot, replicas) {
                self.left_since.remove(&slot);
                if replicas.is_none() && keeps(placement, self.me, slot, None) {
                    changes.push(SlotChange::Start(slot));
                }
                continue;
            }
            let since = *self.left_since.entry(slot).or_insert(now);
            if now.saturating_sub(since) >= ENDED_AFTER {
                // If that fails, it is tried again after the same time.
                self.left_since.insert(slot, now);
                changes.push(SlotChange::End(slot));
            }
        }
        changes
    }
}

/// Returns whether a node has a slot: it counts in it, according to the cluster or to `replicas`, its
/// own log, or learns it. A node that does not know the last change keeps the slot.
fn keeps(
    placement: &PlacementState,
    me: NodeId,
    slot: SlotNumber,
    replicas: Option<&BTreeSet<NodeId>>,
) -> bool {
    let decided = placement.copies.and_then(|_| placement.slots.get(&slot));
    let Some(of) = decided else {
        return true;
    };
    of.replicas.contains(&me)
        || of.learners.iter().any(|learner| learner.node == me)
        || replicas.is_some_and(|replicas| replicas.contains(&me))
}

/// Returns whether a node has left a slot, which has the nodes that it shall have.
pub fn is_left(
    placement: &PlacementState,
    me: NodeId,
    slot: SlotNumber,
    replicas: Option<&BTreeSet<NodeId>>,
) -> bool {
    !keeps(placement, me, slot, replicas) && is_settled(placement, slot)
}

/// Returns whether a slot has the nodes that it shall have.
fn is_settled(placement: &PlacementState, slot: SlotNumber) -> bool {
    let of = placement.slots.get(&slot);
    of.is_some_and(|of| of.replicas == of.wanted && of.learners.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::placement_entry::PlacedLearner;

    const MINUTE: Duration = Duration::from_mins(1);

    fn placed(slots: &[(SlotNumber, &[NodeId])]) -> PlacementState {
        let of_slot = |(slot, nodes): &(SlotNumber, &[NodeId])| {
            let nodes: BTreeSet<NodeId> = nodes.iter().copied().collect();
            let of = SlotPlacement {
                wanted: nodes.clone(),
                replicas: nodes,
                learners: vec![],
            };
            (*slot, of)
        };
        PlacementState {
            copies: Some(3),
            slots: slots.iter().map(of_slot).collect(),
            ..PlacementState::default()
        }
    }

    fn here(slots: &[(SlotNumber, &[NodeId])]) -> SlotSets {
        let of_slot = |(slot, nodes): &(SlotNumber, &[NodeId])| {
            let nodes: BTreeSet<NodeId> = nodes.iter().copied().collect();
            (*slot, nodes)
        };
        slots.iter().map(of_slot).collect()
    }

    #[test]
    fn a_live_node_with_all_slots_answers_and_databases_are_spread() {
        let placement = placed(&[(0, &[1, 2, 3]), (1, &[2, 3, 4])]);
        let mut chosen = BTreeMap::new();
        for i in 0..100u8 {
            let database = DatabaseUuid::new([i; 16]);
            let nodes = holders(&placement, database, &[0, 1], |_| true).unwrap();
            assert!(nodes == [2, 3] || nodes == [3, 2], "{nodes:?}");
            *chosen.entry(nodes[0]).or_insert(0) += 1;
            let others = holders(&placement, database, &[0, 1], |id| id != nodes[0]);
            assert_eq!(others.unwrap(), [nodes[1]]);
        }
        assert_eq!(chosen.keys().copied().collect::<Vec<_>>(), [2, 3]);
        assert!(chosen.values().all(|count| *count > 25), "{chosen:?}");
        let database = DatabaseUuid::new([0; 16]);
        let none = holders(&placement, database, &[0, 1], |id| id == 1);
        assert_eq!(none, Some(vec![]));
        let everywhere = PlacementState::default();
        assert_eq!(holders(&everywhere, database, &[0], |_| true), None);
        assert_eq!(holders(&placement, database, &[2], |_| true), None);
    }

    #[test]
    fn a_node_starts_the_slots_that_it_learns() {
        let mut keeper = SlotKeeper::new(4);
        let mut placement = placed(&[(0, &[1, 2, 3]), (1, &[2, 3, 4])]);
        let (none, nothing) = (here(&[]), BTreeSet::new());
        let all = keeper.step(MINUTE, &PlacementState::default(), 2, (&none, &nothing));
        assert_eq!(all, [SlotChange::Start(0), SlotChange::Start(1)]);
        let own = keeper.step(MINUTE, &placement, 2, (&none, &nothing));
        assert_eq!(own, [SlotChange::Start(1)]);
        let learner = PlacedLearner { node: 4, from: 1 };
        placement.slots.get_mut(&0).unwrap().learners.push(learner);
        let running = here(&[(1, &[2, 3, 4])]);
        let learning = keeper.step(MINUTE, &placement, 2, (&running, &nothing));
        assert_eq!(learning, [SlotChange::Start(0)]);
    }

    #[test]
    fn a_slot_ends_an_hour_after_its_nodes_are_those_it_shall_have() {
        let (mut keeper, stored) = (SlotKeeper::new(1), BTreeSet::from([0]));
        let running = here(&[(0, &[2, 3, 4])]);
        let settled = placed(&[(0, &[2, 3, 4])]);
        let mut moving = settled.clone();
        moving.slots.get_mut(&0).unwrap().wanted.insert(5);
        let mut step = |minute: u32, placement: &PlacementState, running: &SlotSets| {
            keeper.step(MINUTE * minute, placement, 1, (running, &stored))
        };
        assert!(step(0, &settled, &running).is_empty());
        assert!(step(59, &settled, &running).is_empty());
        // Its nodes change again: the hour begins anew.
        assert!(step(60, &moving, &running).is_empty());
        assert!(step(61, &settled, &running).is_empty());
        assert!(step(120, &settled, &running).is_empty());
        assert_eq!(step(121, &settled, &running), [SlotChange::End(0)]);
        // It counts by its own log: the cluster does not know that yet.
        let counts = here(&[(0, &[1, 2, 3])]);
        assert!(step(122, &settled, &counts).is_empty());
        assert!(step(122, &settled, &running).is_empty());
        assert!(step(181, &settled, &running).is_empty());
        assert!(step(182, &PlacementState::default(), &running).is_empty());
        // It does not run any more, and its data is there, as after a crash.
        let none = here(&[]);
        assert!(step(200, &settled, &none).is_empty());
        assert_eq!(step(260, &settled, &none), [SlotChange::End(0)]);
        assert!(step(261, &settled, &none).is_empty());
        assert_eq!(step(320, &settled, &none), [SlotChange::End(0)]);
    }
}
