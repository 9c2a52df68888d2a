//! The databases of a node.

mod creation;

use std::collections::HashSet;
use std::ops::Bound;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, RwLock};
use storage::{Store, StoreOptions};
use tokio::sync::{Notify, watch};

use crate::access_key::DefaultAccess;
use crate::attachments::{AttachmentOptions, SharedOptions};
use crate::catalogue::lower_format;
use crate::database::Database;
use crate::events::{DbEvent, DbEventKind, Events};
use crate::expiry::ExpiryWatch;
use crate::find::{FindUse, FindUses, IndexKey, Scans, WithIndexes};
use crate::keeper::{Keeper, OpenMemory};
use crate::maintenance::Maintenance;
use crate::open_databases::{DatabasesByShard, OpenDatabases, SharedParts};
use crate::partition_room::SharedLimit;
use crate::rules::SystemRules;
use crate::sequencer::{Sequencer, SharedSequencer};
use crate::text::TextTurns;
use crate::views::{IndexUse, Indexer, KenOptions, Views};
use crate::{Error, Task, unix_seconds};

/// More shards than this for one database are refused.
pub const SHARDS_MAX: u32 = 256;
/// Revisions kept of each branch of a new database's documents.
pub const REVS_LIMIT: u64 = 1000;
/// Purges remembered of each shard of a new database.
pub const PURGED_INFOS_LIMIT: u64 = 1000;

/// Properties of a new database.
#[derive(Clone, Debug)]
pub struct CreateOptions {
    /// Shards; `None` for the default of [`Options`].
    pub q: Option<u32>,
    /// Replicas, as reported.
    pub n: Option<u32>,
    /// Ids begin with a partition.
    pub partitioned: bool,
    /// Whether documents have access sets, so that each user sees and changes those that name the
    /// user, and that of new documents without one.
    pub access: Option<DefaultAccess>,
    /// JSON text of the security object.
    pub security: String,
}

impl Default for CreateOptions {
    /// Returns the properties of a database with no security.
    fn default() -> CreateOptions {
        CreateOptions {
            q: None,
            n: None,
            partitioned: false,
            access: None,
            security: "{}".to_owned(),
        }
    }
}

/// How the node's databases are opened.
#[derive(Clone, Debug)]
pub struct Options {
    /// The store.
    pub store: StoreOptions,
    /// Shards of a new database.
    pub default_q: u32,
    /// Copies of a new database, as reported.
    pub default_n: u32,
    /// Compact shards automatically when more rows are superseded than listed.
    pub auto_compact: bool,
    /// Runs the functions of design documents.
    pub languages: Arc<dyn functions::Languages>,
    /// Reductions that grow with their rows are refused beyond this.
    pub reduce_limit: Option<index::ReduceLimit>,
    /// Background indexing.
    pub ken: KenOptions,
    /// How attachments are kept.
    pub attachments: AttachmentOptions,
    /// Memory for open databases and indexes together, in bytes. When it is exceeded, unused ones
    /// are closed.
    pub open_bytes: usize,
    /// Memory that index builds may take together for their rows, in bytes.
    pub build_bytes: usize,
    /// Memory that the groups of all aggregates under way may take together, in bytes.
    pub aggregate_bytes: usize,
    /// Memory that all searches under way may take together, in bytes.
    pub search_bytes: usize,
    /// Memory for rows of indexes that are read often, in bytes.
    pub index_rows_bytes: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            store: StoreOptions::default(),
            default_q: 2,
            default_n: 1,
            auto_compact: true,
            languages: Arc::new(functions::NoLanguages),
            reduce_limit: Some(index::ReduceLimit::default()),
            ken: KenOptions::default(),
            attachments: AttachmentOptions::default(),
            open_bytes: 96 << 20,
            build_bytes: 256 << 20,
            aggregate_bytes: 256 << 20,
            search_bytes: 512 << 20,
            index_rows_bytes: 64 << 20,
        }
    }
}

/// Ordered selection of names for `_all_dbs` and `_dbs_info`, by bytes.
#[derive(Clone, Debug, Default)]
pub struct NameRange {
    /// First name in the direction.
    pub start: Option<String>,
    /// Last name in the direction.
    pub end: Option<String>,
    /// `end` itself is among them.
    pub inclusive_end: bool,
    /// From the last name to the first.
    pub descending: bool,
    /// Names left out at the beginning.
    pub skip: u64,
    /// Names at most.
    pub limit: Option<u64>,
}

