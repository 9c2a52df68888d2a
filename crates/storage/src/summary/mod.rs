//! The summary tree: counts, offsets and `skip` without scanning, though rows are in an LSM tree.
//!
//! It is held in memory and saved periodically with its seq; later changes are replayed from
//! by-seq, whose rows contain the effect of each change on the counts. **Invariant: saved form +
//! by-seq rows after the saved seq = the truth**, so it is exact after a crash at any moment, and
//! writes pay nothing for it.

mod ids;
mod seqs;

pub use ids::{BLOCK_ROWS_SPLIT, Block, IdBlocks};
pub use seqs::{CHUNK_SEQS, SeqBits};

use std::sync::Arc;

use crate::row::Delta;

/// Counts of a shard by id and by seq.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Shared with readers while they compute their offsets; copied when a reader holds it at a
    /// commit.
    pub ids: Arc<IdBlocks>,
    /// The listed seqs.
    pub seqs: SeqBits,
    /// The seq of the saved form.
    pub saved_seq: u64,
}

impl Summary {
    /// Returns roughly how much memory it takes, in bytes.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Summary>() + self.ids.memory_bytes() + self.seqs.memory_bytes()
    }

    /// Counts the change at `seq`.
    pub fn apply(&mut self, seq: u64, id: &[u8], delta: Delta) {
        Arc::make_mut(&mut self.ids).apply(id, delta.live, delta.records);
        if delta.supersedes != 0 {
            self.seqs.remove(delta.supersedes);
        }
        if delta.records >= 0 {
            self.seqs.add(seq);
        }
    }
}
