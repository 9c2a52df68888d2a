//! Assigns shards to slots.

use std::sync::Arc;

use cluster::SlotNumber;
use database::DatabaseUuid;

/// The slots of a database's shards.
#[derive(Clone, Debug)]
pub struct ShardSlots {
    uuid: DatabaseUuid,
    /// The number of data slots of the cluster.
    slots: SlotNumber,
    /// One for each shard; `None` for those of [`slot_of`].
    explicit: Option<Arc<[SlotNumber]>>,
}

impl ShardSlots {
    /// Creates them, for a cluster with this number of data slots.
    pub fn new(
        uuid: DatabaseUuid,
        slots: SlotNumber,
        explicit: Option<Arc<[SlotNumber]>>,
    ) -> ShardSlots {
        ShardSlots {
            uuid,
            slots,
            explicit,
        }
    }

    /// Returns the slot of the shard with this index.
    pub fn of(&self, shard: usize) -> SlotNumber {
        let explicit = self.explicit.as_ref();
        let explicit = explicit.and_then(|slots| slots.get(shard).copied());
        explicit.unwrap_or_else(|| slot_of(self.uuid, shard, self.slots))
    }

    /// Returns the slots of the first `shards` shards, sorted, each once.
    pub fn all(&self, shards: usize) -> Vec<SlotNumber> {
        let mut all: Vec<SlotNumber> = (0..shards).map(|shard| self.of(shard)).collect();
        all.sort_unstable();
        all.dedup();
        all
    }
}

/// Returns the slot of a shard of a database without explicit slots: its shards are in consecutive
/// ones.
pub fn slot_of(uuid: DatabaseUuid, shard: usize, slots: SlotNumber) -> SlotNumber {
    // The uuid is random already.
    let mut first = [0; 8];
    first.copy_from_slice(&uuid.as_bytes()[8..]);
    let slots = u64::from(slots.max(1));
    let slot = (u64::from_be_bytes(first) % slots + shard as u64) % slots;
    slot as SlotNumber
}
