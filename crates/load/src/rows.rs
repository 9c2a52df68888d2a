//! Documents from the rows of a CSV input.

use std::cell::Cell;
use std::io::{self, Read};
use std::rc::Rc;

use csv::{ErrorKind, ReaderBuilder, StringRecord, Trim};

use crate::collector::Collector;
use crate::column::{Column, ColumnType, Layout, Observed};
use crate::dialect::{self, CsvOptions, EmptyCell, NOT_UTF_8};
use crate::document::{self, IdSource, Item};
use crate::scanner::{InputError, Position};
use crate::shape::{self, Member, MemberValue};

/// The rows that types are detected from.
const SAMPLE_ROWS: usize = 10_000;
/// The characters of these rows.
const SAMPLE_CHARS: usize = 8 << 20;
/// A single row may not be larger: it is held in memory, and no server takes such a document.
const ROW_BYTES_MAX: u64 = 256 << 20;
/// Different cells of a column that are kept as examples, and their characters.
const EXAMPLES_MAX: usize = 3;
const EXAMPLE_CHARS: usize = 30;
/// More columns are the sign of another format, or of another delimiter.
const COLUMNS_MAX: usize = 16_384;
/// Names of columns in an error message.
const NAMES_SHOWN: usize = 20;
/// Columns that are always text.
const TEXTS: [&str; 2] = ["_id", "_rev"];

/// How an input becomes documents.
#[derive(Clone, Copy)]
pub(crate) struct RowRules<'a> {
    /// The input's name, for error messages.
    pub(crate) name: &'a str,
    pub(crate) options: &'a CsvOptions,
    /// The column whose cells are ids.
    pub(crate) id_field: Option<&'a str>,
}

/// Reads the input to its end, or until the collector stops.
pub(crate) fn documents(
    mut input: impl Read,
    rules: RowRules<'_>,
    collector: &mut dyn Collector,
) -> Result<(), InputError> {
    let start = dialect::start_of(&mut input, rules.name)?;
    let quote = rules.options.quote.unwrap_or(b'"');
    let detected = || dialect::delimiter_of(&start, quote);
    let delimiter = rules.options.delimiter.unwrap_or_else(detected);
    let mut rows = Rows::new(io::Cursor::new(start).chain(input), rules, delimiter);
    let Some(first) = rows.row()? else {
        return Ok(());
    };
    let names = column_names(&first, rules.options);
    let mut sample = rows.sample()?;
    if rules.options.no_header {
        sample.insert(0, first);
    }
    let mut table = Table::new(names, &sample, rules)?;
    let layout = Layout {
        delimiter,
        columns: table.columns.clone(),
    };
    collector.layout(&layout);
    for row in sample {
        if !table.pass(&row, collector)? {
            return Ok(());
        }
    }
    while let Some(row) = rows.row()? {
        if !table.pass(&row, collector)? {
            return Ok(());
        }
    }
    table.note_misfits(collector);
    Ok(())
}

fn column_names(first: &StringRecord, options: &CsvOptions) -> Vec<String> {
    let names = first
        .iter()
        .enumerate()
        .map(|(at, cell)| match cell.trim() {
            name if name.is_empty() || options.no_header => format!("column{}", at + 1),
            name => name.to_owned(),
        });
    names.collect()
}

fn wrong(name: &str, problem: String, position: Position) -> InputError {
    InputError::Syntax {
        name: name.to_owned(),
        problem,
        position,
    }
}

fn place(position: Option<&csv::Position>) -> Position {
    match position {
        Some(position) => Position {
            offset: position.byte(),
            line: position.line(),
        },
        None => Position { offset: 0, line: 1 },
    }
}

/// The rows of an input.
struct Rows<'a, R> {
    reader: csv::Reader<Limited<R>>,
    name: &'a str,
    /// Bytes read since the last row.
    since_row: Rc<Cell<u64>>,
}

