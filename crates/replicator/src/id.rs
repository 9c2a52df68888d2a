//! Replication ids, as CouchDB 3 computes them (`couch_replicator_ids`, version 4): two servers
//! with the same `[couchdb] uuid` find the same checkpoints for the same replication.
//!
//! The id is the MD5 sum over the external term (minor version 1) of a list: the server's uuid, the
//! source, the target, and the selection of documents. An endpoint is `{remote, User, Host, Port,
//! Path, Headers, undefined}` with strings as lists of bytes; passwords are not included, so that
//! changing one keeps the checkpoints.

use data_encoding::HEXLOWER;
use document::{body_term, normalise};
use md5::{Digest, Md5};
use serde_json::{Map, Value};

use crate::endpoint::{Endpoint, Remote};
use crate::options::{Replication, Selection};

/// CouchDB's version of the algorithm, which checkpoints record.
pub const VERSION: u64 = 4;

const SMALL_INTEGER: u8 = 97;
const INTEGER: u8 = 98;
const ATOM: u8 = 100;
const SMALL_TUPLE: u8 = 104;
const NIL: u8 = 106;
const STRING: u8 = 107;
const LIST: u8 = 108;
const BINARY: u8 = 109;
const TERM_VERSION: u8 = 131;

/// Returns the part of a job's id that names its checkpoints. `filter_code` is the source of the
/// filter function, if the replication names one of a design document.
pub fn base_id(replication: &Replication, uuid: &str, filter_code: Option<&str>) -> String {
    let mut parts = vec![
        binary(uuid),
        endpoint(&replication.source),
        endpoint(&replication.target),
    ];
    match &replication.selection {
        Selection::All => {}
        Selection::Ids(ids) => parts.push(json(&Value::from(ids.to_vec()))),
        Selection::Filter { name, params } => {
            parts.push(binary(&filter_code.map_or(name.clone(), trimmed)));
            parts.push(json(&Value::Object(params.clone())));
        }
        Selection::Selector(selector) => {
            let normal = mango_normal(&Value::Object((**selector).clone()));
            parts.push(json(&sorted(&normal)));
        }
    }
    if replication.winning_revs_only {
        parts.push(binary("winning_revs_only"));
    }
    // A replication that starts elsewhere is another replication, with its own checkpoints.
    if let Some(since) = &replication.since_seq {
        parts.push(json(since));
    }
    let mut term = vec![TERM_VERSION];
    list(&parts, &mut term);
    HEXLOWER.encode(&Md5::digest(&term))
}

fn endpoint(endpoint: &Endpoint) -> Vec<u8> {
    match endpoint {
        // CouchDB 3 has no such form; this is that of 2.x.
        Endpoint::Local(name) => tuple(&[atom("local"), binary(name)]),
        Endpoint::Remote(remote) => remote_endpoint(remote),
    }
}

fn remote_endpoint(remote: &Remote) -> Vec<u8> {
    let parts = UrlParts::of(&remote.given);
    let headers: Vec<Vec<u8>> = remote
        .headers
        .iter()
        // CouchDB also drops a header that cannot be parsed as name and password.
        .filter(|(name, value)| !is_basic(name, &value.0))
        .map(|(name, value)| tuple(&[string(name), string(&value.0)]))
        .collect();
    let mut header_list = vec![];
    list(&headers, &mut header_list);
    tuple(&[
        atom("remote"),
        remote
            .user
            .as_deref()
            .map_or_else(|| atom("undefined"), string),
        string(parts.host),
        parts.port.map_or_else(|| atom("default"), integer),
        string(parts.path),
        header_list,
        atom("undefined"),
    ])
}

fn is_basic(name: &str, value: &str) -> bool {
    let scheme = value.get(..6).unwrap_or_default();
    name.eq_ignore_ascii_case("authorization") && scheme.eq_ignore_ascii_case("basic ")
}

/// Host, port and path as CouchDB's HTTP client splits a URL: without decoding or normalisation.
struct UrlParts<'a> {
    host: &'a str,
    /// `None` for the scheme's default port, and for CouchDB's.
    port: Option<u64>,
    path: &'a str,
}

