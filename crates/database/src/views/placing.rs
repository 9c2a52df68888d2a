//! Where the rows of a query begin: how many are before them, and the first one after a long skip.
//!
//! With many keys that takes many searches, so it is done in pieces.

use std::cmp::Ordering;
use std::ops::Range;

use index::{IndexView, Pause, PlaceRange};

use super::query::{Ranges, ViewQuery};
use crate::Error;
use crate::turn::Turn;

/// Skips up to this many rows by walking them; more by the summary tree.
const SKIP_WALKED_MAX: u64 = 256;

/// Keys that are searched for in one piece, before the thread is released.
const SEARCHES_A_PIECE_MAX: u32 = 1000;

/// The searches for keys of one piece.
#[derive(Default)]
pub(super) struct Searches {
    done: u32,
    /// It starts after the first one: most queries need no other.
    turn: Option<Turn>,
}

impl Searches {
    /// Returns whether these are enough for a piece, after a search.
    pub fn are_enough(&mut self) -> bool {
        self.done += 1;
        let turn = self.turn.get_or_insert_with(Turn::begin);
        turn.is_over(true) || self.done >= SEARCHES_A_PIECE_MAX
    }
}

/// A query's rows that are placed.
pub(super) struct Selected<'a> {
    pub views: &'a [IndexView],
    /// The view's number in its index.
    pub view: usize,
    pub query: &'a ViewQuery,
    pub ranges: &'a mut Ranges,
    /// Rows that are still to be skipped.
    pub skip: &'a mut u64,
    /// Ends the walk through a block's rows, which may be long.
    pub pause: Pause<'a>,
}

/// The counts of a query.
#[derive(Clone, Copy)]
pub(super) struct Placed {
    /// Rows of the view, or of the partition.
    pub total_rows: u64,
    /// Rows before the first one.
    pub offset: u64,
}

/// The progress of placing.
#[derive(Default)]
pub(super) struct Placing {
    /// The shard whose rows before the first requested one are counted now.
    shard: usize,
    /// Ranges that this shard has no rows of.
    empty: usize,
    /// Rows before the first requested one, in the shards before.
    before: u64,
    /// The counts, once they are worked out.
    placed: Option<Placed>,
}

impl Placing {
    /// Works out the counts, and jumps over a long skip. `None`: it was enough for a piece, and
    /// more is left. After an error because of [`Selected::pause`], the next call continues.
    pub fn go_on(&mut self, rows: &mut Selected<'_>) -> Result<Option<Placed>, Error> {
        let mut searches = Searches::default();
        let placed = match self.placed {
            Some(placed) => placed,
            None => {
                let whole = rows.query.whole();
                if !self.count_before(rows, &whole, &mut searches)? {
                    return Ok(None);
                }
                let total_rows = rows.total(&whole)?;
                let offset = self.before.saturating_add(*rows.skip).min(total_rows);
                *self.placed.insert(Placed { total_rows, offset })
            }
        };
        let is_done = rows.skip_most(&mut searches)?;
        Ok(is_done.then_some(placed))
    }

