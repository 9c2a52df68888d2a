//! A revision tree in the form for many successive edits.
//!
//! [`RevTree`] is compact, but an edit that is not at its end copies it: n edits of one document
//! cost n². Here an edit costs as much as its path and the lineage above it, however many revisions
//! the tree has. It is built from a [`RevTree`] and converted back, and it treats each edit exactly
//! as [`RevTree::graft`] does.
//!
//! Stemming is the reason for most of this code. A revision stays while a leaf descends from it
//! that is fewer than `limit` steps away; `near_leaves` counts those. So an edit has to visit only
//! the ancestors of the changed revisions: one that replaces a leaf changes the count of the
//! ancestor `limit` steps above it, and no other. As long as the tree has at most `limit` revisions
//! nothing can be stemmed, and nothing is counted.

use std::collections::BTreeMap;

use super::limits::{GraftResult, TreeLimits, weight};
use super::{Leaf, MergeResult, RevNode, RevPath, RevTree, Revision};
use crate::rev::{Rev, RevRef};

/// A revision tree for many successive edits.
#[derive(Clone, Debug, Default)]
pub struct BulkTree {
    /// In the order of addition. Dropped ones stay, so that indices do not change.
    nodes: Vec<BulkNode>,
    /// The nodes that are not dropped.
    by_rev: BTreeMap<Rev, u32>,
    /// The leaves by precedence, the winner last.
    leaves: BTreeMap<(bool, Rev), u32>,
    /// Length of the bodies of all leaves, in bytes.
    leaf_bytes: u128,
    /// Weight of the leaves, and of all nodes ([`weight`]).
    leaf_weight: u64,
    weight: u64,
    /// The limit that `near_leaves` is counted for; `None` while nothing is counted.
    counted_for: Option<u64>,
}

#[derive(Clone, Debug)]
struct BulkNode {
    rev: Rev,
    revision: Option<Revision>,
    /// May be dropped: then this is a root.
    parent: Option<u32>,
    /// The children are a list, dropped ones among them.
    first_child: Option<u32>,
    next_sibling: Option<u32>,
    /// Leaves at fewer than `limit` steps below it, itself included.
    near_leaves: u64,
    /// No leaf is fewer steps below it than this.
    far: u64,
    is_leaf: bool,
    is_dropped: bool,
}

impl BulkNode {
    fn is_leaf_that_is(&self, alive: bool) -> bool {
        self.is_leaf
            && self
                .revision
                .is_some_and(|revision| revision.deleted != alive)
    }
}

/// The effect of an edit so far.
#[derive(Default)]
struct Progress {
    /// Revisions before it.
    count_before: usize,
    /// New nodes, newest first.
    added: Vec<u32>,
    /// Roots that got a parent.
    joined: Vec<u32>,
    /// Nodes that may have no near leaf any more.
    candidates: Vec<u32>,
    has_new_body: bool,
}

/// Numbers of leaves by their distance below a node.
type Depths = Vec<(u64, u64)>;

impl From<RevTree> for BulkTree {
    fn from(tree: RevTree) -> BulkTree {
        let mut bulk = BulkTree {
            nodes: Vec::with_capacity(tree.nodes.len() + 16),
            ..BulkTree::default()
        };
        for node in &tree.nodes {
            let at = bulk.push(node.rev(), node.revision, node.is_leaf);
            if let Some(parent) = node.parent {
                bulk.link(at, parent);
            }
        }
        // All are sorted, so that the maps are built in one step.
        let all = || bulk.nodes.iter().zip(0..);
        bulk.by_rev = all().map(|(node, at)| (node.rev.clone(), at)).collect();
        let leaves = |alive: bool| {
            let leaves = all().filter(move |(node, _)| node.is_leaf_that_is(alive));
            leaves.map(move |(node, at)| ((alive, node.rev.clone()), at))
        };
        bulk.leaves = leaves(false).chain(leaves(true)).collect();
        bulk
    }
}

impl BulkTree {
    /// Returns whether the tree has no revisions.
    pub fn is_empty(&self) -> bool {
        self.by_rev.is_empty()
    }

    /// Returns the number of revisions.
    pub fn len(&self) -> usize {
        self.by_rev.len()
    }

    /// Returns the number of revisions in memory, including those stemmed since it was built.
    pub fn held(&self) -> usize {
        self.nodes.len()
    }

