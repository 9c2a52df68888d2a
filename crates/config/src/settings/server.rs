//! The server: what it listens at, what requests may do, what it logs.

use super::kind::{
    Address, Between, Bool, Int, Limit, Milliseconds, Port, Seconds, Share, Text, Words,
};

section! {
    /// What the server says about itself.
    pub struct Vendor in "vendor" {
        /// Shown by GET /.
        name: Text = "Settee" (active),
    }
}

section! {
    /// The HTTP server. Keys that CouchDB moved here are also looked for in [httpd].
    pub struct Chttpd in "chttpd", older "httpd" {
        /// TCP port; 0 for any free one.
        port: Port = "5984" (active) [start],
        /// IP address to listen at; 0.0.0.0 or :: for all.
        bind_address: Address = "127.0.0.1" (active) [start],
        /// Most connections waiting to be accepted.
        backlog: Int = "512" [start],
        /// Of CouchDB's options {max, N}, the most connections at a time, and {backlog, N} are used; read at start.
        server_options: Text = "[{recbuf, undefined}]" [start],
        /// Accepted for CouchDB's sake; not used.
        socket_options: Text = "[{sndbuf, 262144}, {nodelay, true}]",
        /// Longest time from the first byte of a request to the end of its head, in milliseconds.
        header_timeout: Milliseconds = "20000",
        /// Host names that requests may be for, and Location may name, separated by commas; *.example.org for all
        /// below. Ports do not count, loopback names and /_up need not be listed. All when not set.
        allowed_hosts: Option<Words>,
        /// Refuse all requests without a name and password.
        require_valid_user: Bool = "false",
        /// The same, but let anybody GET /_up.
        require_valid_user_except_for_up: Bool = "false",
        /// How users are recognised, in this order: cookie, default (Basic), proxy, jwt.
        authentication_handlers: Text = "{chttpd_auth, cookie_authentication_handler}, {chttpd_auth, default_authentication_handler}",
        /// Only administrators may list databases.
        admin_only_all_dbs: Bool = "true",
        /// Largest request body, in bytes.
        max_http_request_size: Limit = "4294967296",
        /// Longest request path with query, in bytes.
        max_uri_length: Limit = "infinity",
        /// Most databases in one POST /_dbs_info.
        max_db_number_for_dbs_info_req: Int = "100",
        /// Default, and longest, timeout and heartbeat of a waiting changes feed, in milliseconds.
        changes_timeout: Milliseconds = "60000",
        /// Wrap JSON in a call of the function that the parameter callback names.
        allow_jsonp: Bool = "false",
        /// Headers of an answer that Prefer: return=minimal leaves.
        prefer_minimal: Words = "Cache-Control, Content-Length, Content-Range, Content-Type, ETag, Server, Transfer-Encoding, Vary",
        /// A plus sign in a request's path is a space.
        decode_plus_to_space: Bool = "true",
        /// Name of the header in which a proxy says which host it was asked.
        x_forwarded_host: Text = "X-Forwarded-Host",
        /// Name of the header in which a proxy says https when it was asked so.
        x_forwarded_proto: Text = "X-Forwarded-Proto",
        /// Name of the header in which a proxy says on when it was asked by HTTPS.
        x_forwarded_ssl: Text = "X-Forwarded-Ssl",
        /// Name of the header in which a proxy says below which path it has the server, as /couchdb.
        x_forwarded_prefix: Text = "X-Forwarded-Prefix",
        /// Addresses and networks of proxies, separated by commas. What these say in X-Forwarded-For is the client's
        /// address, for which wrong passwords count. None when not set.
        trusted_proxies: Option<Words>,
        /// Answer cross-origin requests; see [cors].
        enable_cors: Bool = "false",
        /// Send X-Frame-Options; see [x_frame_options].
        enable_xframe_options: Bool = "false",
        /// Rewrite rules may not lead out of their database.
        secure_rewrites: Bool = "true",
        /// Most times that one request is rewritten.
        rewrite_limit: Int = "100",
        /// Value of this header in 401 responses, as Basic realm="server".
        www_authenticate as "WWW-Authenticate": Option<Text>,
    }
}

