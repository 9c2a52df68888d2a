//! Routes of the server as a whole.

use std::sync::Arc;

use config::settings::MaintenanceMode;
use database::{Databases, NameRange, WriteFailure};
use document::check_id_prefix;
use hyper::header::{CACHE_CONTROL, EXPIRES, PRAGMA};
use member::Member;
use serde_json::{Map, Value, json};

use crate::app::{App, COUCHDB_VERSION};
use crate::errors::ApiError;
use crate::reply::Reply;
use crate::reply::stream::pull_blocking;
use crate::request::Request;
use crate::request::parameters::{Given, bound_limit};
use crate::server_routes::backup;
use crate::server_routes::infos_elsewhere::{InfosElsewhere, elsewhere, with_infos};
use node::{Query, info_json, limited_info_json, parse_id};

type Answer = Result<Reply, ApiError>;

/// Most ids of one request, whatever `[uuids] max_count` is: all are in memory at a time.
const UUIDS_MAX: u64 = 100_000;
/// Databases whose information is read together, before work of others has its turn: those that are
/// not open have to be opened.
const INFOS_AT_ONCE: usize = 100;
/// The information on at most this many databases is one text, about 160 KB, with an ETag. More is
/// sent as it is read.
const INFOS_WHOLE_MAX: usize = 256;
/// Longest reply of `_settee/constant`, in bytes.
const CONSTANT_BYTES_MAX: usize = 1 << 20;

/// Features that clients check for, with CouchDB's names, in CouchDB's order; then Settee's own.
const FEATURES: [&str; 6] = [
    "search",
    "nouveau",
    "partitioned",
    "pluggable-storage-engines",
    "scheduler",
    "access",
];

pub fn welcome(app: &App) -> Reply {
    let mut vendor = json!({"name": "Settee", "version": env!("CARGO_PKG_VERSION")});
    if app.settings().dev.is_some() {
        vendor["dev"] = true.into();
    }
    Reply::json(
        200,
        &json!({
            "couchdb": "Welcome",
            "version": COUCHDB_VERSION,
            "git_sha": "settee",
            "uuid": app.node.uuid,
            "features": FEATURES,
            "vendor": vendor,
        }),
    )
}

pub fn up(app: &App, req: &Request) -> Reply {
    let status = match req.settings.couchdb.maintenance_mode {
        MaintenanceMode::Off => {
            if let Some(failure) = app.node.databases.write_failure() {
                return writes_fail(&failure);
            }
            let seeds = app.node.member().map(|member| seeds(member));
            let seeds = seeds.unwrap_or_default();
            if let Some(reason) = app.node.member().and_then(|member| member.unfit()) {
                let error = "service_unavailable";
                let body =
                    json!({"status": "cut_off", "error": error, "reason": reason, "seeds": seeds});
                return Reply::json(503, &body);
            }
            return Reply::json(200, &json!({"status": "ok", "seeds": seeds}));
        }
        MaintenanceMode::On => "maintenance_mode",
        MaintenanceMode::NoLoadBalancing => "nolb",
    };
    Reply::json(404, &json!({"status": status}))
}

/// The response of `_up` while all writes fail. It is public, so it names no file.
fn writes_fail(failure: &WriteFailure) -> Reply {
    let then = match failure.needs_restart {
        true => "They fail until the server is restarted.",
        false => "They are accepted again when the cause is removed.",
    };
    let reason = format!("All writes fail: {}. {then}", failure.cause);
    Reply::json(
        503,
        &json!({"status": "writes_fail", "error": "service_unavailable", "reason": reason}),
    )
}

/// The other nodes, and whether they answer.
fn seeds(member: &Member) -> Map<String, Value> {
    let others = member.nodes().into_iter().filter(|node| !node.is_me);
    let state = |is_live| if is_live { "ok" } else { "down" };
    others
        .map(|node| {
            (
                node.name,
                json!({"last_replication_status": state(node.is_live)}),
            )
        })
        .collect()
}

/// The databases that a query selects; of a parameter that is given twice, the later one applies.
fn name_range(req: &Request) -> Result<NameRange, ApiError> {
    let mut range = NameRange {
        start: None,
        end: None,
        inclusive_end: true,
        descending: false,
        skip: 0,
        limit: None,
    };
    for (param, text) in &req.query.0 {
        let given = Given::Text(text);
        match param.as_str() {
            "key" => {
                range.start = name(param, given)?;
                range.end.clone_from(&range.start);
            }
            "start_key" | "startkey" => range.start = name(param, given)?,
            "end_key" | "endkey" => range.end = name(param, given)?,
            "inclusive_end" => range.inclusive_end = given.boolean()?,
            "descending" => range.descending = given.boolean()?,
            "skip" => range.skip = given.natural()?,
            "limit" => range.limit = Some(given.natural()?),
            _ => {}
        }
    }
    // As in CouchDB, where databases are documents of a database.
    bound_limit(
        &mut range.limit,
        req.settings.query_server_config.query_limit,
    )?;
    Ok(range)
}

