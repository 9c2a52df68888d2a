//! Contents of attachments, in chunks, under the number of a shard: that of their documents or, in
//! databases of early versions, the database's first. Each content is stored once under a number.
//!
//! | key after the shard's number | value |
//! |---|---|
//! | `b` | bytes of all contents |
//! | `c`, number, chunk | a chunk of a content's bytes |
//! | `h`, content id | the number and the length of the content with this id |
//! | `r`, content id, shard, seq | empty: the body of the change with this seq references the content |
//! | `x`, number | the length of a removed content whose space is still to be reclaimed |
//!
//! A content is written chunk by chunk under a number of its own, before its id is known
//! ([`Upload`]). `h` is written when it is complete; `r` is written and removed with by-seq rows,
//! in their batches. **A content is removed when it has no reference and no holder**: a thread that
//! reads a content, or is about to commit a document with it, holds a [`Content`]. Uploads without
//! a reference are listed in the catalogue (`u`), so that the next start finds what a crash left. A
//! pinned content is kept without a reference, also by the next start ([`Contents::pin`]), and is no
//! longer listed as an upload. A content that lost its last reference right before a crash is found by the next compaction
//! ([`Contents::sweep_all`]).

pub(crate) mod keys;
mod reclaim;
mod recovery;
mod upload;

use std::sync::Arc;

use document::ContentId;
use parking_lot::Mutex;
use rocksdb::WriteBatch;
use rustc_hash::FxHashMap;

pub(crate) use keys::{reference, upload as upload_key};
pub use recovery::{Numbers, PinnedContent};
pub(crate) use recovery::{count_bytes, discard_unfinished, forget_pins, pinned_contents};
pub use upload::Upload;

use crate::Error;
use crate::disk::DiskGuard;
use crate::engine::Engine;
use crate::keys::ShardNumber;
use crate::keyspace::Keyspace;
use crate::shard::Shard;
use crate::varint::{Reader, put};

/// Size of a chunk, in bytes. A reader holds one at a time, a writer two.
pub const CHUNK_BYTES: usize = 128 << 10;
/// The part of a content beyond this offset goes into files of its own: written to disk once, not
/// through the log and memory. Not worth it for shorter contents, since each file costs the engine
/// some memory.
const DIRECT_FROM_BYTES: u64 = 16 << 20;
/// Size at which such a file is ended, in bytes.
pub(crate) const FILE_BYTES: u64 = 64 << 20;
/// A content of more chunks than this is removed as a range: range deletions slow down readers,
/// single ones take memory.
const CHUNKS_DELETED_SINGLY: u64 = 64;

/// The contents under one shard's number.
pub struct Contents {
    engine: Arc<Engine>,
    /// That shard.
    home: Arc<Shard>,
    numbers: Arc<Numbers>,
    held: Mutex<FxHashMap<ContentId, ContentHolders>>,
    guard: Mutex<DiskGuard>,
}

/// The holders of a content.
#[derive(Clone, Copy, Debug, Default)]
struct ContentHolders {
    count: u64,
    /// Whether it may have no reference, so that the last holder has to check.
    look: bool,
    /// The upload that created it, while the catalogue lists it.
    upload: Option<u64>,
}

/// The place of a content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    number: u64,
    length: u64,
}

impl Place {
    pub(crate) fn new(number: u64, length: u64) -> Place {
        Place { number, length }
    }

    pub(crate) fn number(self) -> u64 {
        self.number
    }

    pub(crate) fn length(self) -> u64 {
        self.length
    }

    pub(crate) fn decode(value: &[u8]) -> Result<Place, Error> {
        let mut r = Reader::new(value, "content");
        Ok(Place {
            number: r.varint()?,
            length: r.varint()?,
        })
    }

    pub(crate) fn encode(self) -> Vec<u8> {
        let mut out = Vec::with_capacity(12);
        put(self.number, &mut out);
        put(self.length, &mut out);
        out
    }

    fn chunks(self) -> u64 {
        self.length.div_ceil(CHUNK_BYTES as u64)
    }
}

impl Contents {
    /// Opens the contents under `home`. `reserve_bytes` of the disk stay free.
    pub fn new(home: Arc<Shard>, numbers: Arc<Numbers>, reserve_bytes: u64) -> Arc<Contents> {
        let engine = home.engine.clone();
        Arc::new(Contents {
            guard: Mutex::new(DiskGuard::new(engine.path(), reserve_bytes)),
            engine,
            home,
            numbers,
            held: Mutex::default(),
        })
    }

