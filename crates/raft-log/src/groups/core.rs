//! The groups of a node: time, messages, and groups that are opened or halted.

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use cluster::{NodeId, SlotNumber};
use raft::eraftpb::Message;

use super::appends::Appends;
use super::fetches::Fetches;
use super::group::{Group, Output, Reader};
use crate::disk::{DiskError, GroupWrite, LogDisk};
use crate::figures::LogFigures;
use crate::message::{AppendOutcome, Fetched, NodeMessage};
use crate::options::{BEAT_TICKS, LogNode, Options, RaftId, SILENT_TICKS, STALL_TICKS};
use crate::state::GroupState;

/// The reason why the groups of a node cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum CoreError {
    /// The disk.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The disk has another id than the options.
    #[error("the log's disk has the id {disk:x}, where {expected:x} was expected")]
    OtherDisk {
        /// The id of the disk.
        disk: RaftId,
        /// The id of the options.
        expected: RaftId,
    },
}

/// An order to the driver.
#[derive(Debug)]
pub enum Effect {
    /// Send a message to another node. It may be lost.
    Send {
        /// The node.
        to: NodeId,
        /// The message.
        message: NodeMessage,
    },
    /// Report the outcome of an append.
    Appended {
        /// Its number.
        number: u64,
        /// Its outcome.
        outcome: AppendOutcome,
    },
    /// Report the answer to a fetch.
    Fetched {
        /// Its number.
        number: u64,
        /// The answer.
        fetched: Fetched,
    },
}

/// Faults that the simulation must find.
#[cfg(test)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Mutant {
    /// No fault.
    #[default]
    None,
    /// Confirms entries before they are synced.
    ConfirmsBeforeSync,
    /// Sends votes before they are synced.
    VotesBeforeSync,
}

/// All groups of a node.
pub struct Core<D: LogDisk> {
    pub(super) options: Options,
    pub(super) disk: Arc<D>,
    pub(super) logger: slog::Logger,
    pub(super) groups: BTreeMap<SlotNumber, Group<D>>,
    /// Groups that cannot continue, with the reasons.
    pub(super) halted: BTreeMap<SlotNumber, String>,
    /// The log nodes of the cluster; empty while they are not known.
    pub(super) log_nodes: Vec<LogNode>,
    /// The nodes of ids, as far as they are known.
    pub(super) nodes: BTreeMap<RaftId, NodeId>,
    /// The ticks at which nodes were heard last.
    pub(super) heard: BTreeMap<NodeId, u64>,
    pub(super) now: u64,
    pub(super) appends: Appends,
    pub(super) fetches: Fetches,
    pub(super) effects: Vec<Effect>,
    /// The ticks at which flushes began that have not ended.
    pub(super) flushes: VecDeque<u64>,
    #[cfg(test)]
    pub(crate) mutant: Mutant,
}

impl<D: LogDisk> Core<D> {
    /// Opens the groups that are on the disk.
    ///
    /// # Errors
    /// [`CoreError`].
    pub fn open(options: Options, disk: Arc<D>) -> Result<Core<D>, CoreError> {
        let found = disk.raft_id()?;
        if found != options.me.raft {
            return Err(CoreError::OtherDisk {
                disk: found,
                expected: options.me.raft,
            });
        }
        let mut core = Core {
            nodes: BTreeMap::from([(options.me.raft, options.me.node)]),
            fetches: Fetches::of_process(options.origin),
            options,
            disk,
            logger: crate::logger::logger(),
            groups: BTreeMap::new(),
            halted: BTreeMap::new(),
            log_nodes: vec![],
            heard: BTreeMap::new(),
            now: 0,
            appends: Appends::default(),
            effects: vec![],
            flushes: VecDeque::new(),
            #[cfg(test)]
            mutant: Mutant::None,
        };
        let slots = (0..core.options.slots).chain([cluster::CONTROL]);
        for slot in slots {
            match core.disk.group(slot) {
                Ok(None) => {}
                Ok(Some(_)) => core.open_group(slot),
                Err(DiskError::Damaged(why)) => core.halt(slot, why),
                Err(e) => return Err(e.into()),
            }
        }
        Ok(core)
    }

    /// Creates all groups, with this node as their only member: called once, by the first node of a
    /// new cluster. Existing groups stay.
    ///
    /// # Errors
    /// [`CoreError`].
    pub fn create_groups(&mut self) -> Result<(), CoreError> {
        let slots = (0..self.options.slots).chain([cluster::CONTROL]);
        let missing: Vec<SlotNumber> = slots
            .filter(|slot| !self.groups.contains_key(slot) && !self.halted.contains_key(slot))
            .collect();
        let writes: Vec<GroupWrite> = missing.iter().map(|slot| self.first(*slot)).collect();
        let writes: Vec<&GroupWrite> = writes.iter().collect();
        self.disk.write(&writes, true)?;
        for slot in missing {
            self.open_group(slot);
        }
        Ok(())
    }

