//! The claims of records about changes, which a check compares with the changes.

use document::{Leaf, RevTree};
use xxhash_rust::xxh3::xxh3_64;

use crate::record::put_rev;

/// The change lists the document now.
pub(super) const LISTS: u8 = 1;
/// The change contains the body of a leaf.
pub(super) const BODY: u8 = 2;

/// A record's claim about a change.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim {
    pub seq: u64,
    pub kinds: u8,
    /// Hash of the document's id.
    pub id: u64,
    /// Hash of the leaves, for a change that lists them.
    pub leaves: u64,
    /// Length of the body and its attachments, for a change with a body.
    pub size: u64,
}

pub(super) const CLAIM_BYTES: usize = 33;

impl Claim {
    pub fn encode(&self) -> [u8; CLAIM_BYTES] {
        let mut out = [0; CLAIM_BYTES];
        out[..8].copy_from_slice(&self.seq.to_be_bytes());
        out[8] = self.kinds;
        out[9..17].copy_from_slice(&self.id.to_be_bytes());
        out[17..25].copy_from_slice(&self.leaves.to_be_bytes());
        out[25..].copy_from_slice(&self.size.to_be_bytes());
        out
    }

    pub fn decode(bytes: &[u8; CLAIM_BYTES]) -> Claim {
        let number = |at: usize| {
            bytes[at..]
                .first_chunk()
                .map_or(0, |eight| u64::from_be_bytes(*eight))
        };
        Claim {
            seq: number(0),
            kinds: bytes[8],
            id: number(9),
            leaves: number(17),
            size: number(25),
        }
    }
}

/// Hashes the leaves of a document: the winner, whether it is deleted, where its body is, and the
/// others as in a change row.
pub(super) fn leaves_hash(
    winner: (u64, &[u8]),
    deleted: bool,
    winner_seq: u64,
    others: &[u8],
) -> u64 {
    let mut all = Vec::with_capacity(others.len() + winner.1.len() + 24);
    put_rev(winner.0, winner.1, &mut all);
    all.push(u8::from(deleted));
    all.extend_from_slice(&winner_seq.to_be_bytes());
    all.extend_from_slice(others);
    xxh3_64(&all)
}

fn hash_of_tree(leaves: &[Leaf<'_>]) -> Option<u64> {
    let (winner, rest) = leaves.split_first()?;
    let mut others = vec![];
    for leaf in rest {
        others.push(u8::from(leaf.revision.deleted));
        put_rev(leaf.rev.generation, leaf.rev.hash.as_bytes(), &mut others);
    }
    let rev = (winner.rev.generation, winner.rev.hash.as_bytes());
    Some(leaves_hash(
        rev,
        winner.revision.deleted,
        winner.revision.seq,
        &others,
    ))
}

/// Returns a record's claims about changes.
pub(super) fn claims_of<'a>(
    seq: u64,
    id: u64,
    tree: &RevTree,
    leaves: &'a [Leaf<'a>],
) -> impl Iterator<Item = Claim> + 'a {
    debug_assert_eq!(tree.leaves().len(), leaves.len());
    let hash = hash_of_tree(leaves).unwrap_or_default();
    let lists = Claim {
        seq,
        kinds: LISTS,
        id,
        leaves: hash,
        size: 0,
    };
    let own = leaves.iter().find(|leaf| leaf.revision.seq == seq);
    let lists = match own {
        Some(leaf) => Claim {
            kinds: LISTS | BODY,
            size: leaf.revision.size,
            ..lists
        },
        None => lists,
    };
    let own = own.map(|leaf| leaf.rev);
    let others = leaves.iter().filter(move |leaf| Some(leaf.rev) != own);
    let others = others.map(move |leaf| Claim {
        seq: leaf.revision.seq,
        kinds: BODY,
        id,
        leaves: 0,
        size: leaf.revision.size,
    });
    std::iter::once(lists).chain(others)
}
