//! Group commit under many writers, and the summary that compaction saves while they write.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;

use document::{DocId, Rev, RevHash, RevPath, body_term, revision_id};
use storage::{
    Body, Change, ChangeIter, Edit, IdIter, Limits, Outcome, RecordHead, Row, Shard, ShardEdit,
    Store, StoreOptions,
};

fn open(path: &Path) -> Store {
    let options = StoreOptions {
        block_cache_bytes: 8 << 20,
        ..StoreOptions::default()
    };
    Store::open(path, &options, Box::new(|_| {})).unwrap()
}

fn shard(store: &Store, number: u32) -> Arc<Shard> {
    Arc::new(store.shard(number).unwrap())
}

fn interactive(shard: &Arc<Shard>, id: &str, parent: Option<Rev>, body: String) -> ShardEdit {
    let term = body_term(body.as_bytes()).unwrap();
    ShardEdit {
        shard: shard.clone(),
        edit: Edit {
            id: DocId::new(id).unwrap(),
            files: vec![],
            home: 0,
            access: None,
            deleted: false,
            change: Change::Interactive {
                rev: revision_id(false, parent.as_ref(), &term, &[]),
                parent,
                body_term: None,
            },
            body: body.into_bytes(),
        },
    }
}

fn replicated(shard: &Arc<Shard>, id: &str, start: u64, deleted: bool) -> ShardEdit {
    let ids = (1..=start).rev().map(|g| RevHash::parse(&format!("g{g}")));
    ShardEdit {
        shard: shard.clone(),
        edit: Edit {
            id: DocId::new(id).unwrap(),
            files: vec![],
            home: 0,
            access: None,
            deleted,
            body: b"{}".to_vec(),
            change: Change::Replicated {
                path: RevPath {
                    start,
                    ids: ids.collect(),
                },
            },
        },
    }
}

fn submit(store: &Store, edits: Vec<ShardEdit>, synced: bool) -> Vec<Outcome> {
    let done = store.committer.edit(edits, Limits::default(), synced);
    done.blocking_recv().unwrap().unwrap().0
}

/// Counters, by-id, by-seq and the summary agree.
fn check_shard(shard: &Shard) {
    let (view, summary) = shard.view_with(Clone::clone).unwrap();
    let (mut live, mut dead) = (0, 0);
    let mut lives = HashMap::new();
    let mut listed_by_id = HashSet::new();
    let mut it = IdIter::new(&view.snapshot, shard.number);
    it.seek(&[]);
    while let Some((id, value)) = it.entry() {
        let head = RecordHead::decode(value).unwrap();
        *if head.deleted { &mut dead } else { &mut live } += 1;
        let block = summary.ids.index_of(id);
        let counted: &mut (u32, u32) = lives.entry(block).or_default();
        counted.0 += u32::from(!head.deleted);
        counted.1 += 1;
        listed_by_id.insert(head.seq);
        it.next();
    }
    assert_eq!((view.meta.doc_count, view.meta.doc_del_count), (live, dead));
    assert_eq!(
        summary.ids.live_total(),
        live,
        "live documents of the summary"
    );
    assert_eq!(
        summary.seqs.total(),
        live + dead,
        "listed seqs of the summary"
    );
    for i in 0..summary.ids.fences().len() {
        let block = summary.ids.block(i);
        let counted = lives.get(&i).copied().unwrap_or_default();
        assert_eq!((block.live, block.rows), counted, "block {i}");
    }
    let mut feed = ChangeIter::new(&view.snapshot, shard.number, 0, false);
    let mut listed = HashSet::new();
    while let Some((seq, value)) = feed.entry() {
        assert!(!Row::decode(seq, value).unwrap().id.is_empty());
        listed.insert(seq);
        feed.next();
    }
    assert_eq!(listed, listed_by_id);
}

