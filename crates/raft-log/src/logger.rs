//! The library's log lines, which go to `tracing`.

use slog::{Drain, Level, Logger, Never, OwnedKVList, Record};

struct ToTracing;

impl Drain for ToTracing {
    type Ok = ();
    type Err = Never;

    fn log(&self, record: &Record<'_>, _: &OwnedKVList) -> Result<(), Never> {
        match record.level() {
            Level::Critical | Level::Error => tracing::error!(target: "raft", "{}", record.msg()),
            Level::Warning => tracing::warn!(target: "raft", "{}", record.msg()),
            // Each vote and each step of an election is an information for the library.
            _ => tracing::trace!(target: "raft", "{}", record.msg()),
        }
        Ok(())
    }
}

/// Returns a logger for the library.
pub(crate) fn logger() -> Logger {
    Logger::root(ToTracing, slog::o!())
}
