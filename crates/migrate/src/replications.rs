//! Documents of replicator databases. They are not replicated like others: a server changes them as
//! their replications progress, and writing one starts it.

use serde_json::{Map, Value, json};

use crate::Error;
use crate::server::Server;

/// The state that the server writes into such a document.
const STATE: &str = "_replication_state";
const OF_THE_SERVER: [&str; 5] = [
    "_replication_id",
    STATE,
    "_replication_state_time",
    "_replication_state_reason",
    "_replication_stats",
];
/// A document in this state is ignored until it is edited.
const PAUSED: &str = "failed";
const PAUSED_REASON: &str =
    "paused by settee migrate: remove the members that begin with _replication_ to start it";
const PAGE: usize = 200;

/// Copies the documents that the target does not have, or compares all; returns the differences.
/// Ended replications are copied as ended. With `pause`, the others wait until they are edited.
///
/// # Errors
/// Errors of the servers.
pub async fn copy(
    source: &Server,
    target: &Server,
    db: &str,
    pause: bool,
    write: bool,
) -> Result<Copied, Error> {
    let mut copied = Copied::default();
    let mut after: Option<String> = None;
    loop {
        let page = page(source, db, after.as_deref()).await?;
        after = page.last().map(|(id, _)| id.clone());
        let whole = page.len() == PAGE;
        for (id, doc) in page
            .into_iter()
            .filter(|(id, _)| !id.starts_with("_design/"))
        {
            copied.documents += 1;
            match one(target, db, &id, &doc, pause, write).await {
                Ok(None) => {}
                Ok(Some(difference)) => copied.differences.push(format!("{id}: {difference}")),
                Err(e @ Error::Refused { .. }) => {
                    copied.differences.push(format!("{id} was refused: {e}"));
                }
                Err(e) => return Err(e),
            }
        }
        if !whole {
            return Ok(copied);
        }
    }
}

#[derive(Debug, Default)]
pub struct Copied {
    pub documents: u64,
    pub differences: Vec<String>,
}

async fn page(
    server: &Server,
    db: &str,
    after: Option<&str>,
) -> Result<Vec<(String, Map<String, Value>)>, Error> {
    let limit = PAGE.to_string();
    let start = after.map(|id| Value::from(id).to_string());
    let mut query = vec![("include_docs", "true"), ("limit", limit.as_str())];
    if let Some(start) = &start {
        query.extend([("startkey", start.as_str()), ("skip", "1")]);
    }
    let answer = server.get(&[db, "_all_docs"], &query).await?;
    let rows = answer["rows"].as_array().into_iter().flatten();
    Ok(rows
        .filter_map(|row| {
            let doc = row["doc"].as_object()?.clone();
            Some((row["id"].as_str()?.to_owned(), doc))
        })
        .collect())
}

async fn one(
    target: &Server,
    db: &str,
    id: &str,
    doc: &Map<String, Value>,
    pause: bool,
    write: bool,
) -> Result<Option<String>, Error> {
    match target.get(&[db, id], &[]).await {
        Ok(there) => {
            let same = there.as_object().map(asked) == Some(asked(doc));
            return Ok((!same).then(|| "another replication at the target".to_owned()));
        }
        Err(e) if !e.is_status(404) => return Err(e),
        Err(_) if !write => return Ok(Some("missing at the target".to_owned())),
        Err(_) => {}
    }
    let body = prepared(doc, pause);
    target.put(&[db, id], &[], &body).await?;
    Ok(None)
}

/// Returns the members of the document that configure the replication.
fn asked(doc: &Map<String, Value>) -> Map<String, Value> {
    let mut asked = doc.clone();
    for member in OF_THE_SERVER.iter().chain(&["_rev"]) {
        asked.remove(*member);
    }
    asked
}

fn prepared(doc: &Map<String, Value>, pause: bool) -> Value {
    let mut body = asked(doc);
    let ended = doc
        .get(STATE)
        .is_some_and(|state| state == "completed" || state == "failed");
    if ended {
        for member in &OF_THE_SERVER[1..] {
            if let Some(value) = doc.get(*member) {
                body.insert((*member).to_owned(), value.clone());
            }
        }
    } else if pause {
        body.insert(STATE.to_owned(), PAUSED.into());
        body.insert("_replication_state_reason".to_owned(), PAUSED_REASON.into());
    }
    json!(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn doc(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn a_running_replication_starts_anew_or_waits() {
        let running = doc(
            json!({"_id": "a", "_rev": "2-x", "source": "s", "target": "t", "owner": "o",
            "_replication_state": "triggered", "_replication_id": "i"}),
        );
        let asked = json!({"_id": "a", "source": "s", "target": "t", "owner": "o"});
        assert_eq!(prepared(&running, false), asked);
        let paused = prepared(&running, true);
        assert_eq!(paused[STATE], "failed");
        assert_eq!(paused["owner"], "o");
    }

    #[test]
    fn one_that_has_ended_is_not_run_again() {
        let ended = doc(
            json!({"_id": "a", "source": "s", "target": "t", "_replication_state": "completed",
            "_replication_stats": {"docs_read": 1}}),
        );
        for pause in [false, true] {
            let body = prepared(&ended, pause);
            assert_eq!(body[STATE], "completed");
            assert_eq!(body["_replication_stats"]["docs_read"], 1);
        }
    }
}
