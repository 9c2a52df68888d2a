//! Creates and drops databases of a cluster.
//!
//! A drop has two steps. Nodes delete the database when they apply the second one, which is
//! irreversible; the first, the announcement, is stable by then. So whatever the log loses, a
//! database that one node has deleted never returns at the others: they drop their remains, too.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cluster::SlotNumber;
use cluster::record::Body;
use database::{DatabaseUuid, NewDatabase};
use futures_util::future::join_all;

use crate::Error;
use crate::control::entry::{CataloguedDatabase, Entry, EntryOutcome};
use crate::control::state::ControlState;
use crate::everywhere::{different_slots, one_slot};
use crate::gateway::{GOING, Gateway};

/// Maximum number of attempts to create a database while one of its name is being dropped.
const CREATE_ATTEMPTS_MAX: u32 = 4;
/// Interval after which another node finishes an announced drop, since its author may be down.
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
            Some((before.uuid, self.all_slots(before), before.is_going))
        };
        if self.catalogue.with(before).is_some() {
            // It may have been deleted by another node.
            self.fresh_control().await.map_err(unavailable)?;
        }
        for _ in 0..CREATE_ATTEMPTS_MAX {
            match self.catalogue.with(before) {
                Some((_, _, false)) => return Err(database::Error::DatabaseExists),
                Some((uuid, slots, true)) => self.drop_announced(uuid, slots).await?,
                None => {
                    let entry = Entry::CreateDatabase {
                        name: name.clone(),
                        database: self.with_slots(&name, database.clone()),
                    };
                    match self.enter_for_client(entry).await {
                        // Another node created one, or the old one is being dropped.
                        Err(database::Error::DatabaseExists) => {}
                        done => return done,
                    }
                }
            }
        }
        Err(database::Error::Unavailable(GOING.into()))
    }

    pub(crate) async fn delete_now(&self, name: &str) -> Result<(), database::Error> {
        // A dropped database may have been replaced by another of its name.
        for _ in 0..2 {
            let db = self.databases.get(name)?;
            let (uuid, slots) = (db.uuid(), self.slots(&db));
            drop(db);
            match self.enter_for_client(Entry::AnnounceDrop { uuid }).await {
                Err(database::Error::NoDatabase) => {}
                announced => {
                    announced?;
                    return self.drop_announced(uuid, slots).await;
                }
            }
        }
        Err(database::Error::NoDatabase)
    }

    /// Returns a new database with its slots: of a spread one different ones, and otherwise one for
    /// all shards, if slots have some of the nodes only.
    fn with_slots(&self, name: &str, mut database: CataloguedDatabase) -> CataloguedDatabase {
        if database.spread {
            database.slots = different_slots(database.uuid, database.q, self.replicas.count());
        } else if self.catalogue.is_placed() {
            let (uuid, q) = (database.uuid, database.q);
            database.slots = one_slot(name, uuid, q, self.replicas.count());
        }
        database
    }

    /// Returns the slots of a database in the catalogue.
    pub(crate) fn all_slots(&self, database: &CataloguedDatabase) -> Vec<SlotNumber> {
        let of_shards = database.shard_slots(self.replicas.count());
        of_shards.all(database.q as usize)
    }

    /// Drops an announced database in these slots.
    pub(crate) async fn drop_announced(
        &self,
        uuid: DatabaseUuid,
        slots: Vec<SlotNumber>,
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
        // A node that knows only the previous state cannot write any more, once all slots wait for
        // this version. Also when another node was first, which may not have come to this.
        let version = self.catalogue.version();
        self.stays(version).await.map_err(unavailable)?;
        let awaits = slots.into_iter().map(|slot| {
            let body = Body::Await { version };
            self.proposer.append(slot, body)
        });
        for done in join_all(awaits).await {
            done?;
        }
        Ok(())
    }
}

/// Finishes drops that others announced and did not complete, until the future is dropped.
pub(crate) async fn finish_drops(gateway: Arc<Gateway>) {
    // The number of rounds for which each has been known here.
    let mut turns: BTreeMap<DatabaseUuid, usize> = BTreeMap::new();
    loop {
        tokio::time::sleep(FINISHED_EVERY).await;
        let going: BTreeMap<DatabaseUuid, Vec<SlotNumber>> = gateway.catalogue.with(|state| {
            let going = state.going.iter().filter_map(|uuid| {
                let database = state.databases.get(state.names.get(uuid)?)?;
                Some((*uuid, gateway.all_slots(database)))
            });
            going.collect()
        });
        turns.retain(|uuid, _| going.contains_key(uuid));
        // One node after the other: the first one may not know the database.
        let before = gateway.members.live_before_me();
        for (uuid, slots) in going {
            let turn = turns.entry(uuid).or_default();
            *turn += 1;
            if *turn > before + 1
                && let Err(e) = gateway.drop_announced(uuid, slots).await
            {
                tracing::debug!(error = %e, "a database to be deleted still exists");
            }
        }
    }
}
