//! Upgrades of a simulated cluster, node after node: programs of several record versions, a control
//! log that loses what is not stable, nodes that stop, join, leave, and go back to an older program.
//! A failure prints its seed.
//!
//! The control state, the decisions of nodes and the encoding of records are the real ones.

use std::collections::BTreeMap;

use cluster::record::{
    Body, DatabaseWork, RecordError, RecordVersion, RecordVersions, Request, Stamp, Work,
};
use cluster::{CONTROL, Generation, NodeId};
use fastrand::Rng;

use crate::control::entry::{Entry, EntryOutcome, MemberInfo};
use crate::control::state::ControlState;
use crate::versions::{NextStep, check, next_step, unheard};

const STEPS: usize = 500;
/// Steps within which the version of all is in force, once all faults are over.
const CALM_STEPS: usize = 10_000;
const SEEDS: u64 = 500;
/// A rule that is left out is noticed within this number of seeds.
const SEEDS_MAX: u64 = 10_000;
/// One of this many steps brings a record to the log, by seed.
const STEPS_PER_RECORD: [u32; 3] = [3, 12, 30];
const MEMBERS_MAX: usize = 5;
/// Programs of version 1 do not know announcements.
const VERSIONS_MAX: u8 = 4;

/// A rule that is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mutant {
    None,
    /// A majority of announcements is enough.
    Majority,
    /// Only nodes that run have to announce a version.
    RunningOnly,
    /// An entry that raises the version is applied even if a member withdrew its announcement.
    Unchecked,
    /// The version in force is written before it is stable.
    Unstable,
    /// A program that is older than the one before does not announce that.
    Silent,
    /// Announcements are made while members may not know them.
    Unheard,
}

#[derive(Debug)]
struct Violation(String);

struct Node {
    program: RecordVersion,
    /// `None` while it is down.
    running: Option<RecordVersions>,
    state: ControlState,
    /// The number of control records, and of data records, that it has applied.
    applied: usize,
    data_applied: usize,
    /// It has had nothing to announce since its start: its program must not be too old any more.
    is_settled: bool,
    /// It ran a program that knows announcements, and never goes back to one that does not.
    was_new: bool,
    /// The number of its start, and of its last request.
    gateway: u64,
    counter: u64,
}

struct World {
    rng: Rng,
    mutant: Mutant,
    nodes: BTreeMap<NodeId, Node>,
    control: Vec<Vec<u8>>,
    /// The state after all of the control log.
    truth: ControlState,
    stable: usize,
    data: Vec<Vec<u8>>,
    /// Control records on their way to the log.
    under_way: Vec<Vec<u8>>,
    steps_per_record: u32,
    next_node: NodeId,
    refused_starts: u64,
    raised: u64,
}

fn version(number: u8) -> RecordVersion {
    RecordVersion::try_from(number).unwrap()
}

fn stamp(slot: u16, versions: &RecordVersions) -> Stamp {
    Stamp {
        cluster: [1; 16],
        key: [2; 32],
        slot,
        versions: versions.clone(),
    }
}

fn entry_of(request: &Request) -> &[u8] {
    match &request.databases[0].work {
        Work::Entry(json) => json,
        other => panic!("{other:?}"),
    }
}

fn member(node: NodeId) -> MemberInfo {
    MemberInfo {
        name: format!("node{node}"),
        address: format!("node{node}:5986"),
    }
}

impl Node {
    fn new(program: RecordVersion) -> Node {
        Node {
            program,
            running: None,
            state: ControlState::default(),
            applied: 0,
            data_applied: 0,
            is_settled: false,
            was_new: program > RecordVersion::V1,
            gateway: 0,
            counter: 0,
        }
    }

    /// Returns whether its program knows announcements.
    fn speaks(&self) -> bool {
        self.program > RecordVersion::V1
    }
}