/// Counters of the engine and the commit queue since the start.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    /// Edits that the commit queue took.
    pub document_writes: u64,
    /// Inserted revisions: each edit inserts one, so this equals `document_writes`.
    pub document_inserts: u64,
    /// Requests that the commit queue took.
    pub commits: u64,
    /// Batches that they became.
    pub commit_batches: u64,
    /// Bytes in memtables not yet written to files.
    pub memtable_bytes: u64,
    /// Memory of the block cache, in bytes.
    pub block_cache_bytes: u64,
    /// Maximum size of the block cache, in bytes.
    pub block_cache_bytes_max: u64,
    /// Memory of recently read documents, in bytes.
    pub documents_bytes: u64,
    /// Memory of rows of indexes that are read often, in bytes.
    pub index_rows_bytes: u64,
    /// Reads of documents that were served from there, since the process started,
    pub documents_found: u64,
    /// and those that were not.
    pub documents_read: u64,
    /// Of a sample of reads since the process started: those that found all blocks in it,
    pub sampled_reads_cached: u64,
    /// and those that had to read from files.
    pub sampled_reads_uncached: u64,
    /// Errors for which the engine refused all writes, since the process started,
    pub engine_errors: u64,
    /// how long ago the last one came, in seconds,
    pub engine_error_age_s: Option<u64>,
    /// and how often it took writes again.
    pub engine_resumes: u64,
    /// Compactions that failed and were tried again.
    pub compaction_failures: u64,
}

/// All databases of one data directory. The entry point of the embedded API.
///
/// ```
/// use database::{CreateOptions, Databases, Durability, EditMode, Options, Read, ReadOptions};
///
/// let dir = tempfile::tempdir().unwrap();
/// let databases = Databases::open(dir.path(), Options::default()).unwrap();
/// let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
/// runtime.block_on(async {
///     let options = CreateOptions::default();
///     let db = databases.create("notes", options).await.unwrap();
///     let edit = document::parse_document(br#"{"_id":"a","text":"hello"}"#).unwrap();
///     db.update(vec![edit], EditMode::Interactive, Durability::Synced).await.unwrap();
///     let id = document::DocId::new("a").unwrap();
///     let Read::Found(doc) = db.read(&id, &ReadOptions::default()).unwrap() else { panic!() };
///     assert!(doc.json.ends_with(br#""text":"hello"}"#));
/// });
/// databases.close();
/// ```
pub struct Databases {
    store: Arc<Store>,
    options: Options,
    pub(crate) open_databases: Arc<OpenDatabases>,
    events: Arc<Events>,
    /// One deletion at a time, or one replacement of shards.
    pub(crate) reshaping: tokio::sync::Mutex<()>,
    /// Names being created.
    creating: Creating,
    pub(crate) maintenance: Arc<Maintenance>,
    keeper: Arc<Keeper>,
    views: Arc<Views>,
    attachments: SharedOptions,
    partition_limit: SharedLimit,
    leaf_limit: SharedLimit,
    sequencer: SharedSequencer,
    expiry_watch: Arc<ExpiryWatch>,
}

/// Returns the store's callback after each commit, which notifies the database of the shard.
fn notify_databases(by_shard: DatabasesByShard, events: Arc<Events>) -> storage::OnCommit {
    Box::new(move |written| {
        let number = written.shard.number;
        let db = by_shard.read().get(&number).and_then(Weak::upgrade);
        if let Some(db) = db {
            db.committed(written);
            events.note(db.name(), DbEventKind::Updated);
        }
    })
}

