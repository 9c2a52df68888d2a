//! Verifies that the log still contains the applied records, and that nothing else can have been
//! acknowledged at the offsets that follow.

use std::collections::BTreeSet;

use super::{
    Cursor, DAMAGED_MAX, EPOCHS_MAX, Fence, LastRecord, LogRecord, Message, Output, Phase,
    ReadBackResult, Reason, Replica,
};
use crate::position::NodeId;

/// The maximum number of fences kept. They are few: one for each new leader that a replica received
/// about and does not follow yet. A replica with this many promises nothing more until it has
/// advanced, or a generation starts.
const FENCES_MAX: usize = 64;

/// The checks before records are followed.
#[derive(Debug)]
pub(super) struct Check {
    /// The fence to be promised by others; `None` when only the log is checked.
    fence: Option<Fence>,
    /// The log contains the last record.
    is_own: bool,
    promised: BTreeSet<NodeId>,
    refused: BTreeSet<NodeId>,
}

impl Fence {
    /// Returns whether a record of this epoch must not be applied at this offset.
    fn forbids(&self, epoch: i32, offset: u64) -> bool {
        epoch < self.epoch && (offset >= self.offset || epoch > self.last_epoch)
    }

    /// Returns whether a state with this cursor, in the same generation, contains a forbidden
    /// record, or may contain one.
    pub(super) fn is_broken_by(&self, cursor: &Cursor) -> bool {
        let next = cursor.position.next_offset;
        let (forgotten, known) = match cursor.epochs.first() {
            // The number of epochs kept is limited. Earlier ones are older than the first of them.
            Some((first, _)) => (
                cursor.epochs.len() >= EPOCHS_MAX && *first > self.last_epoch + 1,
                &cursor.epochs,
            ),
            None => (next > 0, &cursor.epochs),
        };
        // Each epoch with its last record, the one most ahead that may be forbidden.
        let ends = known.iter().skip(1).map(|(_, from)| *from).chain([next]);
        let mut last = known
            .iter()
            .zip(ends)
            .map(|((epoch, _), end)| (*epoch, end - 1));
        forgotten || last.any(|(epoch, offset)| self.forbids(epoch, offset))
    }
}

impl Replica {
    /// Looks for the last record in the log and, before a leader of a new epoch is followed, asks a
    /// majority for promises.
    pub(super) fn check(&mut self, epoch: Option<i32>) {
        let position = &self.issued.position;
        let fence = epoch.map(|epoch| Fence {
            generation: position.generation,
            epoch,
            offset: position.next_offset,
            chain: position.chain,
            last_epoch: self.last_epoch(),
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

    /// Repeats unanswered questions.
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
        for to in silent {
            self.send(to, Message::AskFence(fence));
        }
    }

    fn is_last(&self, offset: u64, record: &LogRecord) -> bool {
        let same = |last: LastRecord| last.epoch == record.epoch && last.hash == record.hash;
        offset + 1 == self.issued.position.next_offset && self.issued.last.is_some_and(same)
    }

    pub(super) fn read_back(&mut self, offset: u64, found: ReadBackResult) {
        self.find_begin(offset, &found);
        let is_last =
            matches!(&found, ReadBackResult::Record(record) if self.is_last(offset, record));
        let Phase::Checking(check) = &mut self.phase else {
            return;
        };
        if check.is_own || offset + 1 != self.issued.position.next_offset {
            return;
        }
        match found {
            ReadBackResult::Record(record) if record.log != self.issued.log => {
                self.halt(Reason::Replaced)
            }
            // Damaged, perhaps only in transit: it is read again.
            ReadBackResult::Record(record) if record.header.is_none() => {
                self.damaged += 1;
                if self.damaged >= DAMAGED_MAX {
                    self.damaged = 0;
                    self.halt(Reason::Corrupt);
                }
            }
            ReadBackResult::Record(_) if is_last => {
                check.is_own = true;
                self.end_check();
            }
            ReadBackResult::Record(_) => self.halt(Reason::Diverged),
            // The record can no longer be read. That is harmless: the promises alone ensure that
            // each leader is followed from one position, after everything acknowledged, and what
            // one leader wrote is one history.
            ReadBackResult::Trimmed => {
                check.is_own = true;
                self.end_check();
            }
            ReadBackResult::BeyondEnd => self.halt(Reason::Truncated),
        }
    }

    /// Another replica is about to follow a new leader.
    pub(super) fn ask_fence(&mut self, from: NodeId, fence: Fence) {
        if self.installing {
            // The state that would keep the promise is being written.
            return;
        }
        let (generation, sealed) = (self.generation(), self.saved.promises.sealed);
        let is_late = generation > fence.generation || sealed > fence.generation;
        let promised = !is_late && self.is_free_for(&fence) && self.promise(fence);
        self.send(from, Message::FenceAnswer { fence, promised });
    }

    /// Returns whether it has not yet done what it would promise not to do.
    fn is_free_for(&self, fence: &Fence) -> bool {
        let at = fence.offset;
        if self.generation() < fence.generation {
            return true;
        }
        if self.issued.position.next_offset <= at {
            // A replica that follows an older leader may lack acknowledged records: of two
            // histories, the one of the later leader counts.
            return self.last_epoch() <= fence.last_epoch || !self.rules.later_leader;
        }
        // Only if it already follows that leader, from the same position.
        let same = match self.tracker.chains.at(at) {
            Some(own) => *own == fence.chain,
            None => at == 0 || self.epoch_at(at - 1) == Some(fence.last_epoch),
        };
        same && self.epoch_at(at) == Some(fence.epoch)
    }

    fn promise(&mut self, fence: Fence) -> bool {
        let own = *self.position();
        // A promise about offsets before the durable position is kept by now, and copies are ahead
        // of it.
        let is_past = |f: &Fence| f.generation == own.generation && f.offset < own.next_offset;
        let fences = &mut self.saved.promises.fences;
        if is_past(&fence) || fences.contains(&fence) {
            return true;
        }
        fences.retain(|known| known.generation >= own.generation && !is_past(known));
        // Each leader is followed from one position: any two replicas that ask share a replica that
        // they asked.
        let is_for_same_leader =
            |f: &Fence| f.generation == fence.generation && f.epoch == fence.epoch;
        if fences.iter().any(is_for_same_leader) || fences.len() >= FENCES_MAX {
            return false;
        }
        fences.push(fence);
        let promises = self.saved.promises.clone();
        self.out.push(Output::Promise(promises));
        true
    }

    /// Returns the epoch of the last record, -1 without one.
    fn last_epoch(&self) -> i32 {
        self.issued.last.map_or(-1, |last| last.epoch)
    }

    /// Returns whether a promise forbids this record.
    pub(super) fn is_fenced(&self, record: &LogRecord) -> bool {
        let generation = self.generation();
        let mut fences = self.saved.promises.fences.iter();
        self.rules.fence
            && fences.any(|f| f.generation == generation && f.forbids(record.epoch, record.offset))
    }

    /// Returns the epoch of the record applied at an offset of this generation; `None` when it is
    /// no longer known.
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
