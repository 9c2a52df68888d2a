//! The host and protocol of the original request, from a proxy's headers whose names are settings
//! (`[chttpd] x_forwarded_host`, `x_forwarded_proto`, `x_forwarded_ssl`), by CouchDB's rules; the
//! path below which the proxy has the server (`x_forwarded_prefix`), and the client's address
//! (`trusted_proxies`), which CouchDB does not have.

use std::net::{IpAddr, SocketAddr};

use config::ConfigError;
use config::settings::Chttpd;
use hyper::HeaderMap;
use ipnet::IpNet;

use crate::request::host::{Hosts, is_authority};

/// The header in which each proxy adds the address that asked it.
const FORWARDED_FOR: &str = "x-forwarded-for";
/// Longest path of a server below a proxy.
const PREFIX_BYTES_MAX: usize = 256;

/// The names of these headers, and the hosts and proxies that are trusted.
#[derive(Clone, Debug)]
pub struct ProxyHeaders {
    host: String,
    proto: String,
    ssl: String,
    prefix: String,
    /// The hosts that it may name.
    hosts: Hosts,
    /// Proxies that are trusted about their clients' addresses.
    proxies: Vec<IpNet>,
}

impl ProxyHeaders {
    /// # Errors
    /// As [`Hosts::of`], and a proxy that is neither an address nor a network.
    pub fn of(settings: &Chttpd) -> Result<ProxyHeaders, ConfigError> {
        Ok(ProxyHeaders {
            host: settings.x_forwarded_host.clone(),
            proto: settings.x_forwarded_proto.clone(),
            ssl: settings.x_forwarded_ssl.clone(),
            prefix: settings.x_forwarded_prefix.clone(),
            hosts: Hosts::of(settings)?,
            proxies: proxies(settings)?,
        })
    }

    /// The host that the proxy's client named. Invalid hosts, and hosts that are not allowed, are
    /// ignored: without a proxy that sets the header, it is the client's own.
    pub fn host<'a>(&self, headers: &'a HeaderMap) -> Option<&'a str> {
        value(headers, &self.host).filter(|host| is_authority(host) && self.allows(host))
    }

    /// Whether this host is allowed.
    pub fn allows(&self, host: &str) -> bool {
        self.hosts.allow(host)
    }

    /// Whether the proxy's client used HTTPS. A proxy cannot assert the contrary.
    pub fn is_https(&self, headers: &HeaderMap) -> bool {
        value(headers, &self.ssl) == Some("on") || value(headers, &self.proto) == Some("https")
    }

    /// The path below which the proxy's client has this server, without a slash at its end; empty
    /// when it is the whole host. It goes before paths in `Location` and in cookies, so paths that
    /// could point elsewhere are ignored.
    pub fn prefix<'a>(&self, headers: &'a HeaderMap) -> &'a str {
        let said = value(headers, &self.prefix).unwrap_or_default();
        let prefix = said.strip_suffix('/').unwrap_or(said);
        match is_prefix(prefix) {
            true => prefix,
            false => "",
        }
    }

    /// The client's address: of all those in `X-Forwarded-For`, the nearest that is not a trusted
    /// proxy. Those farther away may be invented by that client.
    pub fn client(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        if self.proxies.is_empty() {
            return peer;
        }
        let mut client = peer.to_canonical();
        let lines = headers.get_all(FORWARDED_FOR).iter().rev();
        let mut named = lines.flat_map(|line| line.to_str().unwrap_or_default().rsplit(','));
        while self.proxies.iter().any(|net| net.contains(&client)) {
            match named.next().and_then(address) {
                Some(next) => client = next,
                None => break,
            }
        }
        client
    }
}

fn proxies(settings: &Chttpd) -> Result<Vec<IpNet>, ConfigError> {
    let named = settings.trusted_proxies.iter().flatten();
    let network = |text: &String| match (text.parse::<IpNet>(), text.parse::<IpAddr>()) {
        (Ok(network), _) => Ok(network),
        (_, Ok(address)) => Ok(address.to_canonical().into()),
        _ => Err(ConfigError::InvalidSetting {
            section: "chttpd".into(),
            key: "trusted_proxies".into(),
            value: text.clone(),
            expected: "addresses and networks, as 10.0.0.0/8".into(),
        }),
    };
    named.map(network).collect()
}

/// An address as proxies write it: some add the port.
fn address(text: &str) -> Option<IpAddr> {
    let text = text.trim();
    let bare = text.strip_prefix('[').and_then(|v6| v6.strip_suffix(']'));
    let alone = bare.unwrap_or(text).parse::<IpAddr>().ok();
    let found = alone.or_else(|| {
        text.parse::<SocketAddr>()
            .ok()
            .map(|with_port| with_port.ip())
    });
    found.map(|ip| ip.to_canonical())
}

