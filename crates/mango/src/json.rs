//! Stored JSON text, looked at where it lies: compact, without duplicate members, strings in the normal form of
//! [`document::normalise`].

use std::borrow::Cow;

use document::json::skip;

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

fn unescape(written: &[u8]) -> Option<String> {
    let mut quoted = Vec::with_capacity(written.len() + 2);
    quoted.push(b'"');
    quoted.extend_from_slice(written);
    quoted.push(b'"');
    serde_json::from_slice(&quoted).ok()
}

/// A string's text without quotes and escapes; `None` for what is no string.
pub(crate) fn string(text: &[u8]) -> Option<Cow<'_, str>> {
    let inner = text.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    if inner.contains(&b'\\') {
        return unescape(inner).map(Cow::Owned);
    }
    std::str::from_utf8(inner).ok().map(Cow::Borrowed)
}

/// A number that is written as an integer of at most 127 bits.
pub(crate) fn integer(text: &[u8]) -> Option<i128> {
    if Kind::of(text) != Kind::Number {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
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
    }
}
