//! Running reduce functions: the built-in ones natively, custom ones in their language.

use std::collections::HashMap;
use std::sync::Arc;

use functions::{Languages, ReduceRow, Reducer};
use parking_lot::Mutex;

use crate::Error;
use crate::blocks::State;
use crate::reduce::{Builtin, ReduceLimit};
use crate::spec::{ReduceSpec, Spec};

/// Idle runners kept of each custom function.
const IDLE_MAX: usize = 2;

type Idle = Vec<Box<dyn Reducer>>;

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

    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// For rows that were pushed last first.
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
}

/// The reduce functions of an index.
pub struct Reducers {
    spec: Arc<Spec>,
    languages: Arc<dyn Languages>,
    limit: Option<ReduceLimit>,
    /// By view and function.
    idle: Mutex<HashMap<(u16, u16), Idle>>,
}

impl Reducers {
    pub fn new(
        spec: Arc<Spec>,
        languages: Arc<dyn Languages>,
        limit: Option<ReduceLimit>,
    ) -> Reducers {
        Reducers {
            spec,
            languages,
            limit,
            idle: Mutex::default(),
        }
    }

    /// The built-in function at this place, if it is one.
    pub fn builtin(&self, view: usize, function: usize) -> Option<Builtin> {
        match &self.spec.views[view].reduces[function] {
            ReduceSpec::Builtin(b) => Some(*b),
            ReduceSpec::Custom(_) => None,
        }
    }

    /// The state of these rows, in ascending order.
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
                Ok(self.limited(*b, bytes, state))
            }
            ReduceSpec::Custom(source) => {
                let state = self.run((view, function), source, |r| r.reduce(rows))?;
                self.check(bytes(), &state)?;
                Ok(state.into())
            }
        }
    }

    /// The state of all rows of these states, in ascending order.
    pub fn rereduce(&self, view: usize, function: usize, states: &[State]) -> Result<State, Error> {
        let bytes = || states.iter().map(|s| s.len()).sum();
        match &self.spec.views[view].reduces[function] {
            _ if states.len() == 1 => Ok(states[0].clone()),
            ReduceSpec::Builtin(b) => {
                let state = b.rereduce(states.iter().map(|s| &**s));
                Ok(self.limited(*b, bytes, state))
            }
            ReduceSpec::Custom(source) => {
                let values: Vec<&[u8]> = states.iter().map(|s| &**s).collect();
                let state = self.run((view, function), source, |r| r.rereduce(&values))?;
                self.check(bytes(), &state)?;
                Ok(state.into())
            }
        }
    }

    /// What a client sees of a state, as JSON text; `None` of no rows.
    pub fn finalize(&self, view: usize, function: usize, state: &[u8]) -> Result<Vec<u8>, Error> {
        match self.builtin(view, function) {
            None => Ok(state.to_vec()),
            Some(b) => b.finalize(state).map_err(|e| {
                Error::Function(functions::Error::Thrown {
                    name: e.error().into(),
                    reason: e.to_string(),
                })
            }),
        }
    }

    fn limited(&self, b: Builtin, bytes: impl Fn() -> usize, state: Vec<u8>) -> State {
        match &self.limit {
            Some(limit) if b == Builtin::Sum => limit.check(bytes(), state).into(),
            _ => state.into(),
        }
    }

    /// CouchDB's guard against reductions that grow with their rows.
    fn check(&self, input_bytes: usize, state: &[u8]) -> Result<(), Error> {
        let Some(limit) = &self.limit else {
            return Ok(());
        };
        let size = state.len();
        if size <= limit.threshold || size as f64 * limit.ratio <= input_bytes as f64 {
            return Ok(());
        }
        Err(functions::Error::ReduceOverflow(format!(
            "Reduce output must shrink more rapidly: input size: {input_bytes} output size: {size}"
        ))
        .into())
    }

    fn run(
        &self,
        at: (usize, usize),
        source: &str,
        f: impl FnOnce(&mut dyn Reducer) -> Result<Vec<u8>, functions::Error>,
    ) -> Result<Vec<u8>, Error> {
        let at = (at.0 as u16, at.1 as u16);
        let idle = self.idle.lock().get_mut(&at).and_then(Vec::pop);
        let mut reducer = match idle {
            Some(r) => r,
            None => {
                let lib = self.spec.lib.as_deref();
                self.languages.reducer(&self.spec.language, source, lib)?
            }
        };
        let result = f(reducer.as_mut())?;
        let mut idle = self.idle.lock();
        let idle = idle.entry(at).or_default();
        if idle.len() < IDLE_MAX {
            idle.push(reducer);
        }
        Ok(result)
    }

    /// Lets go of idle runners.
    pub fn rest(&self) {
        self.idle.lock().clear();
    }
}
