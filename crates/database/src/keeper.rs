//! Closes unused databases and indexes: they share a budget of memory. When it is exceeded, the
//! least recently used ones are closed.

use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use storage::Signature;

use crate::open_databases::OpenDatabases;

/// Interval of the keeper's checks.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// After 512 opened databases the keeper checks the budget without waiting.
const OPENED_BETWEEN: usize = 512;
/// The part of the budget that it makes room to.
const ROOM: (usize, usize) = (7, 8);
/// Interval at which idle runners of functions are released.
const REST_EVERY: Duration = Duration::from_secs(10);

/// Memory of open databases and their indexes, and its budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenMemory {
    /// Bytes, estimated when the keeper last looked.
    pub used_bytes: u64,
    /// The most that it saw.
    pub peak_bytes: u64,
    /// Databases that were open then.
    pub databases: u64,
    /// Indexes that were.
    pub indexes: u64,
    /// Text indexes among them, and their segments.
    pub text_indexes: u64,
    /// See `text_indexes`.
    pub text_segments: u64,
}

#[derive(Default)]
struct State {
    stopping: bool,
    looked_at: OpenMemory,
}

/// The thread that closes.
pub(crate) struct Keeper {
    state: Mutex<State>,
    wake: Condvar,
    budget_bytes: usize,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// Something that can be closed.
struct Unit {
    last_used: u64,
    bytes: usize,
    what: What,
}

enum What {
    Database(Arc<str>),
    /// A view index of a database that is in use.
    Index(Arc<str>, Signature),
    /// A text index of a database.
    Text(Arc<str>, Signature),
}

impl Keeper {
    /// `budget_bytes` is the memory for open databases and indexes together.
    pub fn new(budget_bytes: usize) -> Arc<Keeper> {
        Arc::new(Keeper {
            state: Mutex::default(),
            wake: Condvar::new(),
            budget_bytes,
            thread: Mutex::default(),
        })
    }

    /// Starts the thread, which ends with `open_databases`, or when it is stopped.
    pub fn start(self: &Arc<Self>, open_databases: &Arc<OpenDatabases>) {
        let (worker, open_databases) = (self.clone(), Arc::downgrade(open_databases));
        let thread = std::thread::Builder::new()
            .name("keeper".into())
            .spawn(move || worker.run(&open_databases));
        match thread {
            Ok(t) => *self.thread.lock() = Some(t),
            Err(e) => {
                tracing::error!(error = %e, "no keeper thread: open databases and indexes stay open")
            }
        }
    }

    /// Its figures as of its last check.
    pub fn memory(&self) -> OpenMemory {
        self.state.lock().looked_at
    }

    /// Closes everything that is idle; returns the number of closed databases.
    pub fn close_all(&self, open_databases: &OpenDatabases) -> usize {
        let (units, mut seen) = survey(open_databases);
        let mut closed = 0;
        for unit in units {
            let is_database = matches!(unit.what, What::Database(_));
            if close(open_databases, unit.what) && is_database {
                closed += 1;
            }
        }
        seen.databases -= closed as u64;
        self.state.lock().looked_at.databases = seen.databases;
        closed
    }

    /// Ends the thread.
    pub fn stop(&self) {
        self.state.lock().stopping = true;
        self.wake.notify_all();
        let thread = self.thread.lock().take();
        if let Some(t) = thread
            && t.thread().id() != std::thread::current().id()
            && t.join().is_err()
        {
            tracing::error!("the keeper thread had panicked");
        }
    }

    /// Counts opened databases: the keeper checks immediately when there are many.
    pub fn note_opened(&self, open: usize) {
        let seen = self.state.lock().looked_at.databases as usize;
        if open > seen + OPENED_BETWEEN {
            self.wake.notify_all();
        }
    }

    fn run(&self, open_databases: &Weak<OpenDatabases>) {
        let mut rested = Instant::now();
        let mut state = self.state.lock();
        while !state.stopping {
            self.wake.wait_for(&mut state, LOOK_EVERY);
            if state.stopping {
                break;
            }
            drop(state);
            let Some(open_databases) = open_databases.upgrade() else {
                return;
            };
            let mut seen = self.look(&open_databases);
            if rested.elapsed() >= REST_EVERY {
                open_databases.shared.views.languages.rest();
                rested = Instant::now();
            }
            drop(open_databases);
            state = self.state.lock();
            seen.peak_bytes = seen.peak_bytes.max(state.looked_at.peak_bytes);
            state.looked_at = seen;
        }
    }

    /// Closes idle objects, if the budget is exceeded.
    fn look(&self, open_databases: &OpenDatabases) -> OpenMemory {
        let now = open_databases.next_tick();
        let (mut units, mut seen) = survey(open_databases);
        let mut used = seen.used_bytes as usize;
        if used > self.budget_bytes {
            // Objects that were used a moment ago are mostly used again; but there is a limit.
            if used < self.budget_bytes * 2 {
                units.retain(|unit| unit.last_used + 1 < now);
            }
            units.sort_by_key(|unit| (unit.last_used, std::cmp::Reverse(unit.bytes)));
            let target = self.budget_bytes / ROOM.1 * ROOM.0;
            for unit in units {
                if used <= target {
                    break;
                }
                let is_database = matches!(unit.what, What::Database(_));
                if close(open_databases, unit.what) {
                    used = used.saturating_sub(unit.bytes);
                    seen.databases -= u64::from(is_database);
                }
            }
        }
        seen.peak_bytes = seen.used_bytes;
        seen.used_bytes = used as u64;
        seen
    }
}

/// Everything that is open: databases with their indexes, and apart the indexes of databases that are in use.
fn survey(open_databases: &OpenDatabases) -> (Vec<Unit>, OpenMemory) {
    let mut units = vec![];
    let mut seen = OpenMemory::default();
    for db in open_databases.all_open() {
        let mut bytes = db.memory_bytes();
        seen.databases += 1;
        for index in db.open_view_indexes() {
            seen.indexes += 1;
            bytes += index.memory_bytes();
            if let Some(signature) = index.signature() {
                units.push(Unit {
                    last_used: index.last_used(),
                    bytes: index.memory_bytes(),
                    what: What::Index(db.name().clone(), signature),
                });
            }
        }
        for index in db.open_text_indexes() {
            seen.indexes += 1;
            seen.text_indexes += 1;
            seen.text_segments += index.segments() as u64;
            bytes += index.memory_bytes();
            units.push(Unit {
                last_used: index.last_used(),
                bytes: index.memory_bytes(),
                what: What::Text(db.name().clone(), index.signature()),
            });
        }
        seen.used_bytes += bytes as u64;
        units.push(Unit {
            last_used: db.last_used(),
            bytes,
            what: What::Database(db.name().clone()),
        });
    }
    (units, seen)
}

/// Closes it unless it is in use; returns whether it is closed now.
fn close(open_databases: &OpenDatabases, what: What) -> bool {
    let open = |name: &str| open_databases.get_open(name);
    match what {
        What::Database(name) => {
            let Some(db) = open(&name) else {
                return true;
            };
            // Those who are open hold it, and this does.
            if Arc::strong_count(&db) > 2 {
                return false;
            }
            open_databases.shared.maintenance.look_at(&db);
            db.save_summaries();
            db.flush_text_indexes();
            drop(db);
            open_databases.close_idle(&name)
        }
        What::Index(name, signature) => {
            open(&name).is_none_or(|db| db.close_idle_index(&signature))
        }
        What::Text(name, signature) => open(&name).is_none_or(|db| db.close_idle_text(&signature)),
    }
}
