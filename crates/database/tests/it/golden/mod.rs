//! Stores that were written by versions of this program are read by this one: everything in them,
//! without rebuilding their indexes. A change of the format fails here. See `stores/README.md`.

mod check;
mod describe;
mod functions;
use crate::support;
mod write;

use std::fs::File;
use std::path::{Path, PathBuf};

use database::ExpiredDocuments;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde_json::Value;

/// The store that this version writes. In `settee-1` all contents of attachments are under the
/// first shard, and databases have no uuid.
const CURRENT: &str = "settee-1-expiry";

/// Stores of when JavaScript reduce functions of several databases shared their globals: indexes with such functions are rebuilt.
const SHARED_GLOBALS: [&str; 3] = ["settee-1", "settee-1-contents", "settee-1-system"];
/// The design document with a JavaScript reduce function.
const WITH_REDUCE: &str = "_design/numbers";

fn stores() -> PathBuf {
    PathBuf::from("tests/golden/stores")
}

fn archive(name: &str) -> PathBuf {
    stores().join(format!("{name}.tar.gz"))
}

fn expectation(name: &str) -> PathBuf {
    stores().join(format!("{name}.json.gz"))
}

/// The description of a store when it was written.
fn expected(name: &str) -> Value {
    let expected = GzDecoder::new(File::open(expectation(name)).unwrap());
    serde_json::from_reader(expected).unwrap()
}

