//! A database on this server: no HTTP, and stored documents are copied without conversion.

use std::sync::Arc;

use database::{
    AttachmentSelection, Caller, ChangesQuery as DatabaseQuery, DatabaseAs, Durability, EditMode,
    Filter, Outcome, Read, ReadOptions, RevSelection, Since, Style,
};
use document::{Attachment, DocId, EditDoc, Rev, parse_document};
use serde_json::{Map, Value};

use super::batch::{Change, ChangesQuery};
use super::changes::LocalFeed;
use super::{Body, Doc, Gather, Info, Portions, Rejection, SMALL_ATTACHMENTS_BYTES};
use crate::db::MissingRevs;
use crate::db::json_limits::{self, VALUES_MAX};
use crate::error::Error;
use crate::options::Selection;
use crate::rows::{Form, Rows};
use crate::shared_reads::{Settle, SharedReads, settled};

/// Maximum number of revisions of a document read at a time, since each may have the maximum
/// document size.
const REVS_AT_ONCE: usize = 8;

/// A database with the rights of the replication's owner.
#[derive(Clone)]
pub struct LocalDb {
    /// The database, which applies its read rules.
    pub db: DatabaseAs,
    /// The user who writes the documents.
    pub caller: Caller,
    /// Whether design documents may be written.
    pub is_admin: bool,
    /// The filter function of a design document, if one is selected.
    pub filter: Option<Filter>,
    /// Refuses documents that the server would refuse over HTTP: error and reason.
    pub check: Check,
    /// Maximum length of an attachment, in bytes.
    pub attachment_bytes_max: u64,
    /// Maximum number of attachments of a document.
    pub attachments_max: u64,
    /// Set when other servers of a cluster write to the database too.
    pub shared: Option<Arc<dyn SharedReads>>,
}

/// See [`LocalDb::check`].
pub type Check = Arc<dyn Fn(&EditDoc) -> Result<(), (String, String)> + Send + Sync>;

impl LocalDb {
    fn gone(&self, e: database::Error) -> Error {
        match e {
            database::Error::NoDatabase => Error::NoDatabase(self.db.name().to_string()),
            e => e.into(),
        }
    }

    /// Waits until this server has applied all acknowledged writes; returns how to wait until what
    /// is read then is final.
    ///
    /// # Errors
    /// Those of [`SharedReads::current`].
    pub async fn current(&self) -> Result<Option<Settle>, Error> {
        match &self.shared {
            Some(shared) => shared.current().await.map(Some),
            None => Ok(None),
        }
    }

