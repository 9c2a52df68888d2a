//! Views of a database: its indexes, one for each shard and signature, and their updates.

mod clean_up;
mod compaction;
mod design;
mod endless;
mod index_use;
mod indexer;
mod placing;
mod query;
mod row_output;
mod rows;
mod shared_runs;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use data_encoding::HEXLOWER;
use document::DocId;
use functions::{Languages, Owner, Requester};
use index::{BuildMemory, Index, IndexInfo, RowCache, SharedReduceLimit};
use parking_lot::Mutex;
use storage::Signature;
use tokio::sync::watch;

pub use design::{Design, ViewAt};
pub(crate) use index_use::IndexUse;
pub use indexer::KenOptions;
pub(crate) use indexer::{DatabaseIndex, Indexer};
pub use query::{Grouping, Update, ViewQuery};
pub use rows::ViewRows;
pub(crate) use rows::parts_of;
pub(crate) use shared_runs::SharedRuns;

use crate::database::Database;
use crate::expiry;
use crate::find::{FindUses, Scans};
use crate::text::{DatabaseTextIndexes, TextTurns};
use crate::{Error, Read, ReadOptions, counters};

/// State that views of all databases share.
pub struct Views {
    pub languages: Arc<dyn Languages>,
    pub reduce_limit: SharedReduceLimit,
    /// For the rows of builds under way.
    pub build_memory: Arc<BuildMemory>,
    /// For the groups of aggregates under way.
    pub aggregate_memory: Arc<mango::AggregateMemory>,
    /// Rows that are read often.
    pub row_cache: Arc<RowCache>,
    pub(crate) indexer: Indexer,
    pub(crate) scans: Scans,
    /// Which searches run now.
    pub(crate) text_turns: TextTurns,
    /// Which indexes were asked.
    pub(crate) used: IndexUse,
    /// Figures of `_find` queries.
    pub(crate) finds: FindUses,
}

/// The state of the last and of the next update of an index.
#[derive(Clone, Debug, Default)]
pub(crate) struct Updates {
    /// Updates that have ended.
    pub ended: u64,
    pub running: bool,
    /// Requested again while one ran.
    pub again: bool,
    /// Threads that tidy up after an update, or are about to.
    pub tidying: usize,
    /// Why the last one failed.
    pub failure: Option<Error>,
    /// Failures since the last success, and when the last one was.
    pub failures: u32,
    pub failed_at: Option<Instant>,
}

impl Updates {
    /// Whether the background skips an index that failed recently: longer with each failure.
    pub(crate) fn is_backing_off(&self) -> bool {
        let wait = Duration::from_secs(1 << self.failures.min(BACK_OFF_DOUBLINGS_MAX));
        self.failed_at.is_some_and(|t| t.elapsed() < wait)
    }
}

/// The longest pause of the background after failures is two to this power of seconds.
const BACK_OFF_DOUBLINGS_MAX: u32 = 9;

/// The index of one signature over all shards of a database.
pub struct ViewIndex {
    /// The database's name.
    pub database: Arc<str>,
    /// The design document that it was opened for, for people to read.
    pub design: String,
    /// One for each shard of the database, in their order.
    pub shards: Vec<Arc<Index>>,
    /// Memory of the definition, which the shards share.
    spec_bytes: usize,
    pub(crate) updates: watch::Sender<Updates>,
    pub(crate) compacting: AtomicBool,
    waiting: std::sync::atomic::AtomicUsize,
    /// Time of the last use, in the keeper's ticks.
    used: AtomicU64,
    /// Whether a query of its rows since it was opened is noted already.
    is_noted: AtomicBool,
}

/// `GET /{db}/_design/{name}/_info`
#[derive(Clone, Debug, Default)]
pub struct ViewInfo {
    /// In hexadecimal.
    pub signature: String,
    /// The language of the functions.
    pub language: String,
    /// Seqs that the shards' indexes have applied, together.
    pub update_seq: u64,
    /// Purges that they have applied, together.
    pub purge_seq: u64,
    /// Changes that they have not applied yet.
    pub updates_pending: u64,
    /// Bytes of files, estimated by the engine.
    pub file_bytes: u64,
    /// Bytes of keys and values as JSON text.
    pub external_bytes: u64,
    /// Bytes of live rows: before compression, but not more than the files have.
    pub active_bytes: u64,
    /// A build is under way.
    pub updater_running: bool,
    /// A compaction is under way.
    pub compact_running: bool,
    /// Queries that wait for a build.
    pub waiting_clients: usize,
    /// Written to the log, not yet synced.
    pub waiting_commit: bool,
    /// Documents that views leave out because a function exceeded a limit, at most 1,000 a shard.
    pub left_out: u64,
}

