//! Measures how far a majority lags behind this replica. A log deletes old records: what a majority
//! does not have by then would be lost.

use std::collections::VecDeque;

use tokio::time::{Duration, Instant};

/// The records that are not on a majority's disks.
pub(super) struct Lag {
    time_max: Duration,
    bytes_max: u64,
    /// Bytes of all records that were handed out.
    bytes: u64,
    /// Positions of the slot, one a tick while it moves. Oldest first.
    marks: VecDeque<Mark>,
}

/// Everything before an offset had been handed out at this time.
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

    /// Counts a record that was handed out.
    pub fn given(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
    }

    /// Takes a mark at a tick: everything before `next_offset` was handed out, and a majority has
    /// everything before `stable`.
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

    /// Resets: offsets have another meaning, or are handed out again.
    pub fn restart(&mut self) {
        self.marks.clear();
    }

    /// Returns whether the lag is too large for further proposals.
    pub fn is_too_far(&mut self, stable: u64) -> bool {
        self.settle(stable);
        self.marks.front().is_some_and(|oldest| {
            self.bytes - oldest.bytes > self.bytes_max || oldest.at.elapsed() > self.time_max
        })
    }
}
