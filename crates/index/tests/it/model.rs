//! Random histories of a shard: an index always has the rows, counts and reductions that its
//! documents imply.

use crate::support;

use index::{BuildLimits, Error};
use proptest::prelude::*;
use support::language::Native;
use support::model::{check, check_rows, rows};
use support::{BUILD_WAIT, Dice, World, body, rounds, specs};

#[derive(Clone, Debug)]
enum Step {
    Put {
        doc: u8,
        key: u16,
        rows: u8,
    },
    Delete {
        doc: u8,
    },
    Replicate {
        doc: u8,
        generation: u8,
        branch: u8,
        deleted: bool,
        key: u16,
    },
    Purge {
        doc: u8,
        all: bool,
        forgotten: bool,
    },
    Update,
    FailingUpdate {
        after: u8,
    },
    Warm,
    Compact,
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    let doc = 0u8..24;
    prop_oneof![
        12 => (doc.clone(), any::<u16>(), 0u8..90).prop_map(|(doc, key, rows)| Step::Put { doc, key, rows }),
        4 => doc.clone().prop_map(|doc| Step::Delete { doc }),
        4 => (doc.clone(), 1u8..5, 0u8..3, any::<bool>(), any::<u16>())
            .prop_map(|(doc, generation, branch, deleted, key)| Step::Replicate { doc, generation, branch, deleted, key }),
        3 => (doc, any::<bool>(), prop::bool::weighted(0.2))
            .prop_map(|(doc, all, forgotten)| Step::Purge { doc, all, forgotten }),
        5 => Just(Step::Update),
        2 => (0u8..20).prop_map(|after| Step::FailingUpdate { after }),
        1 => Just(Step::Warm),
        1 => Just(Step::Compact),
        1 => Just(Step::Reopen),
    ]
}

fn id(doc: u8) -> String {
    match doc {
        0 => "_design/d".into(),
        1 => "p1:\u{e9}\u{ffff}".into(),
        n => format!("p{}:doc{n}", n % 3),
    }
}

/// Limits so small that every part of a build has several pieces.
const SMALL: BuildLimits = BuildLimits {
    run_bytes_max: 1 << 10,
    small_run_bytes_max: 0,
    update_bytes_max: 1 << 10,
    small_update_bytes_max: 1 << 10,
    batch_bytes: 2 << 10,
    warm_blocks: 7,
};

fn run(world: &mut World, path: &std::path::Path, step: &Step, n: usize) {
    match step {
        Step::Put { doc, key, rows } => {
            let body = body(u32::from(*key), u32::from(*rows), n as i32);
            world.submit(vec![world.put(&id(*doc), Some(body))]);
        }
        Step::Delete { doc } => {
            world.submit(vec![world.put(&id(*doc), None)]);
        }
        Step::Replicate {
            doc,
            generation,
            branch,
            deleted,
            key,
        } => {
            let body = (!deleted).then(|| body(u32::from(*key), 40, n as i32));
            let edit = World::replicated(&id(*doc), u64::from(*generation), *branch, body);
            world.submit(vec![edit]);
        }
        Step::Purge {
            doc,
            all,
            forgotten,
        } => {
            world.purge(&id(*doc), *all, if *forgotten { 0 } else { 1000 });
        }
        Step::Update => {
            for index in &world.indexes {
                index.update().unwrap();
            }
        }
        Step::FailingUpdate { after } => {
            world.language.fail_after(u32::from(*after));
            for index in &world.indexes {
                let result = index.update();
                assert!(
                    matches!(result, Ok(_) | Err(Error::Function(_))),
                    "{result:?}"
                );
            }
            world.language.forget();
        }
        Step::Warm => world.indexes.iter().for_each(|i| i.warm().unwrap()),
        Step::Compact => world
            .indexes
            .iter()
            .for_each(|i| assert!(i.compact(BUILD_WAIT).unwrap())),
        Step::Reopen => reopen(world, path),
    }
}

fn is_current(world: &World, index: &index::Index) -> bool {
    let meta = world.shard.meta();
    index.progress_seqs() == (meta.update_seq, meta.purge_seq)
}

