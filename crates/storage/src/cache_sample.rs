//! How often reads find their blocks in the block cache: looked at for a few of them, since the engine's own statistics would
//! cost every read.

use std::cell::Cell;

use rocksdb::perf::{PerfContext, PerfMetric};

use crate::counters::{SAMPLED_READS_CACHED, SAMPLED_READS_UNCACHED};

/// Of so many reads of a thread one is looked at.
const ONE_OF: u16 = 256;

/// What the engine had counted on this thread when a read began. It counts blocks unless it is told not to.
pub(crate) struct CacheSample {
    context: PerfContext,
    found: u64,
    read: u64,
}

impl CacheSample {
    /// Begins with a read, if it is one that is looked at.
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

    /// The read is done.
    #[cold]
    pub fn end(self) {
        let since = |metric, before| self.context.metric(metric) > before;
        // Filters and indexes are blocks too, so that blocks alone would say little. What was in memory wants none.
        if since(PerfMetric::BlockReadCount, self.read) {
            SAMPLED_READS_UNCACHED.count();
        } else if since(PerfMetric::BlockCacheHitCount, self.found) {
            SAMPLED_READS_CACHED.count();
        }
    }
}
