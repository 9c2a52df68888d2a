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
        "admins",
        "Server administrators, one a line: name = password. A plain password is replaced by its hash at start.",
    ),
    ("uuids", "Identifiers that the server makes up."),
    (
        "feature_flags",
        "Which databases may use a feature: feature||name pattern = true.",
    ),
    ("log", "The log."),
    (
        "cors",
        "Cross-origin requests from browsers. They are answered when [chttpd] enable_cors is true.",
    ),
    ("ssl", "HTTPS."),
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
    (
        "csp",
        "The Content-Security-Policy of what shows, lists and updates answer.",
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
    set("couchdb", "max_document_size", Limit, "8000000", "Largest document body, in bytes of JSON."),
    set("couchdb", "max_attachment_size", Limit, "1073741824", "Largest attachment, in bytes."),
    set("couchdb", "max_document_id_length", Limit, "infinity", "Longest document id, in bytes."),
    set("couchdb", "max_bulk_docs_count", Limit, "infinity", "Most documents in one _bulk_docs request."),
    set("couchdb", "max_bulk_get_count", Limit, "infinity", "Most documents in one _bulk_get request."),
    set("couchdb", "default_security", OneOf(&["admin_only", "everyone", "admin_local"]), "admin_only", "Who may use a database that has no security object of its own."),
    set("couchdb", "delayed_commits", Bool, "false", "Acknowledge writes before they are on disk."),
    set("couchdb", "os_process_timeout", Int, "5000", "Longest time for one answer of a query server, in milliseconds."),
    set("couchdb", "users_db_suffix", Text, "_users", "Name of the users database."),
    // [cluster]
    active("cluster", "q", Int, "2", "Shards of a new database."),
    active("cluster", "n", Int, "1", "Copies of each shard."),
    // [chttpd]
    active("chttpd", "port", Int, "5984", "TCP port; 0 for any free one."),
    active("chttpd", "bind_address", Text, "127.0.0.1", "IP address to listen at; 0.0.0.0 or :: for all."),
    set("chttpd", "backlog", Int, "512", "Most connections waiting to be accepted."),
    set("chttpd", "server_options", Text, "[{recbuf, undefined}]", "Accepted for CouchDB's sake; not used."),
    set("chttpd", "socket_options", Text, "[{sndbuf, 262144}, {nodelay, true}]", "Accepted for CouchDB's sake; not used."),
    set("chttpd", "require_valid_user", Bool, "false", "Refuse all requests without a name and password."),
    set("chttpd", "require_valid_user_except_for_up", Bool, "false", "The same, but let anybody GET /_up."),
    set("chttpd", "admin_only_all_dbs", Bool, "true", "Only administrators may list databases."),
    set("chttpd", "max_http_request_size", Limit, "4294967296", "Largest request body, in bytes."),
    set("chttpd", "max_uri_length", Limit, "infinity", "Longest request path with query, in bytes."),
    set("chttpd", "max_db_number_for_dbs_info_req", Int, "100", "Most databases in one POST /_dbs_info."),
    set("chttpd", "changes_timeout", Int, "60000", "Default, and longest, timeout and heartbeat of a waiting changes feed, in milliseconds."),
    set("chttpd", "enable_cors", Bool, "false", "Answer cross-origin requests; see [cors]."),
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
    set("chttpd_auth", "auth_cache_size", Int, "50", "Most names with passwords remembered as right."),
    set("chttpd_auth", "authentication_redirect", Text, "/_utils/session.html", "Where a browser without a session is sent."),
    unset("chttpd_auth", "cookie_domain", Text, "Domain attribute of session cookies."),
    unset("chttpd_auth", "same_site", OneOf(&["none", "lax", "strict"]), "SameSite attribute of session cookies: none, lax or strict."),
    // [chttpd_auth_lockout]
    set("chttpd_auth_lockout", "mode", OneOf(&["enforce", "warn", "off"]), "enforce", "enforce refuses the client, warn and off do not."),
    set("chttpd_auth_lockout", "threshold", Int, "5", "Wrong passwords, for one name from one address, until it is refused."),
    set("chttpd_auth_lockout", "max_lifetime", Int, "300000", "How long wrong passwords are counted, in milliseconds."),
    set("chttpd_auth_lockout", "max_objects", Int, "10000", "Most names with addresses counted at a time."),
    // [uuids]
    set("uuids", "algorithm", OneOf(&["sequential", "random", "utc_random", "utc_id"]), "sequential", "How identifiers are made: sequential, random, utc_random or utc_id."),
    unset("uuids", "utc_id_suffix", Text, "What utc_id identifiers end with."),
    set("uuids", "max_count", Int, "1000", "Most identifiers in one GET /_uuids."),
    // [feature_flags]
    active("feature_flags", "partitioned||*", Bool, "true", "Partitioned databases."),
    // [log]
    set("log", "level", OneOf(&["debug", "info", "notice", "warning", "warn", "error", "err", "critical", "crit", "alert", "emergency", "emerg", "none"]), "info", "Least level that is logged: debug, info, notice, warning, error, critical, alert, emergency, none."),
    set("log", "writer", OneOf(&["stderr", "file", "journald", "syslog"]), "stderr", "Where to: stderr or file."),
    set("log", "file", Text, "./settee.log", "Path for writer = file."),
    // [cors]
    unset("cors", "origins", Text, "Origins allowed, separated by commas, with scheme; * for all."),
    unset("cors", "headers", Text, "Request headers allowed besides the simple ones, separated by commas."),
    unset("cors", "methods", Text, "Methods allowed, separated by commas; all that the API has by default."),
    set("cors", "credentials", Bool, "false", "Allow cookies and passwords; not together with origins = *."),
    set("cors", "max_age", Int, "600", "How long a browser may remember the answer, in seconds."),
    // [ssl]
    set("ssl", "enable", Bool, "false", "Listen for HTTPS too."),
    set("ssl", "port", Int, "6984", "TCP port."),
    unset("ssl", "cert_file", Text, "Path of the certificate chain, in PEM."),
    unset("ssl", "key_file", Text, "Path of the private key, in PEM."),
    // [mango]
    set("mango", "default_limit", Int, "25", "Documents that _find returns when the query says nothing."),
    set("mango", "index_scan_warning_threshold", Int, "10", "Documents looked at for each found, from which _find warns; 0 for never."),
    set("mango", "scan_limit", Int, "0", "Most documents that _find looks at when no index serves; a query that needs more is refused. 0 for any number."),
    set("mango", "max_selector_depth", Int, "64", "Levels of conditions in a selector."),
    set("mango", "max_selector_conditions", Int, "10000", "Operators and field names in a selector; values of $in do not count."),
    set("mango", "max_selector_regexes", Int, "64", "Regular expressions in a selector."),
    set("mango", "max_regex_size", Int, "1048576", "Memory of one compiled regular expression, in bytes."),
    set("mango", "max_aggregate_groups", Int, "100000", "Groups of one aggregate."),
    set("mango", "max_aggregate_values", Int, "1000000", "Values that $distinct holds, in all groups of an aggregate."),
    // [purge]
    set("purge", "max_document_id_number", Int, "100", "Most documents in one _purge request."),
    set("purge", "max_revisions_number", Int, "1000", "Most revisions in one _purge request."),
    // [functions]
    set("functions", "time_limit_ms", Int, "5000", "Longest time of a function for one document, or of one call, in milliseconds."),
    set("functions", "memory_limit_bytes", Int, "67108864", "Memory of one JavaScript heap, in bytes; at most 1073741824 counts."),
    set("functions", "stack_limit_bytes", Int, "524288", "Stack of JavaScript's calls, in bytes."),
    set("functions", "emit_rows_limit", Int, "100000", "Most rows that one function may emit for one document."),
    set("functions", "emit_bytes_limit", Int, "67108864", "Most JSON that the functions of a design document may emit for one document, and that any other may answer, in bytes."),
    set("functions", "isolation", OneOf(&["thread", "process"]), "thread", "thread runs JavaScript inside the server; process in worker processes, which can be killed whatever the function does."),
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
    // [csp]
    set("csp", "showlist_enable", Bool, "true", "Send the header."),
    set("csp", "showlist_header_value", Text, "sandbox", "Its value."),
    // [limits]
    set("limits", "max_open_feeds", Int, "10000", "Most changes feeds open at a time."),
    set("limits", "max_keys", Limit, "1000000", "Most keys in the keys of one request."),
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
