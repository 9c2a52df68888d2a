//! Feeds of few documents: these are looked up instead of scanned for.

use storage::{ChangeIter, RecordHead};

use super::{Changes, Filter, Framing};
use crate::Error;

/// With up to this many ids, a `_doc_ids` feed looks the documents up instead of scanning (as CouchDB's
/// `changes_doc_ids_optimization_threshold`).
const DOC_IDS_LOOKED_UP_MAX: usize = 100;

impl Changes {
    pub(super) fn next_lookups(
        &mut self,
        framing: Framing,
        out: &mut Vec<u8>,
        enough: usize,
    ) -> Result<bool, Error> {
        // These feeds judge no documents.
        let mut pace = self.begin_piece();
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
                self.write_row(&shard, (found, value), framing, out, &mut pace)?;
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
    pub(super) fn plan_lookups(&mut self) -> Result<(), Error> {
        let Filter::DocIds(ids) = &self.query.filter else {
            return Ok(());
        };
        if ids.len() > DOC_IDS_LOOKED_UP_MAX {
            return Ok(());
        }
        let mut rows = vec![];
        for id in ids.iter().filter_map(|id| std::str::from_utf8(id).ok()) {
            let i = self.db.shard_index(id);
            let shard = &self.db.all_shards()[i];
            if let Some(value) = self.views[i].record_value(shard, id)? {
                let seq = RecordHead::decode(&value)?.seq;
                if self.query.descending || seq > self.at.at[i] {
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
}
