//! Nodes, a network, a log and clients under one seed.

mod clients;
mod contents;
mod delivery;
mod faults;
mod invariants;
mod profile;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use cluster::position::{Chain, Generation, NodeId};
use cluster::replica::{
    Cursor, DurableState, Header, Input, Kind, Output, Promises, Replica, Rules,
};
use fastrand::Rng;

use self::invariants::Invariants;
use self::profile::Profile;
use crate::simulation::log::{Entry, FakeLog, Write};

/// Duration of faults, and the time limit of recovery, in milliseconds.
const FAULTS_MS: u64 = 12_000;
const HEALING_MS: u64 = 60_000;
const TICK_MS: u64 = 100;
const POLL_MS: u64 = 10;
const CLIENT_PATIENCE_MS: u64 = 1_500;
const KEYS: u8 = 4;

/// The parameters of a run.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub seed: u64,
    pub rules: Rules,
    /// Replicas apply records without the contents that these name.
    pub lacks_contents: bool,
    pub verbose: bool,
}

/// A replica's data: the applied records, in order.
#[derive(Clone, Debug, Default)]
struct Store {
    lineage: Vec<Write>,
    /// Hash of everything up to each write.
    hashes: Vec<u64>,
    requests: BTreeSet<(u64, u64)>,
    /// The length of the lineage after each record, and the chain there, by generation and next
    /// offset.
    lengths: BTreeMap<(Generation, u64), (usize, Chain)>,
}

impl Store {
    fn apply(&mut self, writes: &[Write], cursor: &Cursor) {
        for write in writes {
            if self.requests.insert(write.request) {
                let mut hasher = DefaultHasher::new();
                (self.hashes.last(), write.request, write.value).hash(&mut hasher);
                self.hashes.push(hasher.finish());
                self.lineage.push(write.clone());
            }
        }
        let at = (cursor.position.generation, cursor.position.next_offset);
        self.lengths
            .insert(at, (self.lineage.len(), cursor.position.chain));
    }

    fn length(&self, generation: Generation, next_offset: u64) -> Option<usize> {
        let length = self.lengths.get(&(generation, next_offset));
        length.map(|(length, _)| *length)
    }
}

#[derive(Clone, Debug)]
struct Disk {
    saved: DurableState,
    store: Store,
    /// Contents, and when they were last copied here for a record.
    contents: BTreeMap<u64, u64>,
}

impl Disk {
    /// Returns the disk of a new replica of a slot.
    fn new(members: &[NodeId]) -> Disk {
        let saved = DurableState {
            cursor: Cursor::start(members.to_vec()),
            promises: Promises::default(),
        };
        Disk {
            saved,
            store: Store::default(),
            contents: BTreeMap::new(),
        }
    }
}

/// The result of a read.
#[derive(Clone, Copy, Debug)]
struct Seen {
    key: u8,
    /// The number of writes up to the last one of the key, inclusive; 0 without one.
    place: usize,
    value: Option<u64>,
}

struct Node {
    disk: Disk,
    /// `None` while it is down.
    replica: Option<Replica>,
    /// Counts starts: operations from before a start are lost.
    boot: u64,
    /// The current fetch, and its next offset.
    fetch: u64,
    at: u64,
    /// Writes waiting for their acknowledgement: the client's operation.
    waiting: HashMap<(u64, u64), u64>,
    /// Reads in progress: the client's operation, and its result.
    reads: HashMap<u64, (u64, Option<Seen>)>,
    paused_until: u64,
    /// The follower of the log, and the reader of single records, see it as an older leader has it,
    /// until then.
    behind: [Option<(u64, Branch)>; 2],
    /// Records being written.
    applying: u32,
    /// Everything that was ever on its disk, by generation, next offset and chain.
    ever: HashSet<(Generation, u64, Chain)>,
    /// The last record given to the replica.
    given: Vec<Write>,
    /// When contents of the next record began to be missing at a majority.
    lacking: Option<u64>,
}

/// A log's number and the epoch of the leader that has this branch of it.
type Branch = (u64, i32);

