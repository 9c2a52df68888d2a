//! A cache of recently read documents: a second read searches neither the engine's levels nor its
//! blocks.

use std::hash::{BuildHasher as _, RandomState};
use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::counters::{DOCUMENTS_FOUND, DOCUMENTS_READ};

/// Longer documents are not cached: one takes the place of many, and the search is a small part of
/// its read. In bytes.
const DOCUMENT_BYTES_MAX: usize = 16 << 10;
/// Memory of each document besides its bytes: entries in the cache's table, and rounding by the
/// allocator.
const OVERHEAD_BYTES: usize = 128;
/// Initial estimate of the size of documents, in bytes.
const USUAL_BYTES: usize = 512;
/// Number of locks: writers of different documents seldom share one.
const LOCKS: usize = 1024;

/// The records and winning bodies of documents, the most useful ones within a number of bytes.
///
/// It always agrees with the store. While a document is being written ([`Winners::begin_write`],
/// [`Winners::end_write`]) readers go to the engine, and a reader that read the engine before
/// cannot insert the old version ([`Winners::keep`]): each key has a count of changes, which the
/// reader checks first.
///
/// Readers mostly wait for memory that is in no cache of the processor: a document is one
/// allocation with its key, and is found by the key's hash, which makes three such accesses (the
/// table, the entry, the document) instead of five.
pub(crate) struct Winners {
    /// By the hashes of the keys of by-id. Of two keys with one hash the later is kept.
    cache: Cache<u64, Winner, Bytes>,
    /// Random, so that attackers cannot construct keys with equal hashes.
    seed: u64,
    /// Writes in progress, by the keys' hashes. Locked while a document is inserted into the cache
    /// or removed.
    changes: Box<[Mutex<Changes>]>,
}

/// For all keys of one lock.
#[derive(Default)]
struct Changes {
    /// Writes started.
    begun: u64,
    /// Writes in progress.
    under_way: u64,
}

/// A stored document.
#[derive(Clone)]
pub(crate) struct Winner {
    /// The lengths of key and record, both, and the body.
    bytes: Arc<[u8]>,
}

/// Size of a length, in bytes.
const LENGTH_BYTES: usize = size_of::<u32>();

impl Winner {
    fn new(key: &[u8], record: &[u8], body: &[u8]) -> Winner {
        let lengths = [key, record].map(|part| (part.len() as u32).to_ne_bytes());
        Winner {
            bytes: [&lengths[0], &lengths[1], key, record, body]
                .concat()
                .into(),
        }
    }

    /// Returns one of the two lengths at the start.
    fn length(&self, n: usize) -> usize {
        let mut length = [0; LENGTH_BYTES];
        length.copy_from_slice(&self.bytes[n * LENGTH_BYTES..][..LENGTH_BYTES]);
        u32::from_ne_bytes(length) as usize
    }

    fn key_at(&self) -> Range<usize> {
        let begin = 2 * LENGTH_BYTES;
        begin..begin + self.length(0)
    }

    fn record_at(&self) -> Range<usize> {
        let begin = self.key_at().end;
        begin..begin + self.length(1)
    }

    /// Returns the value of by-id.
    pub fn record(&self) -> &[u8] {
        &self.bytes[self.record_at()]
    }

    /// Returns the body of its winning revision.
    pub fn body(&self) -> &[u8] {
        &self.bytes[self.record_at().end..]
    }
}

#[derive(Clone)]
struct Bytes;

impl Weighter<u64, Winner> for Bytes {
    fn weight(&self, _: &u64, winner: &Winner) -> u64 {
        (winner.bytes.len() + OVERHEAD_BYTES) as u64
    }
}

impl Winners {
    /// Caches `bytes` bytes of documents; 0 disables it.
    pub fn new(bytes: usize) -> Winners {
        Winners {
            cache: Cache::with_weighter(bytes / USUAL_BYTES, bytes as u64, Bytes),
            seed: RandomState::new().hash_one(0),
            changes: (0..LOCKS).map(|_| Mutex::default()).collect(),
        }
    }

    fn hash(&self, key: &[u8]) -> u64 {
        xxh3_64_with_seed(key, self.seed)
    }

    fn changes(&self, hash: u64) -> &Mutex<Changes> {
        &self.changes[hash as usize % LOCKS]
    }

    /// Returns a cached document.
    pub fn get(&self, key: &[u8]) -> Option<Winner> {
        let found = self.cache.get(&self.hash(key));
        let found = found.filter(|winner| winner.bytes[winner.key_at()] == *key);
        match &found {
            Some(_) => DOCUMENTS_FOUND.count(),
            None => DOCUMENTS_READ.count(),
        }
        found
    }

