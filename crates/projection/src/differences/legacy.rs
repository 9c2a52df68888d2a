//! Syntax that only old versions of CouchDB's engine have.

use super::kind::*;
use super::tokens::{Token, starts_operand, tokens};

use Token::{Literal, Sign, Word};

/// Returns the offsets of such syntax in a source that does not compile, with their kinds.
pub(super) fn legacy(source: &str) -> Vec<(usize, &'static Kind)> {
    let tokens = tokens(source);
    let mut found = vec![];
    // Offsets of the open brackets, with their characters.
    let mut open: Vec<u8> = vec![];
    for (i, &(at, token)) in tokens.iter().enumerate() {
        let before = &tokens[..i];
        let kind = match token {
            Sign(sign @ (b'(' | b'[' | b'{')) => {
                open.push(sign);
                None
            }
            Sign(b')' | b']' | b'}') => {
                open.pop();
                None
            }
            // Behind XML there are no tokens that mean something.
            Sign(b'<') if starts_operand(before) && is_xml(source, at) => {
                found.push((at, &E4X));
                return found;
            }
            Sign(sign) => of_sign(sign, before, &tokens[i..]),
            Word(_) if matches!(before.last(), Some((_, Sign(b'.')))) => None,
            Word("for") if !matches!(open.last(), None | Some(b'{')) => Some(&COMPREHENSION),
            Word("yield") if !has_generator(&tokens) => Some(&LEGACY_GENERATOR),
            Word("getter" | "setter") => of_accessor(before, &tokens[i + 1..]),
            Word(word) => of_word(word, &tokens[i + 1..]),
            Literal => None,
        };
        found.extend(kind.map(|kind| (at, kind)));
    }
    found
}

/// Returns whether XML may begin at the `<` at `at`.
fn is_xml(source: &str, at: usize) -> bool {
    let next = source.as_bytes().get(at + 1);
    next.is_some_and(|byte| byte.is_ascii_alphabetic() || matches!(byte, b'>' | b'{'))
}

fn has_generator(tokens: &[(usize, Token<'_>)]) -> bool {
    let mut pairs = tokens.windows(2);
    pairs.any(|pair| matches!(pair, [(_, Word("function")), (_, Sign(b'*'))]))
}

/// `rest` begins with the sign.
fn of_sign(
    sign: u8,
    before: &[(usize, Token<'_>)],
    rest: &[(usize, Token<'_>)],
) -> Option<&'static Kind> {
    let is_adjacent = |(a, _): (usize, Token<'_>), (b, _): (usize, Token<'_>)| a + 1 == b;
    match (sign, rest) {
        (b'#', [_, (_, Literal), (_, Sign(b'=' | b'#')), ..]) => Some(&SHARP_VARIABLE),
        (b'.', [_, (_, Sign(b'@')), ..]) => Some(&E4X),
        (b'.', [one, two @ (_, Sign(b'.')), (_, Word(_) | Sign(b'@')), ..])
            if is_adjacent(*one, *two)
                && !matches!(before.last(), Some((_, Literal | Sign(b'.')))) =>
        {
            Some(&E4X)
        }
        (b':', [one, two @ (_, Sign(b':')), (_, Word(_)), ..]) if is_adjacent(*one, *two) => {
            Some(&E4X)
        }
        _ => None,
    }
}

/// `after` are the tokens after the word.
fn of_word(word: &str, after: &[(usize, Token<'_>)]) -> Option<&'static Kind> {
    match (word, after) {
        ("for", [(_, Word("each")), ..]) => Some(&FOR_EACH),
        ("let", [(_, Sign(b'(')), ..]) => Some(&LET_BLOCK),
        ("catch", [(_, Sign(b'(')), (_, Word(_)), (_, Word("if")), ..]) => Some(&CATCH_CONDITION),
        ("default", [(_, Word("xml")), (_, Word("namespace")), ..]) => Some(&E4X),
        ("function", _) => is_without_braces(after).then_some(&EXPRESSION_CLOSURE),
        _ => None,
    }
}

/// `name getter: function`, or `object.name getter = function`.
fn of_accessor(
    before: &[(usize, Token<'_>)],
    after: &[(usize, Token<'_>)],
) -> Option<&'static Kind> {
    let is_named = matches!(before.last(), Some((_, Word(_) | Literal)));
    let is_defined = matches!(after.first(), Some((_, Sign(b':' | b'='))));
    (is_named && is_defined).then_some(&LEGACY_ACCESSOR)
}

/// Returns whether a function, from its name or parameters on, has a body that is an expression.
fn is_without_braces(after: &[(usize, Token<'_>)]) -> bool {
    let named = usize::from(matches!(after.first(), Some((_, Word(_)))));
    let mut depth = 0;
    for (i, (_, token)) in after.iter().enumerate().skip(named) {
        match token {
            Sign(b'(') => depth += 1,
            Sign(b')') => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            let body = after.get(i + 1).map(|(_, token)| *token);
            let begins = matches!(token, Sign(b')'));
            return begins && body.is_some_and(|token| token != Sign(b'{'));
        }
    }
    false
}
