//! From the response object of a show, list, update or rewrite function to a reply.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use hyper::header::{
    CONNECTION, CONTENT_LENGTH, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, HeaderName,
    HeaderValue, SET_COOKIE, TE, TRAILER, TRANSFER_ENCODING, UPGRADE, VARY,
};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::errors::ApiError;
use crate::reply::{Body, Reply, Timing};

/// Headers that frame the message; they are the server's.
const FRAMING: [HeaderName; 6] = [
    CONNECTION,
    CONTENT_LENGTH,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// Headers with which one answer speaks for the whole server.
const WHOLE_SERVER: [&str; 21] = [
    "accept-ch",
    "access-control-allow-credentials",
    "activate-storage-access",
    "alt-svc",
    "clear-site-data",
    "critical-ch",
    "date",
    "keep-alive",
    "nel",
    "origin-agent-cluster",
    "proxy-authenticate",
    "proxy-connection",
    "public-key-pins",
    "report-to",
    "reporting-endpoints",
    "server",
    "service-worker-allowed",
    "set-login",
    "strict-transport-security",
    "supports-loading-mode",
    "use-as-dictionary",
];

/// Status and headers of a function's response.
#[derive(Debug, PartialEq, Eq)]
pub struct Head {
    pub status: u16,
    pub headers: Vec<(HeaderName, HeaderValue)>,
}

impl Head {
    fn set(&mut self, name: HeaderName, value: &str) {
        self.headers.retain(|(n, _)| *n != name);
        if let Ok(value) = HeaderValue::from_str(value) {
            self.headers.push((name, value));
        }
    }

    /// The ETag is the server's, because it is compared before the function runs.
    fn tag(&mut self, etag: &str) {
        self.set(ETAG, &format!("\"{etag}\""));
        self.set(VARY, "Accept");
    }

    /// Restricts a browser's use of a function's output: scripts in it do not have the server's
    /// origin.
    fn guard(&mut self, policy: Option<&str>) {
        if let Some(policy) = policy {
            self.set(CONTENT_SECURITY_POLICY, policy);
        }
    }

    fn default_type(&mut self, content_type: &'static str) {
        if !self.headers.iter().any(|(n, _)| *n == CONTENT_TYPE) {
            self.headers
                .push((CONTENT_TYPE, HeaderValue::from_static(content_type)));
        }
    }

    pub fn with_body(self, body: Body) -> Reply {
        Reply {
            status: self.status,
            headers: self.headers,
            body,
            timing: Timing::default(),
        }
    }
}

fn invalid(what: impl std::fmt::Display) -> ApiError {
    ApiError::new(
        500,
        "external_response_error",
        format!("Invalid data from external server: {what}"),
    )
}

fn unexpected(reply: &[u8]) -> ApiError {
    let text = String::from_utf8_lossy(&reply[..reply.len().min(200)]).into_owned();
    invalid(text)
}

/// Takes a response object apart. `policy` is the Content-Security-Policy of everything that a function made
/// (`[csp] showlist_header_value`, unless `showlist_enable` is false).
fn parse(response: &Map<String, Value>, policy: Option<&str>) -> Result<(Head, Bytes), ApiError> {
    let mut head = Head {
        status: 200,
        headers: vec![],
    };
    let mut content_type = "application/json";
    let mut data = Bytes::new();
    let mut json = None;
    for (name, value) in response {
        match (name.as_str(), value) {
            ("", _) | ("stop", Value::Bool(true)) => {}
            ("code", code) => head.status = status(code)?,
            ("json", value) => {
                json = Some(value);
                content_type = "application/json";
            }
            ("body", Value::String(text)) => {
                data = text.clone().into();
                content_type = "text/html; charset=utf-8";
            }
            ("base64", Value::String(text)) => {
                data = STANDARD
                    .decode(text.trim())
                    .map_err(|_| invalid("base64 that cannot be decoded"))?
                    .into();
                content_type = "application/binary";
            }
            ("headers", Value::Object(headers)) => head.headers = parse_headers(headers)?,
            (name, value) => return Err(invalid(format_args!("{name}: {value}"))),
        }
    }
    if let Some(value) = json {
        data = format!("{value}\n").into();
    }
    head.default_type(content_type);
    head.guard(policy);
    Ok((head, data))
}

/// Reads a final status; functions may not send 1xx. CouchDB copies a text into the status line, so
/// that `"400"` and `"400 Bad Request"` are statuses too.
fn status(code: &Value) -> Result<u16, ApiError> {
    let number = match code {
        Value::String(line) => {
            let digits = line
                .split_once(' ')
                .map_or(line.as_str(), |(digits, _)| digits);
            let is_number = digits.bytes().all(|b| b.is_ascii_digit());
            digits.parse().ok().filter(|_| is_number)
        }
        code => code.as_f64(),
    };
    number
        .filter(|c| c.fract() == 0.0 && (200.0..1000.0).contains(c))
        .map(|c| c as u16)
        .ok_or_else(|| invalid(format_args!("code: {code}")))
}

/// Whether functions may not send a header: it frames the message, or applies to the whole server
/// (sessions, service workers, access by pages of other origins).
fn is_the_servers(name: &HeaderName, value: &HeaderValue) -> bool {
    FRAMING.contains(name)
        || WHOLE_SERVER.contains(&name.as_str())
        || *name == SET_COOKIE && sets_session(value.as_bytes())
}

/// Whether a `Set-Cookie` sets the session's cookie, as any browser may read it: one without a name is sent as its value alone.
fn sets_session(cookie: &[u8]) -> bool {
    let pair = cookie.split(|b| *b == b';').next().unwrap_or_default();
    let name = pair.split(|b| *b == b'=').next().unwrap_or_default();
    let name = name.trim_ascii();
    name.is_empty() || name.len() == pair.len() || name.eq_ignore_ascii_case(b"AuthSession")
}

fn parse_headers(headers: &Map<String, Value>) -> Result<Vec<(HeaderName, HeaderValue)>, ApiError> {
    let mut parsed = Vec::with_capacity(headers.len());
    for (name, value) in headers {
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Number(_) | Value::Bool(_) | Value::Null => value.to_string(),
            other => return Err(invalid(format_args!("header {name}: {other}"))),
        };
        let pair = (
            HeaderName::from_bytes(name.as_bytes()),
            HeaderValue::from_bytes(text.as_bytes()),
        );
        let (Ok(name), Ok(value)) = pair else {
            return Err(invalid(format_args!("header {name}: {value}")));
        };
        if !is_the_servers(&name, &value) {
            parsed.push((name, value));
        }
    }
    Ok(parsed)
}

