//! Running reduce functions: the built-in ones natively, custom ones in their language.

use std::sync::Arc;
use std::time::{Duration, Instant};

use functions::{Languages, MEMORY_LIMIT, Owner, ReduceRow, Reducer};
use parking_lot::{Mutex, MutexGuard};
use profiler::Label;

use crate::Error;
use crate::blocks::{BlockPosition, State};
use crate::reduce::{Builtin, SharedReduceLimit};
use crate::spec::{ReduceSpec, Spec};

/// First byte of the state of a custom function that did not shrink; the reason follows. JSON text
/// never starts with it.
const OVERFLOW: u8 = 0;

/// A call of a custom function gets rows up to this size, in bytes, unless the memory of a function
/// is limited to less than four times that.
const CUSTOM_BYTES_MAX: usize = 16 << 20;
/// Locks of the blocks of an index.
const LOCKS: usize = 16;
/// How long a reader waits for another one, which may have a low priority.
const LOCK_TIME_MAX: Duration = Duration::from_millis(2);

/// Returns whether a custom function did not shrink its rows.
pub(crate) fn is_overflow(state: &[u8]) -> bool {
    state.first() == Some(&OVERFLOW)
}

/// Rows to be reduced, copied: keys, document ids as JSON strings, and values.
#[derive(Debug, Default)]
pub struct RowBatch {
    bytes: Vec<u8>,
    ends: Vec<[usize; 3]>,
}

impl RowBatch {
    pub fn push(&mut self, key: &[u8], id: &[u8], value: &[u8]) {
        let ends = [key, id, value].map(|part| {
            self.bytes.extend_from_slice(part);
            self.bytes.len()
        });
        self.ends.push(ends);
    }

    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Returns the length of all rows.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The rows in the order in which they were pushed, or the other one.
    pub fn rows(&self, reversed: bool) -> Vec<ReduceRow<'_>> {
        let mut start = 0;
        let mut rows: Vec<ReduceRow<'_>> = self
            .ends
            .iter()
            .map(|&[key, id, value]| {
                let row = ReduceRow {
                    key: &self.bytes[start..key],
                    id: &self.bytes[key..id],
                    value: &self.bytes[id..value],
                };
                start = value;
                row
            })
            .collect();
        if reversed {
            rows.reverse();
        }
        rows
    }

    /// Returns the rows in the order of [`to_last_first`].
    pub fn last_to_first(&self) -> Vec<ReduceRow<'_>> {
        let mut rows = self.rows(false);
        to_last_first(&mut rows);
        rows
    }
}

