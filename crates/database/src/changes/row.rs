//! One row of a feed: the revisions that it names, and its text.

use std::sync::Arc;

use document::{Leaf, Rev, RevRef, StoredBody, write_json_string};
use storage::{Body, Record, Row, Shard};

use super::{ChangeFilter, Changes, Filter, Framing, KEPT_BYTES, Pace, PartialRow, Style};
use crate::Error;
use crate::attachments::ShownAttachments;
use crate::read::write_leaves;
use crate::rows::write_members;

/// The result of writing a row.
#[derive(PartialEq, Eq)]
pub(super) enum Wrote {
    Row,
    /// The filter leaves it out.
    Nothing,
    /// It is for the next piece: this one takes too long.
    Part,
}

impl Changes {
    pub(super) fn write_row(
        &mut self,
        shard: &Arc<Shard>,
        (seq, value): (u64, &[u8]),
        framing: Framing,
        out: &mut Vec<u8>,
        pace: &mut Pace,
    ) -> Result<Wrote, Error> {
        let row = Row::decode(seq, value)?;
        let picked = self.pick_revs(shard, seq, &row, pace)?;
        if picked == Wrote::Row {
            self.emit_row(shard, seq, &row, framing, out)?;
        }
        Ok(picked)
    }

    /// Writes a row with the revisions in `revs`.
    pub(super) fn emit_row(
        &mut self,
        shard: &Arc<Shard>,
        seq: u64,
        row: &Row<'_>,
        framing: Framing,
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let mut json = self.begin_row(seq, row.id);
        if row.deleted {
            json.extend_from_slice(b",\"deleted\":true");
        }
        if self.query.include_docs {
            json.extend_from_slice(b",\"doc\":");
            self.write_doc(shard, seq, row, &mut json)?;
        }
        json.push(b'}');
        self.end_row(seq, json, framing, out);
        Ok(())
    }

    /// Begins the text of a row with the revisions in `revs`.
    pub(super) fn begin_row(&mut self, seq: u64, id: &str) -> Vec<u8> {
        let mut json = std::mem::take(&mut self.json);
        json.clear();
        json.extend_from_slice(b"{\"seq\":");
        if self.query.shows_seq(self.rows) {
            json.push(b'"');
            self.write_seq(seq, &mut json);
            json.push(b'"');
        } else {
            json.extend_from_slice(b"null");
        }
        json.extend_from_slice(b",\"id\":");
        write_json_string(id, &mut json);
        json.extend_from_slice(b",\"changes\":[");
        json.extend_from_slice(&self.revs);
        json.push(b']');
        json
    }

    /// Appends a row with this text.
    pub(super) fn end_row(
        &mut self,
        seq: u64,
        mut json: Vec<u8>,
        framing: Framing,
        out: &mut Vec<u8>,
    ) {
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
        json.clear();
        json.shrink_to(KEPT_BYTES);
        self.json = json;
        self.rows += 1;
    }

    /// The seq of the row just read.
    fn write_seq(&mut self, seq: u64, out: &mut Vec<u8>) {
        let i = self.shard_of_seq();
        if self.is_backfilling() {
            return self.write_backfilled(i, seq, out);
        }
        let at = std::mem::replace(&mut self.at.at[i], seq);
        match self.reader {
            None => self.at.write_to(out),
            Some(_) => self.write_signed(out),
        }
        self.at.at[i] = at;
    }

    pub(super) fn shard_of_seq(&self) -> usize {
        self.shard.min(self.at.at.len() - 1)
    }

    /// Fills `revs` with the revisions that the row shows.
    pub(super) fn pick_revs(
        &mut self,
        shard: &Arc<Shard>,
        seq: u64,
        row: &Row<'_>,
        pace: &mut Pace,
    ) -> Result<Wrote, Error> {
        self.revs.clear();
        let all = self.query.style == Style::AllDocs;
        let shown = match &self.query.filter {
            // Batches have their own way.
            Filter::None | Filter::Batch(_) => true,
            Filter::Design => row.id.starts_with("_design/"),
            Filter::DocIds(ids) => ids.contains(row.id.as_bytes()),
            Filter::Custom(filter) => {
                let filter = filter.clone();
                if all && row.has_other_leaves() {
                    return self.pick_filtered_leaves(shard, seq, row, filter.as_ref(), pace);
                }
                let doc = match filter.needs_doc() {
                    true => Some(self.doc_json(shard, seq, row)?),
                    false => None,
                };
                let doc_bytes = doc.as_ref().map_or(0, Vec::len);
                if !self.may_judge(filter.as_ref(), doc_bytes, pace) {
                    return Ok(Wrote::Part);
                }
                filter.matches(row.id, row.deleted, doc.as_deref())
            }
        };
        if !shown {
            return Ok(Wrote::Nothing);
        }
        push_rev(row.winner.to_rev().as_ref(), &mut self.revs);
        if all && row.has_other_leaves() {
            for (rev, _) in row.other_leaves()? {
                push_rev(rev.to_rev().as_ref(), &mut self.revs);
            }
        }
        Ok(Wrote::Row)
    }