    pub(super) fn first(&self, slot: SlotNumber) -> GroupWrite {
        GroupWrite {
            slot,
            reset: false,
            entries: vec![],
            trim: None,
            state: GroupState::first(self.options.me.raft),
        }
    }

    /// Sets the cluster's log nodes. Leaders change the members of their groups accordingly, and all
    /// nodes learn where log nodes are.
    pub fn set_log_nodes(&mut self, log_nodes: Vec<LogNode>) {
        if log_nodes == self.log_nodes {
            return;
        }
        for it in &log_nodes {
            self.nodes.insert(it.raft, it.node);
        }
        self.log_nodes = log_nodes;
        for group in self.groups.values_mut() {
            group.wake();
        }
    }

    /// Returns the groups that cannot continue, with the reasons.
    pub fn halted(&self) -> &BTreeMap<SlotNumber, String> {
        &self.halted
    }

    /// Returns whether this node reaches a majority of the log nodes.
    pub fn is_reachable(&self) -> bool {
        let is_live = |it: &&LogNode| it.node == self.options.me.node || self.is_heard(it.node);
        let live = self.log_nodes.iter().filter(is_live).count();
        live * 2 > self.log_nodes.len() && !self.is_stalled()
    }

    /// Returns the slots that this node leads, with the terms.
    pub fn led(&self) -> Vec<(SlotNumber, u64)> {
        let led = self.groups.values().filter(|group| group.is_leader());
        led.map(|group| (group.slot, group.node.raft.term))
            .collect()
    }

    /// Returns the figures of all groups, without the size on disk.
    pub fn figures(&self) -> LogFigures {
        let wanted: Vec<RaftId> = self.log_nodes.iter().map(|it| it.raft).collect();
        let all = self.groups.values();
        let led = all.clone().filter(|group| group.is_leader());
        let is_settled = |group: &&Group<D>| group.is_authority() && group.has_members(&wanted);
        // One that left without a notice takes itself for a member.
        let is_log_node = self.is_log_node();
        let has_no_leader =
            |group: &&Group<D>| is_log_node && group.is_member() && group.leader().is_none();
        let unsettled = led.clone().filter(|group| !is_settled(group));
        let halted = self.halted.iter();
        LogFigures {
            log_nodes: self.log_nodes.clone(),
            led: led.map(|group| group.slot).collect(),
            unsettled: unsettled.map(|group| group.slot).collect(),
            leaderless: all.filter(has_no_leader).map(|group| group.slot).collect(),
            halted: halted.map(|(slot, why)| (*slot, why.clone())).collect(),
            bytes: 0,
        }
    }

    /// Notes that messages to a node were not sent, or not all of them. Its groups are probed before
    /// more is sent, and what this process requested ends now, not when its time is over.
    pub fn note_unsent(&mut self, node: NodeId, messages: Vec<NodeMessage>) {
        let ids = self.nodes.iter().filter(|(_, of)| **of == node);
        let ids: Vec<RaftId> = ids.map(|(id, _)| *id).collect();
        self.for_groups(|group, _| {
            if group.is_leader() {
                for id in &ids {
                    group.node.report_unreachable(*id);
                }
            }
        });
        for message in messages {
            match message {
                // Some of them may have been sent.
                NodeMessage::Append(request) => {
                    self.answered(request.sequence, AppendOutcome::Unknown);
                }
                NodeMessage::Fetch { number, .. } => self.fetched(number, Fetched::Unavailable),
                _ => {}
            }
        }
    }

    /// Returns whether this node leads a slot whose members are the log nodes.
    #[cfg(test)]
    pub(crate) fn is_settled(&self, slot: SlotNumber) -> bool {
        let wanted: Vec<RaftId> = self.log_nodes.iter().map(|it| it.raft).collect();
        let group = self.groups.get(&slot);
        group.is_some_and(|group| group.is_authority() && group.has_members(&wanted))
    }

    /// Returns whether a slot's group sleeps.
    #[cfg(test)]
    pub(crate) fn sleeps(&self, slot: SlotNumber) -> bool {
        let group = self.groups.get(&slot);
        group.is_some_and(|group| group.is_asleep(self.now))
    }

