//! Iteration over the rows of a range, in either direction.
//!
//! Rows of frequently read blocks are in memory ([`crate::row_cache`]). A reader goes through them
//! block by block, and opens a cursor of the engine where a block's rows are not cached; it keeps
//! that cursor until it jumps.

use std::sync::Arc;

use storage::{Cursor, Keyspace};

use crate::Error;
use crate::blocks::BlockPosition;
use crate::keys::{RowValue, VIEW_LEN, id_of, row_key, successor, view_prefix};
use crate::part::Part;
use crate::read::{IndexView, PlaceRange};
use crate::row_cache::BlockRows;

/// The byte that ends a document id in a place unless the escape follows: `keys::put_terminated`
/// writes them.
const ID_END: u8 = 0;
const ESCAPE: u8 = 0xff;

/// A row, as stored.
#[derive(Clone, Copy, Debug)]
pub struct ViewRow<'a> {
    /// Its place in the view.
    pub place: &'a [u8],
    /// The emitted key and value.
    pub stored: RowValue<'a>,
}

impl ViewRow<'_> {
    /// Returns the document.
    pub fn id(&self) -> Result<String, Error> {
        id_of(self.place, self.stored.sort_len)
    }

    /// Returns whether its document has rows with its key before it: the first one's ordinal is empty.
    pub fn repeats(&self) -> Result<bool, Error> {
        Ok(ordinal_at(self.place, self.stored.sort_len)? < self.place.len())
    }

    /// The places of the rows that its document has with its key.
    pub fn same_key(&self) -> Result<PlaceRange, Error> {
        same_key(self.place, self.stored.sort_len)
    }
}

/// The places of rows that differ from a place by their ordinal alone.
fn same_key(place: &[u8], sort_len: usize) -> Result<PlaceRange, Error> {
    let low = place[..ordinal_at(place, sort_len)?].to_vec();
    let mut high = low.clone();
    // An ordinal begins with a zero, and what continues an id with a greater byte.
    high.push(1);
    Ok(PlaceRange {
        low,
        high: Some(high),
    })
}

/// Returns where the ordinal in a place begins, which is its end when the ordinal is empty.
fn ordinal_at(place: &[u8], sort_len: usize) -> Result<usize, Error> {
    let mut at = sort_len;
    while let Some(end) = (place.get(at..)).and_then(|id| id.iter().position(|b| *b == ID_END)) {
        at += end + 1;
        if place.get(at) != Some(&ESCAPE) {
            return Ok(at);
        }
        at += 1;
    }
    Err(Error::Storage(storage::Error::Corrupt("index row")))
}

/// Rows of a range in either direction.
pub struct RowIter<'a> {
    index: &'a IndexView,
    view: usize,
    range: PlaceRange,
    descending: bool,
    here: IterState,
    /// The engine's, once it was needed.
    cursor: Option<Cursor<'a>>,
    /// Rows of one principal: their places are given without it.
    part: Option<&'a Part>,
}

enum IterState {
    /// At a row of a block in memory.
    Cached(CachedRow),
    /// At the engine's cursor.
    Stored,
    End,
}

/// A row of a block in memory.
struct CachedRow {
    rows: Arc<BlockRows>,
    at: BlockPosition,
    row: usize,
    /// The range may end in the block, in the iterator's direction.
    is_last: bool,
}

