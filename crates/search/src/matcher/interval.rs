//! Cursors over documents with terms near each other, by interval functions.

use std::cmp::Reverse;
use std::rc::Rc;

use rustc_hash::FxHashMap;
use tantivy::DocSet;
use tantivy::postings::{Postings, SegmentPostings};

use super::{Doc, END, Matcher};
use crate::Effort;
use crate::query::Interval;

/// The first and last token of a match, and the number of tokens between its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Span {
    first: u32,
    last: u32,
    gaps: u32,
}

/// A term of the source.
struct IntervalTerm {
    postings: SegmentPostings,
    /// The first positions in `read_doc`.
    positions: Vec<u32>,
    /// The document whose positions were read.
    read_doc: Doc,
}

/// The terms of the source that the segment has.
struct Terms {
    by_term: FxHashMap<String, IntervalTerm>,
    /// All positions of a term in a document.
    buffer: Vec<u32>,
    /// Memory taken for the buffer, in bytes.
    held: usize,
}

impl Terms {
    fn new(postings: FxHashMap<String, Option<SegmentPostings>>) -> Terms {
        let found = postings.into_iter().filter_map(|(term, postings)| {
            let found = IntervalTerm {
                postings: postings?,
                positions: vec![],
                read_doc: END,
            };
            Some((term, found))
        });
        Terms {
            by_term: found.collect(),
            buffer: vec![],
            held: 0,
        }
    }

    /// Returns the first document from `doc` on that has any of the terms.
    fn seek(&mut self, doc: Doc) -> Doc {
        let mut next = END;
        for IntervalTerm { postings, .. } in self.by_term.values_mut() {
            if postings.doc() < doc {
                postings.seek(doc);
            }
            next = next.min(postings.doc());
        }
        next
    }

    /// Returns the first positions of a term in a document, where the cursors are; none when there
    /// is no time or memory for all of them.
    fn positions(&mut self, term: &str, doc: Doc, effort: &Effort) -> &[u32] {
        let Some(found) = self.by_term.get_mut(term) else {
            return &[];
        };
        if found.postings.doc() != doc {
            return &[];
        }
        if found.read_doc != doc {
            let count = found.postings.term_freq() as usize;
            let wanted = count * size_of::<u32>();
            if !effort.spend(count) || !effort.hold(wanted.saturating_sub(self.held)) {
                return &[];
            }
            self.held = self.held.max(wanted);
            found.postings.positions(&mut self.buffer);
            found.positions.clear();
            let first = self.buffer.iter().take(POSITIONS_MAX);
            found.positions.extend(first);
            found.read_doc = doc;
        }
        &found.positions
    }

    fn cost(&self) -> u64 {
        let terms = self.by_term.values();
        terms.map(|t| u64::from(t.postings.size_hint())).sum()
    }
}

/// Documents that an interval source matches.
pub(crate) struct IntervalMatcher {
    source: Interval,
    terms: Terms,
    boost: f32,
    docs: Doc,
    doc: Doc,
    freq: f32,
    effort: Rc<Effort>,
}

impl IntervalMatcher {
    /// Returns the maximum size of the positions and spans of one document, in bytes, besides the
    /// buffer: a list of spans is read while another one is made of it.
    pub fn bytes_max(source: &Interval) -> usize {
        let of_mention = POSITIONS_MAX * (size_of::<u32>() + 2 * size_of::<Span>());
        source.terms() * of_mention
    }

    /// `docs` is the number of documents of the segment. `terms` are those of the source with their
    /// postings; `None` when the segment has none.
    pub fn new(
        source: Interval,
        terms: FxHashMap<String, Option<SegmentPostings>>,
        boost: f32,
        docs: Doc,
        effort: Rc<Effort>,
    ) -> IntervalMatcher {
        let mut matcher = IntervalMatcher {
            source,
            terms: Terms::new(terms),
            boost,
            docs,
            doc: 0,
            freq: 0.0,
            effort,
        };
        matcher.settle(0);
        matcher
    }

    fn settle(&mut self, mut doc: Doc) -> Doc {
        loop {
            let next = self.terms.seek(doc);
            let steps = self.terms.by_term.len();
            if next == END || next >= self.docs || !self.effort.spend(steps) {
                self.doc = END;
                return END;
            }
            let spans = spans(&self.source, &mut self.terms, next, &self.effort);
            if !spans.is_empty() {
                // Lucene's sum: an interval counts less the wider it is beyond its minimum.
                self.freq = spans.iter().map(|s| 1.0 / (1.0 + s.gaps as f32)).sum();
                self.doc = next;
                return next;
            }
            doc = next + 1;
        }
    }
}

impl Matcher for IntervalMatcher {
    fn doc(&self) -> Doc {
        self.doc
    }

    fn advance(&mut self) -> Doc {
        if self.doc == END {
            return END;
        }
        self.settle(self.doc + 1)
    }

    fn seek(&mut self, target: Doc) -> Doc {
        if self.doc >= target {
            return self.doc;
        }
        self.settle(target)
    }

    fn score(&mut self) -> f32 {
        // Lucene's saturation function, with a pivot of 1.
        self.boost * self.freq / (self.freq + 1.0)
    }

    fn cost(&self) -> u64 {
        self.terms.cost()
    }
}

/// The maximum number of positions of a term in a document that are considered.
const POSITIONS_MAX: usize = 1000;

