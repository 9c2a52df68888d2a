//! Access by document: the access sets of the documents of a shard, and the indexes by principal.
//!
//! The rows are in the keyspaces of indexes under the shard's own number, which no index has: the
//! access of each document in `index_back`, and its rows by principal in `index_rows`. They are
//! written in the batch of the edit.

use document::{
    AccessEdit, AccessSet, AccessVerdict, DocAccess, DocId, EditBasis, GrantMove, Principal,
    Principals, RevTree,
};
use rocksdb::WriteBatch;

use crate::Error;
use crate::edit::{Change, Edit, Outcome};
use crate::engine::Engine;
use crate::keys::{self, ShardNumber};
use crate::keyspace::Keyspace;
use crate::shard::{Shard, View};
use crate::snapshot::{Cursor, Snapshot};

/// Rows `principal, seq`, whose value is the id: the changes that a feed shows a principal.
const BY_SEQ: u8 = b's';
/// Rows `principal, id`, without a value: documents of which a principal may read a leaf.
const BY_ID: u8 = b'i';

/// Returns the beginning of a principal's keys of one kind.
fn prefix(shard: ShardNumber, kind: u8, principal: &Principal) -> Vec<u8> {
    let name = principal.as_str().as_bytes();
    let mut key = keys::id_key(shard, &[kind]);
    // Below 64 KiB: of a fixed length, so that no principal's keys are among another's.
    key.extend_from_slice(&(name.len() as u16).to_be_bytes());
    key.extend_from_slice(name);
    key
}

fn seq_row(shard: ShardNumber, principal: &Principal, seq: u64) -> Vec<u8> {
    let mut key = prefix(shard, BY_SEQ, principal);
    key.extend_from_slice(&seq.to_be_bytes());
    key
}

fn id_row(shard: ShardNumber, principal: &Principal, id: &DocId) -> Vec<u8> {
    let mut key = prefix(shard, BY_ID, principal);
    key.extend_from_slice(id.as_str().as_bytes());
    key
}

/// A row by principal.
pub enum PrincipalRow<'a> {
    /// With the seq and the document's id.
    Seq(Principal, u64, &'a [u8]),
    /// With the document's id.
    Id(Principal, &'a [u8]),
}

impl<'a> PrincipalRow<'a> {
    /// Decodes a row; `None` when it is invalid.
    pub fn decode(key: &'a [u8], value: &'a [u8]) -> Option<PrincipalRow<'a>> {
        let (kind, rest) = key.get(keys::SHARD_LEN..)?.split_first()?;
        let (length, rest) = rest.split_first_chunk()?;
        let length = usize::from(u16::from_be_bytes(*length));
        let (name, rest) = rest.split_at_checked(length)?;
        let principal = Principal::parse(std::str::from_utf8(name).ok()?)?;
        match *kind {
            BY_SEQ => {
                let seq = u64::from_be_bytes(rest.try_into().ok()?);
                Some(PrincipalRow::Seq(principal, seq, value))
            }
            BY_ID if value.is_empty() => Some(PrincipalRow::Id(principal, rest)),
            _ => None,
        }
    }
}

fn decode(stored: Option<&[u8]>) -> Result<DocAccess, Error> {
    match stored {
        None => Ok(DocAccess::default()),
        Some(value) => DocAccess::decode(value).ok_or_else(|| Error::Corrupt("document access")),
    }
}

/// Reads the access of a document, and the number of its bytes. Without a stored one, only
/// admins have its leaves.
pub fn read(engine: &Engine, shard: ShardNumber, id: &DocId) -> Result<(DocAccess, usize), Error> {
    let key = keys::id_key(shard, id.as_str().as_bytes());
    let stored = engine.get(Keyspace::IndexBack, &key)?;
    let bytes = stored.as_ref().map_or(0, |value| value.len());
    Ok((decode(stored.as_deref())?, bytes))
}

