//! The log's groups under a simulated network, clock and disks. A failure prints its seed and trace;
//! `SETTEE_SEED` replays it, `SETTEE_SEEDS` sets the number of seeds.

mod faults;
mod ledger;
mod threads;
mod world;

use ledger::Violation;
use world::{Plan, SLOTS, World};

use crate::groups::Mutant;

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
    let seeds = number("SETTEE_SEEDS").unwrap_or(1_000);
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

/// Returns the first seed that finds a fault which is in all runs.
fn caught_by(faulty: impl Fn(u64) -> Plan) -> Option<u64> {
    let is_caught = |seed: &u64| {
        let run = try_plan(faulty(*seed));
        run.is_err_and(|Violation(what)| !what.starts_with("no progress"))
    };
    (0..10_000).find(is_caught)
}

#[test]
fn a_confirmation_before_the_sync_is_noticed() {
    let seed = caught_by(|seed| Plan {
        mutant: Mutant::ConfirmsBeforeSync,
        ..plan(seed)
    });
    println!("confirmed before the sync: caught by seed {seed:?}");
    assert!(seed.is_some());
}

#[test]
fn a_vote_before_the_sync_is_noticed() {
    let seed = caught_by(|seed| Plan {
        mutant: Mutant::VotesBeforeSync,
        ..plan(seed)
    });
    println!("voted before the sync: caught by seed {seed:?}");
    assert!(seed.is_some());
}

#[test]
fn an_id_that_outlives_its_disk_is_noticed() {
    let seed = caught_by(|seed| Plan {
        reuses_ids: true,
        ..plan(seed)
    });
    println!("the id of a lost disk: caught by seed {seed:?}");
    assert!(seed.is_some());
}

#[test]
fn a_seed_gives_the_same_run_again() {
    for seed in 0..3 {
        assert_eq!(replay(plan(seed)), replay(plan(seed)));
    }
}

#[test]
fn idle_groups_send_nothing() {
    let mut world = World::new(Plan::default());
    world.begin().unwrap();
    world.run_until(2_000).unwrap();
    for slot in SLOTS {
        world.append(3, slot, true).unwrap();
    }
    world.run_until(6_000).unwrap();
    let before = world.raft_messages;
    world.run_until(8_500).unwrap();
    assert_eq!(world.raft_messages, before);
    assert_eq!(world.ledger.count(), SLOTS.len());
}
