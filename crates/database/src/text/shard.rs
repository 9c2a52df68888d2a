//! A text index over one shard, and its updates.
//!
//! The index is in a folder next to the store. **The folder claims only what the store has on disk**:
//! the store's log is synced before a commit is written to it, with the seq that it stands for. So
//! after a crash only changes since that commit are read again. Small updates commit in memory: a
//! search that waits for them waits for no disk. A later update has these commits written, at most
//! once a second, and so has closing the index.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use analysis::FieldAnalyzers;
use functions::{Languages, MapGroup, Mapper, Owner};
use index::{BuildMemory, MapCounts, MapResult, Progress, Reservation, Source};
use parking_lot::{Mutex, RwLock};
use search::{Analyze, Commit, Fields, Index, Update};
use storage::{DiskGuard, Shard, ShardNumber, Store, View};

use super::calls::{classic_fields_of, fields_of};
use super::spec::TextSpec;
use crate::{Error, counters};

/// Changes up to this many are mapped by one thread, and their commit stays in memory.
const ONE_THREAD_CHANGES_MAX: u64 = 512;
/// A long update commits after 100,000 changes, so that a crash loses at most these.
const CHANGES_BETWEEN_COMMITS: u64 = 100_000;
/// And after 128 MiB of terms and stored fields, which wait in memory when functions are faster
/// than the index.
const BYTES_BETWEEN_COMMITS: u64 = 128 << 20;
/// Memory that a long update requests for data not written yet, and the least that any update
/// takes.
const MEMORY_BYTES_WANTED: usize = 64 << 20;
const MEMORY_BYTES_MIN: usize = 15_000_000;
/// A document whose terms take more memory than this is large: one build of the server at a time has
/// such a document in memory.
const LARGE_BYTES: usize = 16 << 20;
/// With more segments than this an index is tidied although readers wait: each update adds one.
const SEGMENTS_MAX: usize = 32;
/// Documents that are compared with the shard's between two checks for a stop.
const COMPARED_MAX: usize = 1024;
/// Least time between two writes of commits that are in memory.
const FLUSH_EVERY: Duration = Duration::from_secs(1);
/// More bytes of them are written immediately.
const UNWRITTEN_BYTES_MAX: usize = 4 << 20;
/// Free space below which nothing is added.
const RESERVE_BYTES: u64 = 64 << 20;

/// A text index over one shard.
pub(crate) struct TextShard {
    pub index: Index,
    owner: Arc<Shard>,
    store: Arc<Store>,
    spec: Arc<TextSpec>,
    analyzers: Arc<FieldAnalyzers>,
    label: Owner,
    languages: Arc<dyn Languages>,
    memory: Arc<BuildMemory>,
    writer: Mutex<()>,
    /// Held by those that merge.
    tidying: RwLock<()>,
    stop: AtomicBool,
    /// When commits in memory were last written.
    flushed: Mutex<Option<Instant>>,
    /// When its files were last compared with their checksums since something failed.
    looked: Mutex<Option<Instant>>,
    is_damaged: AtomicBool,
    pub progress: Progress,
    /// Outcomes of the documents that its function was called with.
    pub map_counts: MapCounts,
    /// Documents that the running update left out.
    left_out: Mutex<Option<LeftOutNow>>,
}

/// The documents that an update left out, to be logged together.
struct LeftOutNow {
    documents: u64,
    /// The first of them.
    id: String,
    reason: String,
}

/// Memory for the large document of an update, until its next commit.
#[derive(Default)]
struct LargeDocument<'a> {
    is_taken: AtomicBool,
    memory: Mutex<Option<Reservation<'a>>>,
}

/// Least time between two comparisons of files with their checksums, whatever fails: each reads all
/// files.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// Parts that the indexes of a database's shards share.
pub(crate) struct TextParts {
    pub store: Arc<Store>,
    pub spec: Arc<TextSpec>,
    pub analyzers: Arc<FieldAnalyzers>,
    pub label: Owner,
    pub languages: Arc<dyn Languages>,
    pub memory: Arc<BuildMemory>,
}

