//! Documents with their attachments, as JSON and as multipart.

use data_encoding::HEXLOWER;
use database::{Database, ReadAttachment, ReadDoc};
use document::AttachmentForm;
use document::Encoding;
use document::multipart::{PartHead, Writer};

use super::body::Parts;
use crate::errors::ApiError;
use crate::reply::Reply;
use crate::reply::stream::CHUNK_BYTES;
use crate::request::Request;

/// A multipart boundary that no part can hold but by chance of 1 in 2^128.
pub fn boundary() -> Result<String, ApiError> {
    let mut random = [0; 16];
    getrandom::fill(&mut random).map_err(|e| ApiError::internal("The server failed.", e))?;
    Ok(HEXLOWER.encode(&random))
}

/// Whether any attachment's bytes have to be sent.
fn wants_bytes(doc: &ReadDoc) -> bool {
    doc.attachments.iter().any(|read| read.wanted)
}

/// A document that was read with its bytes requested, as the client takes it.
pub fn doc_reply(
    req: &Request,
    db: &Database,
    doc: &ReadDoc,
    encoding_info: bool,
) -> Result<Reply, ApiError> {
    let mut parts = Parts::default();
    if doc.attachments.is_empty() || !req.accepts("multipart/related") {
        push_doc_json(db, doc, encoding_info, 0, &mut parts)?;
        parts.push_text(b"\n");
        return parts.reply_now(&req.answers, "application/json");
    }
    let boundary = boundary()?;
    let content_type = push_doc_multipart(db, doc, &boundary, &mut |_, _| {}, &mut parts)?;
    parts.reply_now(&req.answers, &content_type)
}

/// Appends a document's JSON with the wanted attachments' bytes in Base64. Attachments of up to
/// `read_bytes_max` are read here, which blocks, while the parts are shorter than a piece; others as
/// the client takes them.
pub fn push_doc_json(
    db: &Database,
    doc: &ReadDoc,
    encoding_info: bool,
    read_bytes_max: u64,
    parts: &mut Parts,
) -> Result<(), ApiError> {
    if doc.attachments.is_empty() {
        parts.push_text(&doc.json);
        return Ok(());
    }
    push_open_json(doc, parts);
    let mut text = Vec::new();
    for (i, read) in doc.attachments.iter().enumerate() {
        text.clear();
        if i > 0 {
            text.push(b',');
        }
        if !read.wanted {
            read.attachment
                .write_json(AttachmentForm::Stub, encoding_info, &mut text);
            parts.push_text(&text);
            continue;
        }
        // The text of an empty Base64, to be filled.
        read.attachment
            .write_json(AttachmentForm::Data(""), encoding_info, &mut text);
        let end = b"\"data\":\"";
        let at = memchr::memmem::rfind(&text, end).map_or(text.len(), |at| at + end.len());
        parts.push_text(&text[..at]);
        let attachment = &read.attachment;
        let reader = db.base64_reader(&doc.id, attachment)?;
        match attachment.is_short(read_bytes_max) && parts.work_bytes() < CHUNK_BYTES {
            true => match reader.read_whole(read_bytes_max * 2)? {
                Some(content) => {
                    parts.push_text(content.as_bytes());
                    parts.note_decoded(attachment.stored_length as usize);
                }
                None => parts.push_base64(db.base64_reader(&doc.id, attachment)?),
            },
            false => parts.push_base64(reader),
        }
        parts.push_text(&text[at..]);
    }
    parts.push_text(b"}}");
    Ok(())
}

/// The document up to its attachments, which a read with requested bytes leaves out.
fn push_open_json(doc: &ReadDoc, parts: &mut Parts) {
    let open = doc.json.strip_suffix(b"}").unwrap_or(&doc.json);
    parts.push_text(open);
    parts.push_text(b",\"_attachments\":{");
}

/// Appends a document and the wanted attachments, and returns the content type of all. `before`
/// receives it first, to append the text before the document.
pub fn push_doc_multipart(
    db: &Database,
    doc: &ReadDoc,
    boundary: &str,
    before: &mut dyn FnMut(&str, &mut Parts),
    parts: &mut Parts,
) -> Result<String, ApiError> {
    let mut writer = Writer::new(boundary)?;
    let content_type = match wants_bytes(doc) {
        true => writer.content_type("related"),
        false => "application/json".to_owned(),
    };
    before(&content_type, parts);
    if !wants_bytes(doc) {
        push_json_with_follows(doc, parts);
        return Ok(content_type);
    }
    let mut text = Vec::new();
    let head = PartHead {
        content_type: "application/json",
        ..PartHead::default()
    };
    writer.part(&head, &mut text);
    parts.push_text(&text);
    push_json_with_follows(doc, parts);
    for ReadAttachment { attachment, .. } in doc.attachments.iter().filter(|read| read.wanted) {
        text.clear();
        let head = PartHead {
            content_type: &attachment.content_type,
            filename: Some(&attachment.name),
            length: Some(attachment.stored_length),
            encoding: (attachment.encoding == Encoding::Gzip).then_some("gzip"),
            doc: None,
        };
        writer.part(&head, &mut text);
        parts.push_text(&text);
        let reader = db.attachment_reader(&doc.id, attachment, None, false)?;
        parts.push_raw(reader, Some(attachment.stored_length));
    }
    text.clear();
    writer.end(&mut text);
    parts.push_text(&text);
    Ok(content_type)
}

fn push_json_with_follows(doc: &ReadDoc, parts: &mut Parts) {
    if doc.attachments.is_empty() {
        parts.push_text(&doc.json);
        return;
    }
    push_open_json(doc, parts);
    let mut text = Vec::new();
    for (i, read) in doc.attachments.iter().enumerate() {
        if i > 0 {
            text.push(b',');
        }
        let shown = match read.wanted {
            true => AttachmentForm::Follows,
            false => AttachmentForm::Stub,
        };
        read.attachment.write_json(shown, true, &mut text);
    }
    text.extend_from_slice(b"}}");
    parts.push_text(&text);
}
