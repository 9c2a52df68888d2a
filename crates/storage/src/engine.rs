//! RocksDB, opened for this store: keyspaces, options, snapshots.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use rocksdb::{
    BlockBasedOptions, Cache, ColumnFamily, ColumnFamilyDescriptor, DB, DBCompressionType,
    DBPinnableSlice, DBRawIterator, DBRecoveryMode, IngestExternalFileOptions, Options,
    ReadOptions, SnapshotWithThreadMode, WriteBatch, WriteOptions,
};

use crate::Error;
use crate::keys::{self, ShardNumber};
use crate::wal;

/// A column family. One by kind of keyspace, never one by database: their cost is quadratic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Keyspace {
    /// The node's catalogue and the shards' counters.
    Meta,
    ById,
    BySeq,
    /// Bodies too long for by-seq, under the seq of their row.
    Bodies,
    /// Seqs of by-seq rows that list their document no longer.
    Superseded,
    Local,
    Purges,
    Summary,
    /// Rows of indexes, by an index's number.
    IndexRows,
    /// Which rows of an index each document has.
    IndexBack,
    /// The summary trees of indexes.
    IndexBlocks,
    /// Contents of attachments, and who refers to them.
    Attachments,
}

impl Keyspace {
    pub const ALL: [Keyspace; 12] = [
        Keyspace::Meta,
        Keyspace::ById,
        Keyspace::BySeq,
        Keyspace::Bodies,
        Keyspace::Superseded,
        Keyspace::Local,
        Keyspace::Purges,
        Keyspace::Summary,
        Keyspace::IndexRows,
        Keyspace::IndexBack,
        Keyspace::IndexBlocks,
        Keyspace::Attachments,
    ];

    /// The keyspaces whose keys begin with the number of a shard or index.
    pub const SHARDED: [Keyspace; 11] = [
        Keyspace::ById,
        Keyspace::BySeq,
        Keyspace::Bodies,
        Keyspace::Superseded,
        Keyspace::Local,
        Keyspace::Purges,
        Keyspace::Summary,
        Keyspace::IndexRows,
        Keyspace::IndexBack,
        Keyspace::IndexBlocks,
        Keyspace::Attachments,
    ];

    fn name(self) -> &'static str {
        match self {
            Keyspace::Meta => "default",
            Keyspace::ById => "by_id",
            Keyspace::BySeq => "by_seq",
            Keyspace::Bodies => "bodies",
            Keyspace::Superseded => "superseded",
            Keyspace::Local => "local",
            Keyspace::Purges => "purges",
            Keyspace::Summary => "summary",
            Keyspace::IndexRows => "index_rows",
            Keyspace::IndexBack => "index_back",
            Keyspace::IndexBlocks => "index_blocks",
            Keyspace::Attachments => "attachments",
        }
    }
}

/// How a store is opened.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// Size of the block cache, which also holds index and filter blocks.
    pub block_cache_bytes: usize,
    /// Upper bound of all memtables together.
    pub write_buffers_bytes: usize,
    pub background_jobs: i32,
    /// Open a log damaged in its middle, losing what follows the damage.
    pub accept_damaged_log: bool,
    /// Free space, beyond what memtables need to be flushed, below which writes are refused.
    pub reserve_bytes: u64,
}

impl Default for StoreOptions {
    fn default() -> Self {
        StoreOptions {
            block_cache_bytes: 256 << 20,
            write_buffers_bytes: 96 << 20,
            background_jobs: 2,
            accept_damaged_log: false,
            reserve_bytes: 8 << 20,
        }
    }
}

pub struct Engine {
    pub db: DB,
    pub path: PathBuf,
    pub cache: Cache,
    /// Held while files are added and while a copy is made: the engine's copy may have what was logged after files were added
    /// but not the files.
    pub(crate) adding_files: parking_lot::Mutex<()>,
    closing: AtomicBool,
}

/// Shorter values of `attachments` stay in its tables.
const ATTACHMENT_BLOB_BYTES_MIN: u64 = 4 << 10;
const ATTACHMENT_BLOB_FILE_BYTES: u64 = 256 << 20;
/// The part of the files, oldest first, from which a compaction moves what is still needed.
const BLOB_GC_AGE_CUTOFF: f64 = 0.25;

