//! Rows to be, of many documents, in one buffer.

use std::cmp::Ordering;
use std::ops::Range;

/// One row to be.
#[derive(Clone, Copy, Debug)]
pub struct RowRef {
    /// The view and the first bytes of the place, big endian: compared first.
    pub(super) prefix: u64,
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
#[derive(Clone, Debug)]
pub struct DocRef {
    pub(super) id: (u32, u32),
    /// Its rows in the buffer.
    pub rows: Range<usize>,
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
}

impl RowBuffer {
    fn slice(&self, at: (u32, u32)) -> &[u8] {
        &self.bytes[at.0 as usize..at.1 as usize]
    }

    /// The row's place.
    pub fn place(&self, row: &RowRef) -> &[u8] {
        self.slice(row.place)
    }

    /// The row's value as it is stored.
    pub fn value(&self, row: &RowRef) -> &[u8] {
        self.slice(row.value)
    }

    /// The place's part before the document's id.
    pub fn sort(&self, row: &RowRef) -> &[u8] {
        &self.place(row)[..row.sort_len as usize]
    }

    /// The document's id.
    pub fn id(&self, doc: &DocRef) -> &[u8] {
        self.slice(doc.id)
    }

    /// The order of rows in the store.
    pub fn compare(&self, a: &RowRef, other: &RowBuffer, b: &RowRef) -> Ordering {
        a.prefix
            .cmp(&b.prefix)
            .then_with(|| (a.view, self.place(a)).cmp(&(b.view, other.place(b))))
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
            id: (start, self.bytes.len() as u32),
            rows: first..self.rows.len(),
        });
    }

    /// Memory that it takes.
    pub fn size(&self) -> usize {
        self.bytes.len()
            + self.rows.len() * size_of::<RowRef>()
            + self.docs.len() * size_of::<DocRef>()
    }
}
