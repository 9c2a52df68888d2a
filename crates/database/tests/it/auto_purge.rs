//! Which deleted documents are older than their time to live, by a clock that the test moves.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use database::{Database, Databases, Options, StoreOptions, Ttl};
use document::EditDoc;

use crate::support::{doc, runtime, with_shards, write};

/// 2026-01-01T00:00:00Z
const START: u64 = 1_767_225_600;
const DAY: u64 = 86_400;

static NOW: AtomicU64 = AtomicU64::new(START);

fn open(dir: &Path) -> Arc<Databases> {
    let options = Options {
        store: StoreOptions {
            block_cache_bytes: 8 << 20,
            now_unix_s: || NOW.load(Relaxed),
            ..StoreOptions::default()
        },
        auto_compact: false,
        ..Options::default()
    };
    Databases::open(dir, options).unwrap()
}

fn gone(n: usize) -> EditDoc {
    doc(&format!(r#"{{"_id":"gone{n}","_deleted":true}}"#))
}

/// The deleted documents of a database between these seqs of its shards, read in parts.
fn deleted(db: &Database, after: &[u64], ends: &[u64], leaves_min: usize) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (shard, (&after, &end)) in after.iter().zip(ends).enumerate() {
        let mut at = after;
        while at < end {
            let part = db.deleted_documents(shard, at, end, leaves_min).unwrap();
            assert!(part.documents.len() <= leaves_min && part.read_to > at);
            at = part.read_to;
            for (id, revs) in part.documents {
                assert_eq!(revs.len(), 1);
                assert!(found.insert(id.to_string()));
            }
        }
    }
    found
}

#[test]
fn deleted_documents_are_found_once_they_are_older_than_their_time_to_live() {
    let dir = tempfile::tempdir().unwrap();
    let databases = open(dir.path());
    runtime().block_on(async {
        let db = databases.create("db", with_shards(2)).await.unwrap();
        write(&db, (0..20).map(gone).collect()).await;
        write(&db, vec![doc(r#"{"_id":"kept"}"#)]).await;
        NOW.store(START + 2 * DAY, Relaxed);
        write(&db, vec![gone(20)]).await;
        let ttl = Ttl::parse("1_day");
        db.set_deleted_document_ttl(ttl).await.unwrap();

        // A day after the first changes their bin is not known to have ended.
        let old = |now| databases.old_changes(None, now).0.remove(0);
        assert_eq!(old(START + DAY).ends, [0, 0]);
        let first = old(START + 3 * DAY);
        assert_eq!(
            (&*first.name, first.uuid, first.kept_s),
            ("db", db.uuid(), DAY)
        );
        for leaves_min in [1, 7, 1000] {
            let found = deleted(&db, &[0, 0], &first.ends, leaves_min);
            assert_eq!(found.len(), 20);
            assert!(!found.contains("gone20") && !found.contains("kept"));
        }
        let later = old(START + 4 * DAY);
        let rest = deleted(&db, &first.ends, &later.ends, 1000);
        assert_eq!(rest.into_iter().collect::<Vec<_>>(), ["gone20"]);
    });
    databases.close();
}

#[test]
fn a_restart_continues_where_the_last_round_ended() {
    let dir = tempfile::tempdir().unwrap();
    let one_day = Ttl::parse("1_day");
    let old = |databases: &Databases| {
        let (mut all, unknown) = databases.old_changes(one_day.as_ref(), START + 30 * DAY);
        assert!(unknown.is_empty());
        all.remove(0)
    };
    let databases = open(dir.path());
    runtime().block_on(async {
        let db = databases.create("db", with_shards(2)).await.unwrap();
        write(&db, (0..20).map(gone).collect()).await;
        let first = old(&databases);
        assert_eq!(first.purged_to, [0, 0]);
        db.set_purged_to(1, first.ends[1]).await.unwrap();
    });
    databases.close();
    drop(databases);
    let databases = open(dir.path());
    let again = old(&databases);
    assert_eq!(again.purged_to, [0, again.ends[1]]);
    // A database that is created under the name begins anew.
    runtime().block_on(async {
        databases.delete("db").await.unwrap();
        databases.create("db", with_shards(2)).await.unwrap();
    });
    assert_eq!(old(&databases).purged_to, [0, 0]);
    databases.close();
}

#[test]
fn the_default_is_for_databases_without_a_time_to_live() {
    let dir = tempfile::tempdir().unwrap();
    let databases = open(dir.path());
    runtime().block_on(async {
        for name in ["default", "never", "short"] {
            databases.create(name, with_shards(1)).await.unwrap();
        }
        let ttl = |name, text| (databases.get(name).unwrap(), Ttl::parse(text));
        for (db, ttl) in [ttl("never", "infinity"), ttl("short", "1_s")] {
            db.set_deleted_document_ttl(ttl).await.unwrap();
        }
        let names = |default| -> Vec<(String, u64)> {
            let (all, unknown) = databases.old_changes(Ttl::parse(default).as_ref(), START);
            assert!(unknown.is_empty());
            let all = all.into_iter();
            all.map(|old| (old.name.to_string(), old.kept_s)).collect()
        };
        let short = ("short".to_owned(), 1);
        assert_eq!(names("infinity"), std::slice::from_ref(&short));
        assert_eq!(
            names("4_days"),
            [("default".to_owned(), 4 * DAY), short.clone()]
        );
        assert_eq!(databases.old_changes(None, START).0.len(), 1);
        let db = databases.get("short").unwrap();
        db.set_deleted_document_ttl(None).await.unwrap();
        let default = Ttl::parse("4_days");
        assert_eq!(db.keeps_deleted_s(default.as_ref()), Some(4 * DAY));
    });
    databases.close();
}
