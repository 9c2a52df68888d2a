//! Groups of rows with alike keys, and what they reduce to.

use std::collections::VecDeque;

use document::collation::{HIGHEST, first_elements, group_prefix};

use crate::Error;
use crate::blocks::{BlockPosition, State};
use crate::iter::{RowIter, ViewRow};
use crate::read::{IndexView, Pause, PlaceRange};
use crate::row_reduction::{RowOrder, RowReduction};

/// Groups worked out in one go, and about how many bytes of them.
const GROUPS_AHEAD_MAX: usize = 128;
/// Groups worked out at first, twice as many each time: many readers want few.
const GROUPS_AHEAD_FIRST: usize = 4;
const GROUP_BYTES_AHEAD_MAX: usize = 64 << 10;
/// Rows of other parts that are passed between two calls of [`Pause`].
const PASSED_A_LOOK: u32 = 64;
/// How rows are grouped by their keys.
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
    /// The place of its first row in the direction of the query.
    pub first: Vec<u8>,
    /// JSON text of the group's key: of its first row, since keys of other texts can be equal.
    pub key: Vec<u8>,
    /// The state of its rows.
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
    /// The rest of the range.
    range: PlaceRange,
    ahead: VecDeque<Group>,
    ahead_max: usize,
    exhausted: bool,
}

impl GroupCursor {
    /// The groups of a range. `skip`: the length of the partition, which precedes the sort key in every place.
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

    /// The next group, without taking it.
    pub fn peek(&mut self, index: &IndexView) -> Result<Option<&Group>, Error> {
        self.peek_until(index, &|| false)
    }

    /// The next group, without taking it.
    ///
    /// # Errors
    /// [`Error::Paused`] when `pause` returns true before the group is worked out. The next call continues.
    pub fn peek_until(
        &mut self,
        index: &IndexView,
        pause: Pause<'_>,
    ) -> Result<Option<&Group>, Error> {
        if self.ahead.is_empty() && !self.exhausted {
            self.fill(index, pause)?;
        }
        Ok(self.ahead.front())
    }

    /// The next group, when [`GroupCursor::peek`] has found one.
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

    /// The places of a group, within the remaining ones, and the block in which they begin. `first`
    /// is the place of its first row in the direction.
    fn places_of(
        &self,
        index: &IndexView,
        prefix: &[u8],
        first: &[u8],
    ) -> (PlaceRange, BlockPosition) {
        let blocks = &index.state.views[index.stored_view(self.view)];
        let begin = if self.descending { prefix } else { first };
        let at = blocks.find(&index.stored_place(begin));
        let fence = match &index.part {
            None => &*blocks.block(at).fence,
            // A block may begin with rows of another part.
            Some(_) => &[],
        };
        let left = self.range.low.as_slice();
        // No row is between what is left and the first one: going up, the group may as well begin where its block does.
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

    /// Works out some groups with one iterator: fewer when `pause` returns true.
    fn fill(&mut self, index: &IndexView, pause: Pause<'_>) -> Result<(), Error> {
        let (view, function) = (self.view, self.function);
        let mut it = index.iter(view, &self.range, self.descending);
        let mut rows = RowReduction::new(&index.reducers, (view, function), self.order(index));
        let mut bytes = 0;
        let groups = self.ahead_max;
        self.ahead_max = (2 * groups).min(GROUPS_AHEAD_MAX);
        while self.ahead.len() < groups && bytes < GROUP_BYTES_AHEAD_MAX {
            if !self.pass_elsewhere(&mut it, pause)? {
                return Ok(());
            }
            let Some(first) = it.row()? else {
                self.exhausted = true;
                return Ok(());
            };
            let prefix = first.place[..self.prefix_len(&first)?].to_vec();
            let key = self.group_key(first.stored.key);
            let first = first.place.to_vec();
            let (group, at) = self.places_of(index, &prefix, &first);
            let summed = match index.is_worth_summing((view, function), &group, at)? {
                true => index.reduce_until(view, function, &group, self.descending, pause),
                false => Ok(None),
            };
            if matches!(summed, Err(Error::Paused)) && !self.ahead.is_empty() {
                return Ok(());
            }
            let state = if let Some(state) = summed? {
                it.seek(match (self.descending, &group.high) {
                    (false, Some(high)) => high,
                    _ => &group.low,
                });
                state
            } else {
                walk(&mut it, &prefix, &mut rows)?;
                // It has the row that was found first.
                let no_rows = || Error::Storage(storage::Error::Corrupt("index row"));
                rows.finish()?.ok_or_else(no_rows)?
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
            if pause() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Passes rows that another part of the user has too. Returns false if that took too long, after
    /// groups were found.
    fn pass_elsewhere(&mut self, it: &mut RowIter<'_>, pause: Pause<'_>) -> Result<bool, Error> {
        let mut passed = 0_u32;
        while it.is_elsewhere()? {
            it.next();
            passed += 1;
            if !passed.is_multiple_of(PASSED_A_LOOK) || !pause() {
                continue;
            }
            if let Some(place) = it.place()? {
                match self.descending {
                    true => self.range.high = Some([place, &[0]].concat()),
                    false => self.range.low = place.to_vec(),
                }
            }
            return match self.ahead.is_empty() {
                true => Err(Error::Paused),
                false => Ok(false),
            };
        }
        Ok(true)
    }

    /// The order in which the function gets rows: built-in ones in ascending order.
    fn order(&self, index: &IndexView) -> RowOrder {
        let is_custom = index.is_custom(self.view, self.function);
        match self.descending {
            true => RowOrder::Reversed,
            false if is_custom => RowOrder::LastToFirst,
            false => RowOrder::Same,
        }
    }
}

/// Takes the rows that begin with `prefix` into `rows`.
fn walk(it: &mut RowIter<'_>, prefix: &[u8], rows: &mut RowReduction<'_>) -> Result<(), Error> {
    while let Some(row) = it.row()?.filter(|r| r.place.starts_with(prefix)) {
        if !it.is_elsewhere()? {
            rows.push(&row.stored, || row.id())?;
        }
        it.next();
    }
    Ok(())
}
