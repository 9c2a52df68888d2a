//! Collects changes of a feed into batches.

use std::collections::{HashMap, HashSet};

use bytes::Bytes;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::json_limits::BoundedVec;
use super::peer_values::{check_seq_length, cut_reason, parse_seq};
use crate::batch_memory::{Account, Grant};
use crate::error::Error;
use crate::options::Selection;

/// A batch is full when its rows reach this size, in bytes, whatever their number.
const BATCH_BYTES_MAX: usize = 4 << 20;
/// A document with more revisions than this ends the batch when it changes again: each further row
/// is compared with all of them.
const JOINED_REVS_MAX: usize = 100;
/// Maximum number of revisions in a row: one of 16 MiB has fewer.
const ROW_REVS_MAX: usize = 400_000;
/// A batch that waited for memory gets at least this, in bytes.
const PIECE_BYTES: u64 = 64 << 10;
/// Memory of a change besides its text, and of each of its revisions, about, in bytes.
const CHANGE_BYTES: u64 = 128;
/// See [`CHANGE_BYTES`].
const REV_BYTES: u64 = 48;

/// The parameters of a feed.
#[derive(Clone, Debug)]
pub struct ChangesQuery {
    pub continuous: bool,
    /// Winning revisions only, instead of all leaves.
    pub winning_revs_only: bool,
    pub selection: Selection,
    /// Includes first revisions in the feed, so that they need not be requested.
    pub include_docs: bool,
    /// The maximum number of rows in a batch.
    pub batch: usize,
}

/// A changed document.
#[derive(Clone, Debug)]
pub struct Change {
    pub id: String,
    /// All leaves, or only the winner.
    pub revs: Vec<String>,
    /// The document's full JSON, if its only leaf is a first revision without attachments and the
    /// feed included it.
    pub doc: Option<Bytes>,
}

/// The next item of a feed.
#[derive(Debug)]
pub enum Read {
    /// Changes, the seq of the last of them, and their memory.
    Changes(Vec<Change>, Value, Grant),
    /// The end of the feed: its last seq, and the number of pending changes.
    End(Option<Value>, Option<u64>),
}

/// The changes collected for one batch.
pub struct Batch {
    pub changes: Vec<Change>,
    /// The index in `changes` by document id, for documents that change again while the batch is
    /// collected.
    places: HashMap<String, usize>,
    last_seq: Option<Bytes>,
    bytes: usize,
    /// The number of bytes that the changes need, and the grant of them.
    memory_bytes: u64,
    memory: Grant,
    /// Its memory was taken for one row of unknown length.
    is_for_long_row: bool,
    /// There was no memory for another row.
    is_short: bool,
    rows_max: usize,
    continuous: bool,
    /// A document has more than [`JOINED_REVS_MAX`] revisions: further ones are for the next batch.
    is_long: bool,
}

/// An object of a feed.
pub enum Row {
    Change,
    End(Value, Option<u64>),
}

#[derive(Deserialize)]
pub struct RowText<'a> {
    #[serde(borrow)]
    seq: Option<&'a RawValue>,
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    changes: Option<BoundedVec<RevText, ROW_REVS_MAX>>,
    #[serde(default)]
    deleted: bool,
    #[serde(borrow)]
    doc: Option<&'a RawValue>,
    #[serde(borrow)]
    pub last_seq: Option<&'a RawValue>,
    pub pending: Option<u64>,
    pub error: Option<String>,
    pub reason: Option<String>,
}

#[derive(Deserialize)]
struct RevText {
    rev: String,
}

impl Batch {
    pub fn new(query: &ChangesQuery, memory: &Account) -> Batch {
        Batch {
            changes: vec![],
            places: HashMap::new(),
            last_seq: None,
            bytes: 0,
            memory_bytes: 0,
            memory: memory.empty(),
            is_for_long_row: false,
            is_short: false,
            rows_max: query.batch,
            continuous: query.continuous,
            is_long: false,
        }
    }

    pub fn is_full(&self) -> bool {
        self.is_long
            || self.is_short
            || self.changes.len() >= self.rows_max
            || self.bytes >= BATCH_BYTES_MAX
    }

    /// Takes memory for a row. Returns false without memory: then the row is for the next batch.
    pub async fn cover(&mut self, text: &Bytes, account: &Account) -> bool {
        // Besides the text, the requests that are made of it.
        let revs = revisions(text) as u64;
        let bytes = self.memory_bytes + 2 * text.len() as u64 + CHANGE_BYTES + REV_BYTES * revs;
        if !self.memory.try_cover(bytes) {
            if !self.changes.is_empty() {
                self.is_short = true;
                return false;
            }
            if !self.is_for_long_row {
                self.memory.shrink_to(0);
                self.memory = account.take(bytes.max(PIECE_BYTES)).await;
            }
        }
        self.memory_bytes = bytes;
        true
    }

