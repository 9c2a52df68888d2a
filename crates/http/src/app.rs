//! What every request needs: the databases, the configuration, who may come in, and counters.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use auth::{Auth, Basic, UserCtx};
use config::Config;
use database::Databases;
use document::{UuidAlgorithm, UuidGenerator};
use hyper::header::{AUTHORIZATION, COOKIE};
use parking_lot::RwLock;

use crate::errors::ApiError;
use crate::request::Request;
use crate::stats::Stats;

/// Version of CouchDB whose API this is.
pub const COUCHDB_VERSION: &str = "3.5.0";
/// Name of this node, in CouchDB's form.
pub const NODE: &str = "settee@127.0.0.1";

/// Settings that requests look at, read again when the configuration changes.
#[derive(Clone, Debug)]
pub struct Limits {
    pub max_document_size: u64,
    pub max_http_request_size: u64,
    pub max_document_id_length: u64,
    pub max_uri_length: u64,
    pub max_keys: u64,
    pub max_open_feeds: u64,
    pub max_bulk_docs_count: u64,
    pub max_bulk_get_count: u64,
    pub changes_timeout_ms: u64,
    pub delayed_commits: bool,
    pub require_valid_user: bool,
    pub require_valid_user_except_for_up: bool,
    pub admin_only_all_dbs: bool,
    pub max_dbs_info: u64,
    pub uuids_max_count: u64,
    pub authentication_redirect: String,
    pub purge_ids_max: u64,
    pub purge_revs_max: u64,
    pub secure_rewrites: bool,
    pub rewrite_limit: u64,
    /// Content-Security-Policy of what shows, lists and updates answer.
    pub showlist_policy: Option<String>,
    pub mango: crate::find::MangoSettings,
}

impl Limits {
    fn read(c: &Config) -> Result<Limits, config::ConfigError> {
        Ok(Limits {
            max_document_size: c.get_u64("couchdb", "max_document_size")?,
            max_http_request_size: c.get_u64("chttpd", "max_http_request_size")?,
            max_document_id_length: c.get_u64("couchdb", "max_document_id_length")?,
            max_uri_length: c.get_u64("chttpd", "max_uri_length")?,
            max_keys: c.get_u64("limits", "max_keys")?,
            max_open_feeds: c.get_u64("limits", "max_open_feeds")?,
            max_bulk_docs_count: c.get_u64("couchdb", "max_bulk_docs_count")?,
            max_bulk_get_count: c.get_u64("couchdb", "max_bulk_get_count")?,
            changes_timeout_ms: c.get_u64("chttpd", "changes_timeout")?,
            delayed_commits: c.get_bool("couchdb", "delayed_commits")?,
            require_valid_user: c.get_bool("chttpd", "require_valid_user")?,
            require_valid_user_except_for_up: c
                .get_bool("chttpd", "require_valid_user_except_for_up")?,
            admin_only_all_dbs: c.get_bool("chttpd", "admin_only_all_dbs")?,
            max_dbs_info: c.get_u64("chttpd", "max_db_number_for_dbs_info_req")?,
            uuids_max_count: c.get_u64("uuids", "max_count")?,
            authentication_redirect: c.get_str("chttpd_auth", "authentication_redirect")?,
            purge_ids_max: c.get_u64("purge", "max_document_id_number")?,
            purge_revs_max: c.get_u64("purge", "max_revisions_number")?,
            secure_rewrites: c.get_bool("chttpd", "secure_rewrites")?,
            rewrite_limit: c.get_u64("chttpd", "rewrite_limit")?,
            mango: crate::find::MangoSettings::read(c)?,
            showlist_policy: match c.get_bool("csp", "showlist_enable")? {
                true => Some(c.get_str("csp", "showlist_header_value")?),
                false => None,
            },
        })
    }
}

pub struct App {
    pub databases: Arc<Databases>,
    pub config: Config,
    pub auth: Auth,
    pub stats: Stats,
    pub started: Instant,
    /// The server's id, of `[couchdb] uuid`.
    pub uuid: String,
    uuids: RwLock<Arc<UuidGenerator>>,
    limits: RwLock<Arc<Limits>>,
    open_feeds: Arc<AtomicUsize>,
    stopping: tokio::sync::watch::Sender<bool>,
}

