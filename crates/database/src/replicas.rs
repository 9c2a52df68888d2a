//! Revisions in a form for another database: nothing is converted to JSON, and nothing parsed.

use document::{DocId, EditDoc, Rev, StoredBody};

use crate::Error;
use crate::database::Database;
use crate::rules::DatabaseAs;

impl Database {
    /// The leaves that `revs` have become, each as an edit for
    /// [`EditMode::Replicated`](crate::EditMode::Replicated): with its ancestors, without
    /// `body_term`; its `files` are in this database, and another has to copy them first. Missing
    /// ones are left out.
    ///
    /// # Errors
    /// Errors of reads.
    pub fn replicas(&self, id: &DocId, revs: &[Rev]) -> Result<Vec<EditDoc>, Error> {
        self.if_live(self.replicas_now(id, revs))
    }

    fn replicas_now(&self, id: &DocId, revs: &[Rev]) -> Result<Vec<EditDoc>, Error> {
        let shard = self.shard_for(id.as_str());
        loop {
            let Some(record) = shard.record(id.as_str())? else {
                return Ok(vec![]);
            };
            let mut wanted: Vec<(Rev, document::Revision)> = vec![];
            for rev in revs {
                for leaf in record.tree.latest_of(rev) {
                    let rev = leaf.rev.to_rev();
                    if wanted.iter().all(|(known, _)| *known != rev) {
                        wanted.push((rev, leaf.revision));
                    }
                }
            }
            let mut edits = Vec::with_capacity(wanted.len());
            for (rev, revision) in &wanted {
                let Some(body) = shard.body(revision.seq)? else {
                    break;
                };
                let stored = StoredBody::split(&body);
                let corrupt = storage::Error::Corrupt("attachments");
                edits.push(EditDoc {
                    id: Some(id.clone()),
                    revisions: record.tree.path(rev),
                    rev: Some(rev.clone()),
                    deleted: revision.deleted,
                    attachments: None,
                    files: stored.attachments().ok_or(corrupt)?,
                    body: stored.json.to_vec(),
                    body_term: vec![],
                });
            }
            if edits.len() == wanted.len() {
                return Ok(edits);
            }
            // A body was compacted away since the record was read: a newer record names where it is now.
            if shard
                .record(id.as_str())?
                .is_some_and(|r| r.seq == record.seq)
            {
                return Err(storage::Error::Corrupt("document body").into());
            }
        }
    }
}

impl Database {
    /// Refuses ids that this database cannot take: those without a partition, if it has partitions.
    ///
    /// # Errors
    /// [`Error::Partition`]
    pub fn check_id(&self, id: &DocId) -> Result<(), Error> {
        match self.is_partitioned() {
            true => crate::partition::check_id(id),
            false => Ok(()),
        }
    }
}

impl DatabaseAs {
    /// Whether all callers see everything: the database has no rules.
    pub fn is_open(&self) -> bool {
        self.rules().is_none()
    }

    /// Whether the caller sees everything: then [`Database::replicas`] may be used.
    pub fn sees_all(&self) -> bool {
        !self.has_watch() && !self.is_limited()
    }
}
