//! A database's security object: who may read and write it, and who may change its design.

use std::collections::HashSet;

use serde_json::{Map, Value};
use thiserror::Error;

use crate::user::UserCtx;

/// The reason why a text is not a security object.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SecurityError {
    /// Not JSON, or nested too deep.
    #[error("invalid UTF-8 JSON")]
    Json,
    /// JSON, but not an object.
    #[error("security object must be a JSON object")]
    NotAnObject,
    /// A group (`admins`, `members` or `readers`) is not an object.
    #[error("{0} must be a JSON object")]
    GroupNotAnObject(&'static str),
    /// `names` or `roles` of a group is not a list of strings.
    #[error("{1} of {0} must be a JSON list of strings")]
    NotStrings(&'static str, &'static str),
}

/// The security object of a database without one of its own: `[couchdb] default_security`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DefaultSecurity {
    /// Only server administrators.
    #[default]
    AdminOnly,
    /// Everyone. CouchDB's `admin_local` means this too for clustered databases.
    Everyone,
}

impl DefaultSecurity {
    /// Returns the security object in JSON, as CouchDB writes it.
    pub fn json(self) -> &'static str {
        match self {
            DefaultSecurity::AdminOnly => {
                r#"{"members":{"roles":["_admin"]},"admins":{"roles":["_admin"]}}"#
            }
            DefaultSecurity::Everyone => "{}",
        }
    }
}

impl From<config::settings::DefaultSecurity> for DefaultSecurity {
    fn from(setting: config::settings::DefaultSecurity) -> DefaultSecurity {
        match setting {
            config::settings::DefaultSecurity::AdminOnly => DefaultSecurity::AdminOnly,
            config::settings::DefaultSecurity::Everyone
            | config::settings::DefaultSecurity::AdminLocal => DefaultSecurity::Everyone,
        }
    }
}

/// A valid security object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Security {
    json: Box<str>,
    admins: Group,
    members: Group,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Group {
    names: Strings,
    roles: Strings,
}

/// A list of strings, which is searched for each request: a long one by hash.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Strings {
    Few(Vec<String>),
    Many(HashSet<String>),
}

/// A list of more strings is kept as a hash set.
const FEW_MAX: usize = 16;

impl Default for Strings {
    fn default() -> Strings {
        Strings::Few(Vec::new())
    }
}

impl From<Vec<String>> for Strings {
    fn from(list: Vec<String>) -> Strings {
        match list.len() <= FEW_MAX {
            true => Strings::Few(list),
            false => Strings::Many(list.into_iter().collect()),
        }
    }
}

impl Strings {
    fn is_empty(&self) -> bool {
        match self {
            Strings::Few(list) => list.is_empty(),
            Strings::Many(set) => set.is_empty(),
        }
    }

    fn contains(&self, string: &str) -> bool {
        match self {
            Strings::Few(list) => list.iter().any(|one| one == string),
            Strings::Many(set) => set.contains(string),
        }
    }
}

impl Security {
    /// Parses a security object. `readers` is the older name of `members`, and counts when that is
    /// missing. Other members may have any value.
    ///
    /// # Errors
    /// [`SecurityError`].
    pub fn parse(json: &str) -> Result<Security, SecurityError> {
        let value: Value = serde_json::from_str(json).map_err(|_| SecurityError::Json)?;
        let Value::Object(object) = value else {
            return Err(SecurityError::NotAnObject);
        };
        let admins = Group::parse(&object, "admins")?.unwrap_or_default();
        let members = match Group::parse(&object, "members")? {
            Some(members) => members,
            None => Group::parse(&object, "readers")?.unwrap_or_default(),
        };
        Ok(Security {
            json: json.trim().into(),
            admins,
            members,
        })
    }

    /// Returns the security object of databases without one of their own.
    pub fn default_of(default: DefaultSecurity) -> Security {
        let admins = Group {
            names: Strings::default(),
            roles: vec!["_admin".to_owned()].into(),
        };
        match default {
            DefaultSecurity::AdminOnly => Security {
                json: default.json().into(),
                admins: admins.clone(),
                members: admins,
            },
            DefaultSecurity::Everyone => Security {
                json: default.json().into(),
                admins: Group::default(),
                members: Group::default(),
            },
        }
    }

    /// Returns the text that was parsed, white space around it removed.
    pub fn json(&self) -> &str {
        &self.json
    }

    /// Returns whether every user may read and write: the members are empty.
    pub fn is_public(&self) -> bool {
        self.members.names.is_empty() && self.members.roles.is_empty()
    }

    /// Returns whether this user may read the database and write documents other than design
    /// documents.
    pub fn is_member(&self, user: &UserCtx) -> bool {
        self.is_public() || self.members.has(user) || self.is_db_admin(user)
    }

    /// Returns whether this user may change design documents and the database's properties.
    pub fn is_db_admin(&self, user: &UserCtx) -> bool {
        user.is_admin() || self.admins.has(user)
    }
}

impl Group {
    fn parse(
        object: &Map<String, Value>,
        name: &'static str,
    ) -> Result<Option<Group>, SecurityError> {
        let Some(value) = object.get(name) else {
            return Ok(None);
        };
        let Value::Object(group) = value else {
            return Err(SecurityError::GroupNotAnObject(name));
        };
        let list =
            |key: &'static str| strings(group.get(key)).ok_or(SecurityError::NotStrings(name, key));
        Ok(Some(Group {
            names: list("names")?,
            roles: list("roles")?,
        }))
    }

