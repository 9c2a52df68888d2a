//! Memory for the rows of builds under way: one budget for all indexes.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::Error;

/// Minimum memory that a build continues with, in bytes.
const TAKEN_MIN: usize = 1 << 20;
/// Rows of a document that take no more than this need no memory of their own, in bytes.
const LARGE_ROWS_MIN: usize = 4 << 20;
/// Interval at which a waiting build checks whether it is stopped.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Memory that builds use, and their common budget.
///
/// Each takes half of the free memory: a single build gets much, and the next one still finds some.
#[derive(Debug)]
pub struct BuildMemory {
    budget_bytes: usize,
    state: Mutex<State>,
    given_back: Condvar,
}

#[derive(Debug)]
struct State {
    free: usize,
    least_free: usize,
    /// A build has memory for a large document.
    has_large: bool,
}

impl State {
    fn take(&mut self, bytes: usize) -> usize {
        self.free -= bytes;
        self.least_free = self.least_free.min(self.free);
        bytes
    }
}

/// Memory that a build has taken, until it is dropped.
#[derive(Debug)]
pub struct Reservation<'a> {
    memory: &'a BuildMemory,
    /// Size in bytes.
    pub bytes: usize,
    /// It is for a large document.
    is_large: bool,
}

impl BuildMemory {
    /// Creates a budget of this many bytes, of which one build always gets its minimum.
    pub fn new(budget_bytes: usize) -> BuildMemory {
        let budget_bytes = budget_bytes.max(TAKEN_MIN);
        BuildMemory {
            budget_bytes,
            state: Mutex::new(State {
                free: budget_bytes,
                least_free: budget_bytes,
                has_large: false,
            }),
            given_back: Condvar::new(),
        }
    }

    /// Returns the common budget of builds, in bytes.
    pub fn budget_bytes(&self) -> usize {
        self.budget_bytes
    }

    /// Returns the memory in use and its peak, in bytes.
    pub fn used_bytes(&self) -> (usize, usize) {
        let state = self.state.lock();
        (
            self.budget_bytes - state.free,
            self.budget_bytes - state.least_free,
        )
    }

    /// Reserves up to `wanted`; waits while less than the minimum is free.
    ///
    /// # Errors
    /// [`Error::Stopped`] when `stop` is set meanwhile.
    pub fn take(&self, wanted: usize, stop: &AtomicBool) -> Result<Reservation<'_>, Error> {
        let least = wanted.min(TAKEN_MIN);
        let mut state = self.state.lock();
        while state.free < least {
            self.given_back.wait_for(&mut state, LOOK_EVERY);
            if stop.load(Relaxed) {
                return Err(Error::Stopped);
            }
        }
        let bytes = wanted.min((state.free / 2).max(least));
        Ok(Reservation {
            memory: self,
            bytes: state.take(bytes),
            is_large: false,
        })
    }

    /// Reserves memory for a large document of a build: waits until no other build has such memory.
    /// It counts as much of `wanted` as is free, and waits for no more: builds that wait for this
    /// may have all other memory.
    ///
    /// # Errors
    /// [`Error::Stopped`] when `stop` is set meanwhile.
    pub fn take_large(&self, wanted: usize, stop: &AtomicBool) -> Result<Reservation<'_>, Error> {
        let mut state = self.state.lock();
        while state.has_large {
            self.given_back.wait_for(&mut state, LOOK_EVERY);
            if stop.load(Relaxed) {
                return Err(Error::Stopped);
            }
        }
        state.has_large = true;
        let bytes = wanted.min(state.free);
        Ok(Reservation {
            memory: self,
            bytes: state.take(bytes),
            is_large: true,
        })
    }
}

impl Reservation<'_> {
    /// Counts as much of `wanted` too as is free.
    fn grow(&mut self, wanted: usize) {
        let mut state = self.memory.state.lock();
        let more = wanted.min(state.free);
        self.bytes += state.take(more);
    }
}

/// Memory for documents of a build whose rows take more than the build has reserved. It is held from the
/// first of them until their rows are written.
pub(crate) struct LargeRows<'a> {
    memory: &'a BuildMemory,
    stop: &'a AtomicBool,
    /// Rows of a document that take no more than this are part of the build's reservation, in bytes.
    reserved_bytes: usize,
    taken: Mutex<Option<Reservation<'a>>>,
    is_taken: AtomicBool,
}

