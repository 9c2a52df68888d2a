//! Reads that see every write that was acknowledged before they began.

use std::collections::{BTreeMap, BTreeSet};

use super::{Message, Output, Phase, Replica};
use crate::position::{Generation, NodeId};

/// Reads, by how far they came.
#[derive(Debug)]
pub(super) struct Reads {
    /// They came while a round was under way, which may have asked before they began.
    waiting: Vec<u64>,
    round: Option<Round>,
    rounds: u64,
    /// They read when this replica has everything before the offset, which is first, the read second; and the change of replicas that
    /// the round knew.
    at: BTreeMap<(u64, u64), u64>,
    /// They are reading.
    reading: BTreeSet<u64>,
    /// They read when the store had everything before the offset, which is first, and are shown when that is stable.
    unstable: BTreeSet<(u64, u64)>,
}

/// One question to all replicas, shared by all reads that waited for it.
#[derive(Debug)]
struct Round {
    round: u64,
    generation: Generation,
    /// The replicas that were asked are those since this change.
    replicas_at: u64,
    reads: Vec<u64>,
    answered: BTreeSet<NodeId>,
    highest: u64,
}

impl Reads {
    pub fn new(start: u64) -> Reads {
        Reads {
            waiting: vec![],
            round: None,
            rounds: start,
            at: BTreeMap::new(),
            reading: BTreeSet::new(),
            unstable: BTreeSet::new(),
        }
    }
}

impl Replica {
    pub(super) fn read(&mut self, read: u64) {
        self.reads.waiting.push(read);
        self.ask_round();
    }

    fn ask_round(&mut self) {
        let ready = matches!(self.phase, Phase::Running);
        if self.reads.round.is_some() || self.reads.waiting.is_empty() || !ready {
            return;
        }
        self.reads.rounds = self.reads.rounds.wrapping_add(1);
        let round = self.reads.rounds;
        self.reads.round = Some(Round {
            round,
            generation: self.generation(),
            replicas_at: self.issued.replicas_at,
            reads: std::mem::take(&mut self.reads.waiting),
            answered: BTreeSet::new(),
            highest: 0,
        });
        self.send_all(&Message::AskPosition { round });
    }

    /// Another round for reads whose questions or answers were lost; it asks anew, since an answer may be old.
    pub(super) fn ask_again_reading(&mut self) {
        if let Some(round) = self.reads.round.take() {
            self.reads.waiting.extend(round.reads);
        }
        self.ask_round();
    }

    pub(super) fn tell_position(&mut self, to: NodeId, round: u64) {
        if matches!(self.phase, Phase::Copying) {
            return;
        }
        let answer = Message::PositionIs {
            round,
            generation: self.position().generation,
            next_offset: self.position().next_offset,
        };
        self.send(to, answer);
    }

    pub(super) fn position_is(
        &mut self,
        from: NodeId,
        round: u64,
        generation: Generation,
        next_offset: u64,
    ) {
        let (own, majority) = (self.generation(), self.issued.majority());
        let is_member = self.issued.members.contains(&from);
        let Some(asked) = &mut self.reads.round else {
            return;
        };
        if asked.round != round || !is_member {
            return;
        }
        if generation > own || asked.generation != own {
            // What was acknowledged there is not known here yet. A later round may do.
            let reads = std::mem::take(&mut asked.reads);
            self.reads.round = None;
            return self.reads.waiting.extend(reads);
        }
        asked.answered.insert(from);
        if generation == own {
            asked.highest = asked.highest.max(next_offset);
        }
        if asked.answered.len() < majority {
            return;
        }
        let (highest, replicas_at) = (asked.highest, asked.replicas_at);
        let reads = std::mem::take(&mut asked.reads);
        self.reads.round = None;
        let at = reads.into_iter().map(|read| ((highest, read), replicas_at));
        self.reads.at.extend(at);
        self.go_on_reading();
        self.ask_round();
    }

    /// Has those read for which this replica is far enough.
    pub(super) fn go_on_reading(&mut self) {
        let (own, replicas_at) = (self.position().next_offset, self.saved.cursor.replicas_at);
        while let Some(first) = self.reads.at.first_entry()
            && first.key().0 <= own
        {
            let ((_, read), asked) = first.remove_entry();
            if asked != replicas_at {
                // A majority of other replicas counts by now.
                self.reads.waiting.push(read);
            } else {
                self.out.push(Output::ReadNow(read));
                self.reads.reading.insert(read);
            }
        }
        self.ask_round();
        self.show_reads();
    }

    pub(super) fn was_read(&mut self, read: u64, generation: Generation, next_offset: u64) {
        // If it is not among them, it begins anew.
        if !self.reads.reading.remove(&read) {
            return;
        }
        match generation == self.generation() {
            true => {
                self.reads.unstable.insert((next_offset, read));
            }
            false => self.reads.waiting.push(read),
        }
        self.show_reads();
    }

    pub(super) fn show_reads(&mut self) {
        let shown = match self.rules.stable_reads {
            true => self.peers.stable,
            false => u64::MAX,
        };
        while let Some((at, read)) = self.reads.unstable.first().copied()
            && at <= shown
        {
            self.reads.unstable.pop_first();
            self.out.push(Output::ReadDone(read));
        }
    }

    /// Nobody waits for these any more.
    pub(super) fn forget_reads(&mut self, given_up: &[u64]) {
        let stays = |read: &u64| given_up.binary_search(read).is_err();
        let reads = &mut self.reads;
        reads.waiting.retain(stays);
        reads.reading.retain(stays);
        reads.at.retain(|(_, read), _| stays(read));
        reads.unstable.retain(|(_, read)| stays(read));
        if let Some(round) = &mut reads.round {
            round.reads.retain(stays);
        }
    }

    /// A generation began: offsets mean something else, and what was read may be gone. Whoever waits asks anew.
    pub(super) fn read_anew(&mut self) {
        let reads = &mut self.reads;
        let round = reads.round.take().map(|round| round.reads);
        let at = std::mem::take(&mut reads.at);
        let later = at.into_keys().map(|(_, read)| read);
        let later = later.chain(std::mem::take(&mut reads.reading));
        let unstable = std::mem::take(&mut reads.unstable);
        let later = later.chain(unstable.into_iter().map(|(_, read)| read));
        let asked = round.into_iter().flatten();
        reads.waiting.extend(asked.chain(later));
    }
}