/// The reply to a show: `reply` is the query server's `["resp", {…}]`.
pub fn show(reply: &[u8], etag: &str, policy: Option<&str>) -> Result<Reply, ApiError> {
    let (kind, response): (String, Map<String, Value>) =
        serde_json::from_slice(reply).map_err(|_| unexpected(reply))?;
    if kind != "resp" {
        return Err(unexpected(reply));
    }
    let (mut head, body) = parse(&response, policy)?;
    head.tag(etag);
    Ok(head.with_body(Body::Full(body)))
}

/// The head of a list's reply, from the argument of `start`.
pub fn list(response: &[u8], etag: &str, policy: Option<&str>) -> Result<Head, ApiError> {
    let response: Map<String, Value> =
        serde_json::from_slice(response).map_err(|_| unexpected(response))?;
    let (mut head, _) = parse(&response, policy)?;
    head.tag(etag);
    Ok(head)
}

/// The result of an update function.
#[derive(Debug)]
pub struct Update {
    /// The document to save, as the function gave it.
    pub doc: Option<Box<RawValue>>,
    response: Map<String, Value>,
}

/// The outcome of writing an update function's document.
#[derive(Clone, Copy, Debug)]
pub struct Saved<'a> {
    pub id: &'a str,
    pub rev: &'a str,
    /// 201, or 202 when it is not safe yet.
    pub status: u16,
}

impl Update {
    /// Parses the query server's `["up", doc, {…}]`; a document must be an object.
    pub fn parse(reply: &[u8]) -> Result<Update, ApiError> {
        let (kind, doc, response): (String, Box<RawValue>, Map<String, Value>) =
            serde_json::from_slice(reply).map_err(|_| unexpected(reply))?;
        if kind != "up" {
            return Err(unexpected(reply));
        }
        let doc = Some(doc).filter(|d| d.get().starts_with('{'));
        Ok(Update { doc, response })
    }

