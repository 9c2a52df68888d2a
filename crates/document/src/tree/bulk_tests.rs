//! Successive edits: [`BulkTree`] against [`RevTree`], and [`RevTree::graft`] against the naive
//! model, also of wide trees.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::tests::{History, Model};
use super::*;

/// Edits of one document: revisions, each with how much of its path.
#[derive(Clone, Debug)]
struct Edits {
    history: History,
    edits: Vec<(usize, usize)>,
}

/// Histories in which many revisions share few parents, and edits of them in any order.
fn wide() -> impl Strategy<Value = Edits> {
    let node = (
        prop::option::weighted(0.9, any::<prop::sample::Index>()),
        0..3_u8,
        any::<bool>(),
    );
    let nodes = prop::collection::vec(node, 1..160);
    let edits = prop::collection::vec((any::<prop::sample::Index>(), 1..9_usize), 1..200);
    (nodes, edits).prop_map(|(nodes, edits)| {
        let parent = |(at, (index, kind, _)): (usize, &(Option<prop::sample::Index>, u8, bool))| {
            let index = index.filter(|_| at > 0)?;
            Some(match kind {
                // Stars around the first few, chains, and anything.
                0 => index.index(at.min(4)),
                1 => at - 1,
                _ => index.index(at),
            })
        };
        let history = History {
            parents: nodes.iter().enumerate().map(parent).collect(),
            deleted: nodes.iter().map(|(_, _, deleted)| *deleted).collect(),
        };
        let count = history.parents.len();
        let edits = edits.iter().map(|(at, length)| (at.index(count), *length));
        Edits {
            edits: edits.collect(),
            history,
        }
    })
}

fn limits() -> impl Strategy<Value = TreeLimits> {
    (1..9_u64, prop::option::of(1..60_u64)).prop_map(|(revs, leaves)| TreeLimits { revs, leaves })
}

/// Checks that two forms of a tree agree, and returns the plain one.
fn agree(tree: &RevTree, bulk: &BulkTree) -> Result<(), TestCaseError> {
    prop_assert_eq!(bulk.winner(), tree.winner());
    prop_assert_eq!(bulk.leaf_bytes(), tree.leaf_bytes());
    prop_assert_eq!(bulk.len(), tree.len());
    prop_assert_eq!(bulk.is_empty(), tree.is_empty());
    prop_assert_eq!(&bulk.to_tree(), tree);
    for node in tree.nodes() {
        prop_assert_eq!(bulk.is_leaf(&node.rev.to_rev()), node.is_leaf);
    }
    Ok(())
}

proptest! {
    #[test]
    fn both_forms_answer_edits_alike(
        edits in wide(), before in 0..40_usize, limits in prop::collection::vec((limits(), 1..80_usize), 1..4)
    ) {
        let limits = limits.iter().flat_map(|(limits, times)| std::iter::repeat_n(*limits, *times));
        let mut limits = limits.collect::<Vec<_>>().into_iter().cycle();
        let mut tree = RevTree::new();
        let mut bulk = BulkTree::default();
        for (i, (at, length)) in edits.edits.iter().enumerate() {
            let (path, revision) = (edits.history.path(*at, *length), edits.history.revision(*at));
            if i == before {
                bulk = BulkTree::from(tree.clone());
            }
            let limits = limits.next().unwrap();
            let grafted = tree.graft(&path, revision, &limits);
            if i >= before {
                prop_assert_eq!(bulk.graft(&path, revision, &limits), grafted);
                agree(&tree, &bulk)?;
            }
        }
    }

    #[test]
    fn both_forms_answer_made_up_ids_alike(
        paths in prop::collection::vec((0..9_u64, prop::collection::vec(0..5_u8, 0..9), any::<bool>()), 1..60), limits in limits()
    ) {
        let (mut tree, mut bulk) = (RevTree::new(), BulkTree::default());
        for (seq, (start, ids, deleted)) in paths.iter().enumerate() {
            let ids = ids.iter().map(|id| RevHash::parse(&id.to_string())).collect();
            let path = RevPath { start: *start, ids };
            let revision = Revision { deleted: *deleted, seq: seq as u64, size: 3 };
            prop_assert_eq!(bulk.graft(&path, revision, &limits), tree.graft(&path, revision, &limits));
            agree(&tree, &bulk)?;
        }
    }

    #[test]
    fn edits_of_wide_trees_do_what_the_model_does(edits in wide(), limits in limits()) {
        let mut tree = RevTree::new();
        let mut model = Model::default();
        for (at, length) in edits.edits {
            let (path, revision) = (edits.history.path(at, length), edits.history.revision(at));
            let rev = edits.history.rev(at);
            let line: Vec<Rev> = path.revs().map(RevRef::to_rev).collect();
            let ancestor = line.iter().find(|rev| model.parents.contains_key(rev));
            let leaves = model.leaves();
            let is_new = ancestor != Some(&rev);
            let branches = is_new && !model.parents.is_empty()
                && !ancestor.is_some_and(|ancestor| leaves.contains(ancestor));
            let grafted = tree.graft(&path, revision, &limits);
            if branches && limits.leaves.is_some_and(|max| leaves.len() as u64 + 1 > max) {
                prop_assert_eq!(grafted, GraftResult::TooManyLeaves);
            } else {
                prop_assert_ne!(grafted, GraftResult::TooManyLeaves);
                model.add(&line);
                let kept: BTreeSet<Rev> = model.leaves().iter()
                    .flat_map(|leaf| model.lineage(leaf).into_iter().take(limits.revs as usize)).collect();
                model = model.restricted(&kept);
            }
            prop_assert_eq!(&Model::of(&tree), &model);
        }
    }
}

