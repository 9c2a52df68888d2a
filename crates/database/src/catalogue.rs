//! The record of a database in the node's catalogue.

use std::fmt;

use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};
use storage::{ShardNumber, Store};

use crate::access_key::DatabaseAccess;
use crate::expiry::Expiry;
use crate::hash_ranges::Sharding;
use crate::ttl::Ttl;

/// The stored record of a database, without its shards' rows.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DatabaseRecord {
    /// Distinguishes this database from others of the same name.
    pub epoch: u32,
    /// Random. Old databases have no stored one: see [`DatabaseRecord::uuid`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uuid: Option<DatabaseUuid>,
    pub shards: Vec<ShardNumber>,
    /// Where the contents of attachments are.
    #[serde(default)]
    pub contents: ContentsUnder,
    pub n: u32,
    pub partitioned: bool,
    /// Whether the last shard has all design documents and nothing else.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub spread: bool,
    /// Seconds since 1970.
    pub created_unix_s: u64,
    pub revs_limit: u64,
    pub purged_infos_limit: u64,
    /// The time to live of deleted documents, if the database has its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deleted_document_ttl: Option<Ttl>,
    /// When its documents expire, if they do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expiry: Option<Expiry>,
    /// The properties of a database with access; others have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access: Option<DatabaseAccess>,
    /// JSON text, as the client wrote it.
    pub security: String,
}

/// Under which shards' numbers the contents of a database's attachments are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ContentsUnder {
    /// All under the first shard's, whichever shard their documents are in: in databases whose
    /// record has no other value.
    #[default]
    FirstShard,
    /// Under that of their document's shard.
    EachShard,
}

/// The byte before the text of the record of a database with access. Versions without access by
/// document refuse a store with such a database by its format. Where they do not check that, as in a
/// repair, they cannot read the record, and do not show every document to all members.
const WITH_ACCESS: u8 = 2;

impl DatabaseRecord {
    pub fn encode(&self) -> Vec<u8> {
        let mut record = vec![];
        if self.access.is_some() {
            record.push(WITH_ACCESS);
        }
        // Strings and numbers always serialise.
        record.extend(serde_json::to_vec(self).unwrap_or_default());
        record
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, storage::Error> {
        let corrupt = || storage::Error::Corrupt("database record");
        let text = bytes.strip_prefix(&[WITH_ACCESS]);
        let record: DatabaseRecord =
            serde_json::from_slice(text.unwrap_or(bytes)).map_err(|_| corrupt())?;
        if record.spread && record.shards.len() < 2 {
            return Err(corrupt());
        }
        // Never a database without access because of a damaged byte.
        match record.access.is_some() == text.is_some() {
            true => Ok(record),
            false => Err(corrupt()),
        }
    }

    /// Returns how documents are divided among its shards.
    pub(crate) fn sharding(&self) -> Sharding {
        Sharding {
            shards: self.shards.len(),
            is_partitioned: self.partitioned,
            has_design_shard: self.spread,
        }
    }

    /// The uuid of the database of this record, whose name is `name`: the stored one, or one
    /// derived from properties that never change.
    pub fn uuid(&self, name: &str) -> DatabaseUuid {
        self.uuid.unwrap_or_else(|| {
            let mut hasher = blake3::Hasher::new();
            hasher.update(DERIVED_UUID);
            hasher.update(&self.epoch.to_be_bytes());
            hasher.update(&self.created_unix_s.to_be_bytes());
            hasher.update(name.as_bytes());
            let mut uuid = [0; DatabaseUuid::LEN];
            hasher.finalize_xof().fill(&mut uuid);
            DatabaseUuid(uuid)
        })
    }
}

/// Changes the store's format back after its last database with access was deleted, so that versions
/// without access by document open it. `names` are those of all databases; none is written meanwhile.
pub fn lower_format(store: &Store, names: &[String]) {
    if let Err(error) = lower_format_now(store, names) {
        tracing::warn!(%error, "the format of the store could not be changed back");
    }
}

fn lower_format_now(store: &Store, names: &[String]) -> Result<(), storage::Error> {
    if !store.has_format_with_access()? {
        return Ok(());
    }
    for name in names {
        let record = store.database(name)?.unwrap_or_default();
        // One that cannot be read may be of such a database.
        let record = DatabaseRecord::decode(&record).ok();
        if record.is_none_or(|record| record.access.is_some()) {
            return Ok(());
        }
    }
    store.lower_format()
}

/// The prefix of the text whose hash is the uuid of a database without a stored one. Must not
/// change: it determines these uuids.
const DERIVED_UUID: &[u8] = b"settee database uuid 1";

/// The identity of a database. It is unique, also among databases of the same name. Displayed as 32
/// hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct DatabaseUuid([u8; DatabaseUuid::LEN]);

impl DatabaseUuid {
    /// Bytes of one.
    pub const LEN: usize = 16;

