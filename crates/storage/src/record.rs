//! The value of by-id: everything about a document except its bodies.
//!
//! A document with one revision, by far the most common case, is stored without its tree: the head
//! contains everything.

use document::{Rev, RevHash, RevPath, RevTree, Revision};

use crate::Error;
use crate::varint::{Reader, put, put_slice};

const HAS_TREE: u8 = 1;
const DELETED: u8 = 2;

/// A revision id inside a stored value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredRev<'a> {
    /// The number before the dash.
    pub generation: u64,
    /// The part after the dash: 16 bytes of an MD5 sum, or a text.
    pub hash: &'a [u8],
}

impl StoredRev<'_> {
    /// Returns an owned revision.
    pub fn to_rev(self) -> Rev {
        Rev {
            generation: self.generation,
            hash: hash_of(self.hash),
        }
    }

    /// Appends `"generation-hash"` as clients see it, a JSON string.
    pub fn write_json_to(&self, out: &mut Vec<u8>) {
        self.to_rev().write_json_to(out);
    }

    pub(crate) fn read<'a>(r: &mut Reader<'a>) -> Result<StoredRev<'a>, Error> {
        Ok(StoredRev {
            generation: r.varint()?,
            hash: r.slice()?,
        })
    }
}

fn hash_of(bytes: &[u8]) -> RevHash {
    match <[u8; 16]>::try_from(bytes) {
        Ok(md5) => RevHash::Md5(md5),
        Err(_) => RevHash::Text(bytes.into()),
    }
}

pub(crate) fn put_rev(generation: u64, hash: &[u8], out: &mut Vec<u8>) {
    put(generation, out);
    put_slice(hash, out);
}

/// The part of a record that a listing needs, read without building its tree.
#[derive(Clone, Copy, Debug)]
pub struct RecordHead<'a> {
    /// The by-seq row that lists this document now.
    pub seq: u64,
    /// Whether the winning revision is deleted, and so the document.
    pub deleted: bool,
    /// The winning revision.
    pub winner: StoredRev<'a>,
    /// The seq of the winner's body, and its length in bytes; `None` when only the tree knows.
    pub body: Option<(u64, u64)>,
    /// The stored tree, unless `body` is known.
    tree: &'a [u8],
}

impl<'a> RecordHead<'a> {
    /// Decodes the head of a stored record.
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    pub fn decode(value: &'a [u8]) -> Result<Self, Error> {
        let mut r = Reader::new(value, "document record");
        let flags = r.byte()?;
        let seq = r.varint()?;
        let winner = StoredRev::read(&mut r)?;
        let body = if flags & HAS_TREE == 0 {
            Some((seq, r.varint()?))
        } else {
            None
        };
        Ok(RecordHead {
            seq,
            deleted: flags & DELETED != 0,
            winner,
            body,
            tree: r.rest,
        })
    }

    /// Returns the revision tree; `None` for a document with one revision, which is stored without.
    pub fn tree(&self) -> Result<Option<RevTree>, Error> {
        match self.body {
            Some(_) => Ok(None),
            None => decode_tree(self.tree).map(Some),
        }
    }

    /// Returns the bytes of the bodies of all leaves, without building the tree.
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    pub fn leaf_bytes(&self) -> Result<u64, Error> {
        match self.body {
            Some((_, bytes)) => Ok(bytes),
            None => {
                RevTree::stored_leaf_bytes(self.tree).map_err(|_| Error::Corrupt("revision tree"))
            }
        }
    }

    /// Returns the by-seq row with the winner's body.
    #[inline]
    pub fn body_seq(&self) -> Result<u64, Error> {
        match self.body {
            Some((seq, _)) => Ok(seq),
            None => {
                let tree = decode_tree(self.tree)?;
                Ok(tree.winner().map_or(self.seq, |w| w.revision.seq))
            }
        }
    }
}

fn decode_tree(stored: &[u8]) -> Result<RevTree, Error> {
    RevTree::decode(stored).map_err(|_| Error::Corrupt("revision tree"))
}

/// A document's record with its tree.
#[derive(Clone, Debug, Default)]
pub struct Record {
    /// The by-seq row that lists this document now; 0 for a document that does not exist.
    pub seq: u64,
    /// Its revisions.
    pub tree: RevTree,
}

impl Record {
    /// Decodes the stored form.
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    pub fn decode(value: &[u8]) -> Result<Record, Error> {
        let head = RecordHead::decode(value)?;
        let tree = match head.body {
            None => decode_tree(head.tree)?,
            Some((seq, size)) => {
                let mut tree = RevTree::new();
                let path = RevPath {
                    start: head.winner.generation,
                    ids: vec![hash_of(head.winner.hash)],
                };
                tree.merge(
                    &path,
                    Revision {
                        deleted: head.deleted,
                        seq,
                        size,
                    },
                );
                tree
            }
        };
        Ok(Record {
            seq: head.seq,
            tree,
        })
    }

    /// Appends the stored form. The tree must not be empty.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let Some(winner) = self.tree.winner() else {
            debug_assert!(false, "a stored document has a winner");
            return;
        };
        let lone = self.tree.len() == 1 && winner.revision.seq == self.seq;
        let flags = u8::from(!lone) * HAS_TREE + u8::from(winner.revision.deleted) * DELETED;
        out.push(flags);
        put(self.seq, out);
        put_rev(winner.rev.generation, winner.rev.hash.as_bytes(), out);
        if lone {
            put(winner.revision.size, out);
        } else {
            self.tree.encode(out);
        }
    }

    /// Returns whether the winner is a tombstone or missing.
    pub fn is_deleted(&self) -> bool {
        self.tree.winner().is_none_or(|w| w.revision.deleted)
    }

    /// Returns the bytes of the bodies of all leaves.
    pub fn leaf_bytes(&self) -> u64 {
        let leaves = self.tree.nodes().filter(|node| node.is_leaf);
        leaves
            .filter_map(|leaf| leaf.revision)
            .map(|revision| revision.size)
            .fold(0, u64::saturating_add)
    }
}
