//! Copies of the store as a directory.

use std::path::PathBuf;

use backup::TargetName;

use super::Backups;
use crate::error::{Error, Result};

impl Backups {
    /// Copies the store to `directory`, which must not exist yet, for a client. `permit`: as of [`Backups::start`].
    ///
    /// # Errors
    /// [`Error::BadRequest`] for a path that is not absolute, [`Error::BackupForbidden`],
    /// [`database::Error::DirectoryExists`], and [`Error::Backup`].
    pub async fn copy_to(&self, directory: PathBuf, permit: Option<&str>) -> Result<()> {
        if !directory.is_absolute() {
            return Err(Error::BadRequest(
                "`directory` must be an absolute path".to_owned(),
            ));
        }
        self.admit(&TargetName::Directory(directory.clone()), permit)?;
        let databases = self.databases.clone();
        tokio::task::spawn_blocking(move || databases.backup(&directory))
            .await
            .map_err(|e| Error::Backup(e.to_string()))?
            .map_err(|e| match e {
                // The user who named the directory may see the error.
                database::Error::Storage(e) => Error::Backup(e.to_string()),
                e => e.into(),
            })
    }
}
