//! Numbers in as few bytes as they need (LEB128), as in every stored value: 7 bits a byte, lowest
//! first, the high bit set on all bytes but the last. **Every number has one encoding**: a
//! superfluous last byte is refused.

/// The longest encoding, in bytes.
pub const LENGTH_MAX: usize = 10;

/// Appends a number.
///
/// ```
/// let mut out = vec![];
/// document::varint::put(300, &mut out);
/// assert_eq!(out, [0xac, 0x02]);
/// ```
#[inline]
pub fn put(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Writes a number to the start of `out`, which must be long enough, and returns its length.
#[inline]
pub fn write(mut number: u64, out: &mut [u8]) -> usize {
    let mut length = 0;
    while number >= 0x80 {
        out[length] = number as u8 | 0x80;
        number >>= 7;
        length += 1;
    }
    out[length] = number as u8;
    length + 1
}

/// Takes a number from the start of `rest`; `None` when it is invalid.
///
/// ```
/// let mut rest = &[0xac, 0x02, 7][..];
/// assert_eq!(document::varint::take(&mut rest), Some(300));
/// assert_eq!(rest, [7]);
/// assert_eq!(document::varint::take(&mut &[0x80, 0][..]), None);
/// ```
#[inline]
pub fn take(rest: &mut &[u8]) -> Option<u64> {
    let (&first, after) = rest.split_first()?;
    if first >= 0x80 {
        return take_long(rest);
    }
    *rest = after;
    Some(u64::from(first))
}

/// Returns a number of several bytes.
fn take_long(rest: &mut &[u8]) -> Option<u64> {
    let (&first, mut after) = rest.split_first()?;
    let mut number = u64::from(first & 0x7f);
    for shift in (7..=63).step_by(7) {
        let (&byte, behind) = after.split_first()?;
        after = behind;
        let bits = u64::from(byte & 0x7f);
        // Refuses bits that do not fit, and a superfluous last byte.
        if (bits << shift) >> shift != bits || byte == 0 {
            return None;
        }
        number |= bits << shift;
        if byte < 0x80 {
            *rest = after;
            return Some(number);
        }
    }
    None
}

/// Takes bytes preceded by their length from the start of `rest`; `None` when they are incomplete.
#[inline]
pub fn take_slice<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let mut after = *rest;
    let length = usize::try_from(take(&mut after)?).ok()?;
    let (slice, after) = after.split_at_checked(length)?;
    *rest = after;
    Some(slice)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_number_reads_back_and_has_one_encoding(number: u64, bits in 0u32..64, bytes: Vec<u8>) {
            let number = number >> bits;
            let mut out = vec![];
            put(number, &mut out);
            let mut buffer = [0; LENGTH_MAX];
            let length = write(number, &mut buffer);
            prop_assert_eq!(&buffer[..length], &*out);
            out.push(7);
            let mut rest = &*out;
            prop_assert_eq!((take(&mut rest), rest), (Some(number), &[7][..]));
            let mut rest = &*bytes;
            if let Some(number) = take(&mut rest) {
                let mut again = vec![];
                put(number, &mut again);
                again.extend_from_slice(rest);
                prop_assert_eq!(again, bytes);
            }
        }
    }

    #[test]
    fn what_is_no_number_is_refused() {
        for bytes in [
            &[][..],
            &[0x80],
            &[0x80, 0],
            &[0xff; 11],
            &[255, 255, 255, 255, 255, 255, 255, 255, 255, 2],
        ] {
            let mut rest = bytes;
            assert_eq!((take(&mut rest), rest), (None, bytes));
        }
    }
}
