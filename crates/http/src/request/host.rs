//! The host of a request: whether it is given as required, and whether it is allowed (`[chttpd]
//! allowed_hosts`). The host is returned in `Location`; and a page whose name was made to resolve
//! to this server (DNS rebinding) sends its own name.

use config::ConfigError;
use config::settings::Chttpd;
use hyper::Version;
use hyper::header::HOST;
use hyper::http::request::Parts;

use crate::errors::ApiError;
use crate::request::framing;

/// The hosts that the server answers for.
#[derive(Clone, Debug, Default)]
pub struct Hosts {
    /// Empty for all.
    listed: Vec<Listed>,
}

#[derive(Clone, Debug)]
enum Listed {
    Name(String),
    /// All names that end with this one: a dot, and what followed `*.`.
    Below(String),
}

impl Hosts {
    /// # Errors
    /// A name that no host can have.
    pub fn of(settings: &Chttpd) -> Result<Hosts, ConfigError> {
        let names = settings.allowed_hosts.iter().flatten();
        let listed = names.map(|name| match name.strip_prefix('*') {
            Some(end) if end.starts_with('.') => Ok(Listed::Below(end.to_owned())),
            _ if is_authority(name) => Ok(Listed::Name(name_of(name).to_owned())),
            // A typing mistake would close the server to those who are meant.
            _ => Err(ConfigError::InvalidSetting {
                section: "chttpd".into(),
                key: "allowed_hosts".into(),
                value: name.clone(),
                expected: "a host name".into(),
            }),
        });
        Ok(Hosts {
            listed: listed.collect::<Result<_, _>>()?,
        })
    }

    /// Whether requests for this host, which may have a port, are answered.
    pub fn allow(&self, authority: &str) -> bool {
        if self.listed.is_empty() {
            return true;
        }
        let name = name_of(authority);
        is_loopback(name)
            || self.listed.iter().any(|listed| match listed {
                Listed::Name(n) => n.eq_ignore_ascii_case(name),
                Listed::Below(end) => ends_with(name, end),
            })
    }
}

/// Names that only programs of this machine can mean by it: no page from elsewhere has them.
pub fn is_loopback(name: &str) -> bool {
    name.eq_ignore_ascii_case("localhost")
        || name == "[::1]"
        || name
            .parse()
            .is_ok_and(|ip: std::net::Ipv4Addr| ip.is_loopback())
}

fn ends_with(name: &str, end: &str) -> bool {
    let split = name.len().checked_sub(end.len());
    split.is_some_and(|at| at > 0 && name.as_bytes()[at..].eq_ignore_ascii_case(end.as_bytes()))
}

/// The host without its port and without the dot that may end a name.
pub fn name_of(authority: &str) -> &str {
    let name = match authority.strip_prefix('[').and_then(|v6| v6.find(']')) {
        Some(end) => &authority[..end + 2],
        None => authority.split(':').next().unwrap_or_default(),
    };
    name.strip_suffix('.').unwrap_or(name)
}

/// Whether this is a host, perhaps with a port, and nothing else. Of the characters that URLs allow
/// in names, only those of host names are accepted.
pub fn is_authority(text: &str) -> bool {
    let in_name = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b'~');
    let (host_len, is_host) = match text.strip_prefix('[').map(|v6| v6.split_once(']')) {
        Some(Some((v6, _))) => (v6.len() + 2, v6.parse::<std::net::Ipv6Addr>().is_ok()),
        Some(None) => return false,
        None => {
            let name = text.split(':').next().unwrap_or_default();
            (name.len(), !name.is_empty() && name.bytes().all(in_name))
        }
    };
    let is_port = |port: &str| {
        port.bytes().all(|b| b.is_ascii_digit()) && (port.is_empty() || port.parse::<u16>().is_ok())
    };
    is_host
        && match text[host_len..].strip_prefix(':') {
            Some(port) => is_port(port),
            None => text.len() == host_len,
        }
}

/// Refuses a request whose host is ambiguous: differences between a proxy and this server would
/// allow request smuggling. A request by HTTP/1.1 need not have a host, as in CouchDB; browsers
/// always send it.
pub fn check(parts: &Parts) -> Result<(), ApiError> {
    let target = of_target(parts);
    let mut named = parts.headers.get_all(HOST).iter();
    let header = named.next();
    let problem = match (header, target) {
        _ if named.next().is_some() => Some("There is more than one Host header."),
        (None, None) if parts.version >= Version::HTTP_2 => Some("The Host header is missing."),
        (Some(header), _) if !header.to_str().is_ok_and(is_authority) => {
            Some("The Host header names no host.")
        }
        (_, Some(target)) if !is_authority(target) => Some("The request's target names no host."),
        // By HTTP/1.1 a target that names a host makes the header void.
        (Some(header), Some(target))
            if parts.version >= Version::HTTP_2
                && !header.as_bytes().eq_ignore_ascii_case(target.as_bytes()) =>
        {
            Some("The Host header and :authority differ.")
        }
        _ => None,
    };
    let Some(problem) = problem else {
        return Ok(());
    };
    Err(framing::refusal(parts, problem))
}

