//! The result of a run, as numbers.

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::quoted::{self, Quoted};
use crate::side::Part;
use crate::slice::{Errors, new_histogram};

/// All that a run measured.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The servers or clusters, in the order of the options: A, then B.
    pub servers: Vec<Server>,
    /// Fraction of the full data set sizes.
    pub scale: f64,
    /// Seconds a timed part ran on each server.
    pub seconds: f64,
    /// Clients of the concurrent reads.
    pub connections: usize,
    /// The load average of this machine over the minute before the run: who else took its processors.
    pub load_average: Option<f64>,
    /// One line a measured part.
    pub lines: Vec<Line>,
    /// Single values: sizes on disk, memory.
    pub figures: Vec<Figure>,
    /// Ratios between two parts or figures of the same server.
    pub ratios: Vec<Ratio>,
    /// What was skipped, and remarks on how something was measured.
    pub notes: Vec<String>,
    /// Workloads that could not be measured.
    pub failures: Vec<Failure>,
}

/// A server or a cluster that was measured.
#[derive(Debug, Clone, Serialize)]
pub struct Server {
    /// URLs of its nodes without credentials, with spaces between them.
    pub url: String,
    /// How many nodes were measured; 1 for a server alone.
    pub nodes: usize,
    /// What `GET /` says: vendor or product, and version.
    pub product: String,
    /// The nodes' processes that are on this machine.
    pub pids: Vec<u32>,
}

/// A part of a workload.
#[derive(Debug, Clone, Serialize)]
pub struct Line {
    /// The workload that the part belongs to.
    pub workload: String,
    /// The part's name.
    pub name: String,
    /// What the rate counts: docs, req, rows.
    pub unit: String,
    /// One entry a server; none where it was not measured.
    pub sides: Vec<Option<Measured>>,
    /// A's rate over B's, when there are two servers.
    pub a_over_b: Option<Spread>,
    /// CouchDB's figure from the manual: quoted, not measured in this run.
    pub quoted: Option<Quoted>,
}

/// A part's measurement on one server.
#[derive(Debug, Clone, Serialize)]
pub struct Measured {
    /// Units that succeeded.
    pub count: u64,
    /// Measured time in seconds.
    pub seconds: f64,
    /// Units a second over all rounds, and the slowest and fastest round.
    pub rate: Spread,
    /// Units a second in each round.
    pub round_rates: Vec<f64>,
    /// Median latency of a request in milliseconds.
    pub latency_ms_p50: f64,
    /// 95th percentile in milliseconds.
    pub latency_ms_p95: f64,
    /// 99th percentile in milliseconds.
    pub latency_ms_p99: f64,
    /// Slowest request in milliseconds.
    pub latency_ms_max: f64,
    /// Requests or documents that failed.
    pub errors: u64,
    /// The first failure: status and body.
    pub first_error: Option<String>,
    /// CPU time of the nodes' processes, user and system.
    pub cpu_seconds: Option<f64>,
    /// Peak resident memory of the nodes' processes during the part, in bytes, added up.
    pub peak_resident_bytes: Option<u64>,
}

/// A value with its extremes over the rounds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spread {
    /// The value over all rounds.
    pub value: f64,
    /// The lowest round.
    pub min: f64,
    /// The highest round.
    pub max: f64,
}

/// A single value.
#[derive(Debug, Clone, Serialize)]
pub struct Figure {
    /// What it is.
    pub name: String,
    /// bytes, seconds, ….
    pub unit: String,
    /// One entry a server.
    pub sides: Vec<Option<f64>>,
    /// CouchDB's figure from the manual: quoted, not measured in this run.
    pub quoted: Option<Quoted>,
}

/// One part or figure over another, on the same server.
#[derive(Debug, Clone, Serialize)]
pub struct Ratio {
    /// Numerator.
    pub over: String,
    /// Denominator.
    pub under: String,
    /// One entry a server.
    pub sides: Vec<Option<Spread>>,
}

/// A workload that could not be measured, and why.
#[derive(Debug, Clone, Serialize)]
pub struct Failure {
    /// The workload's name.
    pub workload: String,
    /// A, B or none.
    pub reason: String,
}

impl Report {
    /// Errors counted in all parts on all servers.
    pub fn errors(&self) -> u64 {
        self.lines
            .iter()
            .flat_map(|line| line.sides.iter().flatten())
            .map(|measured| measured.errors)
            .sum()
    }

    /// Computes a ratio for every pair whose two members were measured.
    pub(crate) fn add_ratios(&mut self, pairs: &[(&str, &str)]) {
        for (over, under) in pairs {
            let rates = self.line_ratio(over, under);
            if let Some(sides) = rates.or_else(|| self.figure_ratio(over, under)) {
                self.ratios.push(Ratio {
                    over: (*over).to_owned(),
                    under: (*under).to_owned(),
                    sides,
                });
            }
        }
    }

