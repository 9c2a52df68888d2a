//! Refuses writes before the disk is full, so that reads, and what frees space, need no recovery of
//! the engine.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::Error;
use crate::engine::Engine;

/// How long a reading of the free space is used.
const BELIEVE: Duration = Duration::from_millis(200);
/// Maximum number of bytes written between two readings.
const BELIEVE_BYTES: u64 = 4 << 20;

/// Returns the free space of a file system for unprivileged users, and its size, in bytes.
pub(crate) fn space(path: &Path) -> Option<(u64, u64)> {
    let fs = rustix::fs::statvfs(path).ok()?;
    Some((fs.f_bavail * fs.f_frsize, fs.f_blocks * fs.f_frsize))
}

/// Decides whether there is room for a write.
pub struct DiskGuard {
    path: PathBuf,
    reserve_bytes: u64,
    read_at: Option<Instant>,
    written_since: u64,
    verdict: Result<(), Error>,
}

impl DiskGuard {
    /// Guards the file system of `path`, of which `reserve_bytes` stay free.
    pub fn new(path: &Path, reserve_bytes: u64) -> Self {
        DiskGuard {
            path: path.into(),
            reserve_bytes,
            read_at: None,
            written_since: 0,
            verdict: Ok(()),
        }
    }

    /// Checks whether `bytes` more may be written.
    pub fn admit(&mut self, engine: &Engine, bytes: u64) -> Result<(), Error> {
        self.written_since += bytes;
        let stale = self.read_at.is_none_or(|t| t.elapsed() > BELIEVE)
            || self.written_since > BELIEVE_BYTES;
        if stale {
            self.verdict = self.read(engine, bytes);
            self.read_at = Some(Instant::now());
            self.written_since = 0;
        }
        self.verdict.clone()
    }

    /// Every byte in a memtable will be written to a file once more; so will what is being written
    /// now.
    fn read(&self, engine: &Engine, bytes: u64) -> Result<(), Error> {
        let Some((free_bytes, _)) = space(&self.path) else {
            return Ok(());
        };
        let needed_bytes =
            engine.memtable_bytes() + 2 * (bytes + BELIEVE_BYTES) + self.reserve_bytes;
        if free_bytes < needed_bytes {
            return Err(Error::DiskFull {
                free_bytes,
                needed_bytes,
            });
        }
        Ok(())
    }
}
