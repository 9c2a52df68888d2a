//! Server administrators, as `[admins]` lists them, and everything that is asked about them.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{SystemTime, UNIX_EPOCH};

use config::{Change, Config, ConfigError};

use crate::basic::{Basic, Credentials, Gate, InFlight, Pending};
use crate::cache::Cache;
use crate::error::AuthError;
use crate::lockout::{Lockout, LockoutSettings};
use crate::password::{Hash, PasswordHash, Stored, random_hex};
use crate::session::{Claim, Session, SessionSettings, Verdict};
use crate::user::UserCtx;

/// Tells who somebody is. Cheap to clone; follows the configuration as it changes.
#[derive(Clone)]
pub struct Auth {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    config: Config,
    state: RwLock<Arc<State>>,
    pub(crate) cache: Cache,
    pub(crate) in_flight: InFlight,
    pub(crate) gate: Gate,
    pub(crate) lockout: Lockout,
}

/// What the configuration says, read once for each change.
pub(crate) struct State {
    /// Of the configuration when this was read.
    version: u64,
    admins: HashMap<String, Admin>,
    /// Checked for names that do not exist, so that they take as long as those that do.
    decoy: PasswordHash,
    session: SessionSettings,
    pub(crate) lockout: LockoutSettings,
    cache_entries_max: usize,
    problems: Vec<String>,
}

struct Admin {
    /// `None` when the configuration's text is no hash: then no password is right.
    hash: Option<PasswordHash>,
    user: Arc<UserCtx>,
}

impl Auth {
    /// Reads the administrators. Plain passwords are hashed and their hashes written to the configuration, and so is
    /// a secret for sessions when there is none. Follows changes of the configuration from then on, in the same way.
    ///
    /// A plain password that comes from the environment or the command line is hashed with the salt that `local.ini`
    /// has for it, so that sessions survive a restart.
    ///
    /// # Errors
    /// [`AuthError::Config`].
    pub fn new(config: Config) -> Result<Auth, AuthError> {
        hash_plain_passwords(&config)?;
        ensure_secret(&config)?;
        let state = State::read(&config, Vec::new())?;
        let cache = Cache::new();
        cache.clear(state.cache_entries_max);
        let inner = Arc::new(Inner {
            config,
            state: RwLock::new(Arc::new(state)),
            cache,
            in_flight: InFlight::default(),
            gate: Gate::new(),
            lockout: Lockout::default(),
        });
        let weak = Arc::downgrade(&inner);
        inner.config.subscribe(move |change| {
            if let Some(inner) = weak.upgrade().filter(|_| concerns(change)) {
                inner.refresh();
            }
        });
        Ok(Auth { inner })
    }

    /// Whether there is any administrator.
    pub fn has_admins(&self) -> bool {
        !self.state().admins.is_empty()
    }

    /// What is wrong with the configuration of administrators, for the log. Names no passwords.
    pub fn problems(&self) -> Vec<String> {
        self.state().problems.clone()
    }

    /// Looks at an `Authorization` header. Never takes long: a header seen before is found in the cache, any other
    /// must be checked by [`Pending::verify`].
    ///
    /// # Errors
    /// [`AuthError::BadBase64`].
    pub fn check_cached(&self, header: &str) -> Result<Basic, AuthError> {
        let tag = self.inner.cache.tag_of_header(header);
        if let Some(user) = self.inner.cache.get(&tag) {
            return Ok(Basic::Hit(user));
        }
        let Some(credentials) = Credentials::parse(header)? else {
            return Ok(Basic::Anonymous);
        };
        let generation = self.inner.cache.generation();
        Ok(Basic::Miss(Pending::new(
            self,
            self.state(),
            credentials,
            tag,
            generation,
        )))
    }

