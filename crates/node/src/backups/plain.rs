//! Copies of the store as a directory.

use std::path::PathBuf;
use std::sync::Arc;

use database::Databases;

use crate::error::{Error, Result};

/// Copies the store to `directory`, which must not exist yet.
///
/// # Errors
/// [`Error::BadRequest`] for a path that is not absolute, [`database::Error::DirectoryExists`], and [`Error::Backup`].
pub async fn back_up(databases: Arc<Databases>, directory: PathBuf) -> Result<()> {
    if !directory.is_absolute() {
        return Err(Error::BadRequest(
            "`directory` must be an absolute path".to_owned(),
        ));
    }
    tokio::task::spawn_blocking(move || databases.backup(&directory))
        .await
        .map_err(|e| Error::Backup(e.to_string()))?
        .map_err(|e| match e {
            // Who named the directory may know what is wrong with it.
            database::Error::Storage(e) => Error::Backup(e.to_string()),
            e => e.into(),
        })
}
