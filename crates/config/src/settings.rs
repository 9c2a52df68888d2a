//! Every setting that Settee understands, with its default: the one place where defaults are.
//!
//! To add a setting, add a line to [`SETTINGS`] and run `cargo run --release -p config --example default_ini`, which
//! rewrites `default.ini` from this table (a test fails while the two differ).

/// What values a setting may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Any text.
    Text,
    /// `true` or `false`.
    Bool,
    /// A whole number from 0.
    Int,
    /// A whole number from 0, or `infinity`.
    Limit,
    /// One of these words.
    OneOf(&'static [&'static str]),
}

impl Kind {
    /// Whether `value` is of this kind.
    pub fn accepts(self, value: &str) -> bool {
        match self {
            Kind::Text => true,
            Kind::Bool => matches!(value, "true" | "false"),
            Kind::Int => value.parse::<u64>().is_ok(),
            Kind::Limit => value == "infinity" || value.parse::<u64>().is_ok(),
            Kind::OneOf(words) => words.contains(&value),
        }
    }

    /// What to tell who set another value.
    pub fn expected(self) -> String {
        match self {
            Kind::Text => "text".to_owned(),
            Kind::Bool => "true or false".to_owned(),
            Kind::Int => "a whole number".to_owned(),
            Kind::Limit => "a whole number or infinity".to_owned(),
            Kind::OneOf(words) => format!("one of {}", words.join(", ")),
        }
    }
}

/// A setting.
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    /// Section.
    pub section: &'static str,
    /// Key.
    pub key: &'static str,
    /// What values are allowed.
    pub kind: Kind,
    /// Value when nothing is configured; `None` when there is none.
    pub default: Option<&'static str>,
    /// Whether `default.ini` sets it, so that `_node/_local/_config` shows it (others answer 404, as in CouchDB).
    pub active: bool,
    /// What it does, with its unit.
    pub doc: &'static str,
}

const fn set(
    section: &'static str,
    key: &'static str,
    kind: Kind,
    default: &'static str,
    doc: &'static str,
) -> Setting {
    Setting {
        section,
        key,
        kind,
        default: Some(default),
        active: false,
        doc,
    }
}

const fn active(
    section: &'static str,
    key: &'static str,
    kind: Kind,
    default: &'static str,
    doc: &'static str,
) -> Setting {
    Setting {
        section,
        key,
        kind,
        default: Some(default),
        active: true,
        doc,
    }
}

const fn unset(section: &'static str, key: &'static str, kind: Kind, doc: &'static str) -> Setting {
    Setting {
        section,
        key,
        kind,
        default: None,
        active: false,
        doc,
    }
}

use Kind::{Bool, Int, Limit, OneOf, Text};

