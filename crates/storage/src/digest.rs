//! The digest of a shard's documents: one number, so that replicas can be compared.
//!
//! A digest is the sum of a hash of each by-id record and of each local document. So it is updated
//! with every change, and it does not depend on the shard's number, on batches, or on compaction.
//! It detects accidental differences between replicas: an attacker who may choose what is stored
//! can choose rows of equal sums.

use crate::Error;
use crate::keys::{self, SHARD_LEN, ShardNumber};
use crate::keyspace::Keyspace;
use crate::meta::ShardMeta;
use crate::shard::Shard;
use crate::snapshot::Snapshot;

/// Separates these hashes from others.
const KEY: [u8; 32] = *b"settee: the digest of a shard, 1";

/// The keyspace of a row.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Document = 1,
    Local = 2,
}

/// Returns a row's contribution to its shard's digest.
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

/// A shard's stored digest and that of its rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recount {
    /// The stored digest; `None` for a shard that no slot has written to.
    pub kept: Option<u128>,
    /// The digest of the rows.
    pub counted: u128,
}

impl Shard {
    /// Returns the digest of its documents and local documents; `None` for a shard that no slot has
    /// written to. Two replicas that applied the same writes of their slot have the same digest.
    pub fn digest(&self) -> Option<u128> {
        self.state.lock().meta.digest
    }

    /// Recomputes the digest of all rows at one moment. Blocks while it reads all records and local
    /// documents.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn recount_digest(&self) -> Result<Recount, Error> {
        let snapshot = self.engine.snapshot();
        let kept = match snapshot.get(Keyspace::Meta, &keys::meta::shard(self.number))? {
            Some(stored) => ShardMeta::decode(&stored)?.digest,
            None => None,
        };
        let counted = digest_in(&snapshot, self.number)?;
        Ok(Recount { kept, counted })
    }
}

/// Computes the digest of a shard's rows in a snapshot.
pub(crate) fn digest_in(snapshot: &Snapshot, shard: ShardNumber) -> Result<u128, Error> {
    let mut counted = 0u128;
    for (k, kind) in [
        (Keyspace::ById, Kind::Document),
        (Keyspace::Local, Kind::Local),
    ] {
        let low = shard.to_be_bytes().to_vec();
        let mut it = snapshot.scan_range(k, low, keys::shard_end(shard));
        it.seek_to_first();
        while let Some((key, value)) = it.item() {
            counted = counted.wrapping_add(share(kind, &key[SHARD_LEN..], value));
            it.next();
        }
        it.status()?;
    }
    Ok(counted)
}
