//! Results of views: rows and groups of all shards, merged, produced piece by piece from snapshots.

mod reduced;

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::turn::TURN_TIME;
use document::{DocId, Principals, write_json_string};
use functions::SLICE;
use index::{GroupCursor, GroupLevel, IndexView, PlaceRange, RowIter, State, ViewRow};

use super::design::{Design, ViewAt};
use super::placing::{Placing, Searches, Selected};
use super::query::{Grouping, Ranges, ViewQuery};
use super::row_output::{Link, LinkTarget, RowOutput, SameKeyRows, StopPoint, best};
use super::{Update, ViewIndex};
use crate::attachments::ContentPlacement;
use crate::database::Database;
use crate::reader::Reader;
use crate::rules::DatabaseAs;
use crate::seq::Seqs;
use crate::{AttachmentSelection, Error, Read, ReadOptions};

/// A piece ends when rows of this number of bytes were skipped.
const SKIPPED_BYTES_MAX: usize = 4 << 20;

/// States of a group by the indexes of shards.
type ShardStates = Vec<(usize, State)>;

/// Rows of a view, produced piece by piece.
pub struct ViewRows {
    /// For map queries, once they are placed: the number of the view's rows, and the rank of the
    /// first row in the query's direction.
    pub total_rows: Option<u64>,
    /// Rows before the first one.
    pub offset: Option<u64>,
    /// The update seq of the rows, when it was requested.
    pub update_seq: Option<String>,
    /// The database as the caller sees it, for the documents that are shown.
    pub(crate) seen: DatabaseAs,
    /// Of all shards; for a user, the parts of each shard that the user sees.
    views: Vec<IndexView>,
    /// They are such parts: a row may be in several.
    is_of_user: bool,
    at: ViewAt,
    query: ViewQuery,
    /// How contents of attachments get into the rows.
    placement: ContentPlacement,
    /// The remaining ranges, in order.
    ranges: Ranges,
    plan: Plan,
    /// The counts of a map query that are not worked out yet.
    placing: Option<Placing>,
    skip: u64,
    left: u64,
    /// Rows that were appended.
    given: u64,
    first: bool,
    /// Rows of the first range were found.
    is_within: bool,
    /// The last piece ended while rows were reduced, or while they were placed.
    is_paused: bool,
    /// The reduction of the first range as far as it got.
    whole: WholeRange,
    /// The rest of rows that one document has with one key, which a descending query has started to
    /// give: as in CouchDB they stay in ascending order.
    same_key: Option<SameKeyRows>,
}

/// The reduction of a whole range, shard by shard.
#[derive(Default)]
struct WholeRange {
    /// The number of shards that are done.
    shards: usize,
    /// The states of those that have rows.
    states: ShardStates,
}

enum Plan {
    Rows,
    /// The function, and the groups of the current range in each shard.
    Groups(usize, GroupLevel, Option<Vec<GroupCursor>>),
    /// The function; one row for the range.
    Whole(usize),
}

impl Plan {
    fn new(function: Option<usize>, grouping: Grouping) -> Plan {
        match (function, grouping) {
            (None, _) => Plan::Rows,
            (Some(f), Grouping::None) => Plan::Whole(f),
            (Some(f), Grouping::By(level)) => Plan::Groups(f, level, None),
        }
    }
}

impl Database {
    /// Opens a view's rows on the current state of its index. Those of many or long keys, and those
    /// that take too much time, are not placed: see [`ViewRows::place`].
    pub fn view_rows(
        self: &Arc<Self>,
        design: &Design,
        index: &ViewIndex,
        at: ViewAt,
        query: ViewQuery,
    ) -> Result<ViewRows, Error> {
        self.view_rows_for(design, index, at, query, None)
    }

