use std::cmp::Ordering;
use std::sync::LazyLock;

use icu_collator::options::CollatorOptions;
use icu_collator::{Collator, CollatorBorrowed};
use serde_json::{Map, Number, Value};

/// The root collation, as CouchDB opens it: no locale, every option at its default.
static COLLATOR: LazyLock<CollatorBorrowed<'static>> = LazyLock::new(|| {
    Collator::try_new(Default::default(), CollatorOptions::default())
        .expect("invariant: the data of the root collation is compiled into the program")
});

/// How two strings compare.
type StringOrder = fn(&str, &str) -> Ordering;

/// Compares two values in the order of views: null, false, true, numbers, strings, arrays, objects; strings by the root
/// collation of Unicode, so that different strings can be equal.
pub fn compare(left: &Value, right: &Value) -> Ordering {
    compare_by(left, right, compare_strings)
}

/// Compares like [`compare`], but strings byte by byte: the order of document ids.
pub fn compare_raw(left: &Value, right: &Value) -> Ordering {
    compare_by(left, right, Ord::cmp)
}

/// Whether two values are the same to the letter: types of numbers and order of members included.
pub(crate) fn identical(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len()
                && left
                    .iter()
                    .zip(right)
                    .all(|(left, right)| identical(left, right))
        }
        (Value::Object(left), Value::Object(right)) => {
            left.len() == right.len()
                && left
                    .iter()
                    .zip(right)
                    .all(|(left, right)| left.0 == right.0 && identical(left.1, right.1))
        }
        _ => left == right,
    }
}

fn compare_by(left: &Value, right: &Value, strings: StringOrder) -> Ordering {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => compare_numbers(left, right),
        (Value::String(left), Value::String(right)) => strings(left, right),
        (Value::Array(left), Value::Array(right)) => compare_arrays(left, right, strings),
        (Value::Object(left), Value::Object(right)) => compare_objects(left, right, strings),
        _ => rank(left).cmp(&rank(right)),
    }
}

fn rank(value: &Value) -> u8 {
    match value {
        Value::Null => 0,
        Value::Bool(false) => 1,
        Value::Bool(true) => 2,
        Value::Number(_) => 3,
        Value::String(_) => 4,
        Value::Array(_) => 5,
        Value::Object(_) => 6,
    }
}

fn compare_strings(left: &str, right: &str) -> Ordering {
    if left == right {
        Ordering::Equal
    } else {
        COLLATOR.compare(left, right)
    }
}

fn compare_arrays(left: &[Value], right: &[Value], strings: StringOrder) -> Ordering {
    first_difference(
        left.iter()
            .zip(right)
            .map(|(left, right)| compare_by(left, right, strings)),
    )
    .then(left.len().cmp(&right.len()))
}

fn compare_objects(
    left: &Map<String, Value>,
    right: &Map<String, Value>,
    strings: StringOrder,
) -> Ordering {
    let members = left.iter().zip(right);
    let orders = members.map(|(left, right)| {
        strings(left.0, right.0).then_with(|| compare_by(left.1, right.1, strings))
    });
    first_difference(orders).then(left.len().cmp(&right.len()))
}

fn first_difference(mut orders: impl Iterator<Item = Ordering>) -> Ordering {
    orders
        .find(|order| order.is_ne())
        .unwrap_or(Ordering::Equal)
}

fn compare_numbers(left: &Number, right: &Number) -> Ordering {
    match (integer(left), integer(right)) {
        (Some(left), Some(right)) => left.cmp(&right),
        (Some(left), None) => compare_integer_with_float(left, float(right)),
        (None, Some(right)) => compare_integer_with_float(right, float(left)).reverse(),
        (None, None) => float(left)
            .partial_cmp(&float(right))
            .unwrap_or(Ordering::Equal),
    }
}

/// The value of a number that is written as an integer.
pub(crate) fn integer(number: &Number) -> Option<i128> {
    number
        .as_i64()
        .map(i128::from)
        .or_else(|| number.as_u64().map(i128::from))
}

fn float(number: &Number) -> f64 {
    number.as_f64().unwrap_or(f64::MAX)
}

/// Exact where a conversion of the integer to a float would round: the integer has at most 65 bits, and a float outside
/// of the range of `i128` saturates beyond it.
fn compare_integer_with_float(integer: i128, float: f64) -> Ordering {
    integer.cmp(&(float.trunc() as i128)).then_with(|| {
        0.0_f64
            .partial_cmp(&float.fract())
            .unwrap_or(Ordering::Equal)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_are_ordered_by_type_and_then_by_value() {
        let ordered = json!([
            null, false, true, -1, 0, 0.5, 1, 9007199254740992.0, 9007199254740993_i64, 18446744073709551615_u64, 1e300,
            "", "_", "a", "A", "á", "b", [], [1], [1, 1], [2], {}, {"a": 1}, {"a": 1, "b": 0}, {"a": 2}, {"b": 0}
        ]);
        let ordered = ordered.as_array().unwrap();
        for (i, left) in ordered.iter().enumerate() {
            for (j, right) in ordered.iter().enumerate() {
                assert_eq!(compare(left, right), i.cmp(&j), "{left} and {right}");
            }
        }
    }

    #[test]
    fn strings_that_collate_alike_are_equal_and_their_bytes_are_not() {
        for other in ["a\u{0}", "a\u{200b}"] {
            assert_eq!(compare(&json!("a"), &json!(other)), Ordering::Equal);
            assert_eq!(compare_raw(&json!("a"), &json!(other)), Ordering::Less);
        }
        assert_eq!(
            compare(&json!("\u{e9}"), &json!("e\u{301}")),
            Ordering::Equal
        );
        assert_eq!(compare_raw(&json!("B"), &json!("a")), Ordering::Less);
    }

    #[test]
    fn one_and_one_point_nought_are_equal_but_not_identical() {
        assert_eq!(compare(&json!(1), &json!(1.0)), Ordering::Equal);
        assert!(!identical(&json!([1]), &json!([1.0])));
        assert!(!identical(
            &json!({"a": 1, "b": 2}),
            &json!({"b": 2, "a": 1})
        ));
        assert!(identical(&json!({"a": [1, "x"]}), &json!({"a": [1, "x"]})));
    }
}
