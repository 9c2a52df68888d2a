//! From the response object of a show, list, update or rewrite function to a reply.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use document::{EditDoc, parse_document};
use hyper::header::{
    CONNECTION, CONTENT_LENGTH, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, HeaderName,
    HeaderValue, SET_COOKIE, TE, TRAILER, TRANSFER_ENCODING, UPGRADE, VARY,
};
use serde_json::value::RawValue;

use super::object::{Members, cut, quoted, rewritten, text};
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

/// Headers between this server and others, which act on them.
const OWN_PREFIX: &str = "x-settee-";

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
    let reason = cut(format!("Invalid data from external server: {what}"));
    ApiError::new(500, "external_response_error", reason)
}

fn unexpected(reply: &[u8]) -> ApiError {
    let text = String::from_utf8_lossy(&reply[..reply.len().min(200)]).into_owned();
    invalid(text)
}

/// The longest cookie (name and value) that a function may set with a path, in bytes. The 180 cookies that browsers keep for a
/// server then stay below 16 KiB, the most that HTTP/2 accepts of all headers (38 more bytes count for each).
const COOKIE_WITH_PATH_BYTES_MAX: usize = 40;
/// The length of the JSON text of a response's headers, in bytes, and their number.
pub(super) const HEADERS_BYTES_MAX: usize = 256 << 10;
pub(super) const HEADERS_MAX: usize = 1000;

/// A response of a function.
#[derive(Debug)]
struct Response {
    head: Head,
    body: Bytes,
    /// The function set the status.
    has_code: bool,
}

/// Takes a response object apart. `policy` is the Content-Security-Policy of everything that a function made
/// (`[csp] showlist_header_value`, unless `showlist_enable` is false).
fn parse(response: &Members<'_>, policy: Option<&str>) -> Result<Response, ApiError> {
    let mut head = Head {
        status: 200,
        headers: vec![],
    };
    let mut content_type = "application/json";
    let mut data = Bytes::new();
    let (mut json, mut has_code) = (None, false);
    for (name, value) in response.iter() {
        let unknown = || invalid(format_args!("{name}: {}", quoted(value)));
        match name {
            "" => {}
            "stop" if value.get() == "true" => {}
            "code" => {
                head.status = status(value)?;
                has_code = true;
            }
            "json" => {
                json = Some(value);
                content_type = "application/json";
            }
            "body" => {
                data = text(value).ok_or_else(unknown)?.into();
                content_type = "text/html; charset=utf-8";
            }
            "base64" => {
                let text = text(value).ok_or_else(unknown)?;
                data = STANDARD
                    .decode(text.trim())
                    .map_err(|_| invalid("base64 that cannot be decoded"))?
                    .into();
                content_type = "application/binary";
            }
            "headers" => head.headers = parse_headers(value)?.ok_or_else(unknown)?,
            _ => return Err(unknown()),
        }
    }
    if let Some(value) = json {
        let mut text = rewritten(value).map_err(|_| invalid("JSON that cannot be read"))?;
        text.push('\n');
        data = text.into();
    }
    head.default_type(content_type);
    head.guard(policy);
    Ok(Response {
        head,
        body: data,
        has_code,
    })
}

/// Reads a final status; functions may not send 1xx. CouchDB copies a text into the status line, so
/// that `"400"` and `"400 Bad Request"` are statuses too.
fn status(code: &RawValue) -> Result<u16, ApiError> {
    let number = match text(code) {
        Some(line) => {
            let digits = line
                .split_once(' ')
                .map_or(line.as_str(), |(digits, _)| digits);
            let is_number = digits.bytes().all(|b| b.is_ascii_digit());
            digits.parse().ok().filter(|_| is_number)
        }
        None => serde_json::from_str(code.get()).ok(),
    };
    number
        .filter(|c: &f64| c.fract() == 0.0 && (200.0..1000.0).contains(c))
        .map(|c| c as u16)
        .ok_or_else(|| invalid(format_args!("code: {}", quoted(code))))
}

/// Whether functions may not send a header: it frames the message, applies to the whole server
/// (sessions, service workers, access by pages of other origins), or is for other nodes.
fn is_the_servers(name: &HeaderName, value: &HeaderValue) -> bool {
    FRAMING.contains(name)
        || WHOLE_SERVER.contains(&name.as_str())
        || name.as_str().starts_with(OWN_PREFIX)
        || *name == SET_COOKIE
            && (sets_session(value.as_bytes()) || fills_requests(value.as_bytes()))
}

