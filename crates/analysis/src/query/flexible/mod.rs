//! Lucene 9's flexible parser, as Nouveau uses it: [`syntax`] parses the text into a tree, this
//! module makes a query of it as Lucene's chain of processors and builders does.
//!
//! - A field of numbers takes numbers only, also where the text looks like a pattern or a phrase.
//! - All clauses that no parentheses separate become clauses of one query: those next to an AND are required, the others
//!   are not. So `honey OR quick AND red` requires quick and red, as in CouchDB.
//! - Clauses that analyzers leave empty are dropped.

mod lexer;
mod locale;
mod syntax;

use super::field;
use super::{
    Clause, DEFAULT_FIELD, Error, FieldType, Interval, MAX_CLAUSES, Occur, ParseOptions, Query,
};
use crate::Analyzer;
use locale::Numbers;
use std::ops::Bound;
use syntax::{QueryNode, Spoken, Text};

/// The most edits that a fuzzy query may have.
const MAX_EDITS: f32 = 2.0;

pub(super) fn parse(text: &str, options: &ParseOptions<'_>) -> Result<Query, Error> {
    let tree = syntax::parse(text, DEFAULT_FIELD)?;
    let mut builder = Builder {
        options,
        numbers: Numbers::of(options.locale),
        words_left: MAX_CLAUSES,
    };
    // A sign before the only clause has no effect; a negation is a clause of its own and gets here
    // as such.
    let tree = if let QueryNode::Modified { node, .. } = tree {
        *node
    } else {
        tree
    };
    Ok(builder.query(tree)?.unwrap_or(Query::MatchNone))
}

struct Builder<'a> {
    options: &'a ParseOptions<'a>,
    numbers: Numbers,
    /// Words that the query may still have.
    words_left: usize,
}

