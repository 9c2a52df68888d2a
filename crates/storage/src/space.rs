//! Reclaims disk space: files are rewritten without dropped rows when there is enough garbage, or
//! when nothing else is to be done.
//!
//! Rows of a dropped shard are deleted immediately, and its number is a *husk* from then on: until
//! the files with the deleted rows are rewritten, the catalogue lists it as dropped, so that a
//! crash in between forgets nothing. Everything in a husk's ranges of the files is garbage, since
//! no number is reused: so the engine's own estimate is the amount of garbage.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rocksdb::WriteBatch;

use crate::Error;
use crate::engine::{Engine, KeyRange};
use crate::keys::{self, ShardNumber, meta};
use crate::keyspace::Keyspace;

/// While there are writes, this share of all data, and at least this many bytes, are worth a
/// rewrite.
const BUSY: Worth = Worth {
    of_live: 8,
    bytes: 32 << 20,
};
/// While there are no writes.
const QUIET: Worth = Worth {
    of_live: 20,
    bytes: 256 << 10,
};
/// More husks than this are worth a rewrite, however little they contain.
const HUSKS_MAX: usize = 50_000;
/// This many bytes are always worth a rewrite: a full disk may wait for them.
const ALWAYS_BYTES: u64 = 512 << 20;
/// Minimum interval of this check while there are writes: each husk is looked up in the engine's
/// files.
const WEIGH_EVERY: Duration = Duration::from_secs(30);
/// A keyspace with less garbage than this is left alone, in bytes.
const GARBAGE_BYTES_MIN: u64 = 32 << 10;
/// Range deletions slow down readers until they are compacted: that is done soon, but for at most
/// one in this many parts of the time.
const RANGED_PART: u32 = 20;
/// While there are no writes, a log that is longer than this, and than a quarter of all data, is
/// ended.
const LOG_BYTES_MAX: u64 = 4 << 20;

struct Worth {
    of_live: u64,
    bytes: u64,
}

/// Dropped data that still takes space.
#[derive(Default)]
pub(crate) struct DroppedData {
    numbers: Mutex<BTreeSet<ShardNumber>>,
    /// Bytes of their attachments.
    contents_bytes: AtomicU64,
    /// Some were dropped before the store was opened: the size of their attachments is unknown.
    unsure: AtomicBool,
    weighed: Mutex<Option<SizeCheck>>,
    ranged: Mutex<Ranged>,
    /// Bytes that are being reclaimed, and the number reclaimed so far.
    at_work: (AtomicU64, AtomicU64),
}

/// Rows deleted by range since such deletions were last compacted.
#[derive(Default)]
struct Ranged {
    of: Vec<(Keyspace, ShardNumber)>,
    /// They stay until then.
    until: Option<Instant>,
}

/// When husks were last found not to be worth a rewrite.
#[derive(Clone, Copy)]
struct SizeCheck {
    at: Instant,
    quiet: bool,
    /// The bytes that had been written to the store, and the number of husks.
    written_bytes: u64,
    husks: usize,
}

impl DroppedData {
    /// `unsure`: some were dropped before.
    pub fn new(unsure: bool) -> DroppedData {
        DroppedData {
            unsure: AtomicBool::new(unsure),
            ..DroppedData::default()
        }
    }

    /// Adds a dropped shard whose rows are deleted. `contents_bytes` is the size of attachments
    /// among them.
    pub fn add(&self, number: ShardNumber, contents_bytes: u64) {
        self.numbers.lock().insert(number);
        self.contents_bytes.fetch_add(contents_bytes, Relaxed);
    }

    /// Records that a shard's rows of a keyspace were deleted by range.
    pub fn add_ranged(&self, k: Keyspace, number: ShardNumber) {
        self.ranged.lock().of.push((k, number));
    }

    /// Compacts range deletions. Blocks; meant for a background thread.
    pub fn end_range_deletions(&self, engine: &Engine) {
        let of = {
            let mut ranged = self.ranged.lock();
            if ranged.until.is_some_and(|until| Instant::now() < until) {
                return;
            }
            std::mem::take(&mut ranged.of)
        };
        if of.is_empty() {
            return;
        }
        let started = Instant::now();
        for k in Keyspace::SHARDED {
            let numbers = of.iter().filter(|(of, _)| *of == k);
            let ranges = Self::ranges(&numbers.map(|(_, number)| *number).collect());
            engine.compact_ranges(k, &ranges, |_| {});
        }
        self.ranged.lock().until = Some(Instant::now() + started.elapsed() * RANGED_PART);
    }

    /// Returns the progress while space is being reclaimed: bytes done, and total.
    pub fn progress(&self) -> Option<(u64, u64)> {
        let (total, done) = &self.at_work;
        let total = total.load(Relaxed);
        (total > 0).then(|| (done.load(Relaxed).min(total), total))
    }

