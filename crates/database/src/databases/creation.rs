//! Creates and deletes databases.

use std::pin::pin;
use std::sync::Arc;

use storage::ShardNumber;

use super::{
    CreateOptions, Creating, Databases, PURGED_INFOS_LIMIT, REVS_LIMIT, SHARDS_MAX, random,
    to_the_end,
};
use crate::access_key::{AccessKey, DatabaseAccess};
use crate::catalogue::{ContentsUnder, DatabaseRecord, DatabaseUuid};
use crate::database::Database;
use crate::events::DbEventKind;
use crate::sequencer::NewDatabase;
use crate::{Error, name, unix_seconds};

impl Databases {
    /// Creates a database and waits until it is durable. Continues to the end if the caller stops
    /// waiting; needs a Tokio runtime.
    pub async fn create(
        self: &Arc<Self>,
        name: &str,
        options: CreateOptions,
    ) -> Result<Arc<Database>, Error> {
        let (me, name) = (self.clone(), name.to_owned());
        to_the_end(async move { me.create_now(&name, options).await }).await
    }

    async fn create_now(&self, name: &str, options: CreateOptions) -> Result<Arc<Database>, Error> {
        name::check(name)?;
        if options.partitioned && name::is_system(name) {
            return Err(Error::BadRequest(
                "Cannot partition a system database".into(),
            ));
        }
        let q = options.q.unwrap_or(self.options.default_q);
        if q == 0 || q > SHARDS_MAX {
            return Err(Error::BadRequest(format!(
                "`q` must be a number from 1 to {SHARDS_MAX}"
            )));
        }
        if options.spread && name::is_system(name) {
            return Err(Error::BadRequest(
                "Cannot spread a system database over several nodes".into(),
            ));
        }
        if options.access.is_some() && name::is_system(name) {
            return Err(Error::BadRequest(
                "A system database cannot have access by document".into(),
            ));
        }
        let new = NewDatabase {
            uuid: DatabaseUuid::new(random()?),
            // The last one has the design documents.
            q: q + u32::from(options.spread),
            n: options.n,
            partitioned: options.partitioned,
            spread: options.spread,
            created_unix_s: unix_seconds(),
            security: options.security,
        };
        if let Some(sequencer) = self.sequencer.get() {
            if options.access.is_some() {
                return Err(Error::BadRequest(
                    "A cluster has no databases with access by document yet".into(),
                ));
            }
            sequencer.create(name.to_owned(), new).await?;
            return self.get(name);
        }
        let access = match options.access {
            Some(default) => Some(DatabaseAccess {
                key: AccessKey::new(random()?),
                default,
            }),
            None => None,
        };
        self.create_alone(name, new, u32::from_ne_bytes(random()?), access)
            .await
    }

    pub(crate) async fn create_alone(
        &self,
        name: &str,
        new: NewDatabase,
        epoch: u32,
        access: Option<DatabaseAccess>,
    ) -> Result<Arc<Database>, Error> {
        let _reserved = self.reserve(name).await?;
        let q = new.q;
        let mut record = DatabaseRecord {
            epoch,
            uuid: Some(new.uuid),
            shards: vec![],
            contents: ContentsUnder::EachShard,
            n: new.n.unwrap_or(self.options.default_n),
            partitioned: new.partitioned,
            spread: new.spread,
            created_unix_s: new.created_unix_s,
            revs_limit: REVS_LIMIT,
            purged_infos_limit: PURGED_INFOS_LIMIT,
            deleted_document_ttl: None,
            expiry: None,
            access,
            security: new.security,
        };
        let has_access = record.access.is_some();
        let encode = |shards: &[ShardNumber]| {
            record.shards = shards.to_vec();
            record.encode()
        };
        let done = match has_access {
            true => self.store.create_database_with_access(name, q, encode),
            false => self.store.create_database(name, q, encode),
        };
        done.await.map_err(|_| Error::ShuttingDown)??;
        let db = self.open_databases.add(name, record)?;
        self.events.note(db.name(), DbEventKind::Created);
        Ok(db)
    }