impl Databases {
    /// Opens the databases in `dir`, creating the directory when absent.
    pub fn open(dir: &Path, options: Options) -> Result<Arc<Databases>, Error> {
        let by_shard = DatabasesByShard::default();
        let events = Arc::new(Events::default());
        let on_commit = notify_databases(by_shard.clone(), events.clone());
        let store = Arc::new(Store::open(dir, &options.store, on_commit)?);
        let maintenance = Maintenance::new(store.clone(), options.auto_compact);
        let keeper = Keeper::new(options.open_bytes);
        let views = Arc::new(Views {
            languages: Arc::new(WithIndexes(options.languages.clone())),
            scans: Scans::default(),
            text_turns: TextTurns::new(options.search_bytes),
            reduce_limit: options.reduce_limit.into(),
            build_memory: Arc::new(index::BuildMemory::new(options.build_bytes)),
            aggregate_memory: mango::AggregateMemory::new(options.aggregate_bytes),
            row_cache: Arc::new(index::RowCache::new(options.index_rows_bytes)),
            indexer: Indexer::new(options.ken.clone()),
            used: IndexUse::default(),
            finds: FindUses::default(),
        });
        let attachments = Arc::new(RwLock::new(options.attachments.clone()));
        let partition_limit = Arc::new(AtomicU64::new(u64::MAX));
        let leaf_limit = Arc::new(AtomicU64::new(storage::LEAVES_MAX));
        let sequencer = SharedSequencer::default();
        let expiry_watch = Arc::new(ExpiryWatch::default());
        let shared = SharedParts {
            store: store.clone(),
            maintenance: maintenance.clone(),
            keeper: keeper.clone(),
            views: views.clone(),
            attachments: attachments.clone(),
            partition_limit: partition_limit.clone(),
            leaf_limit: leaf_limit.clone(),
            sequencer: sequencer.clone(),
            expiry_watch: expiry_watch.clone(),
        };
        let names = store.databases()?;
        lower_format(&store, &names);
        let names = names.into_iter().map(Arc::from).collect();
        let open_databases = Arc::new(OpenDatabases::new(shared, by_shard, names));
        let weak: Weak<OpenDatabases> = Arc::downgrade(&open_databases);
        views.indexer.find_by(weak.clone());
        maintenance.start(weak);
        keeper.start(&open_databases);
        Ok(Arc::new(Databases {
            store,
            options,
            open_databases,
            events,
            reshaping: tokio::sync::Mutex::new(()),
            creating: Creating::default(),
            maintenance,
            keeper,
            views,
            attachments,
            partition_limit,
            leaf_limit,
            sequencer,
            expiry_watch,
        }))
    }

    /// Puts databases that these rules concern under them: those that are here, and those that will be created. A
    /// database is under one set of rules: the first that concerns it.
    pub fn add_rules(&self, new: Arc<dyn SystemRules>) {
        self.open_databases.add_rules(new);
    }

    /// Applies the rules again to all databases, after a change of the databases that they concern.
    pub fn ask_rules_again(&self) {
        self.open_databases.ask_rules_again();
    }

    /// Sets the order of writes, for a server that is not the only one. Called once, before the
    /// first write.
    pub fn set_sequencer(&self, sequencer: Arc<dyn Sequencer>) {
        // A second one finds the first.
        let _ = self.sequencer.set(sequencer);
    }

    /// Orders writes, if this server is not the only one.
    pub fn sequencer(&self) -> Option<&Arc<dyn Sequencer>> {
        self.sequencer.get()
    }

    /// Returns which databases changed whose documents expire.
    pub fn expiry_watch(&self) -> &Arc<ExpiryWatch> {
        &self.expiry_watch
    }

    /// Whether it is being closed: nothing more is written.
    pub fn is_closing(&self) -> bool {
        self.store.engine().is_closing()
    }

    /// The store that all databases are in.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Returns the database of this name. Reads it from the store if it is not open.
    ///
    /// # Errors
    /// [`Error::NoDatabase`].
    pub fn get(&self, name: &str) -> Result<Arc<Database>, Error> {
        self.open_databases.get(name)
    }

    /// Closes all unused databases, even if their memory is not needed; returns their number.
    /// Blocks.
    pub fn close_idle(&self) -> usize {
        self.keeper.close_all(&self.open_databases)
    }

    /// Databases with writes whose indexes the background has not checked yet.
    pub fn waiting_for_indexing(&self) -> usize {
        self.views.indexer.waiting()
    }

    /// Index builds that wait until others are done.
    pub fn index_builds_waiting(&self) -> usize {
        self.views.indexer.builds_waiting()
    }

    /// Memory of index builds.
    pub fn build_memory(&self) -> &Arc<index::BuildMemory> {
        &self.views.build_memory
    }

    /// Bytes that worker processes for functions take together, and the most that they took.
    pub fn worker_memory(&self) -> (u64, u64) {
        self.views.languages.worker_memory()
    }

    /// Memory of the groups of aggregates.
    pub fn aggregate_memory(&self) -> &mango::AggregateMemory {
        &self.views.aggregate_memory
    }

    /// Bytes that searches in text indexes have now, and the most that they had.
    pub fn search_memory(&self) -> (usize, usize) {
        self.views.text_turns.memory_bytes()
    }

    /// Memory of open databases and indexes.
    pub fn open_memory(&self) -> OpenMemory {
        self.keeper.memory()
    }

