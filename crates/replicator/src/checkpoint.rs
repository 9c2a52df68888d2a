//! Checkpoints: the `_local` documents in which source and target record the progress of a
//! replication, with CouchDB's members.

use serde_json::{Map, Value, json};

use crate::db::json_limits;
use crate::db::peer_values::{check_seq, short_text};
use crate::id::VERSION;
use crate::progress::Counts;

/// Sessions kept in a checkpoint. Clients can write longer histories, whose rest is not read.
const HISTORY_MAX: usize = 50;
/// No replicator writes a checkpoint with more bytes or values: it counts as empty.
const BYTES_MAX: usize = 1 << 20;
/// See [`BYTES_MAX`].
const VALUES_MAX: usize = 10_000;

/// The checkpoint of one side.
#[derive(Clone, Debug, Default)]
pub struct Log {
    /// `_rev` of the document; `None` if it does not exist.
    pub rev: Option<String>,
    /// Its members without `_id` and `_rev`.
    pub body: Map<String, Value>,
}

impl Log {
    pub fn of(mut doc: Map<String, Value>) -> Log {
        doc.remove("_id");
        let rev = doc.remove("_rev");
        // The jobs of a user keep theirs as long as they run.
        let text = Value::Object(doc).to_string();
        let kept = text.len() <= BYTES_MAX;
        let kept = kept.then(|| json_limits::parse(text.as_bytes(), VALUES_MAX));
        let doc: Map<String, Value> = kept.and_then(Result::ok).unwrap_or_default();
        Log {
            rev: rev.and_then(|r| short_text(r.as_str()?)),
            body: doc,
        }
    }

    fn session(&self) -> Option<&Value> {
        self.body.get("session_id").filter(|id| !id.is_null())
    }

    fn history(&self) -> &[Value] {
        self.body
            .get("history")
            .and_then(Value::as_array)
            .map_or(&[], |all| &all[..all.len().min(HISTORY_MAX)])
    }
}

/// Returns the last session that both sides record: the seq to start after, and the sessions up to
/// it, newest first. Without a common session, the start of the feed, seq 0.
pub fn common_ancestor(source: &Log, target: &Log) -> (Value, Vec<Value>) {
    if let (Some(s), Some(t)) = (source.session(), target.session())
        && s == t
    {
        let seq = seq_of(source.body.get("source_last_seq"));
        return (seq, source.history().to_vec());
    }
    let (mut source, mut target) = (source.history(), target.history());
    while let ([s, source_rest @ ..], [t, target_rest @ ..]) = (source, target) {
        if has_session(target, s) {
            return (recorded(s), source_rest.to_vec());
        }
        if has_session(source_rest, t) {
            return (recorded(t), target_rest.to_vec());
        }
        (source, target) = (source_rest, target_rest);
    }
    (json!(0), vec![])
}

fn has_session(history: &[Value], entry: &Value) -> bool {
    let id = entry.get("session_id");
    id.is_some() && history.iter().any(|e| e.get("session_id") == id)
}

fn recorded(entry: &Value) -> Value {
    seq_of(entry.get("recorded_seq"))
}

/// Returns a seq of a checkpoint, which others may have written.
fn seq_of(seq: Option<&Value>) -> Value {
    let seq = seq.filter(|seq| check_seq(seq).is_ok());
    seq.cloned().unwrap_or(json!(0))
}

/// The session to record in a checkpoint.
pub struct Session<'a> {
    pub id: &'a str,
    /// When it started, as an HTTP date.
    pub started: &'a str,
    pub now: &'a str,
    pub start_seq: &'a Value,
    /// Everything up to this seq is on the target's disk.
    pub through: &'a Value,
    pub counts: Counts,
    /// For replications by ids the counts are also members of the document, as in CouchDB 1.0.
    pub by_ids: bool,
}