#[test]
fn of_many_writers_of_one_id_exactly_one_wins_and_every_acknowledged_write_stays() {
    let dir = tempfile::tempdir().unwrap();
    let mut acknowledged: Vec<(u32, String, Rev)> = vec![];
    let (writers, rounds) = (16, 40);
    {
        let store = open(dir.path());
        let shards = [shard(&store, 1), shard(&store, 2)];
        let results: Vec<Vec<_>> = thread::scope(|scope| {
            let threads: Vec<_> = (0..writers)
                .map(|w| {
                    let (store, shards) = (&store, &shards);
                    scope.spawn(move || write_contended(store, shards, w, rounds))
                })
                .collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        let mut winners: HashMap<String, u32> = HashMap::new();
        for (number, id, outcome) in results.into_iter().flatten() {
            if let Outcome::Written(rev) = outcome {
                if id.starts_with("contended") {
                    *winners.entry(format!("{id} {rev:?}")).or_default() += 1;
                }
                acknowledged.push((number, id, rev));
            }
        }
        assert_eq!(winners.len(), rounds, "one winner of each contended id");
        assert!(winners.values().all(|&n| n == 1));
        let counters = store.committer.counters();
        assert!(counters.batches.load(Relaxed) < counters.requests.load(Relaxed));
        shards.iter().for_each(|s| check_shard(s));
        store.close();
    }
    let store = open(dir.path());
    let shards = [shard(&store, 1), shard(&store, 2)];
    shards.iter().for_each(|s| check_shard(s));
    for (number, id, rev) in acknowledged {
        let record = shards[number as usize - 1].record(&id).unwrap().unwrap();
        let revision = record.tree.get(&rev).unwrap().revision.unwrap();
        let body = shards[number as usize - 1].body(revision.seq).unwrap();
        let body = String::from_utf8(body.unwrap()).unwrap();
        assert_eq!(revision.size as usize, body.len());
    }
}

/// In each round: one document of the writer's own, and one that all writers contend for, in one
/// request.
fn write_contended(
    store: &Store,
    shards: &[Arc<Shard>; 2],
    writer: usize,
    rounds: usize,
) -> Vec<(u32, String, Outcome)> {
    let mut all = vec![];
    for round in 0..rounds {
        let (mine, wanted) = (&shards[writer % 2], &shards[round % 2]);
        let own = format!("own-{writer}-{round}");
        let contended = format!("contended-{round}");
        let body = format!(r#"{{"writer":{writer}}}"#);
        let edits = vec![
            interactive(mine, &own, None, body.clone()),
            interactive(wanted, &contended, None, body),
        ];
        let outcomes = submit(store, edits, true);
        assert!(matches!(outcomes[0], Outcome::Written(_)));
        let numbers = [mine.number, wanted.number];
        let ids = [own, contended];
        for ((number, id), outcome) in numbers.into_iter().zip(ids).zip(outcomes) {
            all.push((number, id, outcome));
        }
    }
    all
}

/// Opens a store whose commit thread blocks in its first commit until it is released.
fn open_gated(path: &Path) -> (Store, std::sync::mpsc::Sender<()>) {
    let (open_gate, gate) = std::sync::mpsc::channel();
    let gate = std::sync::Mutex::new(Some(gate));
    let wait = move |_: &storage::ShardCommit<'_>| {
        if let Some(gate) = gate.lock().unwrap().take() {
            gate.recv().unwrap();
        }
    };
    let options = StoreOptions::default();
    let store = Store::open(path, &options, Box::new(wait)).unwrap();
    (store, open_gate)
}

#[test]
fn a_record_that_cannot_be_read_fails_its_own_requests_only() {
    let dir = tempfile::tempdir().unwrap();
    let (store, open_gate) = open_gated(dir.path());
    let s = shard(&store, 1);
    let engine = store.engine();
    let mut batch = engine.writes();
    let key = [&[0, 0, 0, 1], &b"bad"[..]].concat();
    batch.put(storage::Keyspace::ById, key, [1]);
    batch.commit(true).unwrap();
    let purge = |ids: &[&str]| {
        let purge = |id: &&str| storage::ShardPurge {
            shard: s.clone(),
            id: DocId::new(id).unwrap(),
            revs: vec![Rev {
                generation: 1,
                hash: RevHash::parse("g1"),
            }],
            uuid: [0; 16],
        };
        let purges = ids.iter().map(purge).collect();
        store.committer.purge(purges, Limits::default())
    };
    let edit = |id| {
        let edits = vec![replicated(&s, id, 1, false)];
        store.committer.edit(edits, Limits::default(), true)
    };
    let first = edit("first");
    // These are queued together while that one is being committed.
    let good = edit("good");
    let bad_purge = purge(&["first", "bad"]);
    let bad_edit = edit("bad");
    let good_purge = purge(&["first"]);
    open_gate.send(()).unwrap();
    assert!(first.blocking_recv().unwrap().is_ok());
    assert!(good.blocking_recv().unwrap().is_ok());
    assert!(bad_purge.blocking_recv().unwrap().is_err());
    assert!(bad_edit.blocking_recv().unwrap().is_err());
    let purged = good_purge.blocking_recv().unwrap().unwrap();
    assert_eq!(purged[0].len(), 1, "the refused purge did not do it");
    assert!(s.record("good").unwrap().is_some());
    assert!(s.record("first").unwrap().is_none());
}

#[test]
fn racing_updates_of_one_document_lose_no_generation() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let s = shard(&store, 1);
    let written: usize = thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|writer| {
                let (store, s) = (&store, &s);
                scope.spawn(move || {
                    let tried = (0..50).map(|n| {
                        let record = s.record("counter").unwrap();
                        let parent = record.and_then(|r| Some(r.tree.winner()?.rev.to_rev()));
                        let body = format!(r#"{{"w":{writer},"n":{n}}}"#);
                        submit(store, vec![interactive(s, "counter", parent, body)], false)
                    });
                    tried
                        .filter(|o| matches!(o[0], Outcome::Written(_)))
                        .count()
                })
            })
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).sum()
    });
    let record = s.record("counter").unwrap().unwrap();
    let winner = record.tree.winner().unwrap();
    assert_eq!(winner.rev.generation as usize, written);
    assert_eq!(record.tree.leaves().len(), 1);
    check_shard(&s);
}

