//! Copies of slots: another store continues from them as if it had applied the log.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;
use storage::{
    Error, Install, Keyspace, Limits, Position, Shard, ShardNumber, SlotCopy, SlotImport,
    SlotNumber, Snapshot, Store,
};

use crate::slots::dump::{self, ShardDump};
use crate::slots::history::{self, Beside, SHARDS, SLOTS, number};
use crate::slots::model::Model;
use crate::slots::replay::{self, Entry};
use crate::slots::world::{World, interactive, new_doc, position, request, write};

/// Keyspaces of a shard whose rows are copied unchanged.
const COPIED: [Keyspace; 7] = [
    Keyspace::ById,
    Keyspace::BySeq,
    Keyspace::Bodies,
    Keyspace::Superseded,
    Keyspace::Local,
    Keyspace::Purges,
    Keyspace::Summary,
];

/// Frames are made and imported by any thread.
const _: fn() = || {
    fn may_move<T: Send>() {}
    may_move::<SlotCopy>();
    may_move::<SlotImport>();
};

/// Returns the names of shards, by index.
pub fn tag(place: usize) -> Vec<u8> {
    format!("shard {place}").into_bytes()
}

/// Starts a copy of a slot whose shards have these indexes.
pub fn begin(
    world: &World,
    snapshot: &Arc<Snapshot>,
    slot: SlotNumber,
    places: std::ops::Range<usize>,
) -> Result<SlotCopy, Error> {
    let shards = places.map(|i| (tag(i), world.shard(i).number)).collect();
    SlotCopy::of(snapshot.clone(), slot, shards)
}

/// Returns all frames of a slot's current state.
pub fn frames(world: &World, slot: SlotNumber, places: std::ops::Range<usize>) -> Vec<Vec<u8>> {
    let snapshot = Arc::new(world.store().snapshot());
    let mut copy = begin(world, &snapshot, slot, places).unwrap();
    std::iter::from_fn(|| copy.next_frame().unwrap()).collect()
}

/// Returns an import that has received these frames.
pub fn taken(world: &World, slot: SlotNumber, frames: &[Vec<u8>]) -> SlotImport {
    let mut import = SlotImport::new(world.store().clone(), slot);
    for frame in frames {
        import.frame(frame).unwrap();
    }
    import
}

/// Installs a copy over the store's state of the slot.
pub fn install(world: &mut World, slot: SlotNumber, import: SlotImport, install: Install) {
    assert!(import.is_complete() && import.slot_is_known());
    let shards = import.shards().map(|(tag, number)| {
        let place = std::str::from_utf8(tag).unwrap();
        let place = place.strip_prefix("shard ").unwrap().parse().unwrap();
        (place, number)
    });
    let shards: Vec<(usize, ShardNumber)> = shards.collect();
    let replaced: Vec<_> = shards
        .iter()
        .map(|(i, _)| world.shard(*i).clone())
        .collect();
    let old: Vec<_> = replaced.iter().map(|s| s.number).collect();
    let put = Store::put_database("copied", format!("{shards:?}").into_bytes());
    let all = Install {
        from: world.store().slot(slot).unwrap(),
        puts: vec![put],
        replaced,
        ..install
    };
    import.install(all).unwrap();
    for (place, number) in shards {
        world.replace(place, number);
    }
    world.store().note_dropped(&old);
}

pub type ShardRows = Vec<(Keyspace, Vec<u8>, Vec<u8>)>;

/// Returns the rows of a shard without its number.
pub fn rows(snapshot: &Snapshot, shard: ShardNumber, keyspaces: &[Keyspace]) -> ShardRows {
    let mut rows = vec![];
    for &k in keyspaces {
        let mut it = snapshot.iter(k, shard);
        it.seek_to_first();
        while let Some((key, value)) = it.item() {
            rows.push((k, key[4..].to_vec(), value.to_vec()));
            it.next();
        }
        it.status().unwrap();
    }
    rows
}

fn of_slot(rows: BTreeMap<Vec<u8>, Vec<u8>>, slot: SlotNumber) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let of = |key: &Vec<u8>| key[1..3] == slot.to_be_bytes();
    rows.into_iter().filter(|(key, _)| of(key)).collect()
}

fn checked(shard: &Arc<Shard>) -> ShardDump {
    let dump = dump::shard(shard);
    dump::check(shard, &dump);
    dump
}

fn apply(world: &World, entries: &[Entry]) {
    for entry in entries {
        let outcomes = world.apply(entry.write(world)).unwrap();
        assert_eq!(outcomes, entry.outcomes);
    }
}

/// The state of a slot: rows, counters and totals.
type State = (
    Option<Position>,
    BTreeMap<Vec<u8>, Vec<u8>>,
    Vec<(ShardRows, ShardDump)>,
);

