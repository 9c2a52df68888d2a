//! Iterators over partly cached rows visit the same rows as over a sorted list.

use crate::support;

use index::{BuildLimits, IndexView, PlaceRange};
use support::language::Native;
use support::model::{Row, rows};
use support::{Dice, World, body, specs};

fn load(world: &World, docs: std::ops::Range<u32>, seed: i32) {
    let edits = docs.map(|d| {
        let body = body(d.wrapping_mul(2_654_435_761) >> 8, 4, seed);
        world.put(&format!("p{}:{d:05}", d % 3), Some(body))
    });
    world.submit(edits.collect());
}

/// A place at a row, right before it, right after it, or anywhere.
fn some_place(rows: &[Row], dice: &mut Dice) -> Vec<u8> {
    let mut place = rows[dice.below(rows.len())].place.clone();
    match dice.below(4) {
        0 => place.push(0),
        1 => place.truncate(dice.below(place.len() + 1)),
        2 => {
            place.pop();
        }
        _ => {}
    }
    place
}

/// One iterator advances and jumps, several times.
fn walk(view: &IndexView, n: usize, rows: &[Row], dice: &mut Dice) {
    // Readers stay in the same part for a while, so that its blocks are read again.
    let near = dice.below(rows.len());
    let near = &rows[near..(near + 2_000).min(rows.len())];
    let (mut low, mut high) = (some_place(near, dice), some_place(near, dice));
    if low > high {
        std::mem::swap(&mut low, &mut high);
    }
    let range = PlaceRange {
        low: if dice.below(5) == 0 { vec![] } else { low },
        high: (dice.below(5) > 0).then_some(high),
    };
    let descending = dice.below(2) == 0;
    let within = |place: &[u8]| {
        *place >= *range.low && range.high.as_ref().is_none_or(|high| *place < **high)
    };
    let wanted: Vec<&Row> = rows.iter().filter(|r| within(&r.place)).collect();
    let mut iter = view.iter(n, &range, descending);
    let mut at = match descending {
        true => wanted.len().checked_sub(1),
        false => Some(0),
    };
    for _ in 0..dice.below(60) {
        let expected = at.and_then(|at| wanted.get(at));
        let found = iter.row().unwrap();
        assert_eq!(
            found.map(|row| (row.place, row.stored.key, row.stored.value)),
            expected.map(|row| (&*row.place, &*row.key, &*row.value)),
            "view {n} {range:?} {descending}"
        );
        assert_eq!(iter.place().unwrap(), expected.map(|row| &*row.place));
        if dice.below(4) == 0 {
            let place = some_place(near, dice);
            iter.seek(&place);
            at = match descending {
                true => wanted.partition_point(|r| r.place <= place).checked_sub(1),
                false => Some(wanted.partition_point(|r| r.place < place)),
            };
        } else if expected.is_some() {
            iter.next();
            at = match descending {
                true => at.and_then(|at| at.checked_sub(1)),
                false => at.map(|at| at + 1),
            };
        }
    }
}

#[test]
fn readers_find_the_same_rows_in_memory_and_on_disk() {
    let dir = tempfile::tempdir().unwrap();
    let mut dice = Dice(7);
    let world = World::open(
        dir.path(),
        &specs(),
        BuildLimits::default(),
        Native::default(),
    );
    load(&world, 0..2_500, 0);
    for round in 0..4 {
        for index in &world.indexes {
            index.update().unwrap();
            let view = index.view().unwrap();
            for (n, rows) in rows(&world.shard, index.spec()).iter().enumerate() {
                if !rows.is_empty() {
                    (0..300).for_each(|_| walk(&view, n, rows, &mut dice));
                }
            }
        }
        assert!(world.row_cache.bytes() > 0, "rows are kept");
        // Some of the blocks change.
        let from = dice.below(2_300) as u32;
        load(&world, from..from + 200, round + 1);
    }
    world.close();
}
