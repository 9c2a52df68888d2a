//! A new generation: the state from which all replicas continue after the log lost records that
//! count.
//!
//! The node that starts one picks a ballot greater than any it knows, gets a majority sealed for
//! it, takes the latest state among the sealed replicas, and writes a record that names that state.
//! Acknowledged records are on a majority, which shares a replica with the sealed one, and
//! sealed replicas acknowledge nothing more in older generations: so the latest of their states
//! contains all of it. Replicas in that state continue; others are replaced by copies of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{
    Cursor, GenerationStart, GenerationStartRecord, Kind, LastRecord, Message, Output, Phase,
    ReadBackResult, Reason, Replica,
};
use crate::position::{Generation, NodeId, Position, link};

/// Ticks after which an unfinished start is abandoned: an operator may start again.
const TICKS_MAX: u32 = 40;

/// A generation that this replica starts.
#[derive(Debug)]
pub(super) struct Reseed {
    ballot: Generation,
    sealed: BTreeMap<NodeId, (Position, Vec<NodeId>)>,
    begin: Option<GenerationStart>,
    /// The offset of the start record, according to the log.
    appended: Option<u64>,
    begun: Option<GenerationStartRecord>,
    ticks: u32,
}

impl Replica {
    pub(super) fn begin_reseed(&mut self) {
        if matches!(self.phase, Phase::Copying) {
            // The state that its own seal would vouch for is being replaced.
            self.reseed_after_copy = true;
            return;
        }
        let known = [
            self.saved.promises.sealed.number,
            self.generation().number,
            self.seen.number,
            self.tracker.highest_generation().number,
        ];
        let ballot = Generation {
            number: known.into_iter().max().unwrap_or(0) + 1,
            by: self.me,
        };
        self.reseed_after = 2 * TICKS_MAX + self.own_ticks();
        self.reseed = Some(Reseed {
            ballot,
            sealed: BTreeMap::new(),
            begin: None,
            appended: None,
            begun: None,
            ticks: 0,
        });
        // This replica first, so that the ballot is on disk: no ballot is used twice.
        self.seal(self.me, ballot);
        self.send_others(&Message::Seal(ballot));
    }

    pub(super) fn seal(&mut self, from: NodeId, ballot: Generation) {
        let sealed = self.saved.promises.sealed.max(self.generation());
        if ballot < sealed || matches!(self.phase, Phase::Copying) {
            return self.send(from, Message::SealRefused { sealed });
        }
        if ballot > self.saved.promises.sealed {
            self.saved.promises.sealed = ballot;
            // A node is starting it.
            self.sealed_ticks = 0;
            let promises = self.saved.promises.clone();
            self.out.push(Output::Promise(promises));
        }
        match self.is_drained() {
            true => self.answer_seal(from, ballot),
            false => self.sealing = Some((from, ballot)),
        }
    }

    pub(super) fn answer_seal(&mut self, to: NodeId, ballot: Generation) {
        if self.saved.promises.sealed != ballot || self.generation() >= ballot {
            return;
        }
        let position = *self.position();
        let members = self.saved.cursor.members.to_vec();
        let answer = Message::Sealed {
            ballot,
            position,
            members,
        };
        self.send(to, answer);
    }

    pub(super) fn sealed(
        &mut self,
        from: NodeId,
        ballot: Generation,
        position: Position,
        members: Vec<NodeId>,
    ) {
        let Some(reseed) = &mut self.reseed else {
            return;
        };
        if reseed.ballot != ballot || reseed.begin.is_some() {
            return;
        }
        reseed.sealed.insert(from, (position, members));
        let latest = reseed
            .sealed
            .values()
            .max_by_key(|(position, _)| position.rank());
        let Some((base, members)) = latest.cloned() else {
            return;
        };
        // A ballot that is not on this disk might be used again after a crash, with another state.
        if !reseed.sealed.contains_key(&self.me) {
            return;
        }
        // A majority of the replicas of that state.
        let of_them = members.iter().filter(|n| reseed.sealed.contains_key(n));
        if of_them.count() < members.len() / 2 + 1 {
            for to in members {
                if to != self.me && !self.issued.members.contains(&to) {
                    self.send(to, Message::Seal(ballot));
                }
            }
            return;
        }
        let begin = GenerationStart {
            generation: ballot,
            base,
            members,
        };
        reseed.begin = Some(begin.clone());
        self.out.push(Output::Append(begin));
    }

