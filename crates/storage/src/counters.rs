//! Counters of this crate, since the process started.

use std::sync::atomic::AtomicU64;

use telemetry::{Counter, Striped, Times};

/// Durations of writes that waited for the disk.
pub static SYNCS: Times = Times::new();
/// How long batches occupied the writer, which serves all databases, without the time of the disk.
pub static COMMIT_HOLDS: Times = Times::new();
/// Sampled reads of single keys that found all needed blocks in the block cache.
pub static SAMPLED_READS_CACHED: Counter = Counter::new();
/// Sampled reads of single keys that had to read a block.
pub static SAMPLED_READS_UNCACHED: Counter = Counter::new();
/// Requested documents that were cached in full.
pub static DOCUMENTS_FOUND: Striped = Striped::new();
/// Documents that were read from the engine.
pub static DOCUMENTS_READ: Striped = Striped::new();
/// Errors after which the engine refused all writes.
pub static ENGINE_ERRORS: Counter = Counter::new();
/// The last time at which the engine refused writes because of one, in seconds since 1970.
pub static LAST_ENGINE_ERROR_S: AtomicU64 = AtomicU64::new(0);
/// How often it took writes again.
pub static RESUMES: Counter = Counter::new();
/// Compactions that failed and were retried.
pub static COMPACTION_FAILURES: Counter = Counter::new();
