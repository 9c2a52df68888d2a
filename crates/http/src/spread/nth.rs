//! Finds a row by its rank over all shards, with few questions to their nodes.
//!
//! Each step reads the row in the middle of the shard that has the most rows left, and the number of
//! rows before it in all shards. So with rows that are spread evenly it takes about as many
//! steps as one shard would.

use std::cmp::Ordering;
use std::ops::Range;

/// A search for the row that comes after a number of rows of all shards. `P` is a row's place.
#[derive(Clone, Debug)]
pub struct NthRow<P> {
    nth: u64,
    /// The ranks that the row may have in each shard.
    left: Vec<Range<u64>>,
    start: NthStart<P>,
}

/// Where the rows that are left begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NthStart<P> {
    /// At the first row.
    First,
    /// At this row.
    At(P),
    /// After this row.
    After(P),
}

/// The next step of a search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NthStep<P> {
    /// The ranks in all shards of this row are requested: a shard, and the row's rank in it.
    Row(usize, u64),
    /// The row is near: where to begin, and the number of rows that are still before it.
    Near(NthStart<P>, u64),
}

impl<P: Clone> NthRow<P> {
    /// Begins a search for the row that comes after `nth` others. `counts` are the rows of shards.
    pub fn new(nth: u64, counts: impl IntoIterator<Item = u64>) -> NthRow<P> {
        NthRow {
            nth,
            left: counts.into_iter().map(|count| 0..count).collect(),
            start: NthStart::First,
        }
    }

    /// Returns the next step; the row is near when at most `few` rows are left.
    pub fn step(&self, few: u64) -> NthStep<P> {
        let rows = |ranks: &Range<u64>| ranks.end.saturating_sub(ranks.start);
        let widest = (0..self.left.len()).max_by_key(|shard| rows(&self.left[*shard]));
        let is_near = self.left.iter().map(rows).sum::<u64>() <= few;
        match widest.filter(|_| !is_near) {
            Some(shard) => {
                let ranks = &self.left[shard];
                NthStep::Row(shard, ranks.start + rows(ranks) / 2)
            }
            None => {
                let before: u64 = self.left.iter().map(|ranks| ranks.start).sum();
                NthStep::Near(self.start.clone(), self.nth.saturating_sub(before))
            }
        }
    }

    /// Takes the place of the requested row, and the numbers of rows before it in all shards.
    pub fn take(&mut self, shard: usize, place: P, ranks: &[u64]) {
        let before: u64 = ranks.iter().sum();
        for (i, (left, rank)) in self.left.iter_mut().zip(ranks).enumerate() {
            let rank = (*rank).clamp(left.start, left.end);
            match before.cmp(&self.nth) {
                Ordering::Less => left.start = (rank + u64::from(i == shard)).min(left.end),
                Ordering::Equal => *left = rank..rank,
                Ordering::Greater => left.end = rank,
            }
        }
        match before.cmp(&self.nth) {
            Ordering::Less => self.start = NthStart::After(place),
            Ordering::Equal => self.start = NthStart::At(place),
            Ordering::Greater => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_row_is_found_in_few_steps(
            shards in prop::collection::vec(prop::collection::btree_set(0u32..5_000, 0..300), 1..8),
            nth in 0u64..2_500,
            few in 1u64..40,
        ) {
            // Each row is in one shard.
            let count = shards.len();
            let shards: Vec<Vec<u64>> = (0u64..)
                .zip(&shards)
                .map(|(i, rows)| rows.iter().map(|row| u64::from(*row) * count as u64 + i).collect())
                .collect();
            let mut all: Vec<u64> = shards.iter().flatten().copied().collect();
            all.sort_unstable();
            let mut search = NthRow::new(nth, shards.iter().map(|rows| rows.len() as u64));
            let mut steps = 0;
            let (start, skip) = loop {
                match search.step(few) {
                    NthStep::Near(start, skip) => break (start, skip),
                    NthStep::Row(shard, rank) => {
                        let place = shards[shard][rank as usize];
                        let rank_of = |rows: &Vec<u64>| rows.partition_point(|row| *row < place) as u64;
                        let ranks: Vec<u64> = shards.iter().map(rank_of).collect();
                        search.take(shard, place, &ranks);
                    }
                }
                steps += 1;
                prop_assert!(steps <= 20 * count, "{} steps", steps);
            };
            let first = match start {
                NthStart::First => 0,
                NthStart::At(place) => all.partition_point(|row| *row < place),
                NthStart::After(place) => all.partition_point(|row| *row <= place),
            };
            prop_assert_eq!(all.get(first + skip as usize), all.get(nth as usize));
            // There are no more rows to pass, unless there are no rows behind them.
            prop_assert!(skip <= few || nth >= all.len() as u64);
        }
    }
}
