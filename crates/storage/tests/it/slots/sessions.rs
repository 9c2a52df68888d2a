//! Compares the sessions of a slot with a naive model.

use proptest::prelude::*;
use storage::{SESSIONS_MAX, Session, SlotOutcome, WorkOutcome};

use crate::slots::dump;
use crate::slots::model::{self, Expected, Model};
use crate::slots::rounds;
use crate::slots::world::{World, local, request, write};

/// Returns the outcome of requests whose one edit is of a local document with their position as its
/// revision, which shows which of them was applied.
fn applied_as(outcome: &SlotOutcome) -> Option<u64> {
    let SlotOutcome::Done(work) = outcome else {
        return None;
    };
    let [WorkOutcome::Edits(edits)] = &work[..] else {
        panic!("{work:?}")
    };
    let [storage::Outcome::Written(rev)] = &edits[..] else {
        panic!("{edits:?}")
    };
    Some(rev.to_string().strip_prefix("0-").unwrap().parse().unwrap())
}

/// Applies requests, a number of them per write, and compares each with the model.
fn apply_all(world: &World, sessions: &[Session], per_write: usize) -> Model {
    let mut model = Model::default();
    let mut place = 1 << 52;
    for (n, some) in sessions.chunks(per_write).enumerate() {
        let first = place;
        let requests = some.iter().map(|s| {
            place += 1;
            let edit = local(world.shard(0), "a", Some(place), "{}");
            request(s.gateway, s.counter, vec![edit])
        });
        let requests = requests.collect();
        let outcomes = world.apply(write(1, n as u64, 1, requests)).unwrap();
        for (i, (session, outcome)) in some.iter().zip(&outcomes).enumerate() {
            match model.expected(*session) {
                Expected::Applied => {
                    assert_eq!(applied_as(outcome), Some(first + i as u64 + 1));
                }
                Expected::This(first) => assert_eq!(*outcome, first),
            }
            model.note(*session, outcome);
        }
    }
    model
}

/// Returns rows except the position, which depends on the number of writes here.
fn rows(world: &World) -> Vec<(Vec<u8>, Vec<u8>)> {
    let rows = dump::slot_rows(world.store()).into_iter();
    rows.filter(|(key, _)| key[3] != b'p').collect()
}

fn agree(sessions: &[Session], cuts: &[usize]) {
    let dir = tempfile::tempdir().unwrap();
    let worlds = cuts.iter().map(|&cut| {
        let world = World::new(&dir.path().join(cut.to_string()), 0, 1);
        let model = apply_all(&world, sessions, cut);
        let stored = model::stored(&dump::slot_rows(world.store()), 1);
        assert_eq!(stored, model.kept());
        let last = world.shard(0).local("_local/a").unwrap().map(|l| l.0);
        (rows(&world), last, world.shard(0).digest())
    });
    let worlds: Vec<_> = worlds.collect();
    assert!(worlds.iter().all(|w| *w == worlds[0]));
}

fn config() -> ProptestConfig {
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
    fn a_request_is_applied_once_or_not_at_all(
        steps in prop::collection::vec((0u64..4, prop_oneof![
            6 => 0i64..4,
            2 => -20i64..0,
            1 => -1030i64..-1020,
            1 => 1020i64..1030,
            1 => 300i64..3000,
        ]), 1..200),
        first in prop_oneof![Just(0u64), Just(1u64), 1000u64..1100, (1u64 << 62)..(1 << 63)],
    ) {
        let mut at = [first; 4];
        let sessions: Vec<Session> = steps.iter().map(|&(gateway, step)| {
            let highest = &mut at[gateway as usize];
            let counter = highest.saturating_add_signed(step);
            *highest = counter.max(*highest);
            Session { gateway, counter }
        }).collect();
        agree(&sessions, &[1000, 7, 2]);
    }
}

#[test]
fn counters_at_the_ends_of_their_range_are_counters() {
    let session = |counter| Session {
        gateway: u64::MAX,
        counter,
    };
    let low = [0, 1023, 1024, 0, 1, 2048, 1024, 1025].map(session);
    agree(&low, &[1, 8]);
    let mut high = vec![0, 5, u64::MAX - 1, 5];
    high.extend([u64::MAX, u64::MAX - 1, u64::MAX - 1023]);
    // The naive model adds; the topmost is left out so that it can.
    let dir = tempfile::tempdir().unwrap();
    let world = World::new(dir.path(), 0, 1);
    let all = high.iter().enumerate().map(|(i, counter)| {
        let edit = local(world.shard(0), "a", Some(i as u64), "{}");
        request(u64::MAX, *counter, vec![edit])
    });
    let outcomes = world.apply(write(1, 0, 1, all.collect())).unwrap();
    let applied: Vec<_> = outcomes.iter().map(applied_as).collect();
    let expected = [Some(0), Some(1), Some(2), None, Some(4), Some(2), Some(6)];
    assert_eq!(applied, expected);
}

/// With more gateways than are kept, the least recently used ones are evicted, however the log is
/// split.
#[test]
fn gateways_that_are_silent_make_room_for_new_ones() {
    let max = SESSIONS_MAX;
    let all = |gateways: std::ops::Range<u64>, counter| {
        // Not in the order of their numbers.
        gateways.map(move |n| Session {
            gateway: n.wrapping_mul(0x9e37_79b9_7f4a_7c15),
            counter,
        })
    };
    let mut sessions: Vec<Session> = all(0..max, 1).collect();
    // Some of the oldest send again: a repeat, a new request and one that is too old.
    sessions.extend(all(10..20, 1));
    sessions.extend(all(20..30, 5000));
    sessions.extend(all(20..25, 2));
    // These evict 0 to 9, and 30 to 89.
    sessions.extend(all(max..max + 70, 1));
    // They send again when the least recently used ones are known already.
    sessions.extend(all(100..110, 1));
    sessions.extend(all(max + 70..max + 110, 1));
    sessions.extend(all(100..103, 1));
    // Evicted ones are new again; the others are not.
    sessions.extend(all(0..3, 1));
    sessions.extend(all(10..13, 1));
    sessions.extend(all(max + 60..max + 70, 1));
    agree(&sessions, &[10_000, 700, 997]);
}
