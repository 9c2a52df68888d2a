//! Copies of a store with its text indexes.

use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use storage::{Store, folders_in};

use crate::Error;

/// Smaller indexes are not copied, in bytes of their files: rebuilding one takes less than about a
/// second, and each has some ten files.
const COPIED_BYTES_MIN: u64 = 4 << 20;

/// Held during a copy: two to one target would write to each other's files.
static COPYING: Mutex<()> = Mutex::new(());

/// Copies everything as of now to the directory `target`, which must not exist. Blocks; writes
/// continue meanwhile, and other copies wait.
///
/// A text index that cannot be copied is left out, since it can be rebuilt, and so are all of them
/// if the disk has too little space.
pub fn copy_store(store: &Store, target: &Path) -> Result<(), Error> {
    let _alone = COPYING.lock();
    if target.exists() {
        return Err(Error::DirectoryExists(target.display().to_string()));
    }
    let aside = text_index_folder(target);
    let copied = copy_with(store, target, &aside);
    let removed = remove(&aside);
    copied?;
    removed.map_err(|e| failed(target, &e))
}

fn copy_with(store: &Store, target: &Path, aside: &Path) -> Result<(), Error> {
    let at = |e: std::io::Error| failed(target, &e);
    remove(aside).map_err(at)?;
    // Before the store: an index may be behind it, and never ahead of it.
    for folder in store.folders() {
        copy_index(&folder, aside);
    }
    if !aside.exists() {
        return Ok(store.copy(target)?);
    }
    if let Err(error) = store.copy(target) {
        if target.exists() {
            return Err(error.into());
        }
        tracing::warn!(%error, "the store is copied again, without its text indexes");
        remove(aside).map_err(at)?;
        return Ok(store.copy(target)?);
    }
    // Indexes that were dropped meanwhile would never be removed from the copy.
    let there = folders_in(store.engine().path());
    for copied in fs::read_dir(aside).map_err(at)? {
        let copied = copied.map_err(at)?;
        if !there.join(copied.file_name()).exists() {
            remove(&copied.path()).map_err(at)?;
        }
    }
    sync(aside).map_err(at)?;
    fs::rename(aside, folders_in(target)).map_err(at)?;
    sync(target).map_err(at)
}

fn failed(target: &Path, error: &std::io::Error) -> Error {
    Error::Storage(storage::Error::Directory {
        path: target.to_owned(),
        reason: error.to_string(),
    })
}

fn copy_index(folder: &Path, aside: &Path) {
    let Some(name) = folder.file_name() else {
        return;
    };
    if search::folder_bytes(folder) < COPIED_BYTES_MIN {
        return;
    }
    let to = aside.join(name);
    let made = fs::create_dir_all(aside).map_err(search::Error::from);
    if let Err(error) = made.and_then(|()| search::copy_index(folder, &to)) {
        tracing::warn!(%error, folder = %folder.display(), "a text index is not copied");
        remove(&to).ok();
    }
}

/// Where copies of text indexes wait until the target of [`crate::Databases::copy`] exists.
pub fn text_index_folder(target: &Path) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(target.file_name().unwrap_or_default());
    name.push(".settee-text");
    target.with_file_name(name)
}

fn sync(folder: &Path) -> std::io::Result<()> {
    fs::File::open(folder)?.sync_all()
}

fn remove(folder: &Path) -> std::io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}
