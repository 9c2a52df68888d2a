//! The server: its addresses, limits of requests, and its log.

use super::kind::{
    Address, Bool, BoundedInteger, Int, Limit, Milliseconds, Port, Seconds, Share, Text, Words,
};

section! {
    /// Vendor information that the server reports.
    pub struct Vendor in "vendor" {
        /// Shown by GET /.
        name: Text = "Settee" (active),
    }
}

section! {
    /// The HTTP server. Keys that CouchDB moved here are also read from [httpd].
    pub struct Chttpd in "chttpd", older "httpd" {
        /// TCP port; 0 for any free one.
        port: Port = "5984" (active) [start],
        /// IP address to listen on; 0.0.0.0 or :: for all.
        bind_address: Address = "127.0.0.1" (active) [start],
        /// Maximum number of connections waiting to be accepted.
        backlog: Int = "512" [start],
        /// CouchDB's options {max, N}, the maximum number of connections, and {backlog, N}; others
        /// are ignored. Read at start.
        server_options: Text = "[{recbuf, undefined}]" [start],
        /// Accepted for compatibility with CouchDB; not used.
        socket_options: Text = "[{sndbuf, 262144}, {nodelay, true}]",
        /// Maximum time from the first byte of a request to the end of its head, in milliseconds.
        header_timeout: Milliseconds = "20000",
        /// Host names that requests may use, and Location may contain, separated by commas;
        /// *.example.org includes all subdomains. Ports are ignored; loopback names and /_up are
        /// always allowed. By default all are allowed.
        allowed_hosts: Option<Words>,
        /// Refuse all requests without a name and password.
        require_valid_user: Bool = "false",
        /// Refuse all requests without a name and password, except GET /_up.
        require_valid_user_except_for_up: Bool = "false",
        /// Authentication methods in the order in which they are tried: cookie, default (Basic),
        /// proxy, jwt.
        authentication_handlers: Text = "{chttpd_auth, cookie_authentication_handler}, {chttpd_auth, default_authentication_handler}",
        /// Only administrators may list databases.
        admin_only_all_dbs: Bool = "true",
        /// Maximum size of a request body, in bytes.
        max_http_request_size: Limit = "4294967296",
        /// Maximum length of a request path with query, in bytes.
        max_uri_length: Limit = "infinity",
        /// Header whose address design functions see as the client's (peer). Without it, or where it
        /// has no address, they see the address of the connection. Set it only behind a proxy that
        /// sets the header.
        peer_header: Option<Text>,
        /// Maximum number of databases in one POST /_dbs_info.
        max_db_number_for_dbs_info_req: Int = "100",
        /// Default and maximum timeout and heartbeat of a waiting changes feed, in milliseconds.
        changes_timeout: Milliseconds = "60000",
        /// Wrap JSON in a call of the function named by the parameter callback.
        allow_jsonp: Bool = "false",
        /// Response headers that are kept with Prefer: return=minimal.
        prefer_minimal: Words = "Cache-Control, Content-Length, Content-Range, Content-Type, ETag, Server, Transfer-Encoding, Vary",
        /// Decode a plus sign in a request's path as a space.
        decode_plus_to_space: Bool = "true",
        /// Header in which a proxy passes the requested host.
        x_forwarded_host: Text = "X-Forwarded-Host",
        /// Header in which a proxy passes https for requests by HTTPS.
        x_forwarded_proto: Text = "X-Forwarded-Proto",
        /// Header in which a proxy passes on for requests by HTTPS.
        x_forwarded_ssl: Text = "X-Forwarded-Ssl",
        /// Header in which a proxy passes the path below which it serves this server, like
        /// /couchdb.
        x_forwarded_prefix: Text = "X-Forwarded-Prefix",
        /// Addresses and networks of trusted proxies, separated by commas. Their X-Forwarded-For
        /// sets the client's address, by which wrong passwords are counted. By default no proxy is
        /// trusted.
        trusted_proxies: Option<Words>,
        /// Answer cross-origin requests; see [cors].
        enable_cors: Bool = "false",
        /// Send X-Frame-Options; see [x_frame_options].
        enable_xframe_options: Bool = "false",
        /// Do not let rewrite rules leave their database.
        secure_rewrites: Bool = "true",
        /// Maximum number of rewrites of one request.
        rewrite_limit: Int = "100",
        /// Maximum number of rewrite rules of a design document.
        max_rewrite_rules: Int = "1000",
        /// Value of this header in 401 responses, like Basic realm="server".
        www_authenticate as "WWW-Authenticate": Option<Text>,
    }
}

