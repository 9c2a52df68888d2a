//! Writes the state of a replication to its document: the members that start with `_replication_`.

use std::time::SystemTime;

use database::{Databases, Durability, EditMode, Error, Outcome, Read, ReadDoc, ReadOptions};
use document::{DocId, EditDoc, parse_document};
use serde_json::{Map, Value};

use crate::db::json_limits::{DOC_VALUES_MAX, parse};
use crate::options::DocRef;
use crate::time::iso8601;

/// Attempts to write a document that others write at the same time.
const TRIES_MAX: usize = 20;

const STATE: &str = "_replication_state";
const REASON: &str = "_replication_state_reason";
const TIME: &str = "_replication_state_time";
const ID: &str = "_replication_id";
const STATS: &str = "_replication_stats";

/// New values of members; `None` removes a member.
pub type Update = Vec<(&'static str, Option<Value>)>;

pub fn completed(stats: Map<String, Value>) -> Update {
    vec![
        (STATE, Some("completed".into())),
        (REASON, None),
        (STATS, Some(stats.into())),
    ]
}

pub fn failed(reason: &str) -> Update {
    vec![
        (STATE, Some("failed".into())),
        (STATS, None),
        (REASON, Some(reason.into())),
    ]
}

/// Removes the state.
pub fn cleared() -> Update {
    [STATE, TIME, REASON, ID, STATS]
        .map(|name| (name, None))
        .into()
}

pub fn triggered(id: &str) -> Update {
    vec![
        (STATE, Some("triggered".into())),
        (REASON, None),
        (ID, Some(id.into())),
        (STATS, None),
    ]
}

pub fn error(reason: &str, id: Option<&str>) -> Update {
    vec![
        (STATE, Some("error".into())),
        (REASON, Some(reason.into())),
        (STATS, None),
        (ID, id.map(Value::from)),
    ]
}

/// Writes the members into the current revision of the document. A deleted document is left alone.
///
/// # Errors
/// Errors of the database.
pub async fn write(databases: &Databases, at: &DocRef, update: Update) -> Result<(), Error> {
    let Ok(id) = DocId::new(&at.id) else {
        return Ok(());
    };
    for _ in 0..TRIES_MAX {
        let db = databases.get(&at.db)?;
        let Read::Found(doc) = db.read(&id, &ReadOptions::default())? else {
            return Ok(());
        };
        // Only the edit is held until it is written: many documents may be long.
        let Some(edit) = edit_of(doc, &update)? else {
            return Ok(());
        };
        let written = db.update(vec![edit], EditMode::Interactive, Durability::Synced);
        match written.await?.0.pop() {
            Some(Outcome::Conflict) => {}
            _ => return Ok(()),
        }
    }
    Err(Error::BadRequest("others write it all the time".into()))
}

/// Returns the edit that updates a document; `None` when it changes nothing.
fn edit_of(doc: ReadDoc, update: &Update) -> Result<Option<EditDoc>, Error> {
    let old: Map<String, Value> = parse(&doc.json, DOC_VALUES_MAX).map_err(Error::BadRequest)?;
    let new = changed(old.clone(), update, SystemTime::now());
    if new == old {
        return Ok(None);
    }
    let edit = parse_document(Value::Object(new).to_string().as_bytes());
    edit.map(Some).map_err(|e| Error::BadRequest(e.to_string()))
}

fn changed(mut doc: Map<String, Value>, update: &Update, now: SystemTime) -> Map<String, Value> {
    for (name, value) in update {
        match value {
            None => {
                doc.shift_remove(*name);
            }
            Some(value) => {
                if *name == STATE && doc.get(STATE) != Some(value) {
                    doc.insert(TIME.into(), iso8601(now).into());
                }
                doc.insert((*name).into(), value.clone());
            }
        }
    }
    doc
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(value: Value) -> Map<String, Value> {
        match value {
            Value::Object(members) => members,
            other => panic!("{other}"),
        }
    }

    #[test]
    fn a_state_brings_its_time_once() {
        let now = SystemTime::UNIX_EPOCH;
        let doc = object(json!({"source": "a", "_replication_stats": 1}));
        let told = changed(doc, &failed("why"), now);
        assert_eq!(
            Value::Object(told.clone()),
            json!({
                "source": "a", "_replication_state": "failed", "_replication_state_reason": "why",
                "_replication_state_time": "1970-01-01T00:00:00Z"
            })
        );
        let later = now + std::time::Duration::from_secs(9);
        assert_eq!(changed(told.clone(), &failed("why"), later), told);
    }
}
