//! Numbers as Java reads and writes them.

/// `Double.parseDouble` for what Clouseau's regular expression of a number accepts; `None` for
/// anything else.
pub(super) fn parse_double(text: &str) -> Option<f64> {
    let text = text.trim_matches(|character: char| character <= ' ');
    let (is_negative, unsigned) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let magnitude = match unsigned {
        "NaN" => f64::NAN,
        "Infinity" => f64::INFINITY,
        _ => {
            let digits = unsigned.strip_suffix(['f', 'F', 'd', 'D']);
            match unsigned.get(..2) {
                // A hexadecimal number has an exponent, so that its `d` or `f` is a suffix only
                // after it.
                Some("0x" | "0X") => {
                    hexadecimal(digits.unwrap_or(unsigned)).or_else(|| hexadecimal(unsigned))?
                }
                _ => decimal(digits.unwrap_or(unsigned))?,
            }
        }
    };
    Some(if is_negative { -magnitude } else { magnitude })
}

/// `12`, `12.`, `12.5`, `.5`, each with or without an exponent.
fn decimal(text: &str) -> Option<f64> {
    let (mantissa, exponent) = text
        .split_once(['e', 'E'])
        .map_or((text, None), |(mantissa, exponent)| {
            (mantissa, Some(exponent))
        });
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let all_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let has_digits = !whole.is_empty() || !fraction.is_empty();
    let has_exponent = exponent.is_none_or(|exponent| {
        let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        !digits.is_empty() && all_digits(digits)
    });
    (has_digits && has_exponent && all_digits(whole) && all_digits(fraction))
        .then(|| text.parse().ok())?
}

/// `0x1.8p3`.
fn hexadecimal(text: &str) -> Option<f64> {
    let (mantissa, exponent) = text.get(2..)?.split_once(['p', 'P'])?;
    let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let exponent: i32 = exponent.parse().unwrap_or(if exponent.starts_with('-') {
        i32::MIN / 2
    } else {
        i32::MAX / 2
    });
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let mut value = 0.0_f64;
    for digit in whole.chars().chain(fraction.chars()) {
        value = value * 16.0 + f64::from(digit.to_digit(16)?);
    }
    let scale = i32::try_from(fraction.len()).ok()?.checked_mul(4)?;
    Some(value * f64::powi(2.0, exponent.saturating_sub(scale)))
}

/// `Float.valueOf`, where its callers ignore what it refuses.
pub(super) fn parse_float(text: &str) -> Option<f32> {
    // Java accepts the same forms for both widths.
    let value = parse_double(text)?;
    text.trim()
        .trim_end_matches(['f', 'F', 'd', 'D'])
        .parse()
        .ok()
        .or(Some(value as f32))
}

/// `Double.toString`.
pub(super) fn double_to_string(value: f64) -> String {
    to_java(&format!("{value:e}"), value.is_finite())
}

/// `Float.toString`.
pub(super) fn float_to_string(value: f32) -> String {
    to_java(&format!("{value:e}"), value.is_finite())
}

/// From Rust's shortest digits (`-1.25e-7`) to Java's form: plain from 0.001 on and below 10
/// million.
fn to_java(scientific: &str, is_finite: bool) -> String {
    if !is_finite {
        return scientific.replace("inf", "Infinity");
    }
    let (mantissa, exponent) = scientific
        .split_once('e')
        .expect("the format has an exponent");
    let (sign, mantissa) = mantissa
        .strip_prefix('-')
        .map_or(("", mantissa), |mantissa| ("-", mantissa));
    let exponent: i32 = exponent.parse().expect("the exponent is a number");
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    let is_zero = digits.bytes().all(|digit| digit == b'0');
    match exponent {
        _ if is_zero => format!("{sign}0.0"),
        -3..0 => format!("{sign}0.{}{digits}", "0".repeat((-exponent - 1) as usize)),
        0..7 => {
            let point = exponent as usize + 1;
            let padded = format!("{digits:0<width$}", width = point + 1);
            format!("{sign}{}.{}", &padded[..point], &padded[point..])
        }
        _ => format!(
            "{sign}{}.{}E{exponent}",
            &digits[..1],
            if digits.len() > 1 { &digits[1..] } else { "0" }
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_what_java_reads() {
        for (text, value) in [
            ("5", 5.0),
            (" 1.5e3 ", 1500.0),
            (".5", 0.5),
            ("5.", 5.0),
            ("7d", 7.0),
            ("0x1.8p1", 3.0),
            ("-Infinity", f64::NEG_INFINITY),
        ] {
            assert_eq!(parse_double(text), Some(value), "{text}");
        }
        for text in [
            "", ".", "e5", "1e", "0x10", "1_000", "five", "+", "1,5", "inf", "nan", "--1",
        ] {
            assert_eq!(parse_double(text), None, "{text}");
        }
    }

    #[test]
    fn numbers_are_written_as_java_does() {
        for (value, text) in [
            (0.0, "0.0"),
            (5.0, "5.0"),
            (0.001, "0.001"),
            (1e7, "1.0E7"),
            (1234567.5, "1234567.5"),
            (1.5e-5, "1.5E-5"),
            (-0.25, "-0.25"),
        ] {
            assert_eq!(double_to_string(value), text);
        }
        assert_eq!(double_to_string(f64::NEG_INFINITY), "-Infinity");
    }
}
