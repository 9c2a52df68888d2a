//! Follows the documents of replicator databases: each becomes a job, and the job's state is
//! written to the document.

mod update;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use database::{ChangesQuery, Database, Databases, Filter, Framing, Since, Style};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::db::json_limits::{DOC_VALUES_MAX, parse};
use crate::db::random;
use crate::environment::Environment;
use crate::error::Error;
use crate::options::{DocRef, Replication, Selection, User};
use crate::placement::MOVED_JITTER_MAX;
use crate::rows::{Form, Rows};
use crate::scheduler::{JobState, Listener, Scheduler, doc_backoff};
use crate::selections::Room;
use crate::time::iso8601;

/// The interval between checks of jobs' filter functions grows with the number of documents, up to
/// a day. In seconds.
const FILTER_CHECK_RANGE_S_MAX: u64 = 86_400;
/// Size of one read of a feed, in bytes.
const CHUNK_BYTES: usize = 64 << 10;

/// States of documents, by their names in `_scheduler/docs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DocState {
    Initializing,
    /// It could not become a job, and will be retried.
    Error,
    Scheduled,
}

/// A document that has a job, or will get one.
struct Entry {
    replication: Arc<Replication>,
    state: DocState,
    /// The job's id, once it has one.
    job: Option<String>,
    info: Value,
    failures: u32,
    changed: SystemTime,
    started: SystemTime,
    /// Distinguishes this entry from earlier ones of the document.
    serial: u64,
    /// Memory of the replication, which the job shares.
    room: Room,
}

/// A changed document.
#[derive(Deserialize)]
struct Row<'a> {
    #[serde(borrow)]
    id: Cow<'a, str>,
    #[serde(default)]
    deleted: bool,
    #[serde(borrow)]
    doc: Option<&'a RawValue>,
}

/// The position up to which a database has been read.
struct Read {
    db: Weak<Database>,
    since: Since,
}

pub struct Docs {
    me: Weak<Docs>,
    databases: Arc<Databases>,
    environment: Arc<dyn Environment>,
    scheduler: Arc<Scheduler>,
    entries: Mutex<BTreeMap<DocRef, Entry>>,
    dirty: Mutex<BTreeSet<String>>,
    wake: Notify,
    stopped: watch::Sender<bool>,
}

impl Docs {
    pub fn new(
        databases: Arc<Databases>,
        environment: Arc<dyn Environment>,
        scheduler: Arc<Scheduler>,
    ) -> Arc<Docs> {
        let docs = Arc::new_cyclic(|me: &Weak<Docs>| Docs {
            me: me.clone(),
            databases,
            environment,
            scheduler: scheduler.clone(),
            entries: Mutex::default(),
            dirty: Mutex::default(),
            wake: Notify::new(),
            stopped: watch::Sender::new(false),
        });
        let listener: Weak<dyn Listener> = docs.me.clone();
        scheduler.set_listener(listener);
        docs
    }

    /// Notifies that a replicator database was written, created or deleted.
    pub fn changed(&self, db: &str) {
        self.dirty.lock().insert(db.to_owned());
        self.wake.notify_one();
    }

    pub fn stop(&self) {
        self.stopped.send_replace(true);
    }

    /// Follows the replicator databases until the server stops.
    pub async fn run(self: Arc<Self>) {
        let mut stopped = self.stopped.subscribe();
        let mut read: HashMap<String, Read> = HashMap::new();
        // Existing documents do not all start at the same time.
        let mut jitter = self.environment.settings().startup_jitter;
        if let Some(placement) = self.environment.placement() {
            // Not delayed by the reading of documents.
            tokio::spawn(leave_to_others(self.me.clone(), placement.changes()));
        }
        // A single server's never changes.
        let (_single, mut placed) = match self.environment.placement() {
            Some(placement) => (None, placement.changes()),
            None => {
                let single = watch::Sender::new(0);
                let placed = single.subscribe();
                (Some(single), placed)
            }
        };
        loop {
            let dirty = std::mem::take(&mut *self.dirty.lock());
            for db in dirty {
                // Documents are parsed, and their selectors compiled.
                let (docs, mut known) = (self.clone(), std::mem::take(&mut read));
                let follow = move || {
                    docs.follow(&db, &mut known, jitter);
                    known
                };
                match tokio::task::spawn_blocking(follow).await {
                    Ok(known) => read = known,
                    Err(_) => return,
                }
            }
            jitter = Duration::ZERO;
            tokio::select! {
                () = self.wake.notified() => {}
                Ok(()) = placed.changed() => {
                    // The jobs that are this node's own now are among their documents.
                    for (db, read) in &mut read {
                        read.since = Since::Start;
                        self.dirty.lock().insert(db.clone());
                    }
                    jitter = self.environment.settings().startup_jitter.min(MOVED_JITTER_MAX);
                }
                () = crate::job::stop_requested(&mut stopped) => return,
            }
        }
    }

