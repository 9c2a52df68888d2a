//! What is asked for: Lucene's queries, after analysis.

use std::ops::{Bound, RangeBounds};

use regex::{Regex, RegexBuilder};

use crate::{Effort, Error};

/// A query. Fields are named as `index` named them, or `_id`, or `_partition`.
#[derive(Clone, Debug, PartialEq)]
pub enum Query {
    /// All documents.
    All,
    /// None.
    None,
    /// Documents with a term.
    Term {
        /// The field.
        field: String,
        /// As it was indexed.
        term: String,
    },
    /// Documents with terms at places.
    Phrase {
        /// The field.
        field: String,
        /// Each place with the terms of which one is to be there.
        terms: Vec<(u32, Vec<String>)>,
        /// How far terms may be from their places, together.
        slop: u32,
    },
    /// Documents with a term that begins so.
    Prefix {
        /// The field.
        field: String,
        /// The beginning.
        prefix: String,
    },
    /// Documents with a term that a pattern matches.
    Wildcard {
        /// The field.
        field: String,
        /// `*` and `?` of patterns, and characters.
        pattern: Vec<Wild>,
    },
    /// Documents with a term that a regular expression matches as a whole.
    Regex {
        /// The field.
        field: String,
        /// As the `regex` crate has it.
        pattern: String,
    },
    /// Documents with a term like this.
    Fuzzy {
        /// The field.
        field: String,
        /// The term.
        term: String,
        /// Edits at most: insertions, deletions, replacements, and exchanges of neighbours.
        edits: usize,
        /// So many characters at its beginning are as they are.
        prefix: usize,
    },
    /// Documents with a term between two.
    Terms {
        /// The field.
        field: String,
        /// The first.
        low: Bound<String>,
        /// The last.
        high: Bound<String>,
    },
    /// Documents with a number between two.
    Numbers {
        /// The field.
        field: String,
        /// The least.
        low: Bound<f64>,
        /// The greatest.
        high: Bound<f64>,
    },
    /// Documents by what other queries find.
    Boolean {
        /// All of these.
        must: Vec<Query>,
        /// So many of these as `should_min` says; one, when there is nothing in `must`.
        should: Vec<Query>,
        /// None of these.
        must_not: Vec<Query>,
        /// How many of `should` there are to be at least.
        should_min: usize,
    },
    /// The same documents with their score times so much.
    Boost(Box<Query>, f32),
    /// The same documents, all with this score.
    Constant(Box<Query>, f32),
    /// Documents whose greatest string of a field, in the order of bytes, is this; `None`: that have none. All score nothing.
    Value {
        /// The field.
        field: String,
        /// The string.
        value: Option<String>,
    },
    /// Documents with one of these facets, or with any when there are none; by Nouveau's similarity, with one of these strings as
    /// they are. All score nothing.
    Facet {
        /// The field.
        field: String,
        /// The facets, or strings.
        values: Vec<String>,
    },
    /// Documents with terms near each other.
    Interval {
        /// The field.
        field: String,
        /// How.
        source: Interval,
    },
}

/// A part of a wildcard's pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wild {
    /// This character.
    Char(char),
    /// One character, `?`.
    One,
    /// Any number of them, `*`.
    Many,
}

/// Where in a text something is.
#[derive(Clone, Debug, PartialEq)]
pub enum Interval {
    /// A term.
    Term(String),
    /// These, one after the other without anything between.
    Phrase(Vec<Interval>),
    /// These, in this order.
    Ordered(Vec<Interval>),
    /// These, in any order.
    Unordered(Vec<Interval>),
    /// One of these.
    Or(Vec<Interval>),
    /// No wider than so many tokens.
    MaxWidth(u32, Box<Interval>),
    /// With no more than so many tokens between its parts.
    MaxGaps(u32, Box<Interval>),
}

