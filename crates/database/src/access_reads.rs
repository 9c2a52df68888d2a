//! Reads of single documents in a database with access, as one user.

use std::borrow::Cow;

use document::{AccessSet, DocId, Rev, with_members};
use storage::{Record, Shard, View};

use crate::Error;
use crate::database::RevsDiff;
use crate::read::{
    Bodies, Read, ReadDoc, ReadOptions, RevSelection, read_local, render, wanted, write_path,
};
use crate::reader::Reader;
use crate::rules::DatabaseAs;

impl DatabaseAs {
    /// [`Database::read`](crate::Database::read) as the user.
    ///
    /// # Errors
    /// Errors of the read.
    pub(crate) fn read_visible(
        &self,
        reader: &Reader,
        id: &DocId,
        options: &ReadOptions,
    ) -> Result<Read, Error> {
        self.live()?;
        self.if_live(self.read_visible_now(reader, id, options))
    }

    fn read_visible_now(
        &self,
        reader: &Reader,
        id: &DocId,
        options: &ReadOptions,
    ) -> Result<Read, Error> {
        self.check_partitioned(id.as_str())?;
        if id.is_local() {
            let stored = reader.own_local(id)?;
            let shard = self.shard_for(stored.as_str());
            return read_local(shard, stored.as_str(), id, options);
        }
        let shard = self.shard_for(id.as_str());
        let view = shard.view()?;
        if let Some(rev) = &options.rev
            && reader.is_removal(id.as_str(), rev)
        {
            return Ok(Read::Found(removal_doc(reader, &view, shard, id, rev)?));
        }
        let Some(record) = reader.record(&view, shard, id.as_str())? else {
            return Ok(Read::Missing);
        };
        let options = &*self.seen_options(self.within_revs_limit(options));
        let Some((rev, revision)) = wanted(&record.tree, options) else {
            return Ok(Read::Missing);
        };
        if options.rev.is_none() && revision.deleted {
            return Ok(Read::Deleted);
        }
        let bodies = Bodies::Of(&view, shard);
        let found = render(bodies, id, &record, rev, revision, options)?;
        let found = found.filter(|doc| shows(reader, &record, doc));
        Ok(found.map_or(Read::Missing, Read::Found))
    }

    /// Returns the options of a read as the caller may have them: `local_seq` moves with changes that
    /// are hidden.
    pub(crate) fn seen_options<'o>(&self, options: Cow<'o, ReadOptions>) -> Cow<'o, ReadOptions> {
        match self.is_limited() && options.local_seq {
            true => Cow::Owned(ReadOptions {
                local_seq: false,
                ..options.into_owned()
            }),
            false => options,
        }
    }

    /// Returns the record of a document of which revisions are requested, as the caller sees it. It
    /// is empty for a hidden document, if one of them is a removal revision.
    ///
    /// # Errors
    /// Errors of the read.
    pub(crate) fn record_for(
        &self,
        view: &View,
        shard: &Shard,
        id: &str,
        which: &RevSelection,
    ) -> Result<Option<Record>, Error> {
        let Some(reader) = self.reader() else {
            return Ok(view.record(shard, id)?);
        };
        let record = reader.record(view, shard, id)?;
        let names_removal = || match which {
            RevSelection::All => false,
            RevSelection::List(revs) => revs.iter().any(|rev| reader.is_removal(id, rev)),
        };
        Ok(record.or_else(|| names_removal().then(Record::default)))
    }

    /// Returns a requested revision of a document with this record as the caller sees it.
    ///
    /// # Errors
    /// Errors of the read.
    pub(crate) fn seen_rev(
        &self,
        record: &Record,
        id: &DocId,
        found: Result<ReadDoc, Rev>,
    ) -> Result<Result<ReadDoc, Rev>, Error> {
        let Some(reader) = self.reader() else {
            return Ok(found);
        };
        match found {
            Ok(doc) if shows(reader, record, &doc) => Ok(Ok(doc)),
            Ok(doc) => Ok(Err(doc.rev)),
            Err(rev) if reader.is_removal(id.as_str(), &rev) => {
                let shard = self.shard_for(id.as_str());
                removal_doc(reader, &shard.view()?, shard, id, &rev).map(Ok)
            }
            Err(rev) => Ok(Err(rev)),
        }
    }

    /// [`Database::revs_diff`](crate::Database::revs_diff) as the user: hidden revisions are missing,
    /// and removal revisions are known.
    ///
    /// # Errors
    /// Errors of the read.
    pub(crate) fn revs_diff_visible(
        &self,
        reader: &Reader,
        id: &str,
        revs: &[Rev],
    ) -> Result<Option<RevsDiff>, Error> {
        self.live()?;
        self.check_partitioned(id)?;
        let shard = self.shard_for(id);
        let asked = revs.iter().filter(|rev| !reader.is_removal(id, rev));
        let asked: Vec<Rev> = asked.cloned().collect();
        let record = reader.record(&shard.view()?, shard, id);
        let tree = self.if_live(record)?.unwrap_or_default().tree;
        let missing = tree.missing(&asked);
        if missing.is_empty() {
            return Ok(None);
        }
        let possible_ancestors = tree.possible_ancestors(&missing);
        Ok(Some(RevsDiff {
            missing,
            possible_ancestors,
        }))
    }
}

/// Returns whether a revision of a visible document is visible: a leaf of the pruned tree is. Of
/// ancestors that still have their bodies, these name the readers.
fn shows(reader: &Reader, record: &Record, doc: &ReadDoc) -> bool {
    let may_read = |access: AccessSet| access.may_read(reader.user());
    record.tree.is_leaf(&doc.rev) || AccessSet::of_body(&doc.json).is_ok_and(may_read)
}

/// Returns the document of a removal revision: a tombstone.
fn removal_doc(
    reader: &Reader,
    view: &View,
    shard: &Shard,
    id: &DocId,
    rev: &Rev,
) -> Result<ReadDoc, Error> {
    let record = view.record(shard, id.as_str())?.unwrap_or_default();
    let access = view.access(shard, id.as_str())?;
    let path = reader.removal_path((&record, &access), id.as_str(), rev);
    let mut json = vec![];
    with_members(id.as_str(), rev, true, b"{}", &mut json);
    write_path(&path, None, &mut json);
    json.push(b'}');
    Ok(ReadDoc {
        id: id.clone(),
        rev: rev.clone(),
        deleted: true,
        json,
        tells_more: false,
        attachments: vec![],
    })
}
