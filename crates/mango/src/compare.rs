//! Compares values by the sort keys of views, so that a selector and an index never disagree.

use std::cmp::Ordering;
use std::sync::OnceLock;

use document::Collator;
use document::collation::HIGHEST;

use crate::json::Kind;
use crate::work;

/// The order of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// The order of views.
    Collated,
    /// The order of Erlang's terms, by which CouchDB compares `_id`: strings byte by byte and above
    /// everything else.
    Raw,
}

impl Order {
    /// Appends bytes that compare as the values do in this order.
    pub fn write(self, text: &[u8], out: &mut Vec<u8>) {
        let collator = Collator::root();
        let written = match self {
            Order::Collated => collator.write_sort_key(text, out),
            Order::Raw => collator.write_raw_sort_key(text, out),
        };
        if written.is_err() {
            // Not JSON, which never occurs in stored texts: sorts after all JSON.
            out.extend_from_slice(HIGHEST);
            out.extend_from_slice(text);
        }
    }

    /// Calls `take` with the bytes of [`Order::write`]. Those of a long value of a document that is
    /// being judged are made once.
    pub fn with_key<T>(self, text: &[u8], take: impl FnOnce(&[u8]) -> T) -> T {
        let make = || {
            let mut key = Vec::with_capacity(2 * text.len() + 16);
            self.write(text, &mut key);
            key
        };
        match self == Order::Collated && text.len() >= work::LONG_VALUE_BYTES {
            true => work::with_key(text, make, take),
            false => take(&make()),
        }
    }
}

/// A value of a selector, prepared for comparisons.
#[derive(Clone, Debug)]
pub(crate) struct Operand {
    /// Its JSON text.
    pub text: Box<[u8]>,
    pub kind: Kind,
    /// Its value, if it is a short integer.
    small: Option<i64>,
    pub sort: Box<[u8]>,
    raw: OnceLock<Box<[u8]>>,
}

impl Operand {
    /// Creates one from a normalised text.
    pub fn new(text: &[u8]) -> Operand {
        let mut sort = vec![];
        Order::Collated.write(text, &mut sort);
        Operand {
            kind: Kind::of(text),
            small: small_integer(text),
            text: text.into(),
            sort: sort.into(),
            raw: OnceLock::new(),
        }
    }

    /// Creates one from a string.
    pub fn string(text: &str) -> Operand {
        let mut quoted = vec![];
        document::write_json_string(text, &mut quoted);
        Operand::new(&quoted)
    }

    fn raw(&self) -> &[u8] {
        self.raw.get_or_init(|| {
            let mut raw = vec![];
            Order::Raw.write(&self.text, &mut raw);
            raw.into()
        })
    }

    /// Compares `text` with this.
    #[inline]
    pub fn compare(&self, text: &[u8], order: Order) -> Ordering {
        if order == Order::Raw {
            return self.compare_raw(text);
        }
        let kind = Kind::of(text);
        if kind != self.kind {
            return kind.cmp(&self.kind);
        }
        match kind {
            Kind::Null | Kind::False | Kind::True => return Ordering::Equal,
            Kind::Number => {
                if let (Some(own), Some(other)) = (self.small, small_integer(text)) {
                    return other.cmp(&own);
                }
            }
            _ => {}
        }
        if *text == *self.text {
            return Ordering::Equal;
        }
        order.with_key(text, |key| key.cmp(&*self.sort))
    }

    fn compare_raw(&self, text: &[u8]) -> Ordering {
        if *text == *self.text {
            return Ordering::Equal;
        }
        Order::Raw.with_key(text, |key| key.cmp(self.raw()))
    }
}

/// Parses an integer of at most 18 digits.
#[inline]
fn small_integer(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text.split_first() {
        Some((b'-', digits)) => (true, digits),
        _ => (false, text),
    };
    if digits.is_empty() || digits.len() > 18 {
        return None;
    }
    let mut number = 0i64;
    for &digit in digits {
        let digit = digit.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        number = 10 * number + i64::from(digit);
    }
    Some(if negative { -number } else { number })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::text_of;
    use serde_json::{Value, json};

    fn compare(left: &Value, right: &Value, order: Order) -> Ordering {
        Operand::new(&text_of(right)).compare(&text_of(left), order)
    }

    #[test]
    fn values_are_ordered_by_type_and_then_by_value() {
        let ordered = json!([
            null, false, true, -1, 0, 0.5, 1, 9007199254740992.0, 9007199254740993_i64, 18446744073709551615_u64, 1e300,
            "", "_", "a", "A", "á", "b", [], [1], [1, 1], [2], {}, {"a": 1}, {"a": 1, "b": 0}, {"a": 2}, {"b": 0}
        ]);
        let ordered = ordered.as_array().unwrap();
        for (i, left) in ordered.iter().enumerate() {
            for (j, right) in ordered.iter().enumerate() {
                let found = compare(left, right, Order::Collated);
                assert_eq!(found, i.cmp(&j), "{left} and {right}");
            }
        }
    }

    #[test]
    fn ids_are_ordered_as_erlang_orders_terms() {
        let ordered = json!([-1, 0, 0.5, 1, false, null, true, {}, [], [1], "", "B", "a"]);
        let ordered = ordered.as_array().unwrap();
        for (i, left) in ordered.iter().enumerate() {
            for (j, right) in ordered.iter().enumerate() {
                assert_eq!(
                    compare(left, right, Order::Raw),
                    i.cmp(&j),
                    "{left} and {right}"
                );
            }
        }
    }

    #[test]
    fn strings_that_collate_alike_are_equal_and_their_bytes_are_not() {
        for other in ["a\u{0}", "a\u{200b}"] {
            let (a, other) = (json!("a"), json!(other));
            assert_eq!(compare(&a, &other, Order::Collated), Ordering::Equal);
            assert_eq!(compare(&a, &other, Order::Raw), Ordering::Less);
        }
    }
}
