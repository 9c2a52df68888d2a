//! Cache of the rows of frequently read blocks: a reader of few rows opens no cursor of the engine
//! for them, which would cost more than the rows.
//!
//! A block's rows are those of its version, which changes with any of them ([`Heat`]), so that a
//! cached block is never out of date. Blocks that are no longer read are evicted when the budget is
//! spent.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use quick_cache::Weighter;
use quick_cache::sync::Cache;

/// Maximum bytes of a block's cached rows: for longer ones the engine's cursor is a small part of
/// the read's cost.
const BLOCK_BYTES_MAX: usize = 64 << 10;
/// Number of reads after which a block is cached, since its rows changed. Caching it costs as much
/// as the cursors of about ten readers of a few rows; a block that was read four times is likely to
/// be read more often.
const ASKS_MIN: u32 = 4;
/// The same where it takes the place of others.
const ASKS_MIN_FULL: u32 = 32;
/// Maximum number of doublings of these thresholds, for blocks that change before caching pays off.
const DOUBLED_MAX: u8 = 5;
/// Reads beyond this number are not counted.
const ASKS_MAX: u32 = 1 << 20;
/// From this number of reads on, the rows cannot be cached. Concurrent readers that count cannot
/// reach its end.
const NEVER: u32 = 1 << 31;
/// Memory of a cached block besides its bytes: its entry in the cache's table, and the allocator's
/// rounding.
const OVERHEAD_BYTES: usize = 160;
/// Memory of a block's read counter, in bytes.
const HEAT_BYTES: usize = size_of::<Heat>() + 24;
/// Initial estimate of a block's size, in bytes.
const USUAL_BYTES: usize = 16 << 10;

/// Rows by their blocks' versions.
type BlockCache = Cache<u64, Arc<BlockRows>, Bytes>;

/// Number of reads of one version of a block.
pub(crate) struct Heat {
    /// The cache key: unique among all versions of all blocks.
    version: u64,
    asks: AtomicU32,
    doubled: u8,
    /// The cache.
    cache: Arc<BlockCache>,
}

impl std::fmt::Debug for Heat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Heat({}, {:?})", self.version, self.asks)
    }
}

impl Drop for Heat {
    fn drop(&mut self) {
        // This version can no longer be requested.
        if *self.asks.get_mut() >= self.asks_min(true) {
            self.cache.remove(&self.version);
        }
    }
}

impl Heat {
    fn new(doubled: u8, cache: Arc<BlockCache>) -> Heat {
        static VERSIONS: AtomicU64 = AtomicU64::new(0);
        Heat {
            version: VERSIONS.fetch_add(1, Relaxed),
            asks: AtomicU32::new(0),
            doubled,
            cache,
        }
    }

    fn asks_min(&self, has_room: bool) -> u32 {
        let least = if has_room { ASKS_MIN } else { ASKS_MIN_FULL };
        least << self.doubled
    }

    /// Returns by how much the next version's threshold is to be doubled.
    fn doubled_next(&self) -> u8 {
        match self.asks.load(Relaxed) {
            // Read often enough to pay for caching it.
            asks if asks >= 4 * self.asks_min(true) && asks < NEVER => {
                self.doubled.saturating_sub(1)
            }
            _ => (self.doubled + 1).min(DOUBLED_MAX),
        }
    }
}

/// The number of reads of a block, if any. Shared with the block's copies while their rows are the
/// same.
#[derive(Clone, Debug, Default)]
pub(crate) struct BlockHeat {
    heat: std::sync::OnceLock<Arc<Heat>>,
    doubled: u8,
}

impl BlockHeat {
    fn get(&self, cache: &Arc<BlockCache>) -> &Heat {
        self.heat
            .get_or_init(|| Arc::new(Heat::new(self.doubled, cache.clone())))
    }

    /// Returns its approximate memory besides its block, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.heat.get().map_or(0, |_| HEAT_BYTES)
    }

    /// The block's rows changed.
    pub fn change(&mut self) {
        if let Some(heat) = self.heat.take() {
            self.doubled = heat.doubled_next();
        }
    }
}

/// All rows of a block, by their places.
#[derive(Debug, Default)]
pub(crate) struct BlockRows {
    bytes: Vec<u8>,
    /// End of each place and each value in `bytes`.
    ends: Vec<(u32, u32)>,
}

impl BlockRows {
    /// Appends a row; returns false when it would exceed the maximum size.
    pub fn push(&mut self, place: &[u8], value: &[u8]) -> bool {
        if self.bytes.len() + place.len() + value.len() > BLOCK_BYTES_MAX {
            return false;
        }
        self.bytes.extend_from_slice(place);
        let place_end = self.bytes.len() as u32;
        self.bytes.extend_from_slice(value);
        self.ends.push((place_end, self.bytes.len() as u32));
        true
    }

    /// Returns the number of rows.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    fn begin(&self, row: usize) -> usize {
        row.checked_sub(1).map_or(0, |n| self.ends[n].1 as usize)
    }

    /// Returns the place of a row.
    pub fn place(&self, row: usize) -> &[u8] {
        &self.bytes[self.begin(row)..self.ends[row].0 as usize]
    }

    /// Returns the stored value of a row.
    pub fn value(&self, row: usize) -> &[u8] {
        let (begin, end) = self.ends[row];
        &self.bytes[begin as usize..end as usize]
    }

    /// Rows before the first whose place does not satisfy `is_before`, which those in front do.
    pub fn before(&self, is_before: impl Fn(&[u8]) -> bool) -> usize {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low + (high - low) / 2;
            match is_before(self.place(middle)) {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        low
    }
}