    /// Reads the changes of a database.
    fn follow(&self, name: &str, read: &mut HashMap<String, Read>, jitter: Duration) {
        let db = self.databases.get(name).ok();
        let known = read.get(name).and_then(|read| read.db.upgrade());
        let same = match (&db, &known) {
            (Some(db), Some(known)) => Arc::ptr_eq(db, known),
            _ => false,
        };
        if !same {
            self.forget(name);
            read.remove(name);
        }
        let Some(db) = db else { return };
        let since = read.remove(name).map_or(Since::Start, |read| read.since);
        match self.read_changes(&db, since.clone(), jitter) {
            Ok(seq) => {
                let since = Since::Seq(seq);
                read.insert(
                    name.to_owned(),
                    Read {
                        db: Arc::downgrade(&db),
                        since,
                    },
                );
            }
            Err(e) => {
                tracing::warn!(db = name, error = %e, "a replicator database cannot be read");
                read.insert(
                    name.to_owned(),
                    Read {
                        db: Arc::downgrade(&db),
                        since,
                    },
                );
            }
        }
    }

    fn read_changes(
        &self,
        db: &Arc<Database>,
        since: Since,
        jitter: Duration,
    ) -> Result<String, database::Error> {
        let mut changes = db.changes(ChangesQuery {
            since,
            descending: false,
            limit: None,
            style: Style::MainOnly,
            include_docs: true,
            conflicts: false,
            attachments: database::ShownAttachments::default(),
            filter: Filter::None,
            seq_interval: None,
        })?;
        let mut rows = Rows::new(Form::Lines);
        loop {
            let mut out = vec![];
            let more = changes.next_chunk(Framing::Lines, &mut out, CHUNK_BYTES)?;
            rows.push(&out);
            while let Ok(Some(row)) = rows.next_row() {
                if let Ok(row) = serde_json::from_slice::<Row<'_>>(&row) {
                    self.changed_doc(db.name(), &row, jitter);
                }
            }
            if !more {
                return Ok(changes.last_seq());
            }
        }
    }

    fn changed_doc(&self, db: &str, row: &Row<'_>, jitter: Duration) {
        let id = &*row.id;
        if id.starts_with("_design/") {
            return;
        }
        let at = DocRef {
            db: db.to_owned(),
            id: id.to_owned(),
        };
        // All nodes of a cluster have the document.
        if let Some(placement) = self.environment.placement()
            && !placement.runs(&at)
        {
            return self.left(&at, placement.end_time());
        }
        let Some(doc) = row.doc.filter(|_| !row.deleted) else {
            return self.removed(&at);
        };
        let doc: Map<String, Value> = match parse(doc.get().as_bytes(), DOC_VALUES_MAX) {
            Ok(doc) => doc,
            Err(told) => {
                // It was written before there was a limit.
                tracing::warn!(
                    db,
                    doc = id,
                    error = told,
                    "a replication document is not read"
                );
                return self.removed(&at);
            }
        };
        match doc.get("_replication_state").and_then(Value::as_str) {
            // Final, until the state is removed from the document.
            Some("completed" | "failed") => self.removed(&at),
            state => {
                // Written by another version, or before a setting was changed.
                if state.is_some() && !self.environment.settings().update_docs {
                    self.spawn_update(at.clone(), update::cleared());
                }
                self.updated(at, &doc, jitter);
            }
        }
    }

    /// Ends the jobs that other nodes run from now on.
    fn leave_to_others(&self) {
        let Some(placement) = self.environment.placement() else {
            return;
        };
        let mut left: Vec<DocRef> = self.entries.lock().keys().cloned().collect();
        left.retain(|at| !placement.runs(at));
        for at in left {
            self.left(&at, placement.end_time());
        }
    }

    /// Ends the job of a document that another node runs, within a time.
    fn left(&self, at: &DocRef, time: Duration) {
        if self.entries.lock().remove(at).is_some() {
            self.scheduler.leave(&at.db, &at.id, time);
        }
    }

    fn removed(&self, at: &DocRef) {
        self.entries.lock().remove(at);
        self.scheduler.remove_of(&at.db, Some(&at.id));
    }

    fn forget(&self, db: &str) {
        self.entries.lock().retain(|at, _| at.db != db);
        self.scheduler.remove_of(db, None);
    }

    fn updated(&self, at: DocRef, doc: &Map<String, Value>, jitter: Duration) {
        let settings = self.environment.settings();
        let parsed = Replication::parse(doc, user_of(doc), Some(at.clone()), &settings);
        let replication = match parsed {
            Ok(replication) => Arc::new(replication),
            Err(e) => {
                self.removed(&at);
                return self.spawn_update(at, update::failed(&reason(&e)));
            }
        };
        let mut entries = self.entries.lock();
        if let Some(entry) = entries.get(&at) {
            // Writing a state to the document does not change the replication.
            if *entry.replication == *replication {
                return;
            }
        }
        // The job, and the memory, of the document's last revision.
        if entries.remove(&at).is_some() {
            self.scheduler.remove_of(&at.db, Some(&at.id));
        }
        let room = match self.scheduler.room_for(&replication) {
            Ok(room) => room,
            Err(e) => {
                drop(entries);
                return self.spawn_update(at, update::failed(&reason(&e)));
            }
        };
        let serial = next_serial();
        let now = SystemTime::now();
        entries.insert(
            at.clone(),
            Entry {
                replication,
                state: DocState::Initializing,
                job: None,
                info: Value::Null,
                failures: 0,
                changed: now,
                started: now,
                serial,
                room,
            },
        );
        drop(entries);
        let not_before = (!jitter.is_zero()).then(|| Instant::now() + jitter.mul_f64(random()));
        let me = self.me.clone();
        tokio::spawn(async move {
            let mut wait = Duration::ZERO;
            loop {
                tokio::time::sleep(wait).await;
                let Some(docs) = me.upgrade() else { return };
                match docs.schedule(&at, serial, not_before).await {
                    Some(again) => wait = again,
                    None => return,
                }
            }
        });
    }

    /// Creates the job of a document, or checks whether its filter has changed. Returns when to
    /// check again.
    async fn schedule(
        &self,
        at: &DocRef,
        serial: u64,
        not_before: Option<Instant>,
    ) -> Option<Duration> {
        let replication = self.with_entry(at, serial, |entry| entry.replication.clone())?;
        let id = self.scheduler.id_of(&replication).await;
        let free = id.and_then(|id| self.free(&id, at).map(|()| id));
        let id = match free {
            Ok(id) => id,
            Err(e) if e.is_permanent() => {
                self.with_entry(at, serial, |_| ())?;
                self.removed(at);
                self.spawn_update(at.clone(), update::failed(&reason(&e)));
                return None;
            }
            Err(e) => return self.try_later(at, serial, &e),
        };
        let old = self.with_entry(at, serial, |entry| {
            let old = entry.job.replace(id.clone());
            entry.state = DocState::Scheduled;
            entry.failures = 0;
            entry.info = Value::Null;
            entry.changed = SystemTime::now();
            // The author of the document finds the error in it.
            let room = entry.room.clone();
            let _awaited = (self.scheduler).add(&id, replication.clone(), not_before, room);
            old
        })?;
        if let Some(old) = old.filter(|old| *old != id) {
            self.scheduler.remove(&old);
        }
        match &replication.selection {
            Selection::Filter { name, .. } if !name.starts_with('_') => Some(self.filter_check()),
            _ => None,
        }
    }

    /// Checks that no other document, and no request, has the id.
    fn free(&self, id: &str, at: &DocRef) -> Result<(), Error> {
        let of_request = || {
            let by = "a transient replication, started via the _replicate API endpoint";
            Error::Duplicate(id.to_owned(), by.to_owned())
        };
        let Some(other) = self.scheduler.replication(id) else {
            // Another node may run it.
            let kept = self.environment.kept();
            return match kept.is_some_and(|kept| kept.get(id).is_some()) {
                true => Err(of_request()),
                false => Ok(()),
            };
        };
        match &other.doc {
            Some(doc) if doc == at => Ok(()),
            Some(doc) => Err(Error::Forbidden(format!(
                "Replication `{id}` specified by document `{}` already started, triggered by document `{}` from db `{}`",
                at.id, doc.id, doc.db
            ))),
            None => Err(of_request()),
        }
    }

    /// Schedules a retry. If the document has a job, only reading its filter failed: the job
    /// continues, as in CouchDB.
    fn try_later(&self, at: &DocRef, serial: u64, e: &Error) -> Option<Duration> {
        let failures = self.with_entry(at, serial, |entry| {
            if entry.job.is_some() {
                return None;
            }
            entry.state = DocState::Error;
            entry.info = json!({"error": reason(e)});
            entry.failures = entry.failures.saturating_add(1);
            entry.changed = SystemTime::now();
            Some(entry.failures)
        })?;
        let Some(failures) = failures else {
            tracing::warn!(db = at.db, doc = at.id, error = %e, "the filter of a running replication cannot be read");
            return Some(self.filter_check());
        };
        if self.environment.settings().update_docs {
            self.spawn_update(at.clone(), update::error(&reason(e), None));
        }
        Some(doc_backoff(failures - 1))
    }

    fn filter_check(&self) -> Duration {
        let documents = self.entries.lock().len() as u64;
        let range = 1 + (documents / 5).min(FILTER_CHECK_RANGE_S_MAX);
        self.environment.settings().filter_check_min + Duration::from_secs(range).mul_f64(random())
    }

    fn with_entry<T>(
        &self,
        at: &DocRef,
        serial: u64,
        f: impl FnOnce(&mut Entry) -> T,
    ) -> Option<T> {
        let mut entries = self.entries.lock();
        entries
            .get_mut(at)
            .filter(|entry| entry.serial == serial)
            .map(f)
    }

    fn spawn_update(&self, at: DocRef, update: update::Update) {
        let databases = self.databases.clone();
        tokio::spawn(async move {
            if let Err(e) = update::write(&databases, &at, update).await {
                tracing::warn!(db = at.db, doc = at.id, error = %e, "a replication document was not updated");
            }
        });
    }

    /// Returns the `_scheduler/docs` entries of the documents of a database that have a job here, or
    /// will get one.
    pub fn docs_json(&self, db: &str) -> Vec<Value> {
        let entries = self.entries.lock();
        let of_db = entries.iter().filter(|(at, _)| at.db == db);
        of_db
            .map(|(at, entry)| self.entry_json(at, entry))
            .collect()
    }

    /// Returns the `_scheduler/docs` entry of a document that has a job, or will get one.
    pub fn doc_json(&self, at: &DocRef) -> Option<Value> {
        let entries = self.entries.lock();
        let entry = entries.get(at)?;
        Some(self.entry_json(at, entry))
    }

    fn entry_json(&self, at: &DocRef, entry: &Entry) -> Value {
        let job = entry
            .job
            .as_deref()
            .and_then(|id| self.scheduler.summary(id));
        let (state, info, errors, changed) = match (entry.state, job) {
            (DocState::Scheduled, Some((state, info, crashes, changed))) => {
                (JobState::name(state), info, crashes, changed)
            }
            // Between two states.
            (DocState::Scheduled | DocState::Initializing, _) => (
                "initializing",
                entry.info.clone(),
                entry.failures,
                entry.changed,
            ),
            (DocState::Error, _) => ("error", entry.info.clone(), entry.failures, entry.changed),
        };
        let r = &entry.replication;
        let mut shown = json!({
            "database": at.db,
            "doc_id": at.id,
            "id": entry.job,
            "node": self.environment.node(),
            "source": r.source.shown(),
            "target": r.target.shown(),
            "state": state,
            "info": info,
            "error_count": errors,
            "last_updated": iso8601(changed),
            "start_time": iso8601(entry.started),
        });
        // As in CouchDB, only for jobs.
        if entry.state == DocState::Scheduled {
            shown["source_proxy"] = json!(r.source.shown_proxy());
            shown["target_proxy"] = json!(r.target.shown_proxy());
        }
        shown
    }
}

