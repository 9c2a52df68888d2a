//! The files of an index, of which the newest may be in memory only.
//!
//! A commit of tantivy writes about nine files, and syncs each of them. The files of a small update
//! stay in memory, together with the lists that name them. tantivy finds them as it finds files of
//! the folder, so results do not depend on where a file is. They are written later: first the files,
//! then the lists, and then files that only the previous lists name are removed. So the folder holds
//! one commit at any time, and a crash returns the index to it.

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHashSet};
use tantivy::directory::error::{DeleteError, LockError, OpenReadError, OpenWriteError};
use tantivy::directory::{
    AntiCallToken, Directory, DirectoryLock, FileHandle, Lock, META_LOCK, MmapDirectory,
    OwnedBytes, TerminatingWrite, WatchCallback, WatchHandle, WritePtr,
};

use crate::Error;

/// The file in which tantivy lists the files of an index.
pub(crate) const META: &str = "meta.json";
/// A longer file is written to the folder immediately, in bytes.
const HELD_FILE_BYTES_MAX: usize = 256 << 10;

/// A folder of an index. Clones share their state.
#[derive(Clone, Debug)]
pub(crate) struct WriteBehind {
    folder: MmapDirectory,
    held: Arc<Mutex<Held>>,
    /// Locked while files are written to the folder.
    writing: Arc<Mutex<()>>,
}

/// The differences between the index and its folder.
#[derive(Debug, Default)]
struct Held {
    /// The number of running updates whose files stay in memory.
    holders: usize,
    /// Files that are not in the folder yet. A file never changes.
    files: FxHashMap<PathBuf, OwnedBytes>,
    /// Lists of files, which are replaced as a whole.
    lists: FxHashMap<PathBuf, Arc<[u8]>>,
    /// Files of the folder that were removed. The folder's list may name them.
    removed: FxHashSet<PathBuf>,
}

impl Held {
    /// Returns whether files and lists stay in memory. A list on disk must not name a file that is
    /// in memory only, so that all of them do while any does.
    fn is_used(&self) -> bool {
        self.holders > 0
            || !self.files.is_empty()
            || !self.lists.is_empty()
            || !self.removed.is_empty()
    }
}

/// The contents of memory at one moment, to be written to the folder.
struct Unwritten {
    files: Vec<(PathBuf, OwnedBytes)>,
    lists: Vec<(PathBuf, Arc<[u8]>)>,
    removed: Vec<PathBuf>,
}

/// Keeps new files in memory until it is dropped. They stay there until they are written.
pub(crate) struct Hold(Arc<Mutex<Held>>);

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.lock().holders -= 1;
    }
}

fn is_same(a: &OwnedBytes, b: &OwnedBytes) -> bool {
    std::ptr::eq(a.as_slice(), b.as_slice())
}

impl WriteBehind {
    /// Opens a folder. New files are written to it immediately.
    pub fn open(folder: &Path) -> tantivy::Result<WriteBehind> {
        Ok(WriteBehind {
            folder: MmapDirectory::open(folder)?,
            held: Arc::default(),
            writing: Arc::default(),
        })
    }

    /// Keeps new files in memory.
    pub fn hold(&self) -> Hold {
        self.held.lock().holders += 1;
        Hold(self.held.clone())
    }

    /// Returns the size of the files in memory, in bytes.
    pub fn held_bytes(&self) -> usize {
        let held = self.held.lock();
        held.files.values().map(|file| file.as_slice().len()).sum()
    }

    /// Returns whether the folder differs from the index.
    pub fn has_unwritten(&self) -> bool {
        let held = self.held.lock();
        !held.files.is_empty() || !held.lists.is_empty() || !held.removed.is_empty()
    }

    /// Returns the names of the files in memory.
    pub fn held_files(&self) -> Vec<PathBuf> {
        self.held.lock().files.keys().cloned().collect()
    }

    /// Drops mapped files that are no longer open.
    pub fn drop_unused(&self) {
        // tantivy does this only when it is called.
        self.folder.get_cache_info();
    }

    /// Writes what is in memory at the call to the folder. `before` runs first, after the contents
    /// of memory were read.
    ///
    /// # Errors
    /// Those of `before`, and of the folder: everything stays in memory then.
    pub fn write<E: From<Error>>(&self, before: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        let _writing = self.writing.lock();
        let Some(unwritten) = self.unwritten() else {
            return Ok(());
        };
        before()?;
        let written = self.write_files(&unwritten);
        written.map_err(Error::from)?;
        self.forget(unwritten).map_err(Error::from)?;
        Ok(())
    }

    fn unwritten(&self) -> Option<Unwritten> {
        let held = self.held.lock();
        let unwritten = Unwritten {
            files: (held.files.iter())
                .map(|(name, file)| (name.clone(), file.clone()))
                .collect(),
            lists: (held.lists.iter())
                .map(|(name, list)| (name.clone(), list.clone()))
                .collect(),
            removed: held.removed.iter().cloned().collect(),
        };
        let is_empty = unwritten.files.is_empty()
            && unwritten.lists.is_empty()
            && unwritten.removed.is_empty();
        (!is_empty).then_some(unwritten)
    }

    fn write_files(&self, unwritten: &Unwritten) -> io::Result<()> {
        let Unwritten { files, lists, .. } = unwritten;
        for (name, file) in files {
            self.folder.atomic_write(name, file.as_slice())?;
        }
        // The names of files must be on disk before a list names them.
        self.folder.sync_directory()?;
        let is_commit = |name: &Path| name == Path::new(META);
        let (commit, others): (Vec<_>, Vec<_>) =
            lists.iter().partition(|(name, _)| is_commit(name));
        for (name, list) in others.into_iter().chain(commit) {
            self.folder.atomic_write(name, list)?;
        }
        match lists.is_empty() {
            true => Ok(()),
            false => self.folder.sync_directory(),
        }
    }

