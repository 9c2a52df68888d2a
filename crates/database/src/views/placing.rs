//! Where the rows of a query begin: how many are before them, and the first one after a long skip.
//!
//! With many keys that takes many searches, so it is done in pieces.

use index::{IndexView, PlaceRange};

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
    /// more is left.
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
        let view = rows.view;
        while let Some(v) = rows.views.get(self.shard)
            && let Some(range) = rows.ranges.get(self.empty, rows.query)?
        {
            // Ranges of one key need one search.
            let next = self.empty + rows.ranges.count_equal(self.empty);
            if next < rows.ranges.len() && v.edge(view, &range, false)?.is_none() {
                self.empty = next;
            } else {
                let (from, to) = if rows.query.descending {
                    (v.rank_of_end(view, &range)?, v.rank_of_end(view, whole)?)
                } else {
                    (v.rank(view, &whole.low)?, v.rank(view, &range.low)?)
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
        let view = self.view;
        self.sum(|v| {
            let end = v.rank_of_end(view, range)?;
            Ok(end.saturating_sub(v.rank(view, &range.low)?))
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
        let view = self.view;
        // With several shards a row's rank is the sum of its ranks in all: found by halving over one shard's rows in turn.
        let place = if let [v] = self.views {
            let rank = if self.query.descending {
                v.rank_of_end(view, &range)?.checked_sub(*self.skip + 1)
            } else {
                Some(v.rank(view, &range.low)? + *self.skip)
            };
            rank.map(|r| v.place_at(view, r)).transpose()?.flatten()
        } else {
            self.place_of_nth(&range)?
        };
        let (Some(place), Some(range)) = (place, self.ranges.front_mut()) else {
            self.ranges.pop_front(self.query)?;
            return Ok(());
        };
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
        let view = self.view;
        let rows = self.rows_in(range)?;
        let nth = if self.query.descending {
            match rows.checked_sub(*self.skip + 1) {
                Some(n) => n,
                None => return Ok(None),
            }
        } else {
            *self.skip
        };
        for v in self.views {
            let start = v.rank(view, &range.low)?;
            let (mut low, mut high) = (start, v.rank_of_end(view, range)?);
            while low < high {
                let middle = low + (high - low) / 2;
                let Some(place) = v.place_at(view, middle)? else {
                    break;
                };
                let before = self.rows_in(&PlaceRange {
                    low: range.low.clone(),
                    high: Some(place.clone()),
                })?;
                match before.cmp(&nth) {
                    std::cmp::Ordering::Equal => return Ok(Some(place)),
                    std::cmp::Ordering::Less => low = middle + 1,
                    std::cmp::Ordering::Greater => high = middle,
                }
            }
        }
        Ok(None)
    }
}
