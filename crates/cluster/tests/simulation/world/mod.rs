//! Nodes, a network, a log and clients under one seed.

mod clients;
mod faults;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap};

use cluster::position::{Generation, NodeId};
use cluster::replica::{
    Cursor, Header, Input, Kind, Message, Output, Promises, Replica, Rules, Saved,
};
use fastrand::Rng;

use crate::log::{Entry, FakeLog, Write};

/// How long there are faults, and how long it may take until all is well again, in milliseconds.
const FAULTS_MS: u64 = 12_000;
const HEALING_MS: u64 = 60_000;
const TICK_MS: u64 = 100;
const POLL_MS: u64 = 10;
const CLIENT_PATIENCE_MS: u64 = 1_500;
const KEYS: u8 = 4;

/// What a run is made of.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub seed: u64,
    pub rules: Rules,
    pub verbose: bool,
}

/// A replica's data: what was applied, in its order.
#[derive(Clone, Debug, Default)]
struct Store {
    lineage: Vec<Write>,
    requests: BTreeSet<(u64, u64)>,
    /// How long the lineage was after each record, by generation and next offset.
    lengths: BTreeMap<(Generation, u64), usize>,
}

impl Store {
    fn apply(&mut self, writes: &[Write], cursor: &Cursor) {
        for write in writes {
            if self.requests.insert(write.request) {
                self.lineage.push(write.clone());
            }
        }
        let at = (cursor.position.generation, cursor.position.next_offset);
        self.lengths.insert(at, self.lineage.len());
    }
}

#[derive(Clone, Debug)]
struct Disk {
    saved: Saved,
    store: Store,
}

/// What a read found.
#[derive(Clone, Copy, Debug)]
struct Seen {
    key: u8,
    /// How many writes there were up to the last of the key, with it; 0 without one.
    place: usize,
    value: Option<u64>,
}

struct Node {
    disk: Disk,
    /// None while it is down.
    replica: Option<Replica>,
    /// Counts starts: what was under way before one is gone.
    boot: u64,
    /// The fetch that counts, and where it goes on.
    fetch: u64,
    at: u64,
    /// Writes that wait for their acknowledgement: the client's operation.
    waiting: HashMap<(u64, u64), u64>,
    /// Reads under way: the client's operation, and what was read.
    reads: HashMap<u64, (u64, Option<Seen>)>,
    paused_until: u64,
    /// It sees the log as it was, until then.
    behind: Option<(u64, FakeLog)>,
    /// The record that was given to the replica last.
    given: Vec<Write>,
}

#[derive(Clone, Debug)]
enum Event {
    Input {
        node: NodeId,
        boot: u64,
        input: Input,
    },
    Poll {
        node: NodeId,
        boot: u64,
        fetch: u64,
    },
    ReadBack {
        node: NodeId,
        boot: u64,
        offset: u64,
        epoch: i32,
    },
    Applied {
        node: NodeId,
        boot: u64,
        writes: Vec<Write>,
        cursor: Box<Cursor>,
    },
    Copy {
        node: NodeId,
        boot: u64,
        from: NodeId,
    },
    Install {
        node: NodeId,
        boot: u64,
        disk: Box<Disk>,
    },
    Append {
        node: NodeId,
        boot: u64,
        entry: Box<Entry>,
        again: bool,
    },
    Tick {
        node: NodeId,
        boot: u64,
    },
    Start {
        node: NodeId,
    },
    Fault,
    Client {
        client: u64,
    },
    Heal,
    Operator,
}

/// An operation of a client that is under way.
#[derive(Clone, Debug)]
struct Operation {
    client: u64,
    key: u8,
    /// Of a write.
    value: Option<u64>,
    tries: u32,
    asked: u64,
    /// What a read has to see at least: how many writes of the key were known to be acknowledged when it began.
    floor: usize,
}

/// A broken promise.
#[derive(Debug)]
pub struct Violation(pub String);