/// A name given as a JSON string.
fn name(param: &str, given: Given<'_>) -> Result<Option<String>, ApiError> {
    match given.json()? {
        Value::String(s) => Ok(Some(s)),
        _ => Err(ApiError::query_parse(format!("`{param}` must be a string"))),
    }
}

fn natural(q: &Query, param: &str) -> Result<Option<u64>, ApiError> {
    q.get(param).map(|v| Given::Text(v).natural()).transpose()
}

pub async fn all_dbs(app: &App, req: &Request) -> Answer {
    if let Some(member) = app.node.member() {
        let fresh = member.gateway().fresh_control().await;
        fresh.map_err(|e| ApiError::busy(e.to_string()))?;
    }
    let names = app.node.databases.names(&name_range(req)?);
    let names: Vec<&str> = names.iter().map(|n| &**n).collect();
    Ok(with_content_etag(req, Reply::json(200, &names.into())))
}

/// Adds an ETag of the response's bytes, and answers 304 to clients that have them.
fn with_content_etag(req: &Request, reply: Reply) -> Reply {
    use std::hash::{DefaultHasher, Hasher};
    let crate::reply::Body::Full(body) = &reply.body else {
        return reply;
    };
    let mut hasher = DefaultHasher::new();
    hasher.write(body);
    let etag = format!("{:016X}", hasher.finish());
    if req.none_match(&etag) {
        return Reply::empty(304).etag(&etag);
    }
    reply.etag(&etag)
}

pub async fn dbs_info(app: &App, req: &mut Request) -> Answer {
    if req.method == "POST" {
        return dbs_info_of_keys(app, req).await;
    }
    let names = app.node.databases.names(&name_range(req)?);
    let count = names.len();
    let elsewhere = elsewhere(app, names.iter().map(|name| &**name));
    let elsewhere = with_infos(app, req, elsewhere).await;
    let keys = names.into_iter().map(|name| Value::from(&*name));
    // One deleted meanwhile is left out.
    let infos = DbInfos::new(app, req, keys, (elsewhere, false));
    Ok(with_content_etag(req, infos.reply(req, count).await?))
}

/// The information on databases as a JSON array, which is made in pieces.
struct DbInfos<K> {
    databases: Arc<Databases>,
    keys: K,
    /// Those of databases that this node does not have.
    elsewhere: InfosElsewhere,
    /// Shows an error for a database that does not exist, in place of nothing.
    shows_missing: bool,
    /// Whether the client is a server admin: others see no counts of databases with access.
    is_admin: bool,
    /// Before the next element.
    separator: &'static [u8],
}

impl<K: Iterator<Item = Value> + Send + 'static> DbInfos<K> {
    fn new(
        app: &App,
        req: &Request,
        keys: K,
        (elsewhere, shows_missing): (InfosElsewhere, bool),
    ) -> DbInfos<K> {
        DbInfos {
            databases: app.node.databases.clone(),
            keys,
            elsewhere,
            shows_missing,
            is_admin: req.user.is_admin(),
            separator: b"[",
        }
    }

    /// Appends the next elements, and the end of the array after the last one; returns whether there
    /// are more. Blocks.
    fn append(&mut self, out: &mut Vec<u8>) -> bool {
        for _ in 0..INFOS_AT_ONCE {
            let Some(key) = self.keys.next() else {
                if self.separator == b"[" {
                    out.push(b'[');
                }
                out.extend_from_slice(b"]\n");
                return false;
            };
            let Some(row) = self.row(&key) else {
                continue;
            };
            out.extend_from_slice(std::mem::replace(&mut self.separator, b","));
            out.extend_from_slice(row.to_string().as_bytes());
        }
        true
    }

    /// Returns the element for a database; `None` for one that is left out.
    fn row(&self, key: &Value) -> Option<Value> {
        let name = key.as_str();
        match name.and_then(|name| self.elsewhere.get(name)) {
            Some(Some(info)) => return Some(json!({"key": key, "info": info})),
            // As in CouchDB, if no node that has it answers.
            Some(None) => return Some(json!({"key": key, "error": "timeout"})),
            None => {}
        }
        let db = name.map(|name| self.databases.get(name));
        let info = db.and_then(|db| db.and_then(|db| db.info()).ok());
        match info {
            Some(info) if info.access.is_some() && !self.is_admin => {
                Some(json!({"key": key, "info": limited_info_json(&info)}))
            }
            Some(info) => Some(json!({"key": key, "info": info_json(&info)})),
            None if self.shows_missing => Some(json!({"key": key, "error": "not_found"})),
            None => None,
        }
    }

    /// The response with the information on `count` databases at most.
    async fn reply(self, req: &Request, count: usize) -> Answer {
        let mut infos = self;
        // At the usual priority: requests that open a database wait for this.
        if count > INFOS_WHOLE_MAX {
            let next = move |out: &mut Vec<u8>| Ok(infos.append(out));
            return pull_blocking(&req.answers, "application/json", next).await;
        }
        let (mut text, mut more) = (vec![], true);
        while more {
            let read = tokio::task::spawn_blocking(move || {
                let more = infos.append(&mut text);
                (infos, text, more)
            });
            (infos, text, more) = read.await.map_err(ApiError::worker_failed)?;
        }
        Ok(Reply::json_bytes(200, text))
    }
}

