//! Listings of documents by id: `_all_docs`, `_design_docs`, `_local_docs` and a partition's.

use std::sync::Arc;

use document::{DocId, StoredBody, write_json_string};
use storage::{Contents, Record, RecordHead, decode_local, local_rev};

use crate::attachments::ShownAttachments;
use crate::database::Database;
use crate::read::write_leaves;
use crate::rules::Watch;
use crate::select::{IdMerge, Views};
use crate::seq::Seqs;
use crate::{Error, partition};

/// Deleted documents are looked at too and give no row: come up for air now and then.
const ROWS_A_PIECE_MAX: u32 = 10_000;
/// Skips up to this many rows by walking them; more by the summary tree.
const SKIP_WALKED_MAX: u64 = 512;

pub enum Listing {
    AllDocs,
    DesignDocs,
    LocalDocs,
    Partition(String),
}

/// A key of `keys`: only strings can be ids; anything else is echoed as not found.
pub enum Key {
    Id(String),
    /// JSON text.
    Other(String),
}

/// A start or end of a range. JSON that is no string lies before or after every id in the listing's direction.
#[derive(Clone, Debug)]
pub enum Bound {
    Id(String),
    BeforeAll,
    AfterAll,
}

pub struct RowsQuery {
    pub listing: Listing,
    pub start: Option<Bound>,
    pub end: Option<Bound>,
    pub inclusive_end: bool,
    pub keys: Option<Vec<Key>>,
    pub limit: Option<u64>,
    pub skip: u64,
    pub descending: bool,
    pub include_docs: bool,
    pub conflicts: bool,
    pub attachments: ShownAttachments,
    pub update_seq: bool,
}

/// Rows of a listing, produced piece by piece from one snapshot.
pub struct Rows {
    pub total_rows: Option<u64>,
    pub offset: Option<u64>,
    pub update_seq: Option<String>,
    views: Views,
    plan: Plan,
    include_docs: bool,
    conflicts: bool,
    attachments: ShownAttachments,
    contents: Arc<Contents>,
    first: bool,
    /// Who is shown only what rules allow.
    pub(crate) watch: Option<Watch>,
}

enum Plan {
    Keys(std::vec::IntoIter<KeyAt>),
    Range(Range),
    Done,
}

/// A key and the shard that would hold it.
struct KeyAt {
    key: Key,
    shard: usize,
}

struct Range {
    local: bool,
    descending: bool,
    /// Where to go on; `None`: from the listing's end in its direction.
    from: Option<Vec<u8>>,
    /// `from` was the last row given, and is to be passed over.
    after: bool,
    /// First id that is not in the listing's range any more (ascending), or the last that still is (descending).
    low: Vec<u8>,
    high: Option<Vec<u8>>,
    high_inclusive: bool,
    low_inclusive: bool,
    skip: u64,
    left: u64,
}

impl Database {
    /// Opens a listing.
    pub fn rows(&self, query: RowsQuery) -> Result<Rows, Error> {
        self.live()?;
        let (views, blocks) = match &query.listing {
            Listing::Partition(p) if query.keys.is_none() => {
                partition::check(p)?;
                let (from, _) = partition::bounds(p);
                Views::open(std::slice::from_ref(self.shard_for(&from)))?
            }
            _ => Views::open(self.all_shards())?,
        };
        let update_seq = query.update_seq.then(|| {
            // Of the views, so that a feed from here shows what the rows do not.
            let at = self.all_shards().iter().map(|s| {
                let seen = views.shards.iter().position(|v| v.number == s.number);
                seen.map_or_else(|| s.meta(), |i| views.views[i].meta.clone())
                    .update_seq
            });
            Seqs {
                epoch: self.epoch(),
                at: at.collect(),
            }
            .to_string()
        });
        let mut rows = Rows {
            total_rows: None,
            offset: None,
            update_seq,
            views,
            plan: Plan::Done,
            include_docs: query.include_docs,
            conflicts: query.conflicts,
            attachments: query.attachments,
            contents: self.contents().clone(),
            first: true,
            watch: None,
        };
        rows.total_rows = match (&query.listing, &query.keys) {
            (Listing::LocalDocs, _) => None,
            (Listing::DesignDocs, _) => {
                let views = &rows.views;
                let to = views.rank(&blocks, b"_design0")?;
                Some(to - views.rank(&blocks, b"_design/")?)
            }
            (Listing::Partition(p), None) => {
                let (from, to) = partition::bounds(p);
                let to = rows.views.rank(&blocks, to.as_bytes())?;
                Some(to - rows.views.rank(&blocks, from.as_bytes())?)
            }
            _ => Some(rows.views.live_total()),
        };
        if let Some(keys) = query.keys {
            rows.plan = self.plan_keys(
                keys,
                &query.listing,
                query.descending,
                query.skip,
                query.limit,
            );
            return Ok(rows);
        }
        let mut range = Range::of(&query);
        if !range.local {
            rows.offset = Some(range.place(&rows.views, &blocks, &query)?);
        }
        rows.plan = if range.left == 0 {
            Plan::Done
        } else {
            Plan::Range(range)
        };
        Ok(rows)
    }