impl Interval {
    /// How many terms it has.
    fn terms(&self) -> usize {
        match self {
            Interval::Term(_) => 1,
            Interval::Phrase(parts)
            | Interval::Ordered(parts)
            | Interval::Unordered(parts)
            | Interval::Or(parts) => parts.iter().map(Interval::terms).sum::<usize>(),
            Interval::MaxWidth(_, part) | Interval::MaxGaps(_, part) => part.terms(),
        }
    }
}

/// More parts than so many no query has, as in Lucene.
pub const CLAUSES_MAX: usize = 1024;
/// A regular expression's programs are no longer than this, compiled, each.
const REGEX_PART_BYTES_MAX: usize = 256 << 10;
/// What a regular expression takes, compiled.
pub(crate) const REGEX_BYTES: usize = 2 * REGEX_PART_BYTES_MAX;
/// Lucene's fuzzy queries look for so many terms, the most alike.
pub const FUZZY_TERMS_MAX: usize = 50;

impl Query {
    /// How many queries it is made of.
    pub fn clauses(&self) -> usize {
        match self {
            Query::Boolean {
                must,
                should,
                must_not,
                ..
            } => {
                let parts = must.iter().chain(should).chain(must_not);
                parts.map(Query::clauses).sum::<usize>()
            }
            Query::Boost(inner, _) | Query::Constant(inner, _) => inner.clauses(),
            Query::Interval { source, .. } => source.terms(),
            Query::Facet { values, .. } => values.len().max(1),
            _ => 1,
        }
    }

    /// Any of these.
    pub fn any(should: Vec<Query>) -> Query {
        Query::Boolean {
            must: vec![],
            should,
            must_not: vec![],
            should_min: 0,
        }
    }

    /// All of these.
    pub fn all(must: Vec<Query>) -> Query {
        Query::Boolean {
            must,
            should: vec![],
            must_not: vec![],
            should_min: 0,
        }
    }
}

/// How much a word counts for a query, from 0 to 1; `None` when it is not one of the query's.
pub type Likeness = Box<dyn Fn(&str) -> Option<f32>>;

/// How much a word counts for a query of many words: a prefix, a pattern, an expression, a range or a fuzzy one. Words count
/// less only for a fuzzy one, the less the more edits they are away.
///
/// # Errors
/// [`Error::Regex`], and [`Error::TooMuch`] of expressions.
pub fn likeness_of(query: &Query, effort: &Effort) -> Result<Likeness, Error> {
    fn all(is_wanted: impl Fn(&str) -> bool + 'static) -> Likeness {
        Box::new(move |word| is_wanted(word).then_some(1.0))
    }
    Ok(match query.clone() {
        Query::Prefix { prefix, .. } => all(move |word| word.starts_with(&prefix)),
        Query::Wildcard { pattern, .. } => all(move |word| is_match(&pattern, word)),
        Query::Regex { pattern, .. } => {
            effort.take(REGEX_BYTES)?;
            let regex = whole(&pattern)?;
            all(move |word| regex.is_match(word))
        }
        Query::Fuzzy {
            term, edits: most, ..
        } => {
            let wanted: Vec<char> = term.chars().collect();
            Box::new(move |word| {
                let word: Vec<char> = word.chars().collect();
                let edits = edits(&wanted, &word, most)?;
                Some(likeness(wanted.len(), word.len(), edits)).filter(|likeness| *likeness > 0.0)
            })
        }
        Query::Terms { low, high, .. } => {
            all(move |word| (low.as_ref(), high.as_ref()).contains(&word.to_owned()))
        }
        Query::Boost(inner, _) | Query::Constant(inner, _) => likeness_of(&inner, effort)?,
        _ => Box::new(|_| None),
    })
}

/// How alike two words of so many characters are that are so many edits away from each other: 1 when they are the same, and
/// nothing or less when no more than the edits is in the shorter one.
pub(crate) fn likeness(a: usize, b: usize, edits: usize) -> f32 {
    match edits {
        0 => 1.0,
        n => 1.0 - n as f32 / a.min(b).max(1) as f32,
    }
}

