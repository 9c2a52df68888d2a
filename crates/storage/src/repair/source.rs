//! A damaged store, read as far as possible.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::Error;
use crate::check::holes::{HoleScan, ScanItem};
use crate::contents::{CHUNK_BYTES, Content, Contents, Place, keys as content_keys};
use crate::engine::{Engine, Strictness};
use crate::keys::{self, ShardNumber, meta, shard_end};
use crate::keyspace::Keyspace;
use crate::meta::ShardMeta;
use crate::record::Record;
use crate::snapshot::Snapshot;

use super::files::{is_table, open_without_list};

/// Something that could not be saved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// The document, if known.
    pub document: Option<String>,
    /// The lost part, for people.
    pub what: String,
}

/// A row, key and value; or the keys between which none can be read.
pub(super) type RowOrGap<'a> = Result<(&'a [u8], &'a [u8]), (&'a [u8], &'a [u8])>;

/// A store that is read as far as possible.
pub struct Source {
    pub(super) snapshot: Arc<Snapshot>,
    /// The steps taken to open it, as text for the operator.
    pub notes: Vec<String>,
    /// A copy made for that.
    scratch: Option<PathBuf>,
    _lock: Option<File>,
}

impl Source {
    /// Opens the store in `path`. Where its list of files is lost, a new one is built in a copy: in
    /// `scratch`, which must not exist.
    ///
    /// # Errors
    /// [`Error::Directory`]: it is not a store, a server has it open, or nothing can be read.
    pub fn open(path: &Path, scratch: &Path) -> Result<Source, Error> {
        let lock = match crate::check::lock(path) {
            Ok(lock) => lock,
            // A store that lost it has at least tables.
            Err(_) if !path.join("LOCK").exists() && has_tables(path) => None,
            Err(e) => return Err(e),
        };
        let mut notes = vec![];
        let (engine, scratch) = match Engine::open_read_only(path, Strictness::Lenient) {
            Ok(engine) => (engine, None),
            Err(e) => match open_without_list(path, scratch) {
                Ok((engine, done)) => {
                    notes.push(e.to_string());
                    notes.extend(done);
                    (engine, Some(scratch.to_owned()))
                }
                Err(e) => {
                    let _ = fs::remove_dir_all(scratch);
                    return Err(e);
                }
            },
        };
        Ok(Source {
            snapshot: Arc::new(engine.snapshot()),
            notes,
            scratch,
            _lock: lock,
        })
    }

    /// Returns the databases' readable records, by name.
    pub fn databases(&self, losses: &mut dyn FnMut(Loss)) -> BTreeMap<String, Vec<u8>> {
        let mut all = BTreeMap::new();
        let (low, high) = (vec![meta::DATABASE], vec![meta::DATABASE + 1]);
        self.each(Keyspace::Meta, low, high, &mut |row| match row {
            Ok((key, value)) => {
                if let Ok(name) = std::str::from_utf8(&key[1..]) {
                    all.insert(name.to_owned(), value.to_vec());
                }
            }
            Err(_) => losses(Loss {
                document: None,
                what: "records of databases cannot be read: the databases' names and settings are lost".into(),
            }),
        });
        all
    }

    /// Returns the shard numbers that have documents.
    pub fn shards(&self) -> BTreeSet<ShardNumber> {
        let mut numbers = BTreeSet::new();
        for k in [Keyspace::ById, Keyspace::BySeq] {
            let mut it = self.snapshot.iter_all(k);
            it.seek_to_first();
            // Unreadable numbers are looked for in the other keyspace.
            while let Some(number) = it.key().and_then(<[u8]>::first_chunk) {
                let number = u32::from_be_bytes(*number);
                numbers.insert(number);
                it.seek(shard_end(number));
            }
        }
        numbers.retain(|number| !self.is_dropped(*number));
        numbers
    }

    fn is_dropped(&self, number: ShardNumber) -> bool {
        let listed = self.snapshot.get(Keyspace::Meta, &meta::dropped(number));
        matches!(listed, Ok(Some(_)))
    }

    /// Returns a shard's counters, if they can be read.
    pub(super) fn meta(&self, shard: ShardNumber) -> ShardMeta {
        let stored = self.snapshot.get(Keyspace::Meta, &meta::shard(shard));
        let stored = stored.ok().flatten();
        stored
            .and_then(|value| ShardMeta::decode(&value).ok())
            .unwrap_or_default()
    }

    /// Calls `f` with each readable row of a range, and with the bounds of each unreadable part.
    pub(super) fn each(
        &self,
        k: Keyspace,
        low: Vec<u8>,
        high: Vec<u8>,
        f: &mut dyn FnMut(RowOrGap<'_>),
    ) {
        let cursor = self.snapshot.scan_range(k, low.clone(), high.clone());
        let mut rows = HoleScan::new(cursor, low, high);
        loop {
            match rows.advance() {
                ScanItem::Row => {
                    if let Some(row) = rows.item() {
                        f(Ok(row));
                    }
                }
                ScanItem::Hole(hole) => f(Err((&hole.after, &hole.before))),
                ScanItem::End => return,
            }
        }
    }

    /// Returns a value; `Err` when it cannot be read.
    pub(super) fn get(&self, k: Keyspace, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        Ok(self.snapshot.get(k, key)?.map(|value| value.to_vec()))
    }

    /// Returns a document's record; `Err` when it cannot be read.
    pub(super) fn record(&self, shard: ShardNumber, id: &str) -> Result<Option<Record>, Error> {
        let value = self.get(Keyspace::ById, &keys::id_key(shard, id.as_bytes()))?;
        value.map(|value| Record::decode(&value)).transpose()
    }

    /// Copies a content into a new store. `None` when it is incomplete.
    pub(super) fn content(
        &self,
        home: ShardNumber,
        id: &document::ContentId,
        to: &Arc<Contents>,
    ) -> Result<Option<Content>, Error> {
        if let Some(content) = to.hold(id)? {
            return Ok(Some(content));
        }
        let Ok(Some(place)) = self.get(Keyspace::Attachments, &content_keys::place(home, id))
        else {
            return Ok(None);
        };
        let Ok(place) = Place::decode(&place) else {
            return Ok(None);
        };
        let mut upload = to.upload();
        for chunk in 0..place.length().div_ceil(CHUNK_BYTES as u64) {
            let key = content_keys::chunk(home, place.number(), chunk as u32);
            match self.get(Keyspace::Attachments, &key) {
                Ok(Some(bytes)) => upload.write(&bytes)?,
                _ => return Ok(None),
            }
        }
        let content = upload.finish()?;
        Ok((content.id == *id).then_some(content))
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        if let Some(scratch) = &self.scratch
            && let Err(error) = fs::remove_dir_all(scratch)
        {
            tracing::warn!(path = %scratch.display(), %error, "removing a temporary copy failed");
        }
    }
}

fn has_tables(path: &Path) -> bool {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    entries.into_iter().any(|entry| is_table(&entry.path()))
}