/// Writes the access of a document; `None` removes it.
pub fn write(
    engine: &Engine,
    wb: &mut WriteBatch,
    (shard, id): (ShardNumber, &DocId),
    access: Option<&DocAccess>,
) {
    let cf = engine.cf(Keyspace::IndexBack);
    let key = keys::id_key(shard, id.as_str().as_bytes());
    match access {
        None => wb.delete_cf(cf, key),
        Some(access) => {
            let mut value = vec![];
            access.encode(&mut value);
            wb.put_cf(cf, key, value);
        }
    }
}

/// Moves the rows of a document in the indexes of one principal. Returns the bytes that it writes,
/// about.
pub fn move_rows(
    engine: &Engine,
    wb: &mut WriteBatch,
    (shard, id): (ShardNumber, &DocId),
    moved: &GrantMove,
) -> usize {
    let cf = engine.cf(Keyspace::IndexRows);
    let principal = &moved.principal;
    let before = wb.size_in_bytes();
    if moved.from != moved.to {
        if let Some(from) = moved.from {
            wb.delete_cf(cf, seq_row(shard, principal, from));
        }
        if let Some(to) = moved.to {
            wb.put_cf(cf, seq_row(shard, principal, to), id.as_str());
        }
    }
    match (moved.read_before, moved.reads) {
        (false, true) => wb.put_cf(cf, id_row(shard, principal, id), []),
        (true, false) => wb.delete_cf(cf, id_row(shard, principal, id)),
        (true, true) | (false, false) => {}
    }
    wb.size_in_bytes() - before
}

/// Returns the access set of the revision that an edit adds.
///
/// # Errors
/// The outcome of an edit that its writer may not make.
pub fn judge(access: &DocAccess, tree: &RevTree, edit: &Edit) -> Result<AccessSet, Outcome> {
    let nobody = AccessSet::default();
    let of_edit = edit.access.as_deref();
    let judged = AccessEdit {
        basis: match &edit.change {
            Change::Interactive { parent, .. } => EditBasis::Interactive(parent.as_ref()),
            Change::Replicated { path } => EditBasis::Replicated(path),
            // Local documents have no access sets.
            Change::Local { .. } => return Ok(nobody),
        },
        deleted: edit.deleted,
        design: edit.id.is_design(),
        set: of_edit.map_or(&nobody, |access| &access.set),
    };
    let writer = of_edit.and_then(|access| access.writer.as_deref());
    match access.judge(tree, &judged, writer) {
        AccessVerdict::Write(set) => Ok(set),
        AccessVerdict::Known(rev) => Err(Outcome::Written(rev)),
        AccessVerdict::Conflict => Err(Outcome::Conflict),
        AccessVerdict::NotWriter | AccessVerdict::NotWriterAfter => Err(Outcome::NotPermitted),
        AccessVerdict::TooLong => Err(Outcome::TooManyLeaves),
    }
}

impl View {
    /// Returns the access of a document, as of this view; an empty one if it is missing.
    ///
    /// # Errors
    /// Errors of the engine, and [`Error::Corrupt`].
    pub fn access(&self, shard: &Shard, id: &str) -> Result<DocAccess, Error> {
        let key = keys::id_key(shard.number, id.as_bytes());
        let stored = self.snapshot.get(Keyspace::IndexBack, &key)?;
        decode(stored.as_deref())
    }
}

/// The cursors of several principals over their rows.
struct Merged<'a> {
    cursors: Vec<PrincipalCursor<'a>>,
}

/// A cursor over the rows of one principal.
struct PrincipalCursor<'a> {
    rows: Cursor<'a>,
    prefix: Vec<u8>,
}

impl PrincipalCursor<'_> {
    /// Returns the rest of the current key.
    fn rest(&self) -> Option<&[u8]> {
        self.rows.key()?.get(self.prefix.len()..)
    }

    fn key(&self, rest: &[u8]) -> Vec<u8> {
        [&self.prefix[..], rest].concat()
    }
}

