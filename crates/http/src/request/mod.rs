//! A request as the routes see it.

pub mod body;
pub mod framing;
pub mod host;
pub mod keeps;
pub mod long_text;
pub mod parameters;
pub mod proxy_headers;
pub mod room;

use std::sync::Arc;
use std::time::{Duration, Instant};

use auth::{Login, UserCtx};
use bytes::Bytes;
use database::{Caller, FindIndexes};
use document::multipart::Event;
use document::{Attachment, EditDoc};
use fair_queue::Requester;
use hyper::HeaderMap;
use hyper::body::Incoming;
use hyper::header::{
    ACCEPT, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, EXPECT, HOST, HeaderName,
    IF_NONE_MATCH, TRANSFER_ENCODING,
};
use routes::{Route, RouteMatch, Row, ServerRoute};
use serde_json::Value;

use crate::accounting::slow::Detail;
use crate::accounting::traced::Traced;
use crate::connection::places::Ticket;
use crate::errors::ApiError;
use crate::load::SHORT_BODY_BYTES_MAX;
use crate::reply::ahead::Begun;
use crate::reply::answers::{Answers, FREE_BYTES, Held};
use crate::request::body::{BodyClass, Bounds, Pace, Source, Stream};
use crate::request::keeps::Keeps;
use crate::request::room::{Bodies, Parsed, Room};
use crate::settings::Settings;
use crate::shares::{self, Sharer};
use node::RewrittenRequest;
use node::{Query, encode_into, segments_with};

/// After an error, this much of the body is read and discarded so that the connection can continue.
const DRAIN_BYTES_MAX: u64 = 1 << 20;
const DRAIN_TIME_MAX: Duration = Duration::from_secs(2);
/// Most bytes to read and discard when there was no memory for the body, which is not the client's
/// fault: many clients read no response before they have sent everything.
const UNTAKEN_BYTES_MAX: u64 = 1 << 30;
const UNTAKEN_TIME_MAX: Duration = Duration::from_secs(60);

pub struct Request {
    /// Upper case, after `X-HTTP-Method-Override`.
    pub method: String,
    /// The path as sent.
    pub path: String,
    /// Host and port of the target, when it names them.
    authority: Option<String>,
    /// Decoded segments; may hold invalid UTF-8.
    pub segments: Vec<Vec<u8>>,
    /// The row of the route table that the path has.
    pub row: &'static Row,
    route: Option<Route>,
    /// Whether `+` in a path is a space.
    pub plus_is_space: bool,
    pub query: Query,
    /// The query as sent.
    pub raw_query: Option<String>,
    /// The path of the client, if rewrite rules changed it.
    pub requested_path: Option<String>,
    /// The rewrite, which bounds the request's rights.
    pub rewritten: Option<RewrittenRequest>,
    /// How many times it was rewritten.
    pub rewrites: u64,
    /// It leads elsewhere since it was routed, and has no answer yet.
    pub is_rerouted: bool,
    pub headers: HeaderMap,
    pub user: Arc<UserCtx>,
    /// How the user was found: CouchDB's name of the handler, `default` (Basic) or `cookie` mostly.
    pub authenticated: Option<&'static str>,
    /// The session's cookie is old enough to be renewed, for this login.
    pub renew: Option<Login>,
    pub peer: Option<std::net::IpAddr>,
    pub https: bool,
    /// The place of its connection.
    pub(crate) place: Option<Ticket>,
    /// Length of the target, path and query, in bytes.
    pub target_len: usize,
    /// How long the client may send nothing of a body that is read.
    pub silence_max: Duration,
    /// Its place in a trace.
    pub traced: Option<Traced>,
    /// How long reading the body took, in microseconds, for `X-CouchDB-Body-Time`.
    pub body_us: u64,
    /// Time of authentication, in microseconds.
    pub auth_us: u64,
    /// Bytes of the body that were read, inflated.
    pub body_bytes: u64,
    /// The path names a database that its user may use.
    pub is_of_database: bool,
    /// Documents that were read by their ids.
    pub document_reads: u64,
    /// Its use of an index.
    pub detail: Option<Arc<Detail>>,
    /// Documents that a bulk brought.
    pub bulk_docs: Option<u64>,
    /// The settings at its start.
    pub settings: Arc<Settings>,
    body: Source,
    bodies: Arc<Bodies>,
    /// Where its answer has memory of.
    pub answers: Answers,
    /// Its place among the responses that its connection makes.
    pub begun: Option<Begun>,
    /// Memory that its answer has until it ends.
    held: Vec<Arc<Held>>,
    /// Whether its body stays in memory until the end of its response.
    is_kept: bool,
    /// Its body's room, until the request is answered.
    room: Option<Room>,
    /// The room of the text before its attachments.
    text_room: Option<Room>,
    /// There was no memory for its body.
    is_untaken: bool,
}

