//! Reading several revisions of a document: together while they are short, otherwise one at a time.

use std::collections::HashSet;
use std::sync::Arc;

use document::{DocId, Rev, RevTree};
use storage::{Record, Shard, View};

use crate::Error;
use crate::database::Database;
use crate::read::{Bodies, ReadDoc, ReadOptions, RevSelection, render};
use crate::rules::DatabaseAs;

/// Revisions with at most 256 KiB of text are read together. A single one is always read whole, as
/// by any other read.
const AT_ONCE_BYTES_MAX: u64 = 256 << 10;

/// More revisions are not read on a thread that serves requests, however short they are.
const AT_ONCE_MAX: usize = 64;

/// Size of a text without its body and its ancestors, about, in bytes.
const TEXT_BYTES: u64 = 128;

/// Bytes of an ancestor in `_revisions`.
const ANCESTOR_BYTES: u64 = 35;

/// A tree of more revisions is not kept while nothing is read.
const KEPT_REVISIONS_MAX: usize = 1_000;

/// Revisions of a document. `Err` is a missing revision.
pub enum OpenRevs {
    /// All of them.
    Read(Vec<Result<ReadDoc, Rev>>),
    /// A reader of revisions that take much memory together. None is read yet.
    Long(Box<RevsReader>),
}

impl OpenRevs {
    /// All of them, in memory.
    ///
    /// # Errors
    /// Errors of the read.
    pub fn all(self) -> Result<Vec<Result<ReadDoc, Rev>>, Error> {
        let mut reader = match self {
            OpenRevs::Read(read) => return Ok(read),
            OpenRevs::Long(reader) => reader,
        };
        let mut all = vec![];
        while let Some(rev) = reader.next()? {
            all.push(rev);
        }
        Ok(all)
    }
}

/// A reader that returns the revisions of a document one at a time, in their state when it was
/// opened.
pub struct RevsReader {
    db: DatabaseAs,
    shard: Arc<Shard>,
    view: View,
    id: DocId,
    which: RevSelection,
    options: ReadOptions,
    /// Revisions that were read.
    read: usize,
    is_wide: bool,
    chosen: Option<Chosen>,
}

/// The revisions to read, in their order, and their record.
struct Chosen {
    record: Record,
    revs: Vec<Rev>,
}

impl Chosen {
    fn of(record: Record, which: &RevSelection, options: &ReadOptions) -> Chosen {
        let mut revs = vec![];
        match which {
            RevSelection::All => revs.extend(record.tree.leaves().iter().map(|l| l.rev.to_rev())),
            RevSelection::List(list) => {
                match options.latest {
                    true => {
                        for (rev, latest) in list.iter().zip(record.tree.latest_of_each(list)) {
                            match latest {
                                Some(latest) => revs.extend(latest.iter().map(|l| l.rev.to_rev())),
                                None => revs.push(rev.clone()),
                            }
                        }
                    }
                    false => revs.extend_from_slice(list),
                }
                if revs.len() > 1 {
                    dedup(&mut revs);
                }
            }
        }
        if options.sorted {
            revs.sort_unstable();
        }
        Chosen { record, revs }
    }

    /// Returns how long all texts are together, about, in bytes. Attachments do not count.
    fn bytes(&self, options: &ReadOptions) -> u64 {
        let tree: &RevTree = &self.record.tree;
        let ancestors_max = match options.revs {
            true => options.revs_max.unwrap_or(usize::MAX).min(tree.len()) as u64,
            false => 0,
        };
        let texts = self.revs.iter().map(|rev| {
            let revision = tree.get(rev).and_then(|node| node.revision);
            let ancestors = rev.generation.min(ancestors_max) * ANCESTOR_BYTES;
            revision.map_or(0, |revision| revision.size) + ancestors + TEXT_BYTES
        });
        texts.fold(0, u64::saturating_add)
    }

