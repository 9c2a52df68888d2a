//! `_changes` in all its feeds.

use std::sync::Arc;

use bytes::Bytes;
use database::{Changes, ChangesQuery, Filter, Framing, ShownAttachments, Since, Style};
use document::TextList;
use functions::Place;
use hyper::header::ETAG;
use parking_lot::Mutex;
use serde_json::{Map, Value};
use tokio::sync::watch;

use crate::app::App;
use crate::database_routes::find::{apart_if_long, selector_limits};
use crate::design_routes::function_call::FunctionRequest;
use crate::errors::ApiError;
use crate::load::SHORT_BODY_BYTES_MAX;
use crate::reply::Reply;
use crate::reply::answers::measured;
use crate::reply::late::Late;
use crate::reply::live::{FeedKind, FeedTimes, HEAD, LiveFeed, LiveSource, natural, until_deleted};
use crate::reply::permission::Permission;
use crate::reply::stream::{CHUNK_BYTES, PieceMaker, pull, pull_admitted};
use crate::request::{Request, long_text};
use node::Access;
use node::body_given;
use node::{NamedFilter, selector_filter};

type Answer = Result<Reply, ApiError>;

pub async fn route(app: &App, req: &mut Request, access: &Access) -> Answer {
    let (body, raw) = if req.method == "POST" {
        req.require_json()?;
        read_body(req).await?
    } else {
        (Map::new(), None)
    };
    let kind = FeedKind::of(&req.query)?;
    let times = FeedTimes::of(&req.query, req.settings.chttpd.changes_timeout)?;
    let mut query = changes_query(req, kind)?;
    let bytes;
    (query.filter, bytes) = filter(app, req, access, body, raw).await?;
    req.keep(bytes).await?;
    let late = Late::of(query.attachments.bytes)?;
    let reply = match kind {
        FeedKind::Normal => normal(req, access, query, &late).await?,
        _ => {
            let (place, changed) = (app.open_feed(req, access.db.name())?, access.db.watch());
            let accounts = accounts_of(app, access);
            let mut changes = access.db.changes(query)?;
            changes.place_contents(late.placement());
            let mut permission = Permission::of(app, req, access);
            let is_revoked = access.db.is_limited() && !permission.holds();
            let changes = LiveChanges {
                changes: Arc::new(Mutex::new(changes)),
                kind,
                permission,
                is_revoked,
            };
            let feed = LiveFeed::new(
                changes,
                kind,
                times,
                changed,
                app.stopping(),
                (place, &req.answers),
            );
            feed.woken_by(accounts).reply()
        }
    };
    Ok(late.fill(reply, &req.answers))
}

/// Returns what wakes a feed of a user of a database with access, which waits for the user's own rows
/// alone: a change of the user's roles ends it.
fn accounts_of(app: &App, access: &Access) -> Option<watch::Receiver<u64>> {
    let name = &app.node.settings().chttpd_auth.authentication_db;
    let accounts = access.db.is_limited().then(|| app.node.databases.get(name));
    accounts?.ok().map(|accounts| accounts.watch())
}

/// The body of a POST: nothing, or an object.
async fn read_body(req: &mut Request) -> Result<(Map<String, Value>, Option<Bytes>), ApiError> {
    let bytes = req.bytes().await?;
    let given = body_given(&req.headers, &bytes);
    if bytes.is_empty() {
        return Ok((Map::new(), given.then_some(bytes)));
    }
    match req.parsed(&bytes).await? {
        Value::Object(o) => Ok((o, Some(bytes))),
        other => {
            req.free(other);
            Err(ApiError::bad_request("Request body must be a JSON object"))
        }
    }
}

/// The parameters of the query; [`filter`] reads the filter.
fn changes_query(req: &Request, kind: FeedKind) -> Result<ChangesQuery, ApiError> {
    let q = &req.query;
    let since = match req.since(kind == FeedKind::EventSource) {
        None | Some("0") => Since::Start,
        Some("now") => Since::Now,
        Some(seq) => Since::Seq(seq.to_owned()),
    };
    let style = match q.last(&["style"]) {
        None | Some("main_only") => Style::MainOnly,
        Some("all_docs") => Style::AllDocs,
        Some(_) => {
            return Err(ApiError::bad_request(
                "Supported `style` values: main_only, all_docs",
            ));
        }
    };
    let limit = q.last(&["limit"]).map(|text| natural("limit", text));
    let limit = limit.transpose()?;
    let mut seq_interval = None;
    for text in q.values(&["seq_interval"]) {
        let interval = natural("", text).ok().filter(|interval| *interval > 0);
        let invalid = || ApiError::bad_request("invalid_seq_interval");
        seq_interval = Some(interval.ok_or_else(invalid)?);
    }
    // Once true, always true: CouchDB reads only the word `true`.
    let is_true = |name| q.values(&[name]).any(|value| value == "true");
    Ok(ChangesQuery {
        since,
        descending: is_true("descending"),
        limit,
        style,
        include_docs: is_true("include_docs"),
        conflicts: is_true("conflicts"),
        attachments: ShownAttachments {
            bytes: is_true("attachments"),
            encoding_info: is_true("att_encoding_info"),
        },
        filter: Filter::None,
        seq_interval,
    })
}

