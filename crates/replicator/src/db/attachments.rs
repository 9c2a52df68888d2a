//! Copies revisions with large attachments one at a time, as streams, so that no attachment is ever
//! in memory as a whole.
//!
//! Between two servers, the `multipart/related` body of the response from one is the body of the
//! request to the other.

use bytes::Bytes;
use data_encoding::HEXLOWER;
use database::{AttachmentReader, SinkOptions};
use document::multipart::{ContentType, Limits, Parser, PartHead, Writer};
use document::{Attachment, AttachmentForm, DocId, EditDoc, Encoding, Rev};
use futures_util::stream;
use reqwest::header::CONTENT_TYPE;

use super::http::{HttpDb, MISSING_WAIT, Put, cause, edit_json, whole_document};
use super::local::LocalDb;
use super::long_responses::{ResponsePermit, row_bytes_max};
use super::peer_values::cut_reason;
use super::received_document::{Broken, ReceivedDocument};
use super::{Body, Db, Doc, Rejection, retry};
use crate::error::Error;

/// The result of one attempt.
enum CopyAttempt {
    Done(Vec<Rejection>),
    /// Failed, and may be retried: the reason.
    Again(String),
    /// The source does not have the revision.
    Missing,
}

/// Copies one revision. Returns the target's reason for refusing it, if it does.
///
/// # Errors
/// Errors of requests.
pub async fn bring(
    source: &Db,
    target: &Db,
    id: &str,
    rev: &str,
    retries: u32,
) -> Result<Vec<Rejection>, Error> {
    let mut attempt = 0;
    let mut was_missing = false;
    loop {
        let tried = match (source, target) {
            (Db::Http(source), Db::Http(to)) => relay(source, to, id, rev).await?,
            (Db::Http(source), Db::Local(to)) => download(source, to, id, rev).await?,
            (Db::Local(source), Db::Http(to)) => upload(source, to, id, rev).await?,
            (Db::Local(source), Db::Local(to)) => copy(source, to, id, rev).await?,
        };
        match tried {
            CopyAttempt::Done(refused) => return Ok(refused),
            CopyAttempt::Missing if was_missing => return leave_out(source, id, rev).await,
            CopyAttempt::Missing => {
                was_missing = true;
                tokio::time::sleep(MISSING_WAIT).await;
            }
            CopyAttempt::Again(told) if attempt >= retries => {
                let reason = format!("attachments of {id}: {told}");
                return Err(Error::Request(cut_reason(reason)));
            }
            CopyAttempt::Again(told) => {
                tracing::debug!(id, told, attempt, "attachments are fetched again");
                tokio::time::sleep(retry::wait(attempt, None)).await;
                attempt += 1;
            }
        }
    }
}

/// Reports a purged revision as not written; while the source still lists it, it is not purged.
async fn leave_out(source: &Db, id: &str, rev: &str) -> Result<Vec<Rejection>, Error> {
    if let Db::Http(source) = source {
        source.leave_out(id, &[rev.to_owned()]).await?;
    }
    Ok(vec![Rejection {
        id: id.to_owned(),
        error: "not_found".into(),
        reason: format!("revision {rev} has left the source"),
    }])
}

/// Returns the content type of a response that contains a document and attachments; `None` for
/// plain JSON.
fn multipart_type(response: &reqwest::Response) -> Option<String> {
    let header = response.headers().get(CONTENT_TYPE)?.to_str().ok()?;
    let kind = header.split(';').next()?.trim();
    kind.eq_ignore_ascii_case("multipart/related")
        .then(|| header.to_owned())
}

async fn relay(
    source: &HttpDb,
    target: &HttpDb,
    id: &str,
    rev: &str,
) -> Result<CopyAttempt, Error> {
    let gzipped = target.takes_gzipped().await;
    let mut socket = source.streamed_socket().await;
    let Some(response) = (source.open_with_attachments(&mut socket, (id, rev), gzipped)).await?
    else {
        return Ok(CopyAttempt::Missing);
    };
    let Some(kind) = multipart_type(&response) else {
        return write_json(response, |docs| target.write(docs), id).await;
    };
    let length = response.content_length();
    put(target, id, &kind, length, response.into()).await
}

