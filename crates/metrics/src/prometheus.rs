//! Prometheus' text form, `_node/{node}/_prometheus`.

use std::fmt::Write as _;

use hdrhistogram::Histogram;
use telemetry::{BOUNDS_US, Durations};

use crate::stat::{Stat, Unit, Value, sum};

/// The quantiles of summaries, as CouchDB has them.
const QUANTILES: [f64; 6] = [0.5, 0.75, 0.9, 0.95, 0.99, 0.999];

/// Metrics that are named otherwise than their paths.
struct Renamed {
    path: &'static str,
    name: &'static str,
    label: &'static str,
    help: &'static str,
}

/// Groups of counters that are one metric with a label. The first two have no `_total` in CouchDB,
/// so they are not counters by Prometheus' rules: they are listed without a type.
const LABELLED: [Renamed; 3] = [
    Renamed {
        path: "couchdb/httpd_request_methods",
        name: "couchdb_httpd_request_methods",
        label: "method",
        help: "number of HTTP requests by method",
    },
    Renamed {
        path: "couchdb/httpd_status_codes",
        name: "couchdb_httpd_status_codes",
        label: "code",
        help: "number of HTTP responses by status code",
    },
    Renamed {
        path: "couch_log/level",
        name: "couchdb_couch_log_requests_total",
        label: "level",
        help: "number of logged messages",
    },
];

/// Pairs of counters of which CouchDB returns the sum in place of the first.
struct Sum {
    first: &'static str,
    second: &'static str,
    name: &'static str,
    help: &'static str,
}

const SUMS: [Sum; 3] = [
    Sum {
        first: "couchdb/auth_cache_hits",
        second: "couchdb/auth_cache_misses",
        name: "couchdb_auth_cache_requests_total",
        help: "number of authentication cache requests",
    },
    Sum {
        first: "couch_replicator/checkpoints/success",
        second: "couch_replicator/checkpoints/failure",
        name: "couchdb_couch_replicator_checkpoints_total",
        help: "number of checkpoint saves",
    },
    Sum {
        first: "couch_replicator/responses/success",
        second: "couch_replicator/responses/failure",
        name: "couchdb_couch_replicator_responses_total",
        help: "number of HTTP responses received by the replicator",
    },
];

/// The value of a counter.
fn counter(stats: &[Stat], path: &str) -> u64 {
    let found = stats.iter().find(|stat| stat.path == path);
    match found.map(|stat| &stat.value) {
        Some(Value::Counter(n)) => *n,
        _ => 0,
    }
}

/// The metric of a path: CouchDB's rules, and `settee_…` for those that it has not.
fn name(path: &str) -> String {
    let name = path.replace('/', "_");
    match path.split('/').next() {
        Some("settee" | "couchdb") => name,
        _ => format!("couchdb_{name}"),
    }
}

/// Text in the making.
#[derive(Default)]
pub struct Text(String);

impl Text {
    /// The head of a metric, whose samples follow.
    pub fn head(&mut self, name: &str, kind: &str, help: &str) {
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        let _ = write!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    /// One sample; the labels must be names that Prometheus allows.
    pub fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        self.0.push_str(name);
        for (i, (label, text)) in labels.iter().enumerate() {
            let text = text
                .replace('\\', "\\\\")
                .replace('"', "\\\"")
                .replace('\n', "\\n");
            let before = if i == 0 { '{' } else { ',' };
            let _ = write!(self.0, "{before}{label}=\"{text}\"");
        }
        if !labels.is_empty() {
            self.0.push('}');
        }
        let _ = writeln!(self.0, " {value}");
    }

    /// A metric of one number.
    pub fn number(&mut self, name: &str, kind: &str, help: &str, value: f64) {
        self.head(name, kind, help);
        self.sample(name, &[], value);
    }

    /// A metric of numbers by a label.
    pub fn by<T: AsRef<str>>(
        &mut self,
        (name, kind, help): (&str, &str, &str),
        label: &str,
        values: impl IntoIterator<Item = (T, f64)>,
    ) {
        self.head(name, kind, help);
        for (text, value) in values {
            self.sample(name, &[(label, text.as_ref())], value);
        }
    }

    /// The samples of a latency in microseconds as a histogram, below a head.
    pub fn buckets(&mut self, name: &str, labels: &[(&str, &str)], of: &Histogram<u64>) {
        let mut recorded = of.iter_recorded().peekable();
        let mut below = 0;
        let up_to = BOUNDS_US.map(|us| {
            while let Some(step) = recorded.next_if(|s| s.value_iterated_to() <= us) {
                below += step.count_at_value();
            }
            below
        });
        self.histogram(name, labels, (up_to, of.len(), sum(of)));
    }

    /// The samples of durations as a histogram, below a head.
    pub fn durations(&mut self, name: &str, labels: &[(&str, &str)], of: &Durations) {
        let (up_to, all, sum_us) = of.snapshot();
        self.histogram(name, labels, (up_to, all, sum_us as f64));
    }

