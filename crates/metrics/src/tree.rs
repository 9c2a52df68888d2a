//! CouchDB's form: a tree of JSON objects, `_node/{node}/_stats`.

use hdrhistogram::Histogram;
use serde_json::{Map, Value as Json, json};

use crate::stat::{Stat, Unit, Value};

/// The numbers as a tree by their paths.
pub fn tree(stats: &[Stat]) -> Json {
    let mut root = Map::new();
    for stat in stats {
        let help = stat.help;
        let plain = |n: u64, kind: &str| json!({"value": n, "type": kind, "desc": help});
        let value = match &stat.value {
            Value::Counter(n) | Value::CounterThatFalls(n) => plain(*n, "counter"),
            Value::Gauge(n) => plain(*n, "gauge"),
            Value::Labelled(counts) => counts
                .iter()
                .map(|(label, n)| (label.clone(), plain(*n, "counter")))
                .collect::<Map<_, _>>()
                .into(),
            Value::Distribution(of, unit) => distribution(of, *unit, help),
        };
        put(&mut root, stat.path, value);
    }
    root.into()
}

fn put(node: &mut Map<String, Json>, path: &str, value: Json) {
    let Some((first, rest)) = path.split_once('/') else {
        node.insert(path.to_owned(), value);
        return;
    };
    let below = node.entry(first).or_insert_with(|| json!({}));
    if let Json::Object(below) = below {
        put(below, rest, value);
    }
}

/// The percentiles that CouchDB returns, with their names.
const PERCENTILES: [(f64, u64); 6] = [
    (0.5, 50),
    (0.75, 75),
    (0.9, 90),
    (0.95, 95),
    (0.99, 99),
    (0.999, 999),
];

fn distribution(of: &Histogram<u64>, unit: Unit, help: &str) -> Json {
    let told = |n: f64| n * unit.in_tree();
    let at = |quantile: f64| told(of.value_at_quantile(quantile) as f64);
    let percentiles = PERCENTILES.map(|(quantile, name)| json!([name, at(quantile)]));
    json!({
        "value": {
            "min": told(of.min() as f64),
            "max": told(of.max() as f64),
            "arithmetic_mean": told(of.mean()),
            "median": at(0.5),
            "standard_deviation": told(of.stdev()),
            "percentile": percentiles,
            "n": of.len(),
        },
        "type": "histogram",
        "desc": help,
    })
}
