//! What every request needs: the databases, the configuration, who may come in, and counters.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use auth::{Auth, Origin, Said};
use config::Config;
use database::{AttachmentOptions, Databases};
use document::{UuidAlgorithm, UuidGenerator};
use hyper::header::COOKIE;
use parking_lot::RwLock;
use replicator::Replicator;

use crate::browsers::cors::Cors;
use crate::browsers::frame_options::FrameOptions;
use crate::errors::ApiError;
use crate::request::Request;
use crate::request::body::BodyLimits;
use crate::request::forwarded::Forwarded;
use crate::server_routes::replication::Surroundings;
use crate::stats::Stats;

/// Version of CouchDB whose API this is.
pub const COUCHDB_VERSION: &str = "3.5.0";

/// A client that is silent for so long, where it is to send something, is hung up on. As long as CouchDB's HTTP library waits:
/// pools of clients keep connections for minutes, and cannot send a POST again by themselves.
const SILENCE_TIME_MAX: Duration = Duration::from_secs(300);

/// Settings that requests look at, read again when the configuration changes.
#[derive(Clone, Debug)]
pub struct Limits {
    pub max_document_size: u64,
    pub max_http_request_size: u64,
    pub max_document_id_length: u64,
    pub max_uri_length: u64,
    pub max_keys: u64,
    pub query_limit: u64,
    pub partition_query_limit: u64,
    pub max_partition_size: u64,
    pub decode_plus_to_space: bool,
    pub allow_jsonp: bool,
    /// The headers that `Prefer: return=minimal` leaves.
    pub prefer_minimal: Vec<String>,
    /// What `_up` says in place of `ok`.
    pub maintenance_mode: Option<&'static str>,
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
    pub cors: Option<Cors>,
    pub frame_options: Option<FrameOptions>,
    /// Where a proxy says what it was asked for.
    pub forwarded: Arc<Forwarded>,
    /// How long the head of a request may take.
    pub header_timeout: Duration,
    pub max_attachment_size: u64,
    pub max_attachments_per_document: u64,
    pub bodies: Arc<BodyLimits>,
    /// How long a request waits for leave to run a function.
    pub function_wait: Duration,
    /// Content-Security-Policy of attachments.
    pub attachments_policy: Option<String>,
    pub mango: crate::database_routes::find::MangoSettings,
}

impl Limits {
    fn read(c: &Config) -> Result<Limits, config::ConfigError> {
        Ok(Limits {
            max_document_size: c.get_u64("couchdb", "max_document_size")?,
            max_http_request_size: c.get_u64("chttpd", "max_http_request_size")?,
            max_document_id_length: c.get_u64("couchdb", "max_document_id_length")?,
            max_uri_length: c.get_u64("chttpd", "max_uri_length")?,
            max_keys: c.get_u64("limits", "max_keys")?,
            query_limit: c.get_u64("query_server_config", "query_limit")?,
            partition_query_limit: c.get_u64("query_server_config", "partition_query_limit")?,
            max_partition_size: c.get_u64("couchdb", "max_partition_size")?,
            decode_plus_to_space: c.get_bool("chttpd", "decode_plus_to_space")?,
            allow_jsonp: c.get_bool("chttpd", "allow_jsonp")?,
            prefer_minimal: c
                .get_str("chttpd", "prefer_minimal")?
                .split(',')
                .map(|name| name.trim().to_owned())
                .collect(),
            maintenance_mode: match c.get_str("couchdb", "maintenance_mode")?.as_str() {
                "true" => Some("maintenance_mode"),
                "nolb" => Some("nolb"),
                _ => None,
            },
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
            mango: crate::database_routes::find::MangoSettings::read(c)?,
            showlist_policy: match c.get_bool("csp", "showlist_enable")? {
                true => Some(c.get_str("csp", "showlist_header_value")?),
                false => None,
            },
            cors: Cors::read(c)?,
            frame_options: FrameOptions::read(c)?,
            forwarded: Arc::new(Forwarded::read(c)?),
            header_timeout: Duration::from_millis(c.get_u64("chttpd", "header_timeout")?),
            max_attachment_size: c.get_u64("couchdb", "max_attachment_size")?,
            max_attachments_per_document: c.get_u64("couchdb", "max_attachments_per_document")?,
            bodies: Arc::new(BodyLimits::read(c)?),
            function_wait: Duration::from_millis(c.get_u64("functions", "queue_time_limit_ms")?),
            attachments_policy: match c.get_bool("csp", "attachments_enable")? {
                true => Some(c.get_str("csp", "attachments_header_value")?),
                false => None,
            },
        })
    }
}

fn attachment_options(c: &Config) -> Result<AttachmentOptions, config::ConfigError> {
    let level = c.get_u64("attachments", "compression_level")?;
    let types = c.get_str("attachments", "compressible_types")?;
    Ok(AttachmentOptions {
        bytes_max: c.get_u64("couchdb", "max_attachment_size")?,
        count_max: c.get_u64("couchdb", "max_attachments_per_document")?,
        ..AttachmentOptions::new(level.min(9) as u32, &types)
    })
}

