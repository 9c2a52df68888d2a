//! Lucene's queries, after analysis.

use std::ops::{Bound, RangeBounds};
use std::rc::Rc;

use crate::expression::WholeRegex;
use crate::{Effort, Error};

/// A query. Fields are named as in `index`, or `_id`, or `_partition`.
#[derive(Clone, Debug, PartialEq)]
pub enum Query {
    /// All documents.
    All,
    /// No documents.
    None,
    /// Documents that contain a term.
    Term {
        /// The field.
        field: String,
        /// The term as it was indexed.
        term: String,
    },
    /// Documents that contain terms at given positions.
    Phrase {
        /// The field.
        field: String,
        /// Each position with its alternative terms.
        terms: Vec<(u32, Vec<String>)>,
        /// The maximum total displacement of the terms.
        slop: u32,
    },
    /// Documents with a term that starts with a prefix.
    Prefix {
        /// The field.
        field: String,
        /// The prefix.
        prefix: String,
    },
    /// Documents with a term that matches a pattern.
    Wildcard {
        /// The field.
        field: String,
        /// `*`, `?` and literal characters.
        pattern: Vec<WildcardToken>,
    },
    /// Documents with a term that matches a regular expression as a whole.
    Regex {
        /// The field.
        field: String,
        /// In the syntax of the `regex` crate.
        pattern: String,
    },
    /// Documents with a similar term.
    Fuzzy {
        /// The field.
        field: String,
        /// The term.
        term: String,
        /// The maximum number of edits: insertions, deletions, substitutions and transpositions.
        edits: usize,
        /// The number of leading characters that must be equal.
        prefix: usize,
    },
    /// Documents with a term in a range.
    Terms {
        /// The field.
        field: String,
        /// The lower bound.
        low: Bound<String>,
        /// The upper bound.
        high: Bound<String>,
    },
    /// Documents with a number in a range.
    Numbers {
        /// The field.
        field: String,
        /// The lower bound.
        low: Bound<f64>,
        /// The upper bound.
        high: Bound<f64>,
    },
    /// A boolean combination of queries.
    Boolean {
        /// All of these must match.
        must: Vec<Query>,
        /// At least `should_min` of these must match; one, when `must` is empty.
        should: Vec<Query>,
        /// None of these may match.
        must_not: Vec<Query>,
        /// The minimum number of `should` that must match.
        should_min: usize,
    },
    /// Multiplies the score of a query.
    Boost(Box<Query>, f32),
    /// Replaces the score of a query by a constant.
    Constant(Box<Query>, f32),
    /// Documents with one of these facets, or with any facet when the list is empty; with Nouveau's
    /// similarity, with one of these exact strings. They score 0.
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
        /// The interval source.
        source: Interval,
    },
}

/// A token of a wildcard pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WildcardToken {
    /// A literal character.
    Char(char),
    /// `?`: one character.
    One,
    /// `*`: any number of characters.
    Many,
}

/// A source of intervals: ranges of token positions.
#[derive(Clone, Debug, PartialEq)]
pub enum Interval {
    /// A term.
    Term(String),
    /// These, adjacent and in order.
    Phrase(Vec<Interval>),
    /// These, in this order.
    Ordered(Vec<Interval>),
    /// These, in any order.
    Unordered(Vec<Interval>),
    /// Any of these.
    Or(Vec<Interval>),
    /// No wider than this number of tokens.
    MaxWidth(u32, Box<Interval>),
    /// With at most this number of tokens between its parts.
    MaxGaps(u32, Box<Interval>),
}