    /// [`Database::view_rows`] of the documents that a user sees.
    ///
    /// # Errors
    /// Errors of the query.
    pub(crate) fn view_rows_for(
        self: &Arc<Self>,
        design: &Design,
        index: &ViewIndex,
        at: ViewAt,
        mut query: ViewQuery,
        reader: Option<&Reader>,
    ) -> Result<ViewRows, Error> {
        self.live()?;
        self.note_used_index(index);
        if let Some(p) = &query.partition {
            crate::check_partition(p)?;
        }
        // Documents of a partition are all in one shard.
        let one = query
            .partition
            .as_ref()
            .map(|p| self.shard_index(&format!("{p}:")));
        let mut views = open_shards(index, one)?;
        if let Some(reader) = reader {
            // It moves with changes that are hidden.
            query.update_seq = false;
            views = parts_of(&views, at.view, reader.user())?;
        }
        let raw = design.spec.views[at.view].raw;
        let reduced = query.reduce.unwrap_or(true).then_some(at.reduce).flatten();
        let update_seq = query.update_seq.then(|| {
            let seqs = index.shards.iter().map(|i| i.indexed_seq()).collect();
            let at = match one {
                // The other shards' place does not matter to the partition.
                Some(_) => seqs,
                None => views.iter().map(IndexView::indexed_seq).collect(),
            };
            let epoch = self.epoch();
            Seqs { epoch, at }.to_term()
        });
        let mut ranges = query.ranges(raw)?;
        // As in CouchDB, `descending` turns the order of `keys` too, but not that of their groups.
        if reduced.is_none() && query.descending {
            ranges.reverse(&query)?;
        }
        let plan = Plan::new(reduced, query.grouping);
        let mut rows = ViewRows {
            total_rows: None,
            offset: None,
            update_seq,
            seen: self.unwatched(),
            views,
            at,
            // Counts would reveal hidden documents.
            placing: (matches!(plan, Plan::Rows) && reader.is_none()).then(Placing::default),
            is_of_user: reader.is_some(),
            plan,
            ranges,
            skip: query.skip,
            left: query.limit.unwrap_or(u64::MAX),
            given: 0,
            first: true,
            is_within: false,
            is_paused: false,
            whole: WholeRange::default(),
            same_key: None,
            placement: ContentPlacement::default(),
            query,
        };
        if !rows.is_long() {
            rows.place()?;
        }
        Ok(rows)
    }

    /// Whether a query of this design document has to wait for the index, by its `update`.
    pub fn view_must_wait(&self, index: &ViewIndex, update: Update) -> bool {
        update == Update::True && !self.view_is_current(index)
    }
}

/// Opens an index in all shards, or in one.
fn open_shards(index: &ViewIndex, one: Option<usize>) -> Result<Vec<IndexView>, Error> {
    let shards = index.shards.iter().enumerate();
    let shards = shards.filter(|(i, _)| one.is_none_or(|one| one == *i));
    let views = shards.map(|(_, shard)| shard.view());
    Ok(views.collect::<Result<Vec<_>, _>>()?)
}

/// Returns the parts of a view that a user sees.
///
/// # Errors
/// Errors of the storage.
pub(crate) fn parts_of(
    shards: &[IndexView],
    view: usize,
    user: &Principals,
) -> Result<Vec<IndexView>, Error> {
    let mut parts = vec![];
    for shard in shards {
        parts.extend(shard.parts_for(view, user)?);
    }
    Ok(parts)
}

