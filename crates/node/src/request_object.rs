//! CouchDB's request object: the argument of shows, lists, updates, filters and rewrite functions
//! for an HTTP request.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

use auth::UserCtx;
use database::{DefaultAccess, Info};
use document::write_json_string;
use http::HeaderMap;
use http::header::{
    CONTENT_LENGTH, CONTENT_TYPE, COOKIE, HeaderName, HeaderValue, TRANSFER_ENCODING,
};
use serde_json::{Map, Value, json};

use crate::access::Access;
use crate::design::security_text;
use crate::error::Result;
use crate::node::Node;
use crate::query::{self, Query};

const DISK_FORMAT_VERSION: u32 = 8;

/// The client's part of a request.
#[derive(Clone, Copy, Debug)]
pub struct RequestPart<'a> {
    /// In upper case.
    pub method: &'a str,
    /// The path as sent, without the query.
    pub path: &'a str,
    /// The query as sent.
    pub raw_query: Option<&'a str>,
    /// The path of the client, if a rewrite rule changed it.
    pub requested_path: Option<&'a str>,
    /// The path, split and then decoded.
    pub segments: &'a [Vec<u8>],
    /// The query, decoded.
    pub query: &'a Query,
    /// All headers.
    pub headers: &'a HeaderMap,
    /// The configured names of headers that authenticate the user.
    pub credentials: &'a [HeaderName],
    /// Address of the connected client.
    pub client_address: Option<IpAddr>,
    /// The user.
    pub user: &'a UserCtx,
    /// The body; `None` when the request has none, see [`body_given`].
    pub body: Option<&'a [u8]>,
}

/// The database's part of a request object.
#[derive(Clone, Debug)]
pub struct DatabasePart<'a> {
    /// Name of the database.
    pub db: &'a str,
    /// The database's information, as `GET /{db}` answers it.
    pub info: Value,
    /// JSON text of the security object.
    pub security: Arc<str>,
    /// Id of the document in the path.
    pub id: Option<&'a str>,
    /// A fresh uuid for the function to use.
    pub uuid: String,
}

/// A database's information, as `GET /{db}` answers it.
pub fn info_json(info: &Info) -> Value {
    let mut props = json!({});
    if info.partitioned {
        props["partitioned"] = true.into();
    }
    if info.access.is_some() {
        props["access"] = true.into();
    }
    if info.access == Some(DefaultAccess::Owner) {
        props["default_access"] = "owner".into();
    }
    json!({
        "instance_start_time": info.instance_start_time,
        "db_name": &*info.name,
        "purge_seq": info.purge_seq,
        "update_seq": info.update_seq,
        "sizes": {
            "file": info.file_bytes,
            "external": info.external_bytes,
            "active": info.active_bytes,
        },
        "props": props,
        "doc_del_count": info.doc_del_count,
        "doc_count": info.doc_count,
        "disk_format_version": DISK_FORMAT_VERSION,
        "compact_running": info.compact_running,
        "cluster": {"q": info.q, "n": info.n, "w": info.n / 2 + 1, "r": info.n / 2 + 1},
    })
}

/// The information on a database with access for users who are no admins: without counts and sizes,
/// which depend on the documents of others.
pub fn limited_info_json(info: &Info) -> Value {
    let mut json = info_json(info);
    if let Some(members) = json.as_object_mut() {
        for name in [
            "purge_seq",
            "sizes",
            "doc_count",
            "doc_del_count",
            "compact_running",
        ] {
            members.remove(name);
        }
    }
    json
}

/// Whether a request has a body at all: CouchDB passes an empty one to functions, and `"undefined"`
/// for none.
pub fn body_given(headers: &HeaderMap, body: &[u8]) -> bool {
    !body.is_empty()
        || headers.contains_key(CONTENT_LENGTH)
        || headers.contains_key(TRANSFER_ENCODING)
}

