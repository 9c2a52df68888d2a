//! Connections: accepting, one request after another, finishing answers, stopping.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use hyper::body::{Body as _, Incoming};
use hyper::ext::ReasonPhrase;
use hyper::header::{
    CACHE_CONTROL, CONNECTION, CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue, LOCATION,
    SERVER, SET_COOKIE, WWW_AUTHENTICATE,
};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use metrics::{End, Socket};
use socket2::{SockRef, TcpKeepalive};
use telemetry::{State, Tick, within};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};

use crate::accounting::completion::{Completion, Numbers, RequestFacts};
use crate::accounting::slow;
use crate::accounting::traced::Traced;
use crate::app::App;
use crate::browsers::cross_site;
use crate::browsers::dev::DevRequest;
use crate::clustered;
use crate::connection::head_timeout::{HEAD_BYTES_MAX, HeadTimeout, LONG_HEAD_BYTES, LongHeads};
use crate::connection::lenient::Lenient;
use crate::connection::linger::Lingering;
use crate::connection::metrics_port::serve_metrics;
use crate::connection::places::{Held, Place, Ticket};
use crate::connection::repoll::Repoll;
use crate::connection::room::Class;
use crate::connection::spelling::{Bodiless, Spelling};
use crate::connection::tls::Tls;
use crate::errors::ApiError;
use crate::forwarded_clients::client_address;
use crate::load::{has_short_body, note_short_request};
use crate::reply::ahead::Ahead;
use crate::reply::jsonp;
use crate::reply::{Body, Reply, Timing};
use crate::request::Request;
use crate::request::{framing, host};
use crate::router;
use crate::server_routes::session;
use crate::settings::Settings;
use crate::shares::address_share;
use node::{is_utf8_decoded, is_well_encoded};

/// How long requests under way may take when the server stops.
const STOP_TIME_MAX: Duration = Duration::from_secs(10);
/// When a connection could not be accepted, the next one is after this time.
pub(super) const AFTER_FAILED_ACCEPT: Duration = Duration::from_millis(50);
/// Clients of HTTP/2 that answer no ping are gone.
const PING_EVERY: Duration = Duration::from_secs(60);
/// TCP probes a connection that was silent for 120 s,
const KEEPALIVE_AFTER: Duration = Duration::from_secs(120);
/// and again every 30 s, until it is given up: a client without power or network does not close its
/// connection.
const KEEPALIVE_EVERY: Duration = Duration::from_secs(30);

const SERVER_NAME: &str = concat!("CouchDB/3.5.2 (Settee/", env!("CARGO_PKG_VERSION"), ")");
/// Makes browsers prompt for a name and a password.
const CHALLENGE: &str = "Basic realm=\"server\"";
const REQUEST_ID: HeaderName = HeaderName::from_static("x-couch-request-id");
const BODY_TIME: HeaderName = HeaderName::from_static("x-couchdb-body-time");
const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");
const TRACE_RESPONSE: HeaderName = HeaderName::from_static("traceresponse");

/// Where connections come in.
pub struct Listeners {
    /// Connections without TLS.
    pub http: TcpListener,
    /// Connections with TLS, and its configuration.
    pub https: Option<(TcpListener, Arc<Tls>)>,
    /// The port on which Prometheus reads metrics without a login.
    pub metrics: Option<TcpListener>,
    /// Connections of `http` and `https` that are open at a time: others make room, or wait.
    pub connections_max: Option<usize>,
}

impl From<TcpListener> for Listeners {
    fn from(http: TcpListener) -> Self {
        Listeners {
            http,
            https: None,
            metrics: None,
            connections_max: None,
        }
    }
}

impl Listeners {
    fn addresses(&self) -> Vec<SocketAddr> {
        let https = self.https.as_ref().map(|(https, _)| https);
        [Some(&self.http), https]
            .into_iter()
            .flatten()
            .filter_map(|listener| listener.local_addr().ok())
            .collect()
    }

    /// The sockets once more, to ask the kernel about them.
    fn sockets(&self) -> Vec<Socket> {
        let https = self.https.as_ref().map(|(https, _)| (https, true));
        let socket = |(listener, is_secured): (&TcpListener, bool)| {
            Some(Socket {
                address: listener.local_addr().ok()?,
                is_secured,
                descriptor: listener.as_fd().try_clone_to_owned().ok()?,
            })
        };
        let all = [Some((&self.http, false)), https].into_iter().flatten();
        all.filter_map(socket).collect()
    }

