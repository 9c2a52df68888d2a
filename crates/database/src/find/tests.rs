//! How queries give way to others.

use std::sync::Arc;
use std::thread;

use fair_queue::{Place, Requester};
use mango::{AggregateLimits, Bookmark, Defaults, Find, FindError, Index, Limits};
use serde_json::{Map, Value, json};

use super::{FindAnswer, FindIndex, FindLimits, INDEXES_BYTES_MAX, IndexReading};
use crate::database::Database;
use crate::{CreateOptions, Databases, Durability, EditMode, Options};

/// More than one piece passes.
const DELETED: usize = 20_001;
/// Documents that are not deleted.
const LIVE: usize = 40;

async fn write(db: &Arc<Database>, docs: impl Iterator<Item = Value>, mode: EditMode) {
    let docs = docs.map(|doc| document::parse_document(doc.to_string().as_bytes()).unwrap());
    let written = db.update(docs.collect(), mode, Durability::Delayed);
    written.await.unwrap();
}

/// Creates a database with documents, and an index of their member `n`.
async fn with_index(databases: &Arc<Databases>) -> Arc<Database> {
    let options = CreateOptions {
        q: Some(2),
        ..CreateOptions::default()
    };
    let db = databases.create("db", options).await.unwrap();
    let index = br#"{"index":{"fields":["n"]},"ddoc":"d","name":"n"}"#;
    let index = mango::NewIndex::parse(index, &mango::Limits::default()).unwrap();
    let members = index.add_to(None).unwrap().unwrap();
    let design = mango::index::write_design(&index.ddoc, None, Some(members));
    let design = document::parse_document(&design).unwrap();
    let written = db.update(vec![design], EditMode::Interactive, Durability::Delayed);
    written.await.unwrap();
    let live = (0..LIVE).map(|n| json!({"_id": format!("live{n:02}"), "n": n}));
    write(&db, live, EditMode::Interactive).await;
    db
}

