//! Copies of contents before their record: slow nodes, requests that are given up, and what is kept.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bytes::Bytes;
use cluster::SlotNumber;
use cluster::slot::StoreError;
use database::Database;
use futures_util::FutureExt as _;
use peers::{Body, BodyError};
use storage::Content;
use tokio::sync::mpsc;

use super::contents::{LONG, with_database, with_file};
use super::nodes::{Nodes, SLOTS, until};
use crate::content::{ContentError, ContentName, FETCH, KEPT, PIN, STORE};
use crate::placement::slot_of;

/// More contents than are sent to a node at a time.
const MANY: usize = 20;

fn random_bytes() -> Vec<u8> {
    (0..LONG).map(|_| fastrand::u8(..)).collect()
}

/// Returns the slot of a document of a node, and the name of a content for it.
fn name_of(nodes: &Nodes, node: u64, doc: &str, bytes: &[u8]) -> (SlotNumber, ContentName) {
    let node = nodes.node(node);
    let db = node.databases.get("a").unwrap();
    let shard = db.shard_index(doc);
    let name = ContentName {
        database: *db.uuid().as_bytes(),
        since: node.catalogue.with(|state| state.databases["a"].since),
        shard,
        id: *blake3::hash(bytes).as_bytes(),
        length: bytes.len() as u64,
    };
    (slot_of(db.uuid(), shard, SLOTS), name)
}

fn upload(db: &Database, doc: &str, bytes: &[u8]) -> Content {
    let mut upload = db.contents_of(doc).upload();
    upload.write(bytes).unwrap();
    upload.finish().unwrap()
}

/// Returns three nodes with a database, and a content that was uploaded to node 1 for the document
/// `doc`, with its slot and name.
async fn with_upload() -> (Nodes, SlotNumber, ContentName, Content) {
    let nodes = with_database().await;
    let bytes = random_bytes();
    let (slot, name) = name_of(&nodes, 1, "doc", &bytes);
    let db = nodes.node(1).databases.get("a").unwrap();
    let content = upload(&db, "doc", &bytes);
    (nodes, slot, name, content)
}

/// Returns the contents that a node's store keeps.
fn kept_on_disk(nodes: &Nodes, node: u64) -> usize {
    let store = nodes.node(node).databases.store();
    store.pinned_contents().unwrap().len()
}

