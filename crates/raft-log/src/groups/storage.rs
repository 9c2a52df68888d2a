//! A group's log as Raft reads it: recent entries in memory, older ones on disk.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use cluster::SlotNumber;
use raft::eraftpb::{Entry, EntryType, Snapshot};
use raft::{Error, GetEntriesContext, RaftState, Storage, StorageError};

use crate::disk::{DiskError, LogDisk};
use crate::options::RECENT_BYTES;
use crate::state::{GroupState, get_base, put_base};

/// Entries of at most this size are copied to keep them, in bytes. An entry from the network is a part of
/// its message, which has those of other groups, too: it would stay in memory with one of them.
const COPIED_BYTES_MAX: usize = 64 << 10;
/// Entries that an idle group keeps room for.
const IDLE_ENTRIES: usize = 8;
/// Bytes of an entry that its data do not count.
const ENTRY_BYTES: usize = 16;

/// The log of a group.
pub(crate) struct GroupStorage<D> {
    disk: Arc<D>,
    slot: SlotNumber,
    /// Its state, which may be ahead of the disk.
    pub state: GroupState,
    last: u64,
    /// The entries up to the last one, in order. All that the disk may lack are among them.
    recent: VecDeque<Entry>,
    recent_bytes: usize,
    /// The index up to which entries were written.
    written: u64,
}

impl<D: LogDisk> GroupStorage<D> {
    /// Opens the log of a group.
    ///
    /// # Errors
    /// [`DiskError`].
    pub fn open(disk: Arc<D>, slot: SlotNumber) -> Result<GroupStorage<D>, DiskError> {
        let stored = disk.group(slot)?.unwrap_or_default();
        let base = stored.state.offsets.base().index;
        let (applied, commit) = (stored.state.applied, stored.state.hard.get_commit());
        if !(base <= applied && applied <= commit && commit <= stored.last) {
            let why = format!(
                "slot {slot} has base {base}, position {applied}, commit index {commit} and entries up to {}",
                stored.last
            );
            return Err(DiskError::Damaged(why));
        }
        Ok(GroupStorage {
            disk,
            slot,
            last: stored.last,
            written: stored.last,
            state: stored.state,
            recent: VecDeque::new(),
            recent_bytes: 0,
        })
    }

    /// Adds entries, which replace those from the index of the first on.
    pub fn append(&mut self, entries: &[Entry]) {
        let Some(first) = entries.first() else {
            return;
        };
        let from = first.get_index();
        while self
            .recent
            .back()
            .is_some_and(|entry| entry.get_index() >= from)
        {
            let replaced = self.recent.pop_back();
            self.recent_bytes -= replaced.as_ref().map_or(0, size);
        }
        self.state.offsets.truncate(from);
        self.written = self.written.min(from - 1);
        for entry in entries {
            self.state.offsets.push(entry.get_index(), is_record(entry));
            self.recent_bytes += size(entry);
            self.last = entry.get_index();
            self.recent.push_back(detached(entry));
        }
    }

    /// Replaces everything by the base of a snapshot.
    pub fn install(&mut self, snapshot: &Snapshot) -> Result<(), DiskError> {
        let about = snapshot.get_metadata();
        let base = get_base(&mut snapshot.get_data());
        let base = base.map_err(|e| DiskError::Damaged(e.to_string()))?;
        self.state.offsets = crate::Offsets::starting(crate::Base {
            index: about.get_index(),
            term: about.get_term(),
            offset: base.offset,
        });
        self.state.members = about.get_conf_state().clone();
        self.state.applied = about.get_index();
        self.last = about.get_index();
        self.written = self.last;
        self.recent.clear();
        self.recent_bytes = 0;
        Ok(())
    }

    /// Notes that the entries up to this one are written, unless others replaced it since.
    pub fn note_written(&mut self, index: u64, term: u64) {
        let at = index.checked_sub(self.first_recent());
        let entry = at.and_then(|at| self.recent.get(at as usize));
        if entry.is_some_and(|entry| entry.get_term() == term) {
            self.written = self.written.max(index);
        }
        while self.recent_bytes > RECENT_BYTES && self.first_recent() <= self.written {
            self.forget_oldest();
        }
    }

