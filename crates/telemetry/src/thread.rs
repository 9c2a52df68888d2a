//! The clock of a thread, and the list of all clocks.

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU64, fence};
use std::time::Duration;

use parking_lot::Mutex;

use crate::state::{STATES, State};
use crate::ticks::{self, Tick};

/// Bits of [`Clock::current`] that say when the state was entered; the number of the state is above
/// them. With a counter of 4 GHz they last for four years after the machine's start.
const SINCE_BITS: u32 = 59;
const SINCE_MASK: u64 = (1 << SINCE_BITS) - 1;
/// The bit of [`Clock::current`] that marks a state change in progress.
const CHANGING: u64 = 1 << 63;
/// Number of readings of a constantly changing clock after which one without its current state is
/// used.
const READINGS_MAX: usize = 1000;

/// Written by its own thread alone.
struct Clock {
    name: String,
    /// The state, and the tick at which it was entered.
    current: AtomicU64,
    /// Ticks of each state, without those since it was entered last.
    spent: [AtomicU64; STATES.len()],
}

impl Clock {
    fn new(name: String) -> Clock {
        Clock {
            name,
            current: AtomicU64::new(packed(State::Idle, ticks::now())),
            spent: Default::default(),
        }
    }

    /// Changes the state; returns the previous one.
    #[inline]
    fn change(&self, to: State, now: u64) -> State {
        let current = self.current.load(Relaxed);
        let (before, since) = unpacked(current);
        let spent = &self.spent[before as usize];
        // A reader sees this mark, or nothing of what follows.
        self.current.store(current | CHANGING, Relaxed);
        fence(Release);
        spent.store(spent.load(Relaxed) + now.saturating_sub(since), Relaxed);
        self.current.store(packed(to, now), Release);
        before
    }

    /// Ticks of each state until now. Together they are the age of the clock. The times are those
    /// before its last change if the thread was interrupted while it changed the state.
    fn read(&self) -> [u64; STATES.len()] {
        self.try_read().unwrap_or_else(|| self.spent_ticks())
    }

    /// Returns `None` if the thread was within a change during all readings.
    fn try_read(&self) -> Option<[u64; STATES.len()]> {
        for _ in 0..READINGS_MAX {
            let current = self.current.load(Acquire);
            let mut ticks = self.spent_ticks();
            fence(Acquire);
            if current & CHANGING == 0 && self.current.load(Relaxed) == current {
                let (state, since) = unpacked(current);
                ticks[state as usize] += ticks::now().saturating_sub(since);
                return Some(ticks);
            }
            std::hint::spin_loop();
        }
        None
    }

    fn spent_ticks(&self) -> [u64; STATES.len()] {
        std::array::from_fn(|state| self.spent[state].load(Relaxed))
    }
}

#[inline]
fn packed(state: State, since: u64) -> u64 {
    (u64::from(state as u8)) << SINCE_BITS | since & SINCE_MASK
}

#[inline]
fn unpacked(current: u64) -> (State, u64) {
    (
        State::of_number(((current & !CHANGING) >> SINCE_BITS) as u8),
        current & SINCE_MASK,
    )
}

/// Clocks of threads that live, and what those spent that have ended.
struct All {
    alive: Vec<Arc<Clock>>,
    ended: Vec<(String, [u64; STATES.len()])>,
}

static ALL: Mutex<All> = Mutex::new(All {
    alive: vec![],
    ended: vec![],
});

/// Takes the clock off the list when its thread ends.
struct Registered(Arc<Clock>);

