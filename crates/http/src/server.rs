//! Connections: accepting, one request after another, finishing answers, stopping.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use hyper::body::Incoming;
use hyper::header::{
    CACHE_CONTROL, CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue, LOCATION, SERVER, SET_COOKIE,
};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::{TcpListener, TcpStream};

use crate::app::App;
use crate::errors::ApiError;
use crate::lenient::Lenient;
use crate::linger::Lingering;
use crate::reply::{Body, Reply};
use crate::request::Request;
use crate::router;

/// How long requests under way may take when the server stops.
const STOP_TIME_MAX: Duration = Duration::from_secs(10);
/// A client that connects and does not send a request's head in this time is hung up on.
const HEAD_TIME_MAX: Duration = Duration::from_secs(60);

const SERVER_NAME: &str = concat!("CouchDB/3.5.0 (Settee/", env!("CARGO_PKG_VERSION"), ")");
const REQUEST_ID: HeaderName = HeaderName::from_static("x-couch-request-id");
const BODY_TIME: HeaderName = HeaderName::from_static("x-couchdb-body-time");
const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");

/// Serves until `stop` resolves, then finishes what is under way.
pub async fn serve(listener: TcpListener, app: Arc<App>, stop: impl Future<Output = ()>) {
    let graceful = GracefulShutdown::new();
    tokio::pin!(stop);
    loop {
        let accepted = tokio::select! {
            a = listener.accept() => a,
            () = &mut stop => break,
        };
        match accepted {
            Ok((stream, peer)) => accept(stream, peer, &app, &graceful),
            Err(e) => {
                // Out of file descriptors, mostly: wait for some to come back.
                tracing::warn!(error = %e, "accepting a connection failed");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
    drop(listener);
    app.stop_feeds();
    if tokio::time::timeout(STOP_TIME_MAX, graceful.shutdown())
        .await
        .is_err()
    {
        tracing::warn!("some requests did not finish in time");
    }
}

fn accept(stream: TcpStream, peer: SocketAddr, app: &Arc<App>, graceful: &GracefulShutdown) {
    if let Err(e) = stream.set_nodelay(true) {
        tracing::debug!(error = %e, "no TCP_NODELAY");
    }
    app.stats.connections.fetch_add(1, Ordering::Relaxed);
    let service = {
        let app = app.clone();
        service_fn(move |req| {
            let app = app.clone();
            async move { Ok::<_, Infallible>(answer(&app, req, peer).await) }
        })
    };
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        // Not `pipeline_flush`: it buffers a streamed answer whole, whatever the client takes.
        .header_read_timeout(HEAD_TIME_MAX);
    let stream = TokioIo::new(Lenient::new(Lingering::new(stream)));
    let connection = builder.serve_connection(stream, service);
    let connection = graceful.watch(connection.into_owned());
    let app = app.clone();
    tokio::spawn(async move {
        if let Err(e) = connection.await {
            tracing::debug!(error = %e, "connection ended");
        }
        app.stats.connections.fetch_sub(1, Ordering::Relaxed);
    });
}

/// Ten hexadecimal digits that differ from request to request.
fn request_id() -> HeaderValue {
    // From a random number on, so that ids do not come again after a restart.
    static NEXT: LazyLock<AtomicU64> = LazyLock::new(|| {
        let mut first = [0; 8];
        // Without random numbers the ids begin at 0: they stay distinct.
        let _ = getrandom::fill(&mut first);
        AtomicU64::new(u64::from_ne_bytes(first))
    });
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    // A multiplication by an odd constant permutes the 40-bit numbers: distinct, and not counting up.
    let id = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) & 0xff_ffff_ffff;
    let mut digits = [0; 10];
    for (i, d) in digits.iter_mut().enumerate() {
        *d = b"0123456789abcdef"[(id >> (36 - 4 * i) & 15) as usize];
    }
    HeaderValue::from_bytes(&digits).unwrap_or(HeaderValue::from_static("0"))
}

async fn answer(
    app: &App,
    req: hyper::Request<Incoming>,
    peer: SocketAddr,
) -> hyper::Response<Body> {
    let received = Instant::now();
    let id = request_id();
    let (parts, body) = req.into_parts();
    let (method, method_error) = effective_method(&parts);
    let mut req = Request::new(method, parts, body, Some(peer.ip()));
    let result = match method_error {
        Some(e) => Err(e),
        None => route(app, &mut req).await,
    };
    let reply = result.unwrap_or_else(|e| refuse(app, &req, e));
    req.drain().await;
    finish(app, &req, reply, id, received)
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
    let limits = app.limits();
    if req.target_len as u64 > limits.max_uri_length {
        return Err(ApiError::new(
            414,
            "request_uri_too_long",
            format!(
                "the path with its query exceeds max_uri_length ({})",
                limits.max_uri_length
            ),
        ));
    }
    app.authenticate(req).await?;
    let for_up = limits.require_valid_user_except_for_up && req.path == "/_up";
    if limits.require_valid_user && req.user.name.is_none() && !for_up && !is_login(req) {
        return Err(ApiError::unauthorized("Authentication required.")
            .with_www_authenticate("Basic realm=\"server\""));
    }
    router::route(app, req).await
}

fn is_login(req: &Request) -> bool {
    req.method == "POST" && req.path == "/_session"
}

/// An error as this client wants it: browsers are sent to the login page.
fn refuse(app: &App, req: &Request, e: ApiError) -> Reply {
    let unauthorized = e.status == 401;
    let reason = e.reason.clone();
    let mut reply = Reply::from(e);
    if !unauthorized {
        return reply;
    }
    if let Some(challenge) = req.named_header("x-couchdb-www-authenticate") {
        return reply.header(hyper::header::WWW_AUTHENTICATE, challenge);
    }
    let accept = req.accept();
    if accept.contains("text/html") && !accept.contains("*/*") && !req.path.starts_with("/_session")
    {
        let mut to = req.base_url();
        to.push_str(&app.limits().authentication_redirect);
        to.push_str("?return=");
        crate::query::encode_into(&req.path, &mut to);
        to.push_str("&reason=");
        crate::query::encode_into(&reason, &mut to);
        if let Ok(v) = HeaderValue::from_str(&to) {
            reply.headers.push((LOCATION, v));
            reply.status = 302;
        }
    }
    reply
}

fn finish(
    app: &App,
    req: &Request,
    reply: Reply,
    id: HeaderValue,
    received: Instant,
) -> hyper::Response<Body> {
    let us = received.elapsed().as_micros() as u64;
    app.stats.record(&req.method, reply.status, us);
    log(req, &reply, &id, us);
    let mut response = hyper::Response::new(reply.body);
    *response.status_mut() = hyper::StatusCode::from_u16(reply.status)
        .unwrap_or(hyper::StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.reserve(reply.headers.len() + 6);
    // First of all headers: Python's `couchdb` takes the cookie from whichever comes first.
    let own_cookie = reply.headers.iter().find(|(n, _)| n == SET_COOKIE);
    if let Some((name, value)) = own_cookie {
        headers.insert(name.clone(), value.clone());
    } else if req.refresh_cookie {
        refresh_cookie(app, req, headers);
    }
    headers.insert(SERVER, HeaderValue::from_static(SERVER_NAME));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("must-revalidate"));
    for (name, value) in reply.headers {
        if name != SET_COOKIE {
            headers.insert(name, value);
        }
    }
    headers.insert(REQUEST_ID, id);
    headers.insert(BODY_TIME, HeaderValue::from(req.body_us / 1000));
    headers.insert(SERVER_TIMING, server_timing(&reply.timing, us));
    let length = match response.body() {
        Body::Full(b) => Some(b.len() as u64),
        Body::Sized(_, length) => Some(*length),
        Body::Stream(_) => None,
    };
    if let Some(len) = length
        && req.method == "HEAD"
        && response.status() != hyper::StatusCode::NOT_MODIFIED
    {
        response
            .headers_mut()
            .insert(CONTENT_LENGTH, HeaderValue::from(len));
    }
    response
}

fn refresh_cookie(app: &App, req: &Request, headers: &mut HeaderMap) {
    let name = req.user.name.as_deref().unwrap_or_default();
    let now = std::time::SystemTime::now();
    if let Some(cookie) = app.auth.set_cookie(name, now, req.https)
        && let Ok(v) = HeaderValue::from_str(&cookie)
    {
        headers.append(SET_COOKIE, v);
    }
}

/// Phases that happened, in milliseconds. `write` is making the answer: what is left of the total after the other phases.
fn server_timing(t: &crate::reply::Timing, total_us: u64) -> HeaderValue {
    use std::io::Write;
    let mut text = [0u8; 240];
    let mut rest = &mut text[..];
    let before = t.parse_us + t.wait_us + t.commit_us + t.read_us;
    let phases = [
        ("parse", t.parse_us),
        ("wait", t.wait_us),
        ("commit", t.commit_us),
        ("read", t.read_us),
        ("write", total_us.saturating_sub(before)),
    ];
    for (name, us) in phases {
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

fn log(req: &Request, reply: &Reply, id: &HeaderValue, us: u64) {
    let bytes = match &reply.body {
        Body::Full(b) => b.len() as i64,
        Body::Sized(_, length) => *length as i64,
        Body::Stream(_) => -1,
    };
    tracing::info!(
        target: "request",
        id = id.to_str().unwrap_or_default(),
        peer = req.peer.map(tracing::field::display),
        user = req.user.name.as_deref().unwrap_or("-"),
        method = %req.method,
        path = %req.path,
        status = reply.status,
        bytes,
        us,
    );
}
