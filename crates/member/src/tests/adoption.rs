//! A single server that becomes the first node of a cluster, with the data that it has.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cluster::record::RecordVersion;
use database::{
    AdoptionError, Databases, Durability, EditMode, KnownSeqs, Outcome, Read, ReadOptions,
    own_databases,
};
use document::DocId;
use storage::{Keyspace, Store, StoreOptions};
use tempfile::TempDir;

use super::nodes::{Nodes, SLOTS, database, listing, options, until};
use super::{docs, edited};
use crate::Error;
use crate::adopt::{IdleStore, NewCluster, adoption, require_unused};
use crate::control::entry::{Entry, MemberInfo};
use crate::join::init;
use crate::member::{Member, refuse_own};
use crate::membership::{Membership, is_member};
use crate::open_log::LogPlace;
use crate::options::MemberOptions;

const FIRST: u64 = 1;

async fn write(databases: &Arc<Databases>, name: &str, docs: &[String]) -> Vec<Outcome> {
    let parse = |doc: &String| document::parse_document(doc.as_bytes()).unwrap();
    let edits = docs.iter().map(parse).collect();
    let db = databases.get(name).unwrap();
    let done = db.update(edits, EditMode::Interactive, Durability::Synced);
    done.await.unwrap().0
}

/// Writes data of all kinds with a single server.
async fn fill(databases: &Arc<Databases>) {
    databases.create("a", database(4)).await.unwrap();
    databases.create("empty", database(2)).await.unwrap();
    databases.create("gone", database(1)).await.unwrap();
    let done = write(databases, "a", &docs(0, 40)).await;
    write(databases, "a", &edited(&done, 0)).await;
    write(databases, "a", &[r#"{"_id":"_local/l","at":7}"#.into()]).await;
    let db = databases.get("a").unwrap();
    let Outcome::Ok { rev } = &done[2] else {
        panic!("it was written");
    };
    let purged = vec![(DocId::new("doc-2").unwrap(), vec![rev.clone()])];
    db.purge(purged).await.unwrap();
    let security = r#"{"members":{"names":["y"]}}"#;
    db.set_security(security.into()).await.unwrap();
    db.set_revs_limit(9).await.unwrap();
    let expiry = database::Expiry::new("until", database::ExpiredDocuments::Delete);
    db.set_expiry(expiry).await.unwrap();
    databases.delete("gone").await.unwrap();
}

/// Runs work on the databases of a directory, and waits until they are closed.
async fn alone<T>(dir: &Path, work: impl AsyncFnOnce(&Arc<Databases>) -> T) -> T {
    let databases = loop {
        match Databases::open(dir, options()) {
            Err(database::Error::Storage(storage::Error::InUse { .. })) => {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            opened => break opened.unwrap(),
        }
    };
    let done = work(&databases).await;
    let held = databases.store().held();
    databases.close();
    drop(databases);
    until("closed", || held.strong_count() == 0).await;
    done
}

/// Opens a store, which may have been open just now: closing takes a moment.
async fn store(dir: &Path) -> Store {
    loop {
        match Store::open(dir, &StoreOptions::default(), Box::new(|_| {})) {
            Err(storage::Error::InUse { .. }) => {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            opened => return opened.unwrap(),
        }
    }
}

/// Makes the store of a directory that of the first node.
async fn adopt(dir: &Path, seqs: KnownSeqs) {
    let store = store(dir).await;
    let databases = own_databases(&store, seqs).unwrap();
    store
        .adopt(adoption(FIRST, SLOTS, databases).unwrap())
        .unwrap();
    close(store).await;
}

async fn close(store: Store) {
    let held = store.held();
    store.close();
    drop(store);
    until("closed", || held.strong_count() == 0).await;
}

/// Starts the adopted node, and two empty ones, which join.
async fn three(nodes: &mut Nodes, dir: &Path) {
    nodes.place(FIRST, dir);
    for node in 1..=3 {
        nodes.start(node).await;
    }
    nodes.replicate_on(2).await;
    nodes.replicate_on(3).await;
    nodes.agree(&[1, 2, 3]).await;
}

/// Makes the filled store of a single server that of the first node. Returns its folder, and the
/// listing of `a`.
async fn adopt_filled(nodes: &Nodes) -> (PathBuf, String) {
    let dir = nodes.folder("alone");
    let before = alone(&dir, async |databases| {
        fill(databases).await;
        listing(&databases.get("a").unwrap())
    });
    let before = before.await;
    adopt(&dir, KnownSeqs::Valid).await;
    (dir, before)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_single_server_becomes_the_first_node_and_others_copy_all_of_it() {
    let mut nodes = Nodes::none();
    let (dir, before) = adopt_filled(&nodes).await;
    three(&mut nodes, &dir).await;
    for node in 1..=3 {
        let databases = &nodes.node(node).databases;
        let db = databases.get("a").unwrap();
        // With the update seq.
        assert_eq!(listing(&db), before, "node {node}");
        assert_eq!(db.revs_limit(), 9);
        assert!(db.expiry().is_some());
        let id = DocId::new("_local/l").unwrap();
        let local = db.read(&id, &ReadOptions::default()).unwrap();
        assert!(matches!(local, Read::Found(_)));
        assert_eq!(databases.get("empty").unwrap().all_shards().len(), 2);
        assert!(databases.get("gone").is_err());
    }
    nodes.write(2, "a", &docs(100, 10)).await;
    nodes.write(3, "empty", &docs(0, 10)).await;
    nodes.create(2, "new", 3).await;
    nodes.agree(&[1, 2, 3]).await;
    // It is a node like others from then on.
    nodes.stop(1).await;
    nodes.write(2, "a", &docs(200, 10)).await;
    nodes.start(1).await;
    nodes.agree(&[1, 2, 3]).await;
}

/// Nodes join a cluster of which no slot has a record.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_node_brought_can_be_read_before_anything_is_written() {
    let mut nodes = Nodes::none();
    let (dir, _) = adopt_filled(&nodes).await;
    nodes.place(FIRST, &dir);
    nodes.start(FIRST).await;
    let gateway = nodes.node(FIRST).gateway.clone();
    let all = (0..SLOTS).chain([cluster::CONTROL]);
    let seen = gateway.fresh_slots(all).await.unwrap();
    gateway.settle(&seen).await.unwrap();
    nodes.start(2).await;
    let node = nodes.node(2);
    until("copied", || {
        let mut all = node.replicas.all();
        all.all(|(_, replica)| replica.generation().number == 1)
    })
    .await;
    // It did not wait until the first node noticed that it has another generation.
    let asked = nodes.net.begun_asks.lock();
    let mut all = (0..SLOTS).chain([cluster::CONTROL]);
    assert!(all.all(|slot| asked.contains(&(2, slot))));
}

/// The server may be used between an adoption that was interrupted and the next one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_was_prepared_is_still_that_of_a_single_server() {
    let mut nodes = Nodes::none();
    let (dir, _) = adopt_filled(&nodes).await;
    let before = alone(&dir, async |databases| {
        write(databases, "a", &docs(300, 20)).await;
        databases.delete("empty").await.unwrap();
        databases.create("later", database(3)).await.unwrap();
        write(databases, "later", &docs(0, 10)).await;
        listing(&databases.get("a").unwrap())
    });
    let before = before.await;
    adopt(&dir, KnownSeqs::Valid).await;
    three(&mut nodes, &dir).await;
    let databases = &nodes.node(3).databases;
    assert_eq!(listing(&databases.get("a").unwrap()), before);
    assert!(databases.get("empty").is_err());
    assert!(databases.get("later").is_ok());
}

/// A node that lost its cluster: the store has slots, with records and members of that one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_of_a_node_becomes_that_of_a_new_cluster() {
    let mut lost = Nodes::three().await;
    lost.create(1, "a", 4).await;
    lost.write(1, "a", &docs(0, 20)).await;
    lost.agree(&[1, 2, 3]).await;
    let uuid = lost.node(1).databases.get("a").unwrap().uuid();
    let dir = lost.dir(1);
    lost.stop(1).await;
    adopt(&dir, KnownSeqs::Void).await;
    let mut nodes = Nodes::none();
    three(&mut nodes, &dir).await;
    let db = nodes.node(2).databases.get("a").unwrap();
    assert_ne!(db.uuid(), uuid);
    assert_eq!(db.info().unwrap().doc_count, 20);
    drop(db);
    nodes.write(3, "a", &docs(100, 10)).await;
    nodes.agree(&[1, 2, 3]).await;
}

/// Opens the store of a directory, once it is closed: that takes a moment.
async fn idle(data: &Path) -> IdleStore {
    idle_at(data, &data.join("store")).await
}

async fn idle_at(data: &Path, path: &Path) -> IdleStore {
    loop {
        match IdleStore::open(data, path) {
            Err(Error::StoreInUse(_)) => tokio::time::sleep(Duration::from_millis(5)).await,
            opened => return opened.unwrap(),
        }
    }
}

fn new_cluster() -> NewCluster {
    NewCluster {
        name: "shop".into(),
        slots: SLOTS,
        member: MemberInfo {
            name: "one@127.0.0.1".into(),
            address: "127.0.0.1:5986".into(),
        },
    }
}

/// A data folder with the filled store of a single server, and the folder of that store.
async fn filled() -> (TempDir, PathBuf) {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("store");
    alone(&path, async |databases| fill(databases).await).await;
    (root, path)
}

/// Stops node 1. Returns its store, and the new data folder in which it is opened, of a node of the
/// same cluster.
async fn lose(lost: &mut Nodes) -> (TempDir, IdleStore) {
    let dir = lost.dir(1);
    lost.stop(1).await;
    let root = tempfile::tempdir().unwrap();
    init(root.path(), "lost", SLOTS, new_cluster().member).unwrap();
    let found = idle_at(root.path(), &dir).await;
    (root, found)
}

/// Checks whether a directory can become a new node's, once its store is closed.
async fn unused(data: &Path) -> Result<(), Error> {
    loop {
        match require_unused(data, &data.join("store")) {
            Err(Error::StoreInUse(_)) => tokio::time::sleep(Duration::from_millis(5)).await,
            checked => return checked,
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_node_needs_a_directory_without_databases() {
    let root = tempfile::tempdir().unwrap();
    let data = root.path();
    let path = data.join("store");
    unused(data).await.unwrap();
    alone(&path, async |_| {}).await;
    unused(data).await.unwrap();
    alone(&path, async |databases| {
        let used = require_unused(data, &path);
        assert!(matches!(used, Err(Error::StoreInUse(_))), "{used:?}");
        fill(databases).await;
    })
    .await;
    let filled = unused(data).await.unwrap_err();
    assert!(matches!(&filled, Error::HasDatabases(_, names) if names == "a, empty"));
    idle(data).await.adopt(&new_cluster()).unwrap();
    let member = unused(data).await;
    assert!(matches!(member, Err(Error::AlreadyMember(_))));
    let (mut home, _) = Membership::read(data).unwrap();
    home.claim(data, &path).unwrap();
    std::fs::remove_dir_all(data.join("cluster")).unwrap();
    assert!(matches!(unused(data).await, Err(Error::NodesStore(_))));
}

/// The error advises to remove the folder `cluster`, and to repeat `init`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_node_that_cannot_listen_leaves_its_directory_unused() {
    let root = tempfile::tempdir().unwrap();
    let data = root.path();
    let path = data.join("store");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let member = MemberInfo {
        address: taken.local_addr().unwrap().to_string(),
        ..new_cluster().member
    };
    init(data, "shop", SLOTS, member).unwrap();
    let started = alone(&path, async |databases| {
        let options = MemberOptions {
            log: LogPlace::Nodes,
            properties: BTreeMap::new(),
            address: None,
            on_setting: Box::new(|_, _, _| {}),
            store: path.clone(),
            zone: None,
            users: "_users".into(),
            restart: Arc::new(|| {}),
            give_up: Box::new(|_| {}),
            record_version: RecordVersion::LATEST,
        };
        Member::start(data, databases, options).await.map(drop)
    })
    .await;
    assert!(
        matches!(started, Err(Error::NodeAddress(..))),
        "{started:?}"
    );
    std::fs::remove_dir_all(data.join("cluster")).unwrap();
    unused(data).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_adoption_is_refused_where_it_would_do_harm() {
    let root = tempfile::tempdir().unwrap();
    let data = root.path();
    let path = data.join("store");
    let open = || IdleStore::open(data, &path);
    assert!(matches!(open().err(), Some(Error::NoStore(_))));
    alone(&path, async |databases| {
        fill(databases).await;
        let used = open().err();
        assert!(matches!(used, Some(Error::StoreInUse(_))), "{used:?}");
        // A node that has not started has no databases at all.
        assert!(refuse_own(databases, false).await.is_err());
    })
    .await;
    let (home, adopted) = idle(data).await.adopt(&new_cluster()).unwrap();
    assert_eq!(adopted.databases, ["a", "empty"]);
    assert!(home.brings_data && is_member(data) && !adopted.was_nodes && !adopted.was_prepared);
    let again = idle(data).await.adopt(&new_cluster());
    assert!(matches!(again, Err(Error::AlreadyMember(_))));
    let same = idle(data)
        .await
        .recover(&new_cluster(), RecordVersion::LATEST);
    assert!(matches!(same, Err(Error::SameName(_))));
    // The store has been a node's, whose folder is gone.
    Membership::read(data)
        .unwrap()
        .0
        .claim(data, &path)
        .unwrap();
    std::fs::remove_dir_all(data.join("cluster")).unwrap();
    let store = idle(data).await;
    assert!(matches!(store.data(), Err(Error::NodesStore(_))));
    assert!(matches!(
        store.left(RecordVersion::LATEST),
        Err(Error::NotMember(_))
    ));
    drop(store);
    alone(&path, async |databases| {
        assert!(refuse_own(databases, true).await.is_ok());
        // They would be deleted when it joins another cluster.
        assert!(refuse_own(databases, false).await.is_err());
    })
    .await;
}

/// As in a backup of a node, or if its folder `cluster` is gone: clients may know later update seqs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_update_seqs_of_a_nodes_store_are_not_adopted() {
    let mut lost = Nodes::three().await;
    lost.create(1, "a", 2).await;
    lost.write(1, "a", &docs(0, 5)).await;
    lost.agree(&[1, 2, 3]).await;
    let dir = lost.dir(1);
    lost.stop(1).await;
    let uuid = |of: &Store| own_databases(of, KnownSeqs::Valid).unwrap()[0].new.uuid;
    let opened = store(&dir).await;
    let before = uuid(&opened);
    close(opened).await;
    let data = tempfile::tempdir().unwrap();
    let found = idle_at(data.path(), &dir).await;
    assert!(found.data().unwrap().was_nodes);
    let (_, adopted) = found.adopt(&new_cluster()).unwrap();
    assert!(adopted.was_nodes);
    let found = idle_at(data.path(), &dir).await;
    // As after an adoption that was interrupted: they are new already.
    assert_eq!(found.known_seqs().unwrap(), KnownSeqs::Valid);
    drop(found);
    // Which is what it says.
    let other = tempfile::tempdir().unwrap();
    let found = idle_at(other.path(), &dir).await;
    assert!(!adopted.was_prepared && found.data().unwrap().was_prepared);
    drop(found);
    let opened = store(&dir).await;
    assert_ne!(uuid(&opened), before);
    close(opened).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recovery_can_be_repeated_from_each_of_its_steps() {
    let (root, path) = filled().await;
    let data = root.path();
    init(data, "lost", SLOTS, new_cluster().member).unwrap();
    Membership::read(data)
        .unwrap()
        .0
        .claim(data, &path)
        .unwrap();
    // The former membership is out of the way, and nothing else was done.
    std::fs::rename(data.join("cluster"), data.join("cluster.lost")).unwrap();
    let former = idle(data).await.left(RecordVersion::LATEST).unwrap().former;
    assert_eq!(former.cluster.name, "lost");
    let (home, _) = idle(data)
        .await
        .recover(&new_cluster(), RecordVersion::LATEST)
        .unwrap();
    assert_eq!((&*home.cluster.name, home.brings_data), ("shop", true));
    let again = NewCluster {
        name: "shop-2".into(),
        ..new_cluster()
    };
    let former = idle(data).await.left(RecordVersion::LATEST).unwrap().former;
    assert_eq!(former.cluster.name, "shop");
    let (home, _) = idle(data)
        .await
        .recover(&again, RecordVersion::LATEST)
        .unwrap();
    assert_eq!(home.cluster.name, "shop-2");
}

/// The node had deleted it from the catalogue, and lost power before it deleted the data.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_whose_deletion_is_on_disk_is_not_recovered() {
    let (root, path) = filled().await;
    let data = root.path();
    idle(data).await.adopt(&new_cluster()).unwrap();
    let opened = store(&path).await;
    let record = opened.database("empty").unwrap().unwrap();
    let (keyspace, key, value) = Store::put_database("deleted", record);
    let mut writes = opened.engine().writes();
    writes.put(keyspace, key, value.unwrap());
    writes.commit(true).unwrap();
    close(opened).await;
    let left = idle(data).await.left(RecordVersion::LATEST).unwrap();
    assert_eq!(left.data.databases, ["a", "empty"]);
    assert_eq!(left.deleted, ["deleted"]);
    assert!(matches!(left.check_name("shop"), Err(Error::SameName(_))));
    let again = NewCluster {
        name: "shop-2".into(),
        ..new_cluster()
    };
    let recovered = idle(data).await.recover(&again, RecordVersion::LATEST);
    assert_eq!(recovered.unwrap().1.databases, ["a", "empty"]);
}

/// The client may have had its response from nodes that came further.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_whose_deletion_was_announced_is_not_recovered() {
    let mut lost = Nodes::three().await;
    lost.create(1, "a", 2).await;
    lost.create(1, "kept", 2).await;
    let uuid = lost.node(1).databases.get("a").unwrap().uuid();
    lost.enter(1, Entry::AnnounceDrop { uuid }).await;
    lost.agree(&[1, 2, 3]).await;
    let (_root, found) = lose(&mut lost).await;
    let left = found.left(RecordVersion::LATEST).unwrap();
    assert_eq!(left.deleted, ["a"]);
    assert_eq!(left.data.databases, ["kept"]);
    let recovered = found.recover(&new_cluster(), RecordVersion::LATEST);
    assert_eq!(recovered.unwrap().1.databases, ["kept"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recovered_database_keeps_the_number_of_copies_that_was_requested() {
    let mut lost = Nodes::three().await;
    let wanted = database::CreateOptions {
        n: Some(2),
        ..database(2)
    };
    lost.node(1).databases.create("a", wanted).await.unwrap();
    lost.agree(&[1, 2, 3]).await;
    let (_root, found) = lose(&mut lost).await;
    let recovered = found.recover(&new_cluster(), RecordVersion::LATEST);
    assert_eq!(recovered.unwrap().1.databases, ["a"]);
    let opened = store(&lost.dir(1)).await;
    let state = crate::control::state_in(&opened.snapshot()).unwrap();
    assert_eq!(state.databases["a"].n, Some(2));
    close(opened).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_of_another_format_is_refused() {
    let (root, path) = filled().await;
    let opened = store(&path).await;
    let mut writes = opened.engine().writes();
    writes.put(Keyspace::Meta, b"f", b"settee 3");
    writes.commit(true).unwrap();
    close(opened).await;
    let refused = IdleStore::open(root.path(), &path).err().unwrap();
    assert!(refused.to_string().contains("settee 3"), "{refused}");
    assert!(!is_member(root.path()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_with_access_by_document_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("store");
    alone(&path, async |databases| {
        let wanted = database::CreateOptions {
            access: Some(database::DefaultAccess::None),
            ..database(2)
        };
        databases.create("a", wanted).await.unwrap();
    })
    .await;
    let opened = store(&path).await;
    let refused = own_databases(&opened, KnownSeqs::Valid);
    assert!(matches!(refused, Err(AdoptionError::Access(name)) if name == "a"));
    close(opened).await;
}

/// Early versions stored all attachments of a database under its first shard.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_with_attachments_of_an_early_version_is_refused() {
    let (_root, path) = filled().await;
    let opened = store(&path).await;
    for name in ["a", "empty"] {
        let record = opened.database(name).unwrap().unwrap();
        let record = String::from_utf8(record).unwrap();
        let old = record.replace(r#""contents":"each_shard","#, "");
        assert_ne!(old, record);
        let (keyspace, key, value) = Store::put_database(name, old.into_bytes());
        let mut writes = opened.engine().writes();
        writes.put(keyspace, key, value.unwrap());
        writes.commit(true).unwrap();
    }
    let refused = own_databases(&opened, KnownSeqs::Valid);
    assert!(matches!(refused, Err(AdoptionError::OldAttachments(name)) if name == "a"));
    close(opened).await;
}
