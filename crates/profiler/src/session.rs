//! From the first sample to the last.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{AcqRel, Release};
use std::time::Duration;

use crate::Error;
use crate::arena::Arena;
use crate::process_state;
use crate::sampler::{self, Timer};
use crate::samples::{SampleSet, Samples};

/// Interval at which [`Session::tick`] must be called.
pub const TICK: Duration = Duration::from_millis(100);
/// Most samples of a thread for each second of its processor time.
pub const HZ_MAX: u32 = 1000;

static IS_BUSY: AtomicBool = AtomicBool::new(false);

struct Thread {
    name: String,
    /// `None` if it has none.
    timer: Option<Timer>,
    is_alive: bool,
    /// It was found by the last search.
    is_new: bool,
}

/// A profile in progress. It ends when it is dropped.
pub struct Session {
    arena: &'static Arena,
    every: Duration,
    /// By the kernel's thread ids.
    threads: HashMap<u32, Thread>,
    gathered: SampleSet,
    left_out: u64,
}

impl Session {
    /// Starts, with this number of samples per second of processor time, 1 to [`HZ_MAX`].
    ///
    /// # Errors
    /// [`Error::Busy`] while there is another, [`Error::Timers`] when threads cannot be sampled.
    pub fn start(hz: u32) -> Result<Session, Error> {
        if IS_BUSY.swap(true, AcqRel) {
            return Err(Error::Busy);
        }
        let arena = sampler::prepare().map_err(|e| {
            IS_BUSY.store(false, Release);
            Error::Timers(e)
        })?;
        let mut session = Session {
            arena,
            every: Duration::from_secs(1) / hz.clamp(1, HZ_MAX),
            threads: HashMap::new(),
            gathered: SampleSet::default(),
            left_out: 0,
        };
        // Samples left by an earlier session.
        arena.read(|_| {});
        arena.lost();
        session.gathered.modules.read();
        sampler::sample(true);
        session.find_threads()?;
        Ok(session)
    }

    /// Looks for threads that are new, and takes the samples that came. To be called every
    /// [`TICK`].
    pub fn tick(&mut self) {
        // An error is one of a single thread, which may just have ended.
        let _ = self.find_threads();
        self.take();
    }

    fn take(&mut self) {
        let (gathered, threads) = (&mut self.gathered, &self.threads);
        self.arena.read(|slot| {
            let name = threads.get(&slot.thread).map_or("thread", |t| &t.name);
            gathered.add(slot, name);
        });
        gathered.lose(self.arena.lost());
    }

    /// Ends it.
    pub fn finish(mut self) -> Samples {
        self.end();
        self.take();
        std::mem::take(&mut self.gathered).finish(self.left_out)
    }

    fn end(&mut self) {
        for thread in self.threads.values_mut() {
            thread.timer = None;
        }
        sampler::sample(false);
    }

