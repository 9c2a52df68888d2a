//! Is the log still the one that was applied, and can nothing else have been acknowledged where it goes on?

use std::collections::BTreeSet;

use super::{DAMAGED_MAX, Fence, Found, Last, LogRecord, Message, Output, Phase, Reason, Replica};
use crate::position::{Chain, NodeId};

/// Fences that are kept. They are few: one for each new leader that was asked about and not yet followed.
const FENCES_MAX: usize = 64;

/// What is made sure of before records are followed.
#[derive(Debug)]
pub(super) struct Check {
    /// What others are asked to promise; `None` when only the log is looked at.
    fence: Option<Fence>,
    /// The log holds the last record.
    is_own: bool,
    promised: BTreeSet<NodeId>,
    refused: BTreeSet<NodeId>,
}

impl Replica {
    /// Looks for the last record in the log, and, before a leader of a new epoch is followed, has a majority promise.
    pub(super) fn check(&mut self, epoch: Option<i32>) {
        let position = &self.issued.position;
        let fence = epoch.map(|epoch| Fence {
            generation: position.generation,
            epoch,
            offset: position.next_offset,
        });
        self.phase = Phase::Checking(Check {
            fence,
            is_own: self.issued.last.is_none(),
            promised: BTreeSet::new(),
            refused: BTreeSet::new(),
        });
        self.check_again();
        self.end_check();
    }

    /// Asks for what was not answered.
    pub(super) fn check_again(&mut self) {
        let Phase::Checking(check) = &self.phase else {
            return;
        };
        let offset = self.issued.position.next_offset;
        if !check.is_own && offset > 0 {
            let offset = offset - 1;
            let epoch = check.fence.map_or(self.last_epoch(), |fence| fence.epoch);
            self.out.push(Output::ReadBack { offset, epoch });
        }
        let Some(fence) = check.fence else { return };
        let answered = |n: &&NodeId| check.promised.contains(n) || check.refused.contains(n);
        let members = self.issued.members.iter();
        let silent: Vec<NodeId> = members.filter(|n| !answered(n)).copied().collect();
        let ask = Message::AskFence {
            fence,
            chain: self.issued.position.chain,
            last_epoch: self.last_epoch(),
        };
        for to in silent {
            self.send(to, ask.clone());
        }
    }

    fn is_last(&self, offset: u64, record: &LogRecord) -> bool {
        let same = |last: Last| last.epoch == record.epoch && last.hash == record.hash;
        offset + 1 == self.issued.position.next_offset && self.issued.last.is_some_and(same)
    }

    pub(super) fn read_back(&mut self, offset: u64, found: Found) {
        self.find_begin(offset, &found);
        let is_last = matches!(&found, Found::Record(record) if self.is_last(offset, record));
        let Phase::Checking(check) = &mut self.phase else {
            return;
        };
        if check.is_own || offset + 1 != self.issued.position.next_offset {
            return;
        }
        match found {
            Found::Record(record) if record.log != self.issued.log => self.halt(Reason::Replaced),
            // Damaged, or by who read it: it is read again.
            Found::Record(record) if record.header.is_none() => {
                self.damaged += 1;
                if self.damaged >= DAMAGED_MAX {
                    self.damaged = 0;
                    self.halt(Reason::Corrupt);
                }
            }
            Found::Record(_) if is_last => {
                check.is_own = true;
                self.end_check();
            }
            Found::Record(_) => self.halt(Reason::Diverged),
            // Nobody promises who followed a later leader than its last record's.
            Found::Trimmed => {
                check.is_own = true;
                self.end_check();
            }
            Found::BeyondEnd => self.halt(Reason::Truncated),
        }
    }

