//! Removes the data of a slot that other nodes have from now on.

use std::collections::BTreeMap;
use std::sync::Arc;

use cluster::SlotNumber;
use cluster::slot::StoreError;
use database::{DatabaseUuid, Databases, NewShards};
use storage::{Install, ShardNumber, SlotRemoval};

use crate::control::Catalogue;
use crate::control::state::ControlState;
use crate::slot::{failed, open_error};

/// The shards of a slot, by databases: name, uuid, indexes.
type ShardsOfSlot = BTreeMap<Arc<str>, (DatabaseUuid, Vec<usize>)>;

/// Removes a slot from this node, in a cluster with `slots` data slots: its position, and the
/// contents of its shards, which are empty from now on. The slot must not run here. Continues to
/// the end if the caller stops waiting.
///
/// # Errors
/// Errors of the store: the data stays.
pub(crate) async fn remove_slot(
    databases: &Arc<Databases>,
    catalogue: &Catalogue,
    slots: SlotNumber,
    slot: SlotNumber,
) -> Result<(), StoreError> {
    let shards = catalogue.with(|state| shards_of(state, slots, slot));
    let count: usize = shards.values().map(|(_, shards)| shards.len()).sum();
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    let store = databases.store().clone();
    let reserved = tokio::task::spawn_blocking(move || {
        let from = store.slot(slot)?;
        Ok::<_, storage::Error>((from, SlotRemoval::new(store, slot, count)?))
    });
    let stopped = |_| StoreError::Failed("the server is shutting down".into());
    let (from, removal) = reserved.await.map_err(stopped)?.map_err(failed)?;
    let new = new_shards(shards, removal.numbers());
    let done = databases.replace_shards(new, move |replacement| {
        removal.install(Install {
            from,
            puts: replacement.puts,
            replaced: replacement.replaced,
            unwanted: replacement.unwanted,
            ..Install::default()
        })
    });
    done.await.map_err(open_error)
}

fn shards_of(state: &ControlState, slots: SlotNumber, slot: SlotNumber) -> ShardsOfSlot {
    let mut all = ShardsOfSlot::new();
    for (name, database) in &state.databases {
        let of_shard = database.shard_slots(slots);
        let mine = (0..database.q as usize).filter(|shard| of_shard.of(*shard) == slot);
        let mine: Vec<usize> = mine.collect();
        if !mine.is_empty() {
            all.insert(name.as_str().into(), (database.uuid, mine));
        }
    }
    all
}

/// Returns the shards, each with a number of its own.
fn new_shards(shards: ShardsOfSlot, numbers: &[ShardNumber]) -> Vec<NewShards> {
    let mut numbers = numbers.iter().copied();
    let new = |(name, (uuid, indexes)): (Arc<str>, (DatabaseUuid, Vec<usize>))| NewShards {
        name: Some(name),
        uuid,
        shards: indexes.into_iter().zip(numbers.by_ref()).collect(),
    };
    shards.into_iter().map(new).collect()
}
