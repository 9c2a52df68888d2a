//! Which documents have expired, and their deletion or purge.

use std::sync::Arc;
use std::sync::atomic::Ordering::AcqRel;

use document::{DocId, EditDoc, Rev, parse_document};
use index::PlaceRange;
use storage::Record;

use super::mapper::{INVALID, NAME, TIMES, spec};
use super::property::{ExpiredDocuments, Expiry};
use crate::catalogue::DatabaseRecord;
use crate::database::Database;
use crate::databases::Databases;
use crate::update::blocking;
use crate::views::{Design, ViewIndex};
use crate::{Durability, EditMode, Error, NameRange, Outcome};

/// After this number of leaves, no further document is purged with them.
const PURGED_LEAVES: usize = 10_000;

/// A document that has expired.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpiredDocument {
    /// When, in seconds since 1970.
    pub at_unix_s: u64,
    /// The document.
    pub id: DocId,
    /// The revision that names the time.
    pub rev: Rev,
}

/// The contents of a database's index of times at a moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DueDocuments {
    /// Expired documents, the earliest first.
    pub documents: Vec<ExpiredDocument>,
    /// When the next one expires, in seconds since 1970. It may have expired too.
    pub next_unix_s: Option<u64>,
    /// Number of documents with an invalid time.
    pub invalid: u64,
}

impl Databases {
    /// Returns the names of the databases whose documents expire. Opens none; blocks.
    ///
    /// # Errors
    /// Those of the store.
    pub fn with_expiry(&self) -> Result<Vec<Arc<str>>, Error> {
        let mut all = vec![];
        for name in self.names(&NameRange::default()) {
            if let Some(record) = self.store().database(&name)?
                && DatabaseRecord::decode(&record)?.expiry.is_some()
            {
                all.push(name);
            }
        }
        Ok(all)
    }
}

impl Database {
    /// Opens the index of the times of documents. From here on a commit is noted again where changes are watched. Blocks.
    ///
    /// # Errors
    /// [`Error::NoDatabase`], and those of the store.
    pub fn expiry_index(&self, expiry: &Expiry) -> Result<Arc<ViewIndex>, Error> {
        // Not a store: what was committed before a note that is taken back here must be seen.
        let _was_noted = self.is_expiry_noted.swap(false, AcqRel);
        let design = Design::without_document(NAME, spec(expiry.member()));
        self.view_index(&design)
    }

    /// Reads which documents have expired, up to about `documents_max` of them. Blocks.
    ///
    /// # Errors
    /// [`Error::NoDatabase`], and those of the store.
    pub fn due(
        &self,
        index: &ViewIndex,
        now_unix_s: u64,
        documents_max: usize,
    ) -> Result<DueDocuments, Error> {
        let mut due = DueDocuments::default();
        let of_shard_max = documents_max.div_ceil(index.shards.len().max(1));
        for shard in &index.shards {
            self.lifecycle
                .explain(add_due(shard, now_unix_s, of_shard_max, &mut due))?;
        }
        due.documents.sort_by_key(|document| document.at_unix_s);
        Ok(due)
    }

    /// Deletes or purges expired documents, and returns how many. A document that was changed after it was found stays as it
    /// is. No `validate_doc_update` function is called: one that refuses deletions would keep documents forever.
    ///
    /// # Errors
    /// Those of an update or a purge.
    pub async fn expire(
        self: &Arc<Self>,
        then: ExpiredDocuments,
        documents: Vec<ExpiredDocument>,
    ) -> Result<u64, Error> {
        match then {
            ExpiredDocuments::Delete => self.delete_expired(documents).await,
            ExpiredDocuments::Purge => self.purge_expired(documents).await,
        }
    }

