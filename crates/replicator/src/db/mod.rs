//! The two databases of a replication, with one interface for databases on this server and behind
//! HTTP.

pub mod attachments;
pub mod bounded;
mod budget;
mod changes;
mod client;
mod connect_to;
pub(crate) mod http;
mod local;
mod long;
mod outbound;
mod reach;
mod retry;

use bytes::Bytes;
use document::EditDoc;
use serde_json::{Map, Value};
use tokio::sync::mpsc;

pub use budget::Lane;
pub use changes::{Change, ChangesQuery, Feed, Read};
pub use client::Clients;
pub use connect_to::ConnectTo;
pub use http::HttpDb;
pub use local::LocalDb;
pub use outbound::{Rights, TOKEN};
pub use reach::Allowed;

use crate::error::Error;
use crate::progress::Progress;

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
pub struct Missing {
    pub id: String,
    pub revs: Vec<String>,
}

/// The reason why the target refused a document.
#[derive(Clone, Debug)]
pub struct Refused {
    pub id: String,
    pub error: String,
    pub reason: String,
}

/// Documents that were read, in portions of bounded size.
pub type Portions = mpsc::Sender<Vec<Doc>>;

/// The source or target of a replication.
pub enum Db {
    Local(LocalDb),
    Http(Box<HttpDb>),
}

impl Db {
    /// # Errors
    /// [`Error::NoDatabase`], [`Error::Unauthorized`], [`Error::NoAccess`], and those of requests.
    pub async fn info(&self) -> Result<Info, Error> {
        match self {
            Db::Local(db) => db.info(),
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
            Db::Local(db) => db.read(id),
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
            Db::Local(db) => db.changes(query, since).map(Feed::Local),
            Db::Http(db) => db.changes(query, since).await.map(Feed::Http),
        }
    }

    /// Returns the revisions of `changes` that the database lacks.
    ///
    /// # Errors
    /// Errors of requests.
    pub async fn revs_diff(&self, changes: &[Change]) -> Result<Vec<Missing>, Error> {
        match self {
            Db::Local(db) => db.revs_diff(changes),
            Db::Http(db) => db.revs_diff(changes).await,
        }
    }

    /// Reads revisions with their ancestors and attachments.
    ///
    /// # Errors
    /// Errors of requests; [`Error::Stopped`] when the receiver of the portions is gone.
    pub async fn fetch(
        &self,
        wanted: Vec<Missing>,
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
    pub async fn write(&self, docs: Vec<Doc>) -> Result<Vec<Refused>, Error> {
        match self {
            Db::Local(db) => db.write(docs).await,
            Db::Http(db) => db.write(docs).await,
        }
    }
}

/// Returns the wait before retry number `attempt` (from 0).
pub fn retry_wait(attempt: u32) -> std::time::Duration {
    retry::wait(attempt, None)
}

pub use retry::random;

/// Attachments of a document up to this total length, in bytes, are included in its JSON.
const SMALL_ATTACHMENTS_BYTES: u64 = 64 << 10;
/// Maximum number of documents of a portion.
const PORTION_DOCS_MAX: usize = 500;
/// Approximate maximum size of a portion, in bytes.
const PORTION_BYTES_MAX: usize = 2 << 20;

/// Collects documents into portions.
struct Gather<'a> {
    portions: &'a Portions,
    docs: Vec<Doc>,
    bytes: usize,
}

impl<'a> Gather<'a> {
    fn new(portions: &'a Portions) -> Gather<'a> {
        Gather {
            portions,
            docs: vec![],
            bytes: 0,
        }
    }

    async fn add(&mut self, doc: Doc) -> Result<(), Error> {
        self.bytes += doc.body.size();
        self.docs.push(doc);
        if self.docs.len() >= PORTION_DOCS_MAX || self.bytes >= PORTION_BYTES_MAX {
            self.flush().await?;
        }
        Ok(())
    }

    async fn flush(&mut self) -> Result<(), Error> {
        self.bytes = 0;
        if self.docs.is_empty() {
            return Ok(());
        }
        let docs = std::mem::take(&mut self.docs);
        self.portions.send(docs).await.map_err(|_| Error::Stopped)
    }
}
