//! Order statistics over document ids: rows are grouped by fences into blocks, each block's counts are exact.

use std::collections::BTreeSet;

/// A block is split when it holds more rows than this.
pub const BLOCK_ROWS_MAX: u32 = 512;
/// Rows of each block after a split.
pub const BLOCK_ROWS_SPLIT: u32 = 256;

/// One block: ids from its fence up to the next one's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// First id that may be in the block; empty for the first block.
    pub fence: Box<[u8]>,
    /// Documents in it that are not deleted.
    pub live: u32,
    /// All documents in it.
    pub rows: u32,
}

/// The blocks of one shard, in order. There is always at least one.
#[derive(Clone, Debug)]
pub struct IdBlocks {
    /// The first eight bytes of each fence, big endian: searched before the fences themselves.
    prefixes: Vec<u64>,
    blocks: Vec<Block>,
    /// Fences of blocks that differ from their stored form.
    dirty: BTreeSet<Box<[u8]>>,
    /// Blocks that have grown beyond the maximum since the last split.
    pub oversized: Vec<Box<[u8]>>,
}

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
            blocks: vec![Block {
                fence: Box::default(),
                live: 0,
                rows: 0,
            }],
            dirty: BTreeSet::new(),
            oversized: Vec::new(),
        }
    }
}

impl IdBlocks {
    /// Blocks as stored, in the order of their fences.
    pub fn from_stored(stored: impl IntoIterator<Item = Block>) -> Self {
        let mut me = IdBlocks::default();
        for b in stored {
            if b.fence.is_empty() {
                me.blocks[0] = b;
            } else {
                me.prefixes.push(prefix(&b.fence));
                me.blocks.push(b);
            }
        }
        me
    }

    pub fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// Index of the block that holds `id`.
    pub fn index_of(&self, id: &[u8]) -> usize {
        let p = prefix(id);
        let mut i = self.prefixes.partition_point(|&x| x < p);
        // Among fences that share the prefix, compare whole.
        while i < self.blocks.len() && self.prefixes[i] == p && *self.blocks[i].fence <= *id {
            i += 1;
        }
        i.saturating_sub(1)
    }

    /// Live documents in the blocks before `index`.
    pub fn live_before(&self, index: usize) -> u64 {
        self.blocks[..index].iter().map(|b| u64::from(b.live)).sum()
    }

    pub fn live_total(&self) -> u64 {
        self.live_before(self.blocks.len())
    }

    /// The block in which the live document of rank `rank` (from 0) is, and its rank within it.
    pub fn select(&self, mut rank: u64) -> Option<(usize, u64)> {
        for (i, b) in self.blocks.iter().enumerate() {
            let live = u64::from(b.live);
            if rank < live {
                return Some((i, rank));
            }
            rank -= live;
        }
        None
    }

    pub fn apply(&mut self, id: &[u8], live: i8, rows: i8) {
        if live == 0 && rows == 0 {
            return;
        }
        let i = self.index_of(id);
        let b = &mut self.blocks[i];
        b.live = b.live.saturating_add_signed(i32::from(live));
        b.rows = b.rows.saturating_add_signed(i32::from(rows));
        if !self.dirty.contains(&b.fence) {
            self.dirty.insert(b.fence.clone());
        }
        if b.rows > BLOCK_ROWS_MAX && self.oversized.last() != Some(&b.fence) {
            self.oversized.push(b.fence.clone());
        }
    }

    /// Replaces the block with this fence by `parts`, the first of which keeps the fence.
    pub fn split(&mut self, fence: &[u8], parts: Vec<Block>) {
        let i = self.index_of(fence);
        if *self.blocks[i].fence != *fence || parts.is_empty() {
            return;
        }
        for p in &parts {
            self.dirty.insert(p.fence.clone());
        }
        self.prefixes
            .splice(i..=i, parts.iter().map(|p| prefix(&p.fence)));
        self.blocks.splice(i..=i, parts);
    }

    /// The blocks that changed since the last call.
    pub fn take_dirty(&mut self) -> Vec<Block> {
        std::mem::take(&mut self.dirty)
            .into_iter()
            .map(|f| self.blocks[self.index_of(&f)].clone())
            .collect()
    }
}
