//! The node's store: one RocksDB for all databases, shards as ranges of its keyspaces, group
//! commit, snapshots, exact counts, compaction, online backup.
//!
//! It knows documents' ids, revision trees and bodies as bytes; it does not know HTTP, JSON, or
//! what a database is beyond a record in a catalogue. docs/src/developers/storage-format.md
//! describes the format byte by byte.
#![deny(unsafe_code)]

mod access;
mod batch;
mod cache_sample;
pub mod check;
mod commit;
mod compact;
mod contents;
pub mod counters;
mod digest;
mod disk;
mod edit;
mod engine;
mod error;
mod files;
pub mod fuzz;
#[cfg(test)]
mod golden;
mod iterators;
mod keys;
mod keyspace;
mod last_backup;
mod leaf_check;
mod limits;
mod meta;
#[allow(unsafe_code)]
mod native;
mod position;
mod purges;
mod rank;
mod record;
pub mod repair;
mod row;
mod shard;
mod slot;
mod snapshot;
mod space;
mod store;
mod summary;
mod time_seq;
mod tree;
pub mod varint;
mod wal;
mod winners;
mod writes;

pub use access::{GrantedIds, GrantedSeqs};
pub use batch::local_rev;
pub use commit::{
    Committer, Counters, EditOutcomes, OnCommit, Put, ShardCommit, ShardEdit, ShardPurge, Timing,
    commit_on_this_thread,
};
pub use compact::{compact, trim_purges};
pub use contents::{
    CHUNK_BYTES, Content, Contents, Numbers, PinnedContent, Upload, reclaim_contents,
};
pub use digest::Recount;
pub use disk::DiskGuard;
pub use edit::{Change, Edit, EditAccess, File, Outcome, hashed};
pub use engine::{Engine, OPEN_FILES_MAX, StoreOptions, WriteFailure};
pub use error::Error;
pub use files::{FileWriter, SortedFiles};
pub use iterators::{BodyScan, ChangeIter, IdIter};
pub use keys::{ShardNumber, meta::index_state as index_state_key, seq_key, shard_end};
pub use keyspace::Keyspace;
pub use leaf_check::{may_have_too_many_leaves, too_many_leaves};
pub use limits::{LEAVES_MAX, Limits};
pub use meta::{ShardMeta, active_bytes};
pub use purges::{
    PurgeInfo, list as list_purges, read as read_purges, read_ids as read_purged_ids,
};
pub use rank::LiveCount;
pub use record::{Record, RecordHead, StoredRev};
pub use row::{Body, Delta, INLINE_BODY_MAX_BYTES, Row};
pub use shard::{Shard, View, decode_local};
pub use slot::{
    Adoption, Generation, Install, Position, SESSION_WINDOW, SESSIONS_MAX, Session, SlotCopy,
    SlotImport, SlotNumber, SlotOutcome, SlotRemoval, SlotRequest, SlotRows, SlotWork, SlotWrite,
    WorkOutcome,
};
pub use snapshot::{Cursor, Snapshot, Value};
pub use store::{Signature, Store, folder_in, folders_in};
pub use summary::{IdBlocks, Summary};
pub use time_seq::{TimePlace, TimeSeq};
pub use writes::Writes;
