//! One replica of a slot, as a state machine: inputs in, outputs out; no clock, thread, disk or
//! network.
//!
//! **Promise: whatever the log does, no acknowledged write is lost while a majority of the slot's
//! replicas survives.** The log may lose its end, or everything, return under another leader, be
//! damaged, or be read late.
//!
//! - A record counts as acknowledged when a majority has applied it, on disk, with equal chains ([`tracker`]).
//! - Before the first record of a new leader epoch a replica verifies that the log still contains its last record, and that a
//!   majority promises that it applied nothing that the new leader may have lost, and will not ([`fence`]). So two replicas never
//!   apply different records at one offset while both count toward majorities.
//! - When the log lost records that count, a *generation* starts: a majority is sealed, so that nothing more is acknowledged in
//!   the old one, and all continue from its latest state ([`generation`]). It is single-decree Paxos whose value is a state.
//! - A read asks a majority for its positions, waits until this replica has caught up, and returns its result once that is stable
//!   ([`reads`]).

mod encoding;
mod fence;
mod generation;
mod reads;
mod tracker;
mod types;

use std::collections::VecDeque;
use std::sync::Arc;

pub(crate) use encoding::{put_begun, put_fence, take_begun, take_fence};
pub use types::*;

use self::fence::Check;
use self::generation::Reseed;
use self::reads::Reads;
use self::tracker::Tracker;
use crate::position::{Generation, NodeId, Position};

/// Leader epochs kept to answer others' questions.
const EPOCHS_MAX: usize = 64;
/// Damaged reads of one record before the replica halts for a while.
const DAMAGED_MAX: u32 = 3;
/// Ticks between checks of the log while a replica waits for a copy: the log may have been read
/// late.
const LOOK_AGAIN_TICKS: u32 = 3;
/// After this many copies refused because of its promises, a replica starts a generation.
const REFUSED_MAX: u32 = 6;
/// Ticks within which a generation that a replica is sealed for has started, or did not.
const SEALED_TICKS_MAX: u32 = 50;
/// Ticks before a replica that does not advance starts a generation. One that the others can do
/// without waits the longer time; replicas add further ticks each, so that one is first.
const WAITED_TICKS: u32 = 20;
const LEFT_TICKS: u32 = 100;
const OWN_TICKS: u32 = 20;

/// Rules of the protocol that can be disabled, to test that the simulator detects it.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    pub fence: bool,
    pub stable_reads: bool,
    pub majority: bool,
    pub seal: bool,
    pub later_leader: bool,
}

impl Default for Rules {
    fn default() -> Rules {
        Rules {
            fence: true,
            stable_reads: true,
            majority: true,
            seal: true,
            later_leader: true,
        }
    }
}

/// The current activity.
#[derive(Debug)]
enum Phase {
    /// Applies records as they arrive.
    Running,
    /// Verifies that the log still matches.
    Checking(Check),
    /// Does not advance.
    Halted(Reason),
    /// The start of a generation is being written.
    Adopting,
    /// Its state is being replaced.
    Copying,
}

/// A replica.
#[derive(Debug)]
pub struct Replica {
    me: NodeId,
    rules: Rules,
    /// The durable state.
    saved: DurableState,
    /// The cursor after everything handed out to be applied.
    issued: Cursor,
    /// The cursors between the two, oldest first.
    under_way: VecDeque<Cursor>,
    phase: Phase,
    tracker: Tracker,
    reads: Reads,
    /// A generation that this replica starts.
    reseed: Option<Reseed>,
    /// Ticks until it may start another one on its own.
    reseed_after: u32,
    /// The latest generation, started or not, that others mentioned.
    seen: Generation,
    /// The node that waits for the answer to a seal, until everything handed out is applied.
    sealing: Option<(NodeId, Generation)>,
    /// A started generation that waits for the same.
    beginning: Option<GenerationStartRecord>,
    /// Ticks of waiting for a copy.
    halted_ticks: u32,
    /// A copy is being installed, and must not be queried any more: nothing is promised meanwhile.
    installing: bool,
    /// A generation is to be started once the result of a copy is known.
    reseed_after_copy: bool,
    /// Copies refused because of its promises.
    refused: u32,
    /// Ticks since it was sealed.
    sealed_ticks: u32,
    /// Damaged reads of one record.
    damaged: u32,
    /// Nodes that may have a copy.
    known: Vec<NodeId>,
    out: Vec<Output>,
    /// Messages to itself.
    own: VecDeque<Message>,
}

