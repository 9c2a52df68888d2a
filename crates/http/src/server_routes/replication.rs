//! `_replicate`, `_scheduler`.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use replicator::Replicator;
use routes::SchedulerRoute;
use serde_json::{Value, json};

use crate::app::App;
use crate::clustered;
use crate::errors::ApiError;
use crate::reply::Reply;
use crate::request::Request;

/// Jobs listed by default.
const JOBS_LIMIT: u64 = 100;
/// Documents whose entries are made together, before work of others has its turn.
const DOCS_AT_ONCE: usize = 100;
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
    let room = req.take_room();
    use replicator::ReplicateResult;
    let done = match app.node.replicator.replicate(body, user, room).await {
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
    let offset = as_count(skip).min(total);
    let page = all.into_iter().skip(offset).take(as_count(limit));
    (total, offset, page.collect())
}

fn as_count(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

async fn jobs(app: &App, req: &Request) -> Answer {
    let (limit, skip) = (number(req, "limit", JOBS_LIMIT)?, number(req, "skip", 0)?);
    let others = clustered::gather(app, req, &format!("{}?limit={}", req.path, u32::MAX)).await;
    let replicator = app.node.replicator.clone();
    // There may be many.
    let listed = req.answers.apart(move || {
        let mut all = replicator.jobs();
        all.extend(members_of(others, "jobs"));
        all.sort_by(|a, b| a["id"].as_str().cmp(&b["id"].as_str()));
        let (total, offset, jobs) = page(all, skip, limit);
        format!(
            "{}\n",
            json!({"total_rows": total, "offset": offset, "jobs": jobs})
        )
    });
    Ok(Reply::json_bytes(200, listed.await?))
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
async fn own_docs(
    app: &App,
    req: &Request,
    db: &Arc<str>,
) -> Result<HashMap<String, Value>, ApiError> {
    let mut path = "/_scheduler/docs/".to_owned();
    node::encode_into(db, &mut path);
    let others = clustered::gather(app, req, &path).await;
    let (replicator, db) = (app.node.replicator.clone(), db.clone());
    let own = move || {
        let mut all = members_of(others, "docs");
        all.extend(replicator.own_docs(&db));
        let by_id = |doc: Value| Some((doc["doc_id"].as_str()?.to_owned(), doc));
        all.into_iter().filter_map(by_id).collect::<HashMap<_, _>>()
    };
    req.answers.apart(own).await
}

/// A page of documents.
#[derive(Default)]
struct DocsPage {
    /// The states of listed documents; all if it is empty.
    states: Vec<String>,
    skip: usize,
    limit: usize,
    /// Number of documents in these states so far.
    total: usize,
    /// The documents of the page, with commas between them.
    text: String,
}

impl DocsPage {
    fn add(&mut self, doc: &Value) {
        let state = doc.get("state").and_then(Value::as_str).unwrap_or_default();
        if !self.states.is_empty() && !self.states.iter().any(|listed| listed == state) {
            return;
        }
        let place = self.total;
        self.total += 1;
        if place < self.skip || place - self.skip >= self.limit {
            return;
        }
        if !self.text.is_empty() {
            self.text.push(',');
        }
        self.text.push_str(&doc.to_string());
    }
}

async fn docs(app: &App, req: &Request, db: &str) -> Answer {
    let (replicator, db) = (app.node.replicator.clone(), Arc::<str>::from(db));
    if clustered::is_gathered(req) {
        let own = move || format!("{}\n", json!({"docs": replicator.own_docs(&db)}));
        return Ok(Reply::json_bytes(200, req.answers.apart(own).await?));
    }
    let (limit, skip) = (number(req, "limit", u64::MAX)?, number(req, "skip", 0)?);
    let states: Vec<String> = match req.query.get("states") {
        None | Some("") => vec![],
        Some(list) => list.split(',').map(|s| s.trim().to_owned()).collect(),
    };
    if let Some(odd) = states.iter().find(|s| !STATES.contains(&s.as_str())) {
        return Err(ApiError::query_parse(format!("Unknown state: {odd}")));
    }
    let mut own = own_docs(app, req, &db).await?;
    let ids = {
        let (replicator, db) = (replicator.clone(), db.clone());
        req.answers.apart(move || replicator.doc_ids(&db))
    };
    let mut ids = ids.await??;
    let (mut all, skip) = (ids.len(), as_count(skip));
    let mut page = DocsPage {
        limit: as_count(limit),
        ..DocsPage::default()
    };
    let is_filtered = !states.is_empty();
    if is_filtered {
        (page.states, page.skip) = (states, skip);
    } else {
        // Other documents are not read.
        ids = ids.into_iter().skip(skip).take(page.limit).collect();
    }
    let mut ids = ids.into_iter();
    while ids.len() > 0 {
        let some = ids.by_ref().take(DOCS_AT_ONCE);
        let some: Vec<_> = some.map(|id| (own.remove(&id), id)).collect();
        page = add_docs(req, &replicator, &db, some, page).await?;
    }
    if is_filtered {
        all = page.total;
    }
    let (offset, text) = (skip.min(all), page.text);
    let body = format!("{{\"total_rows\":{all},\"offset\":{offset},\"docs\":[{text}]}}\n");
    Ok(Reply::json_bytes(200, body))
}

/// Adds documents to a page, each with its entry if that is known. The other documents are read:
/// they may be long, so a thread with a lower priority does that.
async fn add_docs(
    req: &Request,
    replicator: &Arc<Replicator>,
    db: &Arc<str>,
    some: Vec<(Option<Value>, String)>,
    mut page: DocsPage,
) -> Result<DocsPage, ApiError> {
    let (replicator, db) = (replicator.clone(), db.clone());
    let added = req.answers.apart(move || {
        for (known, id) in some {
            let doc = match known {
                None => replicator.doc(&db, &id)?,
                known => known,
            };
            if let Some(doc) = doc {
                page.add(&doc);
            }
        }
        Ok::<_, replicator::Error>(page)
    });
    Ok(added.await??)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_documents_in_the_listed_states() {
        let docs = [
            "failed",
            "running",
            "failed",
            "failed",
            "completed",
            "failed",
        ];
        for (states, skip, limit, listed, total) in [
            (vec![], 0, usize::MAX, "012345", 6),
            (vec![], 4, 1, "4", 6),
            (vec!["failed"], 1, 2, "23", 4),
            (vec!["failed", "running"], 0, 2, "01", 5),
            (vec!["completed"], 1, 5, "", 1),
        ] {
            let mut page = DocsPage {
                states: states.into_iter().map(str::to_owned).collect(),
                skip,
                limit,
                ..DocsPage::default()
            };
            for (n, state) in docs.iter().enumerate() {
                page.add(&json!({"n": n, "state": state}));
            }
            let text: Vec<Value> = serde_json::from_str(&format!("[{}]", page.text)).unwrap();
            let numbers: String = text.iter().map(|doc| doc["n"].to_string()).collect();
            assert_eq!((numbers.as_str(), page.total), (listed, total));
        }
    }

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
