//! Thousands of documents: the row at any offset, in either direction, from any start, after every kind of reopening.

use crate::support;

use std::collections::BTreeMap;
use std::sync::Arc;

use database::{
    Bound, CreateOptions, Database, Databases, Durability, EditMode, Listing, RowsQuery, Since,
};
use document::Rev;
use support::{
    all_docs, bound, changes_of, compact, doc, feed, ids_of, open, rows_of, runtime, with_shards,
    write,
};

const DOCS: u64 = 5_000;

/// Pseudo-random numbers, the same in every run.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

/// The live documents and their revisions, and how many deleted ones there are.
#[derive(Default)]
struct Model {
    live: BTreeMap<String, String>,
    deleted: u64,
}

async fn fill(db: &Arc<Database>, numbers: &mut Numbers) -> Model {
    let mut model = Model::default();
    let ids: Vec<String> = (0..DOCS)
        .map(|n| match n % 4 {
            0 | 1 => format!("{:016x}", numbers.next()),
            2 => format!("sequential-{n:08}"),
            _ => format!("{}", n * 37 % 4001),
        })
        .collect::<std::collections::BTreeSet<_>>()
        .into_iter()
        .collect();
    let mut order = ids.clone();
    for i in (1..order.len()).rev() {
        order.swap(i, numbers.below(i as u64 + 1) as usize);
    }
    for bulk in order.chunks(700) {
        let docs = bulk.iter().map(|id| doc(&format!(r#"{{"_id":"{id}"}}"#)));
        let revs = write(db, docs.collect()).await;
        model.live.extend(bulk.iter().cloned().zip(revs));
    }
    for bulk in order
        .chunks(2)
        .map(|two| &two[0])
        .collect::<Vec<_>>()
        .chunks(500)
    {
        let docs = bulk.iter().map(|id| {
            let mut edit = doc(&format!(r#"{{"_id":"{id}","updated":true}}"#));
            edit.rev = Some(Rev::parse(&model.live[*id]).unwrap());
            edit
        });
        let revs = write(db, docs.collect()).await;
        model
            .live
            .extend(bulk.iter().map(|id| id.to_string()).zip(revs));
    }
    // A stretch of neighbours, and some of all.
    let stretch = &ids[1200..1900];
    let some = ids.iter().filter(|_| numbers.below(9) == 0);
    let doomed: std::collections::BTreeSet<&String> = stretch.iter().chain(some).collect();
    let docs = doomed.iter().map(|id| {
        let mut edit = doc(&format!(r#"{{"_id":"{id}","_deleted":true}}"#));
        edit.rev = Some(Rev::parse(&model.live[*id]).unwrap());
        edit
    });
    write(db, docs.collect()).await;
    model.deleted = doomed.len() as u64;
    for id in doomed {
        model.live.remove(id);
    }
    model
}

/// Every interesting offset from every interesting start.
fn check(db: &Arc<Database>, model: &Model, numbers: &mut Numbers) {
    let info = db.info().unwrap();
    assert_eq!(info.doc_count, model.live.len() as u64);
    assert_eq!(info.doc_del_count, model.deleted);
    let ascending: Vec<&str> = model.live.keys().map(String::as_str).collect();
    let total = ascending.len();
    for descending in [false, true] {
        let mut ids = ascending.clone();
        if descending {
            ids.reverse();
        }
        let mut starts: Vec<Option<&str>> = vec![None, Some(""), Some("5"), Some("sequential-")];
        starts.push(Some("\u{10ffff}"));
        starts.extend((0..6).map(|_| Some(ids[numbers.below(total as u64) as usize])));
        for start in starts {
            let first = ids.partition_point(|id| match start {
                None => false,
                Some(s) if descending => *id > s,
                Some(s) => *id < s,
            });
            let mut skips = vec![0, 1, 511, 512, 513, 514, 2000, total, total + 5];
            skips.extend([total - first.min(total), (total - first).saturating_sub(1)]);
            skips.extend((0..8).map(|_| numbers.below(total as u64) as usize));
            for skip in skips {
                check_offset(db, &ids, descending, start, first, skip);
            }
        }
    }
}

fn check_offset(
    db: &Arc<Database>,
    ids: &[&str],
    descending: bool,
    start: Option<&str>,
    first: usize,
    skip: usize,
) {
    let mut query = all_docs();
    query.descending = descending;
    query.start = bound(start);
    query.skip = skip as u64;
    query.limit = Some(3);
    let mut rows = db.rows(query).unwrap();
    let what = format!("start {start:?}, skip {skip}, descending {descending}");
    let at = (first + skip).min(ids.len());
    assert_eq!(rows.total_rows, Some(ids.len() as u64), "{what}");
    assert_eq!(rows.offset, Some(at as u64), "{what}");
    let expected = &ids[at..(at + 3).min(ids.len())];
    assert_eq!(ids_of(&rows_of(&mut rows, 50)), expected, "{what}");
}

/// Purging changes ranks too, and leaves nothing in the feed.
async fn purge_some(db: &Arc<Database>, model: &mut Model, numbers: &mut Numbers) {
    let doomed: Vec<(String, String)> = model
        .live
        .iter()
        .filter(|_| numbers.below(20) == 0)
        .map(|(id, rev)| (id.clone(), rev.clone()))
        .collect();
    let requests = doomed.iter().map(|(id, rev)| {
        let id = document::DocId::new(id).unwrap();
        (id, vec![Rev::parse(rev).unwrap()])
    });
    let answers = db.purge(requests.collect()).await.unwrap();
    assert!(answers.removed.iter().all(|(_, revs)| revs.len() == 1));
    for (id, _) in doomed {
        model.live.remove(&id);
    }
}

fn check_feed(db: &Arc<Database>, model: &Model) {
    let mut changes = db.changes(feed(Since::Start)).unwrap();
    let listed = model.live.len() as u64 + model.deleted;
    assert_eq!(changes.pending().unwrap(), listed);
    let rows = changes_of(&mut changes, 10_000);
    assert_eq!(rows.len() as u64, listed);
    let mut live = ids_of(&rows);
    let dead = rows.iter().filter(|r| r["deleted"] == true);
    assert_eq!(dead.count() as u64, model.deleted);
    live.sort();
    live.dedup();
    assert_eq!(live.len() as u64, listed, "each document once");
}

fn reopened(databases: Arc<Databases>, db: Arc<Database>, dir: &std::path::Path) -> Arc<Databases> {
    databases.close();
    drop((databases, db));
    open(dir)
}

fn offsets_are_exact(q: u32) {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let runtime = runtime();
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15 + u64::from(q));
    let databases = open(&data);
    let db = runtime
        .block_on(databases.create("db", with_shards(q)))
        .unwrap();
    let mut model = runtime.block_on(fill(&db, &mut numbers));
    check(&db, &model, &mut numbers);
    check_feed(&db, &model);

    // As after a crash: a copy of the open store.
    let copy = dir.path().join("copy");
    databases.backup(&copy).unwrap();
    let copied = open(&copy);
    check(&copied.get("db").unwrap(), &model, &mut numbers);
    drop(copied);

    let databases = reopened(databases, db, &data);
    let db = databases.get("db").unwrap();
    check(&db, &model, &mut numbers);

    compact(&db);
    check(&db, &model, &mut numbers);
    check_feed(&db, &model);

    runtime.block_on(purge_some(&db, &mut model, &mut numbers));
    check(&db, &model, &mut numbers);
    check_feed(&db, &model);
    compact(&db);
    let copy = dir.path().join("compacted");
    databases.backup(&copy).unwrap();
    let copied = open(&copy);
    check(&copied.get("db").unwrap(), &model, &mut numbers);
    drop(copied);

    let databases = reopened(databases, db, &data);
    let db = databases.get("db").unwrap();
    check(&db, &model, &mut numbers);
    check_feed(&db, &model);
    let back = runtime.block_on(db.update(
        vec![doc(r#"{"_id":"after everything"}"#)],
        EditMode::Interactive,
        Durability::Synced,
    ));
    assert_eq!(back.unwrap().0.len(), 1);
    assert_eq!(db.info().unwrap().doc_count, model.live.len() as u64 + 1);
}

#[test]
fn offsets_are_exact_in_one_shard() {
    offsets_are_exact(1);
}

#[test]
fn offsets_are_exact_over_two_shards() {
    offsets_are_exact(2);
}

#[test]
fn offsets_are_exact_over_eight_shards() {
    offsets_are_exact(8);
}

/// Skips of any length in a partition stay in it, also from a start that is not an id.
#[test]
fn a_long_skip_stays_in_its_partition() {
    let dir = tempfile::tempdir().unwrap();
    let databases = open(&dir.path().join("data"));
    let runtime = runtime();
    let options = CreateOptions {
        partitioned: true,
        ..with_shards(1)
    };
    let db = runtime.block_on(databases.create("db", options)).unwrap();
    for partition in ["a", "b", "c"] {
        let docs = (0..1_000).map(|n| doc(&format!(r#"{{"_id":"{partition}:{n:04}"}}"#)));
        runtime.block_on(write(&db, docs.collect()));
    }
    for descending in [false, true] {
        for start in [None, Some(Bound::BeforeAll), Some(Bound::AfterAll)] {
            let empty = matches!(
                (&start, descending),
                (Some(Bound::AfterAll), false) | (Some(Bound::BeforeAll), true)
            );
            for skip in [0, 600, 999, 1_000, 5_000] {
                let expected: Vec<String> = (skip..1_000)
                    .take(if empty { 0 } else { 3 })
                    .map(|n| if descending { 999 - n } else { n })
                    .map(|n| format!("b:{n:04}"))
                    .collect();
                let query = RowsQuery {
                    listing: Listing::Partition("b".into()),
                    start: start.clone(),
                    descending,
                    skip,
                    limit: Some(3),
                    ..all_docs()
                };
                let mut found = db.rows(query).unwrap();
                let offset = skip.min(1_000);
                assert_eq!(found.offset, Some(offset), "{descending} {start:?} {skip}");
                let rows = rows_of(&mut found, 1_000);
                assert_eq!(ids_of(&rows), expected, "{descending} {start:?} {skip}");
            }
        }
    }
}
