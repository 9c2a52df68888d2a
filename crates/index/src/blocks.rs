//! The summary tree of one view: rows are grouped by fences into blocks, blocks into runs. Counts
//! are always exact; reductions are computed on first use and kept until one of their rows changes.

use std::sync::{Arc, OnceLock};

use crate::row_cache::BlockHeat;

/// A block is split when it holds more rows than this.
pub const BLOCK_ROWS_MAX: u32 = 384;
/// Maximum rows of a block after a split, and of a block that a first build makes.
pub const BLOCK_ROWS_SPLIT: u32 = 192;
/// Maximum bytes of the rows of a block after a split, unless it has one row. A block whose rows have
/// more than twice as many is split. Not all rows count: see [`crate::ViewSpec::counted_bytes`].
pub const BLOCK_BYTES_MAX: u64 = 4 << 20;
/// Runs are split when they hold more blocks than this, into runs of half as many.
const RUN_BLOCKS_MAX: usize = 128;

/// The state of a reduction over some rows; its meaning is the reduce function's.
pub type State = Arc<[u8]>;

/// Reductions of the same rows, one for each reduce function of the view.
pub type Reductions = Box<[OnceLock<State>]>;

/// Memory of a reduction's state, about, in bytes.
const REDUCTION_BYTES: usize = 48;

fn no_reductions(functions: usize) -> Reductions {
    (0..functions).map(|_| OnceLock::new()).collect()
}

/// Rows from its fence up to the next one's.
#[derive(Clone, Debug)]
pub struct Block {
    /// The lower bound of the block's places; empty for the first block of a view.
    pub fence: Box<[u8]>,
    /// Number of rows.
    pub rows: u32,
    /// Number of counted bytes since it was cut or read from the store; a cut counts as at most
    /// [`BLOCK_BYTES_MAX`]. Not stored.
    pub(crate) bytes: u64,
    /// The computed reductions of its rows.
    pub reductions: Reductions,
    /// No row of it has a later place. Looked up when first needed.
    pub last: OnceLock<Box<[u8]>>,
    /// How often its rows were read.
    pub(crate) heat: BlockHeat,
    /// Differs from its stored form.
    dirty: bool,
    /// The stored form has all reductions, or will with the next save.
    reduced: bool,
}

impl Block {
    /// Returns a block whose reductions are not computed yet.
    pub fn new(fence: &[u8], rows: u32, functions: usize) -> Block {
        Block {
            fence: fence.into(),
            rows,
            bytes: 0,
            reductions: no_reductions(functions),
            last: OnceLock::new(),
            heat: BlockHeat::default(),
            dirty: true,
            reduced: functions == 0,
        }
    }

    /// Returns a new block with its reductions.
    pub fn with_reductions(fence: &[u8], rows: u32, reductions: Reductions) -> Block {
        Block {
            dirty: true,
            ..Block::stored(fence, rows, reductions)
        }
    }

    /// Returns a block as it was stored.
    pub fn stored(fence: &[u8], rows: u32, reductions: Reductions) -> Block {
        Block {
            fence: fence.into(),
            rows,
            bytes: 0,
            reduced: rows == 0 || reductions.iter().all(|r| r.get().is_some()),
            reductions,
            last: OnceLock::new(),
            heat: BlockHeat::default(),
            dirty: false,
        }
    }

    /// Returns the same block, which was cut when its rows had this number of counted bytes. A long row
    /// does not count as more than a full block, so that a split, which reads it, is rare.
    #[must_use]
    pub(crate) fn of_bytes(self, bytes: u64) -> Block {
        Block {
            bytes: bytes.min(BLOCK_BYTES_MAX),
            ..self
        }
    }

    /// Returns whether it has more rows than that, or several with more bytes.
    fn is_beyond(&self, rows: u32, bytes: u64) -> bool {
        self.rows > rows || (self.bytes > bytes && self.rows > 1)
    }
}

/// Consecutive blocks.
#[derive(Clone, Debug)]
pub struct Run {
    /// Never empty.
    pub blocks: Vec<Block>,
    /// Number of rows in all blocks.
    pub rows: u64,
    /// The computed reductions of its rows.
    pub reductions: Reductions,
    /// Holds blocks that are dirty.
    dirty: bool,
    /// All its blocks are.
    reduced: bool,
}

