//! Copies indexes that may be written meanwhile.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use tantivy::TantivyError;
use tantivy::directory::{Directory, META_LOCK, MmapDirectory};
use tantivy::index::IndexMeta;

use crate::Error;
use crate::verify::{files_of, mark_of};
use crate::write_behind::META;

/// The file in which tantivy lists the files that it may remove.
const MANAGED: &str = ".managed.json";

/// Copies the last commit of the index in a folder to a new folder; writes and commits may
/// continue. Files are hard-linked where the file system can. Returns whether a copy was made: none
/// is made of an index without a commit, or of one marked as damaged.
///
/// # Errors
/// The files cannot be read, one is missing, or the copy cannot be written. A partial copy may
/// remain then.
pub fn copy_index(from: &Path, to: &Path) -> Result<bool, Error> {
    if !from.join(META).exists() || mark_of(from)?.is_some() {
        return Ok(false);
    }
    let directory = MmapDirectory::open(from).map_err(TantivyError::from)?;
    // While this lock is held, no files of the commit that is read now are removed, though there
    // may be later commits.
    let lock = directory
        .acquire_lock(&META_LOCK)
        .map_err(TantivyError::from)?;
    let meta = tantivy::Index::open(directory)?.load_metas()?;
    // Must be private to this user: a write to a link writes to the index.
    fs::create_dir(to)?;
    let unlinked = link_files(from, to, &meta)?;
    drop(lock);
    for (mut file, to) in unlinked {
        let mut copy = File::create_new(to)?;
        io::copy(&mut file, &mut copy)?;
        copy.sync_all()?;
    }
    let list = serde_json::to_vec(&meta).map_err(|e| Error::Engine(e.to_string()))?;
    write_synced(&to.join(META), &list)?;
    File::open(to)?.sync_all()?;
    // Files that were found to be damaged meanwhile are in the copy.
    Ok(mark_of(from)?.is_none() || {
        fs::remove_dir_all(to)?;
        false
    })
}

/// Hard-links the files of a commit. Returns those that cannot be linked, open, with their
/// destinations: copying them may be slow.
fn link_files(from: &Path, to: &Path, meta: &IndexMeta) -> Result<Vec<(File, PathBuf)>, Error> {
    let mut unlinked = vec![];
    for name in files_of(meta, |_| true) {
        let (from, to) = (from.join(&name), to.join(&name));
        match fs::hard_link(&from, &to) {
            Ok(()) => {}
            Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::AlreadyExists) => {
                return Err(e.into());
            }
            Err(_) => unlinked.push((File::open(&from)?, to)),
        }
    }
    Ok(unlinked)
}

fn write_synced(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    io::Write::write_all(&mut file, bytes)?;
    file.sync_all()
}

/// Lists the files of a copy as tantivy does, which removes only files that it has listed.
pub(crate) fn list_files(folder: &Path) -> io::Result<()> {
    let list = folder.join(MANAGED);
    if list.exists() || !folder.join(META).exists() {
        return Ok(());
    }
    let mut files = BTreeSet::new();
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name().into_string();
        // Hidden files are locks.
        files.extend(name.ok().filter(|name| !name.starts_with('.')));
    }
    let unfinished = folder.join(".managed.unfinished");
    write_synced(&unfinished, &serde_json::to_vec(&files)?)?;
    fs::rename(unfinished, list)
}
