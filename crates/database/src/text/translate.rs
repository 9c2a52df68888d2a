//! Translates parsed queries into queries of the engine.

use std::iter::Peekable;
use std::ops::Bound;
use std::str::Chars;

use analysis::Flavour;
use analysis::query::{self as parsed, Clause, Occur};
use search::Query;
use search::query::{Interval, WildcardToken};

use crate::Error;

/// Returns a parsed query as the engine has it, with the meaning that it has in one of CouchDB's two
/// interfaces.
pub fn translate(query: parsed::Query, flavour: Flavour) -> Result<Query, Error> {
    Ok(match query {
        parsed::Query::MatchAll => Query::All,
        parsed::Query::MatchNone => Query::None,
        parsed::Query::Term { field, text } => Query::Term { field, term: text },
        parsed::Query::Phrase { field, terms, slop } => Query::Phrase {
            field,
            terms: places_of(terms),
            slop,
        },
        parsed::Query::Prefix { field, prefix } => Query::Prefix { field, prefix },
        parsed::Query::Wildcard { field, pattern } => Query::Wildcard {
            field,
            pattern: wilds_of(&pattern),
        },
        parsed::Query::Regexp { field, pattern } => Query::Regex {
            field,
            pattern: regex_of(&pattern)?,
        },
        parsed::Query::Fuzzy {
            field,
            text,
            max_edits,
        } => Query::Fuzzy {
            field,
            term: text,
            edits: usize::from(max_edits),
            prefix: 0,
        },
        parsed::Query::Range {
            field,
            lower,
            upper,
        } => range(field, lower, upper, flavour),
        parsed::Query::NumberRange {
            field,
            lower,
            upper,
        } => Query::Numbers {
            field,
            low: lower,
            high: upper,
        },
        parsed::Query::Boolean {
            clauses,
            minimum_should_match,
        } => boolean(clauses, minimum_should_match as usize, flavour)?,
        parsed::Query::Intervals { field, interval } => Query::Interval {
            field,
            source: interval_of(interval)?,
        },
        parsed::Query::Boost { query, boost } => {
            Query::Boost(Box::new(translate(*query, flavour)?), boost)
        }
    })
}

/// The places of a phrase, each with its alternative words.
fn places_of(terms: Vec<parsed::PhraseTerm>) -> Vec<(u32, Vec<String>)> {
    let mut places: Vec<(u32, Vec<String>)> = vec![];
    for term in terms {
        match places.last_mut() {
            Some((position, any)) if *position == term.position => any.push(term.text),
            _ => places.push((term.position, vec![term.text])),
        }
    }
    places
}

fn wilds_of(pattern: &str) -> Vec<WildcardToken> {
    let wild = |part| match part {
        parsed::wildcard::WildcardPart::Any => WildcardToken::Many,
        parsed::wildcard::WildcardPart::One => WildcardToken::One,
        parsed::wildcard::WildcardPart::Literal(c) => WildcardToken::Char(c),
    };
    parsed::wildcard::parts(pattern).map(wild).collect()
}

/// Returns a range of terms. In Clouseau's interface the terms of numbers can be among them.
fn range(field: String, low: Bound<String>, high: Bound<String>, flavour: Flavour) -> Query {
    let has_numbers = flavour == Flavour::Clouseau && has_number_terms(&low, &high);
    let numbers = has_numbers.then(|| Query::Numbers {
        field: field.clone(),
        low: Bound::Unbounded,
        high: Bound::Unbounded,
    });
    let terms = Query::Terms { field, low, high };
    match numbers {
        None => terms,
        // One score for both, as of one range.
        Some(numbers) => {
            let either = Query::Boolean {
                must: vec![],
                should: vec![terms, numbers],
                must_not: vec![],
                should_min: 1,
            };
            Query::Constant(Box::new(either), 1.0)
        }
    }
}

/// Returns whether a range of terms contains one of each number.
///
/// Lucene 4 indexes a number as 16 terms, which omit 0, 4, 8 … of its bits. Each begins with a byte
/// that counts those bits, from a space on, and has at least one byte more.
fn has_number_terms(low: &Bound<String>, high: &Bound<String>) -> bool {
    let is_after_low = |first: u8| match low {
        Bound::Unbounded => true,
        Bound::Included(low) | Bound::Excluded(low) => low.as_bytes() <= &[first][..],
    };
    let is_before_high = |first: u8| match high {
        Bound::Unbounded => true,
        Bound::Included(high) | Bound::Excluded(high) => {
            high.as_bytes().first().is_some_and(|byte| *byte > first)
        }
    };
    let mut firsts = (b' '..=b' ' + 60).step_by(4);
    firsts.any(|first| is_after_low(first) && is_before_high(first))
}

