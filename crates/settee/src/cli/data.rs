//! Options of the commands that load, export and query documents.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use load::ColumnType;

#[derive(Args)]
#[command(after_help = LOAD_HELP)]
pub struct LoadOptions {
    /// A file, a directory, a URL (also of a CouchDB database), - for standard input, or sample:shop for a small shop to try
    /// things with
    pub source: String,
    /// The database, http://NAME:PASSWORD@HOST:PORT/DB
    #[arg(required_unless_present = "dry_run")]
    pub database: Option<String>,
    /// Member or column whose value becomes the id of documents without `_id`
    #[arg(long, value_name = "MEMBER")]
    pub id_field: Option<String>,
    /// The source is one object whose members are documents with their names as ids
    #[arg(long)]
    pub id_from_key: bool,
    /// Show the first ten documents, and the columns of CSV with their types; write nothing
    #[arg(long)]
    pub dry_run: bool,
    /// The format; by default csv for names that end in .csv or .tsv, also before .gz, and json for others
    #[arg(long)]
    pub format: Option<LoadFormat>,
    /// Documents per request
    #[arg(long, default_value_t = 1000)]
    pub batch: usize,
    /// Concurrent requests
    #[arg(long, default_value_t = 4)]
    pub parallel: usize,
    /// Do not create the database when it is absent
    #[arg(long)]
    pub no_create: bool,
    /// The type of a column: text, integer, number, boolean or json. The name * is that of all other columns. May be given more
    /// than once
    #[arg(long = "type", value_name = "COLUMN=TYPE", value_parser = column_type, help_heading = CSV)]
    pub types: Vec<(String, ColumnType)>,
    /// The character between cells, or tab; by default detected among , ; tab and |
    #[arg(long, value_name = "CHARACTER", value_parser = character, help_heading = CSV)]
    pub delimiter: Option<u8>,
    /// The character around cells
    #[arg(long, value_name = "CHARACTER", value_parser = character, help_heading = CSV, default_value = "\"")]
    pub quote: u8,
    /// The character before a quote in a cell; by default the quote is doubled
    #[arg(long, value_name = "CHARACTER", value_parser = character, help_heading = CSV)]
    pub escape: Option<u8>,
    /// The first row is data: columns are named column1, column2 and so on
    #[arg(long, help_heading = CSV)]
    pub no_header: bool,
    /// Remove white space around cells
    #[arg(long, help_heading = CSV)]
    pub trim: bool,
    /// Numbers have a decimal comma: 4,5
    #[arg(long, help_heading = CSV)]
    pub decimal_comma: bool,
    /// The value of an empty cell
    #[arg(long, value_enum, default_value_t = EmptyCell::Omit, help_heading = CSV)]
    pub empty: EmptyCell,
    /// A column a.b is the member b of the object a
    #[arg(long, help_heading = CSV)]
    pub nested: bool,
}

const CSV: &str = "CSV";

const LOAD_HELP: &str = "A column of CSV has the type of all its cells in the first 10,000 rows. Cells with leading zeros, integers of more than \
64 bits and codes like 1E5 are text, and later cells of another type are kept as text and reported. Integers \
keep their digits, other numbers their value: 4.50 is stored as 4.5, and --type COLUMN=text keeps versions like 1.10.

Exit status: 0 done, 1 failed, 2 the command is wrong, 3 done but documents were refused.";

/// The format of a load's source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LoadFormat {
    /// Any form of JSON, which is detected
    Json,
    /// CSV
    Csv,
}

/// The value of an empty cell of CSV.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum EmptyCell {
    /// The document does not have the member
    Omit,
    /// null
    Null,
    /// An empty string
    Text,
}

#[derive(Args)]
#[command(after_help = EXPORT_HELP)]
pub struct ExportOptions {
    /// The database, http://NAME:PASSWORD@HOST:PORT/DB
    pub database: String,
    /// The file to write, compressed if its name ends in .gz; by default standard output
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// The format; by default that of the file's name, and else jsonl
    #[arg(long)]
    pub format: Option<ExportFormat>,
    /// Rows of a view instead of documents
    #[arg(long, value_name = "DESIGN/VIEW", conflicts_with = "query")]
    pub view: Option<String>,
    /// A parameter of the view, such as group_level=2. May be given more than once
    #[arg(long, value_name = "NAME=VALUE", requires = "view")]
    pub parameter: Vec<String>,
    /// Documents that match a selector, or the result of a whole body of _find
    #[arg(long, value_name = "JSON")]
    pub query: Option<String>,
    /// Columns of CSV, in this order; by default all members
    #[arg(long, value_name = "A,B.C", value_delimiter = ',')]
    pub fields: Vec<String>,
    /// In CSV, objects become a column for each member, a.b, instead of one with JSON
    #[arg(long)]
    pub flatten: bool,
    /// The character between the cells of CSV, or tab; by default tab for names that end in .tsv, also before .gz, and a comma
    /// for others
    #[arg(long, value_name = "CHARACTER", value_parser = character)]
    pub delimiter: Option<u8>,
    /// Export design documents too
    #[arg(long, conflicts_with_all = ["view", "query"])]
    pub design: bool,
    /// Export attachments too, as base64 in JSON
    #[arg(long, conflicts_with_all = ["view", "query"])]
    pub attachments: bool,
    /// Export at most this many
    #[arg(long, value_name = "NUMBER")]
    pub limit: Option<u64>,
}

