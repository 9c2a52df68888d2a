//! Values that were recently read, one per id, within a number of entries and of bytes.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use document::Rev;

/// A cache of values by id, each of one revision.
///
/// When it has too many entries or bytes, the least recently used ones are removed. Two kinds stay: the newest one, and
/// those in use: their memory would not be freed, and the next caller would read another copy.
#[derive(Debug)]
pub struct RevisionCache<T, K = String> {
    entries: HashMap<K, Entry<T>>,
    entries_max: usize,
    bytes: usize,
    bytes_max: usize,
    clock: u64,
}

#[derive(Debug)]
struct Entry<T> {
    rev: Rev,
    value: Arc<T>,
    bytes: usize,
    used: u64,
}

impl<T, K: Clone + Eq + Hash> RevisionCache<T, K> {
    /// Returns an empty cache of these sizes.
    pub fn new(entries_max: usize, bytes_max: usize) -> RevisionCache<T, K> {
        RevisionCache {
            entries: HashMap::new(),
            entries_max,
            bytes: 0,
            bytes_max,
            clock: 0,
        }
    }

    /// Returns the value of this revision.
    pub fn get<Q: Eq + Hash + ?Sized>(&mut self, id: &Q, rev: &Rev) -> Option<Arc<T>>
    where
        K: Borrow<Q>,
    {
        self.clock += 1;
        let entry = self.entries.get_mut(id).filter(|e| e.rev == *rev)?;
        entry.used = self.clock;
        Some(entry.value.clone())
    }

    /// Keeps the value of a revision, instead of that of another revision.
    pub fn insert(&mut self, id: K, rev: Rev, value: Arc<T>, bytes: usize) {
        self.clock += 1;
        let entry = Entry {
            rev,
            value,
            bytes,
            used: self.clock,
        };
        self.bytes += bytes;
        if let Some(old) = self.entries.insert(id.clone(), entry) {
            self.bytes -= old.bytes;
        }
        self.trim(&id);
    }

    /// Returns the memory of all values, as their owners stated it, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    fn trim(&mut self, newest: &K) {
        while self.bytes > self.bytes_max || self.entries.len() > self.entries_max {
            let unused = self.entries.iter();
            let unused = unused.filter(|(id, e)| *id != newest && Arc::strong_count(&e.value) == 1);
            let Some(oldest) = unused.min_by_key(|(_, e)| e.used).map(|(id, _)| id.clone()) else {
                return;
            };
            if let Some(removed) = self.entries.remove(&oldest) {
                self.bytes -= removed.bytes;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rev(text: &str) -> Rev {
        Rev::parse(text).unwrap()
    }

    #[test]
    fn the_least_recently_used_are_removed_unless_somebody_holds_them() {
        let mut recent = RevisionCache::new(10, 100);
        let held = Arc::new("a");
        recent.insert("a".to_owned(), rev("1-00"), held.clone(), 40);
        recent.insert("b".to_owned(), rev("1-00"), Arc::new("b"), 40);
        recent.insert("c".to_owned(), rev("1-00"), Arc::new("c"), 20);
        assert!(recent.get("b", &rev("1-00")).is_some());
        recent.insert("d".to_owned(), rev("1-00"), Arc::new("d"), 20);
        assert!(recent.get("c", &rev("1-00")).is_none());
        recent.insert("e".to_owned(), rev("1-00"), Arc::new("e"), 1000);
        assert_eq!(recent.get("a", &rev("1-00")), Some(held));
        assert!(recent.get("e", &rev("1-00")).is_some());
        assert_eq!((recent.entries.len(), recent.bytes()), (2, 1040));
    }

    #[test]
    fn another_revision_replaces_one() {
        let mut recent = RevisionCache::new(1, 100);
        recent.insert("a".to_owned(), rev("1-00"), Arc::new(1), 50);
        recent.insert("a".to_owned(), rev("2-00"), Arc::new(2), 30);
        assert_eq!(recent.get("a", &rev("1-00")), None);
        assert_eq!(recent.get("a", &rev("2-00")), Some(Arc::new(2)));
        assert_eq!(recent.bytes(), 30);
        recent.insert("b".to_owned(), rev("1-00"), Arc::new(3), 30);
        assert_eq!((recent.entries.len(), recent.bytes()), (1, 30));
    }
}