impl Replica {
    /// Creates a replica from its durable state. `start` is a random number that distinguishes
    /// answers to questions from before a crash from answers to new ones.
    pub fn new(me: NodeId, start: u64, saved: DurableState) -> (Replica, Vec<Output>) {
        Replica::with_rules(me, start, saved, Rules::default())
    }

    #[doc(hidden)]
    pub fn with_rules(
        me: NodeId,
        start: u64,
        saved: DurableState,
        rules: Rules,
    ) -> (Replica, Vec<Output>) {
        let mut replica = Replica {
            me,
            rules,
            issued: saved.cursor.clone(),
            tracker: Tracker::new(&saved.cursor.position),
            saved,
            under_way: VecDeque::new(),
            phase: Phase::Copying,
            reads: Reads::new(start),
            reseed: None,
            reseed_after: 0,
            seen: Generation::default(),
            sealing: None,
            beginning: None,
            halted_ticks: 0,
            installing: false,
            reseed_after_copy: false,
            refused: 0,
            sealed_ticks: 0,
            damaged: 0,
            known: vec![],
            out: vec![],
            own: VecDeque::new(),
        };
        replica.start();
        let out = std::mem::take(&mut replica.out);
        (replica, out)
    }

    /// Handles an input; returns the outputs to carry out, in order.
    pub fn handle(&mut self, input: Input) -> Vec<Output> {
        self.take(input);
        while let Some(message) = self.own.pop_front() {
            self.message(self.me, message);
        }
        std::mem::take(&mut self.out)
    }

    fn take(&mut self, input: Input) {
        match input {
            Input::Record(record) => self.record(record),
            Input::NoRecord { start, end } => self.no_record(start, end),
            Input::ReadBack { offset, found } => self.read_back(offset, found),
            Input::Applied {
                generation,
                next_offset,
            } => self.applied(generation, next_offset),
            Input::Message { from, message } => self.message(from, message),
            Input::Tick => self.tick(),
            Input::Read(read) => self.read(read),
            Input::WasRead {
                read,
                generation,
                next_offset,
            } => self.was_read(read, generation, next_offset),
            Input::GivenUp(reads) => self.forget_reads(&reads),
            Input::Reseed => self.begin_reseed(),
            Input::Known(nodes) => self.known = nodes,
            Input::Appended { generation, offset } => self.begin_appended(generation, offset),
            Input::Copied(cursor) => self.copied(cursor),
            Input::CopyRefused => self.copy_refused(),
            Input::Lacking(ticks) => self.lack(ticks),
        }
    }

    /// Returns the generation in which records are written now; `None` while nothing should be
    /// proposed here.
    pub fn proposes_in(&self) -> Option<Generation> {
        let runs = matches!(self.phase, Phase::Running) && !self.is_sealed();
        runs.then_some(self.issued.position.generation)
    }

    /// Returns the record header that changes the slot's replicas to `members`; `None` while that
    /// is impossible, or when it is not a change by one node.
    pub fn change_replicas(&self, members: Vec<NodeId>) -> Option<Header> {
        let (generation, cursor) = (self.proposes_in()?, &self.issued);
        let (stable, epoch) = (self.tracker.stable, cursor.last?.epoch);
        let begun = cursor.epochs.iter().find(|(of, _)| *of == epoch);
        // The last change is stable, and so is a record of this leader.
        let is_settled = stable >= cursor.replicas_at && begun.is_some_and(|(_, at)| stable > *at);
        (is_settled && is_one_change(&cursor.members, &members)).then_some(Header {
            generation,
            kind: Kind::Replicas {
                members,
                after: cursor.replicas_at,
                epoch,
            },
        })
    }

