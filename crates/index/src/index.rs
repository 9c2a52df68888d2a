//! An open index: what readers see of it, how large it is, and who brings it up to date.

use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};

use functions::{Languages, Owner};
use parking_lot::Mutex;
use storage::{ChangeIter, Keyspace, Shard, ShardNumber, Signature, Snapshot, Store};

use crate::Error;
use crate::blocks::Blocks;
use crate::build::{Build, BuildLimits};
use crate::map::MapCounts;
use crate::memory::BuildMemory;
use crate::omissions::Omissions;
use crate::read::IndexView;
use crate::reduce::SharedReduceLimit;
use crate::reducer::Reducers;
use crate::row_cache::RowCache;
use crate::spec::Spec;
use crate::state::State;

/// Changes up to this many are mapped by one thread.
const ONE_THREAD_CHANGES_MAX: u64 = 512;

/// Progress of a build. All zero when none runs.
#[derive(Debug, Default)]
pub struct Progress {
    /// A build is under way.
    pub running: AtomicBool,
    /// Number of changes processed, and to process.
    pub done: AtomicU64,
    /// Number of changes to process.
    pub total: AtomicU64,
    /// In seconds since 1970.
    pub started_unix_s: AtomicU64,
}

/// Sizes and counts of an index.
#[derive(Clone, Copy, Debug, Default)]
pub struct IndexInfo {
    /// Seq of the shard up to which it is built.
    pub indexed_seq: u64,
    /// Purge seq of the shard up to which it is built.
    pub purge_seq: u64,
    /// Bytes of files.
    pub file_bytes: u64,
    /// Bytes of keys and values as JSON text.
    pub external_bytes: u64,
    /// Bytes of live rows before compression.
    pub active_bytes: u64,
    /// Number of rows in all views.
    pub rows: u64,
    /// A build is under way.
    pub building: bool,
}

/// The state that readers see.
pub(crate) struct PublishedState {
    pub(crate) state: Arc<State>,
    /// While files are added: the rows that agree with `state`.
    pub(crate) stable: Option<Arc<Snapshot>>,
    /// The stored index may be ahead of `state`: a started write is not published yet, or the index
    /// is closed and perhaps dropped.
    pub(crate) may_be_ahead: bool,
}

/// The views of one design document over one shard.
pub struct Index {
    /// Its number in the store.
    pub number: ShardNumber,
    /// Signature of the specification.
    pub signature: Signature,
    pub(crate) owner: Arc<Shard>,
    pub(crate) store: Arc<Store>,
    pub(crate) spec: Arc<Spec>,
    pub(crate) label: Owner,
    languages: Arc<dyn Languages>,
    pub(crate) reducers: Arc<Reducers>,
    pub(crate) limits: BuildLimits,
    pub(crate) memory: Arc<BuildMemory>,
    row_cache: Arc<RowCache>,
    pub(crate) published: Mutex<PublishedState>,
    /// Held by the thread that writes the index.
    pub(crate) writer: Mutex<()>,
    /// Set when a running update is to end: nothing more is written.
    pub(crate) stop: AtomicBool,
    /// Set when the index is dropped or the server stops: `stop` stays set.
    is_closed: AtomicBool,
    /// Progress of a build.
    pub progress: Progress,
    /// Counts of the mapped documents.
    pub map_counts: MapCounts,
}

impl Index {
    /// Returns the owner of the functions that it runs.
    #[must_use]
    pub fn label(&self) -> &Owner {
        &self.label
    }

    /// Opens an index whose number is in the catalogue. `label` names the functions' owner.
    pub fn open(
        store: Arc<Store>,
        owner: Arc<Shard>,
        number: ShardNumber,
        spec: Arc<Spec>,
        languages: Arc<dyn Languages>,
        limit: impl Into<SharedReduceLimit>,
        label: Owner,
    ) -> Result<Index, Error> {
        let engine = store.engine();
        let state = match State::load(&engine.snapshot(), number, &spec)? {
            Some(state) if !state.ingesting => state,
            Some(state) => {
                tracing::warn!(index = %label, "a crash interrupted the index's first build: it starts over");
                let empty = State {
                    version: state.version,
                    ..State::empty(&spec)
                };
                wipe(&store, number, empty)?
            }
            None => State::empty(&spec),
        };
        let limit_of = |name: &str| languages.limit(&spec.language, name);
        let state = match state.omissions.may_come_in(limit_of) {
            false => state,
            true => {
                tracing::info!(index = %label, "a limit is higher: the index starts over, for the documents that it left out");
                let empty = State {
                    version: state.version,
                    ..State::empty(&spec)
                };
                wipe(&store, number, empty)?
            }
        };
        Ok(Index {
            number,
            signature: spec.signature(),
            owner,
            reducers: Arc::new(Reducers::new(
                spec.clone(),
                languages.clone(),
                limit,
                &label,
            )),
            store,
            map_counts: MapCounts::new(spec.mapped()),
            spec,
            label,
            languages,
            limits: BuildLimits::default(),
            memory: Arc::new(BuildMemory::new(usize::MAX)),
            published: Mutex::new(PublishedState {
                state: Arc::new(state),
                stable: None,
                may_be_ahead: false,
            }),
            row_cache: Arc::new(RowCache::new(0)),
            writer: Mutex::default(),
            stop: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
            progress: Progress::default(),
        })
    }