    fn plan_keys(
        &self,
        mut keys: Vec<Key>,
        listing: &Listing,
        descending: bool,
        skip: u64,
        limit: Option<u64>,
    ) -> Plan {
        let prefix = match listing {
            Listing::DesignDocs => Some("_design/"),
            Listing::LocalDocs => Some("_local/"),
            _ => None,
        };
        if let Some(prefix) = prefix {
            keys.retain(|k| matches!(k, Key::Id(id) if id.starts_with(prefix)));
        }
        if descending {
            keys.reverse();
        }
        let keys: Vec<KeyAt> = keys
            .into_iter()
            .skip(skip as usize)
            .take(limit.map_or(usize::MAX, |l| l as usize))
            .map(|key| KeyAt {
                shard: match &key {
                    Key::Id(id) => self.shard_index(id),
                    Key::Other(_) => 0,
                },
                key,
            })
            .collect();
        Plan::Keys(keys.into_iter())
    }
}

impl Range {
    fn of(query: &RowsQuery) -> Range {
        // The listing's own bounds, then the query's within them.
        let (mut low, mut high) = match &query.listing {
            Listing::DesignDocs => (b"_design/".to_vec(), Some(b"_design0".to_vec())),
            Listing::Partition(p) => {
                let (from, to) = partition::bounds(p);
                (from.into_bytes(), Some(to.into_bytes()))
            }
            Listing::AllDocs | Listing::LocalDocs => (vec![], None),
        };
        let (mut low_inclusive, mut high_inclusive) = (true, false);
        let (from_low, from_high) = if query.descending {
            (&query.end, &query.start)
        } else {
            (&query.start, &query.end)
        };
        let mut empty = false;
        match from_low {
            Some(Bound::Id(id)) if id.as_bytes() >= low.as_slice() => {
                low = id.clone().into_bytes();
                low_inclusive = !query.descending || query.inclusive_end;
            }
            Some(Bound::AfterAll) => empty = true,
            _ => {}
        }
        match from_high {
            Some(Bound::Id(id)) if high.as_ref().is_none_or(|h| id.as_bytes() < h.as_slice()) => {
                high = Some(id.clone().into_bytes());
                high_inclusive = query.descending || query.inclusive_end;
            }
            Some(Bound::BeforeAll) => empty = true,
            _ => {}
        }
        Range {
            local: matches!(query.listing, Listing::LocalDocs),
            descending: query.descending,
            from: if query.descending {
                high.clone()
            } else {
                Some(low.clone())
            },
            after: false,
            low,
            high,
            high_inclusive,
            low_inclusive,
            skip: query.skip,
            left: if empty {
                0
            } else {
                query.limit.unwrap_or(u64::MAX)
            },
        }
    }

