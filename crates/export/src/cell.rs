//! The text of a cell.

use std::borrow::Cow;

use crate::error::ExportError;

/// Spreadsheets compute with 15 digits.
const SPREADSHEET_DIGITS: usize = 15;
/// The first characters of formulas, those of full width included.
const OPERATORS: [char; 8] = [
    '=', '+', '-', '@', '\u{ff1d}', '\u{ff0b}', '\u{ff0d}', '\u{ff20}',
];
/// The first characters of texts that spreadsheets run as formulas.
const FORMULA_STARTS: [char; 11] = [
    '=', '+', '-', '@', '\t', '\r', '\n', '\u{ff1d}', '\u{ff0b}', '\u{ff0d}', '\u{ff20}',
];

/// Returns the text of a JSON value: that of a string, nothing of null, the JSON of others.
pub(crate) fn plain(value: &str) -> Result<Cow<'_, str>, ExportError> {
    match value.as_bytes().first() {
        Some(b'"') => serde_json::from_str(value)
            .map(Cow::Owned)
            .map_err(|error| ExportError::Element(error.to_string())),
        Some(b'n') => Ok(Cow::Borrowed("")),
        _ => Ok(Cow::Borrowed(value)),
    }
}

/// Returns the text of a JSON value for a spreadsheet, which would run some texts as formulas, and
/// take the zeros or digits of others. `delimiter` is that of the file.
pub(crate) fn for_spreadsheet(value: &str, delimiter: u8) -> Result<Cow<'_, str>, ExportError> {
    let text = plain(value)?;
    Ok(match value.as_bytes().first() {
        Some(b'"') => guarded(text, delimiter),
        Some(b'{' | b'[') => without_inner_formulas(text, delimiter),
        _ if is_number(&text) && digits(&text) > SPREADSHEET_DIGITS => as_text(&text),
        _ => text,
    })
}