    /// Returns the shard under whose number they are.
    pub fn home(&self) -> ShardNumber {
        self.home.number
    }

    /// Starts a new content.
    pub fn upload(self: &Arc<Self>) -> Upload {
        Upload::new(self.clone())
    }

    /// Holds a stored content.
    pub fn hold(self: &Arc<Self>, id: &ContentId) -> Result<Option<Content>, Error> {
        let mut held = self.held.lock();
        let Some(place) = self.place(id)? else {
            return Ok(None);
        };
        held.entry(*id).or_default().count += 1;
        drop(held);
        Ok(Some(Content {
            contents: self.clone(),
            id: *id,
            place,
        }))
    }

    /// Keeps an upload or, if the same content is already stored, that one.
    fn adopt(
        self: &Arc<Self>,
        id: ContentId,
        uploaded: Place,
        mut last: WriteBatch,
    ) -> Result<(Content, bool), Error> {
        let mut held = self.held.lock();
        let (place, new) = match self.place(&id)? {
            Some(place) => (place, false),
            None => (uploaded, true),
        };
        if new {
            if self.is_dropped() {
                return Err(Error::Dropped);
            }
            let cf = self.engine.cf(Keyspace::Attachments);
            last.put_cf(cf, keys::place(self.home(), &id), uploaded.encode());
            let listed = keys::upload(self.home(), uploaded.number);
            last.put_cf(self.engine.cf(Keyspace::Meta), listed, id);
            let bytes = self.stored_bytes()?.saturating_add(uploaded.length);
            put_bytes(&self.engine, self.home(), bytes, &mut last);
            self.write(last)?;
        }
        let entry = held.entry(id).or_default();
        entry.count += 1;
        if new {
            entry.look = true;
            entry.upload = Some(uploaded.number);
        }
        drop(held);
        let content = Content {
            contents: self.clone(),
            id,
            place,
        };
        Ok((content, new))
    }

    fn place(&self, id: &ContentId) -> Result<Option<Place>, Error> {
        let key = keys::place(self.home(), id);
        match self.engine.get(Keyspace::Attachments, &key)? {
            Some(v) => Ok(Some(Place::decode(&v)?)),
            None => Ok(None),
        }
    }

    /// Returns whether a stored body references the content.
    fn is_referred_to(&self, id: &ContentId) -> Result<bool, Error> {
        let prefix = keys::references(self.home(), id);
        let snapshot = self.engine.snapshot();
        let mut it = snapshot.iter(Keyspace::Attachments, self.home());
        it.seek(&prefix);
        let found = it.key().is_some_and(|k| k.starts_with(&prefix));
        it.status()?;
        Ok(found)
    }

    /// Removes the contents without references and holders: those that a crash, or a failed
    /// compaction, left before [`Contents::sweep`]. Reads the keys of all contents and references.
    pub fn sweep_all(&self) -> Result<(), Error> {
        let snapshot = self.engine.snapshot();
        let (low, high) = keys::places(self.home());
        let mut places = snapshot.scan_range(Keyspace::Attachments, low, high);
        let (low, high) = keys::all_references(self.home());
        let mut references = snapshot.scan_range(Keyspace::Attachments, low, high);
        places.seek_to_first();
        references.seek_to_first();
        while let Some(key) = places.key() {
            if self.engine.is_closing() {
                return Ok(());
            }
            let id = keys::id_of(key)?;
            while let Some(key) = references.key()
                && keys::id_of(key)? < id
            {
                references.next();
            }
            references.status()?;
            let referred = match references.key() {
                Some(key) => keys::id_of(key)? == id,
                None => false,
            };
            if !referred {
                self.sweep([*id])?;
            }
            places.next();
        }
        places.status()
    }

    /// Removes those of these contents that have no references any more, after bodies that named
    /// them were removed. Held ones are removed when they are released.
    pub fn sweep(&self, ids: impl IntoIterator<Item = ContentId>) -> Result<(), Error> {
        for id in ids {
            let mut held = self.held.lock();
            match held.get_mut(&id) {
                Some(held) => held.look = true,
                None => self.remove_unreferred(&id, None)?,
            }
        }
        Ok(())
    }

