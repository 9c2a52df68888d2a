//! Single documents: GET, HEAD, PUT, POST, DELETE, COPY.

use std::sync::Arc;
use std::time::Instant;

use telemetry::State;

use database::{
    AttachmentSelection, Caller, DatabaseAs, EditMode, Outcome, Read, ReadDoc, ReadOptions,
};
use document::{DocError, DocId, EditDoc, Rev, parse_document};
use hyper::header::IF_MATCH;
use serde_json::Value;

use crate::app::App;
use crate::document_routes::attachments;
use crate::document_routes::open_revs;
use crate::document_routes::wide::WideKey;
use crate::document_routes::write_mode::WriteMode;
use crate::errors::ApiError;
use crate::reply::Reply;
use crate::request::revisions::parse_revs;
use crate::request::{Request, long_text, room};
use node::{Access, check_document, parse_id};
use node::{Query, decode};

type Answer = Result<Reply, ApiError>;

/// A document whose id is not UTF-8.
pub fn invalid_id(req: &Request) -> Answer {
    match req.method.as_str() {
        "GET" | "HEAD" | "DELETE" => Err(ApiError::missing()),
        _ => Err(document::IdError::InvalidUtf8.into()),
    }
}

/// Returns the error of a path that names no `_local` document.
pub fn no_local_id() -> ApiError {
    ApiError::bad_request("Invalid _local document id.")
}

/// A document whose id is one segment of the path, in which slashes are encoded.
pub async fn one_segment(req: &mut Request, access: &Access, id: &str) -> Answer {
    if let Some(led) = led_to_design(req, access, id) {
        return Ok(led);
    }
    if id == "_local/" {
        return Err(no_local_id());
    }
    route(req, access, id).await
}

/// Redirects a read of a design document, or of a path below it, whose id is one segment of the
/// path: its slash is encoded.
pub fn led_to_design(req: &Request, access: &Access, id: &str) -> Option<Reply> {
    let is_read = matches!(req.method.as_str(), "GET" | "HEAD");
    let is_led = is_read && id.starts_with("_design/");
    is_led.then(|| Reply::empty(301).location(&design_url(req, access, id)))
}

/// A document.
pub async fn route(req: &mut Request, access: &Access, id: &str) -> Answer {
    match req.method.as_str() {
        "GET" | "HEAD" => match req.query.get("open_revs") {
            None => get_one(req, access, id).await,
            Some(_) => Box::pin(get_some_revs(req, access, id)).await,
        },
        _ => Box::pin(write_by_method(req, access, id)).await,
    }
}

async fn write_by_method(req: &mut Request, access: &Access, id: &str) -> Answer {
    match req.method.as_str() {
        "PUT" => put(req, access, id).await,
        "DELETE" => delete(req, access, id).await,
        "COPY" => copy(req, access, id).await,
        _ => attachments::post_form(req, access, id).await,
    }
}

/// The requested URL, with the slash of `_design%2F` decoded.
fn design_url(req: &Request, access: &Access, id: &str) -> String {
    const ENCODED: &str = "/_design%2f";
    let path = &req.path;
    let Some(at) = path.to_ascii_lowercase().find(ENCODED) else {
        return req.url_of(&[access.db.name(), "_design", &id["_design/".len()..]]);
    };
    let (db, rest) = (&path[..at], &path[at + ENCODED.len()..]);
    let mut url = format!("{}{db}/_design/{rest}", req.root_url());
    if let Some(query) = &req.raw_query {
        url.push('?');
        url.push_str(query);
    }
    url
}

// ---- reading

/// A document of which `open_revs` requests some revisions, or none.
async fn get_some_revs(req: &mut Request, access: &Access, id: &str) -> Answer {
    let Ok(doc_id) = DocId::new(id) else {
        return Err(ApiError::missing());
    };
    let options = read_options(&req.query)?;
    let Some(which) = open_revs::asked(&req.query)? else {
        return get_one(req, access, id).await;
    };
    req.document_reads += 1;
    open_revs::get(req, access, &doc_id, &which, options).await
}