section! {
    /// HTTPS, in addition to HTTP. SIGHUP reloads the files.
    pub struct Ssl in "ssl" {
        /// Also listen for HTTPS.
        enable: Bool = "false" [start],
        /// TCP port.
        port: Port = "6984" [start],
        /// Path of the certificate chain, in PEM.
        cert_file: Option<Text>,
        /// Path of the private key, in PEM.
        key_file: Option<Text>,
        /// Password of the private key, if it is encrypted (PKCS #8).
        password: Option<Text>,
        /// Path of the certificates, in PEM, against which clients' certificates are verified.
        cacert_file: Option<Text>,
        /// Verify the certificates of clients that have one.
        verify_ssl_certificates: Bool = "false",
        /// With verify_ssl_certificates: refuse clients without a certificate.
        fail_if_no_peer_cert: Bool = "false",
        /// Allowed versions, like ['tlsv1.2', 'tlsv1.3']; by default these two.
        tls_versions: Option<Text>,
        /// Allowed cipher suites, by OpenSSL's or the standard's names; by default all that rustls
        /// supports.
        ciphers: Option<Text>,
        /// Maximum time of a TLS handshake, in milliseconds.
        handshake_timeout: Milliseconds = "10000",
    }
}

section! {
    /// Cross-origin requests from browsers. They are enabled by [chttpd] enable_cors.
    pub struct Cors in "cors" {
        /// Allowed origins with scheme, separated by commas; * for all.
        origins: Option<Words>,
        /// Request headers allowed in addition to the simple ones, separated by commas.
        headers: Option<Words>,
        /// Response headers that pages may read, separated by commas.
        exposed_headers: Option<Words>,
        /// Allowed methods, separated by commas; by default all methods of the API.
        methods: Option<Words>,
        /// Allow cookies and passwords. PouchDB needs it: all its requests have credentials. With
        /// origins = *, every page on the web can use its visitor's session.
        credentials: Bool = "false",
        /// Time for which browsers may cache the preflight response, in seconds.
        max_age: Int = "600",
    }
}

section! {
    /// Embedding responses in frames of other pages. These settings require [chttpd]
    /// enable_xframe_options.
    pub struct XFrameOptions in "x_frame_options" {
        /// Allow pages of the same origin to embed responses.
        same_origin: Bool = "false",
        /// Hosts whose responses may be embedded in other pages, with scheme, separated by commas;
        /// * for all.
        hosts: Option<Words>,
    }
}

section! {
    /// The Content-Security-Policy of attachments, and of responses of shows, lists and updates.
    pub struct Csp in "csp" {
        /// Send the header with attachments.
        attachments_enable: Bool = "true",
        /// Value of the header with attachments.
        attachments_header_value: Text = "sandbox",
        /// Send the header.
        showlist_enable: Bool = "true",
        /// Value of the header.
        showlist_header_value: Text = "sandbox",
    }
}

section! {
    /// Limits that CouchDB does not have.
    pub struct Limits in "limits" {
        /// Maximum number of open changes feeds.
        max_open_feeds: Int = "10000",
        /// Maximum number of keys in the keys of one request.
        max_keys: Limit = "1000000",
        /// Maximum size of the body of small requests (settings, purges, limits, set-up, searches
        /// in text indexes), in bytes.
        max_small_request_size: Int = "1048576",
        /// Maximum inflated size of a gzipped body, in bytes.
        max_inflated_request_size: Int = "134217728",
        /// Maximum ratio of the inflated size to the size of a gzipped body, not counting the first
        /// MiB.
        max_inflation_ratio: Int = "200",
        /// Maximum number of JSON values in a body that is parsed into individual values (keys,
        /// revisions, replications).
        max_json_values: Int = "1250000",
        /// Minimum average rate of a body after its first minute, in bytes per second; 0 for no
        /// minimum.
        min_body_rate: Int = "250",
    }
}

section! {
    /// Identifiers that the server generates.
    pub struct Uuids in "uuids" {
        /// Algorithm for identifiers: uuid_v7, uuid_v4, sequential, random, utc_random or utc_id.
        algorithm: UuidAlgorithm = "uuid_v7",
        /// Format of uuid_v7 and uuid_v4: base_16, base_36 or rfc9562 (groups with hyphens).
        format: UuidFormat = "base_16",
        /// Suffix of utc_id identifiers.
        utc_id_suffix: Option<Text>,
        /// Maximum number of identifiers in one GET /_uuids.
        max_count: Int = "1000",
    }
}

section! {
    /// The configuration itself.
    pub struct Configuration in "config" {
        /// Interval in seconds at which the files of the configuration are read again, as on SIGHUP;
        /// infinity: never.
        auto_reload_secs: Limit = "infinity",
    }
}

section! {
    /// The log.
    pub struct Log in "log" {
        /// Minimum level of logged messages: debug, info, notice, warning, error, critical, alert,
        /// emergency, none.
        level: LogLevel = "info",
        /// Destination: stderr or file.
        writer: LogWriter = "stderr" [start],
        /// Path for writer = file.
        file: Text = "./settee.log" [start],
        /// Duration of a request, in milliseconds, above which it is recorded in the slow log,
        /// except feeds; 0 disables the slow log.
        slow_time: Milliseconds = "1000",
        /// Path of the slow log, which has one JSON object per line; empty: its lines are warnings
        /// in the log.
        slow_file: Text = "" [start],
        /// Size at which a log file is renamed to NAME.1 and a new one is started, in bytes; 0:
        /// never.
        max_file_size: Int = "104857600",
        /// Number of renamed log files to keep; NAME.1 is the newest.
        max_old_files: BoundedInteger<0, 1000> = "5",
    }
}

