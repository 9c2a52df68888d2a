//! Change feeds: each document once, at its newest change, from a snapshot that the feed moves on when asked.

use std::collections::HashSet;
use std::sync::Arc;

use document::{Rev, RevRef, Revision, StoredBody, write_json_string};
use functions::{Admission, Place};
use storage::{Body, ChangeIter, Record, Row, Shard, View};

use crate::Error;
use crate::attachments::ShownAttachments;
use crate::database::Database;
use crate::read::{FUNCTION_REVS_MAX, write_leaves, write_path};
use crate::rows::write_members;
use crate::rules::Watch;
use crate::seq::Seqs;

/// With up to this many ids, a `_doc_ids` feed looks the documents up instead of scanning (as CouchDB's
/// `changes_doc_ids_optimization_threshold`).
const DOC_IDS_LOOKED_UP_MAX: usize = 100;

/// Decides which changes a feed shows.
pub trait ChangeFilter: Send + Sync {
    /// Whether `matches` wants the document's JSON.
    fn needs_doc(&self) -> bool;
    /// `doc`: the whole JSON of the revision looked at (with `_id`, `_rev`, `_deleted`), when `needs_doc`.
    fn matches(&self, id: &str, deleted: bool, doc: Option<&[u8]>) -> bool;
    /// With `include_docs`: what to show in place of the document (`fields` of `_selector`).
    fn project(&self, _doc: &[u8]) -> Option<Vec<u8>> {
        None
    }
}

/// Decides on many documents at once, for filters whose call costs more than a document. May block.
pub trait BatchFilter: Send + Sync {
    /// One answer a document. `docs` are whole JSON texts, with `_id`, `_rev`, `_revisions`, `_deleted`.
    fn matches(&self, place: &Place, docs: &[Vec<u8>]) -> Result<Vec<bool>, Error>;
    /// Asks for leave to be called.
    fn admission(&self) -> Admission;
}

/// So many changes are shown to a [`BatchFilter`] at once,
const BATCH_CHANGES_MAX: usize = 100;
/// and about so many bytes.
const BATCH_BYTES_MAX: usize = 1 << 20;

#[derive(Clone)]
pub enum Filter {
    None,
    DocIds(Arc<HashSet<String>>),
    /// Design documents only.
    Design,
    Custom(Arc<dyn ChangeFilter>),
    Batch(Arc<dyn BatchFilter>),
}

#[derive(Clone, Debug)]
pub enum Since {
    Start,
    Now,
    /// An update seq as a client sent it.
    Seq(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// The winning revision.
    MainOnly,
    /// All leaves.
    AllDocs,
}

impl Filter {
    /// Whether reading the feed may block for longer than reads take.
    pub fn may_block(&self) -> bool {
        matches!(self, Filter::Batch(_))
    }
}

#[derive(Clone)]
pub struct ChangesQuery {
    pub since: Since,
    pub descending: bool,
    pub limit: Option<u64>,
    pub style: Style,
    pub include_docs: bool,
    pub conflicts: bool,
    pub attachments: ShownAttachments,
    pub filter: Filter,
    /// Write the seq of every so manyth row only.
    pub seq_interval: Option<u64>,
}

/// How rows are put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// Joined by `,\n`.
    Array,
    /// One a line.
    Lines,
    /// `data: {…}`, `id: "seq"`, an empty line.
    Events,
}

/// A change feed over one snapshot; `refresh` moves it on to what was written since.
pub struct Changes {
    db: Arc<Database>,
    query: ChangesQuery,
    /// Empty while the feed waits: a snapshot held keeps the space of deleted rows, of all databases.
    views: Vec<View>,
    /// Where the snapshot ends in each shard.
    ends: Vec<u64>,
    /// What was looked at last in each shard.
    at: Seqs,
    /// The shard being read.
    shard: usize,
    /// Rows to look up, when there are few; the last one first.
    lookups: Option<Vec<(usize, u64)>>,
    rows: u64,
    /// Changes after `since` at the start, for feeds that look documents up; and the rows sent before.
    pending_at_start: u64,
    rows_at_start: u64,
    json: Vec<u8>,
    revs: Vec<u8>,
    /// For the next call of the filter.
    place: Option<Place>,
    /// Who is shown only what rules allow.
    pub(crate) watch: Option<Watch>,
}