#[test]
fn edits_of_one_document_in_one_request_follow_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let s = shard(&store, 1);
    let first = interactive(&s, "a", None, r#"{"n":1}"#.into());
    let Change::Interactive { rev, .. } = &first.edit.change else {
        unreachable!()
    };
    let second = interactive(&s, "a", Some(rev.clone()), r#"{"n":2}"#.into());
    let again = interactive(&s, "a", None, r#"{"n":3}"#.into());
    let outcomes = submit(&store, vec![first, second, again], true);
    assert!(matches!(&outcomes[1], Outcome::Written(rev) if rev.generation == 2));
    assert_eq!(outcomes[2], Outcome::Conflict);
    assert_eq!(s.meta().update_seq, 2);
    check_shard(&s);
}

#[test]
fn long_and_short_bodies_come_back_from_the_row_that_brought_them() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let s = shard(&store, 1);
    let limit = storage::INLINE_BODY_MAX_BYTES;
    for size in [2, 100, limit - 1, limit, limit + 1, 3 * limit, 1 << 20] {
        let pad = "x".repeat(size.saturating_sub(8));
        let body = if size == 2 {
            "{}".into()
        } else {
            format!(r#"{{"p":"{pad}"}}"#)
        };
        let id = format!("size-{size}");
        submit(&store, vec![interactive(&s, &id, None, body.clone())], true);
        let seq = s.record(&id).unwrap().unwrap().seq;
        assert_eq!(s.body(seq).unwrap().unwrap(), body.as_bytes());
        let view = s.view().unwrap();
        let feed = ChangeIter::new(&view.snapshot, s.number, seq - 1, false);
        let (_, value) = feed.entry().unwrap();
        let row = Row::decode(seq, value).unwrap();
        match row.body {
            Body::Inline(b) => assert_eq!(b, body.as_bytes()),
            Body::External { len, .. } => assert_eq!(len as usize, body.len()),
            Body::None => panic!("a row without its body"),
        }
        assert_eq!(matches!(row.body, Body::Inline(_)), body.len() <= limit);
        assert_eq!(
            (row.id, row.winner_seq, row.delta.live),
            (id.as_str(), seq, 1)
        );
    }
}

/// Records are read ahead only up to a number of bytes. Later edits still find their records, also
/// those of local documents in between, which have none.
#[test]
fn edits_of_documents_with_long_records_are_all_made() {
    const DOCUMENTS: usize = 24;
    const LEAVES: usize = 12;
    const GENERATIONS: u64 = 800;
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let s = shard(&store, 1);
    let branch = |id: &str, leaf: usize, generations: u64| {
        let mut edit = replicated(&s, id, generations, false);
        let ids = (0..generations).map(|g| RevHash::parse(&format!("{leaf}of{g}")));
        edit.edit.change = Change::Replicated {
            path: RevPath {
                start: generations,
                ids: ids.collect(),
            },
        };
        edit
    };
    let ids: Vec<String> = (0..DOCUMENTS).map(|n| format!("long{n}")).collect();
    for id in &ids {
        let leaves = (0..LEAVES).map(|leaf| branch(id, leaf, GENERATIONS));
        submit(&store, leaves.collect(), false);
    }
    let mut edits = vec![];
    for (n, id) in ids.iter().enumerate() {
        edits.push(branch(id, LEAVES, 1));
        let mut local = replicated(&s, &format!("_local/{n}"), 1, false);
        local.edit.change = Change::Local { rev: Some(1) };
        edits.push(local);
        // The second edit of a document needs no further read.
        edits.push(branch(id, LEAVES + 1, 2));
    }
    let outcomes = submit(&store, edits, true);
    assert_eq!(outcomes.len(), 3 * DOCUMENTS);
    let is_written = |outcome: &Outcome| matches!(outcome, Outcome::Written(_));
    assert!(outcomes.iter().all(is_written), "{outcomes:?}");
    for id in &ids {
        let tree = s.record(id).unwrap().unwrap().tree;
        assert_eq!(
            tree.nodes().filter(|node| node.is_leaf).count(),
            LEAVES + 2,
            "{id}"
        );
    }
    check_shard(&s);
}

/// A crash right after a compaction leaves the summary's saved form and the rest of by-seq:
/// together they must be exact, also when documents were created and updated while the compaction
/// started.
#[test]
fn a_summary_is_exact_after_a_crash_during_compaction_and_writes() {
    // Batches written during each compaction: more would only make the store large.
    const ROUNDS: usize = 12;
    const BATCHES: usize = 40;
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir.path().join("live"));
    let s = shard(&store, 1);
    let (begin, begun) = std::sync::mpsc::channel();
    thread::scope(|scope| {
        let (store, s) = (&store, &s);
        scope.spawn(move || {
            for round in begun {
                for batch in 0..BATCHES {
                    write_three_generations(store, s, &format!("{round}-{batch}"));
                }
            }
        });
        let mut copies = vec![];
        for round in 0..ROUNDS {
            begin.send(round).unwrap();
            let contents = store.contents(s.clone());
            storage::compact(&store.committer, s, &contents, &|_, _| true).unwrap();
            let copy = dir.path().join(format!("copy{round}"));
            store.copy(&copy).unwrap();
            copies.push(copy);
        }
        drop(begin);
        for copy in copies {
            let store = open(&copy);
            check_shard(&shard(&store, 1));
        }
    });
    check_shard(&s);
}

/// Creates 20 documents, updates all of them, and deletes some.
fn write_three_generations(store: &Store, s: &Arc<Shard>, name: &str) {
    let ids: Vec<String> = (0..20).map(|i| format!("{name}-{i}")).collect();
    let mut edits = vec![];
    for generation in 1..=3 {
        let dies = |i: usize| generation == 3 && i.is_multiple_of(3);
        edits.extend(
            ids.iter()
                .enumerate()
                .map(|(i, id)| replicated(s, id, generation, dies(i))),
        );
    }
    submit(store, edits, true);
}

/// The effect of an edit must not depend on what is committed with it.
#[test]
fn a_known_revision_with_more_ancestry_leaves_the_same_tree_alone_and_in_company() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let s = shard(&store, 1);
    let path = |id: &str, start: u64, hashes: &[&str]| {
        let mut edit = replicated(&s, id, start, false);
        edit.edit.change = Change::Replicated {
            path: RevPath {
                start,
                ids: hashes.iter().map(|h| RevHash::parse(h)).collect(),
            },
        };
        edit
    };
    let requests = |id: &str| {
        [
            path(id, 3, &["c"]),
            path(id, 3, &["c", "b", "a"]),
            path(id, 1, &["other"]),
        ]
    };
    for edit in requests("alone") {
        submit(&store, vec![edit], true);
    }
    submit(&store, requests("in company").into(), true);
    let tree = |id: &str| {
        let tree = s.record(id).unwrap().unwrap().tree;
        let nodes = tree.nodes().map(|n| (n.rev.to_rev(), n.is_leaf));
        nodes.collect::<Vec<_>>()
    };
    assert_eq!(tree("alone"), tree("in company"));
}

