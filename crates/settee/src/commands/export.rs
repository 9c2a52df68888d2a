//! `settee export`.

use std::io::{self, BufWriter};
use std::path::Path;

use command_line::{check_output, counted, server_url};
use export::{ExportError, ExportReport, Format, Selection};
use serde_json::{Map, Value};
use tokio::runtime::Runtime;

use crate::Failure;
use crate::cli::{ExportFormat, ExportOptions, with_credentials};
use crate::commands::runtime;

pub fn run(options: &ExportOptions) -> Result<(), Failure> {
    let (format, delimiter) = format_of(options);
    check_name(options)?;
    check_format(options, format)?;
    let run = export::ExportOptions {
        database: database_url(&options.database)?,
        selection: selection(options)?,
        format,
        fields: options.fields.clone(),
        flatten: options.flatten,
        delimiter: options.delimiter.unwrap_or(delimiter),
        limit: options.limit,
    };
    let runtime = runtime()?;
    let written = match options
        .output
        .as_deref()
        .filter(|path| *path != Path::new("-"))
    {
        Some(path) => {
            check_output(path)?;
            export::export_to_file(&run, runtime.handle(), path)
        }
        None => to_stdout(&run, &runtime),
    };
    let Some(report) = unless_closed(written)? else {
        return Ok(());
    };
    print_notes(&report);
    let rows = match run.selection {
        Selection::View { .. } => "rows",
        _ => "documents",
    };
    eprintln!("exported {}", counted(report.rows, rows));
    match report.incomplete {
        0 => Ok(()),
        incomplete => Err(Failure {
            message: format!(
                "{} written during the export: their new members have no column. Export again, or name the columns (--fields)",
                counted(incomplete, "documents")
            ),
            status: 3,
        }),
    }
}

/// The URL of a database, with the credentials of the environment.
pub(super) fn database_url(text: &str) -> Result<String, Failure> {
    let url = server_url(text)?;
    if url.path().trim_matches('/').is_empty() {
        return Err(Failure::usage(
            "the database is given as http://NAME:PASSWORD@HOST:PORT/DB",
        ));
    }
    Ok(with_credentials(text))
}

/// Writes to standard output.
pub(super) fn to_stdout(
    options: &export::ExportOptions,
    runtime: &Runtime,
) -> Result<ExportReport, ExportError> {
    let mut out = BufWriter::new(io::stdout().lock());
    export::export(options, runtime.handle(), &mut out)
}

/// The report, or `None` if the reader of standard output has closed it.
pub(super) fn unless_closed(
    written: Result<ExportReport, ExportError>,
) -> Result<Option<ExportReport>, Failure> {
    match written {
        Ok(report) => Ok(Some(report)),
        Err(error) if error.is_closed_output() => Ok(None),
        Err(error) => Err(failure(&error)),
    }
}

pub(super) fn failure(error: &ExportError) -> Failure {
    match error {
        ExportError::Options(problem) => Failure::usage(problem),
        error => Failure::new(error),
    }
}

/// Prints notes about the result, which is on standard output.
pub(super) fn print_notes(report: &ExportReport) {
    for line in warning_lines(&report.warnings) {
        eprintln!("settee: {line}");
    }
    if report.without_attachments > 0 {
        eprintln!(
            "settee: the attachments of {} were left out (--attachments)",
            counted(report.without_attachments, "documents")
        );
    }
}

/// The lines of warnings, of which a server puts several into one text.
fn warning_lines(warnings: &[String]) -> impl Iterator<Item = String> {
    let lines = warnings.iter().flat_map(|warning| warning.lines());
    lines.map(|line| super::doctor::plain(line.trim_end()))
}

/// Reads a selector, or a whole body of `_find`, which has a member `selector`.
pub(super) fn body_of(text: &str) -> Result<Map<String, Value>, Failure> {
    let value: Map<String, Value> = serde_json::from_str(text).map_err(|error| {
        Failure::usage(format!(
            "the query is not a JSON object, like {{\"price\":{{\"$gt\":4}}}}: {error}"
        ))
    })?;
    if value.contains_key("selector") {
        return Ok(value);
    }
    let selector = ("selector".to_owned(), Value::Object(value));
    Ok(Map::from_iter([selector]))
}

