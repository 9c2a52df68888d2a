//! The storage of the log: entries and states of groups.

use cluster::SlotNumber;
use raft::eraftpb::Entry;

use crate::options::RaftId;
use crate::state::GroupState;

/// The reason why the disk did not read or write.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// The device or the file system failed, or is full.
    #[error("the disk of the log failed: {0}")]
    Failed(String),
    /// The read bytes differ from the written ones.
    #[error("the log on disk is damaged: {0}")]
    Damaged(String),
}

/// A write of a group. Its parts take effect in the order of the fields.
#[derive(Clone, Debug)]
pub struct GroupWrite {
    /// The group.
    pub slot: SlotNumber,
    /// Forget all entries.
    pub reset: bool,
    /// Entries; they replace those from the index of the first on.
    pub entries: Vec<Entry>,
    /// Forget the entries before this index.
    pub trim: Option<u64>,
    /// Its state.
    pub state: GroupState,
}

/// A group as it was stored.
#[derive(Clone, Debug, Default)]
pub struct StoredGroup {
    /// Its state.
    pub state: GroupState,
    /// The index of its last entry, or that of the base.
    pub last: u64,
}

impl StoredGroup {
    /// Returns a group whose state has these bytes, and whose last entry has this index, if there is
    /// one.
    ///
    /// # Errors
    /// [`DiskError::Damaged`]: the state has another form.
    pub(crate) fn decode(state: &[u8], last: Option<u64>) -> Result<StoredGroup, DiskError> {
        let state = GroupState::decode(state);
        let state = state.map_err(|e| DiskError::Damaged(e.to_string()))?;
        let last = last.unwrap_or(state.offsets.base().index);
        Ok(StoredGroup { state, last })
    }
}

/// A disk.
pub trait LogDisk: Send + Sync + 'static {
    /// Returns the id of Raft that belongs to this disk; a new disk gets a new one, which is durable
    /// when this returns. A disk that forgot synced writes is a new one.
    ///
    /// # Errors
    /// [`DiskError`].
    fn raft_id(&self) -> Result<RaftId, DiskError>;

    /// Returns a stored group.
    ///
    /// # Errors
    /// [`DiskError`].
    fn group(&self, slot: SlotNumber) -> Result<Option<StoredGroup>, DiskError>;

    /// Writes all or nothing, after all earlier writes. With `sync` this and all earlier writes are
    /// durable when it returns.
    ///
    /// # Errors
    /// [`DiskError`]. The same write may be repeated.
    fn write(&self, writes: &[&GroupWrite], sync: bool) -> Result<(), DiskError>;

    /// Reads written entries from `low` to `high` (exclusive), until they have `bytes_max` bytes, at
    /// least one.
    ///
    /// # Errors
    /// [`DiskError`], also when an entry is missing.
    fn entries(
        &self,
        slot: SlotNumber,
        low: u64,
        high: u64,
        bytes_max: u64,
    ) -> Result<Vec<Entry>, DiskError>;

    /// Returns the bytes that the log occupies.
    fn bytes(&self) -> u64;

    /// Notes how far it was synced, and reclaims the space of trimmed entries. Called every few
    /// seconds.
    ///
    /// # Errors
    /// [`DiskError`].
    fn maintain(&self) -> Result<(), DiskError>;
}
