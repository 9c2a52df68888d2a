//! Measures the documents per CPU-second that a map function processes, built natively, and by
//! `JSON.parse` within QuickJS as the baseline. `cargo run --release -p functions --example
//! map_bench [seconds]`

use std::time::{Duration, Instant};

use functions::js::{Engine, Isolation, Options};
use functions::{Doc, Emits, Indexes, MapGroup, Owner};

const MAP: &str = "function (doc) { if (doc.type === 'order') emit(doc.date, doc.total); }";
const PARSE: &str = "function (doc) { var d = JSON.parse(doc.text); if (d.type === 'order') emit(d.date, d.total); }";
const ABSENT: &str = "function (doc) { if (!doc.nothing) emit(doc.date, doc.total); }";
const WALK: &str = "function (doc) { var n = 0; (function walk(x) { for (var k in x) { var v = x[k]; if (typeof v === 'object') walk(v); else n++; } })(doc); emit(n); }";
const PARSE_WALK: &str = "function (doc) { var n = 0; (function walk(x) { for (var k in x) { var v = x[k]; if (typeof v === 'object') walk(v); else n++; } })(JSON.parse(doc.text)); emit(n); }";
const WHOLE: &str = "function (doc) { emit(doc._id, doc); }";

/// Returns a flat document of about 300 bytes.
fn small(n: usize) -> String {
    format!(
        r#"{{"type":"order","date":"2024-03-{:02}T12:30:00Z","total":{}.5,"customer":"c{:06}","status":"shipped","items":{},"currency":"EUR","note":"leave at the door, ring twice","address":"Example Street {}, 12345 Example","paid":true,"discount":null,"channel":"web"}}"#,
        n % 28 + 1,
        n % 1000,
        n,
        n % 9,
        n % 200
    )
}

/// Returns a nested document of about 16 KB.
fn large(n: usize) -> String {
    let mut lines = Vec::new();
    for i in 0..64 {
        lines.push(format!(
            r#"{{"sku":"sku-{:05}","name":"Product number {}","price":{}.25,"count":{},"tags":["red","large","sale"],"dimensions":{{"w":{},"h":12,"d":7}},"supplier":{{"id":{},"name":"Supplier and Sons","country":"DE","active":true}}}}"#,
            i * 37, i, i, i % 5, n % 90, i
        ));
    }
    format!(
        r#"{{"type":"order","date":"2024-03-{:02}T12:30:00Z","total":{},"customer":{{"id":"c{:06}","name":"A Person"}},"lines":[{}]}}"#,
        n % 28 + 1,
        n,
        n,
        lines.join(",")
    )
}

/// Returns the CPU time of this thread.
fn cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Returns documents per CPU-second, the median of some rounds, and the rows of one round. With
/// worker processes it is per wall-clock second.
fn rate(
    isolation: Isolation,
    map: &str,
    bodies: &[String],
    time: Duration,
) -> Result<(f64, usize), Box<dyn std::error::Error>> {
    let engine = Engine::new(Options {
        isolation,
        ..Options::default()
    });
    let group = MapGroup {
        language: "javascript".into(),
        maps: vec![map.into()],
        lib: None,
        owner: Owner::default(),
        records: false,
        tells: false,
        leaves_out: false,
        indexes: Indexes::No,
    };
    let mut mapper = engine.mapper(&group)?;
    let docs: Vec<Doc> = bodies
        .iter()
        .map(|body| Doc {
            members: br#""_id":"order-000001","_rev":"1-967a00dff5e02add41819138abb3284d""#,
            body: body.as_bytes(),
        })
        .collect();
    let mut out = Emits::default();
    let mut rates = Vec::new();
    for _ in 0..5 {
        let (mut count, round, before) = (0, Instant::now(), cpu());
        while round.elapsed() < time / 5 {
            out.clear();
            mapper.map(&docs, &mut out)?;
            count += docs.len();
        }
        let spent = match isolation {
            Isolation::Thread => cpu() - before,
            Isolation::Process => round.elapsed(),
        };
        rates.push(f64::from(count as u32) / spent.as_secs_f64() / 1e3);
    }
    rates.sort_by(f64::total_cmp);
    Ok((rates[rates.len() / 2], out.rows.len()))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let argument = std::env::args().nth(1);
    if argument.as_deref() == Some("functions-worker") {
        functions::js::worker_main();
        return Ok(());
    }
    let seconds = argument.and_then(|seconds| seconds.parse().ok());
    let time = Duration::from_secs_f64(seconds.unwrap_or(1.0));
    let engine = Engine::new(Options::default());
    let start = Instant::now();
    for _ in 0..20 {
        engine.check(MAP, None)?;
    }
    println!("a new context takes {:?}", start.elapsed() / 20);
    println!("thousands of documents a CPU-second:");
    for (name, make) in [
        ("300 bytes", small as fn(usize) -> String),
        ("16 KB", large),
    ] {
        let bodies: Vec<String> = (0..200).map(make).collect();
        let quoted: Vec<String> = bodies
            .iter()
            .map(|body| serde_json::to_string(&serde_json::json!({ "text": body })))
            .collect::<Result<_, _>>()?;
        let size = bodies.iter().map(String::len).sum::<usize>() / bodies.len();
        let thread = |map, bodies: &[String]| rate(Isolation::Thread, map, bodies, time);
        let (native, rows) = thread(MAP, &bodies)?;
        let (parsed, parsed_rows) = thread(PARSE, &quoted)?;
        let (absent, _) = thread(ABSENT, &bodies)?;
        let (walked, _) = thread(WALK, &bodies)?;
        let (parsed_walked, _) = thread(PARSE_WALK, &quoted)?;
        let (whole, _) = thread(WHOLE, &bodies)?;
        let (process, _) = rate(Isolation::Process, MAP, &bodies, time)?;
        assert_eq!(rows, parsed_rows);
        println!("  {name} ({size} bytes):");
        let line = |what: &str, native: f64, parsed: f64| {
            let ratio = native / parsed;
            println!("    {what}: {native:.1}, by JSON.parse {parsed:.1}, ratio {ratio:.2}");
        };
        line("three members", native, parsed);
        line("all members at all levels", walked, parsed_walked);
        println!("    a member that is not there: {absent:.1}");
        println!("    emit of the document: {whole:.1}");
        println!("    three members in a worker, by the wall's clock: {process:.1}");
    }
    Ok(())
}
