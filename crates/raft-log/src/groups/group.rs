//! One group: its Raft node, and the appends and fetches that wait for it.

use std::collections::BTreeMap;
use std::sync::Arc;

use cluster::{NodeId, SlotNumber};
use protobuf::Message as _;
use raft::eraftpb::{ConfChangeV2, Entry, EntryType, Message, MessageType};
use raft::{Config, RawNode, ReadState, SnapshotStatus, StateRole};

use super::storage::{GroupStorage, is_record};
use crate::disk::{DiskError, GroupWrite, LogDisk};
use crate::message::{AppendOutcome, AppendRequest, FetchRequest, Fetched, FoundRecord, Purpose};
use crate::options::{
    ELECTION_TICKS, FETCH_BYTES, HEARTBEAT_TICKS, IN_FLIGHT_MAX, MESSAGE_BYTES, RaftId,
    UNCOMMITTED_BYTES_MAX,
};

/// Processes whose last number is remembered.
const ORIGINS_MAX: usize = 64;

/// An append whose outcome is not known yet.
struct Waiting {
    /// The term in which it was proposed.
    term: u64,
    proposer: Proposer,
}

/// The process that appends, and its number of the append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Proposer {
    pub node: NodeId,
    pub origin: u64,
    pub sequence: u64,
}

/// A fetch at or beyond the end of the log, which waits.
pub(crate) struct Parked {
    pub request: FetchRequest,
    pub reader: Reader,
    pub wait: Wait,
    /// The tick at which it is answered anyway.
    pub until: u64,
}

/// The event that a fetch waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// The next record.
    Record,
    /// The confirmation of a majority that this node leads, with this number.
    Majority(u64),
    /// The delivery of the entry at this index.
    Delivery(u64),
}

/// The origin of a fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reader {
    /// This process.
    Here { number: u64 },
    /// Another node.
    There { node: NodeId, number: u64 },
}

/// The result of a search for records.
pub(crate) enum Search {
    Found(Fetched),
    /// There is no record yet.
    AtEnd,
    /// The log ends before, unless another node leads it now.
    Beyond,
    /// This node does not know.
    Unsure,
}

/// Messages and outcomes of groups.
#[derive(Default)]
pub(crate) struct Output {
    pub messages: Vec<(SlotNumber, Message)>,
    pub outcomes: Vec<(Proposer, AppendOutcome)>,
}

/// The work of a group that waits until its write is durable.
#[derive(Debug)]
pub(crate) struct AfterFlush {
    pub slot: SlotNumber,
    /// The number of Raft's `Ready`.
    pub ready: u64,
    /// Messages that must not be sent before.
    pub messages: Vec<Message>,
    /// The index and the term of the last entry that is written.
    pub last: Option<(u64, u64)>,
    /// The index of a snapshot that is installed.
    pub snapshot: Option<u64>,
    /// The vote or the term changes.
    pub is_vote: bool,
}

/// A group on this node.
pub(crate) struct Group<D: LogDisk> {
    pub slot: SlotNumber,
    pub node: RawNode<GroupStorage<D>>,
    pub parked: Vec<Parked>,
    /// Its state changed since the last write, in a way that needs no sync.
    pub is_dirty: bool,
    /// Entries before this index are to be removed from the disk.
    pub trim: Option<u64>,
    /// A majority of replicas has the records before this offset; 0 while that is not known.
    pub stable: u64,
    /// Ticks since the last work.
    pub idle_ticks: u64,
    /// The tick until which it sleeps: a leader until there is work.
    pub asleep_until: u64,
    /// By index.
    waiting: BTreeMap<u64, Waiting>,
    /// The last numbers of processes that appended here, by process.
    sequences: BTreeMap<u64, u64>,
    /// The number of the last request to a majority.
    confirmations: u64,
    /// Votes and terms that are being written.
    votes: usize,
}

impl<D: LogDisk> Group<D> {
    /// Opens a group.
    ///
    /// # Errors
    /// [`DiskError`].
    pub fn open(
        me: RaftId,
        slot: SlotNumber,
        disk: Arc<D>,
        logger: &slog::Logger,
    ) -> Result<Group<D>, DiskError> {
        let storage = GroupStorage::open(disk, slot)?;
        let config = Config {
            id: me,
            election_tick: ELECTION_TICKS,
            heartbeat_tick: HEARTBEAT_TICKS,
            applied: storage.state.applied,
            max_size_per_msg: MESSAGE_BYTES,
            max_inflight_msgs: IN_FLIGHT_MAX,
            check_quorum: true,
            pre_vote: true,
            max_uncommitted_size: UNCOMMITTED_BYTES_MAX,
            max_committed_size_per_ready: UNCOMMITTED_BYTES_MAX,
            ..Config::default()
        };
        let node = RawNode::new(&config, storage, logger);
        Ok(Group {
            slot,
            node: node.map_err(|e| DiskError::Damaged(e.to_string()))?,
            parked: vec![],
            is_dirty: false,
            trim: None,
            stable: 0,
            idle_ticks: 0,
            asleep_until: 0,
            waiting: BTreeMap::new(),
            sequences: BTreeMap::new(),
            confirmations: 0,
            votes: 0,
        })
    }

