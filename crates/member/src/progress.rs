//! The positions that a node has reached: the response to a query of another node.

use cluster::SlotNumber;
use serde::{Deserialize, Serialize};

/// The positions of a node's slots: slot, number of the generation, offset of the next record.
#[derive(Serialize, Deserialize)]
pub(crate) struct Progress(pub Vec<(SlotNumber, u64, u64)>);

impl Progress {
    /// Returns the generation and the offset of a slot.
    pub fn at(&self, slot: SlotNumber) -> Option<(u64, u64)> {
        let found = self.0.iter().find(|(of, ..)| *of == slot);
        found.map(|(_, generation, next_offset)| (*generation, *next_offset))
    }
}