/// Passes the row at a place in other parts than the one that it was read from.
fn pass_equal(iters: &mut [RowIter<'_>], place: &[u8]) -> Result<(), Error> {
    for iter in iters {
        if iter.place()? == Some(place) {
            iter.next();
        }
    }
    Ok(())
}

impl ViewRows {
    /// Whether `total_rows` and `offset` are hidden: they would count documents that the user may not
    /// see.
    pub fn hides_counts(&self) -> bool {
        self.is_of_user && !self.is_reduced()
    }

    /// Places contents of attachments in this way; the default is whole.
    pub fn place_contents(&mut self, placement: ContentPlacement) {
        self.placement = placement;
    }

    /// Whether the rows are reductions.
    pub fn is_reduced(&self) -> bool {
        !matches!(self.plan, Plan::Rows)
    }

    /// Works out a part of `total_rows` and `offset`, and passes rows that are skipped; returns
    /// whether more of that is left. [`ViewRows::next_rows`] does it if the caller has not.
    ///
    /// # Errors
    /// Errors of the storage.
    pub fn place(&mut self) -> Result<bool, Error> {
        let Some(placing) = &mut self.placing else {
            return Ok(false);
        };
        self.seen.live()?;
        // The clock is read when some rows were walked: most queries walk through few.
        let (began, is_over) = (Cell::new(None), Cell::new(false));
        let may_pause = !self.is_paused;
        let pause = || {
            let start = began.get().unwrap_or_else(Instant::now);
            began.set(Some(start));
            is_over.set(may_pause && start.elapsed() >= TURN_TIME);
            is_over.get()
        };
        let placed = placing.go_on(&mut Selected {
            views: &self.views,
            view: self.at.view,
            query: &self.query,
            ranges: &mut self.ranges,
            skip: &mut self.skip,
            pause: &pause,
        });
        if placed.is_err() && is_over.get() {
            // The walk starts again, where it may take more time.
            self.is_paused = true;
            return Ok(true);
        }
        let Some(placed) = placed? else {
            return Ok(true);
        };
        (self.total_rows, self.offset) = (Some(placed.total_rows), Some(placed.offset));
        self.placing = None;
        Ok(false)
    }

    /// Whether [`ViewRows::place`] has ended: `total_rows` and `offset` have values, unless the rows
    /// are reduced.
    pub fn is_placed(&self) -> bool {
        self.placing.is_none()
    }

    /// Whether too many or too long keys are left for a thread that serves requests, or too many rows to
    /// reduce or to walk through.
    pub fn is_long(&self) -> bool {
        self.is_paused || self.ranges.are_long()
    }

    /// Returns the maximum time of a piece with documents or reductions. Custom functions run on other
    /// threads than those that serve requests.
    fn piece_time(&self) -> Option<Duration> {
        match self.plan {
            Plan::Rows => self.query.include_docs.then_some(TURN_TIME),
            Plan::Groups(function, ..) | Plan::Whole(function) => {
                let mut views = self.views.iter();
                let is_custom = views.any(|v| v.is_custom(self.at.view, function));
                Some(if is_custom { SLICE } else { TURN_TIME })
            }
        }
    }

    /// Appends rows joined by `,\r\n` until about `soft_bytes` were added; returns false at the
    /// end.
    pub fn next_chunk(&mut self, out: &mut Vec<u8>, soft_bytes: usize) -> Result<bool, Error> {
        let enough = out.len() + soft_bytes.max(1);
        // Results of slow reduce functions are returned piece by piece: others wait for this
        // thread.
        let timed = self.piece_time().map(|time| (Instant::now(), time));
        let mut given = 0;
        let more = self.next_rows(&mut |separator, row| {
            given += 1;
            if separator {
                out.extend_from_slice(b",\r\n");
            }
            out.extend_from_slice(row);
            out.len() < enough && timed.is_none_or(|(started, time)| started.elapsed() < time)
        });
        self.given += given;
        more
    }

    /// Rows that were appended so far.
    pub fn given(&self) -> u64 {
        self.given
    }

    /// Passes rows to `take`, one after the other (with whether it is not the first), until that
    /// returns false, the rows end, or much was searched, skipped or reduced, maybe without a row;
    /// returns whether there may be more.
    pub fn next_rows(&mut self, take: &mut dyn FnMut(bool, &[u8]) -> bool) -> Result<bool, Error> {
        self.seen.live()?;
        // Reduce functions may be called.
        let reduces = !matches!(self.plan, Plan::Rows);
        let _cause = reduces.then(|| self.seen.requester().enter());
        if self.place()? {
            return Ok(true);
        }
        self.placement.begin_piece();
        self.is_paused = false;
        let until = reduces.then(Instant::now).zip(self.piece_time());
        let pause = || until.is_some_and(|(began, time)| began.elapsed() >= time);
        let mut searches = Searches::default();
        while !self.is_done() {
            let before = (self.skip, self.left);
            let more = match self.plan {
                Plan::Rows => self.rows_of_range(take)?,
                Plan::Groups(..) => self.groups_of_range(take, &mut searches, &pause)?,
                Plan::Whole(function) => self.whole_range(function, take, &pause)?,
            };
            if more {
                self.is_within = true;
                return Ok(true);
            }
            let is_empty = !std::mem::take(&mut self.is_within) && before == (self.skip, self.left);
            match is_empty {
                true => self.ranges.pop_equal(&self.query)?,
                false => self.ranges.pop_front(&self.query)?,
            }
            if !self.is_done() && searches.are_enough() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn is_done(&self) -> bool {
        self.left == 0 || self.ranges.is_empty()
    }

    fn rows_of_range(&mut self, take: &mut dyn FnMut(bool, &[u8]) -> bool) -> Result<bool, Error> {
        let Some(range) = self.ranges.front().cloned() else {
            return Ok(false);
        };
        if range.is_empty() && self.same_key.is_none() {
            return Ok(false);
        }
        let descending = self.query.descending;
        let mut output = RowOutput {
            skip: self.skip,
            left: self.left,
            first: self.first,
            take,
        };
        let mut stop_point = None;
        if let Some(same_key) = &self.same_key {
            stop_point = self
                .same_key_rows(same_key, &mut output)?
                .map(StopPoint::Among);
        }
        if stop_point.is_none() {
            stop_point = self.rows_from(&range, &mut output)?;
        }
        (self.skip, self.left, self.first) = (output.skip, output.left, output.first);
        self.same_key = None;
        let (Some(stop_point), Some(range)) = (stop_point, self.ranges.front_mut()) else {
            return Ok(false);
        };
        match stop_point {
            StopPoint::At(place) if descending => range.high = Some(place),
            StopPoint::At(place) => range.low = [&place[..], &[0]].concat(),
            StopPoint::Among((same_key, first)) => {
                range.high = Some(first);
                self.same_key = Some(same_key);
            }
        }
        Ok(true)
    }

    /// Emits the rows of a range, all shards merged; returns the position at which it stopped.
    fn rows_from(
        &self,
        range: &PlaceRange,
        output: &mut RowOutput<'_>,
    ) -> Result<Option<StopPoint>, Error> {
        let descending = self.query.descending;
        let mut iters: Vec<RowIter<'_>> = self
            .views
            .iter()
            .map(|v| v.iter(self.at.view, range, descending))
            .collect();
        let mut row_text = vec![];
        let mut skipped_bytes = 0;
        while let Some(next) = best(&iters, descending)? {
            if output.left == 0 {
                break;
            }
            // `best` has found a row there.
            let Some(row) = iters[next].row()? else {
                break;
            };
            if descending && row.repeats()? {
                let same_key = SameKeyRows {
                    shard: next,
                    left: row.same_key()?,
                };
                if let Some(stop_point) = self.same_key_rows(&same_key, output)? {
                    return Ok(Some(StopPoint::Among(stop_point)));
                }
                let first = same_key.left.low;
                for iter in &mut iters {
                    // Other shards are before these rows, and other parts may have them.
                    if iter.place()?.is_some_and(|place| place >= &*first) {
                        iter.seek(&first);
                        if iter.place()? == Some(&*first) {
                            iter.next();
                        }
                    }
                }
                continue;
            }
            let place = self.is_of_user.then(|| row.place.to_vec());
            if output.wants() {
                row_text.clear();
                self.write_row(&row, &mut row_text)?;
                if !output.give(&row_text) {
                    return Ok(Some(StopPoint::At(row.place.to_vec())));
                }
            } else {
                skipped_bytes += row.stored.key.len() + row.stored.value.len();
                if skipped_bytes > SKIPPED_BYTES_MAX {
                    return Ok(Some(StopPoint::At(row.place.to_vec())));
                }
            }
            iters[next].next();
            if let Some(place) = place {
                pass_equal(&mut iters, &place)?;
            }
        }
        Ok(None)
    }

    /// Returns rows that one document has with one key, in ascending order. Returns the remaining
    /// ones when it stopped, and the place of the first of them all.
    fn same_key_rows(
        &self,
        same_key: &SameKeyRows,
        output: &mut RowOutput<'_>,
    ) -> Result<Option<(SameKeyRows, Vec<u8>)>, Error> {
        let mut iter = self.views[same_key.shard].iter(self.at.view, &same_key.left, false);
        let mut row_text = vec![];
        while let Some(row) = iter.row()? {
            if output.left == 0 {
                break;
            }
            if output.wants() {
                row_text.clear();
                self.write_row(&row, &mut row_text)?;
                if !output.give(&row_text) {
                    let first = row.same_key()?.low;
                    let left = PlaceRange {
                        low: [row.place, &[0]].concat(),
                        high: same_key.left.high.clone(),
                    };
                    let shard = same_key.shard;
                    return Ok(Some((SameKeyRows { shard, left }, first)));
                }
            }
            iter.next();
        }
        Ok(None)
    }

    fn write_row(&self, row: &ViewRow<'_>, out: &mut Vec<u8>) -> Result<(), Error> {
        let id = row.id()?;
        out.extend_from_slice(b"{\"id\":");
        write_json_string(&id, out);
        out.extend_from_slice(b",\"key\":");
        out.extend_from_slice(row.stored.key);
        out.extend_from_slice(b",\"value\":");
        out.extend_from_slice(row.stored.value);
        if self.query.include_docs {
            out.extend_from_slice(b",\"doc\":");
            self.write_doc(&id, row.stored.value, out)?;
        }
        out.push(b'}');
        Ok(())
    }

    /// Writes the row's document, or the one that its value names by `_id` and `_rev`.
    fn write_doc(&self, id: &str, value: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
        let link = Link::of(value);
        // As in CouchDB, `conflicts` is about a row's own document.
        let target = link.target();
        let conflicts = self.query.conflicts == Some(true) && target == LinkTarget::Own;
        let id = match &target {
            LinkTarget::Own => id,
            LinkTarget::Other(id) => id.as_str(),
            LinkTarget::Nothing => {
                out.extend_from_slice(b"null");
                return Ok(());
            }
        };
        let options = ReadOptions {
            rev: link.rev(),
            conflicts,
            att_encoding_info: self.query.attachments.encoding_info,
            attachments: match self.query.attachments.bytes {
                true => AttachmentSelection::All,
                false => AttachmentSelection::None,
            },
            ..ReadOptions::default()
        };
        let found = match DocId::new(id) {
            Ok(id) => match self.seen.read(&id, &options) {
                // A link to what cannot be in this database, or may not be seen, leads nowhere.
                Err(Error::Forbidden(_) | Error::Partition(..)) => Read::Missing,
                other => other?,
            },
            Err(_) => Read::Missing,
        };
        match found {
            Read::Found(doc) if self.query.attachments.bytes => {
                let encoding_info = self.query.attachments.encoding_info;
                let placement = &self.placement;
                (self.seen).write_with_bytes(&doc, encoding_info, placement, out)?;
            }
            Read::Found(doc) => out.extend_from_slice(&doc.json),
            Read::Missing | Read::Deleted => out.extend_from_slice(b"null"),
        }
        Ok(())
    }
}
