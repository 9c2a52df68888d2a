//! A database itself: creation, information, properties, purges, maintenance.

use std::sync::Arc;

use bytes::Bytes;
use database::{CreateOptions, Database, DefaultAccess, ExpiredDocuments, Expiry, PurgePlace, Ttl};
use document::{DocId, Rev};
use futures_util::{StreamExt as _, stream};
use serde_json::{Map, Value, json};

use crate::app::App;
use crate::database_routes::revs_diff::{write_revs, write_text};
use crate::document_routes::documents;
use crate::errors::ApiError;
use crate::reply::stream::{CHUNK_BYTES, pull};
use crate::reply::{Body, Reply, pieces_of};
use crate::request::Request;
use crate::request::revisions::parse_revs;
use node::Access;

type Answer = Result<Reply, ApiError>;

pub async fn create(app: &App, req: &mut Request, name: &str) -> Answer {
    let number = |param: &'static str| match req.query.get(param).map(str::parse::<u32>) {
        None => Ok(None),
        Some(Ok(n)) if n > 0 => Ok(Some(n)),
        Some(_) => Err(ApiError::bad_request(format!(
            "The `{param}` value should be a positive integer."
        ))),
    };
    let flag = |param: &'static str| match req.query.get(param) {
        None | Some("false") => Ok(false),
        Some("true") => Ok(true),
        Some(_) => Err(ApiError::bad_request(format!(
            "Invalid `{param}` parameter"
        ))),
    };
    let partitioned = flag("partitioned")?;
    let default = match req.query.get("default_access") {
        None | Some("none") => DefaultAccess::None,
        Some("owner") => DefaultAccess::Owner,
        Some(_) => return Err(ApiError::bad_request("Invalid `default_access` parameter")),
    };
    let access = flag("access")?.then_some(default);
    if access.is_none() && default != DefaultAccess::None {
        // Otherwise every member would read what its author takes for its own.
        return Err(ApiError::bad_request(
            "`default_access` is only for databases with `access=true`",
        ));
    }
    if req
        .query
        .get("placement")
        .is_some_and(|rules| !is_placement(rules))
    {
        return Err(ApiError::bad_request(
            "The `placement` value should be in a format `zone:n`.",
        ));
    }
    // The name of CouchDB's only engine is accepted, as there is only one here.
    if req.query.get("engine").is_some_and(|name| name != "couch") {
        return Err(ApiError::bad_request("invalid_engine_extension"));
    }
    // There is one node: more replicas are accepted as CouchDB accepts them, and one is kept.
    number("n")?;
    let options = CreateOptions {
        access,
        spread: flag("spread")?,
        ..node::new_database(&req.settings, number("q")?, partitioned)
    };
    app.node.databases.create(name, options).await?;
    Ok(Reply::json_bytes(201, "{\"ok\":true}\n").location(&req.url_of(&[name])))
}

/// Whether these are rules of which zone keeps how many replicas: `zone:n`, separated by commas.
fn is_placement(rules: &str) -> bool {
    rules.split(',').all(|rule| {
        matches!(rule.split(':').collect::<Vec<_>>()[..], [zone, n]
            if !zone.is_empty() && n.parse::<u32>().is_ok_and(|n| n > 0))
    })
}

pub async fn delete(app: &App, req: &Request, name: &str) -> Answer {
    // The client probably lost the id of a document that it wanted to delete.
    if req.query.get("rev").is_some() {
        return Err(ApiError::bad_request(
            "You tried to DELETE a database with a ?=rev parameter. Did you mean to DELETE a document instead?",
        ));
    }
    app.node.databases.delete(name).await?;
    Ok(Reply::ok())
}

pub async fn root(app: &App, req: &mut Request, access: &Access) -> Answer {
    match req.method.as_str() {
        "POST" => documents::post(app, req, access).await,
        _ => {
            let info = access.db.info()?;
            Ok(Reply::json(
                200,
                &match access.db.is_limited() {
                    true => node::limited_info_json(&info),
                    false => node::info_json(&info),
                },
            ))
        }
    }
}

pub async fn security(app: &App, req: &mut Request, access: &Access) -> Answer {
    if req.method != "PUT" {
        return Ok(security_reply(access.db.security()));
    }
    if app.node.auth.is_authentication_database(access.db.name())
        && !req.settings.couchdb.users_db_security_editable
    {
        return Err(ApiError::forbidden(
            "You can't edit the security object of the user database.",
        ));
    }
    let bytes = req.required_bytes().await?;
    let max = req.settings.couchdb.max_security_size;
    if bytes.len() as u64 > max {
        return Err(ApiError::too_large("[couchdb] max_security_size", max));
    }
    let json = document::normalise(&bytes)?;
    let json = String::from_utf8(json).map_err(|_| ApiError::invalid_json())?;
    auth::Security::parse(&json).map_err(|e| ApiError::bad_request(e.to_string()))?;
    access.db.set_security(json).await?;
    Ok(Reply::ok())
}