    /// Counts rows before the first requested one, as CouchDB counts them with several ranges: in
    /// each shard those before the first range that it has rows of, or before the last one. Returns
    /// whether all are counted.
    fn count_before(
        &mut self,
        rows: &Selected<'_>,
        whole: &PlaceRange,
        searches: &mut Searches,
    ) -> Result<bool, Error> {
        let (view, pause) = (rows.view, rows.pause);
        while let Some(v) = rows.views.get(self.shard)
            && let Some(range) = rows.ranges.get(self.empty, rows.query)?
        {
            // Ranges of one key need one search.
            let next = self.empty + rows.ranges.count_equal(self.empty);
            if next < rows.ranges.len() && v.edge(view, &range, false)?.is_none() {
                self.empty = next;
            } else {
                let (from, to) = if rows.query.descending {
                    let from = v.rank_of_end_until(view, &range, pause)?;
                    (from, v.rank_of_end_until(view, whole, pause)?)
                } else {
                    let from = v.rank_until(view, &whole.low, pause)?;
                    (from, v.rank_until(view, &range.low, pause)?)
                };
                self.before += to.saturating_sub(from);
                (self.shard, self.empty) = (self.shard + 1, 0);
            }
            if rows.ranges.len() > 1 && searches.are_enough() {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl Selected<'_> {
    fn sum(&self, f: impl Fn(&IndexView) -> Result<u64, index::Error>) -> Result<u64, Error> {
        let mut sum = 0;
        for v in self.views {
            sum += f(v)?;
        }
        Ok(sum)
    }

    fn rows_in(&self, range: &PlaceRange) -> Result<u64, Error> {
        let (view, pause) = (self.view, self.pause);
        self.sum(|v| {
            let end = v.rank_of_end_until(view, range, pause)?;
            Ok(end.saturating_sub(v.rank_until(view, &range.low, pause)?))
        })
    }

    /// Rows of the view, or of the partition.
    fn total(&self, whole: &PlaceRange) -> Result<u64, Error> {
        let view = self.view;
        if *whole == PlaceRange::default() {
            return self.sum(|v| Ok(v.rows(view)));
        }
        self.rows_in(whole)
    }

    /// Passes rows until few are left to skip; returns whether that is done.
    fn skip_most(&mut self, searches: &mut Searches) -> Result<bool, Error> {
        while *self.skip > SKIP_WALKED_MAX {
            let Some(range) = self.ranges.front().cloned() else {
                break;
            };
            let rows = self.rows_in(&range)?;
            if rows > *self.skip {
                self.jump(range)?;
                break;
            }
            *self.skip -= rows;
            match rows {
                0 => self.ranges.pop_equal(self.query)?,
                _ => self.ranges.pop_front(self.query)?,
            }
            if searches.are_enough() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Begins the first range at a later row.
    fn jump(&mut self, range: PlaceRange) -> Result<(), Error> {
        let (view, pause) = (self.view, self.pause);
        // With several shards a row's rank is the sum of its ranks in all: found by halving over one shard's rows in turn.
        let place = if let [v] = self.views {
            let rank = if self.query.descending {
                let end = v.rank_of_end_until(view, &range, pause)?;
                end.checked_sub(*self.skip + 1)
            } else {
                Some(v.rank_until(view, &range.low, pause)? + *self.skip)
            };
            let place = rank.map(|r| v.place_at_until(view, r, pause));
            place.transpose()?.flatten()
        } else {
            self.place_of_nth(&range)?
        };
        let (Some(place), Some(range)) = (place, self.ranges.front_mut()) else {
            self.ranges.pop_front(self.query)?;
            return Ok(());
        };
        // From here on, nothing ends it.
        *self.skip = 0;
        if !self.query.descending {
            range.low = place;
            return Ok(());
        }
        range.high = Some([&place[..], &[0]].concat());
        // All rows that its document has with its key, in their own order, but as many fewer as there
        // are above it.
        for v in self.views {
            if let Some(same_key) = v.same_key(view, &place)? {
                let above = v.rank_of_end(view, &same_key)? - v.rank(view, &place)?;
                *self.skip = above.saturating_sub(1);
                range.high = same_key.high;
            }
        }
        Ok(())
    }

    /// The place of the row that comes after `skip` rows of the range, over several shards.
    fn place_of_nth(&self, range: &PlaceRange) -> Result<Option<Vec<u8>>, Error> {
        let (view, pause) = (self.view, self.pause);
        let ranks = |v: &IndexView| -> Result<Range<u64>, Error> {
            let start = v.rank_until(view, &range.low, pause)?;
            Ok(start..v.rank_of_end_until(view, range, pause)?)
        };
        let ranks: Vec<Range<u64>> = self.views.iter().map(ranks).collect::<Result<_, _>>()?;
        let nth = if self.query.descending {
            let rows: u64 = ranks.iter().map(|r| r.end.saturating_sub(r.start)).sum();
            match rows.checked_sub(*self.skip + 1) {
                Some(n) => n,
                None => return Ok(None),
            }
        } else {
            *self.skip
        };
        find_nth(
            ranks,
            nth,
            |shard, rank| Ok(self.views[shard].place_at_until(view, rank, pause)?),
            |shard, place: &Vec<u8>| Ok(self.views[shard].rank_until(view, place, pause)?),
        )
    }
}

/// Finds the row that comes after `nth` rows of all shards. `ranks` has, for each shard, the ranks of
/// the requested rows; `place_at` returns the place of a row, and `rank` counts the rows of a shard
/// before a place.
///
/// Each step compares with the middle of the shard that has the most rows left, and narrows all
/// shards. So with rows that are spread evenly it takes about as many steps as one shard would.
fn find_nth<P>(
    ranks: Vec<Range<u64>>,
    nth: u64,
    place_at: impl Fn(usize, u64) -> Result<Option<P>, Error>,
    rank: impl Fn(usize, &P) -> Result<u64, Error>,
) -> Result<Option<P>, Error> {
    let mut left = ranks.clone();
    let rows = |ranks: &Range<u64>| ranks.end.saturating_sub(ranks.start);
    while let Some(widest) = (0..left.len()).max_by_key(|&shard| rows(&left[shard]))
        && rows(&left[widest]) > 0
    {
        let middle = left[widest].start + rows(&left[widest]) / 2;
        let Some(place) = place_at(widest, middle)? else {
            break;
        };
        let mut before = 0;
        let mut here = Vec::with_capacity(left.len());
        for (shard, ranks) in ranks.iter().enumerate() {
            let at = rank(shard, &place)?.clamp(ranks.start, ranks.end.max(ranks.start));
            before += at - ranks.start;
            here.push(at);
        }
        match before.cmp(&nth) {
            Ordering::Equal => return Ok(Some(place)),
            Ordering::Less => {
                here[widest] = middle + 1;
                for (left, at) in left.iter_mut().zip(here) {
                    left.start = left.start.max(at);
                }
            }
            Ordering::Greater => {
                here[widest] = middle;
                for (left, at) in left.iter_mut().zip(here) {
                    left.end = left.end.min(at);
                }
            }
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_nth_row_of_several_shards_is_found_in_few_steps(
            shards in prop::collection::vec(0_usize..300, 1..9),
            low in 0_u64..100,
            high in 0_u64..2_000,
            nth in 0_u64..2_000,
            seed in any::<u64>(),
        ) {
            // Different places, in no order of the shards.
            let place = |shard: usize, row: usize| {
                let mixed = (row as u64).wrapping_mul(seed | 1).wrapping_add(shard as u64);
                ((mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) % 3_000, shard, row)
            };
            let shards: Vec<Vec<_>> = shards
                .iter()
                .enumerate()
                .map(|(shard, &rows)| {
                    let mut places: Vec<_> = (0..rows).map(|row| place(shard, row)).collect();
                    places.sort_unstable();
                    places
                })
                .collect();
            let (low, high) = ((low, 0, 0), (high.max(low), 0, 0));
            let rank = |shard: usize, place: &(u64, usize, usize)| {
                shards[shard].partition_point(|p| p < place) as u64
            };
            let ranks: Vec<Range<u64>> =
                (0..shards.len()).map(|shard| rank(shard, &low)..rank(shard, &high)).collect();
            let mut rows: Vec<_> = shards.iter().flatten().copied().collect();
            rows.retain(|place| (low..high).contains(place));
            rows.sort_unstable();
            let steps = Cell::new(0);
            let found = find_nth(
                ranks,
                nth,
                |shard, rank| {
                    steps.set(steps.get() + 1);
                    Ok(shards[shard].get(rank as usize).copied())
                },
                |shard, place| Ok(rank(shard, place)),
            );
            prop_assert_eq!(found.ok().flatten(), rows.get(nth as usize).copied());
            // Each step halves the rows of one shard.
            prop_assert!(steps.get() <= 10 * shards.len(), "{} steps", steps.get());
        }
    }

    #[test]
    fn evenly_spread_rows_take_the_steps_of_one_shard() {
        const SHARDS: u64 = 8;
        const ROWS: u64 = 1 << 17;
        for nth in [0, 1, 300, SHARDS * ROWS / 2, SHARDS * ROWS - 1] {
            let steps = Cell::new(0);
            let found = find_nth(
                vec![0..ROWS; SHARDS as usize],
                nth,
                |shard, rank| {
                    steps.set(steps.get() + 1);
                    Ok(Some(rank * SHARDS + shard as u64))
                },
                |shard, &place| Ok((place + SHARDS - 1 - shard as u64) / SHARDS),
            );
            assert_eq!(found.ok().flatten(), Some(nth));
            assert!(steps.get() <= 3 * 17, "{} steps", steps.get());
        }
    }
}
