//! The log's groups under a simulated network, clock and disks. A failure prints its seed and trace;
//! `SETTEE_SEED` replays it, `SETTEE_SEEDS` sets the number of seeds.

mod damage;
mod faults;
mod figures;
mod ledger;
mod threads;
mod world;

use std::sync::Arc;

use bytes::Bytes;
use ledger::Violation;
use world::{Plan, SLOTS, World};

use crate::disk::{GroupWrite, LogDisk};
use crate::groups::{Core, Effect, Mutant};
use crate::memory_disk::MemoryDisk;
use crate::message::NodeMessage;
use crate::options::{LogNode, Options};
use crate::state::GroupState;

/// The number of seeds in a run of all tests. `make soak-simulation` has many more.
const SEEDS: u64 = 1_000;

/// Seeds within which a fault that is in all runs is found.
const SEEDS_TO_CATCH: u64 = 2_000;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn plan(seed: u64) -> Plan {
    Plan {
        seed,
        has_faults: true,
        ..Plan::default()
    }
}

/// Returns the number of acknowledged appends of a run.
fn try_plan(plan: Plan) -> Result<usize, Violation> {
    let mut world = World::new(plan);
    world.run().map(|()| world.ledger.count())
}

fn replay(plan: Plan) -> String {
    let mut world = World::new(Plan {
        verbose: true,
        ..plan
    });
    let result = world.run();
    let lines = world.trace.len();
    let trace = world.trace[lines.saturating_sub(400)..].join("\n");
    format!("{trace}\nseed {}: {result:?}", plan.seed)
}

#[test]
fn nothing_acknowledged_is_lost() {
    if let Some(seed) = number("SETTEE_SEED") {
        panic!("{}", replay(plan(seed)));
    }
    let seeds = number("SETTEE_SEEDS").unwrap_or(SEEDS);
    let threads = std::thread::available_parallelism().map_or(2, |n| n.get()) as u64;
    let total: usize = std::thread::scope(|scope| {
        let run = move |share: u64| {
            let mut total = 0;
            for seed in (0..seeds).filter(|seed| seed % threads == share) {
                match try_plan(plan(seed)) {
                    Ok(count) => total += count,
                    Err(_) => panic!("{}", replay(plan(seed))),
                }
            }
            total
        };
        let shares: Vec<_> = (0..threads)
            .map(|share| scope.spawn(move || run(share)))
            .collect();
        let totals = shares.into_iter().map(|share| share.join());
        totals.map(|total| total.expect("no violation")).sum()
    });
    println!("{seeds} seeds: {total} appends acknowledged");
    assert!(total as u64 > seeds * 100, "the clients hardly got to work");
}

/// Returns the first seed that finds a fault which is in all runs, and what it finds.
fn caught_by(faulty: impl Fn(u64) -> Plan) -> Option<(u64, String)> {
    let catch = |seed: u64| match try_plan(faulty(seed)) {
        Err(Violation(what)) if !what.starts_with("no progress") => Some((seed, what)),
        _ => None,
    };
    (0..SEEDS_TO_CATCH).find_map(catch)
}

#[test]
fn a_confirmation_before_the_sync_is_noticed() {
    let caught = caught_by(|seed| Plan {
        mutant: Mutant::ConfirmsBeforeSync,
        ..plan(seed)
    });
    println!("confirmed before the sync: caught by {caught:?}");
    assert!(caught.is_some());
}

#[test]
fn a_vote_before_the_sync_is_noticed() {
    let caught = caught_by(|seed| Plan {
        mutant: Mutant::VotesBeforeSync,
        ..plan(seed)
    });
    println!("voted before the sync: caught by {caught:?}");
    assert!(caught.is_some());
}

#[test]
fn an_id_that_outlives_its_disk_is_noticed() {
    let caught = caught_by(|seed| Plan {
        reuses_ids: true,
        ..plan(seed)
    });
    println!("the id of a lost disk: caught by {caught:?}");
    assert!(caught.is_some());
}

#[test]
fn a_damaged_disk_that_keeps_its_id_is_noticed() {
    let caught = caught_by(|seed| Plan {
        keeps_damaged: true,
        ..plan(seed)
    });
    println!("the id of a damaged disk: caught by {caught:?}");
    assert!(caught.is_some());
}

