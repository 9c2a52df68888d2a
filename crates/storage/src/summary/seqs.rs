//! The seqs that list a document now: a bit each, counted by chunk.

use std::collections::{BTreeMap, BTreeSet};

/// Number of seqs in a chunk.
pub const CHUNK_SEQS: u64 = 4096;
const WORDS: usize = (CHUNK_SEQS / 64) as usize;

#[derive(Clone, Debug, Default)]
struct Chunk {
    bits: Vec<u64>,
    count: u32,
}

impl Chunk {
    fn change(&mut self, bit: usize, on: bool) {
        let word = bit / 64;
        if self.bits.len() <= word {
            self.bits.resize(word + 1, 0);
        }
        let mask = 1 << (bit % 64);
        let was = self.bits[word] & mask != 0;
        if on && !was {
            self.bits[word] |= mask;
            self.count += 1;
        } else if !on && was {
            self.bits[word] &= !mask;
            self.count -= 1;
        }
    }

    /// Counts set bits at `from` and above.
    fn count_from(&self, from: usize) -> u64 {
        let word = from / 64;
        let Some(first) = self.bits.get(word) else {
            return 0;
        };
        let head = (first >> (from % 64)).count_ones();
        let tail: u32 = self.bits[word + 1..].iter().map(|w| w.count_ones()).sum();
        u64::from(head + tail)
    }
}

/// The listed seqs of one shard.
#[derive(Clone, Debug, Default)]
pub struct SeqBits {
    chunks: BTreeMap<u64, Chunk>,
    total: u64,
    dirty: BTreeSet<u64>,
}

impl SeqBits {
    /// Returns roughly how much memory they take, in bytes.
    pub fn memory_bytes(&self) -> usize {
        let chunk = self.chunks.values().next();
        let bits = chunk.map_or(0, |chunk| chunk.bits.capacity() * 8);
        self.chunks.len() * (size_of::<Chunk>() + 64 + bits)
    }

    pub fn add(&mut self, seq: u64) {
        self.change(seq, true);
    }

    pub fn remove(&mut self, seq: u64) {
        self.change(seq, false);
    }

    fn change(&mut self, seq: u64, on: bool) {
        let n = seq / CHUNK_SEQS;
        let chunk = self.chunks.entry(n).or_default();
        let before = chunk.count;
        chunk.change((seq % CHUNK_SEQS) as usize, on);
        self.total = self.total + u64::from(chunk.count) - u64::from(before);
        if chunk.count == 0 {
            self.chunks.remove(&n);
        }
        self.dirty.insert(n);
    }

    pub fn total(&self) -> u64 {
        self.total
    }

    /// Returns the number of listed seqs greater than `seq`.
    pub fn count_after(&self, seq: u64) -> u64 {
        let from = seq + 1;
        let n = from / CHUNK_SEQS;
        let mut sum = 0;
        for (&i, chunk) in self.chunks.range(n..) {
            sum += if i == n {
                chunk.count_from((from % CHUNK_SEQS) as usize)
            } else {
                u64::from(chunk.count)
            };
        }
        sum
    }

    /// Returns whether a seq is listed.
    pub fn has(&self, seq: u64) -> bool {
        let bit = (seq % CHUNK_SEQS) as usize;
        let chunk = self.chunks.get(&(seq / CHUNK_SEQS));
        chunk
            .and_then(|c| c.bits.get(bit / 64))
            .is_some_and(|word| word & (1 << (bit % 64)) != 0)
    }

    /// Returns the first seq that is listed in only one of the two.
    pub fn first_difference(&self, other: &SeqBits) -> Option<u64> {
        let chunks: BTreeSet<u64> = self
            .chunks
            .keys()
            .chain(other.chunks.keys())
            .copied()
            .collect();
        let word = |bits: &SeqBits, n, i| {
            let chunk: Option<&Chunk> = bits.chunks.get(&n);
            chunk.and_then(|c| c.bits.get(i)).copied().unwrap_or(0)
        };
        chunks.into_iter().find_map(|n| {
            (0..WORDS).find_map(|i| {
                let differ = word(self, n, i) ^ word(other, n, i);
                let bit = u64::from(differ.trailing_zeros());
                (differ != 0).then_some(n * CHUNK_SEQS + i as u64 * 64 + bit)
            })
        })
    }

    /// Returns the stored form of the chunks that changed since the last call; empty for a chunk
    /// with no bits set.
    pub fn take_dirty(&mut self) -> Vec<(u64, Vec<u8>)> {
        std::mem::take(&mut self.dirty)
            .into_iter()
            .map(|n| {
                let bytes = self.chunks.get(&n).map_or(Vec::new(), |c| {
                    c.bits.iter().flat_map(|w| w.to_le_bytes()).collect()
                });
                (n, bytes)
            })
            .collect()
    }

    pub fn load_chunk(&mut self, n: u64, bytes: &[u8]) {
        let bits: Vec<u64> = bytes
            .chunks_exact(8)
            .take(WORDS)
            .map(|c| u64::from_le_bytes(c.try_into().unwrap_or_default()))
            .collect();
        let count = bits.iter().map(|w| w.count_ones()).sum();
        self.total += u64::from(count);
        self.chunks.insert(n, Chunk { bits, count });
    }
}