impl<'a, R: Read> Rows<'a, R> {
    fn new(input: R, rules: RowRules<'a>, delimiter: u8) -> Self {
        let options = rules.options;
        let since_row = Rc::new(Cell::new(0));
        let input = Limited {
            input,
            since_row: since_row.clone(),
        };
        let reader = ReaderBuilder::new()
            .has_headers(false)
            .flexible(true)
            .delimiter(delimiter)
            .quote(options.quote.unwrap_or(b'"'))
            .escape(options.escape)
            .double_quote(options.escape.is_none())
            .trim(if options.trim { Trim::All } else { Trim::None })
            .from_reader(input);
        Rows {
            reader,
            name: rules.name,
            since_row,
        }
    }

    fn row(&mut self) -> Result<Option<StringRecord>, InputError> {
        let mut row = StringRecord::new();
        self.since_row.set(0);
        match self.reader.read_record(&mut row) {
            Ok(true) => Ok(Some(row)),
            Ok(false) => Ok(None),
            Err(error) => Err(self.failure(error)),
        }
    }

    fn failure(&self, error: csv::Error) -> InputError {
        let (text, position) = (error.to_string(), place(error.position()));
        match error.into_kind() {
            ErrorKind::Io(source) => dialect::unreadable(self.name, source),
            ErrorKind::Utf8 { .. } => wrong(self.name, NOT_UTF_8.to_owned(), position),
            _ => wrong(self.name, text, position),
        }
    }

    /// The rows that types are detected from.
    fn sample(&mut self) -> Result<Vec<StringRecord>, InputError> {
        let (mut sample, mut chars) = (Vec::new(), 0);
        while sample.len() < SAMPLE_ROWS && chars < SAMPLE_CHARS {
            let Some(row) = self.row()? else {
                break;
            };
            chars += row.as_slice().len();
            sample.push(row);
        }
        Ok(sample)
    }
}

/// An input that fails when a row does not end, as behind a missing quote.
struct Limited<R> {
    input: R,
    since_row: Rc<Cell<u64>>,
}

impl<R: Read> Read for Limited<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let bytes = self.input.read(out)?;
        let total = self.since_row.get() + bytes as u64;
        if total > ROW_BYTES_MAX {
            return Err(io::Error::other(format!(
                "a row of more than {} MB: a quote is missing, or the quotes are others (--quote)",
                ROW_BYTES_MAX >> 20
            )));
        }
        self.since_row.set(total);
        Ok(bytes)
    }
}

/// The columns, and how their cells become documents.
struct Table<'a> {
    rules: RowRules<'a>,
    columns: Vec<Column>,
    members: Vec<Member>,
    /// The place of the column whose cells are ids.
    id_at: Option<usize>,
    /// Cells of each column that were not of its type.
    misfits: Vec<u64>,
}

/// Describes a column whose place in the documents another column has.
fn doubled(names: &[String], name: &str) -> String {
    match names.iter().filter(|other| *other == name).count() {
        0 | 1 => format!("with --nested, the column {name:?} has the place of another column"),
        count => format!("{count} columns have the name {name:?}: rename all but one"),
    }
}

impl<'a> Table<'a> {
    fn new(
        names: Vec<String>,
        sample: &[StringRecord],
        rules: RowRules<'a>,
    ) -> Result<Self, InputError> {
        let refuse = |problem| wrong(rules.name, problem, place(None));
        if names.len() > COLUMNS_MAX {
            return Err(refuse(format!(
                "the first row has {} cells, at most {COLUMNS_MAX} can be read: is this CSV, and what is its delimiter (--delimiter)?",
                names.len()
            )));
        }
        let given = rules.options.types.iter().map(|(name, _)| name.as_str());
        let mut wanted = given.filter(|name| *name != "*").chain(rules.id_field);
        if let Some(absent) = wanted.find(|wanted| !names.iter().any(|name| name == wanted)) {
            return Err(refuse(format!(
                "there is no column {absent:?}; the columns are {}",
                shown(&names)
            )));
        }
        let members = shape::members(&names, rules.options.nested)
            .map_err(|name| refuse(doubled(&names, &name)))?;
        let place_of = |id: &str| names.iter().position(|name| name == id);
        let id_at = rules.id_field.and_then(place_of);
        let columns = names
            .into_iter()
            .enumerate()
            .map(|(at, name)| column(name, sample.iter().filter_map(|row| row.get(at)), rules))
            .collect::<Vec<_>>();
        Ok(Table {
            rules,
            id_at,
            misfits: vec![0; columns.len()],
            columns,
            members,
        })
    }

