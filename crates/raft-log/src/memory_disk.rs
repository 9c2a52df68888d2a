//! A disk in memory, for tests. A crash may lose writes that were not synced.

use std::collections::{BTreeMap, VecDeque};

use cluster::SlotNumber;
use parking_lot::Mutex;
use raft::eraftpb::Entry;

use crate::disk::{DiskError, GroupWrite, LogDisk, StoredGroup};
use crate::options::RaftId;

#[derive(Clone, Default)]
struct StoredLog {
    /// In its form on disk.
    state: Vec<u8>,
    entries: BTreeMap<u64, Entry>,
}

type Logs = BTreeMap<SlotNumber, StoredLog>;

#[derive(Default)]
struct Disk {
    /// The state after a crash.
    durable: Logs,
    /// The state that the process sees.
    current: Logs,
    /// The writes since the last sync.
    unsynced: Vec<Vec<GroupWrite>>,
    /// The latest synced writes that damage can take away, and the state before them.
    tail: VecDeque<Vec<GroupWrite>>,
    before_tail: Logs,
    tail_max: usize,
}

impl Disk {
    fn make_durable(&mut self, writes: Vec<GroupWrite>) {
        store(&mut self.durable, &writes);
        if self.tail_max == 0 {
            return;
        }
        self.tail.push_back(writes);
        if self.tail.len() > self.tail_max
            && let Some(oldest) = self.tail.pop_front()
        {
            store(&mut self.before_tail, &oldest);
        }
    }
}

/// A disk in memory.
pub(crate) struct MemoryDisk {
    id: RaftId,
    disk: Mutex<Disk>,
}

impl MemoryDisk {
    /// Creates an empty disk.
    pub fn new(id: RaftId) -> MemoryDisk {
        MemoryDisk {
            id,
            disk: Mutex::default(),
        }
    }

    /// Makes the first of the writes that were not synced durable.
    pub fn sync_first(&self, count: usize) {
        let mut disk = self.disk.lock();
        let disk = &mut *disk;
        let rest = disk.unsynced.split_off(count.min(disk.unsynced.len()));
        for writes in std::mem::replace(&mut disk.unsynced, rest) {
            disk.make_durable(writes);
        }
    }

    /// Lets damage take away synced writes later: at most the latest `count`.
    pub fn keep_tail(&self, count: usize) {
        self.disk.lock().tail_max = count;
    }

    /// Loses the latest `count` synced writes, and everything that was not synced, as damage in the
    /// newest file of a log does.
    pub fn damage(&self, count: usize) {
        let mut disk = self.disk.lock();
        let disk = &mut *disk;
        disk.unsynced.clear();
        disk.tail.truncate(disk.tail.len().saturating_sub(count));
        disk.durable = disk.before_tail.clone();
        for writes in &disk.tail {
            store(&mut disk.durable, writes);
        }
        disk.current = disk.durable.clone();
    }

    /// Loses the writes after the last sync, except the first `kept` ones.
    pub fn crash(&self, kept: usize) {
        let mut disk = self.disk.lock();
        let disk = &mut *disk;
        for writes in std::mem::take(&mut disk.unsynced).into_iter().take(kept) {
            disk.make_durable(writes);
        }
        disk.current = disk.durable.clone();
    }

    /// Returns the number of writes that were not synced.
    pub fn unsynced(&self) -> usize {
        self.disk.lock().unsynced.len()
    }
}

fn store(logs: &mut Logs, writes: &[GroupWrite]) {
    for write in writes {
        let log = logs.entry(write.slot).or_default();
        if write.reset {
            log.entries.clear();
        }
        if let Some(first) = write.entries.first() {
            let _replaced = log.entries.split_off(&first.get_index());
        }
        for entry in &write.entries {
            log.entries.insert(entry.get_index(), entry.clone());
        }
        if let Some(trim) = write.trim {
            log.entries = log.entries.split_off(&trim);
        }
        log.state = write.state.encode();
    }
}

impl LogDisk for MemoryDisk {
    fn raft_id(&self) -> Result<RaftId, DiskError> {
        Ok(self.id)
    }

    fn group(&self, slot: SlotNumber) -> Result<Option<StoredGroup>, DiskError> {
        let disk = self.disk.lock();
        let Some(log) = disk.current.get(&slot) else {
            return Ok(None);
        };
        let last = log.entries.last_key_value().map(|(index, _)| *index);
        StoredGroup::decode(&log.state, last).map(Some)
    }

    fn write(&self, writes: &[&GroupWrite], sync: bool) -> Result<(), DiskError> {
        let mut disk = self.disk.lock();
        let writes: Vec<GroupWrite> = writes.iter().map(|write| (*write).clone()).collect();
        store(&mut disk.current, &writes);
        disk.unsynced.push(writes);
        let count = disk.unsynced.len();
        drop(disk);
        if sync {
            self.sync_first(count);
        }
        Ok(())
    }

    fn entries(
        &self,
        slot: SlotNumber,
        low: u64,
        high: u64,
        bytes_max: u64,
    ) -> Result<Vec<Entry>, DiskError> {
        let disk = self.disk.lock();
        let log = disk.current.get(&slot);
        let missing = || DiskError::Damaged(format!("slot {slot} has no entry {low}"));
        let log = log.ok_or_else(missing)?;
        let mut found = vec![];
        let mut bytes = 0;
        for (index, (at, entry)) in (low..).zip(log.entries.range(low..high)) {
            if index != *at {
                return Err(missing());
            }
            bytes += entry.get_data().len() as u64;
            if bytes > bytes_max && !found.is_empty() {
                break;
            }
            found.push(entry.clone());
        }
        match found.is_empty() {
            true => Err(missing()),
            false => Ok(found),
        }
    }

    fn bytes(&self) -> u64 {
        let disk = self.disk.lock();
        let entries = disk.current.values().flat_map(|log| log.entries.values());
        entries.map(|entry| entry.get_data().len() as u64).sum()
    }

    fn maintain(&self) -> Result<(), DiskError> {
        Ok(())
    }
}
