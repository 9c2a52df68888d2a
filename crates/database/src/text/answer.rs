//! Results of a text index.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use analysis::Flavour;
use analysis::highlight::{Checks, fragments};
use analysis::query as parsed;
use search::query::{WordWeight, likeness_of};
use search::{
    AnswerMemory, Effort, Explanation, GroupRequest, Hit, Reader, Request, SortValue, Statistics,
    Types, types_of,
};
use serde_json::value::RawValue;

use super::query::{TextHighlight, TextQuery};
use super::translate::translate;
use super::{TextIndex, bookmark, stored};
use crate::rules::DatabaseAs;
use crate::{Error, counters};

/// Longest hits of a response, with their stored fields or documents, since a response is held in
/// memory as a whole; also the most memory for finding them.
pub const TEXT_ANSWER_BYTES_MAX: usize = 64 << 20;

/// Highlighting searches stored texts for at most 64 parts of a query that match many words, such
/// as prefixes, word by word.
const HIGHLIGHT_PARTS_MAX: usize = 64;

/// The sort values of a hit.
pub type TextOrder = Vec<SortValue>;

/// A document that was found.
#[derive(Clone, Debug)]
pub struct TextHit {
    /// Its id.
    pub id: String,
    /// Its sort values, including the id.
    pub order: TextOrder,
    /// Its number in its segment: without meaning to clients, but Clouseau shows it.
    pub number: u32,
    /// The stored fields, an object.
    pub fields: Box<RawValue>,
    /// Fragments of them with the matches, by field.
    pub highlights: Option<Vec<(String, Vec<String>)>>,
    /// The computation of its score.
    pub explanation: Option<Explanation>,
}

/// Hits with one string.
#[derive(Clone, Debug)]
pub struct TextGroup {
    /// The string; `None` for hits without one.
    pub by: Option<String>,
    /// How many hits there are.
    pub total: u64,
    /// The first of them.
    pub hits: Vec<TextHit>,
}

/// Counts by field and name, the greatest first.
pub type TextCounts = Vec<(String, Vec<(String, u64)>)>;

/// The result of a search.
#[derive(Clone, Debug)]
pub struct TextAnswer {
    /// How many hits there are.
    pub total: u64,
    /// The first of them.
    pub hits: Vec<TextHit>,
    /// The groups, if they are requested; there are no other hits then.
    pub groups: Option<Vec<TextGroup>>,
    /// Where to continue.
    pub bookmark: String,
    /// Hits by value of each field that was to be counted.
    pub counts: Option<TextCounts>,
    /// Hits by range of each field that has ranges.
    pub ranges: Option<TextCounts>,
}

impl DatabaseAs {
    /// Searches a text index in its current state. The caller has a turn ([`DatabaseAs::text_turn`]),
    /// and charges what it makes of the answer to the memory, while it has them. Blocks.
    ///
    /// # Errors
    /// [`Error::BadRequest`] and [`Error::Text`] for invalid queries.
    pub fn search_text(
        &self,
        index: &TextIndex,
        query: &TextQuery,
    ) -> Result<(TextAnswer, AnswerMemory), Error> {
        self.refuse_limited()?;
        self.note_used_text(index);
        let effort = Rc::new(self.text_effort());
        let began = Instant::now();
        let answer = index.with_files(|| search_now(index, query, &effort));
        counters::TEXT_SEARCH_TIMES.record(began.elapsed());
        Ok((self.if_live(answer)?, effort.answer_memory()))
    }
}

pub(super) fn search_now(
    index: &TextIndex,
    query: &TextQuery,
    effort: &Rc<Effort>,
) -> Result<TextAnswer, Error> {
    let readers = index.readers();
    let types = types_of(&readers);
    let engine_query = query.engine_query(index, &types, effort)?;
    let mut shown = HitOutput {
        readers: &readers,
        effort,
        highlighter: match &query.highlight {
            Some(highlight) => Some(Highlighter::new(
                index,
                highlight,
                &engine_query.parsed,
                effort,
            )?),
            None => None,
        },
        include_fields: query.include_fields.as_deref(),
        explains: query.explain,
        bytes: 0,
    };
    if let Some(groups) = &engine_query.groups {
        return grouped(&types, &engine_query.request, groups, &mut shown);
    }
    let request = engine_query.request;
    let found = search::search(&readers, &request, &types, effort)?;
    let bookmark = match (found.hits.last(), &query.bookmark) {
        (Some(hit), _) => bookmark::Writer::new(&request.sort, &found.statistics).write(&hit.order),
        (None, Some(same)) => same.clone(),
        (None, None) => bookmark::beginning(),
    };
    let hits = shown.hits(found.hits, &request, &found.statistics)?;
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
        groups: None,
        bookmark,
        counts: query.counts.is_some().then(|| counts.collect()),
        ranges: query.ranges.is_some().then(|| ranges.collect()),
    })
}

/// The first groups, and the first hits of each.
fn grouped(
    types: &Types,
    request: &Request,
    groups: &GroupRequest,
    shown: &mut HitOutput<'_>,
) -> Result<TextAnswer, Error> {
    let found = search::search_groups(shown.readers, request, groups, types, shown.effort)?;
    let (mut groups, mut hits) = (vec![], vec![]);
    for mut group in found.groups {
        groups.push((group.by, group.total, group.hits.len()));
        hits.append(&mut group.hits);
    }
    // All at once: an explanation weighs the query again.
    let hits = shown.hits(hits, request, &found.statistics)?;
    let mut hits = hits.into_iter();
    let groups = groups.into_iter().map(|(by, total, count)| TextGroup {
        by,
        total,
        hits: hits.by_ref().take(count).collect(),
    });
    Ok(TextAnswer {
        total: found.total,
        hits: vec![],
        groups: Some(groups.collect()),
        bookmark: bookmark::beginning(),
        counts: None,
        ranges: None,
    })
}

