//! `_changes` in all its feeds.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use database::{Changes, ChangesQuery, Filter, Framing, ShownAttachments, Since, Style};
use functions::Place;
use futures_util::stream;
use hyper::header::{CACHE_CONTROL, ETAG, HeaderValue};
use parking_lot::Mutex;
use serde_json::{Map, Value};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::app::{App, OpenFeed};
use crate::database_routes::find::apart_if_long;
use crate::design_routes::calls;
use crate::errors::ApiError;
use crate::reply::stream::{CHUNK_BYTES, pull, pull_admitted};
use crate::reply::{Reply, StreamError};
use crate::request::Request;
use crate::request::body::BodyClass;
use crate::router::require_method;
use node::Access;
use node::body_given;
use node::{Query, named_filter, selector_filter};

type Answer = Result<Reply, ApiError>;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum FeedKind {
    Normal,
    Longpoll,
    Continuous,
    EventSource,
}

impl FeedKind {
    pub fn of(query: &Query) -> Result<FeedKind, ApiError> {
        Ok(match query.get("feed") {
            None | Some("normal") => FeedKind::Normal,
            Some("longpoll") => FeedKind::Longpoll,
            Some("continuous" | "live") => FeedKind::Continuous,
            Some("eventsource") => FeedKind::EventSource,
            Some(_) => {
                return Err(ApiError::bad_request(
                    "Supported `feed` types: normal, continuous, live, longpoll, eventsource",
                ));
            }
        })
    }

    pub fn framing(self) -> Framing {
        match self {
            FeedKind::Normal | FeedKind::Longpoll => Framing::Array,
            FeedKind::Continuous => Framing::Lines,
            FeedKind::EventSource => Framing::Events,
        }
    }
}

/// How long a live feed waits, and how it shows that it lives.
#[derive(Clone, Copy)]
pub struct FeedTimes {
    timeout: Option<Duration>,
    heartbeat: Option<Duration>,
}

impl FeedTimes {
    /// `max_ms`, of `[chttpd] changes_timeout`, is the default and the longest of both, as in CouchDB.
    pub fn of(query: &Query, max_ms: u64) -> Result<FeedTimes, ApiError> {
        let heartbeat = match query.get("heartbeat") {
            None => None,
            Some("true") => Some(max_ms),
            Some(n) => match n.parse::<i64>().map(u64::try_from) {
                Ok(Ok(n)) if n > 0 => Some(n.min(max_ms)),
                Ok(_) => {
                    return Err(ApiError::bad_request(
                        "The heartbeat value should be a positive integer (in milliseconds).",
                    ));
                }
                Err(_) => {
                    return Err(ApiError::bad_request(
                        "Invalid heartbeat value. Expecting a positive integer value (in milliseconds).",
                    ));
                }
            },
        };
        let timeout = match query.get("timeout") {
            None => None,
            Some(t) => Some(t.parse::<u64>().map_err(|_| {
                ApiError::bad_request("`timeout` must be a positive integer (in milliseconds)")
            })?),
        };
        // A heartbeat overrides any timeout: such a feed ends only when somebody wants it to.
        let timeout = match heartbeat {
            Some(_) => None,
            None => Some(timeout.map_or(max_ms, |t: u64| t.min(max_ms))),
        };
        Ok(FeedTimes {
            timeout: timeout.map(Duration::from_millis),
            heartbeat: heartbeat.map(Duration::from_millis),
        })
    }
}