    /// The next connection, and its TLS configuration.
    async fn accept(&self) -> std::io::Result<(TcpStream, SocketAddr, Option<&Arc<Tls>>)> {
        let Some((https, tls)) = &self.https else {
            return self.http.accept().await.map(|(s, peer)| (s, peer, None));
        };
        tokio::select! {
            a = self.http.accept() => a.map(|(s, peer)| (s, peer, None)),
            a = https.accept() => a.map(|(s, peer)| (s, peer, Some(tls))),
        }
    }
}

/// Serves until `stop` resolves, then finishes running requests.
pub async fn serve(listeners: impl Into<Listeners>, app: Arc<App>, stop: impl Future<Output = ()>) {
    let mut listeners = listeners.into();
    let metrics = listeners.metrics.take();
    let metrics = metrics.map(|port| tokio::spawn(serve_metrics(port, app.clone())));
    let graceful = GracefulShutdown::new();
    let keeper = {
        let auth = app.node.auth.clone();
        tokio::spawn(async move { auth.keep_users().await })
    };
    app.node.set_listening(listeners.addresses());
    app.stats.listen_at(listeners.sockets());
    app.node.replicator.start();
    tokio::pin!(stop);
    if let Some(max) = listeners.connections_max {
        app.places.set_max(max);
    }
    loop {
        let accepting = async {
            let accepted = within!(State::Accept, listeners.accept()).0?;
            // Others wait in the kernel's queue meanwhile.
            let place = app.places.take(accepted.1.ip()).await;
            Ok::<_, std::io::Error>((accepted, place))
        };
        let accepted = tokio::select! {
            a = accepting => a,
            () = &mut stop => break,
        };
        match accepted {
            Ok(((stream, peer, tls), place)) => {
                let watcher = graceful.watcher();
                accept(stream, peer, tls.cloned(), &app, (watcher, place));
            }
            Err(e) => {
                // Out of file descriptors, mostly: wait for some to come back.
                tracing::warn!(error = %e, "accepting a connection failed");
                app.places.make_room();
                tokio::time::sleep(AFTER_FAILED_ACCEPT).await;
            }
        }
    }
    app.stats.listen_at(vec![]);
    drop(listeners);
    keeper.abort();
    if let Some(metrics) = metrics {
        metrics.abort();
    }
    // Before the feeds: jobs of this server may read them, and should see their own end.
    app.node.replicator.stop().await;
    app.stop_feeds();
    if tokio::time::timeout(STOP_TIME_MAX, graceful.shutdown())
        .await
        .is_err()
    {
        tracing::warn!("some requests did not finish in time");
    }
}

/// Serves a connection in a separate task.
fn accept(
    stream: TcpStream,
    peer: SocketAddr,
    tls: Option<Arc<Tls>>,
    app: &Arc<App>,
    (watcher, place): (Watcher, Place),
) {
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE_AFTER)
        .with_interval(KEEPALIVE_EVERY);
    let set = stream
        .set_nodelay(true)
        .and_then(|()| SockRef::from(&stream).set_tcp_keepalive(&keepalive));
    if let Err(e) = set {
        tracing::debug!(error = %e, "a connection without TCP_NODELAY or keepalive");
    }
    let (app, ticket) = (app.clone(), place.ticket());
    tokio::spawn(place.serve(async move {
        let _open = app.stats.connect();
        let client = Client {
            peer,
            spoken: Spoken::Unknown,
            place: ticket,
            ahead: Ahead::default(),
        };
        match tls {
            None => connection(stream, client, &app, watcher).await,
            Some(tls) => {
                if let Some(stream) = within!(State::Accept, tls.accept(stream)).0 {
                    let spoken = match stream.get_ref().1.alpn_protocol() {
                        Some(b"h2") => Spoken::Http2,
                        _ => Spoken::Http1,
                    };
                    connection(stream, Client { spoken, ..client }, &app, watcher).await;
                }
            }
        }
    }));
}

/// The protocol of a connection. With TLS it was negotiated; otherwise the first bytes show it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Spoken {
    Unknown,
    Http1,
    Http2,
}