fn selection(options: &ExportOptions) -> Result<Selection, Failure> {
    if let Some(query) = &options.query {
        return Ok(Selection::Query(body_of(query)?));
    }
    let Some(view) = &options.view else {
        return Ok(Selection::Documents {
            design: options.design,
            attachments: options.attachments,
        });
    };
    let view = view.strip_prefix("_design/").unwrap_or(view);
    let (design, view) = view
        .rsplit_once('/')
        .ok_or_else(|| Failure::usage("a view is given as DESIGN/VIEW"))?;
    let parameters = options.parameter.iter().map(|parameter| {
        let parts = parameter.split_once('=');
        let parts = parts.map(|(name, value)| (name.to_owned(), value.to_owned()));
        parts.ok_or_else(|| Failure::usage("a parameter is given as NAME=VALUE"))
    });
    Ok(Selection::View {
        design: design.to_owned(),
        view: view.to_owned(),
        parameters: parameters.collect::<Result<_, _>>()?,
    })
}

/// The given format, or that of the file's name, and the delimiter of such a file.
fn format_of(options: &ExportOptions) -> (Format, u8) {
    let name = options.output.as_deref().unwrap_or(Path::new(""));
    let name = name.to_string_lossy().to_lowercase();
    let name = name.strip_suffix(".gz").unwrap_or(&name);
    let (by_name, delimiter) = match Path::new(name).extension().and_then(|end| end.to_str()) {
        Some("json") => (Format::Json, b','),
        Some("csv") => (Format::Csv, b','),
        Some("tsv") => (Format::Csv, b'\t'),
        _ => (Format::JsonLines, b','),
    };
    let format = match options.format {
        Some(ExportFormat::Json) => Format::Json,
        Some(ExportFormat::Jsonl) => Format::JsonLines,
        Some(ExportFormat::Csv) => Format::Csv,
        Some(ExportFormat::Spreadsheet) => Format::Spreadsheet,
        None => by_name,
    };
    (format, delimiter)
}

/// Refuses options that the format would ignore.
fn check_format(options: &ExportOptions, format: Format) -> Result<(), Failure> {
    let is_csv = matches!(format, Format::Csv | Format::Spreadsheet);
    let mut fields = options.fields.iter();
    let has_attachments = fields.any(|field| field.starts_with("_attachments"));
    let problem = if is_csv && options.attachments && !has_attachments {
        "CSV has no attachments: export them with --format jsonl, or name them with --fields"
    } else if !is_csv && !options.fields.is_empty() {
        "--fields names columns of CSV: add --format csv, or select fields in --query"
    } else if !is_csv && (options.flatten || options.delimiter.is_some()) {
        "--flatten and --delimiter are for CSV: add --format csv"
    } else {
        return Ok(());
    };
    Err(Failure::usage(problem))
}

/// Refuses the name of a spreadsheet program's file, which would get JSON Lines.
fn check_name(options: &ExportOptions) -> Result<(), Failure> {
    let output = options.output.as_deref().unwrap_or(Path::new(""));
    let end = output.extension().and_then(|end| end.to_str());
    let is_spreadsheet = matches!(
        end.map(str::to_lowercase).as_deref(),
        Some("xlsx" | "xls" | "ods")
    );
    if options.format.is_some() || !is_spreadsheet {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "{}: files of this kind are not written: spreadsheets open a name with .csv and --format spreadsheet",
        output.display()
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_of_a_server_are_lines() {
        let warnings = [
            "no index\r\nmany documents".to_owned(),
            "a\u{1b}b".to_owned(),
        ];
        let lines: Vec<String> = warning_lines(&warnings).collect();
        assert_eq!(lines, ["no index", "many documents", "a\u{fffd}b"]);
    }

    #[test]
    fn a_selector_becomes_a_body() {
        let body = |text| Value::Object(body_of(text).ok().unwrap());
        let short = body(r#"{"a":1}"#);
        assert_eq!(short, serde_json::json!({"selector": {"a": 1}}));
        let long = body(r#"{"selector":{"a":1},"limit":3}"#);
        assert_eq!(long["limit"], 3);
        assert!(body_of("[1]").is_err());
    }
}