/// Whether a content type is that of a form whose fields functions see.
pub fn is_form(content_type: Option<&HeaderValue>) -> bool {
    let form = b"application/x-www-form-urlencoded";
    content_type.is_some_and(|t| t.as_bytes().starts_with(form))
}

/// The request object of all functions but rewrites, as JSON text: [`request_object`] with the
/// node's data.
///
/// # Errors
/// As [`request_object`], and errors of the database.
pub fn request_json(
    node: &Node,
    request: &RequestPart<'_>,
    access: &Access,
    id: Option<&str>,
) -> Result<Vec<u8>> {
    let database = DatabasePart {
        db: access.db.name(),
        info: info_json(&access.db.info()?),
        security: security_text(access),
        id,
        uuid: node.new_uuid(),
    };
    request_object(request, database)
}

/// The request object of shows, lists, updates and filters, as JSON text. Refuses a `key`,
/// `startkey`, `endkey` or `descending` that is not JSON.
pub fn request_object(request: &RequestPart<'_>, database: DatabasePart<'_>) -> Result<Vec<u8>> {
    let mut object = Map::new();
    object.insert("info".into(), database.info);
    object.insert("uuid".into(), database.uuid.into());
    object.insert("id".into(), database.id.map_or(Value::Null, Value::from));
    object.extend(common(request, database.db)?);
    let mut text = with_texts(request, object, &database.security);
    text.extend_from_slice(b",\"form\":{");
    write_form(request, &mut text);
    text.extend_from_slice(b"}}");
    Ok(text)
}

/// The request object of rewrite functions, as JSON text. It has no `info`, `uuid`, `id` and `form`.
///
/// # Errors
/// As [`request_object`].
pub fn for_rewrite(request: &RequestPart<'_>, access: &Access) -> Result<Vec<u8>> {
    let object = common(request, access.db.name())?;
    let mut text = with_texts(request, object, &security_text(access));
    text.push(b'}');
    Ok(text)
}

/// The text of an object with the members `secObj` and `body`, and without the bracket at its end.
/// These may be long: they are not made values first.
fn with_texts(request: &RequestPart<'_>, object: Map<String, Value>, security: &str) -> Vec<u8> {
    let mut text = Value::Object(object).to_string().into_bytes();
    text.pop();
    text.extend_from_slice(b",\"secObj\":");
    text.extend_from_slice(security.as_bytes());
    text.extend_from_slice(b",\"body\":");
    match request.body {
        Some(body) => write_json_string(&String::from_utf8_lossy(body), &mut text),
        None => write_json_string("undefined", &mut text),
    }
    text
}

fn common(request: &RequestPart<'_>, db: &str) -> Result<Map<String, Value>> {
    let path = texts(request.segments);
    let requested = match request.requested_path {
        Some(path) => texts(&query::segments(path)),
        None => path.clone(),
    };
    let raw_path = match request.raw_query {
        Some(query) => format!("{}?{query}", request.path),
        None => request.path.to_owned(),
    };
    let members = json!({
        // To CouchDB's functions HEAD is GET.
        "method": if request.method == "HEAD" { "GET" } else { request.method },
        "requested_path": requested,
        "path": path,
        "raw_path": raw_path,
        "query": query_object(request.query)?,
        "headers": headers(request),
        "peer": client_address(request),
        "cookie": cookies(request.headers),
        "userCtx": {"db": db, "name": request.user.name, "roles": request.user.roles},
    });
    match members {
        Value::Object(members) => Ok(members),
        _ => Ok(Map::new()),
    }
}

fn texts(segments: &[Vec<u8>]) -> Value {
    segments
        .iter()
        .map(|s| String::from_utf8_lossy(s).into_owned())
        .collect()
}

fn query_object(query: &Query) -> Result<Value> {
    let mut object = Map::new();
    for (name, text) in &query.0 {
        let value = match name.as_str() {
            "key" | "startkey" | "endkey" | "descending" => query::parse_json(text)?,
            _ => text.as_str().into(),
        };
        object.insert(name.clone(), value);
    }
    Ok(Value::Object(object))
}