/// The other end of a connection.
#[derive(Clone)]
struct Client {
    peer: SocketAddr,
    spoken: Spoken,
    place: Ticket,
    /// The bytes of its responses, over HTTP/2.
    ahead: Ahead,
}

async fn connection<S>(stream: S, client: Client, app: &Arc<App>, watcher: Watcher)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let spoken = client.spoken;
    let long_heads = LongHeads {
        places: app.bodies.long_heads(),
        share: address_share(client.peer.ip()),
    };
    let bodiless = Arc::new(Bodiless::default());
    let service = {
        let (app, bodiless) = (app.clone(), bodiless.clone());
        service_fn(move |req: hyper::Request<Incoming>| {
            let (app, bodiless, client) = (app.clone(), bodiless.clone(), client.clone());
            let is_http1 = req.version() < hyper::Version::HTTP_2;
            let is_to_head = req.method() == hyper::Method::HEAD;
            async move {
                let busy = client.place.seat.begin();
                let (answer, _) = within!(State::Answer, answer(&app, req, client));
                if is_http1 {
                    bodiless.note(is_to_head);
                }
                Ok::<_, Infallible>(answer.map(|body| Held { body, _busy: busy }))
            }
        })
    };
    let mut builder = Builder::new(TokioExecutor::new());
    builder = match spoken {
        Spoken::Unknown => builder,
        Spoken::Http1 => builder.http1_only(),
        Spoken::Http2 => builder.http2_only(),
    };
    builder
        .http2()
        .timer(TokioTimer::new())
        // A body that waits for memory, unread, leaves the connection's window to others.
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(16 * STREAM_WINDOW_BYTES)
        .max_send_buf_size(HEAD_BYTES_MAX)
        .keep_alive_interval(PING_EVERY);
    builder
        .http1()
        .timer(TokioTimer::new())
        .max_buf_size(HEAD_BYTES_MAX)
        // Not `pipeline_flush`: it buffers a streamed answer whole, whatever the client takes.
        .header_read_timeout(app.silence_max());
    let stream = Lenient::new(Lingering::new(stream));
    let stream = HeadTimeout::new(
        stream,
        (app.settings().chttpd.header_timeout, app.silence_max()),
        long_heads,
    );
    let connection = builder
        .serve_connection(TokioIo::new(Spelling::new(stream, bodiless)), service)
        .into_owned();
    if let Err(e) = Repoll::new(watcher.watch(connection)).await {
        tracing::debug!(error = %e, "connection ended");
    }
}

/// Bytes of one body that a client may send before they are read, in HTTP/2.
const STREAM_WINDOW_BYTES: u32 = 256 << 10;
/// Longest request id that is taken from a client, in bytes.
const REQUEST_ID_BYTES_MAX: usize = 36;

/// The id that the client gives its request, if it is one for logs.
fn clients_request_id(headers: &HeaderMap) -> Option<HeaderValue> {
    let id = headers.get(REQUEST_ID)?;
    let plain = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
    let short = (1..=REQUEST_ID_BYTES_MAX).contains(&id.len());
    (short && id.as_bytes().iter().all(plain)).then(|| id.clone())
}

/// Ten hexadecimal digits that differ from request to request.
fn request_id(n: u64) -> HeaderValue {
    // A multiplication by an odd constant permutes the 40-bit numbers: distinct, and not counting up.
    let id = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) & 0xff_ffff_ffff;
    let mut digits = [0; 10];
    for (i, d) in digits.iter_mut().enumerate() {
        *d = b"0123456789abcdef"[(id >> (36 - 4 * i) & 15) as usize];
    }
    HeaderValue::from_bytes(&digits).unwrap_or(HeaderValue::from_static("0"))
}

/// A request that is being answered. If its client goes away, the rest is dropped, and this reports
/// it.
struct UnderWay<'a> {
    app: &'a App,
    req: Request,
    id: HeaderValue,
    received: Tick,
    /// A HEAD request over HTTP/2, where hyper would send the body of its response.
    is_http2_head: bool,
    is_answered: bool,
}