impl World {
    fn new(seed: u64, mutant: Mutant) -> World {
        let mut world = World {
            rng: Rng::with_seed(seed),
            mutant,
            nodes: BTreeMap::new(),
            control: vec![],
            truth: ControlState::default(),
            stable: 0,
            data: vec![],
            under_way: vec![],
            steps_per_record: STEPS_PER_RECORD[(seed % 3) as usize],
            next_node: 1,
            refused_starts: 0,
            raised: 0,
        };
        let count = world.rng.usize(1..=4);
        let first = version(world.rng.u8(1..=2));
        for _ in 0..count {
            let node = world.add(first);
            world.propose(
                node,
                &Entry::Join {
                    node,
                    member: member(node),
                    token: None,
                    version: None,
                },
            );
            world.append_all();
            world.start(node, first);
        }
        world.stable = world.control.len();
        for node in world.nodes.values_mut() {
            node.state = world.truth.clone();
            node.applied = world.stable;
        }
        world
    }

    fn add(&mut self, program: RecordVersion) -> NodeId {
        let id = self.next_node;
        self.next_node += 1;
        let node = Node {
            gateway: id,
            ..Node::new(program)
        };
        self.nodes.insert(id, node);
        id
    }

    fn members(&self) -> Vec<NodeId> {
        self.truth.members.keys().copied().collect()
    }

    /// Sends an entry to the log, in the version that the node writes.
    fn propose(&mut self, at: NodeId, entry: &Entry) {
        let node = self.nodes.get_mut(&at).unwrap();
        node.counter += 1;
        let request = Request {
            gateway: node.gateway,
            counter: node.counter,
            databases: vec![DatabaseWork {
                database: [0; 16],
                since: 0,
                revs_limit: 0,
                purged_infos_limit: 0,
                leaves_max: None,
                designs: 0,
                work: Work::Entry(serde_json::to_vec(entry).unwrap()),
            }],
        };
        let of_new = || RecordVersions::new(node.program);
        let versions = node.running.clone().unwrap_or_else(of_new);
        let body = Body::Requests(vec![request]);
        let record = stamp(CONTROL, &versions).write(Generation::default(), &body);
        self.under_way.push(record);
    }

    fn append_all(&mut self) {
        for record in std::mem::take(&mut self.under_way) {
            self.append(record);
        }
    }

    fn append(&mut self, record: Vec<u8>) {
        let mut truth = std::mem::take(&mut self.truth);
        // Any program reads it here.
        let all = RecordVersions::new(version(u8::MAX));
        let before = truth.agreement.in_force();
        apply(&mut truth, &record, &all, self.mutant).unwrap();
        self.raised += u64::from(truth.agreement.in_force() > before);
        self.truth = truth;
        self.control.push(record);
    }

    /// Starts a node with a program, unless that is refused.
    fn start(&mut self, id: NodeId, program: RecordVersion) {
        let in_force = self.truth.agreement.in_force();
        let node = self.nodes.get_mut(&id).unwrap();
        node.program = program;
        node.is_settled = false;
        // A program that does not know versions is not refused: it never follows one that does.
        let is_refused = node.speaks() && check(&node.state.agreement, program).is_err();
        if is_refused {
            assert!(in_force > program);
            self.refused_starts += 1;
            return;
        }
        node.was_new |= node.speaks();
        (node.gateway, node.counter) = (self.rng.u64(..), 0);
        node.running = Some(RecordVersions::new(program));
    }

    fn stop(&mut self, id: NodeId) {
        if let Some(node) = self.nodes.get_mut(&id) {
            node.running = None;
        }
    }

    fn random_node(&mut self) -> Option<NodeId> {
        let all: Vec<NodeId> = self.nodes.keys().copied().collect();
        self.rng.choice(all)
    }

    fn fault(&mut self) {
        let Some(id) = self.random_node() else {
            return;
        };
        match self.rng.u32(..10) {
            0..3 => self.stop(id),
            3..7 => self.restart(id),
            7 => self.join(),
            8 => {
                let members = self.members();
                if members.len() > 2 && self.rng.u32(..4) == 0 && self.nodes[&id].running.is_some()
                {
                    let node = self.rng.choice(members).unwrap();
                    self.propose(id, &Entry::Leave { node });
                }
            }
            _ => self.lose_tail(),
        }
    }

