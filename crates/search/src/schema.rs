//! Maps freely named fields to the few fixed fields and columns of tantivy.
//!
//! | field | contents |
//! |---|---|
//! | `terms` | all terms of all fields, each after its field's name and a zero byte, with positions |
//! | `id` | the document's id, as a column, which orders equal hits |
//! | `stored` | the stored fields as a JSON object, as it is returned |
//! | `columns` | columns by name: `s` and the field's name for strings, `n` for numbers, `l` for lengths of texts, `f` for facets |
//!
//! In an index like Nouveau's, a field is a string, a text or a number. In one like Clouseau's a
//! field may have texts and numbers: `s` has the greatest term of a document's texts, for sorting
//! and grouping, and `l` the length as Lucene 4.6 encodes it.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use tantivy::schema::{
    Field, IndexRecordOption, JsonObjectOptions, STORED, Schema, TextFieldIndexing, TextOptions,
};

use crate::tokens::TOKENIZER;

/// The types of an index's fields, by name. The first call of `index` fixes a type.
pub type Types = BTreeMap<String, FieldType>;

/// The type of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FieldType {
    /// Strings, each a single term.
    String,
    /// Texts, which are analyzed.
    Text,
    /// Numbers.
    Double,
}

impl fmt::Display for FieldType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FieldType::String => "STRING",
            FieldType::Text => "TEXT",
            FieldType::Double => "DOUBLE",
        })
    }
}

/// The field of a document's id, which queries may name.
pub const ID: &str = "_id";
/// The field of a document's partition.
pub const PARTITION: &str = "_partition";

/// The separator between a field's name and a term.
const SEPARATOR: u8 = 0;

/// The fields of tantivy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    pub terms: Field,
    pub id: Field,
    pub stored: Field,
    pub columns: Field,
}

/// The column of ids.
pub(crate) const ID_COLUMN: &str = "id";

/// The kind of a field's column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ColumnKind {
    Strings,
    Numbers,
    Lengths,
    /// Strings that hits are counted by.
    Facets,
}

impl ColumnKind {
    fn letter(self) -> char {
        match self {
            ColumnKind::Strings => 's',
            ColumnKind::Numbers => 'n',
            ColumnKind::Lengths => 'l',
            ColumnKind::Facets => 'f',
        }
    }

    /// Returns the member of `columns` for a field.
    pub fn member(self, field: &str) -> String {
        let mut name = String::with_capacity(field.len() + 1);
        name.push(self.letter());
        name.push_str(field);
        name
    }

    /// Returns tantivy's path of the column.
    pub fn path(self, field: &str) -> String {
        let mut path = String::with_capacity(field.len() + 10);
        path.push_str("columns.");
        path.push(self.letter());
        for c in field.chars() {
            if matches!(c, '.' | '\\') {
                path.push('\\');
            }
            path.push(c);
        }
        path
    }
}

impl Layout {
    /// Returns the schema of every index, with its fields.
    pub fn new() -> (Schema, Layout) {
        let mut schema = Schema::builder();
        let positions = TextFieldIndexing::default()
            .set_tokenizer(TOKENIZER)
            .set_index_option(IndexRecordOption::WithFreqsAndPositions)
            .set_fieldnorms(false);
        let layout = Layout {
            terms: schema.add_text_field(
                "terms",
                TextOptions::default().set_indexing_options(positions),
            ),
            id: schema.add_text_field(ID_COLUMN, TextOptions::default().set_fast("raw")),
            stored: schema.add_text_field("stored", STORED),
            columns: schema.add_json_field("columns", JsonObjectOptions::default().set_fast("raw")),
        };
        (schema.build(), layout)
    }
}

/// Encodes a term of a field, as in `terms`.
pub(crate) fn term_bytes(field: &str, term: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len() + 1 + term.len());
    bytes.extend_from_slice(field.as_bytes());
    bytes.push(SEPARATOR);
    bytes.extend_from_slice(term.as_bytes());
    bytes
}

/// Splits [`term_bytes`] into field and term, for display.
pub(crate) fn split_term(bytes: &[u8]) -> (String, String) {
    let at = bytes.iter().position(|byte| *byte == SEPARATOR);
    let (field, term) = bytes.split_at(at.unwrap_or(bytes.len()));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(field), text(term.get(1..).unwrap_or_default()))
}

/// Returns the range of a field's terms: the first, and the end (exclusive).
pub(crate) fn field_bounds(field: &str) -> (Vec<u8>, Vec<u8>) {
    let first = term_bytes(field, "");
    let mut end = field.as_bytes().to_vec();
    end.push(SEPARATOR + 1);
    (first, end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_terms_of_a_field_are_together() {
        let (first, end) = field_bounds("ab");
        for term in ["", "x", "\u{10ffff}"] {
            let bytes = term_bytes("ab", term);
            assert!(first <= bytes && bytes < end, "{term}");
        }
        for other in ["a", "abc", "ab1", "ac"] {
            let bytes = term_bytes(other, "x");
            assert!(bytes < first || bytes >= end, "{other}");
        }
    }
}
