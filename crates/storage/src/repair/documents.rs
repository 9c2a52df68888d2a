//! Copies documents of a damaged shard, as edits of a new store.
//!
//! A document is in two places: its record, which has the whole tree, and the change that lists it,
//! which has all leaves. Changes are read first, so that documents come in the order of feeds. A
//! change whose document has a record that names it yields the document. Then records are read, for
//! those whose change cannot be read. A document that has changes but no readable record is rebuilt
//! from its changes: **leaves without ancestors**.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use document::{AccessSet, DocId, Rev, RevPath, StoredBody};

use super::source::{Loss, Source};
use crate::Error;
use crate::commit::{Committer, ShardEdit};
use crate::contents::Contents;
use crate::edit::{Change, Edit, EditAccess, File};
use crate::keys::{SHARD_LEN, ShardNumber, seq_key, seq_of, shard_end};
use crate::keyspace::Keyspace;
use crate::limits::Limits;
use crate::record::Record;
use crate::row::{Body, Row};
use crate::shard::{Shard, decode_local};
use crate::summary::SeqBits;

/// Edits that are written together, and their approximate size.
const TOGETHER: usize = 500;
const TOGETHER_BYTES: usize = 4 << 20;
/// Maximum number of changes that are requested one by one where a part of them cannot be read.
const PROBES_MAX: u64 = 20_000_000;

/// The destination of a document.
#[derive(Clone)]
pub struct DocumentDestination {
    /// Its shard.
    pub shard: Arc<Shard>,
    /// The contents of its attachments.
    pub contents: Arc<Contents>,
}

/// The saved documents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RescuedDocuments {
    /// Documents, including deleted ones.
    pub documents: u64,
    /// Their revisions with a body.
    pub revisions: u64,
    /// Local documents.
    pub locals: u64,
    /// Attachments of revisions.
    pub attachments: u64,
    /// Documents, or parts of them, that were lost.
    pub losses: u64,
}

/// Copies the documents of a shard.
pub struct DocumentCopy<'a> {
    /// The damaged store.
    pub source: &'a Source,
    /// The shard, and the one under which the contents of its attachments are.
    pub from: (ShardNumber, ShardNumber),
    /// The new store's writer.
    pub committer: &'a Committer,
    /// Returns the destination of a document with this id.
    pub home: &'a dyn Fn(&str) -> DocumentDestination,
    /// The limits of the new database.
    pub limits: Limits,
    /// Called with each loss.
    pub losses: &'a mut dyn FnMut(Loss),
    /// Called after each piece with the number of documents so far.
    pub progress: &'a dyn Fn(u64),
}

impl DocumentCopy<'_> {
    /// Copies everything that can be read.
    ///
    /// # Errors
    /// Errors of the new store.
    pub fn run(self) -> Result<RescuedDocuments, Error> {
        let mut run = Run {
            copy: self,
            saved: RescuedDocuments::default(),
            done: SeqBits::default(),
            orphans: BTreeMap::new(),
            edits: vec![],
            bytes: 0,
            failed: None,
        };
        run.changes();
        run.records();
        run.rebuild();
        run.locals();
        run.flush();
        match run.failed {
            Some(e) => Err(e),
            None => Ok(run.saved),
        }
    }
}

struct Run<'a> {
    copy: DocumentCopy<'a>,
    saved: RescuedDocuments,
    /// Seqs of records whose documents were saved.
    done: SeqBits,
    /// Changes of documents without a readable record.
    orphans: BTreeMap<String, BTreeSet<u64>>,
    edits: Vec<ShardEdit>,
    bytes: usize,
    /// The new store refused something: nothing more is attempted.
    failed: Option<Error>,
}

/// A revision with its body.
struct Revision {
    path: RevPath,
    deleted: bool,
    body: Vec<u8>,
}

/// Returns the access of a rescued revision, in a database with access. A tombstone whose parent
/// is lost is of the admins alone, unless it names others.
fn access_of(home: &DocumentDestination, body: &[u8]) -> Option<Box<EditAccess>> {
    home.shard.has_access().then(|| {
        Box::new(EditAccess {
            set: AccessSet::of_body(body).unwrap_or_default(),
            writer: None,
        })
    })
}