impl Registered {
    fn new() -> Registered {
        let name = std::thread::current().name().unwrap_or("thread").to_owned();
        let clock = Arc::new(Clock::new(name));
        ALL.lock().alive.push(clock.clone());
        Registered(clock)
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let clock = &self.0;
        clock.change(State::Idle, ticks::now());
        let mut all = ALL.lock();
        all.alive.retain(|c| !Arc::ptr_eq(c, clock));
        let at = match all.ended.iter().position(|(name, _)| *name == clock.name) {
            Some(at) => at,
            None => {
                all.ended.push((clock.name.clone(), [0; STATES.len()]));
                all.ended.len() - 1
            }
        };
        for (sum, spent) in all.ended[at].1.iter_mut().zip(&clock.spent) {
            *sum += spent.load(Relaxed);
        }
    }
}

thread_local! {
    static CLOCK: Registered = Registered::new();
}

/// Changes the state of this thread, unless it is about to end.
#[inline]
fn change(to: State, now: Tick) -> Option<State> {
    CLOCK.try_with(|clock| clock.0.change(to, now.0)).ok()
}

/// This thread is in a state until this is dropped, and in the one before from then on.
#[must_use = "the state ends when this is dropped"]
pub struct StateGuard {
    before: Option<State>,
    at: Tick,
    /// Bound to this thread: dropped elsewhere it would change another thread's state.
    _here: PhantomData<*const ()>,
}

impl Drop for StateGuard {
    #[inline]
    fn drop(&mut self) {
        if self.before.is_some() {
            self.end();
        }
    }
}

impl StateGuard {
    /// When the state was entered.
    #[inline]
    pub fn at(&self) -> Tick {
        self.at
    }

    /// Ends the state now; returns the time. The clock is read once for both.
    #[inline]
    pub fn leave(mut self) -> Tick {
        self.end()
    }

    #[inline]
    fn end(&mut self) -> Tick {
        let now = Tick::now();
        if let Some(before) = self.before.take() {
            change(before, now);
        }
        now
    }
}

/// When this thread entered the state that it is in. Costs no reading of the clock.
#[inline]
pub fn entered_at() -> Tick {
    let since = CLOCK.try_with(|clock| unpacked(clock.0.current.load(Relaxed)).1);
    since.map_or_else(|_| Tick::now(), Tick)
}

/// Enters a state on this thread.
#[inline]
pub fn enter(state: State) -> StateGuard {
    let at = Tick::now();
    StateGuard {
        before: change(state, at),
        at,
        _here: PhantomData,
    }
}

/// A thread of a runtime has nothing to do: for the runtime's hook.
pub fn park() {
    change(State::Idle, Tick::now());
}

/// Marks that a thread of a runtime has work, in `state` unless a task sets another: for the
/// runtime's hook.
pub fn unpark(state: State) {
    change(state, Tick::now());
}

/// The times of all threads of one name.
#[derive(Clone, Debug, PartialEq)]
pub struct ThreadTimes {
    /// Name of the threads.
    pub name: String,
    /// The current number of threads.
    pub alive: usize,
    /// Time in each state, including threads that have ended.
    pub spent: Vec<(State, Duration)>,
}

