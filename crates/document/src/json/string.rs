//! JSON strings: finding their end, and converting escapes.

use super::DocError;
use crate::rev::hex_digit;

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGHS: u64 = 0x8080_8080_8080_8080;

/// Returns where the first quote, backslash or control character is at or after `from`; the length
/// of `bytes` without one.
#[inline]
pub(crate) fn find_special(bytes: &[u8], from: usize) -> usize {
    let mut at = from;
    while let Some(chunk) = bytes.get(at..).and_then(|rest| rest.first_chunk::<8>()) {
        let specials = special_bytes(u64::from_le_bytes(*chunk));
        if specials != 0 {
            return at + (specials.trailing_zeros() / 8) as usize;
        }
        at += 8;
    }
    while let Some(&byte) = bytes.get(at) {
        if matches!(byte, b'"' | b'\\' | 0..=0x1f) {
            break;
        }
        at += 1;
    }
    at
}

/// Sets the high bit of each special byte in a word. Bytes above the lowest special one may be
/// marked falsely.
#[inline]
fn special_bytes(word: u64) -> u64 {
    let zero_bytes = |word: u64| word.wrapping_sub(ONES) & !word;
    let quote = zero_bytes(word ^ (ONES * b'"' as u64));
    let backslash = zero_bytes(word ^ (ONES * b'\\' as u64));
    let control = word.wrapping_sub(ONES * 0x20) & !word;
    (quote | backslash | control) & HIGHS
}

/// Appends a text as the contents of a JSON string. Hexadecimal digits are uppercase, as CouchDB
/// writes them.
pub(crate) fn write_escaped(text: &str, out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let bytes = text.as_bytes();
    let mut from = 0;
    loop {
        let at = find_special(bytes, from);
        out.extend_from_slice(&bytes[from..at]);
        let Some(&special) = bytes.get(at) else {
            return;
        };
        match special {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', special]),
            8 => out.extend_from_slice(b"\\b"),
            9 => out.extend_from_slice(b"\\t"),
            10 => out.extend_from_slice(b"\\n"),
            12 => out.extend_from_slice(b"\\f"),
            13 => out.extend_from_slice(b"\\r"),
            _ => {
                out.extend_from_slice(b"\\u00");
                out.extend_from_slice(&[
                    DIGITS[usize::from(special >> 4)],
                    DIGITS[usize::from(special & 15)],
                ]);
            }
        }
        from = at + 1;
    }
}

/// Decodes the escapes of a string whose text starts at `from`, up to its closing quote. Returns
/// the quote's position.
pub(crate) fn unescape(input: &[u8], from: usize, text: &mut Vec<u8>) -> Result<usize, DocError> {
    let mut from = from;
    loop {
        let at = find_special(input, from);
        text.extend_from_slice(&input[from..at]);
        match input.get(at) {
            Some(b'"') => return Ok(at),
            Some(b'\\') => from = unescape_one(input, at + 1, text)?,
            _ => return Err(DocError::InvalidJson),
        }
    }
}

/// Decodes the escapes of the contents of a string.
pub(crate) fn unescape_all(written: &[u8], text: &mut Vec<u8>) -> Result<(), DocError> {
    let mut from = 0;
    loop {
        let at = find_special(written, from);
        text.extend_from_slice(&written[from..at]);
        match written.get(at) {
            None => return Ok(()),
            Some(b'\\') => from = unescape_one(written, at + 1, text)?,
            Some(_) => return Err(DocError::InvalidJson),
        }
    }
}

/// `at` is after the backslash. Returns the position after the escape.
fn unescape_one(input: &[u8], at: usize, text: &mut Vec<u8>) -> Result<usize, DocError> {
    let byte = match *input.get(at).ok_or(DocError::InvalidJson)? {
        byte @ (b'"' | b'\\' | b'/') => byte,
        b'b' => 8,
        b'f' => 12,
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'u' => return unescape_unicode(input, at + 1, text),
        _ => return Err(DocError::InvalidJson),
    };
    text.push(byte);
    Ok(at + 1)
}

fn unescape_unicode(input: &[u8], at: usize, text: &mut Vec<u8>) -> Result<usize, DocError> {
    let mut code = hex4(input, at)?;
    let mut end = at + 4;
    if (0xd800..0xdc00).contains(&code) {
        let low = match input.get(end..end + 2) {
            Some(b"\\u") => hex4(input, end + 2)?,
            _ => return Err(DocError::InvalidJson),
        };
        if !(0xdc00..0xe000).contains(&low) {
            return Err(DocError::InvalidJson);
        }
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
        end += 6;
    }
    // Fails for a low surrogate on its own.
    let character = char::from_u32(code).ok_or(DocError::InvalidJson)?;
    text.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
    Ok(end)
}

fn hex4(input: &[u8], at: usize) -> Result<u32, DocError> {
    let digits = input.get(at..at + 4).ok_or(DocError::InvalidJson)?;
    digits.iter().try_fold(0, |code, &digit| {
        hex_digit(digit)
            .map(|value| code << 4 | u32::from(value))
            .ok_or(DocError::InvalidJson)
    })
}
