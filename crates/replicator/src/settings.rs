//! The settings of section `[replicator]`.

use std::time::Duration;

use crate::db::{AllowedAddresses, ConnectTo};
use crate::rows::ROW_BYTES_MAX;

/// The settings of `[replicator]`, under CouchDB's names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Maximum number of running jobs; the others wait.
    pub max_jobs: usize,
    /// Maximum number of jobs that a user who is not a server admin starts by requests.
    pub max_jobs_per_user: usize,
    /// Memory for the ids and selectors of all jobs, in bytes.
    pub selection_bytes_max: u64,
    /// Length of the longest row that other servers may send, in bytes
    /// ([`row_bytes_max`](crate::row_bytes_max)).
    pub row_bytes_max: usize,
    /// Most jobs that are stopped for waiting ones at one `interval`.
    pub max_churn: usize,
    /// Maximum number of events kept of a job.
    pub max_history: usize,
    /// Time between two decisions about which jobs run.
    pub interval: Duration,
    /// Jobs found when the server starts are delayed by a random time up to this.
    pub startup_jitter: Duration,
    /// A job that has run for this time without a crash is healthy: its earlier crashes are reset.
    pub health_threshold: Duration,
    /// Minimum time between checks whether a job's filter function has changed. Not configurable.
    pub filter_check_min: Duration,
    /// Whether every state is written to documents, not only the final one.
    pub update_docs: bool,
    /// Number of batches of a job in flight.
    pub worker_processes: usize,
    /// Maximum number of changes in a batch.
    pub worker_batch_size: usize,
    /// Default number of connections of a job to a database behind HTTP.
    pub http_connections: usize,
    /// Maximum number of connections that a document may set.
    pub http_connections_max: usize,
    /// Maximum number of sockets to other servers, over all jobs.
    pub sockets_max: usize,
    /// Time limit of a response.
    pub connection_timeout: Duration,
    /// Number of retries of a failed request.
    pub retries_per_request: u32,
    /// Whether checkpoints are recorded on both sides.
    pub use_checkpoints: bool,
    /// Whether revisions are read in bulk.
    pub use_bulk_get: bool,
    /// Minimum time between two checkpoints.
    pub checkpoint_interval: Duration,
    /// Whether passwords are exchanged for a session first.
    pub auth_session: bool,
    /// Whether the certificates of other servers are verified.
    pub verify_ssl_certificates: bool,
    /// A PEM file with trusted authorities.
    pub ssl_trusted_certificates_file: Option<String>,
    /// A PEM file with the client certificate.
    pub cert_file: Option<String>,
    /// A PEM file with the key of `cert_file`.
    pub key_file: Option<String>,
    /// The addresses that replications of users other than server admins may connect to.
    pub allowed_addresses: AllowedAddresses,
    /// Other addresses to connect to than those that URLs name.
    pub connect_to: ConnectTo,
    /// Allowed schemes of `source` and `target`.
    pub valid_endpoint_protocols: Vec<String>,
    /// Allowed schemes of a proxy.
    pub valid_proxy_protocols: Vec<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            max_jobs: 500,
            max_jobs_per_user: 100,
            selection_bytes_max: 32 << 20,
            row_bytes_max: ROW_BYTES_MAX,
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
            allowed_addresses: AllowedAddresses::parse("public, self").0,
            connect_to: ConnectTo::default(),
            valid_endpoint_protocols: vec!["http".into(), "https".into()],
            valid_proxy_protocols: vec!["http".into(), "https".into(), "socks5".into()],
        }
    }
}
