//! Purges of documents that were deleted long ago: how long a database keeps them, and which ones are older.
//!
//! The crate `node` decides when to purge. The age of a change is known from its shard's time bins: a document is purged up to
//! 6 hours after its time to live has ended, and never before.

use std::sync::Arc;

use document::{DocId, Rev};
use storage::{ChangeIter, Row, ShardNumber, TimePlace};

use crate::catalogue::{DatabaseRecord, DatabaseUuid};
use crate::database::Database;
use crate::databases::Databases;
use crate::ttl::Ttl;
use crate::{Error, NameRange};

/// Rows that are read at a time, so that no snapshot is held for long.
const ROWS_MAX: usize = 10_000;

/// How long deleted documents are kept, by the database's own time to live or otherwise the
/// default; `None` for ever.
fn kept_s(own: Option<&Ttl>, default: Option<&Ttl>) -> Option<u64> {
    own.or(default)?.seconds()
}

/// The changes of a database that are older than its time to live.
#[derive(Clone, Debug)]
pub struct OldChanges {
    /// The database's name.
    pub name: Arc<str>,
    /// The database's id.
    pub uuid: DatabaseUuid,
    /// How long its deleted documents are kept, in seconds.
    pub kept_s: u64,
    /// The seq of each shard up to which all changes are old.
    pub ends: Vec<u64>,
    /// The seq of each shard up to which deleted documents were purged in earlier rounds.
    pub purged_to: Vec<u64>,
}

/// The reason why the old changes of a database are unknown.
pub type UnknownReason = (Arc<str>, Error);

impl Databases {
    /// Returns the old changes of the databases whose deleted documents are not kept for ever, and the
    /// databases that cannot be read. Opens none; blocks.
    pub fn old_changes(
        &self,
        default: Option<&Ttl>,
        now_unix_s: u64,
    ) -> (Vec<OldChanges>, Vec<UnknownReason>) {
        let (mut found, mut unknown) = (vec![], vec![]);
        for name in self.names(&NameRange::default()) {
            match self.old_changes_of(&name, default, now_unix_s) {
                Ok(old) => found.extend(old),
                Err(error) => unknown.push((name, error)),
            }
        }
        (found, unknown)
    }

    fn old_changes_of(
        &self,
        name: &Arc<str>,
        default: Option<&Ttl>,
        now_unix_s: u64,
    ) -> Result<Option<OldChanges>, Error> {
        let Some(record) = self.store().database(name)? else {
            return Ok(None);
        };
        let record = DatabaseRecord::decode(&record)?;
        let Some(kept_s) = kept_s(record.deleted_document_ttl.as_ref(), default) else {
            return Ok(None);
        };
        let before = now_unix_s.saturating_sub(kept_s);
        let end = |&shard: &ShardNumber| {
            let (update_seq, bins) = self.store().times_of(shard)?;
            // All changes up to the seq after which those since a time begin were made before it.
            Ok(match bins.since(before) {
                TimePlace::After(seq) => seq,
                TimePlace::Now => update_seq,
            })
        };
        let ends: Result<Vec<u64>, Error> = record.shards.iter().map(end).collect();
        let purged_to = record
            .shards
            .iter()
            .map(|&shard| self.store().purged_to(shard));
        let purged_to: Result<Vec<u64>, storage::Error> = purged_to.collect();
        Ok(Some(OldChanges {
            uuid: record.uuid(name),
            kept_s,
            ends: ends?,
            purged_to: purged_to?,
            name: name.clone(),
        }))
    }
}

/// Deleted documents of a part of a shard's changes.
#[derive(Debug, Default)]
pub struct DeletedDocuments {
    /// Each with all its leaves.
    pub documents: Vec<(DocId, Vec<Rev>)>,
    /// The changes up to this seq were read.
    pub read_to: u64,
}

impl Database {
    /// Returns how many seconds deleted documents are kept; `None` for ever.
    pub fn keeps_deleted_s(&self, default: Option<&Ttl>) -> Option<u64> {
        kept_s(self.deleted_document_ttl().as_ref(), default)
    }

    /// Records that the deleted documents of a shard were purged up to a seq: later rounds, also
    /// those after a restart, begin there.
    ///
    /// # Errors
    /// [`Error::NoDatabase`], and those of the store.
    pub async fn set_purged_to(&self, shard: usize, seq: u64) -> Result<(), Error> {
        self.live()?;
        let shard = &self.all_shards()[shard];
        let put = storage::Store::put_purged_to(shard.number, seq);
        let put = self.store().committer.put_for(shard.clone(), vec![put]);
        self.if_live(
            put.await
                .map_err(|_| Error::ShuttingDown)?
                .map_err(Error::from),
        )
    }

    /// Reads which documents of a shard are deleted, by their changes after one seq and up to another. Stops when they have
    /// `leaves_min` leaves together, or when many changes were read. Blocks.
    ///
    /// # Errors
    /// [`Error::NoDatabase`], and those of the store.
    pub fn deleted_documents(
        &self,
        shard: usize,
        after: u64,
        end: u64,
        leaves_min: usize,
    ) -> Result<DeletedDocuments, Error> {
        self.if_live(self.deleted_documents_now(shard, after, end, leaves_min))
    }

    fn deleted_documents_now(
        &self,
        shard: usize,
        after: u64,
        end: u64,
        leaves_min: usize,
    ) -> Result<DeletedDocuments, Error> {
        let snapshot = self.store().snapshot();
        let number = self.all_shards()[shard].number;
        let mut found = DeletedDocuments {
            documents: vec![],
            read_to: end,
        };
        let (mut leaves, mut rows) = (0, 0);
        let mut it = ChangeIter::new(&snapshot, number, after, false);
        while let Some((seq, value)) = it.entry().filter(|(seq, _)| *seq <= end) {
            let row = Row::decode(seq, value)?;
            // The winner is deleted only if all leaves are.
            if row.deleted {
                let id = DocId::new(row.id).map_err(|_| storage::Error::Corrupt("document id"))?;
                let others = row.other_leaves()?.into_iter();
                let others = others.map(|(rev, _)| rev.to_rev());
                let revs: Vec<Rev> = std::iter::once(row.winner.to_rev()).chain(others).collect();
                leaves += revs.len();
                found.documents.push((id, revs));
            }
            rows += 1;
            if leaves >= leaves_min || rows >= ROWS_MAX {
                found.read_to = seq;
                break;
            }
            it.next();
        }
        it.status()?;
        Ok(found)
    }
}
