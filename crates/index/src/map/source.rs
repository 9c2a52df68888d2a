//! Changed documents, read in the order of their seqs by the next free mapper.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use parking_lot::Mutex;
use storage::{Body, ChangeIter, Row, Shard, View};

use super::buffer::RowBuffer;
use crate::Error;

/// Documents of the first piece.
pub(super) const PIECE_DOCS_FIRST: usize = 4;
/// Maximum documents of a piece, and their bytes, approximately.
pub(super) const PIECE_DOCS_MAX: usize = 256;
const PIECE_BYTES_MAX: usize = 1 << 20;
/// Maximum bytes of the ids of a piece, but for the last: each row repeats the id of its document.
const PIECE_ID_BYTES_MAX: usize = 16 << 10;
/// Maximum bytes, approximately, of a piece's bodies that are stored apart from their rows: all of
/// them are in memory at the same time, with their emitted rows.
const PIECE_FAR_BYTES_MAX: usize = 8 << 20;

/// Changed documents of a shard, handed out in pieces; each piece is mapped by the thread that took
/// it.
pub struct Source<'a> {
    pub(super) shard: &'a Shard,
    pub(super) view: &'a View,
    changes: Mutex<Option<ChangeIter<'a>>>,
    /// All changes up to this one were handed out.
    pub handed_out: AtomicU64,
    /// The last mapped change of the first piece that was not mapped to its end.
    cut: AtomicU64,
    /// The number of documents in the next piece of a thread that begins.
    pub(super) docs_max: AtomicUsize,
}

/// No piece was cut short.
const NO_CUT: u64 = u64::MAX;

impl<'a> Source<'a> {
    /// Creates a source of the changes after a seq.
    pub fn new(shard: &'a Shard, view: &'a View, after: u64) -> Source<'a> {
        Source {
            shard,
            view,
            changes: Mutex::new(Some(changes_after(shard, view, after))),
            handed_out: AtomicU64::new(after),
            cut: AtomicU64::new(NO_CUT),
            docs_max: AtomicUsize::new(PIECE_DOCS_FIRST),
        }
    }

    /// Notes that a piece was mapped up to a change, and not to its end.
    pub(super) fn cut(&self, last: u64) {
        self.cut.fetch_min(last, Relaxed);
    }

    /// Takes back all changes after the first piece that was cut short, so that the buffers have the
    /// rows of all changes up to a seq. Returns how many are to be mapped again. No other thread takes
    /// pieces meanwhile.
    pub(crate) fn take_back(&self, buffers: &mut [RowBuffer]) -> usize {
        let last = self.cut.swap(NO_CUT, Relaxed);
        if last == NO_CUT {
            return 0;
        }
        *self.changes.lock() = Some(changes_after(self.shard, self.view, last));
        self.handed_out.store(last, Relaxed);
        buffers.iter_mut().map(|buffer| buffer.keep(last)).sum()
    }

    /// Returns whether all changes were handed out.
    pub fn is_exhausted(&self) -> bool {
        self.changes.lock().is_none()
    }

    /// Moves the next changes into `piece`, of at most `docs_max` documents; returns false at the
    /// end.
    pub(super) fn take(&self, piece: &mut Piece, docs_max: usize) -> Result<bool, Error> {
        piece.clear();
        let mut changes = self.changes.lock();
        let Some(it) = changes.as_mut() else {
            return Ok(false);
        };
        let (mut far_bytes, mut id_bytes) = (0, 0);
        while piece.rows.len() < docs_max
            && id_bytes < PIECE_ID_BYTES_MAX
            && piece.bytes.len() < PIECE_BYTES_MAX
            && far_bytes < PIECE_FAR_BYTES_MAX
        {
            let Some((seq, value)) = it.entry() else {
                it.status()?;
                *changes = None;
                self.handed_out.store(self.view.meta.update_seq, Relaxed);
                return Ok(!piece.rows.is_empty());
            };
            let row = Row::decode(seq, value)?;
            id_bytes += row.id.len();
            if let Body::External { len, .. } = row.body {
                far_bytes += len as usize;
            }
            let start = piece.bytes.len();
            piece.bytes.extend_from_slice(value);
            piece.rows.push((seq, start..piece.bytes.len()));
            self.handed_out.store(seq, Relaxed);
            it.next();
        }
        Ok(true)
    }
}

fn changes_after<'a>(shard: &Shard, view: &'a View, after: u64) -> ChangeIter<'a> {
    ChangeIter::new(&view.snapshot, shard.number, after, false)
}

/// Rows of by-seq, copied.
#[derive(Default)]
pub(super) struct Piece {
    pub bytes: Vec<u8>,
    pub rows: Vec<(u64, Range<usize>)>,
}

impl Piece {
    /// First and last seq.
    pub fn ends(&self) -> (u64, u64) {
        let seq = |row: Option<&(u64, Range<usize>)>| row.map_or(0, |row| row.0);
        (seq(self.rows.first()), seq(self.rows.last()))
    }

    /// Returns a part of it that was read as text before: an id.
    pub fn text(&self, range: &Range<usize>) -> &str {
        std::str::from_utf8(&self.bytes[range.clone()]).unwrap_or_default()
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.rows.clear();
    }
}