fn leaf(n: u32, length: usize) -> RevPath {
    let id = |age: usize| RevHash::parse(&format!("{age:08}{n:024}"));
    RevPath {
        start: 5000,
        ids: (0..length).map(id).collect(),
    }
}

fn body(seq: u64) -> Revision {
    Revision {
        deleted: false,
        seq,
        size: 1,
    }
}

#[test]
fn a_tree_that_is_wide_and_deep_keeps_all_leaves_and_less_of_their_histories() {
    let limits = TreeLimits {
        revs: 1000,
        leaves: Some(1000),
    };
    let (mut tree, mut bulk) = (RevTree::new(), BulkTree::default());
    for n in 0..210 {
        let (path, revision) = (leaf(n, 600), body(n.into()));
        let grafted = tree.graft(&path, revision, &limits);
        assert_ne!(grafted, GraftResult::TooManyLeaves);
        assert_eq!(bulk.graft(&path, revision, &limits), grafted);
        assert!(tree.len() <= 100_000, "{}", tree.len());
    }
    assert_eq!(tree.leaves().len(), 210);
    assert!(tree.len() > 50_000, "{}", tree.len());
    assert_eq!(bulk.to_tree(), tree);
}

#[test]
fn more_leaves_than_the_limit_can_be_edited_and_deleted() {
    let mut tree = RevTree::new();
    for n in 0..20 {
        tree.merge(&leaf(n, 2), body(n.into()));
    }
    let limits = TreeLimits {
        revs: 1000,
        leaves: Some(10),
    };
    let mut bulk = BulkTree::from(tree.clone());
    let one_more = leaf(20, 2);
    assert_eq!(
        tree.graft(&one_more, body(90), &limits),
        GraftResult::TooManyLeaves
    );
    assert_eq!(
        bulk.graft(&one_more, body(90), &limits),
        GraftResult::TooManyLeaves
    );
    for n in 0..20 {
        let mut next = leaf(n, 2);
        next.start += 1;
        next.ids.insert(0, RevHash::parse("deleted"));
        let tombstone = Revision {
            deleted: true,
            ..body(100)
        };
        let done = GraftResult::Merged(MergeResult::NewLeaf);
        next.ids[0] = RevHash::parse(&format!("deleted{n}"));
        assert_eq!(tree.graft(&next, tombstone, &limits), done);
        assert_eq!(bulk.graft(&next, tombstone, &limits), done);
    }
    assert!(tree.winner().unwrap().revision.deleted);
    let revs: Vec<Rev> = tree.leaves().iter().map(|leaf| leaf.rev.to_rev()).collect();
    assert_eq!(tree.remove_leaves(&revs[..11]).len(), 11);
    assert_eq!(
        tree.graft(&one_more, body(90), &limits),
        GraftResult::Merged(MergeResult::NewBranch)
    );
}

#[test]
fn a_long_id_counts_for_several_leaves() {
    let limits = TreeLimits {
        revs: 1000,
        leaves: Some(100),
    };
    let long = |n: u8| RevPath {
        start: 1,
        ids: vec![RevHash::parse(&format!("{n}{}", "x".repeat(4000)))],
    };
    let (mut tree, mut bulk) = (RevTree::new(), BulkTree::default());
    for (n, expected) in [
        GraftResult::Merged(MergeResult::NewLeaf),
        GraftResult::TooManyLeaves,
    ]
    .into_iter()
    .enumerate()
    {
        let path = long(n as u8);
        assert_eq!(tree.graft(&path, body(0), &limits), expected);
        assert_eq!(bulk.graft(&path, body(0), &limits), expected);
    }
    assert_eq!(tree.leaves().len(), 1);
    assert_eq!(bulk.to_tree(), tree);
}
