//! Documents: reading, writing, deleting, in bulk.

use database::{Caller, Durability, EditMode, Outcome, Read, ReadOptions};
use document::{DocId, EditDoc, Rev, parse_document, write_json_string};
use functions::Requester;

use crate::{Database, Error, Result, options};

/// A document as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteResult {
    /// Its id.
    pub id: String,
    /// The current revision.
    pub rev: String,
}

/// Returns the caller: the owner of the directory may do everything. Validations see an
/// administrator, as in CouchDB.
pub(crate) fn caller() -> Caller {
    Caller {
        name: None,
        roles: vec!["_admin".to_owned()],
        requester: Requester::Admin,
    }
}

impl Database {
    /// Returns a document: JSON text. `options`: JSON text of an object.
    ///
    /// # Errors
    /// 404 `not_found` with the reason `missing` or `deleted`.
    pub fn document(&self, id: &str, options: &str) -> Result<Vec<u8>> {
        let options = match options.is_empty() {
            true => ReadOptions::default(),
            false => options::read::<options::Get>(options)?.read_options()?,
        };
        let id = DocId::new(id)?;
        let db = self.get()?;
        match db.read(&id, &options)? {
            Read::Found(doc) if options.attachments == database::AttachmentSelection::None => {
                Ok(doc.json)
            }
            Read::Found(doc) => Ok(db.json_with_bytes(&doc, options.att_encoding_info)?),
            Read::Missing => Err(Error::missing("missing")),
            Read::Deleted => Err(Error::missing("deleted")),
        }
    }

    /// Writes a document, JSON text. One without `_id` is given one.
    ///
    /// # Errors
    /// 409 `conflict`; the refusal of a validation; 400 for an invalid document.
    pub async fn put(&self, document: &[u8], options: &str) -> Result<WriteResult> {
        let options: options::Put = options::read(options)?;
        let edit = parse_document(document)?;
        self.write(edit, options.mode(), options.durability()).await
    }

    /// Deletes a document.
    ///
    /// # Errors
    /// 409 `conflict`, 404 `not_found`.
    pub async fn delete(&self, id: &str, rev: &str, options: &str) -> Result<WriteResult> {
        let options: options::Put = options::read(options)?;
        let id = DocId::new(id)?;
        if let Read::Missing = self.get()?.read(&id, &ReadOptions::default())? {
            return Err(Error::missing("missing"));
        }
        let edit = EditDoc {
            id: Some(id),
            rev: Some(Rev::parse(rev)?),
            deleted: true,
            ..parse_document(b"{}")?
        };
        self.write(edit, options.mode(), options.durability()).await
    }

    pub(crate) async fn write(
        &self,
        mut edit: EditDoc,
        mode: EditMode,
        durability: Durability,
    ) -> Result<WriteResult> {
        self.name_it(&mut edit)?;
        let id = edit.id.as_ref().map(ToString::to_string);
        let db = self.writable()?;
        let done = db.update_as(caller(), vec![edit], mode, durability);
        let (mut outcomes, _) = done.await?;
        match outcomes.pop() {
            Some(Outcome::Ok { rev }) => Ok(WriteResult {
                id: id.unwrap_or_default(),
                rev: rev.to_string(),
            }),
            // For the document being written, the error is the writer's.
            Some(Outcome::Refused(error, reason))
                if error == "compilation_error"
                    && id.as_ref().is_some_and(|id| id.starts_with("_design/")) =>
            {
                Err(Error::new(400, error, reason))
            }
            Some(refused) => Err(Error::of(refused).unwrap_or_else(Error::conflict)),
            None => Err(Error::conflict()),
        }
    }

    /// Gives an edit an id unless it has one.
    pub(crate) fn name_it(&self, edit: &mut EditDoc) -> Result<()> {
        if edit.id.is_none() {
            edit.id = Some(DocId::new(&self.directory.new_id())?);
        }
        Ok(())
    }

    /// Writes documents, each JSON text, in one commit, and returns their outcomes: JSON text of a
    /// list, as of `_bulk_docs`.
    ///
    /// # Errors
    /// 400 when one of them is not a document: then none is written. Single refusals are in the
    /// returned list.
    pub async fn bulk<T: AsRef<[u8]>>(&self, documents: &[T], options: &str) -> Result<Vec<u8>> {
        let options = options::read(options)?;
        let mut edits = Vec::with_capacity(documents.len());
        for document in documents {
            let mut edit = parse_document(document.as_ref())?;
            self.name_it(&mut edit)?;
            edits.push(edit);
        }
        self.write_bulk(edits, &options).await
    }

    /// Writes edits, all of which have ids, in one commit; the outcomes are JSON text.
    pub(crate) async fn write_bulk(
        &self,
        edits: Vec<EditDoc>,
        options: &options::Put,
    ) -> Result<Vec<u8>> {
        let ids: Vec<DocId> = edits.iter().filter_map(|edit| edit.id.clone()).collect();
        let (mode, durability) = (options.mode(), options.durability());
        let db = self.writable()?;
        let done = db.update_bulk_as(caller(), edits, mode, durability);
        let (outcomes, _) = done.await?;
        Ok(outcomes_json(&ids, outcomes, mode))
    }
}

/// One object a document; of replicated edits only those that failed.
fn outcomes_json(ids: &[DocId], outcomes: Vec<Outcome>, mode: EditMode) -> Vec<u8> {
    let mut out = Vec::with_capacity(outcomes.len() * 100 + 2);
    out.push(b'[');
    for (id, outcome) in ids.iter().zip(outcomes) {
        if mode == EditMode::Replicated && matches!(outcome, Outcome::Ok { .. }) {
            continue;
        }
        if out.len() > 1 {
            out.push(b',');
        }
        if let Outcome::Ok { rev } = outcome {
            out.extend_from_slice(b"{\"ok\":true,\"id\":");
            write_json_string(id.as_str(), &mut out);
            out.extend_from_slice(b",\"rev\":");
            rev.write_json_to(&mut out);
        } else if let Some(e) = Error::of(outcome) {
            out.extend_from_slice(b"{\"id\":");
            write_json_string(id.as_str(), &mut out);
            out.extend_from_slice(b",\"error\":");
            write_json_string(&e.error, &mut out);
            out.extend_from_slice(b",\"reason\":");
            write_json_string(&e.reason, &mut out);
        }
        out.push(b'}');
    }
    out.push(b']');
    out
}