impl UnderWay<'_> {
    /// The log record of it when its answer has ended.
    fn facts(&self, status: u16, timing: Timing, head_us: u64) -> RequestFacts<'_> {
        let req = &self.req;
        RequestFacts {
            id: &self.id,
            peer: req.peer,
            user: req.user.name.as_deref(),
            method: &req.method,
            path: req.requested_path.as_deref().unwrap_or(&req.path),
            segments: &req.segments,
            numbers: Numbers {
                route: req.row.class(&req.method, req.query.last(&["feed"])),
                is_of_database: req.is_of_database,
                status,
                timing,
                head_us,
                bytes_received: req.body_bytes,
                document_reads: req.document_reads,
                bulk_docs: req.bulk_docs,
                slow_us: slow::bound_us(req.settings.log.slow_time),
                traced: req.traced,
            },
            detail: req.detail.as_ref(),
        }
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        if !self.is_answered {
            let us = self.received.elapsed_us();
            let (status, end) = match std::thread::panicking() {
                true => (500, End::Cut),
                false => (0, End::Aborted),
            };
            let facts = self.facts(status, Timing::default(), us);
            facts.report(&self.app.stats, end, 0, us);
        }
    }
}

/// The error of a request with an invalid `Host`, or one that a server without logins refuses.
fn host_error(
    parts: &hyper::http::request::Parts,
    settings: &Settings,
    client: &Client,
) -> Option<ApiError> {
    let ambiguous = framing::check(parts).and_then(|()| host::check(parts));
    ambiguous.err().or_else(|| {
        let is_secured = client.spoken != Spoken::Unknown;
        let request = DevRequest::of(parts, client.peer.ip(), is_secured);
        settings.dev.as_ref()?.check(request).err()
    })
}

async fn answer(app: &App, req: hyper::Request<Incoming>, client: Client) -> hyper::Response<Body> {
    let received = telemetry::entered_at();
    let n = app.stats.begin();
    let (mut parts, body) = req.into_parts();
    let version = parts.version;
    let is_long_head = head_bytes(&parts) > LONG_HEAD_BYTES;
    let is_short = has_short_body(&parts.headers, !body.is_end_stream());
    let id = clients_request_id(&parts.headers).unwrap_or_else(|| request_id(n));
    let (method, method_error) = effective_method(&parts);
    let settings = app.settings();
    let is_secured = client.spoken != Spoken::Unknown;
    let host_error = host_error(&parts, &settings, &client);
    let peer = Some(address_of(app, &client, &settings, &mut parts.headers));
    let traced = Traced::of(&parts.headers, &settings.tracing);
    let is_http2 = version == hyper::Version::HTTP_2;
    let is_http2_head = is_http2 && parts.method == hyper::Method::HEAD;
    let ahead = is_http2.then(|| client.ahead.of_request());
    let memory = (app.bodies.clone(), app.answers.clone().by(ahead.clone()));
    let mut req = Request::new(method, parts, body, peer, settings, memory);
    req.traced = traced;
    req.https = is_secured;
    req.place = Some(client.place);
    req.silence_max = app.silence_max();
    let mut under_way = UnderWay {
        app,
        req,
        id,
        received,
        is_http2_head,
        is_answered: false,
    };
    let req = &mut under_way.req;
    let result = match host_error.or(method_error) {
        Some(e) => Err(e),
        None => route(app, req).await,
    };
    let id = under_way.id.to_str().unwrap_or_default();
    let mut reply = result.unwrap_or_else(|e| refuse(req, e.report(id)));
    if is_short && matches!(reply.body, Body::Full(_)) {
        note_short_request();
    }
    // A page of another origin could read what a script has.
    if req.settings.chttpd.allow_jsonp && req.settings.dev.is_none() {
        reply = jsonp::wrap(req, reply);
    }
    if let Some(whole) = long_body(req, &reply, version) {
        reply = counted(req, reply, whole).await;
    }
    if let Some(ahead) = ahead.filter(|_| !is_http2_head) {
        reply.body = ahead.paced(reply.body);
    }
    req.begun = None;
    // A reserved place is free after this answer, whatever is left of the body.
    let is_reserved = |place: &Ticket| place.seat.is_reserved();
    // After a long head the connection would keep its long buffer.
    let is_over = req.place.as_ref().is_some_and(is_reserved) || is_long_head || !req.drain().await;
    if is_over && version < hyper::Version::HTTP_2 {
        // The unread rest would block another request: the client is notified before it sends one.
        reply
            .headers
            .push((CONNECTION, HeaderValue::from_static("close")));
    }
    finish(&mut under_way, reply)
}

