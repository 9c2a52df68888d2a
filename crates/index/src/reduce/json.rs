//! Values of rows, parsed as far as reduce functions inspect them.

use document::json::{read_number, read_string, skip};
use document::write_json_string;

use super::number::Number;

/// Maximum nesting of a value: deeper ones cannot be summed, and are not inspected.
const DEPTH_MAX: usize = 256;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Json {
    Number(Number),
    Array(Vec<Json>),
    Object(Vec<(String, Json)>),
    /// The text of any other value.
    Other(Vec<u8>),
}

impl Json {
    /// Text that is not JSON becomes a string, so that the output is JSON in any case.
    pub(super) fn parse(text: &[u8]) -> Self {
        let mut reader = Reader { text, at: 0 };
        match reader.value(0) {
            Some(value) if reader.next_byte().is_none() => value,
            _ => {
                let mut quoted = Vec::new();
                write_json_string(&String::from_utf8_lossy(text), &mut quoted);
                Self::Other(quoted)
            }
        }
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Number(number) => number.write(out),
            Self::Other(text) => out.extend_from_slice(text),
            Self::Array(elements) => {
                out.push(b'[');
                for (at, element) in elements.iter().enumerate() {
                    if at > 0 {
                        out.push(b',');
                    }
                    element.write(out);
                }
                out.push(b']');
            }
            Self::Object(members) => {
                out.push(b'{');
                for (at, (name, value)) in members.iter().enumerate() {
                    if at > 0 {
                        out.push(b',');
                    }
                    write_json_string(name, out);
                    out.push(b':');
                    value.write(out);
                }
                out.push(b'}');
            }
        }
    }

    pub(super) fn text(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.write(&mut out);
        out
    }
}

/// Writes the error of a built-in function in the place of a result.
pub(super) fn write_error(reason: &str, cause: Option<&Json>, out: &mut Vec<u8>) {
    out.extend_from_slice(br#"{"error":"builtin_reduce_error","reason":"#);
    write_json_string(reason, out);
    if let Some(cause) = cause {
        out.extend_from_slice(br#","caused_by":"#);
        cause.write(out);
    }
    out.push(b'}');
}

/// Returns the texts of an array's elements.
pub(super) fn elements(array: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut reader = Reader { text: array, at: 0 };
    let mut open = reader.next_byte() == Some(b'[');
    reader.at += 1;
    std::iter::from_fn(move || {
        if !open {
            return None;
        }
        reader.next_byte().filter(|&byte| byte != b']')?;
        let start = reader.at;
        let end = skip::value(array, start)?;
        reader.at = end;
        open = reader.next_byte() == Some(b',');
        reader.at += 1;
        Some(&array[start..end])
    })
}

struct Reader<'a> {
    text: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    /// Skips white space and returns the next byte without consuming it.
    fn next_byte(&mut self) -> Option<u8> {
        self.at = skip::space(self.text, self.at);
        self.text.get(self.at).copied()
    }

    fn value(&mut self, depth: usize) -> Option<Json> {
        match self.next_byte()? {
            b'-' | b'0'..=b'9' => {
                let (number, end) = read_number(self.text, self.at).ok()?;
                self.at = end;
                Some(Json::Number(Number::from_json(number)))
            }
            b'[' if depth < DEPTH_MAX => self.array(depth + 1),
            b'{' if depth < DEPTH_MAX => self.object(depth + 1),
            b'"' => self.other(read_string(self.text, self.at).ok()?.1),
            b'[' | b'{' => self.other(skip::value(self.text, self.at)?),
            _ => {
                let rest = &self.text[self.at..];
                let literals: [&[u8]; 3] = [b"null", b"true", b"false"];
                let literal = literals.iter().find(|literal| rest.starts_with(literal))?;
                self.other(self.at + literal.len())
            }
        }
    }

    /// Returns the value up to `end` as a text.
    fn other(&mut self, end: usize) -> Option<Json> {
        let text = self.text.get(self.at..end)?.to_vec();
        self.at = end;
        Some(Json::Other(text))
    }

    fn array(&mut self, depth: usize) -> Option<Json> {
        let mut elements = Vec::new();
        self.at += 1;
        if self.next_byte()? == b']' {
            self.at += 1;
            return Some(Json::Array(elements));
        }
        loop {
            elements.push(self.value(depth)?);
            let byte = self.next_byte()?;
            self.at += 1;
            match byte {
                b',' => {}
                b']' => return Some(Json::Array(elements)),
                _ => return None,
            }
        }
    }

    fn object(&mut self, depth: usize) -> Option<Json> {
        let mut members = Vec::new();
        self.at += 1;
        if self.next_byte()? == b'}' {
            self.at += 1;
            return Some(Json::Object(members));
        }
        loop {
            self.next_byte()?;
            let (name, end) = read_string(self.text, self.at).ok()?;
            self.at = end;
            if self.next_byte()? != b':' {
                return None;
            }
            self.at += 1;
            members.push((name.into_owned(), self.value(depth)?));
            let byte = self.next_byte()?;
            self.at += 1;
            match byte {
                b',' => {}
                b'}' => return Some(Json::Object(members)),
                _ => return None,
            }
        }
    }
}