/// Target of an iterator: the first row there in its direction.
#[derive(Clone, Copy)]
enum Target<'p> {
    /// The start of the range.
    Start,
    /// At a place, or beyond it.
    Place(&'p [u8]),
    /// Below a place. Only going down.
    Below(&'p [u8]),
}

impl<'a> RowIter<'a> {
    /// At the first row of the range in the direction.
    pub(crate) fn new(
        index: &'a IndexView,
        view: usize,
        range: PlaceRange,
        descending: bool,
    ) -> RowIter<'a> {
        let mut iter = RowIter {
            index,
            view,
            range,
            descending,
            here: IterState::End,
            cursor: None,
            part: None,
        };
        iter.go(Target::Start);
        iter
    }

    /// Returns the same without the cache: for readers of all rows of a block once.
    pub(crate) fn of_stored(index: &'a IndexView, view: usize, range: PlaceRange) -> RowIter<'a> {
        let mut cursor = open(index, view, &range);
        cursor.seek_to_first();
        RowIter {
            index,
            view,
            range,
            descending: false,
            here: IterState::Stored,
            cursor: Some(cursor),
            part: None,
        }
    }

    /// Returns the row here; `None` at the end.
    pub fn row(&self) -> Result<Option<ViewRow<'_>>, Error> {
        let (place, value) = match (&self.here, &self.cursor) {
            (IterState::Cached(kept), _) => (kept.rows.place(kept.row), kept.rows.value(kept.row)),
            (IterState::Stored, Some(cursor)) => match cursor.item() {
                Some((key, value)) => (&key[VIEW_LEN..], value),
                None => {
                    cursor.status()?;
                    return Ok(None);
                }
            },
            _ => return Ok(None),
        };
        let stored = RowValue::decode(value)?;
        Ok(Some(match self.part {
            None => ViewRow { place, stored },
            Some(part) => ViewRow {
                place: part.own(place),
                stored: RowValue {
                    sort_len: stored.sort_len.saturating_sub(part.prefix().len()),
                    ..stored
                },
            },
        }))
    }

    /// Returns the place of the current row; `None` at the end.
    pub fn place(&self) -> Result<Option<&[u8]>, Error> {
        let place = self.stored_place()?;
        Ok(match self.part {
            None => place,
            Some(part) => place.map(|place| part.own(place)),
        })
    }

    fn stored_place(&self) -> Result<Option<&[u8]>, Error> {
        Ok(match (&self.here, &self.cursor) {
            (IterState::Cached(kept), _) => Some(kept.rows.place(kept.row)),
            (IterState::Stored, Some(cursor)) => match cursor.key() {
                Some(key) => Some(&key[VIEW_LEN..]),
                None => {
                    cursor.status()?;
                    None
                }
            },
            _ => None,
        })
    }

    /// Moves to the first row at or after `place`, in the iterator's direction and within its
    /// range.
    pub fn seek(&mut self, place: &[u8]) {
        let stored = self.part.map(|part| part.stored(place));
        self.go(Target::Place(stored.as_deref().unwrap_or(place)));
    }

    /// Returns whether another part of the user has the row here too, so that it does not count here.
    pub(crate) fn is_elsewhere(&self) -> Result<bool, Error> {
        let others = self.part.map_or(&[][..], Part::others);
        if others.is_empty() {
            return Ok(false);
        }
        let Some(place) = self.place()? else {
            return Ok(false);
        };
        for prefix in others {
            let stored = [&prefix[..], place].concat();
            let key = row_key(self.index.number, self.view as u16, &stored);
            let snapshot = &self.index.snapshot;
            if snapshot.get(Keyspace::IndexRows, &key)?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Moves to the next row in the direction.
    pub fn next(&mut self) {
        match (&mut self.here, &mut self.cursor) {
            (IterState::Cached(kept), _) => {
                let next = match self.descending {
                    true => kept.row.checked_sub(1),
                    false => Some(kept.row + 1).filter(|row| *row < kept.rows.len()),
                };
                match next {
                    Some(row)
                        if kept.is_last
                            && self.range.is_left(kept.rows.place(row), self.descending) =>
                    {
                        self.here = IterState::End;
                    }
                    Some(row) => kept.row = row,
                    None => {
                        let at = kept.at;
                        self.leave(at);
                    }
                }
            }
            (IterState::Stored, Some(cursor)) if self.descending => cursor.prev(),
            (IterState::Stored, Some(cursor)) => cursor.next(),
            _ => {}
        }
    }

    /// Continues after a cached block.
    fn leave(&mut self, at: BlockPosition) {
        let blocks = &self.index.state.views[self.view];
        let fence = &*blocks.block(at).fence;
        if self.descending {
            match blocks.previous(at) {
                Some(previous) if fence > &*self.range.low => {
                    self.enter(previous, Target::Below(fence));
                }
                _ => self.here = IterState::End,
            }
            return;
        }
        match blocks.next(at) {
            Some(next) if self.reaches(&blocks.block(next).fence) => {
                self.enter(next, Target::Place(&blocks.block(next).fence));
            }
            _ => self.here = IterState::End,
        }
    }

    /// Returns whether places from `place` on are in the range.
    fn reaches(&self, place: &[u8]) -> bool {
        self.range.high.as_ref().is_none_or(|high| place < &**high)
    }

    fn go(&mut self, target: Target<'_>) {
        if self.range.is_empty() {
            self.here = IterState::End;
            return;
        }
        let blocks = &self.index.state.views[self.view];
        let at = match (target, self.descending) {
            (Target::Place(place) | Target::Below(place), _) => {
                let high = self.range.high.as_deref().unwrap_or(place);
                blocks.find(place.min(high).max(&self.range.low))
            }
            (Target::Start, false) => blocks.find(&self.range.low),
            (Target::Start, true) => match &self.range.high {
                Some(high) => blocks.find(high),
                None => blocks.last(),
            },
        };
        self.enter(at, target);
    }

    /// Moves to the first row at the target in a block or the following ones; the target is in the
    /// block, before it, or outside of the range.
    fn enter(&mut self, mut at: BlockPosition, target: Target<'_>) {
        let mut target = target;
        let (index, view) = (self.index, self.view);
        let blocks = &index.state.views[view];
        loop {
            let Some(rows) = index.kept_rows(view, at) else {
                return self.look_up(target);
            };
            let fence = &*blocks.block(at).fence;
            let is_last = match (self.descending, &self.range.high) {
                (true, _) => *self.range.low > *fence,
                (false, Some(high)) => blocks.end_of(at).is_none_or(|end| *end > **high),
                (false, None) => false,
            };
            let row = self.row_at(&rows, fence, target);
            if let Some(row) = row {
                self.here = match is_last && self.range.is_left(rows.place(row), self.descending) {
                    true => IterState::End,
                    false => IterState::Cached(CachedRow {
                        rows,
                        at,
                        row,
                        is_last,
                    }),
                };
                return;
            }
            // None of this block's rows is left: those of the next one in the direction are all
            // beyond the target.
            let next = match self.descending {
                true => blocks.previous(at).filter(|_| *fence > *self.range.low),
                false => blocks
                    .next(at)
                    .filter(|n| self.reaches(&blocks.block(*n).fence)),
            };
            let Some(next) = next else {
                self.here = IterState::End;
                return;
            };
            target = match self.descending {
                true => Target::Below(fence),
                false => Target::Place(&blocks.block(next).fence),
            };
            at = next;
        }
    }

    /// Returns the first row of a block at the target, in the direction, that is within the range;
    /// `None` when the block has none.
    fn row_at(&self, rows: &BlockRows, fence: &[u8], target: Target<'_>) -> Option<usize> {
        if self.descending {
            let high = self.range.high.as_deref();
            let is_beyond = |place: &[u8]| match target {
                Target::Start => false,
                Target::Place(to) => place > to,
                Target::Below(to) => place >= to,
            };
            let behind = rows.before(|p| !is_beyond(p) && high.is_none_or(|high| p < high));
            return behind.checked_sub(1);
        }
        let low = &*self.range.low;
        let from = match target {
            Target::Place(place) | Target::Below(place) => place.max(low),
            Target::Start => low,
        };
        let row = match from > fence {
            true => rows.before(|place| place < from),
            false => 0,
        };
        (row < rows.len()).then_some(row)
    }

    /// Seeks the target with the engine's cursor.
    fn look_up(&mut self, target: Target<'_>) {
        let (index, view) = (self.index, self.view);
        let key = |place: &[u8]| row_key(index.number, view as u16, place);
        self.here = IterState::Stored;
        let cursor = self
            .cursor
            .get_or_insert_with(|| open(index, view, &self.range));
        match (target, self.descending) {
            (Target::Start, false) => cursor.seek_to_first(),
            (Target::Start, true) => cursor.seek_to_last(),
            (Target::Place(place) | Target::Below(place), false) => cursor.seek(key(place)),
            (Target::Place(place), true) => cursor.seek_for_prev(key(place)),
            (Target::Below(place), true) => {
                let key = key(place);
                cursor.seek_for_prev(&key);
                if cursor.key() == Some(&key[..]) {
                    cursor.prev();
                }
            }
        }
    }
}

/// Returns a cursor over the rows of a range, not yet positioned.
fn open<'a>(index: &'a IndexView, view: usize, range: &PlaceRange) -> Cursor<'a> {
    let low = row_key(index.number, view as u16, &range.low);
    let high = match &range.high {
        Some(high) => row_key(index.number, view as u16, high),
        // There are fewer views than the number's maximum: the next view's prefix exists.
        None => successor(&view_prefix(index.number, view as u16)).unwrap_or_default(),
    };
    let high = high.max(low.clone());
    index.snapshot.iter_range(Keyspace::IndexRows, low, high)
}

