//! Documents that expire: the index of their times agrees with a naive scan, and what has expired is deleted or purged.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use database::check::{CheckOptions, check};
use database::{
    Database, Databases, DueDocuments, Durability, EditMode, ExpiredDocument, ExpiredDocuments,
    Expiry, Outcome, Read, ReadOptions, Since,
};
use document::{DocId, EditDoc, Rev};
use fastrand::Rng;
use serde_json::{Value, json};

use crate::support::{
    all_docs, changes_of, doc, feed, ids_of, open, rounds, rows_of, runtime, with_shards, write,
};

const MEMBER: &str = "until";
const DOCUMENTS: usize = 30;
const STEPS: usize = 60;
const EDITS_MAX: usize = 8;
/// All documents of a test.
const ALL: usize = 1000;
const TIME_MAX: u64 = 1_000_000;

fn expiry(then: ExpiredDocuments) -> Option<Expiry> {
    Expiry::new(MEMBER, then)
}

/// Creates a database of one shard whose documents expire; its name is that of the action.
async fn expiring(databases: &Arc<Databases>, then: ExpiredDocuments) -> Arc<Database> {
    let db = databases.create(then.as_str(), with_shards(1));
    let db = db.await.unwrap();
    db.set_expiry(expiry(then)).await.unwrap();
    db
}

/// A value of the member: a time, or something invalid.
fn value(rng: &mut Rng) -> Value {
    match rng.u8(..8) {
        0 => Value::Null,
        1 => json!("never"),
        2 => json!([5]),
        _ => rng.u64(..TIME_MAX).into(),
    }
}

/// Times and revisions of all winners by id, and the number of invalid times.
fn scanned(db: &Arc<Database>) -> (BTreeMap<String, (u64, String)>, u64) {
    let (mut times, mut invalid) = (BTreeMap::new(), 0);
    for id in ids_of(&rows_of(&mut db.rows(all_docs()).unwrap(), 1000)) {
        let Read::Found(found) = db
            .read(&DocId::new(&id).unwrap(), &ReadOptions::default())
            .unwrap()
        else {
            panic!("{id} is listed");
        };
        let body: Value = serde_json::from_slice(&found.json).unwrap();
        match body.get(MEMBER) {
            None => {}
            Some(_) if id.starts_with("_design/") => {}
            Some(time) if time.is_u64() => {
                let of = (time.as_u64().unwrap(), found.rev.to_string());
                times.insert(id, of);
            }
            Some(_) => invalid += 1,
        }
    }
    (times, invalid)
}

/// Searches the index once it is current.
async fn due(db: &Arc<Database>, now: u64, documents_max: usize) -> DueDocuments {
    let index = db.expiry_index(&db.expiry().unwrap()).unwrap();
    db.update_expiry_index(&index).await.unwrap();
    db.due(&index, now, documents_max).unwrap()
}

async fn assert_as_scanned(db: &Arc<Database>, now: u64, of: &str) {
    let (times, invalid) = scanned(db);
    let found = due(db, now, ALL).await;
    assert_eq!(found.invalid, invalid, "{of}");
    let expired = times.iter().filter(|(_, (at, _))| *at <= now);
    let mut expired: Vec<_> = expired
        .map(|(id, (at, rev))| (*at, id.clone(), rev.clone()))
        .collect();
    expired.sort();
    let documents = found.documents.iter();
    let mut documents: Vec<_> = documents
        .map(|document| {
            let (id, rev) = (document.id.to_string(), document.rev.to_string());
            (document.at_unix_s, id, rev)
        })
        .collect();
    assert!(documents.is_sorted_by_key(|(at, ..)| *at), "{of}");
    documents.sort();
    assert_eq!(documents, expired, "{of}");
    let later = times.values().map(|(at, _)| *at).filter(|at| *at > now);
    assert_eq!(found.next_unix_s, later.min(), "{of}");
}

async fn apply(db: &Arc<Database>, edits: Vec<EditDoc>, mode: EditMode) -> Vec<Outcome> {
    let done = db.update(edits, mode, Durability::Delayed).await;
    done.unwrap().0
}

