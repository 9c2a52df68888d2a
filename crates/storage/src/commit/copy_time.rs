//! The processor time of the copying of long batches into memory, which holds up the batches after them.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// A shorter batch is copied in less time than it takes to read the clock twice, in bytes.
const LONG_BYTES: usize = 64 << 10;

/// The write of one batch. Waits for the disk are not part of its time.
pub(super) struct BatchWrite {
    /// Processor time of this thread at the beginning, of a long batch.
    began: Option<Duration>,
}

impl BatchWrite {
    /// Begins the write of a batch of this length.
    pub fn begin(bytes: usize) -> BatchWrite {
        BatchWrite {
            began: (bytes >= LONG_BYTES).then(thread_time),
        }
    }

    /// Returns the processor time that this thread has used since.
    pub fn cpu_time(&self) -> Duration {
        let spent = |began| thread_time().saturating_sub(began);
        self.began.map_or(Duration::ZERO, spent)
    }
}

fn thread_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;

    use super::*;

    #[test]
    fn only_the_copying_of_long_batches_is_timed() {
        let [short, long] = [LONG_BYTES - 1, LONG_BYTES].map(BatchWrite::begin);
        while long.cpu_time().is_zero() {
            black_box(vec![0u8; 1 << 20]);
        }
        assert_eq!(short.cpu_time(), Duration::ZERO);
    }
}
