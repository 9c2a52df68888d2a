//! Rows of reductions: of whole ranges, and of groups.

use document::collation::HIGHEST;
use document::write_json_string;
use index::{Group, GroupCursor, Pause, PlaceRange, State};

use super::{Plan, ShardStates, ViewRows};
use crate::Error;
use crate::views::placing::Searches;

impl ViewRows {
    pub(super) fn whole_range(
        &mut self,
        function: usize,
        take: &mut dyn FnMut(bool, &[u8]) -> bool,
        pause: Pause<'_>,
    ) -> Result<bool, Error> {
        let Some(range) = self.ranges.front() else {
            return Ok(false);
        };
        let (view, descending) = (self.at.view, self.query.descending);
        let whole = &mut self.whole;
        for (i, v) in self.views.iter().enumerate().skip(whole.shards) {
            match v.reduce_until(view, function, range, descending, pause) {
                Err(index::Error::Paused) => {
                    self.is_paused = true;
                    return Ok(true);
                }
                state => whole.states.extend(state?.map(|s| (i, s))),
            }
            whole.shards = i + 1;
        }
        let states = std::mem::take(whole).states;
        if states.is_empty() {
            return Ok(false);
        }
        if self.skip > 0 {
            self.skip -= 1;
            return Ok(false);
        }
        let states = self.in_order(function, range, states)?;
        let state = self.views[0].rereduce_shards(self.at.view, function, &states)?;
        let row = self.reduced_row(function, b"null", &state)?;
        self.left -= 1;
        take(!std::mem::take(&mut self.first), &row);
        Ok(false)
    }

    /// The row of a reduction; for one that did not shrink, CouchDB's replacement, without the key.
    fn reduced_row(&self, function: usize, key: &[u8], state: &State) -> Result<Vec<u8>, Error> {
        use functions::Error::ReduceOverflow;
        let mut row = b"{\"key\":".to_vec();
        match self.views[0].finalize(self.at.view, function, state) {
            Ok(value) => {
                row.extend_from_slice(key);
                row.extend_from_slice(b",\"value\":");
                row.extend_from_slice(&value);
            }
            Err(index::Error::Function(e @ ReduceOverflow(_))) => {
                row.extend_from_slice(b"null,\"error\":");
                write_json_string(e.name(), &mut row);
                row.extend_from_slice(b",\"reason\":");
                write_json_string(&e.reason(), &mut row);
            }
            Err(e) => return Err(e.into()),
        }
        row.push(b'}');
        Ok(row)
    }

    /// The states of shards over a range, in the order of the rows that matter to the function:
    /// documents are spread over shards by their ids, so a shard's number is irrelevant.
    fn in_order(
        &self,
        function: usize,
        range: &PlaceRange,
        mut states: Vec<(usize, State)>,
    ) -> Result<Vec<State>, Error> {
        let (view, first) = (self.at.view, &self.views[0]);
        if states.len() > 1 && first.depends_on_order(view, function) {
            let last = first.is_of_last(view, function);
            let mut placed = Vec::with_capacity(states.len());
            for (i, state) in states {
                placed.push((self.views[i].edge(view, range, last)?, i, state));
            }
            placed.sort_by(|a, b| a.0.cmp(&b.0));
            states = placed.into_iter().map(|(_, i, s)| (i, s)).collect();
        }
        Ok(states.into_iter().map(|(_, s)| s).collect())
    }

    pub(super) fn groups_of_range(
        &mut self,
        take: &mut dyn FnMut(bool, &[u8]) -> bool,
        searches: &mut Searches,
        pause: Pause<'_>,
    ) -> Result<bool, Error> {
        let Plan::Groups(function, level, cursors) = &mut self.plan else {
            return Ok(false);
        };
        let function = *function;
        if cursors.is_none() {
            let Some(range) = self.ranges.front() else {
                return Ok(false);
            };
            let skip = self.query.partition_prefix().len();
            let new = |_| {
                GroupCursor::new(
                    self.at.view,
                    function,
                    range.clone(),
                    *level,
                    self.query.descending,
                    skip,
                )
            };
            *cursors = Some(self.views.iter().map(new).collect());
        }
        let mut current = cursors.take().unwrap_or_default();
        let mut more = true;
        while more && self.left > 0 {
            let (mut group, states) = match self.next_group(&mut current, pause) {
                Ok(Some(next)) => next,
                Ok(None) => return Ok(false),
                Err(index::Error::Paused) => {
                    self.is_paused = true;
                    more = false;
                    continue;
                }
                Err(e) => return Err(e.into()),
            };
            // Skipped groups are not reduced further: that may call a function.
            if self.skip > 0 {
                self.skip -= 1;
                more = !searches.are_enough();
                continue;
            }
            self.combine_group(function, &mut group, states)?;
            let row = self.reduced_row(function, &group.key, &group.state)?;
            self.left -= 1;
            more = take(!std::mem::take(&mut self.first), &row);
        }
        if let Plan::Groups(_, _, cursors) = &mut self.plan {
            *cursors = Some(current);
        }
        Ok(!more)
    }

    /// Returns the next group of all shards, as the shard with its first row has it, and its states in
    /// all shards that have rows of it.
    fn next_group(
        &self,
        cursors: &mut [GroupCursor],
        pause: Pause<'_>,
    ) -> Result<Option<(Group, ShardStates)>, index::Error> {
        let mut next: Option<Vec<u8>> = None;
        for (cursor, view) in cursors.iter_mut().zip(&self.views) {
            if let Some(group) = cursor.peek_until(view, pause)? {
                let better = next.as_ref().is_none_or(|n| {
                    if self.query.descending {
                        group.prefix > *n
                    } else {
                        group.prefix < *n
                    }
                });
                if better {
                    next = Some(group.prefix.clone());
                }
            }
        }
        let Some(prefix) = next else {
            return Ok(None);
        };
        let mut merged: Option<Group> = None;
        let mut states = ShardStates::new();
        for (i, (cursor, view)) in cursors.iter_mut().zip(&self.views).enumerate() {
            if cursor
                .peek_until(view, pause)?
                .is_some_and(|g| g.prefix == prefix)
                && let Some(group) = cursor.take()
            {
                states.push((i, group.state.clone()));
                let comes_first = merged.as_ref().is_none_or(|held| {
                    if self.query.descending {
                        group.first > held.first
                    } else {
                        group.first < held.first
                    }
                });
                if comes_first {
                    merged = Some(group);
                }
            }
        }
        Ok(merged.map(|group| (group, states)))
    }

    /// Combines a group's states in shards.
    fn combine_group(
        &self,
        function: usize,
        group: &mut Group,
        states: Vec<(usize, State)>,
    ) -> Result<(), Error> {
        let is_custom = self.views[0].is_custom(self.at.view, function);
        if !is_custom && states.len() == 1 {
            return Ok(());
        }
        let asked = self.ranges.front().cloned().unwrap_or_default();
        let end = [&group.prefix[..], HIGHEST].concat();
        let range = PlaceRange {
            low: group.prefix.clone().max(asked.low),
            high: Some(asked.high.map_or(end.clone(), |high| high.min(end))),
        };
        let states = self.in_order(function, &range, states)?;
        group.state = self.views[0].rereduce_shards(self.at.view, function, &states)?;
        Ok(())
    }
}
