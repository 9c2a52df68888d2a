//! Builds that fail, are stopped or crash in the middle, and documents that change meanwhile.

use crate::support;

use std::path::Path;
use std::sync::Arc;

use index::{BuildLimits, Error, Index, PlaceRange, ReduceLimit, ReduceSpec, Spec};
use storage::Keyspace;
use support::language::{Native, SLOW_MS, SLOW_ROWS};
use support::model::check;
use support::{BUILD_WAIT, Dice, World, body, rounds, specs};

/// A first build of a thousand documents takes several runs, an update several batches.
const SMALL: BuildLimits = BuildLimits {
    run_bytes_max: 128 << 10,
    small_run_bytes_max: 0,
    update_bytes_max: 64 << 10,
    small_update_bytes_max: 64 << 10,
    batch_bytes: 8 << 10,
    warm_blocks: 20,
};
const DOCS: u32 = 1500;

fn open(path: &Path) -> World {
    World::open(path, &specs(), SMALL, Native::default())
}

fn id(d: u32) -> String {
    format!("p{}:{d:04}", d % 3)
}

fn load(world: &World, docs: std::ops::Range<u32>, rows: u32) {
    let edits = docs.map(|d| world.put(&id(d), Some(body(d * 7919 % 1009, rows, d as i32))));
    world.submit(edits.collect());
}

fn complete(world: &World) {
    for index in &world.indexes {
        index.update().unwrap();
        check(&world.shard, index, &mut Dice(5));
    }
}

fn left_files(world: &World) -> usize {
    let directory = world.store.engine().ingest_directory();
    std::fs::read_dir(directory).unwrap().count()
}

#[test]
fn a_mapper_that_fails_leaves_what_was_written_and_a_later_update_completes() {
    for first_build in [true, false] {
        for after in rounds(vec![0, 300, DOCS - 1], vec![0, 300, 900, DOCS - 1]) {
            let dir = tempfile::tempdir().unwrap();
            let world = open(dir.path());
            if !first_build {
                load(&world, 0..DOCS, 3);
                complete(&world);
            }
            load(&world, 0..DOCS, 6);
            let index = &world.indexes[0];
            let before = index.indexed_seq();
            world.language.fail_after(after);
            assert!(matches!(index.update(), Err(Error::Function(_))));
            assert_eq!(left_files(&world), 0);
            let view = index.view().unwrap();
            assert!(
                view.indexed_seq() >= before && view.indexed_seq() < world.shard.meta().update_seq
            );
            // Counts the present rows.
            for n in 0..view.spec().views.len() {
                let mut it = view.iter(n, &PlaceRange::default(), false);
                let mut rows = 0;
                while it.row().unwrap().is_some() {
                    rows += 1;
                    it.next();
                }
                assert_eq!(view.rows(n), rows);
            }
            complete(&world);
            world.close();
        }
    }
}

#[test]
fn documents_beyond_a_limit_are_counted_until_they_change_or_the_limit_is_higher() {
    let language = Native::default();
    let dir = tempfile::tempdir().unwrap();
    let reopen = || World::open(dir.path(), &specs()[..1], SMALL, language.clone());
    let left_out = |world: &World| world.indexes[0].left_out().unwrap();
    language.limit_rows(5);
    let world = reopen();
    load(&world, 0..DOCS, 3);
    // In the first build, and in a later one.
    load(&world, 0..7, 9);
    world.indexes[0].update().unwrap();
    load(&world, 7..10, 9);
    world.indexes[0].update().unwrap();
    assert_eq!(left_out(&world), 10);
    load(&world, 0..2, 4);
    assert_eq!(left_out(&world), 8);
    world.close();

    // The same limit, and one that is still too low.
    for rows_max in [5, 8] {
        language.limit_rows(rows_max);
        let world = reopen();
        world.indexes[0].update().unwrap();
        assert_eq!(left_out(&world), 8, "{rows_max}");
        world.close();
    }
    language.limit_rows(9);
    let world = reopen();
    complete(&world);
    assert_eq!(left_out(&world), 0);
    world.close();
}