impl Run {
    fn new(blocks: Vec<Block>, functions: usize) -> Run {
        Run {
            dirty: blocks.iter().any(|b| b.dirty),
            reduced: blocks.iter().all(|b| b.reduced),
            rows: blocks.iter().map(|b| u64::from(b.rows)).sum(),
            reductions: no_reductions(functions),
            blocks,
        }
    }

    /// Notes that rows of a block have changed.
    fn touch(&mut self, block: usize, functions: usize) {
        let block = &mut self.blocks[block];
        block.dirty = true;
        block.heat.change();
        self.dirty = true;
        if functions > 0 {
            block.reduced = block.rows == 0;
            self.reduced &= block.reduced;
            forget(&mut block.reductions);
            forget(&mut self.reductions);
        }
    }

    fn fence(&self) -> &[u8] {
        // A run is never empty.
        self.blocks.first().map_or(&[], |b| &b.fence)
    }
}

/// The blocks of one view. There is always at least one. Cheap to clone: runs are shared until
/// changed.
#[derive(Clone, Debug)]
pub struct Blocks {
    runs: Vec<Arc<Run>>,
    functions: usize,
    rows: u64,
    /// Reductions of all rows.
    pub reductions: Reductions,
}

/// Position of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BlockPosition {
    /// Which run.
    pub run: usize,
    /// Which block of the run.
    pub block: usize,
}

/// Rows counted or discounted, with their counted bytes ([`crate::ViewSpec::counted_bytes`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The row is new.
    Added(u64),
    /// The row was removed.
    Removed(u64),
    /// The row's value is another.
    Replaced {
        /// Bytes of the row before.
        before: u64,
        /// Bytes of the row now.
        after: u64,
    },
}

impl Blocks {
    /// About how much memory they take, in bytes. One run stands for all: they are alike.
    pub fn memory_bytes(&self) -> usize {
        let Some(run) = self.runs.first() else {
            return 0;
        };
        // The first fence of a view is empty.
        let fences = run.blocks.iter().map(|b| b.fence.len());
        let fence = fences.sum::<usize>() / run.blocks.len().max(1);
        let lasts = run.blocks.iter().filter_map(|b| Some(b.last.get()?.len()));
        let last = lasts.sum::<usize>() / run.blocks.len().max(1);
        let reductions = self.functions * (size_of::<OnceLock<State>>() + REDUCTION_BYTES);
        let heats = run.blocks.iter().map(|b| b.heat.memory_bytes());
        let heat = heats.sum::<usize>() / run.blocks.len().max(1);
        let each = size_of::<Block>() + fence + last + reductions + heat;
        self.runs.len() * (size_of::<Run>() + run.blocks.len() * each)
    }

    /// Returns a view without rows and with this many reduce functions.
    pub fn empty(functions: usize) -> Blocks {
        Self::from_blocks(vec![], functions)
    }

    /// Blocks in the order of their fences.
    pub fn from_blocks(mut blocks: Vec<Block>, functions: usize) -> Blocks {
        if blocks.first().is_none_or(|b| !b.fence.is_empty()) {
            blocks.insert(0, Block::stored(&[], 0, no_reductions(functions)));
        }
        let rows = blocks.iter().map(|b| u64::from(b.rows)).sum();
        let mut runs = Vec::with_capacity(blocks.len() / RUN_BLOCKS_MAX + 1);
        let mut rest = blocks.into_iter();
        loop {
            let part: Vec<Block> = rest.by_ref().take(RUN_BLOCKS_MAX).collect();
            if part.is_empty() {
                break;
            }
            runs.push(Arc::new(Run::new(part, functions)));
        }
        Blocks {
            runs,
            functions,
            rows,
            reductions: no_reductions(functions),
        }
    }

    /// Returns the number of rows in all blocks.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Returns the runs in the order of their fences.
    pub fn runs(&self) -> &[Arc<Run>] {
        &self.runs
    }

    /// Returns the block there.
    pub fn block(&self, at: BlockPosition) -> &Block {
        &self.runs[at.run].blocks[at.block]
    }

    /// Returns the block that holds `place`.
    pub fn find(&self, place: &[u8]) -> BlockPosition {
        let run = self
            .runs
            .partition_point(|r| r.fence() <= place)
            .saturating_sub(1);
        let block = self.runs[run]
            .blocks
            .partition_point(|b| *b.fence <= *place)
            .saturating_sub(1);
        BlockPosition { run, block }
    }

