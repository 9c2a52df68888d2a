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
/// and neither a whole number that ends with zeros nor a small one, of which a text with an exponent
/// may be shorter.
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
    if scan.digit_count > 4 && text.ends_with(b"0.0") {
        return None;
    }
    let magnitude = scan.digits as f64 / POWERS_OF_TEN[scan.fraction_count];
    if magnitude < 1e-3 && scan.digits != 0 {
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

/// Doubles from here on have no fraction. Erlang writes them with an exponent.
const EXACT_MAX: f64 = 9_007_199_254_740_992.0;

/// Appends the shortest text that reads back as the same double, as Erlang writes it: always with
/// a point, and with an exponent if that is shorter or the number is at least 2^53.
///
/// ```
/// let mut text = vec![];
/// for number in [100.0, 1000.0, 0.0001, 0.00001] {
///     document::json::write_float(number, &mut text);
///     text.push(b' ');
/// }
/// assert_eq!(text, b"100.0 1.0e3 0.0001 1.0e-5 ");
/// ```
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
    decimal.write(number.abs() < EXACT_MAX, out);
}

/// Returns whether two texts, of which one is in normal form, differ only in how doubles are
/// written. Bodies that earlier versions stored have other texts of doubles.
///
/// ```
/// use document::json::differ_in_doubles_only;
/// assert!(differ_in_doubles_only(br#"{"a":[1.0e22,"1.0e3"]}"#, br#"{"a":[1e+22,"1.0e3"]}"#));
/// assert!(!differ_in_doubles_only(br#"{"a":"1.0e3"}"#, br#"{"a":"1000.0"}"#));
/// ```
pub fn differ_in_doubles_only(mut left: &[u8], mut right: &[u8]) -> bool {
    let mut is_in_string = false;
    loop {
        let (Some(&first), Some(&other)) = (left.first(), right.first()) else {
            return left.is_empty() && right.is_empty();
        };
        if !is_in_string && matches!(first, b'-' | b'0'..=b'9') {
            let (one, two) = (number_of(left), number_of(right));
            if one != two && !is_same_double(one, two) {
                return false;
            }
            (left, right) = (&left[one.len()..], &right[two.len()..]);
            continue;
        }
        // A backslash and the character after it.
        let len = 1 + usize::from(is_in_string && first == b'\\');
        if first != other || left.get(..len) != right.get(..len) {
            return false;
        }
        is_in_string ^= first == b'"';
        (left, right) = (
            left.get(len..).unwrap_or_default(),
            right.get(len..).unwrap_or_default(),
        );
    }
}

/// Returns the bytes at the beginning of a text that a number may consist of.
fn number_of(text: &[u8]) -> &[u8] {
    let is_of_number = |byte: &u8| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-');
    let end = text.iter().position(|byte| !is_of_number(byte));
    &text[..end.unwrap_or(text.len())]
}

fn is_same_double(left: &[u8], right: &[u8]) -> bool {
    let double = |text: &[u8]| match read_number(text, 0) {
        Ok((Number::Float(number), end)) if end == text.len() => Some(number.to_bits()),
        _ => None,
    };
    double(left).is_some() && double(left) == double(right)
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

    fn write(&self, is_exact: bool, out: &mut Vec<u8>) {
        match is_exact && self.plain_length() <= self.scientific_length() {
            true => self.write_plain(out),
            false => self.write_scientific(out),
        }
    }

    /// Returns the length of the text without an exponent.
    fn plain_length(&self) -> usize {
        let places = self.point.unsigned_abs() as usize;
        match self.point {
            ..=0 => "0.".len() + places + self.count,
            _ if places >= self.count => places + ".0".len(),
            _ => self.count + ".".len(),
        }
    }

    /// Returns the length of the text with an exponent.
    fn scientific_length(&self) -> usize {
        let exponent = self.point - 1;
        let exponent_length = match exponent.unsigned_abs() {
            0..10 => 1,
            10..100 => 2,
            _ => 3,
        };
        self.count.max(2) + ".e".len() + usize::from(exponent < 0) + exponent_length
    }

    fn write_plain(&self, out: &mut Vec<u8>) {
        let digits = &self.digits[..self.count];
        let places = self.point.unsigned_abs() as usize;
        if self.point <= 0 {
            out.extend_from_slice(b"0.");
            out.extend(std::iter::repeat_n(b'0', places));
            out.extend_from_slice(digits);
            return;
        }
        let (whole, fraction) = digits.split_at(places.min(self.count));
        out.extend_from_slice(whole);
        out.extend(std::iter::repeat_n(b'0', places - whole.len()));
        out.push(b'.');
        out.extend_from_slice(if fraction.is_empty() { b"0" } else { fraction });
    }

    fn write_scientific(&self, out: &mut Vec<u8>) {
        let (first, rest) = self.digits[..self.count].split_at(1);
        out.extend_from_slice(first);
        out.push(b'.');
        out.extend_from_slice(if rest.is_empty() { b"0" } else { rest });
        let exponent = self.point - 1;
        out.extend_from_slice(format!("e{exponent}").as_bytes());
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

    /// Recorded from `float_to_binary(Number, [short])` of Erlang 25.
    #[test]
    fn doubles_are_written_as_erlang_writes_them() {
        for (number, text) in [
            (10.0, "10.0"),
            (100.0, "100.0"),
            (120.0, "120.0"),
            (1e3, "1.0e3"),
            (1200.0, "1.2e3"),
            (12_300.0, "1.23e4"),
            (99_999.0, "99999.0"),
            (1e6, "1.0e6"),
            (1_234_500.0, "1.2345e6"),
            (123_456_789.0, "123456789.0"),
            (1_234_567_890.0, "1234567890.0"),
            (123_456_789.125, "123456789.125"),
            (123_456_789_012_345.6, "123456789012345.6"),
            (1e15, "1.0e15"),
            (9_007_199_254_740_991.0, "9007199254740991.0"),
            (9_007_199_254_740_992.0, "9.007199254740992e15"),
            (12_345_678_901_234_567.0, "1.2345678901234568e16"),
            (12_345_678_901_234_567_890.5, "1.2345678901234567e19"),
            (1.25e20, "1.25e20"),
            (1e22, "1.0e22"),
            (1.5e300, "1.5e300"),
            (f64::MAX, "1.7976931348623157e308"),
            (-0.1, "-0.1"),
            (0.001, "0.001"),
            (0.0012, "0.0012"),
            (0.00123, "0.00123"),
            (0.0001, "0.0001"),
            (0.000_12, "1.2e-4"),
            (0.00001, "1.0e-5"),
            (0.000_012_345_67, "1.234567e-5"),
            (1.5e-7, "1.5e-7"),
            (5e-324, "5.0e-324"),
            (-0.0, "0.0"),
        ] {
            assert_eq!(written(number), text);
        }
    }

    /// A text that is taken as it is must be the one that would be written.
    #[test]
    fn plain_texts_are_normal() {
        let mut plain = 0;
        for whole in [
            "0",
            "1",
            "10",
            "100",
            "120",
            "999",
            "1000",
            "1010",
            "1200",
            "123456789",
        ] {
            for fraction in [
                "0", "5", "05", "005", "0005", "00005", "0123", "00123", "000123",
            ] {
                let text = format!("{whole}.{fraction}");
                let scan = scan(text.as_bytes(), 0).unwrap();
                let Some(number) = plain_float(&scan, text.as_bytes()) else {
                    continue;
                };
                plain += 1;
                assert_eq!(written(number), text);
            }
        }
        assert!(plain > 50, "{plain}");
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