/// The sections of `default.ini`, in order, with what each is about.
pub const SECTIONS: &[(&str, &str)] = &[
    ("vendor", "What the server says about itself."),
    ("couchdb", "Databases and documents."),
    ("cluster", "How a new database is divided and copied."),
    (
        "chttpd",
        "The HTTP server. Keys that are not here are also looked for in [httpd], as in CouchDB.",
    ),
    ("httpd", "Older name of [chttpd]."),
    (
        "chttpd_auth",
        "Sessions and passwords. Keys that are not here are also looked for in [couch_httpd_auth].",
    ),
    ("couch_httpd_auth", "Older name of [chttpd_auth]."),
    (
        "chttpd_auth_lockout",
        "What happens to a client that keeps giving wrong passwords.",
    ),
    (
        "jwt_auth",
        "JSON Web Tokens, when jwt_authentication_handler is among [chttpd] authentication_handlers.",
    ),
    (
        "jwt_keys",
        "Keys of tokens, one a line: hmac:KID = base64 of the secret, rsa:KID or ec:KID = public key in PEM with \\n for \
         line ends. The KID _default is for tokens that name none.",
    ),
    ("couch_peruser", "A database for each user."),
    (
        "admins",
        "Server administrators, one a line: name = password. A plain password is replaced by its hash at start.",
    ),
    ("uuids", "Identifiers that the server makes up."),
    (
        "feature_flags",
        "Which databases may use a feature: feature||name pattern = true.",
    ),
    (
        "replicator",
        "Replications. Those that documents or requests may set for themselves are defaults here.",
    ),
    ("log", "The log."),
    (
        "cors",
        "Cross-origin requests from browsers. They are answered when [chttpd] enable_cors is true.",
    ),
    (
        "x_frame_options",
        "Showing answers inside other pages. These count when [chttpd] enable_xframe_options is true.",
    ),
    (
        "global_changes",
        "The database of events behind _db_updates.",
    ),
    (
        "ssl",
        "HTTPS, beside HTTP. On SIGHUP the files are read again.",
    ),
    ("mango", "Queries with _find."),
    ("purge", "Purging documents."),
    (
        "functions",
        "JavaScript functions of design documents. An index keeps what it used when it was opened.",
    ),
    (
        "query_servers",
        "Programs that run the functions of other languages, by CouchDB's line protocol: language = command line. \
         The word builtin stands for a server that comes with Settee (nodejs, erlang). They run with all rights of \
         the server's user.",
    ),
    ("ken", "Building indexes in the background after writes."),
    ("native_query_servers", "CouchDB's way to allow Erlang."),
    (
        "query_server_config",
        "The programs of [query_servers], and reductions.",
    ),
    ("attachments", "How attachments are stored."),
    (
        "csp",
        "The Content-Security-Policy of attachments, and of what shows, lists and updates answer.",
    ),
    ("limits", "Limits that CouchDB has no name for."),
    ("rocksdb", "The storage engine."),
    ("compaction", "Reclaiming the space of old revisions."),
];