    /// The uuid of these bytes.
    pub const fn new(bytes: [u8; DatabaseUuid::LEN]) -> DatabaseUuid {
        DatabaseUuid(bytes)
    }

    /// Its bytes.
    pub const fn as_bytes(&self) -> &[u8; DatabaseUuid::LEN] {
        &self.0
    }
}

impl fmt::Display for DatabaseUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&HEXLOWER.encode(&self.0))
    }
}

impl fmt::Debug for DatabaseUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DatabaseUuid({self})")
    }
}

impl From<DatabaseUuid> for String {
    fn from(uuid: DatabaseUuid) -> String {
        uuid.to_string()
    }
}

impl TryFrom<String> for DatabaseUuid {
    type Error = &'static str;

    fn try_from(text: String) -> Result<DatabaseUuid, &'static str> {
        let bytes = HEXLOWER.decode(text.as_bytes()).ok();
        let bytes = bytes.and_then(|bytes| bytes.try_into().ok());
        bytes
            .map(DatabaseUuid)
            .ok_or("a uuid has 32 hexadecimal digits")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access_key::{AccessKey, DefaultAccess};
    use crate::expiry::ExpiredDocuments;

    /// As it was written before there were uuids.
    const OLD: &[u8] = br#"{"epoch":305419896,"shards":[1,2],"n":1,"partitioned":false,"created_unix_s":1763000000,"revs_limit":1000,"purged_infos_limit":1000,"security":"{}"}"#;

