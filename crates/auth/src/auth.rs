//! Authentication: everything the rest of the server asks about the sender of a request.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::{SystemTime, UNIX_EPOCH};

use config::{Change, Config};
use database::Databases;

use crate::account::{Account, Login};
use crate::admins::{ensure_secret, hash_plain_passwords, new_hash};
use crate::basic::{
    Basic, Credentials, Derivations, Gate, LoginKind, PendingDerivation, lockout_key,
    refuse_locked_out,
};
use crate::cache::{Cache, Tag};
use crate::counters::{CACHE_HITS, CACHE_MISSES};
use crate::effort::CostliestHash;
use crate::error::AuthError;
use crate::handlers::Handler;
use crate::lockout::Lockout;
use crate::origin::{Origin, Tokens};
use crate::password::StoredPassword;
use crate::session::{Claim, CookieScope, Session, Verdict};
use crate::state::State;
use crate::totp::UsedTokens;
use crate::turns::Turns;
use crate::user::UserCtx;
use crate::users::Users;

/// The name of requests without valid credentials after [`Auth::admit_all`].
const DEV_USER: &str = "dev";

/// Authenticates requests. Cheap to clone; follows changes of the configuration.
#[derive(Clone)]
pub struct Auth {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    config: Config,
    state: RwLock<Arc<State>>,
    pub(crate) users: OnceLock<Arc<Users>>,
    pub(crate) cache: Cache,
    pub(crate) in_flight: Derivations,
    pub(crate) gate: Gate,
    pub(crate) turns: Turns,
    pub(crate) lockout: Lockout,
    pub(crate) dearest: CostliestHash,
    /// Used tokens of second factors.
    pub(crate) used_tokens: UsedTokens,
    tokens: Tokens,
    /// Every request is a server administrator's.
    admits_all: AtomicBool,
}

/// The credentials in a request.
pub struct RequestCredentials<'a> {
    /// The value of the cookie `AuthSession`, if it is sent.
    pub cookie: Option<&'a str>,
    /// Any header, by name.
    pub header: &'a (dyn Fn(&str) -> Option<&'a str> + Sync),
    /// The origin that wrong passwords are counted for; see [`Auth::origin`].
    pub origin: Option<Origin>,
}

/// The authenticated sender of a request.
pub struct Authentication {
    /// The user.
    pub user: Arc<UserCtx>,
    /// The handler that authenticated the request.
    pub handler: Handler,
    /// Whether the user is a document of the users database, which another node may have changed.
    pub is_document: bool,
    /// Set when the response should carry a new session cookie of this login.
    pub renew: Option<Login>,
}

impl Authentication {
    fn by_login(handler: Handler, login: &Login, renew: Option<Login>) -> Authentication {
        Authentication {
            user: login.user().clone(),
            handler,
            is_document: login.is_document(),
            renew,
        }
    }

    /// A user whose name and roles a trusted third party states.
    fn by_statement(handler: Handler, user: Arc<UserCtx>) -> Authentication {
        Authentication {
            user,
            handler,
            is_document: false,
            renew: None,
        }
    }

    /// Returns the user of the credentials, or else the developer, as a server administrator.
    fn admitted(found: Option<Authentication>) -> Authentication {
        let (user, renew) = match found {
            None => (UserCtx::admin(DEV_USER), None),
            Some(found) => (found.user.with_admin_role(), found.renew),
        };
        Authentication {
            user: Arc::new(user),
            handler: Handler::Dev,
            is_document: false,
            renew,
        }
    }
}

impl Auth {
    /// Reads the administrators. Plain passwords are hashed and their hashes written to the
    /// configuration; a missing session secret is created. Follows later changes of the
    /// configuration in the same way.
    ///
    /// A plain password from the environment or the command line is hashed with the salt that
    /// `local.ini` has for it, so that sessions survive a restart.
    ///
    /// # Errors
    /// [`AuthError::Config`].
    pub fn new(config: Config) -> Result<Auth, AuthError> {
        hash_plain_passwords(&config)?;
        ensure_secret(&config)?;
        let state = State::read(&config, Vec::new())?;
        warn(&state.problems, &[]);
        let cache = Cache::new();
        cache.clear(state.cache_entries_max);
        let inner = Arc::new(Inner {
            config,
            state: RwLock::new(Arc::new(state)),
            users: OnceLock::new(),
            cache,
            in_flight: Derivations::default(),
            gate: Gate::new(),
            turns: Turns::new(),
            lockout: Lockout::default(),
            dearest: CostliestHash::default(),
            used_tokens: UsedTokens::default(),
            tokens: Tokens::new(),
            admits_all: AtomicBool::new(false),
        });
        let weak = Arc::downgrade(&inner);
        inner.config.subscribe(move |change| {
            if let Some(inner) = weak.upgrade().filter(|_| concerns(change)) {
                inner.refresh();
            }
        });
        Ok(Auth { inner })
    }

