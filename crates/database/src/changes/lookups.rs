//! Feeds of few documents: these are looked up instead of scanned for.

use storage::{ChangeIter, RecordHead};

use super::{Changes, Filter, Framing, Lookups, Pace};
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
        self.look_up(&mut pace, framing, out, enough)
    }

    /// Looks documents up, and appends their rows, until the piece is over: a record and a document
    /// with its conflicts may be long, however short the row is. Returns false at the end.
    fn look_up(
        &mut self,
        pace: &mut Pace,
        framing: Framing,
        out: &mut Vec<u8>,
        enough: usize,
    ) -> Result<bool, Error> {
        if !self.find_rows(pace)? {
            self.is_long = true;
            return Ok(true);
        }
        while !self.limit_reached() {
            if out.len() >= enough {
                return Ok(true);
            }
            let next = self.lookups.as_mut().and_then(|lookups| lookups.rows.pop());
            let Some((i, seq)) = next else {
                break;
            };
            let shard = self.db.all_shards()[i].clone();
            let snapshot = self.views[i].snapshot.clone();
            let it = ChangeIter::new(&snapshot, shard.number, seq - 1, false);
            if let Some((found, value)) = it.entry().filter(|(found, _)| *found == seq) {
                if i != self.shard && !self.query.descending {
                    // As in other feeds, nothing is left of the shards before.
                    for (at, end) in self.at.at.iter_mut().zip(&self.ends).take(i) {
                        *at = (*end).max(*at);
                    }
                }
                self.at.at[i] = seq;
                self.shard = i;
                self.write_row(&shard, (found, value), framing, out, pace)?;
            }
            it.status()?;
            if pace.is_over(true) {
                self.is_long = true;
                return Ok(true);
            }
        }
        let lookups = self.lookups.as_ref();
        let all_seen = lookups.is_some_and(|lookups| lookups.rows.is_empty());
        if all_seen && !self.query.descending {
            for (at, end) in self.at.at.iter_mut().zip(&self.ends) {
                *at = (*end).max(*at);
            }
        }
        Ok(false)
    }

    /// Finds the rows of the ids that are left, until the piece is over. Returns whether all are
    /// found; they are in the feed's order then.
    fn find_rows(&mut self, pace: &mut Pace) -> Result<bool, Error> {
        let (Filter::DocIds(ids), Some(lookups)) = (&self.query.filter, &mut self.lookups) else {
            return Ok(true);
        };
        if lookups.next >= ids.len() {
            return Ok(true);
        }
        while let Some(id) = ids.get(lookups.next) {
            lookups.next += 1;
            let Ok(id) = std::str::from_utf8(id) else {
                continue;
            };
            let i = self.db.shard_index(id);
            if !self.only.as_ref().is_none_or(|only| only.contains(&i)) {
                continue;
            }
            let shard = &self.db.all_shards()[i];
            if let Some(value) = self.views[i].record_value(shard, id)? {
                let seq = RecordHead::decode(&value)?.seq;
                if self.query.descending || seq > self.at.at[i] {
                    lookups.rows.push((i, seq));
                }
            }
            if pace.is_over(true) && lookups.next < ids.len() {
                return Ok(false);
            }
        }
        lookups.rows.sort_unstable();
        if !self.query.descending {
            lookups.rows.reverse();
        }
        Ok(true)
    }

    /// Makes a feed of a short list of ids look them up, from the first one on.
    pub(super) fn plan_lookups(&mut self) {
        if let Filter::DocIds(ids) = &self.query.filter
            && self.reader.is_none()
            && ids.len() <= DOC_IDS_LOOKED_UP_MAX
        {
            self.lookups = Some(Lookups::default());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use document::{TextList, parse_document};

    use super::*;
    use crate::EditMode;
    use crate::changes::{ChangesQuery, Since, Style};
    use crate::fixture::Fixture;
    use crate::turn::Turn;

    /// The number of rows in each piece, when the time of every piece is over.
    fn rows_of_pieces(feed: &mut Changes) -> Vec<usize> {
        let mut rows = vec![];
        loop {
            let mut pace = Pace {
                turn: Turn::over(),
                is_apart: false,
                working: None,
            };
            let mut out = vec![];
            feed.is_long = false;
            let more = feed.look_up(&mut pace, Framing::Lines, &mut out, 1 << 20);
            rows.push(out.iter().filter(|byte| **byte == b'\n').count());
            let more = more.unwrap();
            assert_eq!(
                feed.is_long(),
                more,
                "the next piece is made on another thread"
            );
            if !more {
                return rows;
            }
        }
    }

    #[test]
    fn ids_are_looked_up_and_written_in_pieces() {
        let fixture = Fixture::new(None);
        let db = &fixture.db;
        let write = |ids: &[&str], generation: u32| {
            let doc = |id: &&str| {
                let json = format!(r#"{{"_id":"{id}","_rev":"{generation}-{generation}"}}"#);
                parse_document(json.as_bytes()).unwrap()
            };
            fixture.write(ids.iter().map(doc).collect(), EditMode::Replicated);
        };
        write(&["a", "b", "c", "other"], 1);
        let ids: TextList = ["a", "b", "c", "missing"].into_iter().collect();
        let mut feed = db
            .changes(ChangesQuery {
                since: Since::Start,
                descending: false,
                limit: None,
                style: Style::MainOnly,
                include_docs: false,
                conflicts: false,
                attachments: Default::default(),
                filter: Filter::DocIds(Arc::new(ids)),
                seq_interval: None,
            })
            .unwrap();
        assert_eq!(rows_of_pieces(&mut feed), [0, 0, 0, 1, 1, 1, 0]);
        feed.release();
        assert_eq!(rows_of_pieces(&mut feed), [0]);
        write(&["b", "other"], 2);
        feed.refresh().unwrap();
        assert_eq!(rows_of_pieces(&mut feed), [0, 0, 0, 1, 0]);
    }
}
