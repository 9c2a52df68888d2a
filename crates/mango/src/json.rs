//! Reads stored JSON text in place: compact, without duplicate members, strings in the normal form
//! of [`document::normalise`].

pub(crate) use document::json::{
    Elements, MemberIter, is_name, member, members, name_text, string_text as string,
};
use serde_json::Value;

/// The kinds of JSON values, in the order of views.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Null,
    False,
    True,
    Number,
    String,
    Array,
    Object,
}

impl Kind {
    /// Returns the kind of a value by its first byte.
    pub fn of(text: &[u8]) -> Kind {
        match text.first() {
            Some(b'{') => Kind::Object,
            Some(b'[') => Kind::Array,
            Some(b'"') => Kind::String,
            Some(b'f') => Kind::False,
            Some(b't') => Kind::True,
            Some(b'n') | None => Kind::Null,
            Some(_) => Kind::Number,
        }
    }

    /// Returns its name for `$type`.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Null => "null",
            Kind::False | Kind::True => "boolean",
            Kind::Number => "number",
            Kind::String => "string",
            Kind::Array => "array",
            Kind::Object => "object",
        }
    }
}

/// Returns whether two texts are equal up to the order of members.
pub(crate) fn same(one: &[u8], other: &[u8]) -> bool {
    match (Kind::of(one), Kind::of(other)) {
        (Kind::Object, Kind::Object) => {
            let sorted = |text| {
                let mut all: Vec<_> = members(text).collect();
                all.sort_unstable();
                all
            };
            let (one, other) = (sorted(one), sorted(other));
            let pairs = one.iter().zip(&other);
            one.len() == other.len() && pairs.into_iter().all(|(a, b)| a.0 == b.0 && same(a.1, b.1))
        }
        (Kind::Array, Kind::Array) => {
            let (mut one, mut other) = (Elements::of(one), Elements::of(other));
            loop {
                match (one.next(), other.next()) {
                    (Some(a), Some(b)) if same(a, b) => {}
                    (a, b) => return a.is_none() && b.is_none(),
                }
            }
        }
        _ => one == other,
    }
}

/// Maximum number of values that are made of a text: each takes 72 bytes, and two of the text.
pub(crate) const VALUES_MAX: usize = 1 << 16;

/// Returns the number of values in a text, or more: commas and brackets in strings count too.
pub(crate) fn values_at_most(text: &[u8]) -> usize {
    let begins = text.iter().filter(|b| matches!(**b, b',' | b'[' | b'{'));
    1 + begins.count()
}

/// Returns the value of a text, for display: long integers and deep nesting are lost. A text of more
/// than [`VALUES_MAX`] values stays a text.
pub(crate) fn shown(text: &[u8]) -> Value {
    let value = match values_at_most(text) > VALUES_MAX {
        true => None,
        false => serde_json::from_slice(text).ok(),
    };
    value.unwrap_or_else(|| String::from_utf8_lossy(text).into())
}

/// Checks that the values of members are few enough to be made.
#[derive(Default)]
pub(crate) struct ValueCount(usize);

impl ValueCount {
    /// Counts the values of another member; returns whether there are at most [`VALUES_MAX`].
    pub fn add(&mut self, text: &[u8]) -> bool {
        self.0 += values_at_most(text);
        self.0 <= VALUES_MAX
    }
}

/// Returns a value's normalised text. (Any value has one that is not nested deeper than texts may
/// be.)
pub(crate) fn text_of(value: &Value) -> Vec<u8> {
    let text = value.to_string().into_bytes();
    document::normalise(&text).unwrap_or(text)
}

/// Returns an array of these elements.
pub(crate) fn array<'a>(elements: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut out = vec![b'['];
    for (i, element) in elements.enumerate() {
        if i > 0 {
            out.push(b',');
        }
        out.extend_from_slice(element);
    }
    out.push(b']');
    out
}

/// Returns an object of these members.
pub(crate) fn object<N: AsRef<str>, V: AsRef<[u8]>>(members: &[(N, V)]) -> Vec<u8> {
    let mut out = vec![b'{'];
    for (i, (name, value)) in members.iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        document::write_json_string(name.as_ref(), &mut out);
        out.push(b':');
        out.extend_from_slice(value.as_ref());
    }
    out.push(b'}');
    out
}

/// Parses a number that is written as an integer of at most 127 bits.
pub(crate) fn integer(text: &[u8]) -> Option<i128> {
    if Kind::of(text) != Kind::Number {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Maximum length of the divisor of [`remainder`], in decimal digits: ten times its remainder fits
/// into 127 bits.
pub(crate) const DIVISOR_DIGITS_MAX: usize = 36;

/// Returns the remainder of a number that is written as an integer, of any length, with the sign of
/// the number; the divisor is not 0 and has at most [`DIVISOR_DIGITS_MAX`] digits.
pub(crate) fn remainder(text: &[u8], divisor: i128) -> Option<i128> {
    let (negative, digits) = match text.split_first()? {
        (b'-', digits) => (true, digits),
        _ => (false, text),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let divisor = divisor.checked_abs()?;
    let mut left = 0i128;
    for digit in digits {
        left = (10 * left + i128::from(digit - b'0')).checked_rem(divisor)?;
    }
    Some(if negative { -left } else { left })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_many_values_stay_texts() {
        assert_eq!(shown(b"[1,{\"a\":[]}]"), serde_json::json!([1, {"a": []}]));
        assert_eq!(values_at_most(b"[1,{\"a\":[]}]"), 5);
        let list = |values: usize| format!("[{}1]", "1,".repeat(values - 2)).into_bytes();
        assert!(shown(&list(VALUES_MAX)).is_array());
        assert!(shown(&list(VALUES_MAX + 1)).is_string());
        let mut count = ValueCount::default();
        assert!(count.add(&list(VALUES_MAX - 1)) && count.add(b"1") && !count.add(b"2"));
    }

    #[test]
    fn integers_are_read_from_their_text() {
        assert_eq!(integer(b"-12"), Some(-12));
        assert_eq!(integer(b"1.0"), None);
        assert_eq!(integer(b"\"1\""), None);
        assert_eq!(
            remainder(b"123456789012345678901234567890123456789012", 10),
            Some(2)
        );
        assert_eq!(remainder(b"-7", -3), Some(-1));
        assert_eq!(remainder(b"7.0", 3), None);
        let longest = 10i128.pow(DIVISOR_DIGITS_MAX as u32) - 1;
        assert_eq!(
            remainder("9".repeat(2 * DIVISOR_DIGITS_MAX).as_bytes(), longest),
            Some(0)
        );
    }
}
