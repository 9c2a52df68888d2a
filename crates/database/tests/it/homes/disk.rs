//! Contents on disk, and databases of both forms.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use database::CreateOptions;
use document::ContentId;
use serde_json::Value;
use storage::{Keyspace, Store, StoreOptions};

use crate::homes::support::{open, runtime};

pub const NAME: &str = "a";

/// Which form a database has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// As databases were made before their shards had contents of their own.
    Old,
    New,
}

/// Bytes of one of the contents that are written: some are in one chunk, some in several.
pub fn content(n: usize) -> Vec<u8> {
    let length = [0, 5, 5_000, 140_000, 300_000][n % 5];
    (0..length).map(|at| (at * (n + 3) / 7) as u8).collect()
}

pub fn content_id(n: usize) -> ContentId {
    *blake3::hash(&content(n)).as_bytes()
}

pub fn raw(dir: &Path) -> Store {
    Store::open(dir, &StoreOptions::default(), Box::new(|_| {})).unwrap()
}

pub fn record(store: &Store) -> Value {
    serde_json::from_slice(&store.database(NAME).unwrap().unwrap()).unwrap()
}

/// A directory with an empty database of this form.
pub fn created(dir: &Path, form: Form, options: CreateOptions) {
    let databases = open(dir);
    runtime().block_on(async { databases.create(NAME, options).await.unwrap() });
    databases.close();
    drop(databases);
    if form == Form::New {
        return;
    }
    let store = raw(dir);
    let mut record = record(&store);
    let said = record.as_object_mut().unwrap().remove("contents");
    assert_eq!(said, Some("each_shard".into()));
    let put = Store::put_database(NAME, record.to_string().into_bytes());
    let done = store.committer.put(vec![put]);
    done.blocking_recv().unwrap().unwrap();
    store.close();
}

/// The contents in a store that is not open.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// Places: under which shard, of which content.
    pub places: BTreeSet<(u32, ContentId)>,
    /// Under which shard a document of which shard names which content.
    pub references: BTreeSet<(u32, ContentId, u32)>,
    /// Uploads that nothing refers to, and contents whose space is to be reclaimed.
    pub unfinished: usize,
    pub removed: usize,
    /// As they are counted.
    pub bytes: BTreeMap<u32, u64>,
}

pub fn scanned(dir: &Path) -> Kept {
    let mut kept = Kept::default();
    // Opened as a store, it would tidy up.
    let engine = storage::Engine::open(dir, &StoreOptions::default()).unwrap();
    let snapshot = engine.snapshot();
    let mut it = snapshot.iter_all(Keyspace::Attachments);
    it.seek_to_first();
    while let Some(key) = it.key() {
        let number = |at: usize| u32::from_be_bytes(key[at..at + 4].try_into().unwrap());
        let id = || ContentId::try_from(&key[5..37]).unwrap();
        match key[4] {
            b'h' => drop(kept.places.insert((number(0), id()))),
            b'r' => drop(kept.references.insert((number(0), id(), number(37)))),
            b'x' => kept.removed += 1,
            _ => {}
        }
        it.next();
    }
    let mut it = snapshot.iter_all(Keyspace::Meta);
    it.seek(b"u");
    while it.key().is_some_and(|key| key.starts_with(b"u")) {
        kept.unfinished += 1;
        it.next();
    }
    kept
}

/// The contents, and the shards of the database, if it exists.
pub fn kept(dir: &Path) -> (Kept, Vec<u32>) {
    let mut kept = scanned(dir);
    let store = raw(dir);
    let mut shards = vec![];
    if store.database(NAME).unwrap().is_some() {
        let record = record(&store);
        let numbers = record["shards"].as_array().unwrap();
        shards.extend(numbers.iter().map(|n| n.as_u64().unwrap() as u32));
    }
    for &number in &shards {
        let contents = store.contents(Arc::new(store.shard(number).unwrap()));
        let bytes = contents.stored_bytes().unwrap();
        if bytes > 0 {
            kept.bytes.insert(number, bytes);
        }
    }
    store.close();
    (kept, shards)
}