    /// Reserves the name of a new database. Waits while the name is reserved: a client that is
    /// refused because the database exists can use it immediately.
    ///
    /// # Errors
    /// [`Error::DatabaseExists`].
    async fn reserve(&self, name: &str) -> Result<Reserved<'_>, Error> {
        loop {
            // Registered before the check, so that no end is missed.
            let mut ended = pin!(self.creating.ended.notified());
            ended.as_mut().enable();
            if let Some(reserved) = self.try_reserve(name)? {
                return Ok(reserved);
            }
            ended.await;
        }
    }

    /// Reserves the name of a new database, unless it is reserved already.
    fn try_reserve(&self, name: &str) -> Result<Option<Reserved<'_>>, Error> {
        let names = self.open_databases.names().read();
        let mut reserved = self.creating.names.lock();
        if names.contains(name) {
            return Err(Error::DatabaseExists);
        }
        Ok(reserved.insert(name.to_owned()).then(|| Reserved {
            creating: &self.creating,
            name: name.to_owned(),
        }))
    }

    /// Deletes a database: it no longer exists when this returns, and its space is reclaimed in the
    /// background. Continues to the end if the caller stops waiting; needs a Tokio runtime.
    pub async fn delete(self: &Arc<Self>, name: &str) -> Result<(), Error> {
        let (me, name) = (self.clone(), name.to_owned());
        to_the_end(async move { me.delete_now(&name).await }).await
    }

    async fn delete_now(&self, name: &str) -> Result<(), Error> {
        match self.sequencer.get() {
            Some(sequencer) => {
                self.get(name)?;
                sequencer.delete(name.to_owned()).await
            }
            None => self.delete_alone(name, None).await,
        }
    }

    /// Deletes a database; if `uuid` is given, only the one with this uuid, since another one may
    /// have the name by now.
    pub(crate) async fn delete_alone(
        &self,
        name: &str,
        wanted: Option<DatabaseUuid>,
    ) -> Result<(), Error> {
        let _one = self.reshaping.lock().await;
        // Until the drop is committed no database of this name may be created.
        let reserve = || {
            self.creating.names.lock().insert(name.to_owned());
        };
        let db = self.open_databases.take(name, wanted, reserve)?;
        let _reserved = Reserved {
            creating: &self.creating,
            name: name.to_owned(),
        };
        let shards = db.shard_numbers();
        let dropped = self
            .store
            .drop_database(name, db.all_shards().to_vec())
            .await;
        if let Err(e) = dropped
            .map_err(|_| Error::ShuttingDown)
            .and_then(|r| Ok(r?))
        {
            self.open_databases.put_back(db);
            return Err(e);
        }
        self.open_databases.forget_shards(&shards);
        db.mark_deleted();
        let used = &self.views.used;
        used.forget(db.uuid(), &used.of(db.uuid()));
        db.tell_rules();
        self.give_space_back(&db, shards);
        self.events.note(db.name(), DbEventKind::Deleted);
        Ok(())
    }

    /// Removes a deleted database's rows, once its index builds have ended.
    fn give_space_back(&self, db: &Arc<Database>, shards: Vec<ShardNumber>) {
        if db.open_view_indexes().is_empty() && db.open_text_indexes().is_empty() {
            db.close_views();
            self.store.note_dropped(&shards);
            return self.maintenance.wake();
        }
        let (db, store, maintenance) = (db.clone(), self.store.clone(), self.maintenance.clone());
        // A function of a user may run until its limit.
        let close = move || {
            db.close_views();
            store.note_dropped(&shards);
            maintenance.wake();
        };
        let thread = std::thread::Builder::new().name("close".into());
        if let Err(error) = thread.spawn(close.clone()) {
            tracing::warn!(%error, "no thread could be started for the end of index builds");
            close();
        }
    }
}

/// Prevents two concurrent creations of the same name.
struct Reserved<'a> {
    creating: &'a Creating,
    name: String,
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        self.creating.names.lock().remove(&self.name);
        self.creating.ended.notify_waiters();
    }
}
