//! The numbers of inserted records, and which of them can be read.

use std::collections::BTreeSet;

/// Numbers for new records. A record counts as there when it and all before it have been acknowledged.
#[derive(Debug)]
pub(crate) struct Sequence {
    next: u64,
    there: u64,
    /// Acknowledged ones beyond a gap.
    beyond: BTreeSet<u64>,
    /// Numbers whose insertion failed: given again first, so that gaps close.
    failed: Vec<u64>,
}

impl Sequence {
    /// Continues after `records` existing records.
    pub(crate) fn after(records: u64) -> Self {
        Self {
            next: records,
            there: records,
            beyond: BTreeSet::new(),
            failed: Vec::new(),
        }
    }

    /// Records that can be read: all below this number.
    pub(crate) fn count(&self) -> u64 {
        self.there
    }

    pub(crate) fn take(&mut self) -> u64 {
        self.failed.pop().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        })
    }

    pub(crate) fn acknowledge(&mut self, number: u64) {
        self.beyond.insert(number);
        while self.beyond.remove(&self.there) {
            self.there += 1;
        }
    }

    pub(crate) fn fail(&mut self, number: u64) {
        self.failed.push(number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_counts_when_all_before_it_are_there() {
        let mut sequence = Sequence::after(10);
        let taken = [sequence.take(), sequence.take(), sequence.take()];
        assert_eq!(taken, [10, 11, 12]);
        sequence.acknowledge(12);
        sequence.acknowledge(10);
        assert_eq!(sequence.count(), 11);
        sequence.fail(11);
        assert_eq!(sequence.take(), 11);
        sequence.acknowledge(11);
        assert_eq!((sequence.count(), sequence.take()), (13, 13));
    }
}