    async fn delete_expired(
        self: &Arc<Self>,
        documents: Vec<ExpiredDocument>,
    ) -> Result<u64, Error> {
        // Nothing is kept of the document. So replicas that expire it themselves create the same revision.
        let deletion = parse_document(b"{\"_deleted\":true}")
            .map_err(|e| Error::Internal(format!("the body of a deletion: {e}")))?;
        let edits = documents.into_iter().map(|document| EditDoc {
            id: Some(document.id),
            rev: Some(document.rev),
            ..deletion.clone()
        });
        let updated = self.update(edits.collect(), EditMode::Interactive, Durability::Synced);
        let (outcomes, _) = updated.await?;
        let is_done = |outcome: &&Outcome| matches!(outcome, Outcome::Ok { .. });
        Ok(outcomes.iter().filter(is_done).count() as u64)
    }

    async fn purge_expired(
        self: &Arc<Self>,
        documents: Vec<ExpiredDocument>,
    ) -> Result<u64, Error> {
        let me = self.clone();
        let requests = blocking(move || me.if_live(me.expired_leaves(documents)));
        let purged = self.purge(requests.await?).await?;
        let is_done = |(_, revs): &&(DocId, Vec<Rev>)| !revs.is_empty();
        Ok(purged.removed.iter().filter(is_done).count() as u64)
    }

    /// Returns the leaves to purge of the first of these documents, until they are
    /// [`PURGED_LEAVES`]: a purge has all of them in memory. The others stay due.
    fn expired_leaves(
        &self,
        documents: Vec<ExpiredDocument>,
    ) -> Result<Vec<(DocId, Vec<Rev>)>, Error> {
        let (mut requests, mut leaves) = (vec![], 0);
        for document in documents {
            if leaves >= PURGED_LEAVES {
                break;
            }
            let id = document.id.as_str();
            let record = self.shard_for(id).record(id)?;
            let revs = purged_leaves(&record.unwrap_or_default(), document.rev);
            leaves += revs.len();
            requests.push((document.id, revs));
        }
        Ok(requests)
    }
}

/// Returns the leaves to purge of a document, one revision of which has expired: all of them unless another one is not deleted.
fn purged_leaves(record: &Record, expired: Rev) -> Vec<Rev> {
    let leaves = record.tree.leaves();
    let is_expired = |leaf: &document::Leaf<'_>| leaf.rev.to_rev() == expired;
    let mut others = leaves.iter().filter(|leaf| !is_expired(leaf));
    let is_there = leaves.iter().any(is_expired);
    match is_there && others.all(|leaf| leaf.revision.deleted) {
        true => leaves.iter().map(|leaf| leaf.rev.to_rev()).collect(),
        false => vec![expired],
    }
}

/// Adds what the index of a shard holds.
fn add_due(
    shard: &index::Index,
    now_unix_s: u64,
    documents_max: usize,
    due: &mut DueDocuments,
) -> Result<(), Error> {
    let view = shard.view()?;
    due.invalid += view.rows(INVALID);
    // Where the first block with rows begins: the rows before it were removed, and an iterator would skip them one by one.
    let Some(low) = view.place_at(TIMES, 0)? else {
        return Ok(());
    };
    let range = PlaceRange { low, high: None };
    let mut rows = view.iter(TIMES, &range, false);
    let mut found = 0;
    while let Some(row) = rows.row()? {
        let corrupt = || Error::Storage(storage::Error::Corrupt("index of times"));
        let at_unix_s = serde_json::from_slice(row.stored.key).map_err(|_| corrupt())?;
        if at_unix_s > now_unix_s || found >= documents_max {
            let next = due
                .next_unix_s
                .map_or(at_unix_s, |next| next.min(at_unix_s));
            due.next_unix_s = Some(next);
            break;
        }
        let rev: String = serde_json::from_slice(row.stored.value).map_err(|_| corrupt())?;
        due.documents.push(ExpiredDocument {
            at_unix_s,
            id: DocId::new(&row.id()?).map_err(|_| corrupt())?,
            rev: Rev::parse(&rev).map_err(|_| corrupt())?,
        });
        found += 1;
        rows.next();
    }
    Ok(())
}
