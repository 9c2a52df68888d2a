//! Databases come and go: names used again, thousands of databases, and deletion racing with other operations.

use crate::support;

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use database::{Databases, Error, NameRange, Read, ReadOptions, Since};
use document::DocId;
use support::{all_docs, changes_of, doc, feed, open, rows_of, runtime, with_shards, write};

fn names(databases: &Arc<Databases>) -> Vec<String> {
    let names = databases.names(&NameRange::default());
    names.iter().map(|n| n.to_string()).collect()
}

/// Lets a future start, as far as it gets without waiting.
async fn start<F: Future>(future: &mut std::pin::Pin<&mut F>) -> Option<F::Output> {
    std::future::poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(done) => Poll::Ready(Some(done)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

#[test]
fn a_deleted_name_can_be_used_again_at_once_and_starts_empty() {
    let dir = tempfile::tempdir().unwrap();
    let databases = open(dir.path());
    runtime().block_on(async {
        let mut old_seq = None;
        for round in 0..30 {
            let q = 1 + round % 3;
            let db = databases.create("again", with_shards(q)).await.unwrap();
            let info = db.info().unwrap();
            assert_eq!((info.doc_count, info.doc_del_count), (0, 0));
            assert!(info.update_seq.starts_with("0-"));
            assert_eq!(db.revs_limit(), database::REVS_LIMIT);
            assert!(rows_of(&mut db.rows(all_docs()).unwrap(), 100).is_empty());
            let a = DocId::new("a").unwrap();
            assert!(matches!(
                db.read(&a, &ReadOptions::default()),
                Ok(Read::Missing)
            ));
            write(
                &db,
                vec![doc(r#"{"_id":"a"}"#), doc(r#"{"_id":"_local/a"}"#)],
            )
            .await;
            db.set_revs_limit(5).await.unwrap();
            // The seq of a database that is gone means the beginning of this one.
            if let Some(seq) = old_seq {
                let mut changes = db.changes(feed(Since::Seq(seq))).unwrap();
                assert_eq!(changes_of(&mut changes, 100).len(), 1);
            }
            old_seq = Some(db.info().unwrap().update_seq);
            databases.delete("again").await.unwrap();
            assert!(matches!(db.info(), Err(Error::NoDatabase)));
            assert!(matches!(db.rows(all_docs()), Err(Error::NoDatabase)));
        }
    });
    assert_eq!(databases.count(), 0);
}

#[test]
fn two_thousand_databases_come_back_after_reopening() {
    let dir = tempfile::tempdir().unwrap();
    let databases = open(dir.path());
    let runtime = runtime();
    let name = |n: usize| format!("db/{n:04}");
    runtime.block_on(async {
        let mut waiting = vec![];
        for n in 0..2000 {
            let databases: Arc<Databases> = databases.clone();
            waiting.push(async move {
                let db = databases
                    .create(&name(n), with_shards(1 + n as u32 % 2))
                    .await;
                let docs = (0..n % 4).map(|i| doc(&format!(r#"{{"_id":"{i}","n":{n}}}"#)));
                write(&db.unwrap(), docs.collect()).await;
            });
        }
        join_all(waiting).await;
        let mut doomed = vec![];
        for n in (0..2000).step_by(3) {
            let databases = databases.clone();
            doomed.push(async move { databases.delete(&name(n)).await.unwrap() });
        }
        join_all(doomed).await;
    });
    let left: Vec<String> = (0..2000).filter(|n| n % 3 > 0).map(name).collect();
    assert_eq!(names(&databases), left);
    databases.close();
    drop(databases);

    let databases = open(dir.path());
    assert_eq!(names(&databases), left);
    for n in (0..2000).filter(|n| n % 3 > 0) {
        let db = databases.get(&name(n)).unwrap();
        assert_eq!(db.info().unwrap().doc_count, n as u64 % 4);
        let rows = rows_of(&mut db.rows(all_docs()).unwrap(), 1000);
        assert_eq!(rows.len(), n % 4);
    }
    // New databases get shards of their own.
    runtime.block_on(async {
        for n in (0..2000).step_by(3).take(100) {
            let db = databases.create(&name(n), with_shards(2)).await.unwrap();
            assert!(rows_of(&mut db.rows(all_docs()).unwrap(), 1000).is_empty());
            write(&db, vec![doc(r#"{"_id":"new"}"#)]).await;
        }
    });
    assert_eq!(databases.count(), left.len() + 100);
    let untouched = databases.get(&name(1)).unwrap();
    assert_eq!(untouched.info().unwrap().doc_count, 1);
}

/// Drives futures together, so that their commits are grouped.
async fn join_all<F: Future>(futures: Vec<F>) {
    let mut futures: Vec<_> = futures.into_iter().map(Box::pin).collect();
    std::future::poll_fn(|cx| {
        futures.retain_mut(|f| f.as_mut().poll(cx).is_pending());
        if futures.is_empty() {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
}

/// A change of properties that began before a deletion was done must not bring the database back.
#[test]
fn a_change_of_properties_during_deletion_does_not_resurrect_the_database() {
    let dir = tempfile::tempdir().unwrap();
    let databases = open(dir.path());
    runtime().block_on(async {
        let db = databases.create("doomed", with_shards(2)).await.unwrap();
        write(&db, vec![doc(r#"{"_id":"a"}"#)]).await;
        let mut deletion = pin!(databases.delete("doomed"));
        let mut change = pin!(db.set_revs_limit(7));
        let deleted = start(&mut deletion).await;
        let changed = start(&mut change).await;
        if deleted.is_none() {
            deletion.await.unwrap();
        }
        if changed.is_none() {
            // Done before the deletion or refused because of it.
            let _ = change.await;
        }
    });
    assert_eq!(databases.count(), 0);
    databases.close();
    drop(databases);
    assert_eq!(names(&open(dir.path())), [""; 0]);
}

/// A database created as soon as its name is free must survive, whatever the deletion of the old one still does.
#[test]
fn a_database_created_while_its_namesake_is_deleted_stays() {
    let dir = tempfile::tempdir().unwrap();
    let databases = open(dir.path());
    let runtime_here = runtime();
    let rounds = 2000;
    for round in 0..rounds {
        let name = format!("name{round:04}");
        let created = databases.create(&name, with_shards(1));
        runtime_here.block_on(created).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| create_when_free(&databases, &name));
            }
            runtime_here.block_on(databases.delete(&name)).unwrap();
        });
    }
    let before = names(&databases);
    databases.close();
    drop(databases);
    let databases = open(dir.path());
    assert_eq!(names(&databases), before);
    for name in before {
        let info = databases.get(&name).unwrap().info().unwrap();
        assert_eq!(info.q, 2);
    }
}

/// Retries until the old database of that name is gone; another writer may be faster.
fn create_when_free(databases: &Arc<Databases>, name: &str) {
    let runtime = runtime();
    loop {
        match runtime.block_on(databases.create(name, with_shards(2))) {
            Ok(_) => return,
            Err(Error::DatabaseExists) => {}
            Err(e) => panic!("{e}"),
        }
        let there = databases.get(name);
        if there.is_ok_and(|db| db.info().is_ok_and(|info| info.q == 2)) {
            return;
        }
    }
}

#[test]
fn a_database_keeps_its_uuid_and_another_of_its_name_has_another() {
    let dir = tempfile::tempdir().unwrap();
    let mut known = std::collections::BTreeSet::new();
    for _ in 0..3 {
        let databases = open(dir.path());
        let uuid = runtime().block_on(async {
            if databases.exists("again") {
                databases.delete("again").await.unwrap();
            }
            let db = databases.create("again", with_shards(2)).await.unwrap();
            let other = databases.create("other", with_shards(2)).await;
            assert!(other.is_err() || known.insert(other.unwrap().uuid()));
            db.set_security(r#"{"a":1}"#.into()).await.unwrap();
            db.uuid()
        });
        assert!(known.insert(uuid), "it was used before");
        databases.close();
        drop(databases);
        let databases = open(dir.path());
        assert_eq!(databases.get("again").unwrap().uuid(), uuid);
        assert!(known.contains(&databases.get("other").unwrap().uuid()));
        databases.close();
    }
    assert_eq!(known.len(), 4);
}

#[test]
fn a_security_object_is_parsed_once_until_it_changes() {
    let dir = tempfile::tempdir().unwrap();
    let databases = open(dir.path());
    runtime().block_on(async {
        let db = databases.create("db", with_shards(1)).await.unwrap();
        let parses = std::cell::Cell::new(0);
        let length = || {
            let parse = |json: &str| {
                parses.set(parses.get() + 1);
                json.parse::<serde_json::Value>().map(|_| json.len())
            };
            *db.parsed_security(parse).unwrap()
        };
        db.set_security(r#"{"a":1}"#.into()).await.unwrap();
        assert_eq!([length(), length(), length()], [7, 7, 7]);
        assert_eq!(parses.get(), 1);
        db.set_security(r#"{"a":12}"#.into()).await.unwrap();
        assert_eq!([length(), length()], [8, 8]);
        assert_eq!(parses.get(), 2);
        db.set_security("no JSON".into()).await.unwrap();
        assert!(db.parsed_security(str::parse::<serde_json::Value>).is_err());
    });
    databases.close();
}

#[test]
fn shards_are_found_by_their_ranges_and_hold_the_documents_of_them() {
    let dir = tempfile::tempdir().unwrap();
    let databases = open(dir.path());
    runtime().block_on(async {
        for q in [1, 2, 3, 7, 256] {
            let db = databases.create(&format!("q{q}"), with_shards(q)).await;
            let db = db.unwrap();
            let shown: Vec<String> = db.shards().into_iter().map(|s| s.range).collect();
            for (index, shown) in shown.iter().enumerate() {
                let (start, end) = db.shard_range(index);
                assert_eq!(*shown, format!("{start:08x}-{end:08x}"));
                assert_eq!(db.shard_by_range((start, end)), Some(index));
                for other in [(start, end.wrapping_sub(1)), (start + 1, end), (end, start)] {
                    assert_eq!(db.shard_by_range(other), None, "{other:?} of {q}");
                }
            }
            for n in 0..100 {
                let id = format!("doc-{n}");
                let crc = crc32fast::hash(id.as_bytes());
                let holder = (0..q as usize).find(|&index| {
                    let (start, end) = db.shard_range(index);
                    (start..=end).contains(&crc)
                });
                let range = db.shard_of(&DocId::new(&id).unwrap()).range;
                assert_eq!(range, shown[holder.unwrap()]);
            }
        }
    });
}