    /// Starts a node again: mostly with a later program, sometimes with an older one.
    fn restart(&mut self, id: NodeId) {
        self.stop(id);
        let node = &self.nodes[&id];
        let (now, least) = (node.program.number(), if node.was_new { 2 } else { 1 });
        let next = match self.rng.u32(..10) {
            0..5 => now + 1,
            5..7 => now.saturating_sub(1),
            7 => VERSIONS_MAX,
            _ => now,
        };
        self.start(id, version(next.clamp(least, VERSIONS_MAX)));
    }

    fn join(&mut self) {
        let Some(through) = self.random_node() else {
            return;
        };
        let through_node = &self.nodes[&through];
        let may_admit = through_node.running.is_some() && through_node.speaks();
        if self.nodes.len() >= MEMBERS_MAX || !may_admit {
            return;
        }
        let agreement = through_node.state.agreement.clone();
        let is_member = through_node.state.members.contains_key(&through);
        let in_force = agreement.in_force();
        // A program that does not know announcements is not admitted.
        let program = version(self.rng.u8(2..=VERSIONS_MAX));
        if !is_member || check(&agreement, program).is_err() {
            return;
        }
        let node = self.add(program);
        let entry = Entry::Join {
            node,
            member: member(node),
            token: None,
            version: (in_force > RecordVersion::V1).then_some(program),
        };
        self.propose(through, &entry);
    }

    /// A new generation starts without some records that are not stable; who applied them takes over
    /// the state of another node.
    fn lose_tail(&mut self) {
        let keep = self.rng.usize(self.stable..=self.control.len());
        if keep == self.control.len() {
            return;
        }
        self.control.truncate(keep);
        let all = RecordVersions::new(version(u8::MAX));
        let mut truth = ControlState::default();
        for record in &self.control {
            apply(&mut truth, record, &all, self.mutant).unwrap();
        }
        for node in self.nodes.values_mut().filter(|node| node.applied > keep) {
            node.applied = keep;
            node.state = truth.clone();
        }
        self.truth = truth;
    }

    /// A majority of the members has applied this many records.
    fn settle(&mut self) {
        let mut applied: Vec<usize> = self
            .truth
            .members
            .keys()
            .map(|id| self.nodes[id].applied)
            .collect();
        applied.sort_unstable();
        if let Some(at) = applied.len().checked_sub(applied.len() / 2 + 1) {
            self.stable = self.stable.max(applied[at]);
        }
    }

    fn step(&mut self) -> Result<(), Violation> {
        if !self.under_way.is_empty() && self.rng.u32(..self.steps_per_record) == 0 {
            let at = self.rng.usize(..self.under_way.len());
            let record = self.under_way.swap_remove(at);
            // It may be lost, or repeated.
            match self.rng.u32(..20) {
                0 => {}
                1 => {
                    self.append(record.clone());
                    self.append(record);
                }
                _ => self.append(record),
            }
        }
        self.settle();
        let Some(id) = self.random_node() else {
            return Ok(());
        };
        if self.nodes[&id].running.is_none() {
            return Ok(());
        }
        match self.rng.u32(..6) {
            0..2 => self.follow_control(id),
            2 => self.follow_data(id),
            3 => {
                self.write(id);
                Ok(())
            }
            _ => {
                self.keep(id);
                Ok(())
            }
        }
    }

    /// Applies the next control records.
    fn follow_control(&mut self, id: NodeId) -> Result<(), Violation> {
        let until = self
            .control
            .len()
            .min(self.nodes[&id].applied + self.rng.usize(1..8));
        while self.nodes[&id].applied < until {
            let node = self.nodes.get_mut(&id).unwrap();
            let versions = node.running.clone().unwrap();
            let record = &self.control[node.applied];
            let is_understood = node.speaks() || !is_of_versions(record);
            match apply(&mut node.state, record, &versions, self.mutant) {
                Ok(()) if is_understood => node.applied += 1,
                Ok(()) => {
                    return Err(Violation(format!(
                        "{id} has a program that refuses announcements, and met one"
                    )));
                }
                Err(e) => return Err(Violation(format!("{id}, control: {e}"))),
            }
            if node.speaks() && check(&node.state.agreement, node.program).is_err() {
                // It finds the entry that raises the version before any record of that version.
                let was_settled = node.is_settled;
                self.stop(id);
                return match was_settled {
                    true => Err(Violation(format!("{id} has to end, long after its start"))),
                    false => Ok(()),
                };
            }
        }
        Ok(())
    }

