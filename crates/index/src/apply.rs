//! Bringing changed documents into an index that has rows already.

use std::collections::BTreeMap;

use storage::{Engine, Keyspace, ShardNumber, Writes};

use crate::Error;
use crate::blocks::Step;
use crate::keys::{BackEntry, put_place_end, row_key};
use crate::map::{DocRef, RowBuffer};
use crate::run::put_back;
use crate::spec::Spec;
use crate::state::State;

/// Maximum number of documents whose old rows are looked up together. All of these rows are in memory
/// at the same time, and their lengths are unknown before: a document that emits a long key for each
/// element of a list has 100 MB, also after many documents with short rows.
const LOOKUP_DOCS_MAX: usize = 4;
/// After a lookup of fewer bytes the next one is of more documents.
const LOOKUP_FEW_BYTES: usize = 1 << 20;
/// After a lookup of this number of bytes or more the next one is of fewer documents.
const LOOKUP_MANY_BYTES: usize = 4 << 20;

/// Writes collected for one batch.
pub struct Changes<'a> {
    pub engine: &'a Engine,
    pub number: ShardNumber,
    spec: &'a Spec,
    pub batch: Writes<'a>,
    /// Fences of blocks that have grown too large, with their view.
    pub oversized: Vec<(usize, Box<[u8]>)>,
    /// Documents of the next lookup.
    lookup_docs: usize,
}

impl<'a> Changes<'a> {
    pub fn new(engine: &'a Engine, number: ShardNumber, spec: &'a Spec) -> Changes<'a> {
        Changes {
            engine,
            number,
            spec,
            batch: engine.writes(),
            oversized: vec![],
            lookup_docs: LOOKUP_DOCS_MAX,
        }
    }

    /// Replaces the rows of the buffer's documents. `flush` is called between documents when the
    /// batch may be full.
    pub fn apply(
        &mut self,
        buffer: &RowBuffer,
        state: &mut State,
        mut flush: impl FnMut(&mut Self, &mut State) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut rest = buffer.docs.as_slice();
        while !rest.is_empty() {
            let (docs, others) = rest.split_at(self.lookup_docs.min(rest.len()));
            rest = others;
            let keys: Vec<Vec<u8>> = docs.iter().map(|d| self.back_key(buffer.id(d))).collect();
            let stored = self
                .engine
                .multi_get(Keyspace::IndexBack, keys.iter().map(Vec::as_slice));
            let mut bytes = 0;
            for ((doc, key), old) in docs.iter().zip(&keys).zip(stored) {
                let old = old?;
                let old = old.as_deref().unwrap_or_default();
                bytes += old.len();
                self.replace(buffer, doc, key, old, state)?;
                flush(self, state)?;
            }
            self.lookup_docs = next_lookup(self.lookup_docs, bytes);
        }
        Ok(())
    }

    /// Removes all rows of a removed document.
    pub fn remove(&mut self, id: &[u8], state: &mut State) -> Result<(), Error> {
        let key = self.back_key(id);
        if let Some(old) = self.engine.get(Keyspace::IndexBack, &key)? {
            for entry in BackEntry::decode_all(&old)? {
                self.delete_row(id, &entry, state);
            }
            self.batch.delete(Keyspace::IndexBack, key);
        }
        Ok(())
    }

    fn back_key(&self, id: &[u8]) -> Vec<u8> {
        let mut k = Vec::with_capacity(4 + id.len());
        k.extend_from_slice(&self.number.to_be_bytes());
        k.extend_from_slice(id);
        k
    }

    fn replace(
        &mut self,
        buffer: &RowBuffer,
        doc: &DocRef,
        back_key: &[u8],
        old: &[u8],
        state: &mut State,
    ) -> Result<(), Error> {
        let rows = &buffer.rows[doc.rows()];
        let id = buffer.id(doc);
        let mut before: BTreeMap<(u16, &[u8], u32), BackEntry<'_>> = BackEntry::decode_all(old)?
            .into_iter()
            .map(|e| ((e.view, e.sort, e.ordinal), e))
            .collect();
        for row in rows {
            let place = buffer.place(row);
            let was = before.remove(&(row.view, buffer.sort(row), row.ordinal));
            let bytes = self.counted_bytes(row.view, row.sort_len as usize, row.json_bytes);
            let step = match was {
                Some(e) => {
                    state.bytes = state.bytes.saturating_sub(u64::from(e.bytes));
                    Step::Replaced {
                        before: self.counted_bytes(e.view, e.sort.len(), e.bytes),
                        after: bytes,
                    }
                }
                None => Step::Added(bytes),
            };
            state.bytes += u64::from(row.json_bytes);
            let key = row_key(self.number, row.view, place);
            self.batch.put(Keyspace::IndexRows, key, buffer.value(row));
            self.note(usize::from(row.view), place, step, state);
        }
        for entry in before.values() {
            self.delete_row(id, entry, state);
        }
        let mut new = vec![];
        put_back(buffer, rows, &mut new);
        if new.is_empty() && !old.is_empty() {
            self.batch.delete(Keyspace::IndexBack, back_key);
        } else if new != old {
            self.batch.put(Keyspace::IndexBack, back_key, new);
        }
        Ok(())
    }

    fn delete_row(&mut self, id: &[u8], entry: &BackEntry<'_>, state: &mut State) {
        let mut place = entry.sort.to_vec();
        // Ids of stored rows are text.
        let id = std::str::from_utf8(id).unwrap_or_default();
        put_place_end(id, entry.ordinal, &mut place);
        self.batch.delete(
            Keyspace::IndexRows,
            row_key(self.number, entry.view, &place),
        );
        state.bytes = state.bytes.saturating_sub(u64::from(entry.bytes));
        let bytes = self.counted_bytes(entry.view, entry.sort.len(), entry.bytes);
        let step = Step::Removed(bytes);
        self.note(usize::from(entry.view), &place, step, state);
    }

    /// Returns how many bytes of its block a row is; none of a view that the index does not have.
    fn counted_bytes(&self, view: u16, sort_len: usize, bytes: u32) -> u64 {
        let view = self.spec.views.get(usize::from(view));
        view.map_or(0, |view| view.counted_bytes(sort_len, bytes.into()))
    }

    fn note(&mut self, view: usize, place: &[u8], step: Step, state: &mut State) {
        let blocks = &mut state.views[view];
        if blocks.note(place, step) {
            let fence = blocks.block(blocks.find(place)).fence.clone();
            if self.oversized.last() != Some(&(view, fence.clone())) {
                self.oversized.push((view, fence));
            }
        }
    }
}

