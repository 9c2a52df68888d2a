//! Numbers that only grow, and distributions. Each crate has its own as statics, since a process is
//! one server.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use hdrhistogram::Histogram;
use parking_lot::Mutex;

/// A number that only grows.
pub struct Counter(AtomicU64);

impl Counter {
    /// Starts at 0.
    #[expect(
        clippy::new_without_default,
        reason = "a constant function, for statics"
    )]
    pub const fn new() -> Counter {
        Counter(AtomicU64::new(0))
    }

    /// One more.
    #[inline]
    pub fn count(&self) {
        self.add(1);
    }

    /// Adds `n`.
    #[inline]
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Relaxed);
    }

    /// Returns the number so far.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Longer times count as this, in microseconds: an hour.
const US_MAX: u64 = 3_600_000_000;

/// Returns an empty distribution of microseconds, up to an hour, of two digits.
pub fn distribution() -> Histogram<u64> {
    // The bounds are valid: 1 <= low, high >= 2 * low, 2 digits.
    Histogram::new_with_bounds(1, US_MAX, 2).expect("valid histogram bounds")
}

/// The distribution of durations.
pub struct Times(LazyLock<Mutex<Histogram<u64>>>);

impl Times {
    /// Nothing yet.
    #[expect(
        clippy::new_without_default,
        reason = "a constant function, for statics"
    )]
    pub const fn new() -> Times {
        Times(LazyLock::new(|| Mutex::new(distribution())))
    }

    /// Records a duration. Not for frequent use by many threads: they contend for a lock.
    pub fn record(&self, time: Duration) {
        let us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.0.lock().saturating_record(us.max(1));
    }

    /// All times so far, in microseconds.
    pub fn snapshot(&self) -> Histogram<u64> {
        self.0.lock().clone()
    }
}

/// Upper bounds of the buckets of [`Durations`], in microseconds.
pub const BOUNDS_US: [u64; 17] = [
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000, 2_500_000, 5_000_000, 10_000_000, 60_000_000,
];

/// The distribution of frequent durations, by [`BOUNDS_US`]: recording one costs two atomic
/// additions.
pub struct Durations {
    /// Those up to each bound that exceed the bound before it, and those beyond the last one.
    counts: [AtomicU64; BOUNDS_US.len() + 1],
    sum_us: AtomicU64,
}

impl Durations {
    /// Nothing yet.
    #[expect(
        clippy::new_without_default,
        reason = "a constant function, for statics"
    )]
    pub const fn new() -> Durations {
        Durations {
            counts: [const { AtomicU64::new(0) }; BOUNDS_US.len() + 1],
            sum_us: AtomicU64::new(0),
        }
    }

    /// Records a duration.
    #[inline]
    pub fn record(&self, time: Duration) {
        let us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let bucket = BOUNDS_US.partition_point(|bound| *bound < us);
        self.counts[bucket].fetch_add(1, Relaxed);
        self.sum_us.fetch_add(us, Relaxed);
    }

    /// Returns the number of durations up to each bound, the number of all, and their sum in
    /// microseconds.
    pub fn snapshot(&self) -> ([u64; BOUNDS_US.len()], u64, u64) {
        let mut up_to = [0; BOUNDS_US.len()];
        let mut all = 0;
        for (up_to, count) in up_to.iter_mut().zip(&self.counts) {
            all += count.load(Relaxed);
            *up_to = all;
        }
        all += self.counts[BOUNDS_US.len()].load(Relaxed);
        (up_to, all, self.sum_us.load(Relaxed))
    }
}

/// Parts of a [`Striped`] counter.
const STRIPES: usize = 8;

/// A growing number that many threads count frequently: each usually has a stripe of its own.
pub struct Striped([Stripe; STRIPES]);

#[repr(align(128))]
struct Stripe(AtomicU64);

impl Striped {
    /// Starts at 0.
    #[expect(
        clippy::new_without_default,
        reason = "a constant function, for statics"
    )]
    pub const fn new() -> Striped {
        Striped([const { Stripe(AtomicU64::new(0)) }; STRIPES])
    }

    /// One more.
    #[inline]
    pub fn count(&self) {
        self.0[crate::part_of(STRIPES)].0.fetch_add(1, Relaxed);
    }

    /// Returns the number so far.
    pub fn get(&self) -> u64 {
        self.0.iter().map(|part| part.0.load(Relaxed)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_count_up_to_their_bounds() {
        let of = Durations::new();
        for us in [100, 101, 900, 1_000, 61_000_000] {
            of.record(Duration::from_micros(us));
        }
        let (up_to, all, sum_us) = of.snapshot();
        assert_eq!(up_to[..5], [1, 2, 2, 4, 4]);
        assert_eq!((up_to[16], all, sum_us), (4, 5, 61_002_101));
    }
}
