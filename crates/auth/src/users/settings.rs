//! The settings that user documents depend on.

use config::{Config, ConfigError};

use super::requirements::Requirements;
use crate::password::{Hash, NewHash};
use crate::proxy::split;

/// What the configuration says of users.
pub(crate) struct UserSettings {
    /// Name of the database that users log in from.
    pub(crate) database: String,
    /// Last part of the names of databases under the same rules, besides `_users`.
    suffix: String,
    /// How passwords are hashed.
    pub(crate) new_hash: NewHash,
    pub(crate) requirements: Requirements,
    /// Hash a password anew at login when it was hashed otherwise.
    pub(crate) upgrade: bool,
    /// Members that everybody may see.
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
    /// Logs what is wrong.
    pub(super) fn warn(&self) {
        if let Some(problem) = self.requirements.problem() {
            tracing::warn!("{problem}");
        }
    }

    /// Whether documents of this database are users: of the one that they log in from, and of all `…/_users`, as in CouchDB.
    pub(crate) fn is_users_database(&self, name: &str) -> bool {
        let last = name.rsplit('/').next().unwrap_or(name);
        name == self.database || last == "_users" || last == self.suffix
    }

    /// Whether the same databases hold users under these settings.
    pub(super) fn has_databases_of(&self, other: &UserSettings) -> bool {
        (&self.database, &self.suffix) == (&other.database, &other.suffix)
    }

    pub(crate) fn read(config: &Config) -> Result<UserSettings, ConfigError> {
        let q = match config.find("couch_peruser", "q") {
            Some(_) => config.get_u64("couch_peruser", "q")?,
            None => config.get_u64("cluster", "q")?,
        };
        let security = config.get_str("couchdb", "default_security")?;
        let known_max = config.get_u64("chttpd_auth", "auth_cache_size")?;
        let password_regexp = config.find("chttpd_auth", "password_regexp");
        let public_fields = config.find("chttpd_auth", "public_fields");
        Ok(UserSettings {
            database: config.get_str("chttpd_auth", "authentication_db")?,
            suffix: config.get_str("couchdb", "users_db_suffix")?,
            new_hash: new_hash(config)?,
            requirements: Requirements::parse(password_regexp.as_deref().unwrap_or_default()),
            upgrade: config.get_bool("chttpd_auth", "upgrade_hash_on_auth")?,
            public_fields: split(public_fields.as_deref().unwrap_or_default()),
            known_max: usize::try_from(known_max).unwrap_or(usize::MAX),
            peruser: PerUser {
                enabled: config.get_bool("couch_peruser", "enable")?,
                delete: config.get_bool("couch_peruser", "delete_dbs")?,
                prefix: config.get_str("couch_peruser", "database_prefix")?,
                q: u32::try_from(q).unwrap_or(u32::MAX),
                security: crate::DefaultSecurity::from_setting(&security).json(),
            },
        })
    }
}

fn new_hash(config: &Config) -> Result<NewHash, ConfigError> {
    if config.get_str("chttpd_auth", "password_scheme")? == "simple" {
        return Ok(NewHash::Simple);
    }
    // The configuration takes only known names.
    let hash =
        Hash::from_name(&config.get_str("chttpd_auth", "pbkdf2_prf")?).unwrap_or(Hash::Sha256);
    let iterations = config.get_u64("chttpd_auth", "iterations")?;
    Ok(NewHash::Pbkdf2 {
        hash,
        iterations: u32::try_from(iterations).unwrap_or(u32::MAX).max(1),
    })
}
