//! Collects metrics.

use hdrhistogram::Histogram;

use crate::stat::{Stat, Unit, Value};

/// Metrics, in the order in which they are shown.
pub struct List(Vec<Stat>);

/// A name, its meaning, and its value.
pub type Row = (&'static str, &'static str, u64);

impl Default for List {
    fn default() -> List {
        List(Vec::with_capacity(96))
    }
}

impl List {
    /// The metrics.
    pub fn into_stats(self) -> Vec<Stat> {
        self.0
    }

    /// Adds a metric.
    pub fn push(&mut self, path: &'static str, help: &'static str, value: Value) {
        self.0.push(Stat { path, help, value });
    }

    /// Numbers that only grow.
    pub fn counters<const N: usize>(&mut self, rows: [Row; N]) {
        for (path, help, n) in rows {
            self.push(path, help, Value::Counter(n));
        }
    }

    /// Numbers that come and go.
    pub fn gauges<const N: usize>(&mut self, rows: [Row; N]) {
        for (path, help, n) in rows {
            self.push(path, help, Value::Gauge(n));
        }
    }

    /// Adds values that may fall, which CouchDB calls counters in its tree.
    pub fn falling<const N: usize>(&mut self, rows: [Row; N]) {
        for (path, help, n) in rows {
            self.push(path, help, Value::CounterThatFalls(n));
        }
    }

    /// How long something took.
    pub fn times(&mut self, path: &'static str, help: &'static str, of: Histogram<u64>) {
        self.push(path, help, Value::Distribution(of, Unit::Milliseconds));
    }
}
