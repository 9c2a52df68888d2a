//! A batch of the writer: edits of many requests applied to many shards; nothing is visible until
//! it is written.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use document::attachment::append_attachments;
use document::{AccessSet, DocAccess, DocId, Leaf, Principal, Rev, RevHash};
use rocksdb::WriteBatch;
use rustc_hash::FxHashMap;

use crate::Error;
use crate::access;
use crate::commit::{Put, ShardPurge};
use crate::contents::{self, Content};
use crate::digest::{self, Kind};
use crate::edit::{self, Change, Edit, EditEffect, File, Outcome};
use crate::engine::Engine;
use crate::keys::{self, ShardNumber};
use crate::keyspace::Keyspace;
use crate::limits::Limits;
use crate::meta::ShardMeta;
use crate::purges;
use crate::record::{Record, RecordHead};
use crate::row::{self, Delta};
use crate::shard::Shard;
use crate::time_seq::TimeSeq;
use crate::tree::{BULK_EDITS_MIN, CounterShare, KeptTrees, Tree};
use crate::varint::put;
use crate::winners::Winners;

/// A shard's state after the batch.
pub struct ShardChange {
    pub shard: Arc<Shard>,
    pub meta: ShardMeta,
    /// The effect of each change on the counts, by seq.
    pub deltas: Vec<(u64, DocId, Delta)>,
    /// The principals whose feeds have new rows, in a shard with access.
    pub principals: Vec<Principal>,
    meta_changed: bool,
    /// Its seq before the batch.
    seq_before: u64,
    time_bins: TimeBins,
    /// Why its documents cannot be changed.
    unreadable: Option<Error>,
}

/// The change of a shard's time bins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TimeBins {
    Kept,
    /// They are removed before the batch's changes.
    Reset,
    /// A new one begins, which ends at this time in seconds since 1970.
    Begun(u64),
}

impl ShardChange {
    /// Publishes the shard's time bins once the batch is written.
    pub fn publish_time_bins(&self) {
        let ends = &self.shard.time_bin_ends;
        match self.time_bins {
            TimeBins::Kept => {}
            TimeBins::Reset => ends.store(0, Relaxed),
            TimeBins::Begun(until) => ends.store(until, Relaxed),
        }
    }

    /// Replaces a row's contribution to the digest.
    fn replace_share(&mut self, before: u128, after: u128) {
        if let Some(digest) = &mut self.meta.digest {
            *digest = digest.wrapping_sub(before).wrapping_add(after);
            self.meta_changed = true;
        }
    }
}

/// A document of the batch.
struct Doc<'e> {
    touched: usize,
    id: DocId,
    /// The row that lists it; 0 if it does not exist.
    seq: u64,
    tree: Tree,
    counted: CounterShare,
    /// Number of its edits in this batch.
    edits: u32,
    /// Length of its stored record, in bytes.
    record_bytes: usize,
    /// The error of reading its stored record.
    unreadable: Option<Error>,
    changed: bool,
    /// It has a record, which readers may have cached.
    existed: bool,
    /// The contribution of its stored record to the shard's digest, if there is one.
    share: u128,
    /// Its access, in a shard that has it.
    access: Option<Box<DocAccess>>,
    /// Its latest change, whose row is written once it is known whether another change supersedes
    /// it.
    newest: Option<NewRow<'e>>,
}

impl Doc<'_> {
    fn new(touched: usize, id: DocId) -> Self {
        Doc {
            touched,
            id,
            seq: 0,
            tree: Tree::default(),
            counted: CounterShare::default(),
            edits: 0,
            record_bytes: 0,
            unreadable: None,
            changed: false,
            existed: false,
            share: 0,
            access: None,
            newest: None,
        }
    }

    /// Decodes its stored record. Its tree may have been kept from the piece before.
    fn read(
        &mut self,
        record: &[u8],
        shard: ShardNumber,
        kept: &mut KeptTrees,
    ) -> Result<(), Error> {
        self.record_bytes = record.len();
        self.seq = RecordHead::decode(record)?.seq;
        self.edits = kept.edits(shard, &self.id);
        match kept.take(shard, &self.id, self.seq) {
            Some(tree) => {
                self.tree = Tree::Bulk(tree);
                self.edits = BULK_EDITS_MIN;
            }
            None => self.tree = Tree::Plain(Record::decode(record)?.tree),
        }
        self.existed = true;
        self.counted = CounterShare::of(&self.tree);
        Ok(())
    }
}