    /// Releases the memory of written entries, except the last one: the group is idle.
    pub fn forget_written(&mut self) {
        while self.recent.len() > 1 && self.first_recent() <= self.written {
            self.forget_oldest();
        }
        self.recent.shrink_to(IDLE_ENTRIES);
    }

    /// Removes the entries up to an index that was applied. Returns whether there were any.
    pub fn trim(&mut self, index: u64) -> bool {
        let index = index.min(self.state.applied);
        if index <= self.state.offsets.base().index {
            return false;
        }
        let Ok(term) = self.term_at(index) else {
            return false;
        };
        self.state.offsets.trim(index, term);
        while self.first_recent() <= index {
            self.forget_oldest();
        }
        true
    }

    /// Returns entries from `low` to `high` (exclusive), until they have `bytes_max` bytes, at least
    /// one.
    ///
    /// # Errors
    /// [`DiskError`].
    pub fn read(&self, low: u64, high: u64, bytes_max: u64) -> Result<Vec<Entry>, DiskError> {
        let recent = self.first_recent();
        let mut found = vec![];
        if low < recent {
            let end = high.min(recent);
            found = self.disk.entries(self.slot, low, end, bytes_max)?;
            if (found.len() as u64) < end - low {
                return Ok(found);
            }
        }
        let mut bytes: u64 = found.iter().map(|entry| size(entry) as u64).sum();
        let skipped = low.saturating_sub(recent) as usize;
        for entry in self.recent.iter().skip(skipped) {
            bytes += size(entry) as u64;
            if entry.get_index() >= high || (bytes > bytes_max && !found.is_empty()) {
                break;
            }
            found.push(entry.clone());
        }
        Ok(found)
    }

    /// Returns the index of the first entry in memory; one after the last without any.
    fn first_recent(&self) -> u64 {
        self.recent.front().map_or(self.last + 1, Entry::get_index)
    }

    fn forget_oldest(&mut self) {
        let oldest = self.recent.pop_front();
        self.recent_bytes -= oldest.as_ref().map_or(0, size);
    }

    fn term_at(&self, index: u64) -> Result<u64, Error> {
        let base = self.state.offsets.base();
        if index == base.index {
            return Ok(base.term);
        }
        if index < base.index {
            return Err(StorageError::Compacted.into());
        }
        if index > self.last {
            return Err(StorageError::Unavailable.into());
        }
        let recent = index.checked_sub(self.first_recent());
        if let Some(entry) = recent.and_then(|at| self.recent.get(at as usize)) {
            return Ok(entry.get_term());
        }
        let found = self.disk.entries(self.slot, index, index + 1, 0);
        let found = found.map_err(other)?;
        let entry = found.first().ok_or(StorageError::Unavailable)?;
        Ok(entry.get_term())
    }
}

impl<D: LogDisk> Storage for GroupStorage<D> {
    fn initial_state(&self) -> raft::Result<RaftState> {
        Ok(RaftState::new(
            self.state.hard.clone(),
            self.state.members.clone(),
        ))
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        _: GetEntriesContext,
    ) -> raft::Result<Vec<Entry>> {
        if low <= self.state.offsets.base().index {
            return Err(StorageError::Compacted.into());
        }
        if high > self.last + 1 {
            return Err(StorageError::Unavailable.into());
        }
        if low >= high {
            return Ok(vec![]);
        }
        let bytes_max = max_size.into().unwrap_or(u64::MAX);
        self.read(low, high, bytes_max).map_err(other)
    }

    fn term(&self, index: u64) -> raft::Result<u64> {
        self.term_at(index)
    }

    fn first_index(&self) -> raft::Result<u64> {
        Ok(self.state.offsets.base().index + 1)
    }

    fn last_index(&self) -> raft::Result<u64> {
        Ok(self.last)
    }

