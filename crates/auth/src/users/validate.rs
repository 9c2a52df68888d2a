//! Validation of user documents: the rules and messages of CouchDB's `_design/_auth`.

use database::Caller;
use serde_json::{Map, Value};

use super::USER_PREFIX;
use crate::user::METRICS_ROLE;

type Doc = Map<String, Value>;

/// A requested write.
pub(super) struct Change<'a> {
    pub(super) id: &'a str,
    pub(super) deleted: bool,
    pub(super) new: &'a Doc,
    /// `None` when there was none, or it was deleted.
    pub(super) old: Option<&'a Doc>,
    pub(super) caller: &'a Caller,
    /// Whether the caller is an admin of the database.
    pub(super) is_admin: bool,
}

/// Returns whether a value is truthy in JavaScript.
fn is_truthy(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null | Value::Bool(false)) => false,
        Some(Value::String(text)) => !text.is_empty(),
        Some(Value::Number(n)) => n.as_f64() != Some(0.0),
        Some(_) => true,
    }
}

fn require(holds: bool, reason: &str) -> Result<(), String> {
    if holds {
        Ok(())
    } else {
        Err(reason.to_owned())
    }
}

/// Checks whether the change is allowed.
///
/// # Errors
/// The reason of a `forbidden`.
pub(super) fn check(change: &Change<'_>) -> Result<(), String> {
    if change.deleted {
        return check_deletion(change);
    }
    let new = change.new;
    require(
        new.get("type").and_then(Value::as_str) == Some("user"),
        "doc.type must be user",
    )?;
    require(is_truthy(new.get("name")), "doc.name is required")?;
    require(is_truthy(new.get("roles")), "doc.roles must exist")?;
    let roles = new.get("roles").and_then(Value::as_array);
    let roles = roles.ok_or("doc.roles must be an array")?;
    let roles: Option<Vec<&str>> = roles.iter().map(Value::as_str).collect();
    let roles = roles.ok_or("doc.roles can only contain strings")?;
    let name = new.get("name").and_then(Value::as_str);
    let name = name
        .filter(|name| change.id.strip_prefix(USER_PREFIX) == Some(name))
        .ok_or("Doc ID must be of the form org.couchdb.user:name")?;
    if let Some(old) = change.old {
        require(
            old.get("name") == new.get("name"),
            "Usernames can not be changed.",
        )?;
    }
    check_hash(new)?;
    if !change.is_admin {
        check_own(change, name, &roles)?;
    }
    require(
        roles
            .iter()
            .all(|role| *role == METRICS_ROLE || !role.starts_with('_')),
        "No system roles (starting with underscore) in users db.",
    )?;
    require(
        !name.starts_with('_'),
        "Username may not start with underscore.",
    )?;
    require(
        !name.contains(':'),
        "Character `:` is not allowed in usernames.",
    )
}

fn check_deletion(change: &Change<'_>) -> Result<(), String> {
    let name = change.caller.name.as_deref();
    let own = change
        .old
        .is_some_and(|old| name.is_some() && old.get("name").and_then(Value::as_str) == name);
    require(
        change.caller.is_server_admin() || own,
        "Only admins may delete other user docs.",
    )
}

fn check_hash(new: &Doc) -> Result<(), String> {
    require(
        !is_truthy(new.get("password_sha")) || is_truthy(new.get("salt")),
        "Users with password_sha must have a salt.See /_utils/script/couch.js for example code.",
    )?;
    let scheme = new.get("password_scheme").filter(|s| is_truthy(Some(s)));
    match scheme.map(Value::as_str) {
        None | Some(Some("simple")) => Ok(()),
        Some(Some("pbkdf2")) => {
            require(
                new.get("iterations").is_some_and(Value::is_number),
                "iterations must be a number.",
            )?;
            require(
                new.get("derived_key").is_some_and(Value::is_string),
                "derived_key must be a string.",
            )
        }
        Some(other) => Err(format!(
            "Password scheme `{}` not supported.",
            other.unwrap_or("?")
        )),
    }
}