/// Writes a document that came as JSON with its attachments in Base64.
async fn write_json<F: Future<Output = Result<Vec<Rejection>, Error>>>(
    response: reqwest::Response,
    write: impl FnOnce(Vec<Doc>) -> F,
    id: &str,
) -> Result<CopyAttempt, Error> {
    // The place is kept until the document is written.
    let (text, _holding) = match whole_document(response).await {
        Ok(read) => read,
        Err((told, true)) => return Ok(too_long(id, told)),
        Err((told, false)) => return Ok(CopyAttempt::Again(told)),
    };
    if serde_json::from_slice::<serde::de::IgnoredAny>(&text).is_err() {
        return Ok(CopyAttempt::Again("the answer is not JSON".into()));
    }
    let doc = Doc {
        id: id.to_owned(),
        body: Body::Json(text),
    };
    write(vec![doc]).await.map(CopyAttempt::Done)
}

async fn put(
    target: &HttpDb,
    id: &str,
    kind: &str,
    length: Option<u64>,
    body: reqwest::Body,
) -> Result<CopyAttempt, Error> {
    Ok(match target.put_stream(id, kind, length, body).await? {
        Put::Done => CopyAttempt::Done(vec![]),
        Put::Refused(error, reason) => CopyAttempt::Done(vec![Rejection {
            id: id.to_owned(),
            error,
            reason,
        }]),
        Put::Failed(told) => CopyAttempt::Again(told),
    })
}

async fn upload(
    source: &LocalDb,
    target: &HttpDb,
    id: &str,
    rev: &str,
) -> Result<CopyAttempt, Error> {
    let gzipped = target.takes_gzipped().await;
    let Some((doc_id, edits)) = edits_of(source, id, rev)? else {
        return Ok(CopyAttempt::Missing);
    };
    for edit in edits {
        let (kind, length, parts) = multipart(source, &doc_id, &edit, gzipped)?;
        let body = reqwest::Body::wrap_stream(stream::unfold(parts, next_piece));
        match put(target, id, &kind, Some(length), body).await? {
            CopyAttempt::Done(refused) if refused.is_empty() => {}
            other => return Ok(other),
        }
    }
    Ok(CopyAttempt::Done(vec![]))
}

/// Returns the document's id and the revision's edit; `None` if it does not exist.
fn edits_of(source: &LocalDb, id: &str, rev: &str) -> Result<Option<(DocId, Vec<EditDoc>)>, Error> {
    let (Ok(id), Ok(rev)) = (DocId::new(id), Rev::parse(rev)) else {
        return Ok(None);
    };
    let edits = source.db.replicas(&id, &[rev])?;
    Ok((!edits.is_empty()).then_some((id, edits)))
}

/// The parts of a body in reverse order.
type BodyParts = Vec<BodyPart>;

enum BodyPart {
    Text(Bytes),
    Content(AttachmentReader),
}

/// Builds the body of a document with attachments: content type, length and parts. Attachments are
/// sent as they are stored, or decoded if the target does not accept `gzipped` ones.
fn multipart(
    source: &LocalDb,
    id: &DocId,
    edit: &EditDoc,
    gzipped: bool,
) -> Result<(String, u64, BodyParts), Error> {
    let failed = |e: &dyn std::fmt::Display| Error::Request(e.to_string());
    let mut writer = Writer::new(&boundary()?).map_err(|e| failed(&e))?;
    let head = PartHead {
        content_type: "application/json",
        ..PartHead::default()
    };
    let mut text = Vec::new();
    writer.part(&head, &mut text);
    let mut json = edit_json(edit);
    json.pop();
    for (i, file) in edit.files.iter().enumerate() {
        json.extend_from_slice(if i == 0 { b",\"_attachments\":{" } else { b"," });
        sent(file, gzipped).write_json(AttachmentForm::Follows, true, &mut json);
    }
    json.extend_from_slice(b"}}");
    text.extend_from_slice(&json);
    let mut parts = vec![];
    let mut length = 0;
    for file in &edit.files {
        let shown = sent(file, gzipped);
        let head = PartHead {
            content_type: &shown.content_type,
            filename: Some(&shown.name),
            length: Some(shown.stored_length),
            encoding: (shown.encoding == Encoding::Gzip).then_some("gzip"),
            doc: None,
        };
        writer.part(&head, &mut text);
        length += text.len() as u64 + shown.stored_length;
        parts.push(BodyPart::Text(std::mem::take(&mut text).into()));
        let decode = shown.encoding != file.encoding;
        let reader = source.db.attachment_reader(id, file, None, decode)?;
        parts.push(BodyPart::Content(reader));
    }
    writer.end(&mut text);
    length += text.len() as u64;
    parts.push(BodyPart::Text(text.into()));
    parts.reverse();
    Ok((writer.content_type("related"), length, parts))
}

