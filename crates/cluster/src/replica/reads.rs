//! Reads that see every write that was acknowledged before they began.

use std::collections::BTreeSet;

use super::{Message, Output, Phase, Replica};
use crate::position::{Generation, NodeId};

/// Reads, by how far they came.
#[derive(Debug)]
pub(super) struct Reads {
    /// They came while a round was under way, which may have asked before they began.
    waiting: Vec<u64>,
    round: Option<Round>,
    rounds: u64,
    /// They read when this replica has everything before the offset; and the change of replicas that the round knew.
    at: Vec<(u64, u64, u64)>,
    /// They are reading.
    reading: Vec<u64>,
    /// They read when the store had everything before the offset, and are shown when that is stable.
    unstable: Vec<(u64, u64)>,
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
            at: vec![],
            reading: vec![],
            unstable: vec![],
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
        let at = reads.into_iter().map(|read| (read, highest, replicas_at));
        self.reads.at.extend(at);
        self.go_on_reading();
        self.ask_round();
    }

    /// Has those read for which this replica is far enough.
    pub(super) fn go_on_reading(&mut self) {
        let (own, replicas_at) = (self.position().next_offset, self.saved.cursor.replicas_at);
        for (read, at, asked) in std::mem::take(&mut self.reads.at) {
            if at > own {
                self.reads.at.push((read, at, asked));
            } else if asked != replicas_at {
                // A majority of other replicas counts by now.
                self.reads.waiting.push(read);
            } else {
                self.out.push(Output::ReadNow(read));
                self.reads.reading.push(read);
            }
        }
        self.ask_round();
        self.show_reads();
    }

    pub(super) fn was_read(&mut self, read: u64, generation: Generation, next_offset: u64) {
        // If it is not among them, it begins anew.
        let Some(i) = self.reads.reading.iter().position(|r| *r == read) else {
            return;
        };
        self.reads.reading.swap_remove(i);
        match generation == self.generation() {
            true => self.reads.unstable.push((read, next_offset)),
            false => self.reads.waiting.push(read),
        }
        self.show_reads();
    }

    pub(super) fn show_reads(&mut self) {
        let shown = match self.rules.stable_reads {
            true => self.peers.stable,
            false => u64::MAX,
        };
        for (read, at) in std::mem::take(&mut self.reads.unstable) {
            match at <= shown {
                true => self.out.push(Output::ReadDone(read)),
                false => self.reads.unstable.push((read, at)),
            }
        }
    }

    /// Nobody waits for these any more.
    pub(super) fn forget_reads(&mut self, given_up: &[u64]) {
        let stays = |read: &u64| given_up.binary_search(read).is_err();
        let reads = &mut self.reads;
        reads.waiting.retain(stays);
        reads.reading.retain(stays);
        reads.at.retain(|(read, ..)| stays(read));
        reads.unstable.retain(|(read, _)| stays(read));
        if let Some(round) = &mut reads.round {
            round.reads.retain(stays);
        }
    }

    /// A generation began: offsets mean something else, and what was read may be gone. Whoever waits asks anew.
    pub(super) fn read_anew(&mut self) {
        let reads = &mut self.reads;
        let round = reads.round.take().map(|round| round.reads);
        let later = reads.at.drain(..).map(|(read, ..)| read);
        let later = later.chain(reads.reading.drain(..));
        let later: Vec<u64> = later
            .chain(reads.unstable.drain(..).map(|(r, _)| r))
            .collect();
        let asked = round.into_iter().flatten();
        reads.waiting.extend(asked.chain(later));
    }
}