impl UrlParts<'_> {
    fn of(url: &str) -> UrlParts<'_> {
        let (scheme, rest) = url.split_once("://").unwrap_or(("http", url));
        let path_at = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(path_at);
        let path = if path.is_empty() { "/" } else { path };
        let (host, port) = match authority.strip_prefix('[').and_then(|a| a.split_once(']')) {
            Some((v6, after)) => (v6, after.strip_prefix(':')),
            None => match authority.rsplit_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (authority, None),
            },
        };
        let port = port.and_then(|p| p.parse().ok());
        let usual = match port {
            None => true,
            Some(443) => scheme == "https",
            Some(80 | 5984) => scheme == "http",
            Some(_) => false,
        };
        UrlParts {
            host,
            port: port.filter(|_| !usual),
            path,
        }
    }
}

/// Removes leading and trailing whitespace of a single-line function.
fn trimmed(code: &str) -> String {
    if code.contains('\n') {
        code.to_owned()
    } else {
        code.trim_matches(' ').to_owned()
    }
}

fn json(value: &Value) -> Vec<u8> {
    // serde_json's output is within the limits of `normalise`, unless it is nested thousands of
    // levels deep: then all such replications share an id, which costs them their checkpoints.
    normalise(value.to_string().as_bytes())
        .and_then(|text| body_term(&text))
        .unwrap_or_default()
}

fn atom(name: &str) -> Vec<u8> {
    let mut out = vec![ATOM, 0, name.len() as u8];
    out.extend_from_slice(name.as_bytes());
    out
}

fn binary(text: &str) -> Vec<u8> {
    let mut out = vec![BINARY];
    out.extend_from_slice(&(text.len() as u32).to_be_bytes());
    out.extend_from_slice(text.as_bytes());
    out
}

/// Encodes a list of bytes.
fn string(text: &str) -> Vec<u8> {
    match u16::try_from(text.len()) {
        Ok(0) => vec![NIL],
        Ok(len) => {
            let mut out = vec![STRING];
            out.extend_from_slice(&len.to_be_bytes());
            out.extend_from_slice(text.as_bytes());
            out
        }
        Err(_) => {
            let mut out = vec![];
            list(
                &text
                    .bytes()
                    .map(|b| vec![SMALL_INTEGER, b])
                    .collect::<Vec<_>>(),
                &mut out,
            );
            out
        }
    }
}

fn integer(n: u64) -> Vec<u8> {
    match u8::try_from(n) {
        Ok(small) => vec![SMALL_INTEGER, small],
        Err(_) => {
            let mut out = vec![INTEGER];
            out.extend_from_slice(&(n as u32).to_be_bytes());
            out
        }
    }
}

fn tuple(elements: &[Vec<u8>]) -> Vec<u8> {
    let mut out = vec![SMALL_TUPLE, elements.len() as u8];
    elements.iter().for_each(|e| out.extend_from_slice(e));
    out
}

fn list(elements: &[Vec<u8>], out: &mut Vec<u8>) {
    if !elements.is_empty() {
        out.push(LIST);
        out.extend_from_slice(&(elements.len() as u32).to_be_bytes());
        elements.iter().for_each(|e| out.extend_from_slice(e));
    }
    out.push(NIL);
}

/// Sorts members by name at every level.
fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let mut names: Vec<&String> = members.keys().collect();
            names.sort();
            let of = |name: &String| (name.clone(), sorted(&members[name]));
            Value::Object(names.into_iter().map(of).collect())
        }
        Value::Array(elements) => elements.iter().map(sorted).collect(),
        other => other.clone(),
    }
}

/// Makes the implicit operators of a selector explicit, as Mango does before it runs one: several
/// members are an `$and`, a plain value is an `$eq`.
fn mango_normal(selector: &Value) -> Value {
    let Value::Object(members) = selector else {
        return one("$eq", selector.clone());
    };
    let mut parts: Vec<Value> = members
        .iter()
        .map(|(name, arg)| normal_member(name, arg))
        .collect();
    match parts.len() {
        0 => Value::Object(Map::new()),
        1 => parts.remove(0),
        _ => one("$and", Value::Array(parts)),
    }
}

