//! Adds a path to a tree: the union of two sorted lists of nodes.

use super::{RevNode, RevPath, RevTree, Revision};
use crate::rev::RevRef;

/// A revision to be added; or a root that gets a parent.
pub(super) struct NewRevNode<'a> {
    rev: RevRef<'a>,
    parent: Option<RevRef<'a>>,
    revision: Option<Revision>,
}

impl RevTree {
    /// Returns the revisions of the path that the tree lacks, and the roots of the tree that get a
    /// parent from it; ascending. A parent is given by its revision.
    pub(super) fn new_nodes<'a>(
        &self,
        path: &'a RevPath,
        revision: Option<Revision>,
    ) -> Vec<NewRevNode<'a>> {
        let mut nodes: Vec<NewRevNode<'a>> = Vec::new();
        let mut body = revision;
        let mut revs = path.revs().peekable();
        while let Some(rev) = revs.next() {
            let parent = revs.peek().copied();
            match self.find(rev) {
                None => nodes.push(NewRevNode {
                    rev,
                    parent,
                    revision: body.take(),
                }),
                Some(at) => match self.nodes[at].parent {
                    None if parent.is_some() => nodes.push(NewRevNode {
                        rev,
                        parent,
                        revision: None,
                    }),
                    None => {}
                    // The tree's own lineage stays; the path continues only if it agrees with it.
                    Some(ours)
                        if parent
                            .is_some_and(|parent| self.nodes[ours as usize].rev() != parent) =>
                    {
                        break;
                    }
                    Some(_) => {}
                },
            }
        }
        nodes.reverse();
        nodes
    }

    /// Merges two sorted lists of nodes.
    pub(super) fn unite(&mut self, new: Vec<NewRevNode<'_>>) {
        if new.is_empty() {
            return;
        }
        let mut ours = std::mem::take(&mut self.nodes).into_iter().peekable();
        let mut united: Vec<RevNode> = Vec::with_capacity(ours.len() + new.len());
        // The new position of each of our nodes.
        let mut moved: Vec<u32> = Vec::with_capacity(ours.len());
        let mut take_ours = |node: RevNode, united: &mut Vec<RevNode>| {
            moved.push(united.len() as u32);
            let parent = node.parent.map(|parent| moved[parent as usize]);
            united.push(RevNode { parent, ..node });
        };
        // The node that stands for the path's previous revision.
        let mut previous: Option<u32> = None;
        for node in new {
            while let Some(our) = ours.next_if(|our| our.rev() < node.rev) {
                take_ours(our, &mut united);
            }
            let parent = node.parent.and_then(|parent| match previous {
                Some(at) if united[at as usize].rev() == parent => Some(at),
                _ => united
                    .binary_search_by(|other| other.rev().cmp(&parent))
                    .ok()
                    .map(|at| at as u32),
            });
            match ours.next_if(|our| our.rev() == node.rev) {
                Some(our) => {
                    take_ours(our, &mut united);
                    if let Some(last) = united.last_mut() {
                        last.parent = last.parent.or(parent);
                    }
                }
                None => united.push(RevNode {
                    generation: node.rev.generation,
                    hash: node.rev.hash.clone(),
                    revision: node.revision,
                    parent,
                    is_leaf: true,
                }),
            }
            previous = Some(united.len() as u32 - 1);
        }
        for our in ours {
            take_ours(our, &mut united);
        }
        self.nodes = united;
        self.mark_leaves();
    }
}
