//! The list of all metrics: CouchDB's, as far as they apply here, and additional ones.
//!
//! Which of CouchDB's are left out, and why, is in the manual (operations/metrics.md).

mod documents;
mod replicator;
mod requests;
mod settee;

use std::time::Duration;

use database::Databases;
use hdrhistogram::Histogram;

use super::Counts;
use super::prometheus::Text;
use super::stat::{Stat, Unit, Value};
use crate::app::App;
use crate::metrics::machine;

/// All numbers of the tree, as of now.
pub fn stats(app: &App, counts: &Counts) -> Vec<Stat> {
    let mut list = List(Vec::with_capacity(96));
    requests::list(&mut list, app, counts);
    documents::list(&mut list, app, counts);
    replicator::list(&mut list, app);
    settee::list(&mut list, app, counts);
    list.0
}

struct List(Vec<Stat>);

/// A name, its meaning, and its value.
type Row = (&'static str, &'static str, u64);

impl List {
    fn push(&mut self, path: &'static str, help: &'static str, value: Value) {
        self.0.push(Stat { path, help, value });
    }

    /// Numbers that only grow.
    fn counters<const N: usize>(&mut self, rows: [Row; N]) {
        for (path, help, n) in rows {
            self.push(path, help, Value::Counter(n));
        }
    }

    /// Numbers that come and go.
    fn gauges<const N: usize>(&mut self, rows: [Row; N]) {
        for (path, help, n) in rows {
            self.push(path, help, Value::Gauge(n));
        }
    }

    /// Adds values that may fall, which CouchDB calls counters in its tree.
    fn falling<const N: usize>(&mut self, rows: [Row; N]) {
        for (path, help, n) in rows {
            self.push(path, help, Value::CounterThatFalls(n));
        }
    }

    /// How long something took.
    fn times(&mut self, path: &'static str, help: &'static str, of: Histogram<u64>) {
        self.push(path, help, Value::Distribution(of, Unit::Milliseconds));
    }
}

/// All numbers as Prometheus reads them.
pub fn prometheus(app: &App) -> String {
    let counts = app.stats.counts();
    let mut text = Text::default();
    let uptime = app.node.started.elapsed().as_secs_f64();
    // CouchDB calls it a counter, which by Prometheus' rules would be `_total`.
    text.number("couchdb_uptime_seconds", "gauge", "couchdb uptime", uptime);
    text.stats(&stats(app, &counts));
    by_route(&counts, &mut text);
    commit_holds(&mut text);
    threads(&mut text);
    machine::write(app, &mut text);
    text.finish()
}

/// Metrics of each class of requests.
fn by_route(counts: &Counts, text: &mut Text) {
    let name = "settee_request_seconds";
    let help = "time of requests to the end of their responses' bodies, by class of route";
    text.head(name, "histogram", help);
    for (route, of) in counts.routes() {
        text.buckets(name, &[("route", route.name())], &of.whole_us);
    }
    for (name, help, failed) in [
        (
            "settee_failed_requests_total",
            "requests answered with a status of 500 and above, by class of route",
            true,
        ),
        (
            "settee_refused_requests_total",
            "requests answered with a status of 400 to 499, by class of route",
            false,
        ),
    ] {
        let values = counts.routes().map(|(route, of)| {
            let n = if failed { of.failed } else { of.refused };
            (route.name(), n as f64)
        });
        text.by((name, "counter", help), "route", values);
    }
}

/// How long batches of writes held the thread that writes for all databases.
fn commit_holds(text: &mut Text) {
    let name = "settee_commit_hold_seconds";
    let help = "time that each batch of writes held the commit thread, which all databases share, without the disk's";
    text.head(name, "histogram", help);
    text.buckets(name, &[], &Databases::commit_holds());
}

/// Metrics of threads, by kind of work.
fn threads(text: &mut Text) {
    let name = "settee_thread_seconds_total";
    let help = "time of the server's threads by kind of work; idle is waiting for work";
    text.head(name, "counter", help);
    let threads = telemetry::threads();
    for of in &threads {
        let spent = of.spent.iter().filter(|(_, time)| *time > Duration::ZERO);
        for (state, time) in spent {
            let labels = [("threads", of.name.as_str()), ("state", state.name())];
            text.sample(name, &labels, time.as_secs_f64());
        }
    }
    let alive = threads.iter().map(|of| (&of.name, of.alive as f64));
    let help = "threads that have a clock by their names";
    text.by(("settee_threads", "gauge", help), "threads", alive);
}
