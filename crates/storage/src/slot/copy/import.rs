//! Imports a copy: its rows go to sorted files under numbers of this store, then all of it replaces
//! the slot.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use document::ContentId;

use super::frame::{Chain, Frame, Rows};
use super::install::{Install, Installation};
use super::{Counts, Space, bad};
use crate::Error;
use crate::contents::{CHUNK_BYTES, FILE_BYTES, Place, keys as content_keys};
use crate::digest::{self, Kind};
use crate::disk::DiskGuard;
use crate::files::{FILE_BYTES_MAX, FileSequence};
use crate::keys::{ShardNumber, id_key, meta};
use crate::keyspace::Keyspace;
use crate::meta::ShardMeta;
use crate::slot::rows::{HEAD, Head, STATE};
use crate::slot::{Position, SlotNumber};
use crate::store::{Store, drop_puts};
use crate::time_seq::TimeSeq;
use crate::varint::{Reader, put};

/// A greater number of shards is an error: each takes a number that is never reused.
const SHARDS_MAX: u64 = 1 << 20;
/// One for each space of a shard. The chunks of contents come between their places, and use that of
/// the slot, whose rows are in no file.
const FILES: usize = Space::References as usize + 1;
const CHUNK_FILES: usize = Space::Slot as usize;

/// A copy of a slot that is being received, frame by frame. Nothing of it is visible before
/// [`SlotImport::install`]; if it is dropped before, it is removed.
///
/// It is verified: frames by their sums, shards by their digests, contents by their ids. The slot's
/// own rows are held in memory.
pub struct SlotImport {
    store: Arc<Store>,
    slot: SlotNumber,
    guard: DiskGuard,
    chain: Chain,
    stage: Stage,
    counts: Counts,
    /// The slot's own, by keys after its number.
    rows: BTreeMap<Vec<u8>, Vec<u8>>,
    position: Option<Position>,
    numbers: Vec<ShardNumber>,
    shards: Vec<ImportedShard>,
    /// Space and key of the last row.
    last: Option<(Space, Vec<u8>)>,
    long: Option<Long>,
    content: Option<OpenContent>,
    files: [Option<FileSequence>; FILES],
    /// Something may name the new numbers.
    named: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Begin,
    Slot,
    Shard,
    Ended,
    Failed,
}

/// A shard of the copy.
struct ImportedShard {
    tag: Vec<u8>,
    number: ShardNumber,
    counters: Vec<u8>,
    time_seq: Option<TimeSeq>,
    /// The digest of its rows so far.
    digest: u128,
    content_bytes: u64,
}

/// A value that is received in pieces.
struct Long {
    space: Space,
    key: Vec<u8>,
    length: u64,
    value: Vec<u8>,
}

/// A content whose chunks are being received.
struct OpenContent {
    id: ContentId,
    place: Place,
    chunks: u32,
    bytes: u64,
    hasher: Box<blake3::Hasher>,
}

impl SlotImport {
    /// Starts to import a copy of the slot.
    pub fn new(store: Arc<Store>, slot: SlotNumber) -> SlotImport {
        SlotImport {
            guard: store.disk_guard(),
            store,
            slot,
            chain: Chain::default(),
            stage: Stage::Begin,
            counts: Counts::default(),
            rows: BTreeMap::new(),
            position: None,
            numbers: vec![],
            shards: vec![],
            last: None,
            long: None,
            content: None,
            files: [const { None }; FILES],
            named: false,
        }
    }

    /// Imports the next frame. Blocks.
    ///
    /// # Errors
    /// [`Error::Copy`] when it is invalid, [`Error::DiskFull`] when there is no space; those of the
    /// engine. The import can only be dropped then.
    pub fn frame(&mut self, sealed: &[u8]) -> Result<(), Error> {
        let taken = self.take(sealed);
        if taken.is_err() {
            self.stage = Stage::Failed;
        }
        taken
    }

    /// Returns whether all frames were received.
    pub fn is_complete(&self) -> bool {
        self.stage == Stage::Ended
    }

    /// Returns whether all of the slot's own rows were received: they come before those of shards.
    pub fn slot_is_known(&self) -> bool {
        matches!(self.stage, Stage::Shard | Stage::Ended)
    }