/// All settings, in the order of `default.ini`.
#[rustfmt::skip] // One line each: a table.
pub const SETTINGS: &[Setting] = &[
    active("vendor", "name", Text, "Settee", "Shown by GET /."),
    // [couchdb]
    active("couchdb", "database_dir", Text, "./data", "Folder of all data."),
    unset("couchdb", "uuid", Text, "Identifier of this server; made up and kept at first start."),
    set("couchdb", "node_name", Text, "settee@127.0.0.1", "Name of this server among the nodes of a cluster, as CouchDB has it by -name: name@host. Read at start."),
    set("couchdb", "maintenance_mode", OneOf(&["false", "true", "nolb"]), "false", "What /_up tells load balancers: true and nolb are a 404."),
    set("couchdb", "max_document_size", Limit, "8000000", "Largest document body, in bytes of JSON."),
    set("couchdb", "max_partition_size", Limit, "10737418240", "Size from which a partition takes no more documents, in bytes."),
    set("couchdb", "max_attachment_size", Limit, "1073741824", "Largest attachment, in bytes."),
    set("couchdb", "max_attachments_per_document", Limit, "infinity", "Most attachments of a document."),
    set("couchdb", "max_document_id_length", Limit, "infinity", "Longest document id, in bytes."),
    set("couchdb", "max_bulk_docs_count", Limit, "250000", "Most documents in one _bulk_docs request; each takes about a kilobyte besides its text."),
    set("couchdb", "max_bulk_get_count", Limit, "infinity", "Most documents in one _bulk_get request."),
    set("couchdb", "users_db_security_editable", Bool, "false", "Let administrators change the security object of the database of users."),
    set("couchdb", "default_security", OneOf(&["admin_only", "everyone", "admin_local"]), "admin_only", "Who may use a database that has no security object of its own."),
    set("couchdb", "delayed_commits", Bool, "false", "Acknowledge writes before they are on disk."),
    set("couchdb", "os_process_timeout", Int, "5000", "Longest time for one answer of a query server, in milliseconds."),
    set("couchdb", "single_node", Bool, "true", "Create the databases _users, _replicator and _global_changes at start."),
    set("couchdb", "users_db_suffix", Text, "_users", "Databases whose name, or its last part after a slash, is this are under the rules of users, besides _users."),
    // [cluster]
    active("cluster", "q", Int, "2", "Shards of a new database."),
    active("cluster", "n", Int, "1", "Copies of each shard."),
    // [chttpd]
    active("chttpd", "port", Int, "5984", "TCP port; 0 for any free one."),
    active("chttpd", "bind_address", Text, "127.0.0.1", "IP address to listen at; 0.0.0.0 or :: for all."),
    set("chttpd", "backlog", Int, "512", "Most connections waiting to be accepted."),
    set("chttpd", "server_options", Text, "[{recbuf, undefined}]", "Of CouchDB's options {max, N}, the most connections at a time, and {backlog, N} are used; read at start."),
    set("chttpd", "socket_options", Text, "[{sndbuf, 262144}, {nodelay, true}]", "Accepted for CouchDB's sake; not used."),
    set("chttpd", "header_timeout", Int, "20000", "Longest time from the first byte of a request to the end of its head, in milliseconds."),
    unset("chttpd", "allowed_hosts", Text, "Host names that requests may be for, and Location may name, separated by commas; *.example.org for all below. Ports do not count, loopback names and /_up need not be listed. All when not set."),
    set("chttpd", "require_valid_user", Bool, "false", "Refuse all requests without a name and password."),
    set("chttpd", "require_valid_user_except_for_up", Bool, "false", "The same, but let anybody GET /_up."),
    set("chttpd", "authentication_handlers", Text, "{chttpd_auth, cookie_authentication_handler}, {chttpd_auth, default_authentication_handler}", "How users are recognised, in this order: cookie, default (Basic), proxy, jwt."),
    set("chttpd", "admin_only_all_dbs", Bool, "true", "Only administrators may list databases."),
    set("chttpd", "max_http_request_size", Limit, "4294967296", "Largest request body, in bytes."),
    set("chttpd", "max_uri_length", Limit, "infinity", "Longest request path with query, in bytes."),
    set("chttpd", "max_db_number_for_dbs_info_req", Int, "100", "Most databases in one POST /_dbs_info."),
    set("chttpd", "changes_timeout", Int, "60000", "Default, and longest, timeout and heartbeat of a waiting changes feed, in milliseconds."),
    set("chttpd", "allow_jsonp", Bool, "false", "Wrap JSON in a call of the function that the parameter callback names."),
    set("chttpd", "prefer_minimal", Text, "Cache-Control, Content-Length, Content-Range, Content-Type, ETag, Server, Transfer-Encoding, Vary", "Headers of an answer that Prefer: return=minimal leaves."),
    set("chttpd", "decode_plus_to_space", Bool, "true", "A plus sign in a request's path is a space."),
    set("chttpd", "x_forwarded_host", Text, "X-Forwarded-Host", "Name of the header in which a proxy says which host it was asked."),
    set("chttpd", "x_forwarded_proto", Text, "X-Forwarded-Proto", "Name of the header in which a proxy says https when it was asked so."),
    set("chttpd", "x_forwarded_ssl", Text, "X-Forwarded-Ssl", "Name of the header in which a proxy says on when it was asked by HTTPS."),
    set("chttpd", "enable_cors", Bool, "false", "Answer cross-origin requests; see [cors]."),
    set("chttpd", "enable_xframe_options", Bool, "false", "Send X-Frame-Options; see [x_frame_options]."),
    set("chttpd", "secure_rewrites", Bool, "true", "Rewrite rules may not lead out of their database."),
    set("chttpd", "rewrite_limit", Int, "100", "Most times that one request is rewritten."),
    unset("chttpd", "WWW-Authenticate", Text, "Value of this header in 401 responses, as Basic realm=\"server\"."),
    // [chttpd_auth]
    unset("chttpd_auth", "secret", Text, "Key that signs session cookies; made up and kept at first start."),
    set("chttpd_auth", "timeout", Int, "600", "Life of a session after its last use, in seconds."),
    set("chttpd_auth", "allow_persistent_cookies", Bool, "true", "Let browsers keep sessions over restarts."),
    set("chttpd_auth", "hash_algorithms", Text, "sha256, sha", "Hashes that sign session cookies: the first signs, all are accepted (sha, sha224, sha256, sha384, sha512)."),
    set("chttpd_auth", "iterations", Int, "600000", "PBKDF2 iterations of new password hashes."),
    set("chttpd_auth", "pbkdf2_prf", OneOf(&["sha", "sha224", "sha256", "sha384", "sha512"]), "sha256", "Hash of new password hashes."),
    set("chttpd_auth", "authentication_db", Text, "_users", "Name of the database that users log in from."),
    set("chttpd_auth", "password_scheme", OneOf(&["pbkdf2", "simple"]), "pbkdf2", "How passwords of new user documents are hashed."),
    unset("chttpd_auth", "password_regexp", Text, "Regular expressions that new passwords of users must match: a list of \"expression\" or {\"expression\", \"reason\"}."),
    set("chttpd_auth", "upgrade_hash_on_auth", Bool, "true", "Hash a user's password anew at login when it was hashed by other settings than these."),
    set("chttpd_auth", "min_iterations", Int, "1", "Users whose hashes have fewer PBKDF2 iterations are refused."),
    set("chttpd_auth", "max_iterations", Int, "2000000", "Users whose hashes have more PBKDF2 iterations are refused."),
    unset("chttpd_auth", "public_fields", Text, "Members of user documents that everybody may see who may read the database, separated by commas."),
    set("chttpd_auth", "proxy_use_secret", Bool, "false", "Proxy authentication: believe only requests whose token was made with the secret."),
    set("chttpd_auth", "x_auth_username", Text, "X-Auth-CouchDB-UserName", "Proxy authentication: header with the name."),
    set("chttpd_auth", "x_auth_roles", Text, "X-Auth-CouchDB-Roles", "Proxy authentication: header with the roles, separated by commas."),
    set("chttpd_auth", "x_auth_token", Text, "X-Auth-CouchDB-Token", "Proxy authentication: header with the token, the HMAC of the name in hex."),
    set("chttpd_auth", "auth_cache_size", Int, "10000", "Most names with passwords remembered as right, and most user documents kept in memory."),
    set("chttpd_auth", "authentication_redirect", Text, "/_utils/session.html", "Where a browser without a session is sent."),
    unset("chttpd_auth", "cookie_domain", Text, "Domain attribute of session cookies."),
    set("chttpd_auth", "same_site", OneOf(&["lax", "strict", "none", "omit"]), "lax", "SameSite attribute of session cookies: lax, strict, none (browsers want HTTPS for it), or omit for no such attribute."),
    // [chttpd_auth_lockout]
    set("chttpd_auth_lockout", "mode", OneOf(&["enforce", "warn", "off"]), "enforce", "enforce refuses the client, warn and off do not."),
    set("chttpd_auth_lockout", "threshold", Int, "5", "Wrong passwords, for one name from one address (of IPv6 one /64), until it is refused."),
    set("chttpd_auth_lockout", "max_lifetime", Int, "300000", "How long wrong passwords are counted, in milliseconds."),
    set("chttpd_auth_lockout", "max_objects", Int, "10000", "Most names with addresses counted at a time."),
    // [jwt_auth]
    set("jwt_auth", "required_claims", Text, "exp", "Claims that a token must have and that are checked: exp, nbf, iat, typ, kid, {iss, \"issuer\"}."),
    set("jwt_auth", "roles_claim_name", Text, "_couchdb.roles", "Claim with the roles, a list or a text with commas."),
    unset("jwt_auth", "roles_claim_path", Text, "Path of the claim with the roles, its parts separated by dots (\\. is a dot); counts before roles_claim_name."),
    // [couch_peruser]
    set("couch_peruser", "enable", Bool, "false", "Make a database for each user of the database of users, that only the user can use."),
    set("couch_peruser", "delete_dbs", Bool, "false", "Delete a user's database with the user."),
    set("couch_peruser", "database_prefix", Text, "userdb-", "What its name begins with; the user's name in hex follows."),
    unset("couch_peruser", "q", Int, "Shards of such databases; [cluster] q when not set."),
    // [uuids]
    set("uuids", "algorithm", OneOf(&["sequential", "random", "utc_random", "utc_id"]), "sequential", "How identifiers are made: sequential, random, utc_random or utc_id."),
    unset("uuids", "utc_id_suffix", Text, "What utc_id identifiers end with."),
    set("uuids", "max_count", Int, "1000", "Most identifiers in one GET /_uuids."),
    // [feature_flags]
    active("feature_flags", "partitioned||*", Bool, "true", "Partitioned databases."),
    // [replicator]
    set("replicator", "max_jobs", Int, "500", "Replications that run at once; others wait for their turn."),
    set("replicator", "max_jobs_per_user", Int, "100", "Replications by _replicate that one user may have at a time who is no server admin."),
    set("replicator", "interval", Int, "60000", "Time after which running continuous replications give way to waiting ones, in milliseconds."),
    set("replicator", "max_churn", Int, "20", "Replications that give way at once."),
    set("replicator", "max_history", Int, "20", "Events remembered of each replication."),
    set("replicator", "startup_jitter", Int, "5000", "Replications that are there when the server starts begin within this time, in milliseconds."),
    set("replicator", "health_threshold", Int, "120", "A replication that runs this long is healthy again, in seconds."),
    set("replicator", "update_docs", Bool, "false", "Write every state into the documents of replications; otherwise only completed and failed."),
    set("replicator", "worker_processes", Int, "4", "Batches of a replication that are worked on at once."),
    set("replicator", "worker_batch_size", Int, "500", "Changes in a batch."),
    set("replicator", "http_connections", Int, "20", "Connections of a replication to one server."),
    set("replicator", "connection_timeout", Int, "30000", "Longest silence of a server before the request is repeated, in milliseconds."),
    set("replicator", "retries_per_request", Int, "5", "Repetitions of a request that fails."),
    set("replicator", "use_checkpoints", Bool, "true", "Record how far replications have come."),
    set("replicator", "use_bulk_get", Bool, "true", "Read many documents in one request, from servers that can."),
    set("replicator", "checkpoint_interval", Int, "30000", "Time between two checkpoints of a replication, in milliseconds."),
    set("replicator", "auth_plugins", Text, "couch_replicator_auth_session,couch_replicator_auth_noop", "With couch_replicator_auth_session, passwords are exchanged for a session where a server has sessions; otherwise every request carries them."),
    set("replicator", "verify_ssl_certificates", Bool, "false", "Refuse servers whose certificates are not trusted."),
    unset("replicator", "ssl_trusted_certificates_file", Text, "A PEM file with the authorities to trust; without it those of the system."),
    unset("replicator", "cert_file", Text, "A PEM file with the certificate to show to servers."),
    unset("replicator", "key_file", Text, "A PEM file with its key."),
    set("replicator", "valid_endpoint_protocols", Text, "http,https", "Schemes that sources and targets may have."),
    set("replicator", "allowed_addresses", Text, "public, self", "Where replications of users who are no server admins may connect to, separated by commas: self (the ports that this server listens on), public (addresses of the Internet), networks like 10.1.0.0/16, any."),
    set("replicator", "valid_proxy_protocols", Text, "http,https,socks5", "Schemes that proxies may have."),
    // [log]
    set("log", "level", OneOf(&["debug", "info", "notice", "warning", "warn", "error", "err", "critical", "crit", "alert", "emergency", "emerg", "none"]), "info", "Least level that is logged: debug, info, notice, warning, error, critical, alert, emergency, none."),
    set("log", "writer", OneOf(&["stderr", "file", "journald", "syslog"]), "stderr", "Where to: stderr or file."),
    set("log", "file", Text, "./settee.log", "Path for writer = file."),
    // [cors]
    unset("cors", "origins", Text, "Origins allowed, separated by commas, with scheme; * for all."),
    unset("cors", "headers", Text, "Request headers allowed besides the simple ones, separated by commas."),
    unset("cors", "exposed_headers", Text, "Response headers that pages may read, separated by commas."),
    unset("cors", "methods", Text, "Methods allowed, separated by commas; all that the API has by default."),
    set("cors", "credentials", Bool, "false", "Allow cookies and passwords. Together with origins = * every page on the web may use its reader's session."),
    set("cors", "max_age", Int, "600", "How long a browser may remember the answer, in seconds."),
    // [x_frame_options]
    set("x_frame_options", "same_origin", Bool, "false", "Pages of the same origin may show answers inside them."),
    unset("x_frame_options", "hosts", Text, "Hosts whose answers may be shown inside other pages, with scheme, separated by commas; * for all."),
    // [global_changes]
    set("global_changes", "update_db", Bool, "true", "Keep _global_changes, which _db_updates shows."),
    set("global_changes", "max_event_delay", Int, "25", "How long events are gathered when there were none before, in milliseconds."),
    set("global_changes", "max_write_delay", Int, "500", "Shortest time between two writes to _global_changes, in milliseconds."),
    // [ssl]
    set("ssl", "enable", Bool, "false", "Listen for HTTPS too."),
    set("ssl", "port", Int, "6984", "TCP port."),
    unset("ssl", "cert_file", Text, "Path of the certificate chain, in PEM."),
    unset("ssl", "key_file", Text, "Path of the private key, in PEM."),
    unset("ssl", "password", Text, "Password of the private key, when it is encrypted (PKCS #8)."),
    unset("ssl", "cacert_file", Text, "Path of the certificates, in PEM, that those of clients are checked with."),
    set("ssl", "verify_ssl_certificates", Bool, "false", "Check the certificates of clients that have one."),
    set("ssl", "fail_if_no_peer_cert", Bool, "false", "With verify_ssl_certificates: refuse clients without a certificate."),
    unset("ssl", "tls_versions", Text, "Versions allowed, as ['tlsv1.2', 'tlsv1.3']; these two by default."),
    unset("ssl", "ciphers", Text, "Cipher suites allowed, by OpenSSL's or the standard's names; all that rustls has by default."),
    set("ssl", "handshake_timeout", Int, "10000", "Longest time for securing a connection, in milliseconds."),
    // [mango]
    set("mango", "default_limit", Int, "25", "Documents that _find returns when the query says nothing."),
    set("mango", "index_scan_warning_threshold", Int, "10", "Documents looked at for each found, from which _find warns; 0 for never."),
    set("mango", "scan_limit", Int, "0", "Most documents that _find looks at when no index serves; a query that needs more is refused. 0 for any number."),
    set("mango", "max_selector_depth", Int, "64", "Levels of conditions in a selector."),
    set("mango", "max_selector_conditions", Int, "10000", "Operators and field names in a selector; values of $in do not count."),
    set("mango", "max_selector_regexes", Int, "64", "Regular expressions in a selector."),
    set("mango", "max_regex_size", Int, "393216", "Memory of one compiled regular expression, in bytes: the time that it takes grows with it."),
    set("mango", "max_aggregate_groups", Int, "100000", "Groups of one aggregate."),
    set("mango", "max_aggregate_values", Int, "1000000", "Values that $distinct holds, in all groups of an aggregate."),
    set("mango", "max_aggregate_bytes", Int, "268435456", "Memory of the groups of one aggregate and their values, in bytes."),
    // [purge]
    set("purge", "max_document_id_number", Int, "100", "Most documents in one _purge request."),
    set("purge", "max_revisions_number", Int, "1000", "Most revisions in one _purge request."),
    // [functions]
    set("functions", "time_limit_ms", Int, "5000", "Longest time of a function for one document, or of one call, in milliseconds."),
    set("functions", "memory_limit_bytes", Int, "67108864", "Memory of one JavaScript heap, in bytes; at most 1073741824 counts."),
    set("functions", "stack_limit_bytes", Int, "524288", "Stack of JavaScript's calls, in bytes."),
    set("functions", "emit_rows_limit", Int, "100000", "Most rows that one function may emit for one document."),
    set("functions", "emit_bytes_limit", Int, "67108864", "Most JSON that the functions of a design document may emit for one document, and that any other may answer, in bytes."),
    set("functions", "isolation", OneOf(&["thread", "process"]), "process", "process runs JavaScript in worker processes, which can be killed whatever the function does; thread inside the server, where one long call of a built-in function ends when it ends."),
    set("functions", "workers_limit", Int, "0", "Functions of one database that run at a time, of any language: so many that requests and feeds call (shows, updates, rewrites, filters), so many that validate writes, and so many that indexes need (maps, reduces). Another place of each kind is for other databases. 0 means one a core; at least 2 count."),
    set("functions", "queue_limit", Int, "2048", "Most requests that wait for a place of one kind. Beyond, the database with most of them waiting gets 503 for its newest."),
    set("functions", "queue_time_limit_ms", Int, "10000", "Longest time that a show, list, update or rewrite waits for a place, in milliseconds; then the request gets 503."),
    // [ken]
    set("ken", "enable", Bool, "true", "Keep the indexes of design documents up in the background."),
    set("ken", "limit", Int, "20", "Most indexes that are built in the background at a time."),
    // [native_query_servers]
    set("native_query_servers", "enable_erlang_query_server", Bool, "false", "Run Erlang functions, when Erlang is installed."),
    // [query_server_config]
    set("query_server_config", "os_process_limit", Int, "100", "Most processes of one language."),
    set("query_server_config", "os_process_soft_limit", Int, "100", "Processes of one language that are kept when nobody waits for one."),
    set("query_server_config", "os_process_idle_limit", Int, "300", "How long an unused process is kept, in seconds."),
    set("query_server_config", "reduce_limit", OneOf(&["true", "false", "log"]), "true", "Whether a reduction that does not shrink is an error; log only logs it."),
    set("query_server_config", "reduce_limit_threshold", Int, "5000", "Size from which a reduction has to shrink, in bytes."),
    set("query_server_config", "reduce_limit_ratio", Text, "2.0", "How many times smaller than its input it has to be."),
    set("query_server_config", "query_limit", Limit, "268435456", "Most rows that one query of a view may ask for, and gets."),
    set("query_server_config", "partition_query_limit", Limit, "268435456", "The same for a query of one partition."),
    // [attachments]
    active("attachments", "compression_level", Int, "8", "How much attachments of compressible types are compressed: 1 to 9, 0 for not at all."),
    active("attachments", "compressible_types", Text, "text/*, application/javascript, application/json, application/xml", "Content types of attachments that are stored compressed, separated by commas; * stands for anything."),
    // [csp]
    set("csp", "attachments_enable", Bool, "true", "Send the header with attachments."),
    set("csp", "attachments_header_value", Text, "sandbox", "Its value with attachments."),
    set("csp", "showlist_enable", Bool, "true", "Send the header."),
    set("csp", "showlist_header_value", Text, "sandbox", "Its value."),
    // [limits]
    set("limits", "max_open_feeds", Int, "10000", "Most changes feeds open at a time."),
    set("limits", "max_keys", Limit, "1000000", "Most keys in the keys of one request."),
    set("limits", "max_small_request_size", Int, "1048576", "Largest body of a request that needs a small one (settings, purges, limits, set-up), in bytes."),
    set("limits", "max_inflated_request_size", Int, "134217728", "Largest size that a gzipped body may inflate to, in bytes."),
    set("limits", "max_inflation_ratio", Int, "200", "How many times its size a gzipped body may inflate to, beyond the first MiB."),
    set("limits", "max_json_values", Int, "1250000", "Most JSON values in a body whose values are taken apart one by one (keys, revisions, replications)."),
    set("limits", "min_body_rate", Int, "250", "Bytes a second that must come of a body after its first minute, on average; 0 for any."),
    // [rocksdb]
    set("rocksdb", "block_cache_size", Int, "268435456", "Memory for blocks read, in bytes."),
    set("rocksdb", "write_buffer_size", Int, "100663296", "Memory that gathers writes, of all keyspaces together, in bytes."),
    set("rocksdb", "max_background_jobs", Int, "2", "Threads that flush and compact."),
    // [compaction]
    set("compaction", "enable", Bool, "true", "Compact databases on their own when enough has gathered."),
];