section! {
    /// Traces for OpenTelemetry.
    pub struct Tracing in "tracing" {
        /// Endpoint for OTLP over HTTP, like `http://127.0.0.1:4318`; empty: traces are not sent.
        /// Read at start.
        otlp_endpoint: Text = "" [start],
        /// The name of this server in traces. Read at start.
        service_name: Text = "settee" [start],
        /// The share of requests without a `traceparent` header that are traced, 0 to 1. If a
        /// request has such a header, the header decides.
        sample_ratio: Share = "0.01",
        /// Also trace requests in the slow log, and those that fail with 500 or more, unless a
        /// `traceparent` header disables it.
        always_slow: Bool = "true",
    }
}

section! {
    /// Metrics for Prometheus on a separate port.
    pub struct Prometheus in "prometheus" {
        /// Serve them there, without a login, at /_node/_local/_prometheus.
        additional_port: Bool = "false" [start],
        /// Address of the port. Use one that only your monitoring can reach.
        bind_address: Address = "127.0.0.1" [start],
        /// The port; 0 takes a free one.
        port: Port = "17986" [start],
    }
}

section! {
    /// Scheduled backups.
    pub struct Backup in "backup" {
        /// Target: a directory, or s3://BUCKET/PREFIX, for this server only; empty: no backups are
        /// made.
        target: Text = "",
        /// Further targets allowed for backups that are requested over HTTP: absolute directories and
        /// s3://BUCKET/PREFIX, including everything below, separated by commas. Always allowed: the
        /// target, and directories in which the client can create a file.
        targets: Words = "",
        /// Interval between backups, in seconds.
        every: Seconds = "86400",
        /// Number of most recent backups to keep. If all keep_… are 0, no backup is removed.
        keep_last: Int = "0",
        /// Number of hours of which the last backup is kept.
        keep_hourly: Int = "0",
        /// Number of days of which the last backup is kept. Days begin at midnight UTC.
        keep_daily: Int = "0",
        /// Number of weeks of which the last backup is kept.
        keep_weekly: Int = "0",
        /// Number of months of which the last backup is kept.
        keep_monthly: Int = "0",
        /// Number of years of which the last backup is kept.
        keep_yearly: Int = "0",
        /// Maximum rate at which a backup reads data, and at which it sends data, in bytes per
        /// second; 0 for no limit.
        max_rate: Int = "104857600",
        /// URL of an object store other than Amazon's. This and the next three settings take
        /// precedence over AWS_ENDPOINT_URL, AWS_REGION, AWS_ACCESS_KEY_ID and
        /// AWS_SECRET_ACCESS_KEY in the environment.
        s3_endpoint: Option<Text>,
        /// Region of the object store.
        s3_region: Option<Text>,
        /// Access key id for the object store.
        s3_access_key_id: Option<Text>,
        /// Secret access key for the object store.
        s3_secret_access_key: Option<Text>,
    }
}

section! {
    /// The checks of settee doctor.
    pub struct Doctor in "doctor" {
        /// Names of checks to skip, separated by commas.
        ignore: Option<Words>,
        /// Maximum age of the last backup, in seconds.
        backup_age_max: Seconds = "604800",
        /// Run time of the server after which indexes without queries are reported as unused, in
        /// seconds.
        unused_index_time: Seconds = "604800",
    }
}

choice! {
    /// The least level that is logged.
    pub enum LogLevel {
        /// Everything.
        Debug = "debug",
        /// Normal events.
        Info = "info",
        /// A synonym of `Info`.
        Notice = "notice",
        /// Possible problems.
        Warning = "warning" | "warn",
        /// Failures.
        Error = "error" | "err",
        /// A synonym of `Error`.
        Critical = "critical" | "crit",
        /// A synonym of `Error`.
        Alert = "alert",
        /// A synonym of `Error`.
        Emergency = "emergency" | "emerg",
        /// Nothing.
        None = "none",
    }
}

choice! {
    /// Destination of the log.
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
    /// How UUIDs of versions 4 and 7 are written.
    pub enum UuidFormat {
        /// 32 hexadecimal digits.
        Base16 = "base_16",
        /// 25 digits of base 36.
        Base36 = "base_36",
        /// Hexadecimal digits in groups with hyphens.
        Rfc9562 = "rfc9562",
    }
}

choice! {
    /// Algorithms for new ids.
    pub enum UuidAlgorithm {
        /// A UUID of version 7: the time, then random bits.
        UuidV7 = "uuid_v7",
        /// A UUID of version 4: random bits.
        UuidV4 = "uuid_v4",
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