/// Returns the form in which an attachment is sent. It can be announced as decoded only if its
/// decoded length is certain.
fn sent(file: &Attachment, gzipped: bool) -> Attachment {
    let mut shown = file.clone();
    if !gzipped && !file.length_unsure {
        shown.encoding = Encoding::Identity;
        shown.stored_length = file.length;
    }
    shown
}

async fn next_piece(mut parts: BodyParts) -> Option<(Result<Bytes, database::Error>, BodyParts)> {
    loop {
        match parts.pop()? {
            BodyPart::Text(text) => return Some((Ok(text), parts)),
            BodyPart::Content(mut reader) => {
                let read = tokio::task::spawn_blocking(move || (reader.next_piece(), reader)).await;
                let (piece, reader) = match read {
                    Ok(read) => read,
                    Err(_) => return Some((Err(database::Error::ShuttingDown), vec![])),
                };
                match piece {
                    Ok(None) => {}
                    // Others get the thread, and the replication may end.
                    Ok(Some(bytes)) if bytes.is_empty() => parts.push(BodyPart::Content(reader)),
                    Ok(Some(bytes)) => {
                        parts.push(BodyPart::Content(reader));
                        return Some((Ok(bytes), parts));
                    }
                    Err(e) => return Some((Err(e), vec![])),
                }
            }
        }
    }
}

fn boundary() -> Result<String, Error> {
    let mut random = [0u8; 16];
    getrandom::fill(&mut random).map_err(|e| Error::Request(e.to_string()))?;
    Ok(HEXLOWER.encode(&random))
}

/// Copies between two databases of this server, without decoding the stored bytes.
async fn copy(
    source: &LocalDb,
    target: &LocalDb,
    id: &str,
    rev: &str,
) -> Result<CopyAttempt, Error> {
    let Some((doc_id, edits)) = edits_of(source, id, rev)? else {
        return Ok(CopyAttempt::Missing);
    };
    for mut edit in edits {
        let mut held = vec![];
        for file in &mut edit.files {
            let options = SinkOptions {
                encoded: file.encoding == Encoding::Gzip,
                length: Some(file.length),
                md5: Some(file.md5),
                bytes_max: Some(target.attachment_bytes_max),
            };
            let mut sink = (target.db).attachment_sink(&doc_id, &file.content_type, options);
            let reader = source.db.attachment_reader(&doc_id, file, None, false)?;
            let mut parts = vec![BodyPart::Content(reader)];
            while let Some((piece, rest)) = next_piece(parts).await {
                parts = rest;
                if let Err(e) = sink.write(piece?).await {
                    return refused_upload(id, e);
                }
            }
            let uploaded = match sink.finish().await {
                Ok(uploaded) => uploaded,
                Err(e) => return refused_upload(id, e),
            };
            *file = uploaded.attachment(&file.name, &file.content_type, file.revpos);
            held.push(uploaded);
        }
        let body = Body::Edit(Box::new(edit));
        let refused = target
            .write(vec![Doc {
                id: id.to_owned(),
                body,
            }])
            .await?;
        drop(held);
        if !refused.is_empty() {
            return Ok(CopyAttempt::Done(refused));
        }
    }
    Ok(CopyAttempt::Done(vec![]))
}

