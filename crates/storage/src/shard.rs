//! One range of one database: its counters, its summary, and reads of its keyspaces.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;

use crate::Error;
use crate::engine::Engine;
use crate::iterators::{BodyScan, IdIter};
use crate::keys::{self, ShardNumber};
use crate::keyspace::Keyspace;
use crate::meta::ShardMeta;
use crate::record::{Record, RecordHead};
use crate::row::{Body, Row};
use crate::snapshot::{Snapshot, Value};
use crate::summary::{Block, CHUNK_SEQS, IdBlocks, Summary};
use crate::time_seq::TimeSeq;

/// Replaying fewer changes than this is faster than saving and loading a summary.
pub(crate) const UNSAVED_CHANGES_MAX: u64 = 1024;

/// The state that the writer changes after each commit, under one lock with the counters.
#[derive(Debug, Default)]
pub struct ShardState {
    pub meta: ShardMeta,
    /// Loaded when it is first needed.
    pub summary: Option<Box<Summary>>,
}

/// A range of a database, with its state in memory.
pub struct Shard {
    /// Its number in the store.
    pub number: ShardNumber,
    pub(crate) engine: Arc<Engine>,
    pub(crate) state: Mutex<ShardState>,
    /// Set by the writer when its database is dropped: nothing is written to it any more.
    pub(crate) dropped: AtomicBool,
    /// The writer holds it, to save its summary.
    pub(crate) is_dirty: AtomicBool,
    /// Until when changes need no new time bin, in seconds since 1970; 0 when that is not known.
    pub(crate) time_bin_ends: AtomicU64,
    /// It has a digest: known without the lock, for edits that need nothing else of the shard.
    pub(crate) has_digest: AtomicBool,
    /// Its documents have access sets.
    has_access: AtomicBool,
    /// Number of its next edits that count as long: one of a long record was among the last ones.
    long_edits: AtomicU32,
}

/// An edit of a document with a longer record is long, however short the edit is, in bytes: the
/// record is read and written whole.
const LONG_RECORD_BYTES: usize = 64 << 10;
/// Number of the next edits of the shard that count as long after such an edit: the length of the
/// record is known only when an edit is applied.
const LONG_EDITS: u32 = 64;

/// A shard at one moment: a snapshot and counters that agree with it.
pub struct View {
    /// The snapshot.
    pub snapshot: Arc<Snapshot>,
    /// The counters.
    pub meta: ShardMeta,
}

impl Shard {
    /// Opens a shard that exists or is about to be written first.
    pub fn open(engine: Arc<Engine>, number: ShardNumber) -> Result<Shard, Error> {
        let meta = match engine.get(Keyspace::Meta, &keys::meta::shard(number))? {
            Some(v) => ShardMeta::decode(&v)?,
            None => ShardMeta::default(),
        };
        Ok(Shard {
            number,
            engine,
            has_digest: AtomicBool::new(meta.digest.is_some()),
            state: Mutex::new(ShardState {
                meta,
                summary: None,
            }),
            dropped: AtomicBool::new(false),
            is_dirty: AtomicBool::new(false),
            time_bin_ends: AtomicU64::new(0),
            has_access: AtomicBool::new(false),
            long_edits: AtomicU32::new(0),
        })
    }

    /// Keeps access sets of its documents from now on. Called before the first edit, whenever the
    /// database is opened.
    pub fn keep_access(&self) {
        self.has_access.store(true, Relaxed);
    }

    /// Returns whether its documents have access sets.
    pub fn has_access(&self) -> bool {
        self.has_access.load(Relaxed)
    }

    /// Notes the length of a record that an edit changes. Only the writer calls it.
    pub(crate) fn note_record(&self, bytes: usize) {
        let left = self.long_edits.load(Relaxed);
        if bytes > LONG_RECORD_BYTES {
            self.long_edits.store(LONG_EDITS, Relaxed);
        } else if left > 0 {
            self.long_edits.store(left - 1, Relaxed);
        }
    }

    /// Returns whether its edits are probably long.
    pub(crate) fn has_long_edits(&self) -> bool {
        self.long_edits.load(Relaxed) > 0
    }

    /// Returns the current counters.
    pub fn meta(&self) -> ShardMeta {
        self.state.lock().meta.clone()
    }

