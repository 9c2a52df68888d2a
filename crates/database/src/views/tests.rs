//! Openings of indexes.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use super::*;
use crate::fixture::without_background_builds;
use crate::turn::Turn;
use crate::{CreateOptions, Databases, Durability, EditMode, Options};

/// Opens an index while another thread holds the lock of openings and clean-ups.
async fn waits_elsewhere<T>(db: &Database, opening: impl Future<Output = T>) -> T {
    let mut opening = std::pin::pin!(opening);
    {
        let _other = db.views.changing.lock();
        let mut context = Context::from_waker(Waker::noop());
        for _ in 0..3 {
            assert!(matches!(opening.as_mut().poll(&mut context), Poll::Pending));
        }
    }
    opening.await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn indexes_are_not_opened_on_threads_that_serve() {
    let folder = tempfile::tempdir().unwrap();
    let databases = Databases::open(folder.path(), Options::default()).unwrap();
    let options = CreateOptions::default();
    let db = databases.create("db", options).await.unwrap();
    let index = |field: &str| serde_json::json!({"map": {"fields": {field: "asc"}}, "options": {"def": {"fields": [field]}}});
    let text = br#"{"type":"text","index":{}}"#;
    let text = mango::NewIndex::parse(text, &mango::Limits::default()).unwrap();
    let mut members = text.add_to(None).unwrap().unwrap();
    members.push(("autoupdate".to_owned(), b"false".to_vec()));
    let text = mango::index::write_design(&text.ddoc, None, Some(members));
    let design = |id: &str, field: &str| {
        let views = serde_json::json!({"v": index(field)});
        serde_json::json!({"_id": id, "language": "query", "autoupdate": false, "views": views})
    };
    let designs = [design("_design/a", "a"), design("_design/b", "b")];
    let designs = designs.iter().map(|doc| doc.to_string().into_bytes());
    let designs = designs.chain([text]);
    let designs = designs.map(|doc| document::parse_document(&doc).unwrap());
    db.update(designs.collect(), EditMode::Interactive, Durability::Synced)
        .await
        .unwrap();
    let design = db.design("_design/a").unwrap();
    let opened = waits_elsewhere(&db, db.view_index_async(&design))
        .await
        .unwrap();
    assert!(Arc::ptr_eq(&opened, &db.view_index(&design).unwrap()));
    // Those that queries of Mango use.
    let indexes = db.find_indexes_async().await.unwrap();
    for selector in [r#"{"b":1}"#, r#"{"$text":"x"}"#] {
        let defaults = mango::Defaults {
            limit: 25,
            limits: mango::Limits::default(),
        };
        let find = format!(r#"{{"selector":{selector}}}"#);
        let find = mango::Find::parse(find.as_bytes(), &defaults).unwrap();
        let limits = || crate::FindLimits {
            scan_limit: 0,
            scan_warning_threshold: 0,
            aggregate: mango::AggregateLimits {
                groups_max: 1,
                values_max: 1,
                bytes_max: 1,
                user: None,
            },
        };
        let all = db.unwatched();
        let plan = all.plan_find(find, &limits(), &indexes).unwrap();
        let found = waits_elsewhere(&db, all.find(plan, limits())).await;
        assert!(found.is_ok(), "{selector}");
    }
    drop(indexes);
    databases.close();
}

/// An opening or a clean-up.
type Waiting<'a> = Pin<Box<dyn Future<Output = Result<(), Error>> + 'a>>;

#[test]
fn openings_and_clean_ups_of_one_database_take_one_thread() {
    const THREADS: usize = 4;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(THREADS)
        .build()
        .unwrap();
    let _context = runtime.enter();
    let folder = tempfile::tempdir().unwrap();
    let databases = Databases::open(folder.path(), Options::default()).unwrap();
    let options = CreateOptions::default();
    let db = runtime.block_on(databases.create("db", options)).unwrap();
    let view =
        serde_json::json!({"map": {"fields": {"a": "asc"}}, "options": {"def": {"fields": ["a"]}}});
    let design = serde_json::json!({"_id": "_design/a", "language": "query", "autoupdate": false, "views": {"v": view}});
    let text = br#"{"type":"text","index":{}}"#;
    let text = mango::NewIndex::parse(text, &mango::Limits::default()).unwrap();
    let mut members = text.add_to(None).unwrap().unwrap();
    members.push(("autoupdate".to_owned(), b"false".to_vec()));
    let with_text = mango::index::write_design(&text.ddoc, None, Some(members));
    let designs = [design.to_string().into_bytes(), with_text];
    let designs = designs.map(|doc| document::parse_document(&doc).unwrap());
    let written = db.update(designs.into(), EditMode::Interactive, Durability::Synced);
    runtime.block_on(written).unwrap();
    let design = db.design("_design/a").unwrap();
    let with_text = db.design(&text.ddoc).unwrap();
    let (flavour, name) = with_text.text_names().next().unwrap();
    let mut waiting: Vec<Waiting<'_>> = vec![];
    for _ in 0..3 * THREADS {
        let view = async { db.view_index_async(&design).await.map(drop) };
        waiting.push(Box::pin(view));
        let text = async {
            let opened = db.text_index_async(&with_text, flavour, name).await;
            opened.map(drop)
        };
        waiting.push(Box::pin(text));
        waiting.push(Box::pin(db.clean_up_views_async()));
        waiting.push(Box::pin(db.clean_up_text_indexes_async()));
    }
    {
        let _other = db.views.changing.lock();
        let mut context = Context::from_waker(Waker::noop());
        for one in &mut waiting {
            assert!(one.as_mut().poll(&mut context).is_pending());
        }
        // It would wait without end if each of them had a thread.
        let (done, is_done) = std::sync::mpsc::channel();
        runtime.spawn_blocking(move || done.send(()));
        let waited = is_done.recv_timeout(std::time::Duration::from_secs(60));
        assert!(waited.is_ok());
    }
    for one in waiting {
        runtime.block_on(one).unwrap();
    }
    // The first one started when all others waited, and did their work.
    assert_eq!(db.views.view_clean_ups.started(), 1);
    assert_eq!(db.views.text_clean_ups.started(), 1);
    databases.close();
}

/// Writes one document.
async fn write(db: &Arc<Database>, doc: serde_json::Value) {
    let edit = document::parse_document(doc.to_string().as_bytes()).unwrap();
    let written = db.update(vec![edit], EditMode::Interactive, Durability::Synced);
    written.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_build_is_stopped_when_its_design_document_is_gone_and_nobody_waits() {
    let folder = tempfile::tempdir().unwrap();
    let databases = Databases::open(folder.path(), without_background_builds()).unwrap();
    let created = databases.create("db", CreateOptions::default()).await;
    let db = created.unwrap();
    let view =
        serde_json::json!({"map": {"fields": {"a": "asc"}}, "options": {"def": {"fields": ["a"]}}});
    let mut doc = serde_json::json!({"_id": "_design/a", "language": "query", "autoupdate": false, "views": {"v": view}});
    write(&db, doc.clone()).await;
    write(&db, serde_json::json!({"_id": "d", "a": 1})).await;
    let design = db.design("_design/a").unwrap();
    let index = db.view_index(&design).unwrap();
    let is_paused = || index.shards.iter().any(|shard| shard.is_paused());
    // The only design document is read in any turn.
    let pause_unused = || assert!(db.pause_unused_builds(Turn::over()).unwrap());
    // As during a build in the background.
    index.updates.send_modify(|u| u.running = true);
    pause_unused();
    assert!(!is_paused(), "the design document is there");
    let waiting = index.updates.subscribe();
    doc["_rev"] = design.rev.to_string().into();
    doc["_deleted"] = true.into();
    write(&db, doc.clone()).await;
    pause_unused();
    assert!(!is_paused(), "a request waits");
    drop(waiting);
    pause_unused();
    assert!(is_paused());
    let stopped = Err(index::Error::Stopped);
    assert!(was_paused(&stopped, &index.shards[0]));
    // A request that comes before the update has ended gets no error.
    index.resume();
    assert!(was_paused(&stopped, &index.shards[0]));
    pause_unused();
    assert!(is_paused());
    // A request for the same index continues it.
    index.updates.send_modify(|u| u.running = false);
    let updated = db.update_view(&index, &Requester::Background);
    updated.await.unwrap();
    assert!(db.view_is_current(&index) && !is_paused());
    databases.close();
}
