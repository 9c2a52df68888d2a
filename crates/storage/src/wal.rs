//! Finds damage in the middle of the write-ahead log before the engine opens it.
//!
//! Point-in-time recovery stops silently at the first bad record. A bad record at the very end is
//! the result of a crash and harmless: it was never acknowledged. A bad record with readable ones
//! after it is damage, and must be reported. Format: RocksDB wiki, "Write Ahead Log File Format":
//! blocks of 32 KiB holding records of `crc32c (4, masked) | length (2) | type (1) | payload`.
//!
//! Logs have zeros ahead (`crates/storage/native/log_ahead.cc`), which commits overwrite. A power
//! loss may have written some sectors of unsynced data and not others: zeros, followed by readable
//! records. That is the end of the log too, and differs from damage by the zeros, and by the
//! distance of the records. It is cut off here, since the engine reads on past zeros. A log's zeros
//! are cut off before the next log is started; versions that did not do so have left logs that end
//! in zeros before others. The sequence numbers then show that nothing is missing in between.
//!
//! After recovering a log with a bad end, the engine starts a new one with an empty batch, which
//! records where the old one ended, before it removes the old one. After a crash between the two,
//! both exist; that is not damage either.

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::io::Errno;

use crate::Error;

const BLOCK: usize = 32 << 10;
const HEADER: usize = 7;
/// Record types full, first, middle, last.
const TYPES: std::ops::RangeInclusive<u8> = 1..=4;
const FULL: u8 = 1;
/// The types that start a batch: full and first.
const BEGINNINGS: std::ops::RangeInclusive<u8> = 1..=2;
/// A batch starts with its sequence number (8) and the number of its entries (4).
const BATCH_HEADER: usize = 12;

/// Maximum unsynced data over zeros, in bytes; `UNSYNCED_BYTES_MAX` of `log_ahead.cc`.
const UNSYNCED_BYTES_MAX: usize = 256 << 10;
/// Size of a disk's atomic write, in bytes.
const SECTOR: usize = 512;

/// The result of reading a record.
enum Step {
    Record(usize),
    /// The end of a block, too short for a record.
    Padding(usize),
    Bad,
    End,
}

fn unmask(crc: u32) -> u32 {
    crc.wrapping_sub(0xa282_ead8).rotate_left(15)
}

fn step(log: &[u8], pos: usize) -> Step {
    if pos >= log.len() {
        return Step::End;
    }
    let left = BLOCK - pos % BLOCK;
    if left < HEADER {
        return Step::Padding(pos + left);
    }
    let Some(header) = log.get(pos..pos + HEADER) else {
        return Step::Bad;
    };
    let crc = u32::from_le_bytes([header[0], header[1], header[2], header[3]]);
    let len = usize::from(u16::from_le_bytes([header[4], header[5]]));
    let kind = header[6];
    // Zeros: preallocated and never written when nothing follows, a hole otherwise.
    if kind == 0 && len == 0 {
        return Step::Bad;
    }
    let Some(payload) = log.get(pos + HEADER..pos + HEADER + len) else {
        return Step::Bad;
    };
    if HEADER + len > left {
        return Step::Bad;
    }
    if crc32c::crc32c_append(crc32c::crc32c(&[kind]), payload) != unmask(crc) {
        return Step::Bad;
    }
    if TYPES.contains(&kind) {
        Step::Record(pos + HEADER + len)
    } else {
        // An unknown but intact type.
        Step::Padding(pos + HEADER + len)
    }
}

/// Returns whether the record at `pos`, which ends at `next`, is a batch without entries.
fn is_empty_batch(log: &[u8], pos: usize, next: usize) -> bool {
    let payload = &log[pos + HEADER..next];
    log[pos + HEADER - 1] == FULL && payload.len() == BATCH_HEADER && payload[8..] == [0; 4]
}

/// Returns the sequence number of a batch that starts here, and that of the batch after it.
fn batch_at(log: &[u8], pos: usize) -> Option<(u64, u64)> {
    let Step::Record(next) = step(log, pos) else {
        return None;
    };
    if !BEGINNINGS.contains(&log[pos + HEADER - 1]) {
        return None;
    }
    let header = log[pos + HEADER..next].first_chunk::<BATCH_HEADER>()?;
    let (sequence, entries) = header.split_at(8);
    let sequence = u64::from_le_bytes(sequence.try_into().ok()?);
    let entries = u32::from_le_bytes(entries.try_into().ok()?);
    Some((sequence, sequence.checked_add(u64::from(entries))?))
}

