//! The steps from the replicas that slots have to those that they should have.
//!
//! A node learns before it counts, and a replica is added before another one is removed: a slot
//! never has fewer replicas than it should have, and always a majority that has its data.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use cluster::{NodeId, SlotNumber};

use super::nodes::{PlacementNode, PlacementNodes};
use super::rendezvous::score;

/// Maximum number of slots that a node copies from others and to others at a time, together.
pub const MOVES_PER_NODE: usize = 2;

/// A node that has a slot, or is copying it, and does not count among its replicas yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Learner {
    /// The replica that it copies.
    pub from: NodeId,
    /// It lacks little, so that it may count.
    pub has_learned: bool,
}

/// The replicas of a slot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlotReplicas {
    /// The nodes that it should have. An empty set stands for those that it has.
    pub wanted: BTreeSet<NodeId>,
    /// Those that count.
    pub replicas: BTreeSet<NodeId>,
    /// Those that do not count.
    pub learners: BTreeMap<NodeId, Learner>,
}

impl SlotReplicas {
    /// Returns whether there is nothing to do.
    pub fn is_settled(&self) -> bool {
        self.replicas == self.wanted && self.learners.is_empty()
    }
}

/// A step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Move {
    /// A node that does not count drops the slot.
    Forget {
        /// The slot.
        slot: SlotNumber,
        /// The node.
        node: NodeId,
    },
    /// A replica counts no longer.
    Remove {
        /// The slot.
        slot: SlotNumber,
        /// The node.
        node: NodeId,
    },
    /// A node that has learned counts from now on.
    Add {
        /// The slot.
        slot: SlotNumber,
        /// The node.
        node: NodeId,
    },
    /// A node copies the slot.
    Learn {
        /// The slot.
        slot: SlotNumber,
        /// The node.
        node: NodeId,
        /// The replica that it copies.
        from: NodeId,
    },
}

/// The rules of steps: tests leave some out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MoveRules {
    /// A node counts only once it has learned.
    pub learns_first: bool,
    /// A replica is removed only once the slot has another one for it.
    pub adds_first: bool,
    /// See [`MOVES_PER_NODE`].
    pub moves_per_node: usize,
}

impl Default for MoveRules {
    fn default() -> MoveRules {
        MoveRules {
            learns_first: true,
            adds_first: true,
            moves_per_node: MOVES_PER_NODE,
        }
    }
}

/// Returns the steps that may be taken now, in any order: at most one change of the replicas of
/// each slot.
pub fn next_moves(
    slots: &BTreeMap<SlotNumber, SlotReplicas>,
    nodes: &PlacementNodes,
    rules: MoveRules,
) -> Vec<Move> {
    let mut moves = vec![];
    let mut waiting = vec![];
    let mut counts = MoveCounts::default();
    for (number, replicas) in slots.iter().filter(|(_, of)| !of.is_settled()) {
        let slot = Slot {
            number: *number,
            replicas,
            nodes,
            rules,
        };
        slot.learning().for_each(|(node, of)| counts.add(node, of));
        moves.extend(slot.forgets());
        if slot.has_majority() {
            moves.extend(slot.removal().or_else(|| slot.addition()));
            waiting.extend(slot.next_learner().map(|node| (slot, node)));
        }
    }
    // Slots with few copies come first.
    waiting.sort_by_key(|(slot, _)| (slot.live().count(), slot.number));
    for (slot, node) in waiting {
        let has_room = |node: &NodeId| counts.of(*node) < rules.moves_per_node;
        let free = slot.live().filter(has_room);
        let from = free.min_by_key(|from| (counts.of(*from), Reverse(score(slot.number, *from))));
        let Some(from) = from.filter(|_| has_room(&node)) else {
            continue;
        };
        counts.add(node, from);
        moves.push(Move::Learn {
            slot: slot.number,
            node,
            from,
        });
    }
    moves
}

/// The number of slots that each node copies, from others or to others.
#[derive(Default)]
struct MoveCounts(BTreeMap<NodeId, usize>);

impl MoveCounts {
    fn of(&self, node: NodeId) -> usize {
        self.0.get(&node).copied().unwrap_or_default()
    }

    fn add(&mut self, node: NodeId, from: NodeId) {
        *self.0.entry(node).or_default() += 1;
        *self.0.entry(from).or_default() += 1;
    }
}

