//! Writes of a server that is one of several: a [`Sequencer`] puts the writes of all servers in one
//! order, and applies them on each.

use std::pin::Pin;
use std::sync::{Arc, OnceLock};

use storage::{ShardEdit, ShardPurge};

use crate::Error;
use crate::catalogue::DatabaseUuid;
use crate::database::Database;
use crate::expiry::Expiry;
use crate::ttl::Ttl;
use crate::update::WriteTiming;

/// An operation that takes time and borrows nothing from its caller.
pub type SequencerFuture<T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send>>;

/// Puts the writes of all servers in one order, where this server is one of several. Sequenced writes
/// are applied by the functions of [`Databases`](crate::Databases) whose names end in `_sequenced`,
/// and by the store's writes of slots, before the request completes.
pub trait Sequencer: Send + Sync {
    /// Edits of a database; one outcome each, in their order. `copies`: how many servers should
    /// have them on disk, a majority by default. The timing reports when fewer have. `designs`: the
    /// number of the design documents ([`Database::designs_hash`]) that validated them, if any did:
    /// if other ones are current, the edits are refused with [`Error::Unavailable`].
    fn edit(
        &self,
        db: &Arc<Database>,
        edits: Vec<ShardEdit>,
        copies: Option<usize>,
        designs: Option<u64>,
    ) -> SequencerFuture<(Vec<storage::Outcome>, WriteTiming)>;

    /// Purges of a database; the revisions removed, for each, and whether too few servers have that.
    fn purge(
        &self,
        db: &Arc<Database>,
        purges: Vec<ShardPurge>,
    ) -> SequencerFuture<(Vec<Vec<document::Rev>>, bool)>;

    /// A new database, which is here when it is answered.
    fn create(&self, name: String, new: NewDatabase) -> SequencerFuture<()>;

    /// Deletes a database; it is deleted here when this completes.
    fn delete(&self, name: String) -> SequencerFuture<()>;

    /// A property of a database changes.
    fn change(&self, db: &Database, property: Property) -> SequencerFuture<()>;

    /// How many servers have everything.
    fn copies(&self) -> u32;

    /// Waits until all writes that were acknowledged anywhere before this call are applied here.
    fn fresh(&self, db: &Database) -> SequencerFuture<()>;
}

/// The sequencer, if there is one.
pub(crate) type SharedSequencer = Arc<OnceLock<Arc<dyn Sequencer>>>;

/// A database to create, equal on all servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewDatabase {
    /// Its identity.
    pub uuid: DatabaseUuid,
    /// All shards.
    pub q: u32,
    /// Number of copies, as requested.
    pub n: Option<u32>,
    /// Ids begin with a partition.
    pub partitioned: bool,
    /// The last shard has all design documents and nothing else: the others may be on different
    /// nodes.
    pub spread: bool,
    /// Seconds since 1970.
    pub created_unix_s: u64,
    /// JSON text of the security object.
    pub security: String,
}

/// Properties of a database that can change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Property {
    /// JSON text of the security object.
    Security(String),
    /// Revisions kept of each branch.
    RevsLimit(u64),
    /// Purges remembered of each shard.
    PurgedInfosLimit(u64),
    /// How long deleted documents are kept; `None` for the server's setting.
    DeletedDocumentTtl(Option<Ttl>),
    /// When documents expire; `None` for never.
    Expiry(Option<Expiry>),
}
