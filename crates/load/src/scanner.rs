//! Cutting a stream of JSON into values without parsing them: only the value in hand is in memory.

use std::io::{self, BufRead};

/// A single value may not be larger: it is held in memory, and no server takes such a document.
const VALUE_BYTES_MAX: usize = 256 << 20;

/// A place in the input, after decompression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// Bytes before it.
    pub offset: u64,
    /// Its line, from 1.
    pub line: u64,
}

impl std::fmt::Display for Position {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "line {}, byte offset {}", self.line, self.offset)
    }
}

/// The input cannot be read further.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    /// A file or stream failed.
    #[error("{name}: {source}")]
    Read {
        /// File or URL.
        name: String,
        /// The reason.
        source: io::Error,
    },
    /// The content is invalid.
    #[error("{name}: {problem} at {position}")]
    Syntax {
        /// File or URL.
        name: String,
        /// The problem.
        problem: String,
        /// Its position.
        position: Position,
    },
}

/// Reads the values of a stream of JSON, one at a time.
pub struct Scanner<R> {
    input: R,
    name: String,
    position: Position,
}

impl<R: BufRead> Scanner<R> {
    /// `name` is for error messages. A byte order mark is skipped.
    ///
    /// # Errors
    /// The input cannot be read.
    pub fn new(input: R, name: String) -> Result<Self, InputError> {
        let mut scanner = Self {
            input,
            name,
            position: Position { offset: 0, line: 1 },
        };
        if scanner.chunk()?.starts_with(b"\xef\xbb\xbf") {
            scanner.consume(3)?;
        }
        Ok(scanner)
    }

    /// Returns the position of the next byte.
    pub(crate) fn position(&self) -> Position {
        self.position
    }

    /// Skips white space and returns the next byte without consuming it; `None` at the end of the
    /// input.
    ///
    /// # Errors
    /// The input cannot be read.
    pub fn peek(&mut self) -> Result<Option<u8>, InputError> {
        loop {
            let chunk = self.chunk()?;
            if chunk.is_empty() {
                return Ok(None);
            }
            let space = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
            match chunk.iter().position(|byte| !space(byte)) {
                Some(at) => {
                    let byte = chunk[at];
                    self.consume(at)?;
                    return Ok(Some(byte));
                }
                None => {
                    let all = chunk.len();
                    self.consume(all)?;
                }
            }
        }
    }

    /// Skips white space and this byte, which must come next.
    ///
    /// # Errors
    /// Another byte comes next, or the input cannot be read.
    pub fn expect(&mut self, byte: u8) -> Result<(), InputError> {
        match self.peek()? {
            Some(next) if next == byte => self.consume(1),
            Some(next) => Err(self.syntax(format!(
                "expected '{}', found '{}'",
                byte as char,
                next.escape_ascii()
            ))),
            None => Err(self.ended()),
        }
    }

    /// After an element or member: true when another one follows its comma, false at the closing
    /// byte.
    ///
    /// # Errors
    /// Another byte comes next, or the input cannot be read.
    pub fn another(&mut self, closing: u8) -> Result<bool, InputError> {
        match self.peek()? {
            Some(b',') => self.consume(1).map(|()| true),
            Some(byte) if byte == closing => self.consume(1).map(|()| false),
            Some(byte) => Err(self.syntax(format!(
                "expected ',' or '{}', found '{}'",
                closing as char,
                byte.escape_ascii()
            ))),
            None => Err(self.ended()),
        }
    }

    /// Appends the next value's bytes and returns where it begins. The caller checks that they are
    /// JSON.
    ///
    /// # Errors
    /// No value comes next, it does not end, or the input cannot be read.
    pub fn value(&mut self, out: &mut Vec<u8>) -> Result<Position, InputError> {
        let start = self.peek()?;
        let position = self.position;
        match start {
            Some(b'{' | b'[' | b'"') => self.nested(out, 0, position)?,
            Some(b'}' | b']' | b',' | b':') | None => {
                return Err(match start {
                    Some(byte) => {
                        self.syntax(format!("expected a value, found '{}'", byte as char))
                    }
                    None => self.ended(),
                });
            }
            Some(_) => self.scalar(out)?,
        }
        Ok(position)
    }

    /// Appends the rest of an object or array whose opening byte has been read.
    pub(crate) fn rest(&mut self, out: &mut Vec<u8>, began: Position) -> Result<(), InputError> {
        self.nested(out, 1, began)
    }

