//! `[replicator] connect_to`: other addresses to connect to than those that URLs name, as curl's
//! `--connect-to`.

use std::net::SocketAddr;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::HeaderValue;
use url::{Host, Url};

use super::address_filter::AddressFilter;

/// The value of `[replicator] connect_to`. Of several entries for one server, the first counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectTo(Vec<Entry>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    /// In lower case. After a `*`, the end of names.
    host: String,
    port: u16,
    target: Target,
}

/// Where connections go instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// A name or an address; without brackets.
    pub host: String,
    pub port: u16,
}

impl ConnectTo {
    /// Parses the setting, a list of `host:port:target:target_port`; also returns the invalid
    /// entries, which have no effect.
    ///
    /// ```
    /// use replicator::ConnectTo;
    ///
    /// let (connect_to, invalid) = ConnectTo::parse("*.example.com:443:[::1]:8443, example.com");
    /// assert_eq!(invalid, ["example.com"]);
    /// let target = connect_to.target(&"https://db.example.com/a".parse().unwrap()).unwrap();
    /// assert_eq!((target.host.as_str(), target.port), ("::1", 8443));
    /// ```
    pub fn parse(setting: &str) -> (ConnectTo, Vec<String>) {
        let (mut entries, mut invalid) = (vec![], vec![]);
        for text in setting.split(',').map(str::trim).filter(|t| !t.is_empty()) {
            match Entry::parse(text) {
                Some(entry) => entries.push(entry),
                None => invalid.push(text.to_owned()),
            }
        }
        (ConnectTo(entries), invalid)
    }

    /// Returns where requests to a URL go instead; `None` for those to the server of the URL.
    pub fn target(&self, url: &Url) -> Option<&Target> {
        let (host, port) = (url.host_str()?, url.port_or_known_default()?);
        let entry = self.0.iter().find(|entry| entry.matches(host, port));
        entry.map(|entry| &entry.target)
    }
}

impl Entry {
    fn parse(text: &str) -> Option<Entry> {
        let (host, rest) = text.split_once(':')?;
        let (port, rest) = rest.split_once(':')?;
        let (target, target_port) = match rest.strip_prefix('[') {
            Some(rest) => rest.split_once("]:")?,
            None => rest.split_once(':')?,
        };
        if host.is_empty() || host.contains('[') || target.is_empty() {
            return None;
        }
        Some(Entry {
            host: host.to_ascii_lowercase(),
            port: port_of(port)?,
            target: Target {
                host: target.to_owned(),
                port: port_of(target_port)?,
            },
        })
    }

    fn matches(&self, host: &str, port: u16) -> bool {
        let is_host = match self.host.strip_prefix('*') {
            Some(end) => host.to_ascii_lowercase().ends_with(end),
            None => host.eq_ignore_ascii_case(&self.host),
        };
        is_host && port == self.port
    }
}

fn port_of(text: &str) -> Option<u16> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|port| is_number && *port > 0)
}

impl Target {
    /// Returns the URL of this server that stands for a URL, for checks of where it leads.
    pub fn in_place_of(&self, url: &Url) -> Option<Url> {
        let mut there = url.clone();
        let host = match self.host.contains(':') {
            true => format!("[{}]", self.host),
            false => self.host.clone(),
        };
        there.set_host(Some(&host)).ok()?;
        there.set_port(Some(self.port)).ok()?;
        Some(there)
    }

    /// Returns the URL that a client with a [`FixedResolver`] resolver requests, and the `Host` header
    /// of the request.
    pub fn request_to(&self, url: &Url) -> (Url, Option<HeaderValue>) {
        let authority = match (url.host_str(), url.port()) {
            (Some(host), Some(port)) => format!("{host}:{port}"),
            (host, _) => host.unwrap_or_default().to_owned(),
        };
        let authority = HeaderValue::from_str(&authority).ok();
        let there = match url.host() {
            // Without a port, that of the resolver counts. The name stays for TLS.
            Some(Host::Domain(_)) => {
                let mut there = url.clone();
                there.set_port(None).ok().map(|()| there)
            }
            // Addresses are not resolved.
            _ => self.in_place_of(url),
        };
        (there.unwrap_or_else(|| url.clone()), authority)
    }
}

/// A resolver that leads every name to one server, if its addresses are allowed.
pub struct FixedResolver {
    pub target: Target,
    pub filter: AddressFilter,
}

impl Resolve for FixedResolver {
    fn resolve(&self, _: Name) -> Resolving {
        let (target, filter) = (self.target.clone(), self.filter.clone());
        Box::pin(async move {
            let found = tokio::net::lookup_host((target.host.as_str(), target.port)).await?;
            let allowed: Vec<SocketAddr> = found.filter(|a| filter.permits(a.ip())).collect();
            match allowed.is_empty() {
                true => Err("[replicator] connect_to leads to no address that is allowed".into()),
                false => Ok(Box::new(allowed.into_iter()) as Addrs),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        text.parse().unwrap()
    }

    fn target(setting: &str, of: &str) -> Option<(String, u16)> {
        let (connect_to, _) = ConnectTo::parse(setting);
        let target = connect_to.target(&url(of))?;
        Some((target.host.clone(), target.port))
    }

    #[test]
    fn entries_are_those_of_couchdb() {
        let proxy = Some(("proxy.internal".to_owned(), 8443));
        let all = "*.Example.test:443:proxy.internal:8443";
        assert_eq!(target(all, "https://account.example.test/db"), proxy);
        assert_eq!(target(all, "https://ACCOUNT.example.test:443/db"), proxy);
        for other in [
            "https://example.test/db",
            "http://account.example.test/db",
            "https://account.example.test:444/db",
            "https://account.example.tests/db",
        ] {
            assert_eq!(target(all, other), None, "{other}");
        }
        let first = "a.test:80:[2001:db8::1]:5984,*:80:10.0.0.1:80, *:80:x:80";
        assert_eq!(
            target(first, "http://a.test/"),
            Some(("2001:db8::1".to_owned(), 5984))
        );
        assert_eq!(
            target(first, "http://10.0.0.9/"),
            Some(("10.0.0.1".to_owned(), 80))
        );
    }

    #[test]
    fn invalid_entries_are_reported() {
        for bad in [
            "a",
            "a:80",
            "a:80:b",
            "a:80:b:",
            "a:x:b:80",
            "a:80:b:x",
            ":80:b:80",
            "a:80::80",
            "[::1]:80:b:80",
            "a:80:[::1]",
            "a:80:[::1:80",
            "a:80:b:80:90",
            "a:+80:b:80",
            "a:80:b:70000",
            "a:80:b:0",
        ] {
            let (connect_to, invalid) = ConnectTo::parse(bad);
            assert_eq!(
                (connect_to, invalid),
                (ConnectTo::default(), vec![bad.to_owned()])
            );
        }
        assert_eq!(ConnectTo::parse(" , ").0, ConnectTo::default());
    }

    #[test]
    fn the_host_of_a_request_stays_that_of_its_url() {
        let target = Target {
            host: "::1".to_owned(),
            port: 9443,
        };
        let request = |of: &str| {
            let (there, host) = target.request_to(&url(of));
            (
                there.to_string(),
                host.unwrap().to_str().unwrap().to_owned(),
            )
        };
        assert_eq!(
            request("http://a.test:5984/db?x=1"),
            ("http://a.test/db?x=1".to_owned(), "a.test:5984".to_owned())
        );
        assert_eq!(
            request("http://10.0.0.1/db"),
            ("http://[::1]:9443/db".to_owned(), "10.0.0.1".to_owned())
        );
    }
}