    /// Converts the tree to the other form.
    pub fn to_tree(&self) -> RevTree {
        let mut moved = vec![0_u32; self.nodes.len()];
        for (at, index) in self.by_rev.values().zip(0..) {
            moved[*at as usize] = index;
        }
        let nodes = self.by_rev.values().map(|at| {
            let node = &self.nodes[*at as usize];
            RevNode {
                generation: node.rev.generation,
                hash: node.rev.hash.clone(),
                revision: node.revision,
                parent: self.parent(*at).map(|parent| moved[parent as usize]),
                is_leaf: node.is_leaf,
            }
        });
        let tree = RevTree {
            nodes: nodes.collect(),
        };
        debug_assert!(
            tree.is_sound(),
            "a leaf has no children, and others have some"
        );
        tree
    }

    /// See [`RevTree::winner`].
    pub fn winner(&self) -> Option<Leaf<'_>> {
        let at = self.leaves.last_key_value()?.1;
        let node = &self.nodes[*at as usize];
        Some(Leaf {
            rev: node.rev.as_ref(),
            revision: node.revision?,
        })
    }

    /// See [`RevTree::is_leaf`].
    pub fn is_leaf(&self, rev: &Rev) -> bool {
        let at = self.by_rev.get(rev);
        at.is_some_and(|at| self.nodes[*at as usize].is_leaf)
    }

    /// See [`RevTree::leaf_bytes`].
    pub fn leaf_bytes(&self) -> u64 {
        u64::try_from(self.leaf_bytes).unwrap_or(u64::MAX)
    }

    /// See [`RevTree::graft`].
    pub fn graft(
        &mut self,
        path: &RevPath,
        revision: Revision,
        limits: &TreeLimits,
    ) -> GraftResult {
        let Some(newest) = path.newest() else {
            return GraftResult::Merged(MergeResult::Known);
        };
        let mut progress = Progress {
            count_before: self.len(),
            ..Progress::default()
        };
        if self.counted_for.is_some_and(|limit| limit != limits.revs()) {
            self.counted_for = None;
        }
        let known = self.by_rev.get(&newest).copied();
        let merged = match known {
            Some(at) => self.complete(at, path, revision, &mut progress),
            None => match self.add(path, revision, limits, &mut progress) {
                Some(merged) => merged,
                None => return GraftResult::TooManyLeaves,
            },
        };
        if merged == MergeResult::Known {
            return GraftResult::Merged(MergeResult::Known);
        }
        self.stem(limits.revs(), &mut progress.candidates, &progress.added);
        if limits.is_too_heavy(self.weight, self.leaf_weight) {
            return GraftResult::Merged(self.lighten(limits, &progress, known.is_some(), merged));
        }
        let is_unchanged = known.is_some() && self.is_unchanged(&progress);
        GraftResult::Merged(if is_unchanged {
            MergeResult::Known
        } else {
            merged
        })
    }

    fn add(
        &mut self,
        path: &RevPath,
        revision: Revision,
        limits: &TreeLimits,
        progress: &mut Progress,
    ) -> Option<MergeResult> {
        let newest = path.revs().next()?;
        let ancestor = path.revs().skip(1).find_map(|rev| self.find(rev));
        let extends = self.is_empty()
            || ancestor.is_some_and(|ancestor| self.nodes[ancestor as usize].is_leaf);
        if !extends && limits.are_too_many_leaves(self.leaf_weight + weight(newest.hash)) {
            return None;
        }
        self.link_path(path, Some(revision), progress);
        Some(match extends {
            true => MergeResult::NewLeaf,
            false => MergeResult::NewBranch,
        })
    }

    fn complete(
        &mut self,
        at: u32,
        path: &RevPath,
        revision: Revision,
        progress: &mut Progress,
    ) -> MergeResult {
        let body = &mut self.nodes[at as usize].revision;
        progress.has_new_body = body.is_none();
        // Leaves have bodies, so that no count changes.
        body.get_or_insert(revision);
        self.link_path(path, None, progress);
        match (progress.has_new_body, progress.joined.is_empty()) {
            (true, _) => MergeResult::NewBody,
            (false, false) => MergeResult::NewAncestors,
            (false, true) => MergeResult::Known,
        }
    }

    /// Adds the path to the tree, as far as the tree's own lineage agrees with it.
    fn link_path(&mut self, path: &RevPath, body: Option<Revision>, progress: &mut Progress) {
        let mut body = body;
        // The path's previous revision, if it still needs its parent, and the leaves below it.
        let mut child: Option<u32> = None;
        let mut below: Depths = vec![];
        let mut revs = path.revs().peekable();
        while let Some(rev) = revs.next() {
            let found = self.find(rev);
            let at = found.unwrap_or_else(|| {
                let revision = body.take();
                let at = self.insert(rev, revision);
                if revision.is_some() {
                    below = vec![(0, 1)];
                }
                progress.added.push(at);
                at
            });
            if let Some(child) = child.take() {
                self.attach(child, at, &below, progress);
                below.iter_mut().for_each(|(steps, _)| *steps += 1);
            }
            if found.is_none() {
                child = Some(at);
                continue;
            }
            match (self.parent(at), revs.peek()) {
                (_, None) => {}
                (None, Some(_)) => {
                    progress.joined.push(at);
                    below = self.depths(at);
                    child = Some(at);
                }
                // The tree's own lineage stays.
                (Some(ours), Some(next)) if self.nodes[ours as usize].rev.as_ref() != *next => {
                    break;
                }
                (Some(_), Some(_)) => {}
            }
        }
    }

    /// Makes `parent` the parent of `child`, a root with these leaves below it.
    fn attach(&mut self, child: u32, parent: u32, below: &[(u64, u64)], progress: &mut Progress) {
        self.link(child, parent);
        let was_leaf = self.nodes[parent as usize].is_leaf;
        if was_leaf {
            self.end_leaf(parent);
        }
        let Some(limit) = self.counted_for else {
            return;
        };
        let nearest = below.iter().map(|(steps, _)| *steps).min();
        let mut at = Some(parent);
        for above in 0..limit {
            let Some(index) = at else { break };
            let node = &mut self.nodes[index as usize];
            let is_near = |steps: u64| steps.saturating_add(above + 1) < limit;
            let gained = below.iter().filter(|(steps, _)| is_near(*steps));
            let gained: u64 = gained.map(|(_, count)| count).sum();
            node.near_leaves = node.near_leaves + gained - u64::from(was_leaf);
            if let Some(nearest) = nearest {
                node.far = node.far.min(nearest.saturating_add(above + 1));
            } else {
                node.far = 0;
            }
            if node.near_leaves == 0 {
                progress.candidates.push(index);
            }
            at = self.parent(index);
        }
    }

    /// Counts the leaves below a node that its parent would count.
    fn depths(&mut self, root: u32) -> Depths {
        let Some(limit) = self.counted_for else {
            return vec![];
        };
        let node = &self.nodes[root as usize];
        if node.is_leaf {
            return vec![(0, 1)];
        }
        if node.far.saturating_add(1) >= limit {
            return vec![];
        }
        let mut depths: Depths = vec![];
        let mut level = vec![root];
        let mut steps = 0;
        while !level.is_empty() && steps + 1 < limit {
            let leaves = level.iter().filter(|at| self.nodes[**at as usize].is_leaf);
            let count = leaves.count() as u64;
            if count > 0 {
                depths.push((steps, count));
            }
            let mut below = vec![];
            for at in level {
                let mut child = self.nodes[at as usize].first_child;
                while let Some(index) = child {
                    let node = &self.nodes[index as usize];
                    child = node.next_sibling;
                    if !node.is_dropped {
                        below.push(index);
                    }
                }
            }
            level = below;
            steps += 1;
        }
        // So that the next one need not search again: a node loses near leaves by edits, and gains
        // them by `attach`.
        self.nodes[root as usize].far = depths.first().map_or(limit - 1, |(steps, _)| *steps);
        depths
    }

    /// Keeps only the `limit` newest revisions of every branch.
    fn stem(&mut self, limit: u64, candidates: &mut Vec<u32>, added: &[u32]) {
        if self.len() as u64 <= limit {
            return;
        }
        if self.counted_for == Some(limit) {
            candidates.extend(added);
        } else {
            self.count_all(limit);
            candidates.clear();
            candidates.extend(self.by_rev.values());
        }
        for at in candidates.drain(..) {
            let node = &self.nodes[at as usize];
            if node.near_leaves == 0 && !node.is_dropped {
                self.drop_node(at);
            }
        }
    }

    fn count_all(&mut self, limit: u64) {
        self.counted_for = Some(limit);
        // Leaves that are `limit` steps below a node, and so are near neither to it nor to its
        // ancestors.
        let mut left_behind = vec![0_u64; self.nodes.len()];
        let mut lineage: Vec<u32> = vec![];
        let roots: Vec<u32> = {
            let all = self.by_rev.values().copied();
            all.filter(|at| self.parent(*at).is_none()).collect()
        };
        for root in roots {
            // Nodes to visit, each with the length of the lineage above it.
            let mut todo = vec![(root, 0_usize)];
            while let Some((at, above)) = todo.pop() {
                lineage.truncate(above);
                lineage.push(at);
                let node = &self.nodes[at as usize];
                if node.is_leaf {
                    let far = usize::try_from(limit).ok();
                    let far = far.and_then(|limit| above.checked_sub(limit));
                    if let Some(ancestor) = far {
                        left_behind[lineage[ancestor] as usize] += 1;
                    }
                }
                let mut child = node.first_child;
                while let Some(index) = child {
                    let node = &self.nodes[index as usize];
                    child = node.next_sibling;
                    if !node.is_dropped {
                        todo.push((index, above + 1));
                    }
                }
            }
        }
        for at in self.by_rev.values() {
            let node = &mut self.nodes[*at as usize];
            node.near_leaves = u64::from(node.is_leaf);
            node.far = 0;
        }
        // Children before their parents.
        for at in self.by_rev.values().rev() {
            let node = &mut self.nodes[*at as usize];
            node.near_leaves -= left_behind[*at as usize];
            let (near, parent) = (node.near_leaves, node.parent);
            if let Some(parent) = parent {
                self.nodes[parent as usize].near_leaves += near;
            }
        }
    }

    /// Stems the tree further, because it is too heavy. Returns the result of the edit.
    fn lighten(
        &mut self,
        limits: &TreeLimits,
        progress: &Progress,
        was_known: bool,
        merged: MergeResult,
    ) -> MergeResult {
        let revs = |all: &[u32]| -> Vec<Rev> {
            let all = all.iter().map(|at| &self.nodes[*at as usize].rev);
            all.cloned().collect()
        };
        let (added, joined) = (revs(&progress.added), revs(&progress.joined));
        let mut tree = self.to_tree();
        tree.lighten(limits);
        *self = BulkTree::from(tree);
        let at = |revs: &[Rev]| -> Vec<u32> {
            let found = revs.iter().filter_map(|rev| self.by_rev.get(rev));
            found.copied().collect()
        };
        let here = Progress {
            count_before: progress.count_before,
            added: at(&added),
            joined: at(&joined),
            candidates: vec![],
            has_new_body: progress.has_new_body,
        };
        match was_known && self.is_unchanged(&here) {
            true => MergeResult::Known,
            false => merged,
        }
    }

    /// Returns whether stemming undid all of an edit.
    fn is_unchanged(&self, progress: &Progress) -> bool {
        let is_there = |at: &u32| !self.nodes[*at as usize].is_dropped;
        !progress.has_new_body
            && self.len() == progress.count_before
            && !progress.added.iter().any(is_there)
            && !progress.joined.iter().any(|at| self.parent(*at).is_some())
    }

    fn find(&self, rev: RevRef<'_>) -> Option<u32> {
        self.by_rev.get(&rev.to_rev()).copied()
    }

    fn parent(&self, at: u32) -> Option<u32> {
        let parent = self.nodes[at as usize].parent?;
        (!self.nodes[parent as usize].is_dropped).then_some(parent)
    }

    /// Adds a revision without a parent; with a body it is a leaf.
    fn insert(&mut self, rev: RevRef<'_>, revision: Option<Revision>) -> u32 {
        let at = self.push(rev, revision, revision.is_some());
        self.by_rev.insert(rev.to_rev(), at);
        if let Some(revision) = revision {
            self.leaves.insert((!revision.deleted, rev.to_rev()), at);
        }
        at
    }

    /// Adds a node, and counts it; it is in no map yet.
    fn push(&mut self, rev: RevRef<'_>, revision: Option<Revision>, is_leaf: bool) -> u32 {
        let at = self.nodes.len() as u32;
        self.weight += weight(rev.hash);
        self.nodes.push(BulkNode {
            rev: rev.to_rev(),
            revision,
            parent: None,
            first_child: None,
            next_sibling: None,
            near_leaves: u64::from(is_leaf),
            far: if is_leaf { 0 } else { u64::MAX },
            is_leaf,
            is_dropped: false,
        });
        if let Some(revision) = revision.filter(|_| is_leaf) {
            self.leaf_bytes += u128::from(revision.size);
            self.leaf_weight += weight(rev.hash);
        }
        at
    }

    fn link(&mut self, child: u32, parent: u32) {
        let before = self.nodes[parent as usize].first_child.replace(child);
        let node = &mut self.nodes[child as usize];
        node.next_sibling = before;
        node.parent = Some(parent);
    }

    fn end_leaf(&mut self, at: u32) {
        let node = &mut self.nodes[at as usize];
        node.is_leaf = false;
        let (rev, revision) = (node.rev.clone(), node.revision);
        self.leaf_weight -= weight(&rev.hash);
        if let Some(revision) = revision {
            self.leaves.remove(&(!revision.deleted, rev));
            self.leaf_bytes -= u128::from(revision.size);
        }
    }

    fn drop_node(&mut self, at: u32) {
        let node = &mut self.nodes[at as usize];
        debug_assert!(!node.is_leaf, "a leaf is near to itself");
        node.is_dropped = true;
        self.weight -= weight(&node.rev.hash);
        self.by_rev.remove(&node.rev);
    }
}
