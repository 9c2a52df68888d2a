//! What a proxy says it was asked for, in headers whose names are settings (`[chttpd] x_forwarded_host`, `x_forwarded_proto`,
//! `x_forwarded_ssl`), by CouchDB's rules.

use config::ConfigError;
use config::settings::Chttpd;
use hyper::HeaderMap;

use crate::request::host::{Hosts, is_authority};

/// The headers' names.
#[derive(Clone, Debug)]
pub struct Forwarded {
    host: String,
    proto: String,
    ssl: String,
    /// The hosts that it may say.
    hosts: Hosts,
}

impl Forwarded {
    /// # Errors
    /// As [`Hosts::of`].
    pub fn of(settings: &Chttpd) -> Result<Forwarded, ConfigError> {
        Ok(Forwarded {
            host: settings.x_forwarded_host.clone(),
            proto: settings.x_forwarded_proto.clone(),
            ssl: settings.x_forwarded_ssl.clone(),
            hosts: Hosts::of(settings)?,
        })
    }

    /// The host that the proxy's client named. What is no host, or none of ours, counts for nothing: without a proxy that sets
    /// it, the header is the client's own.
    pub fn host<'a>(&self, headers: &'a HeaderMap) -> Option<&'a str> {
        value(headers, &self.host).filter(|host| is_authority(host) && self.allows(host))
    }

    /// Whether this host is one of ours.
    pub fn allows(&self, host: &str) -> bool {
        self.hosts.allow(host)
    }

    /// Whether the proxy's client spoke HTTPS. That it did not is nothing that a proxy can say.
    pub fn is_https(&self, headers: &HeaderMap) -> bool {
        value(headers, &self.ssl) == Some("on") || value(headers, &self.proto) == Some("https")
    }
}

/// A name that cannot be a header's is one that no request has.
fn value<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|v| v.to_str().ok())
}

#[cfg(test)]
mod tests {
    use hyper::header::{HeaderName, HeaderValue};

    use super::*;

    fn headers(of: &[(&'static str, &'static str)]) -> HeaderMap {
        let pair = |&(name, value): &(&'static str, &'static str)| {
            let name = HeaderName::from_static(name);
            (name, HeaderValue::from_static(value))
        };
        of.iter().map(pair).collect()
    }

    #[test]
    fn either_header_makes_it_https_and_none_makes_it_http() {
        let names = Forwarded {
            host: "X-Forwarded-Host".into(),
            proto: "X-Forwarded-Proto".into(),
            ssl: "X-Forwarded-Ssl".into(),
            hosts: Hosts::default(),
        };
        for (given, https) in [
            (&[][..], false),
            (&[("x-forwarded-proto", "https")], true),
            (&[("x-forwarded-proto", "http")], false),
            (&[("x-forwarded-proto", "gopher")], false),
            (&[("x-forwarded-ssl", "on")], true),
            (&[("x-forwarded-ssl", "off")], false),
            (
                &[("x-forwarded-ssl", "on"), ("x-forwarded-proto", "http")],
                true,
            ),
        ] {
            assert_eq!(names.is_https(&headers(given)), https, "{given:?}");
        }
    }

    #[test]
    fn the_headers_are_those_that_the_settings_name() {
        let names = Forwarded {
            host: "X-Asked-Host".into(),
            proto: "no header".into(),
            ssl: String::new(),
            hosts: Hosts::default(),
        };
        let given = headers(&[
            ("x-asked-host", "a.example:81"),
            ("x-forwarded-host", "b.example"),
            ("x-forwarded-proto", "https"),
        ]);
        assert_eq!(names.host(&given), Some("a.example:81"));
        assert!(!names.is_https(&given));
        for none in ["a.example, b.example", "u@a.example", "a/b", ""] {
            assert_eq!(
                names.host(&headers(&[("x-asked-host", none)])),
                None,
                "{none}"
            );
        }
    }
}