/// The session's cookie.
const SESSION: &str = "AuthSession";

/// Whether a header authenticates the user. CouchDB shows these too; but the function's author
/// could then act as its caller.
fn is_credential(request: &RequestPart<'_>, name: &HeaderName) -> bool {
    let text = name.as_str();
    matches!(text, "authorization" | "proxy-authorization")
        || text.starts_with("x-auth-")
        || text.starts_with("x-settee-")
        || request.credentials.contains(name)
}

/// Names as CouchDB writes them (`Content-Type`), in the order of names; a repeated header's values are joined. Without
/// credentials.
fn headers(request: &RequestPart<'_>) -> Value {
    let mut names: Vec<&HeaderName> = request.headers.keys().collect();
    names.sort_unstable_by_key(|name| name.as_str());
    names
        .into_iter()
        .filter(|name| !is_credential(request, name))
        .filter_map(|name| {
            let values = request.headers.get_all(name).iter();
            let texts = values.map(|v| String::from_utf8_lossy(v.as_bytes()));
            let texts: Vec<Cow<'_, str>> = match *name == COOKIE {
                true => texts.filter_map(|text| without_session(&text)).collect(),
                false => texts.collect(),
            };
            let shown = !texts.is_empty();
            shown.then(|| (title_case(name.as_str()), Value::from(texts.join(", "))))
        })
        .collect::<Map<_, _>>()
        .into()
}

/// A `Cookie` header without the session; `None` when nothing is left.
fn without_session(cookies: &str) -> Option<Cow<'static, str>> {
    let others: Vec<&str> = cookies
        .split(';')
        .map(str::trim)
        .filter(|cookie| !cookie.is_empty() && !mentions_session(cookie))
        .collect();
    (!others.is_empty()).then(|| Cow::Owned(others.join("; ")))
}

/// Whether a cookie is the session's, also for parsers that accept commas as separators.
fn mentions_session(cookie: &str) -> bool {
    cookie
        .split(',')
        .filter_map(|pair| pair.split_once('='))
        .any(|(name, _)| name.trim().eq_ignore_ascii_case(SESSION))
}

fn title_case(name: &str) -> String {
    let mut upper = true;
    name.chars()
        .map(|c| {
            let cased = if upper { c.to_ascii_uppercase() } else { c };
            upper = c == '-';
            cased
        })
        .collect()
}

/// The client's address. CouchDB believes a proxy on its own machine or a private network about the client's.
fn client_address(request: &RequestPart<'_>) -> String {
    let Some(address) = request.client_address.map(|p| p.to_canonical()) else {
        return String::new();
    };
    let trusted = matches!(address, IpAddr::V4(v4) if v4.is_private() || v4.is_loopback());
    let forwarded = request
        .headers
        .get("x-forwarded-for")
        .filter(|_| trusted)
        .and_then(|v| v.to_str().ok())
        .and_then(|hosts| hosts.rsplit(',').find(|h| !h.is_empty()));
    match forwarded {
        Some(host) => host.trim().to_owned(),
        None => address.to_string(),
    }
}

/// Appends the fields of a form, in their order as in CouchDB: of several with one name, JavaScript
/// sees the last. A form may have more fields than there is memory for their values.
fn write_form(request: &RequestPart<'_>, out: &mut Vec<u8>) {
    let is_form = is_form(request.headers.get(CONTENT_TYPE));
    let Some(body) = request
        .body
        .filter(|_| is_form && matches!(request.method, "POST" | "PUT"))
    else {
        return;
    };
    for (i, (name, value)) in query::pairs(&String::from_utf8_lossy(body)).enumerate() {
        if i > 0 {
            out.push(b',');
        }
        write_json_string(&name, out);
        out.push(b':');
        write_json_string(&value, out);
    }
}

