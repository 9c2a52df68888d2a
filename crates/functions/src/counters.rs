//! Counters of this crate, since the process started.

use telemetry::Counter;

/// Worker processes started.
pub static PROCESS_STARTS: Counter = Counter::new();
/// Worker processes that ended normally.
pub static PROCESS_ENDS: Counter = Counter::new();
/// Worker processes that failed or exceeded their time, and were killed.
pub static PROCESS_FAILURES: Counter = Counter::new();
