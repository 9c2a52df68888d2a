//! Whether a store is sound. It is opened so that nothing in it changes, and read from end to end.
//!
//! | module | answers |
//! |---|---|
//! | `finding` | what was found, in words? |
//! | `files` | can every block of every file be read, and the log? |
//! | `catalogue` | does everything that is stored belong to something? |
//! | `shard` | do the records, changes, bodies, markers and counters of a shard agree? |
//! | `contents` | is every attachment's content whole, and is each needed? |
//! | `sorter` | how are more facts compared than memory holds? |
//! | `holes` | how does reading go on behind what cannot be read? |
//!
//! **Memory does not grow with documents**, but for what a server keeps of a shard in memory too: one shard's summary at a time. What is to be
//! compared in another order than that in which it is read goes through a [`sorter`].

mod catalogue;
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

pub use catalogue::Owned;
pub use contents::{ContentTotals, References};
pub use finding::{Finding, Findings, Kind, Watch};
pub use shard::ShardRules;

/// A store that is looked at. No server can be started on it meanwhile.
pub struct StoreCheck {
    snapshot: Arc<Snapshot>,
    temporary: PathBuf,
    /// How far the check is.
    pub watch: Arc<Watch>,
    _lock: Option<File>,
}

impl StoreCheck {
    /// Opens the store in `path`. What sorting needs is put into files in `temporary`. Damage for which a server would not start, and that
    /// does not keep the rest from being read, is among the findings.
    ///
    /// # Errors
    /// [`Error::Directory`]: it is no store, a server has it open, or it cannot be opened at all.
    pub fn open(
        path: &Path,
        temporary: &Path,
        findings: &mut Findings,
    ) -> Result<StoreCheck, Error> {
        let lock = lock(path)?;
        match wal::check(path) {
            Ok(None) => {}
            // The engine, which opens it for reading only, would read on behind that end.
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

    /// What it looks at.
    pub fn snapshot(&self) -> &Arc<Snapshot> {
        &self.snapshot
    }

    /// Where files go that sorting needs.
    pub fn temporary(&self) -> &Path {
        &self.temporary
    }
}

/// Locks a store against servers, which lock it too. Reading only: nothing is written for it. `None` of a copy that has no file for it.
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
        refused("a server has it open: stop it, or look at a backup (settee backup)".into())
    })?;
    Ok(Some(file))
}