/// A longer security object is sent from the database's own copy, in bytes.
const COPIED_SECURITY_BYTES: usize = 16 << 10;

/// Answers with a security object. However many clients read a long one, there is one copy of it.
fn security_reply(security: Arc<str>) -> Reply {
    if security.len() <= COPIED_SECURITY_BYTES {
        let mut json = security.as_bytes().to_vec();
        json.push(b'\n');
        return Reply::json_bytes(200, json);
    }
    let length = security.len() as u64 + 1;
    let text = pieces_of(Bytes::from_owner(SecurityText(security)));
    let end = stream::once(async { Ok(Bytes::from_static(b"\n")) });
    let mut reply = Reply::json_bytes(200, Bytes::new());
    reply.body = Body::Sized(Box::pin(text.chain(end)), length);
    reply
}

/// The bytes of a text.
struct SecurityText(Arc<str>);

impl AsRef<[u8]> for SecurityText {
    fn as_ref(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

/// Reads a limit, a number above 0, from a body. A number beyond 64 bits is the highest limit. `reason`
/// is that of the error for anything else.
async fn limit_body(req: &mut Request, reason: &'static str) -> Result<u64, ApiError> {
    let body = req.required_bytes().await?;
    let is_digits = body.trim_ascii().iter().all(u8::is_ascii_digit);
    let number = match req.parsed(&body).await?.as_u64() {
        None if is_digits => Some(u64::MAX),
        number => number,
    };
    number
        .filter(|&n| n > 0)
        .ok_or_else(|| ApiError::bad_request(reason))
}

pub async fn revs_limit(req: &mut Request, access: &Access) -> Answer {
    if req.method != "PUT" {
        return Ok(Reply::json(200, &access.db.revs_limit().into()));
    }
    let limit = limit_body(req, "`limit` must be a positive integer").await?;
    access.db.set_revs_limit(limit).await?;
    Ok(Reply::ok())
}

pub async fn purged_infos_limit(req: &mut Request, access: &Access) -> Answer {
    if req.method != "PUT" {
        return Ok(Reply::json(200, &access.db.purged_infos_limit().into()));
    }
    let reason = "`purged_infos_limit` must be positive integer";
    let limit = limit_body(req, reason).await?;
    access.db.set_purged_infos_limit(limit).await?;
    Ok(Reply::ok())
}

pub async fn purged_infos(req: &Request, access: &Access) -> Answer {
    let db = access.db.clone();
    let mut place = Some(PurgePlace::default());
    let mut before: &[u8] = b"{\"purged_infos\":[";
    let next = move |out: &mut Vec<u8>| -> Result<bool, ApiError> {
        let Some(from) = place else {
            return Ok(false);
        };
        if from == PurgePlace::default() {
            out.extend_from_slice(std::mem::take(&mut before));
        }
        place = db.purged_infos(from, &mut |purge| {
            out.extend_from_slice(std::mem::replace(&mut before, b","));
            out.extend_from_slice(b"{\"id\":");
            write_text(&purge.id, out);
            out.extend_from_slice(b",\"revs\":");
            write_revs(&purge.revs, out);
            out.push(b'}');
            out.len() < CHUNK_BYTES
        })?;
        if place.is_none() {
            out.extend_from_slice(b"]}\n");
        }
        Ok(place.is_some())
    };
    pull(&req.answers, "application/json", next).await
}

pub async fn auto_purge(app: &App, req: &mut Request, access: &Access) -> Answer {
    if req.method != "PUT" {
        return Ok(Reply::json(200, &auto_purge_json(&access.db)));
    }
    req.require_json()?;
    let (ttl, expiry) = auto_purge_properties(req.json_object().await?)?;
    access.db.set_deleted_document_ttl(ttl).await?;
    // Only if it differs: in a cluster, it is a write of its own. Changes by other nodes were applied here before the change above.
    if access.db.expiry() != expiry {
        access.db.set_expiry(expiry).await?;
    }
    app.node.auto_purge.wake();
    Ok(Reply::json_bytes(201, "{\"ok\":true}\n"))
}

fn auto_purge_json(db: &Database) -> Value {
    let mut own = Map::new();
    if let Some(ttl) = db.deleted_document_ttl() {
        own.insert("deleted_document_ttl".into(), ttl.as_str().into());
    }
    if let Some(expiry) = db.expiry() {
        own.insert("expires_at".into(), expiry.member().into());
        own.insert("expired_documents".into(), expiry.then().as_str().into());
    }
    own.into()
}

/// Reads the body of a `PUT`: what it does not name is removed.
fn auto_purge_properties(
    body: Map<String, Value>,
) -> Result<(Option<Ttl>, Option<Expiry>), ApiError> {
    let (mut ttl, mut member, mut then) = (None, None, None);
    for (name, value) in body {
        let text = value.as_str();
        let is_valid = match name.as_str() {
            "deleted_document_ttl" => {
                ttl = text.and_then(Ttl::parse);
                ttl.is_some()
            }
            "expires_at" => {
                member = text.map(str::to_owned);
                member.is_some()
            }
            "expired_documents" => {
                then = text.and_then(ExpiredDocuments::parse);
                then.is_some()
            }
            _ => return Err(ApiError::bad_request("invalid auto purge property")),
        };
        if !is_valid {
            let wanted = match name.as_str() {
                "expired_documents" => "\"delete\" or \"purge\"",
                _ => "a valid string",
            };
            return Err(ApiError::bad_request(format!("{name} must be {wanted}")));
        }
    }
    let Some(member) = member else {
        let reason = "expired_documents needs expires_at";
        return match then {
            None => Ok((ttl, None)),
            Some(_) => Err(ApiError::bad_request(reason)),
        };
    };
    let reason = "expires_at must be the name of a member of documents, of at most 256 bytes and without a leading underscore";
    let expiry = Expiry::new(&member, then.unwrap_or_default());
    let expiry = expiry.ok_or_else(|| ApiError::bad_request(reason))?;
    Ok((ttl, Some(expiry)))
}

pub async fn time_seq(app: &App, req: &Request, access: &Access) -> Answer {
    if req.method == "DELETE" {
        access.db.reset_time_seq().await?;
        return Ok(Reply::ok());
    }
    let mut ranges = Map::new();
    for (shard, bins) in access.db.time_seq()? {
        let bins: Vec<Value> = bins
            .into_iter()
            .map(|bin| json!([bin.start, bin.changes]))
            .collect();
        // Each node has its own.
        let mut nodes = Map::new();
        nodes.insert(app.node.name.clone(), bins.into());
        ranges.insert(shard.range, nodes.into());
    }
    Ok(Reply::json(200, &json!({"time_seq": ranges})))
}

fn rev_strings(revs: &[Rev]) -> Vec<String> {
    revs.iter().map(Rev::to_string).collect()
}

pub async fn purge(req: &mut Request, access: &Access) -> Answer {
    req.require_json()?;
    let body = req.json_object().await?;
    let mut requests = Vec::with_capacity(body.len());
    for (id, revs) in &body {
        requests.push((DocId::new(id)?, parse_revs(revs)?));
    }
    let revs: usize = requests.iter().map(|(_, r)| r.len()).sum();
    if revs as u64 > req.settings.purge.max_revisions_number {
        return Err(ApiError::too_many_purged());
    }
    let done = access.db.purge(requests).await?;
    let purged: Map<String, Value> = done
        .removed
        .into_iter()
        .map(|(id, revs)| (id.to_string(), rev_strings(&revs).into()))
        .collect();
    Ok(Reply::json(
        if done.has_few_copies { 202 } else { 201 },
        &json!({"purge_seq": null, "purged": purged}),
    ))
}

pub async fn compact(req: &mut Request, access: &Access, ddoc: Option<&str>) -> Answer {
    req.require_json()?;
    req.bytes().await?;
    if let Some(ddoc) = ddoc {
        return crate::database_routes::views::compact(access, ddoc).await;
    }
    access.db.compact()?;
    Ok(Reply::json_bytes(202, "{\"ok\":true}\n"))
}

pub async fn ensure_full_commit(req: &mut Request, access: &Access) -> Answer {
    req.require_json()?;
    req.bytes().await?;
    access.db.ensure_full_commit().await?;
    let info = access.db.info()?;
    Ok(Reply::json(
        201,
        &json!({"ok": true, "instance_start_time": info.instance_start_time}),
    ))
}

pub fn shards(app: &App, access: &Access, id: Option<&str>) -> Answer {
    if let Some(id) = id {
        let range = access.db.shard_of(&DocId::new(id)?).range;
        let nodes = holders(app, access, access.db.shard_index(id));
        return Ok(Reply::json(200, &json!({"range": range, "nodes": nodes})));
    }
    let shards: Map<String, Value> = access
        .db
        .shards()
        .into_iter()
        .enumerate()
        .map(|(i, s)| (s.range, holders(app, access, i).into()))
        .collect();
    Ok(Reply::json(200, &json!({"shards": shards})))
}

/// Names of the nodes that have a shard.
fn holders(app: &App, access: &Access, shard: usize) -> Vec<String> {
    match app.node.member() {
        Some(member) => member.holders(&access.db, shard),
        None => vec![app.node.name.clone()],
    }
}

pub fn sync_shards(access: &Access) -> Answer {
    access.require_admin()?;
    Ok(Reply::json_bytes(202, "{\"ok\":true}\n"))
}
