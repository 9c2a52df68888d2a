//! Reading a text character by character; what both languages' lexers share.

/// The most words of syntax in a query: several for each clause, with parentheses and operators.
pub(super) const MAX_LEXEMES: usize = 16 * super::MAX_CLAUSES;

/// Why a text has no words of syntax.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LexError {
    /// No word begins at this position.
    Invalid(usize),
    /// There are more than [`MAX_LEXEMES`].
    TooMany,
}

/// A place in a text.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scan<'a> {
    pub(super) text: &'a str,
    pub(super) at: usize,
}

impl<'a> Scan<'a> {
    /// Returns the rest of the text.
    pub(super) fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    /// Skips Lucene's white space, which includes the ideographic space and excludes the no-break
    /// space.
    pub(super) fn skip_white(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start_matches(is_white).len();
    }

    /// Skips white space in a range, where white space other than the space may start a bound.
    pub(super) fn skip_white_in_range(&mut self) {
        while let Some(white) = self.rest().chars().next().filter(|first| is_white(*first)) {
            if goop(self.rest()) > white.len_utf8() {
                return;
            }
            self.at += white.len_utf8();
        }
    }
}

pub(super) fn is_white(character: char) -> bool {
    matches!(character, ' ' | '\t' | '\n' | '\r' | '\u{3000}')
}

/// Returns the length of a range's bound that is not quoted.
pub(super) fn goop(rest: &str) -> usize {
    rest.find([' ', ']', '}']).unwrap_or(rest.len())
}

/// Returns the length in bytes of the prefix of `rest` that `belongs` accepts, where a backslash
/// and the character after it are always accepted.
pub(super) fn run(rest: &str, belongs: impl Fn(char) -> bool) -> usize {
    let mut characters = rest.char_indices();
    while let Some((at, character)) = characters.next() {
        if character == '\\' {
            if characters.next().is_none() {
                return at;
            }
        } else if !belongs(character) {
            return at;
        }
    }
    rest.len()
}

/// Returns the length of `"…"`, where a backslash hides the next character.
pub(super) fn quoted(rest: &str) -> Option<usize> {
    let inner = run(rest.strip_prefix('"')?, |character| character != '"') + 1;
    rest[inner..].starts_with('"').then_some(inner + 1)
}

/// Returns the longest text from `open` to a `close`, where an escaped one may end it or not.
pub(super) fn longest_until(rest: &str, mark: char) -> Option<usize> {
    let mut last = None;
    let mut before = mark;
    for (at, character) in rest.char_indices().skip(1) {
        if character == mark {
            last = Some(at + 1);
            if before != '\\' {
                return last;
            }
        }
        before = character;
    }
    last
}

/// Removes backslashes; `\u0041` is a character by its number.
///
/// # Errors
///
/// A backslash at the end, or a wrong number, as the text describes.
pub(super) fn unescape(text: &str) -> Result<String, String> {
    unescape_marked(text).map(|(text, _)| text)
}

/// Removes backslashes, and returns whether there is an unescaped `*` or `?`.
///
/// # Errors
///
/// A backslash at the end, or a wrong number, as the text describes.
pub(super) fn unescape_marked(text: &str) -> Result<(String, bool), String> {
    if !text.contains('\\') {
        return Ok((text.to_owned(), text.contains(['*', '?'])));
    }
    let mut is_wild = false;
    // By UTF-16 units, of which a character beyond the first plane takes two.
    let mut units: Vec<u16> = Vec::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        if character != '\\' {
            is_wild |= matches!(character, '*' | '?');
            units.extend(character.encode_utf16(&mut [0; 2]).iter());
            continue;
        }
        match characters.next() {
            None => return Err("Term can not end with escape character.".to_owned()),
            Some('u') => {
                let mut unit = 0;
                for _ in 0..4 {
                    let digit = characters
                        .next()
                        .ok_or("Truncated unicode escape sequence.")?;
                    let value = digit.to_digit(16).ok_or_else(|| {
                        format!("Non-hex character in Unicode escape sequence: {digit}")
                    })?;
                    unit = unit * 16 + value as u16;
                }
                units.push(unit);
            }
            Some(other) => units.extend(other.encode_utf16(&mut [0; 2]).iter()),
        }
    }
    Ok((String::from_utf16_lossy(&units), is_wild))
}
