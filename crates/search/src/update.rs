//! How documents come in and go, and when segments are merged.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use rustc_hash::{FxHashMap, FxHashSet};
use tantivy::index::SegmentId;
use tantivy::indexer::{
    IndexWriterOptions, LogMergePolicy, MergePolicy, NoMergePolicy, UserOperation,
};
use tantivy::schema::Term;
use tantivy::{FutureResult, IndexWriter, TantivyError};

use crate::Error;
use crate::fields::{Analyze, Fields};
use crate::index::{Commit, Index, read_commit};
use crate::left_out::LeftOut;
use crate::schema::Types;
use crate::tokens::id_term;
use crate::verify::damage_of_segments;

/// Less memory than this no writer takes.
pub const MEMORY_BYTES_MIN: usize = 15_000_000;
/// So many segments of about one size become one.
const SEGMENTS_MERGED_MIN: usize = 8;
/// All segments of fewer documents are of one size: so many are written again for a few that are new.
const SMALL_SEGMENT_DOCS: u32 = 1_000;
/// A segment of which more is deleted is written anew.
const DELETED_MAX: f32 = 0.3;
/// So many merges of an index are under way at a time: small ones go on beside a long one.
const MERGES_MAX: usize = 2;
/// A merge of so many documents is a long one: so many of them are under way at a time, of all indexes.
const LONG_MERGE_DOCS: u32 = 50_000;
static LONG_MERGES: Places = Places(AtomicUsize::new(2));
/// So many merges may be in vain: an update failed meanwhile, or took all documents out of one of the segments.
const LOST_MAX: u32 = 8;
/// So many documents may be taken out while merges are under way, which have to be told of each.
const REMOVED_MAX: usize = 100_000;

/// How many more may do something.
struct Places(AtomicUsize);

/// One of them does it.
struct Place(&'static Places);

impl Places {
    fn take(&'static self) -> Option<Place> {
        let less = |places: usize| places.checked_sub(1);
        let taken = self.0.fetch_update(Relaxed, Relaxed, less);
        taken.is_ok().then_some(Place(self))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.0.fetch_add(1, Relaxed);
    }
}

/// What changes an index. While merges are under way the writer stays, for small updates that come meanwhile.
#[derive(Default)]
pub(crate) struct Writing {
    /// Held by an update.
    writer: Mutex<Option<IndexWriter>>,
    merges: Mutex<Vec<Arc<Merge>>>,
    /// Documents that were taken out while merges were under way.
    removed: AtomicUsize,
    /// No file is in the folder that no commit has, and whose name another may get. A process that was killed leaves some, and so does an update that failed.
    is_clean: AtomicBool,
    /// Merges that are in vain and may not have ended: no commit has their files yet, and the last thing that one does may be to commit them.
    lost: AtomicUsize,
}

/// A merge under way.
struct Merge {
    segments: Vec<SegmentId>,
    /// Its writer is gone, and what it makes is nobody's.
    is_in_vain: AtomicBool,
    /// It has ended, or nobody waits for it any more.
    is_over: AtomicBool,
    _place: Option<Place>,
}

/// Says at its end that a merge is over, whatever became of it.
struct MergeGuard<'a>(&'a Merge);

impl Drop for MergeGuard<'_> {
    fn drop(&mut self) {
        self.0.is_over.store(true, Relaxed);
    }
}

impl Writing {
    /// Lets the writer go, unless a merge needs it.
    fn rest(&self, writer: &mut Option<IndexWriter>) {
        if self.merges.lock().is_empty() {
            self.removed.store(0, Relaxed);
            *writer = None;
        }
    }

    /// Waits for merges, and lets the writer go.
    fn wait_for_merges(&self, writer: &mut Option<IndexWriter>) {
        let merges = std::mem::take(&mut *self.merges.lock());
        for merge in merges {
            while !merge.is_over.load(Relaxed) {
                std::thread::sleep(LOOK_FIRST);
            }
        }
        self.rest(writer);
    }

