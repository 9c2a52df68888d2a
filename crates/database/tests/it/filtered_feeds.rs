//! Feeds of the documents that a filter shows: a piece judges few documents, whatever they cost.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use database::{
    BatchFilter, ChangeFilter, Changes, ChangesQuery, Database, Durability, EditMode, Error,
    Filter, Framing, Since, Style,
};
use document::parse_document;
use functions::{Admission, Place};
use serde_json::{Value, json};

use crate::support::{doc, feed, open, runtime, with_shards, write};

/// Longer than a piece of a feed may take.
const LONG: Duration = Duration::from_millis(25);

/// Judges documents slowly, and counts them.
struct Slow(AtomicUsize);

impl ChangeFilter for Slow {
    fn needs_doc(&self) -> bool {
        true
    }

    fn matches(&self, _id: &str, _deleted: bool, _doc: Option<&[u8]>) -> bool {
        std::thread::sleep(LONG);
        self.0.fetch_add(1, Relaxed);
        true
    }
}

/// Adds leaves to a document.
async fn write_leaves(db: &Arc<Database>, id: &str, leaves: usize, text: &str) {
    let leaf = |n: usize| {
        let doc = json!({"_id": id, "_rev": format!("1-{n:032x}"), "n": n, "s": text});
        parse_document(doc.to_string().as_bytes()).unwrap()
    };
    let docs = (0..leaves).map(leaf).collect();
    let done = db.update(docs, EditMode::Replicated, Durability::Delayed);
    done.await.unwrap();
}

/// The pieces of a feed: the rows of each, and whether the next one was left to another thread.
fn pieces(feed: &mut Changes) -> Vec<(Vec<Value>, bool)> {
    let mut pieces = vec![];
    loop {
        let mut out = vec![];
        let more = feed.next_chunk(Framing::Lines, &mut out, 1 << 20).unwrap();
        let lines = out.split(|b| *b == b'\n').filter(|l| !l.is_empty());
        let rows = lines.map(|l| serde_json::from_slice(l).unwrap()).collect();
        pieces.push((rows, feed.is_long()));
        if !more {
            return pieces;
        }
    }
}

fn rows(pieces: Vec<(Vec<Value>, bool)>) -> Vec<Value> {
    pieces.into_iter().flat_map(|(rows, _)| rows).collect()
}

#[test]
fn the_clock_is_read_after_each_document_and_each_leaf() {
    let dir = tempfile::tempdir().unwrap();
    let databases = open(dir.path());
    runtime().block_on(async {
        let db = databases.create("a", with_shards(2)).await.unwrap();
        write(
            &db,
            (0..6)
                .map(|n| doc(&format!(r#"{{"_id":"d{n}"}}"#)))
                .collect(),
        )
        .await;
        write_leaves(&db, "wide", 7, "").await;
        for (style, judged) in [(Style::MainOnly, 7), (Style::AllDocs, 6 + 7)] {
            let slow = Arc::new(Slow(AtomicUsize::new(0)));
            let mut changes = db
                .changes(ChangesQuery {
                    style,
                    filter: Filter::Custom(slow.clone()),
                    ..feed(Since::Start)
                })
                .unwrap();
            let mut most = 0;
            let mut out = vec![];
            let mut before = 0;
            while changes
                .next_chunk(Framing::Lines, &mut out, 1 << 20)
                .unwrap()
            {
                let now = slow.0.load(Relaxed);
                most = most.max(now - before);
                before = now;
            }
            assert_eq!((most, slow.0.load(Relaxed)), (1, judged));
            let lines = out.split(|b| *b == b'\n').filter(|l| !l.is_empty());
            let rows: Vec<Value> = lines.map(|l| serde_json::from_slice(l).unwrap()).collect();
            let wide = rows.iter().find(|row| row["id"] == "wide").unwrap();
            let leaves = if style == Style::AllDocs { 7 } else { 1 };
            assert_eq!(wide["changes"].as_array().map(Vec::len), Some(leaves));
            assert_eq!(rows.len(), 7);
        }
        databases.close();
    });
}

#[test]
fn a_light_selector_leaves_long_documents_to_another_thread() {
    let dir = tempfile::tempdir().unwrap();
    let databases = open(dir.path());
    runtime().block_on(async {
        let db = databases.create("a", with_shards(1)).await.unwrap();
        write(&db, vec![doc(r#"{"_id":"first","s":"y"}"#)]).await;
        let long = "y".repeat(100_000);
        write(&db, vec![doc(&format!(r#"{{"_id":"long","s":"{long}"}}"#))]).await;
        write_leaves(&db, "wide", 5, &long).await;
        write(&db, vec![doc(r#"{"_id":"last","s":"a"}"#)]).await;
        let conditions = vec![json!({"s": {"$gt": "x"}}); 40];
        let selector = mango::Selector::parse(&json!({"$and": conditions})).unwrap();
        assert!(selector.is_light());
        let open = |style| {
            let query = ChangesQuery {
                style,
                filter: Filter::of_selector(selector.clone(), None),
                ..feed(Since::Start)
            };
            db.changes(query).unwrap()
        };
        for (style, leaves) in [(Style::MainOnly, 1), (Style::AllDocs, 5)] {
            let mut changes = open(style);
            assert!(!changes.may_block());
            let pieces = pieces(&mut changes);
            let (first, is_left) = &pieces[0];
            assert_eq!(first.len(), 1, "{first:?}");
            assert!(is_left, "the long document was judged at once");
            let rows = rows(pieces);
            let ids: Vec<&str> = rows.iter().filter_map(|row| row["id"].as_str()).collect();
            assert_eq!(ids, ["first", "long", "wide"]);
            assert_eq!(rows[2]["changes"].as_array().map(Vec::len), Some(leaves));
        }
        databases.close();
    });
}

/// Shows all documents, and notes the longest texts that it was called with, in bytes.
#[derive(Default)]
struct Longest(AtomicUsize);

impl BatchFilter for Longest {
    fn matches(&self, _place: &Place, docs: &[Vec<u8>]) -> Result<Vec<bool>, Error> {
        self.0.fetch_max(docs.iter().map(Vec::len).sum(), Relaxed);
        Ok(vec![true; docs.len()])
    }

    fn admission(&self) -> Admission {
        Admission::free()
    }
}

#[test]
fn a_function_sees_the_leaves_of_a_long_id_some_at_a_time() {
    const ID_BYTES: usize = 60_000;
    const LEAVES: usize = 100;
    let dir = tempfile::tempdir().unwrap();
    let databases = open(dir.path());
    runtime().block_on(async {
        let db = databases.create("a", with_shards(1)).await.unwrap();
        write_leaves(&db, &"i".repeat(ID_BYTES), LEAVES, "").await;
        let longest = Arc::new(Longest::default());
        let query = ChangesQuery {
            style: Style::AllDocs,
            filter: Filter::Batch(longest.clone()),
            ..feed(Since::Start)
        };
        let mut changes = db.changes(query).unwrap();
        let rows = rows(pieces(&mut changes));
        assert_eq!(rows.len(), 1);
        assert_eq!(rows[0]["changes"].as_array().map(Vec::len), Some(LEAVES));
        let longest = longest.0.load(Relaxed);
        let most = (1 << 20) + 2 * ID_BYTES;
        assert!(longest <= most, "{longest} bytes in one call");
        databases.close();
    });
}