/// Returns the address of a request's client, which may be behind a proxy or another node.
fn address_of(
    app: &App,
    client: &Client,
    settings: &Settings,
    headers: &mut HeaderMap,
) -> std::net::IpAddr {
    let forwarded = client_address(app, headers);
    forwarded.unwrap_or_else(|| settings.proxy_headers.client(client.peer.ip(), headers))
}

/// Returns the body of a response that counts as memory: a long one that was built for it.
fn long_body(req: &Request, reply: &Reply, version: hyper::Version) -> Option<Bytes> {
    let counted_from = match version < hyper::Version::HTTP_2 {
        true => WATCHED_FROM_BYTES,
        false => COUNTED_FROM_BYTES_HTTP2,
    };
    match &reply.body {
        Body::Full(whole) if whole.len() > counted_from && req.method != "HEAD" => {
            Some(whole.clone())
        }
        _ => None,
    }
}

/// A response that was built as a whole, counted until it is written to the connection. A read waits
/// while there is no memory for its response, and is refused if none is free in time; successful writes,
/// and requests of operators, are always answered.
async fn counted(req: &mut Request, mut reply: Reply, whole: Bytes) -> Reply {
    let class = req.row.class(&req.method, req.query.last(&["feed"]));
    let is_of_operator = req.user.is_admin() && !req.is_of_database;
    let held = match is_of_operator
        || is_always_sent(reply.status, class.writes(&req.method), whole.len())
    {
        true => req.answers.count(whole.len() as u64),
        false => match req.answers.settle(whole.len()).await {
            Ok(held) => held,
            Err(e) => return e.into(),
        },
    };
    reply.body = Body::Full(held.with(whole));
    reply
}

/// Whether a response is sent whether there is memory for it or not: that of a write that was applied,
/// and the server's own errors. A function chooses its status, but a long response is never the server's error.
fn is_always_sent(status: u16, writes: bool, length: usize) -> bool {
    match status < 300 {
        true => writes,
        false => length <= WATCHED_FROM_BYTES,
    }
}

/// The length of a request's head, about, in bytes.
fn head_bytes(parts: &hyper::http::request::Parts) -> usize {
    let target = parts
        .uri
        .path_and_query()
        .map_or(0, |target| target.as_str().len());
    let headers = parts.headers.iter();
    target
        + headers
            .map(|(name, value)| name.as_str().len() + value.len() + 4)
            .sum::<usize>()
}

fn effective_method(parts: &hyper::http::request::Parts) -> (String, Option<ApiError>) {
    let method = parts.method.as_str();
    let over = parts
        .headers
        .get("x-http-method-override")
        .and_then(|v| v.to_str().ok());
    match over {
        Some(over) if method == "POST" => {
            let over = over.trim().to_ascii_uppercase();
            if [
                "GET", "HEAD", "POST", "PUT", "DELETE", "TRACE", "CONNECT", "COPY",
            ]
            .contains(&over.as_str())
            {
                (over, None)
            } else {
                (
                    method.to_owned(),
                    Some(ApiError::bad_request("Invalid X-HTTP-Method-Override")),
                )
            }
        }
        _ => (method.to_owned(), None),
    }
}