impl Database {
    /// Opens a feed.
    pub fn changes(self: &Arc<Self>, query: ChangesQuery) -> Result<Changes, Error> {
        self.live()?;
        let shards = self.all_shards();
        let views = shards
            .iter()
            .map(|s| s.view())
            .collect::<Result<Vec<_>, _>>()?;
        let ends: Vec<u64> = views.iter().map(|v| v.meta.update_seq).collect();
        let epoch = self.epoch();
        let at = match &query.since {
            Since::Start => Seqs::start(epoch, shards.len()),
            Since::Now => Seqs {
                epoch,
                at: ends.clone(),
            },
            Since::Seq(text) => known(Seqs::parse(text, epoch, shards.len())?, &ends),
        };
        let mut feed = Changes {
            db: self.clone(),
            views,
            ends,
            at,
            shard: 0,
            lookups: None,
            rows: 0,
            pending_at_start: 0,
            rows_at_start: 0,
            json: vec![],
            revs: vec![],
            place: None,
            watch: None,
            query,
        };
        feed.pending_at_start = feed.count_after()?;
        feed.plan_lookups()?;
        if feed.query.descending {
            feed.at.at = feed.ends.clone();
        }
        Ok(feed)
    }
}

/// Changes that a filter sees together.
#[derive(Default)]
struct Batch {
    changes: Vec<BatchedChange>,
    /// The documents of all their revisions.
    docs: Vec<Vec<u8>>,
    bytes: usize,
}

struct BatchedChange {
    seq: u64,
    /// The row.
    value: Vec<u8>,
    revs: Vec<Rev>,
}

/// What a row did in the feed.
#[derive(PartialEq, Eq)]
enum Wrote {
    Row,
    Nothing,
}

impl Changes {
    /// Appends rows until about `soft_bytes` were added; false when the snapshot or the limit is exhausted.
    pub fn next_chunk(
        &mut self,
        framing: Framing,
        out: &mut Vec<u8>,
        soft_bytes: usize,
    ) -> Result<bool, Error> {
        // Whatever happens, it is not kept while the feed waits.
        let place = self.place.take();
        self.db.live()?;
        let enough = out.len() + soft_bytes;
        if self.lookups.is_some() {
            return self.next_lookups(framing, out, enough);
        }
        if let Filter::Batch(filter) = &self.query.filter {
            let filter = filter.clone();
            return self.next_batch(filter.as_ref(), place, framing, out);
        }
        // A filter may pass over many rows: come up for air now and then.
        let mut passed = 0;
        while self.shard < self.views.len() {
            let shard = self.db.all_shards()[self.shard].clone();
            let snapshot = self.views[self.shard].snapshot.clone();
            let from = self.at.at[self.shard];
            let mut it = ChangeIter::new(&snapshot, shard.number, from, self.query.descending);
            while let Some((seq, value)) = it.entry() {
                if self.limit_reached() {
                    return Ok(false);
                }
                if out.len() >= enough || passed >= 10_000 {
                    return Ok(true);
                }
                // Descending feeds go on below this row.
                self.at.at[self.shard] = if self.query.descending { seq - 1 } else { seq };
                if self.write_row(&shard, seq, value, framing, out)? == Wrote::Nothing {
                    passed += 1;
                }
                it.next();
            }
            it.status()?;
            self.end_shard();
        }
        Ok(false)
    }

    fn end_shard(&mut self) {
        let at = &mut self.at.at[self.shard];
        *at = if self.query.descending {
            0
        } else {
            self.ends[self.shard].max(*at)
        };
        self.shard += 1;
    }

