//! Rows, some at a time.

use std::sync::Arc;

use serde_json::{Map, Value};

use crate::{BATCH_BYTES, Handle, Result};

/// A batch of rows: JSON texts, concatenated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// Joined by `separator`.
    text: Vec<u8>,
    separator: &'static [u8],
}

impl Batch {
    /// `text` may start with the separator, after earlier rows.
    pub(crate) fn new(mut text: Vec<u8>, separator: &'static [u8]) -> Batch {
        if text.starts_with(separator) {
            text.drain(..separator.len());
        }
        Batch { text, separator }
    }

    /// JSON text of a list.
    pub fn into_array(self) -> Vec<u8> {
        let mut array = self.text;
        array.insert(0, b'[');
        array.push(b']');
        array
    }

    /// Returns the text of each. Rows are in normal form, in which no white space stands between
    /// values, so that nothing within one is taken for the separator.
    pub fn rows(&self) -> Vec<&[u8]> {
        let (mut rows, mut from, mut at) = (vec![], 0, 0);
        while at < self.text.len() {
            if self.text[at..].starts_with(self.separator) {
                rows.push(&self.text[from..at]);
                at += self.separator.len();
                from = at;
            } else {
                at += 1;
            }
        }
        if from < self.text.len() {
            rows.push(&self.text[from..]);
        }
        rows
    }
}

/// A source of rows.
pub(crate) trait Source: Send {
    /// Appends rows; returns false at the end.
    fn next(&mut self, out: &mut Vec<u8>, soft_bytes: usize) -> Result<bool>;

    /// Returns the members that are known after the last row.
    fn tail(&self) -> Map<String, Value> {
        Map::new()
    }
}

pub(crate) struct Cursor {
    source: Box<dyn Source>,
    has_more: bool,
}

/// Rows of a listing, of a view or of a query.
#[derive(Clone)]
pub struct Rows {
    handle: Arc<Handle<Cursor>>,
    head: Arc<Map<String, Value>>,
}

/// Rows of all but feeds are joined so.
const SEPARATOR: &[u8] = b",\r\n";

impl Rows {
    pub(crate) fn new(
        directory: &crate::Directory,
        source: impl Source + 'static,
        head: Map<String, Value>,
    ) -> Rows {
        Rows {
            handle: directory.handle(Cursor {
                source: Box::new(source),
                has_more: true,
            }),
            head: Arc::new(head),
        }
    }

    /// Returns the members known before the first row (`total_rows`, `offset`, `update_seq`): JSON
    /// text of an object.
    pub fn head(&self) -> String {
        Value::Object((*self.head).clone()).to_string()
    }

    /// Returns the next rows, at least one; nothing at the end. Blocks for about 50 ms at most,
    /// except for users' functions.
    ///
    /// # Errors
    /// Errors of the database; [`Error::closed`](crate::Error::closed).
    pub fn next(&self) -> Result<Option<Batch>> {
        self.handle.with(|cursor| {
            let mut text = vec![];
            while cursor.has_more && text.is_empty() {
                cursor.has_more = cursor.source.next(&mut text, BATCH_BYTES)?;
            }
            Ok((!text.is_empty()).then(|| Batch::new(text, SEPARATOR)))
        })
    }

    /// Returns the members known after the last row (of a query `bookmark`, `warning`,
    /// `execution_stats`): JSON text of an object.
    ///
    /// # Errors
    /// [`Error::closed`](crate::Error::closed).
    pub fn tail(&self) -> Result<String> {
        self.handle
            .with(|cursor| Ok(Value::Object(cursor.source.tail()).to_string()))
    }

    /// Releases its snapshot.
    pub fn close(&self) {
        self.handle.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_a_list_or_its_rows() {
        let of = |text: &[u8]| Batch::new(text.to_vec(), SEPARATOR);
        let some = of(b",\r\n{\"a\":\",\"},\r\n{\"b\":[1,2]}");
        assert_eq!(some.rows(), [&b"{\"a\":\",\"}"[..], b"{\"b\":[1,2]}"]);
        assert_eq!(some.into_array(), b"[{\"a\":\",\"},\r\n{\"b\":[1,2]}]");
        assert_eq!(of(b"{}").rows(), [b"{}"]);
        assert!(of(b"").rows().is_empty());
    }
}
