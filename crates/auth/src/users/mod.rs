//! The accounts of the users database (`_users`), and the rules of that database and of others like
//! it.
//!
//! A user is looked up at every request. A read document is cached until the database changes:
//! every commit to it increments a number before it is acknowledged, and entries with an older
//! number are read again.

mod keeper;
mod object_members;
mod peruser;
mod record;
mod requirements;
mod rules;
mod settings;
mod validate;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, Weak};

use config::Config;
use database::{
    Database, Databases, Durability, EditMode, Outcome, Read, ReadOptions, WriteTiming,
};
use document::DocId;
use tokio::sync::Notify;

pub(crate) use self::object_members::member_count;
pub use self::record::hash_of_user;
pub(crate) use self::settings::UserSettings;
use crate::account::Account;
use crate::error::AuthError;
use crate::password::PasswordHash;

/// Prefix of user document ids; the name follows.
pub(crate) const USER_PREFIX: &str = "org.couchdb.user:";

/// Returns the id of a user's document.
pub fn user_doc_id(name: &str) -> String {
    format!("{USER_PREFIX}{name}")
}

/// A longer account is read at each request, in bytes of memory.
const KNOWN_BYTES_MAX: usize = 64 << 10;

/// The database of users.
pub(crate) struct Users {
    databases: Weak<Databases>,
    config: Config,
    /// Raised by each change of the database, before the change is acknowledged.
    changes: AtomicU64,
    known: RwLock<HashMap<String, CachedAccount>>,
    settings: RwLock<Arc<UserSettings>>,
    changed: Notify,
    kept: AtomicBool,
}

/// An account as it was read when the number of changes was this.
struct CachedAccount {
    changes: u64,
    found: Found,
}

/// The result of a lookup by name.
#[derive(Clone)]
enum Found {
    Nothing,
    Account(Arc<Account>),
    /// A document with conflicts. It may be long: it is not read again for each wrong password either.
    Conflicts,
}

impl Found {
    fn account(self) -> Result<Option<Arc<Account>>, AuthError> {
        match self {
            Found::Nothing => Ok(None),
            Found::Account(account) => Ok(Some(account)),
            Found::Conflicts => Err(AuthError::UserConflicts),
        }
    }

    /// Whether it is kept for later requests.
    fn is_kept(&self, remember_none: bool) -> bool {
        match self {
            Found::Nothing => remember_none,
            Found::Account(account) => account.memory_bytes() <= KNOWN_BYTES_MAX,
            Found::Conflicts => true,
        }
    }
}

impl Users {
    pub(crate) fn new(config: Config, databases: &Arc<Databases>) -> Users {
        Users {
            databases: Arc::downgrade(databases),
            changes: AtomicU64::new(0),
            known: RwLock::default(),
            settings: {
                let settings = UserSettings::of(&config.settings());
                settings.warn();
                RwLock::new(Arc::new(settings))
            },
            changed: Notify::new(),
            kept: AtomicBool::new(false),
            config,
        }
    }

    /// Rereads the settings. The rules apply to other users databases from then on.
    pub(crate) fn reread(&self) {
        let new = Arc::new(UserSettings::of(&self.config.settings()));
        new.warn();
        let mut settings = self
            .settings
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        let old = std::mem::replace(&mut *settings, new.clone());
        drop(settings);
        if !new.has_databases_of(&old) {
            // After the settings: entries read from the old database are not used again.
            self.changes.fetch_add(1, Ordering::AcqRel);
            if let Some(databases) = self.databases.upgrade() {
                databases.ask_rules_again();
            }
        }
        self.changed.notify_one();
    }