/// Opens the answer to a query of this user.
async fn find(db: &Arc<Database>, user: &str, query: &Value) -> FindAnswer {
    let defaults = Defaults {
        limit: 100,
        limits: mango::Limits::default(),
    };
    let limits = FindLimits {
        scan_limit: 0,
        scan_warning_threshold: 0,
        aggregate: AggregateLimits {
            groups_max: 1_000,
            values_max: 1_000,
            bytes_max: 1 << 20,
            user: None,
        },
    };
    let find = Find::parse(query.to_string().as_bytes(), &defaults).unwrap();
    let indexes = db.find_indexes_async().await.unwrap();
    let all = db.unwatched().for_requester(Requester::user(user));
    let plan = all.plan_find(find, &limits, &indexes).unwrap();
    all.find(plan, limits).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn documents_that_are_passed_are_passed_in_pieces() {
    let folder = tempfile::tempdir().unwrap();
    let databases = Databases::open(folder.path(), Options::default()).unwrap();
    let db = with_index(&databases).await;
    let rev = format!("1-{:032x}", 1);
    let deleted =
        (0..DELETED).map(|n| json!({"_id": format!("d{n:05}"), "_rev": rev, "_deleted": true}));
    write(&db, deleted, EditMode::Replicated).await;
    let between = (0..DELETED).map(|n| json!(format!("d{n:05}x")));
    let between: Vec<Value> = between.chain([json!("live07")]).collect();
    for (query, wanted) in [
        (json!({"selector": {"m": {"$exists": false}}}), LIVE),
        (json!({"selector": {"_id": {"$in": between}}}), 1),
    ] {
        let mut answer = find(&db, "user", &query).await;
        let mut out = b"[".to_vec();
        let mut pieces = 1;
        while answer.next_chunk(&mut out, 1 << 20).unwrap() {
            pieces += 1;
        }
        out.push(b']');
        let docs: Vec<Value> = serde_json::from_slice(&out).unwrap();
        assert_eq!(docs.len(), wanted);
        assert!(pieces >= 3, "{pieces} pieces");
    }
    databases.close();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn aggregates_have_the_place_of_a_scan() {
    let folder = tempfile::tempdir().unwrap();
    let databases = Databases::open(folder.path(), Options::default()).unwrap();
    let db = with_index(&databases).await;
    let places = &db.shared_views().scans.turns;
    let aggregate = json!({"compute": {"docs": {"$count": true}}});
    for selector in [
        // By an index that holds everything, by one that does not, and by documents.
        json!({"n": {"$gte": 10}}),
        json!({"n": {"$gte": 10}, "m": {"$exists": false}}),
        json!({"_attachments": {"$exists": false}}),
    ] {
        let query = json!({"selector": selector, "aggregate": aggregate});
        let mut answer = find(&db, "user", &query).await;
        let held = places.take_all();
        let grouping = thread::spawn(move || {
            let mut out = vec![];
            while answer.next_groups(&mut out, 1_000).unwrap() {}
            out
        });
        // It waits while others have all places.
        while !held.iter().any(Place::is_wanted) {
            assert!(!grouping.is_finished(), "{selector} has no place");
            thread::yield_now();
        }
        drop(held);
        let groups = grouping.join().unwrap();
        let wanted = if query.to_string().contains("$gte") {
            LIVE - 10
        } else {
            LIVE
        };
        let group: Value = serde_json::from_slice(&groups).unwrap();
        assert_eq!(group["value"]["docs"], json!(wanted), "{group}");
    }
    databases.close();
}

#[tokio::test]
async fn a_bookmark_is_decoded_with_its_query() {
    let folder = tempfile::tempdir().unwrap();
    let databases = Databases::open(folder.path(), Options::default()).unwrap();
    let options = CreateOptions::default();
    let db = databases.create("db", options).await.unwrap();
    let indexes = db.find_indexes_async().await.unwrap();
    let limits = FindLimits {
        scan_limit: 0,
        scan_warning_threshold: 0,
        aggregate: AggregateLimits {
            groups_max: 1,
            values_max: 1,
            bytes_max: 1,
            user: None,
        },
    };
    let defaults = Defaults {
        limit: 25,
        limits: Limits::default(),
    };
    let place = |bookmark: &str| {
        let find = serde_json::json!({"selector": {"a": 1}, "bookmark": bookmark});
        let find = Find::parse(find.to_string().as_bytes(), &defaults).unwrap();
        let plan = db.unwatched().plan_find(find, &limits, &indexes);
        plan.unwrap().place
    };
    let bookmark = Bookmark {
        place: b"id".to_vec(),
    };
    let text = bookmark.encode(&Index::all_docs());
    assert_eq!(place(&text), Some(Ok(b"id".to_vec())));
    // Another index may be used after all.
    let refused = place("x");
    assert!(matches!(refused, Some(Err(FindError::InvalidBookmark(_)))));
    drop(indexes);
    databases.close();
}

#[test]
fn indexes_are_compiled_only_as_long_as_there_is_memory_for_them() {
    let regex = |n: usize| json!({"a": {"$regex": format!("(?:a{{1000}}){{9}}b{n}")}});
    let selector = json!({"$or": (0..20).map(regex).collect::<Vec<_>>()});
    let view = json!({
        "map": {"fields": {"a": "asc"}, "partial_filter_selector": selector},
        "options": {"def": {}},
    });
    let views = (0..100).map(|n| (n.to_string(), view.clone()));
    let views: Map<String, Value> = views.collect();
    let ddoc = json!({"_id": "_design/d", "language": "query", "views": views}).to_string();
    let limits = Limits::OF_INDEXES;
    let mut indexes = Index::of_design(ddoc.as_bytes(), false, &limits);
    let mut found = IndexReading::default();
    let add = |index: &Index| {
        let index = FindIndex {
            index: Arc::new(index.clone()),
            view: None,
            text: None,
        };
        found.add(index, 0)
    };
    // One takes about 17 MB, and 1 KB of text.
    let added = indexes.by_ref().take_while(add).count();
    assert!((2..5).contains(&added), "{added}");
    let found = found.sorted();
    assert!(found.memory_bytes() <= INDEXES_BYTES_MAX && !found.are_many());
    // The others were not read.
    assert!(indexes.next().is_some());
}