async fn dbs_info_of_keys(app: &App, req: &mut Request) -> Answer {
    req.require_json()?;
    let mut body = req.json_object().await?;
    let keys = match body.remove("keys") {
        None => return Err(ApiError::bad_request("`keys` member must exist.")),
        Some(Value::Array(keys)) => keys,
        Some(_) => return Err(ApiError::bad_request("`keys` member must be an array.")),
    };
    if keys.len() as u64 > req.settings.chttpd.max_db_number_for_dbs_info_req {
        return Err(ApiError::bad_request("too_many_keys"));
    }
    let count = keys.len();
    let elsewhere = elsewhere(app, keys.iter().filter_map(Value::as_str));
    let elsewhere = with_infos(app, req, elsewhere).await;
    let infos = DbInfos::new(app, req, keys.into_iter(), (elsewhere, true));
    infos.reply(req, count).await
}

pub fn uuids(app: &App, req: &Request) -> Answer {
    let count = match req.query.get("count").map(str::parse::<u64>) {
        None => 1,
        Some(Ok(n)) => n,
        Some(Err(_)) => return Err(ApiError::bad_request("count must be a positive integer")),
    };
    if count > req.settings.uuids.max_count.min(UUIDS_MAX) {
        return Err(ApiError::bad_request("count parameter too large"));
    }
    let prefix = req.query.get("prefix").unwrap_or_default();
    check_id_prefix(prefix).map_err(|e| ApiError::bad_request(e.to_string()))?;
    let mut uuids = vec![];
    for _ in 0..count {
        let id = format!("{prefix}{}", app.node.new_uuid());
        if !prefix.is_empty() {
            // An id that no document may have would be of no use.
            parse_id(&id, &req.settings.couchdb)?;
        }
        uuids.push(id);
    }
    let reply = with_content_etag(req, Reply::json(200, &json!({"uuids": uuids})));
    Ok(reply
        .header(CACHE_CONTROL, "no-cache")
        .header(PRAGMA, "no-cache")
        .header(EXPIRES, "Mon, 01 Jan 1990 00:00:00 GMT"))
}

/// The background tasks, as `_active_tasks` lists them.
pub fn tasks(app: &App) -> Vec<Value> {
    let databases = app.node.databases.tasks().into_iter();
    let mut tasks: Vec<Value> = databases
        .chain(app.node.auto_purge.task())
        .map(|t| {
            let mut task = json!({
                "type": t.kind,
                "database": t.database,
                "node": app.node.name,
                "pid": "<0.1.0>",
                "changes_done": t.done,
                "total_changes": t.total,
                "progress": (t.done * 100).checked_div(t.total).unwrap_or(0),
                "started_on": t.started_unix_s,
                "updated_on": t.updated_unix_s,
            });
            if let Some(index) = &t.index {
                task["index"] = index.as_str().into();
            }
            if let Some(design) = &t.design_document {
                let seconds = t.updated_unix_s.saturating_sub(t.started_unix_s).max(1);
                task["design_document"] = design.as_str().into();
                task["changes_per_second"] = (t.done / seconds).into();
            }
            task
        })
        .collect();
    tasks.extend(backup::task(app));
    tasks.extend(app.node.replicator.tasks());
    tasks
}

pub fn membership(app: &App) -> Reply {
    let (all, live): (Vec<String>, Vec<String>) = match app.node.member() {
        None => (vec![app.node.name.clone()], vec![app.node.name.clone()]),
        Some(member) => {
            let nodes = member.nodes();
            let live = nodes.iter().filter(|node| node.is_live);
            let live = live.map(|node| node.name.clone()).collect();
            (nodes.into_iter().map(|node| node.name).collect(), live)
        }
    };
    Reply::json(200, &json!({"all_nodes": live, "cluster_nodes": all}))
}

/// Spaces, for the benchmark: the cost of a response without a database.
pub fn constant(req: &Request) -> Answer {
    let size = natural(&req.query, "size")?.unwrap_or(100) as usize;
    if size > CONSTANT_BYTES_MAX {
        return Err(ApiError::bad_request(format!(
            "`size` is at most {CONSTANT_BYTES_MAX}"
        )));
    }
    Ok(Reply::json_bytes(200, vec![b' '; size]))
}