/// The first bad record of a log.
struct Bad {
    offset: usize,
    /// Number of readable records after it.
    later_records: u64,
    /// Neither the lost data nor what follows it was ever synced.
    is_torn: bool,
    /// Not a record: zeros up to the end of the log. The sequence number of the next batch.
    next_sequence: Option<u64>,
}

fn scan(log: &[u8]) -> Option<Bad> {
    let mut pos = 0;
    let mut next_sequence = None;
    let offset = loop {
        match step(log, pos) {
            Step::Record(next) => {
                next_sequence = batch_at(log, pos).map(|(_, next)| next).or(next_sequence);
                pos = next;
            }
            Step::Padding(next) => pos = next,
            Step::Bad => break pos,
            Step::End => return None,
        }
    };
    let later = records_from(log, offset + 1);
    let is_only_zeros = log[offset..].iter().all(|&b| b == 0);
    Some(Bad {
        offset,
        later_records: later.records,
        is_torn: later.end - offset <= UNSYNCED_BYTES_MAX
            && has_unwritten_sector(&log[..later.start], offset),
        next_sequence: next_sequence.filter(|_| is_only_zeros),
    })
}

/// Returns whether a sector of the bad record at `offset` was never written; `log` is cut off
/// before the next record. The record's own length may be what is damaged. Where it starts in a
/// partly written sector, the rest of that sector is zeros; a few zeros may be data, and do not
/// count.
fn has_unwritten_sector(log: &[u8], offset: usize) -> bool {
    let is_zeros = |from: usize, to: usize| log[from..to].iter().all(|&b| b == 0);
    let first_end = (offset / SECTOR + 1) * SECTOR;
    if first_end <= log.len() && first_end - offset >= HEADER && is_zeros(offset, first_end) {
        return true;
    }
    (first_end..)
        .step_by(SECTOR)
        .take_while(|sector| sector + SECTOR <= log.len())
        .any(|sector| is_zeros(sector, sector + SECTOR))
}

/// The readable data after a bad record.
struct DataAfterDamage {
    /// Number of non-empty records.
    records: u64,
    /// Start of the first of them; the log's end without one.
    start: usize,
    /// End of the last of them.
    end: usize,
}

/// Returns what can be read from `pos` on, past what cannot: the length of a bad record cannot be
/// trusted, so the search continues at every offset of the block of `pos`, then from the starts of
/// the next blocks.
fn records_from(log: &[u8], mut pos: usize) -> DataAfterDamage {
    let mut later = DataAfterDamage {
        records: 0,
        start: log.len(),
        end: pos,
    };
    let block_end = (pos.saturating_sub(1) / BLOCK + 1) * BLOCK;
    while pos < log.len() {
        match step(log, pos) {
            Step::Record(next) => {
                if !is_empty_batch(log, pos, next) {
                    later.records += 1;
                    later.start = later.start.min(pos);
                    later.end = next;
                }
                pos = next;
            }
            Step::Padding(next) if next > pos => pos = next,
            Step::Bad if pos < block_end => pos += 1,
            Step::Bad => pos = (pos / BLOCK + 1) * BLOCK,
            Step::Padding(_) | Step::End => break,
        }
    }
    later
}

/// An end of a log that was never synced, whose later parts were written and earlier ones not.
pub struct TornEnd {
    path: PathBuf,
    offset: u64,
}

/// Returns the logs of a directory, oldest first.
fn logs_of(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten();
    let mut logs: Vec<_> = entries
        .filter_map(|e| e.ok())
        .map(|e| e.path())
        .filter(|p| p.extension().is_some_and(|x| x == "log"))
        .collect();
    // By number: six digits, or more.
    logs.sort_by_key(|path| (path.as_os_str().len(), path.clone()));
    logs
}