impl<'a> LargeRows<'a> {
    /// Creates one for a build that has reserved this many bytes.
    pub fn new(
        memory: &'a BuildMemory,
        stop: &'a AtomicBool,
        reserved_bytes: usize,
    ) -> LargeRows<'a> {
        LargeRows {
            memory,
            stop,
            reserved_bytes: reserved_bytes.max(LARGE_ROWS_MIN),
            taken: Mutex::new(None),
            is_taken: AtomicBool::new(false),
        }
    }

    /// Waits until no other build has a large document, if the rows of one take this many bytes and that
    /// is much.
    ///
    /// # Errors
    /// [`Error::Stopped`] when the build is stopped meanwhile.
    pub fn take(&self, bytes: usize) -> Result<(), Error> {
        if bytes <= self.reserved_bytes {
            return Ok(());
        }
        let mut taken = self.taken.lock();
        match &mut *taken {
            Some(taken) => taken.grow(bytes),
            None => *taken = Some(self.memory.take_large(bytes, self.stop)?),
        }
        self.is_taken.store(true, Relaxed);
        Ok(())
    }

    /// Returns whether the build has a large document: its rows are to be written before others are made.
    pub fn is_taken(&self) -> bool {
        self.is_taken.load(Relaxed)
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        let mut state = self.memory.state.lock();
        state.free += self.bytes;
        state.has_large &= !self.is_large;
        drop(state);
        self.memory.given_back.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn builds_take_half_of_what_is_left_and_wait_for_the_least() {
        let memory = BuildMemory::new(16 * MIB);
        let go = AtomicBool::new(false);
        let take = |wanted| memory.take(wanted, &go).expect("it is not stopped");
        let first = take(64 * MIB);
        let small = take(100);
        let second = take(64 * MIB);
        assert_eq!((first.bytes, small.bytes), (8 * MIB, 100));
        assert_eq!(second.bytes, (8 * MIB - 100) / 2);
        drop((first, small, second));
        assert_eq!(memory.used_bytes().0, 0);

        let all: Vec<_> = (0..5).map(|_| take(16 * MIB)).collect();
        assert_eq!(memory.used_bytes(), (16 * MIB, 16 * MIB));
        let stopped = AtomicBool::new(true);
        assert!(matches!(memory.take(MIB, &stopped), Err(Error::Stopped)));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| take(MIB).bytes);
            drop(all);
            assert_eq!(waiting.join().expect("no panic"), MIB);
        });
    }

    #[test]
    fn rows_of_large_documents_are_counted_and_those_of_others_are_not() {
        let memory = BuildMemory::new(64 * MIB);
        let go = AtomicBool::new(false);
        let small = LargeRows::new(&memory, &go, 0);
        small.take(LARGE_ROWS_MIN).expect("it is not stopped");
        assert!(!small.is_taken() && memory.used_bytes() == (0, 0));
        let build = memory.take(32 * MIB, &go).expect("it is not stopped");
        let reserved = LargeRows::new(&memory, &go, build.bytes);
        reserved.take(32 * MIB).expect("it is not stopped");
        assert!(!reserved.is_taken());
        small.take(10 * MIB).expect("it is not stopped");
        small.take(12 * MIB).expect("it is not stopped");
        assert!(small.is_taken());
        assert_eq!(memory.used_bytes().0, (32 + 10 + 12) * MIB);
        // It waits for the other build.
        let stopped = AtomicBool::new(true);
        let other = LargeRows::new(&memory, &stopped, build.bytes);
        assert!(matches!(other.take(40 * MIB), Err(Error::Stopped)));
        drop(small);
        reserved.take(40 * MIB).expect("it is not stopped");
        assert_eq!(memory.used_bytes().0, 64 * MIB, "all that was free");
        drop((reserved, build));
        assert_eq!(memory.used_bytes().0, 0);
    }

    #[test]
    fn one_build_at_a_time_has_a_large_document() {
        let memory = BuildMemory::new(16 * MIB);
        let go = AtomicBool::new(false);
        let build = memory.take(64 * MIB, &go).expect("it is not stopped");
        let large = memory.take_large(100 * MIB, &go).expect("none has one");
        assert_eq!((large.bytes, memory.used_bytes().0), (8 * MIB, 16 * MIB));
        let stopped = AtomicBool::new(true);
        let refused = memory.take_large(MIB, &stopped);
        assert!(matches!(refused, Err(Error::Stopped)));
        std::thread::scope(|scope| {
            let waiting =
                scope.spawn(|| memory.take_large(MIB, &go).map_or(0, |taken| taken.bytes));
            drop(large);
            assert_eq!(waiting.join().expect("no panic"), MIB);
        });
        drop(build);
        assert_eq!(memory.used_bytes().0, 0);
        // Nothing is free: it is not counted, and others still wait for it.
        let small = BuildMemory::new(MIB);
        let _all = small.take(MIB, &go).expect("it is not stopped");
        let none = small.take_large(MIB, &go).expect("none has one");
        assert_eq!(none.bytes, 0);
        assert!(small.take_large(MIB, &stopped).is_err());
    }
}
