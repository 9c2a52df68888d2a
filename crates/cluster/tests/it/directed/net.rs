//! Replicas with hand-written schedules: nothing happens that a test does not request.

use std::collections::{BTreeMap, VecDeque};

use cluster::position::{Generation, NodeId, digest};
use cluster::replica::{
    Cursor, DurableState, GenerationStart, Header, Input, Kind, LogRecord, Message, Output,
    Promises, ReadBackResult, Replica,
};

/// A log as one of its readers sees it.
#[derive(Clone)]
pub struct View {
    pub log: u64,
    pub start: u64,
    records: Vec<(i32, Header, String)>,
}

/// Returns a log of the first generation: records with their leader epochs.
pub fn view(records: &[(i32, &str)]) -> View {
    let mut view = View {
        log: 0,
        start: 0,
        records: vec![],
    };
    for (epoch, name) in records {
        view.push(*epoch, Generation::default(), Kind::Data, name);
    }
    view
}

impl View {
    pub fn push(&mut self, epoch: i32, generation: Generation, kind: Kind, name: &str) -> u64 {
        let header = Header { generation, kind };
        self.records.push((epoch, header, name.into()));
        self.start + self.records.len() as u64 - 1
    }

    /// Returns the log without its first records.
    pub fn from(&self, start: u64) -> View {
        let mut view = self.clone();
        view.records.drain(..(start - self.start) as usize);
        view.start = start;
        view
    }

    pub fn record(&self, offset: u64) -> Option<LogRecord> {
        let at = offset.checked_sub(self.start)? as usize;
        let (epoch, header, name) = self.records.get(at)?;
        Some(LogRecord {
            log: self.log,
            offset,
            epoch: *epoch,
            hash: digest(format!("{name}{header:?}").as_bytes()),
            header: Some(header.clone()),
        })
    }

    fn name(&self, offset: u64) -> String {
        self.records[(offset - self.start) as usize].2.clone()
    }

    fn found(&self, offset: u64) -> ReadBackResult {
        match self.record(offset) {
            Some(record) => ReadBackResult::Record(record),
            None if offset < self.start => ReadBackResult::Trimmed,
            None => ReadBackResult::BeyondEnd,
        }
    }
}

/// The network, its partitions, messages in flight, and the disks.
#[derive(Default)]
pub struct Net {
    pub replicas: BTreeMap<NodeId, Replica>,
    pub disks: BTreeMap<NodeId, DurableState>,
    /// Names of the applied records.
    pub stores: BTreeMap<NodeId, Vec<String>>,
    given: BTreeMap<NodeId, String>,
    read_backs: BTreeMap<NodeId, Vec<u64>>,
    /// Starts of generations to be appended.
    pub appends: Vec<(NodeId, GenerationStart)>,
    pub mail: VecDeque<(NodeId, NodeId, Message)>,
    pub blocked: Vec<(NodeId, NodeId)>,
    /// The source of each node that copies.
    pub copies: BTreeMap<NodeId, NodeId>,
    /// The stable offset that each reported.
    pub stable: BTreeMap<NodeId, u64>,
    /// Messages sent, by sender.
    pub sent: BTreeMap<NodeId, u64>,
    pub asks_positions: u64,
    pub reads_now: Vec<(NodeId, u64)>,
}

impl Net {
    pub fn new(count: u64) -> Net {
        let members: Vec<NodeId> = (1..=count).collect();
        Net::with(&members, &members)
    }

    /// Creates nodes, some of which are replicas.
    pub fn with(nodes: &[NodeId], members: &[NodeId]) -> Net {
        let mut net = Net::default();
        for id in nodes {
            let saved = DurableState {
                cursor: Cursor::start(members.to_vec()),
                promises: Promises::default(),
            };
            net.disks.insert(*id, saved);
            net.boot(*id);
        }
        net
    }

    /// Starts a node from its disk, for the first time or after a crash.
    pub fn boot(&mut self, id: NodeId) {
        self.boot_with(id, id << 32);
    }

    /// Starts a node with this start number.
    pub fn boot_with(&mut self, id: NodeId, start: u64) {
        let (replica, out) = Replica::new(id, start, self.disks[&id].clone());
        self.read_backs.remove(&id);
        self.replicas.insert(id, replica);
        self.carry_out(id, out);
    }

    pub fn stop(&mut self, id: NodeId) {
        self.replicas.remove(&id);
    }

