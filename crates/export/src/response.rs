//! The list in a response, element by element.

use std::io::{self, BufRead, Read};

use bytes::Bytes;
use load::Scanner;
use reqwest::Response;
use tokio::runtime::Handle;

use crate::error::ExportError;

/// Members whose arrays are lists of elements.
const LISTS: [&[u8]; 3] = [br#""rows""#, br#""docs""#, br#""groups""#];

/// The body of a response, for a thread that is not the runtime's.
pub(crate) struct Body {
    runtime: Handle,
    response: Response,
    piece: Bytes,
}

impl Body {
    pub(crate) fn new(runtime: Handle, response: Response) -> Self {
        Self {
            runtime,
            response,
            piece: Bytes::new(),
        }
    }
}

impl Read for Body {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() {
            let piece = self.runtime.block_on(self.response.chunk());
            match piece.map_err(io::Error::other)? {
                Some(piece) => self.piece = piece,
                None => return Ok(0),
            }
        }
        let bytes = out.len().min(self.piece.len());
        out[..bytes].copy_from_slice(&self.piece.split_to(bytes));
        Ok(bytes)
    }
}

/// Takes the text of an element; returns false to stop.
pub(crate) type Visit<'a> = dyn FnMut(&str) -> Result<bool, ExportError> + 'a;

/// Names and JSON values of the members that are not lists.
pub(crate) type Others = Vec<(String, String)>;

/// Passes the elements of the lists in a response to `visit`. Returns the other members, or `None`
/// if it was stopped.
pub(crate) fn elements<R: BufRead>(
    mut scanner: Scanner<R>,
    visit: &mut Visit<'_>,
) -> Result<Option<Others>, ExportError> {
    let mut others = Vec::new();
    scanner.expect(b'{')?;
    loop {
        let mut name = Vec::new();
        scanner.value(&mut name)?;
        scanner.expect(b':')?;
        if LISTS.contains(&name.as_slice()) && scanner.peek()? == Some(b'[') {
            if !list(&mut scanner, visit)? {
                return Ok(None);
            }
        } else {
            let mut value = Vec::new();
            scanner.value(&mut value)?;
            let name = serde_json::from_slice(&name);
            let name = name.map_err(|error| ExportError::Element(error.to_string()))?;
            others.push((name, String::from_utf8_lossy(&value).into_owned()));
        }
        if !scanner.another(b'}')? {
            return Ok(Some(others));
        }
    }
}

/// Returns whether the list was read to its end.
fn list<R: BufRead>(scanner: &mut Scanner<R>, visit: &mut Visit<'_>) -> Result<bool, ExportError> {
    scanner.expect(b'[')?;
    if scanner.peek()? == Some(b']') {
        scanner.expect(b']')?;
        return Ok(true);
    }
    let mut element = Vec::new();
    loop {
        element.clear();
        scanner.value(&mut element)?;
        let text = std::str::from_utf8(&element);
        let text = text.map_err(|error| ExportError::Element(error.to_string()))?;
        if !visit(text)? {
            return Ok(false);
        }
        if !scanner.another(b']')? {
            return Ok(true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, stop_at: usize) -> (Vec<String>, Result<Option<Others>, ExportError>) {
        let mut found = Vec::new();
        let scanner = Scanner::new(text.as_bytes(), "test".to_owned()).unwrap();
        let others = elements(scanner, &mut |element| {
            found.push(element.to_owned());
            Ok(found.len() < stop_at)
        });
        (found, others)
    }

    #[test]
    fn elements_come_one_at_a_time_and_the_rest_is_returned() {
        let text = "{\"total_rows\":2,\"rows\":[\n{\"a\":[1.0]},\n{}\n],\"bookmark\":\"x\"}";
        let (found, others) = read(text, 9);
        assert_eq!(found, [r#"{"a":[1.0]}"#, "{}"]);
        let wanted = [("total_rows", "2"), ("bookmark", "\"x\"")];
        let wanted = wanted.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(others.unwrap().unwrap(), wanted);
        let (found, others) = read(text, 1);
        assert_eq!(found.len(), 1);
        assert!(others.unwrap().is_none());
        let (found, others) = read("{\"docs\":[]}", 9);
        assert!(found.is_empty() && others.unwrap().unwrap().is_empty());
    }

    #[test]
    fn a_response_that_ends_early_is_an_error() {
        for text in [
            "{\"rows\":[{\"a\":1},",
            "{\"rows\":[{\"a\":1}",
            "{\"rows\":[]",
            "",
        ] {
            assert!(read(text, 9).1.is_err(), "{text}");
        }
    }
}