pub struct World {
    plan: Plan,
    rng: Rng,
    now: u64,
    queue: BinaryHeap<Reverse<(u64, u64)>>,
    events: HashMap<u64, Event>,
    sequence: u64,
    log: FakeLog,
    /// As it was under leaders before.
    branches: Vec<FakeLog>,
    /// How long there are faults.
    faults_ms: u64,
    nodes: BTreeMap<NodeId, Node>,
    /// Pairs that cannot speak, and nodes that do not reach the log, until then.
    cut: HashMap<(NodeId, NodeId), u64>,
    off_log: HashMap<NodeId, u64>,
    operations: HashMap<u64, Operation>,
    next_operation: u64,
    next_read: u64,
    counters: HashMap<u64, u64>,
    /// What some replica showed as stable, and what was acknowledged of it, per key the place of its latest acknowledged write.
    agreed: Vec<Write>,
    floors: HashMap<u8, usize>,
    pub acknowledged: u64,
    pub reads: u64,
    pub generations: u64,
    healed: bool,
    salt: u64,
    /// Acknowledged after healing, by the node that was asked.
    after: BTreeSet<NodeId>,
    broken: Option<Violation>,
    pub trace: Vec<String>,
}

impl World {
    pub fn new(plan: Plan) -> World {
        let mut rng = Rng::with_seed(plan.seed);
        let count = *rng.choice([1, 3, 3, 3, 3, 4, 5].iter()).unwrap_or(&3) as NodeId;
        let members: Vec<NodeId> = (1..=count).collect();
        let mut world = World {
            plan,
            rng,
            now: 0,
            queue: BinaryHeap::new(),
            events: HashMap::new(),
            sequence: 0,
            log: FakeLog::default(),
            branches: vec![],
            faults_ms: if plan.seed % 20 == 19 {
                8 * FAULTS_MS
            } else {
                FAULTS_MS
            },
            nodes: BTreeMap::new(),
            cut: HashMap::new(),
            off_log: HashMap::new(),
            operations: HashMap::new(),
            next_operation: 0,
            next_read: 0,
            counters: HashMap::new(),
            agreed: vec![],
            floors: HashMap::new(),
            acknowledged: 0,
            reads: 0,
            generations: 0,
            healed: false,
            salt: 0,
            after: BTreeSet::new(),
            broken: None,
            trace: vec![],
        };
        for id in members.clone() {
            let saved = Saved {
                cursor: Cursor::start(members.clone()),
                promises: Promises::default(),
            };
            let disk = Disk {
                saved,
                store: Store::default(),
            };
            world.nodes.insert(id, Node::off(disk));
            world.at(0, Event::Start { node: id });
        }
        for client in 0..4 {
            let wait = world.rng.u64(50..300);
            world.at(wait, Event::Client { client });
        }
        world.at(200, Event::Fault);
        world.at(world.faults_ms, Event::Heal);
        world.at(1_000, Event::Operator);
        world
    }

    /// Runs to the end; answers what was broken.
    pub fn run(&mut self) -> Result<(), Violation> {
        while let Some(Reverse((time, number))) = self.queue.pop() {
            self.now = time;
            let Some(event) = self.events.remove(&number) else {
                continue;
            };
            self.event(event);
            if let Some(broken) = self.broken.take() {
                return Err(broken);
            }
            if self.healed && self.is_well() {
                return Ok(());
            }
            if self.now > self.faults_ms + HEALING_MS {
                return Err(Violation(format!("no progress: {}", self.describe())));
            }
        }
        Err(Violation("nothing happens any more".into()))
    }

    fn at(&mut self, after: u64, event: Event) {
        self.sequence += 1;
        self.events.insert(self.sequence, event);
        self.queue.push(Reverse((self.now + after, self.sequence)));
    }

    fn note(&mut self, line: impl FnOnce() -> String) {
        if self.plan.verbose {
            self.trace.push(format!("{:>6} {}", self.now, line()));
        }
    }

    fn violate(&mut self, what: String) {
        self.note(|| format!("VIOLATION {what}"));
        self.broken.get_or_insert(Violation(what));
    }

