//! Which nodes have which slots: the part of the cluster-wide state that placement decides on.

use std::collections::BTreeMap;

use cluster::{NodeId, SlotNumber};
use serde::{Deserialize, Serialize};

use super::entry::EntryOutcome;
use super::placement_entry::{PlacedLearner, PlacedSlot, PlacementChange, SlotPlacement};
use super::rows::{Row, json, text};

/// The placement of slots on nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlacementState {
    /// The number of nodes that have each slot; `None`: all of them.
    pub copies: Option<u32>,
    /// Members that have a zone, or are being drained, by number.
    pub nodes: BTreeMap<NodeId, NodePlacement>,
    /// Slots with explicit nodes.
    pub slots: BTreeMap<SlotNumber, SlotPlacement>,
    /// The number of the last decision about slots.
    pub decision: u64,
}

/// Where a member is, and whether it gets slots.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodePlacement {
    /// Its zone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// Its slots move to other nodes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_draining: bool,
}

/// Rows of a change, or why it is not made.
type Changed = Result<Vec<Row>, EntryOutcome>;

const NODE: u8 = b'z';
/// Not `p`: parts of long entries have that.
const SLOT: u8 = b'w';
const COPIES: &[u8] = b"n";
const DECISION: &[u8] = b"o";

impl PlacementState {
    /// Returns whether rows with this key belong to it.
    pub(crate) fn owns(key: &[u8]) -> bool {
        matches!(key.first(), Some(&(NODE | SLOT | b'n' | b'o')))
    }

    /// Decodes a row that it owns; `None` for an invalid one.
    pub(super) fn load(&mut self, key: &[u8], value: &[u8]) -> Option<()> {
        let (&kind, rest) = key.split_first()?;
        match kind {
            NODE => {
                let node = NodeId::from_be_bytes(rest.try_into().ok()?);
                self.nodes.insert(node, json(value)?);
            }
            SLOT => {
                let slot = SlotNumber::from_be_bytes(rest.try_into().ok()?);
                self.slots.insert(slot, json(value)?);
            }
            _ if key == COPIES => self.copies = Some(json(value)?),
            _ if key == DECISION => self.decision = json(value)?,
            _ => return None,
        }
        Some(())
    }

    /// Returns whether a node is being drained.
    pub fn is_draining(&self, node: NodeId) -> bool {
        self.nodes.get(&node).is_some_and(|node| node.is_draining)
    }

    /// Returns the zone of a node; the empty name if it has none.
    pub fn zone(&self, node: NodeId) -> &str {
        let zone = self.nodes.get(&node).and_then(|node| node.zone.as_deref());
        zone.unwrap_or_default()
    }

    /// Applies a change in a cluster with these members. Returns the rows that change.
    ///
    /// # Errors
    /// Why there is no change.
    pub(crate) fn change(&mut self, change: PlacementChange, members: &[NodeId]) -> Changed {
        let is_member = |node: &NodeId| match members.contains(node) {
            true => Ok(()),
            false => Err(EntryOutcome::Missing),
        };
        match change {
            PlacementChange::Zone { node, zone } => {
                is_member(&node)?;
                self.set_zone(node, zone)
            }
            PlacementChange::Drain { node } => {
                is_member(&node)?;
                self.drain(node, members)
            }
            PlacementChange::Undrain { node } => {
                is_member(&node)?;
                self.undrain(node)
            }
            PlacementChange::Copies { copies } => self.set_copies(copies, members),
            PlacementChange::Place { slots, decision } => self.place(slots, decision, members),
        }
    }

    /// Sets the zone of a member.
    fn set_zone(&mut self, node: NodeId, zone: Option<String>) -> Changed {
        let before = self.nodes.get(&node).cloned().unwrap_or_default();
        if before.zone == zone {
            return Err(EntryOutcome::Exists);
        }
        Ok(vec![self.set_node(node, NodePlacement { zone, ..before })])
    }

    /// Drains one of these members. Refused if the others are too few for the copies of a slot:
    /// every member has one, unless a number was set.
    fn drain(&mut self, node: NodeId, members: &[NodeId]) -> Changed {
        if self.is_draining(node) {
            return Err(EntryOutcome::Exists);
        }
        let left = self.keeping(members) - 1;
        match self.copies {
            Some(copies) if left >= copies as usize => Ok(vec![self.set_draining(node, true)]),
            _ => Err(EntryOutcome::Refused),
        }
    }