    fn line_ratio(&self, over: &str, under: &str) -> Option<Vec<Option<Spread>>> {
        let line = |name: &str| self.lines.iter().find(|line| line.name == name);
        let (over, under) = (line(over)?, line(under)?);
        let interleaved = over.workload == under.workload;
        let pairs = over.sides.iter().zip(&under.sides);
        Some(
            pairs
                .map(|(a, b)| rate_ratio(a.as_ref()?, b.as_ref()?, interleaved))
                .collect(),
        )
    }

    fn figure_ratio(&self, over: &str, under: &str) -> Option<Vec<Option<Spread>>> {
        let figure = |name: &str| self.figures.iter().find(|figure| figure.name == name);
        let (over, under) = (figure(over)?, figure(under)?);
        let pairs = over.sides.iter().zip(&under.sides);
        Some(
            pairs
                .map(|(over, under)| {
                    Spread::over(Spread::exactly((*over)?), Spread::exactly((*under)?))
                })
                .collect(),
        )
    }
}

impl Spread {
    pub(crate) fn exactly(value: f64) -> Self {
        Self {
            value,
            min: value,
            max: value,
        }
    }

    /// The quotient with the widest extremes that the two spreads allow; none where it is not finite.
    pub(crate) fn over(numerator: Self, denominator: Self) -> Option<Self> {
        let spread = Self {
            value: numerator.value / denominator.value,
            min: numerator.min / denominator.max,
            max: numerator.max / denominator.min,
        };
        spread.value.is_finite().then_some(spread)
    }

    /// A quotient with its extremes over pairs of rounds; none where it is not finite.
    fn of_pairs(value: f64, over: &[f64], under: &[f64]) -> Option<Self> {
        let ratios = over.iter().zip(under).map(|(over, under)| over / under);
        let spread = Self::of_rounds(value, ratios.filter(|ratio| ratio.is_finite()));
        value.is_finite().then_some(spread)
    }

    fn of_rounds(value: f64, rounds: impl Iterator<Item = f64>) -> Self {
        rounds.fold(
            Self {
                value,
                min: f64::INFINITY,
                max: f64::NEG_INFINITY,
            },
            |spread, round| Self {
                value,
                min: spread.min.min(round),
                max: spread.max.max(round),
            },
        )
    }
}

/// The rounds of one part on one server, until all have been run.
#[derive(Debug, Clone)]
pub(crate) struct Gathered {
    count: u64,
    seconds: f64,
    round_rates: Vec<f64>,
    latencies_us: Histogram<u64>,
    errors: Errors,
    cpu_seconds: Option<f64>,
    peak_resident_bytes: Option<u64>,
}

impl Gathered {
    fn new() -> Self {
        Self {
            count: 0,
            seconds: 0.0,
            round_rates: Vec::new(),
            latencies_us: new_histogram(),
            errors: Errors::default(),
            cpu_seconds: None,
            peak_resident_bytes: None,
        }
    }

    fn add(&mut self, part: Part) {
        self.round_rates.push(part.slice.rate());
        self.count += part.slice.count;
        self.seconds += part.slice.seconds;
        // Both have the same bounds, so that nothing can be out of range.
        let _ = self.latencies_us.add(&part.slice.latencies_us);
        self.errors.merge(part.slice.errors);
        if let Some(seconds) = part.cpu_seconds {
            *self.cpu_seconds.get_or_insert(0.0) += seconds;
        }
        self.peak_resident_bytes = self.peak_resident_bytes.max(part.peak_resident_bytes);
    }

    fn measured(self) -> Measured {
        let rate = if self.seconds > 0.0 {
            self.count as f64 / self.seconds
        } else {
            0.0
        };
        let at = |quantile: f64| self.latencies_us.value_at_quantile(quantile) as f64 / 1_000.0;
        Measured {
            count: self.count,
            seconds: self.seconds,
            rate: Spread::of_rounds(rate, self.round_rates.iter().copied()),
            round_rates: self.round_rates,
            latency_ms_p50: at(0.5),
            latency_ms_p95: at(0.95),
            latency_ms_p99: at(0.99),
            latency_ms_max: self.latencies_us.max() as f64 / 1_000.0,
            errors: self.errors.count,
            first_error: self.errors.first,
            cpu_seconds: self.cpu_seconds,
            peak_resident_bytes: self.peak_resident_bytes,
        }
    }
}

/// Lines in the order in which their parts first came, being gathered over sides and rounds.
pub(crate) struct Gathering {
    sides: usize,
    lines: Vec<(&'static str, &'static str, Vec<Option<Gathered>>)>,
}

impl Gathering {
    pub(crate) fn new(sides: usize) -> Self {
        Self {
            sides,
            lines: Vec::new(),
        }
    }