/// Puts ascending rows into the order in which CouchDB passes them to a custom function: last to
/// first. Rows of one document with one key stay in the order of their values.
fn to_last_first(rows: &mut [ReduceRow<'_>]) {
    rows.reverse();
    for alike in rows.chunk_by_mut(|a, b| a.id == b.id && a.key == b.key) {
        alike.reverse();
    }
}

/// The reduce functions of an index.
pub struct Reducers {
    spec: Arc<Spec>,
    languages: Arc<dyn Languages>,
    limit: SharedReduceLimit,
    database: Arc<str>,
    /// Names of the views, for reasons.
    contexts: Vec<String>,
    /// Names of the views, for profiles.
    labels: Vec<Label>,
    /// Held while the rows of a block are reduced.
    locks: [Mutex<()>; LOCKS],
}

impl Reducers {
    pub fn new(
        spec: Arc<Spec>,
        languages: Arc<dyn Languages>,
        limit: impl Into<SharedReduceLimit>,
        owner: &Owner,
    ) -> Reducers {
        let views = 0..spec.views.len();
        let label = |n| Label::new(&format!("{} (reduce)", owner.view(n)));
        Reducers {
            labels: views.clone().map(label).collect(),
            contexts: views.map(|n| owner.view(n).to_string()).collect(),
            spec,
            languages,
            limit: limit.into(),
            database: owner.database.clone(),
            locks: Default::default(),
        }
    }

    /// Locks a block, and perhaps others, so that concurrent readers do not all reduce it. `None` when
    /// that takes too long: then the reader reduces it, too.
    pub fn lock(&self, at: BlockPosition) -> Option<MutexGuard<'_, ()>> {
        self.locks[(at.run + at.block) % LOCKS].try_lock_for(LOCK_TIME_MAX)
    }

    /// Returns the number of bytes of rows that a custom function gets in one call, and of one row more.
    pub fn custom_bytes_max(&self) -> usize {
        let limit = self.languages.limit(&self.spec.language, MEMORY_LIMIT);
        let quarter = limit.and_then(|bytes| usize::try_from(bytes / 4).ok());
        quarter.map_or(CUSTOM_BYTES_MAX, |quarter| quarter.min(CUSTOM_BYTES_MAX))
    }

    /// Returns the built-in function at this place, if it is one.
    pub fn builtin(&self, view: usize, function: usize) -> Option<Builtin> {
        match &self.spec.views[view].reduces[function] {
            ReduceSpec::Builtin(b) => Some(*b),
            ReduceSpec::Custom(_) => None,
        }
    }

    /// Returns the state of these rows, in ascending order.
    pub fn reduce(
        &self,
        view: usize,
        function: usize,
        rows: &[ReduceRow<'_>],
    ) -> Result<State, Error> {
        let bytes = || rows.iter().map(|r| r.key.len() + r.value.len()).sum();
        match &self.spec.views[view].reduces[function] {
            ReduceSpec::Builtin(b) => {
                let state = b.reduce(rows.iter().map(|r| (r.key, r.value)));
                Ok(self.limited((view, *b), bytes, state))
            }
            ReduceSpec::Custom(source) => {
                let state = self.run(view, source, |r| r.reduce(rows));
                self.checked(view, bytes(), state)
            }
        }
    }

    /// The state of all rows of the states of shards. CouchDB calls a custom function for them even
    /// if there is only one.
    pub fn rereduce_shards(
        &self,
        view: usize,
        function: usize,
        states: &[State],
    ) -> Result<State, Error> {
        match (&self.spec.views[view].reduces[function], states) {
            (ReduceSpec::Custom(source), [state]) if !is_overflow(state) => {
                let reduced = self.run(view, source, |r| r.rereduce(&[state]));
                self.checked(view, state.len(), reduced)
            }
            _ => self.rereduce(view, function, states),
        }
    }

    /// Returns the state of all rows of these states, in ascending order.
    pub fn rereduce(&self, view: usize, function: usize, states: &[State]) -> Result<State, Error> {
        let bytes = || states.iter().map(|s| s.len()).sum();
        match &self.spec.views[view].reduces[function] {
            _ if states.len() == 1 => Ok(states[0].clone()),
            ReduceSpec::Builtin(b) => {
                let state = b.rereduce(states.iter().map(|s| &**s));
                Ok(self.limited((view, *b), bytes, state))
            }
            ReduceSpec::Custom(source) => {
                // As in CouchDB, a reduction of an overflow is that overflow.
                if let Some(overflow) = states.iter().find(|s| is_overflow(s)) {
                    return Ok(overflow.clone());
                }
                let values: Vec<&[u8]> = states.iter().map(|s| &**s).collect();
                let state = self.run(view, source, |r| r.rereduce(&values));
                self.checked(view, bytes(), state)
            }
        }
    }

    /// Returns the result of a state as a client sees it, as JSON text.
    ///
    /// # Errors
    /// That the function did not shrink its rows, or cannot reduce them.
    pub fn finalize(&self, view: usize, function: usize, state: &[u8]) -> Result<Vec<u8>, Error> {
        match self.builtin(view, function) {
            None => match state {
                [OVERFLOW, reason @ ..] => {
                    let reason = String::from_utf8_lossy(reason).into_owned();
                    Err(functions::Error::ReduceOverflow(reason).into())
                }
                state => Ok(state.to_vec()),
            },
            Some(b) => b.finalize(state).map_err(|e| {
                Error::Function(functions::Error::Thrown {
                    name: e.error().into(),
                    reason: e.to_string(),
                })
            }),
        }
    }

    /// The state of rows or states of these bytes by a built-in function, or the error that replaces it.
    pub fn limited(
        &self,
        (view, b): (usize, Builtin),
        bytes: impl Fn() -> usize,
        state: Vec<u8>,
    ) -> State {
        let limit = (b == Builtin::Sum).then(|| self.limit.get()).flatten();
        match limit {
            Some(limit) => limit.check(bytes(), state, &self.contexts[view]).into(),
            _ => state.into(),
        }
    }

    /// CouchDB's guard against reductions that grow with their rows: such a state only records the
    /// error, so that the results of other groups are kept.
    fn checked(
        &self,
        view: usize,
        input_bytes: usize,
        state: Result<Vec<u8>, Error>,
    ) -> Result<State, Error> {
        let reason = match state {
            Ok(state) => match self.overflow(view, input_bytes, state.len()) {
                None => return Ok(state.into()),
                Some(reason) => reason,
            },
            Err(Error::Function(functions::Error::ReduceOverflow(reason))) => reason,
            Err(e) => return Err(e),
        };
        Ok([&[OVERFLOW], reason.as_bytes()].concat().into())
    }

    fn overflow(&self, view: usize, input_bytes: usize, size: usize) -> Option<String> {
        self.limit
            .get()?
            .exceeded(input_bytes, size, &self.contexts[view])
    }

    /// Calls a custom function: who runs it keeps it compiled.
    fn run(
        &self,
        view: usize,
        source: &str,
        f: impl FnOnce(&mut dyn Reducer) -> Result<Vec<u8>, functions::Error>,
    ) -> Result<Vec<u8>, Error> {
        let (language, lib) = (&self.spec.language, self.spec.lib.as_deref());
        let mut reducer = self
            .languages
            .reducer(&self.database, language, source, lib)?;
        Ok(profiler::labelled(&self.labels[view], || {
            f(reducer.as_mut())
        })?)
    }
}

/// Result of a reduce function for some rows, as JSON text.
#[derive(Debug)]
pub struct TrialReduction {
    /// Result for all rows in one call.
    pub at_once: Vec<u8>,
    /// Result of reducing two parts first; `None` for one row, for built-in functions, and when the
    /// time is over.
    pub in_parts: Option<Result<Vec<u8>, Error>>,
}

/// Runs the first reduce function of the first view of `spec` over rows in ascending order. After
/// `until` no further part is started.
///
/// # Errors
/// The function's error, also that it does not shrink its rows.
pub fn try_reduce(
    spec: Arc<Spec>,
    languages: Arc<dyn Languages>,
    limit: impl Into<SharedReduceLimit>,
    owner: &Owner,
    rows: &[ReduceRow<'_>],
    until: Instant,
) -> Result<TrialReduction, Error> {
    let reducers = Reducers::new(spec, languages, limit, owner);
    let is_custom = reducers.builtin(0, 0).is_none();
    let mut rows = rows.to_vec();
    if is_custom {
        // As queries do.
        to_last_first(&mut rows);
    }
    let state = reducers.reduce(0, 0, &rows)?;
    let state = reducers.rereduce_shards(0, 0, &[state])?;
    let at_once = reducers.finalize(0, 0, &state)?;
    let rows = &rows[..];
    let has_parts = is_custom && rows.len() > 1;
    let in_parts = has_parts
        .then(|| reduce_in_parts(&reducers, rows, until).transpose())
        .flatten();
    Ok(TrialReduction { at_once, in_parts })
}

/// `None` when there was no time.
fn reduce_in_parts(
    reducers: &Reducers,
    rows: &[ReduceRow<'_>],
    until: Instant,
) -> Result<Option<Vec<u8>>, Error> {
    let mut states = vec![];
    for part in rows.chunks(rows.len().div_ceil(2)) {
        if Instant::now() >= until {
            return Ok(None);
        }
        states.push(reducers.reduce(0, 0, part)?);
    }
    let state = reducers.rereduce(0, 0, &states)?;
    reducers.finalize(0, 0, &state).map(Some)
}

#[cfg(test)]
mod tests {
    use functions::{Designs, Error as FunctionError, MapGroup, Mapper, NoLanguages, Place};

    use super::*;
    use crate::spec::ViewSpec;

    /// A function whose result is all that it is given.
    #[derive(Debug)]
    struct Grows;

    impl Languages for Grows {
        fn mapper(&self, group: &MapGroup) -> Result<Box<dyn Mapper>, FunctionError> {
            NoLanguages.mapper(group)
        }
        fn reducer(
            &self,
            _: &Arc<str>,
            _: &str,
            _: &str,
            _: Option<&str>,
        ) -> Result<Box<dyn Reducer>, FunctionError> {
            Ok(Box::new(Grows))
        }
        fn designs(
            &self,
            place: &Place,
            language: &str,
        ) -> Result<Box<dyn Designs>, FunctionError> {
            NoLanguages.designs(place, language)
        }
        fn check(&self, _: &Place, _: &str, _: &str, _: Option<&str>) -> Result<(), FunctionError> {
            Ok(())
        }
    }

    impl Reducer for Grows {
        fn reduce(&mut self, rows: &[ReduceRow<'_>]) -> Result<Vec<u8>, FunctionError> {
            Ok(rows.iter().flat_map(|r| r.value).copied().collect())
        }
        fn rereduce(&mut self, values: &[&[u8]]) -> Result<Vec<u8>, FunctionError> {
            Ok(values.concat())
        }
    }

    #[test]
    fn a_state_that_did_not_shrink_says_so_and_so_does_what_is_made_of_it() {
        let view = ViewSpec {
            map: String::new(),
            reduces: vec![ReduceSpec::Custom("grows".into())],
            raw: false,
        };
        let spec = Spec {
            language: "any".into(),
            lib: None,
            views: vec![view],
            include_design: false,
            local_seq: false,
            partitioned: false,
            dialect: None,
            by_access: false,
        };
        let limit = Some(crate::ReduceLimit::default());
        let reducers = Reducers::new(Arc::new(spec), Arc::new(Grows), limit, &Owner::default());
        let state = |value: &[u8]| {
            let (key, id) = (b"1".as_slice(), b"\"d\"".as_slice());
            reducers.reduce(0, 0, &[ReduceRow { key, id, value }])
        };
        let small = state(b"\"x\"").unwrap();
        let large = state(&vec![b'1'; 10_000]).unwrap();
        let both = reducers.rereduce(0, 0, &[small.clone(), large]).unwrap();
        let all = reducers.rereduce(0, 0, &[both, small.clone()]).unwrap();
        assert_eq!(reducers.finalize(0, 0, &small).unwrap(), b"\"x\"");
        assert_eq!(
            reducers.finalize(0, 0, &all).unwrap_err().to_string(),
            "Reduce output must shrink more rapidly: input size: 10001 output size: 10000 context: /"
        );
    }
}
