use std::path::Path;

use document::{RevHash, RevPath};

use super::*;
use crate::edit::Change;
use crate::{Store, StoreOptions};

const LIMITS: Limits = Limits {
    revs_limit: 1000,
    purged_infos_limit: 1,
    leaves_max: Some(u64::MAX),
};

fn open(path: &Path) -> Store {
    let options = StoreOptions {
        block_cache_bytes: 8 << 20,
        ..StoreOptions::default()
    };
    Store::open(path, &options, Box::new(|_| {})).unwrap()
}

fn shards(store: &Store) -> [Arc<Shard>; 2] {
    [1, 2].map(|number| Arc::new(store.shard(number).unwrap()))
}

fn rev() -> RevHash {
    RevHash::parse(&"a".repeat(32))
}

fn edit(id: &DocId) -> Edit {
    Edit {
        id: id.clone(),
        files: vec![],
        home: 0,
        access: None,
        deleted: false,
        body: b"{}".to_vec(),
        change: Change::Replicated {
            path: RevPath {
                start: 1,
                ids: vec![rev()],
            },
        },
    }
}

fn write(store: &Store, shard: &Arc<Shard>, id: &DocId) {
    let edit = crate::ShardEdit {
        shard: shard.clone(),
        edit: edit(id),
    };
    let done = store.committer.edit(vec![edit], LIMITS, true);
    done.blocking_recv().unwrap().unwrap();
}

#[test]
fn a_shard_that_cannot_be_read_fails_its_own_documents_alone() {
    let dir = tempfile::tempdir().unwrap();
    let [old, new] = ["old", "new"].map(|id| DocId::new(id).unwrap());
    let store = open(dir.path());
    for shard in shards(&store) {
        write(&store, &shard, &old);
    }
    drop(store);
    let store = open(dir.path());
    let [bad, good] = shards(&store);
    let mut writes = store.engine().writes();
    writes.put(Keyspace::BySeq, keys::seq_key(bad.number, 1), [0xff]);
    writes.commit(false).unwrap();

    let mut batch = Batch::new(store.engine().clone(), KeptTrees::default());
    let docs = [(&bad, &old), (&good, &old), (&bad, &new), (&good, &new)];
    let (read, _) = batch.fetch(&docs, usize::MAX, |_| false).unwrap();
    assert_eq!(read, 4);
    for id in [&old, &new] {
        assert!(batch.unreadable(&bad, id).is_some());
        assert!(batch.unreadable(&good, id).is_none());
    }
    let of_good = edit(&new);
    let outcome = batch.edit(&good, &of_good, &LIMITS).unwrap();
    assert!(matches!(outcome, Outcome::Written(_)));
}

#[test]
fn rows_of_principals_count_for_the_length_of_a_batch() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let [shard, _] = shards(&store);
    shard.keep_access();
    let id = DocId::new("a").unwrap();
    let names: Vec<String> = (0..200).map(|n| format!("\"u{n}\"")).collect();
    let body = format!(r#"{{"_access":[{}]}}"#, names.join(","));
    let set = AccessSet::of_body(body.as_bytes()).unwrap();
    let access = crate::EditAccess { set, writer: None };
    let by_many = Edit {
        access: Some(Box::new(access)),
        ..edit(&id)
    };
    let mut batch = Batch::new(store.engine().clone(), KeptTrees::default());
    batch
        .fetch(&[(&shard, &id)], usize::MAX, |_| false)
        .unwrap();
    let outcome = batch.edit(&shard, &by_many, &LIMITS).unwrap();
    assert!(matches!(outcome, Outcome::Written(_)));
    let written = batch.wb.size_in_bytes();
    assert!(batch.wb.len() >= 400, "two rows of each principal");
    assert!(batch.bytes() >= written, "{} of {written}", batch.bytes());
}

#[test]
fn a_purge_forgets_a_bounded_number_of_older_ones() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let [shard, _] = shards(&store);
    let id = DocId::new("a").unwrap();
    write(&store, &shard, &id);
    // As of a limit that was larger.
    let many = 10 * PURGES_A_STEP;
    shard.state.lock().meta.purge_seq = many;
    let mut batch = Batch::new(store.engine().clone(), KeptTrees::default());
    batch
        .fetch(&[(&shard, &id)], usize::MAX, |_| false)
        .unwrap();
    let purge = ShardPurge {
        shard: shard.clone(),
        id,
        revs: vec![Rev {
            generation: 1,
            hash: rev(),
        }],
        uuid: [0; 16],
    };
    let removed = batch.purge(&purge, &LIMITS).unwrap();
    assert_eq!(removed.len(), 1);
    batch.finish().unwrap();
    let touched: Vec<ShardChange> = batch.into_touched().collect();
    let meta = &touched[0].meta;
    assert_eq!(
        (meta.purge_seq, meta.purge_floor),
        (many + 1, PURGES_A_STEP)
    );
}