    /// Removes the records of a slot before an offset, which all replicas have. A majority has those
    /// before `stable`.
    pub fn trim(&mut self, slot: SlotNumber, unneeded: u64, stable: u64) {
        if let Some(group) = self.groups.get_mut(&slot) {
            group.stable = stable;
            group.trim_to(unneeded);
        }
    }

    /// Removes the older half of the records of slots with many: the log occupies too much. Records
    /// that no majority of replicas has stay: the slot could not continue without them.
    pub fn trim_half(&mut self) {
        let slots: Vec<SlotNumber> = self.groups.keys().copied().collect();
        let bounds: Vec<_> = slots
            .iter()
            .filter_map(|slot| Some((*slot, self.bounds(*slot)?)))
            .collect();
        let records: u64 = bounds.iter().map(|(_, (start, end))| end - start).sum();
        let mean = records / bounds.len().max(1) as u64;
        for (slot, (start, end)) in bounds {
            let group = self.groups.get_mut(&slot);
            if let Some(group) = group.filter(|_| end - start >= mean) {
                let half = start + (end - start).div_ceil(2);
                group.trim_to(half.min(group.stable));
            }
        }
    }

    /// Returns the offsets of a slot's first and next records on this node.
    pub fn bounds(&self, slot: SlotNumber) -> Option<(u64, u64)> {
        let group = self.groups.get(&slot)?;
        let start = group.node.store().state.offsets.base().offset;
        Some((start, group.end()))
    }

    /// Advances the clock by one tick.
    pub fn tick(&mut self) {
        self.now += 1;
        if !self.is_stalled() {
            let wanted: Vec<RaftId> = self.log_nodes.iter().map(|it| it.raft).collect();
            self.for_groups(|group, now| {
                group.sleep_if_idle(&wanted);
                if !group.is_asleep(now) {
                    group.tick();
                    group.reconcile(&wanted);
                }
            });
            if self.now.is_multiple_of(BEAT_TICKS) {
                self.beat();
            }
        }
        for done in self.appends.expire(self.now) {
            self.report(done);
        }
        for slot in self.appends.waiting() {
            self.send_appends(slot);
        }
        self.expire_fetches();
    }

    /// Handles a message of another node.
    pub fn deliver(&mut self, from: NodeId, message: NodeMessage) {
        self.heard.insert(from, self.now);
        match message {
            NodeMessage::Raft { slot, message } => self.step(from, slot, *message),
            NodeMessage::Append(request) => self.propose(from, request),
            NodeMessage::Appended {
                origin,
                sequence,
                outcome,
            } => {
                if origin == self.options.origin {
                    self.answered(sequence, outcome);
                }
            }
            NodeMessage::Fetch { number, request } => {
                self.search(request, Reader::There { node: from, number });
            }
            NodeMessage::Fetched { number, fetched } => self.fetched(number, fetched),
            NodeMessage::Beat(groups) => {
                for asleep in groups {
                    let now = self.now;
                    let group = self.groups.get_mut(&asleep.slot);
                    if group.is_some_and(|group| !group.follow_asleep(&asleep, now)) {
                        self.send(from, NodeMessage::Wake(asleep.slot));
                    }
                }
            }
            NodeMessage::Wake(slot) => {
                let ids = self.nodes.iter().filter(|(_, node)| **node == from);
                let mut ids = ids.map(|(id, _)| *id);
                let group = self.groups.get_mut(&slot);
                // One that left, perhaps without a notice, lacks everything.
                if let Some(group) = group.filter(|group| ids.any(|id| group.has(id))) {
                    group.wake();
                }
            }
        }
    }

    /// Returns the orders to the driver, which it follows in this order.
    pub fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    pub(super) fn step(&mut self, from: NodeId, slot: SlotNumber, message: Message) {
        // A disk that was lost had another id, and may have voted.
        if message.get_to() != self.options.me.raft || !self.options.has_slot(slot) {
            return;
        }
        self.nodes.insert(message.get_from(), from);
        if !self.groups.contains_key(&slot) {
            self.open_group(slot);
        }
        let is_stalled = self.is_stalled();
        self.with_group(slot, |group, _| {
            if is_stalled && group.follows(&message) {
                // The answers could not leave, and would pile up. Its leader sends it again.
                return Ok(());
            }
            if group.is_woken_by(&message) {
                group.wake();
            }
            group.step(message);
            Ok(())
        });
    }

    /// Sends the other nodes a sign of life, with the groups that sleep.
    pub(super) fn beat(&mut self) {
        let asleep: Vec<_> = self.groups.values().filter_map(Group::asleep).collect();
        let known = self.log_nodes.iter().map(|it| it.node);
        let heard = self
            .heard
            .keys()
            .copied()
            .filter(|node| self.is_heard(*node));
        let mut nodes: Vec<NodeId> = known.chain(heard).collect();
        nodes.sort_unstable();
        nodes.dedup();
        for node in nodes {
            if node != self.options.me.node {
                self.send(node, NodeMessage::Beat(asleep.clone()));
            }
        }
    }

