//! The answer of a query, produced piece by piece.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use document::{DocId, write_json_string};
use fair_queue::Admission;
use mango::{Bookmark, Doc, Find, LiftedValue, SortedGroups, TextHits};

use super::clock::ClockLooks;
use super::cursor::{advance, next_of};
use super::docs::Documents;
use super::index_rows::{Column, Covering, Rows};
use super::text_search::Hits;
use super::uses::index_order;
use super::{FindIndex, FindLimits, FindPlan};
use crate::counters;
use crate::text::{AnswerThreads, TextIndex};
use crate::views::ViewIndex;
use crate::{DatabaseAs, Error, Read, ReadDoc, ReadOptions};

/// Rows that are examined in one piece without a match, before the thread is released.
const ROWS_A_PIECE_MAX: u64 = 256;
/// A piece takes no longer, but for its last document.
pub(super) const PIECE_TIME: Duration = Duration::from_millis(50);
/// Fields of an answer that are written in about the time that a document takes to be read.
const LIGHT_FIELDS_MAX: usize = 64;

/// Work done for a response so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stats {
    pub keys_examined: u64,
    pub docs_examined: u64,
    pub results: u64,
}

/// While this is held, a client waits for the response.
pub struct Client(Arc<AtomicBool>);

impl Drop for Client {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// An answer.
pub struct FindAnswer {
    pub(crate) db: DatabaseAs,
    pub(crate) find: Arc<Find>,
    pub(crate) index: FindIndex,
    pub(crate) source: Source,
    pub(crate) stats: Stats,
    pub(crate) limits: FindLimits,
    warnings: Vec<String>,
    nothing: bool,
    skip: u64,
    /// Number of matches that are still to be found. Statistics count up to one match after the
    /// returned ones, as in CouchDB.
    left: u64,
    looks_behind: bool,
    first: bool,
    /// The place of the last match, even if it was skipped.
    last: Option<Vec<u8>>,
    /// The place of the match behind those that are given.
    behind: Option<Vec<u8>>,
    /// Groups that are still to be given.
    pub(crate) groups: Option<SortedGroups>,
    started: Instant,
    options: ReadOptions,
    /// The text of the current document.
    text: Vec<u8>,
    /// The client has gone.
    is_idle: Arc<AtomicBool>,
    /// A document of the last piece was too long for a thread that serves requests.
    is_long: bool,
    /// Whether the current piece is made on a thread for slow work.
    is_apart: bool,
}

impl Drop for FindAnswer {
    fn drop(&mut self) {
        counters::FIND_DOCS_EXAMINED.add(self.stats.docs_examined);
        counters::FIND_KEYS_EXAMINED.add(self.stats.keys_examined);
        counters::FIND_RESULTS.add(self.stats.results);
        counters::FIND_TIMES.record(self.started.elapsed());
        if !self.warnings.is_empty() || self.scan_warning().is_some() {
            counters::FIND_WARNED.count();
        }
        if self.find.aggregate.is_none() {
            let index = &self.index.index;
            let design = index.ddoc.as_deref().map(|ddoc| (ddoc, &*index.name));
            let examined = self.stats.docs_examined.max(self.stats.keys_examined);
            self.db.shared_views().finds.note(
                (self.db.name(), design),
                (examined, self.stats.results),
                || index_order(&self.find),
            );
        }
    }
}

/// Where the next piece begins.
enum Resume {
    At(Vec<u8>),
    Behind(Vec<u8>),
}

/// Where documents come from.
pub(crate) enum Source {
    Nothing,
    Index(Box<Rows>),
    Documents(Box<Documents>),
    Text(Box<Hits>),
}

/// Requests turns, one after another.
type Turns = Box<dyn Fn() -> Admission + Send>;

impl FindAnswer {
    pub(crate) fn open(
        db: DatabaseAs,
        plan: FindPlan,
        view: Option<(Arc<ViewIndex>, usize)>,
        limits: FindLimits,
    ) -> Result<FindAnswer, Error> {
        let FindPlan {
            find,
            index,
            plan,
            warnings,
            place,
        } = plan;
        let bookmark = place.transpose()?;
        let looks_behind = find.execution_stats && find.aggregate.is_none();
        let left = find.limit.saturating_add(u64::from(looks_behind));
        let source = if plan.nothing || (left == 0 && find.aggregate.is_none()) {
            Source::Nothing
        } else if let Some((view_index, view)) = view {
            let mut rows = Rows::open(
                &db,
                &view_index,
                view,
                &find,
                &plan,
                &index,
                bookmark.as_deref(),
            )?;
            if let Some(place) = bookmark.as_deref() {
                rows.go_on_behind(place);
            }
            Source::Index(Box::new(rows))
        } else {
            let documents = Documents::open(&db, &find, &plan, bookmark.clone())?;
            Source::Documents(Box::new(documents))
        };
        let plan = (plan.nothing, warnings);
        Ok(FindAnswer::new(db, (find, index), source, plan, limits))
    }

