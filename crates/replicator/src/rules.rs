//! The rules of replicator databases, as in CouchDB: validation of documents, their ownership, and
//! the visibility of credentials.

use std::sync::Arc;

use database::{Asked, Before, Refusal, Shown, SystemRules};
use document::{EditDoc, normalise};
use serde_json::{Map, Value};

use crate::endpoint::without_user_info;
use crate::environment::Environment;
use crate::error::Error;
use crate::options::{DocRef, Replication, User};

/// The name of the server's own replicator database; others end in a slash and this name.
pub const REPLICATOR: &str = "_replicator";

/// Returns whether documents of this database are replications.
pub fn is_replicator_db(db: &str) -> bool {
    db == REPLICATOR || db.ends_with("/_replicator")
}

pub struct ReplicatorRules {
    pub environment: Arc<dyn Environment>,
    /// Called with the name of a changed database.
    pub changed: Arc<dyn Fn(&str) + Send + Sync>,
}

const OTHERS: &str = "Can't update replication documents from other users.";

fn refuse(reason: impl Into<String>) -> Refusal {
    Refusal {
        error: "forbidden".into(),
        reason: reason.into(),
    }
}

impl SystemRules for ReplicatorRules {
    fn concerns(&self, db: &str) -> bool {
        is_replicator_db(db)
    }

    fn before_write(
        &self,
        asked: &Asked<'_>,
        before: Before<'_>,
        edit: EditDoc,
    ) -> Result<EditDoc, Refusal> {
        let is_plain = |id: &document::DocId| !id.is_design() && !id.is_local();
        let Some(id) = edit.id.as_ref().filter(|id| is_plain(id)) else {
            return Ok(edit);
        };
        if has_role(asked, "_replicator") {
            return Ok(edit);
        }
        let is_admin = is_admin(asked);
        let name = asked.caller.name.as_deref();
        if let Before::Was(old) = before
            && !is_admin
            && let Some(owner) = owner(old)
            && owner.as_str() != name
        {
            return Err(refuse(OTHERS));
        }
        let is_server_admin = has_role(asked, "_admin");
        let body = serde_json::from_slice::<Map<String, Value>>(&edit.body);
        let mut body = body.map_err(|e| refuse(e.to_string()))?;
        let mut changed = false;
        match body.get("owner") {
            None => changed = true,
            Some(owner) if owner.as_str() == name && owner.is_string() == name.is_some() => {}
            Some(Value::Null) if is_admin => changed = true,
            Some(_) if is_admin => {}
            Some(_) => return Err(refuse(OTHERS)),
        }
        if !edit.deleted && !is_server_admin {
            // It would run with the rights of a server admin.
            let owner = body.get("owner").and_then(Value::as_str).or(name);
            if owner.is_some_and(|owner| self.environment.is_admin(owner)) {
                return Err(refuse(OTHERS));
            }
            check_user_ctx(asked, body.get("user_ctx"))?;
        }
        if !edit.deleted && body.get("_replication_state").and_then(Value::as_str) != Some("failed")
        {
            let doc = Some(DocRef {
                db: asked.db.to_owned(),
                id: id.as_str().to_owned(),
            });
            let settings = self.environment.settings();
            Replication::parse(&body, User::default(), doc, &settings).map_err(|e| match e {
                Error::BadRequest(reason) | Error::InvalidEndpoint(reason) => refuse(reason),
                e => refuse(e.to_string()),
            })?;
        }
        if !changed || edit.deleted {
            return Ok(edit);
        }
        body.insert("owner".into(), name.map_or(Value::Null, Value::from));
        let text = normalise(Value::Object(body).to_string().as_bytes());
        let text = text.map_err(|e| refuse(e.to_string()))?;
        edit.with_body(&text).map_err(|e| refuse(e.to_string()))
    }

    fn shows_all(&self, asked: &Asked<'_>) -> bool {
        is_admin(asked)
    }