    fn carry_out(&mut self, id: NodeId, out: Vec<Output>) {
        for output in out {
            match output {
                Output::ReadBack { offset, .. } => {
                    self.read_backs.entry(id).or_default().push(offset);
                }
                Output::Apply { data, cursor } => {
                    if data {
                        let name = self.given[&id].clone();
                        self.stores.entry(id).or_default().push(name);
                    }
                    let position = cursor.position;
                    self.disks.get_mut(&id).expect("a node").cursor = *cursor;
                    let input = Input::Applied {
                        generation: position.generation,
                        next_offset: position.next_offset,
                    };
                    self.give(id, input);
                }
                Output::Promise(promises) => {
                    self.disks.get_mut(&id).expect("a node").promises = promises;
                }
                Output::Send { to, message } => {
                    *self.sent.entry(id).or_default() += 1;
                    self.asks_positions +=
                        u64::from(matches!(message, Message::AskPosition { .. }));
                    self.mail.push_back((id, to, message));
                }
                Output::Append(begin) => self.appends.push((id, begin)),
                Output::Stable { next_offset, .. } => {
                    self.stable.insert(id, next_offset);
                }
                Output::Copy { from } => {
                    self.copies.insert(id, from);
                }
                Output::ReadNow(read) => self.reads_now.push((id, read)),
                Output::Fetch { .. } | Output::ReadDone(_) | Output::Halted(_) => {}
            }
        }
    }

    pub fn give(&mut self, id: NodeId, input: Input) {
        if let Some(replica) = self.replicas.get_mut(&id) {
            let out = replica.handle(input);
            self.carry_out(id, out);
        }
    }

    pub fn say(&mut self, from: NodeId, to: NodeId, message: Message) {
        self.give(to, Input::Message { from, message });
    }

    /// Delivers messages in flight, and those that follow from them.
    pub fn deliver(&mut self) {
        while let Some((from, to, message)) = self.mail.pop_front() {
            let pair = |pair: &(NodeId, NodeId)| *pair == (from, to) || *pair == (to, from);
            if !self.blocked.iter().any(pair) {
                self.say(from, to, message);
            }
        }
    }

    /// Ticks all nodes; messages are delivered, and records are read again from this log.
    pub fn tick(&mut self, view: &View) {
        let ids: Vec<NodeId> = self.replicas.keys().copied().collect();
        for id in ids {
            self.give(id, Input::Tick);
            self.read_back(id, view);
        }
        self.deliver();
    }

    /// Gives it the next record of this log, twice if it first asks others about its leader.
    pub fn read(&mut self, id: NodeId, view: &View) {
        for _ in 0..2 {
            let from = self.disks[&id].cursor.position.next_offset;
            let Some(record) = view.record(from) else {
                return;
            };
            self.given.insert(id, view.name(from));
            self.give(id, Input::Record(record));
            self.read_back(id, view);
            self.deliver();
            if self.disks[&id].cursor.position.next_offset > from {
                return;
            }
        }
    }

    pub fn read_to(&mut self, id: NodeId, view: &View, next_offset: u64) {
        while self.next_offset(id) < next_offset {
            let before = self.next_offset(id);
            self.read(id, view);
            assert!(self.next_offset(id) > before, "{id} does not go on");
        }
    }

    /// Gives it the records that it reads again.
    pub fn read_back(&mut self, id: NodeId, view: &View) {
        for offset in self.read_backs.remove(&id).unwrap_or_default() {
            let found = view.found(offset);
            self.give(id, Input::ReadBack { offset, found });
        }
    }

    pub fn next_offset(&self, id: NodeId) -> u64 {
        self.disks[&id].cursor.position.next_offset
    }

    /// Lets all read the log so far.
    pub fn all_read(&mut self, view: &View, next_offset: u64) {
        let ids: Vec<NodeId> = self.replicas.keys().copied().collect();
        for id in ids {
            self.read_to(id, view, next_offset);
        }
    }

    /// Copies another node's durable state; returns whether that is allowed.
    pub fn copy(&mut self, id: NodeId, from: NodeId) -> bool {
        let cursor = self.disks[&from].cursor.clone();
        let may = self
            .replicas
            .get_mut(&id)
            .is_some_and(|r| r.may_become(&cursor));
        if !may {
            self.give(id, Input::CopyRefused);
            return false;
        }
        self.disks.get_mut(&id).expect("a node").cursor = cursor.clone();
        let store = self.stores.get(&from).cloned().unwrap_or_default();
        self.stores.insert(id, store);
        self.give(id, Input::Copied(Some(cursor)));
        true
    }
}
