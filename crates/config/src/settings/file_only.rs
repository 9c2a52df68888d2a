//! Settings that cannot be changed over HTTP, so that an admin of the databases is not an admin of the machine: those that name a file,
//! a directory, a command, a library, or a host that the operator chose, that decide how long backups and logs are kept, that open
//! ports, or that turn off isolation.

use super::find;

/// Sections of which no value can be changed over HTTP. Those of `*_query_servers`, `*daemons`, `external` and `httpd_*_handlers`
/// are CouchDB's.
const SECTIONS: &[&str] = &[
    "daemons",
    "external",
    "httpd_db_handlers",
    "httpd_design_handlers",
    "httpd_global_handlers",
    "kafka",
    "native_query_servers",
    "os_daemons",
    "query_servers",
];

/// Single settings of other sections.
const SETTINGS: &[(&str, &str)] = &[
    ("backup", "every"),
    ("backup", "keep_daily"),
    ("backup", "keep_hourly"),
    ("backup", "keep_last"),
    ("backup", "keep_monthly"),
    ("backup", "keep_weekly"),
    ("backup", "keep_yearly"),
    ("backup", "s3_access_key_id"),
    ("backup", "s3_endpoint"),
    ("backup", "s3_region"),
    ("backup", "s3_secret_access_key"),
    ("backup", "target"),
    ("backup", "targets"),
    ("cluster", "log"),
    ("cluster", "node_address"),
    ("cluster", "zone"),
    ("couchdb", "database_dir"),
    ("functions", "isolation"),
    // The name of a time zone may be a path.
    ("functions", "time_zone"),
    ("log", "file"),
    ("log", "max_file_size"),
    ("log", "max_old_files"),
    ("log", "slow_file"),
    ("log", "writer"),
    ("prometheus", "additional_port"),
    ("prometheus", "bind_address"),
    ("prometheus", "port"),
    ("replicator", "cert_file"),
    ("replicator", "key_file"),
    ("replicator", "ssl_trusted_certificates_file"),
    ("ssl", "cacert_file"),
    ("ssl", "cert_file"),
    ("ssl", "enable"),
    ("ssl", "key_file"),
    ("ssl", "password"),
    ("ssl", "port"),
    ("tracing", "otlp_endpoint"),
];

/// Whether a value is changed by files, the environment and the command line alone, and never over HTTP. A section's older name
/// makes no difference.
pub fn is_file_only(section: &str, key: &str) -> bool {
    let section = find(section, key).map_or(section, |setting| setting.section);
    is_file_only_section(section) || SETTINGS.contains(&(section, key))
}

