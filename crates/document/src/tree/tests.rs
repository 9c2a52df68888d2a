use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

fn rev(text: &str) -> Rev {
    Rev::parse(text).unwrap()
}

fn path(start: u64, ids: &[&str]) -> RevPath {
    RevPath {
        start,
        ids: ids.iter().map(|id| RevHash::parse(id)).collect(),
    }
}

fn body(seq: u64) -> Revision {
    Revision {
        deleted: false,
        seq,
        size: 10,
    }
}

fn tombstone(seq: u64) -> Revision {
    Revision {
        deleted: true,
        seq,
        size: 2,
    }
}

fn revs(leaves: &[Leaf<'_>]) -> Vec<String> {
    leaves.iter().map(|leaf| leaf.rev.to_string()).collect()
}

#[test]
fn the_first_revision_and_an_extension_are_new_leaves() {
    let mut tree = RevTree::new();
    assert_eq!(tree.merge(&path(1, &["a"]), body(1)), MergeResult::NewLeaf);
    assert_eq!(
        tree.merge(&path(2, &["b", "a"]), body(2)),
        MergeResult::NewLeaf
    );
    assert_eq!(revs(&tree.leaves()), ["2-b"]);
    assert_eq!(tree.get(&rev("1-a")).unwrap().revision, Some(body(1)));
    assert!(!tree.is_leaf(&rev("1-a")));
}

#[test]
fn a_conflict_is_a_new_branch_and_the_higher_hash_wins() {
    let mut tree = RevTree::new();
    tree.merge(&path(1, &["a"]), body(1));
    assert_eq!(
        tree.merge(&path(1, &["c"]), body(2)),
        MergeResult::NewBranch
    );
    assert_eq!(
        tree.merge(&path(1, &["b"]), body(3)),
        MergeResult::NewBranch
    );
    assert_eq!(revs(&tree.leaves()), ["1-c", "1-b", "1-a"]);
    assert_eq!(tree.winner().unwrap().rev.to_string(), "1-c");
}

#[test]
fn a_deleted_leaf_never_wins_over_a_live_one() {
    let mut tree = RevTree::new();
    tree.merge(&path(1, &["a"]), body(1));
    tree.merge(&path(3, &["z", "y", "x"]), tombstone(2));
    assert_eq!(revs(&tree.leaves()), ["1-a", "3-z"]);
    tree.merge(&path(2, &["b", "a"]), tombstone(3));
    assert_eq!(revs(&tree.leaves()), ["3-z", "2-b"]);
}

#[test]
fn a_known_revision_changes_nothing() {
    let mut tree = RevTree::new();
    tree.merge(&path(3, &["c", "b", "a"]), body(1));
    let before = tree.clone();
    assert_eq!(tree.merge(&path(3, &["c"]), body(2)), MergeResult::Known);
    assert_eq!(
        tree.merge(&path(3, &["c", "b", "a"]), body(3)),
        MergeResult::Known
    );
    assert_eq!(
        tree.merge(
            &RevPath {
                start: 0,
                ids: Vec::new()
            },
            body(4)
        ),
        MergeResult::Known
    );
    assert_eq!(tree, before);
}

#[test]
fn an_ancestor_that_comes_later_joins_the_histories_and_brings_its_body() {
    let mut tree = RevTree::new();
    tree.merge(&path(3, &["c", "b"]), body(1));
    let late = path(2, &["b", "a"]);
    assert_eq!(tree.merge(&late, tombstone(2)), MergeResult::NewBody);
    assert_eq!(tree.merge(&late, body(3)), MergeResult::Known);
    assert_eq!(revs(&tree.leaves()), ["3-c"]);
    let expected = vec![
        (rev("3-c"), Some(body(1))),
        (rev("2-b"), Some(tombstone(2))),
        (rev("1-a"), None),
    ];
    assert_eq!(tree.path_revisions(&rev("3-c")), Some(expected));
}

#[test]
fn a_leaf_that_comes_again_with_a_longer_history_gets_it() {
    let mut tree = RevTree::new();
    tree.merge(&path(3, &["c"]), body(1));
    assert_eq!(
        tree.merge(&path(3, &["c", "b", "a"]), body(2)),
        MergeResult::NewAncestors
    );
    assert_eq!(tree.path(&rev("3-c")), Some(path(3, &["c", "b", "a"])));
    assert_eq!(tree.winner().unwrap().revision, body(1));
    // A history that ends above the leaf has nothing in common with it.
    let mut tree = RevTree::new();
    tree.merge(&path(3, &["c"]), body(1));
    assert_eq!(
        tree.merge(&path(2, &["b", "a"]), body(2)),
        MergeResult::NewBranch
    );
    assert_eq!(revs(&tree.leaves()), ["3-c", "2-b"]);
}

#[test]
fn a_longer_path_joins_stemmed_branches() {
    // The recorded scenario "new_edits false joins two branches".
    let mut tree = RevTree::new();
    tree.merge(&path(3, &["c"]), body(1));
    assert_eq!(
        tree.merge(&path(1, &["a"]), body(2)),
        MergeResult::NewBranch
    );
    assert_eq!(
        tree.merge(&path(4, &["d", "c", "b", "a"]), body(3)),
        MergeResult::NewLeaf
    );
    assert_eq!(revs(&tree.leaves()), ["4-d"]);
    assert_eq!(tree.path(&rev("4-d")), Some(path(4, &["d", "c", "b", "a"])));
}

#[test]
fn the_first_ancestry_stays_when_made_up_ids_contradict_it() {
    let mut tree = RevTree::new();
    tree.merge(&path(3, &["c", "b", "a"]), body(1));
    assert_eq!(
        tree.merge(&path(4, &["d", "c", "x", "y"]), body(2)),
        MergeResult::NewLeaf
    );
    assert_eq!(tree.path(&rev("4-d")), Some(path(4, &["d", "c", "b", "a"])));
    assert_eq!(tree.len(), 4);
}

#[test]
fn ids_below_generation_zero_are_passed_over() {
    let mut tree = RevTree::new();
    tree.merge(&path(1, &["b", "a", "x", "y"]), body(1));
    assert_eq!(tree.path(&rev("1-b")), Some(path(1, &["b", "a"])));
}

#[test]
fn the_revisions_of_a_path_come_with_their_bodies() {
    let mut tree = RevTree::new();
    tree.merge(&path(2, &["b", "a"]), body(1));
    tree.merge(&path(3, &["c", "b"]), body(2));
    let expected = vec![
        (rev("3-c"), Some(body(2))),
        (rev("2-b"), Some(body(1))),
        (rev("1-a"), None),
    ];
    assert_eq!(tree.path_revisions(&rev("3-c")), Some(expected));
    assert_eq!(tree.path_revisions(&rev("3-x")), None);
    assert_eq!(tree.all_seqs().collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn the_latest_of_a_revision_are_the_leaves_below_it() {
    let mut tree = RevTree::new();
    tree.merge(&path(1, &["a"]), body(1));
    tree.merge(&path(2, &["b", "a"]), body(2));
    tree.merge(&path(2, &["c", "a"]), body(3));
    tree.merge(&path(2, &["d", "x"]), body(4));
    assert_eq!(revs(&tree.latest_of(&rev("1-a"))), ["2-c", "2-b"]);
    assert_eq!(revs(&tree.latest_of(&rev("2-d"))), ["2-d"]);
    assert!(tree.latest_of(&rev("9-z")).is_empty());
}

#[test]
fn stemming_keeps_the_newest_revisions_of_each_branch() {
    let mut tree = RevTree::new();
    tree.merge(&path(4, &["d", "c", "b", "a"]), body(1));
    tree.merge(&path(3, &["x", "b", "a"]), body(2));
    tree.stem(2);
    // 2-b stays because of 3-x.
    assert_eq!(tree.path(&rev("4-d")), Some(path(4, &["d", "c", "b"])));
    assert_eq!(tree.path(&rev("3-x")), Some(path(3, &["x", "b"])));
    tree.merge(&path(5, &["e", "d"]), body(3));
    tree.stem(2);
    assert_eq!(tree.path(&rev("5-e")), Some(path(5, &["e", "d"])));
    assert_eq!(tree.path(&rev("3-x")), Some(path(3, &["x", "b"])));
    tree.stem(0);
    assert_eq!(tree.len(), 2);
}

#[test]
fn purging_removes_leaves_and_what_only_they_need() {
    let mut tree = RevTree::new();
    tree.merge(&path(3, &["c", "b", "a"]), body(1));
    tree.merge(&path(2, &["x", "a"]), body(2));
    assert!(tree.remove_leaves(&[rev("2-b"), rev("9-z")]).is_empty());
    assert_eq!(
        tree.remove_leaves(&[rev("3-c"), rev("3-c"), rev("2-b")]),
        [rev("3-c")]
    );
    assert_eq!(revs(&tree.leaves()), ["2-x"]);
    assert_eq!(tree.path(&rev("2-x")), Some(path(2, &["x", "a"])));
    assert_eq!(tree.len(), 2);
    assert_eq!(tree.remove_leaves(&[rev("2-x")]), [rev("2-x")]);
    assert!(tree.is_empty() && tree.winner().is_none());
}

#[test]
fn missing_revisions_and_possible_ancestors_are_couchdbs() {
    // The recorded scenario "_revs_diff possible ancestors".
    let mut tree = RevTree::new();
    tree.merge(&path(1, &["a"]), body(1));
    tree.merge(&path(2, &["b", "a"]), body(2));
    let missing = tree.missing(&[rev("3-3"), rev("1-9"), rev("2-8"), rev("1-a"), rev("2-b")]);
    assert_eq!(missing, [rev("1-9"), rev("2-8"), rev("3-3")]);
    assert_eq!(tree.possible_ancestors(&missing), [rev("2-b")]);
    assert!(tree.possible_ancestors(&[rev("2-8")]).is_empty());
    let given = [rev("2-b"), rev("1-a"), rev("2-b")];
    assert_eq!(RevTree::new().missing(&given), given);
}

#[test]
fn ancestors_can_lose_their_bodies_and_leaves_cannot() {
    let mut tree = RevTree::new();
    tree.merge(&path(1, &["a"]), body(1));
    tree.merge(&path(2, &["b", "a"]), body(2));
    assert_eq!(tree.forget_body(&rev("2-b")), None);
    assert!(tree.relocate(&rev("2-b"), body(7)));
    assert_eq!(tree.forget_ancestor_bodies(), [body(1)]);
    assert!(!tree.relocate(&rev("1-a"), body(8)));
    assert_eq!(tree.winner().unwrap().revision, body(7));
}

#[test]
fn a_tree_of_one_revision_takes_about_two_dozen_bytes() {
    let mut tree = RevTree::new();
    let first = rev("1-967a00dff5e02add41819138abb3284d");
    tree.merge(
        &RevPath::single(first),
        Revision {
            deleted: false,
            seq: 1_000_000,
            size: 300,
        },
    );
    let mut out = Vec::new();
    tree.encode(&mut out);
    assert_eq!(out.len(), 24);
    assert_eq!(RevTree::decode(&out), Ok(tree));
}

#[test]
fn what_is_not_an_encoded_tree_is_corrupt() {
    let mut tree = RevTree::new();
    tree.merge(&path(2, &["b", "a"]), body(2));
    tree.merge(&path(2, &["c", "a"]), body(3));
    let mut good = Vec::new();
    tree.encode(&mut good);
    assert_eq!(RevTree::decode(&good), Ok(tree));
    for length in 0..good.len() {
        assert_eq!(RevTree::decode(&good[..length]), Err(CorruptTree));
        let leaf_bytes = RevTree::stored_leaf_bytes(&good[..length]);
        assert_eq!(leaf_bytes, Err(CorruptTree));
    }
    good.push(0);
    assert_eq!(RevTree::stored_leaf_bytes(&good), Err(CorruptTree));
    assert_eq!(RevTree::decode(&good), Err(CorruptTree));
    assert_eq!(RevTree::decode_prefix(&good).unwrap().1, [0]);
    assert_eq!(RevTree::decode(&[]), Err(CorruptTree));
    assert_eq!(RevTree::decode(&[0]), Ok(RevTree::new()));
    assert_eq!(RevTree::decode(&[0xff; 40]), Err(CorruptTree));
}

/// A history: the parent of each revision, an earlier one or none. An id is derived from its
/// history, so that it determines its ancestry.
#[derive(Clone, Debug)]
pub(super) struct History {
    pub parents: Vec<Option<usize>>,
    pub deleted: Vec<bool>,
}

impl History {
    fn generation(&self, at: usize) -> u64 {
        1 + self.parents[at].map_or(0, |parent| self.generation(parent))
    }

    fn hash(&self, at: usize) -> RevHash {
        if at.is_multiple_of(5) {
            return RevHash::parse(&format!("text{at}"));
        }
        let mut md5 = [0; 16];
        md5[0] = (at * 37) as u8;
        md5[15] = at as u8;
        RevHash::Md5(md5)
    }

    pub fn rev(&self, at: usize) -> Rev {
        Rev {
            generation: self.generation(at),
            hash: self.hash(at),
        }
    }

    pub fn revision(&self, at: usize) -> Revision {
        Revision {
            deleted: self.deleted[at],
            seq: at as u64 * 1000,
            size: at as u64,
        }
    }

    /// Returns the path of a revision with at most `length` ids.
    pub fn path(&self, at: usize, length: usize) -> RevPath {
        let line = std::iter::successors(Some(at), |&at| self.parents[at]);
        RevPath {
            start: self.generation(at),
            ids: line.take(length.max(1)).map(|at| self.hash(at)).collect(),
        }
    }
}

/// An edit of a merge: a revision and the length of its path.
type Edit = (usize, usize);

fn history() -> impl Strategy<Value = History> {
    prop::collection::vec(
        (
            prop::option::weighted(0.85, any::<prop::sample::Index>()),
            any::<bool>(),
        ),
        1..24,
    )
    .prop_map(|drawn| {
        let parent = |(at, (index, _)): (usize, &(Option<prop::sample::Index>, bool))| {
            // Near parents make long branches.
            index
                .filter(|_| at > 0)
                .map(|index| at - 1 - index.index(at.min(3)))
        };
        History {
            parents: drawn.iter().enumerate().map(parent).collect(),
            deleted: drawn.iter().map(|(_, deleted)| *deleted).collect(),
        }
    })
}

fn edits(history: &History) -> impl Strategy<Value = Vec<Edit>> + use<> {
    prop::collection::vec((0..history.parents.len(), 1..8_usize), 1..16)
}

fn history_and_edits() -> impl Strategy<Value = (History, Vec<Edit>, Vec<Edit>)> {
    history().prop_flat_map(|history| {
        let (some, others) = (edits(&history), edits(&history));
        (Just(history), some, others)
    })
}

fn grown(history: &History, edits: &[Edit]) -> RevTree {
    let mut tree = RevTree::new();
    for &(at, length) in edits {
        tree.merge(&history.path(at, length), history.revision(at));
        check(&tree);
    }
    tree
}

/// Checks the invariants of every tree.
fn check(tree: &RevTree) {
    for (index, node) in tree.nodes.iter().enumerate() {
        assert!(index == 0 || tree.nodes[index - 1].rev() < node.rev());
        let children = tree
            .nodes
            .iter()
            .filter(|other| other.parent == Some(index as u32))
            .count();
        assert_eq!(node.is_leaf, children == 0);
        assert!(!node.is_leaf || node.revision.is_some());
        if let Some(parent) = node.parent {
            assert_eq!(tree.nodes[parent as usize].generation + 1, node.generation);
        }
    }
    let mut encoded = Vec::new();
    tree.encode(&mut encoded);
    assert_eq!(RevTree::decode(&encoded).as_ref(), Ok(tree));
    let leaf_bytes = RevTree::stored_leaf_bytes(&encoded);
    assert_eq!(leaf_bytes, Ok(tree.leaf_bytes()));
}

/// A naive model of a tree: each revision with its parent, and the revisions that were stored.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Model {
    pub parents: BTreeMap<Rev, Option<Rev>>,
}

impl Model {
    fn grown(history: &History, edits: &[Edit]) -> Self {
        let mut model = Self::default();
        for &(at, length) in edits {
            let line = std::iter::successors(Some(at), |&at| history.parents[at]);
            let line: Vec<Rev> = line.take(length).map(|at| history.rev(at)).collect();
            model.add(&line);
        }
        model
    }

    /// Adds a revision with its ancestors, newest first.
    pub fn add(&mut self, line: &[Rev]) {
        for (index, rev) in line.iter().enumerate() {
            let parent = self.parents.entry(rev.clone()).or_default();
            *parent = parent.take().or_else(|| line.get(index + 1).cloned());
        }
    }

    pub fn of(tree: &RevTree) -> Self {
        let parent = |node: &RevNode| {
            node.parent
                .map(|parent| tree.nodes[parent as usize].rev().to_rev())
        };
        Self {
            parents: tree
                .nodes
                .iter()
                .map(|node| (node.rev().to_rev(), parent(node)))
                .collect(),
        }
    }

    pub fn leaves(&self) -> BTreeSet<Rev> {
        let parents: BTreeSet<&Rev> = self.parents.values().flatten().collect();
        self.parents
            .keys()
            .filter(|rev| !parents.contains(rev))
            .cloned()
            .collect()
    }

    pub fn lineage(&self, rev: &Rev) -> Vec<Rev> {
        std::iter::successors(Some(rev), |rev| self.parents[*rev].as_ref())
            .cloned()
            .collect()
    }

    pub fn restricted(self, kept: &BTreeSet<Rev>) -> Self {
        let parents = self
            .parents
            .into_iter()
            .filter(|(rev, _)| kept.contains(rev));
        Self {
            parents: parents
                .map(|(rev, parent)| (rev, parent.filter(|parent| kept.contains(parent))))
                .collect(),
        }
    }
}

proptest! {
    #[test]
    fn a_tree_is_the_union_of_its_paths((history, edits, _) in history_and_edits()) {
        let tree = grown(&history, &edits);
        let model = Model::grown(&history, &edits);
        prop_assert_eq!(&Model::of(&tree), &model);
        let leaves: BTreeSet<Rev> = tree.leaves().iter().map(|leaf| leaf.rev.to_rev()).collect();
        prop_assert_eq!(&leaves, &model.leaves());
        for leaf in tree.leaves() {
            let lineage: Vec<Rev> = tree.path_revisions(&leaf.rev.to_rev()).unwrap().into_iter().map(|(rev, _)| rev).collect();
            prop_assert_eq!(lineage, model.lineage(&leaf.rev.to_rev()));
        }
    }

    #[test]
    fn the_order_of_merges_does_not_matter((history, edits, _) in history_and_edits(), seed in any::<u64>()) {
        let mut shuffled = edits.clone();
        shuffled.sort_by_key(|(at, length)| (*at as u64 + 31 * *length as u64).wrapping_mul(seed | 1));
        let (tree, other) = (grown(&history, &edits), grown(&history, &shuffled));
        prop_assert_eq!(Model::of(&tree), Model::of(&other));
        prop_assert_eq!(tree.leaves(), other.leaves());
        prop_assert_eq!(tree.winner(), other.winner());
    }

    #[test]
    fn merging_trees_is_commutative_associative_and_idempotent(
        (history, some, others) in history_and_edits(), cut in any::<prop::sample::Index>()
    ) {
        let merged = |trees: &[&RevTree]| {
            let mut tree = RevTree::new();
            for other in trees {
                tree.merge_tree(other);
                check(&tree);
            }
            tree
        };
        let (first, second) = some.split_at(cut.index(some.len()));
        let (a, b, c) = (grown(&history, first), grown(&history, second), grown(&history, &others));
        prop_assert_eq!(merged(&[&a, &c]), merged(&[&c, &a]));
        prop_assert_eq!(merged(&[&merged(&[&a, &b]), &c]), merged(&[&a, &merged(&[&b, &c])]));
        prop_assert_eq!(&merged(&[&c, &c]), &c);
        let all: Vec<Edit> = some.iter().chain(&others).copied().collect();
        prop_assert_eq!(Model::of(&merged(&[&a, &b, &c])), Model::grown(&history, &all));
    }

    #[test]
    fn what_a_merge_answers_is_what_it_did((history, edits, _) in history_and_edits()) {
        let mut tree = RevTree::new();
        for (at, length) in edits {
            let before = Model::of(&tree);
            let had_body = tree.get(&history.rev(at)).is_some_and(|node| node.revision.is_some());
            let merged = tree.merge(&history.path(at, length), history.revision(at));
            let (now, rev) = (Model::of(&tree), history.rev(at));
            let known = before.parents.contains_key(&rev);
            // The nearest ancestor that existed before.
            let ancestor = now.lineage(&rev).into_iter().find(|rev| before.parents.contains_key(rev));
            let extends = ancestor.is_some_and(|ancestor| before.leaves().contains(&ancestor));
            let expected = match (known, extends || before.parents.is_empty()) {
                (true, _) if !had_body => MergeResult::NewBody,
                (true, _) if now != before => MergeResult::NewAncestors,
                (true, _) => MergeResult::Known,
                (false, true) => MergeResult::NewLeaf,
                (false, false) => MergeResult::NewBranch,
            };
            prop_assert_eq!(merged, expected);
        }
    }

    #[test]
    fn the_winner_is_the_first_leaf((history, edits, _) in history_and_edits()) {
        let tree = grown(&history, &edits);
        let leaves = tree.leaves();
        prop_assert_eq!(tree.winner(), leaves.first().copied());
        for pair in leaves.windows(2) {
            let (better, worse) = (pair[0], pair[1]);
            let by_rev = better.rev > worse.rev;
            prop_assert!(!better.revision.deleted && worse.revision.deleted
                || better.revision.deleted == worse.revision.deleted && by_rev);
        }
    }

    #[test]
    fn stemming_keeps_what_a_leaf_needs((history, edits, _) in history_and_edits(), limit in 1..6_u64) {
        let mut tree = grown(&history, &edits);
        let model = Model::of(&tree);
        let kept = model.leaves().iter().flat_map(|leaf| model.lineage(leaf).into_iter().take(limit as usize)).collect();
        let expected = model.restricted(&kept);
        tree.stem(limit);
        check(&tree);
        prop_assert_eq!(Model::of(&tree), expected);
    }

    #[test]
    fn purging_keeps_what_the_other_leaves_need(
        (history, edits, _) in history_and_edits(), drawn in prop::collection::vec(0..24_usize, 0..6)
    ) {
        let mut tree = grown(&history, &edits);
        let model = Model::of(&tree);
        let revs: Vec<Rev> = drawn.iter().map(|at| history.rev(at % history.parents.len())).collect();
        let (doomed, left): (Vec<Rev>, Vec<Rev>) = model.leaves().into_iter().partition(|leaf| revs.contains(leaf));
        let kept = left.iter().flat_map(|leaf| model.lineage(leaf)).collect();
        let expected = model.restricted(&kept);
        let mut removed = tree.remove_leaves(&revs);
        removed.sort_unstable();
        check(&tree);
        prop_assert_eq!(removed, doomed);
        prop_assert_eq!(Model::of(&tree), expected);
    }

    #[test]
    fn latest_revisions_are_the_leaves_whose_path_holds_the_revision((history, edits, _) in history_and_edits()) {
        let tree = grown(&history, &edits);
        let model = Model::of(&tree);
        for rev in model.parents.keys() {
            let expected: Vec<Leaf<'_>> =
                tree.leaves().into_iter().filter(|leaf| model.lineage(&leaf.rev.to_rev()).contains(rev)).collect();
            prop_assert_eq!(tree.latest_of(rev), expected);
        }
        // Of many at once, each leaf comes with the first of its ancestors.
        let revs: Vec<Rev> = model.parents.keys().rev().chain(model.parents.keys()).cloned().collect();
        let mut seen = std::collections::HashSet::new();
        for (rev, latest) in revs.iter().zip(tree.latest_of_each(&revs)) {
            let mut expected = tree.latest_of(rev);
            expected.retain(|leaf| seen.insert(leaf.rev.to_rev()));
            prop_assert_eq!(latest, Some(expected));
        }
        prop_assert!(tree.latest_of_each(&[rev("99-z")])[0].is_none());
    }

    #[test]
    fn decoding_any_bytes_gives_a_sound_tree_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = RevTree::stored_leaf_bytes(&bytes);
        if let Ok(tree) = RevTree::decode(&bytes) {
            check(&tree);
        }
    }

    #[test]
    fn decoding_damaged_trees_gives_a_sound_tree_or_an_error(
        (history, edits, _) in history_and_edits(), at in any::<prop::sample::Index>(), byte in any::<u8>()
    ) {
        let mut bytes = Vec::new();
        grown(&history, &edits).encode(&mut bytes);
        let at = at.index(bytes.len());
        bytes[at] = byte;
        let _ = RevTree::stored_leaf_bytes(&bytes);
        if let Ok(tree) = RevTree::decode(&bytes) {
            check(&tree);
            let mut again = Vec::new();
            tree.encode(&mut again);
            prop_assert_eq!(again, bytes);
        }
    }

    #[test]
    fn made_up_ids_never_break_a_tree(
        paths in prop::collection::vec((0..6_u64, prop::collection::vec(0..4_u8, 0..6)), 1..20)
    ) {
        // Ids that do not determine their ancestry, from so small a set that they contradict one
        // another.
        let mut tree = RevTree::new();
        for (seq, (start, ids)) in paths.iter().enumerate() {
            let ids = ids.iter().map(|id| RevHash::parse(&id.to_string())).collect();
            tree.merge(&RevPath { start: *start, ids }, body(seq as u64));
            check(&tree);
        }
    }
}
