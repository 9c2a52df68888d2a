//! The text of a listing as it comes from a node, cut into rows with the ids of their documents.

use std::borrow::Cow;

use memchr::memmem;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::errors::ApiError;

/// The end of the text before the rows.
const HEAD_END: &[u8] = b"\"rows\":[\r\n";
/// Between two rows. Rows have no other line breaks.
const BETWEEN: &[u8] = b",\r\n";
/// The text after the last row.
const TAIL: &[u8] = b"\r\n]}\n";

/// The counts of a listing; none of one of local documents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct ListingCounts {
    /// Documents that the listing could show.
    pub total_rows: Option<u64>,
    /// Rows before the first one.
    pub offset: Option<u64>,
}

/// The rows of a listing, one after the other.
#[derive(Default)]
pub struct ListingText {
    held: Vec<u8>,
    /// Where the current row begins.
    at: usize,
    /// Where it ends, if it is complete.
    end: Option<usize>,
    /// Up to here, no end of the row was found.
    searched: usize,
    counts: Option<ListingCounts>,
    is_whole: bool,
}

impl ListingText {
    /// Adds a piece.
    ///
    /// # Errors
    /// It is not a listing.
    pub fn push(&mut self, piece: &[u8]) -> Result<(), ApiError> {
        // Rows that were read make room, once for many.
        self.held.drain(..self.at);
        self.searched -= self.at;
        self.end = self.end.map(|end| end - self.at);
        self.at = 0;
        self.held.extend_from_slice(piece);
        if self.counts.is_none()
            && let Some(head) = memmem::find(&self.held, HEAD_END)
        {
            let counts = [&self.held[..head], b"\"rows\":[]}"].concat();
            let counts = serde_json::from_slice(&counts);
            self.counts = Some(counts.map_err(|e| odd(&e.to_string()))?);
            self.held.drain(..head + HEAD_END.len());
            self.searched = 0;
        }
        self.find_end();
        Ok(())
    }

    /// Ends the text.
    ///
    /// # Errors
    /// It is not the end of a listing.
    pub fn finish(&mut self) -> Result<(), ApiError> {
        let rows = self.held.len().checked_sub(TAIL.len());
        let rows = rows
            .filter(|rows| self.counts.is_some() && self.held.ends_with(TAIL) && *rows >= self.at);
        let rows = rows.ok_or_else(|| odd("it has no end"))?;
        self.held.truncate(rows);
        self.searched = self.searched.min(rows);
        self.is_whole = true;
        self.find_end();
        Ok(())
    }

    /// Returns the counts, once they are known.
    pub fn counts(&self) -> Option<ListingCounts> {
        self.counts
    }

    /// Returns the current row; `None` if it is not complete, or missing.
    pub fn row(&self) -> Option<&[u8]> {
        self.held.get(self.at..self.end?)
    }

    /// Returns whether no row follows.
    pub fn is_over(&self) -> bool {
        self.is_whole && self.end.is_none()
    }

    /// Moves to the next row.
    pub fn pass(&mut self) {
        if let Some(end) = self.end.take() {
            self.at = (end + BETWEEN.len()).min(self.held.len());
            self.searched = self.at;
            self.find_end();
        }
    }

    fn find_end(&mut self) {
        if self.counts.is_none() || self.end.is_some() {
            return;
        }
        let found = memmem::find(&self.held[self.searched..], BETWEEN);
        self.end = match found {
            Some(found) => Some(self.searched + found),
            None if self.is_whole && self.at < self.held.len() => Some(self.held.len()),
            None => None,
        };
        // The text between rows may be cut.
        let least = self.held.len().saturating_sub(BETWEEN.len());
        self.searched = self.searched.max(least);
    }
}

fn odd(why: &str) -> ApiError {
    ApiError::internal("A node's listing has another form.", why)
}

/// Returns the id of a row's document.
///
/// # Errors
/// It is not a row.
pub fn id_of(row: &[u8]) -> Result<Cow<'_, str>, ApiError> {
    let no_id = || odd("a row has no id");
    let text = row.strip_prefix(b"{\"id\":").ok_or_else(no_id)?;
    let inner = text.strip_prefix(b"\"").ok_or_else(no_id)?;
    let end = memchr::memchr2(b'"', b'\\', inner).ok_or_else(no_id)?;
    if inner[end] == b'"' {
        let id = std::str::from_utf8(&inner[..end]).map_err(|e| odd(&e.to_string()))?;
        return Ok(Cow::Borrowed(id));
    }
    let mut ids = serde_json::Deserializer::from_slice(text).into_iter::<String>();
    let id = ids.next().ok_or_else(no_id)?;
    id.map(Cow::Owned).map_err(|e| odd(&e.to_string()))
}

/// Returns the JSON text of the key of a view's row.
///
/// # Errors
/// It is not a row.
pub fn key_of(row: &[u8]) -> Result<&str, ApiError> {
    #[derive(Deserialize)]
    struct Row<'a> {
        #[serde(borrow)]
        key: &'a RawValue,
    }
    let read: Result<Row<'_>, _> = serde_json::from_slice(row);
    let read = read.map_err(|e| odd(&e.to_string()))?;
    Ok(read.key.get())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn row(id: &str) -> String {
        json!({"id": id, "key": id, "value": {"rev": "1-a"}}).to_string()
    }

    proptest! {
        #[test]
        fn rows_come_whole_and_once_however_the_text_is_cut(
            ids in prop::collection::vec("[a\"\\\\é,\r\n\\]}]{1,6}", 0..8),
            cuts in prop::collection::vec(1usize..40, 1..6),
        ) {
            let rows: Vec<String> = ids.iter().map(|id| row(id)).collect();
            let text = format!(
                "{{\"total_rows\":9,\"offset\":2,\"rows\":[\r\n{}\r\n]}}\n",
                rows.join(",\r\n")
            );
            let fail = |e: ApiError| TestCaseError::fail(e.reason.into_owned());
            let (mut listing, mut found) = (ListingText::default(), vec![]);
            let (mut rest, mut cuts) = (text.as_bytes(), cuts.iter().cycle());
            loop {
                while let Some(row) = listing.row() {
                    found.push((id_of(row).map_err(fail)?.into_owned(), row.to_vec()));
                    listing.pass();
                }
                if rest.is_empty() {
                    break;
                }
                let (piece, later) = rest.split_at((*cuts.next().unwrap_or(&1)).min(rest.len()));
                listing.push(piece).map_err(fail)?;
                rest = later;
            }
            listing.finish().map_err(fail)?;
            while let Some(row) = listing.row() {
                found.push((id_of(row).map_err(fail)?.into_owned(), row.to_vec()));
                listing.pass();
            }
            prop_assert!(listing.is_over());
            let counts = ListingCounts { total_rows: Some(9), offset: Some(2) };
            prop_assert_eq!(listing.counts(), Some(counts));
            let wanted = ids.into_iter().zip(rows.into_iter().map(String::into_bytes));
            prop_assert_eq!(found, wanted.collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_listing_that_broke_has_no_end() {
        let whole = "{\"total_rows\":1,\"offset\":0,\"rows\":[\r\n{\"id\":\"a\"}\r\n]}\n";
        for length in 0..whole.len() {
            let mut listing = ListingText::default();
            let pushed = listing.push(&whole.as_bytes()[..length]);
            assert!(pushed.and_then(|()| listing.finish()).is_err(), "{length}");
        }
    }
}