impl Request {
    pub fn new(
        method: String,
        parts: hyper::http::request::Parts,
        body: Incoming,
        peer: Option<std::net::IpAddr>,
        settings: Arc<Settings>,
        (bodies, answers): (Arc<Bodies>, Answers),
    ) -> Request {
        let path = parts.uri.path();
        let plus_is_space = settings.chttpd.decode_plus_to_space;
        let segments = segments_with(path, plus_is_space);
        let RouteMatch { row, route } = routes::find(&method, &segments);
        Request {
            method,
            segments,
            row,
            route: Some(route),
            plus_is_space,
            query: Query::parse(parts.uri.query()),
            raw_query: parts.uri.query().map(str::to_owned),
            requested_path: None,
            rewritten: None,
            rewrites: 0,
            is_rerouted: false,
            path: path.to_owned(),
            authority: host::of_target(&parts).map(str::to_owned),
            headers: parts.headers,
            user: Arc::new(UserCtx::anonymous()),
            authenticated: None,
            renew: None,
            peer,
            https: false,
            place: None,
            target_len: path.len() + parts.uri.query().map_or(0, |q| q.len() + 1),
            silence_max: Duration::MAX,
            traced: None,
            body_us: 0,
            auth_us: 0,
            body_bytes: 0,
            is_of_database: false,
            document_reads: 0,
            detail: None,
            bulk_docs: None,
            settings,
            body: Source::Client(Stream::new(body)),
            bodies,
            answers,
            begun: None,
            held: vec![],
            is_kept: false,
            room: None,
            text_room: None,
            is_untaken: false,
        }
    }

    /// The sequence after which a feed of changes begins.
    pub fn since(&self, is_event_source: bool) -> Option<&str> {
        let event_id = is_event_source.then(|| self.named_header("last-event-id"));
        let parameter = || self.query.last(&["since", "last-event-id"]);
        event_id.flatten().or_else(parameter)
    }

    /// The requester that the request's work counts to.
    pub fn requester(&self) -> Requester {
        shares::requester(&self.user, self.peer)
    }

    /// The user of the request, as the author of a write.
    pub fn caller(&self) -> Caller {
        Caller {
            requester: self.requester(),
            ..node::caller(&self.user)
        }
    }

    /// Makes the request anonymous again.
    pub fn forget_user(&mut self) {
        self.user = Arc::new(UserCtx::anonymous());
        self.authenticated = None;
        self.renew = None;
    }

    /// Finds the route again, after the path or the method has changed.
    pub fn find_route(&mut self) {
        let RouteMatch { row, route } = routes::find(&self.method, &self.segments);
        (self.row, self.route) = (row, Some(route));
    }

    /// Returns the route of the path.
    pub fn take_route(&mut self) -> Route {
        if self.route.is_none() {
            self.find_route();
        }
        self.route
            .take()
            .unwrap_or(Route::Server(ServerRoute::Missing))
    }

    /// A segment of the path, when it is UTF-8.
    pub fn segment(&self, i: usize) -> Option<&str> {
        self.segments
            .get(i)
            .and_then(|s| std::str::from_utf8(s).ok())
    }

    pub fn header(&self, name: &HeaderName) -> Option<&str> {
        self.headers.get(name).and_then(|v| v.to_str().ok())
    }

