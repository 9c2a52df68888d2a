//! Background work: compactions (requested or due), reclaiming the space of deleted databases, and
//! counting bytes of files.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use rustc_hash::FxHashMap;
use storage::Store;

use crate::database::Database;
use crate::open_databases::OpenDatabases;
use crate::text::TextBytes;
use crate::{Task, unix_seconds};
use telemetry::trace::{Value, export_background};
use telemetry::{State, take_long_turns};

/// Interval at which the thread checks for work without being woken.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// After 25 s without a write there is time for work that can wait.
const QUIET_AFTER: Duration = Duration::from_secs(25);
/// The maintenance's own writes are at most this many bytes.
const WRITES_OF_ITS_OWN: u64 = 4 << 10;
/// Fewer superseded rows than this are not worth a compaction of their own.
const SUPERSEDED_ROWS_MIN: u64 = 20_000;

/// A compaction is due at 128 MiB of attachments that no leaf refers to, if leaves refer to less.
const ATTACHMENT_GARBAGE_BYTES_MIN: u64 = 128 << 20;

struct Job {
    db: Weak<Database>,
    name: Arc<str>,
    done: AtomicU64,
    total: AtomicU64,
    started_unix_s: u64,
    updated_unix_s: AtomicU64,
}

#[derive(Default)]
struct Work {
    queue: Vec<Weak<Database>>,
    running: Option<Arc<Job>>,
    /// Time of the last decision whether to reclaim the space of dropped data.
    reclaiming_unix_s: u64,
    /// Databases written since the last check.
    written: Vec<Arc<str>>,
}

/// Data that the last compaction of a database had to keep.
#[derive(Clone, Copy, Debug, Default)]
pub struct RetainedData {
    /// Superseded rows: bodies of losing leaves.
    pub superseded_rows: u64,
    /// Bytes of attachments that no leaf refers to: they were in use, or the estimate is wrong.
    pub garbage_bytes: u64,
}

pub struct Maintenance {
    store: Arc<Store>,
    /// Figures of compacted databases, by name, since they may be closed and opened again.
    kept: Mutex<FxHashMap<Arc<str>, RetainedData>>,
    auto_compact: AtomicBool,
    work: Mutex<Work>,
    wake: Condvar,
    stopping: AtomicBool,
    thread: Mutex<Option<JoinHandle<()>>>,
    text_bytes: TextBytes,
}

impl Maintenance {
    pub fn new(store: Arc<Store>, auto_compact: bool) -> Arc<Maintenance> {
        Arc::new(Maintenance {
            store,
            kept: Mutex::default(),
            auto_compact: AtomicBool::new(auto_compact),
            work: Mutex::default(),
            wake: Condvar::new(),
            stopping: AtomicBool::new(false),
            thread: Mutex::default(),
            text_bytes: TextBytes::default(),
        })
    }

    /// Sets whether databases are compacted when writes have made that due.
    pub fn set_auto_compact(&self, auto_compact: bool) {
        self.auto_compact.store(auto_compact, Relaxed);
    }

    /// Starts the thread, which finds databases by `open_databases`.
    pub fn start(self: &Arc<Self>, open_databases: Weak<OpenDatabases>) {
        let worker = self.clone();
        let thread = std::thread::Builder::new()
            .name("maintenance".into())
            .spawn(move || worker.run(&open_databases));
        match thread {
            Ok(t) => *self.thread.lock() = Some(t),
            Err(e) => {
                tracing::error!(error = %e, "no maintenance thread: nothing will be compacted")
            }
        }
    }

    /// Bytes of all text indexes' files as of the last scan. The first caller blocks.
    pub fn text_bytes(&self) -> Option<u64> {
        self.text_bytes.last(&self.store, || self.wake())
    }

    /// Data that the last compaction had to keep.
    pub fn kept(&self, name: &str) -> RetainedData {
        self.kept.lock().get(name).copied().unwrap_or_default()
    }

