use std::path::PathBuf;

use document::ContentId;

use crate::keys::ShardNumber;
use crate::position::{Position, SlotNumber, described};

/// Errors below the database.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The engine refused or failed an operation.
    #[error("storage engine: {0}")]
    Engine(String),
    /// A stored value does not decode.
    #[error("corrupt {0}")]
    Corrupt(&'static str),
    /// Writes are refused until space is available.
    #[error(
        "not enough free disk space: {free_bytes} bytes are free, {needed_bytes} are needed to write safely"
    )]
    DiskFull {
        /// Free bytes.
        free_bytes: u64,
        /// Bytes that a safe write needs.
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
        /// Offset of the damaged record, in bytes.
        offset: u64,
        /// Number of readable records after it.
        later_records: u64,
    },
    /// The directory cannot be used.
    #[error("{path}: {reason}")]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The reason, for people.
        reason: String,
    },
    /// Another process has the directory open, or this process has it open already.
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
    /// A slot's write does not continue from the slot's position here.
    #[error("slot {slot} is at {}, and the write to apply continues from {}", described(.stored.as_deref()), described(.from.as_deref()))]
    SlotPosition {
        /// The slot.
        slot: SlotNumber,
        /// Its position; `None` when the slot does not exist here.
        stored: Option<Box<Position>>,
        /// The position that the write continues from.
        from: Option<Box<Position>>,
    },
    /// A slot's first write to a shard that already has rows: no digest covers them.
    #[error("shard {0} was written to before it belonged to a slot")]
    NotOfSlot(ShardNumber),
    /// The copy of a slot is invalid, or incomplete.
    #[error("the copy of slot {slot} {reason}")]
    Copy {
        /// The slot.
        slot: SlotNumber,
        /// The reason, for people.
        reason: &'static str,
    },
    /// An edit of a slot's log names a content that is not stored here.
    #[error("a record of slot {slot} names an attachment whose content is not here")]
    MissingContent {
        /// The slot.
        slot: SlotNumber,
        /// The content's id.
        content: ContentId,
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
