//! Verifies the files of an index. Each ends with a checksum of its bytes, which tantivy does not
//! check when it reads.

use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use tantivy::directory::error::OpenReadError;
use tantivy::directory::{Directory, MmapDirectory};
use tantivy::index::{IndexMeta, SegmentComponent, SegmentId};
use tantivy::{SegmentReader, TantivyError};

use crate::Error;
use crate::index::{OpenFailure, read_commit};
use crate::write_behind::META;

/// A file next to the index with the description of a damage. An index with it is deleted when it
/// is opened next.
const MARK: &str = "damaged";

/// Verifies all files of the index in a folder, while no update runs; returns a description of the
/// damage. `None` also where there is no index.
///
/// # Errors
/// The files cannot be read, for a reason that may be temporary.
pub fn find_damage(folder: &Path) -> Result<Option<String>, Error> {
    if let Some(reason) = mark_of(folder)? {
        return Ok(Some(reason));
    }
    if !folder.join(META).exists() {
        return Ok(None);
    }
    let looked = guarded(|| {
        let directory = MmapDirectory::open(folder).map_err(TantivyError::from)?;
        let engine = tantivy::Index::open(directory)?;
        // Not through tantivy's reader, which creates a file: this process may run as a user other
        // than the index's owner.
        for segment in engine.searchable_segments()? {
            SegmentReader::open(&segment)?;
        }
        read_commit(&engine)?;
        damage(&engine)
    });
    match looked {
        Err(OpenFailure::Damaged(reason)) => Ok(Some(reason)),
        looked => Ok(looked?),
    }
}

/// Returns the damage of an open index, while no update runs. Reads all its files.
pub(crate) fn damage(engine: &tantivy::Index) -> Result<Option<String>, OpenFailure> {
    damage_of_segments(engine, &engine.searchable_segment_ids()?)
}

/// Returns the damage of some segments.
pub(crate) fn damage_of_segments(
    engine: &tantivy::Index,
    segments: &[SegmentId],
) -> Result<Option<String>, OpenFailure> {
    let directory = engine.directory();
    let of_segments = |meta: &IndexMeta| files_of(meta, |id| segments.contains(id));
    // Not leftovers of a killed process: no commit has them.
    for file in of_segments(&engine.load_metas()?) {
        let name = file.to_string_lossy();
        // A mapped file can be read even after it was removed.
        let sum = match directory.exists(&file) {
            Ok(false) => Err(OpenReadError::FileDoesNotExist(file.clone())),
            Ok(true) => directory.validate_checksum(&file),
            Err(e) => Err(e),
        };
        match sum {
            Ok(true) => {}
            Ok(false) => return Ok(Some(format!("{name} has another checksum"))),
            Err(OpenReadError::FileDoesNotExist(_)) => {
                // Another merge may have ended meanwhile.
                if of_segments(&engine.load_metas()?).contains(&file) {
                    return Ok(Some(format!("{name} is missing")));
                }
            }
            Err(e) => match OpenFailure::from(TantivyError::from(e)) {
                OpenFailure::Damaged(reason) => return Ok(Some(format!("{name}: {reason}"))),
                failed => return Err(failed),
            },
        }
    }
    Ok(None)
}

/// Returns the names of the files of some segments of a commit, all of which must exist.
pub(crate) fn files_of(meta: &IndexMeta, of: impl Fn(&SegmentId) -> bool) -> Vec<PathBuf> {
    let mut files = vec![];
    for segment in meta.segments.iter().filter(|segment| of(&segment.id())) {
        let always = [
            SegmentComponent::FastFields,
            SegmentComponent::FieldNorms,
            SegmentComponent::Positions,
            SegmentComponent::Postings,
            SegmentComponent::Store,
            SegmentComponent::Terms,
        ];
        let deletes = segment.has_deletes().then_some(SegmentComponent::Delete);
        files.extend(
            always
                .into_iter()
                .chain(deletes)
                .map(|c| segment.relative_path(c)),
        );
    }
    files
}

/// Runs code that reads files, and turns panics, which damaged files cause, into errors.
pub(crate) fn guarded<T>(read: impl FnOnce() -> Result<T, OpenFailure>) -> Result<T, OpenFailure> {
    let panicked = |_| Err(OpenFailure::Damaged("reading it panicked".to_owned()));
    catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(panicked)
}

/// Marks an index for deletion when it is opened next.
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
