//! Answers a request: reads its head, has it routed, and finishes the response.

use hyper::body::{Body as _, Incoming};
use hyper::header::{CONNECTION, HeaderMap, HeaderValue};

use crate::accounting::traced::Traced;
use crate::app::App;
use crate::browsers::dev::DevRequest;
use crate::connection::client::{Client, Spoken};
use crate::connection::head_timeout::LONG_HEAD_BYTES;
use crate::connection::places::Ticket;
use crate::errors::ApiError;
use crate::exchange::finish::finish;
use crate::exchange::login::refuse;
use crate::exchange::memory::{counted, long_body};
use crate::exchange::route::{label, route};
use crate::exchange::under_way::{UnderWay, clients_request_id, request_id};
use crate::forwarded_clients::client_address;
use crate::load::{has_short_body, note_short_request};
use crate::reply::{Body, jsonp};
use crate::request::{Request, framing, host};
use crate::settings::Settings;

/// Answers a request. Its log record is written when the response's body has ended.
pub(crate) async fn answer(
    app: &App,
    req: hyper::Request<Incoming>,
    client: &Client,
) -> hyper::Response<Body> {
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
    let host_error = host_error(&parts, &settings, client);
    let peer = Some(address_of(app, client, &settings, &mut parts.headers));
    let traced = Traced::of(&parts.headers, &settings.tracing);
    let is_http2 = version == hyper::Version::HTTP_2;
    let is_http2_head = is_http2 && parts.method == hyper::Method::HEAD;
    let ahead = is_http2.then(|| client.ahead.of_request());
    let memory = (app.bodies.clone(), app.answers.clone().by(ahead.clone()));
    let mut req = Request::new(method, parts, body, peer, settings, memory);
    req.traced = traced;
    req.https = is_secured;
    req.place = Some(client.place.clone());
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
        None => profiler::under_label!(label(req), route(app, req)),
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
