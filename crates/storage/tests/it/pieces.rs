//! Long requests are written in pieces: their result does not depend on that, and others do not
//! wait for them.

use std::path::Path;
use std::sync::{Arc, mpsc};
use std::thread;

use document::{DocId, RevHash, RevPath};
use storage::{
    Change, Edit, Limits, Outcome, Record, Shard, ShardCommit, ShardEdit, ShardPurge, Store,
    StoreOptions, commit_on_this_thread, may_have_too_many_leaves, too_many_leaves,
};

const UNLIMITED: Limits = Limits {
    revs_limit: 1000,
    purged_infos_limit: 1000,
    leaves_max: Some(u64::MAX),
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

/// Returns a revision of this branch and generation, with a number of its ancestors.
fn edit(shard: &Arc<Shard>, id: &str, branch: u32, generation: u64, ancestors: u64) -> ShardEdit {
    let lowest = generation.saturating_sub(ancestors).max(1);
    let ids = (lowest..=generation).rev();
    let ids = ids.map(|g| RevHash::parse(&format!("{branch:016x}{g:016x}")));
    ShardEdit {
        shard: shard.clone(),
        edit: Edit {
            id: DocId::new(id).unwrap(),
            files: vec![],
            home: 0,
            access: None,
            deleted: branch.is_multiple_of(5) && generation.is_multiple_of(3),
            body: format!(r#"{{"b":{branch}}}"#).into_bytes(),
            change: Change::Replicated {
                path: RevPath {
                    start: generation,
                    ids: ids.collect(),
                },
            },
        },
    }
}

fn submit(store: &Store, edits: Vec<ShardEdit>, limits: Limits) -> Vec<Outcome> {
    let done = store.committer.edit(edits, limits, true);
    done.blocking_recv().unwrap().unwrap().0
}

fn record(shard: &Shard, id: &str) -> Record {
    shard.record(id).unwrap().unwrap()
}

#[test]
fn a_bulk_comes_to_what_its_edits_come_to_one_by_one() {
    let mut random = fastrand::Rng::with_seed(7);
    let draws: Vec<(u32, u32, u64, u64)> = (0..1500)
        .map(|_| {
            (
                random.u32(..2),
                random.u32(..200),
                random.u64(1..8),
                random.u64(..7),
            )
        })
        .collect();
    let limits = Limits {
        revs_limit: 4,
        leaves_max: Some(150),
        ..Limits::default()
    };
    let mut results = vec![];
    for size in [1, 7, 1500] {
        let dir = tempfile::tempdir().unwrap();
        let store = open(dir.path());
        let shard = shard(&store, 1);
        let edits = draws.iter().map(|(id, branch, generation, ancestors)| {
            edit(&shard, &format!("d{id}"), *branch, *generation, *ancestors)
        });
        let edits: Vec<ShardEdit> = edits.collect();
        let done = edits.chunks(size);
        let done: Vec<Outcome> = done
            .flat_map(|some| submit(&store, some.to_vec(), limits))
            .collect();
        assert!(done.contains(&Outcome::TooManyLeaves));
        let records = ["d0", "d1"].map(|id| {
            let record = record(&shard, id);
            (record.seq, record.tree)
        });
        results.push((done, records, shard.meta()));
        store.close();
    }
    assert_eq!(results[1], results[0]);
    assert_eq!(results[2], results[0]);
}

#[test]
fn short_writes_come_between_the_pieces_of_a_long_one() {
    const LONG: u32 = 60_000;
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let (one, other) = (shard(&store, 1), shard(&store, 2));
    let edits = (0..LONG).map(|branch| edit(&one, "wide", branch, 1, 0));
    let mut long = store.committer.edit(edits.collect(), UNLIMITED, true);
    let mut between = 0;
    while long.try_recv().is_err() {
        let id = format!("d{between}");
        let done = submit(&store, vec![edit(&other, &id, 1, 1, 0)], UNLIMITED);
        assert!(matches!(done[..], [Outcome::Written(_)]));
        between += 1;
    }
    assert!(between >= 4, "{between}");
    assert_eq!(record(&one, "wide").tree.leaves().len(), LONG as usize);
    assert_eq!(one.meta().update_seq, u64::from(LONG));
    assert_eq!(other.meta().doc_count, between);
    store.close();
}

/// Each of them is short, but rewrites the long record of its document.
#[test]
fn short_writes_come_between_edits_of_long_records() {
    const EDITS: u32 = 60;
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let (one, other) = (shard(&store, 1), shard(&store, 2));
    let branches = (0..40).map(|branch| edit(&one, "deep", branch, 1000, 999));
    submit(&store, branches.collect(), UNLIMITED);
    let queue = |edit| store.committer.edit(vec![edit], UNLIMITED, true);
    let long = (100..100 + EDITS).map(|branch| queue(edit(&one, "deep", branch, 1, 0)));
    let long: Vec<_> = long.collect();
    let short = queue(edit(&other, "d", 1, 1, 0)).blocking_recv();
    assert!(matches!(
        short.unwrap().unwrap().0[..],
        [Outcome::Written(_)]
    ));
    let mut waiting = vec![];
    for mut done in long {
        if done.try_recv().is_err() {
            waiting.push(done);
        }
    }
    let before = EDITS as usize - waiting.len();
    assert!(before < EDITS as usize / 2, "{before} were written first");
    for done in waiting {
        done.blocking_recv().unwrap().unwrap();
    }
    let leaves = record(&one, "deep").tree.leaves().len();
    assert_eq!(leaves, 40 + EDITS as usize);
    store.close();
}

/// A thread that serves must not apply them, even where nothing else is being written.
#[test]
fn edits_of_long_records_are_left_to_the_writer_thread() {
    const ROUNDS: u32 = 20;
    let dir = tempfile::tempdir().unwrap();
    let (note, commits) = mpsc::channel();
    let on_commit = move |commit: &ShardCommit<'_>| {
        let is_writer = thread::current().name() == Some("commit");
        note.send((commit.shard.number, is_writer)).unwrap();
    };
    let options = StoreOptions::default();
    let store = Store::open(dir.path(), &options, Box::new(on_commit)).unwrap();
    let (one, other) = (shard(&store, 1), shard(&store, 2));
    let branches = (0..40).map(|branch| edit(&one, "deep", branch, 1000, 999));
    submit(&store, branches.collect(), UNLIMITED);
    // Its edits are found to be long when one of them is applied.
    submit(&store, vec![edit(&one, "deep", 99, 1, 0)], UNLIMITED);
    submit(&store, vec![edit(&other, "d", 0, 1, 0)], UNLIMITED);
    assert_eq!(commits.try_iter().map(|(number, _)| number).max(), Some(2));
    thread::scope(|scope| {
        scope.spawn(|| {
            commit_on_this_thread();
            for branch in 1..=ROUNDS {
                // It may be this thread's own, and the next one would be if it were short.
                submit(&store, vec![edit(&other, "d", branch, 1, 0)], UNLIMITED);
                submit(
                    &store,
                    vec![edit(&one, "deep", 100 + branch, 1, 0)],
                    UNLIMITED,
                );
            }
        });
    });
    let of_long: Vec<bool> = commits
        .try_iter()
        .filter_map(|(number, is_writer)| (number == 1).then_some(is_writer))
        .collect();
    assert_eq!(of_long, vec![true; ROUNDS as usize]);
    store.close();
}

#[test]
fn what_is_queued_is_written_before_the_store_closes() {
    let dir = tempfile::tempdir().unwrap();
    {
        let store = open(dir.path());
        let shards: Vec<_> = (1..4).map(|number| shard(&store, number)).collect();
        let all: Vec<_> = shards
            .iter()
            .cycle()
            .take(9)
            .enumerate()
            .map(|(n, shard)| {
                let edits = (0..4000).map(|branch| edit(shard, &format!("d{n}"), branch, 1, 0));
                store.committer.edit(edits.collect(), UNLIMITED, true)
            })
            .collect();
        store.close();
        for done in all {
            let (outcomes, _) = done.blocking_recv().unwrap().unwrap();
            assert_eq!(outcomes.len(), 4000);
        }
    }
    let store = open(dir.path());
    for n in 0..9 {
        let shard = shard(&store, 1 + n % 3);
        let record = record(&shard, &format!("d{n}"));
        assert_eq!(record.tree.leaves().len(), 4000);
    }
    store.close();
}

#[test]
fn a_leaf_too_many_is_refused_and_found_before_it_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let shard = shard(&store, 1);
    let limits = Limits {
        leaves_max: Some(10),
        ..Limits::default()
    };
    let new = |branches: std::ops::Range<u32>| -> Vec<ShardEdit> {
        branches
            .map(|branch| edit(&shard, "wide", branch, 1, 0))
            .collect()
    };
    let refused = |edits: &[ShardEdit]| {
        let refused = too_many_leaves(edits, &limits, || true).unwrap();
        let count = refused.into_iter().filter(|refused| *refused).count();
        assert!(count == 0 || may_have_too_many_leaves(edits, &limits).unwrap());
        // No record is read for a caller that waits no more.
        let unread = too_many_leaves(edits, &limits, || false).unwrap();
        assert_eq!(unread, vec![false; edits.len()]);
        count
    };
    let few = vec![edit(&shard, "other", 0, 1, 0)];
    assert!(!may_have_too_many_leaves(&few, &limits).unwrap());
    assert_eq!(refused(&new(0..10)), 0);
    assert_eq!(refused(&new(0..15)), 5);
    let done = submit(&store, new(0..15), limits);
    assert_eq!(done[10..], vec![Outcome::TooManyLeaves; 5]);
    assert_eq!(record(&shard, "wide").tree.leaves().len(), 10);
    assert_eq!(shard.meta().update_seq, 10);
    // Known ones, and one that replaces a leaf.
    assert_eq!(refused(&new(0..15)), 5);
    let next = vec![edit(&shard, "wide", 3, 2, 1)];
    assert_eq!(refused(&next), 0);
    assert!(matches!(
        submit(&store, next, limits)[..],
        [Outcome::Written(_)]
    ));
    let purge = ShardPurge {
        shard: shard.clone(),
        id: DocId::new("wide").unwrap(),
        revs: vec![record(&shard, "wide").tree.leaves()[4].rev.to_rev()],
        uuid: [1; 16],
    };
    let purged = store.committer.purge(vec![purge], limits);
    assert_eq!(purged.blocking_recv().unwrap().unwrap()[0].len(), 1);
    assert_eq!(refused(&new(10..12)), 1);
    store.close();
}

#[test]
fn many_purges_are_written_in_pieces() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let shard = shard(&store, 1);
    let edits = (0..3000).map(|n| edit(&shard, &format!("d{n}"), 1, 1, 0));
    submit(&store, edits.collect(), UNLIMITED);
    let purge = |n: u32| ShardPurge {
        shard: shard.clone(),
        id: DocId::new(&format!("d{n}")).unwrap(),
        revs: vec![
            record(&shard, &format!("d{n}")).tree.leaves()[0]
                .rev
                .to_rev(),
        ],
        uuid: [1; 16],
    };
    let purges: Vec<ShardPurge> = (0..3000).map(purge).collect();
    let done = store.committer.purge(purges, UNLIMITED);
    let removed = done.blocking_recv().unwrap().unwrap();
    assert_eq!(removed.len(), 3000);
    assert!(removed.iter().all(|revs| revs.len() == 1));
    assert_eq!(shard.meta().doc_count, 0);
    assert_eq!(shard.meta().purge_seq, 3000);
    store.close();
}
