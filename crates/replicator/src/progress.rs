//! Progress of a job: counters that its workers update and others read.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;
use serde_json::{Map, Value};

use crate::db::http::number_of;

/// A snapshot of the counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Revisions checked against the target.
    pub missing_checked: u64,
    /// Revisions that the target lacked.
    pub missing_found: u64,
    pub docs_read: u64,
    pub docs_written: u64,
    pub doc_write_failures: u64,
    /// Documents returned by `_bulk_get`.
    pub bulk_get_docs: u64,
    /// Documents requested by `_bulk_get`.
    pub bulk_get_attempts: u64,
}

/// The counters of a job, over all its runs and those of earlier jobs that its checkpoint records.
#[derive(Debug, Default)]
pub struct Progress {
    pub missing_checked: AtomicU64,
    pub missing_found: AtomicU64,
    pub docs_read: AtomicU64,
    pub docs_written: AtomicU64,
    pub doc_write_failures: AtomicU64,
    pub bulk_get_docs: AtomicU64,
    pub bulk_get_attempts: AtomicU64,
    seqs: Mutex<Seqs>,
}

/// Seqs of the source, in its own spelling.
#[derive(Clone, Debug, Default)]
pub struct Seqs {
    /// The latest known seq of the source.
    pub source: Value,
    /// Everything up to this seq has been processed.
    pub through: Value,
    /// Everything up to this seq is in the last checkpoint.
    pub checkpointed: Value,
    /// The number of pending changes, if the source reported it.
    pub pending: Option<u64>,
}

impl Seqs {
    /// Records that a batch that ended at `end` is finished, and with it everything up to
    /// `through`. Seqs that cannot be compared are assumed to be in the order of the source.
    pub fn advance(&mut self, through: Value, end: Value) {
        let is_behind = |here: &Value, there: &Value| match (number_of(here), number_of(there)) {
            (Some(here), Some(there)) => here < there,
            _ => true,
        };
        // Batches may be reported in another order than they finish.
        if !is_behind(&through, &self.through) || number_of(&through).is_none() {
            self.through = through;
        }
        if is_behind(&self.source, &end) {
            self.source = end;
        }
    }
}

impl Counts {
    /// Returns the counters that a session has recorded. As in CouchDB, these include those of
    /// earlier sessions.
    pub fn of_session(session: &Value) -> Counts {
        let count = |name: &str| {
            let count = session.get(name).and_then(Value::as_u64);
            count.unwrap_or_default().min(COUNT_MAX)
        };
        Counts {
            missing_checked: count("missing_checked"),
            missing_found: count("missing_found"),
            docs_read: count("docs_read"),
            docs_written: count("docs_written"),
            doc_write_failures: count("doc_write_failures"),
            bulk_get_docs: count("bulk_get_docs"),
            bulk_get_attempts: count("bulk_get_attempts"),
        }
    }
}

/// Upper limit of counters read from a checkpoint: others may have written it, and this job adds to
/// them.
const COUNT_MAX: u64 = 1 << 53;

impl Progress {
    /// Raises counters to those of earlier runs.
    pub fn raise_to(&self, counts: Counts) {
        let raise = |counter: &AtomicU64, count| counter.fetch_max(count, Relaxed);
        raise(&self.missing_checked, counts.missing_checked);
        raise(&self.missing_found, counts.missing_found);
        raise(&self.docs_read, counts.docs_read);
        raise(&self.docs_written, counts.docs_written);
        raise(&self.doc_write_failures, counts.doc_write_failures);
        raise(&self.bulk_get_docs, counts.bulk_get_docs);
        raise(&self.bulk_get_attempts, counts.bulk_get_attempts);
    }

    /// Returns whether a run knows its start. Before that there is nothing to show.
    pub fn has_begun(&self) -> bool {
        !self.seqs.lock().through.is_null()
    }

    pub fn counts(&self) -> Counts {
        Counts {
            missing_checked: self.missing_checked.load(Relaxed),
            missing_found: self.missing_found.load(Relaxed),
            docs_read: self.docs_read.load(Relaxed),
            docs_written: self.docs_written.load(Relaxed),
            doc_write_failures: self.doc_write_failures.load(Relaxed),
            bulk_get_docs: self.bulk_get_docs.load(Relaxed),
            bulk_get_attempts: self.bulk_get_attempts.load(Relaxed),
        }
    }

    pub fn seqs(&self) -> Seqs {
        self.seqs.lock().clone()
    }

    pub fn set_seqs(&self, change: impl FnOnce(&mut Seqs)) {
        change(&mut self.seqs.lock());
    }

    /// Returns the counters in CouchDB's members.
    pub fn stats(&self) -> Map<String, Value> {
        let (c, seqs) = (self.counts(), self.seqs());
        let mut stats = Map::new();
        let mut set = |name: &str, value: Value| stats.insert(name.to_owned(), value);
        set("revisions_checked", c.missing_checked.into());
        set("missing_revisions_found", c.missing_found.into());
        set("docs_read", c.docs_read.into());
        set("docs_written", c.docs_written.into());
        set(
            "changes_pending",
            seqs.pending.map_or(Value::Null, Value::from),
        );
        set("doc_write_failures", c.doc_write_failures.into());
        set("bulk_get_docs", c.bulk_get_docs.into());
        set("bulk_get_attempts", c.bulk_get_attempts.into());
        set("checkpointed_source_seq", seqs.checkpointed);
        stats
    }

    /// Returns the members of [`Progress::stats`], and the positions of the source and the job.
    pub fn info(&self) -> Map<String, Value> {
        let seqs = self.seqs();
        let mut info = self.stats();
        info.insert("source_seq".into(), seqs.source);
        info.insert("through_seq".into(), seqs.through);
        info
    }

    /// Returns [`Progress::info`]; null if the job has not started, as in CouchDB.
    pub fn info_json(&self) -> Value {
        match self.has_begun() {
            true => Value::Object(self.info()),
            false => Value::Null,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn counters_of_earlier_runs_are_continued_with() {
        let progress = Progress::default();
        assert_eq!(progress.info_json(), Value::Null);
        progress.docs_read.store(3, Relaxed);
        progress.docs_written.store(9, Relaxed);
        let session = json!({"docs_read": 5, "docs_written": 5, "missing_found": -1, "bulk_get_docs": u64::MAX});
        progress.raise_to(Counts::of_session(&session));
        let expected = Counts {
            docs_read: 5,
            docs_written: 9,
            bulk_get_docs: COUNT_MAX,
            ..Counts::default()
        };
        assert_eq!(progress.counts(), expected);
        progress.set_seqs(|seqs| seqs.through = "1-x".into());
        assert_eq!(progress.info_json()["docs_read"], 5);
    }

    #[test]
    fn the_source_is_never_behind_what_is_done() {
        let mut seqs = Seqs {
            source: "5-a".into(),
            through: 0.into(),
            ..Seqs::default()
        };
        seqs.advance("3-x".into(), "3-x".into());
        assert_eq!(
            (&seqs.source, &seqs.through),
            (&"5-a".into(), &"3-x".into())
        );
        seqs.advance("9-y".into(), "9-y".into());
        seqs.advance("3-x".into(), "6-z".into());
        assert_eq!(
            (&seqs.source, &seqs.through),
            (&"9-y".into(), &"9-y".into())
        );
        seqs.advance("odd".into(), "odd".into());
        assert_eq!(
            (&seqs.source, &seqs.through),
            (&"odd".into(), &"odd".into())
        );
    }
}
