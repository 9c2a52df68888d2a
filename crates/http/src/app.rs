//! State that every request needs: the node, the current settings, counters, and whether the server
//! stops.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use auth::{Origin, RequestCredentials};
use config::settings::SameSite;
use database::{DatabaseUuid, RevisionCache};
use hyper::header::COOKIE;
use metrics::Stats;
use node::Node;
use parking_lot::{Mutex, RwLock};

use crate::browsers::cors::Cors;
use crate::browsers::dev::Dev;
use crate::clustered;
use crate::connection::places::Places;
use crate::design_routes::rules::Rules;
use crate::errors::ApiError;
use crate::reply::Reply;
use crate::reply::answers::Answers;
use crate::request::Request;
use crate::request::room::Bodies;
use crate::settings::Settings;
use crate::shares::{Feeds, OpenFeed};

/// Version of CouchDB whose API this is.
pub const COUCHDB_VERSION: &str = "3.5.2";

/// A client that sends nothing for 300 s, where it should send something, is disconnected.
/// CouchDB's HTTP library waits as long: pools of clients keep connections for minutes, and cannot
/// repeat a POST on their own.
const SILENCE_TIME_MAX: Duration = Duration::from_secs(300);

/// Design documents whose rewrite rules are kept, and the memory of these rules in bytes.
const RULES_KEPT_MAX: usize = 256;
const RULES_BYTES_KEPT_MAX: usize = 4 << 20;

/// Copies of the settings. Threads that shared one would wait for each other's processor to write
/// the count of its references.
const SETTINGS_PARTS: usize = 8;

/// The settings of some threads, on cache lines of its own.
#[repr(align(128))]
struct SettingsPart(RwLock<Arc<Settings>>);

/// A server, as requests see it.
pub struct App {
    /// Itself, for work on other threads.
    me: Weak<App>,
    /// The server without its sockets.
    pub node: Arc<Node>,
    /// Known to this process alone: what another node forwards has it.
    pub forwarding_token: String,
    /// The counters.
    pub stats: Arc<Stats>,
    /// Places of client connections.
    pub places: Arc<Places>,
    /// Memory for the bodies of requests.
    pub bodies: Arc<Bodies>,
    /// Memory that answers take until they end.
    pub answers: Answers,
    /// Rules of design documents, by database and id.
    pub rewrite_rules: Mutex<RevisionCache<Rules, (DatabaseUuid, String)>>,
    /// Copies for some threads each: a request reads them, and counts its reference.
    settings: [SettingsPart; SETTINGS_PARTS],
    feeds: Feeds,
    /// Returns the bytes that the program's allocator has allocated.
    allocated: fn() -> u64,
    silence_ms_max: AtomicU64,
    stopping: tokio::sync::watch::Sender<bool>,
    ending: tokio::sync::watch::Sender<Ending>,
}

/// The action after the server has stopped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Ending {
    /// The program ends; by a signal, since this is no reason to stop.
    #[default]
    Stop,
    /// It starts again.
    Restart,
    /// It ends with an error.
    Failure(String),
}

impl App {
    /// The HTTP API of a node. `allocated`: how many bytes the program's allocator has given out.
    ///
    /// # Errors
    /// A configuration that requests cannot be answered by.
    pub fn new(node: Arc<Node>, allocated: fn() -> u64) -> Result<Arc<App>, config::ConfigError> {
        App::open_to(node, allocated, None)
    }

    /// Returns the HTTP API of a node that needs no login: every request is a server admin's, and `dev` has the rules
    /// for requests that are answered.
    ///
    /// # Errors
    /// Those of [`App::new`].
    pub fn new_dev(
        node: Arc<Node>,
        allocated: fn() -> u64,
        dev: Dev,
    ) -> Result<Arc<App>, config::ConfigError> {
        node.auth.admit_all();
        App::open_to(node, allocated, Some(Arc::new(dev)))
    }

