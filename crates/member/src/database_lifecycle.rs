//! Databases come and go.
//!
//! One goes in two steps. Nodes delete it when they apply the second, which they cannot undo; the first, that it will go, is there to stay by
//! then. So whatever becomes of the log, a database that one node has deleted never comes back at the others: what is left of it goes, too.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cluster::record::Body;
use database::{DatabaseUuid, NewDatabase};
use futures_util::future::join_all;

use crate::Error;
use crate::control::entry::{CataloguedDatabase, Entry, EntryOutcome};
use crate::control::state::ControlState;
use crate::gateway::{GOING, Gateway};

/// So often it is tried to create a database in whose place one is going.
const CREATE_ATTEMPTS_MAX: u32 = 4;
/// A database that was to go for so long goes by another node, since who said it may be gone.
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
        let before = |state: &ControlState| {
            let before = state.databases.get(&name)?;
            Some((before.uuid, before.q as usize, before.is_going))
        };
        if self.catalogue.with(before).is_some() {
            // It may have been deleted elsewhere.
            self.fresh_control().await.map_err(unavailable)?;
        }
        for _ in 0..CREATE_ATTEMPTS_MAX {
            match self.catalogue.with(before) {
                Some((_, _, false)) => return Err(database::Error::DatabaseExists),
                Some((uuid, shards, true)) => self.drop_announced(uuid, shards).await?,
                None => {
                    let entry = Entry::CreateDatabase {
                        name: name.clone(),
                        database: database.clone(),
                    };
                    match self.enter_for_client(entry).await {
                        // Others made one, or the one before is going.
                        Err(database::Error::DatabaseExists) => {}
                        done => return done,
                    }
                }
            }
        }
        Err(database::Error::Unavailable(GOING.into()))
    }

    pub(crate) async fn delete_now(&self, name: &str) -> Result<(), database::Error> {
        // In the place of one that has gone another one of its name may have come.
        for _ in 0..2 {
            let db = self.databases.get(name)?;
            let (uuid, shards) = (db.uuid(), db.all_shards().len());
            drop(db);
            match self.enter_for_client(Entry::AnnounceDrop { uuid }).await {
                Err(database::Error::NoDatabase) => {}
                announced => {
                    announced?;
                    return self.drop_announced(uuid, shards).await;
                }
            }
        }
        Err(database::Error::NoDatabase)
    }

    /// Drops a database of which it was said that it goes, and that has so many shards.
    pub(crate) async fn drop_announced(
        &self,
        uuid: DatabaseUuid,
        shards: usize,
    ) -> Result<(), database::Error> {
        let announced = self.catalogue.version();
        self.stays(announced).await.map_err(unavailable)?;
        if self.catalogue.with(|state| state.names.contains_key(&uuid)) {
            let dropped = self.enter(Entry::DropDatabase { uuid }).await;
            match dropped.map_err(unavailable)? {
                EntryOutcome::Done | EntryOutcome::Missing => {}
                EntryOutcome::Exists | EntryOutcome::Refused => {
                    return Err(database::Error::Unavailable(
                        "the deletion was not accepted: try again".into(),
                    ));
                }
            }
        }
        // Who knows only the state before it can write no more, once all slots wait for this one. Also when somebody else was first, who may
        // not have come to that.
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
    // For how many turns each is known here.
    let mut turns: BTreeMap<DatabaseUuid, usize> = BTreeMap::new();
    loop {
        tokio::time::sleep(FINISHED_EVERY).await;
        let going: BTreeMap<DatabaseUuid, usize> = gateway.catalogue.with(|state| {
            let going = state.going.iter().filter_map(|uuid| {
                let database = state.databases.get(state.names.get(uuid)?)?;
                Some((*uuid, database.q as usize))
            });
            going.collect()
        });
        turns.retain(|uuid, _| going.contains_key(uuid));
        // One after the other: who is first may not know of it.
        let before = gateway.members.live_before_me();
        for (uuid, shards) in going {
            let turn = turns.entry(uuid).or_default();
            *turn += 1;
            if *turn > before + 1
                && let Err(e) = gateway.drop_announced(uuid, shards).await
            {
                tracing::debug!(error = %e, "a database that is to go is still there");
            }
        }
    }
}