    pub(super) fn send(&mut self, to: NodeId, message: NodeMessage) {
        self.effects.push(Effect::Send { to, message });
    }

    /// Sends what groups put out, and reports outcomes.
    pub(super) fn put_out(&mut self, output: Output) {
        for (slot, message) in output.messages {
            // Ids of members that nothing is known of get nothing.
            if let Some(node) = self.nodes.get(&message.get_to()) {
                let message = Box::new(message);
                let message = NodeMessage::Raft { slot, message };
                self.effects.push(Effect::Send { to: *node, message });
            }
        }
        for (proposer, outcome) in output.outcomes {
            self.report_to(proposer, outcome);
        }
    }

    pub(super) fn is_heard(&self, node: NodeId) -> bool {
        let at = self.heard.get(&node);
        at.is_some_and(|at| self.now < at + SILENT_TICKS)
    }

    /// Returns whether the disk takes too long. Others must lead then.
    pub fn is_stalled(&self) -> bool {
        let oldest = self.flushes.front();
        oldest.is_some_and(|since| self.now >= since + STALL_TICKS)
    }

    /// Returns whether a group is on this node and hears from the others. One that left, perhaps
    /// without a notice, uses the log as if it were not here.
    pub(super) fn is_open(&self, slot: SlotNumber) -> bool {
        let is_log_node = self.is_log_node();
        let group = self.groups.get(&slot);
        group.is_some_and(|it| it.is_member() && (is_log_node || it.leader().is_some()))
    }

    /// Returns whether this node is to keep the log, as far as it knows.
    fn is_log_node(&self) -> bool {
        let me = self.options.me.raft;
        self.log_nodes.is_empty() || self.log_nodes.iter().any(|it| it.raft == me)
    }

    pub(super) fn leader_node(&self, slot: SlotNumber) -> Option<NodeId> {
        let leader = self.groups.get(&slot)?.leader()?;
        self.nodes.get(&leader).copied()
    }

    /// Returns a log node that was heard recently, another one each second.
    pub(super) fn any_log_node(&self) -> Option<NodeId> {
        let me = self.options.me.node;
        let others = self.log_nodes.iter().map(|it| it.node);
        let live: Vec<NodeId> = others
            .filter(|node| *node != me && self.is_heard(*node))
            .collect();
        let turn = (self.now / SILENT_TICKS) as usize;
        live.get(turn % live.len().max(1)).copied()
    }

    pub(super) fn open_group(&mut self, slot: SlotNumber) {
        if self.halted.contains_key(&slot) {
            return;
        }
        let (me, disk) = (self.options.me.raft, self.disk.clone());
        let logger = &self.logger;
        match guard(|| Group::open(me, slot, disk, logger)) {
            Ok(group) => {
                self.groups.insert(slot, group);
            }
            Err(why) => self.halt(slot, why),
        }
    }

    /// Works on a group; one that fails is halted.
    pub(super) fn with_group<T>(
        &mut self,
        slot: SlotNumber,
        work: impl FnOnce(&mut Group<D>, u64) -> Result<T, DiskError>,
    ) -> Option<T> {
        let now = self.now;
        let group = self.groups.get_mut(&slot)?;
        match guard(|| work(group, now)) {
            Ok(done) => Some(done),
            Err(why) => {
                self.halt(slot, why);
                None
            }
        }
    }

    pub(super) fn for_groups(&mut self, work: impl Fn(&mut Group<D>, u64)) {
        let slots: Vec<SlotNumber> = self.groups.keys().copied().collect();
        for slot in slots {
            self.with_group(slot, |group, now| {
                work(group, now);
                Ok(())
            });
        }
    }

    /// Stops a group: what it has is not what it should have. The others continue without it.
    pub(super) fn halt(&mut self, slot: SlotNumber, why: String) {
        tracing::error!(slot, "the log of a slot is halted on this node: {why}");
        let parked = self.groups.remove(&slot).map(|group| group.parked);
        self.halted.insert(slot, why);
        for parked in parked.unwrap_or_default() {
            self.give(parked.reader, Fetched::Unavailable);
        }
    }
}

/// Runs the library, which panics where a log is not what it should be.
fn guard<T>(work: impl FnOnce() -> Result<T, DiskError>) -> Result<T, String> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(e)) => Err(e.to_string()),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            Err(text.unwrap_or("it panicked").to_owned())
        }
    }
}
