//! Iterates over the members and elements of stored text in place: compact, checked, without
//! duplicate members.

use std::borrow::Cow;

use super::skip;
use super::string::unescape_all;

/// The elements of an array's text.
///
/// ```
/// use document::json::Elements;
/// let elements: Vec<&[u8]> = Elements::of(br#"[1,"a]",{"b":[2]}]"#).collect();
/// assert_eq!(elements, [&b"1"[..], br#""a]""#, br#"{"b":[2]}"#]);
/// ```
#[derive(Clone, Debug)]
pub struct Elements<'a> {
    text: &'a [u8],
    pos: usize,
}

impl<'a> Elements<'a> {
    /// Iterates over `[…]`.
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

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let end = skip::value(self.text, self.pos)?;
        let element = self.text.get(self.pos..end)?;
        // It is followed by a comma or the bracket.
        self.pos = if self.text.get(end) == Some(&b',') {
            end + 1
        } else {
            self.text.len()
        };
        Some(element)
    }
}

/// The members of an object's text: the name without quotes, as it is written, and the position of
/// the value. The caller passes the end of the value, since it may have found it already.
///
/// ```
/// use document::json::{MemberIter, skip};
/// let text = br#"{"a":1,"b":{}}"#;
/// let mut members = MemberIter::of(text);
/// let (name, value) = members.name().unwrap();
/// assert_eq!((name, value), (&b"a"[..], 5));
/// assert!(members.go_on(skip::value(text, value).unwrap()));
/// assert_eq!(members.name().unwrap().0, b"b");
/// ```
#[derive(Clone, Debug)]
pub struct MemberIter<'a> {
    text: &'a [u8],
    pos: usize,
}

impl<'a> MemberIter<'a> {
    /// Iterates over `{…}`, or over members without braces.
    pub fn of(text: &'a [u8]) -> Self {
        let pos = usize::from(text.first() == Some(&b'{'));
        MemberIter { text, pos }
    }

    /// Iterates over the members of the object whose first one is at `pos`.
    pub fn from(text: &'a [u8], pos: usize) -> Self {
        MemberIter { text, pos }
    }

    /// Returns the name of the current member, and the position of its value.
    #[inline]
    pub fn name(&self) -> Option<(&'a [u8], usize)> {
        if self.text.get(self.pos) != Some(&b'"') {
            return None;
        }
        let (end, _) = skip::string(self.text, self.pos + 1)?;
        Some((&self.text[self.pos + 1..end - 1], end + 1))
    }

    /// Continues after a value that ends at `end`; false when it was the last.
    #[inline]
    pub fn go_on(&mut self, end: usize) -> bool {
        self.pos = end + 1;
        self.text.get(end) == Some(&b',')
    }

    /// Returns the position after the object, after [`MemberIter::go_on`] returned false.
    pub fn end(&self) -> usize {
        self.pos
    }
}

/// Iterates over the members of an object's text with their values' texts, names unescaped; empty
/// for text that is not an object.
///
/// ```
/// let all: Vec<_> = document::json::members(br#"{"a":[1],"\u0062":2}"#).collect();
/// assert_eq!(all, [("a".into(), &b"[1]"[..]), ("b".into(), b"2")]);
/// ```
pub fn members(object: &[u8]) -> impl Iterator<Item = (String, &[u8])> {
    let mut all = (object.first() == Some(&b'{')).then(|| MemberIter::of(object));
    std::iter::from_fn(move || {
        let (name, value) = all.as_ref()?.name()?;
        let end = skip::value(object, value)?;
        if !all.as_mut()?.go_on(end) {
            all = None;
        }
        Some((name_text(name)?.into_owned(), object.get(value..end)?))
    })
}

/// Returns the text of the value of an object's member; `None` also when the text is not an object.
///
/// ```
/// use document::json::member;
/// assert_eq!(member(br#"{"a":[1],"b":2}"#, "b"), Some(&b"2"[..]));
/// assert_eq!(member(b"[]", "b"), None);
/// ```
pub fn member<'a>(object: &'a [u8], wanted: &str) -> Option<&'a [u8]> {
    if object.first() != Some(&b'{') {
        return None;
    }
    let mut members = MemberIter::of(object);
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

/// Returns whether a member's name as it is written, without quotes, is this one.
#[inline]
pub fn is_name(written: &[u8], name: &str) -> bool {
    if written.contains(&b'\\') {
        return name_text(written).is_some_and(|n| n == name);
    }
    written == name.as_bytes()
}

/// Decodes the contents of a string; `None` when they are invalid.
///
/// ```
/// assert_eq!(document::json::name_text(br"a\u0062").as_deref(), Some("ab"));
/// ```
pub fn name_text(written: &[u8]) -> Option<Cow<'_, str>> {
    if !written.contains(&b'\\') {
        return std::str::from_utf8(written).ok().map(Cow::Borrowed);
    }
    let mut text = Vec::with_capacity(written.len());
    unescape_all(written, &mut text).ok()?;
    String::from_utf8(text).ok().map(Cow::Owned)
}