    /// Returns the index with other limits of its builds.
    pub fn with_limits(self, limits: BuildLimits) -> Index {
        Index { limits, ..self }
    }

    /// Returns the same index, whose builds share memory with those of others.
    pub fn with_memory(self, memory: Arc<BuildMemory>) -> Index {
        Index { memory, ..self }
    }

    /// Returns the same index, whose rows are kept in memory with those of others.
    pub fn with_row_cache(self, row_cache: Arc<RowCache>) -> Index {
        Index { row_cache, ..self }
    }

    /// Returns the specification.
    pub fn spec(&self) -> &Arc<Spec> {
        &self.spec
    }

    /// Returns the seq of the shard up to which it is built.
    pub fn indexed_seq(&self) -> u64 {
        self.published.lock().state.indexed_seq
    }

    /// Returns the seq and the purge seq of the shard up to which it is built.
    pub fn progress_seqs(&self) -> (u64, u64) {
        let state = &self.published.lock().state;
        (state.indexed_seq, state.purge_seq)
    }

    /// Returns the current state of the index.
    pub fn view(&self) -> Result<IndexView, Error> {
        loop {
            let published = self.published.lock();
            let state = published.state.clone();
            let snapshot = match &published.stable {
                Some(s) => s.clone(),
                None => Arc::new(self.store.engine().snapshot()),
            };
            // The writer publishes right after its write; between the two the snapshot may be
            // ahead.
            let stored = match published.stable.is_none() && published.may_be_ahead {
                true => State::stored_version(&snapshot, self.number)?,
                false => state.version,
            };
            drop(published);
            if stored == state.version {
                return Ok(IndexView {
                    number: self.number,
                    spec: self.spec.clone(),
                    reducers: self.reducers.clone(),
                    snapshot,
                    state,
                    row_cache: self.row_cache.clone(),
                    part: None,
                });
            }
            if self.is_closed.load(SeqCst) {
                return Err(Error::Dropped);
            }
            match self.writer.try_lock() {
                Some(_writer) => self.recover()?,
                None => std::thread::yield_now(),
            }
        }
    }

    /// Returns the number of documents that it lacks, because a map function exceeded a limit for
    /// them; at most 1,000.
    ///
    /// # Errors
    /// Those of the store.
    pub fn left_out(&self) -> Result<u64, Error> {
        let mut omissions = self.published.lock().state.omissions.clone();
        let snapshot = self.store.engine().snapshot();
        let changed = self.changed_since(&snapshot, &omissions)?;
        omissions.forget(&changed);
        Ok(omissions.count())
    }

    /// Returns the limit of time that the functions exceeded for a document that it lacks, or lacked.
    pub fn exceeded_time(&self) -> Option<functions::Error> {
        self.published.lock().state.omissions.exceeded_time()
    }

    /// Returns whether its functions get design documents too.
    pub fn includes_design(&self) -> bool {
        self.spec.include_design
    }

    /// Returns the seqs of changes that were followed by others of the same documents.
    pub(crate) fn changed_since(
        &self,
        snapshot: &Snapshot,
        omissions: &Omissions,
    ) -> Result<Vec<u64>, Error> {
        let mut changed = vec![];
        for seq in omissions.seqs() {
            let it = ChangeIter::new(snapshot, self.owner.number, seq.saturating_sub(1), false);
            if it.entry().is_none_or(|(next, _)| next != seq) {
                changed.push(seq);
            }
            it.status()?;
        }
        Ok(changed)
    }

    /// Its sizes and counts now.
    pub fn info(&self) -> IndexInfo {
        let state = self.published.lock().state.clone();
        let rows = state.views.iter().map(|b| b.rows()).sum();
        IndexInfo {
            indexed_seq: state.indexed_seq,
            purge_seq: state.purge_seq,
            file_bytes: self.store.engine().file_bytes(self.number),
            external_bytes: state.bytes,
            active_bytes: state.bytes + rows * ROW_OVERHEAD_BYTES,
            rows,
            building: self.progress.running.load(Relaxed),
        }
    }

    /// Ends a build under way and refuses new ones; returns when nothing more is written.
    pub fn close(&self) {
        self.ask_to_stop();
        let _writer = self.writer.lock();
        self.begin_write();
    }

    /// Stops a running build, and refuses new ones.
    pub fn ask_to_stop(&self) {
        self.is_closed.store(true, SeqCst);
        self.stop.store(true, SeqCst);
    }

    /// Stops a running build, and refuses new ones until [`Index::resume`].
    pub fn pause(&self) {
        self.stop.store(true, SeqCst);
    }

    /// Returns whether it was dropped, or the server stops: its builds are never resumed.
    pub fn is_closed(&self) -> bool {
        self.is_closed.load(SeqCst)
    }

