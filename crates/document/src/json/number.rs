//! JSON numbers, with the quirks of CouchDB's JSON library.

use super::DocError;
use crate::term;

/// Integers of more digits than this take more than 255 bytes.
const INTEGER_DIGITS_MAX: usize = 615;
const INTEGER_BYTES_MAX: usize = 255;

/// CouchDB reads numbers from this length on in Erlang, not in C.
const LONG_NUMBER: usize = 32;

const POWERS_OF_TEN: [f64; 16] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
];

/// The parts of a number's text.
struct Scan {
    negative: bool,
    /// All digits before the exponent as one number, if there are at most 19 of them.
    digits: u64,
    digit_count: usize,
    fraction_count: usize,
    /// Where the exponent's `e` is.
    exponent_at: Option<usize>,
    end: usize,
}

/// A number of a text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number<'a> {
    /// An integer of at most 19 digits.
    Integer {
        /// Below zero, or `-0`.
        negative: bool,
        /// Its absolute value.
        magnitude: u64,
    },
    /// An integer of more digits.
    BigInteger {
        /// Below zero.
        negative: bool,
        /// ASCII, without a sign.
        digits: &'a [u8],
    },
    /// A number with a fraction or an exponent. Finite.
    Float(f64),
}

/// Reads the number that starts at `from` in a normalised text, and returns its end.
///
/// ```
/// use document::json::{Number, read_number};
/// let (number, end) = read_number(b"[-12,0.5]", 1).unwrap();
/// assert_eq!((number, end), (Number::Integer { negative: true, magnitude: 12 }, 4));
/// assert_eq!(read_number(b"[-12,0.5]", 5).unwrap().0, Number::Float(0.5));
/// ```
///
/// # Errors
/// [`DocError::InvalidJson`], also for numbers too large for a double;
/// [`DocError::IntegerTooLarge`].
#[inline]
pub fn read_number(input: &[u8], from: usize) -> Result<(Number<'_>, usize), DocError> {
    let scan = scan(input, from)?;
    let text = &input[from..scan.end];
    if scan.fraction_count != 0 || scan.exponent_at.is_some() {
        let number = plain_float(&scan, text).map_or_else(|| exact_float(text), Ok)?;
        return Ok((Number::Float(number), scan.end));
    }
    let negative = scan.negative;
    let number = if scan.digit_count <= 19 {
        Number::Integer {
            negative,
            magnitude: scan.digits,
        }
    } else if scan.digit_count <= INTEGER_DIGITS_MAX {
        Number::BigInteger {
            negative,
            digits: &text[usize::from(negative)..],
        }
    } else {
        return Err(DocError::IntegerTooLarge);
    };
    Ok((number, scan.end))
}

/// Reads the number at `from`, appends its normal text and its term where requested, and returns
/// its end.
///
/// # Errors
/// [`DocError::InvalidJson`] immediately. [`DocError::IntegerTooLarge`] goes to `deferred`, since
/// the rest of the text may be invalid JSON, which takes precedence.
#[inline]
pub(super) fn number<const TEXT: bool, const TERM: bool>(
    input: &[u8],
    from: usize,
    out: &mut Vec<u8>,
    term: &mut Vec<u8>,
    deferred: &mut Option<DocError>,
) -> Result<usize, DocError> {
    let scan = scan(input, from)?;
    let text = &input[from..scan.end];
    if scan.fraction_count == 0 && scan.exponent_at.is_none() {
        if TEXT {
            out.extend_from_slice(if text == b"-0" { b"0" } else { text });
        }
        if scan.digit_count <= 19 {
            if TERM {
                term::write_integer(scan.negative, scan.digits, term);
            }
        } else if !big_integer::<TERM>(text, scan.negative, term) {
            *deferred = Some(DocError::IntegerTooLarge);
        }
        return Ok(scan.end);
    }
    let plain = plain_float(&scan, text);
    let number = match plain {
        Some(number) => number,
        // Stored text has been through the quirks already.
        None if TEXT => float(&scan, text, from)?,
        None => exact_float(text)?,
    };
    if TEXT {
        match plain {
            Some(_) if number != 0.0 => out.extend_from_slice(text),
            _ => write_float(number, out),
        }
    }
    if TERM {
        term::write_float(number, term);
    }
    Ok(scan.end)
}

