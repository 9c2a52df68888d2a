//! User documents: reading an account from one, and writing a hash into one.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::members::Members;
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

/// Returns the account that a document's text describes. Roles that the rules would have refused
/// give nothing.
///
/// # Errors
/// [`AuthError::UserConflicts`], and [`AuthError::UsersUnreadable`].
pub(super) fn account(name: &str, json: &[u8]) -> Result<Account, AuthError> {
    let doc: Map<String, Value> =
        serde_json::from_slice(json).map_err(|e| AuthError::UsersUnreadable(e.to_string()))?;
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
    let doc: Map<String, Value> = serde_json::from_slice(json).ok()?;
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
    let members = Members::parse(json)?;
    let keep = |name: &str| !HASH_MEMBERS.contains(&name);
    Some(members.rewritten(&hash_members(hash), keep))
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
