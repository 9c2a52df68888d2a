//! Counters of requests, for `_stats` and `_prometheus`.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use hdrhistogram::Histogram;
use parking_lot::Mutex;
use serde_json::{Value, json};

const METHODS: [&str; 7] = ["COPY", "DELETE", "GET", "HEAD", "OPTIONS", "POST", "PUT"];
/// Those that are answered; others would count as requests alone.
const STATUSES: [u16; 28] = [
    200, 201, 202, 204, 206, 301, 302, 304, 400, 401, 403, 404, 405, 406, 408, 409, 410, 412, 413,
    414, 415, 416, 421, 431, 500, 501, 503, 507,
];
/// Slower requests count as this slow, in microseconds.
const REQUEST_US_MAX: u64 = 3_600_000_000;

pub struct Stats {
    pub requests: AtomicU64,
    pub bulk_requests: AtomicU64,
    pub aborted: AtomicU64,
    pub connections: AtomicU64,
    pub document_reads: AtomicU64,
    methods: [AtomicU64; METHODS.len()],
    statuses: [AtomicU64; STATUSES.len()],
    request_us: Mutex<Histogram<u64>>,
}

impl Default for Stats {
    fn default() -> Self {
        // The bounds are valid: 1 <= low, high >= 2 * low, 2 digits.
        let histogram =
            Histogram::new_with_bounds(1, REQUEST_US_MAX, 2).expect("valid histogram bounds");
        Stats {
            requests: AtomicU64::default(),
            bulk_requests: AtomicU64::default(),
            aborted: AtomicU64::default(),
            connections: AtomicU64::default(),
            document_reads: AtomicU64::default(),
            methods: Default::default(),
            statuses: Default::default(),
            request_us: Mutex::new(histogram),
        }
    }
}

impl Stats {
    pub fn record(&self, method: &str, status: u16, us: u64) {
        self.requests.fetch_add(1, Relaxed);
        if let Ok(i) = METHODS.binary_search(&method) {
            self.methods[i].fetch_add(1, Relaxed);
        }
        if let Ok(i) = STATUSES.binary_search(&status) {
            self.statuses[i].fetch_add(1, Relaxed);
        }
        self.request_us.lock().saturating_record(us.max(1));
    }

    /// CouchDB's tree of metrics, those that exist here.
    pub fn tree(&self, engine: &database::Stats, open_feeds: usize) -> Value {
        let counter = |n: u64, desc: &str| json!({"value": n, "type": "counter", "desc": desc});
        let methods: serde_json::Map<_, _> = METHODS
            .iter()
            .zip(&self.methods)
            .map(|(m, n)| {
                let desc = format!("number of HTTP {m} requests");
                ((*m).to_owned(), counter(n.load(Relaxed), &desc))
            })
            .collect();
        let statuses: serde_json::Map<_, _> = STATUSES
            .iter()
            .zip(&self.statuses)
            .map(|(s, n)| {
                let desc = format!("number of HTTP {s} responses");
                (s.to_string(), counter(n.load(Relaxed), &desc))
            })
            .collect();
        json!({
            "couchdb": {
                "httpd": {
                    "requests": counter(self.requests.load(Relaxed), "number of HTTP requests"),
                    "bulk_requests": counter(self.bulk_requests.load(Relaxed), "number of bulk requests"),
                    "aborted_requests": counter(self.aborted.load(Relaxed), "number of aborted requests"),
                    "clients_requesting_changes": counter(open_feeds as u64, "number of clients for continuous _changes"),
                },
                "httpd_request_methods": methods,
                "httpd_status_codes": statuses,
                "request_time": self.request_time(),
                "database_reads": counter(self.document_reads.load(Relaxed), "number of times a document was read from a database"),
                "database_writes": counter(engine.document_writes, "number of times a database was changed"),
                "document_inserts": counter(engine.document_inserts, "number of documents inserted"),
                "document_writes": counter(engine.document_writes, "number of document write operations"),
                "commits": counter(engine.commit_batches, "number of commits performed"),
            },
            "settee": {
                "commit_queue": {
                    "requests": counter(engine.commits, "number of requests that the commit queue took"),
                    "batches": counter(engine.commit_batches, "number of batches that they became"),
                },
                "memtable_bytes": {"value": engine.memtable_bytes, "type": "gauge", "desc": "bytes in memory tables"},
                "block_cache_bytes": {"value": engine.block_cache_bytes, "type": "gauge", "desc": "bytes in the block cache"},
                "connections": {"value": self.connections.load(Relaxed), "type": "gauge", "desc": "open client connections"},
            },
        })
    }

