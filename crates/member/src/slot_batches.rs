//! Divides writes into requests of limited size.
//!
//! Each replica applies a record of the log in one batch. An edit of a few bytes rewrites the stored
//! record of its document, which has a megabyte if it has many revisions: one log record with many such
//! edits would fill the memory of all replicas, and again after each restart. So the bytes that a
//! request rewrites in the store are limited too.

use std::collections::BTreeMap;
use std::sync::Arc;

use cluster::SlotNumber;
use cluster::record::STORED_BYTES_MAX;
use document::DocId;
use storage::{Change, Shard, ShardEdit, ShardPurge};

/// Approximate maximum size of the writes of one request, in bytes: longer ones are split.
const REQUEST_BYTES: usize = 512 << 10;
/// Fewer documents are looked up on the thread that has them.
const FEW_DOCUMENTS: usize = 64;
/// After records of this length, another thread looks up the others, in bytes.
const BYTES_HERE_MAX: usize = 256 << 10;

/// The work of one request, with its positions in the original list.
pub(crate) struct SlotBatch<T> {
    pub slot: SlotNumber,
    pub work: Vec<(usize, T)>,
    /// Approximate length of the documents' records that it rewrites, in bytes.
    pub stored_bytes: usize,
}

impl<T> SlotBatch<T> {
    fn new(slot: SlotNumber) -> SlotBatch<T> {
        SlotBatch {
            slot,
            work: vec![],
            stored_bytes: 0,
        }
    }
}

/// A write that rewrites the record of a document.
pub(crate) trait Rewrite: Send + 'static {
    /// Returns the document; `None` for a local one, which has no revisions.
    fn document(&self) -> Option<(&Arc<Shard>, &DocId)>;
}

impl Rewrite for ShardEdit {
    fn document(&self) -> Option<(&Arc<Shard>, &DocId)> {
        let is_local = matches!(self.edit.change, Change::Local { .. });
        (!is_local).then_some((&self.shard, &self.edit.id))
    }
}

impl Rewrite for ShardPurge {
    fn document(&self) -> Option<(&Arc<Shard>, &DocId)> {
        Some((&self.shard, &self.id))
    }
}

/// A write, after the length of the stored record that it rewrites, in bytes.
pub(crate) type Weighed<T> = (usize, T);

/// Looks up the length of the record that each write rewrites. Of consecutive writes to one
/// document, the first one has it.
///
/// # Errors
/// Errors of the store, and [`database::Error::ShuttingDown`].
pub(crate) async fn weighed<T: Rewrite>(
    writes: Vec<T>,
) -> Result<Vec<Weighed<T>>, database::Error> {
    let is_short = writes.len() <= FEW_DOCUMENTS;
    let mut weighing = Weighing {
        weighed: Vec::with_capacity(writes.len()),
        left: writes.into_iter(),
    };
    if is_short {
        weighing.read(BYTES_HERE_MAX)?;
    }
    if !weighing.left.as_slice().is_empty() {
        let rest = move || weighing.read(usize::MAX).map(|()| weighing);
        let done = tokio::task::spawn_blocking(rest).await;
        weighing = done.map_err(|_| database::Error::ShuttingDown)??;
    }
    Ok(weighing.weighed)
}

/// Writes whose records are looked up.
struct Weighing<T> {
    weighed: Vec<Weighed<T>>,
    left: std::vec::IntoIter<T>,
}

impl<T: Rewrite> Weighing<T> {
    /// Looks up the next records, until they have `bytes_max` bytes.
    fn read(&mut self, bytes_max: usize) -> Result<(), storage::Error> {
        let mut bytes_read = 0;
        while bytes_read < bytes_max
            && let Some(write) = self.left.next()
        {
            let before = self.weighed.last().and_then(|(_, write)| write.document());
            let is_again = |shard: &Arc<Shard>, id: &DocId| {
                before.is_some_and(|(of, known)| of.number == shard.number && known == id)
            };
            let bytes = match write.document() {
                Some((shard, id)) if !is_again(shard, id) => shard.record_bytes(id.as_str())?,
                _ => 0,
            };
            bytes_read += bytes;
            self.weighed.push((bytes, write));
        }
        Ok(())
    }
}

/// Splits work by slots, and into requests of limited size.
pub(crate) fn divide<T>(
    all: Vec<Weighed<T>>,
    slot: impl Fn(&T) -> SlotNumber,
    bytes: impl Fn(&T) -> usize,
) -> Vec<SlotBatch<T>> {
    let mut open: BTreeMap<SlotNumber, (usize, SlotBatch<T>)> = BTreeMap::new();
    let mut parts = vec![];
    for (place, (stored_bytes, one)) in all.into_iter().enumerate() {
        let (slot, bytes) = (slot(&one), bytes(&one));
        let (sum, batch) = open
            .entry(slot)
            .or_insert_with(|| (0, SlotBatch::new(slot)));
        let is_too_long = stored_bytes > 0 && batch.stored_bytes + stored_bytes > STORED_BYTES_MAX;
        let is_full = is_too_long || *sum + bytes > REQUEST_BYTES;
        if is_full && !batch.work.is_empty() {
            *sum = 0;
            parts.push(std::mem::replace(batch, SlotBatch::new(slot)));
        }
        *sum += bytes;
        batch.stored_bytes += stored_bytes;
        batch.work.push((place, one));
    }
    parts.extend(open.into_values().map(|(_, batch)| batch));
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOTS: u16 = 2;

    fn divided(all: Vec<Weighed<u16>>) -> Vec<SlotBatch<u16>> {
        divide(all, |one| one % SLOTS, |_| 256)
    }

    #[test]
    fn a_request_rewrites_a_bounded_part_of_the_store() {
        const STORED_BYTES: usize = 600 << 10;
        let all = (0..1000).map(|one| (STORED_BYTES, one)).collect();
        let parts = divided(all);
        let most = STORED_BYTES_MAX / STORED_BYTES;
        let mut places: Vec<usize> = vec![];
        for part in &parts {
            assert!(part.work.len() <= most, "{}", part.work.len());
            assert_eq!(part.stored_bytes, part.work.len() * STORED_BYTES);
            assert!(part.work.iter().all(|(_, one)| one % SLOTS == part.slot));
            places.extend(part.work.iter().map(|(place, _)| *place));
        }
        places.sort_unstable();
        assert_eq!(places, (0..1000).collect::<Vec<usize>>());
    }

    #[test]
    fn one_document_may_have_any_length_and_short_ones_go_together() {
        let long = STORED_BYTES_MAX * 2;
        let parts = divided(vec![(long, 0), (0, 2), (1, 4), (1, 6)]);
        let work: Vec<usize> = parts.iter().map(|part| part.work.len()).collect();
        assert_eq!(work, [2, 2]);
        let parts = divided((0..4000).map(|one| (100, one)).collect());
        assert_eq!(parts.len(), usize::from(SLOTS));
        let parts = divided((0..4100).map(|one| (0, one)).collect());
        assert_eq!(parts.len(), 2 * usize::from(SLOTS));
    }
}
