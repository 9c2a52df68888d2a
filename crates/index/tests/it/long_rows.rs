//! Rows with long values: few of them are in memory at a time, and all of them are in the index.

use std::sync::Arc;

use crate::support;

use functions::EMITS_BYTES_MAX;
use index::reduce::Builtin;
use index::{BuildLimits, BuildMemory, Error, Index, PlaceRange, ReduceSpec, Spec, ViewSpec};
use support::language::Native;
use support::model::{check, reduce_in_pieces};
use support::{BUILD_WAIT, Dice, World, body, specs};

/// Bytes of each value, in thousands.
const LONG: i32 = 200;
const DOCS: u32 = 120;

fn spec() -> Spec {
    use Builtin::*;
    let [plain, _] = specs();
    // Blocks of few rows, and others.
    let reduces = [[Count, ApproxCountDistinct], [First, Last]];
    let views = reduces
        .into_iter()
        .enumerate()
        .map(|(n, reduces)| ViewSpec {
            map: "long".into(),
            raw: n > 0,
            reduces: reduces.map(ReduceSpec::Builtin).into(),
        });
    Spec {
        views: views.collect(),
        ..plain
    }
}

fn load(world: &World, docs: std::ops::Range<u32>, rows: u32, value: i32) {
    let edits = docs.map(|d| world.put(&format!("d{d:05}"), Some(body(d * 7919, rows, value))));
    world.submit(edits.collect());
}

fn update_and_check(world: &World, dice: &mut Dice) {
    world.indexes[0].update().unwrap();
    check(&world.shard, &world.indexes[0], dice);
}

#[test]
fn few_long_rows_are_in_memory_at_a_time_and_all_are_in_the_index() {
    let dir = tempfile::tempdir().unwrap();
    let mut dice = Dice(3);
    let limits = BuildLimits {
        run_bytes_max: 12 << 20,
        ..BuildLimits::default()
    };
    let world = World::open(dir.path(), &[spec()], limits, Native::default());
    // Documents without rows, after which a piece has many documents.
    load(&world, 0..340, 0, 0);
    load(&world, 340..340 + DOCS, 1, LONG);
    update_and_check(&world, &mut dice);
    // A small update, which waits for no memory, and a larger one.
    load(&world, 340..340 + DOCS, 1, LONG - 1);
    update_and_check(&world, &mut dice);
    load(&world, 0..340, 0, 1);
    load(&world, 340..340 + DOCS, 1, LONG);
    load(&world, 1000..1300, 0, 1);
    update_and_check(&world, &mut dice);
    let emitted = world.language.emitted_max();
    assert!(
        emitted < EMITS_BYTES_MAX + 4 * LONG as usize * 1000,
        "{emitted} bytes of rows were in memory"
    );
    let deleted = (340..340 + DOCS).step_by(3);
    let edits = deleted.map(|d| world.put(&format!("d{d:05}"), None));
    world.submit(edits.collect());
    update_and_check(&world, &mut dice);
    assert!(world.indexes[0].compact(BUILD_WAIT).unwrap());
    update_and_check(&world, &mut dice);
    assert!(world.check(&world.indexes[0]).into_all().is_empty());
    world.close();
}

#[test]
fn rows_with_long_keys_count_as_memory_of_builds_in_updates_of_all_sizes() {
    let dir = tempfile::tempdir().unwrap();
    let [plain, _] = specs();
    let spec = Spec {
        views: vec![ViewSpec {
            map: "long keys".into(),
            raw: false,
            reduces: vec![],
        }],
        ..plain
    };
    let mut world = World::open(dir.path(), &[], BuildLimits::default(), Native::default());
    let memory = Arc::new(BuildMemory::new(64 << 20));
    let index = Index::open(
        world.store.clone(),
        world.shard.clone(),
        500,
        Arc::new(spec),
        Arc::new(world.language.clone()),
        None,
        functions::Owner::default(),
    );
    let index = index.unwrap().with_memory(memory.clone());
    world.indexes.push(Arc::new(index));
    // A first build and an update of few changes, which reserve nothing.
    load(&world, 0..3, 2, 1);
    update_and_check(&world, &mut Dice(3));
    assert_eq!(memory.used_bytes(), (0, 0), "short keys are not counted");
    load(&world, 3..6, 4, 250);
    update_and_check(&world, &mut Dice(3));
    let (used, peak) = memory.used_bytes();
    assert_eq!(used, 0);
    assert!(peak > 8 * 500_000, "{peak} bytes were counted");
    // A key that is longer than keys can be: the document has no rows, until it changes.
    let left_out = |world: &World| world.indexes[0].left_out().unwrap();
    load(&world, 4..5, 2, 270);
    world.indexes[0].update().unwrap();
    assert_eq!(left_out(&world), 1);
    load(&world, 4..5, 2, 250);
    update_and_check(&world, &mut Dice(3));
    assert_eq!(left_out(&world), 0);
    world.close();
}

#[test]
fn changed_blocks_are_reduced_in_as_many_calls_as_there_are_pauses() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(
        dir.path(),
        &specs()[..1],
        BuildLimits::default(),
        Native::default(),
    );
    let index = &world.indexes[0];
    for value in [0, 1] {
        load(&world, 0..2000, 10, value);
        index.update().unwrap();
    }
    let (view, whole) = (index.view().unwrap(), PlaceRange::default());
    // 20,000 rows in blocks of at most 384, all of which changed.
    let (state, calls) = reduce_in_pieces(&view, (0, 0), &whole, false);
    assert!(calls > 20_000 / 384, "{calls} calls");
    assert_eq!(view.reduce(0, 0, &whole, false).unwrap(), state);
    let (again, calls) = reduce_in_pieces(&view, (0, 0), &whole, false);
    assert_eq!((again, calls), (state, 1));
    drop(view);
    world.close();
}

#[test]
fn a_paused_index_is_read_and_is_built_when_it_is_resumed() {
    let dir = tempfile::tempdir().unwrap();
    let limits = BuildLimits::default();
    let world = World::open(dir.path(), &specs()[..1], limits, Native::default());
    let index = &world.indexes[0];
    load(&world, 0..5, 2, 1);
    update_and_check(&world, &mut Dice(3));
    load(&world, 5..9, 2, 1);
    index.pause();
    assert!(matches!(index.update(), Err(Error::Stopped)));
    assert!(index.is_paused() && index.view().unwrap().rows(0) > 0);
    index.resume();
    update_and_check(&world, &mut Dice(3));
    assert!(!index.is_closed());
    index.ask_to_stop();
    index.pause();
    index.resume();
    assert!(!index.is_paused() && index.is_closed());
    assert!(
        matches!(index.update(), Err(Error::Stopped)),
        "it is closed"
    );
    world.close();
}