    fn event(&mut self, event: Event) {
        let (node, boot) = match &event {
            Event::Input { node, boot, .. }
            | Event::Poll { node, boot, .. }
            | Event::ReadBack { node, boot, .. }
            | Event::Applied { node, boot, .. }
            | Event::Copy { node, boot, .. }
            | Event::Install { node, boot, .. }
            | Event::Tick { node, boot } => (*node, Some(*boot)),
            Event::Start { node } => return self.start(*node),
            Event::Append {
                node,
                boot,
                entry,
                again,
            } => {
                let (node, boot, entry, again) = (*node, *boot, entry.clone(), *again);
                return self.append(node, boot, *entry, again);
            }
            Event::Fault => return self.fault(),
            Event::Client { client } => return self.client(*client),
            Event::Heal => return self.heal(),
            Event::Operator => return self.operate(),
        };
        let Some(it) = self.nodes.get(&node) else {
            return;
        };
        // A message reaches whoever is there when it comes.
        let is_message = matches!(
            &event,
            Event::Input {
                input: Input::Message { .. },
                ..
            }
        );
        if it.replica.is_none() || (Some(it.boot) != boot && !is_message) {
            return;
        }
        if it.paused_until > self.now {
            let wait = it.paused_until - self.now;
            return self.at(wait, event);
        }
        match event {
            Event::Input { input, .. } => self.give(node, input),
            Event::Poll { fetch, .. } => self.poll(node, fetch),
            Event::ReadBack { offset, epoch, .. } if self.reaches_log(node) => {
                let damaged = self.rng.u32(..200) == 0;
                let log = self.nodes[&node].disk.saved.cursor.log;
                let input = self.seen_by(node).read_back(offset, (log, epoch), damaged);
                if let Some(input) = input {
                    self.give(node, input);
                }
            }
            Event::Applied { writes, cursor, .. } => self.applied(node, &writes, &cursor),
            Event::Copy { from, .. } => self.copy(node, from),
            Event::Install { disk, .. } => self.install(node, *disk),
            Event::Tick { .. } => {
                let boot = self.nodes[&node].boot;
                let wait = TICK_MS + self.rng.u64(..20);
                self.at(wait, Event::Tick { node, boot });
                self.give(node, Input::Tick);
            }
            _ => {}
        }
    }

    fn start(&mut self, node: NodeId) {
        let Some(it) = self.nodes.get_mut(&node) else {
            return;
        };
        if it.replica.is_some() {
            return;
        }
        it.boot += 1;
        it.waiting.clear();
        it.reads.clear();
        let boot = it.boot;
        let (replica, out) =
            Replica::with_rules(node, boot << 32, it.disk.saved.clone(), self.plan.rules);
        it.replica = Some(replica);
        self.note(|| format!("{node} starts"));
        self.carry_out(node, out);
        self.at(TICK_MS, Event::Tick { node, boot });
    }

    fn crash(&mut self, node: NodeId) {
        if let Some(it) = self.nodes.get_mut(&node) {
            it.replica = None;
            it.behind = None;
            it.paused_until = 0;
        }
        self.note(|| format!("{node} crashes"));
    }

    fn give(&mut self, node: NodeId, input: Input) {
        self.note(|| format!("{node} <- {input:?}"));
        let Some(replica) = self.nodes.get_mut(&node).and_then(|n| n.replica.as_mut()) else {
            return;
        };
        let out = replica.handle(input);
        self.carry_out(node, out);
    }

    fn carry_out(&mut self, node: NodeId, out: Vec<Output>) {
        for output in out {
            // It may crash between any two.
            if self.rng.u32(..20_000) == 0 && !self.healed {
                self.crash(node);
                let wait = self.rng.u64(100..2_000);
                return self.at(wait, Event::Start { node });
            }
            self.note(|| format!("{node} -> {output:?}"));
            self.output(node, output);
        }
    }