fn state(world: &World, slot: usize) -> State {
    let places = slot * SHARDS..(slot + 1) * SHARDS;
    let snapshot = world.store().snapshot();
    let shards = places.map(|i| {
        let shard = world.shard(i);
        (rows(&snapshot, shard.number, &COPIED), checked(shard))
    });
    let slot_rows = of_slot(dump::slot_rows(world.store()), number(slot));
    let at = world.store().slot(number(slot)).unwrap();
    (at, slot_rows, shards.collect())
}

/// Copies all slots of the source while it continues, and compares with the source at the start.
fn copy_over(source: &World, target: &mut World, meanwhile: &[Entry]) {
    let before: Vec<_> = (0..SLOTS).map(|slot| state(source, slot)).collect();
    let snapshot = Arc::new(source.store().snapshot());
    let mut meanwhile = meanwhile.iter();
    for (slot, before) in before.iter().enumerate() {
        let places = slot * SHARDS..(slot + 1) * SHARDS;
        let copy = begin(source, &snapshot, number(slot), places);
        let Some(at) = before.0 else {
            assert!(matches!(copy, Err(Error::Copy { .. })));
            continue;
        };
        let mut copy = copy.unwrap();
        assert_eq!(copy.position(), at);
        let mut import = SlotImport::new(target.store().clone(), number(slot));
        while let Some(frame) = copy.next_frame().unwrap() {
            assert!(frame.len() <= 260 << 10);
            import.frame(&frame).unwrap();
            if let Some(entry) = meanwhile.next() {
                apply(source, std::slice::from_ref(entry));
            }
        }
        assert_eq!(import.position(), Some(at));
        install(target, number(slot), import, Install::default());
        assert_eq!(state(target, slot), *before);
    }
    apply(source, meanwhile.as_slice());
}

/// Each history is applied three times.
fn config() -> ProptestConfig {
    let config = replay::config();
    ProptestConfig {
        cases: config.cases.div_ceil(2),
        ..config
    }
}

proptest! {
    #![proptest_config(config())]
    #[test]
    fn a_store_goes_on_from_a_copy_as_if_it_had_applied_the_log(
        records in prop::collection::vec(history::record(), 1..50),
        others in 1u32..300,
        cuts in [any::<prop::sample::Index>(), any::<prop::sample::Index>()],
    ) {
        let dir = tempfile::tempdir().unwrap();
        let shards = (SLOTS * SHARDS) as u32;
        let mut models = [Model::default(), Model::default()];
        let mut first = World::new(&dir.path().join("first"), 0, shards);
        let log = replay::alone(&mut first, &records, &mut models);
        let copied = cuts[0].index(log.len() + 1);
        let own = cuts[1].index(copied + 1);
        let source = World::new(&dir.path().join("source"), 7, shards);
        for (record, entry) in records[..copied].iter().zip(&log) {
            apply(&source, std::slice::from_ref(entry));
            if let Beside::Compact(shard) = record.beside[1] {
                source.compact(shard);
            }
        }
        let mut target = World::new(&dir.path().join("target"), others, shards);
        apply(&target, &log[..own]);
        copy_over(&source, &mut target, &log[copied..]);
        target.store().reap().unwrap();
        apply(&target, &log[copied..]);
        for slot in 0..SLOTS {
            let [a, b] = [&source, &target].map(|world| {
                let (at, rows, shards) = state(world, slot);
                (at, rows, shards.into_iter().map(|(_, dump)| dump).collect::<Vec<_>>())
            });
            prop_assert_eq!(a, b);
        }
        target.restart();
        target.store().reap().unwrap();
        for slot in 0..SLOTS {
            prop_assert_eq!(state(&target, slot).0, state(&source, slot).0);
        }
    }
}