pub async fn route(app: &App, req: &mut Request, access: &Access) -> Answer {
    require_method(req, "GET,HEAD,POST")?;
    let (body, raw) = if req.method == "POST" {
        req.require_json()?;
        read_body(req).await?
    } else {
        (Map::new(), None)
    };
    let kind = FeedKind::of(&req.query)?;
    let patience = FeedTimes::of(&req.query, app.limits().changes_timeout_ms)?;
    let mut query = changes_query(req, kind)?;
    query.filter = filter(app, req, access, &body, raw).await?;
    match kind {
        FeedKind::Normal => normal(req, access, query).await,
        _ => {
            let feed = LiveFeed {
                _place: app.open_feed()?,
                changed: access.db.watch(),
                stopping: app.stopping(),
                changes: Arc::new(Mutex::new(access.db.changes(query)?)),
                kind,
                patience,
                state: LiveState::Head,
            };
            Ok(feed.reply())
        }
    }
}

/// The body of a POST: nothing, or an object.
async fn read_body(req: &mut Request) -> Result<(Map<String, Value>, Option<Bytes>), ApiError> {
    let bytes = req.bytes(BodyClass::Many).await?;
    let given = body_given(&req.headers, &bytes);
    if bytes.is_empty() {
        return Ok((Map::new(), given.then_some(bytes)));
    }
    match req.json_of(BodyClass::Many, &bytes)? {
        Value::Object(o) => Ok((o, Some(bytes))),
        _ => Err(ApiError::bad_request("Request body must be a JSON object")),
    }
}

/// What the query asks for; the filter is for [`filter`] to read.
fn changes_query(req: &Request, kind: FeedKind) -> Result<ChangesQuery, ApiError> {
    let q = &req.query;
    let event_id = (kind == FeedKind::EventSource)
        .then(|| req.named_header("last-event-id"))
        .flatten();
    // As `id` is written, or without its quotes.
    let event_id = event_id.or(q.get("last-event-id"));
    let event_id = event_id.map(|id| id.trim_matches('"'));
    let since = match event_id.or(q.get("since")) {
        None | Some("0" | "") => Since::Start,
        Some("now") => Since::Now,
        Some(seq) => Since::Seq(seq.to_owned()),
    };
    let style = match q.get("style") {
        None | Some("main_only") => Style::MainOnly,
        Some("all_docs") => Style::AllDocs,
        Some(_) => {
            return Err(ApiError::bad_request(
                "Supported `style` values: main_only, all_docs",
            ));
        }
    };
    let limit = match q.get("limit") {
        None => None,
        Some(l) => {
            let l = l
                .parse::<i64>()
                .map_err(|_| ApiError::bad_request("`limit` must be an integer"))?;
            // A negative limit is none.
            u64::try_from(l).ok()
        }
    };
    let seq_interval = match q.get("seq_interval").map(str::parse::<u64>) {
        None => None,
        Some(Ok(n)) if n > 0 => Some(n),
        Some(_) => return Err(ApiError::bad_request("invalid_seq_interval")),
    };
    Ok(ChangesQuery {
        since,
        descending: q.is_true("descending"),
        limit,
        style,
        include_docs: q.is_true("include_docs"),
        conflicts: q.is_true("conflicts"),
        attachments: ShownAttachments {
            bytes: q.is_true("attachments"),
            encoding_info: q.is_true("att_encoding_info"),
        },
        filter: Filter::None,
        seq_interval,
    })
}

/// `body` is `raw` as an object.
async fn filter(
    app: &App,
    req: &mut Request,
    access: &Access,
    body: &Map<String, Value>,
    raw: Option<Bytes>,
) -> Result<Filter, ApiError> {
    let q = &req.query;
    match q.get("filter") {
        None | Some("") => Ok(Filter::None),
        Some("_doc_ids") => doc_ids(q, body),
        Some("_selector") if req.method != "POST" => Err(ApiError::bad_request(
            "Selector must be specified in POST payload",
        )),
        Some("_selector") => {
            // Out of the text: the members of `body` hold no integers beyond 64 bits.
            let text = raw.filter(|r| !r.is_empty());
            let limits = app.limits().mango.defaults.limits;
            let fields = body.get("fields").cloned();
            apart_if_long(text.unwrap_or(Bytes::from_static(b"{}")), move |text| {
                let selector = mango::Selector::of_body(&document::normalise(text)?, &limits);
                Ok(selector_filter(selector, fields.as_ref())?)
            })
            .await
        }
        Some(name) => {
            let request = || calls::request_json(app, req, access, None, raw.as_deref());
            Ok(named_filter(access, q, name, request)?)
        }
    }
}