    fn read(
        &self,
        bodies: Bodies<'_>,
        id: &DocId,
        rev: &Rev,
        options: &ReadOptions,
    ) -> Result<Result<ReadDoc, Rev>, Error> {
        let Some(revision) = self.record.tree.get(rev).and_then(|n| n.revision) else {
            return Ok(Err(rev.clone()));
        };
        let doc = render(bodies, id, &self.record, rev.clone(), revision, options)?;
        Ok(doc.ok_or_else(|| rev.clone()))
    }
}

fn dedup(revs: &mut Vec<Rev>) {
    let mut seen = HashSet::new();
    revs.retain(|r| seen.insert(r.clone()));
}

impl Database {
    /// Revisions of a document: `Err` is a missing revision. `None`: the document does not exist.
    /// All of them are held in memory.
    pub fn open_revs(
        &self,
        id: &DocId,
        which: &RevSelection,
        options: &ReadOptions,
    ) -> Result<Option<Vec<Result<ReadDoc, Rev>>>, Error> {
        self.live()?;
        self.if_live(self.open_all_revs(id, which, options))
    }

    fn open_all_revs(
        &self,
        id: &DocId,
        which: &RevSelection,
        options: &ReadOptions,
    ) -> Result<Option<Vec<Result<ReadDoc, Rev>>>, Error> {
        let Some(chosen) = self.chosen(id, which, options)? else {
            return Ok(None);
        };
        let (shard, options) = (self.shard_for(id.as_str()), self.within_revs_limit(options));
        let read = |rev| chosen.read(Bodies::Now(shard), id, rev, &options);
        chosen
            .revs
            .iter()
            .map(read)
            .collect::<Result<_, _>>()
            .map(Some)
    }

    fn chosen(
        &self,
        id: &DocId,
        which: &RevSelection,
        options: &ReadOptions,
    ) -> Result<Option<Chosen>, Error> {
        self.check_partitioned(id.as_str())?;
        let record = self.shard_for(id.as_str()).record(id.as_str())?;
        Ok(record.map(|record| Chosen::of(record, which, options)))
    }
}

impl DatabaseAs {
    /// Opens revisions of a document; those that are hidden from the caller are missing. `None`:
    /// the document does not exist, or all leaves are requested and all are hidden. (A
    /// [`RevsReader`] knows that only at its end.)
    ///
    /// # Errors
    /// Errors of the read.
    pub fn open_revs(
        &self,
        id: &DocId,
        which: &RevSelection,
        options: &ReadOptions,
    ) -> Result<Option<OpenRevs>, Error> {
        self.live()?;
        self.if_live(self.open_revs_now(id, which, options))
    }

    fn open_revs_now(
        &self,
        id: &DocId,
        which: &RevSelection,
        options: &ReadOptions,
    ) -> Result<Option<OpenRevs>, Error> {
        if self.hides(id.as_str())? {
            return Ok(None);
        }
        let Some(chosen) = self.chosen_for(id, which, options)? else {
            return Ok(None);
        };
        let shard = self.shard_for(id.as_str());
        let options = self.seen_options(self.within_revs_limit(options));
        let is_short =
            chosen.revs.len() <= AT_ONCE_MAX && chosen.bytes(&options) <= AT_ONCE_BYTES_MAX;
        if !options.reads_ancestors() && (chosen.revs.len() <= 1 || is_short) {
            let mut read = vec![];
            let mut bytes = 0;
            for rev in &chosen.revs {
                let found = self.read_chosen(&chosen, Bodies::Now(shard), id, rev, &options)?;
                bytes += found.as_ref().map_or(0, |doc| doc.json.len() as u64);
                if let Some(found) = self.shown_of(which, found) {
                    read.push(found);
                }
                // Attachments and conflicts may make a text longer than its body.
                if bytes > AT_ONCE_BYTES_MAX && chosen.revs.len() > 1 {
                    return self.revs_reader(shard, id, which, &options).map(Some);
                }
            }
            let is_hidden = read.is_empty() && matches!(which, RevSelection::All);
            return Ok((!is_hidden).then_some(OpenRevs::Read(read)));
        }
        self.revs_reader(shard, id, which, &options).map(Some)
    }