    /// An answer by a text index.
    pub(super) fn open_text(
        db: DatabaseAs,
        plan: FindPlan,
        text_index: &Arc<TextIndex>,
        limits: FindLimits,
    ) -> Result<FindAnswer, Error> {
        let FindPlan {
            find,
            index,
            plan,
            warnings,
            place,
        } = plan;
        let place = place.transpose()?;
        let source = match &index.index.text {
            Some(definition) if !plan.nothing && find.limit > 0 => {
                let hits = Hits::open(&db, text_index, &find, definition, place)?;
                Source::Text(Box::new(hits))
            }
            _ => Source::Nothing,
        };
        let plan = (plan.nothing, warnings);
        Ok(FindAnswer::new(db, (find, index), source, plan, limits))
    }

    fn new(
        db: DatabaseAs,
        (find, index): (Arc<Find>, FindIndex),
        source: Source,
        (nothing, warnings): (bool, Vec<String>),
        limits: FindLimits,
    ) -> FindAnswer {
        let looks_behind = find.execution_stats && find.aggregate.is_none();
        let left = find.limit.saturating_add(u64::from(looks_behind));
        FindAnswer {
            db,
            source,
            nothing,
            warnings,
            skip: find.skip,
            left,
            looks_behind,
            first: true,
            last: None,
            behind: None,
            groups: None,
            started: Instant::now(),
            options: ReadOptions {
                conflicts: find.conflicts,
                ..ReadOptions::default()
            },
            text: vec![],
            stats: Stats::default(),
            is_idle: Arc::default(),
            is_long: false,
            is_apart: false,
            limits,
            find,
            index,
        }
    }

    /// Returns a guard to hold while the client waits for the response: when it is dropped, work
    /// for it ends.
    pub fn client(&self) -> Client {
        Client(self.is_idle.clone())
    }

    /// Requests turns for the pieces of an answer that may be slow, and returns the kind of threads
    /// that make them: those of searches, or of scans.
    pub fn turns(&self) -> Option<(Turns, AnswerThreads)> {
        match &self.source {
            Source::Text(hits) => {
                let (turns, threads) = hits.turns(self.find.aggregate.is_some());
                Some((Box::new(turns), threads))
            }
            _ if self.may_block() => {
                let turns = self.db.shared_views().scans.turns.of(self.db.share());
                Some((Box::new(turns), AnswerThreads::Blocking))
            }
            Source::Nothing | Source::Index(_) | Source::Documents(_) => None,
        }
    }

    /// # Errors
    /// The database is gone, or the client.
    pub(crate) fn is_wanted(&self) -> Result<(), Error> {
        self.db.live()?;
        match self.is_idle.load(Relaxed) {
            true => Err(Error::ClientGone),
            false => Ok(()),
        }
    }

    /// Whether a text index is searched.
    pub fn searches_text(&self) -> bool {
        matches!(self.source, Source::Text(_))
    }

    /// Whether the next [`FindAnswer::next_chunk`] judges a document that is too long for a thread
    /// that serves requests.
    pub fn is_long(&self) -> bool {
        self.is_long
    }

    /// Whether making a piece can be slow.
    fn may_block(&self) -> bool {
        match &self.source {
            Source::Nothing => false,
            Source::Documents(_) | Source::Text(_) => true,
            Source::Index(_) => {
                self.find.aggregate.is_some()
                    || self.find.limit > 1_000
                    || !self.find.selector.is_light()
                    || self.find.fields.names().len() > LIGHT_FIELDS_MAX
            }
        }
    }

    /// Appends documents joined by `,\r\n` until about `soft_bytes` were added; returns false at
    /// the end.
    pub fn next_chunk(&mut self, out: &mut Vec<u8>, soft_bytes: usize) -> Result<bool, Error> {
        self.is_wanted()?;
        let enough = out.len() + soft_bytes.max(1);
        self.is_apart = std::mem::take(&mut self.is_long) || self.may_block();
        let mut source = std::mem::replace(&mut self.source, Source::Nothing);
        let more = match &mut source {
            Source::Nothing => false,
            Source::Index(rows) => self.index_rows(rows, out, enough)?,
            Source::Documents(documents) => documents.next_chunk(self, out, enough)?,
            Source::Text(hits) => self.text_hits(hits, out, enough)?,
        };
        if more {
            self.source = source;
        } else if self.looks_behind {
            self.count_as_couchdb(&source)?;
        }
        Ok(more)
    }