/// A request for one revision of a document.
struct ReadRequest {
    id: DocId,
    options: ReadOptions,
    /// For a read that needs the tree of revisions, which may be large.
    wide: Option<WideKey>,
}

impl ReadRequest {
    fn of(req: &mut Request, access: &Access, id: &str) -> Result<ReadRequest, ApiError> {
        let Ok(id) = DocId::new(id) else {
            return Err(ApiError::missing());
        };
        req.document_reads += 1;
        let options = document_options(&req.query)?;
        let wide = options
            .needs_tree()
            .then(|| WideKey::of(access.db.name(), id.as_str()));
        Ok(ReadRequest { id, options, wide })
    }

    /// Whether the read is too slow for a thread that serves requests.
    fn is_slow(&self) -> bool {
        self.options.reads_ancestors() || self.wide.is_some_and(WideKey::is_slow)
    }

    /// Reads the document, and notes how long that took.
    fn read(&self, db: &DatabaseAs) -> Result<Read, database::Error> {
        let Some(key) = self.wide else {
            return db.read(&self.id, &self.options);
        };
        let began = Instant::now();
        let read = db.read(&self.id, &self.options);
        key.note(began.elapsed());
        read
    }
}

async fn get_one(req: &mut Request, access: &Access, id: &str) -> Answer {
    let request = ReadRequest::of(req, access, id)?;
    match request.is_slow() {
        true => Box::pin(get_apart(req, access, request)).await,
        false => get(req, access, &request),
    }
}

fn get(req: &Request, access: &Access, request: &ReadRequest) -> Answer {
    let reading = telemetry::enter(State::Read);
    let read = request.read(&access.db)?;
    let mut reply = read_reply(req, access, read, &request.options)?;
    let began = reading.at();
    reply.timing.read_us = reading.leave().us_since(began);
    Ok(reply)
}

/// A document that is slow to read.
async fn get_apart(req: &Request, access: &Access, request: ReadRequest) -> Answer {
    let (db, options) = (access.db.clone(), request.options.clone());
    let read = move || {
        let _reads = telemetry::enter(State::Read);
        request.read(&db)
    };
    let read = req.answers.apart(read).await??;
    read_reply(req, access, read, &options)
}

/// Reads the options of a request for one document.
fn document_options(query: &Query) -> Result<ReadOptions, ApiError> {
    let mut options = read_options(query)?;
    // With `latest` it is the winner, of whatever branch `rev` is. (`open_revs`, and attachments, stay on its branch.)
    if options.latest {
        options.rev = None;
    }
    Ok(options)
}

fn read_reply(req: &Request, access: &Access, read: Read, options: &ReadOptions) -> Answer {
    match read {
        Read::Found(doc) => doc_reply(req, access, doc, options),
        Read::Missing => Err(ApiError::missing()),
        Read::Deleted => Err(ApiError::deleted()),
    }
}

fn doc_reply(req: &Request, access: &Access, doc: ReadDoc, options: &ReadOptions) -> Answer {
    let etag = doc.rev.to_string();
    let plain = !doc.tells_more;
    if plain && req.none_match(&etag) {
        return Ok(Reply::empty(304).etag(&etag));
    }
    if options.attachments != AttachmentSelection::None {
        let info = options.att_encoding_info;
        let reply = attachments::doc_reply(req, &access.db, &doc, info)?;
        return Ok(if plain { reply.etag(&etag) } else { reply });
    }
    let mut json = doc.json;
    json.push(b'\n');
    let reply = Reply::json_bytes(200, json);
    Ok(if plain { reply.etag(&etag) } else { reply })
}