section! {
    /// HTTPS, beside HTTP. On SIGHUP the files are read again.
    pub struct Ssl in "ssl" {
        /// Listen for HTTPS too.
        enable: Bool = "false" [start],
        /// TCP port.
        port: Port = "6984" [start],
        /// Path of the certificate chain, in PEM.
        cert_file: Option<Text>,
        /// Path of the private key, in PEM.
        key_file: Option<Text>,
        /// Password of the private key, when it is encrypted (PKCS #8).
        password: Option<Text>,
        /// Path of the certificates, in PEM, that those of clients are checked with.
        cacert_file: Option<Text>,
        /// Check the certificates of clients that have one.
        verify_ssl_certificates: Bool = "false",
        /// With verify_ssl_certificates: refuse clients without a certificate.
        fail_if_no_peer_cert: Bool = "false",
        /// Versions allowed, as ['tlsv1.2', 'tlsv1.3']; these two by default.
        tls_versions: Option<Text>,
        /// Cipher suites allowed, by OpenSSL's or the standard's names; all that rustls has by default.
        ciphers: Option<Text>,
        /// Longest time for securing a connection, in milliseconds.
        handshake_timeout: Milliseconds = "10000",
    }
}

section! {
    /// Cross-origin requests from browsers. They are answered when [chttpd] enable_cors is true.
    pub struct Cors in "cors" {
        /// Origins allowed, separated by commas, with scheme; * for all.
        origins: Option<Words>,
        /// Request headers allowed besides the simple ones, separated by commas.
        headers: Option<Words>,
        /// Response headers that pages may read, separated by commas.
        exposed_headers: Option<Words>,
        /// Methods allowed, separated by commas; all that the API has by default.
        methods: Option<Words>,
        /// Allow cookies and passwords. Together with origins = * every page on the web may use its reader's session.
        credentials: Bool = "false",
        /// How long a browser may remember the answer, in seconds.
        max_age: Int = "600",
    }
}

section! {
    /// Showing answers inside other pages. These count when [chttpd] enable_xframe_options is true.
    pub struct XFrameOptions in "x_frame_options" {
        /// Pages of the same origin may show answers inside them.
        same_origin: Bool = "false",
        /// Hosts whose answers may be shown inside other pages, with scheme, separated by commas; * for all.
        hosts: Option<Words>,
    }
}

section! {
    /// The Content-Security-Policy of attachments, and of what shows, lists and updates answer.
    pub struct Csp in "csp" {
        /// Send the header with attachments.
        attachments_enable: Bool = "true",
        /// Its value with attachments.
        attachments_header_value: Text = "sandbox",
        /// Send the header.
        showlist_enable: Bool = "true",
        /// Its value.
        showlist_header_value: Text = "sandbox",
    }
}

section! {
    /// Limits that CouchDB has no name for.
    pub struct Limits in "limits" {
        /// Most changes feeds open at a time.
        max_open_feeds: Int = "10000",
        /// Most keys in the keys of one request.
        max_keys: Limit = "1000000",
        /// Largest body of a request that needs a small one (settings, purges, limits, set-up, searches in text indexes), in bytes.
        max_small_request_size: Int = "1048576",
        /// Largest size that a gzipped body may inflate to, in bytes.
        max_inflated_request_size: Int = "134217728",
        /// How many times its size a gzipped body may inflate to, beyond the first MiB.
        max_inflation_ratio: Int = "200",
        /// Most JSON values in a body whose values are taken apart one by one (keys, revisions, replications).
        max_json_values: Int = "1250000",
        /// Bytes a second that must come of a body after its first minute, on average; 0 for any.
        min_body_rate: Int = "250",
    }
}

section! {
    /// Identifiers that the server makes up.
    pub struct Uuids in "uuids" {
        /// How identifiers are made: sequential, random, utc_random or utc_id.
        algorithm: UuidAlgorithm = "sequential",
        /// What utc_id identifiers end with.
        utc_id_suffix: Option<Text>,
        /// Most identifiers in one GET /_uuids.
        max_count: Int = "1000",
    }
}

section! {
    /// The log.
    pub struct Log in "log" {
        /// Least level that is logged: debug, info, notice, warning, error, critical, alert, emergency, none.
        level: LogLevel = "info" [start],
        /// Where to: stderr or file.
        writer: LogWriter = "stderr" [start],
        /// Path for writer = file.
        file: Text = "./settee.log" [start],
        /// Requests that take longer, in milliseconds, are told in the slow log, feeds aside; 0: none.
        slow_time: Milliseconds = "1000",
        /// Path of the slow log, which has a JSON object a line; empty: its lines are warnings in the log.
        slow_file: Text = "" [start],
        /// Bytes from which on a log file is renamed to NAME.1, and a new one begun; 0: never.
        max_file_size: Int = "104857600" [start],
        /// How many renamed log files are kept, NAME.1 being the newest.
        max_old_files: Between<0, 1000> = "5" [start],
    }
}