#[inline]
fn scan(input: &[u8], from: usize) -> Result<Scan, DocError> {
    let negative = input.get(from) == Some(&b'-');
    let mut digits = 0_u64;
    let mut run = |mut at: usize| {
        while let Some(digit) = input
            .get(at)
            .map(|byte| byte.wrapping_sub(b'0'))
            .filter(|&digit| digit < 10)
        {
            digits = digits.wrapping_mul(10).wrapping_add(u64::from(digit));
            at += 1;
        }
        at
    };
    let start = from + usize::from(negative);
    let mut end = run(start);
    let whole_count = end - start;
    if whole_count == 0 || (whole_count > 1 && input[start] == b'0') {
        return Err(DocError::InvalidJson);
    }
    let mut fraction_count = 0;
    if input.get(end) == Some(&b'.') {
        let fraction = end + 1;
        end = run(fraction);
        fraction_count = end - fraction;
        if fraction_count == 0 {
            return Err(DocError::InvalidJson);
        }
    }
    let mut exponent_at = None;
    if let Some(b'e' | b'E') = input.get(end) {
        exponent_at = Some(end);
        end = exponent(input, end + 1)?;
    }
    Ok(Scan {
        negative,
        digits,
        digit_count: whole_count + fraction_count,
        fraction_count,
        exponent_at,
        end,
    })
}

fn exponent(input: &[u8], at: usize) -> Result<usize, DocError> {
    let start = at + usize::from(matches!(input.get(at), Some(b'+' | b'-')));
    let count = input[start..]
        .iter()
        .take_while(|byte| byte.is_ascii_digit())
        .count();
    if count == 0 {
        Err(DocError::InvalidJson)
    } else {
        Ok(start + count)
    }
}

/// Returns a number whose text is its normal form already: at most 15 digits, so that no other text
/// with at most as many digits gives the same double; no exponent; no superfluous zero at the end;
/// not so small that it would be written with an exponent.
///
/// The quotient of two doubles that are exact is the double nearest to the true value.
#[inline]
fn plain_float(scan: &Scan, text: &[u8]) -> Option<f64> {
    if scan.exponent_at.is_some() || scan.digit_count > 15 {
        return None;
    }
    if text.last() == Some(&b'0') && scan.fraction_count > 1 {
        return None;
    }
    let magnitude = scan.digits as f64 / POWERS_OF_TEN[scan.fraction_count];
    if magnitude < 1e-6 && scan.digits != 0 {
        return None;
    }
    Some(if scan.negative { -magnitude } else { magnitude })
}

fn exact_float(text: &[u8]) -> Result<f64, DocError> {
    let number = std::str::from_utf8(text)
        .ok()
        .and_then(|text| text.parse::<f64>().ok());
    number
        .filter(|number| number.is_finite())
        .ok_or(DocError::InvalidJson)
}

/// Returns CouchDB's value of a number with a fraction or an exponent. `from` is where `text`
/// starts in the input.
fn float(scan: &Scan, text: &[u8], from: usize) -> Result<f64, DocError> {
    let number = std::str::from_utf8(text)
        .ok()
        .and_then(|text| text.parse::<f64>().ok())
        .ok_or(DocError::InvalidJson)?;
    if number.is_infinite() {
        return Err(DocError::InvalidJson);
    }
    let is_subnormal = number.abs() < f64::MIN_POSITIVE;
    match scan.exponent_at {
        Some(at) if scan.fraction_count == 0 && !is_subnormal && text.len() >= LONG_NUMBER => {
            scaled(&text[..at - from], &text[at - from + 1..])
        }
        _ => Ok(number),
    }
}

/// CouchDB computes such a number as integer × 10 to the exponent, in doubles.
fn scaled(mantissa: &[u8], exponent: &[u8]) -> Result<f64, DocError> {
    let power = [b"1e", exponent].concat();
    let product = exact_float(mantissa)? * exact_float(&power)?;
    if product.is_finite() {
        Ok(product)
    } else {
        Err(DocError::InvalidJson)
    }
}

/// Appends the term of an integer of at least 20 digits. Returns whether a term can hold it.
fn big_integer<const TERM: bool>(text: &[u8], negative: bool, term: &mut Vec<u8>) -> bool {
    let digits = &text[usize::from(negative)..];
    if digits.len() > INTEGER_DIGITS_MAX {
        return false;
    }
    let bytes = decimal_to_bytes(digits);
    let fits = bytes.len() <= INTEGER_BYTES_MAX;
    if TERM && fits {
        term::write_big(negative, &bytes, term);
    }
    fits
}

