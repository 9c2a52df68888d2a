//! The two databases of a replication, with one interface for databases on this server and behind
//! HTTP.

mod address_filter;
pub mod attachments;
mod batch;
mod budget;
mod changes;
mod client;
mod connect_to;
pub(crate) mod http;
pub mod json_limits;
mod local;
mod long_responses;
mod outbound;
pub mod peer_values;
mod received_document;
mod retry;

use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use document::EditDoc;
use serde_json::{Map, Value};
use tokio::sync::mpsc;

pub use address_filter::AllowedAddresses;
pub use batch::{Change, ChangesQuery, Read};
pub use budget::Lane;
pub use changes::Feed;
pub use client::Clients;
pub use connect_to::ConnectTo;
pub use http::HttpDb;
pub use local::LocalDb;
pub use outbound::{Rights, TOKEN};

use crate::batch_memory::{Account, Grant};
use crate::error::Error;
use crate::progress::Progress;
use crate::shared_reads::settled;

/// Properties of a database.
#[derive(Clone, Debug)]
pub struct Info {
    pub update_seq: Value,
    /// Distinguishes successive databases of the same name, if the server reports it.
    pub instance_start_time: Option<String>,
    /// Whether it is empty, and has always been.
    pub is_empty: bool,
}

/// A revision in transit.
#[derive(Debug)]
pub struct Doc {
    pub id: String,
    pub body: Body,
}

/// The contents of a revision.
#[derive(Debug)]
pub enum Body {
    /// The full JSON text, with `_id`, `_rev` and, unless it is a first revision, `_revisions`.
    Json(Bytes),
    /// The database's own form.
    Edit(Box<EditDoc>),
    /// A revision that is copied separately as a stream, because its attachments are large.
    Streamed(String),
}

impl Body {
    /// Returns the approximate size, in bytes.
    pub fn size(&self) -> usize {
        match self {
            Body::Json(text) => text.len(),
            Body::Edit(edit) => edit.body.len() + 256,
            Body::Streamed(_) => 0,
        }
    }
}

/// Revisions that the target lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingRevs {
    pub id: String,
    pub revs: Vec<String>,
}

/// The reason why the target refused a document.
#[derive(Clone, Debug)]
pub struct Rejection {
    pub id: String,
    pub error: String,
    pub reason: String,
}

/// Documents that were read together, and their memory.
pub struct Portion {
    pub docs: Vec<Doc>,
    pub memory: Grant,
}

/// Receives documents that were read, in portions of bounded size.
pub struct Portions {
    pub sender: mpsc::Sender<Portion>,
    /// The account of their memory.
    pub memory: Account,
}

/// The source or target of a replication.
pub enum Db {
    Local(Box<LocalDb>),
    Http(Box<HttpDb>),
}

impl Db {
    /// # Errors
    /// [`Error::NoDatabase`], [`Error::Unauthorized`], [`Error::NoAccess`], and those of requests.
    pub async fn info(&self) -> Result<Info, Error> {
        match self {
            Db::Local(db) => {
                db.current().await?;
                db.info()
            }
            Db::Http(db) => db.info().await,
        }
    }

    /// Creates the database unless it exists.
    ///
    /// # Errors
    /// [`Error::Unauthorized`], [`Error::NoAccess`], and those of requests.
    pub async fn create(&self, params: &Map<String, Value>) -> Result<(), Error> {
        match self {
            // Created before it was opened.
            Db::Local(_) => Ok(()),
            Db::Http(db) => db.create(params).await,
        }
    }

    /// Returns the winning revision of a document, or a local one (`_local/…`).
    ///
    /// # Errors
    /// Errors of requests.
    pub async fn read(&self, id: &str) -> Result<Option<Map<String, Value>>, Error> {
        match self {
            Db::Local(db) => {
                let settle = db.current().await?;
                let doc = db.read(id)?;
                settled(settle.as_ref()).await?;
                Ok(doc)
            }
            Db::Http(db) => db.read(id).await,
        }
    }

    /// Writes a local document, and returns its new `_rev`.
    ///
    /// # Errors
    /// [`Error::CheckpointCommitFailure`] when it was refused, and those of requests.
    pub async fn write_local(
        &self,
        id: &str,
        rev: Option<&str>,
        body: &Map<String, Value>,
    ) -> Result<String, Error> {
        match self {
            Db::Local(db) => db.write_local(id, rev, body).await,
            Db::Http(db) => db.write_local(id, rev, body).await,
        }
    }

