//! Splits a JSON stream into rows: the objects of the array in `{"results":[…]}`, or consecutive
//! objects in a continuous feed. Bytes go in as they arrive, whole rows come out; only an
//! incomplete row is buffered.

use bytes::{Bytes, BytesMut};
use document::json::skip::StringEnd;

/// Longest row, in bytes, whatever the settings are. Documents are shorter, and their attachments are
/// read separately.
pub const ROW_BYTES_MAX: usize = 64 << 20;
/// A row has at most this part of the budget of replications,
const BUDGET_PART: u64 = 8;
/// unless documents may be longer. A row is longer than its document by this, besides a quarter.
const MARGIN_BYTES: u64 = 1 << 20;

/// Returns the length of the longest row that other servers may send, in bytes: `budget_bytes` is
/// the memory of all replications, `document_bytes_max` the limit of a document's text.
pub fn row_bytes_max(budget_bytes: u64, document_bytes_max: u64) -> usize {
    let of_document = document_bytes_max
        .saturating_add(document_bytes_max / 4)
        .saturating_add(MARGIN_BYTES);
    let bytes = (budget_bytes / BUDGET_PART).max(of_document);
    usize::try_from(bytes).map_or(ROW_BYTES_MAX, |bytes| bytes.min(ROW_BYTES_MAX))
}
/// Longest text around the rows, in bytes.
const ENVELOPE_BYTES_MAX: usize = 1 << 20;

/// The framing of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// In an array that is a member of an object.
    Results,
    /// One object after another.
    Lines,
}

/// The stream is invalid: cut short, garbled, or of another format.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadStream(pub String);

/// The error of a row that is longer than rows may be.
const TOO_LONG: &str = "a row is too long";

impl BadStream {
    /// Returns whether a row is too long.
    pub fn is_too_long(&self) -> bool {
        self.0 == TOO_LONG
    }
}

/// Splits a stream into rows.
pub struct Rows {
    form: Form,
    row_bytes_max: usize,
    buffer: BytesMut,
    /// Where the scan continues in `buffer`.
    at: usize,
    /// Where the row being read starts in `buffer`.
    row_start: Option<usize>,
    depth: usize,
    /// The scanner of the current string, if inside one.
    string: Option<StringEnd>,
    /// Everything outside of rows; with the rows left out it is JSON.
    envelope: Vec<u8>,
}

impl Rows {
    pub fn new(form: Form) -> Rows {
        Rows::up_to(form, ROW_BYTES_MAX)
    }

    /// Limits rows to `row_bytes_max` bytes.
    pub fn up_to(form: Form, row_bytes_max: usize) -> Rows {
        Rows {
            form,
            row_bytes_max,
            buffer: BytesMut::new(),
            at: 0,
            row_start: None,
            depth: 0,
            string: None,
            envelope: vec![],
        }
    }

    /// Returns the length of the longest row, in bytes.
    pub fn row_bytes_max(&self) -> usize {
        self.row_bytes_max
    }

    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Takes over bytes, without a copy where possible.
    pub fn push_bytes(&mut self, bytes: Bytes) {
        if self.buffer.is_empty() {
            self.at = 0;
            self.buffer = BytesMut::from(bytes);
        } else {
            self.push(&bytes);
        }
    }

    /// Bytes of rows that are not whole yet, or were not taken.
    pub fn held_bytes(&self) -> usize {
        self.buffer.len()
    }

    fn row_depth(&self) -> usize {
        match self.form {
            Form::Results => 2,
            Form::Lines => 0,
        }
    }

    /// Returns the next whole row; `None` until more bytes are pushed.
    ///
    /// # Errors
    /// [`BadStream`] for an invalid stream.
    pub fn next_row(&mut self) -> Result<Option<Bytes>, BadStream> {
        let row_depth = self.row_depth();
        while self.at < self.buffer.len() {
            if let Some(string) = self.string {
                self.skip_string(string);
                continue;
            }
            let byte = self.buffer[self.at];
            self.at += 1;
            match byte {
                b'"' => {
                    self.string = Some(StringEnd::default());
                    self.keep(byte)?;
                }
                b'{' | b'[' => {
                    if self.row_start.is_none() && self.depth == row_depth && byte == b'{' {
                        self.row_start = Some(self.at - 1);
                    }
                    self.depth += 1;
                    self.keep(byte)?;
                }
                b'}' | b']' => {
                    let depth = self.depth.checked_sub(1);
                    self.depth = depth.ok_or_else(|| BadStream("brackets do not match".into()))?;
                    if let Some(start) = self.row_start
                        && self.depth == row_depth
                    {
                        return Ok(Some(self.take_row(start)));
                    }
                    self.keep(byte)?;
                }
                _ => self.keep(byte)?,
            }
        }
        if self.buffer.len() > self.row_bytes_max {
            return Err(BadStream(TOO_LONG.into()));
        }
        if self.row_start.is_none() {
            self.buffer.clear();
            self.at = 0;
        }
        Ok(None)
    }

    fn take_row(&mut self, start: usize) -> Bytes {
        let mut row = self.buffer.split_to(self.at);
        self.at = 0;
        self.row_start = None;
        let _before = row.split_to(start);
        row.freeze()
    }

