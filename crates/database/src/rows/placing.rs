//! Where the rows of a listing begin: how many are before them, and the first one after a long skip.
//!
//! It reads rows of a few blocks of ids. They may be long, so it is done in pieces.

use std::sync::Arc;

use storage::IdBlocks;

use super::query::{Bound, Listing, RowsQuery};
use super::range::{Range, Start};
use crate::select::{IdFound, IdSearch, RankSearch, Views};
use crate::turn::Turn;
use crate::{Error, partition};

/// Skips up to this many rows by walking them; more by the summary tree.
const SKIP_WALKED_MAX: u64 = 512;

/// The counts of a listing.
pub(super) struct Placed {
    /// Documents that the listing could show.
    pub total_rows: u64,
    /// Rows before the first one.
    pub offset: u64,
    pub start: Start,
}

/// The progress of placing a listing.
pub(super) struct Placing {
    /// They are dropped with this as soon as the listing is placed: the writer copies blocks that
    /// others hold.
    blocks: Vec<Arc<IdBlocks>>,
    /// The searches for the rank of the end at which the range begins, and for those of the first
    /// id of the listing and the first one behind it.
    ranks: [RankSearch; 3],
    jump: Option<IdSearch>,
    of_partition: bool,
    descending: bool,
    /// The requested start is outside the listing's kind of keys.
    begins_outside: bool,
    skip: u64,
    has_rows: bool,
}

/// The first id of a listing, and the first one behind it; `None` if it has all documents.
fn bounds(query: &RowsQuery) -> Option<(String, String)> {
    match (&query.listing, &query.keys) {
        (Listing::DesignDocs, _) => Some(("_design/".into(), "_design0".into())),
        (Listing::Partition(p), None) => Some(partition::bounds(p)),
        _ => None,
    }
}

impl Placing {
    /// Begins; a listing of keys has no `range`.
    pub fn of(
        query: &RowsQuery,
        range: Option<&Range>,
        views: &Views,
        blocks: Vec<Arc<IdBlocks>>,
    ) -> Placing {
        let total = views.live_total();
        let (from, to) = match bounds(query) {
            Some((from, to)) => (RankSearch::new(from), RankSearch::new(to)),
            None => (RankSearch::found(0), RankSearch::found(total)),
        };
        let edge = range.and_then(Range::edge).map(RankSearch::new);
        Placing {
            blocks,
            ranks: [edge.unwrap_or(RankSearch::found(total)), from, to],
            jump: None,
            of_partition: matches!(query.listing, Listing::Partition(_)),
            descending: query.descending,
            begins_outside: matches!(
                (&query.start, query.descending),
                (Some(Bound::BeforeAll), false) | (Some(Bound::AfterAll), true)
            ),
            skip: query.skip,
            has_rows: range.is_some_and(|range| range.left > 0),
        }
    }

    /// Continues until the piece is over; `None`: more is left.
    pub fn go_on(&mut self, views: &Views, turn: &mut Turn) -> Result<Option<Placed>, Error> {
        let mut ranks = [0; 3];
        for (rank, search) in ranks.iter_mut().zip(&mut self.ranks) {
            match search.go_on(views, &self.blocks, turn)? {
                Some(found) => *rank = found,
                None => return Ok(None),
            }
        }
        let [edge, from, to] = ranks;
        let total = views.live_total();
        let within = to.saturating_sub(from);
        let before = match self.descending {
            true => total.saturating_sub(edge),
            false => edge,
        };
        // As in CouchDB, the offset of design documents counts all documents.
        let base = match (self.of_partition, self.descending) {
            (false, _) => 0,
            (true, true) => total.saturating_sub(to),
            (true, false) => from,
        };
        let skipped = before.saturating_add(self.skip).min(total);
        let shown = match self.begins_outside {
            // CouchDB's offset is 0 then.
            true => base.saturating_add(self.skip),
            false => skipped,
        };
        let start = match self.skip > SKIP_WALKED_MAX && self.has_rows {
            true => self.search_start(skipped, views, turn)?,
            false => Some(Start::OfRange),
        };
        Ok(start.map(|start| Placed {
            total_rows: within,
            // It is at most the number of rows.
            offset: shown.saturating_sub(base).min(within),
            start,
        }))
    }

    /// Searches for the first row behind `skipped` live documents, in the listing's direction.
    fn search_start(
        &mut self,
        skipped: u64,
        views: &Views,
        turn: &mut Turn,
    ) -> Result<Option<Start>, Error> {
        let rank = match self.descending {
            true => views.live_total().checked_sub(skipped + 1),
            false => Some(skipped),
        };
        let Some(rank) = rank else {
            return Ok(Some(Start::Nowhere));
        };
        let blocks = &self.blocks;
        let search = self.jump.get_or_insert_with(|| IdSearch::new(blocks, rank));
        Ok(match search.go_on(views, blocks, turn)? {
            IdFound::NotYet => None,
            IdFound::Id(id) => Some(Start::Id(id)),
            IdFound::Nothing => Some(Start::Nowhere),
        })
    }
}