fn reopen(world: &mut World, path: &std::path::Path) {
    let language = world.language.clone();
    let indexes = std::mem::take(&mut world.indexes);
    indexes.iter().for_each(|i| i.close());
    drop(indexes);
    world.store.close();
    // The engine lets go of its files with the last owner.
    let elsewhere = tempfile::tempdir().unwrap();
    let old = std::mem::replace(
        world,
        World::open(elsewhere.path(), &[], SMALL, language.clone()),
    );
    drop(old);
    *world = World::open(path, &specs(), SMALL, language);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: rounds(10, 16), max_shrink_iters: 400, ..ProptestConfig::default() })]
    #[test]
    fn an_index_has_the_rows_of_the_documents(steps in prop::collection::vec(step(), 1..60), seed in any::<u64>()) {
        let dir = tempfile::tempdir().unwrap();
        let mut dice = Dice(seed);
        let mut world = World::open(dir.path(), &specs(), SMALL, Native::default());
        world.language.limit_docs(seed % 4);
        for (n, step) in steps.iter().enumerate() {
            // A reader's snapshot does not change.
            let mut held = vec![];
            if !matches!(step, Step::Reopen) {
                let current = world.indexes.iter().filter(|i| is_current(&world, i));
                held.extend(current.map(|i| (i.view().unwrap(), rows(&world.shard, i.spec()))));
            }
            run(&mut world, dir.path(), step, n);
            for (view, rows) in held {
                check_rows(&view, &rows, &mut dice);
            }
            if matches!(step, Step::Update) {
                for index in &world.indexes {
                    check(&world.shard, index, &mut dice);
                }
            }
        }
        for index in &world.indexes {
            index.update().unwrap();
            check(&world.shard, index, &mut dice);
        }
        // An index that is built in one step is the same.
        for (n, spec) in specs().iter().enumerate() {
            world.add_index(200 + n as u32, spec, BuildLimits::default());
            let rebuilt = world.indexes.last().unwrap();
            rebuilt.update().unwrap();
            check(&world.shard, rebuilt, &mut dice);
        }
        world.close();
    }
}

/// Many documents with `rows` rows each in the first views.
fn load(world: &World, docs: u32, rows: u32, seed: i32) {
    for some in (0..docs).collect::<Vec<_>>().chunks(500) {
        let edits = some.iter().map(|&d| {
            let body = body(d.wrapping_mul(2_654_435_761) >> 8, rows, seed);
            world.put(&format!("p{}:{d:05}", d % 3), Some(body))
        });
        world.submit(edits.collect());
    }
}

#[test]
fn tens_of_thousands_of_rows_stay_right_through_builds_of_many_runs_edits_and_compaction() {
    let dir = tempfile::tempdir().unwrap();
    let mut dice = Dice(1);
    let limits = BuildLimits {
        run_bytes_max: 1 << 20,
        small_run_bytes_max: 64 << 10,
        update_bytes_max: 256 << 10,
        small_update_bytes_max: 64 << 10,
        batch_bytes: 32 << 10,
        warm_blocks: 7,
    };
    let mut world = World::open(dir.path(), &specs(), limits, Native::default());
    // The memory is full after some parts of a piece.
    world.language.limit_docs(7);
    let docs: u32 = rounds(2000, 3000);
    load(&world, docs, 20, 0);
    for round in 0..rounds(5, 6) {
        for index in &world.indexes {
            index.update().unwrap();
            check(&world.shard, index, &mut dice);
        }
        match round {
            0 => load(&world, docs, 7, 1),
            1 => {
                // Most rows go, and with them whole blocks and runs of blocks.
                let edits =
                    (100..docs - 100).map(|d| world.put(&format!("p{}:{d:05}", d % 3), None));
                world.submit(edits.collect());
            }
            2 => load(&world, 400, 150, 2),
            3 => {
                world.indexes.iter().for_each(|i| i.warm().unwrap());
                world
                    .indexes
                    .iter()
                    .for_each(|i| assert!(i.compact(BUILD_WAIT).unwrap()));
                load(&world, 50, 30, 3);
            }
            _ => {
                let edits = (0..40).map(|_| {
                    let d = dice.below(docs as usize);
                    let body = body(dice.below(1000) as u32, dice.below(60) as u32, round);
                    world.put(&format!("p{}:{d:05}", d % 3), Some(body))
                });
                world.submit(edits.collect());
            }
        }
    }
    reopen(&mut world, dir.path());
    for index in &world.indexes {
        index.update().unwrap();
        check(&world.shard, index, &mut dice);
    }
    world.close();
}
