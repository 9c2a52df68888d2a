//! Reads and writes the fields of stored values.

pub use document::varint::put;

use document::varint;

use crate::Error;

/// A reader over a stored value; reading past its end is corruption, not a panic.
pub struct Reader<'a> {
    /// The unread rest.
    pub rest: &'a [u8],
    what: &'static str,
}

impl<'a> Reader<'a> {
    /// Reads a value; `what` names it in errors.
    pub fn new(rest: &'a [u8], what: &'static str) -> Self {
        Reader { rest, what }
    }

    /// Returns the error of a value that does not decode.
    #[cold]
    pub fn corrupt(&self) -> Error {
        Error::Corrupt(self.what)
    }

    // Errors are created only when they occur: created beforehand, each would have to be dropped,
    // which slows down rows and records.

    /// Reads one byte.
    #[inline]
    pub fn byte(&mut self) -> Result<u8, Error> {
        match self.rest.split_off_first() {
            Some(b) => Ok(*b),
            None => Err(self.corrupt()),
        }
    }

    /// Reads a number.
    #[inline]
    pub fn varint(&mut self) -> Result<u64, Error> {
        match varint::take(&mut self.rest) {
            Some(number) => Ok(number),
            None => Err(self.corrupt()),
        }
    }

    /// Reads `n` bytes.
    #[inline]
    pub fn bytes(&mut self, n: usize) -> Result<&'a [u8], Error> {
        match self.rest.split_off(..n) {
            Some(bytes) => Ok(bytes),
            None => Err(self.corrupt()),
        }
    }

    /// Reads bytes preceded by their length.
    #[inline]
    pub fn slice(&mut self) -> Result<&'a [u8], Error> {
        let n = self.varint()? as usize;
        self.bytes(n)
    }

    /// Reads text preceded by its length in bytes.
    #[inline]
    pub fn str(&mut self) -> Result<&'a str, Error> {
        let b = self.slice()?;
        match std::str::from_utf8(b) {
            Ok(text) => Ok(text),
            Err(_) => Err(self.corrupt()),
        }
    }
}

/// Appends bytes, preceded by their length.
pub fn put_slice(b: &[u8], out: &mut Vec<u8>) {
    put(b.len() as u64, out);
    out.extend_from_slice(b);
}
