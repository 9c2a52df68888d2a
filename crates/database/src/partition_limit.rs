//! How large a partition may become: `[couchdb] max_partition_size`.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use document::{DocId, EditDoc};
use parking_lot::Mutex;

use crate::database::Database;
use crate::{EditMode, Error, Outcome};

/// Partitions whose room is remembered.
const PARTITIONS_MAX: usize = 10_000;

/// A limit for all databases.
pub(crate) type SharedLimit = Arc<AtomicU64>;

/// Known room of partitions, so that not every write counts their contents.
#[derive(Default)]
pub(crate) struct Room {
    /// The limit that `left` was counted by.
    max_bytes: u64,
    /// Bytes that may be written to a partition before it is counted again. Deletions since the
    /// count only increase the room.
    left: HashMap<String, u64>,
}

impl Room {
    /// Takes `bytes` for a write; returns false when the partition must be counted.
    fn take(&mut self, partition: &str, bytes: u64, max_bytes: u64) -> bool {
        if self.max_bytes != max_bytes || self.left.len() >= PARTITIONS_MAX {
            self.max_bytes = max_bytes;
            self.left.clear();
        }
        match self.left.get_mut(partition) {
            Some(left) if *left >= bytes => {
                *left -= bytes;
                true
            }
            _ => false,
        }
    }
}

impl Database {
    /// Replaces edits that a full partition cannot hold by their refusal. Deletions are accepted,
    /// and edits that do not enlarge a document; so are edits that other servers accepted, which
    /// are the replicated ones.
    pub(crate) fn refuse_overflows(
        &self,
        edits: Vec<Result<EditDoc, Outcome>>,
        mode: EditMode,
    ) -> Result<Vec<Result<EditDoc, Outcome>>, Error> {
        if !self.is_partitioned() || mode == EditMode::Replicated {
            return Ok(edits);
        }
        let check = |edit: Result<EditDoc, Outcome>| match edit {
            Ok(doc) => Ok(match self.overflow(&doc)? {
                Some(id) => Err(Outcome::Refused(
                    "partition_overflow".into(),
                    format!("Partition limit exceeded due to update on '{id}'").into(),
                )),
                None => Ok(doc),
            }),
            refused => Ok(refused),
        };
        edits.into_iter().map(check).collect()
    }

    /// The document's id, when its partition has no room for it.
    fn overflow<'a>(&self, doc: &'a EditDoc) -> Result<Option<&'a DocId>, Error> {
        let Some(id) = doc
            .id
            .as_ref()
            .filter(|id| !id.is_design() && !id.is_local())
        else {
            return Ok(None);
        };
        let Some((partition, _)) = id.as_str().split_once(':').filter(|_| !doc.deleted) else {
            return Ok(None);
        };
        let max_bytes = self.partition_limit().load(Relaxed);
        let shard = self.shard_for(id.as_str());
        let bytes = doc.body.len() as u64;
        // A partition is no larger than the shard that it is in.
        if shard.meta().external_bytes < max_bytes
            || self
                .partition_room()
                .lock()
                .take(partition, bytes, max_bytes)
        {
            return Ok(None);
        }
        let held_bytes = self.partition_info(partition)?.external_bytes;
        if held_bytes < max_bytes {
            let left = (max_bytes - held_bytes).saturating_sub(bytes);
            let mut room = self.partition_room().lock();
            room.left.insert(partition.to_owned(), left);
            return Ok(None);
        }
        let record = shard.record(id.as_str())?;
        let old_bytes = record.map_or(0, |record| record.leaf_bytes());
        Ok((bytes > old_bytes).then_some(id))
    }
}

/// The room of one database's partitions.
pub(crate) type SharedRoom = Mutex<Room>;
