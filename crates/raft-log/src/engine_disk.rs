//! The log on disk: one raft-engine for all groups of a node.
//!
//! **Invariant: a disk that forgot synced writes has another id.** A log without bytes that the list of
//! [`crate::synced_files`] has is set aside as it is, and an empty one takes its place. Without that
//! proof, a log that raft-engine does not accept prevents the start: what is wrong may be the same on
//! all nodes, and must not cost all of them their logs.

use std::ffi::OsString;
use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cluster::SlotNumber;
use raft::eraftpb::Entry;
use raft_engine::{Command, Config, Engine, LogBatch, MessageExt, ReadableSize};

use crate::disk::{DiskError, GroupWrite, LogDisk, StoredGroup};
use crate::options::RaftId;
use crate::synced_files::{Extents, SyncedFiles, SyncedList, find_gone, remove_empty_newest};

/// The group that holds the disk's id. Slots have smaller numbers.
const DISK: u64 = 1 << 32;
/// The key of the disk's id.
const ID: &[u8] = b"id";
/// The key of a group's state.
const STATE: &[u8] = b"state";
/// The size of a file of the log.
const FILE_BYTES: u64 = 64 << 20;

/// Entries that are read together: raft-engine allocates room for all that are requested, however few
/// bytes of them are.
const READ_ENTRIES_MAX: u64 = 4096;
/// Attempts to read entries.
const READ_ATTEMPTS: usize = 4;

/// The ending of the name of a directory whose log was damaged.
pub const DAMAGED: &str = ".damaged";

/// How entries are stored.
struct Entries;

impl MessageExt for Entries {
    type Entry = Entry;

    fn index(entry: &Entry) -> u64 {
        entry.get_index()
    }
}

/// The reason why a log was not opened.
enum OpenError {
    /// Synced bytes are gone, in words.
    Lost(String),
    Engine(raft_engine::Error),
    Disk(DiskError),
}

impl From<DiskError> for OpenError {
    fn from(e: DiskError) -> OpenError {
        OpenError::Disk(e)
    }
}

impl From<OpenError> for DiskError {
    fn from(e: OpenError) -> DiskError {
        match e {
            OpenError::Lost(why) => DiskError::Damaged(why),
            OpenError::Engine(e) => failure(e),
            OpenError::Disk(e) => e,
        }
    }
}

/// A log on disk.
pub struct EngineDisk {
    /// Its end syncs files, so it is dropped before the list of synced bytes.
    engine: Engine<SyncedFiles>,
    synced: SyncedList,
    id: RaftId,
}

impl EngineDisk {
    /// Opens or creates the log in a directory. It uses at most about `bytes_max` bytes if entries are
    /// trimmed in time.
    ///
    /// An end that was cut off is the result of a crash during an unsynced write. A log that lost
    /// synced bytes is renamed to `….damaged`, and an empty one with another id is created: this
    /// node may have voted, or confirmed entries, and does not know it any more.
    ///
    /// # Errors
    /// [`DiskError`].
    pub fn open(path: &Path, bytes_max: u64) -> Result<EngineDisk, DiskError> {
        EngineDisk::open_with_files(path, bytes_max, FILE_BYTES)
    }

    /// Opens a log whose files have about this size.
    pub(crate) fn open_with_files(
        path: &Path,
        bytes_max: u64,
        file_bytes: u64,
    ) -> Result<EngineDisk, DiskError> {
        let directory = path.to_str();
        let odd = || DiskError::Failed("the log's directory has no name in UTF-8".into());
        let purge = (bytes_max / 2).max(2 * file_bytes);
        let config = Config {
            dir: directory.ok_or_else(odd)?.to_owned(),
            target_file_size: ReadableSize(file_bytes),
            purge_threshold: ReadableSize(purge),
            ..Config::default()
        };
        match EngineDisk::open_intact(path, &config) {
            Err(OpenError::Lost(why)) => {
                let aside = set_aside(path).map_err(failed)?;
                tracing::error!(aside = %aside.display(), "the log on this disk is damaged; an empty one replaces it, which gets everything from the other nodes: {why}");
                EngineDisk::open_intact(path, &config).map_err(DiskError::from)
            }
            opened => opened.map_err(DiskError::from),
        }
    }

    /// Opens or creates a log that has everything that was synced.
    fn open_intact(path: &Path, config: &Config) -> Result<EngineDisk, OpenError> {
        let listed = SyncedList::read(path).map_err(failed)?;
        if let Some(name) = find_gone(path, &listed).map_err(failed)? {
            let why = format!("the file {name} was synced, and is gone");
            return Err(OpenError::Lost(why));
        }
        let (engine, files) = open_engine(path, config, &listed)?;
        // raft-engine skips files about which the device reports nothing.
        if let Some(name) = files.find_missing() {
            return Err(DiskError::Failed(format!("the file {name} was not found")).into());
        }
        let id = match engine.get(DISK, ID) {
            Some(id) => id_of(&id)?,
            None => create_id(&engine)?,
        };
        sync_names(path).map_err(failed)?;
        Ok(EngineDisk {
            engine,
            synced: SyncedList::new(path, files),
            id,
        })
    }

