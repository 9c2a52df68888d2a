//! Nodes with real Raft groups over a simulated network, clock and disks.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use cluster::{CONTROL, NodeId, SlotNumber};
use fastrand::Rng;

use super::ledger::{Append, Checked, Ledger, Violation};
use crate::codec;
use crate::disk::{GroupWrite, LogDisk};
use crate::groups::{Core, Effect, Flush, Mutant};
use crate::memory_disk::MemoryDisk;
use crate::message::{AppendOutcome, FetchRequest, Fetched, FoundRecord, NodeMessage, Purpose};
use crate::options::{LogNode, Options};

/// Log nodes; one more node only uses the log.
const LOG_NODES: u64 = 3;
pub const SLOTS: [SlotNumber; 3] = [0, 1, CONTROL];
/// A slot that gets records for a while only, and then sleeps.
const IDLE_SLOT: SlotNumber = 1;
const IDLE_PERIOD_MS: u64 = 4_000;
const IDLE_WORK_MS: u64 = 500;
/// Of how many answers with records one is read again, by any node.
const READ_BACKS: u32 = 8;
/// The latest writes that damage takes away at most.
pub const DAMAGED_WRITES_MAX: usize = 100;
const TICK_MS: u64 = 100;
/// When the first faults come: until then the groups get their members.
const FAULTS_START_MS: u64 = 2_000;
/// When faults end.
pub const FAULTS_END_MS: u64 = 9_000;
/// When the last appends are made, which must succeed.
const LAST_APPENDS_MS: u64 = FAULTS_END_MS + 4_000;
/// When everything is read again.
const AUDIT_MS: u64 = LAST_APPENDS_MS + 2_000;
const END_MS: u64 = AUDIT_MS + 3_000;

/// The conditions of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Plan {
    pub seed: u64,
    pub mutant: Mutant,
    /// A node whose disk was lost keeps its id.
    pub reuses_ids: bool,
    /// Disks are damaged instead of lost, and keep their ids.
    pub keeps_damaged: bool,
    pub has_faults: bool,
    pub verbose: bool,
}

pub enum Event {
    Tick {
        at: usize,
        life: u64,
    },
    Deliver {
        from: NodeId,
        to: usize,
        bundle: Bytes,
    },
    Synced {
        at: usize,
        life: u64,
    },
    Start {
        at: usize,
    },
    Append,
    Fault,
    Heal,
    LastAppends,
    Audit,
}

struct Reader {
    next: u64,
    request: Option<u64>,
}

/// A node, which may be down.
pub struct Node {
    pub id: NodeId,
    pub me: LogNode,
    pub disk: Arc<MemoryDisk>,
    pub disks: u64,
    pub core: Option<Core<MemoryDisk>>,
    pub life: u64,
    flushes: VecDeque<Flush>,
    /// Flushes and writes of the sync that is under way.
    syncing: Option<(usize, usize)>,
    readers: BTreeMap<SlotNumber, Reader>,
    appends: BTreeMap<u64, Append>,
    /// Records that are read again, by the number of the request.
    read_backs: BTreeMap<u64, (SlotNumber, u64, u64)>,
    pub is_slow: bool,
    /// No sync ends before this time.
    pub hangs_until: u64,
}

pub struct World {
    pub plan: Plan,
    pub rng: Rng,
    pub now: u64,
    queue: BTreeMap<(u64, u64), Event>,
    events: u64,
    pub nodes: Vec<Node>,
    pub table: Vec<LogNode>,
    pub ledger: Ledger,
    records: u64,
    /// Directed links that are cut, until a time.
    pub cuts: BTreeMap<(NodeId, NodeId), u64>,
    /// Messages that are lost, per cent.
    pub loss: u32,
    /// Messages of Raft that were sent.
    pub raft_messages: u64,
    /// Writes to disks.
    pub writes: u64,
    pub trace: Vec<String>,
}