/// Lowest byte first, without leading zeros.
pub(crate) fn decimal_to_bytes(digits: &[u8]) -> Vec<u8> {
    let mut words: Vec<u32> = Vec::new();
    for chunk in digits.chunks(9) {
        let factor = 10_u64.pow(chunk.len() as u32);
        let mut carry = chunk
            .iter()
            .fold(0, |number, digit| number * 10 + u64::from(digit - b'0'));
        for word in &mut words {
            let sum = u64::from(*word) * factor + carry;
            *word = sum as u32;
            carry = sum >> 32;
        }
        if carry != 0 {
            words.push(carry as u32);
        }
    }
    let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let length = bytes
        .iter()
        .rposition(|&byte| byte != 0)
        .map_or(0, |last| last + 1);
    bytes.truncate(length);
    bytes
}

/// Appends the shortest text that reads back as the same double, as ECMAScript writes it, but whole
/// numbers with `.0`.
///
/// `number` must be finite.
pub fn write_float(number: f64, out: &mut Vec<u8>) {
    if number == 0.0 {
        out.extend_from_slice(b"0.0");
        return;
    }
    let mut buffer = zmij::Buffer::new();
    let mut decimal = Decimal::default();
    decimal.read(buffer.format_finite(number.abs()).as_bytes());
    if number < 0.0 {
        out.push(b'-');
    }
    decimal.write(out);
}

/// A number as 0.DIGITS × 10^point.
#[derive(Default)]
struct Decimal {
    digits: [u8; 24],
    count: usize,
    point: i32,
}

impl Decimal {
    /// Reads digits with an optional point and an optional exponent.
    fn read(&mut self, text: &[u8]) {
        let mut seen_point = false;
        for (at, &byte) in text.iter().enumerate() {
            match byte {
                b'.' => seen_point = true,
                b'e' => {
                    let exponent = std::str::from_utf8(&text[at + 1..])
                        .ok()
                        .and_then(|text| text.parse::<i32>().ok());
                    self.point += exponent.unwrap_or_default();
                    break;
                }
                b'0' if self.count == 0 => self.point -= i32::from(seen_point),
                digit => {
                    // Zeros after whole digits, as in 123000000.0, may exceed the buffer.
                    if let Some(place) = self.digits.get_mut(self.count) {
                        *place = digit;
                        self.count += 1;
                    }
                    self.point += i32::from(!seen_point);
                }
            }
        }
        while self.count > 1 && self.digits[self.count - 1] == b'0' {
            self.count -= 1;
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        let digits = &self.digits[..self.count];
        match self.point {
            // Whole, or with a fraction after the first digits.
            1..=21 => {
                let whole = self.point as usize;
                out.extend_from_slice(&digits[..whole.min(self.count)]);
                out.extend(std::iter::repeat_n(b'0', whole.saturating_sub(self.count)));
                out.push(b'.');
                match digits.get(whole..) {
                    Some(fraction) if !fraction.is_empty() => out.extend_from_slice(fraction),
                    _ => out.push(b'0'),
                }
            }
            -5..=0 => {
                out.extend_from_slice(b"0.");
                out.extend(std::iter::repeat_n(
                    b'0',
                    self.point.unsigned_abs() as usize,
                ));
                out.extend_from_slice(digits);
            }
            _ => self.write_scientific(out),
        }
    }

    fn write_scientific(&self, out: &mut Vec<u8>) {
        out.push(self.digits[0]);
        if self.count > 1 {
            out.push(b'.');
            out.extend_from_slice(&self.digits[1..self.count]);
        }
        let exponent = self.point - 1;
        out.extend_from_slice(format!("e{exponent:+}").as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(number: f64) -> String {
        let mut out = Vec::new();
        write_float(number, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn doubles_are_written_like_ecmascript_with_a_trailing_zero() {
        for (number, text) in [
            (1e3, "1000.0"),
            (1.5e300, "1.5e+300"),
            (1e22, "1e+22"),
            (1e21, "1e+21"),
            (1e20, "100000000000000000000.0"),
            (1.25e20, "125000000000000000000.0"),
            (1e-7, "1e-7"),
            (1.5e-7, "1.5e-7"),
            (1e-6, "0.000001"),
            (0.0001, "0.0001"),
            (12_345_678_901_234_567_890.5, "12345678901234567000.0"),
            (f64::MAX, "1.7976931348623157e+308"),
            (-0.1, "-0.1"),
            (123_456_789.125, "123456789.125"),
            (5e-324, "5e-324"),
            (-0.0, "0.0"),
        ] {
            assert_eq!(written(number), text);
        }
    }

    #[test]
    fn large_integers_become_bytes() {
        assert_eq!(
            decimal_to_bytes(b"18446744073709551616"),
            [0, 0, 0, 0, 0, 0, 0, 0, 1]
        );
        assert_eq!(
            decimal_to_bytes(b"340282366920938463463374607431768211455"),
            [255; 16]
        );
    }
}