/// Whether a `Set-Cookie` is long and names the paths that it is sent to. A browser would send such cookies with all requests
/// to the server, and a server refuses those with long heads. Without a path, it is only sent to functions of the same kind.
fn fills_requests(cookie: &[u8]) -> bool {
    let mut parts = cookie.split(|b| *b == b';');
    let pair = parts.next().unwrap_or_default();
    let is_path = |part: &[u8]| {
        let name = part.split(|b| *b == b'=').next().unwrap_or_default();
        name.trim_ascii().eq_ignore_ascii_case(b"path")
    };
    pair.trim_ascii().len() > COOKIE_WITH_PATH_BYTES_MAX && parts.any(is_path)
}

/// Whether a `Set-Cookie` sets the session's cookie, as any browser may read it: one without a name is sent as its value alone.
fn sets_session(cookie: &[u8]) -> bool {
    let pair = cookie.split(|b| *b == b';').next().unwrap_or_default();
    let name = pair.split(|b| *b == b'=').next().unwrap_or_default();
    let name = name.trim_ascii();
    name.is_empty() || name.len() == pair.len() || name.eq_ignore_ascii_case(b"AuthSession")
}

/// Reads the headers of a response; `None` when they are not an object.
pub(super) fn parse_headers(
    headers: &RawValue,
) -> Result<Option<Vec<(HeaderName, HeaderValue)>>, ApiError> {
    let length = headers.get().len();
    if length > HEADERS_BYTES_MAX {
        let most = format!("headers of {length} bytes, which is more than {HEADERS_BYTES_MAX}");
        return Err(invalid(most));
    }
    let Some(members) = Members::of(headers) else {
        return Ok(None);
    };
    if members.count() > HEADERS_MAX {
        return Err(invalid(format_args!("more than {HEADERS_MAX} headers")));
    }
    let mut parsed = Vec::with_capacity(members.count());
    for (name, value) in members.iter() {
        let unknown = || invalid(format_args!("header {name}: {}", quoted(value)));
        let text = match value.get().as_bytes().first() {
            Some(b'[' | b'{') => return Err(unknown()),
            Some(b'"') => text(value).ok_or_else(unknown)?,
            _ => quoted(value),
        };
        let pair = (
            HeaderName::from_bytes(name.as_bytes()),
            HeaderValue::from_bytes(text.as_bytes()),
        );
        let (Ok(name), Ok(value)) = pair else {
            return Err(unknown());
        };
        if !is_the_servers(&name, &value) {
            parsed.push((name, value));
        }
    }
    Ok(Some(parsed))
}

