//! Join tokens: a line of text with the cluster's addresses, its fingerprint, and a secret that
//! works once.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use thiserror::Error;

use crate::certificate::unix_seconds;
use crate::{Authority, IdentityError};

/// The version of a token's text, and of records.
const VERSION: u8 = 1;
/// Bytes of SHA-256 at a token's end, which show that it was copied whole.
const CHECK_BYTES: usize = 4;
/// A record's bytes in the list.
const RECORD_BYTES: usize = 16 + 32 + 8;

/// Which token.
pub type TokenId = [u8; 16];

/// The secret that only the token's holder knows.
#[derive(Clone, Copy)]
pub struct Secret(pub(crate) [u8; 32]);

impl Secret {
    /// Returns its stored form. It has 256 random bits, so a plain hash is enough.
    pub fn hash(&self) -> [u8; 32] {
        Sha256::digest(self.0).into()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// Why a token does not work.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum TokenError {
    /// The text is invalid, or incomplete.
    #[error("this is not a complete token: copy the whole line")]
    Malformed,
    /// A token of a later version.
    #[error("the token is of version {0}, which this program does not know: update it")]
    Version(u8),
    /// It was never issued, was used, or its secret is wrong: which of them is not disclosed.
    #[error("the token is not known here, or was used already: make a new one")]
    Unknown,
    /// Its time is over.
    #[error(
        "the token has expired: make a new one. If a new one has expired too, the clocks of the two machines differ: set them right"
    )]
    Expired,
}

/// A token as the new node gets it. Its text is its [`fmt::Display`].
#[derive(Clone, Debug)]
pub struct Token {
    /// Which one.
    pub id: TokenId,
    /// Its secret.
    pub secret: Secret,
    /// SHA-256 of the authority's certificate.
    pub fingerprint: [u8; 32],
    /// Until when it works, in seconds since 1970.
    pub expires: u64,
    /// The addresses of members, as `host:port`.
    pub addresses: Vec<String>,
}

/// The cluster's record of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenRecord {
    /// Which one.
    pub id: TokenId,
    /// SHA-256 of its secret.
    pub secret_hash: [u8; 32],
    /// Until when it works, in seconds since 1970.
    pub expires: u64,
}

impl Token {
    /// Issues a token; returns it and its record. At most 255 addresses of at most 255 bytes are
    /// kept.
    ///
    /// # Errors
    /// [`IdentityError`], when there are no random numbers.
    pub fn issue(
        authority: &Authority,
        addresses: Vec<String>,
        now: SystemTime,
        valid: Duration,
    ) -> Result<(Token, TokenRecord), IdentityError> {
        let mut random = [0; 48];
        getrandom::fill(&mut random).map_err(|e| IdentityError::malformed("random bytes", e))?;
        let (mut id, mut secret) = ([0; 16], [0; 32]);
        id.copy_from_slice(&random[..16]);
        secret.copy_from_slice(&random[16..]);
        let token = Token {
            id,
            secret: Secret(secret),
            fingerprint: authority.fingerprint(),
            expires: unix_seconds(now + valid),
            addresses,
        };
        let record = TokenRecord {
            id,
            secret_hash: token.secret.hash(),
            expires: token.expires,
        };
        Ok((token, record))
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = vec![VERSION];
        bytes.extend(self.expires.to_le_bytes());
        bytes.extend(self.id);
        bytes.extend(self.secret.0);
        bytes.extend(self.fingerprint);
        let fits = |a: &&String| a.len() <= usize::from(u8::MAX);
        for address in self.addresses.iter().filter(fits).take(255) {
            bytes.push(address.len() as u8);
            bytes.extend(address.as_bytes());
        }
        let check = Sha256::digest(&bytes);
        bytes.extend(&check[..CHECK_BYTES]);
        f.write_str(&URL_SAFE_NO_PAD.encode(bytes))
    }
}

impl FromStr for Token {
    type Err = TokenError;

    fn from_str(text: &str) -> Result<Token, TokenError> {
        let bytes = URL_SAFE_NO_PAD
            .decode(text.trim())
            .map_err(|_| TokenError::Malformed)?;
        let end = bytes.len().checked_sub(CHECK_BYTES);
        let (content, check) = end
            .and_then(|end| bytes.split_at_checked(end))
            .ok_or(TokenError::Malformed)?;
        if Sha256::digest(content)[..CHECK_BYTES] != *check {
            return Err(TokenError::Malformed);
        }
        match content.split_first() {
            Some((&VERSION, rest)) => parse(rest).ok_or(TokenError::Malformed),
            Some((&version, _)) => Err(TokenError::Version(version)),
            None => Err(TokenError::Malformed),
        }
    }
}

/// Parses the part after the version.
fn parse(bytes: &[u8]) -> Option<Token> {
    let (expires, bytes) = bytes.split_first_chunk()?;
    let (id, bytes) = bytes.split_first_chunk()?;
    let (secret, bytes) = bytes.split_first_chunk()?;
    let (fingerprint, mut bytes) = bytes.split_first_chunk()?;
    let mut addresses = vec![];
    while let Some((&length, rest)) = bytes.split_first() {
        let (address, rest) = rest.split_at_checked(length.into())?;
        addresses.push(String::from_utf8(address.to_vec()).ok()?);
        bytes = rest;
    }
    Some(Token {
        id: *id,
        secret: Secret(*secret),
        fingerprint: *fingerprint,
        expires: u64::from_le_bytes(*expires),
        addresses,
    })
}

