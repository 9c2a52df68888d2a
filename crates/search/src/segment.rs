//! Opens cursors over the documents of a segment that match a weighed query.

use std::ops::{Bound, RangeBounds};
use std::rc::Rc;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};
use tantivy::InvertedIndexReader;
use tantivy::postings::SegmentPostings;
use tantivy::schema::IndexRecordOption;

use crate::column;
use crate::fields::of_column;
use crate::matcher::{
    AllDocs, BoxMatcher, Coordination, Disjunction, Doc, DocList, DocSetBuilder, Exclusion,
    Intersection, IntervalMatcher, KeptMatches, Match, PhraseMatcher, PhrasePosition, Preference,
    TermMatcher,
};
use crate::query::Interval;
use crate::reader::SegmentFiles;
use crate::schema::{ColumnKind, ID, Layout, term_bytes};
use crate::similarity::Weight;
use crate::weigh::{TermFilter, TermWeight, WeightedQuery, each_term};
use crate::{Effort, Error};

/// Memory of an open postings list with its buffers, in bytes.
const POSTINGS_BYTES: usize = 4 << 10;

/// A segment, as a source of cursors.
pub(crate) struct Segment<'a> {
    files: &'a SegmentFiles,
    inverted: Arc<InvertedIndexReader>,
    effort: Rc<Effort>,
    /// The matches of parts of a query, by their addresses, after [`Segment::narrow`].
    found: FxHashMap<*const WeightedQuery, Rc<Vec<Match>>>,
}

