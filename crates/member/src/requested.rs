//! The continuous replications that requests start at any node, and that the cluster keeps until
//! requests cancel them.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, MutexGuard, watch};
use tokio::time::timeout;

use crate::Error;
use crate::control::entry::{Entry, EntryOutcome};
use crate::control::replications::KeptReplication;
use crate::gateway::Gateway;

/// Maximum length of one request, in bytes.
const REQUEST_BYTES_MAX: usize = 1 << 20;
/// Time after which a change that is still waiting for others is refused.
const TURN_TIME_MAX: Duration = Duration::from_secs(10);

/// Why a replication cannot be kept.
#[derive(Debug, thiserror::Error)]
pub enum KeepError {
    /// Another user's replication has the id.
    #[error("another user's replication has this id")]
    Taken,
    /// The request is longer than this number of bytes.
    #[error(
        "the request of a continuous replication is longer than {0} bytes: use a document of a replicator database"
    )]
    TooLong(usize),
    /// There is no room.
    #[error(
        "the continuous replications of _replicate leave no room for this one: use a document of a replicator database"
    )]
    NoRoom,
    /// The cluster does not change now.
    #[error(transparent)]
    Cluster(#[from] Error),
}

/// Keeps continuous replications of `_replicate`.
pub struct RequestedReplications {
    gateway: Arc<Gateway>,
    /// One change at a time, so that others' changes of cluster-wide state wait for one at most.
    change: Mutex<()>,
}

impl RequestedReplications {
    pub(crate) fn new(gateway: Arc<Gateway>) -> RequestedReplications {
        RequestedReplications {
            gateway,
            change: Mutex::default(),
        }
    }

    /// Waits until all acknowledged ones are known here.
    ///
    /// # Errors
    /// [`Error::NotNow`].
    pub async fn fresh(&self) -> Result<(), Error> {
        self.gateway.fresh_control().await
    }

    /// Returns all of them, with the ids of their jobs.
    pub fn all(&self) -> Vec<(String, KeptReplication)> {
        self.gateway.catalogue.with(|state| {
            let all = state.replications.all();
            all.map(|(id, kept)| (id.clone(), kept.clone())).collect()
        })
    }

    /// Returns the one with this id.
    pub fn get(&self, id: &str) -> Option<KeptReplication> {
        let catalogue = &self.gateway.catalogue;
        catalogue.with(|state| state.replications.get(id).cloned())
    }

    /// Notifies of all changes of [`RequestedReplications::all`], and of others.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.gateway.catalogue.watch()
    }

    async fn turn(&self) -> Result<MutexGuard<'_, ()>, Error> {
        let turn = timeout(TURN_TIME_MAX, self.change.lock()).await;
        let busy = "too many continuous replications are being started or cancelled: try again";
        turn.map_err(|_| Error::NotNow(busy.into()))
    }

    /// Keeps a replication. One with this id of the same user is replaced; an admin replaces any.
    ///
    /// # Errors
    /// [`KeepError`].
    pub async fn keep(&self, id: &str, replication: KeptReplication) -> Result<(), KeepError> {
        if replication.request.len() > REQUEST_BYTES_MAX {
            return Err(KeepError::TooLong(REQUEST_BYTES_MAX));
        }
        let _turn = self.turn().await?;
        if self.get(id).as_ref() == Some(&replication) {
            return self.gateway.settle_control().await.map_err(KeepError::from);
        }
        let entry = Entry::KeepReplication {
            id: id.to_owned(),
            replication: replication.clone(),
        };
        match self.gateway.enter(entry).await? {
            EntryOutcome::Done => Ok(()),
            EntryOutcome::Exists if self.get(id).as_ref() == Some(&replication) => {
                self.gateway.settle_control().await.map_err(KeepError::from)
            }
            EntryOutcome::Exists => Err(KeepError::Taken),
            EntryOutcome::Missing | EntryOutcome::Refused => Err(KeepError::NoRoom),
        }
    }

    /// Ends a replication. Returns false if it does not exist.
    ///
    /// # Errors
    /// [`Error::NotNow`].
    pub async fn end(&self, id: &str) -> Result<bool, Error> {
        let _turn = self.turn().await?;
        let entry = Entry::EndReplication { id: id.to_owned() };
        match self.gateway.enter(entry).await? {
            EntryOutcome::Done => Ok(true),
            _ => Ok(false),
        }
    }
}
