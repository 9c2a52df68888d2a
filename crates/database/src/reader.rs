//! The documents of a database with access that one user sees.
//!
//! A user sees the leaves that the user may read, of documents whose winner is among them. That is
//! a matter of pruning the tree of revisions: everything that is derived from a pruned tree, such as
//! conflicts, the latest revisions or missing ones, does not depend on hidden leaves.

use std::sync::Arc;

use document::{DocAccess, DocId, Principal, Principals, Rev, RevPath, Shown, with_members};
use storage::{Record, RecordHead, Shard, View};

use crate::Error;
use crate::access_key::{DatabaseAccess, DefaultAccess};

/// A user of a database with access who does not see everything.
#[derive(Clone)]
pub(crate) struct Reader {
    user: Arc<Principals>,
    name: Option<Arc<str>>,
    access: Arc<DatabaseAccess>,
}

/// The part of a document that a feed shows.
pub(crate) enum Change {
    /// The document with its visible leaves, and further revisions to name: removal revisions of
    /// leaves that were taken away.
    Document(Record, Vec<Rev>),
    /// Removal revisions of all leaves that were visible.
    Removed(Vec<Rev>),
}

impl Reader {
    /// A user who has this name, or none, and these roles.
    pub fn new(access: &Arc<DatabaseAccess>, name: Option<&str>, roles: &[String]) -> Reader {
        let roles = roles.iter().map(String::as_str);
        Reader {
            user: Arc::new(Principals::of(name, roles)),
            name: name.map(Arc::from),
            access: access.clone(),
        }
    }

    /// The user's principals.
    pub fn user(&self) -> &Arc<Principals> {
        &self.user
    }

    /// Returns the principal that gets a new document of the user without `_access`, in a database
    /// that has this default.
    pub fn owner(&self) -> Option<&str> {
        let name = self.name.as_deref()?;
        // Other names match nothing.
        let is_principal = !name.contains(':') && name != "*";
        (self.access.default == DefaultAccess::Owner && is_principal).then_some(name)
    }

    /// Returns the record of a document with its visible leaves; `None` if the document does not
    /// exist for the user.
    pub fn record(&self, view: &View, shard: &Shard, id: &str) -> Result<Option<Record>, Error> {
        match view.record(shard, id)? {
            Some(record) => Ok(self.prune(record, &view.access(shard, id)?)),
            None => Ok(None),
        }
    }

    fn prune(&self, mut record: Record, access: &DocAccess) -> Option<Record> {
        let leaves = record.tree.leaves();
        let winner = leaves.first()?;
        if !access.may_read(winner.rev, &self.user) {
            return None;
        }
        let hidden = leaves
            .iter()
            .filter(|leaf| !access.may_read(leaf.rev, &self.user));
        let hidden: Vec<Rev> = hidden.map(|leaf| leaf.rev.to_rev()).collect();
        record.tree.remove_leaves(&hidden);
        Some(record)
    }

    /// Returns the stored form of a document's record for a listing: with its visible leaves.
    /// `None` if the document does not exist for the user.
    pub fn listed(&self, view: &View, shard: &Shard, id: &str) -> Result<Option<Vec<u8>>, Error> {
        let record = self.record(view, shard, id)?;
        Ok(record.map(|record| {
            let mut value = vec![];
            record.encode(&mut value);
            value
        }))
    }

    /// Returns what a feed shows of the document whose row is at `seq`; `None` if a later row shows
    /// it, or nothing of it was ever visible.
    ///
    /// # Errors
    /// Errors of the read.
    pub fn change(
        &self,
        view: &View,
        shard: &Shard,
        (seq, id): (u64, &str),
    ) -> Result<Option<Change>, Error> {
        let access = view.access(shard, id)?;
        match last_seq(&access, &self.user) == Some(seq) {
            true => self.shown(view, shard, id, &access),
            false => Ok(None),
        }
    }

    /// Returns what a backfill up to `until` for principals of the user shows of the document whose
    /// row is at `seq`; `None` if a later row of the backfill or of the feed shows it.
    ///
    /// # Errors
    /// Errors of the read.
    pub fn backfilled(
        &self,
        view: &View,
        shard: &Shard,
        (seq, id): (u64, &str),
        (new, until): (&Principals, u64),
    ) -> Result<Option<Change>, Error> {
        let access = view.access(shard, id)?;
        let is_last = last_seq(&access, new) == Some(seq);
        match is_last && last_seq(&access, &self.user) <= Some(until) {
            true => self.shown(view, shard, id, &access),
            false => Ok(None),
        }
    }