    /// Returns the position, without any records: replicas copy what they lack from each other.
    fn snapshot(&self, _: u64, _: u64) -> raft::Result<Snapshot> {
        let applied = self.state.applied;
        let base = crate::Base {
            index: applied,
            term: self.term_at(applied)?,
            offset: self.state.offsets.after(applied),
        };
        let mut snapshot = Snapshot::default();
        let about = snapshot.mut_metadata();
        about.set_index(base.index);
        about.set_term(base.term);
        about.set_conf_state(self.state.members.clone());
        let mut data = vec![];
        put_base(&base, &mut data);
        snapshot.set_data(Bytes::from(data));
        Ok(snapshot)
    }
}

/// Returns whether an entry is a record. A new leader's entry is empty, and records never are.
pub(crate) fn is_record(entry: &Entry) -> bool {
    entry.get_entry_type() == EntryType::EntryNormal && !entry.get_data().is_empty()
}

/// Returns an entry that can be kept.
fn detached(entry: &Entry) -> Entry {
    let mut kept = entry.clone();
    if kept.data.len() <= COPIED_BYTES_MAX {
        kept.data = Bytes::copy_from_slice(&kept.data);
    }
    kept
}

fn size(entry: &Entry) -> usize {
    entry.get_data().len() + ENTRY_BYTES
}

fn other(e: DiskError) -> Error {
    StorageError::Other(Box::new(e)).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::GroupWrite;
    use crate::memory_disk::MemoryDisk;

    fn entry(index: u64, term: u64) -> Entry {
        let mut entry = Entry::default();
        entry.set_index(index);
        entry.set_term(term);
        entry.set_data(Bytes::from(vec![term as u8; RECENT_BYTES]));
        entry
    }

    fn write(disk: &MemoryDisk, entries: &[Entry]) {
        let write = GroupWrite {
            slot: 0,
            reset: false,
            entries: entries.to_vec(),
            trim: None,
            state: GroupState::default(),
        };
        disk.write(&[&write], true).unwrap();
    }

    #[test]
    fn a_small_entry_does_not_keep_its_message_in_memory() {
        let mut storage = GroupStorage::open(Arc::new(MemoryDisk::new(1)), 0).unwrap();
        let message = Bytes::from(vec![1; 1 << 20]);
        let mut small = entry(1, 1);
        small.set_data(message.slice(10..20));
        storage.append(&[small]);
        assert!(message.is_unique());
        assert_eq!(storage.recent[0].get_data(), [1; 10]);
    }

    #[test]
    fn an_idle_group_keeps_one_written_entry_in_memory() {
        let disk = Arc::new(MemoryDisk::new(1));
        let mut storage = GroupStorage::open(disk.clone(), 0).unwrap();
        let mut entries: Vec<Entry> = (1..=50).map(|index| entry(index, 1)).collect();
        for entry in &mut entries {
            entry.set_data(Bytes::from_static(b"record"));
        }
        storage.append(&entries);
        write(&disk, &entries[..20]);
        storage.note_written(20, 1);
        storage.forget_written();
        assert_eq!(storage.recent.len(), 30);
        write(&disk, &entries[20..]);
        storage.note_written(50, 1);
        storage.forget_written();
        assert_eq!(storage.recent.len(), 1);
        assert_eq!(storage.term(50).unwrap(), 1);
        assert_eq!(storage.read(1, 51, u64::MAX).unwrap(), entries);
    }

    #[test]
    fn entries_stay_in_memory_until_they_are_written() {
        let disk = Arc::new(MemoryDisk::new(1));
        let mut storage = GroupStorage::open(disk.clone(), 0).unwrap();
        let (first, second) = ([entry(1, 1), entry(2, 1)], [entry(2, 2)]);
        let now = [first[0].clone(), second[0].clone()];
        storage.append(&first);
        write(&disk, &first);
        storage.append(&second);
        // The flush of those that were replaced ends.
        storage.note_written(2, 1);
        assert_eq!(storage.read(1, 3, u64::MAX).unwrap(), now);
        assert_eq!(storage.term(2).unwrap(), 2);
        write(&disk, &second);
        storage.note_written(2, 2);
        assert!(storage.recent.is_empty());
        assert_eq!(storage.read(1, 3, u64::MAX).unwrap(), now);
        assert_eq!(storage.read(1, 3, 0).unwrap(), first[..1]);
        assert_eq!(storage.term(2).unwrap(), 2);
    }
}