/// The views of one database.
#[derive(Default)]
pub(crate) struct DatabaseViews {
    indexes: Mutex<HashMap<Signature, Arc<ViewIndex>>>,
    pub text_indexes: DatabaseTextIndexes,
    /// One opening or cleaning at a time; of text indexes too.
    pub changing: Mutex<bool>,
    /// Requests that open or clean up indexes wait for this without a thread.
    pub opening: Arc<tokio::sync::Mutex<()>>,
    /// Clean-ups of view indexes, and of text indexes.
    pub view_clean_ups: SharedRuns,
    pub text_clean_ups: SharedRuns,
    pub written: AtomicBool,
}

/// Memory of an open index without its shards', in bytes.
const MEMORY_BYTES: usize = size_of::<ViewIndex>() + 256;

impl ViewIndex {
    pub(crate) fn last_used(&self) -> u64 {
        self.used.load(Relaxed)
    }

    /// Identifies it among the indexes of its database; `None` for a database without shards.
    pub(crate) fn signature(&self) -> Option<Signature> {
        self.shards.first().map(|i| i.signature)
    }

    /// About how much memory it takes while it is open, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        let shards = self.shards.iter().map(|i| i.memory_bytes());
        MEMORY_BYTES + self.design.len() + self.spec_bytes + shards.sum::<usize>()
    }

    /// Whether none of its parts are in use. The caller has the only reference to it.
    fn is_idle(&mut self) -> bool {
        self.updates.receiver_count() == 0
            && self.shards.iter_mut().all(|i| Arc::get_mut(i).is_some())
    }

    /// Whether an update runs, or will, that no request waits for.
    fn is_built_ahead(&self) -> bool {
        self.updates.receiver_count() == 0 && self.updates.borrow().running
    }

    /// Stops a running update until the next request. Does not wait for its end.
    fn pause(&self) {
        self.updates.send_if_modified(|u| {
            u.again = false;
            false
        });
        for i in &self.shards {
            i.pause();
        }
    }

    fn hex_signature(&self) -> String {
        self.shards
            .first()
            .map(|i| HEXLOWER.encode(&i.signature))
            .unwrap_or_default()
    }

    fn close(&self) {
        self.ask_to_stop();
        for i in &self.shards {
            i.close();
        }
    }
}

impl ViewIndex {
    /// Logs and counts the documents that an update of a shard left out.
    fn log_left_out(&self, shard: &Index) {
        let Some(left_out) = shard.map_counts.take_left_out() else {
            return;
        };
        counters::VIEW_LEFT_OUT.add(left_out.documents);
        tracing::warn!(
            view = %shard.label().view(left_out.view),
            documents = left_out.documents,
            first = ?left_out.id,
            reason = %left_out.reason,
            "a view leaves documents out"
        );
    }
}

/// Returns whether an update ended because its index was paused. A request may have resumed the index
/// since, and must not get an error for it.
fn was_paused(updated: &Result<u64, index::Error>, index: &Index) -> bool {
    matches!(updated, Err(index::Error::Stopped)) && !index.is_closed()
}

impl DatabaseIndex for ViewIndex {
    fn database(&self) -> &Arc<str> {
        &self.database
    }

    fn design(&self) -> &str {
        &self.design
    }

