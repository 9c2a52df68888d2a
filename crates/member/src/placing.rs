//! Plans of placement for administrators, and the changes that they make.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use cluster::record::RecordVersion;
use cluster::{NodeId, SlotNumber};
use database::{Database, DatabaseUuid};
use serde::Serialize;

use crate::Error;
use crate::control::entry::{Entry, EntryOutcome};
use crate::control::placement_entry::{PlacementChange, SlotPlacement};
use crate::control::state::ControlState;
use crate::gateway::Gateway;
use crate::placement::{PlacementNode, PlacementNodes, SlotSets, wanted_sets_with};
use crate::replicas::Replica;
use crate::slot_holders::holders;

/// Interval at which a node checks whether the cluster knows its zone.
const ZONE_EVERY: Duration = Duration::from_secs(5);

/// The number of slots of each node, as they would be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PlacementPlan {
    /// The number of nodes that have each slot; `None`: all of them.
    pub copies: Option<u32>,
    /// The number of slots that all nodes keep, whatever the number of copies is.
    pub everywhere: usize,
    /// The number of slots that nodes would copy from others.
    pub moves: usize,
    /// All nodes, by name.
    pub nodes: Vec<PlannedNode>,
}

/// The slots of a node, as they would be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PlannedNode {
    /// Its name.
    pub name: String,
    /// Its zone; the empty name if it has none.
    pub zone: String,
    /// It is being drained.
    pub is_draining: bool,
    /// The number of slots that it has.
    pub slots: usize,
    /// The number of slots that it would have.
    pub planned_slots: usize,
    /// The number of those that it would copy.
    pub moves: usize,
}

impl PlacementPlan {
    fn new(
        copies: Option<u32>,
        everywhere: &BTreeSet<SlotNumber>,
        now: &SlotSets,
        nodes: &PlacementNodes,
        names: &BTreeMap<NodeId, String>,
    ) -> PlacementPlan {
        let count = copies.map(|copies| copies as usize);
        let wanted = wanted_sets_with(everywhere, now, nodes, count);
        let has = |sets: &SlotSets, slot: SlotNumber, id: NodeId| {
            sets.get(&slot).is_some_and(|set| set.contains(&id))
        };
        let of_node = |(id, node): (&NodeId, &PlacementNode)| {
            let count = |counts: &dyn Fn(SlotNumber) -> bool| {
                let counted = now.keys().filter(|slot| counts(**slot));
                counted.count()
            };
            PlannedNode {
                name: names.get(id).cloned().unwrap_or_default(),
                zone: node.zone.clone(),
                is_draining: node.is_draining,
                slots: count(&|slot| has(now, slot, *id)),
                planned_slots: count(&|slot| has(&wanted, slot, *id)),
                moves: count(&|slot| has(&wanted, slot, *id) && !has(now, slot, *id)),
            }
        };
        let mut nodes: Vec<PlannedNode> = nodes.iter().map(of_node).collect();
        nodes.sort_by(|a, b| a.name.cmp(&b.name));
        PlacementPlan {
            copies,
            everywhere: everywhere.len(),
            moves: nodes.iter().map(|node| node.moves).sum(),
            nodes,
        }
    }
}

/// The nodes of a slot, by their numbers in hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SlotNodes {
    /// Its number.
    pub slot: SlotNumber,
    /// The nodes that it should have.
    pub wanted: Vec<String>,
    /// Those that it has.
    pub replicas: Vec<String>,
    /// Those that copy it.
    pub learners: Vec<String>,
}

impl SlotNodes {
    fn new(slot: SlotNumber, of: &SlotPlacement) -> SlotNodes {
        let hex = |id: &NodeId| format!("{id:x}");
        let learners = of.learners.iter().map(|learner| &learner.node);
        SlotNodes {
            slot,
            wanted: of.wanted.iter().map(hex).collect(),
            replicas: of.replicas.iter().map(hex).collect(),
            learners: learners.map(hex).collect(),
        }
    }
}