    /// Remembers the data that a compaction had to keep; nothing for a deleted database.
    pub fn note_kept(&self, name: &Arc<str>, kept: RetainedData) {
        let mut all = self.kept.lock();
        if kept.superseded_rows + kept.garbage_bytes > 0 {
            all.insert(name.clone(), kept);
        } else {
            all.remove(name);
        }
    }

    /// Queues a compaction, unless one is queued or runs already.
    pub fn compact(&self, db: &Arc<Database>) {
        let mut work = self.work.lock();
        let weak = Arc::downgrade(db);
        if !work.queue.iter().any(|w| w.ptr_eq(&weak)) {
            work.queue.push(weak);
        }
        self.wake.notify_one();
    }

    /// Whether a compaction of this database is queued or runs.
    pub fn is_compacting(&self, db: &Database) -> bool {
        let work = self.work.lock();
        let running = work.running.as_ref().map(|j| &j.db);
        work.queue
            .iter()
            .chain(running)
            .any(|w| std::ptr::eq(w.as_ptr(), db))
    }

    /// Notes a write to a database: its superseded rows should be checked.
    pub fn note_written(&self, db: Arc<str>) {
        self.work.lock().written.push(db);
    }

    /// Queues its compaction if writes have made that due.
    pub fn look_at(&self, db: &Arc<Database>) {
        // It reads the store, which the writer, who tells of writes, must not wait for.
        if db.take_written() && self.auto_compact.load(Relaxed) && is_due(db) {
            self.compact(db);
        }
    }

    pub fn wake(&self) {
        let _work = self.work.lock();
        self.wake.notify_one();
    }

    pub fn tasks(&self) -> Vec<Task> {
        let work = self.work.lock();
        let reclaiming = self.store.reclaiming().map(|(done, total)| Task {
            kind: "space_reclamation",
            database: String::new(),
            design_document: None,
            index: None,
            done,
            total,
            started_unix_s: work.reclaiming_unix_s,
            updated_unix_s: unix_seconds(),
        });
        let running = work.running.iter().map(|j| Task {
            kind: "database_compaction",
            database: j.name.to_string(),
            design_document: None,
            index: None,
            done: j.done.load(Relaxed),
            total: j.total.load(Relaxed),
            started_unix_s: j.started_unix_s,
            updated_unix_s: j.updated_unix_s.load(Relaxed),
        });
        running.chain(reclaiming).collect()
    }

    /// Starts no new work; running work ends at its next check.
    pub fn ask_to_stop(&self) {
        let _work = self.work.lock();
        self.stopping.store(true, Relaxed);
        self.wake.notify_one();
    }

    /// Waits for the thread to end. Close the store first: that ends a compaction under way.
    pub fn stop(&self) {
        self.ask_to_stop();
        let thread = self.thread.lock().take();
        if let Some(t) = thread
            && t.thread().id() != std::thread::current().id()
            && t.join().is_err()
        {
            tracing::error!("the maintenance thread had panicked");
        }
    }

    fn run(&self, open_databases: &Weak<OpenDatabases>) {
        take_long_turns();
        let mut written = LastWritten::default();
        while !self.stopping.load(Relaxed) {
            self.text_bytes.renew(&self.store);
            let compacts = telemetry::enter(State::Compaction);
            if let Err(e) = self.store.reap() {
                tracing::error!(error = %e, "dropping the rows of a deleted database failed");
            }
            self.reclaim(written.is_long_ago(&self.store));
            match self.next_job(open_databases) {
                Some(job) => self.run_job(&job),
                None => {
                    drop(compacts);
                    let mut work = self.work.lock();
                    let is_idle = work.queue.is_empty() && !self.text_bytes.is_wanted();
                    if is_idle && !self.stopping.load(Relaxed) {
                        self.wake.wait_for(&mut work, LOOK_EVERY);
                    }
                }
            }
        }
    }

