//! `_replicate`, `_scheduler`.

use std::collections::HashMap;

use bytes::Bytes;
use routes::SchedulerRoute;
use serde_json::{Value, json};

use crate::app::App;
use crate::clustered;
use crate::errors::ApiError;
use crate::reply::Reply;
use crate::request::Request;

/// Jobs listed by default.
const JOBS_LIMIT: u64 = 100;
/// States that `_scheduler/docs?states=` knows.
const STATES: [&str; 7] = [
    "initializing",
    "running",
    "completed",
    "pending",
    "crashing",
    "error",
    "failed",
];

type Answer = Result<Reply, ApiError>;

/// `POST /_replicate`, by a user who logged in.
pub async fn replicate(app: &App, req: &mut Request) -> Answer {
    let bytes = req.bytes().await?;
    if bytes.is_empty() && req.method != "PUT" {
        return Err(ApiError::bad_request("Missing request body"));
    }
    if req.method != "POST" {
        return Err(ApiError::method_not_allowed("POST"));
    }
    req.require_json()?;
    let body = match req.parsed(&bytes).await? {
        Value::Object(body) => body,
        _ => return Err(ApiError::bad_request("Request body must be a JSON object")),
    };
    let user = replicator::User {
        name: req.user.name.clone(),
        roles: req.user.roles.clone(),
    };
    let is_cancel = body.get("cancel") == Some(&Value::Bool(true));
    // Another node of the cluster may run the job to cancel. Otherwise nothing of the body is kept:
    // the replication takes as long as it does.
    let bytes = match is_cancel {
        true => bytes,
        false => Bytes::new(),
    };
    req.keep(bytes.len()).await?;
    req.give_room_back();
    use replicator::ReplicateResult;
    let done = match app.node.replicator.replicate(body, user).await {
        Err(replicator::Error::NoJob) if is_cancel => {
            let found = clustered::ask_others(app, req, bytes).await.pop();
            let found = found.ok_or(replicator::Error::NoJob)?;
            return Ok(Reply::json(200, &found));
        }
        done => done?,
    };
    Ok(match done {
        ReplicateResult::Continuous(id) => Reply::json(202, &replicator::local_id_json(&id)),
        ReplicateResult::Cancelled(id) => Reply::json(200, &replicator::local_id_json(&id)),
        ReplicateResult::Stopped => Reply::json(200, &json!({"ok": "stopped"})),
        ReplicateResult::Completed(result) => {
            let mut answer = serde_json::Map::from_iter([("ok".to_owned(), json!(true))]);
            answer.extend(result);
            Reply::json(200, &Value::Object(answer))
        }
    })
}

/// `/_scheduler/…`
pub async fn scheduler(app: &App, req: &Request, route: &SchedulerRoute) -> Answer {
    match route {
        SchedulerRoute::Jobs => jobs(app, req).await,
        SchedulerRoute::Job(id) => {
            let job = match app.node.replicator.job(id) {
                None => clustered::gather(app, req, &req.path).await.pop(),
                here => here,
            };
            Ok(Reply::json(200, &job.ok_or_else(ApiError::missing)?))
        }
        SchedulerRoute::Docs => docs(app, req, "_replicator").await,
        SchedulerRoute::DocsOf(path) => match docs_path(path) {
            Some((db, None)) => docs(app, req, &db).await,
            Some((db, Some(id))) => {
                let mut found = app.node.replicator.own_doc(&db, id);
                if found.is_none() {
                    found = clustered::gather(app, req, &req.path).await.pop();
                }
                if found.is_none() && !clustered::is_gathered(req) {
                    found = app.node.replicator.doc(&db, id)?;
                }
                Ok(Reply::json(200, &found.ok_or_else(ApiError::missing)?))
            }
            None => Err(ApiError::bad_request("Invalid path")),
        },
        SchedulerRoute::Unknown => Ok(Reply::json(404, &json!({"error": "not found"}))),
    }
}

/// Database and document of a path whose database may have unencoded slashes.
fn docs_path(path: &[String]) -> Option<(String, Option<&str>)> {
    let end = path
        .iter()
        .position(|part| replicator::is_replicator_db(part))?;
    let db = path[..=end].join("/");
    match &path[end + 1..] {
        [] => Some((db, None)),
        [id] => Some((db, Some(id))),
        _ => None,
    }
}

