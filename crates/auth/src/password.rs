//! Password hashes as CouchDB writes them in `[admins]`.
//!
//! - `-pbkdf2:<hash>-<derived key>,<salt>,<iterations>`: CouchDB 3.4 and later (`sha256`, 600000 iterations);
//! - `-pbkdf2-<derived key>,<salt>,<iterations>`: before that, with SHA-1;
//! - `-hashed-<sha1 of password and salt>,<salt>`: CouchDB 1.
//!
//! The cost of checking one is in `effort.rs`.
//!
//! Keys are lower-case hex, as long as the hash's output; the salt is used as its text.

use std::fmt;

use config::settings::Prf;
use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use hmac::{Hmac, KeyInit, Mac};
use sha1::{Digest, Sha1};
use sha2::{Sha224, Sha256, Sha384, Sha512};
use subtle::ConstantTimeEq;

use crate::effort::Effort;

/// A hash function, by Erlang's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hash {
    /// `sha`
    Sha1,
    /// `sha224`
    Sha224,
    /// `sha256`
    Sha256,
    /// `sha384`
    Sha384,
    /// `sha512`
    Sha512,
}

impl From<Prf> for Hash {
    fn from(setting: Prf) -> Hash {
        match setting {
            Prf::Sha => Hash::Sha1,
            Prf::Sha224 => Hash::Sha224,
            Prf::Sha256 => Hash::Sha256,
            Prf::Sha384 => Hash::Sha384,
            Prf::Sha512 => Hash::Sha512,
        }
    }
}

impl Hash {
    const ALL: [Hash; 5] = [
        Hash::Sha1,
        Hash::Sha224,
        Hash::Sha256,
        Hash::Sha384,
        Hash::Sha512,
    ];

    /// Erlang's name of the function, which CouchDB uses.
    pub fn name(self) -> &'static str {
        match self {
            Hash::Sha1 => "sha",
            Hash::Sha224 => "sha224",
            Hash::Sha256 => "sha256",
            Hash::Sha384 => "sha384",
            Hash::Sha512 => "sha512",
        }
    }

    /// Returns the function of this name.
    pub fn from_name(name: &str) -> Option<Hash> {
        Hash::ALL.into_iter().find(|hash| hash.name() == name)
    }

    /// Bytes of output.
    pub fn size(self) -> usize {
        match self {
            Hash::Sha1 => 20,
            Hash::Sha224 => 28,
            Hash::Sha256 => 32,
            Hash::Sha384 => 48,
            Hash::Sha512 => 64,
        }
    }

    pub(crate) fn pbkdf2(self, password: &[u8], salt: &[u8], iterations: u32) -> Vec<u8> {
        let mut key = vec![0; self.size()];
        match self {
            Hash::Sha1 => pbkdf2::pbkdf2_hmac::<Sha1>(password, salt, iterations, &mut key),
            Hash::Sha224 => pbkdf2::pbkdf2_hmac::<Sha224>(password, salt, iterations, &mut key),
            Hash::Sha256 => pbkdf2::pbkdf2_hmac::<Sha256>(password, salt, iterations, &mut key),
            Hash::Sha384 => pbkdf2::pbkdf2_hmac::<Sha384>(password, salt, iterations, &mut key),
            Hash::Sha512 => pbkdf2::pbkdf2_hmac::<Sha512>(password, salt, iterations, &mut key),
        }
        key
    }

    pub(crate) fn hmac(self, key: &[u8], message: &[u8]) -> Vec<u8> {
        fn mac<M: Mac + KeyInit>(key: &[u8], message: &[u8]) -> Vec<u8> {
            let mut mac =
                <M as KeyInit>::new_from_slice(key).expect("HMAC takes keys of any length");
            mac.update(message);
            mac.finalize().into_bytes().to_vec()
        }
        match self {
            Hash::Sha1 => mac::<Hmac<Sha1>>(key, message),
            Hash::Sha224 => mac::<Hmac<Sha224>>(key, message),
            Hash::Sha256 => mac::<Hmac<Sha256>>(key, message),
            Hash::Sha384 => mac::<Hmac<Sha384>>(key, message),
            Hash::Sha512 => mac::<Hmac<Sha512>>(key, message),
        }
    }
}