    /// Reclaims the space of dropped data, if it is enough to matter.
    fn reclaim(&self, quiet: bool) {
        self.work.lock().reclaiming_unix_s = unix_seconds();
        let started = Instant::now();
        match self.store.reclaim(quiet) {
            Ok(0) => {}
            Ok(bytes) => {
                let seconds = started.elapsed().as_secs_f64();
                tracing::info!(bytes, seconds, "reclaimed the space of deleted data");
            }
            Err(e) => tracing::error!(error = %e, "reclaiming space failed"),
        }
    }

    /// Queues the compactions that writes have made due.
    fn queue_due(&self, open_databases: &Weak<OpenDatabases>) {
        let written = std::mem::take(&mut self.work.lock().written);
        let Some(open_databases) = open_databases.upgrade() else {
            return;
        };
        // A database that was closed meanwhile was checked when it was closed.
        for db in written
            .iter()
            .filter_map(|name| open_databases.get_open(name))
        {
            self.look_at(&db);
        }
    }

    fn next_job(&self, open_databases: &Weak<OpenDatabases>) -> Option<Arc<Job>> {
        self.queue_due(open_databases);
        let mut work = self.work.lock();
        while let Some(weak) = work.queue.pop() {
            let Some(db) = weak.upgrade() else {
                continue;
            };
            let now = unix_seconds();
            let job = Arc::new(Job {
                db: weak,
                name: db.name().clone(),
                done: AtomicU64::new(0),
                total: AtomicU64::new(0),
                started_unix_s: now,
                updated_unix_s: AtomicU64::new(now),
            });
            work.running = Some(job.clone());
            return Some(job);
        }
        None
    }

    fn run_job(&self, job: &Job) {
        let started = Instant::now();
        if let Some(db) = job.db.upgrade() {
            match db.compact_now(&|done, total| {
                job.done.store(done, Relaxed);
                job.total.store(total, Relaxed);
                job.updated_unix_s.store(unix_seconds(), Relaxed);
                !self.stopping.load(Relaxed)
            }) {
                Ok(rows) => {
                    let about = || vec![about_database(&job.name), ("settee.rows", rows.into())];
                    export_background("compaction", started, about, None);
                    tracing::info!(db = %job.name, rows, seconds = started.elapsed().as_secs_f64(), "compacted");
                }
                Err(e) => {
                    let about = || vec![about_database(&job.name)];
                    export_background("compaction", started, about, Some(e.to_string()));
                    tracing::error!(db = %job.name, error = %e, "compaction failed");
                }
            }
        }
        self.work.lock().running = None;
    }
}

/// When there was last a write.
struct LastWritten {
    bytes: u64,
    since: Instant,
}

impl Default for LastWritten {
    fn default() -> LastWritten {
        LastWritten {
            bytes: 0,
            since: Instant::now(),
        }
    }
}

impl LastWritten {
    fn is_long_ago(&mut self, store: &Store) -> bool {
        let bytes = store.engine().written_bytes();
        if bytes > self.bytes + WRITES_OF_ITS_OWN {
            *self = LastWritten {
                bytes,
                since: Instant::now(),
            };
        }
        self.since.elapsed() >= QUIET_AFTER
    }
}

/// The attribute of spans that names a database.
pub(crate) fn about_database(name: &str) -> (&'static str, Value) {
    ("db.namespace", name.to_owned().into())
}

pub fn is_due(db: &Database) -> bool {
    let metas = db.all_shards().iter().map(|s| s.meta());
    let docs: u64 = metas.map(|m| m.doc_count + m.doc_del_count).sum();
    let removable = db.removable_rows();
    if removable > SUPERSEDED_ROWS_MIN && removable > docs {
        return true;
    }
    match db.removable_attachment_bytes() {
        Ok(bytes) => bytes > ATTACHMENT_GARBAGE_BYTES_MIN && bytes > db.leaf_bytes(),
        Err(e) => {
            tracing::error!(error = %e, "counting the bytes of attachments failed");
            false
        }
    }
}