impl Builder<'_> {
    /// Returns the query of a part; `None` when nothing is left of it. Recurses as deep as the
    /// text's parentheses.
    fn query(&mut self, node: QueryNode) -> Result<Option<Query>, Error> {
        Ok(match node {
            QueryNode::Group(node) => self.query(*node)?,
            QueryNode::Modified { node, .. } => self.query(*node)?,
            QueryNode::Boost { node, boost } => self.query(*node)?.map(|query| Query::Boost {
                query: Box::new(query),
                boost,
            }),
            QueryNode::Clauses { .. } => self.boolean(node)?,
            QueryNode::MinShouldMatch { node, least } => match self.query(*node)? {
                Some(Query::Boolean { clauses, .. }) => Some(Query::Boolean {
                    clauses,
                    minimum_should_match: least,
                }),
                None => None,
                Some(_) => {
                    return Err(Error::NotAllowed(
                        "@ is for groups of several clauses".to_owned(),
                    ));
                }
            },
            leaf => self.leaf(leaf)?,
        })
    }

    /// All clauses that no parentheses separate, as one query.
    fn boolean(&mut self, node: QueryNode) -> Result<Option<Query>, Error> {
        let mut flat = Vec::new();
        flatten(node, false, &mut flat);
        let mut clauses = Vec::new();
        let mut is_explicit = false;
        for (node, is_required) in flat {
            let (occur, node, is_modified) = match node {
                QueryNode::Modified { is_required, node } => (
                    if is_required {
                        Occur::Must
                    } else {
                        Occur::MustNot
                    },
                    *node,
                    true,
                ),
                node => (
                    if is_required {
                        Occur::Must
                    } else {
                        Occur::Should
                    },
                    node,
                    false,
                ),
            };
            if let Some(query) = self.query(node)? {
                if clauses.len() == MAX_CLAUSES {
                    return Err(Error::TooManyClauses);
                }
                is_explicit = is_modified;
                clauses.push(Clause { occur, query });
            }
        }
        Ok(match clauses.len() {
            0 => None,
            // A single clause is the query, unless it has a sign.
            1 if !is_explicit => clauses.pop().map(|clause| clause.query),
            _ => Some(Query::Boolean {
                clauses,
                minimum_should_match: 0,
            }),
        })
    }

    fn analyzer(&self, field: &str) -> &Analyzer {
        self.options.analyzers.of(field)
    }

    fn is_number(&self, field: &str) -> bool {
        (self.options.field_type)(field) == Some(FieldType::Number)
    }

    fn leaf(&mut self, node: QueryNode) -> Result<Option<Query>, Error> {
        match node {
            QueryNode::Term { field, text } if text.is_wild && !text.characters.is_empty() => {
                self.wild(field, &text.characters).map(Some)
            }
            QueryNode::Fuzzy { field, text, .. } if text.is_wild => {
                self.wild(field, &text.characters).map(Some)
            }
            QueryNode::Term { field, text }
            | QueryNode::Quoted { field, text, .. }
            | QueryNode::Fuzzy { field, text, .. }
                if self.is_number(&field) =>
            {
                let number = self.number(&field, &text.characters)?;
                Ok(Some(Query::NumberRange {
                    field,
                    lower: Bound::Included(number),
                    upper: Bound::Included(number),
                }))
            }
            QueryNode::Term { field, text } => self.words(&field, &text, false, 0),
            QueryNode::Quoted { field, text, slop } => self.words(&field, &text, true, slop),
            QueryNode::Fuzzy {
                field,
                text,
                similarity,
            } => {
                let text = self.analyzer(&field).normalize(&text.characters);
                let max_edits = edits(similarity, &text);
                Ok(Some(Query::Fuzzy {
                    field,
                    text,
                    max_edits,
                }))
            }
            QueryNode::Regexp { field, pattern } => {
                let pattern = self.analyzer(&field).normalize(&pattern);
                Ok(Some(Query::Regexp { field, pattern }))
            }
            QueryNode::Range {
                field,
                lower,
                upper,
                includes_lower,
                includes_upper,
            } => self
                .range(field, [(lower, includes_lower), (upper, includes_upper)])
                .map(Some),
            QueryNode::Intervals { field, interval } => {
                let interval = self.interval(&field, interval)?;
                Ok(Some(Query::Intervals { field, interval }))
            }
            _ => unreachable!("the other nodes are not leaves"),
        }
    }

    fn words(
        &mut self,
        field: &str,
        text: &Text,
        is_quoted: bool,
        slop: u32,
    ) -> Result<Option<Query>, Error> {
        field::query(
            self.options,
            field,
            &text.characters,
            is_quoted,
            slop,
            &mut self.words_left,
        )
    }

    fn number(&self, field: &str, text: &str) -> Result<f64, Error> {
        if text.is_empty() {
            return Err(Error::NotAllowed(format!(
                "Field \"{field}\" is numeric and cannot have an empty value."
            )));
        }
        self.numbers.parse(text).ok_or_else(|| {
            Error::NotAllowed(format!(
                "Could not parse text \"{text}\" using java.text.DecimalFormat"
            ))
        })
    }

    /// Returns a text with `*` or `?` in it.
    fn wild(&self, field: String, text: &str) -> Result<Query, Error> {
        if field == "*" && text == "*" {
            return Ok(Query::MatchAll);
        }
        let pattern = normalize_chunks(self.analyzer(&field), text);
        if self.is_number(&field) {
            let number = self.number(&field, &pattern)?;
            return Ok(Query::NumberRange {
                field,
                lower: Bound::Included(number),
                upper: Bound::Included(number),
            });
        }
        if let Some(prefix) = pattern
            .strip_suffix('*')
            .filter(|prefix| !prefix.is_empty() && !prefix.contains(['*', '?']))
        {
            return Ok(Query::Prefix {
                field,
                prefix: prefix.to_owned(),
            });
        }
        if pattern.starts_with(['*', '?']) {
            return Err(Error::NotAllowed(format!(
                "Leading wildcard is not allowed: {field}:{pattern}"
            )));
        }
        Ok(Query::Wildcard { field, pattern })
    }

    fn range(&self, field: String, ends: [(Text, bool); 2]) -> Result<Query, Error> {
        let is_open = ends
            .each_ref()
            .map(|(text, _)| text.is_open() || text.characters.is_empty());
        let [(lower, includes_lower), (upper, includes_upper)] = ends;
        if self.is_number(&field) {
            let number = |text: &Text, is_open: bool, infinity: f64| {
                if is_open {
                    Ok(infinity)
                } else {
                    self.number(&field, &text.characters)
                }
            };
            let lower = bound(
                number(&lower, is_open[0], f64::NEG_INFINITY)?,
                includes_lower,
            );
            let upper = bound(number(&upper, is_open[1], f64::INFINITY)?, includes_upper);
            return Ok(Query::NumberRange {
                field,
                lower,
                upper,
            });
        }
        let analyzer = self.analyzer(&field);
        let word = |text: &Text, is_open: bool, is_inclusive: bool| {
            // A bound that normalizes to nothing is open, too.
            let text = if is_open {
                String::new()
            } else {
                analyzer.normalize(&text.characters)
            };
            if text.is_empty() {
                Bound::Unbounded
            } else {
                bound(text, is_inclusive)
            }
        };
        let (lower, upper) = (
            word(&lower, is_open[0], includes_lower),
            word(&upper, is_open[1], includes_upper),
        );
        Ok(Query::Range {
            field,
            lower,
            upper,
        })
    }

    fn interval(&mut self, field: &str, spoken: Spoken) -> Result<Interval, Error> {
        Ok(match spoken {
            Spoken::Text(text) => {
                let tokens = field::words(self.options, field, &text, &mut self.words_left)?;
                let mut words: Vec<_> = tokens
                    .into_iter()
                    .map(|token| Interval::Term(token.text))
                    .collect();
                match words.len() {
                    0 => Interval::Nothing,
                    1 => words.remove(0),
                    _ => Interval::Phrase(words),
                }
            }
            Spoken::Wildcard(pattern) => Interval::Wildcard(pattern),
            Spoken::Fuzzy { text, max_edits } => Interval::Fuzzy {
                text: self.analyzer(field).normalize(&text),
                max_edits,
            },
            Spoken::Many { make, parts } => make(self.intervals(field, parts)?),
            Spoken::Numbered {
                make,
                number,
                parts,
            } => make(number, self.intervals(field, parts)?),
            Spoken::Extend {
                part,
                before,
                after,
            } => Interval::Extend {
                interval: Box::new(self.interval(field, *part)?),
                before,
                after,
            },
            Spoken::Related { relation, parts } => {
                let [interval, other] = *parts;
                Interval::Related {
                    relation,
                    interval: Box::new(self.interval(field, interval)?),
                    other: Box::new(self.interval(field, other)?),
                }
            }
        })
    }

    fn intervals(&mut self, field: &str, parts: Vec<Spoken>) -> Result<Vec<Interval>, Error> {
        parts
            .into_iter()
            .map(|part| self.interval(field, part))
            .collect()
    }
}

