//! Counts of expired documents, since the process started.

use telemetry::Counter;

/// Expired documents that were deleted.
pub static DELETED: Counter = Counter::new();
/// Expired documents that were purged.
pub static PURGED: Counter = Counter::new();
