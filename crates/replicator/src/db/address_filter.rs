//! Decides which addresses replications of users other than server admins may connect to, and which
//! addresses belong to this server.
//!
//! The address that is actually connected to decides: names are resolved by a resolver that drops
//! forbidden addresses, and addresses in URLs are checked before. So DNS rebinding and redirects
//! lead nowhere.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use ipnet::IpNet;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use url::{Host, Url};

/// The value of `[replicator] allowed_addresses`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllowedAddresses {
    /// Every address.
    pub any: bool,
    /// This server itself.
    pub own: bool,
    /// Public addresses, except those of this machine.
    pub public: bool,
    /// Listed networks.
    pub networks: Vec<IpNet>,
}

impl AllowedAddresses {
    /// Parses the setting; also returns the invalid entries, which allow nothing.
    pub fn parse(setting: &str) -> (AllowedAddresses, Vec<String>) {
        let (mut allowed, mut unknown) = (AllowedAddresses::default(), vec![]);
        let words = setting.split(',').map(str::trim).filter(|w| !w.is_empty());
        for word in words {
            match word {
                "any" => allowed.any = true,
                "self" => allowed.own = true,
                "public" => allowed.public = true,
                word => match (word.parse::<IpNet>(), word.parse::<IpAddr>()) {
                    (Ok(network), _) => allowed.networks.push(network),
                    (_, Ok(address)) => allowed.networks.push(address.into()),
                    _ => unknown.push(word.to_owned()),
                },
            }
        }
        (allowed, unknown)
    }

    fn permits(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.any
            || self.networks.iter().any(|net| net.contains(&address))
            || self.public && is_public(address) && !is_of_this_machine(address)
    }
}

/// The addresses that a client may connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AddressFilter {
    Anywhere,
    /// Allowed addresses only.
    Only(AllowedAddresses),
    /// The listeners of this server that the URL leads to.
    Own(Vec<SocketAddr>),
}

impl AddressFilter {
    /// Returns whether connections to this address are allowed. For [`AddressFilter::Own`] the port has
    /// been checked already.
    pub fn permits(&self, address: IpAddr) -> bool {
        match self {
            AddressFilter::Anywhere => true,
            AddressFilter::Only(allowed) => allowed.permits(address),
            AddressFilter::Own(listeners) => listeners.iter().any(|l| serves(l, address)),
        }
    }

    /// Returns whether connections to a URL's host are allowed, if it is an address: names are left
    /// to the resolver.
    pub fn permits_host(&self, url: &Url) -> bool {
        match url.host() {
            Some(Host::Ipv4(address)) => self.permits(address.into()),
            Some(Host::Ipv6(address)) => self.permits(address.into()),
            Some(Host::Domain(name)) => match name.parse::<IpAddr>() {
                // For schemes whose hosts are not parsed as addresses.
                Ok(address) => self.permits(address),
                Err(_) => true,
            },
            None => false,
        }
    }
}

/// Returns this server's listeners that a URL leads to, if any.
pub async fn own_listeners(url: &Url, listening: &[SocketAddr]) -> Option<Vec<SocketAddr>> {
    let port = url.port_or_known_default()?;
    let on_port = listening.iter().filter(|l| l.port() == port);
    let listeners: Vec<SocketAddr> = on_port.copied().collect();
    if listeners.is_empty() {
        return None;
    }
    let own = AddressFilter::Own(listeners.clone());
    let leads_here = match url.host()? {
        Host::Ipv4(address) => own.permits(address.into()),
        Host::Ipv6(address) => own.permits(address.into()),
        Host::Domain(name) => {
            let mut found = tokio::net::lookup_host((name, port)).await.ok()?;
            found.any(|address| own.permits(address.ip()))
        }
    };
    leads_here.then_some(listeners)
}

/// Returns whether a connection to this address, at the listener's port, arrives at the listener.
fn serves(listener: &SocketAddr, address: IpAddr) -> bool {
    let (at, address) = (listener.ip().to_canonical(), address.to_canonical());
    // Connecting to the unspecified address reaches this machine.
    let address = match address {
        IpAddr::V4(v4) if v4.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(v6) if v6.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        other => other,
    };
    if !at.is_unspecified() {
        return at == address;
    }
    (at.is_ipv6() || address.is_ipv4()) && is_of_this_machine(address)
}

/// Returns whether an address belongs to this machine: the system would send from that very
/// address. Nothing is sent.
fn is_of_this_machine(address: IpAddr) -> bool {
    if address.is_loopback() || address.is_unspecified() {
        return true;
    }
    let any: IpAddr = match address {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let from = UdpSocket::bind((any, 0)).and_then(|socket| {
        socket.connect((address, 9))?;
        socket.local_addr()
    });
    from.is_ok_and(|from| from.ip() == address)
}

/// Returns whether an address is public. Private, loopback, link-local, documentation, multicast
/// and IPv4-mapping addresses are not.
fn is_public(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => {
            let [a, b, c, _] = v4.octets();
            let special = matches!(
                (a, b, c),
                (0 | 10 | 127 | 224..=255, _, _)
                    | (100, 64..=127, _)
                    | (169, 254, _)
                    | (172, 16..=31, _)
                    | (192, 168, _)
                    | (192, 0, 0 | 2)
                    | (192, 88, 99)
                    | (198, 18 | 19, _)
                    | (198, 51, 100)
                    | (203, 0, 113)
            );
            !special
        }
        IpAddr::V6(v6) => {
            let [a, b, ..] = v6.segments();
            let special = matches!((a, b), (0x2001, 0..=0x1ff | 0xdb8) | (0x2002, _))
                || (0x3ff0..=0x3fff).contains(&a);
            (0x2000..=0x3fff).contains(&a) && !special
        }
    }
}

