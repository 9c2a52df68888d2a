//! Reading an index: ranges of rows, ranks, reductions and groups, from one snapshot.

use std::collections::VecDeque;
use std::sync::Arc;

use document::collation::{HIGHEST, first_elements, group_prefix};
use document::write_json_string;
use storage::{ShardNumber, Snapshot};

use crate::Error;
use crate::blocks::{At, Block, State};
use crate::iter::{RowIter, ViewRow};
use crate::reducer::{Reducers, RowBatch};
use crate::row_cache::RowCache;
use crate::spec::Spec;
use crate::state;

/// Maximum groups computed ahead, and their bytes, approximately.
const GROUPS_AHEAD_MAX: usize = 128;
/// Groups worked out at first, twice as many each time: many readers want few.
const GROUPS_AHEAD_FIRST: usize = 4;
const GROUP_BYTES_AHEAD_MAX: usize = 64 << 10;

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
pub struct IndexView {
    pub(crate) number: ShardNumber,
    pub(crate) spec: Arc<Spec>,
    pub(crate) reducers: Arc<Reducers>,
    pub(crate) snapshot: Arc<Snapshot>,
    pub(crate) state: Arc<state::State>,
    pub(crate) row_cache: Arc<RowCache>,
}

impl IndexView {
    /// Returns the specification.
    pub fn spec(&self) -> &Spec {
        &self.spec
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
        let blocks = &self.state.views[view];
        let at = blocks.find(place);
        let mut rank = blocks.rows_before(at);
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
        while it.place()?.is_some() {
            rank += 1;
            it.next();
        }
        Ok(rank)
    }

    /// Rows before the end of a range.
    pub fn rank_of_end(&self, view: usize, range: &PlaceRange) -> Result<u64, Error> {
        match &range.high {
            Some(high) => self.rank(view, high),
            None => Ok(self.rows(view)),
        }
    }

    /// Returns the place of the row of this rank.
    pub fn place_at(&self, view: usize, rank: u64) -> Result<Option<Vec<u8>>, Error> {
        let blocks = &self.state.views[view];
        let Some((at, within)) = blocks.nth(rank) else {
            return Ok(None);
        };
        let range = PlaceRange {
            low: blocks.block(at).fence.to_vec(),
            high: None,
        };
        let mut it = self.iter(view, &range, false);
        for _ in 0..within {
            it.next();
        }
        Ok(it.row()?.map(|r| r.place.to_vec()))
    }

    /// Returns the state of a reduction over a range; `None` of no rows.
    pub fn reduce(
        &self,
        view: usize,
        function: usize,
        range: &PlaceRange,
    ) -> Result<Option<State>, Error> {
        if range.is_empty() {
            return Ok(None);
        }
        let blocks = &self.state.views[view];
        let whole = range.low.is_empty() && range.high.is_none();
        if whole && let Some(state) = blocks.reductions[function].get() {
            return Ok(Some(state.clone()));
        }
        let mut parts = vec![];
        let mut at = Some(blocks.find(&range.low));
        while let Some(here) = at {
            let block = blocks.block(here);
            if range.high.as_ref().is_some_and(|h| *block.fence >= **h) {
                break;
            }
            let run = &blocks.runs()[here.run];
            let last = At {
                run: here.run,
                block: run.blocks.len() - 1,
            };
            if here.block == 0 && self.covers(view, range, here, last)? {
                parts.extend(self.run_state(view, function, here.run)?);
                at = blocks.next(last);
                continue;
            }
            parts.extend(if self.covers(view, range, here, here)? {
                self.block_state(view, function, here)?
            } else {
                let low = range.low.as_slice().max(&block.fence);
                let end = blocks.end_of(here);
                let high = match (range.high.as_deref(), end) {
                    (Some(a), Some(b)) => Some(a.min(b)),
                    (a, b) => a.or(b),
                };
                self.scan(view, function, low, high, false)?
            });
            at = blocks.next(here);
        }
        let state = self.combine(view, function, parts)?;
        if whole && let Some(state) = &state {
            // A concurrent computation gave the same state.
            let _ = blocks.reductions[function].set(state.clone());
        }
        Ok(state)
    }

