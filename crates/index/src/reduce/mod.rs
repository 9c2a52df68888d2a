//! CouchDB's built-in reduce functions.
//!
//! A reduce function is run over the rows of a block, giving a *state*, and over states, giving
//! another one; [`Builtin::finalize`] makes the client's result from the last state. The empty
//! state is that of no rows.
//!
//! | function | state |
//! |---|---|
//! | `_sum` (`sum.rs`), `_count` | the result as JSON text |
//! | `_stats` (`stats.rs`) | the result, or the error of the rows |
//! | `_approx_count_distinct` (`distinct.rs`) | hashes of the keys, or registers |
//! | `_first`, `_last` | the value of one row |
//! | `_top_N`, `_bottom_N` (`rank.rs`) | the result: an array of values |
//!
//! Rows and states must come in ascending order of their keys, also when a client requests
//! descending rows: CouchDB's `_first` is the value of the lowest key in either case.
//!
//! The rules are those of `couch_query_servers.erl`. Where CouchDB fails with a 500,
//! [`Builtin::finalize`] gives an error.

mod distinct;
mod json;
mod number;
mod rank;
mod stats;
mod sum;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use parking_lot::RwLock;

/// A row's key and value, both JSON text.
pub type Row<'a> = (&'a [u8], &'a [u8]);

/// The largest N of `_top_N` and `_bottom_N`.
pub const RANK_MAX: u32 = 100;

/// A reduce function that needs no JavaScript.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Builtin {
    /// `_sum`: numbers, arrays of numbers, objects of these.
    Sum,
    /// `_count`: the number of rows.
    Count,
    /// `_stats`: sum, count, min, max and sum of squares.
    Stats,
    /// `_approx_count_distinct`: the number of distinct keys, with an error of about two per cent
    /// when there are many.
    ApproxCountDistinct,
    /// `_first`: the value of the first row.
    First,
    /// `_last`: the value of the last row.
    Last,
    /// `_top_N`: the N largest different values, the largest first.
    Top(u32),
    /// `_bottom_N`: the N smallest different values, the smallest first.
    Bottom(u32),
}

/// Why a reduction has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReduceError {
    /// The function cannot work with a row's value. The message is for the client, who sees
    /// `invalid_value` as the error.
    #[error("{0}")]
    InvalidValue(String),
}

impl ReduceError {
    /// CouchDB's name of the error.
    pub fn error(&self) -> &'static str {
        match self {
            Self::InvalidValue(_) => "invalid_value",
        }
    }
}

impl Builtin {
    /// Returns the built-in function that a view's `reduce` names; nothing when it is the source of
    /// a function.
    ///
    /// The error is the reason with which CouchDB refuses the design document
    /// (`invalid_design_doc`).
    ///
    /// ```
    /// use index::reduce::Builtin;
    /// assert_eq!(Builtin::parse("_sum"), Some(Ok(Builtin::Sum)));
    /// assert_eq!(Builtin::parse("_top_3"), Some(Ok(Builtin::Top(3))));
    /// assert_eq!(
    ///     Builtin::parse("_nope"),
    ///     Some(Err("`_nope` is not a supported reduce function.".to_owned()))
    /// );
    /// assert_eq!(Builtin::parse("function(k, v) { return 1; }"), None);
    /// ```
    pub fn parse(source: &str) -> Option<Result<Self, String>> {
        if !source.starts_with('_') {
            return None;
        }
        // CouchDB compares only the prefix.
        const NAMES: [(&str, Builtin); 6] = [
            ("_sum", Builtin::Sum),
            ("_count", Builtin::Count),
            ("_stats", Builtin::Stats),
            ("_approx_count_distinct", Builtin::ApproxCountDistinct),
            ("_first", Builtin::First),
            ("_last", Builtin::Last),
        ];
        let named = NAMES
            .iter()
            .find(|(name, _)| source.starts_with(name))
            .map(|(_, builtin)| *builtin);
        if let Some(builtin) = named {
            return Some(Ok(builtin));
        }
        if let Some(count) = source.strip_prefix("_top_") {
            return Some(rank_count(count).map(Self::Top));
        }
        if let Some(count) = source.strip_prefix("_bottom_") {
            return Some(rank_count(count).map(Self::Bottom));
        }
        Some(Err(format!(
            "`{source}` is not a supported reduce function."
        )))
    }

    /// Returns whether states are short, however long values are.
    pub fn has_short_states(&self) -> bool {
        match self {
            Self::Count | Self::ApproxCountDistinct => true,
            Self::Sum | Self::Stats | Self::First | Self::Last | Self::Top(_) | Self::Bottom(_) => {
                false
            }
        }
    }

