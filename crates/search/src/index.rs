//! An open index: its folder, and the state of its last commit.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tantivy::directory::error::OpenReadError;
use tantivy::{IndexReader, IndexSettings, ReloadPolicy, TantivyError};

use crate::Error;
use crate::copy::list_files;
use crate::omissions::Omissions;
use crate::reader::Reader;
use crate::schema::{Layout, Types};
use crate::tokens::{Decoder, TOKENIZER};
use crate::update::WriterState;
use crate::verify;
use crate::write_behind::{META, WriteBehind};

/// The state of an index, which is written with the documents, so that a crash leaves both or
/// neither.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Commit {
    /// The update sequence of the source that the index includes.
    pub seq: u64,
    /// The purge sequence that the index includes.
    pub purge_seq: u64,
    /// The types of its fields.
    #[serde(default)]
    pub types: Types,
    /// Some document has or had stored fields.
    #[serde(default = "is_unknown")]
    pub has_stored: bool,
    /// The documents that could not be indexed.
    #[serde(default, skip_serializing_if = "Omissions::is_empty")]
    pub left_out: Omissions,
}

/// Indexes that were written before this flag existed may have stored fields.
fn is_unknown() -> bool {
    true
}

/// Indexes up to this size are checked against their checksums when they are opened. For larger
/// ones that would be noticeable: they are checked when they are merged, when something fails, and
/// by `settee check`.
const CHECKED_BYTES_MAX: u64 = 64 << 20;

/// The reason why an index was not opened.
pub(crate) enum OpenFailure {
    /// The files are damaged.
    Damaged(String),
    /// A failure that may be temporary: no memory, no permission, a disk that does not answer.
    Failed(Error),
}

impl From<TantivyError> for OpenFailure {
    fn from(e: TantivyError) -> OpenFailure {
        let is_damage = match &e {
            TantivyError::DataCorruption(_)
            | TantivyError::SchemaError(_)
            | TantivyError::IncompatibleIndex(_) => true,
            TantivyError::OpenReadError(e) => match e {
                OpenReadError::FileDoesNotExist(_) | OpenReadError::IncompatibleIndex(_) => true,
                OpenReadError::IoError { io_error, .. } => matches!(
                    io_error.kind(),
                    ErrorKind::InvalidData | ErrorKind::UnexpectedEof
                ),
            },
            TantivyError::IoError(e) => {
                matches!(e.kind(), ErrorKind::InvalidData | ErrorKind::UnexpectedEof)
            }
            _ => false,
        };
        match is_damage {
            true => OpenFailure::Damaged(e.to_string()),
            false => OpenFailure::Failed(e.into()),
        }
    }
}

impl From<std::io::Error> for OpenFailure {
    fn from(e: std::io::Error) -> OpenFailure {
        OpenFailure::Failed(e.into())
    }
}

impl From<OpenFailure> for Error {
    fn from(unopened: OpenFailure) -> Error {
        match unopened {
            OpenFailure::Damaged(reason) => Error::Engine(reason),
            OpenFailure::Failed(e) => e,
        }
    }
}

/// Size of the compressed blocks of stored fields, in bytes: one block is read for each hit.
const STORED_BLOCK_BYTES: usize = 4 << 10;
/// Blocks of stored fields that a reader caches per segment: hits are few, and each is read once.
const STORED_BLOCKS_KEPT: usize = 1;

/// An index in a folder of its own. The caller ensures that it is opened only once.
pub struct Index {
    pub(crate) folder: PathBuf,
    pub(crate) directory: WriteBehind,
    pub(crate) engine: tantivy::Index,
    pub(crate) layout: Layout,
    files: IndexReader,
    current: Mutex<Arc<Reader>>,
    damage: Option<String>,
    /// The size of the folder's files as of the last commit that was written to it, in bytes.
    mapped_bytes: AtomicU64,
    pub(crate) writing: WriterState,
}

impl Index {
    /// Opens the index in a folder, which is created if it does not exist. Damaged or unreadable
    /// files are deleted, since an index can be rebuilt: it is empty then, and [`Index::damage`]
    /// returns the reason.
    ///
    /// # Errors
    /// The folder cannot be created or written.
    pub fn open(folder: &Path) -> Result<Index, Error> {
        let mark = verify::mark_of(folder)?;
        let is_there = mark.is_some() || folder.join(META).exists();
        let opened = match mark {
            Some(reason) => Err(OpenFailure::Damaged(reason)),
            None => verify::guarded(|| Index::open_undamaged(folder)),
        };
        match opened {
            Err(OpenFailure::Damaged(damage)) if is_there => {
                // Removed before the mark: the other files are worthless without it.
                match std::fs::remove_file(folder.join(META)) {
                    Err(e) if e.kind() != ErrorKind::NotFound => return Err(e.into()),
                    _ => {}
                }
                std::fs::remove_dir_all(folder)?;
                let index = Index::open_folder(folder)?;
                let damage = Some(damage);
                Ok(Index { damage, ..index })
            }
            opened => Ok(opened?),
        }
    }

    fn open_undamaged(folder: &Path) -> Result<Index, OpenFailure> {
        let index = Index::open_folder(folder)?;
        if index.file_bytes() > CHECKED_BYTES_MAX {
            return Ok(index);
        }
        match verify::damage(&index.engine)? {
            Some(reason) => Err(OpenFailure::Damaged(reason)),
            None => Ok(index),
        }
    }

