//! Numbers as `java.text.DecimalFormat` reads them, in the way of a language.

use crate::characters::decimal_digit;

/// The number format of a language.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Numbers {
    decimal: char,
    grouping: char,
    minus: String,
    exponent: String,
}

impl Numbers {
    /// Returns the format of a language tag, `de`, `de-CH` or Java's `de_CH`; English's for an
    /// unknown one.
    pub(super) fn of(tag: Option<&str>) -> Self {
        let tag = tag.unwrap_or("en").replace('_', "-");
        let mut tag = tag.as_str();
        loop {
            if let Some(numbers) = Self::find(tag) {
                return numbers;
            }
            let Some((parent, _)) = tag.rsplit_once('-') else {
                break;
            };
            tag = parent;
        }
        Self {
            decimal: '.',
            grouping: ',',
            minus: "-".to_owned(),
            exponent: "E".to_owned(),
        }
    }

    fn find(tag: &str) -> Option<Self> {
        let lines = include_str!("../../tables/numbers.txt")
            .lines()
            .filter(|line| !line.starts_with('#'));
        let character = |digits| {
            u32::from_str_radix(digits, 16)
                .ok()
                .and_then(char::from_u32)
        };
        for line in lines {
            let (symbols, tags) = line.split_once(" : ")?;
            if tags.split(' ').any(|other| other.eq_ignore_ascii_case(tag)) {
                let mut symbols = symbols.split(' ');
                let decimal = character(symbols.next()?)?;
                let grouping = character(symbols.next()?)?;
                let minus = symbols.nth(1)?.split('+').filter_map(character).collect();
                return Some(Self {
                    decimal,
                    grouping,
                    minus,
                    exponent: symbols.next()?.to_owned(),
                });
            }
        }
        None
    }

    /// Parses the number at the start of `text`; the rest is ignored. `None` when it does not start
    /// with one.
    pub(super) fn parse(&self, text: &str) -> Option<f64> {
        let (is_negative, rest) = text
            .strip_prefix(self.minus.as_str())
            .map_or((false, text), |rest| (true, rest));
        if text.starts_with("NaN") {
            return Some(f64::NAN);
        }
        if rest.starts_with('∞') {
            return Some(if is_negative {
                f64::NEG_INFINITY
            } else {
                f64::INFINITY
            });
        }
        let mut digits = String::new();
        let mut is_fraction = false;
        for (at, character) in rest.char_indices() {
            if let Some(digit) = decimal_digit(character) {
                digits.push(char::from(b'0' + digit));
            } else if character == self.decimal && !is_fraction {
                is_fraction = true;
                digits.push('.');
            } else if character == self.grouping && !is_fraction {
            } else {
                if let Some(exponent) = rest[at..].strip_prefix(self.exponent.as_str()) {
                    self.push_exponent(exponent, &mut digits);
                }
                break;
            }
        }
        // A point without a digit on any side is not a number; an `E` needs a digit before it.
        let magnitude: f64 = digits
            .starts_with(|first: char| first.is_ascii_digit() || first == '.')
            .then(|| digits.parse().ok())??;
        Some(if is_negative { -magnitude } else { magnitude })
    }

    fn push_exponent(&self, text: &str, digits: &mut String) {
        let (sign, text) = text
            .strip_prefix(self.minus.as_str())
            .map_or(("", text), |rest| ("-", rest));
        let exponent: String = text
            .chars()
            .map_while(decimal_digit)
            .map(|digit| char::from(b'0' + digit))
            .collect();
        // An exponent that does not fit into a long is invalid, as in Java.
        if exponent.parse::<i64>().is_ok() {
            digits.push_str(&format!("e{sign}{exponent}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_java_does() {
        let english = Numbers::of(None);
        for (text, value) in [
            ("1e3", 1.0),
            ("1E3", 1000.0),
            ("5x", 5.0),
            ("5*", 5.0),
            ("-7", -7.0),
            ("1,000", 1000.0),
            (".5", 0.5),
            ("5.", 5.0),
            ("05", 5.0),
            ("1E-2", 0.01),
            ("1.2.3", 1.2),
            ("1E", 1.0),
        ] {
            assert_eq!(english.parse(text), Some(value), "{text}");
        }
        for text in ["x", "", "+5", ".", "-", "E3", "--5"] {
            assert_eq!(english.parse(text), None, "{text}");
        }
    }

    #[test]
    fn languages_have_their_own_separators() {
        assert_eq!(Numbers::of(Some("de")).parse("1.500,5"), Some(1500.5));
        assert_eq!(Numbers::of(Some("de_AT")), Numbers::of(Some("de-AT")));
        assert_eq!(Numbers::of(Some("de-CH")).parse("1’500.5"), Some(1500.5));
        assert_eq!(
            Numbers::of(Some("fr")).parse("1\u{202f}500,5"),
            Some(1500.5)
        );
        assert_eq!(Numbers::of(Some("tlh")), Numbers::of(None));
    }
}
