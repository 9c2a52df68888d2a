//! Results of queries with `aggregate`: groups instead of documents.

use document::write_json_string;
use mango::{Aggregate, Doc, Groups, LiftedValue, TextHits};

use super::Working;
use super::cursor::{advance, next_of};
use super::docs::{Documents, is_stored};
use super::index_rows::{Column, Rows};
use super::rows::{FindAnswer, Source};
use crate::Error;
use crate::select::IdMerge;

/// Keys, or ranges of ids, between two checks whether the client still waits and others want the
/// place.
pub(super) const LOOK_EVERY: u64 = 16;

impl FindAnswer {
    /// Whether the answer is groups.
    pub fn is_aggregate(&self) -> bool {
        self.find.aggregate.is_some()
    }

    /// Appends groups, joined by `,\r\n`, until about `soft_bytes` were added; returns false at the
    /// end. Blocks.
    pub fn next_groups(&mut self, out: &mut Vec<u8>, soft_bytes: usize) -> Result<bool, Error> {
        let enough = out.len() + soft_bytes.max(1);
        let mut groups = match self.groups.take() {
            Some(groups) => groups,
            None => self.group()?.sorted(self.find.skip, self.find.limit),
        };
        let more = groups.write(out, enough);
        self.stats.results = groups.written();
        self.groups = Some(groups);
        Ok(more)
    }

    fn group(&mut self) -> Result<Groups, Error> {
        let find = self.find.clone();
        let aggregate = find.aggregate.as_ref().ok_or(Error::Missing("missing"))?;
        let memory = self.db.shared_views().aggregate_memory.clone();
        let mut groups = Groups::within(aggregate, self.limits.aggregate, Some(memory));
        let mut source = std::mem::replace(&mut self.source, Source::Nothing);
        if let Source::Documents(documents) = &mut source {
            documents.choose()?;
        }
        match source {
            Source::Nothing => {}
            Source::Index(rows) => self.group_rows(&rows, &mut groups)?,
            Source::Documents(documents) if self.scans(&documents, aggregate) => {
                let growth = groups.growth().clone();
                let is_over = || self.is_wanted().is_err() || growth.is_refused();
                let examined = documents.scan(self, &is_over).group(&mut groups)?;
                self.is_wanted()?;
                // A scan that ended early is no answer.
                groups.check_share()?;
                self.stats.docs_examined = examined;
                self.stats.keys_examined = examined;
            }
            Source::Documents(documents) => self.group_documents(&documents, &mut groups)?,
            Source::Text(mut hits) => {
                while let Some((hit, texts)) = hits.next()? {
                    self.group_hit(&hit.id, texts, &mut groups)?;
                    self.is_wanted()?;
                    groups.check_share()?;
                }
            }
        }
        Ok(groups)
    }

    fn scans(&self, documents: &Documents, aggregate: &Aggregate) -> bool {
        documents.can_be_scanned() && aggregate.paths().iter().all(is_stored)
    }

    fn group_rows(&mut self, rows: &Rows, groups: &mut Groups) -> Result<(), Error> {
        let mut working = self.begin_working();
        let mut cursors = rows.cursors(&rows.range)?;
        let mut quoted = vec![];
        while let Some(next) = next_of(&cursors, rows.descending) {
            if cursors[next].is_unsettled {
                self.give_way(groups, &mut working)?;
                cursors[next].settle()?;
                continue;
            }
            let Some(row) = cursors[next].row()? else {
                break;
            };
            let id = row.id()?;
            match &rows.covering {
                None => self.group_document(&id, groups)?,
                Some(covering) => {
                    quoted.clear();
                    write_json_string(&id, &mut quoted);
                    let key: Vec<&[u8]> = mango::elements(row.stored.key).collect();
                    let of = |column: Column| match column {
                        Column::Id => LiftedValue::Value(&quoted),
                        Column::Key(n) => key
                            .get(n)
                            .map_or(LiftedValue::Missing, |text| LiftedValue::Value(text)),
                    };
                    let selected = |span: usize| of(covering.selector[span]);
                    if self.find.selector.matches_found(&selected)? {
                        groups.add_found(&|span| of(covering.answer[span]))?;
                    }
                }
            }
            self.count_key(groups, &mut working)?;
            advance(&mut cursors, next, rows.is_of_user)?;
        }
        Ok(())
    }

    /// Waits for the place of a thread. The caller has a turn.
    pub(super) fn begin_working(&self) -> Working {
        let turns = &self.db.shared_views().scans.turns;
        turns.begin(self.db.share())
    }

    /// Counts a key. Gives way often: documents may be large, and selectors slow.
    pub(super) fn count_key(
        &mut self,
        groups: &Groups,
        working: &mut Working,
    ) -> Result<(), Error> {
        self.stats.keys_examined += 1;
        match self.stats.keys_examined.is_multiple_of(LOOK_EVERY) {
            true => self.give_way(groups, working),
            false => Ok(()),
        }
    }

    /// Lets others run when the slice of time is over; fails when there is nothing to continue for.
    pub(super) fn give_way(&self, groups: &Groups, working: &mut Working) -> Result<(), Error> {
        working.pause();
        self.is_wanted()?;
        groups.check_share()?;
        Ok(())
    }

    pub(super) fn group_document(&mut self, id: &str, groups: &mut Groups) -> Result<(), Error> {
        self.group_hit(id, TextHits::ALL, groups)
    }

    /// Adds a document that has the words of these `$text` operators, if the selector matches it.
    fn group_hit(&mut self, id: &str, texts: TextHits, groups: &mut Groups) -> Result<(), Error> {
        if let Some(doc) = self.read_document(id)? {
            self.stats.docs_examined += 1;
            let doc = Doc::whole(&doc.json);
            if self.find.selector.matches_hit(&doc, texts)? {
                groups.add(&doc)?;
            }
        }
        Ok(())
    }

    fn group_documents(&mut self, documents: &Documents, groups: &mut Groups) -> Result<(), Error> {
        if let Some(reader) = &documents.reader {
            return self.group_visible(reader, documents, groups);
        }
        let mut working = self.begin_working();
        let mut merge = IdMerge::new(&documents.views);
        for (n, (low, high)) in (0_u64..).zip(documents.ids.ranges()) {
            // There may be more ranges than documents.
            if n.is_multiple_of(LOOK_EVERY) {
                self.give_way(groups, &mut working)?;
            }
            merge.seek(low);
            while let Some((_, id, _)) = merge.entry().filter(|(_, id, _)| *id < high.as_slice()) {
                if !id.starts_with(b"_design/") {
                    let id = String::from_utf8_lossy(id).into_owned();
                    self.group_document(&id, groups)?;
                    self.count_key(groups, &mut working)?;
                }
                merge.next();
            }
            merge.status()?;
        }
        Ok(())
    }
}
