//! Makes the store of a single server that of a cluster's first node: its shards belong to slots
//! from then on.
//!
//! Documents, indexes and contents stay where they are. Each shard gets the digest of its rows,
//! which replicas compare, and each slot a position to which other nodes have no log: they copy it.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use parking_lot::Mutex;
use rocksdb::WriteBatch;

use super::rows::{self, HEAD, Head, STATE, prefix_end};
use super::{Position, SlotNumber, SlotRows};
use crate::Error;
use crate::commit::Put;
use crate::contents::{self, keys as content_keys};
use crate::digest::digest_in;
use crate::keys::{ShardNumber, meta};
use crate::keyspace::Keyspace;
use crate::meta::ShardMeta;
use crate::snapshot::Snapshot;
use crate::store::Store;

/// The slots that take over the shards of a store.
#[derive(Clone, Debug, Default)]
pub struct Adoption {
    /// All slots, each with its position and rows of its own.
    pub slots: Vec<(SlotNumber, Position, SlotRows)>,
    /// All shards of all databases.
    pub shards: Vec<ShardNumber>,
    /// The caller's own puts, such as records of databases.
    pub puts: Vec<Put>,
}

impl Store {
    /// Gives all shards to slots, in one batch that is on disk when this returns. Slots that the
    /// store has already are replaced, and no content is pinned any more. Nothing else may be written meanwhile. Blocks while it reads
    /// the records of all documents, on several threads.
    ///
    /// # Errors
    /// Errors of the engine. Nothing has changed then, except after [`Error::Engine`], when all may
    /// have.
    pub fn adopt(&self, adoption: Adoption) -> Result<(), Error> {
        let engine = self.engine();
        let cf = engine.cf(Keyspace::Meta);
        let mut wb = WriteBatch::default();
        let snapshot = self.snapshot();
        let low = vec![meta::SLOT];
        let mut old = snapshot.iter_range(Keyspace::Meta, low.clone(), prefix_end(&low));
        old.seek_to_first();
        while let Some(key) = old.key() {
            wb.delete_cf(cf, key);
            old.next();
        }
        old.status()?;
        // The new cluster's log names none of these contents.
        contents::forget_pins(engine, &mut wb)?;
        for (shard, counters) in counters_with_digests(&snapshot, &adoption.shards)? {
            wb.put_cf(cf, meta::shard(shard), counters.encode());
        }
        for (slot, position, state) in adoption.slots {
            let head = Head {
                position,
                ..Head::default()
            };
            wb.put_cf(cf, rows::key(slot, HEAD, &[]), head.encode());
            for (key, value) in state {
                wb.put_cf(cf, rows::key(slot, STATE, &key), value);
            }
        }
        for (keyspace, key, value) in adoption.puts {
            match value {
                Some(value) => wb.put_cf(engine.cf(keyspace), key, value),
                None => wb.delete_cf(engine.cf(keyspace), key),
            }
        }
        engine.write(wb, true)
    }
}

impl Snapshot {
    /// Returns whether contents of attachments are stored under a shard.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn has_contents(&self, shard: ShardNumber) -> Result<bool, Error> {
        let (low, high) = content_keys::places(shard);
        let mut places = self.iter_range(Keyspace::Attachments, low, high);
        places.seek_to_first();
        let has = places.valid();
        places.status()?;
        Ok(has)
    }
}

type Counted = Vec<(ShardNumber, ShardMeta)>;

/// Returns the counters of all shards that have any, with the digests of their rows.
fn counters_with_digests(snapshot: &Snapshot, shards: &[ShardNumber]) -> Result<Counted, Error> {
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    let next = AtomicUsize::new(0);
    let counted: Mutex<Result<Counted, Error>> = Mutex::new(Ok(vec![]));
    let count = || {
        while let Some(&shard) = shards.get(next.fetch_add(1, Relaxed)) {
            let one = with_digest(snapshot, shard);
            let mut all = counted.lock();
            match (&mut *all, one) {
                (Ok(all), Ok(one)) => all.extend(one.map(|counters| (shard, counters))),
                (all, Err(e)) => *all = Err(e),
                (Err(_), Ok(_)) => {}
            }
            if all.is_err() {
                break;
            }
        }
    };
    std::thread::scope(|scope| {
        (1..threads.min(shards.len())).for_each(|_| drop(scope.spawn(count)));
        count();
    });
    counted.into_inner()
}

/// Returns the counters of a shard with the digest of its rows; `None` for a shard without either.
fn with_digest(snapshot: &Snapshot, shard: ShardNumber) -> Result<Option<ShardMeta>, Error> {
    let stored = snapshot.get(Keyspace::Meta, &meta::shard(shard))?;
    let digest = digest_in(snapshot, shard)?;
    if stored.is_none() && digest == 0 {
        return Ok(None);
    }
    let counters = stored
        .map(|stored| ShardMeta::decode(&stored))
        .transpose()?;
    Ok(Some(ShardMeta {
        digest: Some(digest),
        ..counters.unwrap_or_default()
    }))
}