    pub(super) fn seal_refused(&mut self, sealed: Generation) {
        self.seen = self.seen.max(sealed);
        if self.reseed.as_ref().is_some_and(|r| r.ballot < sealed) {
            self.reseed = None;
        }
    }

    pub(super) fn begin_appended(&mut self, generation: Generation, offset: u64) {
        if let Some(reseed) = &mut self.reseed
            && reseed.ballot == generation
            && reseed.appended.is_none()
        {
            reseed.appended = Some(offset);
            self.out.push(Output::ReadBack { offset, epoch: -1 });
        }
    }

    /// The log's acknowledgement is not enough: the record has to be readable.
    pub(super) fn find_begin(&mut self, offset: u64, found: &ReadBackResult) {
        let Some(reseed) = &mut self.reseed else {
            return;
        };
        let (Some(begin), ReadBackResult::Record(record)) = (&reseed.begin, found) else {
            return;
        };
        if reseed.begun.is_some() {
            // It counts at one offset only, wherever else it is in the log.
            return;
        }
        let kind = record.header.as_ref().map(|header| &header.kind);
        let is_it = matches!(kind, Some(Kind::Begin(there)) if **there == *begin);
        if reseed.appended != Some(offset) || !is_it {
            return;
        }
        let begun = GenerationStartRecord {
            begin: begin.clone(),
            log: record.log,
            offset,
            epoch: record.epoch,
            hash: record.hash,
        };
        reseed.begun = Some(begun);
        self.tell_of_beginning();
    }

    /// Notifies the replicas and all sealed nodes: the base state may be that of a node outside
    /// the generation's replicas, and is copied from there.
    fn tell_of_beginning(&mut self) {
        let Some(reseed) = &self.reseed else { return };
        let Some(begun) = reseed.begun.clone() else {
            return;
        };
        let mut all: BTreeSet<NodeId> = reseed.sealed.keys().copied().collect();
        all.extend(&begun.begin.members);
        for to in all {
            self.send(to, Message::Begun(Box::new(begun.clone())));
        }
    }

    pub(super) fn go_on_reseeding(&mut self) {
        let Some(reseed) = &mut self.reseed else {
            return;
        };
        reseed.ticks += 1;
        if reseed.ticks > TICKS_MAX {
            self.reseed = None;
            return;
        }
        let ballot = reseed.ballot;
        match (&reseed.begun, reseed.appended, &reseed.begin) {
            (Some(_), _, _) => self.tell_of_beginning(),
            (None, Some(offset), _) => self.out.push(Output::ReadBack { offset, epoch: -1 }),
            // Whether it was appended is unknown. If so, no replica continues from it on its own.
            (None, None, Some(_)) => {}
            (None, None, None) => self.send_all(&Message::Seal(ballot)),
        }
    }

    pub(super) fn tell_begun(&mut self, to: NodeId) {
        if let Some(begun) = self.saved.cursor.begun.clone() {
            self.send(to, Message::Begun(Box::new((*begun).clone())));
        }
    }

    /// Handles the start of a generation.
    pub(super) fn begun(&mut self, begun: GenerationStartRecord) {
        let generation = begun.begin.generation;
        let is_late = generation <= self.generation() || generation < self.saved.promises.sealed;
        if is_late || matches!(self.phase, Phase::Copying | Phase::Adopting) {
            return;
        }
        if !self.is_drained() {
            // Nothing more is handed out before it is known from which state to continue.
            self.beginning = Some(begun);
            return;
        }
        let (own, base) = (self.position(), &begun.begin.base);
        let is_here = own.generation == base.generation
            && own.next_offset == base.next_offset
            && own.chain == base.chain;
        if !is_here {
            return self.halt(Reason::Elsewhere);
        }
        self.adopt(begun);
    }

    fn adopt(&mut self, begun: GenerationStartRecord) {
        let cursor = Cursor {
            position: Position {
                generation: begun.begin.generation,
                next_offset: begun.offset + 1,
                leader_epoch: begun.epoch,
                chain: link(&begun.begin.base.chain, begun.epoch, &begun.hash),
            },
            log: begun.log,
            last: Some(LastRecord {
                epoch: begun.epoch,
                hash: begun.hash,
            }),
            epochs: Arc::new(vec![(begun.epoch, begun.offset)]),
            members: Arc::new(begun.begin.members.clone()),
            replicas_at: begun.offset + 1,
            begun: Some(Arc::new(begun)),
        };
        self.tracker.restart();
        self.read_anew();
        self.phase = Phase::Adopting;
        self.issue(false, cursor);
    }
}