/// A resolver that drops forbidden addresses.
pub struct FilteredResolver(pub AddressFilter);

impl Resolve for FilteredResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let reach = self.0.clone();
        Box::pin(async move {
            // The port comes from the URL; this one is ignored.
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let allowed: Vec<SocketAddr> = found.filter(|a| reach.permits(a.ip())).collect();
            match allowed.is_empty() {
                true => Err("the name leads to no address that is allowed".into()),
                false => Ok(Box::new(allowed.into_iter()) as Addrs),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn the_internet_is_public_and_nothing_else() {
        for public in [
            "8.8.8.8",
            "172.32.0.1",
            "100.128.0.1",
            "2606:4700::1",
            "2a00::1",
        ] {
            assert!(is_public(ip(public)), "{public}");
        }
        for special in [
            "0.0.0.0",
            "10.1.2.3",
            "100.64.0.1",
            "127.0.0.1",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.8",
            "192.0.2.1",
            "192.168.1.1",
            "192.88.99.1",
            "198.18.0.1",
            "198.51.100.1",
            "203.0.113.9",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:10.0.0.1",
            "::ffff:127.0.0.1",
            "::7f00:1",
            "64:ff9b::a00:1",
            "64:ff9b:1::1",
            "100::1",
            "2001::1",
            "2001:db8::1",
            "2002:7f00:1::",
            "3fff::1",
            "fc00::1",
            "fd12::1",
            "fe80::1",
            "fec0::1",
            "ff02::1",
        ] {
            assert!(!is_public(ip(special)), "{special}");
        }
    }

    #[test]
    fn what_the_setting_allows() {
        let (allowed, unknown) =
            AllowedAddresses::parse("public, 10.1.0.0/16,fd00::/8 , 192.168.1.7, x");
        assert_eq!(unknown, ["x"]);
        for (address, permitted) in [
            ("8.8.8.8", true),
            ("10.1.2.3", true),
            ("::ffff:10.1.2.3", true),
            ("10.2.0.1", false),
            ("fd00::1", true),
            ("192.168.1.7", true),
            ("192.168.1.8", false),
            ("127.0.0.1", false),
        ] {
            assert_eq!(allowed.permits(ip(address)), permitted, "{address}");
        }
        assert!(AllowedAddresses::parse("any").0.permits(ip("127.0.0.1")));
        assert!(!AllowedAddresses::parse("").0.permits(ip("8.8.8.8")));
    }

    #[test]
    fn this_very_server_is_what_it_listens_on() {
        let on = |listener: &str, address: &str| serves(&listener.parse().unwrap(), ip(address));
        assert!(on("127.0.0.1:5984", "127.0.0.1"));
        assert!(on("127.0.0.1:5984", "::ffff:127.0.0.1"));
        assert!(on("127.0.0.1:5984", "0.0.0.0"));
        assert!(!on("127.0.0.1:5984", "127.0.0.2"));
        assert!(!on("127.0.0.1:5984", "::1"));
        assert!(on("0.0.0.0:5984", "127.9.9.9"));
        assert!(!on("0.0.0.0:5984", "::1"));
        assert!(on("[::]:5984", "::1") && on("[::]:5984", "127.0.0.1"));
        // A documentation address belongs to no machine.
        assert!(!on("0.0.0.0:5984", "192.0.2.1"));
    }

    #[test]
    fn odd_spellings_of_addresses_are_addresses() {
        let only = AddressFilter::Only(AllowedAddresses::parse("public").0);
        for host in [
            "127.1",
            "0x7f.1",
            "2130706433",
            "017700000001",
            "127.0.0.1.",
            "[::1]",
            "[::ffff:7f00:1]",
            "0",
            "169.254.169.254",
            "[fe80::1]",
        ] {
            for scheme in ["http", "https", "socks5"] {
                let url = Url::parse(&format!("{scheme}://{host}/db"));
                let Ok(url) = url else { continue };
                let is_name =
                    scheme == "socks5" && !host.starts_with('[') && host.parse::<IpAddr>().is_err();
                assert_eq!(only.permits_host(&url), is_name, "{url}");
            }
        }
        assert!(only.permits_host(&Url::parse("http://8.8.8.8/").unwrap()));
        assert!(only.permits_host(&Url::parse("http://example.com/").unwrap()));
    }

    #[tokio::test]
    async fn a_name_that_leads_to_this_machine_leads_nowhere() {
        let only = FilteredResolver(AddressFilter::Only(AllowedAddresses::parse("public").0));
        assert!(only.resolve("localhost".parse().unwrap()).await.is_err());
        let listener: SocketAddr = "127.0.0.1:5984".parse().unwrap();
        let own = FilteredResolver(AddressFilter::Own(vec![listener]));
        let found = own.resolve("localhost".parse().unwrap()).await.ok();
        let found: Vec<IpAddr> = found.unwrap().map(|a| a.ip()).collect();
        assert_eq!(found, [ip("127.0.0.1")]);
        let url = |text: &str| Url::parse(text).unwrap();
        let own = own_listeners(&url("http://localhost:5984/"), &[listener]).await;
        assert_eq!(own, Some(vec![listener]));
        assert_eq!(
            own_listeners(&url("http://localhost:5985/"), &[listener]).await,
            None
        );
        assert_eq!(
            own_listeners(&url("http://127.0.0.2:5984/"), &[listener]).await,
            None
        );
    }
}