    fn open_to(
        node: Arc<Node>,
        allocated: fn() -> u64,
        dev: Option<Arc<Dev>>,
    ) -> Result<Arc<App>, config::ConfigError> {
        let settings = Settings::read(&node.config, dev)?;
        warn_of_cors(&settings, None);
        let app = Arc::new_cyclic(|me| App {
            me: me.clone(),
            forwarding_token: auth::random_password(),
            bodies: Bodies::new(node.memory.bodies),
            answers: Answers::new(node.memory.answers),
            node,
            stats: Arc::default(),
            places: Arc::default(),
            rewrite_rules: Mutex::new(RevisionCache::new(RULES_KEPT_MAX, RULES_BYTES_KEPT_MAX)),
            settings: std::array::from_fn(|_| {
                SettingsPart(RwLock::new(Arc::new(settings.clone())))
            }),
            feeds: Feeds::default(),
            allocated,
            silence_ms_max: AtomicU64::new(SILENCE_TIME_MAX.as_millis() as u64),
            stopping: tokio::sync::watch::Sender::new(false),
            ending: tokio::sync::watch::Sender::default(),
        });
        let weak = Arc::downgrade(&app);
        app.node.config.subscribe(move |_| {
            if let Some(app) = weak.upgrade() {
                app.reread();
            }
        });
        Ok(app)
    }

    /// Itself, to be taken to another thread.
    ///
    /// # Errors
    /// The server is ending.
    pub fn shared(&self) -> Result<Arc<App>, ApiError> {
        let me = self.me.upgrade();
        me.ok_or_else(|| ApiError::busy("the server is ending".into()))
    }

    fn reread(&self) {
        // Read while the first lock is held, so that of two concurrent changes the older does not
        // win.
        let [first, others @ ..] = &self.settings;
        let mut kept = first.0.write();
        let settings = Settings::read_again(&self.node.config, &kept);
        warn_of_cors(&settings, Some(&kept));
        for other in others {
            *other.0.write() = Arc::new(settings.clone());
        }
        *kept = Arc::new(settings);
    }

    /// Returns the current settings.
    pub fn settings(&self) -> Arc<Settings> {
        let part = telemetry::part_of(SETTINGS_PARTS);
        self.settings[part].0.read().clone()
    }

    /// Determines the user of a request. Returns another node's response if this node of a cluster
    /// cannot know whether the user's document is current.
    pub async fn authenticate(&self, req: &mut Request) -> Result<Option<Reply>, ApiError> {
        let done = self.authenticate_current(req).await;
        let first = req.segments.first().map_or(&b""[..], Vec::as_slice);
        req.answers.set_user(&req.user, req.peer, first);
        done
    }

    async fn authenticate_current(&self, req: &mut Request) -> Result<Option<Reply>, ApiError> {
        let names = match self.node.member() {
            Some(_) => {
                let header = |name: &str| req.headers.get(name).and_then(|v| v.to_str().ok());
                let cookie = session_cookie(req);
                let now = std::time::SystemTime::now();
                let authorization = header("authorization");
                self.node.auth.claimed_names(cookie, authorization, now)
            }
            None => vec![],
        };
        // Whom a node of a cluster does not know can only be found by the others.
        let accounts = match clustered::Accounts::hold(self, &names).await {
            Ok(accounts) => accounts,
            Err(_) if clustered::is_for_operators(self, req, &names) => None,
            Err(e) => return clustered::recognised_elsewhere(self, req, &e).await,
        };
        let found = self.authenticate_here(req).await;
        let is_known = match &found {
            Ok(()) => names.is_empty() || req.authenticated.is_some(),
            Err(e) => e.status != 401,
        };
        let Some(accounts) = accounts.filter(|_| !is_known) else {
            return found.map(|()| None);
        };
        match accounts.are_newer(self).await {
            Ok(false) => found.map(|()| None),
            Ok(true) => {
                req.forget_user();
                self.authenticate_here(req).await.map(|()| None)
            }
            Err(e) => {
                req.forget_user();
                clustered::recognised_elsewhere(self, req, &e).await
            }
        }
    }

