//! Writes the stores. Their contents are the same each time except for generated values: epochs,
//! times, purges' ids.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use database::{
    CreateOptions, Database, Databases, Durability, EditMode, Error, ExpiredDocuments, Expiry,
    Options, Outcome, Read, ReadDoc, SinkOptions, StoreOptions, Ttl,
};
use document::{Attachment, DocId, EditDoc, Rev};
use serde_json::{Value, json};

use crate::golden::describe;
use crate::golden::functions::{BY_GROUP, BY_N, BY_NAME, CONFLICTS, COUNT, Golden};
use crate::golden::support::{compact, doc};

/// Rows of a view are in several blocks where there is one shard.
const DOCS: u64 = 250;
const DOCS_WITH_SHARDS: u64 = 120;
/// How long a closed store may be in use.
const IN_USE_MAX: Duration = Duration::from_secs(30);
/// Its first chunks go through the log, the rest into the engine as files.
const LARGE_ATTACHMENT_BYTES: usize = (16 << 20) + 200_000;

pub fn open(dir: &Path, maps: bool) -> Arc<Databases> {
    let options = || Options {
        store: StoreOptions {
            block_cache_bytes: 8 << 20,
            ..StoreOptions::default()
        },
        auto_compact: false,
        languages: Arc::new(Golden { maps }),
        ..Options::default()
    };
    let began = Instant::now();
    loop {
        match Databases::open(dir, options()) {
            // Threads that end hold the store that was closed a moment longer.
            Err(Error::Storage(storage::Error::InUse { .. })) if began.elapsed() < IN_USE_MAX => {
                std::thread::sleep(Duration::from_millis(10));
            }
            opened => return opened.unwrap(),
        }
    }
}

/// Writes a store into an empty directory and answers what can be read of it.
pub async fn write(dir: &Path) -> Value {
    let databases = open(dir, true);
    for (name, q, partitioned) in [("one", 1, false), ("three", 3, false), ("parts", 2, true)] {
        let options = CreateOptions {
            q: Some(q),
            n: None,
            partitioned,
            spread: false,
            access: None,
            security: r#"{"admins":{"names":["alice"],"roles":[]}}"#.into(),
        };
        let db = databases.create(name, options).await.unwrap();
        let prefix = if partitioned { "p1:" } else { "" };
        fill(&db, prefix).await;
        if partitioned {
            let ttl = Ttl::parse("30_days");
            db.set_deleted_document_ttl(ttl).await.unwrap();
        }
        if name == "three" {
            expire(&db).await;
        }
        // Sorted files first, and changes after them.
        describe::index(&databases).await;
        compact(&db);
        change(&db, prefix).await;
        describe::index(&databases).await;
    }
    system(&databases).await;
    compact_views(&databases);
    let all = describe::describe(&databases).await;
    databases.close();
    all
}

