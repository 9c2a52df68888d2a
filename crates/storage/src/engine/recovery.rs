//! Recovery from errors after which the engine stops writes.
//!
//! The engine stops all writes when it cannot write a file: its log, a table file, its list of
//! files. Descriptors become available, disks get free space, and a disk that failed once may not
//! fail again. So a thread checks whether the cause is gone, and resumes the engine then. The
//! engine flushes everything in memory to files before it accepts writes again, so nothing depends
//! on a log whose sync failed.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::{Condvar, Mutex};
use rocksdb::WriteBatch;

use super::Engine;
use crate::Error;
use crate::counters::{COMPACTION_FAILURES, ENGINE_ERRORS, LAST_ENGINE_ERROR_S, RESUMES};
use crate::disk;
use crate::keys::meta::CONTENTS_COUNTED;
use crate::keyspace::Keyspace;
use crate::native::{self, ErrorSink, Severity};

/// Delay of the first attempt after an error, and interval of checks whether the cause is gone.
const FIRST_AFTER: Duration = Duration::from_millis(50);
const CHECK_EVERY: Duration = Duration::from_millis(250);
/// Delay after an attempt that failed although the check had passed: at first, and at most.
const AGAIN_AFTER: Duration = Duration::from_millis(500);
const AGAIN_AFTER_MAX: Duration = Duration::from_secs(5);
/// Minimum interval between log messages with the same reason.
const LOG_EVERY: Duration = Duration::from_secs(60);

/// Minimum requirements of an attempt: descriptors, and bytes of disk beyond what is in memory.
const DESCRIPTORS_MIN: usize = 16;
const FREE_BYTES_MIN: u64 = 4 << 20;
const PROBE_BYTES: usize = 64 << 10;

/// The reason why all writes fail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteFailure {
    /// The cause in words that may be shown to anyone.
    pub cause: String,
    /// The engine's message, which may name files of the server.
    pub reason: String,
    /// Since when, if known.
    pub since: Option<SystemTime>,
    /// Whether they fail until the store is reopened; otherwise until the cause is gone.
    pub needs_restart: bool,
}

impl WriteFailure {
    /// Creates a failure without a message of the engine.
    pub(crate) fn of(cause: &str, reason: String, needs_restart: bool) -> WriteFailure {
        WriteFailure {
            cause: cause.to_owned(),
            reason,
            since: None,
            needs_restart,
        }
    }

    /// Converts an error of the engine, whose message ends with the system's, after a file's name.
    fn of_engine(text: &str) -> WriteFailure {
        let of_system = text
            .rsplit(": ")
            .next()
            .filter(|words| !words.contains('/'));
        let cause = match of_system {
            Some(words) => format!("the storage engine failed ({words})"),
            None => "the storage engine failed".to_owned(),
        };
        WriteFailure {
            since: Some(SystemTime::now()),
            ..WriteFailure::of(&cause, text.to_owned(), false)
        }
    }
}

/// Whether the engine accepts writes.
#[derive(Default)]
pub(crate) struct Health {
    /// Whether there is a failure, for readers that need only that.
    is_failing: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    failure: Option<WriteFailure>,
    /// Number of errors so far. One that occurs while the engine is resumed counts after it.
    errors: u64,
    is_closing: bool,
}

impl Health {
    pub fn is_failing(&self) -> bool {
        self.is_failing.load(Relaxed)
    }

    pub fn failure(&self) -> Option<WriteFailure> {
        match self.is_failing() {
            true => self.state.lock().failure.clone(),
            false => None,
        }
    }

    /// Ends the thread. Errors are not reported any more.
    pub fn close(&self) {
        self.state.lock().is_closing = true;
        self.changed.notify_all();
    }

    /// Waits for a recoverable failure, then for a pause. Returns the number of errors so far;
    /// `None` when the store is closed.
    fn wait(&self, pause: Duration) -> Option<u64> {
        let mut state = self.state.lock();
        let is_recoverable =
            |state: &State| state.failure.as_ref().is_some_and(|f| !f.needs_restart);
        while !state.is_closing && !is_recoverable(&state) {
            self.changed.wait(&mut state);
        }
        let until = Instant::now() + pause;
        while !state.is_closing && !self.changed.wait_until(&mut state, until).timed_out() {}
        (!state.is_closing).then_some(state.errors)
    }

    /// Records that the engine accepts writes, unless there was another error since there were
    /// `errors`. Returns the duration of the failure.
    fn note_resumed(&self, errors: u64) -> Option<Duration> {
        let mut state = self.state.lock();
        if state.errors != errors {
            return None;
        }
        let failure = state.failure.take()?;
        self.is_failing.store(false, Relaxed);
        // Writes were refused until now, and the last error may be long ago.
        note_time();
        RESUMES.count();
        Some(failure.since?.elapsed().unwrap_or_default())
    }
}

/// Records the present as the last time at which the engine refused writes.
fn note_time() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    LAST_ENGINE_ERROR_S.store(now.map_or(0, |now| now.as_secs()), Relaxed);
}

impl ErrorSink for Health {
    fn report(&self, severity: Severity, text: &str) {
        let mut state = self.state.lock();
        if state.is_closing {
            return;
        }
        if severity == Severity::Compaction {
            COMPACTION_FAILURES.count();
            tracing::error!(error = text, "a compaction failed; it is retried");
            return;
        }
        ENGINE_ERRORS.count();
        note_time();
        state.errors += 1;
        self.is_failing.store(true, Relaxed);
        let is_first = state.failure.is_none();
        let failure = state
            .failure
            .get_or_insert_with(|| WriteFailure::of_engine(text));
        if severity == Severity::Broken && !failure.needs_restart {
            *failure = WriteFailure {
                since: failure.since,
                needs_restart: true,
                ..WriteFailure::of_engine(text)
            };
            tracing::error!(
                error = text,
                "the storage engine failed: all writes are refused until the server is restarted"
            );
        } else if is_first {
            tracing::error!(
                error = text,
                "the storage engine failed: all writes are refused until the cause is removed"
            );
        }
        self.changed.notify_all();
    }
}

