//! Maintenance for fast reads: reductions computed ahead, trees and files rebuilt.

use std::time::Duration;

use storage::Keyspace;

use crate::Error;
use crate::blocks::{Block, BlockPosition, Blocks};
use crate::build::Build;
use crate::cutter::Cutter;
use crate::index::Index;
use crate::iter::RowIter;
use crate::read::{IndexView, PlaceRange};

impl Index {
    /// Computes and stores the missing reductions, so that no reader has to. Updates continue
    /// meanwhile; reductions that they invalidate are left to the next call.
    pub fn warm(&self) -> Result<(), Error> {
        let missing = |view: &IndexView| -> Vec<(usize, BlockPosition)> {
            let views = view.state.views.iter().enumerate();
            let blocks = views.flat_map(|(n, blocks)| blocks.unreduced().map(move |at| (n, at)));
            blocks.take(self.limits.warm_blocks).collect()
        };
        let view = self.view()?;
        let mut left: usize = view.state.views.iter().map(|b| b.unreduced().count()).sum();
        drop(view);
        while left > 0 {
            // Stored reductions are in runs of their own: readers and this loop continue with
            // those.
            let view = self.view()?;
            let blocks = missing(&view);
            for &(n, at) in &blocks {
                self.check_stop()?;
                for function in 0..self.spec.views[n].reduces.len() {
                    view.block_state(n, function, at, &|| false)?;
                }
            }
            left = left.saturating_sub(blocks.len());
            if self.keep_reductions()? == 0 {
                break;
            }
        }
        Ok(())
    }

    /// Stores the computed reductions; returns the number of blocks. Blocks in runs that an update
    /// changed meanwhile are not included.
    fn keep_reductions(&self) -> Result<usize, Error> {
        let _writer = self.writer.lock();
        self.check_stop()?;
        self.recover()?;
        let mut state = (*self.published.lock().state).clone();
        let kept = state.views.iter_mut().map(Blocks::keep_reductions).sum();
        if kept > 0 {
            Build::new(self, state).write(self.store.engine().writes())?;
        }
        Ok(kept)
    }

    /// Rebuilds the summary trees from the rows, and makes the engine rewrite the files: returns false if
    /// a build does not end for `wait`. Blocks.
    pub fn compact(&self, wait: Duration) -> Result<bool, Error> {
        let Some(writer) = self.writer.try_lock_for(wait) else {
            return Ok(false);
        };
        self.resume();
        self.check_stop()?;
        self.recover()?;
        let view = self.view()?;
        let mut state = (*view.state).clone();
        let engine = self.store.engine();
        let mut batch = engine.writes();
        batch.delete_all(Keyspace::IndexBlocks, self.number);
        for (n, spec) in self.spec.views.iter().enumerate() {
            let blocks = self.cut(&view, n, &PlaceRange::default())?;
            state.views[n] = Blocks::from_blocks(blocks, spec.reduces.len());
        }
        Build::new(self, state).write(batch)?;
        drop(view);
        // The engine needs none to wait while it rewrites.
        drop(writer);
        self.warm()?;
        for k in [
            Keyspace::IndexRows,
            Keyspace::IndexBack,
            Keyspace::IndexBlocks,
        ] {
            self.check_stop()?;
            engine.flush(k)?;
            engine.rewrite(k, self.number);
        }
        Ok(true)
    }

    /// Cuts the rows of a range into new blocks.
    pub(crate) fn cut(
        &self,
        view: &IndexView,
        n: usize,
        range: &PlaceRange,
    ) -> Result<Vec<Block>, Error> {
        let spec = &self.spec.views[n];
        let functions = spec.reduces.len();
        let mut parts: Vec<Block> = vec![];
        let mut fence = range.low.clone();
        let mut cutter = Cutter::new(self.spec.partitioned);
        // Places of rows that are in no block yet, the length of their sort keys, and their bytes.
        let mut places: Vec<(Vec<u8>, usize, u64)> = vec![];
        let mut it = RowIter::of_stored(view, n, range.clone());
        while let Some(row) = it.row()? {
            let sort_len = row.stored.sort_len.min(row.place.len());
            let json_bytes = row.stored.key.len() + row.stored.value.len();
            let bytes = spec.counted_bytes(sort_len, json_bytes as u64);
            if let Some(cut) = cutter.next(&row.place[..sort_len], bytes) {
                self.check_stop()?;
                let bytes: u64 = places.drain(..cut.rows).map(|(_, _, bytes)| bytes).sum();
                parts.push(Block::new(&fence, cut.rows as u32, functions).of_bytes(bytes));
                let here = (row.place, sort_len);
                let (first, sort_len) = places.first().map_or(here, |(p, n, _)| (p, *n));
                fence = first[..if cut.at_group { sort_len } else { first.len() }].to_vec();
            }
            places.push((row.place.to_vec(), sort_len, bytes));
            it.next();
        }
        let bytes: u64 = places.iter().map(|(_, _, bytes)| bytes).sum();
        parts.push(Block::new(&fence, places.len() as u32, functions).of_bytes(bytes));
        Ok(parts)
    }
}
