//! Feeds of users of a database with access: the rows of their principals, in one order. Their number
//! determines how long that takes, not what others write.

use std::sync::Arc;

use document::{Principals, Rev};
use storage::{GrantedSeqs, Record, Row, Shard};

use super::coverage::Coverage;
use super::row::{Wrote, push_rev};
use super::{Changes, Filter, Framing, Pace, Style};
use crate::Error;
use crate::reader::{Change, Reader, removal_json};

/// Why no more rows are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    /// They are enough for a piece.
    Piece,
    /// The requested number of rows was written.
    Limit,
    /// All shards are read.
    Shards,
}

/// Rows that are examined in one piece.
const ROWS_A_PIECE_MAX: u32 = 10_000;

/// The rows behind a feed are counted up to this number.
const PENDING_MAX: u64 = 10_000;

impl Changes {
    /// Appends rows that the user sees; returns false at the end. The feed stays at the last one, so
    /// that its seq does not depend on later rows of others.
    pub(super) fn next_visible(
        &mut self,
        reader: &Reader,
        framing: Framing,
        out: &mut Vec<u8>,
        enough: usize,
    ) -> Result<bool, Error> {
        let mut pace = self.begin_piece();
        if self.is_backfilling() {
            if self.read_rows(reader, framing, (&mut *out, enough), &mut pace)? != Ended::Shards {
                return Ok(!self.limit_reached());
            }
            if let Some(coverage) = &mut self.coverage {
                coverage.end(reader);
            }
            self.shard = 0;
        }
        let ended = self.read_rows(reader, framing, (out, enough), &mut pace)?;
        Ok(ended == Ended::Piece)
    }

    /// Whether rows of new principals come first.
    pub(super) fn is_backfilling(&self) -> bool {
        let coverage = self.coverage.as_ref();
        coverage.is_some_and(|coverage| coverage.new_user().is_some())
    }

    /// The principals whose rows are read now, and the last of these rows in a shard.
    fn rows_of_user(&self, reader: &Reader) -> (Arc<Principals>, u64) {
        let new = self.coverage.as_ref().and_then(Coverage::new_user);
        match new {
            None => (reader.user().clone(), u64::MAX),
            Some(new) => (new.clone(), self.at.at[self.shard]),
        }
    }

    /// Where rows are read now in the current shard.
    fn read_up_to(&self) -> u64 {
        match (&self.coverage, self.is_backfilling()) {
            (Some(coverage), true) => coverage.at(self.shard),
            _ => self.at.at[self.shard],
        }
    }

    /// Moves the feed, or its backfill, behind a row of the current shard.
    fn note_seen(&mut self, seq: u64) {
        let (shard, is_backfilling) = (self.shard, self.is_backfilling());
        match &mut self.coverage {
            Some(coverage) if is_backfilling => {
                coverage.move_to(shard, seq);
            }
            _ => self.at.at[shard] = seq,
        }
    }

    /// Appends the seq of the feed with its coverage and its signature.
    pub(super) fn write_signed(&self, out: &mut Vec<u8>) {
        let start = out.len();
        self.at.write_to(out);
        if let Some(coverage) = &self.coverage {
            coverage.write_to(out);
        }
        if let Some(reader) = &self.reader {
            reader.sign(start, out);
        }
    }

    /// Appends the seq behind a row of a backfill.
    pub(super) fn write_backfilled(&mut self, shard: usize, seq: u64, out: &mut Vec<u8>) {
        let before = self.coverage.as_mut().map(|it| it.move_to(shard, seq));
        self.write_signed(out);
        if let (Some(coverage), Some(before)) = (&mut self.coverage, before) {
            coverage.move_to(shard, before);
        }
    }

    /// Appends rows from the current shard on, of a backfill or of the feed.
    fn read_rows(
        &mut self,
        reader: &Reader,
        framing: Framing,
        (out, enough): (&mut Vec<u8>, usize),
        pace: &mut Pace,
    ) -> Result<Ended, Error> {
        let mut examined = 0;
        while self.shard < self.views.len() {
            let shard = self.db.all_shards()[self.shard].clone();
            let snapshot = self.views[self.shard].snapshot.clone();
            let (user, until) = self.rows_of_user(reader);
            let mut rows = GrantedSeqs::after(&snapshot, &shard, &user, self.read_up_to());
            while let Some((seq, id)) = rows.entry().filter(|(seq, _)| *seq <= until) {
                if self.limit_reached() {
                    return Ok(Ended::Limit);
                }
                if out.len() >= enough || examined >= ROWS_A_PIECE_MAX || pace.is_over(true) {
                    return Ok(Ended::Piece);
                }
                let id =
                    std::str::from_utf8(id).map_err(|_| storage::Error::Corrupt("document id"))?;
                let row = (seq, id);
                let wrote = self.write_seen(reader, &shard, row, framing, out, pace)?;
                if wrote == Wrote::Part {
                    return Ok(Ended::Piece);
                }
                examined += 1;
                self.note_seen(seq);
                pace.pause();
                rows.next();
            }
            rows.status()?;
            self.shard += 1;
        }
        Ok(Ended::Shards)
    }

