//! Patterns with `*` and `?`.

/// A part of a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WildcardPart {
    /// `*`: any characters, also none.
    Any,
    /// `?`: one character.
    One,
    /// This character.
    Literal(char),
}

/// Returns the parts of a [`super::Query::Wildcard`]'s pattern, without its escapes.
pub fn parts(pattern: &str) -> impl Iterator<Item = WildcardPart> + '_ {
    let mut characters = pattern.chars();
    std::iter::from_fn(move || {
        Some(match characters.next()? {
            '*' => WildcardPart::Any,
            '?' => WildcardPart::One,
            // A backslash at the end is itself.
            '\\' => WildcardPart::Literal(characters.next().unwrap_or('\\')),
            other => WildcardPart::Literal(other),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escaped_stars_are_themselves() {
        assert_eq!(
            parts(r"a\*?*").collect::<Vec<_>>(),
            [
                WildcardPart::Literal('a'),
                WildcardPart::Literal('*'),
                WildcardPart::One,
                WildcardPart::Any
            ]
        );
    }
}