    /// Returns the state that [`Winners::keep`] needs from before the engine is read; `None` while
    /// the document is being written, or when the cache is disabled.
    pub fn before(&self, key: &[u8]) -> Option<u64> {
        if self.cache.capacity() == 0 {
            return None;
        }
        let changes = self.changes(self.hash(key)).lock();
        (changes.under_way == 0).then_some(changes.begun)
    }

    /// Caches the read winner, unless the document was written since `before`.
    pub fn keep(&self, key: &[u8], before: Option<u64>, record: &[u8], body: &[u8]) {
        if before.is_none() || record.len() + body.len() > DOCUMENT_BYTES_MAX {
            return;
        }
        let winner = Winner::new(key, record, body);
        let hash = self.hash(key);
        let changes = self.changes(hash).lock();
        if Some(changes.begun) == before {
            self.cache.insert(hash, winner);
        }
    }

    /// Removes a document that is about to be written; it is not cached until that is done.
    pub fn begin_write(&self, key: &[u8]) {
        let hash = self.hash(key);
        let mut changes = self.changes(hash).lock();
        changes.begun += 1;
        changes.under_way += 1;
        self.cache.remove(&hash);
    }

    /// Records that a write is done, or failed.
    pub fn end_write(&self, key: &[u8]) {
        self.changes(self.hash(key)).lock().under_way -= 1;
    }

    /// Returns the memory of the documents, in bytes.
    pub fn bytes(&self) -> u64 {
        self.cache.weight()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(winners: &Winners, key: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
        let winner = winners.get(key)?;
        Some((winner.record().to_vec(), winner.body().to_vec()))
    }

    #[test]
    fn what_was_read_is_found_until_it_is_written() {
        let winners = Winners::new(1 << 20);
        assert_eq!(found(&winners, b"a"), None);
        winners.keep(b"a", winners.before(b"a"), b"record", b"body");
        assert_eq!(
            found(&winners, b"a"),
            Some((b"record".to_vec(), b"body".to_vec()))
        );
        winners.begin_write(b"b");
        winners.end_write(b"b");
        assert!(winners.get(b"a").is_some());
        winners.begin_write(b"a");
        assert_eq!(found(&winners, b"a"), None);
        winners.keep(b"a", winners.before(b"a"), b"old", b"old");
        assert_eq!(found(&winners, b"a"), None, "while it is written");
        winners.end_write(b"a");
        winners.keep(b"a", winners.before(b"a"), b"new", b"new");
        assert_eq!(
            found(&winners, b"a"),
            Some((b"new".to_vec(), b"new".to_vec()))
        );
    }

    #[test]
    fn what_was_read_before_a_write_is_not_kept_after_it() {
        let winners = Winners::new(1 << 20);
        let before = winners.before(b"a");
        winners.begin_write(b"a");
        winners.keep(b"a", before, b"old", b"old");
        winners.end_write(b"a");
        winners.keep(b"a", before, b"old", b"old");
        assert_eq!(found(&winners, b"a"), None);
    }

    #[test]
    fn it_stays_within_its_bytes() {
        const MAX: usize = 1 << 20;
        let winners = Winners::new(MAX);
        for n in 0..10_000_u32 {
            let key = n.to_be_bytes();
            winners.keep(&key, winners.before(&key), &[1; 20], &[2; 500]);
        }
        assert!(winners.bytes() <= MAX as u64, "{}", winners.bytes());
        assert!(winners.bytes() > MAX as u64 / 2, "{}", winners.bytes());
        winners.keep(
            b"long",
            winners.before(b"long"),
            b"",
            &vec![0; DOCUMENT_BYTES_MAX + 1],
        );
        assert!(winners.get(b"long").is_none());
    }

    #[test]
    fn a_key_with_the_hash_of_another_finds_nothing() {
        let winners = Winners::new(1 << 20);
        let of_other = Winner::new(b"a", b"record", b"body");
        winners.cache.insert(winners.hash(b"b"), of_other);
        assert_eq!(found(&winners, b"b"), None);
        winners.keep(b"b", winners.before(b"b"), b"", b"");
        assert_eq!(found(&winners, b"b"), Some((vec![], vec![])));
    }

    #[test]
    fn none_are_kept_without_room() {
        let winners = Winners::new(0);
        winners.keep(b"a", winners.before(b"a"), b"record", b"body");
        assert!(winners.get(b"a").is_none());
    }
}