    /// Waits until all writes are on disk; returns [`Info::instance_start_time`].
    ///
    /// # Errors
    /// Errors of requests.
    pub async fn ensure_full_commit(&self) -> Result<Option<String>, Error> {
        match self {
            Db::Local(db) => db.ensure_full_commit().await,
            Db::Http(db) => db.ensure_full_commit().await,
        }
    }

    /// Returns the number of changes after a seq, if the server reports it.
    pub async fn pending(&self, query: &ChangesQuery, since: &Value) -> Option<u64> {
        match self {
            Db::Local(db) => db.pending(query, since),
            Db::Http(db) => db.pending(query, since).await,
        }
    }

    /// Opens the changes feed.
    ///
    /// # Errors
    /// Errors of requests.
    pub async fn changes(&self, query: &ChangesQuery, since: &Value) -> Result<Feed, Error> {
        match self {
            Db::Local(db) => {
                let settle = db.current().await?;
                let feed = db.changes(query, since, settle);
                feed.map(|feed| Feed::Local(Box::new(feed)))
            }
            Db::Http(db) => {
                let feed = db.changes(query, since).await;
                feed.map(|feed| Feed::Http(Box::new(feed)))
            }
        }
    }

    /// Returns the revisions of `changes` that the database lacks.
    ///
    /// # Errors
    /// Errors of requests.
    pub async fn revs_diff(&self, changes: &[Change]) -> Result<Vec<MissingRevs>, Error> {
        match self {
            Db::Local(db) => {
                let settle = db.current().await?;
                let missing = db.revs_diff(changes)?;
                // A revision that the target has now, and loses later, would never be copied.
                settled(settle.as_ref()).await?;
                Ok(missing)
            }
            Db::Http(db) => db.revs_diff(changes).await,
        }
    }

    /// Reads revisions with their ancestors and attachments.
    ///
    /// # Errors
    /// Errors of requests; [`Error::Stopped`] when the receiver of the portions is gone.
    pub async fn fetch(
        &self,
        wanted: Vec<MissingRevs>,
        portions: &Portions,
        progress: &Progress,
    ) -> Result<(), Error> {
        match self {
            Db::Local(db) => db.fetch(wanted, portions).await,
            Db::Http(db) => db.fetch(wanted, portions, progress).await,
        }
    }

    /// Writes revisions under their existing ids; returns those that were refused.
    ///
    /// # Errors
    /// Errors of requests.
    pub async fn write(&self, docs: Vec<Doc>) -> Result<Vec<Rejection>, Error> {
        match self {
            Db::Local(db) => db.write(docs).await,
            Db::Http(db) => db.write(docs).await,
        }
    }
}

/// Returns the wait before retry number `attempt` (from 0).
pub fn retry_wait(attempt: u32) -> Duration {
    retry::wait(attempt, None)
}

pub use retry::random;

/// Attachments of a document up to this total length, in bytes, are included in its JSON.
const SMALL_ATTACHMENTS_BYTES: u64 = 64 << 10;
/// Maximum number of documents of a portion.
const PORTION_DOCS_MAX: usize = 500;
/// Approximate maximum size of a portion, in bytes.
const PORTION_BYTES_MAX: usize = 2 << 20;

/// A portion is handed over when its reader has waited for this time: others may need its memory.
const PORTION_TIME_MAX: Duration = Duration::from_secs(1);
/// A portion that waited for memory gets at least this, in bytes, so that it does not become one of
/// a single short document.
const PIECE_BYTES: u64 = 256 << 10;
/// Memory of a document besides its text, about, in bytes.
const DOC_BYTES: u64 = 256;

/// Collects documents into portions.
struct Gather<'a> {
    portions: &'a Portions,
    docs: Vec<Doc>,
    bytes: usize,
    /// The number of bytes that the documents need, and the grant of them.
    memory_bytes: u64,
    memory: Grant,
    /// Memory was taken for one document of unknown length.
    is_for_long_doc: bool,
}

