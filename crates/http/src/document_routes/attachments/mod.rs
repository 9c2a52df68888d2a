//! Attachments: `/{db}/{doc}/{name}`, and documents that travel with theirs.

mod body;
mod form;
mod range;
mod receive;
mod send;

pub use body::{Parts, PartsMaker, TextOf};
pub use form::post_form;
pub use receive::{is_multipart_related, read_multipart};
pub use send::{boundary, doc_reply, push_doc_json, push_doc_multipart};

use std::time::Instant;

use database::{Database, EditMode, Read, ReadAttachment, ReadDoc, ReadOptions, SinkOptions};
use document::{Attachment, DocId, EditDoc, Encoding, Rev, parse_document};
use hyper::header::{
    ACCEPT_ENCODING, ACCEPT_RANGES, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE,
    CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderValue, RANGE, X_CONTENT_TYPE_OPTIONS,
};

use crate::document_routes::documents::{Written, edited_rev, write};
use crate::errors::ApiError;
use crate::reply::Reply;
use crate::request::{Request, long_text, weighed};
use node::Access;
use node::parse_id;
use range::Ranges;

type Answer = Result<Reply, ApiError>;

const DEFAULT_TYPE: &str = "application/octet-stream";

/// An attachment of document `id`.
pub async fn route(req: &mut Request, access: &Access, id: &str, name: Vec<u8>) -> Answer {
    if id.starts_with("_local/") {
        return Err(no_local_attachments());
    }
    let reads = matches!(req.method.as_str(), "GET" | "HEAD");
    let Ok(name) = String::from_utf8(name) else {
        return Err(match reads {
            true => no_attachment(),
            false => ApiError::bad_request("Attachment name is not UTF-8 encoded"),
        });
    };
    if reads {
        return get(req, access, id, &name);
    }
    check_name(&name)?;
    match req.method.as_str() {
        "PUT" => put(req, access, id, &name).await,
        _ => delete(req, access, id, &name).await,
    }
}

fn no_local_attachments() -> ApiError {
    ApiError::bad_request("_local documents do not accept attachments.")
}

fn no_attachment() -> ApiError {
    ApiError::new(404, "not_found", "Document is missing attachment")
}

/// Refuses a name that no attachment may be given.
fn check_name(name: &str) -> Result<(), ApiError> {
    match name.starts_with('_') {
        true => Err(ApiError::bad_request(format!(
            "Attachment name '{name}' starts with prohibited character '_'"
        ))),
        false => Ok(()),
    }
}

// ---- reading

fn get(req: &Request, access: &Access, id: &str, name: &str) -> Answer {
    let started = Instant::now();
    let Ok(id) = DocId::new(id) else {
        return Err(ApiError::missing());
    };
    let options = crate::document_routes::documents::read_options(&req.query)?;
    let options = ReadOptions {
        rev: options.rev,
        latest: options.latest,
        ..ReadOptions::default()
    };
    let doc = found(access.db.read(&id, &options)?)?;
    let attachment = doc
        .attachments
        .into_iter()
        .find(|read| read.attachment.name == name)
        .map(|read| read.attachment)
        .ok_or_else(no_attachment)?;
    let mut reply = bytes_reply(req, access, &id, &attachment)?;
    reply.timing.read_us = started.elapsed().as_micros() as u64;
    Ok(reply)
}

fn found(read: Read) -> Result<ReadDoc, ApiError> {
    match read {
        Read::Found(doc) => Ok(doc),
        Read::Missing => Err(ApiError::missing()),
        Read::Deleted => Err(ApiError::deleted()),
    }
}

/// Maximum length in bytes of a content stored with gzip of which ranges are sent: all before a
/// range is inflated for it, which a client could request again and again.
const INFLATED_RANGES_MAX: u64 = 8 << 20;

