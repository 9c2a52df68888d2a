//! A shard's counters, written in the batch that changes them.

use crate::Error;
use crate::varint::{Reader, put};

const VERSION: u8 = 1;
/// With a digest at the end.
const VERSION_WITH_DIGEST: u8 = 2;

/// The counters of a shard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShardMeta {
    /// Seq of the latest change; seqs start at 1 and only grow.
    pub update_seq: u64,
    /// Documents whose winner is not deleted.
    pub doc_count: u64,
    /// Documents whose winner is deleted.
    pub doc_del_count: u64,
    /// Length of the bodies of all leaves, in bytes of text.
    pub external_bytes: u64,
    /// Length in bytes of all document ids.
    pub id_bytes: u64,
    /// Purges so far.
    pub purge_seq: u64,
    /// Purges up to this seq were removed.
    pub purge_floor: u64,
    /// By-seq rows that no longer list their document, waiting for compaction.
    pub superseded_rows: u64,
    /// The digest of the rows of a shard that belongs to a slot ([`crate::Shard::digest`]).
    pub digest: Option<u128>,
}

/// Bytes that a document's by-id and by-seq rows take beyond its body and twice its id, before
/// compression (keys, flags, varints, revision id), rounded.
const ROW_OVERHEAD_BYTES: u64 = 53;

impl ShardMeta {
    /// Encodes them.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![match self.digest {
            None => VERSION,
            Some(_) => VERSION_WITH_DIGEST,
        }];
        for v in [
            self.update_seq,
            self.doc_count,
            self.doc_del_count,
            self.external_bytes,
            self.id_bytes,
            self.purge_seq,
            self.purge_floor,
            self.superseded_rows,
        ] {
            put(v, &mut out);
        }
        if let Some(digest) = self.digest {
            out.extend_from_slice(&digest.to_be_bytes());
        }
        out
    }

    /// Decodes the stored form.
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    pub fn decode(value: &[u8]) -> Result<ShardMeta, Error> {
        ShardMeta::split(value).map(|(meta, _)| meta)
    }

    /// Reads the stored form, and returns what follows it.
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    pub(crate) fn split(value: &[u8]) -> Result<(ShardMeta, &[u8]), Error> {
        let mut r = Reader::new(value, "shard counters");
        let with_digest = match r.byte()? {
            VERSION => false,
            VERSION_WITH_DIGEST => true,
            _ => return Err(r.corrupt()),
        };
        let meta = ShardMeta {
            update_seq: r.varint()?,
            doc_count: r.varint()?,
            doc_del_count: r.varint()?,
            external_bytes: r.varint()?,
            id_bytes: r.varint()?,
            purge_seq: r.varint()?,
            purge_floor: r.varint()?,
            superseded_rows: r.varint()?,
            digest: if with_digest {
                let bytes = r.bytes(16)?.try_into().map_err(|_| r.corrupt())?;
                Some(u128::from_be_bytes(bytes))
            } else {
                None
            },
        };
        Ok((meta, r.rest))
    }

    /// Estimates the live part of files of `file_bytes` bytes: by rows, since the size of
    /// superseded ones is not counted.
    pub fn active_part_of(&self, file_bytes: u64) -> u64 {
        let live = self.doc_count + self.doc_del_count;
        let all = u128::from(live + self.superseded_rows).max(1);
        (u128::from(file_bytes) * u128::from(live) / all) as u64
    }

    /// Estimates the bytes of live data before compression.
    pub fn active_bytes(&self) -> u64 {
        active_bytes(
            self.doc_count + self.doc_del_count,
            self.id_bytes,
            self.external_bytes,
        )
    }
}

/// Estimates the bytes of `docs` documents with these ids and bodies, before compression.
pub fn active_bytes(docs: u64, id_bytes: u64, body_bytes: u64) -> u64 {
    body_bytes + 2 * id_bytes + docs * ROW_OVERHEAD_BYTES
}
