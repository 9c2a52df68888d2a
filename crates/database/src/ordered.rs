//! What somebody who orders writes has done with the databases of this server: as it was ordered, whoever asked for it and wherever.

use std::collections::BTreeMap;
use std::sync::Arc;

use storage::{Put, Shard, ShardNumber, Snapshot, Store};

use crate::catalogue::{ContentsUnder, DatabaseRecord, DatabaseUuid};
use crate::database::Database;
use crate::databases::{Databases, to_the_end};
use crate::order::{NewDatabase, Property};
use crate::{Error, NameRange};

/// A database as it is stored here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredDatabase {
    /// Its name.
    pub name: Arc<str>,
    /// What it is known by.
    pub uuid: DatabaseUuid,
    /// It was made as it was ordered, and not by this server alone.
    pub is_ordered: bool,
    /// The properties that can be changed.
    pub properties: Vec<Property>,
}

/// Shards of a database in whose place others are to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewShards {
    /// The database's name; `None` when it is gone.
    pub name: Option<Arc<str>>,
    /// What it is known by.
    pub uuid: DatabaseUuid,
    /// Indexes of shards, and the numbers of those that are to be in their place.
    pub shards: Vec<(usize, ShardNumber)>,
}

/// What is to be written together when shards are replaced.
pub struct Replacement {
    /// Records of databases that name the new shards.
    pub puts: Vec<Put>,
    /// The shards that go.
    pub replaced: Vec<Arc<Shard>>,
    /// New shards of databases that are gone.
    pub unwanted: Vec<ShardNumber>,
}

/// What an ordered database's update seqs begin with: alike everywhere.
fn epoch_of(uuid: DatabaseUuid) -> u32 {
    let mut epoch = [0; 4];
    epoch.copy_from_slice(&uuid.as_bytes()[..4]);
    u32::from_be_bytes(epoch)
}

impl Databases {
    /// Creates a database, as it was ordered. One that is here already is fine if it is the same; one that was ordered under this name
    /// before it goes.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when there is one that was not ordered, and those of the store.
    pub async fn create_ordered(&self, name: &str, new: NewDatabase) -> Result<(), Error> {
        let uuid = new.uuid;
        match self.get(name) {
            Ok(db) if db.uuid() == uuid => return Ok(()),
            Ok(db) if db.epoch() == epoch_of(db.uuid()) => {
                let before = db.uuid();
                drop(db);
                self.delete_ordered(name, before).await?;
            }
            Ok(_) => {
                return Err(Error::Unavailable(format!(
                    "the database {name} was made here before this node was in the cluster: it is in the way of the cluster's"
                )));
            }
            Err(Error::NoDatabase) => {}
            Err(e) => return Err(e),
        }
        self.create_alone(name, new, epoch_of(uuid)).await.map(drop)
    }

