//! Queries: [`parse`] parses both query languages into one [`Query`].
//!
//! `_search` has Lucene 4.6's classic parser as Clouseau uses it, `_nouveau` has Lucene 9's
//! flexible one. [`ParseOptions::flavour`] chooses one. Notes for an engine that runs them:
//!
//! - All terms went through their field's analyzer; those of prefixes, wildcards, ranges and fuzzy queries through
//!   [`crate::Analyzer::normalize`]. They are compared with indexed terms as they are.
//! - Numbers are decided here: a [`Query::NumberRange`] matches a field's numbers, everything else its words.
//! - A [`Query::Boolean`] without required or optional clauses matches nothing, as in Lucene; so does an empty one.
//! - [`Query::Wildcard`] and [`Query::Regexp`] hold Lucene's own syntax, with its escapes: [`wildcard`] parses the former.

mod classic;
mod display;
mod error;
mod field;
mod flexible;
mod interval;
mod number;
mod scan;
mod typing;
pub mod wildcard;

pub use error::Error;
pub use interval::{Interval, Relation};
pub use typing::as_you_type;

use crate::{FieldAnalyzers, Flavour};
use std::ops::Bound;

/// The most clauses of one query, Lucene's own limit; also the most words, those of phrases
/// included.
pub const MAX_CLAUSES: usize = 1024;

/// The most bytes of a field's name: each clause has it.
pub const MAX_FIELD_LEN: usize = 4096;

/// The most parentheses within each other.
pub const MAX_DEPTH: usize = 100;

/// The most bytes of a query text.
pub const MAX_QUERY_LEN: usize = 1024 * 1024;

/// The role of a clause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Occur {
    /// `+`: documents have it.
    Must,
    /// Documents that have it score more; if no clause is required, they have one of these.
    Should,
    /// `-`: documents do not have it.
    MustNot,
}

/// A part of a [`Query::Boolean`].
#[derive(Debug, Clone, PartialEq)]
pub struct Clause {
    /// The role.
    pub occur: Occur,
    /// The clause's query.
    pub query: Query,
}

/// A parsed query.
#[derive(Debug, Clone, PartialEq)]
pub enum Query {
    /// Documents whose `field` has the word.
    Term {
        /// The field.
        field: String,
        /// The word, analyzed.
        text: String,
    },
    /// Documents whose `field` has the words at these positions, counted from anywhere.
    ///
    /// Several words at one position are alternatives. `slop` is the total number of positions that
    /// words may be moved, as in Lucene's sloppy phrases; 0 requires exactly this order.
    Phrase {
        /// The field.
        field: String,
        /// The words and their places, in ascending order of places. Places may have gaps.
        terms: Vec<PhraseTerm>,
        /// Maximum distance of the words.
        slop: u32,
    },
    /// Words with this prefix.
    Prefix {
        /// The field.
        field: String,
        /// The prefix, without a `*`.
        prefix: String,
    },
    /// Words that match a pattern of `*` (any characters), `?` (one) and `\` (the next one is
    /// itself).
    Wildcard {
        /// The field.
        field: String,
        /// The pattern.
        pattern: String,
    },
    /// Words that match one of Lucene's regular expressions as a whole.
    Regexp {
        /// The field.
        field: String,
        /// The expression.
        pattern: String,
    },
    /// Words at most `max_edits` insertions, deletions, replacements or swaps of neighbours away.
    Fuzzy {
        /// The field.
        field: String,
        /// The word.
        text: String,
        /// 0, 1 or 2.
        max_edits: u8,
    },
    /// Words from one to the other, by their bytes.
    Range {
        /// The field.
        field: String,
        /// The least.
        lower: Bound<String>,
        /// The greatest.
        upper: Bound<String>,
    },
    /// Numbers from one to the other. One number is a range from it to it.
    NumberRange {
        /// The field.
        field: String,
        /// The least.
        lower: Bound<f64>,
        /// The greatest.
        upper: Bound<f64>,
    },
    /// Several clauses.
    Boolean {
        /// At most [`MAX_CLAUSES`].
        clauses: Vec<Clause>,
        /// Minimum number of matching optional clauses; 0 by default.
        minimum_should_match: u32,
    },
    /// The same documents with another weight.
    Boost {
        /// The boosted query.
        query: Box<Query>,
        /// The factor of its score.
        boost: f32,
    },
    /// Documents whose `field` has words in some order and distance; Nouveau's `fn:ordered(…)` and
    /// the like.
    Intervals {
        /// The field.
        field: String,
        /// The interval to match.
        interval: Interval,
    },
    /// All documents.
    MatchAll,
    /// None.
    MatchNone,
}

