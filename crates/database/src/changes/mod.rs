//! Change feeds: each document once, at its newest change, from a snapshot that the feed moves
//! forward on request.
//!
//! `query.rs` has the parameters of a feed, `row.rs` writes a row; `lookups.rs` and `batch.rs` are
//! feeds of few documents, and of filters that see many changes in one call, `selector.rs` those of
//! a selector, `visible.rs` those of users of a database with access.

mod batch;
mod coverage;
mod lookups;
mod query;
mod row;
mod selector;
mod visible;

use std::sync::Arc;

use functions::{Admission, Place, Requester, Share};
use storage::{ChangeIter, Shard, Snapshot, View};

pub use query::{BatchFilter, ChangeFilter, ChangesQuery, Filter, Framing, Since, Style};

use crate::Error;
use crate::attachments::ContentPlacement;
use crate::database::Database;
use crate::find::{ScanTurns, Working};
use crate::reader::Reader;
use crate::rules::Watch;
use crate::seq::Seqs;
use crate::time_text::time_of;
use crate::turn::Turn;
use coverage::Coverage;
use row::Wrote;

/// Room for a row that is kept while a feed waits, in bytes.
const KEPT_BYTES: usize = 4 << 10;

/// A change feed over one snapshot; `refresh` takes a new one.
pub struct Changes {
    db: Arc<Database>,
    /// The requester that its scans count to.
    pub(crate) requester: Requester,
    query: ChangesQuery,
    /// Empty while the feed waits: a snapshot held keeps the space of deleted rows, of all databases.
    views: Vec<View>,
    /// Where the snapshot ends in each shard.
    ends: Vec<u64>,
    /// The last change examined in each shard.
    at: Seqs,
    /// The row that a descending feed read last in the current shard; it continues below.
    above: Option<u64>,
    /// The shard being read.
    shard: usize,
    /// For a feed of few documents.
    lookups: Option<Lookups>,
    rows: u64,
    /// Changes after `since` at the start, for feeds that look documents up; and the rows sent before.
    pending_at_start: u64,
    rows_at_start: u64,
    json: Vec<u8>,
    revs: Vec<u8>,
    /// How contents of attachments get into the rows.
    placement: ContentPlacement,
    /// The row of which only some leaves were judged.
    partial: Option<PartialRow>,
    /// Whether the next piece is too slow to make on a thread that serves requests.
    is_long: bool,
    /// For the next call of the filter.
    place: Option<Place>,
    /// Rules that hide documents from the caller.
    pub(crate) watch: Option<Watch>,
    /// The user whose feed it is, in a database with access.
    reader: Option<Reader>,
    /// The coverage of the seqs of that feed.
    coverage: Option<Coverage>,
}

impl Database {
    /// Returns whether a seq is later than this server's state of a database of a cluster: it may be
    /// another node's.
    pub fn is_behind(&self, since: &str) -> bool {
        let shards = self.all_shards();
        let seqs = Seqs::parse(since, self.epoch(), shards.len());
        let is_later = |(at, shard): (&u64, &Arc<Shard>)| *at > shard.meta().update_seq;
        self.has_sequencer() && seqs.is_ok_and(|seqs| seqs.at.iter().zip(shards).any(is_later))
    }

    /// Opens a feed.
    pub fn changes(self: &Arc<Self>, query: ChangesQuery) -> Result<Changes, Error> {
        self.changes_for(query, None)
    }

    /// Opens a feed of the documents that a user sees.
    pub(crate) fn changes_for(
        self: &Arc<Self>,
        query: ChangesQuery,
        reader: Option<&Reader>,
    ) -> Result<Changes, Error> {
        if reader.is_some() {
            query.refuse_unseen()?;
        }
        self.live()?;
        let shards = self.all_shards();
        let views = shards.iter().map(|s| Ok(s.view()?));
        let views = self.if_live(views.collect::<Result<Vec<_>, Error>>())?;
        let ends: Vec<u64> = views.iter().map(|v| v.meta.update_seq).collect();
        let (at, coverage) = self.begin(&query, &ends, reader)?;
        let mut feed = Changes {
            db: self.clone(),
            requester: Requester::Background,
            views,
            ends,
            at,
            above: None,
            shard: 0,
            lookups: None,
            rows: 0,
            pending_at_start: 0,
            rows_at_start: 0,
            json: vec![],
            revs: vec![],
            placement: ContentPlacement::default(),
            partial: None,
            is_long: false,
            place: None,
            watch: None,
            reader: reader.cloned(),
            coverage,
            query,
        };
        feed.pending_at_start = feed.count_after()?;
        feed.plan_lookups();
        if feed.query.descending {
            feed.at.at = feed.ends.clone();
        }
        Ok(feed)
    }

