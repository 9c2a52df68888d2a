//! Databases come and go.
//!
//! One goes in two steps. Nodes delete it when they apply the second, which they cannot undo; the first, that it will go, is there to stay by
//! then. So whatever becomes of the log, a database that one node has deleted never comes back at the others: what is left of it goes, too.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use cluster::CONTROL;
use cluster::record::Body;
use database::{DatabaseUuid, NewDatabase};
use futures_util::future::join_all;

use crate::Error;
use crate::control::entry::{CataloguedDatabase, Entry, EntryOutcome};
use crate::control::state::ControlState;
use crate::gateway::Gateway;
use crate::planner::leads;

/// A database that was to go for so long goes by whoever leads, since who said it may be gone.
const FINISHED_EVERY: Duration = Duration::from_secs(5);

fn unavailable(e: Error) -> database::Error {
    database::Error::Unavailable(e.to_string())
}

impl Gateway {
    pub(crate) async fn create_now(
        &self,
        name: String,
        new: NewDatabase,
    ) -> Result<(), database::Error> {
        let database = CataloguedDatabase::new(new);
        let entry = || Entry::CreateDatabase {
            name: name.clone(),
            database: database.clone(),
        };
        let before = |state: &ControlState| {
            let before = state.databases.get(&name)?;
            Some((before.uuid, before.is_going))
        };
        let done = match self.catalogue.with(before) {
            Some(_) => Err(database::Error::DatabaseExists),
            None => self.enter_for_client(entry()).await,
        };
        match (done, self.catalogue.with(before)) {
            (Err(database::Error::DatabaseExists), Some((uuid, true))) => {
                self.drop_announced(uuid).await?;
                self.enter_for_client(entry()).await
            }
            (done, _) => done,
        }
    }

    pub(crate) async fn delete_now(&self, name: &str) -> Result<(), database::Error> {
        let uuid = self.databases.get(name)?.uuid();
        self.enter_for_client(Entry::AnnounceDrop { uuid }).await?;
        self.drop_announced(uuid).await
    }

    /// Drops a database of which it was said that it goes.
    pub(crate) async fn drop_announced(&self, uuid: DatabaseUuid) -> Result<(), database::Error> {
        let known = self.catalogue.with(|state| {
            let database = state.databases.get(state.names.get(&uuid)?)?;
            Some(database.q as usize)
        });
        let Some(shards) = known else {
            // Somebody else was first.
            return Ok(());
        };
        let announced = self.catalogue.version();
        self.stays(announced).await.map_err(unavailable)?;
        let dropped = self.enter(Entry::DropDatabase { uuid }).await;
        match dropped.map_err(unavailable)? {
            EntryOutcome::Done | EntryOutcome::Missing => {}
            EntryOutcome::Exists | EntryOutcome::Refused => {
                return Err(database::Error::Unavailable(
                    "the deletion was not accepted: try again".into(),
                ));
            }
        }
        // Who knows only the state before it can write no more, once all slots wait for this one.
        let version = self.catalogue.version();
        self.stays(version).await.map_err(unavailable)?;
        let awaits = self.slots_of(uuid, shards).into_iter().map(|slot| {
            let body = Body::Await { version };
            self.proposer.append(slot, body)
        });
        for done in join_all(awaits).await {
            done?;
        }
        Ok(())
    }
}

/// Drops what others said would go and did not, for as long as it is not dropped itself.
pub(crate) async fn finish_drops(gateway: Arc<Gateway>) {
    let mut before = BTreeSet::new();
    loop {
        tokio::time::sleep(FINISHED_EVERY).await;
        let going = gateway.catalogue.with(|state| state.going.clone());
        for uuid in going.intersection(&before) {
            let control = gateway.replicas.get(CONTROL);
            if control.is_some_and(|control| leads(&gateway.members, &control.status()))
                && let Err(e) = gateway.drop_announced(*uuid).await
            {
                tracing::debug!(error = %e, "a database that is to go is still there");
            }
        }
        before = going;
    }
}