/// A word of a phrase.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PhraseTerm {
    /// The word, analyzed.
    pub text: String,
    /// Its place.
    pub position: u32,
}

/// The type of a field; only for Nouveau's parser.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldType {
    /// Words and texts.
    Text,
    /// Numbers.
    Number,
}

/// Options of parsing a query text.
pub struct ParseOptions<'a> {
    /// Which language.
    pub flavour: Flavour,
    /// The analyzers of the index.
    pub analyzers: &'a FieldAnalyzers,
    /// Returns the type of a field in the index; `None` for an unknown field.
    pub field_type: &'a dyn Fn(&str) -> Option<FieldType>,
    /// The locale of numbers, as a BCP 47 tag (`de`, `fr-CA`); only Nouveau's parser uses it.
    /// English where it is `None`.
    pub locale: Option<&'a str>,
    /// Returns whether to continue. It is called every few milliseconds in long texts of terms.
    pub go_on: &'a dyn Fn() -> bool,
}

impl<'a> ParseOptions<'a> {
    /// Options without fields of numbers and without a locale, of parsing that is never stopped.
    #[must_use]
    pub fn new(flavour: Flavour, analyzers: &'a FieldAnalyzers) -> Self {
        Self {
            flavour,
            analyzers,
            field_type: &|_| None,
            locale: None,
            go_on: &|| true,
        }
    }
}

/// The field of terms that name none.
pub const DEFAULT_FIELD: &str = "default";

/// Parses a query text, in time proportional to its length.
///
/// # Errors
///
/// A text that is not a query, one that is too deep or too long, one with more than
/// [`MAX_CLAUSES`] clauses or words, or with a name of more than [`MAX_FIELD_LEN`] bytes.
/// [`Error::Stopped`] when `go_on` of the options ended it.
pub fn parse(text: &str, options: &ParseOptions<'_>) -> Result<Query, Error> {
    if text.len() > MAX_QUERY_LEN {
        return Err(Error::TooLong);
    }
    match options.flavour {
        Flavour::Clouseau => classic::parse(text, options),
        Flavour::Nouveau => flexible::parse(text, options),
    }
}

impl Query {
    /// Returns the output of Lucene's `Query.toString()`, of the version of `flavour`.
    #[must_use]
    pub fn to_lucene_string(&self, flavour: Flavour) -> String {
        display::lucene_string(self, flavour)
    }

    /// Calls `visit` with this query and all within it.
    pub fn visit(&self, visit: &mut dyn FnMut(&Query)) {
        // As deep as MAX_DEPTH and a few levels that the parsers add.
        visit(self);
        match self {
            Self::Boolean { clauses, .. } => {
                clauses.iter().for_each(|clause| clause.query.visit(visit))
            }
            Self::Boost { query, .. } => query.visit(visit),
            _ => {}
        }
    }

    /// Sets the boost, replacing an earlier one.
    pub(crate) fn boosted(self, boost: f32) -> Self {
        let query = match self {
            Self::Boost { query, .. } => query,
            other => Box::new(other),
        };
        if boost == 1.0 {
            *query
        } else {
            Self::Boost { query, boost }
        }
    }
}