#[test]
fn documents_that_take_too_long_are_left_out_like_those_beyond_other_limits() {
    let language = Native::default();
    let dir = tempfile::tempdir().unwrap();
    let reopen = || World::open(dir.path(), &specs()[..1], SMALL, language.clone());
    let left_out = |world: &World| world.indexes[0].left_out().unwrap();
    language.limit_time(SLOW_MS - 1);
    let world = reopen();
    load(&world, 0..DOCS, 3);
    // In the first build, alone and next to each other, and in a later one.
    load(&world, 5..6, SLOW_ROWS);
    load(&world, 100..106, SLOW_ROWS);
    world.indexes[0].update().unwrap();
    assert_eq!(left_out(&world), 7);
    let rows = world.indexes[0].view().unwrap().rows(0);
    assert!(rows > u64::from(DOCS), "the rows of the others: {rows}");
    load(&world, 200..201, SLOW_ROWS);
    world.indexes[0].update().unwrap();
    assert_eq!(left_out(&world), 8);
    let view = world.indexes[0].map_counts.take_left_out().unwrap();
    assert_eq!(
        view.reason.to_string(),
        "the function exceeded time_limit_ms = 999"
    );
    // One that is changed comes in.
    load(&world, 5..6, 4);
    world.indexes[0].update().unwrap();
    assert_eq!(left_out(&world), 7);
    world.close();
    // So do all, once the limit is higher.
    language.limit_time(SLOW_MS);
    let world = reopen();
    complete(&world);
    assert_eq!(left_out(&world), 0);
    world.close();
}

#[test]
fn a_check_does_not_compare_the_rows_of_an_index_that_leaves_documents_out() {
    let language = Native::default();
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path(), &specs()[..1], SMALL, language.clone());
    load(&world, 0..DOCS, 3);
    load(&world, 5..6, SLOW_ROWS);
    let findings = || -> Vec<String> {
        world.indexes[0].update().unwrap();
        let all = world.check(&world.indexes[0]).into_all();
        assert!(all.iter().all(|finding| !finding.is_damage), "{all:?}");
        all.into_iter().map(|finding| finding.says).collect()
    };
    assert_eq!(findings(), [""; 0]);
    // It has all documents, and functions are too slow now.
    language.limit_time(SLOW_MS - 1);
    assert!(findings()[0].contains("exceed a limit for some documents now"));
    // It leaves one out, for which they are fast enough now.
    load(&world, 100..101, SLOW_ROWS);
    world.indexes[0].update().unwrap();
    language.limit_time(0);
    assert!(findings()[0].contains("it leaves out documents"));
    world.close();
}

#[test]
fn a_function_that_is_too_slow_for_every_document_fails_soon() {
    let language = Native::default();
    language.limit_time(SLOW_MS - 1);
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path(), &specs()[..1], SMALL, language.clone());
    load(&world, 0..DOCS, SLOW_ROWS);
    let index = &world.indexes[0];
    let threads = std::thread::available_parallelism().unwrap().get() as u64;
    for _ in 0..2 {
        assert!(matches!(index.update(), Err(Error::Function(_))));
        let late = language.take_late();
        assert!((10..=10 + 5 * threads).contains(&late), "{late} calls");
    }
    // Documents that are not slow are in between.
    load(&world, 10..DOCS, 3);
    load(&world, 0..2, 3);
    index.update().unwrap();
    assert_eq!(index.left_out().unwrap(), 8);
    world.close();
}

#[test]
fn a_stopped_build_goes_on_after_the_next_start() {
    for first_build in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        {
            let world = open(dir.path());
            if !first_build {
                load(&world, 0..DOCS, 3);
                complete(&world);
            }
            load(&world, 0..DOCS, 6);
            let index = world.indexes[0].clone();
            let stopped = Arc::downgrade(&index);
            world.language.after(DOCS / 2, move || {
                stopped.upgrade().unwrap().ask_to_stop();
                Ok(())
            });
            assert!(matches!(index.update(), Err(Error::Stopped)));
            assert!(index.indexed_seq() < world.shard.meta().update_seq);
            assert!(matches!(index.warm(), Err(Error::Stopped)));
            assert!(matches!(index.compact(BUILD_WAIT), Err(Error::Stopped)));
            assert_eq!(left_files(&world), 0);
            drop(index);
            world.close();
        }
        let world = open(dir.path());
        complete(&world);
        world.close();
    }
}

