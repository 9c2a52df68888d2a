//! Decides which edits of a database with access their writer may make, before they are validated.
//!
//! The commit decides again, by the revisions of that moment. The decision here keeps functions and
//! stubs of attachments from showing parts of documents that the writer may not read.

use std::borrow::Cow;
use std::sync::Arc;

use document::json::member;
use document::{
    ACCESS_MEMBER, AccessEdit, AccessSet, AccessVerdict, DocAccess, DocId, EditBasis, EditDoc,
    Principals, Rev, RevPath, StoredBody, nearest_known, parse_document, write_json_string,
};
use storage::{Record, Shard, View};

use crate::Error;
use crate::database::Database;
use crate::leaf_limit::access_too_long;
use crate::reader::Reader;
use crate::update::{EditMode, NOT_A_WRITER, Outcome, blocking};

/// More edits are judged on a thread for slow work.
const JUDGED_HERE_MAX: usize = 16;

/// The reason of an edit after which its writer could not write the document.
const NOT_A_WRITER_AFTER: &str =
    "your edit would take away your right to write this document: name yourself in `_access`";

/// Edits that may be made, and an outcome for each edit: `None` for those that may be made.
pub(crate) type AdmittedEdits = (Vec<EditDoc>, Vec<Option<Outcome>>);

impl Database {
    /// Divides edits into those that `writer` may make and the outcomes of the others. Without a
    /// `writer`, all documents may be written.
    pub(crate) async fn admit(
        self: &Arc<Self>,
        edits: Vec<EditDoc>,
        mode: EditMode,
        writer: Option<&Reader>,
    ) -> Result<AdmittedEdits, Error> {
        let (db, writer) = (self.clone(), writer.cloned());
        let is_short = edits.len() <= JUDGED_HERE_MAX;
        let judge = move || db.admit_now(edits, mode, writer.as_ref());
        match is_short {
            true => judge(),
            false => blocking(judge).await,
        }
    }

    fn admit_now(
        &self,
        edits: Vec<EditDoc>,
        mode: EditMode,
        writer: Option<&Reader>,
    ) -> Result<AdmittedEdits, Error> {
        let mut views: Vec<Option<View>> = self.all_shards().iter().map(|_| None).collect();
        let mut admitted = Vec::with_capacity(edits.len());
        let mut outcomes = Vec::with_capacity(edits.len());
        for mut edit in edits {
            let refusal = match edit.id.clone() {
                Some(id) => self.refusal(&mut views, &id, &mut edit, mode, writer)?,
                None => None,
            };
            if refusal.is_none() {
                admitted.push(edit);
            }
            outcomes.push(refusal);
        }
        Ok((admitted, outcomes))
    }

    /// Returns the outcome of an edit that may not be made. A local document of a user gets the id
    /// under which it is stored.
    fn refusal(
        &self,
        views: &mut [Option<View>],
        id: &DocId,
        edit: &mut EditDoc,
        mode: EditMode,
        writer: Option<&Reader>,
    ) -> Result<Option<Outcome>, Error> {
        if id.is_local() {
            if let Some(writer) = writer {
                edit.id = Some(writer.own_local(id)?);
            }
            return Ok(None);
        }
        let path = edit.rev_path();
        if mode == EditMode::Replicated
            && let Some(rev) = self.brought_back(id, path.as_ref())
        {
            return Ok(Some(Outcome::Ok { rev }));
        }
        if let Some(writer) = writer.filter(|_| mode == EditMode::Interactive && path.is_none()) {
            own(edit, id, writer)?;
        }
        let set = match AccessSet::of_body(&edit.body) {
            Ok(set) => set,
            Err(e) => return Ok(Some(refused("bad_request", e.to_string()))),
        };
        let Some(writer) = writer else {
            return Ok(None);
        };
        let index = self.shard_index(id.as_str());
        let (shard, view) = (&self.all_shards()[index], &mut views[index]);
        let view = self.opened(shard, view)?;
        let record = view.record(shard, id.as_str())?.unwrap_or_default();
        let mut access = view.access(shard, id.as_str())?;
        access.reconcile(&record.tree);
        let parent = path.as_ref().and_then(RevPath::newest);
        let basis = match (mode, &path) {
            (EditMode::Interactive, _) => EditBasis::Interactive(parent.as_ref()),
            (EditMode::Replicated, Some(path)) => EditBasis::Replicated(path),
            // The commit has its own error for it.
            (EditMode::Replicated, None) => return Ok(None),
        };
        let judged = AccessEdit {
            basis,
            deleted: edit.deleted,
            design: id.is_design(),
            set: &set,
        };
        let verdict = access.judge(&record.tree, &judged, Some(writer.user()));
        if let (AccessVerdict::Write(_), EditBasis::Replicated(path)) = (&verdict, basis) {
            let document = Judged {
                view,
                shard,
                record: &record,
                access: &access,
            };
            if document.hides_parent(path, writer.user())? {
                return Ok(Some(refused("forbidden", NOT_A_WRITER)));
            }
        }
        Ok(outcome_of(verdict))
    }

