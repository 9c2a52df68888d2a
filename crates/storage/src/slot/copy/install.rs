//! Installs a copy of a slot: one batch.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::Error;
use crate::commit::Put;
use crate::keys::ShardNumber;
use crate::shard::Shard;
use crate::slot::pending::{Changes, Draft, Pending};
use crate::slot::rows::{self, HEAD, Head, STATE};
use crate::slot::{Position, SlotNumber, SlotRows};

/// The contents of the batch that installs a copy of a slot.
#[derive(Clone, Default)]
pub struct Install {
    /// The slot's current position; `None` when it is new. It must not have moved.
    pub from: Option<Position>,
    /// Rows of the slot's own with these key prefixes stay as they are here; those of the copy are
    /// ignored.
    pub keep: Vec<Vec<u8>>,
    /// New values of rows of the slot's own, or their removal.
    pub state: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    /// The caller's own puts, such as records of databases that name the new shards.
    pub puts: Vec<Put>,
    /// The shards that the new ones replace. Nothing is written to them any more. Once their index
    /// builds have ended, the caller notes them as dropped ([`crate::Store::note_dropped`]).
    pub replaced: Vec<Arc<Shard>>,
    /// Shards of the copy that nothing names, by their numbers here: they are removed.
    pub unwanted: Vec<ShardNumber>,
}

/// The operation for the commit thread.
pub(crate) struct Installation {
    pub slot: SlotNumber,
    pub from: Option<Position>,
    pub keep: Vec<Vec<u8>>,
    pub state: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    /// The whole copy, by keys after the slot's number.
    pub rows: SlotRows,
    pub puts: Vec<Put>,
    pub replaced: Vec<Arc<Shard>>,
    /// It was not refused.
    pub is_applied: AtomicBool,
}

impl Installation {
    /// Returns its approximate size in a batch.
    pub fn bytes(&self) -> usize {
        let rows = self.rows.iter().map(|(k, v)| k.len() + v.len() + 64);
        let puts = self.puts.iter();
        let puts = puts.map(|(_, k, v)| k.len() + v.as_ref().map_or(0, Vec::len) + 64);
        rows.sum::<usize>() + puts.sum::<usize>()
    }
}

impl Pending {
    /// Replaces the rows of a slot by those of a copy. A refusal leaves no trace.
    pub(crate) fn install(&mut self, installation: &Installation) -> Result<(), Error> {
        let slot = installation.slot;
        let draft = Draft::new(self, slot);
        let head = draft.get(&rows::key(slot, HEAD, &[]))?;
        let stored = head.map(|row| Head::decode(&row)).transpose()?;
        let stored = stored.map(|head| head.position);
        if stored != installation.from {
            return Err(Error::SlotPosition {
                slot,
                stored: stored.map(Box::new),
                from: installation.from.map(Box::new),
            });
        }
        let mut changes = Changes::new();
        for (rest, value) in &installation.rows {
            if let Some((kind, rest)) = rest.split_first() {
                changes.insert(rows::key(slot, *kind, rest), Some(value.clone()));
            }
        }
        for prefix in &installation.keep {
            let prefix = rows::key(slot, STATE, prefix);
            changes.retain(|key, _| !key.starts_with(&prefix));
            let kept = draft.rows(&prefix)?.into_iter();
            changes.extend(kept.map(|(key, value)| (key, Some(value))));
        }
        for (key, value) in &installation.state {
            changes.insert(rows::key(slot, STATE, key), value.clone());
        }
        self.drop_slot(slot);
        self.add(changes);
        Ok(())
    }
}
