//! Makes a copy: rows of a snapshot as frames.

use std::sync::Arc;

use super::frame::{self, Chain, PIECE_BYTES, ROWS_BYTES_MAX};
use super::{Counts, Space, bad};
use crate::Error;
use crate::contents::{CHUNK_BYTES, Place, keys as content_keys};
use crate::keys::{SHARD_LEN, ShardNumber, id_key, meta, shard_end};
use crate::keyspace::Keyspace;
use crate::meta::ShardMeta;
use crate::slot::rows::prefix_end;
use crate::slot::{Position, SlotNumber};
use crate::snapshot::{Cursor, Snapshot};
use crate::varint::put;

/// Maximum overhead of a row in a frame besides key and value, in bytes.
const ROW_OVERHEAD: usize = 20;
/// Longer keys and values are not part of frames of rows.
const ROW_BYTES_MAX: usize = ROWS_BYTES_MAX - ROW_OVERHEAD - 64;

/// A slot and its shards as of one snapshot, frame by frame. The snapshot is kept until the copy is
/// dropped.
///
/// The shards must be all that the slot writes to, of databases whose contents are under each
/// shard; each has a name that means the same to the reader of the copy. Between frames it holds
/// only a position, and the value of a row that is longer than a frame.
pub struct SlotCopy {
    snapshot: Arc<Snapshot>,
    slot: SlotNumber,
    position: Position,
    shards: Vec<(Vec<u8>, ShardNumber)>,
    at: At,
    /// The key, in the form of the copy, from which rows of the space continue.
    from: Vec<u8>,
    long: Option<Long>,
    chain: Chain,
    counts: Counts,
}

/// The next item.
#[derive(Clone, Copy)]
enum At {
    Begin,
    Shard(usize),
    /// Rows of the shard with this index; `None` for the slot's own.
    Rows(Option<usize>, Space),
    End,
    Done,
}

/// A value that is sent in pieces.
struct Long {
    space: Space,
    key: Vec<u8>,
    value: Vec<u8>,
    sent: usize,
}

impl SlotCopy {
    /// Starts a copy of a slot with its shards, each with its name.
    ///
    /// # Errors
    /// [`Error::Copy`] when the slot does not exist here; those of the engine.
    pub fn of(
        snapshot: Arc<Snapshot>,
        slot: SlotNumber,
        shards: Vec<(Vec<u8>, ShardNumber)>,
    ) -> Result<SlotCopy, Error> {
        let position = snapshot.slot(slot)?;
        Ok(SlotCopy {
            position: position.ok_or(bad(slot, "cannot begin: the slot is not here"))?,
            snapshot,
            slot,
            shards,
            at: At::Begin,
            from: vec![],
            long: None,
            chain: Chain::default(),
            counts: Counts::default(),
        })
    }

    /// Returns the position of the slot's log in the copy.
    pub fn position(&self) -> Position {
        self.position
    }

    /// Returns the next frame, of up to about 256 KiB; `None` after the last one. Blocks.
    ///
    /// # Errors
    /// Errors of the engine; [`Error::NotOfSlot`] when a shard is not the slot's own. The copy
    /// cannot continue then.
    pub fn next_frame(&mut self) -> Result<Option<Vec<u8>>, Error> {
        if let Some(long) = self.long.take() {
            let frame = self.piece(long);
            return Ok(Some(self.chain.seal(frame)));
        }
        loop {
            let frame = match self.at {
                At::Begin => {
                    self.at = At::Rows(None, Space::Slot);
                    Some(frame::begin(self.slot, self.shards.len() as u64))
                }
                At::Shard(i) if i == self.shards.len() => {
                    self.at = At::End;
                    None
                }
                At::Shard(i) => Some(self.shard(i)?),
                At::Rows(i, space) => self.rows(i, space)?,
                At::End => {
                    self.at = At::Done;
                    Some(frame::end(self.counts))
                }
                At::Done => return Ok(None),
            };
            if let Some(frame) = frame {
                return Ok(Some(self.chain.seal(frame)));
            }
        }
    }