impl Session<'_> {
    /// Returns the checkpoint, for both sides.
    pub fn checkpoint(&self, older: &[Value]) -> Map<String, Value> {
        let c = self.counts;
        let entry = json!({
            "session_id": self.id,
            "start_time": self.started,
            "end_time": self.now,
            "start_last_seq": self.start_seq,
            "end_last_seq": self.through,
            "recorded_seq": self.through,
            "missing_checked": c.missing_checked,
            "missing_found": c.missing_found,
            "docs_read": c.docs_read,
            "docs_written": c.docs_written,
            "doc_write_failures": c.doc_write_failures,
            "bulk_get_docs": c.bulk_get_docs,
            "bulk_get_attempts": c.bulk_get_attempts,
        });
        let mut body = Map::new();
        let mut set = |name: &str, value: Value| body.insert(name.to_owned(), value);
        set("session_id", self.id.into());
        set("source_last_seq", self.through.clone());
        set("replication_id_version", VERSION.into());
        if self.by_ids {
            set("start_time", self.started.into());
            set("end_time", self.now.into());
            set("docs_read", c.docs_read.into());
            set("docs_written", c.docs_written.into());
            set("doc_write_failures", c.doc_write_failures.into());
        }
        let history = std::iter::once(&entry).chain(older).take(HISTORY_MAX);
        set("history", history.cloned().collect());
        body
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(session: &str, last: u64, history: &[(&str, u64)]) -> Log {
        let history: Vec<Value> = history
            .iter()
            .map(|(id, seq)| json!({"session_id": id, "recorded_seq": seq}))
            .collect();
        match json!({"_id": "_local/x", "_rev": "0-3", "session_id": session, "source_last_seq": last, "history": history})
        {
            Value::Object(doc) => Log::of(doc),
            _ => Log::default(),
        }
    }

    fn seq(source: &Log, target: &Log) -> (u64, usize) {
        let (seq, history) = common_ancestor(source, target);
        (seq.as_u64().unwrap(), history.len())
    }

    #[test]
    fn the_same_session_is_gone_on_with() {
        let both = log("c", 30, &[("c", 30), ("b", 20), ("a", 10)]);
        assert_eq!(seq(&both, &both), (30, 3));
        assert_eq!(both.rev.as_deref(), Some("0-3"));
    }

    #[test]
    fn one_side_that_fell_back_decides() {
        let ahead = log("c", 30, &[("c", 30), ("b", 20), ("a", 10)]);
        let behind = log("b", 20, &[("b", 20), ("a", 10)]);
        assert_eq!(seq(&ahead, &behind).0, 20);
        assert_eq!(seq(&behind, &ahead).0, 20);
    }

    #[test]
    fn different_last_sessions_meet_at_an_older_one() {
        let here = log("x", 40, &[("x", 40), ("b", 20), ("a", 10)]);
        let there = log("y", 35, &[("y", 35), ("b", 21)]);
        assert_eq!(seq(&here, &there).0, 20);
    }

    #[test]
    fn strangers_begin_at_the_beginning() {
        let here = log("x", 40, &[("x", 40)]);
        let there = log("y", 35, &[("y", 35)]);
        assert_eq!(seq(&here, &there), (0, 0));
        assert_eq!(seq(&here, &Log::default()), (0, 0));
        assert_eq!(seq(&Log::default(), &Log::default()), (0, 0));
    }

    #[test]
    fn histories_that_are_no_histories_are_none() {
        let odd = Log::of(Map::from_iter([(
            "history".to_owned(),
            json!([7, {"x": 1}, null]),
        )]));
        assert_eq!(seq(&odd, &odd), (0, 0));
    }

    #[test]
    fn no_more_than_a_replicator_writes_is_read() {
        let entry = |n: usize| (format!("s{n}"), n as u64);
        let history = |from: usize, n: usize| (from..from + n).map(entry).collect::<Vec<_>>();
        let log = |session: &str, all: &[(String, u64)]| {
            let all: Vec<(&str, u64)> = all.iter().map(|(id, seq)| (id.as_str(), *seq)).collect();
            log(session, 1, &all)
        };
        let here = log("x", &history(0, HISTORY_MAX + 1));
        let there = |n| log("y", &history(HISTORY_MAX + n, 5));
        assert_eq!(seq(&here, &there(0)), (0, 0));
        assert_eq!(seq(&log("x", &history(1, HISTORY_MAX)), &there(0)).0, 50);
        let long = log("x", &history(0, VALUES_MAX));
        assert!(long.body.is_empty() && long.rev.is_some());
        let heavy = log(&"x".repeat(BYTES_MAX), &[]);
        assert!(heavy.body.is_empty());
        let long = |name: &str| (name.to_owned(), json!("1".repeat(100_000)));
        let members = [long("_rev"), long("source_last_seq"), long("session_id")];
        let odd = Log::of(Map::from_iter(members));
        assert!(odd.rev.is_none());
        assert_eq!(seq(&odd, &odd), (0, 0));
    }

    #[test]
    fn fifty_sessions_are_remembered() {
        let older: Vec<Value> = (0..60).map(|n| json!({"session_id": n})).collect();
        let session = Session {
            id: "s",
            started: "a",
            now: "b",
            start_seq: &json!(0),
            through: &json!("7-x"),
            counts: Counts::default(),
            by_ids: true,
        };
        let body = session.checkpoint(&older);
        assert_eq!(body["history"].as_array().unwrap().len(), 50);
        assert_eq!(body["source_last_seq"], "7-x");
        assert_eq!(body["docs_read"], 0);
    }
}
