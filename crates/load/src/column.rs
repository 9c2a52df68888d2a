//! The types of a CSV input's columns, and the JSON of its cells.

use std::fmt::{self, Write as _};

use serde::de::IgnoredAny;
use serde_json::Value;

/// The type of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColumnType {
    /// Strings.
    Text,
    /// Integers of 64 bits.
    Integer,
    /// Numbers with decimals or an exponent, or without.
    Number,
    /// `true` and `false`.
    Boolean,
    /// Objects and arrays.
    Json,
}

impl ColumnType {
    /// Every type, with its name.
    pub const NAMES: [(&'static str, ColumnType); 5] = [
        ("text", ColumnType::Text),
        ("integer", ColumnType::Integer),
        ("number", ColumnType::Number),
        ("boolean", ColumnType::Boolean),
        ("json", ColumnType::Json),
    ];

    /// Appends the JSON of a cell, which is not empty. Returns false if the cell is not of the
    /// type; nothing is appended then.
    pub(crate) fn append(self, cell: &str, decimal_comma: bool, json: &mut String) -> bool {
        let number = match self {
            Self::Text => {
                append_text(cell, json);
                return true;
            }
            Self::Boolean => return append_boolean(cell, json),
            Self::Json => return append_json(cell, json),
            Self::Integer | Self::Number => with_point(cell, decimal_comma),
        };
        let Some(number) = number else {
            return false;
        };
        let fits = match form(&number) {
            Form::Integer => true,
            Form::Decimal => self == Self::Number,
            Form::LeadingZeros | Form::TooLong | Form::NotANumber => false,
        };
        if fits {
            json.push_str(&number);
        }
        fits
    }
}

impl fmt::Display for ColumnType {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::NAMES.iter().find(|(_, kind)| kind == self);
        out.write_str(name.map_or("", |(name, _)| *name))
    }
}

/// Appends a JSON string. A cell like `="007"`, by which spreadsheets keep a text, is that text.
pub(crate) fn append_text(cell: &str, json: &mut String) {
    let text = cell
        .strip_prefix("=\"")
        .and_then(|rest| rest.strip_suffix('"'))
        .filter(|text| !text.contains('"'))
        .unwrap_or(cell);
    // Writing to a string does not fail.
    let _ = write!(json, "{}", Value::from(text));
}

fn append_boolean(cell: &str, json: &mut String) -> bool {
    let text = match cell {
        "true" | "TRUE" | "True" => "true",
        "false" | "FALSE" | "False" => "false",
        _ => return false,
    };
    json.push_str(text);
    true
}

fn append_json(cell: &str, json: &mut String) -> bool {
    let is_json = cell.starts_with(['{', '[']) && serde_json::from_str::<IgnoredAny>(cell).is_ok();
    if is_json {
        json.push_str(cell);
    }
    is_json
}

/// The number with a decimal point; `None` if it has the other sign.
fn with_point(cell: &str, decimal_comma: bool) -> Option<String> {
    match decimal_comma {
        false => Some(cell.to_owned()),
        true if cell.contains('.') => None,
        true => Some(cell.replace(',', ".")),
    }
}

/// The kind of number in a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Integer,
    Decimal,
    /// A code: `007`.
    LeadingZeros,
    /// More digits than programs keep.
    TooLong,
    NotANumber,
}

/// More digits than these change when a program reads the number as a double.
const DIGITS_MAX: usize = 17;

/// Classifies a cell. Numbers are those of JSON. `1E5` is not a number, because codes look like
/// that: an exponent needs a sign, or decimals before it.
fn form(cell: &str) -> Form {
    let unsigned = cell.strip_prefix('-').unwrap_or(cell);
    let (mantissa, exponent) = split(unsigned, &['e', 'E']);
    let (whole, decimals) = split(mantissa, &['.']);
    let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !is_digits(whole) || decimals.is_some_and(|decimals| !is_digits(decimals)) {
        return Form::NotANumber;
    }
    if let Some(exponent) = exponent {
        let power = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        let is_sure = decimals.is_some() || power.len() < exponent.len();
        if !is_digits(power) || !is_sure {
            return Form::NotANumber;
        }
    }
    if whole.len() > 1 && whole.starts_with('0') {
        return Form::LeadingZeros;
    }
    if decimals.is_none() && exponent.is_none() {
        let fits = cell.parse::<i64>().is_ok() || cell.parse::<u64>().is_ok();
        return if fits { Form::Integer } else { Form::TooLong };
    }
    let digits = whole.len() + decimals.map_or(0, str::len);
    let is_finite = cell.parse::<f64>().is_ok_and(f64::is_finite);
    match digits <= DIGITS_MAX && is_finite {
        true => Form::Decimal,
        false => Form::TooLong,
    }
}

fn split<'a>(text: &'a str, at: &[char]) -> (&'a str, Option<&'a str>) {
    match text.split_once(at) {
        Some((before, after)) => (before, Some(after)),
        None => (text, None),
    }
}

/// The columns of a CSV input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// The character between cells.
    pub delimiter: u8,
    /// The columns, from left to right.
    pub columns: Vec<Column>,
}

/// A column of a CSV input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Its name in the header.
    pub name: String,
    /// The type of its cells.
    pub column_type: ColumnType,
    /// Why a column that looks like numbers is text.
    pub remark: Option<&'static str>,
    /// The first different cells.
    pub examples: Vec<String>,
}

/// Counts of a column's cells by kind.
#[derive(Debug, Clone, Default)]
pub(crate) struct Observed {
    cells: u64,
    integers: u64,
    decimals: u64,
    booleans: u64,
    json: u64,
    leading_zeros: u64,
    too_long: u64,
}