    fn output(&mut self, node: NodeId, output: Output) {
        let Some(it) = self.nodes.get_mut(&node) else {
            return;
        };
        let boot = it.boot;
        match output {
            Output::Fetch { from } => {
                it.fetch += 1;
                it.at = from;
                let fetch = it.fetch;
                let wait = self.rng.u64(1..POLL_MS);
                self.at(wait, Event::Poll { node, boot, fetch });
            }
            Output::ReadBack { offset, epoch } => {
                let wait = self.rng.u64(1..20);
                self.at(
                    wait,
                    Event::ReadBack {
                        node,
                        boot,
                        offset,
                        epoch,
                    },
                );
            }
            Output::Apply { data, cursor } => {
                let writes = if data { it.given.clone() } else { vec![] };
                // One after the other.
                let wait = 3;
                self.at(
                    wait,
                    Event::Applied {
                        node,
                        boot,
                        writes,
                        cursor,
                    },
                );
            }
            Output::Promise(promises) => it.disk.saved.promises = promises,
            Output::Send { to, message } => self.send(node, to, message),
            Output::Append(begin) => {
                let header = Header {
                    generation: begin.generation,
                    kind: Kind::Begin(Box::new(begin)),
                };
                self.propose(node, header, vec![]);
            }
            Output::ReadNow(read) => self.read_now(node, read),
            Output::ReadDone(read) => self.read_done(node, read),
            Output::Stable {
                generation,
                next_offset,
            } => self.stable(node, generation, next_offset),
            Output::Copy { from } => {
                let wait = self.rng.u64(10..300);
                self.at(wait, Event::Copy { node, boot, from });
            }
            Output::Halted(_) => {}
        }
    }

    fn speaks(&self, a: NodeId, b: NodeId) -> bool {
        self.cut
            .get(&(a.min(b), a.max(b)))
            .is_none_or(|until| *until <= self.now)
    }

    fn reaches_log(&self, node: NodeId) -> bool {
        self.off_log
            .get(&node)
            .is_none_or(|until| *until <= self.now)
    }

    fn seen_by(&self, node: NodeId) -> &FakeLog {
        match self.nodes.get(&node).and_then(|n| n.behind.as_ref()) {
            Some((until, log)) if *until > self.now => log,
            _ => &self.log,
        }
    }

    fn send(&mut self, from: NodeId, to: NodeId, message: Message) {
        let lost = self.rng.u32(..30) == 0 && !self.healed;
        let Some(boot) = self.nodes.get(&to).map(|n| n.boot) else {
            return;
        };
        if lost || !self.speaks(from, to) {
            return;
        }
        let again = if self.rng.u32(..50) == 0 { 2 } else { 1 };
        for _ in 0..again {
            let wait = match self.rng.u32(..20) {
                0 => self.rng.u64(1..400),
                _ => self.rng.u64(1..8),
            };
            let input = Input::Message {
                from,
                message: message.clone(),
            };
            self.at(
                wait,
                Event::Input {
                    node: to,
                    boot,
                    input,
                },
            );
        }
    }

    fn poll(&mut self, node: NodeId, fetch: u64) {
        let it = &self.nodes[&node];
        if it.fetch != fetch {
            return;
        }
        let (boot, mut next) = (it.boot, it.at);
        let again = Event::Poll { node, boot, fetch };
        if !self.reaches_log(node) {
            return self.at(POLL_MS * 5, again);
        }
        let (start, end) = (self.seen_by(node).start, self.seen_by(node).end());
        if next < start || next > end {
            self.at(POLL_MS * 10, again);
            return self.give(node, Input::NoRecord { start, end });
        }
        let most = self.rng.u64(1..8);
        for _ in 0..most {
            let damaged = self.rng.u32(..400) == 0 && !self.healed;
            let log = self.seen_by(node);
            let Some(record) = log.record(next, damaged) else {
                break;
            };
            let writes = log
                .get(next)
                .map(|entry| entry.writes.clone())
                .unwrap_or_default();
            next += 1;
            let Some(it) = self.nodes.get_mut(&node) else {
                return;
            };
            it.given = writes;
            it.at = next;
            self.give(node, Input::Record(record));
            let it = &self.nodes[&node];
            // It may have asked for others, or crashed.
            if it.fetch != fetch || it.boot != boot || it.replica.is_none() {
                return;
            }
        }
        let wait = self.rng.u64(1..POLL_MS * 2);
        self.at(wait, again);
    }