#[test]
fn a_seed_gives_the_same_run_again() {
    for seed in 0..3 {
        assert_eq!(replay(plan(seed)), replay(plan(seed)));
    }
}

#[test]
fn idle_groups_send_and_write_nothing() {
    let mut world = World::new(Plan::default());
    world.begin().unwrap();
    world.run_until(2_000).unwrap();
    for slot in SLOTS {
        world.append(3, slot, true).unwrap();
    }
    world.run_until(6_000).unwrap();
    let before = (world.raft_messages, world.writes);
    world.run_until(8_500).unwrap();
    assert_eq!((world.raft_messages, world.writes), before);
    assert!(world.writes > 0);
    assert_eq!(world.ledger.count(), SLOTS.len());
}

/// Starts a world without faults, and waits until its groups have their members.
fn settled_world() -> World {
    let mut world = World::new(Plan::default());
    world.begin().unwrap();
    world.run_until(2_000).unwrap();
    world
}

#[test]
fn a_leader_that_cannot_write_is_replaced_although_records_arrive() {
    let mut world = settled_world();
    let leader = world.leader(0).unwrap();
    world.nodes[leader].hangs_until = u64::MAX;
    let other = (leader + 1) % 3;
    for step in 0..60 {
        world.append(other, 0, false).unwrap();
        world.run_until(2_000 + step * 100).unwrap();
    }
    let before = world.ledger.count();
    assert!(world.leader(0).is_some_and(|now| now != leader));
    world.append(3, 0, true).unwrap();
    world.run_until(9_000).unwrap();
    assert!(world.ledger.count() > before);
}

#[test]
fn a_follower_that_cannot_write_keeps_no_answers_to_its_leader() {
    let mut world = settled_world();
    let leader = world.leader(0).unwrap();
    let follower = (leader + 1) % 3;
    world.nodes[follower].hangs_until = u64::MAX;
    for slot in SLOTS {
        world.append(leader, slot, false).unwrap();
    }
    world.run_until(9_500).unwrap();
    let (before, messages) = (world.flushes(follower), world.raft_messages);
    assert!(before > 0);
    world.run_until(12_500).unwrap();
    // It lacks a record, so that the groups do not sleep.
    assert!(world.raft_messages > messages + 10);
    assert_eq!(world.flushes(follower), before);
}

#[test]
fn a_log_that_is_too_large_keeps_what_no_majority_has() {
    let mut world = settled_world();
    for step in 1..=10 {
        world.append(3, 0, true).unwrap();
        world.run_until(6_000 + step * 200).unwrap();
    }
    let core = world.nodes[0].core.as_mut().unwrap();
    core.trim_half();
    assert_eq!(core.bounds(0), Some((0, 10)));
    core.trim(0, 0, 3);
    core.trim_half();
    assert_eq!(core.bounds(0), Some((3, 10)));
    core.trim(0, 0, 9);
    core.trim_half();
    assert_eq!(core.bounds(0), Some((7, 10)));
}

/// As after damage on most nodes at the same time: each of them has another id, and begins nothing.
#[test]
fn a_log_that_most_nodes_lost_stores_nothing() {
    for kept in 0..3 {
        let mut world = settled_world();
        for slot in SLOTS {
            world.append(3, slot, true).unwrap();
        }
        world.run_until(4_000).unwrap();
        assert_eq!(world.ledger.count(), SLOTS.len());
        let lost: Vec<usize> = (0..3).filter(|at| *at != kept).collect();
        for at in &lost {
            world.crash(*at);
            let node = &mut world.nodes[*at];
            node.me.raft += 1;
            node.disk = Arc::new(MemoryDisk::new(node.me.raft));
            let me = node.me;
            world.set_log_node(*at, me);
        }
        for at in &lost {
            world.start(*at).unwrap();
        }
        for step in 1..=80 {
            for slot in SLOTS {
                world.append(3, slot, false).unwrap();
                world.append(kept, slot, false).unwrap();
            }
            world.run_until(4_000 + step * 100).unwrap();
        }
        assert_eq!(world.ledger.count(), SLOTS.len(), "{kept}");
        for at in lost {
            let core = world.nodes[at].core.as_ref().unwrap();
            assert!(core.led().is_empty(), "{kept}");
            assert!(SLOTS.iter().all(|slot| core.bounds(*slot).is_none()));
        }
    }
}