    fn follow_data(&mut self, id: NodeId) -> Result<(), Violation> {
        let node = self.nodes.get_mut(&id).unwrap();
        let Some(record) = self.data.get(node.data_applied) else {
            return Ok(());
        };
        let versions = node.running.as_ref().unwrap();
        match stamp(0, versions).read(record) {
            Ok(_) => node.data_applied += 1,
            // It has to end: it does once it has read the control log.
            Err(RecordError::Version { .. })
                if node.speaks()
                    && !node.is_settled
                    && self.truth.agreement.in_force() > node.program => {}
            Err(e) => return Err(Violation(format!("{id}, data: {e}"))),
        }
        Ok(())
    }

    fn write(&mut self, id: NodeId) {
        let versions = self.nodes[&id].running.as_ref().unwrap();
        let body = Body::Await { version: 0 };
        let record = stamp(0, versions).write(Generation::default(), &body);
        self.data.push(record);
    }

    /// Makes one step of [`crate::versions::VersionKeeper`].
    fn keep(&mut self, id: NodeId) {
        let node = &self.nodes[&id];
        let versions = node.running.clone().unwrap();
        if !node.speaks() {
            return;
        }
        let agreement = node.state.agreement.clone();
        let is_stable = node.applied <= self.stable;
        if is_stable || self.mutant == Mutant::Unstable {
            versions.raise(agreement.in_force());
        }
        let members: Vec<NodeId> = node.state.members.keys().copied().collect();
        let is_current = node.applied == self.control.len();
        let mut step = next_step(&agreement, (id, node.program), &members);
        if self.mutant == Mutant::Silent && agreement.known(id) > node.program {
            step = None;
        }
        let is_settled =
            is_current && is_stable && members.contains(&id) && step != Some(NextStep::Announce);
        match step {
            Some(NextStep::Announce) => {
                let unheard = unheard(&agreement, id, &members);
                let speaks = |other: &Node| other.running.is_some() && other.speaks();
                let answers = |other: &NodeId| self.nodes.get(other).is_some_and(speaks);
                if unheard.iter().all(answers) || self.mutant == Mutant::Unheard {
                    let announcement = agreement.next_announcement(id, node.program);
                    let node = id;
                    self.propose(id, &Entry::Announce { node, announcement });
                }
            }
            Some(NextStep::Raise(version)) => self.propose(id, &Entry::Raise { version }),
            None => self.raise_early(id, &members),
        }
        self.nodes.get_mut(&id).unwrap().is_settled |= is_settled;
    }

    /// Raises the version early, in a mutant that does so.
    fn raise_early(&mut self, id: NodeId, members: &[NodeId]) {
        let node = &self.nodes[&id];
        let agreement = &node.state.agreement;
        let has = |member: &&NodeId| agreement.known(**member) >= node.program;
        let may = match self.mutant {
            Mutant::Majority => members.iter().filter(has).count() * 2 > members.len(),
            Mutant::RunningOnly => {
                let is_running = |member: &&NodeId| {
                    let member = self.nodes.get(*member);
                    member.is_some_and(|member| member.running.is_some())
                };
                members.iter().filter(is_running).all(|member| has(&member))
            }
            _ => false,
        };
        if may && node.program > agreement.in_force() && members.contains(&id) {
            let version = node.program;
            self.propose(id, &Entry::Raise { version });
        }
    }

    /// Ends nodes that are not members; those that left do not return.
    fn drop_others(&mut self) {
        let is_coming = |id: &NodeId| {
            let node = *id;
            let names = |record: &Vec<u8>| {
                let entries = entries_in(record);
                entries
                    .iter()
                    .any(|e| matches!(e, Entry::Join { node: of, .. } if *of == node))
            };
            self.under_way.iter().any(names)
        };
        let gone: Vec<NodeId> = self.nodes.keys().copied().collect();
        let gone = gone
            .into_iter()
            .filter(|id| !self.truth.members.contains_key(id) && !is_coming(id));
        let gone: Vec<NodeId> = gone.collect();
        for id in gone {
            // The log may lose that it left.
            match self.stable == self.control.len() {
                true => drop(self.nodes.remove(&id)),
                false => self.stop(id),
            }
        }
    }