    /// Returns the block after `at`.
    pub fn next(&self, at: BlockPosition) -> Option<BlockPosition> {
        if at.block + 1 < self.runs[at.run].blocks.len() {
            return Some(BlockPosition {
                run: at.run,
                block: at.block + 1,
            });
        }
        (at.run + 1 < self.runs.len()).then_some(BlockPosition {
            run: at.run + 1,
            block: 0,
        })
    }

    /// Returns the last block.
    pub fn last(&self) -> BlockPosition {
        // There is always at least one run, and no run is empty.
        let run = self.runs.len().saturating_sub(1);
        let block = self.runs[run].blocks.len().saturating_sub(1);
        BlockPosition { run, block }
    }

    /// Returns the block before `at`.
    pub fn previous(&self, at: BlockPosition) -> Option<BlockPosition> {
        if let Some(block) = at.block.checked_sub(1) {
            return Some(BlockPosition { block, ..at });
        }
        let run = at.run.checked_sub(1)?;
        // A run is never empty.
        let block = self.runs[run].blocks.len().checked_sub(1)?;
        Some(BlockPosition { run, block })
    }

    /// Returns the first place beyond the block; `None` for the last one.
    pub fn end_of(&self, at: BlockPosition) -> Option<&[u8]> {
        self.next(at).map(|n| &*self.block(n).fence)
    }

    /// Rows in the blocks before `at`.
    pub fn rows_before(&self, at: BlockPosition) -> u64 {
        let runs: u64 = self.runs[..at.run].iter().map(|r| r.rows).sum();
        let blocks = &self.runs[at.run].blocks[..at.block];
        runs + blocks.iter().map(|b| u64::from(b.rows)).sum::<u64>()
    }

    /// Returns the block that holds the row of this rank, and the row's rank in it; `None` beyond
    /// the last row.
    pub fn nth(&self, mut rank: u64) -> Option<(BlockPosition, u64)> {
        let mut run = 0;
        while rank >= self.runs.get(run)?.rows {
            rank -= self.runs[run].rows;
            run += 1;
        }
        for (block, b) in self.runs[run].blocks.iter().enumerate() {
            if rank < u64::from(b.rows) {
                return Some((BlockPosition { run, block }, rank));
            }
            rank -= u64::from(b.rows);
        }
        None
    }

    /// Notes a step at `place`; returns true when its block has grown too large.
    pub fn note(&mut self, place: &[u8], step: Step) -> bool {
        let at = self.find(place);
        let functions = self.functions;
        let run = Arc::make_mut(&mut self.runs[at.run]);
        let block = &mut run.blocks[at.block];
        match step {
            Step::Added(bytes) => {
                // The last looked-up place stays a bound when rows are removed.
                if block.last.get().is_some_and(|last| **last < *place) {
                    block.last.take();
                }
                block.rows += 1;
                block.bytes += bytes;
                run.rows += 1;
                self.rows += 1;
            }
            Step::Removed(bytes) => {
                debug_assert!(block.rows > 0, "a row that was never counted is removed");
                block.rows = block.rows.saturating_sub(1);
                block.bytes = block.bytes.saturating_sub(bytes);
                run.rows = run.rows.saturating_sub(1);
                self.rows = self.rows.saturating_sub(1);
            }
            Step::Replaced { before, after } => {
                block.bytes = block.bytes.saturating_sub(before) + after;
            }
        }
        let is_oversized = block.is_beyond(BLOCK_ROWS_MAX, 2 * BLOCK_BYTES_MAX);
        run.touch(at.block, functions);
        forget(&mut self.reductions);
        is_oversized
    }

    /// Adds this number of rows, with their counted bytes, to the block that contains `place`.
    pub fn add(&mut self, place: &[u8], rows: u32, bytes: u64) {
        let at = self.find(place);
        let functions = self.functions;
        let run = Arc::make_mut(&mut self.runs[at.run]);
        let block = &mut run.blocks[at.block];
        block.last.take();
        block.rows += rows;
        block.bytes += bytes;
        run.rows += u64::from(rows);
        self.rows += u64::from(rows);
        run.touch(at.block, functions);
        forget(&mut self.reductions);
    }

    /// Fences of the blocks that have more rows than this multiple of the maximum, or more bytes.
    pub fn beyond(&self, times: u32) -> impl Iterator<Item = &[u8]> {
        let (rows, bytes) = (
            times * BLOCK_ROWS_MAX,
            u64::from(times) * 2 * BLOCK_BYTES_MAX,
        );
        let blocks = self.runs.iter().flat_map(|run| &run.blocks);
        let beyond = blocks.filter(move |b| b.is_beyond(rows, bytes));
        beyond.map(|b| &*b.fence)
    }

