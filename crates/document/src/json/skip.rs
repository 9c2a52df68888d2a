//! Finds the end of a JSON value without parsing its contents.
//!
//! Containers are skipped 64 bytes at a time: bit masks of quotes and backslashes show which bytes
//! are inside strings, and the brackets outside of them are counted (the technique of Langdale and
//! Lemire, "Parsing Gigabytes of JSON per Second").
//!
//! All functions take a text and the position of a first byte, and return the position after the
//! last, or `None` if the text ends early. They trust that the text is JSON, and never read outside
//! of it otherwise. Callers whose text may have white space between values skip it with [`space`].

use memchr::memchr2;

/// Returns the end of the white space at `pos`: the position of the first other byte, or of the
/// text's end.
///
/// ```
/// use document::json::skip;
/// let text = b"  [1, 2]";
/// assert_eq!(skip::space(text, 0), 2);
/// assert_eq!(skip::space(text, 2), 2);
/// ```
#[inline]
pub fn space(text: &[u8], mut pos: usize) -> usize {
    while let Some(b' ' | b'\t' | b'\n' | b'\r') = text.get(pos) {
        pos += 1;
    }
    pos
}

/// Returns the end of the value that starts at `pos`.
///
/// ```
/// use document::json::skip;
/// let text = br#"{"a":[1,"]"]} "#;
/// assert_eq!(skip::value(text, 0), Some(13));
/// assert_eq!(skip::value(text, 6), Some(7));
/// assert_eq!(skip::value(&text[..9], 0), None);
/// ```
#[inline]
pub fn value(text: &[u8], pos: usize) -> Option<usize> {
    match text.get(pos)? {
        b'"' => string(text, pos + 1).map(|(end, _)| end),
        b'{' | b'[' => container(text, pos + 1),
        _ => scalar(text, pos),
    }
}

/// Returns the end of the number, `true`, `false` or `null` at `pos`.
#[inline]
fn scalar(text: &[u8], pos: usize) -> Option<usize> {
    let mut end = pos;
    while let Some(byte) = text.get(end) {
        if matches!(byte, b',' | b'}' | b']' | b' ' | b'\t' | b'\n' | b'\r') {
            break;
        }
        end += 1;
    }
    (end > pos).then_some(end)
}

/// Returns the position after the quote that ends the string whose contents start at `pos`, and
/// whether it has escapes.
#[inline]
pub fn string(text: &[u8], pos: usize) -> Option<(usize, bool)> {
    #[cfg(target_arch = "x86_64")]
    return x86::string(text, pos);
    #[cfg(not(target_arch = "x86_64"))]
    return portable::string(text, pos);
}

/// Returns the position after the bracket that closes the object or array that `pos` is inside of.
#[inline]
pub fn container(text: &[u8], pos: usize) -> Option<usize> {
    #[cfg(target_arch = "x86_64")]
    return x86::container(text, pos);
    #[cfg(not(target_arch = "x86_64"))]
    return portable::container(text, pos);
}

/// Finds the end of a string that arrives in pieces.
///
/// ```
/// use document::json::skip::StringEnd;
/// let mut end = StringEnd::default();
/// assert_eq!(end.find(br#"a string that ends with \"#), None);
/// assert_eq!(end.find(br#"", not here","next""#), Some(12));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StringEnd {
    /// The last byte was a backslash that escapes the next.
    escaped: bool,
}

impl StringEnd {
    /// Returns the position after the closing quote; `None` when it is not in this piece. The first
    /// piece starts after the opening quote.
    pub fn find(&mut self, piece: &[u8]) -> Option<usize> {
        let mut pos = 0;
        if self.escaped && !piece.is_empty() {
            self.escaped = false;
            pos = 1;
        }
        loop {
            pos += memchr2(b'"', b'\\', piece.get(pos..)?)? + 1;
            if piece[pos - 1] == b'"' {
                return Some(pos);
            }
            if pos == piece.len() {
                self.escaped = true;
                return None;
            }
            pos += 1;
        }
    }
}

/// Byte by byte: for other processors, for the ends of texts, and to test the rest against.
mod portable {
    pub fn string(text: &[u8], mut pos: usize) -> Option<(usize, bool)> {
        let mut escapes = false;
        loop {
            match text.get(pos)? {
                b'"' => return Some((pos + 1, escapes)),
                b'\\' => {
                    escapes = true;
                    pos += 2;
                }
                _ => pos += 1,
            }
        }
    }