impl Node {
    fn new(id: NodeId) -> Node {
        let raft = id * 100;
        Node {
            id,
            me: LogNode { raft, node: id },
            disk: Arc::new(MemoryDisk::new(raft)),
            disks: 0,
            core: None,
            life: 0,
            flushes: VecDeque::new(),
            syncing: None,
            readers: SLOTS
                .iter()
                .map(|slot| {
                    let (next, request) = (0, None);
                    (*slot, Reader { next, request })
                })
                .collect(),
            appends: BTreeMap::new(),
            read_backs: BTreeMap::new(),
            is_slow: false,
            hangs_until: 0,
        }
    }

    fn origin(&self) -> u64 {
        (self.id * 1_000 + self.life) << 32
    }
}

impl World {
    pub fn new(plan: Plan) -> World {
        let nodes: Vec<Node> = (1..=LOG_NODES + 1).map(Node::new).collect();
        if plan.keeps_damaged {
            for node in &nodes {
                node.disk.keep_tail(DAMAGED_WRITES_MAX);
            }
        }
        World {
            rng: Rng::with_seed(plan.seed),
            plan,
            now: 0,
            queue: BTreeMap::new(),
            events: 0,
            table: nodes[..LOG_NODES as usize].iter().map(|it| it.me).collect(),
            nodes,
            ledger: Ledger::default(),
            records: 0,
            cuts: BTreeMap::new(),
            loss: 0,
            raft_messages: 0,
            writes: 0,
            trace: vec![],
        }
    }

    /// Runs until the end.
    pub fn run(&mut self) -> Checked {
        self.begin()?;
        self.run_until(END_MS)?;
        for slot in SLOTS {
            let ends: Vec<u64> = self
                .nodes
                .iter()
                .map(|node| node.readers[&slot].next)
                .collect();
            if ends.iter().any(|end| *end != ends[0]) {
                return Err(Violation(format!(
                    "no progress: slot {slot} is read to {ends:?}"
                )));
            }
        }
        if let Some(append) = self.nodes.iter().flat_map(|it| it.appends.values()).next() {
            return Err(Violation(format!(
                "no progress: {append:?} was not answered"
            )));
        }
        self.ledger.finish()
    }

    /// Starts all nodes, and plans what happens.
    pub fn begin(&mut self) -> Checked {
        for at in 0..self.nodes.len() {
            self.start(at)?;
        }
        let core = self.nodes[0].core.as_mut().unwrap();
        core.create_groups().unwrap();
        self.after(0)?;
        self.at(FAULTS_END_MS, Event::Heal);
        self.at(LAST_APPENDS_MS, Event::LastAppends);
        self.at(AUDIT_MS, Event::Audit);
        if self.plan.has_faults {
            self.at(500, Event::Append);
            self.at(FAULTS_START_MS, Event::Fault);
        }
        Ok(())
    }

    pub fn run_until(&mut self, end: u64) -> Checked {
        while let Some(entry) = self.queue.first_entry() {
            let (time, _) = *entry.key();
            if time > end {
                break;
            }
            self.now = time;
            let event = entry.remove();
            self.handle(event)?;
        }
        self.now = end;
        Ok(())
    }

    pub fn at(&mut self, time: u64, event: Event) {
        self.events += 1;
        self.queue.insert((time, self.events), event);
    }

    pub fn note(&mut self, line: impl FnOnce() -> String) {
        if self.plan.verbose {
            self.trace.push(format!("{:6} {}", self.now, line()));
        }
    }

    fn handle(&mut self, event: Event) -> Checked {
        match event {
            Event::Tick { at, life } => self.tick(at, life),
            Event::Deliver { from, to, bundle } => {
                let Some(core) = self.nodes[to].core.as_mut() else {
                    return Ok(());
                };
                for message in codec::decode(1, bundle).unwrap() {
                    core.deliver(from, message);
                }
                self.after(to)
            }
            Event::Synced { at, life } => self.synced(at, life),
            Event::Start { at } => self.start(at),
            Event::Append => self.append_any(),
            Event::Fault => self.fault(),
            Event::Heal => self.heal(),
            Event::LastAppends => self.append_last(),
            Event::Audit => {
                for node in &mut self.nodes {
                    for reader in node.readers.values_mut() {
                        *reader = Reader {
                            next: 0,
                            request: None,
                        };
                    }
                }
                Ok(())
            }
        }
    }