/// Checks a change by a user who is not an admin.
fn check_own(change: &Change<'_>, name: &str, roles: &[&str]) -> Result<(), String> {
    let Some(old) = change.old else {
        return require(roles.is_empty(), "Only _admin may set roles");
    };
    require(
        change.caller.name.as_deref() == Some(name),
        "You may only update your own user document.",
    )?;
    let old = old.get("roles").and_then(Value::as_array);
    let mut old: Vec<&str> = old
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let mut new = roles.to_vec();
    old.sort_unstable();
    new.sort_unstable();
    require(old == new, "Only _admin may edit roles")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn caller(name: Option<&str>, roles: &[&str]) -> Caller {
        Caller {
            name: name.map(str::to_owned),
            roles: roles.iter().map(|role| (*role).to_owned()).collect(),
            ..Caller::default()
        }
    }

    fn doc(value: Value) -> Doc {
        match value {
            Value::Object(doc) => doc,
            other => panic!("{other}"),
        }
    }

    fn user(name: &str) -> Value {
        json!({"name": name, "type": "user", "roles": []})
    }

    fn with(mut value: Value, name: &str, to: Value) -> Value {
        value[name] = to;
        value
    }

    /// Returns the reason of a refusal, or nothing.
    fn refusal(by: &Caller, new: Value, old: Option<Value>, deleted: bool) -> String {
        let (new, old) = (doc(new), old.map(doc));
        let change = Change {
            id: "org.couchdb.user:joe",
            deleted,
            new: &new,
            old: old.as_ref(),
            caller: by,
            is_admin: by.is_server_admin(),
        };
        check(&change).err().unwrap_or_default()
    }

    #[test]
    fn what_is_no_user_is_refused_with_couchdbs_reasons() {
        let admin = caller(Some("admin"), &["_admin"]);
        let refused = |new| refusal(&admin, new, None, false);
        let joe = || user("joe");
        assert_eq!(refused(joe()), "");
        assert_eq!(refused(json!({})), "doc.type must be user");
        assert_eq!(refused(json!({"type": "user"})), "doc.name is required");
        let name = json!({"type": "user", "name": "joe"});
        assert_eq!(refused(name), "doc.roles must exist");
        assert_eq!(
            refused(with(joe(), "roles", json!({}))),
            "doc.roles must be an array"
        );
        assert_eq!(
            refused(with(joe(), "roles", json!([1]))),
            "doc.roles can only contain strings"
        );
        assert_eq!(
            refused(user("jo")),
            "Doc ID must be of the form org.couchdb.user:name"
        );
        assert_eq!(
            refused(with(joe(), "roles", json!(["_admin"]))),
            "No system roles (starting with underscore) in users db."
        );
        assert_eq!(refused(with(joe(), "roles", json!(["_metrics", "a"]))), "");
        let scheme = |scheme| with(user("joe"), "password_scheme", json!(scheme));
        assert_eq!(
            refused(scheme("md5")),
            "Password scheme `md5` not supported."
        );
        assert_eq!(refused(scheme("pbkdf2")), "iterations must be a number.");
        assert_eq!(
            refused(with(scheme("pbkdf2"), "iterations", json!(1))),
            "derived_key must be a string."
        );
        assert!(
            refused(with(joe(), "password_sha", json!("x")))
                .starts_with("Users with password_sha must have a salt.")
        );
    }

    #[test]
    fn users_change_themselves_but_not_their_roles() {
        let (joe, jane, nobody) = (
            caller(Some("joe"), &[]),
            caller(Some("jane"), &[]),
            caller(None, &[]),
        );
        let old = || Some(with(user("joe"), "roles", json!(["b", "a"])));
        let roles = |roles| with(user("joe"), "roles", json!(roles));
        assert_eq!(refusal(&joe, roles(["a", "b"]), old(), false), "");
        assert_eq!(
            refusal(&joe, roles(["a", "c"]), old(), false),
            "Only _admin may edit roles"
        );
        assert_eq!(
            refusal(&jane, roles(["a", "b"]), old(), false),
            "You may only update your own user document."
        );
        assert_eq!(
            refusal(&nobody, roles(["a", "b"]), old(), false),
            "You may only update your own user document."
        );
        assert_eq!(refusal(&nobody, user("joe"), None, false), "");
        assert_eq!(
            refusal(&nobody, roles(["a", "b"]), None, false),
            "Only _admin may set roles"
        );
        let other = Some(user("jo"));
        let admin = caller(Some("admin"), &["_admin"]);
        assert_eq!(
            refusal(&admin, user("joe"), other, false),
            "Usernames can not be changed."
        );
    }

    #[test]
    fn users_are_deleted_by_themselves_and_by_admins() {
        let refused = |name, roles: &[&str], old: Option<Value>| {
            refusal(&caller(name, roles), json!({}), old, true)
        };
        let reason = "Only admins may delete other user docs.";
        assert_eq!(refused(Some("joe"), &[], Some(user("joe"))), "");
        assert_eq!(refused(Some("jane"), &[], Some(user("joe"))), reason);
        assert_eq!(refused(None, &[], Some(json!({}))), reason);
        assert_eq!(refused(Some("joe"), &[], None), reason);
        assert_eq!(refused(Some("root"), &["_admin"], None), "");
    }
}
