//! What happened to databases, for `_db_updates`: the newest event of each, since the server started.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DbEventKind {
    Created,
    Updated,
    Deleted,
}

#[derive(Clone, Debug)]
pub struct DbEvent {
    pub seq: u64,
    pub db: Arc<str>,
    pub kind: DbEventKind,
}

struct Log {
    seq: u64,
    by_seq: BTreeMap<u64, (Arc<str>, DbEventKind)>,
    by_db: HashMap<Arc<str>, u64>,
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

    pub fn watch(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }
}
