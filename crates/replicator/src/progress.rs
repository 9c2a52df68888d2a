//! How far a job has come: counters that its workers add to and others read.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;
use serde_json::{Map, Value};

use crate::peer::http::number_of;

/// The counters, at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Revisions that the target was asked about.
    pub missing_checked: u64,
    /// Those that it had not.
    pub missing_found: u64,
    pub docs_read: u64,
    pub docs_written: u64,
    pub doc_write_failures: u64,
    /// Documents that came by `_bulk_get`.
    pub bulk_get_docs: u64,
    /// Documents asked for by `_bulk_get`.
    pub bulk_get_attempts: u64,
}

/// The counters of a job, over all its runs.
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

/// Places in the source, as the source writes them.
#[derive(Clone, Debug, Default)]
pub struct Seqs {
    /// The furthest that the source is known to be.
    pub source: Value,
    /// Everything up to here has been dealt with.
    pub through: Value,
    /// Everything up to here is in the last checkpoint.
    pub checkpointed: Value,
    /// Changes that are still to come, when the source said.
    pub pending: Option<u64>,
}

impl Seqs {
    /// A batch is done that ended at `end`, and with it everything up to `through`. Seqs whose order nobody knows are in the
    /// order of the source.
    pub fn advance(&mut self, through: Value, end: Value) {
        let is_behind = |here: &Value, there: &Value| match (number_of(here), number_of(there)) {
            (Some(here), Some(there)) => here < there,
            _ => true,
        };
        // Batches may say so in another order than they are done in.
        if !is_behind(&through, &self.through) || number_of(&through).is_none() {
            self.through = through;
        }
        if is_behind(&self.source, &end) {
            self.source = end;
        }
    }
}

impl Progress {
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

    /// The members that CouchDB shows of a job.
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

    /// The same, with where the source and the job are.
    pub fn info(&self) -> Map<String, Value> {
        let seqs = self.seqs();
        let mut info = self.stats();
        info.insert("source_seq".into(), seqs.source);
        info.insert("through_seq".into(), seqs.through);
        info
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