    #[test]
    fn records_have_this_text() {
        let record = DatabaseRecord {
            epoch: 7,
            uuid: Some(DatabaseUuid::new([0xab; 16])),
            shards: vec![3, 4],
            contents: ContentsUnder::EachShard,
            n: 1,
            partitioned: true,
            spread: false,
            created_unix_s: 9,
            revs_limit: 10,
            purged_infos_limit: 11,
            deleted_document_ttl: None,
            expiry: None,
            access: None,
            security: r#"{"a":1}"#.into(),
        };
        let text = br#"{"epoch":7,"uuid":"abababababababababababababababab","shards":[3,4],"contents":"each_shard","n":1,"partitioned":true,"created_unix_s":9,"revs_limit":10,"purged_infos_limit":11,"security":"{\"a\":1}"}"#;
        assert_eq!(record.encode(), text);
        assert_eq!(DatabaseRecord::decode(text).unwrap().encode(), text);
        let with_ttl = DatabaseRecord {
            deleted_document_ttl: Ttl::parse("30_days"),
            ..record
        };
        let text = String::from_utf8(text.to_vec()).unwrap();
        let text = text.replace(
            r#","security""#,
            r#","deleted_document_ttl":"30_days","security""#,
        );
        assert_eq!(with_ttl.encode(), text.as_bytes());
        let decoded = DatabaseRecord::decode(text.as_bytes()).unwrap();
        assert_eq!(decoded.encode(), text.as_bytes());
        let with_expiry = DatabaseRecord {
            expiry: Expiry::new("until", ExpiredDocuments::Delete),
            ..with_ttl
        };
        let expiry = r#","expiry":{"member":"until","then":"delete"},"security""#;
        let text = text.replace(r#","security""#, expiry);
        assert_eq!(with_expiry.encode(), text.as_bytes());
        let decoded = DatabaseRecord::decode(text.as_bytes()).unwrap();
        assert_eq!(decoded.expiry, with_expiry.expiry);
        let with_access = DatabaseRecord {
            access: Some(DatabaseAccess {
                key: AccessKey::new([0xcd; AccessKey::LEN]),
                default: DefaultAccess::Owner,
            }),
            ..with_expiry
        };
        let key = "cd".repeat(32);
        let access = format!(r#","access":{{"key":"{key}","default":"owner"}},"security""#);
        let without = text;
        let text = without.replace(r#","security""#, &access);
        let stored = [&[2][..], text.as_bytes()].concat();
        assert_eq!(with_access.encode(), stored);
        let decoded = DatabaseRecord::decode(&stored).unwrap();
        assert_eq!(decoded.access, with_access.access);
        // Versions without access by document read neither this one nor another one as its record.
        assert!(serde_json::from_slice::<serde_json::Value>(&stored).is_err());
        assert!(DatabaseRecord::decode(text.as_bytes()).is_err());
        let without = [&[2][..], without.as_bytes()].concat();
        assert!(DatabaseRecord::decode(&without).is_err());
    }

    #[test]
    fn a_spread_database_has_two_shards_at_least() {
        let old = String::from_utf8(OLD.to_vec()).unwrap();
        let spread = old.replace(
            r#""partitioned":false"#,
            r#""partitioned":false,"spread":true"#,
        );
        let record = DatabaseRecord::decode(spread.as_bytes()).unwrap();
        assert!(record.sharding().has_design_shard);
        let again = String::from_utf8(record.encode()).unwrap();
        assert!(again.contains(r#""spread":true"#), "{again}");
        let one = spread.replace(r#""shards":[1,2]"#, r#""shards":[1]"#);
        assert!(DatabaseRecord::decode(one.as_bytes()).is_err());
        assert!(!DatabaseRecord::decode(OLD).unwrap().spread);
    }

    #[test]
    fn a_record_without_a_uuid_has_one_all_the_same_and_keeps_it() {
        let old = DatabaseRecord::decode(OLD).unwrap();
        let uuid = old.uuid("a");
        assert_eq!(uuid.to_string(), "3c9552eb8bedc5e5c6e91831f90dae7a");
        let mut changed = old.clone();
        (changed.security, changed.revs_limit) = ("[]".into(), 1);
        let changed = DatabaseRecord::decode(&changed.encode()).unwrap();
        assert_eq!(changed.uuid("a"), uuid);
        let others = [
            old.uuid("b"),
            DatabaseRecord {
                epoch: 1,
                ..old.clone()
            }
            .uuid("a"),
            DatabaseRecord {
                created_unix_s: 1,
                ..old.clone()
            }
            .uuid("a"),
        ];
        assert!(others.iter().all(|other| *other != uuid));
    }

    #[test]
    fn contents_are_under_the_first_shard_where_the_record_does_not_say() {
        let old = DatabaseRecord::decode(OLD).unwrap();
        assert_eq!(old.contents, ContentsUnder::FirstShard);
        let again = DatabaseRecord::decode(&old.encode()).unwrap();
        assert_eq!(again.contents, ContentsUnder::FirstShard);
        let text = String::from_utf8(OLD.to_vec()).unwrap();
        let unknown = text.replacen('{', r#"{"contents":"elsewhere","#, 1);
        assert!(DatabaseRecord::decode(unknown.as_bytes()).is_err());
    }

    #[test]
    fn a_uuid_that_is_none_is_corrupt() {
        for uuid in [
            "",
            "ab",
            "ABABABABABABABABABABABABABABABAB",
            "abababababababababababababababababab",
            "zbababababababababababababababab",
        ] {
            let text = String::from_utf8(OLD.to_vec()).unwrap();
            let text = text.replacen('{', &format!(r#"{{"uuid":"{uuid}","#), 1);
            assert!(DatabaseRecord::decode(text.as_bytes()).is_err(), "{uuid}");
        }
    }
}
