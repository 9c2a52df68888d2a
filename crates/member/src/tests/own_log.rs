//! The log in the nodes as a node opens it.

use std::path::Path;
use std::sync::Arc;

use cluster::CONTROL;
use cluster::log::AppendError;
use raft_log::RaftLog;

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
