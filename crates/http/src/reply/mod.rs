//! Responses: a status, headers, and a body that is whole or pulled piece by piece.

pub mod ahead;
pub mod answers;
pub mod body;
pub mod jsonp;
pub mod late;
pub mod live;
pub mod permission;
pub mod stream;

use bytes::Bytes;
use futures_util::Stream;
use hyper::header::{CONTENT_TYPE, ETAG, HeaderName, HeaderValue, LOCATION};
use serde_json::Value;

use crate::accounting::completion::{Completion, ObservedPieces};
use crate::errors::ApiError;
pub use crate::errors::StreamError;
pub use body::{Body, Pieces};

impl Body {
    /// The body, whose end is reported if it comes in pieces.
    pub(crate) fn watched(self, completion: Completion) -> Body {
        match self {
            Body::Full(bytes) | Body::Static(bytes) => {
                let length = bytes.len() as u64;
                let pieces = Box::pin(pieces_of(bytes));
                Body::Sized(ObservedPieces::of(pieces, Some(length), completion), length)
            }
            Body::Sized(pieces, length) => {
                Body::Sized(ObservedPieces::of(pieces, Some(length), completion), length)
            }
            Body::Stream(pieces) => Body::Stream(ObservedPieces::of(pieces, None, completion)),
        }
    }
}

/// Bytes in pieces, so that the progress of sending is visible.
pub fn pieces_of(mut bytes: Bytes) -> impl Stream<Item = Result<Bytes, StreamError>> + Send {
    futures_util::stream::iter(std::iter::from_fn(move || {
        let length = bytes.len().min(stream::CHUNK_BYTES);
        (length > 0).then(|| Ok(bytes.split_to(length)))
    }))
}

/// Time of the phases of a request in microseconds, for `Server-Timing`; 0 for one that did not happen.
#[derive(Clone, Copy, Debug, Default)]
pub struct Timing {
    /// Time of authentication.
    pub auth_us: u64,
    /// Receiving the body.
    pub receive_us: u64,
    pub parse_us: u64,
    pub wait_us: u64,
    pub commit_us: u64,
    pub read_us: u64,
    /// How long the request lay in the socket before all of them, in milliseconds; 0 if that is not
    /// known.
    pub socket_ms: u32,
}

impl Timing {
    /// The phases by name, those that did not happen with 0.
    pub fn phases(&self) -> [(&'static str, u64); 6] {
        [
            ("auth", self.auth_us),
            ("receive", self.receive_us),
            ("parse", self.parse_us),
            ("wait", self.wait_us),
            ("commit", self.commit_us),
            ("read", self.read_us),
        ]
    }
}

pub struct Reply {
    pub status: u16,
    pub headers: Vec<(HeaderName, HeaderValue)>,
    pub body: Body,
    pub timing: Timing,
}

const JSON: HeaderValue = HeaderValue::from_static("application/json");

impl Reply {
    /// JSON text that ends with a newline already, or needs none.
    pub fn json_bytes(status: u16, body: impl Into<Bytes>) -> Reply {
        Reply {
            status,
            headers: vec![(CONTENT_TYPE, JSON)],
            body: Body::Full(body.into()),
            timing: Timing::default(),
        }
    }

    pub fn json(status: u16, value: &Value) -> Reply {
        let mut text = value.to_string();
        text.push('\n');
        Self::json_bytes(status, text)
    }

    pub fn ok() -> Reply {
        Self::json_bytes(200, "{\"ok\":true}\n")
    }

    pub fn empty(status: u16) -> Reply {
        Reply {
            status,
            headers: vec![],
            body: Body::Full(Bytes::new()),
            timing: Timing::default(),
        }
    }

    pub fn text(status: u16, content_type: &'static str, text: impl Into<Bytes>) -> Reply {
        Reply {
            status,
            headers: vec![(CONTENT_TYPE, HeaderValue::from_static(content_type))],
            body: Body::Full(text.into()),
            timing: Timing::default(),
        }
    }

    /// A response with bytes that the server has in memory anyway.
    pub fn of_static(content_type: &'static str, text: impl Into<Bytes>) -> Reply {
        let mut reply = Reply::text(200, content_type, Bytes::new());
        reply.body = Body::Static(text.into());
        reply
    }

    pub fn stream(content_type: HeaderValue, pieces: Pieces) -> Reply {
        Reply {
            status: 200,
            headers: vec![(CONTENT_TYPE, content_type)],
            body: Body::Stream(pieces),
            timing: Timing::default(),
        }
    }

    pub fn header(mut self, name: HeaderName, value: &str) -> Reply {
        // A value that cannot be a header (control characters in a made-up revision) is left out.
        if let Ok(v) = HeaderValue::from_str(value) {
            self.headers.push((name, v));
        }
        self
    }

    pub fn etag(self, value: &str) -> Reply {
        self.header(ETAG, &format!("\"{value}\""))
    }

    pub fn location(self, url: &str) -> Reply {
        self.header(LOCATION, url)
    }
}

impl From<ApiError> for Reply {
    fn from(e: ApiError) -> Reply {
        let mut reply = Reply::json(e.status, &e.to_json());
        reply.headers.extend(e.headers);
        reply
    }
}
