//! Design documents in use: each revision is read once for all callers.

use std::sync::Arc;

use database::Database;
use document::DocId;
use support::{doc, open, runtime, with_shards, write};

use crate::support;

/// A design document with a body of this length at least, and an index of Mango.
fn design(name: &str, bytes: usize) -> document::EditDoc {
    let data = "x".repeat(bytes);
    doc(&format!(
        r#"{{"_id":"_design/{name}","language":"query","data":"{data}",
            "views":{{"v":{{"map":{{"fields":{{"a":"asc"}}}},"options":{{}}}}}}}}"#
    ))
}

/// Whether three simultaneous calls got the same value.
fn are_one<T>([a, b, c]: [&Arc<T>; 3]) -> bool {
    Arc::ptr_eq(a, b) && Arc::ptr_eq(a, c)
}

async fn check_readers(db: &Arc<Database>, name: &str) {
    let id = DocId::new(&format!("_design/{name}")).unwrap();
    let docs = tokio::join!(db.design_doc(&id), db.design_doc(&id), db.design_doc(&id));
    let docs = [docs.0, docs.1, docs.2].map(|doc| doc.unwrap().unwrap());
    assert!(are_one(docs.each_ref()), "{name}");
    assert!(
        Arc::ptr_eq(&docs[0], &db.design_doc_here(&id).unwrap().unwrap()),
        "{name}"
    );
    let id = id.as_str();
    let views = tokio::join!(
        db.design_async(id),
        db.design_async(id),
        db.design_async(id)
    );
    let views = [views.0, views.1, views.2].map(|design| design.unwrap());
    assert!(are_one(views.each_ref()), "{name}");
    assert!(Arc::ptr_eq(&views[0], &db.design(id).unwrap()), "{name}");
}

#[test]
fn a_design_document_is_read_once_for_all_who_ask_for_it() {
    let dir = tempfile::tempdir().unwrap();
    let databases = open(dir.path());
    runtime().block_on(async {
        let db = databases.create("db", with_shards(2)).await.unwrap();
        write(&db, vec![design("short", 10), design("long", 200_000)]).await;
        for name in ["short", "long"] {
            check_readers(&db, name).await;
        }
        let missing = DocId::new("_design/none").unwrap();
        assert!(db.design_doc(&missing).await.unwrap().is_none());
        assert!(db.design_async("_design/none").await.is_err());
    });
    databases.close();
}

#[test]
fn indexes_of_mango_are_read_once_after_a_change() {
    let dir = tempfile::tempdir().unwrap();
    let databases = open(dir.path());
    runtime().block_on(async {
        let db = databases.create("db", with_shards(2)).await.unwrap();
        write(&db, vec![design("a", 10), design("b", 200_000)]).await;
        let read = || db.find_indexes_async();
        let all = tokio::join!(read(), read(), read());
        let all = [all.0, all.1, all.2].map(|indexes| indexes.unwrap());
        assert!(are_one(all.each_ref()));
        assert_eq!(all[0].len(), 3);
        assert!(Arc::ptr_eq(&all[0], &db.find_indexes().unwrap()));
        write(&db, vec![design("c", 10)]).await;
        assert_eq!(read().await.unwrap().len(), 4);
    });
    databases.close();
}
