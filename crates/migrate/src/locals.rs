//! `_local` documents: checkpoints of replications that others run, and what applications keep in
//! them.

use serde_json::{Map, Value, json};

use crate::Error;
use crate::server::Server;

/// Documents in one request.
const PAGE: usize = 500;
/// CouchDB's notes to itself, of its own shards and purges.
const INTERNAL: [&str; 2] = ["_local/shard-sync-", "_local/purge-"];

/// Copies the local documents that the target does not have in the same form; returns their number.
/// With them, clients that replicate to this database continue from their checkpoints.
///
/// # Errors
/// Errors of the servers.
pub async fn copy(source: &Server, target: &Server, db: &str) -> Result<u64, Error> {
    let mut copied = 0;
    let mut after: Option<String> = None;
    loop {
        let page = match page(source, db, after.as_deref()).await {
            Ok(page) => page,
            // CouchDB 1 does not list them.
            Err(e) if e.is_status(404) || e.is_status(400) => return Ok(copied),
            Err(e) => return Err(e),
        };
        after = page.last().map(|(id, _)| id.clone());
        let whole = page.len() == PAGE;
        let ids: Vec<&str> = page.iter().map(|(id, _)| id.as_str()).collect();
        let known = known(target, db, &ids).await?;
        let docs: Vec<Value> = page
            .into_iter()
            .filter(|(id, _)| !INTERNAL.iter().any(|prefix| id.starts_with(prefix)))
            .filter(|(id, doc)| known.get(id) != Some(doc))
            .map(|(_, doc)| doc)
            .collect();
        if !docs.is_empty() {
            copied += docs.len() as u64;
            target
                .post(&[db, "_bulk_docs"], &json!({"docs": docs}))
                .await?;
        }
        if !whole {
            return Ok(copied);
        }
    }
}

/// Ids and documents without revisions, in the order of ids.
async fn page(
    server: &Server,
    db: &str,
    after: Option<&str>,
) -> Result<Vec<(String, Value)>, Error> {
    let limit = PAGE.to_string();
    let start = after.map(|id| Value::from(id).to_string());
    let mut query = vec![("include_docs", "true"), ("limit", limit.as_str())];
    if let Some(start) = &start {
        query.extend([("startkey", start.as_str()), ("skip", "1")]);
    }
    let answer = server.get(&[db, "_local_docs"], &query).await?;
    Ok(documents(&answer))
}

async fn known(server: &Server, db: &str, ids: &[&str]) -> Result<Map<String, Value>, Error> {
    if ids.is_empty() {
        return Ok(Map::new());
    }
    let keys = Value::from(ids).to_string();
    let query = [("include_docs", "true"), ("keys", keys.as_str())];
    let answer = match server.get(&[db, "_local_docs"], &query).await {
        Ok(answer) => answer,
        Err(e) if e.is_status(414) => return Ok(Map::new()),
        Err(e) => return Err(e),
    };
    Ok(documents(&answer).into_iter().collect())
}

fn documents(answer: &Value) -> Vec<(String, Value)> {
    let rows = answer["rows"].as_array().into_iter().flatten();
    rows.filter_map(|row| {
        let mut doc = row["doc"].as_object()?.clone();
        doc.remove("_rev");
        Some((row["id"].as_str()?.to_owned(), Value::Object(doc)))
    })
    .collect()
}
