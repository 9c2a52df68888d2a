//! `_stats`.
//!
//! A value is a number, an object with all of `sum`, `count`, `min`, `max` and `sumsqr`, which
//! counts as many, or an array of such values, each element of which has statistics of its own;
//! then all values must be arrays of that length.
//!
//! A state is the result, which is a value itself, or [`FAILED`] and a reason.

use std::cmp::Ordering;

use super::ReduceError;
use super::json::Json;
use super::number::{Number, Overflow};

/// JSON never starts with this byte.
const FAILED: u8 = b'!';

const FIELDS: [&str; 5] = ["sum", "count", "min", "max", "sumsqr"];

struct Stats {
    sum: Number,
    count: Number,
    min: Number,
    max: Number,
    sum_of_squares: Number,
}

enum Tree {
    One(Stats),
    Many(Vec<Tree>),
}

type Failure = String;

pub(super) fn finalize(state: &[u8]) -> Result<Vec<u8>, ReduceError> {
    match state.split_first() {
        Some((&FAILED, reason)) => Err(ReduceError::InvalidValue(
            String::from_utf8_lossy(reason).into_owned(),
        )),
        _ => Ok(state.to_vec()),
    }
}

/// Returns the statistics of values or states; nothing without input.
pub(super) fn stats<'a>(values: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut tree = None;
    for text in values {
        if text.first() == Some(&FAILED) {
            return text.to_vec();
        }
        if let Err(reason) = add_text(&mut tree, text) {
            return [&[FAILED], reason.as_bytes()].concat();
        }
    }
    let mut out = Vec::new();
    if let Some(tree) = tree {
        tree.write(&mut out);
    }
    out
}

fn add_text(tree: &mut Option<Tree>, text: &[u8]) -> Result<(), Failure> {
    match (tree, Number::parse(text)) {
        (Some(Tree::One(stats)), Some(number)) => stats.add_number(number),
        (Some(tree), _) => tree.add(&Json::parse(text)),
        (tree @ None, _) => {
            *tree = Some(Tree::new(&Json::parse(text))?);
            Ok(())
        }
    }
}

impl Tree {
    fn new(value: &Json) -> Result<Self, Failure> {
        match value {
            Json::Array(elements) => {
                let trees: Result<_, _> = elements.iter().map(Self::new).collect();
                trees.map(Self::Many)
            }
            value => Stats::new(value).map(Self::One),
        }
    }

    fn add(&mut self, value: &Json) -> Result<(), Failure> {
        match (self, value) {
            (Self::Many(trees), Json::Array(elements)) if trees.len() == elements.len() => trees
                .iter_mut()
                .zip(elements)
                .try_for_each(|(tree, element)| tree.add(element)),
            (Self::Many(_), _) => Err(format!(
                "The _stats function requires that all map values be arrays of the same length if one is, not '{}'",
                excerpt(value)
            )),
            (Self::One(_), Json::Array(_)) => Err(unfit(value)),
            (Self::One(stats), Json::Number(number)) => stats.add_number(number.clone()),
            (Self::One(stats), value) => stats.add(&Stats::new(value)?),
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::One(stats) => stats.write(out),
            Self::Many(trees) => {
                out.push(b'[');
                for (at, tree) in trees.iter().enumerate() {
                    if at > 0 {
                        out.push(b',');
                    }
                    tree.write(out);
                }
                out.push(b']');
            }
        }
    }
}

impl Stats {
    fn new(value: &Json) -> Result<Self, Failure> {
        match value {
            Json::Number(number) => Self::of_number(number.clone()),
            Json::Object(members) => {
                let [sum, count, min, max, sum_of_squares] =
                    FIELDS.map(|name| field(members, name));
                Ok(Self {
                    sum: sum?,
                    count: count?,
                    min: min?,
                    max: max?,
                    sum_of_squares: sum_of_squares?,
                })
            }
            value => Err(unfit(value)),
        }
    }

    fn of_number(number: Number) -> Result<Self, Failure> {
        Ok(Self {
            count: Number::Integer(1),
            sum_of_squares: number.square().map_err(too_large)?,
            min: number.clone(),
            max: number.clone(),
            sum: number,
        })
    }

    #[inline]
    fn add_number(&mut self, number: Number) -> Result<(), Failure> {
        self.sum.add(&number).map_err(too_large)?;
        self.count.add(&Number::Integer(1)).map_err(too_large)?;
        let square = number.square().map_err(too_large)?;
        self.sum_of_squares.add(&square).map_err(too_large)?;
        // Of equal numbers, as 1 and 1.0, CouchDB keeps the later.
        let below = number.compare(&self.min) != Ordering::Greater;
        let above = number.compare(&self.max) != Ordering::Less;
        match (below, above) {
            (true, true) => {
                self.min = number.clone();
                self.max = number;
            }
            (true, false) => self.min = number,
            (false, true) => self.max = number,
            (false, false) => {}
        }
        Ok(())
    }

    fn add(&mut self, other: &Self) -> Result<(), Failure> {
        self.sum.add(&other.sum).map_err(too_large)?;
        self.count.add(&other.count).map_err(too_large)?;
        let squares = &other.sum_of_squares;
        self.sum_of_squares.add(squares).map_err(too_large)?;
        if other.min.compare(&self.min) != Ordering::Greater {
            self.min = other.min.clone();
        }
        if other.max.compare(&self.max) != Ordering::Less {
            self.max = other.max.clone();
        }
        Ok(())
    }

    fn write(&self, out: &mut Vec<u8>) {
        let numbers = [
            &self.sum,
            &self.count,
            &self.min,
            &self.max,
            &self.sum_of_squares,
        ];
        for (at, (name, number)) in FIELDS.iter().zip(numbers).enumerate() {
            out.push(if at == 0 { b'{' } else { b',' });
            out.push(b'"');
            out.extend_from_slice(name.as_bytes());
            out.extend_from_slice(b"\":");
            number.write(out);
        }
        out.push(b'}');
    }
}

fn field(members: &[(String, Json)], name: &str) -> Result<Number, Failure> {
    match members.iter().find(|member| member.0 == name) {
        Some((_, Json::Number(number))) => Ok(number.clone()),
        Some((_, value)) => Err(format!(
            "non-numeric _stats input received for {name}: {}",
            excerpt(value)
        )),
        None => Err(format!("user _stats input missing required field {name}")),
    }
}

fn unfit(value: &Json) -> Failure {
    format!(
        "The _stats function requires that map values be numbers or arrays of numbers, not '{}'",
        excerpt(value)
    )
}

#[cold]
fn too_large(Overflow: Overflow) -> Failure {
    "The _stats function has come to a number that is too large for a double.".to_owned()
}

/// Enough of a value to recognise it by.
fn excerpt(value: &Json) -> String {
    const CHARACTERS_MAX: usize = 200;
    let text = value.text();
    String::from_utf8_lossy(&text)
        .chars()
        .take(CHARACTERS_MAX)
        .collect()
}
