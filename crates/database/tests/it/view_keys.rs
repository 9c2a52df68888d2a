//! Rows of views by keys against a naive model. Many keys are searched for in pieces.

use std::sync::Arc;

use database::{
    Database, Databases, Design, GroupLevel, Grouping, Requester, ViewAt, ViewIndex, ViewQuery,
    ViewRows,
};
use proptest::prelude::*;
use proptest::test_runner::{TestCaseError, TestRunner};
use serde_json::Value;
use support::{doc, open, runtime, with_shards, write};

use crate::support;

/// The keys of the documents `d0`, `d1`, and so on.
const KEYS: [u32; 10] = [0, 1, 1, 1, 2, 4, 4, 5, 5, 5];
/// From here on, keys have no rows.
const NO_ROWS: u32 = 100;

struct Indexed {
    db: Arc<Database>,
    design: Arc<Design>,
    index: Arc<ViewIndex>,
    at: ViewAt,
}

impl Indexed {
    async fn new(databases: &Arc<Databases>, name: &str, q: u32) -> Indexed {
        let db = databases.create(name, with_shards(q)).await.unwrap();
        let design = r#"{"_id":"_design/d","language":"query","views":{"v":{
            "map":{"fields":{"a":"asc"}},"reduce":"_count","options":{"def":{"fields":["a"]}}}}}"#;
        let docs = KEYS.iter().enumerate();
        let docs = docs.map(|(n, key)| doc(&format!(r#"{{"_id":"d{n}","a":{key}}}"#)));
        write(&db, docs.chain([doc(design)]).collect()).await;
        let design = db.design("_design/d").unwrap();
        let index = db.view_index(&design).unwrap();
        let built = db.update_view(&index, &Requester::Background);
        built.await.unwrap();
        Indexed {
            at: design.view("v").unwrap(),
            db,
            design,
            index,
        }
    }

    fn open(&self, query: ViewQuery) -> ViewRows {
        let opened = self.db.view_rows(&self.design, &self.index, self.at, query);
        opened.unwrap()
    }
}

/// A query of the rows of these keys. The index has lists of them.
fn of_keys(keys: &[u32]) -> ViewQuery {
    ViewQuery {
        keys: Some(keys.iter().map(|key| format!("[{key}]")).collect()),
        reduce: Some(false),
        ..ViewQuery::default()
    }
}

fn read(rows: &mut ViewRows) -> Vec<Value> {
    let mut out = b"[".to_vec();
    while rows.next_chunk(&mut out, 1 << 10).unwrap() {}
    out.push(b']');
    serde_json::from_slice(&out).unwrap()
}

#[derive(Clone, Debug)]
struct Case {
    /// Each with how often it is repeated.
    keys: Vec<(u32, usize)>,
    /// Different keys without rows, after some of the others.
    missing: (usize, usize),
    skip: u64,
    limit: Option<u64>,
    descending: bool,
}

impl Case {
    fn keys(&self) -> Vec<u32> {
        let keys = self.keys.iter();
        let mut keys: Vec<u32> = keys.flat_map(|(key, n)| vec![*key; *n]).collect();
        let (at, count) = self.missing;
        let at = at.min(keys.len());
        drop(keys.splice(at..at, (NO_ROWS..).take(count)));
        keys
    }

    fn cut<T>(&self, rows: Vec<T>) -> Vec<T> {
        let rows = rows.into_iter().skip(self.skip as usize);
        let limit = self.limit.map_or(usize::MAX, |limit| limit as usize);
        rows.take(limit).collect()
    }
}

fn case() -> impl Strategy<Value = Case> {
    // Skips of more than 256 rows are jumps, and more than 1,000 keys are long.
    let repeated = (0_u32..7, prop_oneof![Just(1_usize), Just(150)]);
    let missing = (0_usize..400, prop_oneof![Just(0_usize), Just(1_300)]);
    let skip = prop_oneof![0_u64..4, 250_u64..700];
    let limit = prop_oneof![
        Just(None),
        (0_u64..5).prop_map(Some),
        (300_u64..500).prop_map(Some)
    ];
    let keys = prop::collection::vec(repeated, 0..8);
    (keys, missing, skip, limit, any::<bool>()).prop_map(
        |(keys, missing, skip, limit, descending)| Case {
            keys,
            missing,
            skip,
            limit,
            descending,
        },
    )
}

fn check_rows(indexed: &Indexed, case: &Case, shards: u32) -> Result<(), TestCaseError> {
    let mut keys = case.keys();
    let mut rows = indexed.open(ViewQuery {
        skip: case.skip,
        limit: case.limit,
        descending: case.descending,
        ..of_keys(&keys)
    });
    let found = read(&mut rows);
    if case.descending {
        keys.reverse();
    }
    let ids = |key: &u32| -> Vec<String> {
        let with_key = (0..KEYS.len()).filter(|n| KEYS[*n] == *key);
        let mut ids: Vec<String> = with_key.map(|n| format!("d{n}")).collect();
        if case.descending {
            ids.reverse();
        }
        ids
    };
    let wanted = case.cut(keys.iter().flat_map(ids).collect());
    let found: Vec<_> = found
        .iter()
        .map(|row| row["id"].as_str().unwrap())
        .collect();
    prop_assert_eq!(found, wanted);
    prop_assert_eq!(rows.total_rows, Some(KEYS.len() as u64));
    if shards == 1 {
        let first = keys.iter().find(|key| KEYS.contains(key)).or(keys.last());
        let is_before = |key: &u32| match (first, case.descending) {
            (None, _) => false,
            (Some(first), true) => key > first,
            (Some(first), false) => key < first,
        };
        let before = KEYS.iter().filter(|key| is_before(key)).count() as u64;
        prop_assert_eq!(
            rows.offset,
            Some((before + case.skip).min(KEYS.len() as u64))
        );
    }
    Ok(())
}

fn check_groups(indexed: &Indexed, case: &Case) -> Result<(), TestCaseError> {
    let keys = case.keys();
    let mut rows = indexed.open(ViewQuery {
        skip: case.skip,
        limit: case.limit,
        descending: case.descending,
        reduce: Some(true),
        grouping: Grouping::By(GroupLevel::Exact),
        ..of_keys(&keys)
    });
    let found = read(&mut rows);
    let found: Vec<_> = found
        .iter()
        .map(|row| (row["key"][0].as_u64(), row["value"].as_u64()))
        .collect();
    let groups = keys.iter().filter_map(|key| {
        let count = KEYS.iter().filter(|other| *other == key).count() as u64;
        (count > 0).then_some((Some(u64::from(*key)), Some(count)))
    });
    prop_assert_eq!(found, case.cut(groups.collect()));
    Ok(())
}

#[test]
fn rows_of_keys_are_those_of_each_key_in_their_order() {
    let dir = tempfile::tempdir().unwrap();
    let databases = open(dir.path());
    let indexed = [1, 3].map(|q| {
        let name = format!("db{q}");
        let new = Indexed::new(&databases, &name, q);
        (runtime().block_on(new), q)
    });
    let config = ProptestConfig {
        cases: 48,
        ..ProptestConfig::default()
    };
    let mut runner = TestRunner::new(config);
    let checked = runner.run(&case(), |case| {
        for (indexed, shards) in &indexed {
            check_rows(indexed, &case, *shards)?;
            check_groups(indexed, &case)?;
        }
        Ok(())
    });
    checked.unwrap();
    drop(indexed);
    databases.close();
}

/// Keys that are searched for in one piece.
const SEARCHES_A_PIECE_MAX: usize = 1000;

#[test]
fn many_keys_are_searched_for_in_pieces() {
    let dir = tempfile::tempdir().unwrap();
    let databases = open(dir.path());
    let indexed = runtime().block_on(Indexed::new(&databases, "db", 2));
    let missing: Vec<u32> = (NO_ROWS..).take(20 * SEARCHES_A_PIECE_MAX).collect();
    for descending in [false, true] {
        let mut rows = indexed.open(ViewQuery {
            descending,
            ..of_keys(&missing)
        });
        assert!(!rows.is_placed() && rows.is_long());
        let mut pieces = 1;
        while rows.place().unwrap() {
            pieces += 1;
        }
        assert!(pieces >= missing.len() / SEARCHES_A_PIECE_MAX, "{pieces}");
        assert!(rows.is_placed());
        let before = if descending { 0 } else { KEYS.len() as u64 };
        assert_eq!(rows.offset, Some(before));
        let (mut pieces, mut out) = (1, vec![]);
        while rows.next_chunk(&mut out, 1 << 16).unwrap() {
            pieces += 1;
        }
        assert!(pieces >= missing.len() / SEARCHES_A_PIECE_MAX, "{pieces}");
        assert!(out.is_empty() && !rows.is_long());
    }
    drop(indexed);
    databases.close();
}

#[test]
fn long_keys_are_not_searched_for_when_rows_are_opened() {
    let dir = tempfile::tempdir().unwrap();
    let databases = open(dir.path());
    let indexed = runtime().block_on(Indexed::new(&databases, "db", 2));
    let long = format!("[\"{}\"]", "x".repeat(70_000));
    let before_four = KEYS.iter().filter(|key| **key < 4).count();
    for (key, is_long, before) in [
        ("[4]", false, before_four),
        (long.as_str(), true, KEYS.len()),
    ] {
        let mut rows = indexed.open(ViewQuery {
            start: Some(key.as_bytes().to_vec()),
            reduce: Some(false),
            ..ViewQuery::default()
        });
        assert_eq!((rows.is_placed(), rows.is_long()), (!is_long, is_long));
        while rows.place().unwrap() {}
        assert_eq!(rows.offset, Some(before as u64));
        assert_eq!(read(&mut rows).len(), KEYS.len() - before);
    }
    drop(indexed);
    databases.close();
}

#[test]
fn equal_keys_without_rows_need_one_search() {
    let dir = tempfile::tempdir().unwrap();
    let databases = open(dir.path());
    let indexed = runtime().block_on(Indexed::new(&databases, "db", 2));
    let equal: Vec<u32> = std::iter::repeat_n(NO_ROWS, 20 * SEARCHES_A_PIECE_MAX).collect();
    let mut rows = indexed.open(of_keys(&equal));
    // The clock may end a piece after each shard.
    let pieces = 1 + (0..4).take_while(|_| rows.place().unwrap()).count();
    assert!(pieces <= 3, "{pieces}");
    assert_eq!(rows.offset, Some(KEYS.len() as u64));
    let mut out = vec![];
    assert!(!rows.next_chunk(&mut out, 1 << 16).unwrap());
    assert!(out.is_empty());
    drop(rows);
    drop(indexed);
    databases.close();
}

#[test]
fn groups_are_skipped_in_pieces() {
    let dir = tempfile::tempdir().unwrap();
    let databases = open(dir.path());
    let indexed = runtime().block_on(Indexed::new(&databases, "db", 2));
    let count = 20 * SEARCHES_A_PIECE_MAX;
    let keys: Vec<u32> = std::iter::repeat_n(KEYS[0], count).collect();
    let mut rows = indexed.open(ViewQuery {
        reduce: Some(true),
        grouping: Grouping::By(GroupLevel::Exact),
        skip: count as u64 - 1,
        ..of_keys(&keys)
    });
    let (mut pieces, mut out) = (1, vec![]);
    while rows.next_chunk(&mut out, 1 << 16).unwrap() {
        pieces += 1;
    }
    assert!(pieces >= count / SEARCHES_A_PIECE_MAX, "{pieces}");
    let row: Value = serde_json::from_slice(&out).unwrap();
    assert_eq!(row["value"], 1);
    drop(rows);
    drop(indexed);
    databases.close();
}

#[test]
fn long_rows_are_skipped_in_pieces() {
    const LONG_ROWS: usize = 30;
    const KEY_BYTES: usize = 250_000;
    let dir = tempfile::tempdir().unwrap();
    let databases = open(dir.path());
    let indexed = runtime().block_on(async {
        let indexed = Indexed::new(&databases, "db", 2).await;
        let long = |n| {
            let key = "x".repeat(KEY_BYTES);
            doc(&format!(r#"{{"_id":"long{n}","a":"{key}{n:02}"}}"#))
        };
        write(&indexed.db, (0..LONG_ROWS).map(long).collect()).await;
        let built = indexed
            .db
            .update_view(&indexed.index, &Requester::Background);
        built.await.unwrap();
        indexed
    });
    for descending in [false, true] {
        let mut rows = indexed.open(ViewQuery {
            reduce: Some(false),
            skip: (LONG_ROWS - 1 + if descending { 0 } else { KEYS.len() }) as u64,
            limit: Some(1),
            descending,
            ..ViewQuery::default()
        });
        let (mut pieces, mut out) = (1, vec![]);
        while rows.next_chunk(&mut out, 1 << 16).unwrap() {
            pieces += 1;
        }
        assert!(
            pieces > 1,
            "{} bytes were skipped in one piece",
            KEY_BYTES * (LONG_ROWS - 1)
        );
        let row: Value = serde_json::from_slice(&out).unwrap();
        let last = if descending { 0 } else { LONG_ROWS - 1 };
        assert_eq!(row["id"], format!("long{last}"));
    }
    drop(indexed);
    databases.close();
}
