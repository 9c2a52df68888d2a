//! When changes were made: in bins that are written with them.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use storage::{
    Install, Keyspace, Limits, Shard, ShardEdit, Store, StoreOptions, TimePlace, TimeSeq,
};

use crate::slots::copy::{frames, install, taken};
use crate::slots::world::{World, local, new_doc, options, request, write as slot_write};

/// 2026-01-01T00:00:00Z
const START: u64 = 1_767_225_600;
const HOUR: u64 = 3600;

/// A clock that only its test moves.
macro_rules! clock {
    ($name:ident) => {
        static NOW: AtomicU64 = AtomicU64::new(START);
        fn $name() -> u64 {
            NOW.load(Relaxed)
        }
    };
}

fn open(path: &Path, now_unix_s: fn() -> u64) -> (Arc<Store>, Arc<Shard>) {
    let options = StoreOptions {
        now_unix_s,
        ..options()
    };
    let store = Store::open(path, &options, Box::new(|_| {})).unwrap();
    if store.databases().unwrap().is_empty() {
        let made = store.create_database("db", 1, |_| b"{}".to_vec());
        made.blocking_recv().unwrap().unwrap();
    }
    let shard = Arc::new(store.shard(1).unwrap());
    (Arc::new(store), shard)
}

fn commit(store: &Store, edits: Vec<ShardEdit>) {
    let done = store.committer.edit(edits, Limits::default(), true);
    done.blocking_recv().unwrap().unwrap();
}

fn write(store: &Store, shard: &Arc<Shard>, ids: std::ops::Range<usize>) {
    commit(
        store,
        ids.map(|n| new_doc(shard, &format!("d{n}"))).collect(),
    );
}

fn histogram(shard: &Shard) -> Vec<(u64, u64)> {
    shard.time_seq().unwrap().histogram(shard.meta().update_seq)
}

fn reset(store: &Store, shard: &Arc<Shard>) {
    let done = store.committer.reset_time_seq(shard.clone());
    done.blocking_recv().unwrap().unwrap();
}

/// The stored bins of a shard.
fn stored(store: &Store, shard: u32) -> Option<Vec<u8>> {
    let key = [&b"t"[..], &shard.to_be_bytes()].concat();
    let snapshot = store.snapshot();
    let stored = snapshot.get(Keyspace::Meta, &key).unwrap();
    stored.map(|value| value.to_vec())
}

#[test]
fn bins_are_written_with_the_first_change_of_a_period_and_survive_restarts() {
    clock!(now);
    let dir = tempfile::tempdir().unwrap();
    let (store, shard) = open(dir.path(), now);
    commit(&store, vec![local(&shard, "l", Some(1), "{}")]);
    assert_eq!(stored(&store, 1), None, "local documents have no seq");
    write(&store, &shard, 0..2);
    let first = stored(&store, 1);
    NOW.store(START + 2 * HOUR, Relaxed);
    write(&store, &shard, 2..3);
    assert_eq!(stored(&store, 1), first, "the bin is written once");
    NOW.store(START + 3 * HOUR, Relaxed);
    write(&store, &shard, 3..7);
    let expected = [(START, 3), (START + 3 * HOUR, 4)];
    assert_eq!(histogram(&shard), expected);
    drop(shard);
    store.close();
    drop(store);
    let (store, shard) = open(dir.path(), now);
    assert_eq!(histogram(&shard), expected);
    write(&store, &shard, 7..8);
    assert_eq!(histogram(&shard), [(START, 3), (START + 3 * HOUR, 5)]);
    let since = |time| shard.time_seq().unwrap().since(time);
    assert_eq!(since(START + HOUR), TimePlace::After(0));
    assert_eq!(since(START + 4 * HOUR), TimePlace::After(3));
    assert_eq!(since(START + 7 * HOUR), TimePlace::Now);
}

#[test]
fn bins_that_are_reset_begin_again_with_the_next_change() {
    clock!(now);
    let dir = tempfile::tempdir().unwrap();
    let (store, shard) = open(dir.path(), now);
    reset(&store, &shard);
    write(&store, &shard, 0..3);
    reset(&store, &shard);
    assert_eq!(stored(&store, 1), None);
    assert_eq!(
        shard.time_seq().unwrap().since(u64::MAX),
        TimePlace::After(0)
    );
    // In the same period: what is known in memory of the bins was forgotten, too.
    write(&store, &shard, 3..4);
    assert_eq!(histogram(&shard), [(0, 3), (START, 1)]);
}

#[test]
fn changes_before_the_least_time_are_not_recorded() {
    clock!(now);
    let dir = tempfile::tempdir().unwrap();
    let (store, shard) = open(dir.path(), now);
    store.set_time_seq_min(START + 1);
    write(&store, &shard, 0..2);
    assert_eq!(histogram(&shard), []);
    store.set_time_seq_min(START);
    write(&store, &shard, 2..3);
    // They may be as young as the first change that is recorded.
    assert_eq!(histogram(&shard), [(START, 3)]);
    // By default not in 1970.
    NOW.store(HOUR, Relaxed);
    reset(&store, &shard);
    write(&store, &shard, 3..4);
    assert_eq!(histogram(&shard), []);
}

#[test]
fn damaged_bins_are_rebuilt_by_the_next_change() {
    clock!(now);
    let dir = tempfile::tempdir().unwrap();
    let (store, shard) = open(dir.path(), now);
    write(&store, &shard, 0..2);
    let key = [&b"t"[..], &1u32.to_be_bytes()].concat();
    let damage = store
        .committer
        .put(vec![(Keyspace::Meta, key, Some(b"damage".to_vec()))]);
    damage.blocking_recv().unwrap().unwrap();
    assert_eq!(shard.time_seq().unwrap(), TimeSeq::default());
    NOW.store(START + 3 * HOUR, Relaxed);
    write(&store, &shard, 2..3);
    assert_eq!(histogram(&shard), [(0, 2), (START + 3 * HOUR, 1)]);
}

#[test]
fn bins_go_with_their_shard() {
    clock!(now);
    let dir = tempfile::tempdir().unwrap();
    let (store, shard) = open(dir.path(), now);
    write(&store, &shard, 0..1);
    assert!(stored(&store, 1).is_some());
    let dropped = store.drop_database("db", vec![shard]);
    dropped.blocking_recv().unwrap().unwrap();
    assert_eq!(stored(&store, 1), None);
}

#[test]
fn a_copy_of_a_slot_brings_the_bins_of_its_shards() {
    let dir = tempfile::tempdir().unwrap();
    let source = World::new(&dir.path().join("source"), 2, 2);
    let mut target = World::new(&dir.path().join("target"), 0, 2);
    let edits = (0..5).map(|n| new_doc(source.shard(0), &format!("d{n}")));
    let edits = edits.collect();
    source
        .apply(slot_write(1, 0, 1, vec![request(1, 1, edits)]))
        .unwrap();
    let bins = source.shard(0).time_seq().unwrap();
    assert_ne!(bins, TimeSeq::default());
    let frames = frames(&source, 1, 0..2);
    let import = taken(&target, 1, &frames);
    install(&mut target, 1, import, Install::default());
    assert_eq!(target.shard(0).time_seq().unwrap(), bins);
    assert_eq!(target.shard(1).time_seq().unwrap(), TimeSeq::default());
    // Counters and bins have separate rows again.
    let number = target.shard(0).number;
    assert_eq!(stored(target.store(), number), Some(bins.encode()));
    target.restart();
    assert_eq!(target.shard(0).meta().update_seq, 5);
}
