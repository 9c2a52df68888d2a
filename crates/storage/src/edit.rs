//! Edits as the writer takes them, and their application to a document's record.

use std::borrow::Cow;
use std::sync::Arc;

use document::rev::GENERATION_MAX;
use document::{
    AccessSet, Attachment, DocId, GraftResult, MergeResult, Principals, Rev, RevHash, RevPath,
    Revision, TreeLimits, body_term, revision_id,
};

use crate::contents::Content;
use crate::keys::ShardNumber;
use crate::tree::Tree;

/// The relation of an edit to the existing revisions.
#[derive(Clone, Debug)]
pub enum Change {
    /// The client edits `parent` (`None`: a new document); `rev` is the id computed for it.
    Interactive {
        /// The leaf that it is based on; `None` for a new document.
        parent: Option<Rev>,
        /// The new revision.
        rev: Rev,
        /// Erlang term of the body, where it cannot be derived from the stored text: for the id of
        /// an edit that recreates a deleted document.
        body_term: Option<Vec<u8>>,
    },
    /// A revision with its ancestry (`new_edits=false`).
    Replicated {
        /// The revision and its ancestors.
        path: RevPath,
    },
    /// A local document: its new revision number, or `None` to delete it.
    Local {
        /// The number of its revision; `None` removes it.
        rev: Option<u64>,
    },
}

/// One edit of one document.
#[derive(Clone, Debug)]
pub struct Edit {
    /// The document.
    pub id: DocId,
    /// The new revision is a tombstone.
    pub deleted: bool,
    /// JSON text, normalised, without underscore members.
    pub body: Vec<u8>,
    /// The attachments that the body names, all of them.
    pub files: Vec<File>,
    /// The shard under which the contents of the document's attachments are.
    pub home: ShardNumber,
    /// The readers and writers of the revision, and its author; without it, in a shard with access,
    /// it is an edit by an admin with an empty set. Not used in other shards.
    pub access: Option<Box<EditAccess>>,
    /// How the revision is added to the tree.
    pub change: Change,
}

/// The access of an edit.
#[derive(Clone, Debug)]
pub struct EditAccess {
    /// The set that its body names.
    pub set: AccessSet,
    /// The principals of its writer; `None` for one who may write everything.
    pub writer: Option<Arc<Principals>>,
}

impl Edit {
    /// Returns its approximate memory and work, in bytes.
    pub(crate) fn cost_bytes(&self) -> usize {
        let text = |hash: &RevHash| match hash {
            RevHash::Md5(_) => 0,
            RevHash::Text(text) => text.len(),
        };
        let change = match &self.change {
            Change::Replicated { path } => {
                let texts: usize = path.ids.iter().map(text).sum();
                texts + path.ids.len() * size_of::<RevHash>()
            }
            Change::Interactive { body_term, .. } => body_term.as_ref().map_or(0, Vec::len),
            Change::Local { .. } => 0,
        };
        self.body.len() + change + 256 * self.files.len() + 64
    }

    /// Returns the bytes of body and attachments, as sizes count them.
    pub(crate) fn size(&self) -> u64 {
        let files = self.files.iter().map(|f| f.attachment.stored_length);
        files.fold(self.body.len() as u64, u64::saturating_add)
    }
}

/// An attachment of an edit.
#[derive(Clone, Debug)]
pub struct File {
    /// Without a `revpos`, it gets the new revision's generation.
    pub attachment: Attachment,
    /// Its content, held until the edit is committed: the caller that queued the edit may not wait
    /// for that, and release it.
    pub content: Option<Content>,
}

/// Returns name, type and digest of each attachment, for the revision's id.
pub fn hashed(files: &[File]) -> Vec<(String, String, [u8; 16])> {
    let hashed = |f: &File| {
        let a = &f.attachment;
        (a.name.clone(), a.content_type.clone(), a.md5)
    };
    files.iter().map(hashed).collect()
}

