//! From JSON text to a sort key, in one pass without recursion.

use super::{END, MEMBER, Tags, number};
use crate::DocError;
use crate::json::{DEPTH_MAX, find_special, read_number, unescape};

/// The state after the next value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Container {
    Array,
    Object,
}

/// The containers that are open: a bit each, so that keys of usual depth need no allocation.
#[derive(Default)]
struct Open {
    depth: usize,
    /// The last `depth % 64` of them, the innermost lowest.
    bits: u64,
    full: Vec<u64>,
}

impl Open {
    fn push(&mut self, container: Container) -> Result<(), DocError> {
        if self.depth == DEPTH_MAX {
            return Err(DocError::TooDeep);
        }
        if self.depth > 0 && self.depth.is_multiple_of(64) {
            self.full.push(self.bits);
        }
        self.bits = self.bits << 1 | u64::from(container == Container::Object);
        self.depth += 1;
        Ok(())
    }

    fn pop(&mut self) {
        self.depth -= 1;
        if self.depth > 0 && self.depth.is_multiple_of(64) {
            self.bits = self.full.pop().unwrap_or_default();
        } else {
            self.bits >>= 1;
        }
    }

    fn innermost(&self) -> Option<Container> {
        match (self.depth, self.bits & 1) {
            (0, _) => None,
            (_, 0) => Some(Container::Array),
            _ => Some(Container::Object),
        }
    }
}

/// Reads a JSON value and writes its sort key.
pub(super) struct Writer<'a> {
    json: &'a [u8],
    at: usize,
    open: Open,
    tags: &'static Tags,
    unescaped: Vec<u8>,
}

impl<'a> Writer<'a> {
    pub(super) fn new(json: &'a [u8], tags: &'static Tags) -> Self {
        Self {
            json,
            at: 0,
            open: Open::default(),
            tags,
            unescaped: Vec::new(),
        }
    }

    /// `string` writes the text of a string without its tag and its end, and no zero byte.
    pub(super) fn write(
        mut self,
        out: &mut Vec<u8>,
        string: impl Fn(&[u8], &mut Vec<u8>),
    ) -> Result<(), DocError> {
        loop {
            self.value(out, &string)?;
            // Containers that end here.
            loop {
                let byte = self.next_byte();
                match (self.open.innermost(), byte) {
                    (None, None) => return Ok(()),
                    (Some(Container::Array), Some(b',')) => {
                        self.at += 1;
                        break;
                    }
                    (Some(Container::Object), Some(b',')) => {
                        self.at += 1;
                        self.name(out, &string)?;
                        break;
                    }
                    (Some(Container::Array), Some(b']'))
                    | (Some(Container::Object), Some(b'}')) => {
                        self.at += 1;
                        self.open.pop();
                        out.push(END);
                    }
                    _ => return Err(DocError::InvalidJson),
                }
            }
        }
    }

    /// Writes a value; of containers that are not empty only what is before their first value.
    fn value(
        &mut self,
        out: &mut Vec<u8>,
        string: &impl Fn(&[u8], &mut Vec<u8>),
    ) -> Result<(), DocError> {
        loop {
            match self.next_byte().ok_or(DocError::InvalidJson)? {
                b'"' => {
                    out.push(self.tags.string);
                    return self.string(out, string);
                }
                b'-' | b'0'..=b'9' => {
                    let (number, end) = read_number(self.json, self.at)?;
                    self.at = end;
                    number::write(number, self.tags.numbers, out);
                    return Ok(());
                }
                b'[' => {
                    out.push(self.tags.array);
                    self.at += 1;
                    if self.next_byte() == Some(b']') {
                        self.at += 1;
                        out.push(END);
                        return Ok(());
                    }
                    self.open.push(Container::Array)?;
                }
                b'{' => {
                    out.push(self.tags.object);
                    self.at += 1;
                    if self.next_byte() == Some(b'}') {
                        self.at += 1;
                        out.push(END);
                        return Ok(());
                    }
                    self.open.push(Container::Object)?;
                    self.name(out, string)?;
                }
                b'n' => return self.literal(b"null", self.tags.null, out),
                b'f' => return self.literal(b"false", self.tags.no, out),
                b't' => return self.literal(b"true", self.tags.yes, out),
                _ => return Err(DocError::InvalidJson),
            }
        }
    }

    fn literal(&mut self, text: &[u8], tag: u8, out: &mut Vec<u8>) -> Result<(), DocError> {
        if !self.json[self.at..].starts_with(text) {
            return Err(DocError::InvalidJson);
        }
        self.at += text.len();
        out.push(tag);
        Ok(())
    }

    /// Reads a member's name and the colon after it.
    fn name(
        &mut self,
        out: &mut Vec<u8>,
        string: &impl Fn(&[u8], &mut Vec<u8>),
    ) -> Result<(), DocError> {
        if self.next_byte() != Some(b'"') {
            return Err(DocError::InvalidJson);
        }
        out.push(MEMBER);
        self.string(out, string)?;
        if self.next_byte() != Some(b':') {
            return Err(DocError::InvalidJson);
        }
        self.at += 1;
        Ok(())
    }

    /// Returns the string whose opening quote is next.
    fn string(
        &mut self,
        out: &mut Vec<u8>,
        string: &impl Fn(&[u8], &mut Vec<u8>),
    ) -> Result<(), DocError> {
        let start = self.at + 1;
        let end = find_special(self.json, start);
        match self.json.get(end) {
            Some(b'"') => {
                string(&self.json[start..end], out);
                self.at = end + 1;
            }
            Some(b'\\') => {
                self.unescaped.clear();
                let end = unescape(self.json, start, &mut self.unescaped)?;
                string(&self.unescaped, out);
                self.at = end + 1;
            }
            _ => return Err(DocError::InvalidJson),
        }
        out.push(END);
        Ok(())
    }

    /// Returns the next byte that is not white space, without consuming it.
    #[inline]
    fn next_byte(&mut self) -> Option<u8> {
        loop {
            match self.json.get(self.at) {
                Some(b' ' | b'\t' | b'\n' | b'\r') => self.at += 1,
                byte => return byte.copied(),
            }
        }
    }
}
