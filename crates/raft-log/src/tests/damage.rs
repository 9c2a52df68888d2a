//! Damage of a log on disk: what is replaced, what is refused, and that crashes are not damage.

use std::fs::File;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use raft::eraftpb::Entry;

use crate::disk::{GroupWrite, LogDisk as _};
use crate::engine_disk::EngineDisk;
use crate::options::RaftId;
use crate::state::GroupState;
use crate::synced_files::SyncedList;

/// The size of small files.
const FILE_BYTES: u64 = 4 << 10;

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

/// Returns the file with the latest records.
fn newest(log: &Path) -> PathBuf {
    let paths = std::fs::read_dir(log).unwrap().map(|it| it.unwrap().path());
    let is_log = |path: &PathBuf| path.extension().is_some_and(|it| it == "raftlog");
    paths.filter(is_log).max().unwrap()
}

/// Copies a log, as a crash of the process leaves it.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
    }
}

fn remove(log: &Path) {
    std::fs::remove_dir_all(log).unwrap();
    let _aside = std::fs::remove_dir_all(log.with_extension("damaged"));
}

/// Opens a log with small files.
fn open_small(log: &Path) -> EngineDisk {
    EngineDisk::open_with_files(log, 8 * FILE_BYTES, FILE_BYTES).unwrap()
}

/// Writes entries of 500 bytes to a log with small files, all synced. Returns its id.
fn write_small_log(log: &Path, indexes: std::ops::Range<u64>) -> RaftId {
    let disk = open_small(log);
    for index in indexes {
        let mut entry = entry(index, 1, b"");
        entry.set_data(Bytes::from(vec![index as u8; 500]));
        disk.write(&[&write(vec![entry])], true).unwrap();
    }
    disk.raft_id().unwrap()
}

fn is_empty_and_other(disk: &EngineDisk, id: RaftId, log: &Path) -> bool {
    disk.raft_id().unwrap() != id
        && disk.group(3).unwrap().is_none()
        && log.with_extension("damaged").is_dir()
}

/// Writes a log with one record in each write, all synced. Returns its id.
fn write_log(log: &Path, indexes: std::ops::Range<u64>) -> RaftId {
    let disk = EngineDisk::open(log, 1 << 30).unwrap();
    for index in indexes {
        let write = write(vec![entry(index, 1, b"a record of some length")]);
        disk.write(&[&write], true).unwrap();
    }
    disk.raft_id().unwrap()
}

#[test]
fn a_flipped_bit_makes_another_disk_or_is_noticed_by_reads() {
    const HEADER_BYTES: usize = 69;
    const STEP: usize = 7;
    let dir = tempfile::tempdir().unwrap();
    let (whole, log) = (dir.path().join("whole"), dir.path().join("log"));
    let id = write_log(&whole, 2..12);
    let bytes = std::fs::read(newest(&whole)).unwrap();
    let mut replaced = 0;
    for at in (HEADER_BYTES..bytes.len()).step_by(STEP) {
        copy(&whole, &log);
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << (at % 8);
        std::fs::write(newest(&log), damaged).unwrap();
        let disk = EngineDisk::open(&log, 1 << 30).unwrap();
        if disk.raft_id().unwrap() != id {
            assert!(is_empty_and_other(&disk, id, &log), "{at}");
            replaced += 1;
        } else {
            assert_eq!(disk.group(3).unwrap().unwrap().last, 11, "{at}");
            for index in 2..12 {
                if let Ok(found) = disk.entries(3, index, index + 1, 0) {
                    assert_eq!(found, [entry(index, 1, b"a record of some length")]);
                }
            }
        }
        drop(disk);
        remove(&log);
    }
    // Other bits are in records before the last one.
    assert!(replaced > bytes.len() / STEP / 3, "{replaced}");
}

