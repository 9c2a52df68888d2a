//! The effect of the configuration on the parts of a server.

use config::Settings;
use database::{AttachmentOptions, CreateOptions, Databases, KenOptions, ReduceLimit};
use document::{UuidAlgorithm, UuidFormat};

/// Passes their settings to the databases.
pub fn tell(settings: &Settings, databases: &Databases) {
    databases.set_partition_limit(settings.couchdb.max_partition_size);
    databases.set_reduce_limit(reduce_limit(&settings.query_server_config));
    databases.set_leaf_limit(settings.couchdb.max_document_leaves);
    databases.set_attachment_options(attachment_options(settings));
    databases.set_time_seq_min(settings.couchdb.time_seq_min_time);
    databases.set_ken(&ken(settings));
    databases.set_auto_compact(settings.compaction.enable);
}

/// How the background builds indexes.
pub fn ken(settings: &Settings) -> KenOptions {
    KenOptions {
        enabled: settings.ken.enable,
        limit: settings.ken.limit,
    }
}

/// When a reduction is too large; `None` for never.
pub fn reduce_limit(settings: &config::settings::QueryServerConfig) -> Option<ReduceLimit> {
    (settings.reduce_limit == config::settings::ReduceLimit::On).then_some(ReduceLimit {
        threshold: settings.reduce_limit_threshold,
        ratio: settings.reduce_limit_ratio,
    })
}

/// Properties of a new database, with `q` shards or the configured number, and without access by
/// document. More replicas than one would all be here.
pub fn new_database(settings: &Settings, q: Option<u32>, partitioned: bool) -> CreateOptions {
    let security = auth::DefaultSecurity::from(settings.couchdb.default_security);
    CreateOptions {
        q: q.or(Some(settings.cluster.q)),
        n: Some(1),
        partitioned,
        spread: false,
        access: None,
        security: security.json().to_owned(),
    }
}

/// Limits and storage of attachments.
pub fn attachment_options(settings: &Settings) -> AttachmentOptions {
    let level = settings.attachments.compression_level.min(9) as u32;
    AttachmentOptions {
        bytes_max: settings.couchdb.max_attachment_size,
        count_max: settings.couchdb.max_attachments_per_document,
        ..AttachmentOptions::new(level, &settings.attachments.compressible_types)
    }
}

/// The algorithm for ids of documents without one.
pub fn uuid_algorithm(settings: &Settings) -> UuidAlgorithm {
    let format = match settings.uuids.format {
        config::settings::UuidFormat::Base16 => UuidFormat::Base16,
        config::settings::UuidFormat::Base36 => UuidFormat::Base36,
        config::settings::UuidFormat::Rfc9562 => UuidFormat::Rfc9562,
    };
    match settings.uuids.algorithm {
        config::settings::UuidAlgorithm::UuidV7 => UuidAlgorithm::V7(format),
        config::settings::UuidAlgorithm::UuidV4 => UuidAlgorithm::V4(format),
        config::settings::UuidAlgorithm::Sequential => UuidAlgorithm::Sequential,
        config::settings::UuidAlgorithm::Random => UuidAlgorithm::Random,
        config::settings::UuidAlgorithm::UtcRandom => UuidAlgorithm::UtcRandom,
        config::settings::UuidAlgorithm::UtcId => UuidAlgorithm::UtcId {
            suffix: settings.uuids.utc_id_suffix.clone().unwrap_or_default(),
        },
    }
}

/// Whether a setting is the same on all nodes of a cluster: its admins, and everything that makes
/// it one server to clients.
pub fn is_shared(section: &str, key: &str) -> bool {
    // The section may be given by its older name.
    let section = config::settings::find(section, key).map_or(section, |setting| setting.section);
    section == "admins"
        || matches!(
            (section, key),
            ("chttpd_auth", "secret") | ("couchdb", "uuid")
        )
}

/// Whether a node accepts a setting from others: one that all nodes share, and that is not decided
/// by this machine's files alone. Settings from other nodes are not trusted beyond that.
pub fn may_be_taken_over(section: &str, key: &str) -> bool {
    is_shared(section, key) && !config::settings::is_file_only(section, key)
}

/// The settings that are the same on all nodes of a cluster, as this one has them.
pub fn shared_settings(config: &config::Config) -> Vec<(String, String, String)> {
    let sections = ["admins", "couchdb"];
    let values = sections.into_iter().flat_map(|section| {
        let values = config.section(section).into_iter();
        values.map(move |(key, value)| (section.to_owned(), key, value))
    });
    // It may be set in the section's older name, which is not read where the newer has one.
    let secret = config.settings().chttpd_auth.secret.clone();
    let secret = secret.map(|secret| ("chttpd_auth".to_owned(), "secret".to_owned(), secret));
    values
        .filter(|(section, key, _)| is_shared(section, key))
        .chain(secret)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_secret_is_shared_by_whichever_name_it_is_set() {
        let folder = tempfile::tempdir().unwrap();
        let layers = config::Layers::new(folder.path().join("local.ini"));
        let config = config::Config::load(layers).unwrap();
        let set = |section, key, value| config.set(section, key, value, false).unwrap();
        set("couch_httpd_auth", "secret", "x");
        set("couch_httpd_auth", "timeout", "7");
        assert!(is_shared("couch_httpd_auth", "secret"));
        assert!(!is_shared("couch_httpd_auth", "timeout"));
        assert!(may_be_taken_over("admins", "anna"));
        assert!(may_be_taken_over("couchdb", "uuid"));
        for (section, key) in [
            ("query_servers", "evil"),
            ("log", "file"),
            ("couchdb", "database_dir"),
        ] {
            assert!(!may_be_taken_over(section, key), "{section} {key}");
        }
        let secret = |value: &str| {
            let shared = ["chttpd_auth", "secret", value].map(str::to_owned);
            <(String, String, String)>::from(shared)
        };
        assert_eq!(shared_settings(&config), [secret("x")]);
        set("chttpd_auth", "secret", "y");
        assert_eq!(shared_settings(&config), [secret("y")]);
    }

    #[test]
    fn defaults_are_those_of_the_crates_that_they_are_for() {
        let settings = Settings::default();
        assert_eq!(attachment_options(&settings), AttachmentOptions::default());
        let uuids = uuid_algorithm(&settings);
        assert_eq!(uuids, UuidAlgorithm::V7(UuidFormat::Base16));
        let security = new_database(&settings, None, false).security;
        assert_eq!(security, auth::DefaultSecurity::default().json());
    }
}