    /// Returns whether this node leads it.
    pub fn is_leader(&self) -> bool {
        self.node.raft.state == StateRole::Leader
    }

    /// Returns whether this node is a member, as far as it knows.
    pub fn is_member(&self) -> bool {
        let members = &self.node.store().state.members;
        let me = &self.node.raft.id;
        members.get_voters().contains(me)
            || members.get_learners().contains(me)
            || members.get_voters_outgoing().contains(me)
    }

    /// Returns whether an id is that of a member, as far as this node knows.
    pub fn has(&self, id: RaftId) -> bool {
        self.node.raft.prs().get(id).is_some()
    }

    /// Returns the id of its leader, if it is known. A node that left does not know it.
    pub fn leader(&self) -> Option<RaftId> {
        if !self.is_member() {
            return None;
        }
        let id = match self.is_leader() {
            true => self.node.raft.id,
            false => self.node.raft.leader_id,
        };
        (id != raft::INVALID_ID).then_some(id)
    }

    /// Returns whether a message is from the leader that this node follows.
    pub fn follows(&self, message: &Message) -> bool {
        let raft = &self.node.raft;
        !self.is_leader() && raft.leader_id == message.get_from() && raft.term == message.get_term()
    }

    /// Returns whether this node leads it, and has delivered all entries of earlier leaders that were
    /// committed.
    pub fn is_authority(&self) -> bool {
        self.is_leader() && self.node.raft.apply_to_current_term()
    }

    /// Returns the offset of the next record that is delivered.
    pub fn end(&self) -> u64 {
        let state = &self.node.store().state;
        state.offsets.after(state.applied)
    }

    /// Advances its clock. The library chooses random times for elections; these follow from the
    /// term, so that a simulation can be repeated.
    pub fn tick(&mut self) {
        if !self.can_campaign() {
            return;
        }
        let raft = &mut self.node.raft;
        let seed = raft.id ^ u64::from(self.slot).rotate_left(32) ^ raft.term.rotate_left(48);
        let mut random = fastrand::Rng::with_seed(seed);
        raft.set_randomized_election_timeout(random.usize(ELECTION_TICKS..2 * ELECTION_TICKS));
        self.node.tick();
    }

    /// Returns whether the library can start an election: it panics if it has not noted yet that a
    /// snapshot is on the disk, and if an only voter has entries that are not.
    fn can_campaign(&self) -> bool {
        let raft = &self.node.raft;
        let log = &raft.raft_log;
        let is_written = !raft.prs().is_singleton() || log.persisted >= log.last_index();
        let base = self.node.store().state.offsets.base();
        self.is_leader() || (is_written && log.applied >= base.index)
    }

    /// Handles a message of another member.
    pub fn step(&mut self, message: Message) {
        if message.get_msg_type() == MessageType::MsgTimeoutNow && !self.can_campaign() {
            return;
        }
        // Messages of nodes that are not members any more are refused; there is nothing to do.
        if let Err(e) = self.node.step(message) {
            tracing::debug!(slot = self.slot, "a message of the log was refused: {e}");
        }
    }

    /// Proposes a record. Returns its outcome if that is known now.
    pub fn propose(&mut self, request: AppendRequest, node: NodeId) -> Option<AppendOutcome> {
        if !self.is_leader() || self.node.raft.lead_transferee.is_some() {
            return Some(AppendOutcome::NotLeader(None));
        }
        let before = self.sequences.get(&request.origin).copied();
        if before.is_some_and(|before| before >= request.sequence) {
            // It was overtaken by a later one, or arrived twice.
            return Some(AppendOutcome::Unknown);
        }
        let mut entry = Entry::default();
        entry.set_data(request.record);
        let mut message = Message::default();
        message.set_msg_type(MessageType::MsgPropose);
        message.set_from(self.node.raft.id);
        message.set_entries(vec![entry].into());
        if self.node.step(message).is_err() {
            return Some(AppendOutcome::Refused);
        }
        if before.is_none() && self.sequences.len() >= ORIGINS_MAX {
            self.sequences.pop_first();
        }
        self.sequences.insert(request.origin, request.sequence);
        let proposer = Proposer {
            node,
            origin: request.origin,
            sequence: request.sequence,
        };
        let term = self.node.raft.term;
        let index = self.node.raft.raft_log.last_index();
        self.waiting.insert(index, Waiting { term, proposer });
        self.idle_ticks = 0;
        None
    }