    /// Returns the position of the slot's log in the copy; `None` until it is received.
    pub fn position(&self) -> Option<Position> {
        self.position
    }

    /// Returns a row of the slot's own, by the caller's key, in the form of the copy.
    pub fn state(&self, key: &[u8]) -> Option<&[u8]> {
        let row = self.rows.get(&[&[STATE], key].concat());
        row.map(Vec::as_slice)
    }

    /// Returns the shards received so far, by their names in the copy, and their numbers here.
    pub fn shards(&self) -> impl Iterator<Item = (&[u8], ShardNumber)> {
        self.shards.iter().map(|s| (&s.tag[..], s.number))
    }

    fn bad(&self, reason: &'static str) -> Error {
        bad(self.slot, reason)
    }

    fn take(&mut self, sealed: &[u8]) -> Result<(), Error> {
        let engine = self.store.engine().clone();
        if engine.is_closing() {
            return Err(Error::Closed);
        }
        self.guard.admit(&engine, sealed.len() as u64)?;
        let frame = self.chain.open(sealed).map_err(|e| bad(self.slot, e))?;
        if self.long.is_some() && !matches!(frame, Frame::Piece { .. }) {
            return Err(self.bad("has a value that was cut short"));
        }
        match (frame, self.stage) {
            (Frame::Begin { slot, shards }, Stage::Begin) => self.begin(slot, shards),
            (Frame::Rows(space, rows), Stage::Slot | Stage::Shard) => self.rows(space, rows),
            (
                Frame::Piece {
                    space,
                    key,
                    length,
                    piece,
                },
                Stage::Slot | Stage::Shard,
            ) => self.piece(space, key, length, piece),
            (Frame::Shard { tag, counters }, Stage::Slot | Stage::Shard) => {
                self.end_shard()?;
                self.begin_shard(tag, counters)
            }
            (Frame::End(counts), Stage::Slot | Stage::Shard) => {
                self.end_shard()?;
                if counts != self.counts || self.shards.len() != self.numbers.len() {
                    return Err(self.bad("is not all there"));
                }
                self.stage = Stage::Ended;
                Ok(())
            }
            _ => Err(self.bad("has a frame where none of its kind may be")),
        }
    }

    fn begin(&mut self, slot: SlotNumber, shards: u64) -> Result<(), Error> {
        if slot != self.slot {
            return Err(self.bad("is one of another slot"));
        }
        let shards = u32::try_from(shards).ok();
        let Some(shards) = shards.filter(|n| u64::from(*n) <= SHARDS_MAX) else {
            return Err(self.bad("has too many shards"));
        };
        if shards > 0 {
            self.numbers = self.store.reserve_shards(shards)?;
        }
        self.stage = Stage::Slot;
        Ok(())
    }

    fn begin_shard(&mut self, tag: &[u8], counters: &[u8]) -> Result<(), Error> {
        let times = match counters {
            [] => &[],
            counters => ShardMeta::split(counters)?.1,
        };
        let counters = &counters[..counters.len() - times.len()];
        let Some(&number) = self.numbers.get(self.shards.len()) else {
            return Err(self.bad("has more shards than announced"));
        };
        self.shards.push(ImportedShard {
            tag: tag.to_vec(),
            number,
            counters: counters.to_vec(),
            // Those of a later version are not needed: feeds since a time begin earlier without them.
            time_seq: TimeSeq::decode(times).ok(),
            digest: 0,
            content_bytes: 0,
        });
        self.counts.shards += 1;
        self.last = None;
        self.stage = Stage::Shard;
        Ok(())
    }

    /// Checks a shard's rows against its counters.
    fn end_shard(&mut self) -> Result<(), Error> {
        self.end_content()?;
        let Some(shard) = self.shards.last() else {
            return match self.position {
                Some(_) => Ok(()),
                None => Err(self.bad("has no position")),
            };
        };
        let digest = match &shard.counters[..] {
            [] => None,
            counters => ShardMeta::decode(counters)?.digest,
        };
        if digest.unwrap_or(0) != shard.digest {
            return Err(self.bad("has a shard whose rows do not match its digest"));
        }
        Ok(())
    }

