//! Which requests may not be written down, since they carry credentials.
//!
//! Whole requests are left out, never parts of them: an incomplete body could not be replayed.
//! Headers need no rule here, as only a few are kept (`HEADERS` in `entry.rs`).

use percent_encoding::percent_decode_str;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

/// Routes and databases whose requests carry passwords or tokens: with a body they are left out.
const ROUTES: [&str; 7] = [
    "_users",
    "_config",
    "_replicate",
    "_replicator",
    "_cluster_setup",
    "_settee",
    "_node",
];

/// Names of members and of parameters whose values are secrets; in lower case, with `_` for `-`.
const NAMES: [&str; 23] = [
    "pass",
    "passphrase",
    "pwd",
    "apikey",
    "jwt",
    "access_key",
    "secret_key",
    "password",
    "passwd",
    "password_sha",
    "derived_key",
    "old_password",
    "new_password",
    "secret",
    "client_secret",
    "authorization",
    "cookie",
    "token",
    "access_token",
    "refresh_token",
    "id_token",
    "api_key",
    "private_key",
];

/// The parts of a request that a recording would have.
pub(super) struct Shown<'a> {
    pub(super) method: &'a str,
    /// Path and query.
    pub(super) path: &'a str,
    pub(super) content_type: &'a str,
    pub(super) is_compressed: bool,
    pub(super) body: &'a [u8],
}

/// The reason why a request must not be recorded; `None` when it may be.
pub(super) fn reason(request: &Shown<'_>) -> Option<&'static str> {
    let (path, query) = match request.path.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (request.path, None),
    };
    // %2F too divides here: what looks like such a route in any reading is one.
    let path = percent_decode_str(path).decode_utf8_lossy();
    let has = |wanted: &str| path.split('/').any(|segment| segment == wanted);
    if has("_session") {
        return Some("a session: name and password, or a cookie");
    }
    let reads = matches!(request.method, "GET" | "HEAD");
    if (!reads || !request.body.is_empty()) && ROUTES.into_iter().any(has) {
        return Some("users, settings, replications or the cluster: passwords and tokens");
    }
    if query.is_some_and(names_secret) {
        return Some("a query that names a password or token");
    }
    if request.body.is_empty() {
        return None;
    }
    if request.is_compressed {
        return Some("a compressed body, which is not looked through");
    }
    reason_of_body(request)
}

fn names_secret(query: &str) -> bool {
    url::form_urlencoded::parse(query.as_bytes())
        .any(|(name, value)| is_secret(&name) || has_user(&value))
}

fn reason_of_body(request: &Shown<'_>) -> Option<&'static str> {
    const FOUND: &str = "a body that names a password, a token, or a URL with a user";
    const UNCLEAR: &str = "a body that is not JSON, with escapes, which cannot be checked";
    if let Ok(Looked(found)) = serde_json::from_slice(request.body) {
        return found.then_some(FOUND);
    }
    // An attachment, a multipart body, a form, or broken JSON: its text is looked through as it is.
    let text = String::from_utf8_lossy(request.body).to_lowercase();
    let quoted = |name: &&str| text.contains(&format!("\"{name}\""));
    let in_form = |name: &&str| text.contains(&format!("{name}="));
    let is_form = request.content_type.contains("urlencoded");
    if NAMES
        .iter()
        .any(|name| quoted(name) || is_form && in_form(name))
        || has_user(&text)
    {
        return Some(FOUND);
    }
    let content_type = request.content_type;
    let is_text = content_type.is_empty()
        || content_type.contains("json")
        || content_type.starts_with("multipart/");
    (is_text && text.contains("\\u")).then_some(UNCLEAR)
}

fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase().replace('-', "_");
    NAMES.contains(&name.as_str())
}

/// Is there a URL with a user before its host?
fn has_user(text: &str) -> bool {
    text.match_indices("://").any(|(at, separator)| {
        let rest = &text[at + separator.len()..];
        let end = rest.find(|c: char| "/?#\"'<>\\".contains(c) || c.is_whitespace());
        rest[..end.unwrap_or(rest.len())].contains('@')
    })
}

/// Whether JSON has a secret anywhere. Nothing of it is kept while it is read.
struct Looked(bool);

impl<'de> Deserialize<'de> for Looked {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Look).map(Looked)
    }
}

struct Look;

impl<'de> Visitor<'de> for Look {
    type Value = bool;

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<bool, A::Error> {
        let mut found = false;
        while let Some(name) = map.next_key::<std::borrow::Cow<'_, str>>()? {
            // Without a value there is nothing to keep: `{"password": null}` is a question, not a secret.
            let value: SecretMember = map.next_value()?;
            found |= value.found || value.is_there && is_secret(&name);
        }
        Ok(found)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<bool, A::Error> {
        let mut found = false;
        while let Some(Looked(here)) = seq.next_element()? {
            found |= here;
        }
        Ok(found)
    }