/// Checks a secret against a record, and its expiry. Takes as long for a wrong secret as for a
/// right one.
///
/// # Errors
/// [`TokenError::Unknown`], [`TokenError::Expired`].
pub fn check(record: &TokenRecord, secret: &Secret, now: SystemTime) -> Result<(), TokenError> {
    if !bool::from(record.secret_hash.ct_eq(&secret.hash())) {
        return Err(TokenError::Unknown);
    }
    if record.expires <= unix_seconds(now) {
        return Err(TokenError::Expired);
    }
    Ok(())
}

/// Issued and unused tokens. Pure state: its owner replicates it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tokens(Vec<TokenRecord>);

impl Tokens {
    /// Remembers a token, and forgets those that have expired.
    pub fn add(&mut self, record: TokenRecord, now: SystemTime) {
        self.0.retain(|r| r.expires > unix_seconds(now));
        self.0.push(record);
    }

    /// Returns the records.
    pub fn list(&self) -> &[TokenRecord] {
        &self.0
    }

    /// Removes a token; returns whether it existed.
    pub fn revoke(&mut self, id: &TokenId) -> bool {
        let before = self.0.len();
        self.0.retain(|r| r.id != *id);
        self.0.len() < before
    }

    /// Takes a token: it works once.
    ///
    /// # Errors
    /// [`TokenError::Unknown`], [`TokenError::Expired`]; nothing is taken then.
    pub fn take(
        &mut self,
        id: &TokenId,
        secret: &Secret,
        now: SystemTime,
    ) -> Result<TokenRecord, TokenError> {
        let at = self
            .0
            .iter()
            .position(|r| r.id == *id)
            .ok_or(TokenError::Unknown)?;
        check(&self.0[at], secret, now)?;
        Ok(self.0.remove(at))
    }

    /// All of them as bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION];
        for record in &self.0 {
            bytes.extend(record.id);
            bytes.extend(record.secret_hash);
            bytes.extend(record.expires.to_le_bytes());
        }
        bytes
    }

    /// Decodes the output of [`Tokens::to_bytes`].
    ///
    /// # Errors
    /// [`TokenError::Malformed`], [`TokenError::Version`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Tokens, TokenError> {
        let records = match bytes.split_first() {
            Some((&VERSION, records)) => records,
            Some((&version, _)) => return Err(TokenError::Version(version)),
            None => return Err(TokenError::Malformed),
        };
        if !records.len().is_multiple_of(RECORD_BYTES) {
            return Err(TokenError::Malformed);
        }
        let read = |bytes: &[u8]| -> Option<TokenRecord> {
            let (id, bytes) = bytes.split_first_chunk()?;
            let (secret_hash, bytes) = bytes.split_first_chunk()?;
            Some(TokenRecord {
                id: *id,
                secret_hash: *secret_hash,
                expires: u64::from_le_bytes(*bytes.first_chunk()?),
            })
        };
        let records = records.chunks(RECORD_BYTES).map(read);
        let records: Option<Vec<_>> = records.collect();
        records.map(Tokens).ok_or(TokenError::Malformed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn issue(now: SystemTime) -> (Token, TokenRecord) {
        let authority = Authority::create([3; 16], now).unwrap();
        let addresses = vec!["a.example.org:5986".into(), "[::1]:5986".into()];
        Token::issue(&authority, addresses, now, HOUR).unwrap()
    }

    #[test]
    fn a_token_is_one_line_that_is_read_back() {
        let (token, record) = issue(SystemTime::now());
        let text = token.to_string();
        let url_safe = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
        assert!(text.bytes().all(url_safe));
        let read: Token = format!(" {text}\n").parse().unwrap();
        assert_eq!(read.to_string(), text);
        assert_eq!(read.addresses, token.addresses);
        assert_eq!(read.secret.hash(), record.secret_hash);
        assert!(!format!("{token:?}").contains(&format!("{:?}", token.secret.0)));
    }

    #[test]
    fn a_token_that_was_cut_or_changed_is_noticed() {
        let text = issue(SystemTime::now()).0.to_string();
        for end in 0..text.len() {
            assert!(text[..end].parse::<Token>().is_err(), "{end}");
        }
        let changed = text.replacen(|c: char| c != 'A', "A", 1);
        assert_eq!(
            changed.parse::<Token>().err(),
            Some(TokenError::Malformed),
            "{changed}"
        );
    }

    #[test]
    fn a_token_works_once_in_time_and_with_its_secret() {
        let now = SystemTime::now();
        let (token, record) = issue(now);
        let mut tokens = Tokens::default();
        tokens.add(record.clone(), now);
        let wrong = Secret([0; 32]);
        assert_eq!(
            tokens.take(&token.id, &wrong, now),
            Err(TokenError::Unknown)
        );
        let late = now + HOUR;
        assert_eq!(
            tokens.take(&token.id, &token.secret, late),
            Err(TokenError::Expired)
        );
        assert_eq!(tokens.take(&token.id, &token.secret, now), Ok(record));
        assert_eq!(
            tokens.take(&token.id, &token.secret, now),
            Err(TokenError::Unknown)
        );
    }

    #[test]
    fn tokens_survive_as_bytes_and_expired_ones_are_forgotten() {
        let now = SystemTime::now();
        let mut tokens = Tokens::default();
        tokens.add(issue(now).1, now);
        tokens.add(issue(now).1, now);
        let bytes = tokens.to_bytes();
        assert_eq!(Tokens::from_bytes(&bytes), Ok(tokens.clone()));
        assert!(Tokens::from_bytes(&bytes[..bytes.len() - 1]).is_err());
        let (_, later) = issue(now + 2 * HOUR);
        tokens.add(later.clone(), now + 2 * HOUR);
        assert_eq!(tokens.list(), std::slice::from_ref(&later));
        assert!(tokens.revoke(&later.id));
        assert!(!tokens.revoke(&later.id));
    }
}
