//! Who builds indexes: on demand at once, and in the background after writes (CouchDB's `ken`).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

use super::ViewIndex;
use crate::database::Database;
use crate::{Task, unix_seconds};

/// Builds that run at once at most; others wait their turn.
const RUNNING_MAX: usize = 64;
/// Those of one database: its slow functions do not keep the builds of others waiting.
const RUNNING_OF_ONE_MAX: usize = 24;
/// How long after a write the background looks at a database's indexes; more writes may come until then.
const LOOK_EVERY: Duration = Duration::from_millis(1000);

/// Settings of background indexing.
#[derive(Clone, Debug)]
pub struct KenOptions {
    /// Indexes are built before anybody asks.
    pub enabled: bool,
    /// Background builds that run at once at most.
    pub limit: usize,
}

impl Default for KenOptions {
    fn default() -> Self {
        KenOptions {
            enabled: true,
            limit: 20,
        }
    }
}

/// How long after the last write of any database idle runners of functions are let go.
const REST_EVERY: Duration = Duration::from_secs(30);

#[derive(Default)]
struct Work {
    /// Builds that wait for a place.
    waiting: VecDeque<Arc<ViewIndex>>,
    running: Vec<Arc<ViewIndex>>,
    written: Vec<Weak<Database>>,
    /// Databases whose indexes may hold runners of functions that nobody uses any more.
    resting: Vec<Weak<Database>>,
    stopping: bool,
}

impl Work {
    fn may_run(&self, index: &ViewIndex) -> bool {
        let same = |other: &&Arc<ViewIndex>| other.database == index.database;
        self.running.iter().filter(same).count() < RUNNING_OF_ONE_MAX
    }
}

struct Shared {
    work: Mutex<Work>,
    wake: Condvar,
    options: KenOptions,
    started: AtomicBool,
}

pub(crate) struct Indexer(Arc<Shared>);

impl Indexer {
    pub fn new(options: KenOptions) -> Indexer {
        Indexer(Arc::new(Shared {
            work: Mutex::default(),
            wake: Condvar::new(),
            options,
            started: AtomicBool::new(false),
        }))
    }

    /// Has an index updated; nothing when an update that will see everything is to come already.
    pub fn request(&self, index: &Arc<ViewIndex>) {
        let mut start = false;
        index.updates.send_if_modified(|u| {
            if u.running {
                u.again = true;
            } else {
                u.running = true;
                start = true;
            }
            false
        });
        if start {
            self.0.start(index.clone());
        }
    }

    /// A database was written: its indexes are looked at soon.
    pub fn note_written(&self, db: Weak<Database>) {
        let mut work = self.0.work.lock();
        work.written.push(db);
        if !self.0.started.swap(true, Relaxed) {
            let shared = self.0.clone();
            let thread = std::thread::Builder::new()
                .name("ken".into())
                .spawn(move || shared.look_around());
            if let Err(e) = thread {
                tracing::error!(error = %e, "no thread for background indexing");
            }
        }
        self.0.wake.notify_all();
    }

    /// The builds that run, for `/_active_tasks`.
    pub fn tasks(&self) -> Vec<Task> {
        let running = self.0.work.lock().running.clone();
        let now = unix_seconds();
        running
            .iter()
            .flat_map(|index| {
                index.shards.iter().filter_map(|i| {
                    let p = &i.progress;
                    p.running.load(Relaxed).then(|| Task {
                        kind: "indexer",
                        database: index.database.to_string(),
                        design_document: Some(index.design.clone()),
                        done: p.done.load(Relaxed),
                        total: p.total.load(Relaxed),
                        started_unix_s: p.started_unix_s.load(Relaxed),
                        updated_unix_s: now,
                    })
                })
            })
            .collect()
    }

    /// Ends builds under way, and waits a moment for them.
    pub fn stop(&self) {
        let deadline = Instant::now() + Duration::from_secs(3);
        let mut work = self.0.work.lock();
        work.stopping = true;
        work.waiting.clear();
        for index in &work.running {
            index.ask_to_stop();
        }
        self.0.wake.notify_all();
        while !work.running.is_empty() {
            if self.0.wake.wait_until(&mut work, deadline).timed_out() {
                tracing::warn!("an index build did not end in time");
                break;
            }
        }
    }
}

impl Shared {
    fn start(self: &Arc<Self>, index: Arc<ViewIndex>) {
        let mut work = self.work.lock();
        if work.stopping {
            drop(work);
            finish(&index, Some(index::Error::Stopped));
            return;
        }
        if work.running.len() >= RUNNING_MAX || !work.may_run(&index) {
            work.waiting.push_back(index);
            return;
        }
        work.running.push(index.clone());
        drop(work);
        let shared = self.clone();
        let builder = std::thread::Builder::new().name("index".into());
        let for_thread = index.clone();
        if let Err(e) = builder.spawn(move || shared.run(for_thread)) {
            tracing::error!(error = %e, "no thread for an index build");
            self.done(&index);
            let failure = index::Error::Invalid(format!("no thread for the index build: {e}"));
            finish(&index, Some(failure));
        }
    }

