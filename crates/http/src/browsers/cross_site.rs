//! Requests that a page of another site makes the browser send with its visitor's session (CSRF). A
//! page may send POSTs with forms, plain text or nothing to any server without a preflight request,
//! and the browser adds the cookie, or the password that the visitor once entered; only the
//! response is hidden from the page. So changes with such credentials are refused when they come
//! from a page of another origin, unless `[cors]` allows them.
//!
//! The rules are those of Go's `http.CrossOriginProtection`: `Sec-Fetch-Site`, which no page can
//! set, counts first. It is only sent to HTTPS and local servers; elsewhere `Origin` has to name
//! this server. Programs other than browsers send neither.

use hyper::header::{CONTENT_TYPE, ORIGIN, REFERER};

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

/// Whether a request may change something. Update functions are called by any method, as in CouchDB.
pub fn changes(req: &Request) -> bool {
    !routes::is_read(&req.method) || calls_update(|at| req.segment(at))
}

/// Whether a path of these segments calls an update function.
fn calls_update<'a>(segment: impl Fn(usize) -> Option<&'a str>) -> bool {
    let is = |at: usize, name: &str| segment(at) == Some(name);
    let design_at = if is(1, "_partition") { 3 } else { 1 };
    is(design_at, "_design") && is(design_at + 2, "_update")
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
            // Of a page's requests only links, pictures and the like have no origin.
            None if routes::is_read(&req.method) => {
                let page = req.header(&REFERER).and_then(origin_of_page);
                page.is_none_or(|page| is_origin_of(req, page))
            }
            None => true,
        },
    }
}

/// Returns the origin of a page's address: what is before its path.
fn origin_of_page(url: &str) -> Option<&str> {
    let host_at = url.find("://")? + 3;
    let rest = &url[host_at..];
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    Some(&url[..host_at + end])
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn update_functions_are_found_in_paths() {
        let calls = |path: &str| {
            let segments: Vec<&str> = path.split('/').skip(1).collect();
            calls_update(|at| segments.get(at).copied())
        };
        for path in [
            "/db/_design/d/_update/f",
            "/db/_design/d/_update/f/a/b",
            "/db/_partition/p/_design/d/_update/f",
        ] {
            assert!(calls(path), "{path}");
        }
        for path in [
            "/",
            "/db/_update",
            "/db/_design/_update",
            "/db/_design/d/_show/_update",
            "/db/_partition/p/_design/d/_view/_update",
        ] {
            assert!(!calls(path), "{path}");
        }
    }

    #[test]
    fn the_origin_of_a_page_ends_before_its_path() {
        for (url, origin) in [
            ("https://a.example:81/x?y", Some("https://a.example:81")),
            (
                "http://a.example?http://b.example/",
                Some("http://a.example"),
            ),
            ("http://a.example", Some("http://a.example")),
            ("about:blank", None),
        ] {
            assert_eq!(origin_of_page(url), origin, "{url}");
        }
    }
}
