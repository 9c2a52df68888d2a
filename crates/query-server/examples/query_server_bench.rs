//! Measures the documents per second that query servers of other languages map: one at a time, and
//! pipelined.
//!
//! `cargo run --release -p query-server --example query_server_bench [seconds for each]`; languages
//! whose program is not installed are left out. `COUCHPY` may name Python's query server.

use std::time::{Duration, Instant};

use query_server::language::{Doc, Emits, Indexes, MapGroup, Owner};
use query_server::{Pools, Settings, builtin_command};

const DOCS: usize = 1000;

fn main() {
    let seconds = std::env::args()
        .nth(1)
        .and_then(|text| text.parse().ok())
        .unwrap_or(1.0);
    let mut settings = Settings::default();
    for language in ["erlang", "node"] {
        settings
            .commands
            .extend(builtin_command(language).map(|command| (language.to_owned(), command)));
    }
    let couchpy = std::env::var("COUCHPY").unwrap_or_else(|_| {
        format!(
            "{}/.cache/settee/couchpy/bin/couchpy",
            std::env::var("HOME").unwrap_or_default()
        )
    });
    if std::path::Path::new(&couchpy).is_file() {
        settings
            .commands
            .insert("python".to_owned(), format!("'{couchpy}'"));
    }
    let languages: Vec<String> = settings.commands.keys().cloned().collect();
    let pools = Pools::new(settings).expect("a thread can be started");

    println!("thousand documents a second, median of rounds (least to most)\n");
    println!(
        "{:8} {:>9} {:>22} {:>22} {:>7}",
        "server", "bytes", "one at a time", "sent ahead", "ratio"
    );
    for language in &languages {
        for size in [300, 3000, 15_000] {
            let bodies: Vec<String> = (0..DOCS).map(|n| body(n, size)).collect();
            let one = measure(&pools, language, &bodies, 1, seconds);
            let ahead = measure(&pools, language, &bodies, DOCS, seconds);
            let show = |rates: &[f64]| {
                let (least, most) = (rates[0], rates[rates.len() - 1]);
                format!("{:6.1} ({least:.1} to {most:.1})", median(rates))
            };
            println!(
                "{language:8} {size:>9} {:>22} {:>22} {:>7.1}",
                show(&one),
                show(&ahead),
                median(&ahead) / median(&one)
            );
        }
    }
}

fn median(sorted: &[f64]) -> f64 {
    sorted[sorted.len() / 2]
}

/// Returns a nested document of about `size` bytes.
fn body(n: usize, size: usize) -> String {
    let mut items = String::new();
    while items.len() + 120 < size {
        let at = items.len();
        items.push_str(&format!(
            r#"{{"sku":"SKU-{at}","count":{},"price":{}.25,"tags":["a","b"]}},"#,
            n % 7,
            at % 100
        ));
    }
    items.pop();
    format!(
        r#"{{"type":"order","n":{n},"customer":{{"name":"Name {n}","city":"Köln"}},"items":[{items}]}}"#
    )
}

fn source(language: &str) -> &'static str {
    match language {
        "erlang" => {
            r#"fun({Doc}) -> {Customer} = proplists:get_value(<<"customer">>, Doc),
                Emit([proplists:get_value(<<"city">>, Customer), proplists:get_value(<<"n">>, Doc)], 1) end"#
        }
        "python" => "def view(doc):\n    yield [doc['customer']['city'], doc['n']], 1",
        _ => "function (doc) { emit([doc.customer.city, doc.n], 1); }",
    }
}

/// Rates of rounds, sorted.
fn measure(
    pools: &Pools,
    language: &str,
    bodies: &[String],
    at_once: usize,
    seconds: f64,
) -> Vec<f64> {
    let group = MapGroup {
        language: language.to_owned(),
        maps: vec![source(language).to_owned()],
        lib: None,
        owner: Owner::default(),
        records: false,
        tells: false,
        leaves_out: false,
        indexes: Indexes::No,
    };
    let mut mapper = pools.mapper(&group).expect("the language is configured");
    let docs: Vec<Doc<'_>> = bodies
        .iter()
        .map(|body| Doc {
            members: br#""_id":"0123456789abcdef","_rev":"1-967a00dff5e02add41819138abb3284d""#,
            body: body.as_bytes(),
        })
        .collect();
    let mut out = Emits::default();
    let mut round = || {
        let start = Instant::now();
        out.clear();
        for docs in docs.chunks(at_once) {
            mapper.map(docs, &mut out).expect("the function runs");
        }
        assert_eq!(out.rows.len(), docs.len());
        docs.len() as f64 / start.elapsed().as_secs_f64() / 1000.0
    };
    round();
    let start = Instant::now();
    let mut rates = Vec::new();
    while rates.len() < 3 || start.elapsed() < Duration::from_secs_f64(seconds) {
        rates.push(round());
    }
    rates.sort_by(f64::total_cmp);
    rates
}