/// Whether this is a path of at least one segment, none of which is empty, `.` or `..`, or contains
/// characters with a meaning in headers.
fn is_prefix(path: &str) -> bool {
    let is_plain =
        |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b'~' | b'%');
    let is_segment = |part: &str| !matches!(part, "" | "." | "..") && part.bytes().all(is_plain);
    path.len() <= PREFIX_BYTES_MAX
        && path
            .strip_prefix('/')
            .is_some_and(|parts| parts.split('/').all(is_segment))
}

/// Returns a header's value; a name that is invalid for headers is never present.
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

    fn names() -> ProxyHeaders {
        ProxyHeaders {
            host: "X-Forwarded-Host".into(),
            proto: "X-Forwarded-Proto".into(),
            ssl: "X-Forwarded-Ssl".into(),
            prefix: "X-Forwarded-Prefix".into(),
            hosts: Hosts::default(),
            proxies: vec![],
        }
    }

    #[test]
    fn a_prefix_is_a_path_that_leads_nowhere_else() {
        let names = names();
        let prefix = |said: &'static str| {
            let given = headers(&[("x-forwarded-prefix", said)]);
            names.prefix(&given).to_owned()
        };
        assert_eq!(names.prefix(&headers(&[])), "");
        for (said, wanted) in [
            ("/db", "/db"),
            ("/db/", "/db"),
            ("/a/b-c/d_%C3%A9.~1", "/a/b-c/d_%C3%A9.~1"),
        ] {
            assert_eq!(prefix(said), wanted, "{said}");
        }
        for none in [
            "/",
            "//",
            "",
            "db",
            "//elsewhere.example",
            "/db//x",
            "/..",
            "/db/../x",
            "/./x",
            "/\\elsewhere.example",
            "/db; Domain=example",
            "/db,/other",
            "/db?x",
            "/db#x",
            "/d b",
            "https://elsewhere.example",
        ] {
            assert_eq!(prefix(none), "", "{none}");
        }
    }

    #[test]
    fn the_client_is_the_nearest_address_that_is_no_proxy_of_ours() {
        let trusting = ProxyHeaders {
            proxies: vec![
                "127.0.0.1/32".parse().unwrap(),
                "10.0.0.0/8".parse().unwrap(),
            ],
            ..names()
        };
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let client = |peer, said: &[&'static str]| {
            let said: Vec<_> = said.iter().map(|line| (FORWARDED_FOR, *line)).collect();
            let mut given = HeaderMap::new();
            for (name, value) in said {
                given.append(
                    HeaderName::from_static(name),
                    HeaderValue::from_static(value),
                );
            }
            trusting.client(ip(peer), &given)
        };
        // A client that is not a trusted proxy may send any value.
        assert_eq!(client("192.0.2.1", &["203.0.113.5"]), ip("192.0.2.1"));
        assert_eq!(client("127.0.0.1", &[]), ip("127.0.0.1"));
        assert_eq!(client("127.0.0.1", &["203.0.113.5"]), ip("203.0.113.5"));
        assert_eq!(
            client("127.0.0.1", &["198.51.100.1, 203.0.113.5"]),
            ip("203.0.113.5")
        );
        assert_eq!(
            client("::ffff:127.0.0.1", &["203.0.113.5, 10.2.3.4"]),
            ip("203.0.113.5")
        );
        // Each proxy may add a line of its own.
        assert_eq!(
            client("127.0.0.1", &["198.51.100.1", "203.0.113.5", "10.1.1.1"]),
            ip("203.0.113.5")
        );
        assert_eq!(client("127.0.0.1", &["10.1.1.1, 10.2.2.2"]), ip("10.1.1.1"));
        for with_port in [
            "203.0.113.5:4711",
            "2001:db8::1",
            "[2001:db8::1]",
            "[2001:db8::1]:4711",
        ] {
            let found = client("10.0.0.1", &[with_port]);
            assert!(
                found == ip("203.0.113.5") || found == ip("2001:db8::1"),
                "{with_port}: {found}"
            );
        }
        for none in ["unknown", "", "203.0.113.5, ", "203.0.113.5, x", "_hidden"] {
            assert_eq!(client("10.0.0.1", &[none]), ip("10.0.0.1"), "{none}");
        }
        // Without trusted proxies the header is ignored.
        let given = headers(&[(FORWARDED_FOR, "203.0.113.5")]);
        assert_eq!(names().client(ip("127.0.0.1"), &given), ip("127.0.0.1"));
    }

    #[test]
    fn either_header_makes_it_https_and_none_makes_it_http() {
        let names = names();
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
        let names = ProxyHeaders {
            host: "X-Asked-Host".into(),
            proto: "no header".into(),
            ssl: String::new(),
            ..names()
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
