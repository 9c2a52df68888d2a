//! How many documents a CPU-second a map function gets through, built natively, and by `JSON.parse` within QuickJS as the
//! baseline. `cargo run --release -p functions --example map_bench [seconds]`

use std::time::{Duration, Instant};

use functions::js::{Engine, Options};
use functions::{Doc, Emits, MapGroup};

const MAP: &str = "function (doc) { if (doc.type === 'order') emit(doc.date, doc.total); }";
const PARSE: &str = "function (doc) { var d = JSON.parse(doc.text); if (d.type === 'order') emit(d.date, d.total); }";
const ABSENT: &str = "function (doc) { if (!doc.nothing) emit(doc.date, doc.total); }";
const WHOLE: &str = "function (doc) { emit(doc._id, doc); }";

/// A flat document of about 300 bytes.
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

/// A nested document of about 16 KB.
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

fn rate(
    map: &str,
    bodies: &[String],
    time: Duration,
) -> Result<(f64, usize), Box<dyn std::error::Error>> {
    let engine = Engine::new(Options::default());
    let group = MapGroup {
        language: "javascript".into(),
        maps: vec![map.into()],
        lib: None,
        label: "bench".into(),
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
    let mut rows = 0;
    let start = Instant::now();
    while start.elapsed() < time || rates.len() < 3 {
        let mut count = 0;
        let round = Instant::now();
        while round.elapsed() < time / 5 {
            out.clear();
            mapper.map(&docs, &mut out)?;
            rows = out.rows.len();
            count += docs.len();
        }
        rates.push(count as f64 / round.elapsed().as_secs_f64());
    }
    rates.sort_by(f64::total_cmp);
    Ok((rates[rates.len() / 2], rows))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let seconds = std::env::args().nth(1).and_then(|arg| arg.parse().ok());
    let time = Duration::from_secs_f64(seconds.unwrap_or(1.0));
    let only = std::env::args().nth(2);
    if let Some(only) = only {
        let bodies: Vec<String> = (0..200)
            .map(if only == "l" { large } else { small })
            .collect();
        println!("{:?}", rate(MAP, &bodies, time)?);
        return Ok(());
    }
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
        let (native, rows) = rate(MAP, &bodies, time)?;
        let (parsed, parsed_rows) = rate(PARSE, &quoted, time)?;
        let (absent, _) = rate(ABSENT, &bodies, time)?;
        let (whole, _) = rate(WHOLE, &bodies, time)?;
        assert_eq!(rows, parsed_rows);
        println!(
            "{name} ({size} bytes): native {:.1}k docs/s, JSON.parse {:.1}k, ratio {:.2}; looking for a member that is not there {:.1}k; emit of the document {:.1}k",
            native / 1e3,
            parsed / 1e3,
            native / parsed,
            absent / 1e3,
            whole / 1e3
        );
    }
    Ok(())
}
