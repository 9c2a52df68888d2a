//! One log at two stores that share nothing but the log.

use std::sync::atomic::Ordering::Relaxed;

use proptest::prelude::*;
use storage::{Error, Position, SlotOutcome, SlotWrite};

use crate::slots::dump;
use crate::slots::history::{self, Beside, Logged, Record, SHARDS, SLOTS, number};
use crate::slots::model::{self, Expected, Model};
use crate::slots::rounds;
use crate::slots::world::{Waiting, World, done, new_doc, position, request, write};

/// A record with its requests, as every replica gets it.
pub struct Entry {
    pub slot: usize,
    offset: u64,
    requests: Vec<Logged>,
    state: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    pub outcomes: Vec<SlotOutcome>,
}

impl Entry {
    pub fn write(&self, world: &World) -> SlotWrite {
        let requests = self.requests.iter();
        let requests = requests.map(|r| history::over(r, world.shards()));
        let requests = requests.collect();
        SlotWrite {
            state: self.state.clone(),
            ..write(number(self.slot), self.offset, 1, requests)
        }
    }
}

fn beside(world: &mut World, beside: Beside) {
    match beside {
        Beside::Nothing => {}
        Beside::Compact(shard) => world.compact(shard),
        Beside::Restart => world.restart(),
    }
}

/// Applies records one by one, each created from the stored state, and compares the results with
/// the models.
pub fn alone(world: &mut World, records: &[Record], models: &mut [Model; SLOTS]) -> Vec<Entry> {
    let mut log: Vec<Entry> = vec![];
    let mut offsets = [0; SLOTS];
    let mut uuid = 0;
    for record in records {
        let slot = record.slot;
        let model = &mut models[slot];
        let requests = record.requests.iter();
        let requests = requests.map(|r| history::logged(r, slot, world.shards(), model, &mut uuid));
        let state = record.state.iter();
        let mut entry = Entry {
            slot,
            offset: offsets[slot],
            requests: requests.collect(),
            state: state.map(|(k, v)| (vec![*k], v.map(|v| vec![v]))).collect(),
            outcomes: vec![],
        };
        offsets[slot] += 1;
        entry.outcomes = world.apply(entry.write(world)).unwrap();
        for (request, outcome) in entry.requests.iter().zip(&entry.outcomes) {
            match model.expected(request.session) {
                Expected::Applied => assert_ne!(*outcome, SlotOutcome::Forgotten),
                Expected::This(first) => assert_eq!(*outcome, first),
            }
            model.note(request.session, outcome);
        }
        log.push(entry);
        beside(world, record.beside[0]);
    }
    log
}

/// Applies the log with several records in a write and several writes in the queue.
fn together(world: &mut World, records: &[Record], log: &[Entry]) {
    let mut last: [Option<SlotWrite>; SLOTS] = [const { None }; SLOTS];
    let mut expected: [Vec<SlotOutcome>; SLOTS] = Default::default();
    let mut queued: Vec<(Waiting, Vec<SlotOutcome>)> = vec![];
    for (record, entry) in records.iter().zip(log) {
        let slot = entry.slot;
        let mut next = entry.write(world);
        if let Some(mut before) = last[slot].take() {
            if record.merged {
                before.to = next.to;
                before.state.append(&mut next.state);
                before.requests.append(&mut next.requests);
                next = before;
            } else {
                queued.push((world.queue(before), std::mem::take(&mut expected[slot])));
            }
        }
        last[slot] = Some(next);
        expected[slot].extend(entry.outcomes.iter().cloned());
        if record.awaited || record.beside[1] != Beside::Nothing {
            send(world, &mut last, &mut expected, &mut queued);
        }
        beside(world, record.beside[1]);
    }
    send(world, &mut last, &mut expected, &mut queued);
}

/// Queues the delayed operations, and waits for all.
fn send(
    world: &World,
    last: &mut [Option<SlotWrite>; SLOTS],
    expected: &mut [Vec<SlotOutcome>; SLOTS],
    queued: &mut Vec<(Waiting, Vec<SlotOutcome>)>,
) {
    for (last, expected) in last.iter_mut().zip(expected) {
        if let Some(write) = last.take() {
            queued.push((world.queue(write), std::mem::take(expected)));
        }
    }
    for (waiting, expected) in queued.drain(..) {
        assert_eq!(done(waiting).unwrap(), expected);
    }
}

