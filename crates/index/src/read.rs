//! Reading an index: ranges of rows, ranks and reductions, from one snapshot.

use std::borrow::Cow;
use std::sync::Arc;

use storage::{ShardNumber, Snapshot};

use crate::Error;
use crate::blocks::{Block, BlockPosition, State};
use crate::iter::RowIter;
use crate::part::Part;
use crate::reducer::Reducers;
use crate::row_cache::RowCache;
use crate::row_reduction::{RowOrder, RowReduction};
use crate::spec::Spec;
use crate::state;

/// Rows of a block that custom functions are called with at each query.
const SHORT_BLOCK_ROWS_MAX: u32 = 64;

/// Rows of a block that are walked between two calls of [`Pause`].
const ROWS_BETWEEN: u64 = 8;

/// Returns whether the caller's time is over, once the rows of a block were reduced, or some were walked.
pub type Pause<'a> = &'a dyn Fn() -> bool;

/// A part of a range of rows.
enum RangePart {
    /// The state of a whole block or run.
    State(State),
    /// Rows that are not reduced yet.
    Rows(PlaceRange),
}

/// Places from `low` up to but without `high`; without `high`, to the end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlaceRange {
    /// Empty for the start.
    pub low: Vec<u8>,
    /// The first place beyond.
    pub high: Option<Vec<u8>>,
}

impl PlaceRange {
    /// Returns whether no place can be in it.
    pub fn is_empty(&self) -> bool {
        self.high.as_ref().is_some_and(|h| *h <= self.low)
    }

    /// Returns whether a place is past the range's end in a direction.
    pub(crate) fn is_left(&self, place: &[u8], descending: bool) -> bool {
        match descending {
            true => *place < *self.low,
            false => self.high.as_ref().is_some_and(|high| *place >= **high),
        }
    }
}

/// An index at one moment.
#[derive(Clone)]
pub struct IndexView {
    pub(crate) number: ShardNumber,
    pub(crate) spec: Arc<Spec>,
    pub(crate) reducers: Arc<Reducers>,
    pub(crate) snapshot: Arc<Snapshot>,
    pub(crate) state: Arc<state::State>,
    pub(crate) row_cache: Arc<RowCache>,
    /// Only the rows of one principal: [`IndexView::parts_for`].
    pub(crate) part: Option<Arc<Part>>,
}

impl IndexView {
    /// Returns the specification.
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// Returns the number of the view that stores the rows of a view.
    pub(crate) fn stored_view(&self, view: usize) -> usize {
        match &self.part {
            None => view,
            Some(_) => view + self.spec.mapped(),
        }
    }

