//! A store out of a backup.

use std::collections::BTreeSet;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use chrono::{DateTime, Utc};
use futures_util::{StreamExt as _, TryStreamExt as _};
use tokio::io::AsyncWriteExt as _;

use crate::error::{Error, Result};
use crate::manifest::{File, Manifest, time_text};
use crate::progress::Progress;
use crate::read::{FileState, read};
use crate::target::Target;

/// Files that are copied at a time.
const FILES_AT_ONCE: usize = 3;

/// Which backup.
#[derive(Clone, Debug)]
pub enum BackupSelection {
    /// The last one.
    Last,
    /// The last one of this moment or before.
    At(DateTime<Utc>),
    /// The backup of this name.
    Named(String),
}

/// Returns the chosen backup.
///
/// # Errors
/// [`Error::NoSuchBackup`], [`Error::NoneBefore`], [`Error::NoBackups`], [`Error::Manifest`] when
/// one that could be the chosen one cannot be read, and those of the target.
pub async fn find(target: &Target, which: &BackupSelection) -> Result<Manifest> {
    let at = match which {
        BackupSelection::Named(name) => return target.backup(name).await,
        BackupSelection::Last => None,
        BackupSelection::At(at) => Some(*at),
    };
    let (mut backups, mut broken) = target.backups().await?;
    if let Some(error) = broken.pop() {
        // It may be the last one, and an older one in its place would be a surprise. A name chooses
        // explicitly.
        return Err(error);
    }
    let oldest = backups.first().map(|backup| time_text(backup.time));
    let found = match at {
        None => backups.pop(),
        Some(at) => backups.into_iter().rfind(|backup| backup.time <= at),
    };
    match (found, oldest, at) {
        (Some(found), _, _) => Ok(found),
        (None, Some(oldest), Some(at)) => Err(Error::NoneBefore {
            at: time_text(at),
            oldest,
        }),
        _ => Err(Error::NoBackups(target.name().to_string())),
    }
}

/// Copies a backup's files to an existing empty directory and syncs them. Content is verified on
/// its way.
///
/// # Errors
/// [`Error::Damaged`], those of the target and of the directory. The directory is then unusable.
pub async fn restore(
    target: &Target,
    backup: &Manifest,
    directory: &Path,
    progress: &Progress,
) -> Result<()> {
    progress.expect(backup.bytes());
    let folders: BTreeSet<&Path> = backup
        .files
        .iter()
        .filter_map(|file| Path::new(&file.name).parent())
        .flat_map(Path::ancestors)
        .collect();
    // Parents first.
    for folder in &folders {
        let folder = directory.join(folder);
        if !folder.exists() {
            std::fs::create_dir(&folder).map_err(Error::file(&folder))?;
        }
    }
    futures_util::stream::iter(&backup.files)
        .map(Ok)
        .try_for_each_concurrent(FILES_AT_ONCE, |file| {
            copy(target, backup, file, directory, progress)
        })
        .await?;
    for folder in folders {
        let folder = directory.join(folder);
        let synced = std::fs::File::open(&folder).and_then(|d| d.sync_all());
        synced.map_err(Error::file(folder))?;
    }
    Ok(())
}

async fn copy(
    target: &Target,
    backup: &Manifest,
    file: &File,
    directory: &Path,
    progress: &Progress,
) -> Result<()> {
    let path = directory.join(&file.name);
    let created = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path);
    let mut written = tokio::fs::File::from_std(created.map_err(Error::file(&path))?);
    let found = read(target, &file.blake3, file.bytes, async |part| {
        written.write_all(&part).await.map_err(Error::file(&path))?;
        progress.copied(part.len() as u64);
        Ok::<(), Error>(())
    });
    let what = match found.await? {
        FileState::Whole => {
            // Bytes buffered by tokio are written first.
            written.flush().await.map_err(Error::file(&path))?;
            written.sync_all().await.map_err(Error::file(&path))?;
            progress.file_copied();
            return Ok(());
        }
        FileState::Missing => "missing",
        FileState::Damaged => "damaged",
    };
    Err(Error::Damaged {
        name: backup.name.clone(),
        file: file.name.clone(),
        what,
    })
}