    /// Another replica is about to follow a new leader.
    pub(super) fn ask_fence(&mut self, from: NodeId, fence: Fence, chain: Chain, last_epoch: i32) {
        if self.installing {
            // The state that would keep the promise is on its way.
            return;
        }
        let generation = self.generation();
        if generation > fence.generation || self.saved.promises.sealed > fence.generation {
            return self.send(
                from,
                Message::FenceAnswer {
                    fence,
                    promised: false,
                },
            );
        }
        let at = fence.offset;
        let is_free = match self.issued.position.next_offset {
            _ if generation < fence.generation => true,
            // Only where it already follows that leader, or a newer one, on the same way.
            next if next > at => {
                let same = match self.peers.chains.at(at) {
                    Some(own) => *own == chain,
                    None => at == 0 || self.epoch_at(at - 1) == Some(last_epoch),
                };
                same && self.epoch_at(at).is_some_and(|epoch| epoch >= fence.epoch)
            }
            // Whoever follows an older leader may lack what was acknowledged: of two ways, that of the later one counts.
            _ => self.last_epoch() <= last_epoch || !self.rules.later_leader,
        };
        // What it is further by may be lost in a crash: the promise is kept in any case.
        let promised = is_free && self.promise(fence);
        self.send(from, Message::FenceAnswer { fence, promised });
    }

    fn promise(&mut self, fence: Fence) -> bool {
        let covers = |a: &Fence, b: &Fence| {
            a.generation == b.generation && a.epoch >= b.epoch && a.offset <= b.offset
        };
        let generation = self.issued.position.generation;
        let fences = &mut self.saved.promises.fences;
        if fences.iter().any(|known| covers(known, &fence)) {
            return true;
        }
        // A promise about what comes before that which is on disk is kept by now, and copies are further than that.
        let next = self.saved.cursor.position.next_offset;
        fences.retain(|known| {
            let is_past = known.generation == generation && known.offset < next;
            known.generation >= generation && !is_past && !covers(&fence, known)
        });
        if fences.len() >= FENCES_MAX {
            return false;
        }
        fences.push(fence);
        let promises = self.saved.promises.clone();
        self.out.push(Output::Promise(promises));
        true
    }

    /// Of the last record, -1 without one.
    fn last_epoch(&self) -> i32 {
        self.issued.last.map_or(-1, |last| last.epoch)
    }

    /// It was promised not to apply this record.
    pub(super) fn is_fenced(&self, record: &LogRecord) -> bool {
        let generation = self.generation();
        let mut fences = self.saved.promises.fences.iter();
        self.rules.fence
            && fences.any(|f| {
                f.generation == generation && record.epoch < f.epoch && record.offset >= f.offset
            })
    }

    /// The epoch of the record that was applied at an offset, of this generation; `None` when it is not known any more.
    fn epoch_at(&self, offset: u64) -> Option<i32> {
        let begun = self
            .issued
            .epochs
            .iter()
            .rev()
            .find(|(_, from)| *from <= offset);
        begun.map(|(epoch, _)| *epoch)
    }

    pub(super) fn fence_answer(&mut self, from: NodeId, fence: Fence, promised: bool) {
        let Phase::Checking(check) = &mut self.phase else {
            return;
        };
        if check.fence != Some(fence) || !self.issued.members.contains(&from) {
            return;
        }
        match promised {
            true => check.promised.insert(from),
            false => check.refused.insert(from),
        };
        self.end_check();
    }

    fn end_check(&mut self) {
        let Phase::Checking(check) = &self.phase else {
            return;
        };
        let majority = self.issued.majority();
        let members = self.issued.members.len();
        if check.fence.is_some() && members < majority + check.refused.len() {
            return self.halt(Reason::Ahead);
        }
        let is_fenced = check.fence.is_none() || check.promised.len() >= majority;
        if !check.is_own || !is_fenced {
            return;
        }
        if let Some(fence) = check.fence {
            // The next record is followed if a leader of this epoch wrote it.
            self.issued.position.leader_epoch = fence.epoch;
        }
        self.phase = Phase::Running;
        self.fetch();
    }
}
