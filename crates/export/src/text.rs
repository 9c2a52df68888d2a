//! JSON and JSON Lines.

use std::io::{self, Write};

use crate::error::ExportError;

/// Writes elements as JSON: one array, or a line for each.
pub(crate) struct Texts<'a> {
    out: &'a mut dyn Write,
    is_array: bool,
    is_empty: bool,
}

impl<'a> Texts<'a> {
    pub(crate) fn new(out: &'a mut dyn Write, is_array: bool) -> Self {
        Self {
            out,
            is_array,
            is_empty: true,
        }
    }

    /// Writes an element.
    pub(crate) fn add(&mut self, element: &str) -> Result<(), ExportError> {
        self.write(element).map_err(ExportError::output)
    }

    fn write(&mut self, element: &str) -> io::Result<()> {
        if self.is_array {
            self.out
                .write_all(if self.is_empty { b"[\n" } else { b",\n" })?;
            self.out.write_all(element.as_bytes())?;
        } else {
            // Line breaks in JSON are between its tokens: in strings they are escaped.
            let line = element.replace(['\n', '\r'], " ");
            self.out.write_all(line.as_bytes())?;
            self.out.write_all(b"\n")?;
        }
        self.is_empty = false;
        Ok(())
    }

    /// Writes the end, and what is buffered.
    pub(crate) fn end(self) -> Result<(), ExportError> {
        let end: &[u8] = match (self.is_array, self.is_empty) {
            (false, _) => b"",
            (true, true) => b"[]\n",
            (true, false) => b"\n]\n",
        };
        let written = self.out.write_all(end).and_then(|()| self.out.flush());
        written.map_err(ExportError::output)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(elements: &[&str], is_array: bool) -> String {
        let mut out = Vec::new();
        let mut texts = Texts::new(&mut out, is_array);
        for element in elements {
            texts.add(element).unwrap();
        }
        texts.end().unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn elements_are_an_array_or_lines() {
        let elements = ["{\"a\":\n1.0}", "{}"];
        assert_eq!(written(&elements, true), "[\n{\"a\":\n1.0},\n{}\n]\n");
        assert_eq!(written(&elements, false), "{\"a\": 1.0}\n{}\n");
        assert_eq!(written(&[], true), "[]\n");
        assert_eq!(written(&[], false), "");
    }
}
