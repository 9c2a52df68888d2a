//! The access to one document: the sets of its leaves, and what each principal saw last.

use super::codec::{put_rev, put_slice, take_principal, take_rev};
use super::principal::{Principal, Principals};
use super::set::{AccessSet, ENTRY_BYTES};
use crate::rev::{Rev, RevRef};
use crate::tree::{RevPath, RevTree};
use crate::varint::{put, take};

/// A leaf with its access set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeafAccess {
    /// The leaf.
    pub rev: Rev,
    /// The principals that may read and write it.
    pub set: AccessSet,
}

/// The last change of a document that a principal saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The principal.
    pub principal: Principal,
    /// The update seq of the change.
    pub seq: u64,
    /// Leaves that it could read and that something took away, which it may not read.
    pub removed: Vec<Rev>,
}

impl Grant {
    /// Returns its length, about, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let removed = self.removed.iter();
        let removed: usize = removed
            .map(|rev| rev.hash.as_bytes().len() + ENTRY_BYTES)
            .sum();
        self.principal.as_str().len() + ENTRY_BYTES + removed
    }
}

/// The access to one document. It is a pure function of the document's edits and purges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DocAccess {
    /// The leaves, winner first.
    pub leaves: Vec<LeafAccess>,
    /// By principal.
    pub grants: Vec<Grant>,
}

/// The part of a document that a feed shows a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shown {
    /// Nothing: the document was never visible.
    Nothing,
    /// The leaves that the user may read.
    Document {
        /// Leaves that the user could read, which were taken away.
        removed: Vec<Rev>,
    },
    /// Nothing any more. Holds the leaves that the user could read.
    Removed(Vec<Rev>),
}

impl DocAccess {
    /// Returns the access to a leaf.
    pub fn leaf(&self, rev: RevRef<'_>) -> Option<&LeafAccess> {
        self.leaves.iter().find(|leaf| leaf.rev.as_ref() == rev)
    }

    /// Returns whether a user may read a leaf.
    pub fn may_read(&self, rev: RevRef<'_>, user: &Principals) -> bool {
        self.leaf(rev).is_some_and(|leaf| leaf.set.may_read(user))
    }

    /// Returns the grants of a user.
    pub fn grants_of<'a>(&'a self, user: &'a Principals) -> impl Iterator<Item = &'a Grant> {
        let grants = self.grants.iter();
        grants.filter(move |grant| user.contains(&grant.principal))
    }

    /// Makes the leaves those of the tree. Leaves whose sets are unknown are only for admins.
    pub fn reconcile(&mut self, tree: &RevTree) {
        let leaves = tree.leaves();
        let is_same = leaves.len() == self.leaves.len()
            && (leaves.iter().zip(&self.leaves)).all(|(leaf, own)| own.rev.as_ref() == leaf.rev);
        if !is_same {
            self.leaves = self.leaves_of(tree, None, &AccessSet::default());
        }
    }

    /// Returns the leaves of the tree. `set` is that of the revision `added`.
    pub(super) fn leaves_of(
        &self,
        tree: &RevTree,
        added: Option<&Rev>,
        set: &AccessSet,
    ) -> Vec<LeafAccess> {
        let leaf = |rev: RevRef<'_>| {
            let known = self.leaf(rev).map(|leaf| leaf.set.clone());
            let set = match added {
                Some(added) if added.as_ref() == rev => set.clone(),
                _ => known.unwrap_or_default(),
            };
            LeafAccess {
                rev: rev.to_rev(),
                set,
            }
        };
        let leaves = tree.leaves();
        leaves.iter().map(|found| leaf(found.rev)).collect()
    }

    /// Returns what a feed shows a user of the document, which has this tree.
    pub fn shown_to(&self, tree: &RevTree, user: &Principals) -> Shown {
        let mut removed: Vec<Rev> = vec![];
        for rev in self.grants_of(user).flat_map(|grant| &grant.removed) {
            if !removed.contains(rev) {
                removed.push(rev.clone());
            }
        }
        let readable = self.leaves.iter().filter(|leaf| leaf.set.may_read(user));
        let readable: Vec<&Rev> = readable.map(|leaf| &leaf.rev).collect();
        let winner = self.leaves.first();
        if winner.is_some_and(|leaf| leaf.set.may_read(user)) {
            removed.retain(|rev| {
                let latest = tree.latest_of(rev);
                !(latest.iter()).any(|leaf| readable.iter().any(|one| Rev::as_ref(one) == leaf.rev))
            });
            return Shown::Document { removed };
        }
        if removed.is_empty() {
            return Shown::Nothing;
        }
        for rev in readable {
            if !removed.contains(rev) {
                removed.push(rev.clone());
            }
        }
        Shown::Removed(removed)
    }

    /// Appends the stored form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put(self.leaves.len() as u64, out);
        for leaf in &self.leaves {
            put_rev(&leaf.rev, out);
            leaf.set.encode(out);
        }
        put(self.grants.len() as u64, out);
        for grant in &self.grants {
            put_slice(grant.principal.as_str().as_bytes(), out);
            put(grant.seq, out);
            put(grant.removed.len() as u64, out);
            grant.removed.iter().for_each(|rev| put_rev(rev, out));
        }
    }

    /// Decodes the stored form; `None` when it is invalid.
    pub fn decode(stored: &[u8]) -> Option<DocAccess> {
        let mut rest = stored;
        let mut access = DocAccess::default();
        for _ in 0..take(&mut rest)? {
            access.leaves.push(LeafAccess {
                rev: take_rev(&mut rest)?,
                set: AccessSet::decode(&mut rest)?,
            });
        }
        for _ in 0..take(&mut rest)? {
            let (principal, seq) = (take_principal(&mut rest)?, take(&mut rest)?);
            let count = take(&mut rest)?;
            let removed = (0..count)
                .map(|_| take_rev(&mut rest))
                .collect::<Option<_>>();
            access.grants.push(Grant {
                principal,
                seq,
                removed: removed?,
            });
        }
        rest.is_empty().then_some(access)
    }
}

/// Returns whether a revision is on a path.
pub(super) fn is_on(path: &RevPath, rev: &Rev) -> bool {
    let at = path.start.checked_sub(rev.generation);
    let at = at.and_then(|at| usize::try_from(at).ok());
    at.and_then(|at| path.ids.get(at)) == Some(&rev.hash)
}
