//! Writes documents in bulks of 1,000 through the embedded API and prints the rates, alternating
//! sequential and random ids.
//!
//! `cargo run --release -p database --example lightning [-- DOCUMENTS]`

use std::sync::Arc;
use std::time::Instant;

use database::{CreateOptions, Databases, Durability, EditMode, Options};
use document::parse_document;

fn main() {
    let docs: u64 = std::env::args()
        .nth(1)
        .and_then(|n| n.parse().ok())
        .unwrap_or(200_000);
    let dir = tempfile::tempdir().expect("a temporary directory");
    let databases = Databases::open(dir.path(), Options::default()).expect("a store");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .build()
        .expect("a runtime");
    for round in 0..2 {
        for random in [false, true] {
            let name = format!("bench{round}{}", if random { "r" } else { "s" });
            let seconds = runtime.block_on(run(&databases, &name, docs, random));
            let kind = if random { "random" } else { "sequential" };
            println!("{kind:10} ids: {:>9.0} docs/s", docs as f64 / seconds);
        }
    }
    databases.close();
}

async fn run(databases: &Arc<Databases>, name: &str, docs: u64, random: bool) -> f64 {
    let options = CreateOptions::default();
    let db = databases.create(name, options).await.expect("created");
    let started = Instant::now();
    let mut x = 0x9e37_79b9_7f4a_7c15u64;
    for bulk in 0..docs / 1000 {
        let edits = (0..1000)
            .map(|i| {
                let n = bulk * 1000 + i;
                x ^= x << 13;
                x ^= x >> 7;
                x ^= x << 17;
                let text = if random {
                    format!(r#"{{"_id":"{x:016x}{n:016x}","foo":"bar"}}"#)
                } else {
                    format!(r#"{{"_id":"{n:032x}","foo":"bar"}}"#)
                };
                parse_document(text.as_bytes()).expect("a document")
            })
            .collect();
        db.update(edits, EditMode::Interactive, Durability::Synced)
            .await
            .expect("written");
    }
    started.elapsed().as_secs_f64()
}
