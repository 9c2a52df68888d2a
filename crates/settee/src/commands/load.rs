//! `settee load`.

use command_line::{Grid, counted, decode, server_url, terminal_width};
use load::{InputFormat, Layout, Preview};

use super::doctor::plain;
use crate::Failure;
use crate::cli::{EmptyCell, LoadFormat, LoadOptions, with_credentials};
use crate::commands::runtime;

pub fn run(options: &LoadOptions) -> Result<(), Failure> {
    if options.dry_run {
        return dry_run(options);
    }
    let database = options.database.as_deref().unwrap_or_default();
    // A source has no scheme if it is a file; the database always has one.
    server_url(database)?;
    let (url, db) = database
        .trim_end_matches('/')
        .rsplit_once('/')
        .filter(|(url, db)| url.contains("://") && !url.ends_with('/') && !db.is_empty())
        .ok_or_else(|| {
            Failure::usage("the database is given as http://NAME:PASSWORD@HOST:PORT/DB")
        })?;
    let run = load::LoadOptions {
        url: with_credentials(url),
        db: decode(db),
        ..options_of(options)
    };
    match runtime()?.block_on(load::load(run)) {
        Ok(report) => {
            say!("{report}");
            if report.refused_count() > 0 {
                return Err(Failure {
                    message: format!("refused: {}", counted(report.refused_count(), "documents")),
                    status: 3,
                });
            }
            Ok(())
        }
        Err(e) => {
            // A mistake in the command line is one line.
            if e.report.read > 0 {
                say!("{}", e.report);
            }
            Err(Failure::new(&e))
        }
    }
}

/// The options of a load, but not its target.
fn options_of(options: &LoadOptions) -> load::LoadOptions {
    load::LoadOptions {
        source: options.source.clone(),
        format: options.format.map(|format| match format {
            LoadFormat::Json => InputFormat::Json,
            LoadFormat::Csv => InputFormat::Csv,
        }),
        csv: load::CsvOptions {
            delimiter: options.delimiter,
            quote: Some(options.quote),
            escape: options.escape,
            no_header: options.no_header,
            trim: options.trim,
            decimal_comma: options.decimal_comma,
            empty: match options.empty {
                EmptyCell::Omit => load::EmptyCell::Omit,
                EmptyCell::Null => load::EmptyCell::Null,
                EmptyCell::Text => load::EmptyCell::Text,
            },
            types: options.types.clone(),
            nested: options.nested,
        },
        batch_docs: options.batch,
        parallel: options.parallel,
        id_field: options.id_field.clone(),
        id_from_key: options.id_from_key,
        create: !options.no_create,
        ..load::LoadOptions::default()
    }
}

/// Prints what the start of the source becomes.
fn dry_run(options: &LoadOptions) -> Result<(), Failure> {
    let preview = runtime()?.block_on(load::preview(options_of(options)));
    let Preview {
        layout,
        documents,
        refused,
    } = preview.map_err(Failure::new)?;
    if let Some(layout) = &layout {
        print_layout(layout);
    }
    say!("The first {}:", counted(documents.len(), "documents"));
    for document in &documents {
        say!("{}", plain(&as_stored(document)));
    }
    for refusal in &refused {
        say!("Refused: {}", plain(refusal));
    }
    say!("Nothing was written (--dry-run).");
    Ok(())
}

/// Returns a document as the server stores it: of 4.50, that is 4.5.
fn as_stored(text: &str) -> String {
    let stored = document::normalise(text.as_bytes()).ok();
    let stored = stored.and_then(|stored| String::from_utf8(stored).ok());
    stored.unwrap_or_else(|| text.to_owned())
}

fn print_layout(layout: &Layout) {
    let delimiter = match layout.delimiter {
        b'\t' => "tab".to_owned(),
        delimiter => char::from(delimiter).to_string(),
    };
    let columns = counted(layout.columns.len(), "columns");
    say!("CSV with {columns}, delimiter {delimiter}\n");
    let mut grid = Grid::new(&["column", "type", "examples"], &[0, 1, 2]);
    for column in &layout.columns {
        let kind = match column.remark {
            Some(remark) => format!("{} ({remark})", column.column_type),
            None => column.column_type.to_string(),
        };
        let examples = plain(&column.examples.join(" | "));
        grid.add_row([plain(&column.name), kind, examples]);
    }
    say!("{}\n", grid.text(terminal_width()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_shown_as_they_are_stored() {
        let text =
            r#"{"_id":"a","price":4.50,"version":1.10,"big":9223372036854775807,"name":"ä"}"#;
        let stored =
            r#"{"_id":"a","price":4.5,"version":1.1,"big":9223372036854775807,"name":"ä"}"#;
        assert_eq!(as_stored(text), stored);
        assert_eq!(as_stored("no JSON"), "no JSON");
    }
}
