//! User documents: reading an account from one, and writing a hash into one.

use std::fmt;
use std::sync::Arc;

use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::object_members::{Name, rewritten};
use crate::account::Account;
use crate::error::AuthError;
use crate::password::{Hash, PasswordHash};
use crate::totp::Totp;
use crate::user::{METRICS_ROLE, UserCtx};

/// PBKDF2 iterations of a document that does not say.
const ITERATIONS: u64 = 10_000;

/// Members that describe the hash: a new hash replaces all of them.
pub(super) const HASH_MEMBERS: [&str; 6] = [
    "password_scheme",
    "pbkdf2_prf",
    "salt",
    "iterations",
    "derived_key",
    "password_sha",
];

/// Returns how long the JSON text of a member may be that the rules or logins read, in bytes; `None` for
/// other members.
fn bytes_max(member: &str) -> Option<usize> {
    match member {
        // Both are presences: their values are not used.
        "_conflicts" | "_deleted" => Some(0),
        // Only administrators choose roles.
        "roles" => Some(256 << 10),
        // As long as an id, with each byte escaped.
        "name" => Some(512 << 10),
        "password" => Some(64 << 10),
        "type" | "totp" => Some(8 << 10),
        member => HASH_MEMBERS.contains(&member).then_some(8 << 10),
    }
}

/// Returns those members of a document's text that the rules or logins read: every client that may sign
/// up writes such documents, and they are read before a password is checked. The value of one that is too
/// long is `false`, which is invalid for each of them.
pub(super) fn members(json: &[u8]) -> Result<Map<String, Value>, serde_json::Error> {
    struct Members;
    impl<'de> Visitor<'de> for Members {
        type Value = Map<String, Value>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut members = Map::new();
            while let Some(Name(name)) = map.next_key()? {
                let Some(bytes_max) = bytes_max(&name) else {
                    map.next_value::<IgnoredAny>()?;
                    continue;
                };
                let text: &RawValue = map.next_value()?;
                let value = match text.get().len() <= bytes_max {
                    true => serde_json::from_str(text.get()).map_err(serde::de::Error::custom)?,
                    false => Value::Bool(false),
                };
                members.insert(name.into_owned(), value);
            }
            Ok(members)
        }
    }
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    let members = deserializer.deserialize_map(Members)?;
    deserializer.end()?;
    Ok(members)
}

/// Returns the account that a document's text describes. Roles that the rules would have refused
/// give nothing.
///
/// # Errors
/// [`AuthError::UserConflicts`], and [`AuthError::UsersUnreadable`].
pub(super) fn account(name: &str, json: &[u8]) -> Result<Account, AuthError> {
    let doc = members(json).map_err(|e| AuthError::UsersUnreadable(e.to_string()))?;
    if doc.contains_key("_conflicts") {
        return Err(AuthError::UserConflicts);
    }
    let roles = doc.get("roles").and_then(Value::as_array);
    let roles = roles.into_iter().flatten().filter_map(Value::as_str);
    let roles = roles.filter(|role| *role == METRICS_ROLE || !role.starts_with('_'));
    let user = UserCtx {
        name: Some(name.to_owned()),
        roles: roles.map(str::to_owned).collect(),
    };
    let salt = doc.get("salt").and_then(Value::as_str).unwrap_or_default();
    Ok(Account {
        user: Arc::new(user),
        hash: hash(&doc, salt),
        salt: salt.to_owned(),
        totp: doc.get("totp").map(Totp::of),
        is_document: true,
    })
}

/// Returns the hash of a user document's password; `None` when it has none.
pub fn hash_of_user(json: &[u8]) -> Option<PasswordHash> {
    let doc = members(json).ok()?;
    let salt = doc.get("salt").and_then(Value::as_str).unwrap_or_default();
    hash(&doc, salt)
}

fn hash(doc: &Map<String, Value>, salt: &str) -> Option<PasswordHash> {
    let text = |name: &str| doc.get(name).and_then(Value::as_str);
    match text("password_scheme").unwrap_or("simple") {
        "simple" => PasswordHash::of_simple(text("password_sha")?, salt),
        "pbkdf2" => {
            let prf = match doc.get("pbkdf2_prf") {
                None => Hash::Sha1,
                Some(name) => Hash::from_name(name.as_str()?)?,
            };
            let iterations = match doc.get("iterations") {
                None => ITERATIONS,
                Some(n) => n.as_u64()?,
            };
            let iterations = u32::try_from(iterations).ok().filter(|n| *n > 0)?;
            PasswordHash::of_pbkdf2(prf, iterations, text("derived_key")?, salt)
        }
        _ => None,
    }
}

/// Returns the members that a hash becomes, in CouchDB's order, with their JSON.
pub(super) fn hash_members(hash: &PasswordHash) -> Vec<(&'static str, String)> {
    let text = |text: &str| Value::from(text).to_string();
    let key = text(&hash.key_hex());
    let salt = text(hash.salt());
    match hash.pbkdf2() {
        None => vec![
            ("password_scheme", text("simple")),
            ("salt", salt),
            ("password_sha", key),
        ],
        Some((prf, iterations)) => vec![
            ("password_scheme", text("pbkdf2")),
            ("pbkdf2_prf", text(prf.name())),
            ("salt", salt),
            ("iterations", iterations.to_string()),
            ("derived_key", key),
        ],
    }
}