/// Less garbage than this is not worth rewriting files.
const GARBAGE_BYTES_MIN: u64 = 16 << 20;

const INGEST_DIRECTORY: &str = "ingest";

/// Files that a crash left behind before they were ingested.
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

fn table_options(cache: &Cache, block_bytes: usize, bloom: bool) -> BlockBasedOptions {
    let mut t = BlockBasedOptions::default();
    t.set_block_cache(cache);
    t.set_block_size(block_bytes);
    t.set_format_version(6);
    t.set_cache_index_and_filter_blocks(true);
    t.set_pin_l0_filter_and_index_blocks_in_cache(true);
    if bloom {
        t.set_bloom_filter(10.0, false);
        t.set_whole_key_filtering(true);
    }
    t
}

fn keyspace_options(k: Keyspace, cache: &Cache) -> Options {
    let (block_bytes, bloom, buffer_bytes) = match k {
        Keyspace::ById => (8 << 10, true, 32 << 20),
        Keyspace::BySeq => (16 << 10, false, 64 << 20),
        Keyspace::Bodies => (32 << 10, false, 32 << 20),
        Keyspace::Local => (8 << 10, true, 8 << 20),
        Keyspace::Meta => (8 << 10, true, 8 << 20),
        Keyspace::IndexRows => (8 << 10, false, 32 << 20),
        Keyspace::IndexBack => (8 << 10, true, 16 << 20),
        Keyspace::Attachments => (16 << 10, true, 8 << 20),
        Keyspace::Superseded | Keyspace::Purges | Keyspace::Summary | Keyspace::IndexBlocks => {
            (16 << 10, false, 8 << 20)
        }
    };
    let mut o = Options::default();
    o.set_block_based_table_factory(&table_options(cache, block_bytes, bloom));
    o.set_write_buffer_size(buffer_bytes);
    o.set_max_write_buffer_number(3);
    o.set_level_compaction_dynamic_level_bytes(true);
    o.set_compression_type(DBCompressionType::Lz4);
    o.set_bottommost_compression_type(DBCompressionType::Zstd);
    if k == Keyspace::Attachments {
        // Chunks go to files of their own, so that compactions move their places only, and they are compressed already or not
        // worth it.
        o.set_compression_type(DBCompressionType::None);
        o.set_bottommost_compression_type(DBCompressionType::None);
        o.set_enable_blob_files(true);
        o.set_min_blob_size(ATTACHMENT_BLOB_BYTES_MIN);
        o.set_blob_file_size(ATTACHMENT_BLOB_FILE_BYTES);
        o.set_enable_blob_gc(true);
        o.set_blob_gc_age_cutoff(BLOB_GC_AGE_CUTOFF);
    }
    if bloom {
        o.set_memtable_prefix_bloom_ratio(0.02);
        o.set_memtable_whole_key_filtering(true);
    }
    o
}

impl Engine {
    pub fn open(path: &Path, options: &StoreOptions) -> Result<Arc<Engine>, Error> {
        std::fs::create_dir_all(path).map_err(|e| Error::Directory {
            path: path.into(),
            reason: e.to_string(),
        })?;
        if !options.accept_damaged_log {
            wal::check(path)?;
        }
        clear_ingest_directory(path)?;
        let cache = Cache::new_hyper_clock_cache(options.block_cache_bytes, 0);
        let mut o = Options::default();
        o.create_if_missing(true);
        o.create_missing_column_families(true);
        o.set_max_background_jobs(options.background_jobs);
        o.set_db_write_buffer_size(options.write_buffers_bytes);
        o.set_max_total_wal_size(2 * options.write_buffers_bytes as u64);
        o.set_wal_recovery_mode(DBRecoveryMode::PointInTime);
        o.set_recycle_log_file_num(0);
        o.set_bytes_per_sync(1 << 20);
        // Contents of attachments go through the log unsynced: a commit's sync should not find much of them.
        o.set_wal_bytes_per_sync(1 << 20);
        o.set_max_open_files(1024);
        o.set_keep_log_file_num(4);
        o.set_max_log_file_size(8 << 20);
        o.set_stats_dump_period_sec(0);
        o.set_allow_concurrent_memtable_write(false);
        let families = Keyspace::ALL
            .map(|k| ColumnFamilyDescriptor::new(k.name(), keyspace_options(k, &cache)));
        let db = DB::open_cf_descriptors(&o, path, families).map_err(|e| Error::Directory {
            path: path.into(),
            reason: e.into_string(),
        })?;
        Ok(Arc::new(Engine {
            db,
            path: path.into(),
            cache,
            adding_files: parking_lot::Mutex::default(),
            closing: AtomicBool::new(false),
        }))
    }

