//! One database: its shards, properties and sizes.

mod compaction;
mod properties;
mod purges;

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, OnceLock};

use document::{DocId, Principals, Rev};
use functions::Languages;
use parking_lot::RwLock;
use storage::{Contents, Limits, Shard, ShardNumber, Store};
use tokio::sync::watch;

use crate::access_key::{DatabaseAccess, DefaultAccess};
use crate::access_watch::AccessWatch;
use crate::attachments::{AttachmentOptions, Homes, SharedOptions};
use crate::catalogue::{DatabaseRecord, DatabaseUuid};
use crate::design_cache::DesignCache;
use crate::expiry::ExpiryWatch;
use crate::find::IndexesFound;
use crate::lifecycle::{DELETED, Lifecycle, REPLACED};
use crate::maintenance::{Maintenance, RetainedData};
use crate::open_databases::SharedParts;
use crate::partition_room::{SharedLimit, SharedRoom};
use crate::rules::{SlowWrites, SystemRules};
use crate::security::SecurityObject;
use crate::seq::Seqs;
use crate::sequencer::{Sequencer, SharedSequencer};
use crate::validators::Validators;
use crate::views::{DatabaseViews, Views};
use crate::{Error, partition};

/// Counts and sizes of a database, as `GET /{db}` shows them.
#[derive(Clone, Debug)]
pub struct Info {
    /// The database's name.
    pub name: Arc<str>,
    /// Time of its creation: seconds since 1970, as CouchDB shows it.
    pub instance_start_time: String,
    /// All purges so far, in the form of `update_seq`.
    pub purge_seq: String,
    /// All updates so far, `N-opaque`.
    pub update_seq: String,
    /// Bytes of files, estimated by the engine.
    pub file_bytes: u64,
    /// Length of the leaves' bodies as JSON text, with their attachments, in bytes.
    pub external_bytes: u64,
    /// The live part of `file_bytes`, about: a compaction would leave it.
    pub active_bytes: u64,
    /// Whether ids begin with a partition.
    pub partitioned: bool,
    /// Whether documents have access sets, and that of new documents without one.
    pub access: Option<DefaultAccess>,
    /// Documents whose winner is not deleted.
    pub doc_count: u64,
    /// Documents whose winner is deleted.
    pub doc_del_count: u64,
    /// A compaction is under way.
    pub compact_running: bool,
    /// Shards.
    pub q: u32,
    /// Number of copies, as requested.
    pub n: u32,
}

/// Which of some revisions of a document are not here.
pub struct RevsDiff {
    /// Revisions that do not exist here.
    pub missing: Vec<Rev>,
    /// Leaves that those may descend from.
    pub possible_ancestors: Vec<Rev>,
}

/// A place among the remembered purges of a database; the default is the first one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PurgePlace {
    shard: usize,
    purge_seq: u64,
}

/// One database. It may be held while it is deleted: operations then fail with
/// [`Error::NoDatabase`]. While other shards replace some of its own, they fail with
/// [`Error::Unavailable`]; [`Databases::get`](crate::Databases::get) then returns a new `Database`.
pub struct Database {
    name: Arc<str>,
    store: Arc<Store>,
    maintenance: Arc<Maintenance>,
    shared_views: Arc<Views>,
    pub(crate) views: DatabaseViews,
    languages: Arc<dyn Languages>,
    shards: Vec<Arc<Shard>>,
    record: RwLock<DatabaseRecord>,
    /// One change of properties at a time.
    pub(crate) changing: tokio::sync::Mutex<()>,
    security: RwLock<Arc<SecurityObject>>,
    changed: RwLock<Option<watch::Sender<u64>>>,
    /// Time of the last use, in the keeper's ticks.
    used: AtomicU64,
    written: AtomicBool,
    /// Whether the shard state that the first write needs is loaded.
    pub(crate) is_loaded: AtomicBool,
    /// First writes wait for this without a thread, while one of them loads.
    pub(crate) loading: Arc<tokio::sync::Mutex<()>>,
    pub(crate) lifecycle: Lifecycle,
    partitioned: bool,
    /// Its properties as a database with access.
    access: Option<Arc<DatabaseAccess>>,
    /// Feeds of users of a database with access.
    access_watch: AccessWatch,
    epoch: u32,
    uuid: DatabaseUuid,
    /// Counts the commits that changed a design document.
    designs_version: AtomicU64,
    pub(crate) validators_found: Validators,
    rules: OnceLock<Arc<dyn SystemRules>>,
    /// Created when they are first needed.
    pub(crate) slow_writes: OnceLock<SlowWrites>,
    homes: Homes,
    attachment_options: SharedOptions,
    partition_limit: SharedLimit,
    leaf_limit: SharedLimit,
    partition_room: SharedRoom,
    sequencer: SharedSequencer,
    /// Whether its documents expire.
    pub(crate) has_expiry: AtomicBool,
    /// Whether a commit was noted that its index of expiry times does not hold.
    pub(crate) is_expiry_noted: AtomicBool,
    expiry_watch: Arc<ExpiryWatch>,
    pub(crate) find_indexes: IndexesFound,
    pub(crate) design_cache: DesignCache,
}

