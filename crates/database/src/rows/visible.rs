//! Rows of the documents that a user of a database with access sees. Their number determines how long
//! that takes, not the size of the database.

use std::sync::Arc;

use storage::{GrantedIds, Shard, View};

use super::range::Range;
use super::write::separate;
use super::{ROWS_A_PIECE_MAX, Rows};
use crate::Error;
use crate::reader::{Reader, is_live};
use crate::select::Views;
use crate::turn::Turn;

/// The ids of which a user may read something, of all shards in one order.
pub(crate) struct VisibleIds<'a> {
    shards: Vec<GrantedIds<'a>>,
    descending: bool,
}

impl<'a> VisibleIds<'a> {
    /// Begins at or behind an id, in the direction; without one, at the beginning.
    pub fn new(
        views: &'a Views,
        reader: &Reader,
        from: Option<&[u8]>,
        descending: bool,
    ) -> VisibleIds<'a> {
        let ids = |(shard, view): (&'a Arc<Shard>, &'a View)| {
            let mut ids = GrantedIds::new(&view.snapshot, shard, reader.user(), descending);
            ids.seek(from);
            ids
        };
        VisibleIds {
            shards: views.shards.iter().zip(&views.views).map(ids).collect(),
            descending,
        }
    }

    /// Moves to the first id at or behind this one, in the direction.
    pub fn seek(&mut self, id: &[u8]) {
        self.shards.iter_mut().for_each(|ids| ids.seek(Some(id)));
    }

    /// Returns the shard's index and the id here.
    pub fn entry(&self) -> Option<(usize, &[u8])> {
        let ids = self.shards.iter().enumerate();
        let ids = ids.filter_map(|(shard, ids)| Some((shard, ids.entry()?)));
        match self.descending {
            true => ids.max_by_key(|(_, id)| *id),
            false => ids.min_by_key(|(_, id)| *id),
        }
    }

    /// Moves to the next id.
    pub fn next(&mut self) {
        if let Some((shard, _)) = self.entry() {
            self.shards[shard].next();
        }
    }

    /// Returns whether everything so far could be read.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn status(&self) -> Result<(), Error> {
        for ids in &self.shards {
            ids.status()?;
        }
        Ok(())
    }
}

impl Rows {
    /// Appends rows of a range until the piece is over or long enough. Returns whether more are left.
    pub(super) fn write_visible(
        &mut self,
        reader: &Reader,
        range: &mut Range,
        turn: &mut Turn,
        out: &mut Vec<u8>,
        enough: usize,
    ) -> Result<bool, Error> {
        let mut first = self.first;
        let mut ids = VisibleIds::new(&self.views, reader, range.from.as_deref(), range.descending);
        let mut more = false;
        let mut examined = 0;
        while let Some((shard, id)) = ids.entry() {
            if range.is_past(id) || range.left == 0 {
                break;
            }
            if range.is_before(id) {
                ids.next();
                continue;
            }
            let text =
                std::str::from_utf8(id).map_err(|_| storage::Error::Corrupt("document id"))?;
            let (view, of) = (&self.views.views[shard], &self.views.shards[shard]);
            let value = reader.listed(view, of, text)?.unwrap_or_default();
            let shown = !value.is_empty() && is_live(&value)?;
            if shown && range.skip > 0 {
                range.skip -= 1;
            } else if shown {
                separate(&mut first, out);
                self.write_row(shard, id, &value, out)?;
                range.left -= 1;
            }
            examined += 1;
            turn.note(value.len());
            let is_over = turn.is_over(true);
            if out.len() >= enough || examined >= ROWS_A_PIECE_MAX || is_over {
                range.from = Some(id.to_vec());
                range.after = true;
                more = true;
                break;
            }
            ids.next();
        }
        ids.status()?;
        self.first = first;
        Ok(more)
    }
}