#[derive(Clone, Copy)]
struct Slot<'a> {
    number: SlotNumber,
    replicas: &'a SlotReplicas,
    nodes: &'a PlacementNodes,
    rules: MoveRules,
}

impl<'a> Slot<'a> {
    fn is_up(&self, node: NodeId) -> bool {
        self.nodes.get(&node).is_some_and(PlacementNode::is_up)
    }

    /// Returns the replicas that are up.
    fn live(self) -> impl Iterator<Item = NodeId> + 'a {
        let all = self.replicas.replicas.iter().copied();
        all.filter(move |node| self.is_up(*node))
    }

    fn has_majority(&self) -> bool {
        is_majority(self.live().count(), self.replicas.replicas.len())
    }

    /// Returns the nodes that copy the slot now, each with the replica that it copies.
    fn learning(self) -> impl Iterator<Item = (NodeId, NodeId)> + 'a {
        let all = self.replicas.learners.iter();
        let copying = all.filter(move |(node, of)| !of.has_learned && self.is_up(**node));
        copying.map(|(node, of)| (*node, of.from))
    }

    /// Returns the steps of nodes that do not count, and should not.
    fn forgets(self) -> impl Iterator<Item = Move> + 'a {
        let SlotReplicas {
            wanted,
            replicas,
            learners,
        } = self.replicas;
        let is_idle = move |node: &&NodeId| {
            !wanted.is_empty() && !wanted.contains(*node) && !replicas.contains(*node)
        };
        let slot = self.number;
        let idle = learners.keys().filter(is_idle);
        idle.map(move |node| Move::Forget { slot, node: *node })
    }

    /// Returns the removal of a replica that leaves. One that is up counts until the slot has all
    /// that it should have without it, since it may have what others lost.
    fn removal(&self) -> Option<Move> {
        let SlotReplicas {
            wanted, replicas, ..
        } = self.replicas;
        let is_due = replicas.len() > wanted.len() || !self.rules.adds_first;
        if wanted.is_empty() || !is_due {
            return None;
        }
        let leaving = || replicas.difference(wanted).copied();
        let down = leaving().find(|node| !self.is_up(*node));
        let up = || leaving().max_by_key(|node| (self.zones_without(*node), Reverse(*node)));
        let node = down.or_else(up)?;
        let live = self.live().filter(|other| *other != node).count();
        let has_enough = down.is_some() || live >= wanted.len() || !self.rules.adds_first;
        let may = has_enough && is_majority(live, replicas.len() - 1);
        may.then_some(Move::Remove {
            slot: self.number,
            node,
        })
    }

    /// Returns the number of zones of the replicas that are up, without one of them.
    fn zones_without(&self, node: NodeId) -> usize {
        let others = self.live().filter(|other| *other != node);
        let zones = others.filter_map(|other| self.nodes.get(&other));
        let zones: BTreeSet<&str> = zones.map(|node| node.zone.as_str()).collect();
        zones.len()
    }

    /// Returns the addition of a node that has learned. A slot has at most one replica more than it
    /// should have.
    fn addition(&self) -> Option<Move> {
        let SlotReplicas {
            wanted,
            replicas,
            learners,
        } = self.replicas;
        if replicas.len() > wanted.len() {
            return None;
        }
        let has_learned = |node: &NodeId| {
            let learner = learners.get(node);
            learner.is_some_and(|learner| learner.has_learned || !self.rules.learns_first)
        };
        let mut missing = wanted.difference(replicas).copied();
        let node = missing.find(|node| self.is_up(*node) && has_learned(node))?;
        let may = is_majority(self.live().count() + 1, replicas.len() + 1);
        may.then_some(Move::Add {
            slot: self.number,
            node,
        })
    }

    /// Returns the node that should learn the slot next: one at a time, unless it went down.
    fn next_learner(&self) -> Option<NodeId> {
        let SlotReplicas {
            wanted,
            replicas,
            learners,
        } = self.replicas;
        if learners.keys().any(|node| self.is_up(*node)) {
            return None;
        }
        let missing = wanted.difference(replicas).copied();
        let free = missing.filter(|node| self.is_up(*node) && !learners.contains_key(node));
        free.max_by_key(|node| (score(self.number, *node), *node))
    }
}

fn is_majority(live: usize, all: usize) -> bool {
    2 * live > all
}
