//! Reads the changes feed of a source in batches.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use bytes::Bytes;
use database::{Changes, Framing};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::{OwnedSemaphorePermit, watch};

use super::long::Holding;
use crate::error::Error;
use crate::options::Selection;
use crate::rows::{Form, Rows};

/// Changes of a continuous feed that arrive within this time of each other form one batch.
const LINGER: Duration = Duration::from_millis(5);
/// A batch is full when its rows reach this size, in bytes, whatever their number.
const BATCH_BYTES_MAX: usize = 4 << 20;
/// A document with more revisions than this ends the batch when it changes again: each further row
/// is compared with all of them.
const JOINED_REVS_MAX: usize = 100;
/// Longest row without a document, in bytes: it names leaves.
const BARE_ROW_BYTES_MAX: usize = 16 << 20;
/// Bytes of a local feed that are read in one call.
const LOCAL_CHUNK_BYTES: usize = 64 << 10;

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
    /// Changes, and the seq of the last of them.
    Changes(Vec<Change>, Value),
    /// The end of the feed: its last seq, and the number of pending changes.
    End(Option<Value>, Option<u64>),
}

/// A changes feed.
pub enum Feed {
    Local(LocalFeed),
    Http(HttpFeed),
}

impl Feed {
    /// Waits for the next batch.
    ///
    /// # Errors
    /// The source failed: the feed cannot be used any more.
    pub async fn read(&mut self) -> Result<Read, Error> {
        match self {
            Feed::Local(feed) => feed.read().await,
            Feed::Http(feed) => feed.read().await,
        }
    }
}

/// The changes collected for one batch.
struct Batch {
    changes: Vec<Change>,
    /// The index in `changes` by document id, for documents that change again while the batch is
    /// collected.
    places: HashMap<String, usize>,
    last_seq: Option<Bytes>,
    bytes: usize,
    rows_max: usize,
    continuous: bool,
    /// A document has more than [`JOINED_REVS_MAX`] revisions: further ones are for the next batch.
    is_long: bool,
}

/// An object of a feed.
enum Row {
    Change,
    End(Value, Option<u64>),
}

#[derive(Deserialize)]
struct RowText<'a> {
    #[serde(borrow)]
    seq: Option<&'a RawValue>,
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    changes: Option<Vec<RevText>>,
    #[serde(default)]
    deleted: bool,
    #[serde(borrow)]
    doc: Option<&'a RawValue>,
    #[serde(borrow)]
    last_seq: Option<&'a RawValue>,
    pending: Option<u64>,
    error: Option<String>,
    reason: Option<String>,
}

#[derive(Deserialize)]
struct RevText {
    rev: String,
}

impl Batch {
    fn new(query: &ChangesQuery) -> Batch {
        Batch {
            changes: vec![],
            places: HashMap::new(),
            last_seq: None,
            bytes: 0,
            rows_max: query.batch,
            continuous: query.continuous,
            is_long: false,
        }
    }

    fn is_full(&self) -> bool {
        self.is_long || self.changes.len() >= self.rows_max || self.bytes >= BATCH_BYTES_MAX
    }

