//! Queries of a text index.

use std::ops::Bound;
use std::sync::Arc;

use analysis::Flavour;
use analysis::query::{self as parsed, FieldType as ParsedType, ParseOptions};
use search::{
    Effort, FieldType, GroupRequest, Query, Range, Reader, Request, SortBy, SortKey, Types,
};

use super::TextIndex;
use super::bookmark::{self, Place};
use super::translate::translate;
use crate::Error;

/// A query of a text index.
#[derive(Clone, Debug)]
pub struct TextQuery {
    /// The query, in Lucene's syntax.
    pub q: String,
    /// How numbers are written in it.
    pub locale: Option<String>,
    /// The order of hits; by score when it is empty.
    pub sort: Vec<SortKey>,
    /// Hits at most; of each group, when there are groups.
    pub limit: usize,
    /// Where to continue.
    pub bookmark: Option<String>,
    /// Fields of strings of which hits are counted by value.
    pub counts: Option<Vec<String>>,
    /// Fields of numbers of which hits are counted by range.
    pub ranges: Option<Vec<(String, Vec<Range>)>>,
    /// Most counts of each field; the greatest are returned.
    pub top_n: usize,
    /// Only hits of this partition.
    pub partition: Option<String>,
    /// Only hits that have one of some facets, of each of these: the field, and its values.
    pub drilldown: Vec<(String, Vec<String>)>,
    /// Hits in groups.
    pub group: Option<TextGrouping>,
    /// Fragments of stored texts with the matches.
    pub highlight: Option<TextHighlight>,
    /// Only these of the stored fields.
    pub include_fields: Option<Vec<String>>,
    /// Whether to return the computation of each score.
    pub explain: bool,
}

/// Hits with one string are a group.
#[derive(Clone, Debug)]
pub struct TextGrouping {
    /// The field of the string.
    pub field: String,
    /// The order of groups, by the first hit of each; by score when it is empty.
    pub sort: Vec<SortKey>,
    /// Groups at most.
    pub limit: usize,
}

/// Parts of stored texts.
#[derive(Clone, Debug)]
pub struct TextHighlight {
    /// The fields.
    pub fields: Vec<String>,
    /// How parts are cut out.
    pub options: analysis::highlight::Options,
}

/// The query in the engine's form.
pub(super) struct EngineQuery {
    pub request: Request,
    pub groups: Option<GroupRequest>,
    /// The parsed query.
    pub parsed: parsed::Query,
}

/// Memory for each byte of a query: its lexemes, and its texts in several forms, one of them a
/// pattern with 8 bytes for a character.
const BYTES_OF_BYTE: usize = 16;
/// Copies of a field's name for each word that is searched in it: of the query in its forms, and of
/// the term with its field.
const NAME_COPIES: usize = 6;
/// Memory of a clause besides its texts, in bytes.
const CLAUSE_BYTES: usize = 256;
/// The maximum length of a query that is a range of numbers.
const RANGE_BYTES_MAX: usize = 1 << 10;

/// Steps of a few milliseconds of parsing: the clock is read at each check.
const CHECK_STEPS: usize = 16 << 10;

/// Returns roughly how much memory a query takes while it is parsed and searched, in bytes.
fn query_bytes(q: &str) -> usize {
    // A clause has at least a character and a space.
    let clauses_max = (q.len() / 2 + 1).min(parsed::MAX_CLAUSES);
    BYTES_OF_BYTE * q.len() + CLAUSE_BYTES * clauses_max
}

/// Returns the length of the names of fields of all words of a query. A name that is written once
/// can be that of a thousand words.
fn names_bytes(query: &parsed::Query) -> usize {
    use parsed::Query::{
        Boolean, Boost, Fuzzy, Intervals, MatchAll, MatchNone, NumberRange, Phrase, Prefix, Range,
        Regexp, Term, Wildcard,
    };
    let mut bytes = 0;
    query.visit(&mut |part| {
        bytes += match part {
            Term { field, .. }
            | Prefix { field, .. }
            | Wildcard { field, .. }
            | Regexp { field, .. }
            | Fuzzy { field, .. }
            | Range { field, .. }
            | NumberRange { field, .. }
            | Intervals { field, .. } => field.len(),
            Phrase { field, terms, .. } => field.len() * (1 + terms.len()),
            Boolean { .. } | Boost { .. } | MatchAll | MatchNone => 0,
        };
    });
    bytes
}

fn by_score() -> SortKey {
    SortKey {
        by: SortBy::Score,
        reversed: false,
    }
}

fn sorted(keys: &[SortKey]) -> Vec<SortKey> {
    match keys.is_empty() {
        true => vec![by_score()],
        false => keys.to_vec(),
    }
}

