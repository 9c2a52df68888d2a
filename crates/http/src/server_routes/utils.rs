//! `/_utils/`: what a browser finds where CouchDB has its web interface.

use hyper::header::{CONTENT_SECURITY_POLICY, HeaderValue};

use crate::errors::ApiError;
use crate::reply::Reply;
use crate::request::Request;
use crate::router::require_method;

type Answer = Result<Reply, ApiError>;

/// One file without anything from elsewhere; the version is put in once.
const PAGE: &str = include_str!("utils.html");
/// The page's own style, and nothing else.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; form-action 'none'; frame-ancestors 'none'; base-uri 'none'";

/// `/_utils` leads to `/_utils/`, which is the page; there is nothing below it.
pub fn route(req: &Request) -> Answer {
    require_method(req, "GET,HEAD")?;
    if req.segments.len() > 1 {
        return Err(ApiError::missing());
    }
    if !req.path.ends_with('/') {
        // Relative to the host, whatever stands before this server.
        let to = match &req.raw_query {
            Some(query) => format!("/_utils/?{query}"),
            None => "/_utils/".to_owned(),
        };
        return Ok(Reply::text(301, "text/html; charset=utf-8", "").location(&to));
    }
    let page = PAGE.replace("{version}", env!("CARGO_PKG_VERSION"));
    let mut reply = Reply::text(200, "text/html; charset=utf-8", page);
    reply
        .headers
        .push((CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY)));
    Ok(reply)
}
