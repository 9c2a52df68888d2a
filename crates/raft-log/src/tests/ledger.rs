//! The simulation's knowledge of the log, and its checks.

use std::collections::{BTreeMap, BTreeSet};

use cluster::SlotNumber;

use crate::options::RaftId;

/// A broken promise.
#[derive(Debug, PartialEq, Eq)]
pub struct Violation(pub String);

pub type Checked = Result<(), Violation>;

/// An append of a client.
#[derive(Clone, Copy, Debug)]
pub struct Append {
    pub slot: SlotNumber,
    /// The record, whose numbers grow with time.
    pub record: u64,
    /// The process that appended it.
    pub origin: u64,
    /// It must succeed: there are no faults any more.
    pub is_last: bool,
}

/// Acknowledged and read records.
#[derive(Default)]
pub struct Ledger {
    /// By slot and offset.
    acknowledged: BTreeMap<(SlotNumber, u64), u64>,
    read: BTreeMap<(SlotNumber, u64), u64>,
    /// The place of each record that was read.
    places: BTreeMap<u64, (SlotNumber, u64)>,
    refused: BTreeSet<u64>,
    /// Offsets by process, slot and record.
    orders: BTreeMap<(u64, SlotNumber), BTreeMap<u64, u64>>,
    leaders: BTreeMap<(SlotNumber, u64), RaftId>,
}

fn check(is_kept: bool, what: impl FnOnce() -> String) -> Checked {
    match is_kept {
        true => Ok(()),
        false => Err(Violation(what())),
    }
}

impl Ledger {
    pub fn count(&self) -> usize {
        self.acknowledged.len()
    }

    pub fn acknowledge(&mut self, append: &Append, offset: u64) -> Checked {
        let place = (append.slot, offset);
        let other = self.acknowledged.insert(place, append.record);
        check(other.is_none(), || {
            format!("{place:?} was acknowledged for {other:?} and for {append:?}")
        })?;
        let order = self.orders.entry((append.origin, append.slot)).or_default();
        let before = order.range(..append.record).next_back();
        let after = order.range(append.record..).next();
        let is_ordered =
            before.is_none_or(|(_, it)| *it < offset) && after.is_none_or(|(_, it)| *it > offset);
        check(is_ordered, || {
            format!("{append:?} at {offset} is not between {before:?} and {after:?}")
        })?;
        order.insert(append.record, offset);
        Ok(())
    }

    pub fn refuse(&mut self, append: &Append) -> Checked {
        self.refused.insert(append.record);
        let place = self.places.get(&append.record);
        check(place.is_none(), || {
            format!("{append:?} was refused and is at {place:?}")
        })
    }

    pub fn read(&mut self, slot: SlotNumber, offset: u64, record: u64) -> Checked {
        let place = (slot, offset);
        let other = *self.read.entry(place).or_insert(record);
        check(other == record, || {
            format!("{place:?} was read as {other} and as {record}")
        })?;
        let other = *self.places.entry(record).or_insert(place);
        check(other == place, || {
            format!("record {record} is at {other:?} and at {place:?}")
        })?;
        check(!self.refused.contains(&record), || {
            format!("record {record} was refused and is at {place:?}")
        })
    }

    pub fn lead(&mut self, slot: SlotNumber, term: u64, leader: RaftId) -> Checked {
        let other = *self.leaders.entry((slot, term)).or_insert(leader);
        check(other == leader, || {
            format!("slot {slot} has the leaders {other} and {leader} in term {term}")
        })
    }

    /// Checks that everything acknowledged was read, and that there are no gaps before it.
    pub fn finish(&self) -> Checked {
        for (place, record) in &self.acknowledged {
            let found = self.read.get(place);
            check(found == Some(record), || {
                format!("{record} was acknowledged at {place:?}, where {found:?} is")
            })?;
        }
        let mut ends: BTreeMap<SlotNumber, u64> = BTreeMap::new();
        for (slot, offset) in self.read.keys() {
            let end = ends.entry(*slot).or_default();
            check(*end == *offset, || {
                format!("slot {slot} has no offset {end}")
            })?;
            *end += 1;
        }
        Ok(())
    }
}