    fn tick(&mut self, at: usize, life: u64) -> Checked {
        let node = &mut self.nodes[at];
        let Some(core) = node.core.as_mut().filter(|_| node.life == life) else {
            return Ok(());
        };
        core.tick();
        self.at(self.now + TICK_MS, Event::Tick { at, life });
        for slot in SLOTS {
            self.read_on(at, slot);
        }
        self.after(at)
    }

    /// Starts a node that is down.
    pub fn start(&mut self, at: usize) -> Checked {
        if self.nodes[at].core.is_some() {
            return Ok(());
        }
        let node = &mut self.nodes[at];
        node.life += 1;
        let options = Options {
            me: node.me,
            log: 1,
            origin: node.origin(),
            slots: 2,
            disk_bytes_max: u64::MAX,
        };
        let opened = Core::open(options, node.disk.clone());
        let mut core = opened.map_err(|e| Violation(e.to_string()))?;
        core.mutant = self.plan.mutant;
        core.set_log_nodes(self.table.clone());
        node.core = Some(core);
        let life = node.life;
        let first = self.now + self.rng.u64(1..=TICK_MS);
        self.at(first, Event::Tick { at, life });
        self.note(|| format!("node {at} starts"));
        self.after(at)
    }

    /// Stops a node, which loses writes that were not synced, except for some.
    pub fn crash(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        let unsynced = node.disk.unsynced();
        let kept = match self.rng.bool() {
            true => 0,
            false => self.rng.usize(0..=unsynced),
        };
        node.core = None;
        node.disk.crash(kept);
        node.flushes.clear();
        node.syncing = None;
        node.appends.clear();
        node.read_backs.clear();
        for reader in node.readers.values_mut() {
            reader.request = None;
        }
        self.note(|| format!("node {at} crashes and keeps {kept} of {unsynced} writes"));
    }

    /// Requests the next records of a slot.
    fn read_on(&mut self, at: usize, slot: SlotNumber) {
        let node = &mut self.nodes[at];
        let (Some(core), Some(reader)) = (node.core.as_mut(), node.readers.get_mut(&slot)) else {
            return;
        };
        if reader.request.is_none() {
            let request = FetchRequest {
                slot,
                from: reader.next,
                purpose: Purpose::Follow,
            };
            reader.request = Some(core.fetch(request));
        }
    }

    fn append_any(&mut self) -> Checked {
        if self.now < FAULTS_END_MS {
            let next = self.now + self.rng.u64(2..10);
            self.at(next, Event::Append);
        }
        let at = self.rng.usize(0..self.nodes.len());
        let slot = SLOTS[self.rng.usize(0..SLOTS.len())];
        if slot == IDLE_SLOT && self.now % IDLE_PERIOD_MS >= IDLE_WORK_MS {
            return Ok(());
        }
        self.append(at, slot, false)
    }

    fn append_last(&mut self) -> Checked {
        for at in 0..self.nodes.len() {
            for slot in SLOTS {
                self.append(at, slot, true)?;
            }
        }
        Ok(())
    }

    pub fn append(&mut self, at: usize, slot: SlotNumber, is_last: bool) -> Checked {
        let node = &mut self.nodes[at];
        let origin = node.origin();
        let Some(core) = node.core.as_mut() else {
            return Ok(());
        };
        self.records += 1;
        let mut bytes = self.records.to_le_bytes().to_vec();
        bytes.resize(8 + self.rng.usize(0..100), 0);
        let append = Append {
            slot,
            record: self.records,
            origin,
            is_last,
        };
        let number = core.append(slot, Bytes::from(bytes));
        node.appends.insert(number, append);
        self.after(at)
    }

    /// Follows the orders of a node's core.
    fn after(&mut self, at: usize) -> Checked {
        loop {
            let Some(core) = self.nodes[at].core.as_mut() else {
                return Ok(());
            };
            let flush = core.begin_flush();
            let effects = core.take_effects();
            let led = core.led();
            if let Some((slot, why)) = core.halted().first_key_value() {
                return Err(Violation(format!("slot {slot} halted at node {at}: {why}")));
            }
            let is_idle = flush.is_none() && effects.is_empty();
            let raft = self.nodes[at].me.raft;
            for (slot, term) in led {
                self.ledger.lead(slot, term, raft)?;
            }
            for effect in effects {
                self.effect(at, effect)?;
            }
            if let Some(flush) = flush {
                self.write(at, flush);
            }
            if is_idle {
                return Ok(());
            }
        }
    }