    /// Returns the view of a shard, which is opened for the first edit of one of its documents.
    fn opened<'v>(&self, shard: &Shard, view: &'v mut Option<View>) -> Result<&'v View, Error> {
        let opened = match view.take() {
            Some(opened) => opened,
            None => self.if_live(shard.view().map_err(Error::from))?,
        };
        Ok(view.insert(opened))
    }

    /// Returns the removal revision that a replicated edit brings back, if it is one. It is accepted,
    /// and never written: also an admin may replicate from the device of a user who lost the
    /// document, which must not be deleted for all others by that.
    fn brought_back(&self, id: &DocId, path: Option<&RevPath>) -> Option<Rev> {
        let key = &self.access()?.key;
        let rev = path?.newest()?;
        key.is_removal(id.as_str(), &rev).then_some(rev)
    }
}

/// Returns the outcome of an edit that is not written.
fn outcome_of(verdict: AccessVerdict) -> Option<Outcome> {
    match verdict {
        AccessVerdict::Write(_) => None,
        AccessVerdict::Known(rev) => Some(Outcome::Ok { rev }),
        AccessVerdict::Conflict => Some(Outcome::Conflict),
        AccessVerdict::NotWriter => Some(refused("forbidden", NOT_A_WRITER)),
        AccessVerdict::NotWriterAfter => Some(refused("forbidden", NOT_A_WRITER_AFTER)),
        AccessVerdict::TooLong => Some(access_too_long()),
    }
}

/// Adds its writer to a new document without `_access`, in a database with this default.
///
/// # Errors
/// The body is not valid, which it was when it was parsed.
fn own(edit: &mut EditDoc, id: &DocId, writer: &Reader) -> Result<(), Error> {
    let Some(owner) = writer.owner().filter(|_| !id.is_design() && !edit.deleted) else {
        return Ok(());
    };
    if member(&edit.body, ACCESS_MEMBER).is_some() {
        return Ok(());
    }
    let mut json = format!("{{\"{ACCESS_MEMBER}\":[").into_bytes();
    write_json_string(owner, &mut json);
    json.push(b']');
    let members = edit.body.strip_prefix(b"{").unwrap_or_default();
    if members != b"}" {
        json.push(b',');
    }
    json.extend_from_slice(members);
    let owned = parse_document(&json).map_err(|e| Error::BadRequest(e.to_string()))?;
    (edit.body, edit.body_term) = (owned.body, owned.body_term);
    Ok(())
}

/// A document of which edits are judged.
struct Judged<'a> {
    view: &'a View,
    shard: &'a Shard,
    record: &'a Record,
    access: &'a DocAccess,
}

impl Judged<'_> {
    /// Returns whether a user may not read the revision that functions would see as the parent of a
    /// replicated one, or whose attachments stubs would keep. That is the first with a body among
    /// the ancestors that the edit names, and among those that the tree has.
    fn hides_parent(&self, path: &RevPath, user: &Principals) -> Result<bool, Error> {
        let tree = &self.record.tree;
        let generations = (0..=path.start).rev();
        let named = path.ids.iter().zip(generations).skip(1);
        let named = named.map(|(hash, generation)| Rev {
            generation,
            hash: hash.clone(),
        });
        if self.hides_first(named, user)? {
            return Ok(true);
        }
        let nearest = nearest_known(tree, path);
        let of_tree = nearest.and_then(|rev| tree.path_revisions(&rev));
        let of_tree = of_tree.into_iter().flatten().map(|(rev, _)| rev);
        self.hides_first(of_tree, user)
    }

    /// Returns whether a user may not read the first of these revisions that has a body.
    fn hides_first(
        &self,
        revs: impl Iterator<Item = Rev>,
        user: &Principals,
    ) -> Result<bool, Error> {
        for rev in revs {
            if let Some(may_read) = self.may_read(&rev, user)? {
                return Ok(!may_read);
            }
        }
        Ok(false)
    }

    /// Returns whether a user may read a revision; `None` when it has no body.
    fn may_read(&self, rev: &Rev, user: &Principals) -> Result<Option<bool>, Error> {
        let Some(node) = self.record.tree.get(rev) else {
            return Ok(None);
        };
        if node.is_leaf {
            return Ok(Some(self.access.may_read(rev.as_ref(), user)));
        }
        let Some(revision) = node.revision else {
            return Ok(None);
        };
        let may_read = |body: &[u8]| {
            let body = StoredBody::split(body);
            let access = AccessSet::of_body(body.json);
            // As most tombstones, which have no `_access`.
            let is_empty = body.json == b"{}" && body.attachments.is_empty();
            is_empty || access.is_ok_and(|access| access.may_read(user))
        };
        Ok(self.view.with_body(self.shard, revision.seq, may_read)?)
    }
}

fn refused(error: &'static str, reason: impl Into<Cow<'static, str>>) -> Outcome {
    Outcome::Refused(error.into(), reason.into())
}
