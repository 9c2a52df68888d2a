//! Listings of documents by id: `_all_docs`, `_design_docs`, `_local_docs` and a partition's.
//!
//! `query.rs` has the parameters of a listing, `range.rs` a range of ids, `placing.rs` its counts and
//! its offset, `write.rs` the text of rows, `visible.rs` the rows that a user of a database with access
//! sees.

mod placing;
mod query;
mod range;
#[cfg(test)]
mod tests;
mod visible;
mod write;

use std::sync::Arc;

use storage::{Contents, RecordHead};

use placing::Placing;
use query::KeyRef;
pub use query::{Bound, Key, Keys, Listing, RowsQuery};
pub(crate) use visible::VisibleIds;
pub(crate) use write::write_members;

use crate::attachments::{ContentPlacement, ShownAttachments};
use crate::database::Database;
use crate::reader::Reader;
use crate::rules::Watch;
use crate::select::{IdMerge, Views};
use crate::seq::Seqs;
use crate::turn::Turn;
use crate::{Error, partition};
use range::Range;
use write::separate;

/// Rows that are examined in one piece, before the thread is released: deleted documents are read
/// too, and return no row.
const ROWS_A_PIECE_MAX: u32 = 10_000;

/// The reason of another listing as a user of a database with access.
const ONLY_ALL_DOCS: &str = "only admins of a database with access by document can list these";

/// Rows of a listing, produced piece by piece from one snapshot.
pub struct Rows {
    /// Documents that the listing could show; not known of local ones.
    pub total_rows: Option<u64>,
    /// Rows before the first one.
    pub offset: Option<u64>,
    /// The update seq of the rows, when it was requested.
    pub update_seq: Option<String>,
    views: Views,
    plan: Plan,
    /// `None` once `total_rows` and `offset` are worked out.
    placing: Option<Box<Placing>>,
    include_docs: bool,
    conflicts: bool,
    attachments: ShownAttachments,
    placement: ContentPlacement,
    /// Contents of the shards of `views`, in their order.
    contents: Vec<Arc<Contents>>,
    first: bool,
    /// Rules that hide documents from the caller.
    pub(crate) watch: Option<Watch>,
    /// The user whose documents are listed, in a database with access. Nothing is counted then.
    reader: Option<Reader>,
}

enum Plan {
    Keys(KeysLeft),
    Range(Range),
    Done,
}

/// Keys that are still to be looked up.
struct KeysLeft {
    keys: Keys,
    is_partitioned: bool,
    /// The places of those that are left.
    places: std::ops::Range<usize>,
    descending: bool,
    /// Others than those that begin so give no row.
    prefix: Option<&'static str>,
    /// Rows that are passed over, and then given.
    skip: u64,
    left: u64,
}

impl KeysLeft {
    /// The place of the next key that gives a row.
    fn next(&mut self) -> Option<usize> {
        while self.left > 0 {
            let place = match self.descending {
                false => self.places.next()?,
                true => self.places.next_back()?,
            };
            if let Some(prefix) = self.prefix
                && !matches!(self.keys.get(place), Some(KeyRef::Id(id)) if id.starts_with(prefix))
            {
                continue;
            }
            if self.skip > 0 {
                self.skip -= 1;
                continue;
            }
            self.left -= 1;
            return Some(place);
        }
        None
    }
}

impl Database {
    /// Opens a listing.
    pub fn rows(&self, query: RowsQuery) -> Result<Rows, Error> {
        self.rows_for(query, None)
    }

    /// Opens a listing of the documents that a user sees.
    pub(crate) fn rows_for(
        &self,
        query: RowsQuery,
        reader: Option<&Reader>,
    ) -> Result<Rows, Error> {
        let mut rows = self.start_rows_for(query, reader)?;
        while self.if_live(rows.place())? {}
        Ok(rows)
    }

    /// Opens a listing on a thread that serves requests: counts that take longer than a piece of
    /// its rows are left to [`Rows::place`].
    pub fn start_rows(&self, query: RowsQuery) -> Result<Rows, Error> {
        self.start_rows_for(query, None)
    }

    /// [`Database::start_rows`] of the documents that a user sees.
    pub(crate) fn start_rows_for(
        &self,
        query: RowsQuery,
        reader: Option<&Reader>,
    ) -> Result<Rows, Error> {
        self.live()?;
        self.if_live(self.rows_now(query, reader))
    }

    fn rows_now(&self, mut query: RowsQuery, reader: Option<&Reader>) -> Result<Rows, Error> {
        if reader.is_some() {
            if !matches!(query.listing, Listing::AllDocs) {
                return Err(Error::Forbidden(ONLY_ALL_DOCS));
            }
            query.update_seq = false;
        }
        let shards = match &query.listing {
            Listing::Partition(p) if query.keys.is_none() => {
                partition::check(p)?;
                let shard = self.shard_index(&partition::bounds(p).0);
                shard..shard + 1
            }
            _ => 0..self.all_shards().len(),
        };
        let (views, blocks) = Views::open(&self.all_shards()[shards.clone()])?;
        let contents_of = |shard| self.homes().of_shard(shard).clone();
        let contents = shards.map(contents_of).collect();
        let update_seq = query.update_seq.then(|| self.seqs_of(&views).to_term());
        let range = query.keys.is_none().then(|| Range::of(&query));
        let placing = match &query.listing {
            // Of local documents nothing is counted.
            Listing::LocalDocs => None,
            // Counts would reveal hidden documents.
            _ if reader.is_some() => None,
            _ => Some(Box::new(Placing::of(
                &query,
                range.as_ref(),
                &views,
                blocks,
            ))),
        };
        let mut rows = Rows {
            total_rows: None,
            offset: None,
            update_seq,
            views,
            placing,
            include_docs: query.include_docs,
            conflicts: query.conflicts,
            attachments: query.attachments,
            placement: ContentPlacement::default(),
            contents,
            first: true,
            watch: None,
            reader: reader.cloned(),
            plan: self.plan_rows(query, range),
        };
        rows.place()?;
        Ok(rows)
    }

