//! What is counted in this crate, since the process started.

use telemetry::{Counter, Times};

/// How long writes took that waited for the disk.
pub static SYNCS: Times = Times::new();
/// Of a sample of reads of single keys: those that found all blocks of files that they wanted in the block cache.
pub static SAMPLED_READS_CACHED: Counter = Counter::new();
/// Those that had to read a block.
pub static SAMPLED_READS_UNCACHED: Counter = Counter::new();