impl Run<'_> {
    fn range(&self) -> (Vec<u8>, Vec<u8>) {
        let shard = self.copy.from.0;
        (shard.to_be_bytes().to_vec(), shard_end(shard))
    }

    fn lose(&mut self, document: Option<&str>, what: impl Into<String>) {
        self.saved.losses += 1;
        (self.copy.losses)(Loss {
            document: document.map(str::to_owned),
            what: what.into(),
        });
    }

    fn changes(&mut self) {
        let source = self.copy.source;
        let update_seq = source.meta(self.copy.from.0).update_seq;
        let (low, high) = self.range();
        source.each(Keyspace::BySeq, low, high.clone(), &mut |row| match row {
            Ok((key, value)) => self.change(seq_of(key), value),
            Err((after, before)) => {
                let first = if after.len() < SHARD_LEN + 8 {
                    1
                } else {
                    seq_of(after) + 1
                };
                let end = if *before == *high || before.len() < SHARD_LEN + 8 {
                    update_seq.saturating_add(1)
                } else {
                    seq_of(before).saturating_add(1)
                };
                self.hole(first, end);
            }
        });
    }

    /// Handles changes that a scan cannot reach: each may be readable, since newer ones are in
    /// other files.
    fn hole(&mut self, first: u64, end: u64) {
        let mut lost = 0u64;
        for seq in first..end.min(first.saturating_add(PROBES_MAX)) {
            let key = seq_key(self.copy.from.0, seq);
            match self.copy.source.get(Keyspace::BySeq, &key) {
                Ok(Some(value)) => self.change(seq, &value),
                Ok(None) => {}
                Err(_) => lost += 1,
            }
        }
        if lost > 0 {
            let what = format!(
                "changes from seq {first} to {}: up to {lost} of them cannot be read. Documents whose record can be read are named here if they lost something by it",
                end.saturating_sub(1)
            );
            self.lose(None, what);
        }
    }

    fn change(&mut self, seq: u64, value: &[u8]) {
        if self.done.has(seq) {
            return;
        }
        let Ok(row) = Row::decode(seq, value) else {
            return self.lose(None, format!("the change at seq {seq} cannot be read"));
        };
        match self.copy.source.record(self.copy.from.0, row.id) {
            Ok(Some(record)) if record.seq == seq => {
                self.done.add(seq);
                self.document(row.id, &record);
            }
            Ok(Some(_)) => {}
            Ok(None) | Err(_) => {
                let seqs = self.orphans.entry(row.id.to_owned()).or_default();
                seqs.insert(seq);
            }
        }
    }

    fn records(&mut self) {
        let source = self.copy.source;
        let (low, high) = self.range();
        source.each(Keyspace::ById, low, high, &mut |row| match row {
            Ok((key, value)) => {
                let id = String::from_utf8_lossy(&key[SHARD_LEN..]).into_owned();
                match Record::decode(value) {
                    Ok(record) if !self.done.has(record.seq) => self.document(&id, &record),
                    Ok(_) => {}
                    Err(_) if self.orphans.contains_key(&id) => {}
                    Err(e) => self.lose(Some(&id), format!("its record cannot be read: {e}")),
                }
            }
            Err((after, before)) => {
                let name = |key: &[u8]| match key.get(SHARD_LEN..) {
                    Some(id) => String::from_utf8_lossy(id).trim_end_matches('\0').to_owned(),
                    None => String::new(),
                };
                let what = format!(
                    "records of documents after '{}' and before '{}' cannot be read: those that changes name are saved, without their history",
                    name(after),
                    name(before)
                );
                self.lose(None, what);
            }
        });
    }

    /// Saves a document with its tree.
    fn document(&mut self, id: &str, record: &Record) {
        let mut nodes: Vec<_> = record
            .tree
            .nodes()
            .filter_map(|node| Some((node.rev.to_rev(), node.revision?, node.is_leaf)))
            .collect();
        // Ancestors first: each is a leaf until the next one is added.
        nodes.sort_by_key(|(rev, revision, _)| (rev.generation, revision.seq));
        let mut revisions = vec![];
        for (rev, revision, is_leaf) in nodes {
            let Some(path) = record.tree.path(&rev) else {
                continue;
            };
            let body = self.body(id, revision.seq);
            let body = match body {
                Some(body) => body,
                // That it is deleted is known without a body.
                None if is_leaf && revision.deleted => {
                    self.lose(
                        Some(id),
                        format!("the remaining fields of the deletion {rev}"),
                    );
                    b"{}".to_vec()
                }
                None => {
                    if is_leaf {
                        self.lose(Some(id), format!("revision {rev}"));
                    }
                    continue;
                }
            };
            revisions.push(Revision {
                path,
                deleted: revision.deleted,
                body,
            });
        }
        self.save(id, revisions);
    }

    /// Returns the body of a change of this document.
    fn body(&self, id: &str, seq: u64) -> Option<Vec<u8>> {
        let key = seq_key(self.copy.from.0, seq);
        let source = self.copy.source;
        let value = source.get(Keyspace::BySeq, &key).ok()??;
        let row = Row::decode(seq, &value).ok().filter(|row| row.id == id)?;
        let body = match row.body {
            Body::Inline(body) => body.to_vec(),
            Body::External { len, .. } => {
                let body = source.get(Keyspace::Bodies, &key).ok()??;
                (body.len() as u64 == u64::from(len)).then_some(body)?
            }
            Body::None => return None,
        };
        let json = StoredBody::split(&body).json;
        let is_object = json.starts_with(b"{") && document::normalise(json).is_ok();
        is_object.then_some(body)
    }

    /// Rebuilds documents that changes name but that have no readable record.
    fn rebuild(&mut self) {
        for (id, seqs) in std::mem::take(&mut self.orphans) {
            self.rebuild_one(&id, &seqs);
        }
    }

    /// Returns the leaves after the last of a document's changes, and the changes with their
    /// bodies, as far as can be determined.
    fn leaves_by_changes(&self, seqs: &BTreeSet<u64>) -> (Vec<(Rev, bool)>, BTreeMap<Rev, u64>) {
        let (source, shard) = (self.copy.source, self.copy.from.0);
        let mut leaves: Vec<(Rev, bool)> = vec![];
        let mut bodies: BTreeMap<Rev, u64> = BTreeMap::new();
        for &seq in seqs {
            let Ok(Some(value)) = source.get(Keyspace::BySeq, &seq_key(shard, seq)) else {
                continue;
            };
            let Ok(row) = Row::decode(seq, &value) else {
                continue;
            };
            let winner = row.winner.to_rev();
            let others = row.other_leaves().unwrap_or_default();
            let others = others
                .into_iter()
                .map(|(rev, deleted)| (rev.to_rev(), deleted));
            let now: Vec<(Rev, bool)> = std::iter::once((winner.clone(), row.deleted))
                .chain(others)
                .collect();
            let brought = match row.body {
                Body::None => None,
                _ if row.winner_seq == seq => Some(winner),
                // The one leaf that is new.
                _ => {
                    let mut new = now.iter().filter(|leaf| !leaves.contains(leaf));
                    let one = new.next().map(|(rev, _)| rev.clone());
                    one.filter(|_| new.next().is_none())
                }
            };
            if let Some(rev) = brought {
                bodies.insert(rev, seq);
            }
            leaves = now;
        }
        (leaves, bodies)
    }

    fn rebuild_one(&mut self, id: &str, seqs: &BTreeSet<u64>) {
        let (source, shard) = (self.copy.source, self.copy.from.0);
        let is_listed = seqs.iter().any(|&seq| {
            let marker = source.get(Keyspace::Superseded, &seq_key(shard, seq));
            !matches!(marker, Ok(Some(_)))
        });
        let is_gone = matches!(source.record(shard, id), Ok(None));
        if is_gone && !is_listed {
            // It was purged, and not compacted yet.
            return;
        }
        let (leaves, bodies) = self.leaves_by_changes(seqs);
        if leaves
            .first()
            .is_none_or(|(winner, _)| winner.generation == 0)
        {
            // Its last change is a purge that left nothing.
            return;
        }
        self.lose(Some(id), "its history: its record cannot be read");
        let mut revisions = vec![];
        for (rev, deleted) in leaves {
            let body = bodies.get(&rev).and_then(|seq| self.body(id, *seq));
            let body = match body {
                Some(body) => body,
                None if deleted => b"{}".to_vec(),
                None => {
                    self.lose(Some(id), format!("revision {rev}"));
                    continue;
                }
            };
            let path = RevPath::single(rev);
            revisions.push(Revision {
                path,
                deleted,
                body,
            });
        }
        self.save(id, revisions);
    }

    fn save(&mut self, id: &str, revisions: Vec<Revision>) {
        let Ok(doc_id) = DocId::new(id) else {
            return self.lose(Some(id), "all of it: its id is invalid");
        };
        if revisions.is_empty() {
            return self.lose(Some(id), "all of it: no revision can be read");
        }
        self.saved.documents += 1;
        let home = (self.copy.home)(id);
        for revision in revisions {
            let split = StoredBody::split(&revision.body);
            let files = match self.files(id, &revision.path, &split, &home) {
                Ok(files) => files,
                Err(e) => {
                    self.failed.get_or_insert(e);
                    return;
                }
            };
            self.saved.revisions += 1;
            self.push(ShardEdit {
                shard: home.shard.clone(),
                edit: Edit {
                    id: doc_id.clone(),
                    deleted: revision.deleted,
                    body: split.json.to_vec(),
                    files,
                    home: home.contents.home(),
                    access: access_of(&home, split.json),
                    change: Change::Replicated {
                        path: revision.path,
                    },
                },
            });
        }
    }

    /// Returns the attachments of a revision whose contents are stored.
    fn files(
        &mut self,
        id: &str,
        path: &RevPath,
        body: &StoredBody<'_>,
        home: &DocumentDestination,
    ) -> Result<Vec<File>, Error> {
        let rev = path
            .newest()
            .map_or_else(String::new, |rev| rev.to_string());
        let Some(attachments) = body.attachments() else {
            self.lose(Some(id), format!("the attachments of revision {rev}"));
            return Ok(vec![]);
        };
        let mut files = vec![];
        for attachment in attachments {
            let from = self.copy.from.1;
            let content = self
                .copy
                .source
                .content(from, &attachment.content, &home.contents)?;
            match content {
                Some(content) => {
                    self.saved.attachments += 1;
                    files.push(File {
                        attachment,
                        content: Some(content),
                    });
                }
                None => self.lose(
                    Some(id),
                    format!("attachment '{}' of revision {rev}", attachment.name),
                ),
            }
        }
        Ok(files)
    }

    fn locals(&mut self) {
        let source = self.copy.source;
        let (low, high) = self.range();
        source.each(Keyspace::Local, low, high, &mut |row| {
            let Ok((key, value)) = row else {
                return self.lose(
                    None,
                    "local documents that cannot be read, as are checkpoints of replications",
                );
            };
            let id = String::from_utf8_lossy(&key[SHARD_LEN..]).into_owned();
            let body = decode_local(value).ok();
            let body = body
                .filter(|(_, body)| body.starts_with(b"{") && document::normalise(body).is_ok());
            let (Some((rev, body)), Ok(doc_id)) = (body, DocId::new(&id)) else {
                return self.lose(Some(&id), "the local document");
            };
            self.saved.locals += 1;
            let home = (self.copy.home)(&id);
            self.push(ShardEdit {
                shard: home.shard.clone(),
                edit: Edit {
                    id: doc_id,
                    deleted: false,
                    body: body.to_vec(),
                    files: vec![],
                    home: home.contents.home(),
                    access: None,
                    change: Change::Local { rev: Some(rev) },
                },
            });
        });
    }

    fn push(&mut self, edit: ShardEdit) {
        self.bytes += edit.bytes();
        self.edits.push(edit);
        if self.edits.len() >= TOGETHER || self.bytes >= TOGETHER_BYTES {
            self.flush();
        }
    }

    fn flush(&mut self) {
        self.bytes = 0;
        let edits = std::mem::take(&mut self.edits);
        if edits.is_empty() || self.failed.is_some() {
            return;
        }
        let done = self.copy.committer.edit(edits, self.copy.limits, false);
        match done.blocking_recv() {
            Ok(Ok(_)) => {}
            Ok(Err(e)) => self.failed = Some(e),
            Err(_) => self.failed = Some(Error::Closed),
        }
        (self.copy.progress)(self.saved.documents);
    }
}