/// Reasons are as long as many of these edits.
#[test]
fn the_refusals_of_a_request_take_a_limited_memory() {
    const EDITS: usize = 40_000;
    let dir = tempfile::tempdir().unwrap();
    let databases = open(dir.path());
    runtime().block_on(async {
        let db = expiring(&databases, ExpiredDocuments::Delete).await;
        let invalid = |n: usize| doc(&format!(r#"{{"_id":"{n}","{MEMBER}":[]}}"#));
        let outcomes = apply(
            &db,
            (0..EDITS).map(invalid).collect(),
            EditMode::Interactive,
        );
        let mut bytes = 0;
        for outcome in outcomes.await {
            let Outcome::Refused(error, reason) = outcome else {
                panic!("{outcome:?}");
            };
            assert_eq!(error, "bad_request");
            if let Cow::Owned(reason) = reason {
                bytes += reason.len();
            }
        }
        assert!((1 << 20..=4 << 20).contains(&bytes), "{bytes}");
    });
    databases.close();
}

/// A purge has all leaves of its documents in memory.
#[test]
fn documents_with_many_leaves_are_purged_some_at_a_time() {
    const DOCUMENTS: usize = 4;
    const LEAVES: usize = 4_000;
    let dir = tempfile::tempdir().unwrap();
    let databases = open(dir.path());
    runtime().block_on(async {
        let db = expiring(&databases, ExpiredDocuments::Purge).await;
        let leaf = |n: usize| {
            let revisions = json!({ "start": 1, "ids": [format!("{n:032x}")] });
            let leaf = json!({
                "_id": format!("d{}", n % DOCUMENTS),
                "_revisions": revisions,
                "_deleted": n >= DOCUMENTS,
                MEMBER: 1,
            });
            doc(&leaf.to_string())
        };
        let leaves = (0..DOCUMENTS * LEAVES).map(leaf).collect();
        apply(&db, leaves, EditMode::Replicated).await;
        let found = due(&db, 10, ALL).await.documents;
        assert_eq!(found.len(), DOCUMENTS);
        let done = db.expire(ExpiredDocuments::Purge, found).await.unwrap();
        assert_eq!(done, 3);
        assert_eq!(expire_all(&db, 10, ALL).await, 1);
    });
    databases.close();
}

/// One random edit, replication or purge.
async fn step(db: &Arc<Database>, rng: &mut Rng) {
    let id = format!("d{}", rng.usize(..DOCUMENTS));
    let mut body = json!({ "_id": id, "n": rng.u8(..) });
    if rng.u8(..4) > 0 {
        body[MEMBER] = value(rng);
    }
    let winner = match db
        .read(&DocId::new(&id).unwrap(), &ReadOptions::default())
        .unwrap()
    {
        Read::Found(found) => Some(found.rev),
        Read::Missing | Read::Deleted => None,
    };
    match rng.u8(..8) {
        0..3 => {
            if let Some(rev) = winner {
                body["_rev"] = rev.to_string().into();
            }
            body["_deleted"] = (rng.u8(..5) == 0).into();
            // One with an invalid time is refused.
            apply(db, vec![doc(&body.to_string())], EditMode::Interactive).await;
        }
        3..7 => {
            let hash = format!("{:02x}", rng.u8(..16));
            body["_revisions"] = json!({ "start": 1 + rng.u8(..3), "ids": [hash] });
            body["_deleted"] = (rng.u8(..4) == 0).into();
            apply(db, vec![doc(&body.to_string())], EditMode::Replicated).await;
        }
        _ => {
            if let Some(rev) = winner {
                let purged = vec![(DocId::new(&id).unwrap(), vec![rev])];
                db.purge(purged).await.unwrap();
            }
        }
    }
}

/// Expires everything until a time, as the server does: in batches, with the index made current between them.
async fn expire_all(db: &Arc<Database>, now: u64, batch: usize) -> u64 {
    let mut removed = 0;
    loop {
        let found = due(db, now, batch).await.documents;
        if found.is_empty() {
            return removed;
        }
        let then = db.expiry().unwrap().then();
        let done = db.expire(then, found).await.unwrap();
        assert!(done > 0);
        removed += done;
    }
}

fn is_sound(dir: &Path) {
    let temporary = tempfile::tempdir().unwrap();
    let options = CheckOptions {
        temporary: temporary.path().to_owned(),
        languages: Some(Arc::new(functions::NoLanguages)),
        time_zone: functions::UTC.to_owned(),
        begun: Box::new(|_| {}),
    };
    let report = check(dir, options).unwrap();
    let found: Vec<_> = report
        .found
        .iter()
        .map(|found| format!("{}: {}", found.subject(), found.finding.says))
        .collect();
    assert_eq!(found, Vec::<String>::new());
    assert!(report.totals.index_rows > 0);
}

#[test]
fn the_index_of_times_agrees_with_a_scan_whatever_happens() {
    let histories = [
        (1, 1, ExpiredDocuments::Delete),
        (2, 3, ExpiredDocuments::Purge),
        (3, 2, ExpiredDocuments::Delete),
    ];
    for (seed, q, then) in histories.into_iter().take(rounds(2, 3)) {
        let mut rng = Rng::with_seed(seed);
        let dir = tempfile::tempdir().unwrap();
        let mut databases = open(dir.path());
        let of = |step: usize| format!("seed {seed}, step {step}");
        runtime().block_on(async {
            let db = databases.create("db", with_shards(q)).await.unwrap();
            // Some documents are older than the property.
            for _ in 0..DOCUMENTS {
                step(&db, &mut rng).await;
            }
            db.set_expiry(expiry(then)).await.unwrap();
        });
        let mut now = 0;
        for n in 0..STEPS {
            if n % 20 == 19 {
                databases.close();
                drop(databases);
                is_sound(dir.path());
                databases = open(dir.path());
            }
            runtime().block_on(async {
                let db = databases.get("db").unwrap();
                for _ in 0..rng.usize(..EDITS_MAX) {
                    step(&db, &mut rng).await;
                }
                assert_as_scanned(&db, now, &of(n)).await;
                if n % 10 == 9 {
                    now = rng.u64(now..TIME_MAX);
                    expire_all(&db, now, rng.usize(1..5)).await;
                    let (times, _) = scanned(&db);
                    assert!(times.values().all(|(at, _)| *at > now), "{}", of(n));
                    assert_as_scanned(&db, now, &of(n)).await;
                }
            });
        }
        databases.close();
    }
}

fn error_of(outcome: &Outcome) -> Option<&str> {
    match outcome {
        Outcome::Refused(error, _) => Some(error),
        Outcome::Ok { .. } | Outcome::Conflict => None,
    }
}

#[test]
fn clients_write_no_invalid_times_and_replicated_ones_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    let databases = open(dir.path());
    runtime().block_on(async {
        let db = databases.create("db", with_shards(2)).await.unwrap();
        let bad = |id: &str| doc(&json!({ "_id": id, MEMBER: "soon" }).to_string());
        write(&db, vec![bad("before")]).await;
        db.set_expiry(expiry(ExpiredDocuments::Delete))
            .await
            .unwrap();
        let edits = vec![
            bad("bad"),
            doc(&json!({ "_id": "good", MEMBER: 5 }).to_string()),
            bad("_design/d"),
            bad("_local/l"),
            doc(r#"{"_id":"gone","_deleted":true,"until":"soon"}"#),
        ];
        let outcomes = apply(&db, edits, EditMode::Interactive).await;
        let errors: Vec<_> = outcomes.iter().map(error_of).collect();
        assert_eq!(errors, [Some("bad_request"), None, None, None, None]);
        let mut replicated = bad("replicated");
        replicated.rev = Some(Rev::parse("1-a").unwrap());
        let outcomes = apply(&db, vec![replicated], EditMode::Replicated).await;
        assert!(matches!(outcomes[..], [Outcome::Ok { .. }]));
        let found = due(&db, TIME_MAX, ALL).await;
        assert_eq!((found.documents.len(), found.invalid), (1, 2));
        // What has an invalid time can still be deleted and corrected.
        let fixed = doc(&json!({ "_id": "replicated", "_rev": "1-a", MEMBER: 9 }).to_string());
        write(&db, vec![fixed]).await;
        let found = due(&db, TIME_MAX, ALL).await;
        assert_eq!((found.documents.len(), found.invalid), (2, 1));
        db.set_expiry(None).await.unwrap();
        write(&db, vec![bad("after")]).await;
    });
    databases.close();
}

#[test]
fn a_document_that_was_changed_meanwhile_stays() {
    let dir = tempfile::tempdir().unwrap();
    let databases = open(dir.path());
    runtime().block_on(async {
        for then in [ExpiredDocuments::Delete, ExpiredDocuments::Purge] {
            let db = expiring(&databases, then).await;
            let docs = ["a", "b"].map(|id| doc(&json!({ "_id": id, MEMBER: 1 }).to_string()));
            let revs = write(&db, docs.to_vec()).await;
            let found = due(&db, 1, ALL).await.documents;
            let later = json!({ "_id": "a", "_rev": revs[0], MEMBER: 100 });
            write(&db, vec![doc(&later.to_string())]).await;
            assert_eq!(db.expire(then, found).await.unwrap(), 1);
            let (times, _) = scanned(&db);
            assert_eq!(times.keys().collect::<Vec<_>>(), ["a"]);
            let info = db.info().unwrap();
            let deleted = u64::from(then == ExpiredDocuments::Delete);
            assert_eq!((info.doc_count, info.doc_del_count), (1, deleted));
        }
    });
    databases.close();
}

#[test]
fn conflicting_revisions_expire_one_by_one() {
    let dir = tempfile::tempdir().unwrap();
    let databases = open(dir.path());
    runtime().block_on(async {
        for then in [ExpiredDocuments::Delete, ExpiredDocuments::Purge] {
            let db = expiring(&databases, then).await;
            let leaf = |hash: &str, body: Value| {
                let mut edit = doc(&body.to_string());
                edit.rev = Some(Rev::parse(&format!("1-{hash}")).unwrap());
                edit
            };
            let edits = vec![
                leaf("c", json!({ "_id": "x", MEMBER: 1 })),
                leaf("b", json!({ "_id": "x", MEMBER: 2 })),
                leaf("a", json!({ "_id": "x", "_deleted": true })),
                leaf("c", json!({ "_id": "y", MEMBER: 1 })),
                leaf("b", json!({ "_id": "y" })),
            ];
            apply(&db, edits, EditMode::Replicated).await;
            assert_eq!(expire_all(&db, 1, ALL).await, 2);
            assert_eq!(db.info().unwrap().doc_count, 2, "others win");
            assert_eq!(expire_all(&db, 2, ALL).await, 1);
            let info = db.info().unwrap();
            let deleted = u64::from(then == ExpiredDocuments::Delete);
            assert_eq!((info.doc_count, info.doc_del_count), (1, deleted));
        }
    });
    databases.close();
}

/// Replicas that expire a document themselves agree.
#[test]
fn a_deletion_has_the_same_revision_wherever_it_is_made() {
    let dir = tempfile::tempdir().unwrap();
    let databases = open(dir.path());
    let revs = runtime().block_on(async {
        let mut revs = vec![];
        for name in ["a", "b"] {
            let db = databases.create(name, with_shards(1)).await.unwrap();
            db.set_expiry(expiry(ExpiredDocuments::Delete))
                .await
                .unwrap();
            write(&db, vec![doc(r#"{"_id":"x","until":1,"text":"t"}"#)]).await;
            expire_all(&db, 1, ALL).await;
            let mut changes = db.changes(feed(Since::Start)).unwrap();
            revs.push(changes_of(&mut changes, 1000)[0]["changes"].clone());
        }
        revs
    });
    assert_eq!(revs[0], revs[1]);
    databases.close();
}

fn indexes(databases: &Databases, db: &Database) -> usize {
    let shards = db.all_shards().iter();
    let of = shards.map(|shard| databases.store().indexes(shard.number).unwrap().len());
    of.sum()
}

#[test]
fn the_index_goes_with_the_property_and_stays_when_views_are_cleaned_up() {
    let dir = tempfile::tempdir().unwrap();
    let databases = open(dir.path());
    runtime().block_on(async {
        let db = databases.create("db", with_shards(2)).await.unwrap();
        write(&db, vec![doc(r#"{"_id":"a","until":1,"other":2}"#)]).await;
        db.set_expiry(expiry(ExpiredDocuments::Delete))
            .await
            .unwrap();
        assert_eq!(due(&db, 5, ALL).await.documents.len(), 1);
        assert_eq!(indexes(&databases, &db), 2);
        assert_eq!(db.clean_up_views().unwrap(), 0);
        // Another purpose is not another index.
        db.set_expiry(expiry(ExpiredDocuments::Purge))
            .await
            .unwrap();
        assert_eq!(indexes(&databases, &db), 2);
        db.set_expiry(Expiry::new("other", ExpiredDocuments::Purge))
            .await
            .unwrap();
        assert_eq!(indexes(&databases, &db), 0);
        let found = due(&db, 5, ALL).await.documents;
        let expected = ExpiredDocument {
            at_unix_s: 2,
            id: DocId::new("a").unwrap(),
            rev: found[0].rev.clone(),
        };
        assert_eq!(found, [expected]);
        db.set_expiry(None).await.unwrap();
        assert_eq!(indexes(&databases, &db), 0);
        assert_eq!(databases.with_expiry().unwrap().len(), 0);
    });
    databases.close();
}

#[test]
fn writes_are_noted_once_until_the_index_is_searched() {
    let dir = tempfile::tempdir().unwrap();
    let databases = open(dir.path());
    runtime().block_on(async {
        let watch = databases.expiry_watch();
        let noted = || watch.take().len();
        let db = databases.create("db", with_shards(2)).await.unwrap();
        let mut n = 0;
        let mut edit = || {
            n += 1;
            vec![doc(&format!(r#"{{"_id":"d{n}"}}"#))]
        };
        write(&db, edit()).await;
        assert_eq!(noted(), 0, "no property");
        db.set_expiry(expiry(ExpiredDocuments::Delete))
            .await
            .unwrap();
        assert_eq!(noted(), 1);
        due(&db, 0, ALL).await;
        write(&db, edit()).await;
        write(&db, edit()).await;
        assert_eq!(noted(), 1);
        write(&db, edit()).await;
        assert_eq!(noted(), 0, "known already");
        due(&db, 0, ALL).await;
        write(&db, edit()).await;
        assert_eq!(noted(), 1);
        due(&db, 0, ALL).await;
        let names = databases.with_expiry().unwrap();
        assert_eq!(names.iter().map(|name| &**name).collect::<Vec<_>>(), ["db"]);
        databases.delete("db").await.unwrap();
        assert_eq!(noted(), 1, "deleted");
    });
    databases.close();
}
