//! Combines the measurements of rounds and repeats into the lines of the report.

use std::mem;

use crate::couchdb;
use crate::lines::{Line, Measurement, Spread};
use crate::rounds::{FigureOf, Round, Rounds};
use crate::slice::Errors;
use crate::stats;
use crate::system::WorkloadPart;

/// Costs of a part for a server, and its failures.
#[derive(Debug, Clone, Default)]
struct Cost {
    errors: Errors,
    cpu_seconds: Option<f64>,
    peak_resident_bytes: Option<u64>,
}

impl Cost {
    /// Both together.
    fn and(mut self, other: Self) -> Self {
        self.errors.merge(other.errors);
        let seconds = [self.cpu_seconds, other.cpu_seconds].into_iter().flatten();
        Self {
            cpu_seconds: seconds.reduce(|one, more| one + more),
            peak_resident_bytes: self.peak_resident_bytes.max(other.peak_resident_bytes),
            errors: self.errors,
        }
    }
}

/// The rounds of one part on one server, until all have been run.
#[derive(Debug, Clone, Default)]
pub(crate) struct PartRounds {
    rounds: Rounds,
    /// The costs of each repeat.
    costs: Vec<Cost>,
}

impl PartRounds {
    fn add(&mut self, repeat: usize, at_s: f64, part: WorkloadPart) {
        self.rounds.add(repeat, Round::of(&part.slice, at_s));
        self.costs.resize_with(self.rounds.0.len(), Cost::default);
        let before = mem::take(&mut self.costs[repeat]);
        self.costs[repeat] = before.and(Cost {
            errors: part.slice.errors,
            cpu_seconds: part.cpu_seconds,
            peak_resident_bytes: part.peak_resident_bytes,
        });
    }

    /// Leaves out a repeat and all later ones.
    fn forget(&mut self, repeat: usize) {
        self.rounds.0.truncate(repeat);
        self.costs.truncate(repeat);
    }

    fn measured(self) -> Measurement {
        let cost = self.costs.into_iter().reduce(Cost::and).unwrap_or_default();
        let round_rates: Vec<f64> = self.rounds.all().map(Round::rate).collect();
        let seconds: f64 = self.rounds.all().map(|round| round.seconds).sum();
        let count = self.rounds.all().map(|round| round.count).sum();
        let latencies_us = self.rounds.latencies_us();
        let at = |quantile: f64| latencies_us.value_at_quantile(quantile) as f64 / 1_000.0;
        let figures = self.rounds.figures();
        let client = self.rounds.client();
        let interval = |of: FigureOf| {
            let values: Vec<f64> = figures.iter().flatten().map(of).collect();
            stats::interval(&values)
        };
        let rate_interval = interval(|repeat| repeat.rate);
        let p50_interval = interval(|repeat| repeat.latency_ms_p50);
        let p99_interval = interval(|repeat| repeat.latency_ms_p99);
        Measurement {
            count,
            seconds,
            rate: Spread::of_rounds(
                stats::value(rate_interval, rate(count, seconds)),
                round_rates.iter().copied(),
            ),
            round_rates,
            rate_interval,
            latency_ms_mean: latencies_us.mean() / 1_000.0,
            latency_ms_p50: stats::value(p50_interval, at(0.5)),
            latency_ms_p50_interval: p50_interval,
            latency_ms_p90: at(0.9),
            latency_ms_p95: at(0.95),
            latency_ms_p99: stats::value(p99_interval, at(0.99)),
            latency_ms_p99_interval: p99_interval,
            latency_ms_p999: at(0.999),
            latency_ms_max: latencies_us.max() as f64 / 1_000.0,
            errors: cost.errors.count,
            first_error: cost.errors.first,
            cpu_seconds: cost.cpu_seconds,
            peak_resident_bytes: cost.peak_resident_bytes,
            bytes: self.rounds.all().map(|round| round.bytes).sum(),
            client_cpu: client.map(|client| client.cpu_seconds / seconds),
            client_waited: client.map(|client| client.waited_seconds / seconds),
            open: self.rounds.open(),
            rounds: self.rounds,
        }
    }
}

