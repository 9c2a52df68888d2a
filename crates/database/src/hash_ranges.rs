//! Divides the CRCs of document ids into equal ranges, one for each shard.

/// The prefix of ids of design documents.
const DESIGN: &str = "_design/";

/// How the documents of a database are divided among its shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sharding {
    /// All shards.
    pub shards: usize,
    /// Whether documents of a partition are in one shard.
    pub is_partitioned: bool,
    /// Whether design documents are in the last shard, which has nothing else: in a spread
    /// database, each node has this shard, and few have each of the others.
    pub has_design_shard: bool,
}

impl Sharding {
    /// Returns the number of shards that have ranges of CRCs.
    pub fn ranges(self) -> usize {
        self.shards - usize::from(self.has_design_shard)
    }

    /// Returns the index of the shard that holds `id`.
    pub fn index_of(self, id: &str) -> usize {
        match self.has_design_shard && id.starts_with(DESIGN) {
            true => self.ranges(),
            false => shard_index(id, self.ranges(), self.is_partitioned),
        }
    }
}

/// The index of the shard that holds `id`, of `n`.
fn shard_index(id: &str, n: usize, partitioned: bool) -> usize {
    if n == 1 {
        return 0;
    }
    let hashed = if partitioned && !id.starts_with('_') {
        id.split_once(':').map_or(id, |(p, _)| p)
    } else {
        id
    };
    index_of(crc32fast::hash(hashed.as_bytes()), n)
}

/// How many CRCs each but the last of `n` ranges has.
fn width(n: usize) -> u64 {
    (1 << 32) / n as u64
}

/// The index of the range that a CRC falls into, of `n` equal ones.
pub(crate) fn index_of(crc: u32, n: usize) -> usize {
    ((u64::from(crc) / width(n)) as usize).min(n - 1)
}

/// The range with this index, of `n` equal ones. The last one has the remainder.
pub(crate) fn range_of(index: usize, n: usize) -> (u32, u32) {
    debug_assert!(index < n, "shard {index} of {n}");
    let start = width(n) * index as u64;
    let end = match index + 1 == n {
        true => u32::MAX,
        false => (start + width(n) - 1) as u32,
    };
    (start as u32, end)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_design_shard_has_all_design_documents_and_changes_no_other_place(
            id in "(_design/|_local/|p:)?[a-z]{1,8}",
            ranges in 1usize..20,
            is_partitioned: bool,
        ) {
            let plain = Sharding { shards: ranges, is_partitioned, has_design_shard: false };
            let spread = Sharding { shards: ranges + 1, has_design_shard: true, ..plain };
            prop_assert_eq!(spread.ranges(), ranges);
            prop_assert!(plain.index_of(&id) < ranges);
            match id.starts_with(DESIGN) {
                true => prop_assert_eq!(spread.index_of(&id), ranges),
                false => prop_assert_eq!(spread.index_of(&id), plain.index_of(&id)),
            }
        }
    }
}
