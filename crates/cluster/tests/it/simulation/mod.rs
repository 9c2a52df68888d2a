//! Replicas under a simulated log, network, clock and disk. A failure prints its seed and trace;
//! `SETTEE_SEED` replays it, `SETTEE_SEEDS` sets the number of seeds.

mod log;
mod world;

use cluster::replica::Rules;
use world::{Plan, Violation, World};

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn try_seed(seed: u64, rules: Rules) -> Result<World, Violation> {
    let mut world = World::new(Plan {
        seed,
        rules,
        lacks_contents: false,
        verbose: false,
    });
    world.run().map(|()| world)
}

/// Runs a seed again and prints its trace.
fn replay(seed: u64, rules: Rules) -> String {
    let mut world = World::new(Plan {
        seed,
        rules,
        lacks_contents: false,
        verbose: true,
    });
    let result = world.run();
    let lines = world.trace.len();
    let shown = number("SETTEE_TRACE_LINES").unwrap_or(400) as usize;
    let trace = world.trace[lines.saturating_sub(shown)..].join("\n");
    format!("{trace}\nseed {seed}: {result:?} (the last {shown} of {lines} lines)")
}

#[test]
fn nothing_acknowledged_is_lost() {
    if let Some(seed) = number("SETTEE_SEED") {
        panic!("{}", replay(seed, Rules::default()));
    }
    let seeds = number("SETTEE_SEEDS").unwrap_or(1_000);
    let first = number("SETTEE_FIRST_SEED").unwrap_or(0);
    let threads = std::thread::available_parallelism().map_or(2, |n| n.get()) as u64;
    let totals: Vec<[u64; 4]> = std::thread::scope(|scope| {
        let shares = (0..threads).map(|share| {
            scope.spawn(move || {
                let mut total = [0; 4];
                for seed in (first..first + seeds).filter(|s| s % threads == share) {
                    match try_seed(seed, Rules::default()) {
                        Ok(world) => {
                            total[0] += world.acknowledged;
                            total[1] += world.reads;
                            total[2] += u64::from(world.generations > 0);
                            total[3] += u64::from(world.lost.is_some());
                        }
                        Err(_) => panic!("{}", replay(seed, Rules::default())),
                    }
                }
                total
            })
        });
        let shares: Vec<_> = shares.collect();
        shares
            .into_iter()
            .map(|share| share.join().expect("no violation"))
            .collect()
    });
    let sum = |at: usize| totals.iter().map(|total| total[at]).sum::<u64>();
    println!(
        "{seeds} seeds: {} writes acknowledged, {} reads, {} runs with a new generation, {} with a lost disk",
        sum(0),
        sum(1),
        sum(2),
        sum(3)
    );
    assert!(seeds < 1_000 || sum(3) > 0, "no disk was lost");
    assert!(
        sum(0) > seeds * 20 && sum(1) > seeds * 20,
        "the clients hardly got to work"
    );
}

#[test]
fn counting_without_contents_is_noticed() {
    let is_caught = |seed: &u64| {
        let mut world = World::new(Plan {
            seed: *seed,
            rules: Rules::default(),
            lacks_contents: true,
            verbose: false,
        });
        let run = world.run();
        run.is_err_and(|Violation(what)| what.contains("content"))
    };
    let seed = (0..10_000).find(is_caught);
    println!("counted without contents: caught by seed {seed:?}");
    assert!(seed.is_some(), "it is not noticed");
}

/// Returns the number of seeds until a protocol without one of its rules breaks its promise.
fn caught_after(rules: Rules) -> Option<u64> {
    let broken = |seed: &u64| {
        let caught = try_seed(*seed, rules);
        caught.is_err_and(|Violation(what)| !what.starts_with("no progress"))
    };
    (0..10_000).find(broken)
}

#[test]
fn leaving_a_rule_out_is_noticed() {
    let all = Rules::default();
    for (what, rules) in [
        (
            "no fence",
            Rules {
                fence: false,
                ..all
            },
        ),
        (
            "reads that may be unstable",
            Rules {
                stable_reads: false,
                ..all
            },
        ),
        (
            "acknowledged by one",
            Rules {
                majority: false,
                ..all
            },
        ),
        (
            "a promise to who followed an older leader",
            Rules {
                later_leader: false,
                ..all
            },
        ),
        ("no seal", Rules { seal: false, ..all }),
    ] {
        let seed = caught_after(rules);
        println!("{what}: caught by seed {seed:?}");
        assert!(seed.is_some(), "{what} is not noticed");
    }
}

#[test]
fn a_seed_gives_the_same_run_again() {
    for seed in 0..3 {
        assert_eq!(
            replay(seed, Rules::default()),
            replay(seed, Rules::default())
        );
    }
}
