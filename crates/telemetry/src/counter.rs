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
