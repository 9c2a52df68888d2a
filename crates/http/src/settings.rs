//! The settings as requests look at them: the configuration's sections, and the rules that are made of some.

use std::ops::Deref;
use std::sync::Arc;

use config::{Config, ConfigError};
use database::{AttachmentOptions, CreateOptions, Databases};
use document::UuidAlgorithm;

use crate::browsers::cors::Cors;
use crate::browsers::frame_options::FrameOptions;
use crate::request::forwarded::Forwarded;

/// What is in force. Read again when the configuration changes; a request keeps what was in force when it began.
///
/// It is the configuration's [`Settings`](config::Settings) with what is worth making of them once, not at every request.
pub struct Settings {
    sections: Arc<config::Settings>,
    /// What pages of other origins may do, if anything.
    pub cors: Option<Cors>,
    /// Whether answers may be shown inside other pages, when they say so.
    pub frame_options: Option<FrameOptions>,
    /// Where a proxy says what it was asked for.
    pub forwarded: Forwarded,
}

impl Deref for Settings {
    type Target = config::Settings;

    fn deref(&self) -> &config::Settings {
        &self.sections
    }
}

impl Settings {
    /// What the configuration says.
    ///
    /// # Errors
    /// As [`Forwarded::of`].
    pub fn read(config: &Config) -> Result<Settings, ConfigError> {
        let sections = config.settings();
        let forwarded = Forwarded::of(&sections.chttpd)?;
        Ok(Settings::of(sections, forwarded))
    }

    /// What the configuration says now, but for hosts that are none: then those of `before` stay.
    pub fn read_again(config: &Config, before: &Settings) -> Settings {
        let sections = config.settings();
        let forwarded = Forwarded::of(&sections.chttpd).unwrap_or_else(|e| {
            tracing::warn!(error = %e, "the old hosts stay in force");
            before.forwarded.clone()
        });
        Settings::of(sections, forwarded)
    }

    fn of(sections: Arc<config::Settings>, forwarded: Forwarded) -> Settings {
        Settings {
            cors: Cors::of(&sections),
            frame_options: FrameOptions::of(&sections),
            forwarded,
            sections,
        }
    }

    /// Tells databases what concerns them.
    pub fn tell(&self, databases: &Databases) {
        databases.set_partition_limit(self.couchdb.max_partition_size);
        databases.set_attachment_options(self.attachment_options());
    }

    /// Content-Security-Policy of attachments.
    pub fn attachments_policy(&self) -> Option<&str> {
        let csp = &self.csp;
        csp.attachments_enable
            .then_some(csp.attachments_header_value.as_str())
    }

    /// Content-Security-Policy of what shows, lists and updates answer.
    pub fn showlist_policy(&self) -> Option<&str> {
        let csp = &self.csp;
        csp.showlist_enable
            .then_some(csp.showlist_header_value.as_str())
    }

    /// How a new database is made, with so many shards or as many as are configured. More replicas than one would all be here.
    pub fn new_database(&self, q: Option<u32>, partitioned: bool) -> CreateOptions {
        let security = auth::DefaultSecurity::from(self.couchdb.default_security);
        CreateOptions {
            q: q.or(Some(self.cluster.q)),
            n: Some(1),
            partitioned,
            security: security.json().to_owned(),
        }
    }

    /// What attachments may be, and how they are stored.
    pub fn attachment_options(&self) -> AttachmentOptions {
        let level = self.attachments.compression_level.min(9) as u32;
        AttachmentOptions {
            bytes_max: self.couchdb.max_attachment_size,
            count_max: self.couchdb.max_attachments_per_document,
            ..AttachmentOptions::new(level, &self.attachments.compressible_types)
        }
    }

    /// How ids of documents without one are made.
    pub fn uuid_algorithm(&self) -> UuidAlgorithm {
        match self.uuids.algorithm {
            config::settings::UuidAlgorithm::Sequential => UuidAlgorithm::Sequential,
            config::settings::UuidAlgorithm::Random => UuidAlgorithm::Random,
            config::settings::UuidAlgorithm::UtcRandom => UuidAlgorithm::UtcRandom,
            config::settings::UuidAlgorithm::UtcId => UuidAlgorithm::UtcId {
                suffix: self.uuids.utc_id_suffix.clone().unwrap_or_default(),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is in force when nothing is configured.
    fn defaults() -> Settings {
        let folder = tempfile::tempdir().unwrap();
        let layers = config::Layers::new(folder.path().join("local.ini"));
        Settings::read(&Config::load(layers).unwrap()).unwrap()
    }

    #[test]
    fn defaults_are_those_of_the_crates_that_they_are_for() {
        let settings = defaults();
        assert_eq!(
            settings.attachment_options(),
            AttachmentOptions::default(),
            "of attachments"
        );
        let uuids = settings.uuid_algorithm();
        assert!(matches!(uuids, UuidAlgorithm::Sequential), "{uuids:?}");
        let security = settings.new_database(None, false).security;
        assert_eq!(security, auth::DefaultSecurity::default().json());
    }

    #[test]
    fn hosts_that_are_none_leave_the_old_ones_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let layers = config::Layers::new(folder.path().join("local.ini"));
        let config = Config::load(layers).unwrap();
        let set = |key, value| config.set("chttpd", key, value, false).unwrap();
        set("allowed_hosts", "db.example");
        let before = Settings::read(&config).unwrap();
        set("allowed_hosts", "http://other.example");
        set("allow_jsonp", "true");
        assert!(Settings::read(&config).is_err());
        let after = Settings::read_again(&config, &before);
        assert!(after.forwarded.allows("db.example"));
        assert!(!after.forwarded.allows("other.example"));
        assert!(after.chttpd.allow_jsonp);
    }

    #[test]
    fn policies_are_sent_unless_they_are_switched_off() {
        let settings = defaults();
        assert_eq!(settings.attachments_policy(), Some("sandbox"));
        let mut sections = (*settings.sections).clone();
        sections.csp.attachments_enable = false;
        sections.csp.showlist_header_value = "default-src 'self'".to_owned();
        let settings = Settings {
            sections: Arc::new(sections),
            ..settings
        };
        assert_eq!(settings.attachments_policy(), None);
        assert_eq!(settings.showlist_policy(), Some("default-src 'self'"));
    }
}
