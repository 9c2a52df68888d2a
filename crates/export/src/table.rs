//! Tables for terminals.

use crate::cell::plain;
use crate::error::ExportError;
use crate::sheet::{Columns, Found};

/// The rows of a table, and which of its columns are texts.
#[derive(Debug, Default)]
pub struct Table {
    /// The names of the columns.
    pub header: Vec<String>,
    /// The cells of each element.
    pub rows: Vec<Vec<String>>,
    /// The places of columns with values other than numbers.
    pub texts: Vec<usize>,
}

/// Returns the table of elements. Its columns are the given fields, or else all members.
///
/// # Errors
/// An element that is not an object.
pub fn table(elements: &[String], fields: &[String]) -> Result<Table, ExportError> {
    let columns = columns(elements, fields)?;
    let mut table = Table {
        header: columns.names().into_iter().map(str::to_owned).collect(),
        ..Table::default()
    };
    for element in elements {
        let (values, _) = columns.values(element)?;
        let mut row = Vec::new();
        for (at, value) in values.iter().enumerate() {
            let value = value.unwrap_or("null");
            let is_number = value.starts_with(|first: char| first == '-' || first.is_ascii_digit());
            if value != "null" && !is_number && !table.texts.contains(&at) {
                table.texts.push(at);
            }
            row.push(plain(value)?.into_owned());
        }
        table.rows.push(row);
    }
    Ok(table)
}

fn columns(elements: &[String], fields: &[String]) -> Result<Columns, ExportError> {
    if !fields.is_empty() {
        return Ok(Columns::given(fields));
    }
    let mut found = Found::new(false, true);
    for element in elements {
        found.add(element)?;
    }
    found.sort();
    Ok(Columns::Found(found))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_of_numbers_are_told_from_texts() {
        let elements = [
            r#"{"_id":"a","n":1,"m":null}"#,
            r#"{"_id":"b","n":-2.5,"m":"x","o":[1]}"#,
        ];
        let elements = elements.map(str::to_owned);
        let all = table(&elements, &[]).unwrap();
        assert_eq!(all.header, ["_id", "n", "m", "o"]);
        assert_eq!(all.rows[0], ["a", "1", "", ""]);
        assert_eq!(all.texts, [0, 2, 3]);
        let fields = ["n".to_owned()];
        let one = table(&elements, &fields).unwrap();
        assert_eq!(one.rows, [["1"], ["-2.5"]]);
        assert!(one.texts.is_empty());
    }
}
