//! Assigns shards to slots.

use cluster::SlotNumber;
use database::DatabaseUuid;

/// Returns the slot of a database's shard with this index: the shards of a database are in
/// consecutive slots.
pub fn slot_of(uuid: DatabaseUuid, shard: usize, slots: SlotNumber) -> SlotNumber {
    // The uuid is random already.
    let mut first = [0; 8];
    first.copy_from_slice(&uuid.as_bytes()[8..]);
    let slots = u64::from(slots.max(1));
    let slot = (u64::from_be_bytes(first) % slots + shard as u64) % slots;
    slot as SlotNumber
}
