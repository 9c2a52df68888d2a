//! Explains the score of a hit, clause by clause of the query.

use std::borrow::Borrow;
use std::ops::Bound;
use std::rc::Rc;

use crate::answer::Hit;
use crate::explanation::Explanation;
use crate::match_hits::places_of;
use crate::matcher::{BoxMatcher, Doc};
use crate::reader::Reader;
use crate::request::Request;
use crate::schema::split_term;
use crate::segment::Segment;
use crate::similarity::Weight;
use crate::statistics::Numbers;
use crate::weigh::{WeightedQuery, weigh};
use crate::{Effort, Error};

/// Explains the scores of hits. `request` is the request of the answer with the statistics of the
/// answer, so that the scores agree.
///
/// # Errors
/// Errors of a search. It is charged to the search's effort.
pub fn explain(
    readers: &[impl Borrow<Reader>],
    request: &Request,
    hits: &[Hit],
    effort: &Rc<Effort>,
) -> Result<Vec<Explanation>, Error> {
    let before = effort.taken();
    let nothing = || Explanation::new(0.0, "no part of the query that scores");
    let mut all = vec![nothing(); hits.len()];
    let mut bytes = hits.len() * nothing().bytes();
    effort.take(bytes)?;
    let numbers = Numbers::new(request.statistics.clone());
    for (shard, segments) in places_of(hits) {
        let Some(reader) = readers.get(shard) else {
            continue;
        };
        let reader: &Reader = reader.borrow();
        // Filters do not affect the score.
        let about = (request.similarity, &**effort);
        let scaled = weigh(&request.query, &[], about, &numbers.of(shard, reader))?;
        for (number, docs) in segments {
            let Some(files) = reader.segments.get(number as usize) else {
                continue;
            };
            let mut segment = Segment::new(files, &reader.layout, effort)?;
            let wanted: Vec<Doc> = docs.iter().map(|(doc, _)| *doc).collect();
            segment.narrow(&scaled.weighed, &wanted)?;
            let mut part = Scorer::new(&segment, &scaled.weighed)?;
            for (doc, at) in docs {
                if let Some(found) = part.explain(doc, effort)? {
                    let found = scaled_by(scaled.scale, found);
                    bytes += found.bytes();
                    effort.take(found.bytes())?;
                    all[at] = found;
                }
            }
            // A cursor that ran out of time or memory finds nothing.
            effort.step()?;
            effort.give_back_to(before);
            effort.take(bytes)?;
        }
    }
    Ok(all)
}

fn scaled_by(scale: f32, inner: Explanation) -> Explanation {
    if scale == 1.0 {
        return inner;
    }
    let norm = Explanation::new(scale, "queryNorm, which all scores have in common");
    Explanation::of(inner.value * scale, "product of", vec![inner, norm])
}

/// A clause of a query, with its cursor over a segment.
struct Scorer<'w> {
    weighed: &'w WeightedQuery,
    matcher: Option<BoxMatcher>,
    /// The clauses that add to the score.
    parts: Vec<Scorer<'w>>,
}

impl<'w> Scorer<'w> {
    fn new(segment: &Segment<'_>, weighed: &'w WeightedQuery) -> Result<Scorer<'w>, Error> {
        let parts = match weighed {
            WeightedQuery::Boolean { must, should, .. } => {
                let parts = must.iter().chain(should);
                parts.map(|part| Scorer::new(segment, part)).collect()
            }
            _ => Ok(vec![]),
        };
        let matcher = match weighed {
            // Only their own cursors know frequencies.
            WeightedQuery::Term(_) | WeightedQuery::Phrase { .. } => segment.open(weighed)?,
            _ => segment.matcher(weighed)?,
        };
        Ok(Scorer {
            weighed,
            matcher,
            parts: parts?,
        })
    }

    /// Explains a document that is not before the last one; `None` when it does not match.
    fn explain(&mut self, doc: Doc, effort: &Effort) -> Result<Option<Explanation>, Error> {
        effort.step()?;
        let Some(matcher) = self.matcher.as_mut() else {
            return Ok(None);
        };
        if !matcher.has(doc) {
            return Ok(None);
        }
        let value = matcher.score();
        let found = |weight: &Weight, matcher: &mut BoxMatcher| match matcher.frequency() {
            Some((freq, length)) => weight.explain(freq, length),
            None => vec![],
        };
        Ok(Some(match self.weighed {
            WeightedQuery::Term(term) => {
                let (field, word) = split_term(&term.term);
                let details = found(&term.weight, matcher);
                Explanation::of(value, format!("{field}:{word}, product of"), details)
            }
            WeightedQuery::Phrase {
                phrase_positions,
                weight,
                field,
                ..
            } => {
                let details = found(weight, matcher);
                let words = phrase_positions.iter().map(|(_, terms)| {
                    let words: Vec<_> = terms.iter().map(|term| split_term(term).1).collect();
                    words.join("|")
                });
                let words: Vec<String> = words.collect();
                let text = format!("{field}:\"{}\", product of", words.join(" "));
                Explanation::of(value, text, details)
            }
            WeightedQuery::Boolean { coordinated, .. } => {
                let matching = matcher.matching_of_parts();
                let mut details = vec![];
                for part in &mut self.parts {
                    details.extend(part.explain(doc, effort)?);
                }
                let text = match (coordinated, matching) {
                    (Some(parts), Some(matching)) if *parts > 0 => {
                        format!("sum of, times coord {matching}/{parts}")
                    }
                    _ => "sum of".to_owned(),
                };
                Explanation::of(value, text, details)
            }
            others => Explanation::new(value, alike(others)),
        }))
    }
}

/// Describes clauses whose score does not depend on terms.
fn alike(weighed: &WeightedQuery) -> String {
    match weighed {
        WeightedQuery::Interval { field, .. } => format!("intervals in {field}"),
        WeightedQuery::Everything(_) => "*:*, the same for all documents".to_owned(),
        WeightedQuery::Numbers { field, .. } => {
            format!("numbers of {field}, constant score")
        }
        WeightedQuery::Terms { bounds, .. } => match &bounds.0 {
            Bound::Included(term) | Bound::Excluded(term) => {
                let (field, _) = split_term(term);
                format!("words of {field}, constant score")
            }
            Bound::Unbounded => "words, constant score".to_owned(),
        },
        _ => "constant score".to_owned(),
    }
}
