//! One row of a feed: the revisions that it names, and its text.

use std::sync::Arc;

use document::{Rev, RevRef, StoredBody, write_json_string};
use storage::{Body, Row, Shard};

use super::{ChangeFilter, Changes, Filter, Framing, KEPT_BYTES, Style};
use crate::Error;
use crate::attachments::ShownAttachments;
use crate::read::write_leaves;
use crate::rows::write_members;

/// The result of writing a row.
#[derive(PartialEq, Eq)]
pub(super) enum Wrote {
    Row,
    Nothing,
}

impl Changes {
    pub(super) fn write_row(
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
    pub(super) fn emit_row(
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
        if self.query.shows_seq(self.rows) {
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
        json.clear();
        json.shrink_to(KEPT_BYTES);
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
            Filter::DocIds(ids) => ids.contains(row.id.as_bytes()),
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
        if self.query.conflicts && row.has_other_leaves() {
            let view = &self.views[self.shard_of_seq()];
            if let Some(record) = view.record(shard, row.id)? {
                write_leaves("_conflicts", &record.tree, &row.winner.to_rev(), false, out);
            }
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