/// An expression that matches whole words.
pub(crate) fn whole(pattern: &str) -> Result<Regex, Error> {
    let refused = |e: regex::Error| Error::Regex(e.to_string());
    // By itself too: parentheses that only match what stands around it are none.
    Regex::new(pattern).map_err(refused)?;
    RegexBuilder::new(&format!("^(?s:{pattern})$"))
        .size_limit(REGEX_PART_BYTES_MAX)
        .dfa_size_limit(REGEX_PART_BYTES_MAX)
        .build()
        .map_err(refused)
}

/// Whether a pattern matches all of a text.
pub(crate) fn is_match(pattern: &[Wild], text: &str) -> bool {
    let chars: Vec<char> = text.chars().collect();
    let (mut p, mut c) = (0, 0);
    // Where to go on after the last `*`: it takes one character more.
    let mut retry: Option<(usize, usize)> = None;
    loop {
        match pattern.get(p) {
            Some(Wild::Many) => {
                retry = Some((p + 1, c));
                p += 1;
                continue;
            }
            Some(Wild::One) if c < chars.len() => {
                (p, c) = (p + 1, c + 1);
                continue;
            }
            Some(Wild::Char(wanted)) if chars.get(c) == Some(wanted) => {
                (p, c) = (p + 1, c + 1);
                continue;
            }
            None if c == chars.len() => return true,
            _ => {}
        }
        match &mut retry {
            Some((after, taken)) if *taken < chars.len() => {
                *taken += 1;
                (p, c) = (*after, *taken);
            }
            _ => return false,
        }
    }
}

/// Edits between two terms, exchanges of neighbours among them; `None` when there are more than so many.
pub(crate) fn edits(a: &[char], b: &[char], max: usize) -> Option<usize> {
    if a.len().abs_diff(b.len()) > max {
        return None;
    }
    let width = b.len() + 1;
    let mut before_last: Vec<usize> = vec![0; width];
    let mut last: Vec<usize> = (0..width).collect();
    let mut row = vec![0; width];
    for i in 1..=a.len() {
        row[0] = i;
        let mut least = i;
        for j in 1..width {
            let same = a[i - 1] == b[j - 1];
            let mut n = (last[j - 1] + usize::from(!same))
                .min(last[j] + 1)
                .min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                n = n.min(before_last[j - 2] + 1);
            }
            row[j] = n;
            least = least.min(n);
        }
        if least > max {
            return None;
        }
        std::mem::swap(&mut before_last, &mut last);
        std::mem::swap(&mut last, &mut row);
    }
    Some(last[width - 1]).filter(|n| *n <= max)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> Vec<Wild> {
        let wild = |c| match c {
            '*' => Wild::Many,
            '?' => Wild::One,
            c => Wild::Char(c),
        };
        text.chars().map(wild).collect()
    }

    #[test]
    fn wildcards_match_whole_terms() {
        for (p, text, expected) in [
            ("a*", "a", true),
            ("a*", "abc", true),
            ("a*c", "abbc", true),
            ("a*c", "abcb", false),
            ("a?c", "aüc", true),
            ("a?c", "ac", false),
            ("*", "", true),
            ("a*b*c", "axbxbc", true),
            ("?", "", false),
        ] {
            assert_eq!(is_match(&pattern(p), text), expected, "{p} {text}");
        }
    }

    #[test]
    fn an_exchange_of_neighbours_is_one_edit() {
        let edits = |a: &str, b: &str| {
            let chars = |s: &str| s.chars().collect::<Vec<_>>();
            edits(&chars(a), &chars(b), 2)
        };
        assert_eq!(edits("quikc", "quick"), Some(1));
        assert_eq!(edits("foam", "roam"), Some(1));
        assert_eq!(edits("foam", "fox"), Some(2));
        assert_eq!(edits("foam", "fo"), Some(2));
        assert_eq!(edits("foam", "f"), None);
        assert_eq!(edits("", ""), Some(0));
    }
}