#[test]
fn what_is_longer_than_a_frame_comes_in_pieces() {
    let dir = tempfile::tempdir().unwrap();
    let source = World::new(&dir.path().join("source"), 0, 1);
    let s = source.shard(0);
    for (n, length) in [100, 5_000, 262_000, 263_100, 263_168, 1 << 20, 3 << 20]
        .into_iter()
        .enumerate()
    {
        let body = format!(r#"{{"p":"{}"}}"#, "x".repeat(length));
        let edits = vec![interactive(s, &format!("doc{n}"), None, &body, false)];
        let mut write = write(1, n as u64, 1, vec![request(1, n as u64, edits)]);
        write.state = vec![(vec![n as u8], Some(vec![7; length]))];
        source.apply(write).unwrap();
    }
    let frames = frames(&source, 1, 0..1);
    assert!(frames.iter().all(|frame| frame.len() <= 260 << 10));
    assert!(frames.len() > 30 && frames.len() < 60, "{}", frames.len());
    let mut target = World::new(&dir.path().join("target"), 3, 1);
    let import = taken(&target, 1, &frames);
    install(&mut target, 1, import, Install::default());
    let all = |world: &World| {
        let shard = world.shard(0);
        let rows = rows(&world.store().snapshot(), shard.number, &COPIED);
        (rows, dump::slot_rows(world.store()), checked(shard))
    };
    assert_eq!(all(&source), all(&target));
}

fn row(key: &str, n: u8) -> (Vec<u8>, Option<Vec<u8>>) {
    (key.as_bytes().to_vec(), Some(vec![n]))
}

/// Returns frames of a store, and another store that has something of the slot, and a second slot.
fn frames_and_target(dir: &Path) -> (World, Vec<Vec<u8>>, World) {
    let source = World::new(&dir.join("source"), 0, 1);
    let theirs = request(1, 1, vec![new_doc(source.shard(0), "a")]);
    let mut theirs = write(1, 0, 5, vec![theirs]);
    theirs.state = ["cursor", "promise/1", "other", "gone"]
        .map(|k| row(k, 1))
        .into();
    source.apply(theirs).unwrap();
    let frames = frames(&source, 1, 0..1);
    let target = World::new(&dir.join("target"), 3, 2);
    let ours = request(9, 1, vec![new_doc(target.shard(0), "b")]);
    let mut ours = write(1, 0, 1, vec![ours]);
    ours.state = ["cursor", "promise/2", "stale"].map(|k| row(k, 2)).into();
    target.apply(ours).unwrap();
    let neighbours = request(9, 1, vec![new_doc(target.shard(1), "c")]);
    target.apply(write(2, 0, 1, vec![neighbours])).unwrap();
    (source, frames, target)
}

#[test]
fn what_is_a_replicas_own_stays_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let (source, frames, mut target) = frames_and_target(dir.path());
    let import = taken(&target, 1, &frames);
    assert_eq!(import.position(), position(1, 5));
    assert_eq!(import.state(b"cursor"), Some(&[1][..]));
    assert_eq!(import.state(b"promise/2"), None);
    // A promise that is made while the copy is received is kept, too.
    let mut promise = write(1, 1, 0, vec![]);
    promise.state = vec![row("promise/3", 3)];
    target.apply(promise).unwrap();
    let with = Install {
        keep: vec![b"promise/".to_vec()],
        state: vec![row("other", 4), row("new", 4), (b"gone".to_vec(), None)],
        ..Install::default()
    };
    install(&mut target, 1, import, with);
    let expected = [
        ("cursor", 1),
        ("new", 4),
        ("other", 4),
        ("promise/2", 2),
        ("promise/3", 3),
    ];
    let expected = expected.map(|(key, n)| (key.as_bytes().to_vec(), vec![n]));
    assert_eq!(target.store().slot_state(1, b"").unwrap(), expected);
    assert_eq!(target.store().slot(1).unwrap(), position(1, 5));
    assert_eq!(target.store().slot(2).unwrap(), position(2, 1));
    // The gateways' requests are those of the copy.
    let outcomes = |world: &World| {
        let rows = of_slot(dump::slot_rows(world.store()), 1);
        let rows = rows.into_iter().filter(|(key, _)| key[3] != b'r');
        rows.collect::<Vec<_>>()
    };
    assert_eq!(outcomes(&source), outcomes(&target));
}

#[test]
fn shards_that_are_replaced_are_written_to_no_more_and_go() {
    let dir = tempfile::tempdir().unwrap();
    let (_source, frames, mut target) = frames_and_target(dir.path());
    let edit = new_doc(target.shard(0), "d");
    let old = target.shard(0).number;
    let import = taken(&target, 1, &frames);
    install(&mut target, 1, import, Install::default());
    assert!(target.shard(0).record("a").unwrap().is_some());
    assert!(target.shard(0).record("b").unwrap().is_none());
    let edited = target
        .store()
        .committer
        .edit(vec![edit], Limits::default(), true);
    assert!(matches!(
        edited.blocking_recv().unwrap(),
        Err(Error::Dropped)
    ));
    assert_eq!(target.store().reap().unwrap(), 1);
    let left = rows(&target.store().snapshot(), old, &Keyspace::SHARDED);
    assert_eq!(left, []);
    let record = target.store().database("copied").unwrap().unwrap();
    let number = target.shard(0).number;
    assert_eq!(record, format!("[(0, {number})]").into_bytes());
}

#[test]
fn a_slot_without_shards_and_shards_without_rows_are_copied() {
    let dir = tempfile::tempdir().unwrap();
    let source = World::new(&dir.path().join("source"), 0, 2);
    for slot in [1, 2] {
        source.apply(write(slot, 0, 3, vec![])).unwrap();
    }
    let mut target = World::new(&dir.path().join("target"), 3, 2);
    for (slot, places) in [(1, 0..0), (2, 0..2)] {
        let import = taken(&target, slot, &frames(&source, slot, places));
        install(&mut target, slot, import, Install::default());
        assert_eq!(target.store().slot(slot).unwrap(), position(slot, 3));
    }
    let first = request(1, 1, vec![new_doc(target.shard(1), "a")]);
    target.apply_next(2, first).unwrap();
    checked(target.shard(0));
    checked(target.shard(1));
}