/// Refuses a directory whose log is damaged before its end, and finds an end to be cut off. Changes
/// nothing.
pub fn check(dir: &Path) -> Result<Option<TornEnd>, Error> {
    let mut first: Option<(PathBuf, Bad)> = None;
    // Everything in a later log comes after the bad record.
    let mut in_later_logs = 0;
    for path in logs_of(dir) {
        let log = std::fs::read(&path).map_err(|e| unusable(&path, &e))?;
        if let Some((_, bad)) = &first {
            let begins_with = batch_at(&log, 0).map(|(sequence, _)| sequence);
            let goes_on = in_later_logs == 0 && begins_with.is_some();
            if !goes_on || bad.next_sequence != begins_with {
                in_later_logs += records_from(&log, 0).records;
                continue;
            }
            // Nothing is missing between the two.
            first = None;
        }
        if let Some(bad) = scan(&log) {
            first = Some((path, bad));
        }
    }
    let Some((path, bad)) = first else {
        return Ok(None);
    };
    let offset = bad.offset as u64;
    match bad.later_records + in_later_logs {
        0 => Ok(None),
        _ if in_later_logs == 0 && bad.is_torn => Ok(Some(TornEnd { path, offset })),
        later_records => Err(Error::DamagedLog {
            path,
            offset,
            later_records,
        }),
    }
}

/// Checks a directory as [`check`] does, and cuts off an end that was never synced: the engine
/// would read on past it.
///
/// With `accept_damage` a damaged log is cut off at the damage, and the logs after it are moved
/// aside, with a full copy of the damaged one, as `NUMBER.log.damaged`: the engine would read on
/// past zeros, and skip what is in the middle. Returns them, in case it does not open then.
///
/// # Errors
/// [`Error::DamagedLog`]; [`Error::InUse`] when another process has the directory open;
/// [`Error::Directory`].
pub fn check_and_cut(dir: &Path, accept_damage: bool) -> Result<SetAsideLogs, Error> {
    if logs_of(dir).is_empty() {
        return Ok(SetAsideLogs::default());
    }
    // A server that has it open writes to the log while it is read. The engine locks the same file.
    let _lock = lock(dir)?;
    match check(dir) {
        Ok(None) => Ok(SetAsideLogs::default()),
        Ok(Some(TornEnd { path, offset })) => {
            tracing::warn!(path = %path.display(), offset, "an incomplete record at the log's end is cut off; the machine stopped during its write");
            cut(&path, offset).map_err(|e| unusable(&path, &e))?;
            Ok(SetAsideLogs::default())
        }
        Err(Error::DamagedLog { path, offset, .. }) if accept_damage => {
            tracing::warn!(path = %path.display(), offset, "the log is cut off at the damage, and the rest is moved aside");
            put_aside(dir, &path, offset).map_err(|e| unusable(&path, &e))
        }
        Err(e) => Err(e),
    }
}

/// Excludes other processes until the returned file is closed.
fn lock(dir: &Path) -> Result<File, Error> {
    let path = dir.join("LOCK");
    let lock = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path);
    let lock = lock.map_err(|e| unusable(&path, &e))?;
    match fcntl_lock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(lock),
        Err(Errno::AGAIN | Errno::ACCESS) => Err(Error::InUse { path: dir.into() }),
        Err(e) => Err(unusable(&path, &e.into())),
    }
}

fn cut(log: &Path, end: u64) -> std::io::Result<()> {
    let log = OpenOptions::new().write(true).open(log)?;
    log.set_len(end)?;
    log.sync_all()
}

/// Logs that were moved aside, unchanged.
#[derive(Debug, Default)]
pub struct SetAsideLogs(Vec<PathBuf>);

impl SetAsideLogs {
    fn place(log: &Path) -> PathBuf {
        log.with_extension("log.damaged")
    }

    /// Moves them back.
    pub fn undo(self) {
        for log in self.0.iter().rev() {
            if let Err(error) = std::fs::rename(SetAsideLogs::place(log), log) {
                tracing::error!(%error, "{} could not be removed", log.display());
            }
        }
    }
}