    fn piece(&mut self, space: Space, key: &[u8], length: u64, piece: &[u8]) -> Result<(), Error> {
        let mut long = self.long.take().unwrap_or_else(|| Long {
            space,
            key: key.to_vec(),
            length,
            value: vec![],
        });
        let same = long.space == space && long.key == key && long.length == length;
        let bytes = (long.value.len() + piece.len()) as u64;
        if !same || piece.is_empty() || bytes > length {
            return Err(self.bad("has a value whose pieces do not fit"));
        }
        long.value.extend_from_slice(piece);
        if bytes < length {
            self.long = Some(long);
            return Ok(());
        }
        self.row(space, key, &long.value)
    }

    fn rows(&mut self, space: Space, mut rows: Rows<'_>) -> Result<(), Error> {
        while let Some(row) = rows.next() {
            let (key, value) = row.map_err(|e| bad(self.slot, e))?;
            self.row(space, key, value)?;
        }
        Ok(())
    }

    fn row(&mut self, space: Space, key: &[u8], value: &[u8]) -> Result<(), Error> {
        let last = self.last.as_ref().map(|(space, key)| (*space, &key[..]));
        if last.is_some_and(|last| last >= (space, key)) {
            return Err(self.bad("has rows that are not in their order"));
        }
        if (space == Space::Slot) != (self.stage == Stage::Slot) {
            return Err(self.bad("has rows of a shard where none of its kind may be"));
        }
        match &mut self.last {
            Some((last, of)) if *last == space => {
                of.clear();
                of.extend_from_slice(key);
            }
            last => *last = Some((space, key.to_vec())),
        }
        self.counts.rows += 1;
        self.counts.bytes += value.len() as u64;
        let kind = match space {
            Space::Slot => return self.slot_row(key, value),
            Space::Contents => return self.content_row(key, value),
            Space::References => return self.reference_row(key),
            Space::ById => Some(Kind::Document),
            Space::Local => Some(Kind::Local),
            Space::Summary => None,
            Space::BySeq | Space::Bodies | Space::Superseded | Space::Purges => {
                if key.len() != size_of::<u64>() {
                    return Err(self.bad("has an invalid seq as a key"));
                }
                None
            }
        };
        let shard = self.shard()?;
        if let Some(kind) = kind {
            shard.digest = (shard.digest).wrapping_add(digest::share(kind, key, value));
        }
        let key = id_key(shard.number, key);
        self.put(space as usize, space, &key, value)
    }

    fn slot_row(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        if *key == [HEAD] {
            self.position = Some(Head::decode(value)?.position);
        }
        self.rows.insert(key.to_vec(), value.to_vec());
        Ok(())
    }

    /// Returns the shard whose rows are being received.
    fn shard(&mut self) -> Result<&mut ImportedShard, Error> {
        let slot = self.slot;
        let shard = self.shards.last_mut();
        shard.ok_or(bad(slot, "has rows of no shard"))
    }

    /// Contents get numbers of this store, in the order of arrival: so their chunks' keys ascend,
    /// too.
    fn content_row(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        let number = self.shard()?.number;
        let Some((id, chunk)) = key.split_first_chunk::<32>() else {
            return Err(self.bad("has an invalid key of a content"));
        };
        if chunk.is_empty() {
            self.end_content()?;
            let length = Reader::new(value, "content").varint()?;
            let place = Place::new(self.store.next_content()?, length);
            let shard = self.shard()?;
            shard.content_bytes = shard.content_bytes.saturating_add(length);
            self.content = Some(OpenContent {
                id: *id,
                place,
                chunks: 0,
                bytes: 0,
                hasher: Box::default(),
            });
            let key = content_keys::place(number, id);
            return self.put(
                Space::Contents as usize,
                Space::Contents,
                &key,
                &place.encode(),
            );
        }
        let slot = self.slot;
        let open = self.content.as_mut().filter(|open| open.id == *id);
        let open = open.ok_or(bad(slot, "has a chunk of no content"))?;
        if *chunk != open.chunks.to_be_bytes() || value.len() > CHUNK_BYTES {
            return Err(bad(slot, "has a chunk that is not in its place"));
        }
        open.hasher.update(value);
        open.bytes += value.len() as u64;
        open.chunks += 1;
        let key = content_keys::chunk(number, open.place.number(), open.chunks - 1);
        self.put(CHUNK_FILES, Space::Contents, &key, value)
    }

