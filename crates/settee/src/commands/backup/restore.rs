//! `settee restore`.

use command_line::counted;
use std::collections::BTreeSet;
use std::path::Path;

use backup::{BackupSelection, Progress, holds_backups, parse_time, time_text};

use super::{size, target};
use crate::Failure;
use crate::cli::RestoreOptions;
use crate::data::{STORE, STORE_MARK, require_directory};
use crate::owner::{NewDirectory, Source, work_as_owner_of};

pub fn run(options: &RestoreOptions) -> Result<(), Failure> {
    let which = which(options)?;
    let directory = Path::new(&options.backup);
    let is_directory = !options.backup.contains("://");
    if is_directory {
        require_directory(directory)?;
    }
    let is_copy = is_directory && !holds_backups(directory);
    if is_copy && !directory.join(STORE_MARK).is_file() {
        return Err(Failure::new(format!(
            "{} is not a backup: it has neither backups nor a file {STORE_MARK}",
            options.backup
        )));
    }
    if is_copy && !matches!(which, BackupSelection::Last) {
        return Err(Failure::usage(format!(
            "{} is a plain copy of a store: --at and --name do not apply",
            options.backup
        )));
    }
    let store = options.data.join(STORE);
    if store.exists() {
        return Err(Failure::new(format!(
            "{} holds data already; restore to another directory, or move it away",
            store.display()
        )));
    }
    if !options.data.exists() {
        work_as_owner_of(&options.data)?;
        std::fs::create_dir_all(&options.data).map_err(at(&options.data))?;
    }
    // Renamed last: an interrupted restore leaves no half store under the store's name.
    let unfinished = NewDirectory::create(&options.data, "store.restoring");
    let unfinished = unfinished.map_err(at(&options.data.join("store.restoring")))?;
    let restored = if is_copy {
        copy(directory, &unfinished.within())?
    } else {
        let _ = rustls::crypto::ring::default_provider().install_default();
        super::super::runtime()?.block_on(fetch(&options.backup, &which, &unfinished.within()))?
    };
    unfinished.finish(STORE).map_err(at(&store))?;
    say!("{restored}; start with: {}", start_of(&options.data));
    Ok(())
}

/// Returns the command that starts a server on restored data. Backups have no admins, and without one nothing starts.
fn start_of(data: &Path) -> String {
    let admin = match data.join("local.ini").exists() {
        true => "",
        false => " --generate-admin",
    };
    format!("settee serve --data {}{admin}", data.display())
}

fn at(path: &Path) -> impl FnOnce(std::io::Error) -> Failure {
    |e| Failure::new(format!("{}: {e}", path.display()))
}

fn which(options: &RestoreOptions) -> Result<BackupSelection, Failure> {
    match (&options.at, &options.name) {
        (Some(text), _) => parse_time(text).map(BackupSelection::At).ok_or_else(|| {
            Failure::usage(format!(
                "--at {text}: a time is like 2026-11-24T03:49:00Z or 2026-11-24T04:49:00+01:00"
            ))
        }),
        (None, Some(name)) => Ok(BackupSelection::Named(name.clone())),
        (None, None) => Ok(BackupSelection::Last),
    }
}

/// Copies a copy of a store. Returns a summary.
fn copy(from: &Path, to: &Path) -> Result<String, Failure> {
    let source = Source::open(from).map_err(at(from))?;
    let names = source.with_path(|path| backup::names_in(path).map_err(std::io::Error::other));
    let names = names.map_err(at(from))?;
    let (mut bytes, mut folders) = (0, BTreeSet::new());
    for name in &names {
        folders.extend(
            Path::new(name)
                .ancestors()
                .skip(1)
                .map(|folder| to.join(folder)),
        );
        let (file, to) = (from.join(name), to.join(name));
        if let Some(folder) = to.parent() {
            std::fs::create_dir_all(folder).map_err(at(folder))?;
        }
        bytes += source.copy(name, &to).map_err(at(&file))?;
    }
    for folder in folders {
        let synced = std::fs::File::open(&folder).and_then(|f| f.sync_all());
        synced.map_err(at(&folder))?;
    }
    Ok(format!(
        "restored {}, {}",
        counted(names.len(), "files"),
        counted(bytes, "bytes")
    ))
}

/// Copies a backup of a target. Returns a summary.
async fn fetch(from: &str, which: &BackupSelection, to: &Path) -> Result<String, Failure> {
    let target = target::open(from).await?;
    let found = backup::find(&target, which).await.map_err(Failure::new)?;
    let progress = Progress::default();
    let restored = backup::restore(&target, &found, to, &progress).await;
    restored.map_err(Failure::new)?;
    Ok(format!(
        "restored the backup {} of {}, {}, {}",
        found.name,
        time_text(found.time),
        counted(found.files.len(), "files"),
        size(found.bytes())
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_that_starts_restored_data_has_an_admin() {
        let folder = tempfile::tempdir().unwrap();
        let command = format!("settee serve --data {}", folder.path().display());
        assert_eq!(
            start_of(folder.path()),
            format!("{command} --generate-admin")
        );
        std::fs::write(folder.path().join("local.ini"), "[admins]\n").unwrap();
        assert_eq!(start_of(folder.path()), command);
    }
}
