//! `_sum`.
//!
//! Numbers are added; arrays by element, where a number counts as an array of one, and missing
//! elements as nothing; objects by member. A single value is not inspected, so that `["x"]` is a
//! valid sum until something is added to its element, as in CouchDB.

use super::json::{Json, write_error};
use super::number::{Number, Overflow};

const NOT_SUMMABLE: &str = "The _sum function requires that map values be numbers, arrays of numbers, or objects. \
    Objects cannot be mixed with other data structures. Objects can be arbitrarily nested, provided that the values for all \
    fields are themselves numbers, arrays of numbers, or objects.";

const TOO_LARGE: &str = "The _sum function has come to a number that is too large for a double.";

/// The reason why there is no sum.
enum Failure {
    /// An error of an earlier reduction, which is passed on.
    Earlier(Json),
    NotSummable(Json),
    TooLarge(Json),
}

/// Returns the sum of values; nothing without values.
pub(super) fn sum<'a>(mut values: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let Some(first) = values.next() else {
        return Vec::new();
    };
    let mut sum = Json::Number(Number::ZERO);
    for text in std::iter::once(first).chain(values) {
        let added = match (&mut sum, Number::parse(text)) {
            (Json::Number(sum), Some(number)) => sum
                .add(&number)
                .map_err(|Overflow| Failure::TooLarge(Json::Number(number))),
            (_, Some(number)) => add_to(&mut sum, Json::Number(number)),
            (_, None) => add_to(&mut sum, Json::parse(text)),
        };
        if let Err(failure) = added {
            return error(failure);
        }
    }
    sum.text()
}

fn error(failure: Failure) -> Vec<u8> {
    let mut out = Vec::new();
    match failure {
        Failure::Earlier(error) => error.write(&mut out),
        Failure::NotSummable(cause) => write_error(NOT_SUMMABLE, Some(&cause), &mut out),
        Failure::TooLarge(cause) => write_error(TOO_LARGE, Some(&cause), &mut out),
    }
    out
}

fn add_to(sum: &mut Json, value: Json) -> Result<(), Failure> {
    let before = std::mem::replace(sum, Json::Number(Number::ZERO));
    *sum = add(before, value)?;
    Ok(())
}

fn add(sum: Json, value: Json) -> Result<Json, Failure> {
    match (sum, value) {
        (Json::Number(mut sum), Json::Number(number)) => {
            add_numbers(&mut sum, number)?;
            Ok(Json::Number(sum))
        }
        (Json::Array(sum), Json::Array(value)) => add_arrays(sum, value),
        (Json::Array(sum), value @ Json::Number(_)) => add_arrays(sum, vec![value]),
        (sum @ Json::Number(_), Json::Array(value)) => add_arrays(vec![sum], value),
        (sum, Json::Object(value)) => add_object(sum, value),
        (_, value) => Err(Failure::NotSummable(value)),
    }
}

fn add_numbers(sum: &mut Number, number: Number) -> Result<(), Failure> {
    sum.add(&number)
        .map_err(|Overflow| Failure::TooLarge(Json::Number(number)))
}

/// CouchDB names as the cause what there was before, from the element on that cannot be added to.
fn add_arrays(mut sum: Vec<Json>, value: Vec<Json>) -> Result<Json, Failure> {
    let mut rest = value.into_iter();
    for at in 0..sum.len() {
        let Some(value) = rest.next() else { break };
        match (&mut sum[at], value) {
            (Json::Number(sum), Json::Number(number)) => add_numbers(sum, number)?,
            _ => return Err(Failure::NotSummable(Json::Array(sum.split_off(at)))),
        }
    }
    sum.extend(rest);
    Ok(Json::Array(sum))
}

fn add_object(sum: Json, value: Vec<(String, Json)>) -> Result<Json, Failure> {
    let is_error = |(name, value): &(String, Json)| {
        name == "error"
            && matches!(value, Json::Other(text) if text == br#""builtin_reduce_error""#)
    };
    if value.iter().any(is_error) {
        return Err(Failure::Earlier(Json::Object(value)));
    }
    match sum {
        Json::Number(Number::Integer(0)) => Ok(Json::Object(value)),
        Json::Object(sum) => add_members(sum, value),
        _ => Err(Failure::NotSummable(Json::Object(value))),
    }
}

/// Returns the members of both in the order of their names.
fn add_members(
    mut sum: Vec<(String, Json)>,
    mut value: Vec<(String, Json)>,
) -> Result<Json, Failure> {
    sum.sort_by(|left, right| left.0.cmp(&right.0));
    value.sort_by(|left, right| left.0.cmp(&right.0));
    let mut members = Vec::with_capacity(sum.len().max(value.len()));
    let (mut sum, mut value) = (sum.into_iter().peekable(), value.into_iter().peekable());
    loop {
        let next = match (sum.peek(), value.peek()) {
            (Some(left), Some(right)) if left.0 == right.0 => None,
            (Some(left), Some(right)) if left.0 > right.0 => value.next(),
            (None, Some(_)) => value.next(),
            (Some(_), _) => sum.next(),
            (None, None) => return Ok(Json::Object(members)),
        };
        match next {
            Some(member) => members.push(member),
            None => {
                if let (Some((name, sum)), Some((_, value))) = (sum.next(), value.next()) {
                    members.push((name, add(sum, value)?));
                }
            }
        }
    }
}
