//! The summary tree: counts, offsets and `skip` without scanning, though rows live in an LSM.
//!
//! It is held in memory and saved now and then with the seq it stands for; what came after is replayed from
//! by-seq, whose rows say what each change did to the counts. **Invariant: saved form + by-seq rows after the
//! saved seq = the truth**, so a crash at any moment leaves it exact, and writes pay nothing for it.

mod ids;
mod seqs;

pub use ids::{BLOCK_ROWS_SPLIT, Block, IdBlocks};
pub use seqs::{CHUNK_SEQS, SeqBits};

use std::sync::Arc;

use crate::row::Delta;

/// Counts of a shard by id and by seq.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Shared with readers for as long as they work out their offsets; copied when one holds it at a commit.
    pub ids: Arc<IdBlocks>,
    /// Which seqs are listed.
    pub seqs: SeqBits,
    /// The saved form stands for the shard as of this seq.
    pub saved_seq: u64,
}

impl Summary {
    /// About how much memory it takes, in bytes.
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
