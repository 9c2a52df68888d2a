//! Counters of requests, for `_stats` and `_prometheus`.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use hdrhistogram::Histogram;
use parking_lot::Mutex;
use serde_json::{Value, json};

const METHODS: [&str; 7] = ["COPY", "DELETE", "GET", "HEAD", "OPTIONS", "POST", "PUT"];
const STATUSES: [u16; 18] = [
    200, 201, 202, 204, 206, 301, 304, 400, 401, 403, 404, 405, 406, 409, 412, 413, 415, 500,
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

    /// The same numbers as Prometheus reads them.
    pub fn prometheus(&self, engine: &database::Stats, uptime_s: u64) -> String {
        use std::fmt::Write;
        let mut out = String::new();
        let mut metric = |name: &str, kind: &str, lines: &[(String, u64)]| {
            let _ = writeln!(out, "# TYPE {name} {kind}");
            for (labels, value) in lines {
                let _ = writeln!(out, "{name}{labels} {value}");
            }
        };
        let one = |n: u64| vec![(String::new(), n)];
        metric("couchdb_uptime_seconds", "counter", &one(uptime_s));
        metric(
            "couchdb_httpd_requests_total",
            "counter",
            &one(self.requests.load(Relaxed)),
        );
        let methods: Vec<_> = METHODS
            .iter()
            .zip(&self.methods)
            .map(|(m, n)| (format!("{{method=\"{m}\"}}"), n.load(Relaxed)))
            .collect();
        metric("couchdb_httpd_request_methods", "counter", &methods);
        let statuses: Vec<_> = STATUSES
            .iter()
            .zip(&self.statuses)
            .map(|(s, n)| (format!("{{code=\"{s}\"}}"), n.load(Relaxed)))
            .collect();
        metric("couchdb_httpd_status_codes", "counter", &statuses);
        metric(
            "couchdb_document_writes_total",
            "counter",
            &one(engine.document_writes),
        );
        metric(
            "couchdb_commits_total",
            "counter",
            &one(engine.commit_batches),
        );
        metric(
            "settee_memtable_bytes",
            "gauge",
            &one(engine.memtable_bytes),
        );
        metric(
            "settee_block_cache_bytes",
            "gauge",
            &one(engine.block_cache_bytes),
        );
        out
    }
}