/// The part of a database that a request is about. It matters only if the database is spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatabasePart<'a> {
    /// All of it.
    Whole,
    /// Its properties and design documents, which every node has.
    Shared,
    /// The shard of the document with this id.
    Document(&'a str),
    /// The shards in these slots.
    Slots(&'a [SlotNumber]),
}

/// A database of the catalogue, and its slots.
struct DatabaseSlots {
    uuid: DatabaseUuid,
    slots: Vec<SlotNumber>,
    is_spread: bool,
}

impl Gateway {
    /// Returns whether nodes may lack slots. In other clusters, requests check nothing more.
    pub fn lacks_slots(&self) -> bool {
        self.catalogue.is_placed() || self.replicas.is_partial()
    }

    /// Returns the live nodes that answer for a part of a database, best first; `None` if this
    /// node does.
    pub fn nodes_for(&self, name: &str, part: DatabasePart<'_>) -> Option<Vec<NodeId>> {
        let found = self.slots_by_name(name)?;
        let (uuid, mut slots) = (found.uuid, found.slots);
        if found.is_spread
            && let Ok(db) = self.databases.get(name)
        {
            slots = self.part_slots(&db, part);
        }
        let counts = |slot: &SlotNumber| {
            let replica = self.replicas.get(*slot);
            replica.is_some_and(Replica::is_member)
        };
        // The first node of a cluster, which is the only replica of a new slot, takes itself for
        // one until it has a copy.
        let learns = |state: &ControlState| {
            let mut slots = slots.iter();
            slots.any(|slot| state.placement.learns(self.members.me, *slot))
        };
        if slots.iter().all(counts) && !self.catalogue.with(learns) {
            return None;
        }
        let is_live = |node: NodeId| node != self.members.me && self.members.is_live(node);
        let decided = |state: &ControlState| holders(&state.placement, uuid, &slots, is_live);
        let nodes = self.catalogue.with(decided);
        Some(nodes.unwrap_or_else(|| self.members.live_others()))
    }

    /// Returns whether this node does what one node is to do for a database; `None` while every
    /// node has all of it. For a moment two nodes, or none, may do it.
    pub fn acts_for(&self, name: &str) -> Option<bool> {
        if !self.lacks_slots() {
            return None;
        }
        let DatabaseSlots { uuid, slots, .. } = self.slots_by_name(name)?;
        let is_live = |node: NodeId| self.members.is_live(node);
        let decided = |state: &ControlState| holders(&state.placement, uuid, &slots, is_live);
        let nodes = self.catalogue.with(decided)?;
        Some(nodes.first() == Some(&self.members.me))
    }

    /// Returns whether a database is spread.
    pub fn is_spread(&self, name: &str) -> bool {
        self.slots_by_name(name)
            .is_some_and(|found| found.is_spread)
    }

    /// Returns the slots of a part of a database: of one that is not spread, all.
    pub fn part_slots(&self, db: &Database, part: DatabasePart<'_>) -> Vec<SlotNumber> {
        match part {
            DatabasePart::Slots(slots) if db.is_spread() => slots.to_vec(),
            DatabasePart::Document(id) if db.is_spread() => vec![self.slot(db, id)],
            DatabasePart::Shared if db.is_spread() => self.design_slots(db),
            _ => self.slots(db),
        }
    }

    /// Returns the live nodes that count in a slot, this one too, in the order in which requests
    /// for a database are sent to them.
    pub fn nodes_of_slot(&self, db: &Database, slot: SlotNumber) -> Vec<NodeId> {
        let me = self.members.me;
        let is_live = |node: NodeId| node == me || self.members.is_live(node);
        let uuid = db.uuid();
        let decided = |state: &ControlState| holders(&state.placement, uuid, &[slot], is_live);
        let nodes = self.catalogue.with(decided);
        nodes.unwrap_or_else(|| {
            let others = self.members.live_others().into_iter();
            std::iter::once(me).chain(others).collect()
        })
    }

    /// Returns the slots of a database in the catalogue, and its identity.
    fn slots_by_name(&self, name: &str) -> Option<DatabaseSlots> {
        self.catalogue.with(|state| {
            let database = state.databases.get(name)?;
            Some(DatabaseSlots {
                uuid: database.uuid,
                slots: self.all_slots(database),
                is_spread: database.spread,
            })
        })
    }

    /// Returns the number of slots that would stop if a node left now.
    pub(crate) fn slots_that_need(&self, node: NodeId) -> usize {
        let is_live = |other: NodeId| self.members.is_live(other);
        self.catalogue
            .with(|state| state.slots_that_need(node, is_live))
    }

    /// Returns the number of nodes that have each slot; `None`: all of them.
    pub fn slot_copies(&self) -> Option<u32> {
        self.catalogue.with(|state| state.placement.copies)
    }

    /// Returns the nodes of all data slots that are decided on; none while every node has every
    /// slot.
    pub fn slot_nodes(&self) -> Vec<SlotNodes> {
        self.catalogue.with(|state| {
            let slots = state.placement.slots.iter();
            slots.map(|(slot, of)| SlotNodes::new(*slot, of)).collect()
        })
    }

    /// Returns the nodes that a slot should have, and those that copy it.
    pub fn slot_placement(&self, slot: SlotNumber) -> SlotPlacement {
        self.catalogue.with(|state| {
            let decided = state.placement.slots.get(&slot).cloned();
            let everywhere = || SlotPlacement {
                wanted: state.members.keys().copied().collect(),
                ..SlotPlacement::default()
            };
            match state.placement.copies {
                Some(_) => decided.unwrap_or_else(everywhere),
                None => everywhere(),
            }
        })
    }

    /// Returns the nodes of all slots, as they would be with this number of copies.
    pub fn plan(&self, copies: Option<u32>) -> PlacementPlan {
        let now = (0..self.replicas.count()).map(|slot| (slot, self.holders_of(slot)));
        let names = self.members.all().into_iter();
        let names = names.map(|(id, member)| (id, member.name)).collect();
        let everywhere = match copies {
            Some(_) => self.slots_everywhere(),
            None => Arc::new((0..self.replicas.count()).collect()),
        };
        let nodes = self.members.placement_nodes();
        PlacementPlan::new(copies, &everywhere, &now.collect(), &nodes, &names)
    }

    /// Returns the slots that every node keeps.
    pub(crate) fn slots_everywhere(&self) -> Arc<BTreeSet<SlotNumber>> {
        self.everywhere.of(&self.catalogue, self.replicas.count())
    }

    /// Returns the nodes that count in a slot, as far as is known here.
    pub(crate) fn holders_of(&self, slot: SlotNumber) -> BTreeSet<NodeId> {
        let here = self.replicas.get(slot);
        let here = here.map(|replica| replica.status().members);
        let is_known = |members: &Vec<NodeId>| {
            let is_current = !self.catalogue.is_placed() || members.contains(&self.members.me);
            is_current && !members.is_empty()
        };
        match here.filter(is_known) {
            Some(members) => members.into_iter().collect(),
            None => self.slot_placement(slot).replicas,
        }
    }

    /// Changes the placement of slots.
    ///
    /// # Errors
    /// [`Error::NotNow`].
    pub async fn change_placement(&self, change: PlacementChange) -> Result<EntryOutcome, Error> {
        self.enter(Entry::Placement { change }).await
    }
}

/// Announces the zone of this node once the cluster knows zones, and again if it is another one,
/// until the future is dropped.
pub(crate) async fn announce_zone(gateway: Arc<Gateway>, zone: Option<String>) {
    let node = gateway.members.me;
    let zone = zone.filter(|zone| !zone.is_empty());
    let is_due = || {
        gateway.catalogue.with(|state| {
            let known = state.placement.nodes.get(&node);
            let known = known.and_then(|known| known.zone.as_ref());
            let has_zones = state.agreement.in_force() >= RecordVersion::V4;
            has_zones && state.members.contains_key(&node) && known != zone.as_ref()
        })
    };
    loop {
        if is_due() {
            let zone = zone.clone();
            let change = PlacementChange::Zone { node, zone };
            if let Err(e) = gateway.change_placement(change).await {
                tracing::debug!(error = %e, "the zone of this node was not announced");
            }
        }
        tokio::time::sleep(ZONE_EVERY).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_counts_the_slots_of_nodes_and_their_moves() {
        let node = |zone: &str, is_draining| PlacementNode {
            zone: zone.into(),
            is_draining,
            down_for: None,
        };
        let nodes: PlacementNodes = [
            (1, node("a", false)),
            (2, node("b", false)),
            (3, node("c", true)),
            (4, node("c", false)),
        ]
        .into();
        let names = (1..=4).map(|id| (id, format!("node{id}"))).collect();
        let now: SlotSets = (0..8).map(|slot| (slot, [1, 2, 3].into())).collect();
        let none = BTreeSet::new();
        let plan = PlacementPlan::new(Some(3), &none, &now, &nodes, &names);
        let counts = |node: &PlannedNode| (node.slots, node.planned_slots, node.moves);
        let counts: Vec<_> = plan.nodes.iter().map(counts).collect();
        assert_eq!(counts, [(8, 8, 0), (8, 8, 0), (8, 0, 0), (0, 8, 8)]);
        assert_eq!((plan.moves, plan.nodes[2].is_draining), (8, true));
        let everywhere = PlacementPlan::new(None, &none, &now, &nodes, &names);
        assert_eq!(everywhere.moves, 8);
        assert!(everywhere.nodes.iter().all(|node| node.planned_slots == 8));
        let two = BTreeSet::from([2, 5]);
        let plan = PlacementPlan::new(Some(1), &two, &now, &nodes, &names);
        let all: usize = plan.nodes.iter().map(|node| node.planned_slots).sum();
        // Node 3 is being drained.
        assert_eq!((plan.everywhere, all), (2, 6 + 2 * 3));
    }
}