    async fn authenticate_here(&self, req: &mut Request) -> Result<(), ApiError> {
        let found = {
            let headers = &req.headers;
            let header = |name: &str| headers.get(name).and_then(|v| v.to_str().ok());
            let said = RequestCredentials {
                cookie: session_cookie(req),
                header: &header,
                origin: self.origin_of(req),
            };
            self.node
                .auth
                .recognise(said, std::time::SystemTime::now())
                .await?
        };
        if let Some(found) = found {
            req.user = found.user;
            req.authenticated = Some(found.handler.name());
            req.renew = found.renew;
        }
        Ok(())
    }

    /// The origin that failed logins of a request are charged to.
    pub fn origin_of(&self, req: &Request) -> Option<Origin> {
        let token = req.headers.get(replicator::TOKEN);
        self.node
            .auth
            .origin(req.peer, token.and_then(|token| token.to_str().ok()))
    }

    /// How long a client may take to begin a request, or to send the next bytes of one.
    pub fn silence_max(&self) -> Duration {
        Duration::from_millis(self.silence_ms_max.load(Ordering::Relaxed))
    }

    /// Sets how long a client may stay silent.
    pub fn set_silence_max(&self, max: Duration) {
        let ms = u64::try_from(max.as_millis()).unwrap_or(u64::MAX);
        self.silence_ms_max.store(ms, Ordering::Relaxed);
    }

    /// Takes a place among the open feeds for the client of a request.
    pub fn open_feed(&self, req: &Request, database: &Arc<str>) -> Result<OpenFeed, ApiError> {
        let max = self.settings().limits.max_open_feeds;
        let max = usize::try_from(max).unwrap_or(usize::MAX);
        Ok(self.feeds.open(max, (&req.user, req.peer), database)?)
    }

    /// The bytes that the program's allocator has allocated.
    pub fn allocated_bytes(&self) -> u64 {
        (self.allocated)()
    }

    /// How many feeds are open.
    pub fn open_feeds(&self) -> usize {
        self.feeds.count()
    }

    /// Ends all open feeds.
    pub fn stop_feeds(&self) {
        self.stopping.send_replace(true);
    }

    /// Requests a restart of the server.
    pub fn ask_to_restart(&self) {
        self.ending.send_replace(Ending::Restart);
    }

    /// Ends the server with an error.
    pub fn fail(&self, why: String) {
        self.ending.send_replace(Ending::Failure(why));
    }

    /// Notifies of a request to end the server, which stops it.
    pub fn ending(&self) -> tokio::sync::watch::Receiver<Ending> {
        self.ending.subscribe()
    }

    /// True once open feeds have to end.
    pub fn stopping(&self) -> tokio::sync::watch::Receiver<bool> {
        self.stopping.subscribe()
    }
}

/// Warns when a configuration lets every web page use its visitor's session.
fn warn_of_cors(settings: &Settings, before: Option<&Settings>) {
    let cors = settings.cors.as_ref().filter(|_| settings.dev.is_none());
    if before.is_some_and(|before| before.cors.as_ref() == cors) {
        return;
    }
    if cors.is_some_and(Cors::shares_sessions) && settings.chttpd_auth.same_site != SameSite::None {
        tracing::warn!(
            "[cors] credentials: browsers do not send sessions to other sites' pages unless [chttpd_auth] same_site = none"
        );
    }
    if cors.is_some_and(Cors::trusts_all_with_credentials) {
        tracing::warn!(
            "[cors] credentials with origins = * lets every page on the web use its reader's session; name the origins instead"
        );
    }
}

/// The session's cookie. HTTP/2 splits cookies into as many fields as it likes.
fn session_cookie(req: &Request) -> Option<&str> {
    let fields = req.headers.get_all(COOKIE).into_iter();
    fields
        .filter_map(|field| field.to_str().ok())
        .flat_map(|field| field.split(';'))
        .filter_map(|c| c.trim().split_once('='))
        .find(|(name, value)| *name == "AuthSession" && !value.is_empty())
        .map(|(_, value)| value.trim_matches('"'))
}
