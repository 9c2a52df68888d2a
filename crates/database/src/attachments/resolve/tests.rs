//! Resolutions in pieces.

use std::borrow::Cow;

use serde_json::{Value, json};

use super::*;
use crate::{CreateOptions, Databases, Durability, Options};

/// Returns a database with documents that have an attachment `a`, and their revisions.
async fn with_documents(dir: &std::path::Path, count: usize) -> (Arc<Database>, Vec<String>) {
    let databases = Databases::open(dir, Options::default()).unwrap();
    let created = databases.create("db", CreateOptions::default()).await;
    let db = created.unwrap();
    // Open until the test ends.
    std::mem::forget(databases);
    let docs =
        (0..count).map(|n| json!({"_id": n.to_string(), "_attachments": {"a": {"data": "YQ=="}}}));
    let outcomes = write(&db, docs.map(|doc| edit(&doc)).collect()).await;
    let rev = |outcome| match outcome {
        Outcome::Ok { rev } => rev.to_string(),
        other => panic!("{other:?}"),
    };
    (db, outcomes.into_iter().map(rev).collect())
}

async fn write(db: &Arc<Database>, edits: Vec<EditDoc>) -> Vec<Outcome> {
    let written = db.update(edits, EditMode::Interactive, Durability::Synced);
    written.await.unwrap().0
}

fn edit(doc: &Value) -> EditDoc {
    document::parse_document(doc.to_string().as_bytes()).unwrap()
}

/// An edit that keeps an attachment of this name.
fn stub(id: usize, rev: &str, name: &str) -> EditDoc {
    edit(&json!({"_id": id.to_string(), "_rev": rev, "_attachments": {name: {"stub": true}}}))
}

fn inline(id: &str) -> EditDoc {
    edit(&json!({"_id": id, "_attachments": {"b": {"data": "Yg=="}}}))
}

fn resolution(db: &Arc<Database>, edits: Vec<EditDoc>) -> Resolution {
    Resolution::new(db.clone(), edits, EditMode::Interactive).unwrap()
}