    /// Lets the writer go with all that is in it. Merges under way have been in vain.
    fn give_up(&self, writer: &mut Option<IndexWriter>) {
        for merge in self.merges.lock().drain(..) {
            merge.is_in_vain.store(true, Relaxed);
            self.lost.fetch_add(1, Relaxed);
        }
        if let Some(writer) = writer {
            // A merge that ends in this moment has written most of what it writes before another writer comes.
            writer.garbage_collect_files().wait().ok();
        }
        self.is_clean.store(false, Relaxed);
        self.rest(writer);
    }
}

/// One update under way. Nobody sees anything of it before its commit. Dropped without one, it did not happen.
pub struct Update<'a> {
    index: &'a Index,
    writer: MutexGuard<'a, Option<IndexWriter>>,
    types: Mutex<Types>,
    has_stored: AtomicBool,
    left_out: Mutex<LeftOut>,
    /// Whether there is any, so that others need not wait for each other.
    has_left_out: AtomicBool,
    put_bytes: AtomicU64,
    /// There is nothing yet that a document could replace.
    is_first: bool,
    /// Something was written since the last commit.
    is_dirty: AtomicBool,
    /// Threads of its writer, and their memory.
    threads: usize,
    memory_bytes: usize,
}

impl Index {
    /// Begins an update; waits for another one to end. `memory_bytes`: of all its threads. One that takes more than the least waits for merges too.
    ///
    /// # Errors
    /// Of the files.
    pub fn update(&self, threads: usize, memory_bytes: usize) -> Result<Update<'_>, Error> {
        let mut writer = self.writing.writer.lock();
        let is_long = memory_bytes > MEMORY_BYTES_MIN;
        if is_long || self.writing.removed.load(Relaxed) > REMOVED_MAX {
            self.writing.wait_for_merges(&mut writer);
        }
        // Not by what readers see, who may be behind.
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
        })
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
        // Merges are for when readers have what they wait for.
        writer.set_merge_policy(Box::new(NoMergePolicy));
        // tantivy gives the first thing that a writer does the number of the last commit, and a merge brings in what was taken out up to that: it would
        // bring in what is not committed.
        writer.run(Vec::<UserOperation>::new())?;
        Ok(writer)
    }

    /// Removes files that no commit has, while there is no writer. A new one may give its files the names that they have, since a file of documents that were
    /// taken out has the number of its commit in its name. Segments stay while there are merges in vain.
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
        for entry in std::fs::read_dir(&self.folder)? {
            let name = PathBuf::from(entry?.file_name());
            if name.to_str().is_some_and(is_of_segment) && !kept.contains(&name) {
                match std::fs::remove_file(self.folder.join(name)) {
                    Err(e) if e.kind() != ErrorKind::NotFound => return Err(e.into()),
                    _ => {}
                }
            }
        }
        self.writing.is_clean.store(true, Relaxed);
        Ok(())
    }

    /// Merges segments of which there are too many, while readers and small updates go on; answers how many merges that took. Nothing is done where
    /// enough merges are under way. When it is stopped it does not wait for one under way: what that writes is nobody's then. Whoever stops it does so for
    /// good.
    ///
    /// # Errors
    /// Of the files.
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
                    // Also where no room is left for another update.
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
                // It is stopped.
                None => Ok(()),
            };
            self.writing.rest(&mut writer);
            shown?;
        }
        Ok(merges)
    }

    /// The next merge that there is to do, if there may be one more.
    fn begin_merge(&self, writer: &mut Option<IndexWriter>) -> Result<Option<RunningMerge>, Error> {
        let mut merges = self.writing.merges.lock();
        let Some((segments, place)) = next_merge(self, &merges)? else {
            return Ok(None);
        };
        // What comes of a merge has a checksum of its own, whatever went in.
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

    /// Whether there are segments to merge that somebody may merge now.
    pub fn is_untidy(&self) -> bool {
        let merges = self.writing.merges.lock();
        next_merge(self, &merges).is_ok_and(|next| next.is_some())
    }
}

