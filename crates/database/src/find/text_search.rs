//! Queries by a text index: its hits, each of which is held against the selector.

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use fair_queue::Admission;
use mango::text::{Cover, HitCondition, SortField, default_query, sort_fields, text_nodes_in_or};
use mango::{Find, FindError, TextDefinition, TextHits, TextKind};
use search::{Effort, Hit, Query, Reader, Request, SortBy, SortKey, Types};
use serde_json::Value;

use super::rows::FindAnswer;
use super::{FindIndex, FindLimits, FindPlan};
use crate::text::bookmark::{self, Place};
use crate::text::{AnswerThreads, TextCost, TextIndex, TextSpec};
use crate::{DatabaseAs, Error, counters};

/// Hits that are requested first, and at most. Each page is a separate search, so each is twice
/// as long as the previous one.
const HITS_A_PAGE: usize = 200;
const HITS_A_PAGE_MAX: usize = 12_800;
/// A longer bookmark is read in a turn.
const LIGHT_PLACE_BYTES_MAX: usize = 4 << 10;

/// The hits of an index in its state at the start of the query.
pub(crate) struct Hits {
    db: DatabaseAs,
    index: Arc<TextIndex>,
    readers: Vec<Arc<Reader>>,
    query: TextFind,
    /// The parsed query. Before the first turn only a light one is parsed.
    parsed: Option<ParsedFind>,
    /// Hits, and the `$text` operators of the selector whose words they have.
    page: VecDeque<(Hit, TextHits)>,
    bookmarks: bookmark::Writer,
    is_last_page: bool,
}

/// A query that a text index serves.
struct TextFind {
    find: Arc<Find>,
    definition: Arc<TextDefinition>,
    /// Where to continue, from a bookmark.
    place: Option<Vec<u8>>,
}

/// A query in the engine's form.
struct ParsedFind {
    types: Types,
    request: Request,
    /// The queries of the `$text` operators in an `$or`, by their numbers. Each hit is tested against them.
    text_nodes_in_or: Vec<(usize, Query)>,
    /// The memory that it takes.
    bytes: usize,
}

impl DatabaseAs {
    /// Opens the answer of a query that a text index serves. A query that does not name the index
    /// uses another one if this index lacks documents.
    pub(super) async fn find_by_text(
        &self,
        mut plan: FindPlan,
        spec: &Arc<TextSpec>,
        limits: FindLimits,
    ) -> Result<FindAnswer, Error> {
        let design = plan.index.index.ddoc.clone().unwrap_or_default();
        let index = self.text_index_of_spec(design, spec).await?;
        if plan.find.update && !plan.find.stale {
            self.update_text(&index).await?;
        }
        let lacks = match index.left_out() {
            0 => None,
            n => Some(format!(
                "Documents that text index {} lacks: {n}",
                spec.name
            )),
        };
        let is_asked_for = !plan.find.use_index.is_empty() || plan.find.selector.has_text();
        match lacks {
            Some(lacks) if !is_asked_for => {
                let others = |i: &FindIndex| i.text.is_none();
                let indexes = self.find_indexes_async().await?;
                let find = Find::clone(&plan.find);
                let mut plan = self.plan_among(find, &limits, &indexes, &others)?;
                plan.warnings.push(format!("{lacks}. It was not used."));
                return Box::pin(self.find(plan, limits)).await;
            }
            Some(lacks) => plan
                .warnings
                .push(format!("{lacks}. See the log for the cause.")),
            None => {}
        }
        self.note_used_text(&index);
        FindAnswer::open_text(self.clone(), plan, &index, limits)
    }
}

impl TextFind {
    /// Returns the part of the selector that the index finds, if parsing the query takes so little
    /// time that no turn is needed for it.
    fn light_cover(&self) -> Option<Cover> {
        let place = self.place.as_ref();
        if place.is_some_and(|place| place.len() > LIGHT_PLACE_BYTES_MAX) {
            return None;
        }
        Cover::of_light(&self.find.selector, &self.definition)
    }

