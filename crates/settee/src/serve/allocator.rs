//! The allocator: how soon unused memory returns to the system.

use tikv_jemalloc_ctl::thread::{ThreadLocal, allocatedp, deallocatedp};
use tikv_jemalloc_ctl::{Access, AsName};

/// With less memory than this, unused memory returns to the system soon, so that the memory of one
/// large request is available for the next. Otherwise it is kept for jemalloc's ten seconds:
/// without that, bulks of 10,000 documents were 13 % slower, and bulks of 1,000 5 %, since the
/// system clears each page that they take again.
const LITTLE_BYTES: u64 = 4 << 30;
/// Time after which unused memory returns to the system, in milliseconds.
const SOON_MS: isize = 250;

/// Allocated memory, in bytes. The process has more, which is kept for the next allocations, or too
/// fragmented for them.
pub fn allocated_bytes() -> u64 {
    // The counts are as of the last call of this.
    if let Err(error) = tikv_jemalloc_ctl::epoch::advance() {
        tracing::debug!(%error, "the allocator reports no statistics");
    }
    let allocated = tikv_jemalloc_ctl::stats::allocated::read().unwrap_or(0);
    allocated.saturating_sub(cached_bytes()) as u64
}

/// Freed memory that threads keep for their next allocations, in bytes: jemalloc counts it as
/// allocated. An idle thread keeps up to several MiB.
fn cached_bytes() -> usize {
    // 4096 (`MALLCTL_ARENAS_ALL`) is the sum of all arenas.
    b"stats.arenas.4096.tcache_bytes\0"
        .name()
        .read()
        .unwrap_or(0)
}

/// Memory that the calling thread has allocated less what it has freed, in bytes: only differences
/// between two calls have a meaning.
pub fn bytes_of_thread() -> i64 {
    thread_local! {
        /// jemalloc's counters of this thread's allocations and frees.
        static COUNTERS: Option<(ThreadLocal<u64>, ThreadLocal<u64>)> =
            allocatedp::read().ok().zip(deallocatedp::read().ok());
    }
    COUNTERS.with(|counters| {
        let difference = |(allocated, freed): &(ThreadLocal<u64>, ThreadLocal<u64>)| {
            allocated.get().wrapping_sub(freed.get()).cast_signed()
        };
        counters.as_ref().map_or(0, difference)
    })
}

/// Makes free memory return to the system as soon as a limit in bytes requires it.
pub fn keep_within(limit: u64) {
    if limit < LITTLE_BYTES {
        give_back_soon();
    }
}

/// Settings for a worker process for users' functions: they are many, and idle between calls.
pub fn of_worker() {
    // The worker soon forbids itself new threads. jemalloc's thread that returns memory would then
    // retry for ever, without a pause, to start the next one, unless it runs as root.
    if let Err(error) = tikv_jemalloc_ctl::max_background_threads::write(1) {
        tracing::debug!(%error, "the allocator keeps its threads");
    }
    give_back_soon();
}

/// Makes free memory return to the system soon.
fn give_back_soon() {
    // The settings of future threads, and of existing ones.
    let arenas: u32 = b"arenas.narenas\0".name().read().unwrap_or(0);
    let of_all = "arenas.dirty_decay_ms\0".to_owned();
    let of_each = (0..arenas).map(|n| format!("arena.{n}.dirty_decay_ms\0"));
    for name in [of_all].into_iter().chain(of_each) {
        // One that was not made yet refuses, and takes what holds for all when it is made.
        if let Err(error) = name.as_bytes().name().write(SOON_MS) {
            tracing::debug!(%error, name, "the allocator keeps its ways");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{allocated_bytes, cached_bytes};

    /// Short enough for the cache of a thread.
    const BLOCK_BYTES: usize = 28 << 10;
    const BLOCKS: usize = 16;

    #[test]
    fn freed_memory_in_the_cache_of_a_thread_is_not_allocated() {
        let (allocated, cached) = (allocated_bytes(), cached_bytes());
        let blocks: Vec<Vec<u8>> = (0..BLOCKS)
            .map(|_| Vec::with_capacity(BLOCK_BYTES))
            .collect();
        drop(std::hint::black_box(blocks));
        let grown = allocated_bytes().saturating_sub(allocated);
        let newly_cached = cached_bytes().saturating_sub(cached);
        let half = BLOCKS * BLOCK_BYTES / 2;
        assert!(newly_cached > half, "{newly_cached}");
        assert!(grown < half as u64, "{grown}");
    }
}
