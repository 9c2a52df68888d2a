//! A request as the routes see it.

pub mod body;
pub mod framing;
pub mod host;
pub mod keeps;
pub mod long_text;
pub mod parameters;
pub mod proxy_headers;
mod reading;
pub mod revisions;
pub mod room;

use std::sync::Arc;
use std::time::Duration;

use auth::{Login, UserCtx};
use database::{Caller, FindIndexes};
use document::{Attachment, EditDoc};
use fair_queue::Requester;
use hyper::HeaderMap;
use hyper::body::Incoming;
use hyper::header::{ACCEPT, CONTENT_TYPE, HOST, HeaderName, IF_NONE_MATCH};
use routes::{Class, Route, RouteMatch, Row, ServerRoute};

use crate::accounting::slow::Detail;
use crate::accounting::traced::Traced;
use crate::connection::places::Ticket;
use crate::errors::ApiError;
use crate::reply::ahead::Begun;
use crate::reply::answers::{Answers, FREE_BYTES, Held};
use crate::request::body::{Source, Stream};
use crate::request::keeps::Keeps;
use crate::request::room::{Bodies, Room};
use crate::settings::Settings;
use crate::shares;
use node::RewrittenRequest;
use node::{Query, encode_into, segments_with};

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

    /// Returns the class of the request.
    pub fn class(&self) -> Class {
        let feed = self.row.has_feeds.then(|| self.query.last(&["feed"]));
        self.row.class(&self.method, feed.flatten())
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
