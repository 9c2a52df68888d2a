//! An open directory and its databases.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use database::{CreateOptions, Databases, NameRange};
use document::{UuidAlgorithm, UuidGenerator};
use functions::query_server;
use parking_lot::{Mutex, RwLock};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::handle::{Handle, Handles};
use crate::{Error, Result, options};

/// The folder of the store in a server's data directory.
const STORE_OF_SERVER: &str = "store";
/// A directory with this file is a store.
const MARK_OF_STORE: &str = "CURRENT";
/// Work that is under way when a directory is closed ends within this time, since it comes in
/// pieces.
const CLOSING_TIME_MAX: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// The process that opened a directory first: the engine's threads are its.
static OPENED_BY: Mutex<Option<u32>> = Mutex::new(None);

/// An open directory. Clones are the same one.
#[derive(Clone)]
pub struct Directory(Arc<Inner>);

struct Inner {
    path: PathBuf,
    process: u32,
    /// Empty once it is closed.
    databases: RwLock<Option<Arc<Databases>>>,
    handles: Handles,
    uuids: UuidGenerator,
    /// True once it is closed.
    closing: watch::Sender<bool>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            std::mem::forget(self.databases.get_mut().take());
        }
    }
}

impl Directory {
    /// Opens a directory. `options`: JSON text of an object. A server's data directory has its
    /// store in a folder, which is then opened. Blocks, longer after a crash.
    ///
    /// # Errors
    /// 423 `in_use` when it is open already, in this process or another; [`Error::forked`] in a
    /// process that is a fork of one that opened any directory; and those of the store.
    pub fn open(path: &Path, options: &str) -> Result<Directory> {
        let options: options::Open = options::read(options)?;
        let process = std::process::id();
        // Locked only once the directory exists, so that a wrong path leaves other processes free.
        let mut opened_by = OPENED_BY.lock();
        if opened_by.is_some_and(|first| first != process) {
            return Err(Error::forked());
        }
        let path = store_in(path);
        if options.create == Some(false) && !path.join(MARK_OF_STORE).exists() {
            let reason = format!("{} is not a data directory", path.display());
            return Err(Error::new(404, "not_found", reason));
        }
        let languages =
            functions::Functions::new(options.javascript(), query_server::Settings::default())
                .map_err(database::Error::from)?;
        let databases = database::Options {
            languages,
            ..options.databases()
        };
        let opened = Databases::open(&path, databases);
        *opened_by = Some(process);
        Ok(Directory(Arc::new(Inner {
            path,
            process,
            databases: RwLock::new(Some(opened?)),
            handles: Handles::default(),
            uuids: UuidGenerator::new(UuidAlgorithm::Sequential),
            closing: watch::Sender::new(false),
        })))
    }

    /// Returns the path of the store.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// Returns whether it is closed.
    pub fn is_closed(&self) -> bool {
        *self.0.closing.borrow()
    }

    pub(crate) fn databases(&self) -> Result<Arc<Databases>> {
        if self.0.process != std::process::id() {
            return Err(Error::forked());
        }
        self.0.databases.read().clone().ok_or_else(Error::closed)
    }

