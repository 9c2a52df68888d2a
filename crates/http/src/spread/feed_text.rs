//! The text of a feed as it comes from a node, cut into rows.

use memchr::memmem;
use serde::Deserialize;

use crate::errors::ApiError;
use crate::reply::live::HEAD;

/// Between two rows. Rows have no other line breaks.
const BETWEEN: &[u8] = b"},\n";
/// The text after the last row.
const TAIL: &[u8] = b"\n],\n";

/// The text of a feed of the kind `normal`.
#[derive(Default)]
pub struct FeedText {
    held: Vec<u8>,
    has_head: bool,
}

/// The end of a feed.
#[derive(Debug, PartialEq, Eq)]
pub struct FeedEnd {
    /// The rows that were held, joined by `,\n`.
    pub rows: Vec<u8>,
    /// Where the feed ended.
    pub last_seq: String,
    /// Changes after it.
    pub pending: u64,
}

impl FeedText {
    /// Adds a piece.
    pub fn push(&mut self, piece: &[u8]) {
        self.held.extend_from_slice(piece);
        if !self.has_head && self.held.starts_with(HEAD) {
            self.held.drain(..HEAD.len());
            self.has_head = true;
        }
    }

    /// Takes the rows that are complete, joined by `,\n`; the last one stays until more follows it.
    pub fn take_rows(&mut self) -> Vec<u8> {
        let end = match self.has_head {
            true => memmem::rfind(&self.held, BETWEEN),
            false => None,
        };
        let Some(end) = end else {
            return vec![];
        };
        let rest = self.held.split_off(end + BETWEEN.len());
        let mut rows = std::mem::replace(&mut self.held, rest);
        rows.truncate(end + 1);
        rows
    }

    /// Returns the rest, once the whole text was added.
    ///
    /// # Errors
    /// It is not the end of a feed.
    pub fn end(mut self) -> Result<FeedEnd, ApiError> {
        #[derive(Deserialize)]
        struct Tail {
            last_seq: String,
            pending: u64,
        }
        let mut rows = self.take_rows();
        let odd = |why: &str| ApiError::internal("A node's feed has another form.", why);
        let end = memmem::rfind(&self.held, TAIL).filter(|_| self.has_head);
        let end = end.ok_or_else(|| odd("it has no end"))?;
        if end > 0 {
            add_rows(&mut rows, &self.held[..end]);
        }
        let tail = [&b"{"[..], &self.held[end + TAIL.len()..]].concat();
        let tail: Tail = serde_json::from_slice(&tail).map_err(|e| odd(&e.to_string()))?;
        Ok(FeedEnd {
            rows,
            last_seq: tail.last_seq,
            pending: tail.pending,
        })
    }
}

/// Appends rows to others.
fn add_rows(rows: &mut Vec<u8>, others: &[u8]) {
    if !rows.is_empty() && !others.is_empty() {
        rows.extend_from_slice(b",\n");
    }
    rows.extend_from_slice(others);
}

/// Returns the rows of a text, each without what is between them.
pub fn rows_of(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let lines = text.split(|byte| *byte == b'\n');
    let lines = lines.filter(|line| !line.is_empty());
    lines.map(|line| line.strip_suffix(b",").unwrap_or(line))
}

/// Returns the seq of a row, if it shows one.
pub fn seq_of(row: &[u8]) -> Option<&str> {
    let text = row.strip_prefix(b"{\"seq\":\"")?;
    let end = memchr::memchr(b'"', text)?;
    std::str::from_utf8(&text[..end]).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn row(number: usize) -> String {
        format!("{{\"seq\":\"{number}-a\",\"id\":\"},\\n\",\"changes\":[{{\"rev\":\"1-a\"}}]}}")
    }

    proptest! {
        #[test]
        fn rows_come_whole_and_once_however_the_text_is_cut(
            count in 0usize..8,
            cuts in prop::collection::vec(1usize..40, 1..6),
        ) {
            let wanted: Vec<String> = (0..count).map(row).collect();
            let text = format!(
                "{{\"results\":[\n{}\n],\n\"last_seq\":\"9-b\",\"pending\":7}}\n",
                wanted.join(",\n")
            );
            let (mut feed, mut found) = (FeedText::default(), vec![]);
            let (mut rest, mut cuts) = (text.as_bytes(), cuts.iter().cycle());
            while !rest.is_empty() {
                let cut = *cuts.next().unwrap_or(&1);
                let (piece, later) = rest.split_at(cut.min(rest.len()));
                feed.push(piece);
                add_rows(&mut found, &feed.take_rows());
                rest = later;
            }
            let end = feed.end().map_err(|e| TestCaseError::fail(e.reason.into_owned()))?;
            add_rows(&mut found, &end.rows);
            let texts: Vec<&[u8]> = rows_of(&found).collect();
            let wanted: Vec<&[u8]> = wanted.iter().map(String::as_bytes).collect();
            prop_assert_eq!(&texts, &wanted);
            prop_assert_eq!((end.last_seq.as_str(), end.pending), ("9-b", 7));
            let last = texts.last().and_then(|row| seq_of(row)).map(str::to_owned);
            prop_assert_eq!(last, count.checked_sub(1).map(|last| format!("{last}-a")));
        }
    }

    #[test]
    fn a_feed_that_broke_has_no_end() {
        for text in [
            "",
            "{\"results\":[\n",
            "{\"results\":[\n{\"seq\":\"1-a\"}",
            "{\"error\":\"x\"}\n",
        ] {
            let mut feed = FeedText::default();
            feed.push(text.as_bytes());
            assert!(feed.end().is_err(), "{text}");
        }
    }
}
