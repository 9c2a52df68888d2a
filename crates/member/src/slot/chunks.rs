//! Requests that are too long for one record, and arrive in chunks. Chunks are rows of the slot
//! until the last one arrives; then they are read back.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cluster::record::Request;
use cluster::slot::StoreError;
use parking_lot::Mutex;
use storage::{SlotNumber, Store};
use tokio::time::Instant;

use super::queue::failed;

/// The first byte of their keys: no row of the control slot's state begins with it.
pub(crate) const PART: u8 = b'p';
/// Length of the offset before a stored chunk, in bytes.
const OFFSET_BYTES: usize = size_of::<u64>();
/// Chunks whose last one does not arrive within this many records of the log are dropped.
const RECORDS_MAX: u64 = 100_000;
/// Time limit to wait until the earlier chunks are on disk.
const WRITTEN_TIME_MAX: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(5);

type Row = (Vec<u8>, Option<Vec<u8>>);

/// A chunk of a request.
pub(crate) struct Chunk {
    pub gateway: u64,
    pub counter: u64,
    pub index: u32,
    pub count: u32,
    pub bytes: Vec<u8>,
}

/// Rows of the slot to write, and the request if it is complete.
#[derive(Default)]
pub(crate) struct ChunkResult {
    pub rows: Vec<Row>,
    pub request: Option<Request>,
}

/// The stored chunks: their keys, and the offset of each.
#[derive(Default)]
struct PendingChunks(BTreeMap<Vec<u8>, u64>);

impl Chunk {
    /// Returns the common prefix of the keys of a request's chunks.
    fn prefix(&self) -> Vec<u8> {
        let numbers = [self.gateway, self.counter].into_iter();
        let numbers = numbers.flat_map(u64::to_be_bytes);
        [PART].into_iter().chain(numbers).collect()
    }

    fn key(&self) -> Vec<u8> {
        let mut key = self.prefix();
        key.extend_from_slice(&u64::from(self.index).to_be_bytes());
        key
    }
}

impl PendingChunks {
    /// Loads the keys and offsets from the store, without the chunks: those of requests whose proposer
    /// gave up are kept for a long time.
    pub fn load(store: &Store, slot: SlotNumber) -> Result<PendingChunks, StoreError> {
        let rows = store
            .snapshot()
            .slot_state_starts(slot, &[PART], OFFSET_BYTES)
            .map_err(failed)?;
        let offset = |value: &[u8]| value.first_chunk().map_or(0, |at| u64::from_be_bytes(*at));
        let kept = rows.into_iter().map(|(key, value)| {
            let at = offset(&value);
            (key, at)
        });
        Ok(PendingChunks(kept.collect()))
    }

    /// Adds a chunk that is not the last. It is at this offset of the log.
    pub fn add(&mut self, part: &Chunk, offset: u64) -> ChunkResult {
        let mut done = ChunkResult::default();
        self.forget(&mut done.rows, |_, at| {
            at.saturating_add(RECORDS_MAX) < offset
        });
        let value = [&offset.to_be_bytes()[..], &part.bytes].concat();
        self.0.insert(part.key(), offset);
        done.rows.push((part.key(), Some(value)));
        done
    }

    /// Returns whether all chunks before this one are stored.
    pub fn has_all_before(&self, part: &Chunk) -> bool {
        let prefix = part.prefix();
        let from = self.0.range(prefix.clone()..);
        let of_request = from.take_while(|(key, _)| key.starts_with(&prefix));
        of_request.count() as u64 == u64::from(part.index)
    }

    /// Removes the chunks of a request. If some are missing it is incomplete: its proposer repeats
    /// it.
    pub fn finish(&mut self, part: &Chunk, before: &[(Vec<u8>, Vec<u8>)]) -> ChunkResult {
        let (mut done, prefix) = (ChunkResult::default(), part.prefix());
        self.forget(&mut done.rows, |key, _| key.starts_with(&prefix));
        if before.len() as u64 == u64::from(part.index) {
            let pieces = before
                .iter()
                .filter_map(|(_, value)| value.get(OFFSET_BYTES..));
            let bytes: Vec<&[u8]> = pieces.chain([&part.bytes[..]]).collect();
            done.request = Request::from_bytes(&bytes.concat());
        }
        done
    }

    fn forget(&mut self, rows: &mut Vec<Row>, goes: impl Fn(&[u8], u64) -> bool) {
        self.0.retain(|key, at| {
            let goes = goes(key, *at);
            if goes {
                rows.push((key.clone(), None));
            }
            !goes
        });
    }
}

/// Assembles the long requests of a slot.
pub(crate) struct Assembly {
    store: Arc<Store>,
    slot: SlotNumber,
    /// The chunks after everything that was queued.
    pending: Mutex<PendingChunks>,
}

impl Assembly {
    /// Has no chunks until [`Assembly::load`].
    pub fn new(store: Arc<Store>, slot: SlotNumber) -> Assembly {
        Assembly {
            store,
            slot,
            pending: Mutex::default(),
        }
    }

    /// Loads the keys of the chunks from the store.
    ///
    /// # Errors
    /// Those of reading.
    pub fn load(&self) -> Result<(), StoreError> {
        *self.pending.lock() = PendingChunks::load(&self.store, self.slot)?;
        Ok(())
    }

    /// Takes a chunk that is at this offset of the log.
    ///
    /// # Errors
    /// Those of reading, and one if earlier chunks are not written in time.
    pub async fn take(&self, part: &Chunk, offset: u64) -> Result<ChunkResult, StoreError> {
        if part.index + 1 < part.count {
            return Ok(self.pending.lock().add(part, offset));
        }
        let is_whole = self.pending.lock().has_all_before(part);
        let known = match is_whole && part.index > 0 {
            true => before(part, &self.store, self.slot).await?,
            false => vec![],
        };
        Ok(self.pending.lock().finish(part, &known))
    }
}

/// Returns the chunks before the last one, all of which are stored: in order, once the store has
/// them.
async fn before(
    part: &Chunk,
    store: &Arc<Store>,
    slot: SlotNumber,
) -> Result<Vec<(Vec<u8>, Vec<u8>)>, StoreError> {
    let deadline = Instant::now() + WRITTEN_TIME_MAX;
    loop {
        let (store, prefix) = (store.clone(), part.prefix());
        let rows = tokio::task::spawn_blocking(move || store.slot_state(slot, &prefix)).await;
        let rows = rows.map_err(|_| StoreError::Failed("the server is shutting down".into()))?;
        let rows = rows.map_err(failed)?;
        if rows.len() as u64 == u64::from(part.index) {
            return Ok(rows);
        }
        if Instant::now() > deadline {
            let late = "the parts of a request are not written";
            return Err(StoreError::Failed(late.into()));
        }
        tokio::time::sleep(LOOK).await;
    }
}
