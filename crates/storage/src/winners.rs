//! Documents that were read lately, in memory: a second reader searches neither the engine's levels nor its blocks.

use std::hash::BuildHasher as _;
use std::sync::Arc;

use parking_lot::Mutex;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use rustc_hash::FxBuildHasher;

use crate::counters::{DOCUMENTS_FOUND, DOCUMENTS_READ};

/// Longer ones are not kept: one takes the place of many, and the search is a small part of what reading it costs.
const DOCUMENT_BYTES_MAX: usize = 16 << 10;
/// What each takes besides its bytes: places in the cache's table, and what the allocator rounds up.
const OVERHEAD_BYTES: usize = 160;
/// What documents probably take, to begin with.
const USUAL_BYTES: usize = 512;
/// Writers of different documents seldom meet at one of so many locks.
const LOCKS: usize = 1024;

/// The records and winning bodies of documents, the most useful ones within a number of bytes.
///
/// What is found here is what is stored. While a document is written ([`Winners::begin_write`], [`Winners::end_write`]) readers go to the engine,
/// and who had read the engine before that cannot put the old back ([`Winners::keep`]): each key has a count of changes, which the reader
/// looks at first.
pub(crate) struct Winners {
    /// By the key of by-id.
    cache: Cache<Box<[u8]>, Arc<Winner>, Bytes>,
    /// What is written, by the keys' hashes. Held while a document is put into the cache or taken out of it.
    changes: Box<[Mutex<Changes>]>,
}

/// Of all keys of one hash.
#[derive(Default)]
struct Changes {
    /// Writes that were begun.
    begun: u64,
    /// Those of them that are under way.
    under_way: u64,
}

/// A document as it is stored.
pub(crate) struct Winner {
    bytes: Box<[u8]>,
    record_len: usize,
}

impl Winner {
    /// The value of by-id.
    pub fn record(&self) -> &[u8] {
        &self.bytes[..self.record_len]
    }

    /// The body of its winning revision.
    pub fn body(&self) -> &[u8] {
        &self.bytes[self.record_len..]
    }
}

#[derive(Clone)]
struct Bytes;

impl Weighter<Box<[u8]>, Arc<Winner>> for Bytes {
    fn weight(&self, key: &Box<[u8]>, winner: &Arc<Winner>) -> u64 {
        (key.len() + winner.bytes.len() + OVERHEAD_BYTES) as u64
    }
}

impl Winners {
    /// Keeps so many bytes of documents; none when it is 0.
    pub fn new(bytes: usize) -> Winners {
        Winners {
            cache: Cache::with_weighter(bytes / USUAL_BYTES, bytes as u64, Bytes),
            changes: (0..LOCKS).map(|_| Mutex::default()).collect(),
        }
    }

    fn changes(&self, key: &[u8]) -> &Mutex<Changes> {
        let hash = FxBuildHasher.hash_one(key);
        // The high bits are the better ones of this hash.
        &self.changes[(hash >> 32) as usize % LOCKS]
    }

    /// A document that is kept.
    pub fn get(&self, key: &[u8]) -> Option<Arc<Winner>> {
        let found = self.cache.get(key);
        match &found {
            Some(_) => DOCUMENTS_FOUND.count(),
            None => DOCUMENTS_READ.count(),
        }
        found
    }

    /// What [`Winners::keep`] wants to know of the time before the engine was read; `None` while the document is written, or where none are
    /// kept.
    pub fn before(&self, key: &[u8]) -> Option<u64> {
        if self.cache.capacity() == 0 {
            return None;
        }
        let changes = self.changes(key).lock();
        (changes.under_way == 0).then_some(changes.begun)
    }

    /// Keeps what was read, unless the document was written since `before`.
    pub fn keep(&self, key: &[u8], before: Option<u64>, record: &[u8], body: &[u8]) {
        if before.is_none() || record.len() + body.len() > DOCUMENT_BYTES_MAX {
            return;
        }
        let winner = Winner {
            bytes: [record, body].concat().into(),
            record_len: record.len(),
        };
        let changes = self.changes(key).lock();
        if Some(changes.begun) == before {
            self.cache.insert(key.into(), Arc::new(winner));
        }
    }

    /// A document is about to be written: it is not here until that is done.
    pub fn begin_write(&self, key: &[u8]) {
        let mut changes = self.changes(key).lock();
        changes.begun += 1;
        changes.under_way += 1;
        self.cache.remove(key);
    }

    /// It is written, or could not be.
    pub fn end_write(&self, key: &[u8]) {
        self.changes(key).lock().under_way -= 1;
    }

    /// Memory of the documents, in bytes.
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
    fn none_are_kept_without_room() {
        let winners = Winners::new(0);
        winners.keep(b"a", winners.before(b"a"), b"record", b"body");
        assert!(winners.get(b"a").is_none());
    }
}
