//! Tokens of a source that no parser of standard JavaScript accepts.

/// A token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token<'s> {
    /// A name or a keyword.
    Word(&'s str),
    /// A number, a string, a template or a regular expression.
    Literal,
    /// One character of an operator or a bracket.
    Sign(u8),
}

/// Words after which a slash begins a regular expression, and a `<` an XML literal.
const BEFORE_OPERAND: &[&str] = &[
    "return",
    "typeof",
    "case",
    "in",
    "of",
    "delete",
    "void",
    "throw",
    "new",
    "else",
    "do",
    "yield",
    "instanceof",
];

/// Returns the tokens of a source with their offsets. Texts that are not JavaScript give some tokens.
pub(super) fn tokens(source: &str) -> Vec<(usize, Token<'_>)> {
    let bytes = source.as_bytes();
    let mut found = vec![];
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let rest = &source[at..];
        let start = at;
        let token = match byte {
            b'/' if rest.starts_with("//") => {
                at += rest.find('\n').unwrap_or(rest.len());
                continue;
            }
            b'/' if rest.starts_with("/*") => {
                at += rest.find("*/").map_or(rest.len(), |end| end + 2);
                continue;
            }
            b'"' | b'\'' | b'`' => {
                at = end_of_quoted(bytes, at);
                Token::Literal
            }
            b'/' if starts_operand(&found) => {
                at = end_of_quoted(bytes, at);
                Token::Literal
            }
            b'0'..=b'9' => {
                let ends = |c: char| !(c.is_ascii_alphanumeric() || c == '.');
                let end = rest.find(ends).unwrap_or(rest.len());
                // `1..x` is a member of a number: the second point is not of the number.
                at += rest[..end].find("..").map_or(end, |points| points + 1);
                Token::Literal
            }
            _ if is_word(byte) => {
                let end = rest
                    .bytes()
                    .position(|b| !is_word(b) && !b.is_ascii_digit());
                at += end.unwrap_or(rest.len());
                Token::Word(&source[start..at])
            }
            _ => {
                at += 1;
                if byte.is_ascii_whitespace() {
                    continue;
                }
                Token::Sign(byte)
            }
        };
        found.push((start, token));
    }
    found
}

/// Returns whether what follows these tokens is an operand, not an operator.
pub(super) fn starts_operand(before: &[(usize, Token<'_>)]) -> bool {
    match before.last() {
        None => true,
        Some((_, Token::Word(word))) => BEFORE_OPERAND.contains(word),
        Some((_, Token::Literal)) => false,
        Some((_, Token::Sign(sign))) => !matches!(sign, b')' | b']' | b'}'),
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || matches!(byte, b'_' | b'$') || byte >= 0x80
}

/// Returns where the string, template or regular expression at `at` ends.
fn end_of_quoted(bytes: &[u8], at: usize) -> usize {
    let quote = bytes[at];
    let mut in_class = false;
    let mut i = at + 1;
    while let Some(&byte) = bytes.get(i) {
        match byte {
            b'\\' => i += 1,
            b'[' if quote == b'/' => in_class = true,
            b']' if quote == b'/' => in_class = false,
            b'\n' if quote != b'`' => return i,
            _ if byte == quote && !in_class => return i + 1,
            _ => {}
        }
        i += 1;
    }
    bytes.len()
}
