//! Adds and removes documents, and merges segments.

use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use rustc_hash::{FxHashMap, FxHashSet};
use tantivy::directory::Directory as _;
use tantivy::directory::error::DeleteError;
use tantivy::index::SegmentId;
use tantivy::indexer::{
    IndexWriterOptions, LogMergePolicy, MergePolicy, NoMergePolicy, UserOperation,
};
use tantivy::schema::Term;
use tantivy::{FutureResult, IndexWriter, TantivyError};

use crate::Error;
use crate::fields::{Analyze, Encoded, Fields};
use crate::index::{Commit, Index, read_commit};
use crate::omissions::Omissions;
use crate::schema::Types;
use crate::tokens::id_term;
use crate::verify::damage_of_segments;
use crate::write_behind::Hold;

/// tantivy's minimum memory for a writer, in bytes.
pub const MEMORY_BYTES_MIN: usize = 15_000_000;
/// The number of segments of similar size that are merged into one.
const SEGMENTS_MERGED_MIN: usize = 8;
/// Segments of fewer documents than this count as equally large: at most this many documents are
/// rewritten for a few new ones.
const SMALL_SEGMENT_DOCS: u32 = 1_000;
/// A segment with a larger share of deleted documents is rewritten.
const DELETED_MAX: f32 = 0.3;
/// The maximum number of concurrent merges of an index: small ones run alongside a long one.
const MERGES_MAX: usize = 2;
/// A merge of at least this many documents is long. The number of concurrent long merges, over all
/// indexes, is limited too.
const LONG_MERGE_DOCS: u32 = 50_000;
static LONG_MERGES: Places = Places(AtomicUsize::new(2));
/// The maximum number of abandoned merges: an update failed meanwhile, or deleted all documents of
/// one of the segments.
const LOST_MAX: u32 = 8;
/// The maximum number of documents that may be deleted while merges run, since each merge has to
/// apply every deletion.
const REMOVED_MAX: usize = 100_000;

/// A counting semaphore.
struct Places(AtomicUsize);

/// A permit of the semaphore.
struct UpdatePermit(&'static Places);

impl Places {
    fn take(&'static self) -> Option<UpdatePermit> {
        let less = |places: usize| places.checked_sub(1);
        let taken = self.0.fetch_update(Relaxed, Relaxed, less);
        taken.is_ok().then_some(UpdatePermit(self))
    }
}

impl Drop for UpdatePermit {
    fn drop(&mut self) {
        self.0.0.fetch_add(1, Relaxed);
    }
}

/// The writing side of an index. While merges run, the writer is kept for small updates.
#[derive(Default)]
pub(crate) struct WriterState {
    /// Locked by an update.
    writer: Mutex<Option<IndexWriter>>,
    merges: Mutex<Vec<Arc<Merge>>>,
    /// Documents deleted while merges were running.
    removed: AtomicUsize,
    /// The folder has no leftover file whose name a new file may get. A killed process or a failed
    /// update leaves such files.
    is_clean: AtomicBool,
    /// Abandoned merges that may still run: no commit has their files yet, and their last step may
    /// be to commit them.
    lost: AtomicUsize,
}

/// A running merge.
struct Merge {
    segments: Vec<SegmentId>,
    /// Its writer is gone, and its result will be dropped.
    is_in_vain: AtomicBool,
    /// It has ended, or nothing waits for it any more.
    is_over: AtomicBool,
    _place: Option<UpdatePermit>,
}

/// Marks a merge as over when dropped, whatever its result.
struct MergeGuard<'a>(&'a Merge);

impl Drop for MergeGuard<'_> {
    fn drop(&mut self) {
        self.0.is_over.store(true, Relaxed);
    }
}

impl WriterState {
    /// Drops the writer, unless a merge needs it.
    fn rest(&self, writer: &mut Option<IndexWriter>) {
        if self.merges.lock().is_empty() {
            self.removed.store(0, Relaxed);
            *writer = None;
        }
    }

    /// Waits for merges, and drops the writer.
    fn wait_for_merges(&self, writer: &mut Option<IndexWriter>) {
        let merges = std::mem::take(&mut *self.merges.lock());
        for merge in merges {
            while !merge.is_over.load(Relaxed) {
                std::thread::sleep(LOOK_FIRST);
            }
        }
        self.rest(writer);
    }

