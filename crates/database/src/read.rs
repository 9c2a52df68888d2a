//! Reading single documents, and writing them as JSON.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use document::attachment::write_stubs;
use document::{
    Attachment, DocId, Rev, RevPath, RevTree, Revision, StoredBody, with_members, write_json_string,
};
use storage::{Record, Shard, View, local_rev};

use crate::Error;
use crate::attachments::{self, ContentPlacement};
use crate::database::Database;
use crate::seq::write_u64;

/// Options of a read.
#[derive(Clone, Debug, Default)]
pub struct ReadOptions {
    /// This revision instead of the winner.
    pub rev: Option<Rev>,
    /// The leaf that `rev` has become.
    pub latest: bool,
    /// Add `_revisions`.
    pub revs: bool,
    /// At most this number of them.
    pub revs_max: Option<usize>,
    /// Add `_revs_info`; ignored with `rev`.
    pub revs_info: bool,
    /// Add `_conflicts`.
    pub conflicts: bool,
    /// Add `_deleted_conflicts`.
    pub deleted_conflicts: bool,
    /// Add `_local_seq`.
    pub local_seq: bool,
    /// Which attachments' bytes are wanted.
    pub attachments: AttachmentSelection,
    /// Show how gzipped attachments are stored.
    pub att_encoding_info: bool,
    /// Several revisions come in the order of their ids.
    pub sorted: bool,
}

/// The attachments whose bytes a reader of documents needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AttachmentSelection {
    /// None: stubs.
    #[default]
    None,
    /// All of them.
    All,
    /// Attachments that were added after the latest of these revisions that is an ancestor.
    Since(Arc<HashSet<Rev>>),
}

/// Number of revisions that functions of design documents see in `_revisions`.
pub(crate) const FUNCTION_REVS_MAX: usize = 20;

impl ReadOptions {
    /// A document as functions of design documents see it.
    pub fn for_functions() -> ReadOptions {
        ReadOptions {
            revs: true,
            revs_max: Some(FUNCTION_REVS_MAX),
            conflicts: true,
            ..ReadOptions::default()
        }
    }

    /// Returns whether the read needs the tree of revisions, rather than only the winner.
    pub fn needs_tree(&self) -> bool {
        self.rev.is_some()
            || self.revs
            || self.revs_info
            || self.conflicts
            || self.deleted_conflicts
            || self.local_seq
            || self.att_encoding_info
            || self.attachments != AttachmentSelection::None
    }

    /// Returns whether the read examines each ancestor, in a row of its own.
    pub fn reads_ancestors(&self) -> bool {
        self.revs_info && self.rev.is_none()
    }
}

/// A document ready to send: complete JSON text, no newline.
#[derive(Clone, Debug)]
pub struct ReadDoc {
    /// Its document.
    pub id: DocId,
    /// Which revision it is.
    pub rev: Rev,
    /// It is a tombstone.
    pub deleted: bool,
    /// The text.
    pub json: Vec<u8>,
    /// Whether the JSON depends on other revisions, so that this one's id does not identify it.
    pub tells_more: bool,
    /// The revision's attachments. When bytes are requested ([`ReadOptions::attachments`]), `json`
    /// is without the member `_attachments`, for [`Database::json_with_bytes`] or the reader to
    /// add.
    pub attachments: Vec<ReadAttachment>,
}

/// An attachment of a document that was read.
#[derive(Clone, Debug)]
pub struct ReadAttachment {
    /// Its stored form.
    pub attachment: Attachment,
    /// Whether its bytes are requested.
    pub wanted: bool,
}

/// The result of reading a document.
#[derive(Debug)]
pub enum Read {
    /// The document.
    Found(ReadDoc),
    /// No such document or revision.
    Missing,
    /// The winner is a tombstone.
    Deleted,
}