    /// From here on a compaction may end before its time.
    pub(crate) fn begin_closing(&self) {
        self.closing.store(true, Relaxed);
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Relaxed)
    }

    pub fn cf(&self, k: Keyspace) -> &ColumnFamily {
        // Every keyspace is opened above or `open` fails.
        self.db
            .cf_handle(k.name())
            .expect("all keyspaces were opened")
    }

    pub fn get(&self, k: Keyspace, key: &[u8]) -> Result<Option<DBPinnableSlice<'_>>, Error> {
        Ok(self.db.get_pinned_cf(self.cf(k), key)?)
    }

    /// Reads a value that will not be read again soon: it does not take the place of others in the cache.
    pub fn get_once(&self, k: Keyspace, key: &[u8]) -> Result<Option<DBPinnableSlice<'_>>, Error> {
        let mut o = ReadOptions::default();
        o.fill_cache(false);
        Ok(self.db.get_pinned_cf_opt(self.cf(k), key, &o)?)
    }

    pub fn write(&self, batch: WriteBatch, sync: bool) -> Result<(), Error> {
        let mut o = WriteOptions::default();
        o.set_sync(sync);
        Ok(self.db.write_opt(batch, &o)?)
    }

    /// Options for writing a sorted file that [`Engine::ingest`] takes.
    pub fn table_file_options(&self, k: Keyspace) -> Options {
        let mut o = keyspace_options(k, &self.cache);
        // Such a file mostly goes to the last level at once and is never rewritten.
        o.set_compression_type(DBCompressionType::Zstd);
        o
    }

    /// The directory where files are written that are to be ingested.
    pub fn ingest_directory(&self) -> PathBuf {
        self.path.join(INGEST_DIRECTORY)
    }

    /// Adds sorted files to a keyspace, all or none; the files are moved. What they hold is durable then.
    pub fn ingest(&self, k: Keyspace, files: Vec<PathBuf>) -> Result<(), Error> {
        let mut o = IngestExternalFileOptions::default();
        o.set_move_files(true);
        let _adding = self.adding_files.lock();
        Ok(self
            .db
            .ingest_external_file_cf_opts(self.cf(k), &o, files)?)
    }

    pub fn snapshot(self: &Arc<Self>) -> Snapshot {
        Snapshot(SnapshotCell::new(self.clone(), |e| e.db.snapshot()))
    }

    /// Bytes in memtables not yet written to files.
    pub fn memtable_bytes(&self) -> u64 {
        Keyspace::ALL
            .iter()
            .filter_map(|&k| {
                self.db
                    .property_int_value_cf(self.cf(k), "rocksdb.cur-size-all-mem-tables")
                    .ok()
                    .flatten()
            })
            .sum()
    }

    /// Bytes of the files of each keyspace, by name.
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

    /// Options for writing a file of attachments' chunks that [`Engine::ingest`] takes.
    pub(crate) fn content_file_options(&self) -> Options {
        let mut o = keyspace_options(Keyspace::Attachments, &self.cache);
        o.set_enable_blob_files(false);
        o
    }

    /// Drops files that hold nothing but keys of a range in which nothing is needed any more.
    pub(crate) fn drop_attachment_files(&self, from: &[u8], to: &[u8]) {
        let cf = self.cf(Keyspace::Attachments);
        if let Err(e) = self.db.delete_file_in_range_cf(&cf, from, to) {
            tracing::warn!(error = %e, "dropping files of removed attachments failed");
        }
    }

    /// Compacts ranges of `attachments` from which chunks were removed. Files in which nothing is needed go; of the others, what
    /// is needed is moved when more than a quarter of all is garbage.
    pub(crate) fn reclaim_attachments(&self, ranges: &[(Vec<u8>, Vec<u8>)]) {
        let cf = self.cf(Keyspace::Attachments);
        if let Err(e) = self.db.flush_cf(cf) {
            tracing::warn!(error = %e, "flush before compaction failed");
        }
        let mut options = rocksdb::CompactOptions::default();
        options.set_exclusive_manual_compaction(false);
        for (from, to) in ranges {
            self.db
                .compact_range_cf_opt(cf, Some(from), Some(to), &options);
        }
        let of = |name| self.db.property_int_value_cf(cf, name).ok().flatten();
        let garbage = of("rocksdb.live-blob-file-garbage-size").unwrap_or(0);
        let all = of("rocksdb.live-blob-file-size").unwrap_or(0);
        if garbage < GARBAGE_BYTES_MIN || garbage < all / 4 {
            return;
        }
        let set = |cutoff: &str| {
            let option = [("blob_garbage_collection_age_cutoff", cutoff)];
            if let Err(e) = self.db.set_options_cf(cf, &option) {
                tracing::warn!(error = %e, "attachments' files are not rewritten");
            }
        };
        set("1.0");
        options.set_bottommost_level_compaction(rocksdb::BottommostLevelCompaction::ForceOptimized);
        self.db
            .compact_range_cf_opt(cf, None::<&[u8]>, None::<&[u8]>, &options);
        set(&BLOB_GC_AGE_CUTOFF.to_string());
    }

    /// Bytes of files that hold the shard's rows, but for attachments, estimated by the engine.
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