    /// Replaces the block that starts at `fence` by `parts`, the first of which starts there too.
    pub fn split(&mut self, fence: &[u8], parts: Vec<Block>) {
        let at = self.find(fence);
        if *self.block(at).fence != *fence || parts.is_empty() {
            return;
        }
        let run = Arc::make_mut(&mut self.runs[at.run]);
        run.dirty = true;
        run.reduced &= parts.iter().all(|b| b.reduced);
        run.blocks.splice(at.block..=at.block, parts);
        if run.blocks.len() > RUN_BLOCKS_MAX {
            let mut rest = std::mem::take(&mut run.blocks).into_iter();
            let mut smaller = vec![];
            while rest.len() > 0 {
                // The last one takes what is left over, so that none is nearly empty.
                let n = match rest.len() {
                    n if n < RUN_BLOCKS_MAX => n,
                    _ => RUN_BLOCKS_MAX / 2,
                };
                let blocks = rest.by_ref().take(n).collect();
                smaller.push(Arc::new(Run::new(blocks, self.functions)));
            }
            self.runs.splice(at.run..=at.run, smaller);
        }
    }

    /// Calls `f` with each block that differs from its stored form, and marks it as stored. An
    /// empty block is to be removed from storage, unless it is the first, and is removed here.
    pub fn take_dirty(&mut self, mut f: impl FnMut(&Block)) {
        let mut emptied = false;
        for run in self.runs.iter_mut().filter(|r| r.dirty) {
            let run = Arc::make_mut(run);
            run.dirty = false;
            for block in &mut run.blocks {
                if std::mem::take(&mut block.dirty) {
                    f(block);
                }
            }
            let before = run.blocks.len();
            run.blocks.retain(|b| b.rows > 0 || b.fence.is_empty());
            emptied |= run.blocks.len() < before;
        }
        if emptied {
            self.runs.retain(|r| !r.blocks.is_empty());
        }
    }

    /// Returns the blocks whose reductions are not all stored.
    pub fn unreduced(&self) -> impl Iterator<Item = BlockPosition> {
        let runs = self.runs.iter().enumerate().filter(|(_, r)| !r.reduced);
        runs.flat_map(|(run, r)| {
            let blocks = r.blocks.iter().enumerate().filter(|(_, b)| !b.reduced);
            blocks.map(move |(block, _)| BlockPosition { run, block })
        })
    }

    /// Marks blocks with all reductions computed for storing; returns their number.
    pub fn keep_reductions(&mut self) -> usize {
        let mut kept = 0;
        let is_new = |b: &Block| !b.reduced && b.reductions.iter().all(|r| r.get().is_some());
        for run in self.runs.iter_mut().filter(|r| !r.reduced) {
            if !run.blocks.iter().any(is_new) {
                continue;
            }
            let run = Arc::make_mut(run);
            run.dirty = true;
            for block in run.blocks.iter_mut().filter(|b| is_new(b)) {
                block.dirty = true;
                block.reduced = true;
                kept += 1;
            }
            run.reduced = run.blocks.iter().all(|b| b.reduced);
        }
        kept
    }
}

/// Counts places that come in ascending order by the blocks that would hold them.
pub(crate) struct Tally<'a> {
    blocks: &'a Blocks,
    at: BlockPosition,
    /// The first place beyond the block.
    end: Option<&'a [u8]>,
    rows: u32,
    bytes: u64,
    counted: Vec<CountedRows>,
}

/// Rows of a block, counted.
#[derive(Clone, Debug)]
pub struct CountedRows {
    /// The block's fence.
    pub fence: Box<[u8]>,
    /// Number of rows.
    pub rows: u32,
    /// Their counted bytes.
    pub bytes: u64,
}