/// A hashed password. Its text form ([`fmt::Display`]) is the value in `[admins]`.
#[derive(Clone, PartialEq, Eq)]
pub struct PasswordHash {
    scheme: Scheme,
    key: Vec<u8>,
    salt: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scheme {
    Simple,
    Pbkdf2 {
        hash: Hash,
        iterations: u32,
        /// Written without the name of the hash.
        legacy: bool,
    },
}

/// A parsed value of `[admins]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StoredPassword {
    Hashed(PasswordHash),
    Plain(String),
    /// Starts like a hash but is malformed: every login is refused.
    Malformed,
}

impl StoredPassword {
    pub(crate) fn parse(value: &str) -> StoredPassword {
        let is_hash = value.starts_with("-hashed-")
            || value.starts_with("-pbkdf2-")
            || value.starts_with("-pbkdf2:");
        match PasswordHash::parse(value) {
            Some(hash) => StoredPassword::Hashed(hash),
            None if is_hash => StoredPassword::Malformed,
            None => StoredPassword::Plain(value.to_owned()),
        }
    }
}

/// The scheme for new passwords of users.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NewHash {
    /// SHA-1 of password and salt: for those who insist.
    Simple,
    Pbkdf2 {
        hash: Hash,
        iterations: u32,
    },
}

impl NewHash {
    fn scheme(self) -> Scheme {
        match self {
            NewHash::Simple => Scheme::Simple,
            NewHash::Pbkdf2 { hash, iterations } => Scheme::Pbkdf2 {
                hash,
                iterations: iterations.max(1),
                legacy: false,
            },
        }
    }

    /// Returns whether this scheme creates hashes like this one.
    pub(crate) fn made(self, hash: &PasswordHash) -> bool {
        self.scheme() == hash.scheme
    }
}

impl PasswordHash {
    /// Hashes a password with a new salt. The time grows with `iterations`.
    pub fn new(password: &str, hash: Hash, iterations: u32) -> PasswordHash {
        PasswordHash::made(NewHash::Pbkdf2 { hash, iterations }, password.as_bytes())
    }

    /// Hashes a password, with a new salt.
    pub(crate) fn made(new: NewHash, password: &[u8]) -> PasswordHash {
        PasswordHash::with_salt(new, password, &random_hex())
    }

    /// Hashes a password with this salt.
    pub(crate) fn with_salt(new: NewHash, password: &[u8], salt: &str) -> PasswordHash {
        let scheme = new.scheme();
        PasswordHash {
            key: derive(scheme, password, salt),
            scheme,
            salt: salt.to_owned(),
        }
    }

    /// Returns the hash of a user document with the scheme `simple`; `None` when the key is
    /// malformed.
    pub(crate) fn of_simple(key: &str, salt: &str) -> Option<PasswordHash> {
        PasswordHash::checked(Scheme::Simple, Hash::Sha1, key, salt)
    }

    /// Returns the hash of a user document with the scheme `pbkdf2`; `None` when the key is
    /// malformed.
    pub(crate) fn of_pbkdf2(
        hash: Hash,
        iterations: u32,
        key: &str,
        salt: &str,
    ) -> Option<PasswordHash> {
        let scheme = Scheme::Pbkdf2 {
            hash,
            iterations,
            legacy: false,
        };
        PasswordHash::checked(scheme, hash, key, salt)
    }

    /// Returns the derived key, or the hash of the scheme `simple`, in hex.
    pub(crate) fn key_hex(&self) -> String {
        to_hex(&self.key)
    }