/// Returns the minimal spans of the source in a document, ordered by their first tokens and also by
/// their last ones. Empty when time runs out.
fn spans(source: &Interval, terms: &mut Terms, doc: Doc, effort: &Effort) -> Vec<Span> {
    if !effort.go_on() {
        return vec![];
    }
    match source {
        Interval::Term(term) => {
            let positions = terms.positions(term, doc, effort);
            let span = |at: &u32| Span {
                first: *at,
                last: *at,
                gaps: 0,
            };
            positions.iter().map(span).collect()
        }
        Interval::Phrase(parts) => {
            let ordered = ordered(parts, terms, doc, effort);
            ordered.into_iter().filter(|s| s.gaps == 0).collect()
        }
        Interval::Ordered(parts) => least(ordered(parts, terms, doc, effort)),
        Interval::Unordered(parts) => least(unordered(parts, terms, doc, effort)),
        Interval::Or(parts) => {
            let all = parts.iter();
            let all = all.flat_map(|part| spans(part, terms, doc, effort));
            let all: Vec<Span> = all.collect();
            // Sorting takes longer than finding them.
            effort.spend(all.len());
            least(all)
        }
        Interval::MaxWidth(width, part) => {
            let mut found = spans(part, terms, doc, effort);
            found.retain(|s| s.last - s.first < *width);
            found
        }
        Interval::MaxGaps(gaps, part) => {
            let mut found = spans(part, terms, doc, effort);
            found.retain(|s| s.gaps <= *gaps);
            found
        }
    }
}

/// Returns spans that contain all parts in order: each starts with a span of the first part and
/// continues with the nearest.
fn ordered(parts: &[Interval], terms: &mut Terms, doc: Doc, effort: &Effort) -> Vec<Span> {
    let Some((first, others)) = parts.split_first() else {
        return vec![];
    };
    let mut found = spans(first, terms, doc, effort);
    for part in others {
        effort.spend(found.len());
        let next = spans(part, terms, doc, effort);
        let follow = |before: Span| {
            let after = nearest(&next, before.last.saturating_add(1))?;
            Some(Span {
                first: before.first,
                last: after.last,
                gaps: before.gaps + after.gaps + (after.first - before.last - 1),
            })
        };
        found = found.into_iter().filter_map(follow).collect();
    }
    found
}

/// Returns spans that contain all parts in any order, without overlap.
fn unordered(parts: &[Interval], terms: &mut Terms, doc: Doc, effort: &Effort) -> Vec<Span> {
    let all = parts.iter().map(|part| spans(part, terms, doc, effort));
    let all: Vec<Vec<Span>> = all.collect();
    if all.iter().any(Vec::is_empty) {
        return vec![];
    }
    let starts: Vec<u32> = all.iter().flatten().map(|s| s.first).collect();
    let mut found = vec![];
    for start in starts {
        if !effort.spend(all.len()) {
            return vec![];
        }
        let nearest: Option<Vec<Span>> = all.iter().map(|spans| nearest(spans, start)).collect();
        let Some(mut nearest) = nearest else {
            continue;
        };
        nearest.sort_unstable();
        if nearest.windows(2).any(|pair| pair[1].first <= pair[0].last) {
            continue;
        }
        let (first, last) = (nearest[0].first, nearest[nearest.len() - 1].last);
        let within: u32 = nearest.iter().map(|s| s.last - s.first + 1 - s.gaps).sum();
        found.push(Span {
            first,
            last,
            gaps: last - first + 1 - within,
        });
    }
    found
}

/// Returns the span with the earliest end that does not start before `from`. As spans are ordered
/// by both, it is the first one.
fn nearest(spans: &[Span], from: u32) -> Option<Span> {
    let at = spans.partition_point(|s| s.first < from);
    spans.get(at).copied()
}

/// Keeps the spans that contain no other.
fn least(mut spans: Vec<Span>) -> Vec<Span> {
    spans.sort_unstable_by_key(|s| (s.first, Reverse(s.last), s.gaps));
    spans.dedup();
    // From the last to the first: keeps each that does not contain one that starts with it or after
    // it.
    let mut kept: Vec<Span> = vec![];
    for span in spans.into_iter().rev() {
        let holds_another = kept.last().is_some_and(|next| {
            next.last <= span.last && (next.first, next.last) != (span.first, span.last)
        });
        if !holds_another {
            kept.push(span);
        }
    }
    kept.reverse();
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn spans_of(pairs: &[(u32, u32, u32)]) -> Vec<Span> {
        let span = |&(first, width, gaps): &(u32, u32, u32)| Span {
            first,
            last: first + width,
            gaps,
        };
        pairs.iter().map(span).collect()
    }

    proptest! {
        #[test]
        fn the_least_spans_are_those_with_no_other_within(
            pairs in proptest::collection::vec((0_u32..20, 0_u32..6, 0_u32..2), 0..30),
            from in 0_u32..25,
        ) {
            let all = spans_of(&pairs);
            let is_within = |a: &Span, b: &Span| {
                b.first >= a.first && b.last <= a.last && (a.first, a.last) != (b.first, b.last)
            };
            let mut expected: Vec<Span> = all
                .iter()
                .filter(|a| !all.iter().any(|b| is_within(a, b)))
                .copied()
                .collect();
            expected.sort_unstable();
            expected.dedup();
            let found = least(all);
            prop_assert_eq!(&found, &expected);
            let after = expected.iter().filter(|s| s.first >= from);
            let after = after.min_by_key(|s| (s.last, s.first)).copied();
            prop_assert_eq!(nearest(&found, from), after);
        }
    }
}