    /// Works out the offset of the first row, and jumps there when the skip is long.
    fn place(
        &mut self,
        views: &Views,
        blocks: &[std::sync::Arc<storage::IdBlocks>],
        query: &RowsQuery,
    ) -> Result<u64, Error> {
        let total = views.live_total();
        // Rank of the range's first row in its direction, without the skip.
        let before = if self.descending {
            match &self.high {
                None => 0,
                Some(high) => {
                    let mut upto = high.clone();
                    if self.high_inclusive {
                        upto.push(0);
                    }
                    total - views.rank(blocks, &upto)?
                }
            }
        } else {
            views.rank(blocks, &self.low)?
        };
        let base = match &query.listing {
            Listing::Partition(p) if !self.descending => {
                views.rank(blocks, partition::bounds(p).0.as_bytes())?
            }
            Listing::Partition(p) => {
                total - views.rank(blocks, partition::bounds(p).1.as_bytes())?
            }
            _ => 0,
        };
        let within = match &query.listing {
            Listing::Partition(p) => {
                let (from, to) = partition::bounds(p);
                views.rank(blocks, to.as_bytes())? - views.rank(blocks, from.as_bytes())?
            }
            _ => total,
        };
        let skipped = before.saturating_add(self.skip).min(total);
        let shown = match (&query.start, self.descending) {
            // A start outside the listing's kind of keys: CouchDB's offset is 0.
            (Some(Bound::BeforeAll), false) | (Some(Bound::AfterAll), true) => {
                base.saturating_add(self.skip)
            }
            _ => skipped,
        };
        if self.skip > SKIP_WALKED_MAX && self.left > 0 {
            let rank = if self.descending {
                total.checked_sub(skipped + 1)
            } else {
                Some(skipped)
            };
            match rank.map(|r| views.id_at(blocks, r)).transpose()?.flatten() {
                Some(id) => self.from = Some(id),
                None => self.left = 0,
            }
            self.skip = 0;
        }
        Ok(shown.saturating_sub(base).min(within))
    }

    fn position(&self, merge: &mut IdMerge<'_>) {
        match &self.from {
            Some(id) => merge.seek(id),
            None => merge.seek_to_end(),
        }
    }

    /// Is `id` past the range in its direction?
    fn is_past(&self, id: &[u8]) -> bool {
        if self.descending {
            let low = self.low.as_slice();
            return id < low || (id == low && !self.low_inclusive);
        }
        self.is_above(id)
    }

    fn is_above(&self, id: &[u8]) -> bool {
        self.high
            .as_deref()
            .is_some_and(|high| id > high || (id == high && !self.high_inclusive))
    }

    /// Is `id` not yet in the range?
    fn is_before(&self, id: &[u8]) -> bool {
        let again = self.after && self.from.as_deref() == Some(id);
        again || (self.descending && self.is_above(id))
    }
}