    /// Shows some changes to the filter and appends those that pass; false when there are none any more.
    fn next_batch(
        &mut self,
        filter: &dyn BatchFilter,
        place: Option<Place>,
        framing: Framing,
        out: &mut Vec<u8>,
    ) -> Result<bool, Error> {
        while self.shard < self.views.len() && !self.limit_reached() {
            let shard = self.db.all_shards()[self.shard].clone();
            let batch = self.gather(&shard)?;
            if batch.changes.is_empty() {
                self.end_shard();
                continue;
            }
            let place = match place {
                Some(place) => place,
                None => filter.admission().wait()?,
            };
            let passed = filter.matches(&place, &batch.docs)?;
            drop(place);
            let mut passed = passed.into_iter();
            for change in batch.changes {
                if self.limit_reached() {
                    return Ok(false);
                }
                let seq = change.seq;
                self.at.at[self.shard] = if self.query.descending { seq - 1 } else { seq };
                self.revs.clear();
                for rev in &change.revs {
                    if passed.next() == Some(true) {
                        push_rev(rev.as_ref(), &mut self.revs);
                    }
                }
                if !self.revs.is_empty() {
                    let row = Row::decode(seq, &change.value)?;
                    self.emit_row(&shard, seq, &row, framing, out)?;
                }
            }
            return Ok(true);
        }
        Ok(false)
    }

    /// The next changes of the shard, with the revisions that a filter looks at.
    fn gather(&self, shard: &Arc<Shard>) -> Result<Batch, Error> {
        let view = &self.views[self.shard];
        let from = self.at.at[self.shard];
        let mut it = ChangeIter::new(&view.snapshot, shard.number, from, self.query.descending);
        let mut batch = Batch::default();
        while let Some((seq, value)) = it.entry() {
            if batch.changes.len() >= BATCH_CHANGES_MAX || batch.bytes >= BATCH_BYTES_MAX {
                break;
            }
            let row = Row::decode(seq, value)?;
            let record = view
                .record(shard, row.id)?
                .ok_or(Error::Storage(storage::Error::Corrupt("document record")))?;
            let shown = match self.query.style {
                Style::MainOnly => 1,
                Style::AllDocs => usize::MAX,
            };
            let mut revs = vec![];
            for leaf in record.tree.leaves().into_iter().take(shown) {
                let rev = leaf.rev.to_rev();
                let mut doc = function_doc(view, shard, row.id, &record, &rev, leaf.revision)?;
                self.censor_for_filter(row.id, &mut doc);
                batch.bytes += doc.len();
                batch.docs.push(doc);
                revs.push(rev);
            }
            batch.changes.push(BatchedChange {
                seq,
                value: value.to_vec(),
                revs,
            });
            it.next();
        }
        it.status()?;
        Ok(batch)
    }

    fn next_lookups(
        &mut self,
        framing: Framing,
        out: &mut Vec<u8>,
        enough: usize,
    ) -> Result<bool, Error> {
        while !self.limit_reached() {
            if out.len() >= enough {
                return Ok(true);
            }
            let Some((i, seq)) = self.lookups.as_mut().and_then(Vec::pop) else {
                break;
            };
            let shard = self.db.all_shards()[i].clone();
            let snapshot = self.views[i].snapshot.clone();
            let it = ChangeIter::new(&snapshot, shard.number, seq - 1, false);
            if let Some((found, value)) = it.entry().filter(|(found, _)| *found == seq) {
                self.at.at[i] = seq;
                self.shard = i;
                self.write_row(&shard, found, value, framing, out)?;
            }
            it.status()?;
        }
        let all_seen = self.lookups.as_ref().is_some_and(Vec::is_empty);
        if all_seen && !self.query.descending {
            for (at, end) in self.at.at.iter_mut().zip(&self.ends) {
                *at = (*end).max(*at);
            }
        }
        Ok(false)
    }