    /// Returns where a feed begins, and for a user what its seqs cover.
    fn begin(
        &self,
        query: &ChangesQuery,
        ends: &[u64],
        reader: Option<&Reader>,
    ) -> Result<(Seqs, Option<Coverage>), Error> {
        let (epoch, shards) = (self.epoch(), ends.len());
        let at = |at| Seqs { epoch, at };
        let parse = |text: &str| -> Result<Seqs, Error> {
            Ok(known(Seqs::parse(text, epoch, shards)?, ends))
        };
        let at = match &query.since {
            // As in CouchDB, a descending feed begins at the newest change, whatever `since` is.
            _ if query.descending => Seqs::start(epoch, shards),
            Since::Start => Seqs::start(epoch, shards),
            Since::Now => at(ends.to_vec()),
            Since::Seq(text) => match (time_of(text), reader) {
                (Some(time), _) => at(self.seqs_since(time?, ends)?),
                (None, None) => parse(text)?,
                (None, Some(reader)) => match reader.signed(text) {
                    None => Seqs::start(epoch, shards),
                    Some(given) => {
                        let coverage = Coverage::of(reader, &given, parse)?;
                        return Ok((parse(given.seq)?, Some(coverage)));
                    }
                },
            },
        };
        Ok((at, reader.map(Coverage::whole)))
    }
}

impl Changes {
    /// Places contents of attachments in this way; the default is whole.
    pub fn place_contents(&mut self, placement: ContentPlacement) {
        self.placement = placement;
    }

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
        self.placement.begin_piece();
        let enough = out.len() + soft_bytes;
        if let Some(reader) = &self.reader {
            let reader = reader.clone();
            return self.next_visible(&reader, framing, out, enough);
        }
        if self.lookups.is_some() {
            return self.next_lookups(framing, out, enough);
        }
        if let Filter::Batch(filter) = &self.query.filter {
            let filter = filter.clone();
            return self.next_batch(filter.as_ref(), place, framing, out);
        }
        // A filter may skip many rows: release the thread periodically.
        let mut passed = 0;
        let mut pace = self.begin_piece();
        let with_document = self.query.include_docs || self.query.filter.needs_doc();
        while self.shard < self.views.len() {
            let shard = self.db.all_shards()[self.shard].clone();
            let snapshot = self.views[self.shard].snapshot.clone();
            let mut it = self.rows_to_read(&snapshot, &shard);
            while let Some((seq, value)) = it.entry() {
                if self.limit_reached() {
                    return Ok(false);
                }
                if out.len() >= enough || passed >= 10_000 || pace.is_over(with_document) {
                    return Ok(true);
                }
                match self.write_row(&shard, (seq, value), framing, out, &mut pace)? {
                    Wrote::Row => {}
                    Wrote::Nothing => passed += 1,
                    Wrote::Part => return Ok(true),
                }
                self.note_read(seq);
                // It names all leaves of its document.
                pace.turn.note(value.len());
                pace.pause();
                it.next();
            }
            it.status()?;
            self.end_shard();
        }
        Ok(false)
    }

    /// Begins a piece. It judges the document that the last one left to another thread.
    fn begin_piece(&mut self) -> Pace {
        let is_heavy = self.query.filter.is_heavy();
        Pace {
            turn: Turn::begin(),
            is_apart: std::mem::take(&mut self.is_long) || is_heavy,
            // As for scans of queries: a processor's place, which others get between two documents.
            working: is_heavy.then(|| self.scan_turns().begin(self.share())),
        }
    }

    /// Whether the next [`Changes::next_chunk`] judges a document that is too long for the thread
    /// of the last one.
    pub fn is_long(&self) -> bool {
        self.is_long
    }

    /// The rows of the current shard that were not read yet.
    fn rows_to_read<'a>(&self, snapshot: &'a Snapshot, shard: &Shard) -> ChangeIter<'a> {
        let at = self.at.at[self.shard];
        // Seqs start at 1, so `above - 1` is at least 0, where no row is.
        let from = self.above.map_or(at, |above| above - 1);
        ChangeIter::new(snapshot, shard.number, from, self.query.descending)
    }

    /// Moves the feed to this row of the current shard.
    fn note_read(&mut self, seq: u64) {
        self.at.at[self.shard] = seq;
        self.above = self.query.descending.then_some(seq);
    }

    /// Continues with the next shard. A descending feed stays at the oldest row, as in CouchDB.
    fn end_shard(&mut self) {
        if !self.query.descending {
            let at = &mut self.at.at[self.shard];
            *at = self.ends[self.shard].max(*at);
        }
        self.above = None;
        self.shard += 1;
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
            filter if self.is_long || filter.is_heavy() => self.scan_turns().of(self.share())(),
            _ => Admission::free(),
        }
    }

    fn share(&self) -> Share {
        self.requester.share(self.db.name())
    }

    fn scan_turns(&self) -> &ScanTurns {
        &self.db.shared_views().scans.turns
    }

    /// Takes leave for one call of the filter.
    pub fn admit(&mut self, place: Place) {
        self.place = Some(place);
    }

    /// Whether [`Changes::next_chunk`] may block for longer than reads take.
    pub fn may_block(&self) -> bool {
        self.is_long || self.query.filter.may_block() || self.query.attachments.bytes
    }

    /// Whether no change may follow the end of [`Changes::next_chunk`]: later changes are newer
    /// than the rows, so that a descending feed has no place for them.
    pub fn is_final(&self) -> bool {
        self.query.descending || self.limit_reached()
    }

    /// Whether the requested number of rows was returned.
    pub fn limit_reached(&self) -> bool {
        self.query.limit.is_some_and(|l| self.rows >= l)
    }

    /// The seq to continue from.
    pub fn last_seq(&self) -> String {
        if self.reader.is_none() {
            return self.at.to_string();
        }
        let mut text = vec![];
        self.write_signed(&mut text);
        String::from_utf8_lossy(&text).into_owned()
    }

    /// Changes after `last_seq`.
    pub fn pending(&self) -> Result<u64, Error> {
        if let Some(reader) = &self.reader {
            return self.count_visible(reader);
        }
        if self.counts_down() {
            let sent = self.rows - self.rows_at_start;
            return Ok(self.pending_at_start.saturating_sub(sent));
        }
        self.count_after()
    }

    /// Whether `pending` is counted down from the number at the start, as in CouchDB.
    fn counts_down(&self) -> bool {
        let looks_up = self.lookups.is_some() || matches!(self.query.filter, Filter::Design);
        looks_up || self.query.descending
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
        if let Some(lookups) = &mut self.lookups {
            lookups.end();
        }
        // As long as the longest row so far, otherwise.
        self.json.shrink_to(KEPT_BYTES);
        self.revs.shrink_to(KEPT_BYTES);
    }

    /// Takes a new snapshot, to continue after the last change examined. Ascending feeds only.
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
        self.partial = None;
        if self.counts_down() {
            self.pending_at_start = self.count_after()?;
            self.rows_at_start = self.rows;
        }
        self.plan_lookups();
        Ok(())
    }
}