/// Flattens the clauses below, with whether an AND is next to them.
fn flatten(node: QueryNode, is_required: bool, flat: &mut Vec<(QueryNode, bool)>) {
    match node {
        QueryNode::Clauses { is_and, clauses } => clauses
            .into_iter()
            .for_each(|clause| flatten(clause, is_and, flat)),
        node => flat.push((node, is_required)),
    }
}

fn bound<T>(end: T, is_inclusive: bool) -> Bound<T> {
    if is_inclusive {
        Bound::Included(end)
    } else {
        Bound::Excluded(end)
    }
}

/// Lucene's `floatToEdits`: below one it is a similarity.
fn edits(similarity: f32, text: &str) -> u8 {
    let edits = if similarity >= 1.0 {
        similarity
    } else if similarity == 0.0 {
        0.0
    } else {
        ((1.0 - f64::from(similarity)) * text.chars().count() as f64) as f32
    };
    edits.min(MAX_EDITS) as u8
}

/// Normalizes the text between wildcards.
fn normalize_chunks(analyzer: &Analyzer, text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for (at, part) in text.split_inclusive(['*', '?']).enumerate() {
        let chunk = part.trim_end_matches(['*', '?']);
        if !chunk.is_empty() || (at > 0 && part.is_empty()) {
            out.push_str(&analyzer.normalize(chunk));
        }
        out.push_str(&part[chunk.len()..]);
    }
    out
}

