//! RocksDB, opened for this store: keyspaces, options, snapshots.

mod backlog;
mod claim;
mod multi_get;
mod read_only;
mod recovery;

pub(crate) use read_only::{Strictness, TableFile};
pub use recovery::WriteFailure;

use claim::Claim;
use recovery::Health;

use crate::cache_sample::CacheSample;
use crate::counters::SYNCS;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Once, Weak};
use std::time::{Duration, Instant};
use telemetry::State;

use rocksdb::checkpoint::Checkpoint;
use rocksdb::{
    BottommostLevelCompaction, Cache, ColumnFamily, ColumnFamilyDescriptor, CompactOptions, DB,
    DBCompressionType, DBRecoveryMode, Env, FlushOptions, IngestExternalFileOptions, Options,
    ReadOptions, SnapshotWithThreadMode, WriteBatch, WriteOptions,
};

use crate::Error;
use crate::keys::{self, ShardNumber};
use crate::keyspace::{self, BLOB_GC_AGE_CUTOFF, Keyspace};
use crate::native::{self, log_env};
use crate::snapshot::{Snapshot, Value};
use crate::time_seq::{self, RecordingClock};
use crate::wal;
use crate::winners::Winners;
use crate::writes::Writes;

/// Options of a store.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// Size of the block cache, which also holds index and filter blocks.
    pub block_cache_bytes: usize,
    /// Size of the cache of whole, recently read documents; 0 disables it.
    pub documents_bytes: usize,
    /// Memtables are flushed when their total reaches this size; writers wait while it is twice as
    /// large.
    pub write_buffers_bytes: usize,
    /// Threads that flush and compact.
    pub background_jobs: i32,
    /// Maximum number of bytes that they write per second; 0 for no limit.
    pub background_bytes_per_s: usize,
    /// Opens a log damaged in its middle, losing what follows the damage.
    pub accept_damaged_log: bool,
    /// Free space, beyond what memtables need to be flushed, below which writes are refused.
    pub reserve_bytes: u64,
    /// Maximum number of open table files.
    pub open_files_max: i32,
    /// The time in seconds since 1970, by which changes are recorded ([`crate::TimeSeq`]).
    pub now_unix_s: fn() -> u64,
}

impl Default for StoreOptions {
    fn default() -> Self {
        StoreOptions {
            block_cache_bytes: 256 << 20,
            documents_bytes: 128 << 20,
            write_buffers_bytes: 96 << 20,
            background_jobs: 2,
            background_bytes_per_s: 0,
            accept_damaged_log: false,
            reserve_bytes: 8 << 20,
            open_files_max: OPEN_FILES_MAX,
            now_unix_s: time_seq::system_time_unix_s,
        }
    }
}

/// The engine. Other crates read keyspaces, and write [`Writes`] and sorted files.
pub struct Engine {
    db: DB,
    path: PathBuf,
    cache: Cache,
    cache_capacity_bytes: usize,
    pub(crate) winners: Winners,
    /// Which time changes are recorded under.
    pub(crate) recording: RecordingClock,
    /// Locked while files are ingested and while a copy is made: the engine's copy may otherwise
    /// contain records logged after files were ingested, but not the files.
    pub(crate) adding_files: parking_lot::Mutex<()>,
    closing: AtomicBool,
    health: Arc<Health>,
    /// Writers wait while all memtables together are larger.
    memtable_bytes_max: u64,
    /// Bytes written since the memtables were last checked.
    unchecked_bytes: AtomicU64,
    written_bytes: AtomicU64,
    /// The bytes that had been written when all memtables were last flushed.
    flushed_at: AtomicU64,
    /// Released when the database is closed. A read-only engine has none.
    _claim: Option<Claim>,
    /// Dropped after everything else, as fields are dropped in order.
    held: Arc<()>,
}

/// Maximum number of open table files, however many descriptors there are.
pub const OPEN_FILES_MAX: i32 = 1024;

/// Minimum garbage in files of attachments that is worth rewriting them, with and without
/// concurrent writes.
const GARBAGE_BYTES_MIN: u64 = 16 << 20;
const GARBAGE_BYTES_MIN_QUIET: u64 = 1 << 20;

/// Space allocated for a log that is started while nothing is written.
const QUIET_LOG_BYTES: usize = 1 << 20;