    /// Reads until the open containers, or the string that begins here, are closed.
    fn nested(
        &mut self,
        out: &mut Vec<u8>,
        depth: usize,
        began: Position,
    ) -> Result<(), InputError> {
        let mut nesting = Nesting {
            depth,
            in_string: false,
            escaped: false,
        };
        loop {
            let chunk = self.chunk()?;
            if chunk.is_empty() {
                return Err(self.syntax(format!(
                    "the value that began at {began} is incomplete: the input ends"
                )));
            }
            let end = nesting.end_in(chunk);
            let used = end.unwrap_or(chunk.len());
            out.extend_from_slice(&chunk[..used]);
            self.consume(used)?;
            if out.len() > VALUE_BYTES_MAX {
                return Err(self.syntax(format!(
                    "a value of more than {} MB, which began at {began}",
                    VALUE_BYTES_MAX >> 20
                )));
            }
            if end.is_some() {
                return Ok(());
            }
        }
    }

    fn scalar(&mut self, out: &mut Vec<u8>) -> Result<(), InputError> {
        loop {
            let chunk = self.chunk()?;
            let ends =
                |byte: &u8| matches!(byte, b',' | b'}' | b']' | b':') || byte.is_ascii_whitespace();
            let end = chunk.iter().position(ends);
            let used = end.unwrap_or(chunk.len());
            out.extend_from_slice(&chunk[..used]);
            self.consume(used)?;
            if end.is_some() || used == 0 {
                return Ok(());
            }
            if out.len() > VALUE_BYTES_MAX {
                return Err(self.syntax("a value that does not end".to_owned()));
            }
        }
    }

    fn chunk(&mut self) -> Result<&[u8], InputError> {
        self.input.fill_buf().map_err(|source| InputError::Read {
            name: self.name.clone(),
            source,
        })
    }

    fn consume(&mut self, bytes: usize) -> Result<(), InputError> {
        let chunk = self.chunk()?;
        let lines = memchr::memchr_iter(b'\n', &chunk[..bytes]).count();
        self.input.consume(bytes);
        self.position.offset += bytes as u64;
        self.position.line += lines as u64;
        Ok(())
    }

    /// Returns an error at the present position.
    pub(crate) fn syntax(&self, problem: String) -> InputError {
        self.syntax_at(problem, self.position)
    }

    pub(crate) fn syntax_at(&self, problem: String, position: Position) -> InputError {
        InputError::Syntax {
            name: self.name.clone(),
            problem,
            position,
        }
    }

    fn ended(&self) -> InputError {
        self.syntax("the input ends early".to_owned())
    }
}

/// The depth of a scan in containers, and whether it is in a string.
struct Nesting {
    depth: usize,
    in_string: bool,
    escaped: bool,
}

impl Nesting {
    /// Returns how many bytes of the chunk belong to the value, if it ends there.
    fn end_in(&mut self, chunk: &[u8]) -> Option<usize> {
        for (at, byte) in chunk.iter().enumerate() {
            if self.in_string {
                match byte {
                    _ if self.escaped => self.escaped = false,
                    b'\\' => self.escaped = true,
                    b'"' => self.in_string = false,
                    _ => continue,
                }
                if self.in_string || self.depth > 0 {
                    continue;
                }
            } else {
                match byte {
                    b'"' => self.in_string = true,
                    b'{' | b'[' => self.depth += 1,
                    b'}' | b']' => self.depth -= 1,
                    _ => {}
                }
                if self.in_string || self.depth > 0 {
                    continue;
                }
            }
            return Some(at + 1);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::BufReader;

    fn scanner(text: &str, buffer: usize) -> Scanner<BufReader<&[u8]>> {
        Scanner::new(
            BufReader::with_capacity(buffer, text.as_bytes()),
            "test".to_owned(),
        )
        .unwrap()
    }

    #[test]
    fn values_are_cut_alike_whatever_the_size_of_the_buffer() {
        let text = " {\"a\":\"}\\\"]\",\"b\":[1,{\"c\":\"\\\\\"}]}\n\"s{\" 12.5 true\n[]";
        let expected = [
            r#"{"a":"}\"]","b":[1,{"c":"\\"}]}"#,
            r#""s{""#,
            "12.5",
            "true",
            "[]",
        ];
        for buffer in 3..40 {
            let mut scanner = scanner(text, buffer);
            for value in expected {
                let mut out = Vec::new();
                scanner.value(&mut out).unwrap();
                assert_eq!(String::from_utf8(out).unwrap(), value, "buffer of {buffer}");
            }
            assert_eq!(scanner.peek().unwrap(), None);
        }
    }

    #[test]
    fn an_early_end_names_both_places() {
        let mut scanner = scanner("{}\n{\"a\":\n[1,", 64);
        scanner.value(&mut Vec::new()).unwrap();
        let error = scanner.value(&mut Vec::new()).unwrap_err().to_string();
        assert_eq!(
            error,
            "test: the value that began at line 2, byte offset 3 is incomplete: the input ends at line 3, byte offset 12"
        );
    }

    #[test]
    fn a_byte_order_mark_is_skipped() {
        assert_eq!(scanner("\u{feff} 1", 64).peek().unwrap(), Some(b'1'));
    }
}
