//! The nodes that each slot should have.
//!
//! The result depends on the sets before: a replica stays where it is while its node keeps its
//! slots, the zones are apart, and no node has too many. Other replicas do not move. Of the nodes
//! that are equally good for a slot, rendezvous hashing chooses.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use cluster::{NodeId, SlotNumber};

use super::limits::{SlotRange, slot_ranges};
use super::nodes::{PlacementNode, PlacementNodes};
use super::rendezvous::score;

/// The nodes of each slot.
pub type SlotSets = BTreeMap<SlotNumber, BTreeSet<NodeId>>;

static NO_NODES: BTreeSet<NodeId> = BTreeSet::new();

/// Returns the nodes that each slot of `current` should have: `copies` of those that keep their
/// slots, in as many zones as possible, and each with a number of slots within its [`slot_ranges`].
/// `None` stands for a copy on every node. While too few nodes keep their slots, a slot keeps those
/// nodes that it has.
pub fn wanted_sets(current: &SlotSets, nodes: &PlacementNodes, copies: Option<usize>) -> SlotSets {
    let Some(copies) = copies else {
        let all: BTreeSet<NodeId> = nodes.keys().copied().collect();
        return current.keys().map(|slot| (*slot, all.clone())).collect();
    };
    let mut plan = Plan::new(current, nodes, copies);
    current.keys().for_each(|slot| plan.trim(*slot));
    current.keys().for_each(|slot| plan.fill(*slot));
    current.keys().for_each(|slot| plan.spread(*slot));
    // Each step brings a node closer to its range, and none farther away.
    while plan.relieve() || plan.supply() {}
    current.keys().for_each(|slot| plan.keep_leaving(*slot));
    plan.sets
}

/// Returns [`wanted_sets`], except that the slots of `everywhere` have all nodes that keep slots.
pub fn wanted_sets_with(
    everywhere: &BTreeSet<SlotNumber>,
    current: &SlotSets,
    nodes: &PlacementNodes,
    copies: Option<usize>,
) -> SlotSets {
    if copies.is_none() {
        return wanted_sets(current, nodes, None);
    }
    let is_everywhere = |(slot, _): &(&SlotNumber, &BTreeSet<NodeId>)| everywhere.contains(*slot);
    let others = current.iter().filter(|of| !is_everywhere(of));
    let others: SlotSets = others.map(|(slot, set)| (*slot, set.clone())).collect();
    let mut wanted = wanted_sets(&others, nodes, copies);
    let keeping = nodes.iter().filter(|(_, node)| node.keeps_slots());
    let keeping: BTreeSet<NodeId> = keeping.map(|(id, _)| *id).collect();
    for (slot, before) in current.iter().filter(is_everywhere) {
        let set = match keeping.is_empty() {
            true => before,
            false => &keeping,
        };
        wanted.insert(*slot, set.clone());
    }
    wanted
}

/// A step of a plan: one slot of a node becomes another node's.
struct Shift {
    slot: SlotNumber,
    from: NodeId,
    to: NodeId,
}

struct Plan<'a> {
    current: &'a SlotSets,
    nodes: &'a PlacementNodes,
    copies: usize,
    /// Of all nodes that keep slots.
    ranges: BTreeMap<NodeId, SlotRange>,
    sets: SlotSets,
    /// The number of slots of each node that keeps slots.
    loads: BTreeMap<NodeId, usize>,
}