type Snap<'a> = SnapshotWithThreadMode<'a, DB>;

self_cell::self_cell!(
    struct SnapshotCell {
        owner: Arc<Engine>,
        #[covariant]
        dependent: Snap,
    }
);

/// The whole store as it was at one moment. Holding one keeps old versions on disk, nothing else.
pub struct Snapshot(SnapshotCell);

impl Snapshot {
    pub fn engine(&self) -> &Arc<Engine> {
        self.0.borrow_owner()
    }

    pub fn get(&self, k: Keyspace, key: &[u8]) -> Result<Option<DBPinnableSlice<'_>>, Error> {
        let cf = self.engine().cf(k);
        Ok(self.0.borrow_dependent().get_pinned_cf(cf, key)?)
    }

    /// An iterator over one shard's keys of a keyspace, not yet positioned.
    pub fn iter(&self, k: Keyspace, shard: ShardNumber) -> DBRawIterator<'_> {
        let mut o = ReadOptions::default();
        o.set_iterate_lower_bound(shard.to_be_bytes().to_vec());
        o.set_iterate_upper_bound(keys::shard_end(shard));
        let cf = self.engine().cf(k);
        self.0.borrow_dependent().raw_iterator_cf_opt(cf, o)
    }

    /// An iterator over the keys from `low` up to but without `high`, not yet positioned.
    pub fn iter_range(&self, k: Keyspace, low: Vec<u8>, high: Vec<u8>) -> DBRawIterator<'_> {
        let mut o = ReadOptions::default();
        o.set_iterate_lower_bound(low);
        o.set_iterate_upper_bound(high);
        let cf = self.engine().cf(k);
        self.0.borrow_dependent().raw_iterator_cf_opt(cf, o)
    }

    /// The same for a long scan: what it reads does not take the place of other blocks in the cache.
    pub fn scan_range(&self, k: Keyspace, low: Vec<u8>, high: Vec<u8>) -> DBRawIterator<'_> {
        let mut o = ReadOptions::default();
        o.set_iterate_lower_bound(low);
        o.set_iterate_upper_bound(high);
        o.fill_cache(false);
        let cf = self.engine().cf(k);
        self.0.borrow_dependent().raw_iterator_cf_opt(cf, o)
    }

    /// An iterator over the whole of a keyspace, not yet positioned.
    pub fn iter_all(&self, k: Keyspace) -> DBRawIterator<'_> {
        let cf = self.engine().cf(k);
        self.0
            .borrow_dependent()
            .raw_iterator_cf_opt(cf, ReadOptions::default())
    }
}