    /// Hash function and iterations; `None` for the scheme `simple`.
    pub fn pbkdf2(&self) -> Option<(Hash, u32)> {
        match self.scheme {
            Scheme::Simple => None,
            Scheme::Pbkdf2 {
                hash, iterations, ..
            } => Some((hash, iterations)),
        }
    }

    /// Returns the cost of checking a password.
    pub(crate) fn effort(&self) -> Effort {
        let (hash, iterations) = self.pbkdf2().unwrap_or((Hash::Sha1, 1));
        Effort::of(hash, iterations)
    }

    /// Reads a hash; `None` for any other text.
    pub fn parse(text: &str) -> Option<PasswordHash> {
        if let Some(rest) = text.strip_prefix("-hashed-") {
            let (key, salt) = rest.split_once(',')?;
            return PasswordHash::checked(Scheme::Simple, Hash::Sha1, key, salt);
        }
        let rest = text.strip_prefix("-pbkdf2")?;
        let (hash, rest, legacy) = match rest.strip_prefix('-') {
            Some(rest) => (Hash::Sha1, rest, true),
            None => {
                let (name, rest) = rest.strip_prefix(':')?.split_once('-')?;
                (Hash::from_name(name)?, rest, false)
            }
        };
        let mut parts = rest.splitn(3, ',');
        let (key, salt, iterations) = (parts.next()?, parts.next()?, parts.next()?);
        let iterations = iterations.parse().ok().filter(|n| *n > 0)?;
        PasswordHash::checked(
            Scheme::Pbkdf2 {
                hash,
                iterations,
                legacy,
            },
            hash,
            key,
            salt,
        )
    }

    fn checked(scheme: Scheme, hash: Hash, key: &str, salt: &str) -> Option<PasswordHash> {
        let key = from_hex(key).filter(|key| key.len() == hash.size())?;
        Some(PasswordHash {
            scheme,
            key,
            salt: salt.to_owned(),
        })
    }

    /// Returns whether this is the password. Takes the same time for every password of the same
    /// length.
    pub fn verify(&self, password: &[u8]) -> bool {
        derive(self.scheme, password, &self.salt)
            .ct_eq(&self.key)
            .into()
    }

    /// Returns the salt, which also goes into session cookies: a new password has a new salt, which
    /// ends all sessions.
    pub fn salt(&self) -> &str {
        &self.salt
    }
}

impl fmt::Display for PasswordHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (key, salt) = (to_hex(&self.key), &self.salt);
        match self.scheme {
            Scheme::Simple => write!(f, "-hashed-{key},{salt}"),
            Scheme::Pbkdf2 {
                iterations,
                legacy: true,
                ..
            } => write!(f, "-pbkdf2-{key},{salt},{iterations}"),
            Scheme::Pbkdf2 {
                hash, iterations, ..
            } => write!(f, "-pbkdf2:{}-{key},{salt},{iterations}", hash.name()),
        }
    }
}

impl fmt::Debug for PasswordHash {
    /// Without the key, so that it cannot end up in a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PasswordHash")
            .field("scheme", &self.scheme)
            .finish_non_exhaustive()
    }
}

/// Hashes a password for `[admins]`, as text.
pub fn hash_password(password: &str, hash: Hash, iterations: u32) -> String {
    PasswordHash::new(password, hash, iterations).to_string()
}

/// Returns a random password: 24 characters of 32, 120 random bits.
pub fn random_password() -> String {
    const LETTERS: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
    let bytes: [u8; 24] = rand::random();
    bytes
        .iter()
        .map(|byte| char::from(LETTERS[usize::from(byte % 32)]))
        .collect()
}

/// 128 random bits in hex: a salt or a secret, in the form of a CouchDB uuid.
pub(crate) fn random_hex() -> String {
    to_hex(&rand::random::<[u8; 16]>())
}