    /// Makes the statistics those of CouchDB, which reads one range of keys where less is read here.
    fn count_as_couchdb(&mut self, source: &Source) -> Result<(), Error> {
        let behind = self.behind.as_deref();
        let (keys, reads_documents) = match source {
            // Of hits there are no keys.
            Source::Nothing | Source::Text(_) => return Ok(()),
            // Hidden documents are not counted either.
            Source::Documents(_) if !self.db.sees_all() => (self.stats.docs_examined, true),
            Source::Index(rows) if rows.is_of_user => {
                (self.stats.keys_examined, rows.covering.is_none())
            }
            Source::Documents(documents) => (documents.count_up_to(behind)?, true),
            Source::Index(rows) => (rows.count_up_to(behind)?, rows.covering.is_none()),
        };
        self.stats.keys_examined = keys;
        self.stats.docs_examined = if reads_documents { keys } else { 0 };
        Ok(())
    }

    fn index_rows(
        &mut self,
        rows: &mut Rows,
        out: &mut Vec<u8>,
        enough: usize,
    ) -> Result<bool, Error> {
        let range = rows.range.clone();
        let before = self.stats.keys_examined;
        let began = Instant::now();
        let mut resume = None;
        let mut cursors = rows.cursors(&range)?;
        let mut more = false;
        let mut clock = ClockLooks::default();
        while let Some(next) = next_of(&cursors, rows.descending) {
            // `next_of` has found a row there.
            let Some(row) = cursors[next].row()? else {
                break;
            };
            if cursors[next].is_unsettled {
                resume = Some(Resume::At(row.place.to_vec()));
                more = true;
                break;
            }
            if self.left == 0 {
                break;
            }
            if self.take_row(&row, rows.covering.as_ref(), out)? {
                self.given(row.place);
            }
            if self.is_long && !self.is_apart {
                resume = Some(Resume::At(row.place.to_vec()));
                more = true;
                break;
            }
            let seen: u64 = cursors.iter().map(|c| c.examined).sum();
            let is_enough = out.len() >= enough || seen >= ROWS_A_PIECE_MAX;
            let looks = clock.is_due(row.stored.key.len()) || rows.covering.is_none();
            if is_enough || looks && began.elapsed() >= PIECE_TIME {
                resume = Some(Resume::Behind(row.place.to_vec()));
                more = true;
                break;
            }
            advance(&mut cursors, next, rows.is_of_user)?;
        }
        // Each shard's next row is read already, but it may never be returned, or is read again.
        let ahead = cursors.iter().filter(|c| c.place().is_some()).count() as u64;
        let seen: u64 = cursors.iter().map(|c| c.examined).sum();
        drop(cursors);
        let last_given = self.left == 0 || matches!(resume, Some(Resume::Behind(_)));
        let ahead = ahead.saturating_sub(u64::from(last_given));
        self.stats.keys_examined = before + seen.saturating_sub(ahead);
        match resume {
            Some(Resume::Behind(place)) => rows.go_on_behind(&place),
            Some(Resume::At(place)) => rows.go_on_at(place),
            None => {}
        }
        Ok(more)
    }

    /// Appends the document of a row if it matches, unless it is skipped; returns whether it
    /// matches.
    fn take_row(
        &mut self,
        row: &index::ViewRow<'_>,
        covering: Option<&Covering>,
        out: &mut Vec<u8>,
    ) -> Result<bool, Error> {
        let Some(covering) = covering else {
            return self.take_document(&row.id()?, out);
        };
        let mut quoted = vec![];
        if covering.has_id {
            let id = row.id()?;
            quoted.reserve(id.len() + 2);
            write_json_string(&id, &mut quoted);
        }
        if !self.find.selector.is_light_for(row.stored.key.len()) {
            self.is_long = true;
            if !self.is_apart {
                return Ok(false);
            }
        }
        let key: Vec<&[u8]> = mango::elements(row.stored.key).collect();
        let of = |column: Column| match column {
            Column::Id => LiftedValue::Value(&quoted),
            Column::Key(n) => key
                .get(n)
                .map_or(LiftedValue::Missing, |text| LiftedValue::Value(text)),
        };
        let selected = |span: usize| of(covering.selector[span]);
        if !self.find.selector.matches_found(&selected)? {
            return Ok(false);
        }
        if !self.counts() {
            return Ok(true);
        }
        self.separate(out);
        self.find
            .fields
            .write_found(&|span| of(covering.answer[span]), out);
        Ok(true)
    }

    /// Reads a document and appends it if it matches, unless it is skipped; returns whether it
    /// matches.
    pub(crate) fn take_document(&mut self, id: &str, out: &mut Vec<u8>) -> Result<bool, Error> {
        self.take_hit(id, TextHits::ALL, out)
    }

