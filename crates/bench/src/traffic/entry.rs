//! The recording of a request: one line of JSON.
//!
//! The first line is a [`Header`]; each other one is an [`Entry`]. Lines are in the order in which
//! requests ended.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::header::{HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};

/// The version of the written format, and the only one that is read.
const VERSION: u32 = 1;
/// Longest body that is recorded, in bytes.
pub(super) const BODY_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Latest time of a request after the recording's beginning: a year. Later ones are damage.
const AT_US_MAX: u64 = 366 * 86_400 * 1_000_000;

/// Request headers that are kept. None carries credentials, and no other header is kept or sent.
pub(super) const HEADERS: [&str; 8] = [
    "accept",
    "accept-encoding",
    "content-type",
    "destination",
    "if-match",
    "if-none-match",
    "range",
    "x-couch-full-commit",
];

/// Why a recording cannot be written or replayed.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// The file cannot be read or written.
    #[error("{path}: {source}")]
    File {
        /// Its path.
        path: String,
        /// The operating system's reason.
        source: std::io::Error,
    },
    /// The file is not a recording, or of another version.
    #[error("{path}: {reason}")]
    NoRecording {
        /// Its path.
        path: String,
        /// The missing part.
        reason: String,
    },
    /// A line that is damaged.
    #[error("{path}, line {line}: {reason}")]
    Damaged {
        /// The file's path.
        path: String,
        /// The line's number, from 1.
        line: u64,
        /// The problem with it.
        reason: String,
    },
}

/// The first line of a recording.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Header {
    settee_recording: u32,
    /// When it began, in seconds of Unix time.
    pub(super) started_unix_s: u64,
    /// The server's URL, without credentials.
    pub(super) server: String,
}

impl Header {
    pub(super) fn new(server: &str) -> Self {
        let now = std::time::SystemTime::now();
        let since = now.duration_since(std::time::UNIX_EPOCH);
        Self {
            settee_recording: VERSION,
            started_unix_s: since.map_or(0, |since| since.as_secs()),
            server: server.to_owned(),
        }
    }

    /// Reads a recording's first line.
    pub(super) fn parse(line: &[u8]) -> Result<Self, String> {
        let header: Self = serde_json::from_slice(line)
            .map_err(|_| "this is not a recording of settee bench record".to_owned())?;
        match header.settee_recording {
            VERSION => Ok(header),
            other => Err(format!(
                "a recording of version {other}; {VERSION} is known"
            )),
        }
    }
}

/// A document that an answer named.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Named {
    /// Its id.
    pub(super) id: String,
    /// The revision that was written or read; `None` when the request was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) rev: Option<String>,
}

/// A request and the response of the recorded server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Entry {
    /// When the request came, in microseconds since the recording began.
    pub(super) at_us: u64,
    /// The client's connection, by number.
    pub(super) conn: u64,
    pub(super) method: String,
    /// Path and query, as they came.
    pub(super) path: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) headers: Vec<(String, String)>,
    /// The body, when it is UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    body: Option<String>,
    /// The body in base64, when it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    body_base64: Option<String>,
    pub(super) status: u16,
    /// From the request's head to the end of the answer, in microseconds.
    pub(super) took_us: u64,
    /// The client left before the answer's end.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(super) aborted: bool,
    /// Documents with the revisions that the answer named, in its order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) named: Vec<Named>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_false(value: &bool) -> bool {
    !value
}

impl Entry {
    /// A request that was not answered yet.
    pub(super) fn new(at_us: u64, conn: u64, method: &str, path: &str) -> Self {
        Self {
            at_us,
            conn,
            method: method.to_owned(),
            path: path.to_owned(),
            headers: Vec::new(),
            body: None,
            body_base64: None,
            status: 0,
            took_us: 0,
            aborted: false,
            named: Vec::new(),
        }
    }

    pub(super) fn set_body(&mut self, body: Vec<u8>) {
        match String::from_utf8(body) {
            Ok(text) if text.is_empty() => {}
            Ok(text) => self.body = Some(text),
            Err(error) => self.body_base64 = Some(STANDARD.encode(error.as_bytes())),
        }
    }