    /// Returns whether its summary is in memory.
    pub(crate) fn is_loaded(&self) -> bool {
        self.state.lock().summary.is_some()
    }

    /// Loads its summary, which the first write needs, unless it is in memory. Blocks, for long if
    /// the shard is large.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn load(&self) -> Result<(), Error> {
        self.loaded(&mut self.state.lock()).map(drop)
    }

    /// Returns roughly how much memory it takes while it is open, in bytes.
    pub fn memory_bytes(&self) -> usize {
        let state = self.state.lock();
        size_of::<Shard>() + state.summary.as_ref().map_or(0, |s| s.memory_bytes())
    }

    /// Returns whether the writer holds it, or its summary is so far ahead of its saved form that
    /// it is worth saving before the shard is closed.
    pub fn is_worth_saving(&self) -> bool {
        if self.is_dirty.load(Relaxed) {
            return true;
        }
        let state = self.state.lock();
        let saved = state.summary.as_ref().map(|s| s.saved_seq);
        saved.is_some_and(|saved| state.meta.update_seq - saved >= UNSAVED_CHANGES_MAX)
    }

    /// Estimates the bytes of files that hold its rows, without attachments.
    pub fn file_bytes(&self) -> u64 {
        self.engine.file_bytes(self.number)
    }

    /// Returns a snapshot and counters of the same moment, and the result of `f` on the summary
    /// then.
    ///
    /// # Errors
    /// [`Error::Dropped`], and those of the engine.
    pub fn view_with<T>(&self, f: impl Fn(&Summary) -> T) -> Result<(View, T), Error> {
        loop {
            let mut state = self.state.lock();
            let snapshot = self.engine.snapshot();
            // The writer publishes counters right after the engine's write; between the two the
            // snapshot is ahead.
            let stored = match snapshot.get(Keyspace::Meta, &keys::meta::shard(self.number))? {
                Some(v) => ShardMeta::decode(&v)?,
                None => ShardMeta::default(),
            };
            if stored.update_seq == state.meta.update_seq {
                let summary = self.loaded(&mut state)?;
                let t = f(summary);
                let view = View {
                    snapshot: Arc::new(snapshot),
                    meta: state.meta.clone(),
                };
                return Ok((view, t));
            }
            drop(state);
            // The counters of a dropped shard are deleted from the engine: the two will never
            // agree.
            if self.dropped.load(Relaxed) {
                return Err(Error::Dropped);
            }
            std::thread::yield_now();
        }
    }

    /// Returns a snapshot and counters of the same moment.
    ///
    /// # Errors
    /// [`Error::Dropped`], and those of the engine.
    pub fn view(&self) -> Result<View, Error> {
        Ok(self.view_with(|_| ())?.0)
    }

    /// Reads its time bins.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn time_seq(&self) -> Result<TimeSeq, Error> {
        let key = keys::meta::time_seq(self.number);
        let value = self.engine.get(Keyspace::Meta, &key)?;
        Ok(TimeSeq::of_stored(self.number, value.as_deref()))
    }

    /// Returns the number of listed changes after `seq`.
    pub fn count_after(&self, seq: u64) -> Result<u64, Error> {
        let mut state = self.state.lock();
        Ok(self.loaded(&mut state)?.seqs.count_after(seq))
    }

    pub(crate) fn loaded<'a>(&self, state: &'a mut ShardState) -> Result<&'a mut Summary, Error> {
        if state.summary.is_none() {
            let summary = self.load_summary(state.meta.update_seq)?;
            state.summary = Some(Box::new(summary));
        }
        state
            .summary
            .as_deref_mut()
            .ok_or_else(|| Error::Corrupt("summary"))
    }

    /// Loads the saved summary, and replays by-seq up to `update_seq`.
    fn load_summary(&self, update_seq: u64) -> Result<Summary, Error> {
        let snapshot = self.engine.snapshot();
        let mut summary = saved::load(&snapshot, self.number)?;
        let mut rows = snapshot.iter(Keyspace::BySeq, self.number);
        rows.seek(keys::seq_key(self.number, summary.saved_seq + 1));
        while let (Some(k), Some(v)) = (rows.key(), rows.value()) {
            let seq = keys::seq_of(k);
            if seq > update_seq {
                break;
            }
            let row = Row::decode(seq, v)?;
            summary.apply(seq, row.id.as_bytes(), row.delta);
            rows.next();
        }
        rows.status()?;
        self.split_oversized(&mut summary, &snapshot)?;
        Ok(summary)
    }

    /// Splits oversized blocks, along rows of `snapshot`, which must be of the summary's moment.
    pub(crate) fn split_oversized(
        &self,
        summary: &mut Summary,
        snapshot: &Snapshot,
    ) -> Result<(), Error> {
        if summary.ids.oversized.is_empty() {
            return Ok(());
        }
        let ids = Arc::make_mut(&mut summary.ids);
        for fence in std::mem::take(&mut ids.oversized) {
            let index = ids.index_of(&fence);
            let end = ids.fences().get(index + 1).cloned();
            let parts = self.cut(snapshot, &fence, end.as_deref())?;
            debug_assert_eq!(
                parts.iter().map(|p| p.rows).sum::<u32>(),
                ids.block(index).rows
            );
            ids.split(&fence, parts);
        }
        Ok(())
    }

    fn cut(
        &self,
        snapshot: &Snapshot,
        fence: &[u8],
        end: Option<&[u8]>,
    ) -> Result<Vec<Block>, Error> {
        let new_block = |fence: &[u8]| Block {
            fence: fence.into(),
            live: 0,
            rows: 0,
        };
        let mut parts = vec![];
        let mut part = new_block(fence);
        let mut it = IdIter::new(snapshot, self.number);
        it.seek(fence);
        while let Some((id, value)) = it.entry() {
            if end.is_some_and(|e| id >= e) {
                break;
            }
            if part.rows == crate::summary::BLOCK_ROWS_SPLIT {
                parts.push(std::mem::replace(&mut part, new_block(id)));
            }
            part.rows += 1;
            part.live += u32::from(!RecordHead::decode(value)?.deleted);
            it.next();
        }
        it.status()?;
        parts.push(part);
        Ok(parts)
    }

    /// Reads a document's record.
    pub fn record(&self, id: &str) -> Result<Option<Record>, Error> {
        let key = keys::id_key(self.number, id.as_bytes());
        match self.engine.get(Keyspace::ById, &key)? {
            Some(v) => Ok(Some(Record::decode(&v)?)),
            None => Ok(None),
        }
    }

    /// Returns the length of a document's record in bytes; 0 without one. Decodes nothing.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn record_bytes(&self, id: &str) -> Result<usize, Error> {
        let key = keys::id_key(self.number, id.as_bytes());
        let stored = self.engine.get(Keyspace::ById, &key)?;
        Ok(stored.map_or(0, |value| value.len()))
    }

    /// Calls `f` with the head of the document's record and its winning body, which are cached for
    /// later reads.
    pub fn winner<R>(
        &self,
        id: &str,
        f: impl FnOnce(&RecordHead<'_>, &[u8]) -> R,
    ) -> Result<Option<R>, Error> {
        let key = keys::id_key(self.number, id.as_bytes());
        let winners = &self.engine.winners;
        if let Some(winner) = winners.get(&key) {
            let head = RecordHead::decode(winner.record())?;
            return Ok(Some(f(&head, winner.body())));
        }
        let mut f = Some(f);
        loop {
            let before = winners.before(&key);
            let Some(v) = self.engine.get(Keyspace::ById, &key)? else {
                return Ok(None);
            };
            let head = RecordHead::decode(&v)?;
            let found = self.with_winning_body(&head, |body| {
                winners.keep(&key, before, &v, body);
                f.take().map(|f| f(&head, body))
            })?;
            if let Some(r) = found.flatten() {
                return Ok(Some(r));
            }
            // Updated and compacted since the record was read: read it again, unless it did not
            // move.
            let moved = match self.engine.get(Keyspace::ById, &key)? {
                Some(again) => *again != *v,
                None => true,
            };
            if !moved {
                return Err(Error::Corrupt("document body"));
            }
        }
    }

    /// Returns the body of the change at `seq`; `None` when compaction removed it.
    pub fn body(&self, seq: u64) -> Result<Option<Vec<u8>>, Error> {
        self.with_body(seq, |b| b.to_vec())
    }

    /// Calls `f` with the body of the change at `seq`; `None` when compaction removed it.
    pub fn with_body<R>(&self, seq: u64, f: impl FnOnce(&[u8]) -> R) -> Result<Option<R>, Error> {
        let key = keys::seq_key(self.number, seq);
        match self.engine.get(Keyspace::BySeq, &key)? {
            Some(v) => self.with_body_of(seq, &Row::decode(seq, &v)?, f),
            None => Ok(None),
        }
    }

    /// Calls `f` with the body of the winner; `None` when compaction removed it. The tree, which
    /// may be large, is not decoded: the row that lists the document names the winner's place.
    fn with_winning_body<R>(
        &self,
        head: &RecordHead<'_>,
        f: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>, Error> {
        let key = keys::seq_key(self.number, head.seq);
        let Some(v) = self.engine.get(Keyspace::BySeq, &key)? else {
            return Ok(None);
        };
        let row = Row::decode(head.seq, &v)?;
        match row.winner_seq == head.seq {
            true => self.with_body_of(head.seq, &row, f),
            false => self.with_body(row.winner_seq, f),
        }
    }

    /// Calls `f` with the body of the row at `seq`.
    fn with_body_of<R>(
        &self,
        seq: u64,
        row: &Row<'_>,
        f: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>, Error> {
        let body = match row.body {
            Body::Inline(b) => return Ok(Some(f(b))),
            Body::External { .. } => {
                let key = keys::seq_key(self.number, seq);
                self.engine.get(Keyspace::Bodies, &key)?
            }
            Body::None => None,
        };
        Ok(body.map(|b| f(&b)))
    }

    /// Returns whether the change at `seq` still has a body, without reading long ones: compaction
    /// removes a row together with its body.
    pub fn has_body(&self, seq: u64) -> Result<bool, Error> {
        let key = keys::seq_key(self.number, seq);
        match self.engine.get(Keyspace::BySeq, &key)? {
            Some(v) => Ok(Row::decode(seq, &v)?.body != Body::None),
            None => Ok(false),
        }
    }

    /// Returns a local document: its revision number and body.
    pub fn local(&self, id: &str) -> Result<Option<(u64, Vec<u8>)>, Error> {
        let key = keys::id_key(self.number, id.as_bytes());
        let Some(v) = self.engine.get(Keyspace::Local, &key)? else {
            return Ok(None);
        };
        let (rev, body) = decode_local(&v)?;
        Ok(Some((rev, body.to_vec())))
    }
}

/// Decodes a stored local document: its revision number and its body.
///
/// # Errors
/// [`Error::Corrupt`].
pub fn decode_local(value: &[u8]) -> Result<(u64, &[u8]), Error> {
    let mut r = crate::varint::Reader::new(value, "local document");
    let rev = r.varint()?;
    Ok((rev, r.rest))
}

/// Bodies and records of one shard's view.
impl View {
    /// Returns the bodies of changes from `first` to `last`, for a scan that does not fill the
    /// block cache.
    pub fn scan_bodies(&self, shard: &Shard, first: u64, last: u64) -> BodyScan<'_> {
        let low = keys::seq_key(shard.number, first).to_vec();
        let high = keys::seq_key(shard.number, last.saturating_add(1)).to_vec();
        let raw = self.snapshot.scan_range(Keyspace::Bodies, low, high);
        BodyScan::new(raw, shard.number)
    }

    /// Calls `f` with the body of the change at `seq`, as of this view.
    pub fn with_body<R>(
        &self,
        shard: &Shard,
        seq: u64,
        f: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>, Error> {
        let key = keys::seq_key(shard.number, seq);
        let Some(v) = self.snapshot.get(Keyspace::BySeq, &key)? else {
            return Ok(None);
        };
        match Row::decode(seq, &v)?.body {
            Body::Inline(b) => Ok(Some(f(b))),
            Body::External { .. } => Ok(self.snapshot.get(Keyspace::Bodies, &key)?.map(|b| f(&b))),
            Body::None => Ok(None),
        }
    }

    /// Returns whether the change at `seq` has a body in this view, as [`Shard::has_body`] does.
    pub fn has_body(&self, shard: &Shard, seq: u64) -> Result<bool, Error> {
        let key = keys::seq_key(shard.number, seq);
        match self.snapshot.get(Keyspace::BySeq, &key)? {
            Some(v) => Ok(Row::decode(seq, &v)?.body != Body::None),
            None => Ok(false),
        }
    }

    /// Returns the stored record of a document, as of this view. It is not copied.
    pub fn record_value(&self, shard: &Shard, id: &str) -> Result<Option<Value<'_>>, Error> {
        self.value(Keyspace::ById, shard, id)
    }

    /// Returns the stored local document, as of this view. It is not copied.
    pub fn local(&self, shard: &Shard, id: &str) -> Result<Option<Value<'_>>, Error> {
        self.value(Keyspace::Local, shard, id)
    }

    fn value(&self, k: Keyspace, shard: &Shard, id: &str) -> Result<Option<Value<'_>>, Error> {
        self.snapshot
            .get(k, &keys::id_key(shard.number, id.as_bytes()))
    }

    /// Returns the record of a document, as of this view.
    pub fn record(&self, shard: &Shard, id: &str) -> Result<Option<Record>, Error> {
        match self.record_value(shard, id)? {
            Some(v) => Ok(Some(Record::decode(&v)?)),
            None => Ok(None),
        }
    }
}

