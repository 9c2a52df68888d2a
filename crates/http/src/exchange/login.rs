//! Which requests need a name and a password, and the response to those without.

use hyper::header::{HeaderValue, LOCATION, WWW_AUTHENTICATE};

use crate::errors::ApiError;
use crate::reply::Reply;
use crate::request::Request;

/// Makes browsers prompt for a name and a password.
const CHALLENGE: &str = "Basic realm=\"server\"";

/// Returns whether all requests need a name and a password, except perhaps those for `/_up`.
pub(super) fn requires_login(req: &Request) -> bool {
    let chttpd = &req.settings.chttpd;
    chttpd.require_valid_user || chttpd.require_valid_user_except_for_up
}

pub(super) fn is_login(req: &Request) -> bool {
    req.method == "POST" && is_only(req, "/_session")
}

/// Returns whether the path is this one, of one segment, and nothing follows it.
pub(super) fn is_only(req: &Request, path: &str) -> bool {
    req.row.path == path && req.segments.len() == 1
}

/// Returns an error in the form for this client: browsers are sent to the login page, unless they
/// need a login for that page too.
pub(super) fn refuse(req: &Request, e: ApiError) -> Reply {
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