    fn plan_rows(&self, query: RowsQuery, range: Option<Range>) -> Plan {
        if let Some(keys) = query.keys {
            return Plan::Keys(KeysLeft {
                places: 0..keys.len(),
                keys,
                is_partitioned: self.is_partitioned(),
                descending: query.descending,
                prefix: match &query.listing {
                    Listing::DesignDocs => Some("_design/"),
                    Listing::LocalDocs => Some("_local/"),
                    _ => None,
                },
                skip: query.skip,
                left: query.limit.unwrap_or(u64::MAX),
            });
        }
        range.map_or(Plan::Done, Plan::Range)
    }

    /// The seqs of the shards in the views, so that a feed from here has exactly the changes after
    /// the rows.
    fn seqs_of(&self, views: &Views) -> Seqs {
        let at = self.all_shards().iter().map(|s| {
            let seen = views.shards.iter().position(|v| v.number == s.number);
            seen.map_or_else(|| s.meta(), |i| views.views[i].meta.clone())
                .update_seq
        });
        Seqs {
            epoch: self.epoch(),
            at: at.collect(),
        }
    }
}

impl Rows {
    /// Places contents of attachments in this way; the default is whole.
    pub fn place_contents(&mut self, placement: ContentPlacement) {
        self.placement = placement;
    }

    /// Works out a part of `total_rows` and `offset`, and passes rows that are skipped; returns
    /// whether more of that is left. [`Rows::next_chunk`] does it if the caller has not.
    ///
    /// # Errors
    /// Errors of the storage.
    pub fn place(&mut self) -> Result<bool, Error> {
        let Some(placing) = &mut self.placing else {
            return Ok(false);
        };
        let Some(placed) = placing.go_on(&self.views, &mut Turn::begin())? else {
            return Ok(true);
        };
        self.total_rows = Some(placed.total_rows);
        if let Plan::Range(range) = &mut self.plan {
            self.offset = Some(placed.offset);
            range.start(placed.start);
        }
        self.placing = None;
        Ok(false)
    }

    /// Whether [`Rows::place`] has ended: `total_rows` and `offset` have their values.
    pub fn is_placed(&self) -> bool {
        self.placing.is_none()
    }

    /// Appends rows joined by `,\r\n` until about `soft_bytes` were added; returns false at the
    /// end.
    pub fn next_chunk(&mut self, out: &mut Vec<u8>, soft_bytes: usize) -> Result<bool, Error> {
        if self.place()? {
            return Ok(true);
        }
        self.write_piece(&mut Turn::begin(), out, soft_bytes)
    }

    /// Appends rows until the piece is over or long enough.
    fn write_piece(
        &mut self,
        turn: &mut Turn,
        out: &mut Vec<u8>,
        soft_bytes: usize,
    ) -> Result<bool, Error> {
        let enough = out.len() + soft_bytes;
        self.placement.begin_piece();
        match std::mem::replace(&mut self.plan, Plan::Done) {
            Plan::Done => Ok(false),
            Plan::Keys(mut keys) => {
                while let Some(place) = keys.next() {
                    if let Some(key) = keys.keys.get(place) {
                        self.write_key(key, keys.is_partitioned, out)?;
                    }
                    if out.len() >= enough || turn.is_over(true) {
                        self.plan = Plan::Keys(keys);
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            Plan::Range(range) if range.left == 0 => Ok(false),
            Plan::Range(mut range) => {
                let more = match self.reader.clone() {
                    None => self.write_range(&mut range, turn, out, enough)?,
                    Some(reader) => self.write_visible(&reader, &mut range, turn, out, enough)?,
                };
                if more {
                    self.plan = Plan::Range(range);
                }
                Ok(more)
            }
        }
    }

    fn write_range(
        &mut self,
        range: &mut Range,
        turn: &mut Turn,
        out: &mut Vec<u8>,
        enough: usize,
    ) -> Result<bool, Error> {
        let mut first = self.first;
        let mut merge = IdMerge::over(&self.views, range.local, range.descending);
        range.position(&mut merge);
        let mut more = false;
        let mut looked_at = 0;
        while let Some((shard, id, value)) = merge.entry() {
            if range.is_past(id) || range.left == 0 {
                break;
            }
            if range.is_before(id) {
                merge.next();
                continue;
            }
            let shown = if range.local {
                true
            } else {
                !RecordHead::decode(value)?.deleted
            };
            if shown && range.skip > 0 {
                range.skip -= 1;
            } else if shown {
                separate(&mut first, out);
                if range.local {
                    self.write_local(id, value, out)?;
                } else {
                    self.write_row(shard, id, value, out)?;
                }
                range.left -= 1;
            }
            looked_at += 1;
            turn.note(value.len());
            let is_over = turn.is_over(shown && self.include_docs);
            if out.len() >= enough || looked_at >= ROWS_A_PIECE_MAX || is_over {
                range.from = Some(id.to_vec());
                range.after = true;
                more = true;
                break;
            }
            merge.next();
        }
        merge.status()?;
        self.first = first;
        Ok(more)
    }
}
