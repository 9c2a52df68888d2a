//! Rows to be, of many documents, in one buffer.

use std::cmp::Ordering;
use std::ops::Range;

use crate::sorting::{self, Item};

/// One row to be.
#[derive(Clone, Copy, Debug)]
pub struct RowRef {
    /// Bytes of the place that it is being sorted by.
    pub(super) window: u64,
    /// The view, by its number in the index.
    pub view: u16,
    /// The row's number among those of its document with the same key.
    pub ordinal: u32,
    pub(super) place: (u32, u32),
    /// Length of the place's part before the document's id.
    pub sort_len: u32,
    pub(super) value: (u32, u32),
    /// Length of key and value as JSON text.
    pub json_bytes: u32,
}

/// One document that was mapped.
#[derive(Clone, Copy, Debug)]
pub struct DocRef {
    /// Bytes of the id that it is being sorted by.
    window: u64,
    id: (u32, u32),
    rows: (u32, u32),
}

impl DocRef {
    /// Its rows in the buffer.
    pub fn rows(&self) -> Range<usize> {
        self.rows.0 as usize..self.rows.1 as usize
    }
}

impl Item for RowRef {
    fn window(&self) -> u64 {
        self.window
    }
    fn set_window(&mut self, window: u64) {
        self.window = window;
    }
}

impl Item for DocRef {
    fn window(&self) -> u64 {
        self.window
    }
    fn set_window(&mut self, window: u64) {
        self.window = window;
    }
}

/// Rows of some documents.
#[derive(Debug, Default)]
pub struct RowBuffer {
    pub(super) bytes: Vec<u8>,
    /// The rows, in the order of the documents until they are sorted.
    pub rows: Vec<RowRef>,
    /// The documents that they are of.
    pub docs: Vec<DocRef>,
    /// The rows in the order of the documents' `rows`, once `rows` is sorted.
    pub unsorted: Vec<RowRef>,
    /// The pieces whose documents were added, in the order of their seqs.
    pieces: Vec<PieceStart>,
}

/// The size of a buffer at the start of a piece.
#[derive(Clone, Copy, Debug)]
struct PieceStart {
    /// The piece's first seq.
    seq: u64,
    bytes: usize,
    rows: usize,
    docs: usize,
    /// The number of its changes, documents without rows included.
    changes: usize,
}

impl RowBuffer {
    fn slice(&self, at: (u32, u32)) -> &[u8] {
        &self.bytes[at.0 as usize..at.1 as usize]
    }

    /// Returns the row's place.
    pub fn place(&self, row: &RowRef) -> &[u8] {
        self.slice(row.place)
    }

    /// Returns the row's value as it is stored.
    pub fn value(&self, row: &RowRef) -> &[u8] {
        self.slice(row.value)
    }

    /// Returns the place's part before the document's id.
    pub fn sort(&self, row: &RowRef) -> &[u8] {
        &self.place(row)[..row.sort_len as usize]
    }

    /// Returns the document's id.
    pub fn id(&self, doc: &DocRef) -> &[u8] {
        self.slice(doc.id)
    }

    /// Returns the order of rows in the store.
    pub fn compare(&self, a: &RowRef, other: &RowBuffer, b: &RowRef) -> Ordering {
        (a.view, self.place(a)).cmp(&(b.view, other.place(b)))
    }

    /// Sorts rows and documents.
    pub fn sort_all(&mut self) {
        let mut docs = std::mem::take(&mut self.docs);
        sorting::sort(&mut docs, &|doc| self.id(doc));
        self.docs = docs;
        let mut rows = std::mem::take(&mut self.rows);
        self.unsorted = rows.clone();
        // Usually there is one view, and this finds them in order.
        rows.sort_unstable_by_key(|row| row.view);
        for of_view in rows.chunk_by_mut(|a, b| a.view == b.view) {
            sorting::sort(of_view, &|row| self.place(row));
        }
        self.rows = rows;
    }

    /// Lists a document that has no rows, for those that it had before.
    pub(super) fn push_without_rows(&mut self, id: &str) {
        let none = self.rows.len();
        self.push_doc(id, none);
    }

    /// Lists a document whose rows are those from `first` on.
    pub(super) fn push_doc(&mut self, id: &str, first: usize) {
        let start = self.bytes.len() as u32;
        self.bytes.extend_from_slice(id.as_bytes());
        self.docs.push(DocRef {
            window: 0,
            id: (start, self.bytes.len() as u32),
            // A row takes bytes, whose number fits.
            rows: (first as u32, self.rows.len() as u32),
        });
    }

    /// Begins a piece, whose seqs come after those of the pieces before.
    pub(super) fn begin_piece(&mut self, seq: u64) {
        self.pieces.push(PieceStart {
            seq,
            bytes: self.bytes.len(),
            rows: self.rows.len(),
            docs: self.docs.len(),
            changes: 0,
        });
    }

    /// Notes the number of changes of the last piece.
    pub(super) fn end_piece(&mut self, changes: usize) {
        if let Some(piece) = self.pieces.last_mut() {
            piece.changes = changes;
        }
    }

    /// Removes the pieces that begin after a seq; returns the number of their changes. The rows are
    /// not sorted yet.
    pub(super) fn keep(&mut self, last: u64) -> usize {
        debug_assert!(self.unsorted.is_empty(), "rows of pieces are together");
        let kept = self.pieces.partition_point(|piece| piece.seq <= last);
        let Some(&start) = self.pieces.get(kept) else {
            return 0;
        };
        let removed = self.pieces[kept..].iter().map(|piece| piece.changes);
        let removed = removed.sum();
        self.pieces.truncate(kept);
        self.bytes.truncate(start.bytes);
        self.rows.truncate(start.rows);
        self.docs.truncate(start.docs);
        removed
    }

    /// Memory that it takes.
    pub fn size(&self) -> usize {
        self.bytes.len()
            + self.rows.len() * size_of::<RowRef>()
            + self.docs.len() * size_of::<DocRef>()
    }
}