    pub fn named_header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|v| v.to_str().ok())
    }

    pub fn accept(&self) -> &str {
        self.header(&ACCEPT).unwrap_or("")
    }

    /// Whether `If-None-Match` names this ETag. CouchDB requires quotes, accepts `W/`, and does not
    /// know `*`.
    pub fn none_match(&self, etag: &str) -> bool {
        self.header(&IF_NONE_MATCH).is_some_and(|list| {
            list.split(',').any(|e| {
                let e = e.trim();
                let e = e.strip_prefix("W/").unwrap_or(e);
                e.strip_prefix('"').and_then(|e| e.strip_suffix('"')) == Some(etag)
            })
        })
    }

    pub fn require_json(&self) -> Result<(), ApiError> {
        let kind = self.header(&CONTENT_TYPE).unwrap_or("");
        let kind = kind.split(';').next().unwrap_or("").trim();
        if kind.eq_ignore_ascii_case("application/json") {
            Ok(())
        } else {
            Err(ApiError::bad_content_type(
                "Content-Type must be application/json",
            ))
        }
    }

    /// The whole body, inflated.
    ///
    /// # Errors
    /// 413 that names the limit of the route's class or the memory of one user, 400 when the body ends early or is not gzip, 408 when it comes too slowly, 503
    /// when there is no memory for it, or when the client of an HTTP/2 connection takes no responses.
    pub async fn bytes(&mut self) -> Result<Bytes, ApiError> {
        self.bytes_of(self.row.body, Parsed::Values).await
    }

    /// As [`Request::bytes`], of a body whose JSON values take no memory of their own: documents,
    /// and what functions are called with.
    pub async fn text(&mut self) -> Result<Bytes, ApiError> {
        self.bytes_of(self.row.body, Parsed::Documents).await
    }

    /// As [`Request::bytes`], within the bounds of another class than the route's.
    pub async fn bytes_of(&mut self, class: BodyClass, parsed: Parsed) -> Result<Bytes, ApiError> {
        let bounds = Bounds::of(class, &self.settings);
        if let Source::Memory(body) = &self.body {
            if body.len() as u64 > bounds.bytes_max {
                return Err(bounds.too_large());
            }
            return Ok(body.clone());
        }
        let gzip = self.content_encoding()?;
        let declared = self
            .header(&CONTENT_LENGTH)
            .and_then(|l| l.parse::<u64>().ok());
        if declared.is_some_and(|l| l > bounds.bytes_max) {
            return Err(bounds.too_large());
        }
        let (started, pace, sharer) = (Instant::now(), self.pace(), self.sharer());
        let Source::Client(body) = &mut self.body else {
            return Ok(Bytes::new());
        };
        // A client that sends the body late would have its other requests wait, or be forgotten.
        let has_begun = self.begun.take().is_some();
        let mut room = self.bodies.body(sharer, class);
        let read = async {
            if let Some(length) = declared {
                room.announce(length).await?;
            }
            let read = match gzip {
                false => body.read(&bounds, pace, &mut room).await?,
                true => body.inflate(&bounds, pace, &mut room).await?,
            };
            room.work_on(&read, parsed).await?;
            Ok(read)
        };
        let read: Result<Bytes, ApiError> = read.await;
        self.is_untaken = read.as_ref().is_err_and(|e| e.status == 503);
        self.room = Some(room);
        self.body_us = started.elapsed().as_micros() as u64;
        self.body_bytes += read.as_ref().map_or(0, |read| read.len() as u64);
        // The rest of a refused body is for `drain`.
        if read.is_ok() {
            self.body = Source::Taken;
            if has_begun {
                self.begun = self.answers.begin().await?;
            }
        }
        read
    }

    /// Keeps a body that was read for the handler, which reads it again.
    pub fn put_back(&mut self, body: Bytes) {
        self.body = Source::Memory(body);
    }

    /// Whose share of the memory for bodies it takes.
    fn sharer(&self) -> Sharer {
        Sharer::of(&self.user, self.peer)
    }

    fn pace(&self) -> Pace {
        Pace {
            silence_max: self.silence_max,
            bytes_per_second_min: self.settings.limits.min_body_rate,
        }
    }

    /// The next bytes of the body as they come; `None` at its end.
    ///
    /// # Errors
    /// 400 when the body ends early, 408 when it comes too slowly, 503 when there is no memory for it.
    pub async fn next_bytes(&mut self) -> Result<Option<Bytes>, ApiError> {
        if self.room.is_none() && matches!(self.body, Source::Client(_)) {
            let length = self.header(&CONTENT_LENGTH).and_then(|l| l.parse().ok());
            let room = self.bodies.stream(self.sharer(), length).await;
            self.is_untaken = room.is_err();
            self.room = Some(room?);
        }
        let pace = self.pace();
        match &mut self.body {
            Source::Taken => Ok(None),
            Source::Memory(_) => {
                let Source::Memory(bytes) = std::mem::replace(&mut self.body, Source::Taken) else {
                    return Ok(None);
                };
                Ok((!bytes.is_empty()).then_some(bytes))
            }
            Source::Client(body) => {
                let next = body.next(pace).await?;
                self.body_bytes += next.as_ref().map_or(0, |bytes| bytes.len() as u64);
                Ok(next)
            }
        }
    }

    /// Takes room for a document's text that is read by [`Request::next_bytes`], `length` so far
    /// and the bytes of this event; at the end of its part it is about to be processed.
    ///
    /// # Errors
    /// 413 when there can never be room for it, 503 when too little was freed in time.
    pub async fn make_room_for_text(&mut self, length: u64, event: &Event) -> Result<(), ApiError> {
        let new = || {
            self.bodies
                .body(Sharer::of(&self.user, self.peer), BodyClass::Document)
        };
        let room = self.text_room.get_or_insert_with(new);
        let done = match event {
            Event::Data(bytes) => room.cover(length + bytes.len() as u64).await,
            Event::PartEnd => room.work_on_text(length).await,
            Event::Part(_) | Event::End => Ok(()),
        };
        self.is_untaken = done.as_ref().is_err_and(|e| e.status == 503);
        done
    }

    /// Whether the client takes answers of this content type, by CouchDB's rules.
    pub fn accepts(&self, content_type: &str) -> bool {
        let header = self.header(&ACCEPT).unwrap_or("*/*");
        let whole_kind = content_type
            .split_once('/')
            .map_or(String::new(), |(kind, _)| format!("{kind}/*"));
        let weighed: Vec<(&str, bool)> = header.split(',').map(weighed).collect();
        let of = |wanted: &str, taken: bool| {
            weighed
                .iter()
                .any(|(name, q)| *q == taken && name.eq_ignore_ascii_case(wanted))
        };
        let taken = of("*/*", true) || of(content_type, true) || of(&whole_kind, true);
        taken && !of(content_type, false) && !of(&whole_kind, false)
    }

    fn content_encoding(&self) -> Result<bool, ApiError> {
        match self.header(&CONTENT_ENCODING) {
            None | Some("identity" | "") => Ok(false),
            Some("gzip") => Ok(true),
            Some(other) => Err(ApiError::bad_content_type(format!(
                "{other} is not a supported content encoding."
            ))),
        }
    }

    /// The body as JSON of any kind.
    pub async fn json(&mut self) -> Result<Value, ApiError> {
        let bytes = self.required_bytes().await?;
        self.parsed(&bytes).await
    }

    /// A body of the route that was read already, as JSON.
    pub async fn parsed(&mut self, bytes: &Bytes) -> Result<Value, ApiError> {
        let bounds = Bounds::of(self.row.body, &self.settings);
        if bytes.len() <= SHORT_BODY_BYTES_MAX {
            return bounds.json(bytes);
        }
        let (bytes, length) = (bytes.clone(), bytes.len());
        let gives_way = long_text::gives_way(length);
        self.process(length, gives_way, move || bounds.json(&bytes))
            .await?
    }

    /// Does work that takes as long as a text of `bytes` bytes is: for a long one, or one that
    /// `gives_way`, another thread does it. The room of the body is taken until then, also when the
    /// client goes, which does not end the work.
    ///
    /// # Errors
    /// 500 when `work` panics.
    pub async fn process<T: Send + 'static>(
        &mut self,
        bytes: usize,
        gives_way: bool,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        let rooms = (self.room.take(), self.text_room.take());
        let work = move || (work(), rooms);
        let (done, rooms) = long_text::process(&self.answers, bytes, gives_way, work).await?;
        (self.room, self.text_room) = rooms;
        Ok(done)
    }

    /// Frees the values of a body: of a long one on a thread that gives way.
    pub fn free<T: Send + 'static>(&self, values: T) {
        if self.body_bytes > SHORT_BODY_BYTES_MAX as u64 {
            // The result is not awaited: then the work is dropped in its turn, and the values with it.
            drop(self.answers.start_apart(move || drop(values)));
        }
    }

    /// The body as a JSON object.
    pub async fn json_object(&mut self) -> Result<serde_json::Map<String, Value>, ApiError> {
        match self.json().await? {
            Value::Object(o) => Ok(o),
            other => {
                self.free(other);
                Err(ApiError::bad_request("Request body must be a JSON object"))
            }
        }
    }

    /// As [`Request::text`], of a request that must have a body.
    pub async fn required_text(&mut self) -> Result<Bytes, ApiError> {
        self.require_body()?;
        self.text().await
    }

    /// As [`Request::bytes`], of a request that must have a body.
    pub async fn required_bytes(&mut self) -> Result<Bytes, ApiError> {
        self.require_body()?;
        self.bytes().await
    }

    /// Refuses a request that announces no body, not even an empty one.
    pub fn require_body(&self) -> Result<(), ApiError> {
        let announced = self.headers.contains_key(CONTENT_LENGTH)
            || self.headers.contains_key(TRANSFER_ENCODING);
        if !announced && matches!(&self.body, Source::Client(body) if body.is_empty()) {
            return Err(ApiError::bad_request("Missing request body"));
        }
        Ok(())
    }

    /// Releases the room of the body, which was parsed, while the request waits for something else.
    pub fn give_room_back(&mut self) {
        self.room = None;
    }

    /// Takes the room of the body, for a thread that reads the body: a client that goes does not end
    /// that.
    pub fn take_room(&mut self) -> Option<Room> {
        self.room.take()
    }

    /// Takes memory for parameters that the response needs until it ends: a selector, ids or keys
    /// of this size.
    ///
    /// # Errors
    /// 413 when that is too much, 503 when too little was freed in time.
    pub async fn keep(&mut self, bytes: usize) -> Result<(), ApiError> {
        let bytes = bytes as u64;
        if bytes > FREE_BYTES {
            let held = self.answers.take(bytes).await?;
            self.held.push(Arc::new(held));
        }
        Ok(())
    }

    /// Takes memory for definitions of indexes that the response is made of, until it ends: those of
    /// another version of the design documents are in no other memory. Responses that are made of the
    /// same ones have it together.
    ///
    /// # Errors
    /// 503 when too little was freed in time.
    pub async fn keep_indexes(&mut self, indexes: &FindIndexes) -> Result<(), ApiError> {
        let of_others = indexes.memory_holder();
        let of_others = of_others.and_then(|holder| holder.downcast::<Held>().ok());
        if let Some(held) = of_others {
            self.held.push(held);
            return Ok(());
        }
        // They must be shown, also where they take more than there is.
        let bytes = indexes.memory_bytes().min(self.answers.budget_bytes() / 4);
        if let Some(held) = self.answers.settle_long(bytes).await? {
            let held = Arc::new(held);
            indexes.set_memory_holder(held.clone());
            self.held.push(held);
        }
        Ok(())
    }

    /// Takes memory for an edit that is not the request's body, from a stored document or a function,
    /// until it is written; `others` are further bytes that are held until then.
    ///
    /// # Errors
    /// 503 when it must be dropped, since too many others wait to be written.
    pub async fn hold_edit(&self, edit: &EditDoc, others: usize) -> Result<Option<Held>, ApiError> {
        self.answers.settle_long(edit_memory(edit) + others).await
    }

    /// Keeps the memory of the body until the response ends.
    pub fn keep_body(&mut self) {
        self.is_kept = true;
    }

    /// The response's memory until it ends.
    pub fn take_held(&mut self) -> Keeps {
        let held = std::mem::take(&mut self.held);
        Keeps::new(held, self.room.take().filter(|_| self.is_kept))
    }

    /// Whether the body was read, and is this one.
    pub fn has_body(&self, body: &[u8]) -> bool {
        matches!(&self.body, Source::Memory(own) if own == body)
    }

    /// Sets a body to be read instead of the client's, which must have been read.
    pub fn set_body(&mut self, body: Bytes) {
        self.headers.remove(CONTENT_ENCODING);
        self.headers.remove(TRANSFER_ENCODING);
        self.headers.insert(CONTENT_LENGTH, body.len().into());
        self.body = Source::Memory(body);
    }

    /// Sets a body that a function made: it takes room as one that a client sends, instead of the room of the
    /// client's.
    ///
    /// # Errors
    /// 413 when there can never be memory for it, 503 when there was too little in time.
    pub async fn set_made_body(&mut self, body: Bytes) -> Result<(), ApiError> {
        let (made, length) = (body.clone(), body.len() as u64);
        self.set_body(body);
        self.room = None;
        // It is in memory while it waits for room.
        let _held = self.answers.settle_long(made.len()).await?;
        let mut room = self.bodies.body(self.sharer(), self.row.body);
        room.announce(length).await?;
        room.work_on(&made, Parsed::Values).await?;
        self.room = Some(room);
        Ok(())
    }

    /// Replaces the client's path and query.
    pub fn lead_to(&mut self, uri: &str) {
        let (path, query) = match uri.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (uri, None),
        };
        self.requested_path.get_or_insert_with(|| self.path.clone());
        self.segments = segments_with(path, self.plus_is_space);
        self.query = Query::parse(query);
        self.raw_query = query.map(str::to_owned);
        self.path = path.to_owned();
        self.find_route();
        self.rewrites += 1;
        self.is_rerouted = true;
    }

    /// Reads the rest of the body, up to a bound, so that an early response does not cost the
    /// connection. Returns whether that was all of it.
    pub async fn drain(&mut self) -> bool {
        let Source::Client(body) = std::mem::replace(&mut self.body, Source::Taken) else {
            return true;
        };
        // This client sends a body only after 100 Continue, which an early response does not send.
        let waits = self.header(&EXPECT);
        if !self.is_untaken && waits.is_some_and(|e| e.eq_ignore_ascii_case("100-continue")) {
            return true;
        }
        let (bytes_max, time_max) = match self.is_untaken {
            true => (UNTAKEN_BYTES_MAX, UNTAKEN_TIME_MAX),
            false => (DRAIN_BYTES_MAX, DRAIN_TIME_MAX),
        };
        let done = body.drain(bytes_max);
        tokio::time::timeout(time_max, done).await.unwrap_or(false)
    }

    /// Host and port that the client asked, as it or a proxy before us names them.
    pub fn host(&self) -> &str {
        self.settings
            .proxy_headers
            .host(&self.headers)
            .or_else(|| self.named_host())
            .unwrap_or("127.0.0.1")
    }

    /// Host and port that the request is for. HTTP/2 names the host in the target, and HTTP/1.1 may: that counts first.
    fn named_host(&self) -> Option<&str> {
        self.authority.as_deref().or_else(|| self.header(&HOST))
    }

    /// Whether the request is for a host that the server answers for.
    pub fn is_for_us(&self) -> bool {
        self.named_host()
            .is_none_or(|host| self.settings.proxy_headers.allows(host))
    }

    /// Whether the client speaks HTTPS, with us or with a proxy before us.
    pub fn is_https(&self) -> bool {
        self.https || self.settings.proxy_headers.is_https(&self.headers)
    }

    /// Scheme and host that the client used.
    pub fn base_url(&self) -> String {
        let scheme = match self.is_https() {
            true => "https",
            false => "http",
        };
        format!("{scheme}://{}", self.host())
    }

    /// The path below which the client has this server: empty, unless a proxy sets another.
    pub fn prefix(&self) -> &str {
        self.settings.proxy_headers.prefix(&self.headers)
    }

    /// The client's URL of this server, without a slash at its end.
    pub fn root_url(&self) -> String {
        self.base_url() + self.prefix()
    }

    /// The URL of a database or of something in it; the segments are encoded.
    pub fn url_of(&self, segments: &[&str]) -> String {
        let mut url = self.root_url();
        for s in segments {
            url.push('/');
            encode_into(s, &mut url);
        }
        url
    }
}

/// Memory of an edit while it is written, in bytes: its text, the text in stored form and in the batch,
/// its term, and its attachments.
fn edit_memory(edit: &EditDoc) -> usize {
    let files = edit.files.iter();
    let files =
        files.map(|file| size_of::<Attachment>() + file.name.len() + file.content_type.len());
    3 * edit.body.len() + edit.body_term.len() + files.sum::<usize>()
}

/// An element of `Accept` or `Accept-Encoding`, and whether it is taken at all (`q` above 0).
pub fn weighed(element: &str) -> (&str, bool) {
    let (name, parameters) = element.split_once(';').unwrap_or((element, ""));
    let q = parameters
        .split(';')
        .filter_map(|p| p.split_once('='))
        .find(|(name, _)| name.trim().eq_ignore_ascii_case("q"))
        .and_then(|(_, q)| q.trim().parse::<f32>().ok());
    (name.trim(), q.is_none_or(|q| q > 0.0))
}