    fn visit_str<E>(self, text: &str) -> Result<bool, E> {
        Ok(has_user(text))
    }

    fn visit_bool<E>(self, _: bool) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_i64<E>(self, _: i64) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_u64<E>(self, _: u64) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_f64<E>(self, _: f64) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_unit<E>(self) -> Result<bool, E> {
        Ok(false)
    }
}

/// A member's value.
struct SecretMember {
    found: bool,
    is_there: bool,
}

impl<'de> Deserialize<'de> for SecretMember {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value: Option<Looked> = Option::deserialize(deserializer)?;
        Ok(Self {
            is_there: value.is_some(),
            found: value.is_some_and(|Looked(found)| found),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left_out(method: &str, path: &str, content_type: &str, body: &[u8]) -> bool {
        reason(&Shown {
            method,
            path,
            content_type,
            is_compressed: false,
            body,
        })
        .is_some()
    }

    #[test]
    fn requests_with_credentials_are_left_out_however_they_are_written() {
        let json = "application/json";
        for (method, path, body) in [
            ("POST", "/_session", r#"{"name":"a","password":"b"}"#),
            ("GET", "/_session", ""),
            ("POST", "/%5fsession", "name=a&password=b"),
            ("POST", "/prefix//_session/", ""),
            ("PUT", "/_users/org.couchdb.user:a", r#"{"password":"x"}"#),
            ("POST", "/_users/_bulk_docs", r#"{"docs":[]}"#),
            ("PUT", "/team%2F_users/x", "{}"),
            (
                "PUT",
                "/_node/_local/_config/admins/anna",
                r#""secret-of-anna""#,
            ),
            ("PUT", "/_config/couch_httpd_auth/secret", r#""x""#),
            ("POST", "/_replicate", r#"{"source":"a","target":"b"}"#),
            ("PUT", "/_replicator/r", "{}"),
            ("POST", "/_cluster_setup", "{}"),
            ("GET", "/db/a?access_token=x", ""),
            ("GET", "/db/a?%70assword=x", ""),
            ("GET", "/db/a?url=http%3A%2F%2Fu%3Ap%40host%2F", ""),
            ("PUT", "/db/a", r#"{"deep":[{"Password":"x"}]}"#),
            ("PUT", "/db/a", r#"{"p\u0061ssword":"x"}"#),
            ("PUT", "/db/a", r#"{"API-Key":1}"#),
            (
                "POST",
                "/db/_bulk_docs",
                r#"{"docs":[{"_id":"a"},{"password_sha":"x"}]}"#,
            ),
            ("PUT", "/db/a", r#"{"from":"see https://u:p@host/x"}"#),
            ("PUT", "/db/a", r#"{"broken":1,"password":"x""#),
            ("PUT", "/db/a", r#"{"broken":1,"p\u0061ssword":"x""#),
        ] {
            assert!(
                left_out(method, path, json, body.as_bytes()),
                "{method} {path} {body}"
            );
        }
        let multipart = b"--x\r\nContent-Type: application/json\r\n\r\n{\"password\": 1}\r\n--x--";
        assert!(left_out(
            "PUT",
            "/db/a",
            "multipart/related; boundary=x",
            multipart
        ));
        let form = "application/x-www-form-urlencoded";
        assert!(left_out(
            "POST",
            "/db/_design/d/_update/u",
            form,
            b"name=a&password=b"
        ));
    }

    #[test]
    fn a_compressed_body_is_left_out_as_nobody_looked_into_it() {
        let shown = Shown {
            method: "PUT",
            path: "/db/a",
            content_type: "application/json",
            is_compressed: true,
            body: b"\x1f\x8b",
        };
        assert!(reason(&shown).unwrap().contains("compressed"));
    }

    #[test]
    fn other_requests_are_kept() {
        let json = "application/json";
        for (method, path, body) in [
            ("GET", "/", ""),
            ("GET", "/_users/_all_docs", ""),
            ("GET", "/_node/_local/_stats", ""),
            ("GET", "/db/_session_notes", ""),
            (
                "PUT",
                "/db/a?rev=1-x",
                r#"{"mail":"anna@example.org","url":"http://host/@anna"}"#,
            ),
            (
                "PUT",
                "/db/a",
                r#"{"text":"my password is forgotten","password":null}"#,
            ),
            (
                "POST",
                "/db/_find",
                r#"{"selector":{"n":{"$gt":1}},"limit":10}"#,
            ),
        ] {
            assert!(
                !left_out(method, path, json, body.as_bytes()),
                "{method} {path} {body}"
            );
        }
        assert!(!left_out(
            "PUT",
            "/db/a/png",
            "image/png",
            b"\x89PNG\\u\xff\x00"
        ));
    }
}