impl App {
    pub fn new(
        databases: Arc<Databases>,
        config: Config,
        auth: Auth,
    ) -> Result<Arc<App>, config::ConfigError> {
        let uuid = match config.get("couchdb", "uuid").filter(|u| !u.is_empty()) {
            Some(uuid) => uuid,
            None => {
                let uuid = UuidGenerator::new(UuidAlgorithm::Random).next();
                config.set("couchdb", "uuid", &uuid, true)?;
                uuid
            }
        };
        let app = Arc::new(App {
            databases,
            limits: RwLock::new(Arc::new(Limits::read(&config)?)),
            uuids: RwLock::new(Arc::new(UuidGenerator::new(uuid_algorithm(&config)?))),
            auth,
            stats: Stats::default(),
            started: Instant::now(),
            uuid,
            open_feeds: Arc::default(),
            stopping: tokio::sync::watch::Sender::new(false),
            config,
        });
        let weak = Arc::downgrade(&app);
        app.config.subscribe(move |_| {
            if let Some(app) = weak.upgrade() {
                app.reread();
            }
        });
        Ok(app)
    }

    fn reread(&self) {
        match Limits::read(&self.config) {
            Ok(limits) => *self.limits.write() = Arc::new(limits),
            Err(e) => tracing::warn!(error = %e, "the old limits stay in force"),
        }
        match uuid_algorithm(&self.config) {
            Ok(algorithm) => *self.uuids.write() = Arc::new(UuidGenerator::new(algorithm)),
            Err(e) => tracing::warn!(error = %e, "the old uuid algorithm stays in force"),
        }
    }

    pub fn limits(&self) -> Arc<Limits> {
        self.limits.read().clone()
    }

    pub fn new_uuid(&self) -> String {
        self.uuids.read().next()
    }

    /// Finds out who is asking.
    pub async fn authenticate(&self, req: &mut Request) -> Result<(), ApiError> {
        if let Some(cookie) = session_cookie(req) {
            let now = std::time::SystemTime::now();
            if let Some(session) = self.auth.check_cookie(&cookie, now)? {
                req.user = session.user;
                req.authenticated = Some("cookie");
                req.refresh_cookie = session.needs_refresh;
                return Ok(());
            }
        }
        let Some(header) = req.header(&AUTHORIZATION) else {
            return Ok(());
        };
        req.user = match self.auth.check_cached(header)? {
            Basic::Anonymous => return Ok(()),
            Basic::Hit(user) => user,
            Basic::Miss(pending) => {
                let peer = req.peer;
                tokio::task::spawn_blocking(move || pending.verify(peer))
                    .await
                    .map_err(|_| ApiError::new(500, "internal_server_error", "login failed"))??
            }
        };
        req.authenticated = Some("default");
        Ok(())
    }

    /// Takes a place among the open feeds.
    pub fn open_feed(&self) -> Result<OpenFeed, ApiError> {
        let max = self.limits().max_open_feeds;
        let open = self.open_feeds.fetch_add(1, Ordering::Relaxed);
        let feed = OpenFeed(self.open_feeds.clone());
        if open as u64 >= max {
            return Err(ApiError::new(
                503,
                "service_unavailable",
                format!("max_open_feeds ({max}) feeds are open already"),
            ));
        }
        Ok(feed)
    }

    pub fn open_feeds(&self) -> usize {
        self.open_feeds.load(Ordering::Relaxed)
    }

    /// Tells open feeds to end.
    pub fn stop_feeds(&self) {
        self.stopping.send_replace(true);
    }

    pub fn stopping(&self) -> tokio::sync::watch::Receiver<bool> {
        self.stopping.subscribe()
    }
}

/// A place among the open feeds, given back when dropped.
pub struct OpenFeed(Arc<AtomicUsize>);

impl Drop for OpenFeed {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn session_cookie(req: &Request) -> Option<String> {
    req.header(&COOKIE)?
        .split(';')
        .filter_map(|c| c.trim().split_once('='))
        .find(|(name, value)| *name == "AuthSession" && !value.is_empty())
        .map(|(_, value)| value.trim_matches('"').to_owned())
}

fn uuid_algorithm(c: &Config) -> Result<UuidAlgorithm, config::ConfigError> {
    Ok(match c.get_str("uuids", "algorithm")?.as_str() {
        "random" => UuidAlgorithm::Random,
        "utc_random" => UuidAlgorithm::UtcRandom,
        "utc_id" => UuidAlgorithm::UtcId {
            suffix: c.find("uuids", "utc_id_suffix").unwrap_or_default(),
        },
        _ => UuidAlgorithm::Sequential,
    })
}

/// Refuses everybody but server admins.
pub fn require_server_admin(user: &UserCtx) -> Result<(), ApiError> {
    if user.is_admin() {
        Ok(())
    } else {
        Err(ApiError::unauthorized("You are not a server admin."))
    }
}