/// Bytes of writes between checks of the memtables.
const CHECK_MEMTABLES_EVERY: u64 = 2 << 20;
/// Polling interval of a writer that waits for flushes, and its time limit: a stuck disk is
/// reported by the write.
const FLUSH_LOOK_EVERY: Duration = Duration::from_millis(1);
const FLUSH_WAIT_MAX: Duration = Duration::from_secs(10);

/// From the first key to the second (exclusive).
pub(crate) type KeyRange = (Vec<u8>, Vec<u8>);

/// The refill period of the rate limiter, in microseconds, and how seldom flushes wait for
/// compactions: the values that the engine's documentation recommends.
const RATE_PERIOD_US: i64 = 100_000;
const RATE_FAIRNESS: i32 = 10;

const INGEST_DIRECTORY: &str = "ingest";

/// Removes files that a crash left behind before they were ingested.
fn clear_ingest_directory(path: &Path) -> Result<(), Error> {
    let directory = path.join(INGEST_DIRECTORY);
    let cleared = match std::fs::remove_dir_all(&directory) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
        other => other,
    };
    cleared
        .and_then(|()| std::fs::create_dir_all(&directory))
        .map_err(|e| Error::Directory {
            path: directory,
            reason: e.to_string(),
        })
}

/// Converts the engine's message about a directory that it cannot open.
fn refusal_to_open(path: &Path, reason: String) -> Error {
    let path = path.to_path_buf();
    // It names the file whose lock another process has (`While lock file: …/LOCK`), or this one
    // (`lock hold by current process … …/LOCK`).
    match reason.contains("lock") && reason.contains("/LOCK") {
        true => Error::InUse { path },
        false => Error::Directory { path, reason },
    }
}

/// Starts the engine's compaction threads, once per process. They inherit the scheduling of the
/// thread that starts them. A lower priority would not do: under a steady load of reads compactions
/// would fall behind, which makes reads slower, and so on.
fn start_compactors(background_jobs: i32) {
    static STARTED: Once = Once::new();
    // The others flush: this is how the engine divides its jobs (`DBImpl::GetBGJobLimits`).
    let compactors = (background_jobs - (background_jobs / 4).max(1)).max(1);
    STARTED.call_once(|| {
        let starter = std::thread::spawn(move || {
            telemetry::take_long_turns();
            if let Ok(mut env) = Env::new() {
                // It starts threads immediately when their number grows, from one, and ends surplus
                // ones.
                env.set_background_threads(compactors + 1);
                env.set_background_threads(compactors);
            }
        });
        if starter.join().is_err() {
            tracing::warn!("compaction threads cannot be given a longer scheduling slice");
        }
    });
}

/// Returns options of the whole engine, without its environment.
fn engine_options(options: &StoreOptions) -> Options {
    let mut o = Options::default();
    o.create_if_missing(true);
    o.create_missing_column_families(true);
    o.set_max_background_jobs(options.background_jobs);
    // One compaction at a time, mostly, which is split: otherwise the first level, and a shard that is
    // compacted, keep one processor busy and leave the others idle.
    o.set_max_subcompactions(u32::try_from(options.background_jobs).unwrap_or(1).max(1));
    if options.background_bytes_per_s > 0 {
        let bytes = i64::try_from(options.background_bytes_per_s).unwrap_or(i64::MAX);
        o.set_ratelimiter(bytes, RATE_PERIOD_US, RATE_FAIRNESS);
    }
    o.set_db_write_buffer_size(options.write_buffers_bytes);
    o.set_max_total_wal_size(2 * options.write_buffers_bytes as u64);
    o.set_wal_recovery_mode(DBRecoveryMode::PointInTime);
    o.set_recycle_log_file_num(0);
    o.set_bytes_per_sync(1 << 20);
    // Contents of attachments go through the log unsynced: a commit's sync should not find much of
    // them.
    o.set_wal_bytes_per_sync(1 << 20);
    o.set_max_open_files(options.open_files_max);
    o.set_manifest_preallocation_size(64 << 10);
    o.set_keep_log_file_num(3);
    o.set_max_log_file_size(1 << 20);
    o.set_stats_dump_period_sec(0);
    o.set_allow_concurrent_memtable_write(false);
    o
}

