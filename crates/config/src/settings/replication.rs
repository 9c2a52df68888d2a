//! Replications.

use super::kind::{Bool, Count, Int, Milliseconds, Seconds, Text, Words};

section! {
    /// Replications. Those that documents or requests may set for themselves are defaults here.
    pub struct Replicator in "replicator" {
        /// Replications that run at once; others wait for their turn.
        max_jobs: Count = "500",
        /// Replications by _replicate that one user may have at a time who is no server admin.
        max_jobs_per_user: Count = "100",
        /// Time after which running continuous replications give way to waiting ones, in milliseconds.
        interval: Milliseconds = "60000",
        /// Replications that give way at once.
        max_churn: Count = "20",
        /// Events remembered of each replication.
        max_history: Count = "20",
        /// Replications that are there when the server starts begin within this time, in milliseconds.
        startup_jitter: Milliseconds = "5000" [start],
        /// A replication that runs this long is healthy again, in seconds.
        health_threshold: Seconds = "120",
        /// Write every state into the documents of replications; otherwise only completed and failed.
        update_docs: Bool = "false",
        /// Batches of a replication that are worked on at once.
        worker_processes: Count = "4",
        /// Changes in a batch.
        worker_batch_size: Count = "500",
        /// Connections of a replication to one server.
        http_connections: Count = "20",
        /// Longest silence of a server before the request is repeated, in milliseconds.
        connection_timeout: Milliseconds = "30000",
        /// Repetitions of a request that fails.
        retries_per_request: Int = "5",
        /// Record how far replications have come.
        use_checkpoints: Bool = "true",
        /// Read many documents in one request, from servers that can.
        use_bulk_get: Bool = "true",
        /// Time between two checkpoints of a replication, in milliseconds.
        checkpoint_interval: Milliseconds = "30000",
        /// With couch_replicator_auth_session, passwords are exchanged for a session where a server has sessions;
        /// otherwise every request carries them.
        auth_plugins: Words = "couch_replicator_auth_session,couch_replicator_auth_noop",
        /// Refuse servers whose certificates are not trusted.
        verify_ssl_certificates: Bool = "false",
        /// A PEM file with the authorities to trust; without it those of the system.
        ssl_trusted_certificates_file: Option<Text>,
        /// A PEM file with the certificate to show to servers.
        cert_file: Option<Text>,
        /// A PEM file with its key.
        key_file: Option<Text>,
        /// Schemes that sources and targets may have.
        valid_endpoint_protocols: Words = "http,https",
        /// Where replications of users who are no server admins may connect to, separated by commas: self (the ports
        /// that this server listens on), public (addresses of the Internet), networks like 10.1.0.0/16, any.
        allowed_addresses: Text = "public, self",
        /// Schemes that proxies may have.
        valid_proxy_protocols: Words = "http,https,socks5",
    }
}
