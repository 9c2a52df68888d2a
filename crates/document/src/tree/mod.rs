//! The revision tree of one document.
//!
//! A tree is the set of revisions of a document that this node knows, each with its parent.
//! Branches come from conflicting edits; the tree may have several roots when old revisions were
//! stemmed.
//!
//! **Invariant: a revision id determines its ancestry**, since it is a hash over the parent's id.
//! So merging is the union of two sets of nodes and does not depend on the order of merges. Clients
//! can break this with ids of their own making (`new_edits=false`); then the ancestry that was seen
//! first stays, and the other one is left out.
//!
//! Nodes are kept sorted by generation and hash: parents come before their children, a node is
//! found by binary search, and equal trees have equal encodings.

mod bulk;
#[cfg(test)]
mod bulk_tests;
mod codec;
mod limits;
#[cfg(test)]
mod tests;
mod union;

use crate::rev::{Rev, RevHash, RevRef};
pub use bulk::BulkTree;
pub use codec::CorruptTree;
pub use limits::{GraftResult, PATH_IDS_MAX, TreeLimits, weight};

/// A stored revision, with the seq of its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision {
    /// Whether this revision deletes the document.
    pub deleted: bool,
    /// The update sequence under which the body is stored.
    pub seq: u64,
    /// The length of the body's text in bytes.
    pub size: u64,
}

/// A revision without children. It always has a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leaf<'a> {
    /// The leaf's id.
    pub rev: RevRef<'a>,
    /// Its stored revision.
    pub revision: Revision,
}

/// A revision and its ancestors, like the `_revisions` member of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RevPath {
    /// The generation of the first id.
    pub start: u64,
    /// The hashes of the revision, of its parent, of the parent's parent and so on.
    pub ids: Vec<RevHash>,
}

impl RevPath {
    /// Returns the path of a revision without known ancestors.
    pub fn single(rev: Rev) -> Self {
        Self {
            start: rev.generation,
            ids: vec![rev.hash],
        }
    }

    /// Returns the newest revision of the path; none if the path is empty.
    pub fn newest(&self) -> Option<Rev> {
        self.ids.first().map(|hash| Rev {
            generation: self.start,
            hash: hash.clone(),
        })
    }

    /// Returns the second newest revision of the path.
    pub fn parent(&self) -> Option<Rev> {
        let generation = self.start.checked_sub(1)?;
        self.ids.get(1).map(|hash| Rev {
            generation,
            hash: hash.clone(),
        })
    }

    /// Returns all revisions, newest first. Ids without a generation left (below 0) are skipped.
    fn revs(&self) -> impl DoubleEndedIterator<Item = RevRef<'_>> + ExactSizeIterator {
        let length = self
            .ids
            .len()
            .min(usize::try_from(self.start).map_or(usize::MAX, |start| start.saturating_add(1)));
        self.ids[..length]
            .iter()
            .enumerate()
            .map(|(age, hash)| RevRef {
                generation: self.start - age as u64,
                hash,
            })
    }
}

/// The result of [`RevTree::merge`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MergeResult {
    /// The revision is the first of the document, or has replaced a leaf.
    NewLeaf,
    /// The revision is a further leaf: a conflict.
    NewBranch,
    /// Only the id of the revision was known, as an ancestor's: it has a body now, and may have got
    /// ancestors.
    NewBody,
    /// The revision was in the tree with its body, and got new ancestors.
    NewAncestors,
    /// The revision was in the tree already, and so were the ancestors of the path.
    Known,
}

/// One revision of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeView<'a> {
    /// The revision's id.
    pub rev: RevRef<'a>,
    /// Whether it has no children.
    pub is_leaf: bool,
    /// Its stored revision; `None` for an ancestor of which only the id is known.
    pub revision: Option<Revision>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct RevNode {
    generation: u64,
    hash: RevHash,
    revision: Option<Revision>,
    /// Index of the parent, which is less than the node's own.
    parent: Option<u32>,
    is_leaf: bool,
}

impl RevNode {
    fn rev(&self) -> RevRef<'_> {
        RevRef {
            generation: self.generation,
            hash: &self.hash,
        }
    }

    fn view(&self) -> NodeView<'_> {
        NodeView {
            rev: self.rev(),
            is_leaf: self.is_leaf,
            revision: self.revision,
        }
    }

    fn leaf(&self) -> Option<Leaf<'_>> {
        let revision = self.revision.filter(|_| self.is_leaf)?;
        Some(Leaf {
            rev: self.rev(),
            revision,
        })
    }
}