    /// Finds the rows of a short list of ids, in the feed's order.
    fn plan_lookups(&mut self) -> Result<(), Error> {
        let Filter::DocIds(ids) = &self.query.filter else {
            return Ok(());
        };
        if ids.len() > DOC_IDS_LOOKED_UP_MAX {
            return Ok(());
        }
        let mut rows = vec![];
        for id in ids.iter() {
            let i = self.db.shard_index(id);
            let shard = &self.db.all_shards()[i];
            if let Some(value) = self.views[i].record_value(shard, id)? {
                let seq = storage::RecordHead::decode(&value)?.seq;
                if seq > self.at.at[i] {
                    rows.push((i, seq));
                }
            }
        }
        rows.sort_unstable();
        if !self.query.descending {
            rows.reverse();
        }
        self.lookups = Some(rows);
        Ok(())
    }

    fn write_row(
        &mut self,
        shard: &Arc<Shard>,
        seq: u64,
        value: &[u8],
        framing: Framing,
        out: &mut Vec<u8>,
    ) -> Result<Wrote, Error> {
        let row = Row::decode(seq, value)?;
        if !self.pick_revs(shard, seq, &row)? {
            return Ok(Wrote::Nothing);
        }
        self.emit_row(shard, seq, &row, framing, out)?;
        Ok(Wrote::Row)
    }

    /// Writes a row with the revisions in `revs`.
    fn emit_row(
        &mut self,
        shard: &Arc<Shard>,
        seq: u64,
        row: &Row<'_>,
        framing: Framing,
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let mut json = std::mem::take(&mut self.json);
        json.clear();
        json.extend_from_slice(b"{\"seq\":");
        let shown = self
            .query
            .seq_interval
            .is_none_or(|n| self.rows.is_multiple_of(n.max(1)));
        if shown {
            json.push(b'"');
            self.write_seq(seq, &mut json);
            json.push(b'"');
        } else {
            json.extend_from_slice(b"null");
        }
        json.extend_from_slice(b",\"id\":");
        write_json_string(row.id, &mut json);
        json.extend_from_slice(b",\"changes\":[");
        json.extend_from_slice(&self.revs);
        json.push(b']');
        if row.deleted {
            json.extend_from_slice(b",\"deleted\":true");
        }
        if self.query.include_docs {
            json.extend_from_slice(b",\"doc\":");
            self.write_doc(shard, seq, row, &mut json)?;
        }
        json.push(b'}');
        match framing {
            Framing::Array => {
                if self.rows > 0 {
                    out.extend_from_slice(b",\n");
                }
                out.extend_from_slice(&json);
            }
            Framing::Lines => {
                out.extend_from_slice(&json);
                out.push(b'\n');
            }
            Framing::Events => {
                out.extend_from_slice(b"data: ");
                out.extend_from_slice(&json);
                out.extend_from_slice(b"\nid: \"");
                self.write_seq(seq, out);
                out.extend_from_slice(b"\"\n\n");
            }
        }
        self.json = json;
        self.rows += 1;
        Ok(())
    }

    /// The seq of the row just read.
    fn write_seq(&mut self, seq: u64, out: &mut Vec<u8>) {
        let i = self.shard_of_seq();
        let at = std::mem::replace(&mut self.at.at[i], seq);
        self.at.write_to(out);
        self.at.at[i] = at;
    }

    fn shard_of_seq(&self) -> usize {
        self.shard.min(self.at.at.len() - 1)
    }

