//! Runs users' functions in any language by external programs that speak CouchDB's query-server
//! protocol: one JSON array per line on their standard input, one answer per line on their standard
//! output.
//!
//! [`Pools`] holds the processes, a pool for each language. A mapper, a reducer or a caller of
//! design functions holds no process between two calls: it takes one for each call, preferably one
//! that already knows its functions.

// Not forbidden, for the one call that `starter` needs.
#![deny(unsafe_code)]

mod accounts;
mod answer;
mod builtin;
mod designs;
pub mod language;
mod lines;
mod map;
mod pool;
pub mod prelude;
mod process;
mod reduce;
mod settings;
mod starter;

use std::sync::{Arc, mpsc};

use crate::language::{Designs, Error, MapGroup, Mapper, Reducer};
use pool::{Lease, Pool};
use process::{Process, ReduceFunction, Taught};
use settings::command_start;

pub use accounts::{LanguageUsage, TrackedProcess, cpu_times, usage_by_language};
pub use builtin::builtin_command;
pub use settings::{ReduceLimit, Settings};

/// Number of design documents that a process gets before it is replaced by a new one: query servers
/// never forget one.
const DESIGNS_MAX: usize = 32;

/// The processes of all languages. Clones share them. All processes are ended when the last clone,
/// and everything created by one, is dropped; or when this process dies, in whatever way.
#[derive(Clone)]
pub struct Pools {
    pool: Arc<Pool>,
}

impl Pools {
    /// No process is started before one is needed.
    ///
    /// # Errors
    /// [`Error::Process`] when the thread that starts them cannot be started.
    pub fn new(settings: Settings) -> Result<Self, Error> {
        let (starter, requests) = mpsc::channel();
        let pool = Arc::new(Pool::new(settings, starter));
        let weak = Arc::downgrade(&pool);
        std::thread::Builder::new()
            .name("query-servers".to_owned())
            .spawn(move || {
                starter::run(&requests, || {
                    weak.upgrade().and_then(|pool| pool.end_idle())
                })
            })
            .map_err(|error| Error::Process(format!("cannot start a thread: {error}")))?;
        Ok(Self { pool })
    }

    /// Replaces the settings. Processes end as soon as they are no longer in use.
    pub fn configure(&self, settings: Settings) {
        self.pool.configure(settings);
    }

    /// Returns whether there is a query server for `language`.
    pub fn has(&self, language: &str) -> bool {
        self.pool
            .settings()
            .commands
            .contains_key(&language.to_ascii_lowercase())
    }

    /// Returns the time limit of one answer, in milliseconds.
    pub fn answer_time_ms(&self) -> u64 {
        let timeout = self.pool.settings().timeout;
        u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX)
    }

    /// Returns the numbers of processes of `language`: in use, and idle.
    pub fn counts(&self, language: &str) -> (usize, usize) {
        self.pool.counts(&language.to_ascii_lowercase())
    }

    /// Runs map functions.
    ///
    /// # Errors
    /// [`Error::UnknownLanguage`]. Errors in the functions are returned by the first call of the
    /// mapper.
    pub fn mapper(&self, group: &MapGroup) -> Result<Box<dyn Mapper>, Error> {
        let language = self.language(&group.language)?;
        Ok(Box::new(map::ExternalMapper::new(
            self.pool.clone(),
            language,
            group,
        )))
    }

    /// Runs a custom reduce function of a database; `lib` is the JSON text of the design document's
    /// `views.lib`.
    ///
    /// # Errors
    /// [`Error::UnknownLanguage`].
    pub fn reducer(
        &self,
        database: &str,
        language: &str,
        source: &str,
        lib: Option<&str>,
    ) -> Result<Box<dyn Reducer>, Error> {
        let language = self.language(language)?;
        let function = ReduceFunction {
            database: database.into(),
            source: source.to_owned(),
            lib: lib.map(str::to_owned),
        };
        Ok(Box::new(reduce::ExternalReducer::new(
            self.pool.clone(),
            language,
            function,
        )))
    }

    /// Calls design functions of a database. Serves design documents of this language only,
    /// whatever they say themselves.
    ///
    /// # Errors
    /// [`Error::UnknownLanguage`].
    pub fn designs(&self, database: &str, language: &str) -> Result<Box<dyn Designs>, Error> {
        let language = self.language(language)?;
        Ok(Box::new(designs::ExternalDesigns::new(
            self.pool.clone(),
            database,
            language,
        )))
    }

    /// Checks that a map or reduce function compiles.
    ///
    /// # Errors
    /// [`Error::Compile`] when it does not; all others when that cannot be determined.
    pub fn check(&self, language: &str, source: &str) -> Result<(), Error> {
        let language = self.language(language)?;
        let mut lease = prepare(&self.pool, &language, |_| 0, |_| Ok(()))?;
        let told = add_fun(lease.process(), source);
        lease.process().taught = Taught::Unknown;
        lease.done();
        told
    }

    fn language(&self, language: &str) -> Result<String, Error> {
        if self.has(language) {
            Ok(language.to_ascii_lowercase())
        } else {
            Err(Error::UnknownLanguage(language.to_owned()))
        }
    }
}

/// Returns a process whose state has a rank above 0, preferably 2 (it knows everything needed); or
/// else one that is reset and then prepared by `teach`.
fn prepare(
    pool: &Arc<Pool>,
    language: &str,
    rank: impl Fn(&Taught) -> u8,
    teach: impl Fn(&mut Process) -> Result<(), Error>,
) -> Result<Lease, Error> {
    loop {
        let mut lease = pool.lease(language, &rank)?;
        let is_new = lease.is_new;
        let process = lease.process();
        let known = rank(&process.taught);
        if process.designs_taught >= DESIGNS_MAX && known < 2 {
            process.is_spent = true;
            continue;
        }
        if (process.is_suspect || (known == 0 && process.taught != Taught::Nothing))
            && let Err(error) = process.reset()
        {
            // A bad state left by an earlier user is not this caller's fault.
            if is_new {
                return Err(error);
            }
            continue;
        }
        if rank(&process.taught) > 0 {
            return Ok(lease);
        }
        process.taught = Taught::Unknown;
        if let Err(error) = teach(process) {
            lease.done();
            return Err(error);
        }
        return Ok(lease);
    }
}

fn add_lib(process: &mut Process, lib: Option<&str>) -> Result<(), Error> {
    let Some(lib) = lib else { return Ok(()) };
    let mut command = command_start("add_lib", &[]);
    command.extend_from_slice(lib.as_bytes());
    command.push(b']');
    process.tell(&command)
}

fn add_fun(process: &mut Process, source: &str) -> Result<(), Error> {
    let mut command = command_start("add_fun", &[source]);
    command.pop();
    command.push(b']');
    process.tell(&command)
}