impl<'a> Tally<'a> {
    pub fn new(blocks: &'a Blocks) -> Tally<'a> {
        let at = BlockPosition { run: 0, block: 0 };
        Tally {
            blocks,
            at,
            end: blocks.end_of(at),
            rows: 0,
            bytes: 0,
            counted: vec![],
        }
    }

    /// Counts one, with its counted bytes.
    pub fn count(&mut self, place: &[u8], bytes: u64) {
        if self.end.is_some_and(|end| place >= end) {
            self.close();
            self.at = self.blocks.find(place);
            self.end = self.blocks.end_of(self.at);
        }
        self.rows += 1;
        self.bytes += bytes;
    }

    fn close(&mut self) {
        if self.rows > 0 {
            self.counted.push(CountedRows {
                fence: self.blocks.block(self.at).fence.clone(),
                rows: std::mem::take(&mut self.rows),
                bytes: std::mem::take(&mut self.bytes),
            });
        }
    }

    /// Returns the numbers of rows by the fences of their blocks.
    pub fn counted(mut self) -> Vec<CountedRows> {
        self.close();
        self.counted
    }
}

fn forget(reductions: &mut Reductions) {
    for r in reductions.iter_mut() {
        r.take();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    /// Splits a block along the rows of the model.
    fn split(blocks: &mut Blocks, rows: &BTreeSet<Vec<u8>>, place: &[u8]) {
        let at = blocks.find(place);
        let fence = blocks.block(at).fence.to_vec();
        let end = blocks.end_of(at).map(<[u8]>::to_vec);
        let within: Vec<&Vec<u8>> = rows
            .range(fence.clone()..)
            .take_while(|r| end.as_ref().is_none_or(|e| *r < e))
            .collect();
        let parts = within
            .chunks(BLOCK_ROWS_SPLIT as usize)
            .enumerate()
            .map(|(i, c)| {
                let first = if i == 0 { &fence } else { c[0] };
                Block::new(first, c.len() as u32, 1)
            })
            .collect();
        blocks.split(&fence, parts);
    }

    #[test]
    fn a_block_of_very_many_rows_becomes_runs_of_the_usual_size() {
        let place = |n: u32| n.to_be_bytes();
        for parts in [1, 2, 128, 129, 190, 1000] {
            let mut blocks = Blocks::empty(1);
            for n in 0..parts {
                blocks.note(&place(n), Step::Added(1));
            }
            let fence = |n: u32| if n == 0 { vec![] } else { place(n).to_vec() };
            let split = (0..parts).map(|n| Block::new(&fence(n), 1, 1)).collect();
            blocks.split(&[], split);
            let sizes = blocks.runs().iter().map(|r| r.blocks.len());
            assert!(sizes.clone().all(|n| n <= RUN_BLOCKS_MAX));
            assert!(sizes.clone().min().unwrap() >= RUN_BLOCKS_MAX / 2 || sizes.len() == 1);
            assert_eq!(blocks.unreduced().count(), parts as usize);
            let at = blocks.find(&place(parts - 1));
            assert_eq!(blocks.rows_before(at), u64::from(parts) - 1);
        }
    }

    #[test]
    fn a_block_of_several_long_rows_is_to_be_split_and_one_of_a_single_row_is_not() {
        let long = 3 * BLOCK_BYTES_MAX;
        let mut blocks = Blocks::empty(1);
        assert!(!blocks.note(b"a", Step::Added(long)), "it has one row");
        assert!(blocks.note(b"b", Step::Added(1)));
        assert_eq!(blocks.beyond(1).count(), 1);
        assert_eq!(blocks.beyond(2).count(), 0);
        // As a cut makes them: the long row counts as a full block.
        let parts = [(&b""[..], long), (&b"b"[..], 1)];
        let parts = parts.map(|(fence, bytes)| Block::new(fence, 1, 1).of_bytes(bytes));
        blocks.split(&[], parts.into());
        assert!(!blocks.note(b"aa", Step::Added(1)));
        assert!(blocks.note(b"ab", Step::Added(BLOCK_BYTES_MAX)));
        let smaller = Step::Replaced {
            before: BLOCK_BYTES_MAX,
            after: 1,
        };
        assert!(!blocks.note(b"ab", smaller));
        blocks.add(b"b", 2, long);
        assert_eq!(blocks.beyond(1).collect::<Vec<_>>(), [b"b"]);
        assert!(!blocks.note(b"b", Step::Removed(long)));
    }

    #[test]
    fn long_fences_count_as_memory() {
        let long = vec![b'x'; 1 << 20];
        let blocks = [&b""[..], &long].map(|fence| Block::new(fence, 1, 0));
        let bytes = Blocks::from_blocks(blocks.into(), 0).memory_bytes();
        assert!((1 << 20..2 << 20).contains(&bytes), "{bytes} bytes");
    }

    #[test]
    fn blocks_are_unreduced_until_their_reductions_are_kept_and_again_after_a_change() {
        let places: Vec<Vec<u8>> = (0..300u32).map(|n| n.to_be_bytes().to_vec()).collect();
        let all = places.iter().map(|p| Block::new(p, 1, 1)).collect();
        let mut blocks = Blocks::from_blocks(all, 1);
        blocks.take_dirty(|_| {});
        for at in blocks.unreduced().step_by(2).collect::<Vec<_>>() {
            blocks.block(at).reductions[0]
                .set(Arc::from(*b"1"))
                .unwrap();
        }
        assert_eq!(blocks.keep_reductions(), 150);
        assert_eq!(blocks.keep_reductions(), 0);
        assert_eq!(blocks.unreduced().count(), 150);
        let mut stored = 0;
        blocks.take_dirty(|b| stored += usize::from(b.reductions[0].get().is_some()));
        assert_eq!(stored, 150);
        let replaced = Step::Replaced {
            before: 1,
            after: 1,
        };
        blocks.note(&places[0], replaced);
        blocks.note(&places[2], Step::Removed(1));
        let unreduced: Vec<_> = blocks
            .unreduced()
            .map(|at| blocks.block(at).fence.to_vec())
            .collect();
        assert!(unreduced.contains(&places[0]) && !unreduced.contains(&places[2]));
        assert_eq!(unreduced.len(), 151);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        #[test]
        fn counts_and_ranks_are_those_of_the_rows(steps in proptest::collection::vec((any::<bool>(), 0u32..60_000), 1..4000), probe in 0u32..60_000) {
            let mut rows = BTreeSet::new();
            let mut blocks = Blocks::empty(1);
            // Start with many rows, so that there are several blocks and runs.
            let first: Vec<u32> = (0..60_000).step_by(3).collect();
            for (add, n) in first.into_iter().map(|n| (true, n)).chain(steps) {
                let place = n.to_be_bytes().to_vec();
                let oversized = if add {
                    if !rows.insert(place.clone()) { continue; }
                    blocks.note(&place, Step::Added(1))
                } else {
                    if !rows.remove(&place) { continue; }
                    blocks.note(&place, Step::Removed(1))
                };
                if oversized { split(&mut blocks, &rows, &place); }
            }
            prop_assert_eq!(blocks.rows(), rows.len() as u64);
            let at = blocks.find(&probe.to_be_bytes());
            let fence = blocks.block(at).fence.to_vec();
            prop_assert_eq!(blocks.rows_before(at), rows.range(..fence).count() as u64);
            let rank = u64::from(probe) % (rows.len() as u64);
            let (at, within) = blocks.nth(rank).unwrap();
            let fence = blocks.block(at).fence.to_vec();
            prop_assert_eq!(rows.range(fence.clone()..).nth(within as usize), rows.iter().nth(rank as usize));
            prop_assert!(blocks.runs().iter().all(|r| !r.blocks.is_empty() && r.blocks.len() <= RUN_BLOCKS_MAX));
            let more: BTreeSet<Vec<u8>> = (0..60_000u32).step_by(7).map(|n| [&n.to_be_bytes()[..], b"x"].concat()).collect();
            // As stored, and reduced.
            blocks.take_dirty(|_| {});
            for at in blocks.unreduced().collect::<Vec<_>>() {
                blocks.block(at).reductions[0].set(Arc::from(*b"1")).unwrap();
            }
            blocks.keep_reductions();
            blocks.take_dirty(|_| {});
            let mut tally = Tally::new(&blocks);
            more.iter().for_each(|place| tally.count(place, 1));
            let counted = tally.counted();
            let mut one_by_one = blocks.clone();
            for some in counted { blocks.add(&some.fence, some.rows, some.bytes); }
            for place in &more { one_by_one.note(place, Step::Added(1)); }
            let of_runs = |blocks: &Blocks| -> Vec<(u64, Vec<u32>)> {
                let rows = |run: &Run| run.blocks.iter().map(|b| b.rows).collect();
                blocks.runs().iter().map(|run| (run.rows, rows(run))).collect()
            };
            prop_assert_eq!(of_runs(&blocks), of_runs(&one_by_one));
            prop_assert_eq!(blocks.rows(), one_by_one.rows());
            prop_assert!(blocks.beyond(1).eq(one_by_one.beyond(1)));
            let changed = |blocks: &mut Blocks| {
                let mut all = vec![];
                blocks.take_dirty(|b| all.push((b.fence.to_vec(), b.rows, b.reductions[0].get().is_some())));
                all
            };
            prop_assert_eq!(changed(&mut blocks), changed(&mut one_by_one));
            prop_assert_eq!(changed(&mut blocks), vec![]);
        }
    }
}
