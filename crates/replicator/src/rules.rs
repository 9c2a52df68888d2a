//! The rules of replicator databases, as in CouchDB: validation of documents, their ownership, and
//! the visibility of credentials.

use std::collections::HashSet;
use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;

use database::{Caller, CallerContext, PriorDocument, Refusal, SystemRules, Visibility};
use document::{EditDoc, normalise};
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::db::json_limits::{DOC_VALUES_MAX, parse};
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

/// A longer document may be slow to check, in bytes.
const QUICK_BYTES_MAX: usize = 64 << 10;

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
        context: &CallerContext<'_>,
        before: PriorDocument<'_>,
        edit: EditDoc,
    ) -> Result<EditDoc, Refusal> {
        let is_plain = |id: &document::DocId| !id.is_design() && !id.is_local();
        let Some(id) = edit.id.as_ref().filter(|id| is_plain(id)) else {
            return Ok(edit);
        };
        if has_role(context, "_replicator") {
            return Ok(edit);
        }
        let is_admin = is_admin(context);
        let name = context.caller.name.as_deref();
        if let PriorDocument::Was(old) = before
            && !is_admin
            && let Some(owner) = owner(old)
            && owner.as_str() != name
        {
            return Err(refuse(OTHERS));
        }
        let is_server_admin = has_role(context, "_admin");
        let body = parse(&edit.body, DOC_VALUES_MAX);
        let mut body: Map<String, Value> = body.map_err(refuse)?;
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
            check_user_ctx(context, body.get("user_ctx"))?;
        }
        if !edit.deleted && body.get("_replication_state").and_then(Value::as_str) != Some("failed")
        {
            let doc = Some(DocRef {
                db: context.db.to_owned(),
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

    fn is_slow(&self, edit: &EditDoc) -> bool {
        // Expressions of a selector are compiled. In the text that is stored nothing is escaped.
        edit.body.len() > QUICK_BYTES_MAX
            || memchr::memmem::find(&edit.body, b"\"$regex\"").is_some()
    }

    fn shows_all(&self, context: &CallerContext<'_>) -> bool {
        is_admin(context)
    }

    fn after_read(&self, context: &CallerContext<'_>, id: &str, json: &[u8]) -> Visibility {
        if id.starts_with("_design/") || id.starts_with("_local/") {
            return Visibility::Whole;
        }
        let owner = owner(json);
        let name = context.caller.name.as_deref();
        if name.is_some() && owner.as_ref().and_then(Value::as_str) == name {
            return Visibility::Whole;
        }
        let Ok(mut doc) = parse::<Map<String, Value>>(json, DOC_VALUES_MAX) else {
            return Visibility::Hidden;
        };
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
        Visibility::Instead(Value::Object(doc).to_string().into_bytes())
    }

    fn changed(&self, db: &str) {
        (self.changed)(db);
    }
}

/// Only a server admin may assign a replication to another user, or give it roles.
fn check_user_ctx(context: &CallerContext<'_>, ctx: Option<&Value>) -> Result<(), Refusal> {
    let Some(ctx) = ctx.filter(|ctx| !ctx.is_null()) else {
        return Ok(());
    };
    let name = ctx.get("name").and_then(Value::as_str);
    if name.is_none() || name != context.caller.name.as_deref() {
        return Err(refuse("The given `user_ctx.name` is not valid"));
    }
    let roles = ctx.get("roles").and_then(Value::as_array);
    let foreign = roles.into_iter().flatten().find(|role| {
        let role = role.as_str();
        role.is_none_or(|role| !has_role(context, role))
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

/// Returns the owner of a stored document, of which nothing else is kept.
fn owner(json: &[u8]) -> Option<Value> {
    let Owner(text) = serde_json::from_slice(json).ok()?;
    // An owner that is no name is nobody's.
    let owner = parse(text?.get().as_bytes(), 1).unwrap_or(Value::Bool(false));
    Some(owner).filter(|owner| !owner.is_null())
}

/// The member of this name: the last one, as in all parsed objects.
struct Owner<'a>(Option<&'a RawValue>);

impl<'de: 'a, 'a> Deserialize<'de> for Owner<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = Option<&'de RawValue>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a document")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut owner = None;
                while let Some(name) = map.next_key::<String>()? {
                    match name.as_str() {
                        "owner" => owner = Some(map.next_value()?),
                        _ => drop(map.next_value::<IgnoredAny>()?),
                    }
                }
                Ok(owner)
            }
        }
        deserializer.deserialize_map(Members).map(Owner)
    }
}

fn has_role(context: &CallerContext<'_>, role: &str) -> bool {
    context.caller.roles.iter().any(|r| r == role)
}

/// Returns whether the caller is an admin of the server or of the database.
fn is_admin(context: &CallerContext<'_>) -> bool {
    if has_role(context, "_admin") {
        return true;
    }
    let admins = context.security.parsed(Admins::parse);
    admins.is_ok_and(|admins| admins.has(context.caller))
}

/// The admins of a database, by its security object.
#[derive(Default)]
struct Admins {
    names: HashSet<String>,
    roles: HashSet<String>,
}

impl Admins {
    fn parse(security: &str) -> Result<Admins, Infallible> {
        let security: Value = serde_json::from_str(security).unwrap_or_default();
        let list = |name: &str| {
            let list = security.get("admins").and_then(|a| a.get(name)?.as_array());
            let texts = list.into_iter().flatten().filter_map(Value::as_str);
            texts.map(str::to_owned).collect()
        };
        Ok(Admins {
            names: list("names"),
            roles: list("roles"),
        })
    }

    fn has(&self, caller: &Caller) -> bool {
        let name = caller.name.as_ref();
        name.is_some_and(|name| self.names.contains(name))
            || caller.roles.iter().any(|role| self.roles.contains(role))
    }
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

    #[test]
    fn the_owner_of_a_document_is_read_alone() {
        let many = vec!["[0]"; DOC_VALUES_MAX].join(",");
        for (owner_json, found) in [
            (r#""anna""#, Some(json!("anna"))),
            ("null", None),
            // It is nobody's.
            (r#"["anna"]"#, Some(json!(false))),
            (&format!("[{many}]"), Some(json!(false))),
        ] {
            let doc = format!(r#"{{"x":[{many}],"owner":1,"owner":{owner_json}}}"#);
            assert_eq!(owner(doc.as_bytes()), found);
        }
        assert_eq!(owner(br#"{"x":{"owner":"anna"}}"#), None);
    }
}
