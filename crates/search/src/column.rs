//! Opens the columns of a segment, by field.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use tantivy::SegmentReader;
use tantivy::columnar::{
    Column, ColumnType, ColumnValues, Dictionary, DynamicColumn, NumericalType, StrColumn,
};

use crate::Error;
use crate::reader::SegmentFiles;
use crate::schema::{ColumnKind, ID, ID_COLUMN};
use crate::similarity::Similarity;

/// Columns by their paths.
type ByPath<T> = Mutex<FxHashMap<String, T>>;

/// The columns of a segment that have been opened, which takes tens of microseconds each. There are
/// at most as many as the segment has.
#[derive(Default)]
pub(crate) struct OpenColumns {
    strings: ByPath<Strings>,
    numbers: ByPath<Column<f64>>,
    lengths: ByPath<Lengths>,
}

/// Memory of an open column besides its blocks, in bytes.
const COLUMN_BYTES: usize = 1 << 10;
/// Documents in a block of a column, and memory of an open column for each block, in bytes.
const BLOCK_DOCS: usize = 512;
const BLOCK_BYTES: usize = 40;

impl OpenColumns {
    /// Returns roughly how much memory they take for a segment of `docs` documents, in bytes.
    pub fn bytes(&self, docs: u32) -> usize {
        let strings = self.strings.lock();
        let texts: usize = strings.values().map(|s| s.read.lock().bytes).sum();
        let columns = strings.len() + self.numbers.lock().len() + self.lengths.lock().len();
        columns * (COLUMN_BYTES + docs as usize / BLOCK_DOCS * BLOCK_BYTES) + texts
    }
}

/// A string column, with a cache of strings. The column holds an ordinal for each document; looking
/// up its text in the dictionary takes some microseconds.
#[derive(Clone)]
pub(crate) struct Strings {
    column: StrColumn,
    read: Arc<Mutex<TextsRead>>,
}

/// A cache of texts by ordinal, in pages.
#[derive(Default)]
struct TextsRead {
    pages: FxHashMap<u64, Arc<Page>>,
    bytes: usize,
}

/// The texts of consecutive ordinals.
struct Page {
    texts: String,
    ends: Vec<u32>,
}

/// Texts in a page: hits that are near each other in id order are often requested together.
const PAGE_TEXTS: u64 = 32;
/// The cache of a column is emptied when it reaches this size.
const READ_BYTES_MAX: usize = 4 << 20;
/// When the caches of all columns reach this size, the cache of the column that reads is emptied.
const ALL_READ_BYTES_MAX: usize = 16 << 20;
static ALL_READ_BYTES: AtomicUsize = AtomicUsize::new(0);
/// Memory of a page besides its texts, in bytes.
const PAGE_BYTES: usize = 128;

impl std::ops::Deref for Strings {
    type Target = StrColumn;

    fn deref(&self) -> &StrColumn {
        &self.column
    }
}

impl Strings {
    fn new(column: StrColumn) -> Strings {
        Strings {
            column,
            read: Arc::default(),
        }
    }

    /// Returns the text of an ordinal.
    ///
    /// # Errors
    /// The files cannot be read.
    pub fn text(&self, number: u64) -> Result<String, Error> {
        let (page, within) = (number / PAGE_TEXTS, (number % PAGE_TEXTS) as usize);
        if let Some(page) = self.read.lock().pages.get(&page) {
            return page.text(within);
        }
        let texts = Arc::new(Page::read(&self.column, page)?);
        let text = texts.text(within);
        self.read.lock().keep(page, texts);
        text
    }
}

impl TextsRead {
    fn keep(&mut self, number: u64, page: Arc<Page>) {
        if self.bytes > READ_BYTES_MAX || ALL_READ_BYTES.load(Relaxed) > ALL_READ_BYTES_MAX {
            *self = TextsRead::default();
        }
        let bytes = page.bytes();
        if self.pages.insert(number, page).is_none() {
            self.bytes += bytes;
            ALL_READ_BYTES.fetch_add(bytes, Relaxed);
        }
    }
}

impl Drop for TextsRead {
    fn drop(&mut self) {
        ALL_READ_BYTES.fetch_sub(self.bytes, Relaxed);
    }
}

impl Page {
    fn read(column: &StrColumn, page: u64) -> Result<Page, Error> {
        let first = page * PAGE_TEXTS;
        let end = (first + PAGE_TEXTS).min(column.num_terms() as u64);
        let numbers: Vec<u64> = (first..end).collect();
        let mut read = Page {
            texts: String::new(),
            ends: Vec::with_capacity(numbers.len()),
        };
        let dictionary: &Dictionary = column.dictionary();
        dictionary.sorted_ords_to_term_cb(&numbers, |text| {
            read.texts.push_str(&String::from_utf8_lossy(text));
            read.ends.push(read.texts.len() as u32);
        })?;
        read.texts.shrink_to_fit();
        Ok(read)
    }

    fn text(&self, within: usize) -> Result<String, Error> {
        let begin = match within.checked_sub(1) {
            Some(before) => self.ends.get(before),
            None => Some(&0),
        };
        let range = begin.zip(self.ends.get(within));
        let text = range.and_then(|(begin, end)| self.texts.get(*begin as usize..*end as usize));
        let missing = || Error::Engine("a column has no text of a number".to_owned());
        text.map(str::to_owned).ok_or_else(missing)
    }

