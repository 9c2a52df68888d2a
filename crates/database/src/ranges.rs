//! Which shard holds a document: each has one of equal ranges of the CRC-32 of ids.

use std::sync::Arc;

use document::DocId;
use storage::Shard;

use crate::Error;
use crate::database::Database;
use crate::hash_ranges::{Sharding, index_of, range_of};

/// A shard's part of the 32-bit CRC of document ids, as `00000000-7fffffff`.
pub struct ShardRange {
    /// First and last value, in hexadecimal.
    pub range: String,
}

impl ShardRange {
    fn of((start, end): (u32, u32)) -> ShardRange {
        ShardRange {
            range: format!("{start:08x}-{end:08x}"),
        }
    }
}

impl Database {
    /// The index of the shard that holds `id`: by the CRC of the id, or of its partition.
    pub fn shard_index(&self, id: &str) -> usize {
        self.sharding().index_of(id)
    }

    /// Returns how documents are divided among the shards.
    pub(crate) fn sharding(&self) -> Sharding {
        Sharding {
            shards: self.all_shards().len(),
            is_partitioned: self.is_partitioned(),
            has_design_shard: self.is_spread(),
        }
    }

    /// Returns the index of the shard that has all design documents and nothing else; `None` if
    /// they are in all shards.
    pub fn design_shard(&self) -> Option<usize> {
        let sharding = self.sharding();
        sharding.has_design_shard.then(|| sharding.ranges())
    }

    pub(crate) fn shard_for(&self, id: &str) -> &Arc<Shard> {
        &self.all_shards()[self.shard_index(id)]
    }

    /// Returns the update seq of the shard that a document belongs to.
    pub fn update_seq_near(&self, id: &str) -> u64 {
        self.shard_for(id).meta().update_seq
    }

    /// Returns whether a document has changed since its shard had this update seq.
    ///
    /// # Errors
    /// Those of the store.
    pub fn has_changed_since(&self, id: &str, update_seq: u64) -> Result<bool, Error> {
        let record = self.shard_for(id).record(id)?;
        Ok(record.is_some_and(|record| record.seq > update_seq))
    }

    /// The first and the last CRC of the shard with this index, which is below the number of
    /// ranges.
    pub fn shard_range(&self, index: usize) -> (u32, u32) {
        range_of(index, self.sharding().ranges())
    }

    /// The index of the shard that has exactly this range; `None` when no shard has.
    pub fn shard_by_range(&self, range: (u32, u32)) -> Option<usize> {
        let n = self.sharding().ranges();
        let index = index_of(range.0, n);
        (range_of(index, n) == range).then_some(index)
    }

    /// The ranges of all shards that have one.
    pub fn shards(&self) -> Vec<ShardRange> {
        (0..self.sharding().ranges())
            .map(|index| ShardRange::of(self.shard_range(index)))
            .collect()
    }

    /// The range of the shard that holds a document. That of design documents, if it has no range,
    /// is shown as all CRCs.
    pub fn shard_of(&self, id: &DocId) -> ShardRange {
        let index = self.shard_index(id.as_str());
        ShardRange::of(match self.design_shard() == Some(index) {
            true => range_of(0, 1),
            false => self.shard_range(index),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_cover_all_crcs_without_gaps_and_hold_what_falls_into_them() {
        for n in 1..=256 {
            let ranges: Vec<_> = (0..n).map(|index| range_of(index, n)).collect();
            assert_eq!((ranges[0].0, ranges[n - 1].1), (0, u32::MAX), "{n}");
            for pair in ranges.windows(2) {
                assert_eq!(pair[0].1 + 1, pair[1].0, "{n}");
            }
            for (index, &(start, end)) in ranges.iter().enumerate() {
                assert!(start < end, "{n}");
                for crc in [start, start + 1, start.midpoint(end), end - 1, end] {
                    assert_eq!(index_of(crc, n), index, "{crc} of {n}");
                }
            }
        }
    }

    #[test]
    fn ranges_are_shown_as_couchdb_writes_them() {
        let shown = |n| (0..n).map(move |index| ShardRange::of(range_of(index, n)).range);
        assert_eq!(shown(1).collect::<Vec<_>>(), ["00000000-ffffffff"]);
        assert_eq!(
            shown(3).collect::<Vec<_>>(),
            [
                "00000000-55555554",
                "55555555-aaaaaaa9",
                "aaaaaaaa-ffffffff"
            ]
        );
    }
}
