//! Replications.

use super::kind::{Bool, Count, Int, Milliseconds, Seconds, Text, Words};

section! {
    /// Replications. Some settings are defaults that replication documents and requests can
    /// override.
    pub struct Replicator in "replicator" {
        /// Maximum number of running replications; others wait.
        max_jobs: Count = "500",
        /// Maximum number of replications by _replicate per user; server admins are not limited.
        max_jobs_per_user: Count = "100",
        /// Time after which running continuous replications give way to waiting ones, in milliseconds.
        interval: Milliseconds = "60000",
        /// Maximum number of running replications that are paused in one interval so that waiting
        /// ones can run.
        max_churn: Count = "20",
        /// Number of events kept in the history of each replication.
        max_history: Count = "20",
        /// Time within which existing replications start after the server's start, in milliseconds.
        startup_jitter: Milliseconds = "5000" [start],
        /// Time after which a running replication counts as healthy again, in seconds.
        health_threshold: Seconds = "120",
        /// Write every state into replication documents; otherwise only completed and failed.
        update_docs: Bool = "false",
        /// Number of concurrent batches of a replication.
        worker_processes: Count = "4",
        /// Number of changes in a batch.
        worker_batch_size: Count = "500",
        /// Maximum number of connections of a replication to one server.
        http_connections: Count = "20",
        /// Time without data from a server after which a request is repeated, in milliseconds.
        connection_timeout: Milliseconds = "30000",
        /// Maximum number of retries of a failed request.
        retries_per_request: Int = "5",
        /// Record the progress of replications.
        use_checkpoints: Bool = "true",
        /// Read several documents in one request, if the server supports it.
        use_bulk_get: Bool = "true",
        /// Time between two checkpoints of a replication, in milliseconds.
        checkpoint_interval: Milliseconds = "30000",
        /// With couch_replicator_auth_session, passwords are exchanged for a session if the server
        /// supports sessions; otherwise every request contains them.
        auth_plugins: Words = "couch_replicator_auth_session,couch_replicator_auth_noop",
        /// Refuse servers with untrusted certificates.
        verify_ssl_certificates: Bool = "false",
        /// A PEM file with the trusted authorities; by default those of the system.
        ssl_trusted_certificates_file: Option<Text>,
        /// A PEM file with the client certificate for servers.
        cert_file: Option<Text>,
        /// A PEM file with the key of that certificate.
        key_file: Option<Text>,
        /// Allowed URL schemes of sources and targets.
        valid_endpoint_protocols: Words = "http,https",
        /// Addresses to which replications of users without the server admin role may connect,
        /// separated by commas: self (the ports that this server listens on), public (addresses of
        /// the Internet), networks like 10.1.0.0/16, any.
        allowed_addresses: Text = "public, self",
        /// Other servers to connect to than those that URLs name, as entries
        /// host:port:target_host:target_port, separated by commas. A host that begins with *. stands
        /// for all names that end so; IPv6 addresses of targets are in brackets. Requests and TLS
        /// keep the name of the URL. Without effect for replications with a proxy.
        connect_to: Option<Text>,
        /// Allowed URL schemes of proxies.
        valid_proxy_protocols: Words = "http,https,socks5",
    }
}