    fn shard(&mut self, i: usize) -> Result<Vec<u8>, Error> {
        let (tag, number) = &self.shards[i];
        let counters = self.snapshot.get(Keyspace::Meta, &meta::shard(*number))?;
        let counters = counters.as_deref().unwrap_or_default();
        if !counters.is_empty() {
            let counters = ShardMeta::decode(counters)?;
            if counters.digest.is_none() && counters.update_seq > 0 {
                return Err(Error::NotOfSlot(*number));
            }
        }
        let times = self
            .snapshot
            .get(Keyspace::Meta, &meta::time_seq(*number))?;
        self.at = At::Rows(Some(i), Space::ById);
        self.counts.shards += 1;
        // Time bins follow the counters: programs that do not know them ignore what follows.
        let times = times.as_deref().filter(|_| !counters.is_empty());
        let counters = [counters, times.unwrap_or_default()].concat();
        Ok(frame::shard(tag, &counters))
    }

    /// Returns the next rows of a space, if there are any.
    fn rows(&mut self, i: Option<usize>, space: Space) -> Result<Option<Vec<u8>>, Error> {
        let shard = i.map_or(0, |i| self.shards[i].1);
        let snapshot = self.snapshot.clone();
        let mut source = Source::new(&snapshot, (self.slot, shard), space, &self.from)?;
        let mut frame = frame::rows(space);
        let empty = frame.len();
        while source.valid {
            let (key, value) = (&source.key[..], source.value()?);
            let bytes = key.len() + value.len() + ROW_OVERHEAD;
            if frame.len() > empty && frame.len() + bytes > ROWS_BYTES_MAX {
                self.from = source.key;
                return Ok(Some(frame));
            }
            self.counts.rows += 1;
            self.counts.bytes += value.len() as u64;
            if key.len() + value.len() > ROW_BYTES_MAX {
                let (key, value) = (key.to_vec(), value.to_vec());
                self.from = [&key[..], &[0]].concat();
                let sent = 0;
                let long = Long {
                    space,
                    key,
                    value,
                    sent,
                };
                return Ok(Some(self.piece(long)));
            }
            frame::put_row(key, value, &mut frame);
            source.advance()?;
        }
        self.from = vec![];
        self.at = match (i, space.next()) {
            (None, _) => At::Shard(0),
            (Some(i), None) => At::Shard(i + 1),
            (i, Some(next)) => At::Rows(i, next),
        };
        Ok((frame.len() > empty).then_some(frame))
    }

    fn piece(&mut self, mut long: Long) -> Vec<u8> {
        let length = long.value.len();
        let end = (long.sent + PIECE_BYTES).min(length);
        let piece = &long.value[long.sent..end];
        let frame = frame::piece(long.space, &long.key, length as u64, piece);
        long.sent = end;
        self.long = (end < length).then_some(long);
        frame
    }
}

/// Rows of one space in the form of a copy, in the order of their keys.
struct Source<'a> {
    snapshot: &'a Snapshot,
    shard: ShardNumber,
    space: Space,
    rows: Cursor<'a>,
    /// For contents: their references, and the chunks of the current one, unless it is at its
    /// place.
    contents: Option<(Cursor<'a>, Option<Cursor<'a>>)>,
    /// There is a current row, with this key.
    valid: bool,
    key: Vec<u8>,
    /// The value, if it differs from the stored one.
    length: Vec<u8>,
}

