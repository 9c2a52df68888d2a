//! Divides the CRCs of document ids into equal ranges, one for each shard.

/// The index of the shard that holds `id`, of `n`.
pub(crate) fn shard_index(id: &str, n: usize, partitioned: bool) -> usize {
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