impl<'a> Plan<'a> {
    /// Begins with the replicas on nodes that keep their slots.
    fn new(current: &'a SlotSets, nodes: &'a PlacementNodes, copies: usize) -> Plan<'a> {
        let ranges = slot_ranges(nodes, current.len(), copies);
        let mut loads: BTreeMap<NodeId, usize> = ranges.keys().map(|node| (*node, 0)).collect();
        let mut sets = SlotSets::new();
        for (slot, before) in current {
            let kept = before.iter().filter(|node| ranges.contains_key(*node));
            let kept: BTreeSet<NodeId> = kept.copied().collect();
            for node in &kept {
                *loads.entry(*node).or_default() += 1;
            }
            sets.insert(*slot, kept);
        }
        Plan {
            current,
            nodes,
            copies,
            ranges,
            sets,
            loads,
        }
    }

    fn set(&self, slot: SlotNumber) -> &BTreeSet<NodeId> {
        self.sets.get(&slot).unwrap_or(&NO_NODES)
    }

    fn has_now(&self, slot: SlotNumber, node: NodeId) -> bool {
        self.current.get(&slot).unwrap_or(&NO_NODES).contains(&node)
    }

    fn zone(&self, node: NodeId) -> &str {
        self.nodes.get(&node).map_or("", |node| node.zone.as_str())
    }

    /// Returns the number of a slot's replicas in each zone that has some.
    fn in_zones(&self, slot: SlotNumber) -> BTreeMap<&str, usize> {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for node in self.set(slot) {
            *counts.entry(self.zone(*node)).or_default() += 1;
        }
        counts
    }

    /// Returns the number of a slot's replicas in the zone of a node.
    fn in_zone_of(&self, slot: SlotNumber, node: NodeId) -> usize {
        let zone = self.zone(node);
        let in_zone = |other: &&NodeId| self.zone(**other) == zone;
        self.set(slot).iter().filter(in_zone).count()
    }

    fn load(&self, node: NodeId) -> usize {
        self.loads.get(&node).copied().unwrap_or_default()
    }

    fn range(&self, node: NodeId) -> SlotRange {
        self.ranges.get(&node).copied().unwrap_or_default()
    }

    /// Returns how many more slots a node may have; negative if it has too many.
    fn spare(&self, node: NodeId) -> isize {
        self.range(node).most as isize - self.load(node) as isize
    }

    fn lacks_slots(&self, node: NodeId) -> bool {
        self.load(node) < self.range(node).least
    }

    /// Returns the nodes that may get slots.
    fn gaining(&self) -> impl Iterator<Item = NodeId> {
        let gains = move |id: &NodeId| self.nodes.get(id).is_some_and(PlacementNode::gains_slots);
        self.ranges.keys().copied().filter(gains)
    }

    fn add(&mut self, slot: SlotNumber, node: NodeId) {
        if self.sets.entry(slot).or_default().insert(node) {
            *self.loads.entry(node).or_default() += 1;
        }
    }

    fn remove(&mut self, slot: SlotNumber, node: NodeId) {
        if self.sets.entry(slot).or_default().remove(&node) {
            let load = self.loads.entry(node).or_default();
            *load = load.saturating_sub(1);
        }
    }

    fn apply(&mut self, shift: &Shift) {
        self.remove(shift.slot, shift.from);
        self.add(shift.slot, shift.to);
    }

    /// Returns the replica that a slot can best do without: one in the zone with the most, on the
    /// node with the least room.
    fn first_to_go(&self, slot: SlotNumber) -> Option<NodeId> {
        let in_zones = self.in_zones(slot);
        let key = |node: &NodeId| {
            let rank = Reverse((self.spare(*node), score(slot, *node), *node));
            (in_zones.get(self.zone(*node)).copied(), rank)
        };
        self.set(slot).iter().copied().max_by_key(key)
    }

    /// Returns the node that is best for one more replica of a slot: in a zone with the fewest, and
    /// preferably one that lacks slots, or has room.
    fn first_to_come(&self, slot: SlotNumber) -> Option<NodeId> {
        let free = |node: &NodeId| !self.set(slot).contains(node);
        let room = |node: NodeId| match self.lacks_slots(node) {
            true => isize::MAX,
            // All nodes with room are equal.
            false => self.spare(node).min(1),
        };
        let in_zones = self.in_zones(slot);
        let key = |node: &NodeId| {
            let rank = (room(*node), score(slot, *node), *node);
            (Reverse(in_zones.get(self.zone(*node)).copied()), rank)
        };
        self.gaining().filter(free).max_by_key(key)
    }

    /// Removes replicas while there are too many.
    fn trim(&mut self, slot: SlotNumber) {
        while self.set(slot).len() > self.copies
            && let Some(node) = self.first_to_go(slot)
        {
            self.remove(slot, node);
        }
    }

    /// Adds replicas while there are too few.
    fn fill(&mut self, slot: SlotNumber) {
        while self.set(slot).len() < self.copies
            && let Some(node) = self.first_to_come(slot)
        {
            self.add(slot, node);
        }
    }

    /// Moves replicas from zones with more than necessary to zones with fewer.
    fn spread(&mut self, slot: SlotNumber) {
        while let (Some(from), Some(to)) = (self.first_to_go(slot), self.first_to_come(slot)) {
            if self.in_zone_of(slot, from) < self.in_zone_of(slot, to) + 2 {
                return;
            }
            self.apply(&Shift { slot, from, to });
        }
    }

    /// Moves slots from nodes that have too many; returns whether it moved any.
    fn relieve(&mut self) -> bool {
        let mut has_moved = false;
        let all: Vec<NodeId> = self.ranges.keys().copied().collect();
        for from in all {
            while self.spare(from) < 0 {
                let mut to: Vec<NodeId> = self.gaining().filter(|to| self.spare(*to) > 0).collect();
                to.sort_by_key(|to| Reverse((self.lacks_slots(*to), self.spare(*to), *to)));
                let shift = to.into_iter().find_map(|to| self.shift(from, to));
                let Some(shift) = shift else {
                    break;
                };
                self.apply(&shift);
                has_moved = true;
            }
        }
        has_moved
    }

    /// Moves slots to nodes that have too few; returns whether it moved any.
    fn supply(&mut self) -> bool {
        let mut has_moved = false;
        let all: Vec<NodeId> = self.gaining().collect();
        for to in all {
            while self.lacks_slots(to) {
                let gives = |from: &NodeId| {
                    let load = self.load(*from);
                    load > self.range(*from).least && load >= self.load(to) + 2
                };
                let from = self.ranges.keys().copied().filter(gives);
                let mut from: Vec<NodeId> = from.collect();
                from.sort_by_key(|from| (self.spare(*from), *from));
                let shift = from.into_iter().find_map(|from| self.shift(from, to));
                let Some(shift) = shift else {
                    break;
                };
                self.apply(&shift);
                has_moved = true;
            }
        }
        has_moved
    }

    /// Returns the best slot to move from a node to another one, without more replicas in one zone
    /// than before: preferably a slot that moves anyway.
    fn shift(&self, from: NodeId, to: NodeId) -> Option<Shift> {
        let in_same_zone = self.zone(from) == self.zone(to);
        let may_move = |slot: &SlotNumber| {
            let set = self.set(*slot);
            let moves = set.contains(&from) && !set.contains(&to);
            moves && (in_same_zone || self.in_zone_of(*slot, to) < self.in_zone_of(*slot, from))
        };
        let key = |slot: &SlotNumber| (!self.has_now(*slot, from), score(*slot, to), *slot);
        let slot = self.sets.keys().copied().filter(may_move).max_by_key(key)?;
        Some(Shift { slot, from, to })
    }

    /// Keeps nodes that leave while there are no others, preferably those that are up.
    fn keep_leaving(&mut self, slot: SlotNumber) {
        let lacks = self.copies.saturating_sub(self.set(slot).len());
        let before = self.current.get(&slot).unwrap_or(&NO_NODES);
        let is_up = |id: &NodeId| self.nodes.get(id).is_some_and(PlacementNode::is_up);
        let leaves = |id: &NodeId| self.nodes.contains_key(id) && !self.set(slot).contains(id);
        let mut leaving: Vec<NodeId> = before.iter().copied().filter(leaves).collect();
        leaving.sort_by_key(|id| (!is_up(id), *id));
        let kept = leaving.into_iter().take(lacks);
        self.sets.entry(slot).or_default().extend(kept);
    }
}