/// Sends the bytes: gzipped when they are stored so and the client accepts that, otherwise decoded.
///
/// **A range always refers to the decoded bytes.** Most clients' libraries accept gzip by default,
/// and decode everything marked as gzip: they cannot decode a piece from the middle. A long content
/// that is stored gzipped is sent whole, as CouchDB sends it.
fn bytes_reply(req: &Request, access: &Access, id: &DocId, attachment: &Attachment) -> Answer {
    let etag = attachment.etag();
    if req.none_match(&etag) {
        return Ok(Reply::empty(304).etag(&etag));
    }
    let stored_gzipped = attachment.encoding == Encoding::Gzip;
    let has_ranges = !stored_gzipped || attachment.length <= INFLATED_RANGES_MAX;
    let asked_range = req.header(&RANGE).filter(|_| has_ranges);
    let sent_gzipped = sends_gzipped(req, stored_gzipped)? && asked_range.is_none();
    let length = match (sent_gzipped, attachment.length_unsure) {
        (true, _) => Some(attachment.stored_length),
        (false, false) => Some(attachment.length),
        (false, true) => None,
    };
    let ranges = match (asked_range, length) {
        (Some(header), Some(length)) => range::parse(header, length)?,
        _ => Ranges::All,
    };
    let reader = |range| {
        access
            .db
            .attachment_reader(id, attachment, range, !sent_gzipped)
    };
    let mut reply = match ranges {
        Ranges::Several(ranges) => {
            return several_ranges(req, attachment, ranges, length.unwrap_or(0), reader);
        }
        Ranges::One(range) => {
            let shown = format!(
                "bytes {}-{}/{}",
                range.start,
                range.end - 1,
                length.unwrap_or(0)
            );
            let mut parts = Parts::default();
            let bytes = range.end - range.start;
            parts.push_raw(reader(Some(range))?, Some(bytes));
            let mut reply = parts.reply(&req.answers, &attachment.content_type);
            reply.status = 206;
            reply.header(CONTENT_RANGE, &shown)
        }
        Ranges::All => {
            let mut parts = Parts::default();
            parts.push_raw(reader(None)?, length);
            parts.reply(&req.answers, &attachment.content_type)
        }
    };
    // CouchDB does not support ranges of contents stored with gzip, and advertises that. A
    // requested range is returned here all the same.
    let ranges_shown = match stored_gzipped && reply.status == 200 {
        true => "none",
        false => "bytes",
    };
    reply = reply.etag(&etag).header(ACCEPT_RANGES, ranges_shown);
    if sent_gzipped {
        reply = reply.header(CONTENT_ENCODING, "gzip");
    }
    Ok(guarded(req, reply))
}

/// An uploaded text must not run as a page or a script.
fn guarded(req: &Request, reply: Reply) -> Reply {
    match req.settings.attachments_policy() {
        None => reply,
        Some(policy) => reply
            .header(CONTENT_SECURITY_POLICY, policy)
            .header(X_CONTENT_TYPE_OPTIONS, "nosniff"),
    }
}

fn several_ranges(
    req: &Request,
    attachment: &Attachment,
    ranges: Vec<std::ops::Range<u64>>,
    length: u64,
    reader: impl Fn(Option<std::ops::Range<u64>>) -> Result<database::AttachmentReader, database::Error>,
) -> Answer {
    let boundary = boundary()?;
    // It is what the uploader said, and could end the head of a part.
    let said = attachment.content_type.as_str();
    let content_type = match HeaderValue::from_bytes(said.as_bytes()) {
        Ok(_) => said,
        Err(_) => DEFAULT_TYPE,
    };
    let mut parts = Parts::default();
    for range in ranges {
        let head = format!(
            "\r\n--{boundary}\r\nContent-Type: {content_type}\r\nContent-Range: bytes {}-{}/{length}\r\n\r\n",
            range.start,
            range.end - 1,
        );
        parts.push_text(head.as_bytes());
        let bytes = range.end - range.start;
        parts.push_raw(reader(Some(range))?, Some(bytes));
    }
    parts.push_text(format!("\r\n--{boundary}--").as_bytes());
    let mut reply = parts.reply(
        &req.answers,
        &format!("multipart/byteranges; boundary=\"{boundary}\""),
    );
    reply.status = 206;
    Ok(guarded(req, reply))
}

/// # Errors
/// 406 when the client takes nothing that can be sent.
fn sends_gzipped(req: &Request, stored_gzipped: bool) -> Result<bool, ApiError> {
    let Some(header) = req.header(&ACCEPT_ENCODING) else {
        return Ok(false);
    };
    let weighed: Vec<(&str, bool)> = header.split(',').map(weighed).collect();
    let of = |name: &str| {
        let found = weighed.iter().find(|(n, _)| n.eq_ignore_ascii_case(name));
        found.map(|(_, taken)| *taken)
    };
    let gzip = stored_gzipped && of("gzip").or(of("*")).unwrap_or(false);
    if !gzip && of("identity").or(of("*")) == Some(false) {
        return Err(ApiError::new(
            406,
            "not_acceptable",
            "The attachment is sent gzipped or not encoded",
        ));
    }
    Ok(gzip)
}

