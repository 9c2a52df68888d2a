//! Changes of databases that a [`Sequencer`](crate::Sequencer) applies on this server, whichever server
//! received the request.

use std::collections::BTreeMap;
use std::sync::Arc;

use storage::{Put, Shard, ShardNumber, Snapshot, Store};

use crate::catalogue::{ContentsUnder, DatabaseRecord, DatabaseUuid};
use crate::database::Database;
use crate::databases::{Databases, to_the_end};
use crate::events::DbEventKind;
use crate::sequencer::{NewDatabase, Property};
use crate::{Error, NameRange};

/// A database in its stored form here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredDatabase {
    /// Its name.
    pub name: Arc<str>,
    /// Its identity.
    pub uuid: DatabaseUuid,
    /// Whether it was created by a sequencer, and not by this server alone.
    pub is_sequenced: bool,
    /// The properties that can be changed.
    pub properties: Vec<Property>,
}

/// Shards of a database that others will replace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewShards {
    /// The database's name; `None` when it is gone.
    pub name: Option<Arc<str>>,
    /// Its identity.
    pub uuid: DatabaseUuid,
    /// Indexes of shards, and the numbers of their replacements.
    pub shards: Vec<(usize, ShardNumber)>,
}

/// Records to write atomically when shards are replaced.
pub struct Replacement {
    /// Records of databases that name the new shards.
    pub puts: Vec<Put>,
    /// The shards that go.
    pub replaced: Vec<Arc<Shard>>,
    /// New shards of databases that are gone.
    pub unwanted: Vec<ShardNumber>,
}

/// The prefix of a sequenced database's update seqs: the same on all servers.
pub(crate) fn epoch_of(uuid: DatabaseUuid) -> u32 {
    let mut epoch = [0; 4];
    epoch.copy_from_slice(&uuid.as_bytes()[..4]);
    u32::from_be_bytes(epoch)
}

/// The properties of a stored database that can be changed.
pub(crate) fn properties(record: DatabaseRecord) -> Vec<Property> {
    vec![
        Property::Security(record.security),
        Property::RevsLimit(record.revs_limit),
        Property::PurgedInfosLimit(record.purged_infos_limit),
        Property::DeletedDocumentTtl(record.deleted_document_ttl),
        Property::Expiry(record.expiry),
    ]
}

impl Databases {
    /// Creates a database, as sequenced. If it exists here already, it must be the same; an older
    /// sequenced database of this name is deleted.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if a database of this name was not created by a sequencer, and errors of
    /// the store.
    pub async fn create_sequenced(&self, name: &str, new: NewDatabase) -> Result<(), Error> {
        let uuid = new.uuid;
        match self.get(name) {
            Ok(db) if db.uuid() == uuid => return Ok(()),
            Ok(db) if db.epoch() == epoch_of(db.uuid()) => {
                let before = db.uuid();
                drop(db);
                self.delete_sequenced(name, before).await?;
            }
            Ok(_) => {
                return Err(Error::Unavailable(format!(
                    "the database {name} was made here before this node was in the cluster: it conflicts with the cluster's database of this name"
                )));
            }
            Err(Error::NoDatabase) => {}
            Err(e) => return Err(e),
        }
        let created = self.create_alone(name, new, epoch_of(uuid), None).await;
        created.map(drop)
    }

    /// Deletes a database, as sequenced, if it exists here.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn delete_sequenced(&self, name: &str, uuid: DatabaseUuid) -> Result<(), Error> {
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

    /// Changes a property of a database, as sequenced, if it exists here; durable when this returns.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn change_sequenced(
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
            let done = db.change_sequenced(property.clone()).await;
            let is_gone = matches!(done, Err(Error::Unavailable(_) | Error::NoDatabase));
            if !is_gone || before.is_some_and(|before| Arc::ptr_eq(&before, &db)) {
                return done;
            }
            // Its shards are being replaced, or it is being deleted: after that there is another, or none.
            let _reshaped = self.reshaping.lock().await;
            before = Some(db);
        }
    }

    /// All databases in their stored form. Opens none; blocks.
    ///
    /// # Errors
    /// Errors of the store.
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
                is_sequenced: record.epoch == epoch_of(uuid),
                properties: properties(record),
                name,
            });
        }
        Ok(all)
    }

    /// Numbers of the shards of a database in a snapshot of the store; `None` when it was not there. Opens nothing.
    ///
    /// # Errors
    /// Errors of the store.
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

    /// Replaces shards of databases: `install` writes all records atomically, and blocks. Users of
    /// these databases get an error that asks them to retry; from then on [`Databases::get`]
    /// returns them with the new shards. Indexes of the old shards are dropped. Continues to the
    /// end if the caller stops waiting; needs a Tokio runtime.
    ///
    /// **No old record is written afterwards**: no property of these databases changes meanwhile,
    /// none of them is deleted, and old references to them write nothing more.
    ///
    /// # Errors
    /// Errors of `install`; then nothing has changed.
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

    /// Blocks. The caller ensures that no records of these databases are written, and that none is
    /// deleted.
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
        // An index has one instance at a time, so builds must end before another is opened. All are
        // stopped first, and awaited then.
        let all = || dbs.values().map(|(db, _)| db);
        all().for_each(|db| db.mark_replaced());
        all().for_each(|db| db.ask_views_to_stop());
        all().for_each(|db| db.close_views());
        let installed = install(replacement);
        if installed.is_ok() {
            let numbers: Vec<ShardNumber> = replaced.iter().map(|s| s.number).collect();
            self.store().note_dropped(&numbers);
        }
        // The stored records decide: after a refusal they have the former shards.
        for db in all() {
            if let Err(error) = self.open_as_stored(db) {
                tracing::error!(db = %db.name(), %error, "a database whose shards were replaced could not be opened; it is opened at its next request");
                self.open_databases.close(db.name());
            }
        }
        self.maintenance.wake();
        installed?;
        // The new shards may have changes that were not committed here.
        all().for_each(|db| self.events().note(db.name(), DbEventKind::Updated));
        Ok(())
    }

    fn open_as_stored(&self, old: &Database) -> Result<(), Error> {
        let record = self.store().database(old.name())?;
        let record = record.ok_or(storage::Error::Corrupt("database record"))?;
        self.open_databases
            .replace(old, DatabaseRecord::decode(&record)?)
    }
}

/// Databases with new shards, by their uuids.
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