impl Segment<'_> {
    pub fn new<'a>(
        files: &'a SegmentFiles,
        layout: &Layout,
        effort: &Rc<Effort>,
    ) -> Result<Segment<'a>, Error> {
        let inverted = files.reader.inverted_index(layout.terms)?;
        Ok(Segment {
            files,
            inverted,
            effort: effort.clone(),
            found: FxHashMap::default(),
        })
    }

    /// Finds which of these documents, in their order, each part of a query matches. From then on,
    /// the cursors of [`Segment::matcher`] combine these matches: they have no other documents, and
    /// do not read the index again, however deep a part is within others.
    pub fn narrow(&mut self, weighed: &WeightedQuery, docs: &[Doc]) -> Result<(), Error> {
        if let WeightedQuery::Boolean {
            must,
            should,
            must_not,
            ..
        } = weighed
        {
            let mut parts = must.iter().chain(should).chain(must_not);
            return parts.try_for_each(|part| self.narrow(part, docs));
        }
        let before = self.effort.taken();
        let Some(mut matcher) = self.open(weighed)? else {
            return Ok(());
        };
        let mut found = vec![];
        for doc in docs {
            self.effort.step()?;
            if matcher.has(*doc) {
                found.push((*doc, matcher.score()));
            }
        }
        // A cursor that ran out of time or memory finds nothing.
        self.effort.step()?;
        self.effort.give_back_to(before);
        self.effort.take(found.len() * size_of::<Match>())?;
        self.found
            .insert(std::ptr::from_ref(weighed), Rc::new(found));
        Ok(())
    }

    fn docs_max(&self) -> u32 {
        self.files.reader.max_doc()
    }

    /// Returns an empty set of documents.
    fn docs(&self) -> Result<DocSetBuilder, Error> {
        let docs = self.docs_max();
        self.effort.take(DocSetBuilder::bytes_max(docs))?;
        Ok(DocSetBuilder::new(docs))
    }

    fn postings(
        &self,
        term: &[u8],
        record: IndexRecordOption,
    ) -> Result<Option<SegmentPostings>, Error> {
        let Some(info) = self.inverted.terms().get(term)? else {
            return Ok(None);
        };
        self.effort.take(POSTINGS_BYTES)?;
        Ok(Some(
            self.inverted.read_postings_from_terminfo(&info, record)?,
        ))
    }

    /// Returns a cursor over the matching documents of the segment; `None` when no document
    /// matches.
    pub fn matcher(&self, weighed: &WeightedQuery) -> Result<Option<BoxMatcher>, Error> {
        let Some(found) = self.found.get(&std::ptr::from_ref(weighed)) else {
            return self.open(weighed);
        };
        self.effort.take(size_of::<KeptMatches>())?;
        Ok(Some(Box::new(KeptMatches::new(found.clone()))))
    }

    /// Returns a cursor over all matching documents, like [`Segment::matcher`] before a query was
    /// narrowed.
    pub fn open(&self, weighed: &WeightedQuery) -> Result<Option<BoxMatcher>, Error> {
        self.effort.step()?;
        Ok(match weighed {
            WeightedQuery::Nothing => None,
            WeightedQuery::Everything(score) => {
                Some(Box::new(AllDocs::new(self.docs_max(), *score)))
            }
            WeightedQuery::Term(term) => self.term(term)?,
            WeightedQuery::Phrase {
                phrase_positions,
                slop,
                weight,
                field,
            } => self.phrase(phrase_positions, *slop, weight, field)?,
            WeightedQuery::Terms {
                bounds,
                wanted,
                score,
            } => Some(self.terms(bounds, wanted.as_ref(), *score)?),
            WeightedQuery::Numbers {
                field,
                low,
                high,
                score,
            } => self.numbers(field, *low, *high, *score)?,
            WeightedQuery::Boolean {
                must,
                should,
                must_not,
                should_min,
                coordinated,
            } => {
                let found = self.boolean(must, should, must_not, *should_min)?;
                match (found, coordinated) {
                    (Some(inner), Some(parts)) => Some(Box::new(Coordination::new(inner, *parts))),
                    (found, _) => found,
                }
            }
            WeightedQuery::Interval {
                field,
                source,
                boost,
            } => Some(self.interval(field, source, *boost)?),
            WeightedQuery::Facet {
                kind,
                field,
                values,
            } => self.facet(*kind, field, values)?,
            WeightedQuery::Constant(inner, score) => self.constant(inner, *score)?,
        })
    }

    /// Returns the matching documents of a query, all with one score.
    fn constant(&self, inner: &WeightedQuery, score: f32) -> Result<Option<BoxMatcher>, Error> {
        let Some(mut inner) = self.matcher(inner)? else {
            return Ok(None);
        };
        let mut docs = self.docs()?;
        let mut doc = inner.doc();
        while doc != crate::matcher::END {
            self.effort.step()?;
            docs.put(doc);
            doc = inner.advance();
        }
        Ok(Some(docs.finish(score)))
    }

    fn term(&self, term: &TermWeight) -> Result<Option<BoxMatcher>, Error> {
        let record = match term.lengths {
            Some(_) => IndexRecordOption::WithFreqs,
            None => IndexRecordOption::Basic,
        };
        let Some(postings) = self.postings(&term.term, record)? else {
            return Ok(None);
        };
        let lengths = match &term.lengths {
            Some(field) => Some(column::lengths(self.files, field)?),
            None => None,
        };
        let matcher = TermMatcher::new(postings, term.weight.clone(), lengths);
        Ok(Some(Box::new(matcher)))
    }

    fn phrase(
        &self,
        places: &[(u32, Vec<Vec<u8>>)],
        slop: u32,
        weight: &Arc<Weight>,
        field: &str,
    ) -> Result<Option<BoxMatcher>, Error> {
        let mut phrase_positions = vec![];
        for (offset, terms) in places {
            let mut found = vec![];
            for term in terms {
                found.extend(self.postings(term, IndexRecordOption::WithFreqsAndPositions)?);
            }
            if found.is_empty() {
                return Ok(None);
            }
            phrase_positions.push(PhrasePosition::new(*offset, found));
        }
        if phrase_positions.is_empty() {
            return Ok(None);
        }
        let lengths = Some(column::lengths(self.files, field)?);
        let effort = self.effort.clone();
        let matcher = PhraseMatcher::new(phrase_positions, slop, weight.clone(), lengths, effort);
        Ok(Some(Box::new(matcher)))
    }

    fn terms(
        &self,
        bounds: &(Bound<Vec<u8>>, Bound<Vec<u8>>),
        wanted: Option<&(usize, TermFilter)>,
        score: f32,
    ) -> Result<BoxMatcher, Error> {
        let mut docs = self.docs()?;
        let terms = self.inverted.terms();
        each_term(terms, bounds, &self.effort, &mut |bytes, info| {
            let is_wanted = wanted.is_none_or(|(prefix, wanted)| {
                let term = bytes.get(*prefix..).and_then(|b| str::from_utf8(b).ok());
                term.is_some_and(|term| wanted(term, &self.effort))
            });
            if !is_wanted {
                return Ok(());
            }
            let basic = IndexRecordOption::Basic;
            let postings = self.inverted.read_postings_from_terminfo(info, basic)?;
            docs.add(postings, &self.effort)
        })?;
        Ok(docs.finish(score))
    }

    fn numbers(
        &self,
        field: &str,
        low: Bound<f64>,
        high: Bound<f64>,
        score: f32,
    ) -> Result<Option<BoxMatcher>, Error> {
        let Some(column) = column::numbers(self.files, field)? else {
            return Ok(None);
        };
        // tantivy's own range search finds 0 in a range that ends just before it.
        let wanted = (low, high);
        let mut docs = self.docs()?;
        for doc in 0..self.docs_max() {
            self.effort.step()?;
            let mut numbers = self.effort.values(column.values_for_doc(doc));
            if numbers.any(|n| wanted.contains(&n)) {
                docs.put(doc);
            }
        }
        Ok(Some(docs.finish(score)))
    }

    fn facet(
        &self,
        kind: ColumnKind,
        field: &str,
        values: &[String],
    ) -> Result<Option<BoxMatcher>, Error> {
        let column = match field {
            ID => column::ids(self.files)?,
            field => column::of_strings(self.files, kind, field)?,
        };
        let Some(column) = column else {
            return Ok(None);
        };
        let mut wanted = FxHashSet::default();
        for value in values {
            let value = of_column(value).as_bytes();
            wanted.extend(column.dictionary().term_ord(value)?);
        }
        let mut docs = self.docs()?;
        for doc in 0..self.docs_max() {
            self.effort.step()?;
            let mut ords = self.effort.values(column.ords().values_for_doc(doc));
            if ords.any(|ord| values.is_empty() || wanted.contains(&ord)) {
                docs.put(doc);
            }
        }
        Ok(Some(docs.finish(0.0)))
    }

    fn interval(&self, field: &str, source: &Interval, boost: f32) -> Result<BoxMatcher, Error> {
        self.effort.take(IntervalMatcher::bytes_max(source))?;
        let mut names = FxHashSet::default();
        terms_of(source, &mut names);
        let mut terms = FxHashMap::default();
        for term in names {
            let bytes = term_bytes(field, term);
            let postings = self.postings(&bytes, IndexRecordOption::WithFreqsAndPositions)?;
            terms.insert(term.clone(), postings);
        }
        let (docs, effort) = (self.docs_max(), self.effort.clone());
        let matcher = IntervalMatcher::new(source.clone(), terms, boost, docs, effort);
        Ok(Box::new(matcher))
    }

    fn boolean(
        &self,
        must: &[WeightedQuery],
        should: &[WeightedQuery],
        must_not: &[WeightedQuery],
        should_min: usize,
    ) -> Result<Option<BoxMatcher>, Error> {
        let found = |parts: &[WeightedQuery]| -> Result<Vec<BoxMatcher>, Error> {
            let found = parts.iter().map(|part| self.matcher(part));
            Ok(found
                .collect::<Result<Vec<_>, _>>()?
                .into_iter()
                .flatten()
                .collect())
        };
        let mut needed = found(must)?;
        if needed.len() < must.len() {
            return Ok(None);
        }
        let optional = found(should)?;
        let is_needed = must.is_empty() || should_min > 0;
        if is_needed && optional.len() < should_min.max(1) {
            // A purely negative query finds nothing, and so does an empty one.
            return Ok(None);
        }
        let any = |parts: Vec<BoxMatcher>, least| -> BoxMatcher {
            match (parts.len(), least) {
                (1, 0 | 1) => parts
                    .into_iter()
                    .next()
                    .unwrap_or_else(|| Box::new(DocList::new(vec![], 0.0))),
                _ => Box::new(Disjunction::new(parts, least, self.effort.clone())),
            }
        };
        let mut matcher = if is_needed {
            needed.push(any(optional, should_min));
            all(needed, &self.effort)
        } else if optional.is_empty() {
            all(needed, &self.effort)
        } else {
            let needed = all(needed, &self.effort);
            Box::new(Preference::new(needed, any(optional, 1)))
        };
        let not = found(must_not)?;
        if !not.is_empty() {
            matcher = Box::new(Exclusion::new(matcher, any(not, 1), self.effort.clone()));
        }
        Ok(Some(matcher))
    }
}

fn all(mut parts: Vec<BoxMatcher>, effort: &Rc<Effort>) -> BoxMatcher {
    match (parts.len(), parts.pop()) {
        (1, Some(only)) => only,
        (_, last) => {
            parts.extend(last);
            Box::new(Intersection::new(parts, effort.clone()))
        }
    }
}

fn terms_of<'a>(source: &'a Interval, out: &mut FxHashSet<&'a String>) {
    match source {
        Interval::Term(term) => {
            out.insert(term);
        }
        Interval::Phrase(parts)
        | Interval::Ordered(parts)
        | Interval::Unordered(parts)
        | Interval::Or(parts) => parts.iter().for_each(|part| terms_of(part, out)),
        Interval::MaxWidth(_, part) | Interval::MaxGaps(_, part) => terms_of(part, out),
    }
}