pub fn read_options(query: &Query) -> Result<ReadOptions, ApiError> {
    let attachments = match query.json("atts_since")? {
        Some(since) => since_revs(parse_revs(&since)?),
        None if query.is_true("attachments") => AttachmentSelection::All,
        None => AttachmentSelection::None,
    };
    let meta = query.is_true("meta");
    Ok(ReadOptions {
        rev: query.get("rev").map(Rev::parse).transpose()?,
        latest: query.is_true("latest"),
        revs: query.is_true("revs"),
        revs_max: None,
        revs_info: meta || query.is_true("revs_info"),
        conflicts: meta || query.is_true("conflicts"),
        deleted_conflicts: meta || query.is_true("deleted_conflicts"),
        local_seq: query.is_true("local_seq"),
        attachments,
        att_encoding_info: query.is_true("att_encoding_info"),
        sorted: false,
    })
}

/// The attachments that were added after these revisions.
pub fn since_revs(revs: Vec<Rev>) -> AttachmentSelection {
    AttachmentSelection::Since(Arc::new(revs.into_iter().collect()))
}

// ---- writing

async fn read_document(req: &mut Request) -> Result<(EditDoc, u64), ApiError> {
    // A document's text is longer than its body by its underscore members, attachments in Base64 among them.
    let bytes = req.required_text().await.map_err(|e| {
        let error = match e.status {
            413 if !room::can_never_fit(&e) => "document_too_large".into(),
            _ => e.error,
        };
        ApiError { error, ..e }
    })?;
    let length = bytes.len();
    let parse = move || {
        let parsing = telemetry::enter(State::Parse);
        let began = parsing.at();
        let doc = parse_document(&bytes)?;
        Ok::<_, DocError>((doc, parsing.leave().us_since(began)))
    };
    Ok(req.process(length, false, parse).await??)
}

async fn put(req: &mut Request, access: &Access, id: &str) -> Answer {
    let settings = req.settings.clone();
    let mode = match req.query.get("new_edits") {
        Some("false") => EditMode::Replicated,
        _ => EditMode::Interactive,
    };
    let brings_files = attachments::is_multipart_related(req);
    let (mut doc, parse_us, uploaded) = match brings_files {
        true => {
            let id = parse_id(id, &settings.couchdb)?;
            let received = attachments::read_multipart(
                req,
                &access.db,
                &id,
                settings.chttpd.max_http_request_size,
                settings.couchdb.max_attachment_size,
                mode == EditMode::Replicated,
            );
            let received = received.await?;
            (received.doc, 0, received.uploaded)
        }
        false => {
            let (doc, parse_us) = read_document(req).await?;
            (doc, parse_us, vec![])
        }
    };
    let id = parse_id(id, &settings.couchdb)?;
    doc.rev = edited_rev(req, doc.rev.take())?;
    doc.id = Some(id.clone());
    if mode == EditMode::Replicated && doc.rev_path().is_none() {
        return Err(ApiError::bad_request(
            "When `new_edits: false`, the document needs `_rev` or `_revisions` specified",
        ));
    }
    let url = doc_url(req, access, &id);
    let mut write_mode = WriteMode::of(req, access.is_alone, None)?;
    if !brings_files {
        write_mode = write_mode.or_batch(req);
    }
    let who = req.caller();
    let written = write_in_mode(req, access, who, doc, mode, write_mode).await?;
    let mut reply = written.reply(Some(&url));
    drop(uploaded);
    reply.timing.parse_us = parse_us;
    Ok(reply)
}

fn doc_url(req: &Request, access: &Access, id: &DocId) -> String {
    req.url_of(&[access.db.name(), id.as_str()])
}

/// The revision that the body, the query and `If-Match` agree on: the edited one, or the one that
/// `COPY` copies.
pub fn edited_rev(req: &Request, body: Option<Rev>) -> Result<Option<Rev>, ApiError> {
    let query = req.query.get("rev").map(Rev::parse).transpose()?;
    let etag = req
        .header(&IF_MATCH)
        .map(|e| e.trim().trim_start_matches("W/").trim_matches('"'))
        .filter(|e| !e.is_empty())
        .map(Rev::parse)
        .transpose()?;
    let differ = |a: &Option<Rev>, b: &Option<Rev>| matches!((a, b), (Some(a), Some(b)) if a != b);
    if differ(&body, &query) {
        return Err(ApiError::bad_request(
            "Document rev from request body and query string have different values",
        ));
    }
    let rev = body.or(query);
    if differ(&rev, &etag) {
        return Err(ApiError::bad_request(
            "Document rev and etag have different values",
        ));
    }
    Ok(rev.or(etag))
}