impl<'a> Source<'a> {
    /// Starts at the row with the key `from`.
    fn new(
        snapshot: &'a Snapshot,
        (slot, shard): (SlotNumber, ShardNumber),
        space: Space,
        from: &[u8],
    ) -> Result<Source<'a>, Error> {
        let (low, high) = match space {
            Space::Slot => {
                let prefix = meta::slot(slot);
                ([&prefix[..], from].concat(), prefix_end(&prefix))
            }
            Space::Contents => {
                let id = &from[..from.len().min(32)];
                let (low, high) = content_keys::places(shard);
                ([&low[..], id].concat(), high)
            }
            Space::References => {
                let (mut low, high) = content_keys::all_references(shard);
                if let Some((id, seq)) = from.split_first_chunk::<32>() {
                    low.extend_from_slice(id);
                    low.extend_from_slice(&shard.to_be_bytes());
                    low.extend_from_slice(seq);
                }
                (low, high)
            }
            _ => (id_key(shard, from), shard_end(shard)),
        };
        let mut rows = snapshot.scan_range(space.keyspace(), low, high);
        rows.seek_to_first();
        let contents = (space == Space::Contents).then(|| {
            let (low, high) = content_keys::all_references(shard);
            let references = snapshot.scan_range(Keyspace::Attachments, low, high);
            (references, None)
        });
        let mut source = Source {
            snapshot,
            shard,
            space,
            rows,
            contents,
            valid: false,
            key: vec![],
            length: vec![],
        };
        source.settle()?;
        if let Some(chunk) = from.get(32..36).filter(|_| space == Space::Contents)
            && source.valid
            && source.key == from[..32]
        {
            let chunk = chunk.try_into().map_err(|_| Error::Corrupt("chunk key"))?;
            source.chunks_from(u32::from_be_bytes(chunk))?;
        }
        Ok(source)
    }

    fn value(&self) -> Result<&[u8], Error> {
        match &self.contents {
            None => self.rows.value(),
            Some((_, Some(chunks))) => chunks.value(),
            Some((_, None)) => Some(&self.length[..]),
        }
        .ok_or(Error::Corrupt("copy"))
    }

    fn advance(&mut self) -> Result<(), Error> {
        match &mut self.contents {
            Some((_, None)) => return self.chunks_from(0),
            Some((_, Some(chunks))) => {
                chunks.next();
                return self.settle_chunk();
            }
            None => self.rows.next(),
        }
        self.settle()
    }

    /// Builds the key of the current row; for contents, moves to the first one from here on that
    /// has a reference.
    fn settle(&mut self) -> Result<(), Error> {
        self.valid = false;
        self.key.clear();
        while let Some((key, value)) = self.rows.item() {
            match (self.space, &mut self.contents) {
                (Space::Slot, _) => self.key.extend_from_slice(&key[meta::slot(0).len()..]),
                (Space::References, _) => {
                    let id = content_keys::id_of(key)?;
                    let rest = &key[SHARD_LEN + 1 + id.len()..];
                    let seq = rest.strip_prefix(&self.shard.to_be_bytes());
                    let seq = seq.ok_or(Error::Corrupt("reference of another shard's document"))?;
                    self.key.extend_from_slice(id);
                    self.key.extend_from_slice(seq);
                }
                (_, Some((references, _))) => {
                    let id = content_keys::id_of(key)?;
                    references.seek(content_keys::references(self.shard, id));
                    let referred = match references.key() {
                        Some(key) => content_keys::id_of(key)? == id,
                        None => references.status().map(|()| false)?,
                    };
                    if !referred {
                        self.rows.next();
                        continue;
                    }
                    self.key.extend_from_slice(id);
                    self.length.clear();
                    put(Place::decode(value)?.length(), &mut self.length);
                }
                _ => self.key.extend_from_slice(&key[SHARD_LEN..]),
            }
            self.valid = true;
            return Ok(());
        }
        self.rows.status()
    }

    /// Continues with the chunks of the current content.
    fn chunks_from(&mut self, chunk: u32) -> Result<(), Error> {
        let place = Place::decode(self.rows.value().ok_or(Error::Corrupt("copy"))?)?;
        let low = content_keys::chunk(self.shard, place.number(), chunk);
        let end = place.length().div_ceil(CHUNK_BYTES as u64);
        let end = u32::try_from(end).map_err(|_| Error::Corrupt("content"))?;
        let high = content_keys::chunk(self.shard, place.number(), end);
        if chunk < end {
            let mut chunks = self.snapshot.scan_range(Keyspace::Attachments, low, high);
            chunks.seek_to_first();
            if let Some((_, of_content)) = &mut self.contents {
                *of_content = Some(chunks);
                return self.settle_chunk();
            }
        }
        self.rows.next();
        self.settle()
    }

    /// Builds the key of the current chunk; after the last one moves to the next content.
    fn settle_chunk(&mut self) -> Result<(), Error> {
        let Some((_, Some(chunks))) = &self.contents else {
            return Err(Error::Corrupt("copy"));
        };
        if let Some(key) = chunks.key() {
            let chunk = content_keys::chunk_of(key)?;
            self.key.truncate(32);
            self.key.extend_from_slice(&chunk.to_be_bytes());
            return Ok(());
        }
        chunks.status()?;
        if let Some((_, of_content)) = &mut self.contents {
            *of_content = None;
        }
        self.rows.next();
        self.settle()
    }
}