fn rate(count: u64, seconds: f64) -> f64 {
    if seconds > 0.0 {
        count as f64 / seconds
    } else {
        0.0
    }
}

/// Lines in the order in which their parts first came, being gathered over sides, rounds and repeats.
#[derive(Debug, Clone, Default)]
pub(crate) struct Gatherer {
    sides: usize,
    lines: Vec<(&'static str, &'static str, Vec<Option<PartRounds>>)>,
}

impl Gatherer {
    pub(crate) fn new(sides: usize) -> Self {
        Self {
            sides,
            lines: Vec::new(),
        }
    }

    /// Adds a part that was measured on a side, in a repeat, counted from 0. `at_s` is its time, in
    /// seconds from the start of the run.
    pub(crate) fn add(&mut self, side: usize, repeat: u32, at_s: f64, part: WorkloadPart) {
        let known = self.lines.iter().position(|(name, ..)| *name == part.name);
        let at = known.unwrap_or_else(|| {
            self.lines
                .push((part.name, part.unit, vec![None; self.sides]));
            self.lines.len() - 1
        });
        self.lines[at].2[side]
            .get_or_insert_default()
            .add(repeat as usize, at_s, part);
    }

    /// Discards the measurements of a failed repeat.
    pub(crate) fn forget(&mut self, repeat: u32) {
        for gathered in self.lines.iter_mut().flat_map(|line| line.2.iter_mut()) {
            if let Some(some) = gathered {
                some.forget(repeat as usize);
            }
            if gathered
                .as_ref()
                .is_some_and(|some| some.rounds.0.is_empty())
            {
                *gathered = None;
            }
        }
        self.lines
            .retain(|(.., sides)| sides.iter().any(Option::is_some));
    }

    pub(crate) fn into_lines(self, workload: &str) -> Vec<Line> {
        self.lines
            .into_iter()
            .map(|(name, unit, sides)| {
                let sides: Vec<Option<Measurement>> = sides
                    .into_iter()
                    .map(|side| side.map(PartRounds::measured))
                    .collect();
                Line {
                    workload: workload.to_owned(),
                    a_over_b: a_over_b(&sides),
                    name: name.to_owned(),
                    unit: unit.to_owned(),
                    sides,
                    couchdb: couchdb::figure(name),
                }
            })
            .collect()
    }
}