impl Engine {
    /// Opens the engine in `path`, which is created if it does not exist.
    ///
    /// # Errors
    /// [`Error::DamagedLog`], [`Error::Directory`].
    pub fn open(path: &Path, options: &StoreOptions) -> Result<Arc<Engine>, Error> {
        std::fs::create_dir_all(path).map_err(|e| Error::Directory {
            path: path.into(),
            reason: e.to_string(),
        })?;
        let claim = Claim::of(path)?;
        let aside = wal::check_and_cut(path, options.accept_damaged_log)?;
        start_compactors(options.background_jobs);
        let cache = Cache::new_hyper_clock_cache(options.block_cache_bytes, 0);
        let mut o = engine_options(options);
        let (env, health) = (log_env(), Arc::<Health>::default());
        o.set_env(&env);
        native::report_errors(&mut o, &env, health.clone());
        let families = Keyspace::ALL.map(|k| {
            let mut of_family = keyspace::options(k, &cache);
            let buffer = keyspace::document_buffer_bytes(k, options.write_buffers_bytes);
            if let Some(bytes) = buffer {
                of_family.set_write_buffer_size(bytes);
            }
            ColumnFamilyDescriptor::new(k.name(), of_family)
        });
        let db = match DB::open_cf_descriptors(&o, path, families) {
            Ok(db) => db,
            Err(e) => {
                aside.undo();
                return Err(refusal_to_open(path, e.into_string()));
            }
        };
        native::attach(&env, &db);
        // Not before: another engine that has the directory open may be ingesting files.
        clear_ingest_directory(path)?;
        let engine = Arc::new(Engine {
            db,
            path: path.into(),
            cache,
            cache_capacity_bytes: options.block_cache_bytes,
            winners: Winners::new(options.documents_bytes),
            recording: RecordingClock::new(options.now_unix_s),
            adding_files: parking_lot::Mutex::default(),
            closing: AtomicBool::new(false),
            health,
            memtable_bytes_max: 2 * options.write_buffers_bytes as u64,
            unchecked_bytes: AtomicU64::new(0),
            written_bytes: AtomicU64::new(0),
            flushed_at: AtomicU64::new(0),
            _claim: Some(claim),
            held: Arc::default(),
        });
        recovery::start(&engine).map_err(|e| Error::Directory {
            path: path.into(),
            reason: e.to_string(),
        })?;
        Ok(engine)
    }

    /// Returns its directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns a reference that lives until the directory is released, which takes a moment after
    /// the engine is dropped.
    pub(crate) fn held(&self) -> Weak<()> {
        Arc::downgrade(&self.held)
    }

    /// From here on a compaction may end early.
    pub(crate) fn begin_closing(&self) {
        self.closing.store(true, Relaxed);
        self.health.close();
    }

    /// Returns whether the store is closing: nothing more is written.
    pub fn is_closing(&self) -> bool {
        self.closing.load(Relaxed)
    }

    pub(crate) fn cf(&self, k: Keyspace) -> &ColumnFamily {
        // Every keyspace is opened above or `open` fails.
        self.db
            .cf_handle(k.name())
            .expect("all keyspaces were opened")
    }

