//! Documents that are slow to read because they have many revisions: after a slow read, further ones
//! are made by threads that give way to other requests.

use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// A longer read is slow.
const SLOW_TIME: Duration = Duration::from_millis(2);

/// Keys of documents whose last read here was slow, each in the slot of its hash; 0 in free slots.
static SLOW: [AtomicU64; 1024] = [const { AtomicU64::new(0) }; 1024];

/// Random for each process: otherwise a client could choose ids that share a slot, each of which
/// makes the others be forgotten.
static HASHER: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// The key of a document. Two documents may have the same one.
///
/// It is for reads that need the tree of revisions: a read of the winner alone is fast, whatever
/// the tree is, and must neither note nor forget that the document is slow.
#[derive(Clone, Copy)]
pub struct WideKey(u64);

impl WideKey {
    /// Returns the key of a document in a database.
    pub fn of(database: &str, id: &str) -> WideKey {
        WideKey(HASHER.hash_one((database, id)) | 1)
    }

    fn slot(self) -> &'static AtomicU64 {
        &SLOW[(self.0 >> 54) as usize]
    }

    /// Returns whether the document was slow to read.
    pub fn is_slow(self) -> bool {
        self.slot().load(Relaxed) == self.0
    }

    /// Notes how long a read took.
    pub fn note(self, took: Duration) {
        if took >= SLOW_TIME {
            self.slot().store(self.0, Relaxed);
        } else if self.is_slow() {
            self.slot().store(0, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_slow_until_a_read_of_it_is_fast() {
        let (wide, other) = (WideKey::of("db", "wide"), WideKey::of("db2", "wide"));
        wide.note(Duration::ZERO);
        assert!(!wide.is_slow());
        wide.note(SLOW_TIME);
        assert!(wide.is_slow() && !other.is_slow());
        wide.note(Duration::ZERO);
        assert!(!wide.is_slow());
    }
}
