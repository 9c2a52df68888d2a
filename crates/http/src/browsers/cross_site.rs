//! Requests that a page of another site makes the browser send with its visitor's session (CSRF). A
//! page may send POSTs with forms, plain text or nothing to any server without a preflight request,
//! and the browser adds the cookie, or the password that the visitor once entered; only the
//! response is hidden from the page. So changes with such credentials are refused when they come
//! from a page of another origin, unless `[cors]` allows them.
//!
//! The rules are those of Go's `http.CrossOriginProtection`: `Sec-Fetch-Site`, which no page can
//! set, counts first. It is only sent to HTTPS and local servers; elsewhere `Origin` has to name
//! this server. Programs other than browsers send neither.

use hyper::header::{CONTENT_TYPE, ORIGIN};

use crate::errors::ApiError;
use crate::request::Request;

/// CouchDB's name of the handler of sessions.
const BY_COOKIE: &str = "cookie";
/// CouchDB's name of the handler of tokens.
const BY_TOKEN: &str = "jwt";
/// Content types that a form, or a script without a preflight request, may send.
const UNASKED_TYPES: [&str; 3] = [
    "application/x-www-form-urlencoded",
    "multipart/form-data",
    "text/plain",
];

/// Whether a request of this method may change something.
pub fn changes(req: &Request) -> bool {
    !matches!(req.method.as_str(), "GET" | "HEAD" | "OPTIONS")
}

/// Whether the owner of the request's credentials intended it. Examine the request as the client
/// sent it.
pub fn may_change(req: &Request) -> bool {
    let cors = req.settings.cors.as_ref();
    match req.authenticated {
        // No user's rights, or a token, which only a program can add.
        None | Some(BY_TOKEN) => true,
        Some(BY_COOKIE) => is_own(req) || cors.is_some_and(|c| c.shares_session(req)),
        // A password in a header comes from a program as well as from a browser's memory: a browser asks first for a program.
        // A login has its own password with it.
        Some(_) => {
            is_asked_for(req)
                || is_own(req)
                || cors.is_some_and(|c| c.knows_page(req))
                || req.method == "POST" && req.row.path == "/_session"
        }
    }
}

/// Whether a browser would ask this server before it sends the request for a page of another origin.
fn is_asked_for(req: &Request) -> bool {
    match req.method.as_str() {
        "GET" | "HEAD" => false,
        "POST" => {
            let kind = req.header(&CONTENT_TYPE).unwrap_or("text/plain");
            let kind = kind.split(';').next().unwrap_or_default().trim();
            !UNASKED_TYPES.iter().any(|t| kind.eq_ignore_ascii_case(t))
        }
        _ => true,
    }
}

pub fn refusal() -> ApiError {
    ApiError::forbidden(
        "A page of another origin may not use these credentials; see [cors] origins and credentials.",
    )
}

/// Whether a page of this server sends the request, or no page.
fn is_own(req: &Request) -> bool {
    match req.named_header("sec-fetch-site") {
        Some(site) => matches!(site, "same-origin" | "none"),
        None => match req.headers.get(ORIGIN) {
            Some(origin) => origin.to_str().is_ok_and(|o| is_origin_of(req, o)),
            None => true,
        },
    }
}

/// Whether the origin is this server as the client named it. A proxy that uses HTTPS may not report
/// it: where only the host is known, a page of `https` counts as one of this server's, never the
/// other way round.
fn is_origin_of(req: &Request, origin: &str) -> bool {
    let own = req.base_url();
    let (Some((scheme, host)), Some((own_scheme, own_host))) =
        (origin.split_once("://"), own.split_once("://"))
    else {
        return false;
    };
    let is_scheme = scheme == own_scheme || scheme == "https";
    is_scheme && without_port(scheme, host).eq_ignore_ascii_case(without_port(scheme, own_host))
}

/// The host without a port that the scheme implies: browsers leave it out, others may not.
fn without_port<'a>(scheme: &str, host: &'a str) -> &'a str {
    let port = match scheme {
        "https" => ":443",
        _ => ":80",
    };
    host.strip_suffix(port).unwrap_or(host)
}
