//! The time of a call, on a machine that may be too busy to run it.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// Processor time is first read after one in this many parts of a limit: a short call never pays
/// for the system call.
const UNREAD_SHARE: u32 = 8;
/// A call ends after this many times its limit, however little of it the processor gave.
const WALL_TIMES_MAX: u32 = 4;

/// Measures a call against a time limit.
///
/// A call is late when it took the limit both as time and as processor time, or four times the
/// limit: a harmless call that waits for the processor is not at fault, but it has a place that
/// others wait for. The first eighth of the limit counts as processor time, since it is not
/// measured.
#[derive(Clone, Copy, Debug)]
pub struct CallTimer {
    limit: Duration,
    started: Instant,
    /// The time since the start at which a call can be late at the earliest.
    unread: Duration,
    /// Processor time when it was first read.
    cpu_before: Option<Duration>,
}

impl CallTimer {
    /// Starts to measure a call.
    #[must_use]
    pub fn start(limit: Duration) -> CallTimer {
        CallTimer::start_at(limit, Instant::now())
    }

    fn start_at(limit: Duration, started: Instant) -> CallTimer {
        CallTimer {
            limit,
            started,
            unread: limit / UNREAD_SHARE,
            cpu_before: None,
        }
    }

    /// Returns whether a call of this thread is late.
    pub fn is_late(&mut self) -> bool {
        self.is_late_at(Instant::now(), || Some(thread_time()))
    }

    /// Returns whether a call is late at a time. `cpu_time` reads the processor time of whatever
    /// executes it, since any fixed time; without it only the time counts.
    pub fn is_late_at(
        &mut self,
        now: Instant,
        cpu_time: impl FnOnce() -> Option<Duration>,
    ) -> bool {
        let elapsed = now.saturating_duration_since(self.started);
        elapsed >= self.unread && self.measure(elapsed, cpu_time())
    }

    #[cold]
    fn measure(&mut self, elapsed: Duration, cpu: Option<Duration>) -> bool {
        let limit = self.limit;
        let Some(cpu) = cpu else {
            return elapsed > limit;
        };
        let used = cpu.saturating_sub(*self.cpu_before.get_or_insert(cpu));
        let left = (limit - limit / UNREAD_SHARE).saturating_sub(used);
        let wall_max = limit.saturating_mul(WALL_TIMES_MAX);
        if elapsed > wall_max || elapsed > limit && left.is_zero() {
            return true;
        }
        // A thread's processor time passes no faster than time: until then it need not be read.
        self.unread = elapsed
            .saturating_add(left)
            .clamp(limit.min(wall_max), wall_max);
        false
    }

    /// Returns this thread's processor time, if the call is measured by it already.
    pub(crate) fn cpu_time(&self) -> Option<Duration> {
        self.cpu_before.map(|_| thread_time())
    }

    /// Takes time off that was not the call's, and the processor time of that.
    pub(crate) fn excuse(&mut self, time: Duration, cpu: Duration) {
        self.started += time;
        if let Some(before) = &mut self.cpu_before {
            *before += cpu;
        }
    }
}

fn thread_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_millis(800);

    /// A call, and the clocks that it is measured by.
    struct Simulation {
        timer: CallTimer,
        now: Instant,
        cpu: Duration,
        reads: usize,
    }

    impl Simulation {
        fn new() -> Simulation {
            let now = Instant::now();
            Simulation {
                timer: CallTimer::start_at(LIMIT, now),
                now,
                cpu: Duration::from_secs(1000),
                reads: 0,
            }
        }

        /// Lets time pass; returns whether the call is late.
        fn pass(&mut self, ms: u64, cpu_ms: u64) -> bool {
            self.now += Duration::from_millis(ms);
            self.cpu += Duration::from_millis(cpu_ms);
            let Simulation { timer, reads, .. } = self;
            timer.is_late_at(self.now, || {
                *reads += 1;
                Some(self.cpu)
            })
        }

        /// Returns after how many milliseconds the call is late.
        fn late_after(&mut self, step_ms: u64, step_cpu_ms: u64) -> u64 {
            let late = (1..).find(|_| self.pass(step_ms, step_cpu_ms));
            late.expect("it ends") * step_ms
        }
    }

    #[test]
    fn a_loop_is_late_after_the_limit_and_the_clock_of_the_processor_is_rarely_read() {
        let mut call = Simulation::new();
        assert_eq!(call.late_after(1, 1), 801);
        assert_eq!(call.reads, 3);
    }

    #[test]
    fn a_short_call_never_reads_the_clock_of_the_processor() {
        let mut call = Simulation::new();
        assert!((0..99).all(|_| !call.pass(1, 1)));
        assert_eq!(call.reads, 0);
    }

    #[test]
    fn a_call_that_waits_for_the_processor_is_not_late_before_it_got_the_limit() {
        let mut call = Simulation::new();
        assert!(!call.pass(3000, 1));
        assert!(!call.pass(100, 1));
        // A quarter of the processor.
        assert_eq!(Simulation::new().late_after(4, 1), 4 * 725);
    }

    #[test]
    fn a_call_that_gets_no_processor_is_late_after_four_times_the_limit() {
        let mut call = Simulation::new();
        assert_eq!(call.late_after(1, 0), 3201);
        assert!(call.reads < 20, "{}", call.reads);
    }

    #[test]
    fn a_call_that_needs_a_quarter_of_the_limit_ends_with_a_tenth_of_the_processor() {
        let mut call = Simulation::new();
        assert!((0..200).all(|_| !call.pass(10, 1)));
    }

    #[test]
    fn without_a_clock_of_the_processor_time_alone_counts() {
        let Simulation { mut timer, now, .. } = Simulation::new();
        let mut is_late = |ms| timer.is_late_at(now + Duration::from_millis(ms), || None);
        assert!(!is_late(101) && !is_late(800) && is_late(801));
    }

    #[test]
    fn excused_time_does_not_count() {
        let mut call = Simulation::new();
        assert!(!call.pass(200, 200));
        call.now += LIMIT * 20;
        call.cpu += LIMIT * 2;
        call.timer.excuse(LIMIT * 20, LIMIT * 2);
        assert!(!call.pass(500, 500));
        assert!(!call.pass(100, 100));
        assert_eq!(call.late_after(1, 1), 100);
    }

    #[test]
    fn a_thread_that_sleeps_is_not_late() {
        // The sleep is the starvation: of this thread's time it takes nearly nothing.
        let mut timer = CallTimer::start(Duration::from_millis(20));
        assert!(!timer.is_late());
        std::thread::sleep(Duration::from_millis(60));
        let is_late = timer.is_late();
        // A machine may stall for longer than four times the limit.
        assert!(!is_late || timer.started.elapsed() > Duration::from_millis(80));
    }

    #[test]
    fn a_limit_of_any_length_can_be_measured() {
        for limit in [Duration::ZERO, Duration::MAX] {
            let mut timer = CallTimer::start(limit);
            std::thread::sleep(Duration::from_millis(1));
            assert_eq!(timer.is_late(), limit.is_zero());
        }
    }
}
