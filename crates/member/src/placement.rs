//! Which slot has which shard.

use cluster::SlotNumber;
use database::DatabaseUuid;

/// The slot of a database's shard with this index, of so many slots: the shards of a database are in slots one after another.
pub fn slot_of(uuid: DatabaseUuid, shard: usize, slots: SlotNumber) -> SlotNumber {
    // Random already.
    let mut first = [0; 8];
    first.copy_from_slice(&uuid.as_bytes()[8..]);
    let slots = u64::from(slots.max(1));
    let slot = (u64::from_be_bytes(first) % slots + shard as u64) % slots;
    slot as SlotNumber
}
