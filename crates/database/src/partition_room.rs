//! The room of a database's partitions, as far as it is known.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use parking_lot::Mutex;
use storage::ShardMeta;

/// The contents of a shard at one moment: its update seq and its purge seq.
pub(crate) type ShardSeqs = (u64, u64);

/// Returns what a shard with these counters contains.
pub(crate) fn seqs_of(meta: &ShardMeta) -> ShardSeqs {
    (meta.update_seq, meta.purge_seq)
}

/// Partitions whose room is remembered.
const PARTITIONS_MAX: usize = 10_000;

/// A limit for all databases.
pub(crate) type SharedLimit = Arc<AtomicU64>;

/// The room of one database's partitions.
pub(crate) type SharedRoom = Mutex<Room>;

/// Known room of partitions, so that not every write counts their contents.
#[derive(Default)]
pub(crate) struct Room {
    /// The limit that `partitions` were judged by.
    max_bytes: u64,
    /// By the hashes of their names, which may be long.
    partitions: HashMap<u64, Known>,
    hasher: RandomState,
    #[cfg(test)]
    counts: usize,
}

/// The room of a partition, as far as it is known.
#[derive(Default)]
struct Known {
    /// Bytes that may be written before the count matters again. Deletions since the count only
    /// increase the room.
    left_bytes: u64,
    /// Its size at the last count, and the contents of its shard then.
    counted: Option<(ShardSeqs, u64)>,
    /// One request counts it, others wait for the result.
    turn: CountTurn,
}

/// The right to count a partition.
pub(crate) type CountTurn = Arc<tokio::sync::Mutex<()>>;

/// Whether a partition has room for a document.
pub(crate) enum Judged {
    /// It is known whether it has.
    HasRoom(bool),
    /// It must be counted first, by the holder of this lock.
    Unknown(CountTurn),
}

impl Room {
    /// Judges a write of `bytes`, which are taken from the room.
    pub fn judge(
        &mut self,
        partition: &str,
        bytes: u64,
        (max_bytes, seqs): (u64, ShardSeqs),
    ) -> Judged {
        let known = self.known(partition, max_bytes);
        if known.left_bytes >= bytes {
            known.left_bytes -= bytes;
            return Judged::HasRoom(true);
        }
        match known.counted {
            // Not older than the request.
            Some((as_of, held_bytes)) if as_of.0 >= seqs.0 && as_of.1 >= seqs.1 => {
                known.left_bytes = 0;
                Judged::HasRoom(held_bytes < max_bytes)
            }
            _ => Judged::Unknown(known.turn.clone()),
        }
    }

    /// Notes a count for a write of `bytes`; returns whether there is room for it.
    pub fn note(
        &mut self,
        partition: &str,
        bytes: u64,
        max_bytes: u64,
        counted: (ShardSeqs, u64),
    ) -> bool {
        #[cfg(test)]
        {
            self.counts += 1;
        }
        let (_, held_bytes) = counted;
        let known = self.known(partition, max_bytes);
        let room = max_bytes.saturating_sub(held_bytes);
        known.left_bytes = room.saturating_sub(bytes);
        known.counted = Some(counted);
        room > 0
    }

    /// How often a partition was counted.
    #[cfg(test)]
    pub fn counts(&self) -> usize {
        self.counts
    }

    fn known(&mut self, partition: &str, max_bytes: u64) -> &mut Known {
        if self.max_bytes != max_bytes || self.partitions.len() >= PARTITIONS_MAX {
            self.max_bytes = max_bytes;
            self.partitions.clear();
        }
        let name = self.hasher.hash_one(partition);
        self.partitions.entry(name).or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX_BYTES: u64 = 10_000;

    #[test]
    fn a_count_is_valid_until_the_shard_changes() {
        let mut room = Room::default();
        let judge = |room: &mut Room, bytes: u64, seqs: u64| {
            let judged = room.judge("p", bytes, (MAX_BYTES, (seqs, 0)));
            match judged {
                Judged::HasRoom(has_room) => Some(has_room),
                Judged::Unknown(_) => None,
            }
        };
        assert_eq!(judge(&mut room, 1, 7), None);
        assert!(room.note("p", 1_000, MAX_BYTES, ((7, 0), 8_000)));
        assert_eq!(judge(&mut room, 1_000, 9), Some(true), "as it has room");
        assert_eq!(judge(&mut room, 1, 9), None);
        assert!(!room.note("p", 1, MAX_BYTES, ((9, 0), MAX_BYTES)));
        assert_eq!(judge(&mut room, 1, 9), Some(false));
        assert_eq!(judge(&mut room, 1, 10), None);
        let other_limit = room.judge("p", 1, (MAX_BYTES + 1, (9, 0)));
        assert!(matches!(other_limit, Judged::Unknown(_)));
    }
}
