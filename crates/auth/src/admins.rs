//! Server administrators, as `[admins]` lists them, and the secret of sessions.

use std::collections::HashMap;
use std::sync::Arc;

use config::{Config, ConfigError};

use crate::account::Account;
use crate::password::{Hash, PasswordHash, Stored, random_hex};

/// The administrators by name, and what is wrong with them. Plain passwords are hashed.
pub(crate) fn read_admins(
    config: &Config,
    problems: &mut Vec<String>,
) -> Result<HashMap<String, Arc<Account>>, ConfigError> {
    let mut admins = HashMap::new();
    for (name, value) in config.section("admins") {
        let hash = match Stored::parse(&value) {
            Stored::Hashed(hash) => Some(hash),
            Stored::Plain(password) => Some(new_hash(config, &password)?),
            Stored::Malformed => None,
        };
        if hash.is_none() {
            problems.push(format!("[admins] {name}: not a valid password hash"));
        }
        let account = Account::admin(&name, hash);
        admins.insert(name, Arc::new(account));
    }
    Ok(admins)
}

pub(crate) fn hash_plain_passwords(config: &Config) -> Result<(), ConfigError> {
    for (name, value) in config.section("admins") {
        let Stored::Plain(password) = Stored::parse(&value) else {
            continue;
        };
        match persisted_hash(config, &name)?.filter(|hash| hash.verify(password.as_bytes())) {
            Some(hash) => config.set("admins", &name, &hash.to_string(), false)?,
            None => config.set(
                "admins",
                &name,
                &new_hash(config, &password)?.to_string(),
                true,
            )?,
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
    // An empty one is known to everybody: cookies of users without salt and all tokens of proxies could be made up.
    let known = config.find("chttpd_auth", "secret");
    if known.is_some_and(|secret| !secret.trim().is_empty()) {
        return Ok(());
    }
    let secret = random_hex();
    if let Err(error) = config.set("chttpd_auth", "secret", &secret, true) {
        config.set("chttpd_auth", "secret", &secret, false)?;
        return Err(error);
    }
    Ok(())
}

pub(crate) fn new_hash(config: &Config, password: &str) -> Result<PasswordHash, ConfigError> {
    let (hash, iterations) = new_scheme(config)?;
    Ok(PasswordHash::new(password, hash, iterations))
}

pub(crate) fn new_scheme(config: &Config) -> Result<(Hash, u32), ConfigError> {
    // The configuration takes only known names.
    let hash =
        Hash::from_name(&config.get_str("chttpd_auth", "pbkdf2_prf")?).unwrap_or(Hash::Sha256);
    let iterations = config.get_u64("chttpd_auth", "iterations")?;
    Ok((hash, u32::try_from(iterations).unwrap_or(u32::MAX)))
}