#[derive(Clone)]
struct Bytes;

impl Weighter<u64, Arc<BlockRows>> for Bytes {
    fn weight(&self, _: &u64, rows: &Arc<BlockRows>) -> u64 {
        rows.weight()
    }
}

impl BlockRows {
    fn weight(&self) -> u64 {
        let bytes = self.bytes.capacity() + self.ends.capacity() * size_of::<(u32, u32)>();
        (bytes + OVERHEAD_BYTES) as u64
    }
}

/// The rows of blocks, of all indexes, within a number of bytes.
pub struct RowCache {
    cache: Arc<BlockCache>,
    budget_bytes: u64,
}

impl RowCache {
    /// Creates a cache of this many bytes of rows; without a cache if it is 0.
    pub fn new(bytes: usize) -> RowCache {
        RowCache {
            cache: Arc::new(Cache::with_weighter(
                bytes / USUAL_BYTES,
                bytes as u64,
                Bytes,
            )),
            budget_bytes: bytes as u64,
        }
    }

    /// Memory of the rows, in bytes.
    pub fn bytes(&self) -> u64 {
        self.cache.weight()
    }

    /// Returns the cached rows of a block. Once it was read often enough they are read by `read`,
    /// which may fail, and cached.
    pub(crate) fn rows(
        &self,
        block: &BlockHeat,
        read: impl FnOnce() -> Option<BlockRows>,
    ) -> Option<Arc<BlockRows>> {
        if self.budget_bytes == 0 {
            return None;
        }
        let heat = block.get(&self.cache);
        let mut asks = heat.asks.load(Relaxed);
        if asks < ASKS_MAX {
            asks = heat.asks.fetch_add(1, Relaxed) + 1;
        }
        if asks < heat.asks_min(true) || asks >= NEVER {
            return None;
        }
        if let Some(rows) = self.cache.get(&heat.version) {
            return Some(rows);
        }
        if asks >= ASKS_MAX {
            heat.asks.store(0, Relaxed);
        }
        // One of several concurrent readers reads them. Checking for room visits each part of the
        // cache, and comes last.
        if !asks.is_multiple_of(heat.asks_min(true)) {
            return None;
        }
        // The parts are not filled evenly.
        let has_room = self.cache.weight() <= self.budget_bytes / 8 * 7;
        if !asks.is_multiple_of(heat.asks_min(has_room)) {
            return None;
        }
        let Some(mut rows) = read() else {
            heat.asks.store(NEVER, Relaxed);
            return None;
        };
        rows.bytes.shrink_to_fit();
        rows.ends.shrink_to_fit();
        let rows = Arc::new(rows);
        self.cache.insert(heat.version, rows.clone());
        Some(rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(n: u32) -> BlockRows {
        let mut rows = BlockRows::default();
        for i in 0..n {
            assert!(rows.push(&i.to_be_bytes(), &[7; 9]));
        }
        rows
    }

    #[test]
    fn rows_are_found_by_their_places() {
        let rows = rows(100);
        assert_eq!((rows.place(0), rows.value(0)), (&[0; 4][..], &[7; 9][..]));
        assert_eq!(rows.place(99), 99u32.to_be_bytes());
        for n in [0u32, 1, 50, 99, 100] {
            let place = n.to_be_bytes();
            assert_eq!(rows.before(|p| p < &place[..]), n as usize);
        }
        let mut long = BlockRows::default();
        assert!(long.push(b"a", &vec![0; BLOCK_BYTES_MAX - 1]));
        assert!(!long.push(b"b", b""));
        assert_eq!(long.len(), 1);
    }

    #[test]
    fn a_block_is_kept_when_it_was_asked_for_often_and_until_it_changes() {
        let cache = RowCache::new(1 << 20);
        let mut block = BlockHeat::default();
        let asks_until_kept = |block: &BlockHeat| {
            let asks = (1..1000).find(|_| cache.rows(block, || Some(rows(3))).is_some());
            assert!(cache.rows(block, || panic!("it is kept")).is_some());
            asks.unwrap()
        };
        assert_eq!(asks_until_kept(&block), ASKS_MIN);
        assert!(cache.bytes() > 0);
        let same = block.clone();
        assert!(
            cache
                .rows(&same, || panic!("its rows are the same"))
                .is_some()
        );
        block.change();
        assert_eq!(asks_until_kept(&block), 2 * ASKS_MIN, "it changed soon");
        for _ in 0..100 {
            cache.rows(&block, || None);
        }
        block.change();
        assert_eq!(asks_until_kept(&block), ASKS_MIN, "it was worth it");
        assert!(
            cache
                .rows(&same, || panic!(
                    "an old version stays while somebody has it"
                ))
                .is_some()
        );
        drop((same, block));
        assert_eq!(cache.bytes(), 0);
    }

    #[test]
    fn what_could_not_be_read_is_not_kept_and_without_room_nothing_is() {
        let cache = RowCache::new(1 << 20);
        let block = BlockHeat::default();
        assert!((0..100).all(|_| cache.rows(&block, || None).is_none()));
        let none = RowCache::new(0);
        assert!((0..100).all(|_| none.rows(&block, || Some(rows(3))).is_none()));
        let small = RowCache::new(20_000);
        let blocks: Vec<_> = (0..200).map(|_| BlockHeat::default()).collect();
        for block in blocks.iter().cycle().take(20_000) {
            small.rows(block, || Some(rows(100)));
        }
        assert!(small.bytes() <= 20_000 && small.bytes() > 0);
    }
}
