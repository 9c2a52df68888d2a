//! Giving room on disk back: what was dropped is rewritten without its rows when enough of it has gathered, or when nothing
//! else is to be done.
//!
//! Rows of a dropped shard are deleted at once, and its number is a *husk* from then on: until the files that hold what was
//! deleted are rewritten, the catalogue lists it as dropped, so that a crash in between forgets nothing. What is in a husk's
//! ranges of the files is garbage, all of it, since no number is used again: so the engine's own estimate says how much there is.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rocksdb::WriteBatch;

use crate::Error;
use crate::engine::{Engine, KeyRange};
use crate::keys::{self, ShardNumber, meta};
use crate::keyspace::Keyspace;

/// While there are writes, this part of everything, and so many bytes, are worth a rewrite.
const BUSY: Worth = Worth {
    of_live: 8,
    bytes: 32 << 20,
};
/// The same while there are none.
const QUIET: Worth = Worth {
    of_live: 20,
    bytes: 256 << 10,
};
/// More husks than this are worth it, however little is in them.
const HUSKS_MAX: usize = 50_000;
/// So many bytes are worth it at any rate: a disk that is full waits for them.
const ALWAYS_BYTES: u64 = 512 << 20;
/// While there are writes, it is weighed this often at most: each husk is looked up in the engine's files.
const WEIGH_EVERY: Duration = Duration::from_secs(30);
/// A keyspace with less garbage than this is left alone.
const GARBAGE_BYTES_MIN: u64 = 32 << 10;
/// Range deletions slow readers until they are compacted away: that is done soon, but for this part of the time at most.
const RANGED_PART: u32 = 20;
/// While there are no writes, a log that is longer than this, and than a quarter of everything, is ended.
const LOG_BYTES_MAX: u64 = 4 << 20;

struct Worth {
    of_live: u64,
    bytes: u64,
}

/// What was dropped and still takes room.
#[derive(Default)]
pub(crate) struct Husks {
    numbers: Mutex<BTreeSet<ShardNumber>>,
    /// Bytes of their attachments.
    contents_bytes: AtomicU64,
    /// Some were dropped before the store was opened: how much their attachments were is not known.
    unsure: AtomicBool,
    weighed: Mutex<Option<Weighed>>,
    ranged: Mutex<Ranged>,
    /// Bytes that are given back now, and how many of them have been.
    at_work: (AtomicU64, AtomicU64),
}

/// Rows that were deleted by range since the last compaction of such.
#[derive(Default)]
struct Ranged {
    of: Vec<(Keyspace, ShardNumber)>,
    /// They stay until then.
    until: Option<Instant>,
}

/// When husks were found not to be worth it.
#[derive(Clone, Copy)]
struct Weighed {
    at: Instant,
    quiet: bool,
    /// What had been written to the store, and how many husks there were.
    written_bytes: u64,
    husks: usize,
}

impl Husks {
    /// `unsure`: some were dropped before.
    pub fn new(unsure: bool) -> Husks {
        Husks {
            unsure: AtomicBool::new(unsure),
            ..Husks::default()
        }
    }

    /// A dropped shard whose rows are deleted. `contents_bytes`: of attachments among them.
    pub fn add(&self, number: ShardNumber, contents_bytes: u64) {
        self.numbers.lock().insert(number);
        self.contents_bytes.fetch_add(contents_bytes, Relaxed);
    }

    /// A shard's rows of a keyspace were deleted by range.
    pub fn add_ranged(&self, k: Keyspace, number: ShardNumber) {
        self.ranged.lock().of.push((k, number));
    }

    /// Compacts what was deleted by range. Blocking; meant for a background thread.
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

    /// While room is given back: how many bytes have been, and of how many.
    pub fn progress(&self) -> Option<(u64, u64)> {
        let (total, done) = &self.at_work;
        let total = total.load(Relaxed);
        (total > 0).then(|| (done.load(Relaxed).min(total), total))
    }

    /// Ranges of keys that hold nothing but what was dropped.
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

    /// Gives back the room that husks take, if that is worth it; answers about how many bytes that was. Blocking; meant for a
    /// background thread. `quiet`: nobody writes.
    pub fn reclaim(&self, engine: &Engine, quiet: bool) -> Result<u64, Error> {
        let numbers = self.numbers.lock().clone();
        if numbers.is_empty() || self.was_weighed(engine, quiet, numbers.len()) {
            return Ok(0);
        }
        let contents_bytes = self.contents_bytes.load(Relaxed);
        if quiet {
            // What is in memory only is not in the engine's estimates.
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
            *self.weighed.lock() = Some(Weighed {
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

    /// Whether it is known that they are not worth it.
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

/// Ends the log when it has become long for what there is, by writing to files what is in memory. For when nobody writes.
pub(crate) fn shorten_log(engine: &Engine) -> Result<(), Error> {
    let all: u64 = engine.keyspace_bytes().iter().map(|(_, n)| n).sum();
    if engine.log_bytes() > LOG_BYTES_MAX.max(all / 4) {
        engine.renew_log()?;
    }
    Ok(())
}
