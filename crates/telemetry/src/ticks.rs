//! The time that clocks count by.
//!
//! Where the kernel itself trusts the time stamp counter, it is the same on all processors and does not stop: reading it takes
//! 8 ns, asking the kernel's clock 19 (measured on a virtual machine of two cores). Elsewhere the kernel's clock is asked.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// A point in time, for measuring what takes microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tick(pub(crate) u64);

impl Tick {
    /// Now.
    #[inline]
    pub fn now() -> Tick {
        Tick(now())
    }

    /// Microseconds since then.
    #[inline]
    pub fn elapsed_us(self) -> u64 {
        Tick::now().us_since(self)
    }

    /// Microseconds between an earlier point and this one.
    #[inline]
    pub fn us_since(self, earlier: Tick) -> u64 {
        (self.0.saturating_sub(earlier.0) as f64 * nanoseconds_of_one(self.0) * 1e-3) as u64
    }
}

static BEGINNING: LazyLock<Beginning> = LazyLock::new(Beginning::new);

struct Beginning {
    at: Instant,
    counter: u64,
    is_counted: bool,
    /// Nanoseconds of a tick, as the bits of an `f64`.
    one: AtomicU64,
    /// When that is to be looked at again, in ticks.
    next: AtomicU64,
}

/// How long the counter is watched when it is first asked.
const FIRST_LOOK: Duration = Duration::from_millis(1);
/// Once it was watched for so long, what a tick is stays: what was told would change with it, and a machine that slept meanwhile
/// would make it wrong.
const LAST_LOOK: Duration = Duration::from_secs(1);

impl Beginning {
    fn new() -> Beginning {
        let is_counted = counter_is_trusted();
        let beginning = Beginning {
            at: Instant::now(),
            counter: counter(),
            is_counted,
            one: AtomicU64::new(1f64.to_bits()),
            next: AtomicU64::new(if is_counted { 0 } else { u64::MAX }),
        };
        if is_counted {
            std::thread::sleep(FIRST_LOOK);
            beginning.look();
        }
        beginning
    }

    /// Compares the counter with the kernel's clock, and again when twice the time has passed, within the first second or so.
    #[cold]
    fn look(&self) {
        let (now, elapsed) = (counter(), self.at.elapsed());
        let ticks = now.wrapping_sub(self.counter).max(1);
        let one = elapsed.as_nanos() as f64 / ticks as f64;
        let last = f64::from_bits(self.one.load(Relaxed));
        let is_first = self.next.load(Relaxed) == 0;
        // What differs by much was measured across something else, sleep perhaps.
        if is_first || (one / last - 1.0).abs() < 0.05 {
            self.one.store(one.to_bits(), Relaxed);
        }
        let next = match elapsed < LAST_LOOK {
            true => now.saturating_add(ticks),
            false => u64::MAX,
        };
        self.next.store(next, Relaxed);
    }
}

/// Where the kernel says which clock it uses.
const CLOCK_SOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";

fn counter_is_trusted() -> bool {
    cfg!(target_arch = "x86_64")
        && std::fs::read_to_string(CLOCK_SOURCE).is_ok_and(|name| name.trim() == "tsc")
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn counter() -> u64 {
    // SAFETY: every x86-64 processor has the instruction. A kernel may forbid it (PR_SET_TSC), which none does unless a program
    // asks for it, for itself.
    unsafe { core::arch::x86_64::_rdtsc() }
}

#[cfg(not(target_arch = "x86_64"))]
fn counter() -> u64 {
    0
}

/// The time in ticks; how long one is, [`length`] says.
#[inline]
pub(crate) fn now() -> u64 {
    let beginning = &*BEGINNING;
    match beginning.is_counted {
        true => counter(),
        false => beginning.at.elapsed().as_nanos() as u64,
    }
}

/// How many nanoseconds a tick takes, as of tick `now`.
#[inline]
fn nanoseconds_of_one(now: u64) -> f64 {
    let beginning = &*BEGINNING;
    if now >= beginning.next.load(Relaxed) {
        beginning.look();
    }
    f64::from_bits(beginning.one.load(Relaxed))
}

/// How long so many ticks take.
pub(crate) fn length(ticks: u64) -> Duration {
    Duration::from_nanos((ticks as f64 * nanoseconds_of_one(now())) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_time() {
        let (ticks, at) = (Tick::now(), Instant::now());
        std::thread::sleep(Duration::from_millis(60));
        let (passed, elapsed) = (ticks.elapsed_us(), at.elapsed().as_micros());
        // The scheduler may come between the two readings: the tolerance is wide, the unit is what is tested.
        let ratio = passed as f64 / elapsed as f64;
        assert!((0.5..2.0).contains(&ratio), "{passed} of {elapsed}");
    }

    #[test]
    fn nothing_passes_backwards() {
        let now = Tick::now();
        assert_eq!(now.us_since(Tick(u64::MAX)), 0);
        assert!(Tick::now() >= now);
    }
}