fn boolean(clauses: Vec<Clause>, should_min: usize, flavour: Flavour) -> Result<Query, Error> {
    let (mut must, mut should, mut must_not) = (vec![], vec![], vec![]);
    for clause in clauses {
        let query = translate(clause.query, flavour)?;
        match clause.occur {
            Occur::Must => must.push(query),
            Occur::Should => should.push(query),
            Occur::MustNot => must_not.push(query),
        }
    }
    Ok(Query::Boolean {
        must,
        should,
        must_not,
        should_min,
    })
}

/// An interval as the engine has it.
fn interval_of(interval: parsed::Interval) -> Result<Interval, Error> {
    let all = |parts: Vec<parsed::Interval>| -> Result<Vec<Interval>, Error> {
        parts.into_iter().map(interval_of).collect()
    };
    Ok(match interval {
        parsed::Interval::Term(term) => Interval::Term(term),
        parsed::Interval::Nothing => Interval::Or(vec![]),
        parsed::Interval::Phrase(parts) => Interval::Phrase(all(parts)?),
        parsed::Interval::Ordered(parts) => Interval::Ordered(all(parts)?),
        parsed::Interval::Unordered(parts) => Interval::Unordered(all(parts)?),
        parsed::Interval::UnorderedNoOverlaps(parts) => Interval::Unordered(all(parts.to_vec())?),
        parsed::Interval::Or(parts) => Interval::Or(all(parts)?),
        parsed::Interval::MaxWidth(width, part) => {
            Interval::MaxWidth(width, Box::new(interval_of(*part)?))
        }
        parsed::Interval::MaxGaps(gaps, part) => {
            Interval::MaxGaps(gaps, Box::new(interval_of(*part)?))
        }
        parsed::Interval::Wildcard(_)
        | parsed::Interval::Fuzzy { .. }
        | parsed::Interval::AtLeast(..)
        | parsed::Interval::Extend { .. }
        | parsed::Interval::Related { .. } => {
            return Err(Error::BadRequest(
                "of intervals, only ordered, unordered, phrase, or, maxwidth and maxgaps are supported".into(),
            ));
        }
    })
}

/// The maximum length of a regular expression, in bytes: it takes up to a few kilobytes for each
/// before its size is checked.
const REGEX_BYTES_MAX: usize = 4 << 10;

/// The context of a character of a regular expression, outside of classes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Before {
    /// The beginning of an alternative: nothing can be repeated, separated or closed.
    Beginning,
    /// An opening parenthesis, which can be closed.
    Parenthesis,
    Atom,
    Repetition,
}

/// Translates Lucene's regular expressions: `^` and `$` are characters there, `@` is any text, `#`
/// none, quotes hold literal text. Groups have no options, and do not capture. Complements,
/// intersections and ranges of numbers are not supported.
fn regex_of(pattern: &str) -> Result<String, Error> {
    if pattern.len() > REGEX_BYTES_MAX {
        let reason = format!("a regular expression has at most {REGEX_BYTES_MAX} bytes");
        return Err(Error::BadRequest(reason));
    }
    let mut out = String::new();
    let mut chars = pattern.chars().peekable();
    let mut next = Before::Beginning;
    while let Some(c) = chars.next() {
        let before = std::mem::replace(&mut next, Before::Atom);
        let is_beginning = matches!(before, Before::Beginning | Before::Parenthesis);
        match c {
            '\\' => match chars.next().unwrap_or('\\') {
                escaped if let Some(class) = predefined_class(escaped) => out.push_str(class),
                escaped => push_literal(escaped, &mut out),
            },
            '[' => push_class(&mut chars, &mut out),
            '^' | '$' => out.extend(['\\', c]),
            '@' => out.push_str(".*"),
            '#' => out.push_str("[^\\s\\S]"),
            '"' => {
                out.push_str("(?:");
                for c in chars.by_ref().take_while(|c| *c != '"') {
                    push_literal(c, &mut out);
                }
                out.push(')');
            }
            '~' | '&' | '<' => {
                let reason = format!("regular expressions with {c} are not supported");
                return Err(Error::BadRequest(reason));
            }
            '?' | '*' | '+' | '{' | '|' if is_beginning => out.extend(['\\', c]),
            ')' if before == Before::Beginning => out.extend(['\\', c]),
            '(' => {
                out.push_str("(?:");
                next = Before::Parenthesis;
            }
            '|' => {
                out.push('|');
                next = Before::Beginning;
            }
            // Not a lazy repetition.
            '?' if before == Before::Repetition => {
                out.push_str("{0,1}");
                next = Before::Repetition;
            }
            '?' | '*' | '+' | '}' => {
                out.push(c);
                next = Before::Repetition;
            }
            c => out.push(c),
        }
    }
    Ok(out)
}