impl IndexView {
    /// Iterates over a range, from its start in the direction.
    pub fn iter(&self, view: usize, range: &PlaceRange, descending: bool) -> RowIter<'_> {
        match self.part.as_deref() {
            None => self.stored_iter(view, range, descending),
            Some(part) => {
                let range = self.stored_range(range).into_owned();
                RowIter {
                    part: Some(part),
                    ..RowIter::new(self, self.stored_view(view), range, descending)
                }
            }
        }
    }

    /// Iterates over a range of stored places.
    pub(crate) fn stored_iter(
        &self,
        view: usize,
        range: &PlaceRange,
        descending: bool,
    ) -> RowIter<'_> {
        RowIter::new(self, view, range.clone(), descending)
    }

    /// Returns the rows of a block if they are in memory, where frequently read ones are added.
    pub(crate) fn kept_rows(&self, view: usize, at: BlockPosition) -> Option<Arc<BlockRows>> {
        let block = self.state.views[view].block(at);
        self.row_cache
            .rows(&block.heat, || self.read_block(view, at))
    }

    /// All rows of a block; `None` when they are too long, or cannot be read.
    fn read_block(&self, view: usize, at: BlockPosition) -> Option<BlockRows> {
        let blocks = &self.state.views[view];
        let block = blocks.block(at);
        let range = PlaceRange {
            low: block.fence.to_vec(),
            high: blocks.end_of(at).map(<[u8]>::to_vec),
        };
        let mut cursor = open(self, view, &range);
        let mut rows = BlockRows::default();
        cursor.seek_to_first();
        while let Some((key, value)) = cursor.item() {
            if !rows.push(&key[VIEW_LEN..], value) {
                return None;
            }
            cursor.next();
        }
        cursor.status().ok()?;
        // A different count means damage, and is left to the engine.
        (rows.len() == block.rows as usize).then_some(rows)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::keys::put_place_end;

    proptest! {
        #[test]
        fn an_ordinal_begins_after_the_id(id in "[\0a\u{ff}]{0,6}", ordinal in 0_u32..300) {
            let mut place = b"key".to_vec();
            put_place_end(&id, ordinal, &mut place);
            let at = ordinal_at(&place, 3).unwrap();
            let expected = match ordinal {
                0 => vec![],
                n => n.to_be_bytes().to_vec(),
            };
            prop_assert_eq!(&place[at..], &expected[..]);
        }
    }
}