    /// Do the blocks from `first` to `last` lie in the range with all their rows?
    fn covers(&self, view: usize, range: &PlaceRange, first: At, last: At) -> Result<bool, Error> {
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
    fn ends_before(&self, view: usize, at: At, high: &[u8]) -> Result<bool, Error> {
        let blocks = &self.state.views[view];
        let block = blocks.block(at);
        if let Some(last) = block.last.get() {
            return Ok(**last < *high);
        }
        let range = PlaceRange {
            low: block.fence.to_vec(),
            high: blocks.end_of(at).map(<[u8]>::to_vec),
        };
        let Some(last) = self.edge(view, &range, true)? else {
            return Ok(true);
        };
        let is_before = *last < *high;
        // A concurrent lookup found the same place.
        let _ = block.last.set(last.into());
        Ok(is_before)
    }

    /// Returns whether a range that starts in this block includes all of it, or all of the next
    /// one.
    fn is_worth_summing(&self, view: usize, range: &PlaceRange, at: At) -> Result<bool, Error> {
        if self.covers(view, range, at, at)? {
            return Ok(true);
        }
        match self.state.views[view].next(at) {
            Some(next) => self.covers(view, range, next, next),
            None => Ok(false),
        }
    }

    fn run_state(&self, view: usize, function: usize, run: usize) -> Result<Option<State>, Error> {
        let run_blocks = &self.state.views[view].runs()[run];
        if let Some(state) = run_blocks.reductions[function].get() {
            return Ok(Some(state.clone()));
        }
        let mut parts = vec![];
        for block in 0..run_blocks.blocks.len() {
            parts.extend(self.block_state(view, function, At { run, block })?);
        }
        let state = self.combine(view, function, parts)?;
        if let Some(state) = &state {
            let _ = run_blocks.reductions[function].set(state.clone());
        }
        Ok(state)
    }

    pub(crate) fn block_state(
        &self,
        view: usize,
        function: usize,
        at: At,
    ) -> Result<Option<State>, Error> {
        let blocks = &self.state.views[view];
        let block: &Block = blocks.block(at);
        if block.rows == 0 {
            return Ok(None);
        }
        if let Some(state) = block.reductions[function].get() {
            return Ok(Some(state.clone()));
        }
        let state = self.scan(view, function, &block.fence, blocks.end_of(at), true)?;
        if let Some(state) = &state {
            let _ = block.reductions[function].set(state.clone());
        }
        Ok(state)
    }

    /// Returns the state of the rows from `low` up to `high`, which are within a block, or all of
    /// it.
    fn scan(
        &self,
        view: usize,
        function: usize,
        low: &[u8],
        high: Option<&[u8]>,
        is_whole: bool,
    ) -> Result<Option<State>, Error> {
        let range = PlaceRange {
            low: low.to_vec(),
            high: high.map(<[u8]>::to_vec),
        };
        let mut rows = RowBatch::default();
        let mut it = match is_whole {
            true => RowIter::of_stored(self, view, range),
            false => self.iter(view, &range, false),
        };
        let wants_ids = self.reducers.builtin(view, function).is_none();
        while let Some(row) = it.row()? {
            push_row(&row, wants_ids, &mut rows)?;
            it.next();
        }
        if rows.is_empty() {
            return Ok(None);
        }
        Ok(Some(self.reducers.reduce(
            view,
            function,
            &rows.rows(false),
        )?))
    }

    fn combine(
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
        let it = self.iter(view, range, last);
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

    /// Returns the state of all rows of states of several shards or ranges.
    pub fn rereduce(&self, view: usize, function: usize, states: &[State]) -> Result<State, Error> {
        self.reducers.rereduce(view, function, states)
    }

    /// Returns the result of a state as a client sees it.
    pub fn finalize(&self, view: usize, function: usize, state: &[u8]) -> Result<Vec<u8>, Error> {
        self.reducers.finalize(view, function, state)
    }
}

fn push_row(row: &ViewRow<'_>, wants_ids: bool, rows: &mut RowBatch) -> Result<(), Error> {
    let mut id = vec![];
    if wants_ids {
        write_json_string(&row.id()?, &mut id);
    }
    rows.push(row.stored.key, &id, row.stored.value);
    Ok(())
}

/// Grouping of rows by their keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupLevel {
    /// Equal keys.
    Exact,
    /// Array keys by their first elements, other keys when equal. At least 1.
    Elements(usize),
}

/// Rows with keys of one group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// First bytes of the places of all its rows.
    pub prefix: Vec<u8>,
    /// The place of its first row in the requested direction.
    pub first: Vec<u8>,
    /// JSON text of the group's key: of its first row, since keys of other texts can be equal.
    pub key: Vec<u8>,
    /// The reduction of its rows.
    pub state: State,
}

/// Groups of a range, one after the other.
pub struct GroupCursor {
    view: usize,
    function: usize,
    level: GroupLevel,
    descending: bool,
    /// Length of the partition, which precedes the sort key in every place.
    skip: usize,
    /// The remaining range.
    range: PlaceRange,
    ahead: VecDeque<Group>,
    ahead_max: usize,
    exhausted: bool,
}

