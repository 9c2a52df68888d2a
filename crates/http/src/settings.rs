//! Settings in the form that requests use: the configuration's sections, and the rules derived from
//! some of them.

use std::ops::Deref;
use std::sync::Arc;

use config::settings::ChttpdAuth;
use config::{Config, ConfigError};
use hyper::header::HeaderName;

use crate::browsers::cors::Cors;
use crate::browsers::dev::Dev;
use crate::browsers::frame_options::FrameOptions;
use crate::request::proxy_headers::ProxyHeaders;

/// The current settings. Read again when the configuration changes; a request keeps those from its
/// start.
///
/// Has the configuration's [`Settings`](config::Settings), and values derived from them once, not
/// at every request.
#[derive(Clone)]
pub struct Settings {
    sections: Arc<config::Settings>,
    /// Rights of pages of other origins, if they have any.
    pub cors: Option<Cors>,
    /// Whether responses may be shown inside other pages, if configured.
    pub frame_options: Option<FrameOptions>,
    /// The headers in which a proxy names the original host.
    pub proxy_headers: ProxyHeaders,
    /// The headers in which a proxy names the user that it has authenticated.
    pub login_headers: Vec<HeaderName>,
    /// The rules of a server without logins, if it is one.
    pub dev: Option<Arc<Dev>>,
}

impl Deref for Settings {
    type Target = config::Settings;

    fn deref(&self) -> &config::Settings {
        &self.sections
    }
}

impl Settings {
    /// Reads the settings of the configuration.
    ///
    /// # Errors
    /// As [`ProxyHeaders::of`].
    pub fn read(config: &Config, dev: Option<Arc<Dev>>) -> Result<Settings, ConfigError> {
        let sections = config.settings();
        let proxy_headers = ProxyHeaders::of(&sections.chttpd)?;
        Ok(Settings::of(sections, proxy_headers, dev))
    }

    /// Reads the settings again. If the allowed hosts are invalid, those of `before` stay.
    pub fn read_again(config: &Config, before: &Settings) -> Settings {
        let sections = config.settings();
        let proxy_headers = ProxyHeaders::of(&sections.chttpd).unwrap_or_else(|e| {
            tracing::warn!(error = %e, "the old hosts and proxies stay in force");
            before.proxy_headers.clone()
        });
        Settings::of(sections, proxy_headers, before.dev.clone())
    }

    fn of(
        sections: Arc<config::Settings>,
        proxy_headers: ProxyHeaders,
        dev: Option<Arc<Dev>>,
    ) -> Settings {
        Settings {
            cors: match &dev {
                None => Cors::of(&sections),
                Some(dev) => Some(Cors::of_dev(dev.clone())),
            },
            dev,
            frame_options: FrameOptions::of(&sections),
            login_headers: login_headers(&sections.chttpd_auth),
            proxy_headers,
            sections,
        }
    }

    /// Content-Security-Policy of attachments.
    pub fn attachments_policy(&self) -> Option<&str> {
        let csp = &self.csp;
        csp.attachments_enable
            .then_some(csp.attachments_header_value.as_str())
    }

    /// Content-Security-Policy of the responses of shows, lists and updates.
    pub fn showlist_policy(&self) -> Option<&str> {
        let csp = &self.csp;
        csp.showlist_enable
            .then_some(csp.showlist_header_value.as_str())
    }
}

/// The headers of proxy authentication. Invalid names are left out.
fn login_headers(settings: &ChttpdAuth) -> Vec<HeaderName> {
    let names = [
        &settings.x_auth_username,
        &settings.x_auth_roles,
        &settings.x_auth_token,
    ];
    let names = names.into_iter();
    names.filter_map(|name| name.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The settings when nothing is configured.
    fn defaults() -> Settings {
        let folder = tempfile::tempdir().unwrap();
        let layers = config::Layers::new(folder.path().join("local.ini"));
        Settings::read(&Config::load(layers).unwrap(), None).unwrap()
    }

    #[test]
    fn hosts_that_are_none_leave_the_old_ones_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let layers = config::Layers::new(folder.path().join("local.ini"));
        let config = Config::load(layers).unwrap();
        let set = |key, value| config.set("chttpd", key, value, false).unwrap();
        set("allowed_hosts", "db.example");
        let before = Settings::read(&config, None).unwrap();
        set("allowed_hosts", "http://other.example");
        set("allow_jsonp", "true");
        assert!(Settings::read(&config, None).is_err());
        let after = Settings::read_again(&config, &before);
        assert!(after.proxy_headers.allows("db.example"));
        assert!(!after.proxy_headers.allows("other.example"));
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
