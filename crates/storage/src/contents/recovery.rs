//! Numbers of contents, cleanup of uploads after a crash, and the contents that are kept without a
//! reference.

use std::collections::BTreeMap;
use std::sync::Arc;

use document::ContentId;
use parking_lot::Mutex;
use rocksdb::WriteBatch;

use super::{CHUNK_BYTES, Place, keys, remove_chunks};
use crate::Error;
use crate::engine::Engine;
use crate::keys::{ShardNumber, meta, shard_end};
use crate::keyspace::Keyspace;
use crate::snapshot::Snapshot;

/// Numbers reserved by one write.
const RESERVED: u64 = 1024;

/// Assigns each content of the store a number that was never used before.
#[derive(Debug)]
pub struct Numbers(Mutex<Reserved>);

#[derive(Debug)]
struct Reserved {
    next: u64,
    /// Numbers below this are recorded as possibly in use.
    end: u64,
}

impl Numbers {
    pub(crate) fn open(engine: &Engine) -> Result<Numbers, Error> {
        let end = match engine.get(Keyspace::Meta, meta::NEXT_CONTENT)? {
            Some(v) => u64::from_be_bytes(
                (*v).try_into()
                    .map_err(|_| Error::Corrupt("content number"))?,
            ),
            None => 1,
        };
        Ok(Numbers(Mutex::new(Reserved { next: end, end })))
    }

    /// **The reservation is in the log before its numbers are used,** so that none is assigned
    /// again after a crash.
    pub(crate) fn next(&self, engine: &Engine) -> Result<u64, Error> {
        let mut reserved = self.0.lock();
        if reserved.next == reserved.end {
            let end = reserved.end + RESERVED;
            let mut wb = WriteBatch::default();
            let cf = engine.cf(Keyspace::Meta);
            wb.put_cf(cf, meta::NEXT_CONTENT, end.to_be_bytes());
            engine.write(wb, false)?;
            reserved.end = end;
        }
        let number = reserved.next;
        reserved.next += 1;
        Ok(number)
    }
}

/// Counts the bytes of all contents of a store that was written before they were counted. Runs
/// before any writes.
pub(crate) fn count_bytes(engine: &Arc<Engine>) -> Result<(), Error> {
    if engine
        .get(Keyspace::Meta, meta::CONTENTS_COUNTED)?
        .is_some()
    {
        return Ok(());
    }
    let snapshot = engine.snapshot();
    let mut wb = WriteBatch::default();
    let mut homes = snapshot.iter_all(Keyspace::Attachments);
    homes.seek_to_first();
    while let Some(&home) = homes.key().and_then(<[u8]>::first_chunk) {
        let home = ShardNumber::from_be_bytes(home);
        super::put_bytes(engine, home, scanned_bytes(&snapshot, home)?, &mut wb);
        homes.seek(shard_end(home));
    }
    homes.status()?;
    wb.put_cf(engine.cf(Keyspace::Meta), meta::CONTENTS_COUNTED, []);
    engine.write(wb, false)
}

fn scanned_bytes(snapshot: &Snapshot, home: ShardNumber) -> Result<u64, Error> {
    let (low, high) = keys::places(home);
    let mut places = snapshot.scan_range(Keyspace::Attachments, low, high);
    let mut bytes = 0_u64;
    places.seek_to_first();
    while let Some(value) = places.value() {
        bytes = bytes.saturating_add(Place::decode(value)?.length);
        places.next();
    }
    places.status()?;
    Ok(bytes)
}

/// Removes uploads that the last run did not finish, and contents that it did not reference. Runs
/// before any writes.
pub(crate) fn discard_unfinished(engine: &Arc<Engine>) -> Result<(), Error> {
    let snapshot = engine.snapshot();
    let mut it = snapshot.iter_all(Keyspace::Meta);
    it.seek([meta::UPLOAD]);
    let mut wb = WriteBatch::default();
    let mut uncounted: BTreeMap<ShardNumber, u64> = BTreeMap::new();
    while let (Some(key), Some(value)) = (it.key(), it.value()) {
        let Some((home, number)) = split_upload_key(key)? else {
            break;
        };
        wb.delete_cf(engine.cf(Keyspace::Meta), key);
        if let Some(bytes) = discard(&snapshot, home, number, value, &mut wb)? {
            *uncounted.entry(home).or_default() += bytes;
        }
        it.next();
    }
    it.status()?;
    if wb.is_empty() {
        return Ok(());
    }
    for (&home, &bytes) in uncounted.iter().filter(|(_, bytes)| **bytes > 0) {
        let rest = super::stored_bytes(engine, home)?.saturating_sub(bytes);
        super::put_bytes(engine, home, rest, &mut wb);
    }
    // The next compaction reclaims the space: opening does not wait for it.
    engine.write(wb, false)
}

