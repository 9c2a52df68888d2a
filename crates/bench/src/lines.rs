//! Lines of the report: parts and single values, each with a column for each server.

use serde::Serialize;

use crate::couchdb::{self, CouchDbFigure};
use crate::pace::OpenLoop;
use crate::rounds::Rounds;
use crate::stats::{self, Interval};

/// A part of a workload.
#[derive(Debug, Clone, Serialize)]
pub struct Line {
    /// The workload that the part belongs to.
    pub workload: String,
    /// The part's name.
    pub name: String,
    /// The unit of the rate: docs, req, rows.
    pub unit: String,
    /// One entry per server; `None` where it was not measured.
    pub sides: Vec<Option<Measurement>>,
    /// A's rate over B's, when there are two servers.
    pub a_over_b: Option<Spread>,
    /// CouchDB's figure from the manual: quoted, not measured in this run.
    pub couchdb: Option<CouchDbFigure>,
}

/// A part's measurement on one server.
#[derive(Debug, Clone, Serialize)]
pub struct Measurement {
    /// Units that succeeded.
    pub count: u64,
    /// Measured time in seconds.
    pub seconds: f64,
    /// Units a second, and the slowest and fastest round. Where there is an interval, the value is
    /// the interval's: the geometric mean over the repeats. Otherwise it is `count` over `seconds`.
    pub rate: Spread,
    /// Units a second in each round.
    pub round_rates: Vec<f64>,
    /// The rate's 95 % interval over the repeats.
    pub rate_interval: Option<Interval>,
    /// Average latency of a request in milliseconds.
    pub latency_ms_mean: f64,
    /// Median latency in milliseconds: that of the interval if there is one, otherwise of all
    /// requests together.
    pub latency_ms_p50: f64,
    /// The median's interval over the repeats.
    pub latency_ms_p50_interval: Option<Interval>,
    /// 90th percentile in milliseconds.
    pub latency_ms_p90: f64,
    /// 95th percentile in milliseconds.
    pub latency_ms_p95: f64,
    /// 99th percentile in milliseconds: that of the interval if there is one, otherwise of all
    /// requests together.
    pub latency_ms_p99: f64,
    /// The 99th percentile's interval over the repeats.
    pub latency_ms_p99_interval: Option<Interval>,
    /// 99.9th percentile in milliseconds.
    pub latency_ms_p999: f64,
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
    /// Bytes that the load client sent and received.
    pub bytes: u64,
    /// Processors that the load client's thread used, at most one; `None` where it did not measure.
    pub client_cpu: Option<f64>,
    /// Share of the time in which the load client was ready to run, and all processors were taken.
    pub client_waited: Option<f64>,
    /// For parts that were sent at a rate.
    pub open: Option<OpenLoop>,
    /// All rounds, with their latencies.
    #[serde(skip)]
    pub(crate) rounds: Rounds,
}

/// The names of [`Measurement::latencies_ms`], in tables.
pub(crate) const LATENCIES: [&str; 7] = ["mean", "p50", "p90", "p95", "p99", "p99.9", "max"];

impl Measurement {
    /// Returns the mean, the percentiles and the maximum, in milliseconds.
    pub(crate) fn latencies_ms(&self) -> [f64; 7] {
        [
            self.latency_ms_mean,
            self.latency_ms_p50,
            self.latency_ms_p90,
            self.latency_ms_p95,
            self.latency_ms_p99,
            self.latency_ms_p999,
            self.latency_ms_max,
        ]
    }
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
    /// Its name.
    pub name: String,
    /// bytes, seconds, ….
    pub unit: String,
    /// One entry per server: the value. Of several repeats it is the average (the geometric mean
    /// where there is an interval), and of counts, like lost writes, the sum.
    pub sides: Vec<Option<f64>>,
    /// One entry a server: the interval over the repeats; `None` for counts.
    pub intervals: Vec<Option<Interval>>,
    /// Each server's value in each repeat.
    #[serde(skip)]
    pub(crate) repeats: Vec<Vec<f64>>,
    /// CouchDB's figure from the manual: quoted, not measured in this run.
    pub couchdb: Option<CouchDbFigure>,
}

impl Figure {
    /// Without a value yet.
    pub(crate) fn new(name: String, unit: &str, columns: usize) -> Self {
        Self {
            couchdb: couchdb::figure(&name),
            name,
            unit: unit.to_owned(),
            sides: vec![None; columns],
            intervals: vec![None; columns],
            repeats: vec![Vec::new(); columns],
        }
    }

    /// Adds a count of a repeat on a side.
    pub(crate) fn count(&mut self, side: usize, count: u64) {
        let values = &mut self.repeats[side];
        values.push(count as f64);
        self.sides[side] = Some(values.iter().sum());
    }

    /// Adds a value of a repeat on a side.
    pub(crate) fn add(&mut self, side: usize, value: f64) {
        let values = &mut self.repeats[side];
        values.push(value);
        let average = values.iter().sum::<f64>() / values.len() as f64;
        self.intervals[side] = stats::interval(values);
        self.sides[side] = Some(stats::value(self.intervals[side], average));
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

    /// The quotient with the widest extremes that the two spreads allow; `None` where it is not
    /// finite.
    pub(crate) fn over(numerator: Self, denominator: Self) -> Option<Self> {
        let spread = Self {
            value: numerator.value / denominator.value,
            min: numerator.min / denominator.max,
            max: numerator.max / denominator.min,
        };
        spread.value.is_finite().then_some(spread)
    }

    /// A quotient with its extremes over pairs of rounds; `None` where it is not finite.
    pub(crate) fn of_pairs(value: f64, over: &[f64], under: &[f64]) -> Option<Self> {
        let ratios = over.iter().zip(under).map(|(over, under)| over / under);
        let spread = Self::of_rounds(value, ratios.filter(|ratio| ratio.is_finite()));
        value.is_finite().then_some(spread)
    }

    pub(crate) fn of_rounds(value: f64, rounds: impl Iterator<Item = f64>) -> Self {
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
