//! Members of a cluster over a log in memory: copying replicas, and the invariants of it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that panics has failed"
)]

mod adoption;
mod calls;
mod contents;
mod long_records;
mod moves;
mod nodes;
mod own_log;
mod placement;
mod slot_decisions;
mod staging;
mod upgrades;
mod versions;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use cluster::CONTROL;
use database::{Database, Outcome};
use nodes::{Nodes, SLOTS, listing, until};

use crate::control::entry::{Entry, EntryOutcome, MemberInfo};
use crate::control::replications::KeptReplication;
use crate::control::state::ControlState;
use crate::counters::{COPIES_INSTALLED, COPIES_SENT, COPY_BYTES, COPY_FAILURES};
use crate::placement::slot_of;
use crate::requested::{KeepError, RequestedReplications};

/// A continuous replication of a user.
fn kept(user: &str, request: &str) -> KeptReplication {
    KeptReplication {
        user: Some(user.into()),
        is_admin: false,
        roles: None,
        request: request.into(),
    }
}

/// New documents, every third with an attachment that no other has, or a long one that all share.
fn docs(from: u32, count: u32) -> Vec<String> {
    let doc = |i: u32| {
        let text = match i % 6 {
            0 => data_encoding::BASE64.encode(format!("only {i}").as_bytes()),
            3 => data_encoding::BASE64.encode(&vec![b'x'; 100_000]),
            _ => return format!(r#"{{"_id":"doc-{i}","i":{i}}}"#),
        };
        let file = format!(r#"{{"content_type":"text/plain","data":"{text}"}}"#);
        format!(r#"{{"_id":"doc-{i}","i":{i},"_attachments":{{"a":{file}}}}}"#)
    };
    (from..from + count).map(doc).collect()
}

/// Edits documents written that way.
fn edited(outcomes: &[Outcome], from: u32) -> Vec<String> {
    let edit = |(i, outcome): (u32, &Outcome)| match outcome {
        Outcome::Ok { rev } if i.is_multiple_of(4) => Some(format!(
            r#"{{"_id":"doc-{i}","_rev":"{rev}","_deleted":true}}"#
        )),
        Outcome::Ok { rev } if i % 4 == 1 => Some(format!(
            r#"{{"_id":"doc-{i}","_rev":"{rev}","again":true}}"#
        )),
        _ => None,
    };
    (from..).zip(outcomes).filter_map(edit).collect()
}

/// Three nodes with two databases; the third goes down, and much happens then.
async fn third_is_behind() -> Nodes {
    let mut nodes = Nodes::three().await;
    nodes.create(1, "a", 4).await;
    nodes.create(2, "gone", 2).await;
    let written = nodes.write(1, "a", &docs(0, 20)).await;
    nodes.write(2, "gone", &docs(0, 5)).await;
    nodes.agree(&[1, 2, 3]).await;
    nodes.stop(3).await;
    nodes.write(1, "a", &edited(&written, 0)).await;
    nodes.write(2, "a", &docs(100, 20)).await;
    nodes.node(1).databases.delete("gone").await.unwrap();
    nodes.create(1, "gone", 3).await;
    nodes.create(2, "new", 2).await;
    nodes.write(1, "new", &docs(0, 10)).await;
    let db = nodes.node(1).databases.get("a").unwrap();
    db.set_security(r#"{"admins":{"names":["x"]}}"#.into())
        .await
        .unwrap();
    db.set_revs_limit(7).await.unwrap();
    let ttl = database::Ttl::parse("30_days");
    db.set_deleted_document_ttl(ttl).await.unwrap();
    let expiry = database::Expiry::new("until", database::ExpiredDocuments::Purge);
    db.set_expiry(expiry).await.unwrap();
    nodes.agree(&[1, 2]).await;
    nodes
}

/// All continue, wherever clients write.
async fn go_on(nodes: &Nodes) {
    for (node, from) in [(3, 1000), (1, 2000), (2, 3000)] {
        nodes.write(node, "a", &docs(from, 12)).await;
        nodes.write(node, "new", &docs(from, 3)).await;
    }
    nodes.agree(&[1, 2, 3]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_comes_after_the_log_forgot_is_copied() {
    let mut nodes = third_is_behind().await;
    let entry = Entry::Setting {
        section: "log".into(),
        key: "level".into(),
        value: Some("debug".into()),
    };
    nodes.enter(1, entry).await;
    nodes.trim();
    nodes.start(3).await;
    nodes.agree(&[1, 2, 3]).await;
    assert!(nodes.net.copies.load(Relaxed) > u32::from(SLOTS));
    assert_eq!(nodes.node(3).settings.lock()["log/level"], "debug");
    go_on(&nodes).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn entries_that_are_longer_than_a_record_are_applied() {
    let mut nodes = Nodes::three().await;
    nodes.create(1, "a", 2).await;
    let security = |name: &str| format!(r#"{{"admins":{{"names":["{}"]}}}}"#, name.repeat(900_000));
    let db = nodes.node(1).databases.get("a").unwrap();
    db.set_security(security("x")).await.unwrap();
    nodes.agree(&[1, 2, 3]).await;
    nodes.stop(3).await;
    db.set_security(security("y")).await.unwrap();
    drop(db);
    nodes.trim();
    nodes.start(3).await;
    nodes.agree(&[1, 2, 3]).await;
    nodes.stop(2).await;
    nodes.start(2).await;
    nodes.agree(&[1, 2, 3]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replications_are_kept_on_all_nodes() {
    let mut nodes = Nodes::three().await;
    let of = |node: &nodes::Node| RequestedReplications::new(node.gateway.clone());
    let one = of(nodes.node(1));
    one.keep("a", kept("anna", "{}")).await.unwrap();
    let version = nodes.node(1).catalogue.version();
    let two = of(nodes.node(2));
    two.fresh().await.unwrap();
    assert_eq!(two.get("a"), Some(kept("anna", "{}")));
    // The same one again is no change.
    two.keep("a", kept("anna", "{}")).await.unwrap();
    one.fresh().await.unwrap();
    assert_eq!(nodes.node(1).catalogue.version(), version);
    let taken = two.keep("a", kept("bert", "{}")).await;
    assert!(matches!(taken, Err(KeepError::Taken)), "{taken:?}");
    two.keep("a", kept("anna", "[]")).await.unwrap();
    let long = "x".repeat(1 << 20);
    let longer = one.keep("b", kept("anna", &format!("{long}x"))).await;
    assert!(matches!(longer, Err(KeepError::TooLong(_))), "{longer:?}");
    // A user has at most half of 8 MiB.
    for number in 0..3 {
        let id = format!("long-{number}");
        one.keep(&id, kept("anna", &long)).await.unwrap();
    }
    let full = two.keep("b", kept("anna", &long)).await;
    assert!(matches!(full, Err(KeepError::NoRoom)), "{full:?}");
    nodes.agree(&[1, 2, 3]).await;
    nodes.stop(3).await;
    assert!(two.end("a").await.unwrap());
    assert!(!two.end("a").await.unwrap());
    nodes.trim();
    nodes.start(3).await;
    nodes.agree(&[1, 2, 3]).await;
    let ids = of(nodes.node(3)).all().into_iter().map(|(id, _)| id);
    let ids: Vec<String> = ids.collect();
    assert_eq!(ids, ["long-0", "long-1", "long-2"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copies_that_break_off_are_begun_again() {
    let mut nodes = third_is_behind().await;
    let (installed, failed) = (COPIES_INSTALLED.get(), COPY_FAILURES.get());
    let (sent, received) = (COPIES_SENT.get(), COPY_BYTES.get());
    nodes.net.broken_copies.store(60, Relaxed);
    nodes.net.refused_copies.store(3, Relaxed);
    nodes.trim();
    nodes.start(3).await;
    nodes.agree(&[1, 2, 3]).await;
    assert!(COPIES_INSTALLED.get() > installed + u64::from(SLOTS));
    assert!(COPY_FAILURES.get() >= failed + 3);
    assert!(COPIES_SENT.get() > sent + u64::from(SLOTS) && COPY_BYTES.get() > received);
    go_on(&nodes).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_node_is_copied_when_the_beginning_of_the_log_is_gone() {
    let mut nodes = third_is_behind().await;
    nodes.trim();
    nodes.start(4).await;
    nodes.start(3).await;
    nodes.replicate_on(4).await;
    nodes.agree(&[1, 2, 3, 4]).await;
    nodes.write(4, "a", &docs(5000, 10)).await;
    nodes.agree(&[1, 2, 3, 4]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_comes_after_the_log_was_lost_is_copied() {
    let mut nodes = third_is_behind().await;
    for slot in (0..SLOTS).chain([CONTROL]) {
        nodes.log.lose(slot);
    }
    for (_, replica) in nodes.node(1).replicas.all() {
        replica.reseed();
    }
    nodes.write(2, "a", &docs(200, 10)).await;
    nodes.trim();
    nodes.start(3).await;
    nodes.agree(&[1, 2, 3]).await;
    go_on(&nodes).await;
}

/// Power cuts while copies are under way leave the old state or the new one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_at_any_moment_of_a_copy_leaves_the_old_state_or_the_new_one() {
    let mut nodes = third_is_behind().await;
    for round in 0..6 {
        nodes.trim();
        nodes.start(3).await;
        let moment = Duration::from_millis(fastrand::u64(0..400));
        tokio::time::sleep(moment).await;
        nodes.kill(3).await;
        nodes.write(1, "a", &docs(300 + 20 * round, 6)).await;
        nodes.write(2, "new", &docs(300 + 20 * round, 3)).await;
    }
    nodes.trim();
    nodes.start(3).await;
    nodes.agree(&[1, 2, 3]).await;
    go_on(&nodes).await;
}

/// A client with a handle of a database whose shards are replaced gets an error, and the new one
/// when it opens it again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_held_of_a_database_that_is_copied_is_told_to_try_again() {
    let mut nodes = third_is_behind().await;
    nodes.trim();
    nodes.net.copies_wait.store(true, Relaxed);
    nodes.start(3).await;
    let held = nodes.node(3).databases.get("a").unwrap();
    let mut watch = held.watch();
    let before = listing(&held);
    let id = document::DocId::new("upload").unwrap();
    let mut upload = held.attachment_sink(&id, "image/png", database::SinkOptions::default());
    upload.write(vec![7; 1 << 20].into()).await.unwrap();
    nodes.net.copies_wait.store(false, Relaxed);
    nodes.agree(&[1, 2, 3]).await;
    let uploaded = upload.finish().await;
    assert!(matches!(uploaded, Err(database::Error::Unavailable(_))));
    while watch.changed().await.is_ok() {}
    assert!(matches!(held.info(), Err(database::Error::Unavailable(_))));
    let again = nodes.node(3).databases.get("a").unwrap();
    assert_ne!(listing(&again), before);
    assert_eq!(held.uuid(), again.uuid());
    let mut changed = held.all_shards().iter().zip(again.all_shards());
    assert!(changed.all(|(a, b)| a.number != b.number));
}

/// The design documents in force are part of a copy.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_copied_goes_by_the_design_documents_in_force() {
    let mut nodes = Nodes::three().await;
    nodes.create(1, "a", 4).await;
    nodes.bar(1, "a", 55, 0).await;
    nodes.agree(&[1, 2, 3]).await;
    nodes.stop(3).await;
    // Validated by other ones: these are read, and are in force from then on.
    nodes.write_validated(1, "a", &docs(0, 20)).await;
    nodes.trim();
    nodes.start(3).await;
    nodes.agree(&[1, 2, 3]).await;
    nodes.write_validated(2, "a", &docs(100, 20)).await;
    nodes.agree(&[1, 2, 3]).await;
}

/// A late barrier, whose author did not know the one in force, has no effect anywhere.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_barrier_does_not_put_older_design_documents_in_force() {
    let mut nodes = Nodes::three().await;
    nodes.create(1, "a", 4).await;
    nodes.bar(1, "a", 55, 0).await;
    nodes.bar(2, "a", 66, 55).await;
    nodes.bar(3, "a", 77, 55).await;
    nodes.bar(3, "a", 88, 0).await;
    nodes.bar(1, "a", 66, 66).await;
    nodes.agree(&[1, 2, 3]).await;
    let in_force = |nodes: &Nodes, node| {
        let uuid = nodes.node(1).databases.get("a").unwrap().uuid();
        let of = |slot| {
            let replica = nodes.node(node).replicas.get(slot).unwrap();
            replica.validators().get(uuid.as_bytes())
        };
        (0..SLOTS).map(of).collect::<Vec<_>>()
    };
    for node in 1..=3 {
        assert!(in_force(&nodes, node).iter().all(|bar| bar.designs == 66));
    }
    nodes.stop(2).await;
    nodes.start(2).await;
    nodes.agree(&[1, 2, 3]).await;
    assert_eq!(in_force(&nodes, 2), in_force(&nodes, 1));
}

/// Concurrent equal barriers all succeed: one of them counts, and has the effect that the others
/// requested.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_barriers_at_once_all_come_to_their_end() {
    let nodes = Nodes::three().await;
    nodes.create(1, "a", 4).await;
    nodes.bar(1, "a", 55, 0).await;
    nodes.agree(&[1, 2, 3]).await;
    let bars = (0..60).map(|i| {
        let node = nodes.node(i % 3 + 1);
        let db = node.databases.get("a").unwrap();
        async move {
            let slots = node.gateway.slots(&db);
            node.gateway.bar_older(&db, &slots).await
        }
    });
    for done in futures_util::future::join_all(bars).await {
        done.unwrap();
    }
    nodes.agree(&[1, 2, 3]).await;
}

/// The log loses a deletion that one node has carried out: the database does not return there
/// empty, and is dropped everywhere.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deletion_that_the_log_loses_is_carried_out_everywhere() {
    let mut nodes = Nodes::three().await;
    nodes.create(1, "a", 4).await;
    nodes.create(1, "new", 2).await;
    nodes.write(1, "a", &docs(0, 20)).await;
    let uuid = nodes.node(1).databases.get("a").unwrap().uuid();
    nodes.enter(1, Entry::AnnounceDrop { uuid }).await;
    nodes.agree(&[1, 2, 3]).await;
    nodes.stop(2).await;
    nodes.stop(3).await;
    // Only the first node has it, and it knows no other that has.
    let gateway = nodes.node(1).gateway.clone();
    let dropped = tokio::spawn(async move { gateway.enter(Entry::DropDatabase { uuid }).await });
    let databases = nodes.node(1).databases.clone();
    until("dropped", || databases.get("a").is_err()).await;
    dropped.abort();
    drop(databases);
    let _ = dropped.await;
    nodes.stop(1).await;
    for slot in (0..SLOTS).chain([CONTROL]) {
        nodes.log.lose(slot);
    }
    nodes.start(2).await;
    nodes.start(3).await;
    for (_, replica) in nodes.node(2).replicas.all() {
        replica.reseed();
    }
    nodes.write(3, "new", &docs(0, 10)).await;
    assert!(nodes.node(2).databases.get("a").is_ok());
    nodes.start(1).await;
    nodes.write(1, "new", &docs(100, 10)).await;
    assert!(nodes.node(1).databases.get("a").is_err());
    let is_going = |state: &ControlState| state.databases["a"].is_going;
    assert!(nodes.node(1).catalogue.with(is_going));
    // Creating one of the same name first drops the remains of it.
    nodes.create(3, "a", 2).await;
    nodes.write(1, "a", &docs(0, 20)).await;
    nodes.agree(&[1, 2, 3]).await;
    assert_ne!(nodes.node(2).databases.get("a").unwrap().uuid(), uuid);
    go_on(&nodes).await;
}

/// The second member makes the members two, of which one has the entry: all replicas.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_join_is_not_proposed_again_and_again() {
    let mut nodes = Nodes::none();
    nodes.start(1).await;
    for node in 1..=2 {
        let member = MemberInfo {
            name: format!("node{node}"),
            address: format!("node{node}:1"),
        };
        let entry = Entry::Join {
            node,
            member,
            token: None,
            version: None,
        };
        let before = nodes.log.end(CONTROL);
        nodes.enter(1, entry).await;
        // On a busy machine it may be appended once more, which has no effect.
        let appended = nodes.log.end(CONTROL) - before;
        assert!((1..10).contains(&appended), "{appended} records");
    }
    // The second node is a member that has not started yet: the first one goes on alone.
    let before = nodes.log.end(CONTROL);
    nodes.create(1, "a", 2).await;
    let appended = nodes.log.end(CONTROL) - before;
    assert!((1..10).contains(&appended), "{appended} records");
}

/// A database that was not announced is not dropped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_goes_in_two_steps() {
    let nodes = Nodes::three().await;
    nodes.create(1, "a", 4).await;
    let uuid = nodes.node(1).databases.get("a").unwrap().uuid();
    let refused = nodes.node(1).gateway.enter(Entry::DropDatabase { uuid });
    assert_eq!(refused.await.unwrap(), EntryOutcome::Refused);
    let announced = nodes.node(2).gateway.enter(Entry::AnnounceDrop { uuid });
    assert_eq!(announced.await.unwrap(), EntryOutcome::Done);
    // Its author died: the leader finishes the drop.
    let slots = nodes.node(1).gateway.shard_slots(uuid).all(4);
    let finishing = nodes.node(1).gateway.drop_announced(uuid, slots).await;
    finishing.unwrap();
    assert!(nodes.node(1).databases.get("a").is_err());
    nodes.agree(&[1, 2, 3]).await;
}

/// The limit of the node that takes an edit is part of the record, so that all replicas refuse the
/// same leaves, also when two nodes add some concurrently.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leaves_too_many_are_refused_alike_everywhere() {
    const MAX: u64 = 20;
    let nodes = Nodes::three().await;
    nodes.create(1, "a", 2).await;
    nodes.agree(&[1, 2, 3]).await;
    for (node, max) in [(1, MAX), (2, MAX), (3, 5)] {
        nodes.node(node).databases.set_leaf_limit(max);
    }
    let leaves = |from: u32| -> Vec<String> {
        let leaf = |n: u32| format!(r#"{{"_id":"wide","_rev":"1-{n:032x}"}}"#);
        (from..from + 15).map(leaf).collect()
    };
    let (one, other) = (leaves(0), leaves(100));
    let (done, others) = tokio::join!(
        nodes.replicate(1, "a", &one),
        nodes.replicate(2, "a", &other)
    );
    nodes.agree(&[1, 2, 3]).await;
    let is_written = |outcome: &&Outcome| matches!(outcome, Outcome::Ok { .. });
    let written = done.iter().chain(&others).filter(is_written).count();
    assert_eq!(written as u64, MAX);
    let names_the_setting = |outcome: &Outcome| match outcome {
        Outcome::Refused(error, reason) => {
            error == "forbidden" && reason.contains("max_document_leaves")
        }
        Outcome::Ok { .. } | Outcome::Conflict => false,
    };
    let mut refused = done.iter().chain(&others).filter(|o| !is_written(o));
    assert!(refused.all(names_the_setting));
    // Refused edits are not logged.
    let ends = || -> Vec<u64> { (0..SLOTS).map(|slot| nodes.log.end(slot)).collect() };
    let logged = ends();
    let done = nodes.replicate(3, "a", &leaves(200)).await;
    assert!(done.iter().all(names_the_setting));
    assert_eq!(ends(), logged);
    nodes.agree(&[1, 2, 3]).await;
}

/// Returns the number of rows of an up-to-date index, and its position.
async fn indexed(db: &Arc<Database>) -> (u64, u64) {
    let design = db.design("_design/d").unwrap();
    let index = db.view_index(&design).unwrap();
    db.update_view(&index, &database::Requester::Background)
        .await
        .unwrap();
    let info = db.view_info(&design, &index).unwrap();
    (info.update_seq, info.external_bytes)
}

/// Shards of other slots stay as they are, with their indexes; writes to them continue meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_of_which_one_slot_is_copied_keeps_its_other_shards() {
    let mut nodes = Nodes::three().await;
    nodes.create(1, "a", 5).await;
    nodes.create(1, "new", 1).await;
    let design = r#"{"_id":"_design/d","language":"query",
        "views":{"v":{"map":{"fields":{"i":"asc"}},"reduce":"_count"}}}"#;
    nodes.write(1, "a", &[design.to_owned()]).await;
    nodes.write(1, "a", &docs(0, 30)).await;
    nodes.agree(&[1, 2, 3]).await;
    let db = nodes.node(3).databases.get("a").unwrap();
    let before: Vec<_> = db.all_shards().iter().map(|s| s.number).collect();
    let of_slot = |i: &usize| slot_of(db.uuid(), *i, SLOTS) == 1;
    let copied: Vec<_> = (0..5).filter(of_slot).collect();
    indexed(&db).await;
    drop(db);
    nodes.stop(3).await;
    nodes.write(1, "a", &docs(100, 30)).await;
    nodes.log.trim(1, usize::MAX);
    nodes.start(3).await;
    let held = nodes.node(3).databases.get("a").unwrap();
    let view = held.design("_design/d").and_then(|d| held.view_index(&d));
    nodes.write(2, "a", &docs(200, 30)).await;
    nodes.agree(&[1, 2, 3]).await;
    let db = nodes.node(3).databases.get("a").unwrap();
    for (i, (shard, before)) in db.all_shards().iter().zip(before).enumerate() {
        assert_eq!(shard.number == before, !copied.contains(&i), "shard {i}");
    }
    let there = nodes.node(1).databases.get("a").unwrap();
    assert_eq!(indexed(&db).await, indexed(&there).await);
    drop((held, view));
    go_on(&nodes).await;
    assert_eq!(indexed(&db).await, indexed(&there).await);
}

/// Databases are created, changed, dropped and read, while a node receives a copy.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_happens_while_a_node_is_copied_to_comes_to_the_same_everywhere() {
    let mut nodes = third_is_behind().await;
    nodes.trim();
    nodes.start(3).await;
    for round in 0..30_u32 {
        let at = fastrand::u64(1..=2);
        nodes.write(at, "a", &docs(400 + round * 10, 3)).await;
        let databases = &nodes.node(at).databases;
        let db = databases.get("a").unwrap();
        db.set_revs_limit(u64::from(round) + 5).await.unwrap();
        match round % 5 {
            0 => nodes.create(at, "brief", 3).await,
            1 => drop(nodes.write(at, "brief", &docs(round, 4)).await),
            2 => nodes.delete(at, "brief").await,
            3 => nodes.create(at, &format!("stays-{round}"), 2).await,
            _ => nodes.trim(),
        }
        read_all(&nodes.node(3).databases);
    }
    nodes.agree(&[1, 2, 3]).await;
    go_on(&nodes).await;
}

/// Reads everything; whatever is listed exists.
fn read_all(databases: &database::Databases) {
    for name in databases.names(&database::NameRange::default()) {
        let info = databases.get(&name).and_then(|db| db.info());
        match info {
            Ok(_) => {}
            Err(database::Error::Unavailable(_) | database::Error::NoDatabase) => {}
            Err(e) => panic!("{name}: {e}"),
        }
    }
}

/// Local operations of replicas (compaction, restarts, batches of other sizes) do not change the
/// state that they share.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_that_compact_and_start_at_other_times_stay_alike() {
    let mut nodes = Nodes::three().await;
    for name in ["a", "new"] {
        nodes.create(1, name, 3).await;
    }
    let mut last: Vec<(u32, Vec<Outcome>)> = vec![];
    for round in 0..30_u32 {
        let at = fastrand::u64(1..=3);
        let from = round * 20;
        let written = nodes
            .write(at, "a", &docs(from, fastrand::u32(1..12)))
            .await;
        last.push((from, written));
        match fastrand::u32(..10) {
            0 | 1 => {
                let (from, written) = last.swap_remove(fastrand::usize(..last.len()));
                let edits = edited(&written, from);
                nodes.write(at, "a", &edits).await;
            }
            2 | 3 => nodes
                .node(at)
                .databases
                .get("a")
                .unwrap()
                .compact()
                .unwrap(),
            4 => {
                let node = fastrand::u64(1..=3);
                nodes.stop(node).await;
                nodes.start(node).await;
            }
            5 => drop(nodes.node(at).databases.close_idle()),
            6 => {
                nodes.stop(3).await;
                nodes.write(1, "new", &docs(from, 5)).await;
                nodes.trim();
                nodes.start(3).await;
            }
            _ => {}
        }
    }
    nodes.agree(&[1, 2, 3]).await;
    go_on(&nodes).await;
}
