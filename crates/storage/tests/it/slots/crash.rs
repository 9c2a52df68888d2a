//! After a crash, position and data are of one moment.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use storage::{SlotOutcome, SlotWrite};

use crate::slots::dump;
use crate::slots::world::{World, interactive, local, new_doc, options, position, request, write};

const SLOT: u16 = 9;
const RECORDS: u64 = 400;

/// Returns the record at an offset: new documents, an update that conflicts half of the time, and a
/// local document.
fn record(world: &World, n: u64) -> SlotWrite {
    let [a, b] = [world.shard(0), world.shard(1)];
    let long = format!(r#"{{"p":"{}"}}"#, "x".repeat(n as usize * 13 % 6000));
    let edits = vec![
        new_doc(a, &format!("doc{n}")),
        new_doc(b, &format!("half{}", n / 2)),
        interactive(b, &format!("long{n}"), None, &long, false),
        local(
            a,
            &format!("l{}", n % 10),
            (!n.is_multiple_of(7)).then_some(n),
            "{}",
        ),
    ];
    let mut write = write(SLOT, n, 1, vec![request(1, n, edits)]);
    write.state = vec![(b"n".to_vec(), Some(n.to_be_bytes().to_vec()))];
    write
}

/// A copy of the files of a store that is open, as a crash would leave them: at a moment when the engine writes nothing of its
/// own accord, as it does to flush.
pub fn copy(from: &Path, to: PathBuf) -> PathBuf {
    loop {
        let before = files(from);
        drop(std::fs::remove_dir_all(&to));
        std::fs::create_dir_all(&to).unwrap();
        let copied = before.keys().all(|name| {
            let copied = std::fs::copy(from.join(name), to.join(name));
            copied.is_ok()
        });
        if copied && files(from) == before {
            return to;
        }
    }
}

/// Names and lengths.
fn files(directory: &Path) -> BTreeMap<OsString, u64> {
    let entries = std::fs::read_dir(directory).unwrap().map(Result::unwrap);
    entries
        .filter(|entry| entry.file_name() != "LOCK")
        // Another file may have been removed meanwhile.
        .filter_map(|entry| Some((entry.file_name(), entry.metadata().ok()?)))
        .filter(|(_, metadata)| metadata.is_file())
        .map(|(name, metadata)| (name, metadata.len()))
        .collect()
}

/// Digests of both shards, and the outcome, after each record.
type Known = Vec<([Option<u128>; 2], SlotOutcome)>;

fn digests(world: &World) -> [Option<u128>; 2] {
    [0, 1].map(|i| world.shard(i).digest())
}

/// Checks that the copy is at some record, with its data, and continues from there.
fn check(path: &Path, known: &Known) -> u64 {
    let world = World::open(path, &[1, 2], &options());
    let at = world.store().slot(SLOT).unwrap();
    let records = at.map_or(0, |p| p.next_offset);
    assert_eq!(at, position(SLOT, records));
    let Some(last) = records.checked_sub(1) else {
        assert_eq!(digests(&world), [None; 2]);
        return 0;
    };
    assert_eq!(digests(&world), known[last as usize].0);
    for shard in world.shards() {
        dump::check(shard, &dump::shard(shard));
    }
    let n = last.to_be_bytes().to_vec();
    let state = world.store().slot_state(SLOT, b"").unwrap();
    assert_eq!(state, [(b"n".to_vec(), n)]);
    let mut again = record(&world, last);
    (again.from, again.to) = (at, at.unwrap());
    let outcomes = world.apply(again).unwrap();
    assert_eq!(outcomes, [known[last as usize].1.clone()], "a repeat");
    assert_eq!(digests(&world), known[last as usize].0);
    for n in records..(records + 5).min(RECORDS) {
        let outcomes = world.apply(record(&world, n)).unwrap();
        assert_eq!(outcomes, [known[n as usize].1.clone()]);
        assert_eq!(digests(&world), known[n as usize].0);
    }
    records
}

#[test]
fn a_crash_at_any_moment_leaves_position_and_data_that_agree() {
    let dir = tempfile::tempdir().unwrap();
    let quiet = World::new(&dir.path().join("quiet"), 0, 2);
    let mut known: Known = vec![];
    for n in 0..RECORDS {
        let outcome = quiet.apply(record(&quiet, n)).unwrap().remove(0);
        known.push((digests(&quiet), outcome));
    }
    let live = World::new(&dir.path().join("live"), 0, 2);
    let acknowledged = AtomicU64::new(0);
    let copies: Vec<(u64, PathBuf)> = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut n = 0;
            for chunk in (1..9).cycle() {
                let last = (n + chunk).min(RECORDS);
                let queued: Vec<_> = (n..last).map(|n| live.queue(record(&live, n))).collect();
                for waiting in queued {
                    waiting.blocking_recv().unwrap().unwrap();
                    acknowledged.fetch_add(1, SeqCst);
                }
                n = last;
                if n == RECORDS {
                    break;
                }
            }
        });
        let mut copies = vec![];
        for n in (0..RECORDS).step_by(RECORDS as usize / 12) {
            while acknowledged.load(SeqCst) < n && !writer.is_finished() {
                std::thread::yield_now();
            }
            let to = dir.path().join(format!("copy{n}"));
            copies.push((acknowledged.load(SeqCst), copy(&live.path, to)));
        }
        copies
    });
    assert_eq!(digests(&live), known[RECORDS as usize - 1].0);
    let mut at = 0;
    for (acknowledged, path) in copies {
        let records = check(&path, &known);
        assert!(records >= acknowledged && records >= at);
        at = records;
    }
}