    /// Appends the row of a document as the user sees it.
    fn write_seen(
        &mut self,
        reader: &Reader,
        shard: &Arc<Shard>,
        (seq, id): (u64, &str),
        framing: Framing,
        out: &mut Vec<u8>,
        pace: &mut Pace,
    ) -> Result<Wrote, Error> {
        if !self.may_show(id) {
            return Ok(Wrote::Nothing);
        }
        let view = &self.views[self.shard_of_seq()];
        let change = match self.coverage.as_ref().and_then(Coverage::new_user) {
            None => reader.change(view, shard, (seq, id))?,
            Some(new) => {
                let until = self.at.at[self.shard_of_seq()];
                reader.backfilled(view, shard, (seq, id), (new, until))?
            }
        };
        match change {
            None => Ok(Wrote::Nothing),
            Some(Change::Removed(revs)) => Ok(self.write_removed((seq, id), &revs, framing, out)),
            Some(Change::Document(record, removed)) => {
                let value = row_of(seq, id, &record);
                let row = Row::decode(seq, &value)?;
                let picked = self.pick_revs(shard, seq, &row, pace)?;
                if picked == Wrote::Row {
                    if self.query.style == Style::AllDocs {
                        for rev in &removed {
                            push_rev(rev.as_ref(), &mut self.revs);
                        }
                    }
                    self.emit_row(shard, seq, &row, framing, out)?;
                }
                Ok(picked)
            }
        }
    }

    /// Returns whether the filter may show a document of this id, of which nothing is read yet.
    fn may_show(&self, id: &str) -> bool {
        match &self.query.filter {
            Filter::DocIds(ids) => ids.contains(id.as_bytes()),
            Filter::Design => id.starts_with("_design/"),
            Filter::None | Filter::Custom(_) | Filter::Batch(_) => true,
        }
    }

    /// Appends the row of a document that the user sees no more. It passes filters by contents, as
    /// the user's copy has passed them.
    fn write_removed(
        &mut self,
        (seq, id): (u64, &str),
        revs: &[Rev],
        framing: Framing,
        out: &mut Vec<u8>,
    ) -> Wrote {
        let Some(first) = revs.first() else {
            return Wrote::Nothing;
        };
        self.revs.clear();
        for rev in revs {
            push_rev(rev.as_ref(), &mut self.revs);
        }
        let mut json = self.begin_row(seq, id);
        json.extend_from_slice(b",\"deleted\":true,\"removed\":true");
        if self.query.include_docs {
            json.extend_from_slice(b",\"doc\":");
            removal_json(id, first, &mut json);
        }
        json.push(b'}');
        self.end_row(seq, json, framing, out);
        Wrote::Row
    }

    /// Counts the rows behind the feed, up to a bound. A document counts once for each row of the
    /// user's principals.
    pub(super) fn count_visible(&self, reader: &Reader) -> Result<u64, Error> {
        let mut count = 0;
        for (i, view) in self.views.iter().enumerate() {
            let shard = &self.db.all_shards()[i];
            let at = self.at.at[i];
            let mut rows = GrantedSeqs::after(&view.snapshot, shard, reader.user(), at);
            while rows.entry().is_some() && count < PENDING_MAX {
                count += 1;
                rows.next();
            }
            rows.status()?;
            let Some(coverage) = &self.coverage else {
                continue;
            };
            let Some(new) = coverage.new_user() else {
                continue;
            };
            let mut rows = GrantedSeqs::after(&view.snapshot, shard, new, coverage.at(i));
            while rows.entry().is_some_and(|(seq, _)| seq <= at) && count < PENDING_MAX {
                count += 1;
                rows.next();
            }
            rows.status()?;
        }
        Ok(count)
    }
}

/// Returns the row that lists the leaves of a record at `seq`.
fn row_of(seq: u64, id: &str, record: &Record) -> Vec<u8> {
    let mut value = vec![];
    Row::encode_leaves(seq, id, &record.tree.leaves(), &mut value);
    value
}