    /// Keeps a byte outside of rows, except separators.
    fn keep(&mut self, byte: u8) -> Result<(), BadStream> {
        if self.row_start.is_some() {
            return Ok(());
        }
        let between = self.depth >= self.row_depth()
            && matches!(byte, b',' | b' ' | b'\n' | b'\r' | b'\t')
            && self.string.is_none();
        if between && (self.form == Form::Lines || self.depth == 2) {
            return Ok(());
        }
        if self.envelope.len() >= ENVELOPE_BYTES_MAX {
            return Err(BadStream("there are no rows".into()));
        }
        self.envelope.push(byte);
        Ok(())
    }

    fn skip_string(&mut self, mut string: StringEnd) {
        let from = self.at;
        (self.at, self.string) = match string.find(&self.buffer[from..]) {
            Some(length) => (from + length, None),
            None => (self.buffer.len(), Some(string)),
        };
        if self.row_start.is_none() && self.envelope.len() < ENVELOPE_BYTES_MAX {
            self.envelope.extend_from_slice(&self.buffer[from..self.at]);
        }
    }

    /// At the end of the stream, returns the text around the rows, as JSON.
    ///
    /// # Errors
    /// [`BadStream`] when the stream was cut short.
    pub fn finish(self) -> Result<Vec<u8>, BadStream> {
        if self.depth != 0 || self.string.is_some() || self.row_start.is_some() {
            return Err(BadStream("the answer is cut short".into()));
        }
        Ok(self.envelope)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn split(
        form: Form,
        text: &[u8],
        pieces: &[usize],
    ) -> Result<(Vec<String>, String), BadStream> {
        let mut rows = Rows::new(form);
        let mut found = vec![];
        let mut rest = text;
        for &n in pieces.iter().chain([&usize::MAX]) {
            let (piece, after) = rest.split_at(n.min(rest.len()));
            rest = after;
            rows.push_bytes(Bytes::copy_from_slice(piece));
            while let Some(row) = rows.next_row()? {
                found.push(String::from_utf8(row.to_vec()).unwrap());
            }
        }
        Ok((found, String::from_utf8(rows.finish()?).unwrap()))
    }

    #[test]
    fn rows_are_shorter_where_there_is_less_memory_but_not_than_documents() {
        let mib = |n: u64| n << 20;
        assert_eq!(row_bytes_max(mib(21), mib(8)), 11 << 20);
        assert_eq!(row_bytes_max(mib(21), 0), mib(21) as usize / 8);
        assert_eq!(row_bytes_max(mib(128), mib(8)), 16 << 20);
        assert_eq!(row_bytes_max(mib(4096), mib(8)), ROW_BYTES_MAX);
        assert_eq!(row_bytes_max(0, u64::MAX), ROW_BYTES_MAX);
    }

    const FEED: &str = "{\"results\":[\n{\"a\":\"}]\\\"{\"},\n {\"b\":[{\"c\":[]}]}\n],\n\"last_seq\":\"5-{[\",\"pending\":0}\n";

    #[test]
    fn rows_and_what_is_around_them() {
        let (rows, envelope) = split(Form::Results, FEED.as_bytes(), &[]).unwrap();
        assert_eq!(rows, ["{\"a\":\"}]\\\"{\"}", "{\"b\":[{\"c\":[]}]}"]);
        let around: serde_json::Value = serde_json::from_str(&envelope).unwrap();
        assert_eq!(around["last_seq"], "5-{[");
        assert_eq!(around["results"], serde_json::json!([]));
    }

    #[test]
    fn lines_are_rows_and_heartbeats_are_not() {
        let (rows, envelope) = split(Form::Lines, b"\n{\"a\":1}\n\n{\"b\":{}}\n\n", &[]).unwrap();
        assert_eq!(rows, ["{\"a\":1}", "{\"b\":{}}"]);
        assert_eq!(envelope, "");
    }

    #[test]
    fn a_stream_that_is_cut_is_noticed() {
        for end in 1..FEED.trim_end().len() {
            assert!(
                split(Form::Results, &FEED.as_bytes()[..end], &[]).is_err(),
                "{end}"
            );
        }
        assert!(split(Form::Results, b"}", &[]).is_err());
    }

    #[test]
    fn a_row_that_does_not_end_is_given_up() {
        let mut rows = Rows::up_to(Form::Results, 100);
        rows.push(b"{\"results\":[{\"id\":\"");
        let mut ends = (0..20).map(|_| {
            rows.push(b"0123456789");
            rows.next_row()
        });
        assert!(ends.any(|row| row.is_err()));
    }

    proptest! {
        #[test]
        fn how_the_bytes_arrive_does_not_matter(pieces in prop::collection::vec(0usize..20, 0..40)) {
            prop_assert_eq!(
                split(Form::Results, FEED.as_bytes(), &pieces),
                split(Form::Results, FEED.as_bytes(), &[])
            );
        }

        #[test]
        fn no_bytes_do_harm(bytes in prop::collection::vec(any::<u8>(), 0..200), lines in any::<bool>()) {
            let mut rows = Rows::new(if lines { Form::Lines } else { Form::Results });
            rows.push(&bytes);
            while let Ok(Some(row)) = rows.next_row() {
                prop_assert_eq!(row.first(), Some(&b'{'));
            }
        }
    }
}