    /// Drops the writer with everything in it. Running merges are abandoned.
    fn give_up(&self, writer: &mut Option<IndexWriter>) {
        for merge in self.merges.lock().drain(..) {
            merge.is_in_vain.store(true, Relaxed);
            self.lost.fetch_add(1, Relaxed);
        }
        if let Some(writer) = writer {
            // A merge that ends now has written most of its output before the next writer starts.
            writer.garbage_collect_files().wait().ok();
        }
        self.is_clean.store(false, Relaxed);
        self.rest(writer);
    }
}

/// A running update. Readers see nothing of it before its commit. If it is dropped without one, it
/// has no effect.
pub struct Update<'a> {
    index: &'a Index,
    writer: MutexGuard<'a, Option<IndexWriter>>,
    types: Mutex<Types>,
    has_stored: AtomicBool,
    left_out: Mutex<Omissions>,
    /// Whether any document is left out, so that threads need not lock otherwise.
    has_left_out: AtomicBool,
    put_bytes: AtomicU64,
    /// The index is empty, so that no document can replace another.
    is_first: bool,
    /// Something was written since the last commit.
    is_dirty: AtomicBool,
    /// The writer's threads, and their memory in bytes.
    threads: usize,
    memory_bytes: usize,
    /// Keeps its files in memory.
    hold: Option<Hold>,
}

