//! Feeds with a filter that sees many changes in one call.

use std::sync::Arc;

use document::{Leaf, Rev, Revision};
use functions::Place;
use storage::{Record, Row, Shard, View};

use super::row::push_rev;
use super::{BatchFilter, Changes, Framing, Style};
use crate::Error;
use crate::read::{FUNCTION_REVS_MAX, write_path};
use crate::rows::write_members;

/// A [`BatchFilter`] sees at most 100 changes in one call,
const BATCH_CHANGES_MAX: usize = 100;
/// and about 1 MiB.
const BATCH_BYTES_MAX: usize = 1 << 20;
/// Length of a revision's text without its id and its body, about, in bytes: ancestors are most of it.
const REVISION_BYTES: u64 = 64 + FUNCTION_REVS_MAX as u64 * 35;

/// Changes that a filter sees together.
#[derive(Default)]
struct Batch {
    changes: Vec<BatchedChange>,
    /// The documents of all their revisions.
    docs: Vec<Vec<u8>>,
    bytes: usize,
    /// The record of a single change whose documents are too long to be shown together: `docs` is
    /// empty.
    wide: Option<Record>,
}

struct BatchedChange {
    seq: u64,
    /// The row.
    value: Vec<u8>,
    revs: Vec<Rev>,
}

impl Changes {
    /// Shows some changes to the filter and appends those that pass; returns false at the end.
    pub(super) fn next_batch(
        &mut self,
        filter: &dyn BatchFilter,
        place: Option<Place>,
        framing: Framing,
        out: &mut Vec<u8>,
    ) -> Result<bool, Error> {
        while self.shard < self.views.len() && !self.limit_reached() {
            if !self.reads(self.shard) {
                self.end_shard();
                continue;
            }
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
            let passed = match &batch.wide {
                None => {
                    let passed = filter.matches(&place, &batch.docs)?;
                    drop(place);
                    passed
                }
                Some(record) => self.match_wide(filter, place, &shard, record, &batch)?,
            };
            let mut passed = passed.into_iter();
            for change in batch.changes {
                if self.limit_reached() {
                    return Ok(false);
                }
                let seq = change.seq;
                self.note_read(seq);
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

    /// The next changes of the shard, with the revisions that a filter examines.
    fn gather(&self, shard: &Arc<Shard>) -> Result<Batch, Error> {
        let view = &self.views[self.shard];
        let mut it = self.rows_to_read(&view.snapshot, shard);
        let mut batch = Batch::default();
        while let Some((seq, value)) = it.entry() {
            if batch.changes.len() >= BATCH_CHANGES_MAX || batch.bytes >= BATCH_BYTES_MAX {
                break;
            }
            let row = Row::decode(seq, value)?;
            let record = view
                .record(shard, row.id)?
                .ok_or_else(|| Error::Storage(storage::Error::Corrupt("document record")))?;
            let shown = match self.query.style {
                Style::MainOnly => 1,
                Style::AllDocs => usize::MAX,
            };
            let mut leaves = record.tree.leaves();
            leaves.truncate(shown);
            let bytes = text_bytes(row.id, &leaves);
            let is_wide = bytes > BATCH_BYTES_MAX as u64;
            if is_wide && !batch.changes.is_empty() {
                break;
            }
            let mut revs = vec![];
            for leaf in leaves {
                if is_wide {
                    revs.push(leaf.rev.to_rev());
                    continue;
                }
                let rev = leaf.rev.to_rev();
                let mut doc = function_doc(view, shard, row.id, &record, &rev, leaf.revision)?;
                self.censor_for_filter(row.id, &mut doc);
                batch.bytes += doc.len();
                batch.docs.push(doc);
                revs.push(rev);
            }
            // The row names all leaves of its document.
            batch.bytes += value.len();
            batch.changes.push(BatchedChange {
                seq,
                value: value.to_vec(),
                revs,
            });
            if is_wide {
                batch.wide = Some(record);
                break;
            }
            it.next();
        }
        it.status()?;
        Ok(batch)
    }

    /// Shows the revisions of a wide change to the filter, some at a time. Others get the place
    /// between two calls.
    fn match_wide(
        &self,
        filter: &dyn BatchFilter,
        mut place: Place,
        shard: &Arc<Shard>,
        record: &Record,
        batch: &Batch,
    ) -> Result<Vec<bool>, Error> {
        let view = &self.views[self.shard];
        let mut passed = vec![];
        let (mut docs, mut bytes) = (vec![], 0);
        for change in &batch.changes {
            let id = Row::decode(change.seq, &change.value)?.id;
            for rev in &change.revs {
                let revision = record.tree.get(rev).and_then(|node| node.revision);
                let revision = revision.ok_or(storage::Error::Corrupt("document record"))?;
                let mut doc = function_doc(view, shard, id, record, rev, revision)?;
                self.censor_for_filter(id, &mut doc);
                bytes += doc.len();
                docs.push(doc);
                if bytes >= BATCH_BYTES_MAX {
                    passed.extend(filter.matches(&place, &docs)?);
                    docs.clear();
                    bytes = 0;
                    if place.is_wanted() {
                        drop(place);
                        place = filter.admission().wait()?;
                    }
                }
            }
        }
        if !docs.is_empty() {
            passed.extend(filter.matches(&place, &docs)?);
        }
        Ok(passed)
    }
}

/// Returns the length of the texts of a document's revisions, about, in bytes. Each has the id, which may be
/// longer than its body.
fn text_bytes(id: &str, leaves: &[Leaf<'_>]) -> u64 {
    let of_each = REVISION_BYTES + id.len() as u64;
    let sizes = leaves.iter().map(|leaf| leaf.revision.size + of_each);
    sizes.fold(0, u64::saturating_add)
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
    written.ok_or_else(|| Error::Storage(storage::Error::Corrupt("document body")))?;
    if let Some(path) = record.tree.path(rev) {
        write_path(&path, Some(FUNCTION_REVS_MAX), &mut doc);
    }
    doc.push(b'}');
    Ok(doc)
}
