//! Numbers of contents, and what a crash left of uploads.

use std::sync::Arc;

use document::ContentId;
use parking_lot::Mutex;
use rocksdb::WriteBatch;

use super::{Place, keys, remove_chunks};
use crate::Error;
use crate::engine::{Engine, Keyspace};
use crate::keys::{ShardNumber, meta};

/// So many numbers are reserved by one write.
const RESERVED: u64 = 1024;

/// Gives each content of the store a number that was never given before.
#[derive(Debug)]
pub struct Numbers(Mutex<Reserved>);

#[derive(Debug)]
struct Reserved {
    next: u64,
    /// The store knows that numbers below this may be in use.
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

    /// **The reservation is in the log before any use of its numbers,** so that none is given out again after a crash.
    pub(super) fn next(&self, engine: &Engine) -> Result<u64, Error> {
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

/// Removes uploads that the last run did not end, and contents that it did not come to refer to. Nobody writes yet.
pub(crate) fn discard_unfinished(engine: &Arc<Engine>) -> Result<(), Error> {
    let snapshot = engine.snapshot();
    let mut it = snapshot.iter_all(Keyspace::Meta);
    it.seek([meta::UPLOAD]);
    let mut wb = WriteBatch::default();
    let mut removed = vec![];
    while let (Some(key), Some(value)) = (it.key(), it.value()) {
        let Some((home, number)) = split_upload_key(key)? else {
            break;
        };
        wb.delete_cf(engine.cf(Keyspace::Meta), key);
        if let Some(place) = discard(engine, home, number, value, &mut wb)? {
            removed.push((home, place));
        }
        it.next();
    }
    it.status()?;
    if wb.is_empty() {
        return Ok(());
    }
    engine.write(wb, false)?;
    for (home, place) in removed {
        super::reclaim(engine, home, vec![place]);
    }
    Ok(())
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

/// Answers what was removed. `id`: empty of an upload that did not end.
fn discard(
    engine: &Arc<Engine>,
    home: ShardNumber,
    number: u64,
    id: &[u8],
    wb: &mut WriteBatch,
) -> Result<Option<Place>, Error> {
    let cf = engine.cf(Keyspace::Attachments);
    if let Ok(id) = ContentId::try_from(id) {
        let key = keys::place(home, &id);
        let place = match engine.get(Keyspace::Attachments, &key)? {
            Some(v) => Some(Place::decode(&v)?),
            None => None,
        };
        if place.is_some_and(|place| place.number == number) {
            let snapshot = engine.snapshot();
            let prefix = keys::references(home, &id);
            let mut it = snapshot.iter(Keyspace::Attachments, home);
            it.seek(&prefix);
            if it.key().is_some_and(|key| key.starts_with(&prefix)) {
                return Ok(None);
            }
            it.status()?;
            wb.delete_cf(cf, key);
        }
    }
    // How far it came is not known.
    let place = Place {
        number,
        length: u64::MAX,
    };
    remove_chunks(engine, home, place, wb);
    Ok(Some(place))
}
