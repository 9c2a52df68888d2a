//! Intervals against distributions that are known, and verdicts in simulated comparisons.

use super::*;

/// A normal deviate (Box and Muller).
fn normal(random: &mut fastrand::Rng) -> f64 {
    let (u, v) = (1.0 - random.f64(), random.f64());
    (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
}

fn coverage(repeats: usize, trials: usize, mut draw: impl FnMut(&mut fastrand::Rng) -> f64) -> f64 {
    let mut random = fastrand::Rng::with_seed(17);
    let covers = |_: &usize| {
        let values: Vec<f64> = (0..repeats).map(|_| draw(&mut random).exp()).collect();
        let interval = interval(&values).unwrap();
        interval.low <= 1.0 && 1.0 <= interval.high
    };
    (0..trials).filter(covers).count() as f64 / trials as f64
}

#[test]
fn an_interval_holds_the_truth_19_times_in_20() {
    for (repeats, at_least) in [(5, 0.90), (10, 0.935), (20, 0.935)] {
        let held = coverage(repeats, 1_000, |random| 0.05 * normal(random));
        assert!((at_least..=0.985).contains(&held), "{repeats}: {held}");
    }
}

#[test]
fn an_interval_of_lopsided_figures_holds_the_truth_nearly_as_often() {
    // Exponential around 0: most repeats are a little fast, some very slow.
    let held = coverage(10, 1_000, |random| 0.05 * (1.0 + random.f64().ln()));
    assert!((0.88..=0.985).contains(&held), "{held}");
}

#[test]
fn intervals_get_narrower_with_more_repeats() {
    let mut random = fastrand::Rng::with_seed(3);
    let mut width = |repeats| {
        let values: Vec<f64> = (0..repeats)
            .map(|_| (0.1 * normal(&mut random)).exp())
            .collect();
        let interval = interval(&values).unwrap();
        interval.high - interval.low
    };
    let (few, many) = (width(8), width(200));
    assert!(many < few / 2.5, "{few} {many}");
}

#[test]
fn without_enough_repeats_or_with_zeroes_nothing_is_said() {
    assert_eq!(interval(&[1.0; REPEATS_MIN - 1]), None);
    assert_eq!(interval(&[]), None);
    assert_eq!(interval(&[1.0, 1.0, 1.0, 1.0, 0.0, 1.0]), None);
    assert_eq!(interval(&[1.0, 1.0, 1.0, 1.0, f64::NAN]), None);
    assert_eq!(paired(&[1.0; 6], &[0.0; 6]), None);
    assert_eq!(unpaired(&[1.0; 6], &[1.0; 2]), None);
    assert!(shown(&[]).is_empty());
}

#[test]
fn values_that_never_differ_are_an_interval_of_no_width_and_not_infinitely_certain() {
    assert_eq!(
        interval(&[7.0; 10]).map(|i| (i.low.round(), i.high.round())),
        Some((7.0, 7.0))
    );
    let small = paired(&[1.01; 10], &[1.0; 10]).unwrap();
    assert!(small.p > 0.5, "{small:?}");
    let large = paired(&[1.2; 10], &[1.0; 10]).unwrap();
    assert!(large.p < 1e-6, "{large:?}");
}

#[test]
fn probabilities_are_students() {
    // Without the margin this would be the two-sided t of a table: t = 2.262 at 9 degrees of freedom is 0.05.
    let margin = (1.0 + MARGIN).ln();
    let p = probability(margin + 2.262 * 0.5, 0.5, 9.0);
    let other_tail = probability(margin + 2.262 * 0.5 + margin, 0.5, 9.0);
    assert!(
        (0.04..0.05).contains(&p) && other_tail < p,
        "{p} {other_tail}"
    );
}

#[test]
fn holm_spends_its_level_on_the_smallest_first() {
    let level = FAMILY_LEVEL;
    assert_eq!(shown(&[level * 0.9]), [true]);
    assert_eq!(shown(&[level * 0.9, level * 0.9]), [false, false]);
    assert_eq!(shown(&[level * 0.9, level * 0.4]), [true, true]);
    assert_eq!(shown(&[0.9, level * 0.3, 0.5]), [false, true, false]);
}

/// The noise of a server's figures in a simulated run, as parts of the logarithm.
#[derive(Debug, Clone, Copy)]
struct Noise {
    /// Noise of both servers within a repeat: the machine gets slower and faster.
    drift: f64,
    /// Each server's own in each repeat.
    own: f64,
    /// Additional noise of the p99.
    tail: f64,
    /// One repeat in twenty is slower by this on one of the two.
    outlier: f64,
    /// Noise of a process for its whole life: its layout in memory.
    process: f64,
}

const QUIET: Noise = Noise {
    drift: 0.02,
    own: 0.01,
    tail: 0.05,
    outlier: 0.05,
    process: 0.007,
};
const BUSY: Noise = Noise {
    drift: 0.10,
    own: 0.03,
    tail: 0.15,
    outlier: 0.20,
    process: 0.007,
};
const WILD: Noise = Noise {
    drift: 0.30,
    own: 0.12,
    tail: 0.40,
    outlier: 0.50,
    process: 0.007,
};

/// A comparison of `lines` lines, each with rate, p50 and p99. B is slower by `slower`. Which figures are called different?
fn simulated(
    random: &mut fastrand::Rng,
    noise: Noise,
    lines: usize,
    repeats: usize,
    slower: f64,
) -> Vec<bool> {
    let mut probabilities = Vec::new();
    for _ in 0..lines {
        let process = [
            noise.process * normal(random),
            noise.process * normal(random),
        ];
        let mut drift = 0.0;
        let mut figures: [[Vec<f64>; 2]; 3] = Default::default();
        for _ in 0..repeats {
            drift = 0.8 * drift + noise.drift * normal(random);
            for side in 0..2 {
                let outlier = if random.f64() < 0.05 {
                    noise.outlier
                } else {
                    0.0
                };
                let planted = if side == 1 { -(1.0 - slower).ln() } else { 0.0 };
                let slow = drift + process[side] + outlier + planted + noise.own * normal(random);
                figures[0][side].push((-slow).exp());
                figures[1][side].push((slow + 0.3 * noise.own * normal(random)).exp());
                figures[2][side].push((slow + noise.tail * normal(random)).exp());
            }
        }
        for [a, b] in &figures {
            probabilities.push(paired(a, b).unwrap().p);
        }
    }
    shown(&probabilities)
}

/// The share of simulated comparisons for which `found` holds.
fn share(
    (noise, lines, repeats): (Noise, usize, usize),
    slower: f64,
    found: impl Fn(&[bool]) -> bool,
) -> f64 {
    const TRIALS: usize = 300;
    let mut random = fastrand::Rng::with_seed(29);
    let hits =
        (0..TRIALS).filter(|_| found(&simulated(&mut random, noise, lines, repeats, slower)));
    hits.count() as f64 / TRIALS as f64
}

#[test]
fn a_server_compared_with_itself_is_hardly_ever_flagged() {
    // 1 in 20 is allowed. At 2 in 100 of comparisons, 20 of them have two flags or more 6 times in 100.
    for run in [
        (QUIET, 2, 10),
        (BUSY, 1, 10),
        (BUSY, 4, 10),
        (WILD, 2, 10),
        (WILD, 2, 5),
    ] {
        let flagged = share(run, 0.0, |flags| flags.contains(&true));
        assert!(flagged <= 0.02, "{flagged} with {run:?}");
    }
}

#[test]
fn a_slow_down_of_a_tenth_is_found() {
    // A busy machine needs more repeats.
    for run in [
        (QUIET, 1, 10),
        (QUIET, 10, 10),
        (BUSY, 1, 20),
        (BUSY, 2, 20),
    ] {
        let found = share(run, 0.1, |flags| flags[0] || flags[1]);
        assert!(found >= 0.9, "{found} with {run:?}");
    }
}