impl Index {
    /// Starts an update; waits for another one to end. `memory_bytes` is for all its threads. An
    /// update with more than the minimum also waits for merges.
    ///
    /// # Errors
    /// The files cannot be read or written.
    pub fn update(&self, threads: usize, memory_bytes: usize) -> Result<Update<'_>, Error> {
        let mut writer = self.writing.writer.lock();
        let is_long = memory_bytes > MEMORY_BYTES_MIN;
        if is_long || self.writing.removed.load(Relaxed) > REMOVED_MAX {
            self.writing.wait_for_merges(&mut writer);
        }
        // Not the readers' state, which may lag.
        let commit = read_commit(&self.engine)?;
        let is_first = self.engine.searchable_segment_metas()?.is_empty();
        if writer.is_none() {
            *writer = Some(self.new_writer(threads, memory_bytes, 1)?);
        }
        Ok(Update {
            index: self,
            writer,
            types: Mutex::new(commit.types.clone()),
            has_stored: AtomicBool::new(commit.has_stored),
            has_left_out: AtomicBool::new(!commit.left_out.is_empty()),
            left_out: Mutex::new(commit.left_out.clone()),
            put_bytes: AtomicU64::new(0),
            is_first,
            is_dirty: AtomicBool::new(false),
            threads,
            memory_bytes,
            hold: None,
        })
    }

    /// Starts a small update, of one thread with the least memory. Readers see its commits, which
    /// are durable after [`Index::flush`]: a crash before returns the index to an earlier commit.
    ///
    /// # Errors
    /// Those of [`Index::update`].
    pub fn update_in_memory(&self) -> Result<Update<'_>, Error> {
        let hold = self.directory.hold();
        let mut update = self.update(1, MEMORY_BYTES_MIN)?;
        update.hold = Some(hold);
        Ok(update)
    }

    fn new_writer(
        &self,
        threads: usize,
        memory_bytes: usize,
        merges: usize,
    ) -> Result<IndexWriter, Error> {
        self.remove_leftovers()?;
        let threads = threads.clamp(1, 8);
        let options = IndexWriterOptions::builder()
            .num_worker_threads(threads)
            .memory_budget_per_thread((memory_bytes / threads).max(MEMORY_BYTES_MIN))
            .num_merge_threads(merges)
            .build();
        let writer: IndexWriter = self.engine.writer_with_options(options)?;
        // Merges run after readers have the update that they wait for.
        writer.set_merge_policy(Box::new(NoMergePolicy));
        // tantivy numbers a writer's first operation like the last commit, and a merge applies
        // deletions up to that number: it would apply an uncommitted one.
        writer.run(Vec::<UserOperation>::new())?;
        Ok(writer)
    }

    /// Removes files that belong to no commit, while there is no writer. A new writer may reuse
    /// their names, since the name of a deletion file contains the number of its commit. Segments
    /// are kept while abandoned merges may run.
    fn remove_leftovers(&self) -> Result<(), Error> {
        if self.writing.is_clean.load(Relaxed) {
            return Ok(());
        }
        let meta = self.engine.load_metas()?;
        let kept = meta.list_segment_files();
        let has_lost = self.writing.lost.load(Relaxed) > 0;
        let is_of_segment = |name: &str| {
            let id = name.split_once('.').map(|(id, _)| id);
            let id = id.and_then(|id| SegmentId::from_uuid_string(id).ok());
            id.is_some_and(|id| !has_lost || meta.segments.iter().any(|s| s.id() == id))
        };
        let mut names = self.directory.held_files();
        for entry in std::fs::read_dir(&self.folder)? {
            names.push(PathBuf::from(entry?.file_name()));
        }
        let is_left =
            |name: &Path| name.to_str().is_some_and(is_of_segment) && !kept.contains(name);
        for name in names.iter().filter(|name| is_left(name)) {
            match self.directory.delete(name) {
                Ok(()) | Err(DeleteError::FileDoesNotExist(_)) => {}
                Err(e) => return Err(Error::Engine(e.to_string())),
            }
        }
        self.writing.is_clean.store(true, Relaxed);
        Ok(())
    }

    /// Merges segments of which there are too many, while readers and small updates continue;
    /// returns the number of merges. Does nothing where enough merges are running. If `stopped`
    /// returns true, it returns without waiting for the running merge, whose result is dropped.
    /// Stopping is permanent.
    ///
    /// # Errors
    /// The files cannot be read or written.
    pub fn tidy(&self, stopped: &dyn Fn() -> bool) -> Result<u64, Error> {
        let (mut merges, mut lost) = (0, 0);
        while !stopped() {
            let mut writer = self.writing.writer.lock();
            let Some((merge, merging)) = self.begin_merge(&mut writer)? else {
                break;
            };
            drop(writer);
            let over = MergeGuard(&merge);
            let merged = wait_unless(stopped, merging);
            drop(over);
            let mut writer = self.writing.writer.lock();
            if merge.is_in_vain.load(Relaxed) {
                if merged.is_some() {
                    self.writing.lost.fetch_sub(1, Relaxed);
                    self.writing.is_clean.store(false, Relaxed);
                    // Also when no memory is left for another update.
                    if writer.is_none() {
                        self.remove_leftovers()?;
                    }
                }
                lost += 1;
                match lost > LOST_MAX {
                    true => break,
                    false => continue,
                }
            }
            let is_other = |other: &Arc<Merge>| !Arc::ptr_eq(other, &merge);
            self.writing.merges.lock().retain(is_other);
            let shown = match merged {
                Some(Ok(_)) => {
                    merges += 1;
                    self.publish()
                }
                Some(Err(TantivyError::InvalidArgument(_))) if lost < LOST_MAX => {
                    lost += 1;
                    Ok(())
                }
                Some(Err(e)) => Err(e.into()),
                // It was stopped.
                None => Ok(()),
            };
            self.writing.rest(&mut writer);
            shown?;
        }
        Ok(merges)
    }

    /// Starts the next pending merge, if one more may run.
    fn begin_merge(&self, writer: &mut Option<IndexWriter>) -> Result<Option<RunningMerge>, Error> {
        let mut merges = self.writing.merges.lock();
        let Some((segments, place)) = next_merge(self, &merges)? else {
            return Ok(None);
        };
        // A merged segment gets a valid checksum even if its inputs were damaged, so check them
        // first.
        if let Some(reason) = damage_of_segments(&self.engine, &segments)? {
            return Err(Error::Engine(reason));
        }
        let writer = match writer {
            Some(writer) => writer,
            None => writer.insert(self.new_writer(1, MEMORY_BYTES_MIN, MERGES_MAX)?),
        };
        let merge = Arc::new(Merge {
            segments,
            is_in_vain: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            _place: place,
        });
        merges.push(merge.clone());
        let merging = writer.merge(&merge.segments);
        Ok(Some((merge, merging)))
    }

    /// Returns whether segments are pending that may be merged now.
    pub fn is_untidy(&self) -> bool {
        let merges = self.writing.merges.lock();
        next_merge(self, &merges).is_ok_and(|next| next.is_some())
    }
}

/// The merged segment, unless nothing is left of it.
type MergedSegment = Option<tantivy::SegmentMeta>;
/// A merge, and the future of its result.
type RunningMerge = (Arc<Merge>, FutureResult<MergedSegment>);
/// The segments to merge, and a permit if the merge is long.
type PlannedMerge = (Vec<SegmentId>, Option<UpdatePermit>);

