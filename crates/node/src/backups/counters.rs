//! Counters of backups, since the process started.

use telemetry::Counter;

/// Successful backups to targets.
pub static MADE: Counter = Counter::new();
/// Backups to targets that failed, each time.
pub static FAILED: Counter = Counter::new();
/// Bytes copied by successful backups.
pub static COPIED_BYTES: Counter = Counter::new();
