//! Every setting that Settee understands: its name, kind, default and meaning, in one place.
//!
//! A setting is a field of its section's struct. To add one, add it to the section (in the file of
//! this folder that has it) with its kind and default, and run `cargo run -p config --example
//! default_ini`, which rewrites `default.ini` (a test fails while the two differ).
//! [`Config::settings`](crate::Config::settings) then has it, typed and checked.

#![allow(
    rustdoc::broken_intra_doc_links,
    reason = "docs of settings are text for default.ini, where brackets are sections"
)]

#[macro_use]
pub mod kind;
#[macro_use]
mod section;

mod databases;
mod file_only;
mod functions;
mod replication;
mod server;
mod users;

pub use databases::*;
pub use file_only::{is_file_only, is_file_only_section};
pub use functions::*;
pub use replication::*;
pub(crate) use section::is_secret;
pub use section::{SectionInfo, Setting, is_masked};
pub use server::*;
pub use users::*;

use crate::error::ConfigError;
use crate::layers::Values;
use section::Section;

/// Names the sections, in the order of `default.ini`.
macro_rules! sections {
    ($($field:ident: $Section:ident,)+) => {
        /// The value in force of every setting.
        #[derive(Clone, PartialEq)]
        pub struct Settings {
            $(
                #[doc = concat!("`[", stringify!($field), "]`.")]
                pub $field: $Section,
            )+
        }

        impl Settings {
            pub(crate) fn read(values: &Values) -> Result<Settings, ConfigError> {
                Ok(Settings { $($field: Section::read(values)?,)+ })
            }
        }

        /// The sections, in the order of `default.ini`.
        pub const SECTIONS: &[SectionInfo] = &[$($Section::ABOUT),+];
    };
}

sections! {
    vendor: Vendor,
    couchdb: Couchdb,
    cluster: Cluster,
    chttpd: Chttpd,
    chttpd_auth: ChttpdAuth,
    chttpd_auth_lockout: ChttpdAuthLockout,
    jwt_auth: JwtAuth,
    jwt_keys: JwtKeys,
    couch_peruser: CouchPeruser,
    admins: Admins,
    uuids: Uuids,
    feature_flags: FeatureFlags,
    kafka: Kafka,
    replicator: Replicator,
    config: Configuration,
    log: Log,
    prometheus: Prometheus,
    tracing: Tracing,
    backup: Backup,
    doctor: Doctor,
    cors: Cors,
    x_frame_options: XFrameOptions,
    global_changes: GlobalChanges,
    ssl: Ssl,
    mango: Mango,
    purge: Purge,
    couch_auto_purge_plugin: CouchAutoPurgePlugin,
    couch_scanner: CouchScanner,
    functions: Functions,
    query_servers: QueryServers,
    ken: Ken,
    native_query_servers: NativeQueryServers,
    query_server_config: QueryServerConfig,
    attachments: Attachments,
    csp: Csp,
    limits: Limits,
    memory: Memory,
    rocksdb: Rocksdb,
    compaction: Compaction,
}

impl Default for Settings {
    /// The settings when nothing is configured.
    fn default() -> Settings {
        Settings::read(&Values::new()).expect("defaults are of their kinds: a test reads them all")
    }
}

impl std::fmt::Debug for Settings {
    /// Names no values: some are secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Settings").finish_non_exhaustive()
    }
}

/// All settings, in the order of `default.ini`.
pub fn all() -> impl Iterator<Item = &'static Setting> {
    SECTIONS.iter().flat_map(|section| section.settings)
}

/// The setting of this name; also by the older name of its section.
pub fn find(section: &str, key: &str) -> Option<&'static Setting> {
    let named =
        |about: &&SectionInfo| about.name == section || about.older_of(key) == Some(section);
    let about = SECTIONS.iter().find(named)?;
    about.settings.iter().find(|setting| setting.key == key)
}

