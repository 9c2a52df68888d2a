use std::path::PathBuf;

use crate::keys::ShardNumber;
use crate::slot::{Position, SlotNumber, described};

/// What can go wrong below the database.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The engine refused or failed an operation.
    #[error("storage engine: {0}")]
    Engine(String),
    /// A stored value does not decode.
    #[error("corrupt {0}")]
    Corrupt(&'static str),
    /// Writes are refused until space returns.
    #[error(
        "not enough free disk space: {free_bytes} bytes are free, {needed_bytes} are needed to write safely"
    )]
    DiskFull {
        /// Free now.
        free_bytes: u64,
        /// What a safe write needs.
        needed_bytes: u64,
    },
    /// A record in the middle of a write-ahead log is damaged.
    #[error(
        "write-ahead log {path} is damaged at byte {offset}, before {later_records} readable records: \
         opening would silently drop acknowledged writes. Restore a backup, or start with --accept-damaged-log \
         to keep everything before the damage and lose what follows"
    )]
    DamagedLog {
        /// The log's file.
        path: PathBuf,
        /// Where the damaged record begins, in bytes.
        offset: u64,
        /// Records behind it that can be read.
        later_records: u64,
    },
    /// The directory cannot be used.
    #[error("{path}: {reason}")]
    Directory {
        /// The directory.
        path: PathBuf,
        /// Why not, for people.
        reason: String,
    },
    /// Another process has the directory open, or another opening in this one.
    #[error(
        "{path} is open already: a data directory is used by one process, and opened once there"
    )]
    InUse {
        /// The directory.
        path: PathBuf,
    },
    /// The shard's database was deleted.
    #[error("the database is deleted")]
    Dropped,
    /// A slot's write does not go on from where the slot is here.
    #[error("slot {slot} is at {}, and what is to be applied goes on from {}", described(.stored.as_deref()), described(.from.as_deref()))]
    SlotPosition {
        /// The slot.
        slot: SlotNumber,
        /// Where it is; `None` when it is not here.
        stored: Option<Box<Position>>,
        /// Where the write goes on from.
        from: Option<Box<Position>>,
    },
    /// A slot's first write to a shard that has rows already: they are in no digest.
    #[error("shard {0} was written to before it belonged to a slot")]
    NotOfSlot(ShardNumber),
    /// What came as the copy of a slot is none, or not all of one.
    #[error("the copy of slot {slot} {reason}")]
    Copy {
        /// The slot.
        slot: SlotNumber,
        /// What is wrong with it, for people.
        reason: &'static str,
    },
    /// The store was closed while the operation waited.
    #[error("the store is closed")]
    Closed,
}

impl From<rocksdb::Error> for Error {
    fn from(e: rocksdb::Error) -> Self {
        Error::Engine(e.into_string())
    }
}