/// The revisions that `open_revs` requests.
#[derive(Clone, Debug)]
pub enum RevSelection {
    /// All leaves.
    All,
    /// The given revisions.
    List(Vec<Rev>),
}

impl Database {
    /// One document, also a design or local one.
    pub fn read(&self, id: &DocId, options: &ReadOptions) -> Result<Read, Error> {
        self.live()?;
        self.if_live(self.read_now(id, options))
    }

    /// Appends the text of a stored document that is not local, as [`Database::read`] returns it
    /// without options. Returns whether it exists.
    pub(crate) fn write_text(&self, id: &str, out: &mut Vec<u8>) -> Result<bool, Error> {
        self.live()?;
        let written = self.shard_for(id).winner(id, |head, body| {
            if head.deleted {
                return Ok(false);
            }
            let written = write_winner(id, &head.winner.to_rev(), body, out);
            written.map(|_| true).ok_or(CORRUPT)
        });
        let written = written.and_then(|found| found.unwrap_or(Ok(false)));
        self.if_live(written.map_err(Error::from))
    }

    fn read_now(&self, id: &DocId, options: &ReadOptions) -> Result<Read, Error> {
        self.check_partitioned(id.as_str())?;
        let shard = self.shard_for(id.as_str());
        if id.is_local() {
            return read_local(shard, id.as_str(), id, options);
        }
        if !options.needs_tree() {
            return read_winner(shard, id);
        }
        let options = &*self.within_revs_limit(options);
        loop {
            let Some(record) = shard.record(id.as_str())? else {
                return Ok(Read::Missing);
            };
            let Some((rev, revision)) = wanted(&record.tree, options) else {
                return Ok(Read::Missing);
            };
            if options.rev.is_none() && revision.deleted {
                return Ok(Read::Deleted);
            }
            match render(
                Bodies::Now(shard),
                id,
                &record,
                rev.clone(),
                revision,
                options,
            )? {
                Some(doc) => return Ok(Read::Found(doc)),
                None if !record.tree.is_leaf(&rev) => return Ok(Read::Missing),
                // Compacted away since the record was read: a newer record names where the body is now.
                None if shard
                    .record(id.as_str())?
                    .is_some_and(|r| r.seq == record.seq) =>
                {
                    return Err(storage::Error::Corrupt("document body").into());
                }
                None => {}
            }
        }
    }

    /// Applies a lowered `_revs_limit` immediately to a longer history, as CouchDB does.
    pub(crate) fn within_revs_limit<'o>(&self, options: &'o ReadOptions) -> Cow<'o, ReadOptions> {
        if !options.revs {
            return Cow::Borrowed(options);
        }
        let limit = usize::try_from(self.revs_limit()).unwrap_or(usize::MAX);
        let revs_max = options.revs_max.map_or(limit, |max| max.min(limit));
        Cow::Owned(ReadOptions {
            revs_max: Some(revs_max),
            ..options.clone()
        })
    }
}

/// Returns the revision that a read requests.
pub(crate) fn wanted(tree: &RevTree, options: &ReadOptions) -> Option<(Rev, Revision)> {
    let Some(rev) = &options.rev else {
        let winner = tree.winner()?;
        return Some((winner.rev.to_rev(), winner.revision));
    };
    if options.latest
        && let Some(leaf) = tree.latest_of(rev).first()
    {
        return Some((leaf.rev.to_rev(), leaf.revision));
    }
    let node = tree.get(rev)?;
    Some((node.rev.to_rev(), node.revision?))
}

fn read_winner(shard: &Shard, id: &DocId) -> Result<Read, Error> {
    let found = shard.winner(id.as_str(), |head, body| {
        if head.deleted {
            return Some(Read::Deleted);
        }
        let rev = head.winner.to_rev();
        let mut json = vec![];
        let attachments = write_winner(id.as_str(), &rev, body, &mut json)?;
        Some(Read::Found(ReadDoc {
            id: id.clone(),
            rev,
            deleted: false,
            json,
            tells_more: false,
            attachments: not_wanted(attachments),
        }))
    })?;
    match found {
        None => Ok(Read::Missing),
        Some(read) => Ok(read.ok_or(CORRUPT)?),
    }
}