    /// Returns a place as it is stored.
    pub(crate) fn stored_place<'p>(&self, place: &'p [u8]) -> Cow<'p, [u8]> {
        match &self.part {
            None => Cow::Borrowed(place),
            Some(part) => Cow::Owned(part.stored(place)),
        }
    }

    /// Returns a range of places as they are stored.
    pub(crate) fn stored_range<'r>(&self, range: &'r PlaceRange) -> Cow<'r, PlaceRange> {
        match &self.part {
            None => Cow::Borrowed(range),
            Some(part) => Cow::Owned(PlaceRange {
                low: part.stored(&range.low),
                high: match &range.high {
                    Some(high) => Some(part.stored(high)),
                    None => part.end(),
                },
            }),
        }
    }

    /// Returns the seq of the shard up to which it is built.
    pub fn indexed_seq(&self) -> u64 {
        self.state.indexed_seq
    }

    /// Returns the number of rows of a view.
    pub fn rows(&self, view: usize) -> u64 {
        self.state.views[view].rows()
    }

    /// Rows before `place`.
    pub fn rank(&self, view: usize, place: &[u8]) -> Result<u64, Error> {
        self.rank_until(view, place, &|| false)
    }

    /// Returns the number of rows before `place`.
    ///
    /// # Errors
    /// [`Error::Paused`] when `pause` returns true. The next call starts again.
    pub fn rank_until(&self, view: usize, place: &[u8], pause: Pause<'_>) -> Result<u64, Error> {
        let blocks = &self.state.views[view];
        let at = blocks.find(place);
        let rank = blocks.rows_before(at);
        let range = PlaceRange {
            low: blocks.block(at).fence.to_vec(),
            high: Some(place.to_vec()),
        };
        if range.is_empty() {
            return Ok(rank);
        }
        if let Some(rows) = self.kept_rows(view, at) {
            return Ok(rank + rows.before(|p| p < place) as u64);
        }
        let mut it = RowIter::of_stored(self, view, range);
        let mut walked = 0;
        while it.place()?.is_some() {
            pass_row(&mut it, &mut walked, pause)?;
        }
        Ok(rank + walked)
    }

    /// Rows before the end of a range.
    pub fn rank_of_end(&self, view: usize, range: &PlaceRange) -> Result<u64, Error> {
        self.rank_of_end_until(view, range, &|| false)
    }

    /// Returns the number of rows before the end of a range.
    ///
    /// # Errors
    /// Errors of [`IndexView::rank_until`].
    pub fn rank_of_end_until(
        &self,
        view: usize,
        range: &PlaceRange,
        pause: Pause<'_>,
    ) -> Result<u64, Error> {
        match &range.high {
            Some(high) => self.rank_until(view, high, pause),
            None => Ok(self.rows(view)),
        }
    }

    /// Returns the place of the row of this rank.
    pub fn place_at(&self, view: usize, rank: u64) -> Result<Option<Vec<u8>>, Error> {
        self.place_at_until(view, rank, &|| false)
    }

    /// Returns the place of the row of this rank.
    ///
    /// # Errors
    /// Errors of [`IndexView::rank_until`].
    pub fn place_at_until(
        &self,
        view: usize,
        rank: u64,
        pause: Pause<'_>,
    ) -> Result<Option<Vec<u8>>, Error> {
        let blocks = &self.state.views[view];
        let Some((at, within)) = blocks.nth(rank) else {
            return Ok(None);
        };
        let range = PlaceRange {
            low: blocks.block(at).fence.to_vec(),
            high: None,
        };
        let mut it = self.iter(view, &range, false);
        let mut walked = 0;
        while walked < within {
            pass_row(&mut it, &mut walked, pause)?;
        }
        Ok(it.row()?.map(|r| r.place.to_vec()))
    }

    /// The state of a reduction over a range; `None` of no rows. The direction is that of the query.
    pub fn reduce(
        &self,
        view: usize,
        function: usize,
        range: &PlaceRange,
        descending: bool,
    ) -> Result<Option<State>, Error> {
        self.reduce_until(view, function, range, descending, &|| false)
    }

    /// Returns the state of a reduction over a range; `None` of no rows.
    ///
    /// # Errors
    /// [`Error::Paused`] when `pause` returns true after the rows of a block were reduced. Their state is
    /// kept, so that the next call continues.
    pub fn reduce_until(
        &self,
        view: usize,
        function: usize,
        range: &PlaceRange,
        descending: bool,
        pause: Pause<'_>,
    ) -> Result<Option<State>, Error> {
        match &self.part {
            None => self.reduce_stored(view, function, range, descending, pause),
            Some(part) => self.reduce_part(part, (view, function), range, descending, pause),
        }
    }

    /// Returns the state of a reduction over a range of stored places, as [`IndexView::reduce_until`]
    /// does.
    pub(crate) fn reduce_stored(
        &self,
        view: usize,
        function: usize,
        range: &PlaceRange,
        descending: bool,
        pause: Pause<'_>,
    ) -> Result<Option<State>, Error> {
        if range.is_empty() {
            return Ok(None);
        }
        let blocks = &self.state.views[view];
        let is_custom = self.reducers.builtin(view, function).is_none();
        // Custom functions can distinguish the directions, and one state is kept.
        let whole = range.low.is_empty() && range.high.is_none() && !(is_custom && descending);
        if whole && let Some(state) = blocks.reductions[function].get() {
            return Ok(Some(state.clone()));
        }
        let parts = self.parts(view, function, range, pause)?;
        let state = match is_custom {
            true => self.reduce_custom(view, function, parts, descending)?,
            false => {
                let states = parts.into_iter().filter_map(|part| match part {
                    RangePart::State(state) => Some(Ok(state)),
                    RangePart::Rows(range) => self.scan(view, function, &range, false).transpose(),
                });
                let states = states.collect::<Result<Vec<_>, _>>()?;
                self.combine(view, function, states)?
            }
        };
        if whole && let Some(state) = &state {
            // Another thread that was first has computed the same.
            let _ = blocks.reductions[function].set(state.clone());
        }
        Ok(state)
    }

    /// The state of parts of a range by a custom function, which is called as CouchDB calls it: with the
    /// rows last to first in an ascending query, and then with the states of all other parts and of
    /// these rows. It gets long rows in several calls.
    fn reduce_custom(
        &self,
        view: usize,
        function: usize,
        parts: Vec<RangePart>,
        descending: bool,
    ) -> Result<Option<State>, Error> {
        let order = match descending {
            true => RowOrder::Same,
            false => RowOrder::LastToFirst,
        };
        let mut rows = RowReduction::new(&self.reducers, (view, function), order);
        let mut states = vec![];
        for part in parts {
            match part {
                RangePart::State(state) => states.push(state),
                RangePart::Rows(range) => {
                    let mut it = self.stored_iter(view, &range, false);
                    while let Some(row) = it.row()? {
                        rows.push(&row.stored, || row.id())?;
                        it.next();
                    }
                }
            }
        }
        if descending {
            states.reverse();
        }
        states.extend(rows.finish_states()?);
        self.combine(view, function, states)
    }

    /// The parts of a range in ascending order: states of whole blocks and runs, and ranges of other rows.
    fn parts(
        &self,
        view: usize,
        function: usize,
        range: &PlaceRange,
        pause: Pause<'_>,
    ) -> Result<Vec<RangePart>, Error> {
        let blocks = &self.state.views[view];
        let mut parts = vec![];
        let first = blocks.find(&range.low);
        if self.is_short(view, function, range, first) {
            return Ok(vec![RangePart::Rows(range.clone())]);
        }
        let mut at = Some(first);
        while let Some(here) = at {
            let block = blocks.block(here);
            if range.high.as_ref().is_some_and(|h| *block.fence >= **h) {
                break;
            }
            let run = &blocks.runs()[here.run];
            let last = BlockPosition {
                run: here.run,
                block: run.blocks.len() - 1,
            };
            if here.block == 0 && self.covers(view, range, here, last)? {
                let state = self.run_state(view, function, here.run, pause)?;
                parts.extend(state.map(RangePart::State));
                at = blocks.next(last);
                continue;
            }
            parts.extend(if self.covers(view, range, here, here)? {
                self.block_state(view, function, here, pause)?
                    .map(RangePart::State)
            } else {
                let low = range.low.as_slice().max(&block.fence);
                let end = blocks.end_of(here);
                let high = match (range.high.as_deref(), end) {
                    (Some(a), Some(b)) => Some(a.min(b)),
                    (a, b) => a.or(b),
                };
                Some(RangePart::Rows(PlaceRange {
                    low: low.to_vec(),
                    high: high.map(<[u8]>::to_vec),
                }))
            });
            at = blocks.next(here);
        }
        Ok(parts)
    }

    /// Whether a custom function is called with all rows of a range in one call: they are in the block at
    /// its beginning, which has few rows. CouchDB has about as many in the nodes at the two ends of a range,
    /// whose rows it hands to the function.
    fn is_short(
        &self,
        view: usize,
        function: usize,
        range: &PlaceRange,
        first: BlockPosition,
    ) -> bool {
        let blocks = &self.state.views[view];
        let is_within = || match (blocks.end_of(first), &range.high) {
            (None, _) => true,
            (Some(end), Some(high)) => *end >= **high,
            (Some(_), None) => false,
        };
        self.reducers.builtin(view, function).is_none()
            && blocks.block(first).rows <= SHORT_BLOCK_ROWS_MAX
            && is_within()
    }

    /// Do the blocks from `first` to `last` lie in the range with all their rows?
    fn covers(
        &self,
        view: usize,
        range: &PlaceRange,
        first: BlockPosition,
        last: BlockPosition,
    ) -> Result<bool, Error> {
        let blocks = &self.state.views[view];
        if *blocks.block(first).fence < *range.low {
            return Ok(false);
        }
        let Some(high) = &range.high else {
            return Ok(true);
        };
        match blocks.end_of(last) {
            Some(end) if *end <= **high => Ok(true),
            // Where a block was cut for a group, rows end before the group does.
            _ if *blocks.block(last).fence < **high => self.ends_before(view, last, high),
            _ => Ok(false),
        }
    }

    /// Returns whether all rows of a block are before `high`.
    fn ends_before(&self, view: usize, at: BlockPosition, high: &[u8]) -> Result<bool, Error> {
        let blocks = &self.state.views[view];
        let block = blocks.block(at);
        if let Some(last) = block.last.get() {
            return Ok(**last < *high);
        }
        let range = PlaceRange {
            low: block.fence.to_vec(),
            high: blocks.end_of(at).map(<[u8]>::to_vec),
        };
        let it = self.stored_iter(view, &range, true);
        let Some(last) = it.place()? else {
            return Ok(true);
        };
        let is_before = *last < *high;
        // A concurrent lookup found the same place.
        let _ = block.last.set(last.into());
        Ok(is_before)
    }

    /// Whether a range that begins in this block has all of it, or all of the next one.
    pub(crate) fn is_worth_summing(
        &self,
        (view, function): (usize, usize),
        range: &PlaceRange,
        at: BlockPosition,
    ) -> Result<bool, Error> {
        let (view, stored) = (self.stored_view(view), self.stored_range(range));
        let range = &*stored;
        if self.is_short(view, function, range, at) {
            return Ok(false);
        }
        if self.covers(view, range, at, at)? {
            return Ok(true);
        }
        match self.state.views[view].next(at) {
            Some(next) => self.covers(view, range, next, next),
            None => Ok(false),
        }
    }

    fn run_state(
        &self,
        view: usize,
        function: usize,
        run: usize,
        pause: Pause<'_>,
    ) -> Result<Option<State>, Error> {
        let run_blocks = &self.state.views[view].runs()[run];
        if let Some(state) = run_blocks.reductions[function].get() {
            return Ok(Some(state.clone()));
        }
        let mut parts = vec![];
        for block in 0..run_blocks.blocks.len() {
            let at = BlockPosition { run, block };
            parts.extend(self.block_state(view, function, at, pause)?);
        }
        if self.reducers.builtin(view, function).is_none() {
            // As CouchDB does it with the nodes below a node.
            parts.reverse();
        }
        let state = self.combine(view, function, parts)?;
        if let Some(state) = &state {
            let _ = run_blocks.reductions[function].set(state.clone());
        }
        Ok(state)
    }

    /// Returns the state of a block's rows; `None` of no rows. Concurrent readers share the work, block by
    /// block.
    ///
    /// # Errors
    /// [`Error::Paused`] when `pause` returns true after the state was computed, here or concurrently.
    pub(crate) fn block_state(
        &self,
        view: usize,
        function: usize,
        at: BlockPosition,
        pause: Pause<'_>,
    ) -> Result<Option<State>, Error> {
        let blocks = &self.state.views[view];
        let block: &Block = blocks.block(at);
        if block.rows == 0 {
            return Ok(None);
        }
        if let Some(state) = block.reductions[function].get() {
            return Ok(Some(state.clone()));
        }
        let state = {
            // A custom function waits for a place, which a reader that waits here may have.
            let is_builtin = self.reducers.builtin(view, function).is_some();
            let _reduces = is_builtin.then(|| self.reducers.lock(at)).flatten();
            match block.reductions[function].get() {
                Some(state) => Some(state.clone()),
                None => self.reduce_block(view, function, at)?,
            }
        };
        match pause() {
            true => Err(Error::Paused),
            false => Ok(state),
        }
    }

    fn reduce_block(
        &self,
        view: usize,
        function: usize,
        at: BlockPosition,
    ) -> Result<Option<State>, Error> {
        let blocks = &self.state.views[view];
        let block = blocks.block(at);
        let range = PlaceRange {
            low: block.fence.to_vec(),
            high: blocks.end_of(at).map(<[u8]>::to_vec),
        };
        let state = self.scan(view, function, &range, true)?;
        if let Some(state) = &state {
            let _ = block.reductions[function].set(state.clone());
        }
        Ok(state)
    }

    /// The state of the rows of a range within a block, or of all of the block. A custom function gets
    /// them in ascending order, as it gets those of a node in CouchDB.
    fn scan(
        &self,
        view: usize,
        function: usize,
        range: &PlaceRange,
        is_whole: bool,
    ) -> Result<Option<State>, Error> {
        let mut rows = RowReduction::new(&self.reducers, (view, function), RowOrder::Same);
        let mut it = match is_whole {
            true => RowIter::of_stored(self, view, range.clone()),
            false => self.stored_iter(view, range, false),
        };
        while let Some(row) = it.row()? {
            rows.push(&row.stored, || row.id())?;
            it.next();
        }
        rows.finish()
    }

    /// Returns the state of all rows of these states; `None` of no states.
    pub(crate) fn combine(
        &self,
        view: usize,
        function: usize,
        parts: Vec<State>,
    ) -> Result<Option<State>, Error> {
        if parts.is_empty() {
            return Ok(None);
        }
        Ok(Some(self.reducers.rereduce(view, function, &parts)?))
    }

    /// Returns whether the function's result depends on which rows come first.
    pub fn depends_on_order(&self, view: usize, function: usize) -> bool {
        use crate::reduce::Builtin as B;
        match self.reducers.builtin(view, function) {
            None | Some(B::First | B::Last) => true,
            Some(B::Sum | B::Count | B::Stats | B::ApproxCountDistinct) => false,
            Some(B::Top(_) | B::Bottom(_)) => false,
        }
    }

    /// Returns the place of a range's first row, or of its last.
    pub fn edge(
        &self,
        view: usize,
        range: &PlaceRange,
        last: bool,
    ) -> Result<Option<Vec<u8>>, Error> {
        let mut it = self.iter(view, range, last);
        while it.is_elsewhere()? {
            it.next();
        }
        Ok(it.row()?.map(|row| row.place.to_vec()))
    }

    /// Returns whether the function's result is that of the last rows rather than of the first.
    pub fn is_of_last(&self, view: usize, function: usize) -> bool {
        use crate::reduce::Builtin as B;
        match self.reducers.builtin(view, function) {
            Some(B::Last) => true,
            None | Some(B::First | B::Sum | B::Count | B::Stats) => false,
            Some(B::ApproxCountDistinct | B::Top(_) | B::Bottom(_)) => false,
        }
    }

    /// The state of all rows of the states of shards, of one at least.
    pub fn rereduce_shards(
        &self,
        view: usize,
        function: usize,
        states: &[State],
    ) -> Result<State, Error> {
        self.reducers.rereduce_shards(view, function, states)
    }

    /// Whether a function is one of users, which can observe its calls.
    pub fn is_custom(&self, view: usize, function: usize) -> bool {
        self.reducers.builtin(view, function).is_none()
    }

    /// The places of the rows that one document has with one key, of which the row at a place is one;
    /// `None` if there is no such row.
    pub fn same_key(&self, view: usize, place: &[u8]) -> Result<Option<PlaceRange>, Error> {
        let range = PlaceRange {
            low: place.to_vec(),
            high: None,
        };
        let it = self.iter(view, &range, false);
        match it.row()?.filter(|row| row.place == place) {
            Some(row) => row.same_key().map(Some),
            None => Ok(None),
        }
    }

    /// Returns the result of a state as a client sees it.
    pub fn finalize(&self, view: usize, function: usize, state: &[u8]) -> Result<Vec<u8>, Error> {
        self.reducers.finalize(view, function, state)
    }
}

/// Moves to the next row, and counts the one before.
fn pass_row(it: &mut RowIter<'_>, walked: &mut u64, pause: Pause<'_>) -> Result<(), Error> {
    it.next();
    *walked += 1;
    match walked.is_multiple_of(ROWS_BETWEEN) && pause() {
        true => Err(Error::Paused),
        false => Ok(()),
    }
}