/// Returns the text with another hash; `None` when it is not an object.
pub(super) fn with_hash(json: &[u8], hash: &PasswordHash) -> Option<Vec<u8>> {
    rewritten(json, &hash_members(hash), |name| {
        !HASH_MEMBERS.contains(&name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::password::NewHash;

    const PBKDF2: NewHash = NewHash::Pbkdf2 {
        hash: Hash::Sha256,
        iterations: 2,
    };

    fn read(json: &str) -> Account {
        account("joe", json.as_bytes()).expect(json)
    }

    #[test]
    fn a_hash_written_into_a_document_reads_back() {
        for new in [PBKDF2, NewHash::Simple] {
            let hash = PasswordHash::made(new, b"secret");
            let old = br#"{"_id":"x","password_sha":"00","salt":"s","iterations":7,"name":"joe"}"#;
            let json = with_hash(old, &hash).expect("an object");
            let account = account("joe", &json).expect("a user");
            assert_eq!(account.hash.as_ref(), Some(&hash));
            assert_eq!(account.salt, hash.salt());
            let text = String::from_utf8(json).expect("UTF-8");
            assert_eq!(text.matches("salt").count(), 1);
            assert!(text.ends_with(r#","_id":"x","name":"joe"}"#), "{text}");
        }
    }

    #[test]
    fn older_hashes_are_understood() {
        let sha1 = r#"{"password_scheme":"pbkdf2","iterations":4096,"salt":"salt","derived_key":"4b007901b765489abead49d926f721d065a429c1"}"#;
        let hash = read(sha1).hash.expect("a hash");
        assert!(hash.verify(b"password") && !hash.verify(b"x"));
        // sha1("secretabc")
        let simple = r#"{"salt":"abc","password_sha":"KEY"}"#.replace(
            "KEY",
            &PasswordHash::with_salt(NewHash::Simple, b"secret", "abc").key_hex(),
        );
        assert!(read(&simple).hash.expect("a hash").verify(b"secret"));
    }

    #[test]
    fn a_hash_that_is_not_understood_lets_nobody_in() {
        for json in [
            "{}",
            r#"{"password_scheme":"x","derived_key":"00","salt":"s"}"#,
            r#"{"password_scheme":"pbkdf2","derived_key":"00","salt":"s","iterations":1}"#,
            r#"{"password_scheme":"pbkdf2","iterations":0,"salt":"salt","derived_key":"4b007901b765489abead49d926f721d065a429c1"}"#,
            r#"{"password_scheme":"pbkdf2","pbkdf2_prf":"md5","iterations":1,"salt":"salt","derived_key":"4b007901b765489abead49d926f721d065a429c1"}"#,
        ] {
            assert_eq!(read(json).hash, None, "{json}");
        }
    }

    #[test]
    fn only_what_logins_need_is_read() {
        let filler = format!("[{}0]", "[0],".repeat(200_000));
        let json = format!(
            r#"{{"a":{filler},"name":"joe","\u0072oles":["x"],"password_sha":"00","b":{{"roles":["y"]}}}}"#
        );
        let read_members = members(json.as_bytes()).expect("an object");
        let names: Vec<&str> = read_members.keys().map(String::as_str).collect();
        assert_eq!(names, ["name", "roles", "password_sha"]);
        assert_eq!(read(&json).user.roles, ["x"]);
        assert!(members(b"[]").is_err() && members(br#"{"a":1"#).is_err());
        assert!(members(br#"{"a":1} 2"#).is_err());
    }

    #[test]
    fn long_members_let_nobody_in() {
        let long = "s".repeat(1 << 20);
        let salted = |salt: &str| {
            let hash = PasswordHash::with_salt(NewHash::Simple, b"secret", salt);
            let key = hash.key_hex();
            read(&format!(r#"{{"salt":"{salt}","password_sha":"{key}"}}"#))
        };
        assert!(salted("s").hash.expect("a hash").verify(b"secret"));
        let account = salted(&long);
        assert!(account.hash.is_none_or(|hash| !hash.verify(b"secret")));
        assert!(account.salt.is_empty());
        let account = read(&format!(r#"{{"totp":{{"key":"GEZDGNBV","x":"{long}"}}}}"#));
        assert_eq!(
            account.totp,
            Some(Totp::Malformed),
            "the factor is required"
        );
        for name in HASH_MEMBERS {
            let json = format!(r#"{{"{name}":"{long}"}}"#);
            let read_members = members(json.as_bytes()).expect("an object");
            assert_eq!(read_members[name], Value::Bool(false), "{name}");
        }
        let conflicts = format!(r#"{{"_conflicts":["{long}"]}}"#);
        let refused = account_error(&conflicts);
        assert!(matches!(refused, Some(AuthError::UserConflicts)));
    }

    fn account_error(json: &str) -> Option<AuthError> {
        super::account("joe", json.as_bytes()).err()
    }

    #[test]
    fn system_roles_in_a_document_give_nothing() {
        let account = read(r#"{"roles":["a","_admin",3,"_metrics","_x"]}"#);
        assert_eq!(account.user.roles, ["a", "_metrics"]);
    }

    #[test]
    fn conflicts_must_be_resolved_first() {
        let json = br#"{"_conflicts":["1-a"],"roles":[]}"#;
        assert!(matches!(
            account("joe", json),
            Err(AuthError::UserConflicts)
        ));
    }
}
