//! `/_utils/`: the web interface, where CouchDB has its own.

use bytes::Bytes;
use hyper::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, HeaderName,
    HeaderValue, REFERRER_POLICY, VARY, X_CONTENT_TYPE_OPTIONS,
};
use web::{Encoding, File};

use crate::errors::ApiError;
use crate::reply::Reply;
use crate::request::Request;

type Answer = Result<Reply, ApiError>;

/// Scripts and styles of this server only, none of them inline. Pictures are shown by their own
/// URLs, where their policy prevents scripts; sounds and films from memory, as `blob:`.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; media-src blob:; \
                      connect-src 'self'; form-action 'none'; frame-ancestors 'none'; base-uri 'none'";
/// Default of `[chttpd_auth] authentication_redirect`, as in CouchDB: the page to which browsers
/// are sent to log in.
const SESSION_PAGE: &str = "session.html";

/// `/_utils` redirects to `/_utils/`, the first page; the other files are next to it.
pub fn route(req: &Request, path: &[String]) -> Answer {
    let name = match (path, req.path.ends_with('/')) {
        ([], false) => return Ok(moved(req)),
        ([], true) => web::INDEX,
        ([name], false) => name,
        _ => return Err(ApiError::missing()),
    };
    if name == SESSION_PAGE {
        return Ok(led(302, &with_query(req, "./#/login")));
    }
    let file = web::file(name).ok_or_else(ApiError::missing)?;
    Ok(send(req, file))
}

fn moved(req: &Request) -> Reply {
    led(301, &with_query(req, "_utils/"))
}

fn with_query(req: &Request, to: &str) -> String {
    match &req.raw_query {
        Some(query) if query.is_ascii() => format!("{to}?{query}"),
        _ => to.to_owned(),
    }
}

/// A redirect relative to the request's path: below whatever path a proxy has the server.
fn led(status: u16, to: &str) -> Reply {
    Reply::text(status, "text/html; charset=utf-8", "").location(to)
}

/// A browser caches the file, and revalidates it each time: names stay the same from version to
/// version.
fn send(req: &Request, file: &File) -> Reply {
    let encoding = Encoding::of(req.header(&ACCEPT_ENCODING).unwrap_or_default());
    let etag = format!("{}-{}", file.hash, encoding.name().unwrap_or("plain"));
    let mut reply = match (req.none_match(&etag), encoding.name()) {
        (true, _) => Reply::empty(304),
        (false, None) => whole(file, encoding),
        (false, Some(name)) => whole(file, encoding).header(CONTENT_ENCODING, name),
    };
    let headers: [(HeaderName, &'static str); 5] = [
        (CONTENT_SECURITY_POLICY, POLICY),
        (CACHE_CONTROL, "no-cache"),
        (VARY, "Accept-Encoding"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "same-origin"),
    ];
    let headers = headers.map(|(name, value)| (name, HeaderValue::from_static(value)));
    reply.headers.extend(headers);
    reply.etag(&etag)
}

fn whole(file: &File, encoding: Encoding) -> Reply {
    Reply::of_static(file.kind, Bytes::from_static(file.bytes(encoding)))
}