    #[cfg_attr(target_arch = "x86_64", allow(dead_code))] // there only the tests call it
    pub fn container(text: &[u8], mut pos: usize) -> Option<usize> {
        let mut depth = 1usize;
        loop {
            match text.get(pos)? {
                b'"' => {
                    pos = string(text, pos + 1)?.0;
                    continue;
                }
                b'{' | b'[' => depth += 1,
                b'}' | b']' => {
                    depth -= 1;
                    if depth == 0 {
                        return Some(pos + 1);
                    }
                }
                _ => {}
            }
            pos += 1;
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    const BLOCK: usize = 64;

    /// SSE2 is part of x86-64.
    #[inline]
    pub fn string(text: &[u8], mut pos: usize) -> Option<(usize, bool)> {
        let mut escapes = false;
        while let Some(chunk) = text.get(pos..).and_then(|rest| rest.first_chunk::<16>()) {
            // SAFETY: the load reads the 16 bytes of `chunk`, at any alignment.
            let mask = unsafe {
                let bytes = _mm_loadu_si128(chunk.as_ptr().cast());
                let quote = _mm_cmpeq_epi8(bytes, _mm_set1_epi8(b'"' as i8));
                let backslash = _mm_cmpeq_epi8(bytes, _mm_set1_epi8(b'\\' as i8));
                _mm_movemask_epi8(_mm_or_si128(quote, backslash)) as u32
            };
            if mask == 0 {
                pos += 16;
                continue;
            }
            let at = mask.trailing_zeros() as usize;
            if chunk[at & 15] == b'"' {
                return Some((pos + at + 1, escapes));
            }
            escapes = true;
            pos += at + 2;
        }
        super::portable::string(text, pos).map(|(end, more)| (end, escapes || more))
    }

    #[inline]
    pub fn container(text: &[u8], pos: usize) -> Option<usize> {
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("pclmulqdq") {
            // SAFETY: the processor has the features, as just checked.
            unsafe { container_avx2(text, pos) }
        } else {
            container_sse2(text, pos)
        }
    }

    /// The state carried from block to block.
    struct State {
        depth: usize,
        /// All ones inside a string.
        in_string: u64,
        /// 1 if the last byte was a backslash that escapes the next.
        escape: u64,
    }

    /// One bit for each byte of a block.
    struct Masks {
        quotes: u64,
        backslashes: u64,
        opens: u64,
        closes: u64,
    }

    impl State {
        fn new() -> State {
            State {
                depth: 1,
                in_string: 0,
                escape: 0,
            }
        }

        /// Which bytes are escaped by a backslash before them.
        #[inline(always)]
        fn escaped(&mut self, backslashes: u64) -> u64 {
            if backslashes == 0 {
                return std::mem::take(&mut self.escape);
            }
            const EVEN: u64 = 0x5555_5555_5555_5555;
            let backslashes = backslashes & !self.escape;
            let follows = backslashes << 1 | self.escape;
            let odd_starts = backslashes & !EVEN & !follows;
            let (runs, overflow) = odd_starts.overflowing_add(backslashes);
            self.escape = u64::from(overflow);
            (EVEN ^ (runs << 1)) & follows
        }

        /// Returns the offset in the block after the bracket that closes the container, if the
        /// block contains it.
        #[inline(always)]
        fn block(&mut self, masks: Masks, prefix_xor: impl Fn(u64) -> u64) -> Option<usize> {
            let quotes = masks.quotes & !self.escaped(masks.backslashes);
            let strings = prefix_xor(quotes) ^ self.in_string;
            self.in_string = ((strings as i64) >> 63) as u64;
            let opens = masks.opens & !strings;
            let closes = masks.closes & !strings;
            if (closes.count_ones() as usize) < self.depth {
                self.depth =
                    self.depth + opens.count_ones() as usize - closes.count_ones() as usize;
                return None;
            }
            let mut brackets = opens | closes;
            while brackets != 0 {
                let at = brackets.trailing_zeros();
                if opens >> at & 1 == 1 {
                    self.depth += 1;
                } else {
                    self.depth -= 1;
                    if self.depth == 0 {
                        return Some(at as usize + 1);
                    }
                }
                brackets &= brackets - 1;
            }
            None
        }
    }

    /// Runs `masks` over the blocks from `pos` on; the last is filled up with spaces.
    #[inline(always)]
    fn blocks(
        text: &[u8],
        mut pos: usize,
        masks: impl Fn(&[u8; BLOCK]) -> Masks,
        prefix_xor: impl Fn(u64) -> u64,
    ) -> Option<usize> {
        let mut state = State::new();
        while let Some(block) = text.get(pos..)?.first_chunk::<BLOCK>() {
            if let Some(end) = state.block(masks(block), &prefix_xor) {
                return Some(pos + end);
            }
            pos += BLOCK;
        }
        let rest = text.get(pos..)?;
        let mut block = [b' '; BLOCK];
        block[..rest.len()].copy_from_slice(rest);
        state.block(masks(&block), &prefix_xor).map(|end| pos + end)
    }

    #[target_feature(enable = "avx2,pclmulqdq")]
    fn container_avx2(text: &[u8], pos: usize) -> Option<usize> {
        blocks(
            text,
            pos,
            // SAFETY: the features are those of the enclosing function; both loads are inside of
            // `block`.
            |block| unsafe {
                let low = _mm256_loadu_si256(block.as_ptr().cast());
                let high = _mm256_loadu_si256(block.as_ptr().add(32).cast());
                let mask = |low, high| {
                    u64::from(_mm256_movemask_epi8(low) as u32)
                        | u64::from(_mm256_movemask_epi8(high) as u32) << 32
                };
                let equal = |low, high, byte: u8| {
                    let byte = _mm256_set1_epi8(byte as i8);
                    mask(_mm256_cmpeq_epi8(low, byte), _mm256_cmpeq_epi8(high, byte))
                };
                // `[` and `{`, and `]` and `}`, differ in this bit only, and no other byte of JSON
                // outside strings meets them.
                let bit = _mm256_set1_epi8(0x20);
                let (low_bit, high_bit) = (_mm256_or_si256(low, bit), _mm256_or_si256(high, bit));
                Masks {
                    quotes: equal(low, high, b'"'),
                    backslashes: equal(low, high, b'\\'),
                    opens: equal(low_bit, high_bit, b'{'),
                    closes: equal(low_bit, high_bit, b'}'),
                }
            },
            |bits| {
                let product =
                    _mm_clmulepi64_si128(_mm_set_epi64x(0, bits as i64), _mm_set1_epi8(-1), 0);
                _mm_cvtsi128_si64(product) as u64
            },
        )
    }

    fn container_sse2(text: &[u8], pos: usize) -> Option<usize> {
        blocks(
            text,
            pos,
            // SAFETY: SSE2 is part of x86-64; the four loads are inside of `block`.
            |block| unsafe {
                let part = |i: usize| _mm_loadu_si128(block.as_ptr().add(16 * i).cast());
                let parts = [part(0), part(1), part(2), part(3)];
                let bit = _mm_set1_epi8(0x20);
                let equal = |parts: [__m128i; 4], byte: u8| {
                    let byte = _mm_set1_epi8(byte as i8);
                    parts.iter().rev().fold(0u64, |mask, &part| {
                        mask << 16 | u64::from(_mm_movemask_epi8(_mm_cmpeq_epi8(part, byte)) as u16)
                    })
                };
                let with_bit = parts.map(|part| _mm_or_si128(part, bit));
                Masks {
                    quotes: equal(parts, b'"'),
                    backslashes: equal(parts, b'\\'),
                    opens: equal(with_bit, b'{'),
                    closes: equal(with_bit, b'}'),
                }
            },
            |mut bits| {
                for shift in [1, 2, 4, 8, 16, 32] {
                    bits ^= bits << shift;
                }
                bits
            },
        )
    }

    #[cfg(test)]
    pub fn container_without_avx2(text: &[u8], pos: usize) -> Option<usize> {
        container_sse2(text, pos)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a cheap generator of repeatable choices.
    fn next(state: &mut u64) -> usize {
        *state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (*state >> 33) as usize
    }

    #[test]
    fn all_ways_to_skip_agree() {
        const BYTES: &[u8] = b"\"\"\\\\{{}}[][],:a01 \x7f\xc3\x5b\x5d\x02\x03";
        let mut state = 7;
        for _ in 0..40_000 {
            let mut text: Vec<u8> = Vec::new();
            let plain = next(&mut state) % 4;
            let (mut in_string, mut escape) = (false, false);
            for _ in 0..next(&mut state) % 300 {
                let choice = next(&mut state);
                let byte = BYTES[choice / 4 % BYTES.len()];
                // Outside strings a backslash is no JSON, and there the ways may differ.
                let byte = if choice % 4 < plain || (byte == b'\\' && !in_string) {
                    b'x'
                } else {
                    byte
                };
                text.push(byte);
                in_string ^= byte == b'"' && !escape;
                escape = byte == b'\\' && !escape;
            }
            let expected = portable::container(&text, 0);
            assert_eq!(
                container(&text, 0),
                expected,
                "{:?}",
                String::from_utf8_lossy(&text)
            );
            #[cfg(target_arch = "x86_64")]
            assert_eq!(x86::container_without_avx2(&text, 0), expected);
            let pos = next(&mut state) % (text.len() + 2);
            assert_eq!(string(&text, pos), portable::string(&text, pos));
        }
    }

    #[test]
    fn strings_hide_brackets_and_escapes_hide_quotes() {
        let text = br#"{"a":"}]\"}","b\\":[1,{"c":"[["}]},"next""#;
        assert_eq!(value(text, 0), Some(text.len() - 7));
        assert_eq!(value(b"12,", 0), Some(2));
        assert_eq!(value(b"", 0), None);
        assert_eq!(value(b",", 0), None);
    }

    #[test]
    fn an_unclosed_value_has_no_end() {
        for text in ["{", "[[]", "\"abc", "\"abc\\", "{\"a\":\"}"] {
            assert_eq!(value(text.as_bytes(), 0), None, "{text}");
        }
    }
}
