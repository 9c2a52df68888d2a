//! Copies JSON text in the form in which `JSON.stringify` would write its value.

use crate::from_json::MAX_DEPTH;
use crate::skip::string_end;

/// Why a text is not copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotCopied {
    /// Only JavaScript can determine its form: names that are numbers, unusual escapes, invalid
    /// JSON.
    Unusual,
    Depth,
}

struct Copier<'a> {
    json: &'a [u8],
    at: usize,
    /// All before is in `out`.
    copied: usize,
    out: &'a mut Vec<u8>,
}

/// Appends a JSON value to `out`; nothing if it is not copied.
pub(crate) fn copy(json: &[u8], out: &mut Vec<u8>) -> Result<(), NotCopied> {
    if str::from_utf8(json).is_err() {
        return Err(NotCopied::Unusual);
    }
    let start = out.len();
    let mut copier = Copier {
        json,
        at: 0,
        copied: 0,
        out,
    };
    let mut done = copier.value(0);
    if done.is_ok() && copier.at != json.len() {
        done = Err(NotCopied::Unusual);
    }
    match done {
        Ok(()) => copier.flush(),
        Err(_) => out.truncate(start),
    }
    done
}

impl Copier<'_> {
    fn flush(&mut self) {
        self.out.extend_from_slice(&self.json[self.copied..self.at]);
        self.copied = self.at;
    }

    fn peek(&self) -> Option<u8> {
        self.json.get(self.at).copied()
    }

    /// Takes a byte. White space is unusual, as documents have none.
    fn take(&mut self, byte: u8) -> Result<(), NotCopied> {
        if self.peek() != Some(byte) {
            return Err(NotCopied::Unusual);
        }
        self.at += 1;
        Ok(())
    }

    fn value(&mut self, depth: usize) -> Result<(), NotCopied> {
        let first = self.peek().ok_or(NotCopied::Unusual)?;
        match first {
            b'"' => self.string().map(drop),
            b'-' | b'0'..=b'9' => self.number(),
            b't' => self.word(b"true"),
            b'f' => self.word(b"false"),
            b'n' => self.word(b"null"),
            b'{' | b'[' if depth == MAX_DEPTH => Err(NotCopied::Depth),
            b'{' => self.list(b'}', depth, |copier| {
                if copier.string()? {
                    return Err(NotCopied::Unusual);
                }
                copier.take(b':')
            }),
            b'[' => self.list(b']', depth, |_| Ok(())),
            _ => Err(NotCopied::Unusual),
        }
    }

    fn word(&mut self, word: &[u8]) -> Result<(), NotCopied> {
        if !self.json[self.at..].starts_with(word) {
            return Err(NotCopied::Unusual);
        }
        self.at += word.len();
        Ok(())
    }

    #[inline]
    fn list(
        &mut self,
        end: u8,
        depth: usize,
        before: impl Fn(&mut Self) -> Result<(), NotCopied>,
    ) -> Result<(), NotCopied> {
        self.at += 1;
        if self.peek() == Some(end) {
            self.at += 1;
            return Ok(());
        }
        loop {
            before(self)?;
            self.value(depth + 1)?;
            if self.peek() != Some(b',') {
                return self.take(end);
            }
            self.at += 1;
        }
    }

    /// Reads a string; returns whether it starts with a digit.
    fn string(&mut self) -> Result<bool, NotCopied> {
        self.take(b'"')?;
        let start = self.at;
        let (end, escapes) = string_end(self.json, start).ok_or(NotCopied::Unusual)?;
        let text = &self.json[start..end];
        let control = text
            .iter()
            .fold(false, |control, &byte| control | (byte < b' '));
        if control || (escapes && !usual_escapes(text)) {
            return Err(NotCopied::Unusual);
        }
        self.at = end + 1;
        Ok(text.first().is_some_and(u8::is_ascii_digit))
    }

    fn number(&mut self) -> Result<(), NotCopied> {
        let start = self.at;
        let rest = &self.json[start..];
        let negative = usize::from(rest[0] == b'-');
        let digits = rest[negative..]
            .iter()
            .take_while(|byte| byte.is_ascii_digit());
        let digits = digits.count();
        let len = negative + digits;
        let integer = !matches!(rest.get(len), Some(b'.' | b'e' | b'E'));
        let zero = rest.get(negative) == Some(&b'0');
        if digits == 0 || (zero && digits > 1) {
            return Err(NotCopied::Unusual);
        }
        if integer && digits <= 15 && !(zero && negative == 1) {
            self.at += len;
            return Ok(());
        }
        let of_number = |byte: &&u8| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-');
        let len = rest.iter().take_while(of_number).count();
        let text = str::from_utf8(&rest[..len]).map_err(|_| NotCopied::Unusual)?;
        let number: f64 = text.parse().map_err(|_| NotCopied::Unusual)?;
        self.flush();
        if number.is_finite() {
            let mut buffer = ryu_js::Buffer::new();
            let digits = buffer.format_finite(number);
            self.out.extend_from_slice(digits.as_bytes());
        } else {
            self.out.extend_from_slice(b"null");
        }
        self.at += len;
        self.copied = self.at;
        Ok(())
    }
}

/// Returns whether all escapes in a string are those that `JSON.stringify` writes.
#[cold]
fn usual_escapes(text: &[u8]) -> bool {
    let mut rest = text;
    while let Some(at) = memchr::memchr(b'\\', rest) {
        let escape = &rest[at + 1..];
        let len = match escape {
            [b'"' | b'\\' | b'b' | b'f' | b'n' | b'r' | b't', ..] => 1,
            [b'u', b'0', b'0', b'0', b'0'..=b'7' | b'b' | b'e' | b'f', ..] => 5,
            [b'u', b'0', b'0', b'1', b'0'..=b'9' | b'a'..=b'f', ..] => 5,
            _ => return false,
        };
        rest = &escape[len..];
    }
    true
}
