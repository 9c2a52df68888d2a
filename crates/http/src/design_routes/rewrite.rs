//! Targets of rewrites, and those that the result of a rewrite function means.

use bytes::Bytes;
use hyper::header::{
    AUTHORIZATION, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, COOKIE, EXPECT, HOST, HeaderName,
    ORIGIN, REFERER, TRANSFER_ENCODING, UPGRADE,
};
use serde_json::value::RawValue;

use super::object::{Members, cut, quoted, text};
use super::response;
use crate::errors::ApiError;
use crate::reply::Reply;
use node::{Query, encode_into};

/// The design document of the rewrites.
#[derive(Clone, Copy, Debug)]
pub struct Base<'a> {
    pub db: &'a str,
    /// Name of the design document, without `_design/`.
    pub design: &'a str,
    /// `[chttpd] secure_rewrites`.
    pub secure: bool,
}

/// A request that replaces the client's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// Path and query, encoded.
    pub uri: String,
    /// Changes of a rewrite function besides the path; `None` and empty where the request stays
    /// unchanged.
    pub method: Option<String>,
    pub headers: Vec<(String, String)>,
    pub body: Option<Bytes>,
}

/// Whether only the client or a proxy may set a header: the user, the address, and the framing of
/// the message. `login`: the headers in which a proxy names the user.
pub fn is_the_clients(name: &HeaderName, login: &[HeaderName]) -> bool {
    const OWN: [HeaderName; 11] = [
        AUTHORIZATION,
        CONNECTION,
        CONTENT_ENCODING,
        CONTENT_LENGTH,
        COOKIE,
        EXPECT,
        HOST,
        ORIGIN,
        REFERER,
        TRANSFER_ENCODING,
        UPGRADE,
    ];
    let name_text = name.as_str();
    let prefixes = [
        "x-forwarded-",
        "x-auth-",
        "x-couch",
        "x-settee-",
        "access-control-",
        "proxy-",
        "sec-",
    ];
    OWN.contains(name)
        || login.contains(name)
        || prefixes.iter().any(|prefix| name_text.starts_with(prefix))
}

/// Refuses a request that was rewritten `done` times already (`[chttpd] rewrite_limit`).
pub fn check_limit(done: u64, limit: u64) -> Result<(), ApiError> {
    if done < limit {
        Ok(())
    } else {
        Err(ApiError::bad_request("Exceeded rewrite recursion limit"))
    }
}

/// The error of a design document without rewrites, or of a rewrite function without a matching
/// rule.
pub fn no_rules() -> ApiError {
    ApiError::new(404, "rewrite_error", "Invalid path.")
}

/// The error of an invalid rule, or of an invalid reply of a function.
pub fn broken(reason: impl Into<std::borrow::Cow<'static, str>>) -> ApiError {
    ApiError::new(500, "rewrite_error", reason)
}

/// The length of a target, in bytes: each part of a rule may repeat what the client sent, and a function
/// makes any text.
pub const TARGET_BYTES_MAX: usize = 256 << 10;

/// The error of a target that is longer than [`TARGET_BYTES_MAX`].
pub fn too_long() -> ApiError {
    ApiError::new(
        414,
        "too_long",
        format!("A rewrite leads to a target of more than {TARGET_BYTES_MAX} bytes"),
    )
}

/// A path under construction.
#[derive(Default)]
pub struct UriPath {
    /// Encoded.
    segments: Vec<String>,
    /// The length of all segments that were added, in bytes.
    pub bytes: usize,
}

impl UriPath {
    /// The path of the design document.
    pub fn of(base: Base<'_>) -> UriPath {
        let mut path = UriPath::default();
        path.push(base.db);
        path.push("_design");
        path.push(base.design);
        path
    }

    /// A segment that means nothing but itself.
    pub fn push(&mut self, text: &str) {
        let mut segment = String::new();
        match text {
            "." => segment.push_str("%2E"),
            ".." => segment.push_str("%2E%2E"),
            text => encode_into(text, &mut segment),
        }
        self.bytes += segment.len() + 1;
        self.segments.push(segment);
    }

    /// A segment of a rule.
    pub fn step(&mut self, text: &str) {
        match text {
            "" | "." => {}
            // Above the root there is nothing to leave.
            ".." => drop(self.segments.pop()),
            text => self.push(text),
        }
    }

    /// The path as text.
    pub fn uri(&self) -> String {
        format!("/{}", self.segments.join("/"))
    }
}

// ---- functions

/// The meaning of a rewrite function's reply.
pub enum Meaning {
    /// The function has no rule for this request.
    Nowhere,
    Forward(Forward),
    Respond(Reply),
}

/// A request that a rewrite function returns, relative to its design document.
#[derive(Debug)]
pub struct Forward {
    /// The target without its path and query.
    target: Target,
    path: String,
    /// `None` leaves the client's query.
    query: Option<Vec<(String, String)>>,
}

