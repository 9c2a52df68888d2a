//! `settee query`.

use command_line::{Grid, server_url, terminal_width};
use export::{Format, Selection};
use reqwest::Method;
use serde_json::{Map, Value, json};
use tokio::runtime::Runtime;

use super::doctor::plain;
use super::export::{body_of, database_url, failure, print_notes, to_stdout, unless_closed};
use super::server::Server;
use crate::Failure;
use crate::cli::{QueryFormat, QueryOptions};
use crate::commands::runtime;

const LIMIT: u64 = 25;
/// Characters of a cell of a table; longer ones are cut.
const CELL_CHARS_MAX: usize = 60;

pub fn run(options: &QueryOptions) -> Result<(), Failure> {
    let body = body(options)?;
    let database = database_url(&options.database)?;
    let runtime = runtime()?;
    if options.explain {
        return runtime.block_on(explain(&database, &body));
    }
    let limit = match body.get("limit").and_then(Value::as_u64) {
        Some(0) => None,
        limit => Some(limit.unwrap_or(LIMIT)),
    };
    let run = export::ExportOptions {
        database,
        fields: fields(&body),
        selection: Selection::Query(without_limit(body)),
        format: match options.format {
            QueryFormat::Table | QueryFormat::Jsonl => Format::JsonLines,
            QueryFormat::Json => Format::Json,
            QueryFormat::Csv => Format::Csv,
            QueryFormat::Spreadsheet => Format::Spreadsheet,
        },
        flatten: false,
        delimiter: b',',
        limit,
    };
    let rows = match options.format {
        QueryFormat::Table => print_table(&run, &runtime)?,
        _ => match unless_closed(to_stdout(&run, &runtime))? {
            Some(report) => {
                print_notes(&report);
                report.rows
            }
            None => return Ok(()),
        },
    };
    if limit == Some(rows) {
        eprintln!("There may be more: --limit NUMBER, or --limit 0 for all");
    }
    Ok(())
}

/// The body of `_find`.
fn body(options: &QueryOptions) -> Result<Map<String, Value>, Failure> {
    let mut body = match options.selector.as_str() {
        "-" => body_of(&std::io::read_to_string(std::io::stdin()).map_err(Failure::new)?)?,
        selector => body_of(selector)?,
    };
    let mut set = |name: &str, value: Value| body.insert(name.to_owned(), value);
    if !options.fields.is_empty() {
        set("fields", json!(options.fields));
    }
    if !options.sort.is_empty() {
        let sort = options
            .sort
            .iter()
            .map(|field| match field.strip_prefix('-') {
                Some(field) => json!({field: "desc"}),
                None => json!({field: "asc"}),
            });
        set("sort", sort.collect());
    }
    if let Some(index) = &options.use_index {
        let index = index.strip_prefix("_design/").unwrap_or(index);
        let parts: Vec<&str> = index.splitn(2, '/').collect();
        set("use_index", json!(parts));
    }
    if let Some(limit) = options.limit {
        set("limit", limit.into());
    }
    Ok(body)
}

/// The columns of the result: the fields that the body names.
fn fields(body: &Map<String, Value>) -> Vec<String> {
    let fields = body.get("fields").and_then(Value::as_array);
    let names = fields.into_iter().flatten().filter_map(Value::as_str);
    names.map(str::to_owned).collect()
}

/// Removes the limit, which is the export's.
fn without_limit(mut body: Map<String, Value>) -> Map<String, Value> {
    body.remove("limit");
    body
}

async fn explain(database: &str, body: &Map<String, Value>) -> Result<(), Failure> {
    let server = Server::new(database, reqwest::Client::builder())?;
    let url = server_url(database)?;
    let path = format!("{}/_explain", url.path().trim_end_matches('/'));
    let request = server.request(Method::POST, &path).json(body);
    let needs = "a user who may read the database";
    let explained = server.json(request, needs).await?;
    say!("{explained:#}");
    Ok(())
}

/// Prints the documents, and returns their number.
fn print_table(options: &export::ExportOptions, runtime: &Runtime) -> Result<u64, Failure> {
    let mut documents = Vec::new();
    let report = export::each(options, runtime.handle(), &mut |document| {
        documents.push(document.to_owned());
        Ok(true)
    });
    let report = report.map_err(|error| failure(&error))?;
    let table = export::table(&documents, &options.fields).map_err(|error| failure(&error))?;
    if documents.is_empty() || table.header.is_empty() {
        say!("no documents");
    } else {
        let header: Vec<String> = table.header.iter().map(|name| shown(name)).collect();
        let header: Vec<&str> = header.iter().map(String::as_str).collect();
        let mut grid = Grid::new(&header, &table.texts);
        for row in &table.rows {
            grid.add_row(row.iter().map(|cell| shown(cell)));
        }
        say!("{}", grid.text(terminal_width()));
    }
    print_notes(&report);
    Ok(report.rows)
}

/// A cell on one line, without characters that control the terminal.
fn shown(cell: &str) -> String {
    let line = plain(&cell.replace(['\n', '\r', '\t'], " "));
    match line.char_indices().nth(CELL_CHARS_MAX) {
        Some((at, _)) => format!("{}…", &line[..at]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> QueryOptions {
        QueryOptions {
            database: "http://127.0.0.1:1/db".to_owned(),
            selector: r#"{"what":"tea"}"#.to_owned(),
            fields: vec![],
            sort: vec![],
            use_index: None,
            limit: None,
            format: QueryFormat::Table,
            explain: false,
        }
    }

    #[test]
    fn options_become_members_of_the_body() {
        let plain = body(&options()).ok().unwrap();
        assert_eq!(Value::Object(plain), json!({"selector": {"what": "tea"}}));
        let given = QueryOptions {
            fields: vec!["_id".to_owned(), "a.b".to_owned()],
            sort: vec!["price".to_owned(), "-day".to_owned()],
            use_index: Some("_design/d/prices".to_owned()),
            limit: Some(3),
            ..options()
        };
        let given = body(&given).ok().unwrap();
        assert_eq!(fields(&given), ["_id", "a.b"]);
        assert_eq!(given["sort"], json!([{"price": "asc"}, {"day": "desc"}]));
        assert_eq!(given["use_index"], json!(["d", "prices"]));
        assert_eq!(given["limit"], 3);
    }

    #[test]
    fn cells_are_cut_and_stay_on_a_line() {
        assert_eq!(shown("a\nb\u{1b}"), "a b\u{fffd}");
        let long = shown(&"ä".repeat(100));
        assert_eq!(long.chars().count(), CELL_CHARS_MAX + 1);
    }
}
