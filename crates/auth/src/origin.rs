//! The origin of a request.

use std::net::{IpAddr, Ipv6Addr};

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
}
