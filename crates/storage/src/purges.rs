//! The purges that a shard remembers.

use document::Rev;

use crate::Error;
use crate::keys;
use crate::keyspace::Keyspace;
use crate::record::StoredRev;
use crate::shard::{Shard, View};
use crate::varint::Reader;

/// One remembered purge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PurgeInfo {
    pub purge_seq: u64,
    pub uuid: [u8; 16],
    pub id: String,
    pub revs: Vec<Rev>,
}

/// The purges of a shard, oldest first.
pub fn list(shard: &Shard, view: &View) -> Result<Vec<PurgeInfo>, Error> {
    let mut it = view.snapshot.iter(Keyspace::Purges, shard.number);
    let mut all = vec![];
    it.seek_to_first();
    while let (Some(k), Some(v)) = (it.key(), it.value()) {
        let mut r = Reader::new(v, "purge");
        let uuid = r.bytes(16)?.try_into().map_err(|_| r.corrupt())?;
        let id = r.str()?.to_owned();
        let n = r.varint()?;
        let revs = (0..n)
            .map(|_| Ok(StoredRev::read(&mut r)?.to_rev()))
            .collect::<Result<_, Error>>()?;
        all.push(PurgeInfo {
            purge_seq: keys::seq_of(k),
            uuid,
            id,
            revs,
        });
        it.next();
    }
    it.status()?;
    Ok(all)
}