    /// Returns whether the filter may judge a document of this length in this piece.
    fn may_judge(&mut self, filter: &dyn ChangeFilter, doc_bytes: usize, pace: &Pace) -> bool {
        if filter.is_heavy() || !filter.is_heavy_for(doc_bytes) {
            return true;
        }
        // Others of its length may follow.
        self.is_long = true;
        pace.is_apart
    }

    /// With several leaves shown, the filter sees each. There may be many: they are judged in
    /// several pieces.
    fn pick_filtered_leaves(
        &mut self,
        shard: &Arc<Shard>,
        seq: u64,
        row: &Row<'_>,
        filter: &dyn ChangeFilter,
        pace: &mut Pace,
    ) -> Result<Wrote, Error> {
        let partial = self.partial.take().filter(|partial| partial.seq == seq);
        let (first, mut revs) = partial.map_or((0, vec![]), |p| (p.judged, p.revs));
        let record = self.record(shard, row.id)?.unwrap_or_default();
        for (n, leaf) in record.tree.leaves().into_iter().enumerate().skip(first) {
            let is_over = n > first && pace.is_over(true);
            let doc = match is_over {
                true => None,
                false => Some(self.leaf_json(shard, row.id, &leaf)?),
            };
            let doc = doc.filter(|doc| self.may_judge(filter, doc.len(), pace));
            let Some(doc) = doc else {
                let judged = n;
                self.partial = Some(PartialRow { seq, judged, revs });
                return Ok(Wrote::Part);
            };
            if filter.matches(row.id, leaf.revision.deleted, Some(&doc)) {
                push_rev(leaf.rev, &mut revs);
            }
            pace.pause();
        }
        self.revs = revs;
        Ok(match self.revs.is_empty() {
            true => Wrote::Nothing,
            false => Wrote::Row,
        })
    }

    /// The record of a document, with the leaves that the feed's user sees.
    fn record(&self, shard: &Arc<Shard>, id: &str) -> Result<Option<Record>, Error> {
        let view = &self.views[self.shard_of_seq()];
        match &self.reader {
            None => Ok(view.record(shard, id)?),
            Some(reader) => reader.record(view, shard, id),
        }
    }

    /// A leaf's JSON.
    fn leaf_json(&self, shard: &Arc<Shard>, id: &str, leaf: &Leaf<'_>) -> Result<Vec<u8>, Error> {
        let view = &self.views[self.shard_of_seq()];
        let mut doc = vec![];
        view.with_body(shard, leaf.revision.seq, |body| {
            let deleted = leaf.revision.deleted;
            write_members(id, &leaf.rev.to_rev(), deleted, body, &mut doc);
            doc.push(b'}');
        })?;
        self.censor_for_filter(id, &mut doc);
        Ok(doc)
    }

    /// The winning revision's JSON.
    fn doc_json(&self, shard: &Arc<Shard>, seq: u64, row: &Row<'_>) -> Result<Vec<u8>, Error> {
        let mut out = vec![];
        self.write_winner(shard, seq, row, ShownAttachments::default(), &mut out)?;
        out.push(b'}');
        self.censor_for_filter(row.id, &mut out);
        Ok(out)
    }

    pub(super) fn censor_for_filter(&self, id: &str, doc: &mut Vec<u8>) {
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
            let contents = self.db.homes().of_shard(self.shard_of_seq());
            attachments.write((contents, &self.placement), stored, out)
        };
        match row.body {
            Body::Inline(body) if row.winner_seq == seq => write(body, out),
            _ => {
                let view = &self.views[self.shard_of_seq()];
                let written = view.with_body(shard, row.winner_seq, |body| write(body, out))?;
                written.ok_or_else(|| Error::Storage(storage::Error::Corrupt("document body")))?
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
        let (start, first) = (out.len(), self.placement.next_number());
        self.write_winner(shard, seq, row, self.query.attachments, out)?;
        if self.query.conflicts
            && row.has_other_leaves()
            && let Some(record) = self.record(shard, row.id)?
        {
            write_leaves("_conflicts", &record.tree, &row.winner.to_rev(), false, out);
        }
        out.push(b'}');
        let mut is_changed = false;
        if let Some(watch) = &self.watch {
            watch.censor(row.id, start, out);
            is_changed = true;
        }
        if let Filter::Custom(filter) = &self.query.filter
            && let Some(shown) = filter.project(&out[start..])
        {
            out.truncate(start);
            out.extend_from_slice(&shown);
            is_changed = true;
        }
        if is_changed {
            self.placement.forget_absent(first, &out[start..]);
        }
        Ok(())
    }
}

pub(super) fn push_rev(rev: RevRef<'_>, out: &mut Vec<u8>) {
    if !out.is_empty() {
        out.push(b',');
    }
    out.extend_from_slice(b"{\"rev\":");
    rev.write_json_to(out);
    out.push(b'}');
}
