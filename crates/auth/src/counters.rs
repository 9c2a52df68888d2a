//! What is counted in this crate, since the process started.

use telemetry::Counter;

/// Passwords and headers that were not in the cache, and had to be verified.
pub static CACHE_MISSES: Counter = Counter::new();
