//! Verification: have the files of backups changed?

use std::collections::{BTreeMap, BTreeSet};

use crate::error::{Error, Result};
use crate::manifest::Manifest;
use crate::read::{FileState, read};
use crate::target::Target;

/// Result of verifying backups.
#[derive(Debug, Default)]
pub struct VerifyResult {
    /// The verified backups.
    pub backups: Vec<Manifest>,
    /// Different files of them, each read once.
    pub files: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// The problems, as texts.
    pub faults: Vec<String>,
}

/// Reads all files of the backup `name`, or of all backups, and compares their hashes.
///
/// # Errors
/// Errors of the target, and [`Error::NoSuchBackup`]. Problems of backups are in the result, not
/// errors.
pub async fn verify(target: &Target, name: Option<&str>) -> Result<VerifyResult> {
    let mut verified = VerifyResult::default();
    match name {
        None => {
            let (backups, broken) = target.backups().await?;
            verified.backups = backups;
            verified.faults.extend(broken.iter().map(Error::to_string));
        }
        Some(name) => match target.backup(name).await {
            Ok(backup) => verified.backups.push(backup),
            Err(e @ Error::Manifest { .. }) => verified.faults.push(e.to_string()),
            Err(e) => return Err(e),
        },
    }
    // Each file once, however many backups have it.
    let mut files: BTreeMap<(&str, u64), (&str, Vec<&str>)> = BTreeMap::new();
    for backup in &verified.backups {
        for file in &backup.files {
            let of = files.entry((&file.blake3, file.bytes)).or_default();
            of.0 = &file.name;
            of.1.push(&backup.name);
        }
    }
    let (mut faults, mut count, mut bytes_read) = (vec![], 0, 0);
    let mut gone: BTreeSet<&str> = BTreeSet::new();
    for ((blake3, bytes), (name, backups)) in files {
        let found = read::<Error>(target, blake3, bytes, async |_| Ok(()));
        let (what, remedy) = match found.await? {
            FileState::Whole => ("", ""),
            FileState::Missing => ("missing", ""),
            FileState::Damaged => (
                "damaged",
                "; remove it, so that the next backup that has it copies it again",
            ),
        };
        if !what.is_empty() {
            // A prune may have removed a backup, and then its files, since.
            let mut needed_by = vec![];
            for &backup in &backups {
                if target.has_backup(backup).await? {
                    needed_by.push(backup);
                }
            }
            gone.extend(backups.iter().filter(|backup| !needed_by.contains(backup)));
            if !needed_by.is_empty() {
                let of = needed_by.join(", ");
                let path = Target::file_path(blake3);
                faults.push(format!("{name} is {what} ({path}), of: {of}{remedy}"));
            }
        }
        count += 1;
        bytes_read += bytes;
    }
    let gone: BTreeSet<String> = gone.into_iter().map(str::to_owned).collect();
    verified
        .backups
        .retain(|backup| !gone.contains(&backup.name));
    verified.faults.extend(faults);
    (verified.files, verified.bytes) = (count, bytes_read);
    Ok(verified)
}
