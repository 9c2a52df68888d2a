//! The text of a cell.

use std::borrow::Cow;

use crate::error::ExportError;

/// Spreadsheets compute with 15 digits.
const SPREADSHEET_DIGITS: usize = 15;
/// The first characters of texts that spreadsheets run as formulas, those of full width included.
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
/// take the zeros or digits of others.
pub(crate) fn for_spreadsheet(value: &str) -> Result<Cow<'_, str>, ExportError> {
    let text = plain(value)?;
    Ok(match value.starts_with('"') {
        true => guarded(text),
        false if is_number(&text) && digits(&text) > SPREADSHEET_DIGITS => as_text(&text),
        false => text,
    })
}

/// Returns a text that spreadsheets show as it is.
pub(crate) fn guarded(text: Cow<'_, str>) -> Cow<'_, str> {
    if is_number(&text) {
        as_text(&text)
    } else if text.starts_with(FORMULA_STARTS) {
        Cow::Owned(format!("'{text}"))
    } else {
        text
    }
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
            (r#""\t=1""#, "'\t=1"),
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
            assert_eq!(for_spreadsheet(value).unwrap(), wanted, "{value}");
        }
    }
}
