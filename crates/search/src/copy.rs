//! Copies of indexes that others may be writing meanwhile.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use tantivy::TantivyError;
use tantivy::directory::{Directory, META_LOCK, MmapDirectory};

use crate::Error;
use crate::index::META;

/// Where tantivy lists the files that it may remove.
const MANAGED: &str = ".managed.json";

/// What of tantivy's list says which files are of a commit.
#[derive(Deserialize)]
struct Meta {
    segments: Vec<Segment>,
}

#[derive(Deserialize)]
struct Segment {
    segment_id: String,
    deletes: Option<Deletes>,
}

#[derive(Deserialize)]
struct Deletes {
    opstamp: u64,
}

impl Meta {
    fn has(&self, file: &str) -> bool {
        let Some((id, rest)) = file.split_once('.') else {
            return false;
        };
        // The list has dashes between the parts of an id, names of files have none.
        let mut segments = self.segments.iter();
        let segment = segments.find(|segment| segment.segment_id.replace('-', "") == id);
        segment.is_some_and(|segment| match rest.strip_suffix(".del") {
            None => !rest.ends_with("temp"),
            Some(opstamp) => segment
                .deletes
                .as_ref()
                .is_some_and(|deletes| deletes.opstamp.to_string() == opstamp),
        })
    }
}

/// Copies the last commit of the index in a folder to another one, which is made; writes and commits may go on. Files are linked where the file system
/// can. Answers whether there is a copy: there is none of an index that has no commit.
///
/// # Errors
/// The files cannot be read, or the copy cannot be written.
pub fn copy_index(from: &Path, to: &Path) -> Result<bool, Error> {
    if !from.join(META).exists() {
        return Ok(false);
    }
    let directory = MmapDirectory::open(from).map_err(TantivyError::from)?;
    // While it is held nobody removes files of the commit that is read now, though there may be others after it.
    let lock = directory
        .acquire_lock(&META_LOCK)
        .map_err(TantivyError::from)?;
    let meta = match fs::read(from.join(META)) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(false),
        read => read?,
    };
    fs::create_dir_all(to)?;
    let unlinked = link_files(from, to, &meta)?;
    drop(lock);
    for (mut file, to) in unlinked {
        io::copy(&mut file, &mut File::create(to)?)?;
    }
    fs::write(to.join(META), &meta)?;
    Ok(true)
}

/// Links the files of a commit. Those that cannot be linked are answered, open, with where they are to be copied to: that may take long.
fn link_files(from: &Path, to: &Path, meta: &[u8]) -> Result<Vec<(File, PathBuf)>, Error> {
    let meta: Meta = serde_json::from_slice(meta).map_err(|e| Error::Engine(e.to_string()))?;
    let mut unlinked = vec![];
    for entry in fs::read_dir(from)? {
        let name = entry?.file_name();
        if !name.to_str().is_some_and(|name| meta.has(name)) {
            continue;
        }
        let (from, to) = (from.join(&name), to.join(&name));
        match fs::hard_link(&from, &to) {
            Ok(()) => {}
            // The whole index goes.
            Err(e) if e.kind() == ErrorKind::NotFound => {}
            Err(_) => unlinked.push((File::open(&from)?, to)),
        }
    }
    Ok(unlinked)
}

/// Lists the files of a copy as tantivy does, which removes none that it has not listed.
pub(crate) fn list_files(folder: &Path) -> io::Result<()> {
    if folder.join(MANAGED).exists() || !folder.join(META).exists() {
        return Ok(());
    }
    let mut files = BTreeSet::new();
    for entry in fs::read_dir(folder)? {
        files.insert(entry?.file_name());
    }
    let files: Vec<String> = files.into_iter().flat_map(OsString::into_string).collect();
    fs::write(folder.join(MANAGED), serde_json::to_vec(&files)?)
}