/// Appends a document of one revision; `None` when its attachments do not decode.
fn write_winner(id: &str, rev: &Rev, body: &[u8], out: &mut Vec<u8>) -> Option<Vec<Attachment>> {
    let stored = StoredBody::split(body);
    with_members(id, rev, false, stored.json, out);
    let attachments = stored.attachments()?;
    write_stubs(&attachments, out);
    out.push(b'}');
    Some(attachments)
}

/// Reads a local document, which has one revision without ancestors. It is stored under the id
/// `stored`.
pub(crate) fn read_local(
    shard: &Shard,
    stored: &str,
    id: &DocId,
    options: &ReadOptions,
) -> Result<Read, Error> {
    let Some((n, body)) = shard.local(stored)? else {
        return Ok(Read::Missing);
    };
    let rev = local_rev(n);
    if options.rev.as_ref().is_some_and(|asked| *asked != rev) {
        return Ok(Read::Missing);
    }
    let mut json = Vec::with_capacity(body.len() + 64);
    with_members(id.as_str(), &rev, false, &body, &mut json);
    if options.revs {
        json.extend_from_slice(
            format!(",\"_revisions\":{{\"start\":0,\"ids\":[\"{n}\"]}}").as_bytes(),
        );
    }
    json.push(b'}');
    Ok(Read::Found(ReadDoc {
        id: id.clone(),
        rev,
        deleted: false,
        json,
        tells_more: false,
        attachments: vec![],
    }))
}

/// Where the bodies of a document's revisions are read.
#[derive(Clone, Copy)]
pub(crate) enum Bodies<'a> {
    /// As they are now.
    Now(&'a Shard),
    /// As of a view of the shard.
    Of(&'a View, &'a Shard),
}

impl Bodies<'_> {
    /// Calls `f` with the body that the change at `seq` brought; `None` when compaction removed it.
    fn with<R>(self, seq: u64, f: impl FnOnce(&[u8]) -> R) -> Result<Option<R>, storage::Error> {
        match self {
            Bodies::Now(shard) => shard.with_body(seq, f),
            Bodies::Of(view, shard) => view.with_body(shard, seq, f),
        }
    }

    /// Returns whether the body that the change at `seq` brought is still there. It is not read.
    fn has(self, seq: u64) -> Result<bool, storage::Error> {
        match self {
            Bodies::Now(shard) => shard.has_body(seq),
            Bodies::Of(view, shard) => view.has_body(shard, seq),
        }
    }
}

/// Returns the text of a revision that is in the record's tree; `None` when its body was removed.
pub(crate) fn render(
    bodies: Bodies<'_>,
    id: &DocId,
    record: &Record,
    rev: Rev,
    revision: Revision,
    options: &ReadOptions,
) -> Result<Option<ReadDoc>, Error> {
    let written = bodies.with(revision.seq, |body| {
        let stored = StoredBody::split(body);
        let mut out = Vec::with_capacity(body.len() + 256);
        with_members(id.as_str(), &rev, revision.deleted, stored.json, &mut out);
        (out, stored.attachments())
    })?;
    let Some((mut out, attachments)) = written else {
        return Ok(None);
    };
    if options.revs {
        write_revisions(&record.tree, &rev, options.revs_max, &mut out);
    }
    let own = out.len();
    if options.reads_ancestors() {
        write_revs_info(bodies, &record.tree, &rev, &mut out)?;
    }
    if options.local_seq {
        out.extend_from_slice(b",\"_local_seq\":");
        write_u64(record.seq, &mut out);
    }
    if options.rev.is_none() {
        if options.conflicts {
            write_leaves("_conflicts", &record.tree, &rev, false, &mut out);
        }
        if options.deleted_conflicts {
            write_leaves("_deleted_conflicts", &record.tree, &rev, true, &mut out);
        }
    }
    let tells_more = out.len() > own;
    let attachments = options.wanted(&record.tree, &rev, attachments.ok_or(CORRUPT)?);
    if options.attachments == AttachmentSelection::None {
        write_attachments(&attachments, options.att_encoding_info, &mut out);
    }
    out.push(b'}');
    Ok(Some(ReadDoc {
        id: id.clone(),
        rev,
        deleted: revision.deleted,
        json: out,
        tells_more,
        attachments,
    }))
}