/// Whether that holds for all values of a section.
pub fn is_file_only_section(section: &str) -> bool {
    SECTIONS.contains(&section)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::SECTIONS as ALL;

    /// Settings of free text that name nothing of the machine: names, patterns, headers, lists of words.
    const HARMLESS: &[(&str, &str)] = &[
        ("attachments", "compressible_types"),
        ("chttpd", "WWW-Authenticate"),
        ("chttpd", "allowed_hosts"),
        ("chttpd", "authentication_handlers"),
        // `_cluster_setup` sets it, as in CouchDB: an address of this machine, checked as such.
        ("chttpd", "bind_address"),
        ("chttpd", "peer_header"),
        ("chttpd", "prefer_minimal"),
        ("chttpd", "server_options"),
        ("chttpd", "socket_options"),
        ("chttpd", "trusted_proxies"),
        ("chttpd", "x_forwarded_host"),
        ("chttpd", "x_forwarded_prefix"),
        ("chttpd", "x_forwarded_proto"),
        ("chttpd", "x_forwarded_ssl"),
        ("chttpd_auth", "authentication_db"),
        ("chttpd_auth", "authentication_redirect"),
        ("chttpd_auth", "cookie_domain"),
        ("chttpd_auth", "hash_algorithms"),
        ("chttpd_auth", "password_regexp"),
        ("chttpd_auth", "public_fields"),
        ("chttpd_auth", "secret"),
        ("chttpd_auth", "x_auth_roles"),
        ("chttpd_auth", "x_auth_token"),
        ("chttpd_auth", "x_auth_username"),
        ("cors", "exposed_headers"),
        ("cors", "headers"),
        ("cors", "methods"),
        ("cors", "origins"),
        ("couch_auto_purge_plugin", "deleted_document_ttl"),
        ("couch_auto_purge_plugin", "repeat"),
        ("couch_peruser", "database_prefix"),
        ("couchdb", "node_name"),
        ("couchdb", "users_db_suffix"),
        ("couchdb", "uuid"),
        ("csp", "attachments_header_value"),
        ("csp", "showlist_header_value"),
        ("doctor", "ignore"),
        ("jwt_auth", "required_claims"),
        ("jwt_auth", "roles_claim_name"),
        ("jwt_auth", "roles_claim_path"),
        // The admin decides which hosts replications may reach, as in CouchDB.
        ("replicator", "allowed_addresses"),
        ("replicator", "auth_plugins"),
        ("replicator", "connect_to"),
        ("replicator", "valid_endpoint_protocols"),
        ("replicator", "valid_proxy_protocols"),
        ("ssl", "ciphers"),
        ("ssl", "tls_versions"),
        ("tracing", "service_name"),
        ("uuids", "utc_id_suffix"),
        ("vendor", "name"),
        ("x_frame_options", "hosts"),
    ];

    /// Sections whose numbers and choices only tune the server or its databases.
    const TUNED_SECTIONS: &[&str] = &[
        "attachments",
        "chttpd",
        "chttpd_auth",
        "chttpd_auth_lockout",
        "cluster",
        "compaction",
        "config",
        "cors",
        "couch_auto_purge_plugin",
        "couch_peruser",
        "couch_scanner",
        "couchdb",
        "csp",
        "doctor",
        "feature_flags",
        "global_changes",
        "jwt_auth",
        "ken",
        "limits",
        "mango",
        "memory",
        "purge",
        "query_server_config",
        "replicator",
        "rocksdb",
        "uuids",
        "x_frame_options",
    ];

    /// Single numbers and choices of other sections that do no more.
    const TUNED: &[(&str, &str)] = &[
        ("backup", "max_rate"),
        ("functions", "emit_bytes_limit"),
        ("functions", "emit_rows_limit"),
        ("functions", "memory_limit_bytes"),
        ("functions", "queue_limit"),
        ("functions", "queue_time_limit_ms"),
        ("functions", "stack_limit_bytes"),
        ("functions", "time_limit_ms"),
        ("functions", "workers_limit"),
        ("log", "level"),
        ("log", "slow_time"),
        ("ssl", "fail_if_no_peer_cert"),
        ("ssl", "handshake_timeout"),
        ("ssl", "verify_ssl_certificates"),
        ("tracing", "always_slow"),
        ("tracing", "sample_ratio"),
    ];

    /// A new number or choice fails here until it has been classified.
    #[test]
    fn every_number_and_choice_is_classified() {
        let free = |shape: &str| matches!(shape, "text" | "list");
        let unknown: Vec<_> = crate::settings::all()
            .filter(|setting| !free(setting.shape.name()) || !setting.choices().is_empty())
            .map(|setting| (setting.section, setting.key))
            .filter(|of| !is_file_only(of.0, of.1) && !HARMLESS.contains(of))
            .filter(|of| !TUNED_SECTIONS.contains(&of.0) && !TUNED.contains(of))
            .collect();
        assert_eq!(unknown, []);
        for of in TUNED {
            assert!(!is_file_only(of.0, of.1), "{of:?} is in both lists");
            assert!(find(of.0, of.1).is_some(), "{of:?} is no setting");
        }
    }

    /// A new setting of free text fails here until it is classified.
    #[test]
    fn every_setting_of_free_text_is_classified() {
        let free = |shape: &str| matches!(shape, "text" | "list");
        let unknown: Vec<_> = crate::settings::all()
            .filter(|setting| free(setting.shape.name()) && setting.choices().is_empty())
            .map(|setting| (setting.section, setting.key))
            .filter(|of| !is_file_only(of.0, of.1) && !HARMLESS.contains(of))
            .collect();
        assert_eq!(unknown, []);
        for of in HARMLESS {
            assert!(!is_file_only(of.0, of.1), "{of:?} is in both lists");
            assert!(find(of.0, of.1).is_some(), "{of:?} is no setting");
        }
    }

    /// A setting that was renamed would lose its protection without a word.
    #[test]
    fn every_file_only_setting_exists() {
        for of in SETTINGS {
            assert!(find(of.0, of.1).is_some(), "{of:?} is no setting");
        }
        assert!(ALL.iter().any(|about| about.name == "kafka"));
    }

    #[test]
    fn older_names_of_sections_are_the_same() {
        for about in ALL {
            let Some(older) = about.older else { continue };
            for setting in about.settings {
                let [new, old] = [about.name, older].map(|name| is_file_only(name, setting.key));
                assert_eq!(new, old, "[{older}] {}", setting.key);
            }
        }
    }
}