    /// Takes the work that is ready. Its write, if there is one, must be durable before
    /// [`Group::finish`]; without one, earlier writes must be.
    ///
    /// # Errors
    /// The group cannot continue.
    pub fn begin(
        &mut self,
        output: &mut Output,
    ) -> Result<Option<(Option<GroupWrite>, AfterFlush)>, DiskError> {
        if !self.node.has_ready() {
            return Ok(None);
        }
        let mut ready = self.node.ready();
        let reset = !ready.snapshot().is_empty();
        if reset {
            self.node.mut_store().install(ready.snapshot())?;
            self.trim = None;
            for waiting in std::mem::take(&mut self.waiting).into_values() {
                output
                    .outcomes
                    .push((waiting.proposer, AppendOutcome::Unknown));
            }
        }
        self.note_majority(&ready.take_read_states());
        let mut messages = ready.take_messages();
        let entries = ready.take_entries();
        let committed = ready.take_committed_entries();
        let store = self.node.mut_store();
        store.append(&entries);
        let mut is_vote = false;
        if let Some(hard) = ready.hs() {
            let old = std::mem::replace(&mut store.state.hard, hard.clone());
            is_vote = old.get_term() != hard.get_term() || old.get_vote() != hard.get_vote();
            self.is_dirty = true;
        }
        if is_vote || !entries.is_empty() || !committed.is_empty() {
            self.idle_ticks = 0;
        }
        let last = entries
            .last()
            .map(|last| (last.get_index(), last.get_term()));
        let must_write = reset || ready.must_sync();
        let mut late = ready.take_persisted_messages();
        self.votes += usize::from(is_vote);
        if self.votes > 0 {
            // The only voter leads at once. Should it forget the term, it would use it for others.
            late.append(&mut messages);
        }
        let after = AfterFlush {
            slot: self.slot,
            ready: ready.number(),
            messages: late,
            last,
            snapshot: reset.then(|| ready.snapshot().get_metadata().get_index()),
            is_vote,
        };
        self.node.advance_append_async(ready);
        // A leader's entries go to others while they are written here.
        self.send(messages, output);
        self.apply(&committed, output);
        let write = must_write.then(|| self.write(reset, entries));
        Ok(Some((write, after)))
    }

    /// Continues after a flush.
    pub fn finish(&mut self, after: AfterFlush, output: &mut Output) {
        if let Some((index, term)) = after.last {
            self.node.mut_store().note_written(index, term);
        }
        self.votes -= usize::from(after.is_vote);
        self.node.on_persist_ready(after.ready);
        if let Some(index) = after.snapshot {
            self.node.advance_apply_to(index);
        }
        self.send(after.messages, output);
    }

    fn write(&mut self, reset: bool, entries: Vec<Entry>) -> GroupWrite {
        self.is_dirty = false;
        GroupWrite {
            slot: self.slot,
            reset,
            entries,
            trim: self.trim.take(),
            state: self.node.store().state.clone(),
        }
    }

    /// Returns a write of its state alone, if there is something to write.
    pub fn state_write(&mut self) -> Option<GroupWrite> {
        self.is_dirty.then(|| self.write(false, vec![]))
    }

    /// Searches records. `is_sure` if a majority confirmed after the request that this node leads.
    ///
    /// # Errors
    /// [`DiskError`].
    pub fn search(&self, request: &FetchRequest, is_sure: bool) -> Result<Search, DiskError> {
        let store = self.node.store();
        let state = &store.state;
        let (start, end) = (state.offsets.base().offset, self.end());
        let found = |records| Fetched::Found {
            start,
            end,
            records,
        };
        if state.members.get_voters().is_empty() {
            // It has not heard from the group yet.
            return Ok(Search::Unsure);
        }
        if request.from < start {
            // One that needed trimmed entries started later than others.
            return Ok(match self.is_leader() {
                true => Search::Found(found(vec![])),
                false => Search::Unsure,
            });
        }
        if request.from < end {
            let bytes_max = match request.purpose {
                Purpose::Follow => FETCH_BYTES,
                Purpose::ReadBack { .. } => 0,
            };
            let index = state.offsets.index_of(request.from);
            let entries = store.read(index, state.applied + 1, bytes_max)?;
            return Ok(Search::Found(found(records(&entries, request.from))));
        }
        let epoch = match request.purpose {
            Purpose::Follow if request.from == end => {
                return Ok(match self.leader() {
                    Some(_) => Search::AtEnd,
                    // New records may not come here any more.
                    None => Search::Unsure,
                });
            }
            Purpose::Follow => 0,
            Purpose::ReadBack { epoch } => epoch,
        };
        // Others may have more, or this node may have forgotten that it had.
        Ok(match self.is_authority() && self.node.raft.term >= epoch {
            _ if is_sure => Search::Found(found(vec![])),
            true => Search::Beyond,
            false => Search::Unsure,
        })
    }

