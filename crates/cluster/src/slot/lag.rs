//! How far a majority is behind what this replica was given. A log forgets: what a majority has not by then would be lost.

use std::collections::VecDeque;

use tokio::time::{Duration, Instant};

/// What is not on a majority's disks.
pub(super) struct Lag {
    time_max: Duration,
    bytes_max: u64,
    /// Bytes of all records that were given.
    bytes: u64,
    /// Where the slot was, one a tick while it moves. Oldest first.
    marks: VecDeque<Mark>,
}

/// Everything before an offset was given at this time.
struct Mark {
    next_offset: u64,
    bytes: u64,
    at: Instant,
}

impl Lag {
    pub fn new(time_max: Duration, bytes_max: u64) -> Lag {
        Lag {
            time_max,
            bytes_max,
            bytes: 0,
            marks: VecDeque::new(),
        }
    }

    /// A record was given.
    pub fn given(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
    }

    /// At a tick: everything before this offset was given, and a majority has everything before the other one.
    pub fn mark(&mut self, next_offset: u64, stable: u64) {
        self.settle(stable);
        let last = self.marks.back().map(|mark| mark.next_offset);
        if next_offset > last.unwrap_or(stable) {
            self.marks.push_back(Mark {
                next_offset,
                bytes: self.bytes,
                at: Instant::now(),
            });
        }
    }

    fn settle(&mut self, stable: u64) {
        while self.marks.front().is_some_and(|m| m.next_offset <= stable) {
            self.marks.pop_front();
        }
    }

    /// Offsets mean something else, or are given again.
    pub fn restart(&mut self) {
        self.marks.clear();
    }

    /// Whether so much is missing that nothing should be added.
    pub fn is_too_far(&mut self, stable: u64) -> bool {
        self.settle(stable);
        self.marks.front().is_some_and(|oldest| {
            self.bytes - oldest.bytes > self.bytes_max || oldest.at.elapsed() > self.time_max
        })
    }
}
