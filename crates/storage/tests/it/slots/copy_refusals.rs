//! An unfinished import leaves nothing behind.

use std::path::Path;

use storage::{Error, Install, Keyspace, Limits, SlotImport, Store};

use crate::slots::copy::{ShardRows, frames, install, rows, tag, taken};
use crate::slots::crash::copy;
use crate::slots::dump;
use crate::slots::world::{World, interactive, local, new_doc, options, position, request, write};

/// With two shards, and enough in them for a few frames.
fn source(path: &Path) -> World {
    let world = World::new(path, 0, 2);
    let long = format!(r#"{{"p":"{}"}}"#, "x".repeat(6_000));
    for n in 0..60 {
        let edits = vec![
            new_doc(world.shard(0), &format!("doc{n}")),
            interactive(world.shard(1), &format!("doc{n}"), None, &long, false),
            local(world.shard(1), "l", Some(n), "{}"),
        ];
        world
            .apply(write(1, n, 1, vec![request(1, n, edits)]))
            .unwrap();
    }
    world
}

/// A store that already has data of its own.
fn target(path: &Path) -> World {
    let world = World::new(path, 5, 2);
    let edits = vec![
        new_doc(world.shard(0), "own"),
        new_doc(world.shard(1), "own"),
    ];
    world
        .apply(write(1, 0, 1, vec![request(1, 1, edits)]))
        .unwrap();
    world
}

/// Returns everything in the store by shard, except the list of dropped numbers, and the number of
/// files waiting to be ingested.
fn everything(store: &Store) -> (ShardRows, usize) {
    let snapshot = store.snapshot();
    let mut all = vec![];
    for k in Keyspace::ALL {
        let mut it = snapshot.iter_all(k);
        it.seek_to_first();
        while let Some((key, value)) = it.item() {
            // The list of dropped numbers, and the numbers to be assigned next.
            if k != Keyspace::Meta || !matches!(key[0], b'x' | b'n' | b'v') {
                all.push((k, key.to_vec(), value.to_vec()));
            }
            it.next();
        }
        it.status().unwrap();
    }
    let waiting = std::fs::read_dir(store.engine().ingest_directory()).unwrap();
    (all, waiting.count())
}

#[test]
fn a_copy_that_is_damaged_or_cut_short_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let source = source(&dir.path().join("source"));
    let target = target(&dir.path().join("target"));
    let before = everything(target.store());
    let good = frames(&source, 1, 0..2);
    assert!(good.len() > 8, "{}", good.len());
    let fails = |frames: &[Vec<u8>]| {
        let mut import = SlotImport::new(target.store().clone(), 1);
        let failed = frames.iter().find_map(|frame| import.frame(frame).err());
        if failed.is_some() {
            // It accepts nothing more.
            assert!(frames.iter().all(|frame| import.frame(frame).is_err()));
        }
        assert!(!import.is_complete());
        let refused = import.install(Install {
            from: position(1, 1),
            ..Install::default()
        });
        assert!(
            matches!(refused, Err(Error::Copy { slot: 1, .. })),
            "{refused:?}"
        );
        target.store().reap().unwrap();
        assert_eq!(everything(target.store()), before);
        failed.map(|e| e.to_string())
    };
    for i in 0..good.len() {
        assert_eq!(fails(&good[..i]), None, "cut short");
        let mut missing = good.clone();
        missing.remove(i);
        assert_eq!(fails(&missing).is_some(), i + 1 < good.len());
        let mut doubled = good.clone();
        doubled.insert(i, good[i].clone());
        assert!(fails(&doubled).unwrap().contains("not in its place"));
        let mut damaged = good.clone();
        let at = good[i].len() / 2;
        damaged[i][at] ^= 1;
        assert!(fails(&damaged).is_some());
        let mut torn = good.clone();
        torn[i].truncate(at);
        assert!(fails(&torn).is_some());
    }
    let mut other = SlotImport::new(target.store().clone(), 2);
    let refused = other.frame(&good[0]).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "the copy of slot 2 is one of another slot"
    );
    let mut too_much = taken(&target, 1, &good);
    assert!(too_much.frame(&good[good.len() - 1]).is_err());
    drop(too_much);
    let abandoned = taken(&target, 1, &good);
    drop(abandoned);
    target.store().reap().unwrap();
    assert_eq!(everything(target.store()), before);
}

#[test]
fn a_source_that_is_not_what_its_digest_says_is_not_taken() {
    let dir = tempfile::tempdir().unwrap();
    let source = source(&dir.path().join("source"));
    let target = target(&dir.path().join("target"));
    let engine = source.store().engine();
    let mut batch = engine.writes();
    let key = [&source.shard(0).number.to_be_bytes()[..], b"doc7"].concat();
    batch.delete(Keyspace::ById, key);
    batch.commit(true).unwrap();
    let frames = frames(&source, 1, 0..2);
    let mut import = SlotImport::new(target.store().clone(), 1);
    let failed = frames.iter().find_map(|frame| import.frame(frame).err());
    let failed = failed.unwrap().to_string();
    assert!(failed.ends_with("do not match its digest"), "{failed}");
}