    fn let_go(&self, id: &ContentId) {
        let mut held = self.held.lock();
        let Some(entry) = held.get_mut(id) else {
            return;
        };
        entry.count -= 1;
        if entry.count > 0 {
            return;
        }
        let entry = held.remove(id).unwrap_or_default();
        if entry.look
            && let Err(e) = self.remove_unreferred(id, entry.upload)
        {
            tracing::warn!(error = %e, "removing an unreferenced attachment failed");
        }
    }

    /// The caller has locked `held`, so that no thread takes hold of the content meanwhile.
    fn remove_unreferred(&self, id: &ContentId, upload: Option<u64>) -> Result<(), Error> {
        if self.is_referred_to(id)? {
            return Ok(());
        }
        if self.is_pinned(id)? {
            return Ok(());
        }
        let Some(place) = self.place(id)? else {
            return Ok(());
        };
        let mut wb = WriteBatch::default();
        self.put_removal((id, place), upload, &mut wb)?;
        self.write(wb)
    }

    fn put_removal(
        &self,
        (id, place): (&ContentId, Place),
        upload: Option<u64>,
        wb: &mut WriteBatch,
    ) -> Result<(), Error> {
        let cf = self.engine.cf(Keyspace::Attachments);
        wb.delete_cf(cf, keys::place(self.home(), id));
        remove_chunks(&self.engine, self.home(), place, wb);
        if let Some(number) = upload {
            let listed = keys::upload(self.home(), number);
            wb.delete_cf(self.engine.cf(Keyspace::Meta), listed);
        }
        if self.is_dropped() {
            // Its rows are being deleted, or were: none may be added.
            wb.delete_cf(cf, keys::bytes(self.home()));
        } else {
            let bytes = self.stored_bytes()?.saturating_sub(place.length);
            put_bytes(&self.engine, self.home(), bytes, wb);
            reclaim::list(&self.engine, self.home(), place, wb);
        }
        Ok(())
    }

    /// Keeps a content until [`Contents::unpin`] is called, also across restarts; `tag` names it for
    /// the caller. Returns whether there is one; it is on disk then. Blocks.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn pin(&self, id: &ContentId, tag: &[u8]) -> Result<bool, Error> {
        // So that it is not removed meanwhile.
        let mut held = self.held.lock();
        let Some(place) = self.place(id)?.filter(|_| !self.is_dropped()) else {
            return Ok(false);
        };
        let mut wb = WriteBatch::default();
        let cf = self.engine.cf(Keyspace::Meta);
        wb.put_cf(cf, keys::pinned(self.home(), id), tag);
        // The next start need not examine it: the caller decides when it is removed.
        wb.delete_cf(cf, keys::upload(self.home(), place.number));
        self.write(wb)?;
        if let Some(holders) = held.get_mut(id) {
            holders.upload = None;
        }
        drop(held);
        // With everything that was written before.
        self.engine.sync_log()?;
        Ok(true)
    }

    /// Ends that: a content without references and holders is removed. Blocks.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn unpin(&self, id: &ContentId) -> Result<(), Error> {
        let mut held = self.held.lock();
        let mut wb = WriteBatch::default();
        let cf = self.engine.cf(Keyspace::Meta);
        wb.delete_cf(cf, keys::pinned(self.home(), id));
        match held.get_mut(id) {
            Some(holders) => holders.look = true,
            None => {
                if let Some(place) = self.place(id)?
                    && !self.is_referred_to(id)?
                {
                    self.put_removal((id, place), Some(place.number), &mut wb)?;
                }
            }
        }
        self.write(wb)
    }

    /// Returns whether a content is pinned.
    fn is_pinned(&self, id: &ContentId) -> Result<bool, Error> {
        let key = keys::pinned(self.home(), id);
        Ok(self.engine.get(Keyspace::Meta, &key)?.is_some())
    }

    /// Calls [`reclaim_contents`] for these alone.
    pub fn reclaim(&self) -> Result<(), Error> {
        reclaim::reclaim(&self.engine, std::iter::once(self.home()))
    }

    /// Returns the removed bytes whose space was not reclaimed yet.
    pub fn reclaimable_bytes(&self) -> Result<u64, Error> {
        let removed = reclaim::removed(&self.engine, self.home())?;
        let lengths = removed.iter().map(|place| place.length);
        Ok(lengths.fold(0, u64::saturating_add))
    }

    /// Returns the bytes of all contents, each counted once.
    pub fn stored_bytes(&self) -> Result<u64, Error> {
        stored_bytes(&self.engine, self.home())
    }

    /// Not synced: the commit of the document that references the content syncs the log up to it.
    fn write(&self, wb: WriteBatch) -> Result<(), Error> {
        self.engine.write(wb, false)
    }

    fn admit(&self, bytes: u64) -> Result<(), Error> {
        if self.is_dropped() {
            return Err(Error::Dropped);
        }
        self.guard.lock().admit(&self.engine, bytes)
    }

    fn is_dropped(&self) -> bool {
        self.home.dropped.load(std::sync::atomic::Ordering::Relaxed)
    }
}