    /// Forgets what is in the folder now, and removes what its list no longer names.
    fn forget(&self, unwritten: Unwritten) -> io::Result<()> {
        let mut held = self.held.lock();
        for (name, file) in unwritten.files {
            match held.files.get(&name) {
                Some(now) if is_same(now, &file) => {
                    held.files.remove(&name);
                }
                Some(_) => {}
                // It was removed meanwhile. The list that was just written may name it.
                None => {
                    held.removed.insert(name);
                }
            }
        }
        for (name, list) in unwritten.lists {
            if (held.lists.get(&name)).is_some_and(|now| Arc::ptr_eq(now, &list)) {
                held.lists.remove(&name);
            }
        }
        drop(held);
        if unwritten.removed.is_empty() {
            return Ok(());
        }
        // A copy of the index that began before reads files of the previous list.
        let lock = self.folder.acquire_lock(&META_LOCK);
        drop(lock.map_err(io::Error::other)?);
        for name in unwritten.removed {
            // There may be a new file of this name, which is written later.
            if self.held.lock().removed.remove(&name) {
                match self.folder.delete(&name) {
                    Ok(()) | Err(DeleteError::FileDoesNotExist(_)) => {}
                    Err(e) => return Err(io::Error::other(e)),
                }
            }
        }
        Ok(())
    }
}

impl Directory for WriteBehind {
    fn get_file_handle(&self, path: &Path) -> Result<Arc<dyn FileHandle>, OpenReadError> {
        let held = self.held.lock();
        if let Some(file) = held.files.get(path) {
            return Ok(Arc::new(file.clone()));
        }
        if held.removed.contains(path) {
            return Err(OpenReadError::FileDoesNotExist(path.to_owned()));
        }
        drop(held);
        self.folder.get_file_handle(path)
    }

    fn delete(&self, path: &Path) -> Result<(), DeleteError> {
        let mut held = self.held.lock();
        if held.files.remove(path).is_some() {
            return Ok(());
        }
        if !held.is_used() {
            drop(held);
            return self.folder.delete(path);
        }
        let exists = self.folder.exists(path);
        let exists = exists.map_err(|e| DeleteError::IoError {
            io_error: Arc::new(io::Error::other(e)),
            filepath: path.to_owned(),
        })?;
        match exists && held.removed.insert(path.to_owned()) {
            true => Ok(()),
            false => Err(DeleteError::FileDoesNotExist(path.to_owned())),
        }
    }

    fn exists(&self, path: &Path) -> Result<bool, OpenReadError> {
        let held = self.held.lock();
        if held.files.contains_key(path) || held.lists.contains_key(path) {
            return Ok(true);
        }
        if held.removed.contains(path) {
            return Ok(false);
        }
        drop(held);
        self.folder.exists(path)
    }

    fn open_write(&self, path: &Path) -> Result<WritePtr, OpenWriteError> {
        if !self.held.lock().is_used() {
            return self.folder.open_write(path);
        }
        let exists = self
            .exists(path)
            .map_err(|e| OpenWriteError::wrap_io_error(io::Error::other(e), path.to_owned()))?;
        if exists {
            return Err(OpenWriteError::FileAlreadyExists(path.to_owned()));
        }
        Ok(BufWriter::new(Box::new(HeldWriter {
            directory: self.clone(),
            path: path.to_owned(),
            bytes: vec![],
            long: None,
        })))
    }

    fn atomic_read(&self, path: &Path) -> Result<Vec<u8>, OpenReadError> {
        if let Some(list) = self.held.lock().lists.get(path) {
            return Ok(list.to_vec());
        }
        self.folder.atomic_read(path)
    }

    fn atomic_write(&self, path: &Path, data: &[u8]) -> io::Result<()> {
        let mut held = self.held.lock();
        if held.is_used() {
            held.lists.insert(path.to_owned(), data.into());
            return Ok(());
        }
        drop(held);
        self.folder.atomic_write(path, data)
    }

    fn sync_directory(&self) -> io::Result<()> {
        let is_held = self.held.lock().is_used();
        match is_held {
            true => Ok(()),
            false => self.folder.sync_directory(),
        }
    }

    fn acquire_lock(&self, lock: &Lock) -> Result<DirectoryLock, LockError> {
        self.folder.acquire_lock(lock)
    }

    fn watch(&self, callback: WatchCallback) -> tantivy::Result<WatchHandle> {
        self.folder.watch(callback)
    }
}

/// A new file, which is in memory unless it becomes long.
struct HeldWriter {
    directory: WriteBehind,
    path: PathBuf,
    bytes: Vec<u8>,
    long: Option<WritePtr>,
}

impl Write for HeldWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(long) = &mut self.long {
            return long.write(bytes);
        }
        if self.bytes.len() + bytes.len() <= HELD_FILE_BYTES_MAX {
            self.bytes.extend_from_slice(bytes);
            return Ok(bytes.len());
        }
        let long = self.directory.folder.open_write(&self.path);
        let mut long = long.map_err(io::Error::other)?;
        long.write_all(&std::mem::take(&mut self.bytes))?;
        self.long.insert(long).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.long {
            Some(long) => long.flush(),
            None => Ok(()),
        }
    }
}

impl TerminatingWrite for HeldWriter {
    fn terminate_ref(&mut self, _: AntiCallToken) -> io::Result<()> {
        if let Some(long) = self.long.take() {
            return long.terminate();
        }
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.shrink_to_fit();
        let mut held = self.directory.held.lock();
        held.removed.remove(&self.path);
        held.files.insert(self.path.clone(), OwnedBytes::new(bytes));
        Ok(())
    }
}