/// The revisions of one document. See the [module](self) for its invariants.
///
/// ```
/// use document::{MergeResult, Rev, RevHash, RevPath, RevTree, Revision};
///
/// let mut tree = RevTree::new();
/// let first = Rev::parse("1-a").unwrap();
/// let body = |seq| Revision { deleted: false, seq, size: 2 };
/// assert_eq!(tree.merge(&RevPath::single(first), body(1)), MergeResult::NewLeaf);
/// let path = RevPath { start: 2, ids: vec![RevHash::parse("b"), RevHash::parse("a")] };
/// assert_eq!(tree.merge(&path, body(2)), MergeResult::NewLeaf);
/// assert_eq!(tree.winner().unwrap().rev.to_string(), "2-b");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RevTree {
    nodes: Vec<RevNode>,
}

impl RevTree {
    /// Returns a tree without revisions.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns whether the tree has no revisions.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Returns the number of revisions, including ancestors without a body.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Adds a revision and those of its ancestors that are not in the tree yet. An ancestor in the
    /// path that was a root so far gets its own ancestors, so that branches that were separated by
    /// stemming are joined.
    ///
    /// `revision` is where the body of the path's newest revision is. A revision keeps its first
    /// body: only an ancestor without one takes it. An empty path is known.
    pub fn merge(&mut self, path: &RevPath, revision: Revision) -> MergeResult {
        let Some(newest) = path.revs().next() else {
            return MergeResult::Known;
        };
        if self.nodes.is_empty() {
            self.fill(path, revision, u64::MAX);
            return MergeResult::NewLeaf;
        }
        if self.append(path, revision) {
            return MergeResult::NewLeaf;
        }
        if let Some(at) = self.find(newest) {
            return self.complete(at, path, revision);
        }
        let extends_leaf = path
            .revs()
            .find_map(|rev| self.find(rev))
            .is_some_and(|at| self.nodes[at].is_leaf);
        self.unite(self.new_nodes(path, Some(revision)));
        if extends_leaf {
            MergeResult::NewLeaf
        } else {
            MergeResult::NewBranch
        }
    }

    /// Adds missing body and ancestors of a revision that is in the tree.
    fn complete(&mut self, at: usize, path: &RevPath, revision: Revision) -> MergeResult {
        let body = &mut self.nodes[at].revision;
        let has_body = body.is_some();
        body.get_or_insert(revision);
        let new = self.new_nodes(path, None);
        let is_longer = !new.is_empty();
        self.unite(new);
        match (has_body, is_longer) {
            (false, _) => MergeResult::NewBody,
            (true, true) => MergeResult::NewAncestors,
            (true, false) => MergeResult::Known,
        }
    }

    /// Adds every revision of another tree. Of two bodies of the same revision, the one with the
    /// lower seq is kept.
    pub fn merge_tree(&mut self, other: &RevTree) {
        for leaf in other.leaves() {
            if let Some(path) = other.path_from(leaf.rev) {
                self.merge(&path, leaf.revision);
            }
        }
        for node in &other.nodes {
            let Some(theirs) = node.revision else {
                continue;
            };
            if let Some(at) = self.find(node.rev()) {
                let ours = &mut self.nodes[at].revision;
                *ours = Some(ours.map_or(theirs, |ours| ours.min_by_seq(theirs)));
            }
        }
    }