    fn end_content(&mut self) -> Result<(), Error> {
        let Some(open) = self.content.take() else {
            return Ok(());
        };
        if open.bytes != open.place.length() || *open.hasher.finalize().as_bytes() != open.id {
            return Err(self.bad("has a content whose hash differs from its id"));
        }
        Ok(())
    }

    fn reference_row(&mut self, key: &[u8]) -> Result<(), Error> {
        let number = self.shard()?.number;
        let parts = key.split_first_chunk::<32>();
        let parts = parts.and_then(|(id, seq)| Some((id, seq.try_into().ok()?)));
        let Some((id, seq)) = parts else {
            return Err(self.bad("has an invalid key of a reference"));
        };
        let key = content_keys::reference(number, id, number, u64::from_be_bytes(seq));
        // After the places, which sort before them.
        self.put(Space::Contents as usize, Space::Contents, &key, &[])
    }

    fn put(&mut self, files: usize, space: Space, key: &[u8], value: &[u8]) -> Result<(), Error> {
        let bytes = match files {
            CHUNK_FILES => FILE_BYTES,
            _ => FILE_BYTES_MAX,
        };
        let engine = self.store.engine();
        let new = || FileSequence::new(engine.clone(), space.keyspace(), bytes);
        self.files[files].get_or_insert_with(new).put(key, value)
    }

    /// Installs the copy: its rows, the caller's, and the drop of the replaced shards are one
    /// batch, which is on disk when this returns. The new shards must be opened after that. Blocks.
    ///
    /// # Errors
    /// [`Error::Copy`] when it is incomplete, [`Error::SlotPosition`] when the slot is not at the
    /// caller's position, [`Error::Dropped`] when a shard to be replaced is gone: the old state
    /// stays. After errors of the engine the next start shows which state it is.
    pub fn install(mut self, install: Install) -> Result<(), Error> {
        if self.stage != Stage::Ended {
            return Err(self.bad("is not all there"));
        }
        for files in self.files.iter_mut().filter_map(Option::take) {
            files.ingest()?;
        }
        let mut puts: Vec<_> = drop_puts(&install.replaced).collect();
        let is_wanted = |shard: &&ImportedShard| !install.unwanted.contains(&shard.number);
        for shard in self.shards.iter().filter(is_wanted) {
            let listed = meta::dropped(shard.number).to_vec();
            puts.push((Keyspace::Meta, listed, None));
            if !shard.counters.is_empty() {
                let key = meta::shard(shard.number).to_vec();
                puts.push((Keyspace::Meta, key, Some(shard.counters.clone())));
            }
            if let Some(times) = &shard.time_seq {
                let key = meta::time_seq(shard.number).to_vec();
                puts.push((Keyspace::Meta, key, Some(times.encode())));
            }
            if shard.content_bytes > 0 {
                let mut bytes = vec![];
                put(shard.content_bytes, &mut bytes);
                let key = content_keys::bytes(shard.number);
                puts.push((Keyspace::Attachments, key, Some(bytes)));
            }
        }
        puts.extend(install.puts);
        let installed = self.store.committer.install(Installation {
            slot: self.slot,
            from: install.from,
            keep: install.keep,
            state: install.state,
            rows: std::mem::take(&mut self.rows).into_iter().collect(),
            puts,
            replaced: install.replaced,
            is_applied: AtomicBool::new(false),
        });
        let installed = installed.blocking_recv().map_err(|_| Error::Closed);
        let installed = installed.and_then(|installed| installed);
        // After an error of the engine the batch may be in the log.
        self.named = matches!(installed, Ok(()) | Err(Error::Engine(_) | Error::Closed));
        if installed.is_ok() {
            self.store.note_dropped(&install.unwanted);
        }
        installed
    }
}

impl Drop for SlotImport {
    fn drop(&mut self) {
        if !self.named {
            self.store.note_dropped(&self.numbers);
        }
    }
}