/// Returns the times of all threads that ever had a state, by name. Threads are many, names are
/// few.
pub fn threads() -> Vec<ThreadTimes> {
    let (alive, ended) = {
        let all = ALL.lock();
        (all.alive.clone(), all.ended.clone())
    };
    let mut sums: Vec<(String, usize, [u64; STATES.len()])> = vec![];
    let mut add = |name: &str, threads: usize, ticks: &[u64; STATES.len()]| {
        let at = match sums.iter().position(|(n, ..)| n == name) {
            Some(at) => at,
            None => {
                sums.push((name.to_owned(), 0, [0; STATES.len()]));
                sums.len() - 1
            }
        };
        sums[at].1 += threads;
        for (sum, ticks) in sums[at].2.iter_mut().zip(ticks) {
            *sum += ticks;
        }
    };
    ended.iter().for_each(|(name, ticks)| add(name, 0, ticks));
    alive.iter().for_each(|c| add(&c.name, 1, &c.read()));
    sums.sort_by(|a, b| a.0.cmp(&b.0));
    let times = |(name, alive, ticks): (String, usize, [u64; STATES.len()])| ThreadTimes {
        name,
        alive,
        spent: STATES.into_iter().zip(ticks.map(ticks::length)).collect(),
    };
    sums.into_iter().map(times).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::time::Instant;

    use super::*;

    fn of(name: &str) -> ThreadTimes {
        let found = threads().into_iter().find(|t| t.name == name);
        found.unwrap()
    }

    fn named<T: Send + 'static>(name: &str, f: impl FnOnce() -> T + Send + 'static) -> T {
        let thread = std::thread::Builder::new().name(name.into());
        thread.spawn(f).unwrap().join().unwrap()
    }

    #[test]
    fn the_inner_state_counts_and_the_outer_goes_on_after_it() {
        let passed = named("nested", || {
            let began = Instant::now();
            {
                let _answer = enter(State::Answer);
                std::thread::sleep(Duration::from_millis(20));
                {
                    let _read = enter(State::Read);
                    std::thread::sleep(Duration::from_millis(40));
                }
                std::thread::sleep(Duration::from_millis(20));
            }
            began.elapsed()
        });
        let times = of("nested");
        assert_eq!(times.alive, 0);
        let spent = [State::Read, State::Answer].map(|state| times.spent[state as usize].1);
        assert!(
            spent.iter().all(|spent| spent.as_millis() >= 39),
            "{times:?}"
        );
        assert!(
            spent.iter().sum::<Duration>() <= passed.mul_f64(1.01),
            "{times:?}"
        );
    }

    #[test]
    fn states_of_a_living_thread_sum_up_to_its_age() {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let begun = Arc::new(AtomicBool::new(false));
        let has_begun = begun.clone();
        let thread = std::thread::Builder::new()
            .name("busy".into())
            .spawn(move || {
                unpark(State::Other);
                has_begun.store(true, Relaxed);
                while !stopped.load(Relaxed) {
                    let _in = enter(STATES[fastrand::usize(..STATES.len())]);
                    std::hint::spin_loop();
                }
            })
            .unwrap();
        while !begun.load(Relaxed) {
            std::thread::yield_now();
        }
        let all = ALL.lock().alive.clone();
        let clock = all.into_iter().find(|c| c.name == "busy").unwrap();
        // A reading, and when it began and ended. In ticks: there is nothing to round or calibrate.
        let reading = || {
            loop {
                let began = ticks::now();
                let read = clock.try_read();
                let ended = ticks::now();
                // The thread may have been interrupted within a change.
                match read {
                    Some(spent) => return (began, spent.iter().sum::<u64>(), ended),
                    None => std::thread::yield_now(),
                }
            }
        };
        // A processor may execute a reading of the counter earlier or later than the instructions
        // next to it, but within the duration of the readings.
        let (began, first, ended) = reading();
        let mut last = (first, ended - began);
        let end = Instant::now() + Duration::from_millis(300);
        while Instant::now() < end {
            let (next_began, sum, next_ended) = reading();
            let took = next_ended - next_began;
            assert!(sum + took + last.1 >= last.0, "{sum} after {last:?}");
            let slack = took + (ended - began);
            let (least, most) = (next_began - ended, next_ended - began);
            let bounds = least.saturating_sub(slack)..=most + slack;
            assert!(
                bounds.contains(&sum.saturating_sub(first)),
                "{sum} - {first} {bounds:?}"
            );
            last = (sum, took);
        }
        stop.store(true, Relaxed);
        thread.join().unwrap();
    }

    #[test]
    fn threads_that_ended_leave_a_sum_alone() {
        for _ in 0..50 {
            named("short", || drop(enter(State::Sort)));
        }
        let times = of("short");
        assert_eq!(times.alive, 0);
        assert!(times.spent[State::Sort as usize].1 > Duration::ZERO);
        let all = ALL.lock();
        assert_eq!(all.ended.iter().filter(|(n, _)| n == "short").count(), 1);
    }
}