    /// The distribution of request times in milliseconds, in CouchDB's shape.
    fn request_time(&self) -> Value {
        let h = self.request_us.lock();
        let ms = |us: f64| us / 1000.0;
        let percentile = |p: f64| json!([p, ms(h.value_at_quantile(p / 100.0) as f64)]);
        json!({
            "value": {
                "min": ms(h.min() as f64),
                "max": ms(h.max() as f64),
                "arithmetic_mean": ms(h.mean()),
                "median": ms(h.value_at_quantile(0.5) as f64),
                "standard_deviation": ms(h.stdev()),
                "percentile": [
                    percentile(50.0), percentile(75.0), percentile(90.0),
                    percentile(95.0), percentile(99.0), percentile(99.9),
                ],
                "n": h.len(),
            },
            "type": "histogram",
            "desc": "length of a request inside the server, in milliseconds",
        })
    }

    /// The same numbers as Prometheus reads them: names are the paths of [`Stats::tree`].
    pub fn prometheus(&self, engine: &database::Stats, open_feeds: usize, uptime_s: u64) -> String {
        let mut out =
            format!("# TYPE couchdb_uptime_seconds counter\ncouchdb_uptime_seconds {uptime_s}\n");
        if let Value::Object(tree) = self.tree(engine, open_feeds) {
            for (name, part) in &tree {
                write_metrics(name, part, &mut out);
            }
        }
        out
    }
}

/// Groups of counters that are one metric with a label.
const LABELS: [(&str, &str); 2] = [
    ("couchdb_httpd_request_methods", "method"),
    ("couchdb_httpd_status_codes", "code"),
];

/// Appends the metrics of a part of the tree.
fn write_metrics(name: &str, part: &Value, out: &mut String) {
    use std::fmt::Write;
    let Value::Object(members) = part else {
        return;
    };
    if let Some((_, label)) = LABELS.iter().find(|(labelled, _)| *labelled == name) {
        let _ = writeln!(out, "# TYPE {name} counter");
        for (value, counter) in members {
            let _ = writeln!(out, "{name}{{{label}=\"{value}\"}} {}", counter["value"]);
        }
        return;
    }
    let (Some(kind), Some(value)) = (members.get("type"), members.get("value")) else {
        for (member, part) in members {
            write_metrics(&format!("{name}_{member}"), part, out);
        }
        return;
    };
    match kind.as_str() {
        Some("counter") => {
            let _ = writeln!(out, "# TYPE {name}_total counter\n{name}_total {value}");
        }
        Some("histogram") => {
            let _ = writeln!(out, "# TYPE {name}_seconds summary");
            for pair in value["percentile"].as_array().into_iter().flatten() {
                if let (Some(percent), Some(ms)) = (pair[0].as_f64(), pair[1].as_f64()) {
                    let (quantile, seconds) = (percent / 100.0, ms / 1000.0);
                    let _ = writeln!(out, "{name}_seconds{{quantile=\"{quantile}\"}} {seconds}");
                }
            }
            let _ = writeln!(out, "{name}_seconds_count {}", value["n"]);
        }
        _ => {
            let _ = writeln!(out, "# TYPE {name} gauge\n{name} {value}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The paths of all numbers of a tree, with how the last line of each begins.
    fn names(name: &str, part: &Value, found: &mut Vec<String>) {
        for (member, part) in part.as_object().into_iter().flatten() {
            let name = format!("{name}_{member}");
            match part.get("type").and_then(Value::as_str) {
                Some("counter") => found.push(name),
                Some("gauge") => found.push(format!("{name} ")),
                Some(_) => found.push(format!("{name}_seconds_count ")),
                None => names(&name, part, found),
            }
        }
    }

    #[test]
    fn prometheus_reads_every_number_of_the_tree() {
        let (stats, engine) = (Stats::default(), database::Stats::default());
        stats.record("GET", 503, 1_500);
        let text = stats.prometheus(&engine, 3, 7);
        let mut expected = vec![];
        for (name, part) in stats.tree(&engine, 3).as_object().unwrap() {
            names(name, part, &mut expected);
        }
        for name in expected {
            let (group, last) = name.rsplit_once('_').unwrap();
            let labelled = LABELS.iter().find(|(labelled, _)| *labelled == group);
            let line = match labelled {
                Some((group, label)) => format!("{group}{{{label}=\"{last}\"}} "),
                None if name.ends_with(' ') => name,
                None => format!("{name}_total "),
            };
            assert!(
                text.lines().any(|l| l.starts_with(&line)),
                "{line} in {text}"
            );
        }
        assert!(text.contains("couchdb_httpd_status_codes{code=\"503\"} 1\n"));
        assert!(text.contains("couchdb_httpd_clients_requesting_changes_total 3\n"));
        assert!(text.contains("couchdb_uptime_seconds 7\n"));
    }

    #[test]
    fn lists_that_are_searched_are_sorted() {
        assert!(METHODS.is_sorted());
        assert!(STATUSES.is_sorted());
    }
}