/// Rounds of A and B ran one after the other, so each pair has a ratio.
fn a_over_b(sides: &[Option<Measurement>]) -> Option<Spread> {
    let [Some(a), Some(b)] = sides else {
        return None;
    };
    let whole = a.rate.value / b.rate.value;
    Spread::of_pairs(whole, &a.round_rates, &b.round_rates)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rounds::comparable;
    use crate::slice::Slice;
    use std::time::Duration;

    fn slice(latencies_us: &[u64]) -> Slice {
        let mut slice = Slice::new();
        for us in latencies_us {
            slice.record(1, Duration::from_micros(*us));
        }
        slice.seconds = 1.0;
        slice
    }

    fn part(latencies_us: &[u64]) -> WorkloadPart {
        WorkloadPart {
            name: "get",
            unit: "req",
            slice: slice(latencies_us),
            cpu_seconds: None,
            peak_resident_bytes: None,
        }
    }

    #[test]
    fn histograms_of_rounds_are_merged_as_if_it_had_been_one() {
        let mut random = fastrand::Rng::with_seed(5);
        let all: Vec<u64> = (0..5_000).map(|_| 1 + random.u64(..3_000_000)).collect();
        let together = slice(&all).latencies_us;
        let rounds = all.chunks(700).map(|some| Round::of(&slice(some), 0.0));
        let merged = Rounds(vec![rounds.collect(), vec![]]).latencies_us();
        assert_eq!(merged.len(), together.len());
        for quantile in [0.0, 0.01, 0.5, 0.9, 0.99, 0.999, 1.0] {
            assert_eq!(
                merged.value_at_quantile(quantile),
                together.value_at_quantile(quantile),
                "{quantile}"
            );
        }
    }

    #[test]
    fn percentiles_are_those_of_what_was_recorded() {
        let mut gathering = Gatherer::new(1);
        let latencies: Vec<u64> = (1..=1_000).map(|ms| ms * 1_000).collect();
        gathering.add(0, 0, 0.0, part(&latencies));
        let line = gathering.into_lines("get").remove(0);
        let side = line.sides[0].as_ref().unwrap();
        let near = |value: f64, ms: f64| assert!((value / ms - 1.0).abs() < 0.002, "{value} {ms}");
        near(side.latency_ms_mean, 500.5);
        near(side.latency_ms_p50, 500.0);
        near(side.latency_ms_p90, 900.0);
        near(side.latency_ms_p95, 950.0);
        near(side.latency_ms_p99, 990.0);
        near(side.latency_ms_p999, 999.0);
        near(side.latency_ms_max, 1_000.0);
        assert_eq!(side.rate_interval, None);
    }

    #[test]
    fn a_repeat_that_failed_is_left_out_and_the_others_stay() {
        let mut gathering = Gatherer::new(2);
        let mut good = part(&[5; 10]);
        (good.cpu_seconds, good.peak_resident_bytes) = (Some(2.0), Some(70));
        gathering.add(0, 0, 0.0, good);
        gathering.add(1, 0, 0.0, part(&[5; 10]));
        for at_s in [1.0, 2.0] {
            let mut failed = part(&[900; 10]);
            failed.slice.errors.add(7, || "refused".to_owned());
            failed.cpu_seconds = Some(5.0);
            failed.peak_resident_bytes = Some(1_000);
            gathering.add(0, 1, at_s, failed);
        }
        let cost = |gathering: &Gatherer| {
            let lines = gathering.clone().into_lines("get");
            let side = lines[0].sides[0].clone().unwrap();
            (side.cpu_seconds, side.peak_resident_bytes, side.errors)
        };
        assert_eq!(cost(&gathering), (Some(12.0), Some(1_000), 14));
        gathering.forget(1);
        let lines = gathering.clone().into_lines("get");
        assert_eq!(lines[0].sides[0].as_ref().unwrap().count, 10);
        assert!(lines[0].sides[0].as_ref().unwrap().latency_ms_max < 0.1);
        assert_eq!(cost(&gathering), (Some(2.0), Some(70), 0));
        gathering.forget(0);
        assert!(gathering.into_lines("get").is_empty());
    }

    #[test]
    fn a_figure_with_an_interval_is_the_middle_of_that_interval() {
        let mut gathering = Gatherer::new(1);
        // The slow repeat lasts longest, so it weighs most in the rate of all repeats together.
        for (repeat, seconds) in (0..).zip([1.0, 1.0, 1.0, 1.0, 1.0, 4.0]) {
            let mut one = part(&[seconds as u64 * 1_000; 300]);
            one.slice.seconds = seconds;
            gathering.add(0, repeat, 0.0, one);
        }
        let line = gathering.into_lines("get").remove(0);
        let side = line.sides[0].as_ref().unwrap();
        assert_eq!((side.count, side.seconds), (1_800, 9.0));
        let usual = 300.0 / 4.0_f64.powf(1.0 / 6.0);
        assert!((side.rate.value - usual).abs() < 1e-6, "{side:?}");
        assert_eq!(side.rate.value, side.rate_interval.unwrap().value);
        let p50 = side.latency_ms_p50_interval.unwrap().value;
        assert_eq!(side.latency_ms_p50, p50);
        let p99 = side.latency_ms_p99_interval.unwrap().value;
        assert_eq!(side.latency_ms_p99, p99);
    }

    #[test]
    fn few_requests_have_no_percentile_to_compare() {
        let names = |requests: usize| {
            let rounds = Rounds(vec![vec![Round::of(&slice(&vec![7; requests]), 0.0)]]);
            let figures = rounds.figures();
            let names = comparable(&[&figures, &figures]).into_iter();
            names.map(|(name, _)| name).collect::<Vec<_>>()
        };
        assert_eq!(names(1), ["rate"]);
        assert_eq!(names(50), ["rate", "p50"]);
        assert_eq!(names(500), ["rate", "p50", "p99"]);
    }
}