    /// Returns the leaves, winner first: those that are not deleted before those that are, then by
    /// descending generation, then by descending hash.
    pub fn leaves(&self) -> Vec<Leaf<'_>> {
        // The nodes are sorted by the next criteria.
        let all = || self.nodes.iter().rev().filter_map(RevNode::leaf);
        let alive = all().filter(|leaf| !leaf.revision.deleted);
        alive
            .chain(all().filter(|leaf| leaf.revision.deleted))
            .collect()
    }

    /// Returns the length of the bodies of all leaves, in bytes.
    pub fn leaf_bytes(&self) -> u64 {
        let sizes = self.nodes.iter().filter_map(RevNode::leaf);
        sizes
            .map(|leaf| leaf.revision.size)
            .fold(0, u64::saturating_add)
    }

    /// Returns the leaf that a read without a revision gets. `None` only for an empty tree.
    pub fn winner(&self) -> Option<Leaf<'_>> {
        self.nodes
            .iter()
            .filter_map(RevNode::leaf)
            .max_by_key(|leaf| precedence(leaf))
    }

    /// Returns the revision with this id.
    pub fn get(&self, rev: &Rev) -> Option<NodeView<'_>> {
        self.find(rev.as_ref()).map(|at| self.nodes[at].view())
    }

    /// Returns whether the revision is in the tree, without children.
    pub fn is_leaf(&self, rev: &Rev) -> bool {
        self.find(rev.as_ref())
            .is_some_and(|at| self.nodes[at].is_leaf)
    }

    /// All revisions by ascending generation and hash.
    pub fn nodes(&self) -> impl DoubleEndedIterator<Item = NodeView<'_>> + ExactSizeIterator {
        self.nodes.iter().map(RevNode::view)
    }

    /// Returns the seqs of all stored bodies, by ascending revision.
    pub fn all_seqs(&self) -> impl Iterator<Item = u64> {
        self.nodes
            .iter()
            .filter_map(|node| node.revision)
            .map(|revision| revision.seq)
    }

    /// Returns the revision and its ancestors, newest first, as far as the tree has kept them.
    pub fn path(&self, rev: &Rev) -> Option<RevPath> {
        self.path_from(rev.as_ref())
    }

    /// Like [`RevTree::path`], with the bodies, for `_revs_info`.
    pub fn path_revisions(&self, rev: &Rev) -> Option<Vec<(Rev, Option<Revision>)>> {
        let at = self.find(rev.as_ref())?;
        Some(
            self.lineage(at)
                .map(|node| (node.rev().to_rev(), node.revision))
                .collect(),
        )
    }

    /// Returns the leaves that descend from a revision, in the order of [`RevTree::leaves`]; a leaf
    /// descends from itself.
    pub fn latest_of(&self, rev: &Rev) -> Vec<Leaf<'_>> {
        let Some(at) = self.find(rev.as_ref()) else {
            return Vec::new();
        };
        if let Some(leaf) = self.nodes[at].leaf() {
            return vec![leaf];
        }
        let mut descends = vec![false; self.nodes.len()];
        descends[at] = true;
        for (index, node) in self.nodes.iter().enumerate().skip(at + 1) {
            descends[index] = node.parent.is_some_and(|parent| descends[parent as usize]);
        }
        let leaves = self
            .nodes
            .iter()
            .zip(descends)
            .filter(|(_, descends)| *descends);
        sorted(leaves.filter_map(|(node, _)| node.leaf()).collect())
    }

    /// Returns for each of `revs` the leaves that descend from it, as [`RevTree::latest_of`] does,
    /// without those of the revisions before it. `None`: the revision is not in the tree. However
    /// many revisions are requested, each node is visited at most once.
    pub fn latest_of_each(&self, revs: &[Rev]) -> Vec<Option<Vec<Leaf<'_>>>> {
        let mut children: Option<Vec<Vec<u32>>> = None;
        let mut is_visited = vec![false; self.nodes.len()];
        let mut latest_of = |rev: &Rev| {
            let mut open = vec![self.find(rev.as_ref())?];
            let mut leaves = vec![];
            while let Some(at) = open.pop() {
                // Whatever descends from a visited node was returned before.
                if std::mem::replace(&mut is_visited[at], true) {
                    continue;
                }
                match self.nodes[at].leaf() {
                    Some(leaf) => leaves.push(leaf),
                    None => {
                        let children = children.get_or_insert_with(|| self.children());
                        open.extend(children[at].iter().map(|child| *child as usize));
                    }
                }
            }
            Some(sorted(leaves))
        };
        revs.iter().map(&mut latest_of).collect()
    }

    /// Returns the indexes of each node's children.
    fn children(&self) -> Vec<Vec<u32>> {
        let mut children = vec![vec![]; self.nodes.len()];
        for (index, node) in self.nodes.iter().enumerate() {
            if let Some(parent) = node.parent {
                children[parent as usize].push(index as u32);
            }
        }
        children
    }

    /// Keeps only the `limit` newest revisions of every branch (at least one).
    pub fn stem(&mut self, limit: u64) {
        let limit = limit.max(1);
        if self.nodes.len() as u64 <= limit {
            return;
        }
        let distances = self.distances();
        if distances.iter().any(|distance| *distance >= limit) {
            self.keep(|index| distances[index] < limit);
        }
    }

    /// Returns the distance from each node to its nearest descendant leaf.
    fn distances(&self) -> Vec<u64> {
        let mut distances = vec![u64::MAX; self.nodes.len()];
        for (index, node) in self.nodes.iter().enumerate().rev() {
            if node.is_leaf {
                distances[index] = 0;
            }
            if let Some(parent) = node.parent {
                let distance = distances[index] + 1;
                let parent = &mut distances[parent as usize];
                *parent = distance.min(*parent);
            }
        }
        distances
    }

    /// Removes those of `revs` that are leaves, with the ancestors that no remaining leaf has.
    /// Returns the leaves removed, in the order of `revs`.
    pub fn remove_leaves(&mut self, revs: &[Rev]) -> Vec<Rev> {
        let mut doomed = vec![false; self.nodes.len()];
        let mut removed = Vec::new();
        for rev in revs {
            let leaf = self
                .find(rev.as_ref())
                .filter(|&at| self.nodes[at].is_leaf && !doomed[at]);
            if let Some(at) = leaf {
                doomed[at] = true;
                removed.push(rev.clone());
            }
        }
        if removed.is_empty() {
            return removed;
        }
        let mut needed = vec![false; self.nodes.len()];
        for (index, node) in self.nodes.iter().enumerate().rev() {
            needed[index] |= node.is_leaf && !doomed[index];
            if let Some(parent) = node.parent {
                needed[parent as usize] |= needed[index];
            }
        }
        self.keep(|index| needed[index]);
        removed
    }

    /// Removes the body of an ancestor, after it was dropped from the store. Returns where it was;
    /// `None` for a leaf, whose body must stay.
    pub fn forget_body(&mut self, rev: &Rev) -> Option<Revision> {
        let at = self.find(rev.as_ref())?;
        let node = &mut self.nodes[at];
        if node.is_leaf {
            None
        } else {
            node.revision.take()
        }
    }

    /// Removes the bodies of all ancestors, as compaction does, and returns where they were.
    pub fn forget_ancestor_bodies(&mut self) -> Vec<Revision> {
        let ancestors = self.nodes.iter_mut().filter(|node| !node.is_leaf);
        ancestors.filter_map(|node| node.revision.take()).collect()
    }

    /// Sets where the body of a stored revision is now. Returns whether the revision is in the tree
    /// with a body.
    pub fn relocate(&mut self, rev: &Rev, revision: Revision) -> bool {
        let stored = self
            .find(rev.as_ref())
            .and_then(|at| self.nodes[at].revision.as_mut());
        stored.map(|stored| *stored = revision).is_some()
    }

    /// Returns those of `revs` that are not in the tree, as `_revs_diff` and `_missing_revs` list
    /// them: ascending and without duplicates; but unchanged when the tree is empty.
    pub fn missing(&self, revs: &[Rev]) -> Vec<Rev> {
        if self.is_empty() {
            return revs.to_vec();
        }
        let mut missing: Vec<Rev> = revs
            .iter()
            .filter(|rev| self.find(rev.as_ref()).is_none())
            .cloned()
            .collect();
        missing.sort_unstable();
        missing.dedup();
        missing
    }

    /// Returns the leaves from which one of the `missing` revisions could descend, that is those of
    /// a lower generation, ascending.
    pub fn possible_ancestors(&self, missing: &[Rev]) -> Vec<Rev> {
        let Some(highest) = missing.iter().map(|rev| rev.generation).max() else {
            return Vec::new();
        };
        let leaves = self
            .nodes
            .iter()
            .filter_map(RevNode::leaf)
            .map(|leaf| leaf.rev);
        leaves
            .filter(|rev| rev.generation < highest)
            .map(RevRef::to_rev)
            .collect()
    }

    fn find(&self, rev: RevRef<'_>) -> Option<usize> {
        // Edits build on the newest revisions.
        match self.nodes.last() {
            Some(last) if last.rev() == rev => return Some(self.nodes.len() - 1),
            Some(last) if last.rev() < rev => return None,
            _ => {}
        }
        self.nodes
            .binary_search_by(|node| node.rev().cmp(&rev))
            .ok()
    }

    fn lineage(&self, at: usize) -> impl Iterator<Item = &RevNode> {
        std::iter::successors(Some(&self.nodes[at]), |node| {
            node.parent.map(|parent| &self.nodes[parent as usize])
        })
    }

    fn path_from(&self, rev: RevRef<'_>) -> Option<RevPath> {
        let at = self.find(rev)?;
        let ids = self.lineage(at).map(|node| node.hash.clone()).collect();
        Some(RevPath {
            start: rev.generation,
            ids,
        })
    }

    /// Fills an empty tree with one path, up to the `limit` newest revisions of it.
    fn fill(&mut self, path: &RevPath, revision: Revision, limit: u64) {
        let revs = path.revs();
        let kept = usize::try_from(limit).unwrap_or(usize::MAX).min(revs.len());
        let last = kept - 1;
        self.nodes.reserve_exact(kept);
        for (index, rev) in revs.take(kept).rev().enumerate() {
            let is_leaf = index == last;
            self.nodes.push(RevNode {
                generation: rev.generation,
                hash: rev.hash.clone(),
                revision: is_leaf.then_some(revision),
                parent: index.checked_sub(1).map(|parent| parent as u32),
                is_leaf,
            });
        }
    }

    /// Handles the common case of an edit of the last leaf: adds one node at the end. Returns
    /// whether this was the case.
    fn append(&mut self, path: &RevPath, revision: Revision) -> bool {
        let mut revs = path.revs();
        let (Some(newest), Some(parent), Some(last)) =
            (revs.next(), revs.next(), self.nodes.last_mut())
        else {
            return false;
        };
        // A root may get ancestors from the path.
        if last.rev() != parent || !last.is_leaf || (last.parent.is_none() && revs.len() > 0) {
            return false;
        }
        if revs.len() > 0 && !self.holds_lineage(self.nodes.len() - 1, revs) {
            return false;
        }
        let parent = self.nodes.len() - 1;
        self.nodes[parent].is_leaf = false;
        self.nodes.push(RevNode {
            generation: newest.generation,
            hash: newest.hash.clone(),
            revision: Some(revision),
            parent: Some(parent as u32),
            is_leaf: true,
        });
        true
    }

    /// Returns whether merging `ancestors` of the node would add nothing: the kept lineage reaches
    /// at least as far down.
    fn holds_lineage<'a>(
        &self,
        at: usize,
        ancestors: impl ExactSizeIterator<Item = RevRef<'a>>,
    ) -> bool {
        let lowest = self.nodes[at].generation - ancestors.len() as u64;
        self.lineage(at)
            .last()
            .is_some_and(|root| root.generation <= lowest)
    }

    /// Returns whether exactly the nodes without children are leaves.
    fn is_sound(&self) -> bool {
        let mut marked = self.clone();
        marked.mark_leaves();
        marked == *self
    }

    fn mark_leaves(&mut self) {
        for index in 0..self.nodes.len() {
            self.nodes[index].is_leaf = true;
            if let Some(parent) = self.nodes[index].parent {
                self.nodes[parent as usize].is_leaf = false;
            }
        }
    }

    /// Drops the nodes for which `kept` is false. A node whose parent is dropped becomes a root; a
    /// dropped node must not leave its parent behind as a leaf without a body.
    fn keep(&mut self, kept: impl Fn(usize) -> bool) {
        let nodes = std::mem::take(&mut self.nodes);
        let mut moved: Vec<Option<u32>> = Vec::with_capacity(nodes.len());
        for (index, node) in nodes.into_iter().enumerate() {
            if !kept(index) {
                moved.push(None);
                continue;
            }
            moved.push(Some(self.nodes.len() as u32));
            let parent = node.parent.and_then(|parent| moved[parent as usize]);
            self.nodes.push(RevNode { parent, ..node });
        }
        self.mark_leaves();
    }
}

impl Revision {
    fn min_by_seq(self, other: Self) -> Self {
        let key = |revision: &Self| (revision.seq, revision.deleted, revision.size);
        if key(&other) < key(&self) {
            other
        } else {
            self
        }
    }
}

fn precedence<'a>(leaf: &Leaf<'a>) -> (bool, RevRef<'a>) {
    (!leaf.revision.deleted, leaf.rev)
}

fn sorted(mut leaves: Vec<Leaf<'_>>) -> Vec<Leaf<'_>> {
    leaves.sort_unstable_by(|left, right| precedence(right).cmp(&precedence(left)));
    leaves
}