    /// Ends the draining of a member.
    fn undrain(&mut self, node: NodeId) -> Changed {
        match self.is_draining(node) {
            true => Ok(vec![self.set_draining(node, false)]),
            false => Err(EntryOutcome::Exists),
        }
    }

    /// Sets the number of copies. Refused if these members are too few. `None` puts every slot on
    /// all nodes.
    fn set_copies(&mut self, copies: Option<u32>, members: &[NodeId]) -> Changed {
        if copies == self.copies {
            return Err(EntryOutcome::Exists);
        }
        let keeping = self.keeping(members);
        let may = match copies {
            Some(copies) => (1..=keeping).contains(&(copies as usize)),
            None => keeping == members.len(),
        };
        if !may {
            return Err(EntryOutcome::Refused);
        }
        self.copies = copies;
        let value = copies.map(|copies| text(&copies));
        let mut rows = vec![(COPIES.to_vec(), value)];
        if copies.is_none() {
            let slots = std::mem::take(&mut self.slots);
            rows.extend(slots.into_keys().map(|slot| (slot_key(slot), None)));
        }
        Ok(rows)
    }

    /// Makes a decision about slots. One that was made before the last one, or before every node
    /// got every slot again, has no effect.
    fn place(&mut self, slots: Vec<PlacedSlot>, decision: u64, members: &[NodeId]) -> Changed {
        if decision <= self.decision || self.copies.is_none() {
            return Err(EntryOutcome::Exists);
        }
        self.decision = decision;
        let mut rows = vec![(DECISION.to_vec(), Some(text(&decision)))];
        for PlacedSlot {
            slot,
            mut placement,
        } in slots
        {
            placement.wanted.retain(|node| members.contains(node));
            let is_member = |learner: &PlacedLearner| members.contains(&learner.node);
            placement.learners.retain(is_member);
            rows.push((slot_key(slot), Some(text(&placement))));
            self.slots.insert(slot, placement);
        }
        Ok(rows)
    }

    /// Forgets a node that is not a member any more.
    pub(super) fn forget(&mut self, node: NodeId) -> Vec<Row> {
        let mut rows = vec![];
        if self.nodes.remove(&node).is_some() {
            rows.push((node_key(node), None));
        }
        for (slot, placement) in &mut self.slots {
            let learners = placement.learners.len();
            placement.learners.retain(|learner| learner.node != node);
            if placement.wanted.remove(&node) || placement.learners.len() < learners {
                rows.push((slot_key(*slot), Some(text(placement))));
            }
        }
        rows
    }

    /// Returns whether a node copies a slot, or follows it without counting.
    pub(crate) fn learns(&self, node: NodeId, slot: SlotNumber) -> bool {
        let of = self.slots.get(&slot);
        of.is_some_and(|of| of.learners.iter().any(|learner| learner.node == node))
    }

    /// Returns the number of slots without a majority of their replicas if a node leaves now.
    pub(crate) fn slots_that_need(&self, node: NodeId, is_live: impl Fn(NodeId) -> bool) -> usize {
        let needs = |of: &&SlotPlacement| {
            let stays = |other: &&NodeId| **other != node && is_live(**other);
            let staying = of.replicas.iter().filter(stays).count();
            of.replicas.contains(&node) && 2 * staying <= of.replicas.len()
        };
        self.slots.values().filter(needs).count()
    }

    /// Returns how many of these members are not being drained.
    fn keeping(&self, members: &[NodeId]) -> usize {
        let kept = members.iter().filter(|node| !self.is_draining(**node));
        kept.count()
    }

    fn set_draining(&mut self, node: NodeId, is_draining: bool) -> Row {
        let before = self.nodes.get(&node).cloned().unwrap_or_default();
        let placement = NodePlacement {
            is_draining,
            ..before
        };
        self.set_node(node, placement)
    }

    /// A node without a zone that is not drained has no row.
    fn set_node(&mut self, node: NodeId, placement: NodePlacement) -> Row {
        if placement == NodePlacement::default() {
            self.nodes.remove(&node);
            return (node_key(node), None);
        }
        let row = (node_key(node), Some(text(&placement)));
        self.nodes.insert(node, placement);
        row
    }
}

fn node_key(node: NodeId) -> Vec<u8> {
    [&[NODE][..], &node.to_be_bytes()].concat()
}

fn slot_key(slot: SlotNumber) -> Vec<u8> {
    [&[SLOT][..], &slot.to_be_bytes()].concat()
}