#[test]
fn a_copy_of_the_store_taken_during_a_build_is_whole_and_completes() {
    for first_build in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let copies = tempfile::tempdir().unwrap();
        let world = open(dir.path());
        if !first_build {
            load(&world, 0..DOCS, 3);
            complete(&world);
        }
        load(&world, 0..DOCS, 6);
        // One thread copies as fast as it can until the build is done.
        let done = std::sync::atomic::AtomicBool::new(false);
        let mut taken = vec![];
        std::thread::scope(|scope| {
            let copier = scope.spawn(|| {
                let mut taken = vec![];
                while taken.len() < 12 && !done.load(std::sync::atomic::Ordering::Relaxed) {
                    let path = copies.path().join(taken.len().to_string());
                    world.store.copy(&path).unwrap();
                    taken.push(path);
                }
                taken
            });
            for index in &world.indexes {
                index.update().unwrap();
            }
            done.store(true, std::sync::atomic::Ordering::Relaxed);
            taken = copier.join().unwrap();
        });
        complete(&world);
        world.close();
        // Of all moments of the build.
        for path in taken.into_iter().step_by(rounds(4, 1)) {
            let copy = open(&path);
            complete(&copy);
            copy.close();
        }
    }
}

#[test]
fn a_crash_while_files_are_added_makes_the_build_start_over() {
    let dir = tempfile::tempdir().unwrap();
    let copies = tempfile::tempdir().unwrap();
    let world = open(dir.path());
    load(&world, 0..DOCS, 6);
    let index = &world.indexes[0];
    index.update().unwrap();
    // The state records that files are being added: the present rows are not trustworthy.
    let engine = world.store.engine();
    let key = storage::index_state_key(index.number);
    let mut state = engine.get(Keyspace::Meta, &key).unwrap().unwrap().to_vec();
    *state.last_mut().unwrap() = 1;
    let mut batch = engine.writes();
    batch.put(Keyspace::Meta, key, state);
    batch.commit(true).unwrap();
    let path = copies.path().join("copy");
    world.store.copy(&path).unwrap();
    world.close();
    let copy = open(&path);
    assert_eq!(copy.indexes[0].indexed_seq(), 0);
    assert_eq!(copy.indexes[0].view().unwrap().rows(0), 0);
    complete(&copy);
    copy.close();
}

#[test]
fn files_that_cannot_be_added_make_the_build_start_over() {
    let dir = tempfile::tempdir().unwrap();
    let world = open(dir.path());
    load(&world, 0..DOCS, 6);
    let index = &world.indexes[0];
    // The files of the first runs find their directory, those of a later one do not.
    let directory = world.store.engine().ingest_directory();
    let gone = directory.clone();
    world.language.after(DOCS * 2 / 3, move || {
        std::fs::remove_dir_all(&gone).unwrap();
        Ok(())
    });
    assert!(matches!(index.update(), Err(Error::Storage(_))));
    assert!(world.language.happened());
    let view = index.view().unwrap();
    let state = view
        .reduce(0, 1, &PlaceRange::default(), false)
        .unwrap()
        .unwrap();
    assert_eq!(view.rows(0).to_string().as_bytes(), &state[..]);
    std::fs::create_dir_all(directory).unwrap();
    complete(&world);
    world.close();
}

#[test]
fn documents_that_change_during_a_first_build_are_brought_in_by_the_next_update() {
    let dir = tempfile::tempdir().unwrap();
    let world = Arc::new(open(dir.path()));
    load(&world, 0..DOCS, 6);
    let edited = Arc::downgrade(&world);
    world.language.after(DOCS / 2, move || {
        let world = edited.upgrade().unwrap();
        load(&world, 0..100, 9);
        load(&world, DOCS - 100..DOCS + 50, 2);
        world.submit((200..400).map(|d| world.put(&id(d), None)).collect());
        (400..420).for_each(|d| world.purge(&id(d), true, 1000));
        Ok(())
    });
    let upto = world.indexes[0].update().unwrap();
    assert!(world.language.happened());
    assert!(upto < world.shard.meta().update_seq);
    complete(&world);
}

