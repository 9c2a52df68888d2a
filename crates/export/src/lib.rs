//! Documents, rows of views and results of queries as JSON, JSON Lines or CSV.
//!
//! Elements are read one at a time from the server's response, and written before the next one is
//! read: memory holds one element, whatever the size of the result. CSV without a list of columns
//! needs two passes over the result, the first of them for the names of the columns.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod cell;
mod error;
mod file;
mod members;
mod options;
mod response;
mod sheet;
mod source;
mod table;
mod text;

use std::io::Write;

use tokio::runtime::Handle;

pub use error::ExportError;
pub use file::export_to_file;
pub use options::{ExportOptions, ExportReport, Format, Selection};
pub use table::{Table, table};

use sheet::Sheet;
use source::Source;
use text::Texts;

/// Writes the selected elements. The runtime sends the requests; the caller is not one of its
/// threads.
///
/// # Errors
/// [`ExportError`]. The output is then incomplete.
pub fn export(
    options: &ExportOptions,
    runtime: &Handle,
    out: &mut dyn Write,
) -> Result<ExportReport, ExportError> {
    let mut source = Source::new(options, runtime)?;
    match options.format {
        Format::Json | Format::JsonLines => {
            let mut texts = Texts::new(out, options.format == Format::Json);
            source.each(&mut |element| texts.add(element).map(|()| true))?;
            texts.end()?;
        }
        Format::Csv | Format::Spreadsheet => {
            let columns = sheet::columns(&mut source, options)?;
            let mut sheet = Sheet::begin(out, columns, options)?;
            source.each(&mut |element| sheet.add(element).map(|()| true))?;
            source.report.incomplete = sheet.end()?;
        }
    }
    Ok(source.report)
}

/// Passes each selected element to `visit`, which returns false to stop.
///
/// # Errors
/// [`ExportError`].
pub fn each(
    options: &ExportOptions,
    runtime: &Handle,
    visit: &mut dyn FnMut(&str) -> Result<bool, ExportError>,
) -> Result<ExportReport, ExportError> {
    let mut source = Source::new(options, runtime)?;
    source.each(visit)?;
    Ok(source.report)
}