/// A document that can be added to an update.
pub struct PreparedDocument<'a> {
    id: &'a str,
    encoded: Encoded,
}

impl PreparedDocument<'_> {
    /// Returns about how much memory its terms take until they are written, in bytes.
    pub fn term_bytes(&self) -> usize {
        self.encoded.term_bytes
    }
}

impl Update<'_> {
    fn writer(&mut self) -> Result<&mut IndexWriter, Error> {
        let gone = || Error::Engine("the writer is gone".to_owned());
        self.writer.as_mut().ok_or_else(gone)
    }

    /// Adds a document, replacing its previous version. Several threads may call it, with different
    /// documents.
    ///
    /// # Errors
    /// Those of [`Update::prepare`] and [`Update::add`].
    pub fn put(
        &self,
        id: &str,
        partition: Option<&str>,
        fields: Fields,
        analyze: &dyn Analyze,
    ) -> Result<(), Error> {
        self.add(self.prepare(id, partition, fields, analyze)?)
    }

    /// Encodes a document, and records the types of its fields. Several threads may call it, with
    /// different documents.
    ///
    /// # Errors
    /// A field already has values of another type, there are too many fields, or their names or the
    /// document's terms are too long: nothing has changed then ([`Error::is_of_document`]).
    pub fn prepare<'a>(
        &self,
        id: &'a str,
        partition: Option<&str>,
        mut fields: Fields,
        analyze: &dyn Analyze,
    ) -> Result<PreparedDocument<'a>, Error> {
        let has_stored = fields.has_stored();
        let encoded = fields.encode(id, partition, &self.index.layout, analyze)?;
        fields.note_types(&mut self.types.lock())?;
        if has_stored && !self.has_stored.load(Relaxed) {
            self.has_stored.store(true, Relaxed);
        }
        Ok(PreparedDocument { id, encoded })
    }

    /// Adds a document, replacing its previous version. Several threads may call it, with different
    /// documents.
    ///
    /// # Errors
    /// The files cannot be written.
    pub fn add(&self, prepared: PreparedDocument<'_>) -> Result<(), Error> {
        let PreparedDocument { id, encoded } = prepared;
        self.put_bytes.fetch_add(encoded.bytes as u64, Relaxed);
        self.remove(id);
        self.note_dirty();
        if let Some(writer) = &*self.writer {
            writer.add_document(encoded.document)?;
        }
        Ok(())
    }

    /// Returns the size of terms and stored fields added since the last commit, in bytes. All of
    /// them may be waiting in memory: tantivy limits the number of waiting documents, not their
    /// size.
    pub fn put_bytes(&self) -> u64 {
        self.put_bytes.load(Relaxed)
    }

    /// Leaves a document out, and removes its previous version. It is counted until it is added or
    /// removed.
    pub fn leave_out(&self, id: &str) {
        self.remove(id);
        self.left_out.lock().insert(id);
        self.has_left_out.store(true, Relaxed);
    }

    /// Removes a document.
    pub fn remove(&self, id: &str) {
        if self.has_left_out.load(Relaxed) {
            self.left_out.lock().remove(id);
        }
        if let (false, Some(writer)) = (self.is_first, &*self.writer) {
            self.note_dirty();
            self.index.writing.removed.fetch_add(1, Relaxed);
            let (field, text) = id_term(id);
            let term = Term::from_field_text(self.index.layout.terms, &format!("{field}\0{text}"));
            writer.delete_term(term);
        }
    }

    /// Stops counting documents that were left out, except those that `visit_ids` passes on.
    ///
    /// # Errors
    /// Those of `visit_ids`.
    pub fn retain_left_out<E>(
        &self,
        visit_ids: impl FnOnce(&mut dyn FnMut(&str)) -> Result<(), E>,
    ) -> Result<(), E> {
        if !self.has_left_out.load(Relaxed) {
            return Ok(());
        }
        let known = self.left_out.lock().clone();
        let mut retained = known.without_counted();
        visit_ids(&mut |id| {
            if known.contains(id) {
                retained.insert(id);
            }
        })?;
        *self.left_out.lock() = retained;
        Ok(())
    }

    fn note_dirty(&self) {
        if !self.is_dirty.load(Relaxed) {
            self.is_dirty.store(true, Relaxed);
        }
    }

    /// Removes all documents, and forgets the types of fields. Must be the first operation of an
    /// update.
    ///
    /// # Errors
    /// The files cannot be written.
    pub fn clear(&mut self) -> Result<(), Error> {
        // tantivy resets its numbers to those before a writer's first commit, so the writer must be
        // a new one.
        self.index.writing.give_up(&mut self.writer);
        let writer = self.index.new_writer(self.threads, self.memory_bytes, 1)?;
        self.note_dirty();
        writer.delete_all_documents()?;
        *self.writer = Some(writer);
        self.types.lock().clear();
        self.has_stored.store(false, Relaxed);
        *self.left_out.lock() = Omissions::default();
        Ok(())
    }

    /// Returns whether its commits stay in memory.
    pub fn is_in_memory(&self) -> bool {
        self.hold.is_some()
    }

    /// Makes the update durable, unless it stays in memory, and shows it to readers. `seq` and
    /// `purge_seq` describe the state of the source that it includes.
    ///
    /// # Errors
    /// The files cannot be written.
    pub fn commit(&mut self, seq: u64, purge_seq: u64) -> Result<(), Error> {
        let commit = Commit {
            seq,
            purge_seq,
            types: self.types.lock().clone(),
            has_stored: self.has_stored.load(Relaxed),
            left_out: self.left_out.lock().clone(),
        };
        let payload = serde_json::to_string(&commit).map_err(|e| Error::Engine(e.to_string()))?;
        self.note_dirty();
        let mut prepared = self.writer()?.prepare_commit()?;
        prepared.set_payload(&payload);
        prepared.commit()?;
        *self.is_dirty.get_mut() = false;
        self.is_first = false;
        *self.put_bytes.get_mut() = 0;
        self.index.publish()
    }

    /// Rolls the update back, and removes what it has written.
    ///
    /// # Errors
    /// The files cannot be read or written.
    pub fn abandon(mut self) -> Result<(), Error> {
        if *self.is_dirty.get_mut() {
            self.index.writing.give_up(&mut self.writer);
            self.index.remove_leftovers()?;
            *self.is_dirty.get_mut() = false;
        }
        Ok(())
    }
}