fn derive(scheme: Scheme, password: &[u8], salt: &str) -> Vec<u8> {
    match scheme {
        Scheme::Simple => Sha1::new()
            .chain_update(password)
            .chain_update(salt.as_bytes())
            .finalize()
            .to_vec(),
        Scheme::Pbkdf2 {
            hash, iterations, ..
        } => hash.pbkdf2(password, salt.as_bytes(), iterations),
    }
}

pub(crate) fn to_hex(bytes: &[u8]) -> String {
    HEXLOWER.encode(bytes)
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    HEXLOWER_PERMISSIVE.decode(text.as_bytes()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// RFC 6070 (SHA-1) and RFC 7914 (SHA-256) give these keys.
    #[test]
    fn known_keys_are_derived() {
        let sha1 = "-pbkdf2-4b007901b765489abead49d926f721d065a429c1,salt,4096";
        let sha256 = "-pbkdf2:sha256-55ac046e56e3089fec1691c22544b605f94185216dde0465e68b9d57c20dacbc,salt,1";
        assert!(PasswordHash::parse(sha1).expect("sha1").verify(b"password"));
        assert!(
            PasswordHash::parse(sha256)
                .expect("sha256")
                .verify(b"passwd")
        );
        assert!(
            !PasswordHash::parse(sha256)
                .expect("sha256")
                .verify(b"password")
        );
    }

    #[test]
    fn the_oldest_scheme_is_the_hash_of_password_and_salt() {
        let key = to_hex(&Sha1::digest(b"secretabc"));
        assert!(
            PasswordHash::parse(&format!("-hashed-{key},abc"))
                .expect("hash")
                .verify(b"secret")
        );
    }

    #[test]
    fn hashes_read_back_as_written() {
        for hash in Hash::ALL {
            let made = PasswordHash::new("pass", hash, 2);
            let text = made.to_string();
            assert!(
                text.starts_with(&format!("-pbkdf2:{}-", hash.name())) && text.ends_with(",2"),
                "{text}"
            );
            assert_eq!(PasswordHash::parse(&text), Some(made.clone()));
            assert!(made.verify(b"pass") && !made.verify(b"pasS") && !made.verify(b""));
        }
        let legacy = "-pbkdf2-43ecbd256a70a3a2f7de40d2374b6c3002918834,921a12f74df0c1052b3e562a23cd227f,10000";
        assert_eq!(
            PasswordHash::parse(legacy).expect("legacy").to_string(),
            legacy
        );
    }

    #[test]
    fn equal_passwords_have_different_hashes() {
        assert_ne!(
            hash_password("x", Hash::Sha256, 1),
            hash_password("x", Hash::Sha256, 1)
        );
        assert_ne!(random_password(), random_password());
        assert_eq!(random_password().len(), 24);
    }

    #[test]
    fn what_only_looks_like_a_hash_is_malformed() {
        for text in [
            "-hashed-",
            "-hashed-12,salt",
            "-pbkdf2-x,y,1",
            "-pbkdf2:md5-00,s,1",
            "-pbkdf2:sha256-é,s,1",
        ] {
            assert_eq!(
                StoredPassword::parse(text),
                StoredPassword::Malformed,
                "{text}"
            );
        }
        let zero = "-pbkdf2:sha-4b007901b765489abead49d926f721d065a429c1,salt,0";
        assert_eq!(StoredPassword::parse(zero), StoredPassword::Malformed);
        assert_eq!(
            StoredPassword::parse("-pbkdf"),
            StoredPassword::Plain("-pbkdf".to_owned())
        );
        assert_eq!(
            StoredPassword::parse(""),
            StoredPassword::Plain(String::new())
        );
    }

    #[test]
    fn hashes_are_not_shown_by_debug() {
        let hash = PasswordHash::new("x", Hash::Sha256, 1);
        assert!(!format!("{hash:?}").contains(hash.salt()));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(-hashed-|-pbkdf2[:-])?\\PC{0,60}") {
            let _ = StoredPassword::parse(&text);
        }
    }
}
