//! Contents of attachments that are copied between nodes, without the log.
//!
//! A record names contents by their ids. Before it is appended, `stage.rs` copies each to a majority
//! of the slot's replicas, which keep it for a while, whether or not a document references it
//! (`store.rs`). A replica that lacks a content when it applies the record fetches it from another
//! node (`fetch.rs`).
//!
//! **A replica applies no record before it has all contents that the state after it needs.** So its
//! position never counts without them, and any state that is copied or continued is complete.

mod fetch;
mod stage;
mod store;
mod stream;

use std::sync::Arc;
use std::time::Duration;

use cluster::slot::StoreError;
use cluster::{BoxFuture, NodeId, SlotNumber};
use database::{Database, DatabaseUuid, Databases};
use document::ContentId;
use parking_lot::Mutex;
use peers::Body;
use rustc_hash::FxHashMap;
use storage::{Contents, ShardNumber};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::control::Catalogue;
use crate::query::value;

/// The path of requests to keep a content: the response is [`KEPT`], or empty if it is missing.
pub const PIN: &str = "/content/pin";
/// See [`PIN`].
pub const KEPT: &[u8] = b"1";
/// The path of requests to store a content, which is the body, and to keep it.
pub const STORE: &str = "/content/store";
/// The path of requests for a content: the response is its bytes.
pub const FETCH: &str = "/content/fetch";

/// Shorter contents are part of records.
pub const STAGED_FROM_BYTES: u64 = 64 << 10;
/// Contents that no document references are removed this time after they were last named to this
/// node.
pub const KEPT_TIME: Duration = Duration::from_hours(1);
/// Interval of that.
const RECLAIMED_EVERY: Duration = Duration::from_mins(1);
/// Maximum number of contents that another node sends to this one at a time, that this one sends to
/// it before their records, and that it sends to it on request: each takes a thread, and less than
/// 1 MiB of memory.
const STREAMS_MAX: usize = 8;
/// Time limit to wait for the catalogue's version that has the database.
const CATALOGUE_TIME_MAX: Duration = Duration::from_secs(5);

/// The place of a content in the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ContentName {
    /// The database.
    pub database: [u8; 16],
    /// The catalogue version that first contained it.
    pub since: u64,
    /// The index of the shard of its document.
    pub shard: usize,
    /// Its id.
    pub id: ContentId,
    /// Its stored length, in bytes.
    pub length: u64,
}

impl ContentName {
    /// Encodes it as a query.
    pub fn to_query(self) -> String {
        let hex = data_encoding::HEXLOWER;
        format!(
            "database={}&since={}&shard={}&id={}&length={}",
            hex.encode(&self.database),
            self.since,
            self.shard,
            hex.encode(&self.id),
            self.length
        )
    }

    /// Decodes it; `None` for an invalid query.
    pub fn from_query(query: &str) -> Option<ContentName> {
        let hex = |name| {
            data_encoding::HEXLOWER
                .decode(value(query, name)?.as_bytes())
                .ok()
        };
        Some(ContentName {
            database: hex("database")?.try_into().ok()?,
            since: value(query, "since")?.parse().ok()?,
            shard: value(query, "shard")?.parse().ok()?,
            id: hex("id")?.try_into().ok()?,
            length: value(query, "length")?.parse().ok()?,
        })
    }
}

/// The id of a content, and the reason why it could not be obtained.
pub type LackedContent = (ContentId, StoreError);

/// The reason why another node did not execute a request for a content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContentError {
    /// It does not have the content.
    Missing,
    /// It has no such database any more.
    Gone,
    /// Its disk is full.
    Full(String),
    /// Anything else, in words.
    Failed(String),
}

/// Calls to other nodes about contents.
pub trait ContentPeers: Send + Sync + 'static {
    /// Returns the other live members.
    fn others(&self) -> Vec<NodeId>;

    /// Sends a request with one of the paths of this module, and returns the body of the response.
    fn call(
        &self,
        node: NodeId,
        path: String,
        body: Body,
        time_max: Duration,
    ) -> BoxFuture<'static, Result<Body, ContentError>>;
}

/// Returns the replicas of a slot, as this node knows them.
pub type ReplicasOf = Box<dyn Fn(SlotNumber) -> Vec<NodeId> + Send + Sync>;

/// A content on this node: the shard under which it is, and its id.
type ContentPlace = (ShardNumber, ContentId);

