//! Entries of `_scheduler/docs` for documents whose replications have ended, or have not started.
//!
//! Documents may have any members, so an entry has only known ones, of limited length.

use document::json::{member, members, string_text};
use serde_json::{Map, Value, json};

use crate::db::peer_values::{parse_seq, short_text};
use crate::endpoint::without_user_info;
use crate::options::DocRef;

/// Longest URL that is shown, in bytes.
const URL_BYTES_MAX: usize = 8 << 10;
/// Longest reason that is shown, in bytes.
const REASON_BYTES_MAX: usize = 8 << 10;
/// Longest number or time, in bytes of JSON.
const SHORT_BYTES_MAX: usize = 64;

/// Statistics that are numbers.
const COUNTS: [&str; 8] = [
    "revisions_checked",
    "missing_revisions_found",
    "docs_read",
    "docs_written",
    "changes_pending",
    "doc_write_failures",
    "bulk_get_docs",
    "bulk_get_attempts",
];
/// The position in the source up to which changes are copied.
const SEQ: &str = "checkpointed_source_seq";
const START_TIME: &str = "start_time";

/// Returns the entry of the document with this text.
pub fn entry(at: &DocRef, doc: &[u8]) -> Value {
    let state = member(doc, "_replication_state").and_then(string_text);
    let state = match state.as_deref() {
        Some("completed") => "completed",
        Some("failed") => "failed",
        _ => "initializing",
    };
    let time = short(member(doc, "_replication_state_time"));
    let mut start = None;
    let info = match state {
        "completed" => stats(member(doc, "_replication_stats"), &mut start),
        "failed" => json!({"error": reason(member(doc, "_replication_state_reason"))}),
        _ => Value::Null,
    };
    json!({
        "database": at.db,
        "doc_id": at.id,
        "id": null,
        "source": url(member(doc, "source")),
        "target": url(member(doc, "target")),
        "state": state,
        "info": info,
        "error_count": u32::from(state == "failed"),
        "last_updated": time,
        "start_time": start.map_or_else(|| time.clone(), Value::from),
    })
}

/// Returns the known statistics of a job; its start goes to `start`.
fn stats(stats: Option<&[u8]>, start: &mut Option<String>) -> Value {
    let Some(stats @ [b'{', ..]) = stats else {
        return Value::Null;
    };
    let mut shown = Map::new();
    for (name, value) in members(stats) {
        if name == START_TIME {
            *start = string_text(value).and_then(|text| short_text(&text));
        } else if name == SEQ {
            shown.insert(name, parse_seq(value).unwrap_or_default());
        } else if COUNTS.contains(&name.as_str()) {
            shown.insert(name, short(Some(value)));
        }
    }
    Value::Object(shown)
}

/// Returns a number or a short text; null for anything else.
fn short(value: Option<&[u8]>) -> Value {
    let value = value.filter(|value| value.len() <= SHORT_BYTES_MAX);
    let value: Option<Value> = value.and_then(|value| serde_json::from_slice(value).ok());
    let value = value.filter(|value| value.is_number() || value.is_string());
    value.unwrap_or_default()
}

fn reason(value: Option<&[u8]>) -> Option<String> {
    let text = value.and_then(string_text)?;
    Some(text[..text.floor_char_boundary(REASON_BYTES_MAX)].to_owned())
}

/// Returns the URL of a source or target without credentials.
fn url(side: Option<&[u8]>) -> Option<String> {
    let url = match side? {
        object @ [b'{', ..] => member(object, "url")?,
        text => text,
    };
    let url = string_text(url).filter(|_| url.len() <= URL_BYTES_MAX)?;
    Some(without_user_info(&url))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry_of(doc: &Value) -> Value {
        let at = DocRef {
            db: "_replicator".into(),
            id: "a".into(),
        };
        entry(&at, doc.to_string().as_bytes())
    }

    #[test]
    fn an_entry_has_the_state_of_its_document() {
        let completed = entry_of(&json!({
            "_id": "a",
            "source": "http://u:p@host/db",
            "target": {"url": "http://host/copy", "headers": {"a": "b"}},
            "_replication_state": "completed",
            "_replication_state_time": "2026-11-30T12:00:00Z",
            "_replication_stats": {
                "docs_read": 5,
                "changes_pending": null,
                "checkpointed_source_seq": "5-x",
                "start_time": "2026-11-30T11:00:00Z",
            },
        }));
        let info =
            json!({"docs_read": 5, "changes_pending": null, "checkpointed_source_seq": "5-x"});
        let expected = json!({
            "database": "_replicator",
            "doc_id": "a",
            "id": null,
            "source": "http://host/db",
            "target": "http://host/copy",
            "state": "completed",
            "info": info,
            "error_count": 0,
            "last_updated": "2026-11-30T12:00:00Z",
            "start_time": "2026-11-30T11:00:00Z",
        });
        assert_eq!(completed, expected);
        let failed = entry_of(&json!({
            "_replication_state": "failed",
            "_replication_state_reason": "why",
            "_replication_state_time": 5,
        }));
        assert_eq!(
            (&failed["state"], &failed["error_count"]),
            (&json!("failed"), &json!(1))
        );
        assert_eq!(failed["info"], json!({"error": "why"}));
        assert_eq!(
            (&failed["last_updated"], &failed["start_time"]),
            (&json!(5), &json!(5))
        );
        let new = entry_of(&json!({"source": 1, "_replication_state": "triggered"}));
        assert_eq!(
            (&new["state"], &new["info"]),
            (&json!("initializing"), &Value::Null)
        );
        assert_eq!(
            (&new["source"], &new["target"]),
            (&Value::Null, &Value::Null)
        );
    }

    #[test]
    fn an_entry_is_short_whatever_its_document_has() {
        let many = vec![1; 200_000];
        let long = "é".repeat(200_000);
        let mut stats = Map::from_iter((0..50_000).map(|n| (format!("x{n}"), json!(n))));
        for name in COUNTS.iter().copied().chain([SEQ, START_TIME]) {
            stats.insert(name.to_owned(), json!(many));
        }
        for (state, member) in [
            ("completed", json!(stats)),
            ("completed", json!(many)),
            (
                "completed",
                json!({"docs_read": long, "start_time": long, "checkpointed_source_seq": long}),
            ),
            ("failed", json!(many)),
            ("failed", json!(long)),
        ] {
            let shown = entry_of(&json!({
                "source": long,
                "target": {"url": long},
                "_replication_state": state,
                "_replication_state_time": member,
                "_replication_state_reason": member,
                "_replication_stats": member,
            }));
            assert_eq!(shown["state"], state);
            let length = shown.to_string().len();
            assert!(length < REASON_BYTES_MAX + 1024, "{state}: {length} bytes");
        }
    }
}