section! {
    /// Traces for OpenTelemetry.
    pub struct Tracing in "tracing" {
        /// Where they are sent by OTLP over HTTP, like `http://127.0.0.1:4318`; empty: nowhere. It is read at the start.
        otlp_endpoint: Text = "" [start],
        /// The name of this server in traces. It is read at the start.
        service_name: Text = "settee" [start],
        /// The share of requests without a `traceparent` header that are traced, 0 to 1. Where there is such a header, it decides.
        sample_ratio: Share = "0.01",
        /// Requests that the slow log tells of, and those that fail with 500 or more, are traced too, unless such a header says no.
        always_slow: Bool = "true",
    }
}

section! {
    /// Numbers for Prometheus at a port of their own.
    pub struct Prometheus in "prometheus" {
        /// They are told there, without a login, at /_node/_local/_prometheus.
        additional_port: Bool = "false" [start],
        /// Address of the port. Keep it where only monitoring reaches it.
        bind_address: Address = "127.0.0.1" [start],
        /// The port; 0 takes a free one.
        port: Port = "17986" [start],
    }
}

section! {
    /// Backups that the server makes by itself.
    pub struct Backup in "backup" {
        /// Where they go: a directory, or s3://BUCKET/PREFIX, for this server alone; empty: none are made.
        target: Text = "",
        /// Where else backups may go that are requested over HTTP: absolute directories and s3://BUCKET/PREFIX, each with all below it, separated by commas. Allowed without it: target, directories that hold backups of this server, and those where settee backup, run on this machine, may write.
        targets: Words = "",
        /// Time from one to the next, in seconds.
        every: Seconds = "86400",
        /// After each, keep the last so many. While all of keep_… are 0, no backup is ever removed.
        keep_last: Int = "0",
        /// Keep the last one of each of so many hours.
        keep_hourly: Int = "0",
        /// Keep the last one of each of so many days, which begin at midnight UTC.
        keep_daily: Int = "0",
        /// Keep the last one of each of so many weeks.
        keep_weekly: Int = "0",
        /// Keep the last one of each of so many months.
        keep_monthly: Int = "0",
        /// Keep the last one of each of so many years.
        keep_yearly: Int = "0",
        /// Most bytes a second that are read for a backup, and as many that are sent; 0 for any.
        max_rate: Int = "104857600",
        /// URL of an object store that is not Amazon's. This and the next three win over AWS_ENDPOINT_URL, AWS_REGION, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment.
        s3_endpoint: Option<Text>,
        /// Its region.
        s3_region: Option<Text>,
        /// The name of the key for it.
        s3_access_key_id: Option<Text>,
        /// The key.
        s3_secret_access_key: Option<Text>,
    }
}

section! {
    /// What settee doctor says.
    pub struct Doctor in "doctor" {
        /// Checks that are left out, by their names, separated by commas.
        ignore: Option<Words>,
        /// How old the last backup may be, in seconds.
        backup_age_max: Seconds = "604800",
        /// How long the server runs until indexes that nobody asked since its start are called unused, in seconds.
        unused_index_time: Seconds = "604800",
    }
}

choice! {
    /// The least level that is logged.
    pub enum LogLevel {
        /// Everything.
        Debug = "debug",
        /// What happens.
        Info = "info",
        /// The same as `Info`.
        Notice = "notice",
        /// What may be wrong.
        Warning = "warning" | "warn",
        /// What is wrong.
        Error = "error" | "err",
        /// The same as `Error`.
        Critical = "critical" | "crit",
        /// The same as `Error`.
        Alert = "alert",
        /// The same as `Error`.
        Emergency = "emergency" | "emerg",
        /// Nothing.
        None = "none",
    }
}

choice! {
    /// Where the log goes.
    pub enum LogWriter {
        /// Standard error.
        Stderr = "stderr",
        /// The file of `[log] file`.
        File = "file",
        /// Standard error, which systemd gives to its journal.
        Journald = "journald",
        /// Standard error.
        Syslog = "syslog",
    }
}

choice! {
    /// How identifiers are made.
    pub enum UuidAlgorithm {
        /// A random part, and a number that grows.
        Sequential = "sequential",
        /// 128 random bits.
        Random = "random",
        /// The time, and a random part.
        UtcRandom = "utc_random",
        /// The time, and `[uuids] utc_id_suffix`.
        UtcId = "utc_id",
    }
}
