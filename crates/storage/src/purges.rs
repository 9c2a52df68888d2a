//! The purges that a shard remembers.

use document::Rev;

use crate::Error;
use crate::keys;
use crate::keyspace::Keyspace;
use crate::record::{StoredRev, put_rev};
use crate::shard::{Shard, View};
use crate::varint::{Reader, put, put_slice};

/// Maximum number of documents that [`read_ids`] returns.
const IDS_MAX: usize = 64;

/// One remembered purge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PurgeInfo {
    /// Its position among the purges of the shard.
    pub purge_seq: u64,
    /// Random id of the request.
    pub uuid: [u8; 16],
    /// The document.
    pub id: String,
    /// The revisions that were removed.
    pub revs: Vec<Rev>,
}

/// Returns the purges of a shard, oldest first.
pub fn list(shard: &Shard, view: &View) -> Result<Vec<PurgeInfo>, Error> {
    let mut all = vec![];
    read(shard, view, 0, &mut |info| {
        all.push(info);
        true
    })?;
    Ok(all)
}

/// Passes the purges of a shard from a position on to `take`, oldest first, until it returns false.
/// Returns the position of the next one; `None` at the end.
pub fn read(
    shard: &Shard,
    view: &View,
    from: u64,
    take: &mut dyn FnMut(PurgeInfo) -> bool,
) -> Result<Option<u64>, Error> {
    let mut it = view.snapshot.iter(Keyspace::Purges, shard.number);
    it.seek(keys::seq_key(shard.number, from));
    let mut takes = true;
    while let (Some(k), Some(v)) = (it.key(), it.value()) {
        let purge_seq = keys::seq_of(k);
        if !takes {
            return Ok(Some(purge_seq));
        }
        takes = take(decode(purge_seq, v)?);
        it.next();
    }
    it.status()?;
    Ok(None)
}

/// Returns the documents of some purges of a shard from a position on, oldest first, and the position
/// of the purge after them; `None` at the end. Their revisions are not kept in memory.
///
/// # Errors
/// Errors of the engine, and [`Error::Corrupt`].
pub fn read_ids(
    shard: &Shard,
    view: &View,
    from: u64,
) -> Result<(Vec<String>, Option<u64>), Error> {
    let mut ids = vec![];
    let next = read(shard, view, from, &mut |info| {
        ids.push(info.id);
        ids.len() < IDS_MAX
    })?;
    Ok((ids, next))
}

pub(crate) fn encode(uuid: &[u8; 16], id: &str, revs: &[Rev], out: &mut Vec<u8>) {
    out.extend_from_slice(uuid);
    put_slice(id.as_bytes(), out);
    put(revs.len() as u64, out);
    for rev in revs {
        put_rev(rev.generation, rev.hash.as_bytes(), out);
    }
}

pub(crate) fn decode(purge_seq: u64, value: &[u8]) -> Result<PurgeInfo, Error> {
    let mut r = Reader::new(value, "purge");
    let uuid = r.bytes(16)?.try_into().map_err(|_| r.corrupt())?;
    let id = r.str()?.to_owned();
    let n = r.varint()?;
    let revs = (0..n)
        .map(|_| Ok(StoredRev::read(&mut r)?.to_rev()))
        .collect::<Result<_, Error>>()?;
    Ok(PurgeInfo {
        purge_seq,
        uuid,
        id,
        revs,
    })
}
