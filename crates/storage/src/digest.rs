//! What a shard's documents come to, in one number, so that replicas can compare what they hold.
//!
//! A digest is the sum of a hash of each by-id record and of each local document. So it is kept with every change, and it says
//! nothing of the shard's number, of what was written together, or of compaction. It finds replicas that differ by accident: who
//! may choose what is stored can choose rows of equal sums.

use crate::Error;
use crate::keys::{self, SHARD_LEN};
use crate::keyspace::Keyspace;
use crate::meta::ShardMeta;
use crate::shard::Shard;

/// Tells these hashes from others.
const KEY: [u8; 32] = *b"settee: the digest of a shard, 1";

/// Where a row is.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Document = 1,
    Local = 2,
}

/// What a row adds to its shard's digest.
pub(crate) fn share(kind: Kind, id: &[u8], value: &[u8]) -> u128 {
    let mut hasher = blake3::Hasher::new_keyed(&KEY);
    hasher.update(&[kind as u8]);
    hasher.update(&(id.len() as u64).to_be_bytes());
    hasher.update(id);
    hasher.update(value);
    let mut first = [0; 16];
    hasher.finalize_xof().fill(&mut first);
    u128::from_be_bytes(first)
}

/// A shard's digest beside what its rows come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recount {
    /// What is kept with the counters; `None` of a shard to which no slot wrote.
    pub kept: Option<u128>,
    /// What the rows come to.
    pub counted: u128,
}

impl Shard {
    /// What its documents and local documents come to; `None` of a shard to which no slot wrote. Two replicas that applied the same
    /// writes of their slot have the same digest.
    pub fn digest(&self) -> Option<u128> {
        self.state.lock().meta.digest
    }

    /// Counts the digest anew, of all rows at one moment. Blocking, and as long as reading all records and local documents takes.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn recount_digest(&self) -> Result<Recount, Error> {
        let snapshot = self.engine.snapshot();
        let kept = match snapshot.get(Keyspace::Meta, &keys::meta::shard(self.number))? {
            Some(stored) => ShardMeta::decode(&stored)?.digest,
            None => None,
        };
        let mut counted = 0u128;
        for (k, kind) in [
            (Keyspace::ById, Kind::Document),
            (Keyspace::Local, Kind::Local),
        ] {
            let low = self.number.to_be_bytes().to_vec();
            let mut it = snapshot.scan_range(k, low, keys::shard_end(self.number));
            it.seek_to_first();
            while let Some((key, value)) = it.item() {
                counted = counted.wrapping_add(share(kind, &key[SHARD_LEN..], value));
                it.next();
            }
            it.status()?;
        }
        Ok(Recount { kept, counted })
    }
}