/// The summary's stored form: `b<fence>` a block, `c<chunk>` a chunk of seqs, `s` their seq.
pub(crate) mod saved {
    use rocksdb::WriteBatch;

    use super::*;
    use crate::varint::{Reader, put};

    const SEQ: u8 = b's';
    const BLOCK: u8 = b'b';
    const CHUNK: u8 = b'c';

    pub fn load(snapshot: &Snapshot, shard: ShardNumber) -> Result<Summary, Error> {
        let mut summary = Summary::default();
        let mut blocks = vec![];
        let mut it = snapshot.iter(Keyspace::Summary, shard);
        it.seek_to_first();
        while let (Some(k), Some(v)) = (it.key(), it.value()) {
            let (kind, rest) = k[keys::SHARD_LEN..]
                .split_first()
                .ok_or_else(|| Error::Corrupt("summary key"))?;
            let mut r = Reader::new(v, "summary");
            match *kind {
                SEQ => summary.saved_seq = r.varint()?,
                BLOCK => blocks.push(Block {
                    fence: rest.into(),
                    live: r.varint()? as u32,
                    rows: r.varint()? as u32,
                }),
                CHUNK => {
                    let n = rest.try_into().map_err(|_| r.corrupt())?;
                    summary.seqs.load_chunk(u64::from_be_bytes(n), v);
                }
                _ => return Err(r.corrupt()),
            }
            it.next();
        }
        it.status()?;
        summary.ids = Arc::new(IdBlocks::from_stored(blocks));
        Ok(summary)
    }

