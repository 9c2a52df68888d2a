//! Nodes of one slot in one process, and their network.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cluster::position::NodeId;
use cluster::record::{
    ChangeRecord, DatabaseWork, EditRecord, RecordVersion, RecordVersions, Request, Stamp, Work,
};
use cluster::replica::Message;
use cluster::slot::{Network, ProposeError, Slot, SlotOptions, Wait};
use cluster::{MemoryLog, SlotNumber};
use document::DocId;
use tokio::time::Instant;

use crate::slots::store::{Disk, Disks, MemoryStore, Outcome, locked};

pub const SLOT: SlotNumber = 3;
pub const TICK: Duration = Duration::from_millis(10);

#[derive(Default)]
pub struct Net {
    slots: Mutex<BTreeMap<NodeId, Slot<MemoryStore>>>,
    /// Percentage of messages lost.
    pub loss: AtomicU32,
    pub cut: Mutex<BTreeSet<(NodeId, NodeId)>>,
}

struct NetOf {
    me: NodeId,
    net: Arc<Net>,
}

impl Network for NetOf {
    fn send(&self, to: NodeId, slot: SlotNumber, message: Message) {
        assert_eq!(slot, SLOT);
        let (from, net) = (self.me, &self.net);
        let is_lost = fastrand::u32(..100) < net.loss.load(Ordering::Relaxed);
        let is_cut = locked(&net.cut).contains(&(from.min(to), from.max(to)));
        let slot = locked(&net.slots).get(&to).cloned();
        let Some(slot) = slot.filter(|_| !is_lost && !is_cut) else {
            return;
        };
        let message = Message::decode(&message.encode()).expect("a message");
        if fastrand::u32(..20) > 0 || net.loss.load(Ordering::Relaxed) == 0 {
            return slot.deliver(from, message);
        }
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(fastrand::u64(1..30))).await;
            slot.deliver(from, message);
        });
    }
}

pub struct Nodes {
    pub log: MemoryLog,
    pub net: Arc<Net>,
    pub disks: Disks,
    genesis: Vec<NodeId>,
    write_delay: Duration,
    /// How long the disks of a majority may lag.
    lag_time_max: Duration,
}

impl Nodes {
    /// Starts these nodes, of which the first ones are the slot's replicas.
    pub fn start(nodes: u64, replicas: u64, write_delay: Duration) -> Nodes {
        Nodes::start_with(nodes, replicas, write_delay, Duration::from_secs(60))
    }

    pub fn start_with(
        nodes: u64,
        replicas: u64,
        write_delay: Duration,
        lag_time_max: Duration,
    ) -> Nodes {
        let nodes = Nodes {
            genesis: (1..=replicas).collect(),
            write_delay,
            lag_time_max,
            ..Nodes::none(nodes)
        };
        nodes.disks.keys().for_each(|node| nodes.start_one(*node));
        nodes
    }

    /// Creates these nodes, all of them replicas, without starting them.
    pub fn none(nodes: u64) -> Nodes {
        let disks = (1..=nodes).map(|node| (node, Arc::<Disk>::default()));
        Nodes {
            log: MemoryLog::new(),
            net: Arc::default(),
            disks: Arc::new(disks.collect()),
            genesis: (1..=nodes).collect(),
            write_delay: Duration::from_millis(1),
            lag_time_max: Duration::from_secs(60),
        }
    }

    pub fn three() -> Nodes {
        Nodes::start(3, 3, Duration::from_millis(1))
    }

    pub fn start_one(&self, me: NodeId) {
        self.start_program(me, RecordVersions::new(RecordVersion::LATEST));
    }

    /// Starts a node with a program of these versions.
    pub fn start_program(&self, me: NodeId, versions: RecordVersions) {
        let stamp = Stamp {
            versions,
            ..stamp()
        };
        let mut options = SlotOptions::new(stamp, me, fastrand::u64(..), self.genesis.clone());
        options.tick = TICK;
        options.again_after = Duration::from_millis(100);
        options.lag_time_max = self.lag_time_max;
        let store = Arc::new(MemoryStore::new(me, &self.disks, self.write_delay));
        let net = Arc::clone(&self.net);
        let network = Arc::new(NetOf { me, net });
        let log = Arc::new(self.log.clone());
        let slot = Slot::start(options, store, log, network).expect("it starts");
        locked(&self.net.slots).insert(me, slot);
    }

    pub async fn stop_one(&self, node: NodeId) {
        let slot = locked(&self.net.slots).remove(&node);
        slot.expect("it runs").stop().await;
    }

    pub fn slot(&self, node: NodeId) -> Slot<MemoryStore> {
        locked(&self.net.slots)[&node].clone()
    }

