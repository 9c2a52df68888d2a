//! Queries without an index, over all documents in the order of their ids.
//!
//! At first documents are read one by one in that order, since a few often are enough. When they are not, the rest is scanned
//! in the order in which it lies, on all cores, for the ids that come first ([`super::scan`]); only these are then read.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use document::StoredBody;
use index::PlaceRange;
use mango::{Doc, FieldPath, Find, Intervals, Plan};
use storage::{IdBlocks, RecordHead};

use super::index_rows::{counted_from, counted_up_to};
use super::rows::{FindAnswer, PIECE_TIME};
use super::scan::Scan;
use crate::reader::Reader;
use crate::select::{IdMerge, Views};
use crate::{DatabaseAs, Error, partition};

/// Documents that are read in the order of ids before the rest is scanned.
const WALKED_MIN: u64 = 1_000;
/// While one of 10 documents matches, continuing in the order of ids is faster than a scan.
const WALKED_A_MATCH: u64 = 10;
/// Documents that are examined in one piece, before the thread is released.
pub(super) const WALKED_A_PIECE_MAX: u64 = 1_000;
/// Ids that are passed in one piece: those of deleted documents, and those that are not requested.
const PASSED_A_PIECE_MAX: u32 = 10_000;
/// The clock is checked once per 64 of them.
const PASSED_A_LOOK: u32 = 64;
/// Ids that a first scan finds at most.
const SCANNED_IDS_MIN: u64 = 65_536;
/// Ids that any scan finds at most. Each finds four times as many as the one before.
const SCANNED_IDS_MAX: u64 = 1 << 20;
/// A range of ids is scanned rather than walked when it may hold more documents than this part of all.
const WALKED_SHARE: u64 = 8;

/// Documents by id.
pub(crate) struct Documents {
    pub views: Views,
    blocks: Vec<Arc<IdBlocks>>,
    pub ids: Intervals,
    pub descending: bool,
    /// The ids that CouchDB would examine, if no match follows the returned ones.
    counted: PlaceRange,
    /// The last id that was examined.
    pub after: Option<Vec<u8>>,
    /// Documents that were walked over since the walk began, and matches that were wanted then.
    walked: u64,
    wanted: u64,
    /// Ids that the next scan finds at most.
    scan_ids_max: u64,
    /// Whether a scan has examined all remaining documents, so that they are counted.
    is_counted: bool,
    /// Ids that a scan found.
    found: VecDeque<Vec<u8>>,
    state: State,
    /// A user of a database with access, whose documents are walked.
    pub reader: Option<Reader>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// It is not yet decided how they are read: [`Documents::choose`].
    Start,
    Walking,
    /// Few documents are in the ranges, or the selector needs values that only a read document has,
    /// or rules hide parts of documents.
    WalkingToTheEnd,
    Scanning,
    /// `found` has all remaining matches.
    Scanned,
}

/// How a walk continues from a document.
pub(super) enum Way<'a> {
    /// With this document.
    Take,
    /// With the next one.
    Next,
    /// With the first one from this id on, in the direction.
    Seek(&'a [u8]),
    /// Not at all.
    End,
}

impl Way<'_> {
    /// Moves on from a document that is passed.
    fn follow(self, merge: &mut IdMerge<'_>) {
        match self {
            Way::Seek(target) => merge.seek(target),
            _ => merge.next(),
        }
    }
}

/// Ids that one piece passes.
pub(super) struct Passed {
    pub count: u32,
    pub began: Instant,
}

impl Passed {
    /// Counts one; returns whether they are enough for a piece.
    pub fn are_enough(&mut self) -> bool {
        self.count += 1;
        let looks = self.count.is_multiple_of(PASSED_A_LOOK);
        self.count >= PASSED_A_PIECE_MAX || looks && self.began.elapsed() >= PIECE_TIME
    }
}

/// Whether a stored row has the value of a field: of underscore members it has two.
pub(crate) fn is_stored(path: &FieldPath) -> bool {
    let name = path.first();
    !name.starts_with('_') || ["_id", "_rev"].contains(&name)
}

impl Documents {
    pub fn open(
        db: &DatabaseAs,
        find: &Find,
        plan: &Plan,
        after: Option<Vec<u8>>,
    ) -> Result<Documents, Error> {
        let ids = plan
            .columns
            .first()
            .cloned()
            .unwrap_or_else(Intervals::full);
        let (mut low, mut high) = plan.range.clone();
        let (shards, ids) = match &find.partition {
            Some(p) => {
                let (from, to) = partition::bounds(p);
                let shard = db.shard_for(&from);
                let ids = ids.within(from.as_bytes(), to.as_bytes());
                (low, high) = (low.max(from.into()), high.min(to.into()));
                (std::slice::from_ref(shard), ids)
            }
            None => (db.all_shards(), ids),
        };
        let counted = PlaceRange {
            low,
            high: Some(high),
        };
        let (views, blocks) = Views::open(shards)?;
        let known = find.selector.fields().iter().all(is_stored) && !find.selector.needs_whole();
        Ok(Documents {
            views,
            blocks,
            counted: counted_from(counted, after.as_deref(), plan.descending),
            ids,
            descending: plan.descending,
            after,
            walked: 0,
            wanted: find.limit.saturating_add(find.skip),
            scan_ids_max: SCANNED_IDS_MIN,
            is_counted: false,
            found: VecDeque::new(),
            reader: db.reader().cloned(),
            state: match known && db.sees_all() {
                true => State::Start,
                false => State::WalkingToTheEnd,
            },
        })
    }