impl Drop for Update<'_> {
    fn drop(&mut self) {
        let writing = &self.index.writing;
        match *self.is_dirty.get_mut() {
            // The next commit would include what it has buffered.
            true => writing.give_up(&mut self.writer),
            false => writing.rest(&mut self.writer),
        }
    }
}

/// The first polling interval of a merge; most are short. It grows.
const LOOK_FIRST: Duration = Duration::from_millis(1);
const LOOK_LAST: Duration = Duration::from_millis(50);

/// Waits for a future; `None` when stopped before.
fn wait_unless<T>(stopped: &dyn Fn() -> bool, work: impl Future<Output = T>) -> Option<T> {
    let mut work = pin!(work);
    let mut pause = LOOK_FIRST;
    loop {
        match work.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(done) => return Some(done),
            Poll::Pending if stopped() => return None,
            Poll::Pending => std::thread::sleep(pause),
        }
        pause = (2 * pause).min(LOOK_LAST);
    }
}

/// Selects segments to merge that no other merge has. `None` without such segments, or when no
/// permit is free.
fn next_merge(index: &Index, merges: &[Arc<Merge>]) -> Result<Option<PlannedMerge>, Error> {
    if merges.len() >= MERGES_MAX {
        return Ok(None);
    }
    let mut policy = LogMergePolicy::default();
    policy.set_min_num_segments(SEGMENTS_MERGED_MIN);
    policy.set_min_layer_size(SMALL_SEGMENT_DOCS);
    policy.set_del_docs_ratio_before_merge(DELETED_MAX);
    let taken: FxHashSet<SegmentId> = merges.iter().flat_map(|m| m.segments.clone()).collect();
    let mut segments = index.engine.searchable_segment_metas()?;
    segments.retain(|segment| !taken.contains(&segment.id()));
    let docs: FxHashMap<SegmentId, u32> = segments.iter().map(|s| (s.id(), s.num_docs())).collect();
    // The smallest segments come last.
    for candidate in policy.compute_merge_candidates(&segments).into_iter().rev() {
        let docs: u32 = candidate.0.iter().filter_map(|id| docs.get(id)).sum();
        if docs < LONG_MERGE_DOCS {
            return Ok(Some((candidate.0, None)));
        }
        if let Some(place) = LONG_MERGES.take() {
            return Ok(Some((candidate.0, Some(place))));
        }
    }
    Ok(None)
}