/// Decodes a string's text, including its quotes; `None` for the text of any other value.
///
/// ```
/// assert_eq!(document::json::string_text(br#""a\"""#).as_deref(), Some("a\""));
/// assert_eq!(document::json::string_text(b"1"), None);
/// ```
pub fn string_text(text: &[u8]) -> Option<Cow<'_, str>> {
    name_text(text.strip_prefix(b"\"")?.strip_suffix(b"\"")?)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::super::{normalise, read_string};
    use super::*;

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            (-1e9..1e9).prop_map(Value::from),
            "\\PC{0,80}".prop_map(Value::from),
            "[\"\\\\,:\\[\\]{} \n]{0,70}".prop_map(Value::from),
        ];
        leaf.prop_recursive(5, 80, 8, |inner| {
            let name = prop_oneof!["[a-c\"\\\\]{0,3}", "\\PC{0,40}"];
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..8).prop_map(Value::from),
                prop::collection::vec((name, inner), 0..8)
                    .prop_map(|m| m.into_iter().collect::<serde_json::Map<_, _>>().into()),
            ]
        })
    }

    proptest! {
        #[test]
        fn a_value_ends_where_serde_json_says(value in values(), before in 0usize..70, after in "[,\\]} \n][\"{\\[\\\\,a]{0,70}", pretty in any::<bool>()) {
            let text = match pretty {
                true => serde_json::to_string_pretty(&value).unwrap(),
                false => value.to_string(),
            };
            let whole = [" ".repeat(before), text.clone(), after].concat();
            let start = skip::space(whole.as_bytes(), 0);
            prop_assert_eq!(start, before);
            prop_assert_eq!(skip::value(whole.as_bytes(), start), Some(before + text.len()));
            let cut = &whole.as_bytes()[..before + text.len() - 1];
            if value.is_string() || value.is_array() || value.is_object() {
                prop_assert_eq!(skip::value(cut, start), None);
            }
        }

        #[test]
        fn what_is_in_a_value_is_what_serde_json_finds(value in values()) {
            let text = normalise(value.to_string().as_bytes()).unwrap();
            let read = |text: &[u8]| serde_json::from_slice::<Value>(text).unwrap();
            let value = read(&text);
            match &value {
                Value::Array(elements) => {
                    let found: Vec<Value> = Elements::of(&text).map(read).collect();
                    prop_assert_eq!(&found, elements);
                }
                Value::Object(object) => {
                    let found: Vec<(String, Value)> =
                        members(&text).map(|(name, value)| (name, read(value))).collect();
                    let expected: Vec<(String, Value)> =
                        object.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
                    prop_assert_eq!(found, expected);
                    for (name, value) in object {
                        prop_assert_eq!(member(&text, name).map(read), Some(value.clone()));
                    }
                }
                Value::String(string) => {
                    let found = string_text(&text);
                    prop_assert_eq!(found.as_deref(), Some(string.as_str()));
                    let (read, end) = read_string(&text, 0).unwrap();
                    prop_assert_eq!((&*read, end), (string.as_str(), text.len()));
                }
                _ => prop_assert_eq!(string_text(&text), None),
            }
        }

        #[test]
        fn a_string_in_pieces_ends_where_it_does_in_one(string in "[a\"\\\\\n]{0,40}", pieces in prop::collection::vec(0usize..9, 0..20)) {
            let text = [Value::from(string).to_string(), ",\"x\"".to_owned()].concat();
            let (expected, _) = skip::string(text.as_bytes(), 1).unwrap();
            let (mut end, mut at, mut found) = (skip::StringEnd::default(), 1_usize, None);
            for n in pieces.into_iter().chain([usize::MAX]) {
                let piece = &text.as_bytes()[at..at.saturating_add(n).min(text.len())];
                if let Some(n) = end.find(piece) {
                    found = Some(at + n);
                    break;
                }
                at += piece.len();
            }
            prop_assert_eq!(found, Some(expected));
        }
    }

    #[test]
    fn a_name_is_not_how_another_is_written() {
        let object = br#"{"\\":1,"\\\\":2,"\u0061":3}"#;
        assert_eq!(member(object, r"\"), Some(&b"1"[..]));
        assert_eq!(member(object, r"\\"), Some(&b"2"[..]));
        assert_eq!(member(object, "a"), Some(&b"3"[..]));
        assert_eq!(member(object, r"\u0061"), None);
    }

    #[test]
    fn cut_texts_have_nothing_in_them() {
        for text in ["", "{", "{\"", "{\"a", "{\"a\"", "{\"a\":", "{\"a\":["] {
            assert_eq!(members(text.as_bytes()).count(), 0, "{text}");
        }
        for text in ["", "[", "[\"a", "[{\"a\":1"] {
            assert_eq!(Elements::of(text.as_bytes()).count(), 0, "{text}");
        }
        assert!(MemberIter::of(b"{}").name().is_none());
    }
}
