//! Targets of a design document's `rewrites`: an array of rules, or the result of a rewrite
//! function.
//!
//! A rule's `from` and `to` are paths relative to the design document; a segment `:name` is a variable, a last `*` is the
//! rest of the path. Variables come from the path, then from the query; all of them become query parameters of the target.

use bytes::Bytes;
use hyper::header::{
    AUTHORIZATION, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, COOKIE, EXPECT, HOST, HeaderName,
    ORIGIN, REFERER, TRANSFER_ENCODING, UPGRADE,
};
use serde_json::{Map, Value};

use super::response;
use crate::errors::ApiError;
use crate::reply::Reply;
use node::{Query, encode_into, parse_json};

/// Most `..` in a rule's `to`: enough to reach the database, unless `[chttpd] secure_rewrites` is
/// false.
const PARENTS_MAX: usize = 2;

/// Query parameters that are JSON.
const JSON_PARAMETERS: [&str; 6] = ["key", "startkey", "start_key", "endkey", "end_key", "keys"];

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

fn broken(reason: impl Into<std::borrow::Cow<'static, str>>) -> ApiError {
    ApiError::new(500, "rewrite_error", reason)
}

// ---- rules

#[derive(Debug, PartialEq)]
enum Part {
    Literal(String),
    Variable(String),
    Rest,
}

struct Rule<'a> {
    method: Option<&'a str>,
    from: Vec<Part>,
    to: Vec<Part>,
    query: Option<&'a Map<String, Value>>,
    formats: Option<&'a Map<String, Value>>,
}

/// Variables and their values, the first of a name counting.
type Bindings = Vec<(String, Value)>;

/// The target of the first rule that matches, or `None`. One invalid rule makes all of them fail,
/// as in CouchDB. `path` are the decoded segments after `_rewrite`.
pub fn apply(
    base: Base<'_>,
    rules: &[Value],
    method: &str,
    path: &[String],
    query: &Query,
) -> Result<Option<Target>, ApiError> {
    let rules = rules
        .iter()
        .filter_map(Value::as_object)
        .map(|rule| Rule::parse(rule, base.secure))
        .collect::<Result<Vec<_>, _>>()?;
    for rule in &rules {
        if rule.method.is_some_and(|m| m != method) {
            continue;
        }
        let Some((mut bindings, rest)) = bind(&rule.from, path) else {
            continue;
        };
        bindings.extend(query_bindings(query)?);
        return Ok(Some(rule.target(base, bindings, rest)));
    }
    Ok(None)
}

impl<'a> Rule<'a> {
    fn parse(rule: &'a Map<String, Value>, secure: bool) -> Result<Rule<'a>, ApiError> {
        let text = |name: &str| match rule.get(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.as_str())),
            Some(_) => Err(broken(format!(
                "`{name}` of a rewrite rule must be a string"
            ))),
        };
        let object = |name: &str| match rule.get(name) {
            None => Ok(None),
            Some(Value::Object(object)) => Ok(Some(object)),
            Some(_) => Err(broken(format!(
                "`{name}` of a rewrite rule must be an object"
            ))),
        };
        let to = parse_path(text("to")?.ok_or_else(|| broken("invalid_rewrite_target"))?);
        let parents = |p: &&Part| matches!(p, Part::Literal(t) if t == "..");
        if secure && to.iter().filter(parents).count() > PARENTS_MAX {
            return Err(ApiError::new(
                500,
                "insecure_rewrite_rule",
                "too many ../.. segments",
            ));
        }
        Ok(Rule {
            method: text("method")?.filter(|m| *m != "*"),
            from: text("from")?.map_or_else(|| vec![Part::Rest], parse_path),
            to,
            query: object("query")?,
            formats: object("formats")?,
        })
    }

    fn target(&self, base: Base<'_>, bindings: Bindings, rest: &[String]) -> Target {
        let mut given: Bindings = vec![];
        for (name, value) in self.query.into_iter().flatten() {
            given.push((name.clone(), self.fill(value, &bindings)));
        }
        let mut all: Bindings = bindings
            .into_iter()
            .filter(|(name, _)| find(&given, name).is_none())
            .collect();
        all.extend(given.into_iter().rev());
        let mut uri = path_to(base, &self.to, &all, rest);
        let mut separator = '?';
        for (name, value) in all.iter().rev().filter(|(name, _)| name != "*") {
            uri.push(separator);
            encode_into(name, &mut uri);
            uri.push('=');
            encode_into(&parameter(name, value), &mut uri);
            separator = '&';
        }
        Target {
            uri,
            ..Target::default()
        }
    }

    /// A value of the rule's `query` with its variables filled in: the value itself, or elements of an array.
    fn fill(&self, value: &Value, bindings: &Bindings) -> Value {
        match value {
            Value::String(text) if text == "*" => self.variable("*", bindings, value),
            Value::String(text) => match text.strip_prefix(':') {
                Some(name) => self.variable(name, bindings, value),
                None => value.clone(),
            },
            Value::Array(elements) => elements
                .iter()
                .map(|e| match e.as_str().and_then(|t| t.strip_prefix(':')) {
                    Some(name) => self.variable(name, bindings, e),
                    None => e.clone(),
                })
                .collect(),
            other => other.clone(),
        }
    }

    fn variable(&self, name: &str, bindings: &Bindings, otherwise: &Value) -> Value {
        let value = find(bindings, name).unwrap_or(otherwise);
        let Some(text) = value.as_str() else {
            return value.clone();
        };
        let format = self.formats.and_then(|f| f.get(name));
        let formatted = match format.and_then(Value::as_str) {
            Some("int") => text.parse::<i64>().ok().map(Value::from),
            Some("bool") => text.to_ascii_lowercase().parse().ok().map(Value::Bool),
            _ => None,
        };
        formatted.unwrap_or_else(|| value.clone())
    }
}

