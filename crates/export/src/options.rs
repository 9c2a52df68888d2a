//! Options and results of exports.

use serde_json::{Map, Value};

/// Options of an export.
#[derive(Debug, Clone)]
pub struct ExportOptions {
    /// The database, with credentials.
    pub database: String,
    /// The part of it to export.
    pub selection: Selection,
    /// The format.
    pub format: Format,
    /// The columns of CSV, where a dot leads into an object. Without any, all members are columns.
    pub fields: Vec<String>,
    /// Objects become a column for each member, `a.b`, instead of one with JSON.
    pub flatten: bool,
    /// The character between the cells of CSV.
    pub delimiter: u8,
    /// At most this many elements.
    pub limit: Option<u64>,
}

/// A part of a database.
#[derive(Debug, Clone)]
pub enum Selection {
    /// All documents.
    Documents {
        /// Design documents too.
        design: bool,
        /// Attachments too, as base64. Otherwise documents have no `_attachments`.
        attachments: bool,
    },
    /// The rows of a view.
    View {
        /// The design document, without `_design/`.
        design: String,
        /// The view.
        view: String,
        /// Parameters of the request, such as `group_level`.
        parameters: Vec<(String, String)>,
    },
    /// The documents or groups that a body of `_find` selects.
    Query(Map<String, Value>),
}

/// The format of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// One array.
    Json,
    /// A line for each element.
    JsonLines,
    /// A row for each element. Values are kept as they are.
    Csv,
    /// CSV that spreadsheet programs open without running formulas or changing texts and numbers.
    Spreadsheet,
}

/// The result of an export.
#[derive(Debug, Clone, Default)]
pub struct ExportReport {
    /// Elements written.
    pub rows: u64,
    /// Warnings of the server, such as of a query without an index.
    pub warnings: Vec<String>,
    /// Documents whose attachments were left out.
    pub without_attachments: u64,
    /// Elements with members that got no column, because they were written during the export.
    pub incomplete: u64,
}