/// The outcome of purges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PurgeOutcome {
    /// The removed revisions of each requested document.
    pub removed: Vec<(DocId, Vec<Rev>)>,
    /// Fewer servers have it on disk than should, where there are several. The others will.
    pub has_few_copies: bool,
}

/// Maximum number of leaves of a document in a database with access. Each edit examines the readers
/// of every leaf.
pub(crate) const ACCESS_LEAVES_MAX: u64 = 100;

/// Memory of an open database without its shards, designs and indexes, in bytes.
const MEMORY_BYTES: usize = size_of::<Database>() + 1536;

impl Database {
    pub(crate) fn open(
        name: Arc<str>,
        record: DatabaseRecord,
        shared: &SharedParts,
    ) -> Result<Database, Error> {
        let shards = record
            .shards
            .iter()
            .map(|&n| Ok(Arc::new(shared.store.shard(n)?)))
            .collect::<Result<Vec<Arc<Shard>>, Error>>()?;
        let homes = Homes::open(&shared.store, &shards, record.contents)?;
        Ok(Database::with(name, record, shards, homes, shared))
    }

    /// Opens the database that replaces this one: remaining shards are shared, since they count in
    /// memory.
    pub(crate) fn reopen(
        &self,
        record: DatabaseRecord,
        shared: &SharedParts,
    ) -> Result<Database, Error> {
        let open = |(i, &number): (usize, &ShardNumber)| match self.shards.get(i) {
            Some(same) if same.number == number => Ok(same.clone()),
            _ => Ok(Arc::new(shared.store.shard(number)?)),
        };
        let shards = record.shards.iter().enumerate().map(open);
        let shards = shards.collect::<Result<Vec<Arc<Shard>>, Error>>()?;
        let homes = Homes::open(&shared.store, &shards, record.contents)?;
        let homes = homes.with_those_of(&self.homes);
        let name = self.name.clone();
        let db = Database::with(name, record, shards, homes, shared);
        db.note_expiry();
        Ok(db)
    }

    fn with(
        name: Arc<str>,
        record: DatabaseRecord,
        shards: Vec<Arc<Shard>>,
        homes: Homes,
        shared: &SharedParts,
    ) -> Database {
        let SharedParts {
            store,
            maintenance,
            views,
            attachments,
            partition_limit,
            leaf_limit,
            ..
        } = shared;
        let uuid = record.uuid(&name);
        let access = record.access.clone().map(Arc::new);
        if access.is_some() {
            // Before the first edit.
            shards.iter().for_each(|shard| shard.keep_access());
        }
        Database {
            homes,
            access,
            access_watch: AccessWatch::default(),
            attachment_options: attachments.clone(),
            partition_limit: partition_limit.clone(),
            leaf_limit: leaf_limit.clone(),
            partition_room: SharedRoom::default(),
            sequencer: shared.sequencer.clone(),
            has_expiry: AtomicBool::new(record.expiry.is_some()),
            is_expiry_noted: AtomicBool::new(false),
            expiry_watch: shared.expiry_watch.clone(),
            name,
            store: store.clone(),
            maintenance: maintenance.clone(),
            languages: views.languages.clone(),
            shared_views: views.clone(),
            used: AtomicU64::new(0),
            views: DatabaseViews::default(),
            shards,
            changing: tokio::sync::Mutex::new(()),
            security: RwLock::new(SecurityObject::new(&record.security)),
            changed: RwLock::new(None),
            written: AtomicBool::new(false),
            is_loaded: AtomicBool::new(false),
            loading: Arc::default(),
            lifecycle: Lifecycle::default(),
            partitioned: record.partitioned,
            epoch: record.epoch,
            uuid,
            record: RwLock::new(record),
            designs_version: AtomicU64::new(0),
            validators_found: Validators::default(),
            rules: OnceLock::new(),
            slow_writes: OnceLock::new(),
            find_indexes: IndexesFound::default(),
            design_cache: DesignCache::default(),
        }
    }

