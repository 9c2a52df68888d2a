//! Removes a slot that other stores have from now on.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::install::{Install, Installation};
use crate::Error;
use crate::keys::{ShardNumber, meta};
use crate::keyspace::Keyspace;
use crate::slot::SlotNumber;
use crate::store::{Store, drop_puts};

/// The removal of a slot: its rows go, and empty shards replace its shards. Nothing has changed if
/// it is dropped before [`SlotRemoval::install`].
pub struct SlotRemoval {
    store: Arc<Store>,
    slot: SlotNumber,
    numbers: Vec<ShardNumber>,
    /// Something may name the new numbers.
    named: bool,
}

impl SlotRemoval {
    /// Reserves the numbers of this many empty shards. Blocks.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn new(store: Arc<Store>, slot: SlotNumber, shards: u32) -> Result<SlotRemoval, Error> {
        let numbers = match shards {
            0 => vec![],
            shards => store.reserve_shards(shards)?,
        };
        Ok(SlotRemoval {
            store,
            slot,
            numbers,
            named: false,
        })
    }

    /// Returns the numbers of the empty shards.
    pub fn numbers(&self) -> &[ShardNumber] {
        &self.numbers
    }

    /// Removes the slot's rows, also those that the caller would keep or set; they, the caller's
    /// puts and the drop of the replaced shards are one batch, which is on disk when this returns.
    /// Blocks.
    ///
    /// # Errors
    /// [`Error::SlotPosition`] when the slot is not at the caller's position, [`Error::Dropped`]
    /// when a shard to be replaced is gone: the old state stays. After errors of the engine the
    /// next start shows which state it is.
    pub fn install(mut self, install: Install) -> Result<(), Error> {
        let mut puts: Vec<_> = drop_puts(&install.replaced).collect();
        let wanted = self.numbers.iter();
        let wanted = wanted.filter(|number| !install.unwanted.contains(number));
        puts.extend(wanted.map(|number| (Keyspace::Meta, meta::dropped(*number).to_vec(), None)));
        puts.extend(install.puts);
        let done = self.store.committer.install(Installation {
            slot: self.slot,
            from: install.from,
            keep: vec![],
            state: vec![],
            rows: vec![],
            puts,
            replaced: install.replaced,
            is_applied: AtomicBool::new(false),
        });
        let done = done.blocking_recv().map_err(|_| Error::Closed);
        let done = done.and_then(|done| done);
        // After an error of the engine the batch may be in the log.
        self.named = matches!(done, Ok(()) | Err(Error::Engine(_) | Error::Closed));
        if done.is_ok() {
            self.store.note_dropped(&install.unwanted);
        }
        done
    }
}

impl Drop for SlotRemoval {
    fn drop(&mut self) {
        if !self.named {
            self.store.note_dropped(&self.numbers);
        }
    }
}