impl Rows {
    /// Appends rows joined by `,\r\n` until about `soft_bytes` were added; false when there are no more.
    pub fn next_chunk(&mut self, out: &mut Vec<u8>, soft_bytes: usize) -> Result<bool, Error> {
        let enough = out.len() + soft_bytes;
        match std::mem::replace(&mut self.plan, Plan::Done) {
            Plan::Done => Ok(false),
            Plan::Keys(mut keys) => {
                while let Some(key) = keys.next() {
                    self.write_key(&key, out)?;
                    if out.len() >= enough {
                        self.plan = Plan::Keys(keys);
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            Plan::Range(mut range) => {
                let more = self.write_range(&mut range, out, enough)?;
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
            if out.len() >= enough || looked_at >= ROWS_A_PIECE_MAX {
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

    fn write_row(
        &self,
        shard: usize,
        id: &[u8],
        value: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let head = RecordHead::decode(value)?;
        let id = std::str::from_utf8(id).map_err(|_| storage::Error::Corrupt("document id"))?;
        write_id_and_key(id, out);
        out.extend_from_slice(b",\"value\":{\"rev\":");
        head.winner.write_json_to(out);
        out.push(b'}');
        if self.include_docs {
            out.extend_from_slice(b",\"doc\":");
            self.write_doc(shard, id, &head, value, out)?;
        }
        out.push(b'}');
        Ok(())
    }

    fn write_local(&self, id: &[u8], value: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
        let (n, body) = decode_local(value)?;
        let id = std::str::from_utf8(id).map_err(|_| storage::Error::Corrupt("document id"))?;
        write_id_and_key(id, out);
        out.extend_from_slice(b",\"value\":{\"rev\":");
        let rev = local_rev(n);
        rev.write_json_to(out);
        out.push(b'}');
        if self.include_docs {
            out.extend_from_slice(b",\"doc\":");
            let start = out.len();
            write_members(id, &rev, false, &body, out);
            out.push(b'}');
            self.censor(id, start, out);
        }
        out.push(b'}');
        Ok(())
    }

    fn write_doc(
        &self,
        shard: usize,
        id: &str,
        head: &RecordHead<'_>,
        value: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let record = match head.body {
            Some(_) => None,
            None => Some(Record::decode(value)?),
        };
        let seq = match (&record, head.body) {
            (_, Some((seq, _))) => seq,
            (Some(r), None) => r.tree.winner().map_or(head.seq, |w| w.revision.seq),
            (None, None) => head.seq,
        };
        let rev = head.winner.to_rev();
        let start = out.len();
        let written =
            self.views.views[shard].with_body(&self.views.shards[shard], seq, |body| {
                let stored = StoredBody::split(body);
                write_members(id, &rev, head.deleted, stored.json, out);
                self.attachments.write(&self.contents, stored, out)
            })?;
        written.ok_or(storage::Error::Corrupt("document body"))??;
        if let Some(record) = record.filter(|_| self.conflicts) {
            write_leaves("_conflicts", &record.tree, &rev, false, out);
        }
        out.push(b'}');
        self.censor(id, start, out);
        Ok(())
    }

    fn censor(&self, id: &str, start: usize, out: &mut Vec<u8>) {
        if let Some(watch) = &self.watch {
            watch.censor(id, start, out);
        }
    }

    fn write_key(&mut self, at: &KeyAt, out: &mut Vec<u8>) -> Result<(), Error> {
        separate(&mut self.first, out);
        let id = match &at.key {
            Key::Id(id) => id,
            Key::Other(json) => {
                out.extend_from_slice(b"{\"key\":");
                out.extend_from_slice(json.as_bytes());
                out.extend_from_slice(b",\"error\":\"not_found\"}");
                return Ok(());
            }
        };
        let (shard, view) = (&self.views.shards[at.shard], &self.views.views[at.shard]);
        if id.starts_with("_local/") {
            if let Some(value) = view.local(shard, id)? {
                return self.write_local(id.as_bytes(), &value, out);
            }
        } else if let Some(value) = view.record_value(shard, id)? {
            let head = RecordHead::decode(&value)?;
            if !head.deleted {
                return self.write_row(at.shard, id.as_bytes(), &value, out);
            }
            write_id_and_key(id, out);
            out.extend_from_slice(b",\"value\":{\"rev\":");
            head.winner.write_json_to(out);
            out.extend_from_slice(b",\"deleted\":true}");
            if self.include_docs {
                out.extend_from_slice(b",\"doc\":null");
            }
            out.push(b'}');
            return Ok(());
        }
        out.extend_from_slice(b"{\"key\":");
        write_json_string(id, out);
        out.extend_from_slice(b",\"error\":\"not_found\"}");
        Ok(())
    }
}

fn separate(first: &mut bool, out: &mut Vec<u8>) {
    if !std::mem::take(first) {
        out.extend_from_slice(b",\r\n");
    }
}

fn write_id_and_key(id: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"id\":");
    let start = out.len();
    write_json_string(id, out);
    let end = out.len();
    out.extend_from_slice(b",\"key\":");
    out.extend_from_within(start..end);
}

/// Appends a stored document without its closing brace, its attachments as stubs. A stored id is a valid one.
pub(crate) fn write_members(
    id: &str,
    rev: &document::Rev,
    deleted: bool,
    body: &[u8],
    out: &mut Vec<u8>,
) {
    let stored = StoredBody::split(body);
    if let Ok(id) = DocId::new(id) {
        document::with_members(&id, rev, deleted, stored.json, out);
    }
    if let Some(attachments) = stored.attachments() {
        document::attachment::write_stubs(&attachments, out);
    }
}
