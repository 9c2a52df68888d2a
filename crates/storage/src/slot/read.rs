//! Reads the stored data of slots.

use tokio::sync::oneshot;

use super::rows::{self, HEAD, Head, PREFIX_LEN, STATE};
use super::{Position, SlotNumber};
use crate::Error;
use crate::keys::meta;
use crate::keyspace::Keyspace;
use crate::snapshot::Snapshot;
use crate::store::Store;

/// Keys and values, in the order of keys.
pub type SlotRows = Vec<(Vec<u8>, Vec<u8>)>;

impl Snapshot {
    /// Returns the position of a slot's log; `None` when the slot does not exist here.
    ///
    /// # Errors
    /// Errors of the engine, and [`Error::Corrupt`].
    pub fn slot(&self, slot: SlotNumber) -> Result<Option<Position>, Error> {
        let head = self.get(Keyspace::Meta, &rows::key(slot, HEAD, &[]))?;
        let head = head.map(|row| Head::decode(&row)).transpose()?;
        Ok(head.map(|head| head.position))
    }

    /// Returns the rows of a slot's own whose keys start with `prefix`, with the caller's full
    /// keys.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn slot_state(&self, slot: SlotNumber, prefix: &[u8]) -> Result<SlotRows, Error> {
        self.slot_state_starts(slot, prefix, usize::MAX)
    }

    /// Returns the rows of a slot's own whose keys start with `prefix`, with at most the first
    /// `bytes_max` bytes of each value.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn slot_state_starts(
        &self,
        slot: SlotNumber,
        prefix: &[u8],
        bytes_max: usize,
    ) -> Result<SlotRows, Error> {
        let low = rows::key(slot, STATE, prefix);
        let high = rows::prefix_end(&low);
        let mut it = self.iter_range(Keyspace::Meta, low, high);
        let mut found = vec![];
        it.seek_to_first();
        while let Some((key, value)) = it.item() {
            let start = &value[..value.len().min(bytes_max)];
            found.push((key[PREFIX_LEN..].to_vec(), start.to_vec()));
            it.next();
        }
        it.status()?;
        Ok(found)
    }

    /// Returns the slots that exist here.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn slots(&self) -> Result<Vec<SlotNumber>, Error> {
        let low = vec![meta::SLOT];
        let mut it = self.iter_range(Keyspace::Meta, low.clone(), rows::prefix_end(&low));
        let mut slots = vec![];
        it.seek_to_first();
        while let Some(&[_, high, low, kind, ..]) = it.key() {
            let slot = SlotNumber::from_be_bytes([high, low]);
            if kind == HEAD {
                slots.push(slot);
            }
            it.seek(rows::prefix_end(&meta::slot(slot)));
        }
        it.status()?;
        Ok(slots)
    }
}

impl Store {
    /// Returns the position of a slot's log here; `None` when the slot does not exist here.
    ///
    /// # Errors
    /// Errors of the engine, and [`Error::Corrupt`].
    pub fn slot(&self, slot: SlotNumber) -> Result<Option<Position>, Error> {
        self.snapshot().slot(slot)
    }

    /// Returns the rows of a slot's own whose keys start with `prefix`, with the caller's full
    /// keys.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn slot_state(&self, slot: SlotNumber, prefix: &[u8]) -> Result<SlotRows, Error> {
        self.snapshot().slot_state(slot, prefix)
    }

    /// Returns the slots that exist here.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn slots(&self) -> Result<Vec<SlotNumber>, Error> {
        self.snapshot().slots()
    }

    /// Queues the removal of a slot's data: its position, its sessions and its own rows, before a
    /// copy that starts over. Its shards belong to databases and are dropped with these.
    pub fn drop_slot(&self, slot: SlotNumber) -> oneshot::Receiver<Result<(), Error>> {
        self.committer.drop_slot(slot)
    }
}
