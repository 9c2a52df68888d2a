//! Server administrators, as `[admins]` lists them, and the secret of sessions.

use std::collections::HashMap;
use std::sync::Arc;

use config::settings::ChttpdAuth;
use config::{Config, ConfigError, Settings};

use crate::account::Account;
use crate::password::{Hash, PasswordHash, StoredPassword, random_hex};

/// Returns the administrators by name, and what is wrong with them. Plain passwords are hashed.
pub(crate) fn read_admins(
    settings: &Settings,
    problems: &mut Vec<String>,
) -> HashMap<String, Arc<Account>> {
    let mut admins = HashMap::new();
    for (name, value) in &settings.admins.all {
        let hash = match StoredPassword::parse(value) {
            StoredPassword::Hashed(hash) => Some(hash),
            StoredPassword::Plain(password) => Some(new_hash(&settings.chttpd_auth, &password)),
            StoredPassword::Malformed => None,
        };
        if hash.is_none() {
            problems.push(format!("[admins] {name}: not a valid password hash"));
        }
        let account = Account::admin(name, hash);
        admins.insert(name.clone(), Arc::new(account));
    }
    admins
}

pub(crate) fn hash_plain_passwords(config: &Config) -> Result<(), ConfigError> {
    let settings = config.settings();
    for (name, value) in &settings.admins.all {
        let StoredPassword::Plain(password) = StoredPassword::parse(value) else {
            continue;
        };
        match persisted_hash(config, name)?.filter(|hash| hash.verify(password.as_bytes())) {
            Some(hash) => config.set("admins", name, &hash.to_string(), false)?,
            None => {
                let hash = new_hash(&settings.chttpd_auth, &password);
                config.set("admins", name, &hash.to_string(), true)?
            }
        };
    }
    Ok(())
}

fn persisted_hash(config: &Config, name: &str) -> Result<Option<PasswordHash>, ConfigError> {
    Ok(config
        .persisted("admins", name)?
        .as_deref()
        .and_then(PasswordHash::parse))
}

/// When the secret cannot be persisted it holds until the next start.
pub(crate) fn ensure_secret(config: &Config) -> Result<(), ConfigError> {
    // An empty secret is known to everyone: cookies of users without a salt, and all proxy tokens,
    // could be forged.
    let known = &config.settings().chttpd_auth.secret;
    if known
        .as_ref()
        .is_some_and(|secret| !secret.trim().is_empty())
    {
        return Ok(());
    }
    let secret = random_hex();
    if let Err(error) = config.set("chttpd_auth", "secret", &secret, true) {
        config.set("chttpd_auth", "secret", &secret, false)?;
        return Err(error);
    }
    Ok(())
}

pub(crate) fn new_hash(settings: &ChttpdAuth, password: &str) -> PasswordHash {
    let (hash, iterations) = new_scheme(settings);
    PasswordHash::new(password, hash, iterations)
}

/// Returns the scheme for new passwords: the hash and the iterations of PBKDF2.
pub(crate) fn new_scheme(settings: &ChttpdAuth) -> (Hash, u32) {
    let iterations = u32::try_from(settings.iterations).unwrap_or(u32::MAX);
    (settings.pbkdf2_prf.into(), iterations)
}
