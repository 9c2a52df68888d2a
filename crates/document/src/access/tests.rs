use proptest::prelude::*;

use super::change::{LOST_MAX, REMOVED_BYTES_MAX};
use super::*;
use crate::rev::{Rev, RevHash};
use crate::tree::{RevPath, RevTree};
use crate::{MergeResult, Revision};

/// A document, changed by admins.
#[derive(Default)]
struct World {
    tree: RevTree,
    access: DocAccess,
    seq: u64,
}

/// A random edit.
#[derive(Clone, Copy, Debug)]
struct Step {
    kind: Kind,
    /// Which leaf.
    leaf: usize,
    /// The principals that may read, one bit each.
    readers: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Edit,
    Branch,
    Delete,
    Purge,
}

fn set_of(readers: u8) -> AccessSet {
    let names = [r#""a""#, r#""b""#, r#""role:r""#];
    let chosen = names.iter().enumerate();
    let chosen = chosen.filter(|(bit, _)| readers & (1 << bit) != 0);
    let chosen: Vec<&str> = chosen.map(|(_, name)| *name).collect();
    let body = format!(r#"{{"_access":[{}]}}"#, chosen.join(","));
    AccessSet::of_body(body.as_bytes()).unwrap()
}

fn users() -> [Principals; 4] {
    [
        Principals::of(Some("a"), []),
        Principals::of(Some("b"), []),
        Principals::of(Some("c"), ["r"]),
        Principals::of(Some("b"), ["r"]),
    ]
}

impl World {
    fn step(&mut self, step: Step) {
        let leaves: Vec<Rev> = self.access.leaves.iter().map(|l| l.rev.clone()).collect();
        let leaf = (!leaves.is_empty()).then(|| leaves[step.leaf % leaves.len()].clone());
        let hash = RevHash::parse(&format!("{:08x}", self.seq + 1));
        let path = match (leaf, step.kind) {
            (Some(leaf), Kind::Purge) => {
                self.tree.remove_leaves(&[leaf]);
                self.seq += 1;
                self.access.change(self.seq, &self.tree, None);
                return;
            }
            (Some(leaf), Kind::Edit | Kind::Delete) => RevPath {
                start: leaf.generation + 1,
                ids: vec![hash, leaf.hash],
            },
            _ => RevPath {
                start: 1 + step.leaf as u64 % 3,
                ids: vec![hash],
            },
        };
        let deleted = step.kind == Kind::Delete;
        let set = set_of(step.readers);
        let edit = AccessEdit {
            basis: EditBasis::Replicated(&path),
            deleted,
            design: false,
            set: &set,
        };
        let AccessVerdict::Write(set) = self.access.judge(&self.tree, &edit, None) else {
            panic!("an admin may write everything");
        };
        self.seq += 1;
        let revision = Revision {
            deleted,
            seq: self.seq,
            size: 1,
        };
        assert_ne!(self.tree.merge(&path, revision), MergeResult::Known);
        let rev = path.newest().unwrap();
        self.access.change(self.seq, &self.tree, Some((&rev, &set)));
    }

    /// Leaves that a user sees; none if the winner is hidden.
    fn visible(&self, user: &Principals) -> Vec<Rev> {
        let may_read = |leaf: &&LeafAccess| leaf.set.may_read(user);
        if !self
            .access
            .leaves
            .first()
            .is_some_and(|leaf| may_read(&leaf))
        {
            return vec![];
        }
        let seen = self.access.leaves.iter().filter(may_read);
        seen.map(|leaf| leaf.rev.clone()).collect()
    }
}

/// A client that replicates the document continuously, as one user.
struct Client {
    user: Principals,
    since: u64,
    tree: RevTree,
}

impl Client {
    fn pull(&mut self, world: &World) {
        let seqs = world.access.grants_of(&self.user).map(|grant| grant.seq);
        let Some(seq) = seqs.max().filter(|seq| *seq > self.since) else {
            return;
        };
        self.since = seq;
        let removed = match world.access.shown_to(&world.tree, &self.user) {
            Shown::Nothing => vec![],
            Shown::Document { removed } | Shown::Removed(removed) => removed,
        };
        for rev in world.visible(&self.user) {
            let revision = world.tree.get(&rev).unwrap().revision.unwrap();
            self.tree.merge(&world.tree.path(&rev).unwrap(), revision);
        }
        for rev in removed {
            let mut path = world
                .tree
                .path(&rev)
                .unwrap_or(RevPath::single(rev.clone()));
            path.start += 1;
            path.ids
                .insert(0, RevHash::parse(&format!("removed {rev}")));
            let revision = Revision {
                deleted: true,
                seq,
                size: 1,
            };
            self.tree.merge(&path, revision);
        }
    }

    /// Leaves that are not deleted.
    fn live(&self) -> Vec<Rev> {
        let leaves = self.tree.leaves();
        let live = leaves.iter().filter(|leaf| !leaf.revision.deleted);
        live.map(|leaf| leaf.rev.to_rev()).collect()
    }
}

fn steps(purges: bool) -> impl Strategy<Value = Vec<Step>> {
    let kind = prop_oneof![
        4 => Just(Kind::Edit),
        2 => Just(Kind::Branch),
        1 => Just(Kind::Delete),
        1 => Just(if purges { Kind::Purge } else { Kind::Edit }),
    ];
    let step = (kind, 0usize..4, 0u8..8).prop_map(|(kind, leaf, readers)| Step {
        kind,
        leaf,
        readers,
    });
    prop::collection::vec(step, 1..25)
}

proptest! {
    #[test]
    fn a_client_that_follows_has_nothing_that_its_user_may_not_read(steps in steps(false)) {
        let mut world = World::default();
        let mut clients = users().map(|user| Client {
            user,
            since: 0,
            tree: RevTree::new(),
        });
        for step in steps {
            world.step(step);
            for client in &mut clients {
                client.pull(&world);
                let visible = world.visible(&client.user);
                for rev in client.live() {
                    prop_assert!(visible.contains(&rev), "{rev} after {}", world.seq);
                }
                for rev in &visible {
                    prop_assert!(client.tree.get(rev).is_some(), "{rev} after {}", world.seq);
                }
            }
        }
    }

    #[test]
    fn rows_move_as_grants_do_and_nothing_is_left_of_a_purged_document(steps in steps(true)) {
        let mut world = World::default();
        let mut rows = std::collections::BTreeSet::new();
        for step in steps {
            let mut before = world.access.clone();
            world.step(step);
            // The same change, for its moves.
            let kept: Vec<_> = world.access.leaves.iter().collect();
            let added = kept.iter().find(|leaf| before.leaf(leaf.rev.as_ref()).is_none());
            let added = added.map(|leaf| (&leaf.rev, &leaf.set));
            for moved in before.change(world.seq, &world.tree, added) {
                if let Some(from) = moved.from {
                    prop_assert!(rows.remove(&(moved.principal.clone(), from)));
                }
                if let Some(to) = moved.to {
                    prop_assert!(rows.insert((moved.principal, to)));
                }
            }
            prop_assert_eq!(&before, &world.access);
            let grants = world.access.grants.iter();
            let granted = grants.map(|grant| (grant.principal.clone(), grant.seq)).collect();
            prop_assert_eq!(&rows, &granted);
            let mut stored = vec![];
            world.access.encode(&mut stored);
            let decoded = DocAccess::decode(&stored);
            prop_assert_eq!(decoded.as_ref(), Some(&world.access));
            if world.tree.is_empty() {
                prop_assert_eq!(&world.access, &DocAccess::default());
            }
        }
    }

    #[test]
    fn stored_access_that_is_damaged_is_refused(bytes: Vec<u8>) {
        if let Some(access) = DocAccess::decode(&bytes) {
            let mut again = vec![];
            access.encode(&mut again);
            prop_assert_eq!(again, bytes);
        }
    }
}

#[test]
fn members_that_are_no_access_sets_are_refused() {
    for value in [
        "1",
        r#""a""#,
        "[1]",
        r#"["group:a"]"#,
        r#"["role:"]"#,
        r#"{"read":1}"#,
        r#"{"reads":[]}"#,
    ] {
        let body = format!(r#"{{"_access":{value}}}"#);
        assert!(AccessSet::of_body(body.as_bytes()).is_err(), "{value}");
    }
    let many = [r#""a""#; ACCESS_PRINCIPALS_MAX + 1].join(",");
    let body = format!(r#"{{"_access":[{many}]}}"#);
    assert_eq!(
        AccessSet::of_body(body.as_bytes()),
        Err(AccessError::TooMany)
    );
}

#[test]
fn an_edit_needs_write_before_and_after_it() {
    let mut world = World::default();
    world.step(Step {
        kind: Kind::Edit,
        leaf: 0,
        readers: 1,
    });
    let leaf = world.access.leaves[0].rev.clone();
    let [a, b, ..] = users();
    let judge = |basis, deleted, readers, writer| {
        let set = set_of(readers);
        let edit = AccessEdit {
            basis,
            deleted,
            design: false,
            set: &set,
        };
        world.access.judge(&world.tree, &edit, Some(writer))
    };
    let of_leaf = EditBasis::Interactive(Some(&leaf));
    assert_eq!(
        judge(of_leaf, false, 3, &a),
        AccessVerdict::Write(set_of(3))
    );
    assert_eq!(judge(of_leaf, false, 2, &a), AccessVerdict::NotWriterAfter);
    assert_eq!(judge(of_leaf, true, 0, &a), AccessVerdict::Write(set_of(1)));
    // Others learn no more than that the id is taken.
    assert_eq!(judge(of_leaf, false, 2, &b), AccessVerdict::Conflict);
    let of_none = EditBasis::Interactive(None);
    assert_eq!(judge(of_none, false, 2, &b), AccessVerdict::Conflict);
    let root = RevPath::single(Rev::parse("9-f").unwrap());
    let taking_over = EditBasis::Replicated(&root);
    assert_eq!(judge(taking_over, false, 2, &b), AccessVerdict::NotWriter);
    // Whether a hidden revision exists makes no difference to a stranger.
    let existing = RevPath::single(leaf.clone());
    let existing = EditBasis::Replicated(&existing);
    assert_eq!(judge(existing, false, 2, &b), AccessVerdict::NotWriter);
    let known = AccessVerdict::Known(leaf.clone());
    assert_eq!(judge(existing, false, 2, &a), known);
}

#[test]
fn an_edit_of_a_losing_leaf_needs_write_on_the_winner() {
    let mut world = World::default();
    // Of both users, with a branch of the second one, and a winner of the first one.
    for (leaf, readers) in [(0, 3), (1, 2), (2, 1)] {
        world.step(Step {
            kind: Kind::Branch,
            leaf,
            readers,
        });
    }
    let leaves: Vec<_> = world.access.leaves.iter().map(|l| l.rev.clone()).collect();
    assert_eq!(leaves[0].generation, 3);
    let [a, b, ..] = users();
    let set = set_of(3);
    for (leaf, writer, verdict) in [
        (&leaves[0], &a, AccessVerdict::Write(set_of(3))),
        (&leaves[1], &a, AccessVerdict::Conflict),
        (&leaves[2], &a, AccessVerdict::Write(set_of(3))),
        (&leaves[1], &b, AccessVerdict::Conflict),
        (&leaves[2], &b, AccessVerdict::Conflict),
    ] {
        let edit = AccessEdit {
            basis: EditBasis::Interactive(Some(leaf)),
            deleted: false,
            design: false,
            set: &set,
        };
        let judged = world.access.judge(&world.tree, &edit, Some(writer));
        assert_eq!(judged, verdict, "{leaf}");
        let path = RevPath {
            start: leaf.generation + 1,
            ids: vec![RevHash::parse("ffffffff"), leaf.hash.clone()],
        };
        let edit = AccessEdit {
            basis: EditBasis::Replicated(&path),
            ..edit
        };
        let judged = world.access.judge(&world.tree, &edit, Some(writer));
        let is_written = matches!(judged, AccessVerdict::Write(_));
        assert_eq!(
            is_written,
            matches!(verdict, AccessVerdict::Write(_)),
            "{leaf}"
        );
    }
}

#[test]
fn what_is_kept_of_those_who_lost_a_document_is_bounded() {
    let mut access = DocAccess::default();
    let mut tree = RevTree::new();
    let mut ids = vec![];
    for edit in 0..20_u64 {
        let names: Vec<String> = (0..100).map(|n| format!(r#""u{edit}-{n}""#)).collect();
        let body = format!(r#"{{"_access":[{}]}}"#, names.join(","));
        let set = AccessSet::of_body(body.as_bytes()).unwrap();
        ids.insert(0, RevHash::parse(&format!("{edit:08x}")));
        let path = RevPath {
            start: edit + 1,
            ids: ids.clone(),
        };
        let revision = Revision {
            deleted: false,
            seq: edit + 1,
            size: 1,
        };
        tree.merge(&path, revision);
        let moves = access.change(edit + 1, &tree, Some((&path.newest().unwrap(), &set)));
        assert!(moves.len() <= 300, "{}", moves.len());
    }
    assert_eq!(access.grants.len(), LOST_MAX + 100);
    // The oldest are gone.
    let seqs = access.grants.iter().map(|grant| grant.seq);
    assert_eq!(seqs.min(), Some(11));
}

fn rev(text: &str) -> Rev {
    Rev::parse(text).unwrap()
}

/// Adds a root revision, by an admin.
fn add_root(world: &mut World, root: &str, set: &AccessSet) {
    world.seq += 1;
    let revision = Revision {
        deleted: false,
        seq: world.seq,
        size: 1,
    };
    let root = rev(root);
    world.tree.merge(&RevPath::single(root.clone()), revision);
    let added = Some((&root, set));
    world.access.change(world.seq, &world.tree, added);
}

#[test]
fn a_path_that_joins_branches_needs_write_on_each_leaf_that_it_names() {
    let mut world = World::default();
    for (root, readers) in [("5-c", 3), ("3-b", 1), ("1-a", 2)] {
        add_root(&mut world, root, &set_of(readers));
    }
    let [a, ..] = users();
    let set = set_of(3);
    let verdict = |ids: &[&str]| {
        let path = RevPath {
            start: 4,
            ids: ids.iter().map(|id| RevHash::parse(id)).collect(),
        };
        let edit = AccessEdit {
            basis: EditBasis::Replicated(&path),
            deleted: false,
            design: false,
            set: &set,
        };
        world.access.judge(&world.tree, &edit, Some(&a))
    };
    assert_eq!(verdict(&["d", "b"]), AccessVerdict::Write(set_of(3)));
    // The leaf at its end is another user's.
    assert_eq!(verdict(&["d", "b", "m", "a"]), AccessVerdict::NotWriter);
}

#[test]
fn the_access_sets_of_all_leaves_are_bounded_together() {
    let named = |count: usize| {
        let long = "x".repeat(400);
        let names: Vec<String> = (0..count).map(|n| format!(r#""{n}{long}""#)).collect();
        let body = format!(r#"{{"_access":[{}]}}"#, names.join(","));
        AccessSet::of_body(body.as_bytes()).unwrap()
    };
    let (long, short) = (named(250), named(1));
    let mut world = World::default();
    add_root(&mut world, "1-a", &long);
    let judge = |basis, set: &AccessSet| {
        let edit = AccessEdit {
            basis,
            deleted: false,
            design: false,
            set,
        };
        world.access.judge(&world.tree, &edit, None)
    };
    let write = |set: &AccessSet| AccessVerdict::Write(set.clone());
    let (leaf, branch) = (rev("1-a"), RevPath::single(rev("1-b")));
    let (edit, branch) = (
        EditBasis::Interactive(Some(&leaf)),
        EditBasis::Replicated(&branch),
    );
    assert_eq!(judge(branch, &long), AccessVerdict::TooLong);
    assert_eq!(judge(branch, &short), write(&short));
    // It takes the place of the leaf.
    assert_eq!(judge(edit, &long), write(&long));
    // What exists is never refused.
    let known = RevPath::single(leaf.clone());
    assert_eq!(judge(EditBasis::Replicated(&known), &long), write(&long));
}

#[test]
fn removed_leaves_are_bounded_for_all_principals_together() {
    let (mut world, rounds, leaves) = (World::default(), 8, 40);
    for round in 0..rounds {
        let names: Vec<String> = (0..30).map(|n| format!(r#""u{round}-{n}""#)).collect();
        let body = format!(r#"{{"_access":[{}]}}"#, names.join(","));
        let set = AccessSet::of_body(body.as_bytes()).unwrap();
        let generation = 2 * round + 1;
        let hash = |leaf: u64| format!("{:032x}", 1000 * round + leaf);
        for leaf in 0..leaves {
            add_root(&mut world, &format!("{generation}-{}", hash(leaf)), &set);
        }
        for leaf in 0..leaves {
            world.seq += 1;
            let hashes = [hash(leaf + 500), hash(leaf)];
            let path = RevPath {
                start: generation + 1,
                ids: hashes.iter().map(|hash| RevHash::parse(hash)).collect(),
            };
            let revision = Revision {
                deleted: false,
                seq: world.seq,
                size: 1,
            };
            world.tree.merge(&path, revision);
            let (hiding, nobody) = (path.newest().unwrap(), AccessSet::default());
            let added = Some((&hiding, &nobody));
            world.access.change(world.seq, &world.tree, added);
        }
    }
    let grants = &world.access.grants;
    let bytes: usize = grants.iter().map(Grant::bytes).sum();
    assert!(bytes <= REMOVED_BYTES_MAX, "{bytes}");
    let last = format!("u{}-", rounds - 1);
    let newest = grants
        .iter()
        .filter(|grant| grant.principal.as_str().starts_with(&last));
    let removed: Vec<usize> = newest.map(|grant| grant.removed.len()).collect();
    assert_eq!(removed, vec![leaves as usize; 30]);
}

proptest! {
    #[test]
    fn an_index_finds_the_documents_that_a_user_may_read_each_once_unless_readers_overlap(
        readers in prop::collection::vec(0_usize..6, 0..6),
        name in 0_usize..3,
        roles in 0_usize..4,
    ) {
        let all = ["al", "bob", "role:a", "role:b", "role:_users", "*"];
        let readers: Vec<String> = readers.iter().map(|n| format!("{:?}", all[*n])).collect();
        let body = format!(r#"{{"_access":[{}]}}"#, readers.join(","));
        let set = AccessSet::of_body(body.as_bytes()).unwrap();
        let name = [None, Some("al"), Some("bob")][name];
        let roles = ["a", "b"].iter().enumerate().filter(|(n, _)| roles & (1 << n) != 0);
        let user = Principals::of(name, roles.map(|(_, role)| *role));
        let found = set.index_readers();
        let count = found.principals.iter().filter(|one| user.contains(one)).count();
        prop_assert_eq!(count > 0, set.may_read(&user));
        prop_assert!(count <= 1 || found.overlap);
    }
}