    fn has(&self, user: &UserCtx) -> bool {
        let by_name = user
            .name
            .as_ref()
            .is_some_and(|name| self.names.contains(name));
        by_name || user.roles.iter().any(|role| self.roles.contains(role))
    }
}

/// Returns the strings of a list; `None` when the value is not a list.
fn strings(value: Option<&Value>) -> Option<Strings> {
    match value {
        None => Some(Strings::default()),
        Some(Value::Array(items)) => items
            .iter()
            .map(|item| item.as_str().map(str::to_owned))
            .collect::<Option<Vec<String>>>()
            .map(Strings::from),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn security(json: &str) -> Security {
        Security::parse(json).expect(json)
    }

    fn user(name: &str, roles: &[&str]) -> UserCtx {
        UserCtx {
            name: Some(name.to_owned()),
            roles: roles.iter().map(|r| r.to_string()).collect(),
        }
    }

    #[test]
    fn long_lists_are_hash_sets_and_find_what_short_ones_do() {
        let names: Vec<String> = (0..1000).map(|n| format!("u{n}")).collect();
        let json = serde_json::json!({"members": {"names": names}}).to_string();
        let security = security(&json);
        assert!(matches!(security.members.names, Strings::Many(_)));
        assert!(security.is_member(&user("u999", &[])) && !security.is_public());
        assert!(!security.is_member(&user("u1000", &[])));
        assert!(
            !security.is_member(&user("x", &["u1"])),
            "a role is no name"
        );
    }

    #[test]
    fn the_default_lets_only_administrators_in() {
        let default = Security::default_of(DefaultSecurity::AdminOnly);
        assert_eq!(default, security(default.json()));
        assert!(
            default.is_member(&UserCtx::admin("a")) && default.is_db_admin(&UserCtx::admin("a"))
        );
        assert!(
            !default.is_member(&UserCtx::anonymous()) && !default.is_member(&user("a", &["r"]))
        );
    }

    #[test]
    fn a_database_without_members_is_open_to_all_but_its_design_is_not() {
        for json in [
            "{}",
            r#"{"admins":{"names":["u"]}}"#,
            r#"{"members":{"names":[],"roles":[]}}"#,
        ] {
            let security = security(json);
            assert!(security.is_member(&UserCtx::anonymous()), "{json}");
            assert!(!security.is_db_admin(&UserCtx::anonymous()), "{json}");
        }
        assert_eq!(
            security("{}"),
            Security::default_of(DefaultSecurity::Everyone)
        );
    }

    #[test]
    fn names_and_roles_let_members_and_admins_in() {
        let security = security(
            r#"{"admins":{"names":["boss"],"roles":["chiefs"]},"members":{"names":["m"],"roles":["r"]}}"#,
        );
        for member in [
            user("m", &[]),
            user("x", &["r"]),
            user("boss", &[]),
            user("x", &["chiefs"]),
        ] {
            assert!(security.is_member(&member), "{member:?}");
        }
        for outsider in [UserCtx::anonymous(), user("r", &["m"]), user("M", &[])] {
            assert!(!security.is_member(&outsider), "{outsider:?}");
        }
        assert!(
            security.is_db_admin(&user("boss", &[]))
                && security.is_db_admin(&user("x", &["chiefs"]))
        );
        assert!(!security.is_db_admin(&user("m", &["r"])));
    }

    #[test]
    fn readers_is_the_older_name_of_members() {
        assert!(
            !security(r#"{"readers":{"names":["x"],"roles":[]}}"#).is_member(&UserCtx::anonymous())
        );
        assert!(security(r#"{"readers":{"names":["x"]},"members":{}}"#).is_public());
    }

    #[test]
    fn the_text_comes_back_unchanged() {
        let json = r#"{"admins":{"names":["a"],"roles":["r"]}, "extra":1.0,"x":{"b":1,"a":2}}"#;
        assert_eq!(security(&format!("  {json}\n")).json(), json);
    }

    #[test]
    fn what_is_no_security_object_is_refused() {
        let cases = [
            ("[]", SecurityError::NotAnObject),
            ("\"x\"", SecurityError::NotAnObject),
            ("", SecurityError::Json),
            ("{", SecurityError::Json),
            (
                r#"{"admins":[]}"#,
                SecurityError::GroupNotAnObject("admins"),
            ),
            (
                r#"{"members":null}"#,
                SecurityError::GroupNotAnObject("members"),
            ),
            (
                r#"{"admins":{"names":"a"}}"#,
                SecurityError::NotStrings("admins", "names"),
            ),
            (
                r#"{"admins":{"names":null}}"#,
                SecurityError::NotStrings("admins", "names"),
            ),
            (
                r#"{"members":{"roles":{}}}"#,
                SecurityError::NotStrings("members", "roles"),
            ),
            (
                r#"{"members":{"roles":[3]}}"#,
                SecurityError::NotStrings("members", "roles"),
            ),
        ];
        for (json, error) in cases {
            assert_eq!(Security::parse(json), Err(error), "{json}");
        }
        let deep = "[".repeat(100_000);
        assert_eq!(
            Security::parse(&format!("{{\"x\":{deep}")),
            Err(SecurityError::Json)
        );
    }

    proptest! {
        #[test]
        fn no_text_panics(text in r#"[{}\[\]",:a-z0-9 ]{0,40}|\PC{0,40}"#) {
            let _ = Security::parse(&text);
        }
    }
}
