//! The appends of this process, until their outcomes are known.
//!
//! **Invariant: no append overtakes an earlier one of its slot, unless that one fails.** They go to one
//! node at a time; when that changes, the outcome of those sent before is "unknown". The leader
//! refuses a record that arrives after a later one.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use cluster::{NodeId, SlotNumber};

use crate::message::AppendOutcome;
use crate::options::APPEND_TICKS;

/// An append that was not sent yet.
pub(super) struct Pending {
    pub sequence: u64,
    pub record: Bytes,
    /// The tick at which it fails.
    until: u64,
}

struct Sent {
    slot: SlotNumber,
    record: Bytes,
    until: u64,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Pending>,
    /// The node to which records were sent last.
    target: Option<NodeId>,
    last_sent: u64,
}

/// The appends of this process.
#[derive(Default)]
pub(super) struct Appends {
    sequence: u64,
    queues: BTreeMap<SlotNumber, Queue>,
    sent: BTreeMap<u64, Sent>,
}

/// An append whose outcome is known.
pub(super) type Done = (u64, AppendOutcome);

impl Appends {
    /// Adds an append, and returns its number.
    pub fn add(&mut self, slot: SlotNumber, record: Bytes, now: u64) -> u64 {
        self.sequence += 1;
        let pending = Pending {
            sequence: self.sequence,
            record,
            until: now + APPEND_TICKS,
        };
        let queue = self.queues.entry(slot).or_default();
        queue.waiting.push_back(pending);
        self.sequence
    }

    /// Returns the slots with appends that were not sent.
    pub fn waiting(&self) -> Vec<SlotNumber> {
        let waiting = self
            .queues
            .iter()
            .filter(|(_, queue)| !queue.waiting.is_empty());
        waiting.map(|(slot, _)| *slot).collect()
    }

    /// Returns the number of a slot's appends that were not sent.
    pub fn count(&self, slot: SlotNumber) -> usize {
        let queue = self.queues.get(&slot);
        queue.map_or(0, |queue| queue.waiting.len())
    }

    /// Returns the node to which the records of a slot are sent.
    pub fn target(&self, slot: SlotNumber) -> Option<NodeId> {
        self.queues.get(&slot).and_then(|queue| queue.target)
    }

    /// Sets the node to which the records of a slot are sent, and returns what becomes of those that
    /// were sent to another one.
    pub fn set_target(&mut self, slot: SlotNumber, target: Option<NodeId>) -> Vec<Done> {
        let queue = self.queues.entry(slot).or_default();
        if std::mem::replace(&mut queue.target, target) == target {
            return vec![];
        }
        self.lose(|sent| sent.slot == slot)
    }

    /// Takes the next record of a slot to send it.
    pub fn take(&mut self, slot: SlotNumber) -> Option<Pending> {
        let queue = self.queues.get_mut(&slot)?;
        let pending = queue.waiting.pop_front()?;
        queue.last_sent = pending.sequence;
        let sent = Sent {
            slot,
            record: pending.record.clone(),
            until: pending.until,
        };
        self.sent.insert(pending.sequence, sent);
        Some(pending)
    }

    /// Notes an answer. Returns the slot whose record must be sent again, or the outcome.
    pub fn answer(&mut self, sequence: u64, outcome: AppendOutcome) -> Option<Answered> {
        let sent = self.sent.remove(&sequence)?;
        let AppendOutcome::NotLeader(leader) = outcome else {
            return Some(Answered::Done((sequence, outcome)));
        };
        let queue = self.queues.entry(sent.slot).or_default();
        if queue.last_sent != sequence {
            // A later one is on its way, or stored.
            return Some(Answered::Done((sequence, AppendOutcome::Refused)));
        }
        queue.waiting.push_front(Pending {
            sequence,
            record: sent.record,
            until: sent.until,
        });
        Some(Answered::Again {
            slot: sent.slot,
            leader,
        })
    }

    /// Returns the appends whose time is over.
    pub fn expire(&mut self, now: u64) -> Vec<Done> {
        let mut done = self.lose(|sent| sent.until <= now);
        for queue in self.queues.values_mut() {
            while queue
                .waiting
                .front()
                .is_some_and(|first| first.until <= now)
            {
                let first = queue.waiting.pop_front();
                done.extend(first.map(|it| (it.sequence, AppendOutcome::Refused)));
            }
        }
        done
    }

    /// Removes appends that were sent: their outcomes are unknown.
    fn lose(&mut self, is_lost: impl Fn(&Sent) -> bool) -> Vec<Done> {
        let lost = self.sent.iter().filter(|(_, sent)| is_lost(sent));
        let lost: Vec<u64> = lost.map(|(sequence, _)| *sequence).collect();
        for sequence in &lost {
            self.sent.remove(sequence);
        }
        lost.into_iter()
            .map(|sequence| (sequence, AppendOutcome::Unknown))
            .collect()
    }
}

/// The meaning of an answer.
pub(super) enum Answered {
    Done(Done),
    /// The record must be sent again, to this node if it is known.
    Again {
        slot: SlotNumber,
        leader: Option<NodeId>,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(appends: &mut Appends) -> u64 {
        appends.add(1, Bytes::from_static(b"record"), 0)
    }

    #[test]
    fn a_refused_append_is_sent_again_unless_a_later_one_was_sent() {
        let mut appends = Appends::default();
        let (first, second) = (add(&mut appends), add(&mut appends));
        appends.set_target(1, Some(5));
        assert_eq!(appends.take(1).map(|it| it.sequence), Some(first));
        assert_eq!(appends.take(1).map(|it| it.sequence), Some(second));
        let refused = AppendOutcome::NotLeader(Some(6));
        let Some(Answered::Done(done)) = appends.answer(first, refused) else {
            panic!("it would overtake the second");
        };
        assert_eq!(done, (first, AppendOutcome::Refused));
        let again = appends.answer(second, refused);
        assert!(matches!(
            again,
            Some(Answered::Again {
                slot: 1,
                leader: Some(6)
            })
        ));
        assert_eq!(appends.take(1).map(|it| it.sequence), Some(second));
    }

    #[test]
    fn what_was_sent_to_another_node_is_unknown() {
        let mut appends = Appends::default();
        let first = add(&mut appends);
        appends.set_target(1, Some(5));
        appends.take(1);
        assert!(appends.set_target(1, Some(5)).is_empty());
        let lost = appends.set_target(1, Some(6));
        assert_eq!(lost, [(first, AppendOutcome::Unknown)]);
    }

    #[test]
    fn every_append_ends() {
        let mut appends = Appends::default();
        let (first, second) = (add(&mut appends), add(&mut appends));
        appends.take(1);
        assert!(appends.expire(APPEND_TICKS - 1).is_empty());
        let ends = [
            (first, AppendOutcome::Unknown),
            (second, AppendOutcome::Refused),
        ];
        assert_eq!(appends.expire(APPEND_TICKS), ends);
    }
}