    pub(super) fn body(&self) -> Result<Vec<u8>, String> {
        match (&self.body, &self.body_base64) {
            (Some(text), _) => Ok(text.clone().into_bytes()),
            (None, Some(text)) => STANDARD
                .decode(text)
                .map_err(|error| format!("body_base64 is not base64: {error}")),
            (None, None) => Ok(Vec::new()),
        }
    }

    /// Reads a line. Refuses requests that could not be sent as one HTTP request.
    pub(super) fn parse(line: &[u8]) -> Result<Self, String> {
        let entry: Self = serde_json::from_slice(line).map_err(|error| error.to_string())?;
        entry.check()?;
        Ok(entry)
    }

    fn check(&self) -> Result<(), String> {
        let method = hyper::Method::from_bytes(self.method.as_bytes());
        if method.is_err() || self.method == "CONNECT" {
            return Err(format!("{:?} is not a method", self.method));
        }
        let path: Result<hyper::http::uri::PathAndQuery, _> = self.path.parse();
        if !self.path.starts_with('/') || path.is_err() {
            return Err(format!("{:?} is not a path", self.path));
        }
        for (name, value) in &self.headers {
            let known = HeaderName::from_bytes(name.as_bytes());
            if known.is_err() || HeaderValue::from_str(value).is_err() {
                return Err(format!("{name:?}: {value:?} is not a header"));
            }
        }
        if self.at_us > AT_US_MAX {
            return Err(format!("at_us is {}, more than a year", self.at_us));
        }
        self.body().map(drop)
    }

    /// The database at the start of the path, percent-decoded; `None` for the server's own routes.
    pub(super) fn database(&self) -> Option<String> {
        let path = self.path.split('?').next().unwrap_or_default();
        let first = path.split('/').find(|segment| !segment.is_empty())?;
        let decoded = percent_encoding::percent_decode_str(first).decode_utf8_lossy();
        // `_users` and its like are databases too.
        Some(decoded.into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> Entry {
        Entry::new(5, 1, "PUT", "/db/a?rev=1-x")
    }

    #[test]
    fn text_and_other_bytes_come_back_as_they_were() {
        for body in [&b""[..], b"{\"a\":\"\xc3\xa4\"}", b"\xff\x00\x80"] {
            let mut written = entry();
            written.set_body(body.to_vec());
            let line = serde_json::to_vec(&written).unwrap();
            let read = Entry::parse(&line).unwrap();
            assert_eq!(read, written);
            assert_eq!(read.body().unwrap(), body);
        }
    }

    #[test]
    fn a_line_that_is_no_request_is_refused() {
        type Change = fn(&mut Entry);
        let changes: [(&str, Change); 7] = [
            ("is not a path", |e| e.path = "db/a".to_owned()),
            ("is not a path", |e| {
                e.path = "/db HTTP/1.1\r\nX: y".to_owned()
            }),
            ("is not a method", |e| e.method = "PUT /x".to_owned()),
            ("is not a method", |e| e.method = "CONNECT".to_owned()),
            ("is not a header", |e| {
                e.headers = vec![("range".to_owned(), "a\r\nb: c".to_owned())]
            }),
            ("more than a year", |e| e.at_us = u64::MAX),
            ("not base64", |e| e.body_base64 = Some("?".to_owned())),
        ];
        for (reason, change) in changes {
            let mut damaged = entry();
            change(&mut damaged);
            let line = serde_json::to_vec(&damaged).unwrap();
            let error = Entry::parse(&line).unwrap_err();
            assert!(error.contains(reason), "{reason}: {error}");
        }
    }

    #[test]
    fn another_version_is_named() {
        let header = br#"{"settee_recording":2,"started_unix_s":1,"server":"http://a"}"#;
        assert!(Header::parse(header).unwrap_err().contains("version 2"));
        assert!(Header::parse(b"{\"at_us\":1}").is_err());
        let own = serde_json::to_vec(&Header::new("http://a")).unwrap();
        assert_eq!(Header::parse(&own).unwrap().server, "http://a");
    }
}