/// Returns the class that an escaped letter stands for, in brackets, which nest. Lucene's classes
/// are of ASCII; those of the engine are of Unicode, and large.
fn predefined_class(letter: char) -> Option<&'static str> {
    Some(match letter {
        'd' => "[0-9]",
        'D' => "[^0-9]",
        's' => "[\\t\\n\\r\\x20]",
        'S' => "[^\\t\\n\\r\\x20]",
        'w' => "[0-9A-Z_a-z]",
        'W' => "[^0-9A-Z_a-z]",
        _ => return None,
    })
}

/// Translates a class, whose `[` is read. The engine refuses an unclosed one.
fn push_class(chars: &mut Peekable<Chars<'_>>, out: &mut String) {
    out.push('[');
    if chars.next_if_eq(&'^').is_some() {
        out.push('^');
    }
    // The first member may be a `]`.
    while let Some(c) = chars.next() {
        push_member(c, chars, out);
        if chars.next_if_eq(&']').is_some() {
            out.push(']');
            return;
        }
    }
}

/// Writes a member of a class that begins with `first`: a character, a range, or a predefined
/// class, which begins no range. The engine has operators (`--`, `&&`), so all but the hyphen of a
/// range is escaped.
fn push_member(first: char, chars: &mut Peekable<Chars<'_>>, out: &mut String) {
    let mut character = first;
    if first == '\\' {
        character = chars.next().unwrap_or('\\');
        if let Some(class) = predefined_class(character) {
            out.push_str(class);
            return;
        }
    }
    push_literal(character, out);
    let mut ahead = chars.clone();
    // A hyphen at the end is a member, which Lucene refuses.
    if ahead.next() != Some('-') || ahead.peek() == Some(&']') {
        return;
    }
    chars.next();
    let mut last = chars.next();
    if last == Some('\\') {
        last = chars.next();
    }
    if let Some(last) = last {
        out.push('-');
        push_literal(last, out);
    }
}

