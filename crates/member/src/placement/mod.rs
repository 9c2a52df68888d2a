//! Assigns shards to slots, and slots to nodes.
//!
//! Pure functions over what is known of the cluster: [`wanted_sets`] returns the nodes that each
//! slot should have, [`next_moves`] the steps towards them that may be taken now.

mod limits;
mod moves;
mod nodes;
#[cfg(test)]
mod properties;
mod rendezvous;
#[cfg(test)]
mod simulation;
mod slots;
mod wanted;

pub use limits::{SlotRange, slot_ranges};
pub use moves::{Learner, MOVES_PER_NODE, Move, MoveRules, SlotReplicas, next_moves};
pub use nodes::{PlacementNode, PlacementNodes, REPLACED_AFTER};
pub use slots::{ShardSlots, slot_of};
pub use wanted::{SlotSets, wanted_sets, wanted_sets_with};