    /// Parses the query. `cover` is the part of the selector that the index finds.
    fn parse(
        &self,
        cover: Cover,
        (index, readers): (&TextIndex, &[Arc<Reader>]),
        effort: &Effort,
    ) -> Result<ParsedFind, Error> {
        let find = &*self.find;
        let before = effort.taken();
        let (sort, _) = sort_fields(find, self.definition.kind)?;
        let mut sort: Vec<SortKey> = sort.into_iter().map(sort_key).collect();
        if sort.is_empty() {
            sort.push(SortKey {
                by: SortBy::Score,
                reversed: false,
            });
        }
        let after = match self.place.as_deref().map(std::str::from_utf8) {
            None => Place::default(),
            Some(Ok(text)) => bookmark::read(text, &sort).map_err(|_| no_bookmark(find))?,
            Some(Err(_)) => return Err(no_bookmark(find)),
        };
        let query = match cover {
            Cover::Everything => Query::All,
            Cover::Part(condition) => engine_query(condition, index, effort)?,
        };
        let texts = text_nodes_in_or(&find.selector, &self.definition).into_iter();
        let query_of = |(number, condition)| -> Result<(usize, Query), Error> {
            Ok((number, engine_query(condition, index, effort)?))
        };
        let text_nodes_in_or = texts.map(query_of);
        let text_nodes_in_or = text_nodes_in_or.collect::<Result<_, Error>>()?;
        let partition = find.partition.iter().map(|partition| Query::Term {
            field: search::PARTITION.to_owned(),
            term: partition.clone(),
        });
        Ok(ParsedFind {
            types: search::types_of(readers).into_owned(),
            request: Request {
                query,
                filters: partition.collect(),
                similarity: search::Similarity::TfIdf,
                sort,
                limit: HITS_A_PAGE,
                after: after.order,
                statistics: after.statistics,
                counts: vec![],
                ranges: vec![],
            },
            text_nodes_in_or,
            bytes: effort.taken() - before,
        })
    }
}

impl ParsedFind {
    /// The next hits, and the `$text` operators whose words each has.
    fn search(
        &self,
        readers: &[Arc<Reader>],
        effort: &Rc<Effort>,
    ) -> Result<(search::Answer, Vec<TextHits>), search::Error> {
        let page = search::search(readers, &self.request, &self.types, effort)?;
        let mut texts = vec![TextHits::ALL; page.hits.len()];
        for (number, query) in &self.text_nodes_in_or {
            let query = (query, self.request.similarity);
            let have = search::match_hits(readers, query, &page.hits, effort)?;
            let lack = texts.iter_mut().zip(have).filter(|(_, has)| !has);
            lack.for_each(|(texts, _)| texts.remove(*number));
        }
        Ok((page, texts))
    }

    /// Lets the next page begin behind one. Returns whether that was the last.
    fn continue_behind(&mut self, found: &mut search::Answer) -> bool {
        let request = &mut self.request;
        let is_last = found.hits.len() < request.limit;
        request.limit = (2 * request.limit).min(HITS_A_PAGE_MAX);
        if let Some(last) = found.hits.last() {
            request.after = Some(last.order.clone());
        }
        request.statistics = std::mem::take(&mut found.statistics);
        is_last
    }
}

impl Hits {
    /// `place`: where to continue, from a bookmark. A query that is not light is parsed in a turn,
    /// with the first page.
    pub fn open(
        db: &DatabaseAs,
        index: &Arc<TextIndex>,
        find: &Arc<Find>,
        definition: &Arc<TextDefinition>,
        place: Option<Vec<u8>>,
    ) -> Result<Hits, Error> {
        let query = TextFind {
            find: find.clone(),
            definition: definition.clone(),
            place,
        };
        let readers = index.readers();
        let parsed = match query.light_cover() {
            Some(cover) => Some(query.parse(cover, (&**index, &*readers), &Effort::default())?),
            None => None,
        };
        Ok(Hits {
            db: db.clone(),
            index: index.clone(),
            readers,
            query,
            parsed,
            page: VecDeque::new(),
            bookmarks: bookmark::Writer::default(),
            is_last_page: false,
        })
    }

    /// Requests turns to search for some pages, or, for an aggregate, for all; and on which threads.
    pub fn turns(
        &self,
        needs_all: bool,
    ) -> (
        impl Fn() -> Admission + Send + 'static + use<>,
        AnswerThreads,
    ) {
        let of_hit = |parsed: &ParsedFind| {
            let keys = parsed.request.sort.len();
            keys + parsed.text_nodes_in_or.len()
        };
        let parsed = self.parsed.as_ref();
        let cost = TextCost {
            of_hit: parsed.map_or(0, of_hit),
            groups: usize::from(needs_all),
            // Of a query that is not parsed yet, parsing is slow already.
            reads_stored_text: parsed.is_none_or(|parsed| !is_plain(&parsed.request.query)),
            ..TextCost::default()
        };
        self.db.text_turns(self.index.docs(), &cost)
    }

    /// The place behind a hit of the page, as a bookmark has it.
    fn behind(&self, hit: &Hit) -> String {
        self.bookmarks.write(&hit.order)
    }