    /// Knows the users of these databases' `[chttpd_auth] authentication_db` from now on, and puts
    /// that database, and those called `…/_users` or by `[couchdb] users_db_suffix`, under the
    /// rules of user documents. The first call counts.
    pub fn use_databases(&self, databases: &Arc<Databases>) {
        let users = Arc::new(Users::new(self.inner.config.clone(), databases));
        if self.inner.users.set(users.clone()).is_ok() {
            databases.add_rules(users);
        }
    }

    /// Keeps up the design document of the database of users, and users' own databases. Runs until
    /// it is dropped, on a tokio runtime; a second call does nothing.
    pub async fn keep_users(&self) {
        if let Some(users) = self.inner.users.get() {
            users.clone().keep().await;
        }
    }

    /// Returns whether this database holds users: the one that logins use, or one with the same
    /// rules.
    pub fn is_users_database(&self, name: &str) -> bool {
        let users = self.inner.users.get();
        users.is_some_and(|users| users.settings().is_users_database(name))
    }

    /// Returns whether this is the database that logins use.
    pub fn is_authentication_database(&self, name: &str) -> bool {
        let users = self.inner.users.get();
        users.is_some_and(|users| users.settings().database == name)
    }

    /// Returns the token that marks requests of this server to itself, for a replication owned by
    /// this name.
    pub fn token_of_replication(&self, owner: &str) -> String {
        self.inner.tokens.token(owner)
    }

    /// Returns the origin that wrong passwords are counted for, given the address and the token of
    /// a request.
    pub fn origin(&self, peer: Option<IpAddr>, token: Option<&str>) -> Option<Origin> {
        match token.and_then(|token| self.inner.tokens.owner(token)) {
            Some(owner) => Some(Origin::Replication(owner)),
            None => peer.map(Origin::from),
        }
    }

    /// Makes every request a server administrator's from now on, whatever credentials it has. For a
    /// server on a developer's machine that no other machine and no web page can reach.
    pub fn admit_all(&self) {
        self.inner.admits_all.store(true, Ordering::Relaxed);
    }

    /// Returns whether every request is a server administrator's.
    pub fn admits_all(&self) -> bool {
        self.inner.admits_all.load(Ordering::Relaxed)
    }

    /// Returns whether an administrator has this name.
    pub fn is_admin(&self, name: &str) -> bool {
        self.admits_all() || self.state().admins.contains_key(name)
    }

    /// Returns whether there is an administrator.
    pub fn has_admins(&self) -> bool {
        !self.state().admins.is_empty()
    }

    /// Returns the handlers in their order.
    pub fn handlers(&self) -> Vec<Handler> {
        self.state().handlers.clone()
    }

    /// Returns a number that changes with the administrators, and with the other settings of logins.
    pub fn version(&self) -> u64 {
        let state = self.inner.state.read();
        state.unwrap_or_else(PoisonError::into_inner).version
    }

    /// Returns the problems in the configuration of administrators, handlers and tokens; they are
    /// logged too. Contains no secrets.
    pub fn problems(&self) -> Vec<String> {
        self.state().problems.clone()
    }

    /// Returns the names of the accounts that a cookie and an `Authorization` header claim. Neither is
    /// verified; a cookie that has expired claims nothing.
    pub fn claimed_names(
        &self,
        cookie: Option<&str>,
        authorization: Option<&str>,
        now: SystemTime,
    ) -> Vec<String> {
        let claim = cookie.and_then(|cookie| Claim::parse(cookie).ok());
        let settings = self.state();
        let claim = claim.filter(|claim| settings.session.is_in_time(claim, unix_secs(now)));
        let basic = authorization.and_then(|header| Credentials::parse(header).ok().flatten());
        let names = [claim.map(|claim| claim.name), basic.map(|basic| basic.name)];
        names.into_iter().flatten().collect()
    }

