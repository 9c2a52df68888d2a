//! A range of ids: its start and end.

use super::query::{Bound, Listing, RowsQuery};
use crate::partition;
use crate::select::IdMerge;

/// Where the rows begin.
pub(super) enum Start {
    /// At the start of the range, whose first rows are skipped.
    OfRange,
    /// At this id, behind the skipped rows.
    Id(Vec<u8>),
    /// There are no rows behind the skipped ones.
    Nowhere,
}

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

    /// The first id behind the end at which the range begins, ascending the first id in it. `None`
    /// if it begins at the last id.
    pub(super) fn edge(&self) -> Option<Vec<u8>> {
        if !self.descending {
            return Some(self.low.clone());
        }
        let mut edge = self.high.clone()?;
        if self.high_inclusive {
            edge.push(0);
        }
        Some(edge)
    }

    /// Moves to where the rows begin, and leaves out what is skipped on the way.
    pub(super) fn start(&mut self, start: Start) {
        match start {
            Start::OfRange => return,
            Start::Id(id) => self.from = Some(id),
            Start::Nowhere => self.left = 0,
        }
        self.skip = 0;
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