    fn write(&mut self, at: usize, flush: Flush) {
        let node = &mut self.nodes[at];
        if flush.writes().is_empty() && node.flushes.is_empty() {
            if let Some(core) = node.core.as_mut() {
                core.end_flush(flush);
            }
            return;
        }
        if !flush.writes().is_empty() {
            let writes: Vec<&GroupWrite> = flush.writes().iter().collect();
            node.disk.write(&writes, false).unwrap();
            self.writes += 1;
        }
        let crash = match (flush.must_sync(), flush.has_vote()) {
            (false, _) => 0,
            (true, true) => 100,
            (true, false) => 3,
        };
        node.flushes.push_back(flush);
        let is_faulty = self.plan.has_faults
            && (FAULTS_START_MS..FAULTS_END_MS).contains(&self.now)
            && self.rng.u32(..1_000) < crash;
        if is_faulty {
            self.crash(at);
            let time = self.now + self.rng.u64(10..400);
            self.at(time, Event::Start { at });
            return;
        }
        self.sync(at);
    }

    /// Returns the number of flushes of a node that have not ended.
    pub fn flushes(&self, at: usize) -> usize {
        self.nodes[at].flushes.len()
    }

    /// Begins a sync, if there is something to sync and none is under way.
    fn sync(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        if node.syncing.is_some() || node.flushes.is_empty() {
            return;
        }
        node.syncing = Some((node.flushes.len(), node.disk.unsynced()));
        let life = node.life;
        let hangs_until = node.hangs_until;
        let time = match node.is_slow {
            true => self.rng.u64(50..400),
            false => self.rng.u64(1..20),
        };
        let end = (self.now + time).max(hangs_until);
        self.at(end, Event::Synced { at, life });
    }

    fn synced(&mut self, at: usize, life: u64) -> Checked {
        let node = &mut self.nodes[at];
        if node.life != life {
            return Ok(());
        }
        let (Some(core), Some((flushes, writes))) = (node.core.as_mut(), node.syncing.take())
        else {
            return Ok(());
        };
        let done: Vec<Flush> = node.flushes.drain(..flushes).collect();
        if done.iter().any(Flush::must_sync) {
            node.disk.sync_first(writes);
        }
        for flush in done {
            core.end_flush(flush);
        }
        self.sync(at);
        self.after(at)
    }

    fn effect(&mut self, at: usize, effect: Effect) -> Checked {
        match effect {
            Effect::Send { to, message } => self.send(at, to, &message),
            Effect::Appended { number, outcome } => {
                let Some(append) = self.nodes[at].appends.remove(&number) else {
                    return Ok(());
                };
                self.note(|| format!("node {at}: {append:?} is {outcome:?}"));
                if append.is_last && !matches!(outcome, AppendOutcome::Stored(_)) {
                    return Err(Violation(format!("no progress: {append:?} is {outcome:?}")));
                }
                match outcome {
                    AppendOutcome::Stored(offset) => self.ledger.acknowledge(&append, offset)?,
                    AppendOutcome::Unknown => {}
                    AppendOutcome::Refused | AppendOutcome::NotLeader(_) => {
                        self.ledger.refuse(&append)?;
                    }
                }
            }
            Effect::Fetched { number, fetched } => self.fetched(at, number, fetched)?,
        }
        Ok(())
    }

    fn send(&mut self, at: usize, to: NodeId, message: &NodeMessage) {
        if matches!(message, NodeMessage::Raft { .. }) {
            self.raft_messages += 1;
        }
        let from = self.nodes[at].id;
        let is_cut = self
            .cuts
            .get(&(from, to))
            .is_some_and(|until| *until > self.now);
        if is_cut || self.rng.u32(..100) < self.loss {
            return;
        }
        let Some(to) = self.nodes.iter().position(|node| node.id == to) else {
            return;
        };
        let delay = match self.plan.has_faults && self.now < FAULTS_END_MS {
            true if self.rng.u32(..10) == 0 => self.rng.u64(1..400),
            true => self.rng.u64(0..6),
            false => 1,
        };
        for bundle in codec::encode(1, std::iter::once(message)) {
            self.at(self.now + delay, Event::Deliver { from, to, bundle });
        }
    }