fn parse_path(path: &str) -> Vec<Part> {
    path.split('/')
        .filter(|s| !s.is_empty())
        .map(|s| match s.strip_prefix(':') {
            _ if s == "*" => Part::Rest,
            Some(name) => Part::Variable(name.to_owned()),
            None => Part::Literal(s.to_owned()),
        })
        .collect()
}

/// Variables of the path, the later ones first, and the segments that a final `*` matches.
fn bind<'p>(from: &[Part], path: &'p [String]) -> Option<(Bindings, &'p [String])> {
    let mut bindings = vec![];
    let mut rest = path;
    for (i, part) in from.iter().enumerate() {
        if *part == Part::Rest && i + 1 == from.len() {
            bindings.reverse();
            return Some((bindings, rest));
        }
        let (first, after) = rest.split_first()?;
        match part {
            Part::Literal(text) if text == first => {}
            Part::Literal(_) => return None,
            Part::Variable(name) => bindings.push((name.clone(), first.as_str().into())),
            Part::Rest => bindings.push(("*".to_owned(), first.as_str().into())),
        }
        rest = after;
    }
    bindings.reverse();
    rest.is_empty().then_some((bindings, rest))
}

fn query_bindings(query: &Query) -> Result<Bindings, ApiError> {
    query
        .0
        .iter()
        .map(|(name, text)| {
            let value = if JSON_PARAMETERS.contains(&name.as_str()) {
                parse_json(text)?
            } else {
                text.as_str().into()
            };
            Ok((name.clone(), value))
        })
        .collect()
}

fn find<'b>(bindings: &'b Bindings, name: &str) -> Option<&'b Value> {
    bindings.iter().find(|(n, _)| n == name).map(|(_, v)| v)
}

/// A value as text: a string is itself, anything else its JSON.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn parameter(name: &str, value: &Value) -> String {
    if JSON_PARAMETERS.contains(&name) {
        value.to_string()
    } else {
        plain(value)
    }
}

/// The path that `to` means. Only `.` and `..` of the rule itself lead upwards, never those that the client sent.
fn path_to(base: Base<'_>, to: &[Part], bindings: &Bindings, rest: &[String]) -> String {
    let mut path = UriPath::of(base);
    for part in to {
        match part {
            Part::Literal(text) => path.step(text),
            Part::Variable(name) => match find(bindings, name) {
                Some(value) => path.push(&plain(value)),
                None => path.push("undefined"),
            },
            Part::Rest => {
                for segment in rest {
                    path.push(segment);
                }
                break;
            }
        }
    }
    path.uri()
}

/// Encoded segments of a path.
struct UriPath(Vec<String>);

impl UriPath {
    fn of(base: Base<'_>) -> UriPath {
        let mut path = UriPath(vec![]);
        path.push(base.db);
        path.push("_design");
        path.push(base.design);
        path
    }

    /// A segment that means nothing but itself.
    fn push(&mut self, text: &str) {
        let mut segment = String::new();
        match text {
            "." => segment.push_str("%2E"),
            ".." => segment.push_str("%2E%2E"),
            text => encode_into(text, &mut segment),
        }
        self.0.push(segment);
    }

    /// A segment of a rule.
    fn step(&mut self, text: &str) {
        match text {
            "" | "." => {}
            // Above the root there is nothing to leave.
            ".." => drop(self.0.pop()),
            text => self.push(text),
        }
    }

    fn uri(&self) -> String {
        format!("/{}", self.0.join("/"))
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
            ".." => drop(target.0.pop()),
            segment => target.0.push(escape(segment)),
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