    fn bytes(&self) -> usize {
        PAGE_BYTES + self.texts.len() + 4 * self.ends.len()
    }
}

/// Returns the column at a path; opens it on first use.
fn kept<T: Clone>(
    columns: &ByPath<T>,
    path: &str,
    open: impl FnOnce() -> Result<Option<T>, Error>,
) -> Result<Option<T>, Error> {
    if let Some(open) = columns.lock().get(path) {
        return Ok(Some(open.clone()));
    }
    let opened = open()?;
    if let Some(column) = &opened {
        columns.lock().insert(path.to_owned(), column.clone());
    }
    Ok(opened)
}

fn str_column(segment: &SegmentFiles, path: &str) -> Result<Option<Strings>, Error> {
    kept(&segment.columns().strings, path, || {
        let column = segment.reader.fast_fields().str(path)?;
        Ok(column.map(Strings::new))
    })
}

/// Returns the string column of one kind of a field; `None` when no document has one.
pub(crate) fn of_strings(
    segment: &SegmentFiles,
    kind: ColumnKind,
    field: &str,
) -> Result<Option<Strings>, Error> {
    str_column(segment, &kind.path(field))
}

/// Returns the strings of a field; `None` when no document has any.
pub(crate) fn strings(segment: &SegmentFiles, field: &str) -> Result<Option<Strings>, Error> {
    of_strings(segment, ColumnKind::Strings, field)
}

/// Returns the kind of column for counts and facet filters.
pub(crate) fn facets_of(similarity: Similarity) -> ColumnKind {
    match similarity {
        Similarity::TfIdf => ColumnKind::Facets,
        Similarity::Bm25 => ColumnKind::Strings,
    }
}

/// Returns the greatest strings of a field, or the document ids under the name of the id field.
pub(crate) fn strings_or_ids(
    segment: &SegmentFiles,
    field: &str,
) -> Result<Option<Strings>, Error> {
    match field {
        ID => ids(segment),
        field => strings(segment, field),
    }
}

/// Returns the document ids.
pub(crate) fn ids(segment: &SegmentFiles) -> Result<Option<Strings>, Error> {
    str_column(segment, ID_COLUMN)
}

/// Returns the numbers of a field; `None` when no document has any.
pub(crate) fn numbers(segment: &SegmentFiles, field: &str) -> Result<Option<Column<f64>>, Error> {
    let path = ColumnKind::Numbers.path(field);
    kept(&segment.columns().numbers, &path, || {
        match numerical(&segment.reader, &path, NumericalType::F64)? {
            Some(DynamicColumn::F64(column)) => Ok(Some(column)),
            _ => Ok(None),
        }
    })
}

/// The length of a field in each document, for scores; 1 where it has none.
pub(crate) type Lengths = Arc<dyn ColumnValues<u64>>;

/// Returns the lengths of a text field, for scores.
pub(crate) fn lengths(segment: &SegmentFiles, field: &str) -> Result<Lengths, Error> {
    let path = ColumnKind::Lengths.path(field);
    let lengths = kept(&segment.columns().lengths, &path, || {
        let column = own_lengths(&segment.reader, field)?;
        Ok(column.map(|column| column.first_or_default_col(1)))
    })?;
    Ok(lengths.unwrap_or_else(|| {
        Column::build_empty_column(segment.reader.max_doc()).first_or_default_col(1)
    }))
}

/// Returns the lengths of a text field, in tokens; `None` when no document has it.
pub(crate) fn own_lengths(
    files: &SegmentReader,
    field: &str,
) -> Result<Option<Column<u64>>, Error> {
    let path = ColumnKind::Lengths.path(field);
    match numerical(files, &path, NumericalType::U64)? {
        Some(DynamicColumn::U64(column)) => Ok(Some(column)),
        _ => Ok(None),
    }
}

/// Opens a numeric column, which tantivy stores in the narrowest type that holds all values.
fn numerical(
    files: &SegmentReader,
    path: &str,
    wanted: NumericalType,
) -> Result<Option<DynamicColumn>, Error> {
    for handle in files.fast_fields().dynamic_column_handles(path)? {
        if matches!(
            handle.column_type(),
            ColumnType::I64 | ColumnType::U64 | ColumnType::F64
        ) {
            return Ok(handle.open()?.coerce_numerical(wanted));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page() -> Arc<Page> {
        Arc::new(Page {
            texts: "x".repeat(1 << 20),
            ends: vec![1 << 20],
        })
    }

    #[test]
    fn what_was_read_stays_within_its_bytes() {
        let mut columns: Vec<TextsRead> = (0..8).map(|_| TextsRead::default()).collect();
        for n in 0..200 {
            for column in &mut columns {
                column.keep(n, page());
                column.keep(n, page());
                assert!(column.bytes <= READ_BYTES_MAX + (2 << 20));
            }
            let all: usize = columns.iter().map(|column| column.bytes).sum();
            assert_eq!(ALL_READ_BYTES.load(Relaxed), all);
            assert!(all <= ALL_READ_BYTES_MAX + (2 << 20), "{all}");
        }
        drop(columns);
        assert_eq!(ALL_READ_BYTES.load(Relaxed), 0);
    }
}
