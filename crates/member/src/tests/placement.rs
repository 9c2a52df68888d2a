//! The placement of slots in the state of the control slot, and databases with explicit slots.

use std::collections::BTreeMap;

use cluster::NodeId;
use cluster::record::RecordVersion;

use super::nodes::{Nodes, SLOTS};
use super::{docs, go_on};
use crate::control::entry::{CataloguedDatabase, Entry, EntryOutcome, MemberInfo};
use crate::control::placement_entry::{PlacedLearner, PlacedSlot, PlacementChange, SlotPlacement};
use crate::control::placement_state::PlacementState;
use crate::control::state::ControlState;
use crate::placement::slot_of;
use crate::slot::{CURSOR, PART, PROMISES};
use crate::slot_removal::remove_slot;

const UUID: &str = "000102030405060708090a0b0c0d0e0f";
const V3: RecordVersion = RecordVersion::V3;

/// Entries of record version 4 with their outcomes, and the rows that they store: all but those of
/// versions and gateways. Nodes 1 to 4 are members.
const ENTRIES: [(&str, EntryOutcome, &[&str]); 16] = [
    (
        r#"{"do":"placement","change":"zone","value":{"node":1,"zone":"a"}}"#,
        EntryOutcome::Done,
        &[r#"z1={"zone":"a"}"#],
    ),
    (
        r#"{"do":"placement","change":"zone","value":{"node":1,"zone":"a"}}"#,
        EntryOutcome::Exists,
        &[],
    ),
    (
        r#"{"do":"placement","change":"zone","value":{"node":9,"zone":"a"}}"#,
        EntryOutcome::Missing,
        &[],
    ),
    // Every node has every slot.
    (
        r#"{"do":"placement","change":"drain","value":{"node":1}}"#,
        EntryOutcome::Refused,
        &[],
    ),
    (
        r#"{"do":"placement","change":"copies","value":{"copies":5}}"#,
        EntryOutcome::Refused,
        &[],
    ),
    (
        r#"{"do":"placement","change":"copies","value":{"copies":3}}"#,
        EntryOutcome::Done,
        &["n=3"],
    ),
    (
        r#"{"do":"placement","change":"drain","value":{"node":1}}"#,
        EntryOutcome::Done,
        &[r#"z1={"zone":"a","is_draining":true}"#],
    ),
    // Two would be left.
    (
        r#"{"do":"placement","change":"drain","value":{"node":2}}"#,
        EntryOutcome::Refused,
        &[],
    ),
    (
        r#"{"do":"placement","change":"copies","value":{"copies":null}}"#,
        EntryOutcome::Refused,
        &[],
    ),
    (
        r#"{"do":"placement","change":"place","value":{"slots":[{"slot":7,"wanted":[2,3,9],"replicas":[1,2,3],"learners":[{"node":4,"from":2}]}],"decision":1}}"#,
        EntryOutcome::Done,
        &[
            "o=1",
            r#"w7={"wanted":[2,3],"replicas":[1,2,3],"learners":[{"node":4,"from":2}]}"#,
        ],
    ),
    (
        r#"{"do":"placement","change":"place","value":{"slots":[{"slot":7,"wanted":[1]}],"decision":1}}"#,
        EntryOutcome::Exists,
        &[],
    ),
    (
        r#"{"do":"placement","change":"zone","value":{"node":1,"zone":null}}"#,
        EntryOutcome::Done,
        &[r#"z1={"is_draining":true}"#],
    ),
    (
        r#"{"do":"placement","change":"undrain","value":{"node":1}}"#,
        EntryOutcome::Done,
        &["z1"],
    ),
    (
        r#"{"do":"placement","change":"undrain","value":{"node":1}}"#,
        EntryOutcome::Exists,
        &[],
    ),
    (
        r#"{"do":"leave","node":4}"#,
        EntryOutcome::Done,
        &["m4", r#"w7={"wanted":[2,3],"replicas":[1,2,3]}"#],
    ),
    (
        r#"{"do":"placement","change":"copies","value":{"copies":null}}"#,
        EntryOutcome::Done,
        &["n", "w7"],
    ),
];

/// Returns a row as text; a number of a node or slot in decimal digits.
fn shown((key, value): &(Vec<u8>, Option<Vec<u8>>)) -> String {
    let rest = match key[1..].len() {
        8 => u64::from_be_bytes(key[1..].try_into().unwrap()).to_string(),
        2 => u16::from_be_bytes(key[1..].try_into().unwrap()).to_string(),
        _ => String::from_utf8(key[1..].to_vec()).unwrap(),
    };
    let key = format!("{}{rest}", char::from(key[0]));
    match value {
        Some(value) => format!("{key}={}", std::str::from_utf8(value).unwrap()),
        None => key,
    }
}

pub(super) fn join(node: NodeId) -> Entry {
    let (name, address) = (format!("node{node}"), format!("node{node}:1"));
    Entry::Join {
        node,
        member: MemberInfo { name, address },
        token: None,
        version: None,
    }
}

#[test]
fn entries_of_placement_have_one_form_and_one_effect() {
    let mut state = ControlState::default();
    let mut stored = BTreeMap::new();
    let joins = (1..=4).map(|node| serde_json::to_string(&join(node)).unwrap());
    let joins = joins.map(|entry| (entry, EntryOutcome::Done, None));
    let entries = ENTRIES.into_iter();
    let entries = entries.map(|(entry, outcome, rows)| (entry.to_owned(), outcome, Some(rows)));
    for (counter, (entry, outcome, expected)) in (1..).zip(joins.chain(entries)) {
        let parsed: Entry = serde_json::from_str(&entry).unwrap();
        assert_eq!(serde_json::to_string(&parsed).unwrap(), entry);
        if matches!(parsed, Entry::Placement { .. }) {
            assert_eq!(parsed.needs(), RecordVersion::V4);
        }
        let applied = state.apply(7, counter, entry.as_bytes());
        assert_eq!(applied.outcome, outcome, "{entry}");
        let is_of_it = |row: &&(Vec<u8>, Option<Vec<u8>>)| !matches!(row.0[0], b'v' | b'g');
        let rows: Vec<String> = applied.rows.iter().filter(is_of_it).map(shown).collect();
        assert!(
            expected.is_none_or(|expected| rows == expected),
            "{entry}: {rows:?}"
        );
        for (key, value) in applied.rows {
            assert!(ControlState::owns(&key));
            match value {
                Some(value) => drop(stored.insert(key, value)),
                None => drop(stored.remove(&key)),
            }
        }
        let rows: Vec<_> = stored.clone().into_iter().collect();
        assert_eq!(
            ControlState::from_rows(&rows).as_ref(),
            Some(&state),
            "{entry}"
        );
    }
}

#[test]
fn rows_of_the_state_have_other_keys_than_those_of_its_replica() {
    for key in [&[PART][..], CURSOR, PROMISES] {
        assert!(!ControlState::owns(key), "{key:?}");
    }
    let placement = [&b"z"[..], b"w", b"n", b"o"];
    let others = [
        &b"d"[..],
        b"m",
        b"s",
        b"t",
        b"g",
        b"c",
        b"r",
        b"f",
        b"l",
        b"v",
    ];
    for key in placement.into_iter().chain(others) {
        assert!(ControlState::owns(key), "{key:?}");
    }
    assert!(others.iter().all(|key| !PlacementState::owns(key)));
}

#[test]
fn a_slot_needs_a_node_without_which_it_has_no_majority() {
    let mut state = PlacementState::default();
    let slots = [
        (0, vec![1, 2, 3]),
        (1, vec![1, 2]),
        (2, vec![1]),
        (3, vec![2, 3, 4]),
    ];
    for (slot, replicas) in slots {
        let of = SlotPlacement {
            replicas: replicas.into_iter().collect(),
            ..SlotPlacement::default()
        };
        state.slots.insert(slot, of);
    }
    assert_eq!(state.slots_that_need(1, |_| true), 2);
    assert_eq!(state.slots_that_need(4, |_| true), 0);
    // Another one is down.
    assert_eq!(state.slots_that_need(1, |node| node != 2), 3);
    assert_eq!(state.slots_that_need(5, |_| false), 0);
}

/// Of two nodes that leave one after the other, the first one is live until it is stopped.
#[test]
fn a_slot_does_not_rely_on_a_node_that_has_left() {
    let mut state = ControlState::default();
    let of = SlotPlacement {
        replicas: [1, 2, 3].into(),
        ..SlotPlacement::default()
    };
    state.placement.slots.insert(0, of);
    for node in 1..=3 {
        let (name, address) = (format!("node{node}"), format!("node{node}:1"));
        state.members.insert(node, MemberInfo { name, address });
    }
    assert_eq!(state.slots_that_need(2, |_| true), 0);
    state.members.remove(&1);
    assert_eq!(state.slots_that_need(2, |_| true), 1);
}

#[test]
fn a_learner_of_one_slot_is_none_of_another() {
    let mut state = PlacementState::default();
    let of = SlotPlacement {
        learners: vec![PlacedLearner { node: 4, from: 1 }],
        ..SlotPlacement::default()
    };
    state.slots.insert(7, of);
    assert!(state.learns(4, 7) && !state.learns(1, 7) && !state.learns(4, 6));
}

#[test]
fn a_decision_has_no_effect_once_every_node_has_every_slot() {
    let mut state = PlacementState::default();
    let change = || PlacementChange::Place {
        slots: vec![PlacedSlot {
            slot: 0,
            placement: SlotPlacement::default(),
        }],
        decision: 1,
    };
    assert_eq!(state.change(change(), &[1, 2]), Err(EntryOutcome::Exists));
    assert_eq!(state, PlacementState::default());
    let copies = Some(1);
    assert!(
        state
            .change(PlacementChange::Copies { copies }, &[1, 2])
            .is_ok()
    );
    assert!(state.change(change(), &[1, 2]).is_ok());
}

/// Returns a database with three shards in slot 1.
fn in_one_slot() -> CataloguedDatabase {
    let json = format!(
        r#"{{"uuid":"{UUID}","q":3,"slots":[1,1,1],"created_unix_s":5,"security":"{{}}"}}"#
    );
    serde_json::from_str(&json).unwrap()
}

#[test]
fn explicit_slots_need_one_for_each_shard_and_a_record_version() {
    let mut state = ControlState::default();
    let mut database = in_one_slot();
    let create = |database: &CataloguedDatabase| Entry::CreateDatabase {
        name: "a".into(),
        database: database.clone(),
    };
    assert_eq!(create(&database).needs(), RecordVersion::V4);
    database.slots.pop();
    let text = serde_json::to_vec(&create(&database)).unwrap();
    assert_eq!(state.apply(1, 1, &text).outcome, EntryOutcome::Refused);
    database.slots.clear();
    assert!(create(&database).needs() < V3);
    let of_shards = database.shard_slots(16);
    assert!((0..3).all(|shard| of_shards.of(shard) == slot_of(database.uuid, shard, 16)));
    assert_eq!(of_shards.all(3).len(), 3);
    assert_eq!(in_one_slot().shard_slots(16).all(3), [1]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_with_explicit_slots_is_written_and_copied_there() {
    let mut nodes = Nodes::three().await;
    let entry = Entry::CreateDatabase {
        name: "a".into(),
        database: in_one_slot(),
    };
    nodes.enter(1, entry).await;
    nodes.create(1, "new", 2).await;
    nodes.agree(&[1, 2, 3]).await;
    for node in 1..=3 {
        let db = nodes.node(node).databases.get("a").unwrap();
        assert_eq!(nodes.node(node).gateway.slots(&db), [1]);
        assert_eq!(nodes.node(node).gateway.slot(&db, "doc-1"), 1);
    }
    nodes.write(2, "a", &docs(0, 30)).await;
    nodes.agree(&[1, 2, 3]).await;
    let db = nodes.node(3).databases.get("a").unwrap();
    let before: Vec<_> = db.all_shards().iter().map(|s| s.number).collect();
    drop(db);
    nodes.stop(3).await;
    nodes.write(1, "a", &docs(100, 30)).await;
    nodes.log.trim(1, usize::MAX);
    nodes.start(3).await;
    nodes.agree(&[1, 2, 3]).await;
    let db = nodes.node(3).databases.get("a").unwrap();
    let after = db.all_shards().iter().map(|s| s.number);
    assert!(after.zip(before).all(|(after, before)| after != before));
    assert_eq!(nodes.node(3).gateway.slots(&db), [1]);
    drop(db);
    go_on(&nodes).await;
    nodes.delete(2, "a").await;
    nodes.agree(&[1, 2, 3]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_that_ends_on_a_node_can_start_there_again() {
    let nodes = Nodes::three().await;
    nodes.create(1, "a", 3).await;
    nodes.create(1, "new", 2).await;
    nodes.write(3, "a", &docs(0, 30)).await;
    nodes.agree(&[1, 2, 3]).await;
    let third = nodes.node(3);
    let count = third.replicas.all().count();
    third.replicas.end(1).await;
    assert!(third.replicas.get(1).is_none());
    assert_eq!(third.replicas.all().count(), count - 1);
    nodes.write(1, "a", &docs(100, 30)).await;
    let started = third.starter.start(1).unwrap();
    assert!(third.replicas.add(1, started));
    nodes.agree(&[1, 2, 3]).await;
    go_on(&nodes).await;
}

/// Also if the log does not have the records any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_that_a_node_leaves_takes_no_room_there_and_can_return() {
    let nodes = Nodes::three().await;
    nodes.create(1, "a", 5).await;
    nodes.create(1, "new", 2).await;
    nodes.write(3, "a", &docs(0, 60)).await;
    nodes.agree(&[1, 2, 3]).await;
    let third = nodes.node(3);
    // The documents of each shard, and whether it is in slot 1.
    let shards = || -> Vec<(u64, bool)> {
        let db = third.databases.get("a").unwrap();
        let slots = third.gateway.shard_slots(db.uuid());
        let shards = db.all_shards().iter().enumerate();
        let docs = shards.map(|(i, shard)| (shard.meta().doc_count, slots.of(i) == 1));
        docs.collect()
    };
    for is_trimmed in [false, true] {
        let before = shards();
        assert!(before.iter().all(|(docs, _)| *docs > 0));
        third.replicas.end(1).await;
        let (databases, catalogue) = (&third.databases, &third.catalogue);
        let removed = remove_slot(databases, catalogue, SLOTS, 1).await;
        removed.unwrap();
        assert!(databases.store().slot(1).unwrap().is_none());
        for ((docs, is_in_slot), (before, _)) in shards().into_iter().zip(before) {
            assert_eq!(docs, if is_in_slot { 0 } else { before });
        }
        nodes.write(1, "a", &docs(100, 30)).await;
        if is_trimmed {
            nodes.log.trim(1, usize::MAX);
        }
        let started = third.starter.start(1).unwrap();
        assert!(third.replicas.add(1, started));
        nodes.agree(&[1, 2, 3]).await;
    }
    go_on(&nodes).await;
}

/// Also on a node that gets the state as a copy.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_nodes_know_the_placement() {
    let mut nodes = Nodes::three().await;
    for node in 1..=3 {
        nodes.enter(1, join(node)).await;
    }
    nodes.stop(3).await;
    let change = PlacementChange::Copies { copies: Some(2) };
    nodes.enter(1, Entry::Placement { change }).await;
    let change = PlacementChange::Drain { node: 3 };
    nodes.enter(2, Entry::Placement { change }).await;
    nodes.trim();
    nodes.start(3).await;
    nodes.agree(&[1, 2, 3]).await;
    for node in 1..=3 {
        let placement = (nodes.node(node).catalogue).with(|state| state.placement.clone());
        assert_eq!(placement.copies, Some(2), "node {node}");
        assert!(placement.is_draining(3), "node {node}");
        assert!(!placement.is_draining(1), "node {node}");
    }
}