    fn kind(&self) -> &'static str {
        match self.has_design() {
            true => "indexer",
            false => "expiry_index",
        }
    }

    fn has_design(&self) -> bool {
        self.design != expiry::NAME
    }

    fn updates(&self) -> &watch::Sender<Updates> {
        &self.updates
    }

    fn update(&self) -> Result<(), Error> {
        for i in &self.shards {
            let updated = i.update();
            self.log_left_out(i);
            if was_paused(&updated, i) {
                // Those who wait now request it again.
                return Ok(());
            }
            updated?;
        }
        Ok(())
    }

    fn tidy(&self) -> Result<(), Error> {
        for i in &self.shards {
            i.warm()?;
        }
        Ok(())
    }

    fn ask_to_stop(&self) {
        for i in &self.shards {
            i.ask_to_stop();
        }
    }

    fn resume(&self) {
        for i in &self.shards {
            i.resume();
        }
    }

    fn progress(&self) -> Vec<&index::Progress> {
        self.shards.iter().map(|i| &i.progress).collect()
    }

    fn is_current(&self, db: &Database) -> bool {
        self.shards.iter().zip(db.all_shards()).all(|(i, s)| {
            let meta = s.meta();
            let info = i.progress_seqs();
            info.0 >= meta.update_seq && info.1 >= meta.purge_seq
        })
    }
}

impl DatabaseViews {
    /// The number of open indexes, if none of them are in use; `None` otherwise. The caller has the
    /// only reference to them.
    pub(crate) fn idle_indexes(&mut self) -> Option<usize> {
        let indexes = self.indexes.get_mut();
        let idle = |index: &mut Arc<ViewIndex>| Arc::get_mut(index).is_some_and(ViewIndex::is_idle);
        let views = indexes.values_mut().all(idle).then_some(indexes.len())?;
        Some(views + self.text_indexes.idle_indexes()?)
    }
}

impl Database {
    /// The views of a design document (`_design/name`). Reads it on this thread.
    ///
    /// # Errors
    /// [`Error::Missing`], and [`Error::BadRequest`] for one with too many views.
    pub fn design(&self, id: &str) -> Result<Arc<Design>, Error> {
        self.if_live(self.design_now(id).and_then(Design::within_limits))
    }

    pub(crate) fn design_now(&self, id: &str) -> Result<Arc<Design>, Error> {
        let rev = self.design_head(id)?.rev;
        if let Some(known) = self.design_cache.views.lock().get(id, &rev) {
            return Ok(known);
        }
        let design = Arc::new(self.read_design(id)?);
        let (rev, bytes) = (design.rev.clone(), design.memory_bytes());
        let mut views = self.design_cache.views.lock();
        views.insert(id.to_owned(), rev, design.clone(), bytes);
        Ok(design)
    }

    /// Reads the views of a design document, whether they are known or not.
    pub(crate) fn read_design(&self, id: &str) -> Result<Design, Error> {
        let doc_id = DocId::new(id).map_err(|e| Error::BadRequest(e.to_string()))?;
        let Read::Found(doc) = self.read(&doc_id, &ReadOptions::default())? else {
            return Err(Error::Missing("missing"));
        };
        let mut value = serde_json::from_slice(&doc.json)
            .map_err(|e| Error::Internal(format!("the stored design document {id}: {e}")))?;
        mango::index::keep_definitions(&mut value, &doc.json);
        let design = Design::read(
            id,
            doc.rev,
            &value,
            self.is_partitioned(),
            self.languages().time_zone(),
        );
        Ok(design.for_access(self.has_access()))
    }

