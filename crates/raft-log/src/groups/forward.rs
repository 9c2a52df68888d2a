//! Appends: proposed here, or forwarded to the node that leads the group.

use bytes::Bytes;
use cluster::{NodeId, SlotNumber};

use super::appends::{Answered, Done};
use super::core::{Core, Effect};
use super::group::Proposer;
use crate::disk::LogDisk;
use crate::message::{AppendOutcome, AppendRequest, NodeMessage};

impl<D: LogDisk> Core<D> {
    /// Appends a record, and returns the number of the append: [`Effect::Appended`] reports its
    /// outcome, always.
    pub fn append(&mut self, slot: SlotNumber, record: Bytes) -> u64 {
        let number = self.appends.add(slot, record, self.now);
        self.send_appends(slot);
        number
    }

    pub(super) fn propose(&mut self, from: NodeId, request: AppendRequest) {
        let proposer = Proposer {
            node: from,
            origin: request.origin,
            sequence: request.sequence,
        };
        let slot = request.slot;
        if self.is_stalled() {
            // Its followers would take the record for a sign of life, and elect none that can write.
            return self.report_to(proposer, AppendOutcome::NotLeader(None));
        }
        let is_here = self.groups.contains_key(&slot);
        let not_leader = AppendOutcome::NotLeader(self.leader_node(slot));
        let proposed = self.with_group(slot, |group, _| {
            group.wake();
            Ok(group.propose(request, from))
        });
        match proposed {
            // It is reported when it is committed.
            Some(None) => {}
            // It was halted in the middle of it.
            None if is_here => self.report_to(proposer, AppendOutcome::Unknown),
            Some(Some(AppendOutcome::NotLeader(_))) | None => {
                self.report_to(proposer, not_leader);
            }
            Some(Some(outcome)) => self.report_to(proposer, outcome),
        }
    }

    /// Sends the waiting appends of a slot to its leader.
    pub(super) fn send_appends(&mut self, slot: SlotNumber) {
        let target = self.append_target(slot);
        for done in self.appends.set_target(slot, target) {
            self.report(done);
        }
        let Some(target) = target else {
            return;
        };
        // One that is refused waits again.
        for _ in 0..self.appends.count(slot) {
            let Some(pending) = self.appends.take(slot) else {
                return;
            };
            let request = AppendRequest {
                slot,
                origin: self.options.origin,
                sequence: pending.sequence,
                record: pending.record,
            };
            match target == self.options.me.node {
                true => self.propose(target, request),
                false => self.send(target, NodeMessage::Append(request)),
            }
        }
    }

    /// Returns the node to which appends of a slot go.
    pub(super) fn append_target(&self, slot: SlotNumber) -> Option<NodeId> {
        if self.is_open(slot) {
            return self.leader_node(slot);
        }
        let before = self.appends.target(slot);
        if let Some(before) = before.filter(|node| self.is_heard(*node)) {
            return Some(before);
        }
        self.any_log_node()
    }

    pub(super) fn answered(&mut self, sequence: u64, outcome: AppendOutcome) {
        match self.appends.answer(sequence, outcome) {
            None => {}
            Some(Answered::Done(done)) => self.report(done),
            Some(Answered::Again { slot, leader }) => {
                if self.is_open(slot) {
                    // It is sent at a tick, when the leader is known here.
                    return;
                }
                let next = leader.or_else(|| self.any_log_node());
                for done in self.appends.set_target(slot, next) {
                    self.report(done);
                }
                if leader.is_some() {
                    self.send_appends(slot);
                }
            }
        }
    }

    pub(super) fn report(&mut self, (number, outcome): Done) {
        self.effects.push(Effect::Appended { number, outcome });
    }

    pub(super) fn report_to(&mut self, proposer: Proposer, outcome: AppendOutcome) {
        let Proposer {
            node,
            origin,
            sequence,
        } = proposer;
        if node != self.options.me.node {
            let message = NodeMessage::Appended {
                origin,
                sequence,
                outcome,
            };
            self.send(node, message);
        } else if origin == self.options.origin {
            self.answered(sequence, outcome);
        }
    }
}
