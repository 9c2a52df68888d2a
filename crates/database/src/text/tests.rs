//! Updates and queries of text indexes.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use functions::Requester;

use super::answer::search_now;
use super::{AnswerThreads, TextGrouping, TextQuery};
use crate::database::Database;
use crate::{
    CreateOptions, Databases, Durability, EditMode, Error, FindAnswer, FindLimits, Options, Outcome,
};

const DOCS: u64 = 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn purges_that_are_not_remembered_are_found_without_mapping_documents_again() {
    let folder = tempfile::tempdir().unwrap();
    let databases = Databases::open(folder.path(), Options::default()).unwrap();
    let options = CreateOptions {
        q: Some(1),
        ..CreateOptions::default()
    };
    let db = databases.create("db", options).await.unwrap();
    db.set_purged_infos_limit(1).await.unwrap();
    let text = br#"{"type":"text","index":{}}"#;
    let text = mango::NewIndex::parse(text, &mango::Limits::default()).unwrap();
    let mut members = text.add_to(None).unwrap().unwrap();
    members.push(("autoupdate".to_owned(), b"false".to_vec()));
    let text = mango::index::write_design(&text.ddoc, None, Some(members));
    let write = async |docs: Vec<Vec<u8>>| {
        let docs = docs
            .iter()
            .map(|doc| document::parse_document(doc).unwrap());
        let written = db.update(docs.collect(), EditMode::Interactive, Durability::Synced);
        written.await.unwrap().0
    };
    let doc = |n: u64| format!(r#"{{"_id":"{n}","a":"word"}}"#).into_bytes();
    write(vec![text]).await;
    let written = write((0..DOCS).map(doc).collect()).await;
    let design = db.all_designs().unwrap().remove(0);
    let design = db.design_now(&design.id).unwrap();
    let (flavour, name) = design.text_names().next().unwrap();
    let index = db.text_index(&design, flavour, name).unwrap();
    db.update_text(&index, &Requester::Background)
        .await
        .unwrap();
    assert_eq!(db.text_info(&index).unwrap().docs, DOCS);
    let mapped = || index.shards[0].map_counts.mapped();
    let before = mapped();
    assert!(before >= DOCS);

    // One of them comes back.
    for (n, outcome) in written.into_iter().enumerate().take(10) {
        let Outcome::Ok { rev } = outcome else {
            panic!("{outcome:?}");
        };
        let id = document::DocId::new(&n.to_string()).unwrap();
        db.purge(vec![(id, vec![rev])]).await.unwrap();
    }
    write(vec![doc(3), doc(DOCS)]).await;
    db.update_text(&index, &Requester::Background)
        .await
        .unwrap();
    assert_eq!(db.text_info(&index).unwrap().docs, DOCS - 10 + 2);
    assert!(mapped() <= before + 2);
    databases.close();
}

/// Returns a database with a text index of Mango over all fields.
async fn with_text_index(databases: &Arc<Databases>) -> Arc<Database> {
    let db = databases.create("db", CreateOptions::default()).await;
    let db = db.unwrap();
    let text = br#"{"type":"text","index":{}}"#;
    let text = mango::NewIndex::parse(text, &mango::Limits::default()).unwrap();
    let members = text.add_to(None).unwrap().unwrap();
    let text = mango::index::write_design(&text.ddoc, None, Some(members));
    let doc = document::parse_document(&text).unwrap();
    let written = db.update(vec![doc], EditMode::Interactive, Durability::Synced);
    written.await.unwrap();
    db
}

/// Opens the answer of `_find` for this `$text`.
async fn find(db: &Arc<Database>, text: &str) -> FindAnswer {
    let defaults = mango::Defaults {
        limit: 25,
        limits: mango::Limits::default(),
    };
    let limits = FindLimits {
        scan_limit: 0,
        scan_warning_threshold: 0,
        aggregate: mango::AggregateLimits {
            groups_max: 1,
            values_max: 1,
            bytes_max: 1,
            user: None,
        },
    };
    let find = serde_json::json!({"selector": {"$text": text}}).to_string();
    let find = mango::Find::parse(find.as_bytes(), &defaults).unwrap();
    let indexes = db.find_indexes_async().await.unwrap();
    let all = db.unwatched();
    let plan = all.plan_find(find, &limits, &indexes).unwrap();
    all.find(plan, limits).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_texts_are_parsed_in_a_turn() {
    let folder = tempfile::tempdir().unwrap();
    let databases = Databases::open(folder.path(), Options::default()).unwrap();
    let db = with_text_index(&databases).await;
    let word = "\u{4e2d}";
    for (text, threads, is_right) in [
        ("fox".to_owned(), AnswerThreads::Blocking, true),
        (word.repeat(1024), AnswerThreads::Heavy, true),
        // Too many words; that is found out in the turn.
        (word.repeat(1025), AnswerThreads::Heavy, false),
    ] {
        let mut answer = find(&db, &text).await;
        let (_, found) = answer.turns().unwrap();
        assert_eq!(found, threads);
        match answer.next_chunk(&mut vec![], 1000) {
            Ok(_) => assert!(is_right),
            Err(Error::BadRequest(_)) => assert!(!is_right),
            Err(e) => panic!("{e}"),
        }
    }
    databases.close();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_parsed_query_is_charged() {
    let folder = tempfile::tempdir().unwrap();
    let databases = Databases::open(folder.path(), Options::default()).unwrap();
    let db = with_text_index(&databases).await;
    let design = db.all_designs().unwrap().remove(0);
    let design = db.design_now(&design.id).unwrap();
    let (flavour, name) = design.text_names().next().unwrap();
    let index = db.text_index(&design, flavour, name).unwrap();
    let effort = search::Effort::new(Duration::from_secs(600), 1 << 20);
    index.understand("fox", &effort).unwrap();
    assert!(effort.taken() > 0);
    let refused = index.understand(&"x".repeat(80_000), &effort);
    let too_much = search::Error::TooMuch { max: 1 << 20 };
    assert_eq!(refused.unwrap_err().to_string(), too_much.to_string());
    // So is a name that is written once for many words.
    let effort = search::Effort::new(Duration::from_secs(600), 16 << 20);
    let words = |name: &str| format!("{name}:({})", "x ".repeat(1_000));
    index.understand(&words("f"), &effort).unwrap();
    assert!(effort.taken() < 1 << 20);
    let refused = index.understand(&words(&"f".repeat(4_000)), &effort);
    let too_much = search::Error::TooMuch { max: 16 << 20 };
    assert_eq!(refused.unwrap_err().to_string(), too_much.to_string());
    // Ranges of `_search` are not: they are short.
    assert!(index.range("a", "[1 TO 2]").is_ok());
    let long = format!("[1 TO {:02000}]", 2);
    assert!(index.range("a", &long).is_err());
    databases.close();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_groups_take_about_as_many_steps_as_one() {
    let folder = tempfile::tempdir().unwrap();
    let databases = Databases::open(folder.path(), Options::default()).unwrap();
    let db = with_text_index(&databases).await;
    let doc = |n: u64| {
        let doc = format!(r#"{{"_id":"{n}","a":"w{n}"}}"#);
        document::parse_document(doc.as_bytes()).unwrap()
    };
    let docs = (0..1_000).map(doc).collect();
    let written = db.update(docs, EditMode::Interactive, Durability::Synced);
    written.await.unwrap();
    let design = db.all_designs().unwrap().remove(0);
    let design = db.design_now(&design.id).unwrap();
    let (flavour, name) = design.text_names().next().unwrap();
    let index = db.text_index(&design, flavour, name).unwrap();
    db.update_text(&index, &Requester::Background)
        .await
        .unwrap();
    let steps = |groups: usize, explain: bool| {
        let pauses = Rc::new(Cell::new(0));
        let noted = pauses.clone();
        let effort = search::Effort::default().with_pauses(move || {
            noted.set(noted.get() + 1);
            Duration::ZERO
        });
        let query = TextQuery {
            group: Some(TextGrouping {
                field: "_id".to_owned(),
                sort: vec![],
                limit: groups,
            }),
            explain,
            ..TextQuery::new("$default:w*".to_owned(), 1)
        };
        let answer = search_now(&index, &query, &Rc::new(effort)).unwrap();
        let found = answer.groups.unwrap();
        assert_eq!((answer.total, found.len()), (1_000, groups));
        let explained = |group: &super::TextGroup| {
            group.total == 1 && group.hits[0].explanation.is_some() == explain
        };
        assert!(found.iter().all(explained));
        pauses.get()
    };
    for explain in [false, true] {
        let (one, ten) = (steps(1, explain), steps(10, explain));
        // Explanations read the segments of their hits.
        assert!(one > 0 && ten <= one + 3, "{explain}: {one}, {ten}");
    }
    databases.close();
}
