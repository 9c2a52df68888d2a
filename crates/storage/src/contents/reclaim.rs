//! The space of removed contents: listed with their removal, and reclaimed by the next compaction,
//! whatever happens in between.

use std::sync::Arc;

use rocksdb::WriteBatch;

use super::{DIRECT_FROM_BYTES, Place, keys};
use crate::Error;
use crate::engine::{Engine, KeyRange};
use crate::keys::ShardNumber;
use crate::keyspace::Keyspace;
use crate::varint::{Reader, put};

/// Removed contents whose numbers are at most this far apart are reclaimed together.
const RECLAIMED_TOGETHER: u64 = 64;

/// Lists a content whose chunks the batch removes.
pub(super) fn list(engine: &Engine, home: ShardNumber, place: Place, wb: &mut WriteBatch) {
    if place.length > 0 {
        let mut length = Vec::with_capacity(10);
        put(place.length, &mut length);
        let key = keys::removed(home, place.number);
        wb.put_cf(engine.cf(Keyspace::Attachments), key, length);
    }
}

/// Returns the contents whose space is still to be reclaimed, ordered by number.
pub(super) fn removed(engine: &Arc<Engine>, home: ShardNumber) -> Result<Vec<Place>, Error> {
    let snapshot = engine.snapshot();
    let (low, high) = keys::all_removed(home);
    let mut it = snapshot.iter_range(Keyspace::Attachments, low, high);
    let mut removed = vec![];
    it.seek_to_first();
    while let (Some(key), Some(value)) = (it.key(), it.value()) {
        removed.push(Place {
            number: keys::number_of(key)?,
            length: Reader::new(value, "removed content").varint()?,
        });
        it.next();
    }
    it.status()?;
    Ok(removed)
}

/// Lets the engine reclaim the space of removed contents under these shards, together: it examines
/// the files of all attachments each time.
pub(super) fn reclaim(
    engine: &Arc<Engine>,
    homes: impl Iterator<Item = ShardNumber>,
) -> Result<(), Error> {
    let mut ranges = vec![];
    let mut wb = WriteBatch::default();
    for home in homes {
        let removed = removed(engine, home)?;
        add_ranges(engine, home, &removed, &mut ranges);
        for place in removed {
            let key = keys::removed(home, place.number);
            wb.delete_cf(engine.cf(Keyspace::Attachments), key);
        }
    }
    if ranges.is_empty() {
        return Ok(());
    }
    engine.reclaim_attachments(&ranges, true);
    if engine.is_closing() {
        // It may be incomplete: the next compaction repeats it.
        return Ok(());
    }
    engine.write(wb, false)
}

/// Adds the ranges of removed contents, and lets the engine drop files that contain nothing else.
fn add_ranges(engine: &Engine, home: ShardNumber, removed: &[Place], to: &mut Vec<KeyRange>) {
    let mut ranges: Vec<(u64, u64)> = vec![];
    for place in removed {
        match ranges.last_mut() {
            Some((_, last)) if place.number - *last <= RECLAIMED_TOGETHER => *last = place.number,
            _ => ranges.push((place.number, place.number)),
        }
        if place.length > DIRECT_FROM_BYTES {
            let from = keys::chunk(home, place.number, 0);
            let to = keys::chunk(home, place.number, u32::MAX);
            engine.drop_attachment_files(&from, &to);
        }
    }
    let key = |(first, last)| {
        (
            keys::chunk(home, first, 0),
            keys::chunk(home, last, u32::MAX),
        )
    };
    to.extend(ranges.into_iter().map(key));
}
