//! Measures what an authenticated request costs: a remembered header, a session cookie, and a key
//! derivation.
//!
//! Run: `cargo run --release -p auth --example lookup`

use std::hint::black_box;
use std::time::{Duration, Instant, SystemTime};

use auth::{Auth, Basic};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use config::{Config, Layers};

const ROUNDS: u32 = 1_000_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let config = Config::load(Layers::new(folder.path().join("local.ini")))?;
    let auth = Auth::new(config)?;
    auth.set_admin("admin", "a password of usual length", true)?;
    let header = format!(
        "Basic {}",
        BASE64_STANDARD.encode("admin:a password of usual length")
    );
    let now = SystemTime::now();
    let Basic::Miss(pending) = auth.login("admin", "a password of usual length", "", None)? else {
        return Err("not checked yet".into());
    };
    let cookie = auth.issue_cookie(&pending.verify(None)?, now);

    let start = Instant::now();
    auth.authenticate_basic(&header)?;
    println!("derivation         {:>10.3?}", start.elapsed());
    for threads in [1, 2] {
        let header = per_call(threads, || {
            drop(black_box(auth.check_cached(black_box(&header), None)))
        });
        let cookie = per_call(threads, || {
            drop(black_box(auth.check_cookie(black_box(&cookie), now)))
        });
        println!("{threads} thread(s): remembered header {header:.0?}, cookie {cookie:.0?} a call");
    }
    Ok(())
}

fn per_call(threads: usize, call: impl Fn() + Sync) -> Duration {
    let start = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| (0..ROUNDS).for_each(|_| call()));
        }
    });
    start.elapsed() / ROUNDS
}
