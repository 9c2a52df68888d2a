//! Reading at one moment: snapshots, values, and cursors over ranges of keys.

use std::ops::Deref;
use std::sync::Arc;

use rocksdb::{DB, DBPinnableSlice, DBRawIterator, ReadOptions, SnapshotWithThreadMode};

use crate::Error;
use crate::engine::Engine;
use crate::keys::{self, ShardNumber};
use crate::keyspace::Keyspace;

/// What a scan of whole files reads at a time.
const SCAN_READAHEAD_BYTES: usize = 1 << 20;

/// A stored value, where the engine holds it.
pub struct Value<'a>(pub(crate) DBPinnableSlice<'a>);

impl Deref for Value<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

/// Keys and values of a range in order, forwards and backwards. Beyond either end it is at no entry, and so it is when reading
/// failed: who comes to the end asks for the [`Cursor::status`].
pub struct Cursor<'a>(DBRawIterator<'a>);

impl Cursor<'_> {
    /// The key here.
    #[inline]
    pub fn key(&self) -> Option<&[u8]> {
        self.0.key()
    }

    /// The value here.
    #[inline]
    pub fn value(&self) -> Option<&[u8]> {
        self.0.value()
    }

    /// Key and value here.
    #[inline]
    pub fn item(&self) -> Option<(&[u8], &[u8])> {
        self.0.item()
    }

    /// Whether it is at an entry.
    #[inline]
    pub fn valid(&self) -> bool {
        self.0.valid()
    }

    /// Goes to the first entry at or after `key`.
    #[inline]
    pub fn seek(&mut self, key: impl AsRef<[u8]>) {
        self.0.seek(key);
    }

    /// Goes to the last entry at or before `key`.
    #[inline]
    pub fn seek_for_prev(&mut self, key: impl AsRef<[u8]>) {
        self.0.seek_for_prev(key);
    }

    /// Goes to the first entry of the range.
    #[inline]
    pub fn seek_to_first(&mut self) {
        self.0.seek_to_first();
    }

    /// Goes to the last entry of the range.
    #[inline]
    pub fn seek_to_last(&mut self) {
        self.0.seek_to_last();
    }

    /// Goes to the entry after this one.
    #[inline]
    pub fn next(&mut self) {
        self.0.next();
    }

    /// Goes to the entry before this one.
    #[inline]
    pub fn prev(&mut self) {
        self.0.prev();
    }

    /// Whether everything so far could be read.
    ///
    /// # Errors
    /// [`Error::Engine`] says why not.
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

/// The whole store as it was at one moment. Holding one keeps old versions on disk, nothing else.
pub struct Snapshot(SnapshotCell);

impl Snapshot {
    pub(crate) fn of(engine: Arc<Engine>) -> Snapshot {
        Snapshot(SnapshotCell::new(engine, |e| e.raw_snapshot()))
    }

    /// The store that it is of.
    pub fn engine(&self) -> &Arc<Engine> {
        self.0.borrow_owner()
    }

    /// The value of a key.
    pub fn get(&self, k: Keyspace, key: &[u8]) -> Result<Option<Value<'_>>, Error> {
        let cf = self.engine().cf(k);
        let value = self.0.borrow_dependent().get_pinned_cf(cf, key)?;
        Ok(value.map(Value))
    }

    /// A cursor over one shard's keys of a keyspace, not yet positioned.
    pub fn iter(&self, k: Keyspace, shard: ShardNumber) -> Cursor<'_> {
        let mut o = ReadOptions::default();
        o.set_iterate_lower_bound(shard.to_be_bytes().to_vec());
        o.set_iterate_upper_bound(keys::shard_end(shard));
        self.cursor(k, o)
    }

    /// A cursor over the keys from `low` up to but without `high`, not yet positioned.
    pub fn iter_range(&self, k: Keyspace, low: Vec<u8>, high: Vec<u8>) -> Cursor<'_> {
        let mut o = ReadOptions::default();
        o.set_iterate_lower_bound(low);
        o.set_iterate_upper_bound(high);
        self.cursor(k, o)
    }

    /// The same for a long scan: what it reads does not take the place of other blocks in the cache.
    pub fn scan_range(&self, k: Keyspace, low: Vec<u8>, high: Vec<u8>) -> Cursor<'_> {
        let mut o = ReadOptions::default();
        o.set_iterate_lower_bound(low);
        o.set_iterate_upper_bound(high);
        o.fill_cache(false);
        self.cursor(k, o)
    }

    /// The same through all that is in the files: also through rows that a deletion of a range covers, which are shown.
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

    /// A cursor over the whole of a keyspace, not yet positioned.
    pub fn iter_all(&self, k: Keyspace) -> Cursor<'_> {
        self.cursor(k, ReadOptions::default())
    }

    fn cursor(&self, k: Keyspace, options: ReadOptions) -> Cursor<'_> {
        let cf = self.engine().cf(k);
        Cursor(self.0.borrow_dependent().raw_iterator_cf_opt(cf, options))
    }
}
