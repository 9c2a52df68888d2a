use document::json::skip;

use crate::error::SelectorError;
use crate::json::{Elements, Kind, Members, is_name};
use crate::lift::Found;

/// Parts of a field's name, at most.
pub const PATH_PARTS_MAX: usize = 256;

/// The way to a field: its parts, from the root of the document inwards.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FieldPath {
    parts: Vec<String>,
}

impl FieldPath {
    /// Reads a dotted name. A dot behind a backslash belongs to the name (`a\.b` is the member `a.b`); the backslashes
    /// themselves are dropped.
    ///
    /// # Errors
    ///
    /// [`SelectorError::InvalidFieldName`] if a part is empty.
    pub fn parse(name: &str) -> Result<Self, SelectorError> {
        let mut parts = vec![String::new()];
        let mut escaped = false;
        for character in name.chars() {
            match (character, parts.last_mut()) {
                ('.', _) if !escaped => parts.push(String::new()),
                ('\\', _) => {}
                (_, Some(part)) => part.push(character),
                (_, None) => {}
            }
            escaped = character == '\\';
        }
        if parts.iter().any(String::is_empty) {
            return Err(SelectorError::InvalidFieldName(name.to_owned()));
        }
        if parts.len() > PATH_PARTS_MAX {
            return Err(SelectorError::TooDeep(PATH_PARTS_MAX));
        }
        Ok(Self { parts })
    }

    /// The parts, outermost first; never empty.
    pub fn parts(&self) -> &[String] {
        &self.parts
    }

    /// What stands at the end of the path in a value. A part that is a number is also the position in an array, from 0.
    pub(crate) fn find<'a>(&self, text: &'a [u8]) -> Found<'a> {
        let mut value = text;
        for part in &self.parts {
            let (next, otherwise) = match Kind::of(value) {
                Kind::Object => (member(value, part), Found::Missing),
                Kind::Array => (element(value, part), Found::NoWay),
                _ => (None, Found::NoWay),
            };
            match next {
                Some(next) => value = next,
                None => return otherwise,
            }
        }
        Found::Value(value)
    }

    /// Whether this is the field of the document's id, whose values compare byte by byte.
    pub(crate) fn is_id(&self) -> bool {
        self.parts == ["_id"]
    }
}

fn member<'a>(object: &'a [u8], wanted: &str) -> Option<&'a [u8]> {
    let mut members = Members::of(object);
    loop {
        let (name, value) = members.name()?;
        let end = skip::value(object, value)?;
        if is_name(name, wanted) {
            return Some(&object[value..end]);
        }
        if !members.go_on(end) {
            return None;
        }
    }
}

fn element<'a>(array: &'a [u8], part: &str) -> Option<&'a [u8]> {
    Elements::of(array).nth(part.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(name: &str) -> Vec<String> {
        FieldPath::parse(name).unwrap().parts
    }

    #[test]
    fn dots_separate_unless_they_are_escaped() {
        assert_eq!(parts("a"), ["a"]);
        assert_eq!(parts("a.b.c"), ["a", "b", "c"]);
        assert_eq!(parts("a\\.b.c"), ["a.b", "c"]);
        assert_eq!(parts("a\\b"), ["ab"]);
    }

    #[test]
    fn an_empty_part_is_refused() {
        for name in ["", ".", "a.", ".a", "a..b"] {
            assert_eq!(
                FieldPath::parse(name),
                Err(SelectorError::InvalidFieldName(name.to_owned()))
            );
        }
    }

    #[test]
    fn a_way_through_a_scalar_is_not_a_missing_field() {
        let document = br#"{"s":"x","list":[{"k":1}]}"#;
        let find = |name: &str| FieldPath::parse(name).unwrap().find(document);
        assert_eq!(find("list.0.k"), Found::Value(b"1"));
        assert_eq!(find("list.0.z"), Found::Missing);
        assert_eq!(find("list.1"), Found::NoWay);
        assert_eq!(find("list.-1"), Found::NoWay);
        assert_eq!(find("s.x"), Found::NoWay);
        assert_eq!(find("zzz.x"), Found::Missing);
    }
}
