//! Expands and weighs the terms of a query over the whole index.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use tantivy::postings::TermInfo;
use tantivy::termdict::TermDictionary;

use crate::answer::COUNT_BYTES;
use crate::column::facets_of;
use crate::expression::WholeRegex;
use crate::query::{
    CLAUSES_MAX, FUZZY_TERMS_MAX, Interval, Query, WildcardToken, edits, is_match, likeness,
};
use crate::reader::{Reader, map_bound};
use crate::schema::{ColumnKind, FieldType, ID, PARTITION, field_bounds, term_bytes};
use crate::similarity::{Bm25, FieldStatistics, Similarity, TfIdf, Weight, classic_idf, idf};
use crate::statistics::ShardNumbers;
use crate::{Effort, Error};

/// A weighed query.
pub(crate) enum WeightedQuery {
    Nothing,
    Everything(f32),
    Term(TermWeight),
    Phrase {
        phrase_positions: Vec<(u32, Vec<Vec<u8>>)>,
        slop: u32,
        weight: Arc<Weight>,
        field: String,
    },
    Terms {
        bounds: (Bound<Vec<u8>>, Bound<Vec<u8>>),
        /// Length of the field's name with its separator, and a filter of its terms.
        wanted: Option<(usize, TermFilter)>,
        score: f32,
    },
    Numbers {
        field: String,
        low: Bound<f64>,
        high: Bound<f64>,
        score: f32,
    },
    Boolean {
        must: Vec<WeightedQuery>,
        should: Vec<WeightedQuery>,
        must_not: Vec<WeightedQuery>,
        should_min: usize,
        /// The number of scoring parts; the score is scaled by the share that match, as in Lucene
        /// 4.6. See [`crate::matcher::Coordination`].
        coordinated: Option<usize>,
    },
    Interval {
        field: String,
        source: Interval,
        boost: f32,
    },
    /// Documents with one of these facets, or strings.
    Facet {
        kind: ColumnKind,
        field: String,
        values: Vec<String>,
    },
    Constant(Box<WeightedQuery>, f32),
}

/// A weighed term.
pub(crate) struct TermWeight {
    pub term: Vec<u8>,
    pub weight: Arc<Weight>,
    /// The field, if its lengths count.
    pub lengths: Option<String>,
}

/// A filter of a field's terms. It counts its steps, and keeps none when time runs out.
pub(crate) type TermFilter = Box<dyn Fn(&str, &Effort) -> bool>;

/// A query with a common factor of all its scores.
pub(crate) struct ScaledQuery {
    pub weighed: WeightedQuery,
    pub scale: f32,
}

/// Weighs a query in an index. `filters` are queries that hits must match as well, without a score.
pub(crate) fn weigh(
    query: &Query,
    filters: &[Query],
    (similarity, effort): (Similarity, &Effort),
    numbers: &ShardNumbers<'_>,
) -> Result<ScaledQuery, Error> {
    let clauses = filters.iter().map(Query::clauses).sum::<usize>() + query.clauses();
    if clauses > CLAUSES_MAX {
        return Err(Error::TooManyClauses { max: CLAUSES_MAX });
    }
    let weigher = Weigher {
        reader: numbers.reader,
        numbers,
        similarity,
        effort,
        squares: Cell::new(0.0),
    };
    let mut weighed = weigher.weigh(query, 1.0)?;
    let scale = match similarity {
        Similarity::Bm25 => 1.0,
        // Lucene's queryNorm, which all scores of a query have in common.
        Similarity::TfIdf => match weigher.squares.get() {
            squares if squares > 0.0 => (1.0 / squares.sqrt()) as f32,
            _ => 1.0,
        },
    };
    if !filters.is_empty() {
        let filters = filters.iter().map(|filter| {
            Ok(WeightedQuery::Constant(
                Box::new(weigher.weigh(filter, 0.0)?),
                0.0,
            ))
        });
        let mut must = filters.collect::<Result<Vec<_>, Error>>()?;
        must.push(weighed);
        weighed = WeightedQuery::Boolean {
            must,
            should: vec![],
            must_not: vec![],
            should_min: 0,
            coordinated: None,
        };
    }
    Ok(ScaledQuery { weighed, scale })
}

struct Weigher<'a> {
    reader: &'a Reader,
    numbers: &'a ShardNumbers<'a>,
    similarity: Similarity,
    effort: &'a Effort,
    /// Sum of the squared weights of all scoring parts.
    squares: Cell<f64>,
}

