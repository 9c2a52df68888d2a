//! Finishes a response: the headers that every response has, and the end that is logged.

use bytes::Bytes;
use hyper::ext::ReasonPhrase;
use hyper::header::{
    CACHE_CONTROL, CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue, SERVER, SET_COOKIE,
};
use metrics::End;

use crate::accounting::completion::Completion;
use crate::accounting::traced::Traced;
use crate::app::App;
use crate::exchange::memory::WATCHED_FROM_BYTES;
use crate::exchange::under_way::{REQUEST_ID, UnderWay};
use crate::reply::{Body, Reply, Timing};
use crate::request::Request;
use crate::server_routes::session;

const SERVER_NAME: &str = concat!("CouchDB/3.5.2 (Settee/", env!("CARGO_PKG_VERSION"), ")");
const BODY_TIME: HeaderName = HeaderName::from_static("x-couchdb-body-time");
const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");
const TRACE_RESPONSE: HeaderName = HeaderName::from_static("traceresponse");

/// The response with the headers that every response has. The request is logged when the response's
/// body has ended.
pub(super) fn finish(under_way: &mut UnderWay<'_>, reply: Reply) -> hyper::Response<Body> {
    let (app, req) = (under_way.app, &under_way.req);
    let timing = Timing {
        auth_us: req.auth_us,
        receive_us: req.body_us,
        socket_ms: socket_wait_ms(req),
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
    headers.insert(BODY_TIME, body_time(req.body_us));
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

/// Returns the time of reading a body, in milliseconds: mostly 0.
fn body_time(us: u64) -> HeaderValue {
    match us / 1000 {
        0 => HeaderValue::from_static("0"),
        ms => HeaderValue::from(ms),
    }
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

/// How long a request lay in the socket before it was read, in milliseconds; 0 if that is not known.
fn socket_wait_ms(req: &Request) -> u32 {
    let place = req.place.as_ref();
    place.map_or(0, |place| place.seat.take_socket_wait())
}

/// Phases that happened, in milliseconds. `write` is the rest of the total, for making the
/// response. `socket` was before all of them, and is not in the total.
fn server_timing(t: &Timing, total_us: u64) -> HeaderValue {
    let mut text = ShortText::default();
    if t.socket_ms > 0 {
        text.push(b"socket;dur=");
        text.push_number(t.socket_ms.into(), 1);
        text.push(b", ");
    }
    let phases = t.phases();
    let before: u64 = phases.iter().map(|(_, us)| us).sum();
    let write = ("write", total_us.saturating_sub(before));
    for (name, us) in phases.into_iter().chain([write]) {
        if us > 0 {
            text.push(name.as_bytes());
            text.push_time(us);
            text.push(b", ");
        }
    }
    text.push(b"total");
    text.push_time(total_us);
    HeaderValue::from_bytes(text.bytes()).unwrap_or(HeaderValue::from_static(""))
}

/// Digits of the longest number.
const DIGITS_MAX: usize = 20;

/// A text that is built without the formatter, which takes longer than anything else of it. It has
/// room for all phases with the longest numbers; nothing is added beyond it.
struct ShortText {
    bytes: [u8; 320],
    length: usize,
}

impl Default for ShortText {
    fn default() -> ShortText {
        ShortText {
            bytes: [0; 320],
            length: 0,
        }
    }
}

impl ShortText {
    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    fn push(&mut self, text: &[u8]) {
        let end = self.length + text.len();
        if let Some(place) = self.bytes.get_mut(self.length..end) {
            place.copy_from_slice(text);
            self.length = end;
        }
    }

    /// Appends a number with at least this many digits.
    fn push_number(&mut self, mut number: u64, digits_min: usize) {
        let mut digits = [b'0'; DIGITS_MAX];
        let mut first = DIGITS_MAX;
        while number > 0 {
            first -= 1;
            digits[first] = b'0' + (number % 10) as u8;
            number /= 10;
        }
        self.push(&digits[first.min(DIGITS_MAX - digits_min)..]);
    }

    /// Appends a time in milliseconds.
    fn push_time(&mut self, us: u64) {
        self.push(b";dur=");
        self.push_number(us / 1000, 1);
        self.push(b".");
        self.push_number(us % 1000, 3);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_times_of_phases_are_written_as_the_formatter_writes_them() {
        for us in [0, 1, 9, 10, 999, 1000, 1001, 123_456, 10_000_000, u64::MAX] {
            let mut text = ShortText::default();
            text.push_time(us);
            let expected = format!(";dur={}.{:03}", us / 1000, us % 1000);
            assert_eq!(text.bytes(), expected.as_bytes());
        }
        let timing = Timing {
            auth_us: 12,
            read_us: 3456,
            socket_ms: 7,
            ..Timing::default()
        };
        let expected =
            "socket;dur=7, auth;dur=0.012, read;dur=3.456, write;dur=0.532, total;dur=4.000";
        assert_eq!(server_timing(&timing, 4000), expected);
        let longest = Timing {
            auth_us: u64::MAX / 8,
            receive_us: u64::MAX / 8,
            parse_us: u64::MAX / 8,
            wait_us: u64::MAX / 8,
            commit_us: u64::MAX / 8,
            read_us: u64::MAX / 8,
            socket_ms: u32::MAX,
        };
        let text = server_timing(&longest, u64::MAX);
        let end = format!("total;dur={}.{:03}", u64::MAX / 1000, u64::MAX % 1000);
        assert!(
            text.to_str().unwrap().ends_with(&end),
            "there is room for it"
        );
    }
}