    fn read(
        &self,
        slot: SlotNumber,
        (low, high): (u64, u64),
        bytes_max: u64,
    ) -> Result<Vec<Entry>, DiskError> {
        let mut found = vec![];
        let bytes_max = usize::try_from(bytes_max).unwrap_or(usize::MAX);
        let group = u64::from(slot);
        self.engine
            .fetch_entries_to::<Entries>(group, low, high, Some(bytes_max), &mut found)
            .map_err(failure)?;
        let is_asked = found.first().is_some_and(|first| first.get_index() == low);
        match is_asked {
            true => Ok(found),
            false => Err(DiskError::Damaged(format!(
                "slot {slot} has no entry {low}"
            ))),
        }
    }
}

/// Opens raft-engine. No opened file has less than its listed bytes then.
fn open_engine(
    path: &Path,
    config: &Config,
    listed: &Extents,
) -> Result<(Engine<SyncedFiles>, Arc<SyncedFiles>), OpenError> {
    use raft_engine::Error;
    let open = || {
        let files = Arc::new(SyncedFiles::new(listed.clone()));
        let opened = Engine::open_with_file_system(config.clone(), files.clone());
        match files.find_cut() {
            Some(why) => Err(OpenError::Lost(why)),
            None => opened
                .map(|engine| (engine, files))
                .map_err(OpenError::Engine),
        }
    };
    let opened = open();
    // Another process with the same log has an error of another kind.
    let is_unreadable = matches!(
        opened,
        Err(OpenError::Engine(
            Error::Corruption(_) | Error::Codec(_) | Error::Io(_)
        ))
    );
    if is_unreadable && remove_empty_newest(path, listed).map_err(failed)? {
        return open();
    }
    opened
}

/// Makes the names of new files and of their directory durable, which a sync of the files does not.
fn sync_names(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()?;
    match directory.parent() {
        Some(parent) if parent != Path::new("") => File::open(parent)?.sync_all(),
        _ => Ok(()),
    }
}

fn id_of(bytes: &[u8]) -> Result<RaftId, DiskError> {
    let id = <[u8; 8]>::try_from(bytes);
    let id = id.map_err(|_| DiskError::Damaged("the id of the log's disk".into()))?;
    Ok(RaftId::from_le_bytes(id))
}

/// Renames the directory of a damaged log, and creates an empty one. Returns the other name. A log that
/// was damaged earlier is removed.
fn set_aside(directory: &Path) -> io::Result<PathBuf> {
    let mut aside = OsString::from(directory);
    aside.push(DAMAGED);
    let aside = PathBuf::from(aside);
    let removed = std::fs::remove_dir_all(&aside);
    if let Err(e) = removed
        && e.kind() != io::ErrorKind::NotFound
    {
        return Err(e);
    }
    std::fs::rename(directory, &aside)?;
    DirBuilder::new().mode(0o700).create(directory)?;
    Ok(aside)
}

fn create_id(engine: &Engine<SyncedFiles>) -> Result<RaftId, DiskError> {
    let id = fastrand::u64(1..);
    let mut batch = LogBatch::default();
    batch
        .put(DISK, ID.to_vec(), id.to_le_bytes().to_vec())
        .map_err(failure)?;
    engine.write(&mut batch, true).map_err(failure)?;
    Ok(id)
}

fn add(write: &GroupWrite, batch: &mut LogBatch) -> Result<(), raft_engine::Error> {
    let group = u64::from(write.slot);
    if write.reset {
        batch.add_command(group, Command::Clean);
    }
    batch.add_entries::<Entries>(group, &write.entries)?;
    if let Some(index) = write.trim {
        batch.add_command(group, Command::Compact { index });
    }
    batch.put(group, STATE.to_vec(), write.state.encode())
}

fn failed(e: io::Error) -> DiskError {
    DiskError::Failed(e.to_string())
}

fn failure(e: raft_engine::Error) -> DiskError {
    use raft_engine::Error;
    match e {
        Error::Corruption(_)
        | Error::Codec(_)
        | Error::Protobuf(_)
        | Error::EntryCompacted
        | Error::EntryNotFound => DiskError::Damaged(e.to_string()),
        _ => DiskError::Failed(e.to_string()),
    }
}

impl LogDisk for EngineDisk {
    fn raft_id(&self) -> Result<RaftId, DiskError> {
        Ok(self.id)
    }

    fn group(&self, slot: SlotNumber) -> Result<Option<StoredGroup>, DiskError> {
        let group = u64::from(slot);
        let Some(state) = self.engine.get(group, STATE) else {
            return Ok(None);
        };
        StoredGroup::decode(&state, self.engine.last_index(group)).map(Some)
    }

    fn write(&self, writes: &[&GroupWrite], sync: bool) -> Result<(), DiskError> {
        let mut batch = LogBatch::with_capacity(2 * writes.len());
        for write in writes {
            add(write, &mut batch).map_err(failure)?;
        }
        self.engine.write(&mut batch, sync).map_err(failure)?;
        Ok(())
    }