    /// Chooses how the documents are read, before the first one: only a walk is left where few are
    /// in the ranges. These are counted by rows, which may be long, and so not when it is opened, on
    /// a thread that serves requests.
    pub fn choose(&mut self) -> Result<(), Error> {
        if self.state != State::Start {
            return Ok(());
        }
        let rank = |id: &[u8]| self.views.rank(&self.blocks, id);
        let ranges = self.ids.ranges();
        let share = match (ranges.first(), ranges.last()) {
            _ if self.ids.is_full() => u64::MAX,
            (Some((low, _)), Some((_, high))) => rank(high)?.saturating_sub(rank(low)?),
            _ => 0,
        };
        let few = share < self.views.live_total() / WALKED_SHARE;
        self.state = match few {
            true => State::WalkingToTheEnd,
            false => State::Walking,
        };
        Ok(())
    }

    /// Whether a scan of stored rows has all values that the selector needs, after
    /// [`Documents::choose`].
    pub fn can_be_scanned(&self) -> bool {
        self.state != State::WalkingToTheEnd
    }

    /// Documents that CouchDB would examine, up to the one with the id `behind`; design documents
    /// too.
    pub fn count_up_to(&self, behind: Option<&[u8]>) -> Result<u64, Error> {
        let range = counted_up_to(self.counted.clone(), behind, self.descending);
        let end = match &range.high {
            Some(high) => self.views.rank(&self.blocks, high)?,
            None => self.views.live_total(),
        };
        Ok(end.saturating_sub(self.views.rank(&self.blocks, &range.low)?))
    }