/// Returns a text that spreadsheets show as it is.
pub(crate) fn guarded(text: Cow<'_, str>, delimiter: u8) -> Cow<'_, str> {
    if is_number(&text) {
        return as_text(&text);
    }
    let is_formula = text.trim_start_matches(' ').starts_with(FORMULA_STARTS);
    let text = without_inner_formulas(text, delimiter);
    match is_formula {
        true => Cow::Owned(format!("'{text}")),
        false => text,
    }
}

/// Puts an apostrophe before each formula within a text. Spreadsheets in other countries, which
/// expect another delimiter, ignore the quotes of a cell and divide it at semicolons, commas, tabs
/// and line breaks.
fn without_inner_formulas(text: Cow<'_, str>, delimiter: u8) -> Cow<'_, str> {
    let divides = |character: char| match character {
        '\t' | '\r' | '\n' => true,
        ',' | ';' => character != char::from(delimiter),
        _ => false,
    };
    let parts = text
        .match_indices(divides)
        .map(|(at, separator)| at + separator.len());
    let formulas: Vec<usize> = parts.filter(|at| begins_formula(&text[*at..])).collect();
    if formulas.is_empty() {
        return text;
    }
    let (mut guarded, mut begin) = (String::with_capacity(text.len() + formulas.len()), 0);
    for at in formulas {
        guarded.push_str(&text[begin..at]);
        guarded.push('\'');
        begin = at;
    }
    guarded.push_str(&text[begin..]);
    Cow::Owned(guarded)
}

/// Returns whether the part at the start of a text is a formula. A number, as in `[1,-2]`, is not.
fn begins_formula(text: &str) -> bool {
    let text = text.trim_start_matches(' ');
    if !text.starts_with(OPERATORS) {
        return false;
    }
    let end = text.find([',', ';', '\t', '\r', '\n', ']', '}']);
    !is_number(text[..end.unwrap_or(text.len())].trim_end())
}

/// The formula whose value is the text. It has digits, signs, points, commas and `e` only.
fn as_text(number: &str) -> Cow<'static, str> {
    Cow::Owned(format!("=\"{number}\""))
}

fn digits(text: &str) -> usize {
    text.bytes().filter(u8::is_ascii_digit).count()
}

/// Returns whether a spreadsheet may take a text for a number.
fn is_number(text: &str) -> bool {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (unsigned, None),
    };
    let is_power = |exponent: &str| {
        let power = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        !power.is_empty() && power.bytes().all(|byte| byte.is_ascii_digit())
    };
    mantissa.starts_with(|first: char| first.is_ascii_digit())
        && mantissa
            .bytes()
            .all(|byte| byte.is_ascii_digit() || b".,".contains(&byte))
        && exponent.is_none_or(is_power)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_cells_have_the_texts_of_values() {
        for (value, wanted) in [
            (r#""a\n\"b\"""#, "a\n\"b\""),
            ("null", ""),
            ("true", "true"),
            ("1.0", "1.0"),
            ("9223372036854775807", "9223372036854775807"),
            (r#"{"a":1}"#, r#"{"a":1}"#),
            (r#""=1+1""#, "=1+1"),
        ] {
            assert_eq!(plain(value).unwrap(), wanted);
        }
    }

    #[test]
    fn spreadsheets_get_no_formula_and_change_no_text() {
        for (value, wanted) in [
            (r#""=1+1""#, "'=1+1"),
            (r#""=\"a\"""#, "'=\"a\""),
            (r#""@SUM(A1)""#, "'@SUM(A1)"),
            (r#""+x""#, "'+x"),
            (r#""-x""#, "'-x"),
            (r#""\t=1""#, "'\t'=1"),
            (r#""＝1+1""#, "'＝1+1"),
            (r#""007""#, "=\"007\""),
            (r#""+49301234""#, "=\"+49301234\""),
            (r#""1E5""#, "=\"1E5\""),
            (r#""1.10""#, "=\"1.10\""),
            (r#""12""#, "=\"12\""),
            (r#""2026-11-30""#, "2026-11-30"),
            (r#""tea""#, "tea"),
            ("-5", "-5"),
            ("4.50", "4.50"),
            ("123456789012345", "123456789012345"),
            ("9223372036854775807", "=\"9223372036854775807\""),
            ("true", "true"),
            ("[1,2]", "[1,2]"),
        ] {
            assert_eq!(for_spreadsheet(value, b',').unwrap(), wanted, "{value}");
        }
    }

    #[test]
    fn no_part_of_a_cell_is_a_formula_for_another_delimiter() {
        for (delimiter, value, wanted) in [
            (b',', r#"" =1+1""#, "' =1+1"),
            (b',', r#""a;=1+1;b""#, "a;'=1+1;b"),
            (b',', r#""a; @x""#, "a;' @x"),
            (b',', r#""a\n-x\t+y""#, "a\n'-x\t'+y"),
            (b',', r#""=a;=b""#, "'=a;'=b"),
            (b',', r#""a;-2+3""#, "a;'-2+3"),
            (b',', r#""a;-2;b""#, "a;-2;b"),
            (b',', r#""a,=1""#, "a,=1"),
            (b';', r#""a,=1;=2""#, "a,'=1;=2"),
            (b',', r#"{"a":"x;=1"}"#, r#"{"a":"x;'=1"}"#),
            (b';', r#"[1,-2,"x,=1"]"#, r#"[1,-2,"x,'=1"]"#),
        ] {
            let cell = for_spreadsheet(value, delimiter).unwrap();
            assert_eq!(cell, wanted, "{value}");
        }
    }

    /// Whatever divides a cell, a reader finds no part that begins like a formula.
    #[test]
    fn cells_of_any_characters_have_no_formula() {
        let symbols: Vec<char> = "=+-@;,\t\n 1a".chars().collect();
        let mut seed = 1_u32;
        for _ in 0..20_000 {
            let text: String = (0..8)
                .map(|_| {
                    seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    symbols[usize::try_from(seed >> 16).unwrap() % symbols.len()]
                })
                .collect();
            let cell = guarded(Cow::Borrowed(text.as_str()), b',');
            if cell.starts_with("=\"") {
                continue;
            }
            for part in cell.split([';', '\t', '\n']) {
                let part = part.trim_matches(' ');
                let number = part.split(',').next().unwrap_or_default();
                let is_formula = part.starts_with(['=', '+', '-', '@']);
                assert!(!is_formula || is_number(number.trim_end()), "{cell:?}");
            }
        }
    }
}
