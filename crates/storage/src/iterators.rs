//! Iterators over the documents, changes and bodies of a shard.

use crate::Error;
use crate::keys::{self, ShardNumber};
use crate::keyspace::Keyspace;
use crate::snapshot::{Cursor, Snapshot};

/// Rows of by-id of one shard, in the order of ids.
pub struct IdIter<'a> {
    raw: Cursor<'a>,
    shard: ShardNumber,
}

impl<'a> IdIter<'a> {
    /// Iterates over all documents of the shard; not yet positioned.
    pub fn new(snapshot: &'a Snapshot, shard: ShardNumber) -> Self {
        Self::over(snapshot, Keyspace::ById, shard)
    }

    /// Iterates over all local documents of the shard; not yet positioned.
    pub fn local(snapshot: &'a Snapshot, shard: ShardNumber) -> Self {
        Self::over(snapshot, Keyspace::Local, shard)
    }

    fn over(snapshot: &'a Snapshot, k: Keyspace, shard: ShardNumber) -> Self {
        IdIter {
            raw: snapshot.iter(k, shard),
            shard,
        }
    }

    /// Moves to the first id at or after `id`.
    pub fn seek(&mut self, id: &[u8]) {
        self.raw.seek(keys::id_key(self.shard, id));
    }

    /// Moves to the last id at or before `id`.
    pub fn seek_for_prev(&mut self, id: &[u8]) {
        self.raw.seek_for_prev(keys::id_key(self.shard, id));
    }

    /// Moves to the last id.
    pub fn seek_to_last(&mut self) {
        self.raw.seek_to_last();
    }

    /// Returns the current id and stored value; `None` past either end.
    pub fn entry(&self) -> Option<(&[u8], &[u8])> {
        let (k, v) = self.raw.item()?;
        Some((&k[keys::SHARD_LEN..], v))
    }

    /// Moves to the next id.
    pub fn next(&mut self) {
        self.raw.next();
    }

    /// Moves to the previous id.
    pub fn prev(&mut self) {
        self.raw.prev();
    }

    /// Returns whether everything so far could be read.
    pub fn status(&self) -> Result<(), Error> {
        self.raw.status()
    }
}

/// Rows of by-seq that list their document, in either direction.
pub struct ChangeIter<'a> {
    rows: Cursor<'a>,
    superseded: Cursor<'a>,
    shard: ShardNumber,
    descending: bool,
}

impl<'a> ChangeIter<'a> {
    /// Starts after `seq` ascending, or at `seq` descending.
    pub fn new(snapshot: &'a Snapshot, shard: ShardNumber, seq: u64, descending: bool) -> Self {
        let mut it = ChangeIter {
            rows: snapshot.iter(Keyspace::BySeq, shard),
            superseded: snapshot.iter(Keyspace::Superseded, shard),
            shard,
            descending,
        };
        if descending {
            it.rows.seek_for_prev(keys::seq_key(shard, seq));
            it.superseded.seek_for_prev(keys::seq_key(shard, seq));
        } else {
            it.rows.seek(keys::seq_key(shard, seq + 1));
            it.superseded.seek(keys::seq_key(shard, seq + 1));
        }
        it.skip_superseded();
        it
    }

    fn skip_superseded(&mut self) {
        while let Some(row) = self.rows.key() {
            let row = keys::seq_of(row);
            let Some(dead) = self.superseded.key() else {
                return;
            };
            let dead = keys::seq_of(dead);
            let behind = if self.descending {
                dead > row
            } else {
                dead < row
            };
            if dead == row {
                step(&mut self.rows, self.descending);
                step(&mut self.superseded, self.descending);
            } else if behind {
                // The rows of these markers are gone, or far behind: jump.
                let key = keys::seq_key(self.shard, row);
                if self.descending {
                    self.superseded.seek_for_prev(key);
                } else {
                    self.superseded.seek(key);
                }
            } else {
                return;
            }
        }
    }

    /// Returns the current seq and stored row; `None` at the end.
    pub fn entry(&self) -> Option<(u64, &[u8])> {
        let (key, row) = self.rows.item()?;
        Some((keys::seq_of(key), row))
    }

    /// Moves to the next change in the direction.
    pub fn next(&mut self) {
        step(&mut self.rows, self.descending);
        self.skip_superseded();
    }

    /// Returns whether everything so far could be read.
    pub fn status(&self) -> Result<(), Error> {
        self.rows.status()?;
        self.superseded.status()
    }
}

fn step(it: &mut Cursor<'_>, descending: bool) {
    if descending {
        it.prev();
    } else {
        it.next();
    }
}

/// Bodies in the bodies keyspace, requested in ascending order of their seqs: a scan reads each
/// block once.
pub struct BodyScan<'a> {
    raw: Cursor<'a>,
    shard: ShardNumber,
    begun: bool,
}

impl<'a> BodyScan<'a> {
    /// Reads by a cursor over bodies of the shard; not yet positioned.
    pub(crate) fn new(raw: Cursor<'a>, shard: ShardNumber) -> Self {
        BodyScan {
            raw,
            shard,
            begun: false,
        }
    }

    /// Returns the body under `seq`, which is greater than those requested before.
    pub fn get(&mut self, seq: u64) -> Result<Option<&[u8]>, Error> {
        let key = keys::seq_key(self.shard, seq);
        // Usually it is the next one.
        if self.begun && self.raw.valid() {
            self.raw.next();
        }
        if !std::mem::replace(&mut self.begun, true) || self.raw.key().is_some_and(|k| *k != key) {
            self.raw.seek(key);
        }
        self.raw.status()?;
        Ok(self.raw.item().and_then(|(k, v)| (*k == key).then_some(v)))
    }
}
