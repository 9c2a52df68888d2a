//! From changed documents to rows: documents are read in the order of their seqs, and mapped on all
//! cores.
//!
//! `source.rs` hands out changed documents, `work.rs` has them mapped, `rows.rs` makes rows of the
//! emitted keys and values, which `buffer.rs` holds.

mod buffer;
mod rows;
mod source;
mod work;

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};

use functions::{MapFailure, Mapper};
use parking_lot::Mutex;

pub use buffer::{DocRef, RowBuffer, RowRef};
pub use rows::write_key_sort;
pub use source::Source;
pub use work::MapResult;

use crate::Error;
use crate::memory::LargeRows;
use crate::omissions::Omissions;
use crate::spec::Spec;
use work::{MapBuffers, MapOptions, RowSpec, Sink, Watch};

/// A buffer holds less than this many bytes, so that offsets fit.
const BUFFER_BYTES_MAX: usize = 3 << 30;

/// Stop conditions of mapping many documents.
pub(crate) struct Control<'a, 'm> {
    /// Set to stop the mapping.
    pub stopped: &'a AtomicBool,
    /// Set by the first thread that fails.
    pub failed: &'a AtomicBool,
    /// Documents mapped.
    pub done: &'a AtomicU64,
    /// Memory of all buffers, and its limit.
    pub bytes: &'a AtomicUsize,
    pub bytes_max: usize,
    /// Memory for documents whose rows take more than that.
    pub large: Option<&'a LargeRows<'m>>,
    /// Counts of the documents.
    pub counts: &'a MapCounts,
}

impl Control<'_, '_> {
    /// Whether there is a document whose rows are to be written before others are made.
    fn has_large(&self) -> bool {
        self.large.is_some_and(LargeRows::is_taken)
    }
}

/// Counts of the documents passed to map functions since the index was opened.
#[derive(Debug)]
pub struct MapCounts {
    /// Documents that were mapped.
    mapped: AtomicU64,
    /// For how many of them each view's function threw.
    failed: Box<[AtomicU64]>,
    /// Documents that the running update left out, because a function exceeded a limit.
    left_out_now: Mutex<Option<DocumentOmission>>,
    /// The same documents, until the state of the index lists them.
    omissions: Mutex<Omissions>,
    /// Documents for which the functions took too much time, since one for which they did not.
    late: AtomicUsize,
}

/// Documents that an update left out of a view, because a function exceeded a limit for them.
#[derive(Clone, Debug)]
pub struct DocumentOmission {
    /// How many, counted for each view.
    pub documents: u64,
    /// The id of the first.
    pub id: String,
    /// The number of the view that it is left out of.
    pub view: usize,
    /// The limit.
    pub reason: functions::Error,
}

impl MapCounts {
    /// Creates the counts of an index with this number of views.
    #[must_use]
    pub fn new(views: usize) -> MapCounts {
        MapCounts {
            mapped: AtomicU64::new(0),
            failed: (0..views).map(|_| AtomicU64::new(0)).collect(),
            left_out_now: Mutex::default(),
            omissions: Mutex::default(),
            late: AtomicUsize::new(0),
        }
    }

    /// Begins to map: documents for which the functions took too much time before do not count as
    /// documents in a row.
    pub fn begin(&self) {
        self.late.store(0, Relaxed);
    }

    fn views(&self) -> usize {
        self.failed.len().max(1)
    }

    fn note(&self, mapped: usize, failures: &[u64]) {
        self.mapped.fetch_add(mapped as u64, Relaxed);
        for (failed, n) in self.failed.iter().zip(failures) {
            failed.fetch_add(*n, Relaxed);
        }
    }

    fn note_left_out(&self, id: &str, seq: u64, thrown: &MapFailure) {
        self.omissions.lock().note(seq, &thrown.error);
        self.count_left_out(id, thrown);
    }

    /// Records a document that a limit leaves out which is the same in all configurations.
    fn note_left_out_anyway(&self, id: &str, seq: u64, thrown: &MapFailure) {
        self.omissions.lock().insert(seq);
        self.count_left_out(id, thrown);
    }

    fn count_left_out(&self, id: &str, thrown: &MapFailure) {
        match &mut *self.left_out_now.lock() {
            Some(left_out) => left_out.documents += 1,
            empty => {
                *empty = Some(DocumentOmission {
                    documents: 1,
                    id: id.to_owned(),
                    view: thrown.view as usize,
                    reason: thrown.error.clone(),
                });
            }
        }
    }

    /// Returns the documents that were left out since the last call, to be logged together.
    pub fn take_left_out(&self) -> Option<DocumentOmission> {
        self.left_out_now.lock().take()
    }

    /// Returns the documents that were left out since the last call, for the state of the index.
    pub(crate) fn take_omissions(&self) -> Omissions {
        std::mem::take(&mut *self.omissions.lock())
    }

    /// Documents that were mapped.
    pub fn mapped(&self) -> u64 {
        self.mapped.load(Relaxed)
    }

