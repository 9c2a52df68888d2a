//! Counts of automatic purges, since the process started.

use telemetry::Counter;

/// Rounds that were started.
pub static STARTS: Counter = Counter::new();
/// Rounds that went through all databases.
pub static COMPLETIONS: Counter = Counter::new();
/// Databases that were opened.
pub static OPENED: Counter = Counter::new();
/// Revisions that were purged.
pub static PURGED: Counter = Counter::new();