/// The text of `default.ini`.
pub fn default_ini() -> String {
    let mut text = String::from(
        "; The settings of Settee and their defaults. This file is built into the program: put your own values into\n\
         ; local.ini. A line that begins with a semicolon only shows a default. Sections and keys are CouchDB's where\n\
         ; CouchDB has them.\n\
         ;\n\
         ; Made from crates/config/src/settings/ by: cargo run -p config --example default_ini\n",
    );
    for section in SECTIONS {
        text.push_str(&format!("\n; {}\n[{}]\n", section.doc, section.name));
        section
            .settings
            .iter()
            .for_each(|setting| text.push_str(&line(setting)));
        if let Some(older) = section.older {
            text.push_str(&format!(
                "\n; Older name of [{}].\n[{older}]\n",
                section.name
            ));
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
            "run: cargo run -p config --example default_ini"
        );
    }

    #[test]
    fn default_ini_mentions_every_setting_with_its_default() {
        for setting in all() {
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
        let active: Vec<_> = all()
            .filter(|s| s.active)
            .map(|s| (s.section, s.key, s.default))
            .collect();
        assert_eq!(set, active);
        assert_eq!(ignored, Vec::<usize>::new());
    }

    #[test]
    fn every_default_is_of_its_kind_and_only_options_have_none() {
        let defaults = Settings::read(&Values::new()).expect("defaults");
        assert_eq!(defaults.chttpd.port, 5984);
        assert_eq!(defaults.cors.origins, None);
        assert!(defaults == Settings::default());
        for setting in all() {
            let default = setting.default;
            assert!(default.is_none_or(|v| setting.accepts(v)), "{setting:?}");
        }
    }

    #[test]
    fn a_setting_says_when_it_counts_and_what_it_looks_like() {
        let told = |section, key| {
            let setting = find(section, key).expect(key);
            (setting.at_start, setting.shape.name(), setting.is_secret())
        };
        assert_eq!(told("chttpd", "port"), (true, "integer", false));
        assert_eq!(told("couchdb", "uuid"), (true, "text", false));
        assert_eq!(told("chttpd", "header_timeout"), (false, "duration", false));
        assert_eq!(told("cors", "origins"), (false, "list", false));
        assert_eq!(told("chttpd_auth", "secret"), (false, "text", true));
        assert_eq!(told("ssl", "password"), (false, "text", true));
        let (_, _, is_secret) = told("backup", "s3_secret_access_key");
        assert!(is_secret);
        let level = find("log", "level").expect("the level");
        assert!(level.choices().contains(&"warning"));
        assert!(find("cors", "max_age").expect("it").choices().is_empty());
    }

    #[test]
    fn secrets_of_other_systems_are_masked() {
        for (section, key) in [
            ("backup", "s3_secret_access_key"),
            ("kafka", "sasl.password"),
            ("kafka", "ssl.key.password"),
            ("kafka", "ssl.keystore.password"),
            ("kafka", "ssl.key.pem"),
            ("kafka", "sasl.oauthbearer.client.secret"),
            ("kafka", "sasl.oauthbearer.config"),
        ] {
            assert!(is_secret(section, key) && is_masked(section, key), "{key}");
        }
        for key in ["sasl.username", "security.protocol", "ssl.key.location"] {
            assert!(
                !is_secret("kafka", key) && !is_masked("kafka", key),
                "{key}"
            );
        }
        assert!(is_secret("chttpd_auth", "secret") && !is_masked("chttpd_auth", "secret"));
    }

    #[test]
    fn a_setting_is_found_by_the_older_name_of_its_section() {
        let found = find("couch_httpd_auth", "timeout").expect("timeout");
        assert_eq!((found.section, found.key), ("chttpd_auth", "timeout"));
        assert!(find("couch_httpd_auth", "port").is_none());
        assert!(find("own", "timeout").is_none());
        for (section, key) in [("httpd", "port"), ("couch_httpd_auth", "authentication_db")] {
            assert!(find(section, key).is_none(), "{key} never moved");
        }
    }

    /// Keys that CouchDB moved from `[httpd]` to `[chttpd]`, as its `default.ini` lists them, and values that are not the defaults.
    const MOVED_FROM_HTTPD: [(&str, &str); 12] = [
        ("secure_rewrites", "false"),
        ("allow_jsonp", "true"),
        ("enable_cors", "true"),
        ("enable_xframe_options", "true"),
        ("max_uri_length", "7"),
        ("changes_timeout", "7"),
        ("rewrite_limit", "7"),
        ("x_forwarded_host", "X-A"),
        ("x_forwarded_proto", "X-A"),
        ("x_forwarded_ssl", "X-A"),
        ("max_http_request_size", "7"),
        ("WWW-Authenticate", "Basic realm=\"x\""),
    ];

    /// Keys that moved from `[couch_httpd_auth]` to `[chttpd_auth]`.
    const MOVED_FROM_AUTH: [(&str, &str); 20] = [
        ("authentication_redirect", "/x"),
        ("timeout", "7"),
        ("auth_cache_size", "7"),
        ("allow_persistent_cookies", "false"),
        ("iterations", "7"),
        ("min_iterations", "7"),
        ("max_iterations", "7"),
        ("password_scheme", "simple"),
        ("pbkdf2_prf", "sha512"),
        ("password_regexp", "[]"),
        ("proxy_use_secret", "true"),
        ("public_fields", "a"),
        ("secret", "x"),
        ("cookie_domain", "x"),
        ("same_site", "Strict"),
        ("hash_algorithms", "sha512"),
        ("upgrade_hash_on_auth", "false"),
        ("x_auth_username", "X-A"),
        ("x_auth_roles", "X-A"),
        ("x_auth_token", "X-A"),
    ];

    #[test]
    fn every_key_that_moved_counts_in_the_older_section() {
        let of_httpd = MOVED_FROM_HTTPD.map(|moved| ("httpd", "chttpd", moved));
        let of_auth = MOVED_FROM_AUTH.map(|moved| ("couch_httpd_auth", "chttpd_auth", moved));
        let read = |section: &str, key: &str, value: &str| {
            let keys = [(key.to_owned(), value.to_owned())].into();
            Settings::read(&[(section.to_owned(), keys)].into()).expect(key)
        };
        for (older, newer, (key, value)) in of_httpd.into_iter().chain(of_auth) {
            let found = find(older, key).expect(key);
            assert_eq!((found.section, found.key), (newer, key));
            let by_older = read(older, key, value);
            assert!(by_older == read(newer, key, value), "[{older}] {key}");
            assert!(
                by_older != Settings::default(),
                "[{older}] {key} has no effect"
            );
        }
        for (older, key, value) in [
            ("httpd", "port", "5986"),
            ("httpd", "authentication_handlers", "{x, y}"),
            ("couch_httpd_auth", "authentication_db", "x"),
        ] {
            assert!(
                read(older, key, value) == Settings::default(),
                "[{older}] {key}"
            );
        }
    }
}
