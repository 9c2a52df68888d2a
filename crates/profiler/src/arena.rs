//! The buffer of samples: memory that is allocated before the first sample, and that many threads
//! fill without waiting.
//!
//! There are two halves. One is filled while the other is read, and they are swapped every
//! [`TICK`](crate::TICK).

use std::cell::UnsafeCell;
use std::hint;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, SeqCst};
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::time::Duration;

/// Frames of one sample.
pub const FRAMES_MAX: usize = 192;
/// Words of the stack's end that are kept, to find who called a function that has no frame pointer.
pub const WORDS: usize = 16;
/// Bytes of a label.
pub const LABEL_MAX: usize = 256;
/// Bytes of the names of an interpreter's functions.
pub const NAMES_MAX: usize = 512;
/// Samples of a half.
const SAMPLES_MAX: usize = 1024;

/// One sample.
#[repr(C)]
pub struct Sample {
    pub thread: u32,
    /// How many times the timer expired.
    pub weight: u32,
    pub depth: usize,
    /// The instruction's address, then addresses that are returned to, inner ones first.
    pub frames: [u64; FRAMES_MAX],
    pub words: [u64; WORDS],
    /// Number of words.
    pub words_len: usize,
    /// Frames inside of the label; the frames end inside of it too when this is `depth`.
    pub label_at: usize,
    pub label_len: usize,
    pub label: [u8; LABEL_MAX],
    pub names_len: usize,
    /// Each ends with a line end.
    pub names: [u8; NAMES_MAX],
}

struct Half {
    samples: Box<[UnsafeCell<Sample>]>,
    /// Samples requested; more than the capacity when some were lost.
    asked: AtomicUsize,
    /// Threads that are filling one.
    writers: AtomicUsize,
}

/// Both halves.
pub struct Arena {
    halves: [Half; 2],
    filled: AtomicUsize,
    lost: AtomicU64,
}

// SAFETY: a sample is written by the thread that got its number, which no other gets until the half
// was read; it is read when no thread writes to its half any more.
unsafe impl Sync for Arena {}

impl Half {
    fn new() -> Half {
        // SAFETY: numbers and arrays of numbers may be zero. The memory is touched when it is first
        // used.
        let samples =
            unsafe { Box::<[UnsafeCell<Sample>]>::new_zeroed_slice(SAMPLES_MAX).assume_init() };
        Half {
            samples,
            asked: AtomicUsize::new(0),
            writers: AtomicUsize::new(0),
        }
    }
}

impl Arena {
    pub fn new() -> Arena {
        Arena {
            halves: [Half::new(), Half::new()],
            filled: AtomicUsize::new(0),
            lost: AtomicU64::new(0),
        }
    }

    /// Fills a sample, unless none is left. Never waits: it is called in signal handlers.
    pub fn fill(&self, weight: u32, fill: impl FnOnce(&mut Sample)) {
        loop {
            let filled = self.filled.load(SeqCst);
            let half = &self.halves[filled];
            half.writers.fetch_add(1, SeqCst);
            // The halves may have been swapped before the writer was registered: retry, which can
            // only happen once a tick.
            if self.filled.load(SeqCst) == filled {
                let at = half.asked.fetch_add(1, Relaxed);
                match half.samples.get(at) {
                    // SAFETY: no other thread got this number.
                    Some(sample) => fill(unsafe { &mut *sample.get() }),
                    None => {
                        self.lost.fetch_add(u64::from(weight), Relaxed);
                    }
                }
                half.writers.fetch_sub(1, AcqRel);
                return;
            }
            half.writers.fetch_sub(1, AcqRel);
            hint::spin_loop();
        }
    }

    /// Reads the samples since the last call, by one caller at a time.
    pub fn read(&self, mut each: impl FnMut(&Sample)) {
        let filled = self.filled.load(SeqCst);
        let half = &self.halves[filled];
        self.filled.store(1 - filled, SeqCst);
        while half.writers.load(SeqCst) > 0 {
            // A thread was interrupted while it filled one.
            std::thread::sleep(Duration::from_micros(100));
        }
        let asked = half.asked.load(Acquire).min(SAMPLES_MAX);
        for sample in &half.samples[..asked] {
            // SAFETY: all that were to write here have, and others write to the other half.
            each(unsafe { &*sample.get() });
        }
        half.asked.store(0, SeqCst);
    }

    /// Samples for which there was no slot, since the last call.
    pub fn lost(&self) -> u64 {
        self.lost.swap(0, Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn nothing_is_read_twice_or_torn_and_what_is_lost_is_counted() {
        let arena = Arena::new();
        let done = AtomicBool::new(false);
        let (mut read, mut sum) = (0u64, 0u64);
        std::thread::scope(|scope| {
            let writers: Vec<_> = (0..4u32)
                .map(|thread| {
                    let arena = &arena;
                    scope.spawn(move || {
                        for n in 0..20_000u64 {
                            arena.fill(1, |sample| {
                                sample.thread = thread;
                                sample.frames = [n; FRAMES_MAX];
                                sample.depth = FRAMES_MAX;
                            });
                        }
                    })
                })
                .collect();
            let mut each = |sample: &Sample| {
                assert!(sample.frames.iter().all(|f| *f == sample.frames[0]));
                read += 1;
                sum += sample.frames[0];
            };
            while !done.load(Relaxed) {
                arena.read(&mut each);
                done.store(writers.iter().all(|w| w.is_finished()), Relaxed);
            }
            arena.read(&mut each);
            arena.read(&mut each);
        });
        assert_eq!(read + arena.lost(), 80_000);
        assert!(sum > 0);
    }
}
