//! The nodes that slots are placed on.

use std::collections::BTreeMap;
use std::time::Duration;

use cluster::NodeId;

/// A node that is down for this time is replaced: its slots are copied to other nodes.
pub const REPLACED_AFTER: Duration = Duration::from_mins(30);

/// A member of the cluster, as its placement sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlacementNode {
    /// Its zone. Nodes without one have the zone with the empty name.
    pub zone: String,
    /// Its slots move to other nodes, whether it is up or down.
    pub is_draining: bool,
    /// The time that it has been down; `None` while it is up.
    pub down_for: Option<Duration>,
}

/// All members, by number.
pub type PlacementNodes = BTreeMap<NodeId, PlacementNode>;

impl PlacementNode {
    /// Returns whether it is up.
    pub fn is_up(&self) -> bool {
        self.down_for.is_none()
    }

    /// Returns whether it keeps the slots that it has.
    pub fn keeps_slots(&self) -> bool {
        !self.is_draining && self.down_for.is_none_or(|time| time < REPLACED_AFTER)
    }

    /// Returns whether it may get more slots.
    pub fn gains_slots(&self) -> bool {
        self.keeps_slots() && self.is_up()
    }
}