#[test]
fn of_many_leaves_that_come_at_once_only_the_last_row_of_a_batch_tells() {
    const LEAVES: u64 = 400;
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let shard = shard(&store, 1);
    let leaf = |n: u64| {
        let mut edit = replicated(&shard, "a", 2, false);
        edit.edit.change = Change::Replicated {
            path: RevPath {
                start: 2,
                ids: vec![
                    RevHash::parse(&format!("{n:032x}")),
                    RevHash::parse("00000000000000000000000000000001"),
                ],
            },
        };
        edit.edit.body = format!(r#"{{"n":{n}}}"#).into_bytes();
        edit
    };
    // The last edits of a batch are known already: the row before them is the last one.
    let edits = (0..LEAVES).chain(5..10).map(leaf).collect();
    let done = store.committer.edit(edits, Limits::default(), true);
    done.blocking_recv().unwrap().unwrap();
    let view = shard.view().unwrap();
    let mut rows = view.snapshot.iter(storage::Keyspace::BySeq, 1);
    rows.seek_to_first();
    let (mut seen, mut whole) = (0, 0);
    while let (Some(key), Some(value)) = (rows.key(), rows.value()) {
        seen += 1;
        let seq = u64::from_be_bytes(key[4..12].try_into().unwrap());
        assert_eq!(seq, seen);
        let row = Row::decode(seq, value).unwrap();
        let others = row.other_leaves().unwrap().len() as u64;
        // A slow machine needs several batches.
        let is_last = seq == LEAVES || others > 0;
        assert_eq!(others, if is_last { seq - 1 } else { 0 });
        assert!(is_last || value.len() < 100, "{} bytes", value.len());
        whole += u64::from(is_last);
        let body = format!(r#"{{"n":{}}}"#, seq - 1);
        assert!(matches!(row.body, Body::Inline(b) if b == body.as_bytes()));
        rows.next();
    }
    assert_eq!(seen, LEAVES);
    let batches = store.committer.counters().batches.load(Relaxed);
    assert!(whole <= batches, "{whole} rows of {batches} batches");
    let record = shard.record("a").unwrap().unwrap();
    assert_eq!(record.tree.leaves().len() as u64, LEAVES);
}