fn compare(worlds: [&World; 2], models: &[Model; SLOTS]) {
    for i in 0..SLOTS * SHARDS {
        let [a, b] = worlds.map(|world| {
            let dump = dump::shard(world.shard(i));
            dump::check(world.shard(i), &dump);
            dump
        });
        assert_eq!(a, b, "shard {i}");
    }
    let [a, b] = worlds.map(|world| dump::slot_rows(world.store()));
    assert_eq!(a, b, "rows of slots");
    for (slot, model) in models.iter().enumerate() {
        assert_eq!(model::stored(&a, number(slot)), model.kept());
    }
}

pub fn config() -> ProptestConfig {
    let default = ProptestConfig::default();
    ProptestConfig {
        cases: match std::env::var_os("PROPTEST_CASES") {
            Some(_) => default.cases,
            None => rounds(7, 24),
        },
        failure_persistence: None,
        max_shrink_iters: 300,
        ..default
    }
}

proptest! {
    #![proptest_config(config())]
    #[test]
    fn replicas_agree_however_the_log_is_cut_and_whatever_they_do_beside(
        records in prop::collection::vec(history::record(), 1..60),
        others in 1u32..300,
    ) {
        let dir = tempfile::tempdir().unwrap();
        let shards = (SLOTS * SHARDS) as u32;
        let mut models = [Model::default(), Model::default()];
        let mut first = World::new(&dir.path().join("first"), 0, shards);
        let log = alone(&mut first, &records, &mut models);
        let mut second = World::new(&dir.path().join("second"), others, shards);
        together(&mut second, &records, &log);
        compare([&first, &second], &models);
        first.restart();
        second.restart();
        compare([&first, &second], &models);
        let mut slots: Vec<_> = log.iter().map(|e| number(e.slot)).collect();
        slots.sort_unstable();
        slots.dedup();
        prop_assert_eq!(&first.store().slots().unwrap(), &slots);
        for slot in slots {
            let records = log.iter().filter(|e| number(e.slot) == slot).count() as u64;
            prop_assert_eq!(first.store().slot(slot).unwrap(), position(slot, records));
        }
    }
}

/// Checks that the property above covers batches at all.
#[test]
fn what_is_queued_together_is_one_batch_and_its_writes_see_each_other() {
    use crate::slots::world::local;
    let dir = tempfile::tempdir().unwrap();
    let (world, open_gate) = World::gated(dir.path(), 3);
    let plain = vec![new_doc(world.shard(2), "plain")];
    let plain = world
        .store()
        .committer
        .edit(plain, Default::default(), true);
    while world.store().committer.counters().batches.load(Relaxed) == 0 {
        std::thread::yield_now();
    }
    let s = world.shard(0);
    let one = |n: u64| request(7, n, vec![new_doc(s, "a"), local(s, "l", Some(n), "{}")]);
    let state = |n: u8| vec![(b"k".to_vec(), Some(vec![n]))];
    let queued: Vec<_> = [(0, 1), (1, 2), (2, 1)]
        .map(|(offset, counter)| {
            let mut write = write(5, offset, 1, vec![one(counter)]);
            write.state = state(offset as u8);
            world.queue(write)
        })
        .into_iter()
        .collect();
    open_gate.send(()).unwrap();
    plain.blocking_recv().unwrap().unwrap();
    let outcomes: Vec<_> = queued.into_iter().map(|w| done(w).unwrap()).collect();
    assert_eq!(world.store().committer.counters().batches.load(Relaxed), 2);
    assert_eq!(outcomes[2], outcomes[0], "a repeat");
    assert_ne!(outcomes[1], outcomes[0], "the document was there");
    assert_eq!(s.meta().update_seq, 1);
    assert_eq!(s.local("_local/l").unwrap().unwrap().0, 2);
    assert_eq!(world.store().slot(5).unwrap(), position(5, 3));
    assert_eq!(
        world.store().slot_state(5, b"").unwrap(),
        [(b"k".to_vec(), vec![2])]
    );
    dump::check(s, &dump::shard(s));
}

