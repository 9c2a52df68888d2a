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

/// A longer place of a row is kept in memory only while a block may begin there, in bytes.
const PLACE_BYTES_KEPT: usize = 16 << 10;

/// A row that is in no block yet.
struct UncutRow {
    /// Empty for a long one at which no block can begin.
    place: Vec<u8>,
    /// The length of its sort key.
    sort_len: usize,
    bytes: u64,
}

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
        let by_principal = self.spec.is_by_principal(n);
        let mut cutter = Cutter::new(self.spec.partitioned).by_principal(by_principal);
        let mut uncut: Vec<UncutRow> = vec![];
        let mut it = RowIter::of_stored(view, n, range.clone());
        while let Some(row) = it.row()? {
            let sort_len = row.stored.sort_len.min(row.place.len());
            let json_bytes = row.stored.key.len() + row.stored.value.len();
            let bytes = spec.counted_bytes(sort_len, json_bytes as u64);
            if let Some(cut) = cutter.next(&row.place[..sort_len], bytes) {
                self.check_stop()?;
                let bytes: u64 = uncut.drain(..cut.rows).map(|row| row.bytes).sum();
                parts.push(Block::new(&fence, cut.rows as u32, functions).of_bytes(bytes));
                let here = (row.place, sort_len);
                let (first, sort_len) = uncut.first().map_or(here, |r| (&r.place[..], r.sort_len));
                fence = first[..if cut.at_group { sort_len } else { first.len() }].to_vec();
            }
            push(&mut uncut, row.place, sort_len, bytes, &cutter);
            it.next();
        }
        let bytes: u64 = uncut.iter().map(|row| row.bytes).sum();
        parts.push(Block::new(&fence, uncut.len() as u32, functions).of_bytes(bytes));
        Ok(parts)
    }
}

/// Adds a row to those that are in no block yet, after the cutter has it. Forgets long places that are not
/// needed: there may be a row less than a block's, each with a place of megabytes.
fn push(uncut: &mut Vec<UncutRow>, place: &[u8], sort_len: usize, bytes: u64, cutter: &Cutter) {
    uncut.push(UncutRow {
        place: place.to_vec(),
        sort_len,
        bytes,
    });
    if place.len() > PLACE_BYTES_KEPT {
        for (n, row) in uncut.iter_mut().enumerate() {
            if row.place.len() > PLACE_BYTES_KEPT && !cutter.may_cut_at(n) {
                row.place = vec![];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocks::BLOCK_ROWS_SPLIT;
    use crate::map::write_key_sort;

    #[test]
    fn few_long_places_are_in_memory_while_rows_are_cut() {
        for same in [false, true] {
            let mut cutter = Cutter::new(false);
            let mut uncut = vec![];
            for n in 0..BLOCK_ROWS_SPLIT {
                let key = format!(
                    "\"{}{}\"",
                    "x".repeat(PLACE_BYTES_KEPT),
                    n * u32::from(!same)
                );
                let mut sort = vec![];
                write_key_sort(key.as_bytes(), false, &mut sort).unwrap();
                assert_eq!(cutter.next(&sort, 0), None);
                push(&mut uncut, &sort, sort.len(), 0, &cutter);
                let long = uncut.iter().filter(|row| !row.place.is_empty()).count();
                assert!(long <= 8, "{long} places of row {n}");
            }
            assert_eq!(uncut.len(), BLOCK_ROWS_SPLIT as usize);
        }
    }
}
