//! Attachments as streams.

use std::sync::Arc;

use bytes::Bytes;
use database::{
    AttachmentReader, AttachmentSink, Durability, EditMode, Read, ReadDoc, ReadOptions, SinkOptions,
};
use document::{Attachment, DocId, EditDoc, Rev, parse_document};

use crate::{Database, Error, Handle, Result, WriteResult, options};

/// The content type of attachments without one.
pub(crate) const DEFAULT_TYPE: &str = "application/octet-stream";

/// Metadata of an attachment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachmentInfo {
    /// As it was said when it was written.
    pub content_type: String,
    /// Bytes of the whole, not of a range of it. The content of an attachment that a client sent
    /// gzipped may be longer.
    pub length: u64,
    /// `md5-…`
    pub digest: String,
}

/// The bytes of an attachment.
#[derive(Clone)]
pub struct Reader {
    handle: Arc<Handle<AttachmentReader>>,
    info: Arc<AttachmentInfo>,
}

impl Reader {
    /// Returns the metadata.
    pub fn info(&self) -> &AttachmentInfo {
        &self.info
    }

    /// Returns the next piece, not empty; none at the end. Blocks for the time of a read.
    ///
    /// # Errors
    /// [`Error::closed`], or what the store meets.
    pub fn next(&self) -> Result<Option<Bytes>> {
        loop {
            // Between two steps it may be closed.
            let piece = self.handle.with(|reader| Ok(reader.next_piece()?))?;
            if piece.as_ref().is_none_or(|piece| !piece.is_empty()) {
                return Ok(piece);
            }
        }
    }

    /// Releases it.
    pub fn close(&self) {
        self.handle.close();
    }
}

/// An attachment that is being written. Without [`Writer::finish`] it leaves nothing.
#[derive(Clone)]
pub struct Writer {
    handle: Arc<Handle<AttachmentSink>>,
    upload: Arc<Upload>,
}

struct Upload {
    db: Database,
    id: DocId,
    name: String,
    content_type: String,
    before: Before,
}

impl Writer {
    /// Takes the next bytes.
    ///
    /// # Errors
    /// [`Error::closed`], or what the store meets: then nothing more is taken.
    pub async fn write(&self, bytes: Bytes) -> Result<()> {
        let mut sink = self.handle.take()?;
        sink.write(bytes).await?;
        self.handle.put_back(sink);
        Ok(())
    }

    /// Ends the upload, and writes the document's new revision.
    ///
    /// # Errors
    /// 409 `conflict` when the document has changed meanwhile, and what the store meets.
    pub async fn finish(&self) -> Result<WriteResult> {
        let sink = self.handle.take()?;
        // Held until the edit that names it is acknowledged.
        let uploaded = sink.finish().await?;
        let upload = &*self.upload;
        let mut files = vec![uploaded.attachment(&upload.name, &upload.content_type, None)];
        files.extend(upload.before.others(&upload.name));
        let edit = upload.before.edit(upload.id.clone(), files)?;
        let written = upload
            .db
            .write(edit, EditMode::Interactive, Durability::Synced);
        written.await
    }

    /// Discards it.
    pub fn close(&self) {
        self.handle.close();
    }
}

/// The revision that an attachment is added to or removed from; none for a new document.
struct Before(Option<ReadDoc>);

impl Before {
    fn others(&self, name: &str) -> impl Iterator<Item = Attachment> {
        let attachments = self.0.iter().flat_map(|doc| &doc.attachments);
        let attachments = attachments.map(|read| &read.attachment);
        attachments.filter(move |a| a.name != name).cloned()
    }

    fn edit(&self, id: DocId, files: Vec<Attachment>) -> Result<EditDoc> {
        let body = self.0.as_ref().map_or(&b"{}"[..], |doc| &doc.json);
        Ok(EditDoc {
            id: Some(id),
            rev: self.0.as_ref().map(|doc| doc.rev.clone()),
            revisions: None,
            deleted: self.0.as_ref().is_some_and(|doc| doc.deleted),
            attachments: None,
            files,
            ..parse_document(body)?
        })
    }
}

