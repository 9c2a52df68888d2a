//! Record versions: what older programs wrote is read as they read it, and later versions come into
//! force once all members read them.

use std::collections::BTreeMap;

use cluster::log::RawReadBackResult;
use cluster::record::{Announcement, RecordVersion, RecordVersions};
use cluster::{CONTROL, Log as _, NodeId};

use super::nodes::{Nodes, SLOTS, until};
use super::{docs, go_on, kept};
use crate::Error;
use crate::control::entry::{Entry, EntryOutcome, MemberInfo};
use crate::control::state::ControlState;
use crate::control::stored_agreement;
use crate::requested::RequestedReplications;
use crate::versions::{VersionKeeper, check};

const V1: RecordVersion = RecordVersion::V1;
const V2: RecordVersion = RecordVersion::V2;

/// Entries as programs of version 1 wrote them, and the rows that they stored.
const OLD: [(&str, &[&str]); 10] = [
    (
        r#"{"do":"setting","section":"admins","key":"anna","value":"x"}"#,
        &["sadmins/anna=x"],
    ),
    (
        r#"{"do":"join","node":1,"member":{"name":"node1@h","address":"h:1"},"token":null}"#,
        &[r#"m1={"name":"node1@h","address":"h:1"}"#],
    ),
    (
        r#"{"do":"create_database","name":"a","database":{"uuid":"000102030405060708090a0b0c0d0e0f","q":2,"partitioned":false,"created_unix_s":5,"security":"{}","since":0}}"#,
        &[
            r#"da={"uuid":"000102030405060708090a0b0c0d0e0f","q":2,"partitioned":false,"created_unix_s":5,"security":"{}","since":3}"#,
        ],
    ),
    (
        r#"{"do":"change","uuid":"000102030405060708090a0b0c0d0e0f","property":"revs_limit","value":7}"#,
        &[
            r#"da={"uuid":"000102030405060708090a0b0c0d0e0f","q":2,"partitioned":false,"created_unix_s":5,"security":"{}","revs_limit":7,"since":3}"#,
        ],
    ),
    (
        r#"{"do":"change","uuid":"000102030405060708090a0b0c0d0e0f","property":"expiry","value":{"member":"until","then":"purge"}}"#,
        &[
            r#"da={"uuid":"000102030405060708090a0b0c0d0e0f","q":2,"partitioned":false,"created_unix_s":5,"security":"{}","revs_limit":7,"expiry":{"member":"until","then":"purge"},"since":3}"#,
        ],
    ),
    (
        r#"{"do":"runs","nodes":[1],"changes":1}"#,
        &[r#"r={"nodes":[1],"changes":1}"#],
    ),
    (r#"{"do":"token","id":"t","record":"{}"}"#, &["tt={}"]),
    (
        r#"{"do":"announce_drop","uuid":"000102030405060708090a0b0c0d0e0f"}"#,
        &[
            r#"da={"uuid":"000102030405060708090a0b0c0d0e0f","q":2,"partitioned":false,"created_unix_s":5,"security":"{}","revs_limit":7,"expiry":{"member":"until","then":"purge"},"since":3,"is_going":true}"#,
        ],
    ),
    (
        r#"{"do":"drop_database","uuid":"000102030405060708090a0b0c0d0e0f"}"#,
        &["da"],
    ),
    (
        r#"{"do":"leave","node":1}"#,
        &["m1", r#"r={"nodes":[],"changes":2}"#],
    ),
];

/// Returns a row as text; a number as a key in decimal digits.
fn shown((key, value): &(Vec<u8>, Option<Vec<u8>>)) -> String {
    let rest = match <[u8; 8]>::try_from(&key[1..]) {
        Ok(number) => u64::from_be_bytes(number).to_string(),
        Err(_) => String::from_utf8(key[1..].to_vec()).unwrap(),
    };
    let key = format!("{}{rest}", char::from(key[0]));
    match value {
        Some(value) => format!("{key}={}", std::str::from_utf8(value).unwrap()),
        None => key,
    }
}

#[test]
fn entries_of_version_1_have_the_effects_that_they_had() {
    let mut state = ControlState::default();
    let mut stored = BTreeMap::new();
    for (counter, (entry, expected)) in (1..).zip(OLD) {
        let applied = state.apply(7, counter, entry.as_bytes());
        assert_eq!(applied.outcome, EntryOutcome::Done, "{entry}");
        let is_of_it = |row: &&(Vec<u8>, Option<Vec<u8>>)| !matches!(row.0[0], b'v' | b'g');
        let rows: Vec<String> = applied.rows.iter().filter(is_of_it).map(shown).collect();
        assert_eq!(rows, expected, "{entry}");
        for (key, value) in applied.rows {
            match value {
                Some(value) => drop(stored.insert(key, value)),
                None => drop(stored.remove(&key)),
            }
        }
        // It is written as it was read.
        let parsed: Entry = serde_json::from_str(entry).unwrap();
        assert_eq!(serde_json::to_string(&parsed).unwrap(), entry);
    }
    let last = br#"{"counter":10,"outcome":0,"version":9}"#.to_vec();
    assert_eq!(
        stored[&[b"g".to_vec(), 7u64.to_be_bytes().to_vec()].concat()],
        last
    );
    assert_eq!(stored[&b"v".to_vec()], b"9");
    let rows: Vec<_> = stored.into_iter().collect();
    assert!(rows.iter().all(|(key, _)| key[0] != b'f'));
    assert_eq!(ControlState::agreement_in(&rows).unwrap().in_force(), V1);
    assert_eq!(ControlState::from_rows(&rows), Some(state));
}

fn member(node: NodeId) -> MemberInfo {
    MemberInfo {
        name: format!("node{node}"),
        address: format!("node{node}:1"),
    }
}

fn join(node: NodeId, version: Option<RecordVersion>) -> Entry {
    Entry::Join {
        node,
        member: member(node),
        token: None,
        version,
    }
}

/// Entries in order, with their outcomes and their forms in the log.
fn entries_of_versions() -> [(Entry, EntryOutcome, &'static str); 7] {
    let announce = || Entry::Announce {
        node: 1,
        announcement: Announcement {
            version: V2,
            number: 1,
        },
    };
    let announced = r#"{"do":"announce","node":1,"version":2,"number":1}"#;
    let raise = || Entry::Raise { version: V2 };
    let raised = r#"{"do":"raise","version":2}"#;
    [
        (
            join(1, None),
            EntryOutcome::Done,
            r#"{"do":"join","node":1,"member":{"name":"node1","address":"node1:1"},"token":null}"#,
        ),
        (announce(), EntryOutcome::Done, announced),
        (announce(), EntryOutcome::Exists, announced),
        (raise(), EntryOutcome::Done, raised),
        (raise(), EntryOutcome::Exists, raised),
        // Its program may be of version 1.
        (
            join(2, None),
            EntryOutcome::Refused,
            r#"{"do":"join","node":2,"member":{"name":"node2","address":"node2:1"},"token":null}"#,
        ),
        (
            join(2, Some(V2)),
            EntryOutcome::Done,
            r#"{"do":"join","node":2,"member":{"name":"node2","address":"node2:1"},"token":null,"version":2}"#,
        ),
    ]
}

#[test]
fn entries_of_versions_have_one_form() {
    let mut state = ControlState::default();
    let mut row = None;
    for (counter, (entry, outcome, text)) in (1..).zip(entries_of_versions()) {
        assert_eq!(serde_json::to_string(&entry).unwrap(), text);
        assert_eq!(serde_json::from_str::<Entry>(text).unwrap(), entry);
        let applied = state.apply(7, counter, text.as_bytes());
        assert_eq!(applied.outcome, outcome, "{text}");
        let of_versions = |row: &(Vec<u8>, Option<Vec<u8>>)| row.0 == b"f";
        row = applied.rows.into_iter().find(of_versions).or(row);
    }
    let text =
        r#"f={"in_force":2,"known":{"1":{"version":2,"number":1},"2":{"version":2,"number":1}}}"#;
    assert_eq!(row.as_ref().map(shown).as_deref(), Some(text));
    let rows = [(b"f".to_vec(), row.unwrap().1.unwrap())];
    assert_eq!(
        ControlState::agreement_in(&rows),
        Some(state.agreement.clone())
    );
    // Catalogues of nodes that refuse these entries have equal versions.
    assert_eq!(state.version, 2);
}

#[test]
fn kept_replications_have_one_form() {
    let mut state = ControlState::default();
    let kept = r#"{"user":"anna","request":"{\"source\":\"a\"}"}"#;
    let of_admin = r#"{"user":null,"is_admin":true,"roles":["_admin"],"request":"{}"}"#;
    let keep = |id: &str, kept: &str| {
        format!(r#"{{"do":"keep_replication","id":"{id}","replication":{kept}}}"#)
    };
    let end = r#"{"do":"end_replication","id":"1+continuous"}"#.to_owned();
    let first = format!("c1+continuous={kept}");
    let second = format!("c2={of_admin}");
    let entries = [
        (
            keep("1+continuous", kept),
            EntryOutcome::Done,
            Some(&*first),
        ),
        (keep("1+continuous", kept), EntryOutcome::Exists, None),
        (keep("2", of_admin), EntryOutcome::Done, Some(&*second)),
        // Another user's.
        (keep("2", kept), EntryOutcome::Exists, None),
        (end.clone(), EntryOutcome::Done, Some("c1+continuous")),
        (end, EntryOutcome::Missing, None),
    ];
    let mut stored = BTreeMap::new();
    for (counter, (text, outcome, row)) in (1..).zip(entries) {
        let entry: Entry = serde_json::from_str(&text).unwrap();
        assert_eq!(serde_json::to_string(&entry).unwrap(), text);
        assert_eq!(entry.needs().number(), 4);
        let applied = state.apply(7, counter, text.as_bytes());
        assert_eq!(applied.outcome, outcome, "{text}");
        let is_of_it = |row: &&(Vec<u8>, Option<Vec<u8>>)| row.0[0] == b'c';
        let rows: Vec<String> = applied.rows.iter().filter(is_of_it).map(shown).collect();
        assert_eq!(rows, row.into_iter().collect::<Vec<_>>(), "{text}");
        for (key, value) in applied.rows {
            match value {
                Some(value) => drop(stored.insert(key, value)),
                None => drop(stored.remove(&key)),
            }
        }
    }
    let rows: Vec<_> = stored.into_iter().collect();
    assert!(rows.iter().all(|(key, _)| ControlState::owns(key)));
    assert_eq!(state.replications.all().count(), 1);
    assert_eq!(ControlState::from_rows(&rows), Some(state));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replications_are_kept_once_all_nodes_know_how() {
    let nodes = three().await;
    let requested = RequestedReplications::new(nodes.node(2).gateway.clone());
    let refused = requested.keep("1", kept("anna", "{}")).await.unwrap_err();
    let refused = refused.to_string();
    assert!(refused.contains("needs record version 4"), "{refused}");
    assert_eq!(requested.get("1"), None);
}

/// Starts three nodes of a program of version 2, which are members and have announced nothing.
async fn three() -> Nodes {
    let mut nodes = Nodes::none();
    for node in 1..=3 {
        nodes.start_program(node, RecordVersions::new(V2)).await;
    }
    nodes.replicate_on(2).await;
    nodes.replicate_on(3).await;
    for node in 1..=3 {
        nodes.enter(1, join(node, None)).await;
    }
    nodes
}

async fn announce(nodes: &Nodes, at: NodeId, version: RecordVersion) -> EntryOutcome {
    let node = nodes.node(at);
    node.gateway.fresh_control().await.unwrap();
    let announcement = node.catalogue.agreement().next_announcement(at, version);
    let entry = Entry::Announce {
        node: at,
        announcement,
    };
    node.gateway.enter(entry).await.unwrap()
}

async fn step(nodes: &Nodes, at: NodeId) -> Result<bool, Error> {
    let gateway = nodes.node(at).gateway.clone();
    gateway.fresh_control().await?;
    VersionKeeper::new(gateway).step().await
}

async fn set_expiry(nodes: &Nodes, at: NodeId) -> Result<(), database::Error> {
    let db = nodes.node(at).databases.get("a")?;
    let expiry = database::Expiry::new("until", database::ExpiredDocuments::Purge);
    db.set_expiry(expiry).await
}

/// Returns the version of a record in the log.
async fn version_at(nodes: &Nodes, slot: u16, offset: u64) -> u8 {
    match nodes.log.read_back(slot, offset, 0).await {
        Ok(RawReadBackResult::Record(record)) => record.bytes[0],
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_entry_of_a_later_version_is_written_once_all_nodes_know_it() {
    let nodes = three().await;
    nodes.create(1, "a", 2).await;
    nodes.create(1, "new", 2).await;
    nodes.agree(&[1, 2, 3]).await;
    let refused = set_expiry(&nodes, 2).await.unwrap_err().to_string();
    assert!(refused.contains("needs record version 2"), "{refused}");
    assert!(refused.contains("node1, node2, node3"), "{refused}");
    for node in [1, 2] {
        assert_eq!(announce(&nodes, node, V2).await, EntryOutcome::Done);
        assert!(!step(&nodes, node).await.unwrap());
    }
    let raised = nodes.node(1).gateway.enter(Entry::Raise { version: V2 });
    assert_eq!(raised.await.unwrap(), EntryOutcome::Refused);
    let refused = set_expiry(&nodes, 2).await.unwrap_err().to_string();
    assert!(refused.contains("do not yet: node3"), "{refused}");
    assert_eq!(announce(&nodes, 3, V2).await, EntryOutcome::Done);
    assert!(step(&nodes, 2).await.unwrap());
    set_expiry(&nodes, 3).await.unwrap();
    for node in 1..=3 {
        step(&nodes, node).await.unwrap();
        assert_eq!(nodes.node(node).versions.written(), V2);
    }
    nodes.write(1, "a", &docs(0, 10)).await;
    nodes.agree(&[1, 2, 3]).await;
    assert_eq!(version_at(&nodes, CONTROL, 0).await, 1);
    for slot in (0..SLOTS).chain([CONTROL]) {
        let end = nodes.log.end(slot);
        if slot == CONTROL || end > 1 {
            let first = version_at(&nodes, slot, 0).await;
            let last = version_at(&nodes, slot, end - 1).await;
            assert!(first <= last, "slot {slot}: {first}, {last}");
        }
    }
    let last = nodes.log.end(CONTROL) - 1;
    assert_eq!(version_at(&nodes, CONTROL, last).await, 2);
    go_on(&nodes).await;
}

/// An older program may return until the version is raised.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_announcement_can_be_withdrawn_until_all_have_made_it() {
    let nodes = three().await;
    for node in 1..=3 {
        assert_eq!(announce(&nodes, node, V2).await, EntryOutcome::Done);
    }
    let late = nodes.node(3).catalogue.agreement().next_announcement(3, V2);
    assert_eq!(announce(&nodes, 3, V1).await, EntryOutcome::Done);
    assert!(!step(&nodes, 1).await.unwrap());
    // One that the program before made, and that reaches the log late.
    let announcement = Announcement { number: 1, ..late };
    let entry = Entry::Announce {
        node: 3,
        announcement,
    };
    let late = nodes.node(1).gateway.enter(entry).await.unwrap();
    assert_eq!(late, EntryOutcome::Exists);
    let raised = nodes.node(1).gateway.enter(Entry::Raise { version: V2 });
    assert_eq!(raised.await.unwrap(), EntryOutcome::Refused);
    assert_eq!(announce(&nodes, 3, V2).await, EntryOutcome::Done);
    assert!(step(&nodes, 1).await.unwrap());
    assert_eq!(announce(&nodes, 3, V1).await, EntryOutcome::Refused);
}

/// The version is raised while a node is down that had announced it, and starts with an older
/// program.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_that_does_not_know_the_version_in_force_ends() {
    let mut nodes = three().await;
    nodes.create(1, "a", 4).await;
    nodes.create(1, "new", 2).await;
    for node in 1..=3 {
        announce(&nodes, node, V2).await;
    }
    nodes.agree(&[1, 2, 3]).await;
    nodes.stop(3).await;
    assert!(step(&nodes, 1).await.unwrap());
    for node in [1, 2] {
        step(&nodes, node).await.unwrap();
    }
    nodes.write(1, "a", &docs(0, 10)).await;
    nodes.start_program(3, RecordVersions::new(V1)).await;
    let catalogue = nodes.node(3).catalogue.clone();
    until("raised there", || catalogue.agreement().in_force() == V2).await;
    let ended = VersionKeeper::new(nodes.node(3).gateway.clone())
        .step()
        .await;
    let in_words = ended.unwrap_err().to_string();
    assert!(in_words.contains("start a newer Settee"), "{in_words}");
    let halts = || {
        let mut all = nodes.node(3).replicas.all();
        all.any(|(_, replica)| {
            let error = replica.status().error;
            error.is_some_and(|error| error.contains("has version 2"))
        })
    };
    until("halted", halts).await;
    drop(catalogue);
    nodes.stop(3).await;
    // The next start is refused before it reads anything else.
    nodes.start_program(3, RecordVersions::new(V1)).await;
    let stored = stored_agreement(&nodes.node(3).databases).unwrap();
    assert!(matches!(check(&stored, V1), Err(Error::OldProgram { .. })));
    assert!(check(&stored, V2).is_ok());
    nodes.stop(3).await;
    nodes.start_program(3, RecordVersions::new(V2)).await;
    go_on(&nodes).await;
}
