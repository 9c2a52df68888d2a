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
    pub fn corrupt(&self) -> Error {
        Error::Corrupt(self.what)
    }

    /// One byte.
    pub fn byte(&mut self) -> Result<u8, Error> {
        let (&b, rest) = self.rest.split_first().ok_or(self.corrupt())?;
        self.rest = rest;
        Ok(b)
    }

    /// A number.
    #[inline]
    pub fn varint(&mut self) -> Result<u64, Error> {
        varint::take(&mut self.rest).ok_or(self.corrupt())
    }

    /// So many bytes.
    pub fn bytes(&mut self, n: usize) -> Result<&'a [u8], Error> {
        if n > self.rest.len() {
            return Err(self.corrupt());
        }
        let (a, b) = self.rest.split_at(n);
        self.rest = b;
        Ok(a)
    }

    /// Bytes preceded by their length.
    pub fn slice(&mut self) -> Result<&'a [u8], Error> {
        let n = self.varint()? as usize;
        self.bytes(n)
    }

    /// Text preceded by its length in bytes.
    pub fn str(&mut self) -> Result<&'a str, Error> {
        let b = self.slice()?;
        std::str::from_utf8(b).map_err(|_| self.corrupt())
    }
}

/// Appends bytes, preceded by their length.
pub fn put_slice(b: &[u8], out: &mut Vec<u8>) {
    put(b.len() as u64, out);
    out.extend_from_slice(b);
}
