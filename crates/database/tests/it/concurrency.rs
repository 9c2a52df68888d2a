//! Readers that page through listings and feeds while writers update and compactions run.

use crate::support;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread;

use database::{Database, Read, ReadOptions, RevSelection, Since};
use document::{DocId, Rev};
use support::{
    all_docs, changes_of, compact, doc, feed, ids_of, open, rounds, rows_of, runtime, with_shards,
    write,
};

/// Compactions that every reader must have lived through.
const COMPACTIONS_MIN: usize = 3;

/// Documents before the race begins.
fn docs_before() -> usize {
    rounds(500, 2_000)
}

/// Documents of each writer.
fn docs_per_writer() -> usize {
    rounds(250, 1_000)
}

/// Documents of all.
fn docs_max() -> usize {
    docs_before() + 2 * docs_per_writer()
}

/// The writers that run concurrently with the readers.
struct Race {
    /// Readers not done yet.
    reading: AtomicUsize,
    compactions: AtomicUsize,
}

impl Race {
    fn is_on(&self) -> bool {
        self.reading.load(Relaxed) > 0
    }

    /// Whether a reader should continue after this number of rounds.
    fn wants_more(&self, done: usize) -> bool {
        done < rounds(2, 5) || self.compactions.load(Relaxed) < COMPACTIONS_MIN
    }
}

/// Stops the writers also when a reader fails.
struct Finished<'a>(&'a Race);

impl Drop for Finished<'_> {
    fn drop(&mut self) {
        self.0.reading.fetch_sub(1, Relaxed);
    }
}

/// Where readers and compaction get too little of the processors to keep up, a feed would never come to its end.
const WRITES_MAX: usize = 20_000;

type Reader = dyn Fn(&Arc<Database>, usize) + Sync;