impl Doc<'_> {
    /// Reads its access, after its record. Adds its length to `bytes`.
    fn read_access(
        &mut self,
        engine: &Engine,
        shard: &Shard,
        bytes: &mut usize,
    ) -> Result<(), Error> {
        let (mut access, length) = access::read(engine, shard.number, &self.id)?;
        self.record_bytes += length;
        *bytes += length;
        shard.note_record(self.record_bytes);
        access.reconcile(self.tree.plain());
        self.access = Some(Box::new(access));
        Ok(())
    }

    /// Returns the access set of the revision that an edit adds; `None` in a shard without.
    ///
    /// # Errors
    /// The outcome of an edit that its writer may not make.
    fn permitted(&mut self, edit: &Edit) -> Result<Option<AccessSet>, Outcome> {
        let Doc { tree, access, .. } = self;
        match access {
            None => Ok(None),
            Some(access) => access::judge(access, tree.plain(), edit).map(Some),
        }
    }
}

/// A by-seq row that is not written yet.
struct NewRow<'e> {
    seq: u64,
    delta: Delta,
    body: Option<Cow<'e, [u8]>>,
}

/// `'e` is the lifetime of its edits.
pub struct Batch<'e> {
    engine: Arc<Engine>,
    pub wb: WriteBatch,
    touched: Vec<ShardChange>,
    shard_index: FxHashMap<ShardNumber, usize>,
    docs: Vec<Doc<'e>>,
    doc_index: FxHashMap<(ShardNumber, DocId), usize>,
    /// The current contributions of local documents to their shards' digests.
    local_shares: FxHashMap<(ShardNumber, DocId), u128>,
    value: Vec<u8>,
    /// Approximate size of the batch, in bytes.
    bytes: usize,
    kept: KeptTrees,
}

/// Purges removed in one batch, so that other writes wait only a moment.
const PURGES_A_STEP: u64 = 1_000;