    fn applied(&mut self, node: NodeId, writes: &[Write], cursor: &Cursor) {
        let Some(it) = self.nodes.get_mut(&node) else {
            return;
        };
        it.disk.store.apply(writes, cursor);
        it.disk.saved.cursor = cursor.clone();
        if cursor.position.generation > Generation::default() {
            self.generations = self.generations.max(cursor.position.generation.number);
        }
        // What is in the store is seen before the replica is told.
        let (boot, position) = (it.boot, cursor.position);
        let input = Input::Applied {
            generation: position.generation,
            next_offset: position.next_offset,
        };
        self.at(2, Event::Input { node, boot, input });
    }

    fn copy(&mut self, node: NodeId, from: NodeId) {
        let source = self.nodes.get(&from).filter(|n| n.replica.is_some());
        let reaches = self.speaks(node, from);
        let disk = source.filter(|_| reaches).map(|n| n.disk.clone());
        let Some(it) = self.nodes.get_mut(&node) else {
            return;
        };
        let (boot, Some(replica)) = (it.boot, &mut it.replica) else {
            return;
        };
        let Some(disk) = disk else {
            return self.give(node, Input::Copied(None));
        };
        if !replica.may_become(&disk.saved.cursor) {
            return self.give(node, Input::CopyRefused);
        }
        // Much may be said to it until it is there.
        let (wait, disk) = (self.rng.u64(0..200), Box::new(disk));
        self.at(wait, Event::Install { node, boot, disk });
    }

    fn install(&mut self, node: NodeId, disk: Disk) {
        let cursor = disk.saved.cursor.clone();
        if let Some(it) = self.nodes.get_mut(&node) {
            it.disk.store = disk.store;
            it.disk.saved.cursor = disk.saved.cursor;
        }
        self.give(node, Input::Copied(Some(cursor)));
    }

    fn propose(&mut self, node: NodeId, header: Header, writes: Vec<Write>) {
        let boot = self.nodes[&node].boot;
        self.salt += 1;
        let entry = Box::new(Entry::new(header, writes, self.salt));
        if self.reaches_log(node) && self.rng.u32(..40) != 0 {
            let wait = self.rng.u64(1..20);
            let again = self.rng.u32(..30) == 0;
            self.at(
                wait,
                Event::Append {
                    node,
                    boot,
                    entry,
                    again,
                },
            );
        }
    }

    fn append(&mut self, node: NodeId, boot: u64, entry: Entry, again: bool) {
        let generation = entry.header.generation;
        let is_begin = matches!(entry.header.kind, Kind::Begin(_));
        let offset = self.log.append(entry.clone());
        let epoch = self.log.epoch;
        self.note(|| {
            format!(
                "log[{offset}] epoch {epoch} = {:?} {:?}",
                entry.header, entry.writes
            )
        });
        if again {
            // A producer that was not told tries again.
            let wait = self.rng.u64(1..600);
            let entry = Box::new(entry);
            self.at(
                wait,
                Event::Append {
                    node,
                    boot,
                    entry,
                    again: false,
                },
            );
        }
        if is_begin && self.rng.u32(..10) != 0 {
            let wait = self.rng.u64(1..20);
            let input = Input::Appended { generation, offset };
            self.at(wait, Event::Input { node, boot, input });
        }
    }
}

impl Node {
    fn off(disk: Disk) -> Node {
        Node {
            disk,
            replica: None,
            boot: 0,
            fetch: 0,
            at: 0,
            waiting: HashMap::new(),
            reads: HashMap::new(),
            paused_until: 0,
            behind: None,
            given: vec![],
        }
    }
}