/// The names of the attachments that an edit's document will have, or why it is refused.
fn summary(resolved: &Result<EditDoc, Outcome>) -> String {
    match resolved {
        Ok(edit) => format!(
            "{:?}",
            edit.files.iter().map(|file| &file.name).collect::<Vec<_>>()
        ),
        Err(outcome) => format!("{outcome:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pieces_come_to_the_same_and_only_the_first_is_on_the_thread_that_serves() {
    let dir = tempfile::tempdir().unwrap();
    let (db, revs) = with_documents(dir.path(), 2).await;
    let edits = || {
        vec![
            stub(0, &revs[0], "a"),
            stub(0, &revs[0], "none"),
            stub(1, &revs[1], "a"),
            stub(1, &revs[0], "a"),
            edit(&json!({"_id": "plain"})),
            stub(0, &revs[0], "a"),
        ]
    };
    let (whole, _) = db.resolve(edits(), EditMode::Interactive).await.unwrap();
    let whole: Vec<String> = whole.iter().map(summary).collect();
    assert_eq!(whole[0], "[\"a\"]");
    assert!(whole[1].contains(MISSING_STUB));
    let mut pieces = resolution(&db, edits());
    let mut threads = vec![];
    loop {
        threads.push(pieces.next_thread());
        if !pieces
            .go_on(threads[threads.len() - 1], Turn::over())
            .unwrap()
        {
            break;
        }
    }
    let resolved: Vec<String> = pieces.done.iter().map(summary).collect();
    assert_eq!(resolved, whole);
    assert_eq!(threads[0], PieceThread::Serving);
    // The plain one takes no time of its own.
    assert_eq!(threads[1..], [PieceThread::LowPriority; 4]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn content_is_stored_on_threads_that_may_wait() {
    let dir = tempfile::tempdir().unwrap();
    let (db, revs) = with_documents(dir.path(), 1).await;
    let kept = || stub(0, &revs[0], "a");
    let mut pieces = resolution(&db, vec![kept(), kept(), inline("new"), kept()]);
    let mut threads = vec![];
    loop {
        let thread = pieces.next_thread();
        threads.push((thread, pieces.done.len()));
        let turn = match thread {
            // It ends before it would store something, whatever time it has.
            PieceThread::LowPriority => Turn::begin(),
            _ => Turn::over(),
        };
        if !pieces.go_on(thread, turn).unwrap() {
            break;
        }
    }
    let blocking = |n| (PieceThread::Blocking, n);
    assert_eq!(threads[0], blocking(0));
    assert_eq!(threads.last(), Some(&(PieceThread::LowPriority, 3)));
    assert!(threads.contains(&blocking(2)), "{threads:?}");
    assert!(pieces.done.iter().all(Result::is_ok));
    let long = "x".repeat(SHORT_BYTES_MAX);
    let long = resolution(&db, vec![stub(0, &revs[0], &long)]);
    assert_eq!(long.next_thread(), PieceThread::Blocking);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_stubs_of_a_document_take_one_read_of_it_in_a_piece() {
    let dir = tempfile::tempdir().unwrap();
    let (db, revs) = with_documents(dir.path(), 1).await;
    let kept = || stub(0, &revs[0], "a");
    let mut piece = resolution(&db, vec![kept()]);
    let resolve = |piece: &mut Resolution| {
        let refusal = piece.resolve_one(&mut kept(), Elsewhere::IsNotThere);
        (refusal.unwrap(), piece.recent.attachments.clone())
    };
    let (first, attachments) = resolve(&mut piece);
    assert!(first.is_none());
    // What another request writes meanwhile is not seen, until the piece ends.
    write(&db, vec![edit(&json!({"_id": "0", "_rev": revs[0]}))]).await;
    let (second, again) = resolve(&mut piece);
    assert!(second.is_none());
    let (before, after) = (attachments.unwrap(), again.unwrap());
    assert!(Arc::ptr_eq(&before.1, &after.1));
    piece.go_on(PieceThread::Serving, Turn::over()).unwrap();
    assert!(piece.recent.attachments.is_none());
    let (third, _) = resolve(&mut piece);
    assert!(matches!(third, Some(Outcome::Conflict)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_refusals_of_a_request_take_a_limited_memory() {
    let dir = tempfile::tempdir().unwrap();
    let (db, revs) = with_documents(dir.path(), 1).await;
    let name = "n".repeat(10_000);
    let edits = (0..1000).map(|_| stub(0, &revs[0], &name)).collect();
    let (resolved, _) = db.resolve(edits, EditMode::Interactive).await.unwrap();
    let mut owned_bytes = 0;
    for outcome in resolved {
        let Err(Outcome::Refused(error, reason)) = outcome else {
            panic!("there is no such attachment");
        };
        assert_eq!(error, MISSING_STUB);
        if let Cow::Owned(reason) = reason {
            owned_bytes += reason.len();
        }
    }
    assert!((1 << 20..=4 << 20).contains(&owned_bytes), "{owned_bytes}");
}

#[test]
fn members_of_entries_that_are_not_used_take_no_memory() {
    let others: String = (0..1000).map(|n| format!(r#","m{n}":[{n}]"#)).collect();
    let said = format!(r#"{{"x":1,"a":{{"stub":true,"revpos":2{others}}},"y":[{{}}]}}"#);
    let entries = read_entries(said.as_bytes()).unwrap();
    let [(name, entry)] = entries.as_slice() else {
        panic!("{} entries", entries.len());
    };
    assert_eq!(&**name, "a");
    assert_eq!(entry.0.len(), 2);
    assert!(entry.is_true("stub"));
    assert_eq!(entry.number("revpos"), Some(2));
    assert!(read_entries(br#"{"a":{"stub":}}"#).is_err());
}