    /// Names of databases in their order.
    pub fn names(&self, range: &NameRange) -> Vec<Arc<str>> {
        let (low, high) = if range.descending {
            (&range.end, &range.start)
        } else {
            (&range.start, &range.end)
        };
        let bound = |name: &Option<String>, inclusive: bool| match name {
            None => Bound::Unbounded,
            Some(n) if inclusive => Bound::Included(Arc::from(n.as_str())),
            Some(n) => Bound::Excluded(Arc::from(n.as_str())),
        };
        let low = bound(low, !range.descending || range.inclusive_end);
        let high = bound(high, range.descending || range.inclusive_end);
        if is_empty(&low, &high) {
            return vec![];
        }
        let names = self.open_databases.names().read();
        let names = names.range::<Arc<str>, _>((low, high));
        let skip = range.skip as usize;
        let limit = range.limit.map_or(usize::MAX, |l| l as usize);
        if range.descending {
            names.rev().skip(skip).take(limit).cloned().collect()
        } else {
            names.skip(skip).take(limit).cloned().collect()
        }
    }

    /// Sets how many bytes a partition may hold before it refuses writes; at first there is no
    /// limit.
    pub fn set_partition_limit(&self, max_bytes: u64) {
        self.partition_limit.store(max_bytes, Ordering::Relaxed);
    }

    /// Sets how the background builds indexes from now on.
    pub fn set_ken(&self, options: &KenOptions) {
        self.views.indexer.set_options(options);
    }

    /// Sets whether databases are compacted automatically from now on.
    pub fn set_auto_compact(&self, auto_compact: bool) {
        self.maintenance.set_auto_compact(auto_compact);
    }

    /// Sets when a reduction is too large from now on; `None` for never.
    pub fn set_reduce_limit(&self, limit: Option<index::ReduceLimit>) {
        self.views.reduce_limit.set(limit);
    }

    /// Sets how many leaves a document may have: an edit that adds another one is refused.
    pub fn set_leaf_limit(&self, max: u64) {
        self.leaf_limit.store(max, Ordering::Relaxed);
    }

    /// Sets before which time, in seconds since 1970, changes are not recorded in time bins: the clock is wrong then.
    pub fn set_time_seq_min(&self, unix_s: u64) {
        self.store().set_time_seq_min(unix_s);
    }

    /// Sets the options for storing attachments from now on.
    pub fn set_attachment_options(&self, options: AttachmentOptions) {
        *self.attachments.write() = options;
    }

    /// Whether there is a database of this name.
    pub fn exists(&self, name: &str) -> bool {
        self.open_databases.names().read().contains(name)
    }

    /// How many databases there are.
    pub fn count(&self) -> usize {
        self.open_databases.names().read().len()
    }

    /// Events after `seq`, oldest first, the newest of each database, and the last seq.
    pub fn events_since(&self, seq: u64) -> (Vec<DbEvent>, u64) {
        self.events.since(seq)
    }

    pub(crate) fn events(&self) -> &Events {
        &self.events
    }

    /// Changes value whenever a database is created, updated or deleted.
    pub fn watch_events(&self) -> watch::Receiver<u64> {
        self.events.watch()
    }

    /// Long jobs under way: compactions, index builds, scans.
    pub fn tasks(&self) -> Vec<Task> {
        let mut tasks = self.maintenance.tasks();
        tasks.extend(self.views.indexer.tasks());
        tasks.extend(self.views.scans.tasks());
        tasks
    }

    /// Counters of the engine and the commit queue.
    pub fn stats(&self) -> Stats {
        use std::sync::atomic::Ordering::Relaxed;
        let c = self.store.committer.counters();
        let edits = c.edits.load(Relaxed);
        Stats {
            document_writes: edits,
            document_inserts: edits,
            commits: c.requests.load(Relaxed),
            commit_batches: c.batches.load(Relaxed),
            memtable_bytes: self.store.memtable_bytes(),
            block_cache_bytes: self.store.block_cache_bytes(),
            block_cache_bytes_max: self.store.block_cache_capacity_bytes(),
            documents_bytes: self.store.documents_bytes(),
            index_rows_bytes: self.views.row_cache.bytes(),
            documents_found: storage::counters::DOCUMENTS_FOUND.get(),
            documents_read: storage::counters::DOCUMENTS_READ.get(),
            sampled_reads_cached: storage::counters::SAMPLED_READS_CACHED.get(),
            sampled_reads_uncached: storage::counters::SAMPLED_READS_UNCACHED.get(),
            engine_errors: storage::counters::ENGINE_ERRORS.get(),
            engine_error_age_s: Some(storage::counters::LAST_ENGINE_ERROR_S.load(Relaxed))
                .filter(|&at| at > 0)
                .map(|at| unix_seconds().saturating_sub(at)),
            engine_resumes: storage::counters::RESUMES.get(),
            compaction_failures: storage::counters::COMPACTION_FAILURES.get(),
        }
    }