    /// Checks all files against their checksums, while no update or merge runs. If one is damaged,
    /// this returns the reason, and the index is deleted when it is opened next.
    ///
    /// # Errors
    /// The files cannot be read.
    pub fn look_for_damage(&self) -> Result<Option<String>, Error> {
        let damage = match verify::guarded(|| verify::damage(&self.engine)) {
            Err(OpenFailure::Damaged(reason)) => Some(reason),
            looked => looked?,
        };
        if let Some(reason) = &damage {
            verify::mark(&self.folder, reason)?;
        }
        Ok(damage)
    }

    fn open_folder(folder: &Path) -> Result<Index, OpenFailure> {
        std::fs::create_dir_all(folder)?;
        list_files(folder)?;
        let (schema, layout) = Layout::new();
        let directory = WriteBehind::open(folder)?;
        let engine = tantivy::Index::builder()
            .schema(schema)
            .settings(IndexSettings {
                docstore_blocksize: STORED_BLOCK_BYTES,
                // A thread for each update would cost too much: most updates are small.
                docstore_compress_dedicated_thread: false,
                ..IndexSettings::default()
            })
            .open_or_create(directory.clone())?;
        engine.tokenizers().register(TOKENIZER, Decoder);
        let files = engine
            .reader_builder()
            .reload_policy(ReloadPolicy::Manual)
            .doc_store_cache_num_blocks(STORED_BLOCKS_KEPT)
            .try_into()?;
        let commit = read_commit(&engine)?;
        let reader = Reader::new(files.searcher(), layout, commit, None);
        Ok(Index {
            folder: folder.to_owned(),
            engine,
            layout,
            files,
            current: Mutex::new(Arc::new(reader)),
            directory,
            damage: None,
            mapped_bytes: AtomicU64::new(folder_bytes(folder)),
            writing: WriterState::default(),
        })
    }

    /// Returns why the files were deleted when it was opened.
    pub fn damage(&self) -> Option<&str> {
        self.damage.as_deref()
    }

    /// Returns the state of the index as readers see it.
    pub fn commit(&self) -> Arc<Commit> {
        self.current.lock().commit.clone()
    }

    /// Returns a reader of the current state.
    pub fn reader(&self) -> Arc<Reader> {
        self.current.lock().clone()
    }

    /// Makes the last commit visible to readers.
    pub(crate) fn publish(&self) -> Result<(), Error> {
        self.files.reload()?;
        let commit = read_commit(&self.engine)?;
        let mut current = self.current.lock();
        let reader = Reader::new(self.files.searcher(), self.layout, commit, Some(&current));
        *current = Arc::new(reader);
        drop(current);
        // Reading it takes a system call for each file, which a small update need not wait for.
        if !self.directory.has_unwritten() {
            self.mapped_bytes.store(folder_bytes(&self.folder), Relaxed);
        }
        self.directory.drop_unused();
        Ok(())
    }

    /// Writes the commits that are in memory only to the folder. `sync` runs before: the folder must
    /// not represent a state that its source may lose.
    ///
    /// # Errors
    /// Those of `sync`; the files cannot be written.
    pub fn flush<E: From<Error>>(&self, sync: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        self.directory.write(sync)?;
        self.mapped_bytes.store(folder_bytes(&self.folder), Relaxed);
        Ok(())
    }

    /// Returns whether a commit is in memory only.
    pub fn has_unwritten(&self) -> bool {
        self.directory.has_unwritten()
    }

    /// Returns the size of the files that are in memory only, in bytes.
    pub fn unwritten_bytes(&self) -> usize {
        self.directory.held_bytes()
    }

    /// Returns the size of its files, in bytes.
    pub fn file_bytes(&self) -> u64 {
        folder_bytes(&self.folder) + self.directory.held_bytes() as u64
    }

    /// Returns roughly how much memory it takes while it is open, in bytes. Small files count in
    /// full: all of them are in the page cache once they were read. The system reclaims pages of
    /// large files when it needs them.
    pub fn memory_bytes(&self) -> usize {
        let reader = self.reader();
        let mapped = self.mapped_bytes.load(Relaxed).min(MAPPED_BYTES_MAX) as usize;
        let mapped = mapped + self.directory.held_bytes();
        let names: usize = reader.commit.types.keys().map(|name| name.len() + 64).sum();
        size_of::<Index>() + MEMORY_BESIDE_BYTES + mapped + names + reader.memory_bytes()
    }
}

/// Files count as memory up to this size, in bytes.
const MAPPED_BYTES_MAX: u64 = 1 << 20;
/// Memory of an open index besides its own members, in bytes.
const MEMORY_BESIDE_BYTES: usize = 24 << 10;

pub(crate) fn read_commit(engine: &tantivy::Index) -> Result<Arc<Commit>, OpenFailure> {
    let payload = engine.load_metas()?.payload;
    let Some(payload) = payload else {
        return Ok(Arc::default());
    };
    let commit = serde_json::from_str(&payload);
    Ok(Arc::new(commit.map_err(|e| {
        OpenFailure::Damaged(format!("the commit: {e}"))
    })?))
}

/// Returns the size of the files in a folder, in bytes; 0 when it does not exist.
pub fn folder_bytes(folder: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return 0;
    };
    // A file may be removed meanwhile.
    let lengths = entries.filter_map(|e| e.ok()?.metadata().ok().map(|m| m.len()));
    lengths.sum()
}