/// Exchanges contents with other nodes.
pub struct ContentExchange {
    me: NodeId,
    databases: Arc<Databases>,
    catalogue: Arc<Catalogue>,
    replicas_of: ReplicasOf,
    peers: Arc<dyn ContentPeers>,
    /// Contents that are kept without a reference, and when they were last named.
    pins: Mutex<FxHashMap<ContentPlace, Pin>>,
    /// Locks of contents that are being stored, fetched, kept or removed.
    turns: Mutex<FxHashMap<ContentPlace, Arc<tokio::sync::Mutex<()>>>>,
    receiving: StreamLimits,
    sending: StreamLimits,
    /// Apart from `sending`: a node that requests a content applies nothing more without it.
    giving: StreamLimits,
}

struct Pin {
    database: [u8; 16],
    shard: usize,
    named: Instant,
    /// This process has seen it on disk.
    is_on_disk: bool,
}

/// Limits the contents that are transferred at a time, for each other node on its own: a slow node
/// delays no other one.
#[derive(Default)]
struct StreamLimits(Mutex<FxHashMap<NodeId, Arc<Semaphore>>>);

impl StreamLimits {
    /// Returns the limit of one node.
    fn of(&self, node: NodeId) -> Arc<Semaphore> {
        let mut limits = self.0.lock();
        let limit = limits.entry(node);
        let new = || Arc::new(Semaphore::new(STREAMS_MAX));
        limit.or_insert_with(new).clone()
    }
}

impl ContentExchange {
    /// Creates that of a node.
    pub fn new(
        me: NodeId,
        (databases, catalogue): (&Arc<Databases>, &Arc<Catalogue>),
        replicas_of: ReplicasOf,
        peers: Arc<dyn ContentPeers>,
    ) -> Arc<ContentExchange> {
        Arc::new(ContentExchange {
            me,
            databases: databases.clone(),
            catalogue: catalogue.clone(),
            replicas_of,
            peers,
            pins: Mutex::default(),
            turns: Mutex::default(),
            receiving: StreamLimits::default(),
            sending: StreamLimits::default(),
            giving: StreamLimits::default(),
        })
    }

    /// Opens the database of a content, and returns it with where the content is.
    ///
    /// # Errors
    /// [`ContentError::Gone`] if it was deleted.
    async fn place(
        &self,
        name: &ContentName,
    ) -> Result<(Arc<Database>, Arc<Contents>), ContentError> {
        let failed = |e: &dyn std::fmt::Display| ContentError::Failed(e.to_string());
        let here = self.catalogue.wait_for(name.since);
        let waited = tokio::time::timeout(CATALOGUE_TIME_MAX, here).await;
        let waited = waited.map_err(|_| failed(&"the catalogue there is behind"))?;
        waited.map_err(|e| failed(&e))?;
        let uuid = DatabaseUuid::new(name.database);
        let db = self.catalogue.database(&self.databases, uuid);
        let db = db.map_err(|e| failed(&e))?.ok_or(ContentError::Gone)?;
        let contents = db.contents_of_shard(name.shard).cloned();
        let contents = contents.ok_or_else(|| failed(&"there is no such shard"))?;
        Ok((db, contents))
    }

    /// Waits for the turn to work on a content: nothing is stored twice at a time, and nothing is
    /// removed that another node was promised.
    async fn turn(&self, home: ShardNumber, id: &ContentId) -> tokio::sync::OwnedMutexGuard<()> {
        let turn = {
            let mut turns = self.turns.lock();
            turns.retain(|_, turn| Arc::strong_count(turn) > 1);
            turns.entry((home, *id)).or_default().clone()
        };
        turn.lock_owned().await
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, storage::Error> + Send + 'static,
) -> Result<T, ContentError> {
    let done = tokio::task::spawn_blocking(work).await;
    let done = done.map_err(|_| ContentError::Failed("the server is shutting down".into()))?;
    done.map_err(ContentError::from)
}

impl ContentError {
    /// Adds the node that it was.
    fn at(self, node: NodeId) -> ContentError {
        match self {
            ContentError::Missing | ContentError::Gone => self,
            ContentError::Full(why) => ContentError::Full(format!("node {node:x}: {why}")),
            ContentError::Failed(why) => ContentError::Failed(format!("node {node:x}: {why}")),
        }
    }
}

impl From<storage::Error> for ContentError {
    fn from(e: storage::Error) -> ContentError {
        match e {
            storage::Error::DiskFull { .. } => ContentError::Full(e.to_string()),
            e => ContentError::Failed(e.to_string()),
        }
    }
}