/// Documents that expire, most of them when the test is long forgotten, and one that never does since its time is invalid.
pub async fn expire(db: &Arc<Database>) {
    let mut edits: Vec<EditDoc> = (0..20u64)
        .map(|n| {
            let at = match n % 2 {
                0 => json!(4_000_000_000 + n),
                _ => json!(format!("21{n:02}-01-01T00:00:00+02:00")),
            };
            doc(&json!({ "_id": format!("expiring-{n:02}"), "expires_at": at }).to_string())
        })
        .collect();
    edits.push(doc(r#"{"_id":"expiring-never","expires_at":"soon"}"#));
    edit(db, edits).await;
    let expiry = Expiry::new("expires_at", ExpiredDocuments::Purge);
    db.set_expiry(expiry).await.unwrap();
}

/// Databases of the system, as a server with users and replications has them.
async fn system(databases: &Arc<Databases>) {
    let admins = r#"{"members":{"roles":["_admin"]},"admins":{"roles":["_admin"]}}"#;
    let alice = json!({
        "_id": "org.couchdb.user:alice", "name": "alice", "type": "user", "roles": ["reader", "größe"],
        "password_scheme": "pbkdf2", "pbkdf2_prf": "sha256", "iterations": 10,
        "salt": "0123456789abcdef0123456789abcdef", "derived_key": "00".repeat(32),
    });
    let copy = json!({
        "_id": "copy", "source": "one", "target": "http://127.0.0.1:5984/three", "continuous": true,
        "_replication_state": "completed", "_replication_stats": { "docs_written": 3 },
    });
    for (name, documents) in [("_users", [alice]), ("_replicator", [copy])] {
        let options = CreateOptions {
            q: Some(1),
            n: None,
            partitioned: false,
            spread: false,
            access: None,
            security: admins.into(),
        };
        let db = databases.create(name, options).await.unwrap();
        let documents = documents.iter().map(|document| doc(&document.to_string()));
        edit(&db, documents.collect()).await;
    }
    // As a replication leaves it in source and target.
    let checkpoint = json!({
        "_id": "_local/2c9bbd0a4f1c8c4b7a2a6b7e8c9d0e1f", "session_id": "abc", "source_last_seq": "12-x",
        "replication_id_version": 4,
        "history": [{ "session_id": "abc", "recorded_seq": "12-x", "docs_read": 12, "docs_written": 12 }],
    });
    for name in ["one", "three"] {
        let db = databases.get(name).unwrap();
        edit(&db, vec![doc(&checkpoint.to_string())]).await;
    }
}

fn count(db: &Database) -> u64 {
    match &**db.name() {
        "one" => DOCS,
        _ => DOCS_WITH_SHARDS,
    }
}

/// The first writes: designs, plain documents, attachments, local documents.
async fn fill(db: &Arc<Database>, prefix: &str) {
    edit(db, designs()).await;
    let numbered = (0..count(db)).map(|n| {
        let id = match (prefix, n % 3) {
            ("", _) => format!("doc-{n:04}"),
            (_, 0) => format!("p2:doc-{n:04}"),
            _ => format!("{prefix}doc-{n:04}"),
        };
        let body = json!({
            "_id": id, "n": n, "v": n * n % 97, "group": format!("g{}", n % 5), "name": name(n),
        });
        doc(&body.to_string())
    });
    edit(db, numbered.collect()).await;
    let long = "a long text ".repeat(900);
    let unusual = [
        json!({ "_id": format!("{prefix}long"), "text": long }),
        json!({ "_id": format!("{prefix}größe/ü\"\\\n"), "n": 1.5e300, "v": -0.25, "name": "\u{1f600}\u{0}" }),
        json!({ "_id": format!("{prefix}nested"), "a": {"b": [[], {}, [null, true, false, {"c": -0.5}]]} }),
    ];
    edit(db, unusual.iter().map(|d| doc(&d.to_string())).collect()).await;
    let many_digits = format!(
        r#"{{"_id":"{prefix}digits","i":{},"e":1e22}}"#,
        "9".repeat(60)
    );
    edit(db, vec![doc(&many_digits)]).await;
    attach(db, prefix).await;
    let locals = ["checkpoint", "another"]
        .map(|id| doc(&json!({ "_id": format!("_local/{id}"), "seq": [1, "2-x"] }).to_string()));
    edit(db, locals.to_vec()).await;
}

/// Names that the collation orders otherwise than their bytes.
fn name(n: u64) -> String {
    let beginnings = ["a", "B", "ä", "Z", "z", "É", "_", "10", "9"];
    format!("{}{n}", beginnings[n as usize % beginnings.len()])
}

fn designs() -> Vec<EditDoc> {
    let view = |map: &str, reduce: &str| json!({ "map": map, "reduce": reduce });
    let numbers = json!({
        "_id": "_design/numbers",
        "views": {
            "lib": { "unused": "exports.x = 1;" },
            "by_n": { "map": BY_N },
            "by_group": { "map": BY_GROUP },
            "sum": view(BY_N, "_sum"),
            "count": view(BY_N, "_count"),
            "stats": view(BY_N, "_stats"),
            "custom": view(BY_N, COUNT),
            "distinct": view(BY_GROUP, "_approx_count_distinct"),
            "first": view(BY_GROUP, "_first"),
            "last": view(BY_GROUP, "_last"),
            "top": view(BY_GROUP, "_top_3"),
            "bottom": view(BY_GROUP, "_bottom_2"),
            "conflicts": { "map": CONFLICTS },
        },
    });
    let raw = json!({
        "_id": "_design/raw",
        "options": { "local_seq": true, "include_design": true, "partitioned": false },
        "views": { "by_name": { "map": BY_NAME, "options": { "collation": "raw" } } },
    });
    let mango = json!({
        "_id": "_design/by-n",
        "language": "query",
        "views": { "by-n": {
            "map": { "fields": { "n": "asc", "name": "asc" }, "partial_filter_selector": {} },
            "reduce": "_count",
            "options": { "def": { "fields": ["n", "name"] } },
        } },
    });
    [numbers, raw, mango]
        .iter()
        .map(|d| doc(&d.to_string()))
        .collect()
}

async fn attach(db: &Arc<Database>, prefix: &str) {
    let text: Vec<u8> = (0..9_000u32)
        .flat_map(|n| format!("{n} ").into_bytes())
        .collect();
    let large: Vec<u8> = (0..LARGE_ATTACHMENT_BYTES)
        .map(|n| (n / 4096) as u8)
        .collect();
    let all = [
        ("empty", "image/png", &b""[..]),
        ("small", "image/png", b"\x89PNG"),
        ("text.txt", "text/plain", &text),
        ("large.bin", "application/octet-stream", &large),
    ];
    let id = DocId::new(&format!("{prefix}attached")).unwrap();
    let mut attached = doc(&json!({ "_id": id.as_str() }).to_string());
    let mut held = vec![];
    for (name, content_type, bytes) in all {
        if name == "large.bin" && db.name().as_ref() != "one" {
            continue;
        }
        let mut sink = db.attachment_sink(&id, content_type, SinkOptions::default());
        for piece in bytes.chunks(100_000) {
            sink.write(Bytes::copy_from_slice(piece)).await.unwrap();
        }
        let uploaded = sink.finish().await.unwrap();
        attached
            .files
            .push(uploaded.attachment(name, content_type, None));
        held.push(uploaded);
    }
    edit(db, vec![attached]).await;
    // The same content in other documents, of all shards.
    let inline = |id: String| {
        let png = json!({ "content_type": "image/png", "data": "iVBORw==" });
        doc(&json!({ "_id": id, "_attachments": { "s": png } }).to_string())
    };
    edit(db, vec![inline(format!("{prefix}inline"))]).await;
    let others = (0..8).map(|n| match prefix {
        "" => format!("inline-{n}"),
        _ => format!("p{n}:inlined"),
    });
    edit(db, others.map(inline).collect()).await;
}

/// Length and CRC-32 of the attachments of all documents that may have some, as they are.
pub type Attached = BTreeMap<String, Vec<(usize, u32)>>;

fn attached_ids(db: &Database) -> Vec<String> {
    let prefix = if db.is_partitioned() { "p1:" } else { "" };
    let copies = (0..8).map(|n| format!("{prefix}copy-{n}"));
    let names = ["attached", "inline"].map(|id| format!("{prefix}{id}"));
    names.into_iter().chain(copies).collect()
}

fn found(db: &Database, id: &str) -> Option<ReadDoc> {
    match db.read(&DocId::new(id).unwrap(), &Default::default()) {
        Ok(Read::Found(doc)) => Some(doc),
        _ => None,
    }
}

pub fn attachments(db: &Database) -> Attached {
    let bytes_of = |doc: &ReadDoc, attachment: &Attachment| {
        let mut reader = db
            .attachment_reader(&doc.id, attachment, None, true)
            .unwrap();
        let mut bytes = vec![];
        while let Some(piece) = reader.next_piece().unwrap() {
            bytes.extend_from_slice(&piece);
        }
        (bytes.len(), crc32fast::hash(&bytes))
    };
    let of = |doc: ReadDoc| {
        let all = doc.attachments.iter();
        let all = all.map(|read| bytes_of(&doc, &read.attachment)).collect();
        (doc.id.to_string(), all)
    };
    let docs = attached_ids(db).into_iter().filter_map(|id| found(db, &id));
    docs.map(of).collect()
}

/// Copies all attachments to other documents, removes them where they were, and answers which there are then.
pub async fn change_attachments(databases: &Databases, name: &str) -> Attached {
    let db = databases.get(name).unwrap();
    let before = attachments(&db);
    let ids = attached_ids(&db);
    let source = found(&db, &ids[0]).unwrap();
    let files = source
        .attachments
        .iter()
        .map(|read| read.attachment.clone());
    let copies = ids[2..].iter().map(|id| {
        let mut copy = doc(&json!({ "_id": id }).to_string());
        copy.files = files.clone().collect();
        copy
    });
    edit(&db, copies.collect()).await;
    let copied = attachments(&db);
    assert!(ids[2..].iter().all(|id| copied[id] == before[&ids[0]]));
    let with_one = json!({ "_id": ids[0], "_rev": source.rev.to_string(), "_attachments": {
        "text.txt": { "stub": true }, "new": { "data": "bmV3" },
    } });
    edit(&db, vec![doc(&with_one.to_string())]).await;
    compact(&db);
    let gone = [&ids[1], &ids[3]].map(|id| {
        let rev = found(&db, id).unwrap().rev.to_string();
        doc(&json!({ "_id": id, "_rev": rev, "_deleted": true }).to_string())
    });
    edit(&db, gone.to_vec()).await;
    compact(&db);
    let left = attachments(&db);
    assert_eq!((left.len(), left[&ids[0]].len()), (8, 2));
    assert!(
        left.iter()
            .all(|(id, all)| *id == ids[0] || *all == before[&ids[0]])
    );
    left
}

/// Changes after the first indexes and a compaction: updates, deletions, conflicts, a purge.
async fn change(db: &Arc<Database>, prefix: &str) {
    let id = |n: u64| match (prefix, n % 3) {
        ("", _) => format!("doc-{n:04}"),
        (_, 0) => format!("p2:doc-{n:04}"),
        _ => format!("{prefix}doc-{n:04}"),
    };
    let rev = |id: &str| {
        let read = db.read(&DocId::new(id).unwrap(), &Default::default());
        match read.unwrap() {
            database::Read::Found(doc) => doc.rev.to_string(),
            other => panic!("{other:?}"),
        }
    };
    let mut edits = vec![];
    for n in (0..40).chain([count(db) - 1]) {
        let id = id(n);
        let body = json!({ "_id": id, "_rev": rev(&id), "n": n + 1000, "v": 1, "group": "new", "name": name(n) });
        edits.push(doc(&body.to_string()));
    }
    for n in 60..70 {
        let id = id(n);
        let body = json!({ "_id": id, "_rev": rev(&id), "_deleted": true, "why": n });
        edits.push(doc(&body.to_string()));
    }
    edits.push(doc(
        &json!({ "_id": "_local/another", "_rev": "0-1", "seq": 2 }).to_string(),
    ));
    edit(db, edits).await;
    let mut branches = vec![];
    for (n, hashes, deleted) in [
        (80, vec!["aa", "parent"], false),
        (80, vec!["ff", "parent", "root"], false),
        (81, vec!["0123456789abcdef0123456789abcdef"], true),
        (82, vec!["c", "b", "a"], false),
    ] {
        let start = hashes.len();
        let body = json!({
            "_id": id(n), "_deleted": deleted, "branch": hashes[0], "n": n, "v": 7,
            "_revisions": { "start": start, "ids": hashes },
        });
        branches.push(doc(&body.to_string()));
    }
    apply(db, branches, EditMode::Replicated).await;
    let purged = ["long", "nested"].map(|name| format!("{prefix}{name}"));
    let purged = purged.map(|id| {
        let rev = Rev::parse(&rev(&id)).unwrap();
        (DocId::new(id.as_str()).unwrap(), vec![rev])
    });
    db.purge(purged.to_vec()).await.unwrap();
    let branch = Rev::parse("2-aa").unwrap();
    db.purge(vec![(DocId::new(id(80).as_str()).unwrap(), vec![branch])])
        .await
        .unwrap();
    db.set_revs_limit(500).await.unwrap();
}

async fn edit(db: &Arc<Database>, edits: Vec<EditDoc>) {
    apply(db, edits, EditMode::Interactive).await;
}

async fn apply(db: &Arc<Database>, edits: Vec<EditDoc>, mode: EditMode) {
    let (outcomes, _) = db.update(edits, mode, Durability::Synced).await.unwrap();
    for outcome in outcomes {
        assert!(matches!(outcome, Outcome::Ok { .. }), "{outcome:?}");
    }
}

/// Reductions are stored then.
fn compact_views(databases: &Databases) {
    describe::for_each_view_index(databases, |db, design, index| {
        db.compact_view(index);
        let started = Instant::now();
        let design = db.design(design).unwrap();
        while db.view_info(&design, index).unwrap().compact_running {
            assert!(started.elapsed() < Duration::from_secs(60));
            std::thread::sleep(Duration::from_millis(1));
        }
    });
}
