//! Queries of the documents that a user of a database with access sees. Their number determines how
//! long that takes, not the size of the database.

use std::time::Instant;

use mango::Groups;

use super::aggregate::LOOK_EVERY;
use super::docs::{Documents, Passed, WALKED_A_PIECE_MAX, Way};
use super::rows::{FindAnswer, PIECE_TIME};
use crate::Error;
use crate::reader::Reader;
use crate::rows::VisibleIds;

impl Documents {
    /// Examines the user's documents in order; returns false at the end.
    pub(super) fn walk_visible(
        &mut self,
        reader: &Reader,
        answer: &mut FindAnswer,
        out: &mut Vec<u8>,
        enough: usize,
    ) -> Result<bool, Error> {
        let Some(start) = self.start() else {
            return Ok(false);
        };
        let mut ids = VisibleIds::new(&self.views, reader, Some(start), self.descending);
        let began = Instant::now();
        let mut passed = Passed { count: 0, began };
        let mut last = self.after.take();
        let (mut seen, mut more) = (0, false);
        while let Some((_, id)) = ids.entry() {
            if last.as_deref() == Some(id) {
                ids.next();
                continue;
            }
            match self.way_by_id(id) {
                Way::Take => {}
                Way::End => break,
                Way::Next | Way::Seek(_) if passed.are_enough() => {
                    last = Some(id.to_vec());
                    more = true;
                    break;
                }
                Way::Next => {
                    ids.next();
                    continue;
                }
                Way::Seek(target) => {
                    ids.seek(target);
                    continue;
                }
            }
            seen += 1;
            let place = id.to_vec();
            if answer.take_document(&String::from_utf8_lossy(&place), out)? {
                answer.given(&place);
            }
            let is_enough =
                out.len() >= enough || seen >= WALKED_A_PIECE_MAX || began.elapsed() >= PIECE_TIME;
            last = Some(place);
            if answer.is_full() {
                break;
            }
            if is_enough {
                more = true;
                break;
            }
            ids.next();
        }
        ids.status()?;
        drop(ids);
        // Others have an id here too, if the user may read a leaf that is not the winner.
        answer.stats.keys_examined = answer.stats.docs_examined;
        self.after = last;
        Ok(more)
    }
}

impl FindAnswer {
    /// Adds the user's documents to their groups.
    pub(super) fn group_visible(
        &mut self,
        reader: &Reader,
        documents: &Documents,
        groups: &mut Groups,
    ) -> Result<(), Error> {
        let mut working = self.begin_working();
        let mut ids = VisibleIds::new(&documents.views, reader, None, false);
        for (n, (low, high)) in (0_u64..).zip(documents.ids.ranges()) {
            // There may be more ranges than documents.
            if n.is_multiple_of(LOOK_EVERY) {
                self.give_way(groups, &mut working)?;
            }
            ids.seek(low);
            while let Some((_, id)) = ids.entry().filter(|(_, id)| *id < high.as_slice()) {
                if !id.starts_with(b"_design/") {
                    let id = String::from_utf8_lossy(id).into_owned();
                    self.group_document(&id, groups)?;
                    self.count_key(groups, &mut working)?;
                }
                ids.next();
            }
            ids.status()?;
        }
        self.stats.keys_examined = self.stats.docs_examined;
        Ok(())
    }
}