    /// Returns the durable state.
    pub fn saved(&self) -> &DurableState {
        &self.saved
    }

    /// Returns the offset before which a majority has everything on disk, in its generation.
    pub fn stable(&self) -> u64 {
        self.tracker.stable
    }

    /// Returns the number of replicas that have everything before this offset on disk, including
    /// itself.
    pub fn durable_at(&self, next_offset: u64) -> usize {
        let is = |n: &&NodeId| self.durable_of(**n) >= next_offset;
        self.saved.cursor.members.iter().filter(is).count()
    }

    /// Returns why it does not advance, if so.
    pub fn halted(&self) -> Option<Reason> {
        match self.phase {
            Phase::Halted(reason) => Some(reason),
            _ => None,
        }
    }

    fn position(&self) -> &Position {
        &self.saved.cursor.position
    }

    fn generation(&self) -> Generation {
        self.issued.position.generation
    }

    /// Returns whether it has promised to apply nothing more in its generation.
    fn is_sealed(&self) -> bool {
        self.rules.seal && self.saved.promises.sealed > self.generation()
    }

    fn is_drained(&self) -> bool {
        self.under_way.is_empty()
    }

    fn send(&mut self, to: NodeId, message: Message) {
        match to == self.me {
            true => self.own.push_back(message),
            false => self.out.push(Output::Send { to, message }),
        }
    }

    /// Sends to all replicas, including itself.
    fn send_all(&mut self, message: &Message) {
        let members = Arc::clone(&self.issued.members);
        for to in members.iter() {
            self.send(*to, message.clone());
        }
    }

    fn send_others(&mut self, message: &Message) {
        let members = Arc::clone(&self.issued.members);
        for to in members.iter().filter(|n| **n != self.me) {
            self.out.push(Output::Send {
                to: *to,
                message: message.clone(),
            });
        }
    }

    fn halt(&mut self, reason: Reason) {
        if self.halted() != Some(reason) {
            self.out.push(Output::Halted(reason));
        }
        self.phase = Phase::Halted(reason);
    }

    fn fetch(&mut self) {
        let from = self.issued.position.next_offset;
        self.out.push(Output::Fetch { from });
    }

    fn record(&mut self, record: LogRecord) {
        let next = self.issued.position.next_offset;
        let runs = matches!(self.phase, Phase::Running) && self.beginning.is_none();
        if !runs || self.is_sealed() || record.offset < next {
            return;
        }
        if record.log != self.issued.log {
            return self.halt(Reason::Replaced);
        }
        if record.offset > next {
            return self.fetch();
        }
        let Some(header) = &record.header else {
            return self.damaged();
        };
        self.damaged = 0;
        if self.is_fenced(&record) {
            // The log's reader lags, and will later find what the newer leader wrote; or the log
            // went back to another history.
            return self.halt(Reason::Replaced);
        }
        let epoch = self.issued.position.leader_epoch;
        if record.epoch < epoch {
            return self.halt(Reason::Replaced);
        }
        if record.epoch > epoch && self.rules.fence {
            return self.check(Some(record.epoch));
        }
        self.follow(&record, header);
    }

    fn damaged(&mut self) {
        self.damaged += 1;
        match self.damaged < DAMAGED_MAX {
            true => self.fetch(),
            false => self.halt(Reason::Corrupt),
        }
    }