    /// Passes the document of a row. Returns false to stop.
    fn pass(
        &mut self,
        row: &StringRecord,
        collector: &mut dyn Collector,
    ) -> Result<bool, InputError> {
        let position = place(row.position());
        // Spreadsheets write rows of delimiters alone.
        if row.iter().all(str::is_empty) {
            return Ok(true);
        }
        if row.len() > self.columns.len() {
            let (cells, columns) = (row.len(), self.columns.len());
            return Ok(collector.collect(Item::Refused {
                label: format!("at {position}"),
                reason: format!("the row has {cells} cells, the header {columns}"),
            }));
        }
        let mut writing = Writing {
            options: self.rules.options,
            columns: &self.columns,
            misfits: &mut self.misfits,
            row,
            json: String::with_capacity(row.as_slice().len() * 2),
        };
        writing.object(&self.members);
        let id = self.id_at.and_then(|at| row.get(at));
        let ids = match (self.rules.id_field, id.filter(|id| !id.is_empty())) {
            (None, _) => IdSource::Server,
            // The document has no member `a.b`: it is the member `b` of `a`.
            (Some(column), Some(id)) if self.rules.options.nested && column.contains('.') => {
                IdSource::Given(id)
            }
            (Some(column), _) => IdSource::Member(column),
        };
        match document::document(writing.json.as_bytes(), position, ids) {
            Ok(item) => Ok(collector.collect(item)),
            Err(malformed) => Err(wrong(self.rules.name, malformed.problem, position)),
        }
    }

    fn note_misfits(&self, collector: &mut dyn Collector) {
        for (column, misfits) in self.columns.iter().zip(&self.misfits) {
            if *misfits > 0 {
                let (name, column_type) = (column.name.escape_debug(), column.column_type);
                let cells = command_line::counted(*misfits, "cells");
                collector.note(format!(
                    "column \"{name}\": {cells} not of the type {column_type}, kept as text (--type {name}=text keeps the others as text too)"
                ));
            }
        }
    }
}

/// Returns the first names, on one line.
fn shown(names: &[String]) -> String {
    let first: Vec<String> = names
        .iter()
        .take(NAMES_SHOWN)
        .map(|name| name.escape_debug().to_string())
        .collect();
    let more = if names.len() > NAMES_SHOWN {
        ", …"
    } else {
        ""
    };
    format!("{}{more}", first.join(", "))
}

/// Detects the type of a column, unless it is given.
fn column<'a>(name: String, cells: impl Iterator<Item = &'a str>, rules: RowRules<'_>) -> Column {
    let options = rules.options;
    let mut observed = Observed::default();
    let mut examples: Vec<String> = Vec::new();
    for cell in cells.filter(|cell| !cell.is_empty()) {
        observed.observe(cell, options.decimal_comma);
        if examples.len() < EXAMPLES_MAX {
            let example: String = cell.chars().take(EXAMPLE_CHARS).collect();
            if !examples.contains(&example) {
                examples.push(example);
            }
        }
    }
    let given = |wanted: &str| {
        let mut types = options.types.iter();
        types
            .find(|(name, _)| name == wanted)
            .map(|(_, kind)| *kind)
    };
    let always = TEXTS.contains(&name.as_str()).then_some(ColumnType::Text);
    let given = given(&name).or(always).or_else(|| given("*"));
    Column {
        name,
        column_type: given.unwrap_or_else(|| observed.column_type()),
        remark: observed.remark().filter(|_| given.is_none()),
        examples,
    }
}