    /// Adds to `batch` what changed since the last save, as of `seq`.
    pub fn save(
        engine: &Engine,
        shard: ShardNumber,
        summary: &mut Summary,
        seq: u64,
        batch: &mut WriteBatch,
    ) {
        let cf = engine.cf(Keyspace::Summary);
        let key = |kind: u8, rest: &[u8]| {
            let mut k = keys::id_key(shard, &[kind]);
            k.extend_from_slice(rest);
            k
        };
        for b in Arc::make_mut(&mut summary.ids).take_dirty() {
            let mut v = Vec::with_capacity(8);
            put(u64::from(b.live), &mut v);
            put(u64::from(b.rows), &mut v);
            batch.put_cf(cf, key(BLOCK, &b.fence), v);
        }
        for (n, bytes) in summary.seqs.take_dirty() {
            let k = key(CHUNK, &n.to_be_bytes());
            if bytes.is_empty() {
                batch.delete_cf(cf, k);
            } else {
                batch.put_cf(cf, k, bytes);
            }
        }
        let mut v = Vec::with_capacity(10);
        put(seq, &mut v);
        batch.put_cf(cf, key(SEQ, &[]), v);
        summary.saved_seq = seq;
        const { assert!(CHUNK_SEQS.is_multiple_of(64)) };
    }
}