    /// [`Database::chosen`], without leaves that are hidden from the caller.
    fn chosen_for(
        &self,
        id: &DocId,
        which: &RevSelection,
        options: &ReadOptions,
    ) -> Result<Option<Chosen>, Error> {
        if self.reader().is_none() {
            return self.chosen(id, which, options);
        }
        self.check_partitioned(id.as_str())?;
        let shard = self.shard_for(id.as_str());
        let record = self.record_for(&shard.view()?, shard, id.as_str(), which)?;
        Ok(record.map(|record| Chosen::of(record, which, options)))
    }

    /// Reads a revision as the caller sees it.
    fn read_chosen(
        &self,
        chosen: &Chosen,
        bodies: Bodies<'_>,
        id: &DocId,
        rev: &Rev,
        options: &ReadOptions,
    ) -> Result<Result<ReadDoc, Rev>, Error> {
        self.seen_rev(&chosen.record, id, chosen.read(bodies, id, rev, options)?)
    }

    fn revs_reader(
        &self,
        shard: &Arc<Shard>,
        id: &DocId,
        which: &RevSelection,
        options: &ReadOptions,
    ) -> Result<OpenRevs, Error> {
        Ok(OpenRevs::Long(Box::new(RevsReader {
            db: self.clone(),
            shard: shard.clone(),
            view: shard.view()?,
            id: id.clone(),
            which: which.clone(),
            options: options.clone(),
            read: 0,
            is_wide: false,
            chosen: None,
        })))
    }

    /// Returns the visible part of a revision. Of all leaves, hidden ones are not even named.
    fn shown_of(
        &self,
        which: &RevSelection,
        found: Result<ReadDoc, Rev>,
    ) -> Option<Result<ReadDoc, Rev>> {
        let was_found = found.is_ok();
        let shown = self.shown_rev(found);
        let is_hidden = was_found && shown.is_err() && matches!(which, RevSelection::All);
        (!is_hidden).then_some(shown)
    }
}

impl RevsReader {
    /// Reads the next revision; `None` at the end. Each call reads one body, and the tree if it is not kept.
    ///
    /// # Errors
    /// Errors of the read; the database is deleted.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<Result<ReadDoc, Rev>>, Error> {
        self.db.live()?;
        let Some(chosen) = self.chosen()? else {
            return Ok(None);
        };
        let mut shown = None;
        while shown.is_none()
            && let Some(rev) = chosen.revs.get(self.read)
        {
            self.read += 1;
            let bodies = Bodies::Of(&self.view, &self.shard);
            let (id, options) = (&self.id, &self.options);
            let found = self.db.read_chosen(&chosen, bodies, id, rev, options)?;
            shown = self.db.shown_of(&self.which, found);
        }
        self.chosen = Some(chosen);
        Ok(shown)
    }

    fn chosen(&mut self) -> Result<Option<Chosen>, Error> {
        if let Some(chosen) = self.chosen.take() {
            return Ok(Some(chosen));
        }
        let (view, shard, id) = (&self.view, &self.shard, self.id.as_str());
        let record = self.db.record_for(view, shard, id, &self.which)?;
        let chosen = record.map(|record| Chosen::of(record, &self.which, &self.options));
        self.is_wide = chosen
            .as_ref()
            .is_some_and(|chosen| chosen.record.tree.len() > KEPT_REVISIONS_MAX);
        Ok(chosen)
    }

    /// Whether the tree is so large that it is read again after a [`RevsReader::rest`]: then several revisions should be read
    /// before that. Known once one was read.
    pub fn is_wide(&self) -> bool {
        self.is_wide
    }

    /// Lets go of a large tree until the next read.
    pub fn rest(&mut self) {
        if self.is_wide {
            self.chosen = None;
        }
    }
}