impl<'a> Merged<'a> {
    fn new(snapshot: &'a Snapshot, shard: ShardNumber, kind: u8, user: &Principals) -> Merged<'a> {
        let cursor = |principal: &Principal| {
            let prefix = prefix(shard, kind, principal);
            // Neither a seq in use nor an id begins with this byte.
            let high = [&prefix[..], &[0xff]].concat();
            PrincipalCursor {
                rows: snapshot.iter_range(Keyspace::IndexRows, prefix.clone(), high),
                prefix,
            }
        };
        Merged {
            cursors: user.iter().map(cursor).collect(),
        }
    }

    fn status(&self) -> Result<(), Error> {
        self.cursors.iter().try_for_each(|one| one.rows.status())
    }
}

/// The rows that a feed may show a user, by seq, each once.
pub struct GrantedSeqs<'a> {
    merged: Merged<'a>,
}

impl<'a> GrantedSeqs<'a> {
    /// Begins after `seq`.
    pub fn after(snapshot: &'a Snapshot, shard: &Shard, user: &Principals, seq: u64) -> Self {
        let mut merged = Merged::new(snapshot, shard.number, BY_SEQ, user);
        let next = seq.saturating_add(1).to_be_bytes();
        for cursor in &mut merged.cursors {
            let key = cursor.key(&next);
            cursor.rows.seek(key);
        }
        GrantedSeqs { merged }
    }

    /// Returns the seq and the id of the current row.
    pub fn entry(&self) -> Option<(u64, &[u8])> {
        let seq = |cursor: &PrincipalCursor<'_>| {
            let rest = cursor.rest()?.try_into().ok()?;
            Some(u64::from_be_bytes(rest))
        };
        let rows = self.merged.cursors.iter();
        let rows = rows.filter_map(|cursor| Some((seq(cursor)?, cursor.rows.value()?)));
        rows.min_by_key(|(seq, _)| *seq)
    }

    /// Moves to the next row.
    pub fn next(&mut self) {
        let Some((seq, _)) = self.entry() else {
            return;
        };
        let here = seq.to_be_bytes();
        for cursor in &mut self.merged.cursors {
            if cursor.rest() == Some(&here[..]) {
                cursor.rows.next();
            }
        }
    }

    /// Returns whether everything so far could be read.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn status(&self) -> Result<(), Error> {
        self.merged.status()
    }
}

/// The ids of documents of which a user may read a leaf, in order, each once.
pub struct GrantedIds<'a> {
    merged: Merged<'a>,
    descending: bool,
}

impl<'a> GrantedIds<'a> {
    /// Not yet positioned.
    pub fn new(snapshot: &'a Snapshot, shard: &Shard, user: &Principals, descending: bool) -> Self {
        GrantedIds {
            merged: Merged::new(snapshot, shard.number, BY_ID, user),
            descending,
        }
    }

    /// Moves to the first id at or after `id`; descending: at or before. `None` is the beginning in
    /// its direction.
    pub fn seek(&mut self, id: Option<&[u8]>) {
        for cursor in &mut self.merged.cursors {
            let key = id.map(|id| cursor.key(id));
            match (key, self.descending) {
                (Some(key), false) => cursor.rows.seek(key),
                (Some(key), true) => cursor.rows.seek_for_prev(key),
                (None, false) => cursor.rows.seek_to_first(),
                (None, true) => cursor.rows.seek_to_last(),
            }
        }
    }

    /// Returns the current id.
    pub fn entry(&self) -> Option<&[u8]> {
        let ids = self.merged.cursors.iter().filter_map(PrincipalCursor::rest);
        match self.descending {
            true => ids.max(),
            false => ids.min(),
        }
    }

    /// Moves to the next id in its direction.
    pub fn next(&mut self) {
        let Some(id) = self.entry().map(<[u8]>::to_vec) else {
            return;
        };
        for cursor in &mut self.merged.cursors {
            if cursor.rest() == Some(&*id) {
                match self.descending {
                    true => cursor.rows.prev(),
                    false => cursor.rows.next(),
                }
            }
        }
    }

    /// Returns whether everything so far could be read.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn status(&self) -> Result<(), Error> {
        self.merged.status()
    }
}
