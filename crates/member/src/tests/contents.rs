//! Attachments that records only name: nodes that lack a content when they apply a record.

use std::time::Duration;

use cluster::record::{ChangeRecord, DatabaseWork, EditRecord, FileRecord, Work};
use database::Outcome;
use document::{Attachment, DocId, Encoding, Rev};

use super::Relaxed;
use super::nodes::{Nodes, SLOTS, until};
use crate::placement::slot_of;

/// A length that records do not contain, and one that they do.
pub const LONG: usize = 300_000;
const SHORT: usize = 5_000;

/// A document with an attachment of random bytes, as JSON.
pub fn with_file(id: &str, rev: Option<&Rev>, bytes: usize) -> String {
    let content: Vec<u8> = (0..bytes).map(|_| fastrand::u8(..)).collect();
    let data = data_encoding::BASE64.encode(&content);
    let rev = rev.map_or(String::new(), |rev| format!(r#""_rev":"{rev}","#));
    let file = format!(r#"{{"content_type":"image/png","data":"{data}"}}"#);
    format!(r#"{{"_id":"{id}",{rev}"_attachments":{{"a":{file}}}}}"#)
}

/// An edit that keeps the attachment.
fn keeping(id: &str, rev: &Rev, n: usize) -> String {
    format!(r#"{{"_id":"{id}","_rev":"{rev}","n":{n},"_attachments":{{"a":{{"stub":true}}}}}}"#)
}

fn rev(outcomes: &[Outcome]) -> Rev {
    match &outcomes[0] {
        Outcome::Ok { rev } => rev.clone(),
        other => panic!("{other:?}"),
    }
}

pub async fn with_database() -> Nodes {
    let nodes = Nodes::three().await;
    nodes.create(1, "a", 4).await;
    nodes.agree(&[1, 2, 3]).await;
    nodes
}

/// Removes everything that no document references, also what it referenced before.
async fn reclaim(nodes: &Nodes, ids: &[u64]) {
    for id in ids {
        let node = nodes.node(*id);
        node.contents.reclaim(Duration::ZERO).await;
        assert_eq!(node.contents.kept(), 0);
        let db = node.databases.get("a").unwrap();
        db.compact().unwrap();
        until("compacted", || !db.info().unwrap().compact_running).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_has_no_bytes_of_long_attachments_nor_of_kept_ones() {
    let nodes = with_database().await;
    let before = nodes.log.bytes();
    let long = nodes.write(1, "a", &[with_file("long", None, LONG)]).await;
    let short = nodes
        .write(2, "a", &[with_file("short", None, SHORT)])
        .await;
    assert!(nodes.log.bytes() - before < SHORT + 4_000);
    nodes.agree(&[1, 2, 3]).await;
    let before = nodes.log.bytes();
    for (id, mut last) in [("long", rev(&long)), ("short", rev(&short))] {
        for n in 0..5 {
            let node = n as u64 % 3 + 1;
            last = rev(&nodes.write(node, "a", &[keeping(id, &last, n)]).await);
            nodes.agree(&[1, 2, 3]).await;
        }
    }
    assert!(nodes.log.bytes() - before < SHORT);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_lacks_a_content_fetches_it() {
    let nodes = with_database().await;
    nodes.net.not_staged.lock().insert(3);
    for i in 0..4 {
        let doc = with_file(&format!("doc-{i}"), None, LONG);
        nodes.write(i % 2 + 1, "a", &[doc]).await;
    }
    nodes.agree(&[1, 2, 3]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_lacks_a_content_does_not_count() {
    let mut nodes = with_database().await;
    let slot = {
        let db = nodes.node(1).databases.get("a").unwrap();
        slot_of(db.uuid(), db.shard_index("doc"), SLOTS)
    };
    let position = |nodes: &Nodes, node| {
        let status = nodes.node(node).replicas.get(slot).unwrap().status();
        status.position.next_offset
    };
    nodes.net.not_staged.lock().insert(3);
    nodes.net.not_fetched.lock().insert(3);
    let before = position(&nodes, 3);
    let first = nodes.write(1, "a", &[with_file("doc", None, LONG)]).await;
    nodes
        .write(2, "a", &[keeping("doc", &rev(&first), 1)])
        .await;
    until("tried", || {
        let status = nodes.node(3).replicas.get(slot).unwrap().status();
        status.error.is_some_and(|error| error.contains("content"))
    })
    .await;
    assert!(position(&nodes, 3) <= before + 1);
    let status = nodes.node(1).replicas.get(slot).unwrap().status();
    let durable = status.durable.iter().find(|(node, _)| *node == 3).unwrap();
    assert!(durable.1 < status.stable, "{status:?}");
    // Nor after a restart.
    nodes.stop(3).await;
    nodes.start(3).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(position(&nodes, 3) < position(&nodes, 1));
    nodes.net.not_fetched.lock().clear();
    nodes.agree(&[1, 2, 3]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_majority_that_has_the_content_nothing_is_written() {
    let nodes = with_database().await;
    nodes.net.not_staged.lock().extend([2, 3]);
    let db = nodes.node(1).databases.get("a").unwrap();
    let doc = document::parse_document(with_file("doc", None, LONG).as_bytes()).unwrap();
    let (mode, durability) = (
        database::EditMode::Interactive,
        database::Durability::Synced,
    );
    let why = match db.update(vec![doc], mode, durability).await {
        Err(database::Error::Unavailable(why)) => why,
        other => panic!("{other:?}"),
    };
    assert!(why.contains("majority"), "{why}");
    assert_eq!(db.info().unwrap().doc_count, 0);
    nodes.net.not_staged.lock().clear();
    nodes.write(1, "a", &[with_file("doc", None, LONG)]).await;
    nodes.agree(&[1, 2, 3]).await;
}

/// Edits without effect name contents that the others have removed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_comes_late_needs_no_contents_of_edits_without_effect() {
    let mut nodes = with_database().await;
    nodes.write(1, "a", &[r#"{"_id":"doc"}"#.into()]).await;
    nodes.agree(&[1, 2, 3]).await;
    nodes.stop(3).await;
    let outcomes = nodes.write(2, "a", &[with_file("doc", None, LONG)]).await;
    assert!(matches!(outcomes[0], Outcome::Conflict));
    nodes.write(1, "a", &[with_file("other", None, LONG)]).await;
    nodes.agree(&[1, 2]).await;
    reclaim(&nodes, &[1, 2]).await;
    nodes.start(3).await;
    nodes.agree(&[1, 2, 3]).await;
    assert_eq!(nodes.net.copies.load(Relaxed), 0);
}

/// A content that the others needed when they applied a record, and do not need any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_comes_too_late_for_a_content_is_copied() {
    let mut nodes = with_database().await;
    nodes.stop(3).await;
    let first = nodes.write(1, "a", &[with_file("doc", None, LONG)]).await;
    let deletion = format!(
        r#"{{"_id":"doc","_rev":"{}","_deleted":true}}"#,
        rev(&first)
    );
    nodes.write(2, "a", &[deletion]).await;
    nodes.agree(&[1, 2]).await;
    reclaim(&nodes, &[1, 2]).await;
    // The attempt to send it to the third node holds it for some time.
    until("removed", || {
        let dbs = [1, 2].map(|node| nodes.node(node).databases.get("a").unwrap());
        let mut bytes = dbs.iter().map(|db| db.contents_of("doc").stored_bytes());
        bytes.all(|bytes| bytes.unwrap() == 0)
    })
    .await;
    nodes.start(3).await;
    nodes.agree(&[1, 2, 3]).await;
    assert_eq!(nodes.net.copies.load(Relaxed), 1);
    nodes.write(3, "a", &[with_file("doc-2", None, LONG)]).await;
    nodes.agree(&[1, 2, 3]).await;
}

/// A content that was copied for a record survives a restart, and is removed if no record names it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copied_contents_survive_restarts_until_they_are_reclaimed() {
    let mut nodes = with_database().await;
    nodes.write(1, "a", &[with_file("doc", None, LONG)]).await;
    nodes.agree(&[1, 2, 3]).await;
    let db = nodes.node(1).databases.get("a").unwrap();
    let bytes: Vec<u8> = (0..LONG).map(|_| fastrand::u8(..)).collect();
    let mut upload = db.contents_of("late").upload();
    upload.write(&bytes).unwrap();
    let content = upload.finish().unwrap();
    let shard = db.shard_index("late");
    let since = nodes
        .node(1)
        .catalogue
        .with(|state| state.databases["a"].since);
    let name = crate::content::ContentName {
        database: *db.uuid().as_bytes(),
        since,
        shard,
        id: content.id,
        length: content.length(),
    };
    let slot = slot_of(db.uuid(), shard, SLOTS);
    let staged = nodes.node(1).contents.stage(slot, name, content);
    staged.await.unwrap();
    drop(db);
    let has = |nodes: &Nodes, node| {
        let db = nodes.node(node).databases.get("a").unwrap();
        db.contents_of("late").hold(&name.id).unwrap().is_some()
    };
    until("copied", || {
        (1..=3).all(|node| has(&nodes, node) && nodes.node(node).contents.keeps(&name.id))
    })
    .await;
    for node in [1, 2] {
        nodes.stop(node).await;
        nodes.start(node).await;
        let db = nodes.node(node).databases.get("a").unwrap();
        db.compact().unwrap();
        until("compacted", || !db.info().unwrap().compact_running).await;
        assert!(has(&nodes, node));
    }
    reclaim(&nodes, &[1, 2, 3]).await;
    assert!((1..=3).all(|node| !has(&nodes, node)));
    nodes.agree(&[1, 2, 3]).await;
}

/// An edit that names a content which no node has.
fn naming_no_content() -> EditRecord {
    EditRecord {
        id: DocId::new("doc").unwrap(),
        deleted: false,
        body: b"{}".to_vec(),
        files: vec![FileRecord {
            attachment: Attachment {
                name: "a".into(),
                content_type: "image/png".into(),
                md5: [7; 16],
                content: [7; 32],
                length: 100_000,
                stored_length: 100_000,
                encoding: Encoding::Identity,
                length_unsure: false,
                revpos: None,
            },
            content: None,
        }],
        change: ChangeRecord::Interactive {
            parent: None,
            rev: Rev {
                generation: 1,
                hash: document::RevHash::Md5([1; 16]),
            },
            body_term: None,
        },
    }
}

/// A record that names a content which no node has, because it reached the log too late, is left
/// out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_whose_content_no_node_has_is_left_out() {
    let nodes = with_database().await;
    let db = nodes.node(1).databases.get("a").unwrap();
    let since = nodes
        .node(1)
        .catalogue
        .with(|state| state.databases["a"].since);
    let limits = db.limits();
    let work = DatabaseWork {
        database: *db.uuid().as_bytes(),
        since,
        revs_limit: limits.revs_limit,
        purged_infos_limit: limits.purged_infos_limit,
        leaves_max: limits.leaves_max,
        designs: 0,
        work: Work::Edits(vec![naming_no_content()]),
    };
    let slot = slot_of(db.uuid(), db.shard_index("doc"), SLOTS);
    let generation = nodes.node(1).replicas.get(slot).unwrap().generation();
    let proposer = nodes.node(1).gateway.proposer.clone();
    let lost = tokio::spawn(async move { proposer.propose(slot, vec![work], None).await });
    until("stuck", || {
        let replica = nodes.node(2).replicas.get(slot).unwrap();
        replica
            .status()
            .error
            .is_some_and(|e| e.contains("content"))
    })
    .await;
    // Its author has gone, so that it is not proposed again.
    lost.abort();
    until("begun", || {
        let mut all = (1..=3).map(|node| nodes.node(node).replicas.get(slot).unwrap());
        all.all(|replica| replica.generation() > generation)
    })
    .await;
    nodes.write(2, "a", &[with_file("doc", None, LONG)]).await;
    nodes.agree(&[1, 2, 3]).await;
}