impl TextShard {
    /// Opens an index whose number is in the catalogue.
    pub fn open(
        number: ShardNumber,
        owner: Arc<Shard>,
        parts: &TextParts,
    ) -> Result<TextShard, Error> {
        let index = Index::open(&parts.store.folder(number))?;
        if let Some(reason) = index.damage() {
            tracing::warn!(index = %parts.label, reason, "a text index could not be read: it starts over");
        }
        Ok(TextShard {
            index,
            owner,
            store: parts.store.clone(),
            spec: parts.spec.clone(),
            analyzers: parts.analyzers.clone(),
            label: parts.label.clone(),
            languages: parts.languages.clone(),
            memory: parts.memory.clone(),
            writer: Mutex::default(),
            tidying: RwLock::default(),
            stop: AtomicBool::new(false),
            flushed: Mutex::default(),
            looked: Mutex::default(),
            is_damaged: AtomicBool::new(false),
            progress: Progress::default(),
            map_counts: MapCounts::new(1),
            left_out: Mutex::default(),
        })
    }

    /// Whether its files are known to be damaged: it must be opened again, and is empty then.
    pub fn is_damaged(&self) -> bool {
        self.is_damaged.load(Relaxed)
    }

    /// Compares its files with their checksums, after a failure or panic while reading them, unless
    /// they are being written.
    pub fn look_for_damage(&self) {
        let Some(mut looked) = self.looked.try_lock() else {
            return;
        };
        if self.is_damaged() || looked.is_some_and(|at| at.elapsed() < LOOK_EVERY) {
            return;
        }
        let (Some(_writer), Some(_tidying)) = (self.writer.try_lock(), self.tidying.try_write())
        else {
            return;
        };
        *looked = Some(Instant::now());
        match self.index.look_for_damage() {
            Ok(None) => {}
            Ok(Some(reason)) => {
                tracing::error!(index = %self.label, reason, "a text index is damaged and will be rebuilt");
                self.is_damaged.store(true, Relaxed);
            }
            Err(error) => {
                tracing::warn!(index = %self.label, %error, "files of a text index cannot be compared with their checksums");
            }
        }
    }

    /// Seq and purge seq of the shard that it has applied.
    pub fn progress_seqs(&self) -> (u64, u64) {
        let commit = self.index.commit();
        (commit.seq, commit.purge_seq)
    }

    /// Changes of the shard that it has not applied yet.
    pub fn pending(&self) -> Result<u64, Error> {
        Ok(self.owner.count_after(self.index.commit().seq)?)
    }

    /// Stops a running update.
    pub fn ask_to_stop(&self) {
        self.stop.store(true, Relaxed);
    }

    /// Ends an update under way and refuses new ones; returns when nothing more is written.
    pub fn close(&self) {
        self.ask_to_stop();
        drop((self.writer.lock(), self.tidying.write()));
        self.flush_or_log();
    }

    /// Writes what is in memory only, unless its files are damaged. If that fails, it is built again
    /// from the documents when it is opened.
    pub fn flush_or_log(&self) {
        if self.is_damaged() {
            return;
        }
        if let Err(error) = self.flush() {
            tracing::debug!(%error, index = %self.label, "the last changes of a text index are not written");
        }
    }

    /// Whether commits are in memory only.
    pub fn has_unwritten(&self) -> bool {
        !self.is_damaged() && self.index.has_unwritten()
    }

    /// Writes the commits that are in memory only. Blocks.
    fn flush(&self) -> Result<(), Error> {
        if !self.index.has_unwritten() {
            return Ok(());
        }
        *self.flushed.lock() = Some(Instant::now());
        self.index.flush(|| self.sync_store())
    }

    fn flush_if_due(&self) -> Result<(), Error> {
        let flushed = *self.flushed.lock();
        let is_recent = flushed.is_some_and(|at| at.elapsed() < FLUSH_EVERY);
        match is_recent && self.index.unwritten_bytes() <= UNWRITTEN_BYTES_MAX {
            true => Ok(()),
            false => self.flush(),
        }
    }