    /// Takes memory for a row of unknown length, up to `row_bytes_max`. The batch must be empty.
    pub async fn cover_long(&mut self, row_bytes_max: usize, account: &Account) {
        if !self.is_for_long_row {
            self.memory.shrink_to(0);
            self.memory = account.take(2 * row_bytes_max as u64).await;
            self.is_for_long_row = true;
        }
    }

    /// Whether others wait for the memory of its long row.
    pub fn is_waited_for(&self) -> bool {
        self.is_for_long_row && self.memory.is_waited_for()
    }

    pub fn add(&mut self, text: &Bytes) -> Result<Row, Error> {
        let row: RowText = serde_json::from_slice(text)
            .map_err(|e| failed(format!("a row is not understood: {e}")))?;
        if let Some(error) = row.error {
            return Err(refused(&error, row.reason));
        }
        if let Some(last) = row.last_seq {
            let last = parse_seq(last.get().as_bytes()).map_err(failed)?;
            return Ok(Row::End(last, row.pending));
        }
        let (Some(id), Some(BoundedVec(changes))) = (row.id, row.changes) else {
            return Err(Error::Request("a row of _changes has no id".into()));
        };
        let raw_id = id.get();
        let id: String = serde_json::from_str(raw_id)
            .map_err(|_| Error::Request("an id in _changes is not a string".into()))?;
        let doc = row.doc.map(RawValue::get).filter(|doc| {
            !row.deleted && changes.len() == 1 && is_first_revision(doc, raw_id, &changes[0].rev)
        });
        let doc = doc.map(|doc| text.slice_ref(doc.as_bytes()));
        let revs = changes.into_iter().map(|c| c.rev).collect();
        if let Some(seq) = row.seq.filter(|seq| seq.get() != "null") {
            check_seq_length(seq.get().len()).map_err(failed)?;
            self.last_seq = Some(text.slice_ref(seq.get().as_bytes()));
        }
        self.bytes += text.len();
        self.push(Change { id, revs, doc });
        Ok(Row::Change)
    }

    fn push(&mut self, change: Change) {
        // In a feed that ends, each document occurs once.
        if self.continuous {
            if let Some(&at) = self.places.get(&change.id) {
                let known = &mut self.changes[at];
                known.doc = None;
                join(&mut known.revs, change.revs);
                self.is_long |= known.revs.len() > JOINED_REVS_MAX;
                return;
            }
            self.places.insert(change.id.clone(), self.changes.len());
        }
        self.changes.push(change);
    }

    pub fn into_read(mut self, before: &Value) -> Result<Read, Error> {
        let seq = match &self.last_seq {
            Some(text) => parse_seq(text).map_err(failed)?,
            None => before.clone(),
        };
        // Of a row that was longer than expected.
        self.memory.shrink_to(self.memory_bytes);
        Ok(Read::Changes(self.changes, seq, self.memory))
    }
}

/// Returns the maximum number of revisions in the text of a row: a name may be escaped.
fn revisions(text: &[u8]) -> usize {
    let count = |part: &[u8]| memchr::memmem::find_iter(text, part).count();
    count(b"\"rev\"") + count(b"\\u00")
}

/// Adds the revisions that are not in the list yet.
fn join(known: &mut Vec<String>, revs: Vec<String>) {
    if known.len() + revs.len() <= JOINED_REVS_MAX {
        for rev in revs {
            if !known.contains(&rev) {
                known.push(rev);
            }
        }
        return;
    }
    let mut seen: HashSet<String> = known.iter().cloned().collect();
    known.extend(revs.into_iter().filter(|rev| seen.insert(rev.clone())));
}

/// Returns whether the text is exactly this revision, the first of its document, and complete
/// without attachments. When in doubt it returns false: then the document is requested.
fn is_first_revision(doc: &str, raw_id: &str, rev: &str) -> bool {
    let head = || {
        let rest = doc.strip_prefix("{\"_id\":")?.strip_prefix(raw_id)?;
        let rest = rest.strip_prefix(",\"_rev\":\"")?.strip_prefix(rev)?;
        rest.starts_with('"').then_some(())
    };
    rev.starts_with("1-")
        && head().is_some()
        && memchr::memmem::find(doc.as_bytes(), b"\"_attachments\"").is_none()
}

