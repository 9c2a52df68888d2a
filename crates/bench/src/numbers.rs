//! Numbers as people read them.

/// A number with thousands separators; one decimal below a hundred.
pub(crate) fn number(value: f64) -> String {
    if value.abs() < 100.0 {
        return format!("{value:.1}");
    }
    let digits = format!("{value:.0}");
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Milliseconds, with as many decimals as mean something.
pub(crate) fn milliseconds(value: f64) -> String {
    match value {
        value if value < 10.0 => format!("{value:.2}"),
        value if value < 100.0 => format!("{value:.1}"),
        value => number(value),
    }
}

/// A quotient.
pub(crate) fn ratio(value: f64) -> String {
    if value < 10.0 {
        format!("{value:.2}")
    } else {
        format!("{value:.1}")
    }
}

/// A number in little room: 950, 1.2k, 34k, 5.6M.
pub(crate) fn short(value: f64) -> String {
    const UNITS: [(f64, &str); 4] = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
    match UNITS.iter().find(|(unit, _)| value.abs() >= *unit * 0.9995) {
        Some((unit, name)) => format!("{}{name}", digits(value / unit)),
        None => digits(value),
    }
}

/// Three digits, without zeroes behind the point.
fn digits(value: f64) -> String {
    let decimals = match value.abs() {
        value if value >= 99.95 || value == 0.0 => 0,
        value if value >= 9.995 => 1,
        value if value >= 0.9995 => 2,
        value => (2 - value.log10().floor() as i32).clamp(2, 9) as usize,
    };
    let text = format!("{value:.decimals$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// Bytes in decimal units.
pub(crate) fn bytes(value: f64) -> String {
    match short(value) {
        text if text.ends_with('k') => format!("{} kB", text.trim_end_matches('k')),
        text => match text.chars().last() {
            Some(unit @ ('M' | 'G' | 'T')) => format!("{} {unit}B", text.trim_end_matches(unit)),
            _ => format!("{text} B"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_numbers_have_thousands_separators() {
        assert_eq!(number(1_234_567.4), "1,234,567");
        assert_eq!(number(999.6), "1,000");
        assert_eq!(number(12.34), "12.3");
    }

    #[test]
    fn short_numbers_have_three_digits_and_a_unit() {
        for (value, text) in [
            (0.0, "0"),
            (0.25, "0.25"),
            (0.00123, "0.00123"),
            (1.0, "1"),
            (12.34, "12.3"),
            (999.96, "1k"),
            (34_120.0, "34.1k"),
            (1_500_000.0, "1.5M"),
            (2e13, "20T"),
        ] {
            assert_eq!(short(value), text);
        }
        assert_eq!(bytes(24_600_000.0), "24.6 MB");
        assert_eq!(bytes(900.0), "900 B");
        assert_eq!(bytes(1_024.0), "1.02 kB");
    }
}