/// The progress of looking up the documents of a feed.
#[derive(Default)]
struct Lookups {
    /// The place of the next id to look up, in the list of the filter.
    next: usize,
    /// The shards and seqs of the rows that are still to be written. Once all ids are looked up,
    /// they are in order, the last one first.
    rows: Vec<(usize, u64)>,
}

impl Lookups {
    /// Ends them: no id is looked up before the next [`Changes::plan_lookups`].
    fn end(&mut self) {
        *self = Lookups {
            next: usize::MAX,
            rows: vec![],
        };
    }
}

/// A row of which only some leaves were judged.
struct PartialRow {
    seq: u64,
    /// How many were judged.
    judged: usize,
    /// Those that the filter shows.
    revs: Vec<u8>,
}

/// How long a piece may take, and what it may do.
struct Pace {
    turn: Turn,
    /// Whether it is made on a thread for slow work.
    is_apart: bool,
    working: Option<Working>,
}

impl Pace {
    /// Returns whether the time of the piece is over.
    fn is_over(&mut self, with_document: bool) -> bool {
        self.turn.is_over(with_document)
    }

    /// Lets others run.
    fn pause(&mut self) {
        if let Some(working) = &mut self.working {
            working.pause();
        }
    }
}

/// A seq beyond the end of a shard is from a lost time (before a backup was restored): that shard
/// starts over.
fn known(mut seqs: Seqs, ends: &[u64]) -> Seqs {
    for (at, &end) in seqs.at.iter_mut().zip(ends) {
        if *at > end {
            *at = 0;
        }
    }
    seqs
}
