//! The record of a database in the node's catalogue.

use serde::{Deserialize, Serialize};
use storage::ShardNumber;

/// What is stored of a database beside its shards' rows.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DatabaseRecord {
    /// Tells this database from others of the same name.
    pub epoch: u32,
    pub shards: Vec<ShardNumber>,
    pub n: u32,
    pub partitioned: bool,
    /// Seconds since 1970.
    pub created_unix_s: u64,
    pub revs_limit: u64,
    pub purged_infos_limit: u64,
    /// JSON text, as the client wrote it.
    pub security: String,
}

impl DatabaseRecord {
    pub fn encode(&self) -> Vec<u8> {
        // Strings and numbers always serialise.
        serde_json::to_vec(self).unwrap_or_default()
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, storage::Error> {
        serde_json::from_slice(bytes).map_err(|_| storage::Error::Corrupt("database record"))
    }
}