    fn run(&mut self) -> Result<(), Violation> {
        for _ in 0..STEPS {
            if self.rng.u32(..12) == 0 {
                self.fault();
            }
            self.step()?;
            self.drop_others();
        }
        let latest = version(VERSIONS_MAX);
        self.append_all();
        self.drop_others();
        for _ in 0..CALM_STEPS {
            for id in self.members() {
                let node = &self.nodes[&id];
                if node.running.is_none() || node.program < latest {
                    self.stop(id);
                    self.start(id, latest);
                }
            }
            self.step()?;
            self.drop_others();
            let writes_it = |id: &NodeId| {
                let running = self.nodes[id].running.as_ref();
                running.is_some_and(|versions| versions.written() == latest)
            };
            if self.members().iter().all(writes_it) {
                return Ok(());
            }
        }
        let agreement = &self.truth.agreement;
        Err(Violation(format!("no progress: {agreement:?}")))
    }
}

fn entries_in(record: &[u8]) -> Vec<Entry> {
    let all = RecordVersions::new(version(u8::MAX));
    let Body::Requests(requests) = stamp(CONTROL, &all).read(record).unwrap().body else {
        return vec![];
    };
    let entries = requests
        .iter()
        .map(|r| serde_json::from_slice(entry_of(r)).unwrap());
    entries.collect()
}

/// Returns whether programs from before announcements refuse an entry of the record.
fn is_of_versions(record: &[u8]) -> bool {
    let is_new = |entry: &Entry| matches!(entry, Entry::Announce { .. } | Entry::Raise { .. });
    entries_in(record).iter().any(is_new)
}

/// Applies a control record as a program of these versions.
fn apply(
    state: &mut ControlState,
    record: &[u8],
    versions: &RecordVersions,
    mutant: Mutant,
) -> Result<(), RecordError> {
    let Body::Requests(requests) = stamp(CONTROL, versions).read(record)?.body else {
        return Ok(());
    };
    for request in requests {
        let entry = entry_of(&request);
        let applied = state.apply(request.gateway, request.counter, entry);
        let raises = serde_json::from_slice(entry).unwrap();
        if let Entry::Raise { version } = raises
            && applied.outcome == EntryOutcome::Refused
            && matches!(
                mutant,
                Mutant::Unchecked | Mutant::Majority | Mutant::RunningOnly
            )
        {
            let mut agreement = serde_json::to_value(&state.agreement).unwrap();
            let in_force = agreement["in_force"].as_u64().unwrap();
            agreement["in_force"] = u64::from(u8::from(version)).max(in_force).into();
            state.agreement = serde_json::from_value(agreement).unwrap();
        }
    }
    Ok(())
}

fn run(seed: u64, mutant: Mutant) -> Result<World, Violation> {
    let mut world = World::new(seed, mutant);
    world.run().map(|()| world)
}

#[test]
fn no_node_meets_a_record_that_it_cannot_read() {
    let (mut raised, mut refused) = (0, 0);
    for seed in 0..SEEDS {
        match run(seed, Mutant::None) {
            Ok(world) => {
                raised += world.raised;
                refused += world.refused_starts;
            }
            Err(Violation(what)) => panic!("seed {seed}: {what}"),
        }
    }
    println!("{SEEDS} seeds: raised {raised} times, {refused} starts refused");
    assert!(raised > SEEDS, "raised {raised} times");
    assert!(refused > SEEDS / 4, "{refused} starts were refused");
}

#[test]
fn leaving_out_a_rule_of_versions_is_noticed() {
    for mutant in [
        Mutant::Majority,
        Mutant::RunningOnly,
        Mutant::Unchecked,
        Mutant::Unstable,
        Mutant::Silent,
        Mutant::Unheard,
    ] {
        let is_noticed = |seed: &u64| {
            let broken = run(*seed, mutant).err();
            broken.is_some_and(|Violation(what)| !what.starts_with("no progress"))
        };
        let seed = (0..SEEDS_MAX).find(is_noticed);
        println!("{mutant:?}: noticed by seed {seed:?}");
        assert!(seed.is_some(), "{mutant:?} is not noticed");
    }
}