impl GroupCursor {
    /// Creates the groups of a range. `skip`: the length of the partition, which precedes the sort
    /// key in every place.
    pub fn new(
        view: usize,
        function: usize,
        range: PlaceRange,
        level: GroupLevel,
        descending: bool,
        skip: usize,
    ) -> GroupCursor {
        GroupCursor {
            view,
            function,
            level,
            descending,
            skip,
            exhausted: range.is_empty(),
            range,
            ahead: VecDeque::new(),
            ahead_max: GROUPS_AHEAD_FIRST,
        }
    }

    /// Returns the next group, without taking it.
    pub fn peek(&mut self, index: &IndexView) -> Result<Option<&Group>, Error> {
        if self.ahead.is_empty() && !self.exhausted {
            self.fill(index)?;
        }
        Ok(self.ahead.front())
    }

    /// Returns the next group, when [`GroupCursor::peek`] has found one.
    pub fn take(&mut self) -> Option<Group> {
        self.ahead.pop_front()
    }

    fn prefix_len(&self, row: &ViewRow<'_>) -> Result<usize, Error> {
        let sort = &row.place[..row.stored.sort_len.min(row.place.len())];
        let len = match self.level {
            GroupLevel::Exact => Some(sort.len()),
            GroupLevel::Elements(n) => sort
                .get(self.skip..)
                .and_then(|s| group_prefix(s, n))
                .map(|n| n + self.skip),
        };
        len.ok_or_else(|| Error::Storage(storage::Error::Corrupt("sort key")))
    }

    fn group_key(&self, key: &[u8]) -> Vec<u8> {
        match self.level {
            GroupLevel::Exact => key.to_vec(),
            GroupLevel::Elements(n) => first_elements(key, n).into_owned(),
        }
    }

    /// Returns the places of a group, within the remaining range, and the block that they start in.
    /// `first` is its first row's in the direction.
    fn places_of(&self, index: &IndexView, prefix: &[u8], first: &[u8]) -> (PlaceRange, At) {
        let blocks = &index.state.views[self.view];
        let at = blocks.find(if self.descending { prefix } else { first });
        let fence = &*blocks.block(at).fence;
        let left = self.range.low.as_slice();
        // No row is between the start of the remaining range and the first one: ascending, the
        // group may as well start where its block does.
        let low = match self.descending || fence < left {
            true => prefix.max(left),
            false => fence,
        };
        let end = [prefix, HIGHEST].concat();
        let group = PlaceRange {
            low: low.to_vec(),
            high: Some(match &self.range.high {
                Some(high) => end.min(high.clone()),
                None => end,
            }),
        };
        (group, at)
    }

    /// Works out some groups with one iterator.
    fn fill(&mut self, index: &IndexView) -> Result<(), Error> {
        let (view, function) = (self.view, self.function);
        let wants_ids = index.reducers.builtin(view, function).is_none();
        let mut it = index.iter(view, &self.range, self.descending);
        let mut rows = RowBatch::default();
        let mut bytes = 0;
        let groups = self.ahead_max;
        self.ahead_max = (2 * groups).min(GROUPS_AHEAD_MAX);
        while self.ahead.len() < groups && bytes < GROUP_BYTES_AHEAD_MAX {
            let Some(first) = it.row()? else {
                self.exhausted = true;
                return Ok(());
            };
            let prefix = first.place[..self.prefix_len(&first)?].to_vec();
            let key = self.group_key(first.stored.key);
            let first = first.place.to_vec();
            let (group, at) = self.places_of(index, &prefix, &first);
            let summed = match index.is_worth_summing(view, &group, at)? {
                true => index.reduce(view, function, &group)?,
                false => None,
            };
            let state = if let Some(state) = summed {
                it.seek(match (self.descending, &group.high) {
                    (false, Some(high)) => high,
                    _ => &group.low,
                });
                state
            } else {
                walk(&mut it, &prefix, wants_ids, &mut rows)?;
                let rows = rows.rows(self.descending);
                index.reducers.reduce(view, function, &rows)?
            };
            bytes += prefix.len() + key.len() + state.len();
            self.ahead.push_back(Group {
                prefix,
                first,
                key,
                state,
            });
            if self.descending {
                self.range.high = Some(group.low);
            } else {
                self.range.low = group.high.unwrap_or_default();
            }
            if self.range.is_empty() {
                self.exhausted = true;
                return Ok(());
            }
        }
        Ok(())
    }
}

/// Collects the rows that start with `prefix` into `rows`.
fn walk(
    it: &mut RowIter<'_>,
    prefix: &[u8],
    wants_ids: bool,
    rows: &mut RowBatch,
) -> Result<(), Error> {
    rows.clear();
    while let Some(row) = it.row()?.filter(|r| r.place.starts_with(prefix)) {
        push_row(&row, wants_ids, rows)?;
        it.next();
    }
    Ok(())
}