    /// Authenticates a request with the handlers of `[chttpd] authentication_handlers`, in order;
    /// `None` for an anonymous request. Passwords that are not in the cache are checked on a
    /// blocking thread of the tokio runtime.
    ///
    /// After [`Auth::admit_all`], every request is an administrator's: valid credentials only give
    /// it their name, and invalid ones are ignored.
    ///
    /// # Errors
    /// The error of the first handler that applies.
    pub async fn recognise(
        &self,
        said: RequestCredentials<'_>,
        now: SystemTime,
    ) -> Result<Option<Authentication>, AuthError> {
        let found = self.recognise_by_handlers(said, now).await;
        match self.admits_all() {
            false => found,
            true => Ok(Some(Authentication::admitted(found.ok().flatten()))),
        }
    }

    async fn recognise_by_handlers(
        &self,
        said: RequestCredentials<'_>,
        now: SystemTime,
    ) -> Result<Option<Authentication>, AuthError> {
        let state = self.state();
        let authorization = (said.header)("authorization");
        for &handler in &state.handlers {
            let found = match handler {
                Handler::Cookie => match said.cookie {
                    Some(cookie) => self.check_cookie(cookie, now)?.map(|session| {
                        let renew = session.needs_refresh.then(|| session.login.clone());
                        Authentication::by_login(handler, &session.login, renew)
                    }),
                    None => None,
                },
                Handler::Basic => {
                    let origin = said.origin.as_ref();
                    match authorization.map(|header| self.check_cached(header, origin)) {
                        None => None,
                        Some(basic) => match basic? {
                            Basic::Anonymous => None,
                            Basic::Hit(login) => Some(login),
                            Basic::Miss(pending) => {
                                Some(pending.verify_in_turn(said.origin.clone()).await?)
                            }
                        },
                    }
                    .map(|login| Authentication::by_login(handler, &login, None))
                }
                // A replication through this server cannot use proxy authentication: the trusted
                // proxy is another machine.
                Handler::Proxy if state.proxy.secret.is_none() && is_replication(&said) => None,
                Handler::Proxy => {
                    let user = state.proxy.user(said.header);
                    user.map(|user| Authentication::by_statement(handler, user))
                }
                Handler::Jwt => match authorization.and_then(bearer) {
                    Some(token) => {
                        let user = state.jwt.user(token, unix_secs(now))?;
                        Some(Authentication::by_statement(handler, user))
                    }
                    None => None,
                },
                Handler::Dev => None,
            };
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// Returns the administrator or user of this name.
    pub(crate) fn account(
        &self,
        state: &State,
        name: &str,
    ) -> Result<Option<Arc<Account>>, AuthError> {
        let users = self.inner.users.get();
        let Some(admin) = state.admins.get(name) else {
            return match users {
                Some(users) => users.account(name),
                None => Ok(None),
            };
        };
        // A user document gives an administrator roles, but no password.
        let roles = users.and_then(|users| users.roles_of_admin(name));
        Ok(Some(match roles {
            Some(document) => Arc::new(admin.with_roles(&document.user.roles)),
            None => admin.clone(),
        }))
    }

    /// Checks an `Authorization` header against the cache. Never blocks: a header that is not
    /// in the cache must be checked by [`PendingDerivation::verify`].
    ///
    /// # Errors
    /// [`AuthError::BadBase64`], [`AuthError::BadCredentials`], [`AuthError::UserConflicts`],
    /// [`AuthError::LockedOut`].
    pub fn check_cached(&self, header: &str, origin: Option<&Origin>) -> Result<Basic, AuthError> {
        // Before the state: what changes later clears the cache later.
        let generation = self.inner.cache.generation();
        let state = self.state();
        let Some(encoded) = Credentials::encoded(header) else {
            return Ok(Basic::Anonymous);
        };
        let hit = |tag: &Tag| -> Result<Option<Basic>, AuthError> {
            let Some(login) = self.remembered(&state, tag, origin)? else {
                return Ok(None);
            };
            LoginKind::Basic.check(&login.account, &self.inner.used_tokens)?;
            CACHE_HITS.count();
            Ok(Some(Basic::Hit(login)))
        };
        let mut tag = self.inner.cache.tag_of_encoded(encoded);
        if let Some(hit) = hit(&tag)? {
            return Ok(hit);
        }
        let Some(credentials) = Credentials::decode(encoded)? else {
            return Ok(Basic::Anonymous);
        };
        // Another spelling of the same credentials is not checked again.
        let usual = credentials.encode();
        if usual != encoded {
            tag = self.inner.cache.tag_of_encoded(&usual);
            if let Some(hit) = hit(&tag)? {
                return Ok(hit);
            }
        }
        CACHE_MISSES.count();
        let account = self.account(&state, &credentials.name)?;
        let pending = PendingDerivation::new(
            self,
            state,
            account,
            credentials,
            (generation, tag),
            LoginKind::Basic,
        );
        Ok(Basic::Miss(pending))
    }

    /// Checks the name, the password and the second factor's token of a login against the cache.
    /// Never blocks.
    ///
    /// # Errors
    /// [`AuthError::BadCredentials`] and [`AuthError::UserConflicts`].
    pub fn login(
        &self,
        name: &str,
        password: &str,
        token: &str,
        origin: Option<&Origin>,
    ) -> Result<Basic, AuthError> {
        let generation = self.inner.cache.generation();
        let state = self.state();
        let way = LoginKind::Login {
            token: token.to_owned(),
            now_secs: unix_secs(SystemTime::now()),
        };
        let tag = self.inner.cache.tag_of_login(name, password.as_bytes());
        let remembered = self.remembered(&state, &tag, origin)?;
        // With a second factor, failures are counted: that is for `PendingDerivation`.
        let used = &self.inner.used_tokens;
        let is_enough = |login: &Login| way.check(&login.account, used).is_ok();
        if let Some(login) = remembered.filter(is_enough) {
            CACHE_HITS.count();
            return Ok(Basic::Hit(login));
        }
        CACHE_MISSES.count();
        let credentials = Credentials {
            name: name.to_owned(),
            password: password.as_bytes().to_vec(),
        };
        let account = self.account(&state, name)?;
        let pending =
            PendingDerivation::new(self, state, account, credentials, (generation, tag), way);
        Ok(Basic::Miss(pending))
    }

    /// Returns the account of credentials that were right before and still are. A locked-out origin
    /// is refused even then: if only the right ones were accepted, every cached password could be
    /// guessed quickly and without limit. (Sessions continue: a cookie cannot be guessed.)
    fn remembered(
        &self,
        state: &State,
        tag: &Tag,
        origin: Option<&Origin>,
    ) -> Result<Option<Login>, AuthError> {
        let Some(then) = self.inner.cache.get(tag) else {
            return Ok(None);
        };
        let now = self.account(state, then.name())?;
        let Some(account) = now.filter(|now| now.has_password_of(&then)) else {
            return Ok(None);
        };
        refuse_locked_out(self, state, origin, |origin| lockout_key(&account, origin))?;
        Ok(Some(Login { account }))
    }

    /// Authenticates an `Authorization` header; `None` for an anonymous request. May block as
    /// [`PendingDerivation::verify`] does, and counts no wrong passwords.
    ///
    /// # Errors
    /// Errors of [`Auth::check_cached`] and [`PendingDerivation::verify`].
    pub fn authenticate_basic(&self, header: &str) -> Result<Option<Arc<UserCtx>>, AuthError> {
        let login = match self.check_cached(header, None)? {
            Basic::Anonymous => return Ok(None),
            Basic::Hit(login) => login,
            Basic::Miss(pending) => pending.verify(None)?,
        };
        Ok(Some(login.user().clone()))
    }

    /// Returns the value of a new session cookie.
    pub fn issue_cookie(&self, login: &Login, now: SystemTime) -> String {
        let account = &login.account;
        let state = self.state();
        state
            .session
            .issue(account.name(), &account.salt, unix_secs(now))
    }

    /// Returns the `Set-Cookie` header that starts or continues a session.
    pub fn set_cookie(&self, login: &Login, now: SystemTime, by: CookieScope<'_>) -> String {
        let cookie = self.issue_cookie(login, now);
        self.state().session.set_cookie(&cookie, now, by)
    }

    /// Returns the `Set-Cookie` header that ends a session.
    pub fn clear_cookie(&self, by: CookieScope<'_>) -> String {
        self.state().session.clear_cookie(by)
    }

    /// Returns the session of an `AuthSession` cookie's value; `None` when it is empty, expired or
    /// forged, or its user was deleted or has a new password.
    ///
    /// # Errors
    /// [`AuthError::MalformedCookie`], [`AuthError::UserConflicts`].
    pub fn check_cookie(&self, value: &str, now: SystemTime) -> Result<Option<Session>, AuthError> {
        if value.is_empty() {
            return Ok(None);
        }
        let claim = Claim::parse(value)?;
        let state = self.state();
        let account = self.account(&state, &claim.name)?;
        // An account without a salt cannot have logged in.
        let Some(account) = account.filter(|account| !account.salt.is_empty()) else {
            return Ok(None);
        };
        Ok(
            match state.session.judge(&claim, &account.salt, unix_secs(now)) {
                Verdict::Refused => None,
                Verdict::Valid { needs_refresh } => Some(Session {
                    login: Login { account },
                    needs_refresh,
                }),
            },
        )
    }

    /// Returns the user of this name from the current documents and configuration; `None` when the
    /// user does not exist any more.
    ///
    /// # Errors
    /// The documents of users cannot be read.
    pub fn current_user(&self, name: &str) -> Result<Option<Arc<UserCtx>>, AuthError> {
        let account = self.account(&self.state(), name)?;
        Ok(account.map(|account| account.user.clone()))
    }

    /// Hashes a password for `[admins]` by the configured scheme. Blocks as [`PendingDerivation::verify`]
    /// does.
    pub fn hash_password(&self, password: &str) -> String {
        new_hash(&self.inner.config.settings().chttpd_auth, password).to_string()
    }

    /// Creates an administrator, or changes its password; `password` may also be a hash. Returns
    /// the previous entry of `[admins]`. Blocks as [`PendingDerivation::verify`] does.
    ///
    /// # Errors
    /// [`AuthError::Config`].
    pub fn set_admin(
        &self,
        name: &str,
        password: &str,
        persist: bool,
    ) -> Result<Option<String>, AuthError> {
        let value = match StoredPassword::parse(password.trim()) {
            StoredPassword::Plain(password) if !password.is_empty() => {
                self.hash_password(&password)
            }
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
    /// Rereads the configuration. Values that cannot be persisted are used nevertheless: keeping
    /// the old administrators would accept a removed one.
    fn refresh(&self) {
        let mut problems = Vec::new();
        if let Some(users) = self.users.get() {
            users.reread();
        }
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
                self.replace(old.of_nobody(self.config.version(), error.to_string()));
            }
        }
    }

    /// A state read later may have been put in already.
    fn replace(&self, mut new: State) {
        let entries_max = new.cache_entries_max;
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        if new.version >= state.version {
            warn(&new.problems, &state.problems);
            let now = SystemTime::now().duration_since(UNIX_EPOCH);
            new.session
                .follow(&state.session, now.map_or(0, |now| now.as_secs()));
            *state = Arc::new(new);
        }
        drop(state);
        // After the state: a reader of the new generation then also reads the new state.
        self.cache.clear(entries_max);
    }
}

/// Logs the problems that are not in `known`.
fn warn(problems: &[String], known: &[String]) {
    for problem in problems.iter().filter(|problem| !known.contains(problem)) {
        tracing::warn!("{problem}");
    }
}

fn is_replication(said: &RequestCredentials<'_>) -> bool {
    matches!(said.origin, Some(Origin::Replication(_)))
}

/// Returns the token of an `Authorization: Bearer` header.
fn bearer(header: &str) -> Option<&str> {
    let (scheme, token) = header.trim().split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

fn concerns(change: &Change) -> bool {
    matches!(
        (change.section.as_str(), change.key.as_str()),
        (
            "admins"
                | "chttpd_auth"
                | "couch_httpd_auth"
                | "chttpd_auth_lockout"
                | "jwt_auth"
                | "jwt_keys"
                | "couch_peruser",
            _
        ) | ("chttpd" | "httpd", "authentication_handlers")
            | ("cluster", "q")
            | ("couchdb", "default_security" | "users_db_suffix")
    )
}

fn unix_secs(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}