    /// Looks at a name with a password, as they come in a login. Never takes long.
    pub fn login(&self, name: &str, password: &str) -> Basic {
        let tag = self.inner.cache.tag_of_login(name, password.as_bytes());
        if let Some(user) = self.inner.cache.get(&tag) {
            return Basic::Hit(user);
        }
        let credentials = Credentials {
            name: name.to_owned(),
            password: password.as_bytes().to_vec(),
        };
        let generation = self.inner.cache.generation();
        Basic::Miss(Pending::new(
            self,
            self.state(),
            credentials,
            tag,
            generation,
        ))
    }

    /// Who sent an `Authorization` header; `None` for nobody. May block as [`Pending::verify`] does, and counts no
    /// wrong passwords.
    ///
    /// # Errors
    /// [`AuthError::BadBase64`] and [`AuthError::BadCredentials`].
    pub fn authenticate_basic(&self, header: &str) -> Result<Option<Arc<UserCtx>>, AuthError> {
        match self.check_cached(header)? {
            Basic::Anonymous => Ok(None),
            Basic::Hit(user) => Ok(Some(user)),
            Basic::Miss(pending) => pending.verify(None).map(Some),
        }
    }

    /// The value of a new session cookie for a name; `None` when there is no such administrator.
    pub fn issue_cookie(&self, name: &str, now: SystemTime) -> Option<String> {
        let state = self.state();
        state
            .salt(name)
            .map(|salt| state.session.issue(name, salt, unix_secs(now)))
    }

    /// The `Set-Cookie` header that begins, or goes on with, a session of this name. `https`: whether the request
    /// came that way.
    pub fn set_cookie(&self, name: &str, now: SystemTime, https: bool) -> Option<String> {
        let cookie = self.issue_cookie(name, now)?;
        Some(self.state().session.set_cookie(&cookie, now, https))
    }

    /// The `Set-Cookie` header that ends a session.
    pub fn clear_cookie(&self, https: bool) -> String {
        self.state().session.clear_cookie(https)
    }

    /// The session that the value of an `AuthSession` cookie stands for; `None` when it is empty, expired, forged, or
    /// its user is gone or has a new password.
    ///
    /// # Errors
    /// [`AuthError::MalformedCookie`].
    pub fn check_cookie(&self, value: &str, now: SystemTime) -> Result<Option<Session>, AuthError> {
        if value.is_empty() {
            return Ok(None);
        }
        let claim = Claim::parse(value)?;
        let state = self.state();
        let Some((admin, salt)) = state.admins.get(&claim.name).zip(state.salt(&claim.name)) else {
            return Ok(None);
        };
        Ok(match state.session.judge(&claim, salt, unix_secs(now)) {
            Verdict::Refused => None,
            Verdict::Valid { needs_refresh } => Some(Session {
                user: admin.user.clone(),
                needs_refresh,
            }),
        })
    }

    /// Hashes a password for `[admins]` as the configuration says. Blocks as [`Pending::verify`] does.
    ///
    /// # Errors
    /// [`AuthError::Config`] when a setting is invalid.
    pub fn hash_password(&self, password: &str) -> Result<String, AuthError> {
        Ok(new_hash(&self.inner.config, password)?.to_string())
    }

    /// Creates an administrator, or changes its password; `password` may also be a hash. Returns what `[admins]` had.
    /// Blocks as [`Pending::verify`] does.
    ///
    /// # Errors
    /// [`AuthError::Config`].
    pub fn set_admin(
        &self,
        name: &str,
        password: &str,
        persist: bool,
    ) -> Result<Option<String>, AuthError> {
        let value = match Stored::parse(password.trim()) {
            Stored::Plain(password) if !password.is_empty() => self.hash_password(&password)?,
            _ => password.to_owned(),
        };
        Ok(self.inner.config.set("admins", name, &value, persist)?)
    }