fn push_literal(c: char, out: &mut String) {
    // `\<` and `\>` are the beginning and the end of a word.
    if c.is_ascii_punctuation() && !matches!(c, '<' | '>') {
        out.push('\\');
    }
    out.push(c);
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;

    #[test]
    fn a_range_of_text_has_numbers_if_it_has_one_of_their_terms() {
        let has = |low: Bound<&str>, high: Bound<&str>| {
            has_number_terms(&low.map(str::to_owned), &high.map(str::to_owned))
        };
        let (from, below, open) = (Bound::Included, Bound::Excluded, Bound::Unbounded);
        assert!(has(from(""), open));
        assert!(has(open, from("a")));
        assert!(has(below("0"), below("z")));
        assert!(has(from("3"), from("5")));
        assert!(!has(from("a"), open));
        assert!(!has(open, from("")));
        assert!(!has(open, from(" ")));
        assert!(!has(from("2019-01-01"), from("2020-12-31")));
    }

    #[test]
    fn lucenes_regular_expressions_are_read() {
        for (theirs, ours) in [
            ("fox(es)?", "fox(?:es)?"),
            ("^a$", r"\^a\$"),
            ("a@", "a.*"),
            (r"a\.b", r"a\.b"),
            ("\"a.b\"c", r"(?:a\.b)c"),
            ("[fr]oam", "[fr]oam"),
            (r"\w+", "[0-9A-Z_a-z]+"),
            (r"\D", "[^0-9]"),
            (r"[\s\S-]", r"[[\t\n\r\x20][^\t\n\r\x20]\-]"),
            (r"\<b\>", "<b>"),
            (r"\p\x\b", "pxb"),
            ("a{2,3}b*", "a{2,3}b*"),
        ] {
            assert_eq!(regex_of(theirs).unwrap(), ours);
        }
        for refused in ["a&b", "~a", "<1-5>"] {
            assert!(regex_of(refused).is_err(), "{refused}");
        }
    }

    #[test]
    fn groups_have_no_options() {
        for (theirs, ours) in [
            ("(?i)a", r"(?:\?i)a"),
            ("(?:a)", r"(?:\?:a)"),
            ("()a", "(?:)a"),
            ("*a|+b", r"\*a|\+b"),
            ("a|)", r"a|\)"),
            ("(|)", r"(?:\|)"),
            ("{1}", r"\{1}"),
            ("a+?b", "a+{0,1}b"),
            ("a{2}?", "a{2}{0,1}"),
        ] {
            assert_eq!(regex_of(theirs).unwrap(), ours);
        }
    }

    #[test]
    fn regular_expressions_have_a_maximum_length_and_no_large_classes() {
        let longest = r"\w".repeat(REGEX_BYTES_MAX / 2);
        let ours = regex_of(&longest).unwrap();
        assert!(ours.is_ascii() && !ours.contains("\\w"));
        assert!(ours.len() <= 8 * REGEX_BYTES_MAX);
        for longer in [format!("{longest}a"), "#".repeat(1 << 20)] {
            assert!(matches!(regex_of(&longer), Err(Error::BadRequest(_))));
        }
    }

    #[test]
    fn translated_expressions_match_as_in_lucene() {
        let effort = Rc::new(search::Effort::default());
        let matches = |pattern: &str, word: &str| {
            let query = Query::Regex {
                field: "t".to_owned(),
                pattern: regex_of(pattern).unwrap(),
            };
            let weight = search::query::likeness_of(&query, &effort).unwrap();
            weight(word).is_some()
        };
        for (pattern, word, expected) in [
            ("fox(es)?", "foxes", true),
            ("(?i)a", "A", false),
            ("(?i)a", "?ia", true),
            (r"\w+", "a_1", true),
            (r"\w+", "é", false),
            (r"\W", "é", true),
            (r"[\w-]+", "a-b", true),
            (r"[^\d]", "1", false),
            (r"[^\d]", "a", true),
            (r"\s\S", "\ta", true),
            (r"\s", "\u{a0}", false),
            ("xa+?y", "xy", true),
            ("\"ab\"+", "abab", true),
            ("#|a", "a", true),
            ("a@", "abc", true),
            ("@*", "", true),
            ("()", "", true),
            (r"\<b\>", "<b>", true),
            ("]}", "]}", true),
        ] {
            assert_eq!(matches(pattern, word), expected, "{pattern} {word}");
        }
    }

    #[test]
    fn classes_have_the_members_of_lucenes() {
        let effort = Rc::new(search::Effort::default());
        // All of printable ASCII is tried: each class, and its members.
        for (class, members) in [
            (r"[\s-_]", " -_"),
            (r"[\d-a]", "-0123456789a"),
            (
                r"[\w-]",
                "-0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz",
            ),
            (
                r"[^\W5-9]",
                "01234ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz",
            ),
            (r"[^\S]", " "),
            (r"[a\s-c]", " -ac"),
            (r"[a-\d]", "abcd"),
            ("[a-c]", "abc"),
            ("[abc-]", "-abc"),
            ("[-a]", "-a"),
            (r"[a\-c]", "-ac"),
            ("[+--]", "+,-"),
            (r"[\d--0]", "-./0123456789"),
            ("[a&&b]", "&ab"),
            ("[a~~b]", "ab~"),
            ("[[a]", "[a"),
            ("[[:a]", ":[a"),
            ("[]a]", "]a"),
            (r"[\]a]", "]a"),
            (r"[\^a]", "^a"),
            ("[a^]", "^a"),
            ("[<>]", "<>"),
            (r#"[".*$(|)?@#{}]"#, r##""#$()*.?@{|}"##),
        ] {
            let query = Query::Regex {
                field: "t".to_owned(),
                pattern: regex_of(class).unwrap(),
            };
            let weight = search::query::likeness_of(&query, &effort).unwrap();
            let found: String = (' '..='~')
                .filter(|c| weight(&c.to_string()).is_some())
                .collect();
            assert_eq!(found, members, "{class}");
        }
    }
}