    /// Its name.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Where the contents of attachments are.
    pub(crate) fn homes(&self) -> &Homes {
        &self.homes
    }

    /// The contents of the attachments of a shard's documents; `None` if there is no such shard.
    pub fn contents_of_shard(&self, index: usize) -> Option<&Arc<Contents>> {
        (index < self.shards.len()).then(|| self.homes.of_shard(index))
    }

    /// The contents of a document's attachments.
    pub fn contents_of(&self, id: &str) -> &Arc<Contents> {
        self.homes.of_shard(self.shard_index(id))
    }

    pub(crate) fn attachment_options(&self) -> &RwLock<AttachmentOptions> {
        &self.attachment_options
    }

    pub(crate) fn partition_limit(&self) -> &SharedLimit {
        &self.partition_limit
    }

    pub(crate) fn partition_room(&self) -> &SharedRoom {
        &self.partition_room
    }

    /// Orders writes, if this server is not the only one.
    pub(crate) fn sequencer(&self) -> Option<&Arc<dyn Sequencer>> {
        self.sequencer.get()
    }

    /// Whether this server is one of several, which have one order of writes.
    pub fn has_sequencer(&self) -> bool {
        self.sequencer().is_some()
    }

    /// Waits until all writes that any server acknowledged before this call are applied here.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when that cannot be determined.
    pub async fn fresh(&self) -> Result<(), Error> {
        match self.sequencer() {
            Some(sequencer) => sequencer.fresh(self).await,
            None => Ok(()),
        }
    }

    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    pub(crate) fn store_arc(&self) -> &Arc<Store> {
        &self.store
    }

    pub(crate) fn shared_views(&self) -> &Views {
        &self.shared_views
    }

    pub(crate) fn wake_maintenance(&self) {
        self.maintenance.wake();
    }

    /// Its shards, by their indexes.
    pub fn all_shards(&self) -> &[Arc<Shard>] {
        &self.shards
    }

    pub(crate) fn shard_numbers(&self) -> Vec<ShardNumber> {
        self.shards.iter().map(|s| s.number).collect()
    }

    pub(crate) fn epoch(&self) -> u32 {
        self.epoch
    }

    /// The identity of this database on all servers. It stays the same for the lifetime of the
    /// database; another database of this name has another uuid.
    pub fn uuid(&self) -> DatabaseUuid {
        self.uuid
    }

    /// The rules that this database is under: of those offered, the first that concern it.
    pub(crate) fn rules(&self) -> Option<&Arc<dyn SystemRules>> {
        self.rules.get()
    }

    pub(crate) fn offer_rules(&self, rules: &Arc<dyn SystemRules>) {
        if rules.concerns(&self.name) {
            self.rules.get_or_init(|| rules.clone());
        }
    }

    /// Notifies the rules, if there are any, of a change.
    pub(crate) fn tell_rules(&self) {
        if let Some(rules) = self.rules.get() {
            rules.changed(&self.name);
        }
    }

    /// Whether ids begin with a partition.
    pub fn is_partitioned(&self) -> bool {
        self.partitioned
    }

    /// Whether documents have access sets.
    pub fn has_access(&self) -> bool {
        self.access.is_some()
    }

    pub(crate) fn access(&self) -> Option<&Arc<DatabaseAccess>> {
        self.access.as_ref()
    }

    /// Refuses an id that a partitioned database has no shard for.
    ///
    /// # Errors
    /// Those of the names of partitions.
    pub fn check_partitioned(&self, id: &str) -> Result<(), Error> {
        match self.partitioned {
            true => partition::check_named(id),
            false => Ok(()),
        }
    }

    /// Its current record.
    pub(crate) fn record(&self) -> DatabaseRecord {
        self.record.read().clone()
    }

    /// Its limits on stored revisions and purges.
    pub fn limits(&self) -> Limits {
        let record = self.record.read();
        Limits {
            revs_limit: record.revs_limit,
            purged_infos_limit: record.purged_infos_limit,
            leaves_max: Some(match self.access {
                None => self.leaf_limit.load(Relaxed),
                Some(_) => self.leaf_limit.load(Relaxed).min(ACCESS_LEAVES_MAX),
            }),
        }
    }

