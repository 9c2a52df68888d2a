//! Order statistics over document ids: rows are grouped by fences into blocks, each with exact
//! counts.

use std::collections::BTreeSet;

/// A block is split when it has more rows than this.
pub const BLOCK_ROWS_MAX: u32 = 256;
/// Rows of each block after a split.
pub const BLOCK_ROWS_SPLIT: u32 = 128;

/// A block: ids from its fence up to the next one's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// First id that may be in the block; empty for the first block.
    pub fence: Box<[u8]>,
    /// Documents in it that are not deleted.
    pub live: u32,
    /// All documents in it.
    pub rows: u32,
}

/// The blocks of one shard, in order. There is always at least one. Stored as a structure of
/// arrays, so that searches and sums scan dense memory.
#[derive(Clone, Debug)]
pub struct IdBlocks {
    /// The first eight bytes of each fence, big endian: searched before the fences themselves.
    prefixes: Vec<u64>,
    fences: Vec<Box<[u8]>>,
    live: Vec<u32>,
    /// Sums of `live` by runs of blocks, so that a rank adds up few numbers.
    run_live: Vec<u64>,
    rows: Vec<u32>,
    /// Fences of blocks that differ from their stored form.
    dirty: BTreeSet<Box<[u8]>>,
    /// Blocks that have grown beyond the maximum since the last split.
    pub oversized: Vec<Box<[u8]>>,
}

/// Number of blocks in a run.
const RUN_BLOCKS: usize = 128;

fn prefix(id: &[u8]) -> u64 {
    let mut p = [0; 8];
    let n = id.len().min(8);
    p[..n].copy_from_slice(&id[..n]);
    u64::from_be_bytes(p)
}

impl Default for IdBlocks {
    fn default() -> Self {
        IdBlocks {
            prefixes: vec![0],
            fences: vec![Box::default()],
            live: vec![0],
            run_live: vec![0],
            rows: vec![0],
            dirty: BTreeSet::new(),
            oversized: Vec::new(),
        }
    }
}

impl IdBlocks {
    /// Returns roughly how much memory they take, in bytes.
    pub fn memory_bytes(&self) -> usize {
        // For each a prefix, a fence in an allocation of its own, and three counts.
        let fence = self.fences.last().map_or(0, |fence| fence.len() + 16);
        size_of::<IdBlocks>() + self.fences.len() * (40 + fence)
    }

    /// Creates blocks from their stored form, ordered by fence.
    pub fn from_stored(stored: impl IntoIterator<Item = Block>) -> Self {
        let mut me = IdBlocks::default();
        for b in stored {
            if b.fence.is_empty() {
                (me.live[0], me.rows[0]) = (b.live, b.rows);
            } else {
                me.prefixes.push(prefix(&b.fence));
                me.fences.push(b.fence);
                me.live.push(b.live);
                me.rows.push(b.rows);
            }
        }
        me.sum_runs(0);
        me
    }

    /// Recomputes the sums of runs from the one that contains block `from`.
    fn sum_runs(&mut self, from: usize) {
        let first = from / RUN_BLOCKS;
        self.run_live.truncate(first);
        let sums = self.live[first * RUN_BLOCKS..]
            .chunks(RUN_BLOCKS)
            .map(|run| run.iter().map(|&n| u64::from(n)).sum::<u64>());
        self.run_live.extend(sums);
    }

    /// Returns the first possible id of each block.
    pub fn fences(&self) -> &[Box<[u8]>] {
        &self.fences
    }

    /// Returns the block of this index.
    pub fn block(&self, index: usize) -> Block {
        Block {
            fence: self.fences[index].clone(),
            live: self.live[index],
            rows: self.rows[index],
        }
    }

    /// Returns the index of the block that contains `id`.
    pub fn index_of(&self, id: &[u8]) -> usize {
        let p = prefix(id);
        let start = self.prefixes.partition_point(|&x| x < p);
        // Compares fences with the same prefix in full.
        let same = self.prefixes[start..].partition_point(|&x| x == p);
        let before = self.fences[start..start + same].partition_point(|f| **f <= *id);
        (start + before).saturating_sub(1)
    }

    /// Returns the number of live documents in the blocks before `index`.
    pub fn live_before(&self, index: usize) -> u64 {
        let run = index / RUN_BLOCKS;
        let runs: u64 = self.run_live[..run].iter().sum();
        let rest = &self.live[run * RUN_BLOCKS..index];
        runs + rest.iter().map(|&n| u64::from(n)).sum::<u64>()
    }

    /// Returns the number of live documents in all blocks.
    pub fn live_total(&self) -> u64 {
        self.live_before(self.live.len())
    }

    /// Counts the effect of a change on the document: -1, 0 or 1 each.
    pub fn apply(&mut self, id: &[u8], live: i8, rows: i8) {
        if live == 0 && rows == 0 {
            return;
        }
        let i = self.index_of(id);
        self.live[i] = self.live[i].saturating_add_signed(i32::from(live));
        let run = &mut self.run_live[i / RUN_BLOCKS];
        *run = run.saturating_add_signed(i64::from(live));
        self.rows[i] = self.rows[i].saturating_add_signed(i32::from(rows));
        let fence = &self.fences[i];
        if !self.dirty.contains(fence) {
            self.dirty.insert(fence.clone());
        }
        if self.rows[i] > BLOCK_ROWS_MAX && self.oversized.last() != Some(fence) {
            self.oversized.push(fence.clone());
        }
    }

    /// Replaces the block with this fence by `parts`, the first of which keeps the fence.
    pub fn split(&mut self, fence: &[u8], parts: Vec<Block>) {
        let i = self.index_of(fence);
        if *self.fences[i] != *fence || parts.is_empty() {
            return;
        }
        for p in &parts {
            self.dirty.insert(p.fence.clone());
        }
        self.prefixes
            .splice(i..=i, parts.iter().map(|p| prefix(&p.fence)));
        self.live.splice(i..=i, parts.iter().map(|p| p.live));
        self.rows.splice(i..=i, parts.iter().map(|p| p.rows));
        self.fences
            .splice(i..=i, parts.into_iter().map(|p| p.fence));
        self.sum_runs(i);
    }

    /// Returns the blocks that changed since the last call.
    pub fn take_dirty(&mut self) -> Vec<Block> {
        std::mem::take(&mut self.dirty)
            .into_iter()
            .map(|f| self.block(self.index_of(&f)))
            .collect()
    }
}
