//! What a text index is asked, and what it answers.

use std::ops::Bound;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use analysis::Flavour;
use analysis::query::{self as parsed, Clause, FieldType as ParsedType, Occur, ParseOptions};
use search::query::{Interval, Wild};
use search::{Effort, FieldType, Query, Range, Reader, Request, SortBy, SortKey, SortValue, Types};
use serde_json::{Map, Value};

use super::{TextIndex, bookmark};
use crate::Error;
use crate::database::Database;

/// Hits with their stored fields, or documents, of an answer are no longer than this together, for an answer is in memory as a whole; nor is what
/// finding them takes at a time.
pub const TEXT_ANSWER_BYTES_MAX: usize = 64 << 20;

/// How long a search may take, from when its turn comes.
const TIME_MAX: Duration = Duration::from_secs(30);

/// What is asked.
#[derive(Clone, Debug)]
pub struct TextQuery {
    /// The query, in Lucene's syntax.
    pub q: String,
    /// How numbers are written in it.
    pub locale: Option<String>,
    /// The order of hits; by score when it is empty.
    pub sort: Vec<SortKey>,
    /// Hits at most.
    pub limit: usize,
    /// Where to go on.
    pub bookmark: Option<String>,
    /// Fields of strings of which hits are counted by value.
    pub counts: Option<Vec<String>>,
    /// Fields of numbers of which hits are counted by range.
    pub ranges: Option<Vec<(String, Vec<Range>)>>,
    /// So many counts of each field, the greatest.
    pub top_n: usize,
    /// Only hits of this partition.
    pub partition: Option<String>,
}

/// What a hit is ordered by.
pub type TextOrder = Vec<SortValue>;

/// A document that was found.
#[derive(Clone, Debug)]
pub struct TextHit {
    /// Its id.
    pub id: String,
    /// What it is ordered by, the id among it.
    pub order: TextOrder,
    /// The stored fields.
    pub fields: Map<String, Value>,
}

/// Counts by field and name, the greatest first.
pub type TextCounts = Vec<(String, Vec<(String, u64)>)>;

/// What was found.
#[derive(Clone, Debug)]
pub struct TextAnswer {
    /// How many hits there are.
    pub total: u64,
    /// The first of them.
    pub hits: Vec<TextHit>,
    /// Where to go on.
    pub bookmark: String,
    /// Hits by value of each field that was to be counted.
    pub counts: Option<TextCounts>,
    /// Hits by range of each field that has ranges.
    pub ranges: Option<TextCounts>,
}

impl TextQuery {
    /// The request as an index with such fields understands it.
    fn request(&self, index: &TextIndex, types: &Types) -> Result<Request, Error> {
        let field_type = |field: &str| {
            Some(match types.get(field)? {
                FieldType::Double => ParsedType::Number,
                FieldType::String | FieldType::Text => ParsedType::Text,
            })
        };
        let options = ParseOptions {
            flavour: Flavour::Nouveau,
            analyzers: &index.analyzers,
            field_type: &field_type,
            locale: self.locale.as_deref().filter(|locale| !locale.is_empty()),
        };
        let query = parsed::parse(&self.q, &options);
        let query = query.map_err(|e| Error::BadRequest(e.to_string()))?;
        let by_score = SortKey {
            by: SortBy::Score,
            reversed: false,
        };
        Ok(Request {
            query: understood(query)?,
            partition: self.partition.clone(),
            sort: match self.sort.is_empty() {
                true => vec![by_score],
                false => self.sort.clone(),
            },
            limit: self.limit,
            after: match &self.bookmark {
                Some(bookmark) => bookmark::read(bookmark)?,
                None => None,
            },
            counts: self.counts.clone().unwrap_or_default(),
            ranges: self.ranges.clone().unwrap_or_default(),
        })
    }
}

impl Database {
    /// Asks a text index, as it is now. Blocks.
    ///
    /// # Errors
    /// [`Error::BadRequest`] and [`Error::Text`] for what cannot be asked.
    pub fn search_text(&self, index: &TextIndex, query: &TextQuery) -> Result<TextAnswer, Error> {
        self.if_live(search_now(index, query))
    }
}

fn search_now(index: &TextIndex, query: &TextQuery) -> Result<TextAnswer, Error> {
    let readers: Vec<Arc<Reader>> = index.shards.iter().map(|s| s.index.reader()).collect();
    let types = search::types_of(&readers);
    let request = query.request(index, &types)?;
    let effort = Rc::new(Effort::new(TIME_MAX, TEXT_ANSWER_BYTES_MAX));
    let answers = readers
        .iter()
        .map(|reader| reader.search(&request, &types, &effort));
    let answers = answers.collect::<Result<_, _>>()?;
    let found = search::merge(&request, answers);
    let bookmark = match (found.hits.last(), &query.bookmark) {
        (Some(hit), _) => bookmark::write(&hit.order),
        (None, Some(same)) => same.clone(),
        (None, None) => bookmark::write(&[]),
    };
    let mut hits = vec![];
    let mut bytes = 0;
    for hit in found.hits {
        let fields = readers[hit.shard].stored(hit.segment, hit.doc)?;
        bytes += hit.bytes() + fields.len();
        if bytes > TEXT_ANSWER_BYTES_MAX {
            return Err(Error::TextAnswerTooLong);
        }
        let fields = serde_json::from_str(&fields);
        let fields = fields.map_err(|e| search::Error::Engine(format!("stored fields: {e}")))?;
        hits.push(TextHit {
            id: hit.id,
            order: hit.order,
            fields,
        });
    }
    let counts = request.counts.iter().zip(found.counts);
    let counts = counts.map(|(field, counts)| (field.clone(), top(counts, query.top_n)));
    let ranges = request
        .ranges
        .iter()
        .zip(found.ranges)
        .map(|((field, ranges), counts)| {
            let labels = ranges.iter().map(|range| range.label.clone());
            (field.clone(), top(labels.zip(counts), query.top_n))
        });
    Ok(TextAnswer {
        total: found.total,
        hits,
        bookmark,
        counts: query.counts.is_some().then(|| counts.collect()),
        ranges: query.ranges.is_some().then(|| ranges.collect()),
    })
}

