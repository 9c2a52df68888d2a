//! Copies revisions with large attachments one at a time, as streams, so that no attachment is ever
//! in memory as a whole.
//!
//! Between two servers, the `multipart/related` body of the response from one is the body of the
//! request to the other.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Bytes, BytesMut};
use data_encoding::HEXLOWER;
use database::{AttachmentReader, AttachmentSink, SinkOptions, Uploaded};
use document::multipart::{ContentType, Event, Headers, Limits, Parser, PartHead, Writer};
use document::{Attachment, DocId, EditDoc, Encoding, Rev, Shown, parse_document};
use futures_util::stream;
use reqwest::header::CONTENT_TYPE;
use serde_json::{Map, Value};

use super::http::{HttpDb, MISSING_WAIT, Put, cause, edit_json, whole_document};
use super::local::LocalDb;
use super::long::Holding;
use super::{Body, Db, Doc, Refused, retry};
use crate::error::Error;

/// The content type of attachments without one.
const DEFAULT_TYPE: &str = "application/octet-stream";
/// Maximum length of the text of a document with attachments, in bytes.
const TEXT_BYTES_MAX: usize = 64 << 20;

/// The result of one attempt.
enum Tried {
    Done(Vec<Refused>),
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
) -> Result<Vec<Refused>, Error> {
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
            Tried::Done(refused) => return Ok(refused),
            Tried::Missing if was_missing => return leave_out(source, id, rev).await,
            Tried::Missing => {
                was_missing = true;
                tokio::time::sleep(MISSING_WAIT).await;
            }
            Tried::Again(told) if attempt >= retries => {
                return Err(Error::Request(format!("attachments of {id}: {told}")));
            }
            Tried::Again(told) => {
                tracing::debug!(id, told, attempt, "attachments are fetched again");
                tokio::time::sleep(retry::wait(attempt, None)).await;
                attempt += 1;
            }
        }
    }
}

