//! Rendezvous hashing: each slot ranks all nodes, and a node that comes or goes does not change the
//! order of the others.

use cluster::{NodeId, SlotNumber};

/// Returns the score of a node for a slot: the nodes with the highest scores are the first choice.
pub(super) fn score(slot: SlotNumber, node: NodeId) -> u64 {
    let slot = (u64::from(slot) + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mix(mix(node).wrapping_add(slot))
}

/// The last step of SplitMix64, which changes every bit of the result with probability one half
/// for each bit of the argument.
fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^ (bits >> 31)
}