fn put_aside(dir: &Path, damaged: &Path, offset: u64) -> std::io::Result<SetAsideLogs> {
    let mut aside = SetAsideLogs::default();
    // The last first: after a crash in between, the log is as damaged as before.
    for log in logs_of(dir).into_iter().rev() {
        let place = SetAsideLogs::place(&log);
        if log == damaged {
            std::fs::copy(&log, &place)?;
            File::open(&place)?.sync_all()?;
            aside.0.push(log);
            break;
        }
        std::fs::rename(&log, place)?;
        aside.0.push(log);
    }
    File::open(dir)?.sync_all()?;
    // The remainder of a header tells the engine that the log does not end here.
    cut(damaged, offset + HEADER as u64 / 2)?;
    Ok(aside)
}

fn unusable(path: &Path, error: &std::io::Error) -> Error {
    Error::Directory {
        path: path.into(),
        reason: error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mask(crc: u32) -> u32 {
        crc.rotate_right(15).wrapping_add(0xa282_ead8)
    }

    fn record(payload: &[u8]) -> Vec<u8> {
        let crc = mask(crc32c::crc32c_append(crc32c::crc32c(&[1]), payload));
        let mut r = crc.to_le_bytes().to_vec();
        r.extend_from_slice(&(payload.len() as u16).to_le_bytes());
        r.push(1);
        r.extend_from_slice(payload);
        r
    }

    #[test]
    fn an_intact_log_is_accepted() {
        let log = [record(b"one"), record(b"two")].concat();
        assert!(scan(&log).is_none());
    }

    #[test]
    fn a_torn_tail_is_not_damage() {
        let log = [record(b"one"), record(b"two, torn")].concat();
        let bad = scan(&log[..log.len() - 3]).unwrap();
        assert_eq!(bad.later_records, 0);
    }

    #[test]
    fn a_flipped_byte_before_readable_records_is_damage() {
        let mut log = [record(b"one"), record(b"two"), record(b"three")].concat();
        let at = record(b"one").len() + HEADER;
        log[at] ^= 1;
        let bad = scan(&log).unwrap();
        assert_eq!(bad.offset, record(b"one").len());
        assert_eq!(bad.later_records, 1);
        assert!(!bad.is_torn);
    }

    fn batch(entries: u32) -> Vec<u8> {
        let mut payload = 7_u64.to_le_bytes().to_vec();
        payload.extend_from_slice(&entries.to_le_bytes());
        payload.extend(vec![b'x'; 3 * entries as usize]);
        record(&payload)
    }

    #[test]
    fn an_empty_batch_in_a_log_after_a_torn_one_is_no_damage_and_others_are() {
        let torn = [batch(2), batch(3)].concat();
        let torn = &torn[..torn.len() - 5];
        let check_with = |later: &[Vec<u8>]| {
            let dir = tempfile::tempdir().unwrap();
            std::fs::write(dir.path().join("000008.log"), torn).unwrap();
            for (n, log) in later.iter().enumerate() {
                std::fs::write(dir.path().join(format!("{:06}.log", 12 + n)), log).unwrap();
            }
            check_and_cut(dir.path(), false).map(drop)
        };
        assert!(check_with(&[]).is_ok());
        assert!(check_with(&[batch(0)]).is_ok());
        assert!(check_with(&[batch(0), batch(0), vec![]]).is_ok());
        let refused = |later: &[Vec<u8>]| match check_with(later) {
            Err(Error::DamagedLog { later_records, .. }) => later_records,
            other => panic!("{other:?}"),
        };
        assert_eq!(refused(&[[batch(0), batch(1)].concat()]), 1);
        assert_eq!(refused(&[batch(0), [batch(1), batch(1)].concat()]), 2);
        let begins_badly = [vec![9; 20], batch(1)].concat();
        assert_eq!(refused(&[begins_badly]), 1);
    }

    #[test]
    fn zeros_at_the_end_are_no_damage_and_zeros_before_records_are() {
        let log = [record(b"one"), vec![0; 100]].concat();
        assert_eq!(scan(&log).unwrap().later_records, 0);
        let hole = [record(b"one"), vec![0; 100], record(b"three")].concat();
        let bad = scan(&hole).unwrap();
        assert_eq!(bad.later_records, 1);
        assert!(!bad.is_torn);
    }

    #[test]
    fn a_damaged_length_before_readable_records_is_damage() {
        let mut log = [record(b"one"), record(b"two"), record(b"three")].concat();
        let at = record(b"one").len() + 4;
        log[at] ^= 0xff;
        let bad = scan(&log).unwrap();
        assert!(bad.later_records >= 1 && !bad.is_torn);
    }

    /// Returns records written over zeros, and the end of the last synced one.
    fn written_over_zeros(lens: &[usize], synced: usize) -> (Vec<u8>, usize) {
        let mut log = Vec::new();
        let mut end_of_synced = 0;
        for (n, &len) in lens.iter().enumerate() {
            let left = BLOCK - log.len() % BLOCK;
            // The rest of the block is too short for a header.
            if left < HEADER {
                log.resize(log.len() + left, 0);
            } else if left < HEADER + len {
                log.extend(record(&vec![b'#'; left - HEADER]));
            }
            log.extend(record(&vec![b'a' + (n % 26) as u8; len]));
            if n < synced {
                end_of_synced = log.len();
            }
        }
        log.resize(log.len().next_multiple_of(BLOCK) + 2 * BLOCK, 0);
        (log, end_of_synced)
    }

    fn checked(log: &[u8]) -> (Result<(), Error>, Vec<u8>) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("000007.log");
        std::fs::write(&path, log).unwrap();
        (
            check_and_cut(dir.path(), false).map(drop),
            std::fs::read(&path).unwrap(),
        )
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig::with_cases(200))]

        #[test]
        fn what_a_loss_of_power_leaves_of_an_unsynced_end_is_cut_off(
            lens in proptest::collection::vec(1_usize..3000, 2..60),
            synced in 0_usize..30,
            lost in proptest::collection::vec(proptest::bool::ANY, 400),
        ) {
            let synced = synced.min(lens.len() - 1);
            let (mut log, end) = written_over_zeros(&lens, synced);
            // Unwritten sectors have the contents of the last sync.
            for (n, (bytes, lost)) in log.chunks_mut(SECTOR).zip(lost.iter().cycle()).enumerate() {
                let from = end.saturating_sub(n * SECTOR).min(bytes.len());
                if *lost {
                    bytes[from..].fill(0);
                }
            }
            let (result, left) = checked(&log);
            // A record that started within a header's length of a sector's end may be taken for
            // damaged: the safe side.
            let near_end = |at: usize| SECTOR - at % SECTOR < HEADER;
            match result {
                Ok(()) => {
                    proptest::prop_assert!(left.len() >= end);
                    proptest::prop_assert_eq!(&left[..end], &log[..end]);
                    let bad = scan(&left);
                    proptest::prop_assert!(bad.is_none_or(|bad| bad.later_records == 0 && bad.offset >= end));
                }
                Err(Error::DamagedLog { offset, .. }) => {
                    let header = offset as usize..offset as usize + HEADER;
                    proptest::prop_assert!(near_end(header.start), "{header:?}");
                }
                Err(e) => panic!("{e}"),
            }
        }

        #[test]
        fn a_flipped_bit_before_readable_records_is_damage_over_zeros_too(
            lens in proptest::collection::vec(1_usize..3000, 3..60),
            at in proptest::num::usize::ANY,
            bit in 0_u8..8,
        ) {
            let (mut log, end) = written_over_zeros(&lens, lens.len() - 1);
            let at = at % end;
            let is_of_a_record = {
                let mut pos = 0;
                loop {
                    match step(&log, pos) {
                        Step::Record(next) if at < next => break at >= pos,
                        Step::Record(next) | Step::Padding(next) if next <= at => pos = next,
                        _ => break false,
                    }
                }
            };
            proptest::prop_assume!(is_of_a_record);
            log[at] ^= 1 << bit;
            let (result, left) = checked(&log);
            let is_refused = matches!(result, Err(Error::DamagedLog { .. }));
            proptest::prop_assert!(is_refused);
            proptest::prop_assert_eq!(left, log);
        }
    }

    /// Returns a batch of `entries` that starts with `sequence`.
    fn numbered(sequence: u64, entries: u32) -> Vec<u8> {
        let mut payload = sequence.to_le_bytes().to_vec();
        payload.extend_from_slice(&entries.to_le_bytes());
        payload.extend(vec![b'x'; 3 * entries as usize]);
        record(&payload)
    }

    fn directory_of(logs: &[Vec<u8>]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (n, log) in logs.iter().enumerate() {
            std::fs::write(dir.path().join(format!("{:06}.log", 8 + n)), log).unwrap();
        }
        dir
    }

    #[test]
    fn zeros_at_the_end_of_a_log_are_no_damage_when_the_next_goes_on_from_it() {
        let ends_in_zeros = |sequence| [numbered(sequence, 3), vec![0; 5000]].concat();
        let checked = |logs: &[Vec<u8>]| check_and_cut(directory_of(logs).path(), false).map(drop);
        let refused = |logs: &[Vec<u8>]| matches!(checked(logs), Err(Error::DamagedLog { .. }));
        checked(&[ends_in_zeros(7), numbered(10, 2)]).unwrap();
        checked(&[ends_in_zeros(7), ends_in_zeros(10), ends_in_zeros(13)]).unwrap();
        checked(&[ends_in_zeros(7), numbered(10, 0), vec![0; 600]]).unwrap();
        // A batch is missing between them, or is there twice.
        assert!(refused(&[ends_in_zeros(7), numbered(11, 2)]));
        assert!(refused(&[ends_in_zeros(7), numbered(9, 2)]));
        assert!(refused(&[
            ends_in_zeros(7),
            numbered(11, 1),
            numbered(10, 1)
        ]));
        // Not only zeros: something unreadable.
        let broken = [numbered(7, 3), vec![0; 5000], vec![9; 50]].concat();
        assert!(refused(&[broken, numbered(10, 2)]));
    }

    #[test]
    fn a_damaged_log_that_is_accepted_ends_at_the_damage_and_what_followed_is_put_aside() {
        let whole = [numbered(7, 3), numbered(10, 40), numbered(50, 1)].concat();
        let offset = numbered(7, 3).len();
        let hole = [&whole[..offset], &vec![0; 3 * SECTOR][..], &numbered(50, 1)].concat();
        let dir = directory_of(&[numbered(1, 6), hole.clone(), numbered(51, 2)]);
        let read = |name: &str| std::fs::read(dir.path().join(name)).unwrap();
        let aside = check_and_cut(dir.path(), true).unwrap();
        assert_eq!(read("000008.log"), numbered(1, 6));
        assert_eq!(read("000009.log"), hole[..offset + 3]);
        assert_eq!(read("000009.log.damaged"), hole);
        assert_eq!(read("000010.log.damaged"), numbered(51, 2));
        assert!(!dir.path().join("000010.log").exists());
        check_and_cut(dir.path(), false).unwrap();
        aside.undo();
        assert_eq!(read("000009.log"), hole);
        assert_eq!(read("000010.log"), numbered(51, 2));
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig::with_cases(300))]

        /// The search for the next record must not rely on the length.
        #[test]
        fn a_wrong_length_or_header_before_readable_records_is_damage_over_zeros_too(
            lens in proptest::collection::vec(1_usize..3000, 3..60),
            record in proptest::num::usize::ANY,
            length in proptest::num::u16::ANY,
            is_garbage in proptest::bool::ANY,
        ) {
            let (mut log, end) = written_over_zeros(&lens, lens.len() - 1);
            let mut records = Vec::new();
            let mut pos = 0;
            while let Step::Record(next) | Step::Padding(next) = step(&log, pos) {
                records.push(pos);
                pos = next;
            }
            records.retain(|&pos| pos < end && matches!(step(&log, pos), Step::Record(_)));
            let at = records[record % records.len()];
            if is_garbage {
                log[at..(at + HEADER).min(end)].fill(0xa5);
            } else {
                proptest::prop_assume!(log[at + 4..at + 6] != length.to_le_bytes());
                log[at + 4..at + 6].copy_from_slice(&length.to_le_bytes());
            }
            let (result, left) = checked(&log);
            let is_refused = matches!(result, Err(Error::DamagedLog { .. }));
            proptest::prop_assert!(is_refused);
            proptest::prop_assert_eq!(left, log);
        }
    }

    #[test]
    fn zeros_far_before_readable_records_are_damage() {
        let (mut log, _) = written_over_zeros(&[2000; 300], 300);
        let hole = 10 * BLOCK..10 * BLOCK + 2 * SECTOR;
        log[hole].fill(0);
        let (result, left) = checked(&log);
        assert!(matches!(result, Err(Error::DamagedLog { .. })));
        assert_eq!(left, log);
    }
}