    pub(crate) fn settings(&self) -> Arc<UserSettings> {
        self.settings
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn database(&self) -> Option<Arc<Database>> {
        self.databases
            .upgrade()?
            .get(&self.settings().database)
            .ok()
    }

    /// Returns the user with this name; `None` when the user does not exist. Never blocks.
    ///
    /// # Errors
    /// [`AuthError::UserConflicts`], and [`AuthError::UsersUnreadable`].
    pub(crate) fn account(&self, name: &str) -> Result<Option<Arc<Account>>, AuthError> {
        self.look_up(name, false)
    }

    /// Returns the roles in the user document of an administrator. Most have none, which is cached
    /// too; for other names it is not, as a client could invent them.
    pub(crate) fn roles_of_admin(&self, name: &str) -> Option<Arc<Account>> {
        let found = self.look_up(name, true).ok().flatten();
        found.filter(|account| !account.user.roles.is_empty())
    }

    fn look_up(&self, name: &str, remember_none: bool) -> Result<Option<Arc<Account>>, AuthError> {
        // Before the document is read: what changes while it is read is found at the next look.
        let changes = self.version();
        if let Some(found) = self.known(name, changes) {
            return found.account();
        }
        let json = match self.database() {
            Some(db) => read_user(&db, name)?,
            None => None,
        };
        let found = match json.map(|json| record::account(name, &json)) {
            Some(Ok(account)) => Found::Account(Arc::new(account)),
            Some(Err(AuthError::UserConflicts)) => Found::Conflicts,
            Some(Err(e)) => return Err(e),
            None => Found::Nothing,
        };
        if found.is_kept(remember_none) {
            self.remember(name, changes, found.clone());
        }
        found.account()
    }

    /// Returns a number that changes with the database. A node of a cluster applies changes of others
    /// before it is notified of them, so there the position of the database is part of it.
    fn version(&self) -> u64 {
        let changes = self.changes.load(Ordering::Acquire);
        // A server without a cluster opens no database here: this is part of every request.
        let databases = self.databases.upgrade();
        if databases.is_none_or(|databases| databases.sequencer().is_none()) {
            return changes;
        }
        let Some(db) = self.database() else {
            return changes;
        };
        let applied: u64 = db.all_shards().iter().map(|s| s.meta().update_seq).sum();
        changes.wrapping_add(applied << 32)
    }

    fn known(&self, name: &str, changes: u64) -> Option<Found> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let known = known.get(name).filter(|known| known.changes == changes)?;
        Some(known.found.clone())
    }

    fn remember(&self, name: &str, changes: u64, found: Found) {
        let entries_max = self.settings().known_max;
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= entries_max && !known.contains_key(name) {
            let any = known.keys().next().cloned();
            any.map(|any| known.remove(&any));
        }
        if entries_max > 0 {
            known.insert(name.to_owned(), CachedAccount { changes, found });
        }
    }

    /// Replaces the hash of a user by one with the current settings, for the same password, when it
    /// differs from them. Returns the account after that. Blocks as a key derivation does.
    pub(crate) fn upgrade(&self, account: &Arc<Account>, password: &[u8]) -> Arc<Account> {
        let settings = self.settings();
        let outdated = account
            .hash
            .as_ref()
            .is_some_and(|hash| !settings.new_hash.made(hash));
        if !(settings.upgrade && account.is_document && outdated) {
            return account.clone();
        }
        // The salt stays, so that sessions continue.
        let hash = PasswordHash::with_salt(settings.new_hash, password, &account.salt);
        match self.write_hash(account, &hash) {
            Ok(true) => tracing::info!(user = account.name(), "rehashed a password"),
            // Changed meanwhile: the next login sees to it.
            Ok(false) => {}
            Err(e) => {
                tracing::warn!(user = account.name(), error = %e, "a password was not rehashed")
            }
        }
        match self.account(account.name()) {
            Ok(Some(now)) if now.hash.as_ref() == Some(&hash) => now,
            _ => account.clone(),
        }
    }

    fn write_hash(&self, account: &Account, hash: &PasswordHash) -> Result<bool, database::Error> {
        let Some(db) = self.database() else {
            return Ok(false);
        };
        let name = account.name();
        let id = user_id(name)?;
        let Read::Found(doc) = db.read(&id, &ReadOptions::default())? else {
            return Ok(false);
        };
        let unchanged =
            record::account(name, &doc.json).is_ok_and(|now| now.has_password_of(account));
        let new = record::with_hash(&doc.json, hash).filter(|_| unchanged);
        let Some(new) = new else {
            return Ok(false);
        };
        let edit = document::parse_document(&new)
            .map_err(|e| database::Error::BadRequest(e.to_string()))?;
        let done = db.update(vec![edit], EditMode::Interactive, Durability::Synced);
        let (outcomes, _): (Vec<Outcome>, WriteTiming) = futures_executor::block_on(done)?;
        Ok(matches!(outcomes[..], [Outcome::Ok { .. }]))
    }
}

fn user_id(name: &str) -> Result<DocId, database::Error> {
    DocId::new(&user_doc_id(name)).map_err(|e| database::Error::BadRequest(e.to_string()))
}

/// Returns the text of a user's document, with its conflicts.
fn read_user(db: &Database, name: &str) -> Result<Option<Vec<u8>>, AuthError> {
    let Ok(id) = user_id(name) else {
        return Ok(None);
    };
    let options = ReadOptions {
        conflicts: true,
        ..ReadOptions::default()
    };
    match db.read(&id, &options) {
        Ok(Read::Found(doc)) => Ok(Some(doc.json)),
        Ok(Read::Missing | Read::Deleted) | Err(database::Error::NoDatabase) => Ok(None),
        Err(e) => Err(AuthError::UsersUnreadable(e.to_string())),
    }
}
