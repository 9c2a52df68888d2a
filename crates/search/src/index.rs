//! An open index: its folder, and what its last commit stands for.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tantivy::directory::MmapDirectory;
use tantivy::index::SegmentId;
use tantivy::{IndexReader, ReloadPolicy};

use crate::Error;
use crate::reader::{Reader, Statistics};
use crate::schema::{Layout, Types};
use crate::tokens::{Decoder, TOKENIZER};

/// What an index stands for: it is written with the documents, so that a crash leaves both or none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Commit {
    /// The seq of whoever writes it that the index has come to.
    pub seq: u64,
    /// The purges that it knows of.
    pub purge_seq: u64,
    /// The types of its fields.
    #[serde(default)]
    pub types: Types,
}

/// Blocks of stored fields that a reader keeps for each segment: hits are few, and read once.
const STORED_BLOCKS_KEPT: usize = 1;

/// An index in a folder of its own. Who opens it sees to it that nobody else has it open.
pub struct Index {
    folder: PathBuf,
    pub(crate) engine: tantivy::Index,
    pub(crate) layout: Layout,
    files: IndexReader,
    current: Mutex<Arc<Reader>>,
    statistics: Arc<Statistics>,
    damage: Option<String>,
    /// Held by whoever writes.
    pub(crate) writing: Mutex<()>,
}

impl Index {
    /// Opens the index in a folder, which is made if it is not there. Files that cannot be read are thrown away, since an index
    /// can be made again: it is empty then, and [`Index::damage`] says why.
    ///
    /// # Errors
    /// The folder cannot be made or written.
    pub fn open(folder: &Path) -> Result<Index, Error> {
        match Index::open_folder(folder) {
            Err(e) if folder.join("meta.json").exists() => {
                std::fs::remove_dir_all(folder)?;
                let damage = Some(e.to_string());
                let index = Index::open_folder(folder)?;
                Ok(Index { damage, ..index })
            }
            opened => opened,
        }
    }

    fn open_folder(folder: &Path) -> Result<Index, Error> {
        std::fs::create_dir_all(folder)?;
        let (schema, layout) = Layout::new();
        let directory = MmapDirectory::open(folder).map_err(|e| Error::Engine(e.to_string()))?;
        let engine = tantivy::Index::builder()
            .schema(schema)
            .open_or_create(directory)?;
        engine.tokenizers().register(TOKENIZER, Decoder);
        let files = engine
            .reader_builder()
            .reload_policy(ReloadPolicy::Manual)
            .doc_store_cache_num_blocks(STORED_BLOCKS_KEPT)
            .try_into()?;
        let statistics = Arc::new(Statistics::default());
        let commit = read_commit(&engine)?;
        let reader = Reader::new(files.searcher(), layout, commit, statistics.clone());
        Ok(Index {
            folder: folder.to_owned(),
            engine,
            layout,
            files,
            current: Mutex::new(Arc::new(reader)),
            statistics,
            damage: None,
            writing: Mutex::default(),
        })
    }

    /// Why the files that were there were thrown away when it was opened.
    pub fn damage(&self) -> Option<&str> {
        self.damage.as_deref()
    }

    /// What the index stands for as readers see it.
    pub fn commit(&self) -> Arc<Commit> {
        self.current.lock().commit.clone()
    }

    /// The index as it is now.
    pub fn reader(&self) -> Arc<Reader> {
        self.current.lock().clone()
    }

    /// Shows readers what was committed last.
    pub(crate) fn publish(&self) -> Result<(), Error> {
        self.files.reload()?;
        let commit = read_commit(&self.engine)?;
        let searcher = self.files.searcher();
        let segments: HashSet<SegmentId> = searcher
            .segment_readers()
            .iter()
            .map(|s| s.segment_id())
            .collect();
        self.statistics.keep(&segments);
        let reader = Reader::new(searcher, self.layout, commit, self.statistics.clone());
        *self.current.lock() = Arc::new(reader);
        Ok(())
    }

    /// Bytes of its files.
    pub fn file_bytes(&self) -> u64 {
        folder_bytes(&self.folder)
    }

    /// About how much memory it takes while it is open, in bytes, without what the system caches of its files.
    pub fn memory_bytes(&self) -> usize {
        let reader = self.reader();
        let names: usize = reader.commit.types.keys().map(|name| name.len() + 64).sum();
        size_of::<Index>() + MEMORY_BESIDE_BYTES + names + reader.segments() * SEGMENT_MEMORY_BYTES
    }
}

/// What an open index takes besides its own members, in bytes.
const MEMORY_BESIDE_BYTES: usize = 24 << 10;
/// What an open segment takes, in bytes.
const SEGMENT_MEMORY_BYTES: usize = 16 << 10;

fn read_commit(engine: &tantivy::Index) -> Result<Arc<Commit>, Error> {
    let payload = engine.load_metas()?.payload;
    let Some(payload) = payload else {
        return Ok(Arc::default());
    };
    let commit = serde_json::from_str(&payload);
    Ok(Arc::new(
        commit.map_err(|e| Error::Engine(format!("the commit: {e}")))?,
    ))
}

/// Bytes of the files in a folder; 0 when it is not there.
pub(crate) fn folder_bytes(folder: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return 0;
    };
    // A file may go while it is looked at.
    let lengths = entries.filter_map(|e| e.ok()?.metadata().ok().map(|m| m.len()));
    lengths.sum()
}