#[test]
fn a_log_without_its_synced_end_is_another_disk() {
    let dir = tempfile::tempdir().unwrap();
    let (whole, log) = (dir.path().join("whole"), dir.path().join("log"));
    let id = write_log(&whole, 2..6);
    let length = newest(&whole).metadata().unwrap().len();
    for end in (0..length).step_by(9).chain([length - 1]) {
        copy(&whole, &log);
        let file = File::options().write(true).open(newest(&log)).unwrap();
        file.set_len(end).unwrap();
        let disk = EngineDisk::open(&log, 1 << 30).unwrap();
        assert!(is_empty_and_other(&disk, id, &log), "{end}");
        let other = disk.raft_id().unwrap();
        drop(disk);
        let disk = EngineDisk::open(&log, 1 << 30).unwrap();
        assert_eq!(disk.raft_id().unwrap(), other, "{end}");
        drop(disk);
        remove(&log);
    }
    copy(&whole, &log);
    std::fs::remove_file(newest(&log)).unwrap();
    let disk = EngineDisk::open(&log, 1 << 30).unwrap();
    assert!(is_empty_and_other(&disk, id, &log));
}

#[test]
fn a_shorter_file_makes_another_disk() {
    let dir = tempfile::tempdir().unwrap();
    let (whole, log) = (dir.path().join("whole"), dir.path().join("log"));
    let id = write_small_log(&whole, 2..42);
    let synced = SyncedList::read(&whole).unwrap();
    let names = synced.keys().filter(|name| name.ends_with(".raftlog"));
    let names: Vec<&String> = names.collect();
    assert!(names.len() > 3, "{names:?}");
    for name in names {
        let bytes = std::fs::read(whole.join(name)).unwrap();
        copy(&whole, &log);
        std::fs::write(log.join(name), &bytes[..bytes.len() / 2]).unwrap();
        let disk = open_small(&log);
        assert!(is_empty_and_other(&disk, id, &log), "{name}");
        drop(disk);
        remove(&log);
    }
}

#[test]
fn a_damaged_log_is_kept_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    let id = write_log(&log, 2..12);
    let newest = newest(&log);
    let mut damaged = std::fs::read(&newest).unwrap();
    let at = damaged.len() - 2;
    damaged[at] ^= 1;
    std::fs::write(&newest, &damaged).unwrap();
    let disk = EngineDisk::open(&log, 1 << 30).unwrap();
    assert!(is_empty_and_other(&disk, id, &log));
    let aside = log.with_extension("damaged");
    let name = newest.file_name().unwrap();
    assert_eq!(std::fs::read(aside.join(name)).unwrap(), damaged);
}

#[test]
fn a_log_that_is_not_accepted_stays_where_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    let id = write_small_log(&log, 2..42);
    let synced = SyncedList::read(&log).unwrap();
    let oldest = synced.keys().find(|name| name.ends_with(".raftlog"));
    for path in [log.join(oldest.unwrap()), newest(&log)] {
        let bytes = std::fs::read(&path).unwrap();
        // Another form, as a program of another version may write it.
        let mut other = bytes.clone();
        other[0] ^= 1;
        std::fs::write(&path, &other).unwrap();
        assert!(EngineDisk::open_with_files(&log, 8 * FILE_BYTES, FILE_BYTES).is_err());
        assert!(!log.with_extension("damaged").exists());
        assert_eq!(std::fs::read(&path).unwrap(), other);
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(open_small(&log).raft_id().unwrap(), id);
    }
}