    /// Requests the confirmation of a majority that this node leads. Without it a leader does not know
    /// that there is another one; one that sleeps would not notice it at all.
    pub fn confirm(&mut self) -> Wait {
        self.wake();
        self.confirmations += 1;
        let number = self.confirmations;
        self.node.read_index(number.to_le_bytes().to_vec());
        Wait::Majority(number)
    }

    fn note_majority(&mut self, states: &[ReadState]) {
        for state in states {
            for parked in &mut self.parked {
                if let Wait::Majority(number) = parked.wait
                    && state.request_ctx == number.to_le_bytes()
                {
                    parked.wait = Wait::Delivery(state.index);
                }
            }
        }
    }

    /// Returns whether a fetch has to wait no longer.
    pub fn is_due(&self, parked: &Parked, now: u64) -> bool {
        let is_over = match parked.wait {
            Wait::Record => parked.request.from != self.end(),
            Wait::Majority(_) => false,
            Wait::Delivery(index) => self.node.store().state.applied >= index,
        };
        is_over || parked.until <= now
    }

    /// Removes the records before an offset, as far as they were delivered here.
    pub fn trim_to(&mut self, offset: u64) {
        let store = self.node.mut_store();
        let offset = offset.min(store.state.offsets.after(store.state.applied));
        if offset <= store.state.offsets.base().offset {
            return;
        }
        let index = store.state.offsets.index_of(offset - 1);
        if store.trim(index) {
            self.trim = Some(index + 1);
            self.is_dirty = true;
        }
    }

    fn apply(&mut self, committed: &[Entry], output: &mut Output) {
        let Some(last) = committed.last().map(Entry::get_index) else {
            return;
        };
        for entry in committed {
            let index = entry.get_index();
            let state = &self.node.store().state;
            if let Some(waiting) = self.waiting.remove(&index) {
                let is_it = is_record(entry) && waiting.term == entry.get_term();
                let outcome = match is_it {
                    true => AppendOutcome::Stored(state.offsets.after(index) - 1),
                    // Another leader's entry is in its place, for good.
                    false => AppendOutcome::Refused,
                };
                output.outcomes.push((waiting.proposer, outcome));
            }
            if entry.get_entry_type() == EntryType::EntryConfChangeV2 {
                // A snapshot that is sent meanwhile has the members and the position of before.
                self.change_members(entry);
            }
            self.node.mut_store().state.applied = index;
        }
        self.is_dirty = true;
        self.node.advance_apply_to(last);
    }

    fn change_members(&mut self, entry: &Entry) {
        let mut change = ConfChangeV2::default();
        let read = change.merge_from_bytes(entry.get_data());
        let changed = match read {
            Ok(()) => self.node.apply_conf_change(&change),
            Err(e) => Err(raft::Error::ConfChangeError(e.to_string())),
        };
        match changed {
            Ok(members) => {
                tracing::debug!(slot = self.slot, ?members, "the log's members changed");
                self.node.mut_store().state.members = members;
                let is_member = self.is_member();
                let raft = &mut self.node.raft;
                if raft.state == StateRole::Leader && !is_member {
                    // An earlier leader proposed that it leaves. The library would panic when one that
                    // has left writes its next entry.
                    raft.become_follower(raft.term, raft::INVALID_ID);
                }
            }
            // All nodes refuse it in the same way.
            Err(e) => tracing::error!(slot = self.slot, "a change of members was refused: {e}"),
        }
    }

    fn send(&mut self, messages: Vec<Message>, output: &mut Output) {
        for message in messages {
            if message.get_msg_type() == MessageType::MsgSnapshot {
                // Should it be lost, the follower refuses the next entries, and gets another one.
                let to = message.get_to();
                self.node.report_snapshot(to, SnapshotStatus::Finish);
            }
            output.messages.push((self.slot, message));
        }
    }
}

/// Returns the records among entries, the first of which has this offset.
fn records(entries: &[Entry], from: u64) -> Vec<FoundRecord> {
    let found = entries.iter().filter(|entry| is_record(entry));
    found
        .zip(from..)
        .map(|(entry, offset)| FoundRecord {
            offset,
            epoch: entry.get_term(),
            bytes: entry.data.clone(),
        })
        .collect()
}
