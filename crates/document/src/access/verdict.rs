//! Decisions about edits.

use super::doc::{DocAccess, LeafAccess, is_on};
use super::principal::Principals;
use super::set::AccessSet;
use crate::rev::Rev;
use crate::tree::{RevPath, RevTree};

/// Maximum length of the access sets of all leaves of a document together, about, in bytes: each
/// edit and each read by a user decodes all of them.
pub const ACCESS_BYTES_MAX: usize = 256 << 10;

/// An edit, as far as access depends on it.
#[derive(Clone, Copy, Debug)]
pub struct AccessEdit<'a> {
    /// The revisions that it names.
    pub basis: EditBasis<'a>,
    /// It writes a tombstone.
    pub deleted: bool,
    /// It is of a design document.
    pub design: bool,
    /// The set that its body names.
    pub set: &'a AccessSet,
}

/// The revisions that an edit names.
#[derive(Clone, Copy, Debug)]
pub enum EditBasis<'a> {
    /// An edit by a client, of this leaf.
    Interactive(Option<&'a Rev>),
    /// A revision with its ancestors (`new_edits=false`).
    Replicated(&'a RevPath),
}

/// The decision about an edit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessVerdict {
    /// It may be written; the new revision has this set.
    Write(AccessSet),
    /// The revision exists. It stays as it is.
    Known(Rev),
    /// The edit is a conflict; the writer learns nothing more.
    Conflict,
    /// The writer may not write the document.
    NotWriter,
    /// The writer could not write the new revision.
    NotWriterAfter,
    /// The leaves would name too many principals together.
    TooLong,
}

impl DocAccess {
    /// Returns whether a user may know a revision: it is a visible leaf of a visible document, or an
    /// ancestor of one.
    fn shows(&self, tree: &RevTree, rev: &Rev, user: &Principals) -> bool {
        let winner = self.leaves.first();
        let latest = tree.latest_of(rev);
        winner.is_some_and(|leaf| leaf.set.may_read(user))
            && latest.iter().any(|leaf| self.may_read(leaf.rev, user))
    }

    /// Judges an edit of a document with this tree by the principals of its `writer`; `None` stands
    /// for an admin, who may write everything.
    ///
    /// **A writer needs write on the winner too,** so that no edit of another leaf replaces a
    /// winner that its writer may not write, and strangers do not learn which revisions exist.
    pub fn judge(
        &self,
        tree: &RevTree,
        edit: &AccessEdit<'_>,
        writer: Option<&Principals>,
    ) -> AccessVerdict {
        let base = match edit.basis {
            EditBasis::Interactive(Some(parent)) => match self.leaf(parent.as_ref()) {
                Some(leaf) => Some(leaf),
                None => return AccessVerdict::Conflict,
            },
            EditBasis::Interactive(None) => {
                if tree.winner().is_some_and(|winner| !winner.revision.deleted) {
                    return AccessVerdict::Conflict;
                }
                self.leaves.first()
            }
            EditBasis::Replicated(path) => self.extended(tree, path),
        };
        let known = match edit.basis {
            EditBasis::Replicated(path) => path.newest().filter(|rev| tree.get(rev).is_some()),
            EditBasis::Interactive(_) => None,
        };
        if let Some(writer) = writer
            && let Some(verdict) = self.refusal(tree, edit, (base, known.as_ref()), writer)
        {
            return verdict;
        }
        let set = match base {
            _ if edit.design => AccessSet::of_design(),
            Some(leaf) if edit.deleted => leaf.set.clone(),
            _ => edit.set.clone(),
        };
        match known.is_none() && self.outgrows(edit.basis, &set) {
            true => AccessVerdict::TooLong,
            false => AccessVerdict::Write(set),
        }
    }

    /// Returns the verdict about an edit that `writer` may not make, or need not. `base` is the leaf
    /// whose place the edit takes, or the winner; `known` its revision, if that is in the tree.
    fn refusal(
        &self,
        tree: &RevTree,
        edit: &AccessEdit<'_>,
        (base, known): (Option<&LeafAccess>, Option<&Rev>),
        writer: &Principals,
    ) -> Option<AccessVerdict> {
        if let Some(rev) = known
            && self.shows(tree, rev, writer)
        {
            return Some(AccessVerdict::Known(rev.clone()));
        }
        let is_interactive = matches!(edit.basis, EditBasis::Interactive(_));
        // A path can join branches: it takes the place of each leaf that it names.
        let edited = self.leaves.iter().enumerate();
        let edited = edited.filter(|(n, leaf)| *n == 0 || self.replaces(edit.basis, leaf));
        let edited: Vec<&LeafAccess> = edited.map(|(_, leaf)| leaf).collect();
        let may_write = edited.iter().all(|leaf| leaf.set.may_write(writer));
        if !may_write && is_interactive && edited.iter().any(|leaf| !leaf.set.may_read(writer)) {
            return Some(AccessVerdict::Conflict);
        }
        if !may_write || edit.design {
            return Some(AccessVerdict::NotWriter);
        }
        let keeps_write = edit.deleted && base.is_some() || edit.set.may_write(writer);
        if !keeps_write {
            return Some(AccessVerdict::NotWriterAfter);
        }
        known.map(|rev| AccessVerdict::Known(rev.clone()))
    }

    /// Returns whether an edit takes the place of a leaf.
    fn replaces(&self, basis: EditBasis<'_>, leaf: &LeafAccess) -> bool {
        match basis {
            EditBasis::Interactive(Some(parent)) => leaf.rev == *parent,
            EditBasis::Interactive(None) => {
                let winner = self.leaves.first();
                winner.is_some_and(|winner| winner.rev == leaf.rev)
            }
            EditBasis::Replicated(path) => {
                leaf.rev.generation < path.start && is_on(path, &leaf.rev)
            }
        }
    }

    /// Returns whether a new leaf with this set makes the sets of all leaves too long. One that makes
    /// them shorter, or no longer, is always possible.
    fn outgrows(&self, basis: EditBasis<'_>, set: &AccessSet) -> bool {
        let (mut before, mut after) = (0, set.bytes());
        for leaf in &self.leaves {
            let bytes = leaf.set.bytes();
            before += bytes;
            if !self.replaces(basis, leaf) {
                after += bytes;
            }
        }
        after > ACCESS_BYTES_MAX && after > before
    }

    /// Returns the leaf that a replicated revision extends, or the winner if it begins a branch.
    fn extended(&self, tree: &RevTree, path: &RevPath) -> Option<&LeafAccess> {
        let known = nearest_known(tree, path);
        let leaf = known.and_then(|rev| self.leaf(rev.as_ref()));
        leaf.or(self.leaves.first())
    }
}

/// Returns the newest ancestor of a path's first revision that is in the tree.
pub fn nearest_known(tree: &RevTree, path: &RevPath) -> Option<Rev> {
    let generations = (0..=path.start).rev();
    let mut ancestors = path.ids.iter().zip(generations).skip(1);
    ancestors.find_map(|(hash, generation)| {
        let rev = Rev {
            generation,
            hash: hash.clone(),
        };
        tree.get(&rev).is_some().then_some(rev)
    })
}
