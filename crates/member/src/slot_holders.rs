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

/// Returns the nodes that answer for a database in these slots: the live ones that have all of
/// them, in the order of rendezvous hashing, so that the caches of the first one are warm. `None`
/// while nothing is decided about these slots.
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
    /// The slots in which the node has never counted. Before a new node knows the state of the
    /// cluster, it starts all slots.
    new: BTreeSet<SlotNumber>,
    /// Since when each slot here has other nodes, which do not change any more.
    left_since: BTreeMap<SlotNumber, Duration>,
}

impl SlotKeeper {
    /// Creates it for a node, which has never counted in the slots `new`.
    pub fn new(me: NodeId, new: BTreeSet<SlotNumber>) -> SlotKeeper {
        SlotKeeper {
            me,
            new,
            left_since: BTreeMap::new(),
        }
    }

    /// Returns whether the node has never counted in some slot.
    pub fn has_new(&self) -> bool {
        !self.new.is_empty()
    }

    /// Returns whether the node has never counted in a slot.
    pub fn is_new(&self, slot: SlotNumber) -> bool {
        self.new.contains(&slot)
    }

    /// Notes the nodes that count in the slots that run on the node.
    pub fn note(&mut self, running: &SlotSets) {
        let me = self.me;
        let counts = |slot: &SlotNumber| running.get(slot).is_some_and(|set| set.contains(&me));
        self.new.retain(|slot| !counts(slot));
    }

    /// Returns the slots that start or end at the time `now`. `running` has the slots that run on
    /// the node, each with the nodes that count in it according to its own log; `stored` those of
    /// which the node has data.
    pub fn step(
        &mut self,
        now: Duration,
        placement: &PlacementState,
        slots: SlotNumber,
        (running, stored): (&SlotSets, &BTreeSet<SlotNumber>),
    ) -> Vec<SlotChange> {
        self.note(running);
        let mut changes = vec![];
        for slot in 0..slots {
            let (replicas, is_new) = (running.get(&slot), self.is_new(slot));
            let has_data = replicas.is_some() || stored.contains(&slot);
            let left_to = left_to(placement, self.me, slot, (replicas, is_new));
            if !has_data || left_to.is_none() {
                self.left_since.remove(&slot);
                if replicas.is_none() && keeps(placement, self.me, slot, None) {
                    changes.push(SlotChange::Start(slot));
                }
                continue;
            }
            let since = *self.left_since.entry(slot).or_insert(now);
            // No request has used a slot in which the node has never counted.
            if is_new || now.saturating_sub(since) >= ENDED_AFTER {
                // If that fails, it is tried again after the same time.
                self.left_since.insert(slot, now);
                changes.push(SlotChange::End(slot));
            }
        }
        changes
    }
}

/// Returns whether a node has a slot: it counts in it, according to the cluster or to `replicas`,
/// its own log, or learns it. A node that does not know the last change keeps the slot.
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

/// Returns the replicas of a slot that a node has left; `None` if it has not. The slot has the nodes
/// that it should have, unless the node `is_new`: it has never counted in the slot. `replicas` are
/// those of its own log.
pub fn left_to<'p>(
    placement: &'p PlacementState,
    me: NodeId,
    slot: SlotNumber,
    (replicas, is_new): (Option<&BTreeSet<NodeId>>, bool),
) -> Option<&'p BTreeSet<NodeId>> {
    if keeps(placement, me, slot, replicas) {
        return None;
    }
    let of = placement.slots.get(&slot)?;
    (is_new || is_settled(of)).then_some(&of.replicas)
}

/// Returns whether a slot has the nodes that it should have.
fn is_settled(of: &SlotPlacement) -> bool {
    of.replicas == of.wanted && of.learners.is_empty() && !of.replicas.is_empty()
}

/// Returns whether the replicas of a slot have everything that a node has which left it: all of
/// them, or, if the node `is_new`, a majority. `own` is the generation and the offset that the node
/// has reached; `reached` returns those of a replica that answered.
pub fn are_ahead(
    replicas: &BTreeSet<NodeId>,
    reached: impl Fn(NodeId) -> Option<(u64, u64)>,
    (own, is_new): ((u64, u64), bool),
) -> bool {
    let is_ahead = |node: &&NodeId| reached(**node).is_some_and(|at| at >= own);
    let ahead = replicas.iter().filter(is_ahead).count();
    match is_new {
        true => 2 * ahead > replicas.len(),
        false => ahead > 0 && ahead == replicas.len(),
    }
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
        let mut keeper = SlotKeeper::new(4, BTreeSet::new());
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
    fn a_slot_ends_an_hour_after_its_nodes_are_those_it_should_have() {
        let mut keeper = SlotKeeper::new(1, BTreeSet::new());
        let stored = BTreeSet::from([0]);
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

    #[test]
    fn a_slot_in_which_a_node_has_never_counted_ends_at_once() {
        let mut keeper = SlotKeeper::new(1, BTreeSet::from([0, 1]));
        let nothing = BTreeSet::new();
        let placement = placed(&[(0, &[2, 3, 4]), (1, &[2, 3, 4])]);
        let mut moving = placement.clone();
        moving.slots.get_mut(&0).unwrap().wanted.insert(5);
        let running = here(&[(0, &[2, 3, 4]), (1, &[2, 3, 4])]);
        let both = [SlotChange::End(0), SlotChange::End(1)];
        for state in [&placement, &moving] {
            assert_eq!(keeper.step(MINUTE, state, 2, (&running, &nothing)), both);
        }
        // Before the cluster decided, it counted in one of them.
        keeper.note(&here(&[(1, &[1, 2, 3])]));
        assert!(keeper.has_new() && !keeper.is_new(1));
        let first = keeper.step(2 * MINUTE, &placement, 2, (&running, &nothing));
        assert_eq!(first, [SlotChange::End(0)]);
        let learner = PlacedLearner { node: 1, from: 2 };
        moving.slots.get_mut(&0).unwrap().learners.push(learner);
        let learning = keeper.step(3 * MINUTE, &moving, 2, (&running, &nothing));
        assert!(learning.is_empty());
    }

    #[test]
    fn data_may_go_once_those_that_count_have_it() {
        let replicas = BTreeSet::from([2, 3, 4]);
        let own = (5, 100);
        let are_ahead = |reached: [Option<(u64, u64)>; 3], is_new| {
            let reached = |node: NodeId| reached[node as usize - 2];
            super::are_ahead(&replicas, reached, (own, is_new))
        };
        let all = [Some((5, 100)), Some((6, 3)), Some((5, 107))];
        assert!(are_ahead(all, false) && are_ahead(all, true));
        // One is behind, in an earlier generation, or does not answer.
        for third in [Some((5, 99)), Some((4, 300)), None] {
            let two = [Some((5, 100)), Some((6, 3)), third];
            assert!(!are_ahead(two, false) && are_ahead(two, true));
            let one = [Some((5, 100)), None, third];
            assert!(!are_ahead(one, false) && !are_ahead(one, true));
        }
        for is_new in [false, true] {
            let none = BTreeSet::new();
            assert!(!super::are_ahead(&none, |_| None, (own, is_new)));
        }
        let mut placement = placed(&[(0, &[])]);
        assert_eq!(left_to(&placement, 1, 0, (None, false)), None);
        placement.slots.clear();
        assert_eq!(left_to(&placement, 1, 0, (None, true)), None);
    }
}
