//! Counters of this crate since the process started.

use telemetry::{Counter, Striped};

/// Passwords that were found in the cache.
pub static CACHE_HITS: Striped = Striped::new();
/// Passwords that had to be verified.
pub static CACHE_MISSES: Counter = Counter::new();
