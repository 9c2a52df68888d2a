//! Samples how often reads find their blocks in the block cache: only some reads, since the
//! engine's own statistics would slow down every read.

use std::cell::Cell;

use rocksdb::perf::{PerfContext, PerfMetric};

use crate::counters::{SAMPLED_READS_CACHED, SAMPLED_READS_UNCACHED};

/// One read of a thread in this many is sampled.
const ONE_OF: u16 = 256;

/// The engine's counters on this thread when a read started. It counts blocks unless that is
/// disabled.
pub(crate) struct CacheSample {
    context: PerfContext,
    found: u64,
    read: u64,
}

impl CacheSample {
    /// Starts with a read, if it is sampled.
    #[inline]
    pub fn begin() -> Option<CacheSample> {
        thread_local! {
            static READS: Cell<u16> = const { Cell::new(0) };
        }
        let n = READS.with(|reads| {
            let n = reads.get().wrapping_add(1);
            reads.set(n);
            n
        });
        n.is_multiple_of(ONE_OF).then(CacheSample::of_this_thread)
    }

    #[cold]
    fn of_this_thread() -> CacheSample {
        let context = PerfContext::default();
        CacheSample {
            found: context.metric(PerfMetric::BlockCacheHitCount),
            read: context.metric(PerfMetric::BlockReadCount),
            context,
        }
    }

    /// Ends with the read.
    #[cold]
    pub fn end(self) {
        let since = |metric, before| self.context.metric(metric) > before;
        // Filters and indexes are blocks too, so that hits alone would say little. A read from
        // memtables needs no block.
        if since(PerfMetric::BlockReadCount, self.read) {
            SAMPLED_READS_UNCACHED.count();
        } else if since(PerfMetric::BlockCacheHitCount, self.found) {
            SAMPLED_READS_CACHED.count();
        }
    }
}