// ---- writing

async fn put(req: &mut Request, access: &Access, id: &str, name: &str) -> Answer {
    let id = parse_id(id, &req.settings.couchdb)?;
    if id.is_design() {
        access.require_design_admin(&req.user)?;
    }
    let content_type = req.header(&CONTENT_TYPE).unwrap_or(DEFAULT_TYPE).to_owned();
    let encoded = match req.header(&CONTENT_ENCODING).map(str::trim) {
        None => false,
        Some(e) if e.is_empty() || e.eq_ignore_ascii_case("identity") => false,
        Some(e) if e.eq_ignore_ascii_case("gzip") => true,
        Some(_) => {
            return Err(ApiError::bad_content_type(
                "Only gzip and identity content-encodings are supported",
            ));
        }
    };
    let max = req.settings.couchdb.max_attachment_size;
    let declared = req.header(&CONTENT_LENGTH).and_then(|l| l.parse().ok());
    if declared.is_some_and(|length: u64| length > max) {
        return Err(too_large(name, max));
    }
    let rev = edited_rev(req, None)?;
    // Before the bytes: who is going to be refused need not send them all. Nothing of the document is
    // kept while they come.
    check_before(access, &id, rev.as_ref())?;
    let options = SinkOptions {
        encoded,
        md5: content_md5(req)?,
        bytes_max: Some(max),
        ..SinkOptions::default()
    };
    let mut sink = access.db.attachment_sink(&id, &content_type, options);
    while let Some(bytes) = req.next_bytes().await? {
        sink.write(bytes).await.map_err(|e| named(e, name, max))?;
    }
    let uploaded = sink.finish().await?;
    let before = match rev {
        // If it has gone since then, another edit has replaced it.
        Some(rev) => read_before(access, &id, rev)?.ok_or_else(ApiError::conflict)?,
        None => Before::nothing(),
    };
    let mut files = vec![uploaded.attachment(name, &content_type, None)];
    files.extend(before.others(|other| other == name));
    let written = edit(req, access, before, id.clone(), files).await?;
    drop(uploaded);
    let url = req.url_of(&[access.db.name(), id.as_str(), name]);
    let status = written.status();
    Ok(reply_of(written, status).location(&url))
}

async fn delete(req: &mut Request, access: &Access, id: &str, name: &str) -> Answer {
    let Ok(id) = DocId::new(id) else {
        return Err(ApiError::missing());
    };
    if id.is_design() {
        access.require_design_admin(&req.user)?;
    }
    let before = match edited_rev(req, None)? {
        Some(rev) => before_of(access, &id, rev)?,
        None => Before::nothing(),
    };
    let is_it = |read: &ReadAttachment| read.attachment.name == name;
    let is_there = match before.rev {
        Some(_) => before.attachments.iter().any(is_it),
        None => {
            let winner = found(access.db.read(&id, &ReadOptions::default())?)?;
            winner.attachments.iter().any(is_it)
        }
    };
    if !is_there {
        return Err(no_attachment());
    }
    let files = before.others(|other| other == name).collect();
    let written = edit(req, access, before, id, files).await?;
    // As CouchDB: also when fewer replicas have it than requested.
    Ok(reply_of(written, 200))
}

/// The revision that an attachment is added to or removed from.
struct Before {
    rev: Option<Rev>,
    deleted: bool,
    /// JSON text of the body.
    body: Vec<u8>,
    attachments: Vec<ReadAttachment>,
}

impl Before {
    /// A new document.
    fn nothing() -> Before {
        Before {
            rev: None,
            deleted: false,
            body: b"{}".to_vec(),
            attachments: vec![],
        }
    }

    /// Returns the revision with other attachments. Its text is not needed any more then.
    async fn edited(
        self,
        req: &Request,
        id: DocId,
        files: Vec<Attachment>,
    ) -> Result<EditDoc, ApiError> {
        let (length, body) = (self.body.len(), self.body);
        let parse = move || parse_document(&body);
        let doc = long_text::process(&req.answers, length, false, parse).await??;
        Ok(EditDoc {
            id: Some(id),
            rev: self.rev,
            revisions: None,
            deleted: self.deleted,
            attachments: None,
            files,
            ..doc
        })
    }

