//! Whose a database is: the principals that its documents get.

use std::collections::BTreeSet;

use serde_json::Value;

/// Where the principals come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// The members and admins of the database, by its security object.
    Security,
    /// The user whose name the rest of the database's name is, in hexadecimal digits, as
    /// `couch_peruser` names databases.
    Name,
}

/// The principals of a database's documents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// In order; at least one.
    pub principals: BTreeSet<String>,
}

impl Owner {
    /// Returns the owner of a database.
    ///
    /// # Errors
    /// Why it has none.
    pub fn of(rule: Rule, db: &str, security: &Value) -> Result<Owner, String> {
        let principals = match rule {
            Rule::Security => members(security),
            Rule::Name => BTreeSet::from_iter(name_in(db)),
        };
        if principals.is_empty() {
            return Err(match rule {
                Rule::Security => {
                    "its security object names no user or role; choose another rule with --by"
                        .to_owned()
                }
                Rule::Name => "its name does not end with the digits of a user's name".to_owned(),
            });
        }
        let is_valid = |one: &&String| match one.strip_prefix("role:") {
            Some(role) => !role.is_empty(),
            None => !one.contains(':') && !one.is_empty() && *one != "*",
        };
        match principals.iter().find(|one| !is_valid(one)) {
            Some(name) => Err(format!("`{name}` cannot be a principal")),
            None => Ok(Owner { principals }),
        }
    }

    /// Returns the value of `_access`.
    pub fn access(&self) -> Value {
        self.principals.iter().cloned().collect()
    }

    /// Returns whether a document with this `_access` may be the owner's: one of the principals is in
    /// it.
    pub fn is_named_in(&self, access: &Value) -> bool {
        let lists: Vec<&Value> = match access {
            Value::Object(lists) => lists.values().collect(),
            list => vec![list],
        };
        let names = lists.into_iter().filter_map(Value::as_array).flatten();
        let mut names = names.filter_map(Value::as_str);
        names.any(|name| self.principals.contains(name))
    }
}

/// Returns the users and roles of a security object. Server admins have all rights anyway.
fn members(security: &Value) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for kind in ["members", "admins"] {
        let list = |what: &str| security[kind][what].as_array().into_iter().flatten();
        found.extend(list("names").filter_map(Value::as_str).map(str::to_owned));
        let roles = list("roles").filter_map(Value::as_str);
        let roles = roles.filter(|role| *role != "_admin");
        found.extend(roles.map(|role| format!("role:{role}")));
    }
    found
}

/// Returns the user whose name ends the name of a database: `userdb-626f62` is that of `bob`.
fn name_in(db: &str) -> Option<String> {
    let (_, digits) = db.rsplit_once('-')?;
    let is_even = !digits.is_empty() && digits.len().is_multiple_of(2) && digits.is_ascii();
    let pairs = is_even.then(|| (0..digits.len()).step_by(2))?;
    let bytes = pairs.map(|at| u8::from_str_radix(&digits[at..at + 2], 16).ok());
    String::from_utf8(bytes.collect::<Option<Vec<u8>>>()?).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn owners_are_members_or_in_the_name() {
        let security = json!({
            "admins": {"names": ["bob"], "roles": ["_admin"]},
            "members": {"names": ["al", "bob"], "roles": ["nurse"]},
        });
        let access = |rule, db: &str, security: &Value| {
            Owner::of(rule, db, security).map(|owner| owner.access())
        };
        assert_eq!(
            access(Rule::Security, "x", &security),
            Ok(json!(["al", "bob", "role:nurse"]))
        );
        assert!(access(Rule::Security, "x", &json!({})).is_err());
        assert_eq!(
            access(Rule::Name, "userdb-626f62", &json!({})),
            Ok(json!(["bob"]))
        );
        for other in ["userdb", "userdb-", "userdb-6", "userdb-xy", "userdb-ff"] {
            assert!(access(Rule::Name, other, &security).is_err(), "{other}");
        }
    }

    #[test]
    fn a_document_is_the_owners_if_it_names_one() {
        let owner = Owner::of(Rule::Name, "u-626f62", &Value::Null).unwrap();
        for (access, is_own) in [
            (json!(["bob", "al"]), true),
            (json!({"read": ["al"], "write": ["bob"]}), true),
            (json!(["al"]), false),
            (Value::Null, false),
        ] {
            assert_eq!(owner.is_named_in(&access), is_own, "{access}");
        }
    }
}