    /// Waits until everything that was written to the store so far is on disk.
    fn sync_store(&self) -> Result<(), Error> {
        // A runtime's thread may wait here as well, so no `blocking_recv`.
        let synced = futures_executor::block_on(self.store.committer.sync());
        Ok(synced.map_err(|_| Error::ShuttingDown)??)
    }

    pub fn memory_bytes(&self) -> usize {
        size_of::<TextShard>() + self.index.memory_bytes()
    }

    fn check_stop(&self) -> Result<(), Error> {
        match self.stop.load(Relaxed) {
            true => Err(Error::ShuttingDown),
            false => Ok(()),
        }
    }

    /// Applies all changes of the shard to the index. Blocks until done.
    ///
    /// # Errors
    /// [`Error::ShuttingDown`] when it was stopped, which is not a failure; others are counted.
    pub fn update(&self) -> Result<(), Error> {
        let result = self.update_now();
        let failed = matches!(&result, Err(e) if !matches!(e, Error::ShuttingDown));
        counters::TEXT_UPDATE_FAILURES.add(u64::from(failed));
        result
    }

    fn update_now(&self) -> Result<(), Error> {
        let _writer = self.writer.lock();
        self.check_stop()?;
        let view = self.owner.view()?;
        let (target, purges) = (view.meta.update_seq, view.meta.purge_seq);
        let mut commit = (*self.index.commit()).clone();
        // A store that lost its last writes may have other documents under those seqs.
        let is_ahead = commit.seq > target || commit.purge_seq > purges;
        // An empty index has no purged documents.
        if commit.seq == 0 && !is_ahead {
            commit.purge_seq = purges;
        }
        if commit.seq >= target && commit.purge_seq >= purges && !is_ahead {
            return Ok(());
        }
        let changes = self
            .owner
            .count_after(if is_ahead { 0 } else { commit.seq })?;
        let _running = self.progress.start(changes);
        let began = Instant::now();
        let mut waited = Duration::ZERO;
        let result = self.update_by(&view, changes, commit, is_ahead, &mut waited);
        counters::TEXT_UPDATE_TIMES.record(began.elapsed() - waited);
        result
    }

    /// Applies at most this number of changes, after those of the last commit, or from the start if
    /// the index `is_ahead` of the shard. Returns how long it `waited` for memory of other builds.
    fn update_by(
        &self,
        view: &View,
        changes: u64,
        mut commit: Commit,
        is_ahead: bool,
        waited: &mut Duration,
    ) -> Result<(), Error> {
        let purges = view.meta.purge_seq;
        let is_small = changes <= ONE_THREAD_CHANGES_MAX;
        let mut mappers = self.mappers(is_small)?;
        let asked = Instant::now();
        let taken = match is_small {
            true => None,
            false => Some(self.memory.take(MEMORY_BYTES_WANTED, &self.stop)),
        };
        *waited = asked.elapsed();
        let taken = taken.transpose()?;
        let memory = taken.as_ref().map_or(MEMORY_BYTES_MIN, |taken| taken.bytes);
        let mut guard = DiskGuard::new(self.store.engine().path(), RESERVE_BYTES);
        guard.admit(self.store.engine(), memory as u64)?;
        let mut update = self.begin(is_small, memory)?;
        if is_ahead {
            tracing::warn!(index = %self.label, "a text index does not fit its shard any more: it starts over");
            update.clear()?;
            commit.seq = 0;
        } else {
            self.purge(view, commit.purge_seq, &update)?;
        }
        let source = Source::new(&self.owner, view, commit.seq);
        let mut go_through = || {
            while !source.is_exhausted() {
                guard.admit(self.store.engine(), memory as u64)?;
                let large = LargeDocument::default();
                self.map(&source, &mut mappers, &update, &large)?;
                self.check_stop()?;
                self.commit(&mut update, source.handed_out.load(Relaxed), purges)?;
                drop(large);
            }
            Ok(())
        };
        let mut result = go_through();
        self.log_left_out();
        // tantivy does not return the reason of every failure.
        if let Err(Error::Text(search::Error::Engine(_))) = &result
            && let Err(full) = self.admit(0, 0)
        {
            result = Err(full);
        }
        // Files of a failed update would stay until an update that succeeds.
        if result.is_err()
            && let Err(error) = update.abandon()
        {
            tracing::warn!(%error, index = %self.label, "files of an update that failed stay");
        }
        result
    }