    /// Returns what a feed shows of a document; `None` if nothing of it was ever visible.
    fn shown(
        &self,
        view: &View,
        shard: &Shard,
        id: &str,
        access: &DocAccess,
    ) -> Result<Option<Change>, Error> {
        let Some(record) = view.record(shard, id)? else {
            return Ok(None);
        };
        let removals = |leaves: Vec<Rev>| {
            let removals = leaves.iter().map(|leaf| self.access.key.removal(id, leaf));
            removals.collect::<Vec<Rev>>()
        };
        Ok(match access.shown_to(&record.tree, &self.user) {
            Shown::Nothing => None,
            Shown::Removed(leaves) => Some(Change::Removed(removals(leaves))),
            Shown::Document { removed } => {
                let record = self.prune(record, access);
                record.map(|record| Change::Document(record, removals(removed)))
            }
        })
    }

    /// Returns whether a revision is a removal revision of some leaf of a document.
    pub fn is_removal(&self, id: &str, rev: &Rev) -> bool {
        self.access.key.is_removal(id, rev)
    }

    /// Returns the path of a removal revision of a document with this record and access: it follows
    /// its leaf, as far as that is known. The grants of the user know a leaf that was stemmed, without
    /// which the device would keep it next to the tombstone.
    pub fn removal_path(
        &self,
        (record, access): (&Record, &DocAccess),
        id: &str,
        rev: &Rev,
    ) -> RevPath {
        let is_removed = |leaf: &Rev| {
            let is_parent = leaf.generation.checked_add(1) == Some(rev.generation);
            is_parent && self.access.key.removal(id, leaf) == *rev
        };
        let nodes = record.tree.nodes();
        let nodes = nodes.filter(|node| node.rev.generation.checked_add(1) == Some(rev.generation));
        let leaf = nodes.map(|node| node.rev.to_rev()).find(is_removed);
        let path = leaf.and_then(|leaf| record.tree.path(&leaf));
        let ancestors = path.map_or_else(
            || {
                let grants = access.grants_of(&self.user);
                let mut stemmed = grants.flat_map(|grant| &grant.removed);
                let stemmed = stemmed.find(|leaf| is_removed(leaf));
                stemmed.map_or(vec![], |leaf| vec![leaf.hash.clone()])
            },
            |path| path.ids,
        );
        RevPath {
            start: rev.generation,
            ids: std::iter::once(rev.hash.clone()).chain(ancestors).collect(),
        }
    }

    /// Returns the text that stands for a principal in seqs.
    pub fn fingerprint(&self, principal: &Principal) -> String {
        self.access.key.fingerprint(principal.as_str())
    }

    /// Appends the signature of the update seq that `out` has from `start` on.
    pub fn sign(&self, start: usize, out: &mut Vec<u8>) {
        let signature = self.signature(&out[start..]);
        out.push(SIGNED);
        out.extend_from_slice(signature.as_bytes());
    }

    /// Reads a signed seq. `None` if it was not given to this user: then its feed begins at the start,
    /// as it has changes that the user never had.
    pub fn signed<'a>(&self, text: &'a str) -> Option<SignedSeq<'a>> {
        let text = text.trim_matches('"');
        let (signed, signature) = text.rsplit_once(char::from(SIGNED))?;
        if self.signature(signed.as_bytes()) != signature {
            return None;
        }
        let (seq, coverage) = signed.split_once(char::from(SIGNED))?;
        Some(SignedSeq { seq, coverage })
    }

    fn signature(&self, seq: &[u8]) -> String {
        self.access.key.signature(seq, self.name.as_deref())
    }

    /// Returns the id under which a local document of the user is stored: each user has local
    /// documents of their own.
    ///
    /// # Errors
    /// The id is too long.
    pub fn own_local(&self, id: &DocId) -> Result<DocId, Error> {
        let rest = id.as_str().strip_prefix("_local/").unwrap_or_default();
        let stored = match &self.name {
            // The length separates the name from what follows, whatever they are.
            Some(name) => format!("_local/@{}:{name}/{rest}", name.len()),
            None => format!("_local/@/{rest}"),
        };
        DocId::new(&stored).map_err(|e| Error::BadRequest(e.to_string()))
    }
}

/// Between an update seq, what it covers, and its signature. It is in none of them.
pub(crate) const SIGNED: u8 = b'~';

/// The parts of a signed seq.
pub(crate) struct SignedSeq<'a> {
    /// The update seq.
    pub seq: &'a str,
    /// Whose rows its device has up to there.
    pub coverage: &'a str,
}

/// Returns the seq of the last change that a user saw of a document.
fn last_seq(access: &DocAccess, user: &Principals) -> Option<u64> {
    access.grants_of(user).map(|grant| grant.seq).max()
}

/// Returns whether a stored record is of a document that is not deleted.
pub(crate) fn is_live(value: &[u8]) -> Result<bool, Error> {
    Ok(!RecordHead::decode(value)?.deleted)
}

/// Appends the document of a removal revision, for a feed with documents.
pub(crate) fn removal_json(id: &str, rev: &Rev, out: &mut Vec<u8>) {
    with_members(id, rev, true, b"{}", out);
    out.push(b'}');
}
