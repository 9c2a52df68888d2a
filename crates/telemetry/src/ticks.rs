//! The time base of clocks.
//!
//! Where the kernel itself trusts the time stamp counter, it is the same on all processors and does
//! not stop: reading it takes 8 ns, reading the kernel's clock 19 (measured on a virtual machine of
//! two cores). Elsewhere the kernel's clock is used.

use std::sync::LazyLock;
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

    /// Nanoseconds since then.
    #[inline]
    pub fn elapsed_ns(self) -> u64 {
        (Tick::now().0.saturating_sub(self.0) as f64 * BEGINNING.one) as u64
    }

    /// Microseconds between an earlier point and this one.
    #[inline]
    pub fn us_since(self, earlier: Tick) -> u64 {
        (self.0.saturating_sub(earlier.0) as f64 * BEGINNING.one * 1e-3) as u64
    }
}

static BEGINNING: LazyLock<Beginning> = LazyLock::new(Beginning::new);

struct Beginning {
    at: Instant,
    is_counted: bool,
    /// Nanoseconds of a tick. Constant: reported totals would change with it, and decrease.
    one: f64,
}

/// How long the counter is calibrated, once, when it is first used. The kernel's clock is accurate
/// to some 50 ns, so a tick is known to a few millionths.
const WATCHED: Duration = Duration::from_millis(10);
/// Readings of both clocks, of which the one counts that took the shortest: the scheduler may come
/// between them.
const READINGS: usize = 8;

impl Beginning {
    fn new() -> Beginning {
        let at = Instant::now();
        let is_counted = counter_is_trusted();
        let mut one = 1.0;
        if is_counted {
            let (began, first) = both();
            std::thread::sleep(WATCHED);
            let (ended, last) = both();
            let ticks = last.saturating_sub(first).max(1);
            one = (ended - began).as_nanos() as f64 / ticks as f64;
        }
        Beginning {
            at,
            is_counted,
            one,
        }
    }
}

/// Returns the kernel's clock and the counter at the same time.
fn both() -> (Instant, u64) {
    let read = || {
        let before = counter();
        let at = Instant::now();
        let after = counter();
        (after.saturating_sub(before), at, before / 2 + after / 2)
    };
    let readings = (0..READINGS).map(|_| read());
    let (_, at, counted) = readings.min_by_key(|(took, ..)| *took).unwrap_or_else(read);
    (at, counted)
}

/// The file in which the kernel reports its clock source.
const CLOCK_SOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";

fn counter_is_trusted() -> bool {
    cfg!(target_arch = "x86_64")
        && std::fs::read_to_string(CLOCK_SOURCE).is_ok_and(|name| name.trim() == "tsc")
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn counter() -> u64 {
    // SAFETY: every x86-64 processor has the instruction. A kernel may forbid it (PR_SET_TSC),
    // which none does unless a program requests it for itself.
    unsafe { core::arch::x86_64::_rdtsc() }
}

#[cfg(not(target_arch = "x86_64"))]
fn counter() -> u64 {
    0
}

/// Returns the time in ticks; [`length`] converts them.
#[inline]
pub(crate) fn now() -> u64 {
    let beginning = &*BEGINNING;
    match beginning.is_counted {
        true => counter(),
        false => beginning.at.elapsed().as_nanos() as u64,
    }
}

/// Returns the duration of a number of ticks.
pub(crate) fn length(ticks: u64) -> Duration {
    Duration::from_nanos((ticks as f64 * BEGINNING.one) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_time() {
        let (ticks, at) = (Tick::now(), Instant::now());
        std::thread::sleep(Duration::from_millis(60));
        let (passed, elapsed) = (ticks.elapsed_us(), at.elapsed().as_micros());
        // The scheduler may come between the two readings: the tolerance is wide, the unit is what
        // is tested.
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