pub struct Written {
    id: DocId,
    rev: Rev,
    deleted: bool,
    mode: WriteMode,
    timing: database::WriteTiming,
}

/// Writes one document as the user of the request.
pub async fn write(
    req: &Request,
    access: &Access,
    doc: EditDoc,
    mode: EditMode,
) -> Result<Written, ApiError> {
    write_as(req, access, req.caller(), doc, mode).await
}

/// Writes one document in the name of `caller`.
pub async fn write_as(
    req: &Request,
    access: &Access,
    caller: Caller,
    doc: EditDoc,
    mode: EditMode,
) -> Result<Written, ApiError> {
    let write_mode = WriteMode::of(req, access.is_alone, None)?;
    write_in_mode(req, access, caller, doc, mode, write_mode).await
}

async fn write_in_mode(
    req: &Request,
    access: &Access,
    caller: Caller,
    doc: EditDoc,
    mode: EditMode,
    write_mode: WriteMode,
) -> Result<Written, ApiError> {
    check_document(&doc, &req.settings.couchdb)?;
    let Some(id) = doc.id.clone() else {
        return Err(ApiError::bad_request("an edit needs an `_id`"));
    };
    if id.is_design() {
        access.require_design_admin(&req.user)?;
    }
    let deleted = doc.deleted;
    let done = access
        .db
        .update_as(caller, vec![doc], mode, write_mode.durability);
    let (mut outcomes, timing) = done.await?;
    match outcomes.pop() {
        Some(Outcome::Ok { rev }) => Ok(Written {
            id,
            rev,
            deleted,
            mode: write_mode.of_edits(mode).once_written(&timing),
            timing,
        }),
        // Of the document that is being written this is the client's fault; of one whose function is called it is not.
        Some(Outcome::Refused(error, reason)) if id.is_design() && error == "compilation_error" => {
            Err(ApiError::new(400, error, reason))
        }
        Some(Outcome::Refused(error, reason)) => Err(attachments::refused(&error, &reason)
            .unwrap_or_else(|| crate::design_routes::thrown(&error, &reason))),
        Some(Outcome::Conflict) | None => Err(ApiError::conflict()),
    }
}

impl Written {
    pub fn id(&self) -> &DocId {
        &self.id
    }

    pub fn rev(&self) -> &Rev {
        &self.rev
    }

    /// 201, or 202 when it is acknowledged before it is safe.
    pub fn status(&self) -> u16 {
        self.mode.status(false)
    }

    pub fn reply(self, url: Option<&str>) -> Reply {
        let mut json = b"{\"ok\":true,\"id\":".to_vec();
        document::write_json_string(self.id.as_str(), &mut json);
        if !self.mode.batch {
            json.extend_from_slice(b",\"rev\":");
            self.rev.write_json_to(&mut json);
        }
        json.extend_from_slice(b"}\n");
        let mut reply = Reply::json_bytes(self.mode.status(self.deleted), json);
        if !self.mode.batch {
            reply = reply.etag(&self.rev.to_string());
            if let Some(url) = url {
                reply = reply.location(url);
            }
        }
        reply.timing.wait_us = self.timing.wait_us;
        reply.timing.commit_us = self.timing.commit_us;
        reply
    }

    /// The response to `POST /{db}`, which has no ETag and does not distinguish deletions from
    /// edits.
    pub fn reply_without_etag(mut self, url: &str) -> Reply {
        self.deleted = false;
        let mut reply = self.reply(Some(url));
        reply.headers.retain(|(n, _)| n != hyper::header::ETAG);
        reply
    }
}

