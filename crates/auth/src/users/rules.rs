//! Rules of the users database: who may write which document, and who sees which part of it.

use std::borrow::Cow;

use database::{CallerContext, PriorDocument, Refusal, SystemRules, Visibility};
use document::EditDoc;
use document::json::member;
use serde_json::{Map, Value};
use std::sync::atomic::Ordering;

use super::object_members::rewritten;
use super::record::{HASH_MEMBERS, hash_members, members};
use super::requirements::PasswordRefusal;
use super::validate::{self, Change};
use super::{USER_PREFIX, Users};
use crate::password::PasswordHash;
use crate::security::Security;
use crate::user::UserCtx;

const PASSWORD: &str = "password";

/// Passwords that one request of a user without admin rights may set: each is hashed, which takes
/// about as long as a login.
const PASSWORDS_MAX: usize = 100;
const TOO_MANY_PASSWORDS: &str =
    "one request may set 100 passwords at most: send the other documents in further requests";

fn refusal(error: &'static str, reason: impl Into<String>) -> Refusal {
    Refusal {
        error: Cow::Borrowed(error),
        reason: reason.into(),
    }
}

fn is_database_admin(context: &CallerContext<'_>) -> bool {
    if context.caller.is_server_admin() {
        return true;
    }
    let user = UserCtx {
        name: context.caller.name.clone(),
        roles: context.caller.roles.clone(),
    };
    // For each row of a listing: a security object may be long.
    let security = context.security.parsed(Security::parse);
    security.is_ok_and(|security| security.is_db_admin(&user))
}

/// The members that the rules read.
fn object(json: &[u8]) -> Map<String, Value> {
    members(json).unwrap_or_default()
}

/// Returns the part of another user's document that all clients see.
fn public_part(json: &[u8], fields: &[String]) -> Visibility {
    // The document may be long, and any client may read it.
    if fields.is_empty() {
        return Visibility::Hidden;
    }
    let mut has_public = false;
    let shown = rewritten(json, &[], |name| {
        let is_public = fields.iter().any(|field| field == name);
        has_public |= is_public;
        is_public || name.starts_with('_')
    });
    match shown.filter(|_| has_public) {
        Some(shown) => Visibility::Instead(shown),
        None => Visibility::Hidden,
    }
}

impl SystemRules for Users {
    fn concerns(&self, db: &str) -> bool {
        self.settings().is_users_database(db)
    }

    fn before_write(
        &self,
        context: &CallerContext<'_>,
        before: PriorDocument<'_>,
        edit: EditDoc,
    ) -> Result<EditDoc, Refusal> {
        let Some(id) = edit.id.clone() else {
            return Ok(edit);
        };
        let is_admin = is_database_admin(context);
        let name = id.as_str().strip_prefix(USER_PREFIX);
        let caller = context.caller.name.as_deref();
        // Only an administrator may register another user; a name in use is a conflict.
        if !is_admin && caller.is_some() && caller != name {
            return Err(refusal("not_found", "missing"));
        }
        // Local documents belong to replications, which only admins run here: other users do not
        // learn which there are.
        if !is_admin && id.is_local() {
            return Err(refusal("not_found", "missing"));
        }
        if id.is_design() || id.is_local() || matches!(before, PriorDocument::Conflict) {
            return Ok(edit);
        }
        let new = object(&edit.body);
        let old = match before {
            PriorDocument::Was(json) => {
                Some(object(json)).filter(|old| !old.contains_key("_deleted"))
            }
            PriorDocument::Nothing | PriorDocument::Conflict => None,
        };
        let change = Change {
            id: id.as_str(),
            deleted: edit.deleted,
            new: &new,
            old: old.as_ref(),
            caller: context.caller,
            is_admin,
        };
        // In other databases the document is not used for logins, and in CouchDB no design document
        // checks it.
        if context.db == self.settings().database {
            validate::check(&change).map_err(|reason| refusal("forbidden", reason))?;
        }
        match new.get(PASSWORD) {
            None | Some(Value::Null) => Ok(edit),
            Some(Value::String(password)) => self.hashed(edit, password),
            Some(_) => Err(refusal("forbidden", "Password value is invalid.")),
        }
    }

    fn is_slow(&self, edit: &EditDoc) -> bool {
        !edit.deleted && member(&edit.body, PASSWORD).is_some()
    }

    fn slow_edits_max(&self, context: &CallerContext<'_>) -> Option<(usize, &'static str)> {
        (!is_database_admin(context)).then_some((PASSWORDS_MAX, TOO_MANY_PASSWORDS))
    }

    fn shows_all(&self, context: &CallerContext<'_>) -> bool {
        is_database_admin(context)
    }

    fn may_know(&self, context: &CallerContext<'_>, id: &str) -> bool {
        let name = id.strip_prefix(USER_PREFIX);
        name.is_none() || name == context.caller.name.as_deref() || is_database_admin(context)
    }

    fn after_read(&self, context: &CallerContext<'_>, id: &str, json: &[u8]) -> Visibility {
        if id.starts_with("_design/") {
            return Visibility::Forbidden(
                "Only administrators can view design docs in the users database.",
            );
        }
        let name = id.strip_prefix(USER_PREFIX);
        if name.is_some() && name == context.caller.name.as_deref() {
            return Visibility::Whole;
        }
        public_part(json, &self.settings().public_fields)
    }

    fn changed(&self, db: &str) {
        if db != self.settings().database {
            return;
        }
        self.changes.fetch_add(1, Ordering::AcqRel);
        self.changed.notify_one();
    }
}

impl Users {
    /// Returns the edit with a hash in place of its password.
    fn hashed(&self, edit: EditDoc, password: &str) -> Result<EditDoc, Refusal> {
        let invalid = || refusal("doc_validation", "the document cannot be read");
        let body = if edit.deleted {
            rewritten(&edit.body, &[], |name| name != PASSWORD)
        } else {
            let settings = self.settings();
            settings
                .requirements
                .check(password)
                .map_err(|refused| match refused {
                    PasswordRefusal::Password(reason) => refusal("bad_request", reason),
                    PasswordRefusal::Setting => {
                        refusal("forbidden", "Server cannot hash passwords at this time.")
                    }
                })?;
            let hash = PasswordHash::made(settings.new_hash, password.as_bytes());
            rewritten(&edit.body, &hash_members(&hash), |name| {
                name != PASSWORD && !HASH_MEMBERS.contains(&name)
            })
        };
        let body = body.ok_or_else(invalid)?;
        edit.with_body(&body).map_err(|_| invalid())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(json: &str, fields: &[&str]) -> Option<String> {
        let fields: Vec<String> = fields.iter().map(|&field| field.to_owned()).collect();
        match public_part(json.as_bytes(), &fields) {
            Visibility::Instead(shown) => Some(String::from_utf8(shown).expect("UTF-8")),
            _ => None,
        }
    }

    #[test]
    fn others_see_the_public_fields_of_documents_that_have_one() {
        let json = r#"{"_id":"org.couchdb.user:a","salt":"x","city":"Oslo","_rev":"1-a"}"#;
        assert_eq!(
            shown(json, &["city", "age"]).as_deref(),
            Some(r#"{"_id":"org.couchdb.user:a","city":"Oslo","_rev":"1-a"}"#)
        );
        assert_eq!(shown(json, &["age"]), None);
        assert_eq!(shown(json, &[]), None);
        assert_eq!(shown("[]", &["city"]), None);
    }
}
