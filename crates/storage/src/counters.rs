//! What is counted in this crate, since the process started.

use std::sync::atomic::AtomicU64;

use telemetry::{Counter, Striped, Times};

/// How long writes took that waited for the disk.
pub static SYNCS: Times = Times::new();
/// How long batches held the thread that writes for all databases, without the time that the disk took.
pub static COMMIT_HOLDS: Times = Times::new();
/// Of a sample of reads of single keys: those that found all blocks of files that they wanted in the block cache.
pub static SAMPLED_READS_CACHED: Counter = Counter::new();
/// Those that had to read a block.
pub static SAMPLED_READS_UNCACHED: Counter = Counter::new();
/// Documents asked for that were found in memory, whole.
pub static DOCUMENTS_FOUND: Striped = Striped::new();
/// Those that the engine was asked for.
pub static DOCUMENTS_READ: Striped = Striped::new();
/// Errors of the engine for which it refused all writes.
pub static ENGINE_ERRORS: Counter = Counter::new();
/// The time of the last of these errors, in seconds since 1970.
pub static LAST_ENGINE_ERROR_S: AtomicU64 = AtomicU64::new(0);
/// How often it took writes again.
pub static RESUMES: Counter = Counter::new();
/// Compactions that failed and were tried again.
pub static COMPACTION_FAILURES: Counter = Counter::new();
