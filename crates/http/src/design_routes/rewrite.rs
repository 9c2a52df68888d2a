//! Targets of rewrites, and those that the result of a rewrite function means.

use bytes::Bytes;
use hyper::header::{
    AUTHORIZATION, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, COOKIE, EXPECT, HOST, HeaderName,
    ORIGIN, REFERER, TRANSFER_ENCODING, UPGRADE,
};
use serde_json::{Map, Value};

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
/// the message.
pub fn is_the_clients(name: &HeaderName) -> bool {
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
    OWN.contains(name) || prefixes.iter().any(|prefix| name_text.starts_with(prefix))
}

/// The result of a rewrite function.
pub enum Led {
    /// The function has no rule for this request.
    Nowhere,
    Forward(Target),
    Respond(Reply),
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

/// The meaning of a rewrite function's reply: `["ok", {…}]` or `["no_dispatch_rule"]`. `policy` as
/// for other functions' responses.
pub fn of_function(
    base: Base<'_>,
    query: &Query,
    reply: &[u8],
    policy: Option<&str>,
) -> Result<Led, ApiError> {
    let reply: Vec<Value> = serde_json::from_slice(reply).map_err(|_| broken("bad rewrite"))?;
    let rewrite = match (reply.first().and_then(Value::as_str), reply.get(1)) {
        (Some("no_dispatch_rule"), None) => return Ok(Led::Nowhere),
        (Some("ok"), Some(Value::Object(rewrite))) => rewrite,
        _ => return Err(broken("bad rewrite")),
    };
    let method = text(rewrite, "method")?;
    let path = text(rewrite, "path")?;
    let body = text(rewrite, "body")?.map(|b| Bytes::copy_from_slice(b.as_bytes()));
    let headers = texts(rewrite, "headers")?;
    let new_query = texts(rewrite, "query")?;
    if let Some(code) = code(rewrite)? {
        let empty = Map::new();
        let headers = headers.unwrap_or(&empty);
        let reply = response::of_rewrite(code, headers, body.unwrap_or_default(), policy)?;
        return Ok(Led::Respond(reply));
    }
    let path = path.ok_or_else(|| broken("Rewrite result must produce a new path."))?;
    let parameters: Vec<(&str, &str)> = match new_query {
        Some(query) => pairs(query).collect(),
        None => query.0.iter().map(|(k, v)| (&**k, &**v)).collect(),
    };
    Ok(Led::Forward(Target {
        uri: function_uri(base, path, &parameters),
        method: method.map(str::to_owned),
        headers: headers
            .into_iter()
            .flat_map(pairs)
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect(),
        body,
    }))
}

fn pairs(object: &Map<String, Value>) -> impl Iterator<Item = (&str, &str)> {
    // `texts` has refused everything but strings.
    object
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str().unwrap_or_default()))
}

/// A function's path is encoded already, and relative to its design document even with a slash before it.
fn function_uri(base: Base<'_>, path: &str, pairs: &[(&str, &str)]) -> String {
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
        encode_into(name, &mut uri);
        uri.push('=');
        encode_into(value, &mut uri);
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

fn text<'r>(rewrite: &'r Map<String, Value>, name: &str) -> Result<Option<&'r str>, ApiError> {
    match rewrite.get(name) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(broken(format!("bad {name}"))),
    }
}

fn texts<'r>(
    rewrite: &'r Map<String, Value>,
    name: &str,
) -> Result<Option<&'r Map<String, Value>>, ApiError> {
    let Some(value) = rewrite.get(name) else {
        return Ok(None);
    };
    let Value::Object(object) = value else {
        return Err(broken(format!("bad {name}")));
    };
    match object.iter().find(|(_, v)| !v.is_string()) {
        Some((key, value)) => Err(broken(format!(
            "object key/value must be strings {key}={value}"
        ))),
        None => Ok(Some(object)),
    }
}

fn code(rewrite: &Map<String, Value>) -> Result<Option<u16>, ApiError> {
    let Some(value) = rewrite.get("code") else {
        return Ok(None);
    };
    match value.as_u64() {
        Some(code @ 200..600) => Ok(Some(code as u16)),
        _ => Err(broken("bad code")),
    }
}

#[cfg(test)]
mod tests;