/// Reports a purged revision as not written; while the source still lists it, it is not purged.
async fn leave_out(source: &Db, id: &str, rev: &str) -> Result<Vec<Refused>, Error> {
    if let Db::Http(source) = source {
        source.leave_out(id, &[rev.to_owned()]).await?;
    }
    Ok(vec![Refused {
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

async fn relay(source: &HttpDb, target: &HttpDb, id: &str, rev: &str) -> Result<Tried, Error> {
    let gzipped = target.takes_gzipped().await;
    let mut socket = source.streamed_socket().await;
    let Some(response) = (source.open_with_attachments(&mut socket, (id, rev), gzipped)).await?
    else {
        return Ok(Tried::Missing);
    };
    let Some(kind) = multipart_type(&response) else {
        return write_json(response, |docs| target.write(docs), id).await;
    };
    let length = response.content_length();
    put(target, id, &kind, length, response.into()).await
}

/// Writes a document that came as JSON with its attachments in Base64.
async fn write_json<F: Future<Output = Result<Vec<Refused>, Error>>>(
    response: reqwest::Response,
    write: impl FnOnce(Vec<Doc>) -> F,
    id: &str,
) -> Result<Tried, Error> {
    let text = match whole_document(response).await {
        Ok(text) => text,
        Err(told) => return Ok(Tried::Again(told)),
    };
    if serde_json::from_slice::<serde::de::IgnoredAny>(&text).is_err() {
        return Ok(Tried::Again("the answer is not JSON".into()));
    }
    let doc = Doc {
        id: id.to_owned(),
        body: Body::Json(text),
    };
    write(vec![doc]).await.map(Tried::Done)
}

async fn put(
    target: &HttpDb,
    id: &str,
    kind: &str,
    length: Option<u64>,
    body: reqwest::Body,
) -> Result<Tried, Error> {
    Ok(match target.put_streamed(id, kind, length, body).await? {
        Put::Done => Tried::Done(vec![]),
        Put::Refused(error, reason) => Tried::Done(vec![Refused {
            id: id.to_owned(),
            error,
            reason,
        }]),
        Put::Failed(told) => Tried::Again(told),
    })
}

async fn upload(source: &LocalDb, target: &HttpDb, id: &str, rev: &str) -> Result<Tried, Error> {
    let gzipped = target.takes_gzipped().await;
    let Some((doc_id, edits)) = edits_of(source, id, rev)? else {
        return Ok(Tried::Missing);
    };
    for edit in edits {
        let (kind, length, parts) = multipart(source, &doc_id, &edit, gzipped)?;
        let body = reqwest::Body::wrap_stream(stream::unfold(parts, next_piece));
        match put(target, id, &kind, Some(length), body).await? {
            Tried::Done(refused) if refused.is_empty() => {}
            other => return Ok(other),
        }
    }
    Ok(Tried::Done(vec![]))
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
        sent(file, gzipped).write_json(Shown::Follows, true, &mut json);
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
async fn copy(source: &LocalDb, target: &LocalDb, id: &str, rev: &str) -> Result<Tried, Error> {
    let Some((doc_id, edits)) = edits_of(source, id, rev)? else {
        return Ok(Tried::Missing);
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
            return Ok(Tried::Done(refused));
        }
    }
    Ok(Tried::Done(vec![]))
}

/// Treats an attachment that the database does not accept as a refused document; any other error is
/// a failure.
fn refused_upload(id: &str, e: database::Error) -> Result<Tried, Error> {
    match e {
        database::Error::AttachmentTooLarge => Ok(Tried::Done(vec![Refused {
            id: id.to_owned(),
            error: "attachment_too_large".into(),
            reason: e.to_string(),
        }])),
        // It may have been damaged in transit.
        database::Error::DigestMismatch | database::Error::BadRequest(_) => {
            Ok(Tried::Again(e.to_string()))
        }
        e => Err(e.into()),
    }
}

async fn download(source: &HttpDb, target: &LocalDb, id: &str, rev: &str) -> Result<Tried, Error> {
    let mut socket = source.streamed_socket().await;
    let Some(mut response) = (source.open_with_attachments(&mut socket, (id, rev), true)).await?
    else {
        return Ok(Tried::Missing);
    };
    let Some(kind) = multipart_type(&response) else {
        return write_json(response, |docs| target.write(docs), id).await;
    };
    let kind = ContentType::parse(&kind);
    let parser = kind.as_ref().and_then(ContentType::boundary);
    let Some(Ok(mut parser)) = parser.map(|b| Parser::new(b, Limits::default())) else {
        return Ok(Tried::Again("a multipart answer without a boundary".into()));
    };
    let doc_id = match DocId::new(id) {
        Ok(id) => id,
        Err(e) => return Ok(Tried::Again(e.to_string())),
    };
    let mut receiving = Receiving::new(target, &doc_id);
    let mut holding = Holding::of(&response);
    loop {
        if let Err(told) = holding.hold(receiving.text.len()).await {
            return Ok(Tried::Again(told));
        }
        let bytes = match response.chunk().await {
            Ok(Some(bytes)) => bytes,
            Ok(None) => break,
            Err(e) => return Ok(Tried::Again(cause(&e))),
        };
        parser.push(&bytes);
        loop {
            let event = match parser.next_event() {
                Ok(Some(event)) => event,
                Ok(None) => break,
                Err(e) => return Ok(Tried::Again(e.to_string())),
            };
            match receiving.event(event).await {
                Ok(()) => {}
                Err(Broken::Garbled(told)) => return Ok(Tried::Again(told)),
                Err(Broken::Refused(e)) => return refused_upload(id, e),
            }
        }
    }
    if let Err(e) = parser.finish() {
        return Ok(Tried::Again(e.to_string()));
    }
    let Some((edit, held)) = receiving.finish() else {
        return Ok(Tried::Again("attachments are missing".into()));
    };
    let body = Body::Edit(Box::new(edit));
    let refused = target
        .write(vec![Doc {
            id: id.to_owned(),
            body,
        }])
        .await?;
    drop(held);
    Ok(Tried::Done(refused))
}

enum Broken {
    Garbled(String),
    Refused(database::Error),
}

/// An attachment expected after its document.
struct Expected {
    name: String,
    content_type: String,
    revpos: Option<u64>,
    options: SinkOptions,
    file: Option<Attachment>,
}

/// A document with attachments that is being received.
struct Receiving<'a> {
    target: &'a LocalDb,
    id: &'a DocId,
    text: BytesMut,
    doc: Option<EditDoc>,
    expected: Vec<Expected>,
    /// The index of the expected attachment that is being received.
    uploading: Option<(usize, AttachmentSink)>,
    held: Vec<Uploaded>,
}

impl<'a> Receiving<'a> {
    fn new(target: &'a LocalDb, id: &'a DocId) -> Receiving<'a> {
        Receiving {
            target,
            id,
            text: BytesMut::new(),
            doc: None,
            expected: vec![],
            uploading: None,
            held: vec![],
        }
    }

    async fn event(&mut self, event: Event) -> Result<(), Broken> {
        match event {
            Event::Part(headers) if self.doc.is_some() => self.begin(&headers),
            Event::Part(_) | Event::End => {}
            Event::Data(bytes) if self.doc.is_none() => {
                if self.text.len() + bytes.len() > TEXT_BYTES_MAX {
                    return Err(Broken::Garbled("the document is too long".into()));
                }
                self.text.extend_from_slice(&bytes);
            }
            Event::Data(bytes) => {
                if let Some((_, sink)) = &mut self.uploading {
                    sink.write(bytes).await.map_err(Broken::Refused)?;
                }
            }
            Event::PartEnd if self.doc.is_none() => {
                let doc = parse_document(&self.text);
                let doc = doc.map_err(|e| Broken::Garbled(e.to_string()))?;
                self.text = BytesMut::new();
                self.expected = self.expected_of(&doc)?;
                self.doc = Some(doc);
            }
            Event::PartEnd => {
                if let Some((index, sink)) = self.uploading.take() {
                    let uploaded = sink.finish().await.map_err(Broken::Refused)?;
                    let e = &mut self.expected[index];
                    e.file = Some(uploaded.attachment(&e.name, &e.content_type, e.revpos));
                    self.held.push(uploaded);
                }
            }
        }
        Ok(())
    }

    /// Starts a part: it is the attachment with its file name, or else the next expected one.
    fn begin(&mut self, headers: &Headers) {
        let open = |e: &Expected| e.file.is_none();
        let named = headers
            .filename()
            .and_then(|name| self.expected.iter().position(|e| open(e) && e.name == name));
        let Some(index) = named.or_else(|| self.expected.iter().position(open)) else {
            return;
        };
        let expected = &self.expected[index];
        let mut options = expected.options.clone();
        options.bytes_max = Some(self.target.attachment_bytes_max);
        let sink = self
            .target
            .db
            .attachment_sink(self.id, &expected.content_type, options);
        self.uploading = Some((index, sink));
    }

    fn expected_of(&self, doc: &EditDoc) -> Result<Vec<Expected>, Broken> {
        let Some(said) = &doc.attachments else {
            return Ok(vec![]);
        };
        let said: Map<String, Value> =
            serde_json::from_slice(said).map_err(|e| Broken::Garbled(e.to_string()))?;
        let follows = |entry: &Value| entry.get("follows") == Some(&Value::Bool(true));
        let said = said.iter().filter(|(_, entry)| follows(entry));
        let expected: Vec<_> = said.map(|(name, entry)| expected(name, entry)).collect();
        // Contents that are announced as too long are not read first.
        let bytes_max = self.target.attachment_bytes_max;
        let is_too_long = |e: &Expected| e.options.length.is_some_and(|length| length > bytes_max);
        match expected.iter().any(is_too_long) {
            true => Err(Broken::Refused(database::Error::AttachmentTooLarge)),
            false => Ok(expected),
        }
    }

    /// Returns the document and its uploads; `None` when attachments are missing.
    fn finish(self) -> Option<(EditDoc, Vec<Uploaded>)> {
        let mut doc = self.doc?;
        for expected in self.expected {
            doc.files.push(expected.file?);
        }
        Some((doc, self.held))
    }
}

fn expected(name: &str, entry: &Value) -> Expected {
    let text = |member: &str| entry.get(member).and_then(Value::as_str);
    let number = |member: &str| entry.get(member).and_then(Value::as_u64);
    Expected {
        name: name.to_owned(),
        content_type: text("content_type").unwrap_or(DEFAULT_TYPE).to_owned(),
        revpos: Some(number("revpos").unwrap_or(0)),
        options: SinkOptions {
            encoded: text("encoding") == Some("gzip"),
            length: number("length"),
            md5: text("digest").and_then(md5),
            bytes_max: None,
        },
        file: None,
    }
}

/// Parses the bytes of a digest `md5-…`.
fn md5(digest: &str) -> Option<[u8; 16]> {
    let bytes = STANDARD.decode(digest.strip_prefix("md5-")?).ok()?;
    bytes.try_into().ok()
}
