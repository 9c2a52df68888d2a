//! Events of databases: the newest one of each since the server started, and those to write to
//! `_global_changes`.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;

/// Kinds of events of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DbEventKind {
    /// It was created.
    Created,
    /// Something in it changed.
    Updated,
    /// It was deleted.
    Deleted,
}

impl DbEventKind {
    /// CouchDB's word.
    pub fn name(self) -> &'static str {
        match self {
            DbEventKind::Created => "created",
            DbEventKind::Updated => "updated",
            DbEventKind::Deleted => "deleted",
        }
    }
}

/// An event that `_global_changes` does not have yet.
#[derive(Clone, Debug)]
pub struct PendingEvent {
    pub db: Arc<str>,
    pub kind: DbEventKind,
    /// In the order of these.
    pub seq: u64,
}

/// An event of a database.
#[derive(Clone, Debug)]
pub struct DbEvent {
    /// Counts events since the start.
    pub seq: u64,
    /// The database's name.
    pub db: Arc<str>,
    /// Its kind.
    pub kind: DbEventKind,
}

struct Log {
    seq: u64,
    by_seq: BTreeMap<u64, (Arc<str>, DbEventKind)>,
    by_db: HashMap<Arc<str>, u64>,
    /// The newest event of each kind for each database, by its seq; `None` while `_global_changes`
    /// is not kept.
    pending: Option<HashMap<(Arc<str>, DbEventKind), u64>>,
}

pub struct Events {
    log: Mutex<Log>,
    changed: watch::Sender<u64>,
}

impl Default for Events {
    fn default() -> Self {
        // Microseconds since 1970: seqs of an earlier run are always smaller.
        let seq = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0, |d| d.as_micros() as u64);
        Events {
            log: Mutex::new(Log {
                seq,
                by_seq: BTreeMap::new(),
                by_db: HashMap::new(),
                pending: None,
            }),
            changed: watch::Sender::new(0),
        }
    }
}

impl Events {
    pub fn note(&self, db: &Arc<str>, kind: DbEventKind) {
        let mut log = self.log.lock();
        log.seq += 1;
        let seq = log.seq;
        if let Some(old) = log.by_db.insert(db.clone(), seq) {
            log.by_seq.remove(&old);
        }
        log.by_seq.insert(seq, (db.clone(), kind));
        if let Some(pending) = &mut log.pending {
            pending.insert((db.clone(), kind), seq);
        }
        drop(log);
        self.changed.send_replace(seq);
    }

    /// Events after `seq`, oldest first, and the last seq.
    pub fn since(&self, seq: u64) -> (Vec<DbEvent>, u64) {
        let log = self.log.lock();
        let events = log
            .by_seq
            .range(seq.saturating_add(1)..)
            .map(|(&seq, (db, kind))| DbEvent {
                seq,
                db: db.clone(),
                kind: *kind,
            })
            .collect();
        (events, log.seq)
    }

    /// From now on, events are kept for [`Events::take_pending`].
    pub fn keep_pending(&self) {
        self.log.lock().pending.get_or_insert_default();
    }

    /// Removes and returns the events since the last call, oldest first.
    pub fn take_pending(&self) -> Vec<PendingEvent> {
        let taken = self.log.lock().pending.as_mut().map(std::mem::take);
        let mut pending: Vec<PendingEvent> = taken
            .into_iter()
            .flatten()
            .map(|((db, kind), seq)| PendingEvent { db, kind, seq })
            .collect();
        pending.sort_unstable_by_key(|p| p.seq);
        pending
    }

    /// Returns these events to the pending ones, unless newer ones of the same kind are pending.
    pub fn put_back(&self, events: Vec<PendingEvent>) {
        if events.is_empty() {
            return;
        }
        let mut log = self.log.lock();
        let seq = log.seq;
        if let Some(pending) = &mut log.pending {
            for p in events {
                pending.entry((p.db, p.kind)).or_insert(p.seq);
            }
        }
        drop(log);
        self.changed.send_replace(seq);
    }

    pub fn watch(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }
}
