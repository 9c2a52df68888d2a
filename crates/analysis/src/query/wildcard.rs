//! Patterns with `*` and `?`.

/// A part of a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// `*`: any characters, also none.
    Any,
    /// `?`: one character.
    One,
    /// This character.
    Literal(char),
}

/// The parts of a [`super::Query::Wildcard`]'s pattern, without its escapes.
pub fn parts(pattern: &str) -> impl Iterator<Item = Part> + '_ {
    let mut characters = pattern.chars();
    std::iter::from_fn(move || {
        Some(match characters.next()? {
            '*' => Part::Any,
            '?' => Part::One,
            // A backslash at the end is itself.
            '\\' => Part::Literal(characters.next().unwrap_or('\\')),
            other => Part::Literal(other),
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
            [Part::Literal('a'), Part::Literal('*'), Part::One, Part::Any]
        );
    }
}