const CORRUPT: storage::Error = storage::Error::Corrupt("attachments");

fn not_wanted(attachments: Vec<Attachment>) -> Vec<ReadAttachment> {
    let not_wanted = |attachment| ReadAttachment {
        attachment,
        wanted: false,
    };
    attachments.into_iter().map(not_wanted).collect()
}

impl ReadOptions {
    fn wanted(&self, tree: &RevTree, rev: &Rev, all: Vec<Attachment>) -> Vec<ReadAttachment> {
        let since = match &self.attachments {
            AttachmentSelection::None => return not_wanted(all),
            _ if all.is_empty() => return vec![],
            AttachmentSelection::All => None,
            AttachmentSelection::Since(revs) => Some(known_since(tree, rev, revs)),
        };
        all.into_iter()
            .map(|attachment| ReadAttachment {
                wanted: since.is_none_or(|since| attachment.revpos.unwrap_or(0) > since),
                attachment,
            })
            .collect()
    }
}

/// The generation of the latest of `revs` that is the revision or an ancestor of it; 0 without one.
fn known_since(tree: &RevTree, rev: &Rev, revs: &HashSet<Rev>) -> u64 {
    let Some(path) = tree.path(rev) else {
        return 0;
    };
    if revs.len() <= path.ids.len() {
        let is_ancestor = |rev: &&Rev| {
            let at = path.start.checked_sub(rev.generation);
            let at = at.and_then(|at| usize::try_from(at).ok());
            at.and_then(|at| path.ids.get(at)) == Some(&rev.hash)
        };
        let known = revs.iter().filter(is_ancestor).map(|rev| rev.generation);
        return known.max().unwrap_or(0);
    }
    let generations = (0..=path.start).rev();
    let mut path = path.ids.into_iter().zip(generations);
    let known = path.find_map(|(hash, generation)| {
        let is_known = revs.contains(&Rev { generation, hash });
        is_known.then_some(generation)
    });
    known.unwrap_or(0)
}

/// Appends the member `_attachments`, all as stubs.
fn write_attachments(attachments: &[ReadAttachment], encoding_info: bool, out: &mut Vec<u8>) {
    for (i, read) in attachments.iter().enumerate() {
        out.extend_from_slice(match i {
            0 => b",\"_attachments\":{".as_slice(),
            _ => b",",
        });
        read.attachment
            .write_json(document::AttachmentForm::Stub, encoding_info, out);
    }
    if !attachments.is_empty() {
        out.push(b'}');
    }
}

impl Database {
    /// Returns a document's text with the requested bytes in Base64. All of it is held in memory.
    /// Blocks.
    pub fn json_with_bytes(&self, doc: &ReadDoc, encoding_info: bool) -> Result<Vec<u8>, Error> {
        let mut json = vec![];
        let whole = ContentPlacement::default();
        self.write_with_bytes(doc, encoding_info, &whole, &mut json)?;
        Ok(json)
    }

    /// Appends a document's text with the requested bytes in Base64, which are placed in this way.
    /// Blocks.
    pub(crate) fn write_with_bytes(
        &self,
        doc: &ReadDoc,
        encoding_info: bool,
        placement: &ContentPlacement,
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        out.extend_from_slice(doc.json.strip_suffix(b"}").unwrap_or(&doc.json));
        let contents = self.contents_of(doc.id.as_str());
        let shown = (doc.attachments.iter()).map(|read| (&read.attachment, read.wanted));
        attachments::write_attachments(shown, encoding_info, (contents, placement), out)?;
        out.push(b'}');
        Ok(())
    }
}

