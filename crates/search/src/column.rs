//! Columns of a segment, by the field that they are of.

use std::sync::Arc;

use tantivy::SegmentReader;
use tantivy::columnar::{Column, ColumnType, DynamicColumn, NumericalType, StrColumn};

use crate::Error;
use crate::schema::{ColumnKind, ID_COLUMN};
use crate::similarity::Similarity;

/// Strings of a field, of one kind of column; `None` when no document has any.
pub(crate) fn of_strings(
    segment: &SegmentReader,
    kind: ColumnKind,
    field: &str,
) -> Result<Option<StrColumn>, Error> {
    Ok(segment.fast_fields().str(&kind.path(field))?)
}

/// The strings of a field; `None` when no document has any.
pub(crate) fn strings(segment: &SegmentReader, field: &str) -> Result<Option<StrColumn>, Error> {
    of_strings(segment, ColumnKind::Strings, field)
}

/// Which column has what hits are counted by, and narrowed to.
pub(crate) fn facets_of(similarity: Similarity) -> ColumnKind {
    match similarity {
        Similarity::TfIdf => ColumnKind::Facets,
        Similarity::Bm25 => ColumnKind::Strings,
    }
}

/// The documents' ids.
pub(crate) fn ids(segment: &SegmentReader) -> Result<Option<StrColumn>, Error> {
    Ok(segment.fast_fields().str(ID_COLUMN)?)
}

/// The numbers of a field; `None` when no document has any.
pub(crate) fn numbers(segment: &SegmentReader, field: &str) -> Result<Option<Column<f64>>, Error> {
    let path = ColumnKind::Numbers.path(field);
    match numerical(segment, &path, NumericalType::F64)? {
        Some(DynamicColumn::F64(column)) => Ok(Some(column)),
        _ => Ok(None),
    }
}

/// The lengths of a field of texts, in tokens; `None` when no document has it.
pub(crate) fn lengths(segment: &SegmentReader, field: &str) -> Result<Option<Column<u64>>, Error> {
    let path = ColumnKind::Lengths.path(field);
    match numerical(segment, &path, NumericalType::U64)? {
        Some(DynamicColumn::U64(column)) => Ok(Some(column)),
        _ => Ok(None),
    }
}

/// A column of numbers, which tantivy keeps in the narrowest type that holds all of them.
fn numerical(
    segment: &SegmentReader,
    path: &str,
    wanted: NumericalType,
) -> Result<Option<DynamicColumn>, Error> {
    for handle in segment.fast_fields().dynamic_column_handles(path)? {
        if matches!(
            handle.column_type(),
            ColumnType::I64 | ColumnType::U64 | ColumnType::F64
        ) {
            return Ok(handle.open()?.coerce_numerical(wanted));
        }
    }
    Ok(None)
}

/// The text of an ordinal.
pub(crate) fn text_of(column: &StrColumn, ord: u64) -> Result<String, Error> {
    let mut text = String::new();
    column.ord_to_str(ord, &mut text)?;
    Ok(text)
}

/// The lengths of each document, for scores; 1 where there is none.
pub(crate) type Lengths = Arc<dyn tantivy::columnar::ColumnValues<u64>>;