/// `name@host`: it stands in paths, and in the JSON of answers.
fn node_name(c: &Config) -> Result<String, config::ConfigError> {
    let name = c.get_str("couchdb", "node_name")?;
    let is_plain = |part: &str| {
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.:[]".contains(&b);
        !part.is_empty() && part.bytes().all(plain)
    };
    match name.split_once('@') {
        Some((local, host)) if is_plain(local) && is_plain(host) => Ok(name),
        _ => Err(config::ConfigError::InvalidSetting {
            section: "couchdb".to_owned(),
            key: "node_name".to_owned(),
            value: name,
            expected: "name@host".to_owned(),
        }),
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
    /// Name of this node, of `[couchdb] node_name`.
    pub node: String,
    uuids: RwLock<Arc<UuidGenerator>>,
    limits: RwLock<Arc<Limits>>,
    /// It runs once the server does.
    pub replicator: Arc<Replicator>,
    /// Where connections come in.
    listening: RwLock<Vec<SocketAddr>>,
    open_feeds: Arc<AtomicUsize>,
    silence_ms_max: AtomicU64,
    stopping: tokio::sync::watch::Sender<bool>,
    restart: tokio::sync::watch::Sender<bool>,
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
        let node = node_name(&config)?;
        let limits = Limits::read(&config)?;
        databases.set_partition_limit(limits.max_partition_size);
        let uuids = UuidGenerator::new(uuid_algorithm(&config)?);
        warn_of_cors(&config, &limits, None);
        auth.use_databases(&databases)?;
        let app = Arc::new_cyclic(|me| App {
            replicator: Replicator::new(databases.clone(), Arc::new(Surroundings(me.clone()))),
            databases,
            limits: RwLock::new(Arc::new(limits)),
            uuids: RwLock::new(Arc::new(uuids)),
            auth,
            stats: Stats::default(),
            started: Instant::now(),
            uuid,
            node,
            listening: RwLock::default(),
            open_feeds: Arc::default(),
            silence_ms_max: AtomicU64::new(SILENCE_TIME_MAX.as_millis() as u64),
            stopping: tokio::sync::watch::Sender::new(false),
            restart: tokio::sync::watch::Sender::new(false),
            config,
        });
        app.databases
            .set_attachment_options(attachment_options(&app.config)?);
        let weak = Arc::downgrade(&app);
        app.config.subscribe(move |_| {
            if let Some(app) = weak.upgrade() {
                app.reread();
            }
        });
        Ok(app)
    }

    fn reread(&self) {
        match attachment_options(&self.config) {
            Ok(options) => self.databases.set_attachment_options(options),
            Err(e) => {
                tracing::error!(error = %e, "the configuration is not usable; the settings before it stay")
            }
        }
        match Limits::read(&self.config) {
            Ok(limits) => {
                self.databases
                    .set_partition_limit(limits.max_partition_size);
                warn_of_cors(&self.config, &limits, Some(&self.limits()));
                *self.limits.write() = Arc::new(limits);
            }
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
        let found = {
            let headers = &req.headers;
            let header = |name: &str| headers.get(name).and_then(|v| v.to_str().ok());
            let said = Said {
                cookie: session_cookie(req),
                header: &header,
                origin: self.origin_of(req),
            };
            self.auth
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

    /// Whom wrong passwords of a request count for.
    pub fn origin_of(&self, req: &Request) -> Option<Origin> {
        let token = req.headers.get(replicator::TOKEN);
        self.auth
            .origin(req.peer, token.and_then(|token| token.to_str().ok()))
    }

    /// Says where connections come in.
    pub fn set_listening(&self, addresses: Vec<SocketAddr>) {
        *self.listening.write() = addresses;
    }

    pub fn listening(&self) -> Vec<SocketAddr> {
        self.listening.read().clone()
    }

    /// How long a client may take to begin a request, or to send the next bytes of one.
    pub fn silence_max(&self) -> Duration {
        Duration::from_millis(self.silence_ms_max.load(Ordering::Relaxed))
    }

    /// Has clients be less patient, or more.
    pub fn set_silence_max(&self, max: Duration) {
        let ms = u64::try_from(max.as_millis()).unwrap_or(u64::MAX);
        self.silence_ms_max.store(ms, Ordering::Relaxed);
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

    /// Asks whoever runs the server to start it anew.
    pub fn ask_to_restart(&self) {
        self.restart.send_replace(true);
    }

    /// True once the server is to be started anew.
    pub fn restart_asked(&self) -> tokio::sync::watch::Receiver<bool> {
        self.restart.subscribe()
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

/// Says so when a configuration lets every page on the web use its reader's session.
fn warn_of_cors(config: &Config, limits: &Limits, before: Option<&Limits>) {
    let changed = before.is_none_or(|b| b.cors != limits.cors);
    let trusting = limits
        .cors
        .as_ref()
        .is_some_and(Cors::trusts_all_with_credentials);
    let sharing = limits.cors.as_ref().is_some_and(Cors::shares_sessions);
    if changed && sharing && config.find("chttpd_auth", "same_site").as_deref() != Some("none") {
        tracing::warn!(
            "[cors] credentials: browsers do not send sessions to other sites' pages unless [chttpd_auth] same_site is none"
        );
    }
    if changed && trusting {
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
