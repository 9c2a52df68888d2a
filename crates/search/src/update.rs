//! How documents come in and go, and when segments are merged.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tantivy::indexer::{IndexWriterOptions, LogMergePolicy, MergePolicy, NoMergePolicy};
use tantivy::schema::Term;
use tantivy::{IndexWriter, TantivyDocument};

use crate::Error;
use crate::fields::{Analyze, Fields};
use crate::index::{Commit, Index, read_commit};
use crate::schema::Types;
use crate::tokens::id_term;

/// Less memory than this no writer takes.
pub const MEMORY_BYTES_MIN: usize = 15_000_000;
/// So many segments of about one size become one.
const SEGMENTS_MERGED_MIN: usize = 8;
/// All segments of fewer documents are of one size: so many are written again for a few that are new.
const SMALL_SEGMENT_DOCS: u32 = 1_000;
/// A segment of which more is deleted is written anew.
const DELETED_MAX: f32 = 0.3;

/// One update under way. Nobody sees anything of it before its commit. Dropped without one, it did not happen.
pub struct Update<'a> {
    index: &'a Index,
    writer: IndexWriter,
    types: Mutex<Types>,
    has_stored: AtomicBool,
    /// There is nothing yet that a document could replace.
    is_first: bool,
    _writing: MutexGuard<'a, ()>,
}

impl Index {
    /// Begins an update; waits for another one to end. `memory_bytes`: of all its threads.
    ///
    /// # Errors
    /// Of the files.
    pub fn update(&self, threads: usize, memory_bytes: usize) -> Result<Update<'_>, Error> {
        let writing = self.writing.lock();
        let threads = threads.clamp(1, 8);
        let options = IndexWriterOptions::builder()
            .num_worker_threads(threads)
            .memory_budget_per_thread((memory_bytes / threads).max(MEMORY_BYTES_MIN))
            .num_merge_threads(1)
            .build();
        let writer: IndexWriter = self.engine.writer_with_options(options)?;
        // Merges are for when readers have what they wait for.
        writer.set_merge_policy(Box::new(NoMergePolicy));
        // Not by what readers see, who may be behind.
        let commit = read_commit(&self.engine)?;
        Ok(Update {
            index: self,
            writer,
            types: Mutex::new(commit.types.clone()),
            has_stored: AtomicBool::new(commit.has_stored),
            is_first: self.engine.searchable_segment_metas()?.is_empty(),
            _writing: writing,
        })
    }
}

impl Update<'_> {
    /// Puts a document in, in place of what there was of it. Several threads may, each with other documents.
    ///
    /// # Errors
    /// A field has values of another type already, or of the files.
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
        let document: TantivyDocument = fields.document(id, partition, &self.index.layout, analyze);
        self.remove(id);
        self.writer.add_document(document)?;
        Ok(())
    }

    /// Takes a document out.
    pub fn remove(&self, id: &str) {
        if !self.is_first {
            let (field, text) = id_term(id);
            let term = Term::from_field_text(self.index.layout.terms, &format!("{field}\0{text}"));
            self.writer.delete_term(term);
        }
    }

    /// Takes all documents out, and forgets the types of fields.
    ///
    /// # Errors
    /// Of the files.
    pub fn clear(&mut self) -> Result<(), Error> {
        self.writer.delete_all_documents()?;
        self.types.lock().clear();
        self.has_stored.store(false, Relaxed);
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
        };
        let payload = serde_json::to_string(&commit).map_err(|e| Error::Engine(e.to_string()))?;
        let mut prepared = self.writer.prepare_commit()?;
        prepared.set_payload(&payload);
        prepared.commit()?;
        self.is_first = false;
        self.index.publish()
    }

    /// Ends it as if it had not been, and removes what it has written.
    ///
    /// # Errors
    /// Of the files.
    pub fn abandon(mut self) -> Result<(), Error> {
        self.writer.rollback()?;
        self.writer.garbage_collect_files().wait()?;
        Ok(())
    }

    /// Merges segments of which there are too many, while readers go on; answers how many merges that took. When it is stopped it does not wait for
    /// a merge under way: what that writes is nobody's then. Whoever stops it does so for good. When somebody waits, the merges after the one
    /// under way are left for another time.
    ///
    /// # Errors
    /// Of the files.
    pub fn tidy(
        mut self,
        stopped: &dyn Fn() -> bool,
        is_awaited: &dyn Fn() -> bool,
    ) -> Result<u64, Error> {
        let mut merges = 0;
        while let Some(segments) = candidates(self.index)?.pop()
            && !stopped()
        {
            match wait_unless(stopped, self.writer.merge(&segments.0)) {
                Some(merged) => drop(merged?),
                None => return Ok(merges),
            }
            merges += 1;
            self.index.publish()?;
            if is_awaited() {
                break;
            }
        }
        self.writer.garbage_collect_files().wait()?;
        self.writer.wait_merging_threads()?;
        Ok(merges)
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

impl Index {
    /// Whether there are segments to merge.
    pub fn is_untidy(&self) -> bool {
        candidates(self).is_ok_and(|found| !found.is_empty())
    }
}

fn candidates(index: &Index) -> Result<Vec<tantivy::indexer::MergeCandidate>, Error> {
    let mut policy = LogMergePolicy::default();
    policy.set_min_num_segments(SEGMENTS_MERGED_MIN);
    policy.set_min_layer_size(SMALL_SEGMENT_DOCS);
    policy.set_del_docs_ratio_before_merge(DELETED_MAX);
    let segments = index.engine.searchable_segment_metas()?;
    Ok(policy.compute_merge_candidates(&segments))
}
