//! Finds damage in the middle of the write-ahead log before the engine opens it.
//!
//! Point-in-time recovery stops silently at the first bad record. A bad record at the very end is what a crash
//! leaves and harmless: it was never acknowledged. A bad record with readable ones after it is damage, and must be
//! said. Format: RocksDB wiki, "Write Ahead Log File Format": blocks of 32 KiB holding records of
//! `crc32c (4, masked) | length (2) | type (1) | payload`.
//!
//! Having recovered a log with a bad end, the engine begins a new one with an empty batch, which tells where the old one
//! ended, before it removes the old one. After a crash between the two, both are there; that is no damage either.

use std::path::Path;

use crate::Error;

const BLOCK: usize = 32 << 10;
const HEADER: usize = 7;
/// Record types full, first, middle, last.
const TYPES: std::ops::RangeInclusive<u8> = 1..=4;
const FULL: u8 = 1;
/// A batch begins with its sequence number (8) and the number of its entries (4).
const BATCH_HEADER: usize = 12;

/// What reading one record at a position gave.
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
    // Zeros: space set aside and never written when nothing follows, a hole when something does.
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
        // A kind this reader does not know, but intact.
        Step::Padding(pos + HEADER + len)
    }
}

/// Whether the record at `pos`, which ends at `next`, is a batch without entries.
fn is_empty_batch(log: &[u8], pos: usize, next: usize) -> bool {
    let payload = &log[pos + HEADER..next];
    log[pos + HEADER - 1] == FULL && payload.len() == BATCH_HEADER && payload[8..] == [0; 4]
}

/// Offset of the first bad record of a log, and the readable records found after it.
fn scan(log: &[u8]) -> Option<(usize, u64)> {
    let mut pos = 0;
    let bad = loop {
        match step(log, pos) {
            Step::Record(next) | Step::Padding(next) => pos = next,
            Step::Bad => break pos,
            Step::End => return None,
        }
    };
    Some((bad, records_from(log, bad + 1)))
}

/// Readable records with something in them from `pos` on, over what cannot be read: the length of a bad record cannot be
/// trusted, so the search goes on at every offset of the block of `pos`, then from the beginnings of the next blocks.
fn records_from(log: &[u8], mut pos: usize) -> u64 {
    let mut records = 0;
    let block_end = (pos.saturating_sub(1) / BLOCK + 1) * BLOCK;
    while pos < log.len() {
        match step(log, pos) {
            Step::Record(next) => {
                records += u64::from(!is_empty_batch(log, pos, next));
                pos = next;
            }
            Step::Padding(next) if next > pos => pos = next,
            Step::Bad if pos < block_end => pos += 1,
            Step::Bad => pos = (pos / BLOCK + 1) * BLOCK,
            Step::Padding(_) | Step::End => break,
        }
    }
    records
}

/// Refuses a directory whose log is damaged before its end.
pub fn check(dir: &Path) -> Result<(), Error> {
    let Ok(entries) = std::fs::read_dir(dir) else {
        return Ok(());
    };
    let mut logs: Vec<_> = entries
        .filter_map(|e| e.ok())
        .map(|e| e.path())
        .filter(|p| p.extension().is_some_and(|x| x == "log"))
        .collect();
    // By number: six digits, or more.
    logs.sort_by_key(|path| (path.as_os_str().len(), path.clone()));
    let mut damaged: Option<(std::path::PathBuf, usize, u64)> = None;
    for path in logs {
        let log = std::fs::read(&path).map_err(|e| Error::Directory {
            path: path.clone(),
            reason: e.to_string(),
        })?;
        if let Some((_, _, later)) = &mut damaged {
            // Everything in a later log comes after the damage.
            *later += records_from(&log, 0);
        } else if let Some((offset, later)) = scan(&log) {
            damaged = Some((path, offset, later));
        }
    }
    match damaged {
        Some((path, offset, later_records)) if later_records > 0 => Err(Error::DamagedLog {
            path,
            offset: offset as u64,
            later_records,
        }),
        _ => Ok(()),
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
        let (_, later) = scan(&log[..log.len() - 3]).unwrap();
        assert_eq!(later, 0);
    }

    #[test]
    fn a_flipped_byte_before_readable_records_is_damage() {
        let mut log = [record(b"one"), record(b"two"), record(b"three")].concat();
        let at = record(b"one").len() + HEADER;
        log[at] ^= 1;
        let (offset, later) = scan(&log).unwrap();
        assert_eq!(offset, record(b"one").len());
        assert_eq!(later, 1);
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
            check(dir.path())
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
        assert_eq!(scan(&log).unwrap().1, 0);
        let hole = [record(b"one"), vec![0; 100], record(b"three")].concat();
        assert_eq!(scan(&hole).unwrap().1, 1);
    }

    #[test]
    fn a_damaged_length_before_readable_records_is_damage() {
        let mut log = [record(b"one"), record(b"two"), record(b"three")].concat();
        let at = record(b"one").len() + 4;
        log[at] ^= 0xff;
        assert!(scan(&log).unwrap().1 >= 1);
    }
}
