//! Numbers as bytes, exactly.
//!
//! A number that is not zero is ± 1.f × 2^e, where f is a finite string of bits, both for integers
//! of any size and for doubles. Behind the tag for the sign follow e, and f in groups of seven bits
//! without its trailing zeros; the lowest bit of each group's byte is set if another group
//! follows. All bytes behind the tag of a negative number are inverted.
//!
//! | first byte of e | e |
//! |---|---|
//! | `20` to `df` | -64 to 127 |
//! | `e0` to `ff`, and a second byte | 128 to 8319 |
//! | `00` to `1f`, and a second byte | -8256 to -65 |

use super::NumberTags;
use crate::json::{Number, decimal_to_bytes};

const ONE_BYTE_MIN: i32 = -64;
const ONE_BYTE_MAX: i32 = 127;
const ONE_BYTE_START: i32 = 0x20;
const LARGE_START: u8 = 0xe0;
/// Number of two-byte exponents of either sign.
const TWO_BYTE_COUNT: i32 = 0x2000;

#[inline]
pub(super) fn write(number: Number<'_>, tags: NumberTags, out: &mut Vec<u8>) {
    match number {
        Number::Integer {
            negative,
            magnitude,
        } => write_scaled(negative, magnitude, 0, tags, out),
        Number::Float(number) => {
            let bits = number.to_bits();
            let fraction = bits & ((1 << 52) - 1);
            let (mantissa, scale) = match bits >> 52 & 0x7ff {
                0 => (fraction, -1074),
                exponent => (fraction | 1 << 52, exponent as i32 - 1075),
            };
            write_scaled(number < 0.0, mantissa, scale, tags, out);
        }
        Number::BigInteger { negative, digits } => write_big(negative, digits, tags, out),
    }
}

/// Writes ± `mantissa` × 2^`scale`.
#[inline]
fn write_scaled(negative: bool, mantissa: u64, scale: i32, tags: NumberTags, out: &mut Vec<u8>) {
    if mantissa == 0 {
        out.push(tags.zero);
        return;
    }
    let invert = start(negative, tags, out);
    let zeros = mantissa.leading_zeros();
    write_exponent(scale + 63 - zeros as i32, invert, out);
    // In two steps, since a shift by 64 is invalid.
    let mut fraction = mantissa << zeros << 1;
    loop {
        let group = (fraction >> 57) as u8;
        fraction <<= 7;
        out.push((group << 1 | u8::from(fraction != 0)) ^ invert);
        if fraction == 0 {
            return;
        }
    }
}

fn write_big(negative: bool, digits: &[u8], tags: NumberTags, out: &mut Vec<u8>) {
    // Lowest first.
    let bytes = decimal_to_bytes(digits);
    let bit = |at: usize| bytes[at / 8] >> (at % 8) & 1;
    let Some(highest) = (0..bytes.len() * 8).rfind(|&at| bit(at) == 1) else {
        out.push(tags.zero);
        return;
    };
    let lowest = (0..highest).find(|&at| bit(at) == 1).unwrap_or(highest);
    let invert = start(negative, tags, out);
    write_exponent(highest as i32, invert, out);
    // The bits below this one are still to be written.
    let mut end = highest;
    loop {
        let group = (1..=7).fold(0, |group, place| {
            group << 1 | end.checked_sub(place).map_or(0, bit)
        });
        end = end.saturating_sub(7);
        let more = end > lowest;
        out.push((group << 1 | u8::from(more)) ^ invert);
        if !more {
            return;
        }
    }
}

/// Writes the tag. Returns the mask to XOR with all other bytes.
#[inline]
fn start(negative: bool, tags: NumberTags, out: &mut Vec<u8>) -> u8 {
    out.push(if negative {
        tags.negative
    } else {
        tags.positive
    });
    if negative { 0xff } else { 0 }
}

#[inline]
fn write_exponent(exponent: i32, invert: u8, out: &mut Vec<u8>) {
    let mut two_bytes = |start: u8, number: i32| {
        debug_assert!((0..TWO_BYTE_COUNT).contains(&number));
        out.extend_from_slice(&[
            (start + (number >> 8) as u8) ^ invert,
            number as u8 ^ invert,
        ]);
    };
    if exponent > ONE_BYTE_MAX {
        two_bytes(LARGE_START, exponent - ONE_BYTE_MAX - 1);
    } else if exponent < ONE_BYTE_MIN {
        two_bytes(0, exponent - ONE_BYTE_MIN + TWO_BYTE_COUNT);
    } else {
        out.push((exponent - ONE_BYTE_MIN + ONE_BYTE_START) as u8 ^ invert);
    }
}

/// Returns the length of the number after a tag at the start of `bytes`.
pub(super) fn skip(bytes: &[u8], negative: bool) -> Option<usize> {
    let invert = if negative { 0xff } else { 0 };
    let first = bytes.first()? ^ invert;
    let exponent = match first {
        0x20..=0xdf => 1,
        _ => 2,
    };
    let groups = bytes.get(exponent..)?;
    let last = groups.iter().position(|group| (group ^ invert) & 1 == 0)?;
    Some(exponent + last + 1)
}