    /// Starts to write an update with this memory, in bytes.
    fn begin(&self, is_small: bool, memory: usize) -> Result<Update<'_>, Error> {
        if !is_small || self.index.unwritten_bytes() > UNWRITTEN_BYTES_MAX {
            // A long update would stay in memory otherwise, and commits that cannot be written too.
            self.flush()?;
        }
        let update = match is_small {
            true => self.index.update_in_memory(),
            false => self.index.update(1, memory),
        };
        Ok(update?)
    }

    /// How many documents are not in it, though they should be.
    pub fn left_out(&self) -> u64 {
        self.index.commit().left_out.count()
    }

    /// Leaves out a document whose fields the index cannot hold, so that others are found.
    fn leave_out(&self, id: &str, reason: &impl ToString, update: &Update<'_>) {
        update.leave_out(id);
        let mut left_out = self.left_out.lock();
        match &mut *left_out {
            Some(left_out) => left_out.documents += 1,
            None => {
                *left_out = Some(LeftOutNow {
                    documents: 1,
                    id: id.to_owned(),
                    reason: reason.to_string(),
                });
            }
        }
    }

    fn log_left_out(&self) {
        let Some(LeftOutNow {
            documents,
            id,
            reason,
        }) = self.left_out.lock().take()
        else {
            return;
        };
        counters::TEXT_LEFT_OUT.add(documents);
        tracing::warn!(
            index = %self.label,
            documents,
            first = ?id,
            %reason,
            "a text index leaves documents out"
        );
    }

    /// Whether a merge is overdue, so that readers would notice.
    pub fn must_tidy(&self) -> bool {
        self.index.reader().segments() > SEGMENTS_MAX
            || self.index.unwritten_bytes() > UNWRITTEN_BYTES_MAX
    }

    /// Merges the segments of many small updates, and writes what is in memory only, while readers
    /// and updates continue.
    pub fn tidy(&self) -> Result<(), Error> {
        let _tidying = self.tidying.read();
        self.flush_if_due()?;
        if !self.index.is_untidy() {
            return Ok(());
        }
        self.check_stop()?;
        // A merge writes a copy of its input before that is removed.
        self.admit(RESERVE_BYTES, self.index.file_bytes())?;
        let merges = self.index.tidy(&|| self.stop.load(Relaxed))?;
        counters::TEXT_MERGES.add(merges);
        Ok(())
    }

    /// Checks whether there is space for this number of bytes, with the reserve left free.
    fn admit(&self, reserve_bytes: u64, bytes: u64) -> Result<(), Error> {
        let engine = self.store.engine();
        let mut guard = DiskGuard::new(engine.path(), reserve_bytes);
        Ok(guard.admit(engine, bytes)?)
    }

    fn mappers(&self, is_small: bool) -> Result<Vec<Box<dyn Mapper>>, Error> {
        let group = MapGroup {
            language: self.spec.language.clone(),
            maps: vec![self.spec.source.clone()],
            owner: self.label.clone(),
            indexes: self.spec.interface(),
            leaves_out: true,
            ..MapGroup::default()
        };
        let threads = match is_small {
            true => 1,
            false => std::thread::available_parallelism().map_or(1, |n| n.get()),
        };
        let mappers = (0..threads).map(|_| self.languages.mapper(&group));
        Ok(mappers.collect::<Result<Vec<_>, _>>()?)
    }

    fn commit(&self, update: &mut Update<'_>, seq: u64, purge_seq: u64) -> Result<(), Error> {
        if !update.is_in_memory() {
            self.sync_store()?;
        }
        update.commit(seq, purge_seq)?;
        counters::TEXT_COMMITS.count();
        Ok(())
    }

    /// Takes out documents that were purged altogether.
    fn purge(&self, view: &View, after: u64, update: &Update<'_>) -> Result<(), Error> {
        if view.meta.purge_seq <= after {
            return Ok(());
        }
        if view.meta.purge_floor > after {
            return self.remove_missing(view, update);
        }
        let mut removed = BTreeSet::new();
        let mut next = Some(after + 1);
        while let Some(from) = next {
            self.check_stop()?;
            let (ids, following) = storage::read_purged_ids(&self.owner, view, from)?;
            next = following;
            for id in ids {
                if !removed.contains(&id) && view.record(&self.owner, &id)?.is_none() {
                    update.remove(&id);
                    removed.insert(id);
                }
            }
        }
        Ok(())
    }

    /// Removes the documents that the shard no longer has, after more purges than it remembers.
    ///
    /// The index does not start over: where purges are frequent, it would again and again, since
    /// there are more of them during a long build than are remembered.
    fn remove_missing(&self, view: &View, update: &Update<'_>) -> Result<(), Error> {
        tracing::info!(index = %self.label, "more purges than are kept: the text index is compared with the documents");
        let mut compared = 0usize;
        let mut check_stop = || {
            compared += 1;
            match compared.is_multiple_of(COMPARED_MAX) {
                true => self.check_stop(),
                false => Ok(()),
            }
        };
        self.index.reader().visit_ids(|id| {
            check_stop()?;
            if view.record_value(&self.owner, id)?.is_none() {
                update.remove(id);
            }
            Ok::<(), Error>(())
        })?;
        update.retain_left_out(|retain| {
            let mut docs = storage::IdIter::new(&view.snapshot, self.owner.number);
            docs.seek(b"");
            while let Some((id, _)) = docs.entry() {
                check_stop()?;
                retain(&String::from_utf8_lossy(id));
                docs.next();
            }
            Ok(docs.status()?)
        })
    }

    /// Maps changed documents on all mappers, until enough of them are in the update.
    fn map<'a>(
        &'a self,
        source: &Source<'_>,
        mappers: &mut [Box<dyn Mapper>],
        update: &Update<'_>,
        large: &LargeDocument<'a>,
    ) -> Result<(), Error> {
        let end = self.progress.done.load(Relaxed) + CHANGES_BETWEEN_COMMITS;
        let failed = AtomicBool::new(false);
        self.map_counts.begin();
        let run = |mapper: &mut Box<dyn Mapper>| {
            let result = self.map_on_one(source, mapper.as_mut(), update, end, &failed, large);
            if result.is_err() {
                failed.store(true, Relaxed);
            }
            result
        };
        let Some((first, others)) = mappers.split_first_mut() else {
            return Ok(());
        };
        std::thread::scope(|scope| {
            let run = &run;
            let start = |mapper| {
                scope.spawn(move || {
                    telemetry::give_way(telemetry::BACKGROUND_NICE);
                    let _indexes = telemetry::enter(telemetry::State::Index);
                    run(mapper)
                })
            };
            let threads: Vec<_> = others.iter_mut().map(start).collect();
            let mut result = run(first);
            for thread in threads {
                let panicked = || Error::Internal("a thread of an index build panicked".into());
                result = result.and(thread.join().unwrap_or_else(|_| Err(panicked())));
            }
            result
        })
    }

    fn map_on_one<'a>(
        &'a self,
        source: &Source<'_>,
        mapper: &mut dyn Mapper,
        update: &Update<'_>,
        end: u64,
        failed: &AtomicBool,
        large: &LargeDocument<'a>,
    ) -> Result<(), Error> {
        let done = &self.progress.done;
        let go_on = || !self.stop.load(Relaxed) && !failed.load(Relaxed);
        let is_full = || {
            done.load(Relaxed) >= end
                || update.put_bytes() >= BYTES_BETWEEN_COMMITS
                || large.is_taken.load(Relaxed)
        };
        let mapper = (mapper, self.spec.includes_design());
        let (mut puts, mut removals) = (0, 0);
        let counts = (done, &self.map_counts);
        let mapped = index::map_each(
            source,
            mapper,
            &go_on,
            &is_full,
            counts,
            &mut |id, mapped| {
                let fields = match mapped {
                    Some(MapResult {
                        limit: Some(limit), ..
                    }) => {
                        self.leave_out(id, &limit.error, update);
                        return Ok(());
                    }
                    Some(MapResult { rows, emits, .. }) => match self.spec.is_classic() {
                        true => classic_fields_of(rows, emits),
                        false => fields_of(rows, emits),
                    },
                    None => Ok(Fields::new()),
                };
                let put = fields
                    .map_err(Error::from)
                    .and_then(|fields| self.put(id, fields, update, large));
                match put {
                    Ok(true) => puts += 1,
                    Ok(false) => removals += 1,
                    Err(Error::Text(reason)) if reason.is_of_document() => {
                        self.leave_out(id, &reason, update);
                    }
                    Err(e) => return Err(e),
                }
                Ok(())
            },
        );
        counters::TEXT_DOCUMENTS.add(puts);
        counters::TEXT_REMOVALS.add(removals);
        mapped
    }

    /// Adds a document to the update, or removes it if it has no fields; returns whether it was
    /// added.
    fn put<'a>(
        &'a self,
        id: &str,
        fields: Fields,
        update: &Update<'_>,
        large: &LargeDocument<'a>,
    ) -> Result<bool, Error> {
        if fields.is_empty() {
            update.remove(id);
            return Ok(false);
        }
        let analyze = ByField {
            analyzers: &self.analyzers,
            stop: &self.stop,
        };
        let partition = id.split_once(':').map(|(partition, _)| partition);
        let partition = partition.filter(|_| self.spec.partitioned);
        let prepared = update.prepare(id, partition, fields, &analyze)?;
        if prepared.term_bytes() > LARGE_BYTES {
            self.take_large(prepared.term_bytes(), large)?;
        }
        update.add(prepared)?;
        Ok(true)
    }

    /// Waits until no other build has a large document in memory. Further ones of this update need no
    /// more: each is written before the next.
    fn take_large<'a>(&'a self, bytes: usize, large: &LargeDocument<'a>) -> Result<(), Error> {
        let mut memory = large.memory.lock();
        if memory.is_none() {
            *memory = Some(self.memory.take_large(bytes, &self.stop)?);
            large.is_taken.store(true, Relaxed);
        }
        Ok(())
    }
}

/// Texts by the analyzers of their fields.
struct ByField<'a> {
    analyzers: &'a FieldAnalyzers,
    /// Ends the update, also within a long text.
    stop: &'a AtomicBool,
}

impl Analyze for ByField<'_> {
    fn analyze(&self, field: &str, text: &str, token: &mut dyn FnMut(&str, u32)) {
        // A document whose words are incomplete is never committed: a stopped update is abandoned.
        let go_on = || !self.stop.load(Relaxed);
        let analyzer = self.analyzers.of(field);
        analyzer.visit_while(text, &go_on, &mut |t| token(&t.text, t.position));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_update_stops_within_a_long_text() {
        let analyzers = FieldAnalyzers::parse(analysis::Flavour::Clouseau, None).unwrap();
        let stop = AtomicBool::new(false);
        let analyze = ByField {
            analyzers: &analyzers,
            stop: &stop,
        };
        let mut tokens = 0;
        analyze.analyze("field", &"ab ".repeat(100_000), &mut |_, _| {
            tokens += 1;
            stop.store(true, Relaxed);
        });
        assert!((1..50_000).contains(&tokens), "{tokens}");
    }
}