async fn route(app: &App, req: &mut Request) -> Result<Reply, ApiError> {
    // Clients of health checks know only the server's address.
    if !req.is_for_us() && !is_only(req, "/_up") {
        return Err(host::misdirected());
    }
    let settings = req.settings.clone();
    if let Some(reply) = settings.cors.as_ref().and_then(|cors| cors.preflight(req)) {
        return Ok(reply);
    }
    if req.target_len as u64 > settings.chttpd.max_uri_length {
        return Err(ApiError::new(
            414,
            "too_long",
            "the request uri is too long",
        ));
    }
    let query = req.raw_query.as_deref().unwrap_or_default();
    if !is_well_encoded(&req.path) || !is_well_encoded(query) {
        return Err(ApiError::bad_request("invalid_url_encoding"));
    }
    // CouchDB ignores a parameter whose name was damaged on the way, and returns other results than
    // requested.
    if !is_utf8_decoded(query) {
        return Err(ApiError::bad_request("The query is not valid UTF-8"));
    }
    if let Some(member) = app.node.member()
        && let Some(reply) = Box::pin(clustered::hold(member, req)).await?
    {
        return Ok(reply);
    }
    let (recognised, us) = within!(State::Auth, app.authenticate(req));
    req.auth_us = us;
    if let Some(reply) = recognised? {
        return Ok(reply);
    }
    take_place(app, req).await?;
    let may_be_unknown =
        !requires_login(req) || is_only(req, "/_up") && !settings.chttpd.require_valid_user;
    if !may_be_unknown && req.authenticated.is_none() && !is_login(req) {
        return Err(ApiError::unauthorized("Authentication required."));
    }
    // Before rules or functions rewrite anything.
    let may_change = cross_site::may_change(req);
    loop {
        if !may_change && cross_site::changes(req) {
            return Err(cross_site::refusal());
        }
        // Before anything is built: a client that reads no responses gets no more of them.
        if !req.answers.makes_ahead() && router::may_be_long(req) {
            req.begun = req.answers.begin().await?;
        }
        let answer = router::route(app, req).await;
        if !std::mem::take(&mut req.is_rerouted) || answer.is_err() {
            return answer;
        }
    }
}

/// Most attempts to read the body of a login that came in a reserved place.
const LOGIN_BODY_READS: usize = 4;

/// Notes whose connection it is, and finds a place for a request that came in one of the reserved places.
async fn take_place(app: &App, req: &mut Request) -> Result<(), ApiError> {
    let Some(place) = &req.place else {
        return Ok(());
    };
    let is_admin = req.user.is_admin();
    if req.authenticated.is_some() {
        let name = req.user.name.as_deref().unwrap_or_default();
        (place.seat).note_user(app.places.group_of_user(name), is_admin);
    } else if let Some(address) = req.peer {
        // Behind a proxy that is trusted it is the client's.
        place.seat.note_address(app.places.group_of(address));
    }
    // A health check needs no other place.
    if !place.seat.is_reserved() || is_only(req, "/_up") {
        return Ok(());
    }
    let class = match req.authenticated.is_some() {
        true if is_admin => Class::Admin,
        true => Class::User,
        false => Class::Stranger,
    };
    let place = place.clone();
    if is_login(req) {
        return admit_login(app, req, &place, class).await;
    }
    admit(app, &place, class).await
}

/// Lets a login keep its reserved place if its body has come, and few others do: its client is not known
/// yet, and has no share. How many passwords are checked at a time is limited elsewhere.
async fn admit_login(
    app: &App,
    req: &mut Request,
    place: &Ticket,
    class: Class,
) -> Result<(), ApiError> {
    let mut read = Box::pin(req.bytes());
    let mut come = None;
    for _ in 0..LOGIN_BODY_READS {
        come = (&mut read).now_or_never();
        if come.is_some() {
            break;
        }
        // The connection reads what has come. Nothing is waited for: a flood of stalled logins would hold these places.
        tokio::task::yield_now().await;
    }
    let come = come.transpose()?;
    if come.is_none() || !app.places.keep_for_login(place) {
        admit(app, place, class).await?;
    }
    let body = match come {
        Some(body) => body,
        None => read.as_mut().await?,
    };
    drop(read);
    req.put_back(body);
    Ok(())
}

async fn admit(app: &App, place: &Ticket, class: Class) -> Result<(), ApiError> {
    if app.places.admit(place, class).await {
        return Ok(());
    }
    Err(ApiError::busy(
        "All connections are taken ([chttpd] server_options, or the limit of open files). Retry later.".into(),
    ))
}

/// Returns whether all requests need a name and a password, except perhaps those for `/_up`.
fn requires_login(req: &Request) -> bool {
    let chttpd = &req.settings.chttpd;
    chttpd.require_valid_user || chttpd.require_valid_user_except_for_up
}

fn is_login(req: &Request) -> bool {
    req.method == "POST" && is_only(req, "/_session")
}

/// Returns whether the path is this one, of one segment, and nothing follows it.
fn is_only(req: &Request, path: &str) -> bool {
    req.row.path == path && req.segments.len() == 1
}