#[test]
fn rows_of_a_slot_are_its_own_and_found_by_prefix() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::new(dir.path(), 0, 1);
    assert_eq!(world.store().slots().unwrap(), []);
    assert_eq!(world.store().slot(0).unwrap(), None);
    for slot in [0, 1, 0x6c6c, 0xffff] {
        let mut write = write(slot, 0, 1, vec![]);
        let row = |key: &[u8]| (key.to_vec(), Some(slot.to_be_bytes().to_vec()));
        write.state = vec![
            row(b"a1"),
            row(b"a2"),
            row(b"b"),
            row(b"\xff\xff"),
            row(b""),
        ];
        world.apply(write).unwrap();
    }
    assert_eq!(world.store().slots().unwrap(), [0, 1, 0x6c6c, 0xffff]);
    let keys = |slot, prefix: &[u8]| {
        let rows = world.store().slot_state(slot, prefix).unwrap();
        assert!(rows.iter().all(|(_, v)| *v == slot.to_be_bytes()));
        rows.into_iter().map(|(k, _)| k).collect::<Vec<_>>()
    };
    assert_eq!(keys(1, b"a"), [b"a1", b"a2"]);
    assert_eq!(keys(0xffff, b"\xff"), [b"\xff\xff"]);
    assert_eq!(keys(0, b"").len(), 5);
    let snapshot = world.store().snapshot();
    let starts = |bytes| snapshot.slot_state_starts(0xffff, b"a", bytes).unwrap();
    let start = vec![0xff];
    let expected = [(b"a1".to_vec(), start.clone()), (b"a2".to_vec(), start)];
    assert_eq!(starts(1), expected);
    assert_eq!(starts(9), world.store().slot_state(0xffff, b"a").unwrap());
    let mut same_place = write(1, 1, 0, vec![]);
    same_place.state = vec![(b"a1".to_vec(), None)];
    world.apply(same_place).unwrap();
    assert_eq!(keys(1, b"a"), [b"a2"]);
    assert_eq!(world.store().slot(1).unwrap(), position(1, 1));
}

/// A replica stores promises before it applied anything, and while its position stays.
#[test]
fn a_write_of_rows_alone_leaves_the_slot_where_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let mut world = World::new(dir.path(), 0, 1);
    let start = Position::default();
    let rows = |from, n: u8| SlotWrite {
        slot: 1,
        from,
        to: start,
        state: vec![(b"promise".to_vec(), Some(vec![n]))],
        requests: vec![],
    };
    world.apply(rows(None, 1)).unwrap();
    assert_eq!(world.store().slot(1).unwrap(), Some(start));
    assert!(matches!(
        world.apply(rows(None, 9)),
        Err(Error::SlotPosition { .. })
    ));
    world.apply(rows(Some(start), 2)).unwrap();
    world.restart();
    assert_eq!(world.store().slot(1).unwrap(), Some(start));
    let promise = (b"promise".to_vec(), vec![2]);
    assert_eq!(world.store().slot_state(1, b"").unwrap(), [promise]);
    let to = position(1, 5).unwrap();
    let first = SlotWrite {
        slot: 1,
        from: Some(start),
        to,
        state: vec![],
        requests: vec![request(1, 1, vec![new_doc(world.shard(0), "a")])],
    };
    world.apply(first).unwrap();
    assert_eq!(world.store().slot(1).unwrap(), Some(to));
    assert_eq!(world.store().slot_state(1, b"").unwrap().len(), 1);
}

#[test]
fn a_slot_may_begin_at_any_position_with_requests() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::new(dir.path(), 0, 1);
    let begins = SlotWrite {
        from: None,
        ..write(
            1,
            700,
            3,
            vec![request(1, 900, vec![new_doc(world.shard(0), "a")])],
        )
    };
    let outcomes = world.apply(begins).unwrap();
    assert!(matches!(outcomes[..], [SlotOutcome::Done(_)]));
    assert_eq!(world.store().slot(1).unwrap(), position(1, 703));
    world.apply(write(1, 703, 1, vec![])).unwrap();
    dump::check(world.shard(0), &dump::shard(world.shard(0)));
}
