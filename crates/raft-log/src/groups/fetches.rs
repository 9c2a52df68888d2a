//! The requests for records of this process that other nodes answer.

use std::collections::BTreeMap;

use crate::options::FETCH_TICKS;

/// The requests of this process.
pub(super) struct Fetches {
    number: u64,
    /// Requests to other nodes, with the ticks at which they fail.
    sent: BTreeMap<u64, u64>,
}

impl Fetches {
    /// Numbers requests from the process's own number on, so that a late answer to an earlier process
    /// is not taken for one to this process.
    pub fn of_process(origin: u64) -> Fetches {
        Fetches {
            number: origin,
            sent: BTreeMap::new(),
        }
    }

    /// Returns the number of a new request.
    pub fn new_number(&mut self) -> u64 {
        self.number = self.number.wrapping_add(1);
        self.number
    }

    /// Notes that a request was sent to another node.
    pub fn note_sent(&mut self, number: u64, now: u64) {
        self.sent.insert(number, now + FETCH_TICKS);
    }

    /// Notes an answer. Returns whether it was expected.
    pub fn note_answer(&mut self, number: u64) -> bool {
        self.sent.remove(&number).is_some()
    }

    /// Removes and returns the requests whose time is over.
    pub fn expire(&mut self, now: u64) -> Vec<u64> {
        let late = self.sent.iter().filter(|(_, until)| **until <= now);
        let late: Vec<u64> = late.map(|(number, _)| *number).collect();
        for number in &late {
            self.sent.remove(number);
        }
        late
    }
}
