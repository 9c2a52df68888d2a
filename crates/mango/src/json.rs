//! Stored JSON text, looked at where it lies: compact, without duplicate members, strings in the normal form of
//! [`document::normalise`].

use std::borrow::Cow;

use document::json::skip;
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
    /// The kind of a value by its first byte.
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

    /// The name that `$type` has for it.
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

/// The elements of an array's text.
pub(crate) struct Elements<'a> {
    text: &'a [u8],
    pos: usize,
}

impl<'a> Elements<'a> {
    pub fn of(array: &'a [u8]) -> Self {
        let pos = if array.get(1) == Some(&b']') {
            array.len()
        } else {
            1
        };
        Elements { text: array, pos }
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let end = skip::value(self.text, self.pos)?;
        let element = &self.text[self.pos..end];
        // Behind it is a comma or the bracket.
        self.pos = if self.text.get(end) == Some(&b',') {
            end + 1
        } else {
            self.text.len()
        };
        Some(element)
    }
}

/// The members of an object's text, names unescaped.
pub(crate) fn members(object: &[u8]) -> impl Iterator<Item = (String, &[u8])> {
    let mut all = (Kind::of(object) == Kind::Object).then(|| Members::of(object));
    std::iter::from_fn(move || {
        let (name, value) = all.as_ref()?.name()?;
        let end = skip::value(object, value)?;
        if !all.as_mut()?.go_on(end) {
            all = None;
        }
        Some((unescaped(name)?.into_owned(), object.get(value..end)?))
    })
}

/// The value of an object's member; `None` too when the text is no object.
pub(crate) fn member<'a>(object: &'a [u8], wanted: &str) -> Option<&'a [u8]> {
    if Kind::of(object) != Kind::Object {
        return None;
    }
    let mut members = Members::of(object);
    loop {
        let (name, value) = members.name()?;
        let end = skip::value(object, value)?;
        if is_name(name, wanted) {
            return object.get(value..end);
        }
        if !members.go_on(end) {
            return None;
        }
    }
}

/// Whether two texts are the same but for the order of members.
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

/// The value that a text stands for, to be shown: long integers and deep nesting are lost.
pub(crate) fn shown(text: &[u8]) -> Value {
    serde_json::from_slice(text).unwrap_or_else(|_| String::from_utf8_lossy(text).into())
}

/// A value's text in the normal form. (Any value has one that is not nested deeper than texts may be.)
pub(crate) fn text_of(value: &Value) -> Vec<u8> {
    let text = value.to_string().into_bytes();
    document::normalise(&text).unwrap_or(text)
}

/// An array of these elements.
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

/// An object of these members.
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

/// The members of an object's text: the name without quotes, as it is written, and where the value begins. The reader says
/// how far it has read.
pub(crate) struct Members<'a> {
    text: &'a [u8],
    pos: usize,
}

impl<'a> Members<'a> {
    /// Of `{…}`, or of members without braces.
    pub fn of(text: &'a [u8]) -> Self {
        let pos = usize::from(text.first() == Some(&b'{'));
        Members { text, pos }
    }

    /// The members of the object whose first one is at `pos`.
    pub fn from(text: &'a [u8], pos: usize) -> Self {
        Members { text, pos }
    }

    /// The name of the member here, and the position of its value.
    #[inline]
    pub fn name(&self) -> Option<(&'a [u8], usize)> {
        if self.text.get(self.pos) != Some(&b'"') {
            return None;
        }
        let (end, _) = skip::string(self.text, self.pos + 1)?;
        Some((&self.text[self.pos + 1..end - 1], end + 1))
    }

    /// Goes on behind a value that ends at `end`; false when it was the last.
    #[inline]
    pub fn go_on(&mut self, end: usize) -> bool {
        self.pos = end + 1;
        self.text.get(end) == Some(&b',')
    }

    /// The position behind the object, after [`Members::go_on`] answered false.
    pub fn end(&self) -> usize {
        self.pos
    }
}

/// Whether a member's name as it is written is this one.
#[inline]
pub(crate) fn is_name(written: &[u8], name: &str) -> bool {
    written == name.as_bytes()
        || (written.contains(&b'\\') && unescape(written).is_some_and(|n| n == name))
}

pub(crate) fn unescape(written: &[u8]) -> Option<String> {
    let mut quoted = Vec::with_capacity(written.len() + 2);
    quoted.push(b'"');
    quoted.extend_from_slice(written);
    quoted.push(b'"');
    serde_json::from_slice(&quoted).ok()
}

/// The text between quotes.
fn unescaped(written: &[u8]) -> Option<Cow<'_, str>> {
    if written.contains(&b'\\') {
        return unescape(written).map(Cow::Owned);
    }
    std::str::from_utf8(written).ok().map(Cow::Borrowed)
}

/// A string's text without quotes and escapes; `None` for what is no string.
pub(crate) fn string(text: &[u8]) -> Option<Cow<'_, str>> {
    unescaped(text.strip_prefix(b"\"")?.strip_suffix(b"\"")?)
}

/// A number that is written as an integer of at most 127 bits.
pub(crate) fn integer(text: &[u8]) -> Option<i128> {
    if Kind::of(text) != Kind::Number {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// The longest divisor of [`remainder`], in decimal digits: ten times its remainder fits into 127 bits.
pub(crate) const DIVISOR_DIGITS_MAX: usize = 36;

/// What is left of a number that is written as an integer, of any length, with the sign of the number; the divisor is not 0
/// and has at most [`DIVISOR_DIGITS_MAX`] digits.
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
    fn containers_are_walked_without_reading_what_is_in_them() {
        let of = |text: &'static str| -> Vec<&str> {
            let all = Elements::of(text.as_bytes());
            all.map(|e| std::str::from_utf8(e).unwrap()).collect()
        };
        assert_eq!(of("[]"), Vec::<&str>::new());
        assert_eq!(
            of(r#"[1,"a]",{"b":[2]},[]]"#),
            ["1", r#""a]""#, r#"{"b":[2]}"#, "[]"]
        );
        let mut members = Members::of(br#"{"a":1,"b\n":{}}"#);
        let (name, value) = members.name().unwrap();
        assert_eq!((name, value), (&b"a"[..], 5));
        assert!(members.go_on(6));
        let (name, value) = members.name().unwrap();
        assert!(is_name(name, "b\n") && value == 13);
        assert!(!members.go_on(15));
        assert!(Members::of(b"{}").name().is_none());
    }

    #[test]
    fn strings_and_integers_are_read_from_their_text() {
        assert_eq!(string(br#""a\"\u0001""#).as_deref(), Some("a\"\u{1}"));
        assert_eq!(string(b"1"), None);
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
