//! Writes of a server that is one of several: somebody puts those of all servers in one order, and brings them back.

use std::pin::Pin;
use std::sync::{Arc, OnceLock};

use storage::{ShardEdit, ShardPurge};

use crate::Error;
use crate::catalogue::DatabaseUuid;
use crate::database::Database;
use crate::expiry::Expiry;
use crate::ttl::Ttl;
use crate::update::WriteTiming;

/// Something that takes a while, and needs nothing of who asked for it.
pub type Later<T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send>>;

/// Who puts the writes of all servers in one order, where this server is one of several. What is ordered comes back by the functions of
/// [`Databases`](crate::Databases) whose names end in `_ordered`, and by the store's writes of slots, before it is answered.
pub trait Order: Send + Sync {
    /// Edits of a database; one outcome each, in their order. `copies`: how many servers are to have them on disk, a majority when it is
    /// not said. The timing tells when fewer have. `designs`: the number of the design documents that they were validated by
    /// ([`Database::designs_hash`]), if they were: where others are in force, they are refused with [`Error::Unavailable`].
    fn edit(
        &self,
        db: &Arc<Database>,
        edits: Vec<ShardEdit>,
        copies: Option<usize>,
        designs: Option<u64>,
    ) -> Later<(Vec<storage::Outcome>, WriteTiming)>;

    /// Purges of a database; the revisions removed, for each, and whether too few servers have that.
    fn purge(
        &self,
        db: &Arc<Database>,
        purges: Vec<ShardPurge>,
    ) -> Later<(Vec<Vec<document::Rev>>, bool)>;

    /// A new database, which is here when it is answered.
    fn create(&self, name: String, new: NewDatabase) -> Later<()>;

    /// A database goes, and is gone here when it is answered.
    fn delete(&self, name: String) -> Later<()>;

    /// A property of a database changes.
    fn change(&self, db: &Database, property: Property) -> Later<()>;

    /// How many servers have everything.
    fn copies(&self) -> u32;

    /// What was acknowledged anywhere before this was asked is here when it is answered.
    fn fresh(&self, db: &Database) -> Later<()>;
}

/// The one that there is, if there is one.
pub(crate) type SharedOrder = Arc<OnceLock<Arc<dyn Order>>>;

/// A database that is to be made, alike on all servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewDatabase {
    /// What it is known by.
    pub uuid: DatabaseUuid,
    /// Shards.
    pub q: u32,
    /// Copies, as they were asked for.
    pub n: Option<u32>,
    /// Ids begin with a partition.
    pub partitioned: bool,
    /// Seconds since 1970.
    pub created_unix_s: u64,
    /// JSON text of the security object.
    pub security: String,
}

/// What can be changed of a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Property {
    /// JSON text of the security object.
    Security(String),
    /// Revisions kept of each branch.
    RevsLimit(u64),
    /// Purges remembered of each shard.
    PurgedInfosLimit(u64),
    /// How long deleted documents are kept; `None` for what the server's settings say.
    DeletedDocumentTtl(Option<Ttl>),
    /// When documents expire; `None` for never.
    Expiry(Option<Expiry>),
}
