//! Measures how far this replica is behind the end of its log.

use std::collections::VecDeque;

use tokio::time::Instant;

use crate::position::{Generation, Position};

/// Maximum number of marks; beyond it every other one is dropped, and they are taken half as often.
const MARKS_MAX: usize = 256;

/// The end of the log, as far as this replica has seen it in the log or in the positions of other
/// replicas.
#[derive(Default)]
pub(super) struct Delay {
    generation: Generation,
    end: u64,
    /// Ends that this replica was behind at some ticks. Oldest first.
    marks: VecDeque<Mark>,
    /// Ticks from one mark to the next, and since the last one.
    stride: u32,
    ticks: u32,
}

/// The log was known to reach this offset at this time.
struct Mark {
    end: u64,
    at: Instant,
}

impl Delay {
    /// Notes that the log of a generation reaches an offset.
    pub fn reaches(&mut self, generation: Generation, end: u64) {
        if generation == self.generation {
            self.end = self.end.max(end);
        }
    }

    /// Takes a mark at a tick, at which this replica is at a position.
    pub fn mark(&mut self, own: &Position, now: Instant) {
        if own.generation != self.generation {
            // Offsets may have another meaning.
            self.generation = own.generation;
            self.end = 0;
            self.marks.clear();
        }
        while self.marks.front().is_some_and(|m| m.end <= own.next_offset) {
            self.marks.pop_front();
        }
        if self.marks.is_empty() {
            (self.stride, self.ticks) = (1, 0);
        }
        self.ticks += 1;
        let last = self.marks.back().map_or(own.next_offset, |mark| mark.end);
        if self.end > last && self.ticks >= self.stride {
            self.ticks = 0;
            self.marks.push_back(Mark {
                end: self.end,
                at: now,
            });
        }
        if self.marks.len() > MARKS_MAX {
            self.stride *= 2;
            let mut i = 0_usize;
            self.marks.retain(|_| {
                i += 1;
                !i.is_multiple_of(2)
            });
        }
    }

    /// Returns the end of the log.
    pub fn end(&self, own: &Position) -> u64 {
        match own.generation == self.generation {
            true => self.end.max(own.next_offset),
            false => own.next_offset,
        }
    }

    /// Returns when the oldest record was first seen that this replica lacks.
    pub fn since(&self, own: &Position) -> Option<Instant> {
        let is_ahead = |mark: &&Mark| mark.end > own.next_offset;
        let mark = self.marks.iter().find(is_ahead);
        mark.filter(|_| own.generation == self.generation)
            .map(|mark| mark.at)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Duration;

    use super::*;

    fn at(next_offset: u64) -> Position {
        Position {
            next_offset,
            ..Position::start()
        }
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_replica_is_behind_since_it_knew_of_the_record_that_it_lacks() {
        let (mut delay, start) = (Delay::default(), Instant::now());
        let of = at(0).generation;
        delay.mark(&at(0), start);
        assert_eq!((delay.end(&at(0)), delay.since(&at(0))), (0, None));
        for end in 1..=5 {
            delay.reaches(of, end);
            delay.mark(&at(0), start + seconds(end));
        }
        assert_eq!(delay.end(&at(2)), 5);
        assert_eq!(delay.since(&at(0)), Some(start + seconds(1)));
        assert_eq!(delay.since(&at(2)), Some(start + seconds(3)));
        // What was applied between two ticks is no delay.
        assert_eq!(delay.since(&at(5)), None);
        delay.mark(&at(5), start + seconds(6));
        assert_eq!((delay.end(&at(5)), delay.since(&at(5))), (5, None));
    }

    #[test]
    fn a_long_delay_takes_little_memory_and_is_measured_alike() {
        let (mut delay, start) = (Delay::default(), Instant::now());
        delay.mark(&at(0), start);
        for end in 1..=10_000 {
            delay.reaches(at(0).generation, end);
            delay.mark(&at(0), start + seconds(end));
        }
        assert!(delay.marks.len() <= MARKS_MAX);
        assert_eq!(delay.since(&at(0)), Some(start + seconds(1)));
        for reached in [2_500, 5_000, 9_000] {
            let since = delay.since(&at(reached)).unwrap();
            let exact = start + seconds(reached + 1);
            assert!(since >= exact && since < exact + seconds(100), "{reached}");
        }
    }

    #[test]
    fn offsets_of_another_generation_are_not_compared() {
        let (mut delay, now) = (Delay::default(), Instant::now());
        delay.mark(&at(0), now);
        delay.reaches(at(0).generation, 9);
        delay.mark(&at(0), now);
        let mut next = at(1);
        next.generation.number += 1;
        assert_eq!((delay.end(&next), delay.since(&next)), (1, None));
        delay.mark(&next, now);
        delay.reaches(at(0).generation, 20);
        delay.mark(&next, now);
        assert_eq!((delay.end(&next), delay.since(&next)), (1, None));
        delay.reaches(next.generation, 2);
        delay.mark(&next, now);
        assert_eq!((delay.end(&next), delay.since(&next)), (2, Some(now)));
    }
}
