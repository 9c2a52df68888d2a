//! CSV: columns and rows.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io::{self, Write};

use csv::{ErrorKind, Terminator, WriterBuilder};

use crate::cell::{for_spreadsheet, guarded, plain};
use crate::error::ExportError;
use crate::members::{leaves, value_at};
use crate::options::{ExportOptions, Format, Selection};
use crate::source::Source;

/// Spreadsheets have no more columns.
const COLUMNS_MAX: usize = 16_384;
/// The mark that makes spreadsheets read UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The columns of CSV.
#[derive(Debug)]
pub(crate) enum Columns {
    /// Those that the user named, each with its path of names.
    Given(Vec<(String, Vec<String>)>),
    /// Those of all elements, each with its place.
    Found(Found),
}

/// Columns in the order in which they first occur.
#[derive(Debug, Default)]
pub(crate) struct Found {
    names: Vec<String>,
    places: HashMap<String, usize>,
    flatten: bool,
    /// Members whose names begin with `_` are not columns, except `_id`.
    are_documents: bool,
}

impl Found {
    pub(crate) fn new(flatten: bool, are_documents: bool) -> Self {
        Self {
            flatten,
            are_documents,
            ..Self::default()
        }
    }

    /// Adds the columns of an element.
    pub(crate) fn add(&mut self, element: &str) -> Result<(), ExportError> {
        for (name, _) in self.leaves(element)? {
            if self.places.contains_key(&name) {
                continue;
            }
            self.places.insert(name.clone(), self.names.len());
            self.names.push(name);
        }
        match self.names.len() <= COLUMNS_MAX {
            true => Ok(()),
            false => Err(ExportError::Options(format!(
                "there are more than {COLUMNS_MAX} columns: name those that you want (--fields)"
            ))),
        }
    }

    /// Moves `_id` to the front.
    pub(crate) fn sort(&mut self) {
        if let Some(at) = self.places.get("_id").copied() {
            let id = self.names.remove(at);
            self.names.insert(0, id);
            let places = self.names.iter().cloned().zip(0..);
            self.places = places.collect();
        }
    }

    pub(crate) fn names(&self) -> &[String] {
        &self.names
    }

    /// Returns the value of each column, and whether others were left out.
    pub(crate) fn values<'a>(
        &self,
        element: &'a str,
    ) -> Result<(Vec<Option<&'a str>>, bool), ExportError> {
        let (mut values, mut has_others) = (vec![None; self.names.len()], false);
        for (name, value) in self.leaves(element)? {
            match self.places.get(&name) {
                Some(at) => values[*at] = Some(value),
                None => has_others = true,
            }
        }
        Ok((values, has_others))
    }

    fn leaves<'a>(&self, element: &'a str) -> Result<Vec<(String, &'a str)>, ExportError> {
        let mut found = Vec::new();
        leaves(element, self.flatten, "", &mut found)?;
        if self.are_documents {
            found.retain(|(name, _)| name == "_id" || !name.starts_with('_'));
        }
        Ok(found)
    }
}

impl Columns {
    /// Columns that the user named.
    pub(crate) fn given(fields: &[String]) -> Self {
        let columns = fields.iter().map(|field| {
            let path = load::member_path(field);
            (field.clone(), path)
        });
        Self::Given(columns.collect())
    }

    pub(crate) fn names(&self) -> Vec<&str> {
        match self {
            Self::Given(columns) => columns.iter().map(|(name, _)| name.as_str()).collect(),
            Self::Found(found) => found.names().iter().map(String::as_str).collect(),
        }
    }

    /// Returns the value of each column, and whether others were left out that have no column.
    pub(crate) fn values<'a>(
        &self,
        element: &'a str,
    ) -> Result<(Vec<Option<&'a str>>, bool), ExportError> {
        match self {
            Self::Given(columns) => {
                let values = columns.iter().map(|(_, path)| value_at(element, path));
                Ok((values.collect::<Result<_, _>>()?, false))
            }
            Self::Found(found) => found.values(element),
        }
    }
}

/// Returns the columns, for which all elements are read unless they are named.
pub(crate) fn columns(
    source: &mut Source,
    options: &ExportOptions,
) -> Result<Columns, ExportError> {
    if !options.fields.is_empty() {
        return Ok(Columns::given(&options.fields));
    }
    let is_view = matches!(options.selection, Selection::View { .. });
    let mut found = Found::new(options.flatten, !is_view);
    // All rows of a view have the same members, unless those of their values are columns.
    let is_uniform = is_view && !options.flatten;
    source.each(&mut |element| {
        found.add(element)?;
        Ok(!is_uniform)
    })?;
    found.sort();
    Ok(Columns::Found(found))
}

/// Writes rows.
pub(crate) struct Sheet<'a> {
    out: csv::Writer<&'a mut dyn Write>,
    columns: Columns,
    /// The delimiter, in a file for spreadsheets.
    spreadsheet: Option<u8>,
    incomplete: u64,
}

impl<'a> Sheet<'a> {
    /// Writes the names of the columns.
    pub(crate) fn begin(
        out: &'a mut dyn Write,
        columns: Columns,
        options: &ExportOptions,
    ) -> Result<Self, ExportError> {
        let is_for_spreadsheets = options.format == Format::Spreadsheet;
        let spreadsheet = is_for_spreadsheets.then_some(options.delimiter);
        if is_for_spreadsheets {
            out.write_all(BYTE_ORDER_MARK)
                .map_err(ExportError::output)?;
        }
        let mut out = WriterBuilder::new()
            .delimiter(options.delimiter)
            .terminator(Terminator::CRLF)
            .from_writer(out);
        write_header(&mut out, &columns.names(), spreadsheet)?;
        Ok(Self {
            out,
            columns,
            spreadsheet,
            incomplete: 0,
        })
    }

