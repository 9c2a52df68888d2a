//! A database for unit tests that are not asynchronous.

use std::sync::Arc;

use document::EditDoc;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::{CreateOptions, Database, Databases, Durability, EditMode, KenOptions, Options};

/// A database in a folder of its own, closed when this is dropped.
pub struct Fixture {
    pub db: Arc<Database>,
    runtime: Runtime,
    databases: Arc<Databases>,
    _folder: TempDir,
}

impl Fixture {
    /// Creates a database with `q` shards, or with the default number.
    pub fn new(q: Option<u32>) -> Fixture {
        let folder = tempfile::tempdir().unwrap();
        let databases = Databases::open(folder.path(), Options::default()).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let options = CreateOptions {
            q,
            ..CreateOptions::default()
        };
        let db = runtime.block_on(databases.create("db", options)).unwrap();
        Fixture {
            db,
            runtime,
            databases,
            _folder: folder,
        }
    }

    pub fn write(&self, docs: Vec<EditDoc>, mode: EditMode) {
        let written = self.db.update(docs, mode, Durability::Delayed);
        self.runtime.block_on(written).unwrap();
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.databases.close();
    }
}

/// Returns options with which the background builds no indexes, and reads no design documents.
pub fn without_background_builds() -> Options {
    let ken = KenOptions {
        enabled: false,
        ..KenOptions::default()
    };
    Options {
        ken,
        ..Options::default()
    }
}
