//! A metric, for all output formats.

use hdrhistogram::Histogram;

/// A number, with its place in CouchDB's tree.
pub struct Stat {
    /// Its place in `_stats`, like `couchdb/httpd/requests`.
    pub path: &'static str,
    /// Its meaning, without a full stop.
    pub help: &'static str,
    /// The description.
    pub value: Value,
}

/// The value of a metric.
pub enum Value {
    /// It only grows.
    Counter(u64),
    /// A value that rises and falls.
    Gauge(u64),
    /// A gauge that CouchDB calls a counter in `_stats`.
    CounterThatFalls(u64),
    /// Counters by one label; the last segment of the path is the label's name in Prometheus' form.
    Labelled(Vec<(String, u64)>),
    /// A distribution, and the unit of its values.
    Distribution(Histogram<u64>, Unit),
}

/// The unit of a distribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Microseconds, shown in `_stats` as milliseconds.
    Milliseconds,
    /// Microseconds, shown in `_stats` unchanged.
    Microseconds,
    /// Things.
    Number,
}

impl Unit {
    /// The value of one unit in `_stats`.
    pub fn in_tree(self) -> f64 {
        match self {
            Unit::Milliseconds => 1e-3,
            Unit::Microseconds | Unit::Number => 1.0,
        }
    }

    /// The value of one unit in base units, for Prometheus.
    pub fn in_base(self) -> f64 {
        match self {
            Unit::Milliseconds | Unit::Microseconds => 1e-6,
            Unit::Number => 1.0,
        }
    }
}

/// The sum of a distribution's values, to two digits.
pub fn sum(of: &Histogram<u64>) -> f64 {
    of.mean() * of.len() as f64
}
