//! Counters of backups, since the process started.

use telemetry::Counter;

/// Backups to targets that were made.
pub static MADE: Counter = Counter::new();
/// Backups to targets that failed, each time.
pub static FAILED: Counter = Counter::new();
/// Bytes that were copied for those that were made.
pub static COPIED_BYTES: Counter = Counter::new();
