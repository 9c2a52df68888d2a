//! A dropped database leaves nothing behind.

use std::path::Path;
use std::sync::Arc;

use document::{DocId, RevHash, RevPath};
use storage::{Change, Edit, Keyspace, Limits, Shard, ShardEdit, Store, StoreOptions};

fn open(path: &Path) -> Store {
    let options = StoreOptions {
        block_cache_bytes: 8 << 20,
        ..StoreOptions::default()
    };
    Store::open(path, &options, Box::new(|_| {})).unwrap()
}

fn create(store: &Store, name: &str) -> Arc<Shard> {
    let mut number = 0;
    let created = store.create_database(name, 1, |numbers| {
        number = numbers[0];
        b"{}".to_vec()
    });
    created.blocking_recv().unwrap().unwrap();
    Arc::new(store.shard(number).unwrap())
}

/// Some hundred bytes that do not compress well.
fn body(n: usize) -> Vec<u8> {
    let piece = |k: u128| (n as u128 + k).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    let text: String = (1..9)
        .map(|k| format!("{:032x}", piece(k * k * k)))
        .collect();
    format!(r#"{{"text":"{text}"}}"#).into_bytes()
}

fn write(store: &Store, shard: &Arc<Shard>, documents: usize) {
    let edit = |n| ShardEdit {
        shard: shard.clone(),
        edit: Edit {
            id: DocId::new(&format!("doc-{n:06}")).unwrap(),
            files: vec![],
            home: shard.number,
            access: None,
            deleted: false,
            body: body(n),
            change: Change::Replicated {
                path: RevPath {
                    start: 1,
                    ids: vec![RevHash::parse("a")],
                },
            },
        },
    };
    let edits = (0..documents).map(edit).collect();
    let done = store.committer.edit(edits, Limits::default(), true);
    done.blocking_recv().unwrap().unwrap();
}

/// Returns the keys of a shard in all keyspaces, and in the catalogue.
fn keys(store: &Store, shard: u32) -> Vec<(Keyspace, Vec<u8>)> {
    let snapshot = store.snapshot();
    let mut keys = vec![];
    for k in Keyspace::ALL {
        let mut it = snapshot.iter_all(k);
        it.seek_to_first();
        while let Some(key) = it.key() {
            let number_at = usize::from(k == Keyspace::Meta);
            if key.get(number_at..number_at + 4) == Some(&shard.to_be_bytes()) {
                keys.push((k, key.to_vec()));
            }
            it.next();
        }
    }
    keys
}

/// Returns those outside the catalogue.
fn rows(store: &Store, shard: u32) -> Vec<(Keyspace, Vec<u8>)> {
    let mut rows = keys(store, shard);
    rows.retain(|(k, _)| *k != Keyspace::Meta);
    rows
}

fn file_bytes(store: &Store) -> u64 {
    store.keyspace_bytes().iter().map(|(_, bytes)| bytes).sum()
}

#[test]
fn the_room_of_what_was_dropped_comes_back_also_after_a_crash() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let kept = create(&store, "kept");
    write(&store, &kept, 500);
    let kept_number = kept.number;
    drop(kept);
    let mut numbers = vec![];
    for round in 0..20 {
        let name = format!("dropped-{round}");
        let shard = create(&store, &name);
        // Few rows are deleted one by one, many as a range.
        write(&store, &shard, if round % 2 == 0 { 900 } else { 3000 });
        numbers.push(shard.number);
        // In files, like most data that lives longer than a moment.
        for k in [Keyspace::BySeq, Keyspace::ById, Keyspace::Superseded] {
            store.engine().flush(k).unwrap();
        }
        let dropped = store.drop_database(&name, vec![shard]);
        dropped.blocking_recv().unwrap().unwrap();
        store.note_dropped(&numbers[round..]);
        store.reap().unwrap();
    }
    for &number in &numbers {
        assert_eq!(rows(&store, number), []);
        assert_eq!(keys(&store, number).len(), 1, "it is listed as dropped");
    }
    store.engine().flush(Keyspace::BySeq).unwrap();
    store.engine().flush(Keyspace::ById).unwrap();
    let before = file_bytes(&store);
    // A crash: nothing is closed, and only what is stored is known of the drops.
    drop(store);
    let store = open(dir.path());
    store.reap().unwrap();
    assert_eq!(
        store.reclaim(false).unwrap(),
        0,
        "so little is not worth it beside writes"
    );
    store.reclaim(true).unwrap();
    for number in numbers {
        assert_eq!(keys(&store, number), [], "nothing tells of it any more");
    }
    let after = file_bytes(&store);
    assert!(after * 2 < before, "{before} bytes before, {after} after");
    assert_eq!(store.reclaim(true).unwrap(), 0);
    let kept = store.shard(kept_number).unwrap();
    assert_eq!(kept.view().unwrap().meta.doc_count, 500);
    store.close();
}

#[test]
fn a_dropped_shard_is_let_go_and_leaves_no_row_behind_at_shutdown() {
    let dir = tempfile::tempdir().unwrap();
    let (number, kept) = {
        let store = open(dir.path());
        let kept = create(&store, "kept");
        write(&store, &kept, 1_500);
        let shard = create(&store, "dropped");
        write(&store, &shard, 1_500);
        let number = shard.number;
        let watched = Arc::downgrade(&shard);
        let dropped = store.drop_database("dropped", vec![shard]);
        dropped.blocking_recv().unwrap().unwrap();
        store.committer.sync().blocking_recv().unwrap().unwrap();
        assert!(watched.upgrade().is_none(), "nobody keeps it");
        store.note_dropped(&[number]);
        assert_eq!(store.reap().unwrap(), 1);
        assert_eq!(rows(&store, number), [], "only the catalogue knows it");
        store.close();
        (number, kept.number)
    };
    let store = open(dir.path());
    assert_eq!(rows(&store, number), []);
    let summaries = keys(&store, kept);
    assert!(summaries.iter().any(|(k, _)| *k == Keyspace::Summary));
}

#[test]
fn what_an_index_keeps_beside_the_engine_goes_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let shard = std::sync::Arc::new(store.shard(1).unwrap());
    let signature = [7; 16];
    let (number, created) = store.create_index(shard, &signature);
    created.blocking_recv().unwrap().unwrap();
    let folder = store.folder(number);
    assert!(!folder.exists());
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("meta.json"), "{}").unwrap();
    let dropped = store.drop_index(1, &signature, number);
    dropped.blocking_recv().unwrap().unwrap();
    store.note_dropped(&[number]);
    store.reap().unwrap();
    assert!(!folder.exists());
}