    pub(crate) fn live(&self) -> Result<(), Error> {
        self.lifecycle.live()
    }

    /// Returns `found` if the database still exists with these shards. Call it after a read that
    /// found nothing: a shard that is being removed may have lost its rows already.
    pub(crate) fn if_live<T>(&self, found: Result<T, Error>) -> Result<T, Error> {
        self.live().and(found)
    }

    /// Returns the place of all updates so far in the form of feeds: shorter than [`Info::update_seq`],
    /// and so fit for headers.
    pub fn short_update_seq(&self) -> Result<String, Error> {
        self.live()?;
        let at = self.shards.iter().map(|shard| shard.meta().update_seq);
        let seqs = Seqs {
            epoch: self.epoch,
            at: at.collect(),
        };
        Ok(seqs.to_string())
    }

    /// Its counts and sizes now.
    pub fn info(&self) -> Result<Info, Error> {
        self.live()?;
        let record = self.record.read();
        let mut info = Info {
            name: self.name.clone(),
            instance_start_time: record.created_unix_s.to_string(),
            purge_seq: String::new(),
            update_seq: String::new(),
            file_bytes: 0,
            external_bytes: 0,
            active_bytes: 0,
            partitioned: self.partitioned,
            access: self.access.as_ref().map(|access| access.default),
            doc_count: 0,
            doc_del_count: 0,
            compact_running: self.is_compacting(),
            q: self.shards.len() as u32,
            n: self
                .sequencer()
                .map_or(record.n, |sequencer| sequencer.copies()),
        };
        let mut update_seq = Seqs::start(self.epoch, 0);
        let mut purge_seq = Seqs::start(self.epoch, 0);
        let mut young_bytes = 0;
        for shard in &self.shards {
            let (meta, file_bytes) = (shard.meta(), shard.file_bytes());
            info.file_bytes += file_bytes;
            info.external_bytes += meta.external_bytes;
            info.active_bytes += meta.active_part_of(file_bytes);
            young_bytes += meta.active_bytes();
            info.doc_count += meta.doc_count;
            info.doc_del_count += meta.doc_del_count;
            update_seq.at.push(meta.update_seq);
            purge_seq.at.push(meta.purge_seq);
        }
        let contents = self.homes.stored_bytes()?;
        let live_contents = contents.saturating_sub(self.attachment_garbage()?);
        // Young data is in the log and in memory only, which the engine does not attribute to a shard. The counters have the
        // attachments with each leaf that names them, which the contents below are.
        if info.file_bytes == 0 {
            let mut documents = young_bytes.saturating_sub(live_contents);
            if contents > 0 {
                // Several leaves may name one content.
                documents = documents.min(self.store.document_memtable_bytes());
            }
            (info.file_bytes, info.active_bytes) = (documents, documents);
        }
        info.file_bytes += contents;
        info.active_bytes += live_contents;
        info.update_seq = update_seq.to_term();
        info.purge_seq = purge_seq.to_term();
        Ok(info)
    }

    /// Returns once every write acknowledged before is on disk.
    pub async fn ensure_full_commit(&self) -> Result<(), Error> {
        let done = self.store.committer.sync().await;
        Ok(done.map_err(|_| Error::ShuttingDown)??)
    }

    /// Returns which of the revisions of a document are missing; `None` if none is. The result may
    /// have all leaves of the document, so a caller with many documents uses one result at a time.
    ///
    /// # Errors
    /// [`Error::NoDatabase`], those of [`Database::check_partitioned`], and errors of the store.
    pub fn revs_diff(&self, id: &str, revs: &[Rev]) -> Result<Option<RevsDiff>, Error> {
        self.if_live(self.revs_diff_now(id, revs))
    }

    fn revs_diff_now(&self, id: &str, revs: &[Rev]) -> Result<Option<RevsDiff>, Error> {
        self.check_partitioned(id)?;
        let record = self.shard_for(id).record(id)?.unwrap_or_default();
        let missing = record.tree.missing(revs);
        if missing.is_empty() {
            return Ok(None);
        }
        let possible_ancestors = record.tree.possible_ancestors(&missing);
        Ok(Some(RevsDiff {
            missing,
            possible_ancestors,
        }))
    }

