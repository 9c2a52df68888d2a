//! An open directory.

use std::path::PathBuf;

use napi_derive::napi;

use crate::database::Database;
use crate::error::{blocking, exception};

/// An open directory.
#[napi]
pub struct Directory(embedded::Directory);

/// Opens a directory; `options` are JSON text, or empty.
#[napi]
pub async fn open(path: String, options: String) -> napi::Result<Directory> {
    let opened = blocking(move || embedded::Directory::open(&PathBuf::from(path), &options));
    opened.await.map(Directory)
}

#[napi]
impl Directory {
    /// Where the store is.
    #[napi(getter)]
    pub fn path(&self) -> String {
        self.0.path().display().to_string()
    }

    /// Whether it was closed.
    #[napi(getter)]
    pub fn closed(&self) -> bool {
        self.0.is_closed()
    }

    /// Names of databases.
    #[napi]
    pub fn names(&self) -> napi::Result<Vec<String>> {
        self.0.names().map_err(exception)
    }

    /// Whether there is a database of this name.
    #[napi]
    pub fn has(&self, name: String) -> napi::Result<bool> {
        self.0.has(&name).map_err(exception)
    }

    /// Makes a database.
    #[napi]
    pub async fn create(&self, name: String, options: String) -> napi::Result<Database> {
        let made = self.0.create(&name, &options).await;
        made.map(Database::new).map_err(exception)
    }

    /// The database of this name.
    #[napi]
    pub async fn database(&self, name: String) -> napi::Result<Database> {
        let directory = self.0.clone();
        let found = blocking(move || directory.database(&name));
        found.await.map(Database::new)
    }

    /// Deletes a database.
    #[napi]
    pub async fn delete(&self, name: String) -> napi::Result<()> {
        self.0.delete(&name).await.map_err(exception)
    }

    /// Compactions and index builds under way, as JSON text.
    #[napi]
    pub fn tasks(&self) -> napi::Result<String> {
        self.0.tasks().map_err(exception)
    }

    /// Closes it, with everything that was opened in it.
    #[napi]
    pub async fn close(&self) -> napi::Result<()> {
        let directory = self.0.clone();
        blocking(move || directory.close()).await
    }

    /// Closes the directory synchronously, for the end of the process.
    #[napi]
    pub fn close_now(&self) -> napi::Result<()> {
        self.0.close().map_err(exception)
    }
}
