//! A document's revision tree while a batch changes it.

use document::{BulkTree, DocId, GraftResult, Leaf, Rev, RevPath, RevTree, Revision, TreeLimits};
use rustc_hash::FxHashMap;

use crate::keys::ShardNumber;

/// A tree with many edits in one batch is converted before this edit.
pub(crate) const BULK_EDITS_MIN: u32 = 4;
/// Smaller trees are not converted: copying them costs less.
const BULK_REVISIONS_MIN: usize = 64;

/// Maximum total number of revisions of trees kept for the next piece of a request.
const KEPT_REVISIONS_MAX: usize = 500_000;
/// Maximum number of documents whose edits in the last piece are remembered, and minimum length of
/// their records.
const KEPT_EDITS_MAX: usize = 64;
const KEPT_EDITS_BYTES_MIN: usize = 16 << 10;

/// State that the last piece of a request left for the next one: trees in the form for many edits,
/// since rebuilding them takes longer than a piece, and the numbers of edits of documents whose
/// trees do not have that form yet.
#[derive(Default)]
pub(crate) struct KeptTrees {
    /// Each corresponds to the record that lists its document at this seq.
    trees: FxHashMap<(ShardNumber, DocId), (u64, Box<BulkTree>)>,
    edits: FxHashMap<(ShardNumber, DocId), u32>,
}

impl KeptTrees {
    /// Returns the tree of a document, if it has not changed since.
    pub fn take(&mut self, shard: ShardNumber, id: &DocId, seq: u64) -> Option<Box<BulkTree>> {
        if self.trees.is_empty() {
            return None;
        }
        let (of, tree) = self.trees.remove(&(shard, id.clone()))?;
        (of == seq).then_some(tree)
    }

    pub fn keep(&mut self, shard: ShardNumber, id: DocId, seq: u64, tree: Box<BulkTree>) {
        let held: usize = self.trees.values().map(|(_, tree)| tree.held()).sum();
        let is_sparse = tree.held() / 2 > tree.len() + BULK_REVISIONS_MIN;
        if !is_sparse && held + tree.held() <= KEPT_REVISIONS_MAX {
            self.trees.insert((shard, id), (seq, tree));
        }
    }

    /// Returns the number of a document's edits in the last piece.
    pub fn edits(&self, shard: ShardNumber, id: &DocId) -> u32 {
        if self.edits.is_empty() {
            return 0;
        }
        let edits = self.edits.get(&(shard, id.clone()));
        edits.copied().unwrap_or(0)
    }

    /// Remembers the edits of a document with a record of this length.
    pub fn note_edits(&mut self, shard: ShardNumber, id: &DocId, edits: u32, record_bytes: usize) {
        if record_bytes >= KEPT_EDITS_BYTES_MIN && self.edits.len() < KEPT_EDITS_MAX {
            self.edits.insert((shard, id.clone()), edits);
        }
    }
}

/// A tree in the form that suits the number of edits. Both forms give the same results.
pub(crate) enum Tree {
    Plain(RevTree),
    Bulk(Box<BulkTree>),
}

impl Default for Tree {
    fn default() -> Tree {
        Tree::Plain(RevTree::new())
    }
}

impl Tree {
    pub fn winner(&self) -> Option<Leaf<'_>> {
        match self {
            Tree::Plain(tree) => tree.winner(),
            Tree::Bulk(tree) => tree.winner(),
        }
    }

    pub fn is_leaf(&self, rev: &Rev) -> bool {
        match self {
            Tree::Plain(tree) => tree.is_leaf(rev),
            Tree::Bulk(tree) => tree.is_leaf(rev),
        }
    }

    /// Returns whether a revision is known to have come with its body.
    pub fn has_body_of(&self, rev: &Rev) -> bool {
        match self {
            Tree::Plain(tree) => tree.get(rev).is_some_and(|node| node.revision.is_some()),
            Tree::Bulk(_) => false,
        }
    }

    fn leaf_bytes(&self) -> u64 {
        match self {
            Tree::Plain(tree) => tree.leaf_bytes(),
            Tree::Bulk(tree) => tree.leaf_bytes(),
        }
    }

    pub fn graft(
        &mut self,
        path: &RevPath,
        revision: Revision,
        limits: &TreeLimits,
    ) -> GraftResult {
        match self {
            Tree::Plain(tree) => tree.graft(path, revision, limits),
            Tree::Bulk(tree) => tree.graft(path, revision, limits),
        }
    }

    /// Converts the tree if that is worth it for the next edit; `edits` came before it in this
    /// batch.
    pub fn prepare_for(&mut self, edits: u32) {
        if let Tree::Plain(tree) = self
            && edits >= BULK_EDITS_MIN
            && tree.len() >= BULK_REVISIONS_MIN
        {
            *self = Tree::Bulk(Box::new(std::mem::take(tree).into()));
        }
    }

    /// Returns the tree as it is stored. It stays here only in the form for many edits.
    pub fn stored(&mut self) -> RevTree {
        match self {
            Tree::Plain(tree) => std::mem::take(tree),
            Tree::Bulk(tree) => tree.to_tree(),
        }
    }

    /// Returns the tree in the form for few edits.
    pub fn plain(&mut self) -> &mut RevTree {
        if let Tree::Bulk(tree) = self {
            *self = Tree::Plain(tree.to_tree());
        }
        match self {
            Tree::Plain(tree) => tree,
            Tree::Bulk(_) => unreachable!("it was replaced above"),
        }
    }
}

/// The contribution of a document to the counters.
#[derive(Clone, Copy, Default)]
pub(crate) struct CounterShare {
    pub exists: bool,
    pub live: bool,
    /// Length of the bodies of all leaves, in bytes.
    pub bytes: u64,
}

impl CounterShare {
    pub fn of(tree: &Tree) -> CounterShare {
        let winner = tree.winner();
        CounterShare {
            exists: winner.is_some(),
            live: winner.is_some_and(|winner| !winner.revision.deleted),
            bytes: tree.leaf_bytes(),
        }
    }

    pub fn dead(self) -> bool {
        self.exists && !self.live
    }
}