/// Readers of a node: the follower of the log, and the reader of single records.
const FOLLOWS: usize = 0;
const READS_AGAIN: usize = 1;

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
    Fetched {
        node: NodeId,
        boot: u64,
        from: NodeId,
        disk: Box<Disk>,
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

/// An operation of a client in progress.
#[derive(Clone, Debug)]
struct Operation {
    client: u64,
    key: u8,
    /// The value of a write.
    value: Option<u64>,
    tries: u32,
    asked: u64,
    /// The minimum that a read has to see: the number of writes of the key known to be acknowledged
    /// when it started.
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
    /// The log as earlier leaders had it. They may still accept records.
    branches: Vec<FakeLog>,
    profile: Profile,
    invariants: Invariants,
    /// The operator's visits to a slot that does not advance.
    visits: u32,
    healed_at: u64,
    /// Duration of faults.
    faults_ms: u64,
    nodes: BTreeMap<NodeId, Node>,
    /// The node that lost its disk, and the one that takes its place.
    pub lost: Option<(NodeId, NodeId)>,
    /// Partitioned pairs, and nodes that cannot reach the log, until then.
    cut: HashMap<(NodeId, NodeId), u64>,
    off_log: HashMap<NodeId, u64>,
    operations: HashMap<u64, Operation>,
    next_operation: u64,
    next_read: u64,
    counters: HashMap<u64, u64>,
    /// Records that some replica showed as stable, and the acknowledged ones; by key, the position
    /// of its latest acknowledged write.
    agreed: Vec<Write>,
    floors: HashMap<u8, usize>,
    pub acknowledged: u64,
    pub reads: u64,
    pub generations: u64,
    healed: bool,
    salt: u64,
    /// Acknowledged after the faults ended, by the node that received the request.
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
            profile: Profile::of(plan.seed),
            invariants: Invariants::default(),
            visits: 0,
            healed_at: 0,
            faults_ms: if plan.seed % 20 == 19 {
                8 * FAULTS_MS
            } else {
                FAULTS_MS
            },
            nodes: BTreeMap::new(),
            lost: None,
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
            world.nodes.insert(id, Node::off(Disk::new(&members)));
            world.at(0, Event::Start { node: id });
        }
        world.fill_log();
        for client in 0..4 {
            let wait = world.rng.u64(50..300);
            world.at(wait, Event::Client { client });
        }
        world.at(200, Event::Fault);
        world.at(world.faults_ms, Event::Heal);
        world.at(1_000, Event::Operator);
        world
    }

    fn fill_log(&mut self) {
        for _ in 0..self.profile.records_at_start {
            let header = Header {
                generation: Generation::default(),
                kind: Kind::Data,
            };
            self.salt += 1;
            let entry = Entry::new(header, vec![], self.salt);
            self.log.append(entry);
        }
    }

    /// Runs to the end; returns the first violation.
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
            // Another node also has to become a replica.
            let phases = 1 + u64::from(self.lost.is_some());
            if self.now > self.faults_ms + phases * HEALING_MS {
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
            | Event::Fetched { node, boot, .. }
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
        // A message reaches whatever node is up when it arrives.
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
            Event::ReadBack { offset, epoch, .. } => self.read_back(node, offset, epoch),
            Event::Applied { writes, cursor, .. } => self.applied(node, &writes, &cursor),
            Event::Copy { from, .. } => self.copy(node, from),
            Event::Fetched { from, disk, .. } => self.fetched(node, from, disk),
            Event::Install { disk, .. } => self.install(node, *disk),
            Event::Tick { .. } => {
                let boot = self.nodes[&node].boot;
                let wait = TICK_MS + self.rng.u64(..20);
                self.at(wait, Event::Tick { node, boot });
                self.reclaim(node);
                self.give(node, Input::Tick);
            }
            _ => {}
        }
    }

    fn start(&mut self, node: NodeId) {
        let Some(it) = self.nodes.get_mut(&node) else {
            return;
        };
        let is_lost = self.lost.is_some_and(|(lost, _)| lost == node);
        if it.replica.is_some() || is_lost {
            return;
        }
        it.boot += 1;
        it.applying = 0;
        it.waiting.clear();
        it.reads.clear();
        let boot = it.boot;
        // Random, as in production: a question from before a crash may look like one after it.
        let start = self.rng.u64(..);
        let (replica, out) =
            Replica::with_rules(node, start, it.disk.saved.clone(), self.plan.rules);
        it.replica = Some(replica);
        let lacking = it.lacking;
        self.note(|| format!("{node} starts"));
        self.carry_out(node, out);
        if let Some(since) = lacking {
            let ticks = (self.now - since) / TICK_MS;
            self.give(node, Input::Lacking(ticks as u32));
        }
        self.at(TICK_MS, Event::Tick { node, boot });
    }

    fn crash(&mut self, node: NodeId) {
        if let Some(it) = self.nodes.get_mut(&node) {
            it.replica = None;
            it.behind = [None; 2];
            it.paused_until = 0;
        }
        self.note(|| format!("{node} crashes"));
    }

    /// Crashes a node, or fails its store, which looks the same to a replica; it restarts on its
    /// own.
    fn fail(&mut self, node: NodeId) {
        self.crash(node);
        let wait = self.rng.u64(100..2_000);
        self.at(wait, Event::Start { node });
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
            if self.rng.u32(..self.profile.outputs_per_crash) == 0 && !self.healed {
                return self.fail(node);
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
                let asked = Event::ReadBack {
                    node,
                    boot,
                    offset,
                    epoch,
                };
                let wait = self.rng.u64(1..20);
                self.at(wait, asked);
            }
            Output::Apply { data, cursor } => {
                let writes = if data { it.given.clone() } else { vec![] };
                it.applying += 1;
                self.may_apply(node, &cursor);
                // One after the other.
                let applied = Event::Applied {
                    node,
                    boot,
                    writes,
                    cursor,
                };
                self.at(3, applied);
            }
            Output::Promise(promises) => it.disk.saved.promises = promises,
            Output::Send { to, message } => self.send(node, to, message),
            Output::Append(begin) => {
                self.is_one_beginning(node, &begin);
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

    fn branch(&self, branch: Branch) -> Option<&FakeLog> {
        let mut branches = self.branches.iter();
        branches.find(|log| (log.number, log.epoch) == branch)
    }

    fn seen_by(&self, node: NodeId, which: usize) -> &FakeLog {
        let behind = self.nodes.get(&node).and_then(|n| n.behind[which]);
        let behind = behind.filter(|(until, _)| *until > self.now);
        behind
            .and_then(|(_, branch)| self.branch(branch))
            .unwrap_or(&self.log)
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
            behind: [None; 2],
            applying: 0,
            ever: HashSet::new(),
            given: vec![],
            lacking: None,
        }
    }
}
