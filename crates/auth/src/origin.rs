//! The origin of a request.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;

/// The origin that wrong passwords are counted for, and that password checks are queued by.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Origin {
    /// An address; of IPv6 the network, since one client has as many addresses of it as it likes.
    Address(IpAddr),
    /// This server itself: a replication with this owner. The request comes from an address of this
    /// machine, but must not lock out other clients there.
    Replication(String),
}

impl From<IpAddr> for Origin {
    fn from(address: IpAddr) -> Origin {
        Origin::Address(match address.to_canonical() {
            IpAddr::V6(v6) => {
                let [a, b, c, d, ..] = v6.segments();
                IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
            }
            v4 => v4,
        })
    }
}

impl Origin {
    /// Returns the network that an address is in, by the numbers of bits for IPv4 and IPv6.
    pub(crate) fn network(&self, (bits_v4, bits_v6): (u32, u32)) -> Origin {
        let first = |bits: u32, of: u32| u128::MAX << (of - bits);
        match self {
            Origin::Address(IpAddr::V4(v4)) => {
                let mask = first(bits_v4, u32::BITS) as u32;
                Origin::Address(IpAddr::V4(Ipv4Addr::from_bits(v4.to_bits() & mask)))
            }
            Origin::Address(IpAddr::V6(v6)) => {
                let mask = first(bits_v6, u128::BITS);
                Origin::Address(IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & mask)))
            }
            Origin::Replication(owner) => Origin::Replication(owner.clone()),
        }
    }
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Origin::Address(address) => address.fmt(f),
            Origin::Replication(owner) => write!(f, "a replication of {owner:?}"),
        }
    }
}

/// Creates and recognises the tokens in the server's requests to itself.
///
/// A stolen token is worth little: wrong passwords would be counted for the owner of the
/// replication, who can make the server send such requests anyway, and as few of them.
pub(crate) struct Tokens {
    /// Random in each process.
    key: [u8; 32],
}

impl Tokens {
    pub(crate) fn new() -> Tokens {
        Tokens {
            key: rand::random(),
        }
    }

    pub(crate) fn token(&self, owner: &str) -> String {
        let mac = blake3::keyed_hash(&self.key, owner.as_bytes());
        format!("{}.{}", BASE64_URL_SAFE_NO_PAD.encode(owner), mac.to_hex())
    }

    /// Returns the owner in a token; `None` when this server did not create it.
    pub(crate) fn owner(&self, token: &str) -> Option<String> {
        let (owner, mac) = token.split_once('.')?;
        let owner = BASE64_URL_SAFE_NO_PAD.decode(owner).ok()?;
        let mac = blake3::Hash::from_hex(mac).ok()?;
        // Compared in constant time.
        (blake3::keyed_hash(&self.key, &owner) == mac).then_some(())?;
        String::from_utf8(owner).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_own_tokens_are_recognised() {
        let tokens = Tokens::new();
        for owner in ["", "anna", "zoë.x"] {
            let token = tokens.token(owner);
            assert_eq!(tokens.owner(&token).as_deref(), Some(owner));
            assert_eq!(Tokens::new().owner(&token), None);
        }
        let (annas, bobs) = (tokens.token("anna"), tokens.token("bob"));
        let mac = bobs.split_once('.').expect("a token").1;
        let name = annas.split_once('.').expect("a token").0;
        for forged in [
            format!("{name}.{mac}"),
            name.to_owned(),
            ".".into(),
            "".into(),
        ] {
            assert_eq!(tokens.owner(&forged), None, "{forged}");
        }
    }

    #[test]
    fn an_ipv6_network_is_one_client() {
        let of = |text: &str| Origin::from(text.parse::<IpAddr>().expect("an address"));
        assert_eq!(of("2001:db8:1:2::3"), of("2001:db8:1:2:ffff::9"));
        assert_ne!(of("2001:db8:1:2::3"), of("2001:db8:1:3::3"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
        assert_ne!(of("192.0.2.2"), of("192.0.2.1"));
    }

    #[test]
    fn an_address_is_in_its_networks() {
        let of = |text: &str| Origin::from(text.parse::<IpAddr>().expect("an address"));
        for (address, bits, network) in [
            ("192.0.2.77", (24, 56), "192.0.2.0"),
            ("192.0.2.77", (16, 48), "192.0.0.0"),
            ("2001:db8:1:2fe::3", (24, 56), "2001:db8:1:200::"),
            ("2001:db8:1:2fe::3", (16, 48), "2001:db8:1::"),
        ] {
            assert_eq!(of(address).network(bits), of(network), "{address} {bits:?}");
        }
        let replication = Origin::Replication("anna".to_owned());
        assert_eq!(replication.network((16, 48)), replication);
    }
}
