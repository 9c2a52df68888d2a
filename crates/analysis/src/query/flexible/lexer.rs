//! The words of Lucene 9's query language. The longest reading wins; of equally long ones, the
//! first in the grammar's order.

use crate::query::scan::{LexError, MAX_LEXEMES, Scan, goop, is_white, longest_until, quoted, run};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    And,
    Or,
    Not,
    Plus,
    Minus,
    Open,
    Close,
    Colon,
    Equal,
    Less,
    LessOrEqual,
    More,
    MoreOrEqual,
    Caret,
    Tilde,
    At,
    Quoted,
    Number,
    Term,
    Regexp,
    RangeOpen {
        is_inclusive: bool,
    },
    To,
    RangeClose {
        is_inclusive: bool,
    },
    RangeQuoted,
    RangeGoop,
    /// `fn:`.
    Function,
    FunctionName,
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
    Range,
    Function,
}

/// Returns all words of `text`, with [`Kind::End`] as the last.
pub(super) fn lexemes(text: &str) -> Result<Vec<Lexeme<'_>>, LexError> {
    let mut scan = Scan { text, at: 0 };
    let mut state = State::Default;
    let mut all = Vec::new();
    loop {
        if state == State::Range {
            scan.skip_white_in_range()
        } else {
            scan.skip_white()
        }
        if scan.rest().is_empty() {
            all.push(Lexeme {
                kind: Kind::End,
                image: "",
                at: scan.at,
            });
            return Ok(all);
        }
        let found = match state {
            State::Default => default_lexeme(scan.rest()),
            State::Range => range_lexeme(scan.rest()),
            State::Function => function_lexeme(scan.rest()),
        };
        let (kind, len) = found.ok_or(LexError::Invalid(scan.at))?;
        if all.len() == MAX_LEXEMES {
            return Err(LexError::TooMany);
        }
        state = match kind {
            Kind::Function => State::Function,
            Kind::RangeOpen { .. } => State::Range,
            Kind::RangeClose { .. } | Kind::Open => State::Default,
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
                | '@'
                | '<'
                | '>'
                | '='
                | '['
                | ']'
                | '"'
                | '{'
                | '}'
                | '~'
                | '\\'
                | '/'
        )
}

fn is_term(character: char) -> bool {
    is_term_start(character) || matches!(character, '-' | '+')
}

fn default_lexeme(rest: &str) -> Option<(Kind, usize)> {
    let first = rest.chars().next()?;
    if is_term_start(first) || (first == '\\' && rest.len() > 1) {
        let len = run(rest, is_term);
        return Some(match &rest[..len] {
            "AND" | "&&" => (Kind::And, len),
            "OR" | "||" => (Kind::Or, len),
            "NOT" => (Kind::Not, len),
            "fn" if rest[len..].starts_with(':') => (Kind::Function, len + 1),
            image if is_number(image) => (Kind::Number, len),
            _ => (Kind::Term, len),
        });
    }
    let is_or_equal = rest[1..].starts_with('=');
    Some(match first {
        '+' => (Kind::Plus, 1),
        '-' => (Kind::Minus, 1),
        '!' => (Kind::Not, 1),
        '(' => (Kind::Open, 1),
        ')' => (Kind::Close, 1),
        ':' => (Kind::Colon, 1),
        '=' => (Kind::Equal, 1),
        '<' if is_or_equal => (Kind::LessOrEqual, 2),
        '<' => (Kind::Less, 1),
        '>' if is_or_equal => (Kind::MoreOrEqual, 2),
        '>' => (Kind::More, 1),
        '^' => (Kind::Caret, 1),
        '~' => (Kind::Tilde, 1),
        '@' => (Kind::At, 1),
        '[' => (Kind::RangeOpen { is_inclusive: true }, 1),
        '{' => (
            Kind::RangeOpen {
                is_inclusive: false,
            },
            1,
        ),
        '"' => (Kind::Quoted, quoted(rest)?),
        '/' => (Kind::Regexp, longest_until(rest, '/')?),
        _ => return None,
    })
}

/// `12` or `12.5`.
fn is_number(image: &str) -> bool {
    let all_digits =
        |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match image.split_once('.') {
        Some((whole, fraction)) => all_digits(whole) && all_digits(fraction),
        None => all_digits(image),
    }
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

/// After `fn:` comes a function's name, and its parenthesis.
fn function_lexeme(rest: &str) -> Option<(Kind, usize)> {
    if rest.starts_with('(') {
        return Some((Kind::Open, 1));
    }
    let len = rest.bytes().take_while(u8::is_ascii_alphabetic).count();
    (len > 0).then_some((Kind::FunctionName, len))
}
