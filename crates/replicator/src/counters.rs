//! What is counted in this crate, since the process started.

use telemetry::Counter;

/// Jobs that were given to the scheduler.
pub static JOBS_ADDED: Counter = Counter::new();
/// Jobs that it started, each time.
pub static JOBS_STARTED: Counter = Counter::new();
/// Jobs that it stopped for others, or that were ended.
pub static JOBS_STOPPED: Counter = Counter::new();
/// Jobs that failed, each time.
pub static JOBS_CRASHED: Counter = Counter::new();
/// Jobs that were taken from the scheduler.
pub static JOBS_REMOVED: Counter = Counter::new();
/// Checkpoints that were written.
pub static CHECKPOINTS: Counter = Counter::new();
/// Checkpoints that could not be written.
pub static CHECKPOINT_FAILURES: Counter = Counter::new();
/// Requests to other servers.
pub static REQUESTS: Counter = Counter::new();
/// Requests that got an answer, but for those of a server that fails.
pub static RESPONSES: Counter = Counter::new();
/// Requests that got no answer, or one of the server's failures.
pub static REQUEST_FAILURES: Counter = Counter::new();