/// Creates, updates and deletes the writer's documents again and again, until the readers are done, or it is enough.
fn keep_writing(db: &Arc<Database>, writer: usize, race: &Race, deletes: bool) {
    let runtime = runtime();
    // Spread over the existing ids, and not created in their order.
    let count = docs_per_writer();
    let mut docs: Vec<(String, Option<Rev>)> = (0..count)
        .map(|n| (format!("{}-{writer}", n * 7919 % 50_021), None))
        .collect();
    for n in (0..WRITES_MAX).take_while(|_| race.is_on()) {
        let mut edits = vec![];
        for i in 0..20 {
            let (id, rev) = &docs[(n * 20 + i) % count];
            let deleted = deletes && rev.is_some() && (n + i) % 3 == 0;
            let deleted = if deleted { r#","_deleted":true"# } else { "" };
            let pad = "p".repeat(if i == 1 { 5000 } else { 10 });
            let mut edit = doc(&format!(r#"{{"_id":"{id}","n":{n},"p":"{pad}"{deleted}}}"#));
            edit.rev = rev.clone();
            edits.push(edit);
        }
        let deleted: Vec<bool> = edits.iter().map(|d| d.deleted).collect();
        let written = runtime.block_on(write(db, edits));
        for (i, (rev, deleted)) in written.iter().zip(deleted).enumerate() {
            let rev = (!deleted).then(|| Rev::parse(rev).unwrap());
            docs[(n * 20 + i) % count].1 = rev;
        }
    }
}

fn keep_compacting(db: &Arc<Database>, race: &Race) {
    while race.is_on() {
        compact(db);
        race.compactions.fetch_add(1, Relaxed);
    }
}

fn strictly_sorted(ids: &[String]) -> bool {
    ids.windows(2).all(|w| w[0] < w[1])
}

/// Runs the readers again and again while two writers and a compaction run.
fn race(q: u32, deletes: bool, readers: &[&Reader]) {
    let dir = tempfile::tempdir().unwrap();
    let databases = open(dir.path());
    let runtime = runtime();
    let created = databases.create("db", with_shards(q));
    let db = runtime.block_on(created).unwrap();
    let apart = 50_000 / docs_before();
    let docs = (0..docs_before()).map(|n| doc(&format!(r#"{{"_id":"{}"}}"#, n * apart)));
    runtime.block_on(write(&db, docs.collect()));
    // Trees stay small however long this takes.
    runtime.block_on(db.set_revs_limit(10)).unwrap();
    let race = Race {
        reading: AtomicUsize::new(readers.len()),
        compactions: AtomicUsize::new(0),
    };
    thread::scope(|scope| {
        for reader in readers {
            let (db, race) = (&db, &race);
            scope.spawn(move || {
                let _finished = Finished(race);
                for round in (0..).take_while(|n| race.wants_more(*n)) {
                    reader(db, round);
                }
            });
        }
        for writer in 0..2 {
            let (db, race) = (&db, &race);
            scope.spawn(move || keep_writing(db, writer, race, deletes));
        }
        scope.spawn(|| keep_compacting(&db, &race));
    });
    let rows = rows_of(&mut db.rows(all_docs()).unwrap(), 10_000);
    assert_eq!(rows.len() as u64, db.info().unwrap().doc_count);
    let mut changes = db.changes(feed(Since::Start)).unwrap();
    let pending = changes.pending().unwrap();
    assert_eq!(changes_of(&mut changes, 10_000).len() as u64, pending);
}

/// Pages through everything with documents; sorted, without duplicates, as many rows as were announced.
fn page_rows(db: &Arc<Database>, round: usize) {
    let mut query = all_docs();
    query.include_docs = round.is_multiple_of(2);
    query.descending = round.is_multiple_of(3);
    let descending = query.descending;
    let mut rows = db.rows(query).unwrap();
    let total = rows.total_rows.unwrap();
    let rows = rows_of(&mut rows, 1500);
    let mut ids = ids_of(&rows);
    if descending {
        ids.reverse();
    }
    assert!(strictly_sorted(&ids));
    assert_eq!(ids.len() as u64, total);
    for row in rows.iter().filter(|r| !r["doc"].is_null()) {
        assert_eq!(row["doc"]["_rev"], row["value"]["rev"]);
        assert_eq!(row["doc"]["_id"], row["id"]);
    }
}

/// A page in the middle starts at its offset.
fn page_offsets(db: &Arc<Database>, round: usize) {
    let mut query = all_docs();
    query.skip = (round * 97 % docs_max()) as u64;
    query.limit = Some(20);
    let (skip, limit) = (query.skip, 20);
    let mut rows = db.rows(query).unwrap();
    let (total, offset) = (rows.total_rows.unwrap(), rows.offset.unwrap());
    assert_eq!(offset, skip.min(total));
    let ids = ids_of(&rows_of(&mut rows, 100));
    assert_eq!(ids.len() as u64, total.saturating_sub(skip).min(limit));
    assert!(strictly_sorted(&ids));
}

/// Feeds from the start: each document once, with its newest revision at that moment.
fn page_changes(db: &Arc<Database>, round: usize) {
    let mut query = feed(Since::Start);
    query.include_docs = true;
    query.descending = round.is_multiple_of(3);
    let rows = changes_of(&mut db.changes(query).unwrap(), 1500);
    let ids: HashSet<String> = ids_of(&rows).into_iter().collect();
    assert_eq!(ids.len(), rows.len(), "each document once");
    for row in &rows {
        assert_eq!(row["doc"]["_rev"], row["changes"][0]["rev"]);
        assert_eq!(row["doc"]["_deleted"], row["deleted"]);
    }
}

/// One continuous feed shows each document once per snapshot, and never an older revision again.
fn follow_changes(db: &Arc<Database>, _: usize) {
    let mut newest: HashMap<String, u64> = HashMap::new();
    let mut changes = db.changes(feed(Since::Start)).unwrap();
    for _ in 0..10 {
        let mut seen = HashSet::new();
        for row in changes_of(&mut changes, 700) {
            let id = row["id"].as_str().unwrap().to_owned();
            assert!(seen.insert(id.clone()), "{id} twice in one snapshot");
            let rev = Rev::parse(row["changes"][0]["rev"].as_str().unwrap()).unwrap();
            let before = newest.insert(id, rev.generation);
            assert!(before.is_none_or(|b| b < rev.generation), "went back");
        }
        changes.refresh().unwrap();
    }
}

fn read_documents(db: &Arc<Database>, round: usize) {
    let mut query = all_docs();
    query.limit = Some(200);
    // Some of the last ones are deleted.
    query.skip = (round * 100 % (docs_max() * 3 / 4)) as u64;
    for id in ids_of(&rows_of(&mut db.rows(query).unwrap(), 10_000)) {
        let id = DocId::new(&id).unwrap();
        let options = ReadOptions {
            revs_info: true,
            ..ReadOptions::default()
        };
        let plain = db.read(&id, &ReadOptions::default()).unwrap();
        assert!(!matches!(plain, Read::Missing));
        assert!(!matches!(db.read(&id, &options).unwrap(), Read::Missing));
        let leaves = db.open_revs(&id, &RevSelection::All, &ReadOptions::default());
        assert!(leaves.unwrap().unwrap().iter().all(Result::is_ok));
    }
}

#[test]
fn listings_are_consistent_while_documents_are_created_updated_and_compacted() {
    for q in [1, 2] {
        race(q, false, &[&page_rows, &page_offsets]);
    }
}

#[test]
fn listings_and_feeds_are_consistent_while_documents_are_deleted_too() {
    race(2, true, &[&page_rows, &page_changes, &read_documents]);
}

#[test]
fn a_feed_that_goes_on_sees_each_document_move_forward_only() {
    race(1, true, &[&follow_changes, &page_changes]);
    race(8, true, &[&follow_changes]);
}

/// Writes after a listing must be in the feed from the listing's `update_seq`.
#[test]
fn a_listing_and_the_feed_from_its_update_seq_miss_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let databases = open(dir.path());
    let created = databases.create("db", with_shards(2));
    let db = runtime().block_on(created).unwrap();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let runtime = runtime();
            for n in 0.. {
                if done.load(Relaxed) {
                    break;
                }
                runtime.block_on(write(&db, vec![doc(&format!(r#"{{"_id":"{n}"}}"#))]));
            }
        });
        let behind = (0..20_000).find_map(|_| {
            let mut query = all_docs();
            query.update_seq = true;
            let rows = db.rows(query).unwrap();
            let seq = rows.update_seq.clone().unwrap();
            // Every document was written once: as many updates as rows.
            let updates: u64 = seq.split('-').next().unwrap().parse().unwrap();
            (updates > rows.total_rows.unwrap()).then_some((updates, rows.total_rows))
        });
        done.store(true, Relaxed);
        assert_eq!(behind, None, "(updates, rows) of a listing");
    });
}