    /// Returns whether its builds are stopped until [`Index::resume`].
    pub fn is_paused(&self) -> bool {
        self.stop.load(SeqCst) && !self.is_closed.load(SeqCst)
    }

    /// Allows builds again after [`Index::pause`].
    pub fn resume(&self) {
        if self.is_paused() {
            self.stop.store(false, SeqCst);
            // Another thread may have closed the index since.
            self.stop.fetch_or(self.is_closed.load(SeqCst), SeqCst);
        }
    }

    /// About how much memory it takes while it is open, in bytes.
    pub fn memory_bytes(&self) -> usize {
        let blocks = |state: &State| state.views.iter().map(Blocks::memory_bytes).sum::<usize>();
        size_of::<Index>() + MEMORY_BESIDE_BYTES + blocks(&self.published.lock().state)
    }

    /// Applies all changes of the shard to the index, and returns the seq. Blocks until done.
    pub fn update(&self) -> Result<u64, Error> {
        let _writer = self.writer.lock();
        self.check_stop()?;
        self.recover()?;
        let view = self.owner.view()?;
        let state = self.published.lock().state.clone();
        let target = view.meta.update_seq;
        if state.indexed_seq >= target && state.purge_seq >= view.meta.purge_seq {
            return Ok(state.indexed_seq);
        }
        let changes = self.owner.count_after(state.indexed_seq)?;
        let _running = self.progress.start(changes);
        let mut build = Build::new(self, (*state).clone());
        build.is_small = changes <= ONE_THREAD_CHANGES_MAX;
        let threads = match build.is_small {
            true => 1,
            false => std::thread::available_parallelism().map_or(1, |n| n.get()),
        };
        let group = self.spec.map_group(self.label.clone());
        let mappers = (0..threads).map(|_| self.languages.mapper(&group));
        build.run(&view, &mut mappers.collect::<Result<Vec<_>, _>>()?)?;
        Ok(self.indexed_seq())
    }

    /// After a write that failed. It may have been stored in spite of the error: its state is taken
    /// from there. After files that could not be added none of them is to be trusted. The caller
    /// holds `writer`.
    pub(crate) fn recover(&self) -> Result<(), Error> {
        let mut published = self.published.lock();
        if published.stable.is_none() && published.may_be_ahead {
            let snapshot = self.store.engine().snapshot();
            if State::stored_version(&snapshot, self.number)? != published.state.version {
                let state = State::load(&snapshot, self.number, &self.spec)?;
                published.state = Arc::new(state.unwrap_or_else(|| State::empty(&self.spec)));
            }
            published.may_be_ahead = false;
        }
        let state = published.state.clone();
        drop(published);
        if !state.ingesting {
            return Ok(());
        }
        let empty = State {
            version: state.version,
            ..State::empty(&self.spec)
        };
        self.begin_write();
        let state = wipe(&self.store, self.number, empty)?;
        self.publish(state, None);
        Ok(())
    }

    /// Until the next write is published, the stored index may be ahead of the published one:
    /// readers check there.
    pub fn begin_write(&self) {
        self.published.lock().may_be_ahead = true;
    }

    /// Makes the written state visible to readers.
    pub(crate) fn publish(&self, state: State, stable: Option<Arc<Snapshot>>) {
        *self.published.lock() = PublishedState {
            state: Arc::new(state),
            stable,
            may_be_ahead: false,
        };
    }

    pub(crate) fn check_stop(&self) -> Result<(), Error> {
        if self.stop.load(Relaxed) {
            return Err(Error::Stopped);
        }
        Ok(())
    }
}

/// Memory of an open index besides its own members and its blocks (reducers and other allocations),
/// in bytes.
const MEMORY_BESIDE_BYTES: usize = 1 << 10;

/// Bytes that a row takes beyond its key and value, before compression: its place, lengths and its
/// part of the back-index.
const ROW_OVERHEAD_BYTES: u64 = 48;

/// A running build, until dropped.
pub struct BuildGuard<'a>(&'a Progress);

impl Progress {
    /// Starts a build with this number of changes to process.
    pub fn start(&self, total: u64) -> BuildGuard<'_> {
        let now = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0, |d| d.as_secs());
        self.done.store(0, Relaxed);
        self.total.store(total, Relaxed);
        self.started_unix_s.store(now, Relaxed);
        self.running.store(true, Relaxed);
        BuildGuard(self)
    }
}

impl Drop for BuildGuard<'_> {
    fn drop(&mut self) {
        self.0.running.store(false, Relaxed);
    }
}

/// Removes all rows of an index and stores `state` in their place.
pub(crate) fn wipe(store: &Store, number: ShardNumber, mut state: State) -> Result<State, Error> {
    let mut batch = store.engine().writes();
    for k in [
        Keyspace::IndexRows,
        Keyspace::IndexBack,
        Keyspace::IndexBlocks,
    ] {
        batch.delete_all(k, number);
    }
    state.save(number, &mut batch);
    batch.commit(false)?;
    Ok(state)
}
