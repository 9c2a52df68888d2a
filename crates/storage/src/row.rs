//! The value of by-seq: one change, with the document's leaves after it and its body.

use document::{Leaf, StoredBody};

use crate::Error;
use crate::record::{StoredRev, put_rev};
use crate::varint::{Reader, put, put_slice};

const INLINE_BODY: u8 = 1;
const EXTERNAL_BODY: u8 = 2;
/// Both flags, so that compaction need not read other bodies to find their references.
const EXTERNAL_BODY_WITH_ATTACHMENTS: u8 = INLINE_BODY | EXTERNAL_BODY;
const DELETED: u8 = 4;
const OTHER_LEAVES: u8 = 8;
const LIVE_ADDED: u8 = 16;
const LIVE_REMOVED: u8 = 32;
const RECORD_ADDED: u8 = 64;
const RECORD_REMOVED: u8 = 128;

/// Longer bodies are in a keyspace of their own, so that a changes feed without documents does not
/// read them. In bytes.
pub const INLINE_BODY_MAX_BYTES: usize = 4096;

/// The effect of a change on the counts, so that the summary tree can be rebuilt from by-seq alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delta {
    /// +1: a document was created or undeleted, -1: it was deleted.
    pub live: i8,
    /// +1: first change of this id, -1: its record was purged.
    pub records: i8,
    /// The row that listed the document before; 0 for none.
    pub supersedes: u64,
}

/// The body in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body<'a> {
    /// The change has no body.
    None,
    /// In the row.
    Inline(&'a [u8]),
    /// In the bodies keyspace under the row's seq.
    External {
        /// Length in bytes.
        len: u32,
        /// It names attachments.
        attachments: bool,
    },
}

/// A stored change.
#[derive(Clone, Debug)]
pub struct Row<'a> {
    /// The document.
    pub id: &'a str,
    /// The winner is a tombstone.
    pub deleted: bool,
    /// The seq of the winner's body: usually this row's own.
    pub winner: StoredRev<'a>,
    /// Where the winner's body is: this row's own seq, mostly.
    pub winner_seq: u64,
    others: u64,
    other_bytes: &'a [u8],
    /// The change's body.
    pub body: Body<'a>,
    /// Its effect on the counts.
    pub delta: Delta,
}

impl<'a> Row<'a> {
    /// Decodes the row at `seq`.
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    pub fn decode(seq: u64, value: &'a [u8]) -> Result<Row<'a>, Error> {
        let mut r = Reader::new(value, "change row");
        let flags = r.byte()?;
        let back = r.varint()?;
        let id = r.str()?;
        let winner = StoredRev::read(&mut r)?;
        let winner_back = r.varint()?;
        let (others, other_bytes) = if flags & OTHER_LEAVES != 0 {
            (r.varint()?, r.slice()?)
        } else {
            (0, &[][..])
        };
        let body = match flags & (INLINE_BODY | EXTERNAL_BODY) {
            INLINE_BODY => Body::Inline(r.rest),
            0 => Body::None,
            kind => Body::External {
                len: r.varint()? as u32,
                attachments: kind == EXTERNAL_BODY_WITH_ATTACHMENTS,
            },
        };
        Ok(Row {
            id,
            deleted: flags & DELETED != 0,
            winner,
            winner_seq: seq.saturating_sub(winner_back),
            others,
            other_bytes,
            body,
            delta: Delta {
                live: i8::from(flags & LIVE_ADDED != 0) - i8::from(flags & LIVE_REMOVED != 0),
                records: i8::from(flags & RECORD_ADDED != 0)
                    - i8::from(flags & RECORD_REMOVED != 0),
                supersedes: if back == 0 {
                    0
                } else {
                    seq.saturating_sub(back)
                },
            },
        })
    }

    /// Appends a row without a body that lists these leaves, winner first. Their bodies are at or
    /// before `seq`.
    pub fn encode_leaves(seq: u64, id: &str, leaves: &[Leaf<'_>], out: &mut Vec<u8>) {
        encode(seq, id, leaves, Delta::default(), None, out);
    }

    /// Returns the leaves other than the winner, best first.
    pub fn other_leaves(&self) -> Result<Vec<(StoredRev<'a>, bool)>, Error> {
        let mut r = Reader::new(self.other_bytes, "change row leaves");
        (0..self.others)
            .map(|_| {
                let deleted = r.byte()? != 0;
                Ok((StoredRev::read(&mut r)?, deleted))
            })
            .collect()
    }

    /// Returns the leaves other than the winner, encoded.
    pub(crate) fn other_leaf_bytes(&self) -> &'a [u8] {
        self.other_bytes
    }

    /// Returns whether there are leaves other than the winner.
    pub fn has_other_leaves(&self) -> bool {
        self.others > 0
    }
}

/// Appends the stored form of a change at `seq` after which the document has these leaves, winner
/// first. A row that is superseded in its own batch, so that no feed shows it, needs only the
/// winner. `body` is inlined when it is short; the caller stores longer ones under the same seq.
pub fn encode(
    seq: u64,
    id: &str,
    leaves: &[Leaf<'_>],
    delta: Delta,
    body: Option<&[u8]>,
    out: &mut Vec<u8>,
) {
    let winner = leaves.first();
    let inline = body.filter(|b| b.len() <= INLINE_BODY_MAX_BYTES);
    out.push(flags(leaves, delta, body));
    put(
        if delta.supersedes == 0 {
            0
        } else {
            seq - delta.supersedes
        },
        out,
    );
    put_slice(id.as_bytes(), out);
    match winner {
        Some(w) => {
            put_rev(w.rev.generation, w.rev.hash.as_bytes(), out);
            put(seq.saturating_sub(w.revision.seq), out);
        }
        None => {
            put_rev(0, b"", out);
            put(0, out);
        }
    }
    if leaves.len() > 1 {
        put(leaves.len() as u64 - 1, out);
        let mut others = Vec::with_capacity((leaves.len() - 1) * 20);
        for l in &leaves[1..] {
            others.push(u8::from(l.revision.deleted));
            put_rev(l.rev.generation, l.rev.hash.as_bytes(), &mut others);
        }
        put_slice(&others, out);
    }
    match (inline, body) {
        (Some(b), _) => out.extend_from_slice(b),
        (None, Some(b)) => put(b.len() as u64, out),
        (None, None) => {}
    }
}

fn flags(leaves: &[Leaf<'_>], delta: Delta, body: Option<&[u8]>) -> u8 {
    let mut flags = match body {
        None => 0,
        Some(b) if b.len() <= INLINE_BODY_MAX_BYTES => INLINE_BODY,
        Some(b) => match StoredBody::split(b).attachments {
            [] => EXTERNAL_BODY,
            _ => EXTERNAL_BODY_WITH_ATTACHMENTS,
        },
    };
    if leaves.first().is_none_or(|w| w.revision.deleted) {
        flags |= DELETED;
    }
    if leaves.len() > 1 {
        flags |= OTHER_LEAVES;
    }
    flags |= match delta.live {
        1 => LIVE_ADDED,
        -1 => LIVE_REMOVED,
        _ => 0,
    };
    flags |= match delta.records {
        1 => RECORD_ADDED,
        -1 => RECORD_REMOVED,
        _ => 0,
    };
    flags
}