/// The filter, and how many bytes it takes as long as the feed is open. `body` is `raw` as an object.
async fn filter(
    app: &App,
    req: &mut Request,
    access: &Access,
    mut body: Map<String, Value>,
    raw: Option<Bytes>,
) -> Result<(Filter, usize), ApiError> {
    let q = &req.query;
    match q.last(&["filter"]) {
        None => {
            req.free(body);
            Ok((Filter::None, 0))
        }
        // CouchDB reads the words between slashes, and there are none.
        Some(name) if name.bytes().all(|byte| byte == b'/') => {
            req.free(body);
            Ok((Filter::None, 0))
        }
        Some("_doc_ids") => {
            let given = match req.method == "POST" {
                true => body.remove("doc_ids"),
                false => q.json("doc_ids")?,
            };
            let ids = ids_of(req, given, body).await?;
            let bytes = ids.memory_bytes();
            Ok((Filter::DocIds(Arc::new(ids)), bytes))
        }
        Some("_selector") if req.method != "POST" => Err(ApiError::bad_request(
            "Selector must be specified in POST payload",
        )),
        Some("_selector") => {
            // Out of the text: the members of `body` hold no integers beyond 64 bits.
            let text = raw.filter(|r| !r.is_empty());
            let limits = selector_limits(&req.settings.mango);
            let fields = body.remove("fields");
            // The text of the selector is not needed any more.
            req.free(body);
            let text = text.unwrap_or(Bytes::from_static(b"{}"));
            apart_if_long(req, text, move |text| {
                let (filter, bytes) = measured(text.len(), || {
                    let selector = mango::Selector::of_body(&document::normalise(text)?, &limits);
                    selector_filter(selector, fields.as_ref()).map_err(ApiError::from)
                });
                Ok((filter?, bytes))
            })
            .await
        }
        Some(_) => {
            req.free(body);
            // The request is changed below.
            let q = req.query.clone();
            let name = q.last(&["filter"]).unwrap_or_default();
            let NamedFilter::Function(function) = NamedFilter::parse(&q, name)? else {
                return Ok((Filter::Design, 0));
            };
            let ddoc = access.db.design_doc(&function.design).await?;
            let ddoc = function.require(ddoc)?;
            // The feed keeps this revision, also when nothing else does.
            let kept = ddoc.json.len();
            let (request, bytes) = match function.takes_request() {
                true => {
                    let (request, bytes) = request_of(app, req, access, raw).await?;
                    (Some(request), bytes)
                }
                false => (None, 0),
            };
            Ok((function.filter(access, ddoc, request), bytes + kept))
        }
    }
}

/// Returns the request that a filter function gets, as JSON text, and its memory in bytes.
async fn request_of(
    app: &App,
    req: &mut Request,
    access: &Access,
    body: Option<Bytes>,
) -> Result<(Vec<u8>, usize), ApiError> {
    let length = body.as_ref().map_or(0, Bytes::len);
    let (request, access) = (FunctionRequest::of(app, req, body), access.clone());
    let make = move || {
        let (json, bytes) = measured(length, || request.json(&access, None));
        Ok::<_, ApiError>((json?, bytes))
    };
    req.process(length, long_text::gives_way(length), make)
        .await?
}

/// Reads the `doc_ids` of a body or of a query. The rest of the body is not needed any more.
async fn ids_of(
    req: &Request,
    given: Option<Value>,
    body: Map<String, Value>,
) -> Result<TextList, ApiError> {
    let ids_max = req.settings.limits.max_keys;
    let read = move || {
        let ids = doc_ids(given.as_ref(), ids_max);
        drop(body);
        ids
    };
    match req.body_bytes > SHORT_BODY_BYTES_MAX as u64 {
        true => req.answers.apart(read).await?,
        false => read(),
    }
}

fn doc_ids(given: Option<&Value>, ids_max: u64) -> Result<TextList, ApiError> {
    let list = match given {
        Some(Value::Array(list)) => list.as_slice(),
        _ => &[Value::Null],
    };
    if list.len() as u64 > ids_max {
        return Err(ApiError::too_large("max_keys", ids_max));
    }
    let mut ids = list
        .iter()
        .map(Value::as_str)
        .collect::<Option<TextList>>()
        .ok_or_else(|| {
            ApiError::bad_request("`doc_ids` filter parameter is not a list of doc ids.")
        })?;
    ids.sort();
    Ok(ids)
}