#[test]
fn purges_that_are_not_remembered_are_found_without_mapping_documents_again() {
    let dir = tempfile::tempdir().unwrap();
    let world = Arc::new(open(dir.path()));
    load(&world, 0..DOCS, 6);
    let purged = Arc::downgrade(&world);
    world.language.after(DOCS / 2, move || {
        let world = purged.upgrade().unwrap();
        (100..600).for_each(|d| world.purge(&id(d), true, 10));
        Ok(())
    });
    let index = &world.indexes[0];
    index.update().unwrap();
    assert!(world.language.happened());
    let mapped = index.map_counts.mapped();
    // One document has come back, and of another nothing but its last revisions is purged.
    load(&world, 300..301, 4);
    world.submit(vec![World::replicated(&id(700), 3, 1, Some(body(1, 2, 3)))]);
    world.purge(&id(700), false, 0);
    (DOCS - 5..DOCS).for_each(|d| world.purge(&id(d), true, 0));
    index.update().unwrap();
    check(&world.shard, index, &mut Dice(5));
    assert!(index.map_counts.mapped() <= mapped + 2);
    complete(&world);
}

/// The rows of few purged documents are in one batch, and a document may be purged several times.
#[test]
fn documents_that_are_purged_again_and_again_are_removed_once() {
    let dir = tempfile::tempdir().unwrap();
    let world = open(dir.path());
    load(&world, 0..DOCS, 6);
    complete(&world);
    let purge = |docs: std::ops::Range<u32>| {
        docs.for_each(|d| world.purge(&id(d), true, 10_000));
    };
    for round in 0..3 {
        purge(100..110);
        load(&world, 100..110, 2 + round);
    }
    purge(100..1000);
    load(&world, 400..500, 3);
    purge(450..500);
    complete(&world);
    world.close();
}

#[test]
fn readers_see_whole_updates_while_a_build_runs() {
    let dir = tempfile::tempdir().unwrap();
    let world = open(dir.path());
    load(&world, 0..DOCS, 6);
    let index = &world.indexes[0];
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut seen = 0;
            while !done.load(std::sync::atomic::Ordering::Relaxed) || seen == 0 {
                let view = index.view().unwrap();
                let whole = PlaceRange::default();
                let counted = view.reduce(0, 1, &whole, false).unwrap();
                let rows = view.rows(0);
                let counted = counted.map(|s| String::from_utf8(s.to_vec()).unwrap());
                assert_eq!(counted.unwrap_or("0".into()), rows.to_string());
                assert_eq!(view.rank(0, &[0xff]).unwrap(), rows);
                let mut it = view.iter(0, &whole, false);
                let mut found = 0;
                while it.row().unwrap().is_some() {
                    found += 1;
                    it.next();
                }
                assert_eq!(found, rows);
                seen += 1;
            }
        });
        index.update().unwrap();
        for n in 0..5 {
            load(&world, n * 200..n * 200 + 300, 4 + n);
            index.update().unwrap();
            index.warm().unwrap();
        }
        assert!(index.compact(BUILD_WAIT).unwrap());
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        reader.join().unwrap();
    });
    complete(&world);
    world.close();
}

/// As after a write that was stored but reported an error.
#[test]
fn readers_go_on_when_the_store_is_ahead_of_what_was_published() {
    let dir = tempfile::tempdir().unwrap();
    let world = open(dir.path());
    let again = |index: &Arc<Index>| world.open_index(index.number, index.spec(), SMALL);
    let other: Vec<_> = world.indexes.iter().map(again).collect();
    for docs in [0..DOCS, 10..30] {
        load(&world, docs, 4);
        for index in &other {
            index.update().unwrap();
        }
        for (index, other) in world.indexes.iter().zip(&other) {
            index.begin_write();
            let view = index.view().unwrap();
            assert_eq!(view.indexed_seq(), other.indexed_seq());
            check(&world.shard, index, &mut Dice(7));
        }
    }
    load(&world, 20..40, 2);
    complete(&world);
    world.close();
}