impl Interval {
    /// Returns the number of terms.
    pub(crate) fn terms(&self) -> usize {
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

/// The maximum number of clauses of a query, as in Lucene.
pub const CLAUSES_MAX: usize = 1024;
/// The maximum number of terms that a fuzzy query expands to, the most similar ones, as in Lucene.
pub const FUZZY_TERMS_MAX: usize = 50;

impl Query {
    /// Returns the number of clauses.
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

    /// Matches any of these.
    pub fn any(should: Vec<Query>) -> Query {
        Query::Boolean {
            must: vec![],
            should,
            must_not: vec![],
            should_min: 0,
        }
    }

    /// Matches all of these.
    pub fn all(must: Vec<Query>) -> Query {
        Query::Boolean {
            must,
            should: vec![],
            must_not: vec![],
            should_min: 0,
        }
    }
}

/// Returns the weight of a word for a query, from 0 to 1; `None` when the query does not match it.
pub type WordWeight = Box<dyn Fn(&str) -> Option<f32>>;

/// Returns the weight function of a multi-term query: a prefix, a pattern, an expression, a range
/// or a fuzzy one. Only fuzzy queries weigh words less, the less the more edits away they are.
/// Patterns and expressions count steps of `effort`, and match nothing when its time is over.
///
/// # Errors
/// [`Error::Regex`], or [`Error::TooMuch`] or [`Error::TooLong`] for expressions.
pub fn likeness_of(query: &Query, effort: &Rc<Effort>) -> Result<WordWeight, Error> {
    fn all(is_wanted: impl Fn(&str) -> bool + 'static) -> WordWeight {
        Box::new(move |word| is_wanted(word).then_some(1.0))
    }
    Ok(match query.clone() {
        Query::Prefix { prefix, .. } => all(move |word| word.starts_with(&prefix)),
        Query::Wildcard { pattern, .. } => {
            let effort = Rc::clone(effort);
            all(move |word| is_match(&pattern, word, &effort))
        }
        Query::Regex { pattern, .. } => {
            let regex = WholeRegex::new(&pattern, effort)?;
            let effort = Rc::clone(effort);
            all(move |word| regex.is_match(word, &effort))
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

/// Returns the similarity of two words of `a` and `b` characters that are `edits` edits apart: 1
/// when they are equal, and 0 or less when the shorter one is no longer than the edits.
pub(crate) fn likeness(a: usize, b: usize, edits: usize) -> f32 {
    match edits {
        0 => 1.0,
        n => 1.0 - n as f32 / a.min(b).max(1) as f32,
    }
}

/// Comparisons of a pattern with a word between two stops.
const COMPARISONS: usize = 1024;

/// Returns whether a pattern matches a whole text; false when time runs out. Its comparisons are up
/// to the product of both lengths.
pub(crate) fn is_match(pattern: &[WildcardToken], text: &str, effort: &Effort) -> bool {
    let chars: Vec<char> = text.chars().collect();
    let (mut p, mut c) = (0, 0);
    let mut comparisons = 0;
    // Where to resume after the last `*`, which then takes one more character.
    let mut retry: Option<(usize, usize)> = None;
    loop {
        comparisons += 1;
        if comparisons == COMPARISONS {
            comparisons = 0;
            if !effort.spend(COMPARISONS) {
                return false;
            }
        }
        match pattern.get(p) {
            Some(WildcardToken::Many) => {
                retry = Some((p + 1, c));
                p += 1;
                continue;
            }
            Some(WildcardToken::One) if c < chars.len() => {
                (p, c) = (p + 1, c + 1);
                continue;
            }
            Some(WildcardToken::Char(wanted)) if chars.get(c) == Some(wanted) => {
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

/// Returns the number of edits between two terms, transpositions included; `None` when there are
/// more than `max`.
///
/// Beginnings whose lengths differ by more than `max` are further away than that: for each
/// character of `a`, only `2 * max + 1` places in `b` count.
pub(crate) fn edits<C: PartialEq>(a: &[C], b: &[C], max: usize) -> Option<usize> {
    if a.len().abs_diff(b.len()) > max {
        return None;
    }
    let max = max.min(a.len().max(b.len()));
    let far = max + 1;
    let width = 2 * max + 1;
    // At `k`: the edits between the first `i` characters of `a` and the first `i + k - max` of `b`,
    // for the last `i` and those before.
    let mut before_last = vec![far; width];
    let mut last: Vec<usize> = (0..width)
        .map(|k| match k.checked_sub(max) {
            Some(j) if j <= b.len() => j,
            _ => far,
        })
        .collect();
    let mut row = vec![far; width];
    for i in 1..=a.len() {
        for k in 0..width {
            row[k] = match (i + k).checked_sub(max) {
                Some(0) => i,
                Some(j) if j <= b.len() => {
                    let same = a[i - 1] == b[j - 1];
                    let mut n = last[k] + usize::from(!same);
                    if k > 0 {
                        n = n.min(row[k - 1] + 1);
                    }
                    if k + 1 < width {
                        n = n.min(last[k + 1] + 1);
                    }
                    if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                        n = n.min(before_last[k] + 1);
                    }
                    n
                }
                _ => far,
            };
        }
        if row.iter().all(|n| *n > max) {
            return None;
        }
        std::mem::swap(&mut before_last, &mut last);
        std::mem::swap(&mut last, &mut row);
    }
    let end = (b.len() + max).checked_sub(a.len())?;
    last.get(end).copied().filter(|n| *n <= max)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    fn pattern(text: &str) -> Vec<WildcardToken> {
        let wild = |c| match c {
            '*' => WildcardToken::Many,
            '?' => WildcardToken::One,
            c => WildcardToken::Char(c),
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
            let matches = is_match(&pattern(p), text, &Effort::default());
            assert_eq!(matches, expected, "{p} {text}");
        }
    }

    /// Returns the edits between two terms by the whole matrix of their beginnings.
    fn edits_of_all(a: &[char], b: &[char]) -> usize {
        let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
        for i in 0..=a.len() {
            for j in 0..=b.len() {
                if i == 0 || j == 0 {
                    rows[i][j] = i + j;
                    continue;
                }
                let same = a[i - 1] == b[j - 1];
                let mut n = rows[i - 1][j - 1] + usize::from(!same);
                n = n.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
                if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                    n = n.min(rows[i - 2][j - 2] + 1);
                }
                rows[i][j] = n;
            }
        }
        rows[a.len()][b.len()]
    }

    proptest! {
        #[test]
        fn edits_are_those_of_the_whole_matrix(a in "[abc]{0,8}", b in "[abc]{0,8}", max in 0..10_usize) {
            let chars = |s: &str| s.chars().collect::<Vec<_>>();
            let (a, b) = (chars(&a), chars(&b));
            let expected = Some(edits_of_all(&a, &b)).filter(|n| *n <= max);
            prop_assert_eq!(edits(&a, &b, max), expected);
        }
    }

    /// A character that counts how often one is compared with another.
    struct Counted<'a>(char, &'a Cell<usize>);

    impl PartialEq for Counted<'_> {
        fn eq(&self, other: &Self) -> bool {
            self.1.set(self.1.get() + 1);
            self.0 == other.0
        }
    }

    #[test]
    fn comparisons_of_terms_are_linear_in_their_length() {
        for length in [100, 2_000] {
            for (first, second, expected) in [("xyz", "xzy", Some(1)), ("xyz", "123", None)] {
                let comparisons = Cell::new(0);
                let long = |end: &str| -> Vec<Counted<'_>> {
                    let chars = std::iter::repeat_n('a', length).chain(end.chars());
                    chars.map(|c| Counted(c, &comparisons)).collect()
                };
                assert_eq!(edits(&long(first), &long(second), 2), expected);
                let made = comparisons.get();
                assert!(made <= 20 * (length + 3), "{made} for {length}");
            }
        }
    }

    #[test]
    fn a_pattern_stops_within_a_word() {
        let wanted = pattern(&format!("*{}b", "a".repeat(2_000)));
        let over = Effort::new(Duration::ZERO, usize::MAX);
        assert!(!is_match(
            &wanted,
            &format!("{}b", "a".repeat(4_000)),
            &over
        ));
        assert!(matches!(over.step(), Err(Error::TooLong)));
        let over = Rc::new(Effort::new(Duration::ZERO, usize::MAX));
        let field = "t".to_owned();
        let query = Query::Wildcard {
            field,
            pattern: wanted,
        };
        let weight = likeness_of(&query, &over).unwrap();
        assert_eq!(weight(&"a".repeat(4_000)), None);
        assert!(matches!(over.step(), Err(Error::TooLong)));
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