    pub(crate) fn add(&mut self, side: usize, part: Part) {
        let known = self.lines.iter().position(|(name, ..)| *name == part.name);
        let at = known.unwrap_or_else(|| {
            self.lines
                .push((part.name, part.unit, vec![None; self.sides]));
            self.lines.len() - 1
        });
        self.lines[at].2[side]
            .get_or_insert_with(Gathered::new)
            .add(part);
    }

    pub(crate) fn into_lines(self, workload: &str) -> Vec<Line> {
        self.lines
            .into_iter()
            .map(|(name, unit, sides)| Line {
                workload: workload.to_owned(),
                a_over_b: a_over_b(&sides),
                name: name.to_owned(),
                unit: unit.to_owned(),
                sides: sides
                    .into_iter()
                    .map(|side| side.map(Gathered::measured))
                    .collect(),
                quoted: quoted::figure(name),
            })
            .collect()
    }
}

/// Parts of one workload took turns, so each pair of rounds is a ratio of its own; of others, only the extremes are known.
fn rate_ratio(over: &Measured, under: &Measured, interleaved: bool) -> Option<Spread> {
    if !interleaved {
        return Spread::over(over.rate, under.rate);
    }
    Spread::of_pairs(
        over.rate.value / under.rate.value,
        &over.round_rates,
        &under.round_rates,
    )
}

/// Rounds of A and B ran one after the other, so each pair is a ratio of its own.
fn a_over_b(sides: &[Option<Gathered>]) -> Option<Spread> {
    let [Some(a), Some(b)] = sides else {
        return None;
    };
    let whole = (a.count as f64 / a.seconds) / (b.count as f64 / b.seconds);
    Spread::of_pairs(whole, &a.round_rates, &b.round_rates)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slice::Slice;
    use std::time::Duration;

    fn part(name: &'static str, count: u64, seconds: f64) -> Part {
        let mut slice = Slice::new();
        for _ in 0..count {
            slice.record(1, Duration::from_millis(2));
        }
        slice.seconds = seconds;
        Part {
            name,
            unit: "docs",
            slice,
            cpu_seconds: Some(0.5),
            peak_resident_bytes: Some(count),
        }
    }

    fn report(lines: Vec<Line>) -> Report {
        Report {
            servers: Vec::new(),
            scale: 1.0,
            seconds: 1.0,
            connections: 1,
            load_average: None,
            lines,
            figures: Vec::new(),
            ratios: Vec::new(),
            notes: Vec::new(),
            failures: Vec::new(),
        }
    }

    #[test]
    fn rounds_of_two_servers_become_a_ratio_with_its_spread() {
        let mut gathering = Gathering::new(2);
        for (a, b) in [(100, 50), (300, 100)] {
            gathering.add(0, part("single", a, 1.0));
            gathering.add(1, part("single", b, 1.0));
        }
        let lines = gathering.into_lines("single");
        let line = &lines[0];
        let expected = Spread {
            value: 400.0 / 150.0,
            min: 2.0,
            max: 3.0,
        };
        assert_eq!(line.a_over_b, Some(expected));
        let a = line.sides[0].as_ref().unwrap();
        assert_eq!(
            (a.rate.value, a.rate.min, a.rate.max),
            (200.0, 100.0, 300.0)
        );
        assert_eq!(
            (a.cpu_seconds, a.peak_resident_bytes),
            (Some(1.0), Some(300))
        );
        assert!((a.latency_ms_p50 - 2.0).abs() < 0.01);
    }

    #[test]
    fn parts_are_compared_only_when_both_were_measured() {
        let mut gathering = Gathering::new(1);
        gathering.add(0, part("writers_32", 100, 1.0));
        gathering.add(0, part("single", 10, 1.0));
        let mut report = report(gathering.into_lines("w"));
        report.add_ratios(&[("writers_32", "single"), ("get", "constant")]);
        assert_eq!(report.ratios.len(), 1);
        assert_eq!(report.ratios[0].sides[0].unwrap().value, 10.0);
    }

    #[test]
    fn parts_that_took_turns_are_compared_round_by_round() {
        let mut gathering = Gathering::new(1);
        for (get, constant) in [(10, 20), (100, 200)] {
            gathering.add(0, part("get", get, 1.0));
            gathering.add(0, part("constant", constant, 1.0));
        }
        let mut report = report(gathering.into_lines("get"));
        report.add_ratios(&[("get", "constant")]);
        let ratio = report.ratios[0].sides[0].unwrap();
        assert_eq!((ratio.min, ratio.value, ratio.max), (0.5, 0.5, 0.5));
    }

    #[test]
    fn a_ratio_to_nothing_is_left_out() {
        assert_eq!(
            Spread::over(Spread::exactly(1.0), Spread::exactly(0.0)),
            None
        );
    }
}