    /// The samples of a histogram: the numbers up to each of [`BOUNDS_US`], the number of all, and
    /// their sum in microseconds.
    fn histogram(
        &mut self,
        name: &str,
        labels: &[(&str, &str)],
        (up_to, all, sum_us): ([u64; BOUNDS_US.len()], u64, f64),
    ) {
        let bucket = format!("{name}_bucket");
        for (us, below) in BOUNDS_US.into_iter().zip(up_to) {
            let bound = (us as f64 / 1e6).to_string();
            self.sample(&bucket, &with(labels, ("le", &bound)), below as f64);
        }
        self.sample(&bucket, &with(labels, ("le", "+Inf")), all as f64);
        self.sample(&format!("{name}_sum"), labels, sum_us * 1e-6);
        self.sample(&format!("{name}_count"), labels, all as f64);
    }

    /// The numbers of CouchDB's tree.
    pub fn stats(&mut self, stats: &[Stat]) {
        for stat in stats {
            match SUMS.iter().find(|sum| sum.first == stat.path) {
                None => self.stat(stat),
                Some(sum) => {
                    let all = counter(stats, sum.first) + counter(stats, sum.second);
                    self.number(sum.name, "counter", sum.help, all as f64);
                }
            }
        }
    }

    fn stat(&mut self, stat: &Stat) {
        let mut name = name(stat.path);
        match &stat.value {
            Value::Counter(n) => {
                if !name.ends_with("_total") {
                    name.push_str("_total");
                }
                self.number(&name, "counter", stat.help, *n as f64);
            }
            Value::Gauge(n) | Value::CounterThatFalls(n) => {
                // CouchDB has a gauge whose name is that of a counter, by Prometheus' rules.
                let kind = match name.ends_with("_total") {
                    true => "untyped",
                    false => "gauge",
                };
                self.number(&name, kind, stat.help, *n as f64);
            }
            Value::Labelled(counts) => self.labelled(stat, counts),
            Value::Distribution(of, unit) => {
                if *unit != Unit::Number {
                    name.push_str("_seconds");
                }
                self.summary(&name, stat.help, of, unit.in_base());
            }
        }
    }

    fn labelled(&mut self, stat: &Stat, counts: &[(String, u64)]) {
        let Some(known) = LABELLED.iter().find(|known| known.path == stat.path) else {
            return;
        };
        let kind = match known.name.ends_with("_total") {
            true => "counter",
            false => "untyped",
        };
        let counts = counts.iter().map(|(label, n)| (label, *n as f64));
        self.by((known.name, kind, known.help), known.label, counts);
    }

    fn summary(&mut self, name: &str, help: &str, of: &Histogram<u64>, one: f64) {
        self.head(name, "summary", help);
        for quantile in QUANTILES {
            let value = of.value_at_quantile(quantile) as f64 * one;
            self.sample(name, &[("quantile", &quantile.to_string())], value);
        }
        self.sample(&format!("{name}_sum"), &[], sum(of) * one);
        self.sample(&format!("{name}_count"), &[], of.len() as f64);
    }

    /// The text so far.
    pub fn finish(self) -> String {
        self.0
    }
}

/// Labels and one more.
fn with<'a>(labels: &[(&'a str, &'a str)], label: (&'a str, &'a str)) -> Vec<(&'a str, &'a str)> {
    [labels, &[label]].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_count_what_is_at_most_their_bound() {
        let mut of = telemetry::distribution();
        for us in [90, 900, 900, 40_000, 70_000_000] {
            of.saturating_record(us);
        }
        let mut text = Text::default();
        text.buckets("x", &[("route", "a\"b")], &of);
        let text = text.finish();
        for line in [
            r#"x_bucket{route="a\"b",le="0.0001"} 1"#,
            r#"x_bucket{route="a\"b",le="0.001"} 3"#,
            r#"x_bucket{route="a\"b",le="0.05"} 4"#,
            r#"x_bucket{route="a\"b",le="60"} 4"#,
            r#"x_bucket{route="a\"b",le="+Inf"} 5"#,
            r#"x_count{route="a\"b"} 5"#,
        ] {
            assert!(text.lines().any(|l| l == line), "{line} in {text}");
        }
    }

    #[test]
    fn durations_have_the_same_form() {
        let of = Durations::new();
        of.record(std::time::Duration::from_micros(300));
        of.record(std::time::Duration::from_secs(70));
        let mut text = Text::default();
        text.durations("x", &[], &of);
        let text = text.finish();
        for line in [
            r#"x_bucket{le="0.00025"} 0"#,
            r#"x_bucket{le="0.0005"} 1"#,
            r#"x_bucket{le="60"} 1"#,
            r#"x_bucket{le="+Inf"} 2"#,
            "x_sum 70.0003",
            "x_count 2",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} in {text}");
        }
    }

    #[test]
    fn paths_become_couchdbs_names() {
        assert_eq!(name("couchdb/httpd/requests"), "couchdb_httpd_requests");
        assert_eq!(name("fsync/count"), "couchdb_fsync_count");
        assert_eq!(name("settee/connections"), "settee_connections");
    }
}
