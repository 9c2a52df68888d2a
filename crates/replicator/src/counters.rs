//! Counters of this crate, since the process started.

use telemetry::Counter;

/// Jobs added to the scheduler.
pub static JOBS_ADDED: Counter = Counter::new();
/// Starts of jobs.
pub static JOBS_STARTED: Counter = Counter::new();
/// Jobs stopped to make room for others, or cancelled.
pub static JOBS_STOPPED: Counter = Counter::new();
/// Failures of jobs.
pub static JOBS_CRASHED: Counter = Counter::new();
/// Jobs removed from the scheduler.
pub static JOBS_REMOVED: Counter = Counter::new();
/// Checkpoints written.
pub static CHECKPOINTS: Counter = Counter::new();
/// Checkpoints that could not be written.
pub static CHECKPOINT_FAILURES: Counter = Counter::new();
/// Requests that `[replicator] connect_to` sends to another address.
pub static CONNECT_TO_APPLIED: Counter = Counter::new();
/// Requests to other servers.
pub static REQUESTS: Counter = Counter::new();
/// Requests that were answered, except with a server error.
pub static RESPONSES: Counter = Counter::new();
/// Requests that were not answered, or with a server error.
pub static REQUEST_FAILURES: Counter = Counter::new();