fn number(req: &Request, name: &str, default: u64) -> Result<u64, ApiError> {
    let Some(text) = req.query.get(name) else {
        return Ok(default);
    };
    text.parse().map_err(|_| {
        ApiError::query_parse(format!("Invalid value for {name}: {}", Value::from(text)))
    })
}

fn page(all: Vec<Value>, skip: u64, limit: u64) -> (usize, usize, Vec<Value>) {
    let total = all.len();
    let offset = usize::try_from(skip).unwrap_or(usize::MAX).min(total);
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    (
        total,
        offset,
        all.into_iter().skip(offset).take(limit).collect(),
    )
}

async fn jobs(app: &App, req: &Request) -> Answer {
    let (limit, skip) = (number(req, "limit", JOBS_LIMIT)?, number(req, "skip", 0)?);
    let mut all = app.node.replicator.jobs();
    let others = clustered::gather(app, req, &format!("{}?limit={}", req.path, u32::MAX)).await;
    all.extend(members_of(others, "jobs"));
    all.sort_by(|a, b| a["id"].as_str().cmp(&b["id"].as_str()));
    let (total, offset, jobs) = page(all, skip, limit);
    Ok(Reply::json(
        200,
        &json!({"total_rows": total, "offset": offset, "jobs": jobs}),
    ))
}

/// The elements of an array that all these responses have.
fn members_of(responses: Vec<Value>, name: &str) -> Vec<Value> {
    let mut all = vec![];
    for mut response in responses {
        if let Some(Value::Array(elements)) = response.get_mut(name).map(Value::take) {
            all.extend(elements);
        }
    }
    all
}

/// The documents of a database that have a job, or will get one, by id: each at one node of a
/// cluster.
async fn own_docs(app: &App, req: &Request, db: &str) -> HashMap<String, Value> {
    let mut path = "/_scheduler/docs/".to_owned();
    node::encode_into(db, &mut path);
    let others = clustered::gather(app, req, &path).await;
    let mut all = members_of(others, "docs");
    all.extend(app.node.replicator.own_docs(db));
    let by_id = |doc: Value| Some((doc["doc_id"].as_str()?.to_owned(), doc));
    all.into_iter().filter_map(by_id).collect()
}

async fn docs(app: &App, req: &Request, db: &str) -> Answer {
    if clustered::is_gathered(req) {
        let own = app.node.replicator.own_docs(db);
        return Ok(Reply::json(200, &json!({"docs": own})));
    }
    let (limit, skip) = (number(req, "limit", u64::MAX)?, number(req, "skip", 0)?);
    let states: Vec<&str> = match req.query.get("states") {
        None | Some("") => vec![],
        Some(list) => list.split(',').map(str::trim).collect(),
    };
    if let Some(odd) = states.iter().find(|s| !STATES.contains(s)) {
        return Err(ApiError::query_parse(format!("Unknown state: {odd}")));
    }
    let replicator = &app.node.replicator;
    let mut docs = vec![];
    let mut own = own_docs(app, req, db).await;
    for id in replicator.doc_ids(db)? {
        let doc = match own.remove(&id) {
            None => replicator.doc(db, &id)?,
            own => own,
        };
        docs.extend(doc.filter(|doc| {
            let state = doc.get("state").and_then(Value::as_str).unwrap_or_default();
            states.is_empty() || states.contains(&state)
        }));
    }
    let (total, offset, docs) = page(docs, skip, limit);
    Ok(Reply::json(
        200,
        &json!({"total_rows": total, "offset": offset, "docs": docs}),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slashes_of_a_database_may_be_encoded_or_not() {
        let owned = |path: &[&str]| path.iter().map(|&s| s.to_owned()).collect::<Vec<String>>();
        for (path, db, id) in [
            (vec!["_replicator"], "_replicator", None),
            (vec!["a", "_replicator", "x"], "a/_replicator", Some("x")),
            (vec!["a/_replicator", "x"], "a/_replicator", Some("x")),
        ] {
            assert_eq!(docs_path(&owned(&path)), Some((db.to_owned(), id)));
        }
        assert_eq!(docs_path(&owned(&["a", "b"])), None);
        assert_eq!(docs_path(&owned(&["_replicator", "a", "b"])), None);
    }
}
