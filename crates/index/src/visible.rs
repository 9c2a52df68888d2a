//! The rows that a user sees, in an index that has rows by principal: those of the user's principals,
//! each once.

use std::sync::Arc;

use document::Principals;

use crate::Error;
use crate::blocks::State;
use crate::part::{Part, Walk, Walked};
use crate::read::{IndexView, Pause, PlaceRange};
use crate::row_reduction::{RowOrder, RowReduction};

/// Rows of a part that are reduced between two calls of [`Pause`].
const ROWS_WALKED: usize = 512;

impl IndexView {
    /// Returns the parts of a view that have rows for this user. They are views of the index with
    /// these rows alone, which have the places that they have in the view. Reductions and groups of
    /// all parts together have each row once. Iteration gives a row once for each part that has it.
    /// Ranks and counts are not those of a part.
    ///
    /// # Errors
    /// Errors of the store, and [`Error::Invalid`] for an index without rows by principal.
    pub fn parts_for(&self, view: usize, user: &Principals) -> Result<Vec<IndexView>, Error> {
        if !self.spec.by_access {
            let reason = "the index has no rows by principal";
            return Err(Error::Invalid(reason.to_owned()));
        }
        let mut parts = vec![];
        if self.rows(view + self.spec.mapped()) == 0 {
            return Ok(parts);
        }
        let mut others: Vec<Vec<u8>> = vec![];
        for principal in user.iter() {
            for overlap in [false, true] {
                let new = || Part::new(principal, overlap);
                if self.with_part(new()).first_row(view)?.is_none() {
                    continue;
                }
                let part = match overlap {
                    false => new(),
                    true => {
                        let part = new().without(others.clone());
                        others.push(part.prefix().to_vec());
                        part
                    }
                };
                parts.push(self.with_part(part));
            }
        }
        Ok(parts)
    }

    fn with_part(&self, part: Part) -> IndexView {
        IndexView {
            part: Some(Arc::new(part)),
            ..self.clone()
        }
    }

    fn first_row(&self, view: usize) -> Result<Option<Vec<u8>>, Error> {
        self.edge(view, &PlaceRange::default(), false)
    }

    /// Returns the state of a reduction over a range of a part; `None` of no rows.
    ///
    /// # Errors
    /// [`Error::Paused`] when `pause` returns true. The next call for this range continues.
    pub(crate) fn reduce_part(
        &self,
        part: &Part,
        (view, function): (usize, usize),
        range: &PlaceRange,
        descending: bool,
        pause: Pause<'_>,
    ) -> Result<Option<State>, Error> {
        if range.is_empty() {
            return Ok(None);
        }
        if part.others().is_empty() {
            let stored = self.stored_range(range);
            return self.reduce_stored(
                self.stored_view(view),
                function,
                &stored,
                descending,
                pause,
            );
        }
        let walked = Walked {
            view,
            function,
            low: range.low.clone(),
            high: range.high.clone(),
            descending,
        };
        let mut walk = part.walk.lock();
        if walk.of.as_ref() != Some(&walked) {
            *walk = Walk {
                next: range.low.clone(),
                of: Some(walked),
                states: vec![],
            };
        }
        while self.walk_some(&mut walk, (view, function), range, descending)? {
            if pause() {
                return Err(Error::Paused);
            }
        }
        let Walk { mut states, .. } = std::mem::take(&mut *walk);
        if descending && self.is_custom(view, function) {
            states.reverse();
        }
        self.combine(view, function, states)
    }

    /// Reduces the next rows of a range; returns whether there are more.
    fn walk_some(
        &self,
        walk: &mut Walk,
        (view, function): (usize, usize),
        range: &PlaceRange,
        descending: bool,
    ) -> Result<bool, Error> {
        let order = match descending || !self.is_custom(view, function) {
            true => RowOrder::Same,
            false => RowOrder::LastToFirst,
        };
        let rest = PlaceRange {
            low: walk.next.clone(),
            high: range.high.clone(),
        };
        let mut rows = RowReduction::new(&self.reducers, (view, function), order);
        let mut it = self.iter(view, &rest, false);
        for _ in 0..ROWS_WALKED {
            let Some(row) = it.row()? else {
                break;
            };
            if !it.is_elsewhere()? {
                rows.push(&row.stored, || row.id())?;
            }
            it.next();
        }
        let next = it.place()?.map(<[u8]>::to_vec);
        walk.states.extend(rows.finish()?);
        walk.next = next.clone().unwrap_or_default();
        Ok(next.is_some())
    }
}
