//! The log in the nodes: as a node opens it, and below three nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use cluster::log::AppendError;
use cluster::{CONTROL, NodeId};
use parking_lot::RwLock;
use raft_log::{EngineDisk, Inlet, LogDisk as _, LogNode, RaftLog, Transport};

use super::nodes::{Nodes, SLOTS, until};

use crate::control::entry::{Entry, EntryOutcome, LogSeat, LogTable, MemberInfo};
use crate::control::state::ControlState;
use crate::join::init;
use crate::membership::{LogKeeper, Membership, OwnLog, folder, move_log};
use crate::open_log::{LogKind, OpenLog, open_own};

fn first_node(data: &Path) -> Membership {
    let member = MemberInfo {
        name: "one@127.0.0.1".into(),
        address: "127.0.0.1:5986".into(),
    };
    init(data, "shop", 2, member).unwrap()
}

fn open(home: &Membership, data: &Path, own: OwnLog) -> OpenLog {
    open_own(home, data, LogTable::default(), own).unwrap()
}

/// The note that a node makes of a log that it opened.
fn noted(open: &OpenLog) -> OwnLog {
    match &open.keeper {
        LogKeeper::Nodes(own) => own.clone(),
        other => panic!("{other:?}"),
    }
}

fn own(open: &OpenLog) -> &Arc<RaftLog> {
    match &open.kind {
        LogKind::Nodes { log, .. } => log,
        LogKind::Kafka(_) => panic!("it is in Kafka"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_groups_of_a_log_are_created_once_and_a_new_disk_has_another_id() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path();
    let mut home = first_node(data);
    assert_eq!(home.keeper(), LogKeeper::Undecided);
    let new = OwnLog {
        creates: true,
        ..OwnLog::default()
    };
    let first = open(&home, data, new.clone());
    let disk = own(&first).options().me.raft;
    assert_eq!(first.log.append(CONTROL, vec![1]).await, Ok(0));
    let note = noted(&first);
    let node = home.node;
    assert_eq!(
        (note.creates, &note.nodes[..]),
        (false, &[LogSeat { node, disk }][..])
    );
    drop(first);
    // A crash came before the note.
    let again = open(&home, data, new);
    assert_eq!(own(&again).options().me.raft, disk);
    assert_eq!(again.log.append(CONTROL, vec![2]).await, Ok(1));
    home.note_log(data, again.keeper.clone()).unwrap();
    drop(again);
    std::fs::remove_dir_all(folder(data).join("log")).unwrap();
    let home = Membership::read_in(&folder(data)).unwrap();
    assert_eq!(home.keeper(), LogKeeper::Nodes(note.clone()));
    let lost = open(&home, data, note);
    assert_ne!(own(&lost).options().me.raft, disk);
    let refused = lost.log.append(CONTROL, vec![3]).await;
    assert!(
        matches!(refused, Err(AppendError::Refused(_))),
        "{refused:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_log_starts_empty_and_the_earlier_one_is_removed_once_control_is_in_it() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path();
    let home = first_node(data);
    let new = |number| OwnLog {
        number,
        creates: true,
        nodes: vec![],
    };
    let first = open(&home, data, new(0));
    assert_eq!(first.log.append(0, vec![1]).await, Ok(0));
    drop(first);
    move_log(data, LogKeeper::Nodes(new(70_000))).unwrap();
    let home = Membership::read_in(&folder(data)).unwrap();
    assert_eq!(home.keeper(), LogKeeper::Nodes(new(70_000)));
    let second = open(&home, data, new(70_000));
    assert_eq!(second.number(), 70_000);
    assert_eq!(second.log.append(0, vec![2]).await, Ok(0));
    let note = noted(&second);
    drop(second);
    let logs = folder(data).join("log");
    assert!(logs.join("0").exists());
    let table = LogTable {
        log: 70_000,
        changes: 4,
        nodes: note.nodes.clone(),
        ..LogTable::default()
    };
    let third = open_own(&home, data, table.clone(), note).unwrap();
    let LogKind::Nodes { table: known, .. } = &third.kind else {
        panic!("it is in Kafka");
    };
    assert_eq!(*known, table);
    assert!(!logs.join("0").exists());
}

#[test]
fn the_control_state_has_the_latest_table_of_members() {
    let mut state = ControlState::default();
    let member = MemberInfo {
        name: "one@127.0.0.1".into(),
        address: "127.0.0.1:5986".into(),
    };
    state.members.insert(1, member);
    let table = |changes, node| {
        let nodes = vec![LogSeat { node, disk: 10 }];
        Entry::LogTable(LogTable {
            changes,
            nodes,
            ..LogTable::default()
        })
    };
    let form = r#"{"do":"log_table","log":0,"changes":2,"nodes":[{"node":1,"disk":10}]}"#;
    assert_eq!(serde_json::to_string(&table(2, 1)).unwrap(), form);
    let mut stored = vec![];
    for (counter, changes, node, outcome) in [
        (1, 2, 1, EntryOutcome::Done),
        (2, 2, 1, EntryOutcome::Exists),
        (3, 1, 1, EntryOutcome::Exists),
        (4, 3, 2, EntryOutcome::Refused),
    ] {
        let entry = serde_json::to_vec(&table(changes, node)).unwrap();
        let done = state.apply(7, counter, &entry);
        assert_eq!(done.outcome, outcome, "{counter}");
        stored.extend(done.rows);
    }
    assert_eq!(state.log_table.changes, 2);
    let row = stored.iter().find(|(key, _)| key == b"l").unwrap();
    assert!(ControlState::owns(&row.0));
    let rows = [(row.0.clone(), row.1.clone().unwrap())];
    let read = ControlState::from_rows(&rows).unwrap();
    assert_eq!(read.log_table, state.log_table);
}

type Inlets = Arc<RwLock<BTreeMap<NodeId, Inlet>>>;

/// Delivers bundles of a node.
struct Wire {
    from: NodeId,
    inlets: Inlets,
}

impl Transport for Wire {
    fn send(&self, to: NodeId, bundle: Bytes) -> bool {
        let inlets = self.inlets.read();
        let inlet = inlets.get(&to);
        inlet.map(|it| it.deliver(self.from, bundle)).is_some()
    }
}

/// The logs of three nodes.
#[derive(Default)]
struct OwnLogs {
    inlets: Inlets,
    table: Vec<LogNode>,
    running: BTreeMap<NodeId, Arc<RaftLog>>,
}

impl OwnLogs {
    /// Starts the logs of three nodes, one after the other, as nodes join.
    fn three(nodes: &mut Nodes) -> OwnLogs {
        let mut logs = OwnLogs::default();
        for node in 1..=3 {
            logs.start(nodes, node);
        }
        logs
    }

    /// Starts the log of a node. The first one creates the groups.
    fn start(&mut self, nodes: &mut Nodes, node: NodeId) {
        let path = nodes.folder(&format!("log-{node}"));
        std::fs::create_dir_all(&path).unwrap();
        let disk = EngineDisk::open(&path, 1 << 30).unwrap();
        let me = LogNode {
            raft: disk.raft_id().unwrap(),
            node,
        };
        let creates = self.table.is_empty();
        self.table.retain(|it| it.node != node);
        self.table.push(me);
        let options = raft_log::Options {
            me,
            log: 0,
            origin: fastrand::u64(..),
            slots: SLOTS,
            disk_bytes_max: 1 << 30,
        };
        let wire = Wire {
            from: node,
            inlets: self.inlets.clone(),
        };
        let (disk, wire) = (Arc::new(disk), Arc::new(wire));
        let log = RaftLog::start(options, disk, wire, self.table.clone(), creates).unwrap();
        self.inlets.write().insert(node, log.inlet());
        let log = Arc::new(log);
        nodes.own.insert(node, log.clone());
        self.running.insert(node, log);
        for log in self.running.values() {
            log.set_log_nodes(self.table.clone());
        }
    }

    /// Stops the log of a node that is stopped, and waits until its files are closed.
    async fn stop(&mut self, nodes: &mut Nodes, node: NodeId) {
        self.inlets.write().remove(&node);
        nodes.own.remove(&node);
        let log = self.running.remove(&node).unwrap();
        let left = Arc::downgrade(&log);
        drop(log);
        until("let go", || left.strong_count() == 0).await;
    }

    /// Waits until the log of every slot is kept by the nodes of the table.
    async fn settle(&self) {
        until("settled", || {
            let all = self.running.values().map(|log| log.figures());
            let same = all.filter(|figures| figures.log_nodes == self.table);
            let settled = same.flat_map(|figures| &figures.led - &figures.unsettled);
            settled.collect::<BTreeSet<_>>().len() == usize::from(SLOTS) + 1
        })
        .await;
    }
}

fn numbered(from: u32) -> Vec<String> {
    let doc = |i: u32| format!(r#"{{"_id":"doc-{i}","i":{i}}}"#);
    (from..from + 20).map(doc).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_nodes_agree_over_their_own_log() {
    let mut nodes = Nodes::none();
    let logs = OwnLogs::three(&mut nodes);
    let mut nodes = nodes.with_three().await;
    logs.settle().await;
    nodes.create(1, "a", 4).await;
    nodes.create(2, "gone", 2).await;
    for (node, from) in [(1, 0), (2, 100), (3, 200)] {
        nodes.write(node, "a", &numbered(from)).await;
    }
    nodes.agree(&[1, 2, 3]).await;
    nodes.stop(3).await;
    nodes.write(1, "a", &numbered(300)).await;
    nodes.node(2).databases.delete("gone").await.unwrap();
    nodes.start(3).await;
    nodes.write(3, "a", &numbered(400)).await;
    nodes.agree(&[1, 2, 3]).await;
    let info = nodes.node(3).databases.get("a").unwrap().info().unwrap();
    assert_eq!(info.doc_count, 100);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_part_of_the_log_that_was_lost_is_replaced() {
    let mut nodes = Nodes::none();
    let mut logs = OwnLogs::three(&mut nodes);
    let mut nodes = nodes.with_three().await;
    logs.settle().await;
    nodes.create(1, "a", 4).await;
    nodes.write(1, "a", &numbered(0)).await;
    nodes.agree(&[1, 2, 3]).await;
    let before = logs.table.clone();
    nodes.stop(2).await;
    logs.stop(&mut nodes, 2).await;
    std::fs::remove_dir_all(nodes.folder("log-2")).unwrap();
    nodes.write(3, "a", &numbered(100)).await;
    logs.start(&mut nodes, 2);
    assert!(!logs.table.iter().any(|it| before[1] == *it));
    nodes.start(2).await;
    logs.settle().await;
    // It counts now: another one dies.
    nodes.stop(1).await;
    logs.stop(&mut nodes, 1).await;
    nodes.write(2, "a", &numbered(200)).await;
    nodes.write(3, "a", &numbered(300)).await;
    nodes.agree(&[2, 3]).await;
    let info = nodes.node(2).databases.get("a").unwrap().info().unwrap();
    assert_eq!(info.doc_count, 80);
}