    /// Changes value after every commit to this database; closed when it is deleted.
    pub fn watch(&self) -> watch::Receiver<u64> {
        let mut changed = self.changed.write();
        if self.live().is_err() {
            return watch::Sender::new(0).subscribe();
        }
        changed
            .get_or_insert_with(|| watch::Sender::new(0))
            .subscribe()
    }

    /// Changes value whenever a design document changes, before the change is acknowledged.
    pub fn designs_version(&self) -> u64 {
        self.designs_version.load(Acquire)
    }

    /// Changes value after every commit that a feed of this user shows; closed when the database is
    /// deleted.
    pub(crate) fn watch_rows_of(&self, user: &Principals) -> watch::Receiver<u64> {
        self.access_watch.subscribe(user)
    }

    /// Runs the functions of design documents.
    pub fn languages(&self) -> &Arc<dyn Languages> {
        &self.languages
    }

    pub(crate) fn committed(self: &Arc<Self>, written: &storage::ShardCommit<'_>) {
        if written.designs {
            self.designs_version.fetch_add(1, AcqRel);
        }
        self.tell_rules();
        self.note_expiry();
        if let Some(tx) = &*self.changed.read() {
            // Two shards may be at the same seq: the value only has to change.
            tx.send_modify(|v| *v = v.wrapping_add(written.update_seq.max(1)));
        }
        if !written.principals.is_empty() {
            self.access_watch.wake(written.principals);
        }
        if !self.written.swap(true, Relaxed) {
            self.maintenance.note_written(self.name.clone());
        }
        if !self.views.written.swap(true, Relaxed) {
            self.shared_views.indexer.note_written(self.name.clone());
        }
    }

    /// Whether it was written since this was last asked.
    pub(crate) fn take_written(&self) -> bool {
        self.written.swap(false, Relaxed)
    }

    /// Records its use at this tick.
    pub(crate) fn note_used(&self, tick: u64) {
        // Most find it so: the line of memory stays shared.
        if self.used.load(Relaxed) != tick {
            self.used.store(tick, Relaxed);
        }
    }

    pub(crate) fn last_used(&self) -> u64 {
        self.used.load(Relaxed)
    }

    /// About how much memory it takes while it is open, without its indexes, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        let shards = self.shards.iter().map(|s| s.memory_bytes());
        // The record's copy, the text, and what was parsed of it.
        let texts = self.name.len() + 8 * self.security.read().json().len();
        let held = shards.sum::<usize>() + self.homes.memory_bytes();
        let designs = self.design_cache.memory_bytes()
            + self.find_indexes.memory_bytes()
            + self.validators_found.memory_bytes();
        MEMORY_BYTES + texts + held + designs
    }

    /// Saves its counts, so that it is opened again quickly. Blocks.
    pub(crate) fn save_summaries(&self) {
        let worth_it = |shard: &&Arc<Shard>| shard.is_worth_saving();
        let shards: Vec<_> = self.shards.iter().filter(worth_it).cloned().collect();
        if !shards.is_empty() {
            // Unsaved, it is replayed.
            let _ = futures_executor::block_on(self.store.committer.save(shards));
        }
    }

    /// Whether no other references to its parts exist, so that it can be opened again while this
    /// one is dropped. The caller has the only reference to it.
    pub(crate) fn is_idle(&mut self) -> bool {
        let is_live = self.live().is_ok();
        let watched = self.changed.get_mut().as_ref();
        if !is_live
            || self.rules.get().is_some()
            || watched.is_some_and(|tx| tx.receiver_count() > 0)
        {
            return false;
        }
        let Some(indexes) = self.views.idle_indexes() else {
            return false;
        };
        // The shards are held by this, by the contents of attachments that are under them, and by each index.
        let of_contents = |i| usize::from(self.homes.has(i));
        let mut held = self.shards.iter().enumerate();
        self.homes.are_idle()
            && held.all(|(i, s)| Arc::strong_count(s) == 1 + of_contents(i) + indexes)
    }

    pub(crate) fn mark_deleted(&self) {
        self.maintenance
            .note_kept(&self.name, RetainedData::default());
        self.end(DELETED);
        self.note_expiry();
    }

    /// Marks the database as replaced by one with other shards: its operations fail from now on.
    pub(crate) fn mark_replaced(&self) {
        self.end(REPLACED);
    }

    fn end(&self, how: u8) {
        let mut changed = self.changed.write();
        self.lifecycle.end(how);
        changed.take();
        self.access_watch.close();
    }
}