    fn run(self: Arc<Self>, first: Arc<ViewIndex>) {
        index::yield_to_readers();
        let mut next = Some(first);
        while let Some(index) = next {
            // User code is stopped by its limits; a panic of ours must not leave waiting clients behind.
            let built = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| update(&index)));
            let failure = match built {
                Ok(result) => result.err(),
                Err(_) => Some(index::Error::Invalid("the index build panicked".into())),
            };
            if let Some(e) = &failure {
                tracing::warn!(db = %index.database, design = %index.design, error = e.name(), reason = %e, "an index build failed");
            }
            let again = finish(&index, failure);
            if !again {
                // Readers have what they waited for; what they would compute on demand is kept for the next ones.
                for i in &index.shards {
                    if let Err(e) = i.warm() {
                        tracing::debug!(db = %index.database, error = %e, "reductions are left to readers");
                    }
                }
            }
            self.done(&index);
            next = if again {
                let mut work = self.work.lock();
                work.running.push(index.clone());
                Some(index)
            } else {
                let mut work = self.work.lock();
                let next = work.waiting.iter().position(|index| work.may_run(index));
                let waiting = next.and_then(|at| work.waiting.remove(at));
                work.running.extend(waiting.clone());
                waiting
            };
        }
    }

    fn done(&self, index: &Arc<ViewIndex>) {
        let mut work = self.work.lock();
        if let Some(i) = work.running.iter().position(|r| Arc::ptr_eq(r, index)) {
            work.running.swap_remove(i);
        }
        self.wake.notify_all();
    }

    /// Looks at the indexes of databases that were written.
    fn look_around(self: Arc<Self>) {
        index::yield_to_readers();
        loop {
            let mut work = self.work.lock();
            while work.written.is_empty() && !work.stopping {
                if work.resting.is_empty() {
                    self.wake.wait(&mut work);
                } else if self.wake.wait_for(&mut work, REST_EVERY).timed_out() {
                    let resting = std::mem::take(&mut work.resting);
                    MutexGuard::unlocked(&mut work, || rest(resting));
                }
            }
            if !work.stopping {
                // Everything that is written in the next moment is looked at together.
                let deadline = Instant::now() + LOOK_EVERY;
                while !work.stopping && !self.wake.wait_until(&mut work, deadline).timed_out() {}
            }
            if work.stopping {
                return;
            }
            let written = std::mem::take(&mut work.written);
            drop(work);
            for db in written {
                if let Some(db) = db.upgrade() {
                    self.look_at(&db);
                }
            }
        }
    }

    fn look_at(self: &Arc<Self>, db: &Arc<Database>) {
        db.views.written.store(false, Relaxed);
        let options = &self.options;
        let weak = Arc::downgrade(db);
        let mut work = self.work.lock();
        if !work.resting.iter().any(|w| w.ptr_eq(&weak)) {
            work.resting.push(weak);
        }
        drop(work);
        if !options.enabled {
            return;
        }
        let designs = match db.designs() {
            Ok(designs) => designs,
            Err(e) => {
                tracing::debug!(db = %db.name(), error = %e, "design documents cannot be read");
                return;
            }
        };
        for design in designs.iter().filter(|d| d.autoupdate) {
            let Ok(index) = db.view_index(design) else {
                continue;
            };
            if index.is_current(db) || index.updates.borrow().is_backing_off() {
                continue;
            }
            if self.work.lock().running.len() >= options.limit {
                // It comes again with the next look.
                let weak = Arc::downgrade(db);
                if !db.views.written.swap(true, Relaxed) {
                    self.work.lock().written.push(weak);
                }
                return;
            }
            Indexer(self.clone()).request(&index);
        }
    }
}

/// Lets go of what the indexes of these databases keep for the next update.
fn rest(databases: Vec<Weak<Database>>) {
    for db in databases.iter().filter_map(Weak::upgrade) {
        for index in db.open_view_indexes() {
            for i in &index.shards {
                i.rest();
            }
        }
    }
}

fn update(index: &ViewIndex) -> Result<(), index::Error> {
    for i in &index.shards {
        i.update()?;
    }
    Ok(())
}

/// Tells those who wait; answers whether another update was asked for meanwhile.
fn finish(index: &ViewIndex, failure: Option<index::Error>) -> bool {
    let mut again = false;
    index.updates.send_modify(|u| {
        again = u.again;
        u.ended += 1;
        u.again = false;
        u.running = again;
        if failure.is_some() {
            u.failures = u.failures.saturating_add(1);
            u.failed_at = Some(Instant::now());
        } else {
            (u.failures, u.failed_at) = (0, None);
        }
        u.failure = failure;
    });
    again
}