/// Names of the stores that are kept.
fn kept() -> Vec<String> {
    let files = std::fs::read_dir(stores()).unwrap();
    let names = files.map(|f| f.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names
        .filter_map(|n| n.strip_suffix(".tar.gz").map(str::to_owned))
        .collect();
    names.sort();
    names
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .build()
        .unwrap()
}

/// A description without the signatures of indexes with a JavaScript reduce function.
fn without_signatures(mut described: Value) -> Value {
    for (_, database) in described.as_object_mut().unwrap() {
        if let Some(view) = database["views"].get_mut(WITH_REDUCE) {
            view.as_object_mut().unwrap().remove("signature");
        }
    }
    described
}

fn is_seq(at: &str) -> bool {
    at.ends_with("/update_seq") || at.ends_with("/purge_seq")
}

/// Panics at the first difference of two values.
fn assert_same(found: &Value, expected: &Value, at: &str) {
    match (found, expected) {
        (Value::Object(found), Value::Object(expected)) => {
            let names = |object: &serde_json::Map<String, Value>| -> Vec<String> {
                object.keys().cloned().collect()
            };
            assert_eq!(names(found), names(expected), "members of {at}");
            for (name, found) in found {
                assert_same(found, &expected[name], &format!("{at}/{name}"));
            }
        }
        (Value::Array(found), Value::Array(expected)) => {
            for (n, (found, expected)) in found.iter().zip(expected).enumerate() {
                assert_same(found, expected, &format!("{at}[{n}]"));
            }
            assert_eq!(found.len(), expected.len(), "elements of {at}");
        }
        // Older versions wrote sequences in a shorter form, with the same number before it.
        (Value::String(found), Value::String(expected)) if is_seq(at) => {
            let number = |seq: &str| seq.split('-').next().map(str::to_owned);
            assert_eq!(number(found), number(expected), "{at}");
        }
        _ => assert_eq!(found, expected, "{at}"),
    }
}

#[test]
fn everything_in_kept_stores_is_read_and_their_indexes_are_used_as_they_are() {
    assert!(kept().contains(&CURRENT.to_owned()));
    for name in kept() {
        let dir = unpacked(&name);
        let mut expected = expected(&name);
        let are_rebuilt = SHARED_GLOBALS.contains(&&*name);
        if are_rebuilt {
            rebuild_reduces(dir.path(), &name);
            expected = without_signatures(expected);
        }
        // Twice: what opening it writes is read as well.
        for opened in ["as it was kept", "once more"] {
            let databases = write::open(dir.path(), false);
            describe::assert_indexed(&databases);
            let mut found = runtime().block_on(describe::describe(&databases));
            databases.close();
            if are_rebuilt {
                found = without_signatures(found);
            }
            assert_same(&found, &expected, &format!("{name}, {opened}: "));
        }
    }
}

/// Rebuilds the indexes with a JavaScript reduce function, which are the only ones that the store has not.
fn rebuild_reduces(store: &Path, name: &str) {
    let databases = write::open(store, true);
    let stale = describe::stale(&databases);
    let expected = ["one", "parts", "three"].map(|db| (db.to_owned(), WITH_REDUCE.to_owned()));
    assert_eq!(stale, expected, "{name}");
    runtime().block_on(describe::index(&databases));
    databases.close();
}

fn unpacked(name: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let file = File::open(archive(name)).unwrap();
    tar::Archive::new(GzDecoder::new(file))
        .unpack(dir.path())
        .unwrap();
    dir
}

/// Databases keep their uuids, also those that were created before databases had uuids.
#[test]
fn databases_of_kept_stores_keep_their_uuids() {
    let expected = [
        (
            "settee-1",
            [
                ("one", "bc5d9d79ba7b89b87308036fba9e275e"),
                ("three", "37f681288f62ac89b5dc14311c94f27c"),
                ("parts", "c01470e86a82ad93bed3b8e5507fff46"),
            ],
        ),
        (
            "settee-1-contents",
            [
                ("one", "e006f5e1ca3b06dc03625f81782dee0e"),
                ("three", "3539702f48b491e375599a62a7691d33"),
                ("parts", "3840654c7a139ff28558b2769668f21d"),
            ],
        ),
    ];
    for (name, uuids) in expected {
        let dir = unpacked(name);
        for opened in ["as it was kept", "once more"] {
            let databases = write::open(dir.path(), false);
            let found = uuids.map(|(db, _)| (db, databases.get(db).unwrap().uuid().to_string()));
            let found = found.each_ref().map(|(db, uuid)| (*db, uuid.as_str()));
            assert_eq!(found, uuids, "{name}, {opened}");
            runtime().block_on(async {
                let db = databases.get("one").unwrap();
                db.set_revs_limit(77).await.unwrap();
            });
            databases.close();
        }
    }
}

#[test]
fn a_kept_store_is_written_on() {
    for name in kept() {
        let dir = unpacked(&name);
        let databases = write::open(dir.path(), true);
        runtime().block_on(async {
            let db = databases.get("three").unwrap();
            let before = db.info().unwrap();
            let edit = support::doc(r#"{"_id":"new","n":5000,"v":1}"#);
            support::write(&db, vec![edit]).await;
            describe::index(&databases).await;
            assert_eq!(db.info().unwrap().doc_count, before.doc_count + 1);
            describe::assert_indexed(&databases);
        });
        databases.close();
    }
}

/// Documents of older programs get an index of their expiry times.
#[test]
fn documents_of_kept_stores_expire_once_the_property_is_set() {
    for name in kept() {
        let dir = unpacked(&name);
        let databases = write::open(dir.path(), true);
        runtime().block_on(async {
            let db = databases.get("one").unwrap();
            assert_eq!(db.expiry(), None, "{name}");
            let before = db.info().unwrap();
            write::expire(&db).await;
            describe::index(&databases).await;
            let index = db.expiry_index(&db.expiry().unwrap()).unwrap();
            let due = db.due(&index, 4_000_000_007, 1000).unwrap();
            let ids = due.documents.iter().map(|of| of.id.as_str());
            let expected = [0, 2, 4, 6].map(|n| format!("expiring-{n:02}"));
            assert_eq!(ids.collect::<Vec<_>>(), expected, "{name}");
            let purged = db.expire(ExpiredDocuments::Purge, due.documents).await;
            assert_eq!(purged.unwrap(), 4);
            let count = before.doc_count + 21 - 4;
            assert_eq!(db.info().unwrap().doc_count, count, "{name}");
            describe::index(&databases).await;
        });
        databases.close();
        drop(databases);
        let databases = write::open(dir.path(), false);
        describe::assert_indexed(&databases);
        let db = databases.get("one").unwrap();
        let index = db.expiry_index(&db.expiry().unwrap()).unwrap();
        let due = db.due(&index, u64::MAX, 1000).unwrap();
        assert_eq!((due.documents.len(), due.invalid), (16, 1), "{name}");
        databases.close();
    }
}

/// Their attachments are replaced, copied to documents of all shards, and removed, with compactions in between. Attachments are stored
/// in the two forms of the first store and of the current one.
#[test]
fn attachments_of_a_kept_store_are_written_on() {
    let forms = ["settee-1", CURRENT].map(str::to_owned);
    for name in support::rounds(forms.to_vec(), kept()) {
        let dir = unpacked(&name);
        let expected = ["one", "three", "parts"].map(|db| {
            let databases = write::open(dir.path(), true);
            let left = runtime().block_on(write::change_attachments(&databases, db));
            databases.close();
            (db, left)
        });
        let databases = write::open(dir.path(), false);
        for (db, left) in expected {
            let db = databases.get(db).unwrap();
            support::compact(&db);
            assert_eq!(write::attachments(&db), left, "{name}, {}", db.name());
        }
        databases.close();
    }
}

/// Writes the store of this version's format: `cargo test -p database --test it -- --ignored write_the_store_of_this_format`.
#[test]
#[ignore = "writes into the checkout"]
fn write_the_store_of_this_format() {
    assert!(
        !archive(CURRENT).exists(),
        "a store of {CURRENT} is kept: a new format gets a new name"
    );
    let dir = tempfile::tempdir().unwrap();
    let described = runtime().block_on(write::write(dir.path()));
    let file = File::create(archive(CURRENT)).unwrap();
    let mut tar = tar::Builder::new(GzEncoder::new(file, Compression::best()));
    let mut files: Vec<_> = std::fs::read_dir(dir.path())
        .unwrap()
        .map(|f| f.unwrap())
        .collect();
    files.sort_by_key(std::fs::DirEntry::file_name);
    for file in files {
        let name = file.file_name().into_string().unwrap();
        let is_stored = !name.starts_with("LOG") && name != "LOCK";
        if is_stored && file.file_type().unwrap().is_file() {
            tar.append_path_with_name(file.path(), name).unwrap();
        }
    }
    tar.into_inner().unwrap().finish().unwrap();
    let file = File::create(expectation(CURRENT)).unwrap();
    let mut gzip = GzEncoder::new(file, Compression::best());
    serde_json::to_writer_pretty(&mut gzip, &described).unwrap();
    gzip.finish().unwrap();
}