    pub fn scan<'a>(
        &'a self,
        answer: &'a FindAnswer,
        is_over: &'a (dyn Fn() -> bool + Sync),
    ) -> Scan<'a> {
        Scan {
            scans: &answer.db.shared_views().scans,
            share: answer.db.share(),
            views: &self.views,
            find: &answer.find,
            ids: &self.ids,
            after: self.after.as_deref(),
            descending: self.descending,
            is_over,
        }
    }

    /// As [`FindAnswer::next_chunk`].
    pub fn next_chunk(
        &mut self,
        answer: &mut FindAnswer,
        out: &mut Vec<u8>,
        enough: usize,
    ) -> Result<bool, Error> {
        let began = Instant::now();
        self.choose()?;
        loop {
            if answer.is_full() {
                return Ok(false);
            }
            while let Some(id) = self.found.pop_front() {
                // Ids are stored as text. A document that changed since is judged as it is now.
                let text = String::from_utf8_lossy(&id).into_owned();
                let examined = answer.stats.docs_examined;
                if answer.take_document(&text, out)? {
                    answer.given(&id);
                }
                // The scan has counted it.
                answer.stats.docs_examined = examined;
                if answer.is_full() {
                    return Ok(false);
                }
                if out.len() >= enough || began.elapsed() >= PIECE_TIME {
                    return Ok(true);
                }
            }
            match self.state {
                State::Scanned => return Ok(false),
                State::Scanning => self.look_for_more(answer)?,
                State::Start | State::Walking | State::WalkingToTheEnd => {
                    let walking = match self.reader.clone() {
                        None => self.walk(answer, out, enough)?,
                        Some(reader) => self.walk_visible(&reader, answer, out, enough)?,
                    };
                    if !walking {
                        return Ok(false);
                    }
                    let matches = self.wanted.saturating_sub(answer.wanted());
                    let few = matches.saturating_mul(WALKED_A_MATCH) < self.walked;
                    if self.state == State::Walking && self.walked >= WALKED_MIN && few {
                        self.state = State::Scanning;
                    } else {
                        return Ok(true);
                    }
                }
            }
        }
    }

    fn look_for_more(&mut self, answer: &mut FindAnswer) -> Result<(), Error> {
        let count = answer.wanted().min(self.scan_ids_max);
        self.scan_ids_max = SCANNED_IDS_MAX.min(4 * self.scan_ids_max);
        let is_over = || answer.is_wanted().is_err();
        let found = self.scan(answer, &is_over).first_ids(count as usize)?;
        answer.is_wanted()?;
        if !self.is_counted {
            answer.stats.docs_examined += found.examined;
            answer.stats.keys_examined += found.examined;
            self.is_counted = true;
        }
        if found.more {
            self.after = found.ids.last().cloned();
            // Every scan is of all documents. Where many match, those that follow are quicker found in their order.
            if found.matches.saturating_mul(WALKED_A_MATCH) >= found.judged {
                self.state = State::Walking;
                self.walked = 0;
                self.wanted = answer.wanted().saturating_sub(found.ids.len() as u64);
            }
        } else {
            self.state = State::Scanned;
        }
        self.found = found.ids.into();
        Ok(())
    }

    /// Examines documents in order; returns false at the end.
    fn walk(
        &mut self,
        answer: &mut FindAnswer,
        out: &mut Vec<u8>,
        enough: usize,
    ) -> Result<bool, Error> {
        let mut merge = IdMerge::over(&self.views, false, self.descending);
        let Some(start) = self.start() else {
            return Ok(false);
        };
        merge.seek(start);
        let began = Instant::now();
        let counted = answer.stats;
        let mut seen = 0;
        let mut passed = Passed { count: 0, began };
        let mut last = self.after.take();
        let mut more = false;
        while let Some((shard, id, value)) = merge.entry() {
            if last.as_deref() == Some(id) {
                merge.next();
                continue;
            }
            match self.way_from(id, value)? {
                Way::Take => {}
                Way::End => break,
                _ if passed.are_enough() => {
                    last = Some(id.to_vec());
                    more = true;
                    break;
                }
                way => {
                    way.follow(&mut merge);
                    continue;
                }
            }
            seen += 1;
            let place = id.to_vec();
            if self.take(answer, shard, &place, value, out)? {
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
            merge.next();
        }
        merge.status()?;
        drop(merge);
        self.walked += seen;
        if self.is_counted {
            answer.stats.docs_examined = counted.docs_examined;
        } else {
            answer.stats.keys_examined += seen;
        }
        self.after = last;
        Ok(more)
    }

    /// Returns the place where the walk continues, or begins; `None` if there is no range.
    pub(super) fn start(&self) -> Option<&[u8]> {
        let ranges = self.ids.ranges();
        match (&self.after, ranges.first(), ranges.last()) {
            (Some(id), ..) => Some(id.as_slice()),
            (None, Some((low, _)), Some((_, high))) => Some(if self.descending {
                high.as_slice()
            } else {
                low
            }),
            _ => None,
        }
    }

    /// How the walk continues from the document with this id and record.
    fn way_from(&self, id: &[u8], value: &[u8]) -> Result<Way<'_>, Error> {
        Ok(match self.way_by_id(id) {
            Way::Take if RecordHead::decode(value)?.deleted => Way::Next,
            way => way,
        })
    }

    /// How the walk continues from the document with this id, if that is not deleted.
    pub(super) fn way_by_id(&self, id: &[u8]) -> Way<'_> {
        let Err(next) = self.ids.find(id) else {
            return match id.starts_with(b"_design/") {
                true => Way::Next,
                false => Way::Take,
            };
        };
        match self.range_at(next) {
            None => Way::End,
            // The end of a range is not in it.
            Some(target) if self.descending && id == target => Way::Next,
            Some(target) => Way::Seek(target),
        }
    }

    /// Where the walk enters the next range, when it has reached a place between the range before
    /// `next` and that range.
    fn range_at(&self, next: usize) -> Option<&[u8]> {
        let ranges = self.ids.ranges();
        if self.descending {
            return Some(&ranges[next.checked_sub(1)?].1);
        }
        ranges.get(next).map(|(low, _)| low.as_slice())
    }

    /// Judges a document by its stored body before it is read in full.
    fn take(
        &self,
        answer: &mut FindAnswer,
        shard: usize,
        id: &[u8],
        value: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<bool, Error> {
        let text = String::from_utf8_lossy(id).into_owned();
        if !self.can_be_scanned() || answer.find.selector.is_everything() {
            return answer.take_document(&text, out);
        }
        let head = RecordHead::decode(value)?;
        let mut members = b"\"_id\":".to_vec();
        document::write_json_string(&text, &mut members);
        members.extend_from_slice(b",\"_rev\":");
        head.winner.write_json_to(&mut members);
        let (shard, view) = (&self.views.shards[shard], &self.views.views[shard]);
        let matches = view.with_body(shard, head.body_seq()?, |stored| {
            let body = StoredBody::move_stubs(stored, &mut members)?;
            let members = &members;
            Some(answer.find.selector.matches_doc(&Doc { members, body }))
        })?;
        if matches.flatten().transpose()? == Some(false) {
            answer.stats.docs_examined += 1;
            return Ok(false);
        }
        answer.take_document(&text, out)
    }
}