/// The segment that comes of a merge, unless nothing of it is left.
type Merged = Option<tantivy::SegmentMeta>;
/// A merge, and what is to be waited for.
type RunningMerge = (Arc<Merge>, FutureResult<Merged>);
/// The segments of a merge that is to be done, and a place for it, if it takes long.
type PlannedMerge = (Vec<SegmentId>, Option<Place>);

impl Update<'_> {
    fn writer(&mut self) -> Result<&mut IndexWriter, Error> {
        let gone = || Error::Engine("the writer is gone".to_owned());
        self.writer.as_mut().ok_or_else(gone)
    }

    /// Puts a document in, in place of what there was of it. Several threads may, each with other documents.
    ///
    /// # Errors
    /// A field has values of another type already, or there are too many: nothing has changed then
    /// ([`Error::is_of_document`]). Those of the files.
    pub fn put(
        &self,
        id: &str,
        partition: Option<&str>,
        fields: Fields,
        analyze: &dyn Analyze,
    ) -> Result<(), Error> {
        fields.note_types(&mut self.types.lock())?;
        if fields.has_stored() && !self.has_stored.load(Relaxed) {
            self.has_stored.store(true, Relaxed);
        }
        let (document, bytes) = fields.document(id, partition, &self.index.layout, analyze);
        self.put_bytes.fetch_add(bytes as u64, Relaxed);
        self.remove(id);
        self.note_dirty();
        if let Some(writer) = &*self.writer {
            writer.add_document(document)?;
        }
        Ok(())
    }

    /// Terms and stored fields that were put in since the last commit, in bytes. As many may wait in memory: tantivy bounds how many documents do,
    /// and not their size.
    pub fn put_bytes(&self) -> u64 {
        self.put_bytes.load(Relaxed)
    }

    /// Leaves a document out, and takes out what there was of it. It is counted until it is put in or removed.
    pub fn leave_out(&self, id: &str) {
        self.remove(id);
        self.left_out.lock().insert(id);
        self.has_left_out.store(true, Relaxed);
    }

    /// Takes a document out.
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

    fn note_dirty(&self) {
        if !self.is_dirty.load(Relaxed) {
            self.is_dirty.store(true, Relaxed);
        }
    }

    /// Takes all documents out, and forgets the types of fields. It comes first in an update.
    ///
    /// # Errors
    /// Of the files.
    pub fn clear(&mut self) -> Result<(), Error> {
        // tantivy takes its numbers back to those from before a writer's first commit, so the writer must be a new one.
        self.index.writing.give_up(&mut self.writer);
        let writer = self.index.new_writer(self.threads, self.memory_bytes, 1)?;
        self.note_dirty();
        writer.delete_all_documents()?;
        *self.writer = Some(writer);
        self.types.lock().clear();
        self.has_stored.store(false, Relaxed);
        *self.left_out.lock() = LeftOut::default();
        Ok(())
    }

    /// Makes what came in last, and shows it to readers. It stands for the seq and the purges.
    ///
    /// # Errors
    /// Of the files.
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

    /// Ends it as if it had not been, and removes what it has written.
    ///
    /// # Errors
    /// Of the files.
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
            // The next one would commit what is in it.
            true => writing.give_up(&mut self.writer),
            false => writing.rest(&mut self.writer),
        }
    }
}

/// How often a merge is looked at: soon at first, since most are short.
const LOOK_FIRST: Duration = Duration::from_millis(1);
const LOOK_LAST: Duration = Duration::from_millis(50);

/// What comes of something; `None` when it is stopped before that.
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

/// A merge of segments that are better one and that nobody merges yet. None when there are none, or no place.
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
    // Those of the smallest segments come last.
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