impl Observed {
    /// Counts a cell, which is not empty.
    pub(crate) fn observe(&mut self, cell: &str, decimal_comma: bool) {
        self.cells += 1;
        let number = with_point(cell, decimal_comma);
        match number.map_or(Form::NotANumber, |number| form(&number)) {
            Form::Integer => self.integers += 1,
            Form::Decimal => self.decimals += 1,
            Form::LeadingZeros => self.leading_zeros += 1,
            Form::TooLong => self.too_long += 1,
            Form::NotANumber => {
                let mut json = String::new();
                if append_boolean(cell, &mut json) {
                    self.booleans += 1;
                } else if append_json(cell, &mut json) {
                    self.json += 1;
                }
            }
        }
    }

    /// The type that all cells have. A column without cells is text.
    pub(crate) fn column_type(&self) -> ColumnType {
        let numbers = self.integers + self.decimals;
        match self.cells {
            0 => ColumnType::Text,
            cells if cells == self.integers => ColumnType::Integer,
            cells if cells == numbers => ColumnType::Number,
            cells if cells == self.booleans => ColumnType::Boolean,
            cells if cells == self.json => ColumnType::Json,
            _ => ColumnType::Text,
        }
    }

    /// Why a column that looks like numbers is text.
    pub(crate) fn remark(&self) -> Option<&'static str> {
        let digits = self.integers + self.decimals + self.leading_zeros + self.too_long;
        match self.cells == digits && self.cells > 0 {
            true if self.leading_zeros > 0 => Some("leading zeros are kept"),
            true if self.too_long > 0 => Some("more digits than 64 bits hold"),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn observed(cells: &[&str]) -> Observed {
        let mut observed = Observed::default();
        for cell in cells {
            observed.observe(cell, false);
        }
        observed
    }

    fn json(kind: ColumnType, cell: &str) -> Option<String> {
        let mut json = String::new();
        kind.append(cell, false, &mut json).then_some(json)
    }

    #[test]
    fn a_type_is_that_of_all_cells() {
        for (cells, wanted) in [
            (&["1", "-2", "0"][..], ColumnType::Integer),
            (
                &["9223372036854775807", "18446744073709551615"],
                ColumnType::Integer,
            ),
            (&["1", "4.50", "-0.5", "1.5e10", "1e-7"], ColumnType::Number),
            (&["true", "FALSE"], ColumnType::Boolean),
            (&["[1,2]", "{\"a\":1}"], ColumnType::Json),
            (&["01234", "98765"], ColumnType::Text),
            (&["18446744073709551616"], ColumnType::Text),
            (&["0.123456789012345678"], ColumnType::Text),
            (&["1E5", "2E7"], ColumnType::Text),
            (&["1.5e999"], ColumnType::Text),
            (&["1", "x"], ColumnType::Text),
            (&["1", "true"], ColumnType::Text),
            (
                &["+1", ".5", "5.", "1,5", "0x1f", "NaN", "-", "1 "],
                ColumnType::Text,
            ),
            (&["[1", "{}"], ColumnType::Text),
            (&[], ColumnType::Text),
        ] {
            assert_eq!(observed(cells).column_type(), wanted, "{cells:?}");
        }
        assert!(observed(&["01", "2"]).remark().is_some());
        assert!(observed(&["01", "x"]).remark().is_none());
        assert!(observed(&["1", "2"]).remark().is_none());
    }

    #[test]
    fn numbers_keep_their_text_and_texts_their_characters() {
        let max = "9223372036854775807";
        assert_eq!(json(ColumnType::Integer, max).as_deref(), Some(max));
        assert_eq!(json(ColumnType::Number, "4.50").as_deref(), Some("4.50"));
        assert_eq!(json(ColumnType::Integer, "4.5"), None);
        assert_eq!(json(ColumnType::Integer, "007"), None);
        assert_eq!(json(ColumnType::Text, "007").as_deref(), Some("\"007\""));
        assert_eq!(
            json(ColumnType::Text, "=\"007\"").as_deref(),
            Some("\"007\"")
        );
        assert_eq!(
            json(ColumnType::Text, "a\"\n").as_deref(),
            Some("\"a\\\"\\n\"")
        );
        assert_eq!(json(ColumnType::Boolean, "TRUE").as_deref(), Some("true"));
    }

    #[test]
    fn a_decimal_comma_becomes_a_point() {
        let mut json = String::new();
        assert!(ColumnType::Number.append("-4,50", true, &mut json));
        assert_eq!(json, "-4.50");
        assert!(!ColumnType::Number.append("4.50", true, &mut json));
        assert!(!ColumnType::Number.append("1,234,567", true, &mut json));
    }

    const SYMBOLS: &[u8] = b"0123456789.eE+-";

    /// Whatever is taken for a number is a number of JSON and has the same text.
    #[test]
    fn numbers_are_those_of_json() {
        let mut random = fastrand::Rng::with_seed(11);
        for _ in 0..50_000 {
            let cell: String = (0..random.usize(1..9))
                .map(|_| char::from(SYMBOLS[random.usize(..SYMBOLS.len())]))
                .collect();
            for kind in [ColumnType::Integer, ColumnType::Number] {
                if let Some(json) = json(kind, &cell) {
                    assert_eq!(json, cell);
                    let value: Value = serde_json::from_str(&json).unwrap();
                    assert!(value.is_number(), "{cell}");
                }
            }
        }
    }
}
