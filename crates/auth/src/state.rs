//! The settings of authentication.

use std::collections::HashMap;
use std::sync::Arc;

use config::{Config, ConfigError};

use crate::account::Account;
use crate::admins::{new_scheme, read_admins};
use crate::effort::Effort;
use crate::handlers::Handler;
use crate::jwt::JwtSettings;
use crate::lockout::LockoutSettings;
use crate::proxy::ProxySettings;
use crate::session::SessionSettings;

/// The settings, read once per change.
pub(crate) struct State {
    /// Version of the configuration that this was read from.
    pub version: u64,
    pub admins: HashMap<String, Arc<Account>>,
    /// The least cost of checking a password: that of a new hash, or of the most expensive
    /// administrator's.
    pub effort: Effort,
    /// The cost of checking a new hash.
    pub new_effort: Effort,
    pub session: SessionSettings,
    pub lockout: LockoutSettings,
    /// PBKDF2 iterations that a user document may have.
    pub iterations: (u64, u64),
    pub handlers: Vec<Handler>,
    pub proxy: Arc<ProxySettings>,
    pub jwt: Arc<JwtSettings>,
    pub cache_entries_max: usize,
    pub problems: Vec<String>,
}

impl State {
    pub fn read(config: &Config, mut problems: Vec<String>) -> Result<State, ConfigError> {
        let version = config.version();
        let settings = config.settings();
        let auth = &settings.chttpd_auth;
        let admins = read_admins(&settings, &mut problems);
        let (hash, iterations) = new_scheme(auth);
        let efforts = admins.values().filter_map(|admin| admin.hash.as_ref());
        let new_effort = Effort::of(hash, iterations);
        let effort = efforts
            .map(|hash| hash.effort())
            .fold(new_effort, Effort::max);
        let session = SessionSettings::of(auth)?;
        let (handlers, unknown) = Handler::parse_list(&settings.chttpd.authentication_handlers);
        problems.extend(
            unknown
                .iter()
                .map(|name| format!("[chttpd] authentication_handlers: {name} is not known here")),
        );
        let proxy = ProxySettings::of(auth, &session.secret, &session.algorithms);
        if handlers.contains(&Handler::Proxy) && proxy.secret.is_none() {
            problems.push(
                "[chttpd_auth] proxy_use_secret is false: every client that can reach this server can take any name"
                    .to_owned(),
            );
        }
        let jwt = JwtSettings::of(&settings);
        problems.extend(jwt.problems());
        Ok(State {
            version,
            effort,
            new_effort,
            admins,
            session,
            lockout: LockoutSettings::of(&settings.chttpd_auth_lockout),
            iterations: (auth.min_iterations, auth.max_iterations),
            handlers,
            proxy: Arc::new(proxy),
            jwt: Arc::new(jwt),
            cache_entries_max: auth.auth_cache_size,
            problems,
        })
    }

    /// Returns the state for a configuration that cannot be parsed: every login is refused.
    pub fn of_nobody(&self, version: u64, problem: String) -> State {
        State {
            version,
            admins: HashMap::new(),
            effort: self.effort,
            new_effort: self.new_effort,
            session: self.session.clone(),
            lockout: self.lockout,
            iterations: self.iterations,
            handlers: Vec::new(),
            proxy: self.proxy.clone(),
            jwt: self.jwt.clone(),
            cache_entries_max: self.cache_entries_max,
            problems: vec![problem],
        }
    }
}