fn normal_member(name: &str, arg: &Value) -> Value {
    match name {
        "$and" | "$or" | "$nor" => match arg {
            Value::Array(list) => one(name, list.iter().map(mango_normal).collect()),
            other => one(name, other.clone()),
        },
        "$not" | "$elemMatch" | "$allMatch" | "$keyMapMatch" => one(name, mango_normal(arg)),
        _ if name.starts_with('$') => one(name, arg.clone()),
        _ => match arg {
            Value::Object(inner) if !inner.is_empty() => normal_field(name, inner),
            plain => one(name, one("$eq", plain.clone())),
        },
    }
}

/// Normalises a field's conditions; nested fields are joined to a path.
fn normal_field(path: &str, inner: &Map<String, Value>) -> Value {
    let mut parts: Vec<Value> = inner
        .iter()
        .map(|(name, arg)| match name.starts_with('$') {
            true => one(path, normal_member(name, arg)),
            false => normal_member(&format!("{path}.{name}"), arg),
        })
        .collect();
    match parts.len() {
        1 => parts.remove(0),
        _ => one("$and", Value::Array(parts)),
    }
}

fn one(name: &str, value: Value) -> Value {
    let mut members = Map::new();
    members.insert(name.to_owned(), value);
    Value::Object(members)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::options::User;
    use crate::settings::Settings;

    const UUID: &str = "0123456789abcdef0123456789abcdef";

    fn id(body: Value, code: Option<&str>) -> String {
        let Value::Object(body) = body else {
            panic!("an object")
        };
        let parsed = Replication::parse(&body, User::default(), None, &Settings::default());
        base_id(&parsed.unwrap(), UUID, code)
    }

    // The expected ids were computed by Erlang's `erlang:md5(term_to_binary(Term, [{minor_version,
    // 1}]))` over terms written by hand after couch_replicator_ids.

    #[test]
    fn ids_are_those_of_erlangs_terms() {
        assert_eq!(
            id(
                json!({"source": "http://h1/a", "target": "http://h2:5984/b/"}),
                None
            ),
            "26efa6ab9abf90c7ec4aa3144734dd19"
        );
        assert_eq!(
            id(
                json!({"source": "http://us:pw@h1:5985/a", "target": {"url": "https://h2/x/b", "headers": {"X-A": "1", "Authorization": "Basic YWRtaW46YWRtaW4="}}}),
                None
            ),
            "7526445d89530e093fdb6d1ac1a454cd"
        );
        assert_eq!(
            id(
                json!({"source": "http://h1/a", "target": "http://h2/b", "doc_ids": ["b", "a", "é"]}),
                None
            ),
            "616a47a39575c04bc96c4708dc7dd173"
        );
        assert_eq!(
            id(
                json!({"source": "http://h1/a", "target": "http://h2/b", "filter": "d/f", "query_params": {"z": "1", "a": 2}}),
                Some(" function(doc) {return true;} ")
            ),
            "f3aea0227234d64a7cb2f1f3f3a0e0f2"
        );
        assert_eq!(
            id(
                json!({"source": "http://h1/a", "target": "http://h2/b", "selector": {"b": 1, "a": {"$gt": 300}}}),
                None
            ),
            "3a4cee3bf3fa3443f533782eaf9e8bca"
        );
    }

    #[test]
    fn passwords_and_speed_do_not_change_an_id_but_users_do() {
        let of = |user: &str| {
            id(
                json!({"source": format!("http://{user}h/a"), "target": "http://h/b", "worker_processes": 9}),
                None,
            )
        };
        assert_eq!(of("anna:one@"), of("anna:two@"));
        assert_ne!(of("anna:one@"), of("bob:one@"));
        assert_ne!(of("anna:one@"), of(""));
    }

    #[test]
    fn the_usual_ports_are_all_one() {
        let of = |source: &str| id(json!({"source": source, "target": "http://h/b"}), None);
        assert_eq!(of("http://h/a"), of("http://h:80/a"));
        assert_eq!(of("http://h/a"), of("http://h:5984/a"));
        assert_ne!(of("http://h/a"), of("http://h:5985/a"));
        assert_ne!(of("https://h/a"), of("https://h:5984/a"));
    }
}
