//! Long writes of index builds wait for flushes and compactions before writes of documents have to.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rocksdb::FlushOptions;

use super::Engine;
use crate::keyspace::Keyspace;

/// Shorter writes do not wait, in bytes.
const LONG_WRITE_BYTES: u64 = 1 << 20;
/// Full memtables of a keyspace beyond which long writes wait. The engine stops all writes, to all
/// keyspaces, at three of them.
const FULL_MEMTABLES_MAX: u64 = 1;
/// Files of a keyspace's first level beyond which long writes wait. The engine delays all writes from 20
/// files on, and stops them at 36.
const FIRST_LEVEL_FILES_MAX: u64 = 12;
/// Polling interval of a write that waits, and its time limit: a stuck disk is reported by the write.
const LOOK_EVERY: Duration = Duration::from_millis(20);
const WAIT_MAX: Duration = Duration::from_secs(60);
/// The keyspaces of indexes with as many bytes as the documents may have.
const INDEXES: [Keyspace; 2] = [Keyspace::IndexRows, Keyspace::IndexBack];

/// The unfinished work of the engine's threads.
#[derive(Clone, Copy, Debug)]
struct Backlog {
    /// Bytes in all memtables.
    memtable_bytes: u64,
    /// Those of indexes.
    index_memtable_bytes: u64,
    /// Full memtables of the index keyspace that has most of them.
    full_memtables: u64,
    /// Files of the first level of the index keyspace that has most of them.
    first_level_files: u64,
}

impl Backlog {
    /// Returns whether writes of documents need not wait after a write of this many bytes to indexes.
    fn has_room_for(self, bytes: u64, memtable_bytes_max: u64) -> bool {
        // A write that is longer than all memtables may be waits for half of them.
        let bytes = bytes.min(memtable_bytes_max / 4);
        // Of other writes' bytes it does not wait for the end: there may always be some.
        let is_roomy = self.index_memtable_bytes < LONG_WRITE_BYTES
            || self.memtable_bytes + bytes <= memtable_bytes_max / 4 * 3;
        is_roomy
            && self.full_memtables <= FULL_MEMTABLES_MAX
            && self.first_level_files <= FIRST_LEVEL_FILES_MAX
    }
}

impl Engine {
    /// Waits until a write of an index build leaves room for writes of documents, if it is long; at most a
    /// minute, and not after `stop` is set. Must not be called with a lock that readers need.
    pub fn wait_for_room(&self, bytes: u64, stop: &AtomicBool) {
        if bytes < LONG_WRITE_BYTES {
            return;
        }
        let started = Instant::now();
        let mut began = false;
        while !self.backlog().has_room_for(bytes, self.memtable_bytes_max)
            && !stop.load(Relaxed)
            && !self.is_closing()
            && !self.health.is_failing()
            && started.elapsed() < WAIT_MAX
        {
            // The engine starts flushes when something is written, which waits for this.
            if !std::mem::replace(&mut began, true) {
                self.begin_index_flushes();
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    fn backlog(&self) -> Backlog {
        let most = |property: &str| {
            let number = |&k: &Keyspace| -> Option<u64> {
                let value = self.db.property_value_cf(self.cf(k), property);
                value.ok().flatten()?.parse().ok()
            };
            INDEXES.iter().filter_map(number).max().unwrap_or(0)
        };
        Backlog {
            memtable_bytes: self.memtable_bytes(),
            index_memtable_bytes: self.memtable_bytes_of(&INDEXES),
            full_memtables: most("rocksdb.num-immutable-mem-table"),
            first_level_files: most("rocksdb.num-files-at-level0"),
        }
    }

    /// Starts to flush the memtables of indexes, unless they are small.
    fn begin_index_flushes(&self) {
        let mut options = FlushOptions::default();
        options.set_wait(false);
        for k in INDEXES {
            let cf = self.cf(k);
            let active = self
                .db
                .property_int_value_cf(cf, "rocksdb.cur-size-active-mem-table");
            if active.ok().flatten().unwrap_or(0) >= LONG_WRITE_BYTES
                && let Err(e) = self.db.flush_cf_opt(cf, &options)
            {
                tracing::warn!(error = %e, "starting a flush failed");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::StoreOptions;

    const MIB: u64 = 1 << 20;
    const NONE: Backlog = Backlog {
        memtable_bytes: 0,
        index_memtable_bytes: 0,
        full_memtables: 0,
        first_level_files: 0,
    };

    #[test]
    fn long_writes_of_indexes_leave_memtables_to_documents() {
        let of = |memtable_bytes| Backlog {
            memtable_bytes,
            index_memtable_bytes: memtable_bytes / 2,
            ..NONE
        };
        assert!(of(143 * MIB).has_room_for(MIB, 192 * MIB));
        assert!(!of(144 * MIB).has_room_for(MIB, 192 * MIB));
        // A write that is longer than all of them waits, but not without end.
        assert!(!of(97 * MIB).has_room_for(900 * MIB, 192 * MIB));
        assert!(of(96 * MIB).has_room_for(900 * MIB, 192 * MIB));
        let of_documents = Backlog {
            index_memtable_bytes: 0,
            ..of(192 * MIB)
        };
        assert!(of_documents.has_room_for(900 * MIB, 192 * MIB));
    }

    #[test]
    fn long_writes_of_indexes_wait_before_the_engine_delays_all_writes() {
        let full = |full_memtables| Backlog {
            full_memtables,
            ..NONE
        };
        let files = |first_level_files| Backlog {
            first_level_files,
            ..NONE
        };
        let has_room = |backlog: Backlog| backlog.has_room_for(MIB, 192 * MIB);
        assert!(has_room(full(1)) && !has_room(full(2)));
        assert!(has_room(files(12)) && !has_room(files(13)));
    }

    #[test]
    fn the_backlog_is_what_the_engine_reports() {
        let dir = tempfile::tempdir().unwrap();
        let engine = Engine::open(dir.path(), &StoreOptions::default()).unwrap();
        let write = |key: &str| {
            let mut writes = engine.writes();
            writes.put(Keyspace::IndexRows, key, vec![7u8; MIB as usize]);
            writes.commit(false).unwrap();
        };
        let before = engine.backlog();
        assert_eq!(before.first_level_files, 0);
        write("a");
        assert!(engine.backlog().memtable_bytes >= before.memtable_bytes + MIB);
        engine.flush(Keyspace::IndexRows).unwrap();
        let after = engine.backlog();
        assert!(after.memtable_bytes < before.memtable_bytes + MIB);
        assert_eq!((after.first_level_files, after.full_memtables), (1, 0));
    }
}
