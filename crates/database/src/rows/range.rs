//! A range of ids: its start and end, and the offset of its first row.

use std::sync::Arc;

use storage::IdBlocks;

use super::{Bound, Listing, RowsQuery};
use crate::select::{IdMerge, Views};
use crate::{Error, partition};

/// Skips up to this many rows by walking them; more by the summary tree.
const SKIP_WALKED_MAX: u64 = 512;

/// The rest of a range.
pub(super) struct Range {
    pub(super) local: bool,
    pub(super) descending: bool,
    /// Where to continue; `None`: from the listing's end in its direction.
    pub(super) from: Option<Vec<u8>>,
    /// `from` was the last row returned, and is to be skipped.
    pub(super) after: bool,
    /// First id that is not in the listing's range any more (ascending), or the last that still is (descending).
    low: Vec<u8>,
    high: Option<Vec<u8>>,
    high_inclusive: bool,
    low_inclusive: bool,
    pub(super) skip: u64,
    pub(super) left: u64,
}

impl Range {
    pub(super) fn of(query: &RowsQuery) -> Range {
        // The listing's own bounds, then the query's within them.
        let (mut low, mut high) = match &query.listing {
            Listing::DesignDocs => (b"_design/".to_vec(), Some(b"_design0".to_vec())),
            Listing::Partition(p) => {
                let (from, to) = partition::bounds(p);
                (from.into_bytes(), Some(to.into_bytes()))
            }
            Listing::AllDocs | Listing::LocalDocs => (vec![], None),
        };
        let (mut low_inclusive, mut high_inclusive) = (true, false);
        let (from_low, from_high) = if query.descending {
            (&query.end, &query.start)
        } else {
            (&query.start, &query.end)
        };
        let mut empty = false;
        match from_low {
            Some(Bound::Id(id)) if id.as_bytes() >= low.as_slice() => {
                low = id.clone().into_bytes();
                low_inclusive = !query.descending || query.inclusive_end;
            }
            Some(Bound::AfterAll) => empty = true,
            _ => {}
        }
        match from_high {
            Some(Bound::Id(id)) if high.as_ref().is_none_or(|h| id.as_bytes() < h.as_slice()) => {
                high = Some(id.clone().into_bytes());
                high_inclusive = query.descending || query.inclusive_end;
            }
            Some(Bound::BeforeAll) => empty = true,
            _ => {}
        }
        Range {
            local: matches!(query.listing, Listing::LocalDocs),
            descending: query.descending,
            from: if query.descending {
                high.clone()
            } else {
                Some(low.clone())
            },
            after: false,
            low,
            high,
            high_inclusive,
            low_inclusive,
            skip: query.skip,
            left: if empty {
                0
            } else {
                query.limit.unwrap_or(u64::MAX)
            },
        }
    }

    /// Works out the offset of the first row, and jumps there when the skip is long.
    pub(super) fn place(
        &mut self,
        views: &Views,
        blocks: &[Arc<IdBlocks>],
        query: &RowsQuery,
    ) -> Result<u64, Error> {
        let total = views.live_total();
        let before = self.rows_before(views, blocks)?;
        let base = match &query.listing {
            Listing::Partition(p) if !self.descending => {
                views.rank(blocks, partition::bounds(p).0.as_bytes())?
            }
            Listing::Partition(p) => {
                total - views.rank(blocks, partition::bounds(p).1.as_bytes())?
            }
            _ => 0,
        };
        let within = match &query.listing {
            Listing::Partition(p) => {
                let (from, to) = partition::bounds(p);
                views.rank(blocks, to.as_bytes())? - views.rank(blocks, from.as_bytes())?
            }
            // As in CouchDB, the offset counts all documents, and is at most the number of rows.
            Listing::DesignDocs => {
                views.rank(blocks, b"_design0")? - views.rank(blocks, b"_design/")?
            }
            _ => total,
        };
        let skipped = before.saturating_add(self.skip).min(total);
        let shown = match (&query.start, self.descending) {
            // A start outside the listing's kind of keys: CouchDB's offset is 0.
            (Some(Bound::BeforeAll), false) | (Some(Bound::AfterAll), true) => {
                base.saturating_add(self.skip)
            }
            _ => skipped,
        };
        if self.skip > SKIP_WALKED_MAX && self.left > 0 {
            let rank = if self.descending {
                total.checked_sub(skipped + 1)
            } else {
                Some(skipped)
            };
            match rank.map(|r| views.id_at(blocks, r)).transpose()?.flatten() {
                Some(id) => self.from = Some(id),
                None => self.left = 0,
            }
            self.skip = 0;
        }
        Ok(shown.saturating_sub(base).min(within))
    }

    /// Rank of the range's first row in its direction, without the skip.
    fn rows_before(&self, views: &Views, blocks: &[Arc<IdBlocks>]) -> Result<u64, Error> {
        if !self.descending {
            return views.rank(blocks, &self.low);
        }
        let Some(high) = &self.high else {
            return Ok(0);
        };
        let mut upto = high.clone();
        if self.high_inclusive {
            upto.push(0);
        }
        Ok(views.live_total() - views.rank(blocks, &upto)?)
    }

    pub(super) fn position(&self, merge: &mut IdMerge<'_>) {
        match &self.from {
            Some(id) => merge.seek(id),
            None => merge.seek_to_end(),
        }
    }

    /// Is `id` past the range in its direction?
    pub(super) fn is_past(&self, id: &[u8]) -> bool {
        if self.descending {
            let low = self.low.as_slice();
            return id < low || (id == low && !self.low_inclusive);
        }
        self.is_above(id)
    }

    fn is_above(&self, id: &[u8]) -> bool {
        self.high
            .as_deref()
            .is_some_and(|high| id > high || (id == high && !self.high_inclusive))
    }

    /// Is `id` not yet in the range?
    pub(super) fn is_before(&self, id: &[u8]) -> bool {
        let again = self.after && self.from.as_deref() == Some(id);
        again || (self.descending && self.is_above(id))
    }
}