    /// Writes the row of an element.
    pub(crate) fn add(&mut self, element: &str) -> Result<(), ExportError> {
        let (values, has_others) = self.columns.values(element)?;
        self.incomplete += u64::from(has_others);
        if values.is_empty() {
            return Ok(());
        }
        let cells = values
            .into_iter()
            .map(|value| match (value, self.spreadsheet) {
                (None, _) => Ok(Cow::Borrowed("")),
                (Some(value), Some(delimiter)) => for_spreadsheet(value, delimiter),
                (Some(value), None) => plain(value),
            });
        let cells: Vec<Cow<'_, str>> = cells.collect::<Result<_, _>>()?;
        write(&mut self.out, &cells)
    }

    /// Writes what is buffered. Returns the number of elements with members without a column.
    pub(crate) fn end(mut self) -> Result<u64, ExportError> {
        self.out.flush().map_err(ExportError::output)?;
        Ok(self.incomplete)
    }
}

fn write_header(
    out: &mut csv::Writer<&mut dyn Write>,
    names: &[&str],
    spreadsheet: Option<u8>,
) -> Result<(), ExportError> {
    if names.is_empty() {
        return Ok(());
    }
    let names = names.iter().map(|name| match spreadsheet {
        Some(delimiter) => guarded(Cow::Borrowed(*name), delimiter),
        None => Cow::Borrowed(*name),
    });
    write(out, &names.collect::<Vec<_>>())
}

fn write(out: &mut csv::Writer<&mut dyn Write>, cells: &[Cow<'_, str>]) -> Result<(), ExportError> {
    let written = out.write_record(cells.iter().map(|cell| cell.as_bytes()));
    written.map_err(|error| {
        let text = error.to_string();
        ExportError::output(match error.into_kind() {
            ErrorKind::Io(source) => source,
            _ => io::Error::other(text),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ELEMENTS: [&str; 3] = [
        r#"{"n":1.0,"_id":"a","_rev":"1-a","t":"=x"}"#,
        r#"{"_id":"b","o":{"x":"007","y":[1,"2"]},"t":"a,\"b\"\nc"}"#,
        r#"{"_id":"c","n":null,"n2":9223372036854775807}"#,
    ];

    fn options(format: Format, flatten: bool) -> ExportOptions {
        ExportOptions {
            database: "http://127.0.0.1:1/db".to_owned(),
            selection: Selection::Query(serde_json::Map::new()),
            format,
            fields: vec![],
            flatten,
            delimiter: b',',
            limit: None,
        }
    }

    fn sheet(columns: Columns, options: &ExportOptions) -> (String, u64) {
        let mut out = Vec::new();
        let mut sheet = Sheet::begin(&mut out, columns, options).unwrap();
        for element in ELEMENTS {
            sheet.add(element).unwrap();
        }
        let incomplete = sheet.end().unwrap();
        (String::from_utf8(out).unwrap(), incomplete)
    }

    fn found(flatten: bool, elements: &[&str]) -> Columns {
        let mut found = Found::new(flatten, true);
        for element in elements {
            found.add(element).unwrap();
        }
        found.sort();
        Columns::Found(found)
    }

    #[test]
    fn all_members_are_columns_and_ids_the_first() {
        let (text, incomplete) = sheet(found(false, &ELEMENTS), &options(Format::Csv, false));
        assert_eq!(
            text,
            "_id,n,t,o,n2\r\na,1.0,=x,,\r\n\
             b,,\"a,\"\"b\"\"\nc\",\"{\"\"x\"\":\"\"007\"\",\"\"y\"\":[1,\"\"2\"\"]}\",\r\n\
             c,,,,9223372036854775807\r\n"
        );
        assert_eq!(incomplete, 0);
    }

    #[test]
    fn spreadsheets_get_a_mark_and_guarded_cells() {
        let options = options(Format::Spreadsheet, true);
        let (text, _) = sheet(found(true, &ELEMENTS), &options);
        let lines: Vec<&str> = text.split("\r\n").collect();
        assert_eq!(lines[0], "\u{feff}_id,n,t,o.x,o.y,n2");
        assert_eq!(lines[1], "a,1.0,'=x,,,");
        assert!(lines[2].contains(r#""=""007""""#), "{}", lines[2]);
        assert_eq!(lines[3], r#"c,,,,,"=""9223372036854775807""""#);
    }

    #[test]
    fn members_without_a_column_are_counted_unless_columns_are_named() {
        let options = options(Format::Csv, false);
        let (_, incomplete) = sheet(found(false, &ELEMENTS[..1]), &options);
        assert_eq!(incomplete, 2);
        let fields = ["o.x", "_rev"].map(str::to_owned);
        let (text, incomplete) = sheet(Columns::given(&fields), &options);
        assert_eq!(
            (text.as_str(), incomplete),
            ("o.x,_rev\r\n,1-a\r\n007,\r\n,\r\n", 0)
        );
        // A column of `--flatten` can be named.
        let dotted = Columns::given(&[r"a\.b.c".to_owned()]);
        let (values, _) = dotted.values(r#"{"a.b":{"c":1}}"#).unwrap();
        assert_eq!(values, [Some("1")]);
    }
}
