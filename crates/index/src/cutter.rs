//! Boundaries of blocks: after a number of rows, and at the start of groups, so that reductions of
//! groups are those of whole blocks.

use document::collation::group_prefix;

use crate::blocks::BLOCK_ROWS_SPLIT;
use crate::keys::take_terminated;

/// Groups by more elements than this are not distinguished.
const LEVELS: usize = 8;
/// A block is cut short for a group that starts in it only after this many rows, except after a
/// group of several blocks.
const SHORT_BLOCK_ROWS_MIN: u64 = 32;

/// Cuts rows into blocks. Besides full blocks, a group as long as a block ends one.
pub(crate) struct Cutter {
    partitioned: bool,
    /// Rows so far.
    rows: u64,
    /// The row that starts the block.
    block: u64,
    /// The sort key of the last one.
    last: Vec<u8>,
    /// Which row the group that it is of began with: the group by one element, by two, and so on.
    /// No later one is less.
    groups: [u64; LEVELS],
}

/// A block is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockEnd {
    /// Number of rows, of those that are in no block yet.
    pub rows: usize,
    /// Whether the next block starts with a group, at the sort key of its first row; else at the
    /// place of the row.
    pub at_group: bool,
}

impl Cutter {
    pub fn new(partitioned: bool) -> Cutter {
        Cutter {
            partitioned,
            rows: 0,
            block: 0,
            last: vec![],
            groups: [0; LEVELS],
        }
    }

    /// Adds the sort key of the next row, with its partition; returns the block that ends before
    /// that row, if any.
    pub fn next(&mut self, sort: &[u8]) -> Option<BlockEnd> {
        let row = self.rows;
        self.rows += 1;
        let full = u64::from(BLOCK_ROWS_SPLIT);
        let mut at = None;
        if *sort != *self.last {
            let level = self.changed_level(sort);
            let began = self.groups[level];
            self.groups[level..].fill(row);
            self.last.clear();
            self.last.extend_from_slice(sort);
            let (group, block) = (row - began, row - self.block);
            let is_worth_a_block = block >= SHORT_BLOCK_ROWS_MIN || group >= 4 * full && block > 0;
            at = (group >= full && is_worth_a_block).then_some((row, true));
        }
        if row - self.block >= full {
            let least = self.block + SHORT_BLOCK_ROWS_MIN;
            let group = self.groups.iter().find(|began| **began >= least);
            at = at.or(Some(group.map_or((row, false), |&began| (began, true))));
        }
        let (at, at_group) = at?;
        let rows = at - self.block;
        self.block = at;
        Some(BlockEnd {
            rows: rows as usize,
            at_group,
        })
    }

    /// Returns how many of the first elements equal those of the last row: the group by one more
    /// ends.
    fn changed_level(&self, sort: &[u8]) -> usize {
        let last = &self.last[..];
        let skip = match self.partitioned {
            true => take_terminated(last).map_or(last.len(), |(_, rest)| last.len() - rest.len()),
            false => 0,
        };
        let alike = last.iter().zip(sort).take_while(|(a, b)| a == b).count();
        let is_alike = |&level: &usize| {
            group_prefix(&last[skip..], level).is_some_and(|length| skip + length <= alike)
        };
        (1..LEVELS).take_while(is_alike).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::put_terminated;
    use crate::map::write_key_sort;

    fn sort(key: &str) -> Vec<u8> {
        let mut sort = vec![];
        write_key_sort(key.as_bytes(), false, &mut sort).unwrap();
        sort
    }

    /// Returns the first rows of blocks, and whether each starts with a group.
    fn blocks(partitioned: bool, sorts: impl IntoIterator<Item = Vec<u8>>) -> Vec<(usize, bool)> {
        let mut cutter = Cutter::new(partitioned);
        let mut first = 0;
        let cuts = sorts.into_iter().filter_map(|sort| cutter.next(&sort));
        cuts.map(|cut| {
            first += cut.rows;
            (first, cut.at_group)
        })
        .collect()
    }

    #[test]
    fn rows_of_one_group_are_cut_when_a_block_is_full() {
        let cuts = blocks(false, (0..600).map(|_| sort("1")));
        assert_eq!(cuts, [(192, false), (384, false), (576, false)]);
        assert_eq!(blocks(false, (0..192).map(|_| sort("1"))), []);
    }

    #[test]
    fn a_long_group_ends_a_block() {
        let keys = [("[1,1]", 250), ("[1,2]", 300), ("[2,1]", 500)];
        let rows = keys.iter().flat_map(|(key, n)| (0..*n).map(|_| sort(key)));
        let cuts = blocks(false, rows);
        assert!(cuts.contains(&(250, true)), "{cuts:?}");
        assert!(cuts.contains(&(550, true)), "{cuts:?}");
        // 250 rows with the same first element, each with a different second one.
        let rows = (0..750).map(|n| sort(&format!("[{},{n}]", n / 250)));
        let cuts = blocks(false, rows);
        assert!(
            cuts.contains(&(250, true)) && cuts.contains(&(500, true)),
            "{cuts:?}"
        );
    }

    #[test]
    fn a_full_block_ends_where_the_widest_group_in_it_begins() {
        // The group by one element starts at 100, that by two at 150.
        let key = |n| match n {
            0..100 => format!("[1,{n}]"),
            100..150 => "[2,1]".to_owned(),
            _ => "[2,2]".to_owned(),
        };
        let cuts = blocks(false, (0..300).map(|n| sort(&key(n))));
        assert_eq!(cuts[0], (100, true));
        // Too early for a block of its own.
        let key = |n| if n < 20 { "1" } else { "2" };
        let cuts = blocks(false, (0..300).map(|n| sort(key(n))));
        assert_eq!(cuts, [(192, false)]);
    }

    #[test]
    fn groups_that_are_a_little_longer_than_a_block_are_not_two_each() {
        let rows = (0..193 * 100).map(|n| sort(&format!("{}", n / 193)));
        let count = blocks(false, rows).len();
        assert!(count <= 125, "{count} blocks of 100 groups");
    }

    #[test]
    fn partitions_are_groups_too() {
        let of = |partition: &str| {
            let mut place = vec![];
            put_terminated(partition.as_bytes(), &mut place);
            place.extend(sort("[1,1]"));
            place
        };
        let rows = (0..500).map(|n| of(if n < 250 { "a" } else { "b" }));
        let cuts = blocks(true, rows);
        assert!(cuts.contains(&(250, true)), "{cuts:?}");
    }

    #[test]
    fn no_block_is_longer_than_it_may_be() {
        for period in [1, 3, 31, 33, 191, 193, 250] {
            let rows = (0..5_000).map(|n| sort(&format!("[{},{}]", n / period, n % 7)));
            let mut before = 0;
            for (first, _) in blocks(false, rows) {
                assert!(first > before && first - before <= BLOCK_ROWS_SPLIT as usize);
                before = first;
            }
            assert!(5_000 - before <= BLOCK_ROWS_SPLIT as usize);
        }
    }
}
