//! The open databases: those in use, and recently used ones. Of the others only the names are
//! known.
//!
//! A database is opened by its first user, and closed by the keeper (`keeper.rs`) when others need
//! its memory. **There is one [`Database`] for a name at a time**, since its shards count in
//! memory: it is closed only if none of its parts are in use, which is checked under a lock that
//! new users need.

use crate::counters;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::Instant;

use parking_lot::{Mutex, RwLock};
use rustc_hash::FxHashMap;
use storage::{ShardNumber, Store};

use crate::Error;
use crate::attachments::SharedOptions;
use crate::catalogue::{DatabaseRecord, DatabaseUuid};
use crate::database::Database;
use crate::expiry::ExpiryWatch;
use crate::keeper::Keeper;
use crate::maintenance::Maintenance;
use crate::partition_room::SharedLimit;
use crate::rules::SystemRules;
use crate::sequencer::SharedSequencer;
use crate::views::Views;

/// Open databases by the numbers of their shards, for the writer's notifications.
pub(crate) type DatabasesByShard = Arc<RwLock<FxHashMap<ShardNumber, Weak<Database>>>>;

/// Parts that all databases share.
pub(crate) struct SharedParts {
    pub store: Arc<Store>,
    pub maintenance: Arc<Maintenance>,
    pub keeper: Arc<Keeper>,
    pub views: Arc<Views>,
    pub attachments: SharedOptions,
    pub partition_limit: SharedLimit,
    pub leaf_limit: SharedLimit,
    pub sequencer: SharedSequencer,
    pub expiry_watch: Arc<ExpiryWatch>,
}

/// All databases, by name.
pub(crate) struct OpenDatabases {
    pub shared: SharedParts,
    names: RwLock<BTreeSet<Arc<str>>>,
    open: RwLock<FxHashMap<Arc<str>, Arc<Database>>>,
    by_shard: DatabasesByShard,
    /// One opening, closing or removal at a time.
    changing: Mutex<()>,
    rules: RwLock<Vec<Arc<dyn SystemRules>>>,
    /// The keeper's clock: databases used since a tick are younger than those used before it.
    tick: AtomicU64,
}

impl OpenDatabases {
    pub fn new(
        shared: SharedParts,
        by_shard: DatabasesByShard,
        names: BTreeSet<Arc<str>>,
    ) -> OpenDatabases {
        OpenDatabases {
            shared,
            names: RwLock::new(names),
            open: RwLock::default(),
            by_shard,
            changing: Mutex::default(),
            rules: RwLock::default(),
            tick: AtomicU64::new(1),
        }
    }

    pub fn names(&self) -> &RwLock<BTreeSet<Arc<str>>> {
        &self.names
    }

    /// The database of this name, opened when it is not yet.
    pub fn get(&self, name: &str) -> Result<Arc<Database>, Error> {
        if let Some(db) = self.open.read().get(name) {
            db.note_used(self.tick.load(Relaxed));
            return Ok(db.clone());
        }
        let _one = self.changing.lock();
        self.get_alone(name)
    }

    /// The database of this name, if it is open; asking does not keep it so.
    pub fn get_open(&self, name: &str) -> Option<Arc<Database>> {
        self.open.read().get(name).cloned()
    }

    /// All that are open.
    pub fn all_open(&self) -> Vec<Arc<Database>> {
        self.open.read().values().cloned().collect()
    }

    /// The caller has `changing`.
    fn get_alone(&self, name: &str) -> Result<Arc<Database>, Error> {
        if let Some(db) = self.open.read().get(name) {
            return Ok(db.clone());
        }
        let known = self.names.read().get(name).cloned();
        let name = known.ok_or(Error::NoDatabase)?;
        let record = self.shared.store.database(&name)?;
        let record = DatabaseRecord::decode(&record.ok_or(Error::NoDatabase)?)?;
        self.open_alone(name, record)
    }

    /// The caller has `changing`, and the database is not open.
    fn open_alone(&self, name: Arc<str>, record: DatabaseRecord) -> Result<Arc<Database>, Error> {
        let started = Instant::now();
        let db = Arc::new(Database::open(name.clone(), record, &self.shared)?);
        counters::OPENINGS.record(started.elapsed());
        db.note_used(self.tick.load(Relaxed));
        self.rules.read().iter().for_each(|r| db.offer_rules(r));
        self.list_shards(&mut self.by_shard.write(), &db);
        let mut open = self.open.write();
        let other = open.insert(name, db.clone());
        // Each would have counters of its own, and give the same seqs.
        assert!(other.is_none(), "at most one `Database` per name");
        self.shared.keeper.note_opened(open.len());
        Ok(db)
    }