/// Refuses an attachment that the document `id` cannot have.
pub(crate) fn check_attachment(id: &DocId, name: &str) -> Result<()> {
    if name.starts_with('_') {
        return Err(Error::bad_request(format!(
            "Attachment name '{name}' starts with prohibited character '_'"
        )));
    }
    match id.is_local() {
        true => Err(Error::bad_request(
            "_local documents do not accept attachments.",
        )),
        false => Ok(()),
    }
}

impl Database {
    fn found(&self, id: &DocId, rev: Option<&str>) -> Result<ReadDoc> {
        let options = ReadOptions {
            rev: rev.map(Rev::parse).transpose()?,
            ..ReadOptions::default()
        };
        match self.get()?.read(id, &options)? {
            Read::Found(doc) => Ok(doc),
            Read::Missing => Err(Error::missing("missing")),
            Read::Deleted => Err(Error::missing("deleted")),
        }
    }

    /// Opens an attachment. `options`: JSON text of an object.
    ///
    /// # Errors
    /// 404 `not_found`.
    pub fn attachment(&self, id: &str, name: &str, options: &str) -> Result<Reader> {
        let options: options::Attachment = options::read(options)?;
        let id = DocId::new(id)?;
        let doc = self.found(&id, options.rev.as_deref())?;
        let attachments = doc.attachments.into_iter().map(|read| read.attachment);
        let attachment = attachments
            .into_iter()
            .find(|attachment| attachment.name == name)
            .ok_or_else(|| Error::missing("Document is missing attachment"))?;
        let range = match (options.start, options.end) {
            (None, None) => None,
            (start, end) => Some(start.unwrap_or(0)..end.unwrap_or(u64::MAX)),
        };
        let reader = self
            .get()?
            .attachment_reader(&id, &attachment, range, true)?;
        Ok(Reader {
            handle: self.directory.handle(reader),
            info: Arc::new(AttachmentInfo {
                digest: attachment.digest(),
                content_type: attachment.content_type,
                length: attachment.length,
            }),
        })
    }

    /// Starts writing an attachment of the revision `rev` of a document, or of a new document.
    /// `options`: JSON text of an object.
    ///
    /// # Errors
    /// 409 `conflict`, 400 for an invalid attachment name.
    pub fn put_attachment(&self, id: &str, name: &str, options: &str) -> Result<Writer> {
        let options: options::Attachment = options::read(options)?;
        if options.start.or(options.end).is_some() {
            return Err(Error::bad_request("a range applies to reads only"));
        }
        let id = DocId::new(id)?;
        check_attachment(&id, name)?;
        let before = self.before(&id, options.rev.as_deref())?;
        let content_type = options.content_type.as_deref().unwrap_or(DEFAULT_TYPE);
        let sink = self
            .writable()?
            .attachment_sink(&id, content_type, SinkOptions::default());
        Ok(Writer {
            handle: self.directory.handle(sink),
            upload: Arc::new(Upload {
                db: self.clone(),
                id,
                name: name.to_owned(),
                content_type: content_type.to_owned(),
                before,
            }),
        })
    }

    /// Said before the bytes come: who is going to be refused need not send them.
    fn before(&self, id: &DocId, rev: Option<&str>) -> Result<Before> {
        match rev {
            None => match self.found(id, None) {
                Ok(_) => Err(Error::conflict()),
                Err(e) if e.status == 404 => Ok(Before(None)),
                Err(e) => Err(e),
            },
            Some(rev) => match self.found(id, Some(rev)) {
                Ok(doc) => Ok(Before(Some(doc))),
                Err(e) if e.status == 404 => Err(Error::conflict()),
                Err(e) => Err(e),
            },
        }
    }

    /// Removes an attachment.
    ///
    /// # Errors
    /// 404 `not_found`, 409 `conflict`.
    pub async fn delete_attachment(&self, id: &str, name: &str, rev: &str) -> Result<WriteResult> {
        let id = DocId::new(id)?;
        let before = self.before(&id, Some(rev))?;
        let is_it = |read: &database::ReadAttachment| read.attachment.name == name;
        if !before.0.iter().any(|doc| doc.attachments.iter().any(is_it)) {
            return Err(Error::missing("Document is missing attachment"));
        }
        let edit = before.edit(id, before.others(name).collect())?;
        self.write(edit, EditMode::Interactive, Durability::Synced)
            .await
    }
}