    pub(crate) fn handle<T: Send + 'static>(&self, value: T) -> Arc<Handle<T>> {
        self.0.handles.add(value)
    }

    pub(crate) fn new_id(&self) -> String {
        self.0.uuids.next()
    }

    pub(crate) fn closing(&self) -> watch::Receiver<bool> {
        self.0.closing.subscribe()
    }

    /// Waits for something, but not beyond the closing of the directory.
    pub(crate) async fn while_open<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        let mut closing = self.closing();
        tokio::select! {
            biased;
            done = work => done,
            _ = closing.wait_for(|is| *is) => Err(Error::closed()),
        }
    }

    /// Names of databases in their order, of the system's too.
    ///
    /// # Errors
    /// [`Error::closed`], [`Error::forked`].
    pub fn names(&self) -> Result<Vec<String>> {
        let names = self.databases()?.names(&NameRange::default());
        Ok(names.iter().map(ToString::to_string).collect())
    }

    /// Returns whether a database of this name exists.
    ///
    /// # Errors
    /// [`Error::closed`], [`Error::forked`].
    pub fn has(&self, name: &str) -> Result<bool> {
        Ok(self.databases()?.exists(name))
    }

    /// Makes a database. `options`: JSON text of an object.
    ///
    /// # Errors
    /// 412 `file_exists`, 400 `illegal_database_name`.
    pub async fn create(&self, name: &str, options: &str) -> Result<Database> {
        let options: options::Create = options::read(options)?;
        check_writable(name)?;
        let options = CreateOptions {
            q: options.q,
            n: None,
            partitioned: options.partitioned,
            spread: false,
            access: None,
            security: "{}".to_owned(),
        };
        self.databases()?.create(name, options).await?;
        self.database(name)
    }

    /// Returns the database of this name.
    ///
    /// # Errors
    /// 404 `not_found`.
    pub fn database(&self, name: &str) -> Result<Database> {
        self.databases()?.get(name)?;
        Ok(Database {
            directory: self.clone(),
            name: name.into(),
        })
    }

    /// Deletes a database.
    ///
    /// # Errors
    /// 404 `not_found`.
    pub async fn delete(&self, name: &str) -> Result<()> {
        check_writable(name)?;
        Ok(self.databases()?.delete(name).await?)
    }

    /// Compactions and index builds under way: JSON text of a list, as of `/_active_tasks`.
    ///
    /// # Errors
    /// [`Error::closed`], [`Error::forked`].
    pub fn tasks(&self) -> Result<String> {
        let task = |t: database::Task| {
            json!({
                "type": t.kind,
                "database": t.database,
                "design_document": t.design_document,
                "changes_done": t.done,
                "total_changes": t.total,
                "started_on": t.started_unix_s,
            })
        };
        let tasks = self.databases()?.tasks().into_iter().map(task);
        Ok(Value::Array(tasks.collect()).to_string())
    }

    /// Ends running work, writes queued edits, and releases the directory: then another process may
    /// open it. A second call does nothing. Blocks during running work, which comes in pieces.
    ///
    /// # Errors
    /// [`Error::forked`]; or that running work did not end, so that the directory is still in use.
    pub fn close(&self) -> Result<()> {
        if self.0.process != std::process::id() {
            return Err(Error::forked());
        }
        let Some(databases) = self.0.databases.write().take() else {
            return Ok(());
        };
        self.0.closing.send_replace(true);
        let held = databases.store().held();
        databases.close();
        self.0.handles.close();
        drop(databases);
        let began = Instant::now();
        while held.strong_count() > 0 {
            if began.elapsed() > CLOSING_TIME_MAX {
                return Err(Error::new(
                    503,
                    "busy",
                    "something that is under way did not end in time; the directory is free when it has",
                ));
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }
}

/// A database by its name. After deletion and recreation it refers to the new one.
#[derive(Clone)]
pub struct Database {
    pub(crate) directory: Directory,
    name: Arc<str>,
}

impl Database {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn get(&self) -> Result<Arc<database::Database>> {
        Ok(self.directory.databases()?.get(&self.name)?)
    }

    /// Returns the database, to be written to.
    pub(crate) fn writable(&self) -> Result<Arc<database::Database>> {
        check_writable(&self.name)?;
        self.get()
    }

    /// Counts and sizes: JSON text, as of `GET /{db}`.
    ///
    /// # Errors
    /// 404 `not_found`.
    pub fn info(&self) -> Result<String> {
        let info = self.get()?.info()?;
        Ok(json!({
            "db_name": &*info.name,
            "doc_count": info.doc_count,
            "doc_del_count": info.doc_del_count,
            "update_seq": info.update_seq,
            "purge_seq": info.purge_seq,
            "sizes": {
                "file": info.file_bytes,
                "external": info.external_bytes,
                "active": info.active_bytes,
            },
            "compact_running": info.compact_running,
            "partitioned": info.partitioned,
            "q": info.q,
        })
        .to_string())
    }

    /// Starts a compaction in the background.
    ///
    /// # Errors
    /// 404 `not_found`.
    pub fn compact(&self) -> Result<()> {
        Ok(self.get()?.compact()?)
    }
}

/// The system's databases have rules that only a server keeps: it hashes passwords, and starts
/// replications.
fn check_writable(name: &str) -> Result<()> {
    match name.starts_with('_') {
        true => Err(Error::new(
            403,
            "forbidden",
            format!("The database {name} is written to by a server only."),
        )),
        false => Ok(()),
    }
}

/// Returns the store in this directory: itself, or that of a server.
fn store_in(path: &Path) -> PathBuf {
    let of_server = path.join(STORE_OF_SERVER);
    match !path.join(MARK_OF_STORE).exists() && of_server.join(MARK_OF_STORE).exists() {
        true => of_server,
        false => path.to_path_buf(),
    }
}
