//! Speed of the built-in reduce functions. Prints nanoseconds per row, the median of 31 runs with
//! the fastest and the slowest.
//!
//! `cargo run --release -p index --example reduce_speed`

use std::hint::black_box;
use std::time::Instant;

use index::reduce::Builtin;

const RUNS: usize = 31;
const ROWS: usize = 20_000;

fn measure(name: &str, builtin: Builtin, value: impl Fn(usize) -> String) {
    let rows: Vec<(String, String)> = (0..ROWS)
        .map(|row| (format!("\"key {row}\""), value(row)))
        .collect();
    let mut nanos: Vec<f64> = (0..RUNS)
        .map(|_| {
            let start = Instant::now();
            let rows = rows
                .iter()
                .map(|(key, value)| (key.as_bytes(), value.as_bytes()));
            black_box(builtin.reduce(black_box(rows)));
            start.elapsed().as_nanos() as f64 / ROWS as f64
        })
        .collect();
    nanos.sort_by(f64::total_cmp);
    println!(
        "{name:36} {:7.1} ns ({:.1} to {:.1})",
        nanos[RUNS / 2],
        nanos[0],
        nanos[RUNS - 1]
    );
}

fn main() {
    let integer = |row: usize| (row * 7919 % 100_003).to_string();
    let price = |row: usize| format!("{}.{}", row % 997, row % 89 + 10);
    measure("_count", Builtin::Count, integer);
    measure("_sum of integers", Builtin::Sum, integer);
    measure("_sum of prices", Builtin::Sum, price);
    measure("_sum of arrays of 3", Builtin::Sum, |row| {
        format!("[{row},1,2]")
    });
    measure("_sum of objects of 2", Builtin::Sum, |row| {
        format!(r#"{{"a":{row},"b":1}}"#)
    });
    measure("_stats of integers", Builtin::Stats, integer);
    measure("_stats of prices", Builtin::Stats, price);
    measure(
        "_approx_count_distinct",
        Builtin::ApproxCountDistinct,
        integer,
    );
    measure("_first", Builtin::First, integer);
    measure("_last", Builtin::Last, integer);
    measure("_top_10 of integers", Builtin::Top(10), integer);
    measure("_bottom_100 of prices", Builtin::Bottom(100), price);

    let builtin = Builtin::Stats;
    let states: Vec<Vec<u8>> = (0..1000)
        .map(|block: usize| {
            let values: Vec<String> = (0..100).map(|row| integer(block * 100 + row)).collect();
            builtin.reduce(
                values
                    .iter()
                    .map(|value| (b"1".as_slice(), value.as_bytes())),
            )
        })
        .collect();
    let start = Instant::now();
    black_box(builtin.rereduce(states.iter().map(Vec::as_slice)));
    let nanos = start.elapsed().as_nanos() as f64 / states.len() as f64;
    println!("{:36} {nanos:7.1} ns a state", "_stats, rereduce");
}