    fn state(&self) -> Arc<State> {
        self.inner
            .state
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

impl Inner {
    /// Reads the configuration anew. What cannot be persisted is used nevertheless: keeping the old administrators
    /// would let in one that was removed.
    fn refresh(&self) {
        let mut problems = Vec::new();
        for result in [
            hash_plain_passwords(&self.config),
            ensure_secret(&self.config),
        ] {
            problems.extend(result.err().map(|error| error.to_string()));
        }
        match State::read(&self.config, problems) {
            Ok(new) => self.replace(new),
            Err(error) => {
                let old = self
                    .state
                    .read()
                    .unwrap_or_else(PoisonError::into_inner)
                    .clone();
                self.replace(old.without_admins(self.config.version(), error.to_string()));
            }
        }
    }

    /// A state read later may have been put in already.
    fn replace(&self, new: State) {
        let entries_max = new.cache_entries_max;
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        if new.version >= state.version {
            *state = Arc::new(new);
        }
        drop(state);
        // After the state: whoever reads the new generation then also reads the new state.
        self.cache.clear(entries_max);
    }
}

impl State {
    fn read(config: &Config, mut problems: Vec<String>) -> Result<State, ConfigError> {
        let version = config.version();
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
            let user = Arc::new(UserCtx::admin(&name));
            admins.insert(name, Admin { hash, user });
        }
        let (hash, iterations) = new_scheme(config)?;
        let first = admins.values().find_map(|admin| admin.hash.as_ref());
        let entries_max = config.get_u64("chttpd_auth", "auth_cache_size")?;
        Ok(State {
            version,
            decoy: first.map_or_else(
                || PasswordHash::decoy_of(hash, iterations),
                PasswordHash::decoy,
            ),
            admins,
            session: SessionSettings::read(config)?,
            lockout: LockoutSettings::read(config)?,
            cache_entries_max: usize::try_from(entries_max).unwrap_or(usize::MAX),
            problems,
        })
    }

    /// For a configuration that cannot be understood: nobody is let in.
    fn without_admins(&self, version: u64, problem: String) -> State {
        State {
            version,
            admins: HashMap::new(),
            decoy: self.decoy.clone(),
            session: self.session.clone(),
            lockout: self.lockout,
            cache_entries_max: self.cache_entries_max,
            problems: vec![problem],
        }
    }

    /// The salt of a user who can log in.
    pub(crate) fn salt(&self, name: &str) -> Option<&str> {
        Some(self.admins.get(name)?.hash.as_ref()?.salt())
    }

    /// Takes as long for a name that does not exist.
    pub(crate) fn verify(&self, credentials: &Credentials) -> Option<Arc<UserCtx>> {
        let admin = self.admins.get(&credentials.name);
        let hash = admin
            .and_then(|admin| admin.hash.as_ref())
            .unwrap_or(&self.decoy);
        let right = hash.verify(&credentials.password);
        admin.filter(|_| right).map(|admin| admin.user.clone())
    }
}

fn concerns(change: &Change) -> bool {
    matches!(
        change.section.as_str(),
        "admins" | "chttpd_auth" | "couch_httpd_auth" | "chttpd_auth_lockout"
    )
}

fn hash_plain_passwords(config: &Config) -> Result<(), ConfigError> {
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
fn ensure_secret(config: &Config) -> Result<(), ConfigError> {
    if config.find("chttpd_auth", "secret").is_some() {
        return Ok(());
    }
    let secret = random_hex();
    if let Err(error) = config.set("chttpd_auth", "secret", &secret, true) {
        config.set("chttpd_auth", "secret", &secret, false)?;
        return Err(error);
    }
    Ok(())
}

fn new_hash(config: &Config, password: &str) -> Result<PasswordHash, ConfigError> {
    let (hash, iterations) = new_scheme(config)?;
    Ok(PasswordHash::new(password, hash, iterations))
}

fn new_scheme(config: &Config) -> Result<(Hash, u32), ConfigError> {
    // The configuration takes only known names.
    let hash =
        Hash::from_name(&config.get_str("chttpd_auth", "pbkdf2_prf")?).unwrap_or(Hash::Sha256);
    let iterations = config.get_u64("chttpd_auth", "iterations")?;
    Ok((hash, u32::try_from(iterations).unwrap_or(u32::MAX)))
}

fn unix_secs(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}