/// The setting of this name.
pub fn find(section: &str, key: &str) -> Option<&'static Setting> {
    SETTINGS
        .iter()
        .find(|s| s.section == section && s.key == key)
}

/// The section that CouchDB looks in next when a key is not in `section`.
pub fn older_section(section: &str) -> Option<&'static str> {
    match section {
        "chttpd" => Some("httpd"),
        "chttpd_auth" => Some("couch_httpd_auth"),
        _ => None,
    }
}

/// The text of `default.ini`.
pub fn default_ini() -> String {
    let mut text = String::from(
        "; The settings of Settee and their defaults. This file is built into the program: put your own values into\n\
         ; local.ini. A line that begins with a semicolon only shows a default. Sections and keys are CouchDB's where\n\
         ; CouchDB has them.\n\
         ;\n\
         ; Made from crates/config/src/settings.rs by: cargo run --release -p config --example default_ini\n",
    );
    for (section, doc) in SECTIONS {
        text.push_str(&format!("\n; {doc}\n[{section}]\n"));
        for setting in SETTINGS.iter().filter(|s| s.section == *section) {
            text.push_str(&line(setting));
        }
    }
    text
}

fn line(setting: &Setting) -> String {
    let mark = if setting.active { "" } else { ";" };
    let value = setting.default.map(|v| format!(" {v}")).unwrap_or_default();
    format!("; {}\n{mark}{} ={value}\n", setting.doc, setting.key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ini;

    #[test]
    fn default_ini_is_what_the_table_says() {
        assert_eq!(
            crate::DEFAULT_INI,
            default_ini(),
            "run: cargo run --release -p config --example default_ini"
        );
    }

    #[test]
    fn default_ini_mentions_every_setting_with_its_default() {
        for setting in SETTINGS {
            let block = crate::DEFAULT_INI
                .split_once(&format!("[{}]\n", setting.section))
                .expect(setting.section)
                .1;
            let block = block.split("\n[").next().unwrap_or(block);
            assert!(
                block.contains(&line(setting)),
                "[{}] {}",
                setting.section,
                setting.key
            );
        }
    }

    #[test]
    fn default_ini_sets_only_what_is_active() {
        let (entries, ignored) = ini::parse(crate::DEFAULT_INI);
        let set: Vec<_> = entries
            .iter()
            .map(|e| (e.section.as_str(), e.key.as_str(), e.value.as_deref()))
            .collect();
        let active: Vec<_> = SETTINGS
            .iter()
            .filter(|s| s.active)
            .map(|s| (s.section, s.key, s.default))
            .collect();
        assert_eq!(set, active);
        assert_eq!(ignored, Vec::<usize>::new());
    }

    #[test]
    fn every_default_is_of_its_kind_and_every_setting_has_a_section() {
        for setting in SETTINGS {
            assert!(
                setting.default.is_none_or(|v| setting.kind.accepts(v)),
                "{setting:?}"
            );
            assert!(
                SECTIONS.iter().any(|(name, _)| *name == setting.section),
                "{setting:?}"
            );
        }
    }
}