impl<'a> Gather<'a> {
    fn new(portions: &'a Portions) -> Gather<'a> {
        Gather {
            portions,
            docs: vec![],
            bytes: 0,
            memory_bytes: 0,
            memory: portions.memory.empty(),
            is_for_long_doc: false,
        }
    }

    async fn add(&mut self, doc: Doc) -> Result<(), Error> {
        // Its text, and the request that writes it.
        let bytes = 2 * doc.body.size() as u64 + doc.id.len() as u64 + DOC_BYTES;
        if !self.memory.try_cover(self.memory_bytes + bytes) && !self.has_long() {
            self.flush().await?;
            self.memory = self.portions.memory.take(bytes.max(PIECE_BYTES)).await;
        }
        self.memory_bytes += bytes;
        self.bytes += doc.body.size();
        self.docs.push(doc);
        if self.docs.len() >= PORTION_DOCS_MAX || self.bytes >= PORTION_BYTES_MAX {
            self.flush().await?;
        }
        Ok(())
    }

    /// Returns whether there is memory for one long document, of which nothing is used.
    fn has_long(&self) -> bool {
        self.is_for_long_doc && self.docs.is_empty()
    }

    /// Whether others wait for the memory of a long document.
    fn is_waited_for(&self) -> bool {
        self.is_for_long_doc && self.memory.is_waited_for()
    }

    /// Takes memory for a document of unknown length, up to `row_bytes_max`, before it is read.
    async fn cover_long(&mut self, row_bytes_max: usize) -> Result<(), Error> {
        if !self.has_long() {
            self.flush().await?;
            let bytes = 2 * row_bytes_max as u64;
            self.memory = self.portions.memory.take(bytes).await;
            self.is_for_long_doc = true;
        }
        Ok(())
    }

    /// Waits for what comes next. Memory is not kept for long meanwhile.
    async fn wait<T>(&mut self, next: impl Future<Output = T>) -> Result<T, Error> {
        let mut next = pin!(next);
        match tokio::time::timeout(PORTION_TIME_MAX, &mut next).await {
            Ok(done) => Ok(done),
            Err(_) => {
                self.flush().await?;
                Ok(next.await)
            }
        }
    }

    /// Hands over what there is. Then no memory is held.
    async fn flush(&mut self) -> Result<(), Error> {
        let (docs, mut memory) = (
            std::mem::take(&mut self.docs),
            std::mem::replace(&mut self.memory, self.portions.memory.empty()),
        );
        memory.shrink_to(self.memory_bytes);
        (self.bytes, self.memory_bytes, self.is_for_long_doc) = (0, 0, false);
        if docs.is_empty() {
            return Ok(());
        }
        let portion = Portion { docs, memory };
        let sent = self.portions.sender.send(portion).await;
        sent.map_err(|_| Error::Stopped)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures_util::FutureExt as _;

    use super::*;
    use crate::batch_memory::BatchMemory;

    fn doc(bytes: usize) -> Doc {
        Doc {
            id: "a".to_owned(),
            body: Body::Json(vec![b'x'; bytes].into()),
        }
    }

    #[test]
    fn a_portion_ends_when_there_is_no_memory_and_an_empty_one_waits() {
        let memory = BatchMemory::new(&Arc::default(), 512 << 10)
            .of("a")
            .documents;
        let (sender, mut written) = mpsc::channel(10);
        let portions = Portions { sender, memory };
        let mut gather = Gather::new(&portions);
        let mut add = || gather.add(doc(20_000)).now_or_never().map(Result::unwrap);
        let added = std::iter::from_fn(&mut add).count();
        // Three are handed over; the fourth waits until they are written.
        assert_eq!(added, 3);
        let portion = written.try_recv().expect("they are handed over");
        assert_eq!(portion.docs.len(), 3);
        assert_eq!(add(), None);
        drop(portion);
        assert_eq!(add(), Some(()));
    }

    #[test]
    fn a_long_document_takes_its_memory_before_it_is_read() {
        let memory = BatchMemory::new(&Arc::default(), 512 << 10)
            .of("a")
            .documents;
        let (sender, mut written) = mpsc::channel(10);
        let portions = Portions { sender, memory };
        let mut gather = Gather::new(&portions);
        for bytes in [100, 100, 1 << 20] {
            if bytes > 100 {
                gather
                    .cover_long(1 << 20)
                    .now_or_never()
                    .expect("memory")
                    .unwrap();
            }
            gather
                .add(doc(bytes))
                .now_or_never()
                .expect("memory")
                .unwrap();
        }
        gather.flush().now_or_never().expect("room").unwrap();
        assert_eq!(written.try_recv().map(|portion| portion.docs.len()), Ok(2));
        assert_eq!(written.try_recv().map(|portion| portion.docs.len()), Ok(1));
    }
}