    /// Returns the state of some rows.
    pub fn reduce<'a>(&self, rows: impl Iterator<Item = Row<'a>>) -> Vec<u8> {
        let mut rows = rows;
        match *self {
            Self::Count => match rows.count() {
                0 => Vec::new(),
                count => count.to_string().into_bytes(),
            },
            Self::ApproxCountDistinct => distinct::reduce(rows.map(|(key, _)| key)),
            Self::First => owned(rows.next().map(|(_, value)| value)),
            Self::Last => owned(rows.last().map(|(_, value)| value)),
            Self::Sum => sum::sum(rows.map(|(_, value)| value)),
            Self::Stats => stats::stats(rows.map(|(_, value)| value)),
            Self::Top(count) => rank::top(count, rows.map(|(_, value)| value)),
            Self::Bottom(count) => rank::bottom(count, rows.map(|(_, value)| value)),
        }
    }

    /// Returns the state of the rows of a state and of rows after them. It is exactly that of reducing
    /// all rows together, also where the order of additions matters.
    pub fn reduce_more<'a>(&self, state: &'a [u8], rows: impl Iterator<Item = Row<'a>>) -> Vec<u8> {
        if state.is_empty() {
            return self.reduce(rows);
        }
        let one = std::iter::once(state);
        match *self {
            Self::First => state.to_vec(),
            Self::Sum => sum::sum(one.chain(rows.map(|(_, value)| value))),
            Self::Stats => stats::stats(one.chain(rows.map(|(_, value)| value))),
            Self::Top(count) => {
                rank::top(count, json::elements(state).chain(rows.map(|row| row.1)))
            }
            Self::Bottom(count) => {
                rank::bottom(count, json::elements(state).chain(rows.map(|row| row.1)))
            }
            Self::Count | Self::ApproxCountDistinct | Self::Last => {
                let more = self.reduce(rows);
                self.rereduce([state, &more[..]].into_iter())
            }
        }
    }

    /// Returns the state of all rows of some states.
    pub fn rereduce<'a>(&self, states: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
        let mut states = states.filter(|state| !state.is_empty());
        match *self {
            Self::ApproxCountDistinct => distinct::rereduce(states),
            Self::First => owned(states.next()),
            Self::Last => owned(states.last()),
            Self::Count | Self::Sum => sum::sum(states),
            Self::Stats => stats::stats(states),
            Self::Top(count) => rank::top(count, states.flat_map(json::elements)),
            Self::Bottom(count) => rank::bottom(count, states.flat_map(json::elements)),
        }
    }

    /// Returns the client's result, as JSON text.
    ///
    /// # Errors
    /// [`ReduceError::InvalidValue`] of `_stats` only. An error of the values of `_sum` is in its
    /// result, as in CouchDB.
    pub fn finalize(&self, state: &[u8]) -> Result<Vec<u8>, ReduceError> {
        let nothing: &[u8] = match self {
            _ if !state.is_empty() => state,
            Self::Sum | Self::Count => b"0",
            Self::Stats => br#"{"sum":0,"count":0,"min":0,"max":0,"sumsqr":0}"#,
            Self::First | Self::Last => b"null",
            Self::Top(_) | Self::Bottom(_) => b"[]",
            Self::ApproxCountDistinct => b"",
        };
        match self {
            Self::ApproxCountDistinct => Ok(distinct::estimate(state).to_string().into_bytes()),
            Self::Stats => stats::finalize(nothing),
            _ => Ok(nothing.to_vec()),
        }
    }
}

/// Returns the N of `_top_N` and `_bottom_N`. The errors are CouchDB's reasons.
fn rank_count(digits: &str) -> Result<u32, String> {
    if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return Err("invalid rank reducer".to_owned());
    }
    let count = digits.parse().ok();
    count
        .filter(|count| (1..=RANK_MAX).contains(count))
        .ok_or_else(|| format!("rank value must be between 1 and {RANK_MAX}"))
}

fn owned(value: Option<&[u8]>) -> Vec<u8> {
    value.map(<[u8]>::to_vec).unwrap_or_default()
}

/// The limit of a reduction's size in relation to its input (`[query_server_config] reduce_limit`).
///
/// CouchDB applies it to `_sum`, whose results grow when rows have objects with ever new members or
/// ever longer arrays.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReduceLimit {
    /// Smaller states, in bytes, are not checked.
    pub threshold: usize,
    /// Minimum ratio of the input's size to the state's.
    pub ratio: f64,
}

/// Returns whether a state of `_sum` is the error of a reduction from `input` to `output` bytes, of
/// any view.
pub(crate) fn is_overflow_of(state: &[u8], input: usize, output: usize) -> bool {
    let mut error = Vec::new();
    json::write_error(&overflow(input, output), None, &mut error);
    // A context follows, unless an older version wrote it.
    let error = error.strip_suffix(b"\"}").unwrap_or(&error);
    let rest = state.strip_prefix(error);
    rest.is_some_and(|rest| rest == b"\"}" || rest.starts_with(b" context: "))
}

fn overflow(input: usize, output: usize) -> String {
    format!("Reduce output must shrink more rapidly: input size: {input} output size: {output}")
}

/// A [`ReduceLimit`], or none, that can change while indexes are open. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct SharedReduceLimit(Arc<RwLock<Option<ReduceLimit>>>);

impl SharedReduceLimit {
    /// Returns the current limit.
    pub fn get(&self) -> Option<ReduceLimit> {
        *self.0.read()
    }

    /// Sets the limit from now on. Older states do not change.
    pub fn set(&self, limit: Option<ReduceLimit>) {
        *self.0.write() = limit;
    }
}

impl From<Option<ReduceLimit>> for SharedReduceLimit {
    fn from(limit: Option<ReduceLimit>) -> SharedReduceLimit {
        SharedReduceLimit(Arc::new(RwLock::new(limit)))
    }
}

impl Default for ReduceLimit {
    /// CouchDB's defaults.
    fn default() -> Self {
        Self {
            threshold: 5000,
            ratio: 2.0,
        }
    }
}

impl ReduceLimit {
    /// The state of `_sum`, or that of the error that replaces it in CouchDB. `input_size` is the
    /// number of bytes of the rows or states that it was computed from.
    pub fn check(&self, input_size: usize, state: Vec<u8>, context: &str) -> Vec<u8> {
        let Some(reason) = self.exceeded(input_size, state.len(), context) else {
            return state;
        };
        let mut error = Vec::new();
        json::write_error(&reason, None, &mut error);
        error
    }

    /// Returns CouchDB's reason for a state that is too large; `context` names the view.
    pub(crate) fn exceeded(&self, input: usize, output: usize, context: &str) -> Option<String> {
        let is_small = output <= self.threshold || output as f64 * self.ratio <= input as f64;
        (!is_small).then(|| overflow(input, output) + " context: " + context)
    }
}