fn split_upload_key(key: &[u8]) -> Result<Option<(ShardNumber, u64)>, Error> {
    let Some((&meta::UPLOAD, rest)) = key.split_first() else {
        return Ok(None);
    };
    let corrupt = Error::Corrupt("upload key");
    let (home, number) = rest.split_first_chunk().ok_or(corrupt.clone())?;
    let number = number.try_into().map_err(|_| corrupt)?;
    Ok(Some((
        u32::from_be_bytes(*home),
        u64::from_be_bytes(number),
    )))
}

/// Removes the content of an upload, unless it is referenced. Returns by how much the total
/// decreases. `id` is empty for an unfinished upload.
fn discard(
    snapshot: &Snapshot,
    home: ShardNumber,
    number: u64,
    id: &[u8],
    wb: &mut WriteBatch,
) -> Result<Option<u64>, Error> {
    let engine = snapshot.engine();
    let mut counted = None;
    if let Ok(id) = ContentId::try_from(id) {
        let key = keys::place(home, &id);
        let place = match engine.get(Keyspace::Attachments, &key)? {
            Some(v) => Some(Place::decode(&v)?),
            None => None,
        };
        counted = place.filter(|place| place.number == number);
        if counted.is_some() {
            let prefix = keys::references(home, &id);
            let mut it = snapshot.iter(Keyspace::Attachments, home);
            it.seek(&prefix);
            if it.key().is_some_and(|key| key.starts_with(&prefix)) {
                return Ok(None);
            }
            it.status()?;
            let pinned = keys::pinned(home, &id);
            if engine.get(Keyspace::Meta, &pinned)?.is_some() {
                return Ok(None);
            }
            wb.delete_cf(engine.cf(Keyspace::Attachments), key);
        }
    }
    let place = match counted {
        Some(place) => place,
        None => unfinished(snapshot, home, number)?,
    };
    remove_chunks(engine, home, place, wb);
    super::reclaim::list(engine, home, place, wb);
    Ok(Some(counted.map_or(0, |place| place.length)))
}

/// Returns the length of an unfinished upload, in whole chunks.
fn unfinished(snapshot: &Snapshot, home: ShardNumber, number: u64) -> Result<Place, Error> {
    let low = keys::chunk(home, number, 0);
    let high = keys::chunk(home, number, u32::MAX);
    let mut chunks = snapshot.iter_range(Keyspace::Attachments, low, high);
    chunks.seek_to_last();
    let chunks_there = match chunks.key() {
        Some(key) => u64::from(keys::chunk_of(key)?) + 1,
        None => 0,
    };
    chunks.status()?;
    Ok(Place {
        number,
        length: chunks_there * CHUNK_BYTES as u64,
    })
}

/// A content that is kept without a reference.
#[derive(Clone, Debug)]
pub struct PinnedContent {
    /// The shard under which it is.
    pub home: ShardNumber,
    /// Its id.
    pub id: ContentId,
    /// The caller's name for it.
    pub tag: Vec<u8>,
}

/// Returns all pinned contents.
pub(crate) fn pinned_contents(engine: &Arc<Engine>) -> Result<Vec<PinnedContent>, Error> {
    let snapshot = engine.snapshot();
    let mut it = snapshot.iter_all(Keyspace::Meta);
    it.seek([meta::PINNED]);
    let mut all = vec![];
    while let (Some(key), Some(tag)) = (it.key(), it.value())
        && let Some((home, id)) = keys::split_pinned(key)
    {
        let tag = tag.to_vec();
        all.push(PinnedContent { home, id, tag });
        it.next();
    }
    it.status()?;
    Ok(all)
}

/// Adds to a batch that no content is pinned any more. The next compaction removes those without a
/// reference.
pub(crate) fn forget_pins(engine: &Arc<Engine>, wb: &mut WriteBatch) -> Result<(), Error> {
    for pinned in pinned_contents(engine)? {
        let key = keys::pinned(pinned.home, &pinned.id);
        wb.delete_cf(engine.cf(Keyspace::Meta), key);
    }
    Ok(())
}