/// Treats an attachment that the database does not accept as a refused document; any other error is
/// a failure.
fn refused_upload(id: &str, e: database::Error) -> Result<CopyAttempt, Error> {
    match e {
        database::Error::AttachmentTooLarge => Ok(CopyAttempt::Done(vec![Rejection {
            id: id.to_owned(),
            error: "attachment_too_large".into(),
            reason: e.to_string(),
        }])),
        // It may have been damaged in transit.
        database::Error::DigestMismatch | database::Error::BadRequest(_) => {
            Ok(CopyAttempt::Again(e.to_string()))
        }
        e => Err(e.into()),
    }
}

/// The refusal of a document whose text is longer than any row may be.
fn too_long(id: &str, reason: String) -> CopyAttempt {
    CopyAttempt::Done(vec![Rejection {
        id: id.to_owned(),
        error: "document_too_large".into(),
        reason,
    }])
}

/// The refusal of a document with more attachments than `max`.
fn too_many(id: &str, max: u64) -> CopyAttempt {
    CopyAttempt::Done(vec![Rejection {
        id: id.to_owned(),
        error: "attachment_too_large".into(),
        reason: format!("the document exceeds max_attachments_per_document ({max})"),
    }])
}

/// The refusal of a document that is longer than `max` bytes.
fn longer_than(id: &str, max: usize) -> CopyAttempt {
    too_long(id, format!("the document is longer than {max} bytes"))
}

async fn download(
    source: &HttpDb,
    target: &LocalDb,
    id: &str,
    rev: &str,
) -> Result<CopyAttempt, Error> {
    let mut socket = source.streamed_socket().await;
    let Some(mut response) = (source.open_with_attachments(&mut socket, (id, rev), true)).await?
    else {
        return Ok(CopyAttempt::Missing);
    };
    let Some(kind) = multipart_type(&response) else {
        return write_json(response, |docs| target.write(docs), id).await;
    };
    let kind = ContentType::parse(&kind);
    let parser = kind.as_ref().and_then(ContentType::boundary);
    let Some(Ok(mut parser)) = parser.map(|b| Parser::new(b, Limits::default())) else {
        return Ok(CopyAttempt::Again(
            "a multipart answer without a boundary".into(),
        ));
    };
    let doc_id = match DocId::new(id) {
        Ok(id) => id,
        Err(e) => return Ok(CopyAttempt::Again(e.to_string())),
    };
    let mut receiving = ReceivedDocument::new(target, &doc_id, row_bytes_max(&response));
    let mut holding = ResponsePermit::of(&response);
    loop {
        if let Err(told) = holding.hold(receiving.text_bytes(), false).await {
            return Ok(CopyAttempt::Again(told));
        }
        let bytes = match response.chunk().await {
            Ok(Some(bytes)) => bytes,
            Ok(None) => break,
            Err(e) => return Ok(CopyAttempt::Again(cause(&e))),
        };
        parser.push(&bytes);
        loop {
            let event = match parser.next_event() {
                Ok(Some(event)) => event,
                Ok(None) => break,
                Err(e) => return Ok(CopyAttempt::Again(e.to_string())),
            };
            match receiving.event(event).await {
                Ok(()) => {}
                Err(Broken::Garbled(told)) => return Ok(CopyAttempt::Again(told)),
                Err(Broken::Refused(e)) => return refused_upload(id, e),
                Err(Broken::TooMany(max)) => return Ok(too_many(id, max)),
                Err(Broken::TooLong(max)) => return Ok(longer_than(id, max)),
            }
        }
    }
    if let Err(e) = parser.finish() {
        return Ok(CopyAttempt::Again(e.to_string()));
    }
    let Some((edit, held)) = receiving.finish() else {
        return Ok(CopyAttempt::Again("attachments are missing".into()));
    };
    let (id, body) = (id.to_owned(), Body::Edit(Box::new(edit)));
    let refused = target.write(vec![Doc { id, body }]).await?;
    drop(held);
    Ok(CopyAttempt::Done(refused))
}