fn write_revisions(tree: &RevTree, rev: &Rev, max: Option<usize>, out: &mut Vec<u8>) {
    if let Some(path) = tree.path(rev) {
        write_path(&path, max, out);
    }
}

/// Appends the member `_revisions`.
pub(crate) fn write_path(path: &RevPath, max: Option<usize>, out: &mut Vec<u8>) {
    out.extend_from_slice(b",\"_revisions\":{\"start\":");
    write_u64(path.start, out);
    out.extend_from_slice(b",\"ids\":[");
    for (i, hash) in path.ids.iter().take(max.unwrap_or(usize::MAX)).enumerate() {
        if i > 0 {
            out.push(b',');
        }
        hash.write_json_to(out);
    }
    out.extend_from_slice(b"]}");
}

/// Which ancestors can still be read: until compaction, most.
fn write_revs_info(
    bodies: Bodies<'_>,
    tree: &RevTree,
    rev: &Rev,
    out: &mut Vec<u8>,
) -> Result<(), Error> {
    out.extend_from_slice(b",\"_revs_info\":[");
    let path = tree.path_revisions(rev).unwrap_or_default();
    for (i, (rev, revision)) in path.iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        let status = match revision {
            None => "missing",
            Some(r) if !bodies.has(r.seq)? => "missing",
            Some(r) if r.deleted => "deleted",
            Some(_) => "available",
        };
        out.extend_from_slice(b"{\"rev\":");
        rev.write_json_to(out);
        out.extend_from_slice(b",\"status\":");
        write_json_string(status, out);
        out.push(b'}');
    }
    out.push(b']');
    Ok(())
}

/// Appends the leaves other than `winner` that are deleted or not, when there are any.
pub(crate) fn write_leaves(
    member: &str,
    tree: &RevTree,
    winner: &Rev,
    deleted: bool,
    out: &mut Vec<u8>,
) {
    let leaves = tree.leaves();
    let others = leaves
        .iter()
        .filter(|l| l.revision.deleted == deleted && l.rev.to_rev() != *winner);
    for (i, leaf) in others.enumerate() {
        if i == 0 {
            out.extend_from_slice(b",");
            write_json_string(member, out);
            out.extend_from_slice(b":[");
        } else {
            out.truncate(out.len() - 1);
            out.push(b',');
        }
        leaf.rev.write_json_to(out);
        out.push(b']');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_known_ancestor_is_found_among_few_and_many_revisions() {
        let rev = |generation: u64, branch: &str| {
            Rev::parse(&format!("{generation}-{generation:x}{branch}")).unwrap()
        };
        let ids = (1..=50).rev().map(|generation| rev(generation, "a").hash);
        let path = RevPath {
            start: 50,
            ids: ids.collect(),
        };
        let mut tree = RevTree::new();
        let revision = Revision {
            deleted: false,
            seq: 1,
            size: 2,
        };
        tree.merge(&path, revision);
        let others = |n: u64| (0..n).map(|n| rev(1 + n % 60, "b"));
        for many in [0, 3, 1000] {
            let since = |known: &[u64]| {
                let known = known.iter().map(|generation| rev(*generation, "a"));
                known_since(&tree, &rev(50, "a"), &known.chain(others(many)).collect())
            };
            assert_eq!(since(&[]), 0);
            assert_eq!(since(&[7, 30, 12]), 30);
            assert_eq!(since(&[50]), 50);
            assert_eq!(since(&[51, 1]), 1);
        }
        assert_eq!(known_since(&tree, &rev(50, "b"), &others(9).collect()), 0);
    }
}