/// A row on its way to a document.
struct Writing<'a> {
    options: &'a CsvOptions,
    columns: &'a [Column],
    misfits: &'a mut [u64],
    row: &'a StringRecord,
    json: String,
}

impl Writing<'_> {
    /// Appends an object, and returns whether it has members.
    fn object(&mut self, members: &[Member]) -> bool {
        let begin = self.json.len();
        self.json.push('{');
        for member in members {
            let before = self.json.len();
            if before > begin + 1 {
                self.json.push(',');
            }
            self.json.push_str(&member.key);
            let is_written = match &member.value {
                MemberValue::Cell(at) => self.cell(*at),
                MemberValue::Object(inner) => self.object(inner),
            };
            if !is_written {
                self.json.truncate(before);
            }
        }
        self.json.push('}');
        self.json.len() > begin + 2
    }

    /// Appends the value of a cell, and returns whether it has one.
    fn cell(&mut self, at: usize) -> bool {
        let cell = self.row.get(at).unwrap_or_default();
        if cell.is_empty() {
            match self.options.empty {
                EmptyCell::Omit => return false,
                EmptyCell::Null => self.json.push_str("null"),
                EmptyCell::Text => self.json.push_str("\"\""),
            }
            return true;
        }
        let (column_type, comma) = (self.columns[at].column_type, self.options.decimal_comma);
        if !column_type.append(cell, comma, &mut self.json) {
            self.misfits[at] += 1;
            ColumnType::Text.append(cell, comma, &mut self.json);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Collects the texts of documents, the reasons of refusals, and notes.
    #[derive(Default)]
    struct Collected {
        documents: Vec<String>,
        refused: Vec<String>,
        notes: Vec<String>,
        types: Vec<String>,
    }

    impl Collector for Collected {
        fn collect(&mut self, item: Item) -> bool {
            match item {
                Item::Document(document) => self.documents.push(document.text),
                Item::Refused { reason, .. } => self.refused.push(reason),
                Item::NotADocument => {}
            }
            true
        }

        fn layout(&mut self, layout: &Layout) {
            let types = layout.columns.iter().map(|c| c.column_type.to_string());
            self.types = types.collect();
        }

        fn note(&mut self, text: String) {
            self.notes.push(text);
        }
    }

    fn read(
        text: &[u8],
        options: &CsvOptions,
        id_field: Option<&str>,
    ) -> Result<Collected, InputError> {
        let mut collected = Collected::default();
        let rules = RowRules {
            name: "a.csv",
            options,
            id_field,
        };
        documents(text, rules, &mut collected).map(|()| collected)
    }

    fn documents_of(text: &str, options: &CsvOptions) -> Vec<String> {
        read(text.as_bytes(), options, None).unwrap().documents
    }

    #[test]
    fn columns_of_one_place_are_named() {
        let names = ["a", "b", "a"].map(str::to_owned);
        assert_eq!(
            doubled(&names, "a"),
            "2 columns have the name \"a\": rename all but one"
        );
        assert!(doubled(&["a", "a.b"].map(str::to_owned), "a.b").starts_with("with --nested"));
    }

    #[test]
    fn cells_have_the_types_of_their_columns() {
        let text = "zip,n,big,price,ok,tags,name\r\n\
                    01234,1,9223372036854775807,4.50,true,\"[1,\"\"a\"\"]\",\"Ä \"\"x\"\"\ny\"\r\n\
                    98765,,-1,3,FALSE,{},\r\n,,,,,,\r\n";
        let collected = read(text.as_bytes(), &CsvOptions::default(), None).unwrap();
        assert_eq!(
            collected.types,
            [
                "text", "integer", "integer", "number", "boolean", "json", "text"
            ]
        );
        assert_eq!(
            collected.documents,
            [
                r#"{"zip":"01234","n":1,"big":9223372036854775807,"price":4.50,"ok":true,"tags":[1,"a"],"name":"Ä \"x\"\ny"}"#,
                r#"{"zip":"98765","big":-1,"price":3,"ok":false,"tags":{}}"#,
            ]
        );
    }

    #[test]
    fn options_decide_what_cells_become() {
        let given = CsvOptions {
            types: vec![
                ("n".to_owned(), ColumnType::Text),
                ("*".to_owned(), ColumnType::Number),
            ],
            empty: EmptyCell::Null,
            ..CsvOptions::default()
        };
        assert_eq!(
            documents_of("n,m\n1,2\n,\n3,\n", &given),
            [r#"{"n":"1","m":2}"#, r#"{"n":"3","m":null}"#]
        );
        let german = CsvOptions {
            decimal_comma: true,
            nested: true,
            trim: true,
            ..CsvOptions::default()
        };
        assert_eq!(
            documents_of("\u{feff}a.b; a.c ;d\n1,5;x;\n;; y\n", &german),
            [r#"{"a":{"b":1.5,"c":"x"}}"#, r#"{"d":"y"}"#]
        );
        let other = CsvOptions {
            quote: Some(b'\''),
            escape: Some(b'\\'),
            delimiter: Some(b':'),
            no_header: true,
            ..CsvOptions::default()
        };
        assert_eq!(
            documents_of("'a\\'b:c':2\n", &other),
            [r#"{"column1":"a'b:c","column2":2}"#]
        );
    }

    #[test]
    fn ids_are_texts_of_a_column() {
        let options = CsvOptions::default();
        let collected = read(b"code,n\n007,1\n8,2\n", &options, Some("code")).unwrap();
        assert_eq!(
            collected.documents[0],
            r#"{"_id":"007","code":"007","n":1}"#
        );
        let own = documents_of("_id,n\n1,1\n2,2\n", &options);
        assert_eq!(own[0], r#"{"_id":"1","n":1}"#);
        let numbers = read(b"code\n7\n", &options, Some("code")).unwrap();
        assert_eq!(numbers.documents[0], r#"{"_id":"7","code":7}"#);
        let nested = CsvOptions {
            nested: true,
            ..CsvOptions::default()
        };
        let within = read(b"a.id,n\n7,1\n,2\n", &nested, Some("a.id")).unwrap();
        assert_eq!(within.documents, [r#"{"_id":"7","a":{"id":7},"n":1}"#]);
        assert_eq!(within.refused.len(), 1);
        let absent = read(b"code\n7\n", &options, Some("cod")).err().unwrap();
        assert!(absent.to_string().contains("no column \"cod\""), "{absent}");
        let text = format!("a\u{1b}[31m{}\n1\n", ",b".repeat(100));
        let absent = read(text.as_bytes(), &options, Some("cod")).err().unwrap();
        let absent = absent.to_string();
        assert!(absent.len() < 300 && !absent.contains('\u{1b}'), "{absent}");
    }

    #[test]
    fn rows_that_do_not_fit_are_refused_or_noted() {
        let mut text = "n\n".to_owned();
        for _ in 0..SAMPLE_ROWS {
            text.push_str("1\n");
        }
        text.push_str("001\n1,2\n");
        let collected = read(text.as_bytes(), &CsvOptions::default(), None).unwrap();
        assert_eq!(collected.documents.last().unwrap(), r#"{"n":"001"}"#);
        assert_eq!(collected.refused, ["the row has 2 cells, the header 1"]);
        assert!(collected.notes[0].contains("1 cell not of the type integer"));
    }

    #[test]
    fn other_encodings_and_double_names_are_refused() {
        let refusal = |text: &[u8]| {
            let refused = read(text, &CsvOptions::default(), None).err().unwrap();
            refused.to_string()
        };
        let latin = refusal(b"a\nx\nM\xfcnchen\n");
        assert!(
            latin.contains("not UTF-8") && latin.contains("line 3"),
            "{latin}"
        );
        assert!(refusal(b"a,b,a\n1,2,3\n").contains("2 columns have the name"));
        let wide = refusal(",".repeat(COLUMNS_MAX).as_bytes());
        assert!(wide.contains("16385 cells"), "{wide}");
    }
}