    /// Fills `revs` with the revisions that the row shows; false when the filter leaves it out.
    fn pick_revs(&mut self, shard: &Arc<Shard>, seq: u64, row: &Row<'_>) -> Result<bool, Error> {
        let mut revs = std::mem::take(&mut self.revs);
        revs.clear();
        let all = self.query.style == Style::AllDocs;
        let shown = match &self.query.filter {
            // Batches have their own way.
            Filter::None | Filter::Batch(_) => true,
            Filter::Design => row.id.starts_with("_design/"),
            Filter::DocIds(ids) => ids.contains(row.id),
            Filter::Custom(filter) if !(all && row.has_other_leaves()) => {
                let doc = if filter.needs_doc() {
                    Some(self.doc_json(shard, seq, row)?)
                } else {
                    None
                };
                filter.matches(row.id, row.deleted, doc.as_deref())
            }
            Filter::Custom(filter) => {
                self.pick_filtered_leaves(shard, row, filter.as_ref(), &mut revs)?;
                let shown = !revs.is_empty();
                self.revs = revs;
                return Ok(shown);
            }
        };
        if shown {
            push_rev(row.winner.to_rev().as_ref(), &mut revs);
            if all && row.has_other_leaves() {
                for (rev, _) in row.other_leaves()? {
                    push_rev(rev.to_rev().as_ref(), &mut revs);
                }
            }
        }
        self.revs = revs;
        Ok(shown)
    }

    /// With several leaves shown, the filter sees each.
    fn pick_filtered_leaves(
        &self,
        shard: &Arc<Shard>,
        row: &Row<'_>,
        filter: &dyn ChangeFilter,
        revs: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let view = &self.views[self.shard_of_seq()];
        let Some(record) = view.record(shard, row.id)? else {
            return Ok(());
        };
        for leaf in record.tree.leaves() {
            let deleted = leaf.revision.deleted;
            let mut doc = vec![];
            view.with_body(shard, leaf.revision.seq, |body| {
                write_members(row.id, &leaf.rev.to_rev(), deleted, body, &mut doc);
                doc.push(b'}');
            })?;
            self.censor_for_filter(row.id, &mut doc);
            if filter.matches(row.id, deleted, Some(&doc)) {
                push_rev(leaf.rev, revs);
            }
        }
        Ok(())
    }

    /// The winning revision's JSON.
    fn doc_json(&self, shard: &Arc<Shard>, seq: u64, row: &Row<'_>) -> Result<Vec<u8>, Error> {
        let mut out = vec![];
        self.write_winner(shard, seq, row, ShownAttachments::default(), &mut out)?;
        out.push(b'}');
        self.censor_for_filter(row.id, &mut out);
        Ok(out)
    }

    fn censor_for_filter(&self, id: &str, doc: &mut Vec<u8>) {
        if let Some(watch) = &self.watch {
            watch.censor_for_filter(id, doc);
        }
    }

    fn write_winner(
        &self,
        shard: &Arc<Shard>,
        seq: u64,
        row: &Row<'_>,
        attachments: ShownAttachments,
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let rev: Rev = row.winner.to_rev();
        let write = |body: &[u8], out: &mut Vec<u8>| {
            let stored = StoredBody::split(body);
            write_members(row.id, &rev, row.deleted, stored.json, out);
            attachments.write(self.db.contents(), stored, out)
        };
        match row.body {
            Body::Inline(body) if row.winner_seq == seq => write(body, out),
            _ => {
                let view = &self.views[self.shard_of_seq()];
                let written = view.with_body(shard, row.winner_seq, |body| write(body, out))?;
                written.ok_or(Error::Storage(storage::Error::Corrupt("document body")))?
            }
        }
    }

    fn write_doc(
        &self,
        shard: &Arc<Shard>,
        seq: u64,
        row: &Row<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let start = out.len();
        self.write_winner(shard, seq, row, self.query.attachments, out)?;
        if self.query.conflicts && row.has_other_leaves() {
            let view = &self.views[self.shard_of_seq()];
            if let Some(record) = view.record(shard, row.id)? {
                write_leaves("_conflicts", &record.tree, &row.winner.to_rev(), false, out);
            }
        }
        out.push(b'}');
        if let Some(watch) = &self.watch {
            watch.censor(row.id, start, out);
        }
        if let Filter::Custom(filter) = &self.query.filter
            && let Some(shown) = filter.project(&out[start..])
        {
            out.truncate(start);
            out.extend_from_slice(&shown);
        }
        Ok(())
    }