impl Weigher<'_> {
    fn weigh(&self, query: &Query, boost: f32) -> Result<WeightedQuery, Error> {
        let all = |queries: &[Query]| -> Result<Vec<WeightedQuery>, Error> {
            queries.iter().map(|q| self.weigh(q, boost)).collect()
        };
        Ok(match query {
            Query::All => WeightedQuery::Everything(self.constant(boost)),
            Query::None => WeightedQuery::Nothing,
            Query::Term { field, term } => {
                let term = term_bytes(field, term);
                let doc_freq = self.numbers.doc_freq(&term)?;
                WeightedQuery::Term(self.term(field, term, doc_freq, boost)?)
            }
            Query::Phrase { field, terms, slop } => self.phrase(field, terms, *slop, boost)?,
            Query::Prefix { .. }
            | Query::Wildcard { .. }
            | Query::Regex { .. }
            | Query::Fuzzy { .. }
            | Query::Terms { .. } => self.many(query, boost)?,
            Query::Numbers { field, low, high } => WeightedQuery::Numbers {
                field: field.clone(),
                low: *low,
                high: *high,
                score: self.constant(boost),
            },
            Query::Boolean {
                must,
                should,
                must_not,
                should_min,
            } => WeightedQuery::Boolean {
                must: all(must)?,
                should: all(should)?,
                must_not: self.unscored(must_not)?,
                should_min: *should_min,
                coordinated: match self.similarity {
                    Similarity::TfIdf => Some(must.len() + should.len()).filter(|parts| *parts > 1),
                    Similarity::Bm25 => None,
                },
            },
            Query::Boost(inner, more) => self.weigh(inner, boost * more)?,
            Query::Constant(inner, score) => {
                let before = self.squares.get();
                let inner = self.weigh(inner, boost)?;
                self.squares.set(before);
                WeightedQuery::Constant(Box::new(inner), self.constant(boost * score))
            }
            Query::Facet { field, values } => WeightedQuery::Facet {
                kind: facets_of(self.similarity),
                field: field.clone(),
                values: values.clone(),
            },
            Query::Interval { field, source } => WeightedQuery::Interval {
                field: field.clone(),
                source: source.clone(),
                boost,
            },
        })
    }

    /// Weighs a multi-term query.
    fn many(&self, query: &Query, boost: f32) -> Result<WeightedQuery, Error> {
        Ok(match query {
            Query::Prefix { field, prefix } => {
                let low = term_bytes(field, prefix);
                let high = after_prefix(&low);
                WeightedQuery::Terms {
                    bounds: (Bound::Included(low), high),
                    wanted: None,
                    score: self.constant(boost),
                }
            }
            Query::Wildcard { field, pattern } => wildcard(field, pattern, self.constant(boost)),
            Query::Regex { field, pattern } => {
                let regex = WholeRegex::new(pattern, self.effort)?;
                let wanted: TermFilter =
                    Box::new(move |term: &str, effort: &Effort| regex.is_match(term, effort));
                let (low, high) = field_bounds(field);
                WeightedQuery::Terms {
                    bounds: (Bound::Included(low), Bound::Excluded(high)),
                    wanted: Some((field.len() + 1, wanted)),
                    score: self.constant(boost),
                }
            }
            Query::Fuzzy {
                field,
                term,
                edits,
                prefix,
            } => self.fuzzy(field, term, *edits, *prefix, boost)?,
            Query::Terms { field, low, high } => {
                let bytes =
                    |bound: &Bound<String>| map_bound(bound, |term| term_bytes(field, term));
                let (first, end) = field_bounds(field);
                let low = match bytes(low) {
                    Bound::Unbounded => Bound::Included(first),
                    low => low,
                };
                let high = match bytes(high) {
                    Bound::Unbounded => Bound::Excluded(end),
                    high => high,
                };
                WeightedQuery::Terms {
                    bounds: (low, high),
                    wanted: None,
                    score: self.constant(boost),
                }
            }
            _ => WeightedQuery::Nothing,
        })
    }

    /// Returns the constant score of a part.
    fn constant(&self, boost: f32) -> f32 {
        self.add_square(boost);
        boost
    }

    fn add_square(&self, weight: f32) {
        let square = f64::from(weight) * f64::from(weight);
        self.squares.set(self.squares.get() + square);
    }

    /// Weighs parts that only filter documents.
    fn unscored(&self, queries: &[Query]) -> Result<Vec<WeightedQuery>, Error> {
        let before = self.squares.get();
        let weighed = queries.iter().map(|query| self.weigh(query, 1.0)).collect();
        self.squares.set(before);
        weighed
    }

    /// Returns the field if its lengths count: those of strings do not.
    fn lengths(&self, field: &str) -> Option<String> {
        let counts = match self.similarity {
            Similarity::Bm25 => self.reader.types().get(field) == Some(&FieldType::Text),
            Similarity::TfIdf => field != ID && field != PARTITION,
        };
        counts.then(|| field.to_owned())
    }

    fn term(
        &self,
        field: &str,
        term: Vec<u8>,
        doc_freq: u64,
        boost: f32,
    ) -> Result<TermWeight, Error> {
        self.effort.step()?;
        let weight = match self.similarity {
            Similarity::Bm25 => {
                let statistics = self.numbers.of_field(field)?;
                let docs = statistics.docs.max(doc_freq);
                Weight::Bm25(Bm25::new(boost, idf(doc_freq, docs), statistics))
            }
            Similarity::TfIdf => {
                self.tf_idf(boost, classic_idf(doc_freq, self.numbers.docs_max()?))
            }
        };
        Ok(TermWeight {
            term,
            weight: Arc::new(weight),
            lengths: self.lengths(field),
        })
    }

    fn tf_idf(&self, boost: f32, idf: f32) -> Weight {
        self.add_square(boost * idf);
        Weight::TfIdf(TfIdf::new(boost, idf))
    }

    fn phrase(
        &self,
        field: &str,
        terms: &[(u32, Vec<String>)],
        slop: u32,
        boost: f32,
    ) -> Result<WeightedQuery, Error> {
        if self.lengths(field).is_none() && self.reader.types().contains_key(field) {
            return Err(Error::NoPositions(field.to_owned()));
        }
        let statistics = match self.similarity {
            Similarity::Bm25 => self.numbers.of_field(field)?,
            Similarity::TfIdf => FieldStatistics::default(),
        };
        let mut phrase_positions = vec![];
        let mut idfs = 0.0f64;
        for (position, terms) in terms {
            let terms: Vec<_> = terms.iter().map(|term| term_bytes(field, term)).collect();
            for term in &terms {
                self.effort.step()?;
                let doc_freq = self.numbers.doc_freq(term)?;
                idfs += f64::from(match self.similarity {
                    Similarity::TfIdf => classic_idf(doc_freq, self.numbers.docs_max()?),
                    Similarity::Bm25 if doc_freq == 0 => 0.0,
                    Similarity::Bm25 => idf(doc_freq, statistics.docs.max(doc_freq)),
                });
            }
            phrase_positions.push((*position, terms));
        }
        let weight = Arc::new(match self.similarity {
            Similarity::Bm25 => Weight::Bm25(Bm25::new(boost, idfs as f32, statistics)),
            Similarity::TfIdf => self.tf_idf(boost, idfs as f32),
        });
        Ok(WeightedQuery::Phrase {
            phrase_positions,
            slop,
            weight,
            field: field.to_owned(),
        })
    }

    /// Returns the terms of a field within an edit distance: the distance, and the document
    /// frequency of each.
    fn similar(
        &self,
        field: &str,
        wanted: &[char],
        edits_max: usize,
        prefix: usize,
    ) -> Result<BTreeMap<String, (usize, u64)>, Error> {
        let beginning: String = wanted.iter().take(prefix).collect();
        let low = term_bytes(field, &beginning);
        let high = after_prefix(&low);
        let mut found: BTreeMap<String, (usize, u64)> = BTreeMap::new();
        for segment in &self.reader.segments {
            let inverted = segment.reader.inverted_index(self.reader.layout.terms)?;
            let bounds = (Bound::Included(low.clone()), high.clone());
            let mut chars = vec![];
            each_term(
                inverted.terms(),
                &bounds,
                self.effort,
                &mut |bytes, info| {
                    let Some(known) = bytes
                        .get(field.len() + 1..)
                        .and_then(|b| str::from_utf8(b).ok())
                    else {
                        return Ok(());
                    };
                    chars.clear();
                    chars.extend(known.chars());
                    if let Some(n) = edits(wanted, &chars, edits_max) {
                        self.effort.take(known.len() + COUNT_BYTES)?;
                        let doc_freq = u64::from(info.doc_freq);
                        found.entry(known.to_owned()).or_insert((n, 0)).1 += doc_freq;
                    }
                    Ok(())
                },
            )?;
        }
        Ok(found)
    }

    /// Expands to the most similar terms; BM25 weighs each as if it had the highest document
    /// frequency among them.
    fn fuzzy(
        &self,
        field: &str,
        term: &str,
        edits_max: usize,
        prefix: usize,
        boost: f32,
    ) -> Result<WeightedQuery, Error> {
        let wanted: Vec<char> = term.chars().collect();
        let before = self.effort.taken();
        let found = self.similar(field, &wanted, edits_max, prefix)?;
        let mut alike: Vec<Similar<'_>> = found
            .iter()
            .map(|(known, (edits, doc_freq))| {
                let likeness = likeness(wanted.len(), known.chars().count(), *edits);
                (likeness, known, *doc_freq)
            })
            .filter(|(likeness, ..)| *likeness > 0.0)
            .collect();
        let order =
            |a: &Similar<'_>, b: &Similar<'_>| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(b.1));
        if alike.len() > FUZZY_TERMS_MAX {
            alike.select_nth_unstable_by(FUZZY_TERMS_MAX, order);
            alike.truncate(FUZZY_TERMS_MAX);
        }
        alike.sort_unstable_by(order);
        let kept = alike
            .iter()
            .map(|(_, known, _)| fuzzy_term_bytes(field, known));
        let kept = kept.sum::<usize>();
        self.effort.take(kept)?;
        let doc_freq = alike
            .iter()
            .map(|(.., doc_freq)| *doc_freq)
            .max()
            .unwrap_or(0);
        let weighed = alike.iter().map(|(likeness, known, own)| {
            let term = term_bytes(field, known);
            let doc_freq = match self.similarity {
                Similarity::Bm25 => doc_freq,
                Similarity::TfIdf => *own,
            };
            self.term(field, term, doc_freq, boost * likeness)
                .map(WeightedQuery::Term)
        });
        let should = weighed.collect::<Result<Vec<_>, _>>()?;
        // Of the terms that were found, only these are kept.
        self.effort.give_back_to(before + kept);
        Ok(WeightedQuery::Boolean {
            must: vec![],
            should,
            must_not: vec![],
            should_min: 0,
            coordinated: match self.similarity {
                Similarity::TfIdf => Some(0),
                Similarity::Bm25 => None,
            },
        })
    }
}