    /// Returns the value of a key.
    pub fn get(&self, k: Keyspace, key: &[u8]) -> Result<Option<Value<'_>>, Error> {
        let sample = CacheSample::begin();
        let value = self.db.get_pinned_cf(self.cf(k), key)?;
        if let Some(sample) = sample {
            sample.end();
        }
        Ok(value.map(Value))
    }

    /// Reads a value that will not be read again soon, without caching it.
    pub fn get_once(&self, k: Keyspace, key: &[u8]) -> Result<Option<Value<'_>>, Error> {
        let mut o = ReadOptions::default();
        o.fill_cache(false);
        Ok(self.db.get_pinned_cf_opt(self.cf(k), key, &o)?.map(Value))
    }

    /// Starts a batch of writes.
    pub fn writes(&self) -> Writes<'_> {
        Writes::new(self)
    }

    pub(crate) fn write(&self, batch: WriteBatch, sync: bool) -> Result<(), Error> {
        let bytes = batch.size_in_bytes() as u64;
        self.unchecked_bytes.fetch_add(bytes, Relaxed);
        self.written_bytes.fetch_add(bytes, Relaxed);
        let mut o = WriteOptions::default();
        o.set_sync(sync);
        if !sync {
            return Ok(self.db.write_opt(batch, &o)?);
        }
        let _syncs = telemetry::enter(State::Sync);
        let started = Instant::now();
        self.db.write_opt(batch, &o)?;
        SYNCS.record(started.elapsed());
        Ok(())
    }

    /// Returns whether a small write will not have to wait for memtables to be flushed.
    pub(crate) fn is_roomy(&self) -> bool {
        self.unchecked_bytes.load(Relaxed) < CHECK_MEMTABLES_EVERY
    }

    /// Waits while too much memory is waiting to be flushed. Must not be called with a lock that
    /// readers need.
    pub(crate) fn wait_for_flushes(&self) {
        if self.unchecked_bytes.load(Relaxed) < CHECK_MEMTABLES_EVERY {
            return;
        }
        self.unchecked_bytes.store(0, Relaxed);
        let started = Instant::now();
        let mut began = false;
        while self.memtable_bytes() > self.memtable_bytes_max
            && !self.is_closing()
            && !self.health.is_failing()
            && started.elapsed() < FLUSH_WAIT_MAX
        {
            // The engine starts flushes when something is written, which waits for this.
            if !std::mem::replace(&mut began, true) {
                self.begin_flushes();
            }
            std::thread::sleep(FLUSH_LOOK_EVERY);
        }
    }

    /// Starts to flush the largest memtables.
    fn begin_flushes(&self) {
        let mut options = FlushOptions::default();
        options.set_wait(false);
        for k in Keyspace::ALL {
            let cf = self.cf(k);
            let active = self
                .db
                .property_int_value_cf(cf, "rocksdb.cur-size-active-mem-table");
            if active.ok().flatten().unwrap_or(0) * 8 > self.memtable_bytes_max
                && let Err(e) = self.db.flush_cf_opt(cf, &options)
            {
                tracing::warn!(error = %e, "starting a flush failed");
            }
        }
    }

    /// Returns the bytes written since the store was opened.
    pub fn written_bytes(&self) -> u64 {
        self.written_bytes.load(Relaxed)
    }

    /// Syncs everything written so far to disk.
    pub(crate) fn sync_log(&self) -> Result<(), Error> {
        let _syncs = telemetry::enter(State::Sync);
        let started = Instant::now();
        self.db.flush_wal(true)?;
        SYNCS.record(started.elapsed());
        Ok(())
    }

    /// Returns options for writing a sorted file for [`Engine::ingest`].
    pub(crate) fn table_file_options(&self, k: Keyspace) -> Options {
        let mut o = keyspace::options(k, &self.cache);
        // Such a file usually goes to the last level directly and is never rewritten.
        o.set_compression_type(DBCompressionType::Zstd);
        o
    }

    /// Returns the directory for files to be ingested.
    pub fn ingest_directory(&self) -> PathBuf {
        self.path.join(INGEST_DIRECTORY)
    }

    /// Ingests sorted files into a keyspace, all or none; the files are moved. Their rows are
    /// durable then.
    pub(crate) fn ingest(&self, k: Keyspace, files: Vec<PathBuf>) -> Result<(), Error> {
        let mut o = IngestExternalFileOptions::default();
        o.set_move_files(true);
        let _adding = self.adding_files.lock();
        Ok(self
            .db
            .ingest_external_file_cf_opts(self.cf(k), &o, files)?)
    }

    /// Returns a snapshot of the current state.
    pub fn snapshot(self: &Arc<Self>) -> Snapshot {
        Snapshot::of(self.clone())
    }

    pub(crate) fn raw_snapshot(&self) -> SnapshotWithThreadMode<'_, DB> {
        self.db.snapshot()
    }

    /// Copies everything to `target`, which must not exist; files are hard-linked where the file
    /// system can.
    pub(crate) fn checkpoint(&self, target: &Path) -> Result<(), Error> {
        let _none_added = self.adding_files.lock();
        Ok(Checkpoint::new(&self.db)?.create_checkpoint(target)?)
    }

    /// Ends running compactions and flushes.
    pub(crate) fn cancel_background_work(&self) {
        self.db.cancel_all_background_work(false);
    }

    /// Flushes a keyspace.
    pub fn flush(&self, k: Keyspace) -> Result<(), Error> {
        Ok(self.db.flush_cf(self.cf(k))?)
    }

    /// Flushes all memtables, so that the log can be removed. For times without writes.
    pub(crate) fn flush_all(&self) -> Result<(), Error> {
        let written = self.written_bytes();
        if self.flushed_at.swap(written, Relaxed) == written {
            return Ok(());
        }
        // The engine allocates disk space to a new log by the buffer of the keyspace that was
        // flushed: little, until it fills.
        self.set_meta_buffer(QUIET_LOG_BYTES);
        let flushed = Keyspace::ALL.iter().try_for_each(|&k| self.flush(k));
        self.set_meta_buffer(keyspace::META_BUFFER_BYTES);
        flushed
    }

    fn set_meta_buffer(&self, bytes: usize) {
        let option = [("write_buffer_size", &*bytes.to_string())];
        if let Err(e) = self.db.set_options_cf(self.cf(Keyspace::Meta), &option) {
            tracing::warn!(error = %e, "changing a buffer's size failed");
        }
    }

    /// Starts a new log, with little space allocated. For times without writes.
    pub(crate) fn renew_log(&self) -> Result<(), Error> {
        // Nothing is flushed, and no log started, where nothing was written.
        let cf = self.cf(Keyspace::Meta);
        // A row that is never changed, as this would undo a change that is committed meanwhile.
        let constant = keys::meta::CONTENTS_COUNTED;
        if let Some(value) = self.db.get_pinned_cf(cf, constant)? {
            self.db.put_cf(cf, constant, &value)?;
        }
        self.flushed_at.store(u64::MAX, Relaxed);
        self.flush_all()
    }

    /// Returns the disk space of the log's files, including preallocated space, in bytes.
    pub(crate) fn log_bytes(&self) -> u64 {
        let is_log =
            |entry: &std::fs::DirEntry| entry.path().extension().is_some_and(|e| e == "log");
        let entries = std::fs::read_dir(&self.path).into_iter().flatten();
        let logs = entries.flatten().filter(is_log);
        logs.filter_map(|log| Some(log.metadata().ok()?.blocks() * 512))
            .sum()
    }

    /// Estimates the bytes of files that hold these ranges of a keyspace, without the contents of
    /// attachments.
    pub(crate) fn bytes_in(&self, k: Keyspace, ranges: &[KeyRange]) -> u64 {
        let cf = self.cf(k);
        let of = |some: &[KeyRange]| -> u64 {
            let some: Vec<_> = some
                .iter()
                .map(|(from, to)| rocksdb::Range::new(from, to))
                .collect();
            self.db.get_approximate_sizes_cf(cf, &some).iter().sum()
        };
        ranges.chunks(1024).map(of).sum()
    }

    /// Rewrites the files that hold these ranges of a keyspace, one after the other, without
    /// deleted rows. Others may compact meanwhile. `after` is called with the number of ranges
    /// done; none are started once the store closes.
    pub(crate) fn compact_ranges(&self, k: Keyspace, ranges: &[KeyRange], after: impl Fn(usize)) {
        let cf = self.cf(k);
        let mut options = CompactOptions::default();
        options.set_exclusive_manual_compaction(false);
        for (n, (from, to)) in ranges.iter().enumerate() {
            if self.is_closing() {
                return;
            }
            self.db
                .compact_range_cf_opt(cf, Some(from), Some(to), &options);
            after(n + 1);
        }
    }

    /// Rewrites all files that hold rows of a shard or index in a keyspace, including those that
    /// were moved to the last level unchanged and still have the first levels' compression. Others
    /// may compact meanwhile.
    pub fn rewrite(&self, k: Keyspace, shard: ShardNumber) {
        let (low, high) = (shard.to_be_bytes(), keys::shard_end(shard));
        let mut options = CompactOptions::default();
        options.set_bottommost_level_compaction(BottommostLevelCompaction::ForceOptimized);
        options.set_exclusive_manual_compaction(false);
        let cf = self.cf(k);
        self.db
            .compact_range_cf_opt(cf, Some(&low[..]), Some(&high[..]), &options);
    }

    /// Returns the memory that the block cache uses, in bytes.
    pub(crate) fn cache_bytes(&self) -> u64 {
        self.cache.get_usage() as u64
    }

    /// Returns the memory that it may use, in bytes.
    pub(crate) fn cache_capacity_bytes(&self) -> u64 {
        self.cache_capacity_bytes as u64
    }

    /// Returns the bytes in memtables that are not flushed yet.
    pub fn memtable_bytes(&self) -> u64 {
        self.memtable_bytes_of(&Keyspace::ALL)
    }

    /// Returns the bytes of documents in unflushed memtables, without their attachments.
    pub fn document_memtable_bytes(&self) -> u64 {
        self.memtable_bytes_of(&[Keyspace::ById, Keyspace::BySeq, Keyspace::Bodies])
    }

    fn memtable_bytes_of(&self, keyspaces: &[Keyspace]) -> u64 {
        let bytes = keyspaces.iter().filter_map(|&k| {
            let property = "rocksdb.cur-size-all-mem-tables";
            let bytes = self.db.property_int_value_cf(self.cf(k), property);
            bytes.ok().flatten()
        });
        bytes.sum()
    }

    /// Returns the bytes of the files of each keyspace, by name.
    pub fn keyspace_bytes(&self) -> Vec<(&'static str, u64)> {
        Keyspace::ALL
            .iter()
            .map(|&k| {
                let bytes = self
                    .db
                    .property_int_value_cf(self.cf(k), "rocksdb.total-sst-files-size");
                let blobs = self
                    .db
                    .property_int_value_cf(self.cf(k), "rocksdb.total-blob-file-size");
                let bytes = bytes.ok().flatten().unwrap_or(0) + blobs.ok().flatten().unwrap_or(0);
                (k.name(), bytes)
            })
            .collect()
    }

    /// Returns options for writing a file of attachment chunks for [`Engine::ingest`].
    pub(crate) fn content_file_options(&self) -> Options {
        let mut o = keyspace::options(Keyspace::Attachments, &self.cache);
        o.set_enable_blob_files(false);
        o
    }

    /// Drops files that contain only keys of a range in which nothing is needed any more.
    pub(crate) fn drop_attachment_files(&self, from: &[u8], to: &[u8]) {
        let cf = self.cf(Keyspace::Attachments);
        if let Err(e) = self.db.delete_file_in_range_cf(&cf, from, to) {
            tracing::warn!(error = %e, "dropping files of removed attachments failed");
        }
    }

    /// Compacts ranges of `attachments` from which chunks were removed. Files without needed data
    /// are dropped; needed data of the others is moved when more than a quarter of the total is
    /// garbage.
    pub(crate) fn reclaim_attachments(&self, ranges: &[KeyRange], quiet: bool) {
        let cf = self.cf(Keyspace::Attachments);
        if let Err(e) = self.db.flush_cf(cf) {
            tracing::warn!(error = %e, "flush before compaction failed");
        }
        self.compact_ranges(Keyspace::Attachments, ranges, |_| {});
        let of = |name| self.db.property_int_value_cf(cf, name).ok().flatten();
        let garbage = of("rocksdb.live-blob-file-garbage-size").unwrap_or(0);
        let all = of("rocksdb.live-blob-file-size").unwrap_or(0);
        let least = match quiet {
            true => GARBAGE_BYTES_MIN_QUIET.max(all / 5),
            false => GARBAGE_BYTES_MIN.max(all / 4),
        };
        if garbage < least {
            return;
        }
        let set = |cutoff: &str| {
            let option = [("blob_garbage_collection_age_cutoff", cutoff)];
            if let Err(e) = self.db.set_options_cf(cf, &option) {
                tracing::warn!(error = %e, "rewriting attachments' files failed");
            }
        };
        set("1.0");
        let mut options = CompactOptions::default();
        options.set_exclusive_manual_compaction(false);
        options.set_bottommost_level_compaction(BottommostLevelCompaction::ForceOptimized);
        self.db
            .compact_range_cf_opt(cf, None::<&[u8]>, None::<&[u8]>, &options);
        set(&BLOB_GC_AGE_CUTOFF.to_string());
    }

    /// Estimates the bytes of files that hold the shard's rows, without attachments.
    pub fn file_bytes(&self, shard: ShardNumber) -> u64 {
        let start = shard.to_be_bytes();
        let end = keys::shard_end(shard);
        Keyspace::SHARDED
            .iter()
            .filter(|&&k| k != Keyspace::Attachments)
            .flat_map(|&k| {
                self.db
                    .get_approximate_sizes_cf(self.cf(k), &[rocksdb::Range::new(&start, &end)])
            })
            .sum()
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.health.close();
    }
}