    fn fetched(&mut self, at: usize, number: u64, fetched: Fetched) -> Checked {
        if let Some(asked) = self.nodes[at].read_backs.remove(&number) {
            return read_back(asked, &fetched);
        }
        let readers = &mut self.nodes[at].readers;
        let asked = readers
            .iter_mut()
            .find(|(_, it)| it.request == Some(number));
        let Some((slot, reader)) = asked else {
            return Ok(());
        };
        let slot = *slot;
        reader.request = None;
        let Fetched::Found {
            start,
            end,
            records,
        } = fetched
        else {
            return Ok(());
        };
        if records.is_empty() {
            if end < reader.next {
                let next = reader.next;
                return Err(Violation(format!(
                    "slot {slot} was read to {next} and ends at {end}"
                )));
            }
            reader.next = reader.next.max(start);
            return Ok(());
        }
        for record in &records {
            if record.offset != reader.next {
                let (offset, next) = (record.offset, reader.next);
                return Err(Violation(format!("slot {slot} has {offset} after {next}")));
            }
            reader.next += 1;
            let bytes = record.bytes.first_chunk().unwrap();
            self.ledger
                .read(slot, record.offset, u64::from_le_bytes(*bytes))?;
        }
        if self.rng.u32(..READ_BACKS) == 0 {
            self.read_again(slot, records.last());
        }
        self.read_on(at, slot);
        Ok(())
    }

    /// Reads a record again, as any node.
    fn read_again(&mut self, slot: SlotNumber, record: Option<&FoundRecord>) {
        let at = self.rng.usize(0..self.nodes.len());
        let node = &mut self.nodes[at];
        if let (Some(record), Some(core)) = (record, node.core.as_mut()) {
            let request = FetchRequest {
                slot,
                from: record.offset,
                purpose: Purpose::ReadBack {
                    epoch: record.epoch,
                },
            };
            let asked = (slot, record.offset, record.epoch);
            node.read_backs.insert(core.fetch(request), asked);
        }
    }

    /// Returns the node that leads a slot in the latest term.
    pub fn leader(&self, slot: SlotNumber) -> Option<usize> {
        let terms = self.nodes.iter().enumerate().filter_map(|(at, node)| {
            let led = node.core.as_ref()?.led();
            let found = led.into_iter().find(|(it, _)| *it == slot);
            found.map(|(_, term)| (term, at))
        });
        terms.max().map(|(_, at)| at)
    }

    /// Cuts the links between two nodes, until a time.
    pub fn cut_both(&mut self, a: usize, b: usize, until: u64) {
        let (a, b) = (self.nodes[a].id, self.nodes[b].id);
        self.cuts.insert((a, b), until);
        self.cuts.insert((b, a), until);
    }

    /// Returns the offset before which a node has read a slot.
    pub fn read_by(&self, at: usize, slot: SlotNumber) -> u64 {
        self.nodes[at].readers[&slot].next
    }

    /// Returns the offset before which all readers have all records of a slot.
    pub fn read_by_all(&self, slot: SlotNumber) -> u64 {
        let next = self.nodes.iter().map(|node| node.readers[&slot].next);
        next.min().unwrap_or(0)
    }
}

/// Checks the answer to a request for a record that was read before: its slot, offset and epoch.
fn read_back((slot, offset, epoch): (SlotNumber, u64, u64), fetched: &Fetched) -> Checked {
    let Fetched::Found { start, records, .. } = fetched else {
        return Ok(());
    };
    let found = records.first().map(|it| (it.offset, it.epoch));
    match found == Some((offset, epoch)) || (found.is_none() && offset < *start) {
        true => Ok(()),
        false => Err(Violation(format!(
            "slot {slot}: the record at {offset} in epoch {epoch} was read again as {fetched:?}"
        ))),
    }
}
