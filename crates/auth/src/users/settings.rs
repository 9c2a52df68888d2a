//! The settings that user documents depend on.

use config::Settings;
use config::settings::{ChttpdAuth, PasswordScheme};

use super::requirements::Requirements;
use crate::admins::new_scheme;
use crate::password::NewHash;
use crate::security::DefaultSecurity;

/// The settings of users.
pub(crate) struct UserSettings {
    /// Name of the database that users log in from.
    pub(crate) database: String,
    /// Last part of the names of databases under the same rules, besides `_users`.
    suffix: String,
    /// The scheme of password hashes.
    pub(crate) new_hash: NewHash,
    pub(crate) requirements: Requirements,
    /// Replace the hash of a password at login when its scheme is another one.
    pub(crate) upgrade: bool,
    /// Members that every user may see.
    pub(crate) public_fields: Vec<String>,
    /// Accounts kept in memory.
    pub(crate) known_max: usize,
    pub(super) peruser: PerUser,
}

/// `[couch_peruser]`
#[derive(Clone, PartialEq)]
pub(super) struct PerUser {
    pub(super) enabled: bool,
    pub(super) delete: bool,
    pub(super) prefix: String,
    /// Shards.
    pub(super) q: u32,
    /// JSON text of a new database's security object.
    pub(super) security: &'static str,
}

impl UserSettings {
    /// Logs the problems.
    pub(super) fn warn(&self) {
        if let Some(problem) = self.requirements.problem() {
            tracing::warn!("{problem}");
        }
    }

    /// Returns whether documents of this database are users: the database that logins use, and all
    /// `…/_users`, as in CouchDB.
    pub(crate) fn is_users_database(&self, name: &str) -> bool {
        let last = name.rsplit('/').next().unwrap_or(name);
        name == self.database || last == "_users" || last == self.suffix
    }

    /// Returns whether the same databases hold users under these settings.
    pub(super) fn has_databases_of(&self, other: &UserSettings) -> bool {
        (&self.database, &self.suffix) == (&other.database, &other.suffix)
    }

    pub(crate) fn of(settings: &Settings) -> UserSettings {
        let (auth, peruser) = (&settings.chttpd_auth, &settings.couch_peruser);
        let password_regexp = auth.password_regexp.as_deref();
        let security = DefaultSecurity::from(settings.couchdb.default_security);
        UserSettings {
            database: auth.authentication_db.clone(),
            suffix: settings.couchdb.users_db_suffix.clone(),
            new_hash: new_hash(auth),
            requirements: Requirements::parse(password_regexp.unwrap_or_default()),
            upgrade: auth.upgrade_hash_on_auth,
            public_fields: auth.public_fields.clone().unwrap_or_default(),
            known_max: auth.auth_cache_size,
            peruser: PerUser {
                enabled: peruser.enable,
                delete: peruser.delete_dbs,
                prefix: peruser.database_prefix.clone(),
                q: peruser.q.unwrap_or(settings.cluster.q),
                security: security.json(),
            },
        }
    }
}

fn new_hash(settings: &ChttpdAuth) -> NewHash {
    match settings.password_scheme {
        PasswordScheme::Simple => NewHash::Simple,
        PasswordScheme::Pbkdf2 => {
            let (hash, iterations) = new_scheme(settings);
            NewHash::Pbkdf2 {
                hash,
                iterations: iterations.max(1),
            }
        }
    }
}
