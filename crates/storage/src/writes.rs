//! A batch of writes to several keyspaces.

use rocksdb::{ColumnFamily, WriteBatch};

use crate::Error;
use crate::engine::Engine;
use crate::keys::{ShardNumber, shard_end};
use crate::keyspace::Keyspace;

/// Writes that are applied together, all or none.
pub struct Writes<'e> {
    engine: &'e Engine,
    batch: WriteBatch,
    /// Looked up once: a batch may have very many rows.
    families: [Option<&'e ColumnFamily>; Keyspace::COUNT],
}

impl<'e> Writes<'e> {
    pub(crate) fn new(engine: &'e Engine) -> Writes<'e> {
        Writes {
            engine,
            batch: WriteBatch::default(),
            families: [None; Keyspace::COUNT],
        }
    }

    #[inline]
    fn family(&mut self, k: Keyspace) -> &'e ColumnFamily {
        let engine = self.engine;
        self.families[k as usize].get_or_insert_with(|| engine.cf(k))
    }

    /// Sets the value of a key.
    #[inline]
    pub fn put(&mut self, k: Keyspace, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        let family = self.family(k);
        self.batch.put_cf(family, key, value);
    }

    /// Removes a key.
    #[inline]
    pub fn delete(&mut self, k: Keyspace, key: impl AsRef<[u8]>) {
        let family = self.family(k);
        self.batch.delete_cf(family, key);
    }

    /// Removes all keys of a shard or index. A lasting cost for readers of the keyspace: not for
    /// few keys.
    pub fn delete_all(&mut self, k: Keyspace, shard: ShardNumber) {
        let family = self.family(k);
        let (low, high) = (shard.to_be_bytes(), shard_end(shard));
        self.batch.delete_range_cf(family, &low[..], &high[..]);
    }

    /// Returns the length of keys and values so far, in bytes.
    pub fn bytes(&self) -> usize {
        self.batch.size_in_bytes()
    }

    /// Returns the writes collected so far, and continues empty.
    pub fn take(&mut self) -> Writes<'e> {
        Writes {
            engine: self.engine,
            batch: std::mem::take(&mut self.batch),
            families: self.families,
        }
    }

    /// Applies the writes. With `sync` they are on disk then, otherwise with the next synced write.
    ///
    /// # Errors
    /// [`Error::Engine`]; whether they were applied is unknown then.
    pub fn commit(self, sync: bool) -> Result<(), Error> {
        self.engine.wait_for_flushes();
        self.engine.write(self.batch, sync)
    }
}