    /// Searches for the next page.
    fn next_page(&mut self) -> Result<(), Error> {
        loop {
            let effort = Rc::new(self.db.text_effort());
            let parsed = match self.parsed.take() {
                Some(parsed) => {
                    effort.take(parsed.bytes)?;
                    parsed
                }
                None => {
                    let cover = Cover::of(&self.query.find.selector, &self.query.definition);
                    let of_index = (&*self.index, &*self.readers);
                    self.query.parse(cover, of_index, &effort)?
                }
            };
            let parsed = self.parsed.insert(parsed);
            match parsed.search(&self.readers, &effort) {
                // Hits of a longer page were too many, not what the query itself takes.
                Err(search::Error::TooMuch { .. }) if parsed.request.limit > HITS_A_PAGE => {
                    parsed.request.limit /= 2;
                }
                found => {
                    let (mut found, texts) = found?;
                    self.is_last_page = parsed.continue_behind(&mut found);
                    let request = &parsed.request;
                    self.bookmarks = bookmark::Writer::new(&request.sort, &request.statistics);
                    self.page = found.hits.into_iter().zip(texts).collect();
                    return Ok(());
                }
            }
        }
    }

    /// The next hit, and the `$text` operators whose words it has.
    pub fn next(&mut self) -> Result<Option<(Hit, TextHits)>, Error> {
        if self.page.is_empty() && !self.is_last_page {
            let began = Instant::now();
            let index = self.index.clone();
            index.with_files(|| self.next_page())?;
            counters::TEXT_SEARCH_TIMES.record(began.elapsed());
        }
        Ok(self.page.pop_front())
    }
}

/// Whether a query consists only of words.
fn is_plain(query: &Query) -> bool {
    match query {
        Query::All | Query::Term { .. } => true,
        Query::Boolean {
            must,
            should,
            must_not,
            ..
        } => must.iter().chain(should).chain(must_not).all(is_plain),
        _ => false,
    }
}

fn no_bookmark(find: &Find) -> Error {
    let given = find.bookmark.clone().unwrap_or_default();
    FindError::InvalidBookmark(Value::from(given)).into()
}

fn sort_key(field: SortField) -> SortKey {
    SortKey {
        by: match field.is_number {
            true => SortBy::Numbers(field.field),
            false => SortBy::Strings(field.field),
        },
        reversed: field.descending,
    }
}

/// Translates a condition into a query of the engine.
fn engine_query(
    condition: HitCondition,
    index: &TextIndex,
    effort: &Effort,
) -> Result<Query, Error> {
    use std::ops::Bound::{Included, Unbounded};
    let all = |parts: Vec<HitCondition>| -> Result<Vec<Query>, Error> {
        parts
            .into_iter()
            .map(|part| engine_query(part, index, effort))
            .collect()
    };
    Ok(match condition {
        HitCondition::Word(field, term) => Query::Term { field, term },
        HitCondition::Prefix(field, prefix) => Query::Prefix { field, prefix },
        HitCondition::Number(field, low, high) => Query::Numbers {
            field,
            low: low.map_or(Unbounded, Included),
            high: high.map_or(Unbounded, Included),
        },
        HitCondition::Text(text) => index.understand(&default_query(&text), effort)?,
        HitCondition::All(parts) => Query::all(all(parts)?),
        HitCondition::Any(parts) => Query::any(all(parts)?),
        HitCondition::Without(condition, without) => Query::Boolean {
            must: vec![engine_query(*condition, index, effort)?],
            should: vec![],
            must_not: vec![engine_query(*without, index, effort)?],
            should_min: 0,
        },
    })
}

impl FindAnswer {
    /// Appends the documents of matching hits, until about `enough` bytes; returns false at the
    /// end.
    pub(super) fn text_hits(
        &mut self,
        hits: &mut Hits,
        out: &mut Vec<u8>,
        enough: usize,
    ) -> Result<bool, Error> {
        let began = Instant::now();
        while !self.is_full() {
            let Some((hit, texts)) = hits.next()? else {
                return Ok(false);
            };
            let examined = self.stats.docs_examined;
            let matches = self.take_hit(&hit.id, texts, out)?;
            // As in CouchDB, where searches by Nouveau count no keys.
            if hits.query.definition.kind == TextKind::Text {
                self.stats.keys_examined += self.stats.docs_examined - examined;
            }
            if matches {
                self.given(hits.behind(&hit).as_bytes());
            }
            if out.len() >= enough || began.elapsed() >= super::rows::PIECE_TIME {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