impl<'e> Batch<'e> {
    pub fn new(engine: Arc<Engine>, kept: KeptTrees) -> Batch<'e> {
        Batch {
            engine,
            wb: WriteBatch::default(),
            touched: vec![],
            shard_index: FxHashMap::default(),
            docs: vec![],
            doc_index: FxHashMap::default(),
            local_shares: FxHashMap::default(),
            value: Vec::with_capacity(1024),
            bytes: 0,
            kept,
        }
    }

    /// Returns trees that a further piece of a request may use, once everything is written.
    pub fn kept(&mut self) -> KeptTrees {
        let mut kept = KeptTrees::default();
        for doc in self.docs.iter_mut().filter(|doc| doc.edits > 0) {
            let number = self.touched[doc.touched].shard.number;
            match &mut doc.tree {
                Tree::Bulk(tree) => {
                    kept.keep(number, doc.id.clone(), doc.seq, std::mem::take(tree));
                }
                Tree::Plain(_) => {
                    kept.note_edits(number, &doc.id, doc.edits, doc.record_bytes);
                }
            }
        }
        kept
    }

    /// Returns the approximate number of bytes that it writes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    fn touch(&mut self, shard: &Arc<Shard>) -> Result<usize, Error> {
        let i = self.place(shard);
        match &self.touched[i].unreadable {
            Some(e) => Err(e.clone()),
            None => Ok(i),
        }
    }

    /// The place of a shard among those that are touched, be it readable or not.
    fn place(&mut self, shard: &Arc<Shard>) -> usize {
        if let Some(&i) = self.shard_index.get(&shard.number) {
            return i;
        }
        let mut state = shard.state.lock();
        // Loaded before the first write after opening, so that commits keep it up.
        let unreadable = shard.loaded(&mut state).err();
        let meta = state.meta.clone();
        drop(state);
        let seq_before = meta.update_seq;
        let i = self.touched.len();
        self.touched.push(ShardChange {
            shard: shard.clone(),
            meta,
            deltas: vec![],
            principals: vec![],
            meta_changed: false,
            seq_before,
            time_bins: TimeBins::Kept,
            unreadable,
        });
        self.shard_index.insert(shard.number, i);
        i
    }

    /// Reads the records of documents to be changed, unless they were read before. Those of a shard that cannot be read are
    /// unreadable, and others are not affected. Stops after `bytes_max` bytes, at the next
    /// number of documents where `may_stop` allows it: decoding long records takes time. Returns how many of the documents
    /// have been read, and their bytes.
    pub fn fetch(
        &mut self,
        docs: &[(&Arc<Shard>, &DocId)],
        bytes_max: usize,
        may_stop: impl Fn(usize) -> bool,
    ) -> Result<(usize, usize), Error> {
        let known = self.docs.len();
        let mut bytes = 0;
        let mut wanted: Vec<(usize, ShardNumber, &DocId)> = Vec::with_capacity(docs.len());
        self.doc_index.reserve(docs.len());
        self.docs.reserve(docs.len());
        for (position, &(shard, id)) in docs.iter().enumerate() {
            let touched = self.place(shard);
            let number = shard.number;
            let next = self.docs.len();
            let slot = self.doc_index.entry((number, id.clone())).or_insert(next);
            if *slot == next {
                self.docs.push(Doc::new(touched, id.clone()));
                wanted.push((position, number, id));
            }
        }
        if wanted.is_empty() {
            return Ok((docs.len(), 0));
        }
        let keys: Vec<Vec<u8>> = wanted
            .iter()
            .map(|(_, n, id)| keys::id_key(*n, id.as_str().as_bytes()))
            .collect();
        let keys = keys.iter().map(Vec::as_slice);
        let engine = self.engine.clone();
        let values = engine.multi_get(Keyspace::ById, keys);
        for (nth, value) in values.enumerate() {
            let (position, _, _) = wanted[nth];
            if bytes >= bytes_max && may_stop(position) {
                self.forget_from(known + nth);
                return Ok((position, bytes));
            }
            let doc = &mut self.docs[known + nth];
            let touched = &self.touched[doc.touched];
            let length = value.as_ref().ok().and_then(Option::as_ref);
            touched
                .shard
                .note_record(length.map_or(0, |value| value.len()));
            let read = match &value {
                Ok(Some(value)) => {
                    bytes += value.len();
                    if touched.meta.digest.is_some() {
                        let id = doc.id.as_str().as_bytes();
                        doc.share = digest::share(Kind::Document, id, value);
                    }
                    doc.read(value, touched.shard.number, &mut self.kept)
                }
                Ok(None) => Ok(()),
                Err(e) => Err(e.clone()),
            };
            let read = match touched.shard.has_access() {
                true => read.and_then(|()| doc.read_access(&engine, &touched.shard, &mut bytes)),
                false => read,
            };
            doc.unreadable = touched.unreadable.clone().or(read.err());
        }
        Ok((docs.len(), bytes))
    }

    /// Forgets documents whose records have not been read.
    fn forget_from(&mut self, first: usize) {
        for doc in self.docs.drain(first..) {
            let number = self.touched[doc.touched].shard.number;
            self.doc_index.remove(&(number, doc.id));
        }
    }

    /// Returns the error of a document whose record cannot be read: it fails only its own request.
    pub fn unreadable(&self, shard: &Arc<Shard>, id: &DocId) -> Option<Error> {
        let i = *self.doc_index.get(&(shard.number, id.clone()))?;
        self.docs[i].unreadable.clone()
    }

    /// Returns the index of a fetched document.
    fn doc(&self, shard: &Arc<Shard>, id: &DocId) -> Result<usize, Error> {
        let i = self.doc_index.get(&(shard.number, id.clone()));
        debug_assert!(i.is_some(), "a batch fetches a record before it changes it");
        i.copied().ok_or_else(|| Error::Corrupt("batch"))
    }

    pub fn edit(
        &mut self,
        shard: &Arc<Shard>,
        edit: &'e Edit,
        limits: &Limits,
    ) -> Result<Outcome, Error> {
        if let Change::Local { rev } = edit.change {
            return self.edit_local(shard, edit, rev);
        }
        let i = self.doc(shard, &edit.id)?;
        let doc = &mut self.docs[i];
        let touched = &mut self.touched[doc.touched];
        let seq = touched.meta.update_seq + 1;
        let access = match doc.permitted(edit) {
            Ok(access) => access,
            Err(outcome) => return Ok(outcome),
        };
        // Access is judged by trees in the form for few edits.
        if access.is_none() {
            doc.tree.prepare_for(doc.edits);
        }
        doc.edits += 1;
        let rev = match edit::apply(&mut doc.tree, edit, seq, &limits.of_trees()) {
            EditEffect::Added(rev) => rev,
            EditEffect::Joined(rev) => {
                self.record_change(i, seq, None);
                self.record_access(i, seq, None);
                return Ok(Outcome::Written(rev));
            }
            EditEffect::Known(rev) => return Ok(Outcome::Written(rev)),
            EditEffect::Conflict => return Ok(Outcome::Conflict),
            EditEffect::TooManyLeaves => return Ok(Outcome::TooManyLeaves),
        };
        self.bytes += edit.cost_bytes();
        let brought = Brought {
            body: &edit.body,
            files: &edit.files,
            home: edit.home,
            generation: rev.generation,
        };
        self.record_change(i, seq, Some(&brought));
        self.record_access(i, seq, access.as_ref().map(|set| (&rev, set)));
        Ok(Outcome::Written(rev))
    }

    /// Returns whether an edit of a document may have an effect, as the batch is now.
    pub fn may_add(&self, shard: &Arc<Shard>, edit: &Edit) -> bool {
        let i = self.doc_index.get(&(shard.number, edit.id.clone()));
        i.is_none_or(|i| edit::may_add(&self.docs[*i].tree, edit))
    }

    fn edit_local(
        &mut self,
        shard: &Arc<Shard>,
        edit: &Edit,
        rev: Option<u64>,
    ) -> Result<Outcome, Error> {
        let id = edit.id.as_str().as_bytes();
        self.bytes += edit.cost_bytes();
        self.value.clear();
        if let Some(n) = rev {
            put(n, &mut self.value);
            self.value.extend_from_slice(&edit.body);
        }
        if let Some(i) = self.with_digest(shard)? {
            let before = self.local_share(shard, &edit.id)?;
            let after = match rev {
                Some(_) => digest::share(Kind::Local, id, &self.value),
                None => 0,
            };
            let key = (shard.number, edit.id.clone());
            self.local_shares.insert(key, after);
            self.touched[i].replace_share(before, after);
        }
        let key = keys::id_key(shard.number, id);
        let cf = self.engine.cf(Keyspace::Local);
        match rev {
            Some(_) => self.wb.put_cf(cf, key, &self.value),
            None => self.wb.delete_cf(cf, key),
        }
        Ok(Outcome::Written(local_rev(rev.unwrap_or(0))))
    }

    /// Returns the index among the touched shards of one that has a digest.
    fn with_digest(&mut self, shard: &Arc<Shard>) -> Result<Option<usize>, Error> {
        let i = match self.shard_index.get(&shard.number) {
            Some(&i) => i,
            None if shard.has_digest.load(Relaxed) => self.touch(shard)?,
            None => return Ok(None),
        };
        Ok(self.touched[i].meta.digest.map(|_| i))
    }

    /// Returns a local document's contribution to its shard's digest.
    pub fn local_share(&mut self, shard: &Arc<Shard>, id: &DocId) -> Result<u128, Error> {
        let cached = (shard.number, id.clone());
        if let Some(&share) = self.local_shares.get(&cached) {
            return Ok(share);
        }
        let id = id.as_str().as_bytes();
        let key = keys::id_key(shard.number, id);
        let stored = self.engine.get(Keyspace::Local, &key)?;
        let share = stored.map_or(0, |value| digest::share(Kind::Local, id, &value));
        self.local_shares.insert(cached, share);
        Ok(share)
    }

    /// Returns whether the shard has a digest.
    pub fn has_digest(&mut self, shard: &Arc<Shard>) -> Result<bool, Error> {
        Ok(self.with_digest(shard)?.is_some())
    }

    /// Returns whether the shard is empty, before and within this batch. Local documents that this
    /// batch writes are not counted.
    pub fn is_empty_shard(&mut self, shard: &Arc<Shard>) -> Result<bool, Error> {
        let i = self.touch(shard)?;
        if self.touched[i].meta.update_seq > 0 {
            return Ok(false);
        }
        let snapshot = self.engine.snapshot();
        let mut locals = snapshot.iter(Keyspace::Local, shard.number);
        locals.seek_to_first();
        locals.status()?;
        Ok(!locals.valid())
    }

    /// Starts a digest of the shard, which must be empty.
    pub fn begin_digest(&mut self, shard: &Arc<Shard>) -> Result<(), Error> {
        let i = self.touch(shard)?;
        let touched = &mut self.touched[i];
        debug_assert_eq!(touched.meta.update_seq, 0);
        touched.meta.digest.get_or_insert(0);
        touched.meta_changed = true;
        Ok(())
    }

    /// Keeps the change row of a document whose tree was just changed, and counts it.
    fn record_change(&mut self, i: usize, seq: u64, brought: Option<&Brought<'e>>) {
        // No feed will show it: this one supersedes it.
        self.write_superseded_row(i);
        let doc = &mut self.docs[i];
        let touched = &mut self.touched[doc.touched];
        let number = touched.shard.number;
        let before = doc.counted;
        let after = CounterShare::of(&doc.tree);
        doc.counted = after;
        if !doc.changed {
            // The record, and the row with all leaves.
            self.bytes += 2 * doc.record_bytes;
        }
        let delta = Delta {
            live: after.live as i8 - before.live as i8,
            records: after.exists as i8 - before.exists as i8,
            supersedes: doc.seq,
        };
        let meta = &mut touched.meta;
        let id_bytes = doc.id.as_str().len() as u64;
        // A row is never written over another.
        debug_assert_eq!(seq, meta.update_seq + 1);
        meta.update_seq = seq;
        meta.doc_count = meta.doc_count + u64::from(after.live) - u64::from(before.live);
        meta.doc_del_count =
            meta.doc_del_count + u64::from(after.dead()) - u64::from(before.dead());
        meta.external_bytes =
            (meta.external_bytes.saturating_add(after.bytes)).saturating_sub(before.bytes);
        meta.id_bytes = meta.id_bytes + u64::from(after.exists) * id_bytes
            - u64::from(before.exists) * id_bytes;

        doc.newest = Some(NewRow {
            seq,
            delta,
            body: brought.map(Brought::stored),
        });
        let superseded = self.engine.cf(Keyspace::Superseded);
        if doc.seq != 0 {
            let old = keys::seq_key(number, doc.seq);
            self.wb.put_cf(superseded, old, []);
            meta.superseded_rows += 1;
        }
        if !after.exists {
            // A purge leaves a row only for the summary; no feed shows it.
            self.wb.put_cf(superseded, keys::seq_key(number, seq), []);
            meta.superseded_rows += 1;
        }
        doc.seq = if after.exists { seq } else { 0 };
        doc.changed = true;
        touched.meta_changed = true;
        touched.deltas.push((seq, doc.id.clone(), delta));
        if let Some(brought) = brought {
            self.refer(number, seq, brought);
        }
    }

    /// Moves the rows of principals by a change of a document in a shard with access. `added` is the
    /// revision that came, with its access set. One short edit can move the rows of hundreds of
    /// principals, so they count for the length of the batch.
    fn record_access(&mut self, i: usize, seq: u64, added: Option<(&Rev, &AccessSet)>) {
        let doc = &mut self.docs[i];
        let Some(access) = &mut doc.access else {
            return;
        };
        let touched = &mut self.touched[doc.touched];
        let number = touched.shard.number;
        for moved in access.change(seq, doc.tree.plain(), added) {
            let of = (number, &doc.id);
            self.bytes += access::move_rows(&self.engine, &mut self.wb, of, &moved);
            if moved.to == Some(seq) {
                touched.principals.push(moved.principal);
            }
        }
    }

    /// Writes the pending row of a document's latest change, which another change of this batch
    /// supersedes.
    fn write_superseded_row(&mut self, i: usize) {
        let doc = &mut self.docs[i];
        let Some(row) = doc.newest.take() else {
            return;
        };
        // The current winner, not that of the change: it is never read.
        let winner = doc.tree.winner();
        let number = self.touched[doc.touched].shard.number;
        put_row(
            &self.engine,
            &mut self.wb,
            (number, doc.id.as_str()),
            row,
            winner.as_slice(),
            &mut self.value,
        );
    }

    /// Records that the change at `seq` references the contents of its attachments.
    fn refer(&mut self, shard: ShardNumber, seq: u64, brought: &Brought<'_>) {
        let cf = self.engine.cf(Keyspace::Attachments);
        for file in brought.files {
            let key = contents::reference(brought.home, &file.attachment.content, shard, seq);
            self.wb.put_cf(cf, key, []);
            if let Some(number) = file.content.as_ref().and_then(Content::upload) {
                let listed = contents::upload_key(brought.home, number);
                self.wb.delete_cf(self.engine.cf(Keyspace::Meta), listed);
            }
        }
    }

    /// Removes leaves of a document; returns those that existed.
    pub fn purge(&mut self, purge: &ShardPurge, limits: &Limits) -> Result<Vec<Rev>, Error> {
        let i = self.doc(&purge.shard, &purge.id)?;
        let doc = &mut self.docs[i];
        let removed = doc.tree.plain().remove_leaves(&purge.revs);
        if removed.is_empty() {
            return Ok(removed);
        }
        let seq = self.touched[doc.touched].meta.update_seq + 1;
        self.record_change(i, seq, None);
        self.record_access(i, seq, None);
        self.record_purge(i, purge, &removed, limits.purged_infos_limit);
        Ok(removed)
    }

    fn record_purge(&mut self, i: usize, purge: &ShardPurge, removed: &[Rev], keep: u64) {
        let meta = &mut self.touched[self.docs[i].touched].meta;
        meta.purge_seq += 1;
        let cf = self.engine.cf(Keyspace::Purges);
        let number = purge.shard.number;
        self.value.clear();
        let id = purge.id.as_str();
        purges::encode(&purge.uuid, id, removed, &mut self.value);
        self.wb
            .put_cf(cf, keys::seq_key(number, meta.purge_seq), &self.value);
        // Of more than that, which a limit leaves that was lowered, further purges and compactions forget the rest.
        let upto = meta.purge_seq.saturating_sub(keep);
        let upto = upto.min(meta.purge_floor + PURGES_A_STEP);
        while meta.purge_floor < upto {
            meta.purge_floor += 1;
            self.wb
                .delete_cf(cf, keys::seq_key(number, meta.purge_floor));
        }
    }

    pub fn put(&mut self, puts: &[Put]) {
        for (k, key, value) in puts {
            let cf = self.engine.cf(*k);
            match value {
                Some(v) => self.wb.put_cf(cf, key, v),
                None => self.wb.delete_cf(cf, key),
            }
        }
    }

    /// Removes the oldest purges of a shard beyond the last `keep`, at most [`PURGES_A_STEP`] of
    /// them.
    pub fn trim_purges(&mut self, shard: &Arc<Shard>, keep: u64) -> Result<(), Error> {
        // It can wait until the shard is readable.
        let Ok(i) = self.touch(shard) else {
            return Ok(());
        };
        let touched = &mut self.touched[i];
        let floor = touched.meta.purge_floor;
        let upto = touched.meta.purge_seq.saturating_sub(keep);
        let upto = upto.min(floor + PURGES_A_STEP);
        if upto <= floor {
            return Ok(());
        }
        let cf = self.engine.cf(Keyspace::Purges);
        for seq in floor + 1..=upto {
            self.wb.delete_cf(cf, keys::seq_key(shard.number, seq));
        }
        touched.meta.purge_floor = upto;
        touched.meta_changed = true;
        Ok(())
    }

    pub fn forget_superseded(&mut self, shard: &Arc<Shard>, rows: u64) {
        if let Ok(i) = self.touch(shard) {
            let t = &mut self.touched[i];
            t.meta.superseded_rows = t.meta.superseded_rows.saturating_sub(rows);
            t.meta_changed = true;
        }
    }

    /// Removes a shard's time bins.
    pub fn reset_time_seq(&mut self, shard: &Arc<Shard>) -> Result<(), Error> {
        let i = self.touch(shard)?;
        let touched = &mut self.touched[i];
        touched.time_bins = TimeBins::Reset;
        touched.meta_changed = true;
        let key = keys::meta::time_seq(shard.number);
        self.wb.delete_cf(self.engine.cf(Keyspace::Meta), key);
        Ok(())
    }

    /// Begins time bins for changed shards whose last one has ended. Reads nothing as long as it has not.
    fn record_times(&mut self) -> Result<(), Error> {
        let now = self.engine.recording.now();
        let changed = |t: &&mut ShardChange| t.meta.update_seq > t.seq_before;
        for touched in self.touched.iter_mut().filter(changed) {
            let shard = &touched.shard;
            let is_reset = touched.time_bins == TimeBins::Reset;
            let ends = shard.time_bin_ends.load(Relaxed);
            if !is_reset && now.is_some_and(|now| TimeSeq::is_within(now, ends)) {
                continue;
            }
            let key = keys::meta::time_seq(shard.number);
            let stored = match is_reset {
                true => None,
                false => self.engine.get(Keyspace::Meta, &key)?,
            };
            let mut bins = TimeSeq::of_stored(shard.number, stored.as_deref());
            if bins.record(now, touched.seq_before) {
                let cf = self.engine.cf(Keyspace::Meta);
                self.wb.put_cf(cf, key, bins.encode());
            }
            touched.time_bins = TimeBins::Begun(bins.current_ends());
        }
        Ok(())
    }

    /// Adds the final rows, records, counters and time bins.
    pub fn finish(&mut self) -> Result<(), Error> {
        let cf = self.engine.cf(Keyspace::ById);
        for doc in self.docs.iter_mut().filter(|d| d.changed) {
            let touched = &mut self.touched[doc.touched];
            let number = touched.shard.number;
            let record = Record {
                seq: doc.seq,
                tree: doc.tree.stored(),
            };
            if let Some(row) = doc.newest.take() {
                let of = (number, doc.id.as_str());
                let leaves = record.tree.leaves();
                put_row(
                    &self.engine,
                    &mut self.wb,
                    of,
                    row,
                    &leaves,
                    &mut self.value,
                );
            }
            let id = doc.id.as_str().as_bytes();
            let key = keys::id_key(number, id);
            let exists = !record.tree.is_empty();
            // A body is found by the seq of its leaf.
            debug_assert!(
                (record.tree.leaves().iter())
                    .all(|leaf| (1..=touched.meta.update_seq).contains(&leaf.revision.seq)),
                "every leaf has a body"
            );
            if let Some(access) = &doc.access {
                let access = exists.then_some(&**access);
                access::write(&self.engine, &mut self.wb, (number, &doc.id), access);
            }
            if exists {
                self.value.clear();
                record.encode(&mut self.value);
                self.wb.put_cf(cf, key, &self.value);
            } else {
                self.wb.delete_cf(cf, key);
            }
            if touched.meta.digest.is_some() {
                let after = exists.then(|| digest::share(Kind::Document, id, &self.value));
                touched.replace_share(doc.share, after.unwrap_or(0));
            }
        }
        let cf = self.engine.cf(Keyspace::Meta);
        for t in self.touched.iter().filter(|t| t.meta_changed) {
            self.wb
                .put_cf(cf, keys::meta::shard(t.shard.number), t.meta.encode());
        }
        self.record_times()
    }

    /// Calls `f` with the key of each changed document that readers may have cached.
    pub fn each_read_lately(&self, f: impl Fn(&Winners, &[u8])) {
        let mut key = vec![];
        for doc in self.docs.iter().filter(|d| d.changed && d.existed) {
            let number = self.touched[doc.touched].shard.number;
            keys::id_key_into(number, doc.id.as_str().as_bytes(), &mut key);
            f(&self.engine.winners, &key);
        }
    }

    pub fn into_touched(self) -> impl Iterator<Item = ShardChange> {
        self.touched.into_iter().filter(|t| t.meta_changed)
    }
}

