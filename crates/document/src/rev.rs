//! Revisions: a generation and a hash, written `N-hash`.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};

use data_encoding::HEXLOWER;

/// The maximum generation, so that counting on from a client's made-up revision cannot overflow.
pub const GENERATION_MAX: u64 = 1 << 62;

/// The part of a revision after its generation.
///
/// Hashes are equal and ordered by their bytes, whichever variant holds them.
#[derive(Clone)]
pub enum RevHash {
    /// The 16 bytes of an MD5 sum, written as 32 lowercase hexadecimal digits.
    Md5([u8; 16]),
    /// Any other text of a client's own revision (`new_edits=false`). Always UTF-8 when it was
    /// parsed.
    Text(Box<[u8]>),
}

impl RevHash {
    /// Returns the hash's bytes: raw, not hexadecimal.
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Md5(bytes) => bytes,
            Self::Text(bytes) => bytes,
        }
    }

    /// Parses a hash. Every text is valid: 32 hexadecimal digits (of either case) are an MD5 sum,
    /// and so are any 16 bytes, since CouchDB writes a revision of 16 bytes in hexadecimal wherever
    /// it came from.
    pub fn parse(text: &str) -> Self {
        let bytes = text.as_bytes();
        if let Some(md5) = parse_hex(bytes) {
            return Self::Md5(md5);
        }
        match <[u8; 16]>::try_from(bytes) {
            Ok(raw) => Self::Md5(raw),
            Err(_) => Self::Text(bytes.into()),
        }
    }

    /// Reads a hash that a client sent, of a revision of this generation. As in CouchDB, 32 characters are an MD5 sum, except
    /// in generation 0.
    ///
    /// # Errors
    /// [`RevError`] for 32 characters that are not hexadecimal.
    pub fn of_client(generation: u64, text: &str) -> Result<Self, RevError> {
        match Self::parse(text) {
            Self::Text(bytes) if bytes.len() == 32 && generation > 0 => Err(RevError),
            hash => Ok(hash),
        }
    }

    /// Appends the hash as it is written in a revision. The text of a made-up revision can hold any character:
    /// inside JSON use [`Rev::write_json_to`].
    pub fn write_to(&self, out: &mut Vec<u8>) {
        match self {
            Self::Md5(bytes) => out.extend_from_slice(&hex(bytes)),
            Self::Text(bytes) => out.extend_from_slice(bytes),
        }
    }

    /// Appends the hash as a JSON string, as in `_revisions.ids`.
    pub fn write_json_to(&self, out: &mut Vec<u8>) {
        out.push(b'"');
        self.write_json_inner(out);
        out.push(b'"');
    }

    fn write_json_inner(&self, out: &mut Vec<u8>) {
        match self {
            Self::Md5(bytes) => out.extend_from_slice(&hex(bytes)),
            Self::Text(bytes) => {
                crate::json::write_escaped(&String::from_utf8_lossy(bytes), out);
            }
        }
    }
}

/// Every row of a listing or feed has one: this takes half the time that `data-encoding` does.
fn hex(bytes: &[u8; 16]) -> [u8; 32] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = [0; 32];
    for (pair, byte) in text.chunks_exact_mut(2).zip(bytes) {
        pair[0] = DIGITS[usize::from(byte >> 4)];
        pair[1] = DIGITS[usize::from(byte & 15)];
    }
    text
}

fn parse_hex(text: &[u8]) -> Option<[u8; 16]> {
    let text: &[u8; 32] = text.try_into().ok()?;
    let mut bytes = [0; 16];
    for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        *byte = hex_digit(pair[0])? << 4 | hex_digit(pair[1])?;
    }
    Some(bytes)
}

pub(crate) fn hex_digit(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

impl PartialEq for RevHash {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for RevHash {}

impl PartialOrd for RevHash {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for RevHash {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_bytes().cmp(other.as_bytes())
    }
}

impl Hash for RevHash {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

impl fmt::Display for RevHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Md5(bytes) => fmt::Display::fmt(&HEXLOWER.encode_display(bytes), f),
            Self::Text(bytes) => f.write_str(&String::from_utf8_lossy(bytes)),
        }
    }
}

impl fmt::Debug for RevHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// A revision of a document, ordered by generation and then by hash.
///
/// ```
/// use document::Rev;
/// let rev = Rev::parse("2-7051CBE5C8FAECD085A3FA619E6E6337").unwrap();
/// assert_eq!(rev.generation, 2);
/// assert_eq!(rev.to_string(), "2-7051cbe5c8faecd085a3fa619e6e6337");
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rev {
    /// The number of edits that led to this revision, itself included.
    pub generation: u64,
    /// Distinguishes it from other revisions of the same generation.
    pub hash: RevHash,
}