/// Returns the number of documents of the lookup after one of `docs` documents that found this many bytes.
fn next_lookup(docs: usize, bytes: usize) -> usize {
    match bytes {
        0..LOOKUP_FEW_BYTES => (docs * 4).min(LOOKUP_DOCS_MAX),
        LOOKUP_FEW_BYTES..LOOKUP_MANY_BYTES => docs,
        _ => (docs / 4).max(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_long_rows_are_looked_up_together() {
        let lookups = |row_bytes: usize| {
            let mut docs = LOOKUP_DOCS_MAX;
            (0..8).map(move |_| {
                let bytes = docs * row_bytes;
                docs = next_lookup(docs, bytes);
                bytes
            })
        };
        for row_bytes in [0, 100, 10_000, 1_000_000, 11_000_000] {
            let bytes: Vec<usize> = lookups(row_bytes).collect();
            let few = 4 * LOOKUP_MANY_BYTES;
            let most = few.max(LOOKUP_DOCS_MAX * row_bytes);
            assert!(bytes.iter().all(|n| *n <= most), "{bytes:?}");
            assert!(bytes[7] <= few.max(row_bytes), "{bytes:?}");
        }
    }

    #[test]
    fn few_rows_are_looked_up_together_also_after_short_ones() {
        const LONG_ROW: usize = 64 << 20;
        let short = (0..9).fold(1, |docs, _| next_lookup(docs, docs * 100));
        assert_eq!(short, LOOKUP_DOCS_MAX);
        assert!(short * LONG_ROW <= 256 << 20);
    }
}