/// `POST /{db}`: a document with its own id or a new one.
pub async fn post(app: &App, req: &mut Request, access: &Access) -> Answer {
    req.require_json()?;
    let (mut doc, parse_us) = read_document(req).await?;
    let id = match doc.id.take() {
        Some(id) => id,
        None => DocId::new(&app.node.new_uuid())?,
    };
    doc.id = Some(id.clone());
    let url = doc_url(req, access, &id);
    let write_mode = WriteMode::of(req, access.is_alone, None)?.or_batch(req);
    let (who, mode) = (req.caller(), EditMode::Interactive);
    let written = write_in_mode(req, access, who, doc, mode, write_mode).await?;
    let mut reply = written.reply_without_etag(&url);
    reply.timing.parse_us = parse_us;
    Ok(reply)
}

async fn delete(req: &mut Request, access: &Access, id: &str) -> Answer {
    let Ok(id) = DocId::new(id) else {
        return Err(ApiError::missing());
    };
    match access.db.read(&id, &ReadOptions::default())? {
        Read::Found(_) => {}
        Read::Missing => return Err(ApiError::missing()),
        Read::Deleted => return Err(ApiError::deleted()),
    }
    let mut doc = parse_document(b"{}")?;
    doc.rev = edited_rev(req, None)?;
    doc.id = Some(id);
    doc.deleted = true;
    Ok(write(req, access, doc, EditMode::Interactive)
        .await?
        .reply(None))
}

async fn copy(req: &mut Request, access: &Access, id: &str) -> Answer {
    let destination = req
        .named_header("destination")
        .ok_or_else(|| ApiError::bad_request("Destination header is mandatory for COPY."))?;
    let (target, rev) = parse_destination(destination)?;
    let target = parse_id(&target, &req.settings.couchdb)?;
    let Ok(id) = DocId::new(id) else {
        return Err(ApiError::missing());
    };
    let options = ReadOptions {
        rev: edited_rev(req, None)?,
        ..ReadOptions::default()
    };
    let source = match access.db.read(&id, &options)? {
        Read::Found(doc) => doc,
        Read::Missing => return Err(ApiError::missing()),
        Read::Deleted => return Err(ApiError::deleted()),
    };
    let doc = copy_of(req, source, &target, rev).await?;
    let _held = req.hold_edit(&doc, 0).await?;
    let url = doc_url(req, access, &target);
    let who = req.caller();
    let write_mode = WriteMode::of(req, access.is_alone, None)?.without_w();
    let mode = EditMode::Interactive;
    Ok(write_in_mode(req, access, who, doc, mode, write_mode)
        .await?
        .reply(Some(&url)))
}

/// Returns the edit that copies a document, whose text is not needed any more then.
async fn copy_of(
    req: &Request,
    source: ReadDoc,
    target: &DocId,
    rev: Option<Rev>,
) -> Result<EditDoc, ApiError> {
    let ReadDoc {
        json, attachments, ..
    } = source;
    let length = json.len();
    let parse = move || parse_document(&json);
    let doc = long_text::process(&req.answers, length, false, parse).await??;
    Ok(EditDoc {
        id: Some(target.clone()),
        rev,
        attachments: None,
        files: attachments
            .into_iter()
            .map(|read| read.attachment)
            .collect(),
        ..doc
    })
}

/// `id?rev=…`, percent-encoded, relative to the database.
fn parse_destination(text: &str) -> Result<(String, Option<Rev>), ApiError> {
    if text.starts_with("http://") || text.starts_with("https://") {
        return Err(ApiError::bad_request("Destination URL must be relative."));
    }
    let (id, query) = text.split_once('?').unwrap_or((text, ""));
    let id = String::from_utf8(decode(id)).map_err(|_| document::IdError::InvalidUtf8)?;
    let query = Query::parse(Some(query));
    let rev = query.get("rev").map(Rev::parse).transpose()?;
    Ok((id, rev))
}