fn write_tail(changes: &Changes, out: &mut Vec<u8>) -> Result<(), ApiError> {
    let tail = format!(
        "\n],\n\"last_seq\":\"{}\",\"pending\":{}}}\n",
        changes.last_seq(),
        changes.pending()?
    );
    out.extend_from_slice(tail.as_bytes());
    Ok(())
}

async fn normal(req: &Request, access: &Access, query: ChangesQuery, late: &Late) -> Answer {
    // What a user of a database with access sees depends on the user's roles too.
    let etag = match access.db.is_limited() {
        true => None,
        false => Some(access.db.short_update_seq()?),
    };
    if let Some(etag) = etag.as_ref().filter(|etag| req.none_match(etag)) {
        return Ok(Reply::empty(304).etag(etag));
    }
    let mut changes = access.db.changes(query)?;
    changes.place_contents(late.placement());
    let changes = Arc::new(Mutex::new(changes));
    let may_block = changes.lock().may_block();
    let mut body = NormalBody {
        changes: changes.clone(),
        has_head: false,
        is_done: false,
    };
    let reply = match may_block {
        true => {
            let admission = move || changes.lock().admission();
            let next = move |out: &mut Vec<u8>, place| body.next_piece(out, place);
            pull_admitted(&req.answers, "application/json", admission, next).await?
        }
        false => pull(&req.answers, "application/json", body).await?,
    };
    Ok(match etag {
        Some(etag) => reply.header(ETAG, &format!("\"{etag}\"")),
        None => reply,
    })
}

/// The body of a feed that ends.
struct NormalBody {
    changes: Arc<Mutex<Changes>>,
    has_head: bool,
    is_done: bool,
}

impl NormalBody {
    fn next_piece(&mut self, out: &mut Vec<u8>, place: Place) -> Result<bool, ApiError> {
        let mut changes = self.changes.lock();
        changes.admit(place);
        if self.is_done {
            return Ok(false);
        }
        if !std::mem::replace(&mut self.has_head, true) {
            out.extend_from_slice(HEAD);
        }
        if !changes.next_chunk(Framing::Array, out, CHUNK_BYTES)? {
            write_tail(&changes, out)?;
            self.is_done = true;
        }
        Ok(true)
    }
}

impl PieceMaker for NormalBody {
    fn next(&mut self, out: &mut Vec<u8>) -> Result<bool, ApiError> {
        self.next_piece(out, Place::uncounted())
    }

    fn is_long(&self) -> bool {
        self.changes.lock().is_long()
    }
}

/// The changes of a database, for a feed that waits.
struct LiveChanges {
    /// Never contended: only one reader has the feed.
    changes: Arc<Mutex<Changes>>,
    kind: FeedKind,
    permission: Permission,
    /// Its user may no longer read the database: the feed ends.
    is_revoked: bool,
}

impl LiveSource for LiveChanges {
    async fn read(&mut self, out: &mut Vec<u8>) -> Result<bool, ApiError> {
        if self.is_revoked {
            return Ok(false);
        }
        let framing = self.kind.framing();
        let changes = self.changes.clone();
        let read = if changes.lock().may_block() {
            // The number of feeds is bounded, and their clients would reconnect immediately.
            let admission = changes.lock().admission().patiently();
            let place = admission.await?;
            changes.lock().admit(place);
            let read = move || {
                let mut piece = vec![];
                let read = changes.lock().next_chunk(framing, &mut piece, CHUNK_BYTES);
                (piece, read)
            };
            let (piece, read) = tokio::task::spawn_blocking(read)
                .await
                .map_err(ApiError::worker_failed)?;
            out.extend_from_slice(&piece);
            read
        } else {
            changes.lock().next_chunk(framing, out, CHUNK_BYTES)
        };
        until_deleted(read)
    }

    fn rows(&self) -> u64 {
        self.changes.lock().rows()
    }

    fn is_final(&self) -> bool {
        self.is_revoked || self.changes.lock().is_final()
    }

    fn refresh(&mut self) -> Result<(), ApiError> {
        self.is_revoked = self.is_revoked || !self.permission.holds();
        if self.is_revoked {
            return Ok(());
        }
        until_deleted(self.changes.lock().refresh())
    }

    fn release(&mut self) {
        self.changes.lock().release();
    }

    fn write_end(&mut self, out: &mut Vec<u8>) -> Result<(), ApiError> {
        let changes = self.changes.lock();
        match self.kind {
            FeedKind::Longpoll | FeedKind::Normal => write_tail(&changes, out)?,
            FeedKind::Continuous => {
                let last = format!(
                    "{{\"last_seq\":\"{}\",\"pending\":{}}}\n",
                    changes.last_seq(),
                    changes.pending()?
                );
                out.extend_from_slice(last.as_bytes());
            }
            FeedKind::EventSource => {}
        }
        Ok(())
    }
}