/// Writes the row of a change, and the body if it is too long for it.
fn put_row(
    engine: &Engine,
    wb: &mut WriteBatch,
    (shard, id): (ShardNumber, &str),
    row: NewRow<'_>,
    leaves: &[Leaf<'_>],
    value: &mut Vec<u8>,
) {
    let NewRow { seq, delta, body } = row;
    let body = body.as_deref();
    value.clear();
    row::encode(seq, id, leaves, delta, body, value);
    let key = keys::seq_key(shard, seq);
    wb.put_cf(engine.cf(Keyspace::BySeq), key, &*value);
    if let Some(b) = body.filter(|b| b.len() > row::INLINE_BODY_MAX_BYTES) {
        wb.put_cf(engine.cf(Keyspace::Bodies), key, b);
    }
}

/// Returns the revision of a local document: `0-N`.
pub fn local_rev(n: u64) -> Rev {
    Rev {
        generation: 0,
        hash: RevHash::Text(n.to_string().into_bytes().into()),
    }
}

/// The body and attachments of an edit.
struct Brought<'a> {
    body: &'a [u8],
    files: &'a [File],
    home: ShardNumber,
    /// The generation of the new revision.
    generation: u64,
}

impl<'a> Brought<'a> {
    /// Returns the body with its attachments.
    fn stored(&self) -> Cow<'a, [u8]> {
        if self.files.is_empty() {
            return Cow::Borrowed(self.body);
        }
        let attachments: Vec<_> = self.files.iter().map(|f| f.attachment.clone()).collect();
        let mut body = self.body.to_vec();
        append_attachments(&attachments, self.generation, &mut body);
        Cow::Owned(body)
    }
}

#[cfg(test)]
mod tests;