#[test]
fn warmed_reductions_are_stored_all_of_them() {
    let dir = tempfile::tempdir().unwrap();
    let world = open(dir.path());
    load(&world, 0..DOCS, 20);
    let index = &world.indexes[0];
    index.update().unwrap();
    index.warm().unwrap();
    let all = stored_blocks(&world, index.number, index.spec());
    assert!(all > 100, "many blocks: {all}");
    // All rows are changed, and the blocks' reductions with them.
    load(&world, 0..DOCS, 19);
    index.update().unwrap();
    index.warm().unwrap();
    stored_blocks(&world, index.number, index.spec());
    assert!(index.compact(BUILD_WAIT).unwrap());
    stored_blocks(&world, index.number, index.spec());
    world.close();
}

/// Counts the stored blocks, which must have all their reductions.
fn stored_blocks(world: &World, number: u32, spec: &Spec) -> usize {
    let snapshot = world.store.engine().snapshot();
    let mut it = snapshot.iter(Keyspace::IndexBlocks, number);
    it.seek_to_first();
    let mut blocks = 0;
    while let (Some(k), Some(v)) = (it.key(), it.value()) {
        let view = usize::from(u16::from_be_bytes([k[4], k[5]]));
        let mut r = storage::varint::Reader::new(v, "block");
        let rows = r.varint().unwrap();
        for function in 0..spec.views[view].reduces.len() {
            let len = r.varint().unwrap();
            assert!(
                rows == 0 || len > 0,
                "block of view {view} lacks reduction {function}"
            );
            r.bytes((len as usize).saturating_sub(1)).unwrap();
        }
        blocks += 1;
        it.next();
    }
    blocks
}

#[test]
fn a_custom_function_named_like_a_builtin_makes_another_index() {
    let [mut spec, _] = specs();
    let with = |spec: &mut Spec, reduce| {
        spec.views[0].reduces = vec![reduce];
        spec.signature()
    };
    let builtin = with(&mut spec, ReduceSpec::Builtin(index::reduce::Builtin::Sum));
    assert_ne!(builtin, with(&mut spec, ReduceSpec::Custom("Sum".into())));
}

#[test]
fn a_first_build_heeds_the_reduce_limit_as_readers_do() {
    let dir = tempfile::tempdir().unwrap();
    let world = open(dir.path());
    load(&world, 0..DOCS, 4);
    let [mut spec, _] = specs();
    spec.views.truncate(1);
    spec.views[0].map = "members".into();
    let index = Index::open(
        world.store.clone(),
        world.shard.clone(),
        300,
        Arc::new(spec),
        Arc::new(world.language.clone()),
        Some(ReduceLimit::default()),
        functions::Owner::default(),
    );
    let at_once = BuildLimits {
        small_run_bytes_max: 0,
        ..BuildLimits::default()
    };
    let index = index.unwrap().with_limits(at_once);
    index.update().unwrap();
    let sum = |low: &[u8]| {
        let range = PlaceRange {
            low: low.to_vec(),
            high: None,
        };
        let view = index.view().unwrap();
        let state = view.reduce(0, 0, &range, false).unwrap().unwrap();
        String::from_utf8(state.to_vec()).unwrap()
    };
    let place = index.view().unwrap().place_at(0, 192 * 2).unwrap().unwrap();
    let built = (sum(&[]), sum(&place));
    assert!(built.0.contains("must shrink more rapidly"), "{}", built.0);
    // The same blocks, reduced by reading them.
    assert!(index.compact(BUILD_WAIT).unwrap());
    assert_eq!((sum(&[]), sum(&place)), built);
    index.close();
    drop(index);
    world.close();
}

#[test]
fn an_index_that_was_dropped_meanwhile_is_not_read() {
    let dir = tempfile::tempdir().unwrap();
    let world = open(dir.path());
    load(&world, 0..50, 2);
    complete(&world);
    let index = &world.indexes[0];
    index.close();
    assert!(index.view().is_ok(), "it is closed, not dropped");
    let dropped = world
        .store
        .drop_index(world.shard.number, &index.signature, index.number);
    dropped.blocking_recv().unwrap().unwrap();
    assert!(matches!(index.view(), Err(Error::Dropped)));
    world.close();
}
