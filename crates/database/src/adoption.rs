//! Databases that a server made alone, and that a [`Sequencer`](crate::Sequencer) takes over.

use storage::{Put, ShardNumber, Store};

use crate::Error;
use crate::catalogue::{ContentsUnder, DatabaseRecord, DatabaseUuid};
use crate::databases::random;
use crate::sequenced_changes::{epoch_of, properties};
use crate::sequencer::{NewDatabase, Property};

/// Whether update seqs that clients know stay valid when databases are taken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KnownSeqs {
    /// They do: the store has everything that was acknowledged.
    Valid,
    /// Feeds start from the beginning: clients may know changes that the store lacks.
    Void,
}

/// A database to be taken over. Its shards stay where they are.
#[derive(Clone, Debug)]
pub struct OwnDatabase {
    /// Its name.
    pub name: String,
    /// The parameters with which other servers create it.
    pub new: NewDatabase,
    /// The properties that can be changed.
    pub properties: Vec<Property>,
    /// Its shards in this store.
    pub shards: Vec<ShardNumber>,
    /// The put that makes it a sequenced database.
    pub put: Put,
    /// Its uuid so far, if it is a sequenced one already.
    pub former: Option<DatabaseUuid>,
}

/// The reason why databases cannot be taken over.
#[derive(Debug, thiserror::Error)]
pub enum AdoptionError {
    /// The contents of attachments are not stored with their documents. Holds the name.
    #[error(
        "the database {0} was created by an early version, which stored the attachments of all its shards in one place: start the server, replicate {0} into a new database, and delete {0}. Then repeat this"
    )]
    OldAttachments(String),
    /// Holds the name.
    #[error(
        "the database {0} has access by document, which a cluster does not have yet: copy it into another server, and delete it. Then repeat this"
    )]
    Access(String),
    /// An error of the store.
    #[error(transparent)]
    Store(#[from] Error),
}

impl From<storage::Error> for AdoptionError {
    fn from(error: storage::Error) -> AdoptionError {
        AdoptionError::Store(error.into())
    }
}

/// Returns all databases of a store, to be taken over.
///
/// # Errors
/// [`AdoptionError`].
pub fn own_databases(store: &Store, seqs: KnownSeqs) -> Result<Vec<OwnDatabase>, AdoptionError> {
    let snapshot = store.snapshot();
    let mut all = vec![];
    for name in store.databases()? {
        let Some(record) = Store::database_in(&snapshot, &name)? else {
            continue;
        };
        let mut record = DatabaseRecord::decode(&record)?;
        if record.contents == ContentsUnder::FirstShard
            && record.shards.len() > 1
            && snapshot.has_contents(record.shards[0])?
        {
            return Err(AdoptionError::OldAttachments(name));
        }
        if record.access.is_some() {
            return Err(AdoptionError::Access(name));
        }
        record.contents = ContentsUnder::EachShard;
        let former = record.uuid(&name);
        let is_sequenced = record.epoch == epoch_of(former);
        let uuid = match seqs {
            KnownSeqs::Valid => with_epoch(former, record.epoch),
            KnownSeqs::Void => DatabaseUuid::new(random()?),
        };
        record.uuid = Some(uuid);
        record.epoch = epoch_of(uuid);
        all.push(OwnDatabase {
            new: NewDatabase {
                uuid,
                // At most 256.
                q: u32::try_from(record.shards.len()).unwrap_or(u32::MAX),
                // A server alone has one copy and ignores the requested number: the cluster has its own.
                n: None,
                partitioned: record.partitioned,
                spread: record.spread,
                created_unix_s: record.created_unix_s,
                security: record.security.clone(),
            },
            shards: record.shards.clone(),
            put: Store::put_database(&name, record.encode()),
            properties: properties(record),
            former: is_sequenced.then_some(former),
            name,
        });
    }
    Ok(all)
}

/// Returns the uuid whose databases have these update seqs on all servers. Everything else of it
/// stays, and it stays itself if it was made so before.
fn with_epoch(uuid: DatabaseUuid, epoch: u32) -> DatabaseUuid {
    let mut bytes = *uuid.as_bytes();
    bytes[..4].copy_from_slice(&epoch.to_be_bytes());
    DatabaseUuid::new(bytes)
}