    /// The attachments that are not replaced.
    fn others(&self, is_replaced: impl Fn(&str) -> bool) -> impl Iterator<Item = Attachment> {
        let attachments = self.attachments.iter().map(|read| &read.attachment);
        attachments.filter(move |a| !is_replaced(&a.name)).cloned()
    }
}

/// Refuses an upload that cannot succeed, as the document is now.
fn check_before(access: &Access, id: &DocId, rev: Option<&Rev>) -> Result<(), ApiError> {
    match rev {
        Some(rev) if shows(access, id, rev)? => Ok(()),
        Some(_) => Err(ApiError::missing_rev()),
        None => match access.db.read(id, &ReadOptions::default())? {
            Read::Found(_) => Err(ApiError::conflict()),
            Read::Missing | Read::Deleted => Ok(()),
        },
    }
}

fn options_of(rev: &Rev) -> ReadOptions {
    ReadOptions {
        rev: Some(rev.clone()),
        ..ReadOptions::default()
    }
}

/// Whether the user sees anything of a revision.
fn shows(access: &Access, id: &DocId, rev: &Rev) -> Result<bool, ApiError> {
    let read = access.db.read(id, &options_of(rev))?;
    Ok(matches!(read, Read::Found(_)))
}

/// Returns a revision that the user sees.
///
/// # Errors
/// 409 `missing_rev` when it does not exist, or the user does not see it.
fn before_of(access: &Access, id: &DocId, rev: Rev) -> Result<Before, ApiError> {
    read_before(access, id, rev)?.ok_or_else(ApiError::missing_rev)
}

fn read_before(access: &Access, id: &DocId, rev: Rev) -> Result<Option<Before>, ApiError> {
    // The user may see only a part of it, or nothing.
    if !shows(access, id, &rev)? {
        return Ok(None);
    }
    let db: &Database = &access.db;
    let read = match access.db.is_limited() {
        // All of a revision, or nothing. A local document is stored under another id.
        true => access.db.read(id, &options_of(&rev))?,
        false => db.read(id, &options_of(&rev))?,
    };
    Ok(match read {
        Read::Found(doc) => Some(Before {
            rev: Some(rev),
            deleted: doc.deleted,
            body: doc.json,
            attachments: doc.attachments,
        }),
        Read::Missing | Read::Deleted => None,
    })
}

async fn edit(
    req: &Request,
    access: &Access,
    before: Before,
    id: DocId,
    files: Vec<Attachment>,
) -> Result<Written, ApiError> {
    let doc = before.edited(req, id, files).await?;
    let _held = req.hold_edit(&doc, 0).await?;
    write(req, access, doc, EditMode::Interactive).await
}

fn reply_of(written: Written, status: u16) -> Reply {
    let mut reply = written.reply(None);
    reply.status = status;
    reply
        .headers
        .retain(|(name, _)| name != hyper::header::ETAG);
    reply
}

/// # Errors
/// 400 when it is not an MD5 sum.
fn content_md5(req: &Request) -> Result<Option<[u8; 16]>, ApiError> {
    let Some(header) = req.named_header("content-md5") else {
        return Ok(None);
    };
    decode_md5(header.trim())
        .map(Some)
        .ok_or_else(|| database::Error::DigestMismatch.into())
}

fn decode_md5(text: &str) -> Option<[u8; 16]> {
    use base64::Engine as _;
    let bytes = base64::engine::general_purpose::STANDARD.decode(text);
    bytes.ok()?.try_into().ok()
}

fn too_large(name: &str, max: u64) -> ApiError {
    ApiError::new(
        413,
        "attachment_too_large",
        format!("{name}: the attachment exceeds max_attachment_size ({max})"),
    )
}

/// An upload's error, which may be about its size.
fn named(e: database::Error, name: &str, max: u64) -> ApiError {
    match e {
        database::Error::AttachmentTooLarge => too_large(name, max),
        e => e.into(),
    }
}

/// The error of a refused edit of attachments.
pub fn refused(error: &str, reason: &str) -> Option<ApiError> {
    match error {
        "missing_stub" => Some(ApiError::new(412, "missing_stub", reason.to_owned())),
        "attachment_too_large" => Some(ApiError::new(
            413,
            "attachment_too_large",
            reason.to_owned(),
        )),
        "bad_request" => Some(ApiError::bad_request(reason.to_owned())),
        _ => None,
    }
}
