//! Edits as the writer takes them, and their application to a document's record.

use std::borrow::Cow;

use document::rev::GENERATION_MAX;
use document::{
    Attachment, DocId, Merged, Rev, RevPath, RevTree, Revision, body_term, revision_id,
};

use crate::contents::Content;
use crate::keys::ShardNumber;
use crate::record::Record;

/// How an edit relates to what is stored.
#[derive(Clone, Debug)]
pub enum Change {
    /// The client edits `parent` (none: a new document); `rev` is the id computed for that.
    Interactive {
        /// The leaf that it is based on; `None` for a new document.
        parent: Option<Rev>,
        /// The new revision.
        rev: Rev,
        /// Erlang term of the body, where it cannot be made again from the stored text: for the id of an edit that recreates a
        /// deleted document.
        body_term: Option<Vec<u8>>,
    },
    /// The client brings a revision with its ancestry (`new_edits=false`).
    Replicated {
        /// The revision and its ancestors.
        path: RevPath,
    },
    /// A local document: its new revision number, or none to delete it.
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
    /// How the revision comes into the tree.
    pub change: Change,
}

impl Edit {
    /// Bytes of body and attachments, as sizes count them.
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
    /// Its content, held until the edit is committed: whoever queued the edit may not wait for that, and let go.
    pub content: Option<Content>,
}

/// Name, type and digest of each attachment, for the revision's id.
pub fn hashed(files: &[File]) -> Vec<(String, String, [u8; 16])> {
    let hashed = |f: &File| {
        let a = &f.attachment;
        (a.name.clone(), a.content_type.clone(), a.md5)
    };
    files.iter().map(hashed).collect()
}

/// What became of an edit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The revision that is there now.
    Written(Rev),
    /// The parent is no leaf, or the document exists.
    Conflict,
}

/// The tree after an edit, when it changes anything.
pub(crate) enum Applied {
    /// A revision was added, or an ancestor's body.
    Added(Rev),
    /// The revision was there already; ancestors of it were added.
    Joined(Rev),
    /// The revision was there already.
    Known(Rev),
    Conflict,
}

/// Applies an edit of a document (not a local one) to its record. Deterministic: the same record and edit
/// give the same result on every replica.
pub(crate) fn apply(record: &mut Record, edit: &Edit, seq: u64, revs_limit: u64) -> Applied {
    let revision = Revision {
        deleted: edit.deleted,
        seq,
        size: edit.size(),
    };
    let path = match &edit.change {
        Change::Replicated { path } => path.clone(),
        Change::Interactive {
            parent,
            rev,
            body_term,
        } => match interactive_path(
            &record.tree,
            parent.as_ref(),
            rev,
            body_term.as_deref(),
            edit,
        ) {
            Some(path) => path,
            None => return Applied::Conflict,
        },
        Change::Local { .. } => return Applied::Conflict,
    };
    let Some(hash) = path.ids.first() else {
        return Applied::Conflict;
    };
    let rev = Rev {
        generation: path.start,
        hash: hash.clone(),
    };
    let before = record.tree.get(&rev).map(|_| record.tree.clone());
    let merged = record.tree.merge(&path, revision);
    if merged == Merged::Known {
        return Applied::Known(rev);
    }
    record.tree.stem(revs_limit);
    // What a long history added may be stemmed away again.
    if before.is_some_and(|before| before == record.tree) {
        return Applied::Known(rev);
    }
    match merged {
        Merged::NewAncestors => Applied::Joined(rev),
        _ => Applied::Added(rev),
    }
}

/// The path of an interactive edit, newest first; `None` is a conflict.
fn interactive_path(
    tree: &RevTree,
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
        // Only a new document may stand on a tombstone: it goes on from the winning one.
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