/// Returns an error in the form for this client: browsers are sent to the login page, unless they
/// need a login for that page too.
fn refuse(req: &Request, e: ApiError) -> Reply {
    let unauthorized = e.status == 401;
    let reason = e.reason.clone();
    let mut reply = Reply::from(e);
    if !unauthorized {
        return reply;
    }
    let configured = || req.settings.chttpd.www_authenticate.as_deref();
    let asked = req.named_header("x-couchdb-www-authenticate");
    if let Some(challenge) = asked.or_else(configured) {
        reply.headers.retain(|(name, _)| name != WWW_AUTHENTICATE);
        return reply.header(WWW_AUTHENTICATE, challenge);
    }
    if requires_login(req) {
        return reply.header(WWW_AUTHENTICATE, CHALLENGE);
    }
    let login_page = &req.settings.chttpd_auth.authentication_redirect;
    let is_browser = !req.accepts("application/json") && req.accepts("text/html");
    if is_browser && !req.path.starts_with("/_session") && req.path != *login_page {
        let mut to = req.root_url();
        to.push_str(login_page);
        to.push_str("?return=");
        node::encode_into(&req.path, &mut to);
        to.push_str("&reason=");
        node::encode_into(&reason, &mut to);
        if let Ok(v) = HeaderValue::from_str(&to) {
            reply.headers.push((LOCATION, v));
            reply.status = 302;
        }
    }
    reply
}

/// Shorter responses are logged when their head is made: the rest is then mostly in the socket's
/// buffer.
const WATCHED_FROM_BYTES: usize = 64 << 10;
/// A longer response over HTTP/2 is counted as memory: a connection has hundreds at a time.
const COUNTED_FROM_BYTES_HTTP2: usize = 4 << 10;

/// The response with the headers that every response has. The request is logged when the response's
/// body has ended.
fn finish(under_way: &mut UnderWay<'_>, reply: Reply) -> hyper::Response<Body> {
    let (app, req) = (under_way.app, &under_way.req);
    let timing = Timing {
        auth_us: req.auth_us,
        receive_us: req.body_us,
        ..reply.timing
    };
    let status = reply.status;
    let mut response = hyper::Response::new(Body::nothing());
    *response.status_mut() =
        hyper::StatusCode::from_u16(status).unwrap_or(hyper::StatusCode::INTERNAL_SERVER_ERROR);
    if let Some(phrase) = reason_phrase(status) {
        response.extensions_mut().insert(phrase);
    }
    let headers = response.headers_mut();
    put_headers(app, req, reply.headers, headers);
    headers.insert(REQUEST_ID, under_way.id.clone());
    headers.insert(BODY_TIME, HeaderValue::from(req.body_us / 1000));
    let us = under_way.received.elapsed_us();
    headers.insert(SERVER_TIMING, server_timing(&timing, us));
    if let Some(answered) = req.traced.and_then(Traced::header) {
        headers.insert(TRACE_RESPONSE, answered);
    }
    if req
        .named_header("prefer")
        .is_some_and(|p| p.eq_ignore_ascii_case("return=minimal"))
    {
        keep_only(&req.settings.chttpd.prefer_minimal, headers);
    }
    // The length of a 304 is that of its own body, which is empty, as in CouchDB.
    let body = match status {
        304 => Body::nothing(),
        _ => reply.body,
    };
    let has_no_body = req.method == "HEAD" || status == 304;
    if has_no_body && let Some(length) = body.length() {
        headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
    let facts = under_way.facts(status, timing, us);
    *response.body_mut() = match body {
        body if has_no_body => {
            facts.report(&app.stats, End::Whole, 0, us);
            match under_way.is_http2_head {
                true => Body::Full(Bytes::new()),
                // Over HTTP/1 it is never read, but hyper takes its length.
                false => body,
            }
        }
        Body::Full(bytes) | Body::Static(bytes) if bytes.len() <= WATCHED_FROM_BYTES => {
            facts.report(&app.stats, End::Whole, bytes.len() as u64, us);
            Body::Full(bytes)
        }
        body => {
            let completion = Completion::new(&facts, app.stats.clone(), under_way.received);
            body.watched(completion.with(under_way.req.take_held()))
        }
    };
    under_way.is_answered = true;
    response
}

/// Returns the reason phrase that CouchDB sends, where it differs from today's standard.
fn reason_phrase(status: u16) -> Option<ReasonPhrase> {
    let phrase: &'static [u8] = match status {
        302 => b"Moved Temporarily",
        404 => b"Object Not Found",
        408 => b"Request Time-out",
        413 => b"Request Entity Too Large",
        414 => b"Request-URI Too Large",
        416 => b"Requested Range Not Satisfiable",
        504 => b"Gateway Time-out",
        200 | 201 => return None,
        // A function may send any status; CouchDB takes this phrase for all that it does not know.
        _ => match hyper::StatusCode::from_u16(status).map(|s| s.canonical_reason()) {
            Ok(None) => b"Internal Server Error",
            _ => return None,
        },
    };
    Some(ReasonPhrase::from_static(phrase))
}