    fn after_read(&self, asked: &Asked<'_>, id: &str, json: &[u8]) -> Shown {
        if id.starts_with("_design/") || id.starts_with("_local/") {
            return Shown::Whole;
        }
        let Ok(mut doc) = serde_json::from_slice::<Map<String, Value>>(json) else {
            return Shown::Hidden;
        };
        let owner = doc.get("owner").and_then(Value::as_str);
        if owner.is_some() && owner == asked.caller.name.as_deref() {
            return Shown::Whole;
        }
        for side in ["source", "target"] {
            if let Some(endpoint) = doc.get_mut(side) {
                censor(endpoint);
            }
        }
        for proxy in ["proxy", "source_proxy", "target_proxy"] {
            if let Some(Value::String(url)) = doc.get_mut(proxy) {
                *url = without_user_info(url);
            }
        }
        Shown::Instead(Value::Object(doc).to_string().into_bytes())
    }

    fn changed(&self, db: &str) {
        (self.changed)(db);
    }
}

/// Only a server admin may assign a replication to another user, or give it roles.
fn check_user_ctx(asked: &Asked<'_>, ctx: Option<&Value>) -> Result<(), Refusal> {
    let Some(ctx) = ctx.filter(|ctx| !ctx.is_null()) else {
        return Ok(());
    };
    let name = ctx.get("name").and_then(Value::as_str);
    if name.is_none() || name != asked.caller.name.as_deref() {
        return Err(refuse("The given `user_ctx.name` is not valid"));
    }
    let roles = ctx.get("roles").and_then(Value::as_array);
    let foreign = roles.into_iter().flatten().find(|role| {
        let role = role.as_str();
        role.is_none_or(|role| !has_role(asked, role))
    });
    match foreign {
        None => Ok(()),
        Some(role) => Err(refuse(format!(
            "Invalid role `{}` in the `user_ctx`",
            role.as_str().unwrap_or("?")
        ))),
    }
}

/// Removes credentials from a source or target.
fn censor(endpoint: &mut Value) {
    match endpoint {
        Value::String(url) => *url = without_user_info(url),
        Value::Object(members) => {
            members.remove("headers");
            members.remove("auth");
            if let Some(Value::String(url)) = members.get_mut("url") {
                *url = without_user_info(url);
            }
        }
        _ => {}
    }
}

fn owner(json: &[u8]) -> Option<Value> {
    let mut doc = serde_json::from_slice::<Map<String, Value>>(json).ok()?;
    doc.remove("owner").filter(|owner| !owner.is_null())
}

fn has_role(asked: &Asked<'_>, role: &str) -> bool {
    asked.caller.roles.iter().any(|r| r == role)
}

/// Returns whether the caller is an admin of the server or of the database.
fn is_admin(asked: &Asked<'_>) -> bool {
    if has_role(asked, "_admin") {
        return true;
    }
    let security: Value = serde_json::from_str(asked.security).unwrap_or_default();
    let list = |name: &str| {
        let list = security.get("admins").and_then(|a| a.get(name)?.as_array());
        list.map_or(&[] as &[Value], Vec::as_slice)
    };
    let named = |list: &[Value], text: &str| list.iter().any(|v| v.as_str() == Some(text));
    asked
        .caller
        .name
        .as_deref()
        .is_some_and(|name| named(list("names"), name))
        || asked
            .caller
            .roles
            .iter()
            .any(|role| named(list("roles"), role))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn credentials_are_taken_out_of_every_form_of_an_endpoint() {
        let mut url = json!("https://u:p@h/db");
        censor(&mut url);
        assert_eq!(url, "https://h/db");
        let mut object =
            json!({"url": "http://u:p@h/db", "headers": {"a": "b"}, "auth": {"x": 1}, "k": 1});
        censor(&mut object);
        assert_eq!(object, json!({"url": "http://h/db", "k": 1}));
    }

    #[test]
    fn which_databases_hold_replications() {
        for (db, is) in [
            ("_replicator", true),
            ("a/_replicator", true),
            ("a/b/_replicator", true),
            ("a_replicator", false),
            ("_users", false),
        ] {
            assert_eq!(is_replicator_db(db), is, "{db}");
        }
    }
}
