//! Time-based one-time passwords (RFC 6238), which a user document may ask for besides the password.

use serde_json::Value;
use subtle::ConstantTimeEq;

use crate::password::Hash;

/// How long a token counts, in seconds. Those before and after it are accepted too.
const STEP_SECS: u64 = 30;

/// The member `totp` of a user document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Totp {
    Key {
        key: Vec<u8>,
        hash: Hash,
        digits: u32,
    },
    /// It is not understood: no token is right.
    Malformed,
}

impl Totp {
    /// From the member's value.
    pub(crate) fn of(value: &Value) -> Totp {
        Totp::read(value).unwrap_or(Totp::Malformed)
    }

    fn read(value: &Value) -> Option<Totp> {
        let hash = match value.get("algorithm") {
            None => Hash::Sha1,
            Some(name) => Hash::from_name(name.as_str()?)?,
        };
        let digits = match value.get("length") {
            None => 6,
            Some(n) => u32::try_from(n.as_u64()?).ok()?,
        };
        Some(Totp::Key {
            key: base32(value.get("key")?.as_str()?)?,
            hash,
            digits: Some(digits).filter(|n| (6..=9).contains(n))?,
        })
    }

    /// Whether this token is right at a time.
    pub(crate) fn accepts(&self, token: &str, now_secs: u64) -> bool {
        let Totp::Key { key, hash, digits } = self else {
            return false;
        };
        let step = now_secs / STEP_SECS;
        let mut right = false;
        for step in step.saturating_sub(1)..=step.saturating_add(1) {
            let expected = code(*hash, key, step, *digits);
            right |= bool::from(expected.as_bytes().ct_eq(token.as_bytes()));
        }
        right
    }
}

/// The token of one step (RFC 4226).
fn code(hash: Hash, key: &[u8], step: u64, digits: u32) -> String {
    let mac = hash.hmac(key, &step.to_be_bytes());
    let at = usize::from(mac[mac.len() - 1] & 15);
    let word = [mac[at] & 0x7f, mac[at + 1], mac[at + 2], mac[at + 3]];
    let number = u32::from_be_bytes(word) % 10u32.pow(digits);
    format!("{number:0width$}", width = digits as usize)
}

fn base32(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let (mut bits, mut held) = (0u32, 0u32);
    for c in text.trim_end_matches('=').bytes() {
        let value = match c.to_ascii_uppercase() {
            c @ b'A'..=b'Z' => c - b'A',
            c @ b'2'..=b'7' => c - b'2' + 26,
            _ => return None,
        };
        held = held << 5 | u32::from(value);
        bits += 5;
        if bits >= 8 {
            bits -= 8;
            bytes.push((held >> bits & 0xff) as u8);
        }
    }
    Some(bytes).filter(|bytes| !bytes.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// The test vectors of RFC 6238, appendix B.
    #[test]
    fn the_tokens_are_those_of_the_rfc() {
        for (algorithm, key, expected) in [
            ("sha", "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ", "07081804"),
            (
                "sha256",
                "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQGEZA====",
                "68084774",
            ),
        ] {
            // The RFC's tokens have 8 digits.
            let totp = Totp::of(&json!({"key": key, "algorithm": algorithm, "length": 8}));
            assert!(totp.accepts(expected, 1_111_111_109), "{algorithm}");
            assert!(totp.accepts(expected, 1_111_111_109 + 30));
            assert!(!totp.accepts(expected, 1_111_111_109 + 90));
            assert!(!totp.accepts("", 1_111_111_109));
        }
    }

    #[test]
    fn what_is_not_understood_accepts_nothing() {
        for value in [
            json!(1),
            json!({}),
            json!({"key": "0"}),
            json!({"key": ""}),
            json!({"key": "GE", "length": 99}),
            json!({"key": "GE", "algorithm": "md5"}),
        ] {
            assert_eq!(Totp::of(&value), Totp::Malformed);
        }
    }
}
