//! Finding the end of JSON values without reading them.

/// Returns the end of the string whose opening quote is before `at`: the index of the closing
/// quote, and whether there are escapes.
#[inline]
pub(crate) fn string_end(json: &[u8], mut at: usize) -> Option<(usize, bool)> {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGHS: u64 = ONES << 7;
    let mut escapes = false;
    loop {
        // Eight bytes at a time: a byte of `x` is zero where one of the two is. A false one can
        // only follow a true one.
        while let Some(chunk) = json.get(at..).and_then(|rest| rest.first_chunk()) {
            let word = u64::from_le_bytes(*chunk);
            let zeros = |x: u64| x.wrapping_sub(ONES) & !x & HIGHS;
            let found = zeros(word ^ (ONES * b'"' as u64)) | zeros(word ^ (ONES * b'\\' as u64));
            if found != 0 {
                at += found.trailing_zeros() as usize / 8;
                break;
            }
            at += 8;
        }
        match json.get(at)? {
            b'"' => return Some((at, escapes)),
            b'\\' => {
                escapes = true;
                at += 2;
            }
            _ => at += 1,
        }
    }
}

/// Returns the end of the JSON value that starts at `at`; any position for invalid JSON.
pub(crate) fn value_end(json: &[u8], mut at: usize) -> Option<usize> {
    match json.get(at)? {
        b'"' => return string_end(json, at + 1).map(|(end, _)| end + 1),
        b'{' | b'[' => {}
        _ => {
            let ends =
                |byte: &u8| matches!(byte, b',' | b'}' | b']' | b' ' | b'\n' | b'\r' | b'\t');
            let len = json[at..].iter().position(ends);
            return Some(len.map_or(json.len(), |len| at + len));
        }
    }
    let mut depth = 0usize;
    loop {
        match json.get(at)? {
            b'"' => at = string_end(json, at + 1)?.0,
            b'{' | b'[' => depth += 1,
            b'}' | b']' => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(at + 1);
                }
            }
            _ => {}
        }
        at += 1;
    }
}