    /// Starts timers of new threads. One that has ended keeps its name until its last samples are
    /// taken.
    fn find_threads(&mut self) -> Result<(), Error> {
        let threads = process_state::threads().map_err(Error::Timers)?;
        self.threads
            .retain(|_, thread| std::mem::take(&mut thread.is_alive));
        let mut failed = None;
        for number in threads {
            match self.threads.entry(number) {
                Entry::Occupied(thread) => {
                    let thread = thread.into_mut();
                    thread.is_alive = true;
                    // A thread sets its own name; until then it has that of its creator.
                    if std::mem::take(&mut thread.is_new) {
                        thread.name = name_of(number);
                    }
                }
                Entry::Vacant(place) => {
                    let timer = Timer::start(number, phase(number, self.every), self.every);
                    place.insert(Thread {
                        name: name_of(number),
                        is_alive: true,
                        is_new: true,
                        timer: match timer {
                            Ok(timer) => Some(timer),
                            // It has ended.
                            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => None,
                            Err(e) => {
                                self.left_out += 1;
                                failed = Some(e);
                                None
                            }
                        },
                    });
                }
            }
        }
        let is_any = self.threads.values().any(|t| t.timer.is_some());
        match failed {
            Some(e) if !is_any => Err(Error::Timers(e)),
            _ => Ok(()),
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.end();
        IS_BUSY.store(false, Release);
    }
}

/// When a thread's first sample is due: not all at the same time.
fn phase(thread: u32, every: Duration) -> Duration {
    let part = thread.wrapping_mul(0x9e37_79b9) >> 16;
    every * (part + 1) / 0x1_0000
}

fn name_of(thread: u32) -> String {
    kind(process_state::name_of(thread).trim())
}

/// Returns the name of threads of one kind: without their numbers.
fn kind(name: &str) -> String {
    let is_end = |c: char| c.is_ascii_digit() || matches!(c, '-' | ':' | '_' | ' ' | '#');
    let kind = name.trim_end_matches(is_end);
    match kind {
        "" => "thread".to_owned(),
        kind => kind.replace(';', " "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Label, Profile, Symbols, Unit, labelled};
    use std::hint::black_box;
    use std::sync::atomic::Ordering::Relaxed;

    #[inline(never)]
    fn count_primes(below: u64) -> u64 {
        (2..below).filter(|n| (2..*n).all(|d| n % d != 0)).count() as u64
    }

    #[test]
    fn threads_of_one_kind_have_one_name() {
        for (name, wanted) in [
            ("tokio-rt-worker", "tokio-rt-worker"),
            ("rocksdb:low12", "rocksdb:low"),
            ("apart-3", "apart"),
            ("7", "thread"),
            ("", "thread"),
        ] {
            assert_eq!(kind(name), wanted);
        }
    }

    /// All in one test: a process has one session at a time.
    #[test]
    fn threads_are_seen_where_they_are() {
        let stop = AtomicBool::new(false);
        let profile = std::thread::scope(|scope| {
            let work = |name: &'static str, label: &'static str| {
                let stop = &stop;
                let thread = std::thread::Builder::new().name(name.into());
                let work = move || {
                    let label = Label::new(label);
                    while !stop.load(Relaxed) {
                        labelled(&label, || black_box(count_primes(black_box(300))));
                    }
                };
                thread.spawn_scoped(scope, work).expect("a thread");
            };
            work("early-1", "db/_design/a/_view/b");
            let mut session = Session::start(500).expect("it can be sampled");
            assert!(matches!(Session::start(99), Err(Error::Busy)));
            work("late-2", "db/_design/a/_view/c");
            for _ in 0..20 {
                std::thread::sleep(TICK);
                session.tick();
            }
            let samples = session.finish();
            stop.store(true, Relaxed);
            let again = Samples::from_bytes(&samples.to_bytes()).expect("its own bytes");
            assert_eq!(again.count(), samples.count());
            let mut profile = Profile::new(Unit::Samples { hz: 500 });
            let symbols = Symbols::of([&again].into_iter());
            symbols.add(&again, &["test"], &mut profile);
            profile
        });
        let folded = profile.folded();
        let share = |wanted: &[&str]| {
            let lines = folded.lines();
            let has = |line: &&str| wanted.iter().all(|w| line.contains(w));
            let counts = lines.filter(has).filter_map(|l| l.rsplit_once(' '));
            counts
                .filter_map(|(_, n)| n.parse::<u64>().ok())
                .sum::<u64>()
        };
        assert!(profile.total() > 50, "{folded}");
        for (thread, view) in [("test;early;", "_view/b;"), ("test;late;", "_view/c;")] {
            let seen = share(&[thread, view, "count_primes"]);
            let of_thread = share(&[thread]);
            assert!(
                seen * 10 > of_thread * 9 && seen > 10,
                "{seen} of {of_thread}\n{folded}"
            );
        }
        assert!(profile.unknown() * 20 < profile.total(), "{folded}");
        assert!(!folded.contains("[unknown];[unknown]"), "{folded}");
    }

    #[test]
    fn phases_are_within_the_period() {
        let every = Duration::from_millis(10);
        for thread in [0, 1, 77, u32::MAX] {
            let phase = phase(thread, every);
            assert!(phase > Duration::ZERO && phase <= every, "{phase:?}");
        }
    }
}