    fn add(&mut self, text: &Bytes) -> Result<Row, Error> {
        let row: RowText = serde_json::from_slice(text)
            .map_err(|e| Error::Request(format!("a row of _changes is not understood: {e}")))?;
        if let Some(error) = row.error {
            let reason = row.reason.unwrap_or_default();
            return Err(Error::Request(format!(
                "_changes failed: {error}: {reason}"
            )));
        }
        let parse = |raw: &RawValue| serde_json::from_str(raw.get()).unwrap_or(Value::Null);
        if let Some(last) = row.last_seq {
            return Ok(Row::End(parse(last), row.pending));
        }
        let (Some(id), Some(changes)) = (row.id, row.changes) else {
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

    fn into_read(self, before: &Value) -> Read {
        let seq = self
            .last_seq
            .and_then(|text| serde_json::from_slice(&text).ok());
        Read::Changes(self.changes, seq.unwrap_or_else(|| before.clone()))
    }
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

/// A feed over HTTP.
pub struct HttpFeed {
    pub(super) response: reqwest::Response,
    holding: Holding,
    pub(super) rows: Rows,
    pub(super) query: ChangesQuery,
    pub(super) seq: Value,
    pub(super) end: Option<(Option<Value>, Option<u64>)>,
    pub(super) _connection: OwnedSemaphorePermit,
}

impl HttpFeed {
    pub(super) fn new(
        response: reqwest::Response,
        query: ChangesQuery,
        since: Value,
        connection: OwnedSemaphorePermit,
    ) -> HttpFeed {
        let form = if query.continuous {
            Form::Lines
        } else {
            Form::Results
        };
        HttpFeed {
            holding: Holding::of(&response),
            response,
            rows: match query.include_docs {
                true => Rows::new(form),
                false => Rows::up_to(form, BARE_ROW_BYTES_MAX),
            },
            query,
            seq: since,
            end: None,
            _connection: connection,
        }
    }

    async fn read(&mut self) -> Result<Read, Error> {
        let mut batch = Batch::new(&self.query);
        loop {
            while !batch.is_full()
                && let Some(text) = self.rows.next_row().map_err(broken)?
            {
                if let Row::End(seq, pending) = batch.add(&text)? {
                    self.end = Some((Some(seq), pending));
                }
            }
            if batch.is_full() || self.end.is_some() && !batch.changes.is_empty() {
                return Ok(self.hand_over(batch));
            }
            if let Some((seq, pending)) = self.end.take() {
                return Ok(Read::End(seq, pending));
            }
            let wait = self.query.continuous && !batch.changes.is_empty();
            let Some(bytes) = self.more(wait).await? else {
                return Ok(self.hand_over(batch));
            };
            if bytes.is_empty() {
                self.end = Some(self.finish()?);
            } else {
                self.rows.push_bytes(bytes);
            }
        }
    }

    fn hand_over(&mut self, batch: Batch) -> Read {
        let read = batch.into_read(&self.seq);
        if let Read::Changes(_, seq) = &read {
            self.seq = seq.clone();
        }
        read
    }

    /// Reads more bytes; empty at the end; `None` when none arrived for a moment and the caller is
    /// `impatient`.
    async fn more(&mut self, impatient: bool) -> Result<Option<Bytes>, Error> {
        let held = self.holding.hold(self.rows.held_bytes()).await;
        held.map_err(|told| Error::Request(format!("_changes: {told}")))?;
        let chunk = self.response.chunk();
        let chunk = match impatient {
            false => chunk.await,
            true => match tokio::time::timeout(LINGER, chunk).await {
                Ok(chunk) => chunk,
                Err(_) => return Ok(None),
            },
        };
        let chunk = chunk.map_err(|e| {
            Error::Request(format!("_changes broke off: {}", super::http::cause(&e)))
        })?;
        Ok(Some(chunk.unwrap_or_default()))
    }

    fn finish(&mut self) -> Result<(Option<Value>, Option<u64>), Error> {
        let form = if self.query.continuous {
            Form::Lines
        } else {
            Form::Results
        };
        let rows = std::mem::replace(&mut self.rows, Rows::new(form));
        let envelope = rows.finish().map_err(broken)?;
        if self.query.continuous {
            // The source closed the connection without a last row.
            return Err(Error::Request("_changes ended".into()));
        }
        let envelope: RowText = serde_json::from_slice(&envelope)
            .map_err(|e| Error::Request(format!("_changes is not understood: {e}")))?;
        if let Some(error) = envelope.error {
            let reason = envelope.reason.unwrap_or_default();
            return Err(Error::Request(format!(
                "_changes failed: {error}: {reason}"
            )));
        }
        let seq = envelope
            .last_seq
            .and_then(|raw| serde_json::from_str(raw.get()).ok());
        Ok((seq, envelope.pending))
    }
}

fn broken(e: crate::rows::BadStream) -> Error {
    Error::Request(format!("_changes: {e}"))
}

/// A feed of a database on this server.
pub struct LocalFeed {
    /// `None` only while a blocking thread reads it.
    pub(super) changes: Option<Changes>,
    pub(super) changed: watch::Receiver<u64>,
    pub(super) rows: Rows,
    pub(super) query: ChangesQuery,
    pub(super) seq: Value,
    pub(super) ended: bool,
}

impl LocalFeed {
    async fn read(&mut self) -> Result<Read, Error> {
        let mut batch = Batch::new(&self.query);
        loop {
            while !batch.is_full()
                && let Some(text) = self.rows.next_row().map_err(broken)?
            {
                batch.add(&text)?;
            }
            if batch.is_full() {
                return Ok(self.hand_over(batch));
            }
            if !self.ended {
                self.read_chunk().await?;
                continue;
            }
            if !batch.changes.is_empty() {
                return Ok(self.hand_over(batch));
            }
            if !self.query.continuous {
                let changes = self.changes.as_ref().ok_or(Error::Stopped)?;
                return Ok(Read::End(
                    Some(changes.last_seq().into()),
                    changes.pending().ok(),
                ));
            }
            self.wait().await?;
        }
    }

    fn hand_over(&mut self, batch: Batch) -> Read {
        let read = batch.into_read(&self.seq);
        if let Read::Changes(_, seq) = &read {
            self.seq = seq.clone();
        }
        read
    }

    async fn read_chunk(&mut self) -> Result<(), Error> {
        let mut changes = self.changes.take().ok_or(Error::Stopped)?;
        let place = changes
            .admission()
            .patiently()
            .await
            .map_err(database::Error::from)?;
        changes.admit(place);
        let read = move || {
            let mut out = vec![];
            let more = changes.next_chunk(Framing::Lines, &mut out, LOCAL_CHUNK_BYTES);
            (changes, out, more)
        };
        let (changes, out, more) = if self.query_may_block() {
            tokio::task::spawn_blocking(read)
                .await
                .map_err(|_| Error::Stopped)?
        } else {
            let done = read();
            tokio::task::yield_now().await;
            done
        };
        self.changes = Some(changes);
        self.ended = !more?;
        self.rows.push_bytes(out.into());
        Ok(())
    }

    fn query_may_block(&self) -> bool {
        matches!(self.query.selection, Selection::Filter { .. })
    }

    async fn wait(&mut self) -> Result<(), Error> {
        let changes = self.changes.as_mut().ok_or(Error::Stopped)?;
        changes.release();
        let changed = self.changed.changed().await;
        changed.map_err(|_| Error::Database(database::Error::NoDatabase))?;
        changes.refresh()?;
        self.ended = false;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(continuous: bool) -> Batch {
        Batch::new(&ChangesQuery {
            continuous,
            winning_revs_only: false,
            selection: Selection::All,
            include_docs: true,
            batch: 10,
        })
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
        match batch.into_read(&Value::Null) {
            Read::Changes(changes, seq) => {
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
}
