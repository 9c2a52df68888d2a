//! JavaScript, in this process or in worker processes of the same binary.
//!
//! QuickJS itself is the crate `quickjs`. A context of it gets the prelude (`environment`) and a
//! few host functions (`host`). `mapper`, `reducer` and `designs` run users' functions in the
//! calling thread, each in a `sandbox` that is rewound between calls and kept among the `idle`
//! ones; `process` runs them in a `worker`, over a `socket` with frames of `wire`.

mod budget;
mod dates;
mod designs;
mod environment;
mod host;
mod idle;
mod log;
mod mapper;
mod process;
mod profile;
mod reducer;
mod sandbox;
mod socket;
#[cfg(test)]
mod tests;
mod thrown;
mod wire;
mod worker;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use query_server::language::{Designs, Error, MEMORY_LIMIT, MapGroup, Mapper, Reducer, TIME_LIMIT};
use quickjs::Limits;

use designs::{Heaps, ThreadDesigns};
use mapper::{Compilations, ThreadMapper};
use process::{ProcessDesigns, Processes};
pub use profile::WorkersProfile;
use reducer::{Reducers, Source, ThreadReducer};
pub use worker::worker_main;

use crate::spidermonkey::UTC;
pub use crate::spidermonkey::{known_time_zone, process_time_zone};

/// Heaps and workers are dropped after this idle time.
const IDLE_TIME_MAX: Duration = Duration::from_secs(30);

/// The idle heaps of one kind of function (maps, reduces, others) take at most one in this many
/// parts of the limit of one heap.
const IDLE_SHARE: usize = 4;
/// Minimum of their limit, in bytes: some heaps.
const IDLE_BYTES_MIN: usize = 4 << 20;

/// Where JavaScript runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
    /// In the calling thread. A single long call of a built-in function
    /// (`"x".repeat(1e8).split("")`) cannot be stopped by the time limit; the memory limit bounds
    /// it.
    #[default]
    Thread,
    /// In worker processes, which are killed when they exceed a limit.
    Process,
}

/// Settings of the section `[functions]`.
#[derive(Clone, Debug)]
pub struct Options {
    /// `time_limit_ms`: time limit of JavaScript for one document, or one call of another function.
    pub time: Duration,
    /// `memory_limit_bytes`: memory limit of one JavaScript heap; at most 1 GiB.
    pub memory_bytes: usize,
    /// `stack_limit_bytes`: stack limit of JavaScript's calls.
    pub stack_bytes: usize,
    /// `emit_rows_limit`: maximum number of rows that one function may emit for one document.
    pub emit_rows_max: usize,
    /// `emit_bytes_limit`: maximum bytes of JSON that all functions of a design document may emit
    /// for one document, and that any other function may return.
    pub emit_bytes_max: usize,
    /// `isolation`: `thread` or `process`.
    pub isolation: Isolation,
    /// `workers_limit`: functions of one user that run at a time, in each [`Lane`](crate::Lane)
    /// of calls; at least 2.
    pub workers_max: usize,
    /// `queue_limit`: maximum number of waiting calls in each lane.
    pub queue_max: usize,
    /// `[memory] workers`: memory of all worker processes together, in bytes.
    pub workers_bytes_max: usize,
    /// The effective time zone of dates, as [`known_time_zone`] returns it: that of worker
    /// processes, and of signatures of indexes. With [`Isolation::Thread`] it must be that of this
    /// process, which is the default.
    pub time_zone: String,
    /// The command of a worker process; not a setting.
    pub worker: WorkerCommand,
}

/// The command of a worker process, which must call [`worker_main`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerCommand {
    /// The program; `None` for this one.
    pub program: Option<PathBuf>,
    /// Arguments that make it call that.
    pub args: Vec<String>,
}

impl Default for WorkerCommand {
    fn default() -> WorkerCommand {
        WorkerCommand {
            program: None,
            args: vec!["functions-worker".into()],
        }
    }
}

impl Default for Options {
    fn default() -> Options {
        Options {
            time: Duration::from_secs(5),
            memory_bytes: 64 << 20,
            stack_bytes: 512 << 10,
            emit_rows_max: 100_000,
            emit_bytes_max: 64 << 20,
            isolation: Isolation::Thread,
            queue_max: 2048,
            workers_max: std::thread::available_parallelism().map_or(2, usize::from),
            workers_bytes_max: 1 << 30,
            time_zone: known_time_zone(&process_time_zone()).unwrap_or_else(|| UTC.to_owned()),
            worker: WorkerCommand::default(),
        }
    }
}