impl TextIndex {
    /// Reads a query, while `go_on` returns true.
    fn parse(
        &self,
        q: &str,
        locale: Option<&str>,
        types: &Types,
        go_on: &dyn Fn() -> bool,
    ) -> Result<parsed::Query, Error> {
        let field_type = |field: &str| {
            Some(match types.get(field)? {
                FieldType::Double => ParsedType::Number,
                FieldType::String | FieldType::Text => ParsedType::Text,
            })
        };
        let options = ParseOptions {
            flavour: self.spec.flavour,
            analyzers: &self.analyzers,
            field_type: &field_type,
            locale: locale.filter(|locale| !locale.is_empty()),
            go_on,
        };
        parsed::parse(q, &options).map_err(|e| Error::BadRequest(e.to_string()))
    }

    /// Reads a query, and charges its time and memory.
    fn parse_within(
        &self,
        q: &str,
        locale: Option<&str>,
        types: &Types,
        effort: &Effort,
    ) -> Result<parsed::Query, Error> {
        effort.take(query_bytes(q))?;
        let go_on = || effort.spend(CHECK_STEPS);
        let parsed = self.parse(q, locale, types, &go_on);
        effort.spend(q.len());
        effort.step()?;
        let parsed = parsed?;
        // Those that are written out are charged as parts of the text.
        let names = NAME_COPIES * names_bytes(&parsed);
        effort.take(names.saturating_sub(BYTES_OF_BYTE * q.len()))?;
        Ok(parsed)
    }

    /// The range of numbers that a query of Clouseau specifies.
    ///
    /// # Errors
    /// [`Error::BadRequest`]: it is not such a range.
    pub fn range(&self, label: &str, q: &str) -> Result<Range, Error> {
        if q.len() > RANGE_BYTES_MAX {
            return Err(Error::BadRequest(format!(
                "a range specification has at most {RANGE_BYTES_MAX} bytes"
            )));
        }
        match self.parse(q, None, &Types::new(), &|| true)? {
            parsed::Query::NumberRange { lower, upper, .. } => Ok(Range {
                label: label.to_owned(),
                low: lower,
                high: upper,
            }),
            _ => Err(Error::BadRequest(format!(
                "{q} was not a well-formed range specification"
            ))),
        }
    }
}

impl TextIndex {
    /// A query as the engine has it.
    pub(crate) fn understand(&self, q: &str, effort: &Effort) -> Result<Query, Error> {
        let parsed = self.parse_within(q, None, &Types::new(), effort)?;
        translate(parsed, self.flavour())
    }

    /// How many documents it has.
    pub fn docs(&self) -> u64 {
        self.readers().iter().map(|reader| reader.docs()).sum()
    }

    /// Readers of its shards in their current state.
    pub(crate) fn readers(&self) -> Vec<Arc<Reader>> {
        self.shards.iter().map(|s| s.index.reader()).collect()
    }
}

impl TextQuery {
    /// The request as an index with such fields understands it.
    pub(super) fn engine_query(
        &self,
        index: &TextIndex,
        types: &Types,
        effort: &Effort,
    ) -> Result<EngineQuery, Error> {
        let parsed = index.parse_within(&self.q, self.locale.as_deref(), types, effort)?;
        let query = translate(parsed.clone(), index.flavour())?;
        let similarity = index.spec.similarity();
        let partition = self.partition.iter().map(|partition| Query::Term {
            field: search::PARTITION.to_owned(),
            term: partition.clone(),
        });
        let facets = self.drilldown.iter().map(|(field, values)| Query::Facet {
            field: field.clone(),
            values: values.clone(),
        });
        let filters: Vec<Query> = partition.chain(facets).collect();
        let groups = self.group.as_ref().map(|group| GroupRequest {
            field: group.field.clone(),
            sort: sorted(&group.sort),
            limit: group.limit,
        });
        let sort = sorted(&self.sort);
        let place = match &self.bookmark {
            Some(bookmark) => bookmark::read(bookmark, &sort).map_err(|e| {
                match index.flavour() == Flavour::Clouseau {
                    true => Error::BadRequest("Invalid bookmark parameter supplied".into()),
                    false => e,
                }
            })?,
            None => Place::default(),
        };
        let request = Request {
            query,
            filters,
            similarity,
            sort,
            limit: self.limit,
            after: place.order,
            statistics: place.statistics,
            counts: self.counts.clone().unwrap_or_default(),
            ranges: self.ranges.clone().unwrap_or_default(),
        };
        Ok(EngineQuery {
            request,
            groups,
            parsed,
        })
    }

    /// The default query.
    pub fn new(q: String, limit: usize) -> TextQuery {
        TextQuery {
            q,
            locale: None,
            sort: vec![],
            limit,
            bookmark: None,
            counts: None,
            ranges: None,
            top_n: usize::MAX,
            partition: None,
            drilldown: vec![],
            group: None,
            highlight: None,
            include_fields: None,
            explain: false,
        }
    }
}

impl TextIndex {
    /// Its interface.
    pub fn flavour(&self) -> Flavour {
        self.spec.flavour
    }
}

/// The bounds of a range of Nouveau, each inclusive by default.
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