/// The greatest counts; of equal ones, the first by name.
fn top(counts: impl IntoIterator<Item = (String, u64)>, n: usize) -> Vec<(String, u64)> {
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    counts.truncate(n);
    counts
}

/// A parsed query as the engine has it.
fn understood(query: parsed::Query) -> Result<Query, Error> {
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
        } => Query::Terms {
            field,
            low: lower,
            high: upper,
        },
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
        } => boolean(clauses, minimum_should_match as usize)?,
        parsed::Query::Intervals { field, interval } => Query::Interval {
            field,
            source: interval_of(interval)?,
        },
        parsed::Query::Boost { query, boost } => Query::Boost(Box::new(understood(*query)?), boost),
    })
}

/// The places of a phrase, each with the words of which one is to be there.
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

fn wilds_of(pattern: &str) -> Vec<Wild> {
    let wild = |part| match part {
        parsed::wildcard::Part::Any => Wild::Many,
        parsed::wildcard::Part::One => Wild::One,
        parsed::wildcard::Part::Literal(c) => Wild::Char(c),
    };
    parsed::wildcard::parts(pattern).map(wild).collect()
}

fn boolean(clauses: Vec<Clause>, should_min: usize) -> Result<Query, Error> {
    let (mut must, mut should, mut must_not) = (vec![], vec![], vec![]);
    for clause in clauses {
        let query = understood(clause.query)?;
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

/// Lucene's regular expressions as ours: `^` and `$` are characters there, `@` is any text, `#` none, quotes hold text as it is.
/// Complements, intersections and ranges of numbers are not there.
fn regex_of(pattern: &str) -> Result<String, Error> {
    let mut out = String::new();
    let mut chars = pattern.chars();
    let mut in_class = false;
    while let Some(c) = chars.next() {
        match c {
            '\\' => {
                let next = chars.next().unwrap_or('\\');
                match next {
                    'd' | 'D' | 's' | 'S' | 'w' | 'W' => out.extend(['\\', next]),
                    next => push_literal(next, &mut out),
                }
            }
            '[' if !in_class => {
                in_class = true;
                out.push('[');
            }
            ']' if in_class => {
                in_class = false;
                out.push(']');
            }
            '[' | '&' | '~' if in_class => out.extend(['\\', c]),
            _ if in_class => out.push(c),
            '^' | '$' => out.extend(['\\', c]),
            '@' => out.push_str(".*"),
            '#' => out.push_str("[^\\s\\S]"),
            '"' => {
                for c in chars.by_ref().take_while(|c| *c != '"') {
                    push_literal(c, &mut out);
                }
            }
            '~' | '&' | '<' => {
                let reason = format!("regular expressions with {c} are not supported");
                return Err(Error::BadRequest(reason));
            }
            c => out.push(c),
        }
    }
    Ok(out)
}

fn push_literal(c: char, out: &mut String) {
    if c.is_ascii_punctuation() {
        out.push('\\');
    }
    out.push(c);
}

/// The bounds of a range of Nouveau, each inclusive unless it says otherwise.
pub fn bounds(
    min: Option<f64>,
    min_inclusive: bool,
    max: Option<f64>,
    max_inclusive: bool,
) -> (Bound<f64>, Bound<f64>) {
    let bound = |value, inclusive| match (value, inclusive) {
        (None, _) => Bound::Unbounded,
        (Some(value), true) => Bound::Included(value),
        (Some(value), false) => Bound::Excluded(value),
    };
    (bound(min, min_inclusive), bound(max, max_inclusive))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lucenes_regular_expressions_are_read() {
        for (theirs, ours) in [
            ("fox(es)?", "fox(es)?"),
            ("^a$", r"\^a\$"),
            ("a@", "a.*"),
            (r"a\.b", r"a\.b"),
            ("\"a.b\"c", r"a\.bc"),
            ("[fr]oam", "[fr]oam"),
            (r"\w+", r"\w+"),
        ] {
            assert_eq!(regex_of(theirs).unwrap(), ours);
        }
        for refused in ["a&b", "~a", "<1-5>"] {
            assert!(regex_of(refused).is_err(), "{refused}");
        }
    }

    #[test]
    fn the_greatest_counts_come_first() {
        let counts = [("z", 2), ("y", 4), ("x", 4)].map(|(s, n)| (s.to_owned(), n));
        let names: Vec<_> = top(counts, 2).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["x", "y"]);
    }
}