/// Hits with the data that is shown of them.
struct HitOutput<'a> {
    readers: &'a [Arc<Reader>],
    effort: &'a Rc<Effort>,
    highlighter: Option<Highlighter<'a>>,
    include_fields: Option<&'a [String]>,
    explains: bool,
    /// Size of the hits so far.
    bytes: usize,
}

impl HitOutput<'_> {
    /// Counts bytes of the answer, and charges them with the memory that they take `besides`.
    fn add(&mut self, bytes: usize, besides: usize) -> Result<(), Error> {
        self.bytes += bytes;
        match self.bytes > TEXT_ANSWER_BYTES_MAX {
            true => Err(Error::TextAnswerTooLong),
            false => Ok(self.effort.hold_answer(bytes + besides)?),
        }
    }

    /// Hits of an answer to a request, whose scores came of these statistics.
    fn hits(
        &mut self,
        hits: Vec<Hit>,
        request: &Request,
        statistics: &Statistics,
    ) -> Result<Vec<TextHit>, Error> {
        let explanations = match self.explains {
            false => vec![],
            true => {
                let request = Request {
                    statistics: statistics.clone(),
                    ..request.clone()
                };
                search::explain(self.readers, &request, &hits, self.effort)?
            }
        };
        let mut explanations = explanations.into_iter();
        self.effort.hold_answer(hits.len() * size_of::<TextHit>())?;
        let mut shown = Vec::with_capacity(hits.len());
        for hit in hits {
            let explanation = explanations.next();
            self.add(explanation.as_ref().map_or(0, Explanation::bytes), 0)?;
            shown.push(TextHit {
                explanation,
                ..self.hit(hit)?
            });
        }
        Ok(shown)
    }

    fn hit(&mut self, hit: Hit) -> Result<TextHit, Error> {
        let stored = self.readers[hit.shard].stored(hit.segment, hit.doc)?;
        self.add(hit.bytes() + stored.len(), 0)?;
        self.effort.step()?;
        let highlights = match self.highlighter.take() {
            None => None,
            Some(highlighter) => {
                let highlights = highlighter.highlights(&stored, self);
                self.highlighter = Some(highlighter);
                Some(highlights?)
            }
        };
        Ok(TextHit {
            id: hit.id,
            order: hit.order,
            number: hit.doc,
            fields: stored::shown(stored, self.include_fields)?,
            highlights,
            explanation: None,
        })
    }
}

/// Cuts parts out of stored texts.
struct Highlighter<'a> {
    index: &'a TextIndex,
    highlight: &'a TextHighlight,
    parsed: parsed::Query,
    /// Parts of the query that match many words.
    many: Vec<(parsed::Query, WordWeight)>,
}

impl<'a> Highlighter<'a> {
    fn new(
        index: &'a TextIndex,
        highlight: &'a TextHighlight,
        parsed: &parsed::Query,
        effort: &Rc<Effort>,
    ) -> Result<Highlighter<'a>, Error> {
        let mut parts = vec![];
        parsed.visit(&mut |part| {
            if matches!(
                part,
                parsed::Query::Prefix { .. }
                    | parsed::Query::Wildcard { .. }
                    | parsed::Query::Regexp { .. }
                    | parsed::Query::Fuzzy { .. }
                    | parsed::Query::Range { .. }
            ) && !parts.contains(part)
            {
                parts.push(part.clone());
            }
        });
        let many = parts.into_iter().take(HIGHLIGHT_PARTS_MAX).map(|part| {
            // Of words alone, whatever else the part finds.
            let words = translate(part.clone(), Flavour::Nouveau)?;
            let likeness = likeness_of(&words, effort)?;
            Ok((part, likeness))
        });
        Ok(Highlighter {
            index,
            highlight,
            parsed: parsed.clone(),
            many: many.collect::<Result<_, Error>>()?,
        })
    }

    fn highlights(
        &self,
        stored: &str,
        shown: &mut HitOutput<'_>,
    ) -> Result<Vec<(String, Vec<String>)>, Error> {
        let effort = shown.effort.clone();
        let likeness = |part: &parsed::Query, word: &str| {
            let (_, likeness) = self.many.iter().find(|(known, _)| known == part)?;
            effort.spend(word.len()).then(|| likeness(word)).flatten()
        };
        let checks = Checks {
            likeness: &likeness,
            go_on: &|steps| effort.spend(steps),
        };
        let values = stored::values_of(stored, &self.highlight.fields)?;
        let mut highlights = vec![];
        for (field, value) in self.highlight.fields.iter().zip(values) {
            let analyzer = self.index.analyzers.of(field);
            let mut of_field = vec![];
            let mut cut_text = |text: &str| -> Result<(), Error> {
                let cut = fragments(
                    text,
                    analyzer,
                    &self.parsed,
                    &self.highlight.options,
                    &checks,
                );
                effort.step()?;
                let bytes = cut.iter().map(String::len).sum();
                shown.add(bytes, cut.len() * size_of::<String>())?;
                of_field.extend(cut);
                Ok(())
            };
            if let Some(value) = value {
                stored::each_text(value, &mut cut_text)?;
            }
            highlights.push((field.clone(), of_field));
        }
        Ok(highlights)
    }
}

/// The greatest counts; of equal ones, the first by name.
fn top(counts: impl IntoIterator<Item = (String, u64)>, n: usize) -> Vec<(String, u64)> {
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    counts.truncate(n);
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_greatest_counts_come_first() {
        let counts = [("z", 2), ("y", 4), ("x", 4)].map(|(s, n)| (s.to_owned(), n));
        let names: Vec<_> = top(counts, 2).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["x", "y"]);
    }
}