    /// Applies the next record, which has passed all checks.
    fn follow(&mut self, record: &LogRecord, header: &Header) {
        let generation = self.generation();
        if header.generation > generation {
            // A majority is sealed. The node that started it announces where it continues: the log
            // may contain the same start twice.
            self.send_others(&Message::AskBegun);
            return self.halt(Reason::Elsewhere);
        }
        let mut cursor = self.issued.clone();
        cursor.position = cursor
            .position
            .after(record.offset, record.epoch, &record.hash);
        cursor.last = Some(LastRecord {
            epoch: record.epoch,
            hash: record.hash,
        });
        if cursor
            .epochs
            .last()
            .is_none_or(|(epoch, _)| *epoch < record.epoch)
        {
            let epochs = Arc::make_mut(&mut cursor.epochs);
            epochs.push((record.epoch, record.offset));
            if epochs.len() > EPOCHS_MAX {
                epochs.remove(0);
            }
        }
        let is_current = header.generation == generation;
        if is_current
            && let Kind::Replicas {
                members,
                after,
                epoch,
            } = &header.kind
            && record.epoch == *epoch
        {
            change_members(&mut cursor, members, *after);
        }
        if !Arc::ptr_eq(&cursor.members, &self.issued.members) {
            self.tracker.change(&self.issued.members, &cursor.members);
        }
        self.issue(is_current && header.kind == Kind::Data, cursor);
    }

    fn issue(&mut self, data: bool, cursor: Cursor) {
        self.issued = cursor.clone();
        self.under_way.push_back(cursor.clone());
        self.tracker.note_own(&cursor.position);
        let cursor = Box::new(cursor);
        self.out.push(Output::Apply { data, cursor });
    }

    fn applied(&mut self, generation: Generation, next_offset: u64) {
        let is_applied = |cursor: &Cursor| {
            let position = &cursor.position;
            position.generation == generation && position.next_offset <= next_offset
        };
        let count = self.under_way.iter().take_while(|c| is_applied(c)).count();
        let Some(cursor) = self.under_way.drain(..count).next_back() else {
            // A repetition.
            return;
        };
        self.saved.cursor = cursor;
        self.tell_durable();
        self.count_stable();
        self.go_on_reading();
        if self.is_drained() {
            if matches!(self.phase, Phase::Adopting) {
                self.start();
            }
            if let Some((to, ballot)) = self.sealing.take() {
                self.answer_seal(to, ballot);
            }
            if let Some(begun) = self.beginning.take() {
                self.begun(begun);
            }
        }
    }

    fn no_record(&mut self, start: u64, end: u64) {
        let next = self.issued.position.next_offset;
        if !matches!(self.phase, Phase::Running) {
            return;
        }
        if end < next {
            self.halt(Reason::Truncated);
        } else if start > next {
            self.halt(Reason::Trimmed);
        }
    }

    fn message(&mut self, from: NodeId, message: Message) {
        match message {
            Message::Durable { position, stable } => self.durable(from, position, stable),
            Message::AskFence(fence) => self.ask_fence(from, fence),
            Message::FenceAnswer { fence, promised } => self.fence_answer(from, fence, promised),
            Message::AskPosition { round } => self.tell_position(from, round),
            Message::PositionIs {
                round,
                generation,
                next_offset,
            } => self.position_is(from, round, generation, next_offset),
            Message::Seal(ballot) => self.seal(from, ballot),
            Message::Sealed {
                ballot,
                position,
                members,
            } => self.sealed(from, ballot, position, members),
            Message::SealRefused { sealed } => self.seal_refused(sealed),
            Message::Begun(begun) => self.begun(*begun),
            Message::AskBegun => self.tell_begun(from),
            Message::AskCopy {
                position,
                sealed,
                waited,
            } => self.ask_copy(from, &position, sealed, waited),
            Message::CopyGranted { position, sealed } => {
                self.copy_granted(from, &position, sealed);
            }
        }
    }

