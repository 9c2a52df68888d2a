//! Helpers of the tests of this folder: opening databases, writing documents, and reading listings
//! and feeds whole.

pub mod agreement;
pub mod naive;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use database::{
    Bound, Changes, ChangesQuery, CreateOptions, Database, Databases, Durability, EditMode, Filter,
    Framing, Listing, Options, Outcome, Rows, RowsQuery, Since, StoreOptions, Style,
};
use document::{EditDoc, parse_document};
use serde_json::Value;

/// Returns a number of random cases or rounds: `full` in `make soak-units`, `short` in other runs.
pub fn rounds<T>(short: T, full: T) -> T {
    match std::env::var("NEXTEST_PROFILE").as_deref() {
        Ok("soak") => full,
        _ => short,
    }
}

pub fn open(dir: &Path) -> Arc<Databases> {
    let options = Options {
        store: StoreOptions {
            block_cache_bytes: 8 << 20,
            ..StoreOptions::default()
        },
        auto_compact: false,
        ..Options::default()
    };
    Databases::open(dir, options).unwrap()
}

pub fn with_shards(q: u32) -> CreateOptions {
    CreateOptions {
        q: Some(q),
        ..CreateOptions::default()
    }
}

pub fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap()
}

/// Compacts and waits until it is done.
pub fn compact(db: &Arc<Database>) {
    db.compact().unwrap();
    let started = Instant::now();
    while db.info().unwrap().compact_running {
        assert!(
            started.elapsed() < Duration::from_secs(60),
            "compaction hangs"
        );
        std::thread::sleep(Duration::from_millis(1));
    }
}

pub fn doc(json: &str) -> EditDoc {
    parse_document(json.as_bytes()).unwrap()
}

/// Writes interactive edits, all of which must succeed; their revisions.
pub async fn write(db: &Arc<Database>, docs: Vec<EditDoc>) -> Vec<String> {
    let done = db.update(docs, EditMode::Interactive, Durability::Delayed);
    let (outcomes, _) = done.await.unwrap();
    let revs = outcomes.into_iter().map(|o| match o {
        Outcome::Ok { rev } => rev.to_string(),
        other => panic!("not written: {other:?}"),
    });
    revs.collect()
}

pub fn all_docs() -> RowsQuery {
    RowsQuery {
        listing: Listing::AllDocs,
        start: None,
        end: None,
        inclusive_end: true,
        keys: None,
        limit: None,
        skip: 0,
        descending: false,
        include_docs: false,
        conflicts: false,
        attachments: Default::default(),
        update_seq: false,
    }
}

pub fn bound(id: Option<&str>) -> Option<Bound> {
    id.map(|id| Bound::Id(id.to_owned()))
}

/// All rows left of a listing, pulled in pieces of about `soft_bytes`.
pub fn rows_of(rows: &mut Rows, soft_bytes: usize) -> Vec<Value> {
    let mut out = b"[".to_vec();
    while rows.next_chunk(&mut out, soft_bytes).unwrap() {}
    out.push(b']');
    serde_json::from_slice(&out).unwrap()
}

pub fn ids_of(rows: &[Value]) -> Vec<String> {
    let ids = rows.iter().map(|r| r["id"].as_str().unwrap().to_owned());
    ids.collect()
}

pub fn feed(since: Since) -> ChangesQuery {
    ChangesQuery {
        since,
        descending: false,
        limit: None,
        style: Style::MainOnly,
        include_docs: false,
        conflicts: false,
        attachments: Default::default(),
        filter: Filter::None,
        seq_interval: None,
    }
}

/// All rows left of a feed's snapshot, pulled in pieces of about `soft_bytes`.
pub fn changes_of(feed: &mut Changes, soft_bytes: usize) -> Vec<Value> {
    let mut out = vec![];
    while feed
        .next_chunk(Framing::Lines, &mut out, soft_bytes)
        .unwrap()
    {}
    let lines = out.split(|b| *b == b'\n').filter(|l| !l.is_empty());
    lines.map(|l| serde_json::from_slice(l).unwrap()).collect()
}