    /// For how many of them a view's function threw.
    pub fn failed(&self, view: usize) -> u64 {
        self.failed
            .get(view)
            .map_or(0, |failed| failed.load(Relaxed))
    }
}

/// Maps pieces of `source` until it is exhausted, memory is full, or it is stopped. `with_deleted`:
/// documents without rows are listed too, for their earlier rows.
pub(crate) fn map_pieces(
    source: &Source<'_>,
    mapper: &mut dyn Mapper,
    spec: &Spec,
    with_deleted: bool,
    control: &Control<'_, '_>,
) -> Result<RowBuffer, Error> {
    let mut out = RowBuffer::default();
    let mut work = MapBuffers::default();
    work.docs_max = source.docs_max.load(Relaxed);
    while !control.stopped.load(Relaxed)
        && !control.failed.load(Relaxed)
        && control.bytes.load(Relaxed) < control.bytes_max
        && !control.has_large()
        && out.bytes.len() < BUFFER_BYTES_MAX
        && work.take(source)?
    {
        let before = out.size();
        // Parts of the piece are counted as they come.
        let counted = Cell::new(0);
        let watch = Watch {
            counts: control.counts,
            go_on: &|| !control.stopped.load(Relaxed) && !control.failed.load(Relaxed),
            has_room: &|bytes: usize| {
                counted.set(counted.get() + bytes);
                control.bytes.fetch_add(bytes, Relaxed) + bytes < control.bytes_max
                    && !control.has_large()
                    && !control.stopped.load(Relaxed)
            },
        };
        let spec = RowSpec {
            spec,
            with_deleted,
            large: control.large,
        };
        let cut = work.map(source, mapper, spec, &mut out, watch)?;
        let more = (out.size() - before).saturating_sub(counted.get());
        control.bytes.fetch_add(more, Relaxed);
        let done = match cut {
            None => work.piece.rows.len(),
            Some(last) => {
                source.cut(last);
                work.piece.rows.partition_point(|(seq, _)| *seq <= last)
            }
        };
        out.end_piece(done);
        control.done.fetch_add(done as u64, Relaxed);
    }
    // Pieces that are too large are cut, which wastes the work of other threads: the next round knows.
    source.docs_max.store(work.docs_max, Relaxed);
    Ok(out)
}

/// Maps pieces of `source` until it is exhausted or stopped, or `is_full` returns true after one,
/// and passes each changed document to `sink` with its emitted rows; deleted ones without, and
/// design documents too unless they are mapped.
///
/// # Errors
/// Errors of the store, of the function, or of the sink.
pub fn map_each<E: From<Error>>(
    source: &Source<'_>,
    (mapper, include_design): (&mut dyn Mapper, bool),
    go_on: &dyn Fn() -> bool,
    is_full: &dyn Fn() -> bool,
    (done, counts): (&AtomicU64, &MapCounts),
    sink: Sink<'_, E>,
) -> Result<(), E> {
    let which = MapOptions {
        include_design,
        ..MapOptions::default()
    };
    let mut work = MapBuffers::default();
    while go_on() && !is_full() && work.take(source)? {
        let watch = Watch {
            counts,
            go_on,
            has_room: &|_: usize| true,
        };
        work.map_to(source, mapper, which, watch, sink)?;
        work.note_rows(0);
        done.fetch_add(work.piece.rows.len() as u64, Relaxed);
    }
    Ok(())
}

/// Maps on this thread and on others, one for each mapper beyond the first; returns the rows of
/// all changes up to [`Source::handed_out`].
pub(crate) fn map_on_all(
    source: &Source<'_>,
    mappers: &mut [Box<dyn Mapper>],
    spec: &Arc<Spec>,
    with_deleted: bool,
    control: &Control<'_, '_>,
) -> Result<Vec<RowBuffer>, Error> {
    control.counts.begin();
    let run = |mapper: &mut Box<dyn Mapper>| {
        let result = map_pieces(source, mapper.as_mut(), spec, with_deleted, control);
        if result.is_err() {
            control.failed.store(true, Relaxed);
        }
        result
    };
    let Some((first, others)) = mappers.split_first_mut() else {
        return Ok(vec![]);
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = others
            .iter_mut()
            .map(|mapper| {
                scope.spawn(|| {
                    telemetry::give_way(telemetry::BACKGROUND_NICE);
                    let _indexes = telemetry::enter(telemetry::State::Index);
                    run(mapper)
                })
            })
            .collect();
        let mut buffers = vec![run(first)];
        for t in threads {
            buffers.push(
                t.join()
                    .unwrap_or_else(|_| Err(Error::Invalid("a map thread panicked".into()))),
            );
        }
        let mut buffers = buffers.into_iter().collect::<Result<Vec<_>, _>>()?;
        let again = source.take_back(&mut buffers);
        control.done.fetch_sub(again as u64, Relaxed);
        let handed_out = source.handed_out.load(Relaxed);
        control.counts.omissions.lock().forget_after(handed_out);
        Ok(buffers)
    })
}
