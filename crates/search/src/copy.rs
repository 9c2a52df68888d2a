//! Copies of indexes that others may be writing meanwhile.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use tantivy::TantivyError;
use tantivy::directory::{Directory, META_LOCK, MmapDirectory};
use tantivy::index::IndexMeta;

use crate::Error;
use crate::index::META;
use crate::verify::{files_of, mark_of};

/// Where tantivy lists the files that it may remove.
const MANAGED: &str = ".managed.json";

/// Copies the last commit of the index in a folder to another one, which is made; writes and commits may go on. Files are linked where the file system
/// can. Answers whether there is a copy: there is none of an index that has no commit, or that is to be thrown away.
///
/// # Errors
/// The files cannot be read, one is not there, or the copy cannot be written. Something of it may be there then.
pub fn copy_index(from: &Path, to: &Path) -> Result<bool, Error> {
    if !from.join(META).exists() || mark_of(from)?.is_some() {
        return Ok(false);
    }
    let directory = MmapDirectory::open(from).map_err(TantivyError::from)?;
    // While it is held nobody removes files of the commit that is read now, though there may be others after it.
    let lock = directory
        .acquire_lock(&META_LOCK)
        .map_err(TantivyError::from)?;
    let meta = tantivy::Index::open(directory)?.load_metas()?;
    // Nobody else's: what is written to a link is written to the index.
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
    // What was found damaged meanwhile has gone into the copy as it was.
    Ok(mark_of(from)?.is_none() || {
        fs::remove_dir_all(to)?;
        false
    })
}

/// Links the files of a commit. Those that cannot be linked are answered, open, with where they are to be copied to: that may take long.
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

/// Lists the files of a copy as tantivy does, which removes none that it has not listed.
pub(crate) fn list_files(folder: &Path) -> io::Result<()> {
    let list = folder.join(MANAGED);
    if list.exists() || !folder.join(META).exists() {
        return Ok(());
    }
    let mut files = BTreeSet::new();
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name().into_string();
        // Others are locks.
        files.extend(name.ok().filter(|name| !name.starts_with('.')));
    }
    let unfinished = folder.join(".managed.unfinished");
    write_synced(&unfinished, &serde_json::to_vec(&files)?)?;
    fs::rename(unfinished, list)
}
