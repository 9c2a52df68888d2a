//! The documents that an index leaves out because it cannot hold their fields.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

/// The maximum number that is counted. They are written at each commit.
const COUNTED_MAX: usize = 1_000;

/// The documents that an index leaves out, as hashes of their ids.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Omissions {
    hashes: BTreeSet<u64>,
    /// There were more than are counted. Reset when the index is rebuilt.
    #[serde(default)]
    has_more: bool,
}

impl Omissions {
    /// Returns whether all documents are in the index.
    pub fn is_empty(&self) -> bool {
        self.hashes.is_empty() && !self.has_more
    }

    /// Returns the number of documents left out, at most 1,000.
    pub fn count(&self) -> u64 {
        match self.has_more {
            true => COUNTED_MAX as u64,
            false => self.hashes.len() as u64,
        }
    }

    pub(crate) fn insert(&mut self, id: &str) {
        let hash = hash_of(id);
        match self.hashes.len() < COUNTED_MAX {
            true => drop(self.hashes.insert(hash)),
            false => self.has_more |= !self.hashes.contains(&hash),
        }
    }

    pub(crate) fn remove(&mut self, id: &str) {
        self.hashes.remove(&hash_of(id));
    }

    /// Returns whether a document is among those that are counted.
    pub(crate) fn contains(&self, id: &str) -> bool {
        self.hashes.contains(&hash_of(id))
    }

    /// Returns the same without any document that is counted.
    pub(crate) fn without_counted(&self) -> Omissions {
        Omissions {
            hashes: BTreeSet::new(),
            has_more: self.has_more,
        }
    }
}

/// FNV-1a. It is stored, so it must never change.
fn hash_of(id: &str) -> u64 {
    let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    id.bytes().fold(0xcbf2_9ce4_8422_2325, mix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_counts_until_it_comes_in() {
        let mut left_out = Omissions::default();
        for id in ["a", "b", "a"] {
            left_out.insert(id);
        }
        assert_eq!(left_out.count(), 2);
        let text = serde_json::to_string(&left_out).unwrap();
        assert_eq!(serde_json::from_str::<Omissions>(&text).unwrap(), left_out);
        assert!(left_out.contains("a") && !left_out.contains("c"));
        assert!(left_out.without_counted().is_empty());
        left_out.remove("a");
        left_out.remove("c");
        assert_eq!(left_out.count(), 1);
        left_out.remove("b");
        assert!(left_out.is_empty());
    }

    #[test]
    fn more_than_are_counted_are_never_none() {
        let mut left_out = Omissions::default();
        let ids: Vec<String> = (0..=COUNTED_MAX).map(|n| n.to_string()).collect();
        ids.iter().for_each(|id| left_out.insert(id));
        ids.iter().for_each(|id| left_out.remove(id));
        assert_eq!((left_out.count(), left_out.is_empty()), (1_000, false));
        assert!(!left_out.without_counted().is_empty());
    }

    #[test]
    fn hashes_are_those_that_are_stored() {
        assert_eq!(hash_of(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(hash_of("a"), 0xaf63_dc4c_8601_ec8c);
    }
}
