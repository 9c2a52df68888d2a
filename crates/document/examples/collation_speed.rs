//! Measures how fast sort keys are written and skipped. Prints nanoseconds per key, the median of
//! 31 runs with the fastest and the slowest, and the key's length.
//!
//! `cargo run --release -p document --example collation_speed`

use std::hint::black_box;
use std::time::Instant;

use document::Collator;
use document::collation::skip;

const RUNS: usize = 31;
const KEYS: u32 = 20_000;

fn nanos(mut work: impl FnMut()) -> String {
    let mut nanos: Vec<f64> = (0..RUNS)
        .map(|_| {
            let start = Instant::now();
            for _ in 0..KEYS {
                work();
            }
            start.elapsed().as_nanos() as f64 / f64::from(KEYS)
        })
        .collect();
    nanos.sort_by(f64::total_cmp);
    let [fastest, median, slowest] = [0, RUNS / 2, RUNS - 1].map(|run| nanos[run]);
    format!("{median:7.1} ns ({fastest:.1} to {slowest:.1})")
}

fn measure(name: &str, json: &str) {
    let collator = Collator::root();
    let mut key = Vec::new();
    let write = nanos(|| {
        key.clear();
        let written = collator.write_sort_key(black_box(json.as_bytes()), &mut key);
        written.expect("the example is JSON");
        black_box(&key);
    });
    let skip = nanos(|| {
        black_box(skip(black_box(&key)));
    });
    println!(
        "{name:28} {write:28} skip {skip:28} {} bytes for {}",
        key.len(),
        json.len()
    );
}

fn main() {
    let start = Instant::now();
    black_box(Collator::root());
    println!("start: {:.0} µs", start.elapsed().as_nanos() as f64 / 1e3);
    for (name, json) in [
        ("null", "null"),
        ("small integer", "42"),
        ("milliseconds", "1714564800000"),
        ("large integer", "123456789012345678901234567890"),
        ("price", "19.99"),
        ("double", "0.30000000000000004"),
        ("5 letters", r#""hello""#),
        ("19 letters", r#""abcdefghijklmnopqrs""#),
        ("name with capitals", r#""Ana Maria Fernandez""#),
        (
            "32 hexadecimal digits",
            r#""0123456789abcdef0123456789abcdef""#,
        ),
        ("date and time", r#""2024-05-01T12:00:00.000Z""#),
        (
            "100 letters and blanks",
            &format!("\"{}\"", "four of us".repeat(10)),
        ),
        ("escaped", r#""one \"two\" three""#),
        ("accents (collator)", r#""José Fernández""#),
        ("kanji (collator)", r#""東京都千代田区""#),
        ("array of string and number", r#"["order",20240501]"#),
        ("array of three", r#"["customer-12","2024-05-01",17]"#),
        ("object", r#"{"type":"order","n":1}"#),
    ] {
        measure(name, json);
    }
}