/// Reads a rewrite function's reply: `["ok", {…}]` or `["no_dispatch_rule"]`. `policy` as for other
/// functions' responses.
///
/// # Errors
/// 500 `rewrite_error` for an invalid reply, 414 when its path or query is too long.
pub fn of_function(reply: &[u8], policy: Option<&str>) -> Result<Meaning, ApiError> {
    let bad = || broken("bad rewrite");
    if let Ok((kind,)) = serde_json::from_slice::<(&RawValue,)>(reply) {
        return match kind.get() {
            "\"no_dispatch_rule\"" => Ok(Meaning::Nowhere),
            _ => Err(bad()),
        };
    }
    let (kind, rewrite): (&RawValue, Members<'_>) =
        serde_json::from_slice(reply).map_err(|_| bad())?;
    if kind.get() != "\"ok\"" {
        return Err(bad());
    }
    let method = text_of(&rewrite, "method")?;
    let path = text_of(&rewrite, "path")?;
    let body = text_of(&rewrite, "body")?.map(Bytes::from);
    let raw_headers = rewrite.get("headers");
    if raw_headers.is_some_and(|headers| headers.get().len() > response::HEADERS_BYTES_MAX) {
        return Err(broken("headers are too long"));
    }
    let headers = texts_of(&rewrite, "headers")?.unwrap_or_default();
    if headers.len() > response::HEADERS_MAX {
        return Err(broken("too many headers"));
    }
    if rewrite
        .get("query")
        .is_some_and(|query| query.get().len() > TARGET_BYTES_MAX)
    {
        return Err(too_long());
    }
    let query = texts_of(&rewrite, "query")?;
    if let Some(code) = code(&rewrite)? {
        let headers = match raw_headers {
            Some(headers) => response::parse_headers(headers)?.unwrap_or_default(),
            None => vec![],
        };
        let body = body.unwrap_or_default();
        return Ok(Meaning::Respond(response::of_rewrite(
            code, headers, body, policy,
        )));
    }
    let path = path.ok_or_else(|| broken("Rewrite result must produce a new path."))?;
    if path.len() > TARGET_BYTES_MAX {
        return Err(too_long());
    }
    let uri = String::new();
    Ok(Meaning::Forward(Forward {
        target: Target {
            uri,
            method,
            headers,
            body,
        },
        path,
        query,
    }))
}

impl Forward {
    /// Returns the target; `query` is the client's.
    ///
    /// # Errors
    /// 414 when its URI is too long.
    pub fn target(self, base: Base<'_>, query: &Query) -> Result<Target, ApiError> {
        let uri = match &self.query {
            Some(own) => function_uri(base, &self.path, own),
            None => function_uri(base, &self.path, &query.0),
        };
        if uri.len() > TARGET_BYTES_MAX {
            return Err(too_long());
        }
        Ok(Target { uri, ..self.target })
    }
}

/// A function's path is encoded already, and relative to its design document even with a slash before it.
fn function_uri<K: AsRef<str>, V: AsRef<str>>(
    base: Base<'_>,
    path: &str,
    pairs: &[(K, V)],
) -> String {
    let (path, own_query) = path.split_once('?').unwrap_or((path, ""));
    let mut target = UriPath::of(base);
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            ".." => drop(target.segments.pop()),
            segment => target.segments.push(escape(segment)),
        }
    }
    let mut uri = target.uri();
    let mut separator = '?';
    if !own_query.is_empty() {
        uri.push(separator);
        uri.push_str(&escape(own_query));
        separator = '&';
    }
    for (name, value) in pairs {
        uri.push(separator);
        encode_into(name.as_ref(), &mut uri);
        uri.push('=');
        encode_into(value.as_ref(), &mut uri);
        separator = '&';
    }
    uri
}

/// Encodes characters that URIs may not contain, and keeps the rest unchanged.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_ascii_graphic()
            && !matches!(
                c,
                '#' | '"' | '<' | '>' | '\\' | '^' | '`' | '{' | '|' | '}'
            )
        {
            out.push(c);
        } else {
            encode_into(c.encode_utf8(&mut [0; 4]), &mut out);
        }
    }
    out
}

fn text_of(rewrite: &Members<'_>, name: &str) -> Result<Option<String>, ApiError> {
    match rewrite.get(name) {
        None => Ok(None),
        Some(value) => match text(value) {
            Some(text) => Ok(Some(text)),
            None => Err(broken(format!("bad {name}"))),
        },
    }
}

type Texts = Vec<(String, String)>;

fn texts_of(rewrite: &Members<'_>, name: &str) -> Result<Option<Texts>, ApiError> {
    let Some(value) = rewrite.get(name) else {
        return Ok(None);
    };
    let members = Members::of(value).ok_or_else(|| broken(format!("bad {name}")))?;
    let texts = members.iter().map(|(key, value)| match text(value) {
        Some(text) => Ok((key.to_owned(), text)),
        None => Err(broken(cut(format!(
            "object key/value must be strings {key}={}",
            quoted(value)
        )))),
    });
    texts.collect::<Result<Texts, ApiError>>().map(Some)
}

fn code(rewrite: &Members<'_>) -> Result<Option<u16>, ApiError> {
    let Some(value) = rewrite.get("code") else {
        return Ok(None);
    };
    match serde_json::from_str(value.get()) {
        Ok(code @ 200..600) => Ok(Some(code)),
        _ => Err(broken("bad code")),
    }
}

#[cfg(test)]
mod tests;
