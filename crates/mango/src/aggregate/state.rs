//! The state of an aggregate's functions for a group.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use super::Function;
use crate::json::{Kind, integer};
use crate::plan::intervals::sort_key;

/// Approximate overhead of an allocation, in bytes.
pub(super) const ALLOCATION_BYTES: usize = 32;

#[derive(Debug)]
pub(super) enum State {
    Count(u64),
    Number(Sum),
    /// Sort key and text.
    Extreme(Option<(Vec<u8>, Vec<u8>)>),
    Distinct(BTreeMap<Vec<u8>, Vec<u8>>),
}

/// A sum that is exact as long as it contains only integers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sum {
    integers: i128,
    floats: f64,
    has_floats: bool,
    count: u64,
}

impl Sum {
    fn add(&mut self, text: &[u8]) {
        let sum = integer(text).and_then(|n| self.integers.checked_add(n));
        match sum {
            Some(sum) => self.integers = sum,
            None => {
                let number = std::str::from_utf8(text).ok().and_then(|t| t.parse().ok());
                self.floats += number.unwrap_or(0.0);
                self.has_floats = true;
            }
        }
        self.count += 1;
    }

    fn merge(&mut self, other: &Sum) {
        match self.integers.checked_add(other.integers) {
            Some(sum) => self.integers = sum,
            None => {
                self.floats += other.integers as f64;
                self.has_floats = true;
            }
        }
        self.floats += other.floats;
        self.has_floats |= other.has_floats;
        self.count += other.count;
    }

    fn float(&self) -> f64 {
        self.integers as f64 + self.floats
    }

    fn write(&self, out: &mut Vec<u8>) {
        if self.has_floats {
            write_float(self.float(), out);
        } else {
            out.extend_from_slice(self.integers.to_string().as_bytes());
        }
    }

    fn write_average(&self, out: &mut Vec<u8>) {
        match self.count {
            0 => out.extend_from_slice(b"null"),
            n => write_float(self.float() / n as f64, out),
        }
    }
}

fn write_float(number: f64, out: &mut Vec<u8>) {
    if number.is_finite() {
        document::json::write_float(number, out);
    } else {
        out.extend_from_slice(b"null");
    }
}

/// An increase in memory.
#[derive(Clone, Copy, Default)]
pub(super) struct More {
    pub values: usize,
    pub bytes: usize,
}

impl State {
    pub fn new(function: Function) -> State {
        match function {
            Function::Count | Function::CountField(_) => State::Count(0),
            Function::Sum(_) | Function::Average(_) => State::Number(Sum::default()),
            Function::Minimum(_) | Function::Maximum(_) => State::Extreme(None),
            Function::Distinct(_) => State::Distinct(BTreeMap::new()),
        }
    }

    pub fn values(&self) -> usize {
        match self {
            State::Distinct(values) => values.len(),
            _ => 0,
        }
    }

    pub fn bytes(&self) -> usize {
        let held = match self {
            State::Extreme(Some(held)) => bytes_of(&held.0, &held.1),
            State::Distinct(values) => values.iter().map(|(key, text)| bytes_of(key, text)).sum(),
            _ => 0,
        };
        size_of::<State>() + held
    }

    /// Adds a document's value.
    pub fn add<'a>(
        &mut self,
        function: Function,
        value: &dyn Fn(usize) -> Option<&'a [u8]>,
    ) -> More {
        let span = match function {
            Function::Count => {
                if let State::Count(n) = self {
                    *n += 1;
                }
                return More::default();
            }
            Function::CountField(span)
            | Function::Sum(span)
            | Function::Minimum(span)
            | Function::Maximum(span)
            | Function::Average(span)
            | Function::Distinct(span) => span,
        };
        let Some(text) = value(span) else {
            return More::default();
        };
        match self {
            State::Count(n) => *n += 1,
            State::Number(sum) => {
                if Kind::of(text) == Kind::Number {
                    sum.add(text);
                }
            }
            State::Extreme(held) => return keep(held, function, (sort_key(text), text.to_vec())),
            State::Distinct(values) => return hold(values, sort_key(text), text.to_vec()),
        }
        More::default()
    }

    pub fn merge(&mut self, function: Function, other: State) -> More {
        let mut more = More::default();
        match (self, other) {
            (State::Count(own), State::Count(n)) => *own += n,
            (State::Number(own), State::Number(sum)) => own.merge(&sum),
            (State::Extreme(own), State::Extreme(Some(other))) => {
                return keep(own, function, other);
            }
            (State::Distinct(own), State::Distinct(values)) => {
                for (key, text) in values {
                    let one = hold(own, key, text);
                    more.values += one.values;
                    more.bytes += one.bytes;
                }
            }
            _ => {}
        }
        more
    }

    pub fn write(&self, function: Function, out: &mut Vec<u8>) {
        match self {
            State::Count(n) => out.extend_from_slice(n.to_string().as_bytes()),
            State::Number(sum) if matches!(function, Function::Average(_)) => {
                sum.write_average(out);
            }
            State::Number(sum) => sum.write(out),
            State::Extreme(None) => out.extend_from_slice(b"null"),
            State::Extreme(Some((_, text))) => out.extend_from_slice(text),
            State::Distinct(values) => {
                out.push(b'[');
                for (i, text) in values.values().enumerate() {
                    if i > 0 {
                        out.push(b',');
                    }
                    out.extend_from_slice(text);
                }
                out.push(b']');
            }
        }
    }
}

fn bytes_of(key: &[u8], text: &[u8]) -> usize {
    key.len() + text.len() + 3 * ALLOCATION_BYTES
}

/// Keeps a value once; of equal ones that with the lowest text.
fn hold(values: &mut BTreeMap<Vec<u8>, Vec<u8>>, key: Vec<u8>, text: Vec<u8>) -> More {
    match values.entry(key) {
        Entry::Vacant(free) => {
            let bytes = bytes_of(free.key(), &text);
            free.insert(text);
            More { values: 1, bytes }
        }
        Entry::Occupied(mut held) => {
            let bytes = text.len().saturating_sub(held.get().len());
            if text >= *held.get() {
                return More::default();
            }
            held.insert(text);
            More { values: 0, bytes }
        }
    }
}

/// Keeps the lower or the higher of two values; of equal ones that with the lowest text, so that
/// the order of documents has no effect.
fn keep(
    held: &mut Option<(Vec<u8>, Vec<u8>)>,
    function: Function,
    other: (Vec<u8>, Vec<u8>),
) -> More {
    let replaces = held.as_ref().is_none_or(|held| {
        let order = other.0.cmp(&held.0);
        match function {
            Function::Maximum(_) => order.is_gt() || (order.is_eq() && other.1 < held.1),
            _ => order.is_lt() || (order.is_eq() && other.1 < held.1),
        }
    });
    if !replaces {
        return More::default();
    }
    let before = held.as_ref().map_or(0, |held| bytes_of(&held.0, &held.1));
    let bytes = bytes_of(&other.0, &other.1).saturating_sub(before);
    *held = Some(other);
    More { values: 0, bytes }
}
