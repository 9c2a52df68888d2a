use std::sync::Arc;

use crate::error::SelectorError;

/// Maximum number of parts of a field's name.
pub const PATH_PARTS_MAX: usize = 256;

/// Maximum length of a field's whole name, in bytes: selectors repeat the names of fields for each
/// condition below them.
pub const FIELD_NAME_BYTES_MAX: usize = 1024;

/// The path of a field: its parts, from the root of the document inwards. Clones share them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FieldPath(Arc<Parts>);

#[derive(Debug, PartialEq, Eq, Hash)]
struct Parts {
    /// Concatenated.
    text: Box<str>,
    /// The end of each.
    ends: Box<[u32]>,
}

impl FieldPath {
    /// Parses a dotted name. A dot after a backslash belongs to the name (`a\.b` is the member
    /// `a.b`); the backslashes themselves are dropped.
    ///
    /// # Errors
    ///
    /// [`SelectorError::InvalidFieldName`] if a part is empty; [`SelectorError::LongFieldName`] and
    /// [`SelectorError::TooDeep`] for a name beyond [`FIELD_NAME_BYTES_MAX`] or [`PATH_PARTS_MAX`].
    pub fn parse(name: &str) -> Result<Self, SelectorError> {
        check_length(name.len())?;
        let mut text = String::with_capacity(name.len());
        let mut ends = vec![];
        let mut escaped = false;
        for character in name.chars() {
            match character {
                '.' if !escaped => ends.push(text.len() as u32),
                '\\' => {}
                _ => text.push(character),
            }
            escaped = character == '\\';
        }
        ends.push(text.len() as u32);
        if ends[0] == 0 || ends.windows(2).any(|two| two[0] == two[1]) {
            return Err(SelectorError::InvalidFieldName(name.to_owned()));
        }
        if ends.len() > PATH_PARTS_MAX {
            return Err(SelectorError::TooDeep(PATH_PARTS_MAX));
        }
        Ok(Self(Arc::new(Parts {
            text: text.into(),
            ends: ends.into(),
        })))
    }

    /// Returns the parts, outermost first; there is at least one.
    pub fn parts(&self) -> impl ExactSizeIterator<Item = &str> {
        let Parts { text, ends } = &*self.0;
        ends.iter().enumerate().map(move |(i, end)| {
            let start = i.checked_sub(1).map_or(0, |before| ends[before]);
            &text[start as usize..*end as usize]
        })
    }

    /// Returns the first part: a member of the document.
    pub fn first(&self) -> &str {
        &self.0.text[..self.0.ends[0] as usize]
    }

    /// Returns whether this is the field of the document's id, whose values compare byte by byte.
    pub(crate) fn is_id(&self) -> bool {
        self.0.ends.len() == 1 && &*self.0.text == "_id"
    }
}

/// # Errors
/// [`SelectorError::LongFieldName`]
pub(crate) fn check_length(bytes: usize) -> Result<(), SelectorError> {
    match bytes > FIELD_NAME_BYTES_MAX {
        true => Err(SelectorError::LongFieldName(FIELD_NAME_BYTES_MAX)),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(name: &str) -> Vec<String> {
        FieldPath::parse(name)
            .unwrap()
            .parts()
            .map(str::to_owned)
            .collect()
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
}
