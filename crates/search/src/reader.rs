//! A snapshot of an index.

use std::ops::Bound;
use std::sync::Arc;

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use tantivy::index::SegmentId;
use tantivy::schema::Value as _;
use tantivy::{DocAddress, Searcher, SegmentReader, TantivyDocument};

use crate::Error;
use crate::column::{self, OpenColumns};
use crate::index::Commit;
use crate::schema::{FieldType, ID, Layout, PARTITION, Types};
use crate::similarity::FieldStatistics;

/// Cached data of a segment, which deletions do not change.
#[derive(Default)]
struct SegmentCache {
    columns: OpenColumns,
    /// Statistics by field, counted once.
    statistics: Mutex<FxHashMap<String, FieldStatistics>>,
}

/// The files of a segment in a snapshot.
pub(crate) struct SegmentFiles {
    pub reader: SegmentReader,
    kept: Arc<SegmentCache>,
}

impl SegmentFiles {
    pub fn columns(&self) -> &OpenColumns {
        &self.kept.columns
    }
}

/// A snapshot of an index, unaffected by later updates.
pub struct Reader {
    searcher: Searcher,
    pub(crate) segments: Vec<SegmentFiles>,
    pub(crate) layout: Layout,
    /// The state that it represents.
    pub commit: Arc<Commit>,
}

impl Reader {
    /// `before` is the previous reader; its caches of segments that still exist are kept.
    pub(crate) fn new(
        searcher: Searcher,
        layout: Layout,
        commit: Arc<Commit>,
        before: Option<&Reader>,
    ) -> Reader {
        let known = before.iter().flat_map(|before| &before.segments);
        let known: FxHashMap<SegmentId, &Arc<SegmentCache>> = known
            .map(|segment| (segment.reader.segment_id(), &segment.kept))
            .collect();
        let segments = searcher
            .segment_readers()
            .iter()
            .map(|reader| SegmentFiles {
                reader: reader.clone(),
                kept: known
                    .get(&reader.segment_id())
                    .map_or_else(Arc::default, |kept| Arc::clone(kept)),
            });
        Reader {
            segments: segments.collect(),
            searcher,
            layout,
            commit,
        }
    }

    /// Returns the types of its fields.
    pub fn types(&self) -> &Types {
        &self.commit.types
    }

    /// Returns the number of segments.
    pub fn segments(&self) -> usize {
        self.segments.len()
    }

    /// Returns the number of documents.
    pub fn docs(&self) -> u64 {
        self.searcher.num_docs()
    }

    /// Returns the number of deleted documents that still take space.
    pub fn deleted_docs(&self) -> u64 {
        self.docs_max() - self.docs()
    }

    /// Returns the number of documents, including those deleted whose segment has not been merged
    /// yet.
    pub(crate) fn docs_max(&self) -> u64 {
        let segments = self.segments.iter();
        segments.map(|s| u64::from(s.reader.max_doc())).sum()
    }

    /// Returns the statistics of a field over all segments. Deleted documents count until their
    /// segment is merged, as in Lucene.
    pub(crate) fn statistics(&self, field: &str) -> Result<FieldStatistics, Error> {
        let mut all = FieldStatistics::default();
        // Queries may name any field; unknown ones are not cached.
        if !self.types().contains_key(field) && !matches!(field, ID | PARTITION) {
            return Ok(all);
        }
        for segment in &self.segments {
            let known = segment.kept.statistics.lock().get(field).copied();
            let of_segment = match known {
                Some(known) => known,
                None => {
                    let counted = count(segment, field, self.types().get(field).copied())?;
                    let mut statistics = segment.kept.statistics.lock();
                    statistics.insert(field.to_owned(), counted);
                    counted
                }
            };
            all.add(of_segment);
        }
        Ok(all)
    }

    /// Returns the number of documents that contain a term, over all segments.
    pub(crate) fn doc_freq(&self, term: &[u8]) -> Result<u64, Error> {
        let mut docs = 0;
        for segment in &self.segments {
            let inverted = segment.reader.inverted_index(self.layout.terms)?;
            docs += inverted
                .terms()
                .get(term)?
                .map_or(0, |info| u64::from(info.doc_freq));
        }
        Ok(docs)
    }

    /// Returns the stored fields of a hit, as the text of a JSON object.
    ///
    /// # Errors
    /// The files cannot be read.
    pub fn stored(&self, segment: u32, doc: u32) -> Result<String, Error> {
        if !self.commit.has_stored {
            return Ok("{}".to_owned());
        }
        let found: TantivyDocument = self.searcher.doc(DocAddress::new(segment, doc))?;
        let stored = found.get_first(self.layout.stored);
        let text = stored.and_then(|stored| stored.as_str());
        Ok(text.unwrap_or("{}").to_owned())
    }

    /// Returns roughly how much memory its segments take, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        let segments = self.segments.iter();
        let of_segment = |s: &SegmentFiles| {
            let statistics = s.kept.statistics.lock();
            let names: usize = statistics.keys().map(|name| name.len() + 64).sum();
            SEGMENT_BYTES + names + s.columns().bytes(s.reader.max_doc())
        };
        segments.map(of_segment).sum()
    }

    /// Returns all ids, in no particular order.
    ///
    /// # Errors
    /// The files cannot be read.
    pub fn ids(&self) -> Result<Vec<String>, Error> {
        let mut all = vec![];
        self.visit_ids(|id| {
            all.push(id.to_owned());
            Ok::<(), Error>(())
        })?;
        Ok(all)
    }

    /// Calls `visit` with each id, in no particular order.
    ///
    /// # Errors
    /// The files cannot be read, or its first error.
    pub fn visit_ids<E: From<Error>>(
        &self,
        mut visit: impl FnMut(&str) -> Result<(), E>,
    ) -> Result<(), E> {
        for segment in &self.segments {
            let Some(ids) = column::ids(segment)? else {
                continue;
            };
            for doc in segment.reader.doc_ids_alive() {
                if let Some(ord) = ids.ords().first(doc) {
                    visit(&ids.text(ord)?)?;
                }
            }
        }
        Ok(())
    }
}

/// Memory of an open segment, in bytes.
const SEGMENT_BYTES: usize = 16 << 10;

fn count(
    segment: &SegmentFiles,
    field: &str,
    field_type: Option<FieldType>,
) -> Result<FieldStatistics, Error> {
    let mut counted = FieldStatistics::default();
    if field_type == Some(FieldType::Text) {
        let Some(lengths) = column::own_lengths(&segment.reader, field)? else {
            return Ok(counted);
        };
        for length in lengths.values.iter() {
            counted.docs += u64::from(length > 0);
            counted.tokens += length;
        }
        return Ok(counted);
    }
    if field == ID {
        let docs = u64::from(segment.reader.max_doc());
        return Ok(FieldStatistics { docs, tokens: docs });
    }
    if let Some(strings) = column::strings(segment, field)? {
        let ords = strings.ords();
        counted.tokens = u64::from(ords.values.num_vals());
        counted.docs = (0..segment.reader.max_doc())
            .filter(|doc| ords.index.has_value(*doc))
            .count() as u64;
    }
    Ok(counted)
}

/// Converts a bound to the bytes of a term.
pub(crate) fn map_bound<T, U>(bound: &Bound<T>, f: impl Fn(&T) -> U) -> Bound<U> {
    match bound {
        Bound::Included(t) => Bound::Included(f(t)),
        Bound::Excluded(t) => Bound::Excluded(f(t)),
        Bound::Unbounded => Bound::Unbounded,
    }
}
