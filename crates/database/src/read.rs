//! Reading single documents, and writing them as JSON.

use document::{DocId, Rev, RevPath, RevTree, Revision, with_members, write_json_string};
use storage::{Record, Shard, local_rev};

use crate::Error;
use crate::database::Database;
use crate::seq::write_u64;

#[derive(Clone, Debug, Default)]
pub struct ReadOptions {
    /// This revision instead of the winner.
    pub rev: Option<Rev>,
    /// The leaf that `rev` has become.
    pub latest: bool,
    /// Add `_revisions`.
    pub revs: bool,
    /// At most so many of them.
    pub revs_max: Option<usize>,
    /// Add `_revs_info`; ignored with `rev`.
    pub revs_info: bool,
    pub conflicts: bool,
    pub deleted_conflicts: bool,
    pub local_seq: bool,
}

/// So many revisions do functions of design documents see in `_revisions`.
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

    fn needs_tree(&self) -> bool {
        self.rev.is_some()
            || self.revs
            || self.revs_info
            || self.conflicts
            || self.deleted_conflicts
            || self.local_seq
    }
}

/// A document ready to send: complete JSON text, no newline.
#[derive(Clone, Debug)]
pub struct ReadDoc {
    pub rev: Rev,
    pub deleted: bool,
    pub json: Vec<u8>,
    /// The JSON also tells of other revisions, so that this one's id does not identify it.
    pub tells_more: bool,
}

#[derive(Debug)]
pub enum Read {
    Found(ReadDoc),
    Missing,
    /// The winner is a tombstone.
    Deleted,
}

/// Which revisions `open_revs` asks for.
pub enum WhichRevs {
    /// All leaves.
    All,
    List(Vec<Rev>),
}

impl Database {
    /// One document, also a design or local one.
    pub fn read(&self, id: &DocId, options: &ReadOptions) -> Result<Read, Error> {
        self.live()?;
        self.check_id(id.as_str())?;
        let shard = self.shard_for(id.as_str());
        if id.is_local() {
            return read_local(shard, id);
        }
        if !options.needs_tree() {
            return read_winner(shard, id);
        }
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
            match shard.body(revision.seq)? {
                Some(body) => {
                    let doc = render(shard, id, &record, rev, revision, &body, options)?;
                    return Ok(Read::Found(doc));
                }
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

    /// Revisions of a document: `Err` holds one that is missing. `None`: there is no such document at all.
    pub fn open_revs(
        &self,
        id: &DocId,
        which: &WhichRevs,
        options: &ReadOptions,
    ) -> Result<Option<Vec<Result<ReadDoc, Rev>>>, Error> {
        self.live()?;
        self.check_id(id.as_str())?;
        let shard = self.shard_for(id.as_str());
        let Some(record) = shard.record(id.as_str())? else {
            return Ok(None);
        };
        let mut revs = vec![];
        match which {
            WhichRevs::All => revs.extend(record.tree.leaves().iter().map(|l| l.rev.to_rev())),
            WhichRevs::List(list) => {
                for rev in list {
                    if !options.latest {
                        revs.push(rev.clone());
                        continue;
                    }
                    let latest = record.tree.latest_of(rev);
                    let latest = latest.iter().map(|l| l.rev.to_rev());
                    let known = revs.len();
                    revs.extend(latest);
                    if revs.len() == known {
                        revs.push(rev.clone());
                    }
                }
                dedup(&mut revs);
            }
        }
        revs.into_iter()
            .map(|rev| open_rev(shard, id, &record, rev, options))
            .collect::<Result<_, _>>()
            .map(Some)
    }
}

fn dedup(revs: &mut Vec<Rev>) {
    let mut seen = std::collections::HashSet::new();
    revs.retain(|r| seen.insert(r.clone()));
}

fn open_rev(
    shard: &Shard,
    id: &DocId,
    record: &Record,
    rev: Rev,
    options: &ReadOptions,
) -> Result<Result<ReadDoc, Rev>, Error> {
    let Some(revision) = record.tree.get(&rev).and_then(|n| n.revision) else {
        return Ok(Err(rev));
    };
    let Some(body) = shard.body(revision.seq)? else {
        return Ok(Err(rev));
    };
    render(shard, id, record, rev, revision, &body, options).map(Ok)
}

fn wanted(tree: &RevTree, options: &ReadOptions) -> Option<(Rev, Revision)> {
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
            return Read::Deleted;
        }
        let rev = head.winner.to_rev();
        let mut json = Vec::with_capacity(body.len() + id.as_str().len() + 64);
        with_members(id, &rev, false, body, &mut json);
        json.push(b'}');
        Read::Found(ReadDoc {
            rev,
            deleted: false,
            json,
            tells_more: false,
        })
    })?;
    Ok(found.unwrap_or(Read::Missing))
}

fn read_local(shard: &Shard, id: &DocId) -> Result<Read, Error> {
    let Some((n, body)) = shard.local(id.as_str())? else {
        return Ok(Read::Missing);
    };
    let rev = local_rev(n);
    let mut json = Vec::with_capacity(body.len() + 64);
    with_members(id, &rev, false, &body, &mut json);
    json.push(b'}');
    Ok(Read::Found(ReadDoc {
        rev,
        deleted: false,
        json,
        tells_more: false,
    }))
}

fn render(
    shard: &Shard,
    id: &DocId,
    record: &Record,
    rev: Rev,
    revision: Revision,
    body: &[u8],
    options: &ReadOptions,
) -> Result<ReadDoc, Error> {
    let mut out = Vec::with_capacity(body.len() + 256);
    with_members(id, &rev, revision.deleted, body, &mut out);
    if options.revs {
        write_revisions(&record.tree, &rev, options.revs_max, &mut out);
    }
    let own = out.len();
    if options.revs_info && options.rev.is_none() {
        write_revs_info(shard, &record.tree, &rev, &mut out)?;
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
    out.push(b'}');
    Ok(ReadDoc {
        rev,
        deleted: revision.deleted,
        json: out,
        tells_more,
    })
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
    shard: &Shard,
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
            Some(r) if !shard.has_body(r.seq)? => "missing",
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