fn doc_ids(q: &Query, body: &Map<String, Value>) -> Result<Filter, ApiError> {
    let from_query = q.json("doc_ids")?;
    let list = match body.get("doc_ids").or(from_query.as_ref()) {
        Some(Value::Array(list)) => list.as_slice(),
        _ => &[Value::Null],
    };
    let ids = list
        .iter()
        .map(|id| id.as_str().map(str::to_owned))
        .collect::<Option<HashSet<_>>>()
        .ok_or_else(|| {
            ApiError::bad_request("`doc_ids` filter parameter is not a list of doc ids.")
        })?;
    Ok(Filter::DocIds(Arc::new(ids)))
}

const HEAD: &[u8] = b"{\"results\":[\n";

fn write_tail(changes: &Changes, out: &mut Vec<u8>) -> Result<(), ApiError> {
    let tail = format!(
        "\n],\n\"last_seq\":\"{}\",\"pending\":{}}}\n",
        changes.last_seq(),
        changes.pending()?
    );
    out.extend_from_slice(tail.as_bytes());
    Ok(())
}

async fn normal(req: &Request, access: &Access, query: ChangesQuery) -> Answer {
    let etag = access.db.info()?.update_seq;
    if req.none_match(&etag) {
        return Ok(Reply::empty(304).etag(&etag));
    }
    let changes = Arc::new(Mutex::new(access.db.changes(query)?));
    let mut head = true;
    let mut done = false;
    let may_block = changes.lock().may_block();
    let admission = {
        let changes = changes.clone();
        move || changes.lock().admission()
    };
    let next = move |out: &mut Vec<u8>, place: Place| {
        let mut changes = changes.lock();
        changes.admit(place);
        if done {
            return Ok(false);
        }
        if std::mem::take(&mut head) {
            out.extend_from_slice(HEAD);
        }
        if !changes.next_chunk(Framing::Array, out, CHUNK_BYTES)? {
            write_tail(&changes, out)?;
            done = true;
        }
        Ok(true)
    };
    let reply = if may_block {
        pull_admitted("application/json", admission, next).await?
    } else {
        let mut next = next;
        pull("application/json", move |out| next(out, Place::uncounted()))?
    };
    Ok(reply.header(ETAG, &format!("\"{etag}\"")))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum LiveState {
    Head,
    Running,
    Done,
}

/// A feed that waits for changes.
struct LiveFeed {
    /// Never waited for: whoever reads has the feed for itself.
    changes: Arc<Mutex<Changes>>,
    changed: watch::Receiver<u64>,
    stopping: watch::Receiver<bool>,
    kind: FeedKind,
    patience: FeedTimes,
    state: LiveState,
    _place: OpenFeed,
}

/// Why the wait of a live feed ended.
pub enum Woken {
    Changed,
    Heartbeat,
    /// Timed out, the server stops, or the database is gone.
    Ended,
}

/// Waits for a change of `changed`, as long as `patience` allows.
pub async fn wait(
    changed: &mut watch::Receiver<u64>,
    stopping: &mut watch::Receiver<bool>,
    patience: FeedTimes,
    waiting_since: Instant,
) -> Woken {
    let timeout = patience.timeout.map(|t| waiting_since + t);
    let beat = patience.heartbeat.map(|h| Instant::now() + h);
    let sleep_until = |at: Option<Instant>| async move {
        match at {
            Some(at) => tokio::time::sleep_until(at).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        c = changed.changed() => if c.is_ok() { Woken::Changed } else { Woken::Ended },
        _ = stopping.wait_for(|s| *s) => Woken::Ended,
        () = sleep_until(timeout) => Woken::Ended,
        () = sleep_until(beat) => Woken::Heartbeat,
    }
}

impl LiveFeed {
    fn reply(self) -> Reply {
        let events = self.kind == FeedKind::EventSource;
        let pieces = stream::unfold(self, |mut feed| async move {
            let mut out = Vec::new();
            match feed.next(&mut out).await {
                Ok(()) if out.is_empty() => None,
                Ok(()) => Some((Ok(Bytes::from(out)), feed)),
                Err(e) => {
                    feed.state = LiveState::Done;
                    let e: StreamError = e.reason.into_owned().into();
                    Some((Err(e), feed))
                }
            }
        });
        if events {
            let reply = Reply::stream(
                HeaderValue::from_static("text/event-stream"),
                Box::pin(pieces),
            );
            return reply.header(CACHE_CONTROL, "no-cache");
        }
        Reply::stream(
            HeaderValue::from_static("application/json"),
            Box::pin(pieces),
        )
    }

    /// Appends what comes next, waiting for it; nothing at the end.
    async fn next(&mut self, out: &mut Vec<u8>) -> Result<(), ApiError> {
        let array = self.kind == FeedKind::Longpoll;
        if self.state == LiveState::Done {
            return Ok(());
        }
        if self.state == LiveState::Head {
            self.state = LiveState::Running;
            if array {
                out.extend_from_slice(HEAD);
            }
        }
        let waiting_since = Instant::now();
        loop {
            while self.read(out).await? {
                if !out.is_empty() {
                    return Ok(());
                }
                // A filter passed over many rows: others get their turn, and the client a sign of life.
                tokio::task::yield_now().await;
                let due = |h: Duration| waiting_since.elapsed() >= h;
                if self.patience.heartbeat.is_some_and(due) {
                    out.extend_from_slice(self.heartbeat());
                    return Ok(());
                }
            }
            if self.has_enough() {
                return self.end(out);
            }
            if !out.is_empty() {
                return Ok(());
            }
            self.changes.lock().release();
            match wait(
                &mut self.changed,
                &mut self.stopping,
                self.patience,
                waiting_since,
            )
            .await
            {
                Woken::Changed => self.refresh()?,
                Woken::Heartbeat => {
                    out.extend_from_slice(self.heartbeat());
                    return Ok(());
                }
                Woken::Ended => return self.end(out),
            }
        }
    }

    fn heartbeat(&self) -> &'static [u8] {
        match self.kind {
            FeedKind::EventSource => b"event: heartbeat\ndata: \n\n",
            _ => b"\n",
        }
    }

    /// The feed has come to its end, or a longpoll has something to tell.
    fn has_enough(&self) -> bool {
        let changes = self.changes.lock();
        changes.is_final() || self.kind == FeedKind::Longpoll && changes.rows() > 0
    }

    async fn read(&mut self, out: &mut Vec<u8>) -> Result<bool, ApiError> {
        let framing = self.kind.framing();
        let changes = self.changes.clone();
        let read = if changes.lock().may_block() {
            // How many feeds there are is bounded, and their clients would come again at once.
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
                .map_err(|e| ApiError::new(500, "internal_server_error", e.to_string()))?;
            out.extend_from_slice(&piece);
            read
        } else {
            changes.lock().next_chunk(framing, out, CHUNK_BYTES)
        };
        match read {
            // Deleted: the feed ends as if it had timed out.
            Err(database::Error::NoDatabase) => Ok(false),
            other => Ok(other?),
        }
    }

    fn refresh(&mut self) -> Result<(), ApiError> {
        match self.changes.lock().refresh() {
            Err(database::Error::NoDatabase) => Ok(()),
            other => Ok(other?),
        }
    }

    fn end(&mut self, out: &mut Vec<u8>) -> Result<(), ApiError> {
        self.state = LiveState::Done;
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
