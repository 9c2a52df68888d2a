//! Checks a store. It is opened without changing anything, and read from end to end.
//!
//! | module | answers |
//! |---|---|
//! | `finding` | What was found, in words? |
//! | `files` | Can every block of every file, and the log, be read? |
//! | `catalogue` | Does everything stored have an owner? |
//! | `shard` | Do the records, changes, bodies, markers and counters of a shard agree? |
//! | `access` | Does the access of documents agree with them and with the indexes of users? |
//! | `contents` | Is the content of every attachment complete, and is each referenced? |
//! | `sorter` | How are more facts compared than memory holds? |
//! | `holes` | How does reading continue after unreadable data? |
//!
//! **Memory does not grow with the number of documents**, except for what a server keeps of a shard
//! in memory too: one shard's summary at a time. Facts that are compared in another order than they
//! are read go through a [`sorter`].

mod access;
mod catalogue;
mod claims;
mod contents;
mod files;
mod finding;
pub(crate) mod holes;
mod shard;
mod sorter;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FlockOperation, fcntl_lock};

use crate::Error;
use crate::engine::{Engine, Strictness};
use crate::snapshot::Snapshot;
use crate::wal;

pub use catalogue::CatalogueOwners;
pub use contents::{ContentTotals, References};
pub use finding::{Finding, Findings, Kind, Watch};
pub use shard::ShardRules;

/// A store being checked. No server can use it meanwhile.
pub struct StoreCheck {
    snapshot: Arc<Snapshot>,
    temporary: PathBuf,
    /// Progress of the check.
    pub watch: Arc<Watch>,
    _lock: Option<File>,
}

impl StoreCheck {
    /// Opens the store in `path`. Files for sorting go to `temporary`. Damage that would keep a
    /// server from starting, but not the rest from being read, is among the findings.
    ///
    /// # Errors
    /// [`Error::Directory`]: it is not a store, a server has it open, or it cannot be opened at all.
    pub fn open(
        path: &Path,
        temporary: &Path,
        findings: &mut Findings,
    ) -> Result<StoreCheck, Error> {
        let lock = lock(path)?;
        match wal::check(path) {
            Ok(None) => {}
            // The engine, which opens it read-only, would read on past that end.
            Ok(Some(_)) => {
                let reason = "a loss of power left an unfinished end of its log, which a server cuts off: start one on it once";
                return Err(Error::Directory {
                    path: path.into(),
                    reason: reason.into(),
                });
            }
            Err(e) => findings.damage(Kind::Files, None, "the log is damaged", e.to_string()),
        }
        let engine = match Engine::open_read_only(path, Strictness::AsServer) {
            Ok(engine) => engine,
            Err(e) => {
                findings.damage(
                    Kind::Files,
                    None,
                    "a server would not start on it",
                    e.to_string(),
                );
                Engine::open_read_only(path, Strictness::Lenient)?
            }
        };
        Ok(StoreCheck {
            snapshot: Arc::new(engine.snapshot()),
            temporary: temporary.into(),
            watch: Arc::default(),
            _lock: lock,
        })
    }

    /// Returns the snapshot that is checked.
    pub fn snapshot(&self) -> &Arc<Snapshot> {
        &self.snapshot
    }

    /// Returns the folder for sorting.
    pub fn temporary(&self) -> &Path {
        &self.temporary
    }
}

/// Locks a store against servers, which take the same lock. Read-only: creates no file. `None` for
/// a copy without a lock file.
pub(crate) fn lock(path: &Path) -> Result<Option<File>, Error> {
    let refused = |reason: String| Error::Directory {
        path: path.into(),
        reason,
    };
    if !path.join("CURRENT").exists() && !path.join("LOCK").exists() {
        return Err(refused("there is no store".into()));
    }
    let file = match File::open(path.join("LOCK")) {
        Ok(file) => file,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(refused(e.to_string())),
    };
    fcntl_lock(&file, FlockOperation::NonBlockingLockShared).map_err(|_| {
        refused("a server has it open: stop it, or check a copy (settee backup --copy)".into())
    })?;
    Ok(Some(file))
}
