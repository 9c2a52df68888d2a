//! What the administrator said: section `[replicator]`.

use std::time::Duration;

use crate::db::Allowed;

/// The settings of `[replicator]`, by CouchDB's names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// So many jobs run at once; the others wait for their turn.
    pub max_jobs: usize,
    /// Of one user who is no server admin, by requests.
    pub max_jobs_per_user: usize,
    /// So many jobs give way to waiting ones at one `interval`.
    pub max_churn: usize,
    /// So many events are remembered of each job.
    pub max_history: usize,
    /// Time between two looks at which jobs run.
    pub interval: Duration,
    /// Jobs found when the server starts wait up to so long, each for another time.
    pub startup_jitter: Duration,
    /// A job that ran so long without a crash is healthy: its earlier crashes are forgotten.
    pub health_threshold: Duration,
    /// A job with a filter function is looked at again after at least so long, in case the function changed. No key of the
    /// configuration sets it.
    pub filter_check_min: Duration,
    /// Whether documents are told of every state, not only of the last one.
    pub update_docs: bool,
    /// How many batches of a job are under way at once.
    pub worker_processes: usize,
    /// Most changes a batch has.
    pub worker_batch_size: usize,
    /// Most connections of a job to an end behind HTTP.
    pub http_connections: usize,
    /// And when a document says how many.
    pub http_connections_max: usize,
    /// Sockets to other servers, of all jobs.
    pub sockets_max: usize,
    /// How long an answer of an end may take.
    pub connection_timeout: Duration,
    /// How often a request that failed is sent again.
    pub retries_per_request: u32,
    /// Whether the progress is kept on both sides.
    pub use_checkpoints: bool,
    /// Whether revisions are read many at a time.
    pub use_bulk_get: bool,
    /// Least time between two checkpoints.
    pub checkpoint_interval: Duration,
    /// Whether passwords are exchanged for a session first.
    pub auth_session: bool,
    /// Whether the certificates of other servers are checked.
    pub verify_ssl_certificates: bool,
    /// A PEM file with the authorities to trust.
    pub ssl_trusted_certificates_file: Option<String>,
    /// PEM files of a client's certificate and its key.
    pub cert_file: Option<String>,
    /// The key of `cert_file`.
    pub key_file: Option<String>,
    /// Where replications of others than server admins may connect to.
    pub allowed_addresses: Allowed,
    /// Schemes that `source` and `target` may have.
    pub valid_endpoint_protocols: Vec<String>,
    /// Schemes that a proxy may have.
    pub valid_proxy_protocols: Vec<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            max_jobs: 500,
            max_jobs_per_user: 100,
            max_churn: 20,
            max_history: 20,
            interval: Duration::from_secs(60),
            startup_jitter: Duration::from_secs(5),
            health_threshold: Duration::from_secs(120),
            filter_check_min: Duration::from_secs(60),
            update_docs: false,
            worker_processes: 4,
            worker_batch_size: 500,
            http_connections: 20,
            http_connections_max: usize::MAX,
            sockets_max: usize::MAX,
            connection_timeout: Duration::from_secs(30),
            retries_per_request: 5,
            use_checkpoints: true,
            use_bulk_get: true,
            checkpoint_interval: Duration::from_secs(30),
            auth_session: true,
            verify_ssl_certificates: false,
            ssl_trusted_certificates_file: None,
            cert_file: None,
            key_file: None,
            allowed_addresses: Allowed::parse("public, self").0,
            valid_endpoint_protocols: vec!["http".into(), "https".into()],
            valid_proxy_protocols: vec!["http".into(), "https".into(), "socks5".into()],
        }
    }
}