fn cookies(headers: &HeaderMap) -> Value {
    let mut object = Map::new();
    for header in headers.get_all(COOKIE) {
        let text = String::from_utf8_lossy(header.as_bytes());
        for pair in text.split([';', ',']) {
            if let Some((name, value)) = pair.split_once('=')
                && !name.trim().eq_ignore_ascii_case(SESSION)
            {
                let value = value.trim();
                let plain = value.strip_prefix('"').and_then(|v| v.strip_suffix('"'));
                object.insert(name.trim().to_owned(), plain.unwrap_or(value).into());
            }
        }
    }
    Value::Object(object)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Example {
        method: &'static str,
        path: &'static str,
        raw_query: Option<&'static str>,
        headers: HeaderMap,
        credentials: Vec<HeaderName>,
        peer: &'static str,
        body: Option<&'static [u8]>,
    }

    impl Example {
        fn get(path: &'static str, raw_query: Option<&'static str>) -> Example {
            Example {
                method: "GET",
                path,
                raw_query,
                headers: HeaderMap::new(),
                credentials: vec![],
                peer: "192.0.2.1",
                body: None,
            }
        }

        fn with(mut self, name: &'static str, value: &'static str) -> Example {
            self.headers.append(
                HeaderName::from_static(name),
                HeaderValue::from_static(value),
            );
            self
        }

        fn object(&self) -> Result<Value> {
            let segments = query::segments(self.path);
            let query = Query::parse(self.raw_query);
            let request = RequestPart {
                method: self.method,
                path: self.path,
                raw_query: self.raw_query,
                requested_path: None,
                segments: &segments,
                query: &query,
                headers: &self.headers,
                credentials: &self.credentials,
                client_address: self.peer.parse().ok(),
                user: &UserCtx::admin("joe"),
                body: self.body,
            };
            let database = DatabasePart {
                db: "db",
                info: json!({"doc_count": 1}),
                security: "{\"admins\": {}}".into(),
                id: None,
                uuid: "u".to_owned(),
            };
            let text = request_object(&request, database)?;
            Ok(serde_json::from_slice(&text).unwrap())
        }
    }

    #[test]
    fn the_members_are_couchdbs() {
        let object = Example::get("/db/_design/d/_show/s", None)
            .object()
            .unwrap();
        let mut names: Vec<&str> = object
            .as_object()
            .unwrap()
            .keys()
            .map(|k| k.as_str())
            .collect();
        names.sort_unstable();
        assert_eq!(
            names,
            [
                "body",
                "cookie",
                "form",
                "headers",
                "id",
                "info",
                "method",
                "path",
                "peer",
                "query",
                "raw_path",
                "requested_path",
                "secObj",
                "userCtx",
                "uuid"
            ]
        );
        assert_eq!(object["body"], "undefined");
        assert_eq!(
            object["userCtx"],
            json!({"db": "db", "name": "joe", "roles": ["_admin"]})
        );
        assert_eq!(object["peer"], "192.0.2.1");
    }

    #[test]
    fn a_slash_within_a_segment_stays_there() {
        let object = Example::get("/db/_design/d/_update/u/some%2Fid", Some("q=1&r=a+b"))
            .object()
            .unwrap();
        assert_eq!(
            object["path"],
            json!(["db", "_design", "d", "_update", "u", "some/id"])
        );
        assert_eq!(
            object["raw_path"],
            "/db/_design/d/_update/u/some%2Fid?q=1&r=a+b"
        );
        assert_eq!(object["query"], json!({"q": "1", "r": "a b"}));
    }

    #[test]
    fn keys_in_the_query_are_json_and_the_rest_is_text() {
        let query = Some("key=%5B1%5D&startkey=2&descending=true&limit=3");
        let object = Example::get("/db/_design/d/_list/l/v", query)
            .object()
            .unwrap();
        assert_eq!(
            object["query"],
            json!({"key": [1], "startkey": 2, "descending": true, "limit": "3"})
        );
        let refused = Example::get("/db", Some("key=x")).object().unwrap_err();
        assert_eq!(refused.to_string(), "invalid UTF-8 JSON");
    }

    #[test]
    fn headers_have_couchdbs_names() {
        let object = Example::get("/db", None)
            .with("x-my-header", "1")
            .with("accept", "a/b")
            .with("accept", "c/d")
            .object()
            .unwrap();
        assert_eq!(
            object["headers"],
            json!({"Accept": "a/b, c/d", "X-My-Header": "1"})
        );
    }

    #[test]
    fn a_form_is_read_when_it_was_posted() {
        let mut example =
            Example::get("/db", None).with("content-type", "application/x-www-form-urlencoded");
        example.body = Some(b"a=1&b=x+y");
        assert_eq!(example.object().unwrap()["form"], json!({}));
        example.method = "POST";
        let object = example.object().unwrap();
        assert_eq!(object["form"], json!({"a": "1", "b": "x y"}));
        assert_eq!(object["body"], "a=1&b=x+y");
    }

    #[test]
    fn fields_of_a_form_stay_in_their_order_and_the_last_of_a_name_counts() {
        let mut example =
            Example::get("/db", None).with("content-type", "application/x-www-form-urlencoded");
        example.method = "POST";
        example.body = Some(b"z=1&a=%22%5C%0A&z=\xff;b");
        let object = example.object().unwrap();
        assert_eq!(
            object["form"].to_string(),
            "{\"z\":\"\u{fffd}\",\"a\":\"\\\"\\\\\\n\",\"b\":\"\"}"
        );
        assert_eq!(object["body"], "z=1&a=%22%5C%0A&z=\u{fffd};b");
    }

    #[test]
    fn cookies_are_taken_apart() {
        let object = Example::get("/db", None)
            .with("cookie", "a=b; c=\"x=y\"; odd")
            .object()
            .unwrap();
        assert_eq!(object["cookie"], json!({"a": "b", "c": "x=y"}));
    }

    #[test]
    fn a_function_does_not_learn_how_its_caller_proved_who_it_is() {
        let object = Example::get("/db", None)
            .with("authorization", "Basic c2VjcmV0")
            .with("proxy-authorization", "Basic c2VjcmV0")
            .with("x-auth-couchdb-token", "secret")
            .with("cookie", "a=b; AuthSession=secret; c=d")
            .with("cookie", "authsession=\"secret\", e=f")
            .with("accept", "*/*")
            .object()
            .unwrap();
        assert_eq!(
            object["headers"],
            json!({"Accept": "*/*", "Cookie": "a=b; c=d"})
        );
        assert_eq!(object["cookie"], json!({"a": "b", "c": "d", "e": "f"}));
    }

    #[test]
    fn a_function_sees_no_header_that_is_configured_to_name_the_user() {
        let mut example = Example::get("/db", None)
            .with("x-remote-token", "secret")
            .with("x-remote", "shown");
        example.credentials = vec![HeaderName::from_static("x-remote-token")];
        let object = example.object().unwrap();
        assert_eq!(object["headers"], json!({"X-Remote": "shown"}));
    }

    #[test]
    fn only_a_proxy_nearby_is_believed_about_the_client() {
        let mut example =
            Example::get("/db", None).with("x-forwarded-for", "203.0.113.5, 198.51.100.7");
        assert_eq!(example.object().unwrap()["peer"], "192.0.2.1");
        example.peer = "127.0.0.1";
        assert_eq!(example.object().unwrap()["peer"], "198.51.100.7");
    }

    #[test]
    fn an_empty_body_is_not_a_missing_one() {
        let mut headers = HeaderMap::new();
        assert!(!body_given(&headers, b""));
        assert!(body_given(&headers, b"x"));
        headers.insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
        assert!(body_given(&headers, b""));
    }
}
