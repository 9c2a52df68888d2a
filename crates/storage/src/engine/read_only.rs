//! A store opened read-only.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use rocksdb::{Cache, ColumnFamilyDescriptor, DB, DBRecoveryMode, Options};

use super::Engine;
use crate::Error;
use crate::keyspace::{self, Keyspace};
use crate::time_seq::{self, RecordingClock};
use crate::winners::Winners;

/// Size of the block cache, in bytes: scans read each block once.
const CACHE_BYTES: usize = 32 << 20;

/// The treatment of damaged files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Strictness {
    /// As a server does: a table file that is missing or has another length is refused.
    AsServer,
    /// Opens whatever can be read: of the log also what follows an unreadable record.
    Lenient,
}

impl Engine {
    /// Opens a store without writing: the log is read into memory. Writes fail.
    ///
    /// # Errors
    /// [`Error::Directory`] with the engine's message.
    pub(crate) fn open_read_only(
        path: &Path,
        strictness: Strictness,
    ) -> Result<Arc<Engine>, Error> {
        let refused = |reason: String| Error::Directory {
            path: path.into(),
            reason,
        };
        let cache = Cache::new_hyper_clock_cache(CACHE_BYTES, 0);
        let mut o = Options::default();
        o.set_max_open_files(1024);
        o.set_skip_stats_update_on_db_open(true);
        o.set_paranoid_checks(strictness == Strictness::AsServer);
        o.set_wal_recovery_mode(match strictness {
            Strictness::AsServer => DBRecoveryMode::PointInTime,
            Strictness::Lenient => DBRecoveryMode::SkipAnyCorruptedRecord,
        });
        let stored = DB::list_cf(&o, path).map_err(|e| refused(e.into_string()))?;
        if let Some(missing) = Keyspace::ALL
            .iter()
            .find(|k| !stored.iter().any(|name| name == k.name()))
        {
            return Err(refused(format!(
                "there is no keyspace {}: start this version's server on it once",
                missing.name()
            )));
        }
        let families = Keyspace::ALL.map(|k| {
            let mut options = keyspace::options(k, &cache);
            // So scans read every block, including those that hold only old versions of rows.
            options.set_max_sequential_skip_in_iterations(u64::MAX);
            ColumnFamilyDescriptor::new(k.name(), options)
        });
        let db = DB::open_cf_descriptors_read_only(&o, path, families, false)
            .map_err(|e| refused(e.into_string()))?;
        Ok(Arc::new(Engine {
            db,
            path: path.into(),
            cache,
            cache_capacity_bytes: CACHE_BYTES,
            winners: Winners::new(0),
            recording: RecordingClock::new(time_seq::system_time_unix_s),
            adding_files: parking_lot::Mutex::default(),
            closing: AtomicBool::new(false),
            health: Arc::default(),
            memtable_bytes_max: u64::MAX,
            unchecked_bytes: AtomicU64::new(0),
            written_bytes: AtomicU64::new(0),
            flushed_at: AtomicU64::new(0),
            _claim: None,
            held: Arc::default(),
        }))
    }

    /// Returns the table files.
    pub(crate) fn table_files(&self) -> Result<Vec<TableFile>, Error> {
        let files = self.db.live_files()?;
        let of = |file: rocksdb::LiveFile| TableFile {
            bytes: file.size as u64,
            rows: file.num_entries,
        };
        Ok(files.into_iter().map(of).collect())
    }
}

/// A sorted file of the engine.
pub(crate) struct TableFile {
    pub bytes: u64,
    pub rows: u64,
}
