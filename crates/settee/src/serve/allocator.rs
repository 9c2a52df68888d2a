//! The allocator: how soon memory that nobody uses goes back to the system.

use tikv_jemalloc_ctl::thread::{ThreadLocal, allocatedp, deallocatedp};
use tikv_jemalloc_ctl::{Access, AsName};

/// Where there is less memory than this, it goes back at once, for what one large request took is to be there for the next.
/// Elsewhere it stays for jemalloc's ten seconds: without that, bulks of 10,000 documents were 13 % slower, and bulks of 1,000 5 %,
/// as what they take again is cleared page by page.
const LITTLE_BYTES: u64 = 4 << 30;
/// At once, in milliseconds.
const SOON_MS: isize = 250;

/// What is given out, in bytes: what the process has besides is kept for the next who asks, or cut too small for them.
pub fn allocated_bytes() -> u64 {
    // The counts are as of the last call of this.
    if let Err(error) = tikv_jemalloc_ctl::epoch::advance() {
        tracing::debug!(%error, "the allocator reports no statistics");
    }
    tikv_jemalloc_ctl::stats::allocated::read().map_or(0, |bytes| bytes as u64)
}

/// What the calling thread has allocated less what it has freed, in bytes: only differences between two calls mean something.
pub fn bytes_of_thread() -> i64 {
    thread_local! {
        /// Where jemalloc counts what this thread allocates and frees.
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

/// Has free memory given back as soon as a limit in bytes asks for.
pub fn keep_within(limit: u64) {
    if limit < LITTLE_BYTES {
        give_back_soon();
    }
}

/// What a worker process for users' functions needs of it: they are many, and rest between calls.
pub fn of_worker() {
    // The worker soon forbids itself more threads. The one that gives memory back would try for ever, without a pause, to start
    // the next one, where it is not root's.
    if let Err(error) = tikv_jemalloc_ctl::max_background_threads::write(1) {
        tracing::debug!(%error, "the allocator keeps its threads");
    }
    give_back_soon();
}

/// Has free memory given back at once.
fn give_back_soon() {
    // Those that threads get later, and those that are there.
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