#[test]
fn elections_of_a_node_that_left_wake_no_group() {
    let mut world = settled_world();
    for other in [0, 2, 3] {
        world.cut_both(1, other, 5_000);
    }
    let other = world.nodes[3].me;
    world.set_log_node(1, other);
    // It has not noticed, and the others sleep.
    world.run_until(9_500).unwrap();
    let sleeps = |world: &World| {
        let cores = [0, 2, 3].map(|at| world.nodes[at].core.as_ref().unwrap());
        cores.iter().all(|core| core.sleeps(0))
    };
    for step in 0..30 {
        assert!(sleeps(&world), "{step}");
        world.run_until(9_500 + step * 100).unwrap();
    }
    let left = world.nodes[1].core.as_ref().unwrap();
    assert!(left.figures().leaderless.is_empty());
}

#[test]
fn a_leader_that_sleeps_alone_does_not_deny_newer_records() {
    let mut world = settled_world();
    world.append(3, 0, true).unwrap();
    world.run_until(6_000).unwrap();
    let leader = world.leader(0).unwrap();
    for other in (0..3).filter(|it| *it != leader) {
        world.cut_both(leader, other, u64::MAX);
    }
    let other = (leader + 1) % 3;
    for step in 0..60 {
        world.append(other, 0, false).unwrap();
        world.run_until(6_000 + step * 100).unwrap();
    }
    assert!(world.ledger.count() > 10, "there is another leader");
}

#[test]
fn a_sole_voter_tells_learners_nothing_of_a_term_that_it_may_forget() {
    let disk = Arc::new(MemoryDisk::new(10));
    let mut state = GroupState::first(10);
    state.members.set_learners(vec![20]);
    let write = GroupWrite {
        slot: 0,
        reset: false,
        entries: vec![],
        trim: None,
        state,
    };
    disk.write(&[&write], true).unwrap();
    let table: Vec<LogNode> = (1..=2)
        .map(|node| LogNode {
            raft: node * 10,
            node,
        })
        .collect();
    let options = Options {
        me: table[0],
        log: 1,
        origin: 1,
        slots: 1,
        disk_bytes_max: u64::MAX,
    };
    let mut core = Core::open(options, disk).unwrap();
    core.set_log_nodes(table);
    let mut flushes = vec![];
    let mut sent = 0;
    let mut count = |core: &mut Core<MemoryDisk>| {
        let is_raft = |it: &Effect| {
            matches!(
                it,
                Effect::Send {
                    message: NodeMessage::Raft { .. },
                    ..
                }
            )
        };
        sent += core.take_effects().iter().filter(|it| is_raft(it)).count();
        sent
    };
    for _ in 0..15 {
        core.tick();
        core.append(0, Bytes::from_static(b"record"));
        while let Some(flush) = core.begin_flush() {
            flushes.push(flush);
        }
        assert_eq!(count(&mut core), 0);
    }
    assert!(!core.led().is_empty());
    for flush in flushes {
        core.end_flush(flush);
    }
    assert!(count(&mut core) > 0);
}

#[test]
fn a_node_that_left_the_log_uses_it() {
    for hears_of_it in [true, false] {
        let mut world = settled_world();
        world.append(1, 0, true).unwrap();
        world.run_until(2_500).unwrap();
        if !hears_of_it {
            for other in [0, 2, 3] {
                world.cut_both(1, other, 5_000);
            }
        }
        let other = world.nodes[3].me;
        world.set_log_node(1, other);
        world.run_until(7_000).unwrap();
        for slot in SLOTS {
            world.append(1, slot, true).unwrap();
            world.append(0, slot, true).unwrap();
        }
        world.run_until(9_000).unwrap();
        assert_eq!(world.read_by(1, 0), 3, "{hears_of_it}");
        assert_eq!(world.read_by(1, 1), 2, "{hears_of_it}");
        assert_eq!(world.ledger.count(), 7, "{hears_of_it}");
    }
}