    /// Returns the database's info.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn info(&self) -> Result<Info, Error> {
        let info = self.db.info().map_err(|e| self.gone(e))?;
        Ok(Info {
            is_empty: info.doc_count == 0
                && info.doc_del_count == 0
                && super::http::number_of(&Value::from(info.update_seq.as_str())) == Some(0),
            update_seq: info.update_seq.into(),
            instance_start_time: Some(info.instance_start_time),
        })
    }

    /// Returns the winning revision of a document; `None` when it is missing or deleted.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn read(&self, id: &str) -> Result<Option<Map<String, Value>>, Error> {
        let Ok(id) = DocId::new(id) else {
            return Ok(None);
        };
        match self.db.read(&id, &ReadOptions::default())? {
            Read::Found(doc) => (json_limits::parse(&doc.json, VALUES_MAX).map(Some))
                .map_err(|told| Error::Request(format!("{}: {told}", id.as_str()))),
            Read::Missing | Read::Deleted => Ok(None),
        }
    }

    /// Writes a `_local` document.
    ///
    /// # Errors
    /// Errors of the database.
    pub async fn write_local(
        &self,
        id: &str,
        rev: Option<&str>,
        body: &Map<String, Value>,
    ) -> Result<String, Error> {
        let refused = |told: String| Error::CheckpointCommitFailure(told);
        let mut doc = body.clone();
        doc.insert("_id".into(), id.into());
        if let Some(rev) = rev {
            doc.insert("_rev".into(), rev.into());
        }
        let edit = parse_document(Value::Object(doc).to_string().as_bytes())
            .map_err(|e| refused(e.to_string()))?;
        let write = self
            .db
            .update(vec![edit], EditMode::Interactive, Durability::Synced);
        match write.await?.0.pop() {
            Some(Outcome::Ok { rev }) => Ok(rev.to_string()),
            _ => Err(refused("conflict".into())),
        }
    }

    /// Syncs all writes to disk; returns the instance start time, if there is one.
    ///
    /// # Errors
    /// Errors of the database.
    pub async fn ensure_full_commit(&self) -> Result<Option<String>, Error> {
        self.db.ensure_full_commit().await?;
        Ok(self.info()?.instance_start_time)
    }

    fn query(&self, query: &ChangesQuery, since: &Value) -> Result<DatabaseQuery, Error> {
        let since = match since {
            Value::String(seq) if !seq.is_empty() => Since::Seq(seq.clone()),
            Value::String(_) => Since::Start,
            Value::Number(n) if n.as_u64() == Some(0) => Since::Start,
            Value::Null => Since::Start,
            other => Since::Seq(other.to_string()),
        };
        Ok(DatabaseQuery {
            since,
            descending: false,
            limit: None,
            style: match query.winning_revs_only {
                true => Style::MainOnly,
                false => Style::AllDocs,
            },
            include_docs: query.include_docs,
            conflicts: false,
            attachments: database::ShownAttachments::default(),
            filter: match &query.selection {
                Selection::All => Filter::None,
                Selection::Ids(ids) => Filter::of_ids(ids.iter().collect()),
                Selection::Filter { name, .. } if name == "_design" => Filter::Design,
                Selection::Filter { .. } | Selection::Selector(_) => self
                    .filter
                    .clone()
                    .ok_or_else(|| Error::FilterFetch("the filter does not exist".into()))?,
            },
            seq_interval: None,
        })
    }

    /// Returns the number of changes of `query` after `since`; `None` when it is unknown.
    pub fn pending(&self, query: &ChangesQuery, since: &Value) -> Option<u64> {
        let all = ChangesQuery {
            selection: Selection::All,
            ..query.clone()
        };
        let changes = self.db.changes(self.query(&all, since).ok()?).ok()?;
        changes.pending().ok()
    }

    /// Opens the changes feed after `since`, whose batches wait for `settle`.
    ///
    /// # Errors
    /// An invalid `since`, and those of the database.
    pub fn changes(
        &self,
        query: &ChangesQuery,
        since: &Value,
        settle: Option<Settle>,
    ) -> Result<LocalFeed, Error> {
        // Subscribes before reading, so that no change is missed in between.
        let changed = self.db.watch();
        // Documents are read from the store without conversion, which is cheaper than JSON.
        let query = ChangesQuery {
            include_docs: false,
            ..query.clone()
        };
        Ok(LocalFeed {
            changes: Some(self.db.changes(self.query(&query, since)?)?),
            changed,
            rows: Rows::new(Form::Lines),
            next: None,
            query,
            seq: since.clone(),
            ended: false,
            settle,
        })
    }

    /// Returns the revisions in `changes` that the database lacks.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn revs_diff(&self, changes: &[Change]) -> Result<Vec<MissingRevs>, Error> {
        let mut all = vec![];
        for change in changes {
            // The possible ancestors, perhaps thousands, are dropped before the next document.
            let diff = self.db.revs_diff(&change.id, &parse_revs(&change.revs))?;
            all.extend(diff.map(|diff| MissingRevs {
                id: change.id.clone(),
                revs: diff.missing.iter().map(Rev::to_string).collect(),
            }));
        }
        Ok(all)
    }

    /// Reads the wanted revisions into `portions`.
    ///
    /// # Errors
    /// Errors of the database.
    pub async fn fetch(&self, wanted: Vec<MissingRevs>, portions: &Portions) -> Result<(), Error> {
        let settle = self.current().await?;
        let mut out = Gather::new(portions);
        for missing in wanted {
            let Ok(id) = DocId::new(&missing.id) else {
                continue;
            };
            for revs in missing.revs.chunks(REVS_AT_ONCE) {
                let bodies = self.bodies(&id, parse_revs(revs))?;
                settled(settle.as_ref()).await?;
                for body in bodies {
                    let id = missing.id.clone();
                    out.add(Doc { id, body }).await?;
                }
            }
        }
        out.flush().await
    }

    fn bodies(&self, id: &DocId, revs: Vec<Rev>) -> Result<Vec<Body>, Error> {
        if self.db.sees_all() {
            let edits = self.db.replicas(id, &revs)?;
            return edits.into_iter().map(|edit| self.body(id, edit)).collect();
        }
        self.json(id, revs)
    }

    /// An edit without attachments can be copied without conversion.
    fn body(&self, id: &DocId, edit: EditDoc) -> Result<Body, Error> {
        match edit.rev.clone() {
            Some(rev) if !are_small(edit.files.iter()) => Ok(Body::Streamed(rev.to_string())),
            Some(rev) if !edit.files.is_empty() => {
                let mut json = self.json(id, vec![rev])?;
                Ok(json.pop().unwrap_or(Body::Edit(Box::new(edit))))
            }
            _ => Ok(Body::Edit(Box::new(edit))),
        }
    }

    /// Returns revisions with their attachments in Base64, if these are small.
    fn json(&self, id: &DocId, revs: Vec<Rev>) -> Result<Vec<Body>, Error> {
        let options = ReadOptions {
            revs: true,
            latest: true,
            attachments: AttachmentSelection::All,
            ..ReadOptions::default()
        };
        let found = self.db.open_revs(id, &RevSelection::List(revs), &options)?;
        let Some(found) = found else {
            return Ok(vec![]);
        };
        found
            .all()?
            .into_iter()
            .flatten()
            .map(|doc| {
                let mut attachments = doc.attachments.iter().map(|read| &read.attachment);
                match are_small(&mut attachments) {
                    true => Ok(Body::Json(self.db.json_with_bytes(&doc, false)?.into())),
                    false => Ok(Body::Streamed(doc.rev.to_string())),
                }
            })
            .collect()
    }

    /// Writes documents under their existing revisions; returns those that were refused.
    ///
    /// # Errors
    /// Errors of the database.
    pub async fn write(&self, docs: Vec<Doc>) -> Result<Vec<Rejection>, Error> {
        let mut refused = vec![];
        let mut edits = Vec::with_capacity(docs.len());
        for doc in docs {
            match self.edit(doc) {
                Ok(edit) => edits.push(edit),
                Err(no) => refused.push(no),
            }
        }
        let ids: Vec<Option<DocId>> = edits.iter().map(|e| e.id.clone()).collect();
        if !edits.is_empty() {
            let (caller, db) = (self.caller.clone(), self.db.clone());
            let write = db.update_as(caller, edits, EditMode::Replicated, Durability::Synced);
            let (outcomes, _) = write.await.map_err(|e| self.gone(e))?;
            for (id, outcome) in ids.into_iter().zip(outcomes) {
                let (error, reason) = match outcome {
                    Outcome::Ok { .. } => continue,
                    Outcome::Conflict => ("conflict".into(), "Document update conflict.".into()),
                    Outcome::Refused(error, reason) => (error, reason),
                };
                refused.push(Rejection {
                    id: id.map(|id| id.to_string()).unwrap_or_default(),
                    error: error.into_owned(),
                    reason: reason.into_owned(),
                });
            }
        }
        Ok(refused)
    }

    fn edit(&self, doc: Doc) -> Result<EditDoc, Rejection> {
        let no = |id: &str, error: &str, reason: String| Rejection {
            id: id.to_owned(),
            error: error.to_owned(),
            reason,
        };
        let edit = match doc.body {
            Body::Edit(edit) => *edit,
            Body::Json(text) => {
                parse_document(&text).map_err(|e| no(&doc.id, e.error(), e.to_string()))?
            }
            // A document read as a stream is also written as a stream.
            Body::Streamed(_) => return Err(no(&doc.id, "bad_request", "not read".into())),
        };
        let Some(id) = &edit.id else {
            return Err(no(&doc.id, "bad_request", "there is no `_id`".into()));
        };
        if id.is_design() && !self.is_admin {
            let reason = "You are not a db or server admin.";
            return Err(no(id.as_str(), "forbidden", reason.into()));
        }
        match (self.check)(&edit) {
            Ok(()) => Ok(edit),
            Err((error, reason)) => Err(no(id.as_str(), &error, reason)),
        }
    }
}

fn parse_revs(revs: &[String]) -> Vec<Rev> {
    revs.iter().filter_map(|rev| Rev::parse(rev).ok()).collect()
}

/// Whether attachments are sent with their document, in Base64. The length of a content
/// that a client compressed is its claim: it may inflate to anything. Its stored bytes may be more
/// than the decoded ones, and all of them are read.
fn are_small<'a>(mut attachments: impl Iterator<Item = &'a Attachment>) -> bool {
    let length = attachments.try_fold(0_u64, |sum, attachment| {
        let bytes = attachment.length.max(attachment.stored_length);
        (!attachment.length_unsure).then(|| sum.saturating_add(bytes))
    });
    length.is_some_and(|length| length <= SMALL_ATTACHMENTS_BYTES)
}
