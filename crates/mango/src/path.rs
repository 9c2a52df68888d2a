use serde_json::Value;

use crate::error::SelectorError;

/// The way to a field: its parts, from the root of the document inwards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldPath {
    parts: Vec<String>,
}

/// What stands at the end of a path.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Found<'a> {
    /// A value.
    Value(&'a Value),
    /// The last object on the way has no such member.
    Missing,
    /// The way leads through a value that has no members, or past the end of an array. CouchDB holds this to be neither
    /// present nor absent: not even `$exists: false` matches.
    NoWay,
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
        Ok(Self { parts })
    }

    /// The parts, outermost first; never empty.
    pub fn parts(&self) -> &[String] {
        &self.parts
    }

    /// The value at the end of the path. A part that is a number is also the position in an array, from 0.
    pub fn value<'a>(&self, document: &'a Value) -> Option<&'a Value> {
        match self.find(document) {
            Found::Value(value) => Some(value),
            Found::Missing | Found::NoWay => None,
        }
    }

    pub(crate) fn find<'a>(&self, document: &'a Value) -> Found<'a> {
        let mut value = document;
        for part in &self.parts {
            let (next, otherwise) = match value {
                Value::Object(members) => (members.get(part), Found::Missing),
                Value::Array(elements) => (
                    part.parse().ok().and_then(|at: usize| elements.get(at)),
                    Found::NoWay,
                ),
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

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
        let document = json!({"s": "x", "list": [{"k": 1}]});
        let find = |name: &str| FieldPath::parse(name).unwrap().find(&document);
        assert_eq!(find("list.0.k"), Found::Value(&json!(1)));
        assert_eq!(find("list.0.z"), Found::Missing);
        assert_eq!(find("list.1"), Found::NoWay);
        assert_eq!(find("list.-1"), Found::NoWay);
        assert_eq!(find("s.x"), Found::NoWay);
        assert_eq!(find("zzz.x"), Found::Missing);
    }
}