/// A full disk makes raft-engine begin a file that has no header, and continue with the one before
/// it, whose end is unfinished when the process is killed.
#[test]
fn a_file_that_a_full_disk_left_empty_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    let (whole, log) = (dir.path().join("whole"), dir.path().join("log"));
    let id = write_log(&whole, 2..12);
    let newest = newest(&whole);
    let next = newest.with_file_name("0000000000000002.raftlog");
    let bytes = std::fs::read(&newest).unwrap();
    let ends = [vec![0; 4096], vec![7; 5], bytes[69..90].to_vec()];
    for end in &ends {
        for begun in [0, 20, 69] {
            copy(&whole, &log);
            let newest = log.join(newest.file_name().unwrap());
            std::fs::write(&newest, [&bytes[..], &end[..]].concat()).unwrap();
            let next = log.join(next.file_name().unwrap());
            std::fs::write(&next, vec![0; begun]).unwrap();
            let disk = EngineDisk::open(&log, 1 << 30).unwrap();
            assert_eq!(disk.raft_id().unwrap(), id);
            assert!(disk.group(3).unwrap().unwrap().last >= 11);
            let more = write(vec![entry(12, 1, b"more")]);
            disk.write(&[&more], true).unwrap();
            drop(disk);
            let disk = EngineDisk::open(&log, 1 << 30).unwrap();
            assert_eq!(disk.raft_id().unwrap(), id);
            assert_eq!(disk.entries(3, 12, 13, 0).unwrap(), more.entries);
            drop(disk);
            remove(&log);
        }
    }
}

#[test]
fn a_log_without_an_end_that_was_not_synced_is_the_same_disk() {
    let dir = tempfile::tempdir().unwrap();
    let (whole, log) = (dir.path().join("whole"), dir.path().join("log"));
    let disk = open_small(&whole);
    let id = disk.raft_id().unwrap();
    for index in 2..12 {
        let write = write(vec![entry(index, 1, b"a record of some length")]);
        disk.write(&[&write], index < 6).unwrap();
        if index == 6 {
            disk.maintain().unwrap();
        }
    }
    let name = newest(&whole);
    let name = name.file_name().unwrap().to_str().unwrap();
    let synced = SyncedList::read(&whole).unwrap()[name];
    for end in (synced - 1..synced + 500).step_by(11) {
        copy(&whole, &log);
        let file = File::options().write(true).open(newest(&log)).unwrap();
        file.set_len(end).unwrap();
        let crashed = open_small(&log);
        if end < synced {
            assert!(is_empty_and_other(&crashed, id, &log), "{end}");
        } else {
            assert_eq!(crashed.raft_id().unwrap(), id, "{end}");
            assert!(crashed.group(3).unwrap().unwrap().last >= 5, "{end}");
        }
        drop(crashed);
        remove(&log);
    }
}

#[test]
fn a_crash_at_any_time_leaves_the_same_disk() {
    let dir = tempfile::tempdir().unwrap();
    let (log, crashed) = (dir.path().join("log"), dir.path().join("crashed"));
    let mut disk = open_small(&log);
    let id = disk.raft_id().unwrap();
    let mut random = fastrand::Rng::with_seed(50);
    let mut next = 2;
    for round in 0..400 {
        let count = random.u64(1..5);
        let entries = (next..next + count).map(|index| {
            let mut entry = entry(index, 1, b"");
            let data: Vec<u8> = (0..500).map(|_| random.u8(..)).collect();
            entry.set_data(Bytes::from(data));
            entry
        });
        let mut write = write(entries.collect());
        next += count;
        write.trim = random.bool().then(|| next - 10u64.min(next - 2));
        disk.write(&[&write], random.bool()).unwrap();
        if random.u8(..4) == 0 {
            disk.maintain().unwrap();
        }
        if random.u8(..8) == 0 {
            copy(&log, &crashed);
            let again = open_small(&crashed);
            assert_eq!(again.raft_id().unwrap(), id, "{round}");
            assert_eq!(again.group(3).unwrap().unwrap().last, next - 1, "{round}");
            drop(again);
            remove(&crashed);
        }
        if random.u8(..16) == 0 {
            drop(disk);
            disk = open_small(&log);
            assert_eq!(disk.raft_id().unwrap(), id, "{round}");
        }
    }
    assert!(
        newest(&log) > log.join("0000000000000010.raftlog"),
        "files are renewed"
    );
}
