//! The words of Lucene 4.6's classic query language. The longest reading wins; of equally long
//! ones, the first in the grammar's order.

use crate::query::scan::{LexError, MAX_LEXEMES, Scan, goop, is_white, longest_until, quoted, run};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    And,
    Or,
    Not,
    Plus,
    Minus,
    BareOperator,
    Open,
    Close,
    Colon,
    Star,
    Caret,
    Quoted,
    Term,
    Tilde,
    Prefix,
    Wild,
    Regexp,
    RangeOpen { is_inclusive: bool },
    Number,
    To,
    RangeClose { is_inclusive: bool },
    RangeQuoted,
    RangeGoop,
    End,
}

/// A word: what it is, and where it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Lexeme<'a> {
    pub(super) kind: Kind,
    pub(super) image: &'a str,
    pub(super) at: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Default,
    Boost,
    Range,
}

/// Returns all words of `text`, with [`Kind::End`] as the last.
pub(super) fn lexemes(text: &str) -> Result<Vec<Lexeme<'_>>, LexError> {
    let mut scan = Scan { text, at: 0 };
    let mut state = State::Default;
    let mut all = Vec::new();
    loop {
        match state {
            State::Default => scan.skip_white(),
            State::Boost => {}
            State::Range => scan.skip_white_in_range(),
        }
        if scan.rest().is_empty() && state != State::Boost {
            all.push(Lexeme {
                kind: Kind::End,
                image: "",
                at: scan.at,
            });
            return Ok(all);
        }
        let found = match state {
            State::Default => default_lexeme(scan.rest()),
            State::Boost => number(scan.rest()),
            State::Range => range_lexeme(scan.rest()),
        };
        let (kind, len) = found.ok_or(LexError::Invalid(scan.at))?;
        if all.len() == MAX_LEXEMES {
            return Err(LexError::TooMany);
        }
        state = match kind {
            Kind::Caret => State::Boost,
            Kind::RangeOpen { .. } => State::Range,
            Kind::RangeClose { .. } | Kind::Number => State::Default,
            _ => state,
        };
        all.push(Lexeme {
            kind,
            image: &scan.rest()[..len],
            at: scan.at,
        });
        scan.at += len;
    }
}

fn is_term_start(character: char) -> bool {
    !is_white(character)
        && !matches!(
            character,
            '+' | '-'
                | '!'
                | '('
                | ')'
                | ':'
                | '^'
                | '['
                | ']'
                | '"'
                | '{'
                | '}'
                | '~'
                | '*'
                | '?'
                | '\\'
                | '/'
        )
}

fn is_term(character: char) -> bool {
    is_term_start(character) || matches!(character, '-' | '+')
}

fn default_lexeme(rest: &str) -> Option<(Kind, usize)> {
    let first = rest.chars().next()?;
    let is_escape = first == '\\' && rest.len() > 1;
    if is_term_start(first) || is_escape || matches!(first, '*' | '?') {
        return Some(term(rest, first, is_escape));
    }
    let second_is_white = rest[first.len_utf8()..].starts_with(is_white);
    match first {
        '+' | '-' | '!' if second_is_white => {
            let white = rest[1..].chars().next().map_or(0, char::len_utf8);
            Some((Kind::BareOperator, 1 + white))
        }
        '+' => Some((Kind::Plus, 1)),
        '-' => Some((Kind::Minus, 1)),
        '!' => Some((Kind::Not, 1)),
        '(' => Some((Kind::Open, 1)),
        ')' => Some((Kind::Close, 1)),
        ':' => Some((Kind::Colon, 1)),
        '^' => Some((Kind::Caret, 1)),
        '[' => Some((Kind::RangeOpen { is_inclusive: true }, 1)),
        '{' => Some((
            Kind::RangeOpen {
                is_inclusive: false,
            },
            1,
        )),
        '~' => Some((Kind::Tilde, 1 + run(&rest[1..], is_term))),
        '"' => quoted(rest).map(|len| (Kind::Quoted, len)),
        '/' => longest_until(rest, '/').map(|len| (Kind::Regexp, len)),
        _ => None,
    }
}

/// Returns a word, an operator that is written as one, a prefix or a pattern.
fn term(rest: &str, first: char, is_escape: bool) -> (Kind, usize) {
    let wild = run(rest, |character| {
        is_term(character) || matches!(character, '*' | '?')
    });
    let plain = if is_term_start(first) || is_escape {
        run(rest, is_term)
    } else {
        0
    };
    match &rest[..wild] {
        "*" => (Kind::Star, 1),
        "AND" | "&&" => (Kind::And, wild),
        "OR" | "||" => (Kind::Or, wild),
        "NOT" => (Kind::Not, wild),
        _ if plain == wild => (Kind::Term, wild),
        image if plain > 0 && plain + 1 == wild && image.ends_with('*') => (Kind::Prefix, wild),
        _ => (Kind::Wild, wild),
    }
}

fn number(rest: &str) -> Option<(Kind, usize)> {
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let whole = digits(rest);
    let fraction = rest[whole..].strip_prefix('.').map_or(0, digits);
    let len = whole + if fraction > 0 { fraction + 1 } else { 0 };
    (whole > 0).then_some((Kind::Number, len))
}

fn range_lexeme(rest: &str) -> Option<(Kind, usize)> {
    match rest.as_bytes().first()? {
        b']' => return Some((Kind::RangeClose { is_inclusive: true }, 1)),
        b'}' => {
            return Some((
                Kind::RangeClose {
                    is_inclusive: false,
                },
                1,
            ));
        }
        _ => {}
    }
    let goop = goop(rest);
    let quoted = if rest.starts_with('"') {
        longest_until(rest, '"').filter(|len| *len > 2).unwrap_or(0)
    } else {
        0
    };
    match &rest[..goop] {
        "TO" => Some((Kind::To, goop)),
        _ if quoted >= goop => Some((Kind::RangeQuoted, quoted)),
        _ => Some((Kind::RangeGoop, goop)),
    }
}
