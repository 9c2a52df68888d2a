//! Documents with attachments, written and read.

use std::sync::Arc;

use bytes::Bytes;
use database::{
    AttachmentSelection, Database, Durability, EditMode, Outcome, Read, ReadDoc, ReadOptions,
    SinkOptions, UploadedContent,
};
use document::{Attachment, DocId, EditDoc};

use crate::homes::support::doc;

pub async fn upload(db: &Database, id: &str, bytes: &[u8]) -> UploadedContent {
    let id = DocId::new(id).unwrap();
    let mut sink = db.attachment_sink(&id, "image/png", SinkOptions::default());
    for piece in bytes.chunks(60_000) {
        sink.write(Bytes::copy_from_slice(piece)).await.unwrap();
    }
    sink.finish().await.unwrap()
}

pub async fn apply(db: &Arc<Database>, edits: Vec<EditDoc>) -> Vec<Outcome> {
    let done = db.update(edits, EditMode::Interactive, Durability::Delayed);
    done.await.unwrap().0
}

pub async fn written(db: &Arc<Database>, edit: EditDoc) {
    let outcomes = apply(db, vec![edit]).await;
    assert!(matches!(outcomes[0], Outcome::Ok { .. }), "{outcomes:?}");
}

pub fn found(db: &Database, id: &str) -> Option<ReadDoc> {
    let options = ReadOptions {
        attachments: AttachmentSelection::All,
        ..ReadOptions::default()
    };
    match db.read(&DocId::new(id).unwrap(), &options).unwrap() {
        Read::Found(doc) => Some(doc),
        Read::Missing | Read::Deleted => None,
    }
}

pub fn bytes_of(db: &Database, id: &str, attachment: &Attachment) -> Vec<u8> {
    let id = DocId::new(id).unwrap();
    let mut reader = db.attachment_reader(&id, attachment, None, true).unwrap();
    let mut bytes = vec![];
    while let Some(piece) = reader.next_piece().unwrap() {
        bytes.extend_from_slice(&piece);
    }
    bytes
}

/// The next edit of a document, without attachments.
pub fn edit_of(db: &Database, id: &str) -> EditDoc {
    let mut edit = doc(&format!(r#"{{"_id":"{id}"}}"#));
    edit.rev = found(db, id).map(|doc| doc.rev);
    edit
}

pub fn base64(bytes: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

pub fn id_of(n: usize) -> String {
    format!("d{n}")
}

/// Attachments of a document as an edit brings them again.
pub fn files_of(db: &Database, n: usize) -> Vec<Attachment> {
    let attachments = found(db, &id_of(n)).map(|doc| doc.attachments);
    let attachments = attachments.unwrap_or_default().into_iter();
    attachments.map(|read| read.attachment).collect()
}
