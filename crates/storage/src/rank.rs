//! The rank of a document id: how many live documents are before it.

use crate::Error;
use crate::iterators::IdIter;
use crate::record::RecordHead;
use crate::shard::{Shard, View};
use crate::summary::IdBlocks;

/// A count of the live documents before an id, in one shard. It can be made in pieces: rows of a
/// block are read, and a row may be as long as the record of a wide document is.
#[derive(Debug)]
pub struct LiveCount {
    /// Live documents before `from`.
    count: u64,
    /// Where the count continues.
    from: Vec<u8>,
}

impl LiveCount {
    /// Begins a count with the blocks before that of `id`.
    pub fn new(blocks: &IdBlocks, id: &[u8]) -> LiveCount {
        let i = blocks.index_of(id);
        LiveCount {
            count: blocks.live_before(i),
            from: blocks.fences()[i].to_vec(),
        }
    }
}

impl View {
    /// Returns the number of live documents with ids before `id`.
    pub fn rank(&self, shard: &Shard, blocks: &IdBlocks, id: &[u8]) -> Result<u64, Error> {
        let mut count = LiveCount::new(blocks, id);
        // Nothing ends the piece, so that the first one is the whole count.
        self.count_live(shard, id, &mut count, |_| false)?;
        Ok(count.count)
    }

    /// Continues a count of the live documents before `id`, until `is_over` returns true after a
    /// row, whose stored length it gets. Returns the count when it is complete.
    ///
    /// # Errors
    /// Errors of the engine, [`Error::Corrupt`].
    pub fn count_live(
        &self,
        shard: &Shard,
        id: &[u8],
        so_far: &mut LiveCount,
        mut is_over: impl FnMut(usize) -> bool,
    ) -> Result<Option<u64>, Error> {
        let mut it = IdIter::new(&self.snapshot, shard.number);
        it.seek(&so_far.from);
        while let Some((at, value)) = it.entry() {
            if at >= id {
                break;
            }
            so_far.count += u64::from(!RecordHead::decode(value)?.deleted);
            if is_over(value.len()) {
                so_far.from.clear();
                so_far.from.extend_from_slice(at);
                // The first id behind it.
                so_far.from.push(0);
                return Ok(None);
            }
            it.next();
        }
        it.status()?;
        Ok(Some(so_far.count))
    }
}