const EXPORT_HELP: &str = "csv keeps values as they are. spreadsheet is CSV for Excel, LibreOffice and others: no cell is run as a formula, and texts like 007 \
and integers of 64 bits keep their digits. CSV has no _rev and no _attachments, unless --fields names them. Without --fields, CSV needs two \
passes: the first one finds the columns.

Exit status: 0 done, 1 failed, 2 the command is wrong, 3 done, but a document that was written meanwhile has members without a column.";

/// The format of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ExportFormat {
    /// One array
    Json,
    /// A line for each document
    Jsonl,
    /// A row for each document
    Csv,
    /// CSV that spreadsheets open safely
    Spreadsheet,
}

#[derive(Args)]
pub struct QueryOptions {
    /// The database, http://NAME:PASSWORD@HOST:PORT/DB
    pub database: String,
    /// A selector, or a whole body of _find, as JSON; - reads it from standard input
    #[arg(default_value = "{}")]
    pub selector: String,
    /// Fields of the result
    #[arg(long, value_name = "A,B.C", value_delimiter = ',')]
    pub fields: Vec<String>,
    /// Fields to sort by, which need an index; - before one sorts in descending order
    #[arg(
        long,
        value_name = "A,-B",
        value_delimiter = ',',
        allow_hyphen_values = true
    )]
    pub sort: Vec<String>,
    /// The index, DESIGN or DESIGN/NAME
    #[arg(long, value_name = "INDEX")]
    pub use_index: Option<String>,
    /// Documents at most, 0 for all; by default that of the body, and else 25
    #[arg(long, value_name = "NUMBER")]
    pub limit: Option<u64>,
    /// The format
    #[arg(long, value_enum, default_value_t = QueryFormat::Table)]
    pub format: QueryFormat,
    /// Print which index the query uses instead, as JSON
    #[arg(long)]
    pub explain: bool,
}

/// The format of a query's result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum QueryFormat {
    /// A table that fits the terminal
    Table,
    /// One array
    Json,
    /// A line for each document
    Jsonl,
    /// A row for each document
    Csv,
    /// CSV that spreadsheets open safely
    Spreadsheet,
}

/// A character of one byte.
fn character(text: &str) -> Result<u8, String> {
    match text.as_bytes() {
        _ if text == "tab" || text == "\\t" => Ok(b'\t'),
        [byte] if byte.is_ascii() && !byte.is_ascii_alphanumeric() && !b"\r\n".contains(byte) => {
            Ok(*byte)
        }
        _ => Err("this is not a single character, or tab".to_owned()),
    }
}

fn column_type(text: &str) -> Result<(String, ColumnType), String> {
    let found = text.rsplit_once('=').and_then(|(column, wanted)| {
        let mut types = ColumnType::NAMES.iter();
        let (_, found) = types.find(|(name, _)| *name == wanted)?;
        Some((column.to_owned(), *found))
    });
    found.ok_or_else(|| {
        let names = ColumnType::NAMES.map(|(name, _)| name).join(", ");
        format!("write COLUMN=TYPE with one of the types {names}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_and_types_are_read() {
        assert_eq!(character(";"), Ok(b';'));
        assert_eq!(character("tab"), Ok(b'\t'));
        for wrong in ["", ";;", "ä", "a", "\n"] {
            assert!(character(wrong).is_err(), "{wrong:?}");
        }
        let typed = |name: &str, kind| Ok((name.to_owned(), kind));
        assert_eq!(column_type("a=b=text"), typed("a=b", ColumnType::Text));
        assert_eq!(column_type("*=number"), typed("*", ColumnType::Number));
        assert!(column_type("a=string").is_err());
        assert!(column_type("text").is_err());
    }
}