impl Options {
    fn limits(&self) -> Limits {
        Limits {
            time: self.time,
            memory_bytes: self.memory_bytes,
            stack_bytes: self.stack_bytes,
            emit_rows_max: self.emit_rows_max,
            emit_bytes_max: self.emit_bytes_max,
        }
        .clamped()
    }

    /// Returns the memory limit of the idle heaps of one kind of function, in each process that
    /// runs JavaScript.
    fn idle_bytes_max(&self) -> usize {
        (self.limits().memory_bytes / IDLE_SHARE).max(IDLE_BYTES_MIN)
    }
}

/// The JavaScript engine.
#[derive(Clone)]
pub struct Engine {
    place: Place,
    /// The limits that a document may exceed, by their configuration keys.
    limits: [(&'static str, u64); 4],
}

/// Where it runs.
#[derive(Clone)]
enum Place {
    Thread(Arc<Compilations>, Arc<Reducers>, Arc<Heaps>),
    Process(Arc<Processes>),
}

impl Engine {
    /// Creates an engine with these settings; memory and stack are clamped to workable values.
    pub fn new(mut options: Options) -> Engine {
        let limits = options.limits();
        options.memory_bytes = limits.memory_bytes;
        options.stack_bytes = limits.stack_bytes;
        let place = match options.isolation {
            Isolation::Thread => Place::Thread(
                Arc::new(Compilations::new(&options)),
                Arc::new(Reducers::new(&options)),
                Arc::new(Heaps::new(&options)),
            ),
            Isolation::Process => Place::Process(Processes::new(&options)),
        };
        Engine {
            place,
            limits: [
                (MEMORY_LIMIT, limits.memory_bytes as u64),
                (TIME_LIMIT, limits.time.as_millis() as u64),
                ("emit_rows_limit", limits.emit_rows_max as u64),
                ("emit_bytes_limit", limits.emit_bytes_max as u64),
            ],
        }
    }

    /// Returns the value of a limit that a document may exceed, by its configuration key.
    pub fn limit(&self, name: &str) -> Option<u64> {
        let found = self.limits.iter().find(|(limit, _)| *limit == name);
        found.map(|(_, value)| *value)
    }

    /// Creates a mapper with a heap of its own until it is dropped, for one thread. Sources that do
    /// not compile are [`Error::Compile`].
    pub fn mapper(&self, group: &MapGroup) -> Result<Box<dyn Mapper>, Error> {
        Ok(match &self.place {
            Place::Thread(compilations, ..) => Box::new(ThreadMapper::new(compilations, group)?),
            Place::Process(processes) => Box::new(processes.mapper(group)?),
        })
    }

    /// Creates a custom reduce function of a database; `lib` is `views.lib` as JSON text. It is
    /// compiled when it is first called.
    pub fn reducer(
        &self,
        database: &Arc<str>,
        source: &str,
        lib: Option<&str>,
    ) -> Box<dyn Reducer> {
        let source = Source {
            database: database.clone(),
            source: source.to_owned(),
            lib: lib.map(str::to_owned),
        };
        match &self.place {
            Place::Thread(_, reducers, _) => Box::new(ThreadReducer::new(reducers.clone(), source)),
            Place::Process(processes) => Box::new(processes.reducer(source)),
        }
    }

    /// Returns calls of other functions of a database's design documents.
    pub fn designs(&self, database: &Arc<str>) -> Box<dyn Designs> {
        match &self.place {
            Place::Thread(.., heaps) => Box::new(ThreadDesigns {
                heaps: heaps.clone(),
                database: database.clone(),
            }),
            Place::Process(processes) => Box::new(ProcessDesigns {
                processes: processes.clone(),
                database: database.clone(),
            }),
        }
    }

    /// Drops heaps and workers that were not used recently.
    pub fn rest(&self) {
        match &self.place {
            Place::Thread(compilations, reducers, heaps) => {
                compilations.rest();
                reducers.rest();
                heaps.rest();
            }
            Place::Process(processes) => processes.rest(),
        }
    }

    /// Returns the memory of all worker processes, and its maximum so far, in bytes.
    pub fn worker_memory(&self) -> (u64, u64) {
        match &self.place {
            Place::Thread(..) => (0, 0),
            Place::Process(processes) => processes.memory(),
        }
    }

    /// Checks that a source is a function: [`Error::Compile`] contains the reason if not.
    pub fn check(&self, source: &str, lib: Option<&str>) -> Result<(), Error> {
        match &self.place {
            Place::Thread(_, reducers, _) => reducers.check(source, lib),
            Place::Process(processes) => processes.check(source, lib),
        }
    }
}