/// Ends jobs that other nodes run from now on, until the server stops.
async fn leave_to_others(docs: Weak<Docs>, mut placed: watch::Receiver<u64>) {
    while placed.changed().await.is_ok() {
        let Some(docs) = docs.upgrade() else { return };
        docs.leave_to_others();
    }
}

/// Returns the user that a document names.
fn user_of(doc: &Map<String, Value>) -> User {
    let ctx = doc.get("user_ctx");
    let text = |v: &Value| v.as_str().map(str::to_owned);
    let roles = ctx.and_then(|c| c.get("roles")?.as_array());
    User {
        name: ctx.and_then(|c| text(c.get("name")?)),
        roles: roles.into_iter().flatten().filter_map(text).collect(),
    }
}

fn reason(e: &Error) -> String {
    match e {
        Error::BadRequest(reason) | Error::InvalidEndpoint(reason) | Error::Forbidden(reason) => {
            reason.clone()
        }
        e => e.text(),
    }
}

fn next_serial() -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl Listener for Docs {
    fn started(&self, doc: &DocRef, id: &str) {
        if self.environment.settings().update_docs {
            self.spawn_update(doc.clone(), update::triggered(id));
        }
    }

    fn crashed(&self, doc: &DocRef, id: &str, error: &Error) {
        if self.environment.settings().update_docs {
            self.spawn_update(doc.clone(), update::error(&error.text(), Some(id)));
        }
    }

    fn completed(&self, doc: &DocRef, stats: Map<String, Value>) {
        self.spawn_update(doc.clone(), update::completed(stats));
    }
}