    /// Reads a document that has the words of these `$text` operators, and does with it as [`FindAnswer::take_document`].
    pub(super) fn take_hit(
        &mut self,
        id: &str,
        texts: TextHits,
        out: &mut Vec<u8>,
    ) -> Result<bool, Error> {
        let mut text = std::mem::take(&mut self.text);
        text.clear();
        let matches = self.write_document(id, &mut text)? && self.take_text(&text, texts, out)?;
        self.text = text;
        Ok(matches)
    }

    fn take_text(
        &mut self,
        text: &[u8],
        texts: TextHits,
        out: &mut Vec<u8>,
    ) -> Result<bool, Error> {
        if !self.find.selector.is_light_for(text.len()) {
            self.is_long = true;
            if !self.is_apart {
                return Ok(false);
            }
        }
        self.stats.docs_examined += 1;
        let doc = Doc::whole(text);
        if !self.find.selector.matches_hit(&doc, texts)? {
            return Ok(false);
        }
        if !self.counts() {
            return Ok(true);
        }
        self.separate(out);
        if self.find.fields.is_all() {
            out.extend_from_slice(text);
        } else {
            self.find.fields.write(&doc, out);
        }
        Ok(true)
    }

    /// Appends the visible part of a document; returns whether there is one.
    fn write_document(&self, id: &str, out: &mut Vec<u8>) -> Result<bool, Error> {
        if !self.options.conflicts && self.db.sees_all() {
            return self.db.write_text(id, out);
        }
        let read = self.read_document(id)?;
        if let Some(doc) = &read {
            out.extend_from_slice(&doc.json);
        }
        Ok(read.is_some())
    }

    /// The part of a document that the caller sees.
    pub(crate) fn read_document(&self, id: &str) -> Result<Option<ReadDoc>, Error> {
        let id = DocId::new(id).map_err(|e| Error::BadRequest(e.to_string()))?;
        match self.db.read(&id, &self.options) {
            Ok(Read::Found(doc)) => Ok(Some(doc)),
            Ok(_) | Err(Error::Forbidden(_)) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Counts a match; returns false for those that are skipped.
    fn counts(&mut self) -> bool {
        if self.skip > 0 {
            self.skip -= 1;
            return false;
        }
        self.left -= 1;
        if self.looks_behind && self.left == 0 {
            return false;
        }
        self.stats.results += 1;
        true
    }

    fn separate(&mut self, out: &mut Vec<u8>) {
        if !std::mem::take(&mut self.first) {
            out.extend_from_slice(b",\r\n");
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.left == 0
    }

    /// Matches that are still to be found.
    pub(crate) fn wanted(&self) -> u64 {
        self.left.saturating_add(self.skip)
    }

    /// Notes the place of a match.
    pub(crate) fn given(&mut self, place: &[u8]) {
        let noted = match self.looks_behind && self.left == 0 {
            true => &mut self.behind,
            false => &mut self.last,
        };
        let noted = noted.get_or_insert_default();
        noted.clear();
        noted.extend_from_slice(place);
    }

    /// No document can match: CouchDB answers with `docs` alone.
    pub fn is_nothing(&self) -> bool {
        self.nothing
    }

    /// Where the next page begins, after the last piece.
    pub fn bookmark(&self) -> String {
        match (&self.last, &self.find.bookmark) {
            (Some(place), _) => Bookmark {
                place: place.clone(),
            }
            .encode(&self.index.index),
            (None, Some(given)) => given.clone(),
            (None, None) => "nil".to_owned(),
        }
    }

    /// CouchDB's warnings, one a line.
    pub fn warning(&self) -> Option<String> {
        let mut all = self.warnings.clone();
        all.extend(self.scan_warning().map(str::to_owned));
        (!all.is_empty()).then(|| all.join("\n"))
    }

    fn scan_warning(&self) -> Option<&'static str> {
        // A group is made of many documents.
        let threshold = match self.find.aggregate {
            Some(_) => 0,
            None => self.limits.scan_warning_threshold,
        };
        mango::plan::scan_warning(self.stats.docs_examined, self.stats.results, threshold)
    }

    /// Documents and keys that were examined, and results that were returned.
    pub fn examined(&self) -> (u64, u64, u64) {
        let stats = &self.stats;
        (stats.docs_examined, stats.keys_examined, stats.results)
    }

    /// `execution_stats`, when they were requested.
    pub fn execution_stats(&self) -> Option<serde_json::Value> {
        if !self.find.execution_stats {
            return None;
        }
        let docs = self.stats.docs_examined;
        let (docs, quorum) = if self.find.r > 1 {
            (0, docs)
        } else {
            (docs, 0)
        };
        Some(serde_json::json!({
            "total_keys_examined": self.stats.keys_examined,
            "total_docs_examined": docs,
            "total_quorum_docs_examined": quorum,
            "results_returned": self.stats.results,
            "execution_time_ms": self.started.elapsed().as_micros() as f64 / 1000.0,
        }))
    }
}