    fn list_shards(
        &self,
        by_shard: &mut FxHashMap<ShardNumber, Weak<Database>>,
        db: &Arc<Database>,
    ) {
        for number in db.shard_numbers() {
            by_shard.insert(number, Arc::downgrade(db));
        }
    }

    /// Opens a database that was just created.
    pub fn add(&self, name: &str, record: DatabaseRecord) -> Result<Arc<Database>, Error> {
        let _one = self.changing.lock();
        let name: Arc<str> = name.into();
        let db = self.open_alone(name.clone(), record)?;
        self.names.write().insert(name);
        db.tell_rules();
        Ok(db)
    }

    /// Removes a database, for its deletion. `and_then` is called while no other of its name can be
    /// created.
    pub fn take(
        &self,
        name: &str,
        wanted: Option<DatabaseUuid>,
        and_then: impl FnOnce(),
    ) -> Result<Arc<Database>, Error> {
        let _one = self.changing.lock();
        let db = self.get_alone(name)?;
        if wanted.is_some_and(|uuid| uuid != db.uuid()) {
            return Err(Error::NoDatabase);
        }
        let mut names = self.names.write();
        names.remove(name);
        self.open.write().remove(name);
        and_then();
        Ok(db)
    }

    /// Restores a database whose deletion failed.
    pub fn put_back(&self, db: Arc<Database>) {
        let _one = self.changing.lock();
        self.names.write().insert(db.name().clone());
        self.open.write().insert(db.name().clone(), db);
    }

    /// Replaces an open database, which is marked as replaced and whose indexes are closed, by one
    /// of this record.
    pub fn replace(&self, old: &Database, record: DatabaseRecord) -> Result<(), Error> {
        let _one = self.changing.lock();
        let db = Arc::new(old.reopen(record, &self.shared)?);
        db.note_used(self.tick.load(Relaxed));
        self.rules.read().iter().for_each(|r| db.offer_rules(r));
        let mut by_shard = self.by_shard.write();
        for number in old.shard_numbers() {
            by_shard.remove(&number);
        }
        self.list_shards(&mut by_shard, &db);
        self.open.write().insert(db.name().clone(), db.clone());
        drop(by_shard);
        db.tell_rules();
        Ok(())
    }

    /// Closes a database; its next user opens it.
    pub fn close(&self, name: &str) {
        let _one = self.changing.lock();
        self.open.write().remove(name);
    }

    /// Forgets the shards of a deleted database.
    pub fn forget_shards(&self, shards: &[ShardNumber]) {
        let mut by_shard = self.by_shard.write();
        for n in shards {
            by_shard.remove(n);
        }
    }

    /// Puts databases that these rules concern under them.
    pub fn add_rules(&self, new: Arc<dyn SystemRules>) {
        let _one = self.changing.lock();
        let mut rules = self.rules.write();
        for name in self.names.read().iter() {
            match self.open.read().get(name) {
                Some(db) => {
                    db.offer_rules(&new);
                    db.tell_rules();
                }
                // It comes under its rules when it is opened.
                None if new.concerns(name) && !rules.iter().any(|r| r.concerns(name)) => {
                    new.changed(name);
                }
                None => {}
            }
        }
        rules.push(new);
    }

    /// Applies the rules again to all databases.
    pub fn ask_rules_again(&self) {
        // Under the lock: a database that is being opened applies the rules before this, or after.
        let _one = self.changing.lock();
        let rules = self.rules.read();
        for name in self.names.read().iter() {
            match self.open.read().get(name) {
                Some(db) if db.rules().is_none() => {
                    rules.iter().for_each(|rules| db.offer_rules(rules));
                    db.tell_rules();
                }
                Some(_) => {}
                None => {
                    if let Some(rules) = rules.iter().find(|rules| rules.concerns(name)) {
                        rules.changed(name);
                    }
                }
            }
        }
    }

    /// Starts a new tick: databases used from now on are younger than those used before. Returns
    /// the new tick.
    pub fn next_tick(&self) -> u64 {
        self.tick.fetch_add(1, Relaxed) + 1
    }

    /// Closes a database if none of its parts are in use. Returns whether it is closed now.
    pub fn close_idle(&self, name: &str) -> bool {
        let _one = self.changing.lock();
        let mut open = self.open.write();
        let Some(db) = open.get_mut(name) else {
            return true;
        };
        // Held until the end, so that no commit looks for it meanwhile.
        let mut by_shard = self.by_shard.write();
        let numbers = db.shard_numbers();
        for n in &numbers {
            by_shard.remove(n);
        }
        // With exclusive access no weak reference can be upgraded either.
        if !Arc::get_mut(db).is_some_and(Database::is_idle) {
            self.list_shards(&mut by_shard, db);
            return false;
        }
        let closed = open.remove(name);
        drop((open, by_shard));
        drop(closed);
        true
    }
}
