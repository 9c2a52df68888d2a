//! Rows of slots as they will be after the batch.

use std::collections::BTreeMap;
use std::sync::Arc;

use rocksdb::WriteBatch;

use super::SlotNumber;
use super::rows::prefix_end;
use crate::Error;
use crate::engine::Engine;
use crate::keys::meta;
use crate::keyspace::Keyspace;

/// The rows of a dropped slot are deleted one by one up to this number: range deletions slow down
/// readers.
const DROP_ROWS_SINGLY: usize = 10_000;

/// New values of rows, and removals.
pub(super) type Changes = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// The effect of a batch on rows of slots, on top of the stored ones.
pub(crate) struct Pending {
    engine: Arc<Engine>,
    changes: Changes,
    /// Slots whose stored rows are all deleted.
    dropped: Vec<SlotNumber>,
}

impl Pending {
    pub(crate) fn new(engine: Arc<Engine>) -> Pending {
        Pending {
            engine,
            changes: Changes::new(),
            dropped: vec![],
        }
    }

    /// Deletes all rows of the slot.
    pub(crate) fn drop_slot(&mut self, slot: SlotNumber) {
        let prefix = meta::slot(slot);
        self.changes.retain(|key, _| !key.starts_with(&prefix));
        self.dropped.push(slot);
    }

    pub(super) fn add(&mut self, mut changes: Changes) {
        self.changes.append(&mut changes);
    }

    /// Adds everything to the batch.
    pub(crate) fn finish(self, wb: &mut WriteBatch) -> Result<(), Error> {
        if self.changes.is_empty() && self.dropped.is_empty() {
            return Ok(());
        }
        for &slot in &self.dropped {
            self.delete_stored(slot, wb)?;
        }
        let cf = self.engine.cf(Keyspace::Meta);
        for (key, value) in self.changes {
            match value {
                Some(value) => wb.put_cf(cf, key, value),
                None => wb.delete_cf(cf, key),
            }
        }
        Ok(())
    }

    fn delete_stored(&self, slot: SlotNumber, wb: &mut WriteBatch) -> Result<(), Error> {
        let cf = self.engine.cf(Keyspace::Meta);
        let (low, high) = range(&meta::slot(slot));
        let snapshot = self.engine.snapshot();
        let mut it = snapshot.iter_range(Keyspace::Meta, low.clone(), high.clone());
        it.seek_to_first();
        let mut keys = vec![];
        while let Some(key) = it.key() {
            if keys.len() >= DROP_ROWS_SINGLY {
                wb.delete_range_cf(cf, low, high);
                return Ok(());
            }
            keys.push(key.to_vec());
            it.next();
        }
        it.status()?;
        keys.iter().for_each(|key| wb.delete_cf(cf, key));
        Ok(())
    }
}

fn range(prefix: &[u8]) -> (Vec<u8>, Vec<u8>) {
    (prefix.to_vec(), prefix_end(prefix))
}

/// The effect of one write on rows of its slot, on top of the earlier part of the batch.
pub(super) struct Draft<'a> {
    pending: &'a Pending,
    pub slot: SlotNumber,
    pub changes: Changes,
    /// The slot's stored rows still exist.
    stored: bool,
}

impl<'a> Draft<'a> {
    pub fn new(pending: &'a Pending, slot: SlotNumber) -> Draft<'a> {
        Draft {
            pending,
            slot,
            changes: Changes::new(),
            stored: !pending.dropped.contains(&slot),
        }
    }

    /// Returns the value of a row.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        for changes in [&self.changes, &self.pending.changes] {
            if let Some(value) = changes.get(key) {
                return Ok(value.clone());
            }
        }
        if !self.stored {
            return Ok(None);
        }
        let stored = self.pending.engine.get(Keyspace::Meta, key)?;
        Ok(stored.map(|value| value.to_vec()))
    }

    /// Returns the rows whose keys start with `prefix`.
    pub fn rows(&self, prefix: &[u8]) -> Result<BTreeMap<Vec<u8>, Vec<u8>>, Error> {
        let (low, high) = range(prefix);
        let mut rows = BTreeMap::new();
        if self.stored {
            let snapshot = self.pending.engine.snapshot();
            let mut it = snapshot.iter_range(Keyspace::Meta, low.clone(), high.clone());
            it.seek_to_first();
            while let Some((key, value)) = it.item() {
                rows.insert(key.to_vec(), value.to_vec());
                it.next();
            }
            it.status()?;
        }
        for changes in [&self.pending.changes, &self.changes] {
            for (key, value) in changes.range(low.clone()..high.clone()) {
                match value {
                    Some(value) => rows.insert(key.clone(), value.clone()),
                    None => rows.remove(key),
                };
            }
        }
        Ok(rows)
    }
}
