//! Reading and writing the parts of stored values.

pub use document::varint::put;

use document::varint;

use crate::Error;

/// A reader over a stored value; running off its end is corruption, not a panic.
pub struct Reader<'a> {
    /// What was not read yet.
    pub rest: &'a [u8],
    what: &'static str,
}

impl<'a> Reader<'a> {
    /// Over a value; `what` it is, for errors.
    pub fn new(rest: &'a [u8], what: &'static str) -> Self {
        Reader { rest, what }
    }

    /// The error of a value that does not decode.
    #[cold]
    pub fn corrupt(&self) -> Error {
        Error::Corrupt(self.what)
    }

    // Errors are made when there is one: made beforehand, each would have to be dropped, which rows and records pay for.

    /// One byte.
    #[inline]
    pub fn byte(&mut self) -> Result<u8, Error> {
        match self.rest.split_off_first() {
            Some(b) => Ok(*b),
            None => Err(self.corrupt()),
        }
    }

    /// A number.
    #[inline]
    pub fn varint(&mut self) -> Result<u64, Error> {
        match varint::take(&mut self.rest) {
            Some(number) => Ok(number),
            None => Err(self.corrupt()),
        }
    }

    /// So many bytes.
    #[inline]
    pub fn bytes(&mut self, n: usize) -> Result<&'a [u8], Error> {
        match self.rest.split_off(..n) {
            Some(bytes) => Ok(bytes),
            None => Err(self.corrupt()),
        }
    }

    /// Bytes preceded by their length.
    #[inline]
    pub fn slice(&mut self) -> Result<&'a [u8], Error> {
        let n = self.varint()? as usize;
        self.bytes(n)
    }

    /// Text preceded by its length in bytes.
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
