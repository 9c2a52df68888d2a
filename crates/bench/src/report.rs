//! The result of a run, as numbers.

use serde::Serialize;

use crate::ceilings::Ceiling;
use crate::compare::{Baseline, Comparison};
use crate::lines::{Figure, Line, Measurement, Ratio, Spread};
use crate::machine::{Busy, Machine};
use crate::profile::Flame;
use crate::sweep::Sweep;
use crate::timeline::{Event, Timeline};

/// All that a run measured.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Report {
    /// The servers or clusters, in the order of the options: A, then B.
    pub servers: Vec<Server>,
    /// Fraction of the full data set sizes.
    pub scale: f64,
    /// Seconds a timed part ran on each server.
    pub seconds: f64,
    /// Clients of the concurrent reads.
    pub connections: usize,
    /// How often everything was measured.
    pub repeats: u32,
    /// Requests per second of timed parts; `None` when each client sent as soon as it could.
    pub rate: Option<f64>,
    /// Requests that each connection of a timed part sent, instead of a time.
    pub requests: Option<u64>,
    /// Whether each request of timed parts had a connection of its own.
    pub new_connections: bool,
    /// When the run began: seconds since 1970.
    pub began_s: u64,
    /// The version of this program.
    pub version: String,
    /// The machine that the client was on.
    pub machine: Machine,
    /// Other work of the machine before the run; only measured for runs that are repeated, saved or
    /// reported.
    pub busy_before: Option<Busy>,
    /// Other work of the machine during the run.
    pub busy_during: Option<Busy>,
    /// Reasons to doubt a figure: a machine that was not idle, a client that was the limit, a rate
    /// that was not reached.
    pub warnings: Vec<String>,
    /// Upper bounds of the figures: the machine's loopback and disk, the server's cheapest reply.
    pub ceilings: Vec<Ceiling>,
    /// A against B, or this run against a saved one; empty without [`Report::repeats`] enough.
    pub comparisons: Vec<Comparison>,
    /// The saved run that this one is compared with.
    pub against: Option<Baseline>,
    /// The sweep over values of a setting or an option.
    pub sweep: Option<Sweep>,
    /// Events of the run, on the clock of [`Report::timeline`].
    pub events: Vec<Event>,
    /// Processes and machine during the run.
    #[serde(skip)]
    pub timeline: Timeline,
    /// Flame graphs.
    #[serde(skip)]
    pub flames: Vec<Flame>,
    /// The load average of this machine over the minute before the run: other users of its
    /// processors.
    pub load_average: Option<f64>,
    /// One line a measured part.
    pub lines: Vec<Line>,
    /// Single values: sizes on disk, memory.
    pub figures: Vec<Figure>,
    /// Ratios between two parts or figures of the same server.
    pub ratios: Vec<Ratio>,
    /// Skipped workloads, and remarks on the measurements.
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
    /// Vendor or product, and version, from `GET /`.
    pub product: String,
    /// The nodes' processes that are on this machine.
    pub pids: Vec<u32>,
}

/// A workload that could not be measured, and why.
#[derive(Debug, Clone, Serialize)]
pub struct Failure {
    /// The workload's name.
    pub workload: String,
    /// A, B or neither.
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

/// Parts of one workload were interleaved, so each pair of rounds has a ratio; of others, only the
/// extremes are known.
fn rate_ratio(over: &Measurement, under: &Measurement, interleaved: bool) -> Option<Spread> {
    if !interleaved {
        return Spread::over(over.rate, under.rate);
    }
    Spread::of_pairs(
        over.rate.value / under.rate.value,
        &over.round_rates,
        &under.round_rates,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gather::Gatherer;
    use crate::slice::Slice;
    use crate::system::WorkloadPart;
    use std::time::Duration;

    fn part(name: &'static str, count: u64, seconds: f64) -> WorkloadPart {
        let mut slice = Slice::new();
        for _ in 0..count {
            slice.record(1, Duration::from_millis(2));
        }
        slice.seconds = seconds;
        WorkloadPart {
            name,
            unit: "docs",
            slice,
            cpu_seconds: Some(0.5),
            peak_resident_bytes: Some(count),
        }
    }

    fn report(lines: Vec<Line>) -> Report {
        Report {
            lines,
            ..Report::default()
        }
    }

    #[test]
    fn rounds_of_two_servers_become_a_ratio_with_its_spread() {
        let mut gathering = Gatherer::new(2);
        for (a, b) in [(100, 50), (300, 100)] {
            gathering.add(0, 0, 0.0, part("single", a, 1.0));
            gathering.add(1, 0, 0.0, part("single", b, 1.0));
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
        let mut gathering = Gatherer::new(1);
        gathering.add(0, 0, 0.0, part("writers_32", 100, 1.0));
        gathering.add(0, 0, 0.0, part("single", 10, 1.0));
        let mut report = report(gathering.into_lines("w"));
        report.add_ratios(&[("writers_32", "single"), ("get", "constant")]);
        assert_eq!(report.ratios.len(), 1);
        assert_eq!(report.ratios[0].sides[0].unwrap().value, 10.0);
    }

    #[test]
    fn parts_that_took_turns_are_compared_round_by_round() {
        let mut gathering = Gatherer::new(1);
        for (get, constant) in [(10, 20), (100, 200)] {
            gathering.add(0, 0, 0.0, part("get", get, 1.0));
            gathering.add(0, 0, 0.0, part("constant", constant, 1.0));
        }
        let mut report = report(gathering.into_lines("get"));
        report.add_ratios(&[("get", "constant")]);
        let ratio = report.ratios[0].sides[0].unwrap();
        assert_eq!((ratio.min, ratio.value, ratio.max), (0.5, 0.5, 0.5));
    }

    #[test]
    fn counts_of_repeats_are_added_up_and_other_values_averaged() {
        let mut lost = Figure::new("writes lost".to_owned(), "writes", 1);
        let mut answer = Figure::new("first answer".to_owned(), "seconds", 1);
        for (count, seconds) in [(0, 1.0), (3, 2.0), (0, 1.5), (0, 2.5), (0, 0.5)] {
            lost.count(0, count);
            answer.add(0, seconds);
        }
        assert_eq!((lost.sides[0], lost.intervals[0]), (Some(3.0), None));
        let usual = answer.sides[0].unwrap();
        assert!((usual - 3.75_f64.powf(0.2)).abs() < 1e-9, "{usual}");
        assert_eq!(usual, answer.intervals[0].unwrap().value);
        let mut few = Figure::new("first answer".to_owned(), "seconds", 1);
        for seconds in [1.0, 2.0] {
            few.add(0, seconds);
        }
        assert_eq!((few.sides[0], few.intervals[0]), (Some(1.5), None));
    }

    #[test]
    fn a_ratio_to_nothing_is_left_out() {
        assert_eq!(
            Spread::over(Spread::exactly(1.0), Spread::exactly(0.0)),
            None
        );
    }
}