    /// The index of a design document's views, opened on a thread for blocking work when it is not yet.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn view_index_async(
        self: &Arc<Self>,
        design: &Arc<Design>,
    ) -> Result<Arc<ViewIndex>, Error> {
        if let Some(known) = self.known_view_index(&design.signature) {
            return Ok(known);
        }
        let turn = self.views.opening.clone().lock_owned().await;
        if let Some(known) = self.known_view_index(&design.signature) {
            return Ok(known);
        }
        let (db, design) = (self.clone(), design.clone());
        let opened = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            db.view_index(&design)
        });
        opened.await.map_err(opening_failed)?
    }

    /// The index, if it is open.
    fn known_view_index(&self, signature: &Signature) -> Option<Arc<ViewIndex>> {
        let known = self.views.indexes.lock().get(signature).cloned()?;
        known.used.store(self.last_used(), Relaxed);
        Some(known)
    }

    /// The index of a design document's views, opened when it is not yet. Blocks then: an index has up
    /// to 1,000 views, and another thread may open or clean up indexes.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn view_index(&self, design: &Design) -> Result<Arc<ViewIndex>, Error> {
        self.lifecycle.explain(self.view_index_now(design))
    }

    fn view_index_now(&self, design: &Design) -> Result<Arc<ViewIndex>, Error> {
        let signature = design.signature;
        let known = || self.known_view_index(&signature);
        if let Some(known) = known() {
            return Ok(known);
        }
        let closed = self.views.changing.lock();
        if *closed {
            return Err(Error::NoDatabase);
        }
        if let Some(known) = known() {
            return Ok(known);
        }
        let shared = self.shared_views();
        let mut shards = vec![];
        for (shard, number) in self
            .all_shards()
            .iter()
            .zip(self.index_numbers(&signature)?)
        {
            let index = Index::open(
                self.store_arc().clone(),
                shard.clone(),
                number,
                design.spec.clone(),
                shared.languages.clone(),
                shared.reduce_limit.clone(),
                self.owner_of(design),
            )?;
            let index = index
                .with_memory(shared.build_memory.clone())
                .with_row_cache(shared.row_cache.clone());
            shards.push(Arc::new(index));
        }
        let index = Arc::new(ViewIndex {
            database: self.name().clone(),
            design: design.id.clone(),
            spec_bytes: design.spec_bytes(),
            shards,
            updates: watch::Sender::new(Updates::default()),
            compacting: AtomicBool::new(false),
            waiting: Default::default(),
            used: AtomicU64::new(self.last_used()),
            is_noted: AtomicBool::new(false),
        });
        self.views.indexes.lock().insert(signature, index.clone());
        Ok(index)
    }

    /// Notes a query of an index's rows.
    pub(crate) fn note_used_index(&self, index: &ViewIndex) {
        // Nearly all find it so: the line of memory stays shared.
        if index.is_noted.load(Relaxed) || index.is_noted.swap(true, Relaxed) {
            return;
        }
        if let Some(signature) = index.signature() {
            self.shared_views().used.note(self.uuid(), signature);
        }
    }

    /// Waits until the index holds everything that the database held at the call. Places of functions
    /// count to the requester.
    pub async fn update_view(
        self: &Arc<Self>,
        index: &Arc<ViewIndex>,
        requester: &Requester,
    ) -> Result<(), Error> {
        index.waiting.fetch_add(1, Relaxed);
        let reached = self.reaches_present(index.clone());
        let waited = self.wait_for_update(index.clone(), requester, reached);
        let waited = waited.await;
        index.waiting.fetch_sub(1, Relaxed);
        waited?;
        self.check_that_functions_end(index).await
    }

    /// Updates an index until it has applied the required seqs.
    pub(crate) async fn wait_for_update(
        self: &Arc<Self>,
        index: Arc<dyn DatabaseIndex>,
        requester: &Requester,
        reached: impl Fn() -> bool,
    ) -> Result<(), Error> {
        let mut seen = index.updates().subscribe();
        while !reached() {
            self.live()?;
            let before = seen.borrow_and_update().ended;
            let indexer = &self.shared_views().indexer;
            indexer.request(index.clone(), requester);
            let ended = seen.wait_for(|u| u.ended > before).await;
            let failure = ended.map_err(|_| Error::ShuttingDown)?.failure.clone();
            if let Some(e) = failure
                && !reached()
            {
                self.live()?;
                return Err(e);
            }
        }
        Ok(())
    }

    /// Waits until the index of expiry times holds everything that the database held at the call. May be dropped.
    ///
    /// # Errors
    /// The update failed.
    pub async fn update_expiry_index(
        self: &Arc<Self>,
        index: &Arc<ViewIndex>,
    ) -> Result<(), Error> {
        let reached = self.reaches_present(index.clone());
        self.wait_for_update(index.clone(), &Requester::Background, reached)
            .await
    }

    /// Returns a function that returns whether the index holds everything that the database holds now.
    fn reaches_present(&self, index: Arc<ViewIndex>) -> impl Fn() -> bool + use<> {
        let metas = self.all_shards().iter().map(|s| s.meta());
        let wanted: Vec<(u64, u64)> = metas.map(|m| (m.update_seq, m.purge_seq)).collect();
        move || {
            let at = index.shards.iter().map(|i| i.progress_seqs());
            at.zip(&wanted).all(|(at, w)| at.0 >= w.0 && at.1 >= w.1)
        }
    }

    /// Whether the index holds everything that the database does.
    pub fn view_is_current(&self, index: &ViewIndex) -> bool {
        index.is_current(self)
    }

    /// Updates the index in the background, for a requester.
    pub fn update_view_later(&self, index: &Arc<ViewIndex>, requester: &Requester) {
        let indexer = &self.shared_views().indexer;
        indexer.request(index.clone(), requester);
    }

    /// Sizes and counts of the index. Blocks.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn view_info(&self, design: &Design, index: &ViewIndex) -> Result<ViewInfo, Error> {
        let mut info = ViewInfo {
            signature: index.hex_signature(),
            language: design.language.clone(),
            compact_running: index.compacting.load(Relaxed),
            waiting_clients: index.waiting.load(Relaxed),
            ..ViewInfo::default()
        };
        for (shard, i) in self.all_shards().iter().zip(&index.shards) {
            let IndexInfo {
                indexed_seq,
                purge_seq,
                file_bytes,
                external_bytes,
                active_bytes,
                building,
                ..
            } = i.info();
            info.update_seq += indexed_seq;
            info.purge_seq += purge_seq;
            let file_bytes = match file_bytes {
                // Young rows are in memory and in the log only.
                0 => active_bytes,
                bytes => bytes,
            };
            info.file_bytes += file_bytes;
            info.external_bytes += external_bytes;
            info.active_bytes += active_bytes.min(file_bytes);
            info.updater_running |= building;
            info.updates_pending += shard.count_after(indexed_seq)?;
            info.waiting_commit |= indexed_seq > 0;
            info.left_out += i.left_out()?;
        }
        Ok(info)
    }

    fn owner_of(&self, design: &Design) -> Owner {
        Owner {
            database: self.name().clone(),
            design: design.id.clone(),
            views: design.names_by_number(),
        }
    }

    /// For each view of a design document, by name: the members of documents that its map function is given (a JSON array of
    /// paths), or why it is given whole documents.
    pub fn view_projections(&self, design: &Design) -> Vec<(String, Result<String, String>)> {
        let group = design.spec.map_group(self.owner_of(design));
        let all = self.shared_views().languages.projections(&group);
        design
            .names()
            .filter_map(|(name, at)| Some((name.to_owned(), all.get(at.view)?.clone())))
            .collect()
    }

    /// The indexes that are open.
    pub(crate) fn open_view_indexes(&self) -> Vec<Arc<ViewIndex>> {
        self.views.indexes.lock().values().cloned().collect()
    }

    /// Closes an index if none of its parts are in use; returns whether it is closed now.
    pub(crate) fn close_idle_index(&self, signature: &Signature) -> bool {
        // It cannot be opened meanwhile: there is one instance of it at a time.
        let Some(_changing) = self.views.changing.try_lock() else {
            return false;
        };
        let mut indexes = self.views.indexes.lock();
        let Some(index) = indexes.get_mut(signature) else {
            return true;
        };
        let idle = Arc::get_mut(index).is_some_and(ViewIndex::is_idle);
        let closed = if idle {
            indexes.remove(signature)
        } else {
            None
        };
        drop(indexes);
        closed.is_some()
    }

    /// Stops all index builds.
    pub(crate) fn ask_views_to_stop(&self) {
        for index in self.open_view_indexes() {
            index.ask_to_stop();
        }
        for index in self.open_text_indexes() {
            index.ask_to_stop();
        }
    }

    /// Ends all index builds; returns when nothing more is written. Blocks.
    pub(crate) fn close_views(&self) {
        self.ask_views_to_stop();
        *self.views.changing.lock() = true;
        for index in self.open_view_indexes() {
            index.close();
        }
        self.close_text_indexes();
    }
}

/// The thread that opened an index panicked.
pub(crate) fn opening_failed(_: tokio::task::JoinError) -> Error {
    Error::Internal("opening an index failed".to_owned())
}

pub(crate) fn wait(
    done: tokio::sync::oneshot::Receiver<Result<(), storage::Error>>,
) -> Result<(), Error> {
    // The committer's answer does not depend on this runtime; a runtime's thread may wait here as
    // well, so no `blocking_recv`.
    let answer = futures_executor::block_on(done);
    Ok(answer.map_err(|_| Error::ShuttingDown)??)
}
