//! Time-based one-time passwords (RFC 6238), which a user document may require besides the
//! password.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use serde_json::Value;
use subtle::ConstantTimeEq;

use crate::password::Hash;

/// Validity of a token, in seconds. The tokens before and after it are accepted too.
const STEP_SECS: u64 = 30;

/// The member `totp` of a user document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Totp {
    Key {
        key: Vec<u8>,
        hash: Hash,
        digits: u32,
    },
    /// The secret is malformed: every token is wrong.
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

    /// Returns the step whose token this is, among those that count at a time.
    pub(crate) fn step_of(&self, token: &str, now_secs: u64) -> Option<u64> {
        let Totp::Key { key, hash, digits } = self else {
            return None;
        };
        let step = now_secs / STEP_SECS;
        let mut right = None;
        for step in step.saturating_sub(1)..=step.saturating_add(1) {
            let expected = code(*hash, key, step, *digits);
            if bool::from(expected.as_bytes().ct_eq(token.as_bytes())) {
                right = Some(step);
            }
        }
        right
    }
}

/// The used tokens while they are valid: none is accepted twice (RFC 6238, 5.2).
#[derive(Default)]
pub(crate) struct UsedTokens(Mutex<HashMap<Box<str>, u64>>);

/// From this number of users on, those whose tokens do not count any more are removed.
const USED_SWEPT_AT: usize = 256;

impl UsedTokens {
    /// Uses up a token, and those of earlier steps with it. False when it was used already, by a
    /// user of this name.
    pub(crate) fn use_up(&self, name: &str, step: u64, now_secs: u64) -> bool {
        let mut used = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if used.get(name).is_some_and(|last| step <= *last) {
            return false;
        }
        if used.len() >= USED_SWEPT_AT && used.len() == used.capacity() {
            let oldest = (now_secs / STEP_SECS).saturating_sub(1);
            used.retain(|_, step| *step >= oldest);
        }
        used.insert(name.into(), step);
        true
    }
}

/// Returns the token of one step (RFC 4226).
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
            let step = Some(1_111_111_109 / 30);
            assert_eq!(totp.step_of(expected, 1_111_111_109), step, "{algorithm}");
            assert_eq!(totp.step_of(expected, 1_111_111_109 + 30), step);
            assert_eq!(totp.step_of(expected, 1_111_111_109 + 90), None);
            assert_eq!(totp.step_of("", 1_111_111_109), None);
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

    #[test]
    fn a_token_counts_once() {
        let used = UsedTokens::default();
        assert!(used.use_up("a", 100, 3000));
        for step in [100, 99] {
            assert!(!used.use_up("a", step, 3000));
        }
        assert!(used.use_up("b", 100, 3000));
        assert!(used.use_up("a", 101, 3000));
    }

    #[test]
    fn tokens_that_do_not_count_any_more_are_forgotten() {
        let used = UsedTokens::default();
        for step in 0..10_000 {
            assert!(used.use_up(&format!("user{step}"), step, step * STEP_SECS));
        }
        assert!(used.0.lock().unwrap().len() <= 4 * USED_SWEPT_AT);
    }
}
