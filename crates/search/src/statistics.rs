//! Corpus statistics, which scores depend on: the number of documents, and the document frequency
//! of each term.
//!
//! Every update and every merge changes them. The request for a page carries the statistics of the
//! page before, so that both have the same scores: no hit moves across the page boundary, whatever
//! is written meanwhile.

use std::cell::RefCell;
use std::collections::BTreeMap;

use crate::Error;
use crate::reader::Reader;
use crate::similarity::FieldStatistics;

/// The maximum number of statistics of a query that its next page reuses. For a longer query the
/// others are counted again.
const NUMBERS_MAX: usize = 256;

/// The maximum length of [`Statistics::to_bytes`]: a hash and two numbers for each.
pub const STATISTICS_BYTES_MAX: usize = NUMBERS_MAX * (4 + 2 * 10);

/// Statistics of an index as of the first page of a query, by the hash of the counted thing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statistics(BTreeMap<u32, (u64, u64)>);

impl Statistics {
    /// Encodes them: each number after the hash of the counted thing.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = vec![];
        for (hash, (first, second)) in &self.0 {
            out.extend_from_slice(&hash.to_le_bytes());
            put_number(*first, &mut out);
            put_number(*second, &mut out);
        }
        out
    }

    /// Decodes the output of [`Statistics::to_bytes`]; `None` for other bytes.
    pub fn from_bytes(mut bytes: &[u8]) -> Option<Statistics> {
        let mut numbers = BTreeMap::new();
        while let Some((hash, rest)) = bytes.split_first_chunk() {
            bytes = rest;
            let subject = (take_number(&mut bytes)?, take_number(&mut bytes)?);
            numbers.insert(u32::from_le_bytes(*hash), subject);
            if numbers.len() > NUMBERS_MAX {
                return None;
            }
        }
        bytes.is_empty().then_some(Statistics(numbers))
    }
}

/// Seven bits a byte, the lowest first.
fn put_number(mut n: u64, out: &mut Vec<u8>) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

fn take_number(bytes: &mut &[u8]) -> Option<u64> {
    let mut n = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        n |= u64::from(byte & 0x7f) << shift;
        if *byte < 0x80 {
            return Some(n);
        }
    }
    None
}

/// The thing that a statistic counts.
#[derive(Clone, Copy)]
enum Subject<'a> {
    Documents,
    Term(&'a [u8]),
    Field(&'a str),
}

impl Subject<'_> {
    fn hash(self, shard: usize) -> u32 {
        let (kind, name) = match self {
            Subject::Documents => (0, &[][..]),
            Subject::Term(term) => (1, term),
            Subject::Field(field) => (2, field.as_bytes()),
        };
        let mut hasher = blake3::Hasher::new();
        hasher.update(&(shard as u32).to_le_bytes());
        hasher.update(&[kind]);
        hasher.update(name);
        let [a, b, c, d, ..] = *hasher.finalize().as_bytes();
        u32::from_le_bytes([a, b, c, d])
    }
}

/// The statistics of a query, which are counted in the index unless the page before supplied them.
pub(crate) struct Numbers(RefCell<Statistics>);

impl Numbers {
    pub fn new(known: Statistics) -> Numbers {
        Numbers(RefCell::new(known))
    }

    pub fn into_statistics(self) -> Statistics {
        self.0.into_inner()
    }

    /// Returns those of one shard of the index.
    pub fn of<'a>(&'a self, shard: usize, reader: &'a Reader) -> ShardNumbers<'a> {
        ShardNumbers {
            all: &self.0,
            shard,
            reader,
        }
    }
}

/// The statistics of a query in a shard.
pub(crate) struct ShardNumbers<'a> {
    all: &'a RefCell<Statistics>,
    shard: usize,
    pub reader: &'a Reader,
}

impl ShardNumbers<'_> {
    fn known_or(
        &self,
        subject: Subject<'_>,
        count: impl FnOnce() -> Result<(u64, u64), Error>,
    ) -> Result<(u64, u64), Error> {
        let hash = subject.hash(self.shard);
        if let Some(known) = self.all.borrow().0.get(&hash) {
            return Ok(*known);
        }
        let found = count()?;
        let numbers = &mut self.all.borrow_mut().0;
        if numbers.len() < NUMBERS_MAX {
            numbers.insert(hash, found);
        }
        Ok(found)
    }

    /// Returns the number of documents.
    pub fn docs_max(&self) -> Result<u64, Error> {
        let count = || Ok((self.reader.docs_max(), 0));
        Ok(self.known_or(Subject::Documents, count)?.0)
    }

    /// Returns the number of documents that contain a term.
    pub fn doc_freq(&self, term: &[u8]) -> Result<u64, Error> {
        let count = || Ok((self.reader.doc_freq(term)?, 0));
        Ok(self.known_or(Subject::Term(term), count)?.0)
    }

    /// Returns the statistics of a field.
    pub fn of_field(&self, field: &str) -> Result<FieldStatistics, Error> {
        let (docs, tokens) = self.known_or(Subject::Field(field), || {
            let FieldStatistics { docs, tokens } = self.reader.statistics(field)?;
            Ok((docs, tokens))
        })?;
        Ok(FieldStatistics { docs, tokens })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(numbers in prop::collection::btree_map(any::<u32>(), any::<(u64, u64)>(), 0..20)) {
            let statistics = Statistics(numbers);
            prop_assert_eq!(Statistics::from_bytes(&statistics.to_bytes()), Some(statistics));
        }

        #[test]
        fn more_statistics_than_a_page_has_are_refused(more in 0..4_usize) {
            let hashes = 0..(NUMBERS_MAX + more) as u32;
            let statistics = Statistics(hashes.map(|hash| (hash, (u64::MAX, u64::MAX))).collect());
            let bytes = statistics.to_bytes();
            prop_assert_eq!(bytes.len() <= STATISTICS_BYTES_MAX, more == 0);
            prop_assert_eq!(Statistics::from_bytes(&bytes).is_some(), more == 0);
        }

        #[test]
        fn other_bytes_do_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            if let Some(statistics) = Statistics::from_bytes(&bytes) {
                prop_assert!(statistics.0.len() <= bytes.len());
            }
        }
    }
}
