//! Documents with terms near each other, by functions of intervals.

use tantivy::DocSet;
use tantivy::postings::{Postings, SegmentPostings};

use super::{Doc, END, Matcher};
use crate::query::Interval;

/// From the first to the last token of something, and the tokens between its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Span {
    first: u32,
    last: u32,
    gaps: u32,
}

/// A term of the source with its postings, or without when the segment has none.
type Terms = Vec<(String, Option<SegmentPostings>)>;

/// Intervals' documents.
pub(crate) struct IntervalMatcher {
    source: Interval,
    terms: Terms,
    boost: f32,
    docs: Doc,
    doc: Doc,
    freq: f32,
}

impl IntervalMatcher {
    /// `docs`: of the segment.
    pub fn new(source: Interval, terms: Terms, boost: f32, docs: Doc) -> IntervalMatcher {
        let mut matcher = IntervalMatcher {
            source,
            terms,
            boost,
            docs,
            doc: 0,
            freq: 0.0,
        };
        matcher.settle(0);
        matcher
    }

    fn settle(&mut self, mut doc: Doc) -> Doc {
        loop {
            // The next document that has any of the terms.
            let mut next = END;
            for (_, postings) in &mut self.terms {
                if let Some(postings) = postings {
                    if postings.doc() < doc {
                        postings.seek(doc);
                    }
                    next = next.min(postings.doc());
                }
            }
            if next == END || next >= self.docs {
                self.doc = END;
                return END;
            }
            let spans = spans(&self.source, &mut self.terms, next);
            if !spans.is_empty() {
                // Lucene's sum: an interval counts by its width beyond what it has to be.
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
        // Lucene's saturation function with a pivot of 1.
        self.boost * self.freq / (self.freq + 1.0)
    }

    fn cost(&self) -> u64 {
        let costs = self.terms.iter().filter_map(|(_, p)| p.as_ref());
        costs.map(|p| u64::from(p.size_hint())).sum()
    }
}

/// Of a term, its first places in a document count: the work grows with their square.
const POSITIONS_MAX: usize = 1000;

/// The least spans of the source in a document, in their order.
fn spans(source: &Interval, terms: &mut Terms, doc: Doc) -> Vec<Span> {
    match source {
        Interval::Term(term) => {
            let found = terms.iter_mut().find(|(known, _)| known == term);
            let Some(postings) = found
                .and_then(|(_, p)| p.as_mut())
                .filter(|p| p.doc() == doc)
            else {
                return vec![];
            };
            let mut positions = vec![];
            postings.positions(&mut positions);
            let span = |at| Span {
                first: at,
                last: at,
                gaps: 0,
            };
            positions
                .into_iter()
                .take(POSITIONS_MAX)
                .map(span)
                .collect()
        }
        Interval::Phrase(parts) => {
            let ordered = ordered(parts, terms, doc);
            ordered.into_iter().filter(|s| s.gaps == 0).collect()
        }
        Interval::Ordered(parts) => least(ordered(parts, terms, doc)),
        Interval::Unordered(parts) => least(unordered(parts, terms, doc)),
        Interval::Or(parts) => least(
            parts
                .iter()
                .flat_map(|part| spans(part, terms, doc))
                .collect(),
        ),
        Interval::MaxWidth(width, part) => {
            let mut found = spans(part, terms, doc);
            found.retain(|s| s.last - s.first < *width);
            found
        }
        Interval::MaxGaps(gaps, part) => {
            let mut found = spans(part, terms, doc);
            found.retain(|s| s.gaps <= *gaps);
            found
        }
    }
}

/// Spans that have all parts one after the other: each begins with a span of the first part and goes on with the nearest.
fn ordered(parts: &[Interval], terms: &mut Terms, doc: Doc) -> Vec<Span> {
    let Some((first, others)) = parts.split_first() else {
        return vec![];
    };
    let mut found = spans(first, terms, doc);
    for part in others {
        let next = spans(part, terms, doc);
        let follow = |before: Span| {
            let after = next.iter().filter(|s| s.first > before.last);
            let after = after.min_by_key(|s| (s.last, s.first))?;
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

/// Spans that have all parts in any order, none of which overlap.
fn unordered(parts: &[Interval], terms: &mut Terms, doc: Doc) -> Vec<Span> {
    let all: Vec<Vec<Span>> = parts.iter().map(|part| spans(part, terms, doc)).collect();
    if all.iter().any(Vec::is_empty) {
        return vec![];
    }
    let starts: Vec<u32> = all.iter().flatten().map(|s| s.first).collect();
    let mut found = vec![];
    for start in starts {
        // The span of each part that ends first, from here on.
        let nearest: Option<Vec<Span>> = all
            .iter()
            .map(|spans| {
                let from_here = spans.iter().filter(|s| s.first >= start);
                from_here.min_by_key(|s| (s.last, s.first)).copied()
            })
            .collect();
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

/// Those that have no other within.
fn least(mut spans: Vec<Span>) -> Vec<Span> {
    spans.sort_unstable_by_key(|s| (s.first, s.last));
    spans.dedup();
    let holds_another = |s: &Span| {
        spans.iter().any(|o| {
            o != s
                && o.first >= s.first
                && o.last <= s.last
                && (o.first, o.last) != (s.first, s.last)
        })
    };
    spans
        .iter()
        .filter(|s| !holds_another(s))
        .copied()
        .collect()
}
