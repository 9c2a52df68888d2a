//! Changes of the placement of slots on nodes.

use std::collections::BTreeSet;

use cluster::{NodeId, SlotNumber};
use serde::{Deserialize, Serialize};

/// A change of the placement of slots.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "change", content = "value", rename_all = "snake_case")]
pub enum PlacementChange {
    /// Sets the zone of a member; `None` for no zone.
    Zone {
        /// Its number.
        node: NodeId,
        /// The zone.
        zone: Option<String>,
    },
    /// Moves all slots of a member to others. Refused if the others are too few.
    Drain {
        /// Its number.
        node: NodeId,
    },
    /// Ends the draining of a member.
    Undrain {
        /// Its number.
        node: NodeId,
    },
    /// Sets the number of nodes that have each slot; `None` for all nodes.
    Copies {
        /// The number.
        copies: Option<u32>,
    },
    /// Sets the nodes of slots.
    Place {
        /// The slots that change.
        slots: Vec<PlacedSlot>,
        /// The number of this decision: one that does not exceed the last one is late.
        decision: u64,
    },
}

/// The nodes of a slot from now on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlacedSlot {
    /// Its number.
    pub slot: SlotNumber,
    /// Its nodes.
    #[serde(flatten)]
    pub placement: SlotPlacement,
}

/// The nodes of a slot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotPlacement {
    /// The nodes that it should have.
    pub wanted: BTreeSet<NodeId>,
    /// The nodes that it has: those that count, as one of them reported last.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub replicas: BTreeSet<NodeId>,
    /// The nodes that copy it, or follow it without counting.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub learners: Vec<PlacedLearner>,
}

/// A node that copies a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlacedLearner {
    /// Its number.
    pub node: NodeId,
    /// The replica that it copies.
    pub from: NodeId,
}