/// The host that the target of a request names, perhaps with a port. PHP's HTTP client sends the name
/// and the password of its URL there too (`GET http://name:password@host/db HTTP/1.1`); they are
/// ignored, as in CouchDB. HTTP/2 forbids them.
pub fn of_target(parts: &Parts) -> Option<&str> {
    let authority = parts.uri.authority()?.as_str();
    match authority.rsplit_once('@') {
        Some((_, host)) if parts.version < Version::HTTP_2 => Some(host),
        _ => Some(authority),
    }
}

/// The answer to a request for a host that is not listed.
pub fn misdirected() -> ApiError {
    ApiError::new(
        421,
        "misdirected_request",
        "This server does not serve the requested host; see [chttpd] allowed_hosts.",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_a_name_or_an_address_with_or_without_port() {
        for host in [
            "a",
            "a.example",
            "A.example.",
            "a_b-c.example:5984",
            "127.0.0.1:80",
            "a:",
            "a:0",
            "a:65535",
            "[::1]",
            "[2001:db8::1]:5984",
            "xn--e1afmkfd.example",
        ] {
            assert!(is_authority(host), "{host}");
        }
        for none in [
            "",
            ":80",
            "a b",
            " a",
            "a/b",
            "a\\b",
            "u@a",
            "a,b",
            "a?b",
            "a#b",
            "a:b",
            "a:65536",
            "a:80:80",
            "a:+1",
            "[::1",
            "[::1]x",
            "[]",
            "[a]",
            "::1",
            "a\t",
            "a\u{7f}",
            "\u{e9}.example",
            "<a>",
            "a%00",
            "a;b",
            "a'b",
            "a\"b",
        ] {
            assert!(!is_authority(none), "{none}");
        }
    }

    fn read(listed: &[&str]) -> Result<Hosts, ConfigError> {
        let listed = listed.iter().map(|name| (*name).to_owned()).collect();
        Hosts::of(&Chttpd {
            allowed_hosts: Some(listed),
            ..config::Settings::default().chttpd
        })
    }

    fn hosts(listed: &[&str]) -> Hosts {
        read(listed).unwrap()
    }

    #[test]
    fn listed_hosts_are_answered_for_and_no_others() {
        let some = hosts(&[
            "db.example",
            "*.apps.example",
            "10.0.0.7",
            "[2001:db8::1]",
            "p:1",
        ]);
        for (host, allowed) in [
            ("db.example", true),
            ("DB.example.:8080", true),
            ("xdb.example", false),
            ("a.db.example", false),
            ("db.example.evil.example", false),
            ("a.apps.example", true),
            ("a.b.APPS.example:1", true),
            ("apps.example", false),
            (".apps.example", false),
            ("evilapps.example", false),
            ("10.0.0.7:5984", true),
            ("10.0.0.8", false),
            ("[2001:db8::1]:5984", true),
            ("[2001:db8::2]", false),
            ("p:2", true),
            ("localhost:5984", true),
            ("127.0.0.1:5984", true),
            ("[::1]:5984", true),
            ("localhost.evil.example", false),
            ("127.0.0.1.evil.example", false),
        ] {
            assert_eq!(some.allow(host), allowed, "{host}");
        }
        assert!(hosts(&[]).allow("any.example"));
    }

    #[test]
    fn a_list_with_what_is_no_host_is_refused() {
        for wrong in ["http://db.example", "*", "db example", "*db.example"] {
            assert!(
                matches!(read(&[wrong]), Err(ConfigError::InvalidSetting { .. })),
                "{wrong}"
            );
        }
    }

    #[test]
    fn a_name_and_a_password_in_the_target_are_ignored() {
        let of = |target: &str, version: Version| {
            let mut request = hyper::Request::new(());
            *request.uri_mut() = target.parse().unwrap();
            *request.version_mut() = version;
            let parts = request.into_parts().0;
            check(&parts).ok()?;
            of_target(&parts).map(str::to_owned)
        };
        let host = Some("a.example:5984".to_owned());
        for target in [
            "http://a.example:5984/db",
            "http://name@a.example:5984/db",
            "http://name:password@a.example:5984/db?x=y",
            "http://name:@a.example:5984/",
        ] {
            assert_eq!(of(target, Version::HTTP_11), host, "{target}");
        }
        assert_eq!(of("http://name@a.example/", Version::HTTP_2), None);
    }
}