    /// Rows sent so far.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Leave to call the filter's function, to be waited for before [`Changes::next_chunk`] is called on a thread for it: it is
    /// given to [`Changes::admit`].
    pub fn admission(&self) -> Admission {
        match &self.query.filter {
            Filter::Batch(filter) => filter.admission(),
            _ => Admission::free(),
        }
    }

    /// Takes leave for one call of the filter.
    pub fn admit(&mut self, place: Place) {
        self.place = Some(place);
    }

    /// Whether [`Changes::next_chunk`] may block for longer than reads take.
    pub fn may_block(&self) -> bool {
        self.query.filter.may_block() || self.query.attachments.bytes
    }

    /// Whether no change may follow when [`Changes::next_chunk`] has come to its end: later ones are newer than what was
    /// shown, so that a descending feed has no place for them.
    pub fn is_final(&self) -> bool {
        self.query.descending || self.limit_reached()
    }

    pub fn limit_reached(&self) -> bool {
        self.query.limit.is_some_and(|l| self.rows >= l)
    }

    /// The seq to go on from.
    pub fn last_seq(&self) -> String {
        self.at.to_string()
    }

    /// Changes after `last_seq`.
    pub fn pending(&self) -> Result<u64, Error> {
        let looks_up = self.lookups.is_some() || matches!(self.query.filter, Filter::Design);
        if looks_up || self.query.descending {
            // CouchDB counts down from what was there at the start.
            let sent = self.rows - self.rows_at_start;
            return Ok(self.pending_at_start.saturating_sub(sent));
        }
        self.count_after()
    }

    fn count_after(&self) -> Result<u64, Error> {
        let mut pending = 0;
        for ((shard, &end), &at) in self.db.all_shards().iter().zip(&self.ends).zip(&self.at.at) {
            if at < end {
                pending += shard.count_after(at)?;
            }
        }
        Ok(pending)
    }

    /// Lets go of the snapshot, which is exhausted, until `refresh`.
    pub fn release(&mut self) {
        self.views.clear();
        self.lookups = self.lookups.take().map(|_| vec![]);
    }

    /// Takes a new snapshot, to go on after the last row looked at. Ascending feeds only.
    pub fn refresh(&mut self) -> Result<(), Error> {
        self.db.live()?;
        self.views = self
            .db
            .all_shards()
            .iter()
            .map(|s| s.view())
            .collect::<Result<_, _>>()?;
        self.ends = self.views.iter().map(|v| v.meta.update_seq).collect();
        self.shard = 0;
        self.pending_at_start = self.count_after()?;
        self.rows_at_start = self.rows;
        self.plan_lookups()
    }
}

/// A seq beyond what a shard has reached is of a time that is lost (a restored backup): that shard starts over.
fn known(mut seqs: Seqs, ends: &[u64]) -> Seqs {
    for (at, &end) in seqs.at.iter_mut().zip(ends) {
        if *at > end {
            *at = 0;
        }
    }
    seqs
}

/// A revision as functions of design documents see it.
fn function_doc(
    view: &View,
    shard: &Arc<Shard>,
    id: &str,
    record: &Record,
    rev: &Rev,
    revision: Revision,
) -> Result<Vec<u8>, Error> {
    let mut doc = vec![];
    let written = view.with_body(shard, revision.seq, |body| {
        write_members(id, rev, revision.deleted, body, &mut doc);
    })?;
    written.ok_or(Error::Storage(storage::Error::Corrupt("document body")))?;
    if let Some(path) = record.tree.path(rev) {
        write_path(&path, Some(FUNCTION_REVS_MAX), &mut doc);
    }
    doc.push(b'}');
    Ok(doc)
}

fn push_rev(rev: RevRef<'_>, out: &mut Vec<u8>) {
    if !out.is_empty() {
        out.push(b',');
    }
    out.extend_from_slice(b"{\"rev\":");
    rev.write_json_to(out);
    out.push(b'}');
}