impl Rev {
    /// Parses `N-hash`.
    ///
    /// # Errors
    /// [`RevError`] unless the text starts with a decimal number and a dash. Any text may follow,
    /// even none, except 32 characters that are not hexadecimal.
    pub fn parse(text: &str) -> Result<Self, RevError> {
        let (generation, hash) = text.split_once('-').ok_or(RevError)?;
        if generation.is_empty() || !generation.bytes().all(|digit| digit.is_ascii_digit()) {
            return Err(RevError);
        }
        let generation = generation.parse().map_err(|_| RevError)?;
        if generation > GENERATION_MAX {
            return Err(RevError);
        }
        let hash = RevHash::of_client(generation, hash)?;
        Ok(Self { generation, hash })
    }

    /// Borrows the revision.
    pub fn as_ref(&self) -> RevRef<'_> {
        RevRef {
            generation: self.generation,
            hash: &self.hash,
        }
    }

    /// Appends `N-hash`. Inside JSON use [`Rev::write_json_to`].
    pub fn write_to(&self, out: &mut Vec<u8>) {
        self.as_ref().write_to(out);
    }

    /// Appends `"N-hash"`, quoted and escaped.
    pub fn write_json_to(&self, out: &mut Vec<u8>) {
        self.as_ref().write_json_to(out);
    }
}

/// A borrowed [`Rev`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RevRef<'a> {
    /// See [`Rev::generation`].
    pub generation: u64,
    /// See [`Rev::hash`].
    pub hash: &'a RevHash,
}

impl RevRef<'_> {
    /// Makes an owned revision.
    pub fn to_rev(self) -> Rev {
        Rev {
            generation: self.generation,
            hash: self.hash.clone(),
        }
    }

    /// Appends `N-hash`. Inside JSON use [`RevRef::write_json_to`].
    pub fn write_to(self, out: &mut Vec<u8>) {
        write_decimal(self.generation, out);
        out.push(b'-');
        self.hash.write_to(out);
    }

    /// Appends `"N-hash"`, quoted and escaped.
    pub fn write_json_to(self, out: &mut Vec<u8>) {
        out.push(b'"');
        write_decimal(self.generation, out);
        out.push(b'-');
        self.hash.write_json_inner(out);
        out.push(b'"');
    }
}

fn write_decimal(mut number: u64, out: &mut Vec<u8>) {
    let mut digits = [0; 20];
    let mut start = digits.len();
    loop {
        start -= 1;
        digits[start] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[start..]);
}

impl fmt::Display for Rev {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.as_ref(), f)
    }
}

impl fmt::Display for RevRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.generation, self.hash)
    }
}

impl fmt::Debug for Rev {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// The text is not a revision. CouchDB's error is `bad_request`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Invalid rev format")]
pub struct RevError;

impl RevError {
    /// CouchDB's name of the error.
    pub fn error(&self) -> &'static str {
        "bad_request"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn revisions_are_a_number_a_dash_and_anything() {
        for text in [
            "1-967a00dff5e02add41819138abb3284d",
            "1-",
            "0-1",
            "12-zz",
            "1-a-b",
            "3-é",
        ] {
            let rev = Rev::parse(text).unwrap();
            assert_eq!(rev.to_string(), text);
            let mut written = Vec::new();
            rev.write_to(&mut written);
            assert_eq!(written, text.as_bytes());
        }
        for text in [
            "",
            "x",
            "bad",
            "abc-1",
            "1",
            "-1",
            "-",
            "+1-x",
            "1.5-x",
            " 1-x",
            "99999999999999999999-x",
        ] {
            assert_eq!(Rev::parse(text), Err(RevError), "{text}");
        }
    }

    #[test]
    fn hexadecimal_hashes_are_written_in_lowercase() {
        let rev = Rev::parse("1-967A00DFF5E02ADD41819138ABB3284D").unwrap();
        assert_eq!(rev.to_string(), "1-967a00dff5e02add41819138abb3284d");
        assert_eq!(
            rev,
            Rev::parse("1-967a00dff5e02add41819138abb3284d").unwrap()
        );
    }

    #[test]
    fn revisions_are_ordered_by_generation_then_by_raw_bytes() {
        let rev = |text: &str| Rev::parse(text).unwrap();
        assert!(rev("2-a") < rev("10-a"));
        assert!(rev("1-a") < rev("1-b"));
        // 0x30… as raw bytes is '0' and so on, not the letters of its hexadecimal form
        assert!(rev("1-30303030303030303030303030303030") < rev("1-1"));
        assert!(rev("1-") < rev("1-00000000000000000000000000000000"));
        assert_eq!(
            rev("1-0000000000000000"),
            rev("1-30303030303030303030303030303030")
        );
    }

    #[test]
    fn a_made_up_revision_is_escaped_inside_json() {
        let mut out = Vec::new();
        Rev::parse("1-a\"b").unwrap().write_json_to(&mut out);
        assert_eq!(out, br#""1-a\"b""#);
    }
}