#[test]
fn a_shard_that_is_not_of_a_slot_is_not_copied() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::new(dir.path(), 0, 1);
    world.apply(write(1, 0, 1, vec![])).unwrap();
    let plain = vec![new_doc(world.shard(0), "a")];
    let plain = world.store().committer.edit(plain, Limits::default(), true);
    plain.blocking_recv().unwrap().unwrap();
    let snapshot = std::sync::Arc::new(world.store().snapshot());
    let shards = vec![(tag(0), world.shard(0).number)];
    let mut copy = storage::SlotCopy::of(snapshot, 1, shards).unwrap();
    let failed = std::iter::repeat_with(|| copy.next_frame()).find_map(Result::err);
    assert!(matches!(failed, Some(Error::NotOfSlot(n)) if n == world.shard(0).number));
}

#[test]
fn a_slot_that_moved_and_shards_that_are_gone_are_not_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let source = source(&dir.path().join("source"));
    let target = target(&dir.path().join("target"));
    let good = frames(&source, 1, 0..2);
    target.apply(write(1, 1, 1, vec![])).unwrap();
    let before = everything(target.store());
    let moved = taken(&target, 1, &good).install(Install {
        from: position(1, 1),
        replaced: target.shards().to_vec(),
        puts: vec![Store::put_database("copied", vec![])],
        ..Install::default()
    });
    assert!(matches!(moved, Err(Error::SlotPosition { .. })));
    target.store().reap().unwrap();
    assert_eq!(everything(target.store()), before);
    let next = request(1, 2, vec![new_doc(target.shard(0), "next")]);
    target.apply_next(1, next).unwrap();
    let dropped = target
        .store()
        .drop_database("db", vec![target.shard(0).clone()]);
    dropped.blocking_recv().unwrap().unwrap();
    let gone = taken(&target, 1, &good).install(Install {
        from: target.store().slot(1).unwrap(),
        replaced: target.shards().to_vec(),
        puts: vec![Store::put_database("db", vec![])],
        ..Install::default()
    });
    assert!(matches!(gone, Err(Error::Dropped)));
    assert_eq!(target.store().database("db").unwrap(), None);
}

/// Checks the store in `path` after a crash: its shard numbers and the slot's position.
fn after_crash(path: &Path, numbers: &[u32], at: u64, gone: &[u32]) {
    let world = World::open(path, numbers, &options());
    assert_eq!(world.store().slot(1).unwrap(), position(1, at));
    world.store().reap().unwrap();
    for shard in world.shards() {
        let dump = dump::shard(shard);
        dump::check(shard, &dump);
        assert_eq!(dump.docs.len() as u64, at);
    }
    let snapshot = world.store().snapshot();
    for &number in gone {
        assert_eq!(rows(&snapshot, number, &Keyspace::SHARDED), [], "{number}");
        assert_eq!(world.store().shard(number).unwrap().meta().update_seq, 0);
    }
    let (_, waiting) = everything(world.store());
    assert_eq!(waiting, 0);
    let mut given = vec![];
    let made = world.store().create_database("new", 1, |numbers| {
        given = numbers.to_vec();
        vec![]
    });
    made.blocking_recv().unwrap().unwrap();
    assert!(numbers.iter().chain(gone).all(|n| *n < given[0]));
    let next = request(5, 1, vec![new_doc(world.shard(0), "next")]);
    world.apply_next(1, next).unwrap();
    let is_listed = |number: u32| {
        let key = [&b"x"[..], &number.to_be_bytes()].concat();
        let listed = world.store().engine().get(Keyspace::Meta, &key);
        listed.unwrap().is_some()
    };
    assert!(
        gone.iter().all(|n| is_listed(*n)),
        "until room is given back"
    );
    assert!(!numbers.iter().any(|n| is_listed(*n)));
}

#[test]
fn a_crash_at_any_step_leaves_the_old_state_or_the_new_one() {
    let dir = tempfile::tempdir().unwrap();
    let source = source(&dir.path().join("source"));
    let mut target = target(&dir.path().join("target"));
    let old: Vec<u32> = target.shards().iter().map(|s| s.number).collect();
    let good = frames(&source, 1, 0..2);
    let crash = |name: &str| copy(&dir.path().join("target"), dir.path().join(name));
    let numbers = |import: &SlotImport| import.shards().map(|(_, n)| n).collect::<Vec<_>>();
    // While frames are received, when all are there, and when the engine has ingested the files but
    // the batch is not written.
    let half = taken(&target, 1, &good[..good.len() - 2]);
    let mut gone = numbers(&half);
    after_crash(&crash("coming"), &old, 1, &gone);
    let whole = taken(&target, 1, &good);
    let whole_numbers = numbers(&whole);
    gone.extend(&whole_numbers);
    after_crash(&crash("come"), &old, 1, &gone);
    let refused = whole.install(Install {
        from: position(1, 9),
        ..Install::default()
    });
    assert!(matches!(refused, Err(Error::SlotPosition { .. })));
    let snapshot = target.store().snapshot();
    let ingested = rows(&snapshot, whole_numbers[0], &[Keyspace::ById]);
    assert_eq!(ingested.len(), 60, "this is the step that it is to be");
    drop(snapshot);
    after_crash(&crash("ingested"), &old, 1, &gone);
    drop(half);
    let import = taken(&target, 1, &good);
    let new = numbers(&import);
    install(&mut target, 1, import, Install::default());
    let installed = crash("installed");
    gone.extend(old);
    after_crash(&installed, &new, 60, &gone);
}