/// Lets the engine reclaim the space of removed contents. All are of one store. Blocks; meant for a
/// background thread.
pub fn reclaim_contents(all: &[Arc<Contents>]) -> Result<(), Error> {
    match all {
        [] => Ok(()),
        [first, ..] => reclaim::reclaim(&first.engine, all.iter().map(|c| c.home())),
    }
}

/// **The total changes in the batches that add and remove contents**, which are written one at a
/// time: with `held` locked, or at the start.
fn stored_bytes(engine: &Engine, home: ShardNumber) -> Result<u64, Error> {
    match engine.get(Keyspace::Attachments, &keys::bytes(home))? {
        Some(v) => Reader::new(&v, "bytes of contents").varint(),
        None => Ok(0),
    }
}

/// Returns the bytes of all contents under a shard.
pub(crate) fn bytes_of(engine: &Engine, home: ShardNumber) -> Result<u64, Error> {
    stored_bytes(engine, home)
}

fn put_bytes(engine: &Engine, home: ShardNumber, bytes: u64, wb: &mut WriteBatch) {
    let mut value = Vec::with_capacity(10);
    put(bytes, &mut value);
    wb.put_cf(engine.cf(Keyspace::Attachments), keys::bytes(home), value);
}

fn remove_chunks(engine: &Engine, home: ShardNumber, place: Place, wb: &mut WriteBatch) {
    let cf = engine.cf(Keyspace::Attachments);
    let chunks = place.chunks();
    if chunks > CHUNKS_DELETED_SINGLY {
        let from = keys::chunk(home, place.number, 0);
        let to = keys::chunk(home, place.number + 1, 0);
        wb.delete_range_cf(cf, from, to);
        return;
    }
    for chunk in 0..chunks {
        wb.delete_cf(cf, keys::chunk(home, place.number, chunk as u32));
    }
}

/// A content that is kept while this is held, whether or not a document references it.
pub struct Content {
    contents: Arc<Contents>,
    /// Its id: the BLAKE3 hash of its bytes.
    pub id: ContentId,
    place: Place,
}

impl Content {
    /// Returns the stored length, in bytes.
    pub fn length(&self) -> u64 {
        self.place.length
    }

    /// Returns the bytes from `offset` to the end of its chunk; empty at the end of the content.
    pub fn read(&self, offset: u64) -> Result<Vec<u8>, Error> {
        if offset >= self.place.length {
            return Ok(vec![]);
        }
        let chunk = (offset / CHUNK_BYTES as u64) as u32;
        let key = keys::chunk(self.contents.home(), self.place.number, chunk);
        let value = self.contents.engine.get_once(Keyspace::Attachments, &key)?;
        let value = value.ok_or(Error::Corrupt("attachment chunk"))?;
        let skip = (offset % CHUNK_BYTES as u64) as usize;
        let rest = value.get(skip..).filter(|rest| !rest.is_empty());
        Ok(rest.ok_or(Error::Corrupt("attachment chunk"))?.to_vec())
    }

    /// Returns the upload that created it, if the catalogue still lists that as unreferenced.
    pub fn upload(&self) -> Option<u64> {
        let held = self.contents.held.lock();
        held.get(&self.id).and_then(|held| held.upload)
    }
}

impl Clone for Content {
    fn clone(&self) -> Self {
        self.contents.held.lock().entry(self.id).or_default().count += 1;
        Content {
            contents: self.contents.clone(),
            id: self.id,
            place: self.place,
        }
    }
}

impl Drop for Content {
    fn drop(&mut self) {
        self.contents.let_go(&self.id);
    }
}

impl std::fmt::Debug for Content {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Content")
            .field("place", &self.place)
            .finish()
    }
}
