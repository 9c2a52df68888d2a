//! Whether the files of an index are what was written. Each ends with a checksum of its bytes, at which tantivy does not look when it reads.

use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use tantivy::directory::MmapDirectory;
use tantivy::directory::error::OpenReadError;
use tantivy::index::SegmentId;
use tantivy::{ReloadPolicy, TantivyError};

use crate::Error;
use crate::index::{META, Unopened, read_commit};

/// A file beside the index: what is wrong with it. It is thrown away when it is opened next.
const MARK: &str = "damaged";

/// Reads all files of the index in a folder that nobody writes; says what is damaged. `None` also where there is no index.
///
/// # Errors
/// The files cannot be read, for a reason that may pass.
pub fn damage_of(folder: &Path) -> Result<Option<String>, Error> {
    if let Some(reason) = mark_of(folder)? {
        return Ok(Some(reason));
    }
    if !folder.join(META).exists() {
        return Ok(None);
    }
    let looked = guarded(|| {
        let directory = MmapDirectory::open(folder).map_err(TantivyError::from)?;
        let engine = tantivy::Index::open(directory)?;
        let reader = engine.reader_builder();
        // Opens the files of all segments.
        let _reader: tantivy::IndexReader =
            reader.reload_policy(ReloadPolicy::Manual).try_into()?;
        read_commit(&engine)?;
        damage(&engine)
    });
    match looked {
        Err(Unopened::Damaged(reason)) => Ok(Some(reason)),
        looked => Ok(looked?),
    }
}

/// What is damaged of an open index that nobody writes meanwhile. Reads all its files.
pub(crate) fn damage(engine: &tantivy::Index) -> Result<Option<String>, Unopened> {
    damage_of_segments(engine, &engine.searchable_segment_ids()?)
}

/// The same of some segments.
pub(crate) fn damage_of_segments(
    engine: &tantivy::Index,
    segments: &[SegmentId],
) -> Result<Option<String>, Unopened> {
    let directory = engine.directory();
    // Not what a process has left that was killed: no commit has that.
    let mut files: Vec<_> = engine
        .load_metas()?
        .list_segment_files()
        .into_iter()
        .collect();
    files.sort();
    for file in files {
        let name = file.to_string_lossy();
        let is_of_segment = |id: &SegmentId| name.starts_with(&id.uuid_string());
        if !segments.iter().any(is_of_segment) {
            continue;
        }
        match directory.validate_checksum(&file) {
            Ok(true) => {}
            Ok(false) => return Ok(Some(format!("{name} has another checksum"))),
            // What is not there any more, or not always. Without one that has to be there, its segment is not opened.
            Err(OpenReadError::FileDoesNotExist(_)) => {}
            Err(e) => match Unopened::from(TantivyError::from(e)) {
                Unopened::Damaged(reason) => return Ok(Some(format!("{name}: {reason}"))),
                failed => return Err(failed),
            },
        }
    }
    Ok(None)
}

/// Does what reads files, which panics where they are not what was written.
pub(crate) fn guarded<T>(read: impl FnOnce() -> Result<T, Unopened>) -> Result<T, Unopened> {
    let panicked = |_| Err(Unopened::Damaged("reading it panicked".to_owned()));
    catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(panicked)
}

/// Notes that an index is to be thrown away when it is opened next.
pub(crate) fn mark(folder: &Path, reason: &str) -> Result<(), Error> {
    Ok(std::fs::write(folder.join(MARK), reason)?)
}

pub(crate) fn mark_of(folder: &Path) -> Result<Option<String>, Error> {
    match std::fs::read(folder.join(MARK)) {
        Ok(reason) => Ok(Some(String::from_utf8_lossy(&reason).into_owned())),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e.into()),
    }
}
