//! Boundaries of blocks: after a number of rows or bytes, and at the start of groups, so that reductions of
//! groups are those of whole blocks.

use document::collation::group_prefix;

use crate::blocks::{BLOCK_BYTES_MAX, BLOCK_ROWS_SPLIT};
use crate::keys::take_terminated;
use crate::part::prefix_len;

/// Groups by more elements than this are not distinguished.
const LEVELS: usize = 8;
/// A block is cut short for a group that starts in it only after this many rows, except after a
/// group of several blocks.
const SHORT_BLOCK_ROWS_MIN: u64 = 32;

/// Cuts rows into blocks. Besides full blocks, a group as long as a block ends one.
pub(crate) struct Cutter {
    partitioned: bool,
    /// Sort keys begin with a principal.
    by_principal: bool,
    /// The next row.
    next: Start,
    /// The row that starts the block.
    block: Start,
    /// The sort key of the last one.
    last: Vec<u8>,
    /// Which row the group that it is of began with: the group by one element, by two, and so on.
    /// No later one is less.
    groups: [Start; LEVELS],
}

/// A row that starts something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Start {
    /// Rows before it.
    row: u64,
    /// Bytes of the rows before it.
    bytes: u64,
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
            by_principal: false,
            next: Start::default(),
            block: Start::default(),
            last: vec![],
            groups: [Start::default(); LEVELS],
        }
    }

    /// Returns the cutter for sort keys that begin with a principal, or do not.
    pub fn by_principal(self, by_principal: bool) -> Cutter {
        Cutter {
            by_principal,
            ..self
        }
    }

    /// Adds the sort key of the next row, with its partition, and its counted bytes; returns the block
    /// that ends before that row, if any.
    pub fn next(&mut self, sort: &[u8], bytes: u64) -> Option<BlockEnd> {
        let here = self.next;
        self.next.row += 1;
        self.next.bytes += bytes;
        let full = u64::from(BLOCK_ROWS_SPLIT);
        let (rows, row) = (here.row - self.block.row, here.row);
        let mut end = None;
        if *sort != *self.last {
            let level = self.changed_level(sort);
            let group = row - self.groups[level].row;
            self.groups[level..].fill(here);
            self.last.clear();
            self.last.extend_from_slice(sort);
            let is_worth_a_block = rows >= SHORT_BLOCK_ROWS_MIN || group >= 4 * full && rows > 0;
            end = (group >= full && is_worth_a_block).then_some((here, true));
        }
        let is_long = bytes > 0 && self.next.bytes - self.block.bytes > BLOCK_BYTES_MAX;
        if is_long && rows > 0 {
            end = end.or(Some((here, self.groups.contains(&here))));
        } else if rows >= full {
            let least = self.block.row + SHORT_BLOCK_ROWS_MIN;
            let group = self.groups.iter().find(|began| began.row >= least);
            end = end.or(Some(group.map_or((here, false), |&began| (began, true))));
        }
        let (end, at_group) = end?;
        let rows = end.row - self.block.row;
        self.block = end;
        Some(BlockEnd {
            rows: rows as usize,
            at_group,
        })
    }

    /// Returns whether the next block may begin with a row that has this number of rows of the block before
    /// it. It may also begin with the next row.
    pub fn may_cut_at(&self, row: usize) -> bool {
        let row = self.block.row + row as u64;
        self.groups.iter().any(|group| group.row == row)
    }

    /// Returns how many of the first elements equal those of the last row: the group by one more
    /// ends.
    fn changed_level(&self, sort: &[u8]) -> usize {
        let last = &self.last[..];
        let mut skip = match self.by_principal {
            true => prefix_len(last).unwrap_or(last.len()),
            false => 0,
        };
        if self.partitioned {
            let rest = take_terminated(&last[skip..]).map_or(0, |(_, rest)| rest.len());
            skip = last.len() - rest;
        }
        let alike = last.iter().zip(sort).take_while(|(a, b)| a == b).count();
        let is_alike = |&level: &usize| {
            group_prefix(&last[skip..], level).is_some_and(|length| skip + length <= alike)
        };
        (1..LEVELS).take_while(is_alike).count()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

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
        long_blocks(partitioned, sorts.into_iter().map(|sort| (sort, 1)))
    }

    /// Returns the blocks of rows with these counted bytes.
    fn long_blocks(
        partitioned: bool,
        rows: impl IntoIterator<Item = (Vec<u8>, u64)>,
    ) -> Vec<(usize, bool)> {
        let mut cutter = Cutter::new(partitioned);
        let mut first = 0;
        let rows = rows.into_iter();
        let cuts = rows.filter_map(|(sort, bytes)| cutter.next(&sort, bytes));
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
    fn a_block_of_long_rows_has_few_of_them() {
        let quarter = BLOCK_BYTES_MAX / 4;
        // Of different keys, and of one.
        let rows = (0..10).map(|n| (sort(&format!("{n}")), quarter));
        assert_eq!(long_blocks(false, rows), [(4, true), (8, true)]);
        let rows = (0..10).map(|_| (sort("1"), quarter));
        assert_eq!(long_blocks(false, rows), [(4, false), (8, false)]);
        // A row that is longer than a block is one of its own.
        let rows = [1, 9 * quarter, 1, 1].map(|bytes| (sort("1"), bytes));
        assert_eq!(long_blocks(false, rows), [(1, false), (2, false)]);
        // Rows of no counted bytes end no block.
        let rows = (0..100).map(|n| (sort("1"), if n == 0 { 9 * quarter } else { 0 }));
        assert_eq!(long_blocks(false, rows), []);
    }

    proptest! {
        #[test]
        fn blocks_begin_only_where_they_may(
            rows in proptest::collection::vec((0..3u32, 0..4u32), 1..1500),
        ) {
            let mut sorts: Vec<_> = rows.iter().map(|(a, b)| sort(&format!("[{a},{b}]"))).collect();
            sorts.sort();
            let mut cutter = Cutter::new(false);
            // Whether each row of the block may begin the next one.
            let mut rows: Vec<bool> = vec![];
            for sort in sorts {
                if let Some(cut) = cutter.next(&sort, 1) {
                    rows.drain(..cut.rows);
                    prop_assert!(rows.first().is_none_or(|may_begin| *may_begin));
                }
                rows.push(true);
                for (n, may_begin) in rows.iter_mut().enumerate() {
                    *may_begin &= cutter.may_cut_at(n);
                }
                prop_assert!(rows.iter().filter(|may_begin| **may_begin).count() <= LEVELS);
            }
        }

        #[test]
        fn no_block_of_several_rows_has_more_bytes_than_it_may(
            rows in proptest::collection::vec((0..4u32, 0..4u32, 0..BLOCK_BYTES_MAX / 20), 1..800),
            often in 0..300u64,
        ) {
            let mut rows: Vec<_> = rows
                .into_iter()
                .enumerate()
                // Some rows are long.
                .map(|(n, (a, b, bytes))| {
                    let is_long = (n as u64).is_multiple_of(often + 1);
                    (sort(&format!("[{a},{b}]")), if is_long { bytes * 30 } else { bytes / 16 })
                })
                .collect();
            rows.sort();
            let mut before = 0;
            let ends = long_blocks(false, rows.clone()).into_iter().map(|(end, _)| end);
            for end in ends.chain([rows.len()]) {
                let block = &rows[before..end];
                let bytes: u64 = block.iter().map(|row| row.1).sum();
                prop_assert!(!block.is_empty() && block.len() <= BLOCK_ROWS_SPLIT as usize);
                let counted = block.iter().filter(|row| row.1 > 0).count();
                prop_assert!(bytes <= BLOCK_BYTES_MAX || counted == 1, "{} bytes", bytes);
                before = end;
            }
        }
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