/// Returns a body that gives a byte every 200 ms, until its sender is dropped.
fn trickle() -> (mpsc::Sender<()>, Body) {
    let (alive, dead) = mpsc::channel(1);
    let pieces = futures_util::stream::unfold(dead, |mut dead: mpsc::Receiver<()>| async move {
        let waited = tokio::time::timeout(Duration::from_millis(200), dead.recv()).await;
        waited
            .is_err()
            .then(|| (Ok::<_, BodyError>(Bytes::from_static(b"x")), dead))
    });
    (alive, Body::stream(pieces))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_receives_nothing_delays_no_other() {
    let nodes = with_database().await;
    nodes.net.stalled.lock().insert(3);
    for i in 0..MANY {
        let doc = with_file(&format!("doc-{i}"), None, LONG);
        nodes.write(1, "a", &[doc]).await;
    }
    let stalled = nodes.net.stalled_calls.load(Relaxed);
    assert!((1..MANY as u32).contains(&stalled), "{stalled}");
    // It fetches what it was not sent.
    nodes.agree(&[1, 2, 3]).await;
    nodes.net.stalled.lock().clear();
    until("ended", || nodes.net.stalled_calls.load(Relaxed) == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_sends_slowly_delays_no_other() {
    let nodes = with_database().await;
    let (mut alive, mut slow) = (vec![], vec![]);
    for i in 0..MANY {
        let (_, name) = name_of(&nodes, 2, &format!("slow-{i}"), &i.to_be_bytes());
        let name = ContentName {
            length: LONG as u64,
            ..name
        };
        let (sender, body) = trickle();
        alive.push(sender);
        let contents = nodes.node(2).contents.clone();
        slow.push(tokio::spawn(async move {
            let query = name.to_query();
            contents.answer(1, (STORE, query.as_str()), body).await
        }));
    }
    // Node 2 is needed for a majority.
    nodes.net.not_staged.lock().insert(1);
    nodes.write(3, "a", &[with_file("doc", None, LONG)]).await;
    assert!(slow.iter().all(|call| !call.is_finished()));
    drop(alive);
    for call in slow {
        call.await.unwrap().unwrap().unwrap_err();
    }
    nodes.net.not_staged.lock().clear();
    nodes.agree(&[1, 2, 3]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_is_given_up_sends_nothing_more() {
    let (nodes, slot, name, content) = with_upload().await;
    nodes.net.stalled.lock().extend([2, 3]);
    let contents = nodes.node(1).contents.clone();
    let staging = tokio::spawn(async move { contents.stage(slot, name, content).await });
    let stalled = || nodes.net.stalled_calls.load(Relaxed);
    until("begun", || stalled() == 2).await;
    staging.abort();
    until("ended", || stalled() == 0).await;
    nodes.net.stalled.lock().clear();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attachment_for_a_deleted_database_is_refused_as_any_other_write() {
    let (nodes, slot, name, content) = with_upload().await;
    nodes.delete(1, "a").await;
    nodes.agree(&[1, 2, 3]).await;
    let refused = nodes.node(1).contents.stage(slot, name, content).await;
    assert!(
        matches!(refused, Err(database::Error::NoDatabase)),
        "{refused:?}"
    );
}

/// Nodes that have deleted the database know nothing of its contents.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_database_is_no_report_that_a_content_is_lacking() {
    let nodes = with_database().await;
    let (slot, name) = name_of(&nodes, 3, "doc", b"nowhere");
    let db = nodes.node(3).databases.get("a").unwrap();
    let by_majority = async || {
        let contents = &nodes.node(3).contents;
        let obtained = contents.obtain_all(slot, &db, vec![name]).await.unwrap();
        match &obtained.1[..] {
            [(_, StoreError::Lacking { by_majority, .. })] => *by_majority,
            other => panic!("{other:?}"),
        }
    };
    assert!(by_majority().await);
    nodes.net.without_databases.lock().extend([1, 2]);
    assert!(!by_majority().await);
    nodes.net.without_databases.lock().clear();
    // As another node's answer to this one.
    let unknown = ContentName {
        database: [7; 16],
        ..name
    };
    let query = unknown.to_query();
    let answer = nodes
        .node(1)
        .contents
        .answer(3, (FETCH, query.as_str()), Body::empty());
    let answer = answer.await.unwrap();
    assert!(matches!(answer, Err(ContentError::Gone)), "{answer:?}");
}

/// The caller is dropped while the disk is slow.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_kept_for_a_caller_that_is_gone_is_reclaimed() {
    let (nodes, _, name, _content) = with_upload().await;
    let (contents, query) = (&nodes.node(1).contents, name.to_query());
    let call = contents.answer(2, (PIN, query.as_str()), Body::empty());
    drop(call.now_or_never());
    until("kept", || kept_on_disk(&nodes, 1) == 1).await;
    assert_eq!(contents.kept(), 1);
    contents.reclaim(Duration::ZERO).await;
    assert_eq!((contents.kept(), kept_on_disk(&nodes, 1)), (0, 0));
}

/// Otherwise each further request would sync the log.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_kept_already_is_not_written_again() {
    let (nodes, _, name, _content) = with_upload().await;
    let (contents, query) = (&nodes.node(1).contents, name.to_query());
    let pin = || contents.answer(2, (PIN, query.as_str()), Body::empty());
    pin().await.unwrap().unwrap();
    assert_eq!(kept_on_disk(&nodes, 1), 1);
    // Behind its back, to see whether it is written again.
    let store = nodes.node(1).databases.store();
    let home = store.pinned_contents().unwrap()[0].home;
    store.forget_pin(home, &name.id).unwrap();
    let answer = pin().await.unwrap().unwrap();
    assert_eq!(answer.read(KEPT.len()).await.unwrap(), KEPT);
    assert_eq!(kept_on_disk(&nodes, 1), 0);
}

/// A request to keep a content that the node does not have leaves nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_content_that_is_not_here_is_not_noted() {
    let nodes = with_database().await;
    let (_, name) = name_of(&nodes, 1, "doc", b"nowhere");
    let (contents, query) = (&nodes.node(1).contents, name.to_query());
    let answer = contents
        .answer(2, (PIN, query.as_str()), Body::empty())
        .await;
    let answer = answer.unwrap().unwrap().read(1).await.unwrap();
    assert!(answer.is_empty());
    assert_eq!((contents.kept(), kept_on_disk(&nodes, 1)), (0, 0));
}

/// A long request names its contents again, so that the first ones are still there at its end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn contents_that_are_named_again_are_kept_for_longer() {
    let (nodes, slot, name, content) = with_upload().await;
    let contents_of = |node| &nodes.node(node).contents;
    let staged = contents_of(1).stage(slot, name, content);
    staged.await.unwrap();
    let is_kept = |node| contents_of(node).kept() == 1;
    until("copied", || (1..=3).all(is_kept)).await;
    let named = || [1, 2, 3].map(|node| contents_of(node).last_named().unwrap());
    let before = named();
    contents_of(1).keep_again(slot, &[name]).await;
    assert!(named().iter().zip(before).all(|(now, then)| *now > then));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_does_not_answer_delays_naming_at_no_other() {
    let (nodes, slot, name, content) = with_upload().await;
    let contents_of = |node| &nodes.node(node).contents;
    contents_of(1).stage(slot, name, content).await.unwrap();
    until("copied", || {
        (1..=3).all(|node| contents_of(node).kept() == 1)
    })
    .await;
    for (silent, other) in [(2, 3), (3, 2)] {
        nodes.net.silent.lock().insert(silent);
        let before = contents_of(other).last_named().unwrap();
        let contents = contents_of(1).clone();
        let naming = tokio::spawn(async move { contents.keep_again(slot, &[name]).await });
        until("named", || {
            contents_of(other).last_named().unwrap() > before
        })
        .await;
        assert!(!naming.is_finished());
        nodes.net.silent.lock().clear();
        naming.await.unwrap();
    }
}