/// The outcome of an edit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The revision that exists now.
    Written(Rev),
    /// The parent is not a leaf, or the document exists.
    Conflict,
    /// It would exceed the maximum number of leaves of a document ([`crate::Limits::leaves_max`]).
    TooManyLeaves,
    /// Its writer may not write the document, in a shard with access.
    NotPermitted,
}

/// The effect of an edit on the tree.
pub(crate) enum EditEffect {
    /// A revision was added, or an ancestor's body.
    Added(Rev),
    /// The revision existed; ancestors of it were added.
    Joined(Rev),
    /// The revision existed.
    Known(Rev),
    Conflict,
    TooManyLeaves,
}

/// Applies an edit of a document (not a local one) to its tree. Deterministic: the same tree, edit
/// and limits give the same result on every replica.
pub(crate) fn apply(tree: &mut Tree, edit: &Edit, seq: u64, limits: &TreeLimits) -> EditEffect {
    let revision = Revision {
        deleted: edit.deleted,
        seq,
        size: edit.size(),
    };
    let path = match &edit.change {
        Change::Replicated { path } => Cow::Borrowed(path),
        Change::Interactive {
            parent,
            rev,
            body_term,
        } => match interactive_path(tree, parent.as_ref(), rev, body_term.as_deref(), edit) {
            Some(path) => Cow::Owned(path),
            None => return EditEffect::Conflict,
        },
        Change::Local { .. } => return EditEffect::Conflict,
    };
    let Some(rev) = path.newest() else {
        return EditEffect::Conflict;
    };
    match tree.graft(&path, revision, limits) {
        GraftResult::TooManyLeaves => EditEffect::TooManyLeaves,
        GraftResult::Merged(MergeResult::Known) => EditEffect::Known(rev),
        GraftResult::Merged(MergeResult::NewAncestors) => EditEffect::Joined(rev),
        GraftResult::Merged(_) => EditEffect::Added(rev),
    }
}

/// Returns whether an edit may add a revision, or its body, to a document's tree.
pub(crate) fn may_add(tree: &Tree, edit: &Edit) -> bool {
    match &edit.change {
        Change::Replicated { path } => !path.newest().is_some_and(|rev| tree.has_body_of(&rev)),
        Change::Interactive {
            parent,
            rev,
            body_term,
        } => interactive_path(tree, parent.as_ref(), rev, body_term.as_deref(), edit).is_some(),
        Change::Local { .. } => false,
    }
}

/// Returns the path of an interactive edit, newest first; `None` for a conflict.
fn interactive_path(
    tree: &Tree,
    parent: Option<&Rev>,
    rev: &Rev,
    kept_term: Option<&[u8]>,
    edit: &Edit,
) -> Option<RevPath> {
    let last = |rev: &Rev| rev.generation >= GENERATION_MAX;
    if parent.is_some_and(last) {
        return None;
    }
    let path = |rev: &Rev, parent: Option<&Rev>| RevPath {
        start: rev.generation,
        ids: std::iter::once(rev.hash.clone())
            .chain(parent.map(|p| p.hash.clone()))
            .collect(),
    };
    let Some(winner) = tree.winner() else {
        return parent.is_none().then(|| path(rev, None));
    };
    if winner.revision.deleted {
        // Only a new document may follow a tombstone: it continues the winning one.
        if parent.is_some() || edit.deleted {
            return None;
        }
        let tombstone = winner.rev.to_rev();
        if last(&tombstone) {
            return None;
        }
        let term = match kept_term {
            Some(term) => Cow::Borrowed(term),
            None => Cow::Owned(body_term(&edit.body).ok()?),
        };
        let rev = revision_id(false, Some(&tombstone), &term, &hashed(&edit.files));
        return Some(path(&rev, Some(&tombstone)));
    }
    let parent = parent?;
    tree.is_leaf(parent).then(|| path(rev, Some(parent)))
}
