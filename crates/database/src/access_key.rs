//! The properties of a database with access. Its key makes removal revisions, and signs update seqs of
//! users.

use std::fmt;

use data_encoding::HEXLOWER;
use document::{Rev, RevHash};
use serde::{Deserialize, Serialize};

/// Length of each half of a removal revision's hash, in bytes.
const HALF: usize = 8;
/// Length of a signature, in bytes.
const SIGNATURE_BYTES: usize = 16;

/// The properties of a database with access, as its record has them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatabaseAccess {
    /// The key of the database.
    pub key: AccessKey,
    /// The access set of new documents that have none.
    #[serde(default, skip_serializing_if = "DefaultAccess::is_none")]
    pub default: DefaultAccess,
}

/// The access set of users' new documents that have no member `_access`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DefaultAccess {
    /// None: such a document is refused.
    #[default]
    None,
    /// Its author may read and write it.
    Owner,
}

impl DefaultAccess {
    fn is_none(&self) -> bool {
        *self == DefaultAccess::None
    }
}

/// A random key of one database.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct AccessKey([u8; AccessKey::LEN]);

impl AccessKey {
    /// Length of a key, in bytes.
    pub const LEN: usize = 32;

    /// Creates the key from its bytes.
    pub const fn new(bytes: [u8; AccessKey::LEN]) -> AccessKey {
        AccessKey(bytes)
    }

    /// Returns the revision that removes a leaf from its reader's device. It looks like a child
    /// of the leaf. The second half of its hash is a code that only this key can compute for the
    /// first half, so no other revision has such a hash.
    pub fn removal(&self, id: &str, leaf: &Rev) -> Rev {
        let generation = leaf.generation + 1;
        let of_leaf = [id.as_bytes(), leaf.hash.as_bytes()];
        let first = self.mac(b"removal", generation, &of_leaf);
        let mut hash = [0; 2 * HALF];
        hash[..HALF].copy_from_slice(&first[..HALF]);
        let second = self.proof(id, generation, &hash[..HALF]);
        hash[HALF..].copy_from_slice(&second);
        Rev {
            generation,
            hash: RevHash::Md5(hash),
        }
    }

    /// Returns whether a revision is a removal revision of some leaf of the document.
    pub fn is_removal(&self, id: &str, rev: &Rev) -> bool {
        let RevHash::Md5(hash) = &rev.hash else {
            return false;
        };
        let (first, second) = hash.split_at(HALF);
        self.proof(id, rev.generation, first) == second
    }

    fn proof(&self, id: &str, generation: u64, first: &[u8]) -> [u8; HALF] {
        let mac = self.mac(b"proof of removal", generation, &[id.as_bytes(), first]);
        let mut proof = [0; HALF];
        proof.copy_from_slice(&mac[..HALF]);
        proof
    }

    /// Returns the signature of an update seq that a user with these principals was given.
    pub fn signature<'a>(&self, seq: &[u8], principals: impl Iterator<Item = &'a str>) -> String {
        let mut parts = vec![seq];
        for principal in principals {
            parts.push(principal.as_bytes());
        }
        let mac = self.mac(b"seq", parts.len() as u64, &parts);
        HEXLOWER.encode(&mac[..SIGNATURE_BYTES])
    }

    fn mac(&self, purpose: &[u8], number: u64, parts: &[&[u8]]) -> [u8; blake3::OUT_LEN] {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        hasher.update(purpose);
        hasher.update(&[0]);
        hasher.update(&number.to_be_bytes());
        for part in parts {
            hasher.update(&(part.len() as u64).to_be_bytes());
            hasher.update(part);
        }
        *hasher.finalize().as_bytes()
    }
}

impl fmt::Debug for AccessKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AccessKey(secret)")
    }
}

impl From<AccessKey> for String {
    fn from(key: AccessKey) -> String {
        HEXLOWER.encode(&key.0)
    }
}

impl TryFrom<String> for AccessKey {
    type Error = &'static str;

    fn try_from(text: String) -> Result<AccessKey, &'static str> {
        let bytes = HEXLOWER.decode(text.as_bytes()).ok();
        let bytes = bytes.and_then(|bytes| bytes.try_into().ok());
        bytes
            .map(AccessKey)
            .ok_or("the key of a database with access must have 64 hexadecimal digits")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_removal_revision_is_known_by_the_key_and_the_document_alone() {
        let (key, other) = (AccessKey::new([1; 32]), AccessKey::new([2; 32]));
        let leaf = Rev::parse("3-a").unwrap();
        let removal = key.removal("a", &leaf);
        assert_eq!(removal.generation, 4);
        assert!(key.is_removal("a", &removal));
        assert!(!key.is_removal("b", &removal));
        assert!(!other.is_removal("a", &removal));
        assert!(!key.is_removal("a", &leaf));
        let later = Rev {
            generation: 5,
            ..removal.clone()
        };
        assert!(!key.is_removal("a", &later));
        assert_eq!(Rev::parse(&removal.to_string()).unwrap(), removal);
    }

    #[test]
    fn a_signature_is_of_one_seq_and_one_set_of_principals() {
        let key = AccessKey::new([1; 32]);
        let sign = |seq: &str, principals: &[&str]| {
            key.signature(seq.as_bytes(), principals.iter().copied())
        };
        let all = [
            sign("1", &["a"]),
            sign("2", &["a"]),
            sign("1", &["a", "b"]),
            sign("1", &["ab"]),
            sign("1a", &[]),
        ];
        for (i, one) in all.iter().enumerate() {
            assert_eq!(all.iter().position(|other| other == one), Some(i));
        }
    }

    #[test]
    fn properties_read_back() {
        let key = AccessKey::new([7; 32]);
        for default in [DefaultAccess::None, DefaultAccess::Owner] {
            let access = DatabaseAccess {
                key: key.clone(),
                default,
            };
            let text = serde_json::to_string(&access).unwrap();
            assert_eq!(text.contains("owner"), default == DefaultAccess::Owner);
            assert_eq!(
                serde_json::from_str::<DatabaseAccess>(&text).unwrap(),
                access
            );
        }
    }

    #[test]
    fn a_key_reads_back() {
        let key = AccessKey::new([7; 32]);
        let text = serde_json::to_string(&key).unwrap();
        assert_eq!(serde_json::from_str::<AccessKey>(&text).unwrap(), key);
        assert!(serde_json::from_str::<AccessKey>("\"00\"").is_err());
    }
}
