//! Consistent reads: snapshots, values, and cursors over ranges of keys.

use std::ops::Deref;
use std::sync::Arc;

use rocksdb::{DB, DBPinnableSlice, DBRawIterator, ReadOptions, SnapshotWithThreadMode};

use crate::Error;
use crate::engine::Engine;
use crate::keys::{self, ShardNumber};
use crate::keyspace::Keyspace;

/// Read-ahead of a scan of whole files, in bytes.
const SCAN_READAHEAD_BYTES: usize = 1 << 20;

/// A stored value, in the engine's memory.
pub struct Value<'a>(pub(crate) DBPinnableSlice<'a>);

impl Deref for Value<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

/// Keys and values of a range in order, forwards and backwards. Past either end it has no entry,
/// and also when reading failed: at the end, check [`Cursor::status`].
pub struct Cursor<'a>(DBRawIterator<'a>);

impl Cursor<'_> {
    /// Returns the current key.
    #[inline]
    pub fn key(&self) -> Option<&[u8]> {
        self.0.key()
    }

    /// Returns the current value.
    #[inline]
    pub fn value(&self) -> Option<&[u8]> {
        self.0.value()
    }

    /// Returns the current key and value.
    #[inline]
    pub fn item(&self) -> Option<(&[u8], &[u8])> {
        self.0.item()
    }

    /// Returns whether it is at an entry.
    #[inline]
    pub fn valid(&self) -> bool {
        self.0.valid()
    }

    /// Moves to the first entry at or after `key`.
    #[inline]
    pub fn seek(&mut self, key: impl AsRef<[u8]>) {
        self.0.seek(key);
    }

    /// Moves to the last entry at or before `key`.
    #[inline]
    pub fn seek_for_prev(&mut self, key: impl AsRef<[u8]>) {
        self.0.seek_for_prev(key);
    }

    /// Moves to the first entry of the range.
    #[inline]
    pub fn seek_to_first(&mut self) {
        self.0.seek_to_first();
    }

    /// Moves to the last entry of the range.
    #[inline]
    pub fn seek_to_last(&mut self) {
        self.0.seek_to_last();
    }

    /// Moves to the next entry.
    #[inline]
    pub fn next(&mut self) {
        self.0.next();
    }

    /// Moves to the previous entry.
    #[inline]
    pub fn prev(&mut self) {
        self.0.prev();
    }

    /// Returns whether everything so far could be read.
    ///
    /// # Errors
    /// [`Error::Engine`] with the reason.
    pub fn status(&self) -> Result<(), Error> {
        Ok(self.0.status()?)
    }
}

type Snap<'a> = SnapshotWithThreadMode<'a, DB>;

self_cell::self_cell!(
    struct SnapshotCell {
        owner: Arc<Engine>,
        #[covariant]
        dependent: Snap,
    }
);

/// The whole store at one moment. Holding one only keeps old versions on disk.
pub struct Snapshot(SnapshotCell);

impl Snapshot {
    pub(crate) fn of(engine: Arc<Engine>) -> Snapshot {
        Snapshot(SnapshotCell::new(engine, |e| e.raw_snapshot()))
    }

    /// Returns its store's engine.
    pub fn engine(&self) -> &Arc<Engine> {
        self.0.borrow_owner()
    }

    /// Returns the value of a key.
    pub fn get(&self, k: Keyspace, key: &[u8]) -> Result<Option<Value<'_>>, Error> {
        let cf = self.engine().cf(k);
        let value = self.0.borrow_dependent().get_pinned_cf(cf, key)?;
        Ok(value.map(Value))
    }

    /// Returns a cursor over one shard's keys of a keyspace, not yet positioned.
    pub fn iter(&self, k: Keyspace, shard: ShardNumber) -> Cursor<'_> {
        let mut o = ReadOptions::default();
        o.set_iterate_lower_bound(shard.to_be_bytes().to_vec());
        o.set_iterate_upper_bound(keys::shard_end(shard));
        self.cursor(k, o)
    }

    /// Returns a cursor over the keys from `low` to `high` (exclusive), not yet positioned.
    pub fn iter_range(&self, k: Keyspace, low: Vec<u8>, high: Vec<u8>) -> Cursor<'_> {
        let mut o = ReadOptions::default();
        o.set_iterate_lower_bound(low);
        o.set_iterate_upper_bound(high);
        self.cursor(k, o)
    }

    /// Returns such a cursor for a long scan, which does not fill the block cache.
    pub fn scan_range(&self, k: Keyspace, low: Vec<u8>, high: Vec<u8>) -> Cursor<'_> {
        let mut o = ReadOptions::default();
        o.set_iterate_lower_bound(low);
        o.set_iterate_upper_bound(high);
        o.fill_cache(false);
        self.cursor(k, o)
    }

    /// Returns such a cursor over everything in the files: also over rows that a range deletion
    /// covers, which are returned.
    #[expect(
        deprecated,
        reason = "it is so for its cost where rows are read, and there is nothing else to read files by"
    )]
    pub(crate) fn scan_files(
        &self,
        k: Keyspace,
        low: Vec<u8>,
        high: Option<Vec<u8>>,
    ) -> Cursor<'_> {
        let mut o = ReadOptions::default();
        o.set_iterate_lower_bound(low);
        if let Some(high) = high {
            o.set_iterate_upper_bound(high);
        }
        o.fill_cache(false);
        o.set_ignore_range_deletions(true);
        o.set_readahead_size(SCAN_READAHEAD_BYTES);
        self.cursor(k, o)
    }

    /// Returns a cursor over a whole keyspace, not yet positioned.
    pub fn iter_all(&self, k: Keyspace) -> Cursor<'_> {
        self.cursor(k, ReadOptions::default())
    }

    fn cursor(&self, k: Keyspace, options: ReadOptions) -> Cursor<'_> {
        let cf = self.engine().cf(k);
        Cursor(self.0.borrow_dependent().raw_iterator_cf_opt(cf, options))
    }
}
