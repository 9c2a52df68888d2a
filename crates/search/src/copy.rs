//! Copies of indexes that others may be writing meanwhile.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

use serde::Deserialize;

use crate::Error;
use crate::index::META;

/// Where tantivy lists the files that it may remove.
const MANAGED: &str = ".managed.json";
/// How often a copy is begun again because of a commit meanwhile.
const TIMES_MAX: u32 = 20;

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

/// Copies the last commit of the index in a folder to another one, which is made; writes may go on. Files are linked where the file system can. Answers
/// whether there is a copy: there is none of an index that has no commit, or that commits all the time.
///
/// # Errors
/// The files cannot be read, or the copy cannot be written.
pub fn copy_index(from: &Path, to: &Path) -> Result<bool, Error> {
    for _ in 0..TIMES_MAX {
        let Some(meta) = read_meta(from)? else {
            return Ok(false);
        };
        fs::create_dir_all(to)?;
        // What went meanwhile went by a commit.
        if copy_files(from, to, &meta)? && read_meta(from)?.as_ref() == Some(&meta) {
            fs::write(to.join(META), &meta)?;
            return Ok(true);
        }
        fs::remove_dir_all(to)?;
    }
    Ok(false)
}

fn read_meta(folder: &Path) -> io::Result<Option<Vec<u8>>> {
    match fs::read(folder.join(META)) {
        Ok(meta) => Ok(Some(meta)),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

/// Answers whether no file went meanwhile.
fn copy_files(from: &Path, to: &Path, meta: &[u8]) -> Result<bool, Error> {
    let meta: Meta = serde_json::from_slice(meta).map_err(|e| Error::Engine(e.to_string()))?;
    for entry in fs::read_dir(from)? {
        let name = entry?.file_name();
        if !name.to_str().is_some_and(|name| meta.has(name)) {
            continue;
        }
        let (from, to) = (from.join(&name), to.join(&name));
        let copied = match fs::hard_link(&from, &to) {
            Err(e) if e.kind() != ErrorKind::NotFound => fs::copy(&from, &to).map(drop),
            linked => linked,
        };
        match copied {
            Ok(()) => {}
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(false),
            Err(e) => return Err(e.into()),
        }
    }
    Ok(true)
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