    fn tick(&mut self) {
        // A slot with one replica gets no reports that would make it count.
        self.count_stable();
        self.tell_at_tick();
        self.ask_again_reading();
        self.reseed_after = self.reseed_after.saturating_sub(1);
        self.go_on_reseeding();
        self.sealed_ticks = match self.is_sealed() {
            true => self.sealed_ticks + 1,
            false => 0,
        };
        self.begin_if_left();
        match &self.phase {
            Phase::Copying | Phase::Adopting => {}
            Phase::Running if self.sealed_ticks < SEALED_TICKS_MAX => self.halted_ticks = 0,
            // The generation did not start: replicas that continue without this one are notified.
            Phase::Running => self.ask_for_copy(self.sealed_ticks),
            Phase::Checking(_) => {
                self.check_again();
                self.halted_ticks += 1;
                if self.halted_ticks >= SEALED_TICKS_MAX {
                    // Others, or the log, may be unreachable, which neither a generation nor a copy
                    // would fix. Unless the replicas that are waited for are no longer replicas.
                    let is_new = !self.issued.members.contains(&self.me);
                    self.ask_for_copy(if is_new { self.halted_ticks } else { 0 });
                }
            }
            Phase::Halted(reason) => {
                // A whole slot is not copied for a content that may still arrive.
                let may_arrive = *reason == Reason::Lacking && self.halted_ticks + 1 < WAITED_TICKS;
                self.halted_ticks += 1;
                if !may_arrive {
                    self.ask_for_copy(self.halted_ticks);
                }
                // It may have been the reader's fault, or be repaired.
                if self.halted_ticks.is_multiple_of(LOOK_AGAIN_TICKS) {
                    self.start();
                }
            }
        }
    }

    /// Handles a record that cannot be applied here, because a majority lacks contents that it names.
    /// Replicas that applied it before do not need them any more, and can be copied. If none can, a
    /// generation starts after some time. That loses nothing acknowledged, whatever is missing: if a
    /// majority has applied the record, one of them is sealed, and the state that all continue from
    /// includes it. Otherwise it was not acknowledged.
    fn lack(&mut self, ticks: u32) {
        if matches!(self.phase, Phase::Running | Phase::Checking(_)) && !self.is_sealed() {
            self.halt(Reason::Lacking);
            self.halted_ticks = ticks;
        }
    }

    /// Starts a generation when no other node seems to: one that it is sealed for did not start,
    /// promises without effect keep it from the log's records, or no node has the contents that a
    /// record names.
    fn begin_if_left(&mut self) {
        let is_member = self.issued.members.contains(&self.me);
        let own = self.own_ticks();
        let is_stuck = matches!(self.phase, Phase::Halted(Reason::Ahead | Reason::Lacking));
        let is_left = self.sealed_ticks >= LEFT_TICKS + own
            || is_stuck && self.halted_ticks >= LEFT_TICKS + own;
        if is_left && is_member && self.reseed.is_none() && self.reseed_after == 0 {
            self.begin_reseed();
        }
    }

    /// Replicas wait for different times, so that one is first.
    fn own_ticks(&self) -> u32 {
        let before = self.issued.members.iter().filter(|n| **n < self.me);
        before.count() as u32 * OWN_TICKS
    }

    fn ask_for_copy(&mut self, waited: u32) {
        let ask = Message::AskCopy {
            position: *self.position(),
            sealed: self.saved.promises.sealed,
            waited,
        };
        self.send_others(&ask);
        if self.issued.members.contains(&self.me) {
            return;
        }
        let others = self.known.iter().filter(|n| **n != self.me);
        let others = others.filter(|n| !self.issued.members.contains(n));
        for to in others.copied().collect::<Vec<_>>() {
            self.send(to, ask.clone());
        }
    }

