//! Linearizable reads: they see every write that was acknowledged before they started.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{Message, Output, Phase, Replica};
use crate::position::{Generation, NodeId};

/// Reads, by their progress.
#[derive(Debug)]
pub(super) struct Reads {
    /// They arrived during a round, which may have asked before they started.
    waiting: Vec<u64>,
    round: Option<Round>,
    rounds: u64,
    /// The first round of this start.
    first: u64,
    /// They read when this replica has reached a majority's position. Oldest first.
    groups: VecDeque<Group>,
    /// The last answer of each replica: the round, and its position in this generation.
    answers: BTreeMap<NodeId, (u64, u64)>,
    /// They are reading.
    reading: BTreeSet<u64>,
    /// They read when the store had everything before the offset, which comes first, and are
    /// returned when that is stable.
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

/// Reads whose round a majority answered.
#[derive(Debug)]
struct Group {
    round: u64,
    /// As in the round.
    replicas_at: u64,
    /// The offset to reach. Every majority has the acknowledged records, so it is the minimum over
    /// all majorities that answered: one replica alone may be ahead, by a record that no other can
    /// get. That holds while the replicas change, too: a change is written when the one before it
    /// is on a majority, which shares a replica with every earlier majority.
    at: u64,
    reads: Vec<u64>,
}

/// Rounds are counted from a random number.
fn is_since(round: u64, since: u64) -> bool {
    round.wrapping_sub(since) <= u64::MAX / 2
}

impl Reads {
    pub fn new(start: u64) -> Reads {
        Reads {
            waiting: vec![],
            round: None,
            rounds: start,
            first: start,
            groups: VecDeque::new(),
            answers: BTreeMap::new(),
            reading: BTreeSet::new(),
            unstable: BTreeSet::new(),
        }
    }

    /// Returns whether it is a round of this start.
    fn was_asked(&self, round: u64) -> bool {
        self.rounds.wrapping_sub(round) < self.rounds.wrapping_sub(self.first)
    }

    /// Handles a round that a majority answered.
    fn wait_for(&mut self, round: Round) {
        let Round {
            round,
            replicas_at,
            reads,
            highest: at,
            ..
        } = round;
        match self.groups.back_mut() {
            // One group is enough: an answer to a later round counts for earlier reads, too.
            Some(last) if last.at == at && last.replicas_at == replicas_at => {
                last.round = round;
                last.reads.extend(reads);
            }
            _ => self.groups.push_back(Group {
                round,
                replicas_at,
                at,
                reads,
            }),
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

    /// Starts another round for reads whose questions or answers were lost; it asks all again,
    /// since an answer may be old. It also repeats the question to replicas that did not answer,
    /// for reads that the others were too far ahead for.
    pub(super) fn ask_again_reading(&mut self) {
        if let Some(round) = self.reads.round.take() {
            self.reads.waiting.extend(round.reads);
        }
        self.ask_round();
        let Some(round) = self.reads.groups.back().map(|group| group.round) else {
            return;
        };
        let answers = &self.reads.answers;
        let is_silent = |n: &&NodeId| !answers.get(n).is_some_and(|(of, _)| is_since(*of, round));
        let silent = self.issued.members.iter().filter(is_silent).copied();
        for to in silent.collect::<Vec<_>>() {
            self.send(to, Message::AskPosition { round });
        }
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
        // An answer to a question of an earlier start may be just as old.
        if !self.issued.members.contains(&from) || !self.reads.was_asked(round) {
            return;
        }
        if generation <= own {
            // In an earlier generation it has nothing of this one.
            let reached = if generation == own { next_offset } else { 0 };
            self.reads.answers.insert(from, (round, reached));
            self.choose_majority();
        }
        let Some(asked) = self.reads.round.as_mut().filter(|r| r.round == round) else {
            return self.go_on_reading();
        };
        if generation > own || asked.generation != own {
            // The acknowledged writes of that node are not known here yet. A later round may
            // succeed.
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
        let Some(round) = self.reads.round.take() else {
            return;
        };
        self.reads.wait_for(round);
        self.go_on_reading();
        self.ask_round();
    }

    /// Makes reads wait for the majority with the lowest position.
    fn choose_majority(&mut self) {
        let (replicas_at, majority) = (self.issued.replicas_at, self.issued.majority());
        let Reads {
            groups, answers, ..
        } = &mut self.reads;
        for group in groups.iter_mut().filter(|g| g.replicas_at == replicas_at) {
            let of_group = answers
                .values()
                .filter(|(of, _)| is_since(*of, group.round));
            let mut reached: Vec<u64> = of_group.map(|(_, reached)| *reached).collect();
            reached.sort_unstable();
            if let Some(at) = reached.get(majority - 1) {
                group.at = group.at.min(*at);
            }
        }
    }

    /// Starts the reads whose position this replica has reached.
    pub(super) fn go_on_reading(&mut self) {
        let (own, replicas_at) = (self.position().next_offset, self.saved.cursor.replicas_at);
        let mut groups = std::mem::take(&mut self.reads.groups);
        groups.retain_mut(|group| {
            if group.at > own && group.replicas_at >= replicas_at {
                return true;
            }
            let reads = std::mem::take(&mut group.reads);
            if group.replicas_at == replicas_at {
                self.out.extend(reads.iter().copied().map(Output::ReadNow));
                self.reads.reading.extend(reads);
            } else {
                // A majority of other replicas counts by now.
                self.reads.waiting.extend(reads);
            }
            false
        });
        self.reads.groups = groups;
        self.ask_round();
        self.show_reads();
    }

    pub(super) fn was_read(&mut self, read: u64, generation: Generation, next_offset: u64) {
        // If it is not among them, it starts over.
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
            true => self.tracker.stable,
            false => u64::MAX,
        };
        while let Some((at, read)) = self.reads.unstable.first().copied()
            && at <= shown
        {
            self.reads.unstable.pop_first();
            self.out.push(Output::ReadDone(read));
        }
    }

    /// Forgets reads that were given up.
    pub(super) fn forget_reads(&mut self, given_up: &[u64]) {
        let stays = |read: &u64| given_up.binary_search(read).is_err();
        let reads = &mut self.reads;
        reads.waiting.retain(stays);
        reads.reading.retain(stays);
        reads.groups.retain_mut(|group| {
            group.reads.retain(stays);
            !group.reads.is_empty()
        });
        reads.unstable.retain(|(_, read)| stays(read));
        if let Some(round) = &mut reads.round {
            round.reads.retain(stays);
        }
    }

    /// Handles the start of a generation: offsets have another meaning, and read results may be
    /// lost. Waiting reads ask again.
    pub(super) fn read_anew(&mut self) {
        let reads = &mut self.reads;
        let round = reads.round.take().map(|round| round.reads);
        reads.answers.clear();
        let groups = std::mem::take(&mut reads.groups);
        let later = groups.into_iter().flat_map(|group| group.reads);
        let later = later.chain(std::mem::take(&mut reads.reading));
        let unstable = std::mem::take(&mut reads.unstable);
        let later = later.chain(unstable.into_iter().map(|(_, read)| read));
        let asked = round.into_iter().flatten();
        reads.waiting.extend(asked.chain(later));
    }
}