    fn entries(
        &self,
        slot: SlotNumber,
        low: u64,
        high: u64,
        bytes_max: u64,
    ) -> Result<Vec<Entry>, DiskError> {
        let range = (low, high.min(low.saturating_add(READ_ENTRIES_MAX)));
        let mut read = self.read(slot, range, bytes_max);
        for _ in 1..READ_ATTEMPTS {
            if read.is_ok() {
                break;
            }
            // raft-engine looks up where entries are, and then reads them. Meanwhile `maintain` may move
            // them, and remove the file.
            read = self.read(slot, range, bytes_max);
        }
        read
    }

    fn bytes(&self) -> u64 {
        self.engine.get_used_size() as u64
    }

    fn maintain(&self) -> Result<(), DiskError> {
        let kept = self.synced.keep();
        // Groups that keep old files from being removed are rewritten by the engine in time.
        self.engine.purge_expired_files().map_err(failure)?;
        // A full disk needs the space, so this comes last.
        kept.map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::{Base, GroupState, Offsets};

    fn entry(index: u64, term: u64, data: &'static [u8]) -> Entry {
        let mut entry = Entry::default();
        entry.set_index(index);
        entry.set_term(term);
        entry.set_data(Bytes::from_static(data));
        entry
    }

    fn write(entries: Vec<Entry>) -> GroupWrite {
        GroupWrite {
            slot: 3,
            reset: false,
            entries,
            trim: None,
            state: GroupState::first(7),
        }
    }

    #[test]
    fn what_was_written_is_there_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let open = || EngineDisk::open(dir.path(), 1 << 30).unwrap();
        let disk = open();
        let id = disk.raft_id().unwrap();
        assert!(disk.group(3).unwrap().is_none());
        let first = write(vec![
            entry(2, 1, b"a"),
            entry(3, 1, b"b"),
            entry(4, 1, b"c"),
        ]);
        disk.write(&[&first], true).unwrap();
        let mut second = write(vec![entry(3, 2, b"d")]);
        second.trim = Some(3);
        second.state.offsets.trim(2, 1);
        disk.write(&[&second], true).unwrap();
        drop(disk);
        let disk = open();
        assert_eq!(disk.raft_id().unwrap(), id);
        let stored = disk.group(3).unwrap().unwrap();
        assert_eq!(stored.last, 3);
        assert_eq!(stored.state, second.state);
        assert_eq!(disk.entries(3, 3, 4, 0).unwrap(), second.entries);
        assert!(disk.entries(3, 2, 3, 0).is_err());
    }

    #[test]
    fn entries_are_read_while_space_is_reclaimed() {
        const FILE_BYTES: u64 = 16 << 10;
        const KEPT: u64 = 20;
        const FILLING: u64 = 100;
        let dir = tempfile::tempdir().unwrap();
        let disk = EngineDisk::open_with_files(dir.path(), 8 * FILE_BYTES, FILE_BYTES).unwrap();
        let write = |slot: SlotNumber, first: u64, count: u64, trim: Option<u64>| {
            let random = |index| {
                let mut random = entry(index, 1, b"");
                let data: Vec<u8> = (0..500).map(|_| fastrand::u8(..)).collect();
                random.set_data(Bytes::from(data));
                random
            };
            let write = GroupWrite {
                slot,
                reset: false,
                entries: (first..first + count).map(random).collect(),
                trim,
                state: GroupState::first(7),
            };
            disk.write(&[&write], false).unwrap();
        };
        write(1, 1, KEPT, None);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for round in 0..100 {
                    // The same entries are in a new file, and the old one is removed.
                    write(1, 1, KEPT, None);
                    let first = 1 + round * FILLING;
                    write(2, first, FILLING, Some(first));
                    disk.maintain().unwrap();
                }
            });
            while !writer.is_finished() {
                let found = disk.entries(1, 1, KEPT + 1, u64::MAX).unwrap();
                assert_eq!(found.len() as u64, KEPT);
            }
            writer.join().unwrap();
        });
    }

    #[test]
    fn a_reset_group_starts_at_its_base() {
        let dir = tempfile::tempdir().unwrap();
        let open = || EngineDisk::open(dir.path(), 1 << 30).unwrap();
        let disk = open();
        let first = write(vec![entry(2, 1, b"a"), entry(3, 1, b"b")]);
        disk.write(&[&first], true).unwrap();
        let base = Base {
            index: 50,
            term: 4,
            offset: 40,
        };
        let mut reset = write(vec![]);
        reset.reset = true;
        reset.state.offsets = Offsets::starting(base);
        disk.write(&[&reset], true).unwrap();
        assert_eq!(disk.group(3).unwrap().unwrap().last, 50);
        let next = write(vec![entry(51, 4, b"c")]);
        disk.write(&[&next], true).unwrap();
        assert_eq!(disk.entries(3, 51, 52, 100).unwrap(), next.entries);
        drop(disk);
        let disk = open();
        let stored = disk.group(3).unwrap().unwrap();
        assert_eq!((stored.last, stored.state), (51, next.state));
        assert_eq!(disk.entries(3, 51, 52, 100).unwrap(), next.entries);
        assert!(disk.entries(3, 3, 4, 100).is_err());
    }
}