    /// Deletes a database, as it was ordered. It is fine if it is not here.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn delete_ordered(&self, name: &str, uuid: DatabaseUuid) -> Result<(), Error> {
        match self.get(name) {
            Ok(db) if db.uuid() == uuid => drop(db),
            Ok(_) | Err(Error::NoDatabase) => return Ok(()),
            Err(e) => return Err(e),
        }
        match self.delete_alone(name, Some(uuid)).await {
            // It has gone meanwhile, and there may be another one.
            Err(Error::NoDatabase) => Ok(()),
            done => done,
        }
    }

    /// Changes a property of a database, as it was ordered; durable when this returns. It is fine if the database is not here.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn change_ordered(
        &self,
        name: &str,
        uuid: DatabaseUuid,
        property: Property,
    ) -> Result<(), Error> {
        let mut before: Option<Arc<Database>> = None;
        loop {
            let db = match self.get(name) {
                Ok(db) if db.uuid() == uuid => db,
                Ok(_) | Err(Error::NoDatabase) => return Ok(()),
                Err(e) => return Err(e),
            };
            let done = db.change_ordered(property.clone()).await;
            let is_gone = matches!(done, Err(Error::Unavailable(_) | Error::NoDatabase));
            if !is_gone || before.is_some_and(|before| Arc::ptr_eq(&before, &db)) {
                return done;
            }
            // Its shards are being replaced, or it is being deleted: after that there is another, or none.
            let _reshaped = self.reshaping.lock().await;
            before = Some(db);
        }
    }

    /// All databases as they are stored. Opens none; blocks.
    ///
    /// # Errors
    /// Those of the store.
    pub fn stored(&self) -> Result<Vec<StoredDatabase>, Error> {
        let mut all = vec![];
        for name in self.names(&NameRange::default()) {
            let Some(record) = self.store().database(&name)? else {
                continue;
            };
            let record = DatabaseRecord::decode(&record)?;
            let uuid = record.uuid(&name);
            all.push(StoredDatabase {
                uuid,
                is_ordered: record.epoch == epoch_of(uuid),
                properties: vec![
                    Property::Security(record.security),
                    Property::RevsLimit(record.revs_limit),
                    Property::PurgedInfosLimit(record.purged_infos_limit),
                    Property::DeletedDocumentTtl(record.deleted_document_ttl),
                    Property::Expiry(record.expiry),
                ],
                name,
            });
        }
        Ok(all)
    }

    /// Numbers of the shards of a database in a snapshot of the store; `None` when it was not there. Opens nothing.
    ///
    /// # Errors
    /// Those of the store.
    pub fn shards_in(
        snapshot: &Snapshot,
        name: &str,
        uuid: DatabaseUuid,
    ) -> Result<Option<Vec<ShardNumber>>, Error> {
        let Some(record) = Store::database_in(snapshot, name)? else {
            return Ok(None);
        };
        let record = DatabaseRecord::decode(&record)?;
        Ok((record.uuid(name) == uuid).then_some(record.shards))
    }

    /// Puts shards in the place of those of databases: `install` writes all that is to be written together, blocking. Whoever holds one of
    /// the databases is told to try again; from then on [`Databases::get`] has them with the new shards. Indexes of the old ones go with
    /// them. Once begun it goes on to its end, whoever waits; needs a Tokio runtime.
    ///
    /// **No old record is written afterwards**: no property of these databases changes meanwhile, none of them is deleted, and what is
    /// held of them writes nothing more.
    ///
    /// # Errors
    /// Those of `install`; then all is as before.
    pub async fn replace_shards<F>(
        self: &Arc<Self>,
        new: Vec<NewShards>,
        install: F,
    ) -> Result<(), Error>
    where
        F: FnOnce(Replacement) -> Result<(), storage::Error> + Send + 'static,
    {
        let me = self.clone();
        to_the_end(async move {
            let _one = me.reshaping.lock().await;
            let finder = me.clone();
            let found = tokio::task::spawn_blocking(move || finder.find_replaced(&new)).await;
            let (dbs, unwanted) = found.map_err(|_| Error::ShuttingDown)??;
            let mut records = Vec::with_capacity(dbs.len());
            for (db, _) in dbs.values() {
                records.push(db.changing.lock().await);
            }
            let (swapper, taken) = (me.clone(), dbs.clone());
            let swap = move || swapper.swap(&taken, unwanted, install);
            let done = tokio::task::spawn_blocking(swap).await;
            drop(records);
            done.map_err(|_| Error::ShuttingDown)?
        })
        .await
    }

    /// The databases that are here, and new shards of those that are not.
    fn find_replaced(&self, new: &[NewShards]) -> Result<(Replaced, Vec<ShardNumber>), Error> {
        let mut dbs = Replaced::new();
        let mut unwanted = vec![];
        for NewShards { name, uuid, shards } in new {
            let db = match name.as_ref().map(|name| self.get(name)) {
                Some(Ok(db)) if db.uuid() == *uuid => db,
                None | Some(Ok(_) | Err(Error::NoDatabase)) => {
                    unwanted.extend(shards.iter().map(|(_, number)| number));
                    continue;
                }
                Some(Err(e)) => return Err(e),
            };
            dbs.insert(*uuid, (db, shards.clone()));
        }
        Ok((dbs, unwanted))
    }

    /// Blocks. The caller sees to it that no records of these databases are written, and that none is deleted.
    fn swap(
        &self,
        dbs: &Replaced,
        unwanted: Vec<ShardNumber>,
        install: impl FnOnce(Replacement) -> Result<(), storage::Error>,
    ) -> Result<(), Error> {
        let mut replacement = Replacement {
            puts: vec![],
            replaced: vec![],
            unwanted,
        };
        for (db, shards) in dbs.values() {
            replacement.add(db, shards)?;
        }
        let replaced = replacement.replaced.clone();
        // There is one of an index at a time, so builds end before another is opened. They are asked first, and waited for then.
        let all = || dbs.values().map(|(db, _)| db);
        all().for_each(|db| db.mark_replaced());
        all().for_each(|db| db.ask_views_to_stop());
        all().for_each(|db| db.close_views());
        let installed = install(replacement);
        if installed.is_ok() {
            let numbers: Vec<ShardNumber> = replaced.iter().map(|s| s.number).collect();
            self.store().note_dropped(&numbers);
        }
        // What is stored says what is there: after a refusal the shards of before.
        for db in all() {
            if let Err(error) = self.open_as_stored(db) {
                tracing::error!(db = %db.name(), %error, "a database whose shards were replaced is opened when it is asked for");
                self.opened.close(db.name());
            }
        }
        self.maintenance.wake();
        Ok(installed?)
    }

    fn open_as_stored(&self, old: &Database) -> Result<(), Error> {
        let record = self.store().database(old.name())?;
        let record = record.ok_or(storage::Error::Corrupt("database record"))?;
        self.opened.replace(old, DatabaseRecord::decode(&record)?)
    }
}

/// Databases with new shards, by what they are known by.
type Replaced = BTreeMap<DatabaseUuid, (Arc<Database>, Vec<(usize, ShardNumber)>)>;

impl Replacement {
    fn add(&mut self, db: &Database, shards: &[(usize, ShardNumber)]) -> Result<(), Error> {
        let mut record = db.record();
        let of_another = || storage::Error::Corrupt("copy of a database with other shards");
        if record.contents != ContentsUnder::EachShard {
            return Err(of_another().into());
        }
        for (i, number) in shards {
            let old = db.all_shards().get(*i).ok_or_else(of_another)?;
            self.replaced.push(old.clone());
            record.shards[*i] = *number;
        }
        self.puts
            .push(Store::put_database(db.name(), record.encode()));
        Ok(())
    }
}