    /// Bytes of the store's files, by content: the keyspaces, and the text indexes. The size of
    /// text indexes is from the last scan, some seconds old, or older while maintenance is busy; it
    /// is missing until the first scan is done. Blocks.
    pub fn file_bytes(&self) -> Vec<(&'static str, u64)> {
        let mut bytes = self.store.keyspace_bytes();
        bytes.extend(self.maintenance.text_bytes().map(|n| ("text_indexes", n)));
        bytes
    }

    /// How long writes took that waited for the disk, in microseconds, since the process started.
    pub fn sync_times() -> hdrhistogram::Histogram<u64> {
        storage::counters::SYNCS.snapshot()
    }

    /// How long batches of writes held the commit thread, in microseconds, without the time that the disk took, since the process
    /// started.
    pub fn commit_holds() -> hdrhistogram::Histogram<u64> {
        storage::counters::COMMIT_HOLDS.snapshot()
    }

    /// Statistics of queries, by database, and by design document and name of the index; `None` for
    /// the index of all documents. Has those with the most examined documents in the last half hour
    /// to hour.
    pub fn find_uses(&self) -> Vec<(IndexKey, FindUse)> {
        self.views.finds.all()
    }

    /// Databases that are open, of which more is known without reading.
    pub fn open_databases(&self) -> Vec<Arc<Database>> {
        self.open_databases.all_open()
    }

    /// Why all writes fail, if they do. Reads the free space of the disk.
    pub fn write_failure(&self) -> Option<storage::WriteFailure> {
        self.store.write_failure()
    }

    /// Requests that wait for the commit thread.
    pub fn commit_queue_length(&self) -> usize {
        self.store.committer.queue_length()
    }

    /// Free space of the data's file system, and its size, in bytes; `None` when unknown.
    pub fn disk_space(&self) -> Option<(u64, u64)> {
        self.store.disk_space()
    }

    /// Copies everything as of now to the directory `target`, which must not exist. Blocks; writes
    /// continue meanwhile.
    pub fn backup(&self, target: &Path) -> Result<(), Error> {
        self.copy(target)?;
        self.store.note_backup();
        Ok(())
    }

    /// Copies everything as of now to the directory `target`, for a backup that is made from this
    /// copy.
    pub fn copy(&self, target: &Path) -> Result<(), Error> {
        crate::text::copy_store(&self.store, target)
    }

    /// Writes the queue and stops. Every later operation fails. The directory is free when these
    /// databases, and everything read from them, are dropped. Some work that does not end within
    /// seconds may hold it longer: an index build whose functions are slow, a compaction of an
    /// index, and the removal of a deleted database whose indexes were being built.
    pub fn close(&self) {
        self.maintenance.ask_to_stop();
        self.keeper.stop();
        self.views.indexer.stop();
        for db in self.open_databases.all_open() {
            db.flush_text_indexes();
        }
        self.store.close();
        self.maintenance.stop();
    }
}

impl Drop for Databases {
    fn drop(&mut self) {
        self.close();
    }
}

/// Runs work that must not stop halfway when the caller stops waiting: a client that hangs up drops
/// its request.
pub(crate) async fn to_the_end<T: Send + 'static>(
    work: impl Future<Output = Result<T, Error>> + Send + 'static,
) -> Result<T, Error> {
    tokio::spawn(work)
        .await
        .unwrap_or_else(|failed| match failed.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => Err(Error::ShuttingDown),
        })
}

pub(crate) fn random<const N: usize>() -> Result<[u8; N], Error> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|e| Error::Internal(format!("no random bytes: {e}")))?;
    Ok(bytes)
}

/// Names of databases that are being created or deleted.
#[derive(Default)]
struct Creating {
    names: Mutex<HashSet<String>>,
    /// Notified when a name is not reserved any more.
    ended: Notify,
}

fn is_empty(low: &Bound<Arc<str>>, high: &Bound<Arc<str>>) -> bool {
    match (low, high) {
        (Bound::Included(a), Bound::Included(b)) => a > b,
        (Bound::Included(a) | Bound::Excluded(a), Bound::Included(b) | Bound::Excluded(b)) => {
            a >= b
        }
        _ => false,
    }
}