#[cfg(test)]
mod tests {
    use crate::query::{FieldType, ParseOptions, parse};
    use crate::{FieldAnalyzers, Flavour};

    fn shown(text: &str) -> String {
        let analyzers = FieldAnalyzers::parse(Flavour::Nouveau, None).unwrap();
        let field_type = |field: &str| (field == "n").then_some(FieldType::Number);
        let options = ParseOptions {
            field_type: &field_type,
            ..ParseOptions::new(Flavour::Nouveau, &analyzers)
        };
        match parse(text, &options) {
            Ok(query) => query.to_lucene_string(Flavour::Nouveau),
            Err(error) => format!("! {error}"),
        }
    }

    #[test]
    fn clauses_without_parentheses_are_those_of_one_query() {
        assert_eq!(
            shown("honey OR quick AND red"),
            "default:honey +default:quick +default:red"
        );
        assert_eq!(
            shown("(honey OR quick) AND red"),
            "+(default:honey default:quick) +default:red"
        );
        assert_eq!(shown("-fox"), "-default:fox");
        assert_eq!(shown("+fox"), "default:fox");
        assert_eq!(shown("*:* -fox"), "*:* -default:fox");
    }

    #[test]
    fn fields_of_numbers_take_numbers_only() {
        assert_eq!(shown("n:5x"), "n:[5.0 TO 5.0]");
        assert_eq!(shown("n:5*"), "n:[5.0 TO 5.0]");
        assert_eq!(shown("n:\"5\""), "n:[5.0 TO 5.0]");
        assert_eq!(shown("n:[* TO 0]"), "n:[-Infinity TO 0.0]");
        assert_eq!(shown("n>5"), "n:[5.000000000000001 TO Infinity]");
        assert_eq!(
            shown("n:hello"),
            "! Could not parse text \"hello\" using java.text.DecimalFormat"
        );
        assert_eq!(shown("m:5"), "m:5");
    }

    #[test]
    fn leading_wildcards_are_refused() {
        assert_eq!(
            shown("author:?ob"),
            "! Leading wildcard is not allowed: author:?ob"
        );
        assert_eq!(shown("*"), "! Leading wildcard is not allowed: default:*");
        assert_eq!(shown("Run*"), "default:run*");
    }

    #[test]
    fn deep_queries_are_refused_and_long_ones_too() {
        assert!(shown(&"(".repeat(10_000)).starts_with("! the query is nested deeper"));
        assert!(shown(&"fn:or(".repeat(5_000)).starts_with("! the query is nested deeper"));
        assert!(shown(&"(".repeat(100_000)).starts_with("! maxClauseCount"));
        assert!(shown(&"x ".repeat(1025)).starts_with("! maxClauseCount"));
    }

    #[test]
    fn words_of_phrases_groups_and_intervals_are_counted_together() {
        let phrase = |words: usize| format!("\"{}\"", "ab ".repeat(words));
        assert!(!shown(&phrase(1024)).starts_with("! "));
        for text in [
            phrase(1025),
            format!("{0} {0}", phrase(513)),
            "\u{4e2d}".repeat(300_000),
            format!("fn:ordered({0} {0})", phrase(513)),
            format!("({0}) ({0})", "x* ".repeat(513)),
        ] {
            assert!(shown(&text).starts_with("! maxClauseCount"));
        }
    }

    #[test]
    fn long_names_of_fields_are_not_repeated_in_clauses() {
        let grouped = |length: usize| shown(&format!("{}:(x y)", "f".repeat(length)));
        assert!(!grouped(4096).starts_with("! "));
        assert!(grouped(4097).starts_with("! the query has a field name of more than"));
    }
}