    /// Returns ranges of keys that contain only dropped data.
    fn ranges(numbers: &BTreeSet<ShardNumber>) -> Vec<KeyRange> {
        let mut together: Vec<(ShardNumber, ShardNumber)> = vec![];
        for &number in numbers {
            match together.last_mut() {
                Some((_, last)) if number - *last == 1 => *last = number,
                _ => together.push((number, number)),
            }
        }
        let range = |(first, last): (ShardNumber, ShardNumber)| {
            (first.to_be_bytes().to_vec(), keys::shard_end(last))
        };
        together.into_iter().map(range).collect()
    }

    /// Reclaims the space of husks, if it is worth it; returns approximately how many bytes that
    /// was. Blocks; meant for a background thread. `quiet`: nothing is being written.
    pub fn reclaim(&self, engine: &Engine, quiet: bool) -> Result<u64, Error> {
        let numbers = self.numbers.lock().clone();
        if numbers.is_empty() || self.was_weighed(engine, quiet, numbers.len()) {
            return Ok(0);
        }
        let contents_bytes = self.contents_bytes.load(Relaxed);
        if quiet {
            // The engine's estimates do not include memtables.
            engine.flush_all()?;
        }
        let ranges = Self::ranges(&numbers);
        if quiet && self.unsure.swap(false, Relaxed) {
            engine.reclaim_attachments(&ranges, quiet);
        }
        let garbage = |k| (k, engine.bytes_in(k, &ranges));
        let garbage: Vec<(Keyspace, u64)> = Keyspace::SHARDED.map(garbage).to_vec();
        let rows: u64 = garbage.iter().map(|(_, bytes)| bytes).sum();
        let all: u64 = engine.keyspace_bytes().iter().map(|(_, n)| n).sum();
        let live = all.saturating_sub(rows + contents_bytes);
        let worth = if quiet { QUIET } else { BUSY };
        let least = worth.bytes.max(live / worth.of_live).min(ALWAYS_BYTES);
        if rows + contents_bytes < least && numbers.len() < HUSKS_MAX {
            *self.weighed.lock() = Some(SizeCheck {
                at: Instant::now(),
                quiet,
                written_bytes: engine.written_bytes(),
                husks: numbers.len(),
            });
            return Ok(0);
        }
        let (total, done) = &self.at_work;
        total.store(rows + contents_bytes, Relaxed);
        let mut before = 0;
        for (k, bytes) in garbage {
            let of_range = |n: usize| bytes * n as u64 / ranges.len() as u64;
            match k {
                Keyspace::Attachments if bytes + contents_bytes > 0 => {
                    engine.reclaim_attachments(&ranges, quiet);
                    before += contents_bytes;
                }
                _ if bytes >= GARBAGE_BYTES_MIN => {
                    engine
                        .compact_ranges(k, &ranges, |n| done.store(before + of_range(n), Relaxed));
                }
                _ => {}
            }
            before += bytes;
            done.store(before, Relaxed);
        }
        total.store(0, Relaxed);
        done.store(0, Relaxed);
        if engine.is_closing() {
            // The next start finds the husks listed.
            return Ok(0);
        }
        self.forget(engine, &numbers)?;
        self.contents_bytes.fetch_sub(contents_bytes, Relaxed);
        Ok(rows + contents_bytes)
    }

    /// Returns whether they were already found not to be worth it.
    fn was_weighed(&self, engine: &Engine, quiet: bool, husks: usize) -> bool {
        let Some(last) = *self.weighed.lock() else {
            return false;
        };
        let same = last.husks == husks && last.written_bytes == engine.written_bytes();
        (same && last.quiet == quiet) || (!quiet && last.at.elapsed() < WEIGH_EVERY)
    }

    fn forget(&self, engine: &Engine, numbers: &BTreeSet<ShardNumber>) -> Result<(), Error> {
        let mut wb = WriteBatch::default();
        for &number in numbers {
            wb.delete_cf(engine.cf(Keyspace::Meta), meta::dropped(number));
        }
        engine.write(wb, false)?;
        self.numbers.lock().retain(|n| !numbers.contains(n));
        Ok(())
    }
}

/// Ends the log when it has become long relative to the data, by flushing memory. For times without
/// writes.
pub(crate) fn shorten_log(engine: &Engine) -> Result<(), Error> {
    let all: u64 = engine.keyspace_bytes().iter().map(|(_, n)| n).sum();
    if engine.log_bytes() > LOG_BYTES_MAX.max(all / 4) {
        engine.renew_log()?;
    }
    Ok(())
}