    /// Handles the request of a node to replace its state by this one's. It may if no
    /// record that only it has can have been acknowledged: its state is a prefix of this one, or a
    /// majority is ahead, in the same history or another.
    fn ask_copy(&mut self, from: NodeId, theirs: &Position, sealed: Generation, waited: u32) {
        let mine = self.position();
        let later = mine.generation > theirs.generation && mine.generation >= sealed;
        let is_part = mine.next_offset > theirs.next_offset
            && self.tracker.chains.at(theirs.next_offset) == Some(&theirs.chain);
        // A replica that only waits for the log, or for others, sends 0, and needs no copy.
        let further = waited > 0
            && mine.generation == theirs.generation
            && mine.generation >= sealed
            && (is_part || self.tracker.stable >= theirs.next_offset)
            && (mine.next_offset, mine.chain) != (theirs.next_offset, theirs.chain);
        let is_whole = matches!(self.phase, Phase::Running | Phase::Checking(_));
        if is_whole && (later || further) {
            let position = *theirs;
            return self.send(from, Message::CopyGranted { position, sealed });
        }
        // It is sealed for a generation that never started, or there is no majority without it, or
        // nothing is written that would allow a copy: a new generation includes it again. Not for a
        // reader that lagged for a moment.
        let helps = waited >= WAITED_TICKS
            && (sealed > mine.generation || self.tracker.stuck_ticks >= WAITED_TICKS)
            || waited >= LEFT_TICKS
                && theirs.generation == mine.generation
                && theirs.next_offset > self.tracker.stable;
        let members = &self.issued.members;
        let is_left_out = helps && members.contains(&from) && members.contains(&self.me);
        if is_left_out && self.proposes_in().is_some() && self.reseed_after == 0 {
            self.seen = self.seen.max(sealed);
            self.begin_reseed();
        }
    }

    fn copy_granted(&mut self, from: NodeId, asked: &Position, sealed: Generation) {
        // A grant may arrive late.
        let is_same = asked == self.position() && sealed == self.saved.promises.sealed;
        let waits = matches!(self.phase, Phase::Halted(_) | Phase::Checking(_));
        if is_same && waits && self.is_drained() {
            self.phase = Phase::Copying;
            self.out.push(Output::Copy { from });
        }
    }

    /// Returns whether its promises allow its state to be replaced by one with this cursor. Must be
    /// called before that: the other replica has advanced since it granted the copy. If so, nothing
    /// is promised until [`Input::Copied`] reports the result.
    pub fn may_become(&mut self, cursor: &Cursor) -> bool {
        let (generation, promises) = (cursor.position.generation, &self.saved.promises);
        let breaks = |fence: &Fence| fence.generation == generation && fence.is_broken_by(cursor);
        let may = generation >= promises.sealed.max(self.position().generation)
            && !promises.fences.iter().any(breaks);
        self.installing = may;
        may
    }

    /// The others followed a leader that this replica promised another not to follow, for one that
    /// did not get a majority. A new generation ends promises.
    fn copy_refused(&mut self) {
        self.refused += 1;
        self.start();
        let has_waited = self.refused >= REFUSED_MAX && self.reseed_after == 0;
        if std::mem::take(&mut self.reseed_after_copy) || has_waited {
            self.refused = 0;
            self.begin_reseed();
        }
    }

    fn copied(&mut self, cursor: Option<Cursor>) {
        self.installing = false;
        if let Some(cursor) = cursor {
            self.refused = 0;
            self.saved.cursor = cursor.clone();
            self.issued = cursor;
            self.tracker = Tracker::new(&self.issued.position);
            self.read_anew();
        }
        self.start();
        if std::mem::take(&mut self.reseed_after_copy) {
            self.begin_reseed();
        }
    }

    /// Verifies that the log is the one that was applied, and follows it.
    fn start(&mut self) {
        self.check(None);
    }
}

/// Applies a change of the set by one node, on top of the change that its writer knew to be stable.
fn change_members(cursor: &mut Cursor, members: &[NodeId], after: u64) {
    if cursor.replicas_at == after && is_one_change(&cursor.members, members) {
        cursor.members = Arc::new(members.to_vec());
        cursor.replicas_at = cursor.position.next_offset;
    }
}

fn is_one_change(before: &[NodeId], after: &[NodeId]) -> bool {
    let new = after.iter().filter(|n| !before.contains(n)).count();
    let gone = before.iter().filter(|n| !after.contains(n)).count();
    let is_twice = |i: usize| after[..i].contains(&after[i]);
    new + gone == 1 && !after.is_empty() && !(0..after.len()).any(is_twice)
}
