//! The dialect of a CSV input: its delimiter, quotes and encoding.

use std::io::{self, Read};

use crate::column::ColumnType;
use crate::scanner::{InputError, Position};

/// The bytes that the delimiter is detected from.
const SAMPLE_BYTES: u64 = 64 * 1024;
/// The lines that the delimiter is detected from.
const SAMPLE_LINES: usize = 20;
/// Delimiters that are detected. The first one is taken where none occurs.
const DELIMITERS: [u8; 4] = [b',', b';', b'\t', b'|'];
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
const UTF_16_MARKS: [&[u8]; 2] = [b"\xff\xfe", b"\xfe\xff"];
const EXTENSIONS: [&str; 4] = [".csv", ".tsv", ".csv.gz", ".tsv.gz"];

/// The error for text of another encoding.
pub(crate) const NOT_UTF_8: &str =
    "the text is not UTF-8: convert it first, for example with iconv -f WINDOWS-1252 -t UTF-8";

/// How a CSV input is read.
#[derive(Debug, Clone, Default)]
pub struct CsvOptions {
    /// The character between cells. By default it is detected from the first lines.
    pub delimiter: Option<u8>,
    /// The character around cells; by default `"`.
    pub quote: Option<u8>,
    /// The character before a quote in a quoted cell; by default such a quote is doubled.
    pub escape: Option<u8>,
    /// The first row is data. Columns are named `column1`, `column2` and so on.
    pub no_header: bool,
    /// White space around cells is removed.
    pub trim: bool,
    /// Numbers have a comma before their decimals: `4,5`.
    pub decimal_comma: bool,
    /// The value of an empty cell.
    pub empty: EmptyCell,
    /// Types of columns by name, which are otherwise detected. The name `*` is that of all others.
    pub types: Vec<(String, ColumnType)>,
    /// A column `a.b` is the member `b` of the object `a`.
    pub nested: bool,
}

/// The value of an empty cell.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum EmptyCell {
    /// Nothing: the document does not have the member.
    #[default]
    Omit,
    /// `null`.
    Null,
    /// An empty string.
    Text,
}

/// Returns whether a file or URL is CSV by its name.
pub(crate) fn is_csv(name: &str) -> bool {
    let path = match name.contains("://") {
        true => name.split(['?', '#']).next().unwrap_or_default(),
        false => name,
    };
    let path = path.to_lowercase();
    EXTENSIONS.iter().any(|extension| path.ends_with(extension))
}

/// Returns the start of an input for detection, without a byte order mark. The reader continues
/// after it.
pub(crate) fn start_of(input: &mut impl Read, name: &str) -> Result<Vec<u8>, InputError> {
    let mut start = Vec::new();
    let read = input.take(SAMPLE_BYTES).read_to_end(&mut start);
    read.map_err(|source| unreadable(name, source))?;
    if UTF_16_MARKS.iter().any(|mark| start.starts_with(mark)) {
        return Err(InputError::Syntax {
            name: name.to_owned(),
            problem:
                "the text is UTF-16: convert it first, for example with iconv -f UTF-16 -t UTF-8"
                    .to_owned(),
            position: Position { offset: 0, line: 1 },
        });
    }
    if start.starts_with(BYTE_ORDER_MARK) {
        start.drain(..BYTE_ORDER_MARK.len());
    }
    Ok(start)
}

pub(crate) fn unreadable(name: &str, source: io::Error) -> InputError {
    InputError::Read {
        name: name.to_owned(),
        source,
    }
}

/// Returns the delimiter that divides the first lines most evenly.
pub(crate) fn delimiter_of(start: &[u8], quote: u8) -> u8 {
    let lines = lines(start, quote);
    let mut best = (DELIMITERS[0], (0, 0));
    for delimiter in DELIMITERS {
        let counts: Vec<usize> = lines
            .iter()
            .map(|line| count(line, delimiter, quote))
            .collect();
        let first = counts.first().copied().unwrap_or(0);
        if first == 0 {
            continue;
        }
        let same = counts.iter().filter(|count| **count == first).count();
        if (same, first) > best.1 {
            best = (delimiter, (same, first));
        }
    }
    best.0
}

/// The first lines. A line break within quotes does not end one.
fn lines(start: &[u8], quote: u8) -> Vec<&[u8]> {
    let (mut lines, mut begin, mut quoted) = (Vec::new(), 0, false);
    for (at, byte) in start.iter().enumerate() {
        if *byte == quote {
            quoted = !quoted;
        } else if *byte == b'\n' && !quoted {
            lines.push(&start[begin..at]);
            begin = at + 1;
            if lines.len() == SAMPLE_LINES {
                return lines;
            }
        }
    }
    // The last line may be cut, unless it is the only one.
    let is_whole = (start.len() as u64) < SAMPLE_BYTES;
    if begin < start.len() && (is_whole || lines.is_empty()) {
        lines.push(&start[begin..]);
    }
    lines
}

fn count(line: &[u8], delimiter: u8, quote: u8) -> usize {
    let (mut count, mut quoted) = (0, false);
    for byte in line {
        if *byte == quote {
            quoted = !quoted;
        } else if *byte == delimiter && !quoted {
            count += 1;
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delimiter_is_the_one_that_divides_lines_evenly() {
        for (text, delimiter) in [
            ("name,price\ntea,4.5\n", b','),
            ("name;price\n\"Tea; green, loose\";4,5\nMilk;1,25\n", b';'),
            ("a;b\n1,5;2,5\n3,5;4,5\n", b';'),
            ("name\tprice\nTea, green\t4.5\n", b'\t'),
            ("a|b|c\n1|2|3", b'|'),
            ("name\nTea, green\n", b','),
            ("", b','),
            ("\"a\nb;c\",d\n1,2\n", b','),
        ] {
            assert_eq!(delimiter_of(text.as_bytes(), b'"'), delimiter, "{text:?}");
        }
    }

    #[test]
    fn names_show_what_is_csv() {
        for (name, wanted) in [
            ("a.csv", true),
            ("A.CSV.gz", true),
            ("b.tsv", true),
            ("http://h/x.csv?token=1", true),
            ("http://h/?file=x.csv", false),
            ("a.json", false),
            ("csv", false),
        ] {
            assert_eq!(is_csv(name), wanted, "{name}");
        }
    }

    #[test]
    fn marks_of_encodings_are_skipped_or_refused() {
        let start = |mut bytes: &[u8]| start_of(&mut bytes, "a.csv");
        assert_eq!(start(b"\xef\xbb\xbfa,b").unwrap(), b"a,b");
        let refused = start(b"\xff\xfea\0").unwrap_err().to_string();
        assert!(refused.contains("UTF-16"), "{refused}");
    }
}
