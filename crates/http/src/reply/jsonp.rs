//! JSONP: JSON answers as a call of the function that `?callback=` names, for pages of old. Only when `[chttpd] allow_jsonp` is on.

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use hyper::header::{CONTENT_TYPE, HeaderValue};

use crate::errors::ApiError;
use crate::reply::{Body, Reply};
use crate::request::Request;

/// Wraps a JSON answer when the request names a function.
pub fn wrap(req: &Request, mut reply: Reply) -> Reply {
    let Some(callback) = req.query.get("callback").filter(|name| !name.is_empty()) else {
        return reply;
    };
    let kind = reply.headers.iter_mut().find(|(n, _)| n == CONTENT_TYPE);
    let Some((_, kind)) = kind.filter(|(_, v)| v == "application/json") else {
        return reply;
    };
    if !is_function(callback) {
        return ApiError::bad_request("invalid_callback").into();
    }
    *kind = HeaderValue::from_static("application/javascript");
    let head = Bytes::from(format!("/* CouchDB */{callback}("));
    let tail = Bytes::from_static(b");\n");
    reply.body = match reply.body {
        Body::Full(json) | Body::Static(json) => {
            let json = json.strip_suffix(b"\n").unwrap_or(&json);
            Body::Full([&head, json, &tail].concat().into())
        }
        Body::Stream(pieces) => {
            let around = |piece| stream::once(async move { Ok(piece) });
            Body::Stream(Box::pin(around(head).chain(pieces).chain(around(tail))))
        }
        // Of a known length: nothing that is JSON.
        sized @ Body::Sized(..) => sized,
    };
    reply
}

/// Whether a text can only be the name of a function, and no other script.
fn is_function(name: &str) -> bool {
    name.bytes()
        .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'[' | b']'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_callback_is_a_name_and_no_script() {
        assert!(is_function("jQuery_1.handlers[0]"));
        for bad in ["a'", "a\"", "a(b)", "a b", "a;b", "<a", "é"] {
            assert!(!is_function(bad), "{bad}");
        }
    }
}
