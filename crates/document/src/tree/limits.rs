//! Limits of the size of a tree.

use super::{MergeResult, RevNode, RevPath, RevTree, Revision};
use crate::rev::RevHash;

/// The maximum number of revisions of a path; older ones are ignored. A tree holds no more of them
/// anyway.
pub const PATH_IDS_MAX: usize = 100_000;
/// A tree above this weight is stemmed beyond its database's limit, unless its leaves alone weigh
/// half of it.
const WEIGHT_MAX: u64 = 100_000;
/// The weight that remains then: less, so that not every edit after it stems again.
const WEIGHT_LEFT: u64 = WEIGHT_MAX / 4 * 3;
/// A longer hash counts for several revisions.
const HASH_BYTES: u64 = 64;

/// Returns the weight of a revision: 1, and 1 more for each 64 bytes of its hash. Clients choose
/// the length of hashes.
pub fn weight(hash: &RevHash) -> u64 {
    1 + hash.as_bytes().len() as u64 / HASH_BYTES
}

/// The limits of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeLimits {
    /// Revisions kept of each branch. 0 counts as 1.
    pub revs: u64,
    /// Maximum number of leaves: an edit that adds another one is refused. `None` is for edits of
    /// logs without a limit: then only `revs` limits the tree.
    pub leaves: Option<u64>,
}

impl TreeLimits {
    pub(super) fn revs(&self) -> u64 {
        self.revs.max(1)
    }

    pub(super) fn are_too_many_leaves(&self, weight: u64) -> bool {
        self.leaves.is_some_and(|max| weight > max.max(1))
    }

    /// Returns whether a tree has to be stemmed further.
    pub(super) fn is_too_heavy(&self, weight: u64, leaf_weight: u64) -> bool {
        self.leaves.is_some() && weight > WEIGHT_MAX && weight / 2 > leaf_weight
    }
}

/// The result of [`RevTree::graft`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GraftResult {
    /// The result of [`RevTree::merge`], or [`MergeResult::Known`] when stemming undid all of it.
    Merged(MergeResult),
    /// The revision would have exceeded the maximum number of leaves. Nothing was changed.
    TooManyLeaves,
}

impl RevTree {
    /// Merges like [`RevTree::merge`], within limits: a leaf too many is refused, and only the
    /// newest revisions of every branch are kept. [`super::BulkTree::graft`] does the same for many
    /// successive edits.
    pub fn graft(
        &mut self,
        path: &RevPath,
        revision: Revision,
        limits: &TreeLimits,
    ) -> GraftResult {
        let Some(newest) = path.revs().next() else {
            return GraftResult::Merged(MergeResult::Known);
        };
        if self.nodes.is_empty() {
            self.fill(path, revision, limits.revs());
            self.lighten(limits);
            return GraftResult::Merged(MergeResult::NewLeaf);
        }
        let known = self.find(newest);
        let before = match known {
            Some(at) if self.lacks_nothing(at, path) => {
                return GraftResult::Merged(MergeResult::Known);
            }
            Some(_) => Some(self.clone()),
            None if limits.leaves.is_some() && self.would_branch(path) => {
                if limits.are_too_many_leaves(self.leaf_weight() + weight(newest.hash)) {
                    return GraftResult::TooManyLeaves;
                }
                None
            }
            None => None,
        };
        let merged = self.merge(path, revision);
        self.stem(limits.revs());
        self.lighten(limits);
        // The revisions that a long history added may be stemmed away again.
        if before.is_some_and(|before| before == *self) {
            return GraftResult::Merged(MergeResult::Known);
        }
        GraftResult::Merged(merged)
    }

    /// Returns whether a revision of the tree has a body, and all ancestors of the path.
    fn lacks_nothing(&self, at: usize, path: &RevPath) -> bool {
        self.nodes[at].revision.is_some() && self.new_nodes(path, None).is_empty()
    }

    /// Returns whether a path whose newest revision is not in the tree leads to a further leaf.
    fn would_branch(&self, path: &RevPath) -> bool {
        let ancestor = path.revs().find_map(|rev| self.find(rev));
        !ancestor.is_some_and(|at| self.nodes[at].is_leaf)
    }

    /// Stems a tree that is too heavy: keeps as many of the newest revisions of every branch as
    /// there is room for, and at least the leaf. So a tree that is wide and deep stays small enough
    /// to be written by each edit.
    pub(super) fn lighten(&mut self, limits: &TreeLimits) {
        let total: u64 = self.nodes.iter().map(|node| weight(&node.hash)).sum();
        if total <= WEIGHT_MAX {
            return;
        }
        let leaf_weight = self.leaf_weight();
        if !limits.is_too_heavy(total, leaf_weight) {
            return;
        }
        let room = WEIGHT_LEFT.max(leaf_weight.saturating_add(leaf_weight / 2));
        let distances = self.distances();
        let farthest = distances.iter().max().copied().unwrap_or(0);
        let mut by_distance = vec![0_u64; farthest as usize + 1];
        for (node, distance) in self.nodes.iter().zip(&distances) {
            by_distance[*distance as usize] += weight(&node.hash);
        }
        let (mut kept, mut sum) = (0, 0);
        for weight in by_distance {
            sum += weight;
            if sum > room {
                break;
            }
            kept += 1;
        }
        let kept = kept.max(1);
        self.keep(|index| distances[index] < kept);
    }

    /// Returns the weight of all leaves.
    pub(super) fn leaf_weight(&self) -> u64 {
        let leaves = self.nodes.iter().filter(|node: &&RevNode| node.is_leaf);
        leaves.map(|node| weight(&node.hash)).sum()
    }
}