/// The reply to a show: `reply` is the query server's `["resp", {…}]`.
pub fn show(reply: &[u8], etag: &str, policy: Option<&str>) -> Result<Reply, ApiError> {
    let (kind, response): (&RawValue, Members<'_>) =
        serde_json::from_slice(reply).map_err(|_| unexpected(reply))?;
    if kind.get() != "\"resp\"" {
        return Err(unexpected(reply));
    }
    let mut response = parse(&response, policy)?;
    response.head.tag(etag);
    Ok(response.head.with_body(Body::Full(response.body)))
}

/// The head of a list's reply, from the argument of `start`.
pub fn list(response: &[u8], etag: &str, policy: Option<&str>) -> Result<Head, ApiError> {
    let members: Members<'_> =
        serde_json::from_slice(response).map_err(|_| unexpected(response))?;
    let mut head = parse(&members, policy)?.head;
    head.tag(etag);
    Ok(head)
}

/// The result of an update function.
#[derive(Debug)]
pub struct Update {
    /// The document to save, or why it cannot be one.
    doc: Option<Result<EditDoc, ApiError>>,
    /// An error counts only once the document is saved, as in CouchDB.
    response: Result<Response, ApiError>,
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
    /// Parses the query server's `["up", doc, {…}]`; a document must be an object. `policy` as for other
    /// functions' responses.
    pub fn parse(reply: &[u8], policy: Option<&str>) -> Result<Update, ApiError> {
        let (kind, doc, response): (&RawValue, &RawValue, Members<'_>) =
            serde_json::from_slice(reply).map_err(|_| unexpected(reply))?;
        if kind.get() != "\"up\"" {
            return Err(unexpected(reply));
        }
        let doc = Some(doc.get()).filter(|doc| doc.starts_with('{'));
        Ok(Update {
            doc: doc.map(|doc| parse_document(doc.as_bytes()).map_err(ApiError::from)),
            response: parse(&response, policy),
        })
    }

    /// Takes the document to save.
    ///
    /// # Errors
    /// Those of an invalid document.
    pub fn take_doc(&mut self) -> Result<Option<EditDoc>, ApiError> {
        self.doc.take().transpose()
    }

    /// The length of the response's body, which is held while the document is written.
    pub fn body_bytes(&self) -> usize {
        self.response
            .as_ref()
            .map_or(0, |response| response.body.len())
    }

    /// The reply, after the document was saved when there is one. The function's own code comes before 201.
    pub fn reply(self, saved: Option<Saved<'_>>) -> Result<Reply, ApiError> {
        let Response {
            mut head,
            body,
            has_code,
        } = self.response?;
        if let Some(saved) = saved {
            if !has_code {
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
    headers: Vec<(HeaderName, HeaderValue)>,
    body: Bytes,
    policy: Option<&str>,
) -> Reply {
    let mut head = Head {
        status: code,
        headers,
    };
    head.guard(policy);
    head.with_body(Body::Full(body))
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
    use serde_json::{Value, json};

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
    fn long_cookies_cannot_be_for_all_paths() {
        let is_set = |cookie: &str| {
            let (_, headers, _) = shown(json!({"headers": {"Set-Cookie": cookie}})).unwrap();
            header(&headers, "set-cookie") == Some(cookie)
        };
        let of_length = |bytes: usize| format!("a={}", "x".repeat(bytes - 2));
        let (short, long) = (of_length(40), of_length(41));
        for attributes in ["", "; Secure", "; Max-Age=60; Domain=path"] {
            assert!(is_set(&format!("{long}{attributes}")), "{attributes}");
        }
        for attributes in ["; Path=/", ";path=/db", "; Secure; PATH = /;", "; Path"] {
            assert!(is_set(&format!("{short}{attributes}")), "{attributes}");
            assert!(!is_set(&format!("{long}{attributes}")), "{attributes}");
        }
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
        let reply = br#"["up",{"_id":"a/b","n":1.0},{"body":"created"}]"#;
        let mut update = Update::parse(reply, Some("sandbox")).unwrap();
        let doc = update.take_doc().unwrap().expect("a document");
        assert_eq!(doc.id.as_ref().map(|id| id.as_str()), Some("a/b"));
        assert_eq!(doc.body, br#"{"n":1.0}"#);
        let saved = Saved {
            id: "a/b",
            rev: "1-x",
            status: 201,
        };
        let (status, headers, body) = parts(update.reply(Some(saved)).unwrap());
        assert_eq!((status, &body[..]), (201, &b"created"[..]));
        assert_eq!(header(&headers, "x-couch-update-newrev"), Some("1-x"));
        assert_eq!(header(&headers, "x-couch-id"), Some("a%2Fb"));
        assert_eq!(header(&headers, "content-security-policy"), Some("sandbox"));
    }

    #[test]
    fn no_document_is_a_200_and_the_functions_code_wins() {
        let mut update = Update::parse(br#"["up",null,{"body":"hello"}]"#, None).unwrap();
        assert!(update.take_doc().unwrap().is_none());
        assert_eq!(parts(update.reply(None).unwrap()).0, 200);
        let update = Update::parse(br#"["up",{"_id":"a"},{"code":202,"body":"x"}]"#, None).unwrap();
        let saved = Saved {
            id: "a",
            rev: "1-x",
            status: 201,
        };
        assert_eq!(parts(update.reply(Some(saved)).unwrap()).0, 202);
    }

    #[test]
    fn an_invalid_response_counts_once_the_document_is_saved() {
        let mut update = Update::parse(br#"["up",{"_id":"a"},{"code":99}]"#, None).unwrap();
        assert!(update.take_doc().unwrap().is_some());
        assert_eq!(update.reply(None).err().map(|e| e.status), Some(500));
        let mut update = Update::parse(br#"["up",{"_id":1},{"body":"x"}]"#, None).unwrap();
        assert!(update.take_doc().is_err());
    }

    #[test]
    fn long_results_are_read_without_a_tree_of_values() {
        // A tree of them would take a hundred times the text.
        let array = format!("[{}[0]]", "[0],".repeat(200_000));
        let reply = format!(r#"["resp",{{"json":{array},"code":404}}]"#);
        let (status, _, body) = parts(show(reply.as_bytes(), "e", None).unwrap());
        assert_eq!((status, body), (404, format!("{array}\n").into_bytes()));
        for name in ["code", "unknown", "body", "base64", "headers", "stop"] {
            let reply = format!(r#"["resp",{{"{name}":{array}}}]"#);
            let refused = show(reply.as_bytes(), "e", None).err().expect(name);
            assert_eq!(refused.status, 500, "{name}");
            assert!(refused.reason.len() <= 64 << 10, "{name}");
        }
    }

    #[test]
    fn headers_have_a_bound() {
        let headers = |count: usize| -> Value {
            let headers = (0..count).map(|n| (format!("x-{n}"), json!("y")));
            json!({"headers": headers.collect::<serde_json::Map<_, _>>()})
        };
        assert!(shown(headers(HEADERS_MAX)).is_ok());
        assert_eq!(shown(headers(HEADERS_MAX + 1)).unwrap_err().status, 500);
        let long = json!({"headers": {"x-a": "y".repeat(HEADERS_BYTES_MAX)}});
        assert_eq!(shown(long).unwrap_err().status, 500);
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