/// The headers of an answer, and those that depend on the request and the settings.
fn put_headers(
    app: &App,
    req: &Request,
    own: Vec<(HeaderName, HeaderValue)>,
    headers: &mut HeaderMap,
) {
    headers.reserve(own.len() + 6);
    // First of all headers: Python's `couchdb` takes the cookie from whichever comes first.
    let own_cookie = own.iter().find(|(n, _)| n == SET_COOKIE);
    if let Some((name, value)) = own_cookie {
        headers.insert(name.clone(), value.clone());
    } else if let Some(login) = &req.renew {
        renew_cookie(app, req, login, headers);
    }
    headers.insert(SERVER, HeaderValue::from_static(SERVER_NAME));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("must-revalidate"));
    for (name, value) in own {
        if name != SET_COOKIE {
            headers.insert(name, value);
        }
    }
    let settings = &req.settings;
    if let Some(cors) = &settings.cors {
        cors.finish(req, headers);
    }
    if let Some(frame_options) = &settings.frame_options {
        frame_options.finish(req, headers);
    }
}

fn renew_cookie(app: &App, req: &Request, login: &auth::Login, headers: &mut HeaderMap) {
    let now = std::time::SystemTime::now();
    let cookie = app.node.auth.set_cookie(login, now, session::reached(req));
    if let Ok(v) = HeaderValue::from_str(&cookie) {
        headers.append(SET_COOKIE, v);
    }
}

/// Removes the headers that a client does without, as `Prefer: return=minimal` requests.
fn keep_only(kept: &[String], headers: &mut HeaderMap) {
    let dropped = |name: &HeaderName| !kept.iter().any(|k| name.as_str().eq_ignore_ascii_case(k));
    let names: Vec<HeaderName> = headers.keys().filter(|n| dropped(n)).cloned().collect();
    for name in names {
        headers.remove(name);
    }
}

/// Phases that happened, in milliseconds. `write` is the rest of the total, for making the
/// response.
fn server_timing(t: &crate::reply::Timing, total_us: u64) -> HeaderValue {
    use std::io::Write;
    let mut text = [0u8; 320];
    let mut rest = &mut text[..];
    let phases = t.phases();
    let before: u64 = phases.iter().map(|(_, us)| us).sum();
    let write = ("write", total_us.saturating_sub(before));
    for (name, us) in phases.into_iter().chain([write]) {
        if us > 0 {
            // The buffer holds all phases with the longest numbers.
            let _ = write!(rest, "{name};dur={}.{:03}, ", us / 1000, us % 1000);
        }
    }
    let _ = write!(rest, "total;dur={}.{:03}", total_us / 1000, total_us % 1000);
    let left = rest.len();
    let used = text.len() - left;
    HeaderValue::from_bytes(&text[..used]).unwrap_or(HeaderValue::from_static(""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_short_errors_and_applied_writes_are_sent_without_room() {
        let (short, long) = (WATCHED_FROM_BYTES, WATCHED_FROM_BYTES + 1);
        // A function chose these statuses.
        for status in [300, 404, 500, 999] {
            for writes in [false, true] {
                assert!(!is_always_sent(status, writes, long), "{status}");
                assert!(is_always_sent(status, writes, short), "{status}");
            }
        }
        for length in [short, long] {
            assert!(is_always_sent(201, true, length));
            assert!(!is_always_sent(200, false, length));
        }
    }
}