    /// The reply, after the document was saved when there is one. The function's own code comes before 201.
    pub fn reply(&self, saved: Option<Saved<'_>>, policy: Option<&str>) -> Result<Reply, ApiError> {
        let (mut head, body) = parse(&self.response, policy)?;
        if let Some(saved) = saved {
            if !self.response.contains_key("code") {
                head.status = saved.status;
            }
            let mut id = String::new();
            node::encode_into(saved.id, &mut id);
            head.set(HeaderName::from_static("x-couch-update-newrev"), saved.rev);
            head.set(HeaderName::from_static("x-couch-id"), &id);
        }
        Ok(head.with_body(Body::Full(body)))
    }
}

/// The reply of a rewrite function that answers without a target.
pub(super) fn of_rewrite(
    code: u16,
    headers: &Map<String, Value>,
    body: Bytes,
    policy: Option<&str>,
) -> Result<Reply, ApiError> {
    let mut head = Head {
        status: code,
        headers: parse_headers(headers)?,
    };
    head.guard(policy);
    Ok(head.with_body(Body::Full(body)))
}

/// Distinguishes the answers of a show or list: the function, its arguments, and the user.
pub fn etag(parts: &[&str], user: &auth::UserCtx) -> String {
    use std::hash::{Hash, Hasher};
    let mut hasher = std::hash::DefaultHasher::new();
    parts.hash(&mut hasher);
    user.name.hash(&mut hasher);
    user.roles.hash(&mut hasher);
    format!("{:016X}", hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    type Headers = Vec<(String, String)>;

    fn shown(response: Value) -> Result<(u16, Headers, Vec<u8>), ApiError> {
        let reply = show(json!(["resp", response]).to_string().as_bytes(), "e", None)?;
        Ok(parts(reply))
    }

    fn parts(reply: Reply) -> (u16, Headers, Vec<u8>) {
        let headers = reply
            .headers
            .iter()
            .map(|(n, v)| {
                (
                    n.to_string(),
                    String::from_utf8_lossy(v.as_bytes()).into_owned(),
                )
            })
            .collect();
        let Body::Full(body) = reply.body else {
            panic!("a function's body is whole");
        };
        (reply.status, headers, body.to_vec())
    }

    fn header<'a>(headers: &'a [(String, String)], name: &str) -> Option<&'a str> {
        headers
            .iter()
            .find(|(n, _)| n == name)
            .map(|(_, v)| v.as_str())
    }

    #[test]
    fn the_body_decides_the_default_type() {
        let cases = [
            (
                json!({"body": "<b>"}),
                "text/html; charset=utf-8",
                &b"<b>"[..],
            ),
            (
                json!({"json": {"a": 1.0}}),
                "application/json",
                b"{\"a\":1.0}\n",
            ),
            (
                json!({"base64": "aGVsbG8="}),
                "application/binary",
                b"hello",
            ),
            (json!({}), "application/json", b""),
            (
                json!({"json": 1, "body": "x"}),
                "text/html; charset=utf-8",
                b"1\n",
            ),
        ];
        for (response, content_type, expected) in cases {
            let (status, headers, body) = shown(response.clone()).unwrap();
            assert_eq!(
                (status, header(&headers, "content-type"), &body[..]),
                (200, Some(content_type), expected),
                "{response}"
            );
        }
    }

    #[test]
    fn the_functions_own_type_and_code_win() {
        let response = json!({"code": 418, "headers": {"content-type": "text/x-tea", "X-N": 5}, "body": "tea"});
        let (status, headers, body) = shown(response).unwrap();
        assert_eq!(status, 418);
        assert_eq!(header(&headers, "content-type"), Some("text/x-tea"));
        assert_eq!(header(&headers, "x-n"), Some("5"));
        assert_eq!(body, b"tea");
    }

    #[test]
    fn a_code_may_be_text_and_a_header_any_plain_value() {
        for code in ["404", "404 No such thing"] {
            assert_eq!(shown(json!({"code": code})).unwrap().0, 404, "{code}");
        }
        let headers = json!({"A": true, "B": false, "C": null, "D": 1.5, "E": -3});
        let (_, headers, _) = shown(json!({"headers": headers})).unwrap();
        let text = |name| header(&headers, name);
        assert_eq!([text("a"), text("b")], [Some("true"), Some("false")]);
        assert_eq!([text("c"), text("d")], [Some("null"), Some("1.5")]);
        assert_eq!(text("e"), Some("-3"));
    }

    #[test]
    fn etag_and_vary_are_the_servers() {
        let response = json!({"headers": {"Etag": "mine", "vary": "Cookie"}, "body": "x"});
        let (_, headers, _) = shown(response).unwrap();
        assert_eq!(header(&headers, "etag"), Some("\"e\""));
        assert_eq!(header(&headers, "vary"), Some("Accept"));
        assert_eq!(headers.iter().filter(|(n, _)| n == "etag").count(), 1);
    }

    #[test]
    fn a_function_cannot_break_the_message() {
        let framing = json!({"headers": {"Content-Length": "5", "Transfer-Encoding": "chunked", "X": "y"}, "body": "x"});
        let (_, headers, _) = shown(framing).unwrap();
        assert_eq!(header(&headers, "content-length"), None);
        assert_eq!(header(&headers, "transfer-encoding"), None);
        assert_eq!(header(&headers, "x"), Some("y"));
        for refused in [
            json!({"headers": {"X": "a\r\nSet-Cookie: b"}}),
            json!({"headers": {"X Y": "a"}}),
            json!({"headers": {"X": {}}}),
            json!({"headers": []}),
            json!({"code": 99}),
            json!({"code": 100}),
            json!({"code": 1e9}),
            json!({"code": "OK"}),
            json!({"code": "99"}),
            json!({"code": "+200"}),
            json!({"code": ""}),
            json!({"code": 200.5}),
            json!({"base64": "%%"}),
            json!({"body": {}}),
            json!({"stop": false}),
            json!({"unknown": 1}),
        ] {
            let e = shown(refused.clone()).unwrap_err();
            assert_eq!(
                (e.status, &*e.error),
                (500, "external_response_error"),
                "{refused}"
            );
        }
        let e = shown(json!({"unknown": 1})).unwrap_err();
        assert_eq!(e.reason, "Invalid data from external server: unknown: 1");
    }

    #[test]
    fn a_reply_of_another_kind_is_refused() {
        for reply in [
            &b"[\"up\",{}]"[..],
            b"[\"resp\"]",
            b"[\"resp\",[]]",
            b"1",
            b"",
            "é".repeat(300).as_bytes(),
        ] {
            assert!(show(reply, "e", None).is_err());
        }
    }

    #[test]
    fn a_saved_document_is_a_201_with_its_revision() {
        let update = Update::parse(br#"["up",{"_id":"a/b","n":1.0},{"body":"created"}]"#).unwrap();
        assert_eq!(
            update.doc.as_ref().map(|d| d.get()),
            Some(r#"{"_id":"a/b","n":1.0}"#)
        );
        let saved = Saved {
            id: "a/b",
            rev: "1-x",
            status: 201,
        };
        let (status, headers, body) = parts(update.reply(Some(saved), Some("sandbox")).unwrap());
        assert_eq!((status, &body[..]), (201, &b"created"[..]));
        assert_eq!(header(&headers, "x-couch-update-newrev"), Some("1-x"));
        assert_eq!(header(&headers, "x-couch-id"), Some("a%2Fb"));
        assert_eq!(header(&headers, "content-security-policy"), Some("sandbox"));
    }

    #[test]
    fn no_document_is_a_200_and_the_functions_code_wins() {
        let update = Update::parse(br#"["up",null,{"body":"hello"}]"#).unwrap();
        assert!(update.doc.is_none());
        assert_eq!(parts(update.reply(None, None).unwrap()).0, 200);
        let update = Update::parse(br#"["up",{"_id":"a"},{"code":202,"body":"x"}]"#).unwrap();
        let saved = Saved {
            id: "a",
            rev: "1-x",
            status: 201,
        };
        assert_eq!(parts(update.reply(Some(saved), None).unwrap()).0, 202);
    }

    #[test]
    fn a_list_starts_with_its_head() {
        let head = list(
            br#"{"code":302,"headers":{"Location":"/x"}}"#,
            "e",
            Some("sandbox"),
        )
        .unwrap();
        assert_eq!(head.status, 302);
        assert!(
            head.headers
                .contains(&(hyper::header::LOCATION, HeaderValue::from_static("/x")))
        );
        assert!(
            head.headers
                .contains(&(CONTENT_TYPE, HeaderValue::from_static("application/json")))
        );
    }

    #[test]
    fn an_etag_depends_on_the_user() {
        let joe = auth::UserCtx::admin("joe");
        let nobody = auth::UserCtx::anonymous();
        assert_ne!(etag(&["1-a", "x"], &joe), etag(&["1-a", "x"], &nobody));
        assert_ne!(etag(&["1-a", "x"], &joe), etag(&["1-ax", ""], &joe));
        assert_eq!(etag(&["1-a"], &joe), etag(&["1-a"], &joe));
    }
}