/// The source's changes are not understood: the reason.
pub fn failed(reason: String) -> Error {
    Error::Request(cut_reason(format!("_changes: {reason}")))
}

/// The error that the source reports instead of changes.
pub fn refused(error: &str, reason: Option<String>) -> Error {
    let reason = reason.unwrap_or_default();
    Error::Request(cut_reason(format!("_changes failed: {error}: {reason}")))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures_util::FutureExt as _;

    use super::*;
    use crate::batch_memory::BatchMemory;
    use crate::db::peer_values::SEQ_BYTES_MAX;

    fn query(continuous: bool) -> ChangesQuery {
        ChangesQuery {
            continuous,
            winning_revs_only: false,
            selection: Selection::All,
            include_docs: true,
            batch: 10,
        }
    }

    /// The account of a user in a pool of this many bytes.
    fn account(bytes: u64) -> Account {
        BatchMemory::new(&Arc::default(), 2 * bytes).of("a").changes
    }

    fn batch(continuous: bool) -> Batch {
        Batch::new(&query(continuous), &account(1 << 20))
    }

    fn add(batch: &mut Batch, row: &str) -> Result<Row, Error> {
        batch.add(&Bytes::copy_from_slice(row.as_bytes()))
    }

    #[test]
    fn a_document_with_many_revisions_ends_the_batch_when_it_changes_again() {
        let row = |revs: std::ops::Range<usize>| {
            let revs: Vec<String> = revs.map(|n| format!("{{\"rev\":\"1-{n}\"}}")).collect();
            format!(r#"{{"seq":1,"id":"a","changes":[{}]}}"#, revs.join(","))
        };
        let mut batch = batch(true);
        for revs in [0..JOINED_REVS_MAX, 50..JOINED_REVS_MAX] {
            add(&mut batch, &row(revs)).unwrap();
            assert!(!batch.is_full());
        }
        add(&mut batch, &row(90..JOINED_REVS_MAX + 1)).unwrap();
        assert!(batch.is_full());
        assert_eq!(batch.changes[0].revs.len(), JOINED_REVS_MAX + 1);
    }

    #[test]
    fn only_first_revisions_without_attachments_come_along() {
        let mut batch = batch(false);
        for row in [
            r#"{"seq":"1-x","id":"a\"","changes":[{"rev":"1-aa"}],"doc":{"_id":"a\"","_rev":"1-aa","x":1}}"#,
            r#"{"seq":"2-x","id":"b","changes":[{"rev":"2-bb"}],"doc":{"_id":"b","_rev":"2-bb"}}"#,
            r#"{"seq":"3-x","id":"c","changes":[{"rev":"1-cc"},{"rev":"1-dd"}],"doc":{"_id":"c","_rev":"1-cc"}}"#,
            r#"{"seq":"4-x","id":"d","changes":[{"rev":"1-dd"}],"doc":{"_id":"d","_rev":"1-dd","_attachments":{}}}"#,
            r#"{"seq":"5-x","id":"e","changes":[{"rev":"1-ee"}],"doc":{"_id":"e","_rev":"2-newer"}}"#,
            r#"{"seq":"6-x","id":"f","changes":[{"rev":"1-ff"}],"deleted":true,"doc":{"_id":"f","_rev":"1-ff","_deleted":true}}"#,
            r#"{"seq":null,"id":"g","changes":[{"rev":"1-gg"}],"doc":null}"#,
        ] {
            assert!(matches!(add(&mut batch, row), Ok(Row::Change)), "{row}");
        }
        let with_docs: Vec<&str> = batch
            .changes
            .iter()
            .filter(|c| c.doc.is_some())
            .map(|c| c.id.as_str())
            .collect();
        assert_eq!(with_docs, ["a\""]);
        match batch.into_read(&Value::Null).unwrap() {
            Read::Changes(changes, seq, _) => {
                assert_eq!((changes.len(), seq), (7, "6-x".into()));
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_document_that_changes_again_is_in_a_batch_once() {
        let mut batch = batch(true);
        add(
            &mut batch,
            r#"{"seq":1,"id":"a","changes":[{"rev":"1-a"}]}"#,
        )
        .unwrap();
        add(
            &mut batch,
            r#"{"seq":2,"id":"a","changes":[{"rev":"2-a"},{"rev":"1-a"}]}"#,
        )
        .unwrap();
        assert_eq!(batch.changes.len(), 1);
        assert_eq!(batch.changes[0].revs, ["1-a", "2-a"]);
    }

    #[test]
    fn errors_and_nonsense_are_errors() {
        for row in [
            r#"{"error":"timeout","reason":"x"}"#,
            r#"{"id":"a"}"#,
            r#"{"seq":1,"id":7,"changes":[]}"#,
            "{\"seq\":1,\"id\":\"\u{7}\",\"changes\":[]}",
        ] {
            assert!(add(&mut batch(true), row).is_err(), "{row}");
        }
    }

    #[test]
    fn seqs_are_short_and_simple() {
        let long = format!("\"{}\"", "x".repeat(SEQ_BYTES_MAX));
        let many = format!("[{}0]", "[0],".repeat(1000));
        for seq in [long, many] {
            let row = format!(r#"{{"seq":{seq},"id":"a","changes":[]}}"#);
            let mut batch = batch(false);
            let read = add(&mut batch, &row).and_then(|_| batch.into_read(&Value::Null));
            assert!(read.is_err(), "{row}");
            let end = format!(r#"{{"last_seq":{seq},"pending":0}}"#);
            assert!(add(&mut self::batch(false), &end).is_err());
        }
        let mut batch = batch(false);
        let seq = r#"[5,"g1AAAACbeJzLYWBgYM"]"#;
        add(
            &mut batch,
            &format!(r#"{{"seq":{seq},"id":"a","changes":[]}}"#),
        )
        .unwrap();
        let read = batch.into_read(&Value::Null).unwrap();
        let Read::Changes(_, read, _) = read else {
            panic!("a batch has changes");
        };
        assert_eq!(read.to_string(), seq);
    }

    #[test]
    fn reasons_are_cut_and_rows_have_a_limited_number_of_revisions() {
        let error = format!(r#"{{"error":"x","reason":"{}"}}"#, "y".repeat(100_000));
        let odd = format!(
            r#"{{"seq":1,"id":"a","changes":"{}"}}"#,
            "y".repeat(100_000)
        );
        let revs = vec![r#"{"rev":""}"#; ROW_REVS_MAX + 1].join(",");
        let revs = format!(r#"{{"seq":1,"id":"a","changes":[{revs}]}}"#);
        for row in [error, odd, revs] {
            match add(&mut batch(true), &row) {
                Err(e) => assert!(e.to_string().len() < 1000),
                Ok(_) => panic!("it is accepted"),
            }
        }
    }

    #[test]
    fn a_batch_ends_when_there_is_no_memory_and_the_next_one_waits() {
        let account = account(256 << 10);
        let row = Bytes::from(format!(
            r#"{{"seq":1,"id":"a","changes":[],"x":"{}"}}"#,
            "y".repeat(20_000)
        ));
        let cover = |batch: &mut Batch| {
            let covered = batch.cover(&row, &account).now_or_never();
            if covered == Some(true) {
                batch.add(&row).unwrap();
            }
            covered
        };
        let mut first = Batch::new(&query(false), &account);
        let rows = std::iter::from_fn(|| (cover(&mut first) == Some(true)).then_some(())).count();
        assert!(rows == 3 && first.is_full(), "{rows}");
        let mut second = Batch::new(&query(false), &account);
        assert_eq!(cover(&mut second), None);
        drop(first);
        let mut third = Batch::new(&query(false), &account);
        assert_eq!(cover(&mut third), Some(true));
    }

    #[test]
    fn revisions_with_an_escaped_name_count() {
        let names = [
            "rev",
            r"\u0072ev",
            r"r\u0065v",
            r"re\u0076",
            r"\u0072\u0065\u0076",
        ];
        for name in names {
            let row = format!(r#"{{"seq":1,"id":"a","changes":[{{"{name}":"1-a"}}]}}"#);
            let mut batch = batch(false);
            assert!(matches!(add(&mut batch, &row), Ok(Row::Change)), "{name}");
            assert_eq!(batch.changes[0].revs, ["1-a"]);
            assert!(revisions(row.as_bytes()) >= 1, "{name}");
        }
    }

    #[test]
    fn a_long_row_takes_its_memory_before_it_is_read() {
        let account = account(256 << 10);
        let mut batch = Batch::new(&query(false), &account);
        assert!(batch.cover_long(1 << 20, &account).now_or_never().is_some());
        let text = format!(
            r#"{{"seq":1,"id":"a","changes":[],"x":"{}"}}"#,
            "y".repeat(1 << 20)
        );
        let row = Bytes::from(text);
        assert_eq!(batch.cover(&row, &account).now_or_never(), Some(true));
        batch.add(&row).unwrap();
        assert_eq!(batch.cover(&row, &account).now_or_never(), Some(false));
        assert!(batch.is_full());
    }
}
