//! What is counted in this crate, since the process started.

use telemetry::Counter;

/// Worker processes that were started.
pub static PROCESS_STARTS: Counter = Counter::new();
/// Worker processes that were ended in order.
pub static PROCESS_ENDS: Counter = Counter::new();
/// Worker processes that failed or overran their time, and were killed.
pub static PROCESS_FAILURES: Counter = Counter::new();