/// Starts the thread that resumes the engine after errors. It ends with the engine.
pub(super) fn start(engine: &Arc<Engine>) -> io::Result<()> {
    let (health, engine) = (engine.health.clone(), Arc::downgrade(engine));
    let thread = std::thread::Builder::new().name("recover".into());
    thread.spawn(move || run(&health, &engine)).map(drop)
}

fn run(health: &Health, engine: &Weak<Engine>) {
    let mut pause = FIRST_AFTER;
    let mut logged: Option<(String, Instant)> = None;
    while let Some(errors) = health.wait(pause) {
        let Some(engine) = engine.upgrade() else {
            return;
        };
        let failed = match engine.check_resources() {
            Err(e) => {
                pause = CHECK_EVERY;
                e.to_string()
            }
            Ok(()) => match engine.resume() {
                Ok(()) => {
                    if let Some(time) = health.note_resumed(errors) {
                        tracing::warn!(?time, "the storage engine accepts writes again");
                    }
                    (pause, logged) = (FIRST_AFTER, None);
                    continue;
                }
                Err(e) => {
                    pause = (2 * pause).clamp(AGAIN_AFTER, AGAIN_AFTER_MAX);
                    e
                }
            },
        };
        let is_new = |(text, at): &(String, Instant)| *text != failed || at.elapsed() > LOG_EVERY;
        if logged.as_ref().is_none_or(is_new) {
            tracing::error!(error = failed, "writes are still refused");
            logged = Some((failed, Instant::now()));
        }
    }
}

/// A temporary file.
struct Probe(PathBuf);

impl Drop for Probe {
    fn drop(&mut self) {
        // The next probe overwrites it, and the next start removes it.
        let _ = std::fs::remove_file(&self.0);
    }
}

impl Engine {
    /// Checks whether the engine has what it needs to resume: each attempt is expensive, and leaks
    /// some memory when it fails.
    fn check_resources(&self) -> io::Result<()> {
        let open = |_| File::open(&self.path);
        let directories = (0..DESCRIPTORS_MIN)
            .map(open)
            .collect::<Result<Vec<_>, _>>()?;
        if let Some((free_bytes, _)) = disk::space(&self.path)
            && free_bytes < self.memtable_bytes() + FREE_BYTES_MIN
        {
            return Err(io::ErrorKind::StorageFull.into());
        }
        drop(directories);
        let probe = Probe(self.ingest_directory().join("probe"));
        let mut file = File::create(&probe.0)?;
        file.write_all(&[0; PROBE_BYTES])?;
        file.sync_all()
    }

    /// Resumes the engine, and checks whether it works: only a write detects a log that cannot be
    /// written.
    fn resume(&self) -> Result<(), String> {
        native::resume(&self.db)?;
        let written = || -> Result<(), Error> {
            let (family, mut batch) = (self.cf(Keyspace::Meta), WriteBatch::default());
            // A row that is never changed, as this would undo a change that is committed meanwhile.
            if let Some(value) = self.db.get_pinned_cf(family, CONTENTS_COUNTED)? {
                batch.put_cf(family, CONTENTS_COUNTED, &value);
            }
            self.write(batch, true)
        };
        written().map_err(|e| e.to_string())
    }

    /// Returns why the engine refuses all writes, if it does.
    pub(crate) fn write_failure(&self) -> Option<WriteFailure> {
        self.health.failure()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cause_names_no_file() {
        let cause = |text| WriteFailure::of_engine(text).cause;
        let text = "IO error: While open a file for appending: /data/store/000123.log: Too many open files";
        assert_eq!(
            cause(text),
            "the storage engine failed (Too many open files)"
        );
        assert_eq!(
            cause("Corruption: /data/store/000123.sst"),
            "the storage engine failed"
        );
    }

    #[test]
    fn an_error_while_the_engine_is_resumed_counts_after_it() {
        let health = Health::default();
        health.report(Severity::Stopped, "no room");
        assert!(health.is_failing());
        let errors = health.wait(Duration::ZERO).expect("it is open");
        health.report(Severity::Stopped, "no room again");
        assert_eq!(health.note_resumed(errors), None);
        let failure = health.failure().expect("writes fail");
        assert_eq!(
            (&*failure.reason, failure.needs_restart),
            ("no room", false)
        );
        let errors = health.wait(Duration::ZERO).expect("it is open");
        assert!(health.note_resumed(errors).is_some());
        assert_eq!((health.is_failing(), health.failure()), (false, None));
    }

    #[test]
    fn what_only_a_restart_ends_is_said_and_not_tried() {
        let health = Health::default();
        health.report(Severity::Compaction, "a read failed");
        assert!(!health.is_failing(), "writes go on without a compaction");
        health.report(Severity::Stopped, "no room");
        health.report(Severity::Broken, "corruption");
        health.report(Severity::Stopped, "no room");
        let failure = health.failure().expect("writes fail");
        assert_eq!(
            (&*failure.reason, failure.needs_restart),
            ("corruption", true)
        );
        health.close();
        assert_eq!(health.wait(Duration::ZERO), None);
    }
}