/// A term of a fuzzy query: its likeness, itself, and its document frequency.
type Similar<'a> = (f32, &'a String, u64);

/// Returns the memory of a weighed term of a fuzzy query, which has the field's name twice.
fn fuzzy_term_bytes(field: &str, term: &str) -> usize {
    size_of::<WeightedQuery>() + size_of::<Weight>() + 2 * field.len() + term.len() + COUNT_BYTES
}

fn wildcard(field: &str, pattern: &[WildcardToken], score: f32) -> WeightedQuery {
    let chars = pattern.iter().map_while(|wild| match wild {
        WildcardToken::Char(c) => Some(*c),
        _ => None,
    });
    let beginning: String = chars.collect();
    let low = term_bytes(field, &beginning);
    let high = after_prefix(&low);
    let pattern = pattern.to_vec();
    let wanted: TermFilter =
        Box::new(move |term: &str, effort: &Effort| is_match(&pattern, term, effort));
    WeightedQuery::Terms {
        bounds: (Bound::Included(low), high),
        wanted: Some((field.len() + 1, wanted)),
        score,
    }
}

/// Returns the end (exclusive) of everything that starts with a prefix.
fn after_prefix(prefix: &[u8]) -> Bound<Vec<u8>> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return Bound::Excluded(end);
        }
    }
    Bound::Unbounded
}

/// Takes a term and the position of its postings.
pub(crate) type EachTerm<'a> = dyn FnMut(&[u8], &TermInfo) -> Result<(), Error> + 'a;

/// Terms are read, decoded and compared at about this number of bytes in the time of a step.
const TERM_STEP_BYTES: usize = 64;

/// Calls `each` with the terms in a range and the positions of their postings.
pub(crate) fn each_term(
    terms: &TermDictionary,
    bounds: &(Bound<Vec<u8>>, Bound<Vec<u8>>),
    effort: &Effort,
    call: &mut EachTerm<'_>,
) -> Result<(), Error> {
    let mut range = terms.range();
    range = match &bounds.0 {
        Bound::Included(low) => range.ge(low),
        Bound::Excluded(low) => range.gt(low),
        Bound::Unbounded => range,
    };
    range = match &bounds.1 {
        Bound::Included(high) => range.le(high),
        Bound::Excluded(high) => range.lt(high),
        Bound::Unbounded => range,
    };
    let mut stream = range.into_stream()?;
    while stream.advance() {
        effort.steps(1 + stream.key().len() / TERM_STEP_BYTES)?;
        call(stream.key(), stream.value())?;
    }
    // The last term may have run out of time.
    effort.step()
}