    pub fn cut_off(&self, node: NodeId, is_cut: bool) {
        let mut cut = locked(&self.net.cut);
        for other in self.disks.keys().filter(|other| **other != node) {
            let pair = (node.min(*other), node.max(*other));
            match is_cut {
                true => cut.insert(pair),
                false => cut.remove(&pair),
            };
        }
    }

    /// Waits until a condition holds; reports the state of all nodes when that takes too long.
    pub async fn until(&self, what: &str, mut is_so: impl FnMut() -> bool) {
        for _ in 0..3_000 {
            if is_so() {
                return;
            }
            tokio::time::sleep(TICK).await;
        }
        panic!("never {what}: {}", self.describe());
    }

    pub fn describe(&self) -> String {
        let slots = locked(&self.net.slots);
        let each = slots
            .iter()
            .map(|(n, slot)| format!("\n{n}: {:?}", slot.status()));
        each.collect()
    }

    /// Acts as an operator: when a majority does not advance, starts a new generation.
    pub async fn operate(&self) {
        loop {
            tokio::time::sleep(TICK * 30).await;
            let slots: Vec<_> = locked(&self.net.slots).values().cloned().collect();
            let stuck: Vec<_> = slots.iter().filter(|s| !s.status().proposes).collect();
            if stuck.len() * 2 > slots.len() {
                stuck[fastrand::usize(..stuck.len())].reseed();
            }
        }
    }

    /// Checks that all reach the same state, which has each acknowledged request once, at its
    /// acknowledged position.
    pub async fn agree(&self, acknowledged: &[((u64, u64), Outcome)]) {
        let members = self.slot(1).status().members;
        self.until("at one place", || {
            let at = |node: &NodeId| {
                let status = self.slot(*node).status();
                let is_there = status.proposes && status.stable == status.position.next_offset;
                is_there.then_some(status.position.chain)
            };
            let first = members.first().and_then(at);
            first.is_some() && members.iter().all(|node| at(node) == first)
        })
        .await;
        let states = members.iter().map(|node| self.disks[node].state().clone());
        let states: Vec<_> = states.collect();
        let lineage = &states[0].lineage;
        let distinct: BTreeSet<_> = lineage.iter().collect();
        assert_eq!(distinct.len(), lineage.len(), "something was applied twice");
        for state in &states {
            assert_eq!(&state.lineage, lineage);
            assert_eq!(state.documents, states[0].documents);
        }
        for (key, outcome) in acknowledged {
            assert_eq!(lineage.get(outcome - 1), Some(key), "{key:?} was lost");
        }
    }
}

pub fn stamp() -> Stamp {
    Stamp {
        cluster: [7; 16],
        key: [9; 32],
        slot: SLOT,
        versions: RecordVersions::new(RecordVersion::LATEST),
    }
}

pub fn request(key: (u64, u64), id: &str, body: &[u8]) -> Request {
    Request {
        gateway: key.0,
        counter: key.1,
        databases: vec![DatabaseWork {
            database: [1; 16],
            since: 0,
            revs_limit: 1000,
            purged_infos_limit: 1000,
            leaves_max: None,
            designs: 0,
            work: Work::Edits(vec![EditRecord {
                id: DocId::new(id).expect("an id"),
                deleted: false,
                body: body.to_vec(),
                files: vec![],
                change: ChangeRecord::Local { rev: Some(1) },
            }]),
        }],
    }
}

pub fn within(milliseconds: u64) -> Instant {
    Instant::now() + Duration::from_millis(milliseconds)
}

pub fn majority(milliseconds: u64) -> Wait {
    Wait {
        copies: None,
        deadline: within(milliseconds),
    }
}

/// A client that writes a number of requests, at any node, and repeats a request with the same
/// number until it is acknowledged.
pub async fn write_all(nodes: &Nodes, gateway: u64, count: u64) -> Vec<((u64, u64), Outcome)> {
    let mut acknowledged = vec![];
    let all: Vec<NodeId> = nodes.slot(1).status().members;
    let all = if all.is_empty() { vec![1, 2, 3] } else { all };
    for counter in 0..count {
        let key = (gateway, counter);
        let began = Instant::now();
        loop {
            assert!(
                began.elapsed() < Duration::from_secs(40),
                "no progress: {}",
                nodes.describe()
            );
            let node = all[fastrand::usize(..all.len())];
            let slot = locked(&nodes.net.slots).get(&node).cloned();
            let Some(slot) = slot else {
                tokio::time::sleep(TICK).await;
                continue;
            };
            let id = format!("d{}", counter % 7);
            let request = request(key, &id, counter.to_string().as_bytes());
            match slot.propose(request, majority(500)).await {
                Ok(proposed) => {
                    assert!(proposed.copies * 2 > all.len());
                    acknowledged.push((key, proposed.outcome));
                    break;
                }
                Err(ProposeError::NotNow(_)) => tokio::time::sleep(TICK).await,
                Err(_) => {}
            }
        }
    }
    acknowledged
}
